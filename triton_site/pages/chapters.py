"""``.. chapters::``: the chapters of a folder, each with the paragraph that it begins with.

A new chapter is listed by being there; nothing is written down in a second place.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class ChaptersPlace(nodes.General, nodes.Element):
    """Where the list will stand, when all pages have been read; ``folder`` is where they are."""


class ChaptersDirective(SphinxDirective):
    """Leave the place."""

    def run(self) -> list[nodes.Node]:
        """Leave a node to be replaced when all pages have been read."""
        return [ChaptersPlace(folder=self.env.docname.rpartition("/")[0])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("chapters", ChaptersDirective)
    app.add_node(ChaptersPlace)
    app.connect("doctree-resolved", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(ChaptersPlace)):
        chapter = re.compile(re.escape(place["folder"]) + r"/chapter-(\d+)/(?!recordings-)[^/]+")
        found = sorted(
            (int(match[1]), page)
            for page in app.env.found_docs
            if (match := chapter.fullmatch(page))
        )
        listed = nodes.definition_list()
        for number, page in found:
            link = nodes.reference(
                "",
                f"{number}. {app.env.titles[page].astext()}",
                internal=True,
                refuri=app.builder.get_relative_uri(docname, page),
            )
            listed += nodes.definition_list_item(
                "",
                nodes.term("", "", link),
                nodes.definition("", nodes.paragraph("", _beginning(app.env.get_doctree(page)))),
            )
        place.replace_self(listed)


def _beginning(doctree: nodes.document) -> str:
    """The first paragraph, without works that it names; not what a recording says of itself."""
    own = (p for p in doctree.findall(nodes.paragraph) if isinstance(p.parent, nodes.section))
    begins = next((p for p in own if not p["classes"]), nodes.paragraph()).deepcopy()
    for named in list(begins.findall(addnodes.pending_xref)):
        if named["refdomain"] == "cite":
            named.parent.remove(named)
    return re.sub(r"\s+(?=[.,]|$)", "", " ".join(begins.astext().split()))
