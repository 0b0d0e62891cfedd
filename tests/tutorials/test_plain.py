"""The fixture ``plain``: a lesson's own functions, without its checks and its second part."""

from types import SimpleNamespace

import pytest

from tests.galleries import FILES

SCRIPT = """import triton

SIZE = 4
count = undefined  # noqa: F821


def add(x, y):
    return x + y + 0 * SIZE


add_in_kernel = triton.jit(add)
raise SystemExit("a check")

# %%
# In a program
# ------------


def add(x, y):
    return "with its checks"
"""


def test_it_has_what_stands_before_in_a_program(tmp_path, monkeypatch, plain):
    path = tmp_path / "99-add.py"
    path.write_text(SCRIPT)
    monkeypatch.setitem(FILES, "99-add", SimpleNamespace(path=path))
    names = plain("99-add")
    assert names.add(1, 2) == 3
    assert names.add_in_kernel.fn is names.add
    assert not hasattr(names, "count")


def test_a_lesson_of_one_part_has_no_plain_function(tmp_path, monkeypatch, plain):
    path = tmp_path / "98-add.py"
    path.write_text("x = 1\n")
    monkeypatch.setitem(FILES, "98-add", SimpleNamespace(path=path))
    with pytest.raises(AssertionError, match="98-add has no part In a program"):
        plain("98-add")
