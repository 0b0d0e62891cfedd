r"""
The variance of long rows
=========================

*Solution to the second exercise of* :doc:`../05b-reductions`.

A program reads a row block by block and keeps three numbers of what it has read: how many elements,
their mean, and the sum of their squared deviations from it. A new block has its own mean and its
own squared deviations, and the lesson's formula combines both. It only adds squares, so there is no
cancellation: a mean of 1000 deviations costs no more digits than one of 1.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def row_variance_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """Compute the variance of one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    mean = 0.0
    squares = 0.0
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = columns < N
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(N - start, BLOCK)
        block_mean = tl.sum(x) / count
        share = count / (start + count)  # of the elements seen so far
        delta = block_mean - mean
        mean += delta * share
        centered = tl.where(mask, x - block_mean, 0.0)
        squares += tl.sum(centered * centered) + delta * delta * share * start
    tl.store(out_ptr + row, squares / N)


def row_variance(x):
    """Return the variance of each row of a contiguous matrix, without Bessel's correction."""
    if x.ndim != 2 or not x.numel() or not x.is_contiguous() or x.device != DEVICE:
        raise ValueError(f"x must be a contiguous matrix on {DEVICE}, but has {tuple(x.shape)}")
    out = torch.empty(len(x), dtype=torch.float32, device=x.device)
    row_variance_kernel[(len(x),)](x, out, x.shape[1], BLOCK=2048)
    return out


# %%
# The mean of a row is up to 1000 deviations. The formula of one pass, :math:`\overline{x^2} -
# \mu^2`, is printed beside it:

for M, N in ((3, 1), (5, 781), (2, 2049), (4, 20_001)):
    for mean in (0, 1000):
        x = torch.randn(M, N, device=DEVICE) + mean
        right = x.double().var(dim=1, correction=0)
        torch.testing.assert_close(row_variance(x).double(), right, rtol=1e-4, atol=1e-7)
one_pass = (x * x).mean(dim=1) - x.mean(dim=1) ** 2
print("relative error of one pass:    ", ((one_pass - right).abs() / right).max().item())
print("relative error of row_variance:", ((row_variance(x) - right).abs() / right).max().item())
