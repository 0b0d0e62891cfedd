"""
Measuring kernels
=================

Timing a kernel takes one line. Timing it so that somebody else gets the same number takes more. A
GPU works while Python is already elsewhere, remembers what it has read, and changes its clock. Each
of these can be larger than the difference that you want to see: a stopwatch shows
:measured:`waited` times the time of a small kernel, and a cache raises a rate :measured:`hot`
times.

Each section makes a mistake on purpose, measures what it costs, and gives the remedy. You need
:doc:`/getting-started/tutorials/01-vector-add`. Without a GPU the page checks its kernels and times
nothing.
"""

# %%
# The kernel and the loop
# -----------------------
#
# We measure a kernel whose time everybody can predict. Vector addition reads two vectors and writes
# one, twelve bytes for each element of fp32. The result is allocated beforehand, because a
# measurement of a kernel should contain nothing else.

# sphinx_gallery_thumbnail_number = 1
import math
import os
import random
import statistics
import time
from functools import partial

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


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


torch.manual_seed(0)
random.seed(0)
for n in (0, 1, 1023, 1025, 98432):
    x, y = torch.randn(2, n, device=DEVICE)
    out = torch.full_like(x, math.nan)  # so that an element that nobody wrote cannot pass
    add(x, y, out)
    torch.testing.assert_close(out, (x.double() + y.double()).float(), atol=0, rtol=0)
print("add agrees with float64")

# %%
# The worst mistake is to time a wrong kernel, so the check comes first. This is the loop of the
# tutorials, except that you can choose what goes into the queue *before* each call. The sections
# below are the reasons for its lines.

if ON_GPU:
    gpu = torch.get_device_module(DEVICE)
    other = torch.zeros(2**27, dtype=torch.int32, device=DEVICE)  # 512 MiB


def read_other():
    """Read half a gigabyte that has nothing to do with the measurement, twice."""
    for _ in range(2):
        other.amax()


def measure(calls, rounds=200, before=read_other):
    """Return {name: milliseconds of each of *rounds* calls}; the *calls* take turns."""
    events = {name: [] for name in calls}
    for call in calls.values():
        call()  # the first call compiles
    for _ in range(rounds):  # one timing is none
        for name in random.sample(list(calls), len(calls)):  # in random turns
            start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
            before()  # keeps the GPU busy, and empties its cache
            start.record()  # the GPU's own clock
            calls[name]()
            end.record()
            events[name].append((start, end))
    gpu.synchronize()
    return {name: [one.elapsed_time(two) for one, two in pairs] for name, pairs in events.items()}


# %%
# A stopwatch measures the launch
# -------------------------------
#
# **The mistake**: ``time.perf_counter()`` before and after the call. A launch puts the kernel into
# a queue and returns, so this is the time in which Python *asks* for the kernel. If you wait for
# the GPU before you look at the stopwatch, the time holds the launch, the kernel, and the way back
# to Python.
#
# *Events* are marks in the queue, which the GPU stamps with its own clock. But an idle GPU stamps
# the first mark at once, and then waits for Python with its clock running. Only a GPU that is
# **busy with something else** passes mark, kernel and mark without a break.

# sphinx_gallery_fold = "brings the files' writer, and times one kernel in four ways"
# sphinx_gallery_show = "four_ways"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import CEILING, OURS, STEPS, figure, spread, write_rows, write_table

VALUES = []  # rows (name, unit, value) for the numbers in the text


def stopwatch(call, wait):
    """Return the median microseconds that a stopwatch shows, with waiting or without."""
    times = []
    for _ in range(100):
        gpu.synchronize()
        start = time.perf_counter()
        call()
        if wait:
            gpu.synchronize()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def four_ways(call):
    """Return the microseconds of *call* by stopwatch, by stopwatch and waiting, and by events."""
    idle = measure({"call": call}, 100, before=gpu.synchronize)["call"]
    busy = measure({"call": call}, 100, before=read_other)["call"]
    events = [1e3 * statistics.median(ms) for ms in (idle, busy)]
    return stopwatch(call, wait=False), stopwatch(call, wait=True), *events


