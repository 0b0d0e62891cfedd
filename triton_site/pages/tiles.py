"""``.. tile-order::``: tiles of a product by the wave in which they are computed, in two orders.

Row by row, and in groups of rows, as the tutorial's ``tile_position`` has it. The picture is made
while the page is: each tile says its wave. With scripts, a slider goes through the waves and shows
which tiles of A and B each has to read. Options: ``:size:`` tiles along each side, ``:group:`` rows
in a group, ``:processors:`` tiles that run at the same time.
"""

from __future__ import annotations

import json
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from triton_site.pages.folds import add_node

#: Pixels of a tile in the picture, and between A or B and C.
_TILE, _GAP = 20, 6


class TileOrder(nodes.General, nodes.Element):
    """The picture of ``size`` × ``size`` tiles; its children tell the same in words."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its node."""
    add_node(app, TileOrder, _open, _close)
    app.add_directive("tile-order", TileOrderDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def position(tile: int, size: int, group: int) -> tuple[int, int]:
    """Row and column of the tile with number *tile*, *group* rows of *size* tiles at a time."""
    first = tile // (group * size) * group
    rows = min(size - first, group)
    return first + tile % (group * size) % rows, tile % (group * size) // rows


def waves(size: int, group: int, processors: int) -> list[list[tuple[int, int]]]:
    """The positions of the tiles of each wave."""
    tiles = [position(tile, size, group) for tile in range(size * size)]
    return [tiles[start : start + processors] for start in range(0, len(tiles), processors)]


def read_by(wave: list[tuple[int, int]], size: int) -> int:
    """How many tiles of A and B a *wave* reads, each once: the rows and columns that it needs."""
    return (len({row for row, _ in wave}) + len({column for _, column in wave})) * size


class TileOrderDirective(SphinxDirective):
    """``.. tile-order::`` with the options above."""

    option_spec = dict.fromkeys(("size", "group", "processors"), directives.positive_int)

    def run(self) -> list[nodes.Node]:
        """Make the picture and its words."""
        size, group, processors = (
            self.options.get(name, default)
            for name, default in (("size", 9), ("group", 4), ("processors", 16))
        )
        orders = {
            name: waves(size, rows, processors)
            for name, rows in (("row by row", 1), (f"in groups of {group} rows", group))
        }
        node = TileOrder(size=size, processors=processors, orders=list(orders.items()))
        count = len(orders["row by row"])
        counted = "; ".join(
            f"{name}, {', '.join(str(read_by(wave, size)) for wave in order)}"
            for name, order in orders.items()
        )
        last = len(orders["row by row"][-1])
        text = (
            f"{size} × {size} tiles on {processors} processors: {count} waves, the last of {last} "
            f"tile{'s' * (last > 1)}. Tiles of A and B that each wave reads: {counted}."
        )
        node += nodes.paragraph(text, text)
        return [node]


def _open(translator: Any, node: TileOrder) -> None:
    size = node["size"]
    pictures = []
    for name, order in node["orders"]:
        read = [read_by(wave, size) for wave in order]
        pictures.append(
            f'<figure data-read="{json.dumps(read, separators=(",", ":"))}">'
            f"<figcaption>{name[:1].upper()}{name[1:]}</figcaption>{_picture(order, size)}"
            f"</figure>"
        )
    translator.body.append(
        f'<div class="gallery-tiles" data-processors="{node["processors"]}" data-tiles="{size**2}">'
        f'<div class="gallery-tiles-orders">{"".join(pictures)}</div>\n'
    )


def _close(translator: Any, node: TileOrder) -> None:
    del node
    translator.body.append("</div>\n")


def _picture(order: list[list[tuple[int, int]]], size: int) -> str:
    """C with each tile's wave in it; at its left the rows of A and above it the columns of B."""
    start = _TILE + _GAP
    edge = start + size * _TILE
    parts = [f'<svg viewBox="0 0 {edge + 1} {edge + 1}" role="img" aria-label="tiles by wave">']
    for text, x, y in (("A", start / 2 - 3, edge / 2 + 13), ("B", edge / 2 + 13, start / 2)):
        parts.append(f'<text class="name" x="{x}" y="{y}">{text}</text>')
    for number, wave in enumerate(order):
        rows, columns = {row for row, _ in wave}, {column for _, column in wave}
        needed = "".join(_square(0, start + row * _TILE) for row in sorted(rows))
        needed += "".join(_square(start + column * _TILE, 0) for column in sorted(columns))
        tiles = "".join(_square(start + c * _TILE, start + r * _TILE) for r, c in wave)
        words = "".join(
            f'<text x="{" ".join(str(start + c * _TILE + _TILE // 2) for c in sorted(across))}" '
            f'y="{start + row * _TILE + 14}">{str(number + 1)[-1] * len(across)}</text>'
            for row in sorted(rows)
            if (across := [column for r, column in wave if r == row])
        )
        parts.append(
            f'<g class="wave wave-{number % 2}"><path class="needed" d="{needed}"/>'
            f'<path class="tiles" d="{tiles}"/>{words}</g>'
        )
    return "".join([*parts, "</svg>"])


def _square(x: int, y: int) -> str:
    side = _TILE - 1
    return f"M{x} {y}h{side}v{side}h-{side}z"
