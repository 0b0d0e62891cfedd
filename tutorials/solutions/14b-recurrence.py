r"""
A recurrence of numbers
=======================

*Solution to the second exercise of* :doc:`../14b-segments`.

A segment maps the number at its start to *M h* + *L*, where *M* is the product of all *a* of the
segment. So a summary costs one multiplication a token more than *L* alone, and no product of
matrices. The second kernel walks over the summaries of the segments before its own, which are few,
and then over its tokens.
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
# Both kernels have a program for each segment and each block of columns. The last
# segment may be shorter.


@triton.jit
def summary_kernel(a_ptr, b_ptr, ends_ptr, tokens, n, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """Compute L and M of one segment, for BLOCK columns."""
    segment = tl.program_id(1)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    end, product = tl.zeros((BLOCK,), tl.float32), tl.full((BLOCK,), 1.0, tl.float32)
    at = segment.to(tl.int64) * LENGTH * n + columns
    for _ in range(tl.minimum(LENGTH, tokens - segment * LENGTH)):
        a = tl.load(a_ptr + at, mask=columns < n, other=1.0)
        end = a * end + tl.load(b_ptr + at, mask=columns < n, other=0.0)
        product *= a
        at += n
    at = 2 * segment.to(tl.int64) * n + columns
    tl.store(ends_ptr + at, end, mask=columns < n)
    tl.store(ends_ptr + at + n, product, mask=columns < n)


@triton.jit
def segment_kernel(
    a_ptr, b_ptr, ends_ptr, h_ptr, tokens, n, LENGTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute h of all tokens of one segment, for BLOCK columns."""
    segment = tl.program_id(1)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros((BLOCK,), tl.float32)
    at = columns.to(tl.int64)
    for _ in range(segment):
        product = tl.load(ends_ptr + at + n, mask=columns < n, other=1.0)
        h = product * h + tl.load(ends_ptr + at, mask=columns < n, other=0.0)
        at += 2 * n
    at = segment.to(tl.int64) * LENGTH * n + columns
    for _ in range(tl.minimum(LENGTH, tokens - segment * LENGTH)):
        a = tl.load(a_ptr + at, mask=columns < n, other=1.0)
        h = a * h + tl.load(b_ptr + at, mask=columns < n, other=0.0)
        tl.store(h_ptr + at, h, mask=columns < n)
        at += n


def recurrence(a, b):
    """Return *h* of all tokens, where h of a token is a times h of the one before, plus b.

    Args:
        a: [tokens, n] in fp32, contiguous.
        b: As a.
    """
    (tokens, n), h = a.shape, torch.empty_like(b)
    segments = triton.cdiv(tokens, 64)
    ends = b.new_empty(segments, 2, n)
    grid, sizes = (triton.cdiv(n, 128), segments), {"LENGTH": 64, "BLOCK": 128}
    summary_kernel[grid](a, b, ends, tokens, n, **sizes)
    segment_kernel[grid](a, b, ends, h, tokens, n, **sizes)
    return h


# %%
# The check walks over the tokens in float64.

torch.manual_seed(0)
for tokens, n in ((1, 1), (63, 5), (64, 128), (300, 130)):
    a, b = torch.rand(tokens, n, device=DEVICE), torch.randn(tokens, n, device=DEVICE)
    exact, h = [], torch.zeros(n, dtype=torch.float64, device=DEVICE)
    for t in range(tokens):
        h = a[t].double() * h + b[t]
        exact.append(h.float())
    torch.testing.assert_close(recurrence(a, b), torch.stack(exact), rtol=1e-5, atol=1e-5)
print("recurrence agrees with float64")

# %%
# ``tl.associative_scan`` composes such steps within a block, also in parallel. Then a segment needs
# fewer dependent steps, and more operations.
