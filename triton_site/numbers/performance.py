"""``.. gallery-performance::``: each kernel beside its library, and beside the hardware's limit.

The numbers are those of the recordings that the pages show. The provider ``triton`` is the kernel
of a page; without one, the last of the numbered steps is (``4 cut``). What follows a plus or a
comma is the kernel's variant, and it is compared with the other providers of the same variant:
``triton + relu`` with ``cublas + relu``. The other steps, and providers that lack a size, are left
to their page.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import ListedRecording, domain_of
from triton_site.numbers import benchmarks
from triton_site.numbers.recorded import CALLS, current, release_of
from triton_site.numbers.tables import at_size, link, table
from triton_site.pages.assets import is_a, load_where
from triton_site.pages.folds import add_node
from triton_site.references import SOFTWARE

logger = logging.getLogger(__name__)

#: Providers that no kernel can beat: other work on the same bytes or operations.
CEILINGS = ("copy", "read", "amax", "bound", "dense")

#: How far a kernel may exceed such a limit, which was measured like everything else; where it
#: exceeds it by more, as data from a cache does, the other work is no limit.
ABOVE = 1.05

#: How far a mean may be from 1 and still count as even.
EVEN = 0.03

#: Providers in words.
WORDS = {
    "torch": "PyTorch",
    "eager": "PyTorch",
    "compile": "torch.compile",
    "cublas": "cuBLAS",
    "rocblas": "rocBLAS",
    "cudnn": "cuDNN",
    "flash": "FlashAttention-2",
    "naive": "PyTorch, unfused",
    "mask": "a mask in memory",
    "grouped_mm": "PyTorch's grouped product",
    "loop": "a product for each expert",
    "int4pack": "PyTorch's int4 product",
    "bf16": "cuBLAS in bf16",
    "gather": "pages gathered, then cuDNN",
    "sort": "sorting in PyTorch",
    "softmax": "softmax alone",
    "amax": "PyTorch's amax of the same bytes",
    "liger": "Liger-Kernel",
    "fla": "flash-linear-attention",
    "gemlite": "GemLite",
    "library": "PyTorch",
    "plain": "a kernel without warp roles",
    "copy": "a copy of the same bytes",
    "read": "one read of the same bytes",
    "bound": "bytes and operations alone",
    "dense": "one product of the same operations",
}

#: What a step of a page begins with.
_STEP = re.compile(r"^(\d+) (?!rows?\b)")

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Comparison(NamedTuple):
    """How many times as fast a kernel is as another provider, by the size in words."""

    provider: str
    against: str
    ratios: dict[str, float]

    @property
    def mean(self) -> float:
        """The geometric mean over all sizes."""
        return statistics.geometric_mean(self.ratios.values())

    @property
    def least(self) -> tuple[float, str]:
        """The smallest ratio and its size."""
        return min((ratio, size) for size, ratio in self.ratios.items())

    @property
    def largest(self) -> tuple[float, str]:
        """The largest ratio and its size."""
        return max((ratio, size) for size, ratio in self.ratios.items())

    @property
    def verdict(self) -> str:
        """Whether the kernel is faster or slower by more than 3 %; otherwise both are even."""
        if abs(self.mean - 1) <= EVEN:
            return "even"
        return "faster" if self.mean > 1 else "slower"

    @property
    def variant(self) -> str:
        """What the kernel does besides, such as an activation, with its plus or comma."""
        return _parts(self.provider)[1]

    @property
    def rival(self) -> str:
        """The other provider in words, without the variant."""
        return in_words(_parts(self.against)[0])

    @property
    def with_ceiling(self) -> bool:
        """Whether the other provider is a limit of the hardware."""
        return _parts(self.against)[0] in CEILINGS


class Benchmark(NamedTuple):
    """A benchmark of a recording."""

    item: ListedRecording
    name: str
    comparisons: list[Comparison]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, the chart, and the script of the page."""
    app.add_directive("gallery-performance", PerformanceDirective)
    add_node(app, Chart, _open_chart, _close)
    add_node(app, ChartGroup, _open_group, _close)
    add_node(app, ChartEntry, _open_entry, _close_entry)
    load_where(app, "performance.js", is_a(Chart))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# --- the numbers ---------------------------------------------------------------------------------


