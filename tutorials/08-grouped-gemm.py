"""
Grouped matrix multiplication
=============================

Many large language models are **mixtures of experts**: a layer has many matrices of weights, one
for each *expert*, and every token is sent to a few of them. What is left to compute is a pile of
products of very different heights (a *ragged* batch), which the GPU alone knows. You will compute
the pile with one launch, ``grouped_mm(x, w, offsets)``, which gives what ``torch._grouped_mm``
gives, and learn

* why a loop of products is slow though each product is fast, and what padding wastes;
* how a program finds its tile when the number of tiles is not known at the launch;
* how one **tensor descriptor** serves a whole stack of matrices;
* how **persistent** programs walk over the tiles of all experts as if they were one product;
* which tile suits experts with many tokens, and which suits experts with few.

You should know :doc:`tiles <03-matrix-multiplication>`, and :doc:`waves, descriptors and persistent
programs <03b-full-waves>`.

.. ladder::
"""

# %%

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_fold_output = True
# sphinx_gallery_thumbnail_number = 3
# sphinx_gallery_level = "beyond"
import functools
import sys  # for shared/
from dataclasses import dataclass
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.measuring import geometric_mean, measure, rates, significant, warm_up, write_rows
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%

# sphinx_gallery_fold = "brings the ladder of steps and the claims"
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder

# %%

# sphinx_gallery_fold = "imports Triton and its tensor descriptors"
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# %%
# What a mixture of experts computes
# ----------------------------------
#
# A small network, the *router*, has sent each token to an expert, and the tokens have been sorted
# by expert. So there is
#
# * ``x``, a matrix of *tokens* × *K*, one row for each token;
# * ``w``, a stack of *experts* matrices of *K* × *N*;
# * ``offsets``, for each expert the row of ``x`` behind its last one. Expert *e* has the rows from
#   ``offsets[e - 1]`` (or 0) up to ``offsets[e]``, which may be none.
#
# The rows of expert *e* are multiplied by ``w[e]``. In PyTorch that is a loop. Every token is
# multiplied by one matrix, whichever it is, so the operations are those of *one* product of
# *tokens* × *K* by *K* × *N*, and this **dense product** is the ceiling. The bytes are another
# matter: every expert that has a token must read a matrix of its own. With hundreds of tokens for
# an expert that is compute-bound. With a few dozen, each number of a matrix is used a few dozen
# times only: memory-bound, and the dense product, which reads one matrix instead of all, is out of
# reach. Both exist in the same model: many tokens at a time in training, few in serving.

# sphinx_gallery_fold = "computes the product in a loop, with PyTorch"


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

# sphinx_gallery_fold = "counts operations and bytes of five layers, and draws group sizes"
# sphinx_gallery_fold_output = True
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


# sphinx_gallery_fold = "finds what the GPU can do, and counts what a loop and padding waste"
# sphinx_gallery_fold_output = True
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
for experts, tokens, _, N in CASES:
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
# The tiles of all products are independent of each other. Number them through: first all tiles of
# expert 0, then those of expert 1. One program computes one tile. To find out which, it walks along
# the experts and counts tiles, until it has found the expert that its number falls into. From there
# on it is the first kernel of :doc:`03-matrix-multiplication`.


@triton.jit(do_not_specialize=["experts", "tokens"])
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
#     Each expert ends where ``offsets`` says, *on the GPU*: the launch does not need to know it.
#     The mask of the store keeps a program from writing into the rows of the next expert. (The
#     minimum is a safety belt: offsets that are too large must not make a program write behind
#     ``out``.)
# ``range(experts)``
#     A loop of scalars, the same for all threads of the program. Those of its iterations that
#     find somebody else's tile do next to nothing.
#
# But how many programs must be launched, if the number of tiles is not known? Enough for the worst
# case. Each expert can have one row of tiles that is not full; so there are at most *experts* more
# rows of tiles than the tokens would fill. A program that finds no tile ends at once.


def one_launch(x, w, offsets, out, block=None, warps=8, stages=3):
    """Write the grouped product to *out*; the simplest kernel, any strides."""
    (tokens, K), (experts, _, N) = x.shape, w.shape
    fits = SHARED_BYTES >= 3 * (128 + 128) * 64 * 2  # three stages of large tiles
    block_m, block_n, block_k = block or ((128, 128, 64) if fits else (64, 64, 32))
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
one_launch(x, w, offsets, out)
assert_right(out, x, w, ends)
print("six experts, two of them without a token: right")

