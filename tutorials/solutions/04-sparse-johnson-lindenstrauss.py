"""
A random projection that is never stored
========================================

*Solution to the third exercise of* :doc:`/getting-started/tutorials/04-low-memory-dropout`.

A random matrix maps vectors of :math:`d` dimensions to vectors of :math:`k` dimensions. By the
lemma of Johnson and Lindenstrauss, their distances hardly change, even if :math:`k` is far smaller
than :math:`d`. The matrix can be sparse: Achlioptas showed that two thirds of it may be zeros, and
Li, Hastie and Church made it sparser still.

For long vectors this matrix is large. Because it is random, a kernel can generate each tile when it
needs it, and never store it.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import math
import os

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The elements of the matrix :math:`R`, of shape :math:`d \times k`, are independent, with
#
# .. math::
#    R_{ij} = \sqrt{\frac{s}{k}} \cdot \begin{cases}
#    -1 & \text{with probability } \frac{1}{2s} \\
#    0 & \text{with probability } 1 - \frac{1}{s} \\
#    +1 & \text{with probability } \frac{1}{2s} \end{cases}
#
# Every element has the variance :math:`1/k`, so the square of a vector's length is preserved on
# average. Achlioptas chose :math:`s = 1` (no zeros) and :math:`s = 3`; Li, Hastie and Church go up
# to :math:`s = \sqrt{d}`.
#
# Dropout compares a word with one threshold. Here are two: a word below :math:`t = 2^{32} / (2s)`
# gives −1, a word of at least :math:`2^{32} - t` gives +1, and all others give 0. Four neighbors in
# a row of :math:`R` share a counter, as in the tutorial.
#
# The kernel is a matrix multiplication as in
# :doc:`/getting-started/tutorials/03-matrix-multiplication`, but it generates one of its tiles
# instead of loading it. The factor :math:`\sqrt{s/k}` is applied once, at the end.


@triton.jit(do_not_specialize=["seed", "threshold"])
def projection_kernel(
    x_ptr, out_ptr, n, d, k, seed, threshold, scale,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Multiply rows of x by columns of R, which are made on the way."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    columns = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    quarter = tl.program_id(1) * (BLOCK_K // 4) + tl.arange(0, BLOCK_K // 4)
    low = threshold.to(tl.uint32)
    high = (-threshold).to(tl.uint32)  # 2**32 - threshold, in 32 bits
    total = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for start in range(0, d, BLOCK_D):
        i = start + tl.arange(0, BLOCK_D)
        inside = (rows[:, None] < n) & (i[None, :] < d)
        x = tl.load(x_ptr + rows[:, None] * d + i[None, :], mask=inside, other=0.0)
        counters = i[:, None].to(tl.int64) * tl.cdiv(k, 4) + quarter[None, :]
        w0, w1, w2, w3 = tl.randint4x(seed, counters)
        words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
        words = words.to(tl.uint32, bitcast=True)  # [BLOCK_D, BLOCK_K]
        r = tl.where(words >= high, 1.0, 0.0) - tl.where(words < low, 1.0, 0.0)
        total = tl.dot(x, r, total, input_precision="ieee")
    inside = (rows[:, None] < n) & (columns[None, :] < k)
    tl.store(out_ptr + rows[:, None] * k + columns[None, :], total * scale, mask=inside)


def project(x, k, s, seed):
    """Return ``x @ R`` for a random (d, k) matrix R that *seed* defines and nobody stores.

    Args:
        x: Contiguous float32 tensor of shape (n, d).
        k: Number of dimensions to project to.
        s: One element of R in *s* is not zero, on average; at least 1.
        seed: Integer from 0 to 2⁶⁴ - 1.

    Raises:
        TypeError: *x* is no tensor, or not float32.
        ValueError: *x* is no contiguous matrix or on another device, or a number is out of range.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype != torch.float32:
        raise TypeError(f"x must be float32, but its dtype is {x.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {x.device}")
    if x.ndim != 2 or not x.is_contiguous():
        raise ValueError(
            f"x must be a contiguous matrix, but has shape {tuple(x.shape)} and strides "
            f"{x.stride()}"
        )
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")
    if not 1 <= s <= 2**30:
        raise ValueError(f"s must be from 1 to 2**30, but is {s}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be from 0 to 2**64 - 1, but is {seed}")
    n, d = x.shape
    out = torch.empty(n, k, device=x.device)
    grid = (triton.cdiv(n, 64), triton.cdiv(k, 64))
    if n > 0:
        projection_kernel[grid](
            x, out, n, d, k, seed, round(2**31 / s), math.sqrt(s / k),
            BLOCK_N=64, BLOCK_D=32, BLOCK_K=64,
        )  # fmt: skip
    return out


# %%
# For the check, the tutorial's ``philox`` generates the whole matrix in PyTorch, and the product is
# computed in float64.

# sphinx_gallery_fold = "checks it against a stored matrix"
WORD = 0xFFFFFFFF


def multiply(a, b):
    """Return the upper and the lower word of ``a * b``, *b* being a tensor of words."""
    low = a * (b & 0xFFFF)
    high = a * (b >> 16) + (low >> 16)
    return high >> 16, ((high << 16) | (low & 0xFFFF)) & WORD


