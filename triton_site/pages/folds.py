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


#: Kinds of folds with an answer.
_ANSWERS = ("hint", "notebook", "predict", "solution")


class Fold(nodes.General, nodes.Element):
    """Content below a ``summary`` that opens it; ``note`` follows the summary, ``kind`` is a class.

    A fold is other code (kind code, with its number of ``lines``), or an answer that a reader opens
    when it is wanted (hint, notebook, predict, solution, variants). A fold of the kinds difference
    and xray becomes a tab of a panel, see :mod:`triton_site.kernels.kernel_panels`.
    """


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the node and fold the cells of each page that is read."""
    add_node(app, Fold, _open, lambda translator, node: translator.body.append("</details>\n"))
    app.connect("doctree-read", _fold_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_node(app: Sphinx, node: type[nodes.Element], visit: Any, depart: Any) -> None:
    """Register a *node* that has its own HTML; other formats show its children alone.

    *depart* is None for a node whose *visit* skips it.
    """
    plain = (_nothing, _nothing)
    app.add_node(node, html=(visit, depart or _nothing), latex=plain, text=plain, man=plain)


def _nothing(translator: Any, node: nodes.Element) -> None:
    del translator, node


def _open(translator: Any, node: Fold) -> None:
    kind, summary, note = node["kind"], node["summary"], node.get("note", "")
    classes = f"gallery-fold gallery-fold-{kind}"
    if kind in _ANSWERS:
        classes += " gallery-fold-answer"
    if kind == "code":
        lines = node["lines"]
        note = f"{summary}, with output" if node["with_output"] else summary
        summary = f"Show {lines} line{'s' if lines > 1 else ''}"
    translator.body.append(
        f'<details class="{classes}"><summary><span>{translator.encode(summary)}</span>'
    )
    if note:
        translator.body.append(f' <span class="gallery-fold-note">{translator.encode(note)}</span>')
    translator.body.append("</summary>\n")


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
        title = summary[:1].upper() + summary[1:]
        fold = Fold(summary=title, note=note, kind="code", lines=lines)
        fold["with_output"] = bool(outputs)
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
