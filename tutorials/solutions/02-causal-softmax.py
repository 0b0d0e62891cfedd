"""
Softmax with a causal mask
==========================

*Solution to the second exercise of* :doc:`../02-fused-softmax`.

Row *i* of the attention scores sees columns 0 … *i*; all columns to the right count as minus
infinity. PyTorch takes three operations: a multiplication, a masked fill and a softmax. Our kernel
has a mask already, so a causal mask costs almost nothing. It even saves time: a masked load does
not access memory, so half of a square matrix is never read.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# Two things change: the mask of the load gets ``cols <= row``, and the scores are scaled. The store
# keeps its mask, because the right half of the output must be zero.


@triton.jit
def causal_softmax_kernel(x_ptr, out_ptr, scale, N, BLOCK: tl.constexpr):
    """Compute the softmax of the visible part of one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    visible = (cols < N) & (cols <= row)
    x = tl.load(x_ptr + row * N + cols, mask=visible, other=-float("inf")) * scale
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=cols < N)


def causal_softmax(x, scale):
    """Return the causal softmax of ``scale * x``, a contiguous fp32 matrix, for *scale* > 0."""
    if x.ndim != 2 or not x.is_contiguous() or x.dtype != torch.float32 or x.device != DEVICE:
        raise ValueError(
            f"x must be a contiguous fp32 matrix on {DEVICE}, but has shape {tuple(x.shape)}, "
            f"strides {x.stride()}, {x.dtype}, and is on {x.device}"
        )
    M, N = x.shape
    if not 1 <= N <= 32768:  # a row has to fit into registers
        raise ValueError(f"x must have 1 to 32768 columns, but has {N}")
    if not scale > 0:
        raise ValueError(f"scale must be greater than 0, but is {scale}")
    out = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    causal_softmax_kernel[(M,)](
        x, out, scale, N, BLOCK=block, num_warps=max(1, min(16, block // 512))
    )
    return out


def reference(x, scale):
    """Return the same from PyTorch operations."""
    hidden = torch.ones(x.shape, dtype=torch.bool, device=x.device).triu(1)
    return torch.softmax((scale * x).masked_fill(hidden, -torch.inf), dim=1)


# %%

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for shape in ((1, 1), (5, 3), (123, 123), (20, 781)):
    x = torch.randn(shape, device=DEVICE)
    expected = reference(x.double(), 0.125)
    torch.testing.assert_close(causal_softmax(x, 0.125).double(), expected, rtol=1e-5, atol=0)
print("causal_softmax agrees with float64")

# %%
# For a square matrix the kernel reads half of the elements and writes all of them: 1½ transfers per
# element. A plain softmax has 2. The three operations have 6, and read the mask as well.

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    x = torch.randn(4096, 4096, device=DEVICE)
    hidden = torch.ones(x.shape, dtype=torch.bool, device=x.device).triu(1)
    calls = {
        "causal_softmax": partial(causal_softmax, x, 0.125),
        "torch.softmax alone": partial(torch.softmax, x, dim=1),
        "scale, mask and softmax": lambda: torch.softmax(
            (0.125 * x).masked_fill(hidden, -torch.inf), dim=1
        ),
    }
    for name, call in calls.items():
        ms = triton.testing.do_bench(call, 5, 20, return_mode="median")
        print(f"{name:24s} {ms:.3f} ms")
else:
    print("Without a GPU there is nothing to time.")
