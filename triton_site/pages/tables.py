"""Tables that scroll inside their page where they are wider than it, without a script."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Put the box that the theme's script would add around each table."""
    app.add_node(nodes.table, override=True, html=(_open, _close))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _open(translator: Any, node: nodes.table) -> None:
    translator.body.append('<div class="wy-table-responsive">\n')
    type(translator).visit_table(translator, node)


def _close(translator: Any, node: nodes.table) -> None:
    type(translator).depart_table(translator, node)
    translator.body.append("</div>\n")
