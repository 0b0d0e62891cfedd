"""
Fused scale and add
===================

*Solution to the first exercise of* :doc:`../01-vector-add`.

``a * x + y`` takes PyTorch two kernels: one reads ``x`` and writes ``a * x``, the other reads
that and ``y`` and writes the sum. Five vectors travel through memory. One kernel reads ``x`` and
``y`` and writes the result: three vectors. Both do next to no arithmetic, so the expected
speed-up is 5 / 3.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The number ``a`` is passed by value and arrives in the kernel as a scalar. Triton stretches it to
# the shape of the block that it meets, as PyTorch would.


@triton.jit
def axpy_kernel(a, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Compute one block of ``a * x + y``."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, a * x + y, mask=mask)


def axpy(a, x, y):
    """Return ``a * x + y`` for a number *a* and contiguous vectors *x*, *y* of one length."""
    for name, t in (("x", x), ("y", y)):
        if t.shape != x.shape or t.dtype != x.dtype or t.device != DEVICE or not t.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous, on {DEVICE}, and of the shape and dtype of x, but has "
                f"shape {tuple(t.shape)}, strides {t.stride()}, {t.dtype}, and is on {t.device}"
            )
    out = torch.empty_like(x)
    axpy_kernel[(triton.cdiv(x.numel(), 1024),)](a, x, y, out, x.numel(), BLOCK=1024)
    return out


# %%
# A product and a sum in one expression may be computed as one *fused multiply-add*, which rounds
# once where PyTorch rounds twice. So the results are close, not equal: the difference is at most
# the rounding of the product.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for n in (1, 781, 1025, 98432):
    x, y = torch.rand(2, n, device=DEVICE)
    expected = 2.5 * x.double() + y.double()
    torch.testing.assert_close(axpy(2.5, x, y).double(), expected, rtol=0, atol=2**-22)
print("axpy agrees with float64")

# %%
# The expected speed-up, and the one that is reached where the vectors are large enough that the
# launch does not count:

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    x, y = torch.rand(2, 2**26, device=DEVICE)
    two_kernels = triton.testing.do_bench(lambda: 2.5 * x + y, 5, 30, return_mode="median")
    one_kernel = triton.testing.do_bench(partial(axpy, 2.5, x, y), 5, 30, return_mode="median")
    print(f"two kernels {two_kernels:.3f} ms, one kernel {one_kernel:.3f} ms")
    print(f"speed-up: expected {5 / 3:.2f}, reached {two_kernels / one_kernel:.2f}")
else:
    print("Without a GPU there is nothing to time.")

# %%
# (PyTorch can do this one in a single kernel, too: ``torch.add(y, x, alpha=a)``. The point is that
# for the expression you will need tomorrow, there is no such function.)
