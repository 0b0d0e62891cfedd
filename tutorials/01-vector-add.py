"""
Vector addition
===============

You write your first kernel here: ``add(x, y)``, which computes ``x + y`` on the GPU. On large
vectors it reaches at least :measured:`as_torch` % of the speed of PyTorch's own addition. You need
Python and some PyTorch. Without a GPU, Triton's interpreter runs the same code.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "first hour"
import os
import sys  # for shared/
import time
from functools import partial
from pathlib import Path  # for shared/

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# The kernel
# ----------
#
# A **kernel** is a function that runs on the GPU. ``@triton.jit`` compiles it at its first launch.


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add one block of *x* and *y*."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)  # <-
    mask = offsets < n  # <-
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
#     elements.
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
# The next kernel stores its offsets and its mask, so that we can look at them. The vector has 29
# elements and a block has 8. That takes four programs; the output shows program 2:


@triton.jit
def peek_kernel(offsets_ptr, mask_ptr, n, BLOCK: tl.constexpr):
    """Store the offsets and the mask of each program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(offsets_ptr + offsets, offsets)
    tl.store(mask_ptr + offsets, (offsets < n).to(tl.int8))


n, block = 29, 8
programs = triton.cdiv(n, block)  # divides and rounds up: 4
seen_offsets = torch.empty(programs, block, dtype=torch.int32, device=DEVICE)
seen_mask = torch.empty(programs, block, dtype=torch.int8, device=DEVICE)
peek_kernel[(programs,)](seen_offsets, seen_mask, n, BLOCK=block)
print("program 2, offsets:", seen_offsets[2].tolist())
print("program 2, mask:   ", seen_mask[2].tolist())

# %%
# .. predict:: Which elements does program 3, the last one, add?
#    :choices: 24 to 28 | 24 to 31 | 25 to 29
#    :answer: 24 to 28
#
#    Its block starts at 3 · 8 = 24 and has the offsets 24 to 31. The vectors end at element 28, so
#    the mask is false for the last three.
#
# All four programs as a picture; masked elements are hatched:

# sphinx_gallery_fold = "draws the offsets of each program"
import matplotlib.pyplot as plt
from shared.bench import figure


def draw_blocks(offsets, mask):
    """Draw one row of cells for each program; masked cells are hatched."""
    _, ax = figure(height=2.6)
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
# ``add_kernel[grid](…)`` starts the programs. The grid is a tuple, here with one number: how many
# blocks there are.


def add(x, y):
    """Return ``x + y`` for contiguous tensors of one shape and dtype."""
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    add_kernel[grid](x, y, out, x.numel(), BLOCK=1024)
    return out


# %%
# * **The size of a block is known when the kernel is compiled.** ``BLOCK`` is a ``tl.constexpr``,
#   so its value is part of the compiled code. The hardware runs a program on a group of threads:
#   128 by default on NVIDIA GPUs, 256 on many of AMD's. The compiler needs the size to give each
#   thread its elements and its registers. Another ``BLOCK`` is another kernel, compiled at its
#   first launch and kept for later ones.
# * **It is a power of two.** The compiler divides a block evenly among the threads, whose number is
#   a power of two as well.
# * **The length is an ordinary argument.** One compiled kernel serves many lengths. Triton compiles
#   a second one for lengths that are multiples of 16, in which one instruction can load several
#   elements.
# * **The call returns early.** It puts the kernel into a queue, and Python goes on. Python waits
#   only when it needs the values. An error in a kernel therefore appears at a later line.
#
# Checking it
# -----------
#
# An addition rounds once, in the kernel as in PyTorch. So the results must be equal, bit for bit.
# Some of these sizes leave the last block nearly empty, others nearly full.

for dtype in (torch.float32, torch.float16, torch.int32):
    for n in (0, 1, 5, 1023, 1024, 1025, 98432):
        x, y = (100 * torch.randn(2, n, device=DEVICE)).to(dtype)
        torch.testing.assert_close(add(x, y), x + y, atol=0, rtol=0)
print("add agrees with PyTorch, bit for bit, on 7 lengths in 3 dtypes")

# %%
# A masked store writes nothing where the mask is false. Without the mask, the last program
# overwrites whatever follows ``out`` in memory. Here that is the rest of a buffer of 24 elements:


@triton.jit
def add_without_mask_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Add a whole block, even past the end."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets))


ones, buffer = torch.ones(24, device=DEVICE), torch.full((24,), -1.0, device=DEVICE)
add_kernel[(3,)](ones, ones, buffer, 21, BLOCK=8)
print("with a mask,    past element 20:", buffer[21:].tolist())
add_without_mask_kernel[(3,)](ones, ones, buffer, BLOCK=8)
print("without a mask, past element 20:", buffer[21:].tolist())

