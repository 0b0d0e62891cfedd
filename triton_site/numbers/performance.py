"""The performance page: each recorded benchmark against its alternatives and ceilings.

``.. gallery-performance::`` shows tables and charts, computed from the CSV files of the recordings;
``.. gallery-headlines::`` shows one line for each benchmark. ``_static/performance.json`` has the
same numbers for programs.

In a benchmark, the providers ``triton`` and ``triton + …`` are the tutorial's kernels. ``copy`` and
vendor libraries are ceilings; the others are calls that a reader would use instead. A suffix such
as ``+ leaky_relu`` is compared with the same suffix only. A provider that lacks a size is a step
towards the kernel and is left to the tutorial's page.

A benchmark over one size has one chart. A benchmark over several sizes has a chart for each value
of the others; sizes without an order, such as those of a model's layers, are a table.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.render import downloads
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.labels import readable_seconds
from gallery_recorder.render.selection import ListedRecording
from gallery_recorder.store import benchmarks
from triton_site.numbers.charts import Line, line_chart
from triton_site.numbers.recorded import current, in_order, release_of, version_key
from triton_site.numbers.tables import link, table
from triton_site.probes import SOFTWARE

logger = logging.getLogger(__name__)

#: Providers that nothing is expected to beat: a copy of the same bytes, the vendor's library.
CEILINGS = ("copy", "cublas", "rocblas", "dense")

#: The fewest points of a line in a chart.
MIN_POINTS = 3

NOTHING = "No benchmark has been recorded on a GPU yet: ``make record`` does it."

FILE_NAME = "performance.json"

_Rates = dict[str, benchmarks.Measurement]  # by size

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Comparison(msgspec.Struct, frozen=True):
    """The rate of a tutorial's kernel over another provider's, by the sizes that vary."""

    provider: str
    against: str
    role: Literal["alternative", "ceiling"]
    sizes: list[dict[str, int]]
    ratios: list[float]
    min: float
    geometric_mean: float
    max: float
    min_at: str
    max_at: str


class Benchmark(msgspec.Struct, frozen=True):
    """One benchmark on one device with one release of Triton."""

    tutorial: str
    page: str
    record: str  # the label of the full record
    title: str
    name: str
    device: str
    recorded: str
    triton: str
    torch: str
    commit: str | None
    seconds: float  # that recording the tutorial took
    size: str  # the names of the sizes that vary
    comparisons: list[Comparison]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives and publish the data."""
    app.add_directive("gallery-performance", PerformanceDirective)
    app.add_directive("gallery-headlines", HeadlinesDirective)
    app.connect("build-finished", _publish_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# --- the numbers ---------------------------------------------------------------------------------

_COMPUTED: WeakKeyDictionary[BuildEnvironment, list[Benchmark]] = WeakKeyDictionary()


def benchmarks_of(env: BuildEnvironment) -> list[Benchmark]:
    """The benchmarks of all current recordings, computed when a build first asks for them."""
    if env not in _COMPUTED:
        _COMPUTED[env] = found = []
        for item in current(env):
            try:
                found += _benchmarks(item)
            except benchmarks.BenchmarkError as error:  # the other recordings are whole
                logger.warning("%s", error, type="gallery", subtype="benchmark")
    return _COMPUTED[env]


def _benchmarks(item: ListedRecording) -> Iterator[Benchmark]:
    content = item.content
    for name in (name for name in content.data if name.endswith(".csv")):
        size, comparisons = compare_providers(item.folder / name)
        if comparisons:
            yield Benchmark(
                tutorial=item.location.name,
                page=item.page,
                record=item.label,
                title=content.title,
                name=Path(name).stem,
                device=content.provenance.device,
                recorded=content.run.recorded,
                triton=release_of(content),
                torch=str(content.probe(SOFTWARE).get("torch", "")),
                commit=content.provenance.commit,
                seconds=content.run.seconds,
                size=size,
                comparisons=comparisons,
            )


def compare_providers(path: Path) -> tuple[str, list[Comparison]]:
    """The sizes that vary in a benchmark file, and each kernel against each other provider.

    Raises:
        BenchmarkError: the file cannot be read as a benchmark.
    """
    measured = benchmarks.read(path)
    if not measured:
        return "", []  # another table
    sizes = varying_sizes(measured)
    comparisons = []
    for ours, other in product(measured, measured):
        kernel, _, suffix = ours.partition(" + ")
        name, _, its_suffix = other.partition(" + ")
        at_every_size = measured[ours].keys() <= measured[other].keys()
        alike = kernel == "triton" and suffix == its_suffix and at_every_size
        if alike and not name.startswith("triton"):
            made = _compared(measured[ours], measured[other], sizes)
            role = "ceiling" if name in CEILINGS else "alternative"
            comparisons.append(Comparison(ours, other, role, *made))
    return ", ".join(next(iter(sizes.values()))), comparisons


def _compared(ours: _Rates, theirs: _Rates, sizes: dict[str, dict[str, int]]) -> tuple[Any, ...]:
    """The fields of a comparison behind its role."""
    ratios = {}
    for text in sorted(ours, key=lambda text: tuple(sizes[text].values())):
        ratio = ours[text].median / theirs[text].median
        ratios[text] = ratio if benchmarks.is_rate(ours[text].unit) else 1 / ratio
    worst, best = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return (
        [sizes[text] for text in ratios],
        [round(ratio, 4) for ratio in ratios.values()],
        round(ratios[worst], 4),
        round(statistics.geometric_mean(ratios.values()), 4),
        round(ratios[best], 4),
        in_words(sizes[worst]),
        in_words(sizes[best]),
    )


def in_words(size: dict[str, int]) -> str:
    """A size such as ``N = 512, head_dim = 64``."""
    return ", ".join(f"{name} = {value}" for name, value in size.items())


def varying_sizes(
    measured: dict[str, _Rates],
) -> dict[str, dict[str, int]]:
    """For each ``M=…, N=…`` of a benchmark, the values of the columns that vary.

    Columns that are always equal are one: ``M = N = K`` of square matrices.
    """
    texts = list(dict.fromkeys(text for sizes in measured.values() for text in sizes))
    rows = [dict(part.split("=") for part in text.split(", ")) for text in texts]
    values = {name: tuple(row[name] for row in rows) for name in rows[0]}
    varying = [name for name in values if len({*values[name]}) > 1] or list(values)[-1:]
    equal: dict[tuple[str, ...], list[str]] = {}
    for name in varying:
        equal.setdefault(values[name], []).append(name)
    merged = {" = ".join(names): names[0] for names in equal.values()}
    return {
        text: {label: int(row[name]) for label, name in merged.items()}
        for text, row in zip(texts, rows, strict=True)
    }


def newest(items: Iterable[Benchmark]) -> list[Benchmark]:
    """Of each benchmark on each device the recording with the newest release of Triton."""
    found: dict[tuple[str, str, str], Benchmark] = {}
    for item in sorted(items, key=lambda item: version_key(item.triton), reverse=True):
        found.setdefault((item.tutorial, item.name, item.device), item)
    return [item for item in items if item in found.values()]


# --- on the page ---------------------------------------------------------------------------------


class HeadlinesDirective(SphinxDirective):
    """``.. gallery-headlines::``: for each benchmark, one line with its geometric means."""

    def run(self) -> list[nodes.Node]:
        """Make a list."""
        domain_of(self.env).depends("recordings")
        items = nodes.bullet_list()
        for item in newest(benchmarks_of(self.env)):
            text = nodes.paragraph("", "", link("doc", item.page, item.title, self.env.docname))
            text += nodes.Text(f", {item.device}: ")
            for number, c in enumerate(item.comparisons):
                text += nodes.Text(("; " if number else "") + _kernel(c, ": "))
                text += nodes.strong("", f"{c.geometric_mean:.2f}")
                text += nodes.Text(f" × {c.against}")
            items += nodes.list_item("", text)
        return [items] if items.children else self.parse_text_to_nodes(NOTHING)


class PerformanceDirective(SphinxDirective):
    """``.. gallery-performance::``: a section for each benchmark, with charts and table."""

    def run(self) -> list[nodes.Node]:
        """Make the sections, and keep the data until the build is finished."""
        domain_of(self.env).depends("recordings")
        found = benchmarks_of(self.env)
        data = msgspec.json.encode({"schema": 3, "benchmarks": found})
        Path(self.env.doctreedir, FILE_NAME).write_bytes(msgspec.json.format(data, indent=1))
        order = in_order((item.device, item.triton) for item in found)
        sections: dict[tuple[str, str], list[Benchmark]] = {}
        for item in sorted(found, key=lambda item: order.index((item.device, item.triton))):
            sections.setdefault((item.tutorial, item.name), []).append(item)
        several = Counter(tutorial for tutorial, _ in sections)
        made: list[nodes.Node] = []
        for tutorial, name in dict.fromkeys((item.tutorial, item.name) for item in found):
            items = sections[tutorial, name]
            heading = items[0].title
            if several[tutorial] > 1:
                heading += f": {name.replace('-', ' ')}"
            section = nodes.section("", nodes.title("", heading))
            section["names"] = [nodes.fully_normalize_name(heading)]
            self.state.document.note_implicit_target(section, section)
            section += self._origins(items)
            for item in newest(items):
                section += _pictures(item)
            section += _table(items)
            made.append(section)
        return made or self.parse_text_to_nodes(NOTHING)

    def _origins(self, items: list[Benchmark]) -> nodes.paragraph:
        """The hardware and software of a benchmark: a sentence for each GPU, PyTorch and day."""
        docname = self.env.docname
        text = nodes.paragraph("", "", link("doc", items[0].page, "The page", docname))
        text += nodes.Text(".")
        found: dict[tuple[str, str, str], list[Benchmark]] = {}
        for item in items:
            found.setdefault((item.device, item.torch, item.recorded[:10]), []).append(item)
        for (device, torch, day), releases in found.items():
            text += nodes.Text(f" Recorded on {device} with PyTorch {torch} on {day}: ")
            for number, item in enumerate(releases):
                text += nodes.Text(", " if number else "")
                text += link("ref", item.record, f"Triton {item.triton}", docname)
                text += nodes.Text(f" ({readable_seconds(item.seconds)})")
            text += nodes.Text(".")
        return text


def _pictures(item: Benchmark) -> list[nodes.Node]:
    """The charts of a benchmark, or a table of its cases."""
    where = f"{item.title}, {item.device}, Triton {item.triton}"
    charts = []
    for others, lines in charted(item).items():
        title = f"{where}{', ' + others if others else ''}: times as fast "
        x_label = next(name for name in item.comparisons[0].sizes[0] if f"{name} = " not in others)
        chart = line_chart(lines, f"{title}(higher is better, 1 is even)", x_label)
        charts.append(nodes.raw("", chart, format="html"))
    if charts:
        return charts
    head = ["Case", *(f"{c.provider} / {c.against}" for c in item.comparisons)]
    rows = [
        [in_words(size), *(f"{c.ratios[number]:.2f}" for c in item.comparisons)]
        for number, size in enumerate(item.comparisons[0].sizes)
    ]
    return [table(head, rows, f"{where}: times as fast")]


def charted(item: Benchmark) -> dict[str, list[Line]]:
    """The lines of each chart, by the sizes that it has in common; empty for a table."""
    names = list(item.comparisons[0].sizes[0])
    count = {n: len({size[n] for c in item.comparisons for size in c.sizes}) for n in names}
    across = max(names, key=count.__getitem__)
    found: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
    for c in item.comparisons:
        for size, ratio in zip(c.sizes, c.ratios, strict=True):
            others = in_words({name: value for name, value in size.items() if name != across})
            line = found.setdefault(others, {}).setdefault(f"{c.provider} / {c.against}", ([], []))
            line[0].append(size[across])
            line[1].append(ratio)
    charts = {
        others: [Line(name, x, y) for name, (x, y) in lines.items()]
        for others, lines in found.items()
    }
    enough = all(len(line.x) >= MIN_POINTS for lines in charts.values() for line in lines)
    return charts if len(names) == 1 or enough else {}


def _table(items: list[Benchmark]) -> nodes.table:
    """A row for each GPU and provider: the newest release in full, of older ones the means."""
    shown = newest(items)
    older = sorted({item.triton for item in items if item not in shown}, key=version_key)[::-1]
    means = {
        (item.device, c.provider, c.against, item.triton): f"{c.geometric_mean:.2f}"
        for item in items
        for c in item.comparisons
    }
    several = len(shown) > 1
    head = ["GPU"] * several + ["Against", "Minimum", "Geometric mean", "Maximum"]
    rows: list[list[str | nodes.Element]] = []
    for item in shown:
        for c in item.comparisons:
            against = _kernel(c, " / ") + c.against + " (ceiling)" * (c.role == "ceiling")
            mean = nodes.strong("", f"{c.geometric_mean:.2f}")
            rows.append([
                *[item.device] * several,
                against,
                _at(c.min, c.min_at),
                nodes.paragraph("", "", mean),
                _at(c.max, c.max_at),
                *(means.get((item.device, c.provider, c.against, old), "") for old in older),
            ])  # fmt: skip
    releases = {f"Triton {item.triton}" for item in shown}
    title = releases.pop() if len(releases) == 1 else "the newest release on each GPU"
    title = f"Times as fast with {title}" + "; the means with older releases" * bool(older)
    head += [f"Mean, {release}" for release in older]
    return table(head, rows, title, classes=["gallery-ratios"])


def _at(ratio: float, size: str) -> str:
    """A ratio and its size; large powers of two are ``2²⁷``, and no line breaks in ``N = 256``."""

    def short(found: re.Match[str]) -> str:
        value = int(found[0])
        is_power = value & (value - 1) == 0
        return f"2{str(value.bit_length() - 1).translate(_SUPERSCRIPTS)}" if is_power else found[0]

    size = re.sub(r"\d{5,}", short, size)
    return f"{ratio:.2f} ({size})".replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")


def _kernel(comparison: Comparison, end: str) -> str:
    """The tutorial's kernel where it is not the plain one."""
    return "" if comparison.provider == "triton" else f"{comparison.provider}{end}"


def _publish_data(app: Sphinx, exception: Exception | None) -> None:
    made = Path(app.doctreedir, FILE_NAME)
    if exception is None and app.builder.format == "html" and made.is_file():
        downloads.write(Path(app.outdir, "_static", FILE_NAME), made.read_bytes())
