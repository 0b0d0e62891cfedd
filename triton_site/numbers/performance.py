"""``.. gallery-performance::``: each recorded kernel against its alternatives and ceilings.

There is a table for each device, from the newest recording of each benchmark. The providers
``triton`` and ``triton + …`` are the kernels of the pages. A kernel is compared with the other
providers of the same suffix and the same way of timing: ``triton + relu`` with ``cublas + relu``,
``triton, as called`` with ``torch, as called``. A provider that lacks a size is a step towards the
kernel and is left to its page.
"""

from __future__ import annotations

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

from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import ListedRecording
from gallery_recorder.store import benchmarks
from gallery_recorder.store.format import slug
from triton_site.numbers.recorded import CALLS, current, release_of, version_key
from triton_site.numbers.tables import link, table
from triton_site.probes import REFERENCE_DEVICE, SOFTWARE

logger = logging.getLogger(__name__)

#: Providers that nothing is expected to beat: a copy of the same bytes, the vendor's library.
CEILINGS = ("copy", "read", "bound", "cublas", "rocblas", "dense")

#: The end of a provider's name whose times include what Python does around the kernel.
AS_CALLED = ", as called"

_HEAD = ["Kernel", "Against", "Timed", "Geometric mean", "Least", "Largest"]

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


class Benchmark(NamedTuple):
    """A benchmark of a recording."""

    item: ListedRecording
    name: str
    comparisons: list[Comparison]

    @property
    def release(self) -> str:
        """The release of Triton."""
        return release_of(self.item.content)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("gallery-performance", PerformanceDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# --- the numbers ---------------------------------------------------------------------------------


def newest_benchmarks(env: BuildEnvironment) -> list[Benchmark]:
    """Of each benchmark on each device the current recording with the newest release of Triton.

    They are in the order of pages and names, with the reference device first.
    """
    found: dict[tuple[str, str, str], Benchmark] = {}
    items = sorted(current(env), key=lambda item: version_key(release_of(item.content)))
    for item in items:
        for name in item.content.data:
            if not name.endswith(".csv") or name == CALLS:
                continue
            try:
                comparisons = compare_providers(item.folder / name)
            except benchmarks.BenchmarkError as error:  # the other recordings are whole
                logger.warning("%s", error, type="gallery", subtype="benchmark")
                continue
            if comparisons:
                key = item.page, name, item.device
                found[key] = Benchmark(item, Path(name).stem, comparisons)
    order = sorted(found, key=lambda key: (key[:2], slug(key[2]) != REFERENCE_DEVICE, key[2]))
    return [found[key] for key in order]


def compare_providers(path: Path) -> list[Comparison]:
    """Each kernel in a benchmark file against each other provider.

    Raises:
        BenchmarkError: the file cannot be read as a benchmark.
    """
    measured = benchmarks.read(path)
    found = []
    for ours, other in product(measured, measured):
        kernel, *way = _parts(ours)
        name, *its_way = _parts(other)
        at_every_size = measured[ours].keys() <= measured[other].keys()
        alike = kernel == "triton" and way == its_way and not name.startswith("triton")
        if alike and at_every_size:
            found.append(Comparison(ours, other, ratios(measured[ours], measured[other])))
    return found


def _parts(provider: str) -> tuple[str, str, bool]:
    """The name in front of a ``+``, what follows it, and whether it was timed as called."""
    plain = provider.removesuffix(AS_CALLED)
    name, _, suffix = plain.partition(" + ")
    return name, suffix, plain != provider


def kernel_of(provider: str) -> str:
    """``triton`` for ``triton + relu, as called``."""
    return _parts(provider)[0]


def benchmark_title(name: str) -> str:
    """``layer norm backward`` for ``layer-norm-backward``."""
    return name.replace("-performance", "").replace("-", " ")


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
    if value.isdigit() and int(value) >= 1 << 16 and int(value).bit_count() == 1:
        value = f"2{str(int(value).bit_length() - 1).translate(_SUPERSCRIPTS)}"
    text = f"{value} elements" if label == "size" else f"{label} = {value}"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


# --- on the page ---------------------------------------------------------------------------------


class PerformanceDirective(SphinxDirective):
    """``.. gallery-performance::``: a section with a table for each device."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        domain_of(self.env).depends("recordings")
        found = newest_benchmarks(self.env)
        made: list[nodes.Node] = []
        for device in dict.fromkeys(benchmark.item.device for benchmark in found):
            of_device = [benchmark for benchmark in found if benchmark.item.device == device]
            section = nodes.section("", nodes.title("", device))
            section["names"] = [nodes.fully_normalize_name(device)]
            self.state.document.note_implicit_target(section, section)
            software = dict.fromkeys(map(_software, of_device))
            section += nodes.paragraph("", f"Recorded with {'; '.join(software)}.")
            rows = [row for benchmark in of_device for row in self._rows(benchmark)]
            section += table(_HEAD, rows, classes=["gallery-performance"])
            made.append(section)
        return made or [nodes.paragraph("", "No benchmark has been recorded on a GPU yet.")]

    def _rows(self, benchmark: Benchmark) -> Iterator[list[str | nodes.Element]]:
        title = benchmark_title(benchmark.name)
        page = link("doc", benchmark.item.page, title, self.env.docname)
        for c in benchmark.comparisons:
            _, suffix, called = _parts(c.provider)
            kernel = nodes.paragraph("", "", page.deepcopy())
            kernel += nodes.Text(f" + {suffix}" if suffix else "")
            against = c.against.removesuffix(AS_CALLED)
            yield [
                kernel,
                f"{against} (ceiling)" if kernel_of(against) in CEILINGS else against,
                "as called" if called else "on the GPU",
                nodes.paragraph("", "", nodes.strong("", f"{c.mean:.2f}")),
                "{:.2f} ({})".format(*c.least),
                "{:.2f} ({})".format(*c.largest),
            ]


def _software(benchmark: Benchmark) -> str:
    torch = benchmark.item.content.probe(SOFTWARE).get("torch", "")
    return f"Triton {benchmark.release} and PyTorch {torch}"