def vectors(n):
    """Return two random vectors of *n* elements, and a third for their sum."""
    return *torch.rand(2, n, device=DEVICE), torch.empty(n, device=DEVICE)


if ON_GPU:
    found = {n: four_ways(partial(add, *vectors(n))) for n in (2**12, 2**26)}
    for name, value in zip(("stopwatch", "waited", "idle", "busy"), found[2**12], strict=True):
        VALUES.append((name, "µs", value))
    head = ["elements, µs", "stopwatch", "and wait", "idle GPU", "busy GPU"]
    table = [(n, *row) for n, row in found.items()]
    print(tabulate(table, head, floatfmt=".1f", intfmt=","))
else:
    print("Nothing to time without a GPU.")

# %%
# One vector is 2¹⁴ times as long as the other. The stopwatch alone misses nearly all of that. On
# the short vector, events on an idle GPU show :measured:`idle` times the kernel's time.
#
# **The remedy**: events, and before them work for longer than Python needs. ``start.query()`` tells
# whether it was enough: once all is queued, the first mark must not have been passed yet. The first
# call does not count, because it compiles; so the loop calls everything once beforehand.
#
# A cache remembers
# -----------------
#
# **The mistake**: calling a kernel on the same data again and again. What fits into the :term:`L2
# cache` is not read from memory the second time. We add two long vectors piece by piece into a
# third: *cold*, one piece after the other, so that no piece comes twice; and *hot*, the first piece
# as many times. A graph records the launches, so Python has no part in it.

# sphinx_gallery_fold = "adds the vectors piece by piece, cold and hot, and draws the rates"


def as_graph(calls):
    """Return a function that replays *calls*, recorded once as a graph."""
    calls[0]()
    gpu.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph.replay


def cache_experiment(total, sizes):
    """Return rows (size, provider, unit, median, p20, p80) of adding *total* elements in pieces."""
    x, y, out = vectors(total)
    rows = []
    for n in sizes:
        pieces = [partial(add, *(v[i : i + n] for v in (x, y, out))) for i in range(0, total, n)]
        calls = {"cold": as_graph(pieces), "hot": as_graph(pieces[:1] * len(pieces))}
        for provider, times in measure(calls, 20).items():
            rates = [12 * total / ms / 1e6 for ms in times]
            rows.append((n, provider, "GB/s", *spread(rates)))
    return rows


def plot_cache(rows):
    """Draw rates over the bytes moved by a call, and the size of the L2 cache."""
    fig, ax = figure(height=4.2)
    styles = {"hot": (STEPS[1], "same data again and again (hot)"),
              "cold": (OURS, "other data each time (cold)")}  # fmt: skip
    for provider, (color, label) in styles.items():
        sizes, _, _, medians, low, high = zip(*[r for r in rows if r[1] == provider], strict=True)
        mebibytes = [12 * n / 2**20 for n in sizes]
        ax.plot(mebibytes, medians, marker=".", color=color, label=label)
        ax.fill_between(mebibytes, low, high, color=color, alpha=0.2, linewidth=0)
    cache = gpu.get_device_properties().L2_cache_size
    ax.axvline(cache / 2**20, color=CEILING, linestyle="--", label="size of the L2 cache")
    ax.set_xscale("log", base=2)
    ax.set(xlabel="MiB moved by a call", ylabel="GB/s, higher is better", ylim=0)
    ax.set_title(f"Vector addition with a hot and a cold cache\non {gpu.get_device_name()}")
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center", frameon=False)
    plt.show()


if ON_GPU:
    cache_rows = cache_experiment(2**26, [2**i for i in range(16, 26)])
    write_rows("measuring-cache.csv", ["size"], cache_rows)
    plot_cache(cache_rows)

# %%
# Where the hot curve lies above all that the cold one reaches, it shows the cache and not the
# memory. Neither is the *true* one: the data *is* in the cache if the kernel before has just
# written it. A benchmark has to choose, and to say what it chose. Ours are cold.
#
# **How to empty a cache** matters, too. Overwriting a large buffer leaves *dirty* lines, which must
# be written to memory before their place can be used. The next kernel waits for that: at one size
# it reaches only :measured:`writing` of the rate that it has after reading.

