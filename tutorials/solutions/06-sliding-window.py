r"""
A sliding window
================

*Solution to the first exercise of* :doc:`../06-fused-attention`.

With a window of *W*, query *i* sees keys :math:`i - W + 1 \ldots i`. This is a causal mask with a
second edge. A program skips the tiles outside, masks those on either edge, and takes the tiles
between them whole.
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
# Four numbers, computed in plain Python, say where the tiles start, between which columns they are
# whole, and where they stop. All rows from ``row`` to ``row + BLOCK_M - 1`` see the keys from ``row
# + BLOCK_M - window`` to ``row``; none of them sees a key before ``row - window + 1``.


def borders(row, keys, window, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return (start, first whole, end of the whole, stop) of the tiles for queries from *row*."""
    start = max(row - window + 1, 0) // BLOCK_N * BLOCK_N
    first = (max(row + BLOCK_M - window, 0) + BLOCK_N - 1) // BLOCK_N * BLOCK_N
    last = min(keys, row + 1) // BLOCK_N * BLOCK_N
    return start, first, last, min(keys, row + BLOCK_M)


borders_in_kernel = triton.jit(borders)


@triton.jit
def window_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, keys, window, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; *scale* contains log2(e)."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    start, first, last, stop = borders_in_kernel(row, keys, window, BLOCK_M, BLOCK_N)
    for col in range(start, stop, BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if (col < first) | (col >= last):
            cols = col + tl.arange(0, BLOCK_N)
            seen = (cols[None, :] <= rows[:, None]) & (cols[None, :] > rows[:, None] - window)
            s = tl.where(seen & (cols[None, :] < keys), s, -1e30)
        m_new = tl.maximum(m, tl.max(s, axis=1) * scale)
        p = tl.exp2(tl.fma(s, scale, -m_new[:, None]))
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


# %%
# Hidden scores are :math:`-10^{30}` here, not minus infinity. A row at the end of the block may see
# *no key* of the first tile. Its maximum would be minus infinity, and minus infinity minus itself
# is not a number. With a large finite number, the row first takes all weights as 1. At the first
# key that it sees, at the latest its own, the correction is 0 and removes them.

# sphinx_gallery_fold = "launches it"


def window_attention(q, k, v, window, scale=None):
    """Return causal attention of the *window* last keys of each query.

    Args:
        q: [batch, heads, N, head_dim], contiguous; head_dim 16, 32, 64 or 128.
        k: As q.
        v: As q.
        window: How many keys each query sees, its own included; at least 1.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, but is {window}")
    if not q.shape == k.shape == v.shape or q.ndim != 4 or q.shape[3] not in (16, 32, 64, 128):
        raise ValueError(
            "q, k and v must be [batch, heads, N, head_dim] of one shape, with a head_dim of "
            f"16, 32, 64 or 128, but are {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    batch, heads, n, d = q.shape
    q, k, v = (x.contiguous() for x in (q, k, v))
    o = torch.empty_like(q)
    tiles = [
        TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 64, d]) for x in (q, k, v, o)
    ]
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    grid = triton.cdiv(n, 64), batch * heads
    window = min(window, n)
    window_kernel[grid](*tiles, heads, n, window, scale, BLOCK_M=64, BLOCK_N=64, D=d)
    return o


# %%
# The check is the formula with the mask written out, in float64:

# sphinx_gallery_fold = "checks it against float64"


def reference(q, k, v, window):
    """Return the same in float64, with the matrix of scores."""
    n, d = q.shape[2:]
    distance = torch.arange(n, device=q.device)[:, None] - torch.arange(n, device=q.device)
    hidden = (distance < 0) | (distance >= window)
    scores = (q.double() @ k.double().mT * d**-0.5).masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v.double()


torch.manual_seed(0)
for n, window in ((200, 1), (200, 50), (130, 64), (200, 65), (300, 200), (100, 1000)):
    q, k, v = torch.randn(3, 1, 2, n, 32, device=DEVICE).half()
    o = window_attention(q, k, v, window)
    torch.testing.assert_close(o.double(), reference(q, k, v, window), rtol=2**-9, atol=2**-9)
print("window_attention agrees with float64")

# %%
# Each block of queries takes about *W* + ``BLOCK_M`` keys, so the number of operations grows with N
# · W, not with the square of N. The table counts tiles of 64 × 64:

# sphinx_gallery_fold = "counts the tiles"


def tiles_of(n, window):
    """Return how many tiles all programs of a head take."""
    walks = (borders(row, n, window, 64, 64) for row in range(0, n, 64))
    return sum(-(-(stop - start) // 64) for start, _, _, stop in walks)


table = [
    [f"{count:,}" for count in (n, tiles_of(n, n), tiles_of(n, 1024))]
    for n in (1024, 4096, 16384, 65536)
]
print(
    tabulate(
        table,
        ["N", "tiles, causal", "tiles, window of 1024"],
        disable_numparse=True,
        stralign="right",
    )
)
