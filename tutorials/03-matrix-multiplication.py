"""
Matrix multiplication
=====================

You build ``matmul(a, b, activation="")`` here, starting from a loop of five lines. Over 31 square
sizes it reaches :measured:`share` % of the speed of cuBLAS, NVIDIA's library for matrix products.
You need :doc:`01-vector-add` and the strides of :doc:`02-fused-softmax`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "first hour"
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
SMS = getattr(GPU, "multi_processor_count", 132)  # as on an H100
SHARED_BYTES = getattr(GPU, "shared_memory_per_block_optin", 65536) if ON_GPU else 232448

# %%
# The kernel
# ----------
#
# One program computes one **tile** of the product C = A B: a block of ``BLOCK_M`` rows and
# ``BLOCK_N`` columns. For now, the tile sizes divide those of the matrices. The grid has two axes:
# ``tl.program_id(0)`` counts rows of tiles, ``tl.program_id(1)`` columns.


@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = A @ B."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    ks, step = tl.arange(0, BLOCK_K).to(tl.int64), tl.cast(BLOCK_K, tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + ks[:, None] * stride_bk + columns[None, :] * stride_bn  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        acc = tl.dot(a, b, acc, input_precision="ieee")  # <-
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty))


# %%

# sphinx_gallery_fold = "draws matrices, and compares a product with float64"
# sphinx_gallery_capture_repr_block = ()
from shared.products import check


def random_pair(M, N, K, dtype=torch.float16):
    """Return random matrices of M × K and K × N elements."""
    return [torch.randn(shape, device=DEVICE).to(dtype) for shape in ((M, K), (K, N))]


torch.manual_seed(0)

# %%

a, b = random_pair(128, 192, 96)
c = torch.empty(128, 192, dtype=a.dtype, device=DEVICE)
tile_kernel[2, 3](a, b, c, 192, 96, *a.stride(), *b.stride(), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
check(c, a, b)
print("128 × 96 by 96 × 192: right, in 2 × 3 tiles")

# %%
# How it works
# ------------
#
# An element of C is a row of A times a column of B. A program that computes only one element loads
# 2K numbers for K products. A tile shares its loads: each number of A is used ``BLOCK_N`` times,
# and each number of B ``BLOCK_M`` times. So a program goes along K in steps of ``BLOCK_K``. In each
# step it loads a tile of A and a tile of B, and adds their product to the sum ``acc``.
#
# .. image:: 03-matrix-multiplication.svg
#    :alt: The program of one tile of C walks along a row of tiles of A and down a column of tiles
#          of B. In each step it adds the product of two tiles.
#    :scale: 100
#    :loading: lazy
#
# ``rows[:, None] * stride_am + ks[None, :] * stride_ak``
#     Offsets in two dimensions. The **strides** of a matrix are the distances from one row to the
#     next and from one column to the next. A column plus a row of numbers broadcasts to a tile, as
#     in PyTorch. Offsets have 64 bits, because those of large matrices overflow 32.
# ``a_ptrs += step * stride_ak``
#     Moves the tile by ``BLOCK_K`` columns of A. ``step`` is ``BLOCK_K`` with 64 bits.
# ``tl.dot``
#     Multiplies two tiles on the **tensor cores**, the units that multiply small matrices in
#     hardware, and adds the result to ``acc``. It refuses tiles that are too small: on an H100 with
#     fp16, *Input shapes should have M >= 1, N >= 1 and K >= 16*. ``input_precision="ieee"`` keeps
#     all 24 significant bits of fp32 matrices. The default on NVIDIA GPUs rounds them to *tf32*,
#     with 11.
# ``acc``
#     The sum is in fp32 and is rounded once, at the end, to the dtype of C. An fp16 sum loses
#     terms: 2048 + 1 is 2048.
# the loop
#     The compiler turns it into a **pipeline**: it loads later tiles while the tensor cores
#     multiply. Loaded tiles wait in the **shared memory** of a multiprocessor (SM)
#     (:doc:`/programming-guide/chapter-1/gpu`). The pipeline's **stages** are the steps whose tiles
#     have room there.
#
# A product of N × N matrices has 2N³ operations and moves at least 6N² bytes in fp16. At N = 4096
# that is more than a thousand operations for each byte. Large products are **compute-bound**: the
# tensor cores set the limit. Their rate is in TFLOPS, 10¹² operations per second.
#
# Since Hopper (H100), NVIDIA GPUs can also load a tile by a **tensor descriptor**, a record of a
# matrix's address, shape and strides: the kernel gives a position in place of pointers and masks.
# See :doc:`03b-full-waves`.
#
# Sharing what was loaded
# -----------------------
#
# Programs that run at the same time share a large cache, such as L2. If several of them need the
# same tile of A or B, it is loaded from memory once. So the order of the tiles decides how much
# memory is read. This function takes ``group`` rows of tiles together, and goes through them column
# by column. It is plain Python; ``triton.jit`` makes it ``tile_position_in_kernel``, which a kernel
# can call.


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
# The grid now has one axis, and two lines turn the program's number into the position of its tile::
#
#     tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
#     row, column = tile_position_in_kernel(tl.program_id(0), tiles_m, tiles_n, GROUP)
#
# Groups pay off for matrices that the cache cannot hold. At M = N = K = 8192, groups of eight rows
# are :measured:`groups` times as fast as row by row.

# sphinx_gallery_fold = "the kernel with groups"
# sphinx_gallery_difference = "tile_kernel"
tile_position_in_kernel = triton.jit(tile_position)


@triton.jit
def grouped_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = A @ B, in groups of GROUP rows of tiles."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, column = tile_position_in_kernel(tl.program_id(0), tiles_m, tiles_n, GROUP)
    rows = row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    ks, step = tl.arange(0, BLOCK_K).to(tl.int64), tl.cast(BLOCK_K, tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + ks[:, None] * stride_bk + columns[None, :] * stride_bn  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty))


# %%
# Choosing the tile
# -----------------
#
# A larger tile uses each number more often. But it needs more registers and shared memory, and a
# small matrix has too few large tiles to give every SM one. ``triton.autotune`` finds the best tile
# by trial. When the arguments in ``key`` have new values,
# it compiles and times every configuration, and keeps the fastest.

# BLOCK_M, BLOCK_N, BLOCK_K, warps and stages of each tile
TILES = [(128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (64, 128, 64, 4, 4), (64, 64, 128, 4, 4)]
TILES = [t for t in TILES if 2 * t[4] * (t[0] + t[1]) * t[2] < SHARED_BYTES]  # those that fit
TILES = [*TILES, (64, 32, 64, 4, 4)]  # fits everywhere
configs = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in TILES
]
tuned_kernel = triton.autotune(configs, key=["M", "N", "K"])(grouped_kernel)

# %%

# sphinx_gallery_fold = "times the first and the second call of the tuned kernel"
import time


def time_tuned(n):
    """Return the milliseconds of one call with n × n matrices, until the GPU is done."""
    a, b, c = torch.randn(3, n, n, device=DEVICE).half()
    torch.accelerator.synchronize()
    start = time.perf_counter()
    tuned_kernel[lambda tile: (triton.cdiv(n, tile["BLOCK_M"]) * triton.cdiv(n, tile["BLOCK_N"]),)](
        a, b, c, n, n, n, n, 1, n, 1, GROUP=8
    )
    torch.accelerator.synchronize()
    ms = 1e3 * (time.perf_counter() - start)
    check(c, a, b)
    return ms


values = []  # (name, unit, value): what no benchmark holds
for n in (512, 1024, 4096) if ON_GPU else ():
    values += [(f"{call} call {n}", "ms", time_tuned(n)) for call in ("first", "second")]
    print(f"{n}: {values[-2][2]:.0f} ms, then {values[-1][2]:.2f} ms;", tuned_kernel.best_config)

# %%
# The very first call, which also compiles, takes :measured:`tuning` times as long as the second.
# The trials start again for each new key and in each new process, unless ``cache_results=True``
# keeps the results. The trials run on your tensors, many times: a kernel that works in place needs
# ``restore_value=["x_ptr"]``.
#
# A rule needs no trials. Ours takes the largest tile that still gives nearly every SM a program:


def choose_tile(M, N, dtype):
    """Return the largest tile of which an M × N matrix has enough."""
    if dtype == torch.float32:
        return (64, 32, 32, 4, 4)  # no tensor cores: small tiles will do
    many = (t for t in TILES if triton.cdiv(M, t[0]) * triton.cdiv(N, t[1]) >= 0.9 * SMS)
    return next(many, TILES[-1])


# %%
# Calling it
# ----------
#
# A function for any size needs masks, because a tile at the edge can stick out of the matrix::
#
#     a_mask = (rows[:, None] < M) & (ks[None, :] < K - k)
#     a = tl.load(a_ptrs, mask=a_mask, other=0.0)         # and b with its own mask
#     tl.store(…, mask=(rows[:, None] < M) & (columns[None, :] < N))
#
# A masked load reads nothing where the mask is false, so an address outside the matrix does no
# harm. ``other`` is the value of these elements, and without it their value is undefined. Along K
# they must be zero, because they are added to every sum. Along M and N they only affect elements of
# C that are never stored. With ``EVEN`` the kernel omits the masks of its loads, for sizes that the
# tile sizes divide.
#
# In a network an activation follows the product. *LeakyReLU* multiplies negative numbers by 0.01.
# A separate operation reads C from memory and writes it again. In the kernel, ``activate`` works on
# the sum, which is still in registers and not yet rounded.


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Apply the activation of this name to a block."""
    if ACTIVATION == "leaky_relu":
        x = tl.where(x >= 0, x, 0.01 * x)
    return x


