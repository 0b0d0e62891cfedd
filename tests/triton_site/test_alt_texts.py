"""Each figure has an alternative text that says what it shows."""

from collections.abc import Callable

import pytest
from bs4 import BeautifulSoup

FIGURE = """
# %%
# .. image:: /drawn.svg
#    :alt: {alt}
#    :class: sphx-glr-single-img
"""
TEXT = '''"""
First
=====

Words.
"""

# sphinx_gallery_fold = "draws the words of a group"
print(1)
{one}
# %%
# A section
# ---------
#
# A kernel.

kernel = 1
{two}
# sphinx_gallery_fold = "traces the roofline, and draws it"
print(2)
{three}{four}'''


@pytest.fixture
def alternatives(build: Callable, tmp_path) -> Callable:
    """The alternative texts of the figures of a page that were recorded with the texts given."""

    def of(*recorded: str) -> list[str]:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs/drawn.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
        names = "one", "two", "three", "four"
        figures = (FIGURE.format(alt=alt) for alt in recorded)
        page: BeautifulSoup = build(TEXT.format(**dict(zip(names, figures, strict=True)))).page
        return [image["alt"] for image in page.select("img.sphx-glr-single-img")]

    return of


def test_a_figure_without_title_is_called_by_its_fold_or_its_heading(alternatives: Callable):
    assert alternatives("figure 1", "figure 2", "figure 3", "Figure 4 of a paper") == [
        "The words of a group",
        "A section",
        "Traces the roofline, and draws it",
        "Figure 4 of a paper",
    ]
