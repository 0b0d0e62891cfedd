r"""
Floats of 4 bits, from a table
==============================

*Solution to the second exercise of* :doc:`../12-int4-weights`.

A number of the format **E2M1** has a sign, two bits of exponent and one of mantissa. Bits 0 to 7
stand for 0, 0.5, 1, 1.5, 2, 3, 4 and 6, and 8 to 15 for their negatives. Small numbers are close
together, as the weights of a model are. A group has a scale and no zero.
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
# The table has 16 numbers, so it stays in the cache, but each weight needs a load. The scale leaves
# the sum of a group, as in :doc:`12-zero-points`, and the numbers of the table are exact in fp16.

TABLE = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
TABLE += [-value for value in TABLE]


@triton.jit
def fp4_kernel(
    x_ptr, packed_ptr, scales_ptr, table_ptr, out_ptr, M, N, groups, stride_sn, stride_sg,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute a tile of x · wᵀ."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    j, real = tl.arange(0, 32)[None, :], columns < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(groups):
        s_ptrs = scales_ptr + columns * stride_sn + group * stride_sg
        s = tl.load(s_ptrs, mask=real, other=0.0).to(tl.float32)[None, :]
        words_ptrs = packed_ptr + (group * N + columns)[:, None] * 32 + j
        words = tl.load(words_ptrs, mask=real[:, None], other=0)
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for i in tl.static_range(4):
            x_ptrs = x_ptr + (rows * groups + group) * 128 + i * 32 + j
            x = tl.load(x_ptrs, mask=rows < M, other=0.0)
            w = tl.load(table_ptr + ((words >> 4 * i) & 15))
            sums = tl.dot(x, tl.trans(w), sums)
        acc += sums * s
    out_ptrs = out_ptr + rows * N + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & real[None, :])


def fp4_mm(x, packed, scales):
    """Return x · wᵀ, [M, N].

    Args:
        x: [M, K], fp16 or bf16, contiguous; K is a multiple of 128.
        packed: [K / 128, N, 32], int16; word *j* holds columns *j*, *j* + 32, *j* + 64, *j* + 96.
        scales: [N, K / 128], bf16.
    """
    groups, N, _ = packed.shape
    out, side = x.new_empty(len(x), N), 64 if ON_GPU else 16
    grid = triton.cdiv(len(x), 16), triton.cdiv(N, side)
    sizes = {"BLOCK_M": 16, "BLOCK_N": side}
    numbers = len(x), N, groups, *scales.stride()
    fp4_kernel[grid](x, packed, scales, x.new_tensor(TABLE), out, *numbers, **sizes)
    return out


# %%
# A table is slow, and here it is not needed: four bits that are shifted to the right place of an
# fp16 number are that number times 2⁻¹⁴. A table serves formats without such a rule.

torch.manual_seed(0)
for M, N, groups in ((1, 33, 1), (5, 64, 3), (20, 100, 4)):
    codes = torch.randint(16, (groups, N, 4, 32), device=DEVICE, dtype=torch.int32)
    words = sum(codes[:, :, i] << 4 * i for i in range(4))
    packed = (words - (words >> 15 << 16)).to(torch.int16)
    scales = torch.rand(N, groups, device=DEVICE).bfloat16()
    x = torch.randn(M, 128 * groups, device=DEVICE).half()
    values = x.new_tensor(TABLE, dtype=torch.float64)[codes.flatten(2)]
    exact = x.double() @ (values.transpose(0, 1) * scales[..., None]).flatten(1).T
    error = (fp4_mm(x, packed, scales) - exact).norm() / exact.norm()
    assert error < 1e-3, f"the error is {error:.1e}"
print("fp4_mm agrees with float64")
