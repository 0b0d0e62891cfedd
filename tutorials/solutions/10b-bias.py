r"""
A bias
======

*Solution to the second exercise of* :doc:`../10b-linear-cross-entropy`.

The kernel adds the bias when it loads the logits, so nothing else has to read them. The gradient of
the bias is the sum of *G* over the tokens. A second kernel adds up the columns of a piece.
"""

# %%

# sphinx_gallery_fold = "imports and device"
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
def biased_kernel(x_ptr, bias_ptr, target_ptr, loss_ptr, share, V, BLOCK: tl.constexpr):
    """Compute the loss of one row plus the bias, and overwrite the row with its gradient."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr += row * V
    counts = target != -100
    hit = tl.load(x_ptr + target, mask=counts, other=0.0).to(tl.float32)
    hit += tl.load(bias_ptr + target, mask=counts, other=0.0).to(tl.float32)
    m = -3.0e38
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        x += tl.load(bias_ptr + cols, mask=cols < V, other=0.0).to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    counts = counts.to(tl.float32)
    tl.store(loss_ptr + row, counts * (m - hit + tl.log(s)))
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < V, other=0.0).to(tl.float32)
        x += tl.load(bias_ptr + cols, mask=cols < V, other=0.0).to(tl.float32)
        p = tl.exp(x - m) / s
        gradient = tl.where(cols == target, p - 1, p) * counts * share
        tl.store(x_ptr + cols, gradient, mask=cols < V)


@triton.jit
def add_rows_kernel(g_ptr, sum_ptr, M, V, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Add the sums of M rows to V sums in fp32; one program has BLOCK columns."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(sum_ptr + cols, mask=cols < V, other=0.0)
    for start in range(0, M, ROWS):
        rows = start + tl.arange(0, ROWS).to(tl.int64)
        mask = (rows[:, None] < M) & (cols[None, :] < V)
        g = tl.load(g_ptr + rows[:, None] * V + cols[None, :], mask=mask, other=0.0)
        total += tl.sum(g.to(tl.float32), axis=0)
    tl.store(sum_ptr + cols, total, mask=cols < V)


def with_bias(x, weight, bias, targets, piece):
    """Return the mean loss of ``x @ weight.T + bias``, and the gradients of x, weight and bias.

    Targets of -100 do not count.
    """
    V, share = len(weight), 1 / int((targets != -100).sum())
    losses = torch.empty(len(x), device=x.device)
    x_gradient, weight_gradient = torch.empty_like(x), torch.zeros_like(weight)
    bias_sum = torch.zeros(V, device=x.device)  # in fp32
    for start in range(0, len(x), piece):
        rows = slice(start, start + piece)
        logits = x[rows] @ weight.T
        M = len(logits)
        biased_kernel[(M,)](logits, bias, targets[rows], losses[rows], share, V, BLOCK=4096)
        add_rows_kernel[(triton.cdiv(V, 128),)](logits, bias_sum, M, V, ROWS=32, BLOCK=128)
        x_gradient[rows] = logits @ weight
        weight_gradient += logits.T @ x[rows]
    return losses.sum() * share, x_gradient, weight_gradient, bias_sum.to(bias.dtype)


# %%

# sphinx_gallery_fold = "compares loss and gradients with float64"
torch.manual_seed(0)
for dtype, limit in [(torch.float32, 1e-5)] + [(torch.bfloat16, 2**-6)] * ON_GPU:
    for M, K, V, piece in ((7, 5, 781, 3), (64, 32, 1000, 64), (9, 8, 4097, 4)):
        x, weight = torch.randn(M, K, device=DEVICE), torch.randn(V, K, device=DEVICE)
        ours = [t.to(dtype) for t in (x, weight, torch.randn(V, device=DEVICE))]
        targets = torch.randint(0, V, (M,), device=DEVICE)
        targets[2::5] = -100
        exact = [t.double().requires_grad_() for t in ours]
        loss = functional.cross_entropy(functional.linear(*exact), targets)
        wanted = [loss.detach(), *torch.autograd.grad(loss, exact)]
        for a, b in zip(with_bias(*ours, targets, piece), wanted, strict=True):
            assert (a.double() - b).norm() <= limit * b.norm()
print("with_bias agrees with float64")

# %%
# The columns of a piece are read once more from memory. The kernel could instead add each row to
# the sums with atomic additions. These would hide the read, but their order, and so the last bits
# of the result, would change from run to run.
