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
# A model gives each word a logit *x*, and a word is drawn in proportion to its **weight**
# :math:`e^{x / T}`, at the temperature *T*. **Top-k** keeps only the *k* largest logits. **Top-p**
# then keeps the fewest largest ones whose weights add up to the share *p* of the sum. Both keep all
# logits from a **threshold** on. **Bisection** finds it without a sort: add up the weights above a
# guess, and halve the range of possible thresholds. It needs integers in the order of the floats.
# The bits of a positive float are such an integer; those of a negative one are flipped first, but
# for the sign.

# sphinx_gallery_level = "transformer"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
LOWEST, LARGEST = tl.constexpr(-(2**31)), tl.constexpr(3.4028234663852886e38)  # key, float
PIECE = tl.constexpr(1024 if ON_GPU else 128)  # logits of a block, few for the interpreter


@triton.jit
def key_of_float(x):
    """Return int32 keys in the order of the floats *x*."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0.0 becomes 0.0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def weight(x, m, rate):
    """Return exp((x - m) * rate)."""
    return tl.exp((x - m) * rate)


@triton.jit
def load_row(row_ptr, columns, V):
    """Return logits in fp32, inf as the largest finite one; -inf behind the end of the row."""
    x = tl.load(row_ptr + columns, mask=columns < V, other=-float("inf")).to(tl.float32)
    return tl.minimum(x, LARGEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def above(row_ptr, V, key, m, rate):
    """Return the sum of the weights from *key* on; with a rate of 0, the number of logits."""
    total = tl.zeros((PIECE,), tl.float64)
    for start in range(0, V, PIECE):
        columns = start + tl.arange(0, PIECE)
        x = load_row(row_ptr, columns, V)
        counts = (key_of_float(x) >= key) & (columns < V)
        total += tl.where(counts, weight(x.to(tl.float64), m, rate), 0.0)
    return tl.sum(total)


@triton.jit
def bisect(row_ptr, V, goal, m, rate):
    """Return the largest key from which on the weights of a row add up to at least *goal*."""
    low, high = tl.full((), LOWEST, tl.int32), key_of_float(m)
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up, without overflow
        if above(row_ptr, V, middle, m, rate) >= goal:
            low = middle
        else:
            high = middle - 1
    return low


# %%
# The weights are relative to that of the maximum *m*, and added in **fp64**: an error of fp32 in
# the sum can be as large as the last weight that is kept. Philox makes a random number *u*, from 0
# to 1, of the seed and the row. The kernel adds up the weights from the left, and draws the word at
# which they exceed *u* times the sum of all.


@triton.jit
def pick(row_ptr, first, last, V, least, target, m, rate):
    """Return the column at which the sum of weights, for keys from *least* on, exceeds *target*."""
    word, before = tl.full((), -1, tl.int32), tl.full((), 0.0, tl.float64)
    for start in range(first, last, PIECE):
        if before <= target:
            columns = start + tl.arange(0, PIECE)
            x = load_row(row_ptr, columns, V)
            kept = (key_of_float(x) >= least) & (columns < V)
            w = tl.where(kept, weight(x.to(tl.float64), m, rate), 0.0)
            final = tl.max(tl.where(w > 0, columns, word))  # if rounding leaves a rest
            reached = (w > 0) & (before + tl.cumsum(w, axis=0) > target)
            word = tl.min(tl.where(reached, columns, final))
            before += tl.sum(w)
    return word


@triton.jit
def draw_slowly(row_ptr, V, k, p, rate, m, u):
    """Return a word of a row whose maximum is *m*."""
    least = tl.full((), LOWEST, tl.int32)
    if k > 0:
        least = bisect(row_ptr, V, k, m, 0.0)
    total = above(row_ptr, V, least, m, rate)
    if p < 1:
        least = bisect(row_ptr, V, p * total, m, rate)
        total = above(row_ptr, V, least, m, rate)
    return pick(row_ptr, 0, V, V, least, u * total, m, rate)


@triton.jit(do_not_specialize=["seed"])
def plain_kernel(x_ptr, out_ptr, seed: tl.int64, V, k, p: tl.float64, rate: tl.float64):
    """Draw a word of one row."""
    row, top = tl.program_id(0), tl.full((PIECE,), -float("inf"), tl.float32)
    row_ptr = x_ptr + row.to(tl.int64) * V
    for start in range(0, V, PIECE):
        top = tl.maximum(top, load_row(row_ptr, start + tl.arange(0, PIECE), V))
    u = tl.randint(seed, row).to(tl.uint32).to(tl.float64) / 4294967296.0
    word = draw_slowly(row_ptr, V, k, p, rate, tl.max(top), u)
    tl.store(out_ptr + row, word.to(tl.int64))


# %%
# Top-p reads the row once for each bit of a key, and a few times more. For 128 rows this takes
# :measured:`slower` times as long as the function below.
#
# Two readings
# ------------
#
# The fast way reads the row twice. The **first reading** adds up all weights roughly, in fp32, for
# each piece of the row relative to the piece's own maximum, as in :doc:`02-fused-softmax`.

MOST = tl.constexpr(8192 if ON_GPU else 256)  # columns that a row can collect


@triton.jit
def memory_of(work_ptr, row, pieces):
    """Return where a row keeps 4 facts, 2 numbers of each piece, and the columns collected."""
    facts = work_ptr + row.to(tl.int64) * (4 + 2 * pieces + MOST // 2)
    return facts, facts + 4, (facts + 4 + 2 * pieces).to(tl.pointer_type(tl.int32))


@triton.jit
def sum_kernel(x_ptr, work_ptr, V, pieces, rate: tl.float64):
    """Store the maximum of a piece of a row, and the sum of its weights."""
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    _, stats, _ = memory_of(work_ptr, row, pieces)
    columns = piece * PIECE + tl.arange(0, PIECE)
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    top = tl.maximum(tl.max(x), -LARGEST)  # if all are -inf
    w = tl.where(columns < V, weight(x, top, tl.cast(rate, tl.float32)), 0.0)
    tl.store(stats + 2 * piece, top.to(tl.float64))
    tl.store(stats + 2 * piece + 1, tl.sum(w).to(tl.float64))


# %%
# Now the sum is known, and the weights below the threshold must add up to the share 1 - *p* of it.
# A **sample** of the row tells roughly where they do. Each of them is at most *w*, the weight at
# the threshold. If they should add up to *s* in the sample, the standard deviation of their sum is
# at most :math:`\sqrt{w s}`. So the threshold almost surely lies between the place where the sum in
# the sample is 3.5 deviations less than *s*, and the place where it is 3.5 more.


@triton.jit
def guess(x, m, rate, rest, deviations):
    """Return a short range; below it, a sample's weights and *deviations* add up to *rest*."""
    low, high = m + tl.log(rest / x.shape[0]) / rate, m + 1 / rate
    w = weight(x, m, rate)
    for _ in range(12):
        middle = 0.5 * (low + high)
        last = weight(middle, m, rate)
        slack = deviations * (tl.sqrt(last * rest) + 2 * last)  # more where the weights are few
        below = tl.sum(tl.where(x < middle, w, 0.0)) + slack < rest
        low, high = tl.where(below, middle, low), tl.where(below, high, middle)
    return low, high


