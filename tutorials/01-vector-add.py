"""
Vector addition
===============

This is the "hello, world" of GPU programming: add two vectors. The mathematics is trivial, and that
is the point: whatever else you see on this page, *every* kernel has.

You will build ``add(x, y)``, a function that gives what ``x + y`` gives in PyTorch, and learn

* what a **program**, a **grid**, a **block** and a **mask** are;
* how a pointer plus offsets becomes a whole block of pointers;
* what has to be known when the kernel is compiled, and why blocks are powers of two;
* that a kernel launch returns before the kernel has run, and how to time it all the same;
* what the left end and the right end of a bandwidth curve tell you.

You need Python and some PyTorch. You need not have written a kernel before, and you can read and
run this page without a GPU: Triton's interpreter then runs the same kernels, slowly, on the CPU.

.. ladder::
"""

# %%
# First the imports. Without a GPU the interpreter has to be chosen before Triton is imported,
# since Triton sets up its own functions while it is being imported; the first cell sees to that.

# sphinx_gallery_fold = "chooses the device, and brings the rounding of what is printed"
# sphinx_gallery_thumbnail_number = 2
import sys  # for shared/
import time
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.measuring import print_ratios, significant, write_rows
from shared.plotting import CEILING, OURS, TORCH
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%
import triton
import triton.language as tl

# %%
# What PyTorch does, and what it costs
# ------------------------------------
#
# The reference is one line. Before writing a kernel, count what it *must* do, because that is what
# its time will be made of.

# sphinx_gallery_fold = "adds with PyTorch, and counts the bytes of an addition"


def add_reference(x, y):
    """Return ``x + y``, as PyTorch computes it."""
    return x + y


def bytes_moved(n, element_size=4):
    """Return the bytes that adding two vectors of *n* elements has to move: read two, write one."""
    return 3 * n * element_size


print(f"fp32: {bytes_moved(1)} bytes moved for 1 addition")

# %%
# Twelve bytes for one addition. A GPU can do tens of additions in the time it takes to move twelve
# bytes to and from its memory, so the arithmetic is free and the memory sets the pace: the kernel
# is **memory-bound**. This is why we shall give its speed in bytes per second and not in
# operations per second, and why the yardstick is a plain copy: nothing that moves these bytes can
# be much faster than a kernel that does nothing else with them.
#
# The kernel
# ----------
#
# A GPU is fast because it does thousands of things at once. In Triton you write what *one* of them
# does: a function called a **program**. You launch many copies of it, the **grid**, and each copy
# asks for its number, the **program id**, to find out which part of the work is its own. Here each
# program adds one **block**, that is ``BLOCK`` neighbouring elements.


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add one block of *x* and *y*."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)  # [BLOCK]: the elements of this program
    mask = offsets < n  # [BLOCK]: those that exist
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


# %%
# Six lines, and each holds an idea.
#
# ``tl.program_id(0)``
#     The number of this program: 0, 1, 2, … along the first axis of the grid. It is the only thing
#     in which the copies differ.
# ``tl.arange(0, BLOCK)``
#     The numbers 0 … ``BLOCK`` - 1, *all at once*: a Triton variable is not a number, it is a
#     block of numbers.
# ``offsets``
#     Which elements of the vectors this program works on, counted from the start of each vector.
# ``x_ptr + offsets``
#     A tensor that is passed to a kernel arrives as a **pointer**: the address of its first
#     element. A pointer plus a block of offsets is a **block of pointers**, one for each element.
#     Offsets count elements, not bytes: Triton knows the type behind the pointer.
# ``tl.load`` and ``tl.store``
#     Read from, and write to, all these addresses. Between the two, the numbers are in
#     **registers**, the small and fast memory right beside the arithmetic.
# ``mask``
#     Which of the elements exist. This one deserves a closer look.
# ``.to(tl.int64)``
#     Integers in a kernel have 32 bits unless you ask for more. From element 2³¹ on, they would
#     wrap around to negative offsets. A 64-bit start costs next to nothing.
#
# Who runs a program
# ------------------
#
# A GPU consists of many **multiprocessors** (NVIDIA calls them SMs, AMD compute units). A program
# runs on one of them, and is carried out by **threads**: a thread is what has registers of its own
# and does one instruction after the other, on its share of each block. Threads come in groups that
# take every instruction together, the **warps**: 32 threads on an NVIDIA GPU, 32 or 64 on an AMD
# one. How many warps share a program is an argument of the launch, ``num_warps``. Which thread has
# which element of a block is Triton's business. In CUDA you would write what one thread does; in
# Triton you write what the program does, and never see the threads.
#
# A load from memory takes hundreds of times as long as an addition, and the warp that asked has to
# wait. The multiprocessor does not: it keeps many warps at hand, of several programs, and goes on
# with one that has its data. This is how a GPU hides the time that memory takes, and why it wants
# far more warps than it could ever serve at one moment.
#
# Seeing the offsets
# ------------------
#
# What exactly is in ``offsets``, and what in ``mask``? Let a kernel write them down. We take a
# vector of 21 elements and blocks of 8. Two blocks are too few and three are too many, so the last
# program hangs over the end.


