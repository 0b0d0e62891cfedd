r"""
Pages of int8
=============

*Solution to the second exercise of* :doc:`../11-paged-attention`.

Decoding is memory-bound, so keys and values of half the size take half the time. Each row of a
page, one token and one head, is divided by a **scale**: a 127th of its largest number. What is left
is rounded to int8. A row of 128 numbers then has 132 bytes in place of 256.

The products need no tile that is multiplied out. With the scale :math:`a_j` of key *j* and the
scale :math:`b_j` of value *j*:

.. math::

    s_{ij} = q_i \cdot (a_j k_j) = a_j \, (q_i \cdot k_j),
    \qquad \sum_j p_{ij} \, (b_j v_j) = \sum_j (p_{ij} \, b_j) \, v_j

So the scales multiply *scores* and *weights*, a few numbers for each key.
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
# fp16 and bf16 have all whole numbers from -127 to 127, so the conversion of a tile is exact.


@triton.jit
def int8_kernel(
    q_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, table_ptr, lengths_ptr, o_ptr, heads, scale,
    stride_row, PAGE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
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
    for start in range(0, length, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        seen = keys < length
        page = tl.load(table_ptr + sequence * stride_row + keys // PAGE, mask=seen, other=0)
        row = (page.to(tl.int64) * PAGE + keys % PAGE) * tl.num_programs(1) + kv
        k = tl.load(k_ptr + row[:, None] * D + dims[None, :], mask=seen[:, None], other=0)
        v = tl.load(v_ptr + row[:, None] * D + dims[None, :], mask=seen[:, None], other=0)
        k_scale = tl.load(k_scale_ptr + row, mask=seen, other=0.0)
        v_scale = tl.load(v_scale_ptr + row, mask=seen, other=0.0)
        s = tl.dot(q, k.to(q.dtype).T, input_precision="ieee") * (k_scale * scale)[None, :]
        s = tl.where(seen[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        weighted = (p * v_scale[None, :]).to(q.dtype)
        acc = tl.dot(weighted, v.to(q.dtype), acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = acc / tl.where(z > 0, z, 1.0)[:, None]
    tl.store(o_ptr + at, o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < GROUP)


def quantize_pages(pages):
    """Return pages of int8, and a scale for each row: [pages, page, kv heads]."""
    scales = pages.float().abs().amax(-1) / 127
    whole = pages / scales.clamp(min=torch.finfo(torch.float32).tiny)[..., None]
    return whole.round().to(torch.int8), scales


def int8_attention(q, k_pages, v_pages, k_scales, v_scales, page_table, lengths, scale=None):
    """Return the attention of each sequence's query.

    Args:
        q: [batch, heads, d], contiguous, fp16 or bf16; d is 16, 32, 64 or 128.
        k_pages: [pages, page, kv heads, d], int8, contiguous; heads is a multiple of kv heads.
        v_pages: As k_pages.
        k_scales: [pages, page, kv heads], fp32, contiguous: what each row is multiplied by.
        v_scales: As k_scales.
        page_table: [batch, most pages], int32.
        lengths: [batch], int32; 0 gives zeros.
        scale: What scores are multiplied by, positive; d ** -0.5 if None.
    """
    (batch, heads, d), (_, page, kv_heads, _) = q.shape, k_pages.shape
    if not all(x.is_contiguous() for x in (q, k_pages, v_pages, k_scales, v_scales)):
        raise ValueError("q, k_pages, v_pages, k_scales and v_scales must be contiguous")
    if k_pages.dtype != torch.int8 or v_pages.dtype != torch.int8:
        found = f"{k_pages.dtype} and {v_pages.dtype}"
        raise TypeError(f"k_pages and v_pages must be int8, but are {found}")
    if k_pages.shape != v_pages.shape or k_pages.shape[3] != d or heads % kv_heads:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k_pages, v_pages))
        raise ValueError(f"q, k_pages and v_pages do not fit together: {shapes}")
    if k_scales.shape != k_pages.shape[:3] or v_scales.shape != v_pages.shape[:3]:
        found = f"{tuple(k_scales.shape)} and {tuple(v_scales.shape)}"
        raise ValueError(f"scales must be {tuple(k_pages.shape[:3])}, but are {found}")
    o, group = torch.empty_like(q), heads // kv_heads
    int8_kernel[batch, kv_heads](
        q, k_pages, v_pages, k_scales, v_scales, page_table, lengths, o, heads,
        (d**-0.5 if scale is None else scale) * math.log2(math.e), page_table.stride(0),
        PAGE=page, GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), D=d, BLOCK_N=32,
    )  # fmt: skip
    return o


# %%
# Two checks. The first one compares with the attention to the quantized numbers, in float64: this
# is what the kernel must compute. The second one shows what the rounding to int8 costs.


def reference(q, k_pages, v_pages, page_table, lengths):
    """Return the attention in float64."""
    out, group = torch.zeros_like(q, dtype=torch.float64), q.shape[1] // k_pages.shape[2]
    for i, n in enumerate(lengths.tolist()):
        own = page_table[i].long()
        k, v = (x[own].flatten(0, 1)[:n].double() for x in (k_pages, v_pages))
        k, v = (x.repeat_interleave(group, 1).transpose(0, 1) for x in (k, v))
        out[i] = ((q[i, :, None].double() @ k.mT * q.shape[2] ** -0.5).softmax(-1) @ v)[:, 0]
    return out


torch.manual_seed(0)
table = torch.randperm(5 * 7).int().view(5, 7).to(DEVICE)
lengths = torch.tensor([0, 1, 16, 100, 77]).int().to(DEVICE)
q = torch.randn(5, 8, 64, device=DEVICE).half()
pages = torch.randn(2, 35, 16, 2, 64, device=DEVICE).half()
(k, a), (v, b) = (quantize_pages(x) for x in pages)
o = int8_attention(q, k, v, a, b, table, lengths).double()
whole = [x.double() * scales.double()[..., None] for x, scales in ((k, a), (v, b))]
torch.testing.assert_close(o, reference(q, *whole, table, lengths), rtol=2**-9, atol=2**-9)
exact = reference(q, *pages, table, lengths)
error = ((o - exact).norm() / exact.norm()).item()
assert error < 2**-6, error
print(f"int8_attention agrees with float64; int8 pages change the result by a {1 / error:.0f}th")
print(f"bytes of a row: {k.shape[3] + 4} in place of {2 * k.shape[3]}")

# %%
# A scale for each row costs four bytes. Larger groups of rows would cost less, but a page fills up
# token by token, and a token with larger numbers would change the scale of those before it.
