"""Line charts as inline SVG, in the colours of the page that they are on.

Rendering has no matplotlib: installing it would take longer than building the site. The classes
``chart-…`` are in ``custom.css``; lines differ in their dashes as well as in their colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
_WIDTH, _HEIGHT = 660, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 644, 12, 228  # the frame of the lines


@dataclass(frozen=True)
class Line:
    """A line of a chart: its name, its places on the x axis and its values there."""

    name: str
    x: Sequence[int]
    y: Sequence[float]


def line_chart(lines: Sequence[Line], title: str, x_label: str) -> str:
    """A chart of ratios with 1 marked, as high as they differ, as one line of HTML.

    The x axis is logarithmic where the sizes double rather than step.
    """
    sizes = sorted({size for line in lines for size in line.x})
    doubles = len(sizes) > 2 and sizes[0] > 0 and sizes[-1] / sizes[0] >= 4 * len(sizes)
    place = math.log2 if doubles else float
    span = place(sizes[-1]) - place(sizes[0]) or 1.0
    values = [1.0, *(value for line in lines for value in line.y)]
    room = 0.08 * (max(values) - min(values) or 1.0)
    low, top = max(0.0, min(values) - room), max(values) + room

    def at_x(size: int) -> float:
        return round(_LEFT + (place(size) - place(sizes[0])) / span * (_RIGHT - _LEFT), 1)

    def at_y(value: float) -> float:
        return round(_BOTTOM - (value - low) / (top - low) * (_BOTTOM - _TOP), 1)

    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, top)
                if (top - low) / s <= 7)  # fmt: skip
    ticks = [n * step for n in range(math.ceil(low / step), int(top / step) + 1)]
    parts = [_rule("chart-grid", at_y(tick)) for tick in ticks]
    parts += [_text(_LEFT - 6, at_y(tick) + 4, f"{tick:.4g}", "end") for tick in ticks]
    parts.append(_rule("chart-even", at_y(1.0)))
    parts += [
        _text(at_x(size), _BOTTOM + 18, _power_of_two(size) if doubles else str(size))
        for size in sizes[:: math.ceil(len(sizes) / 8)]
    ]
    parts.append(_text((_LEFT + _RIGHT) / 2, _HEIGHT - 4, escape(x_label)))
    for number, line in enumerate(lines):
        points = " ".join(f"{at_x(x)},{at_y(y)}" for x, y in zip(line.x, line.y, strict=True))
        parts.append(f'<polyline {_style(number)} points="{points}"/>')
    keys = "".join(_key(number, line.name) for number, line in enumerate(lines))
    return (
        f'<figure class="gallery-chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg role="img" aria-label="{escape(title)}, by {escape(x_label)}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(parts)}</svg>'
        f'<ul class="chart-keys">{keys}</ul></figure>'
    )


def _rule(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'


def _text(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{content}</text>'


def _power_of_two(size: int) -> str:
    exponent = math.log2(size)
    return f'2<tspan dy="-5" font-size="9">{exponent:g}</tspan>' if exponent % 1 == 0 else str(size)


def _style(number: int) -> str:
    kind = number % len(_DASHES)
    return f'class="chart-line chart-line-{kind}" fill="none" stroke-dasharray="{_DASHES[kind]}"'


def _key(number: int, name: str) -> str:
    return (
        f'<li><svg width="34" height="10" aria-hidden="true"><line {_style(number)} x2="34" '
        f'y1="5" y2="5"/></svg> {escape(name)}</li>'
    )
