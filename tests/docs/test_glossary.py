"""The first use of a glossary term on a tutorial's page links to its entry."""

import json
import re

import pytest

LINK = re.compile(r'<a class="reference internal" href="[^"]*glossary\.html#(term-[^"]+)"')


@pytest.fixture(scope="module")
def page(site):
    return (site / "getting-started" / "tutorials" / "01-vector-add.html").read_text()


def test_each_term_is_linked_once(page):
    terms = LINK.findall(page)
    assert {"term-program", "term-grid", "term-mask", "term-memory-bound"} <= set(terms)
    assert len(terms) == len(set(terms))


def test_only_running_text_is_linked(page):
    for element in ("h1", "h2", "h3", "pre", "code", "figcaption"):
        for content in re.findall(rf"<{element}[ >].*?</{element}>", page, re.DOTALL):
            assert "gallery-term" not in content


def test_links_in_notebooks_lead_to_the_site(site):
    """A notebook is read elsewhere: an address relative to the page would lead nowhere."""
    paths = list((site / "_downloads").glob("*/*.ipynb"))
    assert paths
    for path in paths:
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "markdown":
                for address in re.findall(r"\]\(([^)]*glossary[^)]*)\)", "".join(cell["source"])):
                    assert address.startswith("https://"), (path, address)


def test_no_entry_is_empty(site):
    html = (site / "glossary.html").read_text()
    for definition in re.findall(r"<dd>(.*?)</dd>", html, re.DOTALL):
        assert len(re.sub(r"<[^>]+>", "", definition)) > 20
