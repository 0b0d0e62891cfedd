"""
A seed for each row
===================

*Solution to the first exercise of* :doc:`/getting-started/tutorials/04-low-memory-dropout`.

A batch is a matrix with one sample per row. With one seed for the matrix, the mask of a sample
depends on its row: if you shuffle the batch, split it over two GPUs or leave out a sample, other
masks change. With a seed for each row, a sample keeps its mask in any batch.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The seeds are a vector in GPU memory. The grid gets a second axis: a program works on one block of
# one row, loads the seed of that row, and counts from the start of the row. The rest is the kernel
# of the tutorial.


@triton.jit(do_not_specialize=["threshold"])
def seeded_rows_kernel(x_ptr, out_ptr, seeds_ptr, N, threshold, scale, BLOCK: tl.constexpr):
    """Drop elements of one block of one row, with the seed of the row."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    inside = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=inside).to(tl.float32)
    seed = tl.load(seeds_ptr + row)
    counters = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))  # [BLOCK]
    keep = words.to(tl.uint32, bitcast=True) >= threshold.to(tl.uint32)
    tl.store(out_ptr + row * N + columns, tl.where(keep, x * scale, 0.0), mask=inside)


def launch_seeded_rows(x, p, seeds):
    """Launch the kernel; the arguments have been checked."""
    if p == 1 or x.numel() == 0:
        return torch.zeros_like(x)
    out = torch.empty_like(x)
    M, N = x.shape
    threshold = min(round(p * 2**32), 2**32 - 1)
    grid = (M, triton.cdiv(N, 1024))
    seeded_rows_kernel[grid](x, out, seeds, N, threshold, 1 / (1 - p), BLOCK=1024, num_warps=4)
    return out


# %%
# The backward pass needs the seeds: 8 bytes per row of any length.


class SeededRowsDropout(torch.autograd.Function):
    """Dropout of a matrix that keeps one seed a row for the backward pass."""

    @staticmethod
    def forward(ctx, x, p, seeds):
        """Drop elements of *x*."""
        ctx.save_for_backward(seeds)
        ctx.p = p
        return launch_seeded_rows(x, p, seeds)

    @staticmethod
    def backward(ctx, grad):
        """Drop the same elements of the gradient."""
        (seeds,) = ctx.saved_tensors
        return SeededRowsDropout.apply(grad.contiguous(), ctx.p, seeds), None, None


def seeded_dropout_rows(x, p, seeds):
    """Return dropout of the matrix *x* with the seed ``seeds[i]`` for row *i*.

    Args:
        x: Contiguous float16, bfloat16 or float32 tensor of shape (M, N), N up to 2²⁵.
        p: Probability from 0 to 1 that an element becomes zero; the others are divided by 1 - p.
        seeds: Contiguous int64 tensor of shape (M,), on the device of *x*.

    Raises:
        TypeError: *x* or *seeds* is no tensor, or of another dtype.
        ValueError: Shapes, strides or devices do not fit, or *p* is out of range.
    """
    for name, t in (("x", x), ("seeds", seeds)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"x must be float16, bfloat16 or float32, but its dtype is {x.dtype}")
    if seeds.dtype != torch.int64:
        raise TypeError(f"seeds must be int64, but its dtype is {seeds.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {x.device}")
    if x.ndim != 2 or x.shape[1] > 2**25 or not x.is_contiguous():
        raise ValueError(
            f"x must be a contiguous matrix with up to 2**25 columns, but has shape "
            f"{tuple(x.shape)} and strides {x.stride()}"
        )
    if seeds.shape != x.shape[:1] or seeds.device != x.device or not seeds.is_contiguous():
        raise ValueError(
            f"seeds must be contiguous, of shape ({x.shape[0]},) and on {x.device}, but has shape "
            f"{tuple(seeds.shape)}, strides {seeds.stride()} and is on {seeds.device}"
        )
    if not 0 <= p <= 1:
        raise ValueError(f"p must be from 0 to 1, but is {p}")
    return SeededRowsDropout.apply(x, p, seeds)


