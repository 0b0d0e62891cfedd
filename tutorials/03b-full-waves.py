"""
Matrix multiplication: full waves
=================================

You build a second ``matmul``, which loses less time between tiles and in the last wave. It uses
tensor descriptors, persistent programs, and small tiles at the end. Over 29 square sizes it reaches
:measured:`share` % of the speed of cuBLAS. You need :doc:`03-matrix-multiplication`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 4
# sphinx_gallery_level = "further"
import math
import os
import sys  # for shared/
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path  # for shared/

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
SMS = getattr(GPU, "multi_processor_count", 132)  # as on an H100
SHARED_BYTES = getattr(GPU, "shared_memory_per_block_optin", 65536) if ON_GPU else 232448

# %%
# The kernel
# ----------
#
# This function computes one tile of a product, without pointers and masks: ``a_desc``, ``b_desc``
# and ``c_desc`` describe the matrices. In each step it loads the tile of A that begins at row
# ``row`` and column ``k``, and the tile of B that begins at row ``k`` and column ``column``.


@triton.jit
def compute_tile(
    a_desc, b_desc, c_desc, row, column, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute the tile of C = activation(A @ B) that begins at (row, column)."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)  # <-
    if ACTIVATION == "leaky_relu":
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


# %%
# So far, a program has computed a pointer and a mask for each element. Since Hopper (H100), NVIDIA
# GPUs have hardware for this, the *tensor memory accelerator*. It gets a **tensor descriptor**: the
# address, shape and strides of a matrix, and the shape of a tile. Then a position is enough to load
# a tile into shared memory. (On other GPUs, Triton computes pointers from the descriptor.)

# sphinx_gallery_fold = "draws a matrix and the tile that one load gives"
import matplotlib.pyplot as plt
from shared.bench import figure


cells = [[str(8 * i + j) if i < 5 and j < 7 else "" for j in range(9)] for i in range(6)]
colors = [["#e4eff7" if text else "none" for text in row] for row in cells]
for i, j in ((i, j) for i in range(2, 6) for j in range(5, 9)):  # the tile
    colors[i][j] = "#8fb9d9" if cells[i][j] else "#dddddd"
    cells[i][j] = cells[i][j] or "zero"
_, ax = figure(height=2.8)
ax.axis("off")
table = ax.table(cells, colors, "center", bbox=(0, 0, 1, 1))
table.auto_set_font_size(False)
table.set_fontsize(12)
ax.add_patch(plt.Rectangle((5 / 9, 0), 4 / 9, 4 / 6, fill=False, lw=3, clip_on=False))
ax.set_title("Shape [5, 7], strides [8, 1], block [4, 4]\nThe frame: load([2, 5])")
plt.show()

# %%
# Outside of the matrix a load gives zeros, and a store writes nothing. The elements of a row must
# be neighbors in memory, and each row must start at a multiple of 16 bytes: in the picture, a row
# stride of 8 elements of fp16 does that. A descriptor is made on the CPU, and the kernel gets it as
# an argument:

# sphinx_gallery_fold = "makes three descriptors, computes one tile, and compares it with float64"
from shared.products import check


def random_pair(M, N, K):
    """Return random fp16 matrices of M × K and K × N elements."""
    return [torch.randn(shape, device=DEVICE).half() for shape in ((M, K), (K, N))]


torch.manual_seed(0)
a, b = random_pair(48, 56, 96)
c = torch.empty(48, 56, dtype=a.dtype, device=DEVICE)
blocks = ((a, [64, 32]), (b, [32, 64]), (c, [64, 64]))
descriptors = [TensorDescriptor(t, t.shape, t.stride(), block) for t, block in blocks]
compute_tile[(1,)](*descriptors, 0, 0, 96, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, ACTIVATION="")
check(c, a, b)
print("48 × 96 by 96 × 56: right, by one tile of 64 × 64 without a mask")

# %%
# Persistent programs
# -------------------
#
# A large tile occupies a whole multiprocessor (SM). When its program ends, nothing is multiplied
# until the next program has loaded its first tiles. A **persistent** program avoids this pause: the
# grid has one program for each SM, and each computes one tile after the other. ``flatten=True``
# joins the loop over tiles and the loop along K, so the loads of the next tile start before a tile
# is finished.


@triton.jit
def tile_position(tile, tiles_m, tiles_n):
    """Return (row, column) of the tile with number *tile*, taking eight rows at a time."""
    first = tile // (8 * tiles_n) * 8  # first row of this group
    rows = min(tiles_m - first, 8)  # the last group may have fewer rows
    return first + tile % (8 * tiles_n) % rows, tile % (8 * tiles_n) // rows


@triton.jit
def persistent_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute every tile whose number is this program's plus a multiple of all programs."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(program, tiles_m * tiles_n, programs, flatten=True):  # <-
        i, j = tile_position(tile, tiles_m, tiles_n)
        row, column = i * BLOCK_M, j * BLOCK_N
        compute_tile(a_desc, b_desc, c_desc, row, column, K, BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION)


# %%
# A **wave** is what runs at the same time, here one tile for each SM. From N = 2944 on, with at
# least three waves on 132 SMs, the persistent programs have :measured:`persistent` times the speed
# of one program for each tile. One wave has no pause to avoid.
#
# Full waves
# ----------
#
# The last wave takes as long as any other, even if only one tile is left for it. No order of the
# tiles changes that.
#
# .. predict:: Nine tiles run on four SMs. What is saved if the last one is cut into four pieces?
#    :choices: a ninth of the time | a quarter | a third
#    :answer: a quarter
#
#    Nine tiles are three waves, and three quarters of the last one are idle. A quarter of a tile on
#    each SM takes a quarter of a wave. So the product takes 2¼ waves instead of 3, if small tiles
#    are as efficient as large ones. They are not quite: they load more numbers for the same work.

# sphinx_gallery_fold = "draws nine tiles on four SMs"
_, ax = figure(height=3.2)
bars = [(i, i % 4, i // 4, 1) for i in range(8)]  # tile, SM, start, length
pieces = [(8, i, 2, 0.25) for i in range(4)]
for top, last in ((0, [(8, 0, 2, 1)]), (5, pieces)):
    for tile, sm, start, length in bars + last:
        color = plt.get_cmap("tab10")(tile)
        ax.barh(top + sm, length, 0.8, left=start, color=color, alpha=0.5, edgecolor="#444444")
        ax.text(start + length / 2, top + sm, tile, ha="center", va="center")
ax.set(xlim=(0, 3.05), ylim=(8.6, -0.6), ylabel="SM", xlabel="time, in large tiles")
ax.set_yticks([*range(4), *range(5, 9)], [*range(4)] * 2)
ax.set_title("9 tiles on 4 SMs; below, the last one is cut in four")
plt.show()

# %%
# A persistent program knows its tiles, so it can cut the last wave itself. It computes the first
# ``whole`` tiles as they are, and the others in pieces of ``CUT_M`` × ``CUT_N``. Without
# ``PERSISTENT``, each tile and each piece has a program of its own. That is better if all of them
# fit on the SMs at the same time.

# sphinx_gallery_difference = "persistent_kernel"


@triton.jit(do_not_specialize=["whole"])
def descriptor_kernel(
    a_desc, b_desc, c_desc, a_cut, b_cut, c_cut, M, N, K, whole,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    CUT_M: tl.constexpr, CUT_N: tl.constexpr, PERSISTENT: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of the tiles of C = activation(A @ B)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if PERSISTENT:
        for tile in tl.range(program, whole, programs, flatten=True):
            i, j = tile_position(tile, tiles_m, tiles_n)
            row, column = i * BLOCK_M, j * BLOCK_N
            compute_tile(
                a_desc, b_desc, c_desc, row, column, K, BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION
            )
    elif program < whole:  # one program for each tile
        i, j = tile_position(program, tiles_m, tiles_n)
        row, column = i * BLOCK_M, j * BLOCK_N
        compute_tile(a_desc, b_desc, c_desc, row, column, K, BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION)

    if CUT_M:
        ACROSS: tl.constexpr = BLOCK_N // CUT_N
        PIECES: tl.constexpr = BLOCK_M // CUT_M * ACROSS  # of one tile
        pieces = (tiles_m * tiles_n - whole) * PIECES
        first = program  # my first piece
        if not PERSISTENT:  # the programs after those for whole tiles have one piece each
            first = tl.where(program < whole, pieces, program - whole)
        for piece in range(first, pieces, programs):
            i, j = tile_position(whole + piece // PIECES, tiles_m, tiles_n)
            row = i * BLOCK_M + piece % PIECES // ACROSS * CUT_M
            column = j * BLOCK_N + piece % ACROSS * CUT_N
            compute_tile(a_cut, b_cut, c_cut, row, column, K, CUT_M, CUT_N, BLOCK_K, ACTIVATION)


# %%
# Choosing a tiling
# -----------------
#
# The tile that fills its waves is often better than the largest one, so the function chooses among
# ten **tilings** by an estimate of their time. For each of the K terms of its sums, an SM with an m
# × n tile loads m + n numbers and computes m · n products. The estimate counts both for the busiest
# SM, in units of one product: loading a number counts 24, and starting on the pieces 2²⁴, once.


@dataclass(frozen=True)
class Tiling:
    """How to share a product among programs."""

    tile: tuple[int, int, int]  # BLOCK_M, BLOCK_N, BLOCK_K
    warps: int
    stages: int
    persistent: bool = False  # one program for each SM, which computes many tiles
    resident: int = 0  # so many programs share an SM, all at the same time; 0: in waves
    cut: tuple[int, int] | None = None  # the smaller tile for the last wave


def count_waves(tiling, M, N):
    """Return the full waves, the tiles that are left, and the pieces of these."""
    m, n = tiling.tile[:2]
    waves, left = divmod(triton.cdiv(M, m) * triton.cdiv(N, n), SMS)
    return waves, left, left * m * n // math.prod(tiling.cut or (m, n))


def work(tiling, M, N, K):
    """Return products and loaded numbers of the busiest SM, and whether it starts on pieces."""
    waves, _, pieces = count_waves(tiling, M, N)
    (m, n), last = tiling.tile[:2], triton.cdiv(pieces, SMS)
    cut_m, cut_n = tiling.cut or (m, n)
    products = waves * m * n + last * cut_m * cut_n
    numbers = waves * (m + n) + last * (cut_m + cut_n)
    if tiling.resident not in (0, waves + last):  # not for so many programs on an SM
        products = math.inf
    return K * products, K * numbers, tiling.cut is not None and not tiling.resident


def cost(tiling, M, N, K, load=24, start=2**24):
    """Estimate the time of an (M, K) by (K, N) product, in products of one SM."""
    products, numbers, starts = work(tiling, M, N, K)
    return products + load * numbers + start * starts


# %%
# With fewer stages in the pipeline, two programs fit on one SM: while one waits or stores, the
# other multiplies. This pays for small matrices whose programs can all run at the same time:
# ``resident`` says how many of them share an SM.

# sphinx_gallery_fold = "the ten tilings, and the stages that shared memory has room for"


def with_room(tiling):
    """Return *tiling* with as many of its stages as the shared memory of this GPU has room for."""
    m, n, k = tiling.tile
    buffer = 2 * m * n if tiling.persistent else 0  # bytes, for storing a tile
    room = SHARED_BYTES // (tiling.resident or 1) - buffer - 1024
    return replace(tiling, stages=min(tiling.stages, room // (2 * (m + n) * k)))


LARGE = with_room(Tiling((128, 256, 64), warps=8, stages=3, persistent=True))
MEDIUM = with_room(Tiling((128, 128, 64), warps=4, stages=5, persistent=True))
CUTS = ((64, 64), (64, 128))
TILINGS = [
    *(Tiling((64, n, 128), warps=4, stages=4, resident=1) for n in (32, 64, 128)),
    Tiling((64, 128, 64), warps=4, stages=4, resident=2, cut=(64, 64)),
    *(Tiling((128, 128, 64), warps=4, stages=3, resident=2, cut=cut) for cut in CUTS),
    *(MEDIUM, *(replace(MEDIUM, cut=cut) for cut in CUTS), LARGE),
]
SMALL = Tiling((64, 64, 32), warps=4, stages=2)  # fits everywhere
TILINGS = [t for t in map(with_room, TILINGS) if t.stages >= 2] or [SMALL]

# %%
# Calling it
# ----------
#
# A launch needs three descriptors, and three more with the shapes of the pieces.

# sphinx_gallery_fold = "chooses a tiling, and gives the numbers of its launch"


def best_tiling(M, N, K, tilings=TILINGS):
    """Return the tiling with the lowest estimate."""
    return min(tilings, key=lambda tiling: cost(tiling, M, N, K))


def settings(tiling, M, N, K, activation):
    """Return the grid, the numbers and the constants of a launch of ``descriptor_kernel``."""
    waves, left, pieces = count_waves(tiling, M, N)
    whole, pieces = (waves * SMS, pieces) if tiling.cut else (waves * SMS + left, 0)
    programs = min(SMS, max(whole, pieces)) if tiling.persistent else whole + pieces
    (m, n, k), (cut_m, cut_n) = tiling.tile, tiling.cut or (None, None)
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "CUT_M": cut_m, "CUT_N": cut_n}
    constants |= {"PERSISTENT": tiling.persistent, "ACTIVATION": activation}
    constants |= {"num_warps": tiling.warps, "num_stages": tiling.stages}
    return (programs,), (M, N, K, whole), constants


# %%


def described(tiling, a, b, c):
    """Return six descriptors for ``descriptor_kernel``; the last three are None without pieces."""
    tiles, k = [tiling.tile[:2]] + [tiling.cut] * bool(tiling.cut), tiling.tile[2]
    blocks = [block for m, n in tiles for block in ((a, [m, k]), (b, [k, n]), (c, [m, n]))]
    made = [TensorDescriptor(t, t.shape, t.stride(), block) for t, block in blocks]
    return made + [None] * (6 - len(made))


def product(tiling, a, b, activation=""):
    """Return ``activation(a @ b)``, computed by *tiling*."""
    (M, K), N = a.shape, b.shape[1]
    assert len(b) == K and K % 8 == N % 8 == 0, "rows must start at multiples of 16 bytes"
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid, numbers, constants = settings(tiling, M, N, K, activation)
    descriptor_kernel[grid](*described(tiling, a, b, c), *numbers, **constants)
    return c


def matmul(a, b, activation=""):
    """Return ``activation(a @ b)`` for contiguous matrices."""
    return product(best_tiling(len(a), b.shape[1], len(b)), a, b, activation)


# %%

# sphinx_gallery_fold = "checks matmul, and every tiling by itself"
for shape in [(33, 136, 80), (144, 272, 128), (64, 256, 128)]:
    a, b = random_pair(*shape)
    check(matmul(a, b), a, b)
a, b = random_pair(1936, 2064, 256) if ON_GPU else random_pair(144, 272, 128)
for tiling in TILINGS:
    check(product(tiling, a, b, "leaky_relu"), a, b, "leaky_relu")
c = torch.empty(len(a), b.shape[1], dtype=a.dtype, device=DEVICE)
tiles = described(SMALL, a, b, c)[:3]
persistent_kernel[(2,)](*tiles, *c.shape, len(b), *SMALL.tile, "")  # two programs, many tiles
check(c, a, b)
print(f"matmul is right on three shapes, and so is each of {len(TILINGS)} tilings by itself")

# %%
# **Checking 24 and 2²⁴.** We time every possible tiling at eight sizes, from 512 to 4096. Then we
# look for the four times that predict these best: of a product, of loading a number, of starting on
# pieces, and of a launch. Least squares find those with the smallest relative errors. The plot
# compares the estimate of the rule, scaled to microseconds, with the measured time:

# sphinx_gallery_fold = "times all tilings, fits the constants, and draws estimates"
from shared.bench import STEPS, gpu_times, spread


def solve(columns, us):
    """Return the factors of *columns* whose sum is closest to the times *us*, relative to these."""
    us = torch.tensor(us, dtype=torch.float64)[:, None]
    weighted = torch.tensor(columns, dtype=torch.float64) / us
    return torch.linalg.lstsq(weighted, torch.ones_like(us)).solution[:, 0].tolist()


values = []  # (name, unit, value): what no benchmark holds
if ON_GPU:
    timed, ranks = [], []  # (tiling, n, µs); speed of the chosen tiling, as a share of the fastest
    for n in range(512, 4097, 512):
        a, b = random_pair(n, n, n)
        possible = [t for t in TILINGS if cost(t, n, n, n) < math.inf]
        times = gpu_times({t: partial(product, t, a, b) for t in possible}, 10)
        us = {tiling: 1e3 * spread(ms)[0] for tiling, ms in times.items()}
        timed += [(tiling, n, us[tiling]) for tiling in possible]
        ranks.append(100 * min(us.values()) / us[best_tiling(n, n, n)])
    us = [time for *_, time in timed]
    one, load, start, _ = solve([[*work(t, n, n, n), 1.0] for t, n, _ in timed], us)
    costs = [cost(tiling, n, n, n) for tiling, n, _ in timed]
    factor, offset = solve([[c, 1.0] for c in costs], us)
    estimates = [factor * c + offset for c in costs]
    fig, ax = figure(height=3.8)
    for way, color in (("cut", STEPS[0]), ("whole tiles", STEPS[1])):
        shown = [i for i, (t, *_) in enumerate(timed) if (t.cut is not None) == (way == "cut")]
        ax.plot([us[i] for i in shown], [estimates[i] for i in shown], "o", color=color, label=way)
    ax.axline((10, 10), slope=1, color="#444444", linestyle="--", linewidth=1, label="equal")
    ax.set(xscale="log", yscale="log", xlabel="measured, µs", ylabel="estimated, µs")
    ax.set_title(f"All tilings at eight sizes\non {GPU.name}")
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center", ncols=3, frameon=False)
    plt.show()
    sizes = [(n, n, n) for n in range(512, 4097, 128)]
    fitted = partial(cost, load=load / one, start=start / one)
    same = sum(min(TILINGS, key=lambda t, s=s: fitted(t, *s)) == best_tiling(*s) for s in sizes)
    errors = [100 * abs(e / t - 1) for e, t in zip(estimates, us, strict=True)]
    values += [("rank", "%", min(ranks)), ("error", "%", sum(errors) / len(errors))]
    values += [("fitted load", "products", load / one), ("same choice", "sizes", same)]
    values += [("fitted start", "2^", math.log2(max(1.0, start / one)))]

# %%
# On this GPU the best fit is :measured:`fit_load` products for loading a number, where the rule has
# 24. For the pieces it is 2 to the power of :measured:`fit_start`, where the rule has 2²⁴. The
# constants of the rule were set by hand on an H200, before there was a fit. The rule's estimates
# are :measured:`error` % off on average. But only the choice counts, and both pairs of constants
# choose the same tiling at :measured:`same` of 29 sizes. At the worst of the eight timed sizes, the
# tiling of the rule has :measured:`rank` % of the speed of the fastest one.
#
# In a program
# ------------
#
# A function that others call may get matrices that no descriptor can address: stored by columns, or
# with rows that start anywhere. It copies these first. It refuses matrices that require a gradient,
# because the result would have none. Making six descriptors is slow in Python. So the function
# keeps a *plan* for arguments of the same shapes and strides
# (:doc:`/programming-guide/chapter-6/calls`): the launch, and the encoded descriptors for each set
# of addresses. Only new addresses need new descriptors.

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import Launch, key_of, know_the_gpu, on_device_of
from shared.plans import ORDINARY, EncodedPlan, Plans, empty_kernel
from shared.products import check_arguments

DTYPES = [torch.float16, *[torch.bfloat16] * ON_GPU]  # the interpreter computes bf16 wrongly
PLANS = Plans()


def aligned(x):
    """Return *x*, or a copy of it whose rows are contiguous, at multiples of 16 bytes."""
    row, column = x.stride()
    if column == 1 and row >= x.shape[1] and row % 8 == 0 and x.data_ptr() % 16 == 0:
        return x
    return x.new_empty(len(x), x.shape[1] + -x.shape[1] % 8)[:, : x.shape[1]].copy_(x)


def plan_of(a, b, activation):
    """Return a plan for matrices like these, and the columns of C."""
    know_the_gpu()  # a new thread does not
    (M, K), N = a.shape, b.shape[1]
    tiling, c = best_tiling(M, N, K), a.new_empty(M, N + -N % 8)
    launch = Launch(descriptor_kernel, *settings(tiling, M, N, K, activation))
    return EncodedPlan(launch, described(tiling, a, b, c)), c.shape[1]


def matmul(a, b, activation=""):
    """Return ``activation(a @ b)``, summed in fp32 and rounded once, without gradients.

    Arguments and errors are those of 03-matrix-multiplication, but fp32 is refused. A matrix is
    copied first if its rows are not contiguous, or do not start at multiples of 16 bytes.
    """
    whole = torch.compiler.is_compiling() or not {type(a), type(b)} <= ORDINARY
    found, wanted = None, torch.is_grad_enabled()
    if not whole and not (wanted and (a.requires_grad or b.requires_grad)):
        if a.is_neg() or b.is_neg():  # the sign is still to be changed
            a, b = a.resolve_neg(), b.resolve_neg()
        with suppress(RuntimeError, TypeError):  # a sparse tensor, or an activation without a hash
            found = PLANS.get((key_of(a, b), activation))
    if found is None:
        check_arguments(a, b, activation, DEVICE, DTYPES)
        if whole:
            return matmul_op(a, b, activation)
        if not (a.numel() and b.numel()):  # no results, or sums of nothing
            return a.new_zeros(a.shape[0], b.shape[1])
        x, y = aligned(a), aligned(b)
        if x is not a or y is not b:
            return matmul(x, y, activation)
        with on_device_of(a):
            found = plan_of(a, b, activation)
        PLANS.keep((key_of(a, b), activation), found)
    plan, width = found
    c = a.new_empty(a.shape[0], width)
    plan(a, b, c)
    return c if width == b.shape[1] else c[:, : b.shape[1]].contiguous()


# For torch.compile, and for tensors without memory, the function is one operation.
SCHEMA = "(Tensor a, Tensor b, str activation) -> Tensor"


@torch.library.custom_op("gallery::matmul_in_waves", mutates_args=(), schema=SCHEMA)
def matmul_op(a, b, activation):
    """Return what ``matmul`` returns."""
    return matmul(a.detach(), b.detach(), activation)


@matmul_op.register_fake
def matmul_shape(a, b, activation):
    """Return a matrix like the result, without computing it."""
    return a.new_empty(a.shape[0], b.shape[1])


for shape in [(33, 129, 77), (144, 272, 128), (64, 256, 128), (4, 0, 3), (3, 2, 0)] * 2:
    a, b = random_pair(*shape)
    check(matmul(a, b), a, b)
    check(matmul(a, b[:, ::2], "leaky_relu"), a, b[:, ::2], "leaky_relu")
print("matmul is right on five shapes and on views, twice, because the second call uses the plan")

# %%
# The benchmark
# -------------
#
# Step 1 is the large tile in waves, step 2 the same tile in persistent programs, step 3 the one of
# two tiles that our estimate prefers, and step 4 ``matmul``. The last three sizes of the table are
# layers of language models with 300, 1 and 17 tokens. The tilings were not made for them.

# sphinx_gallery_fold = "times the steps, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "descriptor_kernel: 2176 × 2176 × 2176, fp16"
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table
from shared.products import LAYERS
from tabulate import tabulate

LIBRARY = "rocblas" if torch.version.hip else "cublas"
NAMES = ("1 descriptors", "2 persistent", "3 the better tile", "4 cut")


def time_steps(M, N, K):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    a, b = random_pair(M, N, K)
    tilings = replace(LARGE, persistent=False), LARGE, best_tiling(M, N, K, (LARGE, MEDIUM))
    calls = [partial(product, tiling, a, b) for tiling in tilings] + [partial(matmul, a, b)]
    calls = dict(zip(NAMES, calls, strict=True)) | {LIBRARY: partial(torch.matmul, a, b)}
    check(calls["4 cut"](), a, b)
    return rates((M, N, K), calls, "TFLOPS", 2 * M * N * K, 20)


if ON_GPU:
    squares = [(n, n, n) for n in range(512, 4097, 128)]
    rows = [row for size in (*squares, *LAYERS) for row in time_steps(*size)]
    write_rows("matmul-steps-fp16.csv", ["M", "N", "K"], rows)
    kinds = {"4 cut": "triton", "2 persistent": "triton, persistent", LIBRARY: LIBRARY}
    shown = [row for row in rows if row[3] in kinds and row[:3] in squares]
    shown = [(*row[:3], kinds[row[3]], *row[4:]) for row in shown]
    names = {"triton": "matmul", "triton, persistent": "2 persistent"}
    names[LIBRARY] = LIBRARY.replace("blas", "BLAS")
    draw_rates(shown, names, "Matrix product in fp16", "M = N = K")
    rate = {(*row[:3], row[3]): row[5] for row in rows}
    sizes = [(n, n, n) for n in (512, 1024, 1536, 2176, 3072, 4096)] + LAYERS
    table = [
        (*size, *(100 * rate[*size, s] / rate[*size, LIBRARY] for s in NAMES)) for size in sizes
    ]
    print(f"% of {LIBRARY}, higher is better")
    print(tabulate(table, ["M", "N", "K", *NAMES], floatfmt=".0f", intfmt=","))
    matmul(*random_pair(2176, 2176, 2176))  # the last launch is the one whose X-ray is shown
    a, b = random_pair(512, 512, 512)
    calls = {"triton": partial(matmul, a, b), "torch": partial(torch.matmul, a, b)}
    cpu = write_calls({"matmul": calls | {"launch": empty_kernel[(1,)]}})["matmul", "triton"]
    us = {n: 2e-6 * n**3 / rate[n, n, n, "4 cut"] for n, *_ in squares}
    values.append(("GPU longer from", "rows", min(n for n in us if us[n] > cpu)))
    write_table("03b-full-waves-values.csv", ["name", "unit", "value"], values)

# %%
# The steps at M = N = K = 2176, a size with an awkward last wave:
#
# .. steps:: library
#    :unit: TFLOPS
#    :of: the library
#
#    one: descriptors, one program for each tile
#    two: persistent programs
#    three: the tile that fills its waves better
#    four: the last wave cut
#
# **The teeth** in the curve of the large tile are its waves. **Cutting** fills the valleys, as far
# as small tiles are efficient. From 1024 on, choosing between two tiles brings a factor of
# :measured:`better` on average, and ``matmul`` another :measured:`cut`. Over the layers, ``matmul``
# has :measured:`layers` % of the library's speed.
#
# A call of ``matmul`` keeps the CPU busy for :measured:`cpu` µs, and one of PyTorch's product for
# :measured:`cpu_torch` µs. In a loop that does not wait for results, a call costs the larger of the
# CPU's and the GPU's time. The GPU's is the larger from :measured:`gpu_longer` rows on.
#
# *Stream-K* (see *References*) goes further: it shares the steps along K of the last wave among
# SMs, and adds up partial sums in memory. This page does not measure it.
#
# Exercises
# ---------
#
# 1. **A long K** *(hard, 45 minutes)*. A single SM computes a product of 64 × K by K × 64 matrices.
#    Share K between programs in ``split_k_matmul(a, b, parts)``, with the same result every time.
#    :doc:`Solution <solutions/03-split-k>`.
# 2. **A GPU with other numbers** *(easy, 5 minutes)*. Write ``filled(tiles, processors)``, the
#    share of the places in all waves that hold a tile. If you set ``SMS`` to 84 or to 304, which
#    tiling does the rule choose?
#
# References
# ----------
#
# * Muhammad Osama et al.: *Stream-K: work-centric parallel decomposition for dense matrix-matrix
#   multiplication on the GPU*, PPoPP 2023, https://doi.org/10.1145/3572848.3577479
