"""The kernels of ``gated_delta_rule``. The lessons 14-gated-delta-rule and 14b explain them.

A text is read in chunks of C = 64 tokens. In a chunk, let γᵢ be the product of the decays of its
tokens up to *i*, and

* ``A[i, j] = βᵢ · γᵢ / γⱼ · (kᵢ · kⱼ)`` for j < i, and ``T = (1 + A)⁻¹ · diag(β)``,
* ``P[i, j] = scale · γᵢ / γⱼ · (qᵢ · kⱼ)`` for j ≤ i.

Then ``U = T (V - γ K S)``, ``O = scale · γ Q S + P U`` and ``S ← γ_C S + (γ_C / γ · K)ᵀ U``, with
the state S before the chunk. :func:`chunk_kernel` leaves T, P and two vectors in memory, *[C + C +
ROWS_OF_LOGS, C]* for each chunk and head: the logarithms of γᵢ and of γ_C / γᵢ, in fp32.
"""

import triton
import triton.language as tl

#: Rows of C elements behind T and P, for 2 C numbers of fp32: enough in 16 bits, too.
ROWS_OF_LOGS = tl.constexpr(4)


@triton.jit
def inverse(a, C: tl.constexpr, KIND: tl.constexpr):
    """Return the inverse of 1 + *a*, [C, C]; *a* is zero on the diagonal and above.

    KIND is the dtype of the factors of products.
    """
    B: tl.constexpr = 8
    block = tl.arange(0, C // B)
    i = tl.arange(0, B)
    row = tl.arange(0, C)
    same = block[:, None, None, None] == block[None, None, :, None]
    small = tl.sum(tl.where(same, tl.reshape(a, (C // B, B, C // B, B)), 0.0), axis=2)
    eye = tl.where(i[:, None] == i[None, :], 1.0, 0.0)[None, :, :]
    x = tl.broadcast_to(eye, (C // B, B, B))
    for j in range(B - 1):  # subtract row j from the rows below it
        column = tl.sum(tl.where(i[None, None, :] == j, small, 0.0), axis=2)
        upper = tl.sum(tl.where(i[None, :, None] == j, x, 0.0), axis=1)
        x -= column[:, :, None] * upper[:, None, :]
    x = tl.reshape(tl.where(same, x[:, :, None, :], 0.0), (C, C))
    for level in tl.static_range(3):  # pairs of blocks of 8, then of 16, then of 32
        block = row // (B * 2**level)
        neighbors = (block[:, None] ^ block[None, :]) == 1
        b = tl.where(neighbors, a, 0.0).to(KIND)
        rounded = x.to(KIND)
        right = tl.dot(b, rounded, input_precision="ieee").to(KIND)
        x -= tl.dot(rounded, right, input_precision="ieee")
    return x


@triton.jit
def chunk_kernel(
    q_ptr, k_ptr, g_ptr, beta_ptr, tp_ptr, tokens, k_heads, v_heads, scale,
    C: tl.constexpr, D: tl.constexpr, SHARE: tl.constexpr, KIND: tl.constexpr,
    LOG_KIND: tl.constexpr,
):  # fmt: skip
    """Compute T, P and the logarithms of a chunk, for the SHARE heads that have its keys.

    LOG_KIND is the dtype of sums of gates. In fp32 a sum of strong ones has an absolute error of
    1e-4, which is the relative error of a decay between two tokens behind them.
    """
    chunks = tl.cdiv(tokens, C)
    chunk = tl.program_id(0) % chunks  # on one axis: others would allow 65,535 programs only
    k_head = tl.program_id(0) // chunks % k_heads
    batch = (tl.program_id(0) // chunks // k_heads).to(tl.int64)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    token = batch * tokens + chunk * C + i
    real = chunk * C + i < tokens  # others change nothing
    at_k = (token * k_heads + k_head)[:, None] * D + d[None, :]
    k = tl.load(k_ptr + at_k, mask=real[:, None], other=0.0)
    q = tl.load(q_ptr + at_k, mask=real[:, None], other=0.0)
    kk = tl.dot(k, tl.trans(k), input_precision="ieee")
    qk = tl.dot(q, tl.trans(k), input_precision="ieee")
    nan = float("nan")
    for head in range(k_head * SHARE, (k_head + 1) * SHARE):
        g = tl.load(g_ptr + token * v_heads + head, mask=real, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + token * v_heads + head, mask=real, other=0.0).to(tl.float32)
        # A NaN must reach no earlier token, but in a product 0 * NaN is NaN. So the tokens from the
        # first NaN on change nothing in T, and get NaN in P, as does the state behind the chunk.
        whole = (g < float("inf")) & (tl.abs(beta) < float("inf"))
        first_broken = tl.min(tl.where(whole, C, i), axis=0)
        good = i < first_broken
        g = tl.where(good, tl.maximum(g, -40.0), 0.0)  # e**-40 is nothing, and -inf - -inf is NaN
        beta = tl.where(good, beta, 0.0)
        log = tl.cumsum(g.to(LOG_KIND), axis=0)
        between = (log[:, None] - log[None, :]).to(tl.float32)
        decay = tl.exp(tl.where(i[:, None] >= i[None, :], between, -float("inf")))
        left = (tl.sum(g.to(LOG_KIND), axis=0) - log).to(tl.float32)
        at = (batch * v_heads + head) * chunks + chunk
        rows = tp_ptr + at * (2 * C + ROWS_OF_LOGS) * C
        logs = (rows + 2 * C * C).to(tl.pointer_type(tl.float32))
        tl.store(logs + i, log.to(tl.float32))
        tl.store(logs + C + i, tl.where(first_broken < C, nan, left))
        tp_ptrs = rows + i[:, None] * C + i[None, :]
        p = tl.where(good[:, None], scale * qk * decay, nan)
        tl.store(tp_ptrs + C * C, p.to(tp_ptr.dtype.element_ty))
        a = tl.where(i[:, None] > i[None, :], beta[:, None] * kk * decay, 0.0)
        t = inverse(a, C, KIND) * beta[None, :]
        tl.store(tp_ptrs, t.to(tp_ptr.dtype.element_ty))


@triton.jit
def step(state, k, v, t, tp_ptr, C: tl.constexpr):
    """Return U of a chunk, the state after it, both transposed, and the logarithms of γ.

    The state is transposed, so that the left factor of all products is in registers already.
    """
    logs = (tp_ptr + 2 * C * C).to(tl.pointer_type(tl.float32))
    log = tl.load(logs + tl.arange(0, C))[None, :]
    last = tl.load(logs + C - 1)
    left = tl.load(logs + C + tl.arange(0, C))[None, :]
    read = tl.exp(log) * tl.dot(state.to(k.dtype), tl.trans(k), input_precision="ieee")
    missing = (tl.trans(v) - read).to(v.dtype)
    u = tl.dot(missing, tl.trans(t), input_precision="ieee")
    decayed = (u * tl.exp(left)).to(v.dtype)
    return u, tl.dot(decayed, k, tl.exp(last) * state, input_precision="ieee"), log


@triton.jit
def scan_kernel(
    q_ptr, k_ptr, v_ptr, tp_ptr, o_ptr, tokens, k_heads, v_heads, scale,
    C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Walk over the chunks of one head, with BLOCK columns of its state."""
    BLOCKS: tl.constexpr = D // BLOCK
    column = tl.program_id(0) % BLOCKS * BLOCK
    head = tl.program_id(0) // BLOCKS % v_heads
    batch = (tl.program_id(0) // BLOCKS // v_heads).to(tl.int64)
    chunks = tl.cdiv(tokens, C)
    at_k = head // SHARE * D
    at_v = head * D + column
    k_row = k_heads * D
    v_row = v_heads * D
    q_ptr += batch * tokens * k_row
    k_ptr += batch * tokens * k_row
    v_ptr += batch * tokens * v_row
    o_ptr += batch * tokens * v_row
    tp_ptr += (batch * v_heads + head) * chunks * (2 * C + ROWS_OF_LOGS) * C
    q_tiles = tl.make_tensor_descriptor(q_ptr, [tokens, k_row], [k_row, 1], [C, D])
    k_tiles = tl.make_tensor_descriptor(k_ptr, [tokens, k_row], [k_row, 1], [C, D])
    v_tiles = tl.make_tensor_descriptor(v_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    o_tiles = tl.make_tensor_descriptor(o_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    tp_rows = (2 * C + ROWS_OF_LOGS) * chunks
    tp_tiles = tl.make_tensor_descriptor(tp_ptr, [tp_rows, C], [C, 1], [C, C])
    state = tl.zeros((BLOCK, D), tl.float32)
    for chunk in range(chunks):
        token = chunk * C
        row = chunk * (2 * C + ROWS_OF_LOGS)
        k = k_tiles.load([token, at_k])
        v = v_tiles.load([token, at_v])
        t = tp_tiles.load([row, 0])
        rounded = state.to(v.dtype)
        u, state, log = step(state, k, v, t, tp_ptr, C)
        q = q_tiles.load([token, at_k])
        p = tp_tiles.load([row + C, 0])
        o = scale * tl.exp(log) * tl.dot(rounded, tl.trans(q), input_precision="ieee")
        o = tl.trans(tl.dot(u.to(v.dtype), tl.trans(p), o, input_precision="ieee"))
        o_tiles.store([token, at_v], o.to(v.dtype))
        tp_ptr += (2 * C + ROWS_OF_LOGS) * C


# In segments: each has a number of chunks, and a state at its end of M S + L, where S is the state
# at its start. Both are transposed in memory, [2, D, D] for each segment but the last: L, then M.


@triton.jit
def summary_kernel(
    k_ptr, v_ptr, tp_ptr, ends_ptr, tokens, k_heads, v_heads, length, segments,
    C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK rows of the transposed L of a segment, or of its M, which lies below L."""
    BLOCKS: tl.constexpr = 2 * D // BLOCK
    row = tl.program_id(0) % BLOCKS * BLOCK
    segment = tl.program_id(0) // BLOCKS % (segments - 1)
    v_head = tl.program_id(0) // BLOCKS // (segments - 1)  # of all texts
    head = v_head % v_heads
    batch = (v_head // v_heads).to(tl.int64)
    k_row = k_heads * D
    v_row = v_heads * D
    k_ptr += batch * tokens * k_row
    v_ptr += batch * tokens * v_row
    k_tiles = tl.make_tensor_descriptor(k_ptr, [tokens, k_row], [k_row, 1], [C, D])
    v_tiles = tl.make_tensor_descriptor(v_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    first = segment * length
    chunks = tl.cdiv(tokens, C)
    tp_ptr += ((batch * v_heads + head) * chunks + first) * (2 * C + ROWS_OF_LOGS) * C
    tp_rows = (2 * C + ROWS_OF_LOGS) * length
    tp_tiles = tl.make_tensor_descriptor(tp_ptr, [tp_rows, C], [C, 1], [C, C])
    rows = row + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    state = tl.where(rows[:, None] - D == d[None, :], 1.0, 0.0)  # zeros, then the identity
    at_k = head // SHARE * D
    at_v = tl.where(row < D, head * D + row, v_row)  # beyond v, a descriptor gives zeros
    for chunk in range(length):
        token = (first + chunk) * C
        k = k_tiles.load([token, at_k])
        v = v_tiles.load([token, at_v])
        t = tp_tiles.load([chunk * (2 * C + ROWS_OF_LOGS), 0])
        _, state, _ = step(state, k, v, t, tp_ptr, C)
        tp_ptr += (2 * C + ROWS_OF_LOGS) * C
    ends_ptr += ((batch * v_heads + head) * (segments - 1) + segment) * (2 * D * D)
    tl.store(ends_ptr + rows[:, None] * D + d[None, :], state)


@triton.jit
def combine_kernel(
    ends_ptr, segments, D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr
):
    """Replace L of each segment by the state at its end, for BLOCK columns of the state."""
    BLOCKS: tl.constexpr = D // BLOCK
    rows = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    v_head = (tl.program_id(0) // BLOCKS).to(tl.int64)  # of all texts
    ends_ptr += v_head * (segments - 1) * (2 * D * D)
    at = rows[:, None] * D + d[None, :]
    whole = d[:, None] * D + d[None, :]
    state = tl.load(ends_ptr + at)
    for _ in range(1, segments - 1):
        ends_ptr += 2 * D * D
        m = tl.load(ends_ptr + D * D + whole)
        state = tl.dot(state, m, tl.load(ends_ptr + at), input_precision=PRECISION)
        tl.store(ends_ptr + at, state)


@triton.jit
def segment_kernel(
    q_ptr, k_ptr, v_ptr, tp_ptr, ends_ptr, o_ptr, tokens, k_heads, v_heads, length, segments, scale,
    C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Walk over the chunks of a segment of one head, with BLOCK columns of its state."""
    BLOCKS: tl.constexpr = D // BLOCK
    column = tl.program_id(0) % BLOCKS * BLOCK
    segment = tl.program_id(0) // BLOCKS % segments
    v_head = tl.program_id(0) // BLOCKS // segments  # of all texts
    head = v_head % v_heads
    batch = (v_head // v_heads).to(tl.int64)
    k_row = k_heads * D
    v_row = v_heads * D
    at_k = head // SHARE * D
    at_v = head * D + column
    q_ptr += batch * tokens * k_row
    k_ptr += batch * tokens * k_row
    v_ptr += batch * tokens * v_row
    o_ptr += batch * tokens * v_row
    q_tiles = tl.make_tensor_descriptor(q_ptr, [tokens, k_row], [k_row, 1], [C, D])
    k_tiles = tl.make_tensor_descriptor(k_ptr, [tokens, k_row], [k_row, 1], [C, D])
    v_tiles = tl.make_tensor_descriptor(v_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    o_tiles = tl.make_tensor_descriptor(o_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    first = segment * length
    chunks = tl.cdiv(tokens, C)
    count = tl.minimum(length, chunks - first)
    tp_ptr += ((batch * v_heads + head) * chunks + first) * (2 * C + ROWS_OF_LOGS) * C
    tp_rows = (2 * C + ROWS_OF_LOGS) * count
    tp_tiles = tl.make_tensor_descriptor(tp_ptr, [tp_rows, C], [C, 1], [C, C])
    rows = column + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    ends_ptr += ((batch * v_heads + head) * (segments - 1) + segment - 1) * (2 * D * D)
    at = ends_ptr + rows[:, None] * D + d[None, :]
    state = tl.load(at, mask=(rows[:, None] >= 0) & (segment > 0), other=0.0)
    for chunk in range(count):
        token = (first + chunk) * C
        row = chunk * (2 * C + ROWS_OF_LOGS)
        k = k_tiles.load([token, at_k])
        v = v_tiles.load([token, at_v])
        t = tp_tiles.load([row, 0])
        rounded = state.to(v.dtype)
        u, state, log = step(state, k, v, t, tp_ptr, C)
        q = q_tiles.load([token, at_k])
        p = tp_tiles.load([row + C, 0])
        o = scale * tl.exp(log) * tl.dot(rounded, tl.trans(q), input_precision="ieee")
        o = tl.trans(tl.dot(u.to(v.dtype), tl.trans(p), o, input_precision="ieee"))
        o_tiles.store([token, at_v], o.to(v.dtype))
        tp_ptr += (2 * C + ROWS_OF_LOGS) * C