# %%
# Here is a batch of four samples, all ones, and the same batch in another order. Each sample keeps
# its mask:

seeds = torch.tensor([11, 12, 13, 14], device=DEVICE)
order = torch.tensor([2, 0, 3, 1], device=DEVICE)
ones = torch.ones(4, 10, device=DEVICE)
for which in (seeds, seeds[order]):
    masks = seeded_dropout_rows(ones, 0.5, which) > 0
    print(tabulate(
        [[f"seed {seed}", *("keep" if k else "-" for k in mask)]
         for seed, mask in zip(which.tolist(), masks.tolist(), strict=True)],
        tablefmt="plain",
    ), end="\n\n")  # fmt: skip

# %%
# In another order, the rows must be the same. And each row must equal the result of the tutorial's
# kernel for this row and seed.

# sphinx_gallery_fold = "checks the masks against those of the tutorial"


@triton.jit(do_not_specialize=["seed", "threshold"])
def seeded_dropout_kernel(x_ptr, out_ptr, n, seed, threshold, scale, BLOCK: tl.constexpr):
    """Work as in the tutorial."""
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    counters = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    keep = words.to(tl.uint32, bitcast=True) >= threshold.to(tl.uint32)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


def tutorial_dropout(x, p, seed):
    """Return dropout of the vector *x* with one seed, by the kernel of the tutorial."""
    out, n, threshold = torch.empty_like(x), x.numel(), round(p * 2**32)
    seeded_dropout_kernel[(triton.cdiv(n, 256),)](
        x, out, n, seed, threshold, 1 / (1 - p), BLOCK=256
    )  # fmt: skip
    return out


torch.manual_seed(0)
for M, N in ((1, 1), (5, 123), (7, 1024), (3, 1823)):
    x = torch.randn(M, N, device=DEVICE)
    seeds = torch.randint(2**62, (M,), device=DEVICE)
    y = seeded_dropout_rows(x, 0.3, seeds)
    order = torch.randperm(M, device=DEVICE)
    assert torch.equal(seeded_dropout_rows(x[order], 0.3, seeds[order]), y[order])
    for i in range(M):
        assert torch.equal(y[i], tutorial_dropout(x[i], 0.3, seeds[i].item()))
print("Every row has the mask of its seed, wherever it is")

# %%
# The gradient is dropout of the gradient, with the same masks:

# sphinx_gallery_fold = "checks the gradient"
x = torch.randn(5, 123, device=DEVICE, requires_grad=True)
grad = torch.randn_like(x)
seeds = torch.arange(5, device=DEVICE)
(dx,) = torch.autograd.grad(seeded_dropout_rows(x, 0.3, seeds), x, grad)
keep = seeded_dropout_rows(torch.ones_like(x), 0.3, seeds) > 0
torch.testing.assert_close(dx, torch.where(keep, grad / 0.7, 0.0))
assert not seeded_dropout_rows(x, 1.0, seeds).any()
print("The gradient is right")

# %%
# What does it cost? A program loads one more number. Rows shorter than a block leave threads idle,
# so a kernel for very short rows should take several at once, as in
# :doc:`/getting-started/tutorials/02-fused-softmax`.

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    for N in (256, 1024, 16384):
        x = torch.randn(2**26 // N, N, device=DEVICE)
        seeds = torch.arange(2**26 // N, device=DEVICE)
        y = torch.empty_like(x)
        fns = {
            "seed for each row": lambda x=x, s=seeds: seeded_dropout_rows(x, 0.5, s),
            "copy": lambda x=x, y=y: y.copy_(x),
        }
        for name, fn in fns.items():
            ms = triton.testing.do_bench(fn, 5, 20, return_mode="median")
            print(f"N = {N:6,}   {name:18s} {8 * x.numel() / ms / 1e6:5.0f} GB/s")
else:
    print("Without a GPU there is nothing to time.")
