"""
The gated delta rule
====================

You write ``gated_delta_rule(q, k, v, g, beta)``, the layer that replaces attention in models for
long texts, such as Qwen3-Next. Its memory is one matrix a head, however long the text is. At 32 768
tokens and 64 heads it takes :measured:`triton` ms, :measured:`faster` times less than the same rule
token by token. You need :doc:`03-matrix-multiplication` and :doc:`06-fused-attention`.
"""

# %%
# The kernel
# ----------
#
# Each head keeps a **state**: a matrix *S* of *d* × *d* numbers that maps keys to values. A token
# has a query *q*, a key *k*, a value *v*, a gate *g* ≤ 0 and a strength *β* from 0 to 1. It does
# four things: the state **decays**, it is **read** at the key, it is **corrected** so that the key
# maps closer to the value, and it is read at the query.
#
# .. math::
#    S \leftarrow e^{g} S, \qquad S \leftarrow S + \beta\, k\, (v - S^\top k)^\top, \qquad
#    o = \text{scale} \cdot S^\top q
#
# With β = 1 and a key of length 1, the state afterwards maps *k* to *v* exactly: a value that was
# stored under this key is replaced. This correction is the **delta rule** of Widrow and Hoff.

# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "beyond"
import math
import os
from functools import partial

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def token_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, beta_ptr, o_ptr, tokens, k_heads, v_heads, scale,
    D: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Walk over all tokens of one head, with BLOCK_V columns of its state."""
    batch, head = tl.program_id(1) // v_heads, tl.program_id(1) % v_heads
    rows = tl.arange(0, D)
    columns = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    state = tl.zeros((D, BLOCK_V), tl.float32)
    for t in range(tokens):
        token = batch.to(tl.int64) * tokens + t
        at_k = (token * k_heads + head // (v_heads // k_heads)) * D + rows
        at_v = token * v_heads + head
        k = tl.load(k_ptr + at_k).to(tl.float32)[:, None]
        q = tl.load(q_ptr + at_k).to(tl.float32)[:, None]
        v = tl.load(v_ptr + at_v * D + columns).to(tl.float32)
        state *= tl.exp(tl.load(g_ptr + at_v).to(tl.float32))
        error = v - tl.sum(state * k, axis=0)
        state += k * (tl.load(beta_ptr + at_v).to(tl.float32) * error)[None, :]
        o = tl.sum(state * q, axis=0) * scale
        tl.store(o_ptr + at_v * D + columns, o.to(o_ptr.dtype.element_ty))


# %%
# A column of the state meets only its own column of *v*, so the columns are independent, and programs
# share them out. Models have fewer heads of queries and keys than of values: several heads of ``v``
# use one head of ``q`` and ``k``.


def token_by_token(q, k, v, g, beta, scale):
    """Return the gated delta rule of contiguous tensors, computed by the first kernel."""
    (batch, tokens, k_heads, d), v_heads, o = q.shape, v.shape[2], torch.empty_like(v)
    numbers, grid = (tokens, k_heads, v_heads, scale), (d // 16, batch * v_heads)
    token_kernel[grid](q, k, v, g, beta, o, *numbers, D=d, BLOCK_V=16, num_warps=1)
    return o


def draw(tokens, k_heads, v_heads, d, dtype=torch.float16, batch=1):
    """Return random arguments; queries and keys have length 1, as in the models."""
    q, k = torch.randn(2, batch, tokens, k_heads, d, device=DEVICE)
    q, k = ((x / x.norm(dim=-1, keepdim=True)).to(dtype) for x in (q, k))
    v = torch.randn(batch, tokens, v_heads, d, device=DEVICE).to(dtype)
    g, beta = torch.rand(2, batch, tokens, v_heads, device=DEVICE)
    return q, k, v, -0.2 * g, beta


# %%
# This kernel is slow for two reasons. Each token waits for the one before it, so a text of 32 768
# tokens is a chain of 32 768 steps, :measured:`step` µs each. And a step multiplies a matrix by a
# vector, for which **tensor cores** are useless.
#
# From tokens to chunks
# ---------------------
#
# The remedy is a **chunk** of *C* = 64 tokens whose work becomes products of matrices. In a chunk
# that begins with the state *S*, let *γᵢ* be the product of the decays up to token *i*. Token *i*
# writes :math:`k_i u_i^\top` with the correction :math:`u_i = \beta_i (v_i - S_{i-1}^\top k_i)`, where the
# state before it consists of what is left of *S* and of the earlier writes:
#
# .. math::
#    u_i = \beta_i \Bigl( v_i - \gamma_i S^\top k_i - \sum_{j<i} \tfrac{\gamma_i}{\gamma_j}
#    (k_i \cdot k_j)\, u_j \Bigr)
#
# These are 64 linear equations for the rows of *U*. Their matrix is 1 + *A* with
# :math:`A_{ij} = \beta_i \tfrac{\gamma_i}{\gamma_j} (k_i \cdot k_j)` for *j* < *i*, and it depends neither on
# the values nor on the state. So all chunks can compute :math:`T = (1 + A)^{-1} \mathrm{diag}(\beta)` **at
# the same time**. Only this remains for the chain, which has 512 steps now:
#
# .. math::
#    U = T (V - \gamma K S), \qquad O = \text{scale}\, \gamma Q S + P U, \qquad
#    S \leftarrow \gamma_C S + \bigl(\tfrac{\gamma_C}{\gamma} K\bigr)^\top U
#
# *P* contains :math:`\text{scale} \tfrac{\gamma_i}{\gamma_j} (q_i \cdot k_j)` for *j* ≤ *i*: within a chunk the
# rule is causal attention without a softmax. The form with *T* is known as **WY representation**.
# In PyTorch:


def in_chunks(q, k, v, g, beta, scale, C=64, kept=None):
    """Return the gated delta rule in the dtype of *g*; *kept* is the dtype of the state."""
    share, tokens = v.shape[2] // k.shape[2], v.shape[1]

    def split(x):  # into [batch, heads, chunks, C, …], the last chunk filled up with zeros
        x = torch.cat([x, x.new_zeros(len(x), -tokens % C, *x.shape[2:])], dim=1)
        return x.to(g.dtype).transpose(1, 2).unflatten(2, (-1, C))

    q, k = (split(x.repeat_interleave(share, dim=2)) for x in (q, k))
    v, g, beta = split(v), split(g.clamp(min=-40)), split(beta)
    log = g.cumsum(-1)  # the logarithm of γ
    decay = (log[..., :, None] - log[..., None, :]).tril().exp().tril()
    a = beta[..., None] * (k @ k.mT * decay).tril(-1)
    t = torch.diag_embed(beta)
    t = torch.linalg.solve_triangular(a, t, upper=False, unitriangular=True)
    p = scale * (q @ k.mT) * decay
    past, left = log.exp()[..., None], (log[..., -1:] - log).exp()[..., None]
    state, o = v.new_zeros(*v.shape[:2], q.shape[-1], v.shape[-1]), torch.empty_like(v)
    for c in range(v.shape[2]):
        u = t[:, :, c] @ (v[:, :, c] - past[:, :, c] * (k[:, :, c] @ state))
        o[:, :, c] = scale * past[:, :, c] * (q[:, :, c] @ state) + p[:, :, c] @ u
        state = past[:, :, c, -1:] * state + (left[:, :, c] * k[:, :, c]).mT @ u
        state = state.to(kept or g.dtype).to(g.dtype)
    return o.flatten(2, 3)[:, :, :tokens].transpose(1, 2)


def compare(o, arguments, scale, tolerance):
    """Stop unless the error of *o*, relative to float64, is less than *tolerance*; return it."""
    exact = in_chunks(*(x.double() for x in arguments), scale)
    error = ((o.double() - exact).norm() / exact.norm()).item()
    assert error < tolerance, f"the error is {error:.1e}"
    return error


torch.manual_seed(0)
arguments = draw(192, 1, 2, 32, torch.float32)
error = compare(token_by_token(*arguments, 0.2), arguments, 0.2, tolerance=1e-6)
print(f"token by token in fp32 and in chunks in float64 differ by {error:.1e}")

# %%
# What must stay in fp32
# ----------------------
#
# The state is a sum over the whole text. Here tokens correct it a little (*β* = 0.01) and nothing
# decays. All numbers are fp32, but the state is rounded after each chunk:

q, k, v, g, beta = draw(4096, 1, 1, 32, torch.float32)
arguments = q, k, v.abs(), 0 * g, torch.full_like(beta, 0.01)
kinds = torch.float32, torch.float16, torch.bfloat16
outputs = {kept: in_chunks(*arguments, 1.0, kept=kept) for kept in kinds}
errors = [(str(kept), compare(o, arguments, 1.0, tolerance=0.1)) for kept, o in outputs.items()]
print(tabulate(errors, ["state", "error"], floatfmt=".1e"))

# %%
# In bf16 a correction smaller than 1/256 of a number is lost. So our kernel keeps the state and the
# sums of *g* in fp32. It divides no decays: *γᵢ* / *γⱼ* is computed as the exponential of a difference,
# since *γⱼ* may underflow to zero. The factors of the products may be rounded.
#
# The inverse of a triangle
# -------------------------
#
# Row *i* of the inverse needs all rows before it: 64 dependent steps. Blocks shorten the chain. The
# four blocks of 16 × 16 on the diagonal are independent and take 16 steps together. Two neighbors
# become one block of 32 by products, which tensor cores compute, and then two blocks of 32 one of 64:
#
# .. math::
#    \begin{pmatrix} X & 0 \\ B & Y \end{pmatrix}^{-1} =
#    \begin{pmatrix} X^{-1} & 0 \\ -Y^{-1} B X^{-1} & Y^{-1} \end{pmatrix}


@triton.jit
def inverse(a, C: tl.constexpr, PRECISION: tl.constexpr):
    """Return the inverse of 1 + *a*, [C, C]; *a* is zero on the diagonal and above."""
    B: tl.constexpr = 16
    block, i, row = tl.arange(0, C // B), tl.arange(0, B), tl.arange(0, C)
    same = block[:, None, None, None] == block[None, None, :, None]
    small = tl.sum(tl.where(same, tl.reshape(a, (C // B, B, C // B, B)), 0.0), axis=2)
    eye = tl.where(i[:, None] == i[None, :], 1.0, 0.0)[None, :, :]
    x = tl.broadcast_to(eye, (C // B, B, B))
    for j in range(B - 1):  # subtract row j from the rows below it
        column = tl.sum(tl.where(i[None, None, :] == j, small, 0.0), axis=2)
        upper = tl.sum(tl.where(i[None, :, None] == j, x, 0.0), axis=1)
        x -= column[:, :, None] * upper[:, None, :]
    x = tl.reshape(tl.where(same, x[:, :, None, :], 0.0), (C, C))
    for level in tl.static_range(2):  # pairs of blocks of 16, then of 32
        size: tl.constexpr = B * 2**level
        pair = row[:, None] // (2 * size) == row[None, :] // (2 * size)
        corner = pair & (row[:, None] // size != row[None, :] // size)
        b = tl.where(corner, a, 0.0)  # the blocks B
        right = tl.dot(b, x, input_precision=PRECISION)
        x -= tl.dot(x, right, input_precision=PRECISION)
    return x


@triton.jit
def chunk_kernel(
    q_ptr, k_ptr, g_ptr, beta_ptr, tp_ptr, log_ptr, tokens, k_heads, v_heads, scale,
    C: tl.constexpr, D: tl.constexpr, SHARE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute T, P and the logarithm of γ of a chunk, for the SHARE heads that have its keys."""
    chunk, k_head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    chunks = tl.num_programs(0)
    i, d = tl.arange(0, C), tl.arange(0, D)
    token, real = batch * tokens + chunk * C + i, chunk * C + i < tokens
    at_k = (token * k_heads + k_head)[:, None] * D + d[None, :]
    k = tl.load(k_ptr + at_k, mask=real[:, None], other=0.0)
    q = tl.load(q_ptr + at_k, mask=real[:, None], other=0.0)
    kk = tl.dot(k, tl.trans(k), input_precision=PRECISION)
    qk = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    for head in range(k_head * SHARE, (k_head + 1) * SHARE):
        g = tl.load(g_ptr + token * v_heads + head, mask=real, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + token * v_heads + head, mask=real, other=0.0).to(tl.float32)
        log = tl.cumsum(tl.maximum(g, -40.0), axis=0)  # e⁻⁴⁰ is nothing, and -inf - -inf is nan
        between = tl.where(i[:, None] >= i[None, :], log[:, None] - log[None, :], -float("inf"))
        decay = tl.exp(between)
        a = tl.where(i[:, None] > i[None, :], beta[:, None] * kk * decay, 0.0)
        t = inverse(a, C, PRECISION) * beta[None, :]
        at = (batch * v_heads + head) * chunks + chunk
        tl.store(log_ptr + at * C + i, log)
        tp_ptrs = tp_ptr + at * (2 * C * C) + i[:, None] * C + i[None, :]
        tl.store(tp_ptrs, t.to(tp_ptr.dtype.element_ty))
        tl.store(tp_ptrs + C * C, (scale * qk * decay).to(tp_ptr.dtype.element_ty))


