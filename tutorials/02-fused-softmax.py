"""
Fused softmax
=============

Softmax turns each row of a matrix into probabilities. Its formula takes five PyTorch operations.
You build ``softmax(x)``, one kernel that computes it :measured:`faster` times as fast, and you
predict most of this gain by counting bytes. You need :doc:`01-vector-add`.
"""

# %%
# The kernel
# ----------
#
# For a row :math:`x_1 \ldots x_N`, softmax is
#
# .. math:: y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}} \qquad \text{with} \quad m = \max_j x_j
#
# One program computes one row: it loads the row, applies the whole formula, and stores the result.

# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "first hour"
import math
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def row_kernel(x_ptr, out_ptr, stride, N, BLOCK: tl.constexpr):
    """Compute the softmax of one row of *N* elements."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= N
    mask = cols < N  # [BLOCK]
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=mask)


def softmax_by_rows(x):
    """Return the softmax of each row of the fp32 matrix *x*, one row a program."""
    out = torch.empty_like(x)
    M, N = x.shape
    row_kernel[(M,)](x, out, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return out


x = torch.randn(3, 5, device=DEVICE)
torch.testing.assert_close(softmax_by_rows(x), torch.softmax(x, dim=1))
print("softmax_by_rows agrees with PyTorch")

# %%
# Three things are new since :doc:`01-vector-add`:
#
# **Strides**
#     Element (*i*, *j*) of a matrix lies ``i * stride + j`` elements behind the first one. The row
#     stride may be larger than *N*: a slice of a matrix keeps the row stride of the matrix.
# **Padding**
#     ``tl.arange`` needs a power of two, so ``BLOCK`` is *N* rounded up. The extra elements hold
#     minus infinity, which leaves the result unchanged: the maximum ignores it, and its exponential
#     adds 0 to the sum.
# **Reductions**
#     ``tl.max`` and ``tl.sum`` turn a block into one number. Each thread combines its own elements.
#     Then the threads of a **warp** (32 threads on NVIDIA GPUs) combine their results, and the
#     warps theirs, through **shared memory**, a small fast memory for all warps of a program.
#
# `You cannot index into a block <https://github.com/triton-lang/triton/issues/656>`_: ``x[3]`` and
# ``x[:4]`` are errors, because the elements lie in the registers of many threads.
# ``tl.sum(tl.where(cols == 3, x, 0.0), axis=0)`` gives one element, and
# ``tl.gather(x, index, axis=0)`` gives several.
#
# Three rows of five elements, cut out of a matrix with six columns, have these offsets:

# sphinx_gallery_fold = "draws strides and padding"
import matplotlib.pyplot as plt

N, stride = 5, torch.empty(3, 6)[:, :5].stride(0)
cells = [[f"{row * stride + col}" if col < N else "−∞" for col in range(8)] for row in range(3)]
colors = [["#dddddd" if text == "−∞" else "#cfe3f1" for text in row] for row in cells]
_, ax = plt.subplots(figsize=(7, 1.8), layout="constrained")
ax.axis("off")
ax.table(cells, colors, "center", rowLabels=["row 0 ", "row 1 ", "row 2 "], bbox=(0, 0, 1, 1))
ax.set_title(f"Offsets of each row, N = {N}, row stride = {stride}, BLOCK = 8; gray: padding")
plt.show()

# %%
# Counting the bytes
# ------------------
#
# In PyTorch the formula takes five operations. The comments count the elements that each operation
# reads and writes, for *M* rows of *N* elements:


def naive_softmax(x):
    """Return the softmax of each row of the matrix *x*, one PyTorch operation at a time."""
    m = x.amax(dim=1)  # reads MN, writes M
    z = x - m[:, None]  # reads MN + M, writes MN
    e = torch.exp(z)  # reads MN, writes MN
    s = e.sum(dim=1)  # reads MN, writes M
    return e / s[:, None]  # reads MN + M, writes MN


x = torch.tensor([[1.0, 2.0, 3.0], [100.0, 100.0, -100.0]], device=DEVICE)
print("with the maximum:   ", naive_softmax(x)[1].tolist())
print("without the maximum:", (x.exp() / x.exp().sum(dim=1, keepdim=True))[1].tolist())

# %%
# Mathematically, *m* cancels. Numerically it is needed: in fp32, :math:`e^x` is infinite from
# about :math:`x = 89` on, and infinity divided by infinity is not a number (NaN).
#
# The five lines read :math:`5MN + 2M` elements and write :math:`3MN + 2M`. Our kernel reads
# :math:`MN` and writes :math:`MN`. A GPU computes an exponential faster than it moves eight bytes,
# so softmax is **memory-bound**: its time is bytes divided by bandwidth, and the ratio of the bytes
# predicts the speed-up. This ratio is :math:`4 + 2/N`, so expect a factor of 4, on any GPU.
#
# **Fusion** saves the trips to memory between the operations. Each line of ``naive_softmax`` is a
# kernel of its own, and one kernel can hand data to the next only through memory (or through the L2
# cache, if the matrix is small). ``torch.softmax`` is fused, too.
#
# ``tl.load`` puts data into **registers**, the private memory of each thread. The data comes
# through the L2 cache, which all **multiprocessors** (SMs) share, and the L1 cache of one
# multiprocessor. Caches may drop the data. Registers keep it: our kernel reads its row only once.
#
# Warps and registers
# -------------------
#
# A program runs on one multiprocessor, on ``num_warps`` warps, 4 by default. Their number changes
# the speed, and the result only by rounding:
#
# * **Too many warps**: each thread has little to do, and the warps wait for each other at each
#   reduction.
# * **Too few warps**: each thread holds many elements, so it needs many registers. A multiprocessor
#   has a fixed number of registers, so fewer warps fit. The **occupancy** is the share of a
#   multiprocessor's warps that a kernel can keep there. A thread that needs more registers than it
#   can get **spills**: it writes values to memory and reads them back.
#
# Occupancy matters because a load takes hundreds of cycles. Meanwhile the multiprocessor executes
# other warps. To use the whole bandwidth, *bandwidth × latency* bytes must be in flight at any
# moment (*Little's law*): many warps with one load each, or few warps with several loads each.
# :doc:`/programming-guide/chapter-5/profiling` counts how long warps wait.
#
# Our rule is **one warp for 512 elements**, and at most 16 warps. With 32 threads in a warp, each
# thread then holds 16 elements of fp32, from four loads of 16 bytes. A row of 256 elements is too
# short for one warp, so a program takes several rows, and its block is a two-dimensional **tile**:

# sphinx_gallery_difference = "row_kernel"


@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the softmax of ROWS rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    cols = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    mask = (rows < M) & (cols < N)  # [ROWS, BLOCK]
    x_ptrs = x_ptr + rows * stride + cols
    x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    tl.store(out_ptr + rows * N + cols, e / tl.sum(e, axis=1, keep_dims=True), mask=mask)


def tile_plan(N):
    """Return (kernel, rows of a program, constants) for rows of *N* elements."""
    block = triton.next_power_of_2(N)
    rows = max(1, 512 // block)
    warps = min(16, rows * block // 512)
    return softmax_kernel, rows, {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def apply(x, kernel, rows, constants):
    """Return the softmax of each row of *x*, computed by *kernel* for *rows* rows a program."""
    M, N = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    kernel[((M + rows - 1) // rows,)](x, out, x.stride(0), M, N, **constants)
    return out


for N in (2, 200, 781, 2048, 4224, 12672):
    print(f"N = {N:5d}:", tile_plan(N)[2])

# %%
# The reductions run along the second axis, so each row has its own maximum and sum. The arithmetic
# is in fp32 for fp16 input, too, and moves no extra bytes. Compared with the first kernel, tiles
# are :measured:`short` times as fast on rows of 256 elements, and 16 warps are :measured:`warps`
# times as fast as 4 warps on rows of 8320 elements.
#
# Rows of awkward length
# ----------------------
#
# **Just above a power of two.** A row of 4224 elements has a block of 8192, so nearly half of the
# block is padding. A masked load moves no bytes, but the padding occupies registers, and all
# instructions are executed for it. Take such a row in two pieces: a head, the largest power of two
# below *N*, and a tail of a quarter of the head. 4224 becomes 4096 + 1024.


@triton.jit
def head_tail_kernel(x_ptr, out_ptr, stride, M, N, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """Compute the softmax of one row in two pieces."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    out_ptr += row * N
    head = tl.arange(0, HEAD)  # [HEAD], HEAD < N: needs no mask
    tail = HEAD + tl.arange(0, TAIL)  # [TAIL], HEAD + TAIL >= N
    mask = tail < N
    a = tl.load(x_ptr + head).to(tl.float32)
    b = tl.load(x_ptr + tail, mask=mask, other=-float("inf")).to(tl.float32)
    m = tl.maximum(tl.max(a, axis=0), tl.max(b, axis=0))
    a, b = tl.exp(a - m), tl.exp(b - m)
    s = tl.sum(a, axis=0) + tl.sum(b, axis=0)
    tl.store(out_ptr + head, a / s)
    tl.store(out_ptr + tail, b / s, mask=mask)