@triton.jit
def peek_kernel(offsets_ptr, mask_ptr, n, BLOCK: tl.constexpr):
    """Write down the offsets and the mask of each program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(offsets_ptr + offsets, offsets)
    tl.store(mask_ptr + offsets, (offsets < n).to(tl.int8))


n, block = 21, 8
programs = triton.cdiv(n, block)  # divide and round up: 3
seen_offsets = torch.empty(programs, block, dtype=torch.int32, device=DEVICE)
seen_mask = torch.empty(programs, block, dtype=torch.int8, device=DEVICE)
peek_kernel[(programs,)](seen_offsets, seen_mask, n, BLOCK=block)
print(seen_offsets.cpu())
print(seen_mask.cpu())

# %%
# Each row is what one program saw. Here is the same as a picture:

# sphinx_gallery_fold = "draws the offsets of each program"


def draw_blocks(offsets, mask):
    """Draw one row of cells a program; the cells that its mask switches off are hatched."""
    fig, ax = plt.subplots(figsize=(7, 3))
    for pid, (row, keep) in enumerate(zip(offsets, mask, strict=True)):
        for lane, (offset, on) in enumerate(zip(row, keep, strict=True)):
            style = {"facecolor": "#cfe3f1"} if on else {"facecolor": "#eeeeee", "hatch": "////"}
            ax.add_patch(plt.Rectangle((lane, pid), 1, 0.8, edgecolor="#444444", **style))
            label = {"ha": "center", "va": "center"}
            background = None if on else {"facecolor": "white", "edgecolor": "none", "pad": 1}
            ax.text(lane + 0.5, pid + 0.4, str(offset), bbox=background, **label)
    programs, block = len(offsets), len(offsets[0])
    ax.set(xlim=(-0.1, block + 0.1), ylim=(programs, -0.2), xlabel="tl.arange(0, BLOCK)")
    ax.set_xticks([i + 0.5 for i in range(block)], range(block))
    ax.set_yticks([i + 0.4 for i in range(programs)], [f"program {i}" for i in range(programs)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(f"Offsets of each program (n = {n}, BLOCK = {block});\nhatched: masked off")
    fig.tight_layout()
    plt.show()


draw_blocks(seen_offsets.tolist(), seen_mask.tolist())

# %%
# Past the end
# ------------
#
# What happens at the hatched cells? With the mask: nothing. A masked load does not touch memory
# (its value there is undefined, or what you give as ``other=``), and a masked store writes
# nothing.
#
# *Without* the mask the kernel would read and write whatever comes after the vectors: the
# neighbour's data, or an address that does not exist. Python would raise an ``IndexError``; a
# pointer has no length to compare with. To see it without doing harm, we give a kernel without a
# mask vectors of 21 elements that are the front part of buffers of 24, all our own.


@triton.jit
def add_without_mask_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Add a whole block, whether it exists or not."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets))


ones = torch.ones(24, device=DEVICE)
buffer = torch.full((24,), -1.0, device=DEVICE)
add_without_mask_kernel[(3,)](ones[:21], ones[:21], buffer[:21], BLOCK=8)
print("without a mask, behind the end:", buffer[21:].tolist())

buffer.fill_(-1.0)
add_kernel[(3,)](ones[:21], ones[:21], buffer[:21], 21, BLOCK=8)
print("with a mask,    behind the end:", buffer[21:].tolist())

# %%
# The kernel without a mask wrote three elements that nobody gave it. Such a bug often goes
# unnoticed for a long time, until the memory behind the vector belongs to something important.
# :doc:`/programming-guide/chapter-3/debugging` shows how to find it, and other bugs of kernels.
#
# Compile time and run time
# -------------------------
#
# ``BLOCK`` is marked ``tl.constexpr``: its value is compiled into the kernel. It has to be,
# because the number of registers that a block takes and the instructions that fill them depend on
# it. Another ``BLOCK`` is another kernel, compiled on its first launch and kept for the next ones.
# ``n``, on the other hand, is an ordinary argument: the same compiled kernel serves vectors of all
# lengths. (Almost: Triton makes a version of its own for lengths that are divisible by 16, since it
# can then prove that the mask never cuts through 16 bytes, and move them at a time.)
#
# What does that cost? Here are two launches of the kernel with a block that it has not had yet:

# sphinx_gallery_fold = "times the first and the second launch with a new block"


def seconds(fn):
    """Return the seconds that one call of *fn* takes, with the wait for the GPU."""
    start = time.perf_counter()
    fn()
    if ON_GPU:
        torch.accelerator.synchronize()
    return time.perf_counter() - start


if ON_GPU:
    ones = torch.ones(4096, device=DEVICE)
    launch = partial(add_kernel[(8,)], ones, ones, torch.empty_like(ones), 4096, BLOCK=512)
    first_launches = seconds(launch), seconds(launch)
    for which, value in zip(("first", "second"), first_launches, strict=True):
        print(f"{which + ' launch:':15s}{significant(value * 1e3):>6} ms")
else:
    print("The interpreter compiles nothing: the first launch is like all others.")

# %%
# The first launch compiles (or finds what an earlier run of the script has compiled and Triton has
# kept on disk, which is quicker). From the second on, it is only a launch.
#
# Why is ``BLOCK`` a **power of two**? ``tl.arange`` insists on it. A block is dealt out evenly to
# the warps of the program, to the threads of a warp and to the registers of a thread. All of these
# come in powers of two, and a power of two can be halved again and again until everybody has an
# equal share. Your vector may have any length: that is what the mask is for.
#
# The launcher
# ------------
#
# A kernel believes everything it is told. A wrong dtype, a tensor on another device or a shorter
# vector is not an error to it but a wrong answer or a crash. So the function that users call
# checks its arguments, and says what is wrong with them.

# sphinx_gallery_fold = "checks the arguments, and names the one that is wrong"


def check_arguments(x, y):
    """Raise TypeError or ValueError, naming the argument, where ``add`` cannot add *x* and *y*."""
    for name, t in (("x", x), ("y", y)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype.is_complex or t.dtype == torch.bool:
            raise TypeError(f"{name} must hold real numbers, but its dtype is {t.dtype}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
        if not t.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous, but has shape {tuple(t.shape)} and strides "
                f"{t.stride()}; pass {name}.contiguous()"
            )
    if x.dtype != y.dtype:
        raise TypeError(f"x and y must have one dtype, but have {x.dtype} and {y.dtype}")
    if x.shape != y.shape:
        raise ValueError(
            f"x and y must have one shape, but have {tuple(x.shape)} and {tuple(y.shape)}"
        )


# %%
# Now the launch itself. ``add_kernel[grid]`` says how many programs to start: as many as there are
# blocks, counting a last one that is not full. ``num_warps`` says how many warps share one block.


def add(x, y):
    """Return ``x + y``.

    Args:
        x: Contiguous tensor of any shape, of a real floating-point or integer dtype.
        y: Tensor of the same shape, dtype and device.

    Raises:
        TypeError: An argument is no tensor, or the dtypes do not fit.
        ValueError: Shapes, devices or strides do not fit.
    """
    check_arguments(x, y)
    out = torch.empty_like(x)
    n, block = out.numel(), 1024
    add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block, num_warps=4)
    return out


# %%
# A block of 1024 elements on 4 warps of 32 threads is 8 elements for each thread: in fp32, two
# loads of 16 bytes from each vector. Sixteen bytes is as much as a thread can fetch with one
# instruction on most GPUs, and several requests under way are what keeps a memory busy.
#
# (PyTorch's autograd cannot look into a kernel, so the result of ``add`` carries no gradient.
# :doc:`04-low-memory-dropout` shows how to give a kernel a backward pass.)
#
# Is it right?
# ------------
#
# A fast wrong answer is worth nothing, so the check comes before the clock. The sizes are chosen
# to hurt: nothing at all, one element, one less and one more than a block, and shapes that no
# block divides. An addition rounds once, in the kernel as in PyTorch, so the results must be
# *equal*, not merely close.

torch.manual_seed(0)
shapes = [(0,), (1,), (5,), (1023,), (1024,), (1025,), (123, 5), (98432,)]
if ON_GPU:
    shapes += [(1823, 781), (2**25 + 1,)]
for dtype in (torch.float32, torch.float16, torch.int32):
    for shape in shapes:
        x = (100 * torch.randn(shape, device=DEVICE)).to(dtype)
        y = (100 * torch.randn(shape, device=DEVICE)).to(dtype)
        torch.testing.assert_close(add(x, y), add_reference(x, y), atol=0, rtol=0)
print(f"add agrees with PyTorch, bit for bit, on {len(shapes)} shapes and 3 dtypes")

# %%
# And the errors, each with what it was given:

x = torch.ones(4, device=DEVICE)
for wrong in (torch.ones(5, device=DEVICE), x.to(torch.float64), x.expand(2, 4).T, 1.0):
    try:
        add(x, wrong)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("add should have refused this")

# %%
# A launch does not wait
# ----------------------
#
# Calling ``add`` puts the kernel into a queue and returns. The GPU works through the queue on its
# own, while Python is already at the next line; only when you look at the values (print them, copy
# them to the CPU, or ask for ``synchronize``) does Python wait. Two consequences:
#
# * A stopwatch around the call measures how fast Python can *ask*, not how fast the GPU can add.
# * An error inside a kernel surfaces at some later, innocent line.
#
# Here is what the stopwatch shows: the time that Python needs for one call. (What we measure, here
# and below, is printed with three significant figures. Further digits would change from one run to
# the next.)

# sphinx_gallery_fold = "times what Python needs for one call"


def host_microseconds(fn, calls=1000):
    """Return the microseconds that Python spends on one call of *fn*, not waiting for the GPU."""
    fn()
    torch.accelerator.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    elapsed = time.perf_counter() - start
    torch.accelerator.synchronize()
    return elapsed / calls * 1e6


if ON_GPU:
    x, y = torch.rand(2, 4096, device=DEVICE)
    print("Python's share of one call:")
    calls = {"x + y": partial(add_reference, x, y), "add(x, y)": partial(add, x, y)}
    python_share = {name: host_microseconds(fn) for name, fn in calls.items()}
    for name, value in python_share.items():
        print(f"  {name:9s} {significant(value):>5} µs")
else:
    print("The interpreter does not queue anything: this experiment needs a GPU.")

# %%
# This is the first answer to a question that everybody asks: **why is Triton slower than PyTorch
# on small tensors?** PyTorch's way from Python to the queue is C++; Triton's is Python, with our
# checks on top. As long as the GPU has work queued up, nobody notices. When it has not, a small
# kernel is finished sooner than the next one can be asked for, and what you measure is Python. The
# remedies are to put more work into one kernel, or to record the launches once in a CUDA graph and
# replay them. On the GPU itself the two kernels may well be equally fast, and that is what we
# measure from here on.
#
# How to time a kernel
# --------------------
#
# Time on the GPU itself is taken by *events*: marks in the queue, before and after the kernel,
# that the GPU stamps as it passes them. What else there is to look after:
#
# * **Warm-up.** The first call compiles the kernel. It is not counted.
# * **Caches.** Call a kernel twice, and its data may still be in the L2 cache from the first time.
#   So something else has to go through the cache before each call: we read half a gigabyte,
#   twice. (We do not *write* it. The cache would be full of values on their way to memory, and the
#   kernel would have to wait for them, although they are none of its business.)
# * **Python.** While the GPU is busy with that, Python gets ahead and has everything in the queue
#   in time. So its share is not in the measurement.
# * **Drift.** Clocks and temperatures change, and whoever is measured first may be better or worse
#   off than the next. So the functions to compare take turns, in a new order each time.
# * **Spread.** One measurement is an anecdote. We take many and keep the median, and the 20th and
#   80th percentiles to show how far they scatter.

from shared.measuring import measure, rates

# %%
# ``triton.testing.do_bench`` is such a loop, ready made, for one function at a time. It empties the
# cache by writing, and needs one line where this needs twenty; for a quick look it is the right
# tool, and the solutions to the exercises use it.
#
# :doc:`/programming-guide/chapter-4/measuring` takes our loop apart: it makes the mistakes on
# purpose, and measures what each of them costs. *Why* a kernel is slow is the subject of
# :doc:`/programming-guide/chapter-5/profiling`.
#
# The result is a *rate*, in GB/s (10⁹ bytes per second): bytes that have to be moved, over time.
#
# The benchmark
# -------------
#
# Vectors from 2¹² to 2²⁷ elements, doubling. Each is added by our kernel and by PyTorch; beside
# them goes a **ceiling**, a copy that moves as many bytes as the addition (it reads 1½ vectors and
# writes as many), measured in the same run. One more measurement will help to read the curve: a
# kernel that does nothing at all. (The largest vectors need several gigabytes. On a GPU with less
# memory, shorten the list of sizes.)

# sphinx_gallery_fold = "times the additions, and keeps the rows"


@triton.jit
def empty_kernel():
    """Do nothing."""


def benchmark(sizes):
    """Return rows (size, provider, unit, median, p20, p80)."""
    rows = []
    for n in sizes:
        x = torch.rand(n, device=DEVICE)
        y = torch.rand(n, device=DEVICE)
        source = torch.rand(3 * n // 2, device=DEVICE)
        calls = {
            "triton": partial(add, x, y),
            "torch": partial(add_reference, x, y),
            "copy": partial(torch.empty_like(source).copy_, source),
        }
        for provider, ms in measure(calls, 200).items():
            rows.append((n, provider, "GB/s", *rates(ms, bytes_moved(n))))
    return rows


if ON_GPU:
    launch_ms = measure({"empty": lambda: empty_kernel[(1,)]()})["empty"].median().item()
    rows = benchmark([2**i for i in range(12, 28)])
    write_rows("vector-add-performance.csv", ["size"], rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# All rows are in the CSV file; here is every second size:

# sphinx_gallery_fold = "prints the rates at every second size"


def print_table(rows, every=2):
    """Print the median rates and their ratios, for every second size and the last one."""
    rate = {(n, provider): median for n, provider, _, median, _, _ in rows}
    sizes = sorted({n for n, _ in rate})
    table = []
    for n in sizes[:-1:every] + sizes[-1:]:
        ours, torchs, copys = (rate[n, p] for p in ("triton", "torch", "copy"))
        measured = (ours, torchs, copys, ours / torchs, ours / copys)
        table.append((n, *map(significant, measured)))
    headers = ["elements", "triton", "torch", "copy", "/torch", "/copy"]
    print("GB/s, higher is better; /torch and /copy: triton's ratio to them")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    print_table(rows)
else:
    print("No table without a GPU.")

# %%
# And all sizes as a picture, both axes logarithmic. Beside the measurements goes a model with two
# numbers in it: the time of the empty kernel, plus the bytes divided by the bandwidth of the
# largest copy. Lines that lie so close together need a magnifying glass: below are our rates over
# those of the others. Where the band of a ratio has 1 in it, the scatter is larger than the
# difference, and nobody is ahead.

# sphinx_gallery_fold = "plots the rates, the model, and the ratios"


def modelled_rate(n, launch_ms, peak):
    """Return GB/s for *n* elements: an empty kernel's time, then all bytes at *peak*."""
    return bytes_moved(n) / (launch_ms * 1e6 + bytes_moved(n) / peak)


