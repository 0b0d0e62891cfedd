"""
Low-memory dropout
==================

Dropout sets randomly chosen elements of a tensor to zero while a network is being trained. The
usual implementation keeps a list of what it dropped, the **mask**, because the backward pass has
to drop the same elements. Ours keeps a seed, and draws the same random numbers once more.

You will build ``seeded_dropout(x, p, seed)``, with its derivative, and learn

* what a mask costs, in bytes moved and in bytes kept;
* how a **counter-based** random number generator works, and why it suits a GPU;
* how to use all four numbers that such a generator makes at a time, and how to hand them out so
  that the mask depends on the seed and not on the tuning of the kernel;
* how to give a kernel a backward pass in PyTorch;
* how to test something random exactly.

You should know programs, blocks, offsets and masks from :doc:`01-vector-add`.

.. ladder::
"""

# %%
# Without a GPU the first cell chooses the interpreter.

# sphinx_gallery_fold = "chooses the device, brings the timing loop, the rounding and the plots"
# sphinx_gallery_thumbnail_number = 3
# sphinx_gallery_level = "transformer"
import math
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.measuring import measure, print_ratios, rates, significant, write_rows
from shared.plotting import CEILING, COMPILE, OTHER, OURS, TORCH, plot_rates
from shared.setup import DEVICE, ON_GPU

import triton
import triton.language as tl

if not ON_GPU:
    print("Kernels run on the CPU, in the interpreter")

# %%
# What dropout computes
# ---------------------
#
# Each element becomes zero with probability :math:`p`, independently of the others. What remains is
# divided by :math:`1 - p`, so that the expected value of every element stays as it was:
#
# .. math::
#    y_i = \begin{cases} \frac{x_i}{1 - p} & \text{if element } i \text{ is kept} \\
#                        0 & \text{if it is dropped} \end{cases}
#
# In PyTorch, with the choice given as a tensor of booleans, this is one line. It is our reference.


def dropout_reference(x, x_keep, p):
    """Return *x* divided by ``1 - p`` where *x_keep* is True, and zero elsewhere."""
    return torch.where(x_keep, x / (1 - p) if p < 1 else 0.0, 0.0)


# %%
# The derivative is as simple. A kept element was multiplied by a constant, so its gradient is
# multiplied by the same constant. A dropped element had no influence, so its gradient is zero.
# In other words: **the backward pass is dropout again**, of the gradient, with the same mask. It
# needs neither ``x`` nor ``y``. It only needs to know what was kept.
#
# Dropout with a mask
# -------------------
#
# The first kernel reads ``x`` and a mask that somebody else has drawn. Now there are two things
# called "mask", so they get two names: ``inside`` guards the end of the tensor, as in every kernel,
# and ``keep`` is the one of dropout.


@triton.jit
def dropout_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Scale what the mask keeps, zero the rest; one program works on BLOCK elements."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    keep = tl.load(keep_ptr + offsets, mask=inside, other=0)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


# %%
# Two details. The arithmetic is in fp32 even if the tensor is in fp16, so that only the result is
# rounded to fp16. And a dropped element is *chosen* to be zero, with ``tl.where``; it is not
# multiplied by zero, because infinity times zero is not a number.
#
# The checks of ``x`` and ``p`` are functions of their own. The next launcher needs them too.

# sphinx_gallery_fold = "checks x, the mask and p, and names the one that is wrong"

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_input(x):
    """Raise TypeError or ValueError where the kernels of this page cannot work on *x*."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in DTYPES:
        raise TypeError(f"x must be float16, bfloat16 or float32, but its dtype is {x.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {x.device}")
    if not x.is_contiguous():
        raise ValueError(
            f"x must be contiguous, but has shape {tuple(x.shape)} and strides {x.stride()}; "
            f"pass x.contiguous()"
        )


def check_probability(p):
    """Raise TypeError or ValueError where *p* is not a number from 0 to 1."""
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise TypeError(f"p must be a number, but is a {type(p).__name__}")
    if not 0 <= p <= 1:  # this refuses NaN as well
        raise ValueError(f"p must be from 0 to 1, but is {p}")


def check_mask(x, x_keep):
    """Raise TypeError or ValueError where *x_keep* is no mask for *x*."""
    if not isinstance(x_keep, torch.Tensor) or x_keep.dtype != torch.bool:
        kind = getattr(x_keep, "dtype", type(x_keep).__name__)
        raise TypeError(f"x_keep must be a tensor of torch.bool, but is {kind}")
    if x_keep.shape != x.shape or x_keep.device != x.device or not x_keep.is_contiguous():
        raise ValueError(
            f"x_keep must be contiguous, of shape {tuple(x.shape)} and on {x.device} as x is, but "
            f"has shape {tuple(x_keep.shape)}, strides {x_keep.stride()} and is on {x_keep.device}"
        )


# %%


def launch_dropout(x, x_keep, p):
    """Launch the kernel with a mask; the arguments have been checked."""
    if p == 1 or x.numel() == 0:
        return torch.zeros_like(x)
    out = torch.empty_like(x)
    n, block = x.numel(), 1024
    grid = (triton.cdiv(n, block),)
    dropout_kernel[grid](x, x_keep, out, n, 1 / (1 - p), BLOCK=block, num_warps=4)
    return out


# %%
# To train with it, PyTorch has to know the derivative. A ``torch.autograd.Function`` is a pair of
# methods: ``forward`` computes the result and leaves behind, in ``ctx``, what ``backward`` is going
# to need. Here that is the mask.


class MaskDropout(torch.autograd.Function):
    """Dropout that keeps its mask for the backward pass."""

    @staticmethod
    def forward(ctx, x, x_keep, p):
        """Drop elements of *x*."""
        ctx.save_for_backward(x_keep)
        ctx.p = p
        return launch_dropout(x, x_keep, p)

    @staticmethod
    def backward(ctx, grad):
        """Drop the same elements of the gradient."""
        (x_keep,) = ctx.saved_tensors
        return MaskDropout.apply(grad.contiguous(), x_keep, ctx.p), None, None


def dropout(x, x_keep, p):
    """Return *x* with zeros where *x_keep* is False, and divided by ``1 - p`` elsewhere.

    Args:
        x: Contiguous float16, bfloat16 or float32 tensor of any shape.
        x_keep: Contiguous boolean tensor of the same shape, on the same device.
        p: The probability of False in *x_keep*, from 0 to 1. With 1 the result is zero.

    Raises:
        TypeError: *x* or *x_keep* is no tensor of such a dtype, or *p* is no number.
        ValueError: Shapes, strides or devices do not fit, or *p* is out of range.
    """
    check_input(x)
    check_probability(p)
    check_mask(x, x_keep)
    return MaskDropout.apply(x, x_keep, p)


def draw_mask(x, p):
    """Return a mask for *x*, drawn by PyTorch's generator: True with probability ``1 - p``."""
    return torch.empty(x.shape, dtype=torch.bool, device=x.device).bernoulli_(1 - p)


