"""Two recordings side by side: their benchmarks, whether one lost speed, and what else differs.

A benchmark is a CSV file with the columns ``provider, unit, median, p20, p80`` after its size
columns. For each size, the *ratio* is how many times as fast the new recording is: new / old for
rates (GB/s, TFLOPS), old / new for times (ms, us). A provider's ratio is the geometric mean over
the sizes that both recordings have.

A ratio below 1 may be noise. So each size that got slower is also rated *within the spread*: with
the better end of the new spread against the worse end of the old one, as 1 where they overlap. A
provider **lost** when the geometric mean of these generous ratios is below 0.95, that is, when it
is more than 5 % slower even so. Between two GPU models nothing is lost; they are only compared.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gallery_recorder.console import visible
from gallery_recorder.store import names, recording
from gallery_recorder.store.benchmarks import BenchmarkError, Measurement, is_rate, read
from gallery_recorder.store.differences import Difference, differences
from gallery_recorder.store.format import FILE_NAME, Recording, slug

#: A provider lost when its ratio within the spread is below this.
TOLERATED = 0.95

_MOST_ON_A_TERMINAL, _MOST_ON_A_PAGE, _WIDEST = 20, 1_000, 240


@dataclass(frozen=True)
class Line:
    """One provider of one benchmark in both recordings."""

    benchmark: str
    provider: str
    ratio: float
    generous: float
    worst: float
    worst_size: str
    sizes: int

    @property
    def lost(self) -> bool:
        """Whether it is slower than noise explains."""
        return self.generous < TOLERATED


@dataclass(frozen=True)
class Pair:
    """Two recordings of one script: their benchmarks, and what else is not the same."""

    script: str
    old: Recording
    new: Recording
    lines: list[Line]
    differences: list[Difference]

    @property
    def same_gpu(self) -> bool:
        """Whether slower means lost."""
        return self.old.provenance.device == self.new.provenance.device

    @property
    def unchanged(self) -> bool:
        """Whether nothing is worth telling: they are one recording, or say the same."""
        return not self.differences and (self.old == self.new or not self.lines)

    @property
    def where(self) -> str:
        """Which two they are."""
        return f"{_where(self.old)} → {_where(self.new)}"


@dataclass(frozen=True)
class Comparison:
    """All pairs of recordings; of ``unpaired`` scripts only one side has a recording."""

    pairs: list[Pair]
    unpaired: list[str]

    @property
    def lost(self) -> bool:
        """Whether something lost speed on the same GPU."""
        return any(pair.same_gpu and any(line.lost for line in pair.lines) for pair in self.pairs)

    def text(self) -> str:
        """For a terminal: the benchmarks, then what differs, each shortened."""
        parts = ["Ratios say how many times as fast the new recording is; above 1 is better."]
        parts += [_show(pair) for pair in self.pairs if not pair.unchanged]
        for words, scripts in (
            ("In one of the two only", self.unpaired),
            ("Without a benchmark in common", [p.script for p in self.pairs if not p.lines]),
            ("Unchanged", [pair.script for pair in self.pairs if pair.unchanged]),
        ):
            if scripts:
                parts.append(f"{words}: {', '.join(dict.fromkeys(scripts))}.")
        return visible("\n\n".join(parts))

    def html(self) -> str:
        """A page by itself: nothing is fetched, nothing in it runs, all of it is escaped."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(
            loader=PackageLoader("gallery_recorder.store", "."),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        environment.filters["image"] = _as_address
        return environment.get_template("report.html").render(found=self, most=_MOST_ON_A_PAGE)


def compare(old: Path, new: Path) -> Comparison:
    """How *new* compares with *old*; both are a recording, or a folder with some anywhere below.

    Raises:
        RecordingError: a recording is damaged.
        BenchmarkError: there is nothing to compare, or a benchmark cannot be read.
    """
    before, after = _recordings(old), _recordings(new)
    pairs = []
    for (script, *place), (path, now) in after.items():
        others = [key for key in before if key[0] == script]
        if others:
            # Of the same device and variant if there is one, then of the device, then the newest.
            near = max(others, key=lambda key: _nearness(key, place))
            source, was = before[near]
            pairs.append(_pair(script, source, was, path, now))
    if not pairs:
        raise BenchmarkError(f"{old} and {new} hold no recording of the same script.")
    scripts = [{key[0] for key in found} for found in (before, after)]
    return Comparison(pairs, sorted(scripts[0] ^ scripts[1]))