# %%
# Why the two obvious ways lose
# -----------------------------
#
# What has one launch won? Above step 1, the fold that *counts what a loop and padding waste* has a
# table for five layers.
#
# **The loop** makes as many launches as there are experts. Preparing a launch takes the CPU some
# microseconds, and when the products are small, the GPU is done sooner than that. Each product has
# a last wave of its own (:doc:`03b-full-waves`): the table has the share of the SMs that
# are busy on average, if tiles of 128 × 256 are computed in waves. And ``ends`` is a *list*, on the
# CPU. The router has computed the offsets on the GPU, so somebody must have fetched them, which
# means waiting until the GPU has done all its work, and leaving it idle until the next launch
# arrives. To be fair to the loop, we shall not count that.
#
# **Padding** fills all groups up to the largest one, with zeros. Then it is a batch of equal
# products, which a library computes in one call. The table has how many rows that multiplies for
# each row that is needed.
#
# Step 2: One descriptor for the whole stack
# ------------------------------------------
#
# A tensor descriptor (:doc:`03b-full-waves` introduces them) lets the hardware fetch a
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

# sphinx_gallery_difference = "one_launch_kernel"


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


@triton.jit(do_not_specialize=["experts", "tokens", "K"])
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
    x, w, offsets, ends = draw_problem([5, 0, 70, 1, 0, 33], K=48, N=80)
    for weights in (w, w.mT.contiguous().mT):
        out = torch.empty(x.shape[0], w.shape[2], dtype=x.dtype, device=DEVICE)
        described(x, weights, offsets, out)
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

# sphinx_gallery_difference = "described_kernel"


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


@triton.jit(do_not_specialize=["experts", "tokens", "K"])
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
#     number of experts itself is not: the same kernel serves all numbers up to that. (Arguments
#     that are named in ``do_not_specialize`` get no version of the kernel of their own when they
#     are 1 or divisible by 16, as others do. The number of tokens is another one each time.)
# ``% tiles_m`` and ``// tiles_m``
#     The tiles of an expert are numbered down the columns. Those that follow each other need the
#     same tile of ``w[expert]``, and they run at the same time. So each matrix comes from memory
#     once, however many rows the expert has.
#
# The rest is known from :doc:`03b-full-waves`: as many programs as fit on the GPU at the
# same time, and ``flatten=True``, so that the loads for the next tile, be it another expert's, are
# under way while this one is finished.

# sphinx_gallery_fold = "launches the persistent kernel for any plan"


