"""``.. ladder::``: where a tutorial leads, as a table at its top.

A script that has measured its steps writes ``ladder.csv``: for each step the heading of its
section, what changed, the rate, and the share of the ceiling. The table is made from the recording
that the page shows, and each step leads to its section. Where nothing was measured, there is none.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from triton_site.pages.cells import page_of

logger = logging.getLogger(__name__)

_TYPED = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "..."})

FILE_NAME = "ladder.csv"


class LadderPlace(nodes.General, nodes.Element):
    """Where the table will stand; its links need the sections of the whole page."""


class LadderDirective(SphinxDirective):
    """Leave the place."""

    def run(self) -> list[nodes.Node]:
        """Leave a node to be replaced when the page has been read."""
        place = LadderPlace()
        self.set_source_info(place)
        return [place]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("ladder", LadderDirective)
    app.add_node(LadderPlace)
    app.connect("doctree-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a ladder's file; none where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _fill(app: Sphinx, doctree: nodes.document) -> None:
    for place in list(doctree.findall(LadderPlace)):
        page = page_of(app, app.env.docname)
        timed = page is not None and page.folder is not None and not page.interpreted
        rows = read(page.folder / FILE_NAME) if timed else []
        place.replace_self([_table(rows, _sections(doctree), place)] if rows else [])


def _sections(doctree: nodes.document) -> dict[str, str]:
    """The anchor of each section by its heading, as it is read."""
    return {
        _plain(section[0].astext()): section["ids"][0] for section in doctree.findall(nodes.section)
    }


def _plain(heading: str) -> str:
    """A heading as it is typed: Sphinx makes quotation marks and dashes of what a script has."""
    return " ".join(heading.translate(_TYPED).split())


def _table(rows: list[dict[str, str]], anchors: dict[str, str], place: nodes.Node) -> nodes.Node:
    first = rows[0]
    table = nodes.table(classes=["gallery-ladder"], ids=["ladder"])
    table += nodes.title("", f"The way of this page, measured at {first['at']}")
    columns = ("Step", "What changed", first["unit"], f"Share of {first['ceiling']}")
    group = nodes.tgroup(cols=len(columns))
    table += group
    group += [nodes.colspec(colwidth=width) for width in (34, 40, 10, 16)]
    head = nodes.thead()
    head += _row([nodes.paragraph("", column) for column in columns])
    body = nodes.tbody()
    group += [head, body]
    for row in rows:
        heading = _plain(row["section"])
        text: nodes.Node = nodes.Text(heading)
        if heading in anchors:
            text = nodes.reference("", heading, refid=anchors[heading], internal=True)
        else:
            logger.warning(
                "ladder.csv names the section %r, which the page does not have; the headings are "
                "compared letter by letter",
                heading,
                location=place,
            )
        share = float(row["share"])
        body += _row(
            [
                nodes.paragraph("", "", text),
                nodes.paragraph("", row["change"]),
                nodes.paragraph("", significant(float(row["rate"]))),
                _bar(share),
            ]
        )
    return table


def _row(cells: list[nodes.Element]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry("", cell)
        row += entry
    return row


def _bar(share: float) -> nodes.paragraph:
    """The share as text, with its tenths for the style sheet to draw a bar."""
    tenths = max(0, min(10, round(10 * share)))
    return nodes.paragraph("", f"{100 * share:.0f} %", classes=["share", f"share-{tenths}"])


def significant(value: float) -> str:
    """Three significant figures, such as 4310, 52.1 or 0.980."""
    rounded = f"{value:.2e}"  # first, since 9.996 has the exponent of 10.0
    decimals = max(0, 2 - int(rounded.partition("e")[2]))
    return f"{float(rounded):.{decimals}f}"
