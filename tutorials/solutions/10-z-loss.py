r"""
A penalty on the log-sum-exp
============================

*Solution to the second exercise of* :doc:`../10-cross-entropy`.

The loss of a row does not change when 100 is added to all of its logits. So in long training in low
precision, logits can drift. **z-loss** adds a small multiple of the square of the log-sum-exp to
the loss, which pulls it towards zero:

.. math::

    \ell = z - x_t + \alpha z^2 \qquad \text{with} \quad z = \mathrm{lse}(x)

The derivative of :math:`z` with respect to :math:`x_j` is :math:`p_j`, so the gradient is

.. math::

    (1 + 2 \alpha z)\, p_j - [j = t]

The kernel has :math:`z` in a register already, so this costs one more multiplication.
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
def z_loss_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, share, V, ignore_index, alpha, BLOCK: tl.constexpr
):
    """Compute the loss of one row with its penalty, and its gradient; share is 1 / rows."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    m = tl.full([BLOCK], -3.0e38, tl.float32)
    s = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        d = x - m
        e = tl.exp(-tl.abs(d))
        m, s = tl.maximum(m, x), tl.where(d > 0, s * e + 1, s + e)
    largest = tl.max(m, axis=0)
    lse = largest + tl.log(tl.sum(s * tl.exp(m - largest), axis=0))
    loss = 0.0
    if target != ignore_index:
        loss = lse - tl.load(x_ptr + row * V + target).to(tl.float32) + alpha * lse * lse
    else:
        share = 0.0
    tl.store(loss_ptr + row, loss)
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + cols, mask=cols < V, other=0.0).to(tl.float32)
        p = (1 + 2 * alpha * lse) * tl.exp(x - lse)
        gradient = share * tl.where(cols == target, p - 1, p)
        tl.store(grad_ptr + row * V + cols, gradient, mask=cols < V)


def cross_entropy_with_z_loss(logits, targets, alpha=1e-4, ignore_index=-100):
    """Return the mean loss with its penalty, and its gradient, for contiguous *logits*."""
    if not logits.is_contiguous() or logits.device != DEVICE:
        raise ValueError(
            f"logits must be contiguous and on {DEVICE}, but have strides {logits.stride()} and "
            f"are on {logits.device}"
        )
    M, V = logits.shape
    n = int((targets != ignore_index).sum())
    losses = torch.empty(M, dtype=torch.float32, device=logits.device)
    gradient = torch.empty_like(logits)
    share = 1 / n if n else 0.0
    more = share, V, ignore_index, alpha
    z_loss_kernel[(M,)](logits, targets, losses, gradient, *more, BLOCK=4096, num_warps=8)
    return losses.sum() / n, gradient


def reference(logits, targets, alpha):
    """Return the same from PyTorch operations; rows that do not count have no penalty."""
    z = torch.logsumexp(logits, dim=1)[targets != -100]
    return functional.cross_entropy(logits, targets) + alpha * (z * z).mean()


# %%

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for M, V in ((1, 1), (5, 781), (3, 10001)):
    logits = 20 + 3 * torch.randn(M, V, device=DEVICE)
    targets = torch.randint(0, V, (M,), device=DEVICE)
    targets[1::3] = -100
    for alpha in (0.0, 1e-4, 0.1):
        exact = logits.double().requires_grad_()
        expected = reference(exact, targets, alpha)
        (wanted,) = torch.autograd.grad(expected, exact)
        loss, gradient = cross_entropy_with_z_loss(logits, targets, alpha)
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=1e-5)
print("cross_entropy_with_z_loss agrees with float64")

# %%
# Here are rows that have drifted. A few steps of gradient descent bring their log-sum-exp closer to
# zero:

# sphinx_gallery_fold = "shows what it is for"
logits = 50 + torch.randn(4, 500, device=DEVICE)
targets = torch.zeros(4, dtype=torch.int64, device=DEVICE)
before = torch.logsumexp(logits, dim=1).mean()
for _ in range(20):
    _, gradient = cross_entropy_with_z_loss(logits, targets, alpha=1.0)
    logits -= 0.5 * gradient
after = torch.logsumexp(logits, dim=1).mean()
print(f"mean log-sum-exp: {before:.0f} before, {after:.0f} after 20 steps")
assert after.abs() < before.abs()
