"""A key line is highlighted; its mark is in the script only."""

from collections.abc import Callable

TEXT = '''"""
First
=====

Words.
"""

# %%
# Before.


def old():
    a = 1
    return a


# %%
# After.

# sphinx_gallery_difference = "old"
def new():
    a = 1  # <-
    return a + 1  # why  # <-


# %%
# Folded.

# sphinx_gallery_fold = "shows"
# sphinx_gallery_show = "shown"
def shown():
    return 2  # <-
'''


def test_key_lines_are_highlighted_without_their_marks(build: Callable) -> None:
    page = build(TEXT).page
    highlighted = [line.text.rstrip("\n") for line in page.select(".highlight-Python .hll")]
    assert highlighted == ["    a = 1", "    return a + 1  # why", "    return 2", "    return 2"]
    assert "<-" not in page.text


def test_a_mark_is_no_difference(build: Callable) -> None:
    page = build(TEXT).page
    changed = [line.text.rstrip("\n") for line in page.select(".gallery-difference :is(.gd, .gi)")]
    assert sorted(changed) == sorted(
        ["-def old():", "-    return a", "+def new():", "+    return a + 1  # why"]
    )
