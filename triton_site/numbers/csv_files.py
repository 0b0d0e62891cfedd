"""Whether the CSV files of a recording are tables that pages can be made of.

A recording is data from a pull request: what is wrong with a file is one line, when the recording
is read, and no exception of whatever uses the file later.
"""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

from gallery_recorder.api import ReadingError, reading
from triton_site.numbers import benchmarks

#: Text in a cell: providers, units, names. No markup, and no more than fits into a table.
_TEXT = re.compile(r"[^<>`|\\\x00-\x1f\x7f]{0,80}")

#: The head of a file of values that a script states.
_VALUES = ["name", "unit", "value"]

#: Sizes and counts are exact as floating-point numbers.
_MOST = 2**53


def check(path: Path) -> None:
    """Raise ReadingError, naming the file and the line, if *path* is no such table."""
    line = 1
    try:
        text = reading.read_file(path, reading.MAX_JSON).decode("utf-8-sig")
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        head = next(rows, [])
        if not any(head):
            raise ValueError("it is empty")
        count = 0
        for row in rows:
            line, count = rows.line_num, count + 1
            if len(row) != len(head):
                raise ValueError(f"it has {len(row)} cells, the head {len(head)}")
            for cell in row:
                _check_cell(cell)
            if head == _VALUES and not _is_number(row[-1]):
                raise ValueError(f"{row[-1][:80]!r} is no number")
        if not count:
            raise ValueError("it has no rows")
        benchmarks.read(path)
    except (ValueError, csv.Error) as error:
        raise ReadingError(f"{path}: line {line}: {reading.line(error)}") from error
    except benchmarks.BenchmarkError as error:
        raise ReadingError(reading.line(error)) from error


def _check_cell(cell: str) -> None:
    if not _TEXT.fullmatch(cell):
        raise ValueError(f"{cell[:80]!r} has markup or more than 80 characters")
    if re.fullmatch(r"[+-]?\d+", cell) and abs(int(cell)) > _MOST:
        raise ValueError(f"{cell} is larger than 2⁵³")


def _is_number(cell: str) -> bool:
    """Whether *cell* is a number; a relative error may be infinite."""
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False
