"""The kernels of attention over pages. The lesson 11-paged-attention explains them."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOWEST = tl.constexpr(-3.4028234663852886e38)  # of fp32


@triton.jit(do_not_specialize=["most", "pages", "chunk"])
def chunk_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, part_ptr, most, pages, chunk, heads, scale,
    stride_k, stride_k_token, stride_k_head, stride_v, stride_v_token, stride_v_head, stride_row,
    PAGE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute a chunk of a sequence, for the GROUP heads of queries that share a head of keys.

    A head has HEAD numbers, padded to D. The running maximum starts at the lowest float: where all
    scores of the first keys are -inf, ``-inf - -inf`` would be NaN.
    """
    if EARLY:
        gdc_launch_dependents()
    kv_heads, part = heads // GROUP, tl.program_id(1)
    sequence = (tl.program_id(0) // kv_heads).to(tl.int64)
    kv = (tl.program_id(0) % kv_heads).to(tl.int64)  # offsets of large caches need 64 bits
    length = tl.minimum(tl.load(lengths_ptr + sequence), most)  # most: room in the table
    first = part * chunk
    if (first >= length) & (part > 0):
        return
    rows, dims = tl.arange(0, ROWS), tl.arange(0, D)  # ROWS >= GROUP; tensor cores multiply 16 rows
    head, mask = kv * GROUP + rows, rows[:, None] < GROUP
    if HEAD < D:
        mask &= dims[None, :] < HEAD
    q_at = (sequence * heads + head)[:, None] * HEAD + dims[None, :]
    q = tl.load(q_ptr + q_at, mask=mask, other=0.0)
    m = tl.full((ROWS,), LOWEST, tl.float32)
    z = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    stop = tl.minimum(length, first + chunk)
    for start in range(first, stop, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        seen = keys < stop
        page = tl.load(table_ptr + sequence * stride_row + keys // PAGE, mask=seen, other=0)
        page = tl.minimum(tl.maximum(page, 0), pages - 1).to(tl.int64)  # never another address
        token = (keys % PAGE).to(tl.int64)
        k_at = page * stride_k + token * stride_k_token + kv * stride_k_head
        v_at = page * stride_v + token * stride_v_token + kv * stride_v_head
        exists = seen[:, None]
        if HEAD < D:
            exists = exists & (dims[None, :] < HEAD)
        k = tl.load(k_ptr + k_at[:, None] + dims[None, :], mask=exists, other=0.0)
        v = tl.load(v_ptr + v_at[:, None] + dims[None, :], mask=exists, other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee")  # [ROWS, BLOCK_N]
        s = tl.where(seen[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1) * scale)  # scale contains log2(e)
        p = tl.exp2(tl.fma(s, scale, -m_new[:, None]))
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    if length <= chunk:
        o = acc / tl.where(length > 0, z, 1.0)[:, None]  # zeros for a length of 0
        tl.store(o_ptr + q_at, o.to(o_ptr.dtype.element_ty), mask=mask)
    else:  # one of several chunks; one whose scores are all -inf has no weight
        o = acc / tl.where(z == 0, 1.0, z)[:, None]
        part_ptr += (sequence * tl.num_programs(1) + part) * heads * (HEAD + 1)
        tl.store(part_ptr + head[:, None] * HEAD + dims[None, :], o, mask=mask)
        tl.store(part_ptr + heads * HEAD + head, m + tl.log2(z), mask=rows < GROUP)


@triton.jit(do_not_specialize=["most", "chunk", "parts"])
def combine_kernel(
    lengths_ptr, o_ptr, part_ptr, most, chunk, parts, heads,
    PARTS: tl.constexpr, D: tl.constexpr, HEAD: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Combine the chunks of one sequence, for one head."""
    sequence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    length = tl.minimum(tl.load(lengths_ptr + sequence), most)
    if EARLY:
        gdc_wait()
    if length <= chunk:
        return
    dims, part = tl.arange(0, D), tl.arange(0, PARTS)  # PARTS is a power of two
    part_ptr += (sequence * parts + part) * heads * (HEAD + 1)
    mask = part * chunk < length
    exists = mask[:, None]
    if HEAD < D:
        exists = exists & (dims[None, :] < HEAD)
    lse = tl.load(part_ptr + heads * HEAD + head, mask=mask, other=-float("inf"))
    o = tl.load((part_ptr + head * HEAD)[:, None] + dims[None, :], mask=exists, other=0.0)
    weight = tl.exp2(lse - tl.max(lse, axis=0))
    o = tl.sum(o * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    o_at = o_ptr + (sequence * heads + head) * HEAD + dims
    tl.store(o_at, o.to(o_ptr.dtype.element_ty), mask=dims < HEAD)
