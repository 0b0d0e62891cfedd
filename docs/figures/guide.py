"""The figures of the programming guide; the numbers in a figure are arguments of its function."""

from __future__ import annotations

from docs.figures.drawing import WIDTH, Drawing


def programs(cells: int = 8, cell: int = 9, tile: int = 4) -> Drawing:
    """C = A B: what one thread of a scalar program computes, and what one blocked program does."""
    side, gap = cells * cell, 10
    top = 46 + side + gap  # of A and C
    drawing = Drawing(
        top + side + 20,
        "The same matrix product by scalar and by blocked programs",
        "Left, one thread of a scalar program reads a row of A and a column of B and computes one "
        "element of C. Right, one blocked program reads a band of rows of A and a band of columns "
        "of B and computes a tile of C.",
    )
    panels = [
        (4, "Scalar program", "one thread, one element", 1),
        (WIDTH - 2 * side - gap - 4, "Blocked program", "one program, one tile", tile),
    ]
    for left, heading, below, size in panels:
        drawing.text(left, 14, heading, "bold")
        drawing.text(left, 30, below)
        right = left + side + gap
        last = tile + size  # rows and columns from *tile* to here are computed
        for name, x0, y0 in (("A", left, top), ("B", right, 42), ("C", right, top)):
            for row in range(cells):
                for column in range(cells):
                    in_rows, in_columns = tile <= row < last, tile <= column < last
                    kind = {
                        "A": "a" if in_rows else "cell",
                        "B": "b" if in_columns else "cell",
                        "C": "c" if in_rows and in_columns else "cell",
                    }[name]
                    drawing.box(x0 + column * cell, y0 + row * cell, cell, cell, kind)
        drawing.box(right + tile * cell, top + tile * cell, tile * cell, tile * cell, "frame")
        drawing.text(left + side / 2, top - 5, "A", "middle")
        drawing.text(right - 6, 42 + side / 2, "B", "end")
        drawing.text(right + side / 2, top + side + 14, "C", "middle")
    return drawing


def coalescing(threads: int = 16, cell: int = 20, line: int = 8, stride: int = 4) -> Drawing:
    """Which cache lines the threads of a warp touch, side by side and with a stride."""
    lines = threads * stride // line
    drawing = Drawing(
        228,
        "Which cache lines sixteen threads touch",
        f"Above, {threads} threads read {threads} neighboring words: {threads // line} cache lines "
        f"move. Below, they read every {stride}th word: {lines} lines move, and a quarter of each "
        "is used.",
    )
    left = (WIDTH - threads * cell) / 2
    small = cell / stride
    panels = ((14, "Neighboring words", 1, cell), (128, f"Words {stride} apart", stride, small))
    for top, heading, step, width in panels:
        drawing.text(left, top, heading, "bold")
        for word in range(threads * step):
            kind = "cell" if word % step else "c"
            drawing.box(left + word * width, top + 46, width, 24, kind)
        for thread in range(threads):
            x = left + (thread * step + 0.5) * width
            drawing.text(x, top + 24, str(thread), "small middle")
            drawing.line(x, top + 29, x, top + 44, "thin")
        for first in range(0, threads * step, line):
            drawing.box(left + first * width, top + 46, line * width, 24, "frame")
    drawing.text(left, 100, f"{threads // line} cache lines, each word used", "small")
    drawing.text(left, 214, f"{lines} cache lines, one word in {stride} used", "small")
    return drawing


def pipeline(steps: int = 4, stages: int = 3, load: int = 50, dot: int = 33) -> Drawing:
    """A loop of loads and matrix products in time, one after the other and overlapped."""
    drawing = Drawing(
        236,
        "A loop of loads and products without and with pipelining",
        "Above, each iteration waits for its load and then computes. Below, loads of later "
        "iterations are in flight while earlier ones compute, and the loop ends in about half the "
        "time.",
    )
    left = (WIDTH - steps * (load + dot)) / 2
    drawing.text(left, 14, "One buffer: each dot waits for its load", "bold")
    for step in range(steps):
        x = left + step * (load + dot)
        drawing.cell(x, 24, load, 22, f"load {step}", "a")
        drawing.cell(x + load, 24, dot, 22, f"dot {step}", "c")
    drawing.text(left, 82, f"num_stages = {stages}: {stages} loads in flight", "bold")
    ends, dot_end = [0.0] * stages, 0.0
    for step in range(steps):
        # A load waits until the buffer that it fills has been used.
        start = ends[step % stages] if step >= stages else step * 4.0
        drawing.cell(left + start, 92 + (step % stages) * 26, load, 22, f"load {step}", "a")
        begin = max(start + load, dot_end)
        dot_end = ends[step % stages] = begin + dot
        drawing.cell(left + begin, 92 + stages * 26, dot, 22, f"dot {step}", "c")
    y = 92 + (stages + 1) * 26 + 12
    drawing.arrow(left, y, WIDTH - left, y, "thin")
    drawing.text(WIDTH - left, y + 16, "time", "small end")
    drawing.line(left + dot_end, y - 10, left + dot_end, y + 4)
    drawing.text(left + dot_end, y + 16, "done", "small middle")
    return drawing


