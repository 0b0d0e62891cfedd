"""The page shows what a step changes: against the kernel that the cell names, line by line."""

from __future__ import annotations

from collections.abc import Callable

from triton_site.kernels.kernel_diff import difference
from triton_site.pages.cells import functions

TEXT = '''"""
First
=====

Words.
"""


def kernel(x, y):
    """One
    step."""
    x = x + 1
    return y


# %%
# Then another one.

# sphinx_gallery_difference = "{name}"


def launcher():
    pass


def tile_kernel(x, y):
    """One
    step."""
    x = x + 2
    return y
'''


def test_a_rewritten_line_stands_below_what_it_was() -> None:
    lines = list(difference("a = 1\nb = 2\nc = 3", "a = 1\nb = 20\nc = 3"))
    assert lines == [(" ", "a = 1"), ("-", "b = 2"), ("+", "b = 20"), (" ", "c = 3")]


def test_long_runs_of_equal_lines_are_left_out() -> None:
    same = "\n".join(f"line_{number}" for number in range(9))
    lines = list(difference(f"{same}\nold", f"{same}\nnew"))
    assert lines[0] == ("…", "6 equal lines")
    assert [text for sign, text in lines if sign == "+"] == ["new"]


def test_a_function_comes_with_its_decorators() -> None:
    assert functions("x = 1\n@jit\n@other\ndef f():\n    pass") == {
        "f": "@jit\n@other\ndef f():\n    pass"
    }


def test_the_page_shows_what_is_gone_and_what_is_new(build: Callable) -> None:
    built = build(TEXT.format(name="kernel"))
    (fold,) = built.page.select("details.gallery-fold-difference")
    assert "kernel → tile_kernel" in fold.summary.text
    assert [node.text.strip() for node in fold.find_all("del")] == [
        "- def kernel(x, y):",
        "-     x = x + 1",
    ]
    assert "+     x = x + 2" in fold.text
    assert built.warnings == ""


def test_a_kernel_that_is_not_there_is_warned_of(build: Callable) -> None:
    warnings = build(TEXT.format(name="kernle")).warnings
    assert "'kernle'" in warnings
    assert "no earlier cell" in warnings
