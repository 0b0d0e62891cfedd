"""
Layer norm with dropout fused in
================================

*Solution to the third exercise of* :doc:`../05-layer-norm`.

Dropout as a kernel of its own reads the norm's output and writes it once more. Fused, it moves no
byte: the kernel that stores *y* draws random numbers and stores zeros in some places. The backward
pass has the seed and draws the same numbers. The gradient of a dropped element is zero, and the
others are scaled; the rest is layer norm's backward pass. It needs the tensors that layer norm
saves, and a seed.

Both passes must give each element the same random number, whatever their blocks are. Element *col*
of row *row* gets word ``col % 4`` of counter ``row * quarters + col // 4``, where *quarters* is *N*
/ 4, rounded up. (The tutorial on dropout counts through the whole matrix; then the four words of a
counter could belong to two rows.)
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
# Both kernels call this function. Triton inlines a ``triton.jit`` function into the kernel that
# calls it.


@triton.jit
def kept(row, N, seed, threshold, BLOCK: tl.constexpr):
    """Return which of BLOCK elements of a row are kept."""
    counters = row * tl.cdiv(N, 4) + tl.arange(0, BLOCK // 4)
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))  # [BLOCK]
    return words.to(tl.uint32, bitcast=True) >= threshold.to(tl.uint32)


@triton.jit(do_not_specialize=["seed", "threshold"])
def forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, N, eps, seed, threshold, scale,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalize one row, then drop some of it."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centered = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    y = centered * rstd * w + b
    y = tl.where(kept(row, N, seed, threshold, BLOCK), y * scale, 0.0)
    tl.store(y_ptr + row * N + cols, y, mask=mask)


@triton.jit(do_not_specialize=["seed", "threshold"])
def backward_kernel(
    x_ptr, g_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, partial_ptr, M, N, seed, threshold, scale,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of every P-th row, and partial sums of those of w and b."""
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for number in range(tl.program_id(0), M, tl.num_programs(0)):
        row = tl.cast(number, tl.int64)
        x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        g = tl.where(kept(row, N, seed, threshold, BLOCK), g * scale, 0.0)  # the only new line
        rstd = tl.load(rstd_ptr + row)
        normal = (x - tl.load(mean_ptr + row)) * rstd
        dw += g * normal
        db += g
        wg = w * g
        dx = wg - tl.sum(wg, axis=0) / N - normal * (tl.sum(wg * normal, axis=0) / N)
        tl.store(dx_ptr + row * N + cols, dx * rstd, mask=mask)
    place = tl.program_id(0).to(tl.int64) * N + cols
    tl.store(partial_ptr + place, dw, mask=mask)
    tl.store(partial_ptr + tl.num_programs(0).to(tl.int64) * N + place, db, mask=mask)


# %%

# sphinx_gallery_fold = "checks the arguments"


