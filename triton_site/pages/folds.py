"""Cells of machinery, folded to one line that says what they do.

A cell of a tutorial says so itself, in sphinx-gallery's own style of comments::

    # sphinx_gallery_fold = "plots the rates"

On the page that line stands for the code, which opens at a click, at a search in the page and at a
link into it; in print it stays folded. What the cell printed and drew is outside the fold, unless
the cell says that it is evidence to look up, which the text does without::

    # sphinx_gallery_fold_output = True

A number in place of ``True`` leaves so many lines of what it printed in sight, and folds the rest.

A function in it that the page is about can stay in sight, above the fold::

    # sphinx_gallery_show = "matmul_kernel"

The script is left alone; :mod:`triton_site.pages.notebooks` folds the cell of the notebook.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.pages.cells import boxes_of, in_sight, page_of

#: How sphinx-gallery's classes of outputs begin.
_OUTPUTS = ("sphx-glr-script-out", "sphx-glr-single-img", "sphx-glr-horizontal", "output_subarea")


class Fold(nodes.General, nodes.Element):
    """What opens at a click; ``summary`` is the line that is always there."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the node and fold the cells of each page that is read."""
    add_node(app, Fold, _open, _close)
    app.connect("doctree-read", _fold_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_node(app: Sphinx, node: type[nodes.Element], visit: Any, depart: Any) -> None:
    """Register a *node* that has HTML of its own, and is what is in it everywhere else."""
    silent = (_pass, _pass)
    app.add_node(node, html=(visit, depart), latex=silent, text=silent, man=silent)


def _fold_cells(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    if page is None:
        return
    for cell, box in list(boxes_of(doctree, page.script)):
        if line := cell.setting("fold"):
            lines = len(cell.code.splitlines())
            note = f"{lines} line{'s' * (lines > 1)}"
            hidden = cell.settings.get("fold_output")
            outputs = list(_outputs(box)) if hidden is True else []
            fold = Fold(summary=line, note=note + ", with output" * bool(outputs), kind="code")
            shown = in_sight(cell)
            if hidden and hidden is not True:
                if not isinstance(hidden, int) or hidden < 0:
                    raise ValueError(
                        f"{page.script.path.name}: sphinx_gallery_fold_output is {hidden!r}; write "
                        "True, or how many printed lines stay in sight"
                    )
                _fold_rest(box, hidden)
            box.replace_self([nodes.literal_block(shown, shown, language="Python"), fold]
                             if shown else fold)  # fmt: skip
            fold += box
            for output in outputs:
                output.parent.remove(output)
                fold += output


def _fold_rest(box: nodes.Element, lines: int) -> None:
    """Fold what the cell in *box* printed behind its first *lines* lines."""
    for output in _outputs(box):
        if isinstance(output, nodes.literal_block):
            text = output.astext().rstrip().split("\n")
            if len(text) <= lines + 1:  # a fold is no shorter than a line
                continue
            shown, rest = (output.copy() for _ in range(2))
            for part, of_it in ((shown, text[:lines]), (rest, text[lines:])):
                part += nodes.Text("\n".join(of_it))
                part.rawsource = part.astext()  # what is highlighted is the raw text
            note = f"{len(text) - lines} lines"
            fold = Fold("", rest, summary="The rest of what it printed", note=note, kind="output")
            output.replace_self([shown, fold])


def _outputs(box: nodes.Element) -> Iterator[nodes.Element]:
    """What the cell in *box* printed and drew: the elements behind it that sphinx-gallery marks."""
    for node in box.parent.children[box.parent.index(box) + 1 :]:
        if isinstance(node, nodes.comment):  # of sphinx-gallery, on its sources
            continue
        if not isinstance(node, nodes.Element) or not any(
            name.startswith(_OUTPUTS) for name in node.get("classes", ())
        ):
            return
        yield node


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


def _pass(translator: Any, node: nodes.Element) -> None:
    del translator, node
