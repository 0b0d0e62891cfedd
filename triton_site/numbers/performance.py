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
from triton_site.references import SOFTWARE

logger = logging.getLogger(__name__)

#: Providers that no kernel can beat: other work on the same bytes or operations.
CEILINGS = ("copy", "read", "amax", "bound", "dense")

#: How far a kernel may exceed such a limit, which was measured like everything else; where it
#: exceeds it by more, as data from a cache does, the other work is no limit.
ABOVE = 1.05

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
        """Whether the kernel is faster, slower, or even, as far as the table's digits show."""
        if f"{self.mean:.2f}" == "1.00":
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


class Ratio(nodes.Inline, nodes.Element):
    """A bar from 1 to ``mean`` with a whisker to ``least``; ``words`` say the same."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, the bar, and the files of the page."""
    app.add_directive("gallery-performance", PerformanceDirective)
    plain = (lambda translator, node: None,) * 2
    app.add_node(Ratio, html=(_draw, lambda *_: None), latex=plain, text=plain, man=plain)
    app.connect("html-page-context", _add_files)
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

_HEAD = ["Kernel", "Beside", "Slower ← 1 → faster", "Mean", "Least", "Largest"]
_WIDTHS = (22, 17, 22, 8, 16, 15)
_LIMITS = ["Kernel", "Limit", "Share, mean", "Least", "Largest"]


class PerformanceDirective(SphinxDirective):
    """``.. gallery-performance::``: the table of libraries, then that of limits."""

    def run(self) -> list[nodes.Node]:
        """Make the tables."""
        domain_of(self.env).depends("recordings")
        domain_of(self.env).depends("introductions")
        self.env.metadata[self.env.docname]["gallery-performance"] = "yes"
        found = shown_benchmarks(self.env)
        if not found:
            return [nodes.paragraph("", "No benchmark has been recorded on a GPU yet.")]
        usual = statistics.mode(benchmark.item.device for benchmark in found)
        rows, limits, words = [], [], []
        for benchmark in found:
            for c in benchmark.comparisons:
                kernel = self._kernel(benchmark, c, usual)
                if c.with_ceiling and c.largest[0] > ABOVE:
                    continue
                if c.with_ceiling:
                    limits.append([kernel, c.rival, *_shares(c)])
                else:
                    words.append(c.verdict)
                    rows.append([kernel, c.rival, *_numbers(c)])
        recorded = dict.fromkeys(map(_software, found))
        sums = [f"{words.count(word)} {word}" for word in ("faster", "even", "slower")]
        text = f"Of {len(rows)} comparisons: {', '.join(sums)}. "
        where = nodes.Text(f"Recorded on {'; '.join(recorded)}.")
        made: list[nodes.Node] = [nodes.paragraph("", "", nodes.strong("", text), where)]
        made.append(table(_HEAD, rows, widths=_WIDTHS, classes=["gallery-performance", "sortable"]))
        if limits:
            section = nodes.section("", nodes.title("", "Beside the hardware's limit"))
            section["ids"] = ["limits"]
            section["names"] = ["limits"]
            section += nodes.paragraph(
                "",
                "A limit moves the same bytes, or does the same operations, and nothing else. "
                "A share of 100 % leaves nothing to gain.",
            )
            classes = ["gallery-performance", "gallery-limits", "sortable"]
            section += table(_LIMITS, limits, classes=classes)
            made.append(section)
        return made

    def _kernel(self, benchmark: Benchmark, c: Comparison, usual: str) -> nodes.Element:
        item = benchmark.item
        words = (benchmark_title(benchmark.name) + c.variant).replace("_", " ")
        cell = nodes.paragraph("", "", link("doc", item.page, words, self.env.docname))
        where = f" · {item.device}" if item.device != usual else ""
        cell += nodes.inline("", f"{item.content.title}{where}", classes=["gallery-lesson"])
        return cell


def _numbers(c: Comparison) -> list[str | nodes.Element]:
    bar = Ratio("", mean=c.mean, least=c.least[0], words=c.verdict)
    return [
        nodes.paragraph("", "", bar),
        nodes.paragraph("", "", nodes.strong("", f"{c.mean:.2f}")),
        *(at_size(f"{ratio:.2f}", size) for ratio, size in (c.least, c.largest)),
    ]


def _shares(c: Comparison) -> list[str | nodes.Element]:
    shares = (at_size(f"{100 * ratio:.0f} %", size) for ratio, size in (c.least, c.largest))
    return [f"{100 * c.mean:.0f} %", *shares]


def _at(ratio: float) -> float:
    """The place of a ratio in a bar of 180 pixels, from 0.35 to 8 on a logarithmic scale."""
    return 180 * (min(max(math.log2(ratio), -1.5), 3.0) + 1.5) / 4.5


def _draw(translator: Any, node: Ratio) -> None:
    one, mean, least = _at(1.0), _at(node["mean"]), _at(node["least"])
    left, width = min(one, mean), max(abs(mean - one), 1.5)
    translator.body.append(
        f'<svg class="gallery-ratio {node["words"]}" viewBox="0 0 180 18" width="180" height="18" '
        f'preserveAspectRatio="none" role="img" aria-label="{node["words"]}: {node["mean"]:.2f}">'
        f'<rect x="{left:.1f}" y="4" width="{width:.1f}" height="10"/>'
        f'<path d="M{one:.1f} 0V18M{least:.1f} 9H{mean:.1f}M{least:.1f} 5V13"/></svg>'
    )
    raise nodes.SkipNode


def _add_files(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Load the script and the style of the tables on their page only."""
    del template, context, doctree
    if "gallery-performance" in app.env.metadata.get(pagename, {}):
        app.add_css_file("performance.css")
        app.add_js_file("performance.js", loading_method="defer")


def _software(benchmark: Benchmark) -> str:
    torch = benchmark.item.content.probe(SOFTWARE).get("torch", "")
    release = release_of(benchmark.item.content)
    return f"an {benchmark.item.device} with Triton {release} and PyTorch {torch}"
