"""
Sampling
========

You build ``sample(logits, temperature, top_k, top_p, seed)``, which chooses the next token of a
language model without a sort. With top-p, it takes :measured:`triton` µs for 128 rows of 131,072
logits, and sampling with PyTorch's sort takes :measured:`faster` times as long. You need
:doc:`02-fused-softmax` and :doc:`04-low-memory-dropout`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
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
LOWEST = tl.constexpr(-(2**31))  # the lowest key
PIECE = tl.constexpr(1024 if ON_GPU else 128)  # logits of a block, few for the interpreter
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# A threshold instead of a sort
# -----------------------------
#
# A model gives each token of its vocabulary a **logit** *x*. The next token is sampled in
# proportion to the **weights** :math:`e^{x / T}`: the lower the **temperature** *T*, the more often
# the largest logit wins. Two settings exclude unlikely tokens:
#
# * **Top-k** keeps the *k* largest logits.
# * **Top-p** keeps the fewest logits, the largest first, whose weights add up to at least the share
#   *p* of the sum.
#
# Both keep all logits from one value on, the **threshold**; equal logits stay or go together. A
# sort finds it, but moves every logit several times. **Bisection** only adds: guess a threshold,
# and add up the weights of the logits that are not below it. If the sum reaches the share *p* (here
# 0.9), the threshold is the guess or larger, else it is smaller. Each round halves the range:

torch.manual_seed(0)
x = torch.tensor([2.0, 1.7, 1.1, 0.9, 0.3, 0.1, -0.4, -0.9, -1.3, -2.0])
weights = torch.exp(x - x.max())
goal = 0.9 * weights.sum()
low, high = x.min(), x.max()
for turn in range(8):
    middle = (low + high) / 2
    total = weights[x >= middle].sum()
    sign = ">=" if total >= goal else "< "
    print(f"{turn + 1}: {total:.2f} from {middle:6.3f} on, {sign} {goal:.2f}")
    low, high = (middle, high) if total >= goal else (low, middle)

# %%
# The weights, their sum from the left, and the threshold, after the last token that is kept:

# sphinx_gallery_fold = "draws the weights, their sum and the threshold"
from shared.sampling import draw_keys, draw_threshold

draw_threshold(weights, goal)

# %%
# To find the exact threshold, the kernel bisects integers: the **keys** of the logits, in the same
# order as the logits.
#
# The kernel
# ----------
#
# One program samples one row, in blocks of ``PIECE`` logits:

# sphinx_gallery_fold = "the whole cell, with load_row and weight_of"
# sphinx_gallery_show = "key_of_float, units_of, above, bisect"

from shared.sampling import LARGEST, load_row, nearest, weight_of


@triton.jit
def key_of_float(x):
    """Return int32 keys in the order of the floats *x*."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0.0 becomes 0.0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def units_of(x, m, rate):
    """Return the weights as integers, in units of 2**-40; that of the maximum *m* is 2**40."""
    return nearest(weight_of(x, m, rate) * 2.0**40)  # <-


@triton.jit
def above(row_ptr, V, key, m, rate, COUNT: tl.constexpr):
    """Return the sum of the weights from *key* on; with COUNT, the number of logits."""
    total = tl.zeros((PIECE,), tl.int64)
    for start in range(0, V, PIECE):
        x = load_row(row_ptr, start + tl.arange(0, PIECE), V)
        units = tl.full((PIECE,), 1, tl.int64) if COUNT else units_of(x, m, rate)
        total += tl.where(key_of_float(x) >= key, units, 0)
    return tl.sum(total)


@triton.jit
def bisect(row_ptr, V, goal, m, rate, COUNT: tl.constexpr):
    """Return the largest key from which on the weights of a row add up to at least *goal*."""
    low, high = tl.full((), LOWEST, tl.int32), key_of_float(m)
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up, without overflow
        if above(row_ptr, V, middle, m, rate, COUNT) >= goal:  # <-
            low = middle
        else:
            high = middle - 1
    return low


