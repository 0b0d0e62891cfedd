"""Line charts as inline SVG, in the colours of their page.

Rendering has no matplotlib: installing it would take longer than building the site. The classes
``chart-…`` are in ``custom.css``; lines differ by dashes as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
_WIDTH = 660
_LEFT, _RIGHT, _TOP = 46, 644, 12  # the edges of the lines
#: The height of one frame, of each of two, and of each of more.
_HEIGHTS = (216, 150, 120)
_GAP = 22  # between two frames
#: A line whose range is this many times smaller gets its own frame, or it would look flat.
_TIMES = 3


@dataclass(frozen=True)
class Line:
    """A line of a chart: its name, sizes on the x axis and values."""

    name: str
    x: Sequence[int]
    y: Sequence[float]


def line_chart(lines: Sequence[Line], title: str, x_label: str) -> str:
    """A chart of ratios with 1 marked, as one line of HTML; the y axis spans the values.

    Lines with a far smaller range have a frame of their own below. The x axis is logarithmic where
    the sizes double rather than step.
    """
    sizes = sorted({size for line in lines for size in line.x})
    doubles = len(sizes) > 2 and sizes[0] > 0 and sizes[-1] / sizes[0] >= 4 * len(sizes)
    place = math.log2 if doubles else float
    span = place(sizes[-1]) - place(sizes[0]) or 1.0

    def at_x(size: int) -> float:
        return round(_LEFT + (place(size) - place(sizes[0])) / span * (_RIGHT - _LEFT), 1)

    frames = _frames(lines)
    height = _HEIGHTS[min(len(frames), len(_HEIGHTS)) - 1]
    parts, top = [], _TOP
    for frame in frames:
        parts += _frame([(n, lines[n]) for n in frame], at_x, top, top + height)
        top += height + _GAP
    bottom = top - _GAP
    parts += [
        _text(at_x(size), bottom + 18, _power_of_two(size) if doubles else str(size))
        for size in sizes[:: math.ceil(len(sizes) / 8)]
    ]
    parts.append(_text((_LEFT + _RIGHT) / 2, bottom + 38, escape(x_label)))
    keys = "".join(_key(number, line.name) for number, line in enumerate(lines))
    return (
        f'<figure class="gallery-chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg role="img" aria-label="{escape(title)}, by {escape(x_label)}" '
        f'viewBox="0 0 {_WIDTH} {bottom + 42}">{"".join(parts)}</svg>'
        f'<ul class="chart-keys">{keys}</ul></figure>'
    )


def _frames(lines: Sequence[Line]) -> list[list[int]]:
    """The numbers of the *lines* in each frame; lines with the largest range come first."""
    range_of = [max(1.0, *line.y) - min(1.0, *line.y) for line in lines]
    rest = sorted(range(len(lines)), key=range_of.__getitem__, reverse=True)
    frames = []
    while rest:
        frame = [n for n in rest if range_of[n] * _TIMES >= range_of[rest[0]]]
        frames.append(sorted(frame))
        rest = [n for n in rest if n not in frame]
    return frames


def _frame(
    lines: Sequence[tuple[int, Line]], at_x: Callable[[int], float], top: float, bottom: float
) -> list[str]:
    """Axis, grid and lines between *top* and *bottom*; a line has its number in the legend."""
    values = [1.0, *(value for _, line in lines for value in line.y)]
    room = 0.08 * (max(values) - min(values) or 1.0)
    low, high = max(0.0, min(values) - room), max(values) + room

    def at_y(value: float) -> float:
        return round(bottom - (value - low) / (high - low) * (bottom - top), 1)

    most = (bottom - top) / 30
    step = next(s for s in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, high)
                if (high - low) / s <= most)  # fmt: skip
    ticks = [n * step for n in range(math.ceil(low / step), int(high / step) + 1)]
    parts = [_rule("chart-grid", at_y(tick)) for tick in ticks]
    parts += [_text(_LEFT - 6, at_y(tick) + 4, f"{tick:.4g}", "end") for tick in ticks]
    parts.append(_rule("chart-even", at_y(1.0)))
    if all(abs(at_y(tick) - at_y(1.0)) > 12 for tick in ticks):
        parts.append(_text(_LEFT - 6, at_y(1.0) + 4, "1", "end"))
    for number, line in lines:
        points = " ".join(f"{at_x(x)},{at_y(y)}" for x, y in zip(line.x, line.y, strict=True))
        parts.append(f'<polyline {_style(number)} points="{points}"/>')
    return parts


def _rule(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'


def _text(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{content}</text>'


def _power_of_two(size: int) -> str:
    exponent = math.log2(size)
    return f'2<tspan dy="-5" class="power">{exponent:g}</tspan>' if exponent % 1 == 0 else str(size)


def _style(number: int) -> str:
    number %= len(_DASHES)
    return (
        f'class="chart-line chart-line-{number}" fill="none" stroke-dasharray="{_DASHES[number]}"'
    )


def _key(number: int, name: str) -> str:
    return (
        f'<li><svg width="34" height="10" aria-hidden="true"><line {_style(number)} x2="34" '
        f'y1="5" y2="5"/></svg> {escape(name)}</li>'
    )
