r"""
The delta rule without a gate
=============================

*Solution to the first exercise of* :doc:`../14-gated-delta-rule`.

Without a gate the state never decays: *g* = 0, and every *γ* is 1. The decays disappear from both
kernels, and with them all exponentials:

.. math::
   A_{ij} = \beta_i (k_i \cdot k_j) \text{ for } j < i, \qquad
   P_{ij} = \text{scale}\, (q_i \cdot k_j) \text{ for } j \le i
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
# The first kernel computes *T* of each chunk. *P* needs no exponentials now, so the second kernel
# computes it where it is needed, which saves writing and reading it. The inverse is that of the
# tutorial, in its simplest form: one row after the other, with blocks as large as the chunk. For
# that the chunks have only 32 tokens.


@triton.jit
def chunk_kernel(
    k_ptr, beta_ptr, t_ptr, tokens, heads, C: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr
):
    """Compute T of one chunk of one head."""
    chunk, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i, d = tl.arange(0, C), tl.arange(0, D)
    token, real = batch * tokens + chunk * C + i, chunk * C + i < tokens
    at_k = (token * heads + head)[:, None] * D + d[None, :]
    k = tl.load(k_ptr + at_k, mask=real[:, None], other=0.0)
    beta = tl.load(beta_ptr + token * heads + head, mask=real, other=0.0).to(tl.float32)
    kk = tl.dot(k, tl.trans(k), input_precision=PRECISION)
    a = tl.where(i[:, None] > i[None, :], beta[:, None] * kk, 0.0)
    x = tl.where(i[:, None] == i[None, :], 1.0, 0.0)
    for j in range(C - 1):  # subtract row j from the rows below it
        column = tl.sum(tl.where(i[None, :] == j, a, 0.0), axis=1)
        row = tl.sum(tl.where(i[:, None] == j, x, 0.0), axis=0)
        x -= column[:, None] * row[None, :]
    at = ((batch * heads + head) * tl.num_programs(0) + chunk) * C * C
    t = (x * beta[None, :]).to(t_ptr.dtype.element_ty)
    tl.store(t_ptr + at + i[:, None] * C + i[None, :], t)


@triton.jit
def scan_kernel(
    q_ptr, k_ptr, v_ptr, t_ptr, o_ptr, tokens, heads, scale,
    C: tl.constexpr, D: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Walk over the chunks of one head, with BLOCK_V columns of its state."""
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    i, d = tl.arange(0, C), tl.arange(0, D)
    columns = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    start = (batch * tokens * heads + head) * D
    at_k = start + i[:, None] * (heads * D) + d[None, :]
    at_v = start + i[:, None] * (heads * D) + columns[None, :]
    t_ptr += (batch * heads + head) * tl.cdiv(tokens, C) * C * C
    state = tl.zeros((BLOCK_V, D), tl.float32)  # transposed
    for chunk in range(tl.cdiv(tokens, C)):
        real = chunk * C + i[:, None] < tokens
        k = tl.load(k_ptr + at_k, mask=real, other=0.0)
        q = tl.load(q_ptr + at_k, mask=real, other=0.0)
        v = tl.load(v_ptr + at_v, mask=real, other=0.0)
        t = tl.load(t_ptr + i[:, None] * C + i[None, :])
        rounded = state.to(v_ptr.dtype.element_ty)
        missing = tl.trans(v) - tl.dot(rounded, tl.trans(k), input_precision=PRECISION)
        u = tl.dot(missing.to(v_ptr.dtype.element_ty), tl.trans(t), input_precision=PRECISION).to(
            v_ptr.dtype.element_ty
        )
        state = tl.dot(u, k, state, input_precision=PRECISION)
        p = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        p = tl.where(i[:, None] >= i[None, :], p, 0.0).to(v_ptr.dtype.element_ty)
        o = tl.dot(rounded, tl.trans(q), input_precision=PRECISION)
        o = tl.dot(u, tl.trans(p), o, input_precision=PRECISION)
        tl.store(o_ptr + at_v, tl.trans(scale * o).to(v_ptr.dtype.element_ty), mask=real)
        at_k, at_v, t_ptr = at_k + C * heads * D, at_v + C * heads * D, t_ptr + C * C


def delta_rule(q, k, v, beta):
    """Return *o* of the delta rule without a gate, with a scale of d ** -0.5.

    Args:
        q: [batch, tokens, heads, d] in fp16 or fp32, contiguous; d is 16, 32, 64 or 128.
        k: As q.
        v: As q.
        beta: [batch, tokens, heads] in fp32, contiguous.
    """
    (batch, tokens, heads, d), o = q.shape, torch.empty_like(v)
    chunks, precision = triton.cdiv(tokens, 32), "ieee" if q.dtype == torch.float32 else "tf32"
    t = v.new_empty(batch, heads, chunks, 32, 32)
    sizes = {"C": 32, "D": d, "PRECISION": precision}
    chunk_kernel[chunks, heads, batch](k, beta, t, tokens, heads, **sizes, num_warps=1)
    grid, block = (triton.cdiv(d, 32), heads, batch), min(d, 32)
    scan_kernel[grid](q, k, v, t, o, tokens, heads, d**-0.5, BLOCK_V=block, num_warps=2, **sizes)
    return o


# %%
# The check walks over the tokens in float64.


def reference(q, k, v, beta):
    """Return the delta rule in float64."""
    q, k, v, beta = (x.double() for x in (q, k, v, beta))
    state, o = v.new_zeros(*v[:, 0].shape, v.shape[3]), torch.empty_like(v)
    for t in range(v.shape[1]):
        error = v[:, t] - (k[:, t, :, None] @ state)[:, :, 0]
        state += k[:, t, :, :, None] * (beta[:, t, :, None] * error)[:, :, None]
        o[:, t] = (q[:, t, :, None] @ state)[:, :, 0] * q.shape[3] ** -0.5
    return o


torch.manual_seed(0)
for tokens, d in ((1, 16), (31, 32), (100, 64)):
    q, k, v = torch.randn(3, 2, tokens, 3, d, device=DEVICE)
    k, beta = k / k.norm(dim=-1, keepdim=True), torch.rand(2, tokens, 3, device=DEVICE)
    q, k, v = q.half(), k.half(), v.half()
    exact = reference(q, k, v, beta)
    error = (delta_rule(q, k, v, beta).double() - exact).norm() / exact.norm()
    assert error < 2e-3, f"the error is {error:.1e}"
print("delta_rule agrees with float64")
