"""
A fixed number of programs
==========================

*Solution to the third exercise of* :doc:`../01-vector-add`.

With one program for each block, a long vector needs many short programs. A **grid-stride loop**
needs a fixed number of programs, about as many as the GPU can hold at a time. Each program works on
every ``tl.num_programs(0)``-th block. Does that pay?
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
# The loop goes around the body of the tutorial's kernel.


@triton.jit
def add_loop_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add every ``tl.num_programs(0)``-th block."""
    blocks = tl.cdiv(n, BLOCK)
    for block in tl.range(tl.program_id(0).to(tl.int64), blocks, tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask)
        y = tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, x + y, mask=mask)


def add_loop(x, y, programs):
    """Return ``x + y`` for contiguous *x* and *y* of one shape, using *programs* programs."""
    for name, t in (("x", x), ("y", y)):
        if t.shape != x.shape or t.dtype != x.dtype or t.device != DEVICE or not t.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous, on {DEVICE}, and of the shape and dtype of x, but has "
                f"shape {tuple(t.shape)}, strides {t.stride()}, {t.dtype}, and is on {t.device}"
            )
    if programs < 1:
        raise ValueError(f"programs must be at least 1, but is {programs}")
    out = torch.empty_like(x)
    add_loop_kernel[(programs,)](x, y, out, x.numel(), BLOCK=1024)
    return out


# %%
# The check takes fewer blocks than programs, and more:

# sphinx_gallery_fold = "checks it against PyTorch"
torch.manual_seed(0)
for n in (1, 1025, 10_000):
    for programs in (1, 3, 16):
        x, y = torch.rand(2, n, device=DEVICE)
        torch.testing.assert_close(add_loop(x, y, programs), x + y, rtol=0, atol=0)
print("add_loop agrees with PyTorch, bit for bit")

# %%
# With too few programs, too few loads are in flight to use the whole bandwidth. With one program
# for each block, every program makes one iteration, as in the tutorial.

if ON_GPU:
    n = 2**26
    x, y = torch.rand(2, n, device=DEVICE)
    for programs in (64, 256, 1024, 4096, n // 1024):
        call = partial(add_loop, x, y, programs)
        ms = triton.testing.do_bench(call, 5, 20, return_mode="median")
        print(f"{programs:7,} programs: {12 * n / ms / 1e6:5.0f} GB/s")
else:
    print("Without a GPU there is nothing to time.")

# %%
# The hardware starts a new program in a free place at once, so this simple kernel gains little or
# nothing from the loop. The loop pays where all blocks of a program share something that it sets
# up: a table, a weight, a partial sum.
