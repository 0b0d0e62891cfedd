"""References as a list of definitions: docutils' own markup is a list without items."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Replace the citations of each page that is written."""
    app.connect("doctree-resolved", _replace, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _replace(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    del app, docname
    for citation in list(doctree.findall(nodes.citation)):
        parent = citation.parent
        place = parent.index(citation)
        before = parent[place - 1] if place else None
        item = _item(citation)
        if isinstance(before, nodes.definition_list) and "citations" in before["classes"]:
            before += item
            parent.remove(citation)
        else:
            parent.replace(citation, nodes.definition_list("", item, classes=["citations"]))


def _item(citation: nodes.citation) -> nodes.definition_list_item:
    """A citation as an item: its label, to which links lead, and its text."""
    label, *content = citation.children
    term = nodes.term("", "", nodes.Text(label.astext()), ids=list(citation["ids"]))
    return nodes.definition_list_item("", term, nodes.definition("", *content))
