"""
The gated delta rule
====================

You build ``gated_delta_rule(q, k, v, g, beta)``, which replaces attention in most layers of models
for long texts, such as Qwen3-Next. It keeps one matrix for each head, however long the text is. At
32,768 tokens and 64 heads it takes :measured:`triton` ms, and token by token the same rule takes
:measured:`faster` times as long. You need :doc:`03-matrix-multiplication` and
:doc:`06-fused-attention`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
import contextvars
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# A matrix as memory
# ------------------
#
# Attention keeps all keys and values, so each token costs more than the one before. Here each head
# keeps a **state** instead: a matrix *S* of *d* × *d* numbers that maps keys to values. A token has
# a query *q*, a key *k* and a value *v*, of *d* numbers each, a gate *g* ≤ 0 and a strength *β*
# from 0 to 1. At each token the state **decays** by the factor eᵍ, is **read** at the key (*Sᵀk*),
# is **corrected** so that the key maps closer to the value, and is read at the query:

# sphinx_gallery_fold = "draws the steps of a token"
import matplotlib.pyplot as plt
from shared.bench import figure


def draw_steps():
    """Draw the state before and after a token, and the four steps between."""
    _, ax = figure(height=2.5)
    for left, width, label in (0, 1, "S"), (2.2, 1, "eᵍ S"), (4.4, 2.9, "S + β k (v − Sᵀk)ᵀ"):
        ax.add_patch(plt.Rectangle((left, 0), width, 1, facecolor="#cfe3f1", edgecolor="#444444"))
        ax.text(left + width / 2, 0.5, label, ha="center", va="center")
    for left, right, label in ((1, 2.2, "decay"), (3.2, 4.4, "correct"), (7.3, 8.1, "")):
        arrow = {"arrowstyle": "->", "color": "#444444"}
        ax.annotate("", (right, 0.5), (left, 0.5), arrowprops=arrow)
        ax.text((left + right) / 2, 0.62, label, ha="center")
    for x, y, label in ((2.7, 1.75, "read at k: Sᵀk"), (5.8, -0.75, "read at q: o = scale · Sᵀq")):
        ax.text(x, y, label, ha="center", va="center")
        start, end = ((x, 1), (x, y - 0.2)) if y > 0 else ((x, 0), (x, y + 0.2))
        ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "#1b6ca8"})
    ax.text(8.2, 0.5, "next\ntoken", va="center")
    ax.set(xlim=(-0.1, 9.2), ylim=(-1.1, 2.1))
    ax.axis("off")
    plt.show()


draw_steps()

# %%
# As formulas, and in PyTorch for one head. *Scale* is a number, in most models 1/√\ *d*:
#
# .. math::
#    S \leftarrow e^{g} S, \qquad S \leftarrow S + \beta\, k\, (v - S^\top k)^\top, \qquad
#    o = \text{scale} \cdot S^\top q


def one_head(q, k, v, g, beta, scale):
    """Return the output of each token, [tokens, d]; g and beta are [tokens]."""
    state, o = torch.zeros(q.shape[1], v.shape[1]), torch.empty_like(v)
    for t in range(len(q)):
        state = state * g[t].exp()
        error = v[t] - state.T @ k[t]
        state = state + beta[t] * torch.outer(k[t], error)
        o[t] = scale * state.T @ q[t]
    return o


key, values = torch.tensor([[0.6, 0.8]] * 2), torch.tensor([[1.0, 2.0], [5.0, 7.0]])
print(one_head(key, key, values, torch.zeros(2), torch.ones(2), 1.0))

# %%
# Both tokens have the same key of length 1, *β* = 1, and no decay. The second value does not add to
# the first: it **replaces** it, since the correction is the difference between the new value and
# what the state gave for this key. This is the **delta rule** of Widrow and Hoff, 1960.
#
# The kernel
# ----------
#
# A column of the state depends on one element of each *v*, so each program takes some columns.
# Models may have fewer heads of ``k`` than of ``v``: several heads of ``v`` use one of ``k``.


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
        error = v - tl.sum(state * k, axis=0)  # <-
        state += k * (tl.load(beta_ptr + at_v).to(tl.float32) * error)[None, :]  # <-
        o = tl.sum(state * q, axis=0) * scale
        tl.store(o_ptr + at_v * D + columns, o.to(o_ptr.dtype.element_ty))


# %%
# Calling it
# ----------


def gated_delta_rule(q, k, v, g, beta, scale):
    """Return the gated delta rule of contiguous tensors, token by token."""
    (batch, tokens, k_heads, d), v_heads, o = q.shape, v.shape[2], torch.empty_like(v)
    numbers, grid = (tokens, k_heads, v_heads, scale), (d // 16, batch * v_heads)
    token_kernel[grid](q, k, v, g, beta, o, *numbers, D=d, BLOCK_V=16, num_warps=1)
    return o


plain_rule = gated_delta_rule

# %%
# This kernel is right, and slow for two reasons. Each token waits for the one before it, so a text
# of 32,768 tokens is a chain of 32,768 steps, :measured:`step` µs each. And a step multiplies a
# matrix by a vector, for which **tensor cores** are no help.
#
# From tokens to chunks
# ---------------------
#
# .. image:: 14-gated-delta-rule.svg
#    :alt: Twelve tokens in chunks of four. Tokens of one chunk meet in products of matrices; what
#          earlier chunks have written arrives through the state.
#    :scale: 100
#    :loading: lazy
#
# The remedy is a **chunk** of *C* = 64 tokens whose work becomes products of matrices. Within a
# chunk, each token meets all before it, as in causal attention. Chunks hand on only the state.
#
# In a chunk that begins with the state *S*, let *γᵢ* be the product of the factors eᵍ of its tokens
# 1 to *i*. Token *i* adds *kᵢ uᵢ*\ :sup:`⊤` to the state, where the correction *uᵢ* depends on the
# state before it. By then *S* has decayed to *γᵢ S*, and what token *j* added by *γᵢ* / *γⱼ*:
#
# .. math::
#    u_i = \beta_i \Bigl( v_i - \gamma_i S^\top k_i - \sum_{j<i} \tfrac{\gamma_i}{\gamma_j}
#    (k_i \cdot k_j)\, u_j \Bigr)
#
# These are 64 linear equations for the rows *uᵢ* of a matrix *U*. Their own matrix, the identity
# plus *A*, does not depend on the state. So all chunks can invert theirs **at the same time**,
# before the chain begins. *P* has the weights with which a token reads the corrections:
#
# .. math::
#    A_{ij} = \beta_i \tfrac{\gamma_i}{\gamma_j} (k_i \cdot k_j) \text{ for } j < i, \quad
#    T = (1 + A)^{-1} \mathrm{diag}(\beta), \quad
#    P_{ij} = \text{scale}\, \tfrac{\gamma_i}{\gamma_j} (q_i \cdot k_j) \text{ for } j \le i
#
# The chain has 512 steps now instead of 32,768, each of a few products. *Q*, *K*, *V* and *O* have
# a row for each token, and *γ* multiplies row *i* by *γᵢ*. *P U* is attention without softmax:
#
# .. math::
#    U = T (V - \gamma K S), \qquad O = \text{scale}\, \gamma Q S + P U, \qquad
#    S \leftarrow \gamma_C S + \bigl(\tfrac{\gamma_C}{\gamma} K\bigr)^\top U
#
# In PyTorch, with these names:

# sphinx_gallery_fold = "the rule in chunks, in PyTorch"


def in_chunks(q, k, v, g, beta, scale, C=64, kept=None):
    """Return the gated delta rule in the dtype of *g*; *kept* is the dtype of the state."""
    tokens, share = v.shape[1], v.shape[2] // k.shape[2]

    def split(x):  # into [batch, heads, chunks, C, …], the last chunk filled up with zeros
        x = torch.cat([x, x.new_zeros(len(x), -tokens % C, *x.shape[2:])], dim=1)
        return x.to(g.dtype).transpose(1, 2).unflatten(2, (-1, C))

    q, k = (split(x.repeat_interleave(share, dim=2)) for x in (q, k))
    v, g, beta = split(v), split(g.clamp(min=-40)), split(beta)
    log = g.cumsum(-1)  # the logarithm of γ
    decay = (log[..., :, None] - log[..., None, :]).tril().exp().tril()
    a = beta[..., None] * (k @ k.mT * decay).tril(-1)
    t = torch.linalg.solve_triangular(a, torch.diag_embed(beta), upper=False, unitriangular=True)
    p = scale * (q @ k.mT) * decay
    past, left = log.exp()[..., None], (log[..., -1:] - log).exp()[..., None]
    state, o = v.new_zeros(*v.shape[:2], q.shape[-1], v.shape[-1]), torch.empty_like(v)
    for c in range(v.shape[2]):
        u = t[:, :, c] @ (v[:, :, c] - past[:, :, c] * (k[:, :, c] @ state))
        o[:, :, c] = scale * past[:, :, c] * (q[:, :, c] @ state) + p[:, :, c] @ u
        state = past[:, :, c, -1:] * state + (left[:, :, c] * k[:, :, c]).mT @ u
        state = state.to(kept or g.dtype).to(g.dtype)
    return o.flatten(2, 3)[:, :, :tokens].transpose(1, 2)


# %%
# The check draws random tokens, and compares the kernel with this form in float64:

# sphinx_gallery_fold = "draws problems, and compares with float64"


def draw(tokens, k_heads, v_heads, d, dtype=torch.float16, batch=1):
    """Return random arguments; queries and keys have length 1, as in the models."""
    q, k = torch.randn(2, batch, tokens, k_heads, d, device=DEVICE)
    q, k = ((x / x.norm(dim=-1, keepdim=True)).to(dtype) for x in (q, k))
    v = torch.randn(batch, tokens, v_heads, d, device=DEVICE).to(dtype)
    g, beta = torch.rand(2, batch, tokens, v_heads, device=DEVICE)
    return q, k, v, -0.2 * g, beta


def compare(o, arguments, scale, tolerance):
    """Stop unless the error of *o*, relative to float64, is less than *tolerance*; return it."""
    exact = in_chunks(*(x.double() for x in arguments), scale)
    error = ((o.double() - exact).norm() / exact.norm()).item()
    assert error < tolerance, f"the error is {error:.1e}"
    return error


torch.manual_seed(0)
arguments = draw(192, 1, 2, 32, torch.float32)
error = compare(gated_delta_rule(*arguments, 0.2), arguments, 0.2, tolerance=1e-6)
print(f"token by token, the error is {error:.0e}")

# %%
# .. predict:: Which dtype keeps small corrections of a state that does not decay?
#    :choices: bf16 | fp16 | only fp32
#    :answer: only fp32
#
#    The state is a sum over the whole text. In bf16 a correction smaller than 1/256 of the number
#    that it changes can be lost, and in fp16 one smaller than 1/2048.
#
# Here tokens correct the state a little (*β* = 0.01). Only the state is rounded, after each chunk:

# sphinx_gallery_fold = "rounds the state to three dtypes"
q, k, v, g, beta = draw(4096, 1, 1, 32, torch.float32)
arguments = q, k, v.abs(), 0 * g, torch.full_like(beta, 0.01)
for kept in (torch.float32, torch.float16, torch.bfloat16):
    error = compare(in_chunks(*arguments, 1.0, kept=kept), arguments, 1.0, tolerance=0.1)
    print(f"a state in {kept} gives an error of {error:.0e}")

# %%
# So our kernel keeps the state and the sums of *g* in fp32. It computes *γᵢ* / *γⱼ* as the
# exponential of a difference of sums, since *γⱼ* may underflow. Factors of products have 16 bits.
#
# The inverse of a triangle
# ~~~~~~~~~~~~~~~~~~~~~~~~~
#
# Row *i* of the inverse needs all rows before it: 64 dependent steps. Blocks shorten the chain. The
# eight blocks of 8 × 8 on the diagonal are independent and take 7 steps together. Two neighbors *X*
# and *Y* on the diagonal, with the block *B* below *X* and left of *Y*, become one block of 16 by
# products, which tensor cores compute. Two more such levels give blocks of 32 and of 64:
#
# .. math::
#    \begin{pmatrix} X & 0 \\ B & Y \end{pmatrix}^{-1} =
#    \begin{pmatrix} X^{-1} & 0 \\ -Y^{-1} B X^{-1} & Y^{-1} \end{pmatrix}

# sphinx_gallery_fold = "draws the blocks of the inverse"


def draw_inverse():
    """Draw which part of the inverse of a 64 × 64 triangle each level computes."""
    _, ax = figure(height=3.4)
    levels = ((8, "#0d3b66", "7 steps"), (16, "#1b6ca8", "pairs of 8"))
    levels += ((32, "#7fb2d9", "pairs of 16"), (64, "#cfe3f1", "pairs of 32"))
    for size, color, label in levels:
        half = size // 2 if size > 8 else size
        for start in range(0, 64, size):
            place, style = (start, start + half % size), {"facecolor": color, "edgecolor": "white"}
            ax.add_patch(plt.Rectangle(place, half, half, **style))
        ax.add_patch(plt.Rectangle((0, 0), 0, 0, facecolor=color, label=label))
    ax.set(xlim=(0, 64), ylim=(64, 0), aspect="equal", xticks=[0, 8, 16, 32, 64])
    ax.set(yticks=[0, 8, 16, 32, 64], title="Blocks of the inverse, in order")
    ax.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    plt.show()


draw_inverse()

# %%
# ``small`` holds the eight blocks, and ``x`` becomes their inverses by elimination. Then each level
# keeps the blocks *B* of all pairs and computes :math:`Y^{-1} B X^{-1}` of all pairs in two
# products. ``KIND`` is the dtype of their factors:


@triton.jit
def inverse(a, C: tl.constexpr, KIND: tl.constexpr):
    """Return the inverse of 1 + *a*, [C, C]; *a* is zero on the diagonal and above."""
    B: tl.constexpr = 8
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
    for level in tl.static_range(3):  # pairs of blocks of 8, then of 16, then of 32
        block = row // (B * 2**level)
        neighbors = (block[:, None] ^ block[None, :]) == 1
        b, rounded = tl.where(neighbors, a, 0.0).to(KIND), x.to(KIND)  # the blocks B
        right = tl.dot(b, rounded, input_precision="ieee").to(KIND)
        x -= tl.dot(rounded, right, input_precision="ieee")
    return x


# %%
# Two kernels
# -----------
#
# ``chunk_kernel`` computes *T*, *P* and the logarithms of *γ* of all chunks at the same time, with
# a program for each chunk and head of keys.

# sphinx_gallery_fold = "the kernel of the chunks"


@triton.jit
def chunk_kernel(
    q_ptr, k_ptr, g_ptr, beta_ptr, tp_ptr, tokens, k_heads, v_heads, scale,
    C: tl.constexpr, D: tl.constexpr, SHARE: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Compute T, P and the logarithm of γ of a chunk, for the SHARE heads that have its keys."""
    chunk, k_head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i, d = tl.arange(0, C), tl.arange(0, D)
    token, real = batch * tokens + chunk * C + i, chunk * C + i < tokens  # others change nothing
    at_k = (token * k_heads + k_head)[:, None] * D + d[None, :]
    k = tl.load(k_ptr + at_k, mask=real[:, None], other=0.0)
    q = tl.load(q_ptr + at_k, mask=real[:, None], other=0.0)
    kk = tl.dot(k, tl.trans(k), input_precision="ieee")
    qk = tl.dot(q, tl.trans(k), input_precision="ieee")
    for head in range(k_head * SHARE, (k_head + 1) * SHARE):
        g = tl.load(g_ptr + token * v_heads + head, mask=real, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + token * v_heads + head, mask=real, other=0.0).to(tl.float32)
        g = tl.where(g < -40.0, -40.0, g)  # e⁻⁴⁰ is nothing, and -inf - -inf is nan; a nan stays
        log = tl.cumsum(g, axis=0)
        between = tl.where(i[:, None] >= i[None, :], log[:, None] - log[None, :], -float("inf"))
        decay = tl.exp(between)
        at = (batch * v_heads + head) * tl.num_programs(0) + chunk
        rows = tp_ptr + at * (2 * C + 2) * C  # of T, of P, and two for the logarithms in fp32
        tl.store((rows + 2 * C * C).to(tl.pointer_type(tl.float32)) + i, log)
        tp_ptrs = rows + i[:, None] * C + i[None, :]
        tl.store(tp_ptrs + C * C, (scale * qk * decay).to(tp_ptr.dtype.element_ty))
        a = tl.where(i[:, None] > i[None, :], beta[:, None] * kk * decay, 0.0)
        t = inverse(a, C, KIND) * beta[None, :]
        tl.store(tp_ptrs, t.to(tp_ptr.dtype.element_ty))