# %%
# A Python list would raise an ``IndexError``, but a pointer has no length.
#
# **A test with one tensor would not notice.** PyTorch takes memory from the GPU in large pieces and
# rounds each tensor up to a multiple of 512 bytes. The memory behind a tensor therefore usually
# exists, and nobody looks at it: the sum is right, and there is no error. The same kernel destroys
# another tensor as soon as one lies there. So a check compares what is *around* the result, too.
# :doc:`/programming-guide/chapter-3/debugging` shows how to find such a bug.
#
# **A masked load reads nothing** where the mask is false, and the value of these elements is
# **undefined**: zero on one GPU, the previous contents of a register on another. Here that does no
# harm, because the store has the same mask. A kernel that uses these elements has to say what they
# are: ``tl.load(y_ptr + offsets, mask=mask, other=0.0)`` gives 0.
#
# **Try it** *(easy, 10 minutes)*. Write ``add_padded(x, y)``, where *y* is shorter than *x* and its
# missing elements count as 0. Each load needs a mask of its own. ``exercise.pyz`` (see *Exercises*)
# checks your function:
#
# .. code-block:: console
#
#    $ python exercise.pyz 01-mask mine.py
#    Not yet. add_padded((5,), (3,)): out of bounds: a load
#      kernel:   kernel, mine.py line 11 `y = tl.load(y_ptr + offsets, mask=mask)`
#      program:  0, in a grid of 1
#      index:    3 of `y_ptr`, which has 3 elements
#      block:    2 of 5 addresses are out of bounds
#      cause:    a mask for the length of another tensor or another axis
#
# This is the message if both loads share one mask.
#
# Timing it
# ---------
#
# An addition reads two vectors and writes one, so it moves 12 bytes for each element of fp32. Bytes
# divided by time give the **bandwidth** in GB/s. ``triton.testing.do_bench`` calls a function many
# times and returns the milliseconds of one call, measured by the GPU. The clock of the **host**,
# the machine's CPU, serves as well if Python waits for the GPU before it reads the clock, at the
# start and at the end:

if ON_GPU:
    x, y = torch.rand(2, 2**27, device=DEVICE)
    ms = triton.testing.do_bench(lambda: add(x, y), return_mode="median")
    print(f"do_bench:     {ms:.3f} ms, {12 * x.numel() / ms / 1e6:.0f} GB/s")
    torch.accelerator.synchronize()  # waits for all that is queued
    start = time.perf_counter()
    for _ in range(100):
        add(x, y)
    torch.accelerator.synchronize()
    print(f"host's clock: {(time.perf_counter() - start) / 100 * 1e3:.3f} ms")

# %%
# Without the second ``synchronize`` the clock shows how long Python needs for the launches.
#
# The benchmark adds vectors of 2¹² to 2²⁷ elements with our function and with PyTorch, and draws
# both speeds relative to a copy that moves as many bytes. The copy is a **ceiling**, a limit of the
# hardware to compare with. All times are the GPU's own:
# :doc:`/programming-guide/chapter-4/measuring` explains how they are taken.

# sphinx_gallery_fold = "times the additions, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "add_kernel: 2²⁷ elements, fp32"
from shared.bench import draw_rates, gpu_times, graph_of, rates, spread, write_rows
from tabulate import tabulate


@triton.jit
def empty_kernel():
    """Do nothing."""


def add_with_block(x, y, block):
    """Return ``x + y``, computed by programs of *block* elements each."""
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