# %%
# The kernel with masks and that line:

# sphinx_gallery_fold = "the kernel with masks and the activation"
# sphinx_gallery_difference = "grouped_kernel"


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = activation(A @ B), in groups of GROUP rows of tiles."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, column = tile_position_in_kernel(tl.program_id(0), tiles_m, tiles_n, GROUP)
    rows = row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    columns = column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    ks, step = tl.arange(0, BLOCK_K).to(tl.int64), tl.cast(BLOCK_K, tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + ks[:, None] * stride_bk + columns[None, :] * stride_bn  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN:
            a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        else:
            a_mask = (rows[:, None] < M) & (ks[None, :] < K - k)
            b_mask = (ks[:, None] < K - k) & (columns[None, :] < N)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk
    acc = activate(acc, ACTIVATION)  # <-
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    c_ptrs = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


# %%
# The plain function chooses a tile, allocates C, and launches:


def settings(a, b, activation):
    """Return the grid, the numbers and the constants of a launch of ``matmul_kernel``."""
    (M, K), N = a.shape, b.shape[1]
    m, n, k, warps, stages = choose_tile(M, N, a.dtype)
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8, "ACTIVATION": activation}
    constants |= {"EVEN": M % m == N % n == K % k == 0, "num_warps": warps, "num_stages": stages}
    return (triton.cdiv(M, m) * triton.cdiv(N, n),), (M, N, K, *a.stride(), *b.stride()), constants


