"""
The roofline
============

A number needs a yardstick. Is a few hundred TFLOPS fast? The best yardstick is what *this* GPU does
*now* with the simplest work. Here you measure what your GPU can do at most, and draw it as
a **roofline**: its memory and its tensor cores meet at :measured:`ridge` operations per byte. You
need :doc:`measuring`.
"""

# %%
# Three ceilings
# --------------
#
# A copy shows what the memory can do, and a large matrix product what the tensor cores can do. For
# the other arithmetic, this kernel multiplies and adds *K* times between a load and a store:

# sphinx_gallery_thumbnail_number = 1
import math
import os
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
# A multiply-add counts as two operations, by convention. Of the bytes we count those that *have* to
# move: each input once and each output once. The data sheet is no yardstick: it assumes a clock
# that the GPU may not hold.

# sphinx_gallery_fold = "measures the ceilings"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import CEILING, OURS, PYTORCH, VENDOR, figure, gpu_times, spread
from shared.bench import write_rows, write_table


def timed(call, work, rounds=20):
    """Return the median, p20 and p80 of *work* over the time of *call*, in 10⁹ a second."""
    return spread([work / ms / 1e6 for ms in gpu_times({"": call}, rounds)[""]])


def ceilings():
    """Return rows (size, name, unit, median, p20, p80) of a copy, a product, and multiply-adds."""
    n = 2**28
    source, target = torch.rand(n, device=DEVICE), torch.empty(n, device=DEVICE)
    rows = [(n, "copy", "GB/s", *timed(partial(target.copy_, source), 8 * n))]
    a, b = torch.randn(2, 8192, 8192, dtype=torch.float16, device=DEVICE)
    product = timed(partial(torch.mm, a, b, out=torch.empty_like(a)), 2 * 8192**3, 12)
    x = torch.rand(2**26, device=DEVICE)
    multiply_adds = timed(partial(fma, x, torch.empty_like(x), 2048), 2 * 2048 * 2**26)
    rows.append((8192, "float16 product", "TFLOPS", *(rate / 1e3 for rate in product)))
    rows.append((2**26, "float32 multiply-add", "TFLOPS", *(r / 1e3 for r in multiply_adds)))
    return rows


if ON_GPU:
    ceiling_rows = ceilings()
    write_rows("measuring-ceilings.csv", ["size"], ceiling_rows)
    for _, name, unit, median, *_ in ceiling_rows:
        print(f"{name:20} {median:7,.4g} {unit}")
else:
    print("Nothing to time without a GPU.")

# %%
# Take the ceiling from the same GPU and the same run as your kernel, and the one that moves bytes
# as your kernel does. Reading and writing need not be equally fast.
#
# Burst and sustained
# -------------------
#
# The product has two rates. A large product makes the GPU draw all the power that it may, and after
# some milliseconds the GPU may lower its clock to stay within its limit. The **burst** rate is that
# of one product after a rest. The **sustained** rate is that of products for a second without a
# break. To see the reason for the difference, this kernel counts the cycles of a multiprocessor
# right after the product:


@triton.jit
def clock_kernel(out_ptr, NANOSECONDS: tl.constexpr):
    """Store the cycles of a multiprocessor in at least NANOSECONDS, and the nanoseconds."""
    start = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    first = tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    now = start
    while now - start < NANOSECONDS:
        now = tl.inline_asm_elementwise(
            "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
        )
    last = tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    tl.store(out_ptr, last - first)
    tl.store(out_ptr + 1, now - start)


# sphinx_gallery_fold = "measures a product after a rest, and for a second"
# sphinx_gallery_show = "clock_kernel, burst, sustained"
def clock():
    """Launch the kernel behind what is in the queue; return the clock in MHz."""
    counted = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    clock_kernel[(1,)](counted, NANOSECONDS=100_000, num_warps=1)
    cycles, nanoseconds = counted.tolist()
    return 1e3 * cycles / nanoseconds