def check_arguments(x, weight, bias, p, seed):
    """Raise ValueError where ``dropped_layer_norm`` cannot take its arguments."""
    if x.ndim != 2 or not 1 <= x.shape[1] <= 8192:
        raise ValueError(f"x must be a matrix of 1 to 8192 columns, but has {tuple(x.shape)}")
    for name, t, shape in (
        ("x", x, x.shape),
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
    if not 0 <= p < 1:
        raise ValueError(f"p must be from 0 to less than 1, but is {p}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be from 0 to 2**63 - 1, but is {seed}")


# %%


class DroppedLayerNorm(torch.autograd.Function):
    """Dropout of layer norm; the mask is drawn twice and never stored."""

    @staticmethod
    def forward(ctx, x, weight, bias, p, seed, eps):
        """Normalize and drop."""
        M, N = x.shape
        y = torch.empty_like(x)
        mean, rstd = torch.empty((2, M), dtype=torch.float32, device=x.device)
        block = max(4, triton.next_power_of_2(N))
        ctx.random = seed, min(round(p * 2**32), 2**32 - 1), 1 / (1 - p)
        if M:
            forward_kernel[(M,)](
                x, weight, bias, y, mean, rstd, N, eps, *ctx.random, BLOCK=block
            )  # fmt: skip
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        """Draw again, drop the gradient, and go on as layer norm does."""
        x, weight, bias, mean, rstd = ctx.saved_tensors
        g = g.resolve_neg().contiguous()
        M, N = x.shape
        dx = torch.empty_like(x)
        programs = min(M, 256)
        partial_sums = torch.empty((2, programs, N), dtype=torch.float32, device=x.device)
        block = max(4, triton.next_power_of_2(N))
        if M:
            backward_kernel[(programs,)](
                x, g, weight, mean, rstd, dx, partial_sums, M, N, *ctx.random,
                BLOCK=block, num_warps=max(1, min(16, block // 512)),
            )  # fmt: skip
        dw, db = partial_sums.sum(dim=1)
        return dx, dw.to(weight.dtype), db.to(bias.dtype), None, None, None


def dropped_layer_norm(x, weight, bias, p, seed, eps=1e-5):
    """Return dropout of ``layer_norm(x, weight, bias)``, with gradients.

    Args:
        x: Contiguous matrix of 1 to 8192 columns, in fp16, bf16 or fp32.
        weight: Contiguous vector, one number a column.
        bias: The same.
        p: The probability that an element is dropped, from 0 to less than 1.
        seed: Integer from 0 to 2⁶³ - 1; another one for every call.
        eps: What is added to the variance.

    Raises:
        ValueError: Shapes, strides, dtypes or devices do not fit, or *p* or *seed* is out of range.
    """
    check_arguments(x, weight, bias, p, seed)
    x, weight, bias = (t.resolve_neg() for t in (x, weight, bias))
    return DroppedLayerNorm.apply(x, weight, bias, p, seed, eps)


# %%
# The bias is far from zero, so the output shows which elements were kept. The gradients must fit
# this mask.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for M, N in ((1, 1), (50, 781), (3, 4097)):
    given = [torch.randn(M, N, device=DEVICE), *torch.randn(2, N, device=DEVICE)]
    given[2] += 100
    ours = [t.clone().requires_grad_() for t in given]
    exact = [t.double().requires_grad_() for t in given]
    y = dropped_layer_norm(*ours, p=0.3, seed=2**40 + 5)
    keep = y != 0
    y_exact = functional.layer_norm(exact[0], (N,), *exact[1:]) * keep / 0.7
    torch.testing.assert_close(y.double(), y_exact, rtol=1e-5, atol=0)
    g = torch.randn(M, N, device=DEVICE)
    found = torch.autograd.grad(y, ours, g)
    expected = torch.autograd.grad(y_exact, exact, g.double())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-3 if N == 1 else 1e-4)
    assert torch.equal(y, dropped_layer_norm(*ours, p=0.3, seed=2**40 + 5))
    if M * N > 10_000:
        share = keep.float().mean().item()
        assert abs(share - 0.7) < 6 * (0.21 / (M * N)) ** 0.5, "six standard deviations"
print("dropped_layer_norm and its gradients agree with float64")

# %%

# sphinx_gallery_fold = "times it beside PyTorch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.bench import gpu_times, spread

if ON_GPU:
    x = torch.randn(4096, 4096, device=DEVICE, dtype=torch.float16)
    weight, bias = torch.randn(2, 4096, device=DEVICE, dtype=torch.float16)
    times = gpu_times({
        "fused": partial(dropped_layer_norm, x, weight, bias, 0.1, 123),
        "apart": lambda: functional.dropout(
            functional.layer_norm(x, (4096,), weight, bias), 0.1
        ),
    })  # fmt: skip
    fused, apart = (spread(times[name])[0] for name in ("fused", "apart"))
    print(f"PyTorch, apart {apart:.4f} ms, fused {fused:.4f} ms: {apart / fused:.2f} times as fast")
else:
    print("Without a GPU there is nothing to time.")