@dataclass(frozen=True)
class Plan:
    """How to compute a grouped product: its tiles, and what one program gets to work with."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int  # of the pipeline of loads
    share: int  # so many programs run on one SM, all at the same time


def run_plan(plan, x, w, offsets, out):
    """Write the grouped product to *out*, computed by *plan*."""
    (tokens, K), (experts, _, N) = x.shape, w.shape
    w_desc, by_columns = describe_w(w, plan.block_k, plan.block_n)
    most = (divide_up(tokens, plan.block_m) + experts) * divide_up(N, plan.block_n)  # tiles
    persistent_kernel[(min(PROGRAMS * plan.share, most),)](
        describe_x(x, plan.block_m, plan.block_k), w_desc, out, offsets, experts, tokens, K, N,
        out.stride(0), BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, BLOCK_K=plan.block_k,
        BY_COLUMNS=by_columns, EXPERTS=max(32, triton.next_power_of_2(experts)),
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


PROGRAMS = SMS if ON_GPU else 5  # the interpreter runs one after the other: a few will do
if HAS_DESCRIPTORS:
    x, w, offsets, ends = draw_problem([5, 0, 70, 1, 0, 33], K=48, N=80)
    out = torch.empty(x.shape[0], w.shape[2], dtype=x.dtype, device=DEVICE)
    run_plan(Plan(128, 128, 64, warps=4, stages=3, share=1), x, w, offsets, out)
    assert_right(out, x, w, ends)
    print("with persistent programs: right")

# %%
# Step 4: Tiles for many tokens, and for few
# ------------------------------------------
#
# A dense product is fastest with the largest tile whose sum fits into the registers. Here three
# things speak for tiles that are not as high:
#
# **Rows that nobody needs.** Each expert has a last row of tiles that is, on average, half empty.
# The tensor cores multiply it all the same. The picture shows how many rows are multiplied for each
# row that is needed, if tiles are 64, 128 or 256 rows high.
#
# **Bytes.** If an expert has so few tokens that its matrix is hardly used, time is bytes, and a low
# tile loses nothing. What counts then is that many loads are under way: several programs share an
# SM, and where one waits, another one can work.
#
# **Tails.** Lower tiles are more tiles, and the last wave of more tiles wastes less.
#
# And one thing speaks for them to be *wide*: a low tile that is wide does as many products with
# each number of ``x``. It has to fetch more of ``w``; but the tiles that lie above and below it, of
# the same expert, are computed at the same time and need the same part of ``w``, so most of that
# comes from the L2 cache.


# sphinx_gallery_fold = "draws how many rows are multiplied for each row that is needed"
fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
means = [8, 16, 32, 64, 128, 256, 512, 1024, 2048]
styles = zip((64, 128, 256), ("#1b6ca8", "#2e8b57", "#d1495b"), ("-", "-.", ":"), strict=True)
for height, colour, line in styles:
    wasted = []
    for mean in means:
        sizes = group_sizes(64, 64 * mean, True).tolist()
        wasted.append(sum(divide_up(n, height) * height for n in sizes) / sum(sizes))
    ax.plot(means, wasted, color=colour, linestyle=line, marker="o", label=f"{height} rows")
ax.axhline(1, color="#444444", linestyle="--", label="only what is needed (floor)")
ax.set(xscale="log", yscale="log", xlabel="tokens an expert, on average")
ax.set(ylabel="rows multiplied / rows needed")
ax.set_title("64 experts of skewed sizes, by the height of a tile")
ax.set_xscale("log", base=2)
ax.legend()
ax.grid(alpha=0.3)
plt.show()

# %%
# So there are three plans. What they are chosen by is known without asking the GPU: how many tokens
# an expert has *on average*, and K, as a tile that is done after a few steps needs a second program
# beside it, which multiplies while this one stores its result and finds its next tile.


def fit(plan):
    """Return *plan* with as many stages, and programs on an SM, as shared memory has room for."""
    step = (plan.block_m + plan.block_n) * plan.block_k * 2  # bytes
    for share in range(plan.share, 0, -1):
        stages = min(plan.stages, (SHARED_BYTES // share - 16384) // step)  # some for storing
        if stages >= 2:
            break
    return Plan(plan.block_m, plan.block_n, plan.block_k, plan.warps, max(stages, 1), share)


FEW = fit(Plan(64, 128, 64, warps=4, stages=4, share=2))
PAIR = fit(Plan(128, 128, 64, warps=4, stages=3, share=2))
WIDE = fit(Plan(64, 256, 64, warps=8, stages=4, share=1))  # with 5, an H200 scattered


def choose_plan(experts, tokens, K, N):
    """Return a plan for a grouped product, from what the host knows."""
    if tokens <= 64 * experts:
        return FEW
    # Tiles of 256 columns only where none of them sticks out, and where a tile takes long.
    return WIDE if N % 256 == 0 and K >= 4096 else PAIR


table = []
for case in CASES:
    plan = choose_plan(*case)
    tile = f"{plan.block_m} × {plan.block_n}"
    table.append((*case, case[1] // case[0], tile, plan.stages, plan.share))
headers = [
    "experts",
    "tokens",
    "K",
    "N",
    "tokens an\nexpert",
    "tile",
    "stages",
    "programs\non an SM",
]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# What was tried, and is not here: computing whole tiles of all experts first, with large tiles and
# without masks, and the rows that are left over at the end, with small ones. It wastes almost no
# row, and lost all the same on the GPU that this page was written on. The left-over rows need the
# matrix of their expert, which by then has long been evicted from the cache, and comes from memory
# a second time.
#
# The launcher
# ------------
#
# What is left is the function for users. Where ``x`` or ``w`` cannot be described, or the GPU has
# no descriptors, it falls back to the first kernel, which takes any strides.


# sphinx_gallery_fold = "checks the arguments"
DTYPES = (torch.bfloat16, torch.float16)


def check_arguments(x, w, offsets):
    """Raise TypeError or ValueError, naming the argument, where ``grouped_mm`` cannot go on."""
    for name, t, dims in (("x", x, 2), ("w", w, 3), ("offsets", offsets, 1)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dim() != dims:
            raise ValueError(f"{name} must have {dims} dimensions, but has shape {tuple(t.shape)}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
    for name, t in (("x", x), ("w", w)):
        if t.dtype not in DTYPES:
            raise TypeError(f"{name} must be bfloat16 or float16, but its dtype is {t.dtype}")
    if w.dtype != x.dtype:
        raise TypeError(f"w must have the dtype of x, {x.dtype}, but has {w.dtype}")
    if offsets.dtype != torch.int32:
        raise TypeError(f"offsets must be int32, but its dtype is {offsets.dtype}")
    if x.shape[1] != w.shape[1]:
        raise ValueError(
            f"x must have as many columns as each matrix of w has rows: {tuple(x.shape)}, "
            f"{tuple(w.shape)}"
        )
    if offsets.shape[0] != w.shape[0]:
        raise ValueError(
            f"offsets must have one number for each expert, {w.shape[0]}, but has "
            f"{offsets.shape[0]}"
        )


def can_describe(t):
    """Say if rows of *t*, or columns, are contiguous, and all start at multiples of 16 bytes."""
    *outer, last = t.stride()
    aligned = all(stride > 0 and stride * t.element_size() % 16 == 0 for stride in outer)
    return last == 1 and aligned and t.data_ptr() % 16 == 0 and t.stride(-2) >= t.shape[-1]


# %%


def grouped_mm(x, w, offsets):
    """Return the rows of *x*, each multiplied by the matrix of its expert.

    Sums are kept in fp32 and rounded once. As with ``torch._grouped_mm``, the offsets stay on the
    GPU, so they are not checked: they must not decrease. Rows of *x* behind the last offset belong
    to no expert, and what the result has in their place is undefined.

    Args:
        x: Matrix of tokens × K in bf16 or fp16, sorted by expert.
        w: Stack of experts × K × N, of the same dtype; any strides. It is fastest if rows, or the
            columns of each matrix, are contiguous and start at multiples of 16 bytes.
        offsets: int32, one number for each expert: the row of *x* behind its last one.

    Raises:
        TypeError: An argument is no tensor, or has another dtype.
        ValueError: The shapes or devices do not fit.
    """
    check_arguments(x, w, offsets)
    (tokens, K), (experts, _, N) = x.shape, w.shape
    out = torch.empty(tokens, N, dtype=x.dtype, device=x.device)
    if not ON_GPU and x.dtype == torch.bfloat16:  # the interpreter computes bf16 wrongly
        x, w, out = x.float(), w.float(), out.float()
    if not out.numel() or not w.numel():
        out.zero_()  # nothing, or sums over nothing
    elif (
        HAS_DESCRIPTORS
        and can_describe(x)
        and N % 8 == 0
        and (can_describe(w) or can_describe(w.mT))
    ):
        run_plan(choose_plan(experts, tokens, K, N), x, w, offsets, out)
    else:
        one_launch(x, w, offsets, out)
    return out.bfloat16() if out.dtype == torch.float32 else out


# %%
# Is it right?
# ------------
#
# The reference is the loop, in float64. Each result is rounded once to its dtype, and the fp32 sum
# before that has an error that grows with K (:doc:`03-matrix-multiplication` explains the two
# tolerances). What matters here are the awkward sizes: no token at all, one, all with one expert,
# experts whose rows end one before a tile, or one behind it.

torch.manual_seed(0)
awkward = [[0, 0, 3], [1], [0, 200, 0, 0], [127, 128, 129, 0, 1], [64, 65, 63], [5] * 31, [0, 0]]
shapes = [(64, 96), (45, 77)]  # the second one cannot be described
problems = [draw_problem(sizes, K, N) for sizes in awkward for K, N in shapes]
# Weights by rows, and by columns:
problems += [(x, w.mT.contiguous().mT, *more) for x, w, *more in problems]
warm_up([functools.partial(grouped_mm, *problem[:3]) for problem in problems])
for x, w, offsets, ends in problems:
    assert_right(grouped_mm(x, w, offsets), x, w, ends)
print(f"grouped_mm is right for {len(awkward)} lists of sizes")

x, w, offsets, ends = draw_problem([40, 0, 24], 64, 96)
assert_right(grouped_mm(x, w[:, :, ::2], offsets), x, w[:, :, ::2], ends)  # every second column
assert_right(grouped_mm(x[:, 8:], w[:, 8:], offsets), x[:, 8:], w[:, 8:], ends)
# Rows behind the last expert's belong to nobody; what is in memory behind them must not change.
short = torch.tensor([30, 30, 50], dtype=torch.int32, device=DEVICE)
assert_right(grouped_mm(x, w, short)[:50], x[:50], w, short.tolist())
first = grouped_mm(x, w, offsets)
assert all(torch.equal(grouped_mm(x, w, offsets), first) for _ in range(3))
print("it is right for views, and gives the same bits every time")

if ON_GPU:
    problems = [
        draw_problem(group_sizes(experts, tokens, True), K, N)
        for experts, tokens, K, N in (CASES[0], *CASES[2:])
    ]
    warm_up([functools.partial(grouped_mm, *problem[:3]) for problem in problems])
    for x, w, offsets, ends in problems:
        assert_right(grouped_mm(x, w, offsets), x, w, ends)
    print("and it is right at full size")
del x, w, problems

# %%
# And the errors, each with what it was given:

x, w, offsets, _ = draw_problem([3, 5], 16, 24)
for wrong in (
    (x.float(), w, offsets),
    (x, w[0], offsets),
    (x[:, 1:], w, offsets),
    (x, w, offsets.long()),
    (x, w, offsets[:1]),
):
    try:
        grouped_mm(*wrong)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("grouped_mm should have refused this")

# %%
# The benchmark
# -------------
#
# Five layers, with random and with skewed sizes. Beside ``grouped_mm`` (called *triton* below) are
# timed: ``torch._grouped_mm``, which is PyTorch's kernel for the same thing; the loop over the
# vendor's library, with the sizes known on the CPU for free; and the dense product of the same
# work, which is the ceiling. The steps of this page are timed, too; step 3 with the tile that is
# best for a dense product. All rates count the operations that are needed, whatever else is
# multiplied.

# sphinx_gallery_fold = "times all cases, and writes the rows"
DENSE_TILE = fit(Plan(128, 256, 64, warps=8, stages=3, share=1))
OURS_NAMES = {"1 one launch": one_launch, "2 descriptors": described,
              "3 persistent": functools.partial(run_plan, DENSE_TILE)}  # fmt: skip


def library_call(x, w, offsets):
    """Return PyTorch's grouped product as a call without arguments, or None and say why."""
    call = functools.partial(getattr(torch, "_grouped_mm", None), x, w, offs=offsets)
    try:
        call()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        print(f"torch._grouped_mm is not available here: {str(error).splitlines()[0]}")
        return None
    return call


