"""
Low-memory dropout
==================

You build ``seeded_dropout(x, p, seed)``, which sets random elements to zero and keeps nothing but a
seed for its backward pass. It reaches :measured:`share` % of the speed of a copy. Implementations
usually keep a mask of all elements instead. You need :doc:`01-vector-add`, and autograd in PyTorch.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
# sphinx_gallery_thumbnail_number = 1
import math
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# Dropout with a mask
# -------------------
#
# While a network is trained, dropout sets each element to zero with probability :math:`p`. The
# others are divided by :math:`1 - p`, so the expected value stays the same. ``keep`` is the mask of
# the elements that stay, and ``inside`` guards the tensor's end:


@triton.jit
def dropout_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Scale the elements that the mask keeps, and set the others to zero."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    keep = tl.load(keep_ptr + offsets, mask=inside, other=0)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)  # <-


def dropout(x, x_keep, p):
    """Return dropout of the contiguous *x* with the mask *x_keep*; *p* is less than 1."""
    out, n = torch.empty_like(x), x.numel()
    dropout_kernel[(triton.cdiv(n, 1024),)](x, x_keep, out, n, 1 / (1 - p), BLOCK=1024)
    return out


x = torch.arange(1.0, 9.0, device=DEVICE)
x_keep = torch.arange(8, device=DEVICE) % 3 > 0
print("mask  ", x_keep.int().tolist())
print("output", dropout(x, x_keep, 0.5).tolist())

# %%
# ``tl.where`` *selects* zero for a dropped element. Multiplying by zero would be wrong: infinity
# times zero is not a number (NaN).
#
# .. predict:: What share of a copy's speed can this kernel reach, in fp32?
#    :choices: 8/9 | 2/3 | 1/2
#    :answer: 8/9
#
#    It reads 4 bytes for each element and writes 4, as a copy does. The mask adds 1 byte, so it
#    moves 9 bytes where the copy moves 8.
#
# The mask also stays in memory until the backward pass of its layer. The gradient of dropout is
# dropout of the incoming gradient, with the same mask. It needs neither the input nor the output.
#
# Random numbers without a state
# ------------------------------
#
# Why not keep only a seed, and compute the random numbers again? An ordinary generator has a
# **state**: each number follows from the one before, so number one million needs all numbers before
# it. But the programs of a grid run at the same time and in any order.
#
# A **counter-based** generator has no state. Like a cipher with a key, it turns a counter into bits
# that look random. The seed is the key. Any program can compute number one million, at any time.
#
# Triton's generator is *Philox4x32-10*. A counter has four words of 32 bits, and so has the result.
# The key has two words, so a seed has 64 bits. Each of ten rounds multiplies two words by constants
# and mixes the products with the other words and the key by exclusive or (``^``). In PyTorch:

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
# In a kernel, ``tl.rand(seed, offsets)`` gives a float from 0 to 1 for each offset: the offset is
# the counter. Triton compiles a kernel separately for the integer 1, for multiples of 16, and for
# other integers, which helps with addresses. ``do_not_specialize`` prevents this for the seed.

# sphinx_gallery_difference = "dropout_kernel"


@triton.jit(do_not_specialize=["seed"])
def one_sample_kernel(x_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr):
    """Compute a random float for each element, and keep the element if it is at least p."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    keep = tl.rand(seed, offsets) >= p  # <-
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def one_sample_dropout(x, p, seed):
    """Return dropout of *x* with one call of Philox for each element."""
    out, n = torch.empty_like(x), x.numel()
    one_sample_kernel[(triton.cdiv(n, 1024),)](x, out, n, seed, p, 1 / (1 - p), BLOCK=1024)
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
# The picture shows *counter.word* of 16 elements by both rules, for blocks of 8 and of 16, in one
# color for each counter. Only the second rule gives every element the same word in both:

# sphinx_gallery_fold = "draws the counter and the word of each element"
import matplotlib.pyplot as plt
from shared.bench import figure


