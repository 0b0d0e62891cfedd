"""What the lesson on sampling needs beside its kernels: functions, pictures, checks."""

from functools import partial
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
import triton
import triton.language as tl
from shared.bench import figure, gpu_times, spread
from tabulate import tabulate
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


def draw_threshold(weights, goal):
    """Draw weights in descending order, their running sum, and where it reaches the goal."""
    fig, ax = figure(height=3.6)
    sums, kept = weights.cumsum(0), (weights.cumsum(0) - weights < goal).tolist()
    colors = ["#cfe3f1" if keep else "#eeeeee" for keep in kept]
    ax.bar(range(len(weights)), weights, color=colors, edgecolor="#444444")
    ax.step(range(len(weights)), sums, where="mid", color="#1b6ca8", label="sum of the weights")
    ax.axhline(goal, color="#444444", linestyle="--", label="share p of the sum")
    ax.axvline(sum(kept) - 0.5, color="#444444", label="threshold")
    ax.set(title="Top-p with p = 0.9", xlabel="token, largest logit first", ylabel="weight")
    fig.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()


def draw_keys(floats):
    """Draw the bits of floats beside those of their keys; a filled cell is a 1."""
    _, ax = figure(height=3.4)
    bits = torch.tensor(floats).view(torch.int32)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    for row, (value, *pair) in enumerate(zip(floats, bits.tolist(), keys.tolist(), strict=True)):
        for side, number in enumerate(pair):
            for bit in range(12):  # the sign, the exponent and the first bits of the mantissa
                on = number >> (31 - bit) & 1
                style = {"facecolor": "#1b6ca8" if on else "#eeeeee", "edgecolor": "#444444"}
                ax.add_patch(plt.Rectangle((bit + 14 * side, row), 1, 0.8, **style))
        ax.text(-0.5, row + 0.4, f"{value:g}", ha="right", va="center")
        ax.text(26.5, row + 0.4, f"{pair[1] / 2**20:,.0f}", ha="left", va="center")
    ax.set(xlim=(-4, 32), ylim=(len(floats), -0.4))
    ax.set_title("first 12 bits of a float | of its key, and key / 2²⁰")
    ax.axis("off")
    plt.show()


def kept_by_sort(logits, temperature, top_k, top_p):
    """Return which logits are kept, by sorting in float64."""
    x = logits.double() / temperature
    y = x.sort(dim=1, descending=True).values
    y = y.where(y >= y[:, top_k - 1 : top_k], -torch.inf) if 0 < top_k < x.shape[1] else y
    w = y.softmax(dim=1)
    inside = (w.cumsum(dim=1) - w < top_p) & (y > -torch.inf)
    return x >= y.where(inside, torch.inf).amin(dim=1, keepdim=True)


SETTINGS = (1.0, 0, 1.0), (0.7, 0, 0.9), (1.0, 50, 1.0), (2.0, 60, 0.5)


def check(logits, function, other=None):
    """Stop unless a sort keeps all tokens that *function* samples; *other* samples the same."""
    for settings in SETTINGS:
        tokens = function(logits, *settings, 3)
        right = kept_by_sort(logits, *settings).gather(1, tokens[:, None])
        torch.testing.assert_close(right, torch.ones_like(right), msg="a token is not kept")
        if other is not None:
            expected = other(logits.contiguous(), *settings, 3)
            torch.testing.assert_close(tokens, expected, rtol=0, atol=0)


def by_sorting(logits, top_p):
    """Return one token for each row, with a sort."""
    x, order = logits.sort(dim=1, descending=True)
    w = x.softmax(dim=1)
    w[w.cumsum(dim=1) - w >= top_p] = 0
    return order.gather(1, w.multinomial(1))[:, 0]


