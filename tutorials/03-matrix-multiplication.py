"""
Matrix multiplication
=====================

Almost all the arithmetic of a neural network is matrix products, so the vendors' libraries for them
have been polished for many years. On this page you write one that stands beside such a library, in
pure Triton, one idea at a time. You will build ``matmul(a, b, activation="")`` and learn

* how a product is cut into **tiles**, and how pointers are computed in two dimensions;
* why the sum is kept in fp32 though the matrices are fp16;
* why the **order** of the tiles decides how often memory is read;
* which masks an awkward shape needs, and which it does not;
* how to **fuse** an activation into the product, and what that saves;
* what **autotuning** is, what its key is and what it costs.

You should know programs, grids, masks and ``tl.constexpr`` (:doc:`01-vector-add`).
:doc:`02-fused-softmax` helps but is not needed. The second part, :doc:`03b-full-waves`, goes on to
what decides the last fifth of the speed: waves, tensor descriptors and persistent programs.

.. ladder::
"""

# %%
# Without a GPU the first cell chooses the interpreter, and the page calculates with the numbers of
# an H200 where it needs to know how much shared memory a program can get.

# sphinx_gallery_fold = "chooses the device, brings the timing loop, the rounding and the plots"
# sphinx_gallery_thumbnail_number = 4
# sphinx_gallery_level = "first hour"
import functools
import sys  # for shared/
import time
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.gpu import SHARED_BYTES
from shared.ladder import ladder
from shared.measuring import (
    geometric_mean,
    measure,
    print_ratios,
    rates,
    significant,
    write_rows,
)
from shared.plotting import CEILING, OURS, TORCH, plot_rates
from shared.setup import DEVICE, ON_GPU

import triton
import triton.language as tl

if not ON_GPU:
    print("Kernels run on the CPU, in the interpreter")

# %%
# What PyTorch does, and what it costs
# ------------------------------------
#
# The product :math:`C = AB` of an M × K and a K × N matrix has M × N elements, each the sum of K
# products: :math:`c_{mn} = \sum_k a_{mk} b_{kn}`. The reference is one line, as ever. Count before
# you write: each of the M × N × K products takes a multiplication and an addition, and in the best
# of all worlds each matrix moves through memory once. (On this page, what is no whole number by
# nature is printed with three significant figures.)

# sphinx_gallery_fold = "multiplies with PyTorch, and counts operations and bytes"


def matmul_reference(a, b):
    """Return ``a @ b``, as PyTorch and the vendor's library compute it."""
    return torch.matmul(a, b)


def operations(m, n, k):
    """Return the floating-point operations of an m × k by k × n product."""
    return 2 * m * n * k


def least_bytes(m, n, k, element_size=2):
    """Return the bytes that such a product has to move at least: read A and B, write C."""
    return (m * k + k * n + m * n) * element_size


# %%
# .. _tiles:
# .. _the-kernel:
#
# Step 1: one tile a program
# --------------------------
#
# One element of C needs a row of A and a column of B. If every program computed one element, it
# would read 2K numbers for K products, and each row of A would be read N times. So a program
# computes a whole **tile** of C, ``BLOCK_M`` × ``BLOCK_N`` elements. It walks along K in steps of
# ``BLOCK_K``. At each step it loads a ``BLOCK_M`` × ``BLOCK_K`` tile of A and a ``BLOCK_K`` ×
# ``BLOCK_N`` tile of B; ``tl.dot`` multiplies the two and adds the result to the tile of C that
# the program keeps in registers. Now each number of A that is loaded is used ``BLOCK_N`` times, and
# each number of B ``BLOCK_M`` times.
#
# To begin with, let the matrices be contiguous, and let tiles fit in without a rest.


@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = A @ B."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        steps = k + tl.arange(0, BLOCK_K)  # [BLOCK_K]
        a = tl.load(a_ptr + rows[:, None] * K + steps[None, :])  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptr + steps[:, None] * N + columns[None, :])  # [BLOCK_K, BLOCK_N]
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty))


