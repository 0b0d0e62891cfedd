"""
Attention on Hopper's own instructions
======================================

You write ``attention(q, k, v, causal=False, scale=None)`` once more, for Hopper GPUs (H100, H200)
and in **Gluon**, the language below Triton. Warps get roles, and products run while the softmax is
computed. From 1024 tokens on, heads of 128 reach :measured:`share128` % of cuDNN's speed, and heads
of 64 :measured:`share64` %. You need :doc:`06-fused-attention`. No later page needs this one.
"""

# %%
# The loop that waits
# -------------------
#
# This is the kernel of :doc:`06-fused-attention`. It serves GPUs and sizes that Gluon's do not.

# sphinx_gallery_level = "beyond"
import atexit
import math
import os
from functools import partial

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from torch.nn.functional import scaled_dot_product_attention as torch_attention
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def plain_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, queries, keys, scale, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries; GROUP heads share keys; *scale* contains log2(e)."""
    blocks = tl.cdiv(queries, BLOCK_M)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    row = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # the longest program first
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = keys // BLOCK_N * BLOCK_N, keys  # ends of the tiles without a mask, and of all
    if CAUSAL:
        whole, stop = min(whole, (row + 1) // BLOCK_N * BLOCK_N), min(stop, row + BLOCK_M)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # not scaled; "ieee": fp32 stays fp32
        if col >= whole:  # the same for all threads, so it costs little
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= (row + tl.arange(0, BLOCK_M))[:, None]
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


# %%
# The softmax needs the scores, and the second product needs the weights. So a group of four warps
# alternates between tensor cores and exponentials, unless *another* program fills the gaps. On
# Hopper a product is *started*, and runs until the group waits for it. The group could start two
# products, and compute a softmax while the second runs::
#
#     tensor cores   q·k₁            q·k₂ p₁·v₁       q·k₃ p₂·v₂       q·k₄ p₃·v₃
#     other units        softmax₁         softmax₂         softmax₃         softmax₄
#
# Plain Triton cannot say that: in this loop its compiler waits for each product where it stands.
#
# Registers are the limit
# -----------------------
#
# A running product occupies registers: its sum and its left factor are there until it ends. Beside
# the output, a thread holds the weights of this tile and the scores of the next one. A thread can
# have 255 registers. With four warps, 128 threads, and *d* = 128, a thread needs for a tile:

table = []
for rows, cols in ((128, 128), (128, 64), (64, 128)):
    parts = [rows * 128 // 128, rows * cols // 128, rows * cols // 2 // 128]
    table.append([f"{rows} × {cols}", *parts, sum(parts), 255 - sum(parts)])
print(tabulate(table, ["tile", "output", "next scores", "16-bit weights", "sum", "left"]))

# %%
# The rest is for maxima, sums, addresses and exponentials in flight. A tile of 128 × 128 does not
# fit, and 128 × 64 leaves little. So a group takes 64 queries and 128 keys.
#
# Gluon
# -----
#
# Gluon comes with Triton, and has the same ``@jit`` and the same Python. You decide what Triton's
# compiler decides otherwise:
#
# * A **layout** says which thread holds which element of a tile.
# * Shared memory is allocated by name, and filled by asynchronous copies.
# * A **barrier** counts arrivals, or bytes. When all have arrived, a *phase* ends. A wait for 0
#   ends with phase 1, 3, …, and a wait for 1 with phase 0, 2, …. Phase 0 has ended from the start.
#
# The price is a multiple of the code, for one kind of GPU, with names that change between releases.

# sphinx_gallery_fold = "imports Gluon, and orders the programs"
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
COUNTS = ["queries", "keys", "total", "together"]  # one kernel for all lengths
NVIDIA = ON_GPU and torch.version.cuda is not None
HOPPER = NVIDIA and torch.cuda.get_device_capability(DEVICE) == (9, 0)
if HOPPER:  # Gluon's compiler reports objects of its own as leaked when Python ends
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
else:
    print("The Gluon kernels of this page need a Hopper GPU. Here attention uses plain_kernel.")


@gluon.jit
def place(program, blocks, heads, together):
    """Return (block, head) of a program: *together* heads at a time, the last blocks first."""
    first = program // (together * blocks) * together  # the first head of this section
    size = min(heads - first, together)  # the last section may have fewer heads
    rest = program - first * blocks
    return blocks - 1 - rest // size, first + rest % size


# %%
# ``fetch`` tells a barrier how many bytes to expect, and starts the copy. ``release`` says that a
# buffer has been read. In the next kernel a program is *alone* and fetches its own next tile.


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
def release(desc, row, arrived, read, buffers, slot, wanted, ALONE: gl.constexpr):
    """Say that a buffer has been read: fetch the next tile, or tell the fetching warp."""
    if ALONE:
        fetch(desc, row, arrived.index(slot), buffers.index(slot), wanted)
    else:
        mbarrier.arrive(read.index(slot), count=1)


# %%
# One product ahead
# -----------------
#
# The loop starts the first product of tile *j* and the second of tile *j − 1*. Then
# ``warpgroup_mma_wait(1, …)`` waits until only *one* is in flight. Products end in the order in
# which they start, so the scores are ready. The softmax runs during the second product. Tiles are
# taken **from the last to the first**: only the first one, on the diagonal, needs a mask.


@gluon.jit
def attend(
    q, k_tiles, v_tiles, k_arrived, v_arrived, k_read, v_read, k_desc, v_desc, rows, last, tiles,
    count, scale, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr, ALONE: gl.constexpr,
):  # fmt: skip
    """Return the output of BLOCK_M queries; *count* tiles were taken before."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUTPUT, k_width=2)
    acc = gl.zeros([BLOCK_M, D], gl.float32, layout=OUTPUT)
    zeros = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=SCORES)
    slot = count % STAGES
    mbarrier.wait(k_arrived.index(slot), count // STAGES & 1)
    s = warpgroup_mma(q, k_tiles.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    following = last - STAGES * BLOCK_N  # row of the next tile for this buffer
    release(k_desc, following, k_arrived, k_read, k_tiles, slot, tiles > STAGES, ALONE)
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
        row = last - (j + STAGES) * BLOCK_N
        release(k_desc, row, k_arrived, k_read, k_tiles, slot, j + STAGES < tiles, ALONE)
        m_new = gl.maximum(m, gl.max(s, 1) * scale)
        p = gl.exp2(s * scale - m_new[:, None])
        correction = gl.exp2(m - m_new)
        z = z * correction + gl.sum(p, 1)
        m = m_new
        acc, p_left = warpgroup_mma_wait(0, deps=[acc, p_left])
        row, wanted = last - (j - 1 + STAGES) * BLOCK_N, j - 1 + STAGES < tiles
        release(v_desc, row, v_arrived, v_read, v_tiles, before, wanted, ALONE)
        acc = acc * gl.convert_layout(correction, gl.SliceLayout(1, OUTPUT))[:, None]
        p_left = gl.convert_layout(p.to(q.dtype), LEFT)
    before = (count + tiles - 1) % STAGES
    mbarrier.wait(v_arrived.index(before), (count + tiles - 1) // STAGES & 1)
    acc = warpgroup_mma(p_left, v_tiles.index(before), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    if not ALONE:
        mbarrier.arrive(v_read.index(before), count=1)
    o = acc / gl.convert_layout(z, gl.SliceLayout(1, OUTPUT))[:, None]
    return o.to(q.dtype)


# %%
# The kernel allocates buffers and fetches the first tiles. ``attention`` uses it at *d* = 64. Its
# tensors are matrices with a row for each token of each head, so 128 has to divide the lengths.

# sphinx_gallery_fold = "allocates buffers, fetches the first tiles, calls the loop and stores"


@gluon.jit(do_not_specialize=COUNTS)
def ahead_kernel(
    q_desc, k_desc, v_desc, o_desc, queries, keys, scale, total, together, GROUP: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head with four warps."""
    block, head = place(gl.program_id(0), queries // BLOCK_M, total, together)
    row = block * BLOCK_M
    tiles = keys // BLOCK_N
    if CAUSAL:
        tiles = gl.minimum(tiles, (row + BLOCK_M + BLOCK_N - 1) // BLOCK_N)
    q = gl.allocate_shared_memory(q_desc.dtype, [BLOCK_M, D], q_desc.layout)
    k_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES, BLOCK_N, D], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES, BLOCK_N, D], v_desc.layout)
    q_arrived, k_arrived, v_arrived = barriers(1, 1), barriers(STAGES, 1), barriers(STAGES, 1)
    fence_async_shared()
    last = head // GROUP * keys + (tiles - 1) * BLOCK_N
    fetch(q_desc, head * queries + row, q_arrived.index(0), q)
    for i in gl.static_range(STAGES):
        fetch(k_desc, last - i * BLOCK_N, k_arrived.index(i), k_tiles.index(i), i < tiles)
        fetch(v_desc, last - i * BLOCK_N, v_arrived.index(i), v_tiles.index(i), i < tiles)
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, SCORES))
    mbarrier.wait(q_arrived.index(0), 0)
    o = attend(
        q, k_tiles, v_tiles, k_arrived, v_arrived, k_arrived, v_arrived, k_desc, v_desc,
        rows, last, tiles, 0, scale, BLOCK_M, BLOCK_N, D, CAUSAL, STAGES, True,
    )  # fmt: skip
    q.store(o)
    fence_async_shared()
    start_store(o_desc, [head * queries + row, 0], q)
    tma.store_wait(0)


# %%
# Roles of warps
# --------------
#
# At *d* = 128 tiles are larger, so fewer programs fit on an SM. Each has its own copy of the same
# keys and values, and first waits for them. One large program with **roles** solves both:
#
# * **One warp fetches**, as far ahead as there are buffers. It needs few registers.
# * **Two groups of four warps compute**, 64 queries each, with the same keys and values. They never
#   wait for each other: one multiplies while the other computes its softmax.
#
# While the groups store a result, the fetching warp already fetches tiles of the next block. Each
# buffer has two barriers. The groups wait for ``arrived``, the fetching warp for ``read``.


@gluon.jit
def fetching_warp(
    tiles_of, arrived, read, q_desc, k_desc, v_desc, queries, keys, total, together,
    GROUP: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Fetch queries, keys and values for one block of 128 queries after the other."""
    q_tiles, _, k_tiles, v_tiles = tiles_of
    q_arrived, k_arrived, v_arrived = arrived
    q_read, k_read, v_read = read
    count = 0
    for program in range(gl.program_id(0), total * (queries // 128), gl.num_programs(0)):
        turn = program // gl.num_programs(0)
        block, head = place(program, queries // 128, total, together)
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
    HALF: gl.constexpr, tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc,
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
        block, head = place(program, queries // 128, total, together)
        tiles = keys // BLOCK_N
        if CAUSAL:
            tiles = gl.minimum(tiles, (block * 128 + 128) // BLOCK_N)
        row = block * 128 + HALF * 64
        rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
        mbarrier.wait(q_arrived.index(HALF), turn & 1)
        o = attend(
            q_tiles.index(HALF), k_tiles, v_tiles, k_arrived, v_arrived, k_read, v_read,
            k_desc, v_desc, rows, 0, tiles, count, scale, 64, BLOCK_N, D, CAUSAL, STAGES, False,
        )  # fmt: skip
        mbarrier.arrive(q_read.index(HALF), count=1)
        tma.store_wait(0)  # the result before this one has left the buffer
        o_tile.store(o)
        fence_async_shared()
        start_store(o_desc, [head * queries + row, 0], o_tile)
        count += tiles
    tma.store_wait(0)


# %%
# ``warp_specialize`` starts the first group in the four warps of the launch, the second in four
# more, and the fetching warp in one. The last two get 240 and 24 registers a thread.


@gluon.jit(do_not_specialize=COUNTS)
def roles_kernel(
    q_desc, k_desc, v_desc, o_desc, queries, keys, scale, total, together,
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
            (computing_group, (0, tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc, queries,
                keys, scale, total, together, GROUP, BLOCK_N, D, CAUSAL, STAGES)),
            (computing_group, (1, tiles_of, arrived, read, q_desc, k_desc, v_desc, o_desc, queries,
                keys, scale, total, together, GROUP, BLOCK_N, D, CAUSAL, STAGES)),
            (fetching_warp, (tiles_of, arrived, read, q_desc, k_desc, v_desc, queries, keys,
                total, together, GROUP, BLOCK_N, CAUSAL, STAGES)),
        ],
        [4, 1],  # warps
        [240, 24],  # registers of a thread
    )  # fmt: skip


# %%
# Here are both on causal attention with *d* = 128 and N = 4096:
#
# .. steps:: cudnn
#    :unit: TFLOPS
#
#    plain: plain Triton, which waits for each product
#    ahead: the softmax beside a product
#    roles: one warp fetches, two groups compute
#
# At *d* = 64 ``roles_kernel`` reaches only :measured:`roles_64` % of the rate of ``ahead_kernel``.
#
# Calling it
# ----------
#
# ``attention`` uses Gluon for fp16 and bf16, *d* = 64 or 128, and lengths that 128 divides. For all
# else, and on all other GPUs, it uses ``plain_kernel``. A program with roles goes on to the next
# block, but long causal blocks differ in length: each has a program, and the GPU distributes them.

# sphinx_gallery_fold = "checks the arguments"


def check_arguments(q, k, v, scale):
    """Raise TypeError or ValueError, naming the argument, if ``attention`` cannot be right."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.dtype != q.dtype or q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            allowed = "float16, bfloat16 or float32" if x is q else f"{q.dtype} as q"
            raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
        if x.ndim != 4:
            raise ValueError(f"{name} must be [batch, heads, N, head_dim], not {tuple(x.shape)}")
        if x.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {x.device}")
        if x.shape[3] != q.shape[3] or q.shape[3] not in (16, 32, 64, 128):
            allowed = "16, 32, 64 or 128" if x is q else f"{q.shape[3]} as q"
            raise ValueError(f"{name} must have a head_dim of {allowed}, but has {x.shape[3]}")
        if torch.is_grad_enabled() and x.requires_grad:
            remedy = "use that of 06b-attention-backward, or torch.no_grad()"
            raise ValueError(f"{name} requires a gradient, which this attention lacks: {remedy}")
    shapes = f"have {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or 0 in k.shape[1:3]:
        raise ValueError(f"k and v must have one shape, q's batch, and keys; q, k and v {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"q must have a multiple of the heads of k; q, k and v {shapes}")
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
        raise ValueError(f"scale must be positive and finite, but is {scale!r}")


# %%
# The plan of a launch is kept for each shape, as in :doc:`06-fused-attention`.

# sphinx_gallery_fold = "brings the plan of a launch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

# %%

# sphinx_gallery_fold = "chooses a kernel and its tiles for each kind of call, and calls it"
GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None


def ready(x):
    """Return *x* if it is contiguous and aligned, and a copy of it otherwise."""
    aligned = x.is_contiguous() and x.data_ptr() % 16 == 0
    return x if aligned else x.clone(memory_format=torch.contiguous_format)


def described(x, rows, in_gluon):
    """Return a descriptor of the contiguous *x* with tiles of *rows* by d, for Triton or Gluon."""
    _, heads, n, d = x.shape
    if not in_gluon:
        return TensorDescriptor(x, list(x.shape), [heads * n * d, n * d, d, 1], [1, 1, rows, d])
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for([rows, d], dtype)
    return GluonDescriptor(x.view(-1, d), [x.numel() // d, d], [d, 1], [rows, d], layout)


def kernel_for(q, k):
    """Return the kernel for these tensors."""
    covered = q.dtype != torch.float32 and q.shape[2] % 128 == k.shape[2] % 128 == 0
    gluon_kernels = {64: ahead_kernel, 128: roles_kernel} if HOPPER and covered else {}
    return gluon_kernels.get(q.shape[3], plain_kernel)


def prepare(kernel, q, k, v, o, causal, scale):
    """Return (a launch of *kernel*, the descriptors of the tensors)."""
    (batch, heads, queries, d), (_, key_heads, keys, _) = q.shape, k.shape
    group, total = heads // key_heads, batch * heads
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    short = not causal or keys <= 1024
    # Heads that run together have keys and values in half of the L2 cache.
    together = 2 if short else max(1, getattr(GPU, "L2_cache_size", 0) // (8 * keys * d))
    numbers = queries, keys, scale, total, group * together
    rows, cols, options = 64, 128, {"STAGES": 2}
    if kernel is ahead_kernel and d == 128:
        cols, options = 64, {"STAGES": 3}
    elif kernel is plain_kernel:
        half = q.element_size() == 2
        rows, cols = (128 if HOPPER and d == 128 and half else 64), (64 if half else 32)
        numbers, options = (heads, queries, keys, scale), {"num_stages": 1 + (NVIDIA and half)}
    programs = triton.cdiv(queries, rows) * total
    if kernel is roles_kernel:
        programs = min(programs // 2, GPU.multi_processor_count if short else programs)
    else:
        options["BLOCK_M"] = rows
    options |= {"GROUP": group, "D": d, "CAUSAL": causal, "BLOCK_N": cols, "num_warps": 4}
    pairs = ((q, rows), (k, cols), (v, cols), (o, rows))
    tiles = [described(x, size, kernel is not plain_kernel) for x, size in pairs]
    return Launch(kernel, (programs,), numbers, options), tiles


PLANS = {}


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head, without gradients.

    Args:
        q: [batch, heads, queries, head_dim], fp16, bf16 or fp32; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.
    """
    plan, compiling = None, torch.compiler.is_compiling()
    try:
        if not (compiling or q.requires_grad or k.requires_grad or v.requires_grad):
            plan = PLANS.get((key_of(q, k, v), causal, scale))
    except (AttributeError, TypeError):  # no tensors, or a scale that cannot be in a key
        pass
    if plan is None:
        check_arguments(q, k, v, scale)
        if compiling:
            return attention_op(q, k, v, bool(causal), scale)
        if q.numel() == 0:
            return torch.empty_like(q)
        q, k, v, causal = ready(q), ready(k), ready(v), bool(causal)
        launch, tiles = prepare(kernel_for(q, k), q, k, v, torch.empty_like(q), causal, scale)
        fields = [(type(tile), vars(tile) | {"base": None}) for tile in tiles]
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = PLANS.setdefault((key_of(q, k, v), causal, scale), (launch, fields))
    launch, fields = plan
    o = torch.empty_like(q)
    tiles = [object.__new__(kind) for kind, _ in fields]  # not checked again
    for tile, (_, same), x in zip(tiles, fields, (q, k, v, o), strict=True):
        tile.__dict__.update(same, base=x)
    launch(*tiles)
    return o


# For torch.compile the function is one operation.
schema = "(Tensor q, Tensor k, Tensor v, bool causal, float? scale) -> Tensor"
attention_op = torch.library.custom_op("gallery::attention_c", mutates_args=(), schema=schema)(
    lambda *arguments: attention(*arguments).contiguous()
)
attention_op.register_fake(lambda q, *_: q.new_empty(q.shape))

# %%
# The check covers all three kernels on Hopper. Elsewhere it covers only ``plain_kernel``.


def compare(o, q, k, v, **options):
    """Stop unless *o* agrees with attention in float64, up to the rounding of its dtype."""
    exact = torch_attention(q.double(), k.double(), v.double(), enable_gqa=True, **options)
    unit = torch.finfo(o.dtype).eps
    torch.testing.assert_close(o.double(), exact, rtol=unit, atol=unit)


torch.manual_seed(0)
dtype = torch.bfloat16 if ON_GPU else torch.float16  # no bf16 in the interpreter
cases = [(4, 2, 100, 77, 128), (2, 2, 1, 67, 16)]  # heads, key heads, queries, keys, d
if ON_GPU:
    cases += [(2, 2, 4096, 4096, d) for d in (64, 128)] + [(40, 40, 512, 512, 128)]
    cases += [(4, 2, 384, 640, 64), (4, 2, 640, 384, 128)]
for heads, key_heads, queries, keys, d in cases:
    q = torch.randn(1, queries, heads, d, device=DEVICE).to(dtype).transpose(1, 2)
    k, v = torch.randn(2, 1, key_heads, keys, d, device=DEVICE).to(dtype)
    compare(attention(q, k, v), q, k, v)
    compare(attention(q, k, v, causal=True, scale=2.0), q, k, v, is_causal=True, scale=2.0)
print("attention agrees with float64")

# %%
# The benchmark
# -------------
#
# Sizes and peers are those of :doc:`06-fused-attention`. The picture: causal, *d* = 128.

# sphinx_gallery_fold = "times attention, its peers and the steps, and draws the rates"
from shared.bench import COLORS, plot_rates, rows_of, write_calls, write_rows, write_table
from torch.nn.attention import SDPBackend, sdpa_kernel

PEERS = {"flash": "FlashAttention-2", "cudnn": "cuDNN"}


def calls_of(n, d, causal, tokens=16384):
    """Return q, k and v with *tokens* tokens in all, and {provider: call}."""
    qkv = torch.randn(3, tokens // n, 2048 // d, n, d, device=DEVICE).bfloat16()
    calls = {"triton": partial(attention, *qkv, causal)}
    calls["torch"] = partial(torch_attention, *qkv, is_causal=causal)
    for name in PEERS:
        backend = getattr(SDPBackend, f"{name.upper()}_ATTENTION")
        calls[name] = sdpa_kernel(backend)(calls["torch"])
    return qkv, calls


def step(kernel, d):
    """Return a call of causal attention with N = 4096 by one kernel."""
    q, k, v = calls_of(4096, d, True)[0]
    launch, tiles = prepare(kernel, q, k, v, torch.empty_like(q), True, None)
    return partial(launch, *tiles)


if HOPPER:
    rows = []
    for d, c, n in [(d, c, 512 << i) for d in (64, 128) for c in (0, 1) for i in range(6)]:
        calls = calls_of(n, d, bool(c))[1]
        del calls["torch"]
        called = [name for name in calls if name != "flash"]
        rows += rows_of((n, d, c), calls, "TFLOPS", 4 * 16384 * n * 2048 // (1 + c), 20, called)
    steps = {"plain": step(plain_kernel, 128), "ahead": step(ahead_kernel, 128)}
    steps |= {"ahead 64": step(ahead_kernel, 64), "roles 64": step(roles_kernel, 64)}
    values = [row[:3] for row in rows_of((), steps, "TFLOPS", 2 * 16384 * 4096 * 2048)]
    write_rows("attention-forward.csv", ["N", "head_dim", "causal"], rows)
    write_table("06c-attention-gluon-values.csv", ["name", "unit", "value"], values)
    write_calls({"attention": calls_of(256, 64, False, 256)[1]})
    COLORS |= {"cudnn": COLORS["torch"], "flash": COLORS["compile"]}
    names = {"triton": "attention", "triton, as called": "attention, as called", **PEERS}
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    ax.set_xscale("log", base=2)
    shown = [(n, *row) for n, d, causal, *row in rows if d == 128 and causal]
    plot_rates(ax, shown, names, "Causal attention, d = 128, bf16", "N")
else:
    print("This benchmark needs a Hopper GPU.")

# %%
# At N = 16384 ``attention`` reaches :measured:`long` TFLOPS on the GPU and :measured:`called` as
# called, cuDNN :measured:`cudnn_long`, and FlashAttention-2 :measured:`flash_long`. At N = 512 it
# reaches :measured:`short` TFLOPS: on the diagonal, half of each tile is computed but not counted,
# and a short row has few other tiles. **As called**, short calls wait for Python. ``attention``
# keeps the CPU busy for :measured:`cpu` µs, and PyTorch's function for :measured:`cpu_torch` µs.
#
# References
# ----------
#
# * Jay Shah and others: *FlashAttention-3*, NeurIPS 2024, https://arxiv.org/abs/2407.08608
# * NVIDIA: *PTX ISA* (``wgmma``, ``mbarrier``), https://docs.nvidia.com/cuda/parallel-thread-execution
# * Triton's tutorials on Gluon, https://github.com/triton-lang/triton/tree/main/python/tutorials/gluon
