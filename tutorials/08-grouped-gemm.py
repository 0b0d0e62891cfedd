"""
Grouped matrix multiplication
=============================

Many large language models are **mixtures of experts**: a layer has not one matrix of weights but
many, one for each *expert*, and every token is sent to a few of them. What is left to compute is a
pile of products of very different heights, some of them empty, and how high each one is, is known
on the GPU only. On this page you compute the whole pile with one launch. You will build
``grouped_mm(x, w, offsets)``, which gives what ``torch._grouped_mm`` gives, and learn

* why a loop of products is slow though each product is fast, and what padding wastes;
* how a program finds its tile when the number of tiles is not known at the launch;
* how one **tensor descriptor** serves a whole stack of matrices;
* how **persistent** programs walk over the tiles of all experts as if they were one product;
* why the rows that are left over should be cut into smaller tiles than the rest;
* which tile suits experts with many tokens, and which suits experts with few.

You should know :doc:`03-matrix-multiplication`: tiles, waves, descriptors and persistent programs.

.. ladder::
"""

# %%
# Without a GPU the first cell chooses the interpreter. The timing loop and the rounding are those
# of all tutorials.

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_thumbnail_number = 3
import functools
import sys  # for shared/
from dataclasses import dataclass
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
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# %%
# What a mixture of experts computes
# ----------------------------------
#
# A small network, the *router*, has sent each token to an expert, and the tokens have been sorted:
# first all those of expert 0, then those of expert 1, and so on. So there is
#
# * ``x``, a matrix of *tokens* × *K*, one row for each token;
# * ``w``, a stack of *experts* matrices of *K* × *N*;
# * ``offsets``, one number for each expert: the row of ``x`` behind its last one. Expert *e* has
#   the rows from ``offsets[e - 1]`` (or 0) up to ``offsets[e]``. Where the two are equal, it has
#   none.
#
# The rows of expert *e* are multiplied by ``w[e]``. In PyTorch that is a loop:


def loop_reference(x, w, ends):
    """Return the rows of *x*, each multiplied by the matrix of its expert; *ends* is a list."""
    out = torch.empty(x.shape[0], w.shape[2], dtype=x.dtype, device=x.device)
    start = 0
    for expert, end in enumerate(ends):
        if end > start:
            torch.mm(x[start:end], w[expert], out=out[start:end])
        start = end
    return out


# %%
# Note that ``ends`` is a *list*, on the CPU. The router has computed the offsets on the GPU, so
# somebody must have fetched them, which means waiting until the GPU has done all its work, and
# leaving it idle until the next launch arrives. To be fair to the loop, we shall not count that.
#
# Every token is multiplied by one matrix, whichever it is. So the operations are those of *one*
# product of *tokens* × *K* by *K* × *N*, and this **dense product** is the ceiling: what the GPU
# needs for as much work in a single piece. The bytes are another matter, since every expert that
# has a token must read a matrix of its own.

# sphinx_gallery_fold = "counts operations and bytes of five layers, and draws group sizes"
CASES = [  # experts, tokens, K, N
    (8, 8192, 4096, 4096),
    (8, 8192, 4096, 14336),
    (64, 8192, 2048, 1408),
    (64, 65536, 2048, 1408),
    (128, 4096, 2048, 768),
]


def group_sizes(experts, tokens, skewed):
    """Return how many of the tokens each expert gets.

    Each token picks one at random. If *skewed*, some experts are far more popular than others (the
    second half as much as the first, the third a third as much, in random order), and one in eight
    gets no token at all.
    """
    generator = torch.Generator().manual_seed(0)
    popularity = torch.ones(experts)
    if skewed:
        popularity = 1 / (1.0 + torch.randperm(experts, generator=generator))
        popularity[3::8] = 0
    picks = torch.multinomial(popularity, tokens, replacement=True, generator=generator)
    return torch.bincount(picks, minlength=experts)


def operations(tokens, K, N):
    """Return the floating-point operations: each token times one K × N matrix."""
    return 2 * tokens * K * N


def least_bytes(sizes, K, N):
    """Return the bytes, in bf16: x and the weights of experts with tokens are read, out written."""
    tokens, used = int(sizes.sum()), int((sizes > 0).sum())
    return 2 * (tokens * K + used * K * N + tokens * N)


