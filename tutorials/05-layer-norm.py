"""
Layer normalization
===================

Every block of a transformer begins by bringing each row of its input to mean 0 and deviation 1.
Forward, that is softmax with other sums. Backward is something new: two of three results are sums
**over all rows**, and rows belong to different programs. How programs add up something together,
fast and with the same result every time, is what this page is about.

You will build ``layer_norm(x, weight, bias)`` and its shorter sibling ``rms_norm(x, weight)``, both
with their gradients, and learn

* why the variance takes two passes over a row, and why the second one is free;
* what a backward pass needs, what to keep for it and what to compute again;
* to add up over programs, with atomic additions or in two stages, and which gives the same bits
  twice;
* what a *persistent* program can keep in registers that others have to write;
* what share of a copy's speed is possible, and what to do with rows that do not fit.

You should know :doc:`02-fused-softmax` (rows, strides, warps, occupancy) and how
:doc:`04-low-memory-dropout` gives a kernel a backward pass.

.. ladder::
"""

# %%

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_fold_output = True
# sphinx_gallery_thumbnail_number = 3
# sphinx_gallery_level = "transformer"
import math
import sys  # for shared/
from functools import cache, partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.measuring import geometric_mean, measure, print_ratios, rates, significant, write_rows
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%

# sphinx_gallery_fold = "brings the ladder of steps, the claims and the styles of curves"
from shared.ahead import compile_ahead
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.plotting import CEILING, COMPILE, OTHER, OURS, TORCH, plot_rates

# %%

# sphinx_gallery_fold = "imports Triton, and asks the GPU for its size"
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LONGEST = 16384  # elements of a row that a program can hold
PROGRAMS = 4  # that run at a time; on a GPU, one for each multiprocessor
SHARED_BYTES = 2**16  # of shared memory that a program can have
if ON_GPU:
    gpu = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    PROGRAMS, SHARED_BYTES = gpu["multiprocessor_count"], gpu["max_shared_mem"]
# Whether a kernel can be launched before the one that it needs has ended.
EARLY = DEVICE.type == "cuda" and not torch.version.hip
EARLY = EARLY and torch.cuda.get_device_capability(DEVICE) >= (9, 0)

# %%
# What is computed, and what it must cost
# ---------------------------------------
#
# Layer norm subtracts from a row :math:`x` its mean :math:`\mu`, divides by the root of its
# variance :math:`\sigma^2`, then scales and shifts each column by parameters that are learned:
#
# .. math::
#
#     \hat{x}_j = \frac{x_j - \mu}{\sqrt{\sigma^2 + \varepsilon}}, \qquad
#     y_j = \hat{x}_j w_j + b_j, \qquad
#     \mu = \frac{1}{N} \sum_j x_j, \qquad
#     \sigma^2 = \frac{1}{N} \sum_j (x_j - \mu)^2
#
# (The small number :math:`\varepsilon` is for rows whose elements are all equal.) **RMS norm**
# leaves out the mean and the shift: it divides by the root of the mean square. Many language models
# have changed over to it, since it trains as well.

# sphinx_gallery_fold = "computes both norms with PyTorch, one operation at a time"


def layer_norm_reference(x, weight, bias, eps=1e-5):
    """Return the layer norm of each row of *x*, one operation at a time."""
    centered = x - x.mean(dim=-1, keepdim=True)
    variance = (centered * centered).mean(dim=-1, keepdim=True)
    return centered * (variance + eps).rsqrt() * weight + bias


def rms_norm_reference(x, weight, eps=1e-6):
    """Return the RMS norm of each row of *x*, one operation at a time."""
    return x * ((x * x).mean(dim=-1, keepdim=True) + eps).rsqrt() * weight


# %%
# Count what cannot be avoided. **Forward**: read *x*, write *y*, two transfers of *MN* elements;
# the 2\ *N* parameters are nothing beside them. **Backward**: read *x* and the gradient of *y*,
# write the gradient of *x*: three. Ten operations an element take less time than that. So the
# ceiling is a copy's speed, and all rates on this page count these two or three transfers, for
# everybody.
#
# Step 1: one row a program
# -------------------------
#
# The row is loaded once, stays in registers, and both sums are taken of the registers.