def shown_benchmarks(env: BuildEnvironment) -> list[Benchmark]:
    """The benchmarks of the recordings that pages show, in the order of pages and names."""
    found = []
    for item in sorted(current(env), key=lambda item: item.page):
        if item.state != "shown":
            continue
        for name in sorted(item.content.data):
            if not name.endswith(".csv") or name == CALLS:
                continue
            try:
                comparisons = compare_providers(item.folder / name)
            except benchmarks.BenchmarkError as error:  # the other recordings are whole
                logger.warning("%s", error, type="gallery", subtype="benchmark")
                continue
            if comparisons:
                found.append(Benchmark(item, Path(name).stem, comparisons))
    return found


def compare_providers(path: Path, everywhere: bool = True) -> list[Comparison]:
    """Each kernel in a benchmark file against each other provider that was measured *everywhere*.

    Otherwise also against one that lacks some of the kernel's sizes, at the others.

    Raises:
        BenchmarkError: the file cannot be read as a benchmark.
    """
    measured = benchmarks.read(path)
    steps = sorted((int(step[1]), name) for name in measured if (step := _STEP.match(name)))
    kernels = [name for name in measured if _parts(name)[0] == "triton"]
    kernels = kernels or [name for _, name in steps[-1:]]
    others = [name for name in measured if not (name in kernels or _STEP.match(name))]
    found = []
    for ours, other in product(kernels, others):
        name, suffix = _parts(other)
        if name == "read" and "copy" in measured:  # of as many bytes: it is the limit there
            continue
        both = {size: row for size, row in measured[ours].items() if size in measured[other]}
        enough = len(both) == len(measured[ours]) if everywhere else bool(both)
        if suffix == _parts(ours)[1] and enough:
            found.append(Comparison(ours, other, ratios(both, measured[other])))
    return found


def above_ceilings(path: Path) -> Iterator[str]:
    """What a benchmark file says that cannot be: kernels faster than a limit of the hardware.

    A copy of a few bytes is slow itself. A rate is a limit where it is half of its largest.
    """
    measured = benchmarks.read(path)
    for c in (c for c in compare_providers(path, everywhere=False) if c.with_ceiling):
        limit = measured[c.against]
        largest = max(row.median for row in limit.values())
        words = sizes_in_words([size for size in measured[c.provider] if size in limit])
        for size, row in limit.items():
            slow = benchmarks.is_rate(row.unit) and row.median < largest / 2
            where = words.get(size, "")
            if where and not slow and (ratio := c.ratios[where]) > ABOVE:
                yield f"{path.name}: {c.provider} reaches {ratio:.2f} of {c.against} at {where}"


def _parts(provider: str) -> tuple[str, str]:
    """The name in front of a plus or a comma, and the variant from there on."""
    name = re.split(r" \+ |, ", provider)[0]
    return name, provider.removeprefix(name)


def kernel_of(provider: str) -> str:
    """``triton`` for ``triton + relu``."""
    return provider.partition(" + ")[0]


def in_words(provider: str) -> str:
    """``cuBLAS`` for ``cublas + relu``, and ``step 1: one launch`` for ``1 one launch``."""
    name = _STEP.sub(r"step \1: ", kernel_of(provider))
    return WORDS.get(name, name)


def benchmark_title(name: str) -> str:
    """``matmul fp16`` for ``matmul-performance-fp16``, ``matmul-steps-fp16`` or ``beside-…``."""
    return re.sub("^beside-|-performance|-steps", "", name).replace("-", " ")


