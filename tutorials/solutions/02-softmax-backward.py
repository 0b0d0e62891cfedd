r"""
The backward pass of softmax
============================

*Solution to the third exercise of* :doc:`../02-fused-softmax`.

The backward pass of softmax needs the output *y* and its gradient *g*:

.. math::

    \frac{\partial L}{\partial x_i} = y_i \left( g_i - \sum_j g_j y_j \right)

The kernel loads a row of *y* and a row of *g* once, and keeps both in registers. It reads
:math:`2MN` elements and writes :math:`MN`. In PyTorch operations, the product ``g * y`` moves
:math:`3MN`, its sum :math:`MN + M`, the difference :math:`2MN + M` and the last product
:math:`3MN`: three times as many.
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


@triton.jit
def softmax_backward_kernel(y_ptr, g_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """Compute the gradient of one row of the input."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    y = tl.load(y_ptr + row * N + cols, mask=mask, other=0.0)
    g = tl.load(g_ptr + row * N + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * N + cols, y * (g - tl.sum(g * y, axis=0)), mask=mask)


def softmax_backward(y, g):
    """Return the gradient of the input, for contiguous fp32 matrices *y* (output) and *g*."""
    for name, t in (("y", y), ("g", g)):
        if t.dtype != torch.float32 or t.device != DEVICE or not t.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous, fp32 and on {DEVICE}, but has strides {t.stride()}, "
                f"{t.dtype}, and is on {t.device}"
            )
    if y.ndim != 2 or not 1 <= y.shape[1] <= 32768:  # a row has to fit into registers
        raise ValueError(
            f"y must be a matrix of 1 to 32768 columns, but has shape {tuple(y.shape)}"
        )
    if g.shape != y.shape:
        raise ValueError(f"g must have the shape of y, {tuple(y.shape)}, but has {tuple(g.shape)}")
    M, N = y.shape
    out = torch.empty_like(y)
    block = triton.next_power_of_2(N)
    softmax_backward_kernel[(M,)](
        y, g, out, N, BLOCK=block, num_warps=max(1, min(16, block // 512))
    )
    return out


def unfused(y, g):
    """Return the same from PyTorch operations."""
    return y * (g - (g * y).sum(dim=1, keepdim=True))


# %%
# The padding is 0, the neutral element of the sum. The reference is PyTorch's gradient in float64:

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for shape in ((3, 1), (5, 781), (2, 4097)):
    x = torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True)
    g = torch.randn(shape, dtype=torch.float64, device=DEVICE)
    y = torch.softmax(x, dim=1)
    (expected,) = torch.autograd.grad(y, x, g)
    actual = softmax_backward(y.detach().float(), g.float())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6)
print("softmax_backward agrees with float64")

# %%

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    y = torch.softmax(torch.randn(4096, 4096, device=DEVICE), dim=1)
    g = torch.randn_like(y)
    fused_ms, unfused_ms = (
        triton.testing.do_bench(partial(fn, y, g), 5, 20, return_mode="median")
        for fn in (softmax_backward, unfused)
    )
    print(f"PyTorch operations {unfused_ms:.3f} ms, one kernel {fused_ms:.3f} ms")
    print(f"speed-up: expected 3.00, reached {unfused_ms / fused_ms:.2f}")
else:
    print("Without a GPU there is nothing to time.")