def plot_rates(rows, launch_ms):
    """Draw rates over size, with a model of them, and the ratios of ours to the others below.

    Lines are medians. Bands reach from p20 to p80; those of the ratios are ours, over the median
    of the other.
    """
    styles = {"triton": OURS, "torch": TORCH, "copy": CEILING}
    labels = {"torch": "torch (best alternative)", "copy": "copy (ceiling)"}
    panels = {"sharex": True, "height_ratios": [2, 1], "layout": "constrained"}
    fig, (ax, below) = plt.subplots(2, 1, figsize=(7, 6.6), **panels)
    for provider, style in styles.items():
        mine = [row for row in rows if row[1] == provider]
        sizes = [row[0] for row in mine]
        label = labels.get(provider, provider)
        ax.plot(sizes, [row[3] for row in mine], label=label, markersize=5, **style)
        low, high = [row[4] for row in mine], [row[5] for row in mine]
        ax.fill_between(sizes, low, high, color=style["color"], alpha=0.2, linewidth=0)
    peak = mine[-1][3]  # GB/s of the largest copy
    model = [modelled_rate(n, launch_ms, peak) for n in sizes]
    ax.plot(sizes, model, label="model", color="#8d6a9f", linestyle=":", linewidth=2)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(title=f"Vector addition in fp32, GB/s\non {gpu}", ylabel="GB/s, higher is better")
    ax.grid(alpha=0.3)
    ax.legend(loc="lower right")  # where there is nothing: the curves rise from left to right

    rate = {(row[0], row[1]): row[3:] for row in rows}
    for other in ("torch", "copy"):
        ratios = [[r / rate[n, other][0] for r in rate[n, "triton"]] for n in sizes]
        medians, low, high = zip(*ratios, strict=True)
        below.plot(sizes, medians, label=f"triton / {other}", markersize=5, **styles[other])
        below.fill_between(sizes, low, high, color=styles[other]["color"], alpha=0.15, linewidth=0)
    below.axhline(1, color="#888888", linewidth=1)
    below.set(title="Our rate over those of the others", xlabel="elements", ylabel="ratio")
    below.grid(alpha=0.3)
    low, high = below.get_ylim()
    below.set_ylim(low, high + 0.5 * (high - low))  # room for the legend
    below.legend(loc="upper center", ncols=2)
    fig.align_ylabels()
    plt.show()