def matmul_by_tiles(a, b, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, **launch):
    """Return ``a @ b`` for contiguous matrices whose sizes are multiples of the tile's."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    tile_kernel[M // BLOCK_M, N // BLOCK_N](a, b, c, N, K, BLOCK_M, BLOCK_N, BLOCK_K, **launch)
    return c


a = torch.randn(128, 96, device=DEVICE, dtype=torch.float16)
b = torch.randn(96, 192, device=DEVICE, dtype=torch.float16)
torch.testing.assert_close(matmul_by_tiles(a, b), matmul_reference(a, b), atol=1e-2, rtol=1e-3)
print("128 × 96 by 96 × 192: as PyTorch, up to rounding")

# %%
# ``tl.program_id(1)``
#     The grid has two axes now: the first number of a program chooses its rows, the second its
#     columns.
# ``rows[:, None] * K + steps[None, :]``
#     Offsets in two dimensions. Element (i, j) of a contiguous matrix with K columns lies ``i * K
#     + j`` elements behind the first one. A column of row offsets plus a row of column offsets
#     broadcasts to a whole tile of offsets, just as in PyTorch.
# ``tl.dot``
#     Multiplies two tiles on the **tensor cores**, the part of the GPU that multiplies small
#     matrices in hardware (AMD calls them matrix cores), and adds the result to ``acc``.
# the loop
#     It is written as if each load were waited for. The compiler makes a **pipeline** of it: it
#     starts the loads of the coming steps while the tensor cores multiply. How many steps ahead
#     is up to you: ``num_stages`` tiles of A and B are kept in shared memory, the fast memory
#     inside each processor.
#
# Here is one program: its tile of C, and which tiles of A and B it reads for it, step by step.

# sphinx_gallery_fold = "draws the tiles that one program reads"


def draw_tiles():
    """Draw which tiles of A and B one program reads for its tile of C, and in which steps."""
    fig, axes = plt.subplots(1, 3, figsize=(7, 3))
    titles = ("A: M × K", "B: K × N", "C: M × N")
    shapes = ((4, 6), (6, 5), (4, 5))  # in tiles
    marked = ([(1, k) for k in range(6)], [(k, 3) for k in range(6)], [(1, 3)])
    for ax, title, (rows, columns), tiles in zip(axes, titles, shapes, marked, strict=True):
        for row in range(rows):
            for column in range(columns):
                on = (row, column) in tiles
                style = {"facecolor": "#cfe3f1" if on else "white", "edgecolor": "#999999"}
                ax.add_patch(plt.Rectangle((column, row), 1, 1, **style))
        for step, (row, column) in enumerate(tiles):
            text = "tile" if len(tiles) == 1 else f"{step}"
            ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=12)
        ax.set(xlim=(-0.1, 6.1), ylim=(6.1, -0.1), title=title, aspect="equal")
        ax.axis("off")
    fig.suptitle("One program: its tile of C, and the step at which it reads each tile", y=0.98)
    fig.tight_layout()
    plt.show()


draw_tiles()

# %%
# What limits a product, bringing numbers or multiplying them? Count, for square matrices:

# sphinx_gallery_fold = "prints operations and bytes for three sizes"

counts = []
for n in (256, 1024, 4096):
    ops, moved = operations(n, n, n), least_bytes(n, n, n)
    counts.append((n, *map(significant, (ops / 1e9, moved / 1e6, ops / moved))))
headers = ["M = N = K", "Gflop", "MB (fp16)", "flop per byte"]
print(tabulate(counts, headers, disable_numparse=True, stralign="right"))

# %%
# Operations grow with the cube of the size, bytes with its square: memory need not be the limit any
# more, as long as each byte is *used* hundreds of times once it is on the chip. Large products are
# **compute-bound**, so their speed is given in operations per second (a TFLOPS is 10¹² of them in
# a second), and the yardstick is the vendor's library, which PyTorch calls for you: cuBLAS on an
# NVIDIA GPU, rocBLAS or its relatives on an AMD one.
#
# Why is ``acc`` fp32? An fp16 number has 11 significant bits. Once a sum is 2048 times as large as
# what is added to it, adding changes nothing at all:

total = torch.tensor(0, dtype=torch.float16)
for _ in range(4096):
    total += torch.tensor(1, dtype=torch.float16)
print("1 + 1 + … + 1, 4096 times, kept in fp16:", int(total))

# %%
# Tensor cores can take fp16 numbers and add up their products in fp32. On the GPUs of data centres
# that costs nothing but registers; some others are slower at it, which a right result is worth. The
# sum is rounded to fp16 once, at the very end.
#
# .. _the-order-of-the-tiles:
#
# Step 2: tiles in groups
# -----------------------
#
# In which order should the programs take the tiles? A grid is started with its first axis running
# fastest, so the first programs take the tiles of one column of C, one below the other. But a GPU
# runs many programs at the same time, and those that run together share the L2 cache: if several
# of them need a tile of A or B, it is fetched from memory once, and then it is there. So programs
# that run at the same time should need the *same* tiles.
#
# Here is an order with a choice: it takes ``group`` rows of tiles together and goes through the
# group column by column. With ``group=1`` it is plain row-major order. This is plain Python, and
# ``triton.jit`` makes a function for kernels out of the very same lines.

from shared.matmul import tile_position, tile_position_in_kernel

# %%
# (Elsewhere this is called *swizzling*. You may also meet it without the first of the two ``%`` in
# the row, which is as good: as many numbers in a row as the group has rows leave all remainders, if
# in another order.) There are nine by nine tiles here, and nine programs run at the same time, one
# **wave** of them after the other. Count the tiles of A and of B that a wave needs:
#
# .. tile-order::
#    :size: 9
#    :group: 3
#    :processors: 9

# sphinx_gallery_fold = "draws the first nine programs of both orders, and counts"
# sphinx_gallery_fold_output = True


def draw_order(group, count=9, size=9):
    """Draw which tiles the first *count* programs read and write; return how many they read."""
    positions = [tile_position(i, size, size, group) for i in range(count)]
    rows = {row for row, _ in positions}
    columns = {column for _, column in positions}
    reads = (len(rows) + len(columns)) * size
    fig, axes = plt.subplots(1, 3, figsize=(7, 3))
    pictures = (
        (f"A: {len(rows) * size} tiles read", lambda row, column: row in rows, "#cfe3f1"),
        (f"B: {len(columns) * size} tiles read", lambda row, column: column in columns, "#f5cdd3"),
        ("C: tile by program", lambda row, column: (row, column) in positions, "#dddddd"),
    )
    for ax, (title, is_on, colour) in zip(axes, pictures, strict=True):
        for row in range(size):
            for column in range(size):
                style = {"facecolor": colour if is_on(row, column) else "white"}
                ax.add_patch(plt.Rectangle((column, row), 1, 1, edgecolor="#999999", **style))
        ax.set(xlim=(-0.1, size + 0.1), ylim=(size + 0.1, -0.1), aspect="equal")
        ax.set_title(title)
        ax.axis("off")
    for program, (row, column) in enumerate(positions):
        axes[2].text(column + 0.5, row + 0.5, program, ha="center", va="center", fontsize=12)
    order = "row by row" if group == 1 else f"in groups of {group} rows"
    fig.suptitle(f"The first {count} programs {order}: {reads} tiles read", y=0.98)
    fig.tight_layout()
    plt.show()
    return reads


reads = {group: draw_order(group) for group in (1, 3)}
print("tiles read for the first 9 outputs:", reads)

# %%
# Row by row (or column by column, as in step 1), nine programs need one row of A and *all* of B: 9
# + 81 = 90 tiles. Three by three they need three rows of A and three columns of B: 27 + 27 = 54.
# Same work, same results, and the memory has to deliver three fifths as much. The larger the
# matrices, the more it matters: as soon as B no longer fits into the L2 cache, row-major order
# fetches it from memory over and over.
#
# In the kernel, only the first lines change: the grid has one axis again, and the number of the
# program becomes the position of its tile.

# sphinx_gallery_difference = "tile_kernel"


@triton.jit
def grouped_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = A @ B; neighbours in number are neighbours in C."""
    row, column = tile_position_in_kernel(tl.program_id(0), M // BLOCK_M, N // BLOCK_N, GROUP)
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        steps = k + tl.arange(0, BLOCK_K)  # [BLOCK_K]
        a = tl.load(a_ptr + rows[:, None] * K + steps[None, :])  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptr + steps[:, None] * N + columns[None, :])  # [BLOCK_K, BLOCK_N]
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty))