def benchmark(case, skewed):
    """Return rows (experts, tokens, K, N, skewed, provider, unit, median, p20, p80)."""
    experts, tokens, K, N = case
    x, w, offsets, ends = draw_problem(group_sizes(experts, tokens, skewed), K, N)
    out = torch.empty(tokens, N, dtype=x.dtype, device=DEVICE)
    calls = {
        "triton": lambda: grouped_mm(x, w, offsets),
        "loop": lambda: loop_reference(x, w, ends),
        "dense": lambda: torch.mm(x, w[0]),
    }
    if hasattr(torch, "_grouped_mm") and (call := library_call(x, w, offsets)):
        calls["grouped_mm"] = call
    for name, function in OURS_NAMES.items():
        if HAS_DESCRIPTORS or function is one_launch:
            calls[name] = functools.partial(function, x, w, offsets, out)
    work = operations(tokens, K, N) / 1e3
    warm_up(calls.values())
    times = measure(calls, rounds=60)
    order = ["triton", "grouped_mm", "loop", "dense", *OURS_NAMES]
    return [
        (*case, int(skewed), name, "TFLOPS", *rates(times[name], work))
        for name in order
        if name in times
    ]


COLUMNS = ["experts", "tokens", "K", "N", "skewed"]
rows = []
if ON_GPU:
    for case in CASES:
        for skewed in (False, True):
            rows += benchmark(case, skewed)
    write_rows("grouped-gemm-performance.csv", COLUMNS, rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%

# sphinx_gallery_fold = "prints the rates"
rate = {(row[:5], row[5]): row[7] for row in rows}
SETTINGS = list(dict.fromkeys(row[:5] for row in rows))


def print_rates(names):
    """Print the median rates of *names* in all cases."""
    table = []
    for setting in SETTINGS:
        *case, skewed = setting
        measured = [rate.get((setting, name)) for name in names]
        cells = [significant(value) if value else "" for value in measured]
        table.append((" ".join(map(str, case)), "skewed" if skewed else "random", *cells))
    headers = ["experts, tokens, K, N", "sizes", *(name.replace(" ", "\n", 1) for name in names)]
    print("TFLOPS, higher is better")
    align = {"stralign": "right", "colalign": ["left", "left"]}
    print(tabulate(table, headers, disable_numparse=True, **align))


if ON_GPU:
    print_rates(["triton", "grouped_mm", "loop", "dense"])
else:
    print("No table without a GPU.")

# %%

# sphinx_gallery_fold = "draws the rates"
BARS = {"triton": "#1b6ca8", "grouped_mm": "#d1495b", "loop": "#2e8b57", "dense": "#444444"}


def draw_rates():
    """Draw the rates as bars: a group for each case, in one panel for each kind of sizes."""
    fig, axes = plt.subplots(2, 1, figsize=(7, 8.5), sharex=True, layout="constrained")
    for ax, skewed in zip(axes, (0, 1), strict=True):
        mine = [setting for setting in SETTINGS if setting[4] == skewed]
        for i, (name, colour) in enumerate(BARS.items()):
            values = [rate.get((setting, name), 0.0) for setting in mine]
            hatch = "//" if name == "dense" else None
            at = [5 * j + i for j in range(len(mine))]
            ax.barh(at, values, color=colour, hatch=hatch, edgecolor="white", label=name)
        labels = [f"{e} × {k} × {n}\n{t} tokens" for e, t, k, n, _ in mine]
        ax.set_yticks([5 * j + 1.5 for j in range(len(mine))], labels)
        ax.invert_yaxis()
        ax.set_title("skewed sizes" if skewed else "random sizes")
        ax.grid(axis="x", alpha=0.3)
    axes[1].set(xlabel="TFLOPS, higher is better; dense is the ceiling")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=4)
    gpu = torch.get_device_module(DEVICE).get_device_name()
    fig.suptitle(f"Grouped products in bf16, TFLOPS\non {gpu}")
    plt.show()


