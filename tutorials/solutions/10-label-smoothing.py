r"""
Label smoothing
===============

*Solution to the first exercise of* :doc:`../10-cross-entropy`.

With label smoothing the target gets the probability :math:`1 - \varepsilon`, and
:math:`\varepsilon` is spread over all words, the target among them. The loss becomes

.. math::

    \ell = \mathrm{lse}(x) - (1 - \varepsilon)\, x_t - \frac{\varepsilon}{V} \sum_j x_j

and its gradient

.. math::

    p_j - (1 - \varepsilon)\,[j = t] - \frac{\varepsilon}{V}

So the first loop needs one more sum, of the logits, and the second loop one more subtraction. The
kernel moves the same number of bytes.
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

# sphinx_gallery_fold = "launches it, and adds up the losses"
# sphinx_gallery_show = "smoothed_kernel"


@triton.jit
def smoothed_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, share, V, ignore_index, smoothing, BLOCK: tl.constexpr
):
    """Compute the smoothed loss of one row and its gradient; share is 1 / rows that count."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    m = tl.full([BLOCK], -3.0e38, tl.float32)
    s = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        d = x - m
        e = tl.exp(-tl.abs(d))
        m, s = tl.maximum(m, x), tl.where(d > 0, s * e + 1, s + e)
        total += tl.where(cols < V, x, 0.0)
    largest = tl.max(m, axis=0)
    lse = largest + tl.log(tl.sum(s * tl.exp(m - largest), axis=0))
    everywhere = smoothing / V
    loss = 0.0
    if target != ignore_index:
        hit = tl.load(x_ptr + row * V + target).to(tl.float32)
        loss = lse - (1 - smoothing) * hit - everywhere * tl.sum(total, axis=0)
    else:
        share = 0.0
    tl.store(loss_ptr + row, loss)
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + cols, mask=cols < V, other=0.0).to(tl.float32)
        p = tl.exp(x - lse) - everywhere
        gradient = share * tl.where(cols == target, p - (1 - smoothing), p)
        tl.store(grad_ptr + row * V + cols, gradient, mask=cols < V)


def smoothed_cross_entropy(logits, targets, smoothing, ignore_index=-100):
    """Return the mean loss and its gradient, for contiguous *logits* of at least one row.

    (A step of training would count the rows on the GPU, as the tutorial does.)
    """
    M, V = logits.shape
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing must be from 0 to 1, but is {smoothing}")
    if not logits.is_contiguous() or logits.device != DEVICE:
        raise ValueError(
            f"logits must be contiguous and on {DEVICE}, but have strides {logits.stride()} and "
            f"are on {logits.device}"
        )
    n = int((targets != ignore_index).sum())
    losses = torch.empty(M, dtype=torch.float32, device=logits.device)
    gradient = torch.empty_like(logits)
    share = 1 / n if n else 0.0
    more = share, V, ignore_index, smoothing
    smoothed_kernel[(M,)](logits, targets, losses, gradient, *more, BLOCK=4096, num_warps=8)
    return losses.sum() / n, gradient


# %%
# PyTorch has an argument ``label_smoothing``. With 0 the loss is the plain one; with 1 it does not
# depend on the target.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for M, V in ((1, 1), (5, 781), (3, 10001)):
    logits = 3 * torch.randn(M, V, device=DEVICE)
    targets = torch.randint(0, V, (M,), device=DEVICE)
    targets[1::3] = -100
    for smoothing in (0.0, 0.1, 1.0):
        exact = logits.double().requires_grad_()
        expected = functional.cross_entropy(exact, targets, label_smoothing=smoothing)
        (wanted,) = torch.autograd.grad(expected, exact)
        loss, gradient = smoothed_cross_entropy(logits, targets, smoothing)
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=2e-6)
        torch.testing.assert_close(gradient.double(), wanted, rtol=1e-5, atol=1e-6)
print("smoothed_cross_entropy agrees with float64")