def tile(size: int = 64, warps: int = 2, rows: int = 16, columns: int = 8) -> Drawing:
    """How a tile is divided: among warps, and then into matrix instructions."""
    side, part = 140, size // warps
    drawing = Drawing(
        side + 34,
        "A tile, its warps, and their matrix instructions",
        f"A tile of {size} by {size} elements is divided among {warps * warps} warps; the {part} "
        f"by {part} elements of one warp are computed by matrix instructions of {rows} by "
        f"{columns} elements each.",
    )
    drawing.text(4, 14, f"{size} × {size}, {warps * warps} warps", "bold")
    half = side / warps
    for number in range(warps * warps):
        x, y = 4 + number % warps * half, 26 + number // warps * half
        drawing.cell(x, y, half, half, f"warp {number}", "c" if number == 1 else "cell")
    left, zoom = WIDTH - side - 4, side / part
    drawing.text(left, 14, f"warp 1: {rows} × {columns} each", "bold")
    for row in range(0, part, rows):
        for column in range(0, part, columns):
            x, y = left + column * zoom, 26 + row * zoom
            drawing.cell(x, y, columns * zoom, rows * zoom, "mma", "c")
    drawing.line(4 + side, 26, left, 26, "thin")
    drawing.line(4 + side, 26 + half, left, 26 + side, "thin")
    return drawing


def gpu(processors: int = 132) -> Drawing:
    """A multiprocessor, and the memory behind it."""
    drawing = Drawing(
        548,
        "A multiprocessor, and the memory behind it",
        f"One of {processors} multiprocessors: four quarters, each with a scheduler, 16 warps, "
        "64 KiB of registers and a tensor core; below them L1 cache and shared memory. All share "
        "the L2 cache and the memory behind it. The latency grows from 40 to 690 cycles.",
    )
    middle = WIDTH / 2
    for offset in (16, 8, 0):  # the others, behind it
        drawing.box(10 + offset, 36 - offset, WIDTH - 36, 300)
    drawing.text(20, 58, f"Multiprocessor, 1 of {processors}", "bold")
    quarter = (WIDTH - 36 - 50) / 4
    for number in range(4):
        x = 20 + number * (quarter + 10)
        drawing.box(x, 70, quarter, 178, "frame")
        drawing.text(x + quarter / 2, 87, "scheduler", "small middle")
        for warp in range(16):
            left, top = x + 7 + warp % 4 * (quarter - 14) / 4, 95 + warp // 4 * 13
            drawing.box(left, top, (quarter - 14) / 4 - 2, 11, "c")
        drawing.text(x + quarter / 2, 161, "16 warps", "small middle")
        for y, kind, words in ((169, "b", ("registers", "64 KiB")), (208, "a", ("tensor", "core"))):
            drawing.box(x + 5, y, quarter - 10, 34, kind)
            for line, word in enumerate(words):
                drawing.text(x + quarter / 2, y + 14 + 14 * line, word, "small middle")
    drawing.line(middle - 8, 248, middle - 8, 268)
    drawing.text(middle, 262, "40 cycles", "small")
    memories = (
        (
            20,
            268,
            WIDTH - 56,
            middle - 8,
            ("L1 cache and shared memory", "256 KiB, at most 228 KiB shared"),
        ),
        (10, 378, WIDTH - 20, middle, ("L2 cache, for all multiprocessors", "50 MiB on an H100")),
        (
            10,
            476,
            WIDTH - 20,
            middle,
            ("Memory (HBM)", "H100: 80 GB, 3.35 TB/s", "H200: 141 GB, 4.8 TB/s"),
        ),
    )
    for x, y, width, center, (heading, *facts) in memories:
        drawing.box(x, y, width, 62 if len(facts) > 1 else 56, "b")
        drawing.text(center, y + 22, heading, "middle")
        for line, fact in enumerate(facts):
            drawing.text(center, y + 40 + 15 * line, fact, "small middle")
    for y, cycles in ((336, 281), (434, 690)):
        drawing.line(middle - 8, y, middle - 8, y + 42)
        drawing.text(middle, y + 26, f"{cycles} cycles", "small")
    return drawing


_FOLDER = "docs/programming-guide/figures"
FIGURES = {
    f"{_FOLDER}/{draw.__name__}.svg": draw for draw in (gpu, programs, coalescing, pipeline, tile)
}
