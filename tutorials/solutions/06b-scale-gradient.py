r"""
The gradient of the scale
=========================

*Solution to the second exercise of* :doc:`../06b-attention-backward`.

The scores are :math:`S = \mathrm{scale} \cdot Q K^T`, so the gradient of the scale is the sum of
:math:`dS \circ Q K^T` over all queries and keys. That looks like N × N numbers again. But summed
over the keys of one query it is :math:`Q_i \cdot (dS\, K)_i`, and the backward pass has that
product already: :math:`dQ = \mathrm{scale} \cdot dS\, K`. So

.. math:: d\,\mathrm{scale} = \frac{1}{\mathrm{scale}} \sum_i Q_i \cdot dQ_i
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# A sum over millions of numbers takes many programs. If they added to one number by atomic
# additions, its last bits would depend on their order. So each program stores its partial sum, and
# one program adds the partial sums in a second launch. The result has the same bits every time.


@triton.jit
def partial_kernel(q_ptr, dq_ptr, sums_ptr, size, BLOCK: tl.constexpr):
    """Store the sum of the products of BLOCK numbers."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(q_ptr + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    dq = tl.load(dq_ptr + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(q * dq, axis=0))


@triton.jit
def sum_kernel(sums_ptr, out_ptr, count, scale, BLOCK: tl.constexpr):
    """Store the sum of *count* numbers, divided by *scale*."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(sums_ptr + offsets, mask=offsets < count, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) / scale)


def scale_gradient(q, dq, scale):
    """Return the gradient of *scale*, one number in fp32, from contiguous *q* and its gradient."""
    if q.shape != dq.shape or not (q.is_contiguous() and dq.is_contiguous()):
        found = f"{tuple(q.shape)} and {tuple(dq.shape)}, strides {q.stride()} and {dq.stride()}"
        raise ValueError(f"q and dq must be contiguous and of one shape, but have shapes {found}")
    programs = triton.cdiv(q.numel(), 4096)
    sums = torch.empty(programs, device=q.device)
    out = torch.empty((), device=q.device)
    partial_kernel[(programs,)](q, dq, sums, q.numel(), BLOCK=4096)
    sum_kernel[(1,)](sums, out, programs, scale, BLOCK=1024)
    return out


# %%

# sphinx_gallery_fold = "checks it against autograd in float64, and computes it ten times"
torch.manual_seed(0)
for n, d in ((5, 16), (70, 64), (300, 128)):
    q, k, v, do = torch.randn(4, 2, n, d, device=DEVICE, dtype=torch.float64)
    q = q.float().double().requires_grad_()
    scale = torch.tensor(d**-0.5, dtype=torch.float64, device=DEVICE, requires_grad=True)
    o = torch.softmax(scale * q @ k.mT, -1) @ v
    dq, expected = torch.autograd.grad(o, (q, scale), do)
    arguments = q.detach().float(), dq.float(), scale.item()
    found = scale_gradient(*arguments)
    size = (q.norm() * dq.norm() / scale).item()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6 * size)
    assert all(torch.equal(found, scale_gradient(*arguments)) for _ in range(10))
print("scale_gradient agrees with autograd, with the same bits ten times")

# %%
# If the scale is learned for each head, the same sum is taken for each head. Nothing else changes:
# the backward pass of attention needs no third kernel with N × N work.
