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


def test_key_lines_between_names_with_links_are_highlighted(build: Callable) -> None:
    code = TEXT.replace("# Before.\n", '# Before.\nimport math\n\n"""Two\nlines."""\n')
    page = build(code.replace("a = 1  #", "a = math.sqrt(1.0)  #")).page
    highlighted = [line.text.rstrip("\n") for line in page.select(".highlight-Python .hll")]
    assert highlighted[:2] == ["    a = math.sqrt(1.0)", "    return a + 1  # why"]
    assert not page.select(".highlight-Python .hll .hll")


def test_a_mark_is_no_difference(build: Callable) -> None:
    page = build(TEXT).page
    changed = [line.text.rstrip("\n") for line in page.select(".gallery-difference :is(.gd, .gi)")]
    assert sorted(changed) == sorted(
        ["-def old():", "-    return a", "+def new():", "+    return a + 1  # why"]
    )
