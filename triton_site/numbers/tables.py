"""Tables and links as docutils nodes: what recordings say is text there, never markup.

The columns of numbers of every table have the class ``number``: they stand at the right, with
commas between groups of three digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from triton_site.numbers.quantities import separated

#: Text, or a paragraph with markup.
Cell: TypeAlias = str | nodes.Element
#: A number with a sign or an arrow before it, and a unit behind it.
_NUMBER = re.compile(
    r"[▲▼]? ?[-+−]?(\d+ min )?\d+(,\d{3})*(\.\d+)?( × 10[⁰¹²³⁴⁵⁶⁷⁸⁹]+)?"
    r"( ?(%|×|[nµm]?s|[kMGT]?B|[GT]B/s|TFLOPS))?"
)
_LONG = re.compile(r"(?<![\d.])\d{5,}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Mark columns of numbers when a page has been read."""
    app.connect("doctree-read", _mark_numbers, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _mark_numbers(app: Sphinx, doctree: nodes.document) -> None:
    del app
    for group in doctree.findall(nodes.tgroup):
        rows = [cells for row in group.findall(nodes.row) if (cells := _entries(row))]
        for column in zip(*rows, strict=False):
            cells = [entry for entry in column if not isinstance(entry.parent.parent, nodes.thead)]
            texts = [_text(entry) for entry in cells]
            known = [text for text in texts if text not in ("", "–", "…")]
            if known and all(map(_NUMBER.fullmatch, known)):
                for entry in column:
                    entry["classes"].append("number")
                    for text in list(entry.findall(nodes.Text)):
                        shown = _LONG.sub(lambda found: separated(found[0]), text)
                        text.parent.replace(text, nodes.Text(shown))


def _entries(row: nodes.Element) -> list[nodes.Element]:
    """The cells of a row, one for each column; none if one spans several."""
    cells = [cell for cell in row.children if isinstance(cell, nodes.entry)]
    return [] if any("morecols" in cell for cell in cells) else cells


def _text(entry: nodes.Element) -> str:
    """What a cell says, without the size at which it was measured."""
    sizes = [part for part in entry.findall(nodes.inline) if "gallery-size" in part["classes"]]
    return entry.astext().removesuffix(sizes[0].astext() if sizes else "").strip()


def at_size(number: str, size: str) -> nodes.paragraph:
    """A cell with a *number*, and below it the *size* at which it was measured."""
    return nodes.paragraph("", number, nodes.inline("", f" {size}", classes=["gallery-size"]))


def table(
    head: Sequence[Cell],
    rows: Iterable[Sequence[Cell]],
    title: nodes.title | str = "",
    widths: Sequence[int] = (),
    **attributes: list[str],
) -> nodes.table:
    """A table with a row of headings; *attributes* are ``classes`` and ``ids`` of the table."""
    made = nodes.table("", **attributes)
    if title:
        made += nodes.title("", title) if isinstance(title, str) else title
    columns = [nodes.colspec(colwidth=width) for width in widths or [1] * len(head)]
    group = nodes.tgroup("", *columns, cols=len(head))
    group += nodes.thead("", _row(head))
    group += nodes.tbody("", *map(_row, rows))
    made += group
    return made


def _row(cells: Sequence[Cell]) -> nodes.row:
    paragraphs = (nodes.paragraph("", cell) if isinstance(cell, str) else cell for cell in cells)
    return nodes.row("", *(nodes.entry("", paragraph) for paragraph in paragraphs))


def link(kind: Literal["doc", "ref"], target: str, text: str, docname: str) -> nodes.Element:
    """A link on the page *docname* to a document or to a label; Sphinx resolves it."""
    return addnodes.pending_xref(
        "",
        nodes.inline("", text),
        refdomain="std",
        reftype=kind,
        reftarget=f"/{target}" if kind == "doc" else target,
        refexplicit=True,
        refwarn=True,
        refdoc=docname,
    )
