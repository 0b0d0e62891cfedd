"""Write the skeleton of a tutorial: ``make new T=11-my-kernel``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

TUTORIALS = Path("tutorials")
#: Names of figures and recordings are longer, and a file system takes 255 characters.
LONGEST_NAME = 60

SKELETON = '''"""
{title}
{underline}

What the reader will build, and what it brings.
"""

# sphinx_gallery_fold = "chooses the device"
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.measuring import measure, rates, write_rows
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%
import triton
import triton.language as tl

# %%
# Step 1: the simplest right kernel
# ---------------------------------
#
# What is new here, and why it is right.


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Double BLOCK elements."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, 2 * x, mask=mask)


def double(x):
    """Return ``2 * x`` for a floating-point tensor of any shape.

    Raises:
        ValueError: *x* is not on the device that this page runs on.
    """
    if x.device != DEVICE:
        raise ValueError(f"x must be on {{DEVICE}}, but is on {{x.device}}")
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


# %%
# Is it right?
# ------------
#
# Against PyTorch, on odd shapes.

for shape in ((1,), (5, 123), (0, 7), (1823, 78)):
    x = torch.randn(shape, device=DEVICE)
    torch.testing.assert_close(double(x), 2 * x, rtol=0, atol=0)
print("double agrees with PyTorch")

# %%
# The benchmark
# -------------
#
# Against what a user would call instead, and against a hardware limit.

# sphinx_gallery_fold = "times all providers in turns"
if ON_GPU:
    rows = []
    for size in (2**20, 2**24, 2**28):
        x = torch.randn(size, device=DEVICE)
        calls = {{"triton": partial(double, x), "torch": lambda x=x: 2 * x, "copy": x.clone}}
        for provider, ms in measure(calls).items():
            rows.append((size, provider, "GB/s", *rates(ms, 2 * x.nbytes)))
    write_rows("{slug}-performance.csv", ["size"], rows)
else:
    print("The benchmark needs a GPU.")

# %%
# Exercises
# ---------
#
# 1. **A change to make.** What to do, and what to expect.
'''


def main(arguments: list[str]) -> int:
    """Write the file and return the exit status; an existing tutorial stays as it is."""
    name = arguments[0] if arguments else ""
    if not re.fullmatch(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > LONGEST_NAME:
        print(f"make new: {name[:LONGEST_NAME]!r} is not a name for a tutorial. Use two digits")
        print(f"and words, up to {LONGEST_NAME} characters: T=11-my-kernel")
        return 2
    if taken := sorted(TUTORIALS.glob(f"{name[:2]}-*.py")):
        print(f"make new: {taken[0]} has the number {name[:2]}. Use another number.")
        return 2
    path = TUTORIALS / f"{name}.py"
    slug = name[3:]
    title = slug.replace("-", " ").capitalize()
    path.write_text(SKELETON.format(title=title, underline="=" * len(title), slug=slug))
    print(f"{path} is written. Record it on a machine with a GPU: make record T={name[:2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
