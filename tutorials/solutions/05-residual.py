r"""
Layer norm of a sum
===================

*Solution to the first exercise of* :doc:`../05-layer-norm`.

In a transformer, layer norm usually normalizes a sum :math:`s = x + r` of the last layer's output
and the *residual*, and *s* becomes the next residual.

Separate kernels need five transfers: the addition reads *x* and *r* and writes *s*, and the norm
reads *s* and writes *y*. One kernel never reads *s*: **four** transfers. The backward pass gets two
gradients, of *y* and of *s*. Since *s* is a plain sum, *x* and *r* have the same gradient:

.. math::

    \frac{\partial L}{\partial x} = \frac{\partial L}{\partial r} =
    \text{layer norm's gradient for } s + \frac{\partial L}{\partial s}

One kernel reads *s* and both gradients and writes one tensor: four transfers. Separate kernels need
three for the norm and three for the addition.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os
from functools import partial

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The forward kernel is the tutorial's first kernel with one more load and one more store. The next
# layer sees the sum in the dtype of *x*, so the kernel rounds the sum and normalizes the rounded
# sum.


@triton.jit
def add_norm_kernel(
    x_ptr, r_ptr, w_ptr, b_ptr, s_ptr, y_ptr, mean_ptr, rstd_ptr, N, eps, BLOCK: tl.constexpr
):
    """Add one row of x and of r, and normalize the sum."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    rounded = (x + r).to(s_ptr.dtype.element_ty)
    tl.store(s_ptr + row * N + cols, rounded, mask=mask)
    s = rounded.to(tl.float32)
    mean = tl.sum(s, axis=0) / N
    centered = tl.where(mask, s - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * N + cols, centered * rstd * w + b, mask=mask)


# %%
# The backward kernel takes whole rows, with partial sums for the gradients of weight and bias as in
# the tutorial. It has one more load and one more addition.


