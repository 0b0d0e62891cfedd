"""
Attention: the backward pass
============================

You give the function of :doc:`06-fused-attention` its gradients. The forward pass stores one more
number for each query. The backward pass recomputes the weights from it, and gives the same bits
every time. From 1024 tokens on it reaches, on average, :measured:`share64` % of cuDNN's speed with
a head dimension of 64, and :measured:`share128` % with 128. From 8192 tokens on it reaches
:measured:`far64` % and :measured:`far128` %.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "transformer"
import math
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import scaled_dot_product_attention as torch_attention

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import draw_rates, figure, rates, write_rows

COUNTS = ["heads", "queries", "keys", "lse_ptr", "delta_ptr"]  # one kernel for all lengths

# %%
# Let *P* be the weights of the forward pass, O = P V its output, and dO the gradient of the output,
# which autograd hands to us; dX is the gradient of X. The chain rule gives
#
# .. math::
#
#     dV = P^T dO \qquad dP = dO\, V^T \qquad dS = P \circ (dP - \delta) \qquad
#     dQ = \mathrm{scale} \cdot dS\, K \qquad dK = \mathrm{scale} \cdot dS^T Q
#
# Here *S* are the scores, ∘ multiplies element by element, and :math:`\delta_i = \sum_j P_{ij}\,
# dP_{ij}` comes from the softmax: the weights of a query add up to 1, so raising one lowers the
# others. In PyTorch, for one head:


def formula(q, k, v, do):
    """Return dQ, dK and dV of one head, each [N, d]."""
    scale = q.shape[-1] ** -0.5
    s = scale * q @ k.T
    lse = torch.logsumexp(s, -1, keepdim=True)  # one number for each query
    p = torch.exp(s - lse)  # the weights
    delta = (do * (p @ v)).sum(-1, keepdim=True)
    ds = p * (do @ v.T - delta)
    return scale * ds @ k, scale * ds.T @ q, p.T @ do


# %%

# sphinx_gallery_fold = "compares the formulas with autograd"
torch.manual_seed(0)
q, k, v = torch.randn(3, 6, 4, dtype=torch.float64).requires_grad_().unbind()
o = torch.softmax(q @ k.T * 4**-0.5, -1) @ v
do = torch.randn_like(o)
expected = torch.autograd.grad(o, (q, k, v), do)
torch.testing.assert_close(formula(q, k, v, do), expected)
print("dQ, dK and dV agree with autograd")

# %%
# **The weights** are N × N numbers, and storing them would undo what the forward pass saved. So
# they are recomputed from *Q* and *K*. The forward pass stores the **log-sum-exp** of the scores of
# each query, ``lse``, the logarithm of the softmax's denominator. With it, a weight needs no
# maximum and no sum: :math:`P = e^{S - \mathrm{lse}}`. Any tile of *P* can be computed alone.
#
# **Delta** is a sum over all keys, but it is also a product of two short rows, which exist already:
# :math:`\delta_i = \sum_j P_{ij} (dO_i \cdot V_j) = dO_i \cdot O_i`.
#
# **Try it** *(easy, 15 minutes)*. Write ``delta(o, do)`` for fp16, with sums in fp32, and check it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 06b-delta mine.py
#    Not yet. delta((1, 1, 1, 16), (1, 1, 1, 16)): 1 of 1 elements are wrong. The first is at
#    (0, 0, 0): 2684 in place of 2684.61. All are wrong: look at the formula, and at the strides,
#    before the masks.
#
# The answer checked here multiplies and adds in fp16, which has 11 significant bits.
#
# **Two directions.** *dQ* is a sum over keys, so one program can own some queries and walk along
# their row of tiles. *dK* and *dV* are sums over queries, so another program owns some keys and
# walks down their column of tiles, for one program the dark ones. Causal attention skips the gray:

# sphinx_gallery_fold = "draws what one program of each kernel visits"
_, ax = figure(height=3.2)
for left, title, visits in (
    (0, "dQ: one block of queries", lambda i, j: i == 3),
    (7.5, "dK, dV: one block of keys", lambda i, j: j == 2),
):
    for i, j in [(i, j) for i in range(6) for j in range(6)]:
        color = "#eeeeee" if j > i else "#1b6ca8" if visits(i, j) else "#cfe3f1"
        ax.add_patch(plt.Rectangle((left + j, i), 1, 1, facecolor=color, edgecolor="#444444"))
    ax.text(left + 3, -0.3, title, ha="center", va="bottom")
    ax.text(left + 3, 6.2, "keys", ha="center", va="top")
    ax.text(left - 0.2, 3, "queries", ha="right", va="center", rotation=90)
ax.set(xlim=(-0.9, 13.6), ylim=(7, -1.1), aspect="equal")
ax.axis("off")
plt.show()

# %%
# The kernel
# ----------
#
# The first kernel computes the gradient of the queries. Its loop is that of the forward pass, with
# the lines of ``formula`` inside. It also stores delta, for the second kernel.


@triton.jit
def places(ptr, strides, batch, head, rows, D: tl.constexpr):
    """Return the addresses of some *rows* of one head, [rows, D]; their elements lie together."""
    start = ptr + batch.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]
    return start + rows.to(tl.int64)[:, None] * strides[2] + tl.arange(0, D)[None, :]


@triton.jit(do_not_specialize=COUNTS)
def query_gradient_kernel(
    k_desc, v_desc, q_ptr, o_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr,
    q_strides, o_strides, do_strides, dq_strides, heads, queries, keys, scale, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute dQ and delta for BLOCK_M queries of one head; *scale* contains log2(e)."""
    blocks = tl.cdiv(queries, BLOCK_M)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    row = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # the longest program first
    rows = row + tl.arange(0, BLOCK_M)
    vector = (tl.program_id(0) // blocks).to(tl.int64) * queries + rows
    mask = (rows < queries)[:, None]
    q = tl.load(places(q_ptr, q_strides, batch, head, rows, D), mask=mask, other=0.0)
    do = tl.load(places(do_ptr, do_strides, batch, head, rows, D), mask=mask, other=0.0)
    o = tl.load(places(o_ptr, o_strides, batch, head, rows, D), mask=mask, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1)
    tl.store(delta_ptr + vector, delta, mask=rows < queries)
    lse = tl.load(lse_ptr + vector, mask=rows < queries, other=float("inf"))  # so that p is 0
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = keys // BLOCK_N * BLOCK_N, keys
    if CAUSAL:
        whole, stop = min(whole, (row + 1) // BLOCK_N * BLOCK_N), min(stop, row + BLOCK_M)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        v = v_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N]
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        log_p = tl.fma(s, scale, -lse[:, None])
        if col >= whole:
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= rows[:, None]
            log_p = tl.where(seen, log_p, -float("inf"))
        p = tl.exp2(log_p)
        ds = (p * (dp - delta[:, None])).to(k.dtype)  # <-
        dq = tl.dot(ds, k, dq, input_precision="ieee")  # <-
    tl.store(places(dq_ptr, dq_strides, batch, head, rows, D), dq * plain_scale, mask=mask)


# %%
# A key that is not seen has the weight :math:`2^{-\infty} = 0`, so it adds nothing. Queries behind
# the last one have an ``lse`` of infinity, which makes their weights 0 as well. Only the tiles of
# the loop have descriptors, since the CPU encodes a descriptor anew in each launch. ``places``
# gives the addresses of the other tiles. ``scale`` contains log₂ e, because the kernel uses powers
# of two; ``plain_scale`` does not.
#
# The gradients of keys and values
# --------------------------------
#
# In the second kernel a program owns ``BLOCK_N`` *keys* and walks over the queries of all heads
# that share these keys. Under the causal mask, the first queries see none of them and are skipped.


@triton.jit(do_not_specialize=COUNTS)
def key_gradient_kernel(
    q_desc, do_desc, k_ptr, v_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr,
    k_strides, v_strides, dk_strides, dv_strides, heads, queries, keys, scale, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV for BLOCK_N keys of one head of keys; *scale* contains log2(e)."""
    blocks = tl.cdiv(keys, BLOCK_N)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads  # of keys
    col = tl.program_id(0) % blocks * BLOCK_N  # the longest program first
    cols = col + tl.arange(0, BLOCK_N)
    mask = (cols < keys)[:, None]
    k = tl.load(places(k_ptr, k_strides, batch, head, cols, D), mask=mask, other=0.0)
    v = tl.load(places(v_ptr, v_strides, batch, head, cols, D), mask=mask, other=0.0)
    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    start, masked = 0, 0
    if CAUSAL:
        start, masked = col // BLOCK_M * BLOCK_M, col + BLOCK_N - 1  # rows before it are masked
    if col + BLOCK_N > keys:
        masked = queries
    for member in range(GROUP):
        query_head = head * GROUP + member
        vectors = (batch * heads * GROUP + query_head).to(tl.int64) * queries
        for row in range(start, queries, BLOCK_M):
            rows = row + tl.arange(0, BLOCK_M)
            lse = tl.load(lse_ptr + vectors + rows, mask=rows < queries, other=float("inf"))
            delta = tl.load(delta_ptr + vectors + rows, mask=rows < queries, other=0.0)
            q = q_desc.load([batch, query_head, row, 0]).reshape(BLOCK_M, D)
            do = do_desc.load([batch, query_head, row, 0]).reshape(BLOCK_M, D)
            s = tl.dot(k, tl.trans(q), input_precision="ieee")  # [BLOCK_N, BLOCK_M]
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            log_p = tl.fma(s, scale, -lse[None, :])
            if row < masked:
                seen = cols[:, None] < keys
                if CAUSAL:
                    seen &= cols[:, None] <= rows[None, :]
                log_p = tl.where(seen, log_p, -float("inf"))
            p = tl.exp2(log_p)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")  # <-
            ds = (p * (dp - delta[None, :])).to(q.dtype)
            dk = tl.dot(ds, q, dk, input_precision="ieee")  # <-
    tl.store(places(dk_ptr, dk_strides, batch, head, cols, D), dk * plain_scale, mask=mask)
    tl.store(places(dv_ptr, dv_strides, batch, head, cols, D), dv, mask=mask)


# %%
# The tile of scores is transposed here, ``[BLOCK_N, BLOCK_M]``. So the weights are the left operand
# of :math:`dV = P^T dO` as they are, and the tensor cores of an H100 can take a left operand from
# registers. The other way round, the tile would go through shared memory to be transposed.
#
# Two kernels or one
# ------------------
#
# The backward pass has five products: the scores, dP, dV, dQ and dK. The forward pass has two.
#
# .. predict:: How many products do our two kernels compute together?
#    :choices: five | seven | ten
#    :answer: seven
#
#    Both need dS, so both compute the scores and dP: 3 in the first kernel, and 4 in the second.
#
# One kernel could do with five. The second kernel has dS, and could add its share to dQ. But then
# many programs add to the same rows of dQ in memory, by **atomic** additions. Their order changes
# from call to call, and with it the last bits of dQ. It also needs fp32 and a buffer of zeros.
#
# We tried two ways. ``tl.atomic_add`` adds every element on its own. ``desc.atomic_add`` hands a
# whole tile to the unit that also loads tiles (``cp.reduce.async.bulk.tensor`` in PTX). For
# N = 8192, *d* = 128, causal, our two kernels take :measured:`both` ms together. One kernel with
# ``tl.atomic_add`` takes :measured:`atomics` ms, and with ``desc.atomic_add`` :measured:`bulk` ms.
# These are times of one setting, 32 × 64 tiles and four warps, and include the zeros and the
# conversion of dQ. We did not tune it further: FlashAttention-3 does use one kernel, in CUDA.
# ``attention`` uses two kernels, and gives the same bits every time.

# sphinx_gallery_fold = "one kernel for all three gradients, with atomic additions"


@triton.jit
def atomic_kernel(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, dq_desc, dq_ptr, lse_ptr, delta_ptr,
    heads, n, scale, plain_scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV of BLOCK_N keys, causal, and add to dQ; the blocks divide *n*."""
    blocks = n // BLOCK_N
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    col = tl.program_id(0) % blocks * BLOCK_N
    cols = col + tl.arange(0, BLOCK_N)
    k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
    v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    vectors = (tl.program_id(0) // blocks).to(tl.int64) * n
    for row in range(col // BLOCK_M * BLOCK_M, n, BLOCK_M):
        rows = row + tl.arange(0, BLOCK_M)
        lse, delta = tl.load(lse_ptr + vectors + rows), tl.load(delta_ptr + vectors + rows)
        q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
        do = do_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
        log_p = tl.fma(tl.dot(k, tl.trans(q)), scale, -lse[None, :])
        if row < col + BLOCK_N - 1:
            log_p = tl.where(cols[:, None] <= rows[None, :], log_p, -float("inf"))
        p = tl.exp2(log_p)
        dv = tl.dot(p.to(do.dtype), do, dv)
        ds = (p * (tl.dot(v, tl.trans(do)) - delta[None, :])).to(q.dtype)
        dk = tl.dot(ds, q, dk)
        dq = tl.trans(tl.dot(tl.trans(k), ds))  # [BLOCK_M, D]
        if BULK:
            dq_desc.atomic_add([batch, head, row, 0], dq.reshape(1, 1, BLOCK_M, D))
        else:
            at = dq_ptr + (vectors + rows)[:, None] * D + tl.arange(0, D)[None, :]
            tl.atomic_add(at, dq, sem="relaxed")
    dk = (dk * plain_scale).to(q_desc.dtype)
    dk_desc.store([batch, head, col, 0], dk.reshape(1, 1, BLOCK_N, D))
    dv_desc.store([batch, head, col, 0], dv.to(q_desc.dtype).reshape(1, 1, BLOCK_N, D))


# %%
# Calling it
# ----------
#
# The forward kernel is that of :doc:`06-fused-attention`. One more line stores ``lse``, to the base
# of 2, because the kernels use powers of two.

# sphinx_gallery_fold = "the kernel of the forward pass"


@triton.jit(do_not_specialize=COUNTS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, heads, queries, keys, scale, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; *scale* contains log2(e)."""
    blocks = tl.cdiv(queries, BLOCK_M)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    row = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # the longest program first
    rows = row + tl.arange(0, BLOCK_M)
    vector = (tl.program_id(0) // blocks).to(tl.int64) * queries + rows
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = keys // BLOCK_N * BLOCK_N, keys
    if CAUSAL:
        whole, stop = min(whole, (row + 1) // BLOCK_N * BLOCK_N), min(stop, row + BLOCK_M)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if col >= whole:
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= rows[:, None]
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1) * scale)
        p = tl.exp2(tl.fma(s, scale, -m_new[:, None]))
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))
    tl.store(lse_ptr + vector, m + tl.log2(z), mask=rows < queries)  # <-


# %%
# Registers limit the tiles. In the second backward kernel with *d* = 128 and 64 keys, the two sums
# take 128 registers of each thread, and the tiles of P and dP take 32 each. A thread of an NVIDIA
# GPU has at most 255. With larger tiles many values would *spill* to memory.

# sphinx_gallery_fold = "chooses tiles, warps, stages, grids and constants"
GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
SHARED_BYTES = getattr(GPU, "shared_memory_per_block_optin", 65536)


def tile_for(kernel, q, keys):
    """Return (rows of a program, rows of a step of its loop) and the options of the launch."""
    wide, options = q.shape[3] == 128, {}
    if kernel is attention_kernel:
        (own, other), warps, stages = (128, 64) if wide else (64, 128), 4, 2
        if not wide and keys <= 1024:
            own, other, stages = 128, 64, 3
            options = {"maxnreg": 168} if ON_GPU and torch.version.cuda else {}  # of a thread
    elif kernel is query_gradient_kernel:
        own, other, warps, stages = (128, 64, 8, 3) if wide else (64, 64, 4, 3)
    else:
        own, other, warps, stages = 64, 64, 4, 2 if wide else 3
    if q.dtype == torch.float32:  # for accuracy, not for speed
        own, other, warps, stages, options = 64, 32, 4, 1, {}
    size = q.shape[3] * q.element_size()
    while other > 16 and 2 * (own + stages * other) * size > SHARED_BYTES - 2048:
        stages, other = (stages - 1, other) if stages > 1 else (1, other // 2)
    return (own, other), options | {"num_warps": warps, "num_stages": stages}


def settings(kernel, q, k, causal, scale):
    """Return (rows of a program, rows of a step), grid, numbers and constants of a launch."""
    (batch, heads, queries, d), (_, key_heads, keys, _) = q.shape, k.shape
    tile, options = tile_for(kernel, q, keys)
    of_keys = kernel is key_gradient_kernel
    length, own_heads = (keys, key_heads) if of_keys else (queries, heads)
    own, other = ("BLOCK_N", "BLOCK_M") if of_keys else ("BLOCK_M", "BLOCK_N")
    options |= {own: tile[0], other: tile[1], "GROUP": heads // key_heads, "D": d, "CAUSAL": causal}
    numbers = own_heads, queries, keys, scale * math.log2(math.e)
    numbers += () if kernel is attention_kernel else (scale,)
    return tile, (triton.cdiv(length, tile[0]) * batch * own_heads,), numbers, options


# %%


def described(x, rows):
    """Return a descriptor of *x*, [batch, heads, N, d], with tiles of *rows* by d."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, x.shape[3]])


def forward(q, k, v, causal, scale):
    """Return the output and the log-sum-exp of each query."""
    (m, n), grid, numbers, constants = settings(attention_kernel, q, k, causal, scale)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tiles = described(q, m), described(k, n), described(v, n), described(o, m)
    attention_kernel[grid](*tiles, lse, *numbers, **constants)
    return o, lse


def backward(q, k, v, o, lse, do, causal, scale):
    """Return the gradients of q, k and v."""
    dq, dk, dv, delta = [torch.empty_like(x) for x in (q, k, v, lse)]
    for kernel, looped, others in (
        (query_gradient_kernel, (k, v), (q, o, do, dq)),
        (key_gradient_kernel, (q, do), (k, v, dk, dv)),
    ):
        (_, rows), grid, numbers, constants = settings(kernel, q, k, causal, scale)
        tiles = [described(x, rows) for x in looped]
        strides = [x.stride()[:3] for x in others]
        kernel[grid](*tiles, *others, lse, delta, *strides, *numbers, **constants)
    return dq, dk, dv


# %%
# A ``torch.autograd.Function`` connects both. It keeps the inputs, the output and ``lse`` for the
# backward pass. Autograd runs the backward pass in a CPU thread of its own, which has not used the
# GPU yet. A descriptor needs a GPU that the thread knows, so ``backward`` sets the device.


class Attention(torch.autograd.Function):
    """Attention with its gradients."""

    @staticmethod
    def forward(ctx, q, k, v, causal, scale):
        """Return the output, and keep what the gradients need."""
        o, lse = forward(q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.options = causal, scale
        return o

    @staticmethod
    def backward(ctx, do):
        """Return the gradients of q, k and v, and none for the options."""
        if torch.is_grad_enabled():  # create_graph=True asks for gradients of the gradients
            raise RuntimeError("attention has no second derivative; leave out create_graph=True")
        if ON_GPU:
            torch.cuda.set_device(do.device)
        return *backward(*ctx.saved_tensors, do.contiguous(), *ctx.options), None, None


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for contiguous tensors; q, k and v get gradients."""
    return Attention.apply(q, k, v, causal, q.shape[3] ** -0.5 if scale is None else scale)


# %%
# Output and gradients are compared with float64. The weights, dS and each result are rounded to the
# dtype once. Gradients may be off by more, because :math:`dP - \delta` cancels.

# sphinx_gallery_fold = "compares output and gradients with float64, and atomics with both"
from shared.attention import compare_gradients, tensors

if ON_GPU:
    CASES = [(1, 2, 2, 4096, 4096, d, torch.bfloat16) for d in (64, 128)]
    CASES += [(1, 4, 2, 1000, 777, 128, torch.bfloat16)]
else:
    CASES = [(1, 4, 2, 70, 133, 64, torch.float16), (1, 1, 1, 1, 67, 16, torch.float32)]


def atomic_gradients(q, k, v, do, lse, delta, bulk):
    """Return (dQ, dK, dV) of causal attention from one kernel; *delta* is given."""
    (batch, heads, n, d), scale = q.shape, q.shape[3] ** -0.5
    dq, dk, dv = torch.zeros_like(q, dtype=torch.float32), torch.empty_like(k), torch.empty_like(v)
    sides = (q, 32), (k, 64), (v, 64), (do, 32), (dk, 64), (dv, 64), (dq, 32)
    numbers = heads, n, scale * math.log2(math.e), scale
    options = {"BLOCK_M": 32, "BLOCK_N": 64, "D": d, "BULK": bulk, "num_warps": 4, "num_stages": 3}
    tiles = [described(*side) for side in sides]
    atomic_kernel[n // 64 * batch * heads,](*tiles, dq, lse, delta, *numbers, **options)
    return dq.mul_(scale).to(q.dtype), dk, dv


def backward_inputs(q, k, v):
    """Return (q, k, v, o, lse, do) of causal attention, and delta."""
    o, lse = forward(q, k, v, True, q.shape[3] ** -0.5)
    do = torch.randn_like(o)
    return (q, k, v, o, lse, do), (o.float() * do.float()).sum(-1)


for case in CASES:
    for causal in (False, True):
        compare_gradients(attention, *tensors(*case, DEVICE), causal)
print("attention and its gradients agree with float64")
arguments, delta = backward_inputs(*tensors(1, 2, 2, 256, 256, 64, torch.float16, DEVICE))
(q, k, v, o, lse, do), scale = arguments, 64**-0.5
once, again = (backward(*arguments, True, scale) for _ in range(2))
assert all(torch.equal(x, y) for x, y in zip(once, again, strict=True))
for bulk in [False, True] if ON_GPU else [False]:  # the interpreter has no desc.atomic_add
    atomic = atomic_gradients(q, k, v, do, lse, delta, bulk)
    torch.testing.assert_close(atomic, once, rtol=2**-6, atol=2**-6)
print("the same bits twice; with atomics the same up to rounding")

# %%
# The benchmark
# -------------
#
# Sizes and peers are those of :doc:`06-fused-attention`. Each call computes three gradients through
# autograd. The rate counts five products. The picture shows causal attention with *d* = 128.

# sphinx_gallery_fold = "times the backward passes, keeps the rows, and draws the rates"
# sphinx_gallery_xray = "query_gradient_kernel: 16 heads × 16,384 tokens, d = 128, causal, bf16; key_gradient_kernel: 16 heads × 16,384 tokens, d = 128, causal, bf16"  # noqa: E501
from shared.attention import PEERS, gradient_calls, peers, random_inputs

if ON_GPU:
    arguments, delta = backward_inputs(*tensors(2, 16, 16, 8192, 8192, 128, torch.bfloat16, DEVICE))
    q, k, v, _, lse, do = arguments
    one = partial(atomic_gradients, q, k, v, do, lse, delta)
    calls = {"atomics": partial(one, False), "bulk": partial(one, True)}
    calls["both"] = partial(backward, *arguments, True, 128**-0.5)
    figures, rows = [row[:3] for row in rates((), calls, "ms", rounds=10)], []
    for d, c, n in [(d, c, 512 << i) for d in (64, 128) for c in (0, 1) for i in range(6)]:
        inputs = [x.requires_grad_() for x in random_inputs(n, d)]
        calls = {"triton": partial(attention, *inputs, bool(c))} | peers(*inputs, c)
        flops = 10 * 16384 * n * 2048 // (1 + c)
        rows += rates((n, d, c), gradient_calls(calls, inputs), "TFLOPS", flops, rounds=10)
    torch.autograd.grad(attention(*inputs, True).sum(), inputs)  # the launches of the X-rays
    write_rows("attention-backward.csv", ["N", "head_dim", "causal"], rows)
    shown = [row for row in rows if row[1:3] == (128, 1)]
    title, names = "Causal attention, backward, d = 128, bf16", {"triton": "attention", **PEERS}
    draw_rates(shown, names, title, "N, tokens", xscale="log")

# %%
# At N = 16,384 the backward pass reaches :measured:`long` TFLOPS, cuDNN :measured:`cudnn_long`, and
# FlashAttention-2 :measured:`flash_long`. An average hides how this changes with the length: with
# heads of 128 the pass has :measured:`near128` % of cuDNN's speed at 1024 tokens, and
# :measured:`last128` % at 16,384.
#
# **The rate counts five of seven products.** The two kernels multiply at 7/5 of the rate in the
# picture, :measured:`multiplied` TFLOPS at N = 16,384. The remaining gain is in fewer products.
#
# In a program
# ------------
#
# A function that others call has the checks of :doc:`06-fused-attention`: it copies views that no
# descriptor can describe, and refuses dtypes, shapes and devices without a kernel. The incoming
# gradient may be such a view as well; that of a plain sum is a single number, expanded. If no
# gradient is wanted, nothing is kept. ``torch.compile`` calls the function between its graphs. The
# launches and the descriptors are kept in plans: see :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "the function with its checks"
from shared.attention import check_attention, ready
from shared.launch import Launch, key_of, know_the_gpu, on_device_of
from shared.plans import ORDINARY, Plan, Plans

DTYPES = [torch.float16, torch.float32] + [torch.bfloat16] * ON_GPU  # wrong in the interpreter
PLANS = Plans()


def make_plan(kernel, q, k, tensors, sides, others, causal, scale):
    """Return a plan with descriptors of *tensors*, and with pointers to *others*."""
    tile, grid, numbers, options = settings(kernel, q, k, causal, scale)
    tiles = [described(x, tile[side]) for x, side in zip(tensors, sides, strict=True)]
    strides = [x.stride()[:3] for x in others]
    return Plan(Launch(kernel, grid, (*strides, *numbers), options), tiles)


def run_forward(plan, q, k, v):
    """Return (output, log-sum-exp to the base of 2)."""
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    plan((q, k, v, o), lse)
    return o, lse


def run_backward(q, k, v, o, lse, do, causal, scale):
    """Return the gradients of q, k and v."""
    know_the_gpu()  # autograd's own thread does not
    do = do.resolve_neg() if do.is_neg() else do
    plans = PLANS.get((key_of(q, k, v, o, do), causal, scale))
    if plans is None:
        q, k, v, o, do = (ready(x) for x in (q, k, v, o, do))
    dq, dk, dv, delta = [torch.empty_like(x) for x in (q, k, v, lse)]
    if plans is None:
        one = query_gradient_kernel, q, k, (k, v), (1, 1), (q, o, do, dq)
        other = key_gradient_kernel, q, k, (q, do), (1, 1), (k, v, dk, dv)
        plans = [make_plan(*parts, causal, scale) for parts in (one, other)]
        PLANS.keep((key_of(q, k, v, o, do), causal, scale), plans)
    plans[0]((k, v), q, o, do, dq, lse, delta)
    plans[1]((q, do), k, v, dk, dv, lse, delta)
    return dq, dk, dv


class PlannedAttention(torch.autograd.Function):
    """Attention with its gradients, for tensors that descriptors can describe."""

    @staticmethod
    def forward(ctx, plan, q, k, v, more):
        """Return the output, and keep what the gradients need; *more* is (causal, scale)."""
        o, lse = run_forward(plan, q, k, v)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.more = more
        return o

    @staticmethod
    def backward(ctx, do):
        """Return the gradients of q, k and v."""
        if torch.is_grad_enabled():
            raise RuntimeError("attention has no second derivative; leave out create_graph=True")
        return None, *run_backward(*ctx.saved_tensors, do, *ctx.more), None


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head; q, k and v get gradients.

    Arguments are those of :doc:`06-fused-attention`, and may require gradients. TypeError refuses
    what is no tensor, and dtypes other than fp16, bf16 (on a GPU) and fp32. ValueError refuses head
    dimensions other than 16, 32, 64 and 128, shapes or devices that do not fit, and a scale that is
    not positive. A backward pass with ``create_graph=True`` raises RuntimeError.
    """
    if torch.compiler.is_compiling():
        return not_compiled(q, k, v, causal, scale)
    try:
        if q.is_neg() or k.is_neg() or v.is_neg():  # the sign is still to be changed
            q, k, v = q.resolve_neg(), k.resolve_neg(), v.resolve_neg()
        plan = PLANS.get((key_of(q, k, v), type(causal), causal, scale))
    except (AttributeError, RuntimeError, TypeError):  # no such tensors, or a scale without a hash
        plan = None
    if plan is None or not {type(q), type(k), type(v)} <= ORDINARY:  # others may be without memory
        check_attention(q, k, v, causal, scale, DEVICE, DTYPES, gradients=True)
        if q.numel() == 0:
            return q + 0 * (k.sum() + v.sum())  # empty, with gradients of 0 for k and v
        q, k, v = ready(q), ready(k), ready(v)
    number = q.shape[3] ** -0.5 if scale is None else float(scale)
    if plan is None:
        with on_device_of(q):
            know_the_gpu()
            parts = (q, k, v, torch.empty_like(q)), (0, 1, 1, 0), ()
            plan = make_plan(attention_kernel, q, k, *parts, causal, number)
        PLANS.keep((key_of(q, k, v), type(causal), causal, scale), plan)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return PlannedAttention.apply(plan, q, k, v, (causal, number))
    return run_forward(plan, q, k, v)[0]


@torch.compiler.disable  # torch.compile calls it between its graphs
def not_compiled(*arguments):
    """Return ``attention(*arguments)``."""
    return attention(*arguments)


# %%
# The same check, also with other strides, and the CPU's share of a call:

# sphinx_gallery_fold = "checks the function, times its calls and kernels, and keeps the figures"
from shared.attention import first_longer
from shared.bench import write_calls, write_table
from shared.plans import empty_kernel

for case in CASES:
    for causal in (False, True):
        compare_gradients(attention, *tensors(*case, DEVICE), causal)
views = (x.transpose(1, 2) for x in tensors(1, 40, 40, 2, 2, 16, torch.float32, DEVICE))
compare_gradients(attention, *views, True, 3.0)
if ON_GPU:
    inputs = [x.requires_grad_() for x in random_inputs(256, 64, 256)]
    calls = {"triton": partial(attention, *inputs), "torch": partial(torch_attention, *inputs)}
    backward_calls, empty = gradient_calls(calls, inputs), empty_kernel[(1,)]
    backward_calls["launch"] = lambda: (empty(), empty())
    x = torch.ones(64, 1024, device=DEVICE, requires_grad=True)
    product = partial(torch.autograd.grad, 2 * x, x, x.detach(), retain_graph=True)
    backward_calls["multiplication"] = product
    cpu = write_calls(
        {"attention": calls | {"launch": empty}, "attention backward": backward_calls}
    )

    def call_of(*inputs):
        """Return a call of the backward pass."""
        inputs = [x.requires_grad_() for x in inputs]
        return gradient_calls({"triton": partial(attention, *inputs, True)}, inputs)["triton"]

    longer = first_longer(call_of, cpu["attention backward", "triton"])
    figures.append(("GPU longer from", "tokens", longer))
    write_table("06b-attention-backward-values.csv", ["name", "unit", "value"], figures)

# %%
# A backward pass keeps the CPU busy for :measured:`cpu` µs, and PyTorch's for :measured:`cpu_torch`
# µs. Autograd alone takes :measured:`autograd` µs of both, the time of the backward pass of one
# multiplication, and our two launches take :measured:`launches` µs. In a loop that does not wait, a
# call costs the larger of two times: the CPU's, and the GPU's. For one causal sequence with 16
# heads of 128, the GPU's is the larger from :measured:`gpu_longer` tokens on.
#
# Exercises
# ---------
#
# 1. **Delta** *(easy, 15 minutes)*. The exercise above. :doc:`Solution <solutions/06b-delta>`.
# 2. **The gradient of the scale** *(medium, 30 minutes)*. Some models learn the scale of their
#    scores. Compute its gradient without the scores, in ``scale_gradient(q, dq, scale)``, with the
#    same bits every time. :doc:`Solution <solutions/06b-scale-gradient>`.
#
# References
# ----------
#
# * Tri Dao: *FlashAttention-2*, ICLR 2024, https://arxiv.org/abs/2307.08691
# * Markus N. Rabe and Charles Staats: *Self-attention does not need O(n²) memory*, 2021,
#   https://arxiv.org/abs/2112.05682
