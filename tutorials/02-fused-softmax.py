"""
Fused softmax
=============

Softmax turns a row of numbers into a row of probabilities, in every attention layer and behind
every classifier. It is also the shortest example of the best reason to write a kernel of your own:
**fusion**, doing several steps while the data is at hand, instead of sending it to memory and back
between the steps.

You will build ``softmax(x)``, which gives what ``torch.softmax(x, dim=1)`` gives, and learn

* to predict a speed-up by counting bytes, before there is a kernel;
* which memories a load passes through, and where the data ends up;
* how a program reduces a row, and what a row stride is;
* what to do with rows whose length is not a power of two, and with rows that do not fit;
* what ``num_warps`` changes, and why short rows want company.

You should know :doc:`01-vector-add`: programs, offsets, masks, and how to time a kernel.

.. ladder::
"""

# %%

# sphinx_gallery_fold = "chooses the device, brings the timing loop, the rounding and the plots"
# sphinx_gallery_thumbnail_number = 3
# sphinx_gallery_level = "first hour"
import math
import sys  # for shared/
from functools import cache, partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.measuring import (
    geometric_mean,
    measure,
    print_ratios,
    rates,
    significant,
    write_rows,
)
from shared.plotting import CEILING, OTHER, OURS, STEP_1, STEP_2, TORCH, plot_rates
from shared.setup import DEVICE, ON_GPU

import triton
import triton.language as tl

if not ON_GPU:
    print("Kernels run on the CPU, in the interpreter")

# %%
# The formula, step by step
# -------------------------
#
# For a row :math:`x_1 \ldots x_N`, softmax is
#
# .. math::
#
#     y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}} \qquad \text{with} \quad m = \max_j x_j
#
# Mathematically :math:`m` cancels. Numerically it saves the day: in fp32, :math:`e^{x}` overflows
# from about :math:`x = 89` on, and infinity divided by infinity is not a number (NaN). In PyTorch,
# with what each line reads and writes for *M* rows of *N* elements:


def naive_softmax(x):
    """Return the softmax of each row of the matrix *x*, one PyTorch operation at a time."""
    m = x.amax(dim=1)  # reads MN, writes M
    z = x - m[:, None]  # reads MN + M, writes MN
    e = torch.exp(z)  # reads MN, writes MN
    s = e.sum(dim=1)  # reads MN, writes M
    return e / s[:, None]  # reads MN + M, writes MN


x = torch.tensor([[1.0, 2.0, 3.0], [100.0, 100.0, -100.0]], device=DEVICE)
print("without the maximum:", (x.exp() / x.exp().sum(dim=1, keepdim=True))[1].tolist())
print("with the maximum:   ", naive_softmax(x)[1].tolist())

# %%
# Add up the comments: the naive version reads :math:`5MN + 2M` elements and writes :math:`3MN +
# 2M`. A kernel that fetches each row once, does everything, and writes the result once reads
# :math:`MN` and writes :math:`MN`: a quarter. That is the kernel to write.
#
# Step 1: one row a program
# -------------------------
#
# The program id chooses the row, and nothing else. The row goes through the whole formula before
# anything is written.


