"""
Dropout of strided input
========================

*Solution to the second exercise of* :doc:`/getting-started/tutorials/04-low-memory-dropout`.

``x.T``, ``x[:, :100]`` and ``x[::2]`` are views: their rows do not follow each other in memory
without gaps. The kernel of this page reads any of them without a copy, and writes a contiguous
result.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch
from tabulate import tabulate
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# ``x.T`` and ``x.T.contiguous()`` are equal matrices, and with equal seeds they should give equal
# results. So row and column decide whether an element is dropped, not its place in memory. The
# strides only say where to find the element.
#
# Four neighbors *in a row* share a counter, as in the tutorial, and each row begins with a new
# counter. Element (m, n) of a matrix with N columns gets word n % 4 of counter m · ⌈N/4⌉ + n // 4.
# If N is divisible by four, this is the numbering of the tutorial.
#
# A program takes a tile of rows and columns, not a block of one row. In a transposed matrix,
# neighbors in memory are elements of a *column*. In a tile, threads can read along columns and
# write along rows, both in contiguous pieces.


@triton.jit(do_not_specialize=["seed", "threshold"])
def strided_dropout_kernel(
    x_ptr, out_ptr, M, N, stride_m, stride_n, seed, threshold, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Drop elements of one tile of the matrix."""
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    block_n = tl.program_id(1).to(tl.int64)
    n = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (m[:, None] < M) & (n[None, :] < N)
    x = tl.load(x_ptr + m[:, None] * stride_m + n[None, :] * stride_n, mask=inside)

    quarter = block_n * (BLOCK_N // 4) + tl.arange(0, BLOCK_N // 4)
    counters = m[:, None] * tl.cdiv(N, 4) + quarter[None, :]  # [BLOCK_M, BLOCK_N // 4]
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))  # [BLOCK_M, BLOCK_N]
    keep = words.to(tl.uint32, bitcast=True) >= threshold.to(tl.uint32)

    out = tl.where(keep, x.to(tl.float32) * scale, 0.0)
    tl.store(out_ptr + m[:, None] * N + n[None, :], out, mask=inside)


# %%
# ``tl.interleave`` works along the last axis, so it joins the words of a row.


def strided_dropout(x, p, seed):
    """Return dropout of the matrix *x*, whatever its strides, as a contiguous matrix.

    Args:
        x: float16, bfloat16 or float32 tensor of shape (M, N), N up to 2²¹.
        p: Probability from 0 to 1 that an element becomes zero; the others are divided by 1 - p.
        seed: Integer from 0 to 2⁶⁴ - 1.

    Raises:
        TypeError: *x* is no tensor, or of another dtype.
        ValueError: *x* is no such matrix or on another device, or *p* or *seed* is out of range.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"x must be float16, bfloat16 or float32, but its dtype is {x.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {x.device}")
    if x.ndim != 2 or x.shape[1] > 2**21:
        raise ValueError(
            f"x must be a matrix with up to 2**21 columns, but has shape {tuple(x.shape)}"
        )
    if not 0 <= p <= 1:
        raise ValueError(f"p must be from 0 to 1, but is {p}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be from 0 to 2**64 - 1, but is {seed}")
    M, N = x.shape
    if p == 1 or x.numel() == 0:
        return torch.zeros(M, N, dtype=x.dtype, device=x.device)
    out = torch.empty(M, N, dtype=x.dtype, device=x.device)
    threshold = min(round(p * 2**32), 2**32 - 1)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
    strided_dropout_kernel[grid](
        x, out, M, N, *x.stride(), seed, threshold, 1 / (1 - p), BLOCK_M=32, BLOCK_N=64
    )  # fmt: skip
    return out


# %%
# The reference is the tutorial's kernel on a contiguous copy. Each row of the copy is padded to a
# multiple of four, so that it begins with a new counter there, too.

# sphinx_gallery_fold = "checks it against the kernel of the tutorial"


@triton.jit(do_not_specialize=["seed", "threshold"])
def seeded_dropout_kernel(x_ptr, out_ptr, n, seed, threshold, scale, BLOCK: tl.constexpr):
    """Work as in the tutorial."""
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    counters = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    keep = words.to(tl.uint32, bitcast=True) >= threshold.to(tl.uint32)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def contiguous_dropout(x, p, seed):
    """Return dropout of *x* by the kernel of the tutorial."""
    out, n, threshold = torch.empty_like(x), x.numel(), round(p * 2**32)
    grid = (triton.cdiv(n, 1024),)
    seeded_dropout_kernel[grid](x, out, n, seed, threshold, 1 / (1 - p), BLOCK=1024)
    return out


torch.manual_seed(0)
big = torch.randn(150, 131, device=DEVICE)
views = {
    "x": big,
    "x.T": big.T,
    "x[:, :100]": big[:, :100],
    "x[::2, 1::3]": big[::2, 1::3],
    "one row, expanded": big[:1].expand(37, 131),
    "one element": big[7:8, 7:8],
}
rows = []
for name, x in views.items():
    y = strided_dropout(x, 0.3, seed=2**40 + 1)
    filled = functional.pad(x, (0, -x.shape[1] % 4)).contiguous()
    expected = contiguous_dropout(filled, 0.3, seed=2**40 + 1)[:, : x.shape[1]]
    torch.testing.assert_close(y, expected, rtol=0, atol=0)
    assert torch.equal(y, strided_dropout(x.contiguous(), 0.3, seed=2**40 + 1))
    rows.append([name, tuple(x.shape), x.stride(), f"{(y != 0).float().mean():.3f}"])
print(tabulate(rows, ["view", "shape", "strides", "kept"], disable_numparse=True))
print("Equal matrices have equal results, whatever their strides")

# %%
# In an autograd function like the tutorial's, this kernel also serves the backward pass, without
# ``grad.contiguous()``.
#
# What does it cost? The table has ``x.T`` in one kernel, and with a copy first. The copy reads and
# writes every element once more. It can cost even more: a plain copy goes through input and output
# in the same order, and in one of them neighbors are far apart. Rates count 8 bytes per element:

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    x = torch.randn(8192, 8192, device=DEVICE)
    y = torch.empty_like(x)
    for name, fn in {
        "x, this page's kernel": lambda: strided_dropout(x, 0.5, 1),
        "x, the tutorial's kernel": lambda: contiguous_dropout(x, 0.5, 1),
        "x.T, this page's kernel": lambda: strided_dropout(x.T, 0.5, 1),
        "x.T.contiguous(), tutorial's": lambda: contiguous_dropout(x.T.contiguous(), 0.5, 1),
        "copy of x": lambda: y.copy_(x),
    }.items():
        ms = triton.testing.do_bench(fn, 5, 20, return_mode="median")
        print(f"{name:30s} {8 * x.numel() / ms / 1e6:5.0f} GB/s")
else:
    print("Without a GPU there is nothing to time.")
