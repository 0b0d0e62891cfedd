r"""
Fused attention
===============

Attention is where a transformer lets each token look at all the others, and where it would drown in
memory if it were computed as the formula says. You will build the kernel that made long sequences
affordable, ``attention(q, k, v, causal=False, scale=None)`` for tensors ``[batch, heads, N,
head_dim]``, forward and backward, one idea at a time, and learn

* what the matrix of all scores would cost, and how an **online softmax** does without it;
* why the exponential is taken to the base of 2, and which tiles a **causal** kernel skips;
* why several small programs on a multiprocessor beat a large one here;
* what to keep for the **backward pass**, and why that has two and a half times the operations;
* how to see in what the compiler made that **registers** are the limit.

You should know the online softmax of :doc:`02-fused-softmax` and the tiles of
:doc:`03-matrix-multiplication`.

.. ladder::
"""

# %%

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_fold_output = True
# sphinx_gallery_thumbnail_number = 3
# sphinx_gallery_level = "transformer"
import atexit
import itertools
import math
import os
import sys  # for shared/
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.measuring import (
    geometric_mean,
    measure,
    rates,
    significant,
    warm_up,
    write_rows,
)
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%

# sphinx_gallery_fold = "brings the ladder of steps, the claims and the styles of curves"
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.plotting import OTHER, OURS, TORCH, plot_rates

# %%

# sphinx_gallery_fold = "imports Triton, and PyTorch's ways to compute attention"
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.tools.tensor_descriptor import TensorDescriptor

# %%
# The formula, and the matrix in its middle
# -----------------------------------------
#
# Each of *N* tokens has a **query**, a **key** and a **value**, rows of *d* numbers. A query is
# compared with every key; the softmax turns the scores into weights, by which the values are added:
#
# .. math::
#
#     O = \mathrm{softmax}(\mathrm{scale} \cdot Q K^T)\, V
#
# **Causal** attention hides the future: query *i* sees the keys up to *i*.
#
# That is two products of 2·N·N·d operations each, so **4·N²·d for a head**, and half of that if
# causal. The inputs and the output are N × d, but the scores are N × N: gigabytes, written, read,
# written as weights and read again. If they never leave the chip, a byte that moves is used for
# hundreds of operations or more: fused attention is **compute-bound**, and its speed is given in
# TFLOPS, 10¹² operations a second.

# sphinx_gallery_fold = "computes attention with PyTorch, all scores in memory"


def naive_attention(q, k, v, causal=False, scale=None):
    """Return the attention of [batch, heads, N, d] tensors, with the N × N matrix in memory."""
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


# %%

# sphinx_gallery_fold = "counts operations and bytes for some lengths"
# sphinx_gallery_fold_output = True


def operations(q, causal, keys=None):
    """Return the operations of the forward pass: two products, half of them if causal."""
    batch, heads, queries, d = q.shape
    return 4 * batch * heads * queries * (keys or queries) * d // (2 if causal else 1)


table = []
for n in (512, 4096, 16384):
    d, pairs = 64, 32 * 16384 // n  # 32 heads, 16384 tokens in all
    table.append(
        (n, *(significant(pairs * x / 1e9) for x in (4 * n * d * 2, n * n * 2, 4 * n * n * d)))
    )
print("32 heads of d = 64 in fp16, 16384 tokens in all:")
headers = ["N", "q, k, v, o in GB", "scores in GB", "Gflop"]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# Step 1: a softmax that never sees its whole row
# -----------------------------------------------
#
# A program takes ``BLOCK_M`` queries and walks over the keys and values, ``BLOCK_N`` at a time. The
# tile of scores lives in registers and is gone in the next round. The softmax needs the maximum and
# the sum of a whole row, which nobody has seen yet, so it is done **online**: ``m`` is the
# maximum *so far*, ``z`` the sum and ``acc`` the weighted sum of the values, both relative to
# ``m``. When a tile raises the maximum, what has been added up is corrected by
# :math:`e^{m_{old} - m_{new}}`.


