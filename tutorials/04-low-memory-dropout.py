"""
Low-memory dropout
==================

Dropout sets random elements to zero while a network is trained. The backward pass must drop the
same elements, so implementations usually keep a mask. You build ``seeded_dropout(x, p, seed)``,
which keeps only a seed and draws the mask again, at :measured:`share` % of the speed of a copy.
You need :doc:`01-vector-add`, and autograd in PyTorch.
"""

# %%
# Dropout with a mask
# -------------------
#
# Each element becomes zero with probability :math:`p`. The others are divided by :math:`1 - p`, so
# the expected value stays the same. ``keep`` is the mask, and ``inside`` guards the tensor's end.

# sphinx_gallery_level = "transformer"
import math
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def dropout_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Scale the elements that the mask keeps, and set the others to zero."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    keep = tl.load(keep_ptr + offsets, mask=inside, other=0)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def launch_dropout(x, x_keep, p):
    """Return dropout of *x* with the mask *x_keep*; the arguments have been checked."""
    n = x.numel()
    if p == 1 or n == 0:
        return torch.zeros_like(x)
    out = torch.empty_like(x)
    dropout_kernel[((n + 1023) // 1024,)](x, x_keep, out, n, 1 / (1 - p), BLOCK=1024)
    return out


x = torch.arange(1.0, 9.0, device=DEVICE)
x_keep = torch.arange(8, device=DEVICE) % 3 > 0
print("mask  ", x_keep.int().tolist())
print("output", launch_dropout(x, x_keep, 0.5).tolist())

# %%
# A dropped element is *selected* as zero by ``tl.where``. Multiplying by zero would be wrong:
# infinity times zero is not a number (NaN). The arithmetic is in fp32, also for fp16 input.
#
# **What a mask costs.** Dropout in fp32 reads 4 bytes for each element and writes 4. The mask adds
# 1 byte, so this kernel can reach at most 8/9 of a copy's speed. And the mask stays in memory until
# the backward pass of its layer: the gradient of dropout is dropout of the gradient, with the same
# mask. It needs neither the input nor the output.
#
# Random numbers without a state
# ------------------------------
#
# Why not keep only a seed, and draw the numbers again? An ordinary generator has a **state**: each
# number follows from the one before, so number one million needs all numbers before it. But the
# programs of a grid run at the same time and in any order.
#
# A **counter-based** generator has no state. Like a cipher, it turns a counter into bits that look
# random, under a key, the seed. Any program can compute number one million, at any time.
#
# Triton's generator is *Philox4x32-10*. A counter has four words of 32 bits, and so has the result.
# The key has two words, so a seed has 64 bits. Each of ten rounds multiplies two words by constants
# and mixes the products with the other words and the key. In PyTorch:

WORD = 0xFFFFFFFF  # the lower 32 bits


def multiply(a, b):
    """Return the upper and the lower word of ``a * b``; int64 holds only 63 bits at once."""
    low = a * (b & 0xFFFF)
    high = a * (b >> 16) + (low >> 16)
    return high >> 16, ((high << 16) | (low & 0xFFFF)) & WORD


def philox(seed, counter):
    """Return four random words for each element of *counter*, a tensor of int64."""
    c0, c1 = counter & WORD, counter >> 32
    c2 = c3 = torch.zeros_like(counter)
    k0, k1 = seed & WORD, seed >> 32
    for _ in range(10):
        high0, low0 = multiply(0xD2511F53, c0)
        high2, low2 = multiply(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


words = [int(word) for word in philox(0, torch.tensor([0]))]
assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], words  # published by its authors
print("seed 0, counter 0:", *(f"{word:08x}" for word in words))

# %%
# In a kernel, ``tl.rand(seed, offsets)`` gives a float from 0 to 1 for each offset. Triton compiles
# a kernel again when an integer becomes a multiple of 16, because that helps with addresses;
# ``do_not_specialize`` prevents this for the seed, which changes in every call.

# sphinx_gallery_difference = "dropout_kernel"


@triton.jit(do_not_specialize=["seed"])
def one_sample_kernel(x_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr):
    """Draw a float for each element, and keep the element if it is at least p."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    keep = tl.rand(seed, offsets) >= p
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def one_sample_dropout(x, p, seed):
    """Return dropout of *x* with one call of Philox for each element."""
    out, n = torch.empty_like(x), x.numel()
    one_sample_kernel[((n + 1023) // 1024,)](x, out, n, seed, p, 1 / (1 - p), BLOCK=1024)
    return out


for seed in (1, 2):
    print("seed", seed, one_sample_dropout(torch.ones(8, device=DEVICE), 0.5, seed).tolist())

# %%
# Four numbers a call
# -------------------
#
# ``tl.rand`` uses one of Philox's four words and discards three: four times the arithmetic that is
# needed. ``tl.randint4x(seed, counters)`` returns all four words of each counter, as blocks ``w0``
# to ``w3``. So ``BLOCK`` elements need ``BLOCK // 4`` counters. Which element gets which word?
#
# The obvious rule is a trap. Cut the block into quarters and give ``w0`` to the first quarter,
# ``w1`` to the second, and so on. All tests of randomness pass, but the mask depends on ``BLOCK``.
# If the forward and the backward pass use different block sizes, the gradients are wrong, without
# any error. The rule must not depend on the block: **element i gets word i % 4 of counter i // 4**.
# These are *counter.word* of 16 elements by both rules, in blocks of 8 and of 16::
#
#     element          0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15
#     quarters, 8    0.0 1.0 0.1 1.1 0.2 1.2 0.3 1.3 2.0 3.0 2.1 3.1 2.2 3.2 2.3 3.3
#     quarters, 16   0.0 1.0 2.0 3.0 0.1 1.1 2.1 3.1 0.2 1.2 2.2 3.2 0.3 1.3 2.3 3.3
#     neighbors, 8   0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3 2.0 2.1 2.2 2.3 3.0 3.1 3.2 3.3
#     neighbors, 16  0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3 2.0 2.1 2.2 2.3 3.0 3.1 3.2 3.3
#
# ``tl.interleave(a, b)`` takes turns between two blocks: ``a[0], b[0], a[1], b[1], …``. Two levels
# of it put the words into the order of the rule.
#
# **Compare integers.** ``tl.rand`` converts each word to a float. The other way is cheaper: convert
# :math:`p` to an integer once. A random word is less than :math:`p \cdot 2^{32}` with probability
# :math:`p`. Triton's words are ``int32``, so half of them are negative and below every threshold.
# ``to(tl.uint32, bitcast=True)`` keeps the bits and reads them without a sign. With :math:`p = 0`
# the threshold is 0, and the result is ``x``, bit for bit.

# sphinx_gallery_difference = "one_sample_kernel"


@triton.jit(do_not_specialize=["seed", "threshold"])
def seeded_dropout_kernel(x_ptr, out_ptr, n, seed, threshold, scale, BLOCK: tl.constexpr):
    """Keep element i if word i % 4 of counter i // 4 is at least the threshold."""
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    counters = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)  # [BLOCK // 4]
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))  # [BLOCK]
    keep = words.to(tl.uint32, bitcast=True) >= threshold.to(tl.uint32)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def drop_threshold(p):
    """Return t so that a random word is below t with probability *p*; *p* is less than 1."""
    return min(round(p * 2**32), 2**32 - 1)


