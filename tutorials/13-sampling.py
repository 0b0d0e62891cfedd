"""
Sampling
========

You write ``sample(logits, temperature, top_k, top_p, seed)``, the last step of each token that a
language model writes. It sorts nothing. For 128 rows of 131072 logits and top-p 0.9 it takes
:measured:`triton` µs, :measured:`faster` times less than sorting. You need
:doc:`02-fused-softmax` and :doc:`04-low-memory-dropout`.
"""

# %%
# The kernel
# ----------
#
# A model gives a logit *x* for each word, and a word is drawn with a probability that grows with
# :math:`e^{x / T}`, where *T* is the **temperature**. **Top-k** keeps the *k* largest logits only.
# **Top-p** then keeps the fewest largest ones that together have the share *p* of the probability.
# Both keep all logits from a **threshold** on. A sort finds it, but a sort is too much: bisection
# finds it, too, if we can say for a number how many logits, or how much probability, lie above.
#
# Bisection needs integers in the order of the floats. The bits of positive floats are in order
# already; those of negative floats are in reverse order, so all bits but the sign are flipped.

# sphinx_gallery_level = "transformer"
import os
from functools import partial

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
    """Return exp((x - m) * rate) in the dtype of *rate*; 1 where x = m, even if both are infinite."""
    return tl.exp(tl.where(x == m, 0.0, x - m).to(rate.dtype) * rate)


@triton.jit
def load_row(row_ptr, columns, V):
    """Return logits in fp32; -inf behind the end."""
    return tl.load(row_ptr + columns, mask=columns < V, other=-float("inf")).to(tl.float32)


