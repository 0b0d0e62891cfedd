"""What a step changes: the difference between a kernel and an earlier one.

A cell that rewrites a kernel names the earlier one, in sphinx-gallery's style of comments::

    # sphinx_gallery_difference = "row_kernel"

The page then has a fold above the cell with the lines that are gone and the lines that are new.
"""

from __future__ import annotations

import difflib
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from triton_site.pages.cells import boxes_of, functions, page_of
from triton_site.pages.folds import Fold
from triton_site.pages.keylines import without_marks

logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    """Put the differences on each page that is read."""
    app.setup_extension("triton_site.kernels.kernel_panels")
    # before the folds, so the difference of a folded cell stays outside
    app.connect("doctree-read", _add_differences, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_differences(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    boxes = list(boxes_of(doctree, page.script)) if page else []
    if not any(cell.setting("difference") for cell, _ in boxes):
        return
    earlier: dict[str, str] = {}
    for cell, box in boxes:
        code, name = without_marks(cell.code), cell.setting("difference")
        found = functions(code)
        if name in earlier:
            new_name, new = most_alike(found or {"this cell": code}, earlier[name])
            box.parent.insert(box.parent.index(box), _fold(name, earlier[name], new_name, new))
        elif name:
            logger.warning(
                "no earlier cell defines the function %r, so its difference cannot be shown; "
                "correct sphinx_gallery_difference",
                name,
                location=box,
            )
        earlier |= found


def most_alike(found: dict[str, str], old: str) -> tuple[str, str]:
    """The name and source of the function in *found* that resembles *old* most."""
    (new,) = difflib.get_close_matches(old, found.values(), n=1, cutoff=0)
    return next(item for item in found.items() if item[1] == new)


def _fold(name: str, old: str, new_name: str, new: str) -> Fold:
    lines = difference(old, new)
    gone, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    summary = f"The difference: {name} → {new_name}"
    if name == new_name:
        summary = f"The difference to {name} above"
    text = "\n".join(lines)
    box = nodes.literal_block(text, text, language="diff", classes=["gallery-difference"])
    return Fold("", box, summary=summary, note=f"{gone} lines gone, {added} new", kind="difference")


def difference(old: str, new: str) -> list[str]:
    """The changed lines with three lines around them; ``…`` is for equal lines left out."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[3:]
    return ["…" if line.startswith("@@") else line for line in lines]
