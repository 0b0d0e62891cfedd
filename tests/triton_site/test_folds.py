"""Machinery is folded on the page; what it printed, and the script, are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triton_site.pages.cells import cells_of

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

# %%
# .. code-block:: Python
#
#    shown = "in the text, and no cell"
#
# After.

kernel = 1
'''


def test_a_marked_cell_is_folded_with_its_line(build: Callable) -> None:
    page = build(TEXT).page
    (fold,) = page.select("details.gallery-fold")
    assert fold.summary.span.text == "plots the rates"
    assert "def plot" in fold.pre.text
    assert "sphinx_gallery_fold" not in page.text
    assert not fold.has_attr("open")


def test_other_code_stays_in_sight(build: Callable) -> None:
    page = build(TEXT).page
    outside = [pre.text for pre in page.find_all("pre") if pre.find_parent("details") is None]
    assert any("kernel = 1" in text for text in outside)
    assert any("no cell" in text for text in outside)


def test_cells_of_settings_alone_are_none(build: Callable, tmp_path) -> None:
    build(TEXT)
    from gallery_recorder.project.script import load_script

    found = cells_of(load_script(tmp_path / "gallery" / "01-first.py", tmp_path / "gallery"))
    assert [cell.setting("fold") for cell in found] == ["plots the rates", ""]


def test_output_that_is_evidence_folds_with_its_code(build: Callable) -> None:
    text = TEXT.replace('the rates"\n', 'the rates"\n# sphinx_gallery_fold_output = True\n')
    printed = """

# %%
# .. rst-class:: sphx-glr-script-out
#
# .. code-block:: none
#
#    {}
#
# {}
"""
    page = build(text.replace("plot()\n\n", "plot()\n" + printed.format("42 GB/s", "Then."))).page
    (fold,) = page.select("details.gallery-fold")
    assert "42 GB/s" in fold.text
    assert fold.select_one(".gallery-fold-note").text.endswith("with output")
    assert "Then." not in fold.text
    assert "sphinx_gallery_fold_output" not in page.text


@pytest.mark.parametrize("value", ["'8'", "-1", "2.5"])
def test_a_number_of_lines_that_is_none_is_told_with_its_script(build: Callable, value) -> None:
    text = TEXT.replace('the rates"\n', f'the rates"\n# sphinx_gallery_fold_output = {value}\n')
    with pytest.raises(Exception, match=r"\.py: sphinx_gallery_fold_output is .*; write True"):
        build(text)


def test_a_function_that_the_page_is_about_stays_in_sight(build: Callable) -> None:
    text = TEXT.replace('the rates"\n', 'the rates"\n# sphinx_gallery_show = "plot"\n')
    page = build(text).page
    (fold,) = page.select("details.gallery-fold")
    shown = fold.find_previous("pre")
    assert shown.text.strip() == 'def plot():\n    """Plot."""'
    assert "plot()" in fold.pre.text


def test_what_is_to_be_shown_has_to_be_there(build: Callable) -> None:
    with pytest.raises(Exception, match="'plat', which it does not define"):
        build(TEXT.replace('the rates"\n', 'the rates"\n# sphinx_gallery_show = "plat"\n'))


def test_a_number_leaves_so_many_printed_lines_in_sight(build: Callable) -> None:
    text = TEXT.replace('the rates"\n', 'the rates"\n# sphinx_gallery_fold_output = 2\n')
    head = "\n# %%\n# .. rst-class:: sphx-glr-script-out\n#\n# .. code-block:: none\n#\n"
    printed = head + "{}\n#\n# Then.\n"
    long, short = (printed.format("\n".join(f"#    row {n}" for n in range(k))) for k in (5, 3))
    page = build(text.replace("plot()\n\n", f"plot()\n{long}\n")).page
    code, rest = page.select("details.gallery-fold")
    assert "def plot" in code.text
    assert rest.pre.text.split("\n")[:3] == ["row 2", "row 3", "row 4"]
    assert rest.find_previous("pre").text.split("\n")[:2] == ["row 0", "row 1"]
    assert rest.select_one(".gallery-fold-note").text == "3 lines"
    page = build(text.replace("plot()\n\n", f"plot()\n{short}\n")).page
    assert len(page.select("details.gallery-fold")) == 1  # a fold is as high as the line in it
