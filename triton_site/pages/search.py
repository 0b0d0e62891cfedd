"""Search by section: a Sphinx extension that keeps the text of every section, for the search page.

Sphinx's own index knows which page has a word, not where on the page. This one keeps, for each
section, each entry of the API reference and each term of the glossary, its title, its address and
its words, in ``_static/search-sections.js``. ``docs/_static/search.js`` ranks them in the reader's
browser, also from ``file://``; the search page is ``docs/_templates/search.html``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment

from gallery_recorder.render import downloads

#: Pages that list what others say, and what few readers of kernels look for.
_LISTS = ("recordings", "performance", "faults", "engine")


#: The class of what stands below the name of an entry: where it is from, and who uses it.
_FACTS = "api-facts"


class Section(NamedTuple):
    """What the search page shows, and what it looks into."""

    title: str
    anchor: str
    kind: str
    prose: str
    code: str
    terms: str


class SearchDomain(Domain):
    """Keeps the sections of each page from when it was read."""

    name = "sections"
    label = "Search by section"
    data_version = 2
    initial_data: ClassVar[dict[str, dict[str, list[Section]]]] = {"pages": {}}

    def process_doc(self, env: BuildEnvironment, docname: str, document: nodes.document) -> None:
        """Collect the sections of a page that was read."""
        del env
        self.data["pages"][docname] = list(_sections(document))

    def clear_doc(self, docname: str) -> None:
        """Forget a page that is read again, or is gone."""
        self.data["pages"].pop(docname, None)

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take what another process has read."""
        for docname in docnames:
            self.data["pages"][docname] = otherdata["pages"][docname]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_domain(SearchDomain)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the file that the search page loads, if it would differ."""
    if error or app.builder.format != "html":
        return
    read = app.env.domaindata[SearchDomain.name]["pages"]
    pages = [
        [app.builder.get_target_uri(docname), sections[0].title, _rank(docname), sections]
        for docname, sections in sorted(read.items())
        if sections
    ]
    text = "window.gallerySections = " + json.dumps(pages, ensure_ascii=False) + ";\n"
    downloads.write(Path(app.outdir, "_static", "search-sections.js"), text.encode())


def _rank(docname: str) -> float:
    """How much a page counts: lessons first, then the reference, solutions, lists."""
    if docname.startswith(_LISTS):
        return 0.4
    if "/recordings-" in docname or docname.endswith("/index"):
        return 0.25
    if "/solutions/" in docname or docname.endswith("triton.language.extra"):
        return 0.7
    return 1.3 if "/tutorials/" in docname or "/chapter-" in docname else 1.0


def _sections(document: nodes.document) -> Iterator[Section]:
    """Every section of a page, and every entry and term in it, each with its own text alone."""
    for section in document.findall(nodes.section):
        title = section.next_node(nodes.title)
        kind = "page" if section.parent is document else "section"
        anchor = "" if kind == "page" else section["ids"][0]
        if title is not None:
            yield Section(title.astext(), anchor, kind, *_text(section.children[1:]))
        for child in section.children:
            if isinstance(child, addnodes.desc):
                yield from _entry(child)
            elif isinstance(child, addnodes.glossary):
                yield from _terms(child)


def _entry(description: addnodes.desc) -> Iterator[Section]:
    for signature in description.findall(addnodes.desc_signature):
        if signature.parent is description and signature["ids"]:
            name = signature["ids"][0]
            yield Section(name, name, "entry", *_text(description.children[-1:]))


def _terms(glossary: addnodes.glossary) -> Iterator[Section]:
    for item in glossary.findall(nodes.definition_list_item):
        term = item.next_node(nodes.term)
        if term is not None and term["ids"]:
            yield Section(term.astext(), term["ids"][0], "term", *_text(item.children[1:]))


def _text(children: list[nodes.Node]) -> tuple[str, str, str]:
    """Prose, code and what is set in bold below some nodes, but not in sections, entries, terms."""
    prose: list[str] = []
    code: list[str] = []
    bold: list[str] = []
    waiting = list(reversed(children))
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.section | addnodes.desc | addnodes.glossary | nodes.raw):
            continue
        if isinstance(node, nodes.Element) and _FACTS in node.get("classes", ()):
            continue  # titles of the pages that use a name are words of those pages
        if isinstance(node, nodes.literal_block):
            code.append(node.astext())
        elif isinstance(node, nodes.TextElement) and not isinstance(node, nodes.Invisible):
            prose.append(node.astext())
            bold += [part.astext() for part in node.findall(nodes.strong)]
        else:
            waiting += reversed(node.children)
    return _line(prose), _line(code), _line(bold)


def _line(parts: list[str]) -> str:
    return " ".join(" ".join(parts).split())
