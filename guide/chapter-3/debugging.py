"""
Debugging kernels
=================

A kernel goes wrong in five ways: it gives wrong numbers, it does not compile, it crashes, it never
ends, or it is slow. No stack trace comes from inside a GPU, and what you see is often late. Each
kind of fault has a tool of its own.

Which tool?
-----------

=============================== ==========================================================
symptom                         tool
=============================== ==========================================================
wrong numbers                   a map of the errors: `Where is it wrong?`_
NaN or infinity                 the same, and a look at masks
wrong numbers, place known      :doc:`the interpreter with a debugger <wrong>`
wrong on the GPU only           :doc:`printing on the GPU, or one more output <wrong>`
different in each run           :doc:`many programs, reversed order: a race <wrong>`
different in a larger batch     :doc:`a test of bits; fixed parts <../chapter-7/invariance>`
silently wrong, cause unknown   :doc:`sanitizers, and this site's watch <sanitizers>`
``CompilationError``            :doc:`line and column of the kernel <crash>`
refused by an older release     :doc:`what is new in 3.9 <../chapter-8/new>`
``OutOfResources``              :doc:`a tile that fits the device <../chapter-7/other-gpus>`
"stream is capturing"           :doc:`what a graph forbids <../chapter-7/graphs>`
"illegal memory access"         :doc:`CUDA_LAUNCH_BLOCKING=1, then compute-sanitizer <crash>`
right here, wrong elsewhere     :doc:`compute-sanitizer: initcheck, padding <crash>`
wrong from 2³¹ elements on      :doc:`TRITON_DEBUG=1 checks offsets <crash>`
it does not end                 :doc:`faulthandler: where Python waits <crash>`
slow                            :doc:`narrow loads, missing matrix instructions, spills <slow>`
slow, and the code looks fine   :doc:`profilers <../chapter-5/profiling>`
slow at first, or now and then  :doc:`a compilation listener <slow>`
a pause while it serves         :doc:`warming up, a shipped cache <../chapter-7/serving>`
slow since an upgrade           :doc:`a sweep on both releases <../chapter-7/settings>`
slow in mxfp4                   :doc:`the instruction that was used <../chapter-7/dot-scaled>`
=============================== ==========================================================

This page finds out *where* a result is wrong. You need
:doc:`/getting-started/tutorials/03-matrix-multiplication`.
"""

# %%
# Where is it wrong?
# ------------------
#
# A kernel computes by tiles, so its faults have the shape of tiles. This matrix product can make
# four mistakes that everybody makes sooner or later:

# sphinx_gallery_thumbnail_number = 1
import os

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import ListedColormap
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


