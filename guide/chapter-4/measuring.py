"""
Measuring kernels
=================

To time a kernel takes one line. To time it so that somebody else gets the same number takes more:
a GPU works while Python is already elsewhere, remembers what it has read, changes its clock, and
answers a little differently each time it is asked. Each of these can be larger than the difference
that you want to see.

This chapter goes through them one at a time. A section makes a mistake on purpose, measures what
the mistake costs, and keeps the remedy. You will learn

* what a stopwatch, an event and :py:func:`triton.testing.do_bench` really measure;
* how to empty a cache, and how that goes wrong;
* how many timings are enough, and which number to take from them;
* what a changing clock does to a comparison, and how a comparison survives it;
* what your GPU can do at most, and how far a kernel is from that: the :term:`roofline`.

You should have read :doc:`/getting-started/tutorials/01-vector-add`, whose kernel is the one that
we measure. All tutorials time with the loop that this page takes apart. Without a GPU the page
runs too and checks its kernels, but there is nothing to time.
"""

# %%

# sphinx_gallery_fold = "chooses the device, and says what it is"
# sphinx_gallery_thumbnail_number = 4
import math
import os
import random
import statistics
import sys  # for shared/
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.measuring import write_rows
from shared.setup import DEVICE, ON_GPU

import triton
import triton.language as tl

if ON_GPU:
    gpu = torch.get_device_module(DEVICE)
    GPU_NAME = gpu.get_device_name()
    L2_BYTES = gpu.get_device_properties().L2_cache_size
    print(f"{GPU_NAME}: L2 cache of {L2_BYTES / 2**20:.0f} MiB")
else:
    print("No GPU: the kernels run on the CPU, in the interpreter")
print(f"Triton {triton.__version__}, PyTorch {torch.__version__}")

# %%
# The kernel and the loop
# -----------------------
#
# We measure a kernel whose time everybody can predict: vector addition. It reads two vectors and
# writes one, twelve bytes for each element in fp32. The vector for the result is made beforehand,
# because a measurement of a kernel should contain nothing but the kernel.


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add one block of *x* and *y*."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x, y, out):
    """Write ``x + y`` into *out*: three contiguous vectors of one length and dtype."""
    n = out.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024, num_warps=4)


def add_bytes(n):
    """Return the bytes that adding two fp32 vectors moves: two vectors read, one written."""
    return 12 * n


# %%
# The worst mistake is to time a kernel that is wrong. So the check comes first, against float64,
# with a result that is full of NaN beforehand, so that an element which nobody wrote cannot pass.

# sphinx_gallery_fold = "checks it: nothing but equality will do"

torch.manual_seed(0)
random.seed(0)
for n in (0, 1, 1023, 1025, 98432):
    x, y = torch.randn(2, n, device=DEVICE)
    out = torch.full_like(x, math.nan)
    add(x, y, out)
    torch.testing.assert_close(out, (x.double() + y.double()).float(), atol=0, rtol=0)
print("add agrees with float64")

# %%
# And here is the loop, that of the tutorials, except that what goes into the GPU's queue *before*
# each measurement can be chosen. The numbered sections of this page are the reasons for its lines.

if ON_GPU:
    other = torch.zeros(2**27, dtype=torch.int32, device=DEVICE)  # 512 MiB


def read_other():
    """Read half a gigabyte that has nothing to do with the measurement, twice."""
    for _ in range(2):
        other.amax()


def measure(calls, rounds=200, before=read_other):
    """Return {name: the milliseconds of each of *rounds* calls}; the *calls* take turns."""
    events = {name: [] for name in calls}
    for call in calls.values():
        call()  # 2: the first call compiles
    for _ in range(rounds):  # 4: one timing is none
        for name in random.sample(list(calls), len(calls)):  # 5: in turns, and in random order
            start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
            before()  # 1 and 3: keeps the GPU busy, and empties its cache
            start.record()  # 1: the GPU's own clock
            calls[name]()
            end.record()
            events[name].append((start, end))
    gpu.synchronize()
    return {
        name: torch.tensor([start.elapsed_time(end) for start, end in pairs])
        for name, pairs in events.items()
    }


# %%
# A rate is computed from each single time; the median of the rates is what we quote, and the 20th
# and 80th percentile (p20 and p80: a fifth of the rates lies below the one, and a fifth above the
# other) say how far they scatter. There is rarely a fourth significant figure to be had.

# sphinx_gallery_fold = "rounds, prints tables and keeps rows"
# sphinx_gallery_show = "rates"


def rates(ms, work):
    """Return the median, 20th and 80th percentile of *work* over time, in 10⁹ a second."""
    return (work / ms.double() / 1e6).quantile(torch.tensor([0.5, 0.2, 0.8]).double()).tolist()


def three(value):
    """Return *value* as text: a float with three significant figures, anything else as it is."""
    if not isinstance(value, float) or value == 0 or not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.3g}")
    return f"{rounded:.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def show(rows, headers):
    """Print a table: the first column to the left, numbers to the right."""
    cells = [[three(value) for value in row] for row in rows]
    align = ["left"] + ["right"] * (len(headers) - 1)
    print(tabulate(cells, headers, disable_numparse=True, colalign=align))


def save(name, columns, rows):
    """Write *rows* to ``measuring-<name>.csv``: sizes, provider, unit, median, p20, p80."""
    write_rows(f"measuring-{name}.csv", columns, rows)


NO_GPU = "Nothing to time without a GPU."
NO_GRAPHS = "Recording graphs needs an NVIDIA or AMD GPU."

# %%
# 1. A stopwatch measures asking
# ------------------------------
#
# **The mistake**: ``time.perf_counter()`` before and after the call. A launch puts the kernel
# into a queue and returns, so this is the time that Python takes to *ask* for it. If one waits for
# the GPU before looking at the stopwatch again, the time holds asking, computing and being told.
# *Events* are marks in the queue, which the GPU stamps with its own clock as it passes. That is
# right, provided that nothing holds it up between the two. All of this on a small and on a large
# vector:

# sphinx_gallery_fold = "times one kernel in four ways"
# sphinx_gallery_show = "gpu_microseconds"


def host_microseconds(fn, calls=100, wait=False):
    """Return the median microseconds that a stopwatch shows for *fn*, with waiting or without."""
    times = []
    for _ in range(calls):
        gpu.synchronize()
        start = time.perf_counter()
        fn()
        if wait:
            gpu.synchronize()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def gpu_microseconds(fn, rounds=100, before=read_other):
    """Return the median microseconds between two events around *fn*."""
    return 1e3 * measure({"fn": fn}, rounds, before)["fn"].median().item()


def vectors(n):
    """Return two random vectors of *n* elements, and a third for their sum."""
    return *torch.rand(2, n, device=DEVICE), torch.empty(n, device=DEVICE)


if ON_GPU:
    table, four_ways = [], {}
    for n in (2**12, 2**26):
        call = partial(add, *vectors(n))
        host_microseconds(call)  # compiles
        stopwatch = host_microseconds(call), host_microseconds(call, wait=True)
        marks = gpu_microseconds(call, before=gpu.synchronize), gpu_microseconds(call)
        four_ways[n] = (*stopwatch, *marks)
        table.append((n, *four_ways[n]))
    print("One kernel, four ways to time it, in microseconds")
    headers = [
        "elements",
        "stopwatch",
        "stopwatch\nand wait",
        "events,\nidle GPU",
        "events,\nbusy GPU",
    ]
    show(table, headers)
