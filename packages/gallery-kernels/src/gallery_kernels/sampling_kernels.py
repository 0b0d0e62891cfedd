"""The kernels of ``sample``. The lesson 13-sampling explains them.

A row of logits is cut into *pieces*. Its weights are integers, so sums of them are exact in any
order. In the order of the *keys* of the logits, which are integers, too, the threshold of a row is
searched: all logits from there on are kept.

A row has memory of int64 for 4 facts (the maximum, both ends of the range in which the threshold
lies, and a counter), for 2 sums of each piece, and for MOST logits that are collected.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOWEST_KEY = tl.constexpr(-(2**31))
LARGEST = tl.constexpr(3.4028234663852886e38)  # the largest float
ROUGH = tl.constexpr(1.5 * 2.0**43)  # here, neighboring floats differ by 2**20
FINE = tl.constexpr(1.5 * 2.0**23)  # here they differ by 1


@triton.jit
def load_row(row_ptr, columns, V):
    """Return logits in fp32, inf as the largest finite one; -inf behind the end of the row."""
    x = tl.load(row_ptr + columns, mask=columns < V, other=-float("inf")).to(tl.float32)
    return tl.minimum(x, LARGEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def weight_of(x, m, rate):
    """Return 2 ** ((x - m) * rate), and 0 for -inf; *rate* is log2(e) / temperature."""
    distance = tl.maximum(x - m, -LARGEST, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(x == -float("inf"), 0.0, tl.exp2(distance * rate))


@triton.jit
def parts_of(y):
    """Return floats whose bits count the multiples of 2**20 in *y*, and the units left."""
    rough = y + ROUGH
    return rough, (y - (rough - ROUGH)) + FINE


@triton.jit
def nearest(y):
    """Return the integers nearest to *y*, which is from 0 to 2**40: int64."""
    rough, fine = parts_of(y)
    rough = rough.to(tl.int32, bitcast=True) - 0x55400000  # the bits of ROUGH
    return rough.to(tl.int64) * 1048576 + (fine.to(tl.int32, bitcast=True) - 0x4B400000)


@triton.jit
def target_of(seed, row, total):
    """Return a random integer from 0 to *total* - 1."""
    bits = tl.randint(seed, row).to(tl.uint32, bitcast=True).to(tl.uint64)
    return tl.umulhi(total.to(tl.uint64), bits << 32).to(tl.int64)  # total · bits / 2³²


@triton.jit
def share_of(total, p):
    """Return the least integer that is at least *p* times *total*, and at least 1."""
    return tl.maximum(tl.ceil(p * total.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def key_of_float(x):
    """Return int32 keys in the order of the floats *x*."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0.0 becomes 0.0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def float_of_key(key):
    """Return the float of a key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def units_of(x, m, rate):
    """Return the weights as integers, in units of 2**-40; that of the maximum *m* is 2**40."""
    return nearest(weight_of(x, m, rate) * 2.0**40)


# One program for a whole row


@triton.jit
def above(row_ptr, V, key, m, rate, COUNT: tl.constexpr, PIECE: tl.constexpr):
    """Return the sum of the weights from *key* on; with COUNT, the number of logits."""
    total = tl.zeros((PIECE,), tl.int64)
    for start in range(0, V, PIECE):
        x = load_row(row_ptr, start + tl.arange(0, PIECE), V)
        units = tl.full((PIECE,), 1, tl.int64) if COUNT else units_of(x, m, rate)
        total += tl.where(key_of_float(x) >= key, units, 0)
    return tl.sum(total)


@triton.jit
def bisect(row_ptr, V, goal, m, rate, COUNT: tl.constexpr, PIECE: tl.constexpr):
    """Return the largest key from which on the weights of a row add up to at least *goal*."""
    low, high = tl.full((), LOWEST_KEY, tl.int32), key_of_float(m)
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up, without overflow
        if above(row_ptr, V, middle, m, rate, COUNT, PIECE) >= goal:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit
def pick(row_ptr, first, last, V, least, target, m, rate, PIECE: tl.constexpr):
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
def sample_row(row_ptr, row, seed, V, k, p, rate, m, PIECE: tl.constexpr):
    """Return a token of a row whose maximum is *m*."""
    least = tl.full((), LOWEST_KEY, tl.int32)
    if k > 0:
        least = bisect(row_ptr, V, k, m, rate, True, PIECE)
    total = above(row_ptr, V, least, m, rate, False, PIECE)
    if p < 1:
        least = bisect(row_ptr, V, share_of(total, p), m, rate, False, PIECE)
        total = above(row_ptr, V, least, m, rate, False, PIECE)
    return pick(row_ptr, 0, V, V, least, target_of(seed, row, total), m, rate, PIECE)


# Tiles of a piece or a row


@triton.jit
def tile_of(SIZE: tl.constexpr, C: tl.constexpr):
    """Return the numbers from 0 on as [R, 4, C]: C threads have R times four neighbors each."""
    quads = tl.arange(0, SIZE // (4 * C))[:, None, None] * C + tl.arange(0, C)[None, None, :]
    return 4 * quads + tl.arange(0, 4)[None, :, None]


@triton.jit
def rows_of(SIZE: tl.constexpr, C: tl.constexpr):
    """Return the numbers from 0 on as [R, 4, C]: neighbors belong to neighboring threads."""
    lines = tl.reshape(tl.arange(0, SIZE // C), (SIZE // (4 * C), 4))
    return lines[:, :, None] * C + tl.arange(0, C)[None, None, :]


@triton.jit
def fold(x):
    """Return the C sums of [R, 4, C] numbers: each thread adds up its own."""
    return tl.sum(tl.sum(x, axis=1), axis=0)


@triton.jit
def add_parts(rough, fine):
    """Add up [R, 4, C] parts in int32, and return C sums: int64."""
    # The bits of ROUGH and FINE, once a number. They may overflow: the difference is right.
    rough_bits: tl.constexpr = (rough.shape[0] * 4 * 0x55400000 + 2**31) % 2**32 - 2**31
    fine_bits: tl.constexpr = (fine.shape[0] * 4 * 0x4B400000 + 2**31) % 2**32 - 2**31
    rough = fold(rough.to(tl.int32, bitcast=True)) - rough_bits
    return rough.to(tl.int64) * 1048576 + (fold(fine.to(tl.int32, bitcast=True)) - fine_bits)


@triton.jit
def sums_of(y):
    """Return C sums of the integers nearest to [R, 4, C] numbers."""
    rough, fine = parts_of(y)
    return add_parts(rough, fine)


@triton.jit
def both_sums(y, upper):
    """Return the sum of the integers nearest to [R, 4, C] numbers, and of those in *upper*."""
    rough, fine = parts_of(y)
    some = add_parts(tl.where(upper, rough, ROUGH), tl.where(upper, fine, FINE))
    return tl.sum(add_parts(rough, fine)), tl.sum(some)


@triton.jit
def places_of(found):
    """Number those that are found, of [R, 4, C], from 0 on; return the numbers, and how many."""
    ones = found.to(tl.int32)
    some = fold(ones)
    place = tl.cumsum(tl.reshape(ones, (ones.shape[0] * 4, ones.shape[2])), axis=0)
    first = tl.cumsum(some, axis=0) - some - 1
    return tl.reshape(place, ones.shape) + first[None, None, :], tl.sum(some)


@triton.jit
def joined(x, columns):
    """Return floats and columns as integers: the bits of the floats are the upper half."""
    return x.to(tl.int32, bitcast=True).to(tl.int64) << 32 | columns.to(tl.uint32)


@triton.jit
def add_two(a, b, c, d):
    """Add two pairs."""
    return a + c, b + d


@triton.jit
def range_of(x, m, rate, rest):
    """Return between which logits a sample's weights from the smallest on add up to *rest*."""
    rest = rest.to(tl.float32)
    low, high = m + tl.log2(rest / x.numel) / rate, m + 1.5 / rate
    low2, high2, w = low, high, weight_of(x, m, rate)
    for _ in range(10):  # to 1/1024 of the first range
        a, b = 0.5 * (low + high), 0.5 * (low2 + high2)
        at_a, at_b = weight_of(a, m, rate), weight_of(b, m, rate)
        under_a, under_b = fold(tl.where(x < a, w, 0.0)), fold(tl.where(x < b, w, 0.0))
        under_a, under_b = tl.reduce((under_a, under_b), 0, add_two)
        # 3.5 deviations of a sum, and more where the weights are few
        left = under_a + 3.5 * (tl.sqrt(at_a * rest) + 2 * at_a) < rest
        left2 = under_b - 3.5 * (tl.sqrt(at_b * rest) + 2 * at_b) < rest
        low, high = tl.where(left, a, low), tl.where(left, high, a)
        low2, high2 = tl.where(left2, b, low2), tl.where(left2, high2, b)
    return low, high2


