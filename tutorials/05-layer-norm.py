r"""
Layer normalization
===================

You build ``layer_norm(x, weight, bias)`` with its gradients. Forward, it reaches on average
:measured:`share` % of the speed of a copy, with rows of 4096 elements and more. The gradients of
weight and bias are sums over all rows, so thousands of programs have to add up numbers together:
that is the new problem of this page. You need :doc:`02-fused-softmax`, and autograd in PyTorch.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
# sphinx_gallery_thumbnail_number = 1
import os
import sys  # for shared/
from contextlib import suppress
from functools import partial
from pathlib import Path  # for shared/

import torch
from torch._subclasses import FakeTensor
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
PROGRAMS, SHARED_BYTES = 4, 2**16  # programs at a time, and shared memory of a program
if ON_GPU:
    gpu = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    PROGRAMS, SHARED_BYTES = gpu["multiprocessor_count"], gpu["max_shared_mem"]
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# The kernel
# ----------
#
# Layer norm subtracts from each row :math:`x` its mean :math:`\mu` and divides by the square root
# of its variance :math:`\sigma^2`, to which a small :math:`\varepsilon` is added against division
# by zero. Then it scales and shifts each column by learned parameters:
#
# .. math::
#
#     \hat{x}_j = \frac{x_j - \mu}{\sqrt{\sigma^2 + \varepsilon}}, \qquad
#     y_j = w_j \hat{x}_j + b_j
#
# One program normalizes one row:


@triton.jit
def row_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stats_ptr, M, N, eps, BLOCK: tl.constexpr):
    """Normalize one row, and keep its statistics for the backward pass."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= N
    mask = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x) / N
    centered = tl.where(mask, x - mean, 0.0)  # <-
    rstd = tl.rsqrt(tl.sum(centered * centered) / N + eps)
    w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + columns, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * N + columns, centered * rstd * w + b, mask=mask)
    tl.store(stats_ptr + row, rstd)
    tl.store(stats_ptr + M + row, mean)


# %%
# * **The row is read once.** It stays in registers, where both sums are computed.
# * **Padding counts in a sum.** ``other=0.0`` fills it with zeros for the first sum. Subtracting
#   the mean turns them into :math:`-\mu`, so ``tl.where`` sets them back to zero for the second
#   sum.
# * ``rstd`` is the **reciprocal standard deviation**. One root serves the whole row. After that
#   every element is multiplied, which is cheaper than a division.
# * **Two numbers of a row are kept**, ``rstd`` and the mean, in fp32. The backward pass needs them.
# * The forward pass reads *x* and writes *y*. A copy moves the same bytes, so its speed is the
#   ceiling.
#
# **RMS norm** leaves out the mean and the bias: it divides each row by its root mean square,
# :math:`\sqrt{\overline{x^2} + \varepsilon}`, and multiplies by the weight. A bar is a mean over
# the row.
#
# **Try it** *(easy, 10 minutes)*. Write ``rms_norm(x, weight)`` by removing lines from the kernel,
# and let ``exercise.pyz`` (see *Exercises*) check it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 05-rms mine.py
#    Not yet. rms_norm((5, 7), (7,)): 35 of 35 elements are wrong. The first is at (0, 0): -1.25348
#    in place of -1.17253.
#
# If the sum is divided by ``BLOCK`` instead of *N*, only rows whose length is a power of two are
# right.
#
# Why the variance takes two passes
# ---------------------------------
#
# The formula :math:`\sigma^2 = \overline{x^2} - \mu^2` needs one pass over the row. Do not use it.
# If the mean is much larger than the deviation, it subtracts two large numbers that agree in most
# digits, which leaves mostly rounding errors: *catastrophic cancellation*. Both ways compute the
# variance of rows of 8192 numbers in fp32, with a deviation of 1, for four values of the mean.
#
# .. predict:: At a mean of 1000, how many times the error of two passes is the error of one?
#    :number: cancellation
#
#    fp32 has about seven digits. The square of the mean takes six of them, so one digit of the
#    variance is left. The error of one pass grows with the square of the mean.