def ratios(
    ours: dict[str, benchmarks.Measurement], theirs: dict[str, benchmarks.Measurement]
) -> dict[str, float]:
    """How many times as fast *ours* are as *theirs*, by the size in words."""
    ratios = {}
    for size, words in sizes_in_words(ours).items():
        ratio = ours[size].median / theirs[size].median
        ratios[words] = ratio if benchmarks.is_rate(ours[size].unit) else 1 / ratio
    return ratios


def sizes_in_words(sizes: Iterable[str]) -> dict[str, str]:
    """``size=65536, causal=1`` as ``2¹⁶ elements, causal``; columns that never vary are left out.

    Columns that are always equal are one: ``M = N = K`` of square matrices. A column of zeros and
    ones says whether something is so.
    """
    rows = [dict(part.split("=") for part in size.split(", ")) for size in sizes]
    values = {name: tuple(row[name] for row in rows) for name in rows[0]}
    varying = [name for name in values if len({*values[name]}) > 1] or list(values)[-1:]
    equal: dict[tuple[str, ...], list[str]] = {}
    for name in varying:
        equal.setdefault(values[name], []).append(name)
    merged = {" = ".join(names): column for column, names in equal.items()}
    return {
        size: ", ".join(_in_words(label, column, row) for label, column in merged.items())
        for row, size in enumerate(sizes)
    }


def _in_words(label: str, column: tuple[str, ...], row: int) -> str:
    value = column[row]
    if {*column} == {"0", "1"}:
        return label if value == "1" else f"not {label}"
    if value.isdecimal() and int(value) >= 1 << 16 and int(value).bit_count() == 1:
        value = f"2{str(int(value).bit_length() - 1).translate(_SUPERSCRIPTS)}"
    text = f"{value} elements" if label == "size" else f"{label} = {value}"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


# --- on the page ---------------------------------------------------------------------------------

#: Rivals that are a call of PyTorch or a few of them; the others are libraries.
_OWN_CALLS = (
    "torch", "eager", "library", "naive", "mask", "bf16", "loop", "gather", "int4pack", "sort",
)  # fmt: skip
_GROUPS = {
    "libraries": "Beside a library (cuBLAS, cuDNN, FlashAttention-2, Liger …)",
    "own-calls": "Beside PyTorch's own call",
}
_HEAD = ["Kernel", "Beside", "Mean", "Least", "Largest"]
_WIDTHS = (30, 22, 10, 19, 19)
_LIMITS = ["Kernel", "Limit", "Share, mean", "Least", "Largest"]


class ChartRow(NamedTuple):
    """A comparison in the chart: the kernel in words, its page, and its device if unusual."""

    kernel: str
    page: str
    title: str
    device: str
    comparison: Comparison


