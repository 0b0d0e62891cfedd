"""A marked cell is folded on the page; its output and other code stay in sight."""

from collections.abc import Callable

import pytest

TEXT = '''"""
First
=====

Words.
"""

# sphinx_gallery_thumbnail_number = 1

# %%
# Before.

# sphinx_gallery_fold = "plots the rates"
def plot():
    """Plot."""


plot()
{printed}
# %%
# .. code-block:: Python
#
#    shown = "in the text, and no cell"
#
# After.

kernel = 1
'''
SETTING = 'the rates"\n'


def tutorial(setting: str = "", printed: int = 0) -> str:
    """The tutorial with another *setting* in its cell and that many lines of output."""
    lines = "\n".join(f"#    row {number}" for number in range(printed))
    head = "\n# %%\n# .. rst-class:: sphx-glr-script-out\n#\n# .. code-block:: none\n#\n"
    text = TEXT.format(printed=f"{head}{lines}\n#\n# Then.\n" if printed else "")
    return text.replace(SETTING, f"{SETTING}# sphinx_gallery_{setting}\n") if setting else text


def test_a_marked_cell_is_folded_and_other_code_is_not(build: Callable) -> None:
    page = build(tutorial(printed=3)).page
    (fold,) = page.select("details.gallery-fold")
    lines = len(fold.pre.text.strip().splitlines())
    assert fold.summary.span.text == f"Show {lines} lines"
    assert fold.select_one(".gallery-fold-note").text == "Plots the rates"
    assert "def plot" in fold.pre.text
    assert not fold.has_attr("open")
    outside = [pre.text for pre in page.find_all("pre") if pre.find_parent("details") is None]
    for text in ("kernel = 1", "no cell", "row 2"):
        assert any(text in pre for pre in outside)
    assert "sphinx_gallery" not in page.text


def test_output_can_fold_with_its_code(build: Callable) -> None:
    (fold,) = build(tutorial("fold_output = True", printed=3)).page.select("details.gallery-fold")
    assert "row 2" in fold.text
    assert "Then." not in fold.text
    assert fold.select_one(".gallery-fold-note").text.endswith("with output")


def test_a_named_function_stays_in_sight_above_the_fold(build: Callable) -> None:
    (fold,) = build(tutorial('show = "plot"')).page.select("details.gallery-fold")
    assert fold.find_previous("pre").text.strip() == 'def plot():\n    """Plot."""'


def test_a_wrong_setting_is_reported(build: Callable) -> None:
    with pytest.raises(Exception, match="'plat', which the folded cell does not define"):
        build(tutorial('show = "plat"'))
