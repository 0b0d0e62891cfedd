"""
Matrix multiplication
=====================

You build ``matmul(a, b, activation="")`` here, starting from a loop of five lines. Over 31 sizes it
reaches :measured:`share` % of the speed of cuBLAS, NVIDIA's library for matrix products. Part two,
:doc:`03b-full-waves`, reaches :measured:`03b-full-waves:share` %. You need :doc:`01-vector-add`.
"""

# %%
# The kernel
# ----------
#
# One program computes one **tile** of the product C = A B: a block of ``BLOCK_M`` rows and
# ``BLOCK_N`` columns. For now the matrices are contiguous, and the tile sizes divide them.

# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "first hour"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


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


def random_pair(M, N, K, dtype=torch.float16):
    """Return random matrices of M × K and K × N elements."""
    return [torch.randn(shape, device=DEVICE).to(dtype) for shape in ((M, K), (K, N))]


def check(c, a, b, activation=""):
    """Stop if *c* is not ``activation(a @ b)``, computed in float64."""
    exact = a.double() @ b.double()
    if activation == "leaky_relu":
        exact = torch.nn.functional.leaky_relu(exact)
    rounding, summing = torch.finfo(a.dtype).eps, 2**-20 * a.shape[1]  # K products in fp32
    torch.testing.assert_close(c.double(), exact, rtol=rounding, atol=summing)