# sphinx_gallery_fold = "times one kernel after writing and after reading"

if ON_GPU:
    write, table = lambda: (other.zero_(), other.zero_()), []
    for n in [2**i for i in (18, 20, 22, 24, 26)]:
        call = partial(add, *vectors(n))
        found = [measure({"": call}, 100, f)[""] for f in (write, read_other)]
        written, read = (12 * n / statistics.median(ms) / 1e6 for ms in found)
        table.append((12 * n // 2**20, written, read, written / read))
    VALUES.append(("after writing", "ratio", min(row[-1] for row in table)))
    head = ["MiB moved", "GB/s after writing", "GB/s after reading", "ratio"]
    print(tabulate(table, head, floatfmt=("", ",.0f", ",.0f", ".2f")))

# %%
# **The remedy**: before each call, *read* several times what the largest cache holds.
#
# One timing is not enough
# ------------------------
#
# **The mistake**: believing one number. Here are two thousand timings of one kernel, and in turns
# with them two thousand with a neighbor: before one call of twenty on average, other kernels run in
# another queue and are still running when ours begins. Such neighbors are other processes, a
# display, a forgotten notebook.

# sphinx_gallery_fold = "times the kernel with and without a neighbor"


def with_neighbor(share=0.05):
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


def summary(times):
    """Return {name: value} of what one number can say about *times*."""
    median, p20, p80 = spread(times)
    return {"minimum": min(times), "p20": p20, "median": median, "mean": statistics.fmean(times),
            "p80": p80, "maximum": max(times)}  # fmt: skip


if ON_GPU:
    call = partial(add, *vectors(2**20))
    timings = {"quiet": [], "disturbed": []}
    befores = {"quiet": read_other, "disturbed": with_neighbor()}
    for _ in range(20):
        for name, before in befores.items():
            timings[name] += [1e3 * ms for ms in measure({"": call}, 100, before)[""]]
    quiet, loud = (summary(timings[name]) for name in befores)
    moved = {name: loud[name] / quiet[name] for name in quiet}
    VALUES += [(f"{name} moved", "ratio", moved[name]) for name in ("median", "mean")]
    table = [(name, quiet[name], loud[name], moved[name]) for name in quiet]
    print(tabulate(table, ["of 2,000 timings, µs", "quiet", "disturbed", "ratio"], floatfmt=".2f"))

# %%
# With the neighbor, the mean is :measured:`mean_moved` times as large as without, and the median
# :measured:`median_moved` times. The mean counts a disturbed call with all of its time, and the
# median counts it as one call of many. So the median and the percentiles hold while clearly fewer
# than a fifth of the calls are disturbed. A neighbor that also slows the calls after its own moves
# them, too. If the mean of the *quiet* calls is far above their median, some of them were
# disturbed, too, as their maximum shows. Then the ratio of the means says nothing. The minimum
# answers another question: how lucky can you be?
#
# **The remedy**: many timings and their median. Beside it stand *p20* and *p80*: a fifth of the
# timings is below p20, and a fifth above p80. Four times as many timings halve the scatter of a
# median. If the mean is far from the median, find the neighbor.
#
# Two names for one kernel
# ------------------------
#
# **The mistake**: measuring A to the end, then B. Meanwhile the GPU has become warmer and its clock
# has changed. To see it, let A and B be *the same kernel*. An A/A test shows what a benchmark can
# resolve.

# sphinx_gallery_fold = "compares a kernel with itself, both ways"
# sphinx_gallery_show = "one_by_one, in_turns"


def one_by_one(calls, rounds):
    """Return the median of each call, measured after one another."""
    return [statistics.median(measure({"": call}, rounds)[""]) for call in calls.values()]


def in_turns(calls, rounds):
    """Return the median of each call, measured in random turns."""
    return [statistics.median(ms) for ms in measure(calls, rounds).values()]


def a_over_a(how, call, rounds, repeats=5):
    """Return the ratios of *call* to itself, each after a short rest."""
    ratios = []
    for _ in range(repeats):
        gpu.synchronize()
        time.sleep(0.3)
        first, second = how({"A": call, "B": call}, rounds)
        ratios.append(first / second)
    return ratios


if ON_GPU:
    a, b = torch.randn(2, 8192, 8192, dtype=torch.float16, device=DEVICE)
    kernels = {
        "fp16 product": (partial(torch.mm, a, b, out=torch.empty_like(a)), 40),
        "add, 2^20": (partial(add, *vectors(2**20)), 100),
    }
    table, turns = [], []
    for name, (call, rounds) in kernels.items():
        for title, how in (("first A, then B", one_by_one), ("in random turns", in_turns)):
            found = a_over_a(how, call, rounds)
            table.append((name, title, min(found), statistics.median(found), max(found)))
            turns += [abs(statistics.median(found) - 1)] * (how is in_turns)
    VALUES.append(("in turns", "%", 100 * max(turns)))
    print(tabulate(table, ["A over A", "measured", "lowest", "median", "highest"], floatfmt=".3f"))

# %%
# In random turns neither A nor B has an advantage. What is left is scatter, and more rounds make it
# smaller: the median of five repetitions is within :measured:`turns` % of 1. Where the median of
# *first A, then B* is much farther from 1, and all five repetitions are on one side of it, the
# error is systematic, and no number of rounds helps.
#
# **The remedy**: take turns, call by call, in random order. Before you believe that B is a little
# faster than A, look at what A gains over A.
#
# The clock changes
# -----------------
#
# **The mistake**: taking the clock of a GPU for a constant, and zeros for data. The GPU sets its
# clock many times a second, as high as power, current and temperature allow. A transistor draws
# power when it switches, and few switch when zeros are multiplied by zeros.

# sphinx_gallery_fold = "multiplies random numbers and zeros, without a break"


def rate_without_a_break(a, b, seconds=1.5, chunk=10):
    """Return the TFLOPS of a product in the last third of some seconds."""
    out, marks, begin = torch.empty_like(a), [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
        start.record()
        for _ in range(chunk):
            torch.mm(a, b, out=out)
        end.record()
        marks.append((start, end))
        if len(marks) > 1:
            marks[-2][1].synchronize()  # so that at most two chunks are in the queue
    gpu.synchronize()
    times = [one.elapsed_time(two) / chunk for one, two in marks[-len(marks) // 3 :]]
    return 2 * len(a) ** 3 / statistics.median(times) / 1e9


if ON_GPU:
    rates = {"random numbers": rate_without_a_break(a, b)}
    rates["zeros"] = rate_without_a_break(torch.zeros_like(a), torch.zeros_like(b))
    VALUES.append(("zeros", "ratio", rates["zeros"] / rates["random numbers"]))
    print(tabulate(rates.items(), ["fp16 product of", "TFLOPS"], floatfmt=".0f"))

# %%
# Zeros are multiplied at :measured:`zeros` times the rate of random numbers. **The remedy**: data
# like the real data, and ratios of what was measured in turns within one run.
#
# What do_bench sees, and what it hides
# -------------------------------------
#
# :py:func:`triton.testing.do_bench` calls a function for about ``warmup`` + ``rep`` milliseconds,
# with a pair of events for each call, and returns the **mean** unless you ask for another. Before
# each call it *overwrites* 256 MiB. While the GPU does that, Python queues the call, so its share
# is hidden if it is short enough. :py:func:`triton.testing.do_bench_cudagraph` records many calls
# in one graph: Python has no share, and the cache is hot.

# sphinx_gallery_fold = "times vectors of several lengths in all three ways"
if ON_GPU:
    rows, table = [], []
    for n in [2**i for i in range(12, 27, 2)]:
        call = partial(add, *vectors(n))
        found = {"this page": measure({"": call})[""]}
        found["do_bench"] = triton.testing.do_bench(call, return_mode="all")
        graphs = triton.testing.do_bench_cudagraph(call, return_mode="all")
        found["do_bench_cudagraph"] = graphs
        rows += [(n, way, "ms", *spread(ms)) for way, ms in found.items()]
        table.append((n, *(1e3 * statistics.median(ms) for ms in found.values())))
    write_rows("measuring-do-bench.csv", ["size"], rows)
    print(tabulate(table, ["elements, µs", *found], floatfmt=".1f", intfmt=","))

# %%
# For the longest vectors it hardly matters which you use. In the middle, ``do_bench`` waits for
# dirty lines, and the graph finds its data in the cache. For the shortest, *this page* and
# ``do_bench`` show the least time that two events have between them, and the graph shows less.
#
# **The mistake**: taking the time of ``do_bench`` for what a call costs a program. Here is the
# addition of 4096 elements once more, with more and more Python before its launch. Beside
# ``do_bench`` are two loops of 200 calls, timed by a stopwatch: one waits for the GPU at its end
# only, the other after each call.

# sphinx_gallery_fold = "times a call that Python makes slower, by do_bench and in loops"
# sphinx_gallery_show = "slowed, in_a_loop"


def slowed(call, microseconds):
    """Return a function that keeps Python busy for some *microseconds*, and then calls *call*."""

    def slow():
        end = time.perf_counter() + microseconds / 1e6
        while time.perf_counter() < end:
            pass
        call()

    return slow


def in_a_loop(call, wait, calls=200, rounds=11):
    """Return the microseconds of a call in a loop; *wait*: after each call, not only at its end."""
    times = []
    for _ in range(rounds):
        gpu.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
            if wait:
                gpu.synchronize()
        gpu.synchronize()
        times.append((time.perf_counter() - start) / calls)
    return 1e6 * statistics.median(times)


if ON_GPU:
    call, table = partial(add, *vectors(2**12)), []
    for extra in (0, 10, 20, 40, 80, 160):
        slow = slowed(call, extra)
        seen = 1e3 * triton.testing.do_bench(slow, return_mode="median")
        table.append((extra, seen, in_a_loop(slow, wait=False), in_a_loop(slow, wait=True)))
    flushed = torch.empty(2**26, dtype=torch.int32, device=DEVICE)  # 256 MiB
    VALUES.append(("overwriting", "µs", 1e3 * statistics.median(measure({"": flushed.zero_})[""])))
    VALUES += [
        (name, "µs", value)
        for name, value in zip(("do_bench", "loop", "waiting loop"), table[0][1:], strict=True)
    ]
    write_table("measuring-values.csv", ["name", "unit", "value"], VALUES)
    head = ["µs of Python more", "do_bench", "a loop", "a loop that waits"]
    print(tabulate(table, head, floatfmt=(".0f", ".1f", ".1f", ".1f")))

# %%
# The first row is the addition as it is: :measured:`do_bench` µs by ``do_bench``, and
# :measured:`loop` µs in a loop that does not wait, :measured:`hidden` times as much, because Python
# needs longer for a call than the GPU. Down the table, both loops pay for all of Python, up to the
# scatter of the host's timings. ``do_bench`` shows next to nothing of it until Python needs about
# as long as the overwriting, here :measured:`overwriting` µs, and then only what is longer. So its
# result depends on the host: on one that is half as fast, a function that executes much Python
# before its launch suddenly looks slower than its rival.
#
# **The remedy**: two numbers. The GPU's time, measured so that Python certainly has no part in it,
# and the CPU's share of a call. In a loop that does not wait, a call costs the larger of the two;
# one that is waited for costs about their sum. Our tables state both, and
# :doc:`/programming-guide/chapter-6/calls` takes a call apart.
#
# What to report
# --------------
#
# * **What**: kernel, sizes, dtypes, data; and that it was checked first.
# * **Where**: GPU, driver, versions, clock and power, and who else was using the GPU.
# * **How**: the GPU's time or the CPU's share, cold or hot, how many timings, in turns or one after
#   the other.
# * **How sure**: the median with p20 and p80, and what an A/A test says of such small differences.
# * **Compared with what**: :doc:`a ceiling <roofline>` and what you would call instead, in the same
#   run. Ratios of several sizes are summed up by their :term:`geometric mean`, with the worst one
#   beside it.
#
# .. rubric:: References
#
# * Torsten Hoefler and Roberto Belli: *Scientific benchmarking of parallel computing systems*,
#   SC 2015, https://doi.org/10.1145/2807591.2807644
# * Theo Gregersen, Pratyush Patel and Esha Choukse: *Input-dependent power usage in GPUs*, 2024,
#   https://arxiv.org/abs/2409.18324