@triton.jit
def bisect_block(key, w, more, low, high, goal):
    """Return the largest key from which on *more* and the weights *w* add up to *goal*."""
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if more + tl.sum(tl.where(key >= middle, w, 0.0)) >= goal:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit
def guess_kernel(
    x_ptr, work_ptr, V, pieces, k, p: tl.float64, rate: tl.float64,
    N: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Store the maximum of a row, and the range in which its threshold lies."""
    row, i, j = tl.program_id(0), tl.arange(0, N), tl.arange(0, SAMPLE)
    facts, stats, _ = memory_of(work_ptr, row, pieces)
    tops = tl.load(stats + 2 * i, mask=i < pieces, other=-float("inf"))
    sums = tl.load(stats + 2 * i + 1, mask=i < pieces, other=0.0)
    total, m = tl.sum(sums * weight(tops, tl.max(tops), rate)), tl.max(tops).to(tl.float32)
    columns = j.to(tl.int64) // 8 * (V // 8) // (SAMPLE // 8) * 8 + j % 8  # 8 share a sector
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    low, high = tl.full((), -float("inf"), tl.float32), tl.full((), float("inf"), tl.float32)
    if V > MOST:  # else all are collected
        if k > 0:
            count = tl.cast(k, tl.float32) * SAMPLE / V  # of the sample
            count += 4 * tl.sqrt(count) + 8
            key, least = key_of_float(x), tl.full((), LOWEST, tl.int32)
            least = bisect_block(key, 0.0 * j + 1.0, 0.0, least, key_of_float(m), count)
            low = tl.min(tl.where(key >= least, x, m))
        elif p < 1:
            rest = ((1 - p) * total * SAMPLE / V).to(tl.float32)
            low = guess(x, m, tl.cast(rate, tl.float32), rest, 3.5)[0]
            high = guess(x, m, tl.cast(rate, tl.float32), rest, -3.5)[1]
        else:
            high = low  # all logits are above the range
    tl.store(facts, tl.where(total > 0, m, -float("inf")).to(tl.float64))  # nan, or only -inf
    tl.store(facts + 1, low.to(tl.float64))
    tl.store(facts + 2, high.to(tl.float64))
    tl.store(facts + 3, 0.0)  # how many columns are collected


# %%
# The **second reading** adds up the weights in fp64, all and those above the range, and collects
# the few columns inside it. An atomic counter gives each program places for its columns. For
# top-k, the range has no upper end.


@triton.jit
def collect_kernel(x_ptr, work_ptr, V, pieces, rate: tl.float64):
    """Add up a piece of a row exactly, and collect its columns in the range."""
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    facts, stats, found_ptr = memory_of(work_ptr, row, pieces)
    m, low = tl.load(facts).to(tl.float32), tl.load(facts + 1).to(tl.float32)
    high = tl.load(facts + 2).to(tl.float32)
    columns = piece * PIECE + tl.arange(0, PIECE)
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    w = weight(x.to(tl.float64), m, rate)  # 0 behind the end of the row
    tl.store(stats + 2 * piece, tl.sum(w))
    tl.store(stats + 2 * piece + 1, tl.sum(tl.where(x >= high, w, 0.0)))
    found = (columns < V) & (x >= low) & (x < high)
    place = tl.cumsum(found.to(tl.int32), axis=0)
    count = tl.max(place)
    if count > 0:
        place += tl.atomic_add(facts + 3, count.to(tl.float64), sem="relaxed").to(tl.int32) - 1
        tl.store(found_ptr + place, columns, mask=found & (place < MOST))


# %%
# The last kernel has a program for each row. Bisection in registers finds the exact threshold among
# the columns collected. The program draws a piece, by the sum of what it keeps, and then a word of
# it. If the range was wrong, or holds more than 8192 columns, as with many equal logits, it draws
# slowly. Either way, the word is that of the first kernel.


@triton.jit(do_not_specialize=["seed"])
def finish_kernel(
    x_ptr, work_ptr, out_ptr, seed: tl.int64,
    V, pieces, k, p: tl.float64, rate: tl.float64, N: tl.constexpr,
):  # fmt: skip
    """Find the threshold of a row among the columns collected, and draw a word."""
    row, i, j = tl.program_id(0), tl.arange(0, N), tl.arange(0, MOST)
    facts, stats, found_ptr = memory_of(work_ptr, row, pieces)
    row_ptr = x_ptr + row.to(tl.int64) * V
    u = tl.randint(seed, row).to(tl.uint32).to(tl.float64) / 4294967296.0
    m, least = tl.load(facts).to(tl.float32), key_of_float(tl.load(facts + 1).to(tl.float32))
    most = tl.minimum(key_of_float(tl.load(facts + 2).to(tl.float32)), key_of_float(m))
    count = tl.load(facts + 3).to(tl.int32)
    columns = tl.load(found_ptr + j, mask=j < count, other=0)
    x = load_row(row_ptr, columns, V)
    key = tl.where(j < count, key_of_float(x), LOWEST)
    w = tl.where(j < count, weight(x.to(tl.float64), m, rate), 0.0)
    total = tl.sum(tl.load(stats + 2 * i, mask=i < pieces, other=0.0))
    upper = tl.sum(tl.load(stats + 2 * i + 1, mask=i < pieces, other=0.0))
    good = count <= MOST
    if k > 0:
        good = good & (count >= k)
        least = bisect_block(key, tl.where(j < count, 1.0, 0.0), 0.0, least, most, k)
        w = tl.where(key >= least, w, 0.0)
        total = tl.sum(w)
    if p < 1:
        good = good & (upper < p * total) & (upper + tl.sum(w) >= p * total)
        least = bisect_block(key, w, upper, least, most, p * total)
        w = tl.where(key >= least, w, 0.0)
    word = tl.full((), -1, tl.int32)  # only -inf, or nan
    if good & (m > -float("inf")):
        tl.atomic_add(stats + 2 * (columns // PIECE) + 1, w, mask=w > 0, sem="relaxed")
        tl.debug_barrier()
        sums = tl.load(stats + 2 * i + 1, mask=i < pieces, other=0.0, cache_modifier=".cg")
        target = u * tl.sum(sums)
        reached = (sums > 0) & (tl.cumsum(sums, axis=0) > target)
        piece = tl.min(tl.where(reached, i, tl.max(tl.where(sums > 0, i, 0))))
        target -= tl.sum(tl.where(i < piece, sums, 0.0))
        first = piece * PIECE
        word = pick(row_ptr, first, first + PIECE, V, least, target, m, rate)
    elif m > -float("inf"):
        word = draw_slowly(row_ptr, V, k, p, rate, m, u)
    tl.store(out_ptr + row, word.to(tl.int64))


# %%
# Calling it
# ----------
#
# A plan is kept for logits and settings that are alike: :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "checks the arguments, and plans the launches"
# sphinx_gallery_show = "sample"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of


def check_arguments(logits, temperature, top_k, top_p, seed):
    """Raise TypeError or ValueError, naming the argument, if no word can be drawn."""
    dtype = getattr(logits, "dtype", type(logits).__name__)
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"logits must be a torch.Tensor of fp16, bf16 or fp32, but is {dtype}")
    if logits.device != DEVICE or logits.ndim != 2 or logits.shape[1] == 0:
        found = f"shape {tuple(logits.shape)} on {logits.device}"
        raise ValueError(f"logits must be [batch, at least one word] on {DEVICE}, but have {found}")
    for name, value, right, rule in (
        ("temperature", temperature, lambda t: 0 <= t < float("inf"), "0 or more, and finite"),
        ("top_k", top_k, lambda k: k >= 0, "0 (no limit) or more"),
        ("top_p", top_p, lambda p: 0 < p <= 1, "more than 0, and at most 1 (no limit)"),
        ("seed", seed, lambda s: 0 <= s < 2**63, "from 0 to 2**63 - 1"),
    ):
        kind = int if name in ("top_k", "seed") else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"{name} must be a number, but is a {type(value).__name__}")
        if not right(value):
            raise ValueError(f"{name} must be {rule}, but is {value}")


def plan_of(logits, temperature, top_k, top_p):
    """Return how much memory the rows need, and the launches."""
    if temperature < 1e-20:
        temperature, top_k = 1.0, 1  # the maximum
    (rows, V), k = logits.shape, top_k * (top_k < logits.shape[1])
    pieces, rate = triton.cdiv(V, PIECE.value), 1 / temperature
    some, numbers = (V, pieces, rate), (V, pieces, k, float(top_p), rate)
    large, small = {"N": triton.next_power_of_2(pieces), "num_warps": 16}, {"num_warps": 2}
    sums = Launch(sum_kernel, (rows * pieces,), some, small)
    sizes = large | {"SAMPLE": (8192 if V < 200000 else 32768) if ON_GPU else 64}
    guesses = Launch(guess_kernel, (rows,), numbers, sizes)
    launches = sums, guesses, Launch(collect_kernel, (rows * pieces,), some, small)
    size = rows, 4 + 2 * pieces + MOST.value // 2
    return size, launches, Launch(finish_kernel, (rows,), numbers, large)


PLANS = {}


def sample(logits, temperature=1.0, top_k=0, top_p=1.0, seed=0):
    """Return one word for each row of logits, [batch], int64.

    Args:
        logits: [batch, words], fp16, bf16 or fp32.
        temperature: What logits are divided by; with 0, a maximum is taken.
        top_k: How many logits are kept, and those equal to the last one; 0 for all.
        top_p: The share of the remaining weights that is kept at least; 1 for all.
        seed: From 0 to 2**63 - 1. A row's word depends on it, the row's logits, and its number.

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
            return logits.new_empty(0, dtype=torch.int64)
        if not ON_GPU:  # there, bf16 is computed wrongly, and a check does not wait
            if not (logits.amax(dim=1) > -float("inf")).all():
                raise ValueError("a row of logits contains nan, or only -inf")
            logits = logits.float()
        logits = logits.contiguous()
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        settings = temperature, top_k, top_p
        plan = PLANS[key_of(logits), *settings] = plan_of(logits, *settings)
    size, launches, last = plan
    work = logits.new_empty(size, dtype=torch.float64)
    out = logits.new_empty(size[0], dtype=torch.int64)
    for launch in launches:
        launch(logits, work)
    last(logits, work, out, seed)
    return out


# The first kernel's words must be among those that a sort keeps. ``sample`` must draw them, too.
def kept(logits, temperature, top_k, top_p):
    """Return which logits are kept, by sorting in float64."""
    x = logits.double() / temperature
    y = x.sort(dim=1, descending=True).values
    y = y.where(y >= y[:, top_k - 1 : top_k], -torch.inf) if 0 < top_k < x.shape[1] else y
    w = y.softmax(dim=1)
    inside = (w.cumsum(dim=1) - w < top_p) & (y > -torch.inf)
    return x >= y.where(inside, torch.inf).amin(dim=1, keepdim=True)


def draw_plainly(logits, temperature, top_k, top_p, seed):
    """Return the words that the first kernel draws."""
    words = torch.empty(len(logits), dtype=torch.int64, device=DEVICE)
    numbers = seed, logits.shape[1], top_k, float(top_p), 1 / temperature
    plain_kernel[(len(logits),)](logits, words, *numbers, num_warps=8)
    return words


def check(logits):
    """Compare the words of both ways, and what they are drawn from."""
    for settings in ((1.0, 0, 1.0), (0.7, 0, 0.9), (1.0, 50, 1.0), (2.0, 60, 0.5)):
        words = draw_plainly(logits, *settings, 3)
        right = kept(logits, *settings).gather(1, words[:, None])
        torch.testing.assert_close(right, torch.ones_like(right), msg="a word is not kept")
        torch.testing.assert_close(sample(logits, *settings, 3), words, rtol=0, atol=0)


logits = torch.randn(2, 601, device=DEVICE)
for x in (logits[:, :200], 6 * logits, logits.round(), logits.where(logits > 0, -torch.inf)):
    check(x.contiguous())
print("sample draws what the first kernel draws, of the logits that a sort keeps")

# %%
# The benchmark
# -------------
#
# The logits are normally distributed, in fp32. **Sort** is PyTorch's sort, softmax, cumulative sum
# and ``multinomial``, and **read** is ``amax``. The check runs at these sizes first.

# sphinx_gallery_fold = "checks and times five batches, and draws the times"
import matplotlib.pyplot as plt
from shared.bench import rows_of, write_calls, write_rows


def by_sorting(logits, top_p):
    """Return one word for each row, as most programs draw it."""
    x, order = logits.sort(dim=1, descending=True)
    w = x.softmax(dim=1)
    w[w.cumsum(dim=1) - w >= top_p] = 0
    return order.gather(1, w.multinomial(1))[:, 0]


def benchmark(batch, V):
    """Return rows (batch, V, provider, unit, median, p20, p80)."""
    check(x := torch.randn(batch, V, device=DEVICE))
    calls = {"triton": lambda: sample(x, top_p=0.9), "triton, top-k": lambda: sample(x, top_k=50)}
    calls |= {"sort": lambda: by_sorting(x, 0.9), "softmax": lambda: x.softmax(dim=1)}
    calls |= {"read": x.amax, "triton, plain": lambda: draw_plainly(x, 1.0, 0, 0.9, 0)}
    return rows_of((batch, V), calls, "µs", rounds=10)


if ON_GPU:
    sizes = (1, 131072), (16, 131072), (128, 131072), (128, 32000), (512, 151936)
    rows = [row for size in sizes for row in benchmark(*size)]
    write_rows("sampling.csv", ["batch", "V"], rows)
    x = torch.randn(4, 32000, device=DEVICE)
    calls = {"triton": lambda: sample(x, top_p=0.9), "torch": lambda: by_sorting(x, 0.9)}
    write_calls({"sample": calls})
    _, ax = plt.subplots(layout="constrained")
    colors = {"sort": "#d1495b", "triton": "#1b6ca8", "triton, top-k": "#2e8b57", "read": "#444444"}
    for name, color in colors.items():
        times = sorted((row[0] * row[1], row[4]) for row in rows if row[2] == name)
        ax.loglog(*zip(*times, strict=True), label=name, color=color, marker=".")
    title = f"A word for each row\non {torch.get_device_module().get_device_name()}"
    ax.set(title=title, xlabel="logits in all rows", ylabel="µs, lower is better")
    ax.legend()
    plt.show()
else:
    print("Without a GPU there is nothing to time.")

# %%
# For 128 × 131072 logits, top-p takes :measured:`triton` µs, top-k :measured:`top_k` µs, a sort
# :measured:`sort` µs, and a read :measured:`read` µs. One row takes :measured:`single` µs, mostly
# in the bisections of one program; 512 × 151936 logits take :measured:`large` µs. The CPU's share
# of a call is :measured:`cpu` µs, and that of sorting :measured:`cpu_sort` µs.
#
# Exercises
# ---------
#
# 1. **Min-p.** Keep the words that are at least *min_p* times as probable as the most probable one,
#    in ``sample_min_p(logits, min_p, seed)``. Does it need a bisection?
#    :doc:`Solution <solutions/13-min-p>`.
# 2. **A repetition penalty.** For each word of ``tokens``, [batch, tokens] in int64, divide a
#    positive logit by *penalty* and multiply a negative one, once for each word. Return new logits
#    from ``penalize(logits, tokens, penalty)``. :doc:`Solution <solutions/13-repetition-penalty>`.
#
# References
# ----------
#
# * Ari Holtzman and others: *The curious case of neural text degeneration*, 2019,
#   https://arxiv.org/abs/1904.09751: top-p.
# * Minh Nguyen and others: *Turning up the heat*, 2024, https://arxiv.org/abs/2407.01082: min-p.