def check_arguments(logits, temperature, top_k, top_p, seed, device):
    """Raise TypeError or ValueError, naming the argument, if no token can be sampled.

    *device* is one of the kind that the logits must be on.
    """
    dtype = getattr(logits, "dtype", type(logits).__name__)
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"logits must be a torch.Tensor of fp16, bf16 or fp32, but is {dtype}")
    if logits.layout != torch.strided:
        raise ValueError(f"logits must be strided, but their layout is {logits.layout}")
    if logits.device.type != device.type or logits.ndim != 2 or not 0 < logits.shape[1] <= 2**22:
        found = f"shape {tuple(logits.shape)} on {logits.device}"
        raise ValueError(
            f"logits must be [batch, 1 to 2**22 tokens] on {device.type}, but have {found}"
        )
    if logits.requires_grad and torch.is_grad_enabled():
        why = "which a sampled token does not have: call torch.no_grad(), or pass logits.detach()"
        raise ValueError(f"logits requires a gradient, {why}")
    if isinstance(seed, torch.Tensor):
        if seed.dtype != torch.int64 or seed.numel() != 1 or seed.device != logits.device:
            found = f"{seed.dtype}, shape {tuple(seed.shape)} on {seed.device}"
            raise ValueError(f"seed must be one int64 on {logits.device}, but is {found}")
        seed = 0
    for name, value, right, rule in (
        ("temperature", temperature, lambda t: 0 <= t < 2**1024, "0 or more, and finite"),
        ("top_k", top_k, lambda k: k >= 0, "0 (no limit) or more"),
        ("top_p", top_p, lambda p: 0 < p <= 1, "more than 0, and at most 1 (no limit)"),
        ("seed", seed, lambda s: 0 <= s < 2**63, "from 0 to 2**63 - 1"),
    ):
        kind = int if name in ("top_k", "seed") else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"{name} must be a number, but is a {type(value).__name__}")
        if not right(value):
            raise ValueError(f"{name} must be {rule}, but is {value}")


def added_times(launches):
    """Return the µs that each of *launches* adds to the GPU's time of those before it."""

    def run(count):
        for launch in launches[:count]:
            launch()

    counts = range(1, len(launches) + 1)
    times = gpu_times({count: partial(run, count) for count in counts}, 20)
    return [b - a for a, b in pairwise([0, *(1e3 * spread(times[count])[0] for count in counts)])]


def print_added(x, plan):
    """Print the table of what each kernel of a plan reads, and of the time that it adds."""
    size, launches, last = plan
    work = x.new_empty(size, dtype=torch.int64)
    out = x.new_empty(len(x), dtype=torch.int64)
    calls = *(partial(launch, x, work) for launch in launches), partial(last, x, work, out, work, 0)
    names = [launch.kernel.__name__ for launch in (*launches, last)]
    megabytes = x.nbytes / 1e6, len(x) * 8192 * 4 / 1e6, x.nbytes / 1e6, 0
    table = list(zip(names, megabytes, added_times(calls), strict=True))
    print(tabulate(table, ["kernel", "MB of logits", "µs"], floatfmt=("", ",.0f", ",.0f")))


LARGEST = tl.constexpr(3.4028234663852886e38)  # the largest float
ROUGH = tl.constexpr(1.5 * 2.0**43)  # here, neighbouring floats differ by 2**20
FINE = tl.constexpr(1.5 * 2.0**23)  # here they differ by 1
NVIDIA = torch.cuda.is_available() and not torch.version.hip
EARLY = tl.constexpr(  # from Hopper on; the interpreter has no such waits
    NVIDIA and not triton.knobs.runtime.interpret and torch.cuda.get_device_capability()[0] >= 9
)
LAUNCHED_EARLY = {"launch_pdl": True} if EARLY.value else {}  # for kernels with wait()


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
def start_next():
    """Let the next kernel begin: it waits for the results of this one."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait():
    """Wait for the results of the kernel before."""
    if EARLY:
        gdc_wait()


@triton.jit
def tile_of(SIZE: tl.constexpr, C: tl.constexpr):
    """Return the numbers from 0 on as [R, 4, C]: C threads have R times four neighbours each."""
    quads = tl.arange(0, SIZE // (4 * C))[:, None, None] * C + tl.arange(0, C)[None, None, :]
    return 4 * quads + tl.arange(0, 4)[None, :, None]


@triton.jit
def rows_of(SIZE: tl.constexpr, C: tl.constexpr):
    """Return the numbers from 0 on as [R, 4, C]: neighbours belong to neighbouring threads."""
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
def float_of_key(key):
    """Return the float of a key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


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