# %%
# In the fold above, ``load_row`` returns -∞ past the end of the row. ``weight_of`` returns weights
# relative to that of the row's maximum *m*, as powers of two: with ``rate`` =
# :math:`\log_2(e) / T`, :math:`2^{(x - m) \cdot rate} = e^{(x - m) / T}`. ``above`` adds up the
# weights for one round of ``bisect``; with ``COUNT``, for top-k, it counts the logits.
#
# **A key** has the bits of a float, read as an integer. For positive floats, it has the order of
# the floats already. For a negative float, ``key_of_float`` inverts every bit except the sign. Each
# row shows a float, its first 12 bits, those of its key, and the key in units of 2²⁰ (filled cells
# are ones):

# sphinx_gallery_fold = "draws the bits of eight floats and their keys"
draw_keys([-8.0, -2.0, -1.0, -0.25, 0.25, 1.0, 2.0, 8.0])

# %%
# .. predict:: How many times does ``bisect`` read the row, at most?
#    :choices: 24 | 32 | 131,072
#    :answer: 32
#
#    A key has 32 bits, so at most 2³² keys are possible, and each round halves their number.
#
# **The sums are integers.** Floating-point sums depend on the order of the additions, so two
# kernels that add in different orders could keep different tokens. Sums of integers are exact in
# any order. So ``units_of`` rounds each weight, which is at most 1, to the nearest multiple of
# 2⁻⁴⁰. The weights of a row of 2²² logits still add up in 63 bits.
#
# **Try it** *(easy, 15 minutes)*. Write ``share_above(x, thresholds)`` for *T* = 1: add up the
# weights from a row's threshold on, and divide by the sum of all weights of the row.
# ``exercise.pyz`` (see *Exercises*) checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 13-share mine.py
#    Not yet. share_above((5, 7), (5,)): an undefined value
#      kernel:   kernel, mine.py line 11 `tl.store(out_ptr + row, share)`
#      program:  0, in a grid of 5
#      what:     the value of a store depends on elements that a masked load left out
#
# So what is loaded past the end of a row needs a weight of 0.
#
# Sampling a token
# ~~~~~~~~~~~~~~~~
#
# Philox makes 32 random bits from seed and row, as in :doc:`04-low-memory-dropout`. Read as a
# fraction *u* from 0 to 1, they give a **target**: *u* times the sum of all kept weights. The
# kernel adds up the weights from the left. The token at which the sum exceeds the target is the
# sample, so a token with twice the weight is sampled twice as often.

# sphinx_gallery_fold = "the whole cell, with target_of and share_of"
# sphinx_gallery_show = "pick, sample_row, plain_kernel"

from shared.sampling import share_of, target_of


@triton.jit
def pick(row_ptr, first, last, V, least, target, m, rate):
    """Return the column at which the sum of weights, for keys from *least* on, exceeds *target*."""
    token, before = tl.full((), -1, tl.int32), tl.full((), 0, tl.int64)
    for start in range(first, last, PIECE):
        if before <= target:
            columns = start + tl.arange(0, PIECE)
            x = load_row(row_ptr, columns, V)
            units = tl.where(key_of_float(x) >= least, units_of(x, m, rate), 0)
            reached = before + tl.cumsum(units, axis=0) > target
            before += tl.sum(units)
            if before > target:
                token = tl.min(tl.where(reached, columns, V))
    return token


@triton.jit
def sample_row(row_ptr, row, seed, V, k, p, rate, m):
    """Return a token of a row whose maximum is *m*."""
    least = tl.full((), LOWEST, tl.int32)
    if k > 0:
        least = bisect(row_ptr, V, k, m, rate, True)
    total = above(row_ptr, V, least, m, rate, False)
    if p < 1:
        least = bisect(row_ptr, V, share_of(total, p), m, rate, False)
        total = above(row_ptr, V, least, m, rate, False)
    return pick(row_ptr, 0, V, V, least, target_of(seed, row, total), m, rate)


@triton.jit(do_not_specialize=["seed", "k"])
def plain_kernel(x_ptr, out_ptr, seed: tl.int64, V, k, p: tl.float64, rate):
    """Sample a token of one row."""
    row, top = tl.program_id(0), tl.full((PIECE,), -float("inf"), tl.float32)
    row_ptr = x_ptr + row.to(tl.int64) * V
    for start in range(0, V, PIECE):
        top = tl.maximum(top, load_row(row_ptr, start + tl.arange(0, PIECE), V))
    token = sample_row(row_ptr, row, seed, V, k, p, rate, tl.max(top))
    tl.store(out_ptr + row, token.to(tl.int64))


