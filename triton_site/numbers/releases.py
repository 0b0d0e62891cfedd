"""``.. gallery-releases::``: what a release of Triton changed.

Compared are recordings of the same code on the same device, of the newest release and of each older
one. Only changes beyond the spread are shown: here in a table for each device and older release,
and as a line below the title of the page whose kernel changed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import ListedRecording, domain_of
from triton_site.numbers import benchmarks
from triton_site.numbers.performance import (
    benchmark_title,
    in_words,
    kernel_of,
    sizes_in_words,
)
from triton_site.numbers.recorded import CALLS, current, release_of, version_key
from triton_site.numbers.speed import compare_benchmark
from triton_site.numbers.tables import at_size, link, table

logger = logging.getLogger(__name__)

#: Two recordings differ by this much even where Triton compiles nothing, as in a copy.
NOISE = 0.02

_HEAD = ["Page", "Provider", "Speed-up", "Least", "Spread of a measurement"]


class Change(NamedTuple):
    """A provider in recordings of two releases: times as fast as before, and relative spread."""

    newer: ListedRecording
    older: ListedRecording
    benchmark: str
    provider: str
    ratio: float
    worst: float
    worst_size: str
    spread: float

    @property
    def in_words(self) -> str:
        """The speed-up, with an arrow up for a gain and down for a loss."""
        return f"{'▲' if self.ratio > 1 else '▼'} {self.ratio:.2f}"

    @property
    def kind(self) -> str:
        """The class of the speed-up."""
        return f"gallery-{'gain' if self.ratio > 1 else 'loss'}"

    @property
    def releases(self) -> tuple[str, str]:
        """The releases of Triton, the newer one first."""
        return release_of(self.newer.content), release_of(self.older.content)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("gallery-releases", ReleasesDirective)
    app.connect("doctree-read", _add_line, priority=600)  # below the lines of the recorder
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def changes_of(env: BuildEnvironment, docname: str = "") -> Iterator[Change]:
    """The changes of all pages, or of the page *docname*."""

    def place(item: ListedRecording) -> tuple[str, str]:
        return item.page, item.device

    for _, items in groupby(sorted(current(env, docname), key=place), key=place):
        *older, newest = sorted(items, key=lambda item: version_key(release_of(item.content)))
        for item in reversed(older):
            try:
                yield from changed(newest, item)
            except benchmarks.BenchmarkError as error:  # the other recordings are whole
                logger.warning("%s", error, type="gallery", subtype="benchmark")


def changed(newer: ListedRecording, older: ListedRecording) -> Iterator[Change]:
    """The changes of providers that both recordings measured at the same sizes.

    Mean and median of the ratios have to agree: one size alone that fell far is more likely noise.

    Raises:
        BenchmarkError: a CSV file cannot be read as a benchmark.
    """
    for name in newer.content.data:
        if not name.endswith(".csv") or name == CALLS or name not in older.content.data:
            continue
        now, then = (benchmarks.read(item.folder / name) for item in (newer, older))
        for line in compare_benchmark(name, then, now):
            one, two = then[line.provider], now[line.provider]
            sizes = [size for size in two if size in one and one[size].unit == two[size].unit]
            both = [m for size in sizes for m in (one[size], two[size])]
            spread = statistics.median(abs(m.p80 - m.p20) / m.median for m in both)
            up = 1 if benchmarks.is_rate(two[sizes[0]].unit) else -1
            middle = statistics.median((two[s].median / one[s].median) ** up for s in sizes)
            beyond = max(spread, NOISE)
            if max(line.ratio, middle) < 1 - beyond or min(line.ratio, middle) > 1 + beyond:
                size = sizes_in_words(two)[line.worst_size]
                numbers = line.ratio, line.worst, size, spread
                yield Change(newer, older, line.benchmark, line.provider, *numbers)


def without_changes(releases: set[str]) -> str:
    """What to say of recordings of *releases* among which no change is to be shown."""
    if len(releases) == 1:
        return f"Only Triton {min(releases)} has been recorded."
    return "No change is larger than the spread."


# --- on the pages ---------------------------------------------------------------------------------


class ReleasesDirective(SphinxDirective):
    """``.. gallery-releases::``: a table for each device and older release."""

    def run(self) -> list[nodes.Node]:
        """Make the tables."""
        domain_of(self.env).depends("recordings")

        def place(change: Change) -> tuple[str, tuple[int, ...]]:
            return change.newer.device, version_key(change.releases[1])

        made: list[nodes.Node] = []
        found = sorted(changes_of(self.env), key=place)
        for (device, _), changes in groupby(found, key=place):
            rows = sorted(changes, key=lambda change: -change.ratio)  # gains, then losses
            title = "{}: Triton {} over {}".format(device, *rows[0].releases)
            made.append(table(_HEAD, map(self._row, rows), title, classes=["gallery-releases"]))
        releases = {release_of(item.content) for item in current(self.env)}
        return made or [nodes.paragraph("", without_changes(releases))]

    def _row(self, change: Change) -> list[str | nodes.Element]:
        page = change.newer
        return [
            nodes.paragraph("", "", link("doc", page.page, page.content.title, self.env.docname)),
            f"{in_words(change.provider)} ({benchmark_title(change.benchmark)})",
            nodes.paragraph("", "", nodes.strong("", change.in_words, classes=[change.kind])),
            at_size(f"{change.worst:.2f}", change.worst_size),
            f"{100 * change.spread:.1f} %",
        ]


def _add_line(app: Sphinx, doctree: nodes.document) -> None:
    """Say below the title of a page how much faster or slower its kernel is than it was."""
    docname = app.env.docname
    lines = [p for p in doctree.findall(nodes.paragraph) if "gallery-provenance" in p["classes"]]
    found = [
        change
        for change in (changes_of(app.env, docname) if lines else ())
        if change.newer.state == "shown" and kernel_of(change.provider) == "triton"
    ]
    if not found:
        return
    (newest, older), words = found[0].releases, []
    for change in found:
        if change.older == found[0].older:
            step = change.provider.removeprefix("triton")
            words.append(f"{benchmark_title(change.benchmark)}{step} {change.in_words}")
    text = f"Speed-up from Triton {older} to {newest}: {', '.join(words)} · "
    line = nodes.paragraph("", text, classes=["gallery-provenance"])
    line += link("ref", "what-a-release-changed", "all changes", docname)
    lines[-1].parent.insert(lines[-1].parent.index(lines[-1]) + 1, line)
