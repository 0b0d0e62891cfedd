"""
Vector addition
===============

You write your first kernel here: ``add(x, y)``, which computes ``x + y`` on the GPU. On large
vectors it moves :measured:`largest` GB/s through the GPU's memory, and a plain copy moves
:measured:`copy` GB/s. You need Python and some PyTorch. Without a GPU, Triton's interpreter runs
the same code.
"""

# %%
# The kernel
# ----------

# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "first hour"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add one block of *x* and *y*."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < n  # [BLOCK]
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


# %%
# How it works
# ------------
#
# A GPU runs thousands of copies of one function at the same time. Triton calls each copy a
# **program**, and all copies together the **grid**. Each program adds one **block** of ``BLOCK``
# neighboring elements. The copies differ only in their number:
#
# ``tl.program_id(0)``
#     The number of this program: 0, 1, 2, … It tells the program which block to add.
# ``tl.arange(0, BLOCK)``
#     The numbers 0 to ``BLOCK - 1`` as one block. An operation on a block works on all of its
#     numbers.
# ``offsets``
#     The positions of this program's elements, counted from the start of the vectors. They have 64
#     bits, because 32 bits overflow at 2³¹ elements.
# ``x_ptr + offsets``
#     A tensor arrives in the kernel as a **pointer**, the address of its first element. Adding
#     offsets gives a block of pointers, one for each element.
# ``tl.load`` and ``tl.store``
#     Read from all these addresses, and write to them.
# ``mask``
#     Marks the offsets that lie inside the vectors. The last block is usually only partly full.
#
# The next kernel stores its offsets and its mask. The vector has 21 elements and a block has 8, so
# it takes three programs, and the last block is only partly full.