@triton.jit
def row_kernel(x_ptr, x_row_stride, out_ptr, out_row_stride, N, BLOCK: tl.constexpr):
    """Compute the softmax of one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= N
    mask = cols < N
    x = tl.load(x_ptr + row * x_row_stride + cols, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_row_stride + cols, e / tl.sum(e, axis=0), mask=mask)


def softmax_by_rows(x):
    """Return the softmax of each row of the fp32 matrix *x*, whose rows are contiguous."""
    M, N = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    row_kernel[(M,)](x, x.stride(0), out, out.stride(0), N, BLOCK=block)
    return out


x = torch.randn(3, 5, device=DEVICE)
torch.testing.assert_close(softmax_by_rows(x), torch.softmax(x, dim=1))
print("softmax_by_rows agrees with PyTorch")

# %%
# Three things are new since :doc:`01-vector-add`:
#
# * **Strides.** Element (*i*, *j*) of a matrix lies ``i * row_stride + j`` elements behind the
#   first. The row stride need not be *N*: a slice of a wider matrix keeps the width of the whole.
# * **Padding.** ``tl.arange`` wants a power of two, so the block is *N* rounded up. The places past
#   the end must not change the result: they are filled with minus infinity, the neutral element of
#   the maximum, whose exponential is 0, the neutral element of the sum.
# * **Reductions.** ``tl.max`` and ``tl.sum`` turn a whole block into one number: first each thread
#   combines its own elements, then the threads of a warp do so among themselves, then the warps,
#   through *shared memory*, a small fast memory that all warps of a program can reach.
#
# What there is not are indices: neither ``x[3]`` nor ``x[:4]`` can be had of a block, since its
# elements lie in the registers of many threads (many have asked: see the references). One element
# is a reduction, ``tl.sum(tl.where(cols == 3, x, 0.0), axis=0)``. Elements at computed places are
# ``tl.gather(x, index, axis=0)``. Or load what you want once more, with other offsets: it is in the
# cache.
#
# Stride and padding in a picture: three rows of five elements, cut out of a matrix whose rows have
# six. The numbers are the offsets that a program computes for its row.

# sphinx_gallery_fold = "draws strides and padding"


def draw_rows(M, N, row_stride):
    """Draw the block of each row, with its offsets; the padding is hatched."""
    block = triton.next_power_of_2(N)
    fig, ax = plt.subplots(figsize=(7, 3))
    for row in range(M):
        for col in range(block):
            style = (
                {"facecolor": "#cfe3f1"} if col < N else {"facecolor": "#eeeeee", "hatch": "////"}
            )
            ax.add_patch(plt.Rectangle((col, row), 1, 0.8, edgecolor="#444444", **style))
            label = str(row * row_stride + col) if col < N else "−∞"
            back = None if col < N else {"facecolor": "white", "edgecolor": "none", "pad": 1}
            ax.text(col + 0.5, row + 0.4, label, ha="center", va="center", bbox=back)
    ax.set(xlim=(-0.1, block + 0.1), ylim=(M, -0.2), xlabel="column")
    ax.set_xticks([i + 0.5 for i in range(block)], range(block))
    ax.set_yticks([i + 0.4 for i in range(M)], [f"row {i}" for i in range(M)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(
        f"Offsets of each row (N = {N}, row stride = {row_stride}, BLOCK = {block});\n"
        "hatched: padding"
    )
    fig.tight_layout()
    plt.show()


draw_rows(3, 5, row_stride=torch.empty(3, 6)[:, :5].stride(0))

# %%
# Count the bytes
# ---------------
#
# A kernel is **compute-bound** where its operations take longer than its bytes, as in a product of
# large matrices, and **memory-bound** where it is the other way round. A fused softmax moves 8
# bytes for an element in fp32, for a handful of operations. A GPU can do dozens of operations in
# that time, so softmax is memory-bound: time is bytes, and the quotient of the bytes is the
# speed-up to expect. (Such numbers, and all that are measured below, are printed with three
# significant figures.)


def expected_speedup(M, N):
    """Return elements moved by the naive version over elements moved by a fused kernel."""
    naive = (5 * M * N + 2 * M) + (3 * M * N + 2 * M)
    return naive / (2 * M * N)


for N in (256, 1024, 12672):
    print(f"N = {N:5d}: expect a factor of {significant(expected_speedup(4096, N))}")

# %%
# A factor of four, whatever the GPU. This also answers **why the naive version is slow when
# PyTorch's own softmax is not**: none of its lines is slow by itself, but each is a kernel of its
# own, and the only way for one kernel to hand data to the next is through memory. (If the matrix is
# small, the L2 cache may hold it between two kernels. You cannot count on that.)
# ``torch.softmax`` is a single fused kernel, written by hand. It is the one to beat; the naive
# version is what you get for an expression that nobody has written a kernel for.
#
# Where a load puts the data
# --------------------------
#
# "Through memory" deserves a picture. A GPU consists of many **multiprocessors** (NVIDIA says SM,
# AMD compute unit), each with registers and a cache of its own; a program runs on one of them, and
# several programs can share one. This is the way of a row, with the sizes of the GPU that made
# this page, as far as it tells them:

# sphinx_gallery_fold = "draws the levels of the memory"


def memory_levels():
    """Return (name, size, note) of each level of the memory, from the largest to the nearest."""
    properties = torch.get_device_module(DEVICE).get_device_properties() if ON_GPU else None

    def size(attribute, scale=1):
        bytes_ = getattr(properties, attribute, 0) * scale
        for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if bytes_ >= unit:
                return f"{bytes_ / unit:.0f} {name}"
        return ""

    return [
        ("memory", size("total_memory"), "all tensors,\nfar away"),
        ("L2 cache", size("L2_cache_size"), "shared by the\nwhole GPU"),
        ("L1 cache", "", "one for each\nmultiprocessor"),
        ("registers", size("regs_per_multiprocessor", 4), "where arithmetic\nhappens"),
    ]


def draw_memory(levels):
    """Draw the levels as boxes, with the way of a load and of a store between them."""
    fig, ax = plt.subplots(figsize=(7, 3.2))
    for i, (name, size, note) in enumerate(levels):
        height = 1.0 - 0.17 * i
        box = {"facecolor": "#cfe3f1" if name == "registers" else "#eeeeee", "edgecolor": "#444444"}
        ax.add_patch(plt.Rectangle((1.5 * i, (1 - height) / 2), 1.0, height, **box))
        ax.text(1.5 * i + 0.5, 0.5, f"{name}\n{size}", ha="center", va="center")
        ax.text(1.5 * i + 0.5, -0.08, note, ha="center", va="top", fontsize=12)
        if i:
            for y, (start, end) in ((0.62, (-0.48, -0.02)), (0.38, (-0.02, -0.48))):
                ends = {"xytext": (1.5 * i + start, y), "xy": (1.5 * i + end, y)}
                ax.annotate("", arrowprops={"arrowstyle": "->"}, **ends)
    ax.text(1.25, 0.67, "load", ha="center", fontsize=12)
    ax.text(1.25, 0.26, "store", ha="center", fontsize=12)
    ax.set(xlim=(-0.15, 5.65), ylim=(-0.35, 1.05))
    ax.set_title("What a load and a store pass through\n(registers and L1: of one multiprocessor)")
    ax.axis("off")
    fig.tight_layout()
    plt.show()


draw_memory(memory_levels())

# %%
# ``tl.load`` puts the data into **registers**, the private, fastest memory of the threads that run
# the program. On its way it passes L2 and L1, which may keep a copy until something else needs the
# room; a kernel may be lucky and find its data there, but cannot rely on it. What it *can* rely on
# is its registers: as long as a variable is in use, its block stays there, if it fits. That is
# what step 1 lives on: it loads a row once, keeps it in registers until its softmax is done, and
# stores it once.
#
# Step 2: as many warps as a row can use
# --------------------------------------
#
# ``num_warps`` is the number of warps that share one program, 4 unless you say otherwise. It
# changes nothing about the result but the last bits (sums are added up in another order), and a lot
# about the speed, because it decides how the row is spread over threads:
#
# * **Too many warps**: each thread has next to nothing to do, and at each reduction the warps have
#   to wait for one another. A short row is all waiting.
# * **Too few warps**: each thread holds many elements, so it needs many registers. A
#   multiprocessor has a fixed number of them, so fewer warps are on it at a time; how many there
#   are, of all that it could manage, is called **occupancy**. And if a thread needs more registers
#   than it can have, values *spill* to memory, which is what we wanted to avoid.
#
# Why does it matter how many warps are there? Because a load is under way for hundreds of cycles.
# The warp that asked for it waits; the multiprocessor takes an instruction of another warp, and of
# the next one, as long as one of them has its data. What keeps the memory busy is the number of
# bytes that are under way at any moment: bandwidth times the time that one load takes (*Little's
# law*). They can be under way for many warps with a load each, or for few warps with many loads
# each. So high occupancy is one way to hide waiting, and several loads a thread are the other.
# :doc:`/programming-guide/chapter-5/profiling` shows the waiting, and counts it.
#
# In between lies a comfortable middle, and it suggests a rule: **one warp for 512 elements**. On a
# GPU with warps of 32 threads that is 16 elements a thread: four loads of 16 bytes under way at
# once, and 16 registers to keep them in, which leaves room for many programs side by side.
#
# A row of fewer than 512 elements is not enough even for one warp. So we give a program **several
# rows**, as many as make up 512 elements. The block becomes a two-dimensional **tile**, and the
# reductions run along its second axis. (A row that fits into one warp has a further advantage: no
# warp waits for another at a reduction.)

# sphinx_gallery_difference = "row_kernel"


@triton.jit
def softmax_kernel(
    x_ptr, x_row_stride, x_col_stride, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute the softmax of ROWS rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    cols = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    mask = (rows < M) & (cols < N)  # [ROWS, BLOCK]
    offsets = rows * x_row_stride + cols.to(tl.int64) * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    y = e / tl.sum(e, axis=1, keep_dims=True)
    tl.store(out_ptr + rows * N + cols, y, mask=mask)


# %%
# Two details. The arithmetic is done in fp32 even where the data is fp16, which costs no bytes;
# the store rounds to the type of the output. And the kernel takes a stride for columns, too, so
# that it is right for any view, a transpose for example. That costs nothing where the stride is 1,
# because Triton compiles an argument that equals 1 into the kernel as a constant. (With other
# strides it is right, but slow: what lies between the elements is fetched as well.)


@cache
def tile_plan(N):
    """Return (rows a program, block size, number of warps) for rows of *N* elements."""
    block = triton.next_power_of_2(N)
    rows = max(1, 512 // block)
    return rows, block, min(16, rows * block // 512)


def softmax_by_tiles(x):
    """Return the softmax of each row of the matrix *x*, as tiles of one or more rows."""
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rows, block, warps = tile_plan(N)
    grid = ((M + rows - 1) // rows,)
    softmax_kernel[grid](x, *x.stride(), out, M, N, ROWS=rows, BLOCK=block, num_warps=warps)
    return out


x = torch.randn(7, 200, device=DEVICE)
torch.testing.assert_close(softmax_by_tiles(x), torch.softmax(x, dim=1))
print("softmax_by_tiles agrees with PyTorch")

table = [(N, *tile_plan(N)) for N in (2, 200, 781, 2048, 4224, 12672)]
print(tabulate(table, ["N", "rows", "block", "warps"]))

# %%
# The plan depends on *N* alone, so a cache makes it free from the second call on. Sixteen warps is
# where the rule stops: programs of more than 1024 threads do not exist, and some GPUs have 64
# threads in a warp. (No rule is best for every length on every GPU. One that fits in a line and
# has a reason is worth more here than a table made for one GPU.)
#
# Step 3: rows just above a power of two
# --------------------------------------
#
# Look at 4224 in the table. It is padded to 8192, so that nearly half of the block is empty. That
# costs no bytes, since a masked load does not touch memory. But the registers of the empty half are
# taken all the same, and every instruction is issued for it, too. The remedy is to take such
# a row in **two pieces**: a head that is the largest power of two below *N*, and for the rest a
# tail of a quarter or a half of that. 4224 becomes 4096 + 1024. (A tail of 128 would do, but every
# new size of a block is a kernel to compile, and it is the large waste that has to go.)

# sphinx_gallery_difference = "row_kernel"


@triton.jit
def head_tail_kernel(
    x_ptr, x_row_stride, x_col_stride, out_ptr, N, HEAD: tl.constexpr, TAIL: tl.constexpr
):
    """Compute the softmax of one row in two pieces."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    out_ptr += row * N
    head = tl.arange(0, HEAD).to(tl.int64)  # [HEAD], HEAD < N: needs no mask
    tail = HEAD + tl.arange(0, TAIL).to(tl.int64)  # [TAIL], HEAD + TAIL >= N
    mask = tail < N
    a = tl.load(x_ptr + head * x_col_stride).to(tl.float32)
    b = tl.load(x_ptr + tail * x_col_stride, mask=mask, other=-float("inf")).to(tl.float32)
    m = tl.maximum(tl.max(a, axis=0), tl.max(b, axis=0))
    a = tl.exp(a - m)
    b = tl.exp(b - m)
    s = tl.sum(a, axis=0) + tl.sum(b, axis=0)
    tl.store(out_ptr + head, a / s)
    tl.store(out_ptr + tail, b / s, mask=mask)