values, rows = [], []  # values: (name, unit, value), what no benchmark holds
if ON_GPU:
    x, y = torch.rand(2, 2**24, device=DEVICE)
    calls = {n: partial(add_with_block, x, y, n) for n in (64, 256, 1024, 4096, 16384)}
    for n, ms in gpu_times(calls, 100).items():
        values.append((f"block {n}", "GB/s", 12 * x.numel() / spread(ms)[0] / 1e6))
    x, y = torch.rand(2, 4096, device=DEVICE)
    hundred = graph_of(lambda: [add(x, y) for _ in range(100)])
    times = gpu_times({"empty": empty_kernel[(1,)], "hundred": hundred}, 100)
    values.append(("empty kernel", "µs", 1e3 * spread(times["empty"])[0]))
    values.append(("one of a hundred", "µs", 1e3 / 100 * spread(times["hundred"])[0]))
    for n in [2**i for i in range(12, 28)]:
        x, y = torch.rand(2, n, device=DEVICE)
        source = torch.rand(3 * n // 2, device=DEVICE)
        all_read = torch.rand(3 * n, device=DEVICE)
        calls = {
            "triton": partial(add, x, y),
            "torch": partial(torch.add, x, y),
            "copy": partial(torch.empty_like(source).copy_, source),
            "read": all_read.amax,
        }
        rows += rates((n,), calls, "GB/s", 12 * n, rounds=100)
    add(x, y)  # the last launch, of 2²⁷ elements, is the one whose X-ray is shown
    write_rows("vector-add-performance.csv", ["size"], rows)
    names = {"triton": "add", "torch": "PyTorch", "copy": "copy (ceiling)"}
    draw_rates(rows, names, "Addition in fp32", "elements", share_of="copy", xscale="log")
    rate = {n: median for n, provider, _, median, *_ in rows if provider == "triton"}
    table = [(f"{n:,}", 12e-3 * n / rate[n], rate[n]) for n in list(rate)[::3]]
    heads, formats = ["elements", "µs", "GB/s"], ("", ".1f", ".0f")
    print(tabulate(table, heads, floatfmt=formats, stralign="right"))

# %%
# At 2²⁷ elements ``add`` moves :measured:`largest` GB/s, PyTorch's addition :measured:`torch` GB/s,
# and the copy :measured:`copy` GB/s. The addition can be a little faster than its ceiling, because
# two thirds of its bytes are read and only half of a copy's are. Reading alone reaches
# :measured:`read` GB/s on this GPU.
#
# Reading the curve
# -----------------
#
# **Small vectors are launch-bound.** In the first rows of the table, eight times the elements take
# hardly more time. Starting a kernel takes longer than its work: an empty kernel, timed in the same
# way, takes :measured:`empty` µs. Most of that is reading the GPU's clock before and after a single
# kernel. In a series of a hundred launches, queued with one call as a *CUDA graph*, an addition of
# 4096 elements takes :measured:`in_series` µs. Only fewer launches help here.
#
# **Large vectors are memory-bound.** In the last two rows, eight times the elements take about
# eight times as long. A GPU can add dozens of numbers in the time that it takes to move twelve
# bytes. No change to the arithmetic makes this kernel faster, and PyTorch's kernel has the same
# limit.
#
# .. predict:: How much of its rate does the kernel keep with blocks of 64 elements instead of 1024?
#    :number: small
#    :unit: %
#
#    A block of 64 elements has few bytes in flight, and there are sixteen times as many programs
#    to start. Which of the two costs more, we have not measured. On an H100, blocks of 256 to 4096 elements differ
#    little, and with 16,384 a thread needs more registers than it has.
#
# **Python's work is not in these times.** A call of ``add``, with the checks of the next section,
# keeps the CPU busy for :measured:`cpu` µs. A call of PyTorch's addition takes
# :measured:`cpu_torch` µs: PyTorch checks and launches in C++. In a loop that does not wait, a call
# costs the larger of two times: the CPU's, and the GPU's. From :measured:`gpu_longer` elements on,
# the GPU's is the larger. :doc:`/programming-guide/chapter-6/calls` takes a call apart and makes it
# cheaper.
#
# In a program
# ------------
#
# A kernel trusts its arguments. If *y* is shorter, has another dtype, or is on another device, the
# kernel reads wrong memory, and often without an error. A function that others call therefore
# checks its arguments first, and names the one that is wrong. It launches on the GPU of its
# arguments, even if another GPU is the current one. It refuses tensors that require a gradient: the
# result would have none. And it tells ``torch.compile`` what shape its result has, as an
# *operation* of PyTorch. This function takes over the name ``add`` and launches the same kernel:

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import on_device_of

FLOATS = [torch.float16, torch.float32, torch.float64]
FLOATS = FLOATS + [torch.bfloat16] * ON_GPU  # the interpreter computes bf16 wrongly
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def check_arguments(x, y):
    """Raise TypeError or ValueError, naming the argument, if ``add`` cannot add *x* and *y*."""
    for name, t in (("x", x), ("y", y)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in FLOATS + INTEGERS:
            raise TypeError(f"the dtype of {name} must be in {FLOATS + INTEGERS}, but is {t.dtype}")
        if t.device.type != DEVICE.type or t.device != x.device:
            wanted = f"on a {DEVICE.type} device" if name == "x" else f"on {x.device}, like x,"
            raise ValueError(f"{name} must be {wanted} but is on {t.device}")
        if t.layout != torch.strided or not t.is_contiguous():
            strides = f" and strides {t.stride()}" if t.layout == torch.strided else ""
            raise ValueError(
                f"{name} must be contiguous, but has layout {t.layout}, shape {tuple(t.shape)}"
                f"{strides}; pass {name}.contiguous() or {name}.to_dense()"
            )
        if t.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} requires a gradient, which add does not compute; "
                f"use torch.add, or pass {name}.detach()"
            )
    if x.dtype != y.dtype:
        raise TypeError(f"x and y must have one dtype, but have {x.dtype} and {y.dtype}")
    if x.shape != y.shape:
        raise ValueError(
            f"x and y must have one shape, but have {tuple(x.shape)} and {tuple(y.shape)}"
        )


