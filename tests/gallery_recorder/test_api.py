"""The files of the API: reading them, and what is refused."""

import json
import sys
from pathlib import Path

import pytest

from triton_site import api
from triton_site.api import Api, ApiError, Entry, Member, Overload

SMALL = Api(
    api.SCHEMA,
    "3.9.0",
    (
        Entry("t.load", "function", "t.core", "kernel", "(pointer, mask=None)", "Loads.", True),
        Entry("t.C", "class", "t", members=(Member("run", "method", "(x)"),)),
        Entry("t.libdevice.sin", "function", overloads=(Overload("hip", ("fp32",), "fp32", "s"),)),
    ),
)


def test_round_trip(tmp_path):
    path = api.save(SMALL, tmp_path)
    assert path.name == "triton-3.9.0.json"
    assert api.load(path) == SMALL


def test_versions_are_sorted_as_numbers(tmp_path):
    for version in ("3.10.0", "3.9.0", "3.6.0"):
        api.save(Api(api.SCHEMA, version, ()), tmp_path)
    assert [item.triton for item in api.load_all(tmp_path)] == ["3.6.0", "3.9.0", "3.10.0"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "`schema` is 99, but this version reads"),
        ({"entries": [{"name": "x", "kind": "verb"}]}, r"Invalid enum value 'verb'.*entries\[0\]"),
        ({"entries": [{"name": "x", "kind": "data", "colour": 1}]}, "unknown field `colour`"),
        ({"triton": None}, r"Expected `str`, got `null`"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, change, message):
    path = api.save(SMALL, tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ApiError, match=message) as error:
        api.load(path)
    assert str(path) in str(error.value)
    assert "make api" in str(error.value)


def test_a_truncated_file_is_refused(tmp_path):
    path = api.save(SMALL, tmp_path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ApiError, match="is not whole JSON"):
        api.load(path)


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(ApiError, match="cannot be read"):
        api.load(tmp_path / "triton-1.0.json")
    with pytest.raises(ApiError, match="make one with: make api"):
        api.load_all(tmp_path)


def test_command_says_what_it_wrote(tmp_path, capsys):
    pytest.importorskip("triton")
    assert api.main([str(tmp_path)]) == 0
    assert "names of Triton" in capsys.readouterr().out
    assert api.main([str(tmp_path / "none")]) == 2


def test_command_without_triton(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    assert api.main([str(tmp_path)]) == 1
    assert "pip install triton" in capsys.readouterr().out


def test_signatures_are_python():
    """Whatever the version, a signature can be read back, and hides what the compiler passes."""
    folder = Path(__file__).parents[2] / "docs" / "python-api"
    for item in api.load_all(folder):
        for entry in item.entries:
            for signature in (entry.signature, *(member.signature for member in entry.members)):
                compile(f"def f{signature or '()'}: pass", entry.name, "exec")
                assert "_semantic" not in signature
                assert "<" not in signature
