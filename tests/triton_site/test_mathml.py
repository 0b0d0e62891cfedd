"""Formulas are MathML, numbered if they have a label; an unknown one is a warning."""

from io import StringIO
from pathlib import Path

from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace


def render(folder: Path, text: str) -> tuple[BeautifulSoup, str]:
    """Build a page of *text* and return its HTML and the warnings."""
    source, warnings = folder / "source", StringIO()
    source.mkdir()
    (source / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    settings = {
        "extensions": ["triton_site.pages.mathml"],
        "html_math_renderer": "mathml",
        "html_theme": "basic",
    }
    with docutils_namespace():
        Sphinx(
            source, None, folder / "html", folder / "trees", "html", settings, None, warnings
        ).build()
    page = (folder / "html" / "index.html").read_text(encoding="utf-8")
    return BeautifulSoup(page, "html.parser"), warnings.getvalue()


def test_a_displayed_formula_has_a_number_to_refer_to(tmp_path: Path) -> None:
    page, warnings = render(
        tmp_path, ".. math::\n   :label: mean\n\n   m = \\frac{1}{n} \\sum_i x_i\n\nSee :eq:`mean`."
    )
    assert page.math["display"] == "block"
    assert page.find("a", class_="internal").get_text() == "(1)"
    assert page.find(id="equation-mean") is not None
    assert not warnings


def test_forms_that_the_tutorials_use_are_known_and_need_no_script(tmp_path: Path) -> None:
    formulas = (
        r"a &= b \\ c &= \left\lceil \frac{n}{\mathtt{BLOCK}} \right\rceil",
        r"y_i = \begin{cases} x_i & \text{if } r_i > p \\ 0 & \text{otherwise} \end{cases}",
        r"\operatorname{softmax}(x)_i = e^{x_i - \max_j x_j} / \sum_{j=1}^{N} e^{x_j}",
    )
    page, warnings = render(tmp_path, "\n\n".join(f".. math::\n\n   {f}" for f in formulas))
    assert len(page.find_all("math")) == len(formulas)
    assert not warnings
    assert "mathjax" not in str(page).lower()


def test_an_unknown_formula_is_a_warning_at_its_line_and_shown_escaped(tmp_path: Path) -> None:
    page, warnings = render(tmp_path, r"so :math:`\nosuchcommand{x} < 1` it is")
    assert "index.rst:4" in warnings
    assert page.find(class_="math").code.get_text() == r"\nosuchcommand{x} < 1"