# %%
# A small example. With ``p = 0.5``, what is kept is doubled.

# sphinx_gallery_fold = "prints an input, its mask and the output"


def print_rows(*rows):
    """Print rows of a name and a short vector below one another."""
    table = []
    for name, values in rows:
        if values.dtype == torch.bool:
            table.append([name, *("keep" if v else "-" for v in values.tolist())])
        else:
            table.append([name, *(f"{v:g}" for v in values.tolist())])
    align = ["left"] + ["right"] * values.numel()
    print(tabulate(table, disable_numparse=True, colalign=align, tablefmt="plain"))


torch.manual_seed(0)
x = torch.arange(1.0, 9.0, device=DEVICE)
x_keep = draw_mask(x, 0.5)
print_rows(("input", x), ("mask", x_keep), ("output", dropout(x, x_keep, 0.5)))

# %%
# What a mask costs
# -----------------
#
# Dropout of fp32 has to move 8 bytes an element: 4 are read, 4 are written. A mask of booleans adds
# one byte for each element. Whoever draws the mask writes it, our kernel reads it, and the backward
# pass reads it again.
#
# Worse than moving the mask is *keeping* it: it has to stay in memory from the forward pass until
# the backward pass returns to this layer, and a network has many layers. PyTorch tells us what a
# function keeps: it calls a hook for every tensor that is saved for the backward pass.

# sphinx_gallery_fold = "counts the bytes that are kept"


def bytes_kept(fn, n=1000):
    """Return the bytes an element that *fn* saves for the backward pass."""
    kept = []

    def count(saved):
        kept.append(saved.nbytes)
        return saved

    x = torch.randn(n, device=DEVICE, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved):
        fn(x)
    return sum(kept) / n


torch_bytes = bytes_kept(lambda x: functional.dropout(x, 0.5))
mask_bytes = bytes_kept(lambda x: dropout(x, draw_mask(x, 0.5), 0.5))
print("Bytes kept for the backward pass, for each element:")
print(f"  PyTorch's dropout {torch_bytes:g}, dropout with a mask {mask_bytes:g}")

# %%
# Why not remember only how the random numbers began, and draw them again? With an ordinary
# generator that is slow. It has a **state**: every number is made from the state that the number
# before it left behind, and whoever wants the millionth has to go through all before it. But the
# programs of a grid run at the same time and in any order. Each would have to wait for the one
# before it.
#
# Random numbers without a state
# ------------------------------
#
# A **counter-based** generator has no state. It is a function: give it a key and a counter, and you
# get random bits. The next counter gives bits that seem to have nothing to do with the first ones.
# It works like a cipher, which turns a message (the counter) into what looks like noise (the random
# bits), under a key (the seed). Whoever wants number one million calls it with one million: in any
# program, at any time, as often as needed. **A seed and an offset are enough.**
#
# Triton's generator is *Philox4x32-10*. (So is PyTorch's own, on a GPU; but PyTorch's dropout keeps
# the mask all the same.) Its counter is four words of 32 bits, and so is its result; its key is two
# words, which makes seeds of 64 bits. Ten times over, it multiplies two words of the counter by
# constants, and mixes both halves of the products with the other two words and the key. In PyTorch
# that is short enough to read. (A product of two words has 64 bits. PyTorch's integers have 64
# bits with a sign, so ``multiply`` puts it together from two smaller products.)

WORD = 0xFFFFFFFF  # the lower 32 bits


def multiply(a, b):
    """Return the upper and the lower word of ``a * b``, *b* being a tensor of words."""
    low = a * (b & 0xFFFF)
    high = a * (b >> 16) + (low >> 16)
    return high >> 16, ((high << 16) | (low & 0xFFFF)) & WORD


def philox(seed, counter):
    """Return four random words for each counter, as Philox4x32-10 gives them.

    Args:
        seed: Integer from 0 to 2⁶⁴ - 1.
        counter: Tensor of int64, none of them negative.
    """
    c0, c1 = counter & WORD, counter >> 32
    c2 = c3 = torch.zeros_like(counter)
    k0, k1 = seed & WORD, seed >> 32
    for _ in range(10):
        high0, low0 = multiply(0xD2511F53, c0)
        high2, low2 = multiply(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


# %%
# The authors of Philox published what it gives for a key and a counter of zero. If ours gave
# anything else, the script would end here.

words = [int(word) for word in philox(0, torch.tensor([0]))]
assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], words
print("seed 0, counter 0:", *(f"{word:08x}" for word in words))