else:
    print(NO_GPU)

# %%
# One vector is 2¹⁴ times as long as the other. The stopwatch alone hardly notices, so it says
# nothing about the kernel. With waiting, most of what it shows for the short vector is Python, and
# the way to the GPU and back.
#
# "Events, idle GPU" is the trap that looks like the solution. If the GPU has nothing to do, it
# stamps the first mark at once, and then waits with its clock running until Python has put the
# kernel into the queue. Only if it is **busy with something else** meanwhile does it pass mark,
# kernel and mark without a break. How busy? We let it read more and more of the other memory first.

# sphinx_gallery_fold = "times the kernel behind more and more reading"

if ON_GPU:
    call = partial(add, *vectors(2**12))
    table = []
    for mebibytes in (1, 16, 64, 256, 512):
        head_start = other[: mebibytes * 2**18].amax
        table.append(
            (mebibytes, gpu_microseconds(head_start), gpu_microseconds(call, 200, head_start))
        )
    table.append(("2 x 512", gpu_microseconds(read_other), gpu_microseconds(call, 200)))
    show(table, ["MiB read first", "takes, µs", "then the kernel\nseems to take, µs"])
else:
    print(NO_GPU)

# %%
# As long as reading is over sooner than Python has queued the rest, the number depends on how
# fast Python is. From some point on reading more changes it no further: now it is the kernel's.
# (What still differs from row to row is scatter, the subject of section 4.)
#
# **The remedy**: events, and before them enough work to keep the GPU busy for longer than Python
# needs. Our loop reads 512 MiB, twice (why *reading*, says section 3). Whether it was enough can be
# asked: once all is queued, the first mark must not have been passed yet, and ``start.query()``
# tells. The tutorials' loop asks after each call; where the GPU was there first, it makes the call
# again and reads twice as much before.
#
# 2. The first calls are different
# --------------------------------
#
# **The mistake**: counting them. Here is a kernel that has never been launched, made twice from
# one source, with an empty folder as Triton's cache on disk.

# sphinx_gallery_fold = "times the first three launches"


def new_kernel():
    """Return a kernel that has never been launched."""

    @triton.jit
    def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, x + x, mask=offsets < n)

    return double_kernel


def launch_times(kernel, launches):
    """Return the milliseconds of each of the first launches of *kernel*, waiting for each."""
    wait = gpu.synchronize if ON_GPU else int  # int() does nothing: the interpreter never queues
    x = torch.rand(4000, device=DEVICE)
    out = torch.empty_like(x)
    times = []
    for _ in range(launches):
        wait()
        start = time.perf_counter()
        kernel[(4,)](x, out, 4000, BLOCK=1024)
        wait()
        times.append(1e3 * (time.perf_counter() - start))
    torch.testing.assert_close(out, 2 * x, atol=0, rtol=0)
    return times


cache_before = os.environ.get("TRITON_CACHE_DIR")
with tempfile.TemporaryDirectory() as folder:
    os.environ["TRITON_CACHE_DIR"] = folder
    table = [(how, *launch_times(new_kernel(), 3)) for how in ("is compiled", "is found on disk")]
if cache_before is None:
    del os.environ["TRITON_CACHE_DIR"]
else:
    os.environ["TRITON_CACHE_DIR"] = cache_before
(_, *compiled_times), _ = table
if ON_GPU:
    print("Milliseconds, stopwatch and wait")
    show(table, ["the kernel ...", "1st call", "2nd call", "3rd call"])
else:
    print("The interpreter does not compile, so there is no warm-up to see.")

# %%
# The first call compiles, or loads what an earlier one has left on disk, and either takes far
# longer than a launch. Libraries are the same: the first matrix product of a process sets one up,
# and the first large tensor has to be got from the driver.
#
# And when all is compiled? A GPU with nothing to do may lower its clocks, and switch parts of
# itself off. So we give it a rest, and look at single calls of a long row.

# sphinx_gallery_fold = "looks at single calls of a long row"


def first_calls(call, calls, rest=1.0):
    """Rest for some seconds; then return the microseconds of each of *calls* calls in a row."""
    call()
    gpu.synchronize()
    time.sleep(rest)
    marks = [gpu.Event(enable_timing=True) for _ in range(calls + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    gpu.synchronize()
    return [1e3 * a.elapsed_time(b) for a, b in pairwise(marks)]


if ON_GPU:
    a, b = torch.randn(2, 4096, 4096, dtype=torch.float16, device=DEVICE)
    rows = {
        "add, 2^26": first_calls(partial(add, *vectors(2**26)), 1000),
        "matrix product": first_calls(partial(torch.mm, a, b, out=torch.empty_like(a)), 1000),
    }
    numbers = (1, 2, 3, 10, 30, 100, 300, 1000)
    table = [(name, *(times[i - 1] for i in numbers)) for name, times in rows.items()]
    print("Microseconds of call number ...")
    show(table, ["after a rest", *numbers])
else:
    print(NO_GPU)

# %%
# The first call meets an idle GPU, so it pays for Python's launch, as in section 1. What it takes
# beyond that is the price of waking up; how many more are slow depends on how deep the sleep was.
# (A kernel that draws much power may even get *slower* in the course of time: section 6.)
#
# **The remedy**: call everything once before the loop, and take the median of many calls, which a
# few slow ones do not move.
#
# 3. A cache remembers
# --------------------
#
# **The mistake**: calling a kernel on the same data again and again. What fits into the
# :term:`L2 cache` is not fetched from memory the second time. We take three long vectors and add
# them piece by piece: *cold*, one piece after the other, so that no piece is met twice; and *hot*,
# the first piece as many times. The launches are recorded in a graph (section 7), so that Python
# has no part in it. Beside them goes a single call, as our loop measures it.

# sphinx_gallery_fold = "adds the vectors piece by piece, cold and hot"
# sphinx_gallery_show = "as_graph"


def as_graph(fn):
    """Return a function that replays what *fn* puts into the queue, recorded once as a graph."""
    fn()
    gpu.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    return graph.replay


def run(calls):
    """Call each of *calls*."""
    for call in calls:
        call()


def cache_experiment(total, sizes):
    """Return rows (size, provider, unit, median, p20, p80) of adding *total* elements in pieces."""
    x, y, out = vectors(total)
    rows = []
    for n in sizes:
        starts = range(0, total, n)
        pieces = [partial(add, *(v[i : i + n] for v in (x, y, out))) for i in starts]
        cold = as_graph(partial(run, pieces))
        hot = as_graph(partial(run, pieces[:1] * len(pieces)))
        for provider, ms in measure({"cold": cold, "hot": hot}, 20).items():
            rows.append((n, provider, "GB/s", *rates(ms, add_bytes(total))))
        ms = measure({"one call": pieces[0]}, 50)["one call"]
        rows.append((n, "one call", "GB/s", *rates(ms, add_bytes(n))))
    return rows


cache_rows = []
if DEVICE.type == "cuda":  # graphs: NVIDIA, and AMD too
    cache_rows = cache_experiment(2**26, [2**i for i in range(16, 26)])
    save("cache", ["size"], cache_rows)
else:
    print(NO_GRAPHS)

# %%

# sphinx_gallery_fold = "plots the rates with a hot and a cold cache"


def plot_cache(rows):
    """Draw rates over the bytes moved by a call, and the size of the L2 cache."""
    fig, ax = plt.subplots(figsize=(7, 6))
    styles = {
        "hot": ("#d1495b", "s-.", "same data again and again (hot)"),
        "cold": ("#1b6ca8", "o-", "other data each time (cold)"),
        "one call": ("#8d6a9f", "^:", "one call by itself (cold)"),
    }
    for provider, (color, style, label) in styles.items():
        mine = [row for row in rows if row[1] == provider]
        mebibytes = [add_bytes(row[0]) / 2**20 for row in mine]
        ax.plot(mebibytes, [row[3] for row in mine], style, color=color, label=label, markersize=5)
        low, high = [row[4] for row in mine], [row[5] for row in mine]
        ax.fill_between(mebibytes, low, high, color=color, alpha=0.2, linewidth=0)
    ax.axvline(L2_BYTES / 2**20, color="#444444", linestyle="--", label="size of the L2 cache")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="MiB moved by a call", ylabel="GB/s, higher is better", ylim=0)
    ax.set_title(f"Vector addition with a hot and a cold cache, GB/s\non {GPU_NAME}")
    ax.grid(alpha=0.3)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17))
    fig.tight_layout()
    plt.show()


