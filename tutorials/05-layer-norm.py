r"""
Layer normalization
===================

You build ``layer_norm(x, weight, bias)`` and ``rms_norm(x, weight)`` with their gradients. Forward,
layer norm reaches :measured:`share` % of the speed of a copy, and backward :measured:`backward`
times the speed of PyTorch. The gradients of weight and bias are sums over all rows, so programs
have to add up numbers together. You need :doc:`02-fused-softmax` and :doc:`04-low-memory-dropout`.
"""

# %%
# The kernel
# ----------
#
# Layer norm subtracts from each row :math:`x` its mean :math:`\mu` and divides by the square root
# of its variance :math:`\sigma^2`. Then it scales and shifts each column by learned parameters:
#
# .. math::
#
#     \hat{x}_j = \frac{x_j - \mu}{\sqrt{\sigma^2 + \varepsilon}}, \qquad
#     y_j = w_j \hat{x}_j + b_j
#
# **RMS norm** only divides by the root mean square. One program normalizes one row:

# sphinx_gallery_level = "transformer"
import os
from functools import partial, reduce

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def row_kernel(x_ptr, w_ptr, b_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    """Normalize one row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= N
    mask = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x) / N
    centered = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered) / N + eps)
    w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + columns, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * N + columns, centered * rstd * w + b, mask=mask)


torch.manual_seed(0)
x, (weight, bias) = torch.randn(3, 5, device=DEVICE), torch.randn(2, 5, device=DEVICE)
y = torch.empty_like(x)
row_kernel[(3,)](x, weight, bias, y, 5, 1e-5, BLOCK=8)
torch.testing.assert_close(y, functional.layer_norm(x, (5,), weight, bias))

# %%
# * The row is read once and stays in registers, where both sums are computed.
# * ``other=0.0`` fills the padding with zeros for the first sum. Subtracting the mean turns them
#   into :math:`-\mu`, and ``tl.where`` sets them back for the second sum.
# * ``rstd`` is the reciprocal standard deviation: one root per row, then multiplications.
# * Forward reads *x* and writes *y*. A copy moves the same bytes, so its speed is the ceiling.
#
# Why the variance takes two passes
# ---------------------------------
#
# The formula :math:`\sigma^2 = \overline{x^2} - \mu^2` needs one pass over the row. Do not use it.
# If the mean is much larger than the deviation, it subtracts two large numbers that agree in most
# digits, which leaves mostly rounding errors: *catastrophic cancellation*. Here both ways compute
# the variance of rows of 8192 numbers in fp32, with a deviation of 1:

noise = torch.randn(64, 8192, generator=torch.Generator().manual_seed(0)).to(DEVICE)
ERRORS = {}  # {mean: the largest relative error of one pass and of two}
for mean in (1, 10, 100, 1000):
    x, exact = noise + mean, (noise + mean).double().var(dim=1, correction=0)
    one = (x * x).mean(dim=1) - x.mean(dim=1) ** 2
    two = ((x - x.mean(dim=1, keepdim=True)) ** 2).mean(dim=1)
    ERRORS[mean] = [((v.double() - exact).abs() / exact).max().item() for v in (one, two)]
    print(f"mean {mean:4}: one pass {ERRORS[mean][0]:.0e}, two passes {ERRORS[mean][1]:.0e}")

# %%
# The error of one pass grows with the square of the mean. At a mean of 1000 it is
# :measured:`cancellation` times that of two passes. The second pass reads only registers.
#
# A row in pieces
# ---------------
#
# ``BLOCK`` is a power of two, so a row of 4608 is padded to 8192. The next kernel cuts a row into
# **pieces** of equal length and leaves out those that hold only padding. It keeps the pieces in the
# dtype of *x*, which halves the registers in fp16. Triton has no arrays of blocks, but it has
# tuples: ``xs + (x,)`` appends. An index must be a constant, so ``tl.static_range`` unrolls loops.

# sphinx_gallery_difference = "row_kernel"


@triton.jit
def forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, stats_ptr, M, N, x_row_stride, eps,
    CENTER: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Normalize ROWS rows of up to PIECE * PIECES elements; without CENTER it is RMS norm."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    columns = tl.arange(0, PIECE)[None, :]  # [1, PIECE]
    xs, mean = (), tl.zeros([ROWS, 1], tl.float32)
    total = tl.zeros([ROWS, PIECE], tl.float32)
    for i in tl.static_range(PIECES):
        mask = (rows < M) & (i * PIECE + columns < N)
        x = tl.load(x_ptr + (rows * x_row_stride + (i * PIECE + columns)), mask=mask, other=0.0)
        xs = xs + (x,)
        total += x.to(tl.float32)
    if CENTER:
        mean = tl.sum(total, axis=1, keep_dims=True) / N  # [ROWS, 1]
        tl.store(stats_ptr + M + rows, mean, mask=rows < M)
    total = tl.zeros([ROWS, PIECE], tl.float32)
    for i in tl.static_range(PIECES):
        centered = xs[i].to(tl.float32) - mean
        if CENTER and i == PIECES - 1:  # only the last piece has padding
            centered = tl.where(i * PIECE + columns < N, centered, 0.0)
        total += centered * centered
    rstd = tl.rsqrt(tl.sum(total, axis=1, keep_dims=True) / N + eps)
    tl.store(stats_ptr + rows, rstd, mask=rows < M)
    for i in tl.static_range(PIECES):
        mask = i * PIECE + columns < N
        w = tl.load(w_ptr + i * PIECE + columns, mask=mask, eviction_policy="evict_last")
        y = (xs[i].to(tl.float32) - mean) * rstd * w.to(tl.float32)
        if CENTER:
            b = tl.load(b_ptr + i * PIECE + columns, mask=mask, eviction_policy="evict_last")
            y += b.to(tl.float32)
        tl.store(y_ptr + rows * N + i * PIECE + columns, y, mask=(rows < M) & mask)


# %%
# * Pieces are added elementwise, so there is still one reduction for each sum. At 4096 rows of 2560
#   elements, pieces are :measured:`pieces` times as fast as one padded block.
# * ``CENTER`` is a constant. If it is false, the lines below ``if CENTER`` are not compiled.
# * The backward pass needs ``rstd`` and the mean, so they are stored, in fp32.
# * Short rows share a program until it has 2048 elements.
# * ``evict_last`` asks the cache to keep the parameters, which the next program reads again.
#
# The gradients
# -------------
#
# :math:`g` is the gradient of the loss with respect to :math:`y`, and a bar is a mean over the row:
#
# .. math::
#
#     \frac{\partial L}{\partial x_j} = \frac{1}{\sigma} \Bigl( w_j g_j - \overline{wg} -
#     \hat{x}_j \, \overline{w g \hat{x}} \Bigr), \qquad
#     \frac{\partial L}{\partial w_j} = \sum_{\text{rows}} g_j \hat{x}_j, \qquad
#     \frac{\partial L}{\partial b_j} = \sum_{\text{rows}} g_j
#
# Adding a number to all of :math:`x`, or scaling :math:`x - \mu`, leaves :math:`y` unchanged. The
# two means remove these directions from the gradient; RMS norm has only the second one. Backward
# reads *x* and *g* and writes the gradient of *x*: three transfers.
#
# The other two gradients are sums over rows. In the next kernel each of *P* programs works on every
# *P*-th row, and adds up its rows in registers. At the end it adds its sums to those of the others.
# If two programs read the old sum before one of them writes, one contribution is lost. An
# **atomic** addition prevents this: the L2 cache reads, adds and writes in one step. Without
# ``ATOMIC``, each program stores its sums in a row of its own.


@triton.jit
def gradients_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, M, N, BLOCK: tl.constexpr,
    ATOMIC: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every P-th row of x, and sums of dw and db."""
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    dw, db = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for row in range(program, M, programs):
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        rstd, mean = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
        normal = (x - mean) * rstd
        wg = w * g
        dx = (wg - tl.sum(wg) / N - normal * (tl.sum(wg * normal) / N)) * rstd
        tl.store(dx_ptr + row * N + columns, dx, mask=mask)
        dw += g * normal
        db += g
    if ATOMIC:
        tl.atomic_add(sums_ptr + columns, dw, mask=mask, sem="relaxed")
        tl.atomic_add(sums_ptr + N + columns, db, mask=mask, sem="relaxed")
    else:
        tl.store(sums_ptr + program * N + columns, dw, mask=mask)
        tl.store(sums_ptr + (programs + program) * N + columns, db, mask=mask)


def gradients(x, g, weight, stats, programs, atomic):
    """Return the gradients of x, weight and bias, computed by so many *programs*."""
    dx, (M, N) = torch.empty_like(x), x.shape
    sums = torch.zeros((2, 1 if atomic else programs, N), dtype=torch.float32, device=x.device)
    constants = {"BLOCK": triton.next_power_of_2(N), "ATOMIC": atomic, "num_warps": 8}
    gradients_kernel[(programs,)](x, g, weight, stats, dx, sums, M, N, **constants)
    return dx, *sums.sum(dim=1).to(weight.dtype)


# %%
# **Atomic additions**, with one program for each row: each row sends 2\ *N* additions to the same
# addresses, which takes time. Worse, a floating-point sum depends on the order of its additions,
# and here that is the order in which the programs happen to run.
#
# **Partial sums**, with a few programs, such as one for each multiprocessor. A program that stays
# and works on many rows is called **persistent**. PyTorch adds up the *P* rows of partial sums, so
# *M* and *P* fix the order of all additions. On a GPU, both ways now compute a gradient 20 times.

PROGRAMS, SHARED_BYTES = 4, 2**16  # programs at a time, and shared memory of a program
if ON_GPU:
    gpu = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    PROGRAMS, SHARED_BYTES = gpu["multiprocessor_count"], gpu["max_shared_mem"]
x, g = torch.randn(2, 2048 if ON_GPU else 8, 1024, device=DEVICE)
weight = torch.randn(1024, device=DEVICE)
stats = torch.stack([(x.var(dim=1, correction=0) + 1e-5).rsqrt(), x.mean(dim=1)])
ANSWERS = {}  # {way: different gradients of the weight}
for way, programs in (("atomics", len(x)), ("partial sums", PROGRAMS)):
    call = partial(gradients, x, g, weight, stats, programs, way == "atomics")
    ANSWERS[way] = len({tuple(call()[1].tolist()) for _ in range(20 if ON_GPU else 3)})
print("different answers:", ANSWERS)

# %%
# Atomic additions gave :measured:`answers` different answers, partial sums :measured:`same`. A
# network trains well with such noise, but you cannot compare two runs to find a bug.
#
# The fast kernel
# ---------------
#
# The kernel that the function uses is ``gradients_kernel`` with these changes:
#
# * The row is cut into pieces, as in the forward kernel, and short rows share a tile.
# * ``num_stages`` in ``tl.range`` fetches the next rows while the program works on this one.
# * Where registers leave no room for the weights, they are loaded again (``WEIGHTS``). The longest
#   rows are shared by two programs, and each keeps ``OWN`` of the pieces.
# * A second kernel adds up the partial sums. It is launched before the first one ends (``EARLY``).
#   :doc:`05b-reductions` explains the last three changes, one at a time.

# sphinx_gallery_fold = "has the kernels of the backward pass: gradients, then the sum of the sums"


@triton.jit(do_not_specialize=["stats_ptr"])
def backward_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, x_row_stride, g_row_stride, M, N,
    CENTER: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
    OWN: tl.constexpr, WEIGHTS: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every P-th tile of ROWS rows, and partial sums of dw and db."""
    SHARE: tl.constexpr = 1 if OWN == PIECES else 2  # programs that share a row
    program, programs = tl.program_id(0) // SHARE, tl.num_programs(0) // SHARE
    first = tl.program_id(0) % SHARE * (PIECES - OWN)  # its own pieces come first
    least = tl.program_id(0) % SHARE * OWN * PIECE  # both have the middle one, the first writes it
    columns = tl.arange(0, PIECE)[None, :]  # [1, PIECE]
    zeros = tl.zeros([ROWS, PIECE], tl.float32)
    kept, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = (first + i) % PIECES * PIECE + columns
        if WEIGHTS == 0:
            kept = kept + (tl.load(w_ptr + place, mask=place < N, other=0.0),)
        if i < OWN:
            dw, db = dw + (zeros,), db + (zeros,)
    for tile in tl.range(program, tl.cdiv(M, ROWS), programs, num_stages=STAGES):
        rows = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
        rstd = tl.load(stats_ptr + rows, mask=rows < M, other=0.0)
        mean = tl.zeros([ROWS, 1], tl.float32)
        if CENTER:
            mean = tl.load(stats_ptr + M + rows, mask=rows < M, other=0.0)
        xs, gs, ws = (), (), ()
        sum_wg, sum_wgx = zeros, zeros
        for i in tl.static_range(PIECES):
            place = (first + i) % PIECES * PIECE + columns
            mask = (rows < M) & (place < N)
            x = tl.load(x_ptr + (rows * x_row_stride + place), mask=mask, other=0.0)
            g = tl.load(g_ptr + (rows * g_row_stride + place), mask=mask, other=0.0)
            w = kept[i] if WEIGHTS == 0 else tl.load(w_ptr + place, mask=place < N, other=0.0)
            if i < OWN:
                xs, gs, ws = xs + (x,), gs + (g,), ws + (w,)
            wg = w.to(tl.float32) * g.to(tl.float32)
            sum_wg += wg
            sum_wgx += wg * (x.to(tl.float32) - mean)
        mean_wg = tl.sum(sum_wg, axis=1, keep_dims=True) / N if CENTER else 0.0
        mean_wgx = tl.sum(sum_wgx, axis=1, keep_dims=True) / N * rstd
        new_dw, new_db = (), ()
        for i in tl.static_range(OWN):
            place = (first + i) * PIECE + columns
            g = gs[i].to(tl.float32)
            normal = (xs[i].to(tl.float32) - mean) * rstd
            new_dw, new_db = new_dw + (dw[i] + g * normal,), new_db + (db[i] + g,)
            w = ws[i]
            if WEIGHTS == 2:  # the hint is another one, or both loads would become one
                w = tl.load(w_ptr + place, mask=place < N, other=0.0, eviction_policy="evict_last")
            dx = (w.to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            mask = (rows < M) & (place < N) & (place >= least)
            tl.store(dx_ptr + rows * N + place, dx, mask=mask)
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(OWN):
        place = (first + i) * PIECE + columns
        mask = (place < N) & (place >= least)
        mine = sums_ptr + tl.cast(program, tl.int64) * N + place
        tl.store(mine, tl.sum(dw[i], axis=0, keep_dims=True), mask=mask)
        if CENTER:
            mine += tl.cast(programs, tl.int64) * N
            tl.store(mine, tl.sum(db[i], axis=0, keep_dims=True), mask=mask)


@triton.jit
def sums_kernel(
    sums_ptr, dw_ptr, db_ptr, P, N, CENTER: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Add up the P rows of partial sums, for COLUMNS columns."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]  # [1, COLUMNS]
    dw, db = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    if EARLY:
        gdc_wait()
    for start in range(0, P, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        mask = (rows < P) & (columns < N)
        dw += tl.load(sums_ptr + rows * N + columns, mask=mask, other=0.0)
        if CENTER:
            db += tl.load(sums_ptr + (P + rows) * N + columns, mask=mask, other=0.0)
    tl.store(dw_ptr + columns, tl.sum(dw, axis=0, keep_dims=True), mask=columns < N)
    if CENTER:
        tl.store(db_ptr + columns, tl.sum(db, axis=0, keep_dims=True), mask=columns < N)


# %%
# The steps of the backward pass, for 4096 rows of 2560 elements; rates count three transfers:
#
# .. steps:: copied
#    :unit: GB/s
#
#    atomics: one program for each row, atomic additions
#    sums: few programs, partial sums
#    final: pieces, rows fetched ahead, a kernel for the second stage
#
# Calling it
# ----------
#
# On short rows a call takes the CPU longer than the GPU. So launches are kept for similar calls
# (:doc:`/programming-guide/chapter-6/calls`). Autograd keeps *x*, the weight and the statistics.
# Strided tensors are copied, but not matrices like ``x[:, :n]``. PyTorch takes rows above 16384.

# sphinx_gallery_fold = "checks the arguments, and chooses pieces, rows and warps"
# sphinx_gallery_show = "Norm, layer_norm, rms_norm"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

EARLY = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) >= (9, 0)


def readable(t):
    """Return *t*, or a contiguous copy unless it is a matrix whose rows are contiguous."""
    is_matrix = t.ndim == 2 and t.stride(1) == 1 and t.stride(0) >= t.shape[1]
    return t if is_matrix else t.contiguous()


def check_arguments(eps, *tensors):
    """Raise TypeError or ValueError, naming the argument, if the kernels cannot take it."""
    for name, t in zip(("x", "weight", "bias"), tensors, strict=False):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            kinds = "float16, bfloat16 or float32"
            raise TypeError(f"{name} must be {kinds}, but its dtype is {t.dtype}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
        row = tensors[0].shape[-1:]
        if not row:
            raise ValueError("x must have a dimension to normalize, but is a single number")
        if name != "x" and t.shape != row:
            raise ValueError(f"{name} must have shape {tuple(row)}, but has {tuple(t.shape)}")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise TypeError(f"eps must be a number, but is a {type(eps).__name__}")
    if not 0 <= eps < float("inf"):  # this refuses NaN, too
        raise ValueError(f"eps must be finite and not negative, but is {eps}")


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
    wide = min(1024, max(16, triton.next_power_of_2(triton.cdiv(N, 8 * PROGRAMS))))
    second = {"ROWS": 2048 // wide, "COLUMNS": wide, "num_warps": 8}
    second |= {"launch_pdl": True} if EARLY else {}
    for constants in (first, second):
        constants |= {"CENTER": bias is not None, "EARLY": EARLY}
    numbers = *(t.stride(0) if t.ndim == 2 else N for t in (x, g)), M, N
    first = Launch(backward_kernel, (programs * share,), numbers, first)
    second = Launch(sums_kernel, (triton.cdiv(N, wide),), (programs, N), second)
    return first, second, (2 if bias else 1, programs, N)


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
        if torch.is_grad_enabled():  # create_graph=True, but there is no second derivative
            return torch.autograd.function.once_differentiable(Norm.backward)(ctx, g)
        x, weight, stats = ctx.saved_tensors
        plan = PLANS.get((backward_plan, ctx.bias, key_of(g, x, weight)))
        if plan is None:
            g, x, weight = readable(g), readable(x), readable(weight)
            plan = made(backward_plan, ctx.bias, g, x, weight)
        first, second, shape = plan
        dx, dw, sums = torch.empty_like(x), torch.empty_like(weight), stats.new_empty(shape)
        db = torch.empty_like(weight, dtype=ctx.bias) if ctx.bias else None
        first(x, g, weight, stats, dx, sums)
        second(sums, dw, db)
        return None, dx, dw, *((db,) if ctx.bias else ())


def library_norm(eps, x, *parameters):
    """Return the norm as PyTorch computes it."""
    dtype = reduce(torch.promote_types, [t.dtype for t in (x, *parameters)])
    norm = functional.layer_norm if len(parameters) == 2 else functional.rms_norm
    return norm(x.to(dtype), x.shape[-1:], *[t.to(dtype) for t in parameters], eps=eps).to(x.dtype)


def normalize(eps, *tensors):
    """Return the norm of *tensors*: x, weight and, for layer norm, bias."""
    if torch.compiler.is_compiling():
        return not_compiled(eps, *tensors)
    try:
        plan = PLANS.get((forward_plan, (eps, type(eps)), key_of(*tensors)))
    except (AttributeError, TypeError):  # no tensors, or an eps that cannot be in a key
        plan = None
    if plan is None:
        check_arguments(eps, *tensors)
        if not 0 < tensors[0].shape[-1] <= 16384 or not tensors[0].numel():
            return library_norm(eps, *tensors)
        tensors = [readable(t) for t in tensors]
        plan = made(forward_plan, (eps, type(eps)), *tensors)
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return Norm.apply(plan, *tensors)
    return forward(*plan, *tensors)[0]


not_compiled = torch.compiler.disable(normalize)  # torch.compile calls it between its graphs


def layer_norm(x, weight, bias, eps=1e-5):
    """Return the layer norm of *x* along its last dimension, with gradients.

    *x* is a float16, bfloat16 or float32 tensor ``[…, N]`` with any strides, *weight* and *bias*
    ``[N]`` are of any of these dtypes. Raises TypeError or ValueError, naming the argument.
    """
    return normalize(eps, x, weight, bias)


def rms_norm(x, weight, eps=1e-6):
    """Return the RMS norm of *x*; arguments and errors are those of :func:`layer_norm`."""
    return normalize(eps, x, weight)


# %%
# The check compares results and gradients with float64.

# sphinx_gallery_fold = "compares results and gradients with float64"


def check(*tensors):
    """Compare a norm and its gradients with float64: layer norm of three *tensors*."""
    inputs = [t.detach().requires_grad_() for t in tensors]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    y, wanted = normalize(1e-5, *inputs), library_norm(1e-5, *exact)
    g = torch.randn_like(y)
    found = y, *torch.autograd.grad(y, inputs, g)
    right = wanted, *torch.autograd.grad(wanted, exact, g.double())
    for one, other in zip(found, right, strict=True):
        atol = max(2e-5, 2 * torch.finfo(one.dtype).eps) * max(1, other.abs().max().item())
        torch.testing.assert_close(one.double(), other, rtol=0, atol=atol)


leaves = [t.clone().requires_grad_() for t in (x, weight, weight)]
final = torch.autograd.grad(layer_norm(*leaves), leaves, g)
for step in (gradients(x, g, weight, stats, 5, atomic) for atomic in (True, False)):
    torch.testing.assert_close(step, final, atol=1e-3, rtol=1e-4)
cases = [(torch.float16, (2, 3, 65)), (torch.float32, (7, 781)), (torch.float16, (3, 4097))]
cases += [(torch.float16, (4096, 15872)), (torch.bfloat16, (1823, 9217))] * ON_GPU
for dtype, shape in cases * 2:  # the second time with a plan
    x = 1 + 2 * torch.randn(shape, device=DEVICE, dtype=dtype)
    weight, bias = torch.randn(2, shape[-1], device=DEVICE, dtype=dtype)
    check(x, weight), check(x, weight, bias)
print("Both norms and all gradients agree with float64")

# %%
# Timing it
# ---------
#
# 4096 rows of fp16. A copy of as many bytes is the ceiling. ``torch.compile`` is timed at four N.

# sphinx_gallery_fold = "times both norms in both directions, draws the rates, and keeps the rows"
import matplotlib.pyplot as plt
from shared.bench import plot_rates, rows_of, write_calls, write_rows, write_table

SOME = 1024, 2560, 8192, 15872  # with torch.compile, the steps, and as called
NORMS = {"rms": (rms_norm, functional.rms_norm, 1)}
NORMS["layer"] = layer_norm, functional.layer_norm, 2


def calls_of(norm, M, N, compiled=None):
    """Return the {provider: call} of forward and backward, for *M* rows of *N* elements in fp16."""
    ours, library, count = NORMS[norm]
    x, g = torch.randn(2, M, N, device=DEVICE, dtype=torch.float16)
    more = torch.randn(count, N, device=DEVICE, dtype=torch.float16)
    leaf, *leaves = (t.clone().requires_grad_() for t in (x, *more))
    forward_calls = {"triton": partial(ours, x, *more), "torch": partial(library, x, (N,), *more)}
    results = {"triton": ours(leaf, *leaves), "torch": library(leaf, (N,), *leaves)}
    if compiled:
        forward_calls["compile"] = partial(compiled, 1e-5, leaf, *leaves)
        results["compile"] = forward_calls["compile"]()
    inputs = {"inputs": (leaf, *leaves), "grad_outputs": g, "retain_graph": True}
    backwards = {name: partial(torch.autograd.grad, y, **inputs) for name, y in results.items()}
    if compiled and count == 2:  # and the steps
        y, stats = torch.empty_like(x), torch.ones(2, M, device=DEVICE)
        one_block = partial(row_kernel[(M,)], BLOCK=triton.next_power_of_2(N), num_warps=8)
        forward_calls["triton, one block"] = partial(one_block, x, *more, y, N, 1e-5)
        steps = partial(gradients, x, g, more[0], stats)
        backwards["triton, atomics"] = partial(steps, M, True)
        backwards["triton, partial sums"] = partial(steps, PROGRAMS, False)
    return forward_calls, backwards


def benchmark(norm, M, sizes):
    """Return the rows (M, N, provider, unit, median, p20, p80) of forward and of backward."""
    rows, compiled = ([], []), torch.compile(library_norm, dynamic=False)
    for N in sizes:
        both = calls_of(norm, M, N, compiled if N in SOME else None)
        for found, calls, transfers in zip(rows, both, (2, 3), strict=True):
            source = torch.empty(transfers * M * N // 2, device=DEVICE, dtype=torch.float16)
            calls["copy"] = partial(torch.empty_like(source).copy_, source)
            called = ("triton", "torch") if N in SOME else ()
            found += rows_of((M, N), calls, "GB/s", transfers * M * N * 2, 20, called)
    return rows


if ON_GPU:
    torch._dynamo.config.recompile_limit = 16  # versions of one function
    torch._functorch.config.donated_buffer = False  # as the graph is kept
    names = {"triton": "triton", "triton, as called": "triton, as called", "torch": "PyTorch"}
    names |= {"compile": "torch.compile", "copy": "copy (ceiling)"}
    shares = {}
    for norm in NORMS:
        rows, calls = benchmark(norm, 4096, range(1024, 16384, 512)), calls_of(norm, 64, 1024)
        for way, found in zip(("forward", "backward"), rows, strict=True):
            write_rows(f"{norm}-norm-{way}.csv", ["M", "N"], found)
            if norm == "layer":
                _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
                plot_rates(ax, [r[1:] for r in found], names, f"Layer norm, {way}, fp16", "N")
        shares |= {f"{norm}_norm": calls[0], f"{norm}_norm backward": calls[1]}
    write_calls(shares)
    values = [(way, "different results", count) for way, count in ANSWERS.items()]
    values += zip(("one pass", "two passes"), ["relative error"] * 2, ERRORS[1000], strict=True)
    write_table("05-layer-norm-values.csv", ["name", "unit", "value"], values)
else:
    print("Without a GPU there is nothing to time.")

# %%
# In the geometric mean, forward is :measured:`forward` times as fast as PyTorch on the GPU, and
# :measured:`called` times as called; backward :measured:`backward` and :measured:`backward_called`.
# ``layer_norm`` without gradients takes :measured:`cpu` µs of the CPU, PyTorch's function
# :measured:`cpu_torch`. Backward takes :measured:`cpu_backward` µs and PyTorch's
# :measured:`cpu_backward_torch`. Of both, autograd itself takes about
# :measured:`06b-attention-backward:autograd` µs, the time of the backward pass of a multiplication.
#
# **The teeth** are the pieces: a slightly longer row needs one more, mostly padding. **PyTorch's
# backward** reads *x* and *g* a second time, for the gradients of the parameters.
#
# Exercises
# ---------
#
# 1. **Add a residual.** ``add_norm(x, residual, weight, bias)`` returns the norm of the sum and the
#    sum, with gradients. How many transfers does it save? :doc:`Solution <solutions/05-residual>`.
# 2. **Group norm.** ``group_norm(x, groups, weight, bias)`` takes its mean over a group of channels
#    and all their pixels. Which kernel is it nearly? :doc:`Solution <solutions/05-group-norm>`.
# 3. **Dropout fused in.** ``dropped_layer_norm(x, weight, bias, p, seed)`` drops elements with a
#    seed. What does its backward pass need? :doc:`Solution <solutions/05-dropout>`.
#
# References
# ----------
#
# * J. L. Ba, J. R. Kiros, G. E. Hinton: *Layer normalization*, https://arxiv.org/abs/1607.06450
# * B. Zhang, R. Sennrich: *Root mean square layer normalization*, https://arxiv.org/abs/1910.07467
