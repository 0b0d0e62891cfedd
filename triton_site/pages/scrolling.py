"""Tables that are wider than the column scroll by themselves, without JavaScript too."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.pages.folds import add_node


class ScrollBox(nodes.General, nodes.Element):
    """A box around a table; site.js marks those whose table fits."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Put each table of a page into a box, before the page is written."""
    add_node(app, ScrollBox, _open, _close)
    app.connect("doctree-resolved", _wrap, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _wrap(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    del app, docname
    for table in list(doctree.findall(nodes.table)):
        box = ScrollBox()
        table.parent.replace(table, box)
        box += table


def _open(translator: Any, node: ScrollBox) -> None:
    del node
    translator.body.append('<div class="gallery-scroll">\n')


def _close(translator: Any, node: ScrollBox) -> None:
    del node
    translator.body.append("</div>\n")