if cache_rows:
    plot_cache(cache_rows)
    for provider in ("cold", "hot"):
        rate, n = max((row[3], row[0]) for row in cache_rows if row[1] == provider)
        print(f"highest {provider} rate: {three(rate)} GB/s, at {add_bytes(n) / 2**20:.0f} MiB")
else:
    print("No plot without a GPU.")

# %%
# Where the hot curve lies above everything that the cold one reaches, it is not the speed of the
# memory: it is the cache. Past the size of the cache the two come together. (That is the L2 cache
# of the dashed line, or the larger one that some GPUs have behind it. A small call by itself is
# slower, because it starts from a standstill.)
#
# Which curve is the *true* one? The data of a kernel *is* in the cache if the kernel before has
# just written it, and is not if much else has passed through since. A benchmark has to choose, and
# to say what it chose. Ours are cold.
#
# Now **how** to empty a cache? The usual way is to overwrite a large buffer. But then it is full of
# *dirty* lines, which have to be written to memory before their place can be used. The kernel that
# comes next may have to wait for that. So here is one kernel at several sizes, after different
# things: 256 MiB written once, 512 MiB written twice, and the same amounts read.

# sphinx_gallery_fold = "times one kernel after different things"
if ON_GPU:
    part = other[: 2**26]  # 256 MiB
    flushes = {
        "write\n256 MiB": part.zero_,
        "write 512\ntwice": lambda: (other.zero_(), other.zero_()),
        "read\n256 MiB": part.amax,
        "read 512\ntwice": read_other,
    }
    table = []
    for n in [2**i for i in (18, 20, 22, 24, 26)]:
        call = partial(add, *vectors(n))
        found = [
            rates(measure({"add": call}, 100, f)["add"], add_bytes(n))[0] for f in flushes.values()
        ]
        table.append((add_bytes(n) // 2**20, *found, found[1] / found[3]))
    after_writing = [row[-1] for row in table]
    print("GB/s of one kernel, by what comes before it")
    show(table, ["MiB\nmoved", *flushes, "512 twice:\nwrite / read"])
else:
    print(NO_GPU)

# %%
# The last column compares the rates after writing and after reading 512 MiB twice: one would be no
# cost at all. A kernel pays for each dirty line whose place it takes, so the bill is the largest,
# beside the kernel's own time, where it moves about as much as the cache can hold.
#
# A cache that was *read* full is clean: its lines can be dropped without a word. But how much has
# to be read until nothing of ours is left? We fill the cache with the vectors of a call, read
# some of the other memory, and see whether the next call still finds them.

# sphinx_gallery_fold = "times the kernel after more and more reading"


def after_reading(call, mebibytes):
    """Return what has to go before *call*: its data in the cache, and then so many MiB read."""

    def before():
        read_other()
        call()
        other[: mebibytes * 2**18].amax()

    return before


if ON_GPU:
    n = 2**20
    call = partial(add, *vectors(n))
    table = []
    for mebibytes in (8, 16, 32, 48, 64, 96, 128, 512):
        ms = measure({"add": call}, 60, after_reading(call, mebibytes))["add"]
        table.append((mebibytes, *rates(ms, add_bytes(n))))
    table.append(("2 x 512", *rates(measure({"add": call}, 60)["add"], add_bytes(n))))
    print(f"Adding {add_bytes(n) // 2**20} MiB, in GB/s")
    show(table, ["MiB read since", "median", "p20", "p80"])
else:
    print(NO_GPU)

# %%
# As long as the rate still falls from row to row, some of our data was left. The last row is what
# our loop does.
#
# **The remedy**: before each call read several times what the largest cache holds (AMD's newer
# GPUs have one behind the L2). Rotating through many copies of the data, as the cold curve above
# does, is as good. Say "cold" or "hot" beside the number.
#
# 4. One timing is none
# ---------------------
#
# **The mistake**: believing one number of a benchmark, noise and all. Here are two thousand, of one
# kernel on the same data. In turns with them, a hundred at a time, two thousand more with a
# neighbour: before one call of twenty on average, somebody else's kernels are put into another
# queue (a *stream*, in PyTorch's words), and still run when ours begins. Such neighbours are other
# processes, a display, a forgotten notebook.

# sphinx_gallery_fold = "times the kernel with and without a neighbor"


def with_neighbour(share=0.05):
    """Return what goes before a call: reading, and now and then kernels of another stream."""
    stream = gpu.Stream()

    def before():
        other.amax()
        if random.random() < share:
            stream.wait_stream(gpu.current_stream())  # they begin when this stream has got here
            with gpu.stream(stream):
                for _ in range(4):
                    other.zero_()  # together they outlast the reading
        other.amax()

    return before


def summary(timings):
    """Return {name: value} of what can be said about *timings* in one number."""
    edges = torch.tensor([0.2, 0.5, 0.8], dtype=timings.dtype)
    p20, middle, p80 = timings.quantile(edges).tolist()
    return {
        "minimum": timings.min().item(),
        "p20": p20,
        "median": middle,
        "mean": timings.mean().item(),
        "p80": p80,
        "maximum": timings.max().item(),
    }


if ON_GPU:
    call = partial(add, *vectors(2**20))
    befores = {"quiet": read_other, "disturbed": with_neighbour()}
    found = {name: [] for name in befores}
    for _ in range(20):
        for name, before in befores.items():
            found[name].append(measure({"": call}, 100, before)[""])
    timings, disturbed = (1e3 * torch.cat(found[name]).double() for name in befores)
    quiet, loud = summary(timings), summary(disturbed)
    print("Of 2000 timings, µs")
    show(
        [(name, quiet[name], loud[name], loud[name] / quiet[name]) for name in quiet],
        ["", "quiet", "disturbed", "ratio"],
    )
    tick = 1e6 * (timings / 1e3).unique().diff().min().item()
    print(f"Smallest step between two timings: {three(tick)} ns")
else:
    print(NO_GPU)

# %%
# The ratio says what the neighbour did: it took a part of the memory's bandwidth while our kernel
# ran. The maximum is what happened to a single call, and the mean puts it on everybody's bill. The
# median and the percentiles hardly notice, as long as clearly fewer than a fifth are disturbed.
# Neither does the minimum, but it answers another question: how lucky can one be? (Times come in
# steps, the ticks of the GPU's clock. A difference that is smaller than a tick needs many timings
# to be seen at all.)
#
# How many timings are enough? Draw *n* of those that we have at random, take their median, do that
# a thousand times, and see how far the thousand medians are apart. This is *resampling*. It
# assumes that timings know nothing of each other. If the medians of *n* timings **in a row** are
# further apart, then timings that follow each other are alike: the GPU was in another state at the
# beginning than at the end, or a neighbour who disturbs one call is still there at the next.

# sphinx_gallery_fold = "draws timings again and again, and prints how far they scatter"
# sphinx_gallery_show = "resampled"


def resampled(timings, n, statistic, times=1000):
    """Return *statistic* of *n* of the *timings*, drawn with replacement, *times* times."""
    generator = torch.Generator().manual_seed(0)
    return statistic(timings[torch.randint(len(timings), (times, n), generator=generator)])


def in_a_row(timings, n, statistic):
    """Return *statistic* of the first *n* timings, of the next *n*, and so on."""
    return statistic(timings[: len(timings) // n * n].reshape(-1, n))


def median(rows):
    """Return the median of each row, between the middle two where their number is even."""
    return rows.quantile(0.5, dim=1)


def mean(rows):
    """Return the mean of each row."""
    return rows.mean(dim=1)


def minimum(rows):
    """Return the smallest of each row."""
    return rows.amin(dim=1)


def width(values):
    """Return the width of the middle nine tenths of *values*, relative to their median."""
    edges = torch.tensor([0.05, 0.5, 0.95], dtype=values.dtype)
    low, mid, high = values.quantile(edges).tolist()
    return (high - low) / mid


STATISTICS = {"median": median, "mean": mean, "minimum": minimum}


def widths(timings, counts):
    """Return rows (n, width of resampled medians, means and minima, width of medians in a row)."""
    return [
        (
            n,
            *(100 * width(resampled(timings, n, f)) for f in STATISTICS.values()),
            100 * width(in_a_row(timings, n, median)),
        )
        for n in counts
    ]


COUNTS = (1, 3, 10, 30, 100)
if ON_GPU:
    width_rows = {"quiet": widths(timings, COUNTS), "disturbed": widths(disturbed, COUNTS)}
    headers = ["timings", "median", "mean", "minimum", "medians of\ntimings in a row"]
    for name, rows in width_rows.items():
        print(f"{name}: nine tenths of the results lie within so many per cent")
        show(rows, headers)
        print()
else:
    print(NO_GPU)

# %%

# sphinx_gallery_fold = "plots the distribution, and the scatter"


def plot_spread(timings, rows):
    """Draw a histogram of *timings*, and below it the widths of *rows* over their number."""
    fig, (ax, below) = plt.subplots(2, 1, figsize=(7, 8.8))
    cut = timings.quantile(0.995).item()
    shown = timings[timings <= cut]
    ax.hist(shown.tolist(), bins=60, color="#cfe3f1", edgecolor="#1b6ca8", linewidth=0.4)
    marks = {
        "minimum": (timings.min(), ":", "#444444"),
        "p20, p80": (timings.quantile(0.2), "-.", "#8d6a9f"),
        "": (timings.quantile(0.8), "-.", "#8d6a9f"),
        "median": (timings.median(), "-", "#1b6ca8"),
        "mean": (timings.mean(), "--", "#d1495b"),
    }
    for name, (value, line, color) in marks.items():
        ax.axvline(value.item(), linestyle=line, color=color, linewidth=2, label=name or None)
    ax.set(xlabel="µs", ylabel="timings", title=f"{len(timings)} timings, quiet")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=4)
    lines = {
        "median, quiet": ("quiet", 1, "o-", "#1b6ca8"),
        "... in a row": ("quiet", 4, "D-.", "#8d6a9f"),
        "median, disturbed": ("disturbed", 1, "^:", "#444444"),
        "mean, disturbed": ("disturbed", 2, "s--", "#d1495b"),
    }
    for label, (name, column, style, color) in lines.items():
        below.plot(COUNTS, [row[column] for row in rows[name]], style, color=color, label=label)
    below.set(xscale="log", xlabel="timings used", title="Scatter, by number of timings")
    below.set(yscale="log", ylabel="width, %")
    below.yaxis.set_major_formatter("{x:g}")
    below.set_xticks(COUNTS, COUNTS)
    below.minorticks_off()
    below.grid(alpha=0.3)
    below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
    fig.suptitle(f"One kernel, again and again, µs\non {GPU_NAME}")
    fig.tight_layout()
    plt.show()


if ON_GPU:
    plot_spread(timings, width_rows)
else:
    print("No plot without a GPU.")

# %%
# Above, the quiet timings without the slowest half of a per cent. More timings help, but slowly:
# four times as many for half the scatter of a median or mean, if they are independent. (A minimum
# need not get steadier at all, since it hangs on the rarest event.) A difference that is smaller
# than the width, at the number of timings that you take, is none that you can claim. (Medians of a
# hundred timings in a row are only twenty here, so the last point of their curve is rough itself.)
#
# **The remedy**: many timings, their median, and p20 and p80 beside it. If the mean is far from
# the median, find out who the neighbour is.
#
# 5. Two names for one kernel
# ---------------------------
#
# **The mistake**: first measuring A to the end, then B. In the meantime the GPU has become warmer
# and its clock has changed, and whatever that does is taken for a difference between A and B. To
# see it, let A and B be *the same kernel*: whatever differs from one is the error of the method.
# Such an A/A test is the best way to find out what a benchmark can resolve.

# sphinx_gallery_fold = "compares a kernel with itself, both ways"
# sphinx_gallery_show = "one_by_one, in_turns"


def one_by_one(calls, rounds):
    """Return {name: median} of each call, measured after one another."""
    return {
        name: measure({name: call}, rounds)[name].median().item() for name, call in calls.items()
    }


def in_turns(calls, rounds):
    """Return {name: median} of each call, measured in random turns."""
    return {name: ms.median().item() for name, ms in measure(calls, rounds).items()}


def a_over_a(how, call, rounds, repeats, rest=0.3):
    """Return the ratios of *call* to itself, *repeats* times, each after a short rest."""
    ratios = []
    for _ in range(repeats):
        gpu.synchronize()
        time.sleep(rest)
        medians = how({"A": call, "B": call}, rounds)
        ratios.append(medians["A"] / medians["B"])
    return ratios


if ON_GPU:
    a, b = torch.randn(2, 8192, 8192, dtype=torch.float16, device=DEVICE)
    kernels = {
        "fp16 product": (partial(torch.mm, a, b, out=torch.empty_like(a)), 40),
        "add, 2^20": (partial(add, *vectors(2**20)), 100),
    }
    table = []
    for name, (call, rounds) in kernels.items():
        for title, how in (("first A, then B", one_by_one), ("in random turns", in_turns)):
            found = a_over_a(how, call, rounds, 5)
            table.append((name, title, min(found), statistics.median(found), max(found)))
    in_turn_medians = [row[3] for row in table[1::2]]
    print("Time of A over time of A, five times")
    show(table, ["kernel", "measured", "lowest", "median", "highest"])
else:
    print(NO_GPU)

# %%
# In random turns neither has an advantage, so the error is only scatter: it can fall on either
# side, and more rounds make it smaller. Where "first A, then B" is on one side *every time*, the
# error is systematic, and no number of rounds helps, because B always comes when the GPU has
# already worked for a while. A kernel that waits for memory may not notice; one that keeps all of
# the arithmetic busy is at the mercy of the clock, as the next section shows.
#
# **The remedy**: take turns, call by call, in random order. And before you believe that B is a
# little faster than A, look at what A gains over A. (How another process, another day or another
# GPU of the same make would differ, no loop can show. For that, run everything again.)
#
# 6. The clock changes
# --------------------
#
# **The mistake**: taking the clock of a GPU for a constant. It is set many times a second, and as
# high as power and temperature allow. Reading it while the GPU works is easy (PyTorch asks the
# driver's library; on NVIDIA's GPUs the package ``nvidia-ml-py`` is needed for that).

# sphinx_gallery_fold = "watches rate, clock and power"


def sensors():
    """Return the clock of the multiprocessors in MHz and the power in W, or NaN for unknown."""
    try:
        power = torch.cuda.power_draw(DEVICE)
        return torch.cuda.clock_rate(DEVICE), power if torch.version.hip else power / 1000
    except Exception:  # the vendors' libraries have exceptions of their own
        return math.nan, math.nan


def watch(call, seconds, chunk=10):
    """Call *call* without a break; return rows (second, milliseconds of one call, MHz, W)."""
    seen, begin = [], time.perf_counter()
    while (second := time.perf_counter() - begin) < seconds:
        start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
        start.record()
        for _ in range(chunk):
            call()
        end.record()
        seen.append((second, start, end, sensors()))
        if len(seen) > 1:
            seen[-2][2].synchronize()  # so that at most two chunks are in the queue
    gpu.synchronize()
    return [(at, start.elapsed_time(end) / chunk, *read) for at, start, end, read in seen]


def matmul_flops(n):
    """Return the floating-point operations of a product of two n x n matrices."""
    return 2 * n**3


if ON_GPU:
    n = 8192
    watched, table = {}, []
    for numbers in ("random numbers", "zeros"):
        a, b = torch.randn(2, n, n, dtype=torch.float16, device=DEVICE)
        if numbers == "zeros":
            a, b = torch.zeros_like(a), torch.zeros_like(b)
        call = partial(torch.mm, a, b, out=torch.empty_like(a))
        call()
        gpu.synchronize()
        time.sleep(0.7)
        watched[numbers] = [
            (at, matmul_flops(n) / ms / 1e9, clock, power)
            for at, ms, clock, power in watch(call, 2.2)
        ]
        last = watched[numbers][-len(watched[numbers]) // 3 :]
        table.append((numbers, *(statistics.median(row[i] for row in last) for i in (1, 2, 3))))
    on_random, on_zeros = (row[1] for row in table)
    if math.isnan(sensors()[0]):
        print("Clock and power cannot be read here. Is nvidia-ml-py installed?")
    print("In the last third of the time")
    show(table, ["product of", "TFLOPS", "MHz", "W"])
else:
    print(NO_GPU)

# %%

# sphinx_gallery_fold = "plots rate, clock and power over time"


def plot_clocks(watched, labels):
    """Draw a panel over time for each of *labels*, the second and later columns of the rows."""
    size = {"figsize": (7, 2 + 1.8 * len(labels)), "height_ratios": [3, 2, 2][: len(labels)]}
    fig, axes = plt.subplots(len(labels), 1, sharex=True, squeeze=False, **size)
    styles = {"random numbers": ("-", "#1b6ca8"), "zeros": ("--", "#d1495b")}
    for column, (ax, label) in enumerate(zip(axes[:, 0], labels, strict=True), start=1):
        for name, rows in watched.items():
            line, color = styles[name]
            ax.plot([r[0] for r in rows], [r[column] for r in rows], line, color=color, label=name)
        ax.set_ylabel(label)
        ax.grid(alpha=0.3)
    axes[-1, 0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.45), ncols=2)
    axes[0, 0].set_title(f"fp16 matrix products without a break, TFLOPS\non {GPU_NAME}")
    axes[-1, 0].set_xlabel("seconds")
    fig.tight_layout()
    plt.show()


if ON_GPU:
    known = 1 if math.isnan(sensors()[0]) else 3  # without sensors there is the rate alone
    plot_clocks(watched, ["TFLOPS", "clock, MHz", "power, W"][:known])
else:
    print("No plot without a GPU.")

# %%
# The rate, in the upper panel, is the best sensor, since it follows the clock at once. What the
# driver says about clock and power it may refresh only a few times a second, and the power can be
# an average over some time besides: its curve comes late.
#
# Where the rate falls within the first moments, the GPU has run into one of its limits, of power,
# of current or of temperature: it begins with the highest clock that it has, finds that this is too
# much, and takes the clock back. (A limit of current holds at every moment. It can be reached while
# the average power is still far from its own.) Where it dips later on, and the clock with it, this
# regulation may have gone too far, or met another limit.
#
# And zeros? A transistor draws power when it switches, and few of them switch when zeros are
# multiplied by zeros. Where power limits the clock, it can then stay higher. Whoever times on zeros
# times a kernel that nobody runs.
#
# **The remedy**: quote ratios of what was measured in turns, within one run; beside an absolute
# number, say what the clock was. Use data like the real data. And know whether you want the rate in
# a short burst, or after the GPU has been at work for a while. Our loop, which reads memory between
# two calls and so lets the arithmetic rest, is nearer to the first.
#
# 7. The launch has a price
# -------------------------
#
# **The mistake**: adding up the times of kernels and taking the sum for the time of a program. Each
# kernel has to be asked for, and if it is small, asking takes longer than computing. Here is the
# time that Python takes for one call, and the time that the GPU takes. The first two rows are the
# floor under all times of single calls on this page: two marks with *nothing* between them, and a
# kernel that does nothing.

# sphinx_gallery_fold = "times nothing, an empty kernel, and two additions"


@triton.jit
def empty_kernel():
    """Do nothing."""


if ON_GPU:
    x, y, out = vectors(2**12)
    calls = {
        "nothing": lambda: None,
        "empty kernel": empty_kernel[(1,)],
        "add, Triton": partial(add, x, y, out),
        "add, PyTorch": partial(torch.add, x, y, out=out),
    }
    table = []
    for name, call in calls.items():
        call()
        table.append((name, host_microseconds(call, 1000), gpu_microseconds(call, 200)))
    print("4096 elements, µs")
    show(table, ["call", "Python asks", "the GPU works"])
else:
    print(NO_GPU)

# %%
# Where the left number is larger than the right one, a chain of such kernels runs at the pace of
# Python, and the GPU waits. Recording the launches once, as a **graph**, and replaying it hands
# the whole chain over in one go. (``as_graph`` of section 3 does it.) We put chains of the same
# small addition into the queue both ways, and take a stopwatch, since the question is now when
# the program is done.

# sphinx_gallery_fold = "times chains of launches, one by one and as a graph"


if DEVICE.type == "cuda":  # NVIDIA, and AMD too
    table = []
    for length in (1, 10, 100, 1000):
        launches = partial(run, [calls["add, Triton"]] * length)
        graph = as_graph(launches)
        took = [host_microseconds(fn, 30, wait=True) / length for fn in (launches, graph)]
        table.append((length, *took, took[0] / took[1]))
    by_graph = table[-1][-1]
    print("From asking to done, µs for each kernel of the chain")
    show(table, ["kernels in\nthe chain", "launched one\nby one", "as a graph", "ratio"])
else:
    print(NO_GRAPHS)

# %%
# To replay a graph has a price as well, and a long chain shares it out among its kernels. What then
# remains for each is what the GPU itself takes from one kernel to the next.
#
# **The remedy**: say which of the two you measure, the kernel or the program. Our loop measures
# the kernel. For a program of small kernels, measure from its first launch to its last result; and
# if asking turns out to be the larger part, fuse kernels or record a graph.
#
# 8. What do_bench does
# ---------------------
#
# :py:func:`triton.testing.do_bench` is the loop that comes with Triton. In Triton 3.6 to 3.9 it
# calls the function once, times five calls to guess how long one takes, warms up for about
# ``warmup`` milliseconds (25, unless you say otherwise) and then measures for about ``rep``
# milliseconds (100), with a pair of events for each call. Before each it overwrites 256 MiB. It
# returns milliseconds, and unless you ask for quantiles, their **mean**.
#
# :py:func:`triton.testing.do_bench_cudagraph` records many calls in one graph and divides its
# time by their number. So Python has no share in it at all; but nothing is done about the cache,
# the calls follow each other without a gap, and its quantiles are those of ten such averages.
#
# All three on one kernel:

# sphinx_gallery_fold = "times vectors of several lengths in all three ways"
# sphinx_gallery_show = "three_ways"


def three_ways(call):
    """Return {way: milliseconds of *call*, a tensor with as many values as that way gives}."""
    found = {"this page": measure({"add": call})["add"]}
    found["do_bench"] = torch.tensor(triton.testing.do_bench(call, return_mode="all"))
    if DEVICE.type == "cuda":
        graphs = triton.testing.do_bench_cudagraph(call, return_mode="all")
        found["do_bench_cudagraph"] = torch.tensor(graphs)
    return found


if ON_GPU:
    bench_rows, table = [], []
    for n in [2**i for i in range(12, 27, 2)]:
        found = three_ways(partial(add, *vectors(n)))
        for way, ms in found.items():
            middle = ms.quantile(torch.tensor([0.5, 0.2, 0.8])).tolist()
            bench_rows.append((n, way, "ms", *middle))
        medians = [1e3 * ms.median().item() for ms in found.values()]
        table.append(
            (n, medians[0], medians[1], 1e3 * found["do_bench"].mean().item(), *medians[2:])
        )
    save("do-bench", ["size"], bench_rows)
    print("Adding two vectors, µs")
    show(table, ["elements", "this page", "do_bench,\nmedian", "do_bench,\nmean", "_cudagraph"])
else:
    print(NO_GPU)

# %%
# Reading from the bottom: for the longest kernel it hardly matters which you use. In the middle,
# where a kernel moves about as much as the cache holds, ``do_bench`` has dirty lines to wait for
# (section 3), and the graph finds its data in the cache. At the top, a kernel is as short as a
# launch: the graph lets it follow close on the one before, the two others let it start from a
# standstill, and in ``do_bench`` Python has only as long as 256 MiB take to be written.
#
# **The remedy**: use ``do_bench`` for a quick look and for kernels that take much longer than a
# launch; ask it for the median; and use a loop like ours where kernels are short, where the cache
# matters, or where two kernels are compared.
#
# 9. Ceilings
# -----------
#
# **The mistake**: a number without a yardstick. Is it much? The data sheet says what the GPU
# could do at a clock that it may not hold, in units that may count something else. A better
# yardstick is what *this* GPU does *now* with the simplest work there is: read, write, copy;
# multiply large matrices.
#
# For arithmetic without :term:`tensor cores <tensor core>` we take a kernel of our own, which will
# be useful again below. It loads an element, multiplies it by a number and adds another one, *K*
# times, and stores the result. Vectors of a few gigabytes are needed; on a GPU with less memory,
# shorten them.

# sphinx_gallery_fold = "launches it, and compares it with float64"
# sphinx_gallery_show = "fma_kernel"

FACTOR = tl.constexpr(-1 + 2**-10)  # exact in fp32; values neither grow nor become all alike


@triton.jit
def fma_kernel(x_ptr, out_ptr, n, K: tl.constexpr, BLOCK: tl.constexpr):
    """Load a block, apply *K* multiply-adds to each element, and store it."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets, mask=offsets < n)
    for _ in range(K):
        value = tl.fma(value, FACTOR, 0.125)
    tl.store(out_ptr + offsets, value, mask=offsets < n)


def fma(x, out, k):
    """Write *x* after *k* multiply-adds ``x * FACTOR + 0.125`` into *out*."""
    n = out.numel()
    fma_kernel[(triton.cdiv(n, 1024),)](x, out, n, K=k, BLOCK=1024, num_warps=4)


for k in (1, 7, 64):
    x = torch.randn(5000, device=DEVICE)
    out = torch.full_like(x, math.nan)
    fma(x, out, k)
    expected = x.double()
    for _ in range(k):
        expected = expected * (-1 + 2**-10) + 0.125
    # A step rounds twice at most (once if it is fused), each time by at most 2^-22 below 8.
    torch.testing.assert_close(out.double(), expected, atol=k * 2**-21, rtol=0)
print("fma agrees with float64")

# %%
# A multiply-add counts as two operations, by custom. Of the bytes we count those that *have* to
# move, each input once and each output once.

# sphinx_gallery_fold = "measures the ceilings"


def fma_work(n, k):
    """Return (operations, bytes) of *k* multiply-adds on each of *n* fp32 elements."""
    return 2 * k * n, 8 * n


def matmul_work(n, element_size):
    """Return (operations, bytes) of the product of two n x n matrices."""
    return matmul_flops(n), 3 * n * n * element_size


def as_tf32(call):
    """Call *call*, allowing fp32 matrix products to round their inputs to tf32."""
    torch.set_float32_matmul_precision("high")
    call()
    torch.set_float32_matmul_precision("highest")


def memory_ceilings(n):
    """Return {name: (call, bytes that it moves)} for vectors of *n* fp32 elements."""
    source, target, third = torch.rand(n, device=DEVICE), *torch.zeros(2, n, device=DEVICE)
    return {
        "read": (source.amax, 4 * n),
        "write": (partial(target.fill_, 1.0), 4 * n),
        "copy": (partial(target.copy_, source), 8 * n),
        "add": (partial(torch.add, source, target, out=third), add_bytes(n)),
    }


def matmul_ceilings(n):
    """Return {name: call} for products of n x n matrices of several dtypes."""
    calls = {}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        a, b = torch.randn(2, n, n, dtype=dtype, device=DEVICE)
        name = f"{str(dtype).removeprefix('torch.')} product"
        calls[name] = partial(torch.mm, a, b, out=torch.empty_like(a))
    calls["float32 product, tf32 allowed"] = partial(as_tf32, calls["float32 product"])
    return calls


if ON_GPU:
    n = 2**28
    work = memory_ceilings(n)
    times = measure({name: call for name, (call, _) in work.items()}, 30)
    ceiling_rows = [(n, name, "GB/s", *rates(ms, work[name][1])) for name, ms in times.items()]
    del work  # and with it some gigabytes
    n = 8192
    for name, ms in measure(matmul_ceilings(n), 12).items():
        tflops = [rate / 1e3 for rate in rates(ms, matmul_flops(n))]
        ceiling_rows.append((n, name, "TFLOPS", *tflops))
    n, k = 2**26, 2048
    ms = measure({"fma": partial(fma, *vectors(n)[1:], k)}, 30)["fma"]
    tflops = [rate / 1e3 for rate in rates(ms, fma_work(n, k)[0])]
    ceiling_rows.append((n, "float32 multiply-add", "TFLOPS", *tflops))
    save("ceilings", ["size"], ceiling_rows)
    show([row[1:] for row in ceiling_rows], ["ceiling", "unit", "median", "p20", "p80"])
    sustained = statistics.median(row[1] for row in watched["random numbers"][-20:])
    print(f"float16 product without a break, at the end of section 6: {three(sustained)} TFLOPS")
else:
    print(NO_GPU)

# %%
# Reading and writing need not be equally fast, so take the ceiling that moves bytes as your kernel
# does. (What was written last is still in the cache when the clock stops, which flatters writing,
# less for longer vectors.) For products, the last line says what is left of the ceiling when the
# GPU gets no pause. Beside your kernel belongs the one that was measured as your kernel was.
#
# **The remedy**: no number without its ceiling, from the same GPU and the same run.
#
# 10. The roofline
# ----------------
#
# Two ceilings, bytes and operations: which one is it that holds *your* kernel? That depends on
# how many operations it does for each byte it moves, its **arithmetic intensity**. Moving the
# bytes allows intensity times bandwidth, computing allows the peak, and the lower of the two is
# all there is:


def attainable(intensity, bandwidth, peak):
    """Return the rate that a roofline allows: *bandwidth* times *intensity*, at most *peak*."""
    return min(bandwidth * intensity, peak)


# %%
# On logarithmic axes this is a slope that runs into a flat roof. Below the slope a kernel is
# :term:`memory-bound`, below the flat part :term:`compute-bound`. The corner is the **ridge**,
# the intensity from which on a kernel *can* reach the peak.
#
# We trace it with the kernel above. Its intensity is set by *K*: two operations for each
# multiply-add, and eight bytes, four read and four written, whatever *K* is. Beside it go our
# vector addition; PyTorch's softmax, where we count five operations for an element (compare,
# subtract, exponential, add, divide); and its fp16 matrix products, whose intensity grows with
# their size.

# sphinx_gallery_fold = "traces the roofline"


def roofline_points():
    """Return rows (operations, bytes, provider, "TFLOPS", median, p20, p80)."""
    n = 2**26
    x, y, out = vectors(n)
    work = {("fma", k): (partial(fma, x, out, k), *fma_work(n, k)) for k in MULTIPLY_ADDS}
    work["add", n] = partial(add, x, y, out), n, add_bytes(n)
    work["softmax", n] = partial(torch.softmax, x.view(-1, 4096), 1), 5 * n, 8 * n
    for size in (128, 256, 512, 1024, 2048, 4096, 8192):
        a, b = torch.randn(2, size, size, dtype=torch.float16, device=DEVICE)
        call = partial(torch.mm, a, b, out=torch.empty_like(a))
        work["fp16 product", size] = call, *matmul_work(size, 2)
    points = []
    for (provider, _), (call, flops, n_bytes) in work.items():
        tflops = [rate / 1e3 for rate in rates(measure({"": call}, 20)[""], flops)]
        points.append((flops, n_bytes, provider, "TFLOPS", *tflops))
    return points


MULTIPLY_ADDS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 256, 512, 1024)  # for each element
if ON_GPU:
    points = roofline_points()
    for n, _, _, *found in sorted((r for r in cache_rows if r[1] == "hot"), key=lambda r: -r[3])[
        :1
    ]:
        tflops = [rate / add_bytes(1) / 1e3 for rate in found]  # the hottest point of section 3
        points.append((n, add_bytes(n), "add, hot cache", "TFLOPS", *tflops))
    save("roofline", ["operations", "bytes"], points)
else:
    print(NO_GPU)

# %%

# sphinx_gallery_fold = "plots the roofs and the points"


def plot_roofline(bandwidth, peaks, points, title):
    """Draw roofs and points.

    Args:
        bandwidth: TB/s of the memory roof.
        peaks: {name: TFLOPS} of the flat roofs.
        points: Rows (operations, bytes, provider, unit, TFLOPS, ...).
        title: Title of the figure.
    """
    fig, ax = plt.subplots(figsize=(7, 6.8))
    left, right = 2**-5, 2**12  # operations for a byte
    label = {"textcoords": "offset points", "xytext": (0, 6), "ha": "right", "fontsize": 12}
    ridges = {name: peak / bandwidth for name, peak in peaks.items()}
    top = max(ridges.values())
    ax.plot([left, top], [left * bandwidth, top * bandwidth], color="#444444")
    ax.annotate("memory", (left * 32, left * 32 * bandwidth), **label | {"xytext": (-6, 6)})
    for name, line in zip(peaks, ("--", "-."), strict=True):
        ax.plot([ridges[name], right], [peaks[name]] * 2, line, color="#444444")
        ax.annotate(name, (right, peaks[name]), **label)
    styles = {
        "fma": ("o-", "#1b6ca8", "multiply-adds, fp32"),
        "add": ("s", "#d1495b", "vector addition"),
        "add, hot cache": ("x", "#d1495b", "the same, hot cache"),
        "softmax": ("D", "#8d6a9f", "softmax"),
        "fp16 product": ("^:", "#2e7d32", "fp16 products, 128 to 8192"),
    }
    for provider, (style, color, name) in styles.items():
        mine = [(row[0] / row[1], row[4]) for row in points if row[2] == provider]
        if mine:
            ax.plot(*zip(*mine, strict=True), style, color=color, label=name, markersize=6)
    ax.set(xscale="log", yscale="log", xlabel="operations for each byte", ylabel="TFLOPS")
    ax.set_ylim(top=3 * max(peaks.values()))
    ax.set_title(title)
    ax.grid(alpha=0.3)
    if points:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    fig.tight_layout()
    plt.show()


if ON_GPU:
    ceiling = {name: median for _, name, _, median, _, _ in ceiling_rows}
    bandwidth = ceiling["copy"] / 1e3
    roofs = {
        "fp32 multiply-add": ceiling["float32 multiply-add"],
        "fp16 tensor cores": ceiling["float16 product"],
    }
    plot_roofline(bandwidth, roofs, points, f"Roofline in TFLOPS\non {GPU_NAME}")
    for name, peak in roofs.items():
        print(f"ridge, {name}: {three(peak / bandwidth)} operations a byte")
else:
    print("No GPU, so these are roofs of an assumed one: 1 TB/s, 10 and 100 TFLOPS.")
    plot_roofline(1, {"10 TFLOPS": 10, "100 TFLOPS": 100}, [], "The shape of a roofline")

# %%
# In numbers, with every other one of the multiply-adds:

# sphinx_gallery_fold = "prints the points, and what the roofs allow"
# sphinx_gallery_fold_output = True

if ON_GPU:
    table = []
    for flops, n_bytes, provider, _, median_rate, _, _ in (
        points[: len(MULTIPLY_ADDS) : 2] + points[len(MULTIPLY_ADDS) :]
    ):
        roof = roofs["fp16 tensor cores" if "product" in provider else "fp32 multiply-add"]
        allowed = attainable(flops / n_bytes, bandwidth, roof)
        table.append((provider, flops / n_bytes, median_rate, allowed, median_rate / allowed))
    show(table, ["kernel", "operations\na byte", "TFLOPS", "attainable", "ratio"])
else:
    print(NO_GPU)

# %%
# How to read it:
#
# * The traced kernel climbs along the slope: twice the arithmetic costs no time at all, because
#   the memory sets the pace. Behind the ridge every multiply-add costs. Around it the curve is
#   rounder than the roof, since moving and computing do not overlap perfectly.
# * A kernel **under the slope** moves more bytes than you counted, or does not keep enough loads
#   under way. More arithmetic would be free; fewer bytes, by :term:`kernel fusion` say, would pay.
# * A kernel **under the flat part** does not keep the arithmetic busy, or does other work than
#   you counted: index arithmetic, exchanging data, waiting.
# * A kernel **above the roof** has not broken it. Its bytes were not moved, since they were in
#   the cache, or the ceiling that we measured is a little too low for it: our slope is that of a
#   copy, and an addition reads two bytes for each one that it writes. Our hot addition is such a
#   point where its rate in section 3 was above the memory's.
#
# And what it leaves out: **time**. A small matrix product has a high intensity and still lies far
# below every roof: it is over before all of the GPU has begun. So look at the time of an empty
# kernel first, and then at the roof.
#
# What the run showed
# -------------------
#
# What this chapter has claimed, each beside the limit that it must keep:

# sphinx_gallery_fold = "computes the claims"

if DEVICE.type == "cuda":
    asked, waited, idle, busy = four_ways[2**12]
    best = {name: max(r[3] for r in cache_rows if r[1] == name) for name in ("hot", "cold")}
    claim(
        "for a small kernel, a stopwatch that waits shows twice the kernel's time, or more",
        waited / busy, at_least=2, section="1. A stopwatch measures asking",
    )  # fmt: skip
    claim(
        "so do events, if the GPU has nothing to do before them",
        idle / busy, at_least=2, section="1. A stopwatch measures asking",
    )  # fmt: skip
    claim(
        "the call that compiles takes a hundred times as long as the third one, or longer",
        compiled_times[0] / compiled_times[2], at_least=100,
        section="2. The first calls are different",
    )  # fmt: skip
    claim(
        "with a hot cache, an addition exceeds every rate that a cold one reaches, by a tenth",
        best["hot"] / best["cold"], at_least=1.1,
        spread=spread(r for r in cache_rows if r[3] == best["hot"]),
        section="3. A cache remembers",
    )  # fmt: skip
    claim(
        "at some size, a cache that was emptied by writing costs a twentieth of the rate",
        min(after_writing), at_most=0.95, section="3. A cache remembers",
    )  # fmt: skip
    claim(
        "a neighbour at one call of twenty leaves the median where it was",
        loud["median"] / quiet["median"], at_most=1.03, section="4. One timing is none",
    )  # fmt: skip
    claim(
        "and moves the mean by a twentieth, or more",
        loud["mean"] / quiet["mean"], at_least=1.05, section="4. One timing is none",
    )  # fmt: skip
    claim(
        "in random turns, a kernel and itself are within a thirtieth of each other",
        max(abs(ratio - 1) for ratio in in_turn_medians), at_most=1 / 30,
        section="5. Two names for one kernel",
    )  # fmt: skip
    claim(
        "products of zeros are faster than those of random numbers",
        on_zeros / on_random, at_least=1.0, section="6. The clock changes",
    )  # fmt: skip
    claim(
        "a graph of a thousand small kernels is done in half the time, or less",
        by_graph, at_least=2, section="7. The launch has a price",
    )  # fmt: skip
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# What to report
# --------------
#
# A number that somebody else can check says
#
# * **what** was timed: kernel, sizes, dtypes, the kind of data; and that it was checked first;
# * **where**: GPU, driver, versions of Triton and PyTorch, the clock and the power while it ran,
#   and whether anybody else was using the GPU;
# * **how**: events or stopwatch, kernel or program, cold or hot cache, how it was emptied, how
#   many timings, in turns or one after the other;
# * **how sure**: the median with p20 and p80, and what an A/A test says of differences so small;
# * **compared with what**: a ceiling from the same run, and what one would call instead, in the
#   same run too. Ratios of several sizes are summed up by their :term:`geometric mean`, with the
#   worst one beside it.
#
# Our tutorials keep to most of this list: they count bytes or operations and check first; a ceiling
# and PyTorch stand beside each rate; the files with all the rows hold p20 and p80. The *where* is
# in the record of each page (the link is below its title).
#
# What to remember
# ----------------
#
# * Check first. Then time on the GPU's own clock, with the GPU kept busy while Python queues the
#   call.
# * Empty the cache by reading something else, or say that it was hot.
# * Take many timings; quote the median and the spread. Test the method with A against A.
# * Compare in random turns, because clocks drift. Quote ratios from within one run.
# * Use real data, not zeros.
# * Small kernels cost their launch: measure the program too, and record graphs.
# * Put every number under its roof: what the memory and the arithmetic of this GPU can do,
#   measured. Why a kernel is far below it, :doc:`/programming-guide/chapter-5/profiling` finds
#   out.
#
# References
# ----------
#
# * Torsten Hoefler and Roberto Belli: *Scientific benchmarking of parallel computing systems:
#   twelve ways to tell the masses when reporting performance results*, SC 2015,
#   https://doi.org/10.1145/2807591.2807644
# * Samuel Williams, Andrew Waterman and David Patterson: *Roofline: an insightful visual
#   performance model for multicore architectures*, Communications of the ACM 52 (4), 2009,
#   https://doi.org/10.1145/1498765.1498785
# * Charlene Yang, Thorsten Kurth and Samuel Williams: *Hierarchical roofline analysis for GPUs:
#   accelerating performance optimization for the NERSC-9 Perlmutter system*, Concurrency and
#   Computation: Practice and Experience 32 (20), 2020, https://doi.org/10.1002/cpe.5547
# * John D. McCalpin: *Memory bandwidth and machine balance in current high performance
#   computers*, 1995: the STREAM benchmark, four simple kernels as a ceiling.
# * Theo Gregersen, Pratyush Patel and Esha Choukse: *Input-dependent power usage in GPUs*, 2024,
#   https://arxiv.org/abs/2409.18324: why zeros run cooler.
# * Zeyu Yang, Karel Adamek and Wesley Armour: *Part-time power measurements: nvidia-smi's lack of
#   attention*, 2023, https://arxiv.org/abs/2312.02741: what the power sensor sees, and what it
#   misses.
