"""Which names mean the same on every system."""

from __future__ import annotations

import pytest

from gallery_recorder.store import names


@pytest.mark.parametrize("name", ["CON", "aux.csv", "COM1.a", "com¹", "LPT³.csv", "nul .csv", "a."])
def test_a_name_that_some_system_keeps_for_itself(name):
    assert not names.is_path(name)


@pytest.mark.parametrize("name", ["con1.csv", "a.con", "com.csv", "nul-.csv", "com10", "¹"])
def test_a_name_that_every_system_can_have(name):
    assert names.is_path(name)


@pytest.mark.parametrize(
    ("one", "other"), [("A.csv", "a.csv"), ("\xe9", "e\u0301"), ("\xc9", "e\u0301")]
)
def test_names_that_some_system_cannot_tell_apart(one, other):
    assert names.twin(one, ["b", one, other]) == other


def test_what_looks_like_a_digit_and_is_none_can_be_sorted():
    assert sorted(["3²", "10", "3"], key=names.order_of) == ["3", "3²", "10"]