noise = torch.randn(64, 8192, generator=torch.Generator().manual_seed(0)).to(DEVICE)
ERRORS = {}  # {mean: the largest relative error of one pass and of two}
for mean in (1, 10, 100, 1000):
    x, exact = noise + mean, (noise + mean).double().var(dim=1, correction=0)
    one = (x * x).mean(dim=1) - x.mean(dim=1) ** 2
    two = ((x - x.mean(dim=1, keepdim=True)) ** 2).mean(dim=1)
    ERRORS[mean] = [((v.double() - exact).abs() / exact).max().item() for v in (one, two)]
    print(f"mean {mean:5,}: one pass {ERRORS[mean][0]:.0e}, two passes {ERRORS[mean][1]:.0e}")

# %%
# The second pass costs nearly nothing here: it reads registers, not memory.
#
# The gradients
# -------------
#
# :math:`g` is the gradient of the loss *L* with respect to :math:`y`, and :math:`r` is ``rstd``:
#
# .. math::
#
#     \frac{\partial L}{\partial x_j} = r \, \Bigl( w_j g_j - \overline{wg} -
#     \hat{x}_j \, \overline{w g \hat{x}} \Bigr), \qquad
#     \frac{\partial L}{\partial w_j} = \sum_{\text{rows}} g_j \hat{x}_j, \qquad
#     \frac{\partial L}{\partial b_j} = \sum_{\text{rows}} g_j
#
# Adding a number to all of :math:`x`, or scaling :math:`x - \mu`, leaves :math:`y` unchanged, apart
# from :math:`\varepsilon`. The two means remove these directions from the gradient. The backward
# pass reads *x* and *g* and writes the gradient of *x*: three transfers.
#
# **Step 1: one row.** The gradient of *x* needs one row only, like the forward pass. The gradients
# of weight and bias need every row: ``dw[j]`` is the sum of a column. So each program has to add
# its row to ``dw`` and ``db``, while other programs do the same. If two programs read the old sum
# before one of them writes, one contribution is lost. An **atomic** addition prevents this: the
# hardware reads, adds and writes in one step. ``sem="relaxed"`` demands no order among these and
# other memory accesses.


@triton.jit
def row_gradient_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, dw_ptr, db_ptr, M, N, BLOCK: tl.constexpr
):
    """Compute the gradient of one row of x, and add its share of dw and db."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    rstd, mean = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
    normal = (x - mean) * rstd
    wg = w * g
    dx = (wg - tl.sum(wg) / N - normal * (tl.sum(wg * normal) / N)) * rstd
    tl.store(dx_ptr + row * N + columns, dx, mask=mask)
    tl.atomic_add(dw_ptr + columns, g * normal, mask=mask, sem="relaxed")
    tl.atomic_add(db_ptr + columns, g, mask=mask, sem="relaxed")


# %%
# This is right, but it has two faults. Every row sends 2\ *N* additions to the same addresses,
# which takes time. And a floating-point sum depends on the order of its additions. Here that is the
# order in which the programs happen to run:

# sphinx_gallery_fold = "counts the different gradients of 20 calls"


def gradients_by_atomics(x, g, weight, stats):
    """Return the gradients of x, weight and bias."""
    (M, N), dx = x.shape, torch.empty_like(x)
    dw, db = torch.zeros((2, N), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(N)
    row_gradient_kernel[(M,)](x, g, weight, stats, dx, dw, db, M, N, block, num_warps=8)
    return dx, dw.to(weight.dtype), db.to(weight.dtype)


def different(way, *inputs):
    """Return how many different gradients of the weight *way* gives in 20 calls."""
    return len({tuple(way(*inputs)[1].tolist()) for _ in range(20 if ON_GPU else 3)})


x, g = torch.randn(2, 2048 if ON_GPU else 8, 1024, device=DEVICE)
weight, bias = torch.randn(2, 1024, device=DEVICE)
stats = torch.stack([(x.var(dim=1, correction=0) + 1e-5).rsqrt(), x.mean(dim=1)])
answers = {"atomics": different(gradients_by_atomics, x, g, weight, stats)}
print("atomic additions, different gradients of the weight:", answers["atomics"])

# %%
# In 20 calls with the same input, atomic additions gave :measured:`answers` different gradients. A
# network trains well with such noise, but you cannot compare two runs to find a bug.
#
# Sums in a fixed order
# ---------------------
#
# **Step 2: rows in a loop, partial sums.** Start only *P* programs, such as one for each
# :doc:`multiprocessor </programming-guide/chapter-1/gpu>`, and let each one work on every *P*-th
# row. A program that stays like this is called **persistent**. It adds up its rows in registers, in
# their order. At the end it stores its sums in a row of its own. Now no two programs write to the
# same address, and nothing is atomic. In the kernel, ``tl.num_programs(0)`` is *P*. The picture has
# *P* = 3:

# sphinx_gallery_fold = "draws which program adds which rows"
from shared.sums import draw_partial_sums

draw_partial_sums(9, 3, 4)

# %%
# Only the loop is new, and the place of the sums:

# sphinx_gallery_difference = "row_gradient_kernel"


@triton.jit
def partial_sums_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, M, N, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute the gradients of every P-th row of x, and partial sums of dw and db."""
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    dw, db = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for row in range(program, M, programs):  # <-
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        rstd, mean = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
        normal = (x - mean) * rstd
        wg = w * g
        dx = (wg - tl.sum(wg) / N - normal * (tl.sum(wg * normal) / N)) * rstd
        tl.store(dx_ptr + row * N + columns, dx, mask=mask)
        dw += g * normal
        db += g
    tl.store(sums_ptr + program * 2 * N + columns, dw, mask=mask)
    tl.store(sums_ptr + program * 2 * N + N + columns, db, mask=mask)