@triton.jit
def add_norm_backward_kernel(
    s_ptr, gy_ptr, gs_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, partial_ptr, M, N, BLOCK: tl.constexpr
):
    """Compute the gradient of every P-th row, and partial sums of those of w and b."""
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for number in range(tl.program_id(0), M, tl.num_programs(0)):
        row = tl.cast(number, tl.int64)
        s = tl.load(s_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        gy = tl.load(gy_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        gs = tl.load(gs_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = (s - tl.load(mean_ptr + row)) * rstd
        dw += gy * normal
        db += gy
        wg = w * gy
        dx = wg - tl.sum(wg, axis=0) / N - normal * (tl.sum(wg * normal, axis=0) / N)
        tl.store(dx_ptr + row * N + cols, dx * rstd + gs, mask=mask)
    place = tl.program_id(0).to(tl.int64) * N + cols
    tl.store(partial_ptr + place, dw, mask=mask)
    tl.store(partial_ptr + tl.num_programs(0).to(tl.int64) * N + place, db, mask=mask)


# %%

# sphinx_gallery_fold = "checks the arguments"


def check_arguments(x, residual, weight, bias):
    """Raise ValueError where ``add_norm`` cannot take its arguments."""
    if x.ndim != 2 or not 1 <= x.shape[1] <= 8192:
        raise ValueError(f"x must be a matrix of 1 to 8192 columns, but has {tuple(x.shape)}")
    for name, t, shape in (
        ("x", x, x.shape),
        ("residual", residual, x.shape),
        ("weight", weight, x.shape[1:]),
        ("bias", bias, x.shape[1:]),
    ):
        if t.dtype not in (torch.float16, torch.bfloat16, torch.float32) or t.device != DEVICE:
            raise ValueError(
                f"{name} must be of 16 or 32 bits and on {DEVICE}, but is {t.dtype}, on {t.device}"
            )
        if t.shape != shape or not t.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous and {tuple(shape)}, but is {tuple(t.shape)} with "
                f"strides {t.stride()}"
            )
    if residual.dtype != x.dtype:
        raise ValueError(f"residual must have x's dtype, {x.dtype}, but has {residual.dtype}")


# %%


class AddNorm(torch.autograd.Function):
    """The layer norm of a sum, and the sum."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        """Return (y, s); s, the weight and two numbers a row are kept."""
        M, N = x.shape
        s, y = torch.empty_like(x), torch.empty_like(x)
        mean, rstd = torch.empty((2, M), dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(N)
        if M:
            add_norm_kernel[(M,)](x, residual, weight, bias, s, y, mean, rstd, N, eps, BLOCK=block)
        ctx.save_for_backward(s, weight, bias, mean, rstd)
        return y, s

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gy, gs):
        """Return the gradients of x, residual, weight and bias."""
        s, weight, bias, mean, rstd = ctx.saved_tensors
        gy, gs = (g.resolve_neg().contiguous() for g in (gy, gs))
        M, N = s.shape
        dx = torch.empty_like(s)
        programs = min(M, 256)
        partial_sums = torch.empty((2, programs, N), dtype=torch.float32, device=s.device)
        block = triton.next_power_of_2(N)
        if M:
            add_norm_backward_kernel[(programs,)](
                s, gy, gs, weight, mean, rstd, dx, partial_sums, M, N,
                BLOCK=block, num_warps=max(1, min(16, block // 512)),
            )  # fmt: skip
        dw, db = partial_sums.sum(dim=1)
        return dx, dx, dw.to(weight.dtype), db.to(bias.dtype), None


def add_norm(x, residual, weight, bias, eps=1e-5):
    """Return ``(layer_norm(x + residual), x + residual)``, with gradients.

    Args:
        x: Contiguous matrix of 1 to 8192 columns, in fp16, bf16 or fp32.
        residual: The same.
        weight: Contiguous vector, one number a column.
        bias: The same.
        eps: What is added to the variance.

    Raises:
        ValueError: Shapes, strides, dtypes or devices do not fit.
    """
    check_arguments(x, residual, weight, bias)
    x, residual, weight, bias = (t.resolve_neg() for t in (x, residual, weight, bias))
    return AddNorm.apply(x, residual, weight, bias, eps)


# %%
# The check uses both results, so both gradients come in. Sums over rows and columns are off by a
# few units of 2⁻²⁴ of the largest terms.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for shape in ((1, 1), (5, 781), (3, 4097), (0, 7)):
    given = [torch.randn(size, device=DEVICE) for size in (shape, shape, shape[1:], shape[1:])]
    ours = [t.clone().requires_grad_() for t in given]
    exact = [t.double().requires_grad_() for t in given]
    gy, gs = torch.randn(2, *shape, device=DEVICE)
    y, s = add_norm(*ours)
    s_exact = exact[0] + exact[1]
    y_exact = functional.layer_norm(s_exact, shape[1:], exact[2], exact[3])
    torch.testing.assert_close(y.double(), y_exact, rtol=0, atol=1e-4)
    torch.testing.assert_close(s.double(), s_exact, rtol=1e-6, atol=1e-6)
    found = torch.autograd.grad((y, s), ours, (gy, gs))
    expected = torch.autograd.grad((y_exact, s_exact), exact, (gy.double(), gs.double()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            one.double(), other, rtol=0, atol=1e-3 if shape[1] == 1 else 1e-4
        )
print("add_norm and its gradients agree with float64")

# %%

# sphinx_gallery_fold = "times it beside PyTorch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.bench import gpu_times, spread

if ON_GPU:
    x, residual = torch.randn(2, 4096, 4096, device=DEVICE, dtype=torch.float16)
    weight, bias = torch.randn(2, 4096, device=DEVICE, dtype=torch.float16)
    times = gpu_times({
        "fused": partial(add_norm, x, residual, weight, bias),
        "apart": lambda: functional.layer_norm(x + residual, (4096,), weight, bias),
    })  # fmt: skip
    fused, apart = (spread(times[name])[0] for name in ("fused", "apart"))
    print(f"PyTorch, apart {apart:.4f} ms, fused {fused:.4f} ms: {apart / fused:.2f} times as fast")
    print(f"By the transfers alone it would be {5 / 4:.2f}")
else:
    print("Without a GPU there is nothing to time.")
