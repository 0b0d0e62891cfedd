"""Formulas in pages: as MathML, numbered where they have a label, and a warning where unknown."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace


def render(folder: Path, text: str) -> tuple[BeautifulSoup, str]:
    """Build a page of *text*; return its HTML and the warnings."""
    source, warnings = folder / "source", StringIO()
    source.mkdir()
    (source / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    with docutils_namespace():  # Sphinx registers its nodes and roles once a process
        Sphinx(
            source,
            None,
            folder / "html",
            folder / "doctrees",
            "html",
            confoverrides={
                "extensions": ["triton_site.pages.mathml"],
                "html_math_renderer": "mathml",
                "html_theme": "basic",
            },
            status=None,
            warning=warnings,
        ).build()
    page = (folder / "html" / "index.html").read_text(encoding="utf-8")
    return BeautifulSoup(page, "html.parser"), warnings.getvalue()


def test_inline_formula(tmp_path: Path) -> None:
    page, warnings = render(tmp_path, r"so :math:`y = \frac{x}{1 - p}` it is")
    (formula,) = page.find_all("math")
    assert formula.mfrac is not None
    assert formula.get("display") != "block"
    assert not warnings


def test_displayed_formula_has_a_number_to_refer_to(tmp_path: Path) -> None:
    page, warnings = render(
        tmp_path, ".. math::\n   :label: mean\n\n   m = \\frac{1}{n} \\sum_i x_i\n\nSee :eq:`mean`."
    )
    assert page.math["display"] == "block"
    assert page.find(class_="eqno").get_text().startswith("(1)")
    assert page.find("a", class_="internal").get_text() == "(1)"
    assert page.find(id="equation-mean") is not None
    assert not warnings


@pytest.mark.parametrize(
    "formula",
    [
        r"a &= b \\ c &= \left\lceil \frac{n}{\mathtt{BLOCK}} \right\rceil",
        r"\begin{aligned} a &= b \\ c &= d \end{aligned}",
        r"y_i = \begin{cases} x_i & \text{if } r_i > p \\ 0 & \text{otherwise} \end{cases}",
        r"\operatorname{softmax}(x)_i = e^{x_i - \max_j x_j} / \sum_{j=1}^{N} e^{x_j}",
    ],
)
def test_forms_that_the_tutorials_use(tmp_path: Path, formula: str) -> None:
    page, warnings = render(tmp_path, f".. math::\n\n   {formula}")
    assert page.math is not None
    assert not warnings


def test_an_index_stands_beside_what_has_an_accent_and_a_line_is_as_long_as_its_formula(
    tmp_path: Path,
) -> None:
    page, _ = render(
        tmp_path, r".. math::" + "\n\n" + r"   y_j = \hat{x}_j \, \overline{w g \hat{x}}"
    )
    assert page.find("munderover") is None
    assert [index.find("mover") is not None for index in page.find_all("msub")] == [False, True]
    assert page.find("mrow", class_="overline").get_text("", strip=True).startswith("wgx")


def test_formula_that_is_not_known_is_a_warning_at_its_line(tmp_path: Path) -> None:
    page, warnings = render(tmp_path, r"so :math:`\nosuchcommand{x} < 1` it is")
    assert "index.rst:4" in warnings
    assert r"\nosuchcommand" in warnings
    assert page.find(class_="math").code.get_text() == r"\nosuchcommand{x} < 1"


def test_no_script_is_added(tmp_path: Path) -> None:
    page, _ = render(tmp_path, ":math:`x`")
    assert "mathjax" not in str(page).lower()