def philox(seed, counter):
    """Return four random words for each counter, as Philox4x32-10 gives them."""
    c0, c1 = counter & WORD, counter >> 32
    c2 = c3 = torch.zeros_like(counter)
    k0, k1 = seed & WORD, seed >> 32
    for _ in range(10):
        high0, low0 = multiply(0xD2511F53, c0)
        high2, low2 = multiply(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def stored_projection(d, k, s, seed):
    """Return the matrix R that :func:`project` uses, in float64."""
    counters = torch.arange(d * triton.cdiv(k, 4), device=DEVICE)
    words = torch.stack(philox(seed, counters), dim=1).reshape(d, -1)[:, :k]
    t = round(2**31 / s)
    return ((words >= 2**32 - t).double() - (words < t).double()) * math.sqrt(s / k)


torch.manual_seed(0)
for n, d, k, s in ((1, 1, 1, 1), (5, 123, 7, 3), (70, 130, 66, 3), (33, 781, 40, math.sqrt(781))):
    x = torch.randn(n, d, device=DEVICE)
    expected = x.double() @ stored_projection(d, k, s, seed=2**35 + 9)
    # A sum of d products in fp32: at most d rounding errors, in practice about sqrt(d) of them.
    y = project(x, k, s, seed=2**35 + 9)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5 * math.sqrt(d))
print("The projection agrees with a stored matrix, to rounding")

# %%
# Do the distances survive? By Achlioptas' theorem, if
#
# .. math:: k \ge \frac{6 \ln n}{\varepsilon^2 / 2 - \varepsilon^3 / 3}
#
# then with a probability of at least :math:`1 - 1/n` the squared distances between *all* pairs of
# :math:`n` points change by a factor between :math:`1 - \varepsilon` and :math:`1 + \varepsilon`,
# whatever their number of dimensions. We compute the :math:`\varepsilon` that our :math:`k`
# guarantees, and look at all pairs.
#
# The theorem holds for :math:`s = 1` and :math:`s = 3`. With sparser matrices the result depends on
# the data: if a vector has its whole weight in one dimension, its projection is one row of
# :math:`R`, which is almost all zeros. The points here spread their weight over all dimensions.


def guaranteed_epsilon(n, k):
    """Return the smallest ε (to three digits) for which the theorem holds with *n* and *k*."""
    epsilons = (e / 1000 for e in range(1, 1000))
    return next(e for e in epsilons if k * (e**2 / 2 - e**3 / 3) >= 6 * math.log(n))


n, d, k = (512, 65536, 1024) if ON_GPU else (64, 1024, 256)
x = torch.randn(n, d, device=DEVICE)
before = torch.pdist(x.double()) ** 2
epsilon = guaranteed_epsilon(n, k)
print(f"{n} points, {d:,} dimensions to {k}: the theorem promises 1 ± {epsilon}\n")
ratios, rows = {}, []
for label, s in (("1", 1), ("3", 3), ("√d", math.sqrt(d))):
    ratio = torch.pdist(project(x, k, s, seed=1).double()) ** 2 / before
    if s <= 3:
        assert (ratio - 1).abs().max() <= epsilon, f"s={label}: a distance changed too much"
    ratios[label] = ratio.cpu()
    rows.append([label, 1 / s, ratio.min().item(), ratio.mean().item(), ratio.max().item()])
headers = ["s", "not zero", "least", "mean", "largest"]
print("Squared distance after the projection, over the one before, of all pairs")
print(tabulate(rows, headers, floatfmt=("", ".4f", ".3f", ".3f", ".3f")))

# %%

# sphinx_gallery_fold = "plots the ratios of distances"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.bench import CEILING, STEPS, figure


def plot_ratios(ratios, epsilon, bins=50):
    """Draw how the ratios of the squared distances are distributed, and what is promised."""
    fig, ax = figure(height=4)
    width = 2 * epsilon / bins
    middles = [1 - epsilon + (i + 0.5) * width for i in range(bins)]
    for (label, ratio), color, style in zip(
        ratios.items(), STEPS[:3], ("o-", "s--", "^:"), strict=True
    ):
        pairs = torch.histc(ratio, bins, 1 - epsilon, 1 + epsilon).tolist()
        ax.plot(middles, pairs, style, color=color, markersize=3.5, label=f"s = {label}")
    for bound in (1 - epsilon, 1 + epsilon):
        ax.axvline(bound, color=CEILING, linestyle="--")
    ax.set(title=f"Distances of {n} points,\nprojected from {d:,} to {k:,} dimensions",
           xlabel="squared distance after / before (dashed: promised)", ylabel="pairs")  # fmt: skip
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center", ncols=3, frameon=False)
    plt.show()


plot_ratios(ratios, epsilon)

# %%
# In fp32 the matrix would take 4·d·k bytes, which the kernel saves. The price is arithmetic: it
# generates the matrix again for every 64 rows of ``x``. So the kernel is for matrices that do not
# fit in memory. For others, compare the two times:

# sphinx_gallery_fold = "times it beside PyTorch"
print(f"R would take {4 * d * k / 2**20:.0f} MiB")
if ON_GPU:
    r = stored_projection(d, k, 3, seed=1).float()
    for name, fn in {
        "matrix stored, torch": lambda: x @ r,
        "matrix generated": lambda: project(x, k, 3, seed=1),
    }.items():
        ms = triton.testing.do_bench(fn, 5, 20, return_mode="median")
        print(f"{name:22s} {ms:6.2f} ms")
else:
    print("Without a GPU there is nothing to time.")

# %%
# References
# ----------
#
# * William B. Johnson and Joram Lindenstrauss: *Extensions of Lipschitz mappings into a Hilbert
#   space*, Contemporary Mathematics 26, 1984.
# * Dimitris Achlioptas: *Database-friendly random projections: Johnson-Lindenstrauss with binary
#   coins*, Journal of Computer and System Sciences 66(4), 2003,
#   https://doi.org/10.1016/S0022-0000(03)00025-4
# * Ping Li, Trevor J. Hastie and Kenneth W. Church: *Very sparse random projections*, KDD'06, 2006,
#   https://doi.org/10.1145/1150402.1150436
