"""Tables and links as docutils nodes: what recordings say is text there, never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from docutils import nodes
from sphinx import addnodes

#: Text, or a paragraph with markup.
Cell: TypeAlias = str | nodes.Element


def table(
    head: Sequence[Cell],
    rows: Iterable[Sequence[Cell]],
    title: nodes.title | str = "",
    **attributes: list[str],
) -> nodes.table:
    """A table with a row of headings; *attributes* are ``classes`` and ``ids`` of the table."""
    made = nodes.table("", **attributes)
    if title:
        made += nodes.title("", title) if isinstance(title, str) else title
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
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