@triton.jit
def least_of(key, m, rate, COUNT: tl.constexpr):
    """Return the weight of a key as an integer, and 0 if rounding hides the next key's."""
    one = tl.full((), 1, tl.int64)
    if not COUNT:
        one = nearest(weight_of(float_of_key(key), m, rate) * 2.0**40)
        one = tl.where(one < 1024, 0, one)
    return one


@triton.jit
def search(x, y, more, low, high, goal, m, rate, COUNT: tl.constexpr):
    """Return the largest of the logits from which on *more* and the weights *y* reach *goal*.

    It lies between the keys *low* and *high*. With COUNT, the weights are 1. Each round asks at two
    keys, around the one where a line from one sum to the other meets the goal. If that did not
    halve the range, the next round asks at thirds. A range with the weight of one has one logit.
    """
    if COUNT:
        y = tl.full(x.shape, 1.0, tl.float32)
    rest = tl.full((), 0, tl.int64) + more  # behind high
    total = rest + tl.sum(sums_of(tl.where(x > -float("inf"), y, 0.0)))  # from low on
    one, good = least_of(low, m, rate, COUNT), total >= goal
    while (low < high) & (2 * (total - rest) >= 3 * one):
        span = high.to(tl.int64) - low
        wide = span.to(tl.float32)
        share = (total - goal).to(tl.float32) / tl.maximum(total - rest, 1).to(tl.float32)
        share, half = tl.where(good, share, 0.5), tl.where(good, 0.0625, 0.16667)
        a = tl.minimum(tl.maximum(((share - half) * wide).to(tl.int64), 1), span)
        b = tl.minimum(tl.maximum(((share + half) * wide).to(tl.int64), a), span)
        a, b = (low + a).to(tl.int32), (low + b).to(tl.int32)
        from_a = sums_of(tl.where(x >= float_of_key(a), y, 0.0))
        from_b = sums_of(tl.where(x >= float_of_key(b), y, 0.0))
        from_a, from_b = tl.reduce((from_a, from_b), 0, add_two)
        from_a, from_b = from_a + more, from_b + more
        if from_b >= goal:
            low, total = b, from_b
        elif from_a >= goal:
            low, total, high, rest = a, from_a, b - 1, from_b
        else:
            high, rest = a - 1, from_a
        good = 2 * (high.to(tl.int64) - low) <= span
        one = least_of(low, m, rate, COUNT)
    return tl.max(tl.where(x < float_of_key(high + 1), x, -LARGEST))  # key -1 would be -0.0