if ON_GPU:
    plot_rates(rows, launch_ms)
else:
    print("No plot without a GPU.")

# %%
# How to read the curve
# ---------------------
#
# **The left end** is a straight climb: twice the elements, almost twice the rate. So the *time*
# hardly changes. It is the time that it takes to get any kernel going: the GPU has to read the
# launch from the queue, start the programs, fetch the code. A few thousand elements keep a handful
# of programs busy for a moment, and most of the GPU stands idle. There is little to win on that
# stretch: PyTorch's kernel, ours and the copy all wait for the same thing.
#
# **The right end** is flat: the time is now in proportion to the bytes. The memory is the limit,
# and no cleverness in the kernel lifts the curve above what the memory can do. PyTorch's kernel is
# up against the same wall, so the curves have to meet. (If the addition comes out a little *ahead*
# of the copy, remember that it reads two bytes for each one that it writes, and the copy reads one.
# Writing can be the dearer half, since a memory loses time whenever it turns from one to the
# other.)
#
# **The bend in between** is where launching and moving take equally long, which is where the bytes
# equal the launch time multiplied by the bandwidth. Where a measurement falls below the model, the
# programs do not have enough loads under way to hide how long each one takes: latency is the third
# thing that costs time, beside launch and bandwidth.
#
# The ratios, computed from the rows above:

