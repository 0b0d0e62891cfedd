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
import math
import os
import threading
from functools import partial

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def place(program, blocks, heads, together):
    """Return (block, head) of a program: *together* heads at a time, the last blocks first."""
    first = program // (together * blocks) * together  # the first head of this section
    size = min(heads - first, together)  # the last section may have fewer heads
    rest = program - first * blocks
    return blocks - 1 - rest // size, first + rest % size


COUNTS = ["heads", "queries", "keys", "total", "together"]  # not specialized: one kernel for all


@triton.jit(do_not_specialize=COUNTS)
def query_gradient_kernel(
    q_desc, k_desc, v_desc, o_desc, do_desc, dq_desc, lse_ptr, delta_ptr,
    heads, queries, keys, scale, total, together, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute dQ and delta for BLOCK_M queries of one head; *scale* contains log2(e)."""
    block, head = place(tl.program_id(0), tl.cdiv(queries, BLOCK_M), total, together)
    row = block * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    vector = head.to(tl.int64) * queries + rows
    batch, head = head // heads, head % heads
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    do = do_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    o = o_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
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
    dq = (dq * plain_scale).to(dq_desc.dtype)
    dq_desc.store([batch, head, row, 0], dq.reshape(1, 1, BLOCK_M, D))


# %%
# This kernel computes the gradient of the queries. A program owns ``BLOCK_M`` queries of one head
# and walks over the keys, as in the forward pass. A key that is not seen has the weight
# :math:`2^{-\infty} = 0`, so it adds nothing. ``place`` gives the longest programs of a causal kernel
# the first numbers, for a few heads at a time.
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
# **log-sum-exp** of its scores, ``lse``: the maximum plus the logarithm of the sum. Then :math:`P =
# 2^{S - \mathrm{lse}}` has no maximum and no sum to look for.
#
# **Delta.** It is a sum over all keys, but :math:`\sum_j P_{ij} (dO_i \cdot V_j) = dO_i \cdot O_i`:
# the dot product of two rows that exist already. This kernel computes it and stores it for the next
# one.
#
# **The work.** There are five products: the scores, :math:`dV`, :math:`dP`, :math:`dQ` and
# :math:`dK`. The forward pass has two. So the backward pass has 2.5 times the operations.
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
# :math:`dK` and :math:`dV` are sums over queries. So another kernel owns a block of *keys* and walks
# over the queries. If heads of queries share a head of keys, it walks over all of them. In a causal
# kernel the first queries do not see these keys, so the loop begins at the diagonal.


@triton.jit(do_not_specialize=COUNTS)
def key_gradient_kernel(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, lse_ptr, delta_ptr, dq_ptr,
    heads, queries, keys, scale, total, together, plain_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV for BLOCK_N keys of one head of keys; with ATOMIC, add to dQ as well."""
    blocks = tl.cdiv(keys, BLOCK_N)
    block, head = place(tl.program_id(0), blocks, total, together)
    col = (blocks - 1 - block) * BLOCK_N  # here the first blocks have the longest way
    cols = col + tl.arange(0, BLOCK_N)
    batch, head = head // heads, head % heads  # of keys
    k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
    v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
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
    dk = (dk * plain_scale).to(dk_desc.dtype).reshape(1, 1, BLOCK_N, D)
    dk_desc.store([batch, head, col, 0], dk)
    dv_desc.store([batch, head, col, 0], dv.to(dv_desc.dtype).reshape(1, 1, BLOCK_N, D))


# %%
# The tile of scores is transposed here, ``[BLOCK_N, BLOCK_M]``. Then the weights are the left
# operand of :math:`dV = P^T dO` as they are, and tensor cores take a left operand from registers.
# The other way round, the tile would go through shared memory to be transposed.
#
# Two kernels or atomics
# ----------------------
#
# Both kernels compute the scores and :math:`dP`, so together they do seven products instead of five.
# With ``ATOMIC`` the second kernel computes :math:`dQ`, too, and five are enough. But then many
# programs add to the same rows of :math:`dQ` in memory, in an order that changes from call to call,
# and with it the last bits. In addition :math:`dQ` needs zeros at the start, fp32, and one more tile
# of registers. For N = 8192, *d* = 128, causal:
#
# .. steps:: both_ms
#    :unit: ms
#
#    dq_ms: the gradient of the queries
#    key_ms: the gradients of keys and values
#    both_ms: both kernels, the same bits every time
#    atomic_ms: one kernel with atomics
#
# The two kernels take :measured:`atomic` times less time, so ``attention`` uses them.
#
# The forward pass
# ----------------
#
# The kernel of :doc:`06-fused-attention` stores ``lse`` in its last line.


@triton.jit(do_not_specialize=COUNTS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, heads, queries, keys, scale, total, together,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; *scale* contains log2(e)."""
    block, head = place(tl.program_id(0), tl.cdiv(queries, BLOCK_M), total, together)
    row = block * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    vector = head.to(tl.int64) * queries + rows
    batch, head = head // heads, head % heads
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
L2_BYTES = getattr(GPU, "L2_cache_size", 2**22)
NVIDIA = DEVICE.type == "cuda" and not torch.version.hip


def fitting(q, tile, warps, stages, registers=None):
    """Return (tile, options of the launch), made smaller until the tiles fit."""
    (own, other), size = tile, q.shape[3] * q.element_size()
    if q.dtype == torch.float32:  # for accuracy, not for speed
        own, other, warps, stages, registers = 64, 32, 4, 1, None
    while other > 16 and 2 * (own + stages * other) * size > SHARED_BYTES - 2048:
        stages, other = (stages - 1, other) if stages > 1 else (1, other // 2)
    options = {"num_warps": warps, "num_stages": stages}
    return (own, other), options | ({"maxnreg": registers} if registers and NVIDIA else {})


def forward_tile(q, keys):
    """Return (BLOCK_M, BLOCK_N) and options for the output."""
    if q.shape[3] == 128:
        return fitting(q, (128, 64), 4, 2)
    return fitting(q, (128, 64), 4, 3, 168) if keys <= 1024 else fitting(q, (64, 128), 4, 2)


def query_gradient_tile(q):
    """Return (BLOCK_M, BLOCK_N) and options for dQ."""
    return fitting(q, (128, 64), 8, 3) if q.shape[3] == 128 else fitting(q, (64, 64), 4, 3)


def key_gradient_tile(q, atomic=False):
    """Return (BLOCK_N, BLOCK_M) and options for dK and dV."""
    return fitting(q, (64, 32 if atomic else 64), 4, 2 if q.shape[3] == 128 and not atomic else 3)


def settings(q, k, causal, scale, tile, options, of_keys=False):
    """Return the grid, the numbers and the constants of a launch; programs own queries or keys."""
    (batch, heads, queries, d), (_, key_heads, keys, _) = q.shape, k.shape
    group = heads // key_heads
    walked, length, own = (q, keys, key_heads) if of_keys else (k, queries, heads)
    together = 2
    if causal and walked.shape[2] > 1024:  # tiles of so many heads share half of the L2 cache
        together = max(1, L2_BYTES // (4 * walked.shape[2] * d * q.element_size()))
    together *= 1 if of_keys else group
    names = ("BLOCK_N", "BLOCK_M") if of_keys else ("BLOCK_M", "BLOCK_N")
    constants = {"GROUP": group, "D": d, "CAUSAL": causal, **options}
    constants |= zip(names, tile, strict=True)
    numbers = own, queries, keys, scale * math.log2(math.e), batch * own, together
    return (triton.cdiv(length, tile[0]) * batch * own,), numbers, constants


# %%
# As in :doc:`06-fused-attention`, a plan is kept for arguments that are alike: a launch, and the
# fields of its descriptors.

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


def tile_of(fields, x):
    """Return a descriptor of *x* that is not checked again."""
    tile = object.__new__(TensorDescriptor)
    tile.__dict__.update(fields, base=x)
    return tile


def ready(x):
    """Return *x* if a descriptor can describe it, and a copy of it otherwise."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    fits = x.stride(3) == 1 and all(stride > 0 and stride % 16 == 0 for stride in strides)
    contiguous = torch.contiguous_format
    return x if fits and x.data_ptr() % 16 == 0 else x.clone(memory_format=contiguous)


class Plan:
    """A launch with descriptors, for tensors of given shapes and strides; it holds none of them."""

    def __init__(self, kernel, tensors, rows, grid, numbers, constants):
        tiles = zip(tensors, rows, strict=True)
        self.fields = [vars(described(x, n)) | {"base": None} for x, n in tiles]
        self.launch = Launch(kernel, grid, numbers, constants)

    def __call__(self, tensors, *pointers):
        """Launch it with descriptors of *tensors*, and with *pointers*."""
        self.launch(*map(tile_of, self.fields, tensors), *pointers)


def forward_plan(q, k, v, causal, scale):
    """Return the plan of the forward pass."""
    (own, other), options = tile = forward_tile(q, k.shape[2])
    numbers = settings(q, k, causal, scale, *tile)
    return Plan(attention_kernel, (q, k, v, torch.empty_like(q)), (own, other, other, own), *numbers)


def gradient_plans(q, k, v, o, do, causal, scale):
    """Return the plans of both kernels of the backward pass."""
    (own, other), _ = tile = query_gradient_tile(q)
    grid, numbers, constants = settings(q, k, causal, scale, *tile)
    tensors, rows = (q, k, v, o, do, torch.empty_like(q)), (own, other, other, own, own, own)
    one = Plan(query_gradient_kernel, tensors, rows, grid, (*numbers, scale), constants)
    (own, other), _ = tile = key_gradient_tile(q)
    grid, numbers, constants = settings(q, k, causal, scale, *tile, of_keys=True)
    tensors = q, k, v, do, torch.empty_like(k), torch.empty_like(v)
    rows, constants["ATOMIC"] = (other, own, own, other, own, own), False
    return one, Plan(key_gradient_kernel, tensors, rows, grid, (*numbers, scale), constants)


# %%
# The gradients belong to the forward pass by ``torch.autograd.Function``. Kept are the inputs, the
# output and ``lse``. Autograd runs the backward pass in a thread of its own, which needs the GPU's
# context before it can make a descriptor. A first operation of PyTorch brings it.

PLANS, thread = {}, threading.local()


def kept(key, make, *arguments):
    """Return the plan for *key*; without one, make it."""
    if len(PLANS) == 1000:  # a program whose shapes never repeat
        PLANS.clear()
    plan = PLANS[key] = PLANS.get(key) or make(*arguments)
    return plan


def forward(plan, q, k, v):
    """Return (output, log-sum-exp to the base of 2)."""
    if not hasattr(thread, "has_context"):
        thread.has_context = q.new_zeros(1) is not None
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
    dq, dk, dv, delta = (torch.empty_like(x) for x in (q, k, v, lse))
    plans[0]((q, k, v, o, do, dq), lse, delta)
    plans[1]((q, k, v, do, dk, dv), lse, delta, lse)
    return dq, dk, dv


class Attention(torch.autograd.Function):
    """Attention with its gradients, for tensors that descriptors can describe."""

    @staticmethod
    def forward(ctx, plan, q, k, v, causal, scale):
        """Return the output, and keep what the gradients need."""
        o, lse = forward(plan, q, k, v)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.causal, ctx.scale = causal, scale
        return o

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do):
        """Return the gradients of q, k and v."""
        return None, *backward(*ctx.saved_tensors, do, ctx.causal, ctx.scale), None, None


# %%

# sphinx_gallery_fold = "checks the arguments"


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
    if k.shape != v.shape or k.shape[0] != q.shape[0] or 0 in k.shape[1:3]:
        raise ValueError(
            f"k and v must have one shape, the batch of q, {q.shape[0]}, at least one head and one "
            f"key, but have {tuple(k.shape)} and {tuple(v.shape)}"
        )
    if q.shape[1] % k.shape[1]:
        heads = f"{k.shape[1]}, but has {q.shape[1]}"
        raise ValueError(f"q must have a multiple of the heads of k, {heads}")
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
        raise ValueError(f"scale must be positive and finite, but is {scale!r}")


# %%


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head; q, k and v get gradients.

    Args:
        q: [batch, heads, queries, head_dim], fp16, bf16 or fp32; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*, also where there are more or fewer
            keys than queries.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.

    Raises:
        TypeError: An argument is no tensor, or of another dtype.
        ValueError: Shapes do not fit, are not supported, or a tensor is on another device.
    """
    plan, compiling = None, torch.compiler.is_compiling()
    try:
        plan = None if compiling else PLANS.get((key_of(q, k, v), causal, scale))
    except (AttributeError, TypeError):  # no tensors, or a scale that cannot be in a key
        pass
    if plan is None:
        check_arguments(q, k, v, scale)
        if q.numel() == 0:
            return q + 0 * (k.sum() + v.sum())  # empty, with gradients of 0 for k and v
    number = q.shape[3] ** -0.5 if scale is None else float(scale)
    if compiling:
        return forward_op(q, k, v, bool(causal), number)[0]
    if plan is None:
        q, k, v, causal = ready(q), ready(k), ready(v), bool(causal)
        plan = kept((key_of(q, k, v), causal, scale), forward_plan, q, k, v, causal, number)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return Attention.apply(plan, q, k, v, bool(causal), number)
    return forward(plan, q, k, v)[0]


# %%
# For ``torch.compile``, both passes are operations, which the compiler does not look into.

# sphinx_gallery_fold = "declares the operations for torch.compile"


def compiled_forward(q, k, v, causal, scale):
    """Return (output, log-sum-exp), contiguous."""
    q, k, v = ready(q), ready(k), ready(v)
    plan = kept((key_of(q, k, v), causal, scale), forward_plan, q, k, v, causal, scale)
    o, lse = forward(plan, q, k, v)
    return o.contiguous(), lse


def compiled_backward(*arguments):
    """Return the gradients, contiguous."""
    return tuple(x.contiguous() for x in backward(*arguments))


def keep(ctx, inputs, output):
    """Keep what the gradients need."""
    *qkv, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(*qkv, *output)


def gradients(ctx, do, _):
    """Return the gradients of q, k and v."""
    return *backward_op(*ctx.saved_tensors, do, ctx.causal, ctx.scale), None, None


operation = partial(torch.library.custom_op, mutates_args=())
schema = "(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> (Tensor, Tensor)"
forward_op = operation("gallery::attention_with_lse", compiled_forward, schema=schema)
forward_op.register_fake(lambda q, *_: (q.new_empty(q.shape), q.new_empty(q.shape[:3]).float()))
forward_op.register_autograd(gradients, setup_context=keep)
schema = "(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor do, bool causal, float scale)"
schema += " -> (Tensor, Tensor, Tensor)"
backward_op = operation("gallery::attention_gradients", compiled_backward, schema=schema)
backward_op.register_fake(lambda *x: tuple(y.new_empty(y.shape) for y in x[:3]))

# %%
# Checking it
# -----------
#
# Output and gradients are compared with float64, as norms. The weights, :math:`dS` and each result
# are rounded to the dtype once. Gradients may be off by two units in the last place, because
# :math:`dP - \delta` cancels.

# sphinx_gallery_fold = "compares output and gradients with float64"
ATTENTION = torch.nn.functional.scaled_dot_product_attention


def random_inputs(batch, heads, key_heads, queries, keys, d, dtype):
    """Return q, k and v of these sizes."""
    q = torch.randn(batch, heads, queries, d, device=DEVICE).to(dtype)
    return q, *torch.randn(2, batch, key_heads, keys, d, device=DEVICE).to(dtype)


def check(q, k, v, causal, scale=None):
    """Stop where ``attention`` or a gradient is not as in float64."""
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    repeated = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in exact[1:])
    expected = ATTENTION(exact[0], *repeated, is_causal=causal, scale=scale)
    o = attention(*inputs, causal, scale)
    do = torch.randn_like(o)
    ours = o, *torch.autograd.grad(o, inputs, do)
    right = expected, *torch.autograd.grad(expected, exact, do.double())
    unit = max(torch.finfo(q.dtype).eps, 1e-5)
    for x, y in zip(ours, right, strict=True):
        error = (x.double() - y).norm() / (y.norm() + 0.01 * math.sqrt(y.numel()))
        torch.testing.assert_close(error, torch.zeros_like(error), rtol=0, atol=2 * unit)


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
# The gradients are the same, bit for bit, when they are computed again. With atomics they agree up
# to rounding:


def atomic_gradients(q, k, v, do, lse, delta, causal, scale):
    """Return (dQ, dK, dV) from one kernel that adds to dQ with atomics; *delta* is given."""
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    (own, other), options = key_gradient_tile(q, atomic=True)
    grid, numbers, constants = settings(q, k, causal, scale, (own, other), options, of_keys=True)
    rows = other, own, own, other, own, own
    tiles = [described(x, n) for x, n in zip((q, k, v, do, dk, dv), rows, strict=True)]
    constants["ATOMIC"] = True
    key_gradient_kernel[grid](*tiles, lse, delta, dq, *numbers, scale, **constants)
    return dq.mul_(scale).to(q.dtype), dk, dv


def backward_inputs(q, k, v):
    """Return (q, k, v, o, lse, do) of causal attention, and delta."""
    arguments = q, k, v, True, q.shape[3] ** -0.5
    o, lse = forward(forward_plan(*arguments), q, k, v)
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
# The sizes and peers are those of :doc:`06-fused-attention`: 16384 tokens in all, 2048 numbers a
# token, bf16. Each call computes the three gradients through autograd. The rate counts five
# products. The picture shows causal attention with *d* = 128.

# sphinx_gallery_fold = "times the backward passes, keeps the rows, and draws the rates"
import itertools

import matplotlib.pyplot as plt
from shared.bench import COLORS, plot_rates, rows_of, write_calls, write_rows, write_table
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
if torch.version.hip:
    del BACKENDS["cudnn"]


@triton.jit
def empty_kernel():
    """Do nothing."""


def calls_of(n, d, causal, tokens=16384):
    """Return ({provider: call of the forward pass}, {provider: call of the backward pass})."""
    shape = 3, tokens // n, 2048 // d, n, d
    qkv = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).unbind()
    qkv = [x.requires_grad_() for x in qkv]
    peer = partial(ATTENTION, *qkv, is_causal=causal)
    calls = {"triton": partial(attention, *qkv, causal)}
    calls |= {name: sdpa_kernel(backend)(peer) for name, backend in BACKENDS.items()}
    calls["torch"] = peer
    again = partial(torch.autograd.grad, inputs=qkv, retain_graph=True)
    do = torch.randn_like(qkv[0])
    return calls, {name: partial(again, f(), grad_outputs=do) for name, f in calls.items()}


def benchmark():
    """Return rows (N, head_dim, causal, provider, unit, median, p20, p80)."""
    rows, lengths = [], [512, 1024, 2048, 4096, 8192, 16384]
    for d, causal, n in itertools.product((64, 128), (False, True), lengths):
        _, calls = calls_of(n, d, causal)
        del calls["torch"]
        flops = 10 * 16384 * n * 2048 // (1 + causal)
        called = [name for name in calls if name != "flash"]
        rows += rows_of((n, d, int(causal)), calls, "TFLOPS", flops, 10, called)
    return rows


def parts():
    """Return rows (provider, unit, median, p20, p80) of both kernels and of the one with atomics."""
    arguments, delta = backward_inputs(*random_inputs(2, 16, 16, 8192, 8192, 128, torch.bfloat16))
    q, k, v, o, lse, do = arguments
    one, other = gradient_plans(q, k, v, o, do, True, 128**-0.5)
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    calls = {
        "dq": lambda: one((q, k, v, o, do, dq), lse, delta),
        "dk, dv": lambda: other((q, k, v, do, dk, dv), lse, delta, lse),
        "both": partial(backward, *arguments, True, 128**-0.5),
        "atomics": partial(atomic_gradients, q, k, v, do, lse, delta, True, 128**-0.5),
    }
    return rows_of((), calls, "ms", rounds=10)


if ON_GPU:
    rows = benchmark()
    write_rows("attention-backward.csv", ["N", "head_dim", "causal"], rows)
    values = [row[:3] for row in parts()]
    write_table("06b-attention-backward-values.csv", ["name", "unit", "value"], values)
    calls, gradient_calls = calls_of(256, 64, False, 256)
    empty = empty_kernel[(1,)]
    gradient_calls["launch"] = lambda: (empty(), empty())
    write_calls({"attention": calls | {"launch": empty}, "attention backward": gradient_calls})
    COLORS |= {"cudnn": COLORS["torch"], "flash": COLORS["compile"]}
    names = {"triton": "attention", "triton, as called": "attention, as called"}
    names |= {name: {"cudnn": "cuDNN", "flash": "FlashAttention-2"}[name] for name in BACKENDS}
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
# :measured:`cpu_torch` µs. Autograd itself takes much of both. It calls the backward pass in another
# thread.
#
# References
# ----------
#
# * Tri Dao: *FlashAttention-2: faster attention with better parallelism and work partitioning*,
#   ICLR 2024, https://arxiv.org/abs/2307.08691
# * Markus N. Rabe and Charles Staats: *Self-attention does not need O(n²) memory*, 2021,
#   https://arxiv.org/abs/2112.05682
