r"""
Paged attention in a window
===========================

*Solution to the first exercise of* :doc:`../11-paged-attention`.

With a window of *W*, a token sees itself and the *W* - 1 tokens before it. While decoding, these
are the last *W* keys of the cache. The loop starts at the first of them. No page before is read, so
a serving system can give it to another sequence.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import math
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# Three lines differ from the tutorial's first kernel. ``first`` is the first key of the window, the
# loop starts at the block that contains it, and the mask has a second edge.


@triton.jit(do_not_specialize=["window"])
def window_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, heads, window, scale,
    stride_k, stride_k_token, stride_k_head, stride_v, stride_v_token, stride_v_head, stride_row,
    PAGE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute one sequence and one head of keys for the GROUP heads of queries that share it."""
    sequence, kv = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, D)
    at = (sequence * heads + kv * GROUP + rows)[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + at, mask=rows[:, None] < GROUP, other=0.0)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    z = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    length = tl.load(lengths_ptr + sequence)
    first = tl.maximum(length - window, 0)
    for start in range(first // BLOCK_N * BLOCK_N, length, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        seen = (keys >= first) & (keys < length)
        page = tl.load(table_ptr + sequence * stride_row + keys // PAGE, mask=seen, other=0)
        page, token = page.to(tl.int64), (keys % PAGE).to(tl.int64)
        k_row = page * stride_k + token * stride_k_token + kv * stride_k_head
        v_row = page * stride_v + token * stride_v_token + kv * stride_v_head
        k = tl.load(k_ptr + k_row[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        v = tl.load(v_ptr + v_row[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = acc / tl.where(z > 0, z, 1.0)[:, None]
    tl.store(o_ptr + at, o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < GROUP)


# %%
# Each block of the loop has at least one key of the window, so the maximum is never minus infinity.


def window_attention(q, k_pages, v_pages, page_table, lengths, window, scale=None):
    """Return the attention of each sequence's query to the *window* last keys.

    Args:
        q: [batch, heads, d], contiguous, fp16 or bf16; d is 16, 32, 64 or 128.
        k_pages: [pages, page, kv heads, d], the rows contiguous; heads is a multiple of kv heads.
        v_pages: As k_pages.
        page_table: [batch, most pages], int32. Pages before the window may have any number.
        lengths: [batch], int32; 0 gives zeros.
        window: How many keys are seen, at least 1.
        scale: What scores are multiplied by, positive; d ** -0.5 if None.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, but is {window}")
    (batch, heads, d), (_, page, kv_heads, _) = q.shape, k_pages.shape
    if k_pages.shape != v_pages.shape or k_pages.shape[3] != d or heads % kv_heads:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k_pages, v_pages))
        raise ValueError(f"q, k_pages and v_pages do not fit together: {shapes}")
    o, group = torch.empty_like(q), heads // kv_heads
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    window_kernel[batch, kv_heads](
        q, k_pages, v_pages, page_table, lengths, o, heads, window, scale,
        *k_pages.stride()[:3], *v_pages.stride()[:3], page_table.stride(0),
        PAGE=page, GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), D=d, BLOCK_N=32,
    )  # fmt: skip
    return o


# %%
# The check compares with float64. All pages that end before the window contain NaN:

torch.manual_seed(0)
LENGTHS, PAGE = [0, 1, 16, 100, 77], 16
table = torch.randperm(5 * 7).int().view(5, 7)
q = torch.randn(5, 8, 32, device=DEVICE).half()
k_pages, v_pages = torch.randn(2, 35, PAGE, 2, 32, device=DEVICE).half()
for window in (1, 16, 33, 1000):
    k, v = k_pages.clone(), v_pages.clone()
    for n, row in zip(LENGTHS, table, strict=True):
        k[row[: max(0, n - window) // PAGE]] = v[row[: max(0, n - window) // PAGE]] = math.nan
    lengths = torch.tensor(LENGTHS).int().to(DEVICE)
    o = window_attention(q, k, v, table.to(DEVICE), lengths, window)
    for i, n in enumerate(LENGTHS):
        seen = slice(max(0, n - window), n)
        kept = [x[table[i].long()].flatten(0, 1)[seen].double() for x in (k, v)]
        keys, values = (x.repeat_interleave(4, 1).transpose(0, 1) for x in kept)  # [heads, keys, d]
        weights = (q[i, :, None].double() @ keys.mT * 32**-0.5).softmax(-1)
        expected = (weights @ values)[:, 0]
        torch.testing.assert_close(o[i].double(), expected, rtol=2**-9, atol=2**-9)
print("window_attention agrees with float64")

# %%
# A long sequence costs no more than one of *W* tokens. The lesson's ``paged_attention`` also splits
# long sequences into chunks. With a window, only the chunks from ``max(0, length - window)`` on
# have work, so a short window needs few of them.
