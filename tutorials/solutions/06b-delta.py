r"""
Delta
=====

*Solution to the first exercise of* :doc:`../06b-attention-backward`.

The backward pass of attention needs one number for each query, the dot product of a row of the
output and a row of its gradient: :math:`\delta_i = dO_i \cdot O_i`. Both are in fp16, so the rows
are converted before they are multiplied. A product of two numbers in fp16 has only 11 significant
bits, and above 65,504 it is infinite.
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
# A program takes ``BLOCK`` rows. *d* is a power of two, so only the rows need a mask.


@triton.jit
def delta_kernel(o_ptr, do_ptr, delta_ptr, rows, D: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the dot products of BLOCK rows of D numbers."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offsets = row[:, None] * D + tl.arange(0, D)[None, :]
    mask = row < rows
    o = tl.load(o_ptr + offsets, mask=mask[:, None], other=0.0).to(tl.float32)
    do = tl.load(do_ptr + offsets, mask=mask[:, None], other=0.0).to(tl.float32)
    tl.store(delta_ptr + row, tl.sum(o * do, axis=1), mask=mask)


def delta(o, do):
    """Return the dot product of each row of *o* and *do*, contiguous [..., d], in fp32."""
    if o.shape != do.shape or not (o.is_contiguous() and do.is_contiguous()):
        found = f"{tuple(o.shape)} and {tuple(do.shape)}, strides {o.stride()} and {do.stride()}"
        raise ValueError(f"o and do must be contiguous and of one shape, but have shapes {found}")
    out = torch.empty(o.shape[:-1], dtype=torch.float32, device=o.device)
    grid = (triton.cdiv(out.numel(), 32),)
    delta_kernel[grid](o, do, out, out.numel(), D=o.shape[-1], BLOCK=32)
    return out


# %%

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for shape in ((1, 1, 1, 16), (2, 3, 77, 64), (1, 2, 1000, 128)):
    o, do = 30 * torch.randn(2, *shape, device=DEVICE).half()
    expected = (o.double() * do.double()).sum(-1)
    size = o.double().norm(dim=-1) * do.double().norm(dim=-1)
    torch.testing.assert_close(delta(o, do).double() / size, expected / size, rtol=0, atol=1e-6)
print("delta agrees with float64")

# %%
# The kernel reads two tensors and writes one number for each row: ``2 * 2 * d + 4`` bytes a row.
# The first kernel of the lesson has to read *dO* anyway, so computing delta there saves a launch
# and half of these bytes. The other half, *O*, is read in either case.