# The four launches


@triton.jit
def start_next(EARLY: tl.constexpr):
    """Let the next kernel begin: it waits for the results of this one."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait(EARLY: tl.constexpr):
    """Wait for the results of the kernel before."""
    if EARLY:
        gdc_wait()


@triton.jit
def memory_of(work_ptr, row, pieces, MOST: tl.constexpr):
    """Return where a row keeps 4 facts, 2 sums of each piece, and the logits collected."""
    facts = work_ptr + row.to(tl.int64) * (4 + 2 * pieces + MOST)
    return facts, facts + 4, facts + 4 + 2 * pieces


@triton.jit
def sum_kernel(
    x_ptr, work_ptr, V, pieces, rate,
    PIECE: tl.constexpr, MOST: tl.constexpr, C: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Store the maximum of a piece of a row, and the rough sum of its weights, in fp32."""
    start_next(EARLY)
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    _, sums, _ = memory_of(work_ptr, row, pieces, MOST)
    stats = sums.to(tl.pointer_type(tl.float32)) + 2 * piece
    x = load_row(x_ptr + row.to(tl.int64) * V, piece * PIECE + tile_of(PIECE, C), V)
    top = tl.maximum(tl.max(x), -LARGEST)  # if all are -inf
    tl.store(stats, top)
    tl.store(stats + 1, tl.sum(weight_of(x, top, rate)))  # nan if a logit is


@triton.jit(do_not_specialize=["k"])
def guess_kernel(
    x_ptr, work_ptr, V, pieces, k, p: tl.float64, rate,
    MOST: tl.constexpr, N: tl.constexpr, SAMPLE: tl.constexpr, C: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Store the maximum of a row, and the range in which its threshold lies."""
    start_next(EARLY)
    row, i, j = tl.program_id(0), tl.arange(0, N), tile_of(SAMPLE, C)
    facts, sums, _ = memory_of(work_ptr, row, pieces, MOST)
    columns = j.to(tl.int64) // 8 * (V // 8) // (SAMPLE // 8) * 8 + j % 8  # 8 in 32 bytes
    x = load_row(x_ptr + row.to(tl.int64) * V, columns, V)
    wait(EARLY)
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


@triton.jit
def collect_kernel(
    x_ptr, work_ptr, V, pieces, rate,
    PIECE: tl.constexpr, MOST: tl.constexpr, C: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Add up a piece of a row exactly, and collect its logits in the range."""
    row, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    facts, sums, found_ptr = memory_of(work_ptr, row, pieces, MOST)
    columns = piece * PIECE + tile_of(PIECE, C)
    x_ptrs = x_ptr + row.to(tl.int64) * V + columns
    x = tl.load(x_ptrs, mask=columns < V, other=-float("inf")).to(tl.float32)
    start_next(EARLY)
    wait(EARLY)
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


@triton.jit(do_not_specialize=["seed", "k"])
def finish_kernel(
    x_ptr, work_ptr, out_ptr, seed_ptr, seed: tl.int64, V, pieces, k, p: tl.float64, rate,
    PIECE: tl.constexpr, MOST: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    SEED_ON_GPU: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Find the threshold of a row among the logits collected, and sample a token."""
    row, i, j = tl.program_id(0), tl.arange(0, N), rows_of(MOST, C)
    facts, sums, found_ptr = memory_of(work_ptr, row, pieces, MOST)
    floats = facts.to(tl.pointer_type(tl.float32))
    row_ptr = x_ptr + row.to(tl.int64) * V
    if SEED_ON_GPU:
        seed = tl.load(seed_ptr)
    wait(EARLY)
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
            token = pick(row_ptr, first, first + PIECE, V, least, target, m, rate, PIECE)
        else:
            token = sample_row(row_ptr, row, seed, V, k, p, rate, m, PIECE)
    tl.store(out_ptr + row, token.to(tl.int64))