def draw_words():
    """Draw the counter and the word of 16 elements, by both rules and for two blocks."""
    rows, labels = [], []
    for block in (8, 16):
        q = block // 4  # elements of a quarter
        quarters = [(i // block * q + i % q, i % block // q) for i in range(16)]
        for rule, words in (("quarters", quarters), ("i // 4", [divmod(i, 4) for i in range(16)])):
            rows += [words[:8], words[8:]]
            labels += [f"{rule}, block {block} ", ""]
    four = ["#cfe3f1", "#f6d9c4", "#d8ead3", "#eeeeee"]
    colors = [[four[counter] for counter, _ in row] for row in rows]
    texts = [[f"{counter}.{word}" for counter, word in row] for row in rows]
    _, ax = figure(height=3.4)
    ax.axis("off")
    table = ax.table(texts, colors, "center", rowLabels=labels, bbox=(0, 0, 1, 1))
    table.auto_set_font_size(False)
    table.set_fontsize(12)
    ax.set_title("Elements 0 to 7, and 8 to 15 below")
    plt.show()


draw_words()

# %%
# ``tl.interleave(a, b)`` takes turns between two blocks: ``a[0], b[0], a[1], b[1], …``. The inner
# calls give w0, w2, w0, w2, … and w1, w3, w1, w3, …. The outer call takes turns between these two,
# which gives w0, w1, w2, w3, w0, …: the order of the rule.
#
# **Compare integers.** ``tl.rand`` converts each word to a float. It is cheaper to convert
# :math:`p` to an integer once, the **threshold**. A random word is less than :math:`p \cdot 2^{32}`
# with probability :math:`p`. Triton's words are ``int32``, so half of them are negative and below
# every threshold. ``to(tl.uint32, bitcast=True)`` keeps the bits and reads them without a sign.
# With :math:`p = 0` the threshold is 0, and the result is ``x``, bit for bit.
#
# .. image:: 04-low-memory-dropout.svg
#    :alt: Philox makes four random words of each counter; an element is kept if its word is at
#          least the threshold.
#    :scale: 100
#    :loading: lazy

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
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))  # [BLOCK] <-
    keep = words.to(tl.uint32, bitcast=True) >= tl.cast(threshold, tl.uint32)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def drop_threshold(p):
    """Return t so that a random word is below t with probability *p*; *p* is less than 1."""
    return min(round(p * 2**32), 2**32 - 1)


# %%
# Interleaving moves no data if a thread holds four neighbors, as it does to load 16 bytes with one
# instruction. Then each thread computes the words of its own elements.
#
# **Try it** *(easy, 15 minutes)*. Write ``random_signs(n, seed)``, which returns 1 or −1 for each
# element, by the lowest bit of its word. ``exercise.pyz`` from :doc:`01-vector-add` checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 04-signs mine.py
#    Not yet. random_signs(5, 0): 2 of 5 elements are wrong. The first is at (1,): 1 in place of
#    -1.
#
# With words in the order w0, w2, w1, w3, half of the signs are negative, too, but the wrong half.
#
# Calling it
# ----------
#
# In a ``torch.autograd.Function``, ``forward`` keeps *p* and the seed in ``ctx``, for ``backward``.
# A gradient can be one number with strides of zero, as after ``y.sum()``: it is made contiguous.


def drop(x, p, seed):
    """Return dropout of the contiguous *x*; *p* is less than 1."""
    out, n = torch.empty_like(x), x.numel()
    threshold, scale = drop_threshold(p), 1 / (1 - p)
    seeded_dropout_kernel[(triton.cdiv(n, 1024),)](x, out, n, seed, threshold, scale, BLOCK=1024)
    return out


class SeededDropout(torch.autograd.Function):
    """Dropout that keeps its seed."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Drop elements of *x*."""
        ctx.p, ctx.seed = p, seed
        return drop(x, p, seed)

    @staticmethod
    def backward(ctx, grad):
        """Drop the same elements of the gradient."""
        return drop(grad.contiguous(), ctx.p, ctx.seed), None, None


def seeded_dropout(x, p, seed):
    """Return dropout of the contiguous *x*, with gradients; *p* is less than 1."""
    return SeededDropout.apply(x, p, seed)


# %%
# Use a new seed in every call. With one seed for all steps the same elements are always dropped,
# and the network is only a smaller one. ``torch.randint(2**63 - 1, ()).item()`` gives a seed on the
# CPU: it does not wait for the GPU, and ``torch.manual_seed`` makes it reproducible.
#
# **Random functions can be tested exactly.** ``philox`` and the rule say for each element whether
# it is kept. The kernels must agree on every element and gradient, for all sizes and seeds. This
# shows that they follow the rule, but not that the rule is random. So count: an event of
# probability *q* happens about *nq* times in *n* trials, with a standard deviation of
# :math:`\sqrt{nq(1 - q)}`. A count that is off by five deviations practically never occurs.

# sphinx_gallery_fold = "checks every element and every gradient, and counts"


