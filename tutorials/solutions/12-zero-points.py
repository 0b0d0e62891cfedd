r"""
Zero points folded into the sum
===============================

*Solution to the first exercise of* :doc:`../12-int4-weights`.

The sum over a group is

.. math::
   \sum_k x_k (n_k s + z) = s \sum_k x_k n_k + z \sum_k x_k

The scale and the zero leave the sum. The integers go to ``tl.dot`` as they are, and each sum of a
group needs two multiply-adds, however long the group is.
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
# Integers up to 15 are exact in fp16 and bf16, so the weights are not rounded any more. The sums of
# *x* are computed where they are needed, once for each tile of columns.


@triton.jit
def folded_kernel(
    x_ptr, packed_ptr, scales_ptr, zeros_ptr, out_ptr, M, N, groups,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute a tile of x · wᵀ."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    j, real = tl.arange(0, 32)[None, :], columns < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(groups):
        at = group * N + columns
        s = tl.load(scales_ptr + 2 * at, mask=real, other=0.0).to(tl.float32)[None, :]
        z = tl.load(zeros_ptr + 2 * at, mask=real, other=0.0).to(tl.float32)[None, :]
        words = tl.load(packed_ptr + at[:, None] * 32 + j, mask=real[:, None], other=0)
        sums, x_sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
        for i in tl.static_range(4):
            x_ptrs = x_ptr + (rows * groups + group) * 128 + i * 32 + j
            x = tl.load(x_ptrs, mask=rows < M, other=0.0)
            integers = ((words >> 4 * i) & 15).to(x.dtype)
            sums = tl.dot(x, tl.trans(integers), sums)
            x_sums += tl.sum(x.to(tl.float32), axis=1)
        acc += sums * s + x_sums[:, None] * z
    out_ptrs = out_ptr + rows * N + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & real[None, :])


def folded_mm(x, packed, scales, zeros):
    """Return x · wᵀ, [M, N].

    Args:
        x: [M, K], fp16 or bf16, contiguous; K is a multiple of 128.
        packed: [K / 128, N, 32], int16, as ``pack_int4`` returns it.
        scales: [N, K / 128], bf16, in the same memory as *zeros*.
        zeros: [N, K / 128], bf16.
    """
    groups, N, _ = packed.shape
    out, side = x.new_empty(len(x), N), 64 if ON_GPU else 16
    grid = triton.cdiv(len(x), 16), triton.cdiv(N, side)
    sizes = {"BLOCK_M": 16, "BLOCK_N": side}
    folded_kernel[grid](x, packed, scales, zeros, out, len(x), N, groups, **sizes)
    return out


# %%
# The check draws integers, scales and zeros, and computes the product in float64.

torch.manual_seed(0)
for M, N, groups in ((1, 33, 1), (5, 64, 3), (20, 100, 4)):
    integers = torch.randint(16, (groups, N, 4, 32), device=DEVICE, dtype=torch.int32)
    words = sum(integers[:, :, i] << 4 * i for i in range(4))
    packed = (words - (words >> 15 << 16)).to(torch.int16)
    pairs = torch.randn(groups, N, 2, device=DEVICE).bfloat16()
    scales, zeros = pairs[..., 0].T, pairs[..., 1].T
    x = torch.randn(M, 128 * groups, device=DEVICE).half()
    w = integers.flatten(2).transpose(0, 1) * scales.double()[..., None] + zeros[..., None]
    exact = x.double() @ w.flatten(1).T
    error = (folded_mm(x, packed, scales, zeros) - exact).norm() / exact.norm()
    assert error < 1e-3, f"the error is {error:.1e}"
print("folded_mm agrees with float64")
