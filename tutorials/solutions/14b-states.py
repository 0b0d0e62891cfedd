"""
The states between segments
===========================

*Solution to the first exercise of* :doc:`../14b-segments`.

This is ``combine_kernel`` without the transposition: the state is the right factor, so a program
keeps columns of it, and each product needs all of *M*. Columns are independent of each other, so
programs share them. The states go to a tensor of their own.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The products depend on each other, so the loop over the segments stays a chain, with one product
# for each segment.


@triton.jit
def states_kernel(m_ptr, l_ptr, states_ptr, segments, D: tl.constexpr, BLOCK: tl.constexpr):
    """Compute BLOCK columns of the states of one head after each segment."""
    d, columns = tl.arange(0, D), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1).to(tl.int64) * segments * D * D
    whole, at = d[:, None] * D + d[None, :], d[:, None] * D + columns[None, :]
    state = tl.zeros((D, BLOCK), tl.float32)
    for segment in range(segments):
        m = tl.load(m_ptr + first + segment * D * D + whole)
        ends = tl.load(l_ptr + first + segment * D * D + at)
        state = tl.dot(m, state, ends, input_precision="ieee")
        tl.store(states_ptr + first + segment * D * D + at, state)


def states(maps, ends):
    """Return the states after each segment, from a state of zero.

    Args:
        maps: *M* of each segment, [heads, segments, d, d] in fp32, contiguous; d is 16, 32 or 64.
        ends: *L* of each segment, as *maps*.
    """
    heads, segments, d, _ = maps.shape
    found = torch.empty_like(ends)
    states_kernel[d // 16, heads](maps, ends, found, segments, D=d, BLOCK=16, num_warps=8)
    return found


# %%
# The check multiplies in float64.

torch.manual_seed(0)
for heads, segments, d in ((1, 1, 16), (3, 5, 32), (2, 9, 64)):
    maps, ends = torch.randn(2, heads, segments, d, d, device=DEVICE)
    maps /= 2 * d**0.5  # the states stay of one size
    exact, state = [], torch.zeros(heads, d, d, dtype=torch.float64, device=DEVICE)
    for segment in range(segments):
        state = maps[:, segment].double() @ state + ends[:, segment]
        exact.append(state.float())
    torch.testing.assert_close(states(maps, ends), torch.stack(exact, 1), rtol=1e-4, atol=1e-5)
print("states agrees with float64")
