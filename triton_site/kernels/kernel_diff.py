"""What a step changes: the difference between a kernel and the one before it.

A cell that writes an earlier kernel anew names it, in sphinx-gallery's style of comments::

    # sphinx_gallery_difference = "row_kernel"

Above the cell's code the page then has a fold with both kernels line by line, computed while the
page is made: what is gone, what is new, what stayed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx
from sphinx.util import logging

from triton_site.pages.cells import Cell, boxes_of, functions, page_of
from triton_site.pages.folds import Fold
from triton_site.pages.lean import LeanFormatter

logger = logging.getLogger(__name__)

#: Equal lines that stay between two changes; longer runs are left out.
CONTEXT = 3

_SIGNS = {" ": "", "-": "del", "+": "ins"}


class Difference(nodes.General, nodes.Element):
    """The ``lines`` of two texts: [(sign, text), …]; ``…`` is the sign of those left out."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the node and put the differences on each page that is read."""
    silent = (_skip, _pass)
    app.add_node(Difference, html=(_visit, _pass), latex=silent, text=silent, man=silent)
    # before the folds, so that a folded cell keeps its difference outside
    app.connect("doctree-read", _add_differences, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_differences(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    if page is None:
        return
    earlier: dict[str, str] = {}
    boxes = list(boxes_of(doctree, page.script))
    if not any(cell.setting("difference") for cell, _ in boxes):
        return
    for cell, box in boxes:
        name = cell.setting("difference")
        if name and name not in earlier:
            logger.warning(
                "%s: the difference to %r cannot be shown: no earlier cell defines a function of "
                "that name",
                page.script.source,
                name,
                location=box,
            )
        elif name:
            new_name, new = _rewritten(cell, earlier[name])
            lines = list(difference(earlier[name], new))
            gone, come = (sum(sign == mark for sign, _ in lines) for mark in "-+")
            fold = Fold(
                summary=f"The difference: {name} → {new_name}" if new_name != name
                else f"The difference to {name} above",
                note=f"{gone} lines gone, {come} new",
                kind="difference",
            )  # fmt: skip
            fold += Difference(lines=lines)
            box.parent.insert(box.parent.index(box), fold)
        earlier |= functions(cell.code)


def _rewritten(cell: Cell, old: str) -> tuple[str, str]:
    """The function of *cell* that resembles *old* most: a cell may define more than its kernel."""
    found = functions(cell.code)
    if not found:
        return "this cell", cell.code
    return max(found.items(), key=lambda item: difflib.SequenceMatcher(None, old, item[1]).ratio())


def difference(old: str, new: str, context: int = CONTEXT) -> Iterator[tuple[str, str]]:
    """The lines of *old* and *new* with the sign ``-``, ``+`` or blank; ``…`` for what is left out.

    A line that was rewritten stands right below what it was. *context* is the number of equal lines
    that stay around each change.
    """
    lines = [
        (line[0], line[2:])
        for line in difflib.ndiff(old.splitlines(), new.splitlines())
        if line[0] != "?"
    ]
    changed = [number for number, (sign, _) in enumerate(lines) if sign != " "]
    left_out = 0
    for number, line in enumerate(lines):
        if any(abs(number - other) <= context for other in changed):
            if left_out:
                yield _left_out(left_out)
            left_out = 0
            yield line
        else:
            left_out += 1
    if left_out:
        yield _left_out(left_out)


def _left_out(count: int) -> tuple[str, str]:
    return "…", f"{count} equal line{'s' * (count > 1)}"


def _visit(translator: Any, node: Difference) -> None:
    lines: list[tuple[str, str]] = node["lines"]
    plain = tuple(getattr(translator.config, "gallery_plain_tokens", ()))
    # Coloured whole, text by text, so that a docstring over several lines stays a string.
    coloured = {
        mark: iter(_coloured("\n".join(text for sign, text in lines if sign in (" ", mark)), plain))
        for mark in "-+"
    }
    parts = []
    for sign, text in lines:
        if sign == "…":
            parts.append(f'<span class="left-out">{translator.encode(text)}</span>\n')
            continue
        shown = [next(coloured[mark]) for mark in "-+" if sign in (" ", mark)][-1]
        tag = _SIGNS[sign] or "span"
        parts.append(f"<{tag}>{sign} {shown}</{tag}>\n")
    translator.body.append(
        '<div class="highlight-python notranslate gallery-difference"><div class="highlight"><pre>'
        + "".join(parts)
        + "</pre></div></div>\n"
    )


def _coloured(text: str, plain: tuple[str, ...]) -> list[str]:
    """Each line of *text* as HTML; the formatter closes its elements at the end of each line."""
    formatter = LeanFormatter(plain, nowrap=True)
    return highlight(text, PythonLexer(stripnl=False, ensurenl=False), formatter).split("\n")


def _skip(translator: Any, node: nodes.Node) -> None:
    raise nodes.SkipNode


def _pass(translator: Any, node: nodes.Node) -> None:
    del translator, node
