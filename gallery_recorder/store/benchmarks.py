"""Benchmarks: what a CSV file says of the speed of several providers at several sizes.

Size columns hold whole numbers; then come ``provider, unit, median, p20, p80``, of which the last
two are the ends of the spread.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from gallery_recorder.errors import RecorderError
from gallery_recorder.store import reading
from gallery_recorder.store.reading import ReadingError

_COLUMNS = ["provider", "unit", "median", "p20", "p80"]
_MAX_BYTES = 64_000_000
_LARGEST = 1e30  # of a measurement: ratios of such numbers are still numbers
_RATES = {"GB/s", "TB/s", "GFLOPS", "TFLOPS", "TFLOP/s"}
_TIMES = {"s", "ms", "us", "µs", "ns"}


class BenchmarkError(RecorderError):
    """A benchmark that cannot be read or compared."""


@dataclass(frozen=True)
class Measurement:
    """What a provider reached at one size: *p20* and *p80* are the ends of its spread."""

    unit: str
    median: float
    p20: float
    p80: float


def read(path: Path) -> dict[str, dict[str, Measurement]]:
    """The measurements in a benchmark file, by provider and then by size (``M=4096, N=256``).

    A file without the columns of a benchmark holds none.

    Raises:
        BenchmarkError: it cannot be read as a benchmark.
    """
    try:
        content = reading.read_file(path, _MAX_BYTES)
    except ReadingError as error:
        raise BenchmarkError(f"{path}: {error}.") from error
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
            if found.setdefault(provider, {}).setdefault(size, measurement) is not measurement:
                raise ValueError(f"{provider} is measured twice at {size}")
    except (ValueError, csv.Error, BenchmarkError) as error:
        raise BenchmarkError(
            f"{path}:{line}: cannot be read as a measurement ({error}). A file with the columns of "
            "a benchmark has whole numbers in its columns of sizes, and numbers of a known unit. "
            "Record it again, or correct the benchmark that wrote it."
        ) from error
    return found


def _measurement(row: dict[str, str]) -> tuple[str, str, Measurement]:
    """The provider, the size and what was measured in one *row* of a benchmark."""
    if None in row or None in row.values():
        raise ValueError("it has more or fewer values than columns")
    if not "".join(row[name] for name in row if name not in ("provider", "unit")).isascii():
        raise ValueError("a number has other digits than 0 to 9")
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
        BenchmarkError: the unit is not known.
    """
    if unit not in _RATES | _TIMES:
        raise BenchmarkError(
            f"the unit {unit!r} is not known, so neither is which way is better. Known are "
            f"{', '.join(sorted(_RATES | _TIMES))}."
        )
    return unit in _RATES