def matmul(a, b, activation=""):
    """Return ``activation(a @ b)`` for two matrices of one dtype, with any strides."""
    assert a.shape[1] == b.shape[0], "a must have as many columns as b has rows"
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    grid, numbers, constants = settings(a, b, activation)
    matmul_kernel[grid](a, b, c, *numbers, **constants)
    return c


for shape in [(33, 129, 77), (64, 256, 128), (5, 7, 3)]:
    a, b = random_pair(*shape)
    check(matmul(a, b), a, b)
    check(matmul(a.T.contiguous().T, b[:, ::2], "leaky_relu"), a, b[:, ::2], "leaky_relu")
print("matmul is right on 3 shapes, by rows and by columns, with LeakyReLU and without")

# %%
# In a program
# ------------
#
# A function that others call checks its arguments first. It refuses matrices that require a
# gradient, because the result would have none. And it is an *operation* of PyTorch, so that
# ``torch.compile`` knows the shape of its result (:doc:`/programming-guide/chapter-6/calls`).

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import on_device_of
from shared.products import check_arguments

DTYPES = [torch.float16, torch.float32]
DTYPES = DTYPES + [torch.bfloat16] * ON_GPU  # the interpreter computes bf16 wrongly
ORDINARY = {torch.Tensor, torch.nn.Parameter}  # other tensors, such as fake ones, may be empty


def launch(a, b, activation):
    """Return ``activation(a @ b)`` for arguments that are checked."""
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    if c.numel():
        a, b = a.resolve_neg(), b.resolve_neg()  # copies a matrix whose sign is to be changed
        grid, numbers, constants = settings(a, b, activation)
        with on_device_of(a):
            matmul_kernel[grid](a, b, c, *numbers, **constants)
    return c


SCHEMA = "(Tensor a, Tensor b, str activation) -> Tensor"


@torch.library.custom_op("gallery::matmul", mutates_args=(), schema=SCHEMA)
def matmul_op(a, b, activation):
    """Multiply: an operation that PyTorch's compiler calls without looking into it."""
    return launch(a, b, activation)


