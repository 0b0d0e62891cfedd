"""Code cells folded to one line, in HTML's ``<details>``.

A cell asks for it in sphinx-gallery's style of comments; its line says what the code is or does::

    # sphinx_gallery_fold = "plots the rates"

Output of the cell stays outside of the fold, unless::

    # sphinx_gallery_fold_output = True

A function of the cell can stay in sight, above the fold::

    # sphinx_gallery_show = "matmul_kernel"

The script does not change. :mod:`triton_site.pages.notebooks` folds the cell of the notebook.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.pages.cells import boxes_of, in_sight, page_of
from triton_site.pages.keylines import code_block

#: How the classes begin that sphinx-gallery gives to output.
_OUTPUTS = ("sphx-glr-script-out", "sphx-glr-single-img", "sphx-glr-horizontal", "output_subarea")


class Fold(nodes.General, nodes.Element):
    """Content below a ``summary`` that opens it; ``note`` follows the summary, ``kind`` is a class.

    The kinds are code, difference, predict, solution and xray.
    """


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the node and fold the cells of each page that is read."""
    add_node(app, Fold, _open, lambda translator, node: translator.body.append("</details>\n"))
    app.connect("doctree-read", _fold_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_node(app: Sphinx, node: type[nodes.Element], visit: Any, depart: Any) -> None:
    """Register a *node* that has its own HTML; other formats show its children alone."""
    plain = (lambda translator, node: None,) * 2
    app.add_node(node, html=(visit, depart), latex=plain, text=plain, man=plain)


def _open(translator: Any, node: Fold) -> None:
    note = node.get("note", "")
    translator.body.append(
        f'<details class="gallery-fold gallery-fold-{node["kind"]}"><summary>'
        f"<span>{translator.encode(node['summary'])}</span>"
        + (f' <span class="gallery-fold-note">{translator.encode(note)}</span>' if note else "")
        + "</summary>\n"
    )


def _fold_cells(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    if page is None:
        return
    for cell, box in list(boxes_of(doctree, page.script)):
        if not (summary := cell.setting("fold")):
            continue
        outputs = list(_outputs(box)) if cell.settings.get("fold_output") else []
        lines = len(cell.code.splitlines())
        note = f"{lines} line{'s' * (lines > 1)} of code" + ", with output" * bool(outputs)
        fold = Fold(summary=summary[:1].upper() + summary[1:], note=note, kind="code")
        shown = in_sight(cell)
        above = [code_block(shown)] if shown else []
        box.replace_self([*above, fold])
        for output in outputs:
            output.parent.remove(output)
        fold += [box, *outputs]


def _outputs(box: nodes.Element) -> Iterator[nodes.Element]:
    """The elements after *box* that sphinx-gallery marks as output."""
    for node in box.parent.children[box.parent.index(box) + 1 :]:
        if isinstance(node, nodes.comment):
            continue
        classes = node.get("classes", ()) if isinstance(node, nodes.Element) else ()
        if not any(name.startswith(_OUTPUTS) for name in classes):
            return
        yield node