class PerformanceDirective(SphinxDirective):
    """``.. gallery-performance::``: the chart, its table, then the table of limits."""

    def run(self) -> list[nodes.Node]:
        """Make them."""
        domain_of(self.env).depends("recordings")
        domain_of(self.env).depends("introductions")
        found = shown_benchmarks(self.env)
        if not found:
            return [nodes.paragraph("", "No benchmark has been recorded on a GPU yet.")]
        usual = statistics.mode(benchmark.item.device for benchmark in found)
        rows: list[ChartRow] = []
        limits: list[ChartRow] = []
        for benchmark in found:
            for comparison in benchmark.comparisons:
                row = chart_row(benchmark, comparison, usual)
                if not comparison.with_ceiling:
                    rows.append(row)
                elif comparison.largest[0] <= ABOVE:
                    limits.append(row)
        rows.sort(key=lambda row: row.comparison.mean)
        made: list[nodes.Node] = [self._sums(found, rows), self._chart(rows)]
        title = "The same as a table"
        body = [[self._kernel(row), row.comparison.rival, *_numbers(row.comparison)]
                for row in rows]  # fmt: skip
        made.append(_section("table", title, table(_HEAD, body, widths=_WIDTHS, classes=_SORTABLE)))
        if limits:
            text = nodes.paragraph(
                "",
                "A limit moves the same bytes, or does the same operations, and nothing else. "
                "A share of 100 % leaves nothing to gain.",
            )
            body = [[self._kernel(row), row.comparison.rival, *_shares(row.comparison)]
                    for row in limits]  # fmt: skip
            shares = table(_LIMITS, body, widths=_WIDTHS, classes=_SORTABLE)
            made.append(_section("limits", "Beside the hardware's limit", text, shares))
        return made

    def _sums(self, found: list[Benchmark], rows: list[ChartRow]) -> nodes.paragraph:
        verdicts = [row.comparison.verdict for row in rows]
        sums = [f"{verdicts.count(word)} {word}" for word in ("faster", "even", "slower")]
        recorded = dict.fromkeys(map(_software, found))
        text = f"Of {len(rows)} comparisons: {', '.join(sums)}. "
        where = nodes.Text(f"Recorded on {'; '.join(recorded)}.")
        return nodes.paragraph("", "", nodes.strong("", text), where)

    def _chart(self, rows: list[ChartRow]) -> Chart:
        ends = [end for row in rows for end in (row.comparison.least[0], row.comparison.largest[0])]
        scale = LogScale(min([*ends, 0.7]), max([*ends, 1.5]))
        chart = Chart(scale=scale)
        for name, title in _GROUPS.items():
            group = ChartGroup("", nodes.rubric("", title))
            for row in rows:
                if (_parts(row.comparison.against)[0] in _OWN_CALLS) == (name == "own-calls"):
                    group += self._row(row, scale)
            if len(group) > 1:
                chart += group
        return chart

    def _row(self, row: ChartRow, scale: LogScale) -> ChartEntry:
        c = row.comparison
        sizes = [[size, f"{ratio:.2f} ×"] for size, ratio in c.ratios.items()]
        entry = ChartEntry(kernel=row.kernel, rival=c.rival, verdict=c.verdict, mean=c.mean,
                           least=c.least[0], largest=c.largest[0], lesson=row.title,
                           scale=scale)  # fmt: skip
        page = link("doc", row.page, row.title, self.env.docname)
        where = f" Recorded on {row.device}." if row.device else ""
        entry += nodes.paragraph(
            "", "", nodes.Text("From the page "), page, nodes.Text(f".{where}")
        )
        entry += table(["Size", f"Speed; {c.rival} = 1"], sizes)
        return entry

    def _kernel(self, row: ChartRow) -> nodes.Element:
        cell = nodes.paragraph("", "", link("doc", row.page, row.kernel, self.env.docname))
        where = f" · {row.device}" if row.device else ""
        cell += nodes.inline("", f"{row.title}{where}", classes=["gallery-lesson"])
        return cell


_SORTABLE = ["gallery-performance", "sortable"]


def chart_row(benchmark: Benchmark, comparison: Comparison, usual: str) -> ChartRow:
    """A comparison of a benchmark as a row; *usual* is the device of most."""
    item = benchmark.item
    kernel = (benchmark_title(benchmark.name) + comparison.variant).replace("_", " ")
    device = item.device if item.device != usual else ""
    return ChartRow(kernel, item.page, item.content.title, device, comparison)


def _section(name: str, title: str, *content: nodes.Node) -> nodes.section:
    return nodes.section("", nodes.title("", title), *content, ids=[name], names=[name])


def _numbers(c: Comparison) -> list[str | nodes.Element]:
    return [
        nodes.paragraph("", "", nodes.strong("", f"{c.mean:.2f}")),
        *(at_size(f"{ratio:.2f}", size) for ratio, size in (c.least, c.largest)),
    ]


def _shares(c: Comparison) -> list[str | nodes.Element]:
    shares = (at_size(f"{100 * ratio:.0f} %", size) for ratio, size in (c.least, c.largest))
    return [f"{100 * c.mean:.0f} %", *shares]


# --- the chart -----------------------------------------------------------------------------------

#: Pixels of the chart's axis and between two marks, and the ratios that may have one.
_WIDTH, _APART = 400, 24
_MARKS = (1, 2, 0.5, 4, 0.25, 8, 16, 32, 64, 128, 1.5, 0.75)