@matmul_op.register_fake
def matmul_shape(a, b, activation):
    """Return a matrix like the result, without computing it: what the compiler has to know."""
    return a.new_empty(a.shape[0], b.shape[1])


def matmul(a, b, activation=""):
    """Return ``activation(a @ b)``, summed in fp32 and rounded once.

    Args:
        a: Matrix of shape (M, K) in fp16, bf16 (on a GPU only) or fp32, with any strides.
        b: Matrix of shape (K, N) of the same dtype and device, with any strides.
        activation: "" or "leaky_relu".

    Raises:
        TypeError: An argument is no tensor, a dtype is not supported, or the dtypes differ.
        ValueError: Shapes or devices do not fit, there is no such activation, or a matrix requires
            a gradient outside of ``torch.no_grad()``.
    """
    check_arguments(a, b, activation, DEVICE, DTYPES)
    if torch.compiler.is_compiling() or not {type(a), type(b)} <= ORDINARY:
        return matmul_op(a, b, activation)
    return launch(a, b, activation)


for shape in [(33, 129, 77), (123, 77, 45), (64, 256, 128), (5, 7, 3), (4, 0, 3), (3, 2, 0)]:
    for dtype in DTYPES:
        a, b = random_pair(*shape, dtype)
        check(matmul(a, b), a, b)
        a, b = a.T.contiguous().T, b[:, ::2]  # stored by columns; every second column
        check(matmul(a, b, "leaky_relu"), a, b, "leaky_relu")
print(f"matmul is right on 6 shapes in {len(DTYPES)} dtypes, on views, and with LeakyReLU")

# %%
# The benchmark
# -------------
#
# We time square fp16 matrices, without and with LeakyReLU, which PyTorch computes in a second
# kernel. The last three sizes of the table are layers of language models, with 300 tokens, one and
# 17.

# sphinx_gallery_fold = "times the products, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "matmul_kernel: 4096 × 4096 × 4096, fp16"
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table
from shared.products import LAYERS
from tabulate import tabulate

LIBRARY = "rocblas" if torch.version.hip else "cublas"


@triton.jit
def empty_kernel():
    """Do nothing."""


def library_leaky(a, b):
    """Return LeakyReLU of the library's product, in two kernels."""
    return torch.nn.functional.leaky_relu(a @ b)


def time_products(M, N, K):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    a, b = random_pair(M, N, K)
    calls = {
        "triton": partial(matmul, a, b),
        LIBRARY: partial(torch.matmul, a, b),
        "triton + leaky_relu": partial(matmul, a, b, "leaky_relu"),
        f"{LIBRARY} + leaky_relu": partial(library_leaky, a, b),
    }
    check(calls["triton"](), a, b)
    return rates((M, N, K), calls, "TFLOPS", 2 * M * N * K)


