"""
Attention with warp roles
=========================

You build ``attention(q, k, v, causal=False, scale=None)`` once more, for Hopper GPUs (H100, H200)
and in Gluon. Warps get roles, and products run while the softmax is computed. From 1024 tokens on,
heads of 128 reach on average :measured:`share128` % of cuDNN's speed in the same run, and heads of
64 :measured:`share64` %. You need :doc:`06-fused-attention` and :doc:`09b-fp8-gluon`. No later page
needs this one.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "further"
# sphinx_gallery_after = "09b-fp8-gluon"
import atexit
import math
import os
import sys  # for shared/
from contextlib import suppress
from functools import partial
from pathlib import Path  # for shared/

import torch
from torch.nn.functional import scaled_dot_product_attention as torch_attention

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import matplotlib.pyplot as plt
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
)  # fmt: skip
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import draw_rates, figure, rates, write_rows

start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # until 3.8
start_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
HOPPER = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) == (9, 0)
if HOPPER:  # Gluon's compiler reports objects of its own as leaked when Python ends
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
else:
    print("These kernels need a Hopper GPU. Here attention calls PyTorch's function.")

# %%
# In the kernel of :doc:`06-fused-attention` the softmax needs the scores, and the second product
# needs the weights. So a warpgroup alternates between tensor cores and exponentials, unless
# *another* program fills the gaps. On Hopper a product is *started*, and runs until the warpgroup
# waits for it. So the warpgroup could start the scores of the next tile, and compute a softmax
# while the product with the values runs:

# sphinx_gallery_fold = "draws the loop that waits and the loop that is one product ahead"
_, ax = figure(height=3.6)
COLORS = {"q·k": "#cfe3f1", "p·v": "#8fb9d9", "soft-\nmax": "#f2c6b4"}
waits = [(3, 6 * i, 2, "q·k", i) for i in range(2)] + [
    (3, 6 * i + 4, 2, "p·v", i) for i in range(2)
]
waits += [(2, 6 * i + 2, 2, "soft-\nmax", i) for i in range(2)]
starts = [0, 4, 8]  # of the products with the keys
runs = [(0.7, start, 2, "q·k", i) for i, start in enumerate(starts)]
runs += [(0.7, start + 2, 2, "p·v", i) for i, start in enumerate(starts[1:])]
runs += [(-0.3, start + 2, 2, "soft-\nmax", i) for i, start in enumerate(starts)]
for y, start, width, kind, i in waits + runs:
    ax.barh(y, width, left=start, color=COLORS[kind], edgecolor="#444444", height=0.8)
    ax.text(start + width / 2, y, f"{kind} {i}", ha="center", va="center")
places = (3, "tensor cores"), (2, "other units"), (0.7, "tensor cores"), (-0.3, "other units")
ax.set_yticks(*zip(*places, strict=True))
ax.text(6, 3.55, "the loop that waits", ha="center")
ax.text(6, 1.25, "one product ahead", ha="center")
ax.set(xticks=[], xlabel="time (a sketch)", xlim=(0, 12), ylim=(-0.8, 4))
plt.show()

# %%
# In plain Triton you cannot write the second loop: the compiler chooses where it waits for products,
# and in this loop it waits before the softmax. ``tl.range(…, warp_specialize=True)`` lets the
# compiler give warps roles, but the loop stays its own. In Gluon you write it yourself. Barriers, phases, layouts and roles are those of :doc:`09b-fp8-gluon`. The
# price is a multiple of the code, for one kind of GPU, with names that change between releases.
#
# The kernel
# ----------
#
# Each tile has two products: one for the scores, and one with the values. The scores of the first
# tile come before the loop, and the product of the last tile with the values after it. In between,
# an iteration starts the scores of tile *j* and the second product of tile *j − 1*. Then
# ``warpgroup_mma_wait(1, …)`` waits until only *one* is in flight. Products end in the order in
# which they start, so the scores are ready, and the softmax runs during the second product.


@gluon.jit
def online_softmax(s, m, z, scale):
    """Return the weights of a tile, the correction, and the maximum and the sum so far."""
    m_new = gl.maximum(m, gl.max(s, 1) * scale)
    p = gl.exp2(s * scale - m_new[:, None])
    correction = gl.exp2(m - m_new)
    return p, correction, m_new, z * correction + gl.sum(p, 1)


# %%
# That was the online softmax of a tile. Here is the loop around it:


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
        s = warpgroup_mma_wait(1, deps=[s])  # <-
        row = last - (j + STAGES) * BLOCK_N
        release(k_desc, row, k_arrived, k_read, k_tiles, slot, j + STAGES < tiles, ALONE)
        p, correction, m, z = online_softmax(s, m, z, scale)
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
# .. predict:: How many products are in flight while the softmax is computed?
#    :choices: none | one | two
#    :answer: one
#
#    Two are started, the scores of tile *j* and the product with the values of tile *j − 1*. The
#    wait for *one* in flight returns when the first of them is done.
#
# Tiles are taken **from the last to the first**. Only the tile that is taken first lies on the
# diagonal, so only it needs a mask, and the loop has none.
#
# ``release`` says that a buffer has been read. If a program is *alone*, it fetches its next tile
# into the buffer itself. Otherwise it tells the warp that fetches.


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
# **Try it** *(medium, 40 minutes)*. Write ``largest_scores(q, k)``, the largest q·k of each query,
# with the product of tile *j* started before the maximum of tile *j − 1*. ``exercise.pyz`` (see
# *Exercises*) checks it on a Hopper GPU:
#
# .. code-block:: console
#
#    $ python exercise.pyz 06c-largest-scores mine.py
#    06c-largest-scores needs a Hopper GPU of NVIDIA, since no interpreter executes Gluon: add
#    --gpu.
#
# If a buffer is fetched again while its product is in flight, some maxima are those of wrong keys.
#
# **Registers are the limit** (:doc:`/programming-guide/chapter-1/gpu`). A product in flight
# occupies them with its sum and its left factor. Beside the output, a thread holds the weights of
# this tile and the scores of the next one. With 128 threads and *d* = 128, a tile of 128 × 128
# needs 128 + 64 + 128 = 320 registers of each thread, which can have 255. A tile of 64 × 128 needs
# 64 + 32 + 64 = 160, and the rest is left for maxima, sums and exponentials in flight. So a
# warpgroup takes 64 queries and at most 128 keys.
#
# ``ahead_kernel`` allocates buffers, fetches the first tiles, and calls ``attend``. Its tensors are
# matrices with a row for each token of each head, so 128 has to divide the lengths.

# sphinx_gallery_fold = "orders programs, allocates buffers, fetches the first tiles and stores"
COUNTS = ["queries", "keys", "total", "together"]  # one kernel for all lengths


@gluon.jit
def place(program, blocks, heads, together):
    """Return (block, head) of a program: *together* heads at a time, the last blocks first."""
    first = program // (together * blocks) * together  # the first head of this section
    size = min(heads - first, together)  # the last section may have fewer heads
    rest = program - first * blocks
    return blocks - 1 - rest // size, first + rest % size


@gluon.jit
def barriers(COUNT: gl.constexpr, arrivals: gl.constexpr):
    """Return COUNT barriers whose phases end after so many arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=arrivals)
    return made


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
# At *d* = 128 tiles are larger, so fewer programs fit on a multiprocessor. Each has its own copy of
# the same keys and values, and first waits for them. One large program with **roles** solves both:
#
# * **One warp fetches**, as far ahead as there are buffers. It needs few registers.
# * **Two warpgroups compute**, 64 queries each, with the same keys and values. Neither waits for the
#   other's result, so one can multiply while the other computes its softmax. Nothing forces them to
#   alternate, as barriers do in FlashAttention-3. They only share the buffers: one is filled again
#   when both have read it.
#
# While the warpgroups store a result, the fetching warp already fetches tiles of the next block.
# Each buffer has two barriers, called *ready* and *empty* in :doc:`09b-fp8-gluon`: here the
# warpgroups wait for ``arrived``, and the fetching warp waits for the other parity of ``read``.


