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
# In the kernel of :doc:`06-fused-attention` the softmax needs the scores, and the second product
# needs the weights. So a group of four warps alternates between tensor cores and exponentials,
# unless *another* program fills the gaps. On Hopper a product is *started*, and runs until the
# group waits for it. The group could start two products, and compute a softmax while the second
# runs::
#
#     tensor cores   q·k₁            q·k₂ p₁·v₁       q·k₃ p₂·v₂       q·k₄ p₃·v₃
#     other units        softmax₁         softmax₂         softmax₃         softmax₄
#
# Plain Triton cannot say that: its compiler waits for each product of that loop where it stands.
# Gluon comes with Triton, and has the same ``@jit`` and the same Python. You decide what Triton's
# compiler decides otherwise:
#
# * A **layout** says which thread holds which element of a tile.
# * Shared memory is allocated by name. A copy into it is started, and done later.
# * A **barrier** counts arrivals, or bytes. When all have arrived, a *phase* ends. A wait for 0
#   ends with phase 1, 3, …, and a wait for 1 with phase 0, 2, …. Phase 0 has ended from the start.
#
# The price is a multiple of the code, for one kind of GPU, with names that change between releases.

# sphinx_gallery_level = "beyond"
import atexit
import math
import os
from functools import partial

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import scaled_dot_product_attention as torch_attention

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # until 3.8
start_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
HOPPER = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) == (9, 0)
if HOPPER:  # Gluon's compiler reports objects of its own as leaked when Python ends
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
else:
    print("These kernels need a Hopper GPU. Here attention calls PyTorch's function.")


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
# ``fetch`` tells a barrier how many bytes to expect, and starts the copy. ``release`` says that a
# buffer has been read. In the next kernel a program is *alone* and fetches its own next tile.
#
# One product ahead
# -----------------
#
# The loop starts the first product of tile *j* and the second of tile *j − 1*. Then it waits until
# *one* is left: ``warpgroup_mma_wait(1, …)``. Products end in the order of their start, so now the
# scores are there. The softmax runs beside the second product. Tiles are taken **from the last to
# the first**: the tile on the diagonal is masked before the loop, which then needs no mask.


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
# Registers are the limit: a running product occupies them with its sum and its left factor. Beside
# the output, a thread holds the weights of this tile and the scores of the next one. With 128
# threads and *d* = 128, a tile of 128 × 128 needs 128 + 64 + 128 = 320 registers of each thread,
# which can have 255. A tile of 64 × 128 needs 64 + 32 + 64 = 160, and the rest is left for maxima,
# sums and exponentials in flight. So a group takes 64 queries and 128 keys.
#
# ``ahead_kernel`` allocates buffers and fetches the first tiles. ``attention`` uses it at *d* = 64.
# Its tensors are matrices with a row for each token of each head, so 128 has to divide the lengths.

# sphinx_gallery_fold = "orders programs, allocates buffers, fetches the first tiles and stores"
# sphinx_gallery_show = "ahead_kernel"
COUNTS = ["queries", "keys", "total", "together"]  # one kernel for all lengths


@gluon.jit
def place(program, blocks, heads, together):
    """Return (block, head) of a program: *together* heads at a time, the last blocks first."""
    first = program // (together * blocks) * together  # the first head of this section
    size = min(heads - first, together)  # the last section may have fewer heads
    rest = program - first * blocks
    return blocks - 1 - rest // size, first + rest % size


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
# At *d* = 128 tiles are larger, so fewer programs fit. Each has its own copy of the same keys and
# values, and first waits for them. One large program solves both, if its warps have **roles**:
#
# * **One warp fetches**, as far ahead as there are buffers. It needs few registers.
# * **Two groups of four warps compute**, 64 queries each, with the same keys and values. They never
#   wait for each other: one multiplies while the other is in its softmax.
#
# When the groups store a result, the tiles of the next block are already there. Each buffer has two
# barriers. The groups wait for ``arrived``, the fetching warp for ``read``.


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
            mbarrier.wait(read[0].index(half), turn & 1 ^ 1)
            fetch(descs[0], row, arrived[0].index(half), buffers[0].index(half))
        for j in range(tiles):
            slot, phase = (count + j) % STAGES, (count + j) // STAGES & 1 ^ 1
            row = head // GROUP * keys + (tiles - 1 - j) * BLOCK_N
            for i in gl.static_range(1, 3):  # keys, then values
                mbarrier.wait(read[i].index(slot), phase)
                fetch(descs[i], row, arrived[i].index(slot), buffers[i].index(slot))
        count += tiles


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
# ``warp_specialize`` starts the first group in the four warps of the launch, the second in four
# more, and the fetching warp in one. A thread of these two gets 240 and 24 registers.


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
# Here are both on causal attention with *d* = 128 and N = 4096:
#
# .. steps:: cudnn
#    :unit: TFLOPS
#
#    older: FlashAttention-2, for the GPUs before Hopper
#    ahead: the softmax beside a product
#    roles: one warp fetches, two groups compute
#
# At *d* = 64 roles do not pay: they reach :measured:`roles_64` % of the kernel without.
#
# Calling it
# ----------
#
# The kernels are for fp16 and bf16, *d* = 64 or 128, and lengths that 128 divides. For all else,
# and on all other GPUs, ``attention`` calls PyTorch's function. A program with roles goes on to the
# next block, but long causal blocks differ in length: each has a program, and the GPU distributes
# them. The plan of a launch is kept for each shape, as in :doc:`06-fused-attention`.

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

