"""Write the skeleton of a tutorial: ``make new T=11-my-kernel``."""

import re
import sys
from pathlib import Path

SKELETON = '''"""
{title}
{line}

What the reader builds, and its speed: ``numbers.toml`` defines numbers, such as ``[{name}]``.
"""

# %%
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Double one block of *x*."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < n  # [BLOCK]
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def double(x):
    """Return ``2 * x`` for a contiguous tensor."""
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


# %%
# Check it against PyTorch, on awkward shapes.

for shape in ((0,), (1,), (5, 123), (1823, 781)):
    x = torch.randn(shape, device=DEVICE)
    torch.testing.assert_close(double(x), 2 * x, atol=0, rtol=0)
print("double agrees with PyTorch, bit for bit")

# %%
# Time it beside the call that a reader would make otherwise, and beside a hardware limit.

# sphinx_gallery_fold = "times all providers, and keeps the rows"
from shared.bench import rows_of, write_rows

if ON_GPU:
    x = torch.randn(2**28, device=DEVICE)
    calls = {{"triton": lambda: double(x), "torch": lambda: 2 * x, "copy": x.clone}}
    rows = rows_of((x.numel(),), calls, "GB/s", 2 * x.nbytes, as_called=("triton", "torch"))
    write_rows("{slug}-performance.csv", ["size"], rows)
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
