r"""
A maximum for each place
========================

*Solution to the third exercise of* :doc:`../10-cross-entropy`.

The loop does not need the maximum of a whole block in every iteration. The last kernel of the
lesson keeps one for each thread. Let each *place* in the block keep a maximum *m* and a sum *s*
over its own elements, and reduce both once, after the loop.

This seems to take two exponentials per element, one for the element and one to correct the sum.
There are two cases, with :math:`d = x - m`:

* The element is not larger: the sum grows by :math:`e^{d}` and needs no correction.
* The element is larger: the sum is multiplied by :math:`e^{-d}` and grows by :math:`e^0 = 1`.

Both cases need a single exponential, :math:`e^{-|d|}`.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os
from functools import partial

import torch
from tabulate import tabulate
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%


@triton.jit
def take_in(m, s, x):
    """Return maxima and sums of exponentials, after each place has met one more element."""
    d = x - m
    e = tl.exp(-tl.abs(d))
    return tl.maximum(m, x), tl.where(d > 0, s * e + 1, s + e)


@triton.jit
def loss_kernel(
    x_ptr, target_ptr, loss_ptr, V, ignore_index, OWN: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute the loss of one row, with a maximum for each place, or for the block."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    if OWN:
        m = tl.full([BLOCK], -3.0e38, tl.float32)
        s = tl.zeros([BLOCK], tl.float32)
    else:
        m = -3.0e38
        s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        if OWN:
            m, s = take_in(m, s, x)
        else:
            larger = tl.maximum(m, tl.max(x, axis=0))
            s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
            m = larger
    if OWN:
        largest = tl.max(m, axis=0)
        s = tl.sum(s * tl.exp(m - largest), axis=0)
        m = largest
    loss = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + row * V + target).to(tl.float32) + tl.log(s)
    tl.store(loss_ptr + row, loss)


def losses_of(logits, targets, own, block=8192, warps=8, ignore_index=-100):
    """Return the loss of each row of the contiguous matrix *logits*."""
    if logits.ndim != 2 or not logits.is_contiguous() or logits.device != DEVICE:
        raise ValueError(
            f"logits must be a contiguous matrix on {DEVICE}, but have shape "
            f"{tuple(logits.shape)}, strides {logits.stride()}, and are on {logits.device}"
        )
    M, V = logits.shape
    losses = torch.empty(M, dtype=torch.float32, device=logits.device)
    options = {"OWN": own, "BLOCK": block, "num_warps": warps}
    if M:
        loss_kernel[(M,)](logits, targets, losses, V, ignore_index, **options)
    return losses


# %%

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
for M, V in ((1, 1), (5, 781), (3, 20001)):
    logits = 3 * torch.randn(M, V, device=DEVICE)
    logits[0, : V // 2] = -float("inf")
    targets = torch.randint(V // 2, V, (M,), device=DEVICE)
    targets[1::3] = -100
    expected = functional.cross_entropy(logits.double(), targets, reduction="none")
    for own in (True, False):
        found = losses_of(logits, targets, own).double()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)
print("Both ways agree with float64")

# %%
# Is it faster? A block of maxima and a block of sums take two registers for each element that a
# thread has. So fewer programs fit on a multiprocessor, or the block must be smaller, with fewer
# loads in flight. The table has both ways with several blocks; each reads the logits once:

import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.bench import rates

if ON_GPU:
    M, V = 8192, 32768
    logits = torch.randn(M, V, device=DEVICE, dtype=torch.bfloat16)
    targets = torch.randint(0, V, (M,), device=DEVICE)
    shapes = [(2048, 8), (4096, 8), (8192, 8), (4096, 16), (8192, 16)]
    calls = {
        (own, *shape): partial(losses_of, logits, targets, own, *shape)
        for own in (True, False)
        for shape in shapes
    }
    rate = {row[0]: row[2] for row in rates((), calls, "GB/s", logits.nbytes, rounds=10)}
    table = [
        (f"{block:,}", warps, *(f"{rate[own, block, warps]:,.0f}" for own in (False, True)))
        for block, warps in shapes
    ]
    headers = ["BLOCK", "warps", "one maximum", "own maxima"]
    print("GB/s, higher is better")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))
else:
    print("Without a GPU there is nothing to time.")

# %%
# Compare the best of each column. Other programs hide the synchronization of a reduction if enough
# of them are resident, and registers decide how many are. A change that saves synchronization and
# costs registers can win or lose: measure it.