# %%
# On rows of 8320 elements, two pieces are :measured:`pieces` times as fast as one padded block.
#
# **Too long for the registers.** A row of a million elements must be read in blocks, and twice,
# because each output needs the maximum and the sum of the whole row. The first pass computes both.
# It keeps the maximum *m* and the sum *s* of the blocks so far. When a block raises the maximum to
# *m'*, the old sum is too large by a known factor:
#
# .. math:: s' = s \cdot e^{m - m'} + \sum_{j \in \text{block}} e^{x_j - m'}
#
# This is the **online softmax**, on which FlashAttention is built.


@triton.jit
def long_softmax_kernel(x_ptr, out_ptr, stride, M, N, BLOCK: tl.constexpr):
    """Compute the softmax of one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    out_ptr += row * N
    m = -3.4028234663852886e38  # the lowest fp32 number: -inf minus -inf would be NaN
    s = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        new_m = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
        m = new_m
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        tl.store(out_ptr + cols, tl.exp(x - m) / s, mask=cols < N)


# %%
# The kernel moves a row three times, unless the L2 cache still holds it, and a copy twice. So
# expect two thirds of a copy's rate. On 512 rows of 2¹⁸ elements, the kernel reaches
# :measured:`long` %.
#
# The function and its check
# --------------------------
#
# ``softmax`` checks a matrix and chooses a kernel once for each shape, and then keeps the compiled
# kernel: :doc:`/programming-guide/chapter-6/calls` explains how, and what that saves.

# sphinx_gallery_fold = "checks a matrix, and keeps a launch for each kind of them"
# sphinx_gallery_show = "plan, softmax"
import sys  # for shared/
from functools import lru_cache, partial
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch_recorded import Launch, key_of


def plan(N):
    """Return (kernel, rows of a program, constants) for rows of *N* elements."""
    if N > 32768:
        return long_softmax_kernel, 1, {"BLOCK": 8192, "num_warps": 16}
    head = triton.next_power_of_2(N) // 2
    if N <= 512 or 1.25 * head < N:  # less than 3/8 of one block is padding
        return tile_plan(N)
    return head_tail_kernel, 1, {"HEAD": head, "TAIL": head // 4, "num_warps": min(16, head // 512)}


@lru_cache(1000)  # errors are not kept
def launch_of(shape, strides, dtype, device, aligned):
    """Check these facts of a tensor, and return its launch, or None if there cannot be one."""
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"x must be float16, bfloat16 or float32, but its dtype is {dtype}")
    if len(shape) != 2:
        raise ValueError(f"x must be a matrix, but has shape {tuple(shape)}")
    if device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {device}")
    M, N = shape
    if M * N == 0 or (N > 1 and strides[1] != 1):
        return None
    kernel, rows, constants = plan(N)
    return Launch(kernel, (triton.cdiv(M, rows),), (strides[0], M, N), constants)


def softmax(x):
    """Return the softmax of each row of *x*, as ``torch.softmax(x, dim=1)`` does.

    *x* is a matrix in fp16, bf16 or fp32, copied first if its rows are not contiguous. The result
    is new and contiguous; a row of minus infinities gives NaN. TypeError and ValueError say what is
    wrong with *x*.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if torch.compiler.is_compiling():  # the compiler has no addresses
        launch = launch_of(x.shape, x.stride(), x.dtype, x.device, None)
    else:
        launch = launch_of(*key_of(x)[0])
    if launch is None:  # x is empty, or its rows are not contiguous
        return softmax(x.contiguous()) if x.numel() else torch.empty_like(x)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    launch(x, out)
    return out


