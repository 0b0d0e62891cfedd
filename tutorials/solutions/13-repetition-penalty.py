"""
A repetition penalty
====================

*Solution to the second exercise of* :doc:`../13-sampling`.

A token may occur often in the text and is penalized once. A kernel that changes the logits in place
must not do that twice. This one reads the old logits and writes to a copy, so each occurrence
writes the same number, and the order of the programs does not matter.
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
# Each program handles a block of one row's tokens. Its loads are scattered, but only as many as
# there are tokens.


@triton.jit
def penalty_kernel(x_ptr, tokens_ptr, y_ptr, V, count, penalty, BLOCK: tl.constexpr):
    """Write the penalized logits of the tokens that occur in a block of tokens."""
    row, i = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens_ptr + row * count + i, mask=i < count, other=0)
    x = tl.load(x_ptr + row * V + token, mask=i < count, other=0.0).to(tl.float32)
    y = tl.where(x > 0, x / penalty, x * penalty)
    tl.store(y_ptr + row * V + token, y.to(y_ptr.dtype.element_ty), mask=i < count)


def penalize(logits, tokens, penalty):
    """Return logits in which those of *tokens* are less probable.

    Args:
        logits: [batch, tokens], fp16 or fp32, contiguous; they stay as they are.
        tokens: [batch, tokens], int64, contiguous, from 0 to tokens - 1.
        penalty: What positive logits are divided by, and negative ones are multiplied by.
    """
    y, (batch, count) = logits.clone(), tokens.shape
    if tokens.numel():
        grid = triton.cdiv(count, 256), batch
        penalty_kernel[grid](logits, tokens, y, logits.shape[1], count, penalty, BLOCK=256)
    return y


# %%
# The check has tokens that occur twice.

logits = torch.randn(3, 300, device=DEVICE)
tokens = torch.randint(0, 300, (3, 400), device=DEVICE)
occurs = torch.zeros_like(logits).scatter(1, tokens, 1.0) > 0
expected = torch.where(occurs, torch.where(logits > 0, logits / 1.3, logits * 1.3), logits)
torch.testing.assert_close(penalize(logits, tokens, 1.3), expected)
print("each token that occurs is penalized once")

# %%
# The copy moves all logits, and costs more than the penalty. In the tutorial's kernel, ``load_row``
# could apply the penalty as it reads, from one bit for each token.
