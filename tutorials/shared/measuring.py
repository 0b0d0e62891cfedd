"""How every script times kernels, and how it rounds and keeps what it measured."""

import contextlib
import csv
import math
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from shared.setup import DEVICE, ON_GPU
from tabulate import tabulate


def significant(value):
    """Return *value* as text with three significant figures, such as 4310, 52.1 or 0.980."""
    rounded = f"{value:.2e}"  # first, since 9.996 has the exponent of 10.0
    decimals = max(0, 2 - int(rounded.partition("e")[2]))
    return f"{float(rounded):.{decimals}f}"


def in_new_thread(call):
    """Return what *call* returns, in a thread that has not used the GPU yet."""
    torch.accelerator.set_device_index(DEVICE.index)  # a new thread begins with the first GPU,
    torch.zeros(1, device=DEVICE)  # and without a context, which descriptors need
    return call()


def side_by_side(calls):
    """Return what *calls* return; made in threads, they have their kernels compiled together."""
    if not ON_GPU:
        return [call() for call in calls]
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(in_new_thread, calls))


def warm_up(calls):
    """Have the kernels of *calls* compiled together; an error comes when a call is made again."""

    def attempt(call):
        with contextlib.suppress(Exception):
            call()

    if ON_GPU:
        side_by_side([partial(attempt, call) for call in calls])


def measure(calls, rounds=40):
    """Return {name: the milliseconds of each of *rounds* calls}; the *calls* take turns.

    Before each call the GPU reads other memory, meanwhile the call is queued. Should the GPU have
    come to it before Python had queued the whole of it, the events hold time of Python: the call
    is made again, with twice as much to read. A call that waits for the GPU itself is taken as it
    is when 8 GiB were read in vain.
    """
    gpu = torch.get_device_module(DEVICE)
    other = torch.zeros(2**27, dtype=torch.int32, device=DEVICE)  # 512 MiB
    events = {name: [] for name in calls}
    reads = dict.fromkeys(calls, 2)
    for call in calls.values():
        call()  # compiles the kernel
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            while True:
                start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
                for _ in range(reads[name]):
                    other.amax()  # reads 512 MiB, so that the cache holds nothing of ours
                start.record()
                calls[name]()
                end.record()
                if reads[name] == 16 or not start.query():  # the GPU is still reading
                    break
                reads[name] *= 2
            events[name].append((start, end))
    gpu.synchronize()
    return {
        name: torch.tensor([start.elapsed_time(end) for start, end in pairs])
        for name, pairs in events.items()
    }


def rates(ms, amount):
    """Return the median, 20th and 80th percentile of the rate, in 10⁹ of *amount* a second.

    Bytes give GB/s; thousands of operations give TFLOPS.
    """
    return (amount / ms / 1e6).quantile(torch.tensor([0.5, 0.2, 0.8])).tolist()


def write_rows(path, columns, rows):
    """Write *rows*, (size …, provider, unit, median, p20, p80), to the CSV file *path*."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "provider", "unit", "median", "p20", "p80"])
        writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)


def geometric_mean(ratios):
    """Return the geometric mean of some ratios."""
    ratios = list(ratios)
    return math.prod(ratios) ** (1 / len(ratios))


def print_ratios(rate, pairs):
    """Print how the ratio of two rates varies with the size.

    Args:
        rate: {(size, provider): median rate}; a size may be a tuple.
        pairs: {name of the ratio: (provider, other provider)}.
    """
    table = []
    for name, (ours, other) in pairs.items():
        ratio = {n: rate[n, ours] / rate[n, other] for n, provider in rate if provider == other}
        low, high = min(ratio, key=ratio.get), max(ratio, key=ratio.get)
        mean = geometric_mean(ratio.values())
        least, mean, most = map(significant, (ratio[low], mean, ratio[high]))
        table.append((name, least, low, mean, most, high))
    headers = ["ratio", "min", "at size", "geometric\nmean", "max", "at size"]
    align = {"stralign": "right", "colalign": ["left"]}
    print(tabulate(table, headers, disable_numparse=True, **align))
