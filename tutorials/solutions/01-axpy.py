"""
Fused scale and add
===================

*Solution to the first exercise of* :doc:`../01-vector-add`.

PyTorch computes ``a * x + y`` in two kernels. The first reads ``x`` and writes ``a * x``. The
second reads ``a * x`` and ``y`` and writes the sum. Together they move five vectors. One fused
kernel reads ``x`` and ``y`` and writes the result: three vectors. All of them are memory-bound, so
the expected speed-up is 5 / 3.
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
# ``a`` is passed by value, as a scalar. Triton broadcasts it to the shape of the block, as PyTorch
# does.


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
# The compiler may turn a product and a sum into one *fused multiply-add*, which rounds once.
# PyTorch's two kernels round twice. So the results can differ by the rounding error of the product.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for n in (1, 781, 1025, 98432):
    x, y = torch.rand(2, n, device=DEVICE)
    expected = 2.5 * x.double() + y.double()
    torch.testing.assert_close(axpy(2.5, x, y).double(), expected, rtol=0, atol=2**-22)
print("axpy agrees with float64")

# %%
# The vectors are large, so the launch hardly counts:

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
# PyTorch has a single kernel for this expression, ``torch.add(y, x, alpha=a)``. For most other
# expressions it has none.