@triton.jit
def row_kernel(x_ptr, w_ptr, b_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    """Normalize one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= N
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centered = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=0) / N + eps)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * N + cols, centered * rstd * w + b, mask=mask)


def layer_norm_by_rows(x, weight, bias, eps=1e-5):
    """Return the layer norm of each row of the contiguous matrix *x* (a step on our way)."""
    M, N = x.shape
    y = torch.empty_like(x)
    row_kernel[(M,)](x, weight, bias, y, N, eps, BLOCK=triton.next_power_of_2(N))
    return y


x, weight, bias = (torch.randn(shape, device=DEVICE) for shape in ((3, 5), 5, 5))
torch.testing.assert_close(
    layer_norm_by_rows(x, weight, bias), functional.layer_norm(x, (5,), weight, bias)
)
print("layer_norm_by_rows agrees with PyTorch")

# %%
# One line differs from what you would write first: ``tl.where``. The padding is filled with 0,
# which is right for the first sum. But then the mean is subtracted *also from the padding*, which
# becomes :math:`-\mu` and would be counted in the second sum. (``rstd`` is short for reciprocal
# standard deviation: one root and one division for a row, and multiplications for its elements.)
#
# Why the variance takes two passes
# ---------------------------------
#
# A formula from school saves a pass: :math:`\sigma^2 = \overline{x^2} - \mu^2`. **Do not use it.**
# Where the mean is large against the deviation, two large numbers that agree in most of their
# digits are subtracted, and what is left is their rounding errors: *catastrophic cancellation*.
#
# A third way is for rows that cannot be kept: take mean :math:`\mu_p` and sum of squared deviations
# :math:`S_p` of one piece after the other, in two passes over the piece, and combine them. With
# :math:`\delta = \mu_p - \mu`, and *n* elements before a piece of *p*:
#
# .. math::
#
#     \mu' = \mu + \delta \, \frac{p}{n + p}, \qquad
#     S' = S + S_p + \delta^2 \, \frac{n p}{n + p}
#
# Here is what each makes of the variance of rows with a deviation of 1 and larger and larger means,
# in fp32, against float64 from the same numbers.

# sphinx_gallery_fold = "combines the variances of pieces"
# sphinx_gallery_show = "one_pass, two_passes"


def one_pass(x):
    """Return the variance of each row as the mean square less the square of the mean."""
    return (x * x).mean(dim=1) - x.mean(dim=1) ** 2


def two_passes(x):
    """Return the variance of each row as the mean of the squared deviations."""
    return ((x - x.mean(dim=1, keepdim=True)) ** 2).mean(dim=1)


def combined(x, piece=1024):
    """Return the variance of each row, from means and deviations of its pieces."""
    mean, squares = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for n in range(0, x.shape[1], piece):
        part = x[:, n : n + piece]
        p = part.shape[1]
        delta = part.mean(dim=1) - mean
        mean = mean + delta * (p / (n + p))
        squares = squares + two_passes(part) * p + delta**2 * (n * p / (n + p))
    return squares / x.shape[1]


# %%

# sphinx_gallery_fold = "computes the errors and plots them"


def variance_errors(ways, means, rows=64, N=8192):
    """Return {name of the way: the largest relative error of the variance, for each mean}."""
    noise = torch.randn(rows, N, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    errors = {name: [] for name in ways}
    for mean in means:
        x = noise + mean
        exact = x.double().var(dim=1, correction=0)
        for name, way in ways.items():
            errors[name].append(((way(x).double() - exact).abs() / exact).max().item())
    return errors


def plot_errors(errors, means):
    """Draw the error of each way over the mean."""
    styles = {"one pass": TORCH, "two passes": OURS, "combined pieces": OTHER}
    fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
    for name, values in errors.items():
        ax.loglog(means, values, label=name, markersize=5, **styles[name])
    ax.axhline(1, color="#444444", linewidth=1)
    ax.text(means[0], 1.5, "nothing is right any more", va="bottom", fontsize=12)
    ax.set(xlabel="mean / deviation", ylabel="relative error of σ²")
    ax.set(title="Error of the variance of 8192 numbers in fp32", ylim=(1e-9, 1e3))
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center", ncols=3)
    plt.show()


means = [10.0**k for k in range(6)]
ways = {"one pass": one_pass, "two passes": two_passes, "combined pieces": combined}
errors = variance_errors(ways, means)
plot_errors(errors, means)

# %%
# The error of one pass grows with the *square* of the mean. At a thousand times the deviation it is
# beyond any use, and a little later the "variance" can come out negative, and its root as NaN. Two
# passes hold, and cost no byte, since the second one reads registers. They cost one more reduction,
# for which the warps of a program wait for one another.
#
# Step 2: a row in pieces
# -----------------------
#
# ``BLOCK`` is a power of two: a row of 4608 is padded to 8192, which wastes registers and
# instructions, though no bytes. And a block that is turned into fp32 as a whole takes twice the
# registers that the fp16 did.
#
# So the row is cut into a few **pieces** of equal length, as many as it needs, which are kept as
# they were loaded and turned into fp32 one by one, where they are used. Triton has no arrays of
# blocks, but it has Python's **tuples**: ``xs = xs + (x,)`` appends one. ``tl.static_range`` is a
# loop that is unrolled while the kernel is compiled, so that each turn knows its *i* as a constant,
# as a place in a tuple must be. Pieces are added up elementwise, for one reduction at the end: one
# for each piece would have the warps wait for one another each time.
#
# Three more things come along: short rows share a program, and strides make it right for any view,
# as in :doc:`02-fused-softmax`; and with ``CENTER=False`` some lines are not compiled, and what
# remains is RMS norm.

# sphinx_gallery_difference = "row_kernel"


@triton.jit
def forward_kernel(
    x_ptr, x_row_stride, x_col_stride, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, M, N, eps,
    CENTER: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Normalize ROWS rows of up to PIECE * PIECES elements."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    cols = tl.arange(0, PIECE)[None, :]  # [1, PIECE]
    xs = ()
    mean = tl.zeros([ROWS, 1], tl.float32)
    total = tl.zeros([ROWS, PIECE], tl.float32)
    for i in tl.static_range(PIECES):
        mask = (rows < M) & (i * PIECE + cols < N)
        offsets = rows * x_row_stride + (i * PIECE + cols).to(tl.int64) * x_col_stride
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        xs = xs + (x,)
        total += x.to(tl.float32)
    if CENTER:
        mean = tl.sum(total, axis=1, keep_dims=True) / N  # [ROWS, 1]
        tl.store(mean_ptr + rows, mean, mask=rows < M)
    total = tl.zeros([ROWS, PIECE], tl.float32)
    for i in tl.static_range(PIECES):
        centered = xs[i].to(tl.float32) - mean
        if CENTER and i == PIECES - 1:  # only the last piece has padding
            centered = tl.where(i * PIECE + cols < N, centered, 0.0)
        total += centered * centered
    rstd = tl.rsqrt(tl.sum(total, axis=1, keep_dims=True) / N + eps)
    tl.store(rstd_ptr + rows, rstd, mask=rows < M)
    for i in tl.static_range(PIECES):
        mask = i * PIECE + cols < N
        w = tl.load(w_ptr + i * PIECE + cols, mask=mask, eviction_policy="evict_last")
        y = (xs[i].to(tl.float32) - mean) * rstd * w.to(tl.float32)
        if CENTER:
            b = tl.load(b_ptr + i * PIECE + cols, mask=mask, eviction_policy="evict_last")
            y += b.to(tl.float32)
        tl.store(y_ptr + rows * N + i * PIECE + cols, y, mask=(rows < M) & mask)


# %%
# ``evict_last`` is a hint to the caches: the weights should be the last to go, for the next program
# on the same multiprocessor wants them again, and *x* nobody wants again.
#
# How many pieces, rows and warps? Small pieces leave less padding, and large ones are fewer: they
# are eighths of a power of two, or quarters where all eight of those would be needed. Eight
# elements of a piece for each thread are one load of 16 bytes in fp16. Short rows share a program
# until it has 2048 elements.

# sphinx_gallery_fold = "chooses pieces, rows and warps by the length of a row"


@cache
def forward_plan(N):
    """Return (rows a program, piece, number of pieces, number of warps) for rows of *N*."""
    block = max(128, triton.next_power_of_2(N))
    piece = block // 2
    if block > 2048:
        piece = max(1024, block // 8 if 0.875 * block >= N else block // 4)
    pieces = triton.cdiv(N, piece)
    rows = max(1, 2048 // block)
    warps = max(1, rows * piece // (512 if rows > 1 else 256))
    if (piece, pieces) in ((2048, 5), (2048, 7), (4096, 4)):
        warps //= 2  # each thread holds more, and so more programs fit
    return rows, piece, pieces, warps


table = [(N, *forward_plan(N)) for N in (3, 781, 1024, 4096, 4608, 9216, 15873)]
print(tabulate(table, ["N", "rows", "piece", "pieces", "warps"]))

# %%
# What the backward pass needs
# ----------------------------
#
# Let :math:`g` be the gradient of the loss with respect to :math:`y`. The parameters act on every
# row alike, so their gradients add up over the rows:
#
# .. math::
#
#     \frac{\partial L}{\partial b_j} = \sum_{\text{rows}} g_j, \qquad
#     \frac{\partial L}{\partial w_j} = \sum_{\text{rows}} g_j \hat{x}_j
#
# The gradient of *x* stays within a row. Were the mean and the deviation constants, it would be
# :math:`w_j g_j / \sigma`. But they are not: add the same number to all of *x*, or multiply
# :math:`x - \mu` by a factor, and :math:`y` stays as it is. So the loss cannot change in these two
# directions, and whatever of :math:`wg` points in them has to go:
#
# .. math::
#
#     \frac{\partial L}{\partial x_j} = \frac{1}{\sigma} \Bigl( w_j g_j - \overline{wg} -
#     \hat{x}_j \, \overline{w g \hat{x}} \Bigr)
#
# A bar is the mean over the row. RMS norm has no shift to take out: the first bar is missing.
#
# So the backward pass needs *x*, *g*, *w*, and :math:`\mu` and :math:`1 / \sigma` of each row. What
# should the forward pass keep?
#
# * *x* costs nothing: whoever computed it holds it anyway. (*y* would do, too, for :math:`\hat{x} =
#   (y - b) / w`, but not where a weight is zero.)
# * :math:`\hat{x}` would save two operations an element, and cost a tensor of the size of *x*.
# * :math:`\mu` and :math:`1 / \sigma` could be computed again: no bytes, but two more reductions,
#   one after the other, before the next two can begin. Kept, they are two numbers a row. We keep
#   them.
#
# Step 3: the gradient of a row
# -----------------------------
#
# Again one row a program, and two reductions, which do not wait for one another. The sums over the
# rows are left to PyTorch, in ``backward_by_rows``.

# sphinx_gallery_fold = "launches it, and adds up the rows with PyTorch"
# sphinx_gallery_show = "row_gradient_kernel"


@triton.jit
def row_gradient_kernel(
    x_ptr, g_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, N, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute the gradient of one row of x."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    normal = (x - tl.load(mean_ptr + row)) * rstd
    wg = w * g
    dx = wg - tl.sum(wg, axis=0) / N - normal * (tl.sum(wg * normal, axis=0) / N)
    tl.store(dx_ptr + row * N + cols, dx * rstd, mask=mask)


def backward_by_rows(x, g, weight, mean, rstd):
    """Return the gradients of x, weight and bias; the latter two by PyTorch operations."""
    M, N = x.shape
    dx = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    row_gradient_kernel[(M,)](x, g, weight, mean, rstd, dx, N, BLOCK=block, num_warps=8)
    g = g.float()
    normal = (x - mean[:, None]) * rstd[:, None]
    return dx, (g * normal).sum(dim=0).to(weight.dtype), g.sum(dim=0).to(weight.dtype)


# %%
# (No ``tl.where`` repairs the padding of ``normal``: in the only reduction that it takes part
# in, it meets the padding of :math:`wg`, which is 0.)
#
# Step 4: adding up with atomics
# ------------------------------
#
# A program that holds a row of *g* and of :math:`\hat{x}` holds what its row contributes to the
# other two gradients. It could add that to two vectors in memory. But another program may be adding
# to the same element: both read the old sum, both add, both write, and one contribution is lost. An
# **atomic** addition is one that nothing can come between: the L2 cache, which is shared by all,
# does the adding. The kernel gets two lines more::
#
#     tl.atomic_add(dw_ptr + cols, g * normal, mask=mask, sem="relaxed")
#     tl.atomic_add(db_ptr + cols, g, mask=mask, sem="relaxed")

# sphinx_gallery_fold = "is the whole kernel of step 4, and its launcher"
# sphinx_gallery_difference = "row_gradient_kernel"


@triton.jit
def atomic_kernel(
    x_ptr, g_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, N, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute the gradient of one row of x, and add the row's part to dw and db."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    normal = (x - tl.load(mean_ptr + row)) * rstd
    wg = w * g
    dx = wg - tl.sum(wg, axis=0) / N - normal * (tl.sum(wg * normal, axis=0) / N)
    tl.store(dx_ptr + row * N + cols, dx * rstd, mask=mask)
    tl.atomic_add(dw_ptr + cols, g * normal, mask=mask, sem="relaxed")
    tl.atomic_add(db_ptr + cols, g, mask=mask, sem="relaxed")


def backward_with_atomics(x, g, weight, mean, rstd):
    """Return the gradients of x, weight and bias; all rows are added up by atomic additions."""
    M, N = x.shape
    dx = torch.empty_like(x)
    dw, db = torch.zeros((2, N), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(N)
    atomic_kernel[(M,)](x, g, weight, mean, rstd, dx, dw, db, N, BLOCK=block, num_warps=8)
    return dx, dw.to(weight.dtype), db.to(weight.dtype)


# %%
# That is right. But count: each row makes 2\ *N* additions of 4 bytes in the L2 cache, which for
# fp16 is more than all that the row has to move otherwise, and all rows queue for the same 2\ *N*
# addresses. And the last bits of a sum of floating-point numbers depend on the order of the
# additions, which is whatever order the programs happen to run in. Let us count the different
# answers to the same input. (The interpreter runs programs one after the other: one answer.)

# sphinx_gallery_fold = "counts the different results of one function"


def different_results(function, times=20 if ON_GPU else 3):
    """Return how many different gradients of the weight *function* gives in some calls."""
    first = [function()[1]]
    for _ in range(times - 1):
        result = function()[1]
        if not any(torch.equal(result, other) for other in first):
            first.append(result)
    return len(first)


# %%

torch.manual_seed(0)
x, g = torch.randn(2, 2048 if ON_GPU else 8, 1024, device=DEVICE)
weight = torch.randn(1024, device=DEVICE)
mean, rstd = x.mean(dim=1), (x.var(dim=1, correction=0) + 1e-5).rsqrt()
answers = different_results(partial(backward_with_atomics, x, g, weight, mean, rstd))
print(f"Gradients of the weight with atomics, run again and again: {answers} different")

# %%
# Networks train well with such noise. But two runs that ought to be the same drift apart, and
# whoever hunts a bug by comparing them hunts ghosts. A **lock** around each sum, as some kernels
# have it, makes programs wait for one another, and the order is as random.
#
# Step 5: partial sums in two stages
# ----------------------------------
#
# The remedy is to launch fewer programs than there are rows. A **persistent** program is one that
# stays: instead of one tile it works on every *P*-th, *P* being the number of programs, here one
# for each multiprocessor. What it adds up meanwhile stays **in its registers**, for as long as it
# lives. At its end it stores its partial sums, 2\ *N* numbers, in a row of its own, where it is in
# nobody's way. A second, small kernel adds up the *P* rows.
#
# The order of all additions is fixed by *M* and *P*: the same bits every time. And the partial sums
# are few: a row for each program. Here are twelve rows of a matrix, with four programs:

# sphinx_gallery_fold = "draws which program adds up what"


def draw_partial_sums(rows=12, programs=4):
    """Draw the rows of each program, its row of partial sums, and the second stage."""
    colors = ["#cfe3f1", "#f4b183", "#8fb996", "#d9c7e8"]
    ax = plt.subplots(figsize=(7, 4.2), layout="constrained")[1]
    style = {"ha": "center", "va": "center", "fontsize": 12}
    tall = rows / (programs + 1)
    for row in range(rows):
        who = row % programs
        ax.add_patch(plt.Rectangle((0, row), 4, 0.86, facecolor=colors[who], edgecolor="#444444"))
        ax.text(2, row + 0.43, f"program {who}, turn {row // programs}", **style)
    for who in range(programs):
        top = (who + 0.5) * tall
        ax.add_patch(plt.Rectangle((6, top), 3, 0.86, facecolor=colors[who], edgecolor="#444444"))
        ax.text(7.5, top + 0.43, f"sums of {who}", **style)
        for row in range(who, rows, programs):
            ends = {"xytext": (4.05, row + 0.43), "xy": (5.95, top + 0.43)}
            ax.annotate("", arrowprops={"arrowstyle": "-", "color": "#999999"}, **ends)
        ends = {"xytext": (9.05, top + 0.43), "xy": (10.9, rows / 2)}
        ax.annotate("", arrowprops={"arrowstyle": "->", "color": "#444444"}, **ends)
    ax.add_patch(plt.Rectangle((11, rows / 2 - 0.43), 2, 0.86, facecolor="white", edgecolor="k"))
    ax.text(12, rows / 2, "dw, db", **style)
    for x, text in ((2, "rows"), (7.5, "first stage"), (12, "second stage")):
        ax.text(x, -0.8, text, **style)
    ax.set(xlim=(-0.1, 13.1), ylim=(rows, -1.4))
    ax.axis("off")
    ax.set_title("Sums stay with a program until it ends")
    plt.show()


draw_partial_sums()

# %%
# In the kernel, sums are made before the loop over tiles, and stored behind it. Pieces and tuples
# are as in step 2; a tuple is written anew at each turn, since a kernel cannot assign to its
# places. Each element of the tile has sums of its own, in registers, and the rows of the tile are
# added up once, at the end. ``WEIGHTS`` says how often a turn loads the weights: not at all, as
# they stay in registers from the beginning; once; or twice, so that they need no registers in
# between. ``STAGES`` and ``EARLY`` are for step 6; here they are 1 and ``False``.

# sphinx_gallery_difference = "row_gradient_kernel"


@triton.jit
def backward_kernel(
    x_ptr, x_row_stride, x_col_stride, g_ptr, g_row_stride, g_col_stride, w_ptr, mean_ptr, rstd_ptr,
    dx_ptr, partial_ptr, M, N, CENTER: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr,
    PIECES: tl.constexpr, WEIGHTS: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every P-th tile of ROWS rows, and partial sums of dw and db."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    cols = tl.arange(0, PIECE)[None, :]  # [1, PIECE]
    kept, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = i * PIECE + cols
        if WEIGHTS == 0:
            kept = kept + (tl.load(w_ptr + place, mask=place < N, other=0.0),)
        dw = dw + (tl.zeros([ROWS, PIECE], tl.float32),)
        db = db + (tl.zeros([ROWS, PIECE], tl.float32),)
    for tile in tl.range(program, tl.cdiv(M, ROWS), programs, num_stages=STAGES):
        rows = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        mean = tl.zeros([ROWS, 1], tl.float32)
        if CENTER:
            mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        xs, gs, ws = (), (), ()
        sum_wg = tl.zeros([ROWS, PIECE], tl.float32)
        sum_wgx = tl.zeros([ROWS, PIECE], tl.float32)
        for i in tl.static_range(PIECES):
            place = i * PIECE + cols
            mask = (rows < M) & (place < N)
            far = place.to(tl.int64)
            x = tl.load(x_ptr + rows * x_row_stride + far * x_col_stride, mask=mask, other=0.0)
            g = tl.load(g_ptr + rows * g_row_stride + far * g_col_stride, mask=mask, other=0.0)
            w = kept[i] if WEIGHTS == 0 else tl.load(w_ptr + place, mask=place < N, other=0.0)
            xs, gs, ws = xs + (x,), gs + (g,), ws + (w,)
            wg = w.to(tl.float32) * g.to(tl.float32)
            sum_wg += wg
            sum_wgx += wg * (x.to(tl.float32) - mean)
        mean_wg = tl.sum(sum_wg, axis=1, keep_dims=True) / N if CENTER else 0.0
        mean_wgx = tl.sum(sum_wgx, axis=1, keep_dims=True) / N * rstd
        new_dw, new_db = (), ()
        for i in tl.static_range(PIECES):
            place = i * PIECE + cols
            g = gs[i].to(tl.float32)
            normal = (xs[i].to(tl.float32) - mean) * rstd
            new_dw, new_db = new_dw + (dw[i] + g * normal,), new_db + (db[i] + g,)
            w = ws[i]
            if WEIGHTS == 2:  # the hint is another one, or both loads would become one
                w = tl.load(w_ptr + place, mask=place < N, other=0.0, eviction_policy="evict_last")
            dx = (w.to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            tl.store(dx_ptr + rows * N + place, dx, mask=(rows < M) & (place < N))
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(PIECES):
        place = i * PIECE + cols
        mine = partial_ptr + tl.cast(program, tl.int64) * N + place
        tl.store(mine, tl.sum(dw[i], axis=0, keep_dims=True), mask=place < N)
        if CENTER:
            mine += tl.cast(programs, tl.int64) * N
            tl.store(mine, tl.sum(db[i], axis=0, keep_dims=True), mask=place < N)


# %%
# The second stage reads the partial sums in tiles that are narrow and high, so that many programs
# share the columns: there is little to do, and what counts is how soon it is over.

# sphinx_gallery_fold = "adds up the partial sums: the second stage"


@triton.jit
def sum_partials_kernel(
    partial_ptr, dw_ptr, db_ptr, P, N, CENTER: tl.constexpr, ROWS: tl.constexpr,
    COLS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Add up the P rows of partial sums, for COLS columns."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]  # [1, COLS]
    dw = tl.zeros([ROWS, COLS], tl.float32)
    db = tl.zeros([ROWS, COLS], tl.float32)
    if EARLY:
        gdc_wait()
    for start in range(0, P, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        mask = (rows < P) & (cols < N)
        dw += tl.load(partial_ptr + rows * N + cols, mask=mask, other=0.0)
        if CENTER:
            db += tl.load(partial_ptr + (P + rows) * N + cols, mask=mask, other=0.0)
    tl.store(dw_ptr + cols, tl.sum(dw, axis=0, keep_dims=True), mask=cols < N)
    if CENTER:
        tl.store(db_ptr + cols, tl.sum(db, axis=0, keep_dims=True), mask=cols < N)


# %%
# Step 6: fetch early
# -------------------
#
# Persistent programs have a weakness: there are few of them, often one for each multiprocessor,
# since their sums fill the registers. While the rows of one are on the way from memory, nobody
# steps in. So it should ask for the *next* rows while it works on these. ``tl.range(…,
# num_stages=4)`` has the compiler arrange that: loads become **asynchronous copies** into shared
# memory, which take no registers and run ahead of the loop, by up to three turns, as far as shared
# memory reaches. That is all there is to write; ``STAGES=1`` is the loop of step 5, and the ladder
# shows the difference.
#
# The second stage can begin early, too. A kernel waits until the one before it has ended, and then
# takes its time to get going. With ``launch_pdl=True`` (programmatic dependent launch, for NVIDIA
# GPUs from Hopper on) it is launched as soon as all programs of the first have called
# ``gdc_launch_dependents``, gets going while they write their sums, and stops at ``gdc_wait`` until
# all of these are written. That is what ``EARLY`` switches on.
#
# Short rows leave registers for two programs on a multiprocessor, each of which works while the
# other one waits; long ones take all that there is.

# sphinx_gallery_fold = "chooses pieces, rows, warps, programs and stages by the length of a row"


@cache
def backward_plan(N, center, x_bytes, w_bytes, stages):
    """Return the constants for rows of *N*, warps, and how many programs a multiprocessor gets."""
    block = max(128, triton.next_power_of_2(N))
    rows, piece, warps, each, weights, deepest = 1, 2048, 8, 1, 0, 4
    if N <= 2048:
        rows, piece, warps, each, deepest = max(2, 2048 // block), block, 4, 2, 3
    elif N <= 5120:
        piece, warps, each, deepest = 1024, 4, 2, 4 if N <= 3072 else 3
    elif 8192 < N <= 14336:
        weights, deepest = 2 if center and N > 10240 else 1, 3
    pieces = triton.cdiv(N, piece)
    constants = {"PIECE": piece, "PIECES": pieces}
    constants |= (
        {"OWN": triton.cdiv(pieces, 2)} if N > 14336 else {"ROWS": rows, "WEIGHTS": weights}
    )
    fetched = each * piece * pieces * (2 * rows * x_bytes + weights * w_bytes)
    constants["STAGES"] = stages_that_fit(fetched, min(stages, deepest))
    return constants, warps, each


def stages_that_fit(fetched, stages):
    """Return *stages*, or as many as shared memory has room for: a turn fetches so many bytes."""
    return max(1, min(stages, 1 + (SHARED_BYTES - 2048) // fetched))


# %%
# Step 7: two programs share a row
# --------------------------------
#
# Count registers. Each element of a row has two sums in fp32, and *x* and *g*, which in fp16 take
# half a register each: three registers an element, before any arithmetic. An NVIDIA multiprocessor
# has 65536. From some 8000 elements on there is no room for the weights, which are then loaded at
# each turn, or even twice; from some 14000 on, the rest does not fit either, and is *spilled* to
# memory at every turn. (RMS norm has one sum, and needs no second load.)
#
# So let **two programs share the columns** of a row. Each reads the whole row, for the two means,
# but keeps only its own half, writes the gradient of that half, and has sums for it alone, which
# leaves room for all of the weights. Both come by at about the same time, so that the second one
# can find the row in the L2 cache. The price is that the arithmetic of the first loop is done
# twice, a good bargain only against many spills. (GPUs from Hopper on can run one program on two
# multiprocessors, with ``num_ctas=2``. On an H200 that took longer: sums over the row cross from
# one to the other, twice a turn, and all warps of both wait.)

# sphinx_gallery_fold = "has the kernel of a half, whose own columns come first"
# sphinx_gallery_difference = "backward_kernel"


@triton.jit
def shared_backward_kernel(
    x_ptr, x_row_stride, x_col_stride, g_ptr, g_row_stride, g_col_stride, w_ptr, mean_ptr, rstd_ptr,
    dx_ptr, partial_ptr, M, N, CENTER: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
    OWN: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute a half of the gradients of every P-th row, OWN of PIECES, and its partial sums."""
    program, programs = tl.program_id(0) // 2, tl.num_programs(0) // 2
    half = tl.program_id(0) % 2
    first = half * (PIECES - OWN)  # of an odd number, both have the one in the middle
    least = half * OWN * PIECE  # but only the first half writes it
    cols = tl.arange(0, PIECE)[None, :]  # [1, PIECE]
    kept, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = (first + i) % PIECES * PIECE + cols  # its own come first
        kept = kept + (tl.load(w_ptr + place, mask=place < N, other=0.0),)
    for _ in tl.static_range(OWN):
        dw = dw + (tl.zeros([1, PIECE], tl.float32),)
        db = db + (tl.zeros([1, PIECE], tl.float32),)
    for number in tl.range(program, M, programs, num_stages=STAGES):
        row = tl.cast(number, tl.int64) + tl.arange(0, 1)[:, None]  # [1, 1]
        rstd = tl.load(rstd_ptr + row)
        mean = tl.zeros([1, 1], tl.float32)
        if CENTER:
            mean = tl.load(mean_ptr + row)
        xs, gs = (), ()
        sum_wg = tl.zeros([1, PIECE], tl.float32)
        sum_wgx = tl.zeros([1, PIECE], tl.float32)
        for i in tl.static_range(PIECES):
            place = (first + i) % PIECES * PIECE + cols
            mask = place < N
            far = place.to(tl.int64)
            x = tl.load(x_ptr + row * x_row_stride + far * x_col_stride, mask=mask, other=0.0)
            g = tl.load(g_ptr + row * g_row_stride + far * g_col_stride, mask=mask, other=0.0)
            if i < OWN:
                xs, gs = xs + (x,), gs + (g,)
            wg = kept[i].to(tl.float32) * g.to(tl.float32)
            sum_wg += wg
            sum_wgx += wg * (x.to(tl.float32) - mean)
        mean_wg = tl.sum(sum_wg, axis=1, keep_dims=True) / N if CENTER else 0.0
        mean_wgx = tl.sum(sum_wgx, axis=1, keep_dims=True) / N * rstd
        new_dw, new_db = (), ()
        for i in tl.static_range(OWN):
            place = (first + i) * PIECE + cols
            g = gs[i].to(tl.float32)
            normal = (xs[i].to(tl.float32) - mean) * rstd
            new_dw, new_db = new_dw + (dw[i] + g * normal,), new_db + (db[i] + g,)
            dx = (kept[i].to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            tl.store(dx_ptr + row * N + place, dx, mask=(place >= least) & (place < N))
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(OWN):
        place = (first + i) * PIECE + cols
        mine = partial_ptr + tl.cast(program, tl.int64) * N + place
        tl.store(mine, dw[i], mask=(place >= least) & (place < N))
        if CENTER:
            mine += tl.cast(programs, tl.int64) * N
            tl.store(mine, db[i], mask=(place >= least) & (place < N))


# %%
# Step 8: when a row does not fit
# -------------------------------
#
# Longer rows are walked through in blocks. **Forward**: one walk for mean and variance, with the
# formula for combined pieces, and one for the output: three transfers and not two, where no cache
# helps.

# sphinx_gallery_fold = "walks along a row twice: for its mean and deviation, and for the output"


@triton.jit
def long_forward_kernel(
    x_ptr, x_row_stride, x_col_stride, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, N, eps,
    CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalize one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    mean = 0.0
    squares = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols.to(tl.int64) * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        if CENTER:
            count = tl.minimum(N - start, BLOCK)
            block_mean = tl.sum(x, axis=0) / count
            share = count / (start + count)  # of the elements seen so far
            delta = block_mean - mean
            mean += delta * share
            squares += delta * delta * share * start
            x = tl.where(mask, x - block_mean, 0.0)
        squares += tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(squares / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols.to(tl.int64) * x_col_stride, mask=mask).to(tl.float32)
        y = (x - mean) * rstd * tl.load(w_ptr + cols, mask=mask).to(tl.float32)
        if CENTER:
            y += tl.load(b_ptr + cols, mask=mask).to(tl.float32)
        tl.store(y_ptr + row * N + cols, y, mask=mask)


# %%
# **Backward**: a first kernel walks along the rows and leaves the two means of each. After that no
# element needs anything of the rest of its row, and the second kernel can cut the matrix into
# *columns*: a program has one block of them, walks down the rows, and its partial sums fit into
# registers however long the rows are. Five transfers instead of three.

# sphinx_gallery_fold = "walks along rows, then down columns: the gradients of rows that do not fit"


@triton.jit
def long_means_kernel(
    x_ptr, x_row_stride, x_col_stride, g_ptr, g_row_stride, g_col_stride, w_ptr, mean_ptr, rstd_ptr,
    means_ptr, M, N, CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the means of wg and of wg times the normalized x, of one row."""
    row = tl.program_id(0).to(tl.int64)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    sum_wg = tl.zeros([BLOCK], tl.float32)
    sum_wgx = tl.zeros([BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = cols < N
        x = tl.load(x_ptr + row * x_row_stride + cols * x_col_stride, mask=mask, other=0.0)
        g = tl.load(g_ptr + row * g_row_stride + cols * g_col_stride, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0)
        wg = w.to(tl.float32) * g.to(tl.float32)
        sum_wg += wg
        sum_wgx += wg * (x.to(tl.float32) - mean) * rstd
    tl.store(means_ptr + row, tl.sum(sum_wgx, axis=0) / N)
    if CENTER:
        tl.store(means_ptr + M + row, tl.sum(sum_wg, axis=0) / N)


@triton.jit
def long_backward_kernel(
    x_ptr, x_row_stride, x_col_stride, g_ptr, g_row_stride, g_col_stride, w_ptr, mean_ptr, rstd_ptr,
    means_ptr, dx_ptr, partial_ptr, M, N, CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute a block of columns of the gradient of x, and its partial sums."""
    program, programs = tl.program_id(1), tl.num_programs(1)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    mask = cols < N
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for number in range(program, M, programs):
        row = tl.cast(number, tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + cols * x_col_stride, mask=mask).to(tl.float32)
        g = tl.load(g_ptr + row * g_row_stride + cols * g_col_stride, mask=mask).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = (x - tl.load(mean_ptr + row)) * rstd
        dw += g * normal
        db += g
        dx = w * g - normal * tl.load(means_ptr + row)
        if CENTER:
            dx -= tl.load(means_ptr + M + row)
        tl.store(dx_ptr + row * N + cols, dx * rstd, mask=mask)
    partial_ptr += tl.cast(program, tl.int64) * N
    tl.store(partial_ptr + cols, dw, mask=mask)
    if CENTER:
        tl.store(partial_ptr + tl.cast(programs, tl.int64) * N + cols, db, mask=mask)


# %%
# The launchers
# -------------
#
# Both norms are one autograd function; without a bias it is RMS norm.

# sphinx_gallery_fold = "checks the arguments"

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_arguments(x, eps, **parameters):
    """Raise TypeError or ValueError where the norms of this page cannot take their arguments."""
    for name, t in (("x", x), *parameters.items()):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in DTYPES:
            raise TypeError(
                f"{name} must be float16, bfloat16 or float32, but its dtype is {t.dtype}"
            )
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
    if x.ndim == 0:
        raise ValueError("x must have a dimension to normalize, but is a single number")
    for name, t in parameters.items():
        if t.shape != x.shape[-1:]:
            raise ValueError(
                f"{name} must have the shape of a row of x, {tuple(x.shape[-1:])}, "
                f"but has {tuple(t.shape)}"
            )
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise TypeError(f"eps must be a number, but is a {type(eps).__name__}")
    if not 0 <= eps < math.inf:  # this refuses NaN as well
        raise ValueError(f"eps must be finite and not negative, but is {eps}")


# %%

# sphinx_gallery_fold = "launches either pass; backward plans programs, stages and partial sums"
# sphinx_gallery_show = "launch_forward"


def launch_forward(x, weight, bias, eps):
    """Return y, and the mean and the reciprocal deviation of each row, for a matrix *x*."""
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    mean, rstd = torch.empty((2, M), dtype=torch.float32, device=x.device)
    args = (x, *x.stride(), weight, bias, y, mean, rstd)
    center = bias is not None
    if M == 0 or N == 0:
        pass
    elif N > LONGEST:
        long_forward_kernel[(M,)](*args, N, eps, CENTER=center, BLOCK=4096, num_warps=8)
    else:
        rows, piece, pieces, warps = forward_plan(N)
        forward_kernel[(triton.cdiv(M, rows),)](
            *args, M, N, eps, CENTER=center, ROWS=rows, PIECE=piece, PIECES=pieces, num_warps=warps
        )
    return y, mean, rstd


def launch_backward(x, g, weight, bias, mean, rstd, stages=4):
    """Return the gradients of x, of the weight and of the bias, for the gradient *g* of y."""
    M, N = x.shape
    dx = torch.empty((M, N), dtype=x.dtype, device=x.device)
    dw, db = torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
    if M == 0 or N == 0:  # sums over no rows
        return dx, dw.zero_(), None if bias is None else db.zero_()
    args = (x, *x.stride(), g, *g.stride(), weight, mean, rstd)
    center = bias is not None
    early = EARLY and stages > 1 and N <= LONGEST
    if N > LONGEST:
        means = torch.empty((2, M), dtype=torch.float32, device=x.device)
        long_means_kernel[(M,)](*args, means, M, N, CENTER=center, BLOCK=4096, num_warps=8)
        programs = min(M, PROGRAMS)
        sums = torch.empty((2, programs, N), dtype=torch.float32, device=x.device)
        grid = (triton.cdiv(N, 1024), programs)
        long_backward_kernel[grid](
            *args, means, dx, sums, M, N, CENTER=center, BLOCK=1024, num_warps=4
        )  # fmt: skip
    else:
        sizes = x.element_size(), weight.element_size()
        constants, warps, each = backward_plan(N, center, *sizes, stages)
        kernel, share = backward_kernel, 1
        if "OWN" in constants:
            kernel, share = shared_backward_kernel, 2
        tiles = triton.cdiv(M, constants.get("ROWS", 1))
        turns = triton.cdiv(tiles, max(1, PROGRAMS * each // share))
        programs = triton.cdiv(tiles, turns)  # no more than it takes for so many turns
        sums = torch.empty((2, programs, N), dtype=torch.float32, device=x.device)
        kernel[(programs * share,)](
            *args, dx, sums, M, N, CENTER=center, **constants, EARLY=early, num_warps=warps
        )
    cols = min(1024, max(16, triton.next_power_of_2(triton.cdiv(N, 8 * PROGRAMS))))
    sum_partials_kernel[(triton.cdiv(N, cols),)](
        sums, dw, db, programs, N, CENTER=center, ROWS=2048 // cols, COLS=cols, EARLY=early,
        num_warps=8, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return dx, dw, db


# %%
# PyTorch gets to know both directions as in :doc:`04-low-memory-dropout`. What is kept for the
# backward pass: *x* as it is, the weight, and the two numbers of each row. Nothing of the size of
# *x* is new.


class Norm(torch.autograd.Function):
    """Layer norm of the rows of a matrix; without a bias, RMS norm."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Normalize each row, and keep what ``backward`` needs."""
        y, mean, rstd = launch_forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        """Return the gradients of x, weight and bias; eps has none."""
        x, weight, bias, mean, rstd = ctx.saved_tensors
        return *launch_backward(x, g, weight, bias, mean, rstd), None


# %%
# And the two functions that the page is about. Whatever the dimensions before the last one are,
# their rows become those of a matrix.

# sphinx_gallery_fold = "has the rows of any tensor normalized, and the sibling of layer norm"
# sphinx_gallery_show = "layer_norm"


def normalize(x, weight, bias, eps):
    """Return the norm along the last dimension of *x*; the arguments have been checked."""
    N = x.shape[-1]
    rows = x.reshape(math.prod(x.shape[:-1]), N)  # a view where strides allow it, else a copy
    bias = None if bias is None else bias.contiguous()
    return Norm.apply(rows, weight.contiguous(), bias, float(eps)).view(x.shape)


def layer_norm(x, weight, bias, eps=1e-5):
    """Return the layer norm of *x* along its last dimension, as ``functional.layer_norm`` does.

    Args:
        x: float16, bfloat16 or float32 tensor ``[…, N]`` with any strides.
        weight: What each column is multiplied by, ``[N]``; of any of these dtypes.
        bias: What is added to each column, ``[N]``; of any of these dtypes.
        eps: What is added to the variance.

    Returns:
        A contiguous tensor of the shape and dtype of *x*. It has gradients for *x*, *weight* and
        *bias*, the same bits in every run; second derivatives raise RuntimeError.

    Raises:
        TypeError: An argument is no tensor of such a dtype, or *eps* is no number.
        ValueError: Shapes or devices do not fit, or *eps* is negative or not finite.
    """
    check_arguments(x, eps, weight=weight, bias=bias)
    return normalize(x, weight, bias, eps)


def rms_norm(x, weight, eps=1e-6):
    """Return the RMS norm of *x* along its last dimension, as ``functional.rms_norm`` does.

    Args and errors are those of :func:`layer_norm`, without the bias.
    """
    check_arguments(x, eps, weight=weight)
    return normalize(x, weight, None, eps)


# %%
# Is it right?
# ------------
#
# Against float64 from the same numbers. In fp32 the sums over a row and over *M* rows are off by
# some 10⁻⁶ of the sum of the *absolute* values; fp16 and bf16 round the result itself, once. So
# each tensor is allowed an error that is relative to its largest element; the gradient of *x*,
# which is what two subtractions leave, to what it was before them.

# sphinx_gallery_fold = "compares results and gradients with float64"

ALLOWED = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check_close(name, actual, expected, dtype, size=0.0, slack=1):
    """Raise AssertionError where *actual* is off by more than *dtype* allows, relative to *size*.

    Args:
        name: What is compared.
        actual: What our kernels computed.
        expected: The same in float64.
        dtype: The dtype that *actual* must have.
        size: What the error is relative to; at least the largest element of *expected*.
        slack: How many times the usual error is allowed.
    """
    assert actual.shape == expected.shape and actual.dtype == dtype, name
    if expected.numel():
        atol = slack * ALLOWED[dtype] * max(expected.abs().max().item(), size)
        torch.testing.assert_close(
            actual.double(), expected, rtol=0, atol=atol, msg=lambda text: f"{name}: {text}"
        )


def check(x, weight, bias=None, g=None, slack=1):
    """Compare a norm (layer norm where there is a *bias*) and its gradients with float64."""
    parameters = [weight] if bias is None else [weight, bias]
    norm, reference, eps = layer_norm, layer_norm_reference, 1e-5
    if bias is None:
        norm, reference, eps = rms_norm, rms_norm_reference, 1e-6
    inputs = [t.detach().requires_grad_() for t in (x, *parameters)]
    exact = [t.detach().double().requires_grad_() for t in (x, *parameters)]
    y, y_exact = norm(*inputs, eps=eps), reference(*exact, eps=eps)
    check_close("y", y, y_exact.detach(), x.dtype, slack=slack)
    g = torch.randn_like(y) if g is None else g
    found = torch.autograd.grad(y, inputs, g)
    expected = torch.autograd.grad(y_exact, exact, g.double())
    size = 0.0
    if x.numel():
        rows = exact[0].detach()
        rows = rows if bias is None else rows - rows.mean(dim=-1, keepdim=True)
        deviation = ((rows * rows).mean(dim=-1) + eps).sqrt()
        size = ((weight.double() * g.double()).abs().amax(dim=-1) / deviation).max().item()
    for i, name in enumerate(("x", "weight", "bias")[: len(inputs)]):
        t, scale = inputs[i], size if name == "x" else 0.0
        check_close(f"the gradient of {name}", found[i], expected[i], t.dtype, scale, slack)


# %%

# sphinx_gallery_fold = "makes the inputs of all checks: shapes, dtypes, views, a large mean"


def shape_inputs():
    """Return (x, weight, bias) of each shape and dtype to check."""
    half, single = torch.float16, torch.float32
    cases = [(dtype, shape) for dtype in (half, single) for shape in ((5, 1), (3, 781), (2, 3, 65))]
    cases += [(half, shape) for shape in ((1, 4097), (2, 12301), (2, 16385), (0, 5), (5, 0), (9,))]
    if ON_GPU:  # every new shape or dtype may be a kernel to compile, so these are few
        cases = [(half, (4096, 781)), (half, (4096, 15872)), (half, (5, 0)), (single, (2048, 1024))]
        cases += [(torch.bfloat16, (1823, 781)), (single, (9, 2**18))]  # bf16 needs a GPU
    made = []
    for dtype, shape in cases:
        x = 1 + 2 * torch.randn(shape, device=DEVICE, dtype=dtype)
        made.append((x, *torch.randn(2, shape[-1], device=DEVICE, dtype=dtype)))
    return made


def view_inputs():
    """Return (x, weight, bias and, of some, g) whose elements lie apart or differ in dtype."""
    weight, bias = torch.randn(2, 80, device=DEVICE)
    wide = torch.randn(13, 160, device=DEVICE)
    return [
        (wide[:, 7:87], weight, bias),  # row stride 160
        (torch.randn(80, 13, device=DEVICE).T, weight, bias),  # column stride 13
        (torch.randn(4, 80, 3, device=DEVICE).transpose(1, 2), weight, bias),  # three dimensions
        (wide[:, :80], weight, bias, torch.ones((), device=DEVICE).expand(13, 80)),
        (wide[:, :80].half(), weight, bias),
    ]


def step_inputs():
    """Return (x, g, weight, bias, mean, rstd) for the kernels of the steps on the way."""
    made = []
    for N in (1, 781, 4097):
        x, g = torch.randn(2, 7, N, device=DEVICE)
        mean, rstd = x.mean(dim=1), (x.var(dim=1, correction=0) + 1e-5).rsqrt()
        made.append((x, g, *torch.randn(2, N, device=DEVICE), mean, rstd))
    return made


torch.manual_seed(0)
SHAPES, VIEWS, STEP_INPUTS = shape_inputs(), view_inputs(), step_inputs()
FAR = (torch.randn(5, 4096, device=DEVICE) + 1000, *torch.randn(2, 4096, device=DEVICE))

# %%
# Each of these shapes, dtypes and strides may need a kernel of its own, as may each row length of
# the benchmark. All are compiled side by side before anything is checked or timed.

# sphinx_gallery_fold = "has all kernels of this page compiled ahead"
# sphinx_gallery_fold_output = True


SIZES = [512 * i for i in range(2, 32)]  # elements of a row, in the benchmark
SOME = [1024, 2560, 8192, 15872]  # of these, where torch.compile and the steps take part
EPS = {"layer": 1e-5, "rms": 1e-6}


def library_norm(norm, x, weight, bias):
    """Return what PyTorch's own function gives."""
    if norm == "layer":
        return functional.layer_norm(x, weight.shape, weight, bias, EPS[norm])
    return functional.rms_norm(x, weight.shape, weight, EPS[norm])


def parameters_of(norm, inputs):
    """Return those of x, weight and bias that the norm has gradients for."""
    return inputs if norm == "layer" else inputs[:2]


def random_inputs(M, N):
    """Return [x, weight, bias], which ask for gradients, and a gradient of y."""
    x, g = torch.randn(2, M, N, device=DEVICE, dtype=torch.float16)
    weight, bias = torch.randn(2, N, device=DEVICE, dtype=torch.float16)
    return [t.clone().requires_grad_() for t in (x, weight, bias)], g


def compile_library_norm(M):
    """Return ``library_norm`` as ``torch.compile`` makes it for the sizes in SOME."""
    from torch._dynamo import config as dynamo
    from torch._functorch import config as functorch

    dynamo.recompile_limit = 4 * len(SOME)  # of one function: both norms at each size, and more
    functorch.donated_buffer = False  # as the graph is kept, to be run again and again
    function = torch.compile(library_norm, dynamic=False)
    for N in SOME:
        inputs, g = random_inputs(M, N)
        for norm in EPS:
            torch.autograd.grad(function(norm, *inputs), parameters_of(norm, inputs), g)
    return function


def launch_all(x, weight, *biases, g=None):
    """Launch every kernel of a norm for each of the *biases*; RMS norm has None."""
    x = x.reshape(-1, x.shape[-1]) if x.numel() else x
    for b in biases:
        y, mean, rstd = launch_forward(x, weight, b, 1e-5)
        launch_backward(x, y if g is None else g, weight, b, mean, rstd)


def launch_steps(x, g, weight, bias, mean, rstd):
    """Launch the kernels of the steps on the way."""
    layer_norm_by_rows(x, weight, bias)
    backward_by_rows(x, g, weight, mean, rstd)
    backward_with_atomics(x, g, weight, mean, rstd)


def launch_for_benchmark(M, N):
    """Launch every kernel of ours that the benchmark times at the size *N*."""
    x, g = torch.empty((2, M, N), device=DEVICE, dtype=torch.float16)
    weight, bias = torch.empty((2, N), device=DEVICE, dtype=torch.float16)
    launch_all(x, weight, bias, None)
    if N in SOME:
        mean, rstd = torch.empty((2, M), device=DEVICE)
        launch_steps(x, g, weight, bias, mean, rstd)
        launch_backward(x, g, weight, bias, mean, rstd, stages=1)


def try_library_norm():
    """Keep in PEERS what torch.compile makes, if it can."""
    try:
        PEERS.append(compile_library_norm(4096))
    except Exception as error:  # whatever it is: we can do without this peer, and say so
        print(f"torch.compile is not available: {type(error).__name__}: {error}"[:200])


PEERS = []
compile_ahead([
    *(partial(launch_for_benchmark, 4096, N) for N in SIZES),
    *(partial(launch_all, *case, None) for case in SHAPES),
    *(partial(launch_all, *case[:3], g=case[3] if case[3:] else None) for case in (*VIEWS, FAR)),
    *(partial(launch_steps, *case) for case in STEP_INPUTS),
    try_library_norm,
])  # fmt: skip

# %%
# The shapes first, then views, whose rows or columns lie apart in memory; a gradient that autograd
# expands from one number; parameters in fp32 beside activations in fp16, as in mixed precision; and
# the rows that one pass got wrong.

# sphinx_gallery_fold = "checks all of them"

for x, weight, bias in SHAPES:
    check(x, weight, bias)
    check(x, weight)
print(f"Both norms and all gradients agree with float64: {len(SHAPES)} shapes and dtypes")
for view in VIEWS:
    check(*view)
check(*FAR, slack=10)  # a mean of 1000 fp32 knows to some 10⁻⁴
print("So they do for views, expanded gradients, mixed dtypes, and a mean of 1000 deviations")

# %%
# The same bits, every time? The gradients of both norms, again and again, and what they refuse:

# sphinx_gallery_fold = "counts the different gradients of the final kernels"


def gradients_again(norm, *inputs, g):
    """Return a function that computes all gradients of ``norm(*inputs)``, the weight's second."""
    inputs = [t.detach().requires_grad_() for t in inputs]
    y = norm(*inputs)
    return partial(torch.autograd.grad, y, inputs, g, retain_graph=True)


# %%

x, g = torch.randn(2, 2048 if ON_GPU else 8, 1024, device=DEVICE)
weight, bias = torch.randn(2, 1024, device=DEVICE)
same = [
    different_results(gradients_again(layer_norm, x, weight, bias, g=g)),
    different_results(gradients_again(rms_norm, x, weight, g=g)),
]
print(f"Gradients of the weight with partial sums: {same[0]} and, of RMS norm, {same[1]}")
assert same == [1, 1], "the order of the additions is fixed"

# %%

# sphinx_gallery_fold = "calls layer_norm with wrong arguments"

for wrong in ({"x": [1.0]}, {"x": x.double()}, {"weight": bias[:5]}, {"eps": -1.0}):
    try:
        layer_norm(**{"x": x, "weight": weight, "bias": bias} | wrong)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("layer_norm should have refused this")

# %%
# The steps on the way are going to be timed, so they are checked as well:

# sphinx_gallery_fold = "checks the kernels of steps 1, 3 and 4"

backward_steps = (backward_by_rows, backward_with_atomics)
for x, g, weight, bias, mean, rstd in STEP_INPUTS:
    inputs = [t.double().requires_grad_() for t in (x, weight, bias)]
    y = layer_norm_reference(*inputs)
    check_close("step 1", layer_norm_by_rows(x, weight, bias), y.detach(), x.dtype)
    expected = torch.autograd.grad(y, inputs, g.double())
    for step in backward_steps:
        for actual, wanted in zip(step(x, g, weight, mean, rstd), expected, strict=True):
            size = 300.0 if x.shape[1] == 1 else 0.0
            check_close(step.__name__, actual, wanted, x.dtype, size=size)
print("The kernels of steps 1, 3 and 4 agree with float64, too")

# %%
# The benchmark
# -------------
#
# 4096 rows of fp16, of 1024 to 15872 elements, forward and backward, both norms. The others:
#
# * **torch** is what a user calls: ``functional.layer_norm`` and ``functional.rms_norm``;
# * **compile** is ``torch.compile`` of the same functions, in its default mode, for each size by
#   itself (``dynamic=False``), so that it knows *N*. That takes long, so it takes part at some
#   sizes;
# * **copy** is the ceiling, ``x.clone()``, with the rate of the bytes that *it* moves.
#
# Backward is ``torch.autograd.grad`` for everybody, with gradients for *x* and all parameters. Its
# Python is not timed: the CPU queues the call while the GPU reads a gigabyte to flush the cache.

# sphinx_gallery_fold = "times both norms in both directions, all providers in turns"


def forward_calls(norm, inputs):
    """Return {provider: a function of no arguments that computes y}."""
    ours = {"layer": layer_norm, "rms": rms_norm}[norm]
    calls = {
        "triton": partial(ours, *parameters_of(norm, inputs)),
        "torch": partial(library_norm, norm, *inputs),
        "copy": inputs[0].detach().clone,
    }
    if PEERS and inputs[0].shape[1] in SOME:
        calls["compile"] = partial(PEERS[0], norm, *inputs)
    return calls


def backward_calls(norm, forward, inputs, g):
    """Return {provider: a function of no arguments that computes the gradients}."""
    calls = {"copy": forward["copy"]}
    for provider in forward.keys() - {"copy"}:
        wanted = parameters_of(norm, inputs)
        calls[provider] = partial(
            torch.autograd.grad, forward[provider](), wanted, g, retain_graph=True
        )
    return calls


def step_calls(inputs, g):
    """Return ({step: forward}, {step: backward}) of the steps on the way to layer norm."""
    x, weight, bias = (t.detach() for t in inputs)
    _, mean, rstd = launch_forward(x, weight, bias, EPS["layer"])
    state = (x, g, weight, mean, rstd)
    waiting = partial(launch_backward, x, g, weight, bias, mean, rstd, stages=1)
    return (
        {"triton, step 1": partial(layer_norm_by_rows, x, weight, bias)},
        {
            "triton, step 3": partial(backward_by_rows, *state),
            "triton, step 4": partial(backward_with_atomics, *state),
            "triton, step 5": waiting,
        },
    )


def benchmark(M, columns):
    """Return {(norm, direction): rows (M, N, provider, unit, median, p20, p80)}."""
    rows = {(norm, way): [] for norm in EPS for way in ("forward", "backward")}
    for N in columns:
        inputs, g = random_inputs(M, N)
        for norm in EPS:
            calls = {"forward": forward_calls(norm, inputs)}
            calls["backward"] = backward_calls(norm, calls["forward"], inputs, g)
            if norm == "layer" and N in SOME:
                for way, steps in zip(calls, step_calls(inputs, g), strict=True):
                    calls[way] |= steps
            for way, transfers in (("forward", 2), ("backward", 3)):
                for provider, ms in measure(calls[way], rounds=20).items():
                    moved = g.nbytes * (2 if provider == "copy" else transfers)
                    rows[norm, way].append((M, N, provider, "GB/s", *rates(ms, moved)))
    return rows


if ON_GPU:
    rows = benchmark(4096, SIZES)
    for (norm, way), part in rows.items():
        write_rows(f"{norm}-norm-{way}.csv", ["M", "N"], part)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# All rows are in the CSV files. In the plots, lines are medians, and bands reach from the 20th to
# the 80th percentile.

# sphinx_gallery_fold = "prints tables"
# sphinx_gallery_fold_output = True


def print_table(part, columns):
    """Print the median rates of some row lengths, and ratios of them."""
    rate = {(N, provider): median for _, N, provider, _, median, _, _ in part}
    providers = ("triton", "torch", "compile", "copy")
    table = []
    for N in columns:
        here = [rate.get((N, provider)) for provider in providers]
        ratios = [other and here[0] / other for other in here[1:]]
        table.append((N, *("" if v is None else significant(v) for v in here + ratios)))
    headers = ["N", *providers, *(f"/{other}" for other in providers[1:])]
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    print("GB/s, higher is better; /torch and so on: triton's ratio to them")
    for (norm, way), part in rows.items():
        print(f"\n{norm} norm, {way}")
        print_table(part, [1024, 2560, 4096, 5632, 8192, 12288, 15872])
else:
    print("No table without a GPU.")

# %%

# sphinx_gallery_fold = "plots the rates"


def draw(rows, norm, title):
    """Draw the rates of one norm, forward and backward, side by side."""
    styles = {
        "copy": ("copy (ceiling)", CEILING),
        "triton": ("triton", OURS),
        "torch": ("torch", TORCH),
        "compile": ("torch.compile", COMPILE),
    }
    fig, axes = plt.subplots(2, 1, figsize=(7, 9), layout="constrained", sharex=True)
    for ax, way in zip(axes, ("forward", "backward"), strict=True):
        lines = {}
        for provider, (label, style) in styles.items():
            points = [(r[1], *r[4:7]) for r in rows[norm, way] if r[2] == provider]
            if points:
                lines[label] = style, points
        xlabel = "N, elements in a row" if way == "backward" else ""
        plot_rates(ax, lines, f"{title}, {way}", xlabel, "GB/s")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=2)
    plt.show()


if ON_GPU:
    draw(rows, "layer", "Layer norm of 4096 rows in fp16")
    draw(rows, "rms", "RMS norm of 4096 rows in fp16")
else:
    print("No plot without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **All of them rise on the left.** 4096 rows of 1024 are few bytes, and getting a kernel going
# takes its time, the copy's too. The backward pass pays twice, since its second stage is a kernel
# of its own that needs all of the first.
#
# **The teeth of our curves** are the pieces. A row that is a little longer than its pieces has one
# more, most of it padding, which moves no bytes but costs instructions. Where a tooth rises in
# proportion to *N* and then falls back, the time along it is constant: that of the padded length.
#
# **Where the backward pass changes over** to weights that are loaded again, and to two programs a
# row, its curve may step down: they do more arithmetic. RMS norm has one sum and loads no weights
# twice; it shows what the registers of the second sum cost.
#
# **What forward lacks of the copy**: a row has to be there as a whole before any of its output can
# be written, so that reading and writing overlap only across programs; and each program reads the
# parameters, from a cache, but through the same wires. **What backward lacks** beside the second
# stage is company: a forward program that waits for memory leaves its multiprocessor to others, and
# the persistent one has only the rows that it asked for early.
# :doc:`/programming-guide/chapter-5/profiling` shows how to see where a kernel of yours waits.
#
# **PyTorch's backward** computes the gradients of the parameters in other kernels than that of *x*,
# and these read *x* and *g* once more. Five transfers instead of three put its ceiling at three
# fifths of the copy, before anything else is lost. **torch.compile** sums over the rows in kernels
# of their own as well. Forward, it chooses for each size between holding a row and walking over it
# twice; where its curve falls while ours does not, it walks.
#
# What the run showed
# -------------------
#
# What this page teaches, as numbers of this run, with the least that would bear it out:

# sphinx_gallery_fold = "computes the ladder and the claims"

STEPS = [
    ("Step 1: one row a program", "forward; padded to a power of two", "forward", "triton, step 1"),
    ("Step 2: a row in pieces", "forward; no padding, kept in fp16", "forward", "triton"),
    ("Step 3: the gradient of a row", "backward; PyTorch adds up the rows", "backward",
     "triton, step 3"),
    ("Step 4: adding up with atomics", "backward; one kernel, order at random", "backward",
     "triton, step 4"),
    ("Step 5: partial sums in two stages", "backward; persistent, the same bits twice", "backward",
     "triton, step 5"),
    ("Step 6: fetch early", "backward; loads run ahead of the loop", "backward", "triton"),
]  # fmt: skip


def rate_of(rows, norm, way):
    """Return {(N, provider): median rate}."""
    return {(N, who): median for _, N, who, _, median, _, _ in rows[norm, way]}


def mean_ratio(rate, one, other):
    """Return the geometric mean of the ratio of two providers, where both took part."""
    sizes = [N for N, who in rate if who == other]
    return geometric_mean(rate[N, one] / rate[N, other] for N in sizes)


def make_claims(rows):
    """Compute what the page claims."""
    forward, backward = rate_of(rows, "layer", "forward"), rate_of(rows, "layer", "backward")
    rms, rms_back = rate_of(rows, "rms", "forward"), rate_of(rows, "rms", "backward")
    wide = spread(rows["layer", "backward"])
    long = [N for N, who in forward if who == "copy" and N >= 4096]
    claim(
        "forward, a row in pieces beats one padded block, geometric mean",
        mean_ratio(forward, "triton", "triton, step 1"),
        at_least=1.02,
        spread=wide,
        section="Step 2: a row in pieces",
    )
    claim(
        "forward is close to a copy of the same bytes at every N ≥ 4096",
        min(forward[N, "triton"] / forward[N, "copy"] for N in long),
        at_least=0.85,
        spread=wide,
        section="What is computed, and what it must cost",
    )
    claim(
        "backward, partial sums beat atomics, geometric mean",
        mean_ratio(backward, "triton", "triton, step 4"),
        at_least=1.2,
        spread=wide,
        section="Step 5: partial sums in two stages",
    )
    claim(
        "backward, fetching early beats waiting, geometric mean",
        mean_ratio(backward, "triton", "triton, step 5"),
        at_least=1.05,
        spread=wide,
        section="Step 6: fetch early",
    )
    claim(
        "backward beats PyTorch's, geometric mean",
        mean_ratio(backward, "triton", "torch"),
        at_least=1.4,
        spread=wide,
        section="How to read the curves",
    )
    claim(
        "RMS norm is no slower than layer norm, forward, geometric mean",
        geometric_mean(rms[N, "triton"] / forward[N, "triton"] for N in long),
        at_least=0.99,
        spread=wide,
        section="Step 2: a row in pieces",
    )
    claim(
        "with one sum less, RMS norm's backward pass is no slower, geometric mean",
        geometric_mean(rms_back[N, "triton"] / backward[N, "triton"] for N in long),
        at_least=0.98,
        spread=wide,
        section="Step 7: two programs share a row",
    )
    claim(
        "at a mean of 1000 deviations, one pass is off by a thousand times more than two",
        errors["one pass"][3] / errors["two passes"][3],
        at_least=1000,
        section="Why the variance takes two passes",
    )


if ON_GPU:
    way_rates = {way: rate_of(rows, "layer", way) for way in ("forward", "backward")}
    rungs = [(section, change, way_rates[way][8192, who]) for section, change, way, who in STEPS]
    ladder(
        rungs,
        ceiling=("a copy", way_rates["backward"][8192, "copy"]),
        unit="GB/s",
        at="M = 4096, N = 8192, fp16",
    )
    print()
    make_claims(rows)
    print_claims()
    rate = {
        (N, f"{norm} {way} {who}"): median
        for (norm, way), part in rows.items()
        for _, N, who, _, median, _, _ in part
    }
    pairs = {
        f"{norm}, {way}: / {who}": (f"{norm} {way} triton", f"{norm} {way} {who}")
        for norm, way in rows
        for who in ("torch", "compile", "copy")
        if (SOME[0], f"{norm} {way} {who}") in rate
    }
    print("\nRates of triton as ratios to those of the others")
    print_ratios(rate, pairs)
else:
    print("No ladder and no claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * Two passes over registers cost no bytes. One pass over the sum of squares costs the digits.
# * Ask what the backward pass needs, and what is at hand anyway. Two numbers a row are worth
#   keeping.
# * A sum over programs: partial sums, each in a place of its own, then a second stage. Atomic
#   additions are shorter to write, slower, and different every time.
# * A persistent program keeps in its registers what others would have to write; what it lacks in
#   company it makes up by fetching early.
# * Registers are the budget. Count them for each element: two sums in fp32, two values in fp16.
#   Where they do not suffice, programs can share a row, and the L2 cache pays.
#
# Exercises
# ---------
#
# 1. **Add a residual.** A transformer normalizes ``x + residual`` and needs the sum itself for the
#    next residual. Write ``add_norm(x, residual, weight, bias)``, which returns both, with
#    gradients. How many transfers does fusing save? :doc:`Solution <solutions/05-residual>`.
# 2. **Group norm.** Images have channels; ``group_norm(x, groups, weight, bias)`` takes its mean
#    over a group of channels and all their pixels, and a weight belongs to a channel. Which of our
#    kernels is it nearly? :doc:`Solution <solutions/05-group-norm>`.
# 3. **Dropout fused in.** Drop elements of the norm's output, with a seed as in
#    :doc:`04-low-memory-dropout`: ``dropped_layer_norm(x, weight, bias, p, seed)``. What does its
#    backward pass need? :doc:`Solution <solutions/05-dropout>`.
#
# References
# ----------
#
# * Jimmy Lei Ba, Jamie Ryan Kiros and Geoffrey E. Hinton: *Layer normalization*, 2016,
#   https://arxiv.org/abs/1607.06450
# * Biao Zhang and Rico Sennrich: *Root mean square layer normalization*, NeurIPS 2019,
#   https://arxiv.org/abs/1910.07467
# * Tony F. Chan, Gene H. Golub and Randall J. LeVeque: *Algorithms for computing the sample
#   variance: analysis and recommendations*, The American Statistician 37(3), 1983,
#   https://doi.org/10.1080/00031305.1983.10483115: one pass, two passes, and combining pieces.
