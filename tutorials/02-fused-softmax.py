"""
Fused softmax
=============

Softmax turns each row of a matrix into probabilities. Its formula takes five PyTorch operations.
You build ``softmax(x)``, one kernel that computes it :measured:`faster` times as fast, and you
predict most of this gain by counting bytes. You need :doc:`01-vector-add`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "first hour"
import math
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

# %%
# The kernel
# ----------
#
# For a row :math:`x_1 \ldots x_N`, softmax is
#
# .. math:: y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}} \qquad \text{with} \quad m = \max_j x_j
#
# One program computes one row: it loads the row, applies the whole formula, and stores the result.


@triton.jit
def row_kernel(x_ptr, out_ptr, stride, N, BLOCK: tl.constexpr):
    """Compute the softmax of one row of *N* elements."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= N
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=-float("inf")).to(tl.float32)  # <-
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)  # <-
    tl.store(out_ptr + row * N + cols, y, mask=mask)


# %%
# How it works
# ------------
#
# Four things are new since :doc:`01-vector-add`:
#
# **Reductions**
#     ``tl.max`` and ``tl.sum`` turn a block into one number. Each thread combines its own elements.
#     Then the threads of a **warp** (32 threads on NVIDIA GPUs) combine their results. Finally the
#     warps of the program combine theirs through **shared memory**, a small fast memory on the
#     chip.
# **The maximum**
#     Mathematically, *m* cancels. Numerically it is needed: in fp32, :math:`e^x` is infinite from
#     about *x* = 89 on, and infinity divided by infinity is not a number (NaN).
# **Padding**
#     ``tl.arange`` needs a power of two, so ``BLOCK`` is *N* rounded up. ``other`` fills the extra
#     elements with minus infinity, which leaves the result unchanged. The maximum ignores it, and
#     its exponential adds 0 to the sum. With zeros the sum would be too large.
# **Precision**
#     The arithmetic is in fp32, for input in fp16 and bf16, too. The conversion happens in
#     registers and moves no extra bytes.
#
# The maximum and the padding, in PyTorch:

row = torch.tensor([100.0, 100.0, -100.0])
print("without the maximum: ", (row.exp() / row.exp().sum()).tolist())
row = torch.tensor([-3.0, -2.0, -1.0])
for padding in (-math.inf, 0.0):
    padded = torch.cat([row, torch.full((5,), padding)])  # three elements in a block of eight
    print(f"padded with {padding:4}:   ", torch.softmax(padded, dim=0)[:3].tolist())

# %%
# **Try it** *(easy, 15 minutes)*. Write ``logsumexp(x)``, exercise 4 at the end of this page, which
# needs the maximum, the padding and a reduction. With zeros as padding, only rows whose length is a
# power of two give the right result, because they need no padding. All others are too large.
#
# `You cannot index into a block <https://github.com/triton-lang/triton/issues/656>`_: ``x[3]`` and
# ``x[:4]`` are errors, because the elements lie in the registers of many threads.
# ``tl.sum(tl.where(cols == 3, x, 0.0), axis=0)`` gives one element, and
# ``tl.gather(x, index, axis=0)`` gives several.
#
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


# %%
# The five lines read :math:`5MN + 2M` elements and write :math:`3MN + 2M`, together
# :math:`8MN + 4M`. Our kernel reads :math:`MN` and writes :math:`MN`, together :math:`2MN`.
#
# .. predict:: How much faster than the five operations will one kernel be on long rows?
#    :choices: twice | four times | eight times
#    :answer: four times
#
#    A GPU computes an exponential faster than it moves eight bytes. So softmax is **memory-bound**:
#    its time is bytes divided by **bandwidth**, the bytes that memory can move in a second. The
#    ratio of the bytes is :math:`4 + 2/N`, on any GPU. On this GPU the speed-up is
#    :measured:`faster` for rows of 12,672 elements: the benchmark below says where the difference
#    comes from.
#
# **Fusion** saves the trips to memory between the operations. Each line of ``naive_softmax`` is a
# kernel of its own, and one kernel can hand data to the next only through memory (or through a
# cache, if the matrix is small). ``torch.softmax`` is fused, too.
#
# A GPU has dozens to hundreds of **multiprocessors** (SMs), which execute the programs. ``tl.load``
# puts data into **registers**, the private memory of each thread. The data comes from memory
# through two caches: L2, which many multiprocessors share, and L1, which belongs to one. Caches may
# drop the data. Registers keep it, so our kernel reads its row only once.
# :doc:`/programming-guide/chapter-1/gpu` draws all of these, with their sizes and speeds.
#
# Calling it
# ----------
#
# The plain function launches one program for each row:


