"""
Normalize and quantize in one kernel
====================================

*Solution to the first exercise of* :doc:`../09-fp8-matmul`.

In a language model, a normalization usually precedes a product: it divides each row by its root
mean square and multiplies it by a vector of weights (RMS norm). Only the product reads the result.
If the product takes fp8, the kernel that normalizes can round as well, since it has the whole row
in registers.
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

E4M3 = torch.float8_e4m3fn
NO_FP8 = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) < (8, 9)

# %%
# Count the bytes for M rows of N numbers in bf16. Separate kernels read 2 MN and write 2 MN to
# normalize, then read 2 MN and write MN to round: 7 MN. One kernel reads 2 MN and writes MN: 3 MN.
# (``EMULATE`` rounds by hand in the interpreter, whose conversion to fp8 loses a carry.)


@triton.jit
def to_fp8(x, dtype: tl.constexpr, EMULATE: tl.constexpr):
    """Return *x* rounded to *dtype*; EMULATE does by hand what the interpreter does wrongly."""
    if EMULATE:
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000
        small = (x + 24576.0) - 24576.0
        x = tl.where(tl.abs(x) < 2**-6, small, bits.to(tl.float32, bitcast=True))
    return x.to(dtype)


@triton.jit
def normalize_and_quantize_kernel(
    x_ptr, weight_ptr, q_ptr, scale_ptr, N, stride_x, eps,
    BLOCK: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    """RMS norm of one row, rounded to e4m3 so that its largest number becomes 448."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    x = tl.load(x_ptr + row * stride_x + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    y = x / tl.sqrt(tl.sum(x * x, axis=0) / N + eps) * weight
    scale = tl.maximum(tl.max(tl.abs(y), axis=0), 1e-12) / 448
    tl.store(q_ptr + row * N + columns, to_fp8(y / scale, q_ptr.dtype.element_ty, EMULATE), inside)
    tl.store(scale_ptr + row, scale)


def normalize_and_quantize(x, weight, eps=1e-6):
    """Return the RMS norm of the rows of *x* in e4m3, and the scale of each row.

    Args:
        x: M × N in fp32, fp16 or bf16, rows contiguous.
        weight: N numbers.
        eps: Added to the mean of the squares.
    """
    if NO_FP8:
        raise RuntimeError("float8_e4m3fn needs a GPU of compute capability 8.9 or higher")
    if x.dim() != 2 or x.stride(1) != 1 or x.device != DEVICE:
        raise ValueError(f"x must be a matrix with contiguous rows on {DEVICE}")
    if weight.shape != x.shape[1:] or not weight.is_contiguous() or weight.device != DEVICE:
        raise ValueError(f"weight must be a contiguous vector of {x.shape[1]} numbers on {DEVICE}")
    M, N = x.shape
    q = torch.empty(M, N, dtype=E4M3, device=x.device)
    scale = torch.empty(M, 1, device=x.device)
    block = triton.next_power_of_2(N)
    normalize_and_quantize_kernel[(M,)](
        x, weight, q, scale, N, x.stride(0), eps, BLOCK=block, EMULATE=not ON_GPU,
        num_warps=min(max(block // 1024, 1), 16),
    )  # fmt: skip
    return q, scale


# %%
# The check compares with float64. The error may be half of the last of three bits, and slightly
# more near a tie, which fp32 may round the other way.

# sphinx_gallery_fold = "checks it against float64"
if NO_FP8:
    print("This GPU has no float8.")
else:
    torch.manual_seed(0)
    for M, N in [(3, 1), (5, 781), (2, 4096)]:
        x = torch.randn(M, N, device=DEVICE) * torch.logspace(-3, 3, M, device=DEVICE)[:, None]
        weight = torch.randn(N, device=DEVICE)
        exact = x.double() / (x.double().square().mean(1, keepdim=True) + 1e-6).sqrt()
        exact = exact * weight.double()
        q, scale = normalize_and_quantize(x, weight)
        error = (q.double() * scale.double() - exact).abs()
        half = torch.maximum(exact.abs() / 16, scale.double() * 2**-10)
        assert (error <= 1.001 * half).all()
    print("normalize_and_quantize agrees with float64 up to three bits")

# %%
# All rates count the 3 MN bytes that one kernel must move.

# sphinx_gallery_fold = "times it beside the two in turn"


def separately(x, weight):
    """Return the same by two passes of PyTorch: normalize, and round."""
    y = torch.nn.functional.rms_norm(x, x.shape[1:], weight, 1e-6)
    scale = y.abs().amax(1, keepdim=True).float() / 448
    return (y / scale).to(E4M3), scale


if ON_GPU and not NO_FP8:
    M, N = 8192, 8192
    x = torch.randn(M, N, device=DEVICE, dtype=torch.bfloat16)
    weight = torch.randn(N, device=DEVICE, dtype=torch.bfloat16)
    table = []
    for name, call in (("one kernel", normalize_and_quantize), ("PyTorch", separately)):
        ms = triton.testing.do_bench(lambda c=call: c(x, weight), 5, 30, return_mode="median")
        table.append((name, 3 * M * N / ms / 1e6))
    print(tabulate(table, ["", "GB/s"], floatfmt=("", ".0f")))
else:
    print("There is nothing to time.")