@gluon.jit
def work(program, sizes, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """Return (block, head, tiles of keys) of the *program*-th block of 128 queries."""
    queries, keys, _, total, together = sizes
    block, head = place(program, queries // 128, total, together)
    tiles = keys // BLOCK_N
    if CAUSAL:
        tiles = gl.minimum(tiles, (block * 128 + 128) // BLOCK_N)
    return block, head, tiles


@gluon.jit
def fetching_warp(
    descs, buffers, bars, sizes, GROUP: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Fetch queries, keys and values for one block of 128 queries after the other."""
    arrived, read = bars
    queries, keys, _, total, _ = sizes
    count = 0
    for program in range(gl.program_id(0), total * (queries // 128), gl.num_programs(0)):
        turn = program // gl.num_programs(0)
        block, head, tiles = work(program, sizes, BLOCK_N, CAUSAL)
        for half in gl.static_range(2):
            row = head * queries + block * 128 + half * 64
            mbarrier.wait(read[0].index(half), turn & 1 ^ 1)  # the other parity: empty
            fetch(descs[0], row, arrived[0].index(half), buffers[0].index(half))
        for j in range(tiles):
            slot, phase = (count + j) % STAGES, (count + j) // STAGES & 1 ^ 1
            row = head // GROUP * keys + (tiles - 1 - j) * BLOCK_N
            for i in gl.static_range(1, 3):  # keys, then values
                mbarrier.wait(read[i].index(slot), phase)
                fetch(descs[i], row, arrived[i].index(slot), buffers[i].index(slot))
        count += tiles


# %%
# **A computing group** waits for its half of the queries, and ``attend`` waits for each tile. Then
# it frees the queries' buffer, so that the fetching warp can fill it again while the result leaves:


@gluon.jit
def computing_group(
    HALF: gl.constexpr, descs, buffers, bars, sizes, D: gl.constexpr, BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute attention for one half of each block of 128 queries."""
    arrived, read = bars
    queries, _, scale, total, _ = sizes
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_tile = buffers[3].index(HALF)
    count = 0
    for program in range(gl.program_id(0), total * (queries // 128), gl.num_programs(0)):
        turn = program // gl.num_programs(0)
        block, head, tiles = work(program, sizes, BLOCK_N, CAUSAL)
        row = block * 128 + HALF * 64
        rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
        mbarrier.wait(arrived[0].index(HALF), turn & 1)
        o = attend(
            buffers[0].index(HALF), buffers[1], buffers[2], arrived[1], arrived[2], read[1],
            read[2], descs[1], descs[2], rows, 0, tiles, count, scale, 64, BLOCK_N, D, CAUSAL,
            STAGES, False,
        )  # fmt: skip
        mbarrier.arrive(read[0].index(HALF), count=1)
        tma.store_wait(0)  # the result before this one has left the buffer
        o_tile.store(o)
        fence_async_shared()
        start_store(descs[3], [head * queries + row, 0], o_tile)
        count += tiles
    tma.store_wait(0)


# %%
# The rest is that of :doc:`09b-fp8-gluon`: ``warp_specialize`` starts the first warpgroup in the
# four warps of the launch, the second in four more, and the fetching warp in one. The launch has
# twelve warps then, as the X-ray shows, because warps come in groups of four.

# sphinx_gallery_fold = "allocates buffers and barriers, and starts the roles"


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
    descs, buffers = (q_desc, k_desc, v_desc, o_desc), (q_tiles, k_tiles, v_tiles, o_tiles)
    arrived = barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 1)
    read = barriers(2, 1), barriers(STAGES, 2), barriers(STAGES, 2)
    sizes = queries, keys, scale, total, together
    fence_async_shared()
    bars = arrived, read
    gl.warp_specialize(
        [
            (computing_group, (0, descs, buffers, bars, sizes, D, BLOCK_N, CAUSAL, STAGES)),
            (computing_group, (1, descs, buffers, bars, sizes, D, BLOCK_N, CAUSAL, STAGES)),
            (fetching_warp, (descs, buffers, bars, sizes, GROUP, BLOCK_N, CAUSAL, STAGES)),
        ],
        [4, 1],  # warps of the second group and of the fetching warp
        [240, 24],  # registers of their threads
    )


# %%
# Here are both kernels, beside PyTorch's FlashAttention-2, on causal attention with *d* = 128 and N
# = 4096:
#
# .. steps:: cudnn
#    :unit: TFLOPS
#    :of: cuDNN
#
#    older: FlashAttention-2, for the GPUs before Hopper
#    ahead: ahead_kernel: the softmax beside a product
#    roles: roles_kernel: one warp fetches, two warpgroups compute
#
# At *d* = 64 ``roles_kernel`` has :measured:`roles_64` % of the rate of ``ahead_kernel``.
#
# Calling it
# ----------
#
# The kernels are for fp16 and bf16, *d* = 64 or 128, and lengths that 128 divides. A program with
# roles goes on to the next block of queries. Only long causal blocks have a program each: they
# differ in length, and the GPU distributes them.

# sphinx_gallery_fold = "chooses tiles, stages, the grid and the order of the heads"
GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None


def settings(kernel, q, k, causal, scale):
    """Return the grid, the other arguments and the constants of a launch."""
    (batch, heads, queries, d), (_, key_heads, keys, _) = q.shape, k.shape
    group, total = heads // key_heads, batch * heads
    short = not causal or keys <= 1024
    # Heads that run together have keys and values in half of the L2 cache.
    together = 2 if short else max(1, GPU.L2_cache_size // (8 * keys * d))
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    numbers = queries, keys, scale, total, group * together
    cols, options = 128, {"STAGES": 2}
    if kernel is ahead_kernel and d == 128:
        cols, options = 64, {"STAGES": 3}
    programs = queries // 64 * total
    if kernel is roles_kernel:
        programs = min(programs // 2, GPU.multi_processor_count if short else programs)
    else:
        options["BLOCK_M"] = 64
    options |= {"GROUP": group, "D": d, "CAUSAL": causal, "BLOCK_N": cols, "num_warps": 4}
    return (programs,), numbers, options


# %%


def described(x, rows):
    """Return a descriptor of the contiguous *x*, as a matrix, with tiles of *rows* by d."""
    d, dtype = x.shape[3], gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for([rows, d], dtype)
    return TensorDescriptor(x.view(-1, d), [x.numel() // d, d], [d, 1], [rows, d], layout)


def run(kernel, q, k, v, causal, scale=None):
    """Return the attention of contiguous tensors by one of the kernels."""
    o = torch.empty_like(q)
    grid, numbers, constants = settings(kernel, q, k, causal, scale)
    cols = constants["BLOCK_N"]
    tiles = described(q, 64), described(k, cols), described(v, cols), described(o, 64)
    kernel[grid](*tiles, *numbers, **constants)
    return o


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for contiguous tensors whose lengths 128 divides."""
    if not HOPPER:
        return torch_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)
    return run(ahead_kernel if q.shape[3] == 64 else roles_kernel, q, k, v, causal, scale)


# %%
# The check covers both kernels on Hopper, with grouped heads, and PyTorch's function elsewhere.

# sphinx_gallery_fold = "compares attention with float64"


def compare(o, q, k, v, **options):
    """Stop unless *o* agrees with attention in float64, up to the rounding of its dtype."""
    exact = torch_attention(q.double(), k.double(), v.double(), enable_gqa=True, **options)
    unit = torch.finfo(o.dtype).eps
    torch.testing.assert_close(o.double(), exact, rtol=unit, atol=unit)


def check(function, heads, key_heads, queries, keys, d):
    """Stop unless *function* agrees with float64 at these sizes."""
    q = torch.randn(1, heads, queries, d, device=DEVICE).bfloat16()
    k, v = torch.randn(2, 1, key_heads, keys, d, device=DEVICE).bfloat16()
    compare(function(q, k, v), q, k, v)
    o = function(q, k, v, causal=True, scale=2.0)
    compare(o, q, k, v, is_causal=True, scale=2.0)


torch.manual_seed(0)
CASES = [(4, 2, 384, 640, 64), (4, 2, 640, 384, 128)]  # heads, key heads, queries, keys, d
if HOPPER:
    CASES += [(2, 2, 4096, 4096, d) for d in (64, 128)] + [(40, 40, 512, 512, 128)]
    q, k, v = torch.randn(3, 1, 4, 640, 128, device=DEVICE).bfloat16()
    compare(run(ahead_kernel, q, k, v, True), q, k, v, is_causal=True)
    q, k, v = torch.randn(3, 1, 4, 640, 64, device=DEVICE).bfloat16()
    compare(run(roles_kernel, q, k, v, True), q, k, v, is_causal=True)
for case in CASES:
    check(attention, *case)
print("attention agrees with float64")

# %%
# The benchmark
# -------------
#
# Sizes and peers are those of :doc:`06-fused-attention`. The plot shows causal attention with *d* =
# 128.

# sphinx_gallery_fold = "times attention, its peers and the steps, and draws the rates"
# sphinx_gallery_xray = "ahead_kernel: 32 heads × 16,384 tokens, d = 64, causal, bf16; roles_kernel: 16 heads × 16,384 tokens, d = 128, causal, bf16"  # noqa: E501
from shared.attention import PEERS, peers, random_inputs

if HOPPER:
    q, k, v = random_inputs(4096, 128)
    narrow = random_inputs(4096, 64)
    steps = {"ahead 64": partial(run, ahead_kernel, *narrow, True)}
    steps["roles 64"] = partial(run, roles_kernel, *narrow, True)
    steps["ahead 128"] = partial(run, ahead_kernel, q, k, v, True)
    steps["roles 128"] = partial(run, roles_kernel, q, k, v, True)
    steps |= peers(q, k, v, True)
    figures = [row[:3] for row in rates((), steps, "TFLOPS", 2 * 16384 * 4096 * 2048)]
    rows = []
    for d, c, n in [(d, c, 512 << i) for d in (64, 128) for c in (0, 1) for i in range(6)]:
        q, k, v = random_inputs(n, d)
        calls = {"triton": partial(attention, q, k, v, bool(c))} | peers(q, k, v, c)
        rows += rates((n, d, c), calls, "TFLOPS", 4 * 16384 * n * 2048 // (1 + c), rounds=20)
    attention(q, k, v, True)  # the last launch is the one whose X-ray is shown
    write_rows("attention-forward.csv", ["N", "head_dim", "causal"], rows)
    shown = [row for row in rows if row[1:3] == (128, 1)]
    names = {"triton": "attention", **PEERS}
    draw_rates(shown, names, "Causal attention, d = 128, bf16", "N, tokens", xscale="log")

# %%
# At N = 16,384 ``attention`` reaches :measured:`long` TFLOPS, cuDNN :measured:`cudnn_long`, and
# FlashAttention-2 :measured:`flash_long`. Compare within a run only: in the recording of
# :doc:`06-fused-attention` cuDNN reaches :measured:`06-fused-attention:cudnn_long`. At N = 512 it reaches :measured:`short` TFLOPS, and cuDNN
# :measured:`cudnn_short`. There, half of each tile on the diagonal is computed but not counted, and
# a short row has few other tiles.
#
# In a program
# ------------
#
# The kernels cover few cases, and a function that others call has to be right in all of them. So
# ``attention`` asks first whether a kernel covers its arguments, and calls PyTorch's function
# otherwise: for fp32, for other head dimensions and lengths, and on other GPUs. Its checks are
# those of :doc:`06-fused-attention`, and so are its plans. Views that are not contiguous are
# copied.

# sphinx_gallery_fold = "the function with its checks"
from shared.attention import check_attention
from shared.launch import Launch, key_of, know_the_gpu, on_device_of
from shared.plans import ORDINARY, Plan, Plans

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
PLANS = Plans()


def is_covered(q, k):
    """Return whether a kernel of this page is for these tensors."""
    lengths = q.shape[2] and q.shape[2] % 128 == k.shape[2] % 128 == 0
    return HOPPER and lengths and q.dtype != torch.float32 and q.shape[3] in (64, 128)


def ready(x):
    """Return *x* if it is contiguous and aligned, and a copy of it otherwise."""
    aligned = x.is_contiguous() and x.data_ptr() % 16 == 0
    return x if aligned else x.clone(memory_format=torch.contiguous_format)


def plan_for(q, k, v, causal, scale):
    """Return a plan for tensors like these."""
    know_the_gpu()  # a new thread does not
    kernel = ahead_kernel if q.shape[3] == 64 else roles_kernel
    grid, numbers, constants = settings(kernel, q, k, causal, scale)
    rows = 64, constants["BLOCK_N"], constants["BLOCK_N"], 64
    tiles = map(described, (q, k, v, torch.empty_like(q)), rows)
    return Plan(Launch(kernel, grid, numbers, constants), tiles)


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head, without gradients.

    Arguments are those of 06-fused-attention. TypeError refuses what is no tensor, and dtypes
    other than fp16, bf16 and fp32. ValueError refuses head dimensions other than 16, 32, 64 and
    128, shapes or devices that do not fit, a scale that is not positive, and tensors that require a
    gradient outside of ``torch.no_grad()``.
    """
    whole = torch.compiler.is_compiling() or not {type(q), type(k), type(v)} <= ORDINARY
    plan, wanted = None, torch.is_grad_enabled()
    if not whole and not (wanted and (q.requires_grad or k.requires_grad or v.requires_grad)):
        if q.is_neg() or k.is_neg() or v.is_neg():  # the sign is still to be changed
            q, k, v = q.resolve_neg(), k.resolve_neg(), v.resolve_neg()
        with suppress(RuntimeError, TypeError):  # a sparse tensor, or a scale without a hash
            plan = PLANS.get((key_of(q, k, v), type(causal), causal, scale))
    if plan is None:
        check_attention(q, k, v, causal, scale, DEVICE, DTYPES)
        if whole:
            return attention_op(q, k, v, causal, scale)
        covered, q, k, v = is_covered(q, k), ready(q), ready(k), ready(v)
        if not covered:  # on an H100, PyTorch's is wrong, or fails, at odd strides and addresses
            with torch.autocast(q.device.type, enabled=False):  # the result is of q's dtype
                return torch_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)
        if q.numel() == 0:
            return torch.empty_like(q)
        with on_device_of(q):
            plan = plan_for(q, k, v, causal, scale)
        PLANS.keep((key_of(q, k, v), type(causal), causal, scale), plan)
    o = torch.empty_like(q)
    plan((q, k, v, o))
    return o


# For torch.compile, and for tensors without memory, the function is one operation.
SCHEMA = "(Tensor q, Tensor k, Tensor v, bool causal, float? scale) -> Tensor"


@torch.library.custom_op("gallery::attention_c", mutates_args=(), schema=SCHEMA)
def attention_op(q, k, v, causal, scale):
    """Return the contiguous result of ``attention``."""
    return attention(q.detach(), k.detach(), v.detach(), causal, scale).contiguous()


@attention_op.register_fake
def attention_shape(q, k, v, causal, scale):
    """Return a tensor like the result, without computing it."""
    return q.new_empty(q.shape)


# %%
# The same check of this function, twice, because the second call uses the plan, with two cases that
# no kernel covers, and the CPU's share of a call:

# sphinx_gallery_fold = "checks the function, times its calls, and keeps the figures"
from shared.attention import first_longer
from shared.bench import write_calls, write_table

for case in [*CASES, (4, 2, 100, 77, 128), (2, 2, 1, 67, 16)] * 2:
    check(attention, *case)
    check(lambda q, k, v, **options: attention(q.mT.contiguous().mT, k, v, **options), *case)
print("attention agrees with float64")

if HOPPER:
    q, k, v = torch.randn(3, 1, 32, 256, 64, device=DEVICE).bfloat16()
    calls = {"triton": partial(attention, q, k, v), "torch": partial(torch_attention, q, k, v)}
    cpu = write_calls({"attention": calls})["attention", "triton"]
    longer = first_longer(lambda q, k, v: partial(attention, q, k, v, True), cpu)
    figures.append(("GPU longer from", "tokens", longer))
    write_table("06c-attention-gluon-values.csv", ["name", "unit", "value"], figures)

# %%
# A call keeps the CPU busy for :measured:`cpu` µs, and one of PyTorch's function for
# :measured:`cpu_torch` µs. In a loop that does not wait, a call costs the larger of two times: the
# CPU's, and the GPU's. For one causal sequence with 16 heads of 128, the GPU's is the larger from
# :measured:`gpu_longer` tokens on.
#
# Exercises
# ---------
#
# 1. **The largest score** *(medium, 40 minutes)*. The exercise above.
#    :doc:`Solution <solutions/06c-largest-scores>`.
# 2. **The log-sum-exp** *(hard, 50 minutes)*. Write ``log_sum_exp(q, k, scale=None)``, one number
#    for each query, as :doc:`06b-attention-backward` needs it. All of the online softmax of a tile
#    runs while the next one is multiplied. :doc:`Solution <solutions/06c-log-sum-exp>`.
#
# References
# ----------
#
# * Jay Shah and others: *FlashAttention-3*, NeurIPS 2024, https://arxiv.org/abs/2407.08608
# * NVIDIA: *PTX ISA* (``wgmma``, ``mbarrier``),
#   https://docs.nvidia.com/cuda/parallel-thread-execution
# * Triton's tutorials on Gluon,
#   https://github.com/triton-lang/triton/tree/main/python/tutorials/gluon