def softmax(x):
    """Return the softmax of each row of the matrix *x*."""
    assert x.stride(1) == 1, "the elements of a row must be neighbors in memory"
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    row_kernel[(M,)](x, out, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return out


for M, N in ((3, 5), (7, 200), (3, 781), (2, 4097)):
    x = 4 * torch.randn(M, N, device=DEVICE)
    for function in (softmax, naive_softmax):
        exact = torch.softmax(x.double(), dim=1)
        torch.testing.assert_close(function(x).double(), exact, rtol=1e-5, atol=0)
print("softmax and naive_softmax agree with float64")

# %%
# The tolerance has a reason. fp32 has 24 significant bits, and ``x - m`` is up to 40 here, so it is
# rounded by up to 40 · 2⁻²⁴. The exponential turns this absolute error into a relative error of
# 2·10⁻⁶, and 10⁻⁵ leaves room for the sum.
#
# **The row stride is not the number of columns.** Element (*i*, *j*) of a matrix lies ``i * stride
# + j`` elements behind the first one. A slice of a matrix keeps the row stride of the matrix. The
# picture shows the offsets in three rows of five elements, cut out of a matrix with six columns,
# and the padding of a block of eight:

# sphinx_gallery_fold = "draws strides and padding"
import matplotlib.pyplot as plt
from shared.bench import figure

N, stride = 5, torch.empty(3, 6)[:, :5].stride(0)
cells = [[f"{row * stride + col}" if col < N else "−∞" for col in range(8)] for row in range(3)]
colors = [["#eeeeee" if text == "−∞" else "#cfe3f1" for text in row] for row in cells]
_, ax = figure(height=1.9)
ax.axis("off")
table = ax.table(
    cells, colors, "center", rowLabels=["row 0 ", "row 1 ", "row 2 "], bbox=(0, 0, 1, 1)
)
table.auto_set_font_size(False)
table.set_fontsize(12)
ax.set_title(f"Offsets: N = {N}, row stride = {stride}, BLOCK = 8\ngray: padding")
plt.show()

# %%
# Short rows, long rows
# ---------------------
#
# **Short rows: several in one program.** With 128 threads in a program, a row of 256 elements gives
# each thread two, so a large part of the work is the reductions. One program can take several rows
# instead. Its block is then a two-dimensional **tile**. The reductions run along the second axis,
# so each row has its own maximum and sum:

# sphinx_gallery_difference = "row_kernel"


@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the softmax of ROWS rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    cols = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    mask = (rows < M) & (cols < N)  # [ROWS, BLOCK]
    x = tl.load(x_ptr + rows * stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))  # <-
    y = e / tl.sum(e, axis=1, keep_dims=True)  # <-
    tl.store(out_ptr + rows * N + cols, y, mask=mask)


