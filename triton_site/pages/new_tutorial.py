"""Write the skeleton of a tutorial: ``make new T=11-my-kernel``."""

import re
import sys
from pathlib import Path

SKELETON = '''"""
{title}
{line}

What the reader builds, in a sentence, and one number: ``numbers.toml`` defines it, such as
``[{name}]``. Name the earlier lesson that the reader needs.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "further"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The kernel
# ----------
#
# What one program does.


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Double one block of *x*."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < n  # [BLOCK]
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)  # <-


# %%
# Calling it
# ----------
#
# Allocate, launch, return.


def double(x):
    """Return ``2 * x`` for a contiguous tensor."""
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


# %%
# It agrees with PyTorch on awkward shapes:

for shape in ((0,), (1,), (5, 123), (1823, 781)):
    x = torch.randn(shape, device=DEVICE)
    torch.testing.assert_close(double(x), 2 * x, atol=0, rtol=0)
print("double agrees with PyTorch, bit for bit")

# %%
# In a program
# ------------
#
# What a function needs that strangers call: which inputs it refuses, and which it copies.

# sphinx_gallery_fold = "the function with its checks"


def double(x):
    """Return ``2 * x``, contiguous.

    Raises:
        TypeError: *x* is neither fp16 nor fp32.
        ValueError: *x* requires a gradient.
    """
    if x.dtype not in (torch.float16, torch.float32):
        raise TypeError(f"double takes fp16 and fp32, not {{x.dtype}}")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("double has no gradient: call it under torch.no_grad()")
    x = x.contiguous()
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


# %%
# Its time, beside the call that a reader would make otherwise and beside a hardware limit:

# sphinx_gallery_fold = "times all providers, and draws the rates"
# sphinx_gallery_xray = "double_kernel: 2²⁸ elements, fp32"
from functools import partial

from shared.bench import draw_rates, rates, write_rows

if ON_GPU:
    rows = []
    for size in [2**power for power in range(12, 29, 4)]:
        x = torch.randn(size, device=DEVICE)
        calls = {{"triton": partial(double, x), "torch": partial(torch.mul, x, 2), "copy": x.clone}}
        rows += rates((size,), calls, "GB/s", 2 * x.nbytes)
    write_rows("{slug}-performance.csv", ["size"], rows)
    labels = {{"triton": "ours", "torch": "PyTorch", "copy": "copy (ceiling)"}}
    draw_rates(rows, labels, "{title}", "elements", share_of="copy", xscale="log")

# %%
# And the CPU's share of a call:

# sphinx_gallery_fold = "measures the CPU's share"
from shared.bench import write_calls

if ON_GPU:
    x = torch.randn(4096, device=DEVICE)
    write_calls({{"double": {{"triton": lambda: double(x), "torch": lambda: 2 * x}}}})
'''


def main(name: str) -> None:
    """Write the file *name*; an existing tutorial stays as it is."""
    if not re.fullmatch(r"\d\d[a-z]?(-[a-z0-9]+)+", name) or len(name) > 60:
        sys.exit(
            f"make new: {name[:60]!r} is not a name of up to 60 characters such as 11-my-kernel"
        )
    number, _, slug = name.partition("-")
    if taken := sorted(Path("tutorials").glob(f"{number}-*.py")):
        sys.exit(f"make new: {taken[0]} has the number {number}. Use another number.")
    title = slug.replace("-", " ").capitalize()
    path = Path("tutorials", f"{name}.py")
    path.write_text(SKELETON.format(title=title, line="=" * len(title), name=name, slug=slug))
    print(f"{path} is written. Record it on a machine with a GPU: make record T={number}")


if __name__ == "__main__":
    main(sys.argv[1])
