"""``.. ladder::``: the steps of a tutorial, as a table at its top.

A script that measures its steps writes ``ladder.csv``: for each step the heading of its section,
what changed, the rate and the share of the ceiling. The table shows the recording of the page, and
each step links to its section. A page without measurements has no table.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import msgspec
from docutils import nodes
from msgspec import Meta
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.store.reading import ReadingError, read_file
from triton_site.numbers.tables import table
from triton_site.pages.cells import page_of

logger = logging.getLogger(__name__)

_TYPED = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "..."})

FILE_NAME = "ladder.csv"

_Text = Annotated[str, Meta(max_length=1000)]
_Number = Annotated[float, Meta(ge=0, le=1e30)]


class LadderPlace(nodes.General, nodes.Element):
    """The place of the table until the page is read: its links need the page's sections."""


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


class Step(msgspec.Struct, frozen=True):
    """A row of the file: the rate of a step, and its share of the ceiling."""

    section: _Text
    change: _Text
    rate: _Number
    unit: _Text
    share: _Number
    ceiling: _Text
    at: _Text


def read(path: Path) -> list[Step]:
    """The steps in *path*; none where there is no file.

    Raises:
        ReadingError: the file is damaged; the message names it.
    """
    if not path.exists():
        return []
    try:
        text = read_file(path, 1_000_000).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline=""), restkey="", restval=""))
        return msgspec.convert(rows, list[Step], strict=False)
    except (ReadingError, ValueError, csv.Error) as error:
        raise ReadingError(f"{path}: {error}") from error


def _fill(app: Sphinx, doctree: nodes.document) -> None:
    for place in list(doctree.findall(LadderPlace)):
        page = page_of(app, app.env.docname)
        rows: list[Step] = []
        if page is not None and page.folder is not None and page.recording.timed:
            try:
                rows = read(page.folder / FILE_NAME)
            except ReadingError as error:
                logger.warning(
                    "%s; the page has no ladder: record the example again",
                    error,
                    location=place,
                    type="gallery",
                    subtype="ladder",
                )
        place.replace_self([_table(rows, _sections(doctree), place)] if rows else [])


def _sections(doctree: nodes.document) -> dict[str, str]:
    """The anchor of each section by its heading."""
    return {
        _plain(section[0].astext()): section["ids"][0] for section in doctree.findall(nodes.section)
    }


def _plain(heading: str) -> str:
    """A heading as typed, before Sphinx curls its quotation marks and dashes."""
    return " ".join(heading.translate(_TYPED).split())


def _table(rows: list[Step], anchors: dict[str, str], place: nodes.Node) -> nodes.table:
    first = rows[0]
    head = ["Step", "What changed", first.unit, f"Share of {first.ceiling}"]
    cells: list[list[str | nodes.Element]] = []
    for row in rows:
        heading = _plain(row.section)
        text = nodes.paragraph("", heading)
        if heading in anchors:
            link = nodes.reference("", heading, refid=anchors[heading], internal=True)
            text = nodes.paragraph("", "", link)
        else:
            logger.warning(
                "ladder.csv names the section %r, which the page does not have; use the exact "
                "heading",
                heading,
                location=place,
            )
        cells.append([text, row.change, significant(row.rate), _bar(row.share)])
    title = f"The way of this page, measured at {first.at}"
    return table(head, cells, title, classes=["gallery-ladder"], ids=["ladder"])


def _bar(share: float) -> nodes.paragraph:
    """The share as text, with its tenths for the style sheet to draw a bar."""
    tenths = max(0, min(10, round(10 * share)))
    return nodes.paragraph("", f"{100 * share:.0f} %", classes=["share", f"share-{tenths}"])


def significant(value: float) -> str:
    """Three significant figures, such as 4310, 52.1 or 0.980."""
    rounded = f"{value:.2e}"  # first, since 9.996 has the exponent of 10.0
    decimals = max(0, 2 - int(rounded.partition("e")[2]))
    return f"{float(rounded):.{decimals}f}"
