"""
Sampling
========

You write ``sample(logits, temperature, top_k, top_p, seed)``, the last step of each token that a
language model writes. It sorts nothing. For 128 rows of 131072 logits and top-p 0.9 it takes
:measured:`triton` µs; sorting takes :measured:`faster` times as long. You need
:doc:`02-fused-softmax` and :doc:`04-low-memory-dropout`.
"""

# %%
# The kernel
# ----------
#
# A model gives each word of its vocabulary a logit *x*. The **temperature** *T* turns it into the
# weight :math:`e^{x / T}`, and a word is drawn with a probability in proportion to its weight.
# **Top-k** keeps only the *k* largest logits. **Top-p** then keeps the fewest largest logits whose
# weights add up to the share *p* of the sum. Both keep all logits from a **threshold** on.
#
# A sort finds the threshold, but it moves each logit many times. **Bisection** moves none: guess a
# threshold, add up the weights above it, and halve the range of possible thresholds. This needs
# integers in the order of the floats. The bits of a positive float are such an integer; those of
# a negative float are in reverse order, so all bits but the sign are flipped.

# sphinx_gallery_level = "transformer"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
LOWEST, HIGHEST = tl.constexpr(-(2**31)), tl.constexpr(2**31 - 1)  # of all keys


@triton.jit
def key_of_float(x):
    """Return int32 keys in the order of the floats *x*."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0.0 becomes 0.0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def weight(x, m, rate):
    """Return exp((x - m) * rate); 1 where x = m, even if both are infinite."""
    return tl.exp(tl.where(x == m, 0.0, x - m) * rate)


@triton.jit
def load_row(row_ptr, columns, V):
    """Return logits in fp32; -inf behind the end of the row."""
    return tl.load(row_ptr + columns, mask=columns < V, other=-float("inf")).to(tl.float32)


@triton.jit
def above(row_ptr, V, key, m, rate, BLOCK: tl.constexpr):
    """Return the sum of the weights from *key* on; with a rate of 0, the number of logits."""
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = load_row(row_ptr, columns, V)
        counts = (key_of_float(x) >= key) & (columns < V)
        total += tl.where(counts, weight(x.to(tl.float64), m, rate), 0.0)
    return tl.sum(total)


@triton.jit
def bisect(row_ptr, V, goal, m, rate, BLOCK: tl.constexpr):
    """Return the largest key from which on the weights of a row add up to at least *goal*."""
    low, high = tl.full((), LOWEST, tl.int32), key_of_float(m)
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up, without overflow
        if above(row_ptr, V, middle, m, rate, BLOCK) >= goal:
            low = middle
        else:
            high = middle - 1
    return low


# %%
# The weights are added in **fp64**. An error of fp32 in the sum of 131072 weights is as large as
# the last weight that is kept, so the threshold would be wrong by a word.
#
# The random number *u*, between 0 and 1, is made of 64 bits of Philox, and depends on the seed and
# the row. The kernel draws the word at which the sum of the weights, from the left, exceeds *u*
# times the sum of all.


@triton.jit
def uniform(seed, row):
    """Return a number from 0 to 1 in fp64."""
    high, low, _, _ = tl.randint4x(seed, row)
    low = low.to(tl.uint32).to(tl.float64) * 2.3283064365386963e-10  # 2⁻³²
    return (high.to(tl.uint32).to(tl.float64) + low) * 2.3283064365386963e-10


@triton.jit
def pick(row_ptr, first, last, V, least, target, m, rate, BLOCK: tl.constexpr):
    """Return the column at which the weights of keys from *least* on, summed up, exceed *target*."""
    word, before = tl.full((), -1, tl.int32), tl.full((), 0.0, tl.float64)
    for start in range(first, last, BLOCK):
        if before <= target:
            columns = start + tl.arange(0, BLOCK)
            x = load_row(row_ptr, columns, V)
            kept = (key_of_float(x) >= least) & (columns < V)
            w = tl.where(kept, weight(x.to(tl.float64), m, rate), 0.0)
            final = tl.max(tl.where(w > 0, columns, word))  # if rounding leaves a rest
            reached = (w > 0) & (before + tl.cumsum(w, axis=0) > target)
            word = tl.min(tl.where(reached, columns, final))
            before += tl.sum(w)
    return word


@triton.jit
def draw_slowly(
    row_ptr, V, k, p, rate, m, u, TOP_K: tl.constexpr, TOP_P: tl.constexpr, BLOCK: tl.constexpr
):
    """Return a word of a row whose maximum is *m*."""
    least = tl.full((), LOWEST, tl.int32)
    if TOP_K:
        least = bisect(row_ptr, V, k, m, 0.0, BLOCK)
    total = above(row_ptr, V, least, m, rate, BLOCK)
    if TOP_P:
        least = bisect(row_ptr, V, p * total, m, rate, BLOCK)
        total = above(row_ptr, V, least, m, rate, BLOCK)
    return pick(row_ptr, 0, V, V, least, u * total, m, rate, BLOCK)


@triton.jit(do_not_specialize=["seed"])
def plain_kernel(
    x_ptr, out_ptr, seed: tl.int64, V, k, p: tl.float64, rate: tl.float64,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw a word of one row."""
    row = tl.program_id(0)
    row_ptr = x_ptr + row.to(tl.int64) * V
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, V, BLOCK):
        top = tl.maximum(top, load_row(row_ptr, start + tl.arange(0, BLOCK), V))
    m, u = tl.max(top), uniform(seed, row)
    word = draw_slowly(row_ptr, V, k, p, rate, m, u, TOP_K, TOP_P, BLOCK)
    tl.store(out_ptr + row, word.to(tl.int64))


