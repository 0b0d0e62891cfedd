"""
Matrix multiplication
=====================

Almost all the arithmetic of a neural network is matrix products, so the vendors' libraries for them
have been polished for many years. On this page you write one that stands beside such a library, in
pure Triton, one idea at a time. You will build ``matmul(a, b, activation="")`` and learn

* how a product is cut into **tiles**, and how pointers are computed in two dimensions;
* why the sum is kept in fp32 though the matrices are fp16, and which masks an awkward shape needs;
* why the **order** of the tiles decides how often memory is read;
* what **autotuning** is, what its key is and what it costs;
* what a **wave** is, why a product that does not fill its last wave is slow, and what helps;
* what **tensor descriptors** are good for, on the GPUs that have them;
* how to **fuse** an activation into the product, and what that saves.

You should know programs, grids, masks and ``tl.constexpr`` (:doc:`01-vector-add`).
:doc:`02-fused-softmax` helps but is not needed.
"""

# sphinx_gallery_thumbnail_number = 6

# %%
# First the imports. Without a GPU the interpreter has to be chosen before Triton is imported.

import csv
import functools
import itertools
import math
import os
import random
import time
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

if not torch.accelerator.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ON_GPU = os.environ.get("TRITON_INTERPRET", "0") != "1"
DEVICE = torch.device("cpu")
if ON_GPU:  # the current GPU, with its number: kernels run there, wherever the tensors are
    accelerator = torch.accelerator.current_accelerator()
    DEVICE = torch.device(accelerator.type, torch.accelerator.current_device_index())
# Large enough to be read on a phone:
plt.rcParams.update({"font.size": 14, "axes.titlesize": 14, "figure.titlesize": 14})
print(f"Kernels run on: {DEVICE if ON_GPU else 'the CPU, in the interpreter'}")

# %%
# Some decisions on this page depend on the GPU: how many processors it has (NVIDIA calls them SMs,
# streaming multiprocessors, AMD compute units), how much shared memory a program can get, and
# whether there are tensor descriptors (you will read what that is). Without a GPU, the page
# calculates with the numbers of an H200.


def gpu_facts():
    """Return (processors, bytes of shared memory a program can get, has tensor descriptors)."""
    if not ON_GPU:
        return 132, 232448, True  # as an H200; the interpreter can do it all
    properties = torch.get_device_module(DEVICE).get_device_properties(DEVICE)
    processors = getattr(properties, "multi_processor_count", 64)
    shared_bytes = getattr(properties, "shared_memory_per_block_optin", 65536)
    nvidia = DEVICE.type == "cuda" and not torch.version.hip
    return processors, shared_bytes, nvidia and properties.major >= 9


SMS, SHARED_BYTES, HAS_DESCRIPTORS = gpu_facts()
if not ON_GPU:
    print("Without a GPU, the page calculates with the numbers of an H200:")
print(f"{SMS} processors, {SHARED_BYTES} bytes of shared memory, descriptors: {HAS_DESCRIPTORS}")

# %%
# What PyTorch does, and what it costs
# ------------------------------------
#
# The product :math:`C = AB` of an M × K and a K × N matrix has M × N elements, each the sum of K
# products: :math:`c_{mn} = \sum_k a_{mk} b_{kn}`. The reference is one line, as ever. Count before
# you write: each of the M × N × K products takes a multiplication and an addition, and in the best
# of all worlds each matrix moves through memory once. (On this page, what is no whole number by
# nature is printed with three significant figures.)


def matmul_reference(a, b):
    """Return ``a @ b``, as PyTorch and the vendor's library compute it."""
    return torch.matmul(a, b)


def operations(m, n, k):
    """Return the floating-point operations of an m × k by k × n product."""
    return 2 * m * n * k


def least_bytes(m, n, k, element_size=2):
    """Return the bytes that such a product has to move at least: read A and B, write C."""
    return (m * k + k * n + m * n) * element_size


def significant(value):
    """Return *value* as text with three significant figures, such as 4310, 52.1 or 0.980."""
    rounded = f"{value:.2e}"  # first, since 9.996 has the exponent of 10.0
    decimals = max(0, 2 - int(rounded.partition("e")[2]))
    return f"{float(rounded):.{decimals}f}"


counts = []
for n in (256, 1024, 4096):
    ops, moved = operations(n, n, n), least_bytes(n, n, n)
    counts.append((n, *map(significant, (ops / 1e9, moved / 1e6, ops / moved))))
headers = ["M = N = K", "Gflop", "MB (fp16)", "flop per byte"]
print(tabulate(counts, headers, disable_numparse=True, stralign="right"))