# sphinx_gallery_fold = "keeps a plan for each kind of call, and calls a kernel"
# sphinx_gallery_show = "attention"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
PLANS = {}


def is_covered(q, k):
    """Return whether a kernel of this page is for these tensors."""
    lengths = q.shape[2] and q.shape[2] % 128 == k.shape[2] % 128 == 0
    return HOPPER and lengths and q.dtype != torch.float32 and q.shape[3] in (64, 128)


def ready(x):
    """Return *x* if it is contiguous and aligned, and a copy of it otherwise."""
    aligned = x.is_contiguous() and x.data_ptr() % 16 == 0
    return x if aligned else x.clone(memory_format=torch.contiguous_format)


def described(x, rows):
    """Return a descriptor of the contiguous *x* with tiles of *rows* by d."""
    d = x.shape[3]
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for([rows, d], dtype)
    return TensorDescriptor(x.view(-1, d), [x.numel() // d, d], [d, 1], [rows, d], layout)


def prepare(kernel, q, k, v, o, causal, scale):
    """Return (a launch of *kernel*, the descriptors of the tensors)."""
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
    tiles = map(described, (q, k, v, o), (64, cols, cols, 64))
    return Launch(kernel, (programs,), numbers, options), list(tiles)


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head; arguments and errors are those of 06."""
    plan, compiling = None, torch.compiler.is_compiling()
    try:
        if not (compiling or q.requires_grad or k.requires_grad or v.requires_grad):
            plan = PLANS.get((key_of(q, k, v), causal, scale))
    except (AttributeError, TypeError):  # no tensors, or a scale that cannot be in a key
        pass
    if plan is None:
        check_arguments(q, k, v, scale)
        if not is_covered(q, k):
            options = {"is_causal": bool(causal), "scale": scale, "enable_gqa": True}
            return torch_attention(q, k, v, **options)
        if compiling:
            return attention_op(q, k, v, bool(causal), scale)
        q, k, v, causal = ready(q), ready(k), ready(v), bool(causal)
        kernel = ahead_kernel if q.shape[3] == 64 else roles_kernel
        launch, tiles = prepare(kernel, q, k, v, torch.empty_like(q), causal, scale)
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = launch, [vars(tile) | {"base": None} for tile in tiles]
        plan = PLANS.setdefault((key_of(q, k, v), causal, scale), plan)
    launch, fields = plan
    o = torch.empty_like(q)
    tiles = [object.__new__(TensorDescriptor) for _ in fields]  # not checked again
    for tile, same, x in zip(tiles, fields, (q, k, v, o), strict=True):
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
# The check covers both kernels on Hopper, and PyTorch's function elsewhere.

# sphinx_gallery_fold = "compares attention with float64"


def compare(o, q, k, v, **options):
    """Stop unless *o* agrees with attention in float64, up to the rounding of its dtype."""
    exact = torch_attention(q.double(), k.double(), v.double(), enable_gqa=True, **options)
    unit = torch.finfo(o.dtype).eps
    torch.testing.assert_close(o.double(), exact, rtol=unit, atol=unit)


torch.manual_seed(0)
cases = [(4, 2, 100, 77, 128), (2, 2, 1, 67, 16)]  # heads, key heads, queries, keys, d
if HOPPER:
    cases += [(2, 2, 4096, 4096, d) for d in (64, 128)] + [(40, 40, 512, 512, 128)]
    cases += [(4, 2, 384, 640, 64), (4, 2, 640, 384, 128)]
for heads, key_heads, queries, keys, d in cases * 2:  # the second time with a plan
    q = torch.randn(1, queries, heads, d, device=DEVICE).bfloat16().transpose(1, 2)
    k, v = torch.randn(2, 1, key_heads, keys, d, device=DEVICE).bfloat16()
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
    steps = {f"ahead {d}": step(ahead_kernel, d) for d in (64, 128)}
    steps["roles 64"] = step(roles_kernel, 64)
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
