"""What a release of Triton changed, for each provider of each benchmark: ``.. gallery-releases::``.

Compared are recordings of one device and one script's code, of the newest release and of each older
one, by the engine's ``compare``. Each tutorial's page has its own tables in a section before its
exercises, and the directive shows all of them. Where a provider lost more than :data:`LOSS` at most
sizes, the page says so, and offers a script by :mod:`triton_site.pages.reproduce`, which times it
alone.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder import seam
from gallery_recorder.render import downloads
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import ListedRecording, Page
from gallery_recorder.store import benchmarks
from gallery_recorder.store.compare import Line, compare_benchmark
from gallery_recorder.store.format import slug
from triton_site.numbers.recorded import version_key
from triton_site.pages import reproduce
from triton_site.pages.software import PROBE

logger = logging.getLogger(__name__)

#: A provider that lost more than this share of its rate, at most sizes, is marked.
LOSS = 0.05

#: Where the scripts lie in the site.
FOLDER = "_static/reproduce"

NOTHING = "The recordings are of one release of Triton only."

#: The sections that the tables stand before; where a page has none of them, they end it.
_BEFORE = ("Exercises", "References")


class Change(NamedTuple):
    """One provider with both releases: what ``compare`` says of it, and how numbers scatter."""

    file: str
    line: Line
    spread: float
    unit: str
    recorded: dict[str, tuple[float, float]]

    @property
    def lost(self) -> bool:
        """Whether it is to be told: on average, and at half of the sizes or more.

        One size alone that fell far is a disturbed measurement sooner than a compiler's loss; the
        column of the lowest ratio shows it.
        """
        ratios = [new / old for old, new in self.recorded.values()]
        return max(self.line.ratio, statistics.median(ratios)) < 1 - LOSS


class Step(NamedTuple):
    """From an older release to the newest, on one device: the changes of one tutorial."""

    newest: ListedRecording
    older: ListedRecording
    script: str
    changes: list[Change]

    @property
    def releases(self) -> tuple[str, str]:
        """The newest and the older release."""
        return _release(self.newest), _release(self.older)

    def file_of(self, change: Change) -> str:
        """The script that times what changed; below the root of the site."""
        device = self.newest.content.provenance.device
        parts = (Path(self.newest.name).name, change.line.benchmark, change.line.provider)
        return f"{FOLDER}/{slug('-'.join((*parts, *self.releases, device)))}.py"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("gallery-releases", ReleasesDirective)
    app.connect("doctree-read", _add_section, priority=300)  # before the table of contents is made
    app.connect("build-finished", _write_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def steps_of(app: Sphinx, docname: str = "") -> list[Step]:
    """The steps of all tutorials, or of the page *docname*."""
    domain = domain_of(app.env)
    choice = domain.selection
    current = [
        item
        for item in (choice.recordings if choice else ())
        if item.timed and item.state in ("shown", "current") and docname in ("", item.page)
    ]
    return list(_steps(domain.pages, current))


def _steps(pages: Mapping[str, Page], items: Iterable[ListedRecording]) -> Iterator[Step]:
    for _, grouped in groupby(sorted(items, key=_place), key=_place):
        newest, *older = sorted(grouped, key=lambda item: version_key(_release(item)))[::-1]
        for item in older:
            try:
                found = changed(newest, item)
            except benchmarks.BenchmarkError as error:  # one table less; the others are whole
                logger.warning("%s", error, type="gallery", subtype="benchmark")
                continue
            if found:
                script = pages[item.page].path.read_text(encoding="utf-8")
                yield Step(newest, item, script, found)


def _place(item: ListedRecording) -> tuple[str, str]:
    return item.page, item.content.provenance.device


def _release(item: ListedRecording) -> str:
    return str(item.content.probe(PROBE).get("triton", ""))


def changed(newer: ListedRecording, older: ListedRecording) -> list[Change]:
    """All providers that both recordings measured at the same sizes.

    Raises:
        BenchmarkError: a CSV file cannot be read as a benchmark.
    """
    found = []
    for name in newer.content.data:
        if not name.endswith(".csv") or not Path(older.folder, name).is_file():
            continue
        now, then = (benchmarks.read(Path(item.folder, name)) for item in (newer, older))
        for line in compare_benchmark(name, then, now):
            one, other = then[line.provider], now[line.provider]
            sizes = [size for size in other if size in one and one[size].unit == other[size].unit]
            spreads = sorted(
                abs(m.p80 - m.p20) / m.median for s in sizes for m in (one[s], other[s])
            )
            recorded = {size: (one[size].median, other[size].median) for size in sizes}
            spread = spreads[len(spreads) // 2]
            found.append(Change(name, line, spread, other[sizes[0]].unit, recorded))
    return found


# --- on the pages ---------------------------------------------------------------------------------


class ReleasesDirective(SphinxDirective):
    """``.. gallery-releases::``: a table for each tutorial and each older release."""

    def run(self) -> list[nodes.Node]:
        """Make the tables."""
        domain_of(self.env).depends("recordings")
        made: list[nodes.Node] = []
        for step in steps_of(seam.app_of(self.env)):
            made += _tell(step, self.env.docname, step.newest.content.title)
        return made or [nodes.paragraph("", NOTHING)]


def _add_section(app: Sphinx, doctree: nodes.document) -> None:
    """Add the section of a tutorial's page, where it was recorded with several releases."""
    docname = app.env.docname
    steps = steps_of(app, docname) if docname in domain_of(app.env).pages else []
    top = next(doctree.findall(nodes.section), None)
    if not steps or top is None:
        return
    newest = {step.releases[0] for step in steps}
    title = f"What Triton {newest.pop()} changed" if len(newest) == 1 else "What releases changed"
    section = nodes.section("", nodes.title("", title), ids=["what-a-release-changed"])
    section += nodes.paragraph(
        "",
        "The same code on the same model of GPU, recorded with two releases of Triton: how many "
        "times as fast each provider is with the newer one. What Triton does not compile, such "
        "as a copy, shows how far two runs differ anyway.",
    )
    for step in steps:
        section += _tell(step, docname)
    for place in top.children:
        if isinstance(place, nodes.section) and place[0].astext() in _BEFORE:
            top.insert(top.index(place), section)
            return
    top += section


