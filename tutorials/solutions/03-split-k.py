"""
Sharing a long K
================

*Solution to the first exercise of* :doc:`../03b-full-waves`.

A 64 × K by K × 64 product has one tile of 64 × 64, so a single SM computes the whole sum over K. To
use more SMs, cut K in S parts, give each part to a program, and add up the S partial sums. Atomic
additions would come in a different order each time, with different rounding errors: the same inputs
would give different results. Instead, each program writes its partial sum to memory, and a second
kernel adds them up, always in the same order.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os
from functools import partial

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# In the first kernel, the part of K is the second axis of the grid. Partial sums stay in fp32.


@triton.jit
def partial_kernel(
    a_ptr, b_ptr, partial_ptr, M, N, K, part, stride_am, stride_bk,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of the product of one part of A's columns and B's rows."""
    tiles_n = tl.cdiv(N, BLOCK)
    rows = tl.program_id(0) // tiles_n * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(0) % tiles_n * BLOCK + tl.arange(0, BLOCK)
    ks = tl.arange(0, BLOCK_K)
    first = tl.program_id(1).to(tl.int64) * part
    last = tl.minimum(first + part, K)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(first, last, BLOCK_K):
        a_mask = (rows[:, None] < M) & (k + ks[None, :] < last)
        b_mask = (k + ks[:, None] < last) & (columns[None, :] < N)
        a_ptrs = a_ptr + rows[:, None].to(tl.int64) * stride_am + (k + ks[None, :])
        b_ptrs = b_ptr + (k + ks[:, None]) * stride_bk + columns[None, :]
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    partial_ptrs = partial_ptr + (tl.program_id(1).to(tl.int64) * M + rows[:, None]) * N
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(partial_ptrs + columns[None, :], acc, mask=inside)


# %%
# In the second kernel, every element of C is the sum of S numbers that lie M · N elements apart.
# The loop adds them in order, so the result depends only on the inputs and on S.


@triton.jit
def sum_kernel(partial_ptr, c_ptr, size, parts, BLOCK: tl.constexpr):
    """Add up *parts* partial sums of *size* elements each."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(parts):
        total += tl.load(partial_ptr + offsets, mask=mask, other=0.0)
        partial_ptr += size
    tl.store(c_ptr + offsets, total.to(c_ptr.dtype.element_ty), mask=mask)


def split_k_matmul(a, b, parts):
    """Return ``a @ b`` for fp16 or bf16 matrices with contiguous rows, with K cut in *parts*."""
    for name, t in (("a", a), ("b", b)):
        if t.dtype not in (torch.float16, torch.bfloat16) or t.dtype != a.dtype:
            raise TypeError(f"{name} must be fp16 or bf16, like a, but its dtype is {t.dtype}")
        if t.ndim != 2 or t.stride(1) != 1 or t.device != DEVICE:
            raise ValueError(
                f"{name} must be a matrix with contiguous rows on {DEVICE}, but has shape "
                f"{tuple(t.shape)}, strides {t.stride()}, and is on {t.device}"
            )
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a must have as many columns as b has rows: {tuple(a.shape)} × {tuple(b.shape)}"
        )
    if not 1 <= parts <= 65535:
        raise ValueError(f"parts must be from 1 to 65535, but is {parts}")
    (M, K), N = a.shape, b.shape[1]
    part = triton.cdiv(triton.cdiv(K, parts), 64) * 64  # whole steps for all but the last part
    partial = torch.empty((parts, M, N), dtype=torch.float32, device=a.device)
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    partial_kernel[triton.cdiv(M, 64) * triton.cdiv(N, 64), parts](
        a, b, partial, M, N, K, part, a.stride(0), b.stride(0),
        BLOCK=64, BLOCK_K=64, num_warps=4, num_stages=4,
    )  # fmt: skip
    sum_kernel[(triton.cdiv(M * N, 256),)](partial, c, M * N, parts, BLOCK=256, num_warps=1)
    return c


# %%
# The check takes several numbers of parts, also with empty parts, and demands the same bits from a
# second call.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for M, N, K in [(1, 1, 1), (5, 7, 300), (64, 64, 1024), (65, 33, 777)]:
    a = torch.randn(M, K, device=DEVICE, dtype=torch.float16)
    b = torch.randn(K, N, device=DEVICE, dtype=torch.float16)
    for parts in (1, 3, 8):
        c = split_k_matmul(a, b, parts)
        expected = a.double() @ b.double()
        torch.testing.assert_close(c.double(), expected, rtol=2**-10, atol=2**-20 * K)
        assert torch.equal(c, split_k_matmul(a, b, parts))
print("split_k_matmul agrees with float64, and with itself")

# %%
# How many parts are best? Python may need longer for two launches than the GPU for the product. So
# ``gpu_times`` keeps the GPU busy until both launches are in its queue.

# sphinx_gallery_fold = "times it beside PyTorch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.bench import gpu_times, spread

if ON_GPU:
    a = torch.randn(64, 2**17, device=DEVICE, dtype=torch.float16)
    b = torch.randn(2**17, 64, device=DEVICE, dtype=torch.float16)
    numbers = (1, 4, 16, 64, 128, 256, 512, 1024, 2048)
    calls = {parts: partial(split_k_matmul, a, b, parts) for parts in numbers}
    times = gpu_times(calls | {"torch": partial(torch.matmul, a, b)})
    table = [(name, 1e3 * spread(ms)[0]) for name, ms in times.items()]
    print("64 × 131,072 by 131,072 × 64, µs, lower is better")
    print(tabulate(table, ["parts", "time"], floatfmt=("", ".1f")))
else:
    print("Without a GPU there is nothing to time.")

# %%
# At first, twice as many parts take about half the time. Once every SM is busy, more parts only add
# loads in flight. The partial sums cost memory traffic: S · M · N numbers of 4 bytes are written
# and read again, while the product reads (M + N) · K numbers of 2 bytes. When both are of the same
# size, K is split too far.
#
# The vendor's library, behind ``torch.matmul``, can split K as well. If it is faster, then its
# loads are: this product does little else.