# %%
# Calling it
# ----------
#
# At temperature 0 the largest logit wins: that is top-k with *k* = 1.


def sample(logits, temperature=1.0, top_k=0, top_p=1.0, seed=0):
    """Return one token for each row of contiguous logits, [batch], int64."""
    if temperature < 1e-20:
        temperature, top_k = 1.0, 1
    rows, V = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    k, rate = top_k * (top_k < V), 1.4426950408889634 / temperature  # log2(e)
    plain_kernel[(rows,)](logits, out, seed, V, k, float(top_p), rate, num_warps=8)
    return out


plain_sample = sample  # to compare with: a faster function takes over the name

# %%
# **The check** sorts in float64. Each token must be among those that the sort keeps. A weight in
# fp32 has a relative error of about 2⁻²². So where a sum agrees with the share *p* to seven digits,
# its token may be kept or not. Random logits do not come that close.

# sphinx_gallery_fold = "compares with a sort in float64"
from shared.sampling import check

logits = torch.randn(2, 301, device=DEVICE)
examples = logits[:, :200], 6 * logits, logits.round(), logits.where(logits > 0, -torch.inf)
for x in examples:
    check(x.contiguous(), sample)
print("all tokens are among those that a sort keeps")

# %%
# Two readings instead of thirty
# ------------------------------
#
# ``plain_kernel`` reads the row once for each bit of a key, and a few times more. For 128 rows of
# 131,072 logits it takes :measured:`slower` times as long as the function below, which reads the
# row twice. Suppose that a narrow **range** around the threshold is known. Then one reading adds up
# the weights above the range, and collects the few logits inside. The search for the threshold
# needs only these, and they fit into registers.
#
# The range comes from a few thousand logits, spread over the row: a **sample of the row**. In the
# whole row, the weights below the threshold add up to the share 1 - *p*. In the sample they add up
# to a sum *s*, about the same share of the sample's weights. Each of them is at most *w*, the
# weight at the threshold, so the standard deviation of *s* is at most :math:`\sqrt{w s}`. The range
# holds every threshold for which *s* is within 3.5 deviations of that share. In fewer than one of a
# thousand rows, the true threshold lies outside. The last kernel notices that, and samples such a
# row the plain way. It does the same for a row whose maximum is above 10³⁰, for example ∞.
#
# Four launches do the work. Each row is cut into **pieces** of 1024 logits, so that a single row
# keeps many multiprocessors busy:
#
# * ``sum_kernel``, a program for each piece, is the first reading: the maximum and a rough sum in
#   fp32, as in :doc:`02-fused-softmax`.
# * ``guess_kernel``, a program for each row, finds the range in the sample of the row.
# * ``collect_kernel``, a program for each piece, is the second reading: exact sums, and the logits
#   in the range, each with its column.
# * ``finish_kernel``, a program for each row, finds the threshold among these, and samples.
#
# Here is the second reading. ``memory_of`` divides a row's memory: four facts (the maximum, both
# ends of the range, a counter), the sums of the pieces, and the collected logits. Atomic additions
# to the counter give each program places for its logits; their order does not matter.

# sphinx_gallery_fold = "the whole cell, with the functions for exact sums and for places"
# sphinx_gallery_show = "memory_of, collect_kernel"
from shared.sampling import both_sums, joined, places_of, start_next, tile_of, wait

MOST = tl.constexpr(8192 if ON_GPU else 256)  # logits that a row can collect


@triton.jit
def memory_of(work_ptr, row, pieces):
    """Return where a row keeps 4 facts, 2 sums of each piece, and the logits collected."""
    facts = work_ptr + row.to(tl.int64) * (4 + 2 * pieces + MOST)
    return facts, facts + 4, facts + 4 + 2 * pieces