if ON_GPU:
    draw_rates()
else:
    print("No plot without a GPU.")

# %%
# And what each step brought, in the same cases:

# sphinx_gallery_fold = "prints the steps, and the ladder"
LADDER_AT = (*CASES[3], 1)
if ON_GPU:
    print_rates([*OURS_NAMES, "triton", "dense"])
if ON_GPU and HAS_DESCRIPTORS:
    ladder(
        [
            ("Step 1: One launch for all experts", "programs find their tile",
             rate[LADDER_AT, "1 one launch"]),
            ("Step 2: One descriptor for the whole stack", "the hardware fetches tiles",
             rate[LADDER_AT, "2 descriptors"]),
            ("Step 3: Programs that stay", "a table in registers, loads across tiles",
             rate[LADDER_AT, "3 persistent"]),
            ("Step 4: Tiles for many tokens, and for few", "the tile fits the experts",
             rate[LADDER_AT, "triton"]),
        ],
        ceiling=("one dense product", rate[LADDER_AT, "dense"]),
        unit="TFLOPS",
        at="64 experts, 65536 tokens of skewed sizes, K = 2048, N = 1408, bf16",
    )  # fmt: skip
else:
    print("No ladder without a GPU that has descriptors.")

# %%
# How to read the bars
# --------------------
#
# **Few experts, many tokens** (the first two layers). Each product of the loop is large enough to
# fill the GPU by itself, and the loop does well. A grouped product can win only at the seams: where
# one product ends and the next one begins, and where the last wave of each is not full. If the
# sizes are skewed, some products are small, and the seams count for more.
#
# **Many experts, few tokens** (the third layer and the last one). Here the dense product is no fair
# ceiling any more: it reads one matrix, and the experts read all of theirs. The loop is limited by
# how fast the CPU can launch. Look at the rate of the loop, and at its number of launches in the
# table further up.
#
# **Many experts, many tokens** (the fourth). N is not a multiple of 256 here, so a tile of 256
# columns would waste half of itself in the last column of tiles. K is short, so a tile is done
# soon, and what lies between two tiles weighs more: the search, the store, the first loads. Two
# programs on each SM fill each other's pauses.
#
# What is left below the ceiling is what any grouped product has to do in addition: rows of tiles
# that are not full, and matrices that come from memory for each expert. Which of them weighs more,
# the GPU's counters can tell: :doc:`/programming-guide/chapter-5/profiling`.
#
# What the run showed
# -------------------

