"""The alternative text of a figure without a title.

The scraper knows the titles of a figure and nothing else of it, so it calls others *figure 1*. The
page knows more: the line that stands for the folded code (``draws the words of a group``), or else
the heading above the figure. A change of either needs no new recording.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.pages.cells import Cell, boxes_of, page_of

_UNTITLED = re.compile(r"figure \d+")
_VERB = re.compile(r"^(?:draws|plots|shows) ")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx; this needs the page as it is before code is folded."""
    app.connect("doctree-read", _describe, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _describe(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    if page is None:
        return
    cells = {id(box): cell for cell, box in boxes_of(doctree, page.script)}
    above: Cell | None = None
    for node in doctree.findall(nodes.Element):
        above = cells.get(id(node), above)
        if isinstance(node, nodes.image) and _UNTITLED.fullmatch(node.get("alt", "")):
            text = _subject(above) or _heading(node)
            node["alt"] = text or node["alt"]


def _subject(cell: Cell | None) -> str:
    """What the folded *cell* draws, as a phrase; empty without a fold."""
    line = _VERB.sub("", cell.setting("fold")) if cell else ""
    return line[:1].upper() + line[1:]


def _heading(node: nodes.Node) -> str:
    """The heading of the section that *node* is in."""
    while node.parent is not None and not isinstance(node.parent, nodes.section):
        node = node.parent
    return "" if node.parent is None else node.parent[0].astext()
