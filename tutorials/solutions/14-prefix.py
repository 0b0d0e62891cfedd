"""
The state of a prefix
=====================

*Solution to the second exercise of* :doc:`../14-gated-delta-rule`.

A model that writes a text reads the prompt once, in chunks, and then adds one token at a time. All
that the new token needs of the text before it is the state: *d* × *d* numbers a head, where
attention needs the keys and values of all tokens. So the kernel starts from a state and returns
the new one. For a single token the tutorial's first kernel is the right one: there is no chunk, and
the state is read and written once. The step is **memory-bound**.
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
# Each program loads its columns of the state, walks over the tokens, and stores the columns. The
# new state is another tensor, so the old one can serve several continuations of one prefix.


@triton.jit
def token_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, beta_ptr, state_ptr, o_ptr, new_ptr, tokens, k_heads, v_heads,
    scale, D: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Walk over all tokens of one head, with BLOCK_V columns of its state."""
    batch, head = tl.program_id(1) // v_heads, tl.program_id(1) % v_heads
    rows = tl.arange(0, D)
    columns = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    at = tl.program_id(1).to(tl.int64) * D * D + rows[:, None] * D + columns[None, :]
    state = tl.load(state_ptr + at)
    for t in range(tokens):
        token = batch.to(tl.int64) * tokens + t
        at_k = (token * k_heads + head // (v_heads // k_heads)) * D + rows
        at_v = token * v_heads + head
        k = tl.load(k_ptr + at_k).to(tl.float32)[:, None]
        q = tl.load(q_ptr + at_k).to(tl.float32)[:, None]
        v = tl.load(v_ptr + at_v * D + columns).to(tl.float32)
        state *= tl.exp(tl.load(g_ptr + at_v))
        error = v - tl.sum(state * k, axis=0)
        state += k * (tl.load(beta_ptr + at_v) * error)[None, :]
        o = tl.sum(state * q, axis=0) * scale
        tl.store(o_ptr + at_v * D + columns, o.to(o_ptr.dtype.element_ty))
    tl.store(new_ptr + at, state)


def continue_rule(q, k, v, g, beta, state):
    """Return *o* of the gated delta rule, with a scale of d ** -0.5, and the new state.

    Args:
        q: [batch, tokens, k heads, d] in fp16, bf16 or fp32, contiguous; d is a power of two.
        k: As q.
        v: [batch, tokens, v heads, d]; v heads is a multiple of k heads.
        g: [batch, tokens, v heads] in fp32, contiguous.
        beta: As g.
        state: [batch, v heads, d, d] in fp32, contiguous, after the prefix; the third dimension
            belongs to the keys. It stays as it is.
    """
    (batch, tokens, k_heads, d), v_heads = q.shape, v.shape[2]
    o, new = torch.empty_like(v), torch.empty_like(state)
    block = min(d, 16)
    token_kernel[d // block, batch * v_heads](
        q, k, v, g, beta, state, o, new, tokens, k_heads, v_heads, d**-0.5,
        D=d, BLOCK_V=block, num_warps=1,
    )  # fmt: skip
    return o, new


# %%
# The check splits a text: a prefix of 20 tokens, then seven single tokens, each from the state that
# the last call returned. The output must be that of the whole text in one call.

torch.manual_seed(0)
q, k = torch.randn(2, 2, 27, 1, 32, device=DEVICE)
k, v = k / k.norm(dim=-1, keepdim=True), torch.randn(2, 27, 3, 32, device=DEVICE)
g, beta = torch.rand(2, 2, 27, 3, device=DEVICE)
state = torch.zeros(2, 3, 32, 32, device=DEVICE)
whole, last = continue_rule(q, k, v, -g, beta, state)
pieces = []
for start, stop in [(0, 20)] + [(t, t + 1) for t in range(20, 27)]:
    piece = [x[:, start:stop].contiguous() for x in (q, k, v, -g, beta)]
    o, state = continue_rule(*piece, state)
    pieces.append(o)
torch.testing.assert_close(torch.cat(pieces, dim=1), whole)
torch.testing.assert_close(state, last)
print("a text in pieces gives the output of the whole")

# %%
# The state in fp32 takes as many bytes as the keys and values of *d* tokens in 16 bits. From then
# on the layer reads less for each token than attention does, and the longer the text, the less.