# %%
# The reference is PyTorch's softmax in float64. In fp32, ``x - m`` is up to 40 here and rounds by
# 40 · 2⁻²⁴. The exponential turns this absolute error into a relative error of 2·10⁻⁶, and 10⁻⁵
# leaves room for the sum. Results in fp16 and bf16 have 11 and 8 significant bits.

# sphinx_gallery_fold = "checks shapes, dtypes, views and infinities"
TOLERANCE = {torch.float32: (1e-5, 0), torch.float16: (2**-10, 2**-24), torch.bfloat16: (2**-7, 0)}


def check(x, function=softmax):
    """Raise AssertionError where *function* differs from PyTorch in float64."""
    expected = torch.softmax(x.double(), dim=1)
    rtol, atol = TOLERANCE[x.dtype]
    result = function(x).double()
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol, equal_nan=True)


torch.manual_seed(0)
shapes = [(5, 1), (7, 2), (7, 200), (3, 781), (3, 4097), (2, 32769), (0, 5), (5, 0)]
shapes += [(1823, 781), (4096, 12672), (3, 2**20)] if ON_GPU else []
dtypes = list(TOLERANCE)[: 3 if ON_GPU else 2]  # the interpreter computes bf16 wrongly
for dtype in dtypes:
    for shape in shapes:
        check(4 * torch.randn(shape, device=DEVICE, dtype=dtype))