@triton.jit
def above(row_ptr, V, key, m, rate, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Return how many logits of a row have a key of at least *key*, or their weight, in fp64."""
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = load_row(row_ptr, columns, V)
        w = tl.full((BLOCK,), 1.0, tl.float64) if COUNT else weight(x, m, rate)
        total += tl.where((key_of_float(x) >= key) & (columns < V), w, 0.0)
    return tl.sum(total)


@triton.jit
def bisect(row_ptr, V, low, goal, m, rate, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Return the largest key from *low* on above which a row has at least *goal*."""
    low, high = low.to(tl.int64), key_of_float(m).to(tl.int64)
    while low < high:
        middle = (low + high + 1) >> 1
        if above(row_ptr, V, middle.to(tl.int32), m, rate, COUNT, BLOCK) >= goal:
            low = middle
        else:
            high = middle - 1
    return low.to(tl.int32)


# %%
# The weights are summed in **fp64**. In fp32 the sum of 131072 weights would be off by more than the
# last weight that is kept, so another word would be the last one.
#
# To draw one of the words that are left, add a random number to each logit and take the maximum.
# If the random numbers are distributed like :math:`-\log(-\log u)` with *u* between 0 and 1, word *i* wins with
# exactly its probability. This is the **Gumbel trick**. Philox gives *u* for each row and column, so a
# row draws the same word whatever the other rows are.


@triton.jit
def gumbel(word):
    """Return Gumbel noise of 32 random bits; *u* counts from 1 downwards, where floats are coarse."""
    u = (word.to(tl.float32) + 0.5) * 2.3283064e-10  # 2⁻³²
    return -tl.log(tl.where(u < 1e-3, u + 0.5 * u * u, -tl.log(1.0 - u)))


@triton.jit
def score(x, m, rate, columns, row, seed, stream, level):
    """Return the logarithm of the weight plus the noise of each column."""
    zero = columns * 0
    w0, w1, w2, w3 = tl.philox(seed, columns // 4, zero + row, zero + stream, zero + level)
    even, low = columns % 2 == 0, columns % 4 < 2
    noise = gumbel(tl.where(low, tl.where(even, w0, w1), tl.where(even, w2, w3)))
    return tl.where(x == m, 0.0, x - m) * rate.to(tl.float32) + noise


@triton.jit
def draw_slowly(
    row_ptr, row, V, k, p, rate, seed, stream,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return a word of one row, in 32 and more readings of the row."""
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, V, BLOCK):
        top = tl.maximum(top, load_row(row_ptr, start + tl.arange(0, BLOCK), V))
    m, least = tl.max(top), tl.full((), LOWEST, tl.int32)
    if TOP_K:
        least = bisect(row_ptr, V, least, k.to(tl.float64), m, rate, True, BLOCK)
    if TOP_P:
        goal = p * above(row_ptr, V, least, m, rate, False, BLOCK)
        least = bisect(row_ptr, V, least, goal, m, rate, False, BLOCK)
    best, word = tl.full((), -float("inf"), tl.float32), tl.full((), 0, tl.int32)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = load_row(row_ptr, columns, V)
        s = score(x, m, rate, columns, row, seed, stream, 0)
        s = tl.where((key_of_float(x) >= least) & (columns < V), s, -float("inf"))
        if tl.max(s) > best:
            best, word = tl.max(s), start + tl.argmax(s, axis=0).to(tl.int32)
    return word


@triton.jit(do_not_specialize=["seed", "stream"])
def slow_kernel(
    x_ptr, numbers_ptr, out_ptr, seed, stream, V, k,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw a word of one row."""
    row = tl.program_id(0)
    p, rate = tl.load(numbers_ptr), tl.load(numbers_ptr + 1)
    row_ptr = x_ptr + row.to(tl.int64) * V
    word = draw_slowly(row_ptr, row, V, k, p, rate, seed, stream, TOP_K, TOP_P, BLOCK)
    tl.store(out_ptr + row, word.to(tl.int64))


# %%
# One reading for each bit, by one program for each row: at 128 rows this takes :measured:`slow` times as long
# as the function below.
#
# A guess from a sample
# ---------------------
#
# If the threshold were known roughly, one reading would do: add up what is above, and collect the few
# logits around it, of which a single program finds the exact threshold. A **sample** of 2048 logits
# tells where the threshold is, up to a few percent of the probability. The next kernel then measures
# exactly what is above that guess, and the sample tells how far from there the threshold can be: the
# step is small, and so is its error. For top-k a place in the sorted sample is enough.


@triton.jit
def memory_of(work_ptr, row, pieces, MOST: tl.constexpr, SAMPLE: tl.constexpr):
    """Return where a row keeps its facts, those of its pieces, its sample, and what is found."""
    size = 8 + 4 * pieces + (3 * SAMPLE + MOST) // 2
    facts = work_ptr + row.to(tl.int64) * size
    sample = (facts + 8 + 4 * pieces).to(tl.pointer_type(tl.float32))
    return facts, facts + 8, sample, (sample + 3 * SAMPLE).to(tl.pointer_type(tl.int32))


@triton.jit
def guess_kernel(
    x_ptr, numbers_ptr, work_ptr, V, pieces, rank, ALL: tl.constexpr,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, MOST: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Guess the range of keys that must be collected, from a sample of one row."""
    row, j = tl.program_id(0), tl.arange(0, SAMPLE)
    p, rate = tl.load(numbers_ptr), tl.load(numbers_ptr + 1).to(tl.float32)
    facts, _, sample, _ = memory_of(work_ptr, row, pieces, MOST, SAMPLE)
    m = tl.full((), 0.0, tl.float32)
    low, high = tl.full((), LOWEST, tl.int32), tl.full((), HIGHEST, tl.int32)
    if not ALL:
        x = load_row(x_ptr + row.to(tl.int64) * V, j.to(tl.int64) * V // SAMPLE, V)
        m = tl.max(x)
        if TOP_K:
            low = tl.max(tl.where(j <= SAMPLE - rank, tl.sort(key_of_float(x)), LOWEST))
        elif TOP_P:
            x = tl.sort(x)
            w = weight(x, m, rate)
            below = tl.cumsum(w, axis=0)
            rest = (1 - p).to(tl.float32) * tl.sum(w)
            low = tl.max(tl.where(below <= rest, key_of_float(x), LOWEST))
            tl.store(sample + j, x)
            tl.store(sample + SAMPLE + j, below)
            tl.store(sample + 2 * SAMPLE + j, tl.cumsum(w * w, axis=0))
        else:
            high = low
    tl.store(facts, m.to(tl.float64))
    tl.store(facts + 1, low.to(tl.float64))  # the guess
    tl.store(facts + 2, low.to(tl.float64))
    tl.store(facts + 3, high.to(tl.float64))
    tl.store(facts + 4, 0.0)  # how many are found
    tl.store(facts + 5, 0.0)  # how many pieces are measured


@triton.jit
def measure_kernel(
    x_ptr, numbers_ptr, work_ptr, V, pieces, TOP_P: tl.constexpr,
    MOST: tl.constexpr, SAMPLE: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Measure a piece of a row; the last program of the row then corrects the guess."""
    piece, row = tl.program_id(0), tl.program_id(1)
    p, rate = tl.load(numbers_ptr), tl.load(numbers_ptr + 1)
    facts, stats, sample, _ = memory_of(work_ptr, row, pieces, MOST, SAMPLE)
    m, guess = tl.load(facts).to(tl.float32), tl.load(facts + 1).to(tl.int32)
    columns = piece * PIECE + tl.arange(0, PIECE)
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    w = tl.where(columns < V, weight(x, m, rate), 0.0)
    tl.store(stats + 4 * piece, tl.sum(w))
    tl.store(stats + 4 * piece + 1, tl.sum(tl.where(key_of_float(x) >= guess, w, 0.0)))
    tl.store(stats + 4 * piece + 2, tl.max(x).to(tl.float64))
    tl.debug_barrier()  # the atomic operation publishes what all threads have stored
    if TOP_P and tl.atomic_add(facts + 5, 1.0) == pieces - 1:
        i, j, share = tl.arange(0, PIECES), tl.arange(0, SAMPLE), V / SAMPLE
        total = tl.sum(tl.load(stats + 4 * i, mask=i < pieces, other=0.0))
        upper = tl.sum(tl.load(stats + 4 * i + 1, mask=i < pieces, other=0.0))
        y = tl.load(sample + j)
        keys, below = key_of_float(y), share * tl.load(sample + SAMPLE + j)
        squares = share * share * tl.load(sample + 2 * SAMPLE + j)
        # How much may lie below the threshold, counted as in the sample.
        rest = (upper - p * total).to(tl.float32) + tl.max(tl.where(keys < guess, below, 0.0))
        start = tl.max(tl.where(keys < guess, squares, 0.0))
        deviation = tl.sqrt(tl.abs(squares - start)) + share * weight(y, m, rate.to(tl.float32))
        low = tl.max(tl.where(below + 4 * deviation <= rest, keys, LOWEST))
        high = tl.min(tl.where(below - 4 * deviation > rest, keys, HIGHEST))
        tl.store(facts + 2, tl.minimum(guess, low).to(tl.float64))
        tl.store(facts + 3, tl.maximum(guess, high).to(tl.float64))


# %%
# Four standard deviations are exceeded in one row of 16 000. Such rows, and rows with more than 8192
# equal logits, are drawn slowly, and correctly.
#
# Collect, then decide
# --------------------
#
# The third kernel writes down the columns in the range; each program asks an atomic counter for its
# place. It also adds up the weights above the range. The last kernel has one program for each row. It
# finds the threshold among the collected logits and draws: first a piece or the collection, by their
# weights, then a word of it.


@triton.jit
def collect_kernel(
    x_ptr, numbers_ptr, work_ptr, V, pieces, MEASURED: tl.constexpr,
    MOST: tl.constexpr, SAMPLE: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Collect the columns of a piece whose keys are in the range."""
    piece, row = tl.program_id(0), tl.program_id(1)
    rate = tl.load(numbers_ptr + 1).to(tl.float32)
    facts, stats, _, found_ptr = memory_of(work_ptr, row, pieces, MOST, SAMPLE)
    m = tl.load(facts).to(tl.float32)
    low, high = tl.load(facts + 2).to(tl.int32), tl.load(facts + 3).to(tl.int32)
    if MEASURED:
        i = tl.arange(0, PIECES)
        m = tl.max(tl.load(stats + 4 * i + 2, mask=i < pieces, other=-float("inf"))).to(tl.float32)
    columns = piece * PIECE + tl.arange(0, PIECE)
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    key, real = key_of_float(x), columns < V
    counts = real & ((key > high) | (x != x))  # nan makes the sum nan
    w = tl.sum(tl.where(counts, weight(x, m, rate), 0.0))
    tl.store(stats + 4 * piece + 3, w.to(tl.float64))
    found = real & (key >= low) & (key <= high)
    place = tl.cumsum(found.to(tl.int32), axis=0)
    count = tl.max(place)
    if count > 0:
        place += tl.atomic_add(facts + 4, count.to(tl.float64)).to(tl.int32) - 1
        tl.store(found_ptr + place, columns, mask=found & (place < MOST))


@triton.jit
def bisect_block(key, w, more, low, high, goal):
    """Return the largest key from *low* to *high* above which are *more* and a sum of *w* >= goal."""
    low, high = low.to(tl.int64), high.to(tl.int64)
    while low < high:
        middle = (low + high + 1) >> 1
        if more + tl.sum(tl.where(key >= middle.to(tl.int32), w, 0.0)) >= goal:
            low = middle
        else:
            high = middle - 1
    return low.to(tl.int32)


@triton.jit(do_not_specialize=["seed", "stream"])
def finish_kernel(
    x_ptr, numbers_ptr, work_ptr, out_ptr, seed, stream, V, pieces, k, MEASURED: tl.constexpr,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, MOST: tl.constexpr, SAMPLE: tl.constexpr,
    PIECE: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the threshold of a row among what was found, and draw a word."""
    row, i, j = tl.program_id(0), tl.arange(0, PIECES), tl.arange(0, MOST)
    p, rate = tl.load(numbers_ptr), tl.load(numbers_ptr + 1)
    facts, stats, _, found_ptr = memory_of(work_ptr, row, pieces, MOST, SAMPLE)
    row_ptr = x_ptr + row.to(tl.int64) * V
    low, high = tl.load(facts + 2).to(tl.int32), tl.load(facts + 3).to(tl.int32)
    count = tl.load(facts + 4).to(tl.int32)
    columns = tl.load(found_ptr + j, mask=j < count, other=0)
    x = tl.load(row_ptr + columns, mask=j < count, other=-float("inf")).to(tl.float32)
    weights = tl.load(stats + 4 * i + 3, mask=i < pieces, other=0.0)
    m, top = tl.max(x), tl.max(x)
    if MEASURED:  # the sums were measured relative to a maximum of the sample
        m = tl.load(facts).to(tl.float32)
        top = tl.max(tl.load(stats + 4 * i + 2, mask=i < pieces, other=-float("inf"))).to(
            tl.float32
        )
    key = tl.where(j < count, key_of_float(x), LOWEST)
    w = tl.where(j < count, weight(x, m, rate), 0.0)
    total, upper = tl.sum(w), tl.zeros((), tl.float64)
    if MEASURED:
        total = tl.sum(tl.load(stats + 4 * i, mask=i < pieces, other=0.0))
        guess = tl.load(facts + 1).to(tl.int32)
        upper = tl.sum(tl.load(stats + 4 * i + 1, mask=i < pieces, other=0.0))
        upper -= tl.sum(tl.where(key >= guess, w, 0.0))  # above the range
    good, least = count <= MOST, low
    if TOP_K:
        good = good & ((count >= k) | (low == LOWEST))
        least = bisect_block(key, tl.where(j < count, 1.0, 0.0), 0.0, low, key_of_float(m), k)
        w = tl.where(key >= least, w, 0.0)
        total = tl.sum(w)
    if TOP_P:
        goal = p * total
        good = good & (upper < goal) & (upper + tl.sum(w) >= goal)
        last = tl.minimum(high, key_of_float(top))
        least = bisect_block(key, w, upper, least, last, goal)
        w = tl.where(key >= least, w, 0.0)
    even = 0.0 * i  # no weight yet, only noise
    s = score(even, 0.0, rate, i, row, seed, stream, 1) + tl.log(weights) + (top - m) * rate
    own = tl.sum(tl.where(i == 0, score(even, 0.0, rate, i, row, seed, stream, 2), 0.0))
    own += tl.log(tl.sum(w))
    if own >= tl.max(s):
        r = score(x, m, rate, columns, row, seed, stream, 0)
        r = tl.where((j < count) & (key >= least), r, -float("inf"))
        word = tl.min(tl.where(r == tl.max(r), columns, HIGHEST))  # their order is random
    else:
        first = tl.argmax(s, axis=0).to(tl.int32) * PIECE
        y = load_row(row_ptr, first + tl.arange(0, PIECE), V)
        t = score(y, top, rate, first + tl.arange(0, PIECE), row, seed, stream, 0)
        t = tl.where(key_of_float(y) > high, t, -float("inf"))
        word = first + tl.argmax(t, axis=0).to(tl.int32)
    check = total + tl.sum(weights)
    if (check != check) | (top == -float("inf")):
        word = tl.full((), -1, tl.int32)
    elif not good:
        word = draw_slowly(row_ptr, row, V, k, p, rate, seed, stream, TOP_K, TOP_P, BLOCK)
    tl.store(out_ptr + row, word.to(tl.int64))


# %%
# Calling it
# ----------
#
# ``sample`` keeps a plan for logits and settings that are alike: see
# :doc:`/programming-guide/chapter-6/calls`. The measuring kernel is left out for top-k, and for rows so
# short that all of their logits are collected.

# sphinx_gallery_fold = "checks the arguments, and plans the launches"
# sphinx_gallery_show = "sample"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

# Small without a GPU, so that the interpreter executes each path.
MOST, SAMPLE, PIECE = (8192, 2048, 2048) if ON_GPU else (256, 64, 256)


def check_arguments(logits, temperature, top_k, top_p, seed):
    """Raise TypeError or ValueError, naming the argument, if no word can be drawn."""
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"logits must be a torch.Tensor, but is a {type(logits).__name__}")
    if logits.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"logits must be float16, bfloat16 or float32, but are {logits.dtype}")
    if logits.device != DEVICE or logits.ndim != 2 or logits.shape[1] == 0:
        found = f"shape {tuple(logits.shape)} on {logits.device}"
        raise ValueError(f"logits must be [batch, at least one word] on {DEVICE}, but have {found}")
    for name, value, kinds in (
        ("temperature", temperature, (int, float)), ("top_k", top_k, int),
        ("top_p", top_p, (int, float)), ("seed", seed, int),
    ):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(f"{name} must be a number, but is a {type(value).__name__}")
    for name, value, right, rule in (
        ("temperature", temperature, 0 <= temperature < float("inf"), "0 or more, and finite"),
        ("top_k", top_k, top_k >= 0, "0 (no limit) or more"),
        ("top_p", top_p, 0 < top_p <= 1, "more than 0, and at most 1 (no limit)"),
        ("seed", seed, 0 <= seed < 2**62, "from 0 to 2**62 - 1"),
    ):
        if not right:
            raise ValueError(f"{name} must be {rule}, but is {value}")


def plan_of(logits, temperature, top_k, top_p):
    """Return the numbers of a row in memory, p and 1 / temperature, and the launches."""
    if temperature < 1e-20:
        temperature, top_k = 1.0, 1  # the maximum
    rows, V = logits.shape
    pieces, k, everything = triton.cdiv(V, PIECE), min(top_k, V), V <= MOST
    place = k * SAMPLE / V  # of the threshold in the sample
    rank = int(place + 6 * place**0.5 + 8)
    limits = {"TOP_K": k > 0, "TOP_P": top_p < 1}
    sizes = {"MOST": MOST, "SAMPLE": SAMPLE}
    cut = sizes | {"PIECE": PIECE, "PIECES": triton.next_power_of_2(pieces)}
    measured = {"MEASURED": not (k or everything)}
    numbers = torch.tensor([top_p, 1 / temperature], dtype=torch.float64, device=DEVICE)
    guess = {"ALL": everything or rank > SAMPLE, **limits, **sizes, "num_warps": 8}
    first = [Launch(guess_kernel, (rows,), (V, pieces, rank), guess)]
    if measured["MEASURED"]:
        options = {"TOP_P": top_p < 1, **cut, "num_warps": 4}
        first.append(Launch(measure_kernel, (pieces, rows), (V, pieces), options))
    options = measured | cut | {"num_warps": 4}
    first.append(Launch(collect_kernel, (pieces, rows), (V, pieces), options))
    options = measured | limits | cut | {"BLOCK": 4096 if ON_GPU else 256, "num_warps": 16}
    last = Launch(finish_kernel, (rows,), (V, pieces, k), options)
    return (rows, 8 + 4 * pieces + (3 * SAMPLE + MOST) // 2), numbers, first, last


PLANS = {}


def sample(logits, temperature=1.0, top_k=0, top_p=1.0, seed=0):
    """Return one word for each row of logits, [batch], int64.

    Args:
        logits: [batch, words], fp16, bf16 or fp32.
        temperature: What logits are divided by; with 0, a maximum is taken.
        top_k: How many logits are kept at least; 0 for all. Those equal to the last one are kept.
        top_p: The share of the probability of what top-k keeps that is kept at least.
        seed: From 0 to 2⁶² - 1. A row's word depends on the seed, its logits and its number only.

    A row that contains nan, or only -inf, is refused on the CPU; on a GPU its word is -1.
    """
    try:
        plan = PLANS.get((key_of(logits), temperature, top_k, top_p)) if ON_GPU else None
        plan = plan if 0 <= seed < 2**62 else None
    except (AttributeError, TypeError):  # no tensor, or settings that are no numbers
        plan = None
    if plan is None:
        check_arguments(logits, temperature, top_k, top_p, seed)
        wrong = () if ON_GPU else (~(logits.amax(dim=1) > -float("inf"))).nonzero()
        if len(wrong):
            raise ValueError(f"logits[{wrong[0].item()}] contains nan, or only -inf")
        if len(logits) == 0:
            return torch.empty(0, dtype=torch.int64, device=DEVICE)
        logits = (logits if ON_GPU else logits.float()).contiguous()
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        key = key_of(logits), temperature, top_k, top_p
        plan = PLANS[key] = plan_of(logits, temperature, top_k, top_p)
    size, numbers, first, last = plan
    work = torch.empty(size, dtype=torch.float64, device=DEVICE)
    out = torch.empty(size[0], dtype=torch.int64, device=DEVICE)
    for launch in first:
        launch(logits, numbers, work)
    last(logits, numbers, work, out, seed & 0x7FFFFFFF, seed >> 31)
    return out