# %%
# **Step 3: the sum of the partial sums.** What is left is a matrix of *P* rows. Each has *N* sums
# for the weight, followed by *N* for the bias. A second kernel adds up its columns: a program takes
# 32 of them, 32 rows at a time. Kernels in one queue run one after the other, so all partial sums
# are stored when this one starts.


@triton.jit
def add_up_kernel(sums_ptr, out_ptr, P, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Add up the P rows of a matrix with N columns, for COLUMNS of them."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]  # [1, COLUMNS]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, P, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)  # [ROWS, 1]
        mask = (rows < P) & (columns < N)
        total += tl.load(sums_ptr + rows * N + columns, mask=mask, other=0.0)
    tl.store(out_ptr + columns, tl.sum(total, axis=0, keep_dims=True), mask=columns < N)


def gradients(x, g, weight, stats):
    """Return the gradients of x, weight and bias."""
    (M, N), P = x.shape, PROGRAMS
    dx, both = torch.empty_like(x), weight.new_empty(2, N)  # both: of the weight and of the bias
    sums = torch.empty((P, 2, N), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(N)
    partial_sums_kernel[(P,)](x, g, weight, stats, dx, sums, M, N, block, num_warps=8)
    add_up_kernel[(triton.cdiv(2 * N, 32),)](sums, both, P, 2 * N, ROWS=32, COLUMNS=32)
    return dx, *both


answers["partial sums"] = different(gradients, x, g, weight, stats)
print("partial sums, different gradients of the weight:", answers["partial sums"])

# %%
# *M* and *P* fix the order of all additions, so every call gives the same bits.
#
# Calling it
# ----------
#
# A ``torch.autograd.Function`` connects both passes. ``ctx`` carries what the backward pass needs:
# *x*, the weight and the statistics, but not *y*. PyTorch does not record what a kernel computes,
# so a gradient of these gradients would silently be incomplete. ``backward`` refuses to be
# recorded.


class LayerNorm(torch.autograd.Function):
    """Layer norm of the rows of a contiguous matrix."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Normalize each row, and keep the statistics."""
        (M, N), y = x.shape, torch.empty_like(x)
        stats = torch.empty((2, M), dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(N)
        row_kernel[(M,)](x, weight, bias, y, stats, M, N, eps, BLOCK=block, num_warps=8)
        ctx.save_for_backward(x, weight, stats)
        return y

    @staticmethod
    def backward(ctx, g):
        """Return the gradients of x, weight and bias."""
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("layer_norm has no second derivative; leave out create_graph=True")
        x, weight, stats = ctx.saved_tensors
        return *gradients(x, g.contiguous(), weight, stats), None


def layer_norm(x, weight, bias, eps=1e-5):
    """Return the layer norm of the rows of a contiguous matrix, with gradients."""
    return LayerNorm.apply(x, weight, bias, eps)


# %%
# The result and its gradients must agree with those of PyTorch in float64:

# sphinx_gallery_fold = "compares results and gradients with float64"
from shared.norms import check

for dtype in (torch.float16, torch.float32):
    for M, N in ((1, 1), (7, 781), (33, 1024), (3, 4097)):
        x = 1 + 2 * torch.randn(M, N, device=DEVICE, dtype=dtype)
        parameters = torch.randn(2, N, device=DEVICE, dtype=dtype)
        check(layer_norm, functional.layer_norm, x, *parameters)
print("layer_norm and its gradients agree with float64")

# %%
# In a program
# ------------
#
# The function that others call takes a tensor with any number of dimensions and any strides,
# refuses what it cannot take, and names the argument. PyTorch negates some views later, such as the
# imaginary part of a conjugate (``x.is_neg()``). This function negates them first, and the plain
# one reads them, and such gradients, with the wrong sign. Rows longer than 16,384 elements fall
# back to PyTorch. ``rms_norm`` shares its kernels: ``CENTER`` is a constant, and if it is false,
# the mean and the bias are not compiled. On short rows a call takes the CPU longer than the GPU, so
# plans of launches are kept for similar calls (:doc:`/programming-guide/chapter-6/calls`).
#
# Its kernels are those above, made faster. A row of 2560 elements padded to 4096 wastes registers,
# so the row is cut into **pieces** and empty ones are left out. Short rows share a program. The
# loop over rows fetches the next ones while it works. NVIDIA GPUs from Hopper on launch the kernel
# that adds up early. :doc:`05b-reductions` explains these changes, one at a time.

# sphinx_gallery_fold = "the kernels of the function: forward, gradients, and the sum of the sums"
from shared.norm_kernels import backward_kernel, forward_kernel, sums_constants, sums_kernel

# %%
# The function takes over the name ``layer_norm``:

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import Launch, key_of
from shared.norms import check_norm, library_norm, readable
from shared.plans import ORDINARY

EARLY = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) >= (9, 0)


def forward_plan(eps, x, weight, *bias):
    """Return the launch, and the shape of the statistics."""
    M, N = x.shape[:-1].numel(), x.shape[-1]
    block = max(128, triton.next_power_of_2(N))
    piece = block // 2 if block <= 2048 else max(1024, block // (8 if 0.875 * block >= N else 4))
    rows, pieces = max(1, 2048 // block), triton.cdiv(N, piece)
    full = rows > 1 or (piece, pieces) in ((2048, 5), (2048, 7), (4096, 4))  # more programs fit
    constants = {"CENTER": bool(bias), "ROWS": rows, "PIECE": piece, "PIECES": pieces}
    constants["num_warps"] = max(1, rows * piece // (512 if full else 256))
    numbers = M, N, x.stride(0) if x.ndim == 2 else N, float(eps[0])
    launch = Launch(forward_kernel, (triton.cdiv(M, rows),), numbers, constants)
    return launch, (1 + len(bias), M)


def backward_plan(bias, g, x, weight):
    """Return the launches of both kernels, and the shape of the partial sums between them."""
    M, N = x.shape[:-1].numel(), x.shape[-1]
    rows, piece, warps, each, weights, stages = 1, 2048, 8, 1, 0, 4
    if N <= 2048:
        piece, warps, each, stages = max(128, triton.next_power_of_2(N)), 4, 2, 3
        rows = max(2, 2048 // piece)
    elif N <= 5120:
        piece, warps, each, stages = 1024, 4, 2, 4 if N <= 3072 else 3
    elif 8192 < N <= 14336:
        weights, stages = 2 if bias and N > 10240 else 1, 3
    pieces, share = triton.cdiv(N, piece), 2 if N > 14336 else 1
    fetched = 2 * rows * x.itemsize + weights * weight.itemsize
    stages = max(1, min(stages, 1 + (SHARED_BYTES - 2048) // (each * piece * pieces * fetched)))
    tiles = triton.cdiv(M, rows)
    turns = triton.cdiv(tiles, max(1, PROGRAMS * each // share))
    programs = triton.cdiv(tiles, turns)  # no more than so many turns need
    first = {"ROWS": rows, "PIECE": piece, "PIECES": pieces, "OWN": triton.cdiv(pieces, share)}
    first |= {"WEIGHTS": weights, "STAGES": stages, "num_warps": warps}
    first |= {"CENTER": bias is not None, "EARLY": EARLY}
    numbers = *(t.stride(0) if t.ndim == 2 else N for t in (x, g)), M, N
    first = Launch(backward_kernel, (programs * share,), numbers, first)
    sums = N if bias is None else 2 * N  # of a program
    second = sums_constants(N, PROGRAMS, EARLY)
    grid = (triton.cdiv(sums, second["COLUMNS"]),)
    second = Launch(sums_kernel, grid, (programs, sums), second)
    return first, second, (programs, sums)


PLANS = {}  # {what calls that are alike have in common: their plan}


def made(make, more, *tensors):
    """Return the plan that *make* makes, and keep it for calls that are alike."""
    if len(PLANS) == 1000:  # a program whose shapes never repeat
        PLANS.clear()
    return PLANS.setdefault((make, more, key_of(*tensors)), make(more, *tensors))


def forward(launch, shape, x, weight, *bias):
    """Return y, and the statistics of each row: ``rstd`` and, for layer norm, the mean."""
    y, stats = torch.empty_like(x), x.new_empty(shape, dtype=torch.float32)
    launch(x, weight, *(bias or (None,)), y, stats)
    return y, stats


class Norm(torch.autograd.Function):
    """Layer norm of x, weight and bias, or RMS norm of x and weight."""

    @staticmethod
    def forward(ctx, plan, x, weight, *bias):
        """Normalize each row, and keep the statistics."""
        y, stats = forward(*plan, x, weight, *bias)
        ctx.save_for_backward(x, weight, stats)
        ctx.bias = bias[0].dtype if bias else None
        return y

    @staticmethod
    def backward(ctx, g):
        """Return None, and the gradients of x, the weight and, for layer norm, the bias."""
        if torch.is_grad_enabled():  # create_graph=True
            name = "layer_norm" if ctx.bias else "rms_norm"
            raise RuntimeError(f"{name} has no second derivative; leave out create_graph=True")
        x, weight, stats = ctx.saved_tensors
        plan = PLANS.get((backward_plan, ctx.bias, key_of(g, x, weight)))
        if plan is None or g.is_neg():
            g, x, weight = readable(g), readable(x), readable(weight)
            plan = made(backward_plan, ctx.bias, g, x, weight)
        first, second, shape = plan
        dx, sums = torch.empty_like(x), stats.new_empty(shape)
        first(x, g, weight, stats, dx, sums)
        if ctx.bias is None:
            second(sums, dw := torch.empty_like(weight))
            return None, dx, dw
        dtype = torch.promote_types(weight.dtype, ctx.bias)
        second(sums, both := weight.new_empty((2, len(weight)), dtype=dtype))
        return None, dx, both[0].to(weight.dtype), both[1].to(ctx.bias)


def normalize(eps, *tensors):
    """Return the norm of *tensors*: x, weight and, for layer norm, bias."""
    if torch.compiler.is_compiling():
        return not_compiled(eps, *tensors)
    plan = None
    if ORDINARY.issuperset(map(type, tensors)) and not any(t.is_neg() for t in tensors):
        with suppress(RuntimeError, TypeError):  # a sparse tensor, or a list as eps
            plan = PLANS.get((forward_plan, (eps, type(eps)), key_of(*tensors)))
    if plan is None:
        check_norm(eps, DEVICE, *tensors)
        nowhere = any(isinstance(t, FakeTensor) or not t.data_ptr() for t in tensors)
        if nowhere or not 0 < tensors[0].shape[-1] <= 16384 or not tensors[0].numel():
            return library_norm(eps, *tensors)
        tensors = [readable(t) for t in tensors]
        plan = made(forward_plan, (eps, type(eps)), *tensors)
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return Norm.apply(plan, *tensors)
    return forward(*plan, *tensors)[0]


@torch.compiler.disable  # torch.compile calls it between its graphs
def not_compiled(*arguments):
    """Return the norm, computed outside the graphs."""
    return normalize(*arguments)


def layer_norm(x, weight, bias, eps=1e-5):
    """Return the layer norm of *x* along its last dimension, with gradients.

    *x* is a tensor ``[…, N]`` with any strides, of float16, float32 or, on a GPU, bfloat16;
    *weight* and *bias* are ``[N]``, of any of these dtypes; *eps* is finite and not negative.
    Raises TypeError or ValueError, naming the argument that is not as described. The backward pass
    raises RuntimeError if it is recorded, for a second derivative.
    """
    return normalize(eps, x, weight, bias)


def rms_norm(x, weight, eps=1e-6):
    """Return the RMS norm of *x*; arguments and errors are those of :func:`layer_norm`."""
    return normalize(eps, x, weight)


# %%
# The same check of these functions, and of RMS norm:

# sphinx_gallery_fold = "compares results and gradients with float64"


cases = [(torch.float16, (2, 3, 65)), (torch.float32, (7, 781)), (torch.float16, (3, 4097))]
cases += [(torch.float16, (1823, 15872)), (torch.bfloat16, (1823, 9217))] * ON_GPU
for dtype, shape in cases * 2:  # the second time with a plan
    x = 1 + 2 * torch.randn(shape, device=DEVICE, dtype=dtype)
    parameters = torch.randn(2, shape[-1], device=DEVICE, dtype=dtype)
    check(layer_norm, functional.layer_norm, x, *parameters)
    check(partial(rms_norm, eps=1e-5), functional.rms_norm, x, parameters[0])
print("Both norms and all gradients agree with float64")

# %%
# Timing it
# ---------
#
# The benchmark has 4096 rows of fp16, forward and backward. A copy of as many bytes is the ceiling.
# The plot shows the backward pass: *plain* is the function under *Calling it*, and *layer_norm* the
# function for programs.

# sphinx_gallery_fold = "times both norms in both directions, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "forward_kernel: 4096 × 15,872, fp16; backward_kernel: 4096 × 15,872, fp16"
from shared.attention import gradient_calls
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table
from shared.plans import empty_kernel

SOME = 1024, 2560, 8192, 15872  # with torch.compile, and the atomic additions
NORMS = {"rms": (rms_norm, functional.rms_norm, 1)}
NORMS["layer"] = layer_norm, functional.layer_norm, 2


def calls_of(norm, M, N, compiled=None):
    """Return the {provider: call} of forward and backward, for *M* rows of *N* elements in fp16."""
    ours, library, count = NORMS[norm]
    x, g = torch.randn(2, M, N, device=DEVICE, dtype=torch.float16)
    tensors = x, *torch.randn(count, N, device=DEVICE, dtype=torch.float16)
    leaves = [t.clone().requires_grad_() for t in tensors]

    def calls(x, *more):
        found = {"triton": partial(ours, x, *more), "torch": partial(library, x, (N,), *more)}
        plain = {"triton, plain": partial(LayerNorm.apply, x, *more, 1e-5)}
        return found | (plain if count == 2 else {})

    more = {"compile": partial(compiled, 1e-5, *leaves)} if compiled else {}
    backwards = gradient_calls(calls(*leaves) | more, leaves)
    if compiled and count == 2:
        stats = torch.ones(2, M, device=DEVICE)
        backwards["triton, atomics"] = partial(gradients_by_atomics, x, g, tensors[1], stats)
    return calls(*tensors) | more, backwards


def benchmark(norm, M, sizes):
    """Return the rows (M, N, provider, unit, median, p20, p80) of forward and of backward."""
    rows, compiled = ([], []), torch.compile(library_norm, dynamic=False)
    for N in sizes:
        both = calls_of(norm, M, N, compiled if N in SOME else None)
        for found, calls, transfers in zip(rows, both, (2, 3), strict=True):
            source = torch.empty(transfers * M * N // 2, device=DEVICE, dtype=torch.float16)
            calls["copy"] = partial(torch.empty_like(source).copy_, source)
            found += rates((M, N), calls, "GB/s", transfers * M * N * 2, 20)
    return rows


if ON_GPU:
    torch._dynamo.config.recompile_limit = 16  # versions of one function
    torch._functorch.config.donated_buffer = False  # as the graph is kept
    results, shares = {}, {}
    for norm in NORMS:
        results[norm] = benchmark(norm, 4096, range(1024, 16384, 512))
        for way, found in zip(("forward", "backward"), results[norm], strict=True):
            write_rows(f"{norm}-norm-{way}.csv", ["M", "N"], found)
    names = {"triton": "layer_norm", "triton, plain": "plain", "torch": "PyTorch"}
    names |= {"compile": "torch.compile", "copy": "copy (ceiling)"}
    title = "Layer norm, backward, 4096 rows, fp16"
    draw_rates(results["layer"][1], names, title, "columns", column=1, share_of="copy")
else:
    print("Without a GPU there is nothing to time.")

# %%
# The CPU's share of a call is measured on 64 rows of 1024 elements:

# sphinx_gallery_fold = "times the calls, and keeps the values"
if ON_GPU:
    empty = empty_kernel[(1,)]
    for norm in NORMS:
        forward_calls, backwards = calls_of(norm, 64, 1024)
        shares[f"{norm}_norm"] = forward_calls | {"launch": empty}
        shares[f"{norm}_norm backward"] = backwards | {"launch": lambda: (empty(), empty())}
    cpu = write_calls(shares)
    values = [(way, "different results", answers[way]) for way in ("atomics", "partial sums")]
    values += zip(("one pass", "two passes"), ["relative error"] * 2, ERRORS[1000], strict=True)
    for i, way in enumerate(("", " backward")):
        times = {N: 2e-3 * (i + 2) * M * N / rate for M, N, name, _, rate, *_ in results["layer"][i]
                 if name == "triton"}  # fmt: skip
        share, most = cpu[f"layer_norm{way}", "triton"], max(times)
        longer = [N for N, time in times.items() if time > share]
        beyond = round(most * share / times[most])  # the time grows with the row
        values.append((f"GPU longer from{way}", "columns", min(longer, default=beyond)))
    write_table("05-layer-norm-values.csv", ["name", "unit", "value"], values)

# %%
# The steps of the backward pass, for 4096 rows of 2560 elements; rates count three transfers:
#
# .. steps:: copied
#    :unit: GB/s
#
#    atomics: one program for each row, atomic additions
#    sums: few programs, partial sums
#    final: pieces, rows fetched ahead, and from Hopper on an early last kernel
#
# **On the GPU**, the forward pass has :measured:`forward` times the speed of PyTorch's in the
# geometric mean over all row lengths, and :measured:`forward_least` times at least. The backward
# pass has :measured:`backward` times the speed, and :measured:`backward_least` times at least.
# PyTorch's backward reads *x* and *g* a second time, for the gradients of the parameters. **The
# teeth** of our curve are the pieces: their number and size change with the length.
#
# **On the CPU** a call without gradients takes :measured:`cpu` µs, and one of PyTorch's function
# :measured:`cpu_torch` µs. A backward pass takes :measured:`cpu_backward` µs, and PyTorch's
# :measured:`cpu_backward_torch` µs. A part of either belongs to autograd itself, which
# :doc:`06b-attention-backward` measures. In a loop that does not wait, a call costs the larger of
# both times. For 4096 rows the GPU's is the larger from :measured:`longer` columns on, and backward
# from :measured:`longer_backward`. A length above those of the plot is an estimate from its longest
# row. Above 16,384 the CPU is the bottleneck at every length that our kernels compute. Where it is,
# the GPU's speed does not count. There, our backward call takes :measured:`backward_calls` times the
# CPU time of PyTorch's.
#
# Exercises
# ---------
#
# 1. **Add a residual** *(medium, 30 minutes)*. ``add_norm(x, residual, weight, bias)`` returns the
#    norm of the sum and the sum, with gradients. How many transfers does it save? :doc:`Solution
#    <solutions/05-residual>`.
# 2. **Group norm** *(hard, 40 minutes)*. ``group_norm(x, groups, weight, bias)`` takes its mean
#    over a group of channels and all their pixels. Which kernel is it nearly? :doc:`Solution
#    <solutions/05-group-norm>`.
# 3. **Dropout fused in** *(hard, 40 minutes)*. ``dropped_layer_norm(x, weight, bias, p, seed)``
#    drops elements with a seed. What does its backward pass need? :doc:`Solution
#    <solutions/05-dropout>`.
#
# References
# ----------
#
# * Jimmy Lei Ba, Jamie Ryan Kiros and Geoffrey E. Hinton: *Layer normalization*, 2016,
#   https://arxiv.org/abs/1607.06450
# * Biao Zhang and Rico Sennrich: *Root mean square layer normalization*, 2019,
#   https://arxiv.org/abs/1910.07467