@triton.jit
def collect_kernel(x_ptr, work_ptr, V, pieces, rate, C: tl.constexpr):
    """Add up a piece of a row exactly, and collect its logits in the range."""
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    facts, sums, found_ptr = memory_of(work_ptr, row, pieces)
    columns = piece * PIECE + tile_of(PIECE, C)
    x_ptrs = x_ptr + row.to(tl.int64) * V + columns
    x = tl.load(x_ptrs, mask=columns < V, other=-float("inf")).to(tl.float32)
    start_next()
    wait()
    floats = facts.to(tl.pointer_type(tl.float32))
    m, low, high = tl.load(floats), tl.load(floats + 2), tl.load(floats + 4)
    y = tl.exp2((x - m) * rate) * 2.0**40
    total, upper = both_sums(y, x >= high)
    tl.store(sums + 2 * piece, total)
    tl.store(sums + 2 * piece + 1, upper)
    found = (x >= low) & (x < high)
    place, count = places_of(found)
    if count > 0:
        first = tl.atomic_add(facts + 3, count.to(tl.int64), sem="relaxed").to(tl.int32)
        if first + count <= MOST:
            tl.store(found_ptr + first + place, joined(x, columns), mask=found)


# %%
# ``both_sums`` splits each weight into two numbers of 32 bits, which add up faster than one of 64.
# On NVIDIA GPUs from Hopper on, ``start_next`` and ``wait`` let a kernel begin before the previous
# one ends, as in :doc:`05b-reductions`.
#
# For top-k, the lower end is a value that at least *k* logits exceed almost surely, and there is no
# upper end. ``finish_kernel`` tests two keys in each round, near the key that interpolation
# suggests; this takes fewer rounds than a bisection. With the sums of the pieces it finds the piece
# that the target falls into, and then the token. With integer sums it is that of the plain kernel.

# sphinx_gallery_fold = "the other three kernels"
from shared.sampling import float_of_key, range_of, rows_of, search, sums_of


@triton.jit
def sum_kernel(x_ptr, work_ptr, V, pieces, rate, C: tl.constexpr):
    """Store the maximum of a piece of a row, and the rough sum of its weights, in fp32."""
    start_next()
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    _, sums, _ = memory_of(work_ptr, row, pieces)
    stats = sums.to(tl.pointer_type(tl.float32)) + 2 * piece
    x = load_row(x_ptr + row.to(tl.int64) * V, piece * PIECE + tile_of(PIECE, C), V)
    top = tl.maximum(tl.max(x), -LARGEST)  # if all are -inf
    tl.store(stats, top)
    tl.store(stats + 1, tl.sum(weight_of(x, top, rate)))  # nan if a logit is