# %%
# One number an element
# ---------------------
#
# In a kernel, ``tl.rand(seed, offsets)`` gives a block of floats from 0 up to (but not including)
# 1, with the offsets as counters. Compared with the kernel above, one load is gone.

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
    """Return dropout of *x* with one call of Philox for each element (a step on our way)."""
    out = torch.empty_like(x)
    n, block = x.numel(), 1024
    grid = (triton.cdiv(n, block),)
    one_sample_kernel[grid](x, out, n, seed, p, 1 / (1 - p), BLOCK=block, num_warps=4)
    return out


ones = torch.ones(8, device=DEVICE)
print_rows(("output, seed 1", one_sample_dropout(ones, 0.5, seed=1)),
           ("output, seed 2", one_sample_dropout(ones, 0.5, seed=2)))  # fmt: skip

# %%
# (Triton compiles another version of a kernel where an integer argument is 1 or divisible by 16,
# since that helps with addresses. A seed is no address and changes all the time:
# ``do_not_specialize`` keeps it out of this.)
#
# The kernel is right, and it wastes three quarters of its work. Philox makes four words, and
# ``tl.rand`` takes the first and throws the others away. Ten rounds of multiplications for every
# element are a lot of arithmetic for a kernel that ought to wait for nothing but memory.
#
# Four numbers a call, and who gets them
# --------------------------------------
#
# ``tl.randint4x(seed, counters)`` returns all four words of each counter, as four blocks ``w0``,
# ``w1``, ``w2`` and ``w3``. For ``BLOCK`` elements, ``BLOCK // 4`` counters will do. But which
# element gets which word?
#
# The obvious answer is a trap. Cut the block into quarters, and give ``w0`` to the first, ``w1`` to
# the second, and so on. Every element gets a number of its own, and all tests of randomness pass.
# But now the mask depends on ``BLOCK``. Tune the kernel, or move to a GPU that likes another block
# size, and the same seed drops other elements. Should the forward and the backward pass ever
# disagree about ``BLOCK``, the gradients would be wrong and nobody would be told.
#
# So we choose a rule that knows nothing of blocks: **element i gets word i % 4 of counter i // 4**.
# This picture is computed from the two rules, for sixteen elements and two sizes of blocks. Each
# cell says *counter.word*, and the cells of one counter have one colour.

# sphinx_gallery_fold = "draws who gets which word, by two rules"


def quarters(i, block):
    """Return counter and word of element *i*, if every block is cut into quarters."""
    quarter = block // 4
    return i // block * quarter + i % quarter, i % block // quarter


def neighbours(i, block):
    """Return counter and word of element *i*, if four neighbours share a counter."""
    return i // 4, i % 4


def draw_rules(rules, blocks, n=16):
    """Draw which counter and word each of *n* elements gets, one row a rule and block size."""
    colours = ["#ffffff", "#cfe3f1", "#f4b183", "#8fb996"]
    cell = {"ha": "center", "va": "center", "fontsize": 12}
    fig, ax = plt.subplots(figsize=(7, 4))
    for row, (rule, block) in enumerate((rule, block) for rule in rules for block in blocks):
        top = row + 0.4 * (row // len(blocks))
        for i in range(n):
            counter, word = rule(i, block)
            colour = colours[counter % len(colours)]
            ax.add_patch(plt.Rectangle((i, top), 1, 0.8, facecolor=colour, edgecolor="#444444"))
            ax.text(i + 0.5, top + 0.42, f"{counter}.{word}", **cell)
        for edge in range(0, n + 1, block):
            ax.plot([edge, edge], [top - 0.06, top + 0.86], color="black", linewidth=2.5)
        name = f"{rule.__name__},\nblocks of {block}"
        ax.text(-0.3, top + 0.42, name, **cell | {"ha": "right"})
    ax.set(xlim=(-4.2, n + 0.1), ylim=(top + 1, -0.9))
    for i in range(n):
        ax.text(i + 0.5, -0.5, str(i), **cell)
    ax.text(-0.3, -0.5, "element", **cell | {"ha": "right"})
    ax.set_title("counter.word of each element, by two rules")
    ax.axis("off")
    fig.tight_layout()
    plt.show()


draw_rules([quarters, neighbours], blocks=[8, 16])

# %%
# With quarters, the first row and the second disagree about most elements. With neighbours,
# the edges of the blocks (thick lines) change nothing.
#
# How does a kernel bring four blocks of words into that order? ``tl.interleave(a, b)`` takes turns
# between two blocks: ``a[0], b[0], a[1], b[1], …``. Interleave ``w0`` with ``w2`` and ``w1`` with
# ``w3``, then interleave the results: ``w0[0], w1[0], w2[0], w3[0], w0[1], …``.
#
# That sounds like a lot of moving around. In fact nothing moves, as long as each thread has four
# elements or more; below the kernel you will see how one can tell. Triton decides which thread
# holds which elements, and to read fp32 in pieces of 16 bytes, a thread holds four neighbours. The
# same thread then calls Philox for their counter, and has the four words in registers of its own,
# where they are needed. Interleaving is only a matter of what these registers are called.
#
# .. note::
#    The rule has to be fixed, not this very rule. Sharing a counter among four elements at a fixed
#    distance, say 1024, would be as independent of the block. But neighbours are simpler, and
#    they need a single load and a single store.
#
# Compare integers
# ----------------
#
# ``tl.rand`` turns each word into a float, to be compared with :math:`p`. Shorter is the other way
# round: turn :math:`p` into an integer, once, in the launcher. A word takes each value from 0 to
# 2³² − 1 with the same probability, so it is less than :math:`t = p \cdot 2^{32}` with probability
# :math:`p`. Making :math:`t` an integer of 32 bits changes :math:`p` by 2⁻³² at most.
#
# One thing has to be looked after: which integers? Triton's words have the type ``int32``, whose
# highest bit is a sign. Read like that, every second word is negative, and smaller than any
# threshold. Here are the same 32 bits, read in both ways:

word = torch.tensor([0xE169C58D - 2**32], dtype=torch.int32)
print("with a sign:", word.item(), "  without:", word.view(torch.uint32).item())

# %%
# ``words.to(tl.uint32, bitcast=True)`` does to a block what ``view`` does here: the bits stay, and
# only the way to read them is another one. (Without ``bitcast`` it would *convert* the numbers.
# Between these two types that happens to keep the bits as well; from ``int32`` to ``float32``, say,
# it does not. ``bitcast`` says what is meant.)

# sphinx_gallery_difference = "one_sample_kernel"


def drop_threshold(p):
    """Return t so that a random word is below t with probability *p*; *p* is less than 1."""
    return min(round(p * 2**32), 2**32 - 1)


@triton.jit(do_not_specialize=["seed", "threshold"])
def seeded_dropout_kernel(x_ptr, out_ptr, n, seed, threshold, scale, BLOCK: tl.constexpr):
    """Keep element i if word i % 4 of counter i // 4 is at least the threshold."""
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    counters = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))  # [BLOCK]
    keep = words.to(tl.uint32, bitcast=True) >= threshold.to(tl.uint32)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def launch_seeded_dropout(x, p, seed, block=1024):
    """Launch the kernel with a seed; the arguments have been checked."""
    if p == 1 or x.numel() == 0:
        return torch.zeros_like(x)
    out = torch.empty_like(x)
    n, threshold = x.numel(), drop_threshold(p)
    grid = (triton.cdiv(n, block),)
    seeded_dropout_kernel[grid](
        x, out, n, seed, threshold, 1 / (1 - p), BLOCK=block, num_warps=4
    )  # fmt: skip
    return out