a, b = random_pair(128, 192, 96)
c = torch.empty(128, 192, dtype=a.dtype, device=DEVICE)
tile_kernel[2, 3](a, b, c, 192, 96, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
check(c, a, b)
print("128 × 96 by 96 × 192: right, in 2 × 3 tiles")

# %%
# How it works
# ------------
#
# An element of C is a row of A times a column of B. A program that computes only one element loads
# 2K numbers for K products. A tile shares its loads: each number of A is used ``BLOCK_N`` times,
# and each number of B ``BLOCK_M`` times. In pseudo-code, one program does this::
#
#     acc = zeros(BLOCK_M, BLOCK_N)
#     for each step of BLOCK_K along K:
#         load a tile of A, BLOCK_M × BLOCK_K, and a tile of B, BLOCK_K × BLOCK_N
#         acc += tile of A times tile of B
#     store acc as the tile of C

# sphinx_gallery_fold = "draws the tiles that one program loads"
import matplotlib.pyplot as plt

_, axes = plt.subplots(1, 3, figsize=(7, 2.6), layout="constrained")
pictures = {  # title: (rows and columns of tiles, {tile that is used: text})
    "A: M × K, by step": ((4, 6), {(1, k): k for k in range(6)}),
    "B: K × N, by step": ((6, 5), {(k, 3): k for k in range(6)}),
    "C: M × N": ((4, 5), {(1, 3): "acc"}),
}
for ax, (title, (shape, used)) in zip(axes, pictures.items(), strict=True):
    ax.set(xlim=(-0.1, 6.1), ylim=(6.1, -0.1), title=title, aspect="equal")
    ax.axis("off")
    tiles = torch.zeros(shape)
    for (row, column), text in used.items():
        tiles[row, column] = 1
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center")
    ax.pcolormesh(tiles, cmap="Blues", vmax=4, edgecolors="#777777")
plt.show()

# %%
# ``rows[:, None] * K + steps[None, :]``
#     Offsets in two dimensions. Element (i, j) of a contiguous matrix with K columns is at offset
#     ``i * K + j``. A column of numbers plus a row of numbers broadcasts to a tile, as in PyTorch.
# ``tl.dot``
#     Multiplies two tiles on the **tensor cores**, the units of a GPU that multiply small matrices
#     in hardware, and adds the result to ``acc``. It refuses tiles that are too small: *Input
#     shapes should have M >= 1, N >= 1 and K >= 16*.
# ``acc``
#     The sum is in fp32 and is rounded once, at the end. An fp16 sum loses terms: 2048 + 1 is 2048.
# the loop
#     The compiler turns it into a **pipeline**: it loads later tiles while the tensor cores
#     multiply. Loaded tiles wait in **shared memory**, the fast memory inside each multiprocessor.
#
# A product of N × N matrices has 2N³ operations and moves at least 6N² bytes in fp16. At N = 4096
# that is more than a thousand operations for each byte. Large products are **compute-bound**: the
# tensor cores set the limit. Speed is given in TFLOPS, 10¹² operations per second.
#
# Any size
# --------
#
# A tile at the edge can stick out of the matrix. Masks keep it inside::
#
#     a_mask = (rows[:, None] < M) & (steps[None, :] < K)
#     b_mask = (steps[:, None] < K) & (columns[None, :] < N)
#     a = tl.load(…, mask=a_mask, other=0.0)              # and b with its own mask
#     tl.store(…, mask=(rows[:, None] < M) & (columns[None, :] < N))
#
# Along K the masked elements must be zero, because they are added to every sum. Along M and N they
# only affect elements of C that are never stored.
#
# Sharing what was loaded
# -----------------------
#
# Programs that run at the same time share the L2 cache. If several of them need the same tile of A
# or B, it is loaded from memory once. So the order of the tiles decides how much memory is read.
# The order below takes ``group`` rows of tiles together, and goes through them column by column.
# With ``group = 1`` it goes row by row. The function is plain Python, and a kernel can call it.


def tile_position(tile, tiles_m, tiles_n, group):
    """Return (row, column) of the tile with number *tile*, taking *group* rows at a time."""
    in_group = group * tiles_n  # tiles of one full group
    first = tile // in_group * group  # first row of this group
    rows = min(tiles_m - first, group)  # the last group may have fewer rows
    return first + tile % in_group % rows, tile % in_group // rows


# %%
# Here C has nine by nine tiles, and nine programs run at the same time. Together they are a
# **wave**. Row by row, a wave needs one row of A and all of B: 9 + 81 = 90 tiles. In groups of
# three rows it needs three rows of A and three columns of B: 27 + 27 = 54.
#
# .. tile-order::
#    :size: 9
#    :group: 3
#    :processors: 9
#
# This is the kernel with masks and groups. Its grid has one axis, and the first two lines turn the
# number of the program into the position of its tile.

# sphinx_gallery_difference = "tile_kernel"
tile_position_in_kernel = triton.jit(tile_position)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, EVEN: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = activation(A @ B)."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, column = tile_position_in_kernel(tl.program_id(0), tiles_m, tiles_n, GROUP)
    rows = row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    steps = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + rows[:, None] * stride_am + steps[None, :] * stride_ak  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + steps[:, None] * stride_bk + columns[None, :] * stride_bn  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN:  # no tile sticks out
            a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        else:
            a_mask = (rows[:, None] < M) & (steps[None, :] < K - k)
            b_mask = (steps[:, None] < K - k) & (columns[None, :] < N)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_ak
        b_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    c_ptrs = c_ptr + rows[:, None] * N + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


# %%
# The kernel also takes **strides**, the distances between neighbors in a column and in a row of a
# tensor, so a transposed or sliced matrix needs no copy. Its offsets have 64 bits, because large
# matrices overflow 32. ``EVEN`` omits the masks where the tile sizes divide the matrices.
# ``input_precision="ieee"`` is for fp32 matrices, which ``tl.dot`` otherwise rounds to tf32.
#
# Groups pay for large matrices: while the cache holds A and B, the order hardly matters. At M = N =
# K = 8192, groups of eight rows are :measured:`groups` times as fast as row by row.
#
# Choosing the tile
# -----------------
#
# A larger tile reuses its numbers more often. But the sum occupies registers, the pipeline occupies
# shared memory, and a small matrix has too few large tiles to give every multiprocessor one.
# ``triton.autotune`` finds the best tile by trial. When the arguments in ``key`` have new values,
# it compiles and times every configuration, and keeps the fastest.

import time

MULTIPROCESSORS, SHARED_BYTES = 132, 232448  # of an H200
if ON_GPU:
    gpu = torch.get_device_module().get_device_properties(DEVICE)
    MULTIPROCESSORS = gpu.multi_processor_count
    SHARED_BYTES = getattr(gpu, "shared_memory_per_block_optin", 65536)

# BLOCK_M, BLOCK_N, BLOCK_K, warps and stages of each tile
TILES = [(128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (64, 128, 64, 4, 4), (64, 64, 128, 4, 4)]
TILES = [t for t in TILES if 2 * t[4] * (t[0] + t[1]) * t[2] < SHARED_BYTES]  # those that fit
TILES.append((64, 32, 64, 4, 4))  # fits everywhere
configs = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in TILES
]
tuned_kernel = triton.autotune(configs, key=["M", "N", "K"])(matmul_kernel)


def time_tuned(n):
    """Return the milliseconds of one call with n × n matrices, until the GPU is done."""
    a, b, c = torch.randn(3, n, n, device=DEVICE).half()
    torch.accelerator.synchronize()
    start = time.perf_counter()
    tuned_kernel[lambda tile: (triton.cdiv(n, tile["BLOCK_M"]) * triton.cdiv(n, tile["BLOCK_N"]),)](
        a, b, c, n, n, n, n, 1, n, 1, GROUP=8, EVEN=False, ACTIVATION=""
    )
    torch.accelerator.synchronize()
    return 1e3 * (time.perf_counter() - start)


values = []  # (name, unit, value): what no benchmark holds
for n in (512, 1024, 4096) if ON_GPU else ():
    values += [(f"{call} call {n}", "ms", time_tuned(n)) for call in ("first", "second")]
    print(f"{n}: {values[-2][2]:.0f} ms, then {values[-1][2]:.2f} ms;", tuned_kernel.best_config)

# %%
# The very first call compiles every configuration, and takes :measured:`tuning` times as long as
# the second. Each new key is timed again, and so is each new process, unless ``cache_results=True``
# keeps the results. The trials run on your tensors, many times: a kernel that works in place needs
# ``restore_value=["x_ptr"]``, or the result of its first call is wrong.
#
# Our function uses a rule instead, which costs nothing at a new shape: the largest tile that still
# gives nearly every multiprocessor a program.


def choose_tile(M, N, dtype):
    """Return the largest tile of which an M × N matrix has enough."""
    if dtype == torch.float32:
        return (64, 32, 32, 4, 4)  # no tensor cores: small tiles will do
    enough = 0.9 * MULTIPROCESSORS
    many = (t for t in TILES if triton.cdiv(M, t[0]) * triton.cdiv(N, t[1]) >= enough)
    return next(many, TILES[-1])


# %%
# Fusing the activation
# ---------------------
#
# In a network an activation follows the product. *LeakyReLU* multiplies negative numbers by 0.01.
# As a separate operation, it reads C from memory and writes it again. ``ACTIVATION`` applies it
# inside the kernel, where the sum is still in registers and not yet rounded.
#
# ``matmul`` keeps the compiled kernel and its arguments for the next call with matrices of the same
# shape and strides. :doc:`/programming-guide/chapter-6/calls` explains how, and what that saves.

# sphinx_gallery_fold = "checks the arguments, and keeps a launch for each kind of them"
# sphinx_gallery_show = "settings, matmul"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch_recorded import Launch, key_of

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_arguments(a, b, activation):
    """Raise TypeError or ValueError, naming the argument, if ``matmul`` cannot go on."""
    for name, t in (("a", a), ("b", b)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in DTYPES:
            raise TypeError(f"{name} must be float16, bfloat16 or float32, but is {t.dtype}")
        if t.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, but has shape {tuple(t.shape)}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
    if a.dtype != b.dtype:
        raise TypeError(f"a and b must have one dtype, but have {a.dtype} and {b.dtype}")
    if a.shape[1] != b.shape[0]:
        shapes = f"{tuple(a.shape)} × {tuple(b.shape)}"
        raise ValueError(f"a must have as many columns as b has rows: {shapes}")
    if activation not in ("", "leaky_relu"):
        raise ValueError(f'activation must be one of "" and "leaky_relu", but is {activation!r}')


def settings(a, b, activation):
    """Return the grid, the numbers and the constants of a launch of ``matmul_kernel``."""
    (M, K), N = a.shape, b.shape[1]
    m, n, k, warps, stages = choose_tile(M, N, a.dtype)
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}
    constants |= {"EVEN": M % m == N % n == K % k == 0, "ACTIVATION": activation}
    constants |= {"num_warps": warps, "num_stages": stages}
    return (triton.cdiv(M, m) * triton.cdiv(N, n),), (M, N, K, *a.stride(), *b.stride()), constants


def new_launch(a, b, activation):
    """Return a launch for arguments of this kind, which are checked."""
    check_arguments(a, b, activation)
    if len(PLANS) == 1000:  # a program whose shapes never repeat
        PLANS.clear()
    return Launch(matmul_kernel, *settings(a, b, activation))


PLANS = {}


def matmul(a, b, activation=""):
    """Return ``activation(a @ b)``, summed in fp32 and rounded once.

    *a* has shape (M, K) and *b* (K, N). Both are fp16, bf16 or fp32, on one device, with any
    strides. *activation* is "" or "leaky_relu". TypeError and ValueError name a wrong argument.
    """
    if torch.compiler.is_compiling():  # the compiler has to see the kernel
        launch = new_launch(a, b, activation).ask
    else:
        try:
            launch = PLANS[key_of(a, b), activation]
        except (AttributeError, TypeError, KeyError):  # no tensors, or the first call of its kind
            launch = PLANS[key_of(a, b), activation] = new_launch(a, b, activation)
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    if c.numel():
        launch(a, b, c)
    return c


for shape in [(33, 129, 77), (123, 77, 45), (64, 256, 128), (5, 7, 3), (4, 0, 3), (3, 2, 0)]:
    for dtype in DTYPES if ON_GPU else (torch.float16, torch.float32):  # not bf16: interpreter
        a, b = random_pair(*shape, dtype)
        check(matmul(a, b), a, b)
        a, b = a.T.contiguous().T, b[:, ::2]  # stored by columns; every second column
        check(matmul(a, b, "leaky_relu"), a, b, "leaky_relu")
print("matmul is right on 6 shapes, on views, with LeakyReLU and without")

# %%
# The benchmark
# -------------
#
# Square fp16 matrices from 256 to 4096, in steps of 128: our product and the library's, without and
# with LeakyReLU, which PyTorch computes in a second kernel.

# sphinx_gallery_fold = "times the products, draws the rates, and keeps the rows"
from functools import partial

from shared.bench import plot_rates, rows_of, spread, time_on_gpu, write_calls
from shared.bench import write_rows, write_table
from tabulate import tabulate

LIBRARY = "rocblas" if torch.version.hip else "cublas"
LEAKY = ("triton + leaky_relu", f"{LIBRARY} + leaky_relu")


@triton.jit
def empty_kernel():
    """Do nothing."""


if ON_GPU:
    rows = []
    for n in range(256, 4097, 128):
        a, b = random_pair(n, n, n)
        calls = {"triton": partial(matmul, a, b), LIBRARY: partial(torch.matmul, a, b)}
        calls[LEAKY[0]] = partial(matmul, a, b, "leaky_relu")
        calls[LEAKY[1]] = lambda a=a, b=b: torch.nn.functional.leaky_relu(a @ b)
        rows += rows_of((n, n, n), calls, "TFLOPS", 2 * n**3, as_called=("triton", LIBRARY))
    write_rows("matmul-performance-fp16.csv", ["M", "N", "K"], rows)
    a, b, c = torch.randn(3, 8192, 8192, device=DEVICE).half()
    steps = {"library": partial(torch.matmul, a, b)}
    steps["plain"] = lambda: tile_kernel[128, 128](a, b, c, 8192, 8192, 64, 64, 32)
    grid, numbers, constants = settings(a, b, "")
    for name, other in (("rows", {"GROUP": 1}), ("groups", {})):
        steps[name] = partial(Launch(matmul_kernel, grid, numbers, constants | other), a, b, c)
    times = time_on_gpu(steps, 10)
    values += [(name, "TFLOPS", 2 * 8192**3 / spread(ms)[0] / 1e9) for name, ms in times.items()]
    write_table("03-matrix-multiplication-values.csv", ["name", "unit", "value"], values)
    a, b = random_pair(256, 256, 256)
    calls = {"triton": partial(matmul, a, b), "torch": partial(torch.matmul, a, b)}
    write_calls({"matmul": calls | {"launch": empty_kernel[(1,)]}})
    rate = {(row[0], row[3]): row[5] for row in rows}
    table = [(n, *(rate[n, name] for name in LEAKY)) for n in (512, 1024, 2048, 4096)]
    print(tabulate(table, ["M = N = K, TFLOPS", *LEAKY], floatfmt=".0f"))
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    names = {"triton": "matmul", LIBRARY: LIBRARY, "triton, as called": "matmul, as called"}
    shown = [(row[0], *row[3:]) for row in rows]
    plot_rates(ax, shown, names, "Matrix product in fp16", "M = N = K")

# %%
# The steps of this page at M = N = K = 8192, with the library as ceiling:
#
# .. steps:: library
#    :unit: TFLOPS
#    :of: the library
#
#    plain: the plain loop, tiles of 64 × 64
#    rows: large tiles, row by row
#    grouped: large tiles in groups, as in matmul
#
# **The left end** is launch-bound: small products end after a few steps along K. **The teeth** are
# waves. The rate drops where the tiles need one more wave, and recovers as that wave fills up. The
# library uses other tiles, so its teeth are at other sizes. **The right end** is compute-bound: at
# 4096 our kernel reaches :measured:`large` % of the library. **The activation**, as a second
# operation, costs a launch and a trip of C through memory. The fused product is :measured:`fused`
# times as fast as the library's product with PyTorch's activation.
#
# **As called**, ``matmul`` reaches :measured:`called` % of the library. A call keeps the CPU busy
# for :measured:`cpu` µs, and one of PyTorch's for :measured:`cpu_torch` µs.
#
# **What is left.** Our programs start each tile with an empty pipeline, and the last wave is rarely
# full. :doc:`03b-full-waves` removes both with persistent programs and tensor descriptors.
#
# Exercises
# ---------
#
# 1. **A linear layer.** Add a bias to every row before the activation, and let the activation be
#    ReLU or GELU as well. What does each cost? :doc:`Solution <solutions/03-linear-layer>`.
# 2. **A batch.** Multiply many pairs of small matrices with one launch. Where does the batch go in
#    the grid, and what is gained? :doc:`Solution <solutions/03-batched>`.
# 3. **A transposed weight** *(easy, 15 minutes)*. Write ``matmul_t(a, w)``, which returns
#    ``a @ w.T``
#    without a copy of *w*. Which strides does the kernel get?
#
# ``python exercise.py 03-batched mine.py`` checks your function, as on :doc:`01-vector-add`.
#
# References
# ----------
#
# * Kazushige Goto and Robert A. van de Geijn: *Anatomy of high-performance matrix multiplication*,
#   ACM TOMS 34(3), 2008, https://doi.org/10.1145/1356052.1356053