@triton.jit
def online_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, keys, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for col in range(0, keys, BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BLOCK_M, BLOCK_N]
        cols = col + tl.arange(0, BLOCK_N)
        seen = cols[None, :] < keys
        if CAUSAL:
            seen &= cols[None, :] <= rows[:, None]
        s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        correction = tl.exp(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


# %%
# The tiles come by **tensor descriptors**: pointer, shape, strides and tile of a tensor in one
# object that is made on the host. ``desc.load([batch, head, row, 0])`` needs no offsets and no
# mask: what lies beyond the end is zero, and is not stored. (GPUs with hardware for it, the TMA, do
# that in one instruction; for others Triton makes pointers of it.)
#
# Between the two products, everything works on registers. The weights ``p`` are rounded to the
# dtype of ``v``, since tensor cores multiply 16-bit numbers; the sums stay in fp32.
# (``input_precision`` matters for fp32 inputs only, which would otherwise be rounded to 10 bits.)
# In the first round ``m`` is minus infinity and the correction 0.
#
# The launcher makes a descriptor of each tensor. It may have any strides, if the last is 1 and the
# others are multiples of 16 bytes; of other tensors we make a copy.

# sphinx_gallery_fold = "makes descriptors, launches a kernel, and checks it against float64"


def described(x, rows):
    """Return a descriptor of *x*, [batch, heads, N, d], with tiles of *rows* by d."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, x.shape[3]])


def ready(x):
    """Return *x* if a descriptor can describe it, and a copy of it otherwise."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    aligned = x.data_ptr() % 16 == 0 and all(s > 0 and s % 16 == 0 for s in strides)
    return x if aligned and x.stride(3) == 1 else x.clone(memory_format=torch.contiguous_format)


def run_step(kernel, q, k, v, causal, scale, tile=(128, 128), **options):
    """Launch the kernel of one of the first steps; a head of q has a head of k and v."""
    batch, heads, queries, d = q.shape
    o = torch.empty_like(q)
    tiles = described(q, tile[0]), *(described(x, tile[1]) for x in (k, v)), described(o, tile[0])
    grid = triton.cdiv(queries, tile[0]), batch * heads
    sizes = {"BLOCK_M": tile[0], "BLOCK_N": tile[1], "D": d, "CAUSAL": causal}
    kernel[grid](*tiles, heads, k.shape[2], scale, **sizes, **options)
    return o


# fp16 in the interpreter, which computes bf16 wrongly; on a GPU bf16, which is timed below.
DTYPE, HEAD_DIM = (torch.bfloat16, 128) if ON_GPU else (torch.float16, 32)


def check_step(kernel, scale, **options):
    """Raise AssertionError where the kernel of a step is not what float64 gives; say if it is."""
    # Triton compiles another kernel for numbers that 16 divides; those that are timed are such.
    heads, n = (16, 208) if ON_GPU else (2, 200)
    q, k, v = torch.randn(3, 1, heads, n, HEAD_DIM, device=DEVICE).to(DTYPE)
    for causal in (True,) if ON_GPU else (False, True):
        o = run_step(kernel, q, k, v, causal, scale * HEAD_DIM**-0.5, **options)
        expected = naive_attention(q.double(), k.double(), v.double(), causal)
        unit = 2 * torch.finfo(DTYPE).eps
        torch.testing.assert_close(o.double(), expected, rtol=unit, atol=unit)
    return f"{kernel.__name__} agrees with float64"


LARGE = {"num_warps": 8, "num_stages": 2}
torch.manual_seed(0)
print(check_step(online_kernel, 1.0, **LARGE))

# %%
# Step 2: skip the future, and mask only the edge of it
# -----------------------------------------------------
#
# For a causal kernel, half of these tiles are in vain. Seen from a block of queries that starts at
# ``row``, there are three kinds of tiles of keys:
#
# * those whose keys are all after the last query, which can be **skipped**;
# * those with keys up to the first query, all of them seen, which need **no mask**;
# * those between, on the diagonal, which have to be **masked** (so has the last, if it sticks out).
#
# The two borders are all that a program has to know. They are computed in plain Python, which
# ``triton.jit`` makes a function for kernels of; so the picture shows what the kernel does.


def borders(row, keys, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """Return (end of the whole tiles, end of all tiles) for the queries from *row* on."""
    whole = keys // BLOCK_N * BLOCK_N
    stop = keys
    if CAUSAL:
        whole = min(whole, (row + 1) // BLOCK_N * BLOCK_N)
        stop = min(stop, row + BLOCK_M)
    return whole, stop


borders_in_kernel = triton.jit(borders)

# %%

# sphinx_gallery_fold = "draws the tiles of a causal kernel"


def draw_tiles(queries, keys, block_m, block_n):
    """Draw the tiles that a causal kernel takes whole, masks, and skips; return their numbers."""
    fig, ax = plt.subplots(figsize=(7, 4.4))
    kinds = {"whole": "#cfe3f1", "masked": "#f5cdd3", "skipped": "white"}
    counts = dict.fromkeys(kinds, 0)
    for row in range(0, queries, block_m):
        whole, stop = borders(row, keys, block_m, block_n, True)
        for col in range(0, keys, block_n):
            kind = "whole" if col < whole else "masked" if col < stop else "skipped"
            counts[kind] += 1
            size = min(block_n, keys - col), min(block_m, queries - row)
            ax.add_patch(plt.Rectangle((col, row), *size, facecolor=kinds[kind], edgecolor="#888"))
            text = f"{kind[0]}" if kind != "skipped" else ""
            ax.text(col + size[0] / 2, row + size[1] / 2, text, ha="center", va="center")
    ax.plot([0, min(keys, queries)], [0, min(keys, queries)], color="#444444")
    ax.set(xlim=(-4, keys + 4), ylim=(queries + 4, -4), xlabel="key", ylabel="query")
    numbers = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    ax.set_title(f"Tiles of {block_m} queries by {block_n} keys:\n{numbers}")
    fig.tight_layout()
    plt.show()
    return counts


draw_tiles(queries=1000, keys=1000, block_m=128, block_n=64)

# %%
# In the kernel, one loop is enough::
#
#     whole, stop = borders_in_kernel(row, keys, BLOCK_M, BLOCK_N, CAUSAL)
#     for col in range(0, stop, BLOCK_N):
#         ...
#         if col >= whole:
#             ...  # the mask
#
# All threads take the same branch, so it costs next to nothing. (Two loops, the first without a
# mask, are twice the code, and in the backward pass they made the compiler wait for each product
# before it started the next.)

# sphinx_gallery_fold = "is the whole kernel of step 2"
# sphinx_gallery_difference = "online_kernel"


@triton.jit
def causal_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, keys, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; skip what they do not see."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = borders_in_kernel(row, keys, BLOCK_M, BLOCK_N, CAUSAL)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BLOCK_M, BLOCK_N]
        if col >= whole:
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= rows[:, None]
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        correction = tl.exp(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


# %%
# Step 3: powers of two
# ---------------------
#
# Each score costs *d* multiplications and additions in each product, which tensor cores do, and one
# exponential, which they cannot do. How bad is that? A multiprocessor of an H200 does 4096 such
# operations a cycle on its tensor cores, and 16 exponentials, in a unit of their own:

# sphinx_gallery_fold = "counts cycles for a tile of scores"


def cycles(d, block_m=64, block_n=128, tensor=4096, exponential=16):
    """Return the cycles a tile takes (in both products, in exponentials) on one multiprocessor."""
    scores = block_m * block_n
    return scores * 4 * d // tensor, scores // exponential


table = [(d, *cycles(d), significant(cycles(d)[1] / cycles(d)[0])) for d in (32, 64, 128)]
headers = ["d", "cycles of\ntensor cores", "cycles of\nexponentials", "ratio"]
print("A tile of 64 queries by 128 keys on one multiprocessor of an H200:")
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# At *d* = 64 the exponentials take as long as both products, and the rest of the softmax comes on
# top, done by the same threads. There are two things to do about it. The first is to do less.
#
# GPUs have an instruction for :math:`2^x`, none for :math:`e^x`: ``tl.exp(x)`` is :math:`2^{x \cdot
# \log_2 e}`, with a multiplication for each score. But the scores are multiplied by ``scale``
# anyway. If ``scale`` already contains :math:`\log_2 e`, one of the two is gone; and if the maximum
# is found *before* scaling (a positive scale does not change which score is the largest), scaling
# and subtracting become one instruction, a fused multiplication and addition (``tl.fma``)::
#
#     s = tl.dot(q, tl.trans(k))  # not scaled
#     ...
#     m_new = tl.maximum(m, tl.max(s, axis=1) * scale)
#     p = tl.exp2(tl.fma(s, scale, -m_new[:, None]))

# sphinx_gallery_fold = "is the whole kernel of step 3"
# sphinx_gallery_difference = "causal_kernel"


@triton.jit
def base_2_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, keys, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; *scale* contains log2(e)."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = borders_in_kernel(row, keys, BLOCK_M, BLOCK_N, CAUSAL)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N], not scaled
        if col >= whole:
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= rows[:, None]
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1) * scale)
        p = tl.exp2(tl.fma(s, scale, -m_new[:, None]))
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


LOG2_E = math.log2(math.e)

# %%
# Step 4: several small programs instead of a large one
# -----------------------------------------------------
#
# The second thing to do about the exponentials is to hide them. Tensor cores and the unit for
# exponentials can work at the same time, but not for one warp: a warp has to wait for its first
# product before it can take exponentials, and for these before the second product. While it waits,
# *another* warp can use the tensor cores, if there is one that is at another place in its loop.
#
# A product of matrices wants one large tile on each multiprocessor, since that uses each byte most
# often. Attention wants **several programs that know nothing of each other**: two or three of four
# warps each, with smaller tiles. How many fit is decided by the shared memory, which holds the
# tiles of ``k`` and ``v`` that are on their way (``num_stages``, of both), and by the registers,
# 65536 of 4 bytes on each multiprocessor of an NVIDIA GPU: three programs of 128 threads leave each
# thread 168. This is the choice by head dimension; GPUs with less shared memory get shorter tiles:

# sphinx_gallery_fold = "chooses tiles, warps and stages by head dimension and shared memory"


def shared_bytes():
    """Return the bytes of shared memory that a program can have; an H200's without a GPU."""
    if not ON_GPU:
        return 232448
    properties = torch.get_device_module(DEVICE).get_device_properties(DEVICE)
    return getattr(properties, "shared_memory_per_block_optin", 65536)


SHARED_BYTES = shared_bytes()
NVIDIA = DEVICE.type == "cuda" and not torch.version.hip


def fitting(tile, warps, stages, d, element_size, registers=None):
    """Return (tile, options of the launch), made smaller until the tiles fit."""
    own, other = tile  # rows that stay, rows that are walked over
    if element_size == 4:  # fp32 is for accuracy, not for speed
        own, other, warps, stages, registers = 64, 32, 4, 1, None
    while other > 16 and 2 * (own + stages * other) * d * element_size > SHARED_BYTES - 2048:
        stages, other = (stages - 1, other) if stages > 1 else (stages, other // 2)
    options = {"num_warps": warps, "num_stages": stages}
    if registers and NVIDIA:
        options["maxnreg"] = registers
    return (own, other), options


def forward_plan(q, keys):
    """Return (BLOCK_M, BLOCK_N) and the options of the launch for the forward pass."""
    d, size = q.shape[3], q.element_size()
    if d == 128:
        return fitting((128, 64), 4, 2, d, size)
    if keys <= 1024:
        return fitting((128, 64), 4, 3, d, size, registers=168)
    return fitting((64, 128), 4, 2, d, size)


for d in (64, 128):
    for n in (1024, 4096):
        example = torch.empty(1, 1, n, d, device="meta", dtype=torch.bfloat16)
        print(f"d = {d}, N = {n}: tile and options", *forward_plan(example, n))

# %%
# Step 5: the order of the programs
# ---------------------------------
#
# The programs of a causal kernel are of different length: the last block of queries sees all keys,
# the first a single tile. They start in the order of their numbers, as places become free. If the
# long ones come last, most of the GPU waits at the end for a few of them. So the **longest go
# first**, and the short ones fill the gaps.
#
# But all blocks of a head read the same keys and values, so they should run while these are in the
# L2 cache; with the longest of *all* heads first, the keys of all heads would be on their way at
# once. The compromise: take as many heads **together** as have their keys and values in half of the
# cache, and within them the longest blocks first. (Without a mask there is nothing to sort, and in
# short sequences nothing to wait for: two heads together.)


def place(program, blocks, heads, together):
    """Return (block, head) of a program: *together* heads at a time, the last blocks first."""
    first = program // (together * blocks) * together  # the first head of this section
    size = min(heads - first, together)  # the last section may have fewer heads
    rest = program - first * blocks
    return blocks - 1 - rest // size, first + rest % size


place_in_kernel = triton.jit(place)

# %%

# sphinx_gallery_fold = "draws when which program runs, in two orders"


def schedule(lengths, processors):
    """Return (start, length, processor) of programs that start in order, as places get free."""
    free, bars = [0] * processors, []
    for length in lengths:
        processor = free.index(min(free))
        bars.append((free[processor], length, processor))
        free[processor] += length
    return bars


def draw_order(blocks, heads, processors):
    """Draw the programs of a causal kernel on a few processors, in two orders."""
    fig, axes = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True)
    last_first = [place(i, blocks, heads, heads)[0] + 1 for i in range(blocks * heads)]
    orders = {"the shortest first": last_first[::-1], "the longest first": last_first}
    for ax, (name, lengths) in zip(axes, orders.items(), strict=True):
        bars = schedule(lengths, processors)
        for start, length, processor in bars:
            shade = plt.cm.Blues(0.15 + 0.6 * length / blocks)
            box = (start, processor), length, 0.85
            ax.add_patch(plt.Rectangle(*box, facecolor=shade, edgecolor="#444444"))
        end = max(start + length for start, length, _ in bars)
        ax.axvline(end, color="#d1495b", linestyle="--")
        ax.set(ylim=(-0.2, processors + 0.1), ylabel="processor", yticks=[])
        ax.set_title(f"{name}: {end} tiles long")
        print(f"{name}: all done after {end} tiles")
    axes[0].set_xlim(0, max(sum(lengths) / processors * 1.35, 1))
    axes[1].set_xlabel("time, in tiles of keys")
    fig.tight_layout()
    plt.show()


draw_order(blocks=8, heads=5, processors=7)

# %%
# The kernel as it will be used is that of step 3, with three additions: ``place`` says which block
# of which head a program has; ``GROUP`` heads of queries may share a head of keys (grouped heads);
# and it stores one number for each query, the **log-sum-exp** :math:`m + \log_2 z`, for the
# backward pass.

# sphinx_gallery_difference = "base_2_kernel"

COUNTS = ["heads", "queries", "keys", "total", "together"]  # of any value: no kernel of their own


@triton.jit(do_not_specialize=COUNTS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, heads, queries, keys, scale, total, together,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; *scale* contains log2(e)."""
    block, place = place_in_kernel(tl.program_id(0), tl.cdiv(queries, BLOCK_M), total, together)
    batch, head = place // heads, place % heads
    row = block * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = borders_in_kernel(row, keys, BLOCK_M, BLOCK_N, CAUSAL)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N], not scaled
        if col >= whole:
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= rows[:, None]
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1) * scale)
        p = tl.exp2(tl.fma(s, scale, -m_new[:, None]))
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))
    tl.store(lse_ptr + place.to(tl.int64) * queries + rows, m + tl.log2(z), mask=rows < queries)


# %%

# sphinx_gallery_fold = "computes the grid and how many heads go together, and launches"


def l2_bytes():
    """Return the size of the L2 cache, or that of an H200 where it is not known."""
    properties = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
    return getattr(properties, "L2_cache_size", 60 * 2**20)


L2_BYTES = l2_bytes()


def heads_together(walked, causal, group=1):
    """Return how many heads go together, if a program walks over two tensors like *walked*."""
    _, _, n, d = walked.shape
    if not causal or n <= 1024:
        return 2 * group
    return group * max(1, L2_BYTES // 2 // (2 * n * d * walked.element_size()))


COMPILED = {}  # what the compiler made of each kernel that was launched


def forward_anywhere(q, k, v, causal, scale):
    """Return (output, log-sum-exp to the base of 2) of attention, on any GPU."""
    (batch, heads, queries, d), keys = q.shape, k.shape[2]
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device)
    (block_m, block_n), options = forward_plan(q, keys)
    group, total = heads // k.shape[1], batch * heads
    COMPILED["o"] = attention_kernel[triton.cdiv(queries, block_m) * total,](
        described(q, block_m), described(k, block_n), described(v, block_n), described(o, block_m),
        lse, heads, queries, keys, scale * LOG2_E, total, heads_together(k, causal, group),
        GROUP=group, BLOCK_M=block_m, BLOCK_N=block_n, D=d, CAUSAL=causal, **options,
    )  # fmt: skip
    return o, lse


# %%
# Step 6: one product ahead
# -------------------------
#
# So far, what happens at the same time happens in different programs. But on Hopper GPUs (H100,
# H200) a product is *started* by a group of four warps, and runs on its own until somebody waits
# for it. While the weights of one tile are multiplied with the values, the group could do the
# softmax of the next tile. Plain Triton has no words for this: in this loop the compiler waits for
# each product where it stands, also if the next one is written above the softmax, and
# ``tl.range(…, warp_specialize=True)``, which asks it to look for such an overlap, is meant for the
# generations after Hopper. **Gluon** has: it is the layer below, in the same package, with the same
# ``@jit`` and the same Python. You say more yourself:
#
# * a **layout** says which thread holds which element of a tile;
# * shared memory is allocated by name, and a copy into it is started, not done;
# * a **barrier** (``mbarrier``) in shared memory counts arrivals, or bytes. It has *phases*: when
#   all that it expects has arrived, one phase ends and the next begins. ``wait(barrier, 0)`` waits
#   for the end of the first, third, … phase, ``wait(barrier, 1)`` for that of the others, and comes
#   back at once as long as the first has not ended.
#
# The price of this last stretch to a vendor's library is three times the code, for one kind of GPU,
# in a language whose names still change between releases. You may skip to the backward pass and
# miss nothing that you need there.

# sphinx_gallery_fold = "brings Gluon, whose names differ between releases"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor

start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # until 3.8
start_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
place_in_gluon = gluon.jit(place)
HOPPER = ON_GPU and NVIDIA and torch.cuda.get_device_capability(DEVICE) == (9, 0)
if HOPPER:  # Gluon's compiler reports objects of its own as leaked when Python ends; hush it
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
else:
    print("Steps 6 and 7 need a Hopper GPU; they are shown here, and not run.")

# %%
# Three small pieces first. ``fetch`` tells a barrier how many bytes to expect and starts the copy;
# ``release`` says that a buffer has been read: then the next tile is fetched into it.

# sphinx_gallery_fold = "makes barriers, starts copies, gives buffers free"


@gluon.jit
def barriers(COUNT: gl.constexpr, arrivals: gl.constexpr):
    """Return COUNT barriers whose phases end after so many arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=arrivals)
    return made


@gluon.jit
def fetch(desc, row, arrived, buffer, wanted=True):
    """Start to copy a tile to *buffer*; the barrier *arrived* will know when it is there."""
    mbarrier.expect(arrived, desc.block_type.nbytes, pred=wanted)
    start_load(desc, [row, 0], arrived, buffer, pred=wanted)


@gluon.jit
def release(desc, row, arrived, read, buffer, wanted, ALONE: gl.constexpr):
    """Say that *buffer* has been read: fetch what comes next, or tell the warp that does."""
    if ALONE:
        fetch(desc, row, arrived, buffer, wanted)
    else:
        mbarrier.arrive(read, count=1)


# %%
# And this is the loop, less its waiting for tiles and giving them free::
#
#     for j in range(1, tiles):
#         s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
#         acc = warpgroup_mma(p_left, v_tiles.index(before), acc, is_async=True)
#         s = warpgroup_mma_wait(1, deps=[s])  # the second product is still running
#         m_new = gl.maximum(m, gl.max(s, 1) * scale)
#         p = gl.exp2(s * scale - m_new[:, None])
#         ...  # corrects z, as before
#         acc, p_left = warpgroup_mma_wait(0, deps=[acc, p_left])
#         acc = acc * correction[:, None]
#
# It starts the first product of tile *j* and the second of tile *j − 1*, one behind the other, and
# waits until *one* is left. Products end in the order in which they were started, so the scores are
# there, and while the second product runs, this group of warps does the softmax. Only then does it
# wait for the rest, and corrects the sum. The tiles are taken **from the last to the first**: the
# one on the diagonal is masked before the loop, and in the loop there is no mask at all.

# sphinx_gallery_fold = "is the whole loop of step 6"


@gluon.jit
def attend(
    q, k_tiles, v_tiles, k_arrived, v_arrived, k_read, v_read, k_desc, v_desc,
    rows, last, tiles, count, scale,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    STAGES: gl.constexpr, ALONE: gl.constexpr,
):  # fmt: skip
    """Return (output, log-sum-exp) of BLOCK_M queries; *count* tiles were taken before."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUTPUT, k_width=2)
    acc = gl.zeros([BLOCK_M, D], gl.float32, layout=OUTPUT)
    zeros = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=SCORES)
    slot = count % STAGES
    mbarrier.wait(k_arrived.index(slot), count // STAGES & 1)
    s = warpgroup_mma(q, k_tiles.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    release(
        k_desc, last - STAGES * BLOCK_N, k_arrived.index(slot), k_read.index(slot),
        k_tiles.index(slot), tiles > STAGES, ALONE,
    )  # fmt: skip
    if CAUSAL:
        cols = (tiles - 1) * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SCORES))
        s = gl.where(cols[None, :] <= rows[:, None], s, -float("inf"))
    m = gl.max(s, 1) * scale
    p = gl.exp2(s * scale - m[:, None])
    z = gl.sum(p, 1)
    p_left = gl.convert_layout(p.to(q.dtype), LEFT)
    for j in range(1, tiles):
        slot, before = (count + j) % STAGES, (count + j - 1) % STAGES
        mbarrier.wait(k_arrived.index(slot), (count + j) // STAGES & 1)
        k = k_tiles.index(slot).permute((1, 0))
        s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
        mbarrier.wait(v_arrived.index(before), (count + j - 1) // STAGES & 1)
        acc = warpgroup_mma(p_left, v_tiles.index(before), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])  # the second product is still running
        release(
            k_desc, last - (j + STAGES) * BLOCK_N, k_arrived.index(slot), k_read.index(slot),
            k_tiles.index(slot), j + STAGES < tiles, ALONE,
        )  # fmt: skip
        m_new = gl.maximum(m, gl.max(s, 1) * scale)
        p = gl.exp2(s * scale - m_new[:, None])
        correction = gl.exp2(m - m_new)
        z = z * correction + gl.sum(p, 1)
        m = m_new
        acc, p_left = warpgroup_mma_wait(0, deps=[acc, p_left])
        release(
            v_desc, last - (j - 1 + STAGES) * BLOCK_N, v_arrived.index(before),
            v_read.index(before), v_tiles.index(before), j - 1 + STAGES < tiles, ALONE,
        )  # fmt: skip
        acc = acc * gl.convert_layout(correction, gl.SliceLayout(1, OUTPUT))[:, None]
        p_left = gl.convert_layout(p.to(q.dtype), LEFT)
    before = (count + tiles - 1) % STAGES
    mbarrier.wait(v_arrived.index(before), (count + tiles - 1) // STAGES & 1)
    acc = warpgroup_mma(p_left, v_tiles.index(before), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    if not ALONE:
        mbarrier.arrive(v_read.index(before), count=1)
    o = acc / gl.convert_layout(z, gl.SliceLayout(1, OUTPUT))[:, None]
    return o.to(q.dtype), m + gl.log2(z)


# %%
# The kernel around it allocates the buffers, fetches the first tiles, and stores the result through
# the buffer of the queries. Tensors are seen as matrices with a row for each token of each head, so
# lengths must be multiples of the tiles, and tensors contiguous. Everything else is left to the
# kernel of step 5.

# sphinx_gallery_fold = "allocates, fetches the first tiles, calls the loop, stores: step 6"


@gluon.jit(do_not_specialize=COUNTS)
def ahead_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys, scale, total, together,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head with four warps."""
    block, head = place_in_gluon(gl.program_id(0), queries // BLOCK_M, total, together)
    row = block * BLOCK_M
    tiles = keys // BLOCK_N
    if CAUSAL:
        tiles = gl.minimum(tiles, (row + BLOCK_M + BLOCK_N - 1) // BLOCK_N)
    q = gl.allocate_shared_memory(q_desc.dtype, [BLOCK_M, D], q_desc.layout)
    k_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES, BLOCK_N, D], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES, BLOCK_N, D], v_desc.layout)
    q_arrived = barriers(1, 1)
    k_arrived = barriers(STAGES, 1)
    v_arrived = barriers(STAGES, 1)
    fence_async_shared()
    last = head // GROUP * keys + (tiles - 1) * BLOCK_N
    fetch(q_desc, head * queries + row, q_arrived.index(0), q)
    for i in gl.static_range(STAGES):
        fetch(k_desc, last - i * BLOCK_N, k_arrived.index(i), k_tiles.index(i), i < tiles)
        fetch(v_desc, last - i * BLOCK_N, v_arrived.index(i), v_tiles.index(i), i < tiles)
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, SCORES))
    mbarrier.wait(q_arrived.index(0), 0)
    o, lse = attend(
        q, k_tiles, v_tiles, k_arrived, v_arrived, k_arrived, v_arrived, k_desc, v_desc,
        rows, last, tiles, 0, scale, BLOCK_M, BLOCK_N, D, CAUSAL, STAGES, True,
    )  # fmt: skip
    q.store(o)
    fence_async_shared()
    start_store(o_desc, [head * queries + row, 0], q)
    gl.store(lse_ptr + head.to(gl.int64) * queries + rows, lse)
    tma.store_wait(0)


