"""
One scale for the whole matrix
==============================

*Solution to the second exercise of* :doc:`../09-fp8-matmul`.

With one scale per matrix, the epilogue of the product multiplies by one number. But the largest of
*all* numbers must be known before the first can be rounded, so the matrix is read twice. In the
first pass, each program finds the maximum of its part. An **atomic** maximum combines them: it
reads, compares and writes in one step that no other program can interrupt. A sum by atomics depends
on the order of the programs; a maximum does not, so the result is the same every time.
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
# Nonnegative floating-point numbers have the same order as their bits read as integers. So an
# atomic maximum of integers, which all GPUs have, is enough. The second pass reads the largest
# number from memory, and the CPU does not wait for it.


@triton.jit
def largest_kernel(x_ptr, largest_ptr, size, BLOCK: tl.constexpr):
    """Raise the number at largest_ptr, as bits, to the largest of BLOCK absolute values."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    tl.atomic_max(largest_ptr, tl.max(tl.abs(x), axis=0).to(tl.int32, bitcast=True))


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
def round_kernel(
    x_ptr, q_ptr, largest_ptr, scale_ptr, size, BLOCK: tl.constexpr, EMULATE: tl.constexpr
):
    """Round BLOCK numbers to e4m3, by the scale that makes the largest of all 448."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    scale = tl.maximum(tl.load(largest_ptr).to(tl.float32, bitcast=True), 1e-12) / 448
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(q_ptr + offsets, to_fp8(x / scale, q_ptr.dtype.element_ty, EMULATE), mask=inside)
    tl.store(scale_ptr, scale, mask=tl.program_id(0) == 0)


def quantize_tensor(x):
    """Return the contiguous tensor *x* in e4m3, and its scale, a tensor with one number."""
    if NO_FP8:
        raise RuntimeError("float8_e4m3fn needs a GPU of compute capability 8.9 or higher")
    if not x.is_contiguous() or x.device != DEVICE:
        raise ValueError(f"x must be contiguous and on {DEVICE}")
    q = torch.empty(x.shape, dtype=E4M3, device=x.device)
    largest = torch.zeros((), dtype=torch.int32, device=x.device)
    scale = torch.ones((), device=x.device)
    grid = (triton.cdiv(x.numel(), 4096),)
    if x.numel():
        largest_kernel[grid](x, largest, x.numel(), BLOCK=4096, num_warps=8)
        round_kernel[grid](
            x, q, largest, scale, x.numel(), BLOCK=4096, EMULATE=not ON_GPU, num_warps=8
        )
    return q, scale


# %%
# The check compares each step with PyTorch:

# sphinx_gallery_fold = "checks it against PyTorch"
if NO_FP8:
    print("This GPU has no float8.")
else:
    torch.manual_seed(0)
    for shape in [(1,), (123, 457), (5, 4096)]:
        x = 100 * torch.randn(shape, device=DEVICE)
        q, scale = quantize_tensor(x)
        torch.testing.assert_close(scale, x.abs().amax() / 448, rtol=1e-6, atol=0)
        wrong = q.float() != (x / scale).to(E4M3).float()
        # Division on a GPU may be off by one bit, which matters only near a tie.
        assert wrong.float().mean() < 1e-4
        assert torch.equal(q.float(), quantize_tensor(x)[0].float())
    print("quantize_tensor gives what PyTorch gives, twice")

# %%
# In practice the first pass is often left out (*delayed scaling*): a training step takes its scale
# from the step before, with some room above it, and keeps its largest number for the next step. How
# much does the first pass cost?

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU and not NO_FP8:
    x = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    q, scale = quantize_tensor(x)
    largest = (scale * 448).view(torch.int32)
    grid = (x.numel() // 4096,)

    def second_pass():
        """Round, as if the scale were known."""
        round_kernel[grid](x, q, largest, scale, x.numel(), 4096, False, num_warps=8)

    table = []
    for name, call in (("both passes", lambda: quantize_tensor(x)), ("the second", second_pass)):
        ms = triton.testing.do_bench(call, 5, 30, return_mode="median")
        table.append((name, 3 * x.numel() / ms / 1e6))
    print(tabulate(table, ["", "GB/s of 3 bytes a number"], floatfmt=("", ".0f")))
else:
    print("There is nothing to time.")