def softmax_in_tiles(x):
    """Return the softmax of each row of the matrix *x*, of several short rows in one program."""
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    rows = max(1, 512 // block)
    sizes = {"ROWS": rows, "BLOCK": block, "num_warps": min(16, rows * block // 512)}
    softmax_kernel[(triton.cdiv(M, rows),)](x, out, x.stride(0), M, N, **sizes)
    return out


# %%
# On rows of 256 elements, tiles have :measured:`short` times the speed of one row a program.
#
# **Long rows: more warps.** ``num_warps`` is the number of warps of one program, 4 by default. It
# changes the speed, and the result only by rounding. With too many warps, each thread has little to
# do, and the warps wait for each other at each reduction. With too few, each thread holds many
# elements, so it needs many registers, and fewer programs fit on a multiprocessor. This is
# ``row_kernel`` with four numbers of warps, in GB/s:

# sphinx_gallery_fold = "checks the tiles, and times four numbers of warps"
# sphinx_gallery_xray = "row_kernel: 4096 × 8192, fp32, 16 warps"
from shared.bench import gpu_times, spread
from tabulate import tabulate

for M, N in ((5, 1), (7, 200), (3, 781)):
    x = 4 * torch.randn(M, N, device=DEVICE)
    exact = torch.softmax(x.double(), dim=1)
    torch.testing.assert_close(softmax_in_tiles(x).double(), exact, rtol=1e-5, atol=0)
print("softmax_in_tiles agrees with float64")


def softmax_with_warps(x, warps):
    """Return the softmax of each row of *x*, one row a program of *warps* warps."""
    M, N = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    row_kernel[(M,)](x, out, x.stride(0), N, BLOCK=block, num_warps=warps)
    return out


values = []  # (name, unit, value): what no benchmark holds
if ON_GPU:
    WARPS, LENGTHS = (1, 4, 8, 16), (512, 2048, 8192)
    for N in LENGTHS:
        x = torch.randn(4096, N, device=DEVICE)
        times = gpu_times({warps: partial(softmax_with_warps, x, warps) for warps in WARPS})
        for warps in WARPS:
            speed = 2 * x.nbytes / spread(times[warps])[0] / 1e6
            values.append((f"{warps} warps, {N} columns", "GB/s", speed))
    softmax_with_warps(x, 16)  # the launch whose X-ray is shown
    speed = {name: value for name, _, value in values}
    table = [[w, *(speed[f"{w} warps, {N} columns"] for N in LENGTHS)] for w in WARPS]
    print(tabulate(table, ["warps", *(f"{N:,} columns" for N in LENGTHS)], floatfmt=".0f"))

# %%
# Our rule is **one warp for 512 elements**, and at most 16. With 32 threads in a warp, each thread
# then holds 16 elements. On an H100, this choice is the fastest of its column or close to it.
# :doc:`/programming-guide/chapter-1/gpu` computes from registers and warps how many programs fit on
# a multiprocessor, and why that matters.
#
# **Just above a power of two, nearly half of the block is padding.** It moves no bytes, but it
# occupies registers, and each instruction is executed for it. A row can be cut into two pieces
# instead: :doc:`05b-reductions` shows how.
#
# **Rows too long for the registers** are read in blocks, and twice: first for the maximum and the
# sum, then for the result. That makes three transfers instead of two, so expect two thirds of a
# copy's rate. (With 512 rows of 2¹⁸ elements, the function below reaches :measured:`long` %.) The
# first pass computes both at once: if a block raises the maximum, the sum so far is scaled down by
# a known factor. This is the *online softmax*, and :doc:`06-fused-attention` is built on it.
#
# In a program
# ------------
#
# A function that others call takes any matrix in fp16, bf16 or fp32. It copies a matrix whose rows
# are not contiguous, and its errors say what it refuses and why. It chooses a kernel by the length
# of the row: tiles, two pieces just above a power of two, or blocks for rows of more than 32,768
# elements. It launches on the GPU that holds its argument. It refuses a matrix that requires a
# gradient, because the result would have none. And it is an *operation* of PyTorch, so that
# ``torch.compile`` knows the shape of its result. :doc:`/programming-guide/chapter-6/calls`
# explains what such a function costs.

# sphinx_gallery_fold = "the function with its checks, and two more kernels"
from shared.launch import on_device_of

DTYPES = [torch.float16, torch.float32]
DTYPES = DTYPES + [torch.bfloat16] * ON_GPU  # the interpreter computes bf16 wrongly


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


@triton.jit
def long_softmax_kernel(x_ptr, out_ptr, stride, M, N, BLOCK: tl.constexpr):
    """Compute the softmax of one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    out_ptr += row * N
    m = -3.4028234663852886e38  # the lowest fp32 number: -inf minus -inf would be NaN
    s = 0.0  # the sum of the exponentials so far, relative to the maximum so far
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


def plan(N):
    """Return (kernel, rows of a program, constants) for rows of *N* elements."""
    if N > 32768:
        return long_softmax_kernel, 1, {"BLOCK": 8192, "num_warps": 16}
    block = triton.next_power_of_2(N)
    head = block // 2
    if N > 512 and 1.25 * head >= N:  # more than 3/8 of one block would be padding
        constants = {"HEAD": head, "TAIL": head // 4, "num_warps": min(16, head // 512)}
        return head_tail_kernel, 1, constants
    rows = max(1, 512 // block)
    warps = min(16, rows * block // 512)
    return softmax_kernel, rows, {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def check_argument(x):
    """Raise TypeError or ValueError if ``softmax`` cannot take *x*."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in DTYPES:
        raise TypeError(f"the dtype of x must be in {DTYPES}, but is {x.dtype}")
    if x.dim() != 2 or x.layout != torch.strided:
        found = f"has shape {tuple(x.shape)} and layout {x.layout}"
        raise ValueError(f"x must be a matrix, but {found}")
    if x.device.type != DEVICE.type:
        raise ValueError(f"x must be on a {DEVICE.type} device, but is on {x.device}")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "x requires a gradient, which softmax does not compute; "
            "use torch.softmax, or pass x.detach()"
        )


def launch(x):
    """Return the softmax of each row of a matrix that is checked."""
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if M * N == 0:
        return out
    x = x.resolve_neg()  # copies a matrix whose sign is still to be changed
    if N > 1 and x.stride(1) != 1:
        x = x.contiguous()
    kernel, rows, constants = plan(N)
    with on_device_of(x):
        kernel[((M + rows - 1) // rows,)](x, out, x.stride(0), M, N, **constants)
    return out


@torch.library.custom_op("gallery::softmax", mutates_args=())
def softmax_op(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax: an operation that PyTorch's compiler calls without looking into it."""
    return launch(x)


@softmax_op.register_fake
def softmax_shape(x):
    """Return a matrix like the result, without computing it: what the compiler has to know."""
    return x.new_empty(x.shape)


def softmax(x):
    """Return the softmax of each row of *x*, as ``torch.softmax(x, dim=1)`` does.

    Args:
        x: Matrix in fp16, bf16 (on a GPU only) or fp32, with any strides; copied first if its rows
            are not contiguous. A row of minus infinities gives NaN.

    Returns:
        A new, contiguous matrix of the same shape and dtype.

    Raises:
        TypeError: *x* is no tensor, or its dtype is not supported.
        ValueError: *x* is no matrix, is on another kind of device, or requires a gradient outside
            of ``torch.no_grad()``.
    """
    check_argument(x)
    if torch.compiler.is_compiling() or type(x) is not torch.Tensor:  # it may have no memory
        return softmax_op(x)
    return launch(x)


# %%
# It is checked like the plain one, with more shapes, dtypes and views. Results in fp16 and bf16
# have only 11 and 8 significant bits, so their tolerances are larger.

# sphinx_gallery_fold = "checks shapes, dtypes, views and infinities"
TOLERANCE = {torch.float32: (1e-5, 0), torch.float16: (2**-10, 2**-24), torch.bfloat16: (2**-7, 0)}


def check(x):
    """Raise AssertionError where ``softmax`` differs from PyTorch in float64."""
    rtol, atol = TOLERANCE[x.dtype]
    found, exact = softmax(x).double(), torch.softmax(x.double(), dim=1)
    torch.testing.assert_close(found, exact, rtol=rtol, atol=atol, equal_nan=True)


torch.manual_seed(0)
shapes = [(5, 1), (7, 2), (7, 200), (3, 781), (3, 4097), (2, 32769), (0, 5), (5, 0)]
shapes += [(1823, 781), (4096, 12672), (3, 2**20)] if ON_GPU else []
for dtype in DTYPES:
    for shape in shapes:
        check(4 * torch.randn(shape, device=DEVICE, dtype=dtype))
wide = torch.randn(40, 100, device=DEVICE)
for view in (wide[:, 10:91], wide[::3], wide[:, ::2], wide.T, wide[:1].expand(5, -1)):
    check(view)
for N in (5, 40000):
    x = torch.randn(4, N, device=DEVICE)
    x[1, :], x[2, :3], x[3, 3] = -math.inf, -math.inf, math.inf
    check(x)
print(f"softmax agrees with float64 on {len(shapes)} shapes in {len(DTYPES)} dtypes, and on views")

# %%
# The benchmark
# -------------
#
# The matrices have 4096 rows of 256 to 12,672 elements in fp32. All rates count the bytes that a
# fused softmax must move, ``2 * M * N * 4``. A copy of the matrix moves as much and is the ceiling.
# It is PyTorch's copy, so a kernel can be a little above it. In the plot, *softmax* is the function
# for programs, and *plain* the one that launches a program for each row.

# sphinx_gallery_fold = "times the softmaxes, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "softmax_kernel: 4096 × 8192, fp32; head_tail_kernel: 4096 × 8320, fp32"
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table


@triton.jit
def empty_kernel():
    """Do nothing."""


def plain_softmax(x):
    """Return the softmax of each row of *x*, by the launch of the plain function."""
    return softmax_with_warps(x, 4)  # 4 is the default


if ON_GPU:
    rows = []
    for N in range(256, 12673, 128):
        x = torch.randn(4096, N, device=DEVICE)
        calls = {
            "triton": partial(softmax, x),
            "triton, plain": partial(plain_softmax, x),
            "torch": partial(torch.softmax, x, dim=1),
            "copy": partial(torch.empty_like(x).copy_, x),
            "naive": partial(naive_softmax, x),
        }
        if N in (256, 8320):  # the steps
            calls["triton, tiles"] = partial(softmax_in_tiles, x)
        rows += rates((4096, N), calls, "GB/s", 2 * x.nbytes)
    write_rows("softmax-performance.csv", ["M", "N"], rows)
    long = torch.randn(512, 2**18, device=DEVICE)
    calls = {"softmax of long rows": partial(softmax, long), "copy of long rows": long.clone}
    values += [row[:3] for row in rates((), calls, "GB/s", 2 * long.nbytes)]
    for N in (8192, 8320):
        softmax(torch.randn(4096, N, device=DEVICE))  # the launches whose X-rays are shown
    x = torch.randn(64, 1024, device=DEVICE)
    calls = {"triton": partial(softmax, x), "torch": partial(torch.softmax, x, dim=1)}
    cpu = write_calls({"softmax": calls | {"launch": empty_kernel[(1,)]}})["softmax", "triton"]
    us = {N: 2 * 4096 * N * 4 / rate / 1e3 for _, N, name, _, rate, *_ in rows if name == "triton"}
    values.append(("GPU longer from", "columns", min(N for N in us if us[N] > cpu)))
    write_table("02-fused-softmax-values.csv", ["name", "unit", "value"], values)
    names = {"triton": "softmax", "triton, plain": "plain", "torch": "PyTorch"}
    names |= {"naive": "five operations", "copy": "copy (ceiling)"}
    draw_rates(rows, names, "Softmax of 4096 rows, fp32", "columns", column=1)

# %%
# **The prediction.** At 12,672 columns the bytes predict a factor of 4, and ``softmax`` is
# :measured:`faster` times as fast as the five operations. It moves :measured:`ours` GB/s, and the
# copy moves :measured:`copy` GB/s. The five operations move four times the bytes that the plot
# counts, so they really move :measured:`naive_moves` GB/s. Where this is less than what ``softmax``
# moves, fusion gains more than the bytes predict.
#
# **At the left end** all curves rise: short rows have few bytes, and a kernel takes time to start.
# From 2048 columns on, ``softmax`` reaches at least :measured:`copy_share` % of the copy.
#
# **PyTorch's softmax** chooses one of several kernels by the length of the row. On average over all
# lengths, ours has :measured:`torch` times its speed on the GPU. A call of ``softmax`` keeps the
# CPU busy for :measured:`cpu` µs, and one of PyTorch's for :measured:`cpu_torch` µs. In a loop that
# does not wait for results, a call costs the larger of the two times, the CPU's and the GPU's. With
# 4096 rows, the GPU's is the larger from :measured:`gpu_longer` columns on.
#
# **The steps** on rows of 8320 elements, just above a power of two:
#
# .. steps:: step_copy
#    :unit: GB/s
#
#    step_naive: five operations
#    step_rows: the plain function, 4 warps for each row
#    step_tiles: 16 warps
#    step_pieces: the function for programs, with less padding
#
# Exercises
# ---------
#
# 1. **Log-softmax** *(easy, 15 minutes)*. Change the kernel to compute the logarithm of the
#    softmax, and write ``log_softmax(x)``. Which of its steps get simpler? :doc:`Solution
#    <solutions/02-log-softmax>`.
# 2. **Causal mask** *(medium, 20 minutes)*. In attention, scores are scaled, and row *i* uses only
#    the columns up to *i*. Fuse both into the kernel of ``causal_softmax(x, scale)``. How many
#    bytes does it read? :doc:`Solution <solutions/02-causal-softmax>`.
# 3. **Backward** *(medium, 30 minutes)*. For the output *y* and its gradient *g*, the gradient of
#    the input is :math:`y \cdot (g - \sum_j g_j y_j)`. Write
#    ``softmax_backward(y, g)`` with one kernel. What speed-up over PyTorch operations do you
#    expect? :doc:`Solution <solutions/02-softmax-backward>`.
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
