"""
Sums of columns
===============

*Solution to the first exercise of* :doc:`../05b-reductions`.

Each of *P* programs adds up every *P*-th row of a block of columns in registers, in the order of
the rows, and stores one row of sums. A second kernel adds up these *P* rows in their order. So *M*
and *P* fix the order of all additions, and equal calls give equal bits.

A block of 1024 columns is one program wide. For 4096 columns, 32 programs that share the rows of a
block make 128 programs, which is about one for each multiprocessor. More of them keep more loads in
flight, but also leave more partial sums to the second kernel.
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

# %%
# One kernel serves both steps: the partial sums are a matrix of *P* rows, and a single program for
# each block of columns adds up all of them.


@triton.jit
def column_sums_kernel(x_ptr, sums_ptr, M, N, BLOCK: tl.constexpr):
    """Add up every P-th row of a block of columns."""
    program, programs = tl.program_id(1), tl.num_programs(1)
    columns = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = columns < N
    total = tl.zeros([BLOCK], tl.float32)
    for number in range(program, M, programs):
        row = tl.cast(number, tl.int64)
        total += tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(sums_ptr + tl.cast(program, tl.int64) * N + columns, total, mask=mask)


def column_sums(x):
    """Return the sum of the rows of a contiguous matrix of 16 or 32 bits, in fp32."""
    if x.ndim != 2 or not x.is_contiguous() or x.device != DEVICE:
        raise ValueError(f"x must be a contiguous matrix on {DEVICE}, but has {tuple(x.shape)}")
    (M, N), P = x.shape, 32
    sums = torch.empty((P, N), dtype=torch.float32, device=x.device)
    out = torch.empty(N, dtype=torch.float32, device=x.device)
    blocks = triton.cdiv(N, 1024)
    column_sums_kernel[(blocks, P)](x, sums, M, N, BLOCK=1024)
    column_sums_kernel[(blocks, 1)](sums, out, P, N, BLOCK=1024)
    return out


# %%
# Matrices with fewer rows than programs are among those that are checked:

for M, N in ((1, 1), (5, 123), (1000, 1025), (4097, 781)):
    x = torch.randn(M, N, device=DEVICE)
    right = x.double().sum(dim=0)
    torch.testing.assert_close(column_sums(x).double(), right, rtol=1e-5, atol=1e-4)
    assert torch.equal(column_sums(x), column_sums(x))
print("column_sums agrees with float64, in equal bits every time")
