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
_TEXT = re.compile(
    r"[^<>`|\\\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{0,80}"
)

#: In the head of a file of values that a script states.
_VALUES = {"name", "value"}


def check(path: Path) -> None:
    """Raise ReadingError, naming the file and the line, if *path* is no such table."""
    line = 1
    try:
        text = reading.read_file(path, reading.MAX_JSON).decode("utf-8-sig")
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        head = next(rows, [])
        if not any(head):
            raise ValueError("it is empty")
        if not all(map(str.strip, head)) or len({*head}) < len(head):
            raise ValueError("a column has no name, or two have the same")
        for cell in head:
            _check_cell(cell)
        known: set[str] = set()
        count = 0
        for row in rows:
            line, count = rows.line_num, count + 1
            if len(row) != len(head):
                raise ValueError(f"it has {len(row)} cells, the head {len(head)}")
            for cell in row:
                _check_cell(cell)
            if {*head} >= _VALUES:
                name, value = row[head.index("name")], row[head.index("value")]
                if not _is_number(value):
                    raise ValueError(f"{value[:80]!r} is no number")
                if name in known:
                    raise ValueError(f"{name!r} has two values")
                known.add(name)
        if not count:
            raise ValueError("it has no rows")
        for provider, measured in benchmarks.read(path).items():
            for size, made in measured.items():
                if not min(made.p20, made.p80) <= made.median <= max(made.p20, made.p80):
                    raise ReadingError(
                        f"{path}: {provider} at {size}: median outside of p20 to p80"
                    )
    except (ValueError, csv.Error) as error:
        raise ReadingError(f"{path}: line {line}: {reading.line(error)}") from error
    except benchmarks.BenchmarkError as error:
        raise ReadingError(reading.line(error)) from error


def _check_cell(cell: str) -> None:
    if not _TEXT.fullmatch(cell):
        raise ValueError(f"{cell[:80]!r} has markup or more than 80 characters")
    if re.fullmatch(r"[+-]?\d+", cell) and abs(int(cell)) > benchmarks.MOST:
        raise ValueError(f"{cell} is larger than 2⁵³")


def _is_number(cell: str) -> bool:
    """Whether *cell* is a number; a relative error may be infinite."""
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False