def events(call, count):
    """Queue *count* calls between two events, and return these."""
    gpu = torch.get_device_module()
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    return start, end


def burst(call, other, rounds=12):
    """Return the milliseconds of one *call* after a rest, and the clock after it, each a median."""
    found = []
    for _ in range(rounds):
        torch.accelerator.synchronize()
        time.sleep(0.1)
        other.amax()  # keeps the GPU busy until all is in the queue
        start, end = events(call, 1)
        found.append((clock(), start.elapsed_time(end)))  # clock() waits
    clocks, times = zip(*found, strict=True)
    return statistics.median(times), statistics.median(clocks)


def sustained(call, seconds=1.0, chunk=10):
    """Return the milliseconds of a *call* after *seconds* without a break, and the clock then."""
    marks, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        marks.append(events(call, chunk))
        if len(marks) > 1:
            marks[-2][1].synchronize()  # so that at most two chunks are in the queue
    after = clock()
    times = [start.elapsed_time(end) / chunk for start, end in marks[-len(marks) // 3 :]]
    return statistics.median(times), after


if ON_GPU and DEVICE.type == "cuda" and not torch.version.hip:
    a, b = torch.randn(2, 8192, 8192, dtype=torch.float16, device=DEVICE)
    product = partial(torch.mm, a, b, out=torch.empty_like(a))
    clock()  # compiles
    found = {"burst": burst(product, torch.zeros(2**27, dtype=torch.int32, device=DEVICE))}
    found["sustained"] = sustained(product)
    values, table = [], []
    for name, (ms, mhz) in found.items():
        rate = 2 * 8192**3 / ms / 1e9
        values += [(name, "TFLOPS", rate), (f"{name} clock", "MHz", mhz)]
        table.append((name, rate, mhz, 1e3 * rate / mhz))
    write_table("roofline-values.csv", ["name", "unit", "value"], values)
    head = ["fp16 product of 8192", "TFLOPS", "clock, MHz", "TFLOPS per GHz"]
    print(tabulate(table, head, floatfmt=",.0f"))

# %%
# The product of random numbers reaches :measured:`burst` TFLOPS after a rest, with a clock of
# :measured:`burst_clock` GHz right behind it, and :measured:`sustained` TFLOPS after a second, with
# :measured:`sustained_clock` GHz. The timer's steps are coarse, so a clock may be off by a percent.
# After a second the clock has settled, so the last column is the rate at one clock. After a rest it
# is not: the GPU changes its clock within milliseconds, and a single product may have run at a
# lower clock than the one read behind it.
#
# So say which of the two rates you state, and compare two kernels in one run, taking turns. In the
# tables of this site single calls alternate with reads of memory. That is neither of the two rates,
# and may be faster than both. Compare within a table.
#
# Two roofs
# ---------
#
# Operations per byte moved are the **arithmetic intensity**. The memory allows intensity times
# bandwidth, the arithmetic allows its peak, and the lower one is the limit. On logarithmic axes
# this is a slope that runs into a flat roof: the **roofline**. Below the slope a kernel is
# :term:`memory-bound`, below the flat part :term:`compute-bound`. The corner is the **ridge**.


def attainable(intensity, bandwidth, peak):
    """Return the rate that a roofline allows: *bandwidth* times *intensity*, at most *peak*."""
    return min(bandwidth * intensity, peak)


# sphinx_gallery_fold = "traces the roofline, and draws it"
# sphinx_gallery_show = "attainable"
def roofline_points():
    """Return rows (operations, bytes, provider, "TFLOPS", median, p20, p80)."""
    n = 2**26
    x, y, out = torch.rand(3, n, device=DEVICE)
    work = [
        ("fma", partial(fma, x, out, k), 2 * k * n, 8 * n) for k in (1, 4, 16, 32, 64, 128, 512)
    ]
    work.append(("add", partial(torch.add, x, y, out=out), n, 12 * n))
    work.append(("softmax", partial(torch.softmax, x.view(-1, 4096), 1), 5 * n, 8 * n))
    for size in (128, 512, 2048, 8192):
        a, b = torch.randn(2, size, size, dtype=torch.float16, device=DEVICE)
        call = partial(torch.mm, a, b, out=torch.empty_like(a))
        work.append(("fp16 product", call, 2 * size**3, 6 * size**2))
    return [
        (flops, size, name, "TFLOPS", *(rate / 1e3 for rate in timed(call, flops)))
        for name, call, flops, size in work
    ]


def plot_roofline(bandwidth, peaks, points, title):
    """Draw roofs of TB/s and {name: TFLOPS}, and points (operations, bytes, …)."""
    fig, ax = figure(height=5.2)
    left, right = 2**-4, 2**12  # operations per byte
    top = max(peaks.values()) / bandwidth
    ax.plot([left, top], [left * bandwidth, top * bandwidth], color=CEILING)
    for name, peak in peaks.items():
        ax.plot([peak / bandwidth, right], [peak] * 2, "--", color=CEILING)
        place = {"xytext": (-9, 0), "textcoords": "offset points", "ha": "right"}
        ax.annotate(name, (peak / bandwidth, peak), **place)  # left of the corner is no point
    styles = {"fma": ("o-", OURS, "multiply-adds, fp32"), "add": ("s", PYTORCH, "addition"),
              "softmax": ("D", PYTORCH, "softmax"),
              "fp16 product": ("^:", VENDOR, "fp16 products, 128 to 8192")}  # fmt: skip
    for provider, (style, color, name) in styles.items():
        mine = [(row[0] / row[1], row[4]) for row in points if row[2] == provider]
        if mine:
            ax.plot(*zip(*mine, strict=True), style, color=color, label=name, markersize=6)
    ax.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="TFLOPS", title=title)
    ax.margins(y=0.1)
    ax.grid(alpha=0.3)
    if points:
        fig.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()


if ON_GPU:
    points = roofline_points()
    write_rows("measuring-roofline.csv", ["operations", "bytes"], points)
    copy, product, multiply_add = (row[3] for row in ceiling_rows)
    roofs = {"fp32 multiply-add": multiply_add, "fp16 tensor cores": product}
    plot_roofline(
        copy / 1e3, roofs, points, f"Roofline\non {torch.get_device_module().get_device_name()}"
    )
else:
    print("No GPU, so these are roofs of an assumed one: 1 TB/s, 10 and 100 TFLOPS.")
    plot_roofline(1, {"10 TFLOPS": 10, "100 TFLOPS": 100}, [], "The shape of a roofline")

# %%
# We trace the roofline with the kernel above, whose intensity *K* sets. Beside it are an addition,
# PyTorch's softmax with five operations per element, and fp16 products of growing size.
#
# How to read it
# --------------
#
# * **On the slope**, more arithmetic costs no time, because the memory sets the pace.
# * **Under the slope**, a kernel moves more bytes than you counted, or has too few loads in flight.
#   Fewer bytes would pay, for example by :term:`kernel fusion`.
# * **Under the flat part**, it does not keep the arithmetic busy, or does work that you did not
#   count: index arithmetic, exchanging data, waiting.
# * **Above the roof**, its bytes were in the cache, or the measured ceiling is a little too low.
#
# A small product has a high intensity and is still far below every roof: it ends before all of the
# GPU has begun. So look at the time of an empty kernel first, and then at the roof.
#
# References
# ----------
#
# * Samuel Williams, Andrew Waterman and David Patterson: *Roofline: an insightful visual
#   performance model for multicore architectures*, 2009, https://doi.org/10.1145/1498765.1498785
# * John D. McCalpin: *Memory bandwidth and machine balance in current high performance computers*,
#   1995: the STREAM benchmark
