"""The performance page: how each recorded benchmark does against its alternatives and ceilings.

``.. gallery-performance::`` shows it, computed while rendering from the CSV files of the
recordings; ``.. gallery-headlines::`` shows one line a benchmark, from the same numbers. They are
also in the site as ``_static/performance.json``, described by ``_static/performance.schema.json``.

In a benchmark, the providers ``triton`` and ``triton + …`` are the tutorial's kernels. ``copy`` and
vendor libraries are ceilings; the others are what a reader would call instead. A suffix such as
``+ leaky_relu`` is compared with the same suffix only. What was not measured at every size is a
step on the way to the kernel, and is left to the tutorial's page.

A benchmark over one size is drawn as one chart. One over several, such as the length of a sequence
and the size of a head, has a chart for each of the others' values; sizes that follow no order, such
as those of a model's layers, are a table.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

import msgspec
from docutils import nodes
from docutils.utils import column_width
from msgspec import Meta
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.rst import escape

from gallery_recorder.render import downloads
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import ListedRecording
from gallery_recorder.render.units import readable_seconds
from gallery_recorder.store import benchmarks
from gallery_recorder.store.format import slug
from triton_site.numbers.charts import Line, line_chart, sparkline
from triton_site.numbers.claims import in_order
from triton_site.numbers.recorded import version_key
from triton_site.pages.software import PROBE

logger = logging.getLogger(__name__)

#: Providers that nothing is expected to beat: a copy of the same bytes, the vendor's library.
CEILINGS = ("copy", "cublas", "rocblas", "dense")

#: A chart needs as many points.
MIN_POINTS = 3

NOTHING = "No benchmark has been recorded on a GPU yet: ``make record`` does it."

_Ratio = Annotated[float, Meta(gt=0)]


class Comparison(msgspec.Struct, frozen=True):
    """Our kernel's rate over another provider's, at each size, and the summary of it."""

    provider: Annotated[str, Meta(description="the kernel of the tutorial")]
    against: Annotated[str, Meta(description="what it is compared with")]
    role: Literal["alternative", "ceiling"]
    sizes: Annotated[list[dict[str, int]], Meta(description="by column, those that vary")]
    ratios: list[_Ratio]
    min: _Ratio
    geometric_mean: _Ratio
    max: _Ratio
    min_at: str
    max_at: str


class Benchmark(msgspec.Struct, frozen=True):
    """One benchmark on one device."""

    tutorial: str
    page: Annotated[str, Meta(description="the document that it is on")]
    record: Annotated[str, Meta(description="the label of its full record")]
    title: str
    name: str
    device: str
    recorded: str
    triton: str
    torch: str
    commit: str | None
    seconds: Annotated[float, Meta(description="GPU seconds that recording the tutorial took")]
    size: Annotated[str, Meta(description="the sizes that vary")]
    comparisons: list[Comparison]


class Performance(msgspec.Struct, frozen=True):
    """Everything on the performance page."""

    schema: Literal[3]
    benchmarks: list[Benchmark]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives and write the data."""
    app.add_directive("gallery-performance", PerformanceDirective)
    app.add_directive("gallery-headlines", HeadlinesDirective)
    app.connect("build-finished", _write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


#: What was computed, once for each build that asked for it.
_COMPUTED: WeakKeyDictionary[BuildEnvironment, Performance] = WeakKeyDictionary()


def performance_of(env: BuildEnvironment) -> Performance:
    """The benchmarks of all recordings that are current on their device."""
    if env not in _COMPUTED:
        found = []
        for item in domain_of(env).selection.recordings:
            if item.timed and item.state in ("shown", "current"):
                try:
                    found += benchmarks_of(item)
                except benchmarks.BenchmarkError as error:  # one table less; the others are whole
                    logger.warning("%s", error, type="gallery", subtype="benchmark")
        _COMPUTED[env] = Performance(3, found)
    return _COMPUTED[env]


def benchmarks_of(item: ListedRecording) -> list[Benchmark]:
    """The benchmarks among the data files of a recording.

    Raises:
        BenchmarkError: a CSV file cannot be read as a benchmark.
    """
    content = item.content
    said = content.probe(PROBE)
    found = []
    for name in [n for block in content.blocks for n in block.data if n.endswith(".csv")]:
        size, comparisons = compare_providers(item.folder / name)
        if comparisons:
            found.append(
                Benchmark(
                    tutorial=item.name,
                    page=item.page,
                    record=item.label,
                    title=content.title,
                    name=Path(name).stem,
                    device=content.provenance.device,
                    recorded=content.run.recorded,
                    triton=str(said.get("triton", "")),
                    torch=str(said.get("torch", "")),
                    commit=content.provenance.commit,
                    seconds=content.run.seconds,
                    size=size,
                    comparisons=comparisons,
                )
            )
    return found


def compare_providers(path: Path) -> tuple[str, list[Comparison]]:
    """The sizes that vary in a benchmark file, and each kernel against each other provider.

    Raises:
        BenchmarkError: the file cannot be read as a benchmark.
    """
    measured = benchmarks.read(path)
    if not measured:
        return "", []  # a table of something else
    columns, sizes = varying_sizes(measured)
    comparisons = []
    for ours in measured:
        kernel, _, suffix = ours.partition(" + ")
        if kernel != "triton":
            continue
        for other in measured:
            name, _, its_suffix = other.partition(" + ")
            at_every_size = measured[ours].keys() <= measured[other].keys()
            if name.startswith("triton") or its_suffix != suffix or not at_every_size:
                continue
            ratios = {
                text: _times_as_fast(at, measured[other][text])
                for text, at in measured[ours].items()
            }
            role = "ceiling" if name in CEILINGS else "alternative"
            comparisons.append(_comparison(ours, other, role, ratios, sizes))
    return ", ".join(columns), comparisons


def _times_as_fast(ours: benchmarks.Measurement, theirs: benchmarks.Measurement) -> float:
    ratio = ours.median / theirs.median
    return ratio if benchmarks.is_rate(ours.unit) else 1 / ratio


def _comparison(
    ours: str,
    other: str,
    role: Literal["alternative", "ceiling"],
    ratios: dict[str, float],
    sizes: dict[str, dict[str, int]],
) -> Comparison:
    worst, best = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    ordered = sorted(ratios, key=lambda text: tuple(sizes[text].values()))
    return Comparison(
        provider=ours,
        against=other,
        role=role,
        sizes=[sizes[text] for text in ordered],
        ratios=[round(ratios[text], 4) for text in ordered],
        min=round(ratios[worst], 4),
        geometric_mean=round(mean, 4),
        max=round(ratios[best], 4),
        min_at=said(sizes[worst]),
        max_at=said(sizes[best]),
    )


def said(size: dict[str, int]) -> str:
    """A size in words: ``N = 512, head_dim = 64``."""
    return ", ".join(f"{name} = {value}" for name, value in size.items())


def varying_sizes(
    measured: dict[str, dict[str, benchmarks.Measurement]],
) -> tuple[list[str], dict[str, dict[str, int]]]:
    """The columns that vary, and their values for each ``M=…, N=…``.

    Sizes that are always equal are one: ``M = N = K`` of square matrices.
    """
    texts = list(dict.fromkeys(text for sizes in measured.values() for text in sizes))
    rows = {text: dict(part.split("=") for part in text.split(", ")) for text in texts}
    names = list(rows[texts[0]])
    varying = [c for c in names if len({row[c] for row in rows.values()}) > 1] or names[-1:]
    columns: dict[tuple[str, ...], list[str]] = {}
    for name in varying:
        columns.setdefault(tuple(row[name] for row in rows.values()), []).append(name)
    merged = {" = ".join(names): names[0] for names in columns.values()}
    return list(merged), {
        text: {label: int(row[name]) for label, name in merged.items()}
        for text, row in rows.items()
    }


def charted(item: Benchmark) -> dict[str, list[Line]]:
    """The lines of each chart of a benchmark, by what is the same in a chart; empty for a table."""
    names = list(item.comparisons[0].sizes[0])
    count = {n: len({size[n] for c in item.comparisons for size in c.sizes}) for n in names}
    across = max(names, key=count.__getitem__)
    found: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
    for c in item.comparisons:
        for size, ratio in zip(c.sizes, c.ratios, strict=True):
            others = said({name: value for name, value in size.items() if name != across})
            line = found.setdefault(others, {}).setdefault(f"{c.provider} / {c.against}", ([], []))
            line[0].append(size[across])
            line[1].append(ratio)
    lines = {
        others: [Line(name, x, y) for name, (x, y) in named.items()]
        for others, named in found.items()
    }
    alone = len(names) == 1
    enough = all(len(line.x) >= MIN_POINTS for group in lines.values() for line in group)
    return lines if alone or enough else {}


# --- on the page ----------------------------------------------------------------------------------


def newest(items: Iterable[Benchmark]) -> list[Benchmark]:
    """Of the same benchmark on the same device that with the newest release of Triton."""
    found: dict[tuple[str, str, str], Benchmark] = {}
    for item in sorted(items, key=lambda item: version_key(item.triton), reverse=True):
        found.setdefault((item.tutorial, item.name, item.device), item)
    return [item for item in items if item in found.values()]


class HeadlinesDirective(SphinxDirective):
    """``.. gallery-headlines::``: for each benchmark, one line with its geometric means."""

    def run(self) -> list[nodes.Node]:
        """Write a list."""
        domain_of(self.env).depends("recordings")
        data = performance_of(self.env)
        lines = []
        for item in newest(data.benchmarks):
            means = "; ".join(
                f"{_plain(_kernel(c, ':'))} **{c.geometric_mean:.2f}** × {_plain(c.against)}"
                for c in item.comparisons
            )
            page = f":doc:`{_plain(item.title)} </{item.page}>`"
            lines.append(f"* {page}, {_plain(item.device)}: {means.strip()}")
        return self.parse_text_to_nodes("\n".join(lines) or NOTHING)


class PerformanceDirective(SphinxDirective):
    """``.. gallery-performance::``: a section for each benchmark, with table and plot."""

    def run(self) -> list[nodes.Node]:
        """Write it as reStructuredText, with the plots as inline SVG."""
        domain_of(self.env).depends("recordings")
        data = performance_of(self.env)
        if not data.benchmarks:
            return self.parse_text_to_nodes(NOTHING)
        sections = {}
        for item in data.benchmarks:
            sections.setdefault((item.tutorial, item.name), []).append(item)
        order = in_order((item.device, item.triton) for item in data.benchmarks)
        for items in sections.values():
            items.sort(key=lambda item: order.index((item.device, item.triton)))
        tutorials = Counter(tutorial for tutorial, _ in sections)
        text = "\n".join(
            self._section(items, several=tutorials[tutorial] > 1)
            for (tutorial, _), items in sections.items()
        )
        made = self.parse_text_to_nodes(text, allow_section_headings=True)
        views = {
            chart: alike
            for items in sections.values()
            for shown in newest(items)
            for chart, alike in _views(shown, items).items()
        }
        for node in (raw for top in made for raw in top.findall(nodes.raw)):
            node["views"] = views.get(node.astext(), {})
        return made

    def _section(self, items: list[Benchmark], several: bool) -> str:
        first = items[0]
        name = first.name.replace("-", " ")
        heading = _plain(f"{first.title}: {name}" if several else first.title)
        # The newest release of each device is drawn; the table has the others, too.
        plots = "\n\n".join(map(_picture, newest(items)))
        page = f":doc:`The page </{first.page}>`. {_origins(items)}"
        return "\n".join(
            ["", heading, "-" * column_width(heading), "", page, "", plots, "", _table(items), ""]
        )


def _origins(items: list[Benchmark]) -> str:
    """What a benchmark was recorded on, a sentence for each GPU, PyTorch and day."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for item in items:
        recorded = f":ref:`Triton {_plain(item.triton)} <{item.record}>`"
        seconds = f"({readable_seconds(item.seconds)})"
        origin = item.device, item.torch, item.recorded[:10]
        found.setdefault(origin, []).append(f"{recorded} {seconds}")
    return " ".join(
        f"Recorded on {_plain(gpu)} with PyTorch {_plain(torch)} on {day}: {', '.join(releases)}."
        for (gpu, torch, day), releases in found.items()
    )


def _table(items: list[Benchmark]) -> str:
    """A row for each GPU and provider: the newest release in full, of the others the means."""
    shown = {item.device: item for item in newest(items)}
    older = [item.triton for item in items if item is not shown[item.device]]
    older = sorted(set(older), key=version_key, reverse=True)
    cells: dict[tuple[str, str, str], dict[str, Comparison]] = {}
    for item in items:
        for c in item.comparisons:
            release = "" if item is shown[item.device] else item.triton
            cells.setdefault((item.device, c.provider, c.against), {})[release] = c
    rows = [["GPU", "Against", "Minimum", "Geometric mean", "Maximum", "Over the sizes"]]
    rows[0] += [f"Mean, {_plain(release)}" for release in older]
    numbers: Counter[str] = Counter()  # each line looks as in the chart of its GPU
    for (device, _, _), found in cells.items():
        c = next(iter(found.values()))
        ours = _kernel(c, " / ")
        row = [_plain(device), _plain(f"{ours}{c.against}{' (ceiling)' * (c.role == 'ceiling')}")]
        if now := found.get(""):
            row += [_at(now.min, now.min_at), f"**{now.geometric_mean:.2f}**"]
            row += [_at(now.max, now.max_at), _spark(shown[device], now, numbers[device])]
            numbers[device] += 1
        else:
            row += ["", "", "", ""]
        means = (found.get(release) for release in older)
        rows.append(row + [f"{c.geometric_mean:.2f}" if c else "" for c in means])
    if len(shown) == 1:
        rows = [row[1:] for row in rows]
    wanted = [n for n in range(len(rows[0])) if any(row[n] for row in rows[1:])]
    newest_of = {f"Triton {_plain(item.triton)}" for item in shown.values()}
    title = newest_of.pop() if len(newest_of) == 1 else "the newest release on each GPU"
    title += "; the means with older releases" * bool(older)
    return "\n".join(
        [f".. list-table:: Times as fast with {title}", "   :header-rows: 1"]
        + ["   :class: gallery-ratios", ""]
        + ["   * - " + "\n     - ".join(row[n] for n in wanted) for row in rows]
    )


def _plain(text: str) -> str:
    """*text*, which a recording or a table gives, as reStructuredText without markup."""
    return escape(" ".join(text.split()))


def _at(ratio: float, size: str) -> str:
    """A ratio and where it was measured; a narrow column does not break ``N = 256``."""
    space = "\N{NO-BREAK SPACE}"
    size = re.sub(r"\d{5,}", lambda found: _short(int(found[0])), size)
    return _plain(f"{ratio:.2f} ({size})").replace(r" \= ", rf"{space}\={space}")


def _short(size: int) -> str:
    """A large size as a power of two where it is one: ``2²⁷``."""
    digits = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    power = str(size.bit_length() - 1).translate(digits)
    return f"2{power}" if size & (size - 1) == 0 else str(size)


def _spark(item: Benchmark, comparison: Comparison, number: int) -> str:
    """A comparison over its sizes, drawn as in the chart; nothing where they follow no order."""
    if not charted(item) or len(comparison.ratios) < MIN_POINTS:
        return ""
    names = list(comparison.sizes[0])
    if len(names) > 1:
        return ""
    sizes = [size[names[0]] for size in comparison.sizes]
    line = Line(comparison.against, sizes, comparison.ratios)
    return f".. raw:: html\n\n          {sparkline(line, number, names[0])}\n"


def _kernel(comparison: Comparison, end: str) -> str:
    """Which of the tutorial's kernels it is, where that is not the plain one."""
    return "" if comparison.provider == "triton" else f"{comparison.provider}{end}"


def _charts(item: Benchmark) -> list[str]:
    where = f"{item.title}, {item.device}, Triton {item.triton}"
    return [
        line_chart(
            lines,
            title=f"{where}{', ' + others if others else ''}: times as fast "
            "(higher is better, 1 is even)",
            x_label=next(n for n in item.comparisons[0].sizes[0] if f"{n} = " not in others),
        )
        for others, lines in charted(item).items()
    ]


def _views(shown: Benchmark, items: list[Benchmark]) -> dict[str, dict[str, str]]:
    """For each chart of a benchmark that is shown, by place, what is there: older releases."""
    charts = _charts(shown)
    found: dict[str, dict[str, str]] = {chart: {} for chart in charts}
    for item in items:
        others = _charts(item)
        if item.device == shown.device and len(others) == len(charts):
            for chart, other in zip(charts, others, strict=True):
                found[chart][f"{slug(item.device)}/triton-{item.triton}"] = other
    return found


def _picture(item: Benchmark) -> str:
    """Charts of a benchmark, or the table of its cases, as reStructuredText."""
    where = f"{item.title}, {item.device}, Triton {item.triton}"
    charts = _charts(item)
    if charts:
        return "\n\n".join(f".. raw:: html\n\n   {chart}" for chart in charts)
    rows = [["Case", *(_plain(f"{c.provider} / {c.against}") for c in item.comparisons)]]
    for number, size in enumerate(item.comparisons[0].sizes):
        rows.append([_plain(said(size)), *(f"{c.ratios[number]:.2f}" for c in item.comparisons)])
    lines = [f".. list-table:: {_plain(where)}: times as fast", "   :header-rows: 1", ""]
    return "\n".join(lines + ["   * - " + "\n     - ".join(row) for row in rows])


def _write_data(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        static = Path(app.outdir, "_static")
        data = msgspec.json.encode(performance_of(app.env))
        downloads.write(static / "performance.json", msgspec.json.format(data, indent=1))
        schema = msgspec.json.encode(msgspec.json.schema(Performance))
        downloads.write(static / "performance.schema.json", msgspec.json.format(schema, indent=1))
