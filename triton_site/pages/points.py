"""The value of each point of a plot, in the SVG: browsers show it where the mouse rests.

Only lines that are drawn with markers have points that a reader can aim at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape

#: Points of a line that have a value; more would enlarge the file.
MOST = 100
_POINT = re.compile(r"<use ([^>]*)/>")


def name_lines(figures: Iterable[Any]) -> None:
    """Give each line with markers in *figures* a name by which the SVG shows its group."""
    for figure in figures:
        for number, line in enumerate(_lines(figure)):
            line.set_gid(f"points-{number}")


def with_values(svg: str, figure: Any) -> str:
    """The *svg* of a *figure* with a ``<title>`` in each point of its named lines."""
    for line in _lines(figure):
        titles = list(_titles(line))
        start = svg.find(f'<g id="{line.get_gid()}">')
        # The group of the points is the last inside of the line's.
        end = svg.find("</g>\n   </g>", start)
        group = svg[start:end]
        if start >= 0 and end >= 0 and len(_POINT.findall(group)) == len(titles):
            told = iter(titles)
            group = _POINT.sub(lambda m: f"<use {m[1]}><title>{next(told)}</title></use>", group)  # noqa: B023
            svg = svg[:start] + group + svg[end:]
    return svg


def _lines(figure: Any) -> Iterator[Any]:
    for axes in figure.axes:
        for line in axes.lines:
            marked = line.get_marker() not in (None, "None", "none", " ", "")
            if marked and line.get_visible() and 0 < len(line.get_xdata()) <= MOST:
                yield line


def _titles(line: Any) -> Iterator[str]:
    """The line's label, the place on the x axis, and the value with its unit."""
    axes, label = line.axes, str(line.get_label())
    unit = axes.get_ylabel().partition(",")[0].strip()
    unit = f" {unit}" if 0 < len(unit) <= 8 else ""
    name = "" if label.startswith("_") else f"{label}, "
    for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
        yield escape(f"{name}{_number(x)}: {_number(y)}{unit}")


def _number(value: Any) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:.3g}"
