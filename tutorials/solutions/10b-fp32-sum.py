r"""
A sum in fp32
=============

*Solution to the first exercise of* :doc:`../10b-linear-cross-entropy`.

Each piece adds a product to the gradient of the weight. In bf16 each of these sums is rounded to
eight bits. Here the sum stays in fp32, and is rounded once, behind the last piece.
"""

# %%

# sphinx_gallery_fold = "imports and device"
import os

import torch
from tabulate import tabulate
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


# %%


@triton.jit
def overwriting_kernel(x_ptr, target_ptr, loss_ptr, share, V, BLOCK: tl.constexpr):
    """Compute the loss of one row, and overwrite the row with its gradient."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr += row * V
    hit = tl.load(x_ptr + target, mask=target != -100, other=0.0).to(tl.float32)
    m = -3.0e38
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    counts = (target != -100).to(tl.float32)
    tl.store(loss_ptr + row, counts * (m - hit + tl.log(s)))
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < V, other=0.0).to(tl.float32)
        p = tl.exp(x - m) / s
        gradient = tl.where(cols == target, p - 1, p) * counts * share
        tl.store(x_ptr + cols, gradient, mask=cols < V)


def gradients_in_fp32(x, weight, targets, piece):
    """Return the mean loss of ``x @ weight.T``, and the gradients of *x* and *weight*.

    The gradient of *weight* is summed in fp32. Targets of -100 do not count.
    """
    share = 1 / int((targets != -100).sum())
    losses = torch.empty(len(x), device=x.device)
    x_gradient = torch.empty_like(x)
    total = torch.zeros(weight.shape, device=x.device)  # 4 bytes for each weight
    for start in range(0, len(x), piece):
        rows = slice(start, start + piece)
        logits = x[rows] @ weight.T
        grid, V = (len(logits),), len(weight)
        overwriting_kernel[grid](logits, targets[rows], losses[rows], share, V, BLOCK=4096)
        x_gradient[rows] = logits @ weight
        total += (logits.T @ x[rows]).float()
    return losses.sum() * share, x_gradient, total.to(weight.dtype)


# %%
# The product of one piece is still rounded to bf16 before it is added, but these errors have random
# signs, and none of them is as large as a rounding of the whole sum. The table shows the errors of
# the gradient of the weight, against float64.


# sphinx_gallery_fold = "compares with float64, and prints the errors"
def errors(x, weight, targets, piece):
    """Return the relative errors of the loss and of both gradients."""
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    loss = functional.cross_entropy(exact[0] @ exact[1].T, targets)
    wanted = [loss.detach(), *torch.autograd.grad(loss, exact)]
    found = gradients_in_fp32(x, weight, targets, piece)
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True)]


torch.manual_seed(0)
dtype, limit = (torch.bfloat16, 2**-6) if ON_GPU else (torch.float32, 1e-5)
M, K, V = (8192, 512, 8192) if ON_GPU else (60, 24, 333)
x = torch.randn(M, K, device=DEVICE).to(dtype)
weight = (torch.randn(V, K, device=DEVICE) / K**0.5).to(dtype)
targets = torch.randint(0, V, (M,), device=DEVICE)
targets[2::5] = -100
table = []
for pieces in (1, 4, 64) if ON_GPU else (1, 4):
    found = errors(x, weight, targets, triton.cdiv(M, pieces))
    torch.testing.assert_close(found, [0.0] * 3, rtol=0, atol=limit)
    table.append((pieces, found[2]))
print(tabulate(table, ["pieces", "error of the weight's gradient"], floatfmt=".1e"))

# %%
# The sum costs four more bytes for each weight, twice the memory of the gradient itself.
