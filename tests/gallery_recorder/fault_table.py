"""The table of faults in the contributing pages: what tests saw, compared with what is written."""

from __future__ import annotations

import csv
import io
import os
import re
from textwrap import dedent, indent

from room import PROJECT, SECOND

#: Set it to have the table written instead of compared.
WRITE = "GALLERY_WRITE_FAULTS"

HEAD = ("Fault", "What is reported", "What the tutorial's second block does")


def row(name: str, code: str, outcome: object, tell_line: bool = True) -> tuple[str, str, str]:
    """A fault as the table shows it; without its line where that may be one or another."""
    where, cause = re.match(r"[^:]*?(:\d+)?(?:, block 2 of 2)?: (.*)", outcome.text).groups()
    # A figure's size differs with the version of Matplotlib.
    cause = re.sub(r"of [\d,]+ bytes; the limit", "of … bytes; the limit", cause)
    cause = re.sub(r"([\\`*_|])", r"\\\1", cause)
    line = f"Line {int(where[1:]) - SECOND + 1}: " if where and tell_line else ""
    shown = ".. code-block:: python\n\n" + indent(dedent(code).strip("\n"), "   ")
    return name.replace("-", " "), f"{line}{cause}", shown


def check(name: str, rows: list[tuple[str, str, str]], test: str) -> None:
    """Compare the table ``docs/<name>`` with *rows*, which *test* saw."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEAD, *rows])
    check_text(name, out.getvalue(), test)


def check_text(name: str, text: str, test: str) -> None:
    """Compare the table ``docs/<name>`` with *text*, or write it."""
    path = PROJECT / "docs" / name
    if os.environ.get(WRITE):
        path.write_text(text, encoding="utf-8")
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text == written, (
        f"docs/{name} does not say what this test saw; write it again, and look at what changed:\n"
        f"  {WRITE}=1 python -m pytest {test}"
    )
