"""A figure of a benchmark as SVG: axes, one line a provider with its name at its end.

A figure is drawn twice, for a wide and for a narrow column, because letters that shrink with the
picture cannot be read on a phone. Colors are classes, so the figure follows the page's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

#: Pixels between two names at the ends of lines, and of a letter's width on average.
_LINE_HEIGHT, _LETTER = 16, 7.1
#: From this ratio of the largest to the smallest on, an axis is logarithmic.
_WIDE_RANGE_X, _WIDE_RANGE_Y = 20, 40


@dataclass(frozen=True)
class Point:
    """A speed or time at one size, with the ends of its spread."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """A provider: its name, its kind, which is the class of its color, and its points."""

    name: str
    kind: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Axes:
    """Words at the two axes, and whether less is better, so that zero may be far away."""

    x: str
    y: str
    lower_is_better: bool = False


@dataclass(frozen=True)
class Scale:
    """Places in pixels of the values from *first* to *last*, between *start* and *end*."""

    first: float
    last: float
    start: float
    end: float
    logarithmic: bool

    def __call__(self, value: float) -> float:
        """The place of *value*."""
        first, last = self.first, self.last
        if self.logarithmic:
            first, last, value = math.log(first), math.log(last), math.log(value)
        share = (value - first) / (last - first) if last > first else 0.5
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True)
class Drawing:
    """A figure as SVG, and the places of its sizes along the axis, in pixels of its view box."""

    svg: str
    width: int
    places: list[float]


def draw(lines: Sequence[Line], axes: Axes, title: str, width: int, height: int) -> Drawing:
    """Draw *lines* in a picture of *width* × *height* pixels; *title* is read out for it."""
    narrow = width < 500
    longest = max(len(line.name) for line in lines)
    right = 10 if narrow else min(24 + longest * _LETTER, 0.34 * width)
    left, top, bottom = 46, 12, 40
    xs = sorted({point.x for line in lines for point in line.points})
    across = Scale(xs[0], xs[-1], left, width - right, xs[-1] > _WIDE_RANGE_X * xs[0] > 0)
    up = _vertical(lines, height - bottom, top)
    ends = [(line, up(line.points[-1].y)) for line in lines]
    parts = [
        f'<svg class="{"narrow" if narrow else "wide"}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}">',
        *_y_axis(up, left, width - right),
        *_x_axis(across, xs, axes.x, height - bottom, 4 if narrow else 7),
        f'<line class="cross" y1="{top}" y2="{height - bottom}" x1="0" x2="0"/>',
    ]
    # Ours is drawn last, over the others.
    for line in sorted(lines, key=lambda line: line.kind == "ours"):
        parts += _line(line, across, up)
        if not narrow:
            parts.append(_name(line, ends, across, width - right))
        parts.append("</g>")
    return Drawing("".join([*parts, "</svg>"]), width, [round(across(x), 1) for x in xs])


def _vertical(lines: Sequence[Line], start: float, end: float) -> Scale:
    largest = max(point.high for line in lines for point in line.points)
    smallest = min(point.y for line in lines for point in line.points)
    if largest > _WIDE_RANGE_Y * smallest > 0:
        return Scale(_power_below(smallest), _power_above(largest), start, end, True)
    step = _step(largest)
    return Scale(0, math.ceil(largest / step - 1e-9) * step, start, end, False)


def _power_below(value: float) -> float:
    return 10 ** math.floor(math.log10(value))


def _power_above(value: float) -> float:
    return 10 ** math.ceil(math.log10(value))


def _step(largest: float) -> float:
    """A round number that divides an axis up to *largest* into four to eight parts."""
    rough = largest / 5
    unit = 10 ** math.floor(math.log10(rough))
    for factor in (1, 2, 2.5, 5, 10):
        if factor * unit >= rough:
            return factor * unit
    return 10 * unit


def _y_axis(up: Scale, left: float, right: float) -> list[str]:
    if up.logarithmic:
        exponents = range(round(math.log10(up.first)), round(math.log10(up.last)) + 1)
        values = [10.0**exponent for exponent in exponents]
    else:
        step = _step(up.last)
        values = [step * number for number in range(round(up.last / step) + 1)]
    parts = []
    for value in values:
        y = up(value)
        kind = "axis" if value == values[0] else "grid"
        parts.append(
            f'<line class="{kind}" x1="{left}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
        )
    return parts


def _x_axis(across: Scale, xs: Sequence[float], words: str, bottom: float, most: int) -> list[str]:
    """Some of the sizes that were measured, as far from each other as there is room, and words."""
    shown: list[float] = []
    apart = (across.end - across.start) / most
    for x in sorted(xs, key=_roundness):
        if all(abs(across(x) - across(other)) >= apart for other in shown):
            shown.append(x)
    parts = []
    for x in sorted(shown):
        place = across(x)
        parts.append(
            f'<line class="axis" x1="{place:.1f}" x2="{place:.1f}" '
            f'y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text x="{place:.1f}" y="{bottom + 17}" text-anchor="middle">{size(x)}</text>'
        )
    middle = (across.start + across.end) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{bottom + 35}" text-anchor="middle">{escape(words)}</text>'
    )
    return parts


def _roundness(value: float) -> tuple[int, float]:
    """Rounder numbers first: a power of two before its multiples, large steps before small ones."""
    whole = int(value)
    trailing = (whole & -whole).bit_length() if whole else 0
    return (-trailing, value)


def _line(line: Line, across: Scale, up: Scale) -> list[str]:
    places = [(across(point.x), up(point.y)) for point in line.points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    above = "L".join(f"{across(p.x):.1f} {up(p.high):.1f}" for p in line.points)
    floor = up.first if up.logarithmic else 0
    below = "L".join(
        f"{across(p.x):.1f} {up(max(p.low, floor)):.1f}" for p in reversed(line.points)
    )
    parts = [f'<g class="series {line.kind}" data-name="{escape(line.name)}">']
    if len(line.points) > 1:
        parts.append(f'<path class="range" d="M{above}L{below}Z"/><path d="M{path}"/>')
    if len(line.points) <= 20:
        radius = 3.4 if line.kind == "ours" else 2.4
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in places]
    return parts


def _name(line: Line, ends: list[tuple[Line, float]], across: Scale, right: float) -> str:
    """The name of *line* at its end, moved so that the names of all lines have room."""
    places = _spread([y for _, y in ends])
    number = next(i for i, (other, _) in enumerate(ends) if other is line)
    y, wanted = places[number], ends[number][1]
    start = across(line.points[-1].x)
    leader = ""
    if abs(y - wanted) > 3 or right - start > 8:
        leader = f'<path class="leader" d="M{start + 4:.1f} {wanted:.1f}L{right + 9:.1f} {y:.1f}"/>'
    return f'{leader}<text x="{right + 12:.1f}" y="{y + 4.5:.1f}">{escape(line.name)}</text>'


def _spread(wanted: Sequence[float]) -> list[float]:
    """The places nearest to *wanted*, in their order, that are a line's height apart."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [float(y) for y in wanted]
    for _ in range(60):
        moved = False
        for above, below in itertools.pairwise(order):
            lack = _LINE_HEIGHT - (places[below] - places[above])
            if lack > 0.01:
                places[above] -= lack / 2
                places[below] += lack / 2
                moved = True
        if not moved:
            break
    return places


def number(value: float) -> str:
    """``0``, ``0.25``, ``3,000``."""
    if value and abs(value) < 1:
        return f"{value:.4f}".rstrip("0").rstrip(".")
    text = f"{value:,.2f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:,.0f}"
    return text or "0"


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def size(value: float) -> str:
    """``4,096``, and ``2²⁰`` for large powers of two."""
    whole = int(value)
    if whole >= 1 << 14 and whole.bit_count() == 1:
        return f"2{str(whole.bit_length() - 1).translate(_SUPERSCRIPTS)}"
    return number(value)
