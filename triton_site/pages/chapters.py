"""``.. chapters::``: the chapters beside the page, each with its first paragraph."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class ChaptersPlace(nodes.General, nodes.Element):
    """The place of the list, which is filled when all pages have been read."""


class ChaptersDirective(SphinxDirective):
    """``.. chapters::``."""

    def run(self) -> list[nodes.Node]:
        """Leave a node that the resolved page replaces."""
        return [ChaptersPlace(folder=self.env.docname.rpartition("/")[0])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("chapters", ChaptersDirective)
    app.add_node(ChaptersPlace)
    app.connect("doctree-resolved", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(ChaptersPlace)):
        pattern = re.compile(
            re.escape(place["folder"]) + r"/chapter-(\d+)/(?!recordings-|index$)[^/.]+"
        )
        chapters = sorted(
            (int(match[1]), name)
            for name in app.env.found_docs
            if (match := pattern.fullmatch(name))
        )
        items = (_chapter(app, docname, number, name) for number, name in chapters)
        place.replace_self(nodes.definition_list("", *items))


def _chapter(app: Sphinx, docname: str, number: int, name: str) -> nodes.definition_list_item:
    text = f"{number}. {app.env.titles[name].astext()}"
    uri = app.builder.get_relative_uri(docname, name)
    link = nodes.reference("", text, internal=True, refuri=uri)
    about = nodes.paragraph("", first_paragraph(app.env.get_doctree(name)))
    return nodes.definition_list_item("", nodes.term("", "", link), nodes.definition("", about))


def first_paragraph(doctree: nodes.document) -> str:
    """The first paragraph of the author's, without citations."""
    paragraphs = (
        p for p in doctree.findall(nodes.paragraph) if isinstance(p.parent, nodes.section)
    )
    first = next((p for p in paragraphs if not p["classes"]), nodes.paragraph())
    for citation in list(first.findall(addnodes.pending_xref)):
        if citation["refdomain"] == "cite":
            citation.parent.remove(citation)
    return re.sub(r"\s+(?=[.,]|$)", "", " ".join(first.astext().split()))
