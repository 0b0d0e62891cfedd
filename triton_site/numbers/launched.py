"""What a script says of a kernel is what the X-ray shows of it: ``make check`` compares.

A script writes ``registers KERNEL`` and ``spills KERNEL`` into ``PAGE-values.csv``. Other words,
such as the name of a step, are not compared. The X-ray shows the variant that
``# sphinx_gallery_xray`` chooses: see :mod:`triton_site.launches`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from gallery_recorder.api import ReadingError, reading
from triton_site.numbers.recorded import Recorded
from triton_site.xray_data import Facts, launches, names

_VALUE = re.compile(r"(registers|spills) (\w+)(?: (.+))?")
_MAX_FILE = 1_000_000


def of_launches(item: Recorded) -> list[str]:
    """What is wrong with the launches that a recording's cells name."""
    script, launched = item.script.name, launches(item.content.probes)
    found = [
        f"{script}: sphinx_gallery_xray names {name}, which its cell does not launch"
        for name, (_, facts) in launched.items()
        if facts is None
    ]
    kernels = names(item.content.probes)
    for what, kernel, shape, value in _stated(item):
        if kernel not in kernels:
            continue
        of, facts = launched.get(kernel, ("", None))
        if facts is None:
            found.append(f"{script}: no sphinx_gallery_xray names {kernel} of '{what} {kernel}'")
        elif _words(shape) in ([], _words(of)) and value != _count(facts, what):
            shown = _count(facts, what)
            found.append(f"{script}: {what} {kernel} is {value:g}, but the X-ray shows {shown}")
    return found


def _words(shape: str) -> list[str]:
    """The numbers and words of a shape, however it is written: 131,072 x 2 as 131 072 × 2."""
    return re.findall(r"\d+|[^\W\dx]+", re.sub(r"(?<=\d)[,\s](?=\d{3}(?!\d))", "", shape))


def _count(facts: Facts, what: str) -> int:
    return facts.registers if what == "registers" else facts.spills


def _stated(item: Recorded) -> Iterator[tuple[str, str, str, float]]:
    """Each count that the script has written: of what, the kernel, the shape, the value."""
    path = item.files.path(f"{item.content.name}-values.csv")
    if path is None:
        return
    try:
        text = reading.read_file(path, _MAX_FILE).decode("utf-8-sig")
    except (ReadingError, ValueError):
        return  # `make check` has said what is wrong
    for row in csv.DictReader(io.StringIO(text, newline="")):
        if match := _VALUE.fullmatch(row.get("name") or ""):
            yield match[1], match[2], match[3] or "", float(row.get("value") or "nan")
