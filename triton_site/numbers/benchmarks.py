"""Benchmarks: CSV files with the speed of several providers at several sizes.

Columns of sizes come first; then ``provider, unit, median, p20, p80``. A size is a number, or a
word where the rows are functions or formats.
"""

import csv
import io
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gallery_recorder.api import ReadingError, RecorderError, reading

_COLUMNS = ["provider", "unit", "median", "p20", "p80"]
_RATES = ("GB/s", "TB/s", "GFLOPS", "TFLOPS", "TFLOP/s")
#: Larger sizes and counts are not exact as floating-point numbers.
MOST = 2**53
_Unit = Literal["GB/s", "TB/s", "GFLOPS", "TFLOPS", "TFLOP/s", "s", "ms", "us", "µs", "ns"]
# The ratio of two such numbers is finite.
_Number = Annotated[float, Meta(gt=1e-30, lt=1e30)]


class BenchmarkError(RecorderError):
    """A benchmark that cannot be read or compared."""


class Measurement(msgspec.Struct, frozen=True):
    """The speed of a provider at one size; *p20* and *p80* are the ends of its spread."""

    unit: _Unit
    median: _Number
    p20: _Number
    p80: _Number


class _Row(Measurement, frozen=True, kw_only=True):
    provider: Annotated[str, Meta(min_length=1)]
    sizes: Annotated[dict[str, str], Meta(min_length=1)]


def read(path: Path) -> dict[str, dict[str, Measurement]]:
    """The measurements in the file *path*, by provider and then by size (``M=4096, N=256``).

    The result is empty for a file without the columns of a benchmark. BenchmarkError if it has
    these columns, or all but one, and cannot be read.
    """
    try:
        return parse(reading.read_file(path, reading.MAX_JSON))
    except (ReadingError, BenchmarkError) as error:
        raise BenchmarkError(f"{path}: {error}") from error


def parse(content: bytes) -> dict[str, dict[str, Measurement]]:
    """The measurements in the *content* of a file, as :func:`read` returns them."""
    head = content.partition(b"\n")[0].decode("utf-8-sig", "replace")
    missing = set(_COLUMNS) - {name.strip('" ').lower() for name in head.strip().split(",")}
    if len(missing) > 1:
        return {}
    if missing:
        raise BenchmarkError(f"line 1 has all columns of a benchmark but {missing.pop()}")
    found: dict[str, dict[str, Measurement]] = {}
    units: dict[tuple[float | str, ...], str] = {}
    seen: set[tuple[float | str, ...]] = set()
    line = 1
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        for row in rows:
            line = rows.line_num
            sizes = {name: row.pop(name) for name in [*row] if name not in _COLUMNS}
            made = msgspec.convert(row | {"sizes": sizes}, _Row, strict=False)
            size = ", ".join(f"{name}={value}" for name, value in made.sizes.items())
            measurement = Measurement(made.unit, made.median, made.p20, made.p80)
            where = tuple(_size(name, value) for name, value in made.sizes.items())
            if units.setdefault(where, made.unit) != made.unit:
                raise ValueError(f"{size} has two units, {units[where]} and {made.unit}")
            if (made.provider, *where) in seen:
                raise ValueError(f"{made.provider} is measured twice at {size}")
            seen.add((made.provider, *where))
            found.setdefault(made.provider, {})[size] = measurement
    except (ValueError, csv.Error) as error:
        raise BenchmarkError(
            f"line {line} is not a measurement ({reading.line(error)}). A benchmark has sizes, and "
            "positive numbers of a known unit"
        ) from error
    return found


def _size(name: str, value: str) -> float | str:
    """What tells a size from another one: 1 and 1.0 are the same."""
    if not (name and value) or re.search("[,=]", name + value):
        raise ValueError(f"{name}={value} is no size: it lacks a part, or has a comma or =")
    try:
        number = float(value)
    except ValueError:
        return value
    if not abs(number) <= MOST:
        raise ValueError(f"{name}={value} is larger than 2⁵³")
    return number


def is_rate(unit: str) -> bool:
    """Whether more of *unit* is better."""
    return unit in _RATES
