"""
Vectors with a stride
=====================

*Solution to the second exercise of* :doc:`../01-vector-add`.

``x[::2]`` is a view. It copies no element; its next element lies two places further on. This
distance in elements is the **stride**. A kernel that knows the stride can read the view directly.
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
# The kernel multiplies the offsets of each input by its stride. The result is a new contiguous
# vector and needs no stride.


@triton.jit
def add_strided_kernel(x_ptr, x_stride, y_ptr, y_stride, out_ptr, n, BLOCK: tl.constexpr):
    """Add one block of two vectors with strides."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets * x_stride, mask=mask)
    y = tl.load(y_ptr + offsets * y_stride, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_strided(x, y):
    """Return ``x + y`` for vectors *x* and *y* of one length and dtype, with any strides."""
    for name, t in (("x", x), ("y", y)):
        if t.ndim != 1 or t.shape != x.shape or t.dtype != x.dtype or t.device != DEVICE:
            raise ValueError(
                f"{name} must be a vector on {DEVICE}, of the length and dtype of x, but has "
                f"shape {tuple(t.shape)}, {t.dtype}, and is on {t.device}"
            )
    n = x.numel()
    out = torch.empty(n, dtype=x.dtype, device=x.device)
    add_strided_kernel[(triton.cdiv(n, 1024),)](x, x.stride(0), y, y.stride(0), out, n, BLOCK=1024)
    return out


# %%
# The check takes columns of a matrix, a stride of 0, which repeats one element, and strides of 2
# and 1:

# sphinx_gallery_fold = "checks it against PyTorch"
torch.manual_seed(0)
table = torch.rand(781, 7, device=DEVICE)
one = torch.rand(1, device=DEVICE)
for x, y in ((table[:, 3], table[:, 0]), (one.expand(781), table[:, 6])):
    torch.testing.assert_close(add_strided(x, y), x + y, rtol=0, atol=0)
x = torch.rand(2001, device=DEVICE)
torch.testing.assert_close(add_strided(x[::2], x[:1001]), x[::2] + x[:1001], rtol=0, atol=0)
print("add_strided agrees with PyTorch, bit for bit")

# %%
# What does it cost? The GPU fetches memory in **sectors** of 32 bytes or more. With a stride of 2,
# half of each sector is wasted; with a stride of 8, fp32 uses 4 of 32 bytes. If a larger stride
# costs still more, the GPU fetches larger pieces. *Useful* counts the elements that are added, and
# the result:

if ON_GPU:
    n = 2**24
    for stride in (1, 2, 4, 8, 16):
        x, y = torch.rand(2, n * stride, device=DEVICE)[:, ::stride]
        ms = triton.testing.do_bench(partial(add_strided, x, y), 5, 20, return_mode="median")
        print(f"stride {stride:2d}: {12 * n / ms / 1e6:5.0f} GB/s useful")
else:
    print("Without a GPU there is nothing to time.")
