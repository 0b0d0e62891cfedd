"""Draws the figures of the programming guide: ``python docs/programming-guide/draw_figures.py``.

Each is an SVG file of a few kilobytes, with colours for a light and a dark page in it. The numbers
in a figure are arguments of the function that draws it.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "figures"

STYLE = """
  text { fill: #24313a; font: 13px system-ui, sans-serif; }
  .small { font-size: 11px; } .bold { font-weight: 600; } .middle { text-anchor: middle; }
  .end { text-anchor: end; }
  .cell { fill: #ffffff; stroke: #9fb0bc; } .a { fill: #f3c9a5; stroke: #9a5b20; }
  .b { fill: #bfe0c8; stroke: #2f7a48; } .c { fill: #b9d7ee; stroke: #1b6ca8; }
  .frame { fill: none; stroke: #24313a; stroke-width: 1.6; } .line { stroke: #24313a; fill: none; }
  .thin { stroke: #8fa2af; fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #d7dfe5; } .cell { fill: #11191f; stroke: #4d606e; }
    .a { fill: #6b431d; stroke: #e0a56c; } .b { fill: #1f5232; stroke: #7cc796; }
    .c { fill: #17476d; stroke: #74b9ff; } .frame, .line { stroke: #d7dfe5; }
    .thin { stroke: #62727e; }
  }
"""


class Drawing:
    """An SVG image that grows element by element; lengths are CSS pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        """Start an empty image; *title* is read out where it cannot be seen."""
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
        ]

    def box(self, x: float, y: float, width: float, height: float, kind: str = "cell") -> None:
        """A rectangle."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
        )

    def text(self, x: float, y: float, content: str, kind: str = "") -> None:
        """A line of text whose baseline is at *y*."""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(content)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A straight line."""
        self.parts.append(f'<path class="{kind}" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')

    def save(self, name: str) -> None:
        """Write the image below ``figures/``."""
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.svg").write_text("\n".join([*self.parts, "</svg>", ""]))


def draw_programs(cells: int = 8, cell: int = 17, tile: int = 4) -> None:
    """C = A B: what one thread of a scalar program computes, and what one blocked program does."""
    side = cells * cell
    gap = 14
    drawing = Drawing(
        2 * (2 * side + gap) + 150,
        2 * side + gap + 74,
        "Left, a scalar program: one thread reads a row of A and a column of B and computes one "
        "element of C. Right, a blocked program: one program reads a band of rows of A and a band "
        "of columns of B and computes a tile of C.",
    )
    panels = [
        (0, "A scalar program: one thread, one element", 1),
        (2 * side + gap + 76, "A blocked program: one program, one tile", tile),
    ]
    for left, heading, size in panels:
        drawing.text(left + 10, 18, heading, "bold")
        x, y = left + side + gap + 10, side + gap + 44  # of C
        for name, x0, y0 in (("A", left + 10, y), ("B", x, 44), ("C", x, y)):
            drawing.text(x0 + side / 2, y0 - 4 if name != "C" else y0 + side + 17, name, "middle")
            for row in range(cells):
                for column in range(cells):
                    first, last = tile, tile + size  # the rows and columns that are computed
                    in_rows, in_columns = first <= row < last, first <= column < last
                    kind = {
                        "A": "a" if in_rows else "cell",
                        "B": "b" if in_columns else "cell",
                        "C": "c" if in_rows and in_columns else "cell",
                    }[name]
                    drawing.box(x0 + column * cell, y0 + row * cell, cell, cell, kind)
        drawing.box(x + tile * cell, y + tile * cell, tile * cell, tile * cell, "frame")
    drawing.save("programs")


def draw_coalescing(threads: int = 16, cell: int = 34, line: int = 8, stride: int = 4) -> None:
    """Which cache lines the threads of a warp touch, side by side and with a stride."""
    shown = 4  # cache lines in the picture
    words = threads  # memory cells in the upper half
    width = max(words * cell, shown * 160) + 60
    drawing = Drawing(
        width,
        266,
        f"Above, {threads} threads read {threads} neighbouring words: two cache lines move. Below, "
        f"they read every {stride}th word: eight lines move, and three quarters of each are not "
        "used.",
    )
    drawing.text(10, 20, "Neighbouring threads, neighbouring words", "bold")
    for thread in range(threads):
        x = 20 + thread * cell
        drawing.text(x + cell / 2, 46, str(thread), "small middle")
        drawing.line(x + cell / 2, 52, x + cell / 2, 70, "thin")
        drawing.box(x, 72, cell, 24, "c")
    for first in range(0, words, line):
        drawing.box(20 + first * cell, 72, line * cell, 24, "frame")
    drawing.text(20, 114, f"{words // line} cache lines, every word of them used", "small")

    drawing.text(10, 156, f"Neighbouring threads, {stride} words apart", "bold")
    small = words * cell / (threads * stride)
    for word in range(threads * stride):
        drawing.box(20 + word * small, 208, small, 24, "cell" if word % stride else "c")
    for thread in range(threads):
        target = 20 + (thread * stride + 0.5) * small
        drawing.text(target, 182, str(thread), "small middle")
        drawing.line(target, 188, target, 206, "thin")
    for first in range(0, threads * stride, line):
        drawing.box(20 + first * small, 208, line * small, 24, "frame")
    lines = threads * stride // line
    drawing.text(20, 250, f"{lines} cache lines, one word in {stride} of them used", "small")
    drawing.save("coalescing")


def draw_pipeline(turns: int = 5, stages: int = 3, load: int = 84, dot: int = 42) -> None:
    """A loop of loads and matrix products in time, one after the other and overlapped."""
    serial = turns * (load + dot)
    drawing = Drawing(
        serial + 40,
        110 + (stages + 1) * 26 + 40,
        "Above, each iteration waits for its load and then computes. Below, loads of later "
        "iterations are in flight while earlier ones compute, and the loop ends in half the time.",
    )
    drawing.text(10, 18, "Without pipelining", "bold")
    for turn in range(turns):
        x = 20 + turn * (load + dot)
        drawing.box(x, 28, load, 22, "a")
        drawing.text(x + load / 2, 44, f"load {turn}", "small middle")
        drawing.box(x + load, 28, dot, 22, "c")
        drawing.text(x + load + dot / 2, 44, f"dot {turn}", "small middle")
    drawing.text(10, 84, f"num_stages = {stages}", "bold")
    ends, dot_end = [0.0] * stages, 0.0
    last = 0.0
    for turn in range(turns):
        # A load waits until the buffer that it fills has been used.
        start = ends[turn % stages] if turn >= stages else turn * 6.0
        y = 94 + (turn % stages) * 26
        drawing.box(20 + start, y, load, 22, "a")
        drawing.text(20 + start + load / 2, y + 16, f"load {turn}", "small middle")
        begin = max(start + load, dot_end)
        dot_end = begin + dot
        ends[turn % stages] = dot_end
        drawing.box(20 + begin, 94 + stages * 26, dot, 22, "c")
        drawing.text(20 + begin + dot / 2, 94 + stages * 26 + 16, f"dot {turn}", "small middle")
        last = dot_end
    y = 94 + (stages + 1) * 26 + 14
    drawing.line(20, y, 20 + serial, y, "thin")
    drawing.text(20 + serial, y + 16, "time", "small end")
    drawing.line(20 + last, y - 12, 20 + last, y + 4, "line")
    drawing.text(20 + last + 6, y + 16, "done", "small")
    drawing.save("pipeline")


def draw_tile(tile: int = 64, warps: int = 2, rows: int = 16, columns: int = 8) -> None:
    """How a tile is divided: among warps, and then into matrix instructions."""
    scale = 4
    side = tile * scale
    part = tile // warps
    drawing = Drawing(
        2 * side + 150,
        side + 64,
        f"A tile of {tile} by {tile} elements is divided among {warps * warps} warps; the {part} "
        f"by {part} elements of one warp are computed by matrix instructions of {rows} by "
        f"{columns} elements each.",
    )
    drawing.text(10, 18, f"A {tile} × {tile} tile, {warps * warps} warps", "bold")
    for row in range(warps):
        for column in range(warps):
            number = row * warps + column
            x, y = 10 + column * part * scale, 30 + row * part * scale
            drawing.box(x, y, part * scale, part * scale, "c" if number == 1 else "cell")
            drawing.text(x + part * scale / 2, y + part * scale / 2 + 4, f"warp {number}", "middle")
    left = side + 110
    drawing.text(left, 18, f"Warp 1: instructions of {rows} × {columns}", "bold")
    zoom = side / part
    for row in range(0, part, rows):
        for column in range(0, part, columns):
            x, y = left + column * zoom, 30 + row * zoom
            drawing.box(x, y, columns * zoom, rows * zoom, "c")
            drawing.text(x + columns * zoom / 2, y + rows * zoom / 2 + 4, "mma", "small middle")
    drawing.line(10 + side, 30, left, 30, "thin")
    drawing.line(10 + side, 30 + part * scale, left, 30 + side, "thin")
    drawing.save("tile")


def draw_gpu(processors: int = 132, width: int = 344) -> None:
    """A multiprocessor, and the memory behind it, as narrow as a phone."""
    drawing = Drawing(
        width,
        548,
        f"One of {processors} multiprocessors: four quarters, each with a scheduler, 16 warps, "
        "64 KiB of registers and a tensor core; below them L1 cache and shared memory. All share "
        "the L2 cache and the memory behind it. The latency grows from 40 to 690 cycles.",
    )
    for offset in (16, 8):  # the others, behind it
        drawing.box(10 + offset, 30 - offset + 6, width - 36, 300, "cell")
    drawing.box(10, 36, width - 36, 300, "cell")
    drawing.text(20, 58, f"Multiprocessor, 1 of {processors}", "bold")
    quarter = (width - 36 - 50) / 4
    for number in range(4):
        x = 20 + number * (quarter + 10)
        drawing.box(x, 70, quarter, 178, "frame")
        drawing.text(x + quarter / 2, 87, "scheduler", "small middle")
        for warp in range(16):
            left, top = x + 7 + warp % 4 * (quarter - 14) / 4, 95 + warp // 4 * 13
            drawing.box(left, top, (quarter - 14) / 4 - 2, 11, "c")
        drawing.text(x + quarter / 2, 161, "16 warps", "small middle")
        drawing.box(x + 5, 169, quarter - 10, 34, "b")
        drawing.text(x + quarter / 2, 183, "registers", "small middle")
        drawing.text(x + quarter / 2, 197, "64 KiB", "small middle")
        drawing.box(x + 5, 208, quarter - 10, 34, "a")
        drawing.text(x + quarter / 2, 222, "tensor", "small middle")
        drawing.text(x + quarter / 2, 236, "core", "small middle")
    drawing.line(width / 2 - 8, 248, width / 2 - 8, 268)
    drawing.text(width / 2, 262, "40 cycles", "small")
    drawing.box(20, 268, width - 56, 56, "b")
    drawing.text(width / 2 - 8, 290, "L1 cache and shared memory", "middle")
    drawing.text(width / 2 - 8, 310, "256 KiB, at most 228 KiB shared", "small middle")
    drawing.line(width / 2 - 8, 336, width / 2 - 8, 376)
    drawing.text(width / 2, 362, "281 cycles", "small")
    drawing.box(10, 378, width - 20, 56, "b")
    drawing.text(width / 2, 400, "L2 cache, for all multiprocessors", "middle")
    drawing.text(width / 2, 420, "50 MiB on an H100", "small middle")
    drawing.line(width / 2 - 8, 434, width / 2 - 8, 474)
    drawing.text(width / 2, 458, "690 cycles", "small")
    drawing.box(10, 476, width - 20, 62, "b")
    drawing.text(width / 2, 498, "Memory (HBM)", "middle")
    drawing.text(width / 2, 516, "H100: 80 GB, 3.35 TB/s", "small middle")
    drawing.text(width / 2, 531, "H200: 141 GB, 4.8 TB/s", "small middle")
    drawing.save("gpu")


if __name__ == "__main__":
    draw_gpu()
    draw_programs()
    draw_coalescing()
    draw_pipeline()
    draw_tile()