# %%
# Step 7: roles
# -------------
#
# At *d* = 128, two things are left to gain. The tiles are twice as wide, so fewer programs fit, and
# each keeps buffers of its own for the same keys and values. And between two programs there is a
# gap: the barriers are made and the first tiles fetched before anything can be multiplied.
#
# So let one large program stay on each multiprocessor, and give its warps **roles**. One warp only
# fetches tiles, as far ahead as there are buffers. Two groups of four warps, with 64 queries each,
# share what it fetches. They never wait for each other, so one multiplies while the other is in its
# softmax. (The fetching warp needs hardly any registers, and leaves them to the others.) The
# program goes on to the next block of queries in the same loop, and by the time the groups have
# stored their results, its first tiles are there. (Long causal blocks are of such different length
# that each gets a program of its own: then the GPU deals them out.)
#
# Two barriers go with each buffer now: *arrived*, for which the groups wait, and *read*, which both
# groups tell when they are done with it, and for which the fetching warp waits. The groups run the
# loop of step 6, and this is that of the warp that fetches for them::
#
#     for j in range(tiles):
#         mbarrier.wait(k_read.index(slot), phase)
#         fetch(k_desc, row, k_arrived.index(slot), k_tiles.index(slot))
#         mbarrier.wait(v_read.index(slot), phase)
#         fetch(v_desc, row, v_arrived.index(slot), v_tiles.index(slot))