# %%
# Does nothing move, as promised? Data that changes from one thread to another goes through shared
# memory. The compiled kernel, which a launch returns, says how much of it was asked for. With
# blocks of 1024 on 4 warps of 32 threads, each thread has eight elements; with 256, it has only
# two, and a counter's four words belong to two threads:

# sphinx_gallery_fold = "prints the shared memory of the kernel, for two sizes of a block"

if ON_GPU:
    x = torch.ones(4096, device=DEVICE)
    for block in (1024, 256):
        compiled = seeded_dropout_kernel[(4096 // block,)](
            x, torch.empty_like(x), 4096, 0, drop_threshold(0.5), 2.0, BLOCK=block, num_warps=4
        )  # fmt: skip
        print(f"blocks of {block:4d}: {compiled.metadata.shared} bytes of shared memory")
else:
    print("The interpreter compiles nothing, so there is no shared memory to ask for.")

# %%
# The bounds of ``p`` deserve a thought. With ``p = 0`` the threshold is 0, no word is below it, and
# the scale is 1: the output is the input, bit for bit, without any special treatment. With
# ``p = 1`` the scale would be 1/0, so the launcher returns zeros without asking our kernel.
#
# A backward pass without a mask
# ------------------------------
#
# Now the autograd function is *shorter* than the one above. There is no ``save_for_backward``: two
# Python numbers stay behind, however large the tensor is. And since the backward pass is dropout
# with the same mask, ``backward`` may call the function itself, which makes second derivatives
# right, too.


class SeededDropout(torch.autograd.Function):
    """Dropout that keeps its seed for the backward pass, and draws the same mask again."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Drop elements of *x*."""
        ctx.p, ctx.seed = p, seed
        return launch_seeded_dropout(x, p, seed)

    @staticmethod
    def backward(ctx, grad):
        """Drop the same elements of the gradient, by drawing the mask again."""
        return SeededDropout.apply(grad.contiguous(), ctx.p, ctx.seed), None, None


def seeded_dropout(x, p, seed):
    """Return *x* with each element zero with probability *p*, and divided by ``1 - p`` otherwise.

    An element is dropped or not depending on *seed*, *p* and its position in memory order, and on
    nothing else. Nothing but *seed* and *p* is kept for the backward pass.

    Args:
        x: Contiguous float16, bfloat16 or float32 tensor of any shape.
        p: Probability from 0 to 1, rounded to a multiple of 2⁻³². With 1 the result is zero.
        seed: Integer from 0 to 2⁶⁴ - 1.

    Raises:
        TypeError: *x* is no tensor of such a dtype, *p* no number or *seed* no integer.
        ValueError: *x* is not contiguous or on another device, or *p* or *seed* is out of range.
    """
    check_input(x)
    check_probability(p)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int, but is a {type(seed).__name__}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be from 0 to 2**64 - 1, but is {seed}")
    return SeededDropout.apply(x, p, seed)


# %%
# (Why ``grad.contiguous()``? You choose ``x``, but autograd chooses the gradient: after
# ``y.sum()``, it is one number *expanded* to the shape of ``y``, with strides of zero.)
#
# One seed gives one mask, each time; another seed gives another mask:

x = torch.arange(1.0, 9.0, device=DEVICE)
print_rows(
    ("input", x),
    ("mask, seed 123", seeded_dropout(torch.ones_like(x), 0.5, seed=123) > 0),
    ("output, seed 123", seeded_dropout(x, 0.5, seed=123)),
    ("output, seed 123 again", seeded_dropout(x, 0.5, seed=123)),
    ("mask, seed 124", seeded_dropout(torch.ones_like(x), 0.5, seed=124) > 0),
    ("output, seed 124", seeded_dropout(x, 0.5, seed=124)),
)

# %%
# Here is how the first of these masks came about, drawn with our own ``philox`` in PyTorch. The
# words are written as fractions of 2³².

# sphinx_gallery_fold = "draws the way from counters to elements that are kept"


def draw_philox(seed, p, counters=2):
    """Draw the way from counters to words to elements that are kept (or dropped: hatched)."""
    words = torch.stack(philox(seed, torch.arange(counters)), dim=1).tolist()
    fig, ax = plt.subplots(figsize=(7, 4))
    style = {"ha": "center", "va": "center", "fontsize": 13}

    def box(left, top, width, text, **face):
        face = {"facecolor": "white", "edgecolor": "#444444"} | face
        ax.add_patch(plt.Rectangle((left + 0.04, top), width - 0.08, 0.8, **face))
        back = {"facecolor": face["facecolor"], "edgecolor": "none", "pad": 0}
        ax.text(left + width / 2, top + 0.41, text, bbox=back, **style)

    def arrow(x, top):
        line = {"arrowstyle": "->", "color": "#444444"}
        ax.annotate("", (x, top + 0.6), (x, top), arrowprops=line)

    for c in range(counters):
        left = 4.3 * c
        box(left + 1, 0, 2, f"counter {c}", facecolor="#cfe3f1")
        arrow(left + 2, 0.8)
        box(left, 1.4, 4, f"Philox, seed {seed}", facecolor="#f7d9b5")
        for i, word in enumerate(words[c]):
            arrow(left + i + 0.5, 2.2)
            box(left + i, 2.8, 1, f"{word / 2**32:.2f}")
            arrow(left + i + 0.5, 3.6)
            if word >= drop_threshold(p):
                box(left + i, 4.2, 1, "keep", facecolor="#d4ecc4")
            else:
                box(left + i, 4.2, 1, "drop", facecolor="#eeeeee", hatch="////")
            ax.text(left + i + 0.5, 5.4, str(4 * c + i), **style)
    labels = {0.4: "i // 4", 1.8: "ten rounds", 3.2: "word / 2³²", 4.6: f"≥ {p}?", 5.4: "element i"}
    for top, label in labels.items():
        ax.text(-0.2, top, label, **style | {"ha": "right"})
    ax.set(xlim=(-2.4, 4.3 * counters - 0.2), ylim=(5.8, -0.2))
    ax.set_title("From counters to words to elements that are kept")
    ax.axis("off")
    fig.tight_layout()
    plt.show()


draw_philox(seed=123, p=0.5)

# %%
# A practical word on seeds. If every training step had the *same* seed, the same elements would be
# missing in every step. The network would simply be a smaller one: nothing random would be left in
# its training, no part of it would have to do without another one now and then, and that was the
# point of dropout. Count the elements that are never kept, in the first steps of a training:

for name, seed_of in (("one seed for all steps", lambda step: 7), ("a new one each", hash)):
    kept = torch.zeros(4096, dtype=torch.bool, device=DEVICE)
    for step in range(16):
        kept |= seeded_dropout(torch.ones(4096, device=DEVICE), 0.5, seed_of(step)) > 0
    print(f"{name}: {(~kept).sum().item()} of 4096 elements are never kept")

# %%
# So give every call a new seed (also each layer, or all of them drop the same positions), for
# instance ``torch.randint(2**63 - 1, ()).item()``: this asks the generator on the CPU, does not
# wait for the GPU, and obeys ``torch.manual_seed``.
#
# Is it right?
# ------------
#
# Random does not mean untestable. ``philox`` and the rule tell for each element whether it is kept,
# without any kernel or block. The kernel has to agree on **every element**: for sizes that fill no
# block, for seeds of more than 32 bits, and for several block sizes.

# sphinx_gallery_fold = "checks every element against the rule"


def expected_mask(n, p, seed):
    """Return the mask of *n* elements according to the rule, without a kernel."""
    words = torch.stack(philox(seed, torch.arange((n + 3) // 4, device=DEVICE)), dim=1)
    return words.flatten()[:n] >= drop_threshold(p)


sizes = [1, 5, 123, 1024, 4099] + ([1_000_003] if ON_GPU else [])
seeds = [0, 1, 2**31, 2**32 + 1, 2**64 - 1]
for n, seed in [(n, 123) for n in sizes] + [(4099, seed) for seed in seeds]:
    x = torch.randn(n, device=DEVICE)
    y = seeded_dropout(x, 0.3, seed)
    # Dropped elements must be exact zeros. The others are x * (1 / 0.7) where the reference has
    # x / 0.7: two roundings instead of one, well within the default tolerance of fp32.
    torch.testing.assert_close(y, dropout_reference(x, expected_mask(n, 0.3, seed), 0.3))
for block in (64, 256, 4096):
    assert torch.equal(y, launch_seeded_dropout(x, 0.3, seed, block)), f"blocks of {block}"
print(f"The mask is that of the rule, for {len(sizes)} sizes, {1 + len(seeds)} seeds and 4 blocks")

# %%
# Next, both kernels in all dtypes, up to the bounds of ``p``. There are infinities and NaNs in the
# input; where they are dropped, they must become zeros. (The interpreter gets bf16 wrong, so bf16
# is left to GPUs.)

# sphinx_gallery_fold = "checks both kernels in all dtypes"

for dtype in DTYPES if ON_GPU else (torch.float16, torch.float32):
    x = torch.randn(1823, device=DEVICE).to(dtype)
    x[::10], x[1::10] = math.inf, math.nan
    for p in (0.0, 0.1, 0.5, 0.999, 1.0):
        keep = expected_mask(x.numel(), p, seed=7)
        expected = dropout_reference(x.float(), keep, p).to(dtype)
        for y in (dropout(x, keep, p), seeded_dropout(x, p, seed=7)):
            torch.testing.assert_close(y, expected, equal_nan=True)
            assert not y[~keep].any(), "a dropped element is not zero"
    torch.testing.assert_close(seeded_dropout(x, 0.0, 7), x, rtol=0, atol=0, equal_nan=True)
    assert not seeded_dropout(x, 1.0, 7).any(), "p = 1 left something over"
assert seeded_dropout(torch.empty(0, 3, device=DEVICE), 0.5, 7).shape == (0, 3)
# The kernel with one sample a call follows another rule, but has to drop as many:
y = one_sample_dropout(torch.ones(2**14, device=DEVICE), 0.25, seed=7)
kept = y != 0
torch.testing.assert_close(y[kept], torch.full_like(y[kept], 4 / 3))
assert abs(kept.sum().item() - 0.75 * 2**14) < 5 * math.sqrt(2**14 * 0.75 * 0.25)
print("Both kernels agree with PyTorch; p = 0 changes nothing, p = 1 leaves nothing")

# %%
# Now the gradients. First against PyTorch's rule. Then without any rule: with a fixed seed, dropout
# is linear, so a step along any direction, however long, has to change the output by what the
# derivative says.

# sphinx_gallery_fold = "checks the gradients"

x = torch.randn(1823, device=DEVICE, requires_grad=True)
grad, step = torch.randn_like(x), torch.randn_like(x)
keep = expected_mask(x.numel(), 0.3, seed=11)
for fn in (lambda x: seeded_dropout(x, 0.3, seed=11), lambda x: dropout(x, keep, 0.3)):
    (dx,) = torch.autograd.grad(fn(x), x, grad)
    torch.testing.assert_close(dx, dropout_reference(grad, keep, 0.3))
    change = (fn(x + step) - fn(x)).double() @ grad.double()
    # Each of the 1823 terms has the rounding of a few fp32 numbers, about 1e-7 of its size.
    torch.testing.assert_close(change, step.double() @ dx.double(), rtol=1e-5, atol=1e-4)
    (dx,) = torch.autograd.grad(fn(x).sum(), x)
    torch.testing.assert_close(dx, dropout_reference(torch.ones_like(x), keep, 0.3))
print("Both gradients are right")

# %%
# All of this shows that the kernel follows the rule, not that the rule is random. So count. If each
# of :math:`n` elements is kept with probability :math:`q`, independently, then :math:`nq` are kept
# on average, with a standard deviation of :math:`\sqrt{nq(1 - q)}`. A good generator is rarely
# more than three of them off, and practically never five. Besides all elements, count the elements
# of each of the four words, pairs of neighbours that are both kept, and positions at which two
# seeds agree. One of the tables is printed; all of them are checked.

# sphinx_gallery_fold = "counts what is kept, and checks the counts"


def count_kept(n, p):
    """Return rows: what is counted, of how many, how many, how many expected, deviations."""
    ones = torch.ones(n, device=DEVICE)
    keep, other = (seeded_dropout(ones, p, seed) > 0 for seed in (1, 2))
    cases = [("elements kept", keep, 1 - p)]
    cases += [(f"word {word} kept", keep[word::4], 1 - p) for word in range(4)]
    cases += [("both neighbours kept", keep[0::2] & keep[1::2], (1 - p) ** 2)]
    cases += [("two seeds agree", keep == other, p**2 + (1 - p) ** 2)]
    rows = []
    for name, events, q in cases:
        n, count = events.numel(), events.sum().item()
        rows.append([name, n, count, n * q, (count - n * q) / math.sqrt(n * q * (1 - q))])
    return rows


def print_counts(rows, p):
    """Print what ``count_kept`` has counted."""
    table = [(*row[:3], f"{row[3]:.0f}", significant(row[4])) for row in rows]
    headers = [f"p = {p}", "of", "counted", "expected", "deviations"]
    align = {"stralign": "right", "colalign": ["left"]}
    print(tabulate(table, headers, disable_numparse=True, **align))


for p in (0.01, 0.25, 0.5, 0.9):
    rows = count_kept(2**24 if ON_GPU else 2**14, p)
    for name, *_, deviations in rows:
        assert abs(deviations) < 5, f"p={p}, {name}: {deviations:.1f} standard deviations off"
    if p == 0.25:
        print_counts(rows, p)

# %%
# Finally, what the launcher refuses. The second case would go wrong quietly: the kernel would
# number the elements in the order of memory, so a transposed matrix and a contiguous copy of it
# would get different masks from one seed.

x = torch.ones(4, 6, device=DEVICE)
for wrong in ((x.double(), 0.5, 0), (x.T, 0.5, 0), (x, 1.5, 0), (x, 0.5, -1), (x, 0.5, 1.0)):
    try:
        seeded_dropout(*wrong)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("seeded_dropout should have refused this")

# %%
# What is kept now
# ----------------
#
# First, what PyTorch's hook says, as above:

seeded_bytes = bytes_kept(lambda x: seeded_dropout(x, 0.5, seed=0))
assert seeded_bytes == 0, seeded_bytes
print(f"Bytes kept for the backward pass, for each element: {seeded_bytes:g}")

# %%
# Then, what the GPU's memory says: how much more is in use after the forward pass (not counting the
# output), and at the peak of forward and backward pass together. With one layer, everybody needs
# room for the output and the gradient. The difference grows with the number of layers, because an
# output that is not needed any more makes room for the next one, and a mask does not. The last
# column compares each peak with that of ``seeded_dropout``.

# sphinx_gallery_fold = "measures the memory"


def measure_memory(layer_fn, layers, n=2**24):
    """Return the bytes an element kept after the forward pass, and at the peak of both passes."""
    x = torch.randn(n, device=DEVICE, requires_grad=True)
    grad = torch.randn(n, device=DEVICE)
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    y = x
    for layer in range(layers):
        y = layer_fn(y, layer)
    kept = torch.accelerator.memory_allocated() - before - y.nbytes
    y.backward(grad)
    return kept / n, (torch.accelerator.max_memory_allocated() - before) / n


layer_fns = {
    "seeded": lambda x, layer: seeded_dropout(x, 0.5, seed=layer),
    "torch": lambda x, layer: functional.dropout(x, 0.5),
    "mask": lambda x, layer: dropout(x, draw_mask(x, 0.5), 0.5),
}


def print_memory(rows):
    """Print rows (layers, dropout, bytes kept, bytes at the peak), and the ratios of the peaks."""
    peaks = {(layers, name): peak for layers, name, _, peak in rows}
    table = []
    for layers, name, kept, peak in rows:
        measured = (kept, peak, peak / peaks[layers, "seeded"])
        table.append((layers, name, *map(significant, measured)))
    headers = ["layers", "dropout", "kept for\nbackward", "peak, forward\n+ backward",
               "peak\n/ seeded"]  # fmt: skip
    print("GPU memory in bytes for each element of an fp32 tensor, lower is better")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    memory = [(n, name, *measure_memory(fn, n)) for n in (1, 8) for name, fn in layer_fns.items()]
    print_memory(memory)
else:
    print("Without a GPU there is no GPU memory to measure.")

# %%
# The benchmark
# -------------
#
# Rates are in GB/s. Everybody is credited with what dropout of fp32 *has to* move, 8 bytes an
# element; whoever moves more has a lower rate to show for it.
#
# ``triton``
#     ``seeded_dropout``.
# ``triton, one sample a call``
#     The step before it, with one call of Philox for each element (in the tables: "one a call").
# ``torch``
#     ``torch.nn.functional.dropout``. On a GPU it also writes a mask for its backward pass.
# ``mask``
#     ``dropout`` with a mask that is there already: drawing it is not even counted.
# ``copy``
#     ``out.copy_(x)`` moves the same 8 bytes and computes nothing: the ceiling.
#
# The loop that measures is that of :doc:`01-vector-add`, and
# :doc:`/programming-guide/chapter-4/measuring` takes it apart. (The largest tensors need several
# gigabytes. On a GPU with less memory, shorten the list of sizes.)

# sphinx_gallery_fold = "times the dropouts, and keeps the rows"


def benchmark(sizes, p=0.5, seed=123):
    """Return rows (size, provider, unit, median, p20, p80)."""
    rows = []
    for n in sizes:
        x = torch.randn(n, device=DEVICE)
        calls = {
            "triton": partial(seeded_dropout, x, p, seed),
            "triton, one sample a call": partial(one_sample_dropout, x, p, seed),
            "torch": partial(functional.dropout, x, p),
            "mask": partial(dropout, x, draw_mask(x, p), p),
            "copy": partial(torch.empty_like(x).copy_, x),
        }
        for provider, ms in measure(calls, 100).items():
            rows.append((n, provider, "GB/s", *rates(ms, 8 * n)))
    return rows


if ON_GPU:
    rows = benchmark([2**i for i in range(20, 29)])
    write_rows("dropout-performance.csv", ["size"], rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# All rows are in the CSV file; here is every second size:

# sphinx_gallery_fold = "prints the rates at every second size"


def print_table(rows, every=2):
    """Print the median rates and their ratios, for every second size."""
    rate = {(n, provider): median for n, provider, _, median, _, _ in rows}
    table = []
    for n in sorted({n for n, _ in rate})[::every]:
        ours, one, torchs, masks, copys = (rate[n, provider] for provider in STYLES)
        measured = (ours, one, torchs, masks, copys, ours / torchs, ours / copys)
        table.append((n, *map(significant, measured)))
    headers = ["size", "triton", "one a\ncall", "torch", "mask", "copy", "/torch", "/copy"]
    print("GB/s, higher is better; /torch and /copy: triton's ratio to them")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


STYLES = {
    "triton": ("triton", OURS),
    "triton, one sample a call": ("triton, one sample a call", COMPILE | {"linestyle": ":"}),
    "torch": ("torch (best alternative)", TORCH),
    "mask": ("mask (already drawn)", OTHER),
    "copy": ("copy (ceiling)", CEILING),
}
if ON_GPU:
    print_table(rows)
else:
    print("No table without a GPU.")

# %%
# And all of them as a picture; the bands reach from the 20th to the 80th percentile.

# sphinx_gallery_fold = "plots the rates"


def plot_dropouts(rows):
    """Draw rate over size."""
    fig, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    lines = {
        label: (style, [(row[0], *row[3:]) for row in rows if row[1] == provider])
        for provider, (label, style) in STYLES.items()
    }
    plot_rates(ax, lines, "Dropout in fp32, p = 0.5", "elements", "GB/s")
    ax.set_xscale("log", base=2)
    fig.legend(loc="outside lower center", ncols=2)
    plt.show()


if ON_GPU:
    plot_dropouts(rows)
else:
    print("No plot without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **The left end** is lower than the right for all of them, because getting a kernel going takes its
# time, too. The faster the memory, the larger is its share, and the less is gained there by moving
# fewer bytes.
#
# **The right end** shows what limits each kernel. The copy is limited by memory. The mask's kernel
# is, too, but it moves 9 bytes where 8 count: 8/9 of the copy's rate, or thereabouts, is what it
# can have. PyTorch's kernel *writes* the ninth byte, so it can have no more. It also has to draw
# the numbers: where it falls clearly short of the mask's curve, it is not the number of bytes that
# holds it back. What does, a profiler can tell: :doc:`/programming-guide/chapter-5/profiling`.
#
# **One sample a call and four** move the same bytes. Where their curves part, it is arithmetic that
# limits the lower one, with four times as many calls of Philox. Where they coincide, the GPU
# computes so fast, compared with its memory, that even this is hidden.
#
# **A seeded kernel close to the copy** has its random numbers for free: they are computed while
# the memory is busy. To make a number again can be cheaper than to remember it.
#
# The ratios, computed from the rows above, for all sizes and then for the large ones:

# sphinx_gallery_fold = "prints the ratios"

if ON_GPU:
    rate = {(n, provider): median for n, provider, _, median, _, _ in rows}
    pairs = {f"triton / {other}": ("triton", other) for other in ("torch", "mask", "copy")}
    pairs["triton / one a call"] = "triton", "triton, one sample a call"
    print_ratios(rate, pairs)
    print("\nFrom 2^24 elements on:")
    print_ratios({(n, who): r for (n, who), r in rate.items() if n >= 2**24}, pairs)
else:
    print("No ratios without a GPU.")

# %%
# What the run showed
# -------------------
#
# The ladder at the top of this page, and what the page has claimed, each beside the limit that it
# must keep:

# sphinx_gallery_fold = "prints the ladder, and computes the claims"

if ON_GPU:
    at = 2**28
    changes = {
        "What dropout computes": ("PyTorch's, which draws and keeps a mask", "torch"),
        "Dropout with a mask": ("a mask that is there already", "mask"),
        "One number an element": ("no mask; one word in four used", "triton, one sample a call"),
        "Four numbers a call, and who gets them": ("all four words in use", "triton"),
    }
    rungs = [(step, change, rate[at, name]) for step, (change, name) in changes.items()]
    ladder(rungs, ("a copy", rate[at, "copy"]), "GB/s", "2^28 elements, fp32")
    print()

    def least(other):
        """Return the least ratio of our rate to that of *other*, from 2²⁴ elements on."""
        sizes = sorted({n for n, _ in rate if n >= 2**24})
        return min(rate[n, "triton"] / rate[n, other] for n in sizes)

    scatter = spread(rows[-5:])
    peak = {(layers, name): value for layers, name, _, value in memory}
    claim(
        "a seed keeps a byte less for each element than PyTorch's dropout",
        torch_bytes - seeded_bytes, at_least=1, section="What is kept now",
    )  # fmt: skip
    claim(
        "with eight layers, PyTorch's dropout needs a fifth more memory at its peak, or more",
        peak[8, "torch"] / peak[8, "seeded"], at_least=1.2, section="What is kept now",
    )  # fmt: skip
    claim(
        "from 2^24 elements on, it is a fifth faster than PyTorch's, or more",
        least("torch"), at_least=1.2, spread=scatter, section="How to read the curves",
    )  # fmt: skip
    claim(
        "and faster than the kernel that reads a mask",
        least("mask"), at_least=1.0, spread=scatter, section="How to read the curves",
    )  # fmt: skip
    claim(
        "four samples a call are a fifth faster than one, or more",
        least("triton, one sample a call"), at_least=1.2, spread=scatter,
        section="Four numbers a call, and who gets them",
    )  # fmt: skip
    claim(
        "the random numbers are nearly free: nine tenths of a copy, or more",
        least("copy"), at_least=0.9, spread=scatter, section="How to read the curves",
    )  # fmt: skip
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * Ask what the backward pass really needs. Sometimes it can be computed again.
# * A counter-based generator is a function of a seed and an offset: no state, no order, no memory.
# * Take all four numbers of a call, and hand them out by a rule that knows nothing of blocks.
# * A kernel that waits for memory has time for arithmetic: use it.
# * Random code can be tested exactly, and should be tested statistically as well.
#
# Exercises
# ---------
#
# 1. **A seed for each row.** Extend the kernel to a matrix with a vector of seeds, so that a row
#    keeps its mask whichever batch it is part of. :doc:`Solution <solutions/04-seed-per-row>`.
# 2. **Strided input.** Let the kernel read a matrix with any strides, a transposed one for example,
#    without a copy. What should decide about an element: its place in memory, or its row and its
#    column? :doc:`Solution <solutions/04-strided-input>`.
# 3. **A random projection that is never stored.** A sparse Johnson–Lindenstrauss projection takes
#    vectors to fewer dimensions and preserves their distances, with a random matrix that is mostly
#    zeros. Multiply by that matrix while generating it.
#    :doc:`Solution <solutions/04-sparse-johnson-lindenstrauss>`.
#
# References
# ----------
#
# * John K. Salmon, Mark A. Moraes, Ron O. Dror and David E. Shaw: *Parallel random numbers: as easy
#   as 1, 2, 3*, SC'11, 2011, https://doi.org/10.1145/2063384.2063405: counter-based generators and
#   Philox.
# * Nitish Srivastava, Geoffrey Hinton, Alex Krizhevsky, Ilya Sutskever and Ruslan Salakhutdinov:
#   *Dropout: a simple way to prevent neural networks from overfitting*, Journal of Machine Learning
#   Research 15, 2014, https://jmlr.org/papers/v15/srivastava14a.html
