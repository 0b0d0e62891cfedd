r"""
Grouped heads in one tile
=========================

*Solution to the third exercise of* :doc:`../06-fused-attention`.

With grouped heads (*grouped-query attention*, GQA), several heads of queries read the same keys and
values. ``attention`` starts programs for each head of queries. With few queries, each program fills
only a few rows of its tile, and all programs of a group fetch the same keys. But the rows of a tile
may belong to several heads: a program can take the queries of the **whole group**, with a row for
each pair (query, head of the group). Then the tile is full, and the keys are fetched once per
group.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import math
import os

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The loop stays the same. Row *r* of the tile is query ``r // GROUP`` in head ``r % GROUP`` of the
# group, which changes the mask. Queries and outputs no longer form a rectangle of the tensor, so
# the kernel loads and stores them with pointers.

# sphinx_gallery_fold = "launches it"
# sphinx_gallery_show = "grouped_kernel"


@triton.jit
def grouped_kernel(
    q_ptr, k_desc, v_desc, o_ptr, stride_batch, stride_head, stride_query,
    key_heads, queries, keys, scale, CAUSAL: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M pairs (query, head of a group); *scale* contains log2(e)."""
    batch, head = tl.program_id(1) // key_heads, tl.program_id(1) % key_heads
    pairs = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = pairs // GROUP
    heads = head * GROUP + pairs % GROUP
    offsets = batch.to(tl.int64) * stride_batch + heads.to(tl.int64) * stride_head
    offsets = (offsets + rows * stride_query)[:, None] + tl.arange(0, D)[None, :]
    inside = (rows < queries)[:, None]
    q = tl.load(q_ptr + offsets, mask=inside, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    stop = keys
    if CAUSAL:  # the last row of the tile belongs to its last query
        stop = min(keys, (tl.program_id(0) * BLOCK_M + BLOCK_M - 1) // GROUP + 1)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
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
    o = (acc / z[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + offsets, o, mask=inside)


def grouped_attention(q, k, v, causal=False, scale=None):
    """Return attention of grouped heads; a program takes the queries of a whole group.

    Args:
        q: [batch, heads, queries, head_dim]; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.
    """
    batch, heads, queries, d = q.shape
    if k.shape != v.shape or k.shape[0] != batch or k.shape[3] != d or heads % k.shape[1]:
        raise ValueError(
            "k and v must have one shape, the batch and head_dim of q, and heads that divide "
            f"those of q, but are {tuple(k.shape)} and {tuple(v.shape)}, and q {tuple(q.shape)}"
        )
    q, k, v = (x.contiguous() for x in (q, k, v))
    o = torch.empty_like(q)
    group = heads // k.shape[1]
    tiles = [TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 64, d]) for x in (k, v)]
    grid = triton.cdiv(queries * group, 64), batch * k.shape[1]
    grouped_kernel[grid](
        q, *tiles, o, *q.stride()[:3], k.shape[1], queries, k.shape[2],
        (d**-0.5 if scale is None else scale) * math.log2(math.e),
        CAUSAL=causal, GROUP=group, BLOCK_M=64, BLOCK_N=64, D=d,
    )  # fmt: skip
    return o


# %%
# The check compares with float64, also where a tile ends within a group:

# sphinx_gallery_fold = "checks it against float64"


def reference(q, k, v, causal):
    """Return the same in float64, with each head of keys repeated for its group."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), *(x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * q.shape[3] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v


torch.manual_seed(0)
for heads, key_heads, queries, keys in ((8, 1, 3, 150), (6, 2, 50, 130), (4, 4, 70, 70)):
    q = torch.randn(2, heads, queries, 32, device=DEVICE).half()
    k, v = torch.randn(2, 2, key_heads, keys, 32, device=DEVICE).half()
    for causal in (False, True):
        o = grouped_attention(q, k, v, causal)
        torch.testing.assert_close(o.double(), reference(q, k, v, causal), rtol=2**-9, atol=2**-9)
print("grouped_attention agrees with float64")

# %%
# The gain can be counted. For a group of eight heads, the table has the number of tiles of 64 rows
# that are multiplied with each tile of keys:

# sphinx_gallery_fold = "counts the programs"
table = [(f"{n:,}", 8 * -(-n // 64), -(-8 * n // 64)) for n in (1, 4, 8, 64, 1024)]
headers = ["queries", "tiles,\na head each", "tiles,\na group each"]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# With few queries, one tile per group is an eighth of the work. With many queries, the tiles are
# full in both ways, and one head after the other, with descriptors, is simpler.