def matmul_by_groups(a, b, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, **launch):
    """Return ``a @ b`` for contiguous matrices whose sizes are multiples of the tile's."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (M // BLOCK_M * (N // BLOCK_N),)
    grouped_kernel[grid](a, b, c, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP=8, **launch)
    return c


torch.testing.assert_close(matmul_by_groups(a, b), matmul_reference(a, b), atol=1e-2, rtol=1e-3)
print("the same product in groups: as PyTorch, up to rounding")

# %%
# Step 3: any shape, any strides
# ------------------------------
#
# M, N and K need not be multiples of the tile, and a matrix need not be contiguous: a transposed or
# sliced one has other **strides**, the distances between neighbours in a column and in a row.
# Three things are new in this kernel.
#
# * **Strides** come from the tensor, so that no view needs a copy or another kernel. The pointers
#   are made once, and in each step they move on by ``BLOCK_K``.
# * **Masks.** A tile may stick out. Where it does, the addresses are not ours to read, so *every*
#   load has to be masked. What the masked elements *are* is another question. Rows beyond M and
#   columns beyond N only reach elements of C that do not exist, which the mask of the *store*
#   throws away: any value would do. What lies beyond K is added to *every* element, so it has to be
#   zero (``other=0.0``), in A as well as in B, since zero times whatever else lies there (it could
#   be infinity) need not be zero. Other kernels have no masks along M and N, but take the rows
#   *modulo* M, as Triton's own tutorial does: a tile that sticks out goes on with the first rows,
#   its products with them are wrong, and are not stored. That saves masks, and hides from the
#   compiler that rows follow each other.
# * **64 bits.** A matrix can have more than 2³¹ elements, and then its offsets need more than 32.
#
# If all three sizes *are* multiples of the tile, all masks are true, and the ``constexpr`` ``EVEN``
# makes a second version of the kernel without them.

# sphinx_gallery_difference = "grouped_kernel"


@triton.jit
def any_shape_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = A @ B, from pointers and strides."""
    row, column = tile_position_in_kernel(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    rows = row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    steps = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + rows[:, None] * stride_am + steps[None, :] * stride_ak  # BLOCK_M × BLOCK_K
    b_ptrs = b_ptr + steps[:, None] * stride_bk + columns[None, :] * stride_bn  # BLOCK_K × BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN:  # no tile sticks out, so no masks
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a_mask = (rows[:, None] < M) & (steps[None, :] < K - k)
            b_mask = (steps[:, None] < K - k) & (columns[None, :] < N)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_ak
        b_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_bk
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


# %%
# (``input_precision="ieee"`` matters for fp32 matrices only. By default, ``tl.dot`` rounds fp32
# inputs to tf32, which keeps 11 bits, and gives them to the tensor cores: fast, and four decimal
# digits poorer. PyTorch does not do that unless you ask for it, so neither do we.)
#
# How small may a tile be? On NVIDIA's GPUs ``tl.dot`` refuses a tile of fewer than 16 elements
# along K, or of 32 if they have 8 bits: *Input shapes should have M >= 1, N >= 1 and K >= 16*. Fill
# such a tile up with zeros by a mask; they change no sum. Along M and N it takes a single row, but
# the tensor cores multiply no fewer elements for it. A matrix times one vector needs none of them:
# ``tl.sum(a * x[None, :], axis=1)``. It is limited by memory in any case.
#
# .. _fusing-an-activation:
#
# Step 4: an activation in the same kernel
# ----------------------------------------
#
# In a network, a product is rarely alone: its result goes through an activation, here *LeakyReLU*,
# which multiplies negative numbers by 0.01 and leaves the others as they are. As an operation of
# its own, the activation reads C from memory and writes it back, for one comparison and one
# multiplication an element. In the kernel it can work on the accumulator, which is in registers
# anyway, *before* the sum is rounded to fp16. That costs a few instructions and no byte, and it is
# a little more precise than rounding twice.

from shared.matmul import apply_activation

# %%
# One argument more, and one line more:

# sphinx_gallery_difference = "any_shape_kernel"


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = activation(A @ B), from pointers and strides."""
    row, column = tile_position_in_kernel(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    rows = row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    steps = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + rows[:, None] * stride_am + steps[None, :] * stride_ak  # BLOCK_M × BLOCK_K
    b_ptrs = b_ptr + steps[:, None] * stride_bk + columns[None, :] * stride_bn  # BLOCK_K × BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN:  # no tile sticks out, so no masks
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a_mask = (rows[:, None] < M) & (steps[None, :] < K - k)
            b_mask = (steps[:, None] < K - k) & (columns[None, :] < N)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_ak
        b_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_bk
    acc = apply_activation(acc, ACTIVATION)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


# %%
# .. _a-plan:
#
# Step 5: a tile for each size
# ----------------------------
#
# How large should a tile be? A step loads ``(BLOCK_M + BLOCK_N) * BLOCK_K`` numbers and does
# ``BLOCK_M * BLOCK_N * BLOCK_K`` products with them: with a tile twice as wide in both directions,
# each number is used twice as often. Small tiles starve the tensor cores, because the data does not
# arrive in time. On the other hand, the tile of C lives in registers, as 4-byte numbers, and there
# are only so many: 128 × 256 of them are 128 KiB, spread over the threads of one program. (Some of
# the newest GPUs have a memory just for such tiles, no larger than the registers.) Deep pipelines
# and large tiles compete for shared memory. And large tiles are *few*: a product of small matrices
# has too few of them to give every processor one.
#
# So the launcher takes a **plan**: the shape of the tile, the number of warps, and the stages of
# the pipeline.


def launch_pointers(plan, a, b, c, activation):
    """Launch ``matmul_kernel``: one program for each tile of *c*."""
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, plan.block_m) * triton.cdiv(N, plan.block_n),)
    even = M % plan.block_m == 0 and N % plan.block_n == 0 and K % plan.block_k == 0
    matmul_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, BLOCK_K=plan.block_k,
        GROUP=plan.group, EVEN=even, ACTIVATION=activation,
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


# %%
# .. _choosing-by-trying-autotuning:
#
# Choosing by trying: autotuning
# ------------------------------
#
# Which plan is best? Nobody can tell exactly: it depends on the GPU, the compiler and the shape. So
# one can *try*. ``triton.autotune`` wraps a kernel with a list of configurations. When the kernel
# is called, it looks at the arguments named in ``key``; where their values are new, it compiles
# every configuration, times each of them, and remembers the best for these values.

tiles = [(64, 32, 128, 4), (64, 64, 128, 4), (64, 128, 64, 4), (128, 128, 64, 8)]
configs = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=4)
    for m, n, k, warps in tiles
    if 4 * (m + n) * k * 2 <= SHARED_BYTES  # four stages of fp16 tiles have to fit
]
tuned_kernel = triton.autotune(configs, key=["M", "N", "K"])(matmul_kernel)

# %%
# Two calls with the same shape, timed from outside:

# sphinx_gallery_fold = "times the first and the second call, and prints what was chosen"


def call_tuned(n):
    """Multiply two n × n matrices with the tuned kernel, and wait for the result."""
    a = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
    c = torch.empty_like(a)
    torch.accelerator.synchronize()
    start = time.perf_counter()
    tuned_kernel[lambda meta: (n // meta["BLOCK_M"] * (n // meta["BLOCK_N"]),)](
        a, a, c, n, n, n, n, 1, n, 1, n, 1, GROUP=8, EVEN=True, ACTIVATION=""
    )
    torch.accelerator.synchronize()
    return time.perf_counter() - start


if ON_GPU:
    tuning = [call_tuned(1024) for _ in range(2)]
    for which, seconds in zip(("first", "second"), tuning, strict=True):
        print(f"{which + ' call:':12s} {significant(seconds * 1e3):>7} ms")
    best = tuned_kernel.best_config
    print(f"{len(configs)} tried; chosen: {best.kwargs}, {best.num_warps} warps")
else:
    print("The interpreter compiles nothing and times nothing: autotuning needs a GPU.")

# %%
# The first call pays, all others only look the answer up. It costs a compilation and a timing for
# each configuration. The compiled kernels are kept, but the timings are paid again for **every new
# key**. With the shape in the key, a program whose shapes change all the time spends its life
# tuning; without it, one shape decides for all others. A list pruned to few configurations helps.
# So does knowing *why* one configuration beats another: then you can do without trying.
#
# They are paid again in every new process, too, unless ``cache_results=True`` (or
# ``TRITON_CACHE_AUTOTUNING=1``) saves them to disk, beside the compiled kernels;
# ``TRITON_PRINT_AUTOTUNING=1`` prints what was chosen. And the trials are real: each runs many
# times *on your tensors*. Ours only writes C, so the last one is right. A kernel that works in
# place, or adds to its output, gives a wrong result the first time, and a right one ever after,
# unless ``restore_value=["x_ptr"]`` puts back what was there. (``reset_to_zero=["sum_ptr"]`` clears
# a tensor before each trial, but not in the calls that follow: clear it yourself as well.)
#
# .. _choosing-by-thinking-waves:
# .. _tensor-descriptors:
# .. _persistent-programs:
# .. _all-plans:
#
# Choosing by thinking: the second part
# -------------------------------------
#
# It is possible to know. :doc:`03b-full-waves` counts the **waves** in which the programs of a
# product run, and comes to a list of a dozen plans and a rule that picks one of them from the
# shape. Where the GPU has **tensor descriptors**, hardware that fetches whole tiles, most of these
# plans use a second kernel, in which **persistent** programs compute several tiles each. Here we
# take plans, rule and kernel from there, folded: ``choose_plan(a, b)`` returns a plan, and
# ``launch_descriptors`` is to the second kernel what ``launch_pointers`` is to ours.

# sphinx_gallery_fold = "brings the plans, the rule and the kernel of the second part"
from shared.matmul import (
    POINTER_PLANS,
    Plan,
    choose_plan,
    fit,
    launch_descriptors,
)

# %%
# .. _the-launcher:
#
# The launcher
# ------------
#
# What is left is the function for users: check the arguments, choose the plan, run it. (As on the
# pages before, the result carries no gradient. :doc:`04-low-memory-dropout` shows how to add one.)

# sphinx_gallery_fold = "checks the arguments, and names the one that is wrong"


def check_arguments(a, b, activation):
    """Raise TypeError or ValueError, naming the argument, where ``matmul`` cannot go on."""
    for name, t in (("a", a), ("b", b)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in DTYPES:
            expected = "float16, bfloat16 or float32"
            raise TypeError(f"{name} must be {expected}, but its dtype is {t.dtype}")
        if t.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, but has shape {tuple(t.shape)}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
    if a.dtype != b.dtype:
        raise TypeError(f"a and b must have one dtype, but have {a.dtype} and {b.dtype}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a must have as many columns as b has rows: {tuple(a.shape)} × {tuple(b.shape)}"
        )
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, but is {activation!r}")


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = ("", "leaky_relu")

# %%

# sphinx_gallery_fold = "runs a plan"
# sphinx_gallery_show = "matmul"


def run_plan(plan, a, b, activation=""):
    """Return ``activation(a @ b)``, computed by *plan*. The arguments must have been checked."""
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    if c.numel():  # otherwise there is nothing to compute
        launch = launch_descriptors if plan.descriptors else launch_pointers
        launch(plan, a, b, c, activation)
    return c


def matmul(a, b, activation=""):
    """Return ``activation(a @ b)``.

    The sum is kept in fp32 and rounded once, to the dtype of the inputs. fp32 inputs are
    multiplied as they are, not rounded to tf32.

    Args:
        a: Matrix of shape (M, K) in fp16, bf16 or fp32, with any strides.
        b: Matrix of shape (K, N), of the same dtype and on the same device, with any strides.
        activation: "" for none, or "leaky_relu" (slope 0.01 below zero).

    Raises:
        TypeError: An argument is no tensor, or the dtypes do not fit.
        ValueError: The shapes or devices do not fit, or the activation is unknown.
    """
    check_arguments(a, b, activation)
    return run_plan(choose_plan(a, b), a, b, activation)


# %%
# Is it right?
# ------------
#
# The reference is computed in float64, so that it is the reference and not another rounding. How
# close must a result be? It is rounded once to its own dtype, which is a *relative* error of at
# most half a unit in the last place. The fp32 sum before that has an error of its own, which grows
# with K and with the size of the products. Where positive and negative products cancel, the result
# is small and this error is not: it is an *absolute* one. Hence two tolerances.

# sphinx_gallery_fold = "compares with float64, with a relative and an absolute tolerance"


def check(a, b, activation="", got=None):
    """Raise AssertionError where *got* (or what ``matmul`` gives) is not right."""
    got = matmul(a, b, activation) if got is None else got
    expected = a.double() @ b.double()
    if activation == "leaky_relu":
        expected = torch.nn.functional.leaky_relu(expected)
    rounding = torch.finfo(a.dtype).eps  # one unit in the last place
    summing = 2**-20 * a.shape[1]  # K times four bits more than fp32 rounds away
    torch.testing.assert_close(got.double(), expected, rtol=rounding, atol=summing)


# %%
# Shapes that nothing divides, dtypes, and matrices that are views:

# sphinx_gallery_fold = "checks shapes, dtypes, views, steps and plans"

torch.manual_seed(0)
shapes = [(123, 77, 45), (64, 256, 128), (4, 0, 3), (3, 2, 0)]
shapes += [(1823, 781, 517), (2176, 1920, 256)] if ON_GPU else [(1, 1, 1), (5, 7, 3)]
for M, N, K in shapes:
    a = torch.randn(M, K, device=DEVICE, dtype=torch.float16)
    b = torch.randn(K, N, device=DEVICE, dtype=torch.float16)
    check(a, b)
    if (M, N, K) in (shapes[0], shapes[-1]):
        check(a, b, "leaky_relu")
print(f"matmul is right on {len(shapes)} shapes")

a = torch.randn(123, 45, device=DEVICE)
b = torch.randn(45, 77, device=DEVICE)
dtypes = [torch.float32, torch.float16]
if ON_GPU:
    dtypes.append(torch.bfloat16)  # the interpreter computes it wrongly
for dtype in dtypes:
    check(a.to(dtype), b.to(dtype))
a, b = a.half(), b.half()
check(a.T.contiguous().T, b.T.contiguous().T)  # the same matrices, stored by columns
# Every second row, and a matrix that starts in the middle of another:
check(a[::2, 1:], b[1:], "leaky_relu")
print(f"matmul is right for {len(dtypes)} dtypes, and for matrices that are views")

M, N, K = (1920, 2048, 256) if ON_GPU else (128, 256, 128)
a = torch.randn(M, K, device=DEVICE, dtype=torch.float16)
b = torch.randn(K, N, device=DEVICE, dtype=torch.float16)
stages = max(1, min(4, (SHARED_BYTES - 1024) // (2 * (128 + 128) * 64)))
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": stages}
TILE_PLAN = fit(Plan(128, 128, 64, warps=8, stages=4))
for step in (matmul_by_tiles, matmul_by_groups):
    check(a, b, got=step(a, b, **TILE))
for plan in [TILE_PLAN, *(plan for plan in POINTER_PLANS if ON_GPU)]:
    check(a, b, got=run_plan(plan, a, b))
print(f"so are the steps, and the plans with pointers, on {M} × {K} by {K} × {N}")

# %%
# And the errors, each with what it was given:

# sphinx_gallery_fold = "tries what has to be refused"
# sphinx_gallery_fold_output = True

for wrong in (b.double(), b.to(torch.float32), b[0], b.T, b.cpu().numpy()):
    try:
        matmul(a, wrong)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("matmul should have refused this")

# %%
# The benchmark
# -------------
#
# Square fp16 matrices from 256 to 4096, in steps of 128, because the steps show what powers of
# two hide. Four things are timed at each size: our product and the library's, and the same with
# LeakyReLU, fused by us and as a second operation after the library's product. At a few sizes, the
# steps of this page are timed as well, all with tiles of 128 × 128, to see what each idea brought.
#
# As on the pages before, events take the time on the GPU, every call starts with a cold L2 cache,
# and all take turns, in a new order each time: :doc:`/programming-guide/chapter-4/measuring` shows
# what goes wrong otherwise.

# sphinx_gallery_fold = "times the products, and keeps the rows"

LIBRARY = "rocblas" if torch.version.hip else "cublas"
PROVIDERS = ("triton", LIBRARY, "triton + leaky_relu", f"{LIBRARY} + leaky_relu")
STEPS = ("1 tiles", "2 groups", "3 any shape", "4 + leaky_relu")


def steps_of_this_page(a, b):
    """Return {step: call} for the way this page has gone, with one tile for all sizes."""
    calls = (
        functools.partial(matmul_by_tiles, a, b, **TILE),
        functools.partial(matmul_by_groups, a, b, **TILE),
        functools.partial(run_plan, TILE_PLAN, a, b),
        functools.partial(run_plan, TILE_PLAN, a, b, "leaky_relu"),
    )
    return dict(zip(STEPS, calls, strict=True))


def benchmark(sizes, step_sizes):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    leaky_relu = torch.nn.functional.leaky_relu
    rows = []
    for n in sizes:
        a = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
        b = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
        calls = {
            PROVIDERS[0]: functools.partial(matmul, a, b),
            PROVIDERS[1]: functools.partial(matmul_reference, a, b),
            PROVIDERS[2]: functools.partial(matmul, a, b, "leaky_relu"),
            PROVIDERS[3]: lambda a=a, b=b: leaky_relu(matmul_reference(a, b)),
        }
        if n in step_sizes:
            calls |= steps_of_this_page(a, b)
        for provider, ms in measure(calls).items():
            tflops = rates(ms, operations(n, n, n) / 1e3)
            rows.append((n, n, n, provider, "TFLOPS", *tflops))
    return rows


SIZES = [128 * i for i in range(2, 33)]
STEP_SIZES = [512, 1024, 1536, 2048, 3072, 4096]

if ON_GPU:
    rows = benchmark(SIZES, STEP_SIZES)
    write_rows("matmul-performance-fp16.csv", ["M", "N", "K"], rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# All rows are in the CSV file; every third size, with the ratios, is in this fold:

# sphinx_gallery_fold = "prints the rates at every third size"
# sphinx_gallery_fold_output = True


def medians(rows):
    """Return {(N, provider): median}."""
    return {(n, provider): median for n, _, _, provider, _, median, _, _ in rows}


def print_table(rows, sizes):
    """Print the medians and the two ratios at *sizes*."""
    rate = medians(rows)
    table = []
    for n in sizes:
        ours, library, fused, unfused = (rate[n, provider] for provider in PROVIDERS)
        measured = (ours, library, ours / library, fused, unfused, fused / unfused)
        table.append((n, *map(significant, measured)))
    headers = ["M=N=K", "triton", LIBRARY, "ratio"]
    headers += [f"{header}\n+ leaky" for header in headers[1:]]
    print(f"TFLOPS, higher is better; ratios are triton / {LIBRARY}")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    print_table(rows, SIZES[::3])
else:
    print("No table without a GPU.")

# %%
# All sizes as a picture. The dashed line is the library: it is what you would call instead, and as
# close to a ceiling as one can get by measuring. Bands reach from the 20th to the 80th percentile.

# sphinx_gallery_fold = "plots the rates, without and with the activation"


def plot_products(rows, labels, title):
    """Draw rate over size for the providers in *labels*, {provider: (label, style)}."""
    fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
    lines = {
        label: (style, [(row[0], *row[5:]) for row in rows if row[3] == provider])
        for provider, (label, style) in labels.items()
    }
    plot_rates(ax, lines, title, "M = N = K", "TFLOPS")
    fig.legend(loc="outside lower center")
    plt.show()


PLAIN = {
    "triton": ("triton", OURS),
    LIBRARY: (f"{LIBRARY} (ceiling and best alternative)", CEILING),
}
FUSED = {
    PROVIDERS[2]: (f"{PROVIDERS[2]}, fused", OURS),
    PROVIDERS[3]: (f"{PROVIDERS[3]} (best alternative)", TORCH),
    LIBRARY: (f"{LIBRARY} without leaky_relu (ceiling)", CEILING),
}
if ON_GPU:
    plot_products(rows, PLAIN, "Matrix product in fp16")
    plot_products(rows, FUSED, "Matrix product + LeakyReLU in fp16")
else:
    print("No plot without a GPU.")

# %%
# What did each idea bring? Here are the steps of this page below each other, at some of the sizes,
# and under them ``matmul``, which has a plan for each size, and the library. The last column
# compares each with the first line, at the largest size.

# sphinx_gallery_fold = "prints the steps at some sizes, and at one that no cache holds"
# sphinx_gallery_fold_output = True


def print_steps(rate, names, sizes):
    """Print the rates {(N, provider): TFLOPS} of *names*, and their ratios at the last size."""
    n, first = sizes[-1], names[0]
    table = []
    for name in names:
        measured = [*(rate[n, name] for n in sizes), rate[n, name] / rate[n, first]]
        table.append((name, *map(significant, measured)))
    headers = ["M=N=K", *map(str, sizes), f"/ line 1\nat {n}"]
    align = {"stralign": "right", "colalign": ["left"]}
    print("TFLOPS, higher is better")
    print(tabulate(table, headers, disable_numparse=True, **align))


if ON_GPU:
    rate = medians(rows)
    print_steps(rate, [*STEPS, *PROVIDERS[:2]], [n for n in STEP_SIZES if n != 1024])
    # As long as the L2 cache holds both matrices, the order of the tiles can hardly matter.
    n = 8192
    a = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
    b = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
    times = measure(steps_of_this_page(a, b), rounds=10)
    large = {(n, name): rates(ms, operations(n, n, n) / 1e3) for name, ms in times.items()}
    large_rate = {key: median for key, (median, _, _) in large.items()}
    print()
    print_steps(large_rate, STEPS, [n])
else:
    print("No table without a GPU.")

# %%
# The ladder at the top of this page leads from the first step to the plans of the second part:

# sphinx_gallery_fold = "prints the ladder"
# sphinx_gallery_fold_output = True

if ON_GPU:
    n = 4096
    changes = {
        "Step 1: one tile a program": ("128 × 128 elements of C a program", "1 tiles"),
        "Step 2: tiles in groups": ("neighbours share what they read", "2 groups"),
        "Step 3: any shape, any strides": ("masks, strides, 64 bits", "3 any shape"),
        "Step 4: an activation in the same kernel": ("LeakyReLU as well", "4 + leaky_relu"),
        "Step 5: a tile for each size": ("a plan of the second part", "triton"),
    }
    rungs = [(step, change, rate[n, name]) for step, (change, name) in changes.items()]
    ladder(rungs, (LIBRARY, rate[n, LIBRARY]), "TFLOPS", f"M = N = K = {n}, fp16")
else:
    print("No ladder without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **The left end.** A product of 256 × 256 matrices has too little work for a large GPU. If every
# processor is to have something to do, the tiles must be so small that loading takes longer than
# multiplying, and after a few steps along K it is all over. What you see is mostly what it takes
# to launch a kernel and to fetch the first tiles from memory. The plan for such sizes is small
# tiles, and as many bytes under way at once as possible.
#
# **The saw-tooth in the middle.** Programs run in waves, as many at a time as there are processors.
# Whenever the tiles need one wave more, the rate drops, and it recovers as that wave fills up. The
# library has to fill its waves as well, but its tiles are others, so it has its teeth at other
# sizes. That is why the ratio of the two goes up and down. :doc:`03b-full-waves` is all about it.
#
# **The right end.** With every wave more, the last one counts less, and the teeth get smaller.
# Where the waves are full, the tensor cores are busy most of the time, and the rate is what the
# chip can sustain. That can be less than its data sheet says: when all tensor cores work, many GPUs
# reach their power limit and lower their clocks. (Where a kernel of your own stays far below that,
# :doc:`/programming-guide/chapter-5/profiling` finds what it waits for.)
#
# **The activation.** The second operation of the unfused version costs a launch, and a trip of C
# from memory and back. The larger K is, the less that weighs beside the product. For small
# matrices it weighs a lot.
#
# **The steps.** Masks, strides and 64-bit offsets are paid for where they are needed. Where all
# sizes are multiples of the tile, the version of the kernel without masks runs. And one tile for
# all sizes is too large for small products, and for large ones it may be too small.
#
# What the run showed
# -------------------
#
# The ratios over all sizes, and what this page has claimed, each beside the limit that it must
# keep:

# sphinx_gallery_fold = "computes the ratios and the claims"

if ON_GPU:
    pairs = {f"triton / {LIBRARY}": PROVIDERS[:2], "both + leaky_relu": PROVIDERS[2:]}
    pairs["triton / step 3"] = "triton", STEPS[2]
    print_ratios(rate, pairs)
    print()

    def mean_ratio(ours, other, sizes):
        """Return the geometric mean of the ratio of two providers over *sizes*."""
        return geometric_mean(rate[n, ours] / rate[n, other] for n in sizes)

    scatter = spread(rows[-8:])
    claim(
        "of a sum of 4096 ones, fp16 keeps a half",
        total.item() / 4096, at_most=0.5, section="Step 1: one tile a program",
    )  # fmt: skip
    claim(
        "tiles in groups are no slower than column by column at M = N = K = 8192",
        large_rate[8192, STEPS[1]] / large_rate[8192, STEPS[0]], at_least=0.98,
        spread=spread([v for (_, name), v in large.items() if name in STEPS[:2]]),
        section="Step 2: tiles in groups",
    )  # fmt: skip
    claim(
        "where nothing sticks out, generality costs less than a tenth, on average",
        mean_ratio(STEPS[2], STEPS[1], STEP_SIZES), at_least=0.9, spread=scatter,
        section="Step 3: any shape, any strides",
    )  # fmt: skip
    claim(
        "a fused LeakyReLU costs less than a tenth of the product, on average",
        mean_ratio(STEPS[3], STEPS[2], STEP_SIZES), at_least=0.9, spread=scatter,
        section="Step 4: an activation in the same kernel",
    )  # fmt: skip
    claim(
        f"fused beats {LIBRARY} and an activation after it, on average over all sizes",
        mean_ratio(*PROVIDERS[2:], SIZES), at_least=1.0, spread=scatter,
        section="Step 4: an activation in the same kernel",
    )  # fmt: skip
    claim(
        "a plan for each size beats one tile for all, on average over the steps' sizes",
        mean_ratio("triton", STEPS[2], STEP_SIZES), at_least=1.05, spread=scatter,
        section="Step 5: a tile for each size",
    )  # fmt: skip
    claim(
        "the first call of an autotuned kernel takes over a hundred times as long as the next",
        tuning[0] / tuning[1], at_least=100, section="Choosing by trying: autotuning",
    )  # fmt: skip
    claim(
        f"matmul reaches nine tenths of {LIBRARY} and more, on average over all sizes",
        mean_ratio(*PROVIDERS[:2], SIZES), at_least=0.9, spread=scatter,
        section="How to read the curves",
    )  # fmt: skip
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * A tile of C stays in registers while tiles of A and B stream past. The larger the tile, the more
#   often each number is used, and the fewer tiles there are.
# * Sum in fp32, round once.
# * Programs that run together should need the same data: the order of the tiles is free, use it.
# * A load that sticks out needs a mask, since the address is not yours. Only along K does it matter
#   what a masked element is: it must be zero.
# * Whatever happens to C next, do it while C is still in registers.
# * Trying out plans costs a compilation each, and the timing again for every new key.
#
# Exercises
# ---------
#
# 1. **A linear layer.** Add a bias to every row before the activation, inside of the kernel, and
#    let the activation be ReLU or GELU as well. What does each cost?
#    :doc:`Solution <solutions/03-linear-layer>`.
# 2. **A batch.** Multiply many pairs of small matrices with one launch. Where does the batch go in
#    the grid, and what is gained? :doc:`Solution <solutions/03-batched>`.
#
# References
# ----------
#
# * Kazushige Goto and Robert A. van de Geijn: *Anatomy of high-performance matrix multiplication*,
#   ACM TOMS 34(3), 2008, https://doi.org/10.1145/1356052.1356053
# * Philippe Tillet, H. T. Kung and David Cox: *Triton: an intermediate language and compiler for
#   tiled neural network computations*, MAPL 2019, https://doi.org/10.1145/3315508.3329973
# * *Offset calculation in matrix multiplication tutorial*, on rows modulo M, and *questions about
#   matmul implementation*, on the order of tiles: questions to the authors of Triton,
#   https://github.com/triton-lang/triton/issues/2080 and
#   https://github.com/triton-lang/triton/issues/1896
# * *Can triton.language.dot support smaller size than 16?*, *How to save the results of autotune?*
#   and *Using triton.autotune with the kernel updated in place*: three more,
#   https://github.com/triton-lang/triton/issues/1815,
#   https://github.com/triton-lang/triton/issues/6355 and
#   https://github.com/triton-lang/triton/issues/6547