# %%
# The operations grow with the cube of the size, the bytes with its square. The vector addition
# did a twelfth of an operation for each byte; here it is hundreds. Memory need not be the limit any
# more, as long as each byte is *used* hundreds of times once it is on the chip. Large products are
# **compute-bound**, so their speed is given in operations per second (a TFLOPS is 10¹² of them in
# a second), and the yardstick is the vendor's library, which PyTorch calls for you: cuBLAS on an
# NVIDIA GPU, rocBLAS or its relatives on an AMD one.
#
# Tiles
# -----
#
# One element of C needs a row of A and a column of B. If every program computed one element, it
# would read 2K numbers for K products, and each row of A would be read N times. So a program
# computes a whole **tile** of C, ``BLOCK_M`` × ``BLOCK_N`` elements. It walks along K in steps of
# ``BLOCK_K``. At each step it loads a ``BLOCK_M`` × ``BLOCK_K`` tile of A and a ``BLOCK_K`` ×
# ``BLOCK_N`` tile of B; ``tl.dot`` multiplies the two and adds the result to the tile of C that
# the program keeps in registers. Now each number of A that is loaded is used ``BLOCK_N`` times, and
# each number of B ``BLOCK_M`` times.


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
# How large should a tile be? A step loads ``(BLOCK_M + BLOCK_N) * BLOCK_K`` numbers and does
# ``BLOCK_M * BLOCK_N * BLOCK_K`` products with them: with a tile twice as wide in both directions,
# each number is used twice as often. Small tiles starve the **tensor cores** (the part of the GPU
# that multiplies small matrices in hardware; AMD calls them matrix cores), because the data does
# not arrive in time. On the other hand, the tile of C lives in registers, as 4-byte numbers, and
# there are only so many: 128 × 256 of them are 128 KiB, spread over the threads of one program.
# (Some of the newest GPUs have a memory just for such tiles, no larger than the registers.) And
# large tiles are *few*: remember this, it will come back.
#
# Why fp32 in the registers? An fp16 number has 11 significant bits. Once a sum is 2048 times as
# large as what is added to it, adding changes nothing at all:


total = torch.tensor(0, dtype=torch.float16)
for _ in range(4096):
    total += torch.tensor(1, dtype=torch.float16)
print("1 + 1 + … + 1, 4096 times, kept in fp16:", int(total))

# %%
# Tensor cores can take fp16 numbers and add up their products in fp32. On the GPUs of data centres
# that costs nothing but registers; some others are slower at it, which a right result is worth. The
# sum is rounded to fp16 once, at the very end.
#
# The order of the tiles
# ----------------------
#
# A program has one number, a tile has two: a row and a column. In which order should the programs
# take the tiles? The obvious one is row by row. But a GPU runs many programs at the same time, and
# those that run together share the L2 cache: if several of them need a tile of A or B, it is
# fetched from memory once, and then it is there. So programs that run at the same time should need
# the *same* tiles.
#
# Here is an order with a choice: it takes ``group`` rows of tiles together and goes through the
# group column by column. With ``group=1`` it is plain row-major order.


def tile_position(tile, tiles_m, tiles_n, group):
    """Return (row, column) of the tile with number *tile*, taking *group* rows at a time."""
    in_group = group * tiles_n  # tiles of one full group
    first = tile // in_group * group  # first row of this group
    rows = min(tiles_m - first, group)  # the last group may have fewer rows
    return first + tile % in_group % rows, tile % in_group // rows


tile_position_in_kernel = triton.jit(tile_position)

# %%
# This is plain Python, and ``triton.jit`` makes a function for kernels out of the very same lines.
# So the picture that we draw now shows what the kernel will do. There are nine by nine tiles; look
# at the first nine programs, and count the tiles of A and of B that they need:


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
# Row by row, nine programs need one row of A and *all* of B: 9 + 81 = 90 tiles. Three by three they
# need three rows of A and three columns of B: 27 + 27 = 54. Same work, same results, and the memory
# has to deliver three fifths as much. The larger the matrices, the more it matters: as soon as B no
# longer fits into the L2 cache, row-major order fetches it from memory over and over.
#
# The kernel
# ----------
#
# Now the first kernel. Read it once, then the notes below it.


@triton.jit
def apply_activation(x, ACTIVATION: tl.constexpr):
    """Apply the activation named *ACTIVATION* to a block."""
    if ACTIVATION == "leaky_relu":
        x = tl.where(x >= 0, x, 0.01 * x)
    return x


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, EVEN: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = activation(A @ B), from pointers and strides."""
    # Which tile of C is mine?
    row, column = tile_position_in_kernel(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    rows = row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    steps = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]

    # The addresses of my first tiles of A and B.
    a_ptrs = a_ptr + rows[:, None] * stride_am + steps[None, :] * stride_ak  # BLOCK_M × BLOCK_K
    b_ptrs = b_ptr + steps[:, None] * stride_bk + columns[None, :] * stride_bn  # BLOCK_K × BLOCK_N
    a_step = tl.full((), BLOCK_K, tl.int64) * stride_ak
    b_step = tl.full((), BLOCK_K, tl.int64) * stride_bk

    # Walk along K.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN:  # no tile sticks out, so no masks
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = K - k
            a_mask = (rows[:, None] < M) & (steps[None, :] < left)
            b_mask = (steps[:, None] < left) & (columns[None, :] < N)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += a_step
        b_ptrs += b_step

    # Round once, and store what lies inside of C.
    acc = apply_activation(acc, ACTIVATION)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


# %%
# ``rows[:, None] * stride_am + steps[None, :] * stride_ak``
#     Pointers in two dimensions. Element (i, j) of a matrix lies ``i * stride_0 + j * stride_1``
#     elements behind the first one. A column of row offsets plus a row of column offsets
#     broadcasts to a whole tile of offsets, just as in PyTorch. The strides come from the
#     tensor, so a transposed or sliced matrix needs no copy and no other kernel.
# ``a_ptrs += a_step``
#     The next tile of A lies ``BLOCK_K`` columns to the right, for all its elements alike, and the
#     next tile of B ``BLOCK_K`` rows further down.
# the **three masks**
#     M, N and K need not be multiples of the tile. Rows beyond M and columns beyond N give
#     elements of C that nobody wants; the mask of the *store* throws them away. Along K it is
#     different: what is loaded beyond K would be added to *every* element. Masked elements must
#     therefore be zeros (``other=0.0``), in A as well as in B, because zero times whatever lies
#     there (it could be infinity) need not be zero.
# ``EVEN``
#     If all three sizes *are* multiples of the tile, all masks are true. Then there is no need to
#     compute them: a ``constexpr`` makes a second version of the kernel without them.
# ``input_precision="ieee"``
#     This matters for fp32 matrices only. By default, ``tl.dot`` rounds fp32 inputs to tf32, which
#     keeps 11 bits, and gives them to the tensor cores: fast, and four decimal digits poorer.
#     PyTorch does not do that unless you ask for it, so neither do we.
# ``tl.int64``
#     A matrix can have more than 2³¹ elements, and then an offset needs more than 32 bits.
#
# The loop is written as if each load were waited for. The compiler makes a **pipeline** of it: it
# starts the loads of the coming steps while the tensor cores multiply. How many steps ahead
# is up to you: ``num_stages`` tiles of A and B are kept in shared memory, the fast memory
# inside each processor, so deep pipelines and large tiles compete for that.
#
# A plan
# ------
#
# Tile, order, depth, warps: let us keep the choices in one record, a **plan**, and write
# one function that runs any plan. Whatever we try from now on is another plan.


@dataclass(frozen=True)
class Plan:
    """How to compute a product: its tiles, and what one program gets to work with."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    group: int = 8
    descriptors: bool = False  # which of the two kernels; all that follows is explained below
    share: int | None = None  # so many programs run on one SM, all at the same time
    cut: tuple[int, int] | None = None  # the smaller tile for the last wave


