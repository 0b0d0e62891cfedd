"""A drawing in the one style of this site: a small SVG file, for light and for dark pages.

A drawing is as wide as the text on a phone and shown larger on a wide screen, so its letters are
readable on both. Its colors are those of the figures that scripts draw.
"""

from __future__ import annotations

from html import escape

#: Units across a drawing. A phone's text is 358 pixels wide, so a letter of 11 has 11.6 pixels.
WIDTH = 340
_ENLARGED = 1.4  # on a wide screen, where letters of 12 are as large as the text around them

_STYLE = """
  text { fill: #24313a; font: 12px system-ui, sans-serif; }
  .small { font-size: 11px; } .bold { font-weight: 600; }
  .middle { text-anchor: middle; } .end { text-anchor: end; }
  .mono { font-family: ui-monospace, monospace; }
  rect { stroke: #444444; stroke-width: 0.8; }
  .cell { fill: #ffffff; } .off { fill: #eeeeee; }
  .a { fill: #f6d9c4; } .b { fill: #d8ead3; } .c { fill: #cfe3f1; }
  .frame { fill: none; stroke: #24313a; stroke-width: 1.6; }
  .dashed { fill: none; stroke-dasharray: 3 2; }
  path { fill: none; stroke: #444444; } .thin { stroke: #8fa2af; } .strong { stroke: #b8324a; }
  .red { fill: #b8324a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #d7dfe5; } rect, path { stroke: #b5bfc6; }
    .cell { fill: #11191f; } .off { fill: #2a353d; }
    .a { fill: #5d3b1c; } .b { fill: #23492f; } .c { fill: #1b4568; }
    .frame { fill: none; stroke: #d7dfe5; } .dashed { fill: none; }
    .thin { stroke: #62727e; } .strong { stroke: #ff8fa0; } .red { fill: #ff8fa0; }
  }
"""


class Drawing:
    """An image that grows element by element, from the upper left corner."""

    def __init__(self, height: float, title: str, description: str) -> None:
        """Start an empty image; screen readers read *title* and *description*."""
        size = f'width="{WIDTH * _ENLARGED:.0f}" height="{height * _ENLARGED:.0f}"'
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" {size} '
            f'role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f"<style>{_STYLE}</style>",
        ]

    def box(self, x: float, y: float, width: float, height: float, kind: str = "cell") -> None:
        """A rectangle."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
        )

    def text(self, x: float, y: float, content: str, kind: str = "") -> None:
        """A line of text whose baseline is at *y*."""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(content)}</text>')

    def cell(
        self, x: float, y: float, width: float, height: float, content: object, kind: str = "cell"
    ) -> None:
        """A rectangle with a word in its middle."""
        self.box(x, y, width, height, kind)
        self.text(x + width / 2, y + height / 2 + 4, str(content), "small middle")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A straight line."""
        self.parts.append(f'<path class="{kind}" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A straight line with a head at its end."""
        self.line(x1, y1, x2, y2, kind)
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = 5 * (x2 - x1) / length, 5 * (y2 - y1) / length
        ends = [(x2 - dx + side * dy * 0.6, y2 - dy - side * dx * 0.6) for side in (1, -1)]
        (ax, ay), (bx, by) = ends
        self.parts.append(
            f'<path class="{kind}" d="M{ax:.1f} {ay:.1f}L{x2:g} {y2:g}L{bx:.1f} {by:.1f}"/>'
        )

    def svg(self) -> str:
        """The finished file."""
        return "\n".join([*self.parts, "</svg>", ""])