@triton.jit(do_not_specialize=["k"])
def guess_kernel(
    x_ptr, work_ptr, V, pieces, k, p: tl.float64, rate,
    N: tl.constexpr, SAMPLE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Store the maximum of a row, and the range in which its threshold lies."""
    start_next()
    row, i, j = tl.program_id(0), tl.arange(0, N), tile_of(SAMPLE, C)
    facts, sums, _ = memory_of(work_ptr, row, pieces)
    columns = j.to(tl.int64) // 8 * (V // 8) // (SAMPLE // 8) * 8 + j % 8  # 8 in 32 bytes
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    wait()
    stats = sums.to(tl.pointer_type(tl.float32)) + 2 * i
    tops = tl.load(stats, mask=i < pieces, other=-float("inf"))
    m = tl.max(tops)
    total = tl.sum(tl.load(stats + 1, mask=i < pieces, other=0.0) * weight_of(tops, m, rate))
    low, high = tl.full((), -LARGEST, tl.float32), tl.full((), float("inf"), tl.float32)
    if V > MOST:  # else all are collected
        if k > 0:
            count = tl.cast(k, tl.float32) * SAMPLE / V  # of the sample
            count += 4 * tl.sqrt(count) + 8  # four deviations, and some for small counts
            count, least, most = tl.ceil(count).to(tl.int64), key_of_float(low), key_of_float(m)
            low = search(x, x, 0, least, most, count, m, rate, True)
        elif p < 1:
            low, high = range_of(x, m, rate, (1 - p) * total.to(tl.float64) * SAMPLE / V)
        else:
            low = tl.full((), -float("inf"), tl.float32)
            high = low  # all logits are above the range
    floats = facts.to(tl.pointer_type(tl.float32))
    tl.store(floats, tl.where(total > 0, m, -float("inf")))  # nan, or only -inf
    tl.store(floats + 2, low)
    tl.store(floats + 4, high)
    zero = tl.cast(rate, tl.float32) <= 0  # of a temperature from 1e46 on
    plain = (m > 1e30) | zero  # then x - m, or its product with rate, may be wrong
    tl.store(facts + 3, tl.where(plain, MOST + 1, 0).to(tl.int64))  # how many are collected


@triton.jit(do_not_specialize=["seed", "k"])
def finish_kernel(
    x_ptr, work_ptr, out_ptr, seed_ptr, seed: tl.int64, V, pieces, k, p: tl.float64, rate,
    N: tl.constexpr, C: tl.constexpr, SEED_ON_GPU: tl.constexpr,
):  # fmt: skip
    """Find the threshold of a row among the logits collected, and sample a token."""
    row, i, j = tl.program_id(0), tl.arange(0, N), rows_of(MOST, C)
    facts, sums, found_ptr = memory_of(work_ptr, row, pieces)
    floats = facts.to(tl.pointer_type(tl.float32))
    row_ptr = x_ptr + row.to(tl.int64) * V
    if SEED_ON_GPU:
        seed = tl.load(seed_ptr)
    wait()
    m, least = tl.load(floats), key_of_float(tl.load(floats + 2))
    most = tl.minimum(key_of_float(tl.load(floats + 4)), key_of_float(m))
    count = tl.load(facts + 3).to(tl.int32)
    found_ptr = found_ptr.to(tl.pointer_type(tl.float32)) + 2 * j
    x = tl.load(found_ptr + 1, mask=j < count, other=-float("inf"))
    y = weight_of(x, m, rate) * 2.0**40
    total = tl.sum(tl.load(sums + 2 * i, mask=i < pieces, other=0))
    upper = tl.sum(tl.load(sums + 2 * i + 1, mask=i < pieces, other=0))
    token = tl.full((), -1, tl.int32)  # only -inf, or nan
    if m > -float("inf"):
        good = (count <= MOST) & (count >= k)
        if good:
            if k > 0:
                least = key_of_float(search(x, y, 0, least, most, k, m, rate, True))
                y = tl.where(x >= float_of_key(least), y, 0.0)
                total = tl.sum(sums_of(y))
            if p < 1:
                goal = share_of(total, p)
                good = (upper < goal) & (upper + tl.sum(sums_of(y)) >= goal)
                if good:
                    least = key_of_float(search(x, y, upper, least, most, goal, m, rate, False))
        if good:
            units = tl.where(x >= float_of_key(least), nearest(y), 0)
            columns = tl.load(found_ptr.to(tl.pointer_type(tl.int32)), mask=units > 0, other=0)
            tl.atomic_add(sums + 2 * (columns // PIECE) + 1, units, mask=units > 0, sem="relaxed")
            tl.debug_barrier()
            kept = tl.load(sums + 2 * i + 1, mask=i < pieces, other=0, cache_modifier=".cg")
            target = target_of(seed, row, tl.sum(kept))
            piece = tl.min(tl.where(tl.cumsum(kept, axis=0) > target, i, N))
            target -= tl.sum(tl.where(i < piece, kept, 0))
            first = piece * PIECE
            token = pick(row_ptr, first, first + PIECE, V, least, target, m, rate)
        else:
            token = sample_row(row_ptr, row, seed, V, k, p, rate, m)
    tl.store(out_ptr + row, token.to(tl.int64))


# %%
# In a program
# ------------
#
# The public ``sample`` launches these four kernels. It accepts views and other dtypes, and keeps a
# plan of the launches (:doc:`/programming-guide/chapter-6/calls`). A row that contains NaN, or only
# -∞, has no token. On the CPU it is refused; on a GPU, where a check would wait, its token is -1. A
# CUDA graph freezes numbers when it is captured, so each replay would sample with the same seed.
# So the seed may also be a tensor on the GPU, which the program fills before each replay.

# sphinx_gallery_fold = "the function with its checks"
from shared.compiled import between_graphs
from shared.launch import Launch, key_of
from shared.plans import Plans
from shared.sampling import LAUNCHED_EARLY, check_arguments


def plan_of(logits, temperature, top_k, top_p, seed_on_gpu=False):
    """Return how much memory the rows need, and the launches."""
    if temperature < 1e-20:
        temperature, top_k = 1.0, 1  # the maximum
    (rows, V), k = logits.shape, top_k * (top_k < logits.shape[1])
    pieces, rate = triton.cdiv(V, PIECE.value), 1.4426950408889634 / temperature
    some, numbers = (V, pieces, rate), (V, pieces, k, float(top_p), rate)
    large, small = {"C": 512, "num_warps": 16}, {"C": 64, "num_warps": 2}
    large, small = (large, small) if ON_GPU else ({"C": 16}, {"C": 16})
    large |= {"N": triton.next_power_of_2(pieces)} | LAUNCHED_EARLY
    sizes = large | {"SAMPLE": (8192 if V < 200000 else 32768) if ON_GPU else 64}
    sums, guesses = (rows * pieces,), Launch(guess_kernel, (rows,), numbers, sizes)
    second = Launch(collect_kernel, sums, some, small | LAUNCHED_EARLY)
    launches = Launch(sum_kernel, sums, some, small), guesses, second
    size, large = (rows, 4 + 2 * pieces + MOST.value), large | {"SEED_ON_GPU": seed_on_gpu}
    return size, launches, Launch(finish_kernel, (rows,), numbers, large)


PLANS = Plans()


@between_graphs
def sample(logits, temperature=1.0, top_k=0, top_p=1.0, seed=0):
    """Return one token for each row of logits, [batch], int64.

    The weights are those of fp32, rounded to multiples of 2⁻⁴⁰ of the largest; all sums of
    them are exact.

    Args:
        logits: [batch, tokens], fp16, bf16 or fp32, at most 2²² tokens.
        temperature: What logits are divided by; with 0, a maximum is taken.
        top_k: How many logits are kept, and those equal to the last one; 0 for all.
        top_p: The share of the remaining weights that is kept at least; 1 for all.
        seed: From 0 to 2**63 - 1, or a tensor of one int64 on the GPU of the logits, which is read
            when the kernels run. A row's token depends on it, the row's logits, and its number.

    A row that contains nan, or only -inf, is refused on the CPU; on a GPU its token is -1.

    Raises:
        TypeError, ValueError: An argument is not as described, or the logits require a gradient.
    """
    seed_on_gpu = isinstance(seed, torch.Tensor)
    try:
        logits, plan = logits.resolve_neg(), None
        seed = seed.resolve_neg() if seed_on_gpu else seed
        found = (seed.dtype, seed.numel(), seed.device) if seed_on_gpu else type(seed)
        right = found == (torch.int64, 1, logits.device) or (found is int and 0 <= seed < 2**63)
        if ON_GPU and right and not (logits.requires_grad and torch.is_grad_enabled()):
            plan = PLANS.get((key_of(logits), temperature, top_k, top_p, seed_on_gpu))
    except (AttributeError, RuntimeError, TypeError):  # no tensor with strides, or no numbers
        plan = None
    if plan is None:
        check_arguments(logits, temperature, top_k, top_p, seed, DEVICE)
        if len(logits) == 0:
            return logits.new_empty(0, dtype=torch.int64)
        if not ON_GPU:  # there, bf16 is computed wrongly, and a check does not wait
            if not (logits.amax(dim=1) > -float("inf")).all():
                raise ValueError("a row of logits contains nan, or only -inf")
            logits = logits.float()
        logits = logits.contiguous()
        settings = temperature, top_k, top_p, seed_on_gpu
        PLANS.keep((key_of(logits), *settings), plan := plan_of(logits, *settings))
    size, launches, last = plan
    work = logits.new_empty(size, dtype=torch.int64)
    out = logits.new_empty(size[0], dtype=torch.int64)
    for launch in launches:
        launch(logits, work)
    last(logits, work, out, *((seed, 0) if seed_on_gpu else (work, seed)))
    return out


for x in examples:
    check(x, sample, plain_sample)
print("both ways sample the same tokens")

# %%
# The benchmark
# -------------
#
# The logits are normally distributed, in fp32; *p* is 0.9 for top-p, and *k* is 50 for top-k.
# **Sort** is top-p with PyTorch's sort, softmax, cumulative sum and ``multinomial``. **Softmax** is
# PyTorch's softmax alone. **Read** is PyTorch's ``amax``: every way needs one reading.

# sphinx_gallery_fold = "checks and times five batches, and draws the times"
# sphinx_gallery_xray = "collect_kernel: 128 × 131,072, fp32"
from shared.bench import draw_rates, rates, write_calls, write_rows
from shared.sampling import by_sorting, print_added


def benchmark(batch, V):
    """Return rows (batch, V, provider, unit, median, p20, p80)."""
    check(x := torch.randn(batch, V, device=DEVICE), sample, plain_sample)
    calls = {"triton": partial(sample, x, top_p=0.9), "triton, top-k": partial(sample, x, top_k=50)}
    calls |= {"sort": partial(by_sorting, x, 0.9), "softmax": partial(torch.softmax, x, 1)}
    calls |= {"read": x.amax, "triton, plain": partial(plain_sample, x, top_p=0.9)}
    return rates((batch, V), calls, "µs", rounds=10)


if ON_GPU:
    sizes = (1, 131072), (16, 131072), (128, 32000), (512, 151936), (128, 131072)
    rows = [row for size in sizes for row in benchmark(*size)]
    write_rows("sampling.csv", ["batch", "V"], rows)
    x = torch.randn(128, 131072, device=DEVICE)
    print("128 × 131,072 logits, top-p 0.9")
    print_added(x, plan_of(x, 1.0, 0, 0.9))
    points = sorted(((row[0] * row[1], *row[2:]) for row in rows), key=lambda row: row[0])
    labels = {"triton": "sample, top-p", "triton, top-k": "sample, top-k", "sort": "sort"}
    labels |= {"softmax": "softmax", "read": "read (ceiling)"}
    settings = {"xscale": "log", "yscale": "log"}
    draw_rates(points, labels, "A token for each row", "logits in all rows", **settings)
    x = torch.randn(4, 32000, device=DEVICE)
    calls = {"triton": partial(sample, x, top_p=0.9), "torch": partial(by_sorting, x, 0.9)}
    write_calls({"sample": calls})
else:
    print("Without a GPU there is nothing to time.")

# %%
# .. predict:: How much longer does the sort take for 128 × 131,072 logits?
#    :number: faster
#    :unit: times
#
#    The sort takes :measured:`sort` µs, and ``sample`` with top-p :measured:`triton` µs. ``amax``
#    takes :measured:`read` µs, and a softmax :measured:`softmax` µs.
#
# Top-k takes :measured:`top_k` µs, and 512 × 151,936 logits take :measured:`large` µs with top-p.
# The table has the logits that each kernel reads, but for a piece of each row at the end, and the
# time that it adds. One row takes :measured:`single` µs: its pieces run at the same time, but
# ``guess_kernel`` and ``finish_kernel`` have a single program each.
#
# Serving systems do not sort either: vLLM uses FlashInfer's kernels. We did not run them; `their
# public figures <https://github.com/vllm-project/vllm/pull/40376>`_ do not name a GPU.
#
# A call keeps the CPU busy for :measured:`cpu` µs, and one that sorts for :measured:`cpu_sort` µs.
# In a loop that does not wait, a call costs the larger of the CPU's and the GPU's time.
#
# Exercises
# ---------
#
# 1. **Min-p** *(easy, 20 minutes)*. Keep the tokens that are at least *min_p* times as probable as
#    the most probable one, in ``sample_min_p(logits, min_p, seed)``. Does it need a bisection?
#    :doc:`Solution <solutions/13-min-p>`.
# 2. **A repetition penalty** *(medium, 30 minutes)*. For each token in ``tokens``, [batch, tokens]
#    in int64, divide a positive logit by *penalty* and multiply a negative one, once for each
#    token. Return new logits from ``penalize(logits, tokens, penalty)``.
#    :doc:`Solution <solutions/13-repetition-penalty>`.
#
# References
# ----------
#
# * Ari Holtzman and others: *The curious case of neural text degeneration*, 2019,
#   https://arxiv.org/abs/1904.09751: top-p.
# * Minh Nguyen and others: *Turning up the heat*, 2024, https://arxiv.org/abs/2407.01082: min-p.