def divide_up(a, b):
    """Return a / b, rounded up."""
    return -(-a // b)


def launch_pointers(plan, a, b, c, activation):
    """Launch ``matmul_kernel``: one program for each tile of *c*."""
    (M, K), N = a.shape, b.shape[1]
    grid = (divide_up(M, plan.block_m) * divide_up(N, plan.block_n),)
    even = M % plan.block_m == 0 and N % plan.block_n == 0 and K % plan.block_k == 0
    matmul_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, BLOCK_K=plan.block_k,
        GROUP=plan.group, EVEN=even, ACTIVATION=activation,
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


def run_plan(plan, a, b, activation=""):
    """Return ``activation(a @ b)``, computed by *plan*. The arguments must have been checked."""
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    if c.numel():  # otherwise there is nothing to compute
        launch = launch_descriptors if plan.descriptors else launch_pointers
        launch(plan, a, b, c, activation)
    return c


plan = Plan(block_m=32, block_n=64, block_k=32, warps=4, stages=3)
a = torch.randn(123, 45, device=DEVICE, dtype=torch.float16)
b = torch.randn(45, 77, device=DEVICE, dtype=torch.float16)
torch.testing.assert_close(run_plan(plan, a, b), matmul_reference(a, b), atol=1e-2, rtol=1e-3)
print("123 × 45 by 45 × 77: as PyTorch, up to rounding")

# %%
# Choosing by trying: autotuning
# ------------------------------
#
# Which plan is best? Nobody can tell exactly: it depends on the GPU, the compiler and the shape. So
# one can *try*. ``triton.autotune`` wraps a kernel with a list of configurations. When the kernel
# is called, it looks at the arguments named in ``key``; where their values are new, it compiles
# every configuration, times each of them, and remembers the best for these values.


def autotune_once(n):
    """Autotune one n × n × n product over four plans; print the choice and what it cost."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    choices = [(64, 32, 128, 4, 4), (64, 64, 128, 4, 4), (64, 128, 64, 4, 4), (128, 128, 64, 8, 4)]
    configs = []
    for choice in choices:
        meta = dict(zip(names, choice, strict=True))
        warps, stages = meta.pop("num_warps"), meta.pop("num_stages")
        if stages * (choice[0] + choice[1]) * choice[2] * 2 <= SHARED_BYTES:
            configs.append(triton.Config(meta, num_warps=warps, num_stages=stages))
    tuned = triton.autotune(configs, key=["M", "N", "K"])(matmul_kernel)
    a = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
    c = torch.empty_like(a)

    def call():
        tuned[lambda meta: (divide_up(n, meta["BLOCK_M"]) * divide_up(n, meta["BLOCK_N"]),)](
            a, a, c, n, n, n, n, 1, n, 1, n, 1, GROUP=8, EVEN=True, ACTIVATION=""
        )
        torch.accelerator.synchronize()

    for which in ("first", "second"):
        start = time.perf_counter()
        call()
        elapsed = time.perf_counter() - start
        print(f"{which + ' call:':12s} {significant(elapsed * 1e3):>7} ms")
    best = tuned.best_config
    tile = " × ".join(str(best.kwargs[name]) for name in names[:3])
    print(f"{len(configs)} configurations tried; chosen: {tile}, ", end="")
    print(f"{best.num_warps} warps, {best.num_stages} stages")


if ON_GPU:
    autotune_once(1024)
else:
    print("The interpreter compiles nothing and times nothing: autotuning needs a GPU.")

# %%
# The first call pays, all others only look the answer up. It costs a compilation and a timing for
# each configuration. The compiled kernels are kept, but the timings are paid again for **every new
# key**. With the shape in the key, a program whose shapes change all the time spends its life
# tuning; without it, one shape decides for all others. A list pruned to few configurations helps.
# So does knowing *why* one configuration beats another: then you can do without trying.
#
# Choosing by thinking: waves
# ---------------------------
#
# The registers and the shared memory that a large tile needs fill a whole processor, which we shall
# call SM from here on. So the programs run in **waves**: as many as there are SMs, then as many
# again. The last wave takes as long as any other, however few programs are left for it.
#
# Here are 9 tiles on 4 SMs: three waves, and three quarters of the last one are wasted. Below it,
# the last tile is cut into four small ones, so that each SM gets one.


def draw_waves(ax, bars, title):
    """Draw *bars*, which are (SM, start, length, label), over time."""
    for sm, start, length, label in bars:
        colour = plt.get_cmap("tab10")(int(label[0]))
        ax.barh(sm, length, 0.8, left=start, color=colour, alpha=0.5, edgecolor="#444444")
        ax.text(start + length / 2, sm, label, ha="center", va="center")
    ax.set(title=title, ylabel="SM", yticks=range(4), xlim=(0, 3.05), ylim=(3.6, -0.6))


whole = [(i % 4, i // 4, 1, str(i)) for i in range(8)]
pieces = [(i, 2, 0.25, f"8{'abcd'[i]}") for i in range(4)]
fig, axes = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True)
draw_waves(axes[0], [*whole, (0, 2, 1, "8")], "9 tiles on 4 SMs: 3 waves")
draw_waves(axes[1], [*whole, *pieces], "The last tile cut in four: 2¼ waves, if all goes well")
axes[1].set_xlabel("time, in large tiles")
fig.tight_layout()
plt.show()

# %%
# "If all goes well", because a small tile is less efficient than a large one. How much less? For
# each column of A that it goes through, an m × n tile does m · n products, and m + n numbers have
# to be brought to the tensor cores. Let us say that bringing one number takes as long as 24
# products. That is rough, but all we need is to tell a good plan from a bad one.


def tile_cost(m, n):
    """Return the time that one SM needs for one column of A in an m × n tile, in products."""
    return m * n + 24 * (m + n)


table = []
for m, n in [(64, 32), (64, 64), (64, 128), (128, 128), (128, 256)]:
    cost = tile_cost(m, n)
    table.append((f"{m} × {n}", m * n, cost, significant(cost / (m * n))))
headers = ["tile", "products", "cost", "cost of a product"]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# With this, the time of a whole product is easily estimated: K columns, times the waves, times the
# cost of a tile. Where the last wave is cut up, waves of small tiles at *their* cost come on top,
# and so does a new start: until the first small tiles have arrived, nothing is multiplied. Let us
# say that this takes as long as 2²⁴ products.

START = 2**24


def plan_cost(plan, M, N, K):
    """Estimate the time of an (M, K) by (K, N) product, in products of one SM."""
    tiles = divide_up(M, plan.block_m) * divide_up(N, plan.block_n)
    waves, left = divmod(tiles, SMS)
    pieces = (
        left * (plan.block_m // plan.cut[0]) * (plan.block_n // plan.cut[1]) if plan.cut else left
    )
    last = divide_up(pieces, SMS)
    if plan.share and waves + last != plan.share:
        return math.inf  # not the number of programs on an SM that this plan is for
    cost = K * waves * tile_cost(plan.block_m, plan.block_n)
    cost += K * last * tile_cost(*(plan.cut or (plan.block_m, plan.block_n)))
    return cost + (START if plan.cut and not plan.share else 0)


def draw_estimate(plans, sizes):
    """Draw by size how fast the best of *plans* should be; 100 is large tiles in full waves."""
    fig, ax = plt.subplots(figsize=(7, 4.8), layout="constrained")
    fastest = tile_cost(128, 256) / (128 * 256)
    styles = zip(plans.items(), ("#8d6a9f", "#d1495b", "#1b6ca8"), (":", "-.", "-"), strict=True)
    for (name, some), colour, line in styles:
        best = [min(plan_cost(plan, n, n, n) for plan in some) for n in sizes]
        speed = [100 * fastest * n**3 / SMS / cost for n, cost in zip(sizes, best, strict=True)]
        ax.plot(sizes, speed, label=name, color=colour, linestyle=line)
    ax.axhline(100, label="full waves of 128 × 256 (ceiling)", color="#444444", linestyle="--")
    ax.set(xlabel="M = N", ylabel="estimated speed, %", ylim=(0, 105))
    ax.set_title(f"Estimated speed in % of full waves, {SMS} SMs")
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center")
    plt.show()


LARGE = Plan(128, 256, 64, warps=8, stages=3, descriptors=True)
MEDIUM = Plan(128, 128, 64, warps=4, stages=5, descriptors=True)
CUT = [replace(MEDIUM, cut=cut) for cut in ((64, 64), (64, 128))]
estimates = {
    "128 × 256": [LARGE],
    "128 × 128": [MEDIUM],
    "the best of both, 128 × 128 also cut": [LARGE, MEDIUM, *CUT],
}
draw_estimate(estimates, range(1024, 4097, 64))

# %%
# Each tooth is one wave more. The larger tile is the better one where its waves are full, and the
# worse one where they are not, so neither is right for all sizes. Cutting the last wave fills part
# of the gaps. (The fewer SMs a GPU has, the more waves there are, and the smaller the teeth.)
#
# (There is another way to fill the last wave. *Stream-K*, see the references, gives each SM an
# equal share of all steps along K, wherever tiles begin and end, and adds up the partial sums of a
# tile that was shared. The balance is perfect. But partial sums have to travel through memory, and
# SMs that work at different places along K no longer need the same tiles at the same time.)
#
# The last wave need not even wait for the one before. If the pipelines are kept short, *two*
# programs fit on one SM at the same time: a whole tile and a piece, say. They share its tensor
# cores, and while one of them waits for data or stores its tile, the other one multiplies. With
# short pipelines a program waits more often, so this pays only where all programs run at once, and
# where there are enough of them to fill each other's pauses.
#
# Tensor descriptors
# ------------------
#
# So far, each program computes blocks of addresses, keeps them in registers and has masks for the
# edges. Newer NVIDIA GPUs (from Hopper on) have hardware that relieves it of that, the *tensor
# memory accelerator*: the program gives it a position, and a whole tile appears in shared memory.
# What it has to know about the matrix, namely address, shape, strides and the shape of a tile, is
# written into a **tensor descriptor** before the launch. Outside of the matrix it reads zeros and
# writes nothing, so there are no masks. A tile of C then takes few lines:


@triton.jit
def compute_tile(
    a_desc, b_desc, c_desc, row, column, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute the tile of C = activation(A @ B) that begins at (row, column)."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    acc = apply_activation(acc, ACTIVATION)
    c_desc.store([row, column], acc.to(c_desc.dtype))


# %%
# Persistent programs
# -------------------
#
# When one program ends and the next one starts on the same SM, the pipeline runs dry: nothing is
# multiplied while C is stored and the first tiles of the next program are on their way. With
# large tiles there is only one program on an SM, and nobody fills the gap. So we turn things
# around and start exactly one program for each SM. It computes a tile, then the one that lies as
# many tiles further on as there are programs, and so on: it is **persistent**. ``flatten=True``
# joins the loop over tiles and the loop along K into one, so that the loads for the next tile
# are under way before the last one is finished.
#
# A program now knows which tiles are its own, and so it can also see to the last wave: the
# first ``whole`` tiles are computed as they are, the others in pieces.


@triton.jit(do_not_specialize=["whole"])
def descriptor_kernel(
    a_desc, b_desc, c_desc,  # for tiles of BLOCK_M × BLOCK_N
    a_cut, b_cut, c_cut,  # for pieces of CUT_M × CUT_N
    M, N, K, whole,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    CUT_M: tl.constexpr, CUT_N: tl.constexpr,
    GROUP: tl.constexpr, PERSISTENT: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of the tiles of C = activation(A @ B)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if PERSISTENT:
        for tile in tl.range(program, whole, programs, flatten=True):
            i, j = tile_position_in_kernel(tile, tiles_m, tiles_n, GROUP)
            compute_tile(
                a_desc, b_desc, c_desc, i * BLOCK_M, j * BLOCK_N, K,
                BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION,
            )  # fmt: skip
    elif program < whole:  # one program for each tile
        i, j = tile_position_in_kernel(program, tiles_m, tiles_n, GROUP)
        compute_tile(
            a_desc, b_desc, c_desc, i * BLOCK_M, j * BLOCK_N, K,
            BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION,
        )  # fmt: skip

    if CUT_M:
        ACROSS: tl.constexpr = BLOCK_N // CUT_N
        PIECES: tl.constexpr = BLOCK_M // CUT_M * ACROSS  # of one tile
        pieces = (tiles_m * tiles_n - whole) * PIECES
        first = program  # my first piece
        if not PERSISTENT:  # the programs after those for whole tiles have one piece each
            first = tl.where(program < whole, pieces, program - whole)
        for piece in range(first, pieces, programs):
            i, j = tile_position_in_kernel(whole + piece // PIECES, tiles_m, tiles_n, GROUP)
            row = i * BLOCK_M + piece % PIECES // ACROSS * CUT_M
            column = j * BLOCK_N + piece % ACROSS * CUT_N
            compute_tile(a_cut, b_cut, c_cut, row, column, K, CUT_M, CUT_N, BLOCK_K, ACTIVATION)


# %%
# The launcher decides how many tiles stay whole, and how many programs there are: one for each SM,
# or one for each tile and piece. (Arguments that are named in ``do_not_specialize`` get no version
# of the kernel of their own when they are 1 or divisible by 16, as others do.)


def describe(a, b, c, block_m, block_n, block_k):
    """Return descriptors for tiles of *a*, *b* and *c*."""
    blocks = ((a, [block_m, block_k]), (b, [block_k, block_n]), (c, [block_m, block_n]))
    return [TensorDescriptor(t, t.shape, t.stride(), block) for t, block in blocks]


def launch_descriptors(plan, a, b, c, activation):
    """Launch ``descriptor_kernel`` for the tiles of *c*, some of them cut into pieces."""
    (M, K), N = a.shape, b.shape[1]
    tiles = divide_up(M, plan.block_m) * divide_up(N, plan.block_n)
    whole, pieces, cut_m, cut_n = tiles, 0, None, None
    descriptors = describe(a, b, c, plan.block_m, plan.block_n, plan.block_k)
    if plan.cut:
        cut_m, cut_n = plan.cut
        whole = tiles // SMS * SMS
        pieces = (tiles - whole) * (plan.block_m // cut_m) * (plan.block_n // cut_n)
        descriptors += describe(a, b, c, cut_m, cut_n, plan.block_k)
    else:
        descriptors += [None, None, None]
    programs = whole + pieces if plan.share else min(SMS, max(whole, pieces))
    descriptor_kernel[(programs,)](
        *descriptors, M, N, K, whole,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, BLOCK_K=plan.block_k,
        CUT_M=cut_m, CUT_N=cut_n, GROUP=plan.group,
        PERSISTENT=plan.share is None, ACTIVATION=activation,
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


def can_describe(matrix):
    """Say if the rows of *matrix* are contiguous and start at multiples of 16 bytes."""
    row, column = matrix.stride()
    aligned = row * matrix.element_size() % 16 == 0 and matrix.data_ptr() % 16 == 0
    return matrix.numel() > 0 and column == 1 and row >= matrix.shape[1] and aligned


# %%
# A descriptor demands more of a matrix than a pointer does. So the first kernel is still needed:
# for transposed matrices, for odd strides, and for GPUs without the hardware.
#
# All plans
# ---------
#
# Here are all plans that we choose from, for 2-byte elements. The small ones come first: for small
# matrices, with one wave only, a smaller tile is done sooner. Long steps (``block_k=128``) are
# fewer steps, with more bytes under way. Below is what is chosen for some sizes: the tile, the
# smaller one into which the tiles of the last wave are cut (if any), and how many waves all the
# tiles would make if none were cut.

POINTER_PLANS = [
    Plan(64, 32, 128, warps=4, stages=4, share=1),
    Plan(64, 64, 128, warps=4, stages=4, share=1),
    Plan(64, 128, 64, warps=4, stages=4),
    Plan(128, 128, 64, warps=8, stages=4),
    Plan(128, 256, 64, warps=8, stages=3),
]
PAIR = replace(MEDIUM, stages=3, share=2)
DESCRIPTOR_PLANS = [
    *POINTER_PLANS[:2],
    Plan(64, 128, 128, warps=4, stages=4, descriptors=True, share=1),
    Plan(64, 128, 64, warps=4, stages=4, descriptors=True, share=2, cut=(64, 64)),
    *(replace(PAIR, cut=cut) for cut in ((64, 64), (64, 128))),
    *(MEDIUM, *CUT, LARGE),
]
FP32_PLAN = Plan(64, 64, 32, warps=4, stages=2)  # no tensor cores: a simple plan will do


def fit(plan):
    """Return *plan* with as many of its stages as the shared memory of this GPU has room for."""
    step = (plan.block_m + plan.block_n) * plan.block_k * 2  # bytes
    # A persistent program keeps a buffer for storing a tile, beside the pipeline for the next.
    persistent = plan.descriptors and plan.share is None
    buffer = plan.block_m * plan.block_n * 2 if persistent else 0
    room = SHARED_BYTES // (plan.share or 1) - buffer - 1024
    return replace(plan, stages=min(plan.stages, room // step))


def usable(plans):
    """Return those of *plans* that this GPU has room for, if only with fewer stages."""
    return [plan for plan in map(fit, plans) if plan.stages >= 2]


POINTER_PLANS, DESCRIPTOR_PLANS = usable(POINTER_PLANS), usable(DESCRIPTOR_PLANS)


@functools.lru_cache(maxsize=1024)
def cheapest_plan(M, N, K, described):
    """Return the plan with the least estimated time for an (M, K) by (K, N) product."""
    plans = DESCRIPTOR_PLANS if described else POINTER_PLANS
    return min(plans, key=lambda plan: plan_cost(plan, M, N, K))


def choose_plan(a, b):
    """Return a plan for ``a @ b``, from the shapes and from what this GPU can do."""
    if a.dtype == torch.float32:
        return FP32_PLAN
    # The rows of C must start at multiples of 16 bytes as well.
    described = HAS_DESCRIPTORS and b.shape[1] % 8 == 0 and can_describe(a) and can_describe(b)
    return cheapest_plan(a.shape[0], *b.shape[::-1], described)


table = []
for n in [256, 640, 1024, 1536, 2048, 2176, 3072, 4096]:
    plan = cheapest_plan(n, n, n, HAS_DESCRIPTORS)
    tile, cut = f"{plan.block_m} × {plan.block_n}", "{} × {}".format(*plan.cut) if plan.cut else ""
    tiles = divide_up(n, plan.block_m) * divide_up(n, plan.block_n)
    kernel = "descriptors" if plan.descriptors else "pointers"
    schedule = "persistent" if plan.descriptors else "in waves"
    schedule = f"{plan.share} on an SM" if plan.share else schedule
    table.append((n, tile, cut, significant(tiles / SMS), kernel, schedule))
print(f"Plans for M = N = K on {SMS} SMs")
headers = ["size", "tile", "last wave\ncut into", "waves", "kernel", "programs"]
align = {"colalign": ["right"] * 4 + ["left"] * 2}
print(tabulate(table, headers, disable_numparse=True, **align))

# %%
# Fusing an activation
# --------------------
#
# In a network, a product is rarely alone: its result goes through an activation, here *LeakyReLU*,
# which multiplies negative numbers by 0.01 and leaves the others as they are.
# As an operation of its own, the activation reads C from memory and writes it back, for one
# comparison and one multiplication an element. In our kernels ``apply_activation`` works on
# the accumulator, which is in registers anyway, *before* the sum is rounded to fp16. That is as
# good as free, and a little more precise than rounding twice.
#
# The launcher
# ------------
#
# What is left is the function for users: check the arguments, choose the plan, run it. (As on the
# pages before, the result carries no gradient. :doc:`04-low-memory-dropout` shows how to add one.)


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


def check(a, b, activation="", plan=None):
    """Raise AssertionError where ``matmul(a, b, activation)`` (or *plan*) is not right."""
    got = run_plan(plan, a, b, activation) if plan else matmul(a, b, activation)
    expected = a.double() @ b.double()
    if activation == "leaky_relu":
        expected = torch.nn.functional.leaky_relu(expected)
    rounding = torch.finfo(a.dtype).eps  # one unit in the last place
    summing = 2**-20 * a.shape[1]  # K times four bits more than fp32 rounds away
    torch.testing.assert_close(got.double(), expected, rtol=rounding, atol=summing)


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

# %%
# Each plan by itself, also where it would not be chosen. The results of two plans differ by
# rounding only: they add up the same products, in another order at most.

M, N, K = (1936, 2064, 256) if ON_GPU else (144, 272, 128)
a = torch.randn(M, K, device=DEVICE, dtype=torch.float16)
b = torch.randn(K, N, device=DEVICE, dtype=torch.float16)
plans = POINTER_PLANS + (DESCRIPTOR_PLANS if HAS_DESCRIPTORS else [])
for plan in plans:
    if plan.descriptors or not ON_GPU:
        check(a, b, "", plan)  # tiles stick out
    else:
        check(a[:1920], b[:, :2048], "", plan)  # the version that is timed below, without masks
print(f"all {len(plans)} plans are right on a {M} × {K} by {K} × {N} product")

# %%
# And the errors, each with what it was given:

for wrong in (b.double(), b.to(torch.float32), b[0], a, b.cpu().numpy()):
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
# plans that this page went through on its way are timed as well, to see what each idea brought.
#
# As on the pages before, events take the time on the GPU, every call starts with a cold L2 cache,
# and all take turns, in a new order each time: :doc:`/programming-guide/chapter-4/measuring` shows
# what goes wrong otherwise.


def measure(calls, rounds=40):
    """Return {name: the milliseconds of each of *rounds* calls}; the *calls* take turns."""
    gpu = torch.get_device_module(DEVICE)
    other = torch.zeros(2**27, dtype=torch.int32, device=DEVICE)  # 512 MiB
    events = {name: [] for name in calls}
    for call in calls.values():
        call()  # compiles the kernel
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
            for _ in range(2):
                other.amax()  # reads 512 MiB, so that the cache holds nothing of ours
            start.record()
            calls[name]()
            end.record()
            events[name].append((start, end))
    gpu.synchronize()
    return {
        name: torch.tensor([start.elapsed_time(end) for start, end in pairs])
        for name, pairs in events.items()
    }


def rates(ms, ops):
    """Return the median, 20th and 80th percentile of the rate in TFLOPS."""
    return (ops / ms / 1e9).quantile(torch.tensor([0.5, 0.2, 0.8])).tolist()


LIBRARY = "rocblas" if torch.version.hip else "cublas"
PROVIDERS = ("triton", LIBRARY, "triton + leaky_relu", f"{LIBRARY} + leaky_relu")


def steps_of_this_page(n):
    """Return {what is new: plan} for an n × n × n product: the way this page has gone."""
    first = fit(Plan(128, 128, 64, warps=8, stages=4, group=1))
    steps = {
        "1 row by row": first,
        "2 in groups of rows": replace(first, group=8),
        "3 tile by waves": cheapest_plan(n, n, n, False),
    }
    if HAS_DESCRIPTORS:
        whole = [plan for plan in DESCRIPTOR_PLANS if plan.cut is None]
        steps["4 descriptors"] = min(whole, key=lambda plan: plan_cost(plan, n, n, n))
    return steps


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
            for name, plan in steps_of_this_page(n).items():
                calls[name] = functools.partial(run_plan, plan, a, b)
        for provider, ms in measure(calls).items():
            rows.append((n, n, n, provider, "TFLOPS", *rates(ms, operations(n, n, n))))
    return rows


SIZES = [128 * i for i in range(2, 33)]
STEP_SIZES = [512, 1024, 1536, 2048, 3072, 4096]

if ON_GPU:
    rows = benchmark(SIZES, STEP_SIZES)
    with open("matmul-performance-fp16.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["M", "N", "K", "provider", "unit", "median", "p20", "p80"])
        writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# All rows are in the CSV file; here is every third size:


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


STYLES = {
    PROVIDERS[0]: {"color": "#1b6ca8", "marker": "o", "linestyle": "-"},
    PROVIDERS[1]: {"color": "#444444", "marker": "s", "linestyle": "--"},
    PROVIDERS[2]: {"color": "#1b6ca8", "marker": "o", "linestyle": "-"},
    PROVIDERS[3]: {"color": "#d1495b", "marker": "^", "linestyle": "-."},
}


def plot_rates(rows, labels, title):
    """Draw rate over size: medians as lines, p20 to p80 as bands.

    Args:
        rows: As ``benchmark`` returns them.
        labels: {provider to draw: its name in the legend}.
        title: What was measured.
    """
    fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
    for provider, label in labels.items():
        style = STYLES[provider]
        mine = [row for row in rows if row[3] == provider]
        sizes = [row[0] for row in mine]
        ax.plot(sizes, [row[5] for row in mine], label=label, markersize=5, **style)
        low, high = [row[6] for row in mine], [row[7] for row in mine]
        ax.fill_between(sizes, low, high, color=style["color"], alpha=0.2, linewidth=0)
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(title=f"{title}, TFLOPS\non {gpu}", xlabel="M = N = K")
    ax.set(ylabel="TFLOPS, higher is better", ylim=(0, None))
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center")
    plt.show()


PLAIN = {"triton": "triton", LIBRARY: f"{LIBRARY} (ceiling and best alternative)"}
if ON_GPU:
    plot_rates(rows, PLAIN, "Matrix product in fp16")
else:
    print("No plot without a GPU.")

# %%
# And with the activation. The ceiling is the library's product alone, without any activation.

FUSED = {
    PROVIDERS[2]: f"{PROVIDERS[2]}, fused",
    PROVIDERS[3]: f"{PROVIDERS[3]} (best alternative)",
    PROVIDERS[1]: f"{PROVIDERS[1]} without leaky_relu (ceiling)",
}
if ON_GPU:
    plot_rates(rows, FUSED, "Matrix product + LeakyReLU in fp16")
else:
    print("No plot without a GPU.")

# %%
# What did each idea bring? Here are the plans of this page below each other, at some of the sizes,
# and under them ``matmul``, which chooses among all plans, and the library. The last column
# compares each with the first line, at the largest size.


def step_names(rate):
    """Return the names of this page's plans, in the order in which the page came to them."""
    return list(dict.fromkeys(name for _, name in rate if name not in PROVIDERS))


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
    some = [n for n in STEP_SIZES if n != 1024]
    print_steps(rate, [*step_names(rate), *PROVIDERS[:2]], some)
else:
    print("No table without a GPU.")

# %%
# As long as the L2 cache has room for both matrices, the first two lines can hardly differ: in
# whatever order the tiles are taken, nothing is fetched from memory twice. Here is a product of
# matrices that are larger than most caches:

if ON_GPU:
    n = 8192
    a = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
    b = torch.randn(n, n, device=DEVICE, dtype=torch.float16)
    ordered = {
        name: functools.partial(run_plan, plan, a, b)
        for name, plan in steps_of_this_page(n).items()
    }
    times = measure(ordered, rounds=10)
    rate = {(n, name): rates(ms, operations(n, n, n))[0] for name, ms in times.items()}
    print_steps(rate, step_names(rate), [n])
else:
    print("No comparison without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **The left end.** A product of 256 × 256 matrices has too little work for a large GPU. If every
# SM is to have something to do, the tiles must be so small that loading takes longer than
# multiplying, and after a few steps along K it is all over. What you see is mostly what it takes
# to launch a kernel and to fetch the first tiles from memory. The plan for such sizes is small
# tiles, and as many bytes under way at once as possible.
#
# **The saw-tooth in the middle.** Whenever the tiles need one wave more, the rate drops, and it
# recovers as that wave fills up. The library has to fill its waves as well, but its tiles are
# others, so it has its teeth at other sizes. That is why the ratio of the two goes up and down.
#
# **The right end.** With every wave more, the last one counts less, and the teeth get smaller.
# Where the waves are full, the tensor cores are busy most of the time, and the rate is what the
# chip can sustain. That can be less than its data sheet says: when all tensor cores work, many GPUs
# reach their power limit and lower their clocks.
#
# **The activation.** The second operation of the unfused version costs a launch, and a trip of C
# from memory and back. The larger K is, the less that weighs beside the product. For small
# matrices it weighs a lot.
#
# The takeaways, computed from the rows above ("triton" is ``matmul``):


def print_ratios(rate, pairs):
    """Print how the ratio of two rates varies with the size.

    Args:
        rate: {(size, provider): median rate}.
        pairs: {name of the ratio: (provider, other provider)}.
    """
    table = []
    for name, (ours, other) in pairs.items():
        ratio = {n: rate[n, ours] / rate[n, other] for n, provider in rate if provider == other}
        low, high = min(ratio, key=ratio.get), max(ratio, key=ratio.get)
        mean = math.prod(ratio.values()) ** (1 / len(ratio))
        least, mean, most = map(significant, (ratio[low], mean, ratio[high]))
        table.append((name, least, low, mean, most, high))
    headers = ["ratio", "min", "at size", "geometric\nmean", "max", "at size"]
    align = {"stralign": "right", "colalign": ["left"]}
    print(tabulate(table, headers, disable_numparse=True, **align))


if ON_GPU:
    name = f"triton / {LIBRARY}"
    pairs = {name: PROVIDERS[:2], "both + leaky_relu": PROVIDERS[2:]}
    rate = medians(rows)
    for before, after in itertools.pairwise(step_names(rate)):
        pairs[f"step {after[0]} / step {before[0]}"] = after, before
    pairs[f"triton / step {after[0]}"] = "triton", after
    print_ratios(rate, pairs)
else:
    print("No ratios without a GPU.")

# %%
# What to remember
# ----------------
#
# * A tile of C stays in registers while tiles of A and B stream past. The larger the tile, the more
#   often each number is used, and the fewer tiles there are.
# * Sum in fp32, round once.
# * Rows and columns that stick out are dropped when C is stored; what sticks out along K must be
#   zero.
# * Programs that run together should need the same data: the order of the tiles is free, use it.
# * Count the waves. Where the last one is nearly empty, choose other tiles, or cut it up.
# * Whatever happens to C next, do it while C is still in registers.
#
# Exercises
# ---------
#
# 1. **A linear layer.** Add a bias to every row before the activation, inside of the kernel, and
#    let the activation be ReLU or GELU as well. What does each cost?
#    :doc:`Solution <solutions/03-linear-layer>`.
# 2. **A batch.** Multiply many pairs of small matrices with one launch. Where does the batch go in
#    the grid, and what is gained? :doc:`Solution <solutions/03-batched>`.
# 3. **A long K.** A product of 64 × K by K × 64 matrices is a single tile, and a single SM works
#    on it, however long K is. Share K between programs, so that the result is still the same
#    every time. :doc:`Solution <solutions/03-split-k>`.
#
# References
# ----------
#
# * Kazushige Goto and Robert A. van de Geijn: *Anatomy of high-performance matrix multiplication*,
#   ACM TOMS 34(3), 2008, https://doi.org/10.1145/1356052.1356053
# * Muhammad Osama, Duane Merrill, Cris Cecka, Michael Garland and John D. Owens: *Stream-K:
#   work-centric parallel decomposition for dense matrix-matrix multiplication on the GPU*,
#   PPoPP 2023, https://doi.org/10.1145/3572848.3577479
# * Philippe Tillet, H. T. Kung and David Cox: *Triton: an intermediate language and compiler for
#   tiled neural network computations*, MAPL 2019, https://doi.org/10.1145/3315508.3329973
