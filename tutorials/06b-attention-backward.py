"""
Attention: the backward pass
============================

You give the ``attention`` of :doc:`06-fused-attention` its gradients. The forward pass keeps one
number for each query. The backward pass computes the weights again, and gives the same bits every
time. From 1024 tokens on it reaches :measured:`share64` % of cuDNN's speed with heads of 64
numbers, and :measured:`share128` % with heads of 128.
"""

# %%
# The kernel
# ----------

# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "transformer"
import math
import os
import threading
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


COUNTS = ["heads", "queries", "keys", "lse_ptr", "delta_ptr"]  # one kernel for all lengths


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
        ds = (p * (dp - delta[:, None])).to(k.dtype)
        dq = tl.dot(ds, k, dq, input_precision="ieee")
    tl.store(places(dq_ptr, dq_strides, batch, head, rows, D), dq * plain_scale, mask=mask)


# %%
# This kernel computes the gradient of the queries. A program owns ``BLOCK_M`` queries of one head
# and walks over the keys, as in the forward pass. A key that is not seen has the weight
# :math:`2^{-\infty} = 0`, so it adds nothing. Only the tiles of the loop have descriptors. The CPU
# encodes them anew in each launch, and an address takes it less time.
#
# What the backward pass needs
# ----------------------------
#
# Let :math:`P` be the weights and :math:`dO` the gradient of the output. By the chain rule,
#
# .. math::
#
#     dV = P^T dO \qquad dP = dO\, V^T \qquad dS = P \circ (dP - \delta) \qquad
#     dQ = \mathrm{scale} \cdot dS\, K \qquad dK = \mathrm{scale} \cdot dS^T Q
#
# with :math:`\delta_i = \sum_j P_{ij}\, dP_{ij}`.
#
# **The weights.** Kept from the forward pass, they would be the N × N matrix again. So they are
# computed a second time, from *Q* and *K*. The forward pass keeps one number for each query, the
# **log-sum-exp** of its scores, ``lse``. With it, :math:`P = 2^{S - \mathrm{lse}}` needs no maximum
# and no sum.
#
# **Delta.** It is a sum over all keys, but :math:`\sum_j P_{ij} (dO_i \cdot V_j) = dO_i \cdot O_i`
# is the dot product of two rows that exist already. This kernel stores it for the next one.
#
# **The work.** Five products: the scores, :math:`dV`, :math:`dP`, :math:`dQ` and :math:`dK`. The
# forward pass has two, so the backward pass has 2.5 times the operations.
#
# A small example in float64 shows both tricks:

# sphinx_gallery_fold = "compares the formulas with autograd"
torch.manual_seed(0)
q, k, v = torch.randn(3, 6, 4, dtype=torch.float64).requires_grad_().unbind()
scores = q @ k.T * 4**-0.5
o = torch.softmax(scores, -1) @ v
do = torch.randn_like(o)
expected = torch.autograd.grad(o, (q, k, v), do)
lse = torch.logsumexp(scores, -1, keepdim=True)
p = torch.exp(scores - lse)  # the weights, from one number a row
delta = (do * o).sum(-1, keepdim=True)
ds = p * (do @ v.T - delta)
gradients = ds @ k * 4**-0.5, ds.T @ q * 4**-0.5, p.T @ do
for name, ours, right in zip(("dQ", "dK", "dV"), gradients, expected, strict=True):
    torch.testing.assert_close(ours, right)
    print(f"{name} agrees with autograd; its first row:", [f"{x:.3f}" for x in ours[0].tolist()])

# %%
# The gradients of keys and values
# --------------------------------
#
# :math:`dK` and :math:`dV` are sums over queries. So another kernel owns a block of *keys* and
# walks over the queries. If heads of queries share a head of keys, it walks over all of them. In a
# causal kernel the first queries do not see these keys, so the loop begins at the diagonal.


