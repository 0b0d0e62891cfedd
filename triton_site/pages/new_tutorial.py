"""Write the skeleton of a tutorial: ``make new T=11-my-kernel``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

TUTORIALS = Path("tutorials")

SKELETON = '''"""
{title}
{underline}

What the reader will build, and why it is worth building.

You will build ``double(x)``, which gives what ``2 * x`` gives, and learn

* one thing,
* and another.

.. ladder::
"""

# %%
# Without a GPU, the first cell chooses the interpreter. The timing loop and the rounding are those
# of all tutorials.

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.measuring import measure, rates, write_rows
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%
import triton
import triton.language as tl

# %%
# What PyTorch does, and what it costs
# ------------------------------------
#
# The reference, and the bytes or the operations that it cannot do without.


def double_reference(x):
    """Return 2 * x."""
    return 2 * x  # reads n elements, writes n


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


# %%
# The launcher
# ------------

# sphinx_gallery_fold = "checks the arguments"


def check_arguments(x):
    """Raise TypeError or ValueError where ``double`` cannot take *x*."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {{type(x).__name__}}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {{DEVICE}}, but is on {{x.device}}")


# %%


def double(x):
    """Return ``2 * x``.

    Args:
        x: Tensor of any shape and of a floating-point dtype.

    Raises:
        TypeError: *x* is no tensor.
        ValueError: *x* is not on the device that this page runs on.
    """
    check_arguments(x)
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


# %%
# Is it right?
# ------------
#
# Before anything is timed: against the reference, on awkward shapes.

for shape in ((1,), (5, 123), (0, 7), (1823, 78)):
    x = torch.randn(shape, device=DEVICE)
    torch.testing.assert_close(double(x), double_reference(x), rtol=0, atol=0)
print("double agrees with PyTorch")

# %%
# The benchmark
# -------------
#
# Beside what a user would call instead, and beside a ceiling.

# sphinx_gallery_fold = "times all providers in turns"

if ON_GPU:
    rows = []
    for size in (2**20, 2**24, 2**28):
        x = torch.randn(size, device=DEVICE)
        calls = {{
            "triton": partial(double, x),
            "torch": partial(double_reference, x),
            "copy": x.clone,
        }}
        for provider, ms in measure(calls).items():
            rows.append((size, provider, "GB/s", *rates(ms, 2 * x.nbytes)))
    write_rows("{slug}-performance.csv", ["size"], rows)
    rate = {{(size, provider): median for size, provider, _, median, _, _ in rows}}
    ladder(
        [("Step 1: the simplest right kernel", "one load, one store", rate[2**28, "triton"])],
        ceiling=("a copy", rate[2**28, "copy"]),
        unit="GB/s",
        at="2²⁸ elements",
    )
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# What the run showed
# -------------------

if ON_GPU:
    claim(
        "the kernel is as fast as a copy",
        rate[2**28, "triton"] / rate[2**28, "copy"],
        at_least=0.95,
        spread=spread(rows),
        section="The benchmark",
    )
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# Exercises
# ---------
#
# 1. **A change to make.** What to do, and what to expect.
#
# References
# ----------
#
# * Who found it, *Where*, when.
'''


def main(arguments: list[str]) -> int:
    """Write the file; an existing one stays as it is."""
    name = arguments[0] if arguments else ""
    if not re.fullmatch(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*", name):
        print(f"make new: {name!r} is no name of a tutorial. Two digits and words: T=11-my-kernel")
        return 2
    path = TUTORIALS / f"{name}.py"
    if taken := sorted(TUTORIALS.glob(f"{name[:2]}-*.py")):
        print(f"make new: {taken[0]} has the number {name[:2]} already. Take another one.")
        return 2
    slug = name[3:]
    title = slug.replace("-", " ").capitalize()
    path.write_text(SKELETON.format(title=title, underline="=" * len(title), slug=slug))
    print(f"{path} is written. Record it on a machine with a GPU: make record T={name[:2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