# sphinx_gallery_fold = "computes the claims of this page from the rows"


def ratios(ours, other, settings=None):
    """Return rate(ours) / rate(other) in the given *settings*, or in all that have both."""
    found = SETTINGS if settings is None else settings
    return [
        rate[setting, ours] / rate[setting, other]
        for setting in found
        if (setting, ours) in rate and (setting, other) in rate
    ]


def claim_all():
    """Claim what this page teaches about speed."""
    few = [setting for setting in SETTINGS if setting[1] <= 128 * setting[0]]
    many = [setting for setting in SETTINGS if setting[1] > 128 * setting[0]]
    scatter = spread([row for row in rows if row[5] in BARS and row[5] != "loop"])
    claim(
        "with up to 128 tokens an expert, one launch is at least twice as fast as a loop",
        min(ratios("triton", "loop", few)), at_least=2, spread=scatter,
        section="Why the two obvious ways lose",
    )  # fmt: skip
    claim(
        "with more tokens an expert, it is no slower than the loop, on average over the layers",
        geometric_mean(ratios("triton", "loop", many)), at_least=1, spread=scatter,
        section="How to read the bars",
    )  # fmt: skip
    if ratios("2 descriptors", "1 one launch"):
        steps = (
            ("descriptors beat pointers, on average over the cases", "2 descriptors",
             "1 one launch", "Step 2: One descriptor for the whole stack"),
            ("persistent programs beat one program a tile, on average", "3 persistent",
             "2 descriptors", "Step 3: Programs that stay"),
            ("tiles by the tokens of an expert beat the dense product's tile, on average",
             "triton", "3 persistent", "Step 4: Tiles for many tokens, and for few"),
        )  # fmt: skip
        for statement, ours, other, section in steps:
            value = geometric_mean(ratios(ours, other))
            claim(statement, value, at_least=1, spread=scatter, section=section)
    if found := ratios("triton", "grouped_mm"):
        claim(
            "no case is slower than torch._grouped_mm", min(found), at_least=1, spread=scatter,
            section="The benchmark",
        )  # fmt: skip
    claim(
        "with more than 128 tokens an expert, 0.8 of the dense product is reached in every case",
        min(ratios("triton", "dense", many)), at_least=0.8, spread=scatter,
        section="The benchmark",
    )  # fmt: skip


