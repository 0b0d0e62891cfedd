r"""
ALiBi: a penalty for distance
=============================

*Solution to the second exercise of* :doc:`../06-fused-attention`.

ALiBi adds :math:`-\mathrm{slope} \cdot (i - j)` to the score of query *i* and key *j* before the
softmax. As a tensor the penalties would be an N × N matrix. The kernel computes them from row and
column numbers.
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
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# A softmax does not change when the same number is added to a whole row, and :math:`-\mathrm{slope}
# \cdot i` is the same for the whole row *i*. So the kernel adds only :math:`\mathrm{slope} \cdot
# j`: a row of numbers for each tile, not a tile. This costs almost nothing: a fused multiply-add
# scales the score and adds the penalty in one instruction. The maximum is taken after it, because
# the penalty decides which score is the largest.
#
# In long sequences, numbers that grow with *j* would lose digits. Relative to the first row of the
# block, they are as small as the distance.

# sphinx_gallery_fold = "launches it"
# sphinx_gallery_show = "alibi_kernel, alibi_slopes"


@triton.jit
def alibi_kernel(
    q_desc, k_desc, v_desc, o_desc, slope_ptr, heads, keys, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute causal attention with ALiBi; *scale* and the slopes contain log2(e)."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    slope = tl.load(slope_ptr + head)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for col in range(0, min(keys, row + BLOCK_M), BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        cols = col + tl.arange(0, BLOCK_N)
        penalty = slope * (cols - row).to(tl.float32)  # [BLOCK_N], rising with the column
        s = tl.fma(tl.dot(q, tl.trans(k), input_precision="ieee"), scale, penalty[None, :])
        if col + BLOCK_N > row + 1:
            seen = (cols[None, :] <= rows[:, None]) & (cols[None, :] < keys)
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


def alibi_slopes(heads):
    """Return the slopes of the paper: 2^(-8/heads), 2^(-16/heads), …, 2^-8."""
    return 2.0 ** (-8 / heads * torch.arange(1, heads + 1, device=DEVICE, dtype=torch.float32))


def alibi_attention(q, k, v, slopes, scale=None):
    """Return causal attention with -slope · distance added to the scores.

    Args:
        q: [batch, heads, N, head_dim]; head_dim 16, 32, 64 or 128.
        k: As q.
        v: As q.
        slopes: [heads], fp32.
        scale: What scores are multiplied by; head_dim ** -0.5 if None.
    """
    if not q.shape == k.shape == v.shape or q.ndim != 4 or q.shape[3] not in (16, 32, 64, 128):
        raise ValueError(
            "q, k and v must be [batch, heads, N, head_dim] of one shape, with a head_dim of "
            f"16, 32, 64 or 128, but are {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    batch, heads, n, d = q.shape
    if slopes.shape != (heads,):
        raise ValueError(f"slopes must have one number a head, {heads}, not {tuple(slopes.shape)}")
    q, k, v = (x.contiguous() for x in (q, k, v))
    o = torch.empty_like(q)
    tiles = [
        TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 64, d]) for x in (q, k, v, o)
    ]
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    slopes = slopes.float() * math.log2(math.e)
    grid = triton.cdiv(n, 64), batch * heads
    alibi_kernel[grid](*tiles, slopes, heads, n, scale, BLOCK_M=64, BLOCK_N=64, D=d)
    return o


# %%
# The reference adds the whole penalty, :math:`-\mathrm{slope} \cdot (i - j)`, in float64:

# sphinx_gallery_fold = "checks it against float64"


def reference(q, k, v, slopes):
    """Return the same in float64, with the matrix of scores and of penalties."""
    n, d = q.shape[2:]
    distance = torch.arange(n, device=q.device)[:, None] - torch.arange(n, device=q.device)
    scores = q.double() @ k.double().mT * d**-0.5 - slopes.double()[:, None, None] * distance
    return scores.masked_fill(distance < 0, -math.inf).softmax(-1) @ v.double()


torch.manual_seed(0)
for n in (1, 64, 200):
    q, k, v = torch.randn(3, 2, 4, n, 32, device=DEVICE).half()
    slopes = alibi_slopes(4)
    o = alibi_attention(q, k, v, slopes)
    torch.testing.assert_close(o.double(), reference(q, k, v, slopes), rtol=2**-9, atol=2**-9)
print("alibi_attention agrees with float64; slopes of 4 heads:", slopes.tolist())
