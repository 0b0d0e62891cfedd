r"""
The derivative of GELU
======================

*Solution to the second exercise of* :doc:`../07-math-functions`.

The exact function is :math:`x \, \Phi(x)`, where :math:`\Phi` is the probability that a normally
distributed number is less than *x*. Its derivative is the density :math:`\varphi`, so

.. math::

    \mathrm{gelu}'(x) = \Phi(x) + x \, \varphi(x)
    \qquad \text{with} \quad \varphi(x) = \frac{1}{\sqrt{2 \pi}} e^{-x^2 / 2}

The approximation is :math:`x \, \sigma(v)`, with :math:`v = 2u`. The derivative of the sigmoid is
:math:`\sigma' = \sigma (1 - \sigma)`, so

.. math::

    \mathrm{gelu}'(x) \approx \sigma + x \, \sigma (1 - \sigma) \, v'
    \qquad \text{with} \quad v' = 2 \sqrt{2 / \pi} \, (1 + 3 \cdot 0.044715 \, x^2)

The backward pass computes the sigmoid again, so it needs only *x*, which the layer before has
stored already.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%


@triton.jit
def exact(x):
    """Return GELU of x and its derivative."""
    probability = 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)
    density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
    return x * probability, probability + x * density


@triton.jit
def approximate(x):
    """Return the approximate GELU of x and its derivative."""
    s = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    slope = 1.5957691216057308 * (1 + 0.134145 * x * x)
    return x * s, s + x * s * (1 - s) * slope


@triton.jit
def forward_kernel(x_ptr, y_ptr, n, BOTH: tl.constexpr, BLOCK: tl.constexpr):
    """Apply the function to one block."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
    value, _ = BOTH(x)
    tl.store(y_ptr + offsets, value, mask=offsets < n)


@triton.jit
def backward_kernel(x_ptr, grad_ptr, out_ptr, n, BOTH: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply the gradient of one block by the derivative."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
    grad = tl.load(grad_ptr + offsets, mask=offsets < n).to(tl.float32)
    _, derivative = BOTH(x)
    tl.store(out_ptr + offsets, grad * derivative, mask=offsets < n)


# %%
# One function returns both values for both kernels. The compiler removes the value that a kernel
# does not use.


class Gelu(torch.autograd.Function):
    """GELU that keeps its input and nothing else."""

    @staticmethod
    def forward(ctx, x, both):
        """Compute the function."""
        ctx.save_for_backward(x)
        ctx.both = both
        y = torch.empty_like(x)
        forward_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BOTH=both, BLOCK=1024)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        """Multiply *grad* by the derivative."""
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        grad = grad.contiguous()
        backward_kernel[grid](x, grad, out, x.numel(), BOTH=ctx.both, BLOCK=1024)
        return out, None


def gelu(x, approximation="none"):
    """Return GELU of the contiguous fp32 tensor *x* of at least one element."""
    if approximation not in ("none", "tanh"):
        raise ValueError(f"approximation must be 'none' or 'tanh', but is {approximation!r}")
    if x.dtype != torch.float32 or x.device != DEVICE or not x.is_contiguous():
        raise ValueError(
            f"x must be contiguous, float32 and on {DEVICE}, but has strides {x.stride()}, "
            f"{x.dtype}, and is on {x.device}"
        )
    return Gelu.apply(x, exact if approximation == "none" else approximate)


# %%
# The reference is PyTorch's derivative in float64. The gradient of the output is random, so that a
# missing factor shows.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for approximation in ("none", "tanh"):
    x = (3 * torch.randn(5, 781, device=DEVICE)).requires_grad_()
    grad = torch.randn(5, 781, device=DEVICE)
    y = gelu(x, approximation)
    (found,) = torch.autograd.grad(y, x, grad)
    right = x.detach().double().requires_grad_()
    expected = functional.gelu(right, approximate=approximation)
    (wanted,) = torch.autograd.grad(expected, right, grad.double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=5e-6)
print("gelu and its derivative agree with float64")

# %%
# PyTorch operations save more for the backward pass. A hook counts the bytes per element:

# sphinx_gallery_fold = "compares what is kept"


def bytes_kept(function, n=1000):
    """Return the bytes an element that *function* saves for the backward pass."""
    kept = []

    def count(saved):
        kept.append(saved.nbytes)
        return saved

    x = torch.randn(n, device=DEVICE, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved):
        function(x)
    return sum(kept) / n


def unfused(x):
    """Return GELU from PyTorch operations, one at a time."""
    return 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))


print(f"kept: one operation at a time {bytes_kept(unfused):g} bytes an element, ours "
      f"{bytes_kept(gelu):g}")  # fmt: skip