for N in (1, 200, 781, 4097):  # the other functions are timed, too
    x = 4 * torch.randn(5, N, device=DEVICE)
    for function in (naive_softmax, softmax_by_rows, lambda x: apply(x, *tile_plan(x.shape[1]))):
        check(x, function)
wide = torch.randn(40, 100, device=DEVICE)
for view in (wide[:, 10:91], wide[::3], wide[:, ::2], wide.T, wide[:1].expand(5, -1)):
    check(view)
for N in (5, 40000):
    x = torch.randn(4, N, device=DEVICE)
    x[1, :], x[2, :3], x[3, 3] = -math.inf, -math.inf, math.inf
    check(x)
print(f"softmax agrees with float64 on {len(shapes)} shapes in {len(dtypes)} dtypes, and on views")

# %%
# Timing it
# ---------
#
# The benchmark has 4096 rows of 256 to 12,672 elements in fp32. All rates count the bytes that a
# fused softmax must move, ``2 * M * N * 4``. A copy of the matrix moves as much and is the ceiling.

# sphinx_gallery_fold = "times the softmaxes, draws the rates, and keeps the rows"
from shared.bench import plot_rates, rows_of, write_calls, write_rows, write_table


@triton.jit
def empty_kernel():
    """Do nothing."""


if ON_GPU:
    rows = []
    for N in range(256, 12673, 128):
        x = torch.randn(4096, N, device=DEVICE)
        calls = {
            "triton": partial(softmax, x),
            "torch": partial(torch.softmax, x, dim=1),
            "copy": partial(torch.empty_like(x).copy_, x),
            "naive": partial(naive_softmax, x),
        }
        if N in (256, 512, 1024, 2048, 4224, 6144, 8192, 8320, 10240, 12672):  # the steps
            calls["triton, one row a program"] = partial(softmax_by_rows, x)
            calls["triton, tiles"] = partial(apply, x, *tile_plan(N))
        called = ("triton", "torch") if N % 256 == 0 else ()
        rows += rows_of((4096, N), calls, "GB/s", 2 * x.nbytes, as_called=called)
    write_rows("softmax-performance.csv", ["M", "N"], rows)
    long = torch.randn(512, 2**18, device=DEVICE)
    calls = {"softmax of long rows": partial(softmax, long), "copy of long rows": long.clone}
    values = [row[:3] for row in rows_of((), calls, "GB/s", 2 * long.nbytes)]
    write_table("02-fused-softmax-values.csv", ["name", "unit", "value"], values)
    x = torch.randn(64, 1024, device=DEVICE)
    calls = {"triton": partial(softmax, x), "torch": partial(torch.softmax, x, dim=1)}
    write_calls({"softmax": calls | {"launch": empty_kernel[(1,)]}})
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    names = {"triton": "softmax", "torch": "PyTorch", "naive": "five operations"}
    names |= {"copy": "copy (ceiling)", "triton, as called": "softmax, as called"}
    plot_rates(ax, [row[1:] for row in rows], names, "Softmax of 4096 rows in fp32", "N, columns")