# sphinx_gallery_fold = "prints the ratios, and where launching and moving take equally long"

if ON_GPU:
    rate = {(n, provider): median for n, provider, _, median, _, _ in rows}
    pairs = {f"triton / {other}": ("triton", other) for other in ("torch", "copy")}
    print_ratios(rate, pairs)
    peak = max(median for _, provider, _, median, _, _ in rows if provider == "copy")
    balance = float(significant(launch_ms * 1e6 * peak / bytes_moved(1)))
    print(f"\nThe empty kernel takes {significant(launch_ms * 1e3)} µs. In this time the fastest")
    print(f"copy moves as many bytes as the addition of {balance:.0f} elements.")
else:
    print("No ratios without a GPU.")

# %%
# How large should a block be?
# ----------------------------
#
# We said 1024, with half a reason. Here is the other half: one long vector, with blocks from 64 to
# 16384 elements on 4 warps each.

# sphinx_gallery_fold = "times five sizes of a block"


def add_with_block(x, y, block):
    """Return ``x + y``, computed by programs of *block* elements each."""
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block, num_warps=4)
    return out


def print_blocks(rate, n):
    """Print the rates {block: GB/s} of adding *n* elements, and what they are of the best one."""
    best = max(rate.values())
    table = [(b, n // b, significant(r), significant(r / best)) for b, r in rate.items()]
    headers = ["BLOCK", "programs", "GB/s", "of the best"]
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    x, y = torch.rand(2, 2**24, device=DEVICE)
    n = x.numel()
    calls = {block: partial(add_with_block, x, y, block) for block in (64, 256, 1024, 4096, 16384)}
    times = measure(calls, 200)
    block_rate = {block: rates(ms, bytes_moved(n))[0] for block, ms in times.items()}
    print_blocks(block_rate, n)
else:
    print("Without a GPU there is nothing to compare.")

# %%
# Four warps have more than 64 threads. So with 64 elements, at least half of the threads of a
# program have nothing of their own to do, the others fetch 4 bytes at a time, and there are very
# many programs to start. The other end asks much of each thread: with 16384 elements on 128
# threads, each has to hold 128 elements of two vectors in its registers, so that fewer programs fit
# on the GPU at a time, and there are fewer warps to go on with while one waits. In between lies a
# plateau where the choice matters little.
#
# What the run showed
# -------------------
#
# The ladder at the top of this page, and what the page has claimed, each beside the limit that it
# must keep:

# sphinx_gallery_fold = "prints the ladder, and computes the claims"

if ON_GPU:
    rungs = [
        ("How large should a block be?", "programs of 64 elements", block_rate[64]),
        ("The launcher", "programs of 1024 elements", block_rate[1024]),
    ]
    at = f"{n} elements, fp32"
    ladder(rungs, ("a copy", rate[n, "copy"]), "GB/s", at)
    print()

    sizes = sorted({n for n, _ in rate})
    scatter = spread(rows[-3:])
    claim(
        "the addition is as fast as PyTorch's on the largest vectors",
        rate[sizes[-1], "triton"] / rate[sizes[-1], "torch"], at_least=0.97, spread=scatter,
        section="How to read the curve",
    )  # fmt: skip
    claim(
        "from 2^24 elements on, it reaches nine tenths of a copy and more",
        min(rate[n, "triton"] / rate[n, "copy"] for n in sizes if n >= 2**24), at_least=0.9,
        spread=scatter, section="How to read the curve",
    )  # fmt: skip
    claim(
        "at the left end, four times the elements go over three times as fast",
        rate[2**14, "triton"] / rate[2**12, "triton"], at_least=3.0, spread=spread(rows[:3]),
        section="How to read the curve",
    )  # fmt: skip
    claim(
        "launch plus bytes over bandwidth explains three fifths of every rate, or more",
        min(rate[n, "triton"] / modelled_rate(n, launch_ms, peak) for n in sizes), at_least=0.6,
        spread=scatter, section="How to read the curve",
    )  # fmt: skip
    claim(
        "programs of 64 elements lose a fifth and more of the best rate",
        block_rate[64] / max(block_rate.values()), at_most=0.8,
        spread=spread([rates(times[64], bytes_moved(n))]),
        section="How large should a block be?",
    )  # fmt: skip
    claim(
        "the first launch with a new block takes ten times as long as the second, or longer",
        first_launches[0] / first_launches[1], at_least=10, section="Compile time and run time",
    )  # fmt: skip
    claim(
        "Python needs longer to ask for add(x, y) than for x + y",
        python_share["add(x, y)"] / python_share["x + y"], at_least=1.0,
        section="A launch does not wait",
    )  # fmt: skip
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * You write what one program does; the program id says which block is its own.
# * A pointer plus a block of offsets is a block of pointers, and a mask says which of them count.
# * Count the bytes first. They tell you what the best possible kernel can do.
# * Check before you time; time on the GPU, compiled, with a cold cache, many times.
# * Small kernels cost their launch, large ones their bytes.
#
# Exercises
# ---------
#
# 1. **Fuse.** Write ``axpy(a, x, y)``, which gives ``a * x + y``. How many bytes does PyTorch move
#    for ``a * x + y``, how many does one kernel move, and what speed-up do you expect?
#    :doc:`Solution <solutions/01-axpy>`.
# 2. **Strides.** ``add`` refuses ``x[::2]``. Write a kernel that takes a stride for each vector.
#    What happens to the bandwidth, and why? :doc:`Solution <solutions/01-strides>`.
# 3. **More work for each program.** Start a fixed number of programs and let each one loop over
#    blocks. Does that pay? :doc:`Solution <solutions/01-grid-stride>`.
#
# References
# ----------
#
# * Philippe Tillet, H. T. Kung and David Cox: *Triton: an intermediate language and compiler for
#   tiled neural network computations*, MAPL 2019, https://doi.org/10.1145/3315508.3329973
# * John D. McCalpin: *Memory bandwidth and machine balance in current high performance computers*,
#   1995: the STREAM benchmark, whose ``ADD`` is this kernel.