@triton.jit(do_not_specialize=["M", "N", "K"])  # one compiled kernel serves all shapes
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BUG: tl.constexpr, TILE: tl.constexpr):
    """Compute *C* = *A* *B*, row-major; each program computes several tiles."""
    across = tl.cdiv(N, TILE)
    tiles = tl.cdiv(M, TILE) * across
    a_stride = K
    if BUG == "grid":
        across = N // TILE  # rounds down
        tiles = (M // TILE) * across
    if BUG == "stride":
        a_stride = M  # rows of A have K elements
    total = tl.zeros((TILE, TILE), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile // across * TILE + tl.arange(0, TILE)[:, None]
        columns = tile % across * TILE + tl.arange(0, TILE)[None, :]
        if BUG != "accumulator":
            total = tl.zeros((TILE, TILE), tl.float32)
        for k in range(0, K, TILE):
            across_a = k + tl.arange(0, TILE)[None, :]
            down_b = k + tl.arange(0, TILE)[:, None]
            a_mask = (rows < M) & (across_a < K)
            b_mask = (down_b < K) & (columns < N)
            if BUG == "mask":
                a_mask = rows < M  # what about the end of a row?
                b_mask = columns < N
            a = tl.load(a_ptr + rows * a_stride + across_a, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + down_b * N + columns, mask=b_mask, other=0.0)
            total = tl.dot(a, b, total)
        tl.store(c_ptr + rows * N + columns, total, mask=(rows < M) & (columns < N))


# %%
# Three habits turn a wrong result into a picture:
#
# * **Fill the output with NaN.** Then a wrong element and one that was never written look
#   different. ``torch.empty`` often holds the right result of the previous run.
# * **Take small whole numbers as input.** Their sums and products are exact in floating point, in
#   any order. So compare with ``==``, without a tolerance.
# * **Take awkward shapes**: no multiple of the tile, and all dimensions different.


def whole_numbers(rows, columns, behind=4096):
    """Return a matrix of small whole numbers, with others *behind* it for a bug to read."""
    n = rows * columns
    return torch.randint(-3, 4, (n + behind,), device=DEVICE).half()[:n].view(rows, columns)


def compare(bug, M, N, K, tile=16, programs=4):
    """Return 0 where the product is right, 1 where it is wrong, 2 where it was not written."""
    torch.manual_seed(0)
    a, b = whole_numbers(M, K), whole_numbers(K, N)
    c = torch.full((M, N), float("nan"), device=DEVICE)
    matmul_kernel[(programs,)](a, b, c, M, N, K, BUG=bug, TILE=tile)
    expected = a.double().cpu() @ b.double().cpu()
    c = c.double().cpu()
    return torch.where(c.isnan(), 2, (c != expected).long())


BUGS = ("none", "grid", "stride", "accumulator", "mask")
maps = {bug: compare(bug, M=56, N=70, K=72) for bug in BUGS}
assert not maps["none"].any()

# %%
# Now draw the errors, with the borders of the tiles on top:

# sphinx_gallery_fold = "draws where results are wrong"


def draw_errors(maps, tile=16):
    """Draw what ``compare`` returned: white is right, blue wrong, hatched not written."""
    colors = ListedColormap(["#ffffff", "#1b6ca8", "#f2c6b4"])
    plt.rcParams["font.size"] = 12.5  # so that a phone can show it
    fig, axes = plt.subplots(2, 2, figsize=(5.6, 6.2), layout="constrained")
    for ax, (name, errors) in zip(axes.flat, maps.items(), strict=True):
        rows, columns = errors.shape
        ax.imshow(errors.numpy(), cmap=colors, vmin=0, vmax=2, extent=(0, columns, rows, 0))
        x, y = [0.5 + i for i in range(columns)], [0.5 + i for i in range(rows)]
        unwritten = (errors == 2).float().numpy()
        ax.contourf(x, y, unwritten, levels=[0.5, 1.5], colors="none", hatches=["////"])
        ax.vlines(range(0, columns + 1, tile), 0, rows, color="#444444", linewidth=0.8)
        ax.hlines(range(0, rows + 1, tile), 0, columns, color="#444444", linewidth=0.8)
        ax.set(title=name, xticks=range(0, columns, tile), yticks=range(0, rows, tile))
    fig.suptitle("Where C is wrong (filled),\nand where it was never written (hatched)")
    plt.show()


draw_errors({f'bug = "{bug}"': errors for bug, errors in maps.items() if bug != "none"})

# %%
# * ``"grid"``: **bands along the far edges were never written.** No program computed those tiles:
#   the number of tiles was rounded down.
# * ``"stride"``: **only the first row is right.** What is multiplied by the row number is wrong,
#   and in row 0 that does not show: the stride.
# * ``"accumulator"``: **the first tile of each of the four programs is right**, and all later tiles
#   are wrong. Something is carried over from tile to tile: the accumulator is not set to zero.
# * ``"mask"``: **everything is wrong.** Then the place says nothing, and you need other shapes.
#
# Single white elements in a wrong area are right by chance: two sums of small whole numbers are
# often equal.
#
# Which shape is wrong?
# ---------------------
#
# The first shape is one full tile, with one iteration of the loop. Each of the others adds one
# thing: a remainder in one dimension, a second iteration, more tiles than programs. A bug that
# comes and goes with one column is in the code that only this column needs.

# sphinx_gallery_fold = "tries each bug on six shapes"
shapes = {
    "one tile": (16, 16, 16),
    "M + 1": (17, 16, 16),
    "N + 1": (16, 17, 16),
    "K + 1": (16, 16, 17),
    "2 iterations": (16, 16, 32),
    "6 tiles": (32, 48, 16),
}
fingerprints = {
    bug: ["wrong" if compare(bug, *s).any() else "·" for s in shapes.values()] for bug in BUGS
}
print(tabulate([[bug, *row] for bug, row in fingerprints.items()], ["bug", *shapes]))

# %%
# ``"mask"`` fails if and only if K leaves a remainder. It reads past the end of each row, which is
# the beginning of the next row.
#
# Patterns and their causes
# -------------------------
#
# ========================================== ====================================================
# what the map shows                         what to suspect
# ========================================== ====================================================
# zeros everywhere, or nothing written       a mask that is never true, an empty grid, or a copy
#                                            that was written to (``contiguous()`` makes one)
# bands along the far edges, not written     the grid: ``//`` where ``triton.cdiv`` is needed
# bands along the far edges, wrong           a mask with the wrong size, or with ``<=``
# wrong at the near edge of later rows       a store without a mask that runs into the next row
# only row 0 or column 0 right               the stride of that dimension
# right for square shapes only               two sizes or two strides exchanged
# whole tiles, scattered                     the arithmetic from program id to tile
# the first tile of each program right       a value that is carried over from tile to tile
# everything, and only with remainders in K  a mask along the summed dimension, or its ``other``
# everything, a little, growing with K       the accumulator is too narrow, or ``tl.dot`` rounds
#                                            its inputs to TF32
# everything from element 2³¹ on             offsets that need 64 bits
# NaN where the reference has numbers        a row that is masked off altogether, as in ∞ − ∞;
#                                            0 · NaN from memory read without a mask
# another pattern with each run              a race, or uninitialized memory
# ========================================== ====================================================
#
# What to remember
# ----------------
#
# * Make it small, make it exact, fill the output with NaN, and draw where it is wrong.
# * Begin in the interpreter. A bug that it shows is real; a clean run proves nothing: :doc:`wrong`.
# * An error from the GPU comes late unless launches wait, and the process is lost after it:
#   :doc:`crash`.
# * A slow kernel can be read: its loads, its matrix instructions, its spills: :doc:`slow`.
