"""``.. tile-order::``: tiles of a product by the wave that computes them, in two orders.

The orders are row by row and in groups of rows, as the tutorial's ``tile_position`` has it. Each
tile of the picture shows its wave. A slider (``tiles.js``) goes through the waves and shows the
tiles of A and B that each of them reads. Options: ``:size:`` tiles along each side, ``:group:``
rows in a group, ``:processors:`` tiles that run at the same time.
"""

from __future__ import annotations

import json
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from triton_site.pages.assets import is_a, load_where
from triton_site.pages.folds import add_node

#: Pixels of a tile, and between A or B and C.
_TILE, _GAP = 20, 6

Wave = list[tuple[int, int]]


class TileOrder(nodes.General, nodes.Element):
    """The picture of ``size`` × ``size`` tiles; its children describe it in words."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its node."""
    add_node(app, TileOrder, _open, lambda translator, node: translator.body.append("</div>\n"))
    load_where(app, "tiles.js", is_a(TileOrder))
    app.add_directive("tile-order", TileOrderDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def position(tile: int, size: int, group: int) -> tuple[int, int]:
    """Row and column of the tile with number *tile*, *group* rows of *size* tiles at a time."""
    first = tile // (group * size) * group
    rows = min(size - first, group)
    return first + tile % (group * size) % rows, tile % (group * size) // rows


def waves(size: int, group: int, processors: int) -> list[Wave]:
    """The positions of the tiles of each wave."""
    tiles = [position(tile, size, group) for tile in range(size * size)]
    return [tiles[start : start + processors] for start in range(0, len(tiles), processors)]


def tiles_read(wave: Wave, size: int) -> int:
    """The number of tiles of A and B that a *wave* reads, each once."""
    return (len({row for row, _ in wave}) + len({column for _, column in wave})) * size


class TileOrderDirective(SphinxDirective):
    """``.. tile-order::`` with the options above."""

    option_spec = dict.fromkeys(("size", "group", "processors"), directives.positive_int)

    def run(self) -> list[nodes.Node]:
        """Make the picture and its description."""
        size, group, processors = (self.options[name] for name in self.option_spec)
        orders = {
            "row by row": waves(size, 1, processors),
            f"in groups of {group} rows": waves(size, group, processors),
        }
        read = "; ".join(
            f"{name}, {', '.join(str(tiles_read(wave, size)) for wave in order)}"
            for name, order in orders.items()
        )
        count, last = divmod(size * size - 1, processors)
        text = (
            f"{size} × {size} tiles on {processors} processors: {count + 1} waves, the last of "
            f"{last + 1} tile{'s' * (last > 0)}. Tiles of A and B that each wave reads: {read}."
        )
        node = TileOrder(size=size, processors=processors, orders=list(orders.items()))
        node += nodes.paragraph(text, text)
        return [node]


def _open(translator: Any, node: TileOrder) -> None:
    size = node["size"]
    pictures = "".join(
        f'<figure data-read="{json.dumps([tiles_read(wave, size) for wave in order])}">'
        f"<figcaption>{name[:1].upper()}{name[1:]}</figcaption>{_picture(order, size)}</figure>"
        for name, order in node["orders"]
    )
    translator.body.append(
        f'<div class="gallery-tiles" data-processors="{node["processors"]}" data-tiles="{size**2}">'
        f'<div class="gallery-tiles-orders">{pictures}</div>\n'
    )


def _picture(order: list[Wave], size: int) -> str:
    """C with each tile's wave in it; the rows of A at its left, the columns of B above it."""
    start = _TILE + _GAP
    edge = start + size * _TILE
    middle = edge / 2 + 13
    parts = [
        f'<svg viewBox="0 0 {edge + 1} {edge + 1}" role="img" aria-label="tiles by wave">'
        f'<text class="name" x="{start / 2 - 3}" y="{middle}">A</text>'
        f'<text class="name" x="{middle}" y="{start / 2}">B</text>'
    ]
    for number, wave in enumerate(order):
        places = [(start + column * _TILE, start + row * _TILE) for row, column in wave]
        rows, columns = sorted({y for _, y in places}), sorted({x for x, _ in places})
        needed = "".join([*(_square(0, y) for y in rows), *(_square(x, 0) for x in columns)])
        tiles = "".join(_square(x, y) for x, y in places)
        words = "".join(
            f'<text x="{x + _TILE // 2}" y="{y + 14}">{number + 1}</text>' for x, y in places
        )
        parts.append(
            f'<g class="wave wave-{number % 2}"><path class="needed" d="{needed}"/>'
            f'<path class="tiles" d="{tiles}"/>{words}</g>'
        )
    return "".join([*parts, "</svg>"])


def _square(x: int, y: int) -> str:
    side = _TILE - 1
    return f"M{x} {y}h{side}v{side}h-{side}z"