def _pair(script: str, source: Path, was: Recording, path: Path, now: Recording) -> Pair:
    lines = [
        line
        for name in _benchmarks_of(now)
        if name in _benchmarks_of(was)
        for line in compare_benchmark(name, read(source / name), read(path / name))
    ]
    found = [difference for difference in differences(source, was, path, now) if difference]
    return Pair(script, was, now, lines, found)


def compare_benchmark(
    name: str,
    old: dict[str, dict[str, Measurement]],
    new: dict[str, dict[str, Measurement]],
) -> list[Line]:
    """A line for each provider that both have; the arguments are what :func:`read` returns."""
    lines = []
    for provider, sizes in new.items():
        ratios = {}
        for size, after in sizes.items():
            before = old.get(provider, {}).get(size)
            if before is not None and before.unit == after.unit:
                ratios[size] = _ratios(before, after)
        if ratios:
            worst = min(ratios, key=lambda size: ratios[size][0])
            lines.append(
                Line(
                    benchmark=name.removesuffix(".csv"),
                    provider=provider,
                    ratio=_geometric_mean([plain for plain, _ in ratios.values()]),
                    generous=_geometric_mean([generous for _, generous in ratios.values()]),
                    worst=ratios[worst][0],
                    worst_size=worst,
                    sizes=len(ratios),
                )
            )
    return lines


def _ratios(old: Measurement, new: Measurement) -> tuple[float, float]:
    """How many times as fast: by the medians, and within the spread."""
    if is_rate(old.unit):
        plain, generous = new.median / old.median, new.p80 / old.p20
    else:
        plain, generous = old.median / new.median, old.p80 / new.p20
    return plain, plain if plain >= 1 else min(1.0, generous)


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _benchmarks_of(made: Recording) -> list[str]:
    """The names of the CSV files among a recording's data files."""
    return [name for block in made.blocks for name in block.data if name.endswith(".csv")]


_Key = tuple[str, str, str]  # script, device, variant


def _nearness(key: _Key, place: Sequence[str]) -> tuple[Any, ...]:
    device, variant = place
    return key[1] == device, key[2] == variant, names.order_of(key[2]), key


def _recordings(root: Path) -> dict[_Key, tuple[Path, Recording]]:
    """The recordings at or below *root*, with their folders."""
    if not root.exists():
        raise BenchmarkError(f"{root}: there is no such recording or folder.")
    found: dict[_Key, tuple[Path, Recording]] = {}
    itself = (root / FILE_NAME).exists()
    for folder in [root] if itself else recording.all_recordings(root):
        made = recording.load(folder)
        device = slug(made.provenance.device)
        found[f"{made.gallery}/{made.name}", device, made.variant or ""] = folder, made
    return found


def _show(pair: Pair) -> str:
    parts = [f"{pair.script}: {pair.where}"]
    if not pair.same_gpu:
        parts.append("  The GPUs differ: this compares them, and nothing counts as lost.")
    width = max((len(f"{line.benchmark}  {line.provider}") for line in pair.lines), default=0)
    parts += [
        f"  {f'{line.benchmark}  {line.provider}':<{width}}  {line.ratio:6.3f} over "
        f"{line.sizes} sizes, worst {line.worst:.3f} ({line.worst_size})"
        + (f"  LOST: {line.generous:.3f} within the spread" if pair.same_gpu and line.lost else "")
        for line in pair.lines
    ]
    for difference in pair.differences:
        parts.append(f"  {difference.what}")
        parts += [f"    {line[:_WIDEST]}" for line in difference.lines[:_MOST_ON_A_TERMINAL]]
        if more := len(difference.lines) - _MOST_ON_A_TERMINAL:
            parts += [f"    … {more} more"] * (more > 0)
    return "\n".join(parts)


def _as_address(figure: tuple[str, bytes]) -> str:
    """A figure as an address that holds it; a browser runs nothing in an image."""
    name, content = figure
    kind = {"svg": "svg+xml", "jpg": "jpeg"}.get(suffix := Path(name).suffix[1:].lower(), suffix)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _where(made: Recording) -> str:
    at = made.provenance
    return ", ".join(filter(None, (at.device, made.variant, made.run.recorded[:10])))
