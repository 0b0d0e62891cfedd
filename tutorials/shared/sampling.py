"""What the lesson on sampling needs beside its kernels: functions, pictures, checks."""

from functools import partial
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
import triton
import triton.language as tl
from shared.bench import figure, gpu_times, spread


def draw_threshold(weights, goal):
    """Draw weights in descending order, their running sum, and where it reaches the goal."""
    fig, ax = figure(height=3.6)
    sums, kept = weights.cumsum(0), (weights.cumsum(0) - weights < goal).tolist()
    colors = ["#cfe3f1" if keep else "#eeeeee" for keep in kept]
    ax.bar(range(len(weights)), weights, color=colors, edgecolor="#444444")
    ax.step(range(len(weights)), sums, where="mid", color="#1b6ca8", label="sum of the weights")
    ax.axhline(goal, color="#444444", linestyle="--", label="share p of the sum")
    ax.axvline(sum(kept) - 0.5, color="#d1495b", label="threshold")
    ax.set(title="Top-p with p = 0.9", xlabel="token, largest logit first", ylabel="weight")
    fig.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()


def draw_keys(floats):
    """Draw the bits of floats beside those of their keys; a dark cell is a 1."""
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


def added_times(launches):
    """Return the µs that each of *launches* adds to the GPU's time of those before it."""

    def run(count):
        for launch in launches[:count]:
            launch()

    counts = range(1, len(launches) + 1)
    times = gpu_times({count: partial(run, count) for count in counts}, 20)
    return [b - a for a, b in pairwise([0, *(1e3 * spread(times[count])[0] for count in counts)])]


LARGEST = tl.constexpr(3.4028234663852886e38)  # the largest float


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
def target_of(seed, row, total):
    """Return a random integer from 0 to *total* - 1."""
    bits = tl.randint(seed, row).to(tl.uint32, bitcast=True).to(tl.uint64)
    return tl.umulhi(total.to(tl.uint64), bits << 32).to(tl.int64)  # total · bits / 2³²


@triton.jit
def share_of(total, p):
    """Return the least integer that is at least *p* times *total*, and at least 1."""
    return tl.maximum(tl.ceil(p * total.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def guess(x, m, rate, rest, deviations):
    """Return a short range; below it, a sample's weights and *deviations* add up to *rest*."""
    low, high = m + tl.log2(rest / x.shape[0]) / rate, m + 1.5 / rate
    w = weight_of(x, m, rate)
    for _ in range(12):  # to 1/4096 of the first range
        middle = 0.5 * (low + high)
        last = weight_of(middle, m, rate)
        slack = deviations * (tl.sqrt(last * rest) + 2 * last)  # more where the weights are few
        below = tl.sum(tl.where(x < middle, w, 0.0)) + slack < rest
        low, high = tl.where(below, middle, low), tl.where(below, high, middle)
    return low, high


@triton.jit
def bisect_block(key, units, more, low, high, goal):
    """Return the largest key from which on *more* and the weights in *units* reach *goal*."""
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if more + tl.sum(tl.where(key >= middle, units, 0)) >= goal:
            low = middle
        else:
            high = middle - 1
    return low
