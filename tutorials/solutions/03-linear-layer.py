"""
A linear layer in one kernel
============================

*Solution to the first exercise of* :doc:`../03-matrix-multiplication`.

A linear layer computes ``activation(x @ weight.T + bias)``. The bias has one number for each column
of the result, so a program loads ``BLOCK_N`` of them for a whole tile. Bias and activation are
applied to the accumulator in fp32, while it is in registers.
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
# The activation is ReLU, GELU or none. GELU is the exact one, PyTorch's default; its error function
# is ``tl.math.erf``.

ACTIVATIONS = {
    "": lambda x: x,
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
}


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Apply the activation named *ACTIVATION* to a block."""
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    return x


# %%
# The kernel is the tutorial's loop with a bias and an activation. ``weight`` has shape (N,
# K), as in ``torch.nn.Linear``. With its strides exchanged, the kernel reads it as a K × N matrix.


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, M, N, K, stride_x, stride_weight, stride_out,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute one tile of activation(x @ weight.T + bias)."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows[:, None] * stride_x + ks[None, :]
    weight_ptrs = weight_ptr + columns[None, :] * stride_weight + ks[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x_mask = (rows[:, None] < M) & (ks[None, :] < K - k)
        weight_mask = (ks[:, None] < K - k) & (columns[None, :] < N)
        x = tl.load(x_ptrs + k, mask=x_mask, other=0.0)
        weight = tl.load(weight_ptrs + k, mask=weight_mask, other=0.0)
        acc = tl.dot(x, weight, acc)
    bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
    acc = activate(acc + bias[None, :].to(tl.float32), ACTIVATION)
    out_ptrs = out_ptr + rows[:, None] * stride_out + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)


def linear(x, weight, bias, activation=""):
    """Return ``activation(x @ weight.T + bias)`` for fp16 or bf16 matrices with contiguous rows."""
    for name, t, ndim in (("x", x, 2), ("weight", weight, 2), ("bias", bias, 1)):
        if t.dtype not in (torch.float16, torch.bfloat16) or t.dtype != x.dtype:
            raise TypeError(f"{name} must be fp16 or bf16, like x, but its dtype is {t.dtype}")
        if t.ndim != ndim or t.stride(-1) != 1 or t.device != DEVICE:
            raise ValueError(
                f"{name} must have {ndim} dimensions, contiguous rows and be on {DEVICE}, but has "
                f"shape {tuple(t.shape)}, strides {t.stride()}, and is on {t.device}"
            )
    if weight.shape != (bias.shape[0], x.shape[1]):
        shapes = f"{tuple(x.shape)}, {tuple(weight.shape)}, {tuple(bias.shape)}"
        raise ValueError(f"x, weight and bias do not fit: {shapes}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {[*ACTIVATIONS]}, but is {activation!r}")
    (M, K), N = x.shape, weight.shape[0]
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    linear_kernel[triton.cdiv(M, 64), triton.cdiv(N, 128)](
        x, weight, bias, out, M, N, K, x.stride(0), weight.stride(0), out.stride(0),
        BLOCK_M=64, BLOCK_N=128, BLOCK_K=64, ACTIVATION=activation, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


# %%
# The tolerance allows for one rounding to fp16 and for a sum in fp32.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for M, N, K in [(1, 1, 1), (5, 7, 3), (123, 77, 45), (64, 256, 128)]:
    x = torch.randn(M, K, device=DEVICE, dtype=torch.float16)
    weight = torch.randn(N, K, device=DEVICE, dtype=torch.float16)
    bias = torch.randn(N, device=DEVICE, dtype=torch.float16)
    exact = x.double() @ weight.double().T + bias.double()
    for name, function in ACTIVATIONS.items():
        got = linear(x, weight, bias, name).double()
        torch.testing.assert_close(got, function(exact), rtol=2**-10, atol=2**-20 * (K + 1))
print("linear agrees with float64, for every activation")

# %%
# What does each activation cost, in our kernel and in PyTorch, where it is a kernel of its own? K
# is small here, so that the activation is a large part of the time.

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    x = torch.randn(8192, 256, device=DEVICE, dtype=torch.float16)
    weight = torch.randn(4096, 256, device=DEVICE, dtype=torch.float16)
    bias = torch.randn(4096, device=DEVICE, dtype=torch.float16)

    def microseconds(fn):
        """Return the median microseconds of one call of *fn*."""
        return triton.testing.do_bench(fn, 5, 30, return_mode="median") * 1e3

    table = []
    for name, function in ACTIVATIONS.items():
        one = microseconds(lambda name=name: linear(x, weight, bias, name))
        two = microseconds(lambda f=function: f(torch.nn.functional.linear(x, weight, bias)))
        table.append((name or "none", one, two))
    print("µs, lower is better")
    print(tabulate(table, ["activation", "one kernel", "PyTorch"], floatfmt=("", ".1f", ".1f")))
else:
    print("Without a GPU there is nothing to time.")

# %%
# Compare the rows, not the columns: our kernel is a plain loop that is not tuned. In it, ReLU is
# one more operation on values in registers. GELU takes more arithmetic for each element, which
# tensor cores cannot do. In PyTorch, every activation reads the whole result from memory and writes
# it back.
