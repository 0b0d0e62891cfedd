"""The drawings of lessons whose scripts draw none; each shows the idea of its lesson in small."""

from __future__ import annotations

from docs.figures.drawing import WIDTH, Drawing

#: The words that Philox4x32-10 makes of the counters 0 and 1 under the seed 0; the first four are
#: published by its authors, and the lesson computes them.
PHILOX = (
    *(0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    *(0xF8E4CCA4, 0x5CB200DB, 0xB1A574EB, 0x097EFF67),
)


def dropout(p: float = 0.5) -> Drawing:
    """From counters to random words, to a mask."""
    threshold, cell, left = int(p * 2**32), 41, 6
    drawing = Drawing(
        258,
        "From a counter to four elements of the mask",
        f"Philox turns each counter into four random words, under the seed. An element is kept if "
        f"its word is at least the threshold {threshold:x}. Element i gets word i % 4 of counter "
        f"i // 4.",
    )
    for counter in (0, 1):
        x = left + counter * 4 * cell
        color = "ca"[counter]
        drawing.cell(x + 30, 4, 4 * cell - 60, 24, f"counter {counter}", color)
        drawing.arrow(x + 2 * cell, 28, x + 2 * cell, 46)
        for word in range(4):
            drawing.arrow(x + (word + 0.5) * cell, 72, x + (word + 0.5) * cell, 90)
    drawing.cell(left, 48, 8 * cell, 24, "Philox, ten rounds, key: seed 0", "off")
    for i, word in enumerate(PHILOX):
        x = left + i * cell
        drawing.box(x, 92, cell, 24, "ca"[i // 4])
        drawing.text(x + cell / 2, 108, f"{word >> 16:04x}…", "small middle mono")
        drawing.text(x + cell / 2, 130, f"w{i % 4}", "small middle")
        keep = word >= threshold
        drawing.text(
            x + cell / 2, 176, *(("keep", "small middle") if keep else ("drop", "small middle red"))
        )
        drawing.cell(x, 204, cell, 26, i, "ca"[i // 4] if keep else "cell")
    drawing.text(left, 156, f"Word ≥ p · 2³² = {threshold >> 16:04x}…, for p = {p:g}?", "bold")
    drawing.text(left, 198, "Element", "bold")
    drawing.text(left, 248, "What is dropped becomes 0, the rest is divided by 1 − p.", "small")
    return drawing


def tiles(
    rows: int = 4, columns: int = 4, depth: int = 4, chosen: tuple[int, int] = (1, 2)
) -> Drawing:
    """C = A B in tiles: the tile of one program, and the tiles that it loads, step by step."""
    cell, gap, left, top = 34, 14, 4, 20
    right, below = left + depth * cell + gap, top + depth * cell + gap
    row, column = chosen
    drawing = Drawing(
        below + rows * cell + 22,
        "The tiles that one program reads",
        f"The program of tile ({row}, {column}) of C walks along row {row} of the tiles of A and "
        f"down column {column} of the tiles of B. In each step it multiplies one tile of A by one "
        "tile of B and adds the product to its tile of C.",
    )
    for k in range(depth):
        for j in range(columns):
            mine = j == column
            place = right + j * cell, top + k * cell
            drawing.cell(*place, cell, cell, k if mine else "", "b" if mine else "cell")
        for i in range(rows):
            mine = i == row
            place = left + k * cell, below + i * cell
            drawing.cell(*place, cell, cell, k if mine else "", "a" if mine else "cell")
    for i in range(rows):
        for j in range(columns):
            mine = (i, j) == chosen
            place = right + j * cell, below + i * cell
            drawing.cell(*place, cell, cell, "acc" if mine else "", "c" if mine else "cell")
    drawing.box(right + column * cell, below + row * cell, cell, cell, "frame")
    drawing.text(right + columns * cell / 2, 14, "B, K × N", "middle")
    drawing.text(left + depth * cell / 2, below - 6, "A, M × K, steps 0 to 3", "middle")
    drawing.text(right + columns * cell / 2, below + rows * cell + 16, "C, M × N", "middle")
    return drawing


def grouped(sizes: tuple[int, ...] = (4, 0, 5), tile: int = 4, tiles_n: int = 2) -> Drawing:
    """Groups of rows, their matrices, and the tiles of all products in one list."""
    row, top, colors = 20, 42, "acb"
    ends = [sum(sizes[: expert + 1]) for expert in range(len(sizes))]
    drawing = Drawing(
        350,
        "The tiles of all products form one list",
        f"Three experts have {sizes[0]}, {sizes[1]} and {sizes[2]} rows, and a tile has {tile} "
        "rows and half of the columns. Expert 0 has two tiles, expert 1 none, and expert 2 four. "
        "Program t computes tile t. The rows of the last tiles behind the end are masked.",
    )
    drawing.text(4, 14, f"Three experts, offsets = {ends}, tiles of {tile} rows", "bold")
    for name, x, width in (("x", 4, 56), ("w", 84, 78), ("out", 186, 150)):
        drawing.text(x + width / 2, 35, name, "middle")
    owners: list[int] = []  # of each tile
    for expert, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        color = colors[expert]
        for r in range(end - size, end):
            drawing.box(4, top + r * row, 56, row, color)
        y = top + expert * 65
        drawing.box(84, y, 78, 50, color)
        drawing.text(84 + 39, y + 21, f"expert {expert}", "small middle")
        drawing.text(84 + 39, y + 37, f"{size or 'no'} rows", "small middle")
        for start in range(end - size, end, tile):
            high = min(tile, end - start) * row
            for column in range(tiles_n):
                x, y = 186 + column * 75, top + start * row
                if high < tile * row:
                    drawing.box(x, y, 75, tile * row, "dashed")
                    drawing.text(x + 37, y + tile * row / 2 + 14, "masked", "small middle")
                drawing.cell(x, y, 75, high, f"tile {len(owners)}", color)
                drawing.box(x, y, 75, high, "frame")
                owners.append(expert)
    bottom = top + (ends[-1] + tile - 1) * row
    drawing.text(4, bottom + 24, "Program t computes tile t:", "bold")
    cell = (WIDTH - 8) / len(owners)
    for number, expert in enumerate(owners):
        drawing.cell(4 + number * cell, bottom + 34, cell, 26, number, colors[expert])
    return drawing


def scales(rows: int = 4, part: int = 32) -> Drawing:
    """What shares a scale in a product of eight-bit matrices, and when the scales are applied."""
    size, k = 16, 2 * part  # of a row, and along K
    drawing = Drawing(
        232,
        "Scales by rows and columns, and scales by blocks",
        "Left, each row of A and each column of B has one scale, and the finished sum is "
        "multiplied by both. Right, each half of a row of A and each block of B has its own scale, "
        "so the sum over each block is multiplied before it is added.",
    )
    side, top = rows * size, 46 + 2 * part + 14
    panels = ((4, "By rows and columns"), (WIDTH - 4 - 18 - k - 12 - side, "By blocks"))
    for panel, (left, heading) in enumerate(panels):
        drawing.text(left, 14, heading, "bold")
        a, c = left + 18, left + 18 + k + 12
        for r in range(rows):
            shown = r == 1
            for part_k in range(2):
                kind = ("a", "c")[part_k] if panel else "a"
                drawing.box(
                    a + part_k * part, top + r * size, part, size, kind if shown else "cell"
                )
            if panel:
                drawing.box(left, top + r * size, 7, size, "a" if shown else "cell")
                drawing.box(left + 7, top + r * size, 7, size, "c" if shown else "cell")
            else:
                drawing.box(left, top + r * size, 14, size, "a" if shown else "cell")
        for column in range(rows):
            shown = column == 2 or panel
            for part_k in range(2):
                kind = ("a", "c")[part_k] if panel else "a"
                kind = kind if shown else "cell"
                drawing.box(c + column * size, 46 + part_k * part, size, part, kind)
            if not panel:
                drawing.box(c + column * size, 28, size, 14, "a" if shown else "cell")
        if panel:
            drawing.box(c, 28, side, 7, "a")
            drawing.box(c, 35, side, 7, "c")
        for r in range(rows):
            for column in range(rows):
                shown = r == 1 and (column == 2 or panel)
                drawing.box(c + column * size, top + r * size, size, size, "b" if shown else "cell")
        drawing.text(a + k / 2, top - 5, "A", "middle")
        drawing.text(c - 2, top + side / 2 + 4, "C", "end")
        drawing.text(c - 6, 46 + part, "B", "end")
        drawing.text(left, top - 5, "s", "")
        drawing.text(c - 6, 40, "t", "end")
        formula = "c = Σ s t (Σ a b)" if panel else "c = s t (Σ a b)"
        drawing.text(left, top + side + 20, formula)
        when = "at each block" if panel else "once, at the end"
        drawing.text(left, top + side + 36, when, "small")
    return drawing


def cache(blocks: int = 9, kept: int = 8) -> Drawing:
    """Which blocks of a row are still in the cache when it is read a second time."""
    cell, left = 36, 8
    drawing = Drawing(
        266,
        "A row that does not quite fit, read again forwards and backwards",
        f"A row has {blocks} blocks and the cache keeps {kept} of them. Read again forwards, each "
        f"miss evicts the block that is needed next, and none is found. Read backwards, {kept} are "
        "found.",
    )
    panels = [
        ("First loop", f"afterwards the last {kept} blocks are in the cache", 1),
        ("Second loop, forwards: 0 found", "each miss evicts the block needed next", 1),
        (f"Second loop, backwards: {kept} found", "only the first block was evicted", -1),
    ]
    for panel, (heading, note, direction) in enumerate(panels):
        top = 14 + panel * 90
        drawing.text(left, top, heading, "bold")
        for block in range(blocks):
            found = block >= blocks - kept and panel != 1
            x = left + block * cell
            drawing.cell(x, top + 24, cell, 24, block, "c" if found else "cell")
        ends = [left + 4, left + blocks * cell - 4][::direction]
        drawing.arrow(ends[0], top + 15, ends[1], top + 15, "strong")
        drawing.text(left, top + 64, note, "small")
    return drawing


def chunks(tokens: int = 12, chunk: int = 4) -> Drawing:
    """Which tokens meet directly, and what the state carries."""
    cell, left, top = 22, 34, 26
    drawing = Drawing(
        top + tokens * cell + 24,
        "Products within a chunk, the state between chunks",
        f"{tokens} tokens in chunks of {chunk}. Within a chunk, each token meets the tokens before "
        "it and itself in products of matrices. What earlier chunks have written reaches it "
        "through the state, which is handed on from chunk to chunk.",
    )
    drawing.text(left, 14, f"{tokens} tokens in chunks of {chunk}", "bold")
    for reads in range(tokens):
        for writes in range(reads + 1):
            same = reads // chunk == writes // chunk
            x, y = left + writes * cell, top + reads * cell
            drawing.box(x, y, cell, cell, "c" if same else "off")
    for number in range(1, tokens // chunk):
        x = left + number * chunk * cell
        y = top + number * chunk * cell
        drawing.arrow(x - 0.6 * cell, y - 2.6 * cell, x + 0.5 * cell, y - 3, "strong")
        drawing.text(x + 0.7 * cell, y - 10, "state S", "red")
    drawing.text(left + 5.4 * cell, top + 18, "blue: products in a chunk", "small")
    drawing.text(left + 5.4 * cell, top + 34, "gray: through the state", "small")
    bottom = top + tokens * cell
    drawing.text(left + tokens * cell / 2, bottom + 16, "token that writes", "small middle")
    drawing.parts.append(
        f'<text class="small middle" transform="translate({left - 10} {top + tokens * cell / 2}) '
        f'rotate(-90)">token that reads</text>'
    )
    return drawing


def segments(count: int = 4, chunks: int = 4) -> Drawing:
    """When the chunks of a text are read, in one chain and in segments."""
    cell, left, height, kinds = 20, 10, 20, ("a", "c", "b", "off")
    drawing = Drawing(
        254,
        "One chain, and segments in parallel",
        f"{count * chunks} chunks as one chain take {count * chunks} steps. In {count} segments, "
        f"the first {count - 1} are summarized at the same time in {chunks} steps, a short step "
        f"combines the summaries, and all {count} are scanned at the same time in {chunks} steps.",
    )
    drawing.text(left, 16, f"One chain of {count * chunks} chunks", "bold")
    for chunk in range(count * chunks):
        drawing.box(left + chunk * cell, 24, cell, height, kinds[chunk // chunks % 4])
    top = 96
    drawing.text(left, 76, f"{count} segments of {chunks} chunks", "bold")
    middle = left + chunks * cell
    last = middle + 2 * cell
    for segment in range(count):
        y, kind = top + segment * (height + 6), kinds[segment % 4]
        for chunk in range(chunks):
            if segment < count - 1:
                drawing.box(left + chunk * cell, y, cell, height, kind)
            drawing.box(last + chunk * cell, y, cell, height, kind)
    bottom = top + count * (height + 6) - 6
    drawing.box(middle + 10, top, cell, bottom - top)
    for x, word in ((left + 2 * cell, "summaries"), (last + 2 * cell, "scans")):
        drawing.text(x, bottom + 16, word, "small middle")
    drawing.text(middle + cell, bottom + 32, "combine", "small middle")
    drawing.line(middle + cell, bottom + 3, middle + cell, bottom + 20, "thin")
    end = left + count * chunks * cell
    drawing.arrow(left, bottom + 48, end, bottom + 48)
    drawing.text(end, bottom + 42, "time", "small end")
    for y, word in ((top + 14, "a row for each"), (top + 30, "segment")):
        drawing.text(last + chunks * cell + 8, y, word, "small")
    return drawing


FIGURES = {
    "tutorials/03-matrix-multiplication.svg": tiles,
    "tutorials/04-low-memory-dropout.svg": dropout,
    "tutorials/08-grouped-gemm.svg": grouped,
    "tutorials/09-fp8-matmul.svg": scales,
    "tutorials/10-cross-entropy.svg": cache,
    "tutorials/14-gated-delta-rule.svg": chunks,
    "tutorials/14b-segments.svg": segments,
}
