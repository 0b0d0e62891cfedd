"""The Triton kernels of attention, for all GPUs. The lessons 06 and 06b explain them.

A head has HEAD numbers, padded to D, a power of two: descriptors read zeros behind the last number,
and so do the other loads. The running maximum starts at the lowest float and not at -inf: where all
scores of the first tile are -inf, ``-inf - -inf`` would be NaN.
"""

import triton
import triton.language as tl

#: Arguments whose values must not lead to kernels of their own: one kernel for all lengths.
COUNTS = ["heads", "queries", "keys", "lse_ptr", "delta_ptr"]

LOWEST = tl.constexpr(-3.4028234663852886e38)  # of fp32


@triton.jit
def rows_of(ptr, strides, batch, head, rows, D: tl.constexpr):
    """Return the addresses of some *rows* of one head, [rows, D]; their elements lie together."""
    start = ptr + batch.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]
    return start + rows.to(tl.int64)[:, None] * strides[2] + tl.arange(0, D)[None, :]


@triton.jit
def inside(rows, length, D: tl.constexpr, HEAD: tl.constexpr):
    """Return which elements of a tile exist, [rows, D] or [rows, 1]."""
    mask = (rows < length)[:, None]
    if HEAD < D:
        mask &= (tl.arange(0, D) < HEAD)[None, :]
    return mask


@triton.jit(do_not_specialize=COUNTS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, heads, queries, keys, scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, KEEP_LSE: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; GROUP heads share keys.

    *scale* contains log2(e). Without MASKED, all tiles are whole. With KEEP_LSE, the log-sum-exp of
    each query to the base of 2 is stored.
    """
    blocks = tl.cdiv(queries, BLOCK_M)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    row = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # the longest program first
    rows = row + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), LOWEST, tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = keys // BLOCK_N * BLOCK_N, keys
    if CAUSAL:
        whole, stop = min(whole, (row + 1) // BLOCK_N * BLOCK_N), min(stop, row + BLOCK_M)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
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
    if KEEP_LSE:
        vector = (tl.program_id(0) // blocks).to(tl.int64) * queries + rows
        tl.store(lse_ptr + vector, m + tl.log2(z), mask=rows < queries)


@triton.jit(do_not_specialize=COUNTS)
def query_gradient_kernel(
    k_desc, v_desc, q_ptr, o_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr,
    q_strides, o_strides, do_strides, dq_strides, heads, queries, keys, scale, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    HEAD: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Compute dQ and delta for BLOCK_M queries of one head; *scale* contains log2(e)."""
    blocks = tl.cdiv(queries, BLOCK_M)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    row = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # the longest program first
    rows = row + tl.arange(0, BLOCK_M)
    vector = (tl.program_id(0) // blocks).to(tl.int64) * queries + rows
    mask = inside(rows, queries, D, HEAD)
    q = tl.load(rows_of(q_ptr, q_strides, batch, head, rows, D), mask=mask, other=0.0)
    do = tl.load(rows_of(do_ptr, do_strides, batch, head, rows, D), mask=mask, other=0.0)
    o = tl.load(rows_of(o_ptr, o_strides, batch, head, rows, D), mask=mask, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1)
    tl.store(delta_ptr + vector, delta, mask=rows < queries)
    lse = tl.load(lse_ptr + vector, mask=rows < queries, other=float("inf"))  # so that p is 0
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = keys // BLOCK_N * BLOCK_N, keys
    if CAUSAL:
        whole, stop = min(whole, (row + 1) // BLOCK_N * BLOCK_N), min(stop, row + BLOCK_M)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        v = v_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N]
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        log_p = tl.fma(s, scale, -lse[:, None])
        if MASKED:
            if col >= whole:
                cols = col + tl.arange(0, BLOCK_N)
                seen = cols[None, :] < keys
                if CAUSAL:
                    seen &= cols[None, :] <= rows[:, None]
                log_p = tl.where(seen, log_p, -float("inf"))
        p = tl.exp2(log_p)
        ds = (p * (dp - delta[:, None])).to(k.dtype)
        dq = tl.dot(ds, k, dq, input_precision="ieee")
    tl.store(rows_of(dq_ptr, dq_strides, batch, head, rows, D), dq * plain_scale, mask=mask)


@triton.jit(do_not_specialize=COUNTS)
def key_gradient_kernel(
    q_desc, do_desc, k_ptr, v_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr,
    k_strides, v_strides, dk_strides, dv_strides, heads, queries, keys, scale, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    HEAD: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV for BLOCK_N keys of one head of keys; *scale* contains log2(e)."""
    blocks = tl.cdiv(keys, BLOCK_N)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads  # of keys
    col = tl.program_id(0) % blocks * BLOCK_N  # the longest program first
    cols = col + tl.arange(0, BLOCK_N)
    mask = inside(cols, keys, D, HEAD)
    k = tl.load(rows_of(k_ptr, k_strides, batch, head, cols, D), mask=mask, other=0.0)
    v = tl.load(rows_of(v_ptr, v_strides, batch, head, cols, D), mask=mask, other=0.0)
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
            if MASKED:
                if row < masked or row + BLOCK_M > queries:
                    # A query behind the last one is zero, and its product with inf would be NaN.
                    seen = (cols[:, None] < keys) & (rows[None, :] < queries)
                    if CAUSAL:
                        seen &= cols[:, None] <= rows[None, :]
                    log_p = tl.where(seen, log_p, -float("inf"))
            p = tl.exp2(log_p)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            ds = (p * (dp - delta[None, :])).to(q.dtype)
            dk = tl.dot(ds, q, dk, input_precision="ieee")
    tl.store(rows_of(dk_ptr, dk_strides, batch, head, cols, D), dk * plain_scale, mask=mask)
    tl.store(rows_of(dv_ptr, dv_strides, batch, head, cols, D), dv, mask=mask)