class LogScale(NamedTuple):
    """Places of ratios from *first* to *last* on the chart's axis; nothing is cut off."""

    first: float
    last: float

    def __call__(self, ratio: float) -> float:
        """The place of *ratio* in pixels, 10 pixels from each edge at least."""
        share = math.log(ratio / self.first) / math.log(self.last / self.first)
        return 10 + share * (_WIDTH - 20)

    @property
    def marks(self) -> list[float]:
        """The ratios with a mark: powers of two first, others where there is room."""
        found: list[float] = []
        for mark in _MARKS:
            apart = all(abs(self(mark) - self(other)) >= _APART for other in found)
            if self.first <= mark <= self.last and apart:
                found.append(mark)
        return sorted(found)


class Chart(nodes.General, nodes.Element):
    """All comparisons on one axis, the ``scale``; its children are groups."""


class ChartGroup(nodes.General, nodes.Element):
    """Comparisons with one kind of rival, below their title."""


class ChartEntry(nodes.General, nodes.Element):
    """A row of the chart; its children are what opens: the page, and a table of all sizes."""


def _open_chart(translator: Any, node: Chart) -> None:
    scale = node["scale"]
    marks = "".join(
        f'<text x="{scale(mark):.1f}" y="32" text-anchor="middle">{mark:g}×</text>'
        for mark in scale.marks
    )
    one = scale(1)
    translator.body.append(
        '<div class="gallery-chart">\n<div class="chart-axis" aria-hidden="true">'
        f'<svg viewBox="0 0 {_WIDTH} 38">{marks}'
        f'<text class="slower" x="{one - 8:.1f}" y="12" text-anchor="end">← slower</text>'
        f'<text class="faster" x="{one + 8:.1f}" y="12">faster →</text></svg></div>\n'
    )


def _open_group(translator: Any, node: ChartGroup) -> None:
    del node
    translator.body.append('<div class="chart-group">\n')


def _close(translator: Any, node: nodes.Element) -> None:
    del node
    translator.body.append("</div>\n")


def _open_entry(translator: Any, node: ChartEntry) -> None:
    text = {name: translator.encode(node[name]) for name in ("kernel", "rival", "lesson")}
    attributes = {name: translator.attval(node[name]) for name in ("kernel", "rival", "lesson")}
    mean = f"{node['mean']:.2f}"
    words = f"{node['verdict']}: {mean} × on average, {node['least']:.2f} to {node['largest']:.2f}"
    translator.body.append(
        f'<details class="chart-row {node["verdict"]}" data-verdict="{node["verdict"]}" '
        f'data-lesson="{attributes["lesson"]}" data-beside="{attributes["rival"]}"><summary>'
        f'<span class="chart-name">{text["kernel"]} <small>· {text["rival"]}</small></span>'
        f"{_bar(node, words)}<b>{mean}×</b></summary>\n"
    )


def _close_entry(translator: Any, node: ChartEntry) -> None:
    del node
    translator.body.append("</details>\n")


def _bar(node: ChartEntry, words: str) -> str:
    """A bar from the least to the largest, a dot at the mean, and the marks of the axis."""
    scale = node["scale"]
    marks = "".join(
        f'<path class="{"one" if mark == 1 else "mark"}" d="M{scale(mark):.1f} -14V36"/>'
        for mark in scale.marks
    )
    least, largest, mean = (scale(node[name]) for name in ("least", "largest", "mean"))
    return (
        f'<svg viewBox="0 0 {_WIDTH} 22" role="img" aria-label="{words}">{marks}'
        f'<path class="range" d="M{least:.1f} 11H{largest:.1f}"/>'
        f'<circle cx="{mean:.1f}" cy="11" r="5"/></svg>'
    )


def _software(benchmark: Benchmark) -> str:
    torch = benchmark.item.content.probe(SOFTWARE).get("torch", "")
    release = release_of(benchmark.item.content)
    return f"an {benchmark.item.device} with Triton {release} and PyTorch {torch}"
