"""What a release of Triton changed, for each provider of each benchmark: ``.. gallery-releases::``.

Compared are recordings of the same code on the same device, of the newest release and of each older
one. The page of a tutorial has its tables in a section before its exercises, and the directive
shows the tables of all tutorials. A provider that lost more than :data:`LOSS` is marked.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import ListedRecording
from gallery_recorder.store import benchmarks
from gallery_recorder.store.compare import Line, compare_benchmark
from gallery_recorder.store.format import slug
from triton_site.numbers.recorded import current, release_of, version_key
from triton_site.numbers.tables import link, table

logger = logging.getLogger(__name__)

#: A provider is marked that lost more than this share of its rate on average and at half of the
#: sizes. One size alone that fell far is more likely noise than a regression.
LOSS = 0.05

NOTHING = "The recordings are of one release of Triton only."

#: The section of a tutorial's page goes before the first of these, or else to the end.
_BEFORE = ("Exercises", "References")


class Change(NamedTuple):
    """A provider in both releases: ratio and relative spread, and whether it is marked."""

    line: Line
    spread: float
    lost: bool


class Step(NamedTuple):
    """The changes of one tutorial on one device, from an older release to the newest."""

    newest: ListedRecording
    older: ListedRecording
    changes: list[Change]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("gallery-releases", ReleasesDirective)
    app.connect("doctree-read", _add_section, priority=300)  # before the table of contents is made
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def steps_of(env: BuildEnvironment, docname: str = "") -> Iterator[Step]:
    """The steps of all tutorials, or of the page *docname*."""

    def place(item: ListedRecording) -> tuple[str, str]:
        return item.page, item.content.provenance.device

    def release(item: ListedRecording) -> tuple[int, ...]:
        return version_key(release_of(item.content))

    for _, items in groupby(sorted(current(env, docname), key=place), key=place):
        newest, *older = sorted(items, key=release, reverse=True)
        for item in older:
            try:
                changes = list(changed(newest, item))
            except benchmarks.BenchmarkError as error:  # the other recordings are whole
                logger.warning("%s", error, type="gallery", subtype="benchmark")
                continue
            if changes:
                yield Step(newest, item, changes)


def changed(newer: ListedRecording, older: ListedRecording) -> Iterator[Change]:
    """The changes of providers that both recordings measured at the same sizes.

    Raises:
        BenchmarkError: a CSV file cannot be read as a benchmark.
    """
    for name in newer.content.data:
        if not name.endswith(".csv") or name not in older.content.data:
            continue
        now, then = (benchmarks.read(Path(item.folder, name)) for item in (newer, older))
        for line in compare_benchmark(name, then, now):
            one, two = then[line.provider], now[line.provider]
            sizes = [size for size in two if size in one and one[size].unit == two[size].unit]
            both = [m for size in sizes for m in (one[size], two[size])]
            spreads = sorted(abs(m.p80 - m.p20) / m.median for m in both)
            up = 1 if benchmarks.is_rate(two[sizes[0]].unit) else -1
            middle = statistics.median((two[s].median / one[s].median) ** up for s in sizes)
            lost = max(line.ratio, middle) < 1 - LOSS
            yield Change(line, spreads[len(spreads) // 2], lost)


# --- on the pages ---------------------------------------------------------------------------------


class ReleasesDirective(SphinxDirective):
    """``.. gallery-releases::``: a table for each tutorial and each older release."""

    def run(self) -> list[nodes.Node]:
        """Make the tables."""
        domain_of(self.env).depends("recordings")
        made: list[nodes.Node] = []
        for step in steps_of(self.env):
            title = step.newest.content.title
            made += _shown(step, link("doc", step.newest.page, title, self.env.docname))
        return made or [nodes.paragraph("", NOTHING)]


def _add_section(app: Sphinx, doctree: nodes.document) -> None:
    """Add the section of a tutorial that was recorded with several releases."""
    docname = app.env.docname
    steps = list(steps_of(app.env, docname)) if docname in domain_of(app.env).pages else []
    top = next(doctree.findall(nodes.section), None)
    if not steps or top is None:
        return
    newest = {release_of(step.newest.content) for step in steps}
    title = f"What Triton {newest.pop()} changed" if len(newest) == 1 else "What releases changed"
    section = nodes.section("", nodes.title("", title), ids=["what-a-release-changed"])
    section += nodes.paragraph(
        "",
        "The same code on the same model of GPU, recorded with two releases of Triton: how many "
        "times as fast each provider is with the newer one. Triton does not compile a copy or a "
        "vendor's library; their rows show how far two runs differ anyway.",
    )
    for step in steps:
        section += _shown(step)
    places = (
        number
        for number, node in enumerate(top.children)
        if isinstance(node, nodes.section) and node[0].astext() in _BEFORE
    )
    top.insert(next(places, len(top.children)), section)


def _shown(step: Step, tutorial: nodes.Element | None = None) -> list[nodes.Node]:
    """The table of a step, headed by a link to its *tutorial*, and the losses in words."""
    newer, older = release_of(step.newest.content), release_of(step.older.content)
    device = step.newest.content.provenance.device
    caption = nodes.title("", f"{device}: Triton {newer} over {older}")
    if tutorial is not None:
        caption.insert(0, [tutorial, nodes.Text(", ")])
    several = len({change.line.benchmark for change in step.changes}) > 1
    rows: list[list[str | nodes.Element]] = []
    losses: list[nodes.Node] = []
    for line, spread, lost in step.changes:
        ratio = nodes.paragraph("", "", nodes.strong("", f"{line.ratio:.3f}"))
        ratio += nodes.Text(" lost" if lost else "")
        provider = f"{line.benchmark}: {line.provider}" if several else line.provider
        rows.append(
            [provider, ratio, f"{line.worst:.2f}", line.worst_size, f"{100 * spread:.1f} %"]
        )
        if lost:
            text = nodes.paragraph("", "Lost: ")
            text += nodes.literal("", line.provider)
            text += nodes.Text(
                f" of {line.benchmark} reaches {line.ratio:.3f} of its rate with Triton {older} on "
                f"{device}, at the worst size ({line.worst_size}) {line.worst:.2f}; "
                + ("more than the spread explains." if line.lost else "the spread is as large.")
            )
            losses.append(nodes.warning("", text, classes=["gallery-lost"]))
    head = ["Provider", "Ratio", "Lowest", "at", "Spread of a measurement"]
    name = slug(f"{Path(step.newest.page).name}-{device}-{newer}-{older}")
    return [table(head, rows, caption, classes=["gallery-releases"], ids=[name]), *losses]
