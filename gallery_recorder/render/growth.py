"""How a gallery grows: ``.. gallery-growth::`` reckons bytes and GPU hours from the recordings.

Sizes and times are the means of the recordings that the site has; where none was made on a GPU,
the time is an assumption, and said to be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.render.pages import (
    ListedRecording,
    listed_recordings,
    readable_bytes,
    readable_seconds,
)

ASSUMED_SECONDS = 30.0
WEEKS_A_MONTH = 52 / 12

#: Tutorials, and devices that each is recorded on.
SIZES = ((10, 1), (100, 2), (1000, 4), (10_000, 8))


@dataclass(frozen=True)
class Mean:
    """One recording: its bytes in git, and the seconds of its GPU."""

    bytes: float
    seconds: float

    def tree(self, recordings: int) -> float:
        """Bytes of the work tree."""
        return recordings * self.bytes

    def history(self, recordings: int, times: int) -> float:
        """Bytes that git gets when each is recorded *times* times, before it compresses them."""
        return recordings * times * self.bytes

    def hours_a_month(self, recordings: int) -> float:
        """Hours of all GPUs together, when each is recorded once a week."""
        return recordings * self.seconds * WEEKS_A_MONTH / 3600


def setup(app: Sphinx) -> None:
    """Register the directive; called by ``replay.setup``."""
    # A directive has no supported way to the application, so it is told here.
    app.add_directive("gallery-growth", type("GrowthDirective", (GrowthDirective,), {"app": app}))


def mean_of(items: list[ListedRecording]) -> tuple[Mean, str]:
    """The mean of the recordings made on a GPU, else of all; and what it is the mean of."""
    timed = [item for item in items if item.content.timed]
    count = len(timed or items)
    size = mean(
        sum(p.stat().st_size for p in item.folder.rglob("*") if p.is_file())
        for item in timed or items
    )
    if timed:
        seconds = mean(item.content.run.seconds for item in timed)
        how = f"the means of the {count} recordings of this site that were made on a GPU"
    else:
        seconds = ASSUMED_SECONDS
        how = (
            "the mean size of the recordings on this site, and an assumed time, since none "
            "was made on a GPU"
        )
    return Mean(size, seconds), how


class GrowthDirective(SphinxDirective):
    """``.. gallery-growth::``: what a recording takes, and a table of galleries of many."""

    app: Sphinx

    def run(self) -> list[nodes.Node]:
        """Write it as reStructuredText."""
        items = [item for item in listed_recordings(self.app) if item.shown]
        if not items:
            return self.parse_text_to_nodes("There are no recordings yet to reckon with.")
        one, how = mean_of(items)
        rows = [
            (
                f"{tutorials:,} × {devices}",
                readable_bytes(round(one.tree(tutorials * devices))),
                readable_bytes(round(one.history(tutorials * devices, 4))),
                f"{one.hours_a_month(tutorials * devices):,.1f}",
                _readable_span(tutorials * one.seconds),
            )
            for tutorials, devices in SIZES
        ]
        head = (
            "Tutorials × devices",
            "Recordings in the work tree",
            "Added to git a year, each recorded four times",
            "GPU hours a month, each recorded every week",
            "All tutorials once, on one GPU",
        )
        table = ["   * - " + "\n     - ".join(row) for row in (head, *rows)]
        told = (
            f"A recording is taken to have {readable_bytes(round(one.bytes))} and to need "
            f"{readable_seconds(one.seconds)} of a GPU: {how}."
        )
        return self.parse_text_to_nodes(
            "\n".join([told, "", ".. list-table::", "   :header-rows: 1", "", *table, ""])
        )


def _readable_span(seconds: float) -> str:
    hours = seconds / 3600
    if hours < 1:
        return readable_seconds(seconds)
    return f"{hours:,.1f} hours" if hours < 48 else f"{hours / 24:,.1f} days"