def time_steps(n):
    """Return (step, unit, rate) for n × n matrices."""
    a, b = random_pair(n, n, n)
    c, (grid, numbers, constants) = torch.empty_like(a), settings(a, b, "")
    small = (a, b, c, n, n, *a.stride(), *b.stride(), 64, 64, 32)
    calls = {"library": partial(torch.matmul, a, b)}
    calls["plain"] = partial(tile_kernel[n // 64, n // 64], *small)
    for name, group in (("rows", 1), ("groups", 8)):
        sizes = constants | {"GROUP": group}
        calls[name] = partial(matmul_kernel[grid], a, b, c, *numbers, **sizes)
    return [row[:3] for row in rates((), calls, "TFLOPS", 2 * n**3, rounds=10)]


if ON_GPU:
    values += time_steps(8192)
    rows = [row for n in range(256, 4097, 128) for row in time_products(n, n, n)]
    square = len(rows)
    rows += [row for size in LAYERS for row in time_products(*size)]
    write_rows("matmul-performance-fp16.csv", ["M", "N", "K"], rows)
    label = LIBRARY.replace("blas", "BLAS")
    names = {"triton": "matmul", LIBRARY: label}
    draw_rates(rows[:square], names, "Matrix product in fp16", "M = N = K")
    rate = {(*row[:3], row[3]): row[5] for row in rows}
    shown = [(n, n, n) for n in (512, 1024, 1536, 2048, 4096)]
    names = ["triton", LIBRARY, "triton + leaky_relu", f"{LIBRARY} + leaky_relu"]
    table = [(*size, *(rate[*size, name] for name in names)) for size in (*shown, *LAYERS)]
    heads = ["M", "N", "K", "matmul", label, "matmul, leaky", f"{label}, leaky"]
    print("TFLOPS, higher is better")
    print(tabulate(table, heads, floatfmt=".1f", intfmt=","))
    matmul(*random_pair(4096, 4096, 4096))  # the last launch is the one whose X-ray is shown
    a, b = random_pair(256, 256, 256)
    calls = {"triton": partial(matmul, a, b), "torch": partial(torch.matmul, a, b)}
    cpu = write_calls({"matmul": calls | {"launch": empty_kernel[(1,)]}})["matmul", "triton"]
    us = {n: 2e-6 * n**3 / rate[n, n, n, "triton"] for n in range(256, 4097, 128)}
    values.append(("GPU longer from", "rows", min(n for n in us if us[n] > cpu)))
    write_table("03-matrix-multiplication-values.csv", ["name", "unit", "value"], values)

# %%
# The steps of this page at M = N = K = 8192:
#
# .. steps:: library
#    :unit: TFLOPS
#    :of: the library
#
#    plain: tile_kernel, tiles of 64 × 64
#    rows: large tiles, row by row
#    grouped: large tiles in groups, the kernel of matmul
#
# **The left end** is bound by latency: a kernel takes time to start, and small products end after a
# few steps along K. **The right end** is compute-bound: at 4096 our kernel reaches
# :measured:`large` % of the library. **The teeth** are waves: the rate drops where the tiles need
# one more wave, and recovers as that wave fills up.
#
# .. predict:: What share of its rate at 2048 does ``matmul`` reach at 1536?
#    :number: valley
#    :unit: %
#
#    Count tiles for the 132 SMs of an H100 or H200. At 2048, C has 16 × 8 = 128 tiles of 128 × 256:
#    one wave, nearly full. At 1536 it would have 12 × 6 = 72, so the rule takes 128 × 128, of which
#    there are 144. Twelve SMs then compute two tiles each, and the others wait. In both cases the
#    busiest SM computes 32,768 elements of C, so a step along K takes equally long. But C has 9/16
#    as many elements at 1536, which predicts 9/16 of the rate. The small tiles also load more for
#    each product, and each fills its own pipeline, which this count leaves out.
#
# **The activation**: up to 1024 rows, the fused product has :measured:`fused_small` times the speed
# of the library's with PyTorch's activation, on average over the square sizes. From 2048 on it has
# :measured:`fused_large` times: the activation is a small part of a large product. **The layers** with one token and with
# 17 are memory-bound, because all of B is read for few rows of A. Over the three layers, ``matmul``
# has :measured:`layers` % of the library's speed.
#
# In a long series of large products, the power limit can lower the GPU's clocks:
# :doc:`/programming-guide/chapter-4/roofline`.
#
# A call of ``matmul`` keeps the CPU busy for :measured:`cpu` µs, and one of PyTorch's product for
# :measured:`cpu_torch` µs. In a loop that does not wait, the larger of the CPU's and the GPU's time
# counts: the GPU's from :measured:`gpu_longer` rows on.
#
# **What is left.** Each tile starts with an empty pipeline, and the last wave is rarely full.
# :doc:`03b-full-waves` loses less to both, and reaches :measured:`03b-full-waves:share` % of cuBLAS
# on average.
#
# Exercises
# ---------
#
# 1. **A linear layer** *(medium, 30 minutes)*. Write ``linear(x, weight, bias, activation="")``:
#    add the bias to every row of ``x @ weight.T`` before the activation, which may be ``"relu"``
#    or ``"gelu"``. :doc:`Solution <solutions/03-linear-layer>`.
# 2. **A batch** *(medium, 25 minutes)*. Write ``bmm(a, b)``, which multiplies many pairs of small
#    matrices with one launch. Where does the batch go in the grid, and what is gained?
#    :doc:`Solution <solutions/03-batched>`.
# 3. **A transposed weight** *(easy, 15 minutes)*. Write ``matmul_t(a, w)``, which returns
#    ``a @ w.T`` without a copy of *w*.
#
# References
# ----------
#
# * K. Goto and R. A. van de Geijn: *Anatomy of high-performance matrix multiplication*,
#   ACM TOMS 34(3), 2008, https://doi.org/10.1145/1356052.1356053
