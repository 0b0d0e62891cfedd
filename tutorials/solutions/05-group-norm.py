r"""
Group norm
==========

*Solution to the second exercise of* :doc:`../05-layer-norm`.

Group norm is for images: tensors of batch, channels, height and width. The channels of an image
form groups, and each group has a mean and a deviation, over all its channels **and** pixels. The
pixels of a channel are contiguous in memory, and so are the channels of a group. So a group is one
long contiguous row, and this is layer norm of rows that may be too long for the registers. It
differs in two points:

* Weight and bias belong to a channel: element *j* of a row takes those of channel :math:`\lfloor j
  / \text{pixels} \rfloor` of its group.
* Each group has other channels, so the weights depend on the row.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os
from functools import partial

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%


@triton.jit
def group_norm_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, groups, channels, pixels, eps, BLOCK: tl.constexpr
):
    """Normalize one group of *channels* channels of *pixels* elements, block by block."""
    row = tl.program_id(0).to(tl.int64)  # image and group
    N = channels * pixels
    x_ptr += row * N
    y_ptr += row * N
    first = (tl.program_id(0) % groups) * channels  # channel of the group
    mean = 0.0
    squares = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(N - start, BLOCK)
        block_mean = tl.sum(x, axis=0) / count
        centered = tl.where(mask, x - block_mean, 0.0)
        delta = block_mean - mean
        share = count / (start + count)
        mean += delta * share
        squares += tl.sum(centered * centered, axis=0) + delta * delta * share * start
    rstd = tl.rsqrt(squares / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        channel = first + cols // pixels
        w = tl.load(w_ptr + channel, mask=mask).to(tl.float32)
        b = tl.load(b_ptr + channel, mask=mask).to(tl.float32)
        tl.store(y_ptr + cols, (x - mean) * rstd * w + b, mask=mask)


# %%
# The gradients of weight and bias are sums over the images *and* the pixels of a channel. After a
# kernel like layer norm's ``backward_kernel``, the partial sums of all pixels of a channel must be
# added up. The gradient of *x* has layer norm's formula.

# sphinx_gallery_fold = "checks the arguments"


def check_arguments(x, groups, weight, bias):
    """Raise ValueError where ``group_norm`` cannot take its arguments."""
    if x.ndim < 2 or not x.is_contiguous() or x.numel() == 0:
        raise ValueError(
            f"x must be contiguous, of batch, channels and pixels, and not empty, but has shape "
            f"{tuple(x.shape)} and strides {x.stride()}"
        )
    if not 1 <= groups <= x.shape[1] or x.shape[1] % groups:
        raise ValueError(f"groups must divide the {x.shape[1]} channels of x, but is {groups}")
    for name, t in (("x", x), ("weight", weight), ("bias", bias)):
        if t.dtype not in (torch.float16, torch.bfloat16, torch.float32) or t.device != DEVICE:
            raise ValueError(
                f"{name} must be of 16 or 32 bits and on {DEVICE}, but is {t.dtype}, on {t.device}"
            )
        if name != "x" and (t.shape != x.shape[1:2] or not t.is_contiguous()):
            raise ValueError(f"{name} must be contiguous, {x.shape[1]} numbers, one a channel")


# %%


def group_norm(x, groups, weight, bias, eps=1e-5):
    """Return what ``functional.group_norm`` returns; no gradients.

    Args:
        x: Contiguous tensor ``[batch, channels, …]`` in fp16, bf16 or fp32.
        groups: How many groups the channels are cut into.
        weight: One number a channel.
        bias: The same.
        eps: What is added to the variance.

    Raises:
        ValueError: Shapes, strides, dtypes or devices do not fit.
    """
    check_arguments(x, groups, weight, bias)
    x, weight, bias = (t.resolve_neg() for t in (x, weight, bias))
    images, channels = x.shape[:2]
    pixels = x[0, 0].numel()
    y = torch.empty_like(x)
    group_norm_kernel[(images * groups,)](
        x, weight, bias, y, groups, channels // groups, pixels, eps, BLOCK=4096, num_warps=8
    )
    return y


# %%
# The check compares with PyTorch in float64, with groups of one channel and of all channels, and
# with images far from zero:

torch.manual_seed(0)
for shape, groups in (((2, 6, 5, 7), 3), ((1, 4, 70, 70), 1), ((3, 8, 33), 8), ((2, 6), 2)):
    x = 3 * torch.randn(shape, device=DEVICE) + 100
    weight, bias = torch.randn(2, shape[1], device=DEVICE)
    expected = functional.group_norm(x.double(), groups, weight.double(), bias.double())
    # fp32 rounds a mean of 100 by some 1e-5, and both numbers of a group may lie close together.
    torch.testing.assert_close(
        group_norm(x, groups, weight, bias).double(), expected, rtol=1e-3, atol=1e-3
    )
print("group_norm agrees with float64")

# %%

# sphinx_gallery_fold = "times it beside PyTorch and a copy"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.bench import gpu_times, spread

if ON_GPU:
    x = torch.randn(64, 256, 56, 56, device=DEVICE, dtype=torch.float16)
    weight, bias = torch.randn(2, 256, device=DEVICE, dtype=torch.float16)
    times = gpu_times({
        "ours": partial(group_norm, x, 32, weight, bias),
        "torch": partial(functional.group_norm, x, 32, weight, bias),
        "copy": x.clone,
    })  # fmt: skip
    for name, ms in times.items():
        print(f"{name:6s} {2 * x.nbytes / spread(ms)[0] / 1e6:,.0f} GB/s of two transfers")
else:
    print("Without a GPU there is nothing to time.")