else:
    print("Without a GPU there is nothing to time.")

# %%
# Reading the curve
# -----------------
#
# **The prediction.** At N = 12,672 the bytes predict a factor of 4, and ``softmax`` is
# :measured:`faster` times as fast as the five operations. It moves :measured:`ours` GB/s, and the
# copy moves :measured:`copy` GB/s. The five operations move four times the bytes that the plot
# counts, so they reach :measured:`naive_moves` GB/s. A rate below the copy's means that they leave
# bandwidth unused. Then fusion gains more than the bytes predict.
#
# **The left end** rises for all functions: short rows have few bytes, and a kernel takes time to
# start. From 2048 columns on, ``softmax`` reaches at least :measured:`copy_share` % of the copy.
#
# **PyTorch's softmax** chooses one of several kernels by the length of the row. On average over all
# lengths, ours is :measured:`torch` times as fast on the GPU and :measured:`called` times as fast
# as called. A call keeps the CPU busy for :measured:`cpu` µs (PyTorch: :measured:`cpu_torch` µs).
#
# **The steps** of this page on rows of 8320 elements, just above a power of two:
#
# .. steps:: step_copy
#    :unit: GB/s
#
#    step_naive: five operations
#    step_rows: one kernel, 4 warps for each row
#    step_tiles: 16 warps
#    step_pieces: two pieces, less padding
#
# Exercises
# ---------
#
# 1. **Log-softmax.** Change the kernel to compute ``torch.log_softmax``. Which of its steps get
#    simpler? :doc:`Solution <solutions/02-log-softmax>`.
# 2. **Causal mask.** In attention, scores are scaled, and row *i* uses only the columns up to *i*.
#    Fuse both into the kernel. How many bytes does it read? :doc:`Solution
#    <solutions/02-causal-softmax>`.
# 3. **Backward.** For the output *y* and its gradient *g*, the gradient of the input is
#    :math:`y \cdot (g - \sum_j g_j y_j)`. Write a kernel for it. What speed-up over PyTorch
#    operations do you expect? :doc:`Solution <solutions/02-softmax-backward>`.
# 4. **Log-sum-exp** *(easy, 15 minutes)*. Write ``logsumexp(x)``, which returns the logarithm of
#    the sum of the exponentials of each row. Which value does the padding need?
#
# References
# ----------
#
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
# * Samuel Williams, Andrew Waterman and David Patterson: *Roofline: an insightful visual
#   performance model for multicore architectures*, Communications of the ACM 52(4), 2009,
#   https://doi.org/10.1145/1498765.1498785