# %%
# A chunk at the end of the text may have fewer than 64 tokens. The others count as tokens with *k* =
# 0, *v* = 0, *β* = 0 and *g* = 0, which change nothing. Heads with the same keys share both products.
# Here is *A* of one chunk, and the inverse as it grows:

# sphinx_gallery_fold = "draws A and its inverse"
import matplotlib.pyplot as plt

q, k, v, g, beta = (x[0, :, 0] for x in draw(64, 1, 1, 8, torch.float32))
log = g.cumsum(0)
a = (beta[:, None] * (k @ k.T) * (log[:, None] - log[None, :]).exp()).tril(-1).cpu()
sizes = [torch.arange(64) // size for size in (16, 32, 64)]
stages = [torch.linalg.inv(torch.eye(64) + a * (s[:, None] == s[None, :])) for s in sizes]
_, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
titles = ["A", "blocks of 16", "blocks of 32", "(1 + A)⁻¹"]
for ax, title, values in zip(axes, titles, [a, *stages], strict=True):
    ax.imshow(values, cmap="RdBu", vmin=-1, vmax=1)
    ax.set(title=title, xticks=[0, 16, 32, 48], yticks=[0, 16, 32, 48])
plt.show()

# %%
# From chunk to chunk
# -------------------
#
# The second kernel walks over the chunks. Each program keeps 64 columns of the state of a head, so
# 64 heads of 128 columns give 128 programs, one for each multiprocessor of an H100 or H200. It keeps
# them **transposed**: then the left factor of all five products is a result that is in registers
# already, and only the right factor comes from shared memory. The two results for *o* are not
# on the chain. The loads of the next chunks arrive meanwhile (``num_stages``).


@triton.jit
def scan_kernel(
    q_ptr, k_ptr, v_ptr, tp_ptr, log_ptr, o_ptr, tokens, k_heads, v_heads, scale,
    C: tl.constexpr, D: tl.constexpr, BLOCK_V: tl.constexpr, SHARE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Walk over the chunks of one head, with BLOCK_V columns of its state."""
    head, batch, dtype = tl.program_id(1), tl.program_id(2).to(tl.int64), v_ptr.dtype.element_ty
    i, d = tl.arange(0, C), tl.arange(0, D)
    columns = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    at_k = (batch * tokens * k_heads + head // SHARE) * D + i[:, None] * (k_heads * D) + d[None, :]
    at_v = (batch * tokens * v_heads + head) * D + i[:, None] * (v_heads * D) + columns[None, :]
    chunks = tl.cdiv(tokens, C)
    first = (batch * v_heads + head) * chunks
    log_ptr += first * C
    tp_ptr += first * (2 * C * C)
    square = i[:, None] * C + i[None, :]
    state = tl.zeros((BLOCK_V, D), tl.float32)  # transposed
    for chunk in range(chunks):
        real = chunk * C + i[:, None] < tokens
        k = tl.load(k_ptr + at_k, mask=real, other=0.0)
        v = tl.load(v_ptr + at_v, mask=real, other=0.0)
        t = tl.load(tp_ptr + square)
        log, last = tl.load(log_ptr + i), tl.load(log_ptr + C - 1)
        past, rounded = tl.exp(log)[None, :], state.to(dtype)
        read = tl.dot(rounded, tl.trans(k), input_precision=PRECISION)
        missing = (tl.trans(v) - past * read).to(dtype)
        u = tl.dot(missing, tl.trans(t), input_precision=PRECISION)
        left = (u * tl.exp(last - log)[None, :]).to(dtype)
        state = tl.dot(left, k, tl.exp(last) * state, input_precision=PRECISION)
        q = tl.load(q_ptr + at_k, mask=real, other=0.0)
        p = tl.load(tp_ptr + C * C + square)
        o = scale * past * tl.dot(rounded, tl.trans(q), input_precision=PRECISION)
        o = tl.dot(u.to(dtype), tl.trans(p), o, input_precision=PRECISION)
        tl.store(o_ptr + at_v, tl.trans(o).to(dtype), mask=real)
        q_ptr, k_ptr = q_ptr + C * k_heads * D, k_ptr + C * k_heads * D
        v_ptr, o_ptr = v_ptr + C * v_heads * D, o_ptr + C * v_heads * D
        log_ptr, tp_ptr = log_ptr + C, tp_ptr + 2 * C * C


# %%
# Calling it
# ----------
#
# A call launches both kernels. *T* and *P* pass through memory: for 64 chunks of 64 tokens and one
# head they take as much as ``v`` and ``o`` with *d* = 128. ``gated_delta_rule`` keeps a plan for
# each kind of arguments, as in :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "checks the arguments, and plans both launches"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of


def check_arguments(q, k, v, g, beta, scale):
    """Raise TypeError or ValueError, naming the argument, if the rule cannot be computed."""
    for name, x, dims in (("q", q, 4), ("k", k, 4), ("v", v, 4), ("g", g, 3), ("beta", beta, 3)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.ndim != dims:
            wanted = "[batch, tokens, heads, d]" if dims == 4 else "[batch, tokens, v heads]"
            raise ValueError(f"{name} must be {wanted}, but has shape {tuple(x.shape)}")
        if x.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {x.device}")
        allowed = (torch.float16, torch.bfloat16, torch.float32)
        if x.dtype not in allowed or dims == 4 and x.dtype != q.dtype:
            wanted = "float16, bfloat16 or float32" + (", as q" if name in "kv" else "")
            raise TypeError(f"{name} must be {wanted}, but its dtype is {x.dtype}")
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(f"{name} requires a gradient, which this rule lacks: torch.no_grad()")
    shapes = ", ".join(f"{n} {tuple(x.shape)}" for n, x in (("q", q), ("k", k), ("v", v)))
    if q.shape != k.shape or q.shape[:2] != v.shape[:2] or q.shape[3] != v.shape[3]:
        raise ValueError(f"q and k must have one shape, and v their batch, tokens and d: {shapes}")
    if q.shape[3] not in (16, 32, 64, 128):
        raise ValueError(f"d must be 16, 32, 64 or 128: {shapes}")
    if q.shape[2] == 0 or v.shape[2] % q.shape[2]:
        raise ValueError(f"v must have a multiple of the heads of q and k: {shapes}")
    for name, x in (("g", g), ("beta", beta)):
        if x.shape != v.shape[:3]:
            wanted = f"{tuple(v.shape[:3])}, as v without d"
            raise ValueError(f"{name} must have shape {wanted}, but has {tuple(x.shape)}")
    if scale is not None and not (isinstance(scale, int | float) and math.isfinite(scale)):
        raise ValueError(f"scale must be a finite number, but is {scale!r}")


def plan_of(q, v, scale):
    """Return the number of chunks and both launches."""
    (batch, tokens, k_heads, d), v_heads = q.shape, v.shape[2]
    numbers = tokens, k_heads, v_heads, d**-0.5 if scale is None else scale
    chunks, exact = triton.cdiv(tokens, 64), q.dtype == torch.float32
    constants = {"C": 64, "D": d, "SHARE": v_heads // k_heads}
    constants["PRECISION"] = "ieee" if exact else "tf32"
    first = Launch(chunk_kernel, (chunks, k_heads, batch), numbers, constants | {"num_warps": 4})
    constants |= {"BLOCK_V": min(d, 64), "num_warps": 4, "num_stages": 1 if exact else 2}
    return chunks, first, Launch(scan_kernel, (triton.cdiv(d, 64), v_heads, batch), numbers, constants)


# %%

PLANS = {}


def gated_delta_rule(q, k, v, g, beta, scale=None):
    """Return *o* of the gated delta rule, with a state of zero before the first token.

    Args:
        q: [batch, tokens, k heads, d] in fp16, bf16 or fp32; d is 16, 32, 64 or 128.
        k: As q. The rule is stable if beta · |k|² ≤ 2; models normalize the keys.
        v: [batch, tokens, v heads, d]; v heads is a multiple of k heads.
        g: [batch, tokens, v heads], the logarithms of the decays, fp16, bf16 or fp32; -inf clears
            the state. Decays below e⁻⁴⁰ count as e⁻⁴⁰.
        beta: As g, the strengths of the corrections.
        scale: What the output is multiplied by; d ** -0.5 if None.
    """
    try:
        needs = any(x.requires_grad for x in (q, k, v, g, beta))
        plan = None if needs else PLANS.get((key_of(q, k, v, g, beta), scale))
    except (AttributeError, TypeError):  # no tensors, or a scale that cannot be in a key
        plan = None
    if plan is None:
        check_arguments(q, k, v, g, beta, scale)
        if v.numel() == 0:
            return torch.empty_like(v)
        if not ON_GPU and q.dtype == torch.bfloat16:  # the interpreter computes bf16 wrongly
            return gated_delta_rule(q.float(), k.float(), v.float(), g, beta, scale).bfloat16()
        q, k, v, g, beta = (x.contiguous() for x in (q, k, v, g, beta))
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = PLANS.setdefault((key_of(q, k, v, g, beta), scale), plan_of(q, v, scale))
    chunks, first, second = plan
    batch, _, v_heads, _ = v.shape
    tp = v.new_empty(batch, v_heads, chunks, 2, 64, 64)
    log = torch.empty(batch, v_heads, chunks, 64, device=v.device)
    o = torch.empty_like(v)
    first(q, k, g, beta, tp, log)
    second(q, k, v, tp, log, o)
    return o


# The check covers texts around the length of a chunk, no decay, and a decay that clears the state.
dtype = torch.bfloat16 if ON_GPU else torch.float16
problems = [draw(tokens, 1, 2, 32, dtype) for tokens in (1, 63, 64, 65)]
problems += [draw(65, 2, 4, 128, dtype, batch=2), draw(130, 1, 3, 64, dtype)]
q, k, v, g, beta = problems[-1]
g[:, ::50], g[:, 1::3], beta[:, ::4], beta[:, 1::4] = -math.inf, 0.0, 0.0, 1.0
for arguments in 2 * problems:
    compare(gated_delta_rule(*arguments, 0.1), arguments, 0.1, tolerance=2 * torch.finfo(dtype).eps)
print(f"gated_delta_rule is right on {len(problems)} problems")

# %%
# The benchmark
# -------------
#
# One text, 16 heads of queries and keys, 64 of values, *d* = 128, bf16. PyTorch's form is the one
# above, in fp32. The *bound* is a copy of as many bytes as the arguments and the output have.

# sphinx_gallery_fold = "times the rule, and draws the times"
from shared.bench import rows_of, write_calls, write_rows, write_table


@triton.jit
def empty_kernel():
    """Do nothing."""


def benchmark(tokens):
    """Return rows (tokens, heads, provider, unit, median, p20, p80)."""
    arguments = draw(tokens, 16, 64, 128, torch.bfloat16)
    moved = sum(x.nbytes for x in (*arguments, arguments[2]))
    source = torch.empty(moved // 2, dtype=torch.uint8, device=DEVICE)
    calls = {"triton": partial(gated_delta_rule, *arguments)}
    calls |= {"token by token": partial(token_by_token, *arguments, 128**-0.5)}
    calls |= {"torch": partial(in_chunks, *arguments, 128**-0.5), "bound": source.clone}
    return rows_of((tokens, 64), calls, "ms", rounds=8, as_called=["triton"])


