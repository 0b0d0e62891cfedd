"""
The backward product of experts
===============================

*Solution to the first exercise of* :doc:`../08-grouped-gemm`.

Training needs two more products. ``g`` is the gradient of the output, tokens × N. The gradient of
``x`` is ``g[rows of e] @ w[e].T``, which ``grouped_mm(g, w.mT, offsets)`` computes. The gradient of
``w[e]`` is ``x[rows of e].T @ g[rows of e]``, a sum over the rows of the expert. All results have
the same shape, *K* × *N*, but the length of the sum differs from expert to expert.
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
# A program computes one tile of one expert's gradient. All experts have the same number of tiles,
# so the expert is an axis of the grid, and ``offsets`` gives the start and the end of the sum. Rows
# beyond the end belong to the next expert, *and the loads must mask them*. In the forward product
# such a row changed only a row that was not stored; here it would be added to every element. Zeros
# in one factor are enough unless the other has an infinity there, so both are masked.
#
# An expert without tokens has an empty sum: the loop does not run, and the program stores zeros.


@triton.jit
def gradient_kernel(
    x_ptr, g_ptr, out_ptr, offsets_ptr, tokens, K, N,
    stride_xm, stride_xk, stride_gm, stride_gn,
    BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Compute one tile of the gradient of one expert's matrix."""
    expert = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    ks = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    ns = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    start = tl.maximum(tl.load(offsets_ptr + expert - 1, mask=expert > 0, other=0), 0)
    end = tl.minimum(tl.load(offsets_ptr + expert), tokens)
    acc = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    for first in range(start, end, BLOCK_T):
        ts = first + tl.arange(0, BLOCK_T).to(tl.int64)
        mine = ts < end
        x_ptrs = x_ptr + ks[:, None] * stride_xk + ts[None, :] * stride_xm  # transposed
        g_ptrs = g_ptr + ts[:, None] * stride_gm + ns[None, :] * stride_gn
        x = tl.load(x_ptrs, mask=(ks[:, None] < K) & mine[None, :], other=0.0)
        g = tl.load(g_ptrs, mask=mine[:, None] & (ns[None, :] < N), other=0.0)
        acc = tl.dot(x, g, acc, input_precision="ieee")
    out_ptrs = out_ptr + expert.to(tl.int64) * K * N + ks[:, None] * N + ns[None, :]
    inside = (ks[:, None] < K) & (ns[None, :] < N)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)


def grouped_gradient(x, g, offsets):
    """Return the gradients of all experts' matrices, experts × K × N.

    Args:
        x: tokens × K, sorted by expert, fp16 or bf16.
        g: The gradient of the output, tokens × N.
        offsets: int32, the row behind the last one of each expert.
    """
    for name, t in (("x", x), ("g", g)):
        if t.dim() != 2 or t.dtype != x.dtype or t.device != DEVICE:
            raise ValueError(f"{name} must be a matrix of {x.dtype} on {DEVICE}")
    if g.shape[0] != x.shape[0]:
        raise ValueError(f"g must have as many rows as x, {x.shape[0]}, but has {g.shape[0]}")
    if offsets.dtype != torch.int32 or offsets.dim() != 1 or offsets.device != DEVICE:
        raise ValueError(f"offsets must be a vector of int32 on {DEVICE}")
    (tokens, K), N, experts = x.shape, g.shape[1], offsets.shape[0]
    out = torch.empty(experts, K, N, dtype=x.dtype, device=x.device)
    block_k, block_n, block_t = (128, 128, 64) if ON_GPU else (32, 32, 32)
    grid = triton.cdiv(K, block_k) * triton.cdiv(N, block_n), experts
    gradient_kernel[grid](
        x, g, out, offsets, tokens, K, N, *x.stride(), *g.stride(),
        BLOCK_K=block_k, BLOCK_N=block_n, BLOCK_T=block_t, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out


# %%
# The reference is PyTorch's gradient of a loop of products in float64:

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
dtype = torch.bfloat16 if ON_GPU else torch.float16
for sizes, K, N in [([5, 0, 70, 1, 0, 33], 45, 77), ([0, 130], 64, 32), ([0, 0], 8, 8)]:
    ends = torch.tensor(sizes).cumsum(0)
    x = torch.randn(sum(sizes), K, device=DEVICE, dtype=dtype)
    g = torch.randn(sum(sizes), N, device=DEVICE, dtype=dtype)
    w = torch.zeros(len(sizes), K, N, device=DEVICE, dtype=torch.float64, requires_grad=True)
    pieces = x.double().split(sizes)
    out = torch.cat([piece @ w[e] for e, piece in enumerate(pieces)])
    (expected,) = torch.autograd.grad(out, w, g.double())
    got = grouped_gradient(x, g, ends.to(DEVICE, torch.int32))
    rounding, summing = torch.finfo(dtype).eps, 2**-20 * max(sizes)
    torch.testing.assert_close(got.double(), expected, rtol=rounding, atol=summing)
print("the gradients agree with float64, those of experts without tokens are zero")

# %%
# PyTorch computes this product by ``torch._grouped_mm`` of two matrices.

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    experts, tokens, K, N = 64, 65536, 2048, 1408
    x = torch.randn(tokens, K, device=DEVICE, dtype=torch.bfloat16)
    g = torch.randn(tokens, N, device=DEVICE, dtype=torch.bfloat16)
    offsets = torch.arange(1, experts + 1, device=DEVICE, dtype=torch.int32) * (tokens // experts)
    calls = {"this kernel": lambda: grouped_gradient(x, g, offsets)}
    if hasattr(torch, "_grouped_mm") and not torch.version.hip:
        calls["torch._grouped_mm"] = lambda: torch._grouped_mm(x.T, g, offs=offsets)
    table = []
    for name, call in calls.items():
        try:
            ms = triton.testing.do_bench(call, 5, 30, return_mode="median")
        except RuntimeError as error:
            print(f"{name} is not available here: {error}")
        else:
            table.append((name, 2 * tokens * K * N / ms / 1e9))
    print(tabulate(table, ["", "TFLOPS"], floatfmt=("", ".0f")))
else:
    print("Without a GPU there is nothing to time.")

# %%
# This kernel is simple. The tutorial's remedies would help here, too: descriptors, with masks for
# the last rows of an expert only, and persistent programs. A list of tiles that starts with the
# longest sums keeps an SM from getting one of them last.