# %%
# Top-p reads the row once for each bit of a key, and three times more. For 128 rows this takes
# :measured:`slower` times as long as the function below.
#
# Two readings
# ------------
#
# The fast way reads the row twice. The **first reading** adds up all weights roughly, in fp32, for
# each piece of the row relative to the piece's own maximum, as in :doc:`02-fused-softmax`.


@triton.jit
def memory_of(work_ptr, row, pieces, MOST: tl.constexpr):
    """Return where a row keeps 4 facts, 2 numbers of each piece, and the columns collected."""
    facts = work_ptr + row.to(tl.int64) * (4 + 2 * pieces + MOST // 2)
    return facts, facts + 4, (facts + 4 + 2 * pieces).to(tl.pointer_type(tl.int32))


@triton.jit
def sum_kernel(
    x_ptr, work_ptr, V, pieces, rate: tl.float64, MOST: tl.constexpr, PIECE: tl.constexpr
):
    """Store the maximum of a piece of a row, and the sum of its weights."""
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    _, stats, _ = memory_of(work_ptr, row, pieces, MOST)
    columns = piece * PIECE + tl.arange(0, PIECE)
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    top = tl.max(x)
    w = tl.where(columns < V, weight(x, top, tl.cast(rate, tl.float32)), 0.0)
    tl.store(stats + 2 * piece, top.to(tl.float64))
    tl.store(stats + 2 * piece + 1, tl.sum(w).to(tl.float64))


# %%
# Now the weights below the threshold must add up to the share 1 - *p* of a known sum, and a
# **sample** of the row tells where they do. Each of them is at most the weight *w* of the
# threshold. If such weights add up to *s* in the sample, the standard deviation of *s* is at most
# :math:`\sqrt{w s}`. The threshold is almost certainly within four deviations, so ``guess`` looks
# for the places where the sample plus or minus this slack has the right sum.


@triton.jit
def guess(x, m, rate, rest):
    """Return keys below and above the place where the weights of a sample add up to *rest*."""
    low, high = m + tl.log(rest / x.shape[0]) / rate, m + 1 / rate  # the threshold is no lower
    low_2, high_2, w = low, high, weight(x, m, rate)
    for _ in range(12):
        middle, middle_2 = 0.5 * (low + high), 0.5 * (low_2 + high_2)
        last, last_2 = weight(middle, m, rate), weight(middle_2, m, rate)
        below = tl.sum(tl.where(x < middle, w, 0.0)) + 4 * tl.sqrt(last * rest) + 8 * last < rest
        low, high = tl.where(below, middle, low), tl.where(below, high, middle)
        slack = 4 * tl.sqrt(last_2 * rest) + 8 * last_2
        below = tl.sum(tl.where(x < middle_2, w, 0.0)) - slack < rest
        low_2, high_2 = tl.where(below, middle_2, low_2), tl.where(below, high_2, middle_2)
    return key_of_float(low), key_of_float(high_2)


@triton.jit
def bisect_block(key, w, more, low, high, goal):
    """Return the largest key above which *more* and the weights *w* add up to at least *goal*."""
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if more + tl.sum(tl.where(key >= middle, w, 0.0)) >= goal:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit
def guess_kernel(
    x_ptr, work_ptr, V, pieces, rank, p: tl.float64, rate: tl.float64, ALL: tl.constexpr,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, PIECES: tl.constexpr, MOST: tl.constexpr,
    SAMPLE: tl.constexpr,
):  # fmt: skip
    """Store the maximum of a row, and the range of keys in which its threshold lies."""
    row, i, s = tl.program_id(0), tl.arange(0, PIECES), tl.arange(0, SAMPLE)
    facts, stats, _ = memory_of(work_ptr, row, pieces, MOST)
    tops = tl.load(stats + 2 * i, mask=i < pieces, other=-float("inf"))
    sums = tl.load(stats + 2 * i + 1, mask=i < pieces, other=0.0)
    m, rate32 = tl.max(tops), tl.cast(rate, tl.float32)
    total = tl.sum(sums * weight(tops, m, rate))
    low, high = tl.full((), LOWEST, tl.int32), tl.full((), HIGHEST, tl.int32)
    if not ALL:
        columns = s // 8 * (V // 8) // (SAMPLE // 8) * 8 + s % 8  # 8 neighbors cost one sector
        y, top = load_row(x_ptr + row.to(tl.int64) * V, columns, V), m.to(tl.float32)
        if TOP_K:
            low = bisect_block(key_of_float(y), 0.0 * s + 1.0, 0.0, low, key_of_float(top), rank)
        elif TOP_P:
            rest = ((1 - p) * total * SAMPLE / V).to(tl.float32)
            low, high = guess(y, top, rate32, rest)
        else:
            high = low  # all keys are above the range
    tl.store(facts, tl.where(total == total, m, -float("inf")))  # nan
    tl.store(facts + 1, low.to(tl.float64))
    tl.store(facts + 2, high.to(tl.float64))
    tl.store(facts + 3, 0.0)  # how many columns are collected


# %%
# The **second reading** adds up the weights in fp64, all and those above the range, and collects
# the few columns inside it. An atomic counter gives each program places for its columns. For
# top-k, the range has no upper end.


@triton.jit
def collect_kernel(
    x_ptr, work_ptr, V, pieces, rate: tl.float64, MOST: tl.constexpr, PIECE: tl.constexpr
):
    """Add up a piece of a row exactly, and collect its columns in the range."""
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    facts, stats, found_ptr = memory_of(work_ptr, row, pieces, MOST)
    m, low = tl.load(facts).to(tl.float32), tl.load(facts + 1).to(tl.int32)
    high = tl.load(facts + 2).to(tl.int32)
    columns = piece * PIECE + tl.arange(0, PIECE)
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    key, real = key_of_float(x), columns < V
    w = tl.where(real, weight(x.to(tl.float64), m, rate), 0.0)
    tl.store(stats + 2 * piece, tl.sum(w))
    tl.store(stats + 2 * piece + 1, tl.sum(tl.where(key >= high, w, 0.0)))
    found = real & (key >= low) & (key < high)
    place = tl.cumsum(found.to(tl.int32), axis=0)
    count = tl.max(place)
    if count > 0:
        place += tl.atomic_add(facts + 3, count.to(tl.float64), sem="relaxed").to(tl.int32) - 1
        tl.store(found_ptr + place, columns, mask=found & (place < MOST))


# %%
# The last kernel has a program for each row. The exact threshold is among the columns collected,
# and bisection in registers finds it. The sums above the range and the weights collected give the
# sum of each piece. The program draws a piece, and then a word of it. If the range was wrong, or
# holds more than 8192 columns, as with many equal logits, it draws slowly. Either way, the word is
# that of the first kernel.


@triton.jit(do_not_specialize=["seed"])
def finish_kernel(
    x_ptr, work_ptr, out_ptr, seed: tl.int64, V, pieces, k, p: tl.float64, rate: tl.float64,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, PIECES: tl.constexpr, MOST: tl.constexpr,
    PIECE: tl.constexpr,
):  # fmt: skip
    """Find the threshold of a row among the columns collected, and draw a word."""
    row, i, j = tl.program_id(0), tl.arange(0, PIECES), tl.arange(0, MOST)
    facts, stats, found_ptr = memory_of(work_ptr, row, pieces, MOST)
    row_ptr, u = x_ptr + row.to(tl.int64) * V, uniform(seed, row)
    m, low, high = tl.load(facts).to(tl.float32), tl.load(facts + 1), tl.load(facts + 2)
    least, most = low.to(tl.int32), tl.minimum(high.to(tl.int32), key_of_float(m))
    count = tl.load(facts + 3).to(tl.int32)
    columns = tl.load(found_ptr + j, mask=j < count, other=0)
    x = tl.load(row_ptr + columns, mask=j < count, other=-float("inf")).to(tl.float32)
    key = tl.where(j < count, key_of_float(x), LOWEST)
    w = tl.where(j < count, weight(x.to(tl.float64), m, rate), 0.0)
    total = tl.sum(tl.load(stats + 2 * i, mask=i < pieces, other=0.0))
    upper = tl.sum(tl.load(stats + 2 * i + 1, mask=i < pieces, other=0.0))
    good = count <= MOST
    if TOP_K:
        good = good & (count >= k)
        least = bisect_block(key, tl.where(j < count, 1.0, 0.0), 0.0, least, most, k)
        w = tl.where(key >= least, w, 0.0)
        total = tl.sum(w)
    if TOP_P:
        good = good & (upper < p * total) & (upper + tl.sum(w) >= p * total)
        least = bisect_block(key, w, upper, least, most, p * total)
        w = tl.where(key >= least, w, 0.0)
    word = tl.full((), -1, tl.int32)
    if m == -float("inf"):
        pass  # no weights: only -inf, or nan
    elif good:
        tl.atomic_add(stats + 2 * (columns // PIECE) + 1, w, mask=w > 0, sem="relaxed")
        tl.debug_barrier()
        sums = tl.load(stats + 2 * i + 1, mask=i < pieces, other=0.0, cache_modifier=".cg")
        target = u * tl.sum(sums)
        reached = (sums > 0) & (tl.cumsum(sums, axis=0) > target)
        piece = tl.min(tl.where(reached, i, tl.max(tl.where(sums > 0, i, 0))))
        target -= tl.sum(tl.where(i < piece, sums, 0.0))
        first = piece * PIECE
        word = pick(row_ptr, first, first + PIECE, V, least, target, m, rate, PIECE)
    else:
        word = draw_slowly(row_ptr, V, k, p, rate, m, u, TOP_K, TOP_P, PIECE)
    tl.store(out_ptr + row, word.to(tl.int64))


# %%
# Calling it
# ----------
#
# ``sample`` keeps a plan for logits and settings that are alike, as in
# :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "checks the arguments, and plans both launches"
# sphinx_gallery_show = "sample"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

# Small without a GPU, so that the interpreter executes each path.
MOST, SAMPLE, PIECE = (8192, 8192, 4096) if ON_GPU else (256, 64, 128)


def check_arguments(logits, temperature, top_k, top_p, seed):
    """Raise TypeError or ValueError, naming the argument, if no word can be drawn."""
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"logits must be a torch.Tensor, but is a {type(logits).__name__}")
    if logits.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"logits must be float16, bfloat16 or float32, but are {logits.dtype}")
    if logits.device != DEVICE or logits.ndim != 2 or logits.shape[1] == 0:
        found = f"shape {tuple(logits.shape)} on {logits.device}"
        raise ValueError(f"logits must be [batch, at least one word] on {DEVICE}, but have {found}")
    for name, value, kinds, right, rule in (
        ("temperature", temperature, (int, float), lambda t: 0 <= t < float("inf"), "0 or more"),
        ("top_k", top_k, int, lambda k: k >= 0, "0 (no limit) or more"),
        ("top_p", top_p, (int, float), lambda p: 0 < p <= 1, "above 0, and at most 1 (no limit)"),
        ("seed", seed, int, lambda s: 0 <= s < 2**63, "from 0 to 2**63 - 1"),
    ):
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(f"{name} must be a number, but is a {type(value).__name__}")
        if not right(value):
            raise ValueError(f"{name} must be {rule}, but is {value}")


def plan_of(logits, temperature, top_k, top_p):
    """Return the shape of the memory for facts about rows, and both launches."""
    if temperature < 1e-20:
        temperature, top_k = 1.0, 1  # the maximum
    (rows, V), k = logits.shape, top_k * (top_k < logits.shape[1])
    pieces, place, rate = triton.cdiv(V, PIECE), k * SAMPLE / V, 1 / temperature
    rank, size = int(place + 4 * place**0.5 + 8), (rows, 4 + 2 * pieces + MOST // 2)
    limits, cut = {"TOP_K": k > 0, "TOP_P": top_p < 1}, {"MOST": MOST, "PIECE": PIECE}
    limits["PIECES"] = triton.next_power_of_2(pieces)
    sizes = limits | {"ALL": V <= MOST, "MOST": MOST, "SAMPLE": SAMPLE}
    numbers, all_pieces, p = (V, pieces), (rows * pieces,), float(top_p)
    launches = [
        Launch(sum_kernel, all_pieces, (*numbers, rate), cut | {"num_warps": 4}),
        Launch(guess_kernel, (rows,), (*numbers, rank, p, rate), sizes | {"num_warps": 16}),
        Launch(collect_kernel, all_pieces, (*numbers, rate), cut | {"num_warps": 8}),
    ]
    options = limits | cut | {"num_warps": 16}
    return size, launches, Launch(finish_kernel, (rows,), (*numbers, k, p, rate), options)


PLANS = {}


def sample(logits, temperature=1.0, top_k=0, top_p=1.0, seed=0):
    """Return one word for each row of logits, [batch], int64.

    Args:
        logits: [batch, words], fp16, bf16 or fp32.
        temperature: What logits are divided by; with 0, a maximum is taken.
        top_k: How many logits are kept at least; 0 for all. Those equal to the last one are kept.
        top_p: The share of the weights of what top-k keeps that is kept at least; 1 for all.
        seed: From 0 to 2**63 - 1. A row's word depends on the seed, its logits and its number only.

    A row that contains nan, or only -inf, is refused on the CPU; on a GPU its word is -1.
    """
    try:
        plan = PLANS.get((key_of(logits), temperature, top_k, top_p)) if ON_GPU else None
        plan = plan if 0 <= seed < 2**63 else None
    except (AttributeError, TypeError):  # no tensor, or settings that are no numbers
        plan = None
    if plan is None:
        check_arguments(logits, temperature, top_k, top_p, seed)
        if len(logits) == 0:
            return torch.empty(0, dtype=torch.int64, device=DEVICE)
        if not ON_GPU:
            wrong = (~(logits.amax(dim=1) > -float("inf"))).nonzero()
            if len(wrong):
                raise ValueError(f"logits[{wrong[0].item()}] contains nan, or only -inf")
            logits = logits.float()  # the interpreter computes bf16 wrongly
        logits = logits.contiguous()
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        key = key_of(logits), temperature, top_k, top_p
        plan = PLANS[key] = plan_of(logits, temperature, top_k, top_p)
    size, launches, last = plan
    work = torch.empty(size, dtype=torch.float64, device=DEVICE)
    out = torch.empty(size[0], dtype=torch.int64, device=DEVICE)
    for launch in launches:
        launch(logits, work)
    last(logits, work, out, seed)
    return out
