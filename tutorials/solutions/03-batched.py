"""
Many small products in one launch
=================================

*Solution to the second exercise of* :doc:`../03-matrix-multiplication`.

The product of two 128 × 128 matrices has four tiles of 64 × 64. Most of a GPU is idle, and the
launch takes longer than the product. A batched matmul computes the tiles of hundreds of such
products at the same time. The batch becomes the second axis of the grid.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# A program also needs the place where its matrices begin: the batch number times one more stride.
# This offset can be large, so it has 64 bits, and so have those within a matrix: a view of a large
# batch can have large strides along every axis. The rest is the kernel of the tutorial.


@triton.jit
def bmm_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of one product of the batch."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    batch = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0).to(tl.int64)
    rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks, step = tl.arange(0, BLOCK_K).to(tl.int64), tl.cast(BLOCK_K, tl.int64)
    a_ptrs = a_ptr + batch * stride_ab + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + batch * stride_bb + ks[:, None] * stride_bk + columns[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_mask = (rows[:, None] < M) & (ks[None, :] < K - k)
        b_mask = (ks[:, None] < K - k) & (columns[None, :] < N)
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk
    c_ptrs = c_ptr + batch * stride_cb + rows[:, None] * stride_cm + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def bmm(a, b):
    """Return the products of B pairs of fp16 or bf16 matrices, (B, M, K) and (B, K, N)."""
    for name, t in (("a", a), ("b", b)):
        if t.dtype not in (torch.float16, torch.bfloat16) or t.dtype != a.dtype:
            raise TypeError(f"{name} must be fp16 or bf16, like a, but its dtype is {t.dtype}")
        if t.ndim != 3 or t.device != DEVICE:
            raise ValueError(
                f"{name} must have 3 dimensions and be on {DEVICE}, but has shape "
                f"{tuple(t.shape)} and is on {t.device}"
            )
    if b.shape[:2] != (a.shape[0], a.shape[2]):
        raise ValueError(f"a and b do not fit: {tuple(a.shape)} × {tuple(b.shape)}")
    (batch, M, K), N = a.shape, b.shape[2]
    if batch > 65535:  # the limit of the second axis of a grid
        raise ValueError(f"a must have up to 65535 matrices, but has {batch}")
    c = torch.empty((batch, M, N), dtype=a.dtype, device=a.device)
    bmm_kernel[triton.cdiv(M, 64) * triton.cdiv(N, 64), batch](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride()[:2],
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=3,
    )  # fmt: skip
    return c


# %%
# Strides avoid copies: the kernel takes a batch of transposed matrices, or one matrix for the whole
# batch (a stride of zero, from ``expand``).

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for batch, M, N, K in [(1, 1, 1, 1), (3, 5, 7, 3), (4, 65, 33, 70)]:
    a = torch.randn(batch, M, K, device=DEVICE, dtype=torch.float16)
    b = torch.randn(batch, K, N, device=DEVICE, dtype=torch.float16)
    for left, right in ((a, b), (a, b.mT.contiguous().mT), (a[:1].expand(batch, M, K), b)):
        expected = left.double() @ right.double()
        torch.testing.assert_close(
            bmm(left, right).double(), expected, rtol=2**-10, atol=2**-20 * K
        )
print("bmm agrees with float64, for transposed and for shared matrices, too")

# %%
# Timed are 512 products of 128 × 128 matrices: in one launch, in 512 launches of the same kernel,
# and in one call of the vendor's library. A long series of small launches is launch-bound.

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    a = torch.randn(512, 128, 128, device=DEVICE, dtype=torch.float16)
    b = torch.randn(512, 128, 128, device=DEVICE, dtype=torch.float16)
    calls = {
        "one launch": lambda: bmm(a, b),
        "512 launches": lambda: [bmm(a[i : i + 1], b[i : i + 1]) for i in range(512)],
        "torch.bmm": lambda: torch.bmm(a, b),
    }
    table = []
    for name, call in calls.items():
        us = triton.testing.do_bench(call, 5, 30, return_mode="median") * 1e3
        table.append((name, us, 2 * 512 * 128**3 / us / 1e6))
    print(tabulate(table, ["", "µs", "TFLOPS"], floatfmt=("", ".1f", ".1f")))
else:
    print("Without a GPU there is nothing to time.")

# %%
# Small products compute only a few dozen operations per byte, so the memory limits them, not the
# tensor cores. Count the bytes, as in :doc:`../01-vector-add`.