table = []
for experts, tokens, K, N in CASES:
    sizes = group_sizes(experts, tokens, False)
    ops, moved = operations(tokens, K, N), least_bytes(sizes, K, N)
    table.append((experts, tokens, K, N, tokens // experts, significant(ops / moved)))
headers = ["experts", "tokens", "K", "N", "tokens an\nexpert", "flop\nper byte"]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

fig, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
for ax, skewed in zip(axes, (False, True), strict=True):
    sizes = group_sizes(64, 8192, skewed)
    ax.bar(range(64), sizes.tolist(), color="#1b6ca8")
    ax.set(title="skewed" if skewed else "random", ylabel="tokens")
    empty = [(e, 0) for e in range(64) if sizes[e] == 0]
    if empty:
        ax.plot(*zip(*empty, strict=True), "x", color="#d1495b", label="no token", clip_on=False)
        ax.legend()
axes[1].set(xlabel="expert")
fig.suptitle("8192 tokens, sent to 64 experts")
plt.show()

# %%
# The first layers have hundreds of operations for each byte: they are compute-bound. In the last
# one an expert has a few dozen tokens, and so each number of its matrix is used a few dozen times
# only. That is memory-bound, and the dense product is out of reach, as it reads one matrix instead
# of all. Both kinds exist in the same model: many tokens at a time in training, few in serving.
#
# Why the two obvious ways lose
# -----------------------------
#
# **The loop** makes as many launches as there are experts. Preparing a launch takes the CPU some
# microseconds, and when the products are small, the GPU is done sooner than that. And each product
# has a last wave of its own (:doc:`03-matrix-multiplication`): in the table below is the share of
# the SMs that are busy on average, if tiles of 128 × 256 are computed in waves.
#
# **Padding** fills all groups up to the largest one, with zeros. Then it is a batch of equal
# products, which a library computes in one call. The table shows how many rows that
# multiplies for each row that is needed.


# sphinx_gallery_fold = "finds what the GPU can do, and counts what the loop and padding waste"
def gpu_facts():
    """Return (processors, bytes of shared memory a program can get, has tensor descriptors)."""
    if not ON_GPU:
        return 132, 232448, True  # as an H200; the interpreter can do it all
    properties = torch.get_device_module(DEVICE).get_device_properties(DEVICE)
    processors = getattr(properties, "multi_processor_count", 64)
    shared_bytes = getattr(properties, "shared_memory_per_block_optin", 65536)
    nvidia = DEVICE.type == "cuda" and not torch.version.hip
    return processors, shared_bytes, nvidia and properties.major >= 9


SMS, SHARED_BYTES, HAS_DESCRIPTORS = gpu_facts()


def divide_up(a, b):
    """Return a / b, rounded up."""
    return -(-a // b)


def busy(heights, N):
    """Return the share of SMs that are busy, on average, if each of *heights* is a product."""
    tiles = [divide_up(h, 128) * divide_up(N, 256) for h in heights]
    exact = sum(heights) / 128 * N / 256
    return exact / (SMS * sum(divide_up(t, SMS) for t in tiles))


table = []
for experts, tokens, K, N in CASES:
    for skewed in (False, True):
        sizes = group_sizes(experts, tokens, skewed).tolist()
        kind = "skewed" if skewed else "random"
        launches = sum(size > 0 for size in sizes)
        shares = significant(busy(sizes, N)), significant(busy([tokens], N))
        padded = significant(max(sizes) * experts / tokens)
        table.append((experts, tokens, kind, launches, *shares, padded))
headers = ["experts", "tokens", "sizes", "launches\nof the loop", "busy SMs:\nloop"]
headers += ["dense", "rows padded /\nrows needed"]
print(f"{SMS} SMs")
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# Step 1: One launch for all experts
# ----------------------------------
#
# The tiles of all products are independent of each other. Let us number them through: first all
# tiles of expert 0, then those of expert 1. One program computes one tile. To find out which, it
# walks along the experts and counts tiles, until it has found the expert that its number falls
# into. From there on it is the first kernel of :doc:`03-matrix-multiplication`.


@triton.jit
def one_launch_kernel(
    x_ptr, w_ptr, out_ptr, offsets_ptr, experts, tokens, K, N,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn, stride_om,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of one expert."""
    mine = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = 0  # the number of the expert's first tile
    start = 0  # its first row
    for expert in range(experts):
        end = tl.minimum(tl.load(offsets_ptr + expert), tokens)
        after = first + tl.cdiv(end - start, BLOCK_M) * tiles_n
        if (mine >= first) & (mine < after):
            rows = start + (mine - first) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (mine - first) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            rows, columns = rows.to(tl.int64), columns.to(tl.int64)
            steps = tl.arange(0, BLOCK_K).to(tl.int64)
            x_ptrs = x_ptr + rows[:, None] * stride_xm + steps[None, :] * stride_xk
            w_ptrs = w_ptr + tl.full((), expert, tl.int64) * stride_we
            w_ptrs += steps[:, None] * stride_wk + columns[None, :] * stride_wn
            x_step = tl.full((), BLOCK_K, tl.int64) * stride_xk
            w_step = tl.full((), BLOCK_K, tl.int64) * stride_wk
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                inside_x = (rows[:, None] < end) & (steps[None, :] < K - k)
                inside_w = (steps[:, None] < K - k) & (columns[None, :] < N)
                x = tl.load(x_ptrs, mask=inside_x, other=0.0)
                w = tl.load(w_ptrs, mask=inside_w, other=0.0)
                acc = tl.dot(x, w, acc, input_precision="ieee")
                x_ptrs += x_step
                w_ptrs += w_step
            out_ptrs = out_ptr + rows[:, None] * stride_om + columns[None, :]
            inside = (rows[:, None] < end) & (columns[None, :] < N)
            tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
        first = after
        start = end


# %%
# ``end``
#     Each expert ends where ``offsets`` says, *on the GPU*: the launch does not need to know it. The
#     mask of the store keeps a program from writing into the rows of the next expert. (The minimum
#     is a safety belt: offsets that are too large must not make a program write behind ``out``.)
# ``range(experts)``
#     A loop of scalars, the same for all threads of the program. Those of its iterations that
#     find somebody else's tile do next to nothing.
#
# But how many programs must be launched, if the number of tiles is not known? Enough for the worst
# case. Each expert can have one row of tiles that is not full; so there are at most *experts* more
# rows of tiles than the tokens would fill. A program that finds no tile ends at once.


def one_launch(x, w, offsets, out, block=(128, 128, 64), warps=8, stages=3):
    """Write the grouped product to *out*; the simplest kernel, any strides."""
    (tokens, K), (experts, _, N) = x.shape, w.shape
    block_m, block_n, block_k = block
    grid = ((divide_up(tokens, block_m) + experts) * divide_up(N, block_n),)
    one_launch_kernel[grid](
        x, w, out, offsets, experts, tokens, K, N, *x.stride(), *w.stride(), out.stride(0),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def draw_problem(sizes, K, N, seed=0):
    """Return x, w, offsets and the list of ends, for experts with so many tokens each."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    dtype = torch.bfloat16 if ON_GPU else torch.float16
    sizes = torch.as_tensor(sizes)
    x = torch.randn(int(sizes.sum()), K, device=DEVICE, dtype=dtype, generator=generator)
    w = torch.randn(len(sizes), K, N, device=DEVICE, dtype=dtype, generator=generator)
    ends = sizes.cumsum(0)
    return x, w, ends.to(DEVICE, torch.int32), ends.tolist()


def assert_right(out, x, w, ends):
    """Raise AssertionError where *out* is not the grouped product, computed in float64."""
    expected = loop_reference(x.double(), w.double(), ends)
    rounding = torch.finfo(x.dtype).eps  # one unit in the last place
    summing = 2**-20 * x.shape[1]  # K times four bits more than fp32 rounds away
    torch.testing.assert_close(out.double(), expected, rtol=rounding, atol=summing)


x, w, offsets, ends = draw_problem([5, 0, 70, 1, 0, 33], K=45, N=77)
out = torch.empty(x.shape[0], w.shape[2], dtype=x.dtype, device=DEVICE)
one_launch(x, w, offsets, out, block=(16, 32, 32), warps=4)
assert_right(out, x, w, ends)
print("six experts, two of them without a token: right")

# %%
# Step 2: One descriptor for the whole stack
# ------------------------------------------
#
# A tensor descriptor (:doc:`03-matrix-multiplication` introduces them) lets the hardware fetch a
# tile: no blocks of pointers in registers, no masks. Does every expert need its own? That would be
# a pile of descriptors, made for each launch. But ``w`` is *one* tensor of three dimensions, and
# one descriptor can say so. A tile of it is ``1 × BLOCK_K × BLOCK_N``, and the expert is its first
# coordinate. Two things follow from what a descriptor knows about borders:
#
# * A tile that sticks out of ``w[expert]`` along K or N is filled with zeros, and not with numbers
#   of the next expert, as it would be if the experts were glued together to one tall matrix.
# * A tile of ``x`` that sticks out of its *expert* is filled with rows of the next one, since the
#   descriptor does not know the offsets. That does no harm: these rows of the product are wrong,
#   but they are not ours, and are not stored.
#
# Storing is the one place where a descriptor would do damage. So the store keeps its mask.


@triton.jit
def described_tile(
    x_desc, w_desc, expert, row, column, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BY_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return the tile at (row of x, column of w[expert]) of the product, in fp32."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = x_desc.load([row, k])
        if BY_COLUMNS:  # w is stored as experts × N × K
            w = w_desc.load([expert, column, k]).reshape(BLOCK_N, BLOCK_K).T
        else:
            w = w_desc.load([expert, k, column]).reshape(BLOCK_K, BLOCK_N)
        acc = tl.dot(x, w, acc)
    return acc


@triton.jit
def masked_store(out_ptr, acc, row, column, end, N, stride_om):
    """Store the tile *acc* at (row, column), without the rows from *end* on."""
    rows = row + tl.arange(0, acc.shape[0])
    columns = column + tl.arange(0, acc.shape[1])
    out_ptrs = out_ptr + rows.to(tl.int64)[:, None] * stride_om + columns[None, :]
    inside = (rows[:, None] < end) & (columns[None, :] < N)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def described_kernel(
    x_desc, w_desc, out_ptr, offsets_ptr, experts, tokens, K, N, stride_om,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BY_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute one tile of one expert, with descriptors."""
    mine = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = 0
    start = 0
    for expert in range(experts):
        end = tl.minimum(tl.load(offsets_ptr + expert), tokens)
        after = first + tl.cdiv(end - start, BLOCK_M) * tiles_n
        if (mine >= first) & (mine < after):
            row = start + (mine - first) // tiles_n * BLOCK_M
            column = (mine - first) % tiles_n * BLOCK_N
            acc = described_tile(
                x_desc, w_desc, expert, row, column, K, BLOCK_M, BLOCK_N, BLOCK_K, BY_COLUMNS
            )
            masked_store(out_ptr, acc, row, column, end, N, stride_om)
        first = after
        start = end


# %%
# The descriptors are made on the host. Their tiles are of two kinds, since a matrix of an expert
# may be stored by rows or, as linear layers have it, by columns.


def describe_x(x, block_m, block_k):
    """Return a descriptor for tiles of *x*."""
    return TensorDescriptor(x, x.shape, x.stride(), [block_m, block_k])


def describe_w(w, block_k, block_n):
    """Return a descriptor for tiles of one expert of *w*, and whether w is stored by columns."""
    by_columns = w.stride(2) != 1
    if by_columns:
        w = w.mT
    block = [1, block_n, block_k] if by_columns else [1, block_k, block_n]
    return TensorDescriptor(w, w.shape, w.stride(), block), by_columns


def described(x, w, offsets, out, block=(128, 128, 64), warps=8, stages=3):
    """Write the grouped product to *out*, with descriptors, one program for each tile."""
    (tokens, K), (experts, _, N) = x.shape, w.shape
    block_m, block_n, block_k = block
    w_desc, by_columns = describe_w(w, block_k, block_n)
    grid = ((divide_up(tokens, block_m) + experts) * divide_up(N, block_n),)
    described_kernel[grid](
        describe_x(x, block_m, block_k), w_desc, out, offsets, experts, tokens, K, N, out.stride(0),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, BY_COLUMNS=by_columns,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip


if HAS_DESCRIPTORS:
    x, w, offsets, ends = draw_problem([5, 0, 70, 1, 0, 33], K=48, N=72)
    for weights in (w, w.mT.contiguous().mT):
        out = torch.empty(x.shape[0], w.shape[2], dtype=x.dtype, device=DEVICE)
        described(x, weights, offsets, out, block=(64, 64, 32), warps=4)
        assert_right(out, x, w, ends)
    print("with descriptors, and weights by rows or by columns: right")
else:
    print("This GPU has no tensor descriptors: from here on, only the first kernel runs on it.")

# %%
# Step 3: Programs that stay
# --------------------------
#
# When a program ends and the next one starts on the same SM, nothing is multiplied for a while, and
# each new program walks along the experts first. A **persistent** program does the walk once. It
# keeps a table, in registers, of what it has found: for each expert, how many tiles there are up
# to and with its own (``last``, a running sum, which is what ``tl.cumsum`` computes), and the row
# behind its last one (``ends``). Whose tile is number *t*? That of the expert before which exactly
# those experts lie whose ``last`` is *t* or less. So finding it is a comparison and a sum over the
# table, without a loop:


@triton.jit
def load_table(offsets_ptr, experts, tokens, EXPERTS: tl.constexpr):
    """Return (ends, rows) of each expert; what is behind the last expert has no rows."""
    expert = tl.arange(0, EXPERTS)  # a power of two, at least as many as there are experts
    here, before = expert < experts, (expert > 0) & (expert < experts)
    ends = tl.load(offsets_ptr + expert, mask=here, other=0)
    starts = tl.load(offsets_ptr + expert - 1, mask=before, other=0)
    ends = tl.minimum(ends, tokens)
    return ends, tl.where(here, ends - tl.minimum(starts, tokens), 0)


@triton.jit
def find(tile, last, ends):
    """Return (expert of *tile*, number of its first tile, its first row)."""
    passed = last <= tile
    expert = tl.sum(passed.to(tl.int32), axis=0)
    first = tl.max(tl.where(passed, last, 0), axis=0)
    start = tl.max(tl.where(passed, ends, 0), axis=0)
    return expert, first, start


@triton.jit
def persistent_kernel(
    x_desc, w_desc, out_ptr, offsets_ptr, experts, tokens, K, N, stride_om,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BY_COLUMNS: tl.constexpr,
    EXPERTS: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of all tiles."""
    ends, rows = load_table(offsets_ptr, experts, tokens, EXPERTS)
    tiles_n = tl.cdiv(N, BLOCK_N)
    last = tl.cumsum(tl.cdiv(rows, BLOCK_M), axis=0) * tiles_n
    tiles = tl.max(last, axis=0)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        expert, first, start = find(tile, last, ends)
        end = tl.minimum(tl.load(offsets_ptr + expert), tokens)
        tiles_m = tl.cdiv(end - start, BLOCK_M)
        row = start + (tile - first) % tiles_m * BLOCK_M
        column = (tile - first) // tiles_m * BLOCK_N
        acc = described_tile(
            x_desc, w_desc, expert, row, column, K, BLOCK_M, BLOCK_N, BLOCK_K, BY_COLUMNS
        )
        masked_store(out_ptr, acc, row, column, end, N, stride_om)


# %%
# ``passed``
#     Experts without a token need no special case: their ``last`` is that of the expert before, so
#     they are passed together with it.
# ``EXPERTS``
#     The table is a block, and so its length is a power of two and known to the compiler. The
#     number of experts itself is not: the same kernel serves all numbers up to that.
# ``% tiles_m`` and ``// tiles_m``
#     The tiles of an expert are numbered down the columns. Those that follow each other need the
#     same tile of ``w[expert]``, and they run at the same time. So each matrix comes from memory
#     once, however many rows the expert has.
#
# The steps below it are known from :doc:`03-matrix-multiplication`: as many programs as fit on the
# GPU at the same time, and ``flatten=True``, so that the loads for the next tile, be it another
# expert's, are under way while this one is finished.
#
# Step 4: Whole tiles, and what is left over
# ------------------------------------------
