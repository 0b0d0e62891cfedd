"""Notebooks as JupyterLab shows them: its own markup and styles, as nbconvert writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, Page

NAMES = ("01-vector-add", "02-fused-softmax", "03-matrix-multiplication", "06-fused-attention")
#: reStructuredText, and Markdown that was not taken for such.
RAW = re.compile(r":(?:doc|ref|math|term|py:\w+):`|^\.\. |``|\]\(http|^#+ |^\* |\*\*\w", re.M)


@pytest.fixture(scope="module")
def rendered(site: Path) -> dict[str, str]:
    # Without MathJax, which is from another host: what it would be given stays in sight.
    exporter = HTMLExporter(template_name="lab", mathjax_url="", require_js_url="")
    made = {}
    for name in NAMES:
        # Each recording has a notebook; the page leads to that of its own.
        page = site / "getting-started" / "tutorials" / f"{name}.html"
        found = re.search(rf"_downloads/\w+/{name}\.ipynb", page.read_text(encoding="utf-8"))
        path = site / found.group()
        made[name], _ = exporter.from_notebook_node(nbformat.read(path, as_version=4))
    return made


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that reaches no other host."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.route(re.compile("^https?:"), lambda route: route.abort())
    yield opened
    opened.close()


@pytest.mark.parametrize("name", NAMES)
def test_text_is_markdown_and_code_is_folded_as_on_the_page(
    page: Page, rendered: dict[str, str], name: str
) -> None:
    page.set_content(rendered[name])
    prose = page.locator(".jp-RenderedMarkdown")
    assert prose.locator("h1").count() == 1
    assert prose.locator("h2").count() > 5
    assert prose.locator("table").count() >= 1  # the ladder
    assert prose.locator("a[href^='https://']").count() > 5
    texts = prose.evaluate_all(
        """(nodes) => nodes.map((node) => {
            const copy = node.cloneNode(true);
            for (const code of copy.querySelectorAll("code, pre")) code.remove();
            return copy.innerText;
        })"""
    )
    assert [found for text in texts for found in RAW.findall(text)] == []
    assert page.locator(".jp-mod-noInput, .jp-CodeCell:not(:has(.jp-InputArea-editor))").count() > 2


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_under_their_cells_and_pictures_are_shown(
    page: Page, rendered: dict[str, str], name: str
) -> None:
    page.set_content(rendered[name])
    page.wait_for_timeout(200)
    assert page.locator(".jp-CodeCell .jp-OutputArea-output pre").count() > 3
    pictures = page.locator(".jp-CodeCell .jp-OutputArea-output :is(img, svg)")
    assert pictures.count() >= 1
    for picture in pictures.all():
        assert picture.bounding_box()["height"] > 100
    formulas = re.findall(r"\$[^$]+\$", page.locator("body").inner_text())
    assert all("`" not in formula for formula in formulas)