if ON_GPU:
    claim_all()
    print_claims()
    table = []
    for name in BARS:
        if name != "triton" and (found := ratios("triton", name)):
            values = min(found), geometric_mean(found), max(found)
            table.append((f"triton / {name}", *map(significant, values)))
    print(tabulate(table, ["ratio", "min", "geometric mean", "max"], disable_numparse=True))
else:
    print("No claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * Many products of one shape in two of three directions are *one* list of tiles. One launch is
#   enough, and no size needs to be known on the CPU.
# * A running sum over the experts, in registers, tells a program whose tile it has.
# * One descriptor of three dimensions serves a stack of matrices. What sticks out of an expert may
#   be loaded; it must not be stored.
# * The fewer tokens an expert has, the lower the tile should be; when time is bytes, keep many
#   loads under way.
# * Tiles that need the same part of a matrix should be computed at the same time, or the matrix
#   comes from memory twice.
#
# Exercises
# ---------
#
# 1. **The backward product.** The gradient of ``w[e]`` is a sum over the rows of expert *e*: now
#    the length of the sum differs from expert to expert. Which mask does that need? Write
#    ``grouped_gradient(x, g, offsets)``, where *g* is the gradient of the output; it returns those
#    of all experts, stacked. :doc:`Solution <solutions/08-backward>`.
# 2. **A gate.** The first layer of an expert is often ``silu(x @ w_gate[e]) * (x @ w_up[e])``.
#    Compute both products in one kernel, ``gated_experts(x, w_gate, w_up, offsets)``.
#    :doc:`Solution <solutions/08-gate>`.
#
# References
# ----------
#
# * Noam Shazeer, Azalia Mirhoseini, Krzysztof Maziarz, Andy Davis, Quoc Le, Geoffrey Hinton and
#   Jeff Dean: *Outrageously large neural networks: the sparsely-gated mixture-of-experts layer*,
#   ICLR 2017, https://arxiv.org/abs/1701.06538
# * Trevor Gale, Deepak Narayanan, Cliff Young and Matei Zaharia: *MegaBlocks: efficient sparse
#   training with mixture-of-experts*, MLSys 2023, https://arxiv.org/abs/2211.15841
