r"""
Log-softmax
===========

*Solution to the first exercise of* :doc:`../02-fused-softmax`.

Loss functions use the logarithm of softmax, which is simpler than softmax itself:

.. math::

    \log y_i = (x_i - m) - \log \sum_j e^{x_j - m}

Only the sum needs exponentials; the output takes subtractions. ``softmax(x).log()`` would cost a
second kernel, and would turn every probability that underflows to 0 into minus infinity.
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


@triton.jit
def log_softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """Compute the log-softmax of one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=-float("inf"))
    x -= tl.max(x, axis=0)
    out = x - tl.log(tl.sum(tl.exp(x), axis=0))
    tl.store(out_ptr + row * N + cols, out, mask=mask)


def log_softmax(x):
    """Return the logarithm of the softmax of each row of *x*, a contiguous fp32 matrix."""
    if x.ndim != 2 or not x.is_contiguous() or x.dtype != torch.float32 or x.device != DEVICE:
        raise ValueError(
            f"x must be a contiguous fp32 matrix on {DEVICE}, but has shape {tuple(x.shape)}, "
            f"strides {x.stride()}, {x.dtype}, and is on {x.device}"
        )
    M, N = x.shape
    if not 1 <= N <= 32768:  # a row has to fit into registers
        raise ValueError(f"x must have 1 to 32768 columns, but has {N}")
    out = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    log_softmax_kernel[(M,)](x, out, N, BLOCK=block, num_warps=max(1, min(16, block // 512)))
    return out


# %%
# In the last row one number is larger than the others by about 200. Its log-softmax is finite; the
# logarithm of its softmax is not:

torch.manual_seed(0)
for N in (1, 781, 4097):
    x = torch.randn(5, N, device=DEVICE)
    x[-1, 0] += 200.0
    expected = torch.log_softmax(x.double(), dim=1)
    torch.testing.assert_close(log_softmax(x).double(), expected, rtol=1e-6, atol=1e-5)
print("log_softmax agrees with float64")
print("smallest of log_softmax(x):", log_softmax(x).min().item())
print("smallest of softmax(x).log():", torch.softmax(x, dim=1).log().min().item())

# %%

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    x = torch.randn(4096, 4096, device=DEVICE)
    calls = {
        "log_softmax": partial(log_softmax, x),
        "torch.log_softmax": partial(torch.log_softmax, x, dim=1),
        "torch.softmax, then log": lambda: torch.softmax(x, dim=1).log(),
    }
    for name, call in calls.items():
        ms = triton.testing.do_bench(call, 5, 20, return_mode="median")
        print(f"{name:24s} {ms:.3f} ms")
else:
    print("Without a GPU there is nothing to time.")
