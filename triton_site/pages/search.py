"""Search by section: the text of every section, for the search page.

Sphinx's own index leads to pages. This one leads to sections, entries of the API reference and
terms of the glossary: ``_static/search-sections.js`` holds the title, address and words of each.
``docs/_static/search.js`` ranks them in the reader's browser, also from ``file://``. Sphinx keeps
the sections of a page in its environment, so a second build finds what a first one would.
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

from gallery_recorder.api import downloads

#: Pages that repeat others, and pages for maintainers.
_LISTS = ("recordings", "performance", "releases", "engine")
#: The classes of the lines under a title, and of the downloads at the end of a page.
_LEFT_OUT = {"api-facts", "sphx-glr-footer"}


class Section(NamedTuple):
    """A search result: what the page shows of it, and the words that it is found by."""

    title: str
    anchor: str
    kind: str
    prose: str
    code: str
    terms: str


class SearchDomain(Domain):
    """The sections of each page."""

    name = "sections"
    label = "Search by section"
    data_version = 4
    initial_data: ClassVar[dict[str, dict[str, list[Section]]]] = {"pages": {}}

    def process_doc(self, env: BuildEnvironment, docname: str, document: nodes.document) -> None:
        """Collect the sections of a page that was read."""
        del env
        self.data["pages"][docname] = list(_sections(document))

    def clear_doc(self, docname: str) -> None:
        """Forget a page."""
        self.data["pages"].pop(docname, None)

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take the pages that another process has read."""
        self.data["pages"] |= {name: otherdata["pages"][name] for name in docnames}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_domain(SearchDomain)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the file that the search page loads, without pages marked ``:nosearch:``."""
    if error or app.builder.format != "html":
        return
    pages = [
        [app.builder.get_target_uri(docname), sections[0].title, _weight(docname), sections]
        for docname, sections in sorted(app.env.domaindata[SearchDomain.name]["pages"].items())
        if sections and "nosearch" not in app.env.metadata[docname]
    ]
    text = f"window.gallerySections = {json.dumps(pages, ensure_ascii=False)};\n"
    downloads.write(Path(app.outdir, "_static", "search-sections.js"), text.encode())


def _weight(docname: str) -> float:
    """The weight of a page: lessons first, then the reference, solutions, lists."""
    if docname.startswith(_LISTS):
        return 0.4
    if "/recordings-" in docname or docname.endswith("/index"):
        return 0.25
    if "/solutions/" in docname or docname.endswith("triton.language.extra"):
        return 0.7
    return 1.3 if "/tutorials/" in docname or "/chapter-" in docname else 1.0


def _sections(document: nodes.document) -> Iterator[Section]:
    """Every section of a page and every entry and term in it, each with its own text only."""
    for section in document.findall(nodes.section):
        kind = "page" if section.parent is document else "section"
        anchor = "" if kind == "page" else section["ids"][0]
        yield Section(section[0].astext(), anchor, kind, *_text(section.children[1:]))
    for signature in document.findall(addnodes.desc_signature):
        if signature["ids"] and isinstance(signature.parent.parent, nodes.section):
            name = signature["ids"][0]
            yield Section(name, name, "entry", *_text(signature.parent.children[-1:]))
    for glossary in document.findall(addnodes.glossary):
        for item in glossary.findall(nodes.definition_list_item):
            term = item[0]
            yield Section(term.astext(), term["ids"][0], "term", *_text(item.children[1:]))


def _text(children: list[nodes.Node]) -> tuple[str, str, str]:
    """Prose, code and bold text below some nodes, without sections, entries and terms in them."""
    parts: tuple[list[str], list[str], list[str]] = ([], [], [])
    prose, code, bold = parts
    waiting = list(reversed(children))
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.section | addnodes.desc | addnodes.glossary | nodes.raw):
            continue
        if isinstance(node, nodes.Element) and not _LEFT_OUT.isdisjoint(node.get("classes", ())):
            continue
        if isinstance(node, nodes.literal_block):
            code.append(node.astext())
        elif isinstance(node, nodes.TextElement) and not isinstance(node, nodes.Invisible):
            prose.append(node.astext())
            bold += [part.astext() for part in node.findall(nodes.strong)]
        else:
            waiting += reversed(node.children)
    return tuple(" ".join(" ".join(part).split()) for part in parts)  # type: ignore[return-value]