def _tell(step: Step, docname: str, title: str = "") -> list[nodes.Node]:
    """The table of a step, and what was lost."""
    newer, older = step.releases
    device = step.newest.content.provenance.device
    caption = nodes.title("", f"{device}: Triton {newer} over {older}")
    if title:
        link = addnodes.pending_xref(
            "", nodes.inline("", title), refdomain="std", reftype="doc",
            reftarget=f"/{step.newest.page}", refexplicit=True, refwarn=True, refdoc=docname,
        )  # fmt: skip
        caption.insert(0, [link, nodes.Text(", ")])
    name = slug(f"{Path(step.newest.page).name}-{device}-{newer}-{older}")
    table = nodes.table("", caption, classes=["gallery-releases"], ids=[name])
    head = ("Provider", "Ratio", "Lowest", "at", "Spread of a measurement")
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    rows = [[_text(cell) for cell in head]]
    for change in step.changes:
        line = change.line
        several = len({other.file for other in step.changes}) > 1
        ratio = nodes.paragraph("", "", nodes.strong("", f"{line.ratio:.3f}"))
        ratio += nodes.Text(" lost" if change.lost else "")
        rows.append([
            _text(f"{line.benchmark}: {line.provider}" if several else line.provider),
            ratio,
            _text(f"{line.worst:.2f}"),
            _text(line.worst_size),
            _text(f"{100 * change.spread:.1f} %"),
        ])  # fmt: skip
    made = [nodes.row("", *(nodes.entry("", cell) for cell in row)) for row in rows]
    group += [nodes.thead("", made[0]), nodes.tbody("", *made[1:])]
    table += group
    lost = [change for change in step.changes if change.lost]
    return [table, *(_loss(step, change, docname) for change in lost)]


def _text(text: str) -> nodes.paragraph:
    return nodes.paragraph("", text)


def _loss(step: Step, change: Change, docname: str) -> nodes.warning:
    older = step.releases[1]
    line = change.line
    text = nodes.paragraph("", "Lost: ")
    text += nodes.literal("", line.provider)
    text += nodes.Text(
        f" of {line.benchmark} reaches {line.ratio:.3f} of its rate with Triton {older} on "
        f"{step.newest.content.provenance.device}, at the worst size ({line.worst_size}) "
        f"{line.worst:.2f}; "
        + (
            "more than the spread explains."
            if line.lost
            else "the spread of the two runs is as large."
        )
    )
    if not reproduce.has_kernel(step.script, change.file, line.provider):
        text += nodes.Text(" It calls no kernel of this page, so that Triton is hardly to blame.")
    if _reproduction(step, change):
        link = "../" * docname.count("/") + step.file_of(change)
        name = Path(link).name
        text += [
            nodes.Text(" A script times it alone, to find out or to report it: "),
            nodes.reference("", name, refuri=link, internal=True),
            nodes.Text("."),
        ]
    return nodes.warning("", text, classes=["gallery-lost"])


# --- the scripts ----------------------------------------------------------------------------------


def _reproduction(step: Step, change: Change) -> str:
    newer, older = step.releases
    content = step.newest.content
    return reproduce.reproduction(
        step.script,
        change.file,
        change.line.provider,
        change.recorded,
        {
            "title": re.sub(r'["\\]', "", content.title),
            "benchmark": change.line.benchmark,
            "device": content.provenance.device,
            "newer": newer,
            "older": older,
            "ratio": change.line.ratio,
            "unit": change.unit,
            "name": Path(step.file_of(change)).name,
            "page": step.newest.page,
        },
    )


def _write_scripts(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    root = Path(app.outdir)
    lost = [(step, change) for step in steps_of(app) for change in step.changes if change.lost]
    texts = {root / step.file_of(change): _reproduction(step, change) for step, change in lost}
    for path in root.glob(f"{FOLDER}/**/*"):
        if path.is_file() and not texts.get(path):
            path.unlink()
    for path, text in texts.items():
        if text:
            downloads.write(path, text.encode())
