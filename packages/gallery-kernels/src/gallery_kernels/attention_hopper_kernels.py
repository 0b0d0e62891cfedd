"""The Gluon kernels of attention for Hopper GPUs. The lesson 06c-attention-gluon explains them.

A product is started, and the softmax of one tile is computed while the next products run. Tensors
are contiguous, and read as matrices with a row for each token of each head. Tiles are taken from
the last to the first, so only the first one taken needs a causal mask: a tile has at least as many
keys as a block has queries, a multiple of them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # until 3.8
start_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

#: Arguments whose values must not lead to kernels of their own: one kernel for all lengths.
COUNTS = ["queries", "keys", "total", "together", "lse_ptr"]

LOWEST = gl.constexpr(-3.4028234663852886e38)  # of fp32


@gluon.jit
def online_softmax(s, m, z, scale):
    """Return the weights of a tile, the correction, and the maximum and the sum so far."""
    m_new = gl.maximum(m, gl.max(s, 1) * scale)
    p = gl.exp2(s * scale - m_new[:, None])
    correction = gl.exp2(m - m_new)
    return p, correction, m_new, z * correction + gl.sum(p, 1)


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


@gluon.jit
def attend(
    q, k_tiles, v_tiles, k_arrived, v_arrived, k_read, v_read, k_desc, v_desc, rows, last, tiles,
    count, scale, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr, ALONE: gl.constexpr,
):  # fmt: skip
    """Return the output and the log-sum-exp of BLOCK_M queries; *count* tiles came before."""
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
    m = gl.maximum(gl.max(s, 1) * scale, LOWEST)  # -inf - -inf would be NaN
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
    return o.to(q.dtype), m + gl.log2(z)


@gluon.jit
def place(number, blocks, heads, together):
    """Return (block, head) by number: *together* heads at a time, the last blocks first."""
    first = number // (together * blocks) * together  # the first head of this section
    size = min(heads - first, together)  # the last section may have fewer heads
    rest = number - first * blocks
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
    q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys, scale, total, together,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr, KEEP_LSE: gl.constexpr,
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
    o, lse = attend(
        q, k_tiles, v_tiles, k_arrived, v_arrived, k_arrived, v_arrived, k_desc, v_desc,
        rows, last, tiles, 0, scale, BLOCK_M, BLOCK_N, D, CAUSAL, STAGES, True,
    )  # fmt: skip
    q.store(o)
    fence_async_shared()
    start_store(o_desc, [head * queries + row, 0], q)
    if KEEP_LSE:
        gl.store(lse_ptr + head * queries + rows, lse)
    tma.store_wait(0)


@gluon.jit
def place_in_turn(turn, program, programs, CAUSAL: gl.constexpr):
    """Return which block of a turn a program computes; a turn has one for each program.

    If causal, odd turns go backwards: after a long block, a program gets a short one.
    """
    place = program
    if CAUSAL:
        if turn % 2 == 1:
            place = programs - 1 - program
    return place


@gluon.jit
def turns_of(blocks, program, programs, CAUSAL: gl.constexpr):
    """Return how many of all *blocks* a program computes; the last turn may have fewer."""
    turns = blocks // programs
    if place_in_turn(turns, program, programs, CAUSAL) < blocks % programs:
        turns += 1
    return turns


@gluon.jit
def work(number, sizes, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """Return (block, head, tiles of keys) of the block of 128 queries with this number."""
    queries, keys, _, total, together = sizes
    block, head = place(number, queries // 128, total, together)
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
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(turns_of(total * (queries // 128), program, programs, CAUSAL)):
        number = turn * programs + place_in_turn(turn, program, programs, CAUSAL)
        block, head, tiles = work(number, sizes, BLOCK_N, CAUSAL)
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


@gluon.jit
def computing_group(
    HALF: gl.constexpr, descs, buffers, bars, sizes, lse_ptr, D: gl.constexpr,
    BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr, STAGES: gl.constexpr, KEEP_LSE: gl.constexpr,
):  # fmt: skip
    """Compute attention for one half of each block of 128 queries."""
    arrived, read = bars
    queries, _, scale, total, _ = sizes
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_tile = buffers[3].index(HALF)
    count = 0
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(turns_of(total * (queries // 128), program, programs, CAUSAL)):
        number = turn * programs + place_in_turn(turn, program, programs, CAUSAL)
        block, head, tiles = work(number, sizes, BLOCK_N, CAUSAL)
        row = block * 128 + HALF * 64
        rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
        mbarrier.wait(arrived[0].index(HALF), turn & 1)
        o, lse = attend(
            buffers[0].index(HALF), buffers[1], buffers[2], arrived[1], arrived[2], read[1],
            read[2], descs[1], descs[2], rows, 0, tiles, count, scale, 64, BLOCK_N, D, CAUSAL,
            STAGES, False,
        )  # fmt: skip
        mbarrier.arrive(read[0].index(HALF), count=1)
        tma.store_wait(0)  # the result before this one has left the buffer
        o_tile.store(o)
        fence_async_shared()
        start_store(descs[3], [head * queries + row, 0], o_tile)
        if KEEP_LSE:
            gl.store(lse_ptr + head * queries + rows, lse)
        count += tiles
    tma.store_wait(0)


@gluon.jit(do_not_specialize=COUNTS)
def roles_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, queries, keys, scale, total, together,
    GROUP: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    STAGES: gl.constexpr, KEEP_LSE: gl.constexpr,
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
            (
                computing_group,
                (0, descs, buffers, bars, sizes, lse_ptr, D, BLOCK_N, CAUSAL, STAGES, KEEP_LSE),
            ),
            (
                computing_group,
                (1, descs, buffers, bars, sizes, lse_ptr, D, BLOCK_N, CAUSAL, STAGES, KEEP_LSE),
            ),
            (fetching_warp, (descs, buffers, bars, sizes, GROUP, BLOCK_N, CAUSAL, STAGES)),
        ],
        [4, 1],  # warps of the second group and of the fetching warp
        [240, 24],  # registers of their threads
    )