def launch(x, y):
    """Return ``x + y`` for arguments that are checked."""
    x, y = x.resolve_neg(), y.resolve_neg()  # copies a tensor whose sign is still to be changed
    out = torch.empty_like(x)
    n = x.numel()
    with on_device_of(x):
        add_kernel[((n + 1023) // 1024,)](x, y, out, n, BLOCK=1024)
    return out


@torch.library.custom_op("gallery::add", mutates_args=())
def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return ``x + y``: an operation that PyTorch's compiler calls without looking into it."""
    return launch(x, y)


@add_op.register_fake
def add_shape(x, y):
    """Return a tensor like the result, without computing it: what the compiler has to know."""
    return torch.empty_like(x)


def add(x, y):
    """Return ``x + y``.

    Args:
        x: Contiguous tensor of any shape: floats of 16 (bf16 on a GPU only), 32 or 64 bits,
            integers of 8 to 64 bits, or uint8.
        y: Tensor of the same shape, dtype and device.

    Raises:
        TypeError: An argument is no tensor, a dtype is not supported, or the dtypes differ.
        ValueError: Shapes or devices differ, a tensor is not contiguous, or one requires a gradient
            outside of ``torch.no_grad()``.
    """
    check_arguments(x, y)
    plain = type(x) is type(y) is torch.Tensor  # not a tensor without memory
    if torch.compiler.is_compiling() or not plain:
        return add_op(x, y)
    return launch(x, y)


# %%
# The bit-for-bit check of this function, and the CPU's share of a call:

# sphinx_gallery_fold = "checks the function, times its calls, and keeps the values"
from shared.bench import write_calls, write_table

for shape in ((), (3, 0, 2), (123, 5), (98432,)):
    for dtype in (torch.float32, torch.float16, torch.int32):
        x, y = (100 * torch.randn(2, *shape, device=DEVICE)).to(dtype)
        torch.testing.assert_close(add(x, y), x + y, atol=0, rtol=0)
print("add agrees with PyTorch, bit for bit, on 4 shapes in 3 dtypes")

if ON_GPU:
    x, y = torch.rand(2, 4096, device=DEVICE)
    calls = {"triton": partial(add, x, y), "torch": partial(torch.add, x, y)}
    cpu = write_calls({"add": calls | {"launch": empty_kernel[(1,)]}})
    longer = [n for n in rate if 12e-3 * n / rate[n] > cpu["add", "triton"]]  # µs on the GPU
    values.append(("GPU longer from", "elements", min(longer)))
    write_table("01-vector-add-values.csv", ["name", "unit", "value"], values)

# %%
# Exercises
# ---------
#
# 1. **Fuse** *(easy, 15 minutes)*. Write ``axpy(a, x, y)``, which computes ``a * x + y``. How many
#    bytes does PyTorch move for ``a * x + y``, how many does one kernel move, and what speed-up do
#    you expect? :doc:`Solution <solutions/01-axpy>`.
# 2. **Strides** *(medium, 20 minutes)*. ``add`` refuses ``x[::2]``. Write ``add_strided(x, y)``
#    with a kernel that takes a stride for each vector. What happens to the bandwidth, and why?
#    :doc:`Solution <solutions/01-strides>`.
# 3. **More work for each program** *(medium, 20 minutes)*. Write ``add_loop(x, y, programs)``,
#    which starts a fixed number of programs. Each one loops over blocks. Does that pay?
#    :doc:`Solution <solutions/01-grid-stride>`.
#
# References
# ----------
#
# * Philippe Tillet, H. T. Kung and David Cox: *Triton: an intermediate language and compiler for
#   tiled neural network computations*, MAPL 2019, https://doi.org/10.1145/3315508.3329973
# * John D. McCalpin: *Memory bandwidth and machine balance in current high performance computers*,
#   1995: the STREAM benchmark, whose ``ADD`` is this kernel.