@triton.jit
def peek_kernel(offsets_ptr, mask_ptr, n, BLOCK: tl.constexpr):
    """Write down the offsets and the mask of each program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(offsets_ptr + offsets, offsets)
    tl.store(mask_ptr + offsets, (offsets < n).to(tl.int8))


n, block = 21, 8
programs = triton.cdiv(n, block)  # divides and rounds up: 3
seen_offsets = torch.empty(programs, block, dtype=torch.int32, device=DEVICE)
seen_mask = torch.empty(programs, block, dtype=torch.int8, device=DEVICE)
peek_kernel[(programs,)](seen_offsets, seen_mask, n, BLOCK=block)
print(seen_offsets.cpu())
print(seen_mask.cpu())

# %%
# The same as a picture, with masked cells hatched:

# sphinx_gallery_fold = "draws the offsets of each program"
import matplotlib.pyplot as plt


def draw_blocks(offsets, mask):
    """Draw one row of cells for each program; masked cells are hatched."""
    _, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
    for pid, (row, keep) in enumerate(zip(offsets, mask, strict=True)):
        for lane, (offset, on) in enumerate(zip(row, keep, strict=True)):
            style = {"facecolor": "#cfe3f1"} if on else {"facecolor": "#eeeeee", "hatch": "////"}
            ax.add_patch(plt.Rectangle((lane, pid), 1, 0.8, edgecolor="#444444", **style))
            background = None if on else {"facecolor": "white", "edgecolor": "none", "pad": 1}
            ax.text(lane + 0.5, pid + 0.4, str(offset), ha="center", va="center", bbox=background)
    programs, block = len(offsets), len(offsets[0])
    ax.set(xlim=(-0.1, block + 0.1), ylim=(programs, -0.2), xlabel="tl.arange(0, BLOCK)")
    ax.set_xticks([i + 0.5 for i in range(block)], range(block))
    ax.set_yticks([i + 0.4 for i in range(programs)], [f"program {i}" for i in range(programs)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(f"Offsets of each program, n = {n}, BLOCK = {block}")
    plt.show()


draw_blocks(seen_offsets.tolist(), seen_mask.tolist())

# %%
# Calling it
# ----------
#
# ``add_kernel[grid](…)`` starts the programs. The grid, a tuple, has one for each block.


def check_arguments(x, y):
    """Raise TypeError or ValueError, naming the argument, if ``add`` cannot add *x* and *y*."""
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
    n = out.numel()
    add_kernel[((n + 1023) // 1024,)](x, y, out, n, BLOCK=1024)
    return out


# %%
# * A kernel trusts its arguments. A wrong dtype or a shorter vector gives a wrong answer or a
#   crash, so the function checks them first.
# * ``BLOCK`` is a ``tl.constexpr``: its value is compiled into the kernel. Another ``BLOCK`` is
#   another kernel, compiled at its first launch and kept for later ones. ``n`` is an ordinary
#   argument: one compiled kernel serves many lengths. (Only 1 and multiples of 16 have their own.)
# * The size of a block is a power of two. The compiler divides the block evenly among the threads
#   of the program, and their number is a power of two as well.
# * The call puts the kernel into a queue and returns before the GPU has finished. Python waits only
#   when it needs the values. An error in a kernel therefore appears at a later line.
#
# Checking it
# -----------
#
# An addition rounds once, in the kernel as in PyTorch. So the results must be equal, bit for bit.
# Some of the sizes leave the last block nearly empty, others nearly full.

torch.manual_seed(0)
shapes = [(0,), (1,), (5,), (1023,), (1024,), (1025,), (123, 5), (98432,)]
for dtype in (torch.float32, torch.float16, torch.int32):
    for shape in shapes:
        x = (100 * torch.randn(shape, device=DEVICE)).to(dtype)
        y = (100 * torch.randn(shape, device=DEVICE)).to(dtype)
        torch.testing.assert_close(add(x, y), x + y, atol=0, rtol=0)
print(f"add agrees with PyTorch, bit for bit, on {len(shapes)} shapes and 3 dtypes")

# %%
# Masked elements are neither read nor written. Without the mask, the last program overwrites
# whatever follows ``out`` in memory. Here that is the rest of a buffer of 24 elements:


@triton.jit
def add_without_mask_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Add a whole block, even past the end."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets))


ones = torch.ones(24, device=DEVICE)
buffer = torch.full((24,), -1.0, device=DEVICE)
add_without_mask_kernel[(3,)](ones[:21], ones[:21], buffer[:21], BLOCK=8)
print("without a mask, past the end:", buffer[21:].tolist())

buffer.fill_(-1.0)
add_kernel[(3,)](ones[:21], ones[:21], buffer[:21], 21, BLOCK=8)
print("with a mask,    past the end:", buffer[21:].tolist())

# %%
# A Python list would raise an ``IndexError``, but a pointer has no length. Such a bug can stay
# hidden until other data follows the vector in memory.
# :doc:`/programming-guide/chapter-3/debugging` shows how to find it.
#
# Timing it
# ---------
#
# ``triton.testing.do_bench`` calls a function many times and returns the milliseconds of one call.
# An addition reads two vectors and writes one, so it moves 12 bytes for each element of fp32. Bytes
# divided by time give the **bandwidth** in GB/s.

if ON_GPU:
    x, y = torch.rand(2, 2**27, device=DEVICE)
    ms = triton.testing.do_bench(lambda: add(x, y), return_mode="median")
    print(f"2²⁷ elements: {ms:.3f} ms, {12 * x.numel() / ms / 1e6:.0f} GB/s")
else:
    print("Without a GPU there is nothing to time.")

# %%
# The benchmark adds vectors of 2¹² to 2²⁷ elements with our function and with PyTorch. A copy that
# moves as many bytes is the **ceiling**, the hardware limit to compare with. (An addition may
# exceed it by a few percent: two thirds of its bytes are read, and reads cost a little less than
# writes.) Each function is timed twice. *On the GPU* leaves out Python's work around the kernel.
# *As called* is the time that a program sees for a single call.
# :doc:`/programming-guide/chapter-4/measuring` explains both.

# sphinx_gallery_fold = "times the additions, draws the rates, and keeps the rows"
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import plot_rates, rows_of, spread, time_on_gpu, write_calls
from shared.bench import write_rows, write_table


@triton.jit
def empty_kernel():
    """Do nothing."""


def benchmark(sizes):
    """Return rows (size, provider, unit, median, p20, p80)."""
    rows = []
    for n in sizes:
        x, y = torch.rand(2, n, device=DEVICE)
        source = torch.rand(3 * n // 2, device=DEVICE)
        calls = {
            "triton": partial(add, x, y),
            "torch": partial(torch.add, x, y),
            "copy": partial(torch.empty_like(source).copy_, source),
        }
        rows += rows_of((n,), calls, "GB/s", 12 * n, rounds=100, as_called=("triton", "torch"))
    return rows


if ON_GPU:
    rows = benchmark([2**i for i in range(12, 28)])
    write_rows("vector-add-performance.csv", ["size"], rows)
    x, y = torch.rand(2, 4096, device=DEVICE)
    calls = {"triton": partial(add, x, y), "torch": partial(torch.add, x, y)}
    write_calls({"add": calls | {"launch": empty_kernel[(1,)]}})
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    ax.set(xscale="log", yscale="log")
    names = {"triton": "add", "torch": "PyTorch", "copy": "copy (ceiling)"}
    names["triton, as called"] = "add, as called"
    plot_rates(ax, rows, names, "Vector addition in fp32", "elements")
else:
    print("Without a GPU there is no plot.")

# %%
# At 2²⁷ elements the kernel moves :measured:`largest` GB/s on the GPU and :measured:`called` GB/s
# as called. PyTorch reaches :measured:`torch` GB/s, and the copy :measured:`copy` GB/s.
#
# Reading the curve
# -----------------
#
# **The left end rises steadily.** Twice the elements take hardly more time, because starting the
# kernel takes longer than its work. An empty kernel takes :measured:`empty` µs on the GPU. Here the
# addition is **launch-bound**, and only fewer launches help.
#
# **The right end is flat.** The time grows with the bytes, so the addition is **memory-bound**. A
# GPU can add dozens of numbers in the time that it takes to move twelve bytes. No change to the
# arithmetic makes this kernel faster, and PyTorch's kernel has the same limit.
#
# **The bend** is where starting the kernel takes as long as moving the bytes. In :measured:`empty`
# µs the copy moves the bytes of :measured:`balance` elements.
#
# **As called**, the addition is slower in the middle. ``do_bench`` empties the cache by writing to
# it, and the GPU writes these values back to memory while our kernel runs. The CPU's share is
# hidden: a call of ``add`` keeps the CPU busy for :measured:`cpu` µs, and a call of PyTorch's
# addition for :measured:`cpu_torch` µs, because PyTorch checks and launches in C++. A program that
# adds many small vectors waits for Python. :doc:`/programming-guide/chapter-6/calls` takes a call
# apart and makes it cheaper.
#
# Choosing the block size
# -----------------------
#
# One vector of 2²⁴ elements, with five block sizes:

# sphinx_gallery_fold = "times five block sizes, and keeps the values"
from tabulate import tabulate


def add_with_block(x, y, block):
    """Return ``x + y``, computed by programs of *block* elements each."""
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


if ON_GPU:
    x, y = torch.rand(2, 2**24, device=DEVICE)
    calls = {block: partial(add_with_block, x, y, block) for block in (64, 256, 1024, 4096, 16384)}
    times = {block: spread(ms)[0] for block, ms in time_on_gpu(calls, 100).items()}
    speeds = {block: 12 * x.numel() / ms / 1e6 for block, ms in times.items()}
    table = [(block, x.numel() // block, f"{speed:.0f}") for block, speed in speeds.items()]
    print(tabulate(table, ["BLOCK", "programs", "GB/s"]))
    values = [(f"block {block}", "GB/s", speed) for block, speed in speeds.items()]
    empty = spread(time_on_gpu({"empty": empty_kernel[(1,)]})["empty"])[0]
    values.append(("empty kernel", "µs", 1e3 * empty))
    write_table("01-vector-add-values.csv", ["name", "unit", "value"], values)
else:
    print("Without a GPU there is nothing to compare.")

# %%
# Blocks of 64 elements reach :measured:`small` % of the rate of 1024, because a program then has
# more threads than elements. Very large blocks need more registers than a thread has. In between,
# the choice matters little.
#
# Exercises
# ---------
#
# Write each function into a file of your own, and have ``exercise.py`` check it.
#
# 1. **Fuse.** Write ``axpy(a, x, y)``, which computes ``a * x + y``. How many bytes does PyTorch
#    move for ``a * x + y``, how many does one kernel move, and what speed-up do you expect?
#    :doc:`Solution <solutions/01-axpy>`.
# 2. **Strides.** ``add`` refuses ``x[::2]``. Write a kernel that takes a stride for each vector.
#    What happens to the bandwidth, and why? :doc:`Solution <solutions/01-strides>`.
# 3. **More work for each program.** Start a fixed number of programs, and let each one loop over
#    blocks. Does that pay? :doc:`Solution <solutions/01-grid-stride>`.
#
# References
# ----------
#
# * Philippe Tillet, H. T. Kung and David Cox: *Triton: an intermediate language and compiler for
#   tiled neural network computations*, MAPL 2019, https://doi.org/10.1145/3315508.3329973
# * John D. McCalpin: *Memory bandwidth and machine balance in current high performance computers*,
#   1995: the STREAM benchmark, whose ``ADD`` is this kernel.
