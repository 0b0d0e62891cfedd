"""Cells of machinery, folded to one line that says what they do.

A cell of a tutorial says so itself, in sphinx-gallery's own style of comments::

    # sphinx_gallery_fold = "plots the rates"

On the page that line stands for the code, which opens at a click, at a search in the page and at a
link into it; in print it stays folded. What the cell printed and drew is outside the fold. The
script is left alone; :mod:`triton_site.notebooks` folds the cell of the notebook.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.cells import boxes_of, page_of


class Fold(nodes.General, nodes.Element):
    """What opens at a click; ``summary`` is the line that is always there."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the node and fold the cells of each page that is read."""
    silent = (_pass, _pass)
    app.add_node(Fold, html=(_open, _close), latex=silent, text=silent, man=silent)
    app.connect("doctree-read", _fold_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fold_cells(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    if page is None:
        return
    for cell, box in list(boxes_of(doctree, page.script)):
        if line := cell.setting("fold"):
            lines = len(cell.code.splitlines())
            fold = Fold(summary=line, note=f"{lines} line{'s' * (lines > 1)}", kind="code")
            box.replace_self(fold)
            fold += box


def _open(translator: Any, node: Fold) -> None:
    note = node.get("note", "")
    translator.body.append(
        f'<details class="gallery-fold gallery-fold-{node["kind"]}"><summary>'
        f"<span>{translator.encode(node['summary'])}</span>"
        + (f' <span class="gallery-fold-note">{translator.encode(note)}</span>' if note else "")
        + "</summary>\n"
    )


def _close(translator: Any, node: Fold) -> None:
    del node
    translator.body.append("</details>\n")


def _pass(translator: Any, node: Fold) -> None:
    del translator, node