@triton.jit(do_not_specialize=COUNTS)
def key_gradient_kernel(
    q_desc, do_desc, k_ptr, v_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, dq_ptr,
    k_strides, v_strides, dk_strides, dv_strides, heads, queries, keys, scale, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV for BLOCK_N keys of one head of keys; with ATOMIC, add to dQ as well."""
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
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            ds = (p * (dp - delta[None, :])).to(q.dtype)
            dk = tl.dot(ds, q, dk, input_precision="ieee")
            if ATOMIC:
                dq = tl.dot(tl.trans(k), ds, input_precision="ieee")  # [D, BLOCK_M]
                at = dq_ptr + (vectors + rows)[:, None] * D + tl.arange(0, D)[None, :]
                tl.atomic_add(at, tl.trans(dq), mask=(rows < queries)[:, None], sem="relaxed")
    tl.store(places(dk_ptr, dk_strides, batch, head, cols, D), dk * plain_scale, mask=mask)
    tl.store(places(dv_ptr, dv_strides, batch, head, cols, D), dv, mask=mask)


# %%
# The tile of scores is transposed here, ``[BLOCK_N, BLOCK_M]``. Then the weights are the left
# operand of :math:`dV = P^T dO` as they are, and tensor cores take a left operand from registers.
# The other way round, the tile would go through shared memory to be transposed.
#
# Two kernels or atomics
# ----------------------
#
# Both kernels compute the scores and :math:`dP`: together, seven products instead of five. With
# ``ATOMIC`` the second kernel computes :math:`dQ`, too, and five are enough. But then many programs
# add to the same rows of :math:`dQ` in memory. Their order changes from call to call, and with it
# the last bits. This way also needs zeros at the start, fp32, and more registers.
#
# For N = 8192, *d* = 128, causal, the first kernel takes :measured:`dq` ms and the second
# :measured:`key` ms. The one with atomics takes :measured:`atomics` ms, :measured:`more` times as
# long as both together. So ``attention`` uses two kernels, and gives the same bits every time.
#
# The forward pass
# ----------------
#
# The kernel of :doc:`06-fused-attention` stores ``lse`` in its last line.


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
    tl.store(lse_ptr + vector, m + tl.log2(z), mask=rows < queries)


# %%
# Calling them
# ------------
#
# Registers decide about the tiles. In the second kernel with *d* = 128 and 64 keys, the two sums
# take 128 registers of each thread, and the tiles of :math:`P` and :math:`dP` 32 each. A thread can
# have 255, so larger tiles would spill.

# sphinx_gallery_fold = "chooses tiles, warps and stages"
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
    options |= {"ATOMIC": False} if of_keys else {}
    numbers = own_heads, queries, keys, scale * math.log2(math.e)
    numbers += () if kernel is attention_kernel else (scale,)
    return tile, (triton.cdiv(length, tile[0]) * batch * own_heads,), numbers, options


# %%
# As in :doc:`06-fused-attention`, a plan is kept for arguments that are alike.

# sphinx_gallery_fold = "brings the plan of a launch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

# %%

# sphinx_gallery_fold = "makes the plans"


def described(x, rows):
    """Return a descriptor of *x*, [batch, heads, N, d], with tiles of *rows* by d."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, x.shape[3]])


def class_of(tile):
    """Return a class of descriptors that differ from *tile* only in their tensor."""
    fields = vars(tile) | {"__init__": lambda tile, x: setattr(tile, "base", x), "base": None}
    return type("TensorDescriptor", (TensorDescriptor,), fields)


def ready(x):
    """Return *x* if a descriptor can describe it, and a copy of it otherwise."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    aligned = x.data_ptr() % 16 == 0 and all(s > 0 and s % 16 == 0 for s in strides)
    return x if aligned and x.stride(3) == 1 else x.clone(memory_format=torch.contiguous_format)


class Plan:
    """A launch with descriptors, for tensors of given shapes and strides; it holds none of them."""

    def __init__(self, kernel, q, k, tensors, sides, others, causal, scale):
        tile, grid, numbers, options = settings(kernel, q, k, causal, scale)
        tiles = (described(x, tile[side]) for x, side in zip(tensors, sides, strict=True))
        self.tiles = [class_of(tile) for tile in tiles]
        strides = [x.stride()[:3] for x in others]
        self.launch = Launch(kernel, grid, (*strides, *numbers), options)

    def __call__(self, tensors, *pointers):
        """Launch it with descriptors of *tensors*, and with *pointers*."""
        self.launch(*[tile(x) for tile, x in zip(self.tiles, tensors, strict=True)], *pointers)


def forward_plan(q, k, v, *more):
    """Return the plan of the forward pass."""
    return Plan(attention_kernel, q, k, (q, k, v, torch.empty_like(q)), (0, 1, 1, 0), (), *more)


def gradient_plans(q, k, v, o, do, *more):
    """Return the plans of both kernels of the backward pass."""
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    one = Plan(query_gradient_kernel, q, k, (k, v), (1, 1), (q, o, do, dq), *more)
    return one, Plan(key_gradient_kernel, q, k, (q, do), (1, 1), (k, v, dk, dv), *more)


# %%
# ``torch.autograd.Function`` keeps the inputs, the output and ``lse`` for the backward pass. That
# runs in a thread of its own, which needs the GPU's context before it can make a descriptor. A
# first operation of PyTorch brings it.

PLANS, thread = {}, threading.local()


def kept(key, make, *arguments):
    """Return the plan for *key*; without one, make it."""
    if len(PLANS) == 1000:  # a program whose shapes never repeat
        PLANS.clear()
    plan = PLANS[key] = PLANS.get(key) or make(*arguments)
    return plan


def forward(plan, q, k, v):
    """Return (output, log-sum-exp to the base of 2)."""
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    plan((q, k, v, o), lse)
    return o, lse


def backward(q, k, v, o, lse, do, causal, scale):
    """Return the gradients of q, k and v."""
    if not hasattr(thread, "has_context"):
        thread.has_context = q.new_zeros(1) is not None
    plans = PLANS.get((key_of(q, k, v, o, do), causal, scale))
    if plans is None:
        q, k, v, o, do = (ready(x) for x in (q, k, v, o, do))
        arguments = q, k, v, o, do, causal, scale
        plans = kept((key_of(q, k, v, o, do), causal, scale), gradient_plans, *arguments)
    dq, dk, dv, delta = [torch.empty_like(x) for x in (q, k, v, lse)]
    plans[0]((k, v), q, o, do, dq, lse, delta)
    plans[1]((q, do), k, v, dk, dv, lse, delta, None)
    return dq, dk, dv


class Attention(torch.autograd.Function):
    """Attention with its gradients, for tensors that descriptors can describe."""

    @staticmethod
    def forward(ctx, plan, q, k, v, more):
        """Return the output, and keep what the gradients need; *more* is (causal, scale)."""
        o, lse = forward(plan, q, k, v)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.more = more
        return o

    @staticmethod
    def backward(ctx, do):
        """Return the gradients of q, k and v."""
        if torch.is_grad_enabled():  # create_graph=True, but there is no second derivative
            return torch.autograd.function.once_differentiable(Attention.backward)(ctx, do)
        return None, *backward(*ctx.saved_tensors, do, *ctx.more), None


# %%

# sphinx_gallery_fold = "checks the arguments"
# sphinx_gallery_show = "attention"


def check_arguments(q, k, v, scale):
    """Raise TypeError or ValueError, naming the argument, if ``attention`` cannot be right."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.dtype != q.dtype or q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            allowed = "float16, bfloat16 or float32" if x is q else f"{q.dtype} as q"
            raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
        if x.ndim != 4:
            raise ValueError(f"{name} must be [batch, heads, N, head_dim], not {tuple(x.shape)}")
        if x.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {x.device}")
        if x.shape[3] != q.shape[3] or q.shape[3] not in (16, 32, 64, 128):
            allowed = "16, 32, 64 or 128" if x is q else f"{q.shape[3]} as q"
            raise ValueError(f"{name} must have a head_dim of {allowed}, but has {x.shape[3]}")
    shapes = f"have {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or 0 in k.shape[1:3]:
        raise ValueError(f"k and v must have one shape, q's batch, and keys; q, k and v {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"q must have a multiple of the heads of k; q, k and v {shapes}")
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
        raise ValueError(f"scale must be positive and finite, but is {scale!r}")


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head; q, k and v get gradients.

    Args:
        q: [batch, heads, queries, head_dim], fp16, bf16 or fp32; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.
    """
    if torch.compiler.is_compiling():
        return not_compiled(q, k, v, causal, scale)
    try:
        plan = PLANS.get((key_of(q, k, v), causal, scale))
    except (AttributeError, TypeError):  # no tensors, or a scale that cannot be in a key
        plan = None
    if plan is None:
        check_arguments(q, k, v, scale)
        if q.numel() == 0:
            return q + 0 * (k.sum() + v.sum())  # empty, with gradients of 0 for k and v
        q, k, v, causal = ready(q), ready(k), ready(v), bool(causal)
    number = q.shape[3] ** -0.5 if scale is None else float(scale)
    if plan is None:
        plan = kept((key_of(q, k, v), causal, scale), forward_plan, q, k, v, causal, number)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return Attention.apply(plan, q, k, v, (bool(causal), number))
    return forward(plan, q, k, v)[0]


not_compiled = torch.compiler.disable(attention)  # torch.compile calls it between its graphs

# %%
# Checking it
# -----------
#
# Output and gradients are compared with float64. The weights, :math:`dS` and each result are
# rounded to the dtype once. Gradients may be off by more, because :math:`dP - \delta` cancels.

# sphinx_gallery_fold = "compares output and gradients with float64"
from torch.nn.functional import scaled_dot_product_attention as torch_attention


def random_inputs(batch, heads, key_heads, queries, keys, d, dtype):
    """Return q, k and v of these sizes."""
    q = torch.randn(batch, heads, queries, d, device=DEVICE).to(dtype)
    return q, *torch.randn(2, batch, key_heads, keys, d, device=DEVICE).to(dtype)


def check(q, k, v, causal, scale=None):
    """Stop where ``attention`` or a gradient is not as in float64."""
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    o = attention(*inputs, causal, scale)
    right = torch_attention(*exact, is_causal=causal, scale=scale, enable_gqa=True)
    do = torch.randn_like(o)
    ours = o, *torch.autograd.grad(o, inputs, do)
    right = right, *torch.autograd.grad(right, exact, do.double())
    for x, y in zip(ours, right, strict=True):
        error = (x.double() - y).norm() / (y.norm() + 0.01 * math.sqrt(y.numel()))
        limit = 2 * max(torch.finfo(q.dtype).eps, 1e-5)
        torch.testing.assert_close(error, torch.zeros_like(error), rtol=0, atol=limit)


if ON_GPU:
    cases = [(1, 2, 2, 4096, 4096, d, torch.bfloat16) for d in (64, 128)]
    cases += [(1, 4, 2, 1000, 777, 128, torch.bfloat16)]
else:
    cases = [(1, 4, 2, 70, 133, 64, torch.float16), (1, 1, 1, 1, 67, 16, torch.float32)]
for case in cases:
    for causal in (False, True):
        check(*random_inputs(*case), causal)
check(*(x.transpose(1, 2) for x in random_inputs(1, 40, 40, 2, 2, 16, torch.float32)), True, 3.0)
print("attention and its gradients agree with float64")

# %%
# Computed again, the gradients are the same, bit for bit. With atomics they agree up to rounding.

# sphinx_gallery_fold = "computes the gradients twice, and once with atomics"


def atomic_gradients(q, k, v, do, lse, delta, causal, scale):
    """Return (dQ, dK, dV) from one kernel that adds to dQ with atomics; *delta* is given."""
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    others = k, v, torch.empty_like(k), torch.empty_like(v)
    _, grid, numbers, options = settings(key_gradient_kernel, q, k, causal, scale)
    options |= {"ATOMIC": True, "BLOCK_M": 32, "num_stages": 3}
    strides = [x.stride()[:3] for x in others]
    tiles = described(q, 32), described(do, 32)
    key_gradient_kernel[grid](*tiles, *others, lse, delta, dq, *strides, *numbers, **options)
    return dq.mul_(scale).to(q.dtype), *others[2:]


def backward_inputs(q, k, v):
    """Return (q, k, v, o, lse, do) of causal attention, and delta."""
    o, lse = forward(forward_plan(q, k, v, True, q.shape[3] ** -0.5), q, k, v)
    do = torch.randn_like(o)
    return (q, k, v, o, lse, do), (o.float() * do.float()).sum(-1)


(q, k, v, o, lse, do), delta = backward_inputs(*random_inputs(1, 2, 2, 256, 256, 64, torch.float16))
once, again = (backward(q, k, v, o, lse, do, True, 0.125) for _ in range(2))
assert all(torch.equal(x, y) for x, y in zip(once, again, strict=True))
atomic = atomic_gradients(q, k, v, do, lse, delta, True, 0.125)
torch.testing.assert_close(atomic, once, rtol=2**-6, atol=2**-6)
print("the same bits twice; with atomics the same up to rounding")

# %%
# The benchmark
# -------------
#
# Sizes and peers are those of :doc:`06-fused-attention`. Each call computes three gradients through
# autograd. The rate counts five products. The picture shows causal attention with *d* = 128.

# sphinx_gallery_fold = "times the backward passes, keeps the rows, and draws the rates"
import matplotlib.pyplot as plt
from shared.bench import COLORS, plot_rates, rows_of, write_calls, write_rows, write_table
from torch.nn.attention import SDPBackend, sdpa_kernel

PEERS = {"flash": "FlashAttention-2"} | ({} if torch.version.hip else {"cudnn": "cuDNN"})


@triton.jit
def empty_kernel():
    """Do nothing."""


def calls_of(n, d, causal, tokens=16384):
    """Return ({provider: call of the forward pass}, {provider: call of the backward pass})."""
    qkv = torch.randn(3, tokens // n, 2048 // d, n, d, device=DEVICE).bfloat16()
    qkv = [x.requires_grad_() for x in qkv.unbind()]
    calls = {"triton": partial(attention, *qkv, causal)}
    calls["torch"] = partial(torch_attention, *qkv, is_causal=causal)
    for name in PEERS:
        backend = getattr(SDPBackend, f"{name.upper()}_ATTENTION")
        calls[name] = sdpa_kernel(backend)(calls["torch"])
    again = partial(torch.autograd.grad, inputs=qkv, retain_graph=True)
    do = torch.randn_like(qkv[0])
    return calls, {name: partial(again, f(), grad_outputs=do) for name, f in calls.items()}


def parts():
    """Return rows (provider, unit, median, p20, p80) of the kernels, and of that with atomics."""
    arguments, delta = backward_inputs(*random_inputs(2, 16, 16, 8192, 8192, 128, torch.bfloat16))
    q, k, v, o, lse, do = arguments
    one, other = gradient_plans(q, k, v, o, do, True, 128**-0.5)
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    calls = {
        "dq": lambda: one((k, v), q, o, do, dq, lse, delta),
        "dk, dv": lambda: other((q, do), k, v, dk, dv, lse, delta, None),
        "both": partial(backward, *arguments, True, 128**-0.5),
        "atomics": partial(atomic_gradients, q, k, v, do, lse, delta, True, 128**-0.5),
    }
    return rows_of((), calls, "ms", rounds=10)


if ON_GPU:
    rows = []
    for d, c, n in [(d, c, 512 << i) for d in (64, 128) for c in (0, 1) for i in range(6)]:
        calls = calls_of(n, d, bool(c))[1]
        del calls["torch"]
        called = [name for name in calls if name != "flash"]
        flops = 10 * 16384 * n * 2048 // (1 + c)
        rows += rows_of((n, d, c), calls, "TFLOPS", flops, 10, called)
    write_rows("attention-backward.csv", ["N", "head_dim", "causal"], rows)
    values = [row[:3] for row in parts()]
    write_table("06b-attention-backward-values.csv", ["name", "unit", "value"], values)
    calls, gradient_calls = calls_of(256, 64, False, 256)
    empty = empty_kernel[(1,)]
    gradient_calls["launch"] = lambda: (empty(), empty())
    x = torch.ones(64, 1024, device=DEVICE, requires_grad=True)
    product = partial(torch.autograd.grad, 2 * x, x, x.detach(), retain_graph=True)
    gradient_calls["multiplication"] = product
    write_calls({"attention": calls | {"launch": empty}, "attention backward": gradient_calls})
    COLORS |= {"cudnn": COLORS["torch"], "flash": COLORS["compile"]}
    names = {"triton": "attention", "triton, as called": "attention, as called", **PEERS}
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    ax.set_xscale("log", base=2)
    shown = [(n, *row) for n, d, causal, *row in rows if d == 128 and causal]
    plot_rates(ax, shown, names, "Backward pass of causal attention, d = 128, bf16", "N")
else:
    print("Without a GPU there is nothing to time.")

# %%
# At N = 16384 the backward pass reaches :measured:`long` TFLOPS on the GPU and :measured:`called`
# TFLOPS as called. cuDNN reaches :measured:`cudnn_long` TFLOPS, and FlashAttention-2
# :measured:`flash_long`.
#
# **Seven products are credited with five.** The two kernels multiply at 7/5 of the rate in the
# picture, :measured:`multiplied` TFLOPS at N = 16384. What is left to gain is fewer products.
#
# **Short sequences are slower**, as in the forward pass: a program loads its block first and stores
# its results last, and a causal kernel computes half of the tiles on the diagonal for nothing.
#
# **As called**, a backward pass keeps the CPU busy for :measured:`cpu` µs, and PyTorch's for
# :measured:`cpu_torch`. Of both, autograd takes :measured:`autograd` µs: so long is the backward
# pass of a multiplication. Our two launches take :measured:`launches` µs.
#
# References
# ----------
#
# * Tri Dao: *FlashAttention-2*, ICLR 2024, https://arxiv.org/abs/2307.08691
# * M. N. Rabe, C. Staats: *Self-attention does not need O(n²) memory*, arXiv 2112.05682, 2021