def expected_mask(n, p, seed):
    """Return the mask of *n* elements by the rule, without a kernel."""
    words = torch.stack(philox(seed, torch.arange((n + 3) // 4, device=DEVICE)), dim=1)
    return words.flatten()[:n] >= drop_threshold(p)


def check(x, p, seed):
    """Raise AssertionError where a function or its gradient differs from float64."""
    keep = expected_mask(x.numel(), p, seed)
    grad, x = torch.randn_like(x[:1]).expand_as(x), x.requires_grad_()
    y = seeded_dropout(x, p, seed)
    (dx,) = torch.autograd.grad(y, x, grad)
    for result, source in ((y, x), (dx, grad), (dropout(x.detach(), keep, p), x)):
        exact = torch.where(keep, source.double() / (1 - p), 0.0).to(x.dtype)
        torch.testing.assert_close(result, exact, equal_nan=True)  # rtol 1.3e-6 in fp32


seeds = {1: 0, 5: 1, 123: 2**31, 1024: 2**32 + 1, 4099: 2**64 - 1, 1_000_003: 2**63}
for n, seed in list(seeds.items())[: 5 + ON_GPU]:
    check(torch.randn(n, device=DEVICE), 0.3, seed)
for dtype in (torch.float16, torch.bfloat16)[: 1 + ON_GPU]:  # the interpreter gets bf16 wrong
    for p in (0.0, 0.1, 0.5, 0.999):
        x = torch.randn(1823, device=DEVICE, dtype=dtype)
        x[::10], x[1::10] = math.inf, math.nan
        check(x, p, 7)
print("both functions are right in every element, and so are the gradients")

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
# All rates count 8 bytes an element, as PyTorch's copy in fp32, which a kernel can exceed a little.

# sphinx_gallery_fold = "times the dropouts, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "seeded_dropout_kernel: 2²⁸ elements, fp32"
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table

values, rows = [], []  # values: (name, unit, value), what no benchmark holds
if ON_GPU:
    x = torch.randn(2**24, device=DEVICE, requires_grad=True)
    calls = {"torch": partial(functional.dropout, x), "seeded": partial(seeded_dropout, x, 0.5, 1)}
    for name, call in calls.items():
        before = torch.accelerator.memory_allocated()
        y = call()
        kept = torch.accelerator.memory_allocated() - before - y.nbytes
        values.append((f"kept, {name}", "bytes", kept / x.numel()))
        del y
    for n in [2**i for i in range(20, 29)]:
        x = torch.randn(n, device=DEVICE)
        calls = {
            "triton": partial(seeded_dropout, x, 0.5, 123),
            "triton, one sample a call": partial(one_sample_dropout, x, 0.5, 123),
            "torch": partial(functional.dropout, x, 0.5),
            "mask": partial(dropout, x, torch.rand_like(x) >= 0.5, 0.5),
            "copy": partial(torch.empty_like(x).copy_, x),
        }
        rows += rates((n,), calls, "GB/s", 8 * n, rounds=100)
    write_rows("dropout-performance.csv", ["size"], rows)
    names = {"triton": "seeded_dropout", "triton, one sample a call": "one number a call"}
    names |= {"torch": "PyTorch", "mask": "mask (computed before)", "copy": "copy (ceiling)"}
    title = "Dropout in fp32, p = 0.5"
    draw_rates(rows, names, title, "elements", share_of="copy", xscale="log")
else:
    print("Without a GPU there is nothing to time.")

# %%
# At 2²⁸ elements, all in GB/s:
#
# .. steps:: copy
#    :unit: GB/s
#
#    step_mask: a mask computed beforehand
#    step_one: no mask, one random number a call
#    step_four: all four numbers of a call
#
# **With a mask**, the bytes predict 8/9 of the copy, and the kernel reaches :measured:`mask_share`
# %. **One number a call** saves the ninth byte, but takes ten rounds of Philox for each element.
# **All four numbers** take a quarter of them: from 2²⁴ elements on, this version has at least
# :measured:`four` times the speed of one number a call. A GPU computes while it waits for memory.
#
# **PyTorch's dropout** writes a mask of :measured:`kept_torch` byte for each element and keeps it
# for the backward pass. ``seeded_dropout`` keeps no tensor. From 2²⁴ elements on, its speed on the
# GPU is at least :measured:`faster` times PyTorch's. A call with its checks (next section) keeps
# the CPU busy for :measured:`cpu` µs, and PyTorch's for :measured:`cpu_torch` µs. In a loop that
# does not wait, the larger of both times counts: the GPU's from :measured:`longer` elements on.
#
# In a program
# ------------
#
# A function that others call checks its arguments, launches on their GPU, and takes a *p* of 1. It
# also takes a **seed on the GPU**, an int64 tensor of one element. A *CUDA graph* records launches
# with their numbers, so a number would give the same mask in every replay. A tensor is read when
# the kernel runs, and ``seed.add_(1)`` between two replays gives a new mask. For ``torch.compile``
# the function is an *operation* of PyTorch, as in :doc:`01-vector-add`.

# sphinx_gallery_fold = "the functions with their checks"
from shared.launch import on_device_of

FLOATS = [torch.float16, torch.float32]
FLOATS = FLOATS + [torch.bfloat16] * ON_GPU  # the interpreter computes bf16 wrongly
ORDINARY = {torch.Tensor, torch.nn.Parameter, int, type(None)}  # other tensors may lack memory


@triton.jit(do_not_specialize=["threshold"])
def seed_in_memory_kernel(x_ptr, out_ptr, n, seed_ptr, threshold, scale, BLOCK: tl.constexpr):
    """Do what seeded_dropout_kernel does, with a seed that it reads."""
    seeded_dropout_kernel(x_ptr, out_ptr, n, tl.load(seed_ptr), threshold, scale, BLOCK)


def launch(x, x_keep, p, seed, block=1024):
    """Return dropout by a mask, or by a seed if the mask is None; the arguments are checked."""
    n = x.numel()
    if p == 1 or n == 0:
        return torch.zeros_like(x)
    x = x.resolve_neg()  # copies a tensor whose sign is still to be changed
    out, grid, scale = torch.empty_like(x), ((n + block - 1) // block,), 1 / (1 - p)
    with on_device_of(x):
        if x_keep is not None:
            dropout_kernel[grid](x, x_keep, out, n, scale, BLOCK=block)
            return out
        kernel = seed_in_memory_kernel if isinstance(seed, torch.Tensor) else seeded_dropout_kernel
        kernel[grid](x, out, n, seed, drop_threshold(p), scale, BLOCK=block)
    return out


class Dropout(torch.autograd.Function):
    """Dropout by a mask, or by a seed if the mask is None."""

    @staticmethod
    def forward(ctx, x, x_keep, p, seed):
        """Drop elements of *x*."""
        in_memory = isinstance(seed, torch.Tensor)
        ctx.save_for_backward(x_keep, seed if in_memory else None)
        ctx.p, ctx.seed = p, None if in_memory else seed
        return launch(x, x_keep, p, seed)

    @staticmethod
    def backward(ctx, grad):
        """Drop the same elements of the gradient."""
        x_keep, seed = ctx.saved_tensors  # raises if one of them was changed
        seed = ctx.seed if seed is None else seed
        return Dropout.apply(grad.contiguous(), x_keep, ctx.p, seed), None, None, None


SCHEMA = "(Tensor x, Tensor? x_keep, float p, int number, Tensor? seed) -> Tensor"


@torch.library.custom_op("gallery::dropout", mutates_args=(), schema=SCHEMA)
def dropout_op(x, x_keep, p, number, seed):
    """Drop elements of *x*: an operation that PyTorch's compiler calls without looking into it."""
    return launch(x, x_keep, p, number % 2**64 if seed is None else seed)


@dropout_op.register_fake
def dropout_shape(x, x_keep, p, number, seed):
    """Return a tensor like the result, without computing it: what the compiler has to know."""
    return torch.empty_like(x)


def keep_for_backward(ctx, inputs, output):
    """Keep what the backward pass of the operation needs."""
    _, x_keep, ctx.p, ctx.number, seed = inputs
    ctx.save_for_backward(x_keep, seed)


def backward_of_op(ctx, grad):
    """Drop the same elements of the gradient."""
    x_keep, seed = ctx.saved_tensors
    same = dropout_op(grad.contiguous(), x_keep, ctx.p, ctx.number, seed)
    return same, None, None, None, None


GRADIENT = dropout_op.register_autograd(backward_of_op, setup_context=keep_for_backward)


def apply(x, x_keep, p, seed):
    """Return dropout of checked arguments, in the way that is cheapest where it is called."""
    if torch.compiler.is_compiling() or not {type(x), type(x_keep), type(seed)} <= ORDINARY:
        if isinstance(seed, torch.Tensor):
            return dropout_op(x, x_keep, float(p), 0, seed)
        number = 0 if seed is None else seed - 2**64 if seed >= 2**63 else seed  # the same 64 bits
        return dropout_op(x, x_keep, float(p), number, None)
    if x.requires_grad and torch.is_grad_enabled():
        return Dropout.apply(x, x_keep, p, seed)
    return launch(x, x_keep, p, seed)


def check_arguments(x, p):
    """Raise TypeError or ValueError if the kernels cannot work on *x* and *p*."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in FLOATS:
        raise TypeError(f"the dtype of x must be in {FLOATS}, but is {x.dtype}")
    if x.device.type != DEVICE.type:
        raise ValueError(f"x must be on a {DEVICE.type} device, but is on {x.device}")
    if x.layout != torch.strided:
        raise ValueError(f"x must be contiguous, but has layout {x.layout}; pass x.to_dense()")
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
    return apply(x, x_keep, p, None)


def seeded_dropout(x, p, seed):
    """Return *x* with each element zero with probability *p*, and divided by ``1 - p`` otherwise.

    Only *seed*, *p* and its position in memory decide whether an element is dropped.

    Args:
        x: Contiguous tensor of any shape: float16, float32 or, on a GPU, bfloat16.
        p: Probability from 0 to 1, rounded to a multiple of 2⁻³². With 1 the result is zero.
        seed: Integer from 0 to 2⁶⁴ - 1, or an int64 tensor of one element on the device of *x*,
            which is read when the kernel runs. It must not change before the backward pass.

    Raises:
        TypeError, ValueError: An argument is not as described; the message names it.
        RuntimeError: In the backward pass, if a seed in memory has changed.
    """
    check_arguments(x, p)
    if isinstance(seed, torch.Tensor):
        usual = seed.dtype == torch.int64 and seed.numel() == 1 and seed.layout == torch.strided
        if not usual or seed.device != x.device:
            found = f"{seed.dtype}, {seed.layout}, of shape {tuple(seed.shape)} on {seed.device}"
            raise ValueError(f"seed, if a tensor, must be one int64 on {x.device}, but is {found}")
        seed = seed.resolve_neg()  # copies a seed whose sign is still to be changed
    elif isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int or a tensor, but is a {type(seed).__name__}")
    elif not 0 <= seed < 2**64:
        raise ValueError(f"seed must be from 0 to 2**64 - 1, but is {seed}")
    return apply(x, None, p, seed)


# %%
# These functions pass the same check, and seeds in memory as well:

# sphinx_gallery_fold = "checks the functions, times their calls, and keeps the values"


@triton.jit
def empty_kernel():
    """Do nothing."""


for n, seed in list(seeds.items())[: 5 + ON_GPU]:
    x = torch.randn(n, device=DEVICE)
    check(x, 0.3, seed)
    place = torch.tensor([seed - 2**64 * (seed >= 2**63)], device=DEVICE)
    keep = expected_mask(n, 0.3, seed)
    assert torch.equal(seeded_dropout(x, 0.3, place), dropout(x, keep, 0.3))
assert not seeded_dropout(x, 1.0, 7).any()
print("the functions with their checks are right in every element, too")

if ON_GPU:
    x = torch.randn(4096, device=DEVICE)
    calls = {"triton": partial(seeded_dropout, x, 0.5, 1), "torch": partial(functional.dropout, x)}
    cpu = write_calls({"seeded_dropout": calls | {"launch": empty_kernel[(1,)]}})
    times = {n: 8e-3 * n / rate for n, name, _, rate, *_ in rows if name == "triton"}  # µs
    longer = [n for n, time in times.items() if time > cpu["seeded_dropout", "triton"]]
    values.append(("GPU longer from", "elements", min(longer)))
    write_table("04-low-memory-dropout-values.csv", ["name", "unit", "value"], values)

# %%
# Exercises
# ---------
#
# 1. **A seed for each row** *(medium, 20 minutes)*. In ``seeded_dropout_rows(x, p, seeds)`` a row
#    has a seed, so it keeps its mask in any batch. :doc:`Solution <solutions/04-seed-per-row>`.
# 2. **Strided input** *(medium, 30 minutes)*. Let ``strided_dropout(x, p, seed)`` read any matrix
#    without a copy. Does an element's place in memory decide about it, or its row and column?
#    :doc:`Solution <solutions/04-strided-input>`.
# 3. **A random projection** *(hard, 40 minutes)*. ``project(x, k, s, seed)`` multiplies rows by a
#    random matrix of *k* columns that is never stored. One in *s* of its elements is ±√(s / k), the
#    others are 0. :doc:`Solution <solutions/04-sparse-johnson-lindenstrauss>`.
#
# References
# ----------
#
# * John K. Salmon and others: *Parallel random numbers: as easy as 1, 2, 3*, SC'11, 2011,
#   https://doi.org/10.1145/2063384.2063405
# * Nitish Srivastava and others: *Dropout: a simple way to prevent neural networks from
#   overfitting*, JMLR 15, 2014, https://jmlr.org/papers/v15/srivastava14a.html