# %%
# ``scan_kernel`` walks over the chunks. Each program keeps 64 columns of the state of a head, so 64
# heads of 128 columns give 128 programs. It keeps them **transposed**: then the left factor of all
# five products is a result that is in registers already, and only the right factor comes from
# shared memory. *Descriptors*, which let the hardware fetch whole tiles (:doc:`03b-full-waves`),
# load the next chunks meanwhile, and put zeros past the last token.


@triton.jit
def scan_kernel(
    q_ptr, k_ptr, v_ptr, tp_ptr, o_ptr, tokens, k_heads, v_heads, scale,
    C: tl.constexpr, D: tl.constexpr, BLOCK_V: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Walk over the chunks of one head, with BLOCK_V columns of its state."""
    head, batch, chunks = tl.program_id(1), tl.program_id(2).to(tl.int64), tl.cdiv(tokens, C)
    at_k, at_v = head // SHARE * D, head * D + tl.program_id(0) * BLOCK_V
    first, k_row, v_row = (batch * v_heads + head) * chunks, k_heads * D, v_heads * D
    q_ptr, k_ptr = q_ptr + batch * tokens * k_row, k_ptr + batch * tokens * k_row
    v_ptr, o_ptr = v_ptr + batch * tokens * v_row, o_ptr + batch * tokens * v_row
    q_tiles = tl.make_tensor_descriptor(q_ptr, [tokens, k_row], [k_row, 1], [C, D])
    k_tiles = tl.make_tensor_descriptor(k_ptr, [tokens, k_row], [k_row, 1], [C, D])
    v_tiles = tl.make_tensor_descriptor(v_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK_V])
    o_tiles = tl.make_tensor_descriptor(o_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK_V])
    tp_ptr += first * (2 * C + 2) * C
    tp_tiles = tl.make_tensor_descriptor(tp_ptr, [(2 * C + 2) * chunks, C], [C, 1], [C, C])
    state = tl.zeros((BLOCK_V, D), tl.float32)  # transposed
    for chunk in range(chunks):
        k, v = k_tiles.load([chunk * C, at_k]), v_tiles.load([chunk * C, at_v])
        row, rounded = chunk * (2 * C + 2), state.to(v.dtype)
        t = tp_tiles.load([row, 0])
        logs = (tp_ptr + 2 * C * C).to(tl.pointer_type(tl.float32))
        log, last = tl.load(logs + tl.arange(0, C))[None, :], tl.load(logs + C - 1)
        read = tl.exp(log) * tl.dot(rounded, tl.trans(k), input_precision="ieee")
        missing = (tl.trans(v) - read).to(v.dtype)
        u = tl.dot(missing, tl.trans(t), input_precision="ieee")
        left = (u * tl.exp(last - log)).to(v.dtype)
        state = tl.dot(left, k, tl.exp(last) * state, input_precision="ieee")
        q, p = q_tiles.load([chunk * C, at_k]), tp_tiles.load([row + C, 0])
        o = scale * tl.exp(log) * tl.dot(rounded, tl.trans(q), input_precision="ieee")
        o = tl.trans(tl.dot(u.to(v.dtype), tl.trans(p), o, input_precision="ieee"))
        o_tiles.store([chunk * C, at_v], o.to(v.dtype))
        tp_ptr += (2 * C + 2) * C


# %%
# In a program
# ------------
#
# The public ``gated_delta_rule`` launches both kernels, and keeps a plan of the launches as
# :doc:`/programming-guide/chapter-6/calls` explains. *T* and *P* pass through memory. Descriptors
# that a kernel makes lie in memory that ``triton.set_allocator`` provides. That setting belongs to
# the program that calls us, so we set it in a copy of Python's context (``contextvars``) only.

# sphinx_gallery_fold = "the function with its checks"
from shared.compiled import between_graphs
from shared.launch import Launch, key_of
from shared.plans import Plans


def check_arguments(q, k, v, g, beta, scale):
    """Raise TypeError or ValueError, naming the argument, if the rule cannot be computed."""
    named = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    for name, x in named.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        wanted = "[batch, tokens, heads, d]" if name in "qkv" else "[batch, tokens, heads]"
        if x.ndim != wanted.count(",") + 1 or x.layout != torch.strided:
            raise ValueError(f"{name} must be {wanted}, but is {x.layout}, {tuple(x.shape)}")
        if x.device.type != DEVICE.type or x.device != q.device:
            wanted = f"a {DEVICE.type} device, the same for all"
            raise ValueError(f"{name} must be on {wanted}, but is on {x.device}")
        allowed = (q.dtype,) if name in "kv" else (torch.float16, torch.bfloat16, torch.float32)
        if x.dtype not in allowed:
            wanted = "as q" if name in "kv" else "float16, bfloat16 or float32"
            raise TypeError(f"{name} must be {wanted}, but its dtype is {x.dtype}")
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(f"{name} requires a gradient, which this rule lacks: torch.no_grad()")
    wanted = {"k": q.shape, "v": (*q.shape[:2], v.shape[2], q.shape[3])}
    for name, shape in (wanted | {"g": v.shape[:3], "beta": v.shape[:3]}).items():
        if named[name].shape != shape:
            found = tuple(named[name].shape)
            raise ValueError(f"{name} must have shape {tuple(shape)}, but has {found}")
    if q.shape[3] not in (16, 32, 64, 128) or q.shape[2] == 0 or v.shape[2] % q.shape[2]:
        wanted = "d must be 16, 32, 64 or 128, and the heads of v a multiple of those of q"
        raise ValueError(f"{wanted}, but q has shape {tuple(q.shape)}, and v {tuple(v.shape)}")
    if scale is not None and not (isinstance(scale, int | float) and abs(scale) < 2.0**128):
        raise ValueError(f"scale must be a finite number of fp32, but is {scale!r}")


def plan_of(q, v, scale):
    """Return the shape of *T* and *P* with the logarithms, and both launches."""
    (batch, tokens, k_heads, d), v_heads, chunks = q.shape, v.shape[2], triton.cdiv(q.shape[1], 64)
    exact, scale = q.dtype == torch.float32, d**-0.5 if scale is None else float(scale)
    sizes = {"C": 64, "D": d, "SHARE": v_heads // k_heads, "num_warps": 8 if exact else 4}
    numbers, kind = (tokens, k_heads, v_heads, scale), tl.float32 if exact else tl.float16
    first = Launch(chunk_kernel, (chunks, k_heads, batch), numbers, sizes | {"KIND": kind})
    width = 16 if exact else min(d, 64)  # products of fp32 need many registers
    sizes |= {"BLOCK_V": width, "num_stages": 1 if exact else 3}
    second = Launch(scan_kernel, (d // width, v_heads, batch), numbers, sizes)
    return (batch, v_heads, chunks, 130, 64), first, second


def allocate(size, *_):
    """Return memory for descriptors."""
    return torch.empty(size, dtype=torch.int8, device=torch.accelerator.current_accelerator())


def launch_with_descriptors(launch, *tensors):
    """Launch a kernel that makes descriptors; to be run in a copy of the context."""
    triton.set_allocator(allocate)
    launch(*tensors)


PLANS = Plans()


@between_graphs
def gated_delta_rule(q, k, v, g, beta, scale=None):
    """Return *o* of the gated delta rule, with a state of zero before the first token.

    Args:
        q: [batch, tokens, k heads, d] in fp16, bf16 or fp32; d is 16, 32, 64 or 128.
        k: As q. The rule is stable if beta · |k|² ≤ 2; models normalize the keys.
        v: [batch, tokens, v heads, d]; v heads is a multiple of k heads.
        g: [batch, tokens, v heads], the logarithms of the decays; -inf clears the state.
        beta: As g, the strengths of the corrections. The dtypes of both may differ from q's.
        scale: What the output is multiplied by; d ** -0.5 if None.

    Raises:
        TypeError: An argument is no tensor, or its dtype is not as described.
        ValueError: Shapes or devices do not fit, *scale* is no finite number, or a tensor requires
            a gradient.
    """
    try:
        q, k, v, g, beta = (x.resolve_neg() for x in (q, k, v, g, beta))
        needs = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, g, beta))
        plan = None if needs else PLANS.get((key_of(q, k, v, g, beta), scale))
    except (AttributeError, RuntimeError, TypeError):  # what cannot be in a key is refused below
        plan = None
    if plan is None:
        check_arguments(q, k, v, g, beta, scale)
        if v.numel() == 0:
            return torch.empty_like(v)
        if not ON_GPU and q.dtype == torch.bfloat16:  # the interpreter computes bf16 wrongly
            return gated_delta_rule(q.float(), k.float(), v.float(), g, beta, scale).bfloat16()
        q, k, v, g, beta = (
            x.clone(memory_format=torch.contiguous_format) if x.data_ptr() % 16 else x.contiguous()
            for x in (q, k, v, g, beta)
        )
        PLANS.keep((key_of(q, k, v, g, beta), scale), plan := plan_of(q, v, scale))
    shape, first, second = plan
    tp, o = v.new_empty(shape), torch.empty_like(v)
    first(q, k, g, beta, tp)
    contextvars.copy_context().run(launch_with_descriptors, second, q, k, v, tp, o)
    return o


dtype = torch.bfloat16 if ON_GPU else torch.float16
problems = [draw(tokens, 1, 2, 32, dtype) for tokens in (1, 63, 64, 65)]
problems += [draw(65, 2, 4, 128, dtype, batch=2), draw(130, 1, 3, 64, torch.float32)]
g, beta = problems[-1][3:]
g[:, ::50], g[:, 1::3], beta[:, ::4], beta[:, 1::4] = -float("inf"), 0.0, 0.0, 1.0
for arguments in 2 * problems:
    tolerance = max(2 * torch.finfo(arguments[0].dtype).eps, 1e-5)
    compare(gated_delta_rule(*arguments, 0.1), arguments, 0.1, tolerance)
print(f"gated_delta_rule is right on {len(problems)} problems")

# %%
# The benchmark
# -------------
#
# One text has 16 heads of queries and keys, 64 of values, *d* = 128, and bf16. PyTorch's form in
# chunks is in fp32. The ceiling is a copy of as many bytes as the arguments and the output have.

# sphinx_gallery_fold = "checks the longest text in float64, times the rule, and draws the times"
# sphinx_gallery_xray = "chunk_kernel: 32,768 tokens, bf16; scan_kernel: 32,768 tokens, bf16"
from matplotlib.scale import LogScale
from shared.bench import draw_rates, graph_of, rates, write_calls, write_rows


def benchmark(tokens):
    """Return rows (tokens, heads, provider, unit, median, p20, p80)."""
    q, k, v, g, beta = arguments = draw(tokens, 16, 64, 128, torch.bfloat16)
    source = torch.empty(k.nbytes + v.nbytes + g.nbytes, dtype=torch.uint8, device=DEVICE)
    given, (shape, first, _) = (*arguments, 0.1), plan_of(q, v, 0.1)
    calls = {"triton": partial(gated_delta_rule, *given), "bound": source.clone}
    calls |= {"triton, chunks": partial(first, q, k, g, beta, v.new_empty(shape))}
    calls |= {"triton, first": partial(plain_rule, *given)}
    calls |= {"torch": graph_of(partial(in_chunks, *given))}
    return rates((tokens, 64), calls, "ms", rounds=8)


if ON_GPU:
    arguments = draw(32768, 16, 64, 128, torch.bfloat16)
    compare(gated_delta_rule(*arguments), arguments, 128**-0.5, tolerance=0.01)
    sizes = [2048, 4096, 8192, 16384, 32768]
    rows = [row for tokens in sizes for row in benchmark(tokens)]
    write_rows("delta-rule.csv", ["tokens", "heads"], rows)
    labels = {"triton": "gated_delta_rule", "triton, first": "token by token"}
    labels |= {"torch": "PyTorch, in chunks", "bound": "copy (ceiling)"}
    axes = {"xscale": LogScale(None, base=2), "xticks": sizes, "xticklabels": sizes}
    draw_rates(rows, labels, "Gated delta rule, 64 heads", "tokens", yscale="log", **axes)
    gated_delta_rule(*draw(32768, 16, 64, 128, torch.bfloat16))  # the launch of the X-ray
    short = partial(gated_delta_rule, *draw(64, 1, 1, 128, torch.bfloat16))
    write_calls({"gated_delta_rule": {"triton": short}})
else:
    print("Without a GPU there is nothing to time.")

# %%
# Twice the text takes about twice the time. At 32,768 tokens ``gated_delta_rule`` takes
# :measured:`triton` ms, the form in PyTorch :measured:`torch` ms, and token by token
# :measured:`token` ms. Of our time, :measured:`chunks` % passes before the chain begins. The copy
# takes only :measured:`bound` ms, so bytes are not the limit. The chain is **latency-bound**: a
# step of 64 tokens takes :measured:`link` µs, because three of its products wait for each other.
#
# :doc:`/programming-guide/chapter-9/libraries` times the rule beside flash-linear-attention's, and
# has the public figures of FlashQLA and FlashInfer. A head's chain runs on two programs, so a few
# heads leave most multiprocessors idle: :doc:`14b-segments` reads parts of the text in parallel. A
# call keeps the CPU busy for :measured:`cpu` µs. In a loop that does not wait, a call costs the
# larger of the CPU's and the GPU's time.
#
# Exercises
# ---------
#
# 1. **Without a gate** *(easy, 20 minutes)*. Write ``delta_rule(q, k, v, beta)``.
#    :doc:`Solution <solutions/14-delta-rule>`.
# 2. **A prefix** *(medium, 40 minutes)*. Let ``continue_rule(q, k, v, g, beta, state)`` start from
#    a state, and return the output and the new state. :doc:`Solution <solutions/14-prefix>`.
#
# References
# ----------
#
# * Songlin Yang, Jan Kautz, Ali Hatamizadeh: *Gated delta networks*,
#   https://arxiv.org/abs/2412.06464
# * Songlin Yang et al.: *Parallelizing linear transformers with the delta rule over sequence
#   length*, https://arxiv.org/abs/2406.06484
