"""The benchmarks of two recordings, side by side, and whether one lost speed.

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

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path

from gallery_recorder.store import reading, recording
from gallery_recorder.store.reading import ReadingError
from gallery_recorder.store.recording import Recording

#: A provider lost when its ratio within the spread is below this.
TOLERATED = 0.95

_COLUMNS = ["provider", "unit", "median", "p20", "p80"]
_MAX_BYTES = 64_000_000
_LARGEST = 1e30  # of a measurement: ratios of such numbers are still numbers
_RATES = {"GB/s", "TB/s", "GFLOPS", "TFLOPS", "TFLOP/s"}
_TIMES = {"s", "ms", "us", "µs", "ns"}


class CompareError(Exception):
    """Two recordings that cannot be compared, or a benchmark that cannot be read."""


@dataclass(frozen=True)
class Measurement:
    """What a provider reached at one size: *p20* and *p80* are the ends of its spread."""

    unit: str
    median: float
    p20: float
    p80: float


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


def compare(old: Path, new: Path) -> tuple[str, bool]:
    """A table of how *new* compares with *old*, and whether something lost on the same GPU.

    Both are recordings, or folders with recordings anywhere below.

    Raises:
        RecordingError: a recording is damaged.
        CompareError: there is nothing to compare, or a benchmark cannot be read.
    """
    parts = ["Ratios say how many times as fast the new recording is; above 1 is better."]
    lost, without = False, []
    for tutorial, before, after in _pairs(old, new):
        made_before, made_after = recording.load(before), recording.load(after)
        lines = [
            line
            for name in _benchmarks_of(made_after)
            if name in _benchmarks_of(made_before)
            for line in compare_benchmark(name, read(before / name), read(after / name))
        ]
        if not lines:
            without.append(tutorial)
            continue
        same = made_before.provenance.device == made_after.provenance.device
        lost = lost or (same and any(line.lost for line in lines))
        parts.append(_show(tutorial, made_before, made_after, lines, same))
    if without:
        parts.append(f"Without a benchmark in common: {', '.join(without)}.")
    return "\n\n".join(parts), lost


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


def read(path: Path) -> dict[str, dict[str, Measurement]]:
    """The measurements in a benchmark file, by provider and then by size (``M=4096, N=256``).

    A file without the columns of a benchmark holds none.

    Raises:
        CompareError: it cannot be read as a benchmark.
    """
    try:
        content = reading.read_file(path, _MAX_BYTES)
    except ReadingError as error:
        raise CompareError(f"{path}: {error}.") from error
    head, _, _ = content.decode("utf-8-sig", "replace").partition("\n")
    columns = head.strip().split(",")
    if not set(_COLUMNS) <= {name.strip('"') for name in columns}:
        return {}
    found: dict[str, dict[str, Measurement]] = {}
    line = 1
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        for row in rows:
            line = rows.line_num
            provider, size, measurement = _measurement(row)
            found.setdefault(provider, {})[size] = measurement
    except (ValueError, csv.Error, CompareError) as error:
        raise CompareError(
            f"{path}:{line}: cannot be read as a measurement ({error}). A file with the columns of "
            "a benchmark has whole numbers in its columns of sizes, and numbers of a known unit. "
            "Record it again, or correct the benchmark that wrote it."
        ) from error
    return found


def _measurement(row: dict[str, str]) -> tuple[str, str, Measurement]:
    """The provider, the size and what was measured in one *row* of a benchmark."""
    if None in row or None in row.values():
        raise ValueError("it has more or fewer values than columns")
    sizes = {name: int(value) for name, value in row.items() if name not in _COLUMNS}
    if not sizes or not all(re.fullmatch(r"[^=,\s][^=,]*", n) and n.isprintable() for n in sizes):
        raise ValueError("there is no column of a size, or its name is odd")
    if any(abs(value) >= 1 << 63 for value in sizes.values()):
        raise ValueError("a size is too large")
    values = [float(row[name]) for name in ("median", "p20", "p80")]
    if not all(0 < value < _LARGEST for value in values):
        raise ValueError("a measurement must be a number that is more than 0")
    if min(values) < 1 / _LARGEST:
        raise ValueError("a measurement is as good as 0")
    if not row["provider"].strip() or not row["provider"].isprintable():
        raise ValueError("it names no provider")
    is_rate(row["unit"])
    size = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return row["provider"], size, Measurement(row["unit"], *values)


def is_rate(unit: str) -> bool:
    """Whether more of *unit* is better; less is better of a time.

    Raises:
        CompareError: the unit is not known.
    """
    if unit not in _RATES | _TIMES:
        raise CompareError(
            f"the unit {unit!r} is not known, so neither is which way is better. Known are "
            f"{', '.join(sorted(_RATES | _TIMES))}."
        )
    return unit in _RATES


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


def _pairs(old: Path, new: Path) -> list[tuple[str, Path, Path]]:
    """The recordings to compare: of one tutorial on one device, or else of one tutorial."""
    before, after = _recordings(old), _recordings(new)
    common = [key for key in after if key in before]
    if not common:  # two devices: then by tutorial alone, where that is unambiguous
        before = {("", tutorial): path for (_, tutorial), path in before.items()}
        after = {("", tutorial): path for (_, tutorial), path in after.items()}
        common = [key for key in after if key in before]
    if not common:
        raise CompareError(f"{old} and {new} hold no recording of the same tutorial.")
    return [(key[1], before[key], after[key]) for key in common]


def _recordings(root: Path) -> dict[tuple[str, str], Path]:
    """The folders with a recording at or below *root*, by device and tutorial."""
    if not root.exists():
        raise CompareError(f"{root}: there is no such recording or folder.")
    found = {}
    for path in sorted(root.glob(f"**/{recording.FILE_NAME}")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            made = recording.load(path.parent)
            found[recording.slug(made.provenance.device), made.name] = path.parent
    return found


def _show(tutorial: str, old: Recording, new: Recording, lines: list[Line], same: bool) -> str:
    head = [f"{tutorial}: {_where(old)} → {_where(new)}"]
    if not same:
        head.append("  The GPUs differ: this compares them, and nothing counts as lost.")
    width = max(len(f"{line.benchmark}  {line.provider}") for line in lines)
    table = [
        f"  {f'{line.benchmark}  {line.provider}':<{width}}  {line.ratio:6.3f} over "
        f"{line.sizes} sizes, worst {line.worst:.3f} ({line.worst_size})"
        + (f"  LOST: {line.generous:.3f} within the spread" if same and line.lost else "")
        for line in lines
    ]
    return "\n".join([*head, *table])


def _where(made: Recording) -> str:
    at = made.provenance
    return ", ".join(filter(None, (at.device, made.variant, made.run.recorded[:10])))