def launch_seeded_dropout(x, p, seed, block=1024):
    """Return dropout of *x* with a seed; the arguments have been checked."""
    n = x.numel()
    if p == 1 or n == 0:
        return torch.zeros_like(x)
    out = torch.empty_like(x)
    grid, threshold = ((n + block - 1) // block,), drop_threshold(p)
    seeded_dropout_kernel[grid](x, out, n, seed, threshold, 1 / (1 - p), BLOCK=block)
    return out


# %%
# Interleaving moves no data if a thread holds four neighbors, as it does to load 16 bytes at once.
# Then a thread computes the words of its own elements: here 128 threads with eight elements each.
#
# The functions and their gradients
# ---------------------------------
#
# The gradient of dropout is the same dropout of the gradient. In a ``torch.autograd.Function``,
# ``forward`` keeps in ``ctx`` what ``backward`` needs: the mask, or else *p* and the seed.


class Dropout(torch.autograd.Function):
    """Dropout by a mask, or by a seed if the mask is None."""

    @staticmethod
    def forward(ctx, x, x_keep, p, seed):
        """Drop elements of *x*."""
        ctx.save_for_backward(x_keep)
        ctx.p, ctx.seed = p, seed
        if x_keep is None:
            return launch_seeded_dropout(x, p, seed)
        return launch_dropout(x, x_keep, p)

    @staticmethod
    def backward(ctx, grad):
        """Drop the same elements of the gradient."""
        same = Dropout.apply(grad.contiguous(), *ctx.saved_tensors, ctx.p, ctx.seed)
        return same, None, None, None


# %%
# After ``y.sum()`` the gradient is one number, expanded with strides of zero. So ``backward`` makes
# it contiguous. The functions check their arguments, and use autograd only if it is needed.


def check_arguments(x, p):
    """Raise TypeError or ValueError if the kernels cannot work on *x* and *p*."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"x must be float16, bfloat16 or float32, but its dtype is {x.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {x.device}")
    if not x.is_contiguous():
        found = f"shape {tuple(x.shape)} and strides {x.stride()}"
        raise ValueError(f"x must be contiguous, but has {found}; pass x.contiguous()")
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise TypeError(f"p must be a number, but is a {type(p).__name__}")
    if not 0 <= p <= 1:  # also refuses NaN
        raise ValueError(f"p must be from 0 to 1, but is {p}")


def dropout(x, x_keep, p):
    """Return *x* with zeros where *x_keep* is False, and divided by ``1 - p`` elsewhere.

    *x* and *p* as in ``seeded_dropout``; *x_keep* is boolean, with the shape and device of *x*.
    """
    check_arguments(x, p)
    if not isinstance(x_keep, torch.Tensor) or x_keep.dtype != torch.bool:
        kind = getattr(x_keep, "dtype", type(x_keep).__name__)
        raise TypeError(f"x_keep must be a tensor of torch.bool, but is {kind}")
    if x_keep.shape != x.shape or x_keep.device != x.device or not x_keep.is_contiguous():
        raise ValueError(
            f"x_keep must be contiguous, of shape {tuple(x.shape)} and on {x.device} as x is, but "
            f"has shape {tuple(x_keep.shape)}, strides {x_keep.stride()} and is on {x_keep.device}"
        )
    if x.requires_grad and torch.is_grad_enabled():
        return Dropout.apply(x, x_keep, p, None)
    return launch_dropout(x, x_keep, p)


def seeded_dropout(x, p, seed):
    """Return *x* with each element zero with probability *p*, and divided by ``1 - p`` otherwise.

    Only *seed*, *p* and its position in memory decide whether an element is dropped.

    Args:
        x: Contiguous float16, bfloat16 or float32 tensor of any shape.
        p: Probability from 0 to 1, rounded to a multiple of 2⁻³². With 1 the result is zero.
        seed: Integer from 0 to 2⁶⁴ - 1.

    Raises:
        TypeError, ValueError: An argument is not as described; the message names it.
    """
    check_arguments(x, p)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int, but is a {type(seed).__name__}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be from 0 to 2**64 - 1, but is {seed}")
    if x.requires_grad and torch.is_grad_enabled():
        return Dropout.apply(x, None, p, seed)
    return launch_seeded_dropout(x, p, seed)


# %%
# Use a new seed in every call. With one seed for all steps the same elements are always dropped,
# and the network is only a smaller one. ``torch.randint(2**63 - 1, ()).item()`` draws a seed on the
# CPU: it does not wait for the GPU, and ``torch.manual_seed`` makes it reproducible.
#
# Checking it
# -----------
#
# Random functions can be tested exactly. ``philox`` and the rule say for each element whether it is
# kept. The kernels must agree on every element and gradient, for all sizes, seeds and blocks.

# sphinx_gallery_fold = "checks every element and every gradient"


def expected_mask(n, p, seed):
    """Return the mask of *n* elements by the rule, without a kernel."""
    words = torch.stack(philox(seed, torch.arange((n + 3) // 4, device=DEVICE)), dim=1)
    return words.flatten()[:n] >= drop_threshold(p)


def check(x, p, seed):
    """Raise AssertionError where a function or its gradient differs from float64."""
    keep = expected_mask(x.numel(), p, seed)
    grad, x = torch.randn_like(x[:1]).expand_as(x), x.requires_grad_()
    for y in (seeded_dropout(x, p, seed), dropout(x, keep, p)):
        (dx,) = torch.autograd.grad(y, x, grad)
        for result, source in ((y, x), (dx, grad)):
            exact = torch.where(keep, source.double() / max(1 - p, 1e-9), 0.0).to(x.dtype)
            torch.testing.assert_close(result, exact, equal_nan=True)  # rtol 1.3e-6 in fp32


seeds = {1: 0, 5: 1, 123: 2**31, 1024: 2**32 + 1, 4099: 2**64 - 1, 1_000_003: 2**63}
for n, seed in list(seeds.items())[: 5 + ON_GPU]:
    check(torch.randn(n, device=DEVICE), 0.3, seed)
for dtype in (torch.float16, torch.bfloat16)[: 1 + ON_GPU]:  # the interpreter gets bf16 wrong
    for p in (0.0, 0.1, 0.5, 0.999, 1.0):
        x = torch.randn(1823, device=DEVICE, dtype=dtype)
        x[::10], x[1::10] = math.inf, math.nan
        check(x, p, 7)
x = torch.randn(4099, device=DEVICE)
for block in (64, 256, 4096):
    assert torch.equal(launch_seeded_dropout(x, 0.3, 7, block), seeded_dropout(x, 0.3, 7))
print("both functions and their gradients are right in every element")

# %%
# This shows that the kernels follow the rule, but not that the rule is random. So count. Of *n*
# events with probability *q*, about *nq* happen, with a standard deviation of
# :math:`\sqrt{nq(1 - q)}`. Five deviations practically never occur.

n = 2**24 if ON_GPU else 2**14
for p in (0.01, 0.5, 0.9):
    one, two = (seeded_dropout(torch.ones(n, device=DEVICE), p, seed) > 0 for seed in (1, 2))
    cases = [(one[word::4], 1 - p) for word in range(4)]  # each word of a counter
    cases += [(one[0::2] & one[1::2], (1 - p) ** 2), (one == two, p**2 + (1 - p) ** 2)]
    off = [(e.sum().item() - e.numel() * q) / math.sqrt(e.numel() * q * (1 - q)) for e, q in cases]
    assert max(map(abs, off)) < 5, off
    print(f"p = {p}: at most {max(map(abs, off)):.1f} standard deviations off")

# %%
# Timing it
# ---------
#
# All rates count the 8 bytes that dropout in fp32 must move for each element. A copy moves as many
# and is the ceiling. *mask* is ``dropout`` with a mask drawn beforehand.

# sphinx_gallery_fold = "times the dropouts, draws the rates, and keeps the rows"
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import plot_rates, rows_of, write_calls, write_rows, write_table


@triton.jit
def empty_kernel():
    """Do nothing."""


if ON_GPU:
    p, rows = 0.5, []
    for n in [2**i for i in range(20, 29)]:
        x = torch.randn(n, device=DEVICE)
        calls = {
            "triton": partial(seeded_dropout, x, p, 123),
            "triton, one sample a call": partial(one_sample_dropout, x, p, 123),
            "torch": partial(functional.dropout, x, p),
            "mask": partial(dropout, x, torch.rand_like(x) >= p, p),
            "copy": partial(torch.empty_like(x).copy_, x),
        }
        rows += rows_of((n,), calls, "GB/s", 8 * n, rounds=100, as_called=("triton", "torch"))
    write_rows("dropout-performance.csv", ["size"], rows)
    x = torch.randn(4096, device=DEVICE)
    calls = {"triton": partial(seeded_dropout, x, 0.5, 1), "torch": partial(functional.dropout, x)}
    write_calls({"seeded_dropout": calls | {"launch": empty_kernel[(1,)]}})
    compiled = seeded_dropout_kernel[(4,)](x, x.clone(), 4096, 1, 2**31, 2.0, BLOCK=1024)
    values = [("shared memory", "bytes", compiled.metadata.shared)]
    x = torch.randn(2**24, device=DEVICE, requires_grad=True)
    calls = {"torch": partial(functional.dropout, x), "seeded": partial(seeded_dropout, x, p, 1)}
    for name, call in calls.items():
        before = torch.accelerator.memory_allocated()
        y = call()
        kept = torch.accelerator.memory_allocated() - before - y.nbytes
        values.append((f"kept, {name}", "bytes", kept / x.numel()))
        del y
    write_table("04-low-memory-dropout-values.csv", ["name", "unit", "value"], values)
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    ax.set_xscale("log", base=2)
    names = {"triton": "seeded_dropout", "triton, as called": "seeded_dropout, as called"}
    names |= {"triton, one sample a call": "one number a call", "torch": "PyTorch"}
    names |= {"mask": "mask (already drawn)", "copy": "copy (ceiling)"}
    plot_rates(ax, rows, names, "Dropout in fp32, p = 0.5", "elements")
else:
    print("Without a GPU there is nothing to time.")

# %%
# Reading the curve
# -----------------
#
# At 2²⁸ elements, all in GB/s:
#
# .. steps:: copy
#    :unit: GB/s
#
#    step_mask: a mask drawn beforehand
#    step_one: no mask, one random number a call
#    step_four: all four numbers of a call
#
# **With a mask**, the bytes predict 8/9 of the copy, and it reaches :measured:`mask_share` %. **One
# number a call** saves the ninth byte, but takes ten rounds of Philox for each element. **All four
# numbers** take a quarter of them, and the kernel is :measured:`four` times as fast. A GPU computes
# while it waits for memory, so computing a number again can be cheaper than keeping it.
#
# **PyTorch's dropout** writes a mask of :measured:`kept_torch` byte for each element and keeps it
# until the backward pass. ``seeded_dropout`` keeps no tensor. From 2²⁴ elements on, it is at least
# :measured:`faster` times as fast on the GPU and :measured:`called` times as fast as called. A call
# keeps the CPU busy for :measured:`cpu` µs (PyTorch: :measured:`cpu_torch` µs).
#
# Exercises
# ---------
#
# 1. **A seed for each row.** Extend the kernel to a matrix with a vector of seeds, so that a row
#    keeps its mask in any batch. :doc:`Solution <solutions/04-seed-per-row>`.
# 2. **Strided input.** Let the kernel read a matrix with any strides, such as a transposed one,
#    without a copy. What should decide about an element: its place in memory, or its row and its
#    column? :doc:`Solution <solutions/04-strided-input>`.
# 3. **A random projection that is never stored.** A sparse Johnson–Lindenstrauss projection takes
#    vectors to fewer dimensions with a random matrix of mostly zeros. Multiply by it while
#    generating it. :doc:`Solution <solutions/04-sparse-johnson-lindenstrauss>`.
#
# References
# ----------
#
# * John K. Salmon, Mark A. Moraes, Ron O. Dror and David E. Shaw: *Parallel random numbers: as easy
#   as 1, 2, 3*, SC'11, 2011, https://doi.org/10.1145/2063384.2063405
# * Nitish Srivastava and others: *Dropout: a simple way to prevent neural networks from
#   overfitting*, JMLR 15, 2014, https://jmlr.org/papers/v15/srivastava14a.html
