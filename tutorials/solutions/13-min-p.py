"""
Min-p
=====

*Solution to the first exercise of* :doc:`../13-sampling`.

Min-p needs no bisection: a token is kept if :math:`e^{x - m}` is at least *min_p*, where *m* is the
maximum of the row. One program reads the row three times: for the maximum, for the sum of the
weights that are kept, and to sample.
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
# Keeping compares the weight itself with *min_p*, so both readings agree on it. The sums are in
# fp64, and only the last block that begins at or before the goal can hold the token.


@triton.jit
def weights_of(row_ptr, columns, V, m, min_p):
    """Return the weights of the columns that are kept, in fp64, and 0 for the others."""
    x = tl.load(row_ptr + columns, mask=columns < V, other=-float("inf")).to(tl.float32)
    w = tl.exp((x - m).to(tl.float64))
    return tl.where((w >= min_p) & (columns < V), w, 0.0)


@triton.jit(do_not_specialize=["seed"])
def min_p_kernel(x_ptr, out_ptr, seed: tl.int64, V, min_p: tl.float64, BLOCK: tl.constexpr):
    """Sample a token of one row."""
    row = tl.program_id(0)
    row_ptr = x_ptr + row.to(tl.int64) * V
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + columns, mask=columns < V, other=-float("inf"))
        top = tl.maximum(top, x.to(tl.float32))
    m, total = tl.max(top), tl.zeros((BLOCK,), tl.float64)
    for start in range(0, V, BLOCK):
        total += weights_of(row_ptr, start + tl.arange(0, BLOCK), V, m, min_p)
    u = tl.randint(seed, row).to(tl.uint32).to(tl.float64) / 4294967296.0
    target, before = u * tl.sum(total), tl.full((), 0.0, tl.float64)
    token = tl.full((), -1, tl.int32)
    for start in range(0, V, BLOCK):
        if before <= target:
            columns = start + tl.arange(0, BLOCK)
            w = weights_of(row_ptr, columns, V, m, min_p)
            final = tl.max(tl.where(w > 0, columns, token))
            reached = (w > 0) & (before + tl.cumsum(w, axis=0) > target)
            token = tl.min(tl.where(reached, columns, final))
            before += tl.sum(w)
    tl.store(out_ptr + row, token.to(tl.int64))


def sample_min_p(logits, min_p, seed):
    """Return one token for each row of logits, [batch], int64.

    Args:
        logits: [batch, tokens], finite, fp16 or fp32.
        min_p: The least probability, relative to that of the most probable token; from 0 to 1.
        seed: A row's token depends on the seed, its logits and its number.
    """
    logits = logits.contiguous()
    out = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    block = min(4096, triton.next_power_of_2(logits.shape[1]))
    numbers = seed, logits.shape[1], float(min_p)
    min_p_kernel[(len(logits),)](logits, out, *numbers, BLOCK=block, num_warps=8)
    return out


# %%
# The check samples many tokens of one row, and compares their frequencies with the probabilities.

logits = torch.log(torch.tensor([0.4, 0.3, 0.19, 0.05, 0.04, 0.02], device=DEVICE))
tokens = sample_min_p(logits.expand(2000, -1), 0.25, 3)
frequencies = tokens.bincount(minlength=6) / len(tokens)
expected = torch.tensor([0.4, 0.3, 0.19, 0, 0, 0], device=DEVICE) / 0.89
torch.testing.assert_close(frequencies, expected, rtol=0, atol=0.05)
assert not frequencies[3:].any()
print("the frequencies are", [round(f, 2) for f in frequencies.tolist()])

# %%
# With many rows, this is a read from memory and two that the cache may serve. With a single row,
# one program reads all of it; the tutorial divides the row.