@cache
def head_tail_plan(N):
    """Return (head, tail, number of warps) where two pieces pay, else None."""
    head = triton.next_power_of_2(N) // 2
    if N <= 512 or 1.5 * head < N:
        return None
    tail = head // 4 if 1.25 * head >= N else head // 2
    return head, tail, min(16, head // 512)


table = [(N, *head_tail_plan(N)) for N in (640, 4224, 12000)]
print(tabulate(table, ["N", "head", "tail", "warps"]))

# %%
# We take two pieces where a quarter or more of one block would be padding. Rows of up to 512
# elements are left to the tiles: they are one warp's work anyway. (What two pieces bring depends on
# the compiler as well: the better it deals with the empty half of a block, the less there is to
# gain. The same is true of step 2, and of the few warps that it avoids.)
#
# Step 4: when a row does not fit
# -------------------------------
#
# A row of a million elements does not fit into the registers of any program. It has to be read in
# pieces, and since every output needs the maximum and the sum of the *whole* row, it has to be read
# twice: once for those, once for the output. But not three times, as the formula suggests (maximum,
# then sum, then output): maximum and sum can be had in one pass. Keep the maximum *m* and the sum
# *s* of what you have seen so far; where a new piece raises the maximum to *m'*, the old sum is too
# large by a known factor:
#
# .. math::
#
#     s' = s \cdot e^{m - m'} + \sum_{j \in \text{piece}} e^{x_j - m'}
#
# This is the **online softmax**, and the idea on which FlashAttention rests.

# sphinx_gallery_difference = "row_kernel"


@triton.jit
def long_softmax_kernel(x_ptr, x_row_stride, x_col_stride, out_ptr, N, BLOCK: tl.constexpr):
    """Compute the softmax of one row, piece by piece."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    x_ptr += row * x_row_stride
    out_ptr += row * N
    # Begin with the lowest fp32 number, since minus infinity minus itself is not a number.
    m = -3.4028234663852886e38
    s = 0.0
    for start in range(0, N, BLOCK):
        mask = start + cols < N
        x = tl.load(x_ptr + (start + cols) * x_col_stride, mask=mask, other=-float("inf"))
        x = x.to(tl.float32)
        new_m = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
        m = new_m
    for start in range(0, N, BLOCK):
        mask = start + cols < N
        x = tl.load(x_ptr + (start + cols) * x_col_stride, mask=mask, other=-float("inf"))
        tl.store(out_ptr + start + cols, tl.exp(x.to(tl.float32) - m) / s, mask=mask)


# %%
# The second pass makes three transfers out of two, so for such rows expect two thirds of a copy's
# rate, or more where the L2 cache still has the row.
#
# The launcher
# ------------
#
# All together: checks, then the kernel that suits the length of the rows.

# sphinx_gallery_fold = "checks the argument, and says what is wrong with it"


def check_arguments(x):
    """Raise TypeError or ValueError where ``softmax`` cannot go on with *x*."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"x must be float16, bfloat16 or float32, but its dtype is {x.dtype}")
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix, but has shape {tuple(x.shape)}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {x.device}")


# %%

MAX_BLOCK = 32768  # 16 warps hold this much in registers without spilling


def softmax(x):
    """Return the softmax of each row of *x*, as ``torch.softmax(x, dim=1)`` does.

    Args:
        x: Matrix of dtype fp16, bf16 or fp32, with any strides.

    Returns:
        A new contiguous matrix of the same shape and dtype. A row of nothing but minus
        infinity gives NaN.

    Raises:
        TypeError: *x* is no tensor, or of another dtype.
        ValueError: *x* is no matrix, or not on the device that this page runs on.
    """
    check_arguments(x)
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if M == 0 or N == 0:
        return out
    if N > MAX_BLOCK:
        long_softmax_kernel[(M,)](x, *x.stride(), out, N, BLOCK=8192, num_warps=16)
    elif pieces := head_tail_plan(N):
        head, tail, warps = pieces
        head_tail_kernel[(M,)](x, *x.stride(), out, N, HEAD=head, TAIL=tail, num_warps=warps)
    else:
        rows, block, warps = tile_plan(N)
        grid = ((M + rows - 1) // rows,)
        softmax_kernel[grid](x, *x.stride(), out, M, N, ROWS=rows, BLOCK=block, num_warps=warps)
    return out


# %%
# Is it right?
# ------------
#
# The reference is computed in float64, so that the reference's own rounding does not count. How
# close must the result be? fp32 has 24 bits, so each operation is off by 2⁻²⁴ at most, or 6·10⁻⁸ of
# its result. Positive numbers that are added up by many threads are hardly worse off. But the error
# of :math:`x - m` is relative to its own size, here up to about 40, and after the exponential it is
# a relative error of the *result*: 40 · 2⁻²⁴ is 2·10⁻⁶. So 10⁻⁵ leaves room for everything. fp16
# rounds the result itself to 11 bits. Awkward are the short rows, a row that is one longer than a
# power of two (4097), a shape that nothing divides (1823 × 781), views, and rows too long for one
# block.


def check(x):
    """Raise AssertionError where ``softmax`` is not what PyTorch computes in float64."""
    rtol, atol = {
        torch.float16: (2**-10, 2**-24),
        torch.bfloat16: (2**-7, 1e-30),
        torch.float32: (1e-5, 1e-30),
    }[x.dtype]
    expected = torch.softmax(x.double(), dim=1)
    torch.testing.assert_close(softmax(x).double(), expected, rtol=rtol, atol=atol, equal_nan=True)


# %%
# The shapes, in all dtypes:

# sphinx_gallery_fold = "checks the shapes"

torch.manual_seed(0)
shapes = [(5, 1), (7, 2), (3, 781), (3, 4097), (2, 32769), (0, 5), (5, 0)]
if ON_GPU:
    shapes += [(1823, 781), (4096, 12672), (3, 2**20)]
dtypes = [torch.float32, torch.float16]
if ON_GPU:
    dtypes.append(torch.bfloat16)  # the interpreter computes it wrongly
for dtype in dtypes:
    for shape in shapes:
        check(4 * torch.randn(shape, device=DEVICE, dtype=dtype))
print(f"softmax agrees with float64 on {len(shapes)} shapes and in {len(dtypes)} dtypes")

# %%
# Now views, whose rows do not follow one another without gaps, and rows with infinities in them. A
# row of nothing but minus infinity has no softmax: the maximum is minus infinity, too, and the
# difference of the two is not a number. PyTorch answers NaN, and so do we.

# sphinx_gallery_fold = "checks views, and rows with infinities"

wide = torch.randn(40, 100, device=DEVICE)
check(wide[:, 10:91])  # row stride 100
check(wide[::3])  # row stride 300
check(wide[:, ::2])  # column stride 2
check(wide.T)  # column stride 100
check(wide[:1].expand(5, -1))  # row stride 0
for N in (5, 40000):
    x = torch.randn(4, N, device=DEVICE)
    x[1, :] = -math.inf
    x[2, :3] = -math.inf
    x[3, 3] = math.inf
    check(x)
    assert softmax(x)[1].isnan().all() and not softmax(x)[2].isnan().any()
print("softmax agrees with float64 on views, and on rows with infinities")

# %%
# The steps on the way, and the naive version, are going to be timed. So they are checked as well:

# sphinx_gallery_fold = "checks the steps and the naive version"

for N in (1, 781, 4097):
    x = 4 * torch.randn(5, N, device=DEVICE)
    for step in (naive_softmax, softmax_by_rows, softmax_by_tiles):
        expected = torch.softmax(x.double(), dim=1)
        torch.testing.assert_close(step(x).double(), expected, rtol=1e-5, atol=1e-30)
print("The naive version and the kernels of steps 1 and 2 agree with float64, too")

# %%
# And what it refuses:

for wrong in ([1.0], torch.ones(2, 2, device=DEVICE).double(), torch.ones(3, device=DEVICE)):
    try:
        softmax(wrong)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("softmax should have refused this")

# %%
# The benchmark
# -------------
#
# 4096 rows of 256 to 12672 elements, in steps of 128, against PyTorch's own softmax and against
# the naive version. The kernels of steps 1 and 2 take part at some lengths, to show what each step
# brought. The ceiling is a copy of the matrix: it reads and writes as much as a fused softmax has
# to. All rates count these bytes, ``2 * M * N * 4``, also for those who move more. The loop that
# measures is that of :doc:`01-vector-add`, and :doc:`/programming-guide/chapter-4/measuring` takes
# it apart.

# sphinx_gallery_fold = "times the versions of softmax, and keeps the rows"

SOME = [256, 384, 512, 640, 768, 1024, 1152, 1536, 2048, 2176, 3072, 4096, 4224, 6144, 6272, 8192,
        8320, 10240, 12672]  # fmt: skip


def benchmark(M, columns):
    """Return rows (M, N, provider, unit, median, p20, p80)."""
    rows = []
    for N in columns:
        x = torch.randn(M, N, device=DEVICE)
        calls = {
            "triton": partial(softmax, x),
            "torch": partial(torch.softmax, x, dim=1),
            "copy": x.clone,
            "naive": partial(naive_softmax, x),
        }
        if N in SOME:
            calls["triton, one row a program"] = partial(softmax_by_rows, x)
            calls["triton, tiles"] = partial(softmax_by_tiles, x)
        for provider, ms in measure(calls).items():
            rows.append((M, N, provider, "GB/s", *rates(ms, 2 * M * N * x.element_size())))
    return rows


if ON_GPU:
    rows = benchmark(4096, [128 * i for i in range(2, 100)])
    write_rows("softmax-performance.csv", ["M", "N"], rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# All rows are in the CSV file; here are some of them. ("triton" is ``softmax``, with all steps.)

# sphinx_gallery_fold = "prints some of the rates"


def print_table(rows, columns):
    """Print the median rates of some row lengths, and ratios of them."""
    rate = {(N, provider): median for _, N, provider, _, median, _, _ in rows}
    steps = ["triton, one row a program", "triton, tiles", "triton", "torch", "naive"]
    table = []
    for N in columns:
        ours = rate[N, "triton"]
        medians = [rate[N, provider] for provider in steps]
        ratios = (ours / rate[N, "torch"], ours / rate[N, "copy"])
        table.append((N, *map(significant, (*medians, *ratios))))
    headers = ["N", "step 1", "step 2", "triton", *steps[3:], "/torch", "/copy"]
    print("GB/s, higher is better; /torch and /copy: triton's ratio to them")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    print_table(rows, SOME)
else:
    print("No table without a GPU.")

# %%
# And all of them. Lines are medians, and bands reach from the 20th to the 80th percentile.

# sphinx_gallery_fold = "plots the rates"


def plot_softmaxes(rows):
    """Draw rate over row length."""
    labels = {
        "copy": ("copy (ceiling)", CEILING),
        "triton": ("triton", OURS),
        "triton, tiles": ("step 2: tiles", STEP_2),
        "triton, one row a program": ("step 1: one row a program", STEP_1),
        "torch": ("torch (best alternative)", TORCH),
        "naive": ("naive", OTHER),
    }
    fig, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    lines = {
        label: (style, [(row[1], *row[4:]) for row in rows if row[2] == provider])
        for provider, (label, style) in labels.items()
    }
    title = f"Softmax of {rows[0][0]} rows in fp32"
    plot_rates(ax, lines, title, "N, elements in a row", "GB/s")
    fig.legend(loc="outside lower center", ncols=2)
    plt.show()


if ON_GPU:
    plot_softmaxes(rows)
else:
    print("No plot without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **All of them rise on the left.** A matrix with short rows has few bytes, and launching takes its
# time, whoever does it: the copy rises, too. What counts is the distance from the copy.
#
# **The kernel of step 1** has four warps for every row. That is too many for short rows, and too
# few for the longest, where each thread of a warp of 32 has to hold a hundred elements and more.
# Step 2 takes care of both ends. In between, four warps are no bad choice, and now and then the
# better one. (How much is lost at the right end differs from one release of Triton to the next.)
#
# **The steps down** right behind large powers of two are the padding, in step 1 and in step 2. The
# two pieces of step 3 take most of it away.
#
# **PyTorch's softmax** is fused as well, and yet its curve can have jumps, at lengths that are not
# ours. There are several kernels behind that one function, too, and the length of the row decides
# which of them runs. The one for short rows keeps a row in registers, as ours do; those for longer
# rows may go over a row several times. Where the curve jumps, another one has taken over.
#
# **The naive version** stays low: its time is all bytes, too, but it has four times as many.
#
# The ratios, computed from the rows above. (In the last line, step 3 is ``softmax``. It leaves many
# lengths to the kernel of step 2. What differs from 1 there is the error of the measurement.)

# sphinx_gallery_fold = "prints the ratios, and the speed-up that the bytes promised"

if ON_GPU:
    rate = {(N, provider): median for _, N, provider, _, median, _, _ in rows}
    pairs = {f"triton / {other}": ("triton", other) for other in ("torch", "naive", "copy")}
    pairs["step 2 / step 1"] = "triton, tiles", "triton, one row a program"
    pairs["step 3 / step 2"] = "triton", "triton, tiles"
    print_ratios(rate, pairs)
    M, N = rows[-1][:2]
    print(
        f"\nSpeed-up over the naive version at N = {N}: "
        f"expected {significant(expected_speedup(M, N))}, "
        f"reached {significant(rate[N, 'triton'] / rate[N, 'naive'])}"
    )
else:
    print("No ratios without a GPU.")

# %%
# If more is reached than the bytes explain, then the naive version does not use the bandwidth that
# it has: five kernels, each with its own start and its own end, two of them reductions. If less is
# reached, then a cache has carried some of its bytes.
#
# What the run showed
# -------------------
#
# The ladder at the top of this page, at a length just above a power of two, and what the page has
# claimed, each beside the limit that it must keep:

# sphinx_gallery_fold = "prints the ladder, and computes the claims"

if ON_GPU:
    at = 8320
    changes = {
        "The formula, step by step": ("five operations of PyTorch", "naive"),
        "Step 1: one row a program": ("all in one kernel", "triton, one row a program"),
        "Step 2: as many warps as a row can use": ("16 warps and not 4", "triton, tiles"),
        "Step 3: rows just above a power of two": ("two pieces, less padding", "triton"),
    }
    rungs = [(step, change, rate[at, name]) for step, (change, name) in changes.items()]
    ladder(rungs, ("a copy", rate[at, "copy"]), "GB/s", f"M = {M}, N = {at}, fp32")
    print()

    columns = sorted({n for n, _ in rate})
    scatter = spread(rows[-6:])
    claim(
        "a fused softmax is over three times as fast as the naive one, at every length",
        min(rate[n, "triton"] / rate[n, "naive"] for n in columns), at_least=3.0, spread=scatter,
        section="Count the bytes",
    )  # fmt: skip
    claim(
        "the naive version loses what its bytes explain, or more",
        rate[N, "triton"] / rate[N, "naive"] / expected_speedup(M, N), at_least=0.9,
        spread=scatter, section="Count the bytes",
    )  # fmt: skip
    claim(
        "four warps are too few for a row of 8320: as many as it can use are faster",
        rate[at, "triton, tiles"] / rate[at, "triton, one row a program"], at_least=1.02,
        spread=scatter, section="Step 2: as many warps as a row can use",
    )  # fmt: skip
    claim(
        "two pieces are faster than one padded block, at 8320",
        rate[at, "triton"] / rate[at, "triton, tiles"], at_least=1.0,
        spread=scatter, section="Step 3: rows just above a power of two",
    )  # fmt: skip
    claim(
        "from 2048 elements on, softmax reaches nine tenths of a copy and more",
        min(rate[n, "triton"] / rate[n, "copy"] for n in columns if n >= 2048), at_least=0.9,
        spread=scatter, section="How to read the curves",
    )  # fmt: skip
    claim(
        "it is a fifth faster than PyTorch's, on average over all lengths",
        geometric_mean(rate[n, "triton"] / rate[n, "torch"] for n in columns), at_least=1.2,
        spread=scatter, section="How to read the curves",
    )  # fmt: skip
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * Count the bytes of each step. Fusion saves the trips to memory between the steps, and the count
#   says how much that is worth.
# * A load ends in registers. What fits there needs to be read only once.
# * Pad with the neutral element of whatever comes next.
# * Give each thread enough to do, but not more than its registers hold: warps by row length, and
#   several rows a program where rows are short.
# * What does not fit can often be computed *online*, with a correction for what came before.
#
# Exercises
# ---------
#
# 1. **Log-softmax.** Change the kernel to compute ``torch.log_softmax``. Which of its steps get
#    simpler? :doc:`Solution <solutions/02-log-softmax>`.
# 2. **Causal mask.** In attention, row *i* may only look at columns up to *i*, and scores are
#    scaled first. Fuse both into the kernel. How many bytes does it read? :doc:`Solution
#    <solutions/02-causal-softmax>`.
# 3. **Backward.** For the output *y* and the gradient *g* of it, the gradient of the input is
#    :math:`y \cdot (g - \sum_j g_j y_j)`. Write a kernel for it. What speed-up do you expect over
#    PyTorch operations? :doc:`Solution <solutions/02-softmax-backward>`.
#
# References
# ----------
#
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
# * Samuel Williams, Andrew Waterman and David Patterson: *Roofline: an insightful visual
#   performance model for multicore architectures*, Communications of the ACM 52(4), 2009,
#   https://doi.org/10.1145/1498765.1498785
# * *Accessing slices of a tensor*, a question to the authors of Triton with their answers,
#   https://github.com/triton-lang/triton/issues/656