# sphinx_gallery_fold = "fetches, and lets a group compute: the roles of step 7"


@gluon.jit
def fetching_warp(
    tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys, scale, total,
    together, GROUP: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Fetch queries, keys and values for one block of 128 queries after the other."""
    q_tiles, _, k_tiles, v_tiles = tiles_of
    q_arrived, k_arrived, v_arrived = arrived
    q_read, k_read, v_read = read
    count = 0
    for program in range(gl.program_id(0), total * (queries // 128), gl.num_programs(0)):
        turn = program // gl.num_programs(0)
        block, head = place_in_gluon(program, queries // 128, total, together)
        tiles = keys // BLOCK_N
        if CAUSAL:
            tiles = gl.minimum(tiles, (block * 128 + 128) // BLOCK_N)
        for half in gl.static_range(2):
            row = head * queries + block * 128 + half * 64
            mbarrier.wait(q_read.index(half), turn & 1 ^ 1)
            fetch(q_desc, row, q_arrived.index(half), q_tiles.index(half))
        for j in range(tiles):
            slot, phase = (count + j) % STAGES, (count + j) // STAGES & 1 ^ 1
            row = head // GROUP * keys + (tiles - 1 - j) * BLOCK_N
            mbarrier.wait(k_read.index(slot), phase)
            fetch(k_desc, row, k_arrived.index(slot), k_tiles.index(slot))
            mbarrier.wait(v_read.index(slot), phase)
            fetch(v_desc, row, v_arrived.index(slot), v_tiles.index(slot))
        count += tiles


@gluon.jit
def computing_group(
    HALF: gl.constexpr, tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc, lse_ptr,
    queries, keys, scale, total, together, GROUP: gl.constexpr, BLOCK_N: gl.constexpr,
    D: gl.constexpr, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute attention for one half of each block of 128 queries."""
    q_tiles, o_tiles, k_tiles, v_tiles = tiles_of
    q_arrived, k_arrived, v_arrived = arrived
    q_read, k_read, v_read = read
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_tile = o_tiles.index(HALF)
    count = 0
    for program in range(gl.program_id(0), total * (queries // 128), gl.num_programs(0)):
        turn = program // gl.num_programs(0)
        block, head = place_in_gluon(program, queries // 128, total, together)
        tiles = keys // BLOCK_N
        if CAUSAL:
            tiles = gl.minimum(tiles, (block * 128 + 128) // BLOCK_N)
        row = block * 128 + HALF * 64
        rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
        mbarrier.wait(q_arrived.index(HALF), turn & 1)
        o, lse = attend(
            q_tiles.index(HALF), k_tiles, v_tiles, k_arrived, v_arrived, k_read, v_read,
            k_desc, v_desc, rows, 0, tiles, count, scale, 64, BLOCK_N, D, CAUSAL, STAGES, False,
        )  # fmt: skip
        mbarrier.arrive(q_read.index(HALF), count=1)
        tma.store_wait(0)  # the result before this one has left the buffer
        o_tile.store(o)
        fence_async_shared()
        start_store(o_desc, [head * queries + row, 0], o_tile)
        gl.store(lse_ptr + head.to(gl.int64) * queries + rows, lse)
        count += tiles
    tma.store_wait(0)


# %%
# ``warp_specialize`` starts both groups and the fetching warp side by side: the first in the four
# warps of the launch, the others in 4 and in 1 more.

# sphinx_gallery_fold = "allocates buffers and barriers, and starts the roles: step 7"


@gluon.jit(do_not_specialize=COUNTS)
def roles_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys, scale, total, together,
    GROUP: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Compute attention for one block of 128 queries after the other, with nine warps."""
    dtype: gl.constexpr = q_desc.dtype
    q_tiles = gl.allocate_shared_memory(dtype, [2, 64, D], q_desc.layout)
    o_tiles = gl.allocate_shared_memory(dtype, [2, 64, D], o_desc.layout)
    k_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, D], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, D], v_desc.layout)
    q_arrived, q_read = barriers(2, 1), barriers(2, 1)
    k_arrived, k_read = barriers(STAGES, 1), barriers(STAGES, 2)
    v_arrived, v_read = barriers(STAGES, 1), barriers(STAGES, 2)
    fence_async_shared()
    tiles_of = q_tiles, o_tiles, k_tiles, v_tiles
    arrived, read = (q_arrived, k_arrived, v_arrived), (q_read, k_read, v_read)
    gl.warp_specialize(
        [
            (computing_group, (
                0, tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys,
                scale, total, together, GROUP, BLOCK_N, D, CAUSAL, STAGES,
            )),
            (computing_group, (
                1, tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys,
                scale, total, together, GROUP, BLOCK_N, D, CAUSAL, STAGES,
            )),
            (fetching_warp, (
                tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys,
                scale, total, together, GROUP, BLOCK_N, D, CAUSAL, STAGES,
            )),
        ],
        [4, 1],  # warps
        [240, 24],  # registers of a thread
    )  # fmt: skip


# %%
# At *d* = 64, three programs of step 6 fit on a multiprocessor. Whether they beat one with roles is
# measured below; here, each head dimension has its kernel:

# sphinx_gallery_fold = "launches the kernels of steps 6 and 7"


def suits_hopper(q, k):
    """Return whether the kernels of steps 6 and 7 can do this."""
    return (
        HOPPER
        and q.dtype in (torch.float16, torch.bfloat16)
        and q.shape[3] in (64, 128)
        and q.shape[2] % 128 == 0
        and k.shape[2] % 128 == 0
    )


def described_in_gluon(x, rows):
    """Return Gluon's descriptor of *x*, seen as a matrix, with tiles of *rows* rows."""
    matrix = x.reshape(-1, x.shape[3])
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for([rows, x.shape[3]], dtype)
    block = [rows, x.shape[3]]
    return GluonDescriptor(matrix, list(matrix.shape), list(matrix.stride()), block, layout)


def forward_on_hopper(q, k, v, causal, scale, roles):
    """Return (output, log-sum-exp to the base of 2), with roles or without."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    (batch, heads, queries, d), keys = q.shape, k.shape[2]
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device)
    group, total = heads // k.shape[1], batch * heads
    block_n = 128 if roles or d == 64 else 64
    described = [described_in_gluon(x, rows) for x, rows in ((q, 64), (k, block_n), (v, block_n))]
    numbers = queries, keys, scale * LOG2_E, total, heads_together(k, causal, group)
    sizes = {"GROUP": group, "BLOCK_N": block_n, "D": d, "CAUSAL": causal}
    if roles:
        kernel, grid, sizes["STAGES"] = roles_kernel, queries // 128 * total, 2
        if not causal or keys <= 1024:  # all blocks are equally long, or there are many
            grid = min(grid, torch.cuda.get_device_properties(DEVICE).multi_processor_count)
    else:
        kernel, grid = ahead_kernel, queries // 64 * total
        sizes |= {"BLOCK_M": 64, "STAGES": 2 if d == 64 else 3}
    COMPILED["o"] = kernel[grid,](
        *described, described_in_gluon(o, 64), lse, *numbers, **sizes, num_warps=4
    )
    return o, lse


def check_on_hopper(d):
    """Raise AssertionError where the kernel for head dimension *d* is not what float64 gives."""
    q, k, v = torch.randn(3, 1, 2, 384, d, device=DEVICE).bfloat16()
    o, _ = forward_on_hopper(q, k, v, True, d**-0.5, roles=d == 128)
    expected = naive_attention(q.double(), k.double(), v.double(), True)
    torch.testing.assert_close(o.double(), expected, rtol=2**-6, atol=2**-6)


def gluon_runs():
    """Return whether both kernels run here and are right; print what happened if not."""
    try:
        for d in (64, 128):
            check_on_hopper(d)
    except Exception as error:  # a release of Triton whose Gluon is another
        print(f"Steps 6 and 7 do not run here: {type(error).__name__}: {str(error)[:200]}")
        return False
    return True


def forward(q, k, v, causal, scale):
    """Return (output, log-sum-exp to the base of 2) of attention."""
    if suits_hopper(q, k):
        return forward_on_hopper(q, k, v, causal, scale, roles=q.shape[3] == 128)
    return forward_anywhere(q, k, v, causal, scale)


# %%
# The backward pass, and what it needs
# ------------------------------------
#
# Let :math:`dO` be the gradient of the output. With the weights :math:`P`, the chain rule says
#
# .. math::
#
#     dV = P^T dO \qquad dP = dO\, V^T \qquad dS = P \circ (dP - \delta) \qquad
#     dQ = \mathrm{scale} \cdot dS\, K \qquad dK = \mathrm{scale} \cdot dS^T Q
#
# where :math:`\delta_i = \sum_j P_{ij}\, dP_{ij}`: the third is the gradient of a softmax, as in an
# exercise of :doc:`02-fused-softmax`. Three questions remain.
#
# **Where do the weights come from?** Keeping them would be the N × N matrix again. They are
# computed a second time, from :math:`Q` and :math:`K`. Now the log-sum-exp pays off: :math:`P =
# 2^{S - \mathrm{lse}}` gives the final weights at once, with no maximum and no sum to look for.
#
# **And** :math:`\delta`? It is a sum over all keys. But :math:`\sum_j P_{ij} (dO_i \cdot V_j) =
# dO_i \cdot \sum_j P_{ij} V_j = dO_i \cdot O_i`: one product of two rows that are there already.
#
# **How much work is it?** Five products: the scores again, and :math:`dV, dP, dQ, dK`. The forward
# pass has two. So the backward pass has 2.5 times the operations, and that is what its rates count.
#
# Step 8: the gradient of the queries
# -----------------------------------
#
# :math:`dQ` sums over keys. A program owns a block of queries and walks over the keys, as before.
# On its way it computes :math:`\delta`, which the next kernel needs as well.


@triton.jit(do_not_specialize=COUNTS)
def query_gradient_kernel(
    q_desc, k_desc, v_desc, o_desc, do_desc, dq_desc, lse_ptr, delta_ptr,
    heads, queries, keys, scale, total, together, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute dQ and delta for BLOCK_M queries of one head."""
    block, place = place_in_kernel(tl.program_id(0), tl.cdiv(queries, BLOCK_M), total, together)
    batch, head = place // heads, place % heads
    row = block * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    do = do_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    o = o_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1)
    vector = place.to(tl.int64) * queries + rows
    tl.store(delta_ptr + vector, delta, mask=rows < queries)
    lse = tl.load(lse_ptr + vector, mask=rows < queries, other=float("inf"))  # so that p is 0
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = borders_in_kernel(row, keys, BLOCK_M, BLOCK_N, CAUSAL)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        v = v_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        log_p = tl.fma(s, scale, -lse[:, None])
        if col >= whole:
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= rows[:, None]
            log_p = tl.where(seen, log_p, -float("inf"))
        p = tl.exp2(log_p)
        ds = (p * (dp - delta[:, None])).to(k.dtype)
        dq = tl.dot(ds, k, dq, input_precision="ieee")
    dq = (dq * plain_scale).to(dq_desc.dtype)
    dq_desc.store([batch, head, row, 0], dq.reshape(1, 1, BLOCK_M, D))


# %%
# The weight of a key that is not seen is :math:`2^{-\infty} = 0`, so it adds nothing to a gradient.
#
# Step 9: the gradients of the keys and values
# --------------------------------------------
#
# :math:`dK` and :math:`dV` sum over queries. So a program owns a block of *keys* and walks over the
# queries::
#
#     s = tl.dot(k, tl.trans(q), input_precision="ieee")  # [BLOCK_N, BLOCK_M]
#     dp = tl.dot(v, tl.trans(do), input_precision="ieee")
#     p = tl.exp2(tl.fma(s, scale, -lse[None, :]))
#     dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
#     ds = (p * (dp - delta[None, :])).to(q.dtype)
#     dk = tl.dot(ds, q, dk, input_precision="ieee")
#
# The tile of scores is transposed, and not for elegance: :math:`dV = P^T dO` then has the tile that
# was just computed as its left operand, and tensor cores take that from registers. The other way
# round, it would have to go through shared memory to be transposed. :math:`dP` could be computed
# after :math:`dV`, with a tile less to keep; but so two products come one behind the other, and the
# exponentials after both.
#
# In a causal kernel the first queries do not see these keys: the loop begins at the diagonal. If
# several heads of queries share a head of keys, the program walks over all of them, so that no two
# programs add to the same gradient.

# sphinx_gallery_fold = "is the whole kernel of step 9"


@triton.jit(do_not_specialize=COUNTS)
def key_gradient_kernel(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, lse_ptr, delta_ptr, dq_ptr,
    heads, queries, keys, scale, total, together, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr, ATOMIC: tl.constexpr = False,
):  # fmt: skip
    """Compute dK and dV for BLOCK_N keys of one head of keys; with ATOMIC, add to dQ as well."""
    blocks = tl.cdiv(keys, BLOCK_N)
    block, place = place_in_kernel(tl.program_id(0), blocks, total, together)
    col = (blocks - 1 - block) * BLOCK_N  # here the first blocks have the longest way
    cols = col + tl.arange(0, BLOCK_N)
    batch, head = place // heads, place % heads  # of keys
    k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
    v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    start, masked = 0, 0
    if CAUSAL:
        start, masked = col // BLOCK_M * BLOCK_M, col + BLOCK_N - 1  # rows before it are masked
    if col + BLOCK_N > keys:
        masked = queries
    for member in range(GROUP):
        query_head = head * GROUP + member
        vectors = (batch * heads * GROUP + query_head).to(tl.int64) * queries
        for row in range(start, queries, BLOCK_M):
            rows = row + tl.arange(0, BLOCK_M)
            lse = tl.load(lse_ptr + vectors + rows, mask=rows < queries, other=float("inf"))
            delta = tl.load(delta_ptr + vectors + rows, mask=rows < queries, other=0.0)
            q = q_desc.load([batch, query_head, row, 0]).reshape(BLOCK_M, D)
            do = do_desc.load([batch, query_head, row, 0]).reshape(BLOCK_M, D)
            s = tl.dot(k, tl.trans(q), input_precision="ieee")  # [BLOCK_N, BLOCK_M]
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            log_p = tl.fma(s, scale, -lse[None, :])
            if row < masked:
                seen = cols[:, None] < keys
                if CAUSAL:
                    seen &= cols[:, None] <= rows[None, :]
                log_p = tl.where(seen, log_p, -float("inf"))
            p = tl.exp2(log_p)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            ds = (p * (dp - delta[None, :])).to(q.dtype)
            dk = tl.dot(ds, q, dk, input_precision="ieee")
            if ATOMIC:
                dq = tl.dot(tl.trans(k), ds, input_precision="ieee")  # [D, BLOCK_M]
                at = dq_ptr + (vectors + rows)[:, None] * D + tl.arange(0, D)[None, :]
                tl.atomic_add(at, tl.trans(dq), mask=(rows < queries)[:, None], sem="relaxed")
    dk = (dk * plain_scale).to(dk_desc.dtype).reshape(1, 1, BLOCK_N, D)
    dk_desc.store([batch, head, col, 0], dk)
    dv_desc.store([batch, head, col, 0], dv.to(dv_desc.dtype).reshape(1, 1, BLOCK_N, D))


# %%
# Both kernels together do seven products instead of five, because the scores and :math:`dP` are
# computed in each of them. The last lines of the loop are the way to five: with ``ATOMIC``, this
# kernel computes :math:`dQ` too. But a block of queries meets many blocks of keys, each in another
# program, so all of these add to the same rows of :math:`dQ` in memory, in fp32, in an order that
# nobody knows: the last bits differ from call to call. It also takes zeros to begin with, a pass
# that rounds in the end, and a tile more in registers. We keep it as an experiment, and time it
# below. What ``attention`` uses has no atomics, and gives **the same bits every time**.

# sphinx_gallery_fold = "chooses the tiles of the backward pass and launches both kernels"


def query_gradient_plan(q):
    """Return (BLOCK_M, BLOCK_N) and options of the launch for dQ."""
    d, size = q.shape[3], q.element_size()
    if d == 128:
        return fitting((128, 64), 8, 3, d, size)
    return fitting((64, 64), 4, 3, d, size)


def key_gradient_plan(q, atomic=False):
    """Return (BLOCK_N, BLOCK_M) and options of the launch for dK and dV."""
    d, size = q.shape[3], q.element_size()
    if atomic:
        return fitting((64, 32), 4, 3, d, size)
    return fitting((64, 64), 4, 2 if d == 128 else 3, d, size)


def query_gradient(q, k, v, o, do, lse, causal, scale):
    """Return (dQ, delta)."""
    (batch, heads, queries, d), keys = q.shape, k.shape[2]
    # Zeros, because autograd calls this in a thread of its own: the first call to the GPU brings it
    # the GPU's context, without which no descriptor can be made.
    dq, delta = torch.empty_like(q), torch.zeros_like(lse)
    (block_m, block_n), options = query_gradient_plan(q)
    group, total = heads // k.shape[1], batch * heads
    COMPILED["dq"] = query_gradient_kernel[triton.cdiv(queries, block_m) * total,](
        described(q, block_m), described(k, block_n), described(v, block_n), described(o, block_m),
        described(do, block_m), described(dq, block_m), lse, delta,
        heads, queries, keys, scale * LOG2_E, total, heads_together(k, causal, group), scale,
        GROUP=group, BLOCK_M=block_m, BLOCK_N=block_n, D=d, CAUSAL=causal, **options,
    )  # fmt: skip
    return dq, delta


def key_gradient(q, k, v, do, lse, delta, causal, scale, dq=None):
    """Return (dK, dV); with *dq*, fp32 zeros, add dQ / scale to it."""
    (batch, heads, keys, d), queries = k.shape, q.shape[2]
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    (block_n, block_m), options = key_gradient_plan(q, dq is not None)
    group, total = q.shape[1] // heads, batch * heads
    COMPILED["dk, dv"] = key_gradient_kernel[triton.cdiv(keys, block_n) * total,](
        described(q, block_m), described(k, block_n), described(v, block_n), described(do, block_m),
        described(dk, block_n), described(dv, block_n), lse, delta, lse if dq is None else dq,
        heads, queries, keys, scale * LOG2_E, total, heads_together(q, causal), scale,
        GROUP=group, BLOCK_M=block_m, BLOCK_N=block_n, D=d, CAUSAL=causal, ATOMIC=dq is not None,
        **options,
    )  # fmt: skip
    return dk, dv


# %%
# Kept for the backward pass are the inputs, the output, and one number a query.

# sphinx_gallery_fold = "makes both directions one function of autograd"


class Attention(torch.autograd.Function):
    """Attention with its gradients, for tensors that descriptors can describe."""

    @staticmethod
    def forward(ctx, q, k, v, causal, scale):
        """Return the output, and keep what the gradients need."""
        o, lse = forward(q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.causal, ctx.scale = causal, scale
        return o

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do):
        """Return the gradients of q, k and v."""
        q, k, v, o, lse = ctx.saved_tensors
        do = ready(do)
        dq, delta = query_gradient(q, k, v, o, do, lse, ctx.causal, ctx.scale)
        dk, dv = key_gradient(q, k, v, do, lse, delta, ctx.causal, ctx.scale)
        return dq, dk, dv, None, None


# %%

# sphinx_gallery_fold = "checks the arguments"


def check_arguments(q, k, v, scale):
    """Raise TypeError or ValueError where ``attention`` cannot do what is asked."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or x.dtype != q.dtype:
            raise TypeError(
                f"{name} must be float16, bfloat16 or float32, as q, but its dtype is {x.dtype}"
            )
        if x.ndim != 4:
            raise ValueError(
                f"{name} must be [batch, heads, N, head_dim], but has shape {tuple(x.shape)}"
            )
        if x.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {x.device}")
        if x.shape[3] not in (16, 32, 64, 128) or x.shape[3] != q.shape[3]:
            raise ValueError(
                f"{name} must have a head_dim of 16, 32, 64 or 128, as q, but has {x.shape[3]}"
            )
        if x.shape[0] != q.shape[0]:
            raise ValueError(f"{name} must have the batch of q, {q.shape[0]}, not {x.shape[0]}")
    if v.shape != k.shape:
        raise ValueError(f"v must have the shape of k, {tuple(k.shape)}, not {tuple(v.shape)}")
    if k.shape[2] == 0 or k.shape[1] == 0:
        raise ValueError(f"k must have heads and keys, but has shape {tuple(k.shape)}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q must have a multiple of the heads of k, {k.shape[1]}, but has {q.shape[1]}"
        )
    if not 0 < scale < math.inf:
        raise ValueError(f"scale must be positive and finite, but is {scale}")


# %%


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head; q, k and v get gradients.

    Args:
        q: [batch, heads, queries, head_dim], fp16, bf16 or fp32; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*, also where there are more or fewer
            keys than queries.
        scale: What scores are multiplied by; head_dim ** -0.5 if None.

    Raises:
        TypeError: An argument is no tensor, or of another dtype.
        ValueError: Shapes do not fit, are not supported, or a tensor is on another device.
    """
    scale = q.shape[-1] ** -0.5 if scale is None and isinstance(q, torch.Tensor) else scale
    check_arguments(q, k, v, scale)
    if q.numel() == 0:
        return q + 0 * (k.sum() + v.sum())  # empty, with gradients of 0 for k and v
    return Attention.apply(ready(q), ready(k), ready(v), bool(causal), float(scale))


# %%
# The kernels of this page are compiled at the same time, in threads, since one after the other
# takes long. Then each step is checked as the first.

# sphinx_gallery_fold = "compiles all kernels at the same time, and checks those of the steps"


def random_inputs(batch, heads, key_heads, queries, keys, d, dtype):
    """Return q, k and v of these sizes."""
    q = torch.randn(batch, heads, queries, d, device=DEVICE, dtype=dtype)
    k, v = torch.randn(2, batch, key_heads, keys, d, device=DEVICE, dtype=dtype)
    return q, k, v


def atomic_gradients(q, k, v, do, lse, delta, causal, scale):
    """Return (dQ, dK, dV) from one kernel that adds to dQ with atomics; *delta* is given."""
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = key_gradient(q, k, v, do, lse, delta, causal, scale, dq)
    return dq.mul_(scale).to(q.dtype), dk, dv


def timed_kernels():
    """Return a call, with short sequences, of every kernel that is timed below."""
    calls = []
    for d in (128, 64):
        q, k, v = random_inputs(1, 16, 16, 2048, 2048, d, torch.bfloat16)
        lse = torch.zeros(q.shape[:3], device=DEVICE)
        for causal in (True, False):
            args = q, k, v, causal, 0.1
            if HOPPER:
                roles = (True, False) if causal else (d == 128,)
                calls += [partial(forward_on_hopper, *args, way) for way in roles]
            if not HOPPER or (causal and d == 128):
                calls.append(partial(forward_anywhere, *args))
            calls.append(partial(query_gradient, q, k, v, q, q, lse, causal, 0.1))
            calls.append(partial(key_gradient, q, k, v, q, lse, lse, causal, 0.1))
        if d == 128:
            tile, options = forward_plan(q, 2048)
            steps = ((causal_kernel, (128, 128), LARGE), (base_2_kernel, (128, 128), LARGE),
                     (base_2_kernel, tile, options))  # fmt: skip
            for kernel, tile, options in steps:
                calls.append(partial(run_step, kernel, q, k, v, True, 0.1, tile, **options))
            calls.append(partial(atomic_gradients, q, k, v, q, lse, lse, True, 0.1))
    return calls


BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]


def from_pytorch(backend, q, k, v, causal):
    """Return PyTorch's attention by one backend and no other."""
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def benchmark_inputs(n, d):
    """Return q, k and v of the benchmark, with gradients."""
    inputs = random_inputs(16384 // n, 2048 // d, 2048 // d, n, n, d, torch.bfloat16)
    return [x.requires_grad_() for x in inputs]


def available():
    """Return the backends that run on this machine; print which do not, and why.

    Each is called with every size, since cuDNN makes a plan for each at its first call in a thread;
    autograd's is another one, so the backward pass can be planned beside the next forward pass.
    """
    failed = {}

    def attempt(name, call, *args):
        try:
            return call(*args)
        except RuntimeError as error:
            failed[name] = str(error).splitlines()[0]

    with ThreadPoolExecutor(1) as pool:
        for n, d, causal in itertools.product(LENGTHS, (64, 128), (False, True)):
            inputs = benchmark_inputs(n, d)
            for name in [name for name in BACKENDS if name not in failed]:
                o = attempt(name, from_pytorch, BACKENDS[name], *inputs, causal)
                if o is not None:
                    pool.submit(attempt, name, torch.autograd.grad, o, inputs, o.detach())
    for name, why in failed.items():
        print(f"{name} does not run here: {why}")
    return {name: backend for name, backend in BACKENDS.items() if name not in failed}


if ON_GPU:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(warm_up, timed_kernels())
        backends = available()  # meanwhile
HOPPER = HOPPER and gluon_runs()
for kernel, scale in ((causal_kernel, 1.0), (base_2_kernel, LOG2_E)):
    print(check_step(kernel, scale, **LARGE))

# %%
# Is it right?
# ------------
#
# Output and gradients are compared with float64. The weights are rounded to the dtype once, as are
# :math:`dS`, the output, and every gradient, each by half a unit in the last place at most.
# Rounding errors of different elements do not add up in step, so the error of the whole, measured
# as a norm, should not be more than a unit in the last place; the gradients get two, since
# :math:`dP - \delta` cancels, and :math:`\delta` comes from the rounded output. (fp32 is summed up
# in another order than in float64, and gets 10⁻⁵.) On a GPU the cases are large; in the interpreter
# and in this site's tests they are awkward: sizes that no tile divides, a single query, a row that
# sees one key, large scores (whose softmax is nearly a choice of one), grouped heads, and views.

# sphinx_gallery_fold = "compares output and gradients with float64"
# sphinx_gallery_fold_output = True


def check(q, k, v, causal=False, scale=None):
    """Raise AssertionError where ``attention`` or a gradient is not as in float64."""
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    expected = naive_attention(
        exact[0], *(x.repeat_interleave(group, 1) for x in exact[1:]), causal, scale
    )
    got = attention(*inputs, causal, scale)
    do = torch.randn_like(got)
    pairs = zip(
        ("o", "dq", "dk", "dv"),
        (got, *torch.autograd.grad(got, inputs, do)),
        (expected, *torch.autograd.grad(expected, exact, do.double())),
        strict=True,
    )
    for name, x, y in pairs:
        unit = max(torch.finfo(q.dtype).eps, 1e-5) * (1 if name == "o" else 2)
        error, size = (x.double() - y).norm(), y.norm() + 0.01 * math.sqrt(y.numel())
        assert error <= unit * size, f"{name}: {error / size:.2e} of {tuple(q.shape)}, {q.dtype}"


if ON_GPU:
    cases = [(1, 2, 2, 4096, 4096, d, DTYPE) for d in (64, 128)]
    cases += [(1, 2, 2, 1000, 777, 128, DTYPE)]  # for the kernels of step 5
else:
    cases = [
        (1, 4, 2, 70, 133, 64, torch.float16),  # nothing divides anything; grouped heads
        (2, 2, 2, 130, 65, 16, torch.float32),  # more queries than keys
        (1, 1, 1, 1, 67, 16, torch.float32),  # one query; if causal, it sees one key
    ]
for case in cases:
    for causal in (False, True) if case[3] != 1000 else (True,):
        check(*random_inputs(*case), causal)
        print("right:", case, "causal" if causal else "")
if not ON_GPU:
    q, k, v = random_inputs(1, 2, 2, 100, 100, 16, torch.float32)
    check(q, k, v, True, scale=30.0)  # scores of hundreds
    check(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))  # heads and tokens exchanged
    check(q.mT.contiguous().mT, k, v)  # a last stride that is not 1
print("attention and its gradients agree with float64")

# %%
# **The same bits twice**, what the launcher refuses, and the experiment with atomics:

# sphinx_gallery_fold = "computes twice and compares, and calls attention with wrong arguments"

q, k, v = (x.requires_grad_() for x in random_inputs(1, 2, 2, 384, 384, HEAD_DIM, DTYPE))
results = []
for _ in range(2):
    o = attention(q, k, v, causal=True)
    results.append((o, *torch.autograd.grad(o, (q, k, v), torch.ones_like(o))))
assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
print("output and gradients are the same, bit for bit, when computed twice")
for wrong in ((q, k[..., :16], v), (q, k.float(), v), (q, k[:, :, :5], v), (q[..., :24],) * 3):
    try:
        attention(*wrong)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("attention should have refused this")

# %%

# sphinx_gallery_fold = "compares the gradients with atomics to those without"

q, k, v = random_inputs(1, 2, 2, 256, 256, HEAD_DIM, DTYPE)
o, lse = forward(q, k, v, True, 0.125)
do = torch.randn_like(o)
dq, delta = query_gradient(q, k, v, o, do, lse, True, 0.125)
dk, dv = key_gradient(q, k, v, do, lse, delta, True, 0.125)
for x, y in zip(atomic_gradients(q, k, v, do, lse, delta, True, 0.125), (dq, dk, dv), strict=True):
    torch.testing.assert_close(x, y, rtol=2**-6, atol=2**-6)
print("with atomics, the gradients are the same up to rounding")

# %%
# What the compiler made of it
# ----------------------------
#
# A kernel that was launched knows how many registers a thread got, how many values were *spilled*
# (had no register left and went to memory and back) and how much shared memory a program has. From
# these follows how many programs fit on a multiprocessor:

# sphinx_gallery_fold = "prints registers, spills and shared memory of the kernels"


def print_resources(dims=(64, 128)):
    """Print what the compiler made of the three kernels for causal attention in bf16."""
    properties = torch.get_device_module(DEVICE).get_device_properties(DEVICE)
    registers = getattr(properties, "regs_per_multiprocessor", 65536)
    shared = getattr(properties, "shared_memory_per_multiprocessor", SHARED_BYTES)
    table = []
    for d in dims:
        q, k, v = random_inputs(1, 1, 1, 2048, 2048, d, torch.bfloat16)
        o, lse = forward(q, k, v, True, 0.1)
        _, delta = query_gradient(q, k, v, o, o, lse, True, 0.1)
        key_gradient(q, k, v, o, lse, delta, True, 0.1)
        for name, made in COMPILED.items():
            threads = made.metadata.num_warps * getattr(made.metadata, "warp_size", 32)
            used = max(made.n_regs, 1) * threads, max(made.metadata.shared, 1) + 1024
            fit = min(registers // used[0], shared // used[1])
            row = d, name, threads, made.n_regs, made.n_spills, made.metadata.shared, fit
            table.append(row)
    headers = ["d", "kernel", "threads", "registers\na thread", "spills"]
    headers += ["bytes of shared\nmemory", "programs on a\nmultiprocessor"]
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    print_resources()
else:
    print("Without a GPU nothing was compiled.")

# %%
# A thread of an NVIDIA GPU can have 255 registers. Add up what the kernel for dK and dV must keep
# at *d* = 128, a tile of 64 keys and 128 threads: two sums of 64 × 128 numbers in fp32 make 128
# registers a thread; the tiles of :math:`P` and :math:`dP`, 64 × 64, take 32 each; what is rounded
# to 16 bits, 16 each. That is almost all there are, and a larger tile would spill. At half the head
# dimension the sums take half as much, and more programs fit on the multiprocessor. **Registers
# are the limit of attention**: everything between two products lives there.
#
# The table says what *fits*, not what the warps wait for:
# :doc:`/programming-guide/chapter-5/profiling` asks a kernel for that.
#
# The benchmark
# -------------
#
# 16384 tokens in all and a hidden size of 2048, in bf16: 32 heads of *d* = 64, or 16 of 128, at
# lengths from 512 to 16384, with fewer sequences the longer they are. The peers are the fastest
# that PyTorch has, through ``torch.nn.functional.scaled_dot_product_attention`` with the backend
# chosen by name, so that no other can step in: **cuDNN**, NVIDIA's own kernels, and
# **FlashAttention-2** (``flash``), as PyTorch ships it. All rates count the operations that have to
# be done, also for those that do more.

# sphinx_gallery_fold = "measures forward and backward against the backends of PyTorch"


def gradients_of(o, inputs, do):
    """Return a call that computes the gradients of *inputs*, again and again."""
    return partial(torch.autograd.grad, o, inputs, do, retain_graph=True)


def benchmark(lengths, dims, backends):
    """Return (rows of the forward pass, rows of the backward pass)."""
    results = [], []
    for d, n, causal in itertools.product(dims, lengths, (False, True)):
        inputs = benchmark_inputs(n, d)
        do = torch.randn_like(inputs[0])
        calls = {"triton": partial(attention, *inputs, causal)}
        for name, backend in backends.items():
            calls[name] = partial(from_pytorch, backend, *inputs, causal)
        backward = {name: gradients_of(call(), inputs, do) for name, call in calls.items()}
        for rows, both, factor in zip(results, (calls, backward), (1, 2.5), strict=True):
            amount = factor * operations(inputs[0], causal) / 1e3
            for name, ms in measure(both, rounds=10 if n < 4096 else 6).items():
                rows.append((n, d, int(causal), name, "TFLOPS", *rates(ms, amount)))
    return results


if ON_GPU:
    forward_rows, backward_rows = benchmark(LENGTHS, (64, 128), backends)
    write_rows("attention-forward.csv", ["N", "head_dim", "causal"], forward_rows)
    write_rows("attention-backward.csv", ["N", "head_dim", "causal"], backward_rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# The medians, and what the ratio to each peer is:

# sphinx_gallery_fold = "prints the rates"
# sphinx_gallery_fold_output = True


def medians(rows):
    """Return {(N, head_dim, causal, provider): median rate}."""
    return {tuple(row[:4]): row[5] for row in rows}


def print_rates(rows, title):
    """Print the median rates, and the ratios of triton to each peer."""
    rate = medians(rows)
    peers = [name for name in BACKENDS if any(row[3] == name for row in rows)]
    table = []
    for n, d, causal in sorted({row[:3] for row in rows}, key=lambda key: (key[1], key[2], key[0])):
        ours, *others = (rate[n, d, causal, name] for name in ("triton", *peers))
        cells = (ours, *others, *(ours / other for other in others))
        table.append((d, "yes" if causal else "no", n, *map(significant, cells)))
    headers = ["d", "causal", "N", "triton", *peers, *(f"/{name}" for name in peers)]
    print(f"{title}, TFLOPS, higher is better; /…: triton's ratio to it")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


if ON_GPU:
    print_rates(forward_rows, "Forward")
    print_rates(backward_rows, "\nBackward")
else:
    print("No table without a GPU.")

# %%

# sphinx_gallery_fold = "plots the rates"


def plot_attention(rows, title):
    """Draw the rates over the length, a panel for each head dimension."""
    fig, axes = plt.subplots(2, 1, figsize=(7, 9.5), layout="constrained")
    styles = {"triton": OURS, "cudnn": TORCH, "flash": OTHER}
    for ax, d in zip(axes, (64, 128), strict=True):
        lines = {}
        for name, style in styles.items():
            for causal in (0, 1):
                points = [(r[0], *r[5:]) for r in rows if r[1:4] == (d, causal, name)]
                if points:
                    shape = {"linestyle": ":", "markerfacecolor": "white"} if causal else {}
                    label = f"{name}, causal" if causal else name
                    lines[label] = style | shape, points
        plot_rates(ax, lines, f"{title}, d = {d}, bf16", "N", "TFLOPS")
        ax.set_xscale("log", base=2)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    plt.show()


if ON_GPU:
    plot_attention(forward_rows, "Attention forward")
    plot_attention(backward_rows, "Attention backward")
else:
    print("No plot without a GPU.")

# %%
# For the ladder at the top of the page, the first three steps run with a tile of 128 × 128 and
# eight warps, as a product of matrices would like it; step 4 is the kernel of step 3 with the tile
# of ``forward_plan``. Of the backward pass, both kernels are timed alone, and the experiment with
# atomics, which is given :math:`\delta` for nothing.

# sphinx_gallery_fold = "measures the steps"
# sphinx_gallery_fold_output = True


SECTIONS = {
    "1": ("Step 1: a softmax that never sees its whole row", "no score in memory"),
    "2": ("Step 2: skip the future, and mask only the edge of it", "half of the tiles"),
    "3": ("Step 3: powers of two", "exp2, scale folded in"),
    "4": ("Step 4: several small programs instead of a large one", "smaller tiles, four warps"),
    "5": ("Step 5: the order of the programs", "longest first, heads together"),
    "6": ("Step 6: one product ahead", "softmax beside a product"),
    "7": ("Step 7: roles", "one warp fetches, two groups compute"),
}


def steps_of_this_page(q, k, v):
    """Return {step: a call} for causal attention."""
    scale = q.shape[3] ** -0.5
    tile, options = forward_plan(q, k.shape[2])
    args = q, k, v, True
    steps = {
        "1": partial(run_step, online_kernel, *args, scale, **LARGE),
        "2": partial(run_step, causal_kernel, *args, scale, **LARGE),
        "3": partial(run_step, base_2_kernel, *args, scale * LOG2_E, **LARGE),
        "4": partial(run_step, base_2_kernel, *args, scale * LOG2_E, tile, **options),
        "5": partial(forward_anywhere, *args, scale),
    }
    if suits_hopper(q, k):
        steps["6"] = partial(forward_on_hopper, *args, scale, roles=False)
        steps["7"] = partial(forward_on_hopper, *args, scale, roles=True)
    return steps


def backward_steps(q, k, v):
    """Return {name: a call} for the parts of the causal backward pass."""
    scale = q.shape[3] ** -0.5
    o, lse = forward(q, k, v, True, scale)
    do = torch.randn_like(o)
    _, delta = query_gradient(q, k, v, o, do, lse, True, scale)

    def both():
        dq, delta = query_gradient(q, k, v, o, do, lse, True, scale)
        return dq, *key_gradient(q, k, v, do, lse, delta, True, scale)

    return {
        "dq": partial(query_gradient, q, k, v, o, do, lse, True, scale),
        "dk, dv": partial(key_gradient, q, k, v, do, lse, delta, True, scale),
        "both": both,
        "atomics": partial(atomic_gradients, q, k, v, do, lse, delta, True, scale),
    }


if ON_GPU:
    n, step_rows = 8192, []
    for d in (64, 128):
        q, k, v = random_inputs(2, 2048 // d, 2048 // d, n, n, d, torch.bfloat16)
        calls = steps_of_this_page(q, k, v)
        if d == 64:  # where the last two change places
            calls = {name: call for name, call in calls.items() if name in ("6", "7")}
        for name, ms in measure(calls, 10).items() if calls else ():
            step_rows.append((d, name, *rates(ms, operations(q, True) / 1e3)))
    step_rate = {tuple(row[:2]): row[2] for row in step_rows}
    times = {name: ms.median().item() for name, ms in measure(backward_steps(q, k, v), 10).items()}
    names = [name for name in SECTIONS if (128, name) in step_rate]
    rungs = [(*SECTIONS[name], step_rate[128, name]) for name in names]
    peer = "cudnn" if "cudnn" in backends else "triton"
    ceiling = peer.replace("dnn", "DNN"), medians(forward_rows)[n, 128, 1, peer]
    ladder(rungs, ceiling, "TFLOPS", f"N = {n}, d = 128, causal, bf16, forward")
    if HOPPER:
        lost = significant(step_rate[64, "7"] / step_rate[64, "6"])
        print(f"\nAt d = 64, step 7 reaches {lost} of the rate of step 6.")
    print("\nBackward, d = 128, milliseconds, lower is better:")
    print(tabulate([(name, significant(ms)) for name, ms in times.items()], disable_numparse=True))
else:
    print("No steps to compare without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **All of them rise at first.** Each program begins by fetching its queries and ends by storing its
# output, and meanwhile its warps have nothing to multiply. The longer the way over the keys, the
# less that counts. Programs side by side hide some of it, and so do roles, since the next tiles are
# fetched early.
#
# **Causal attention starts lower and catches up.** On the diagonal, half of each tile is computed
# in vain and not counted: the fewer tiles a row has, the larger that share is.
#
# **The head dimension.** At *d* = 128 there are twice as many operations for each exponential, as
# counted in step 3, so where exponentials are the wall, the rate rises with *d*. But it does not
# double: registers are scarcer, so less of the exponentials is hidden.
#
# **The peers.** FlashAttention-2 was written for the generation before Hopper, and uses products
# for which a warp waits, and no TMA. cuDNN's kernels are made for each generation. Between them and
# the kernel of step 5 lies what steps 6 and 7 are about.
#
# **The backward pass** of this page does seven products and is credited with five. Multiply its
# rate by 7/5, and compare it with that of a product of large matrices in
# :doc:`03-matrix-multiplication`: where it gets near it, better overlap has nothing left to gain.
# What remains is to do fewer products, in the same registers. (Where a kernel of yours stays far
# below both, :doc:`/programming-guide/chapter-5/profiling` shows how to find what it waits for.)
#
# What the run showed
# -------------------

# sphinx_gallery_fold = "computes what this page claims"


def ratios(rows, other, dims=(64, 128), least=0):
    """Return triton's ratio to *other* for each size from N = *least* on."""
    rate = medians(rows)
    return [
        rate[n, d, causal, "triton"] / rate[n, d, causal, other]
        for n, d, causal in sorted({row[:3] for row in rows})
        if d in dims and n >= least
    ]


def memory_share(n=16384):
    """Return the bytes that the forward pass allocates at its peak over those of the scores."""
    gpu = torch.get_device_module(DEVICE)
    q, k, v = random_inputs(1, 4, 4, n, n, 64, torch.bfloat16)
    gpu.reset_peak_memory_stats()
    before = gpu.memory_allocated()
    attention(q, k, v)
    return (gpu.max_memory_allocated() - before) / (4 * n * n * q.element_size())


def claim_speed(rows, title, least_of_cudnn):
    """Claim what the benchmark showed beside the peers that ran."""
    section, noise = "The benchmark", spread(rows)
    for d, least in least_of_cudnn.items() if "cudnn" in backends else ():
        mean = geometric_mean(ratios(rows, "cudnn", (d,), 1024))
        statement = f"{title}, d = {d}, N ≥ 1024: of cuDNN's rate, geometric mean"
        claim(statement, mean, at_least=least, spread=noise, section=section)
    if "flash" in backends:
        statement = f"{title}: of FlashAttention-2's rate, at the worst size"
        claim(statement, min(ratios(rows, "flash")), at_least=1.05, spread=noise, section=section)


if ON_GPU:
    noise = spread(step_rows)
    claim(
        "No score reaches memory: allocated for N = 16384, as a share of the scores",
        memory_share(),
        at_most=0.02,
        section="The formula, and the matrix in its middle",
    )
    for name, least in {"2": 1.3, "3": 0.98, "4": 1.1, "5": 0.98, "6": 0.98, "7": 1.05}.items():
        if name in names:
            section, change = SECTIONS[name]
            gain = step_rate[128, name] / step_rate[128, str(int(name) - 1)]
            word = "faster" if least > 1 else "not slower"
            statement = f"{change}: {word} than the step before, causal, d = 128"
            claim(statement, gain, at_least=least, spread=noise, section=section)
    claim(
        "Two kernels that do seven products lose less by it than two products in seven",
        times["atomics"] / times["both"],
        at_least=5 / 7,
        spread=noise,
        section="Step 9: the gradients of the keys and values",
    )
    claim_speed(forward_rows, "Forward", {64: 0.92, 128: 0.80})
    claim_speed(backward_rows, "Backward", {64: 0.80, 128: 0.70})
    print_claims()
else:
    print("Without a GPU nothing is claimed.")

# %%
# What to remember
# ----------------
#
# * What is large and only in the way, like the scores, need not exist. Tiles of it can be made,
#   used and forgotten, with an online softmax between two products.
# * Fold constants into each other until one instruction is left: a scale, a base, a maximum.
# * Sort tiles into whole, masked and skipped, and let one comparison decide.
# * Where different units take turns in a program, let several programs share a multiprocessor, and
#   choose tiles small enough for that.
# * Longest first.
# * For the backward pass, keep one number a row, and compute the rest again.
# * Computing twice can be cheaper than adding to memory from many sides, and it gives the same bits
#   every time.
#
# Exercises
# ---------
#
# 1. **A sliding window.** Let each query see only the last *W* keys up to its own. Which tiles are
#    skipped now, which are masked, and how do the operations grow with *N*?
#    :doc:`Solution <solutions/06-sliding-window>`.
# 2. **ALiBi.** Instead of telling tokens their position, add ``-slope * (i - j)`` to the score of
#    query *i* and key *j*, with a slope for each head. Where does it go, and what does it cost?
#    :doc:`Solution <solutions/06-alibi>`.
# 3. **Grouped heads.** Eight heads of queries share a head of keys, and there are only a few
#    queries. A tile of 64 queries is nearly empty, eight times. Fill it.
#    :doc:`Solution <solutions/06-grouped-heads>`.
# 4. **Decoding.** One query, tens of thousands of keys: with a program for each block of queries,
#    nearly all of the GPU stands idle. Split the *keys*. What is the ceiling now?
#    :doc:`Solution <solutions/06-decode>`.
#
# References
# ----------
#
# * Tri Dao, Daniel Y. Fu, Stefano Ermon, Atri Rudra and Christopher Ré: *FlashAttention: fast and
#   memory-efficient exact attention with IO-awareness*, NeurIPS 2022,
#   https://arxiv.org/abs/2205.14135
# * Tri Dao: *FlashAttention-2: faster attention with better parallelism and work partitioning*,
#   ICLR 2024, https://arxiv.org/abs/2307.08691
# * Jay Shah, Ganesh Bikshandi, Ying Zhang, Vijay Thakkar, Pradeep Ramani and Tri Dao:
#   *FlashAttention-3: fast and accurate attention with asynchrony and low-precision*, NeurIPS 2024,
#   https://arxiv.org/abs/2407.08608
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
# * Markus N. Rabe and Charles Staats: *Self-attention does not need O(n²) memory*, 2021,
#   https://arxiv.org/abs/2112.05682
# * Ashish Vaswani and others: *Attention is all you need*, NeurIPS 2017,
#   https://arxiv.org/abs/1706.03762
