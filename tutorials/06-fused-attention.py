"""
Fused attention
===============

You write ``attention(q, k, v, causal=False, scale=None)``, the function in which each token of a
transformer looks at all others. It never writes the matrix of scores to memory. From 1024 tokens on
it has :measured:`share64` % of cuDNN's speed with heads of 64, and :measured:`share128` % with 128.
You need :doc:`02-fused-softmax` and :doc:`03-matrix-multiplication`.
"""

# %%
# The kernel
# ----------

# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "transformer"
import math
import os
from functools import partial

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from torch.nn.functional import scaled_dot_product_attention as torch_attention
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def online_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, keys, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; BLOCK_N divides the number of keys."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)  # maximum so far
    z = tl.zeros((BLOCK_M,), tl.float32)  # sum of the weights so far
    acc = tl.zeros((BLOCK_M, D), tl.float32)  # weighted sum of the values so far
    for col in range(0, keys, BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k)) * scale  # scores, [BLOCK_M, BLOCK_N]
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])  # weights
        correction = tl.exp(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None])
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


# %%
# A program computes ``BLOCK_M`` queries of one head. It walks over the keys and values, ``BLOCK_N``
# at a time. The scores of a tile live in registers and are gone in the next iteration. Tensor cores
# multiply 16-bit numbers, so the weights are rounded. All sums stay in fp32. ``q_desc.load`` loads
# a tile through a **tensor descriptor**: pointer, shape, strides and tile in one object, made on
# the host. Elements out of bounds are read as zero and are not stored.

LARGE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 2}


def described(x, rows):
    """Return a descriptor of *x*, [batch, heads, N, d], with tiles of *rows* by d."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, x.shape[3]])


def online_attention(q, k, v):
    """Return the attention of contiguous [batch, heads, N, d] tensors; 128 divides N."""
    (batch, heads, n, d), o = q.shape, torch.empty_like(q)
    tiles = [described(x, 128) for x in (q, k, v, o)]
    online_kernel[n // 128, batch * heads](*tiles, heads, n, d**-0.5, D=d, **LARGE)
    return o


def compare(o, q, k, v, **options):
    """Stop unless *o* agrees with attention in float64, up to the rounding of its dtype."""
    exact = torch_attention(q.double(), k.double(), v.double(), enable_gqa=True, **options)
    unit = torch.finfo(o.dtype).eps
    torch.testing.assert_close(o.double(), exact, rtol=unit, atol=unit)


torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 2, 256, 64, device=DEVICE).half()
compare(online_attention(q, k, v), q, k, v)

# %%
# Why the scores stay on the chip
# -------------------------------
#
# Each of *N* tokens has a query, a key and a value, rows of *d* numbers. The score of a query and a
# key is their dot product, and the softmax of a row of scores gives the weights of the values: the
# output is softmax(scale · Q Kᵀ) V. Computed as written, the formula reads and writes N × N scores
# several times. For 32 heads with *d* = 64 and *N* = 16384 in bf16, inputs and output take 0.27 GB,
# and the scores 17 GB. Without the scores, attention is **compute-bound**: a byte that moves serves
# hundreds of operations. Both products take 4·N²·d operations a head, so speed is in TFLOPS.
#
# The online softmax
# ------------------
#
# A softmax needs the maximum and the sum of the whole row, but a program has seen only some tiles.
# So it keeps three numbers for each row: the maximum *so far*, ``m``; the sum of the weights,
# ``z``; the weighted sum of the values, ``acc``. When a tile raises the maximum, both sums are
# multiplied by :math:`e^{m_{old} - m_{new}}`. Here is one row in four tiles:

scores = torch.tensor([[1.0, 0, 2, 1], [3, 5, 2, 4], [4, 1, 0, 3], [6, 2, 5, 1]])
values, table = torch.arange(16.0).reshape(4, 4), []
m, z, acc = torch.tensor(-math.inf), torch.tensor(0.0), torch.tensor(0.0)
for s, v in zip(scores, values, strict=True):  # one tile
    m_new = torch.maximum(m, s.max())
    p, correction = torch.exp(s - m_new), torch.exp(m - m_new)
    z, acc, m = z * correction + p.sum(), acc * correction + p @ v, m_new
    table.append([x.item() for x in (m, correction, z, acc)])
print(tabulate(table, ["m", "correction", "z", "acc"], floatfmt=".3f"))
print(f"acc / z = {acc / z:.4f}; whole row: {scores.flatten().softmax(0) @ values.flatten():.4f}")

# %%
# Causal attention
# ----------------
#
# **Causal** attention hides the future: query *i* sees the keys up to *i*. For a block of queries
# there are three kinds of tiles. Tiles after the last query are **skipped**. Tiles up to the first
# query are **whole** and need no mask. Tiles on the diagonal are **masked**, and so is a last tile
# that is not full. The kernel and the picture use the same function for the borders.


def borders(row, keys, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """Return (end of the whole tiles, end of all tiles) for the queries from *row* on."""
    whole, stop = keys // BLOCK_N * BLOCK_N, keys
    if CAUSAL:
        whole, stop = min(whole, (row + 1) // BLOCK_N * BLOCK_N), min(stop, row + BLOCK_M)
    return whole, stop


borders_in_kernel = triton.jit(borders)

# %%

# sphinx_gallery_fold = "draws the tiles of a causal kernel"
import matplotlib.pyplot as plt

n, rows, cols = 1000, range(0, 1000, 128), range(0, 1000, 64)
ends = [borders(row, n, 128, 64, True) for row in rows]
kinds = [[(col >= whole) + (col >= stop) for col in cols] for whole, stop in ends]
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.pcolormesh([*cols, n], [*rows, n], kinds, cmap="Blues_r", vmin=-2, vmax=2, edgecolors="#888")
ax.plot([0, n], [0, n], color="#444444")
title = "Tiles of 128 × 64: whole (dark), masked (light), skipped (white)"
ax.set(xlabel="key", ylabel="query", ylim=(n, 0), title=title)
plt.show()

# %%
# Where the time goes
# -------------------
#
# A score takes *d* multiplications and additions in each product, on tensor cores, and one
# exponential. A multiprocessor of an H100 or H200 does 4096 operations a cycle on its tensor cores,
# but only 16 exponentials. For a tile of 64 × 128 scores:

table = [(d, 64 * 128 * 4 * d // 4096, 64 * 128 // 16) for d in (32, 64, 128)]
print(tabulate(table, ["d", "cycles of tensor cores", "cycles of exponentials"]))

# %%
# At *d* = 64 the exponentials take as long as both products. The final kernel has two remedies:
#
# * **Fewer instructions.** A GPU computes :math:`e^x` as :math:`2^{x \log_2 e}`. Here ``scale``
#   contains that factor. After the maximum, one instruction scales and subtracts: ``tl.fma``.
# * **Several small programs on each multiprocessor.** While one waits for its exponentials, another
#   can use the tensor cores. Two or three programs of four warps fit if their tiles are small. The
#   programs with the most keys start first, or the GPU would wait for them at the end.


@triton.jit(do_not_specialize=["heads", "queries", "keys"])  # one kernel for all lengths
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, queries, keys, scale, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries; GROUP heads share keys; *scale* contains log2(e)."""
    blocks = tl.cdiv(queries, BLOCK_M)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    row = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # the longest program first
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = borders_in_kernel(row, keys, BLOCK_M, BLOCK_N, CAUSAL)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # not scaled; "ieee": fp32 stays fp32
        if col >= whole:  # the same for all threads, so it costs little
            cols = col + tl.arange(0, BLOCK_N)
            seen = cols[None, :] < keys
            if CAUSAL:
                seen &= cols[None, :] <= (row + tl.arange(0, BLOCK_M))[:, None]
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


# %%
# Here is causal attention with *d* = 128 and N = 4096. Rates count the operations that it needs.
#
# .. steps:: cudnn
#    :unit: TFLOPS
#
#    formula: the formula in PyTorch, all scores in memory, no mask
#    first: the first kernel, which also computes the scores of the future
#    large: the final kernel with the tile of the first: 128 × 128, eight warps
#    small: smaller tiles, four warps, several programs on a multiprocessor
#
# Calling it
# ----------
#
# The tile depends on the head dimension. GPUs with less shared memory get shorter tiles.

GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
SHARED_BYTES = getattr(GPU, "shared_memory_per_block_optin", 65536)


def settings(q, k, causal, scale):
    """Return the grid, the other arguments and the constants of a launch."""
    (batch, heads, queries, d), (_, key_heads, keys, _) = q.shape, k.shape
    (block_m, block_n), stages, options = (128, 64) if d == 128 else (64, 128), 2, {}
    if q.dtype == torch.float32:  # for accuracy, not for speed
        block_m, block_n, stages = 64, 32, 1
    elif d < 128 and keys <= 1024:
        block_m, block_n, stages = 128, 64, 3
        options = {"maxnreg": 168} if ON_GPU and torch.version.cuda else {}  # registers a thread
    size = d * q.element_size()
    while block_n > 16 and 2 * (block_m + stages * block_n) * size > SHARED_BYTES - 2048:
        stages, block_n = (stages - 1, block_n) if stages > 1 else (1, block_n // 2)
    options |= {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": 4, "num_stages": stages}
    options |= {"GROUP": heads // key_heads, "D": d, "CAUSAL": causal}
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    grid = (triton.cdiv(queries, block_m) * batch * heads,)
    return grid, (heads, queries, keys, scale), options


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
        if torch.is_grad_enabled() and x.requires_grad:
            remedy = "use that of 06b-attention-backward, or torch.no_grad()"
            raise ValueError(f"{name} requires a gradient, which this attention lacks: {remedy}")
    shapes = f"have {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or 0 in k.shape[1:3]:
        raise ValueError(f"k and v must have one shape, q's batch, and keys; q, k and v {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"q must have a multiple of the heads of k; q, k and v {shapes}")
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
        raise ValueError(f"scale must be positive and finite, but is {scale!r}")


# %%
# A descriptor needs an aligned address, a last stride of 1, and multiples of 16 bytes as other
# strides. Other tensors are copied. Checking this and launching take time. So ``attention`` keeps a
# plan: a launch, as in :doc:`/programming-guide/chapter-6/calls`, and the fields of descriptors.

# sphinx_gallery_fold = "brings the plan of a launch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

# %%


def ready(x):
    """Return *x* if a descriptor can describe it, and a copy of it otherwise."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    aligned = x.data_ptr() % 16 == 0 and all(s > 0 and s % 16 == 0 for s in strides)
    return x if aligned and x.stride(3) == 1 else x.clone(memory_format=torch.contiguous_format)


PLANS = {}


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head, without gradients.

    Args:
        q: [batch, heads, queries, head_dim], fp16, bf16 or fp32; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.
    """
    plan, compiling = None, torch.compiler.is_compiling()
    try:
        if not (compiling or q.requires_grad or k.requires_grad or v.requires_grad):
            plan = PLANS.get((key_of(q, k, v), causal, scale))
    except (AttributeError, TypeError):  # no tensors, or a scale that cannot be in a key
        pass
    if plan is None:
        check_arguments(q, k, v, scale)
        if compiling:
            return attention_op(q, k, v, bool(causal), scale)
        if q.numel() == 0:
            return torch.empty_like(q)
        q, k, v, causal = ready(q), ready(k), ready(v), bool(causal)
        grid, numbers, constants = settings(q, k, causal, scale)
        rows = [constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_N", "BLOCK_M")]
        tiles = map(described, (q, k, v, torch.empty_like(q)), rows)
        fields = [vars(tile) | {"base": None} for tile in tiles]
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = Launch(attention_kernel, grid, numbers, constants), fields
        plan = PLANS.setdefault((key_of(q, k, v), causal, scale), plan)
    launch, fields = plan
    o = torch.empty_like(q)
    tiles = [object.__new__(TensorDescriptor) for _ in fields]  # not checked again
    for tile, same, x in zip(tiles, fields, (q, k, v, o), strict=True):
        tile.__dict__.update(same, base=x)
    launch(*tiles)
    return o


# For torch.compile the function is one operation.
schema = "(Tensor q, Tensor k, Tensor v, bool causal, float? scale) -> Tensor"
attention_op = torch.library.custom_op("gallery::attention", mutates_args=(), schema=schema)(
    lambda *arguments: attention(*arguments).contiguous()
)
attention_op.register_fake(lambda q, *_: q.new_empty(q.shape))

# The check has awkward lengths, grouped heads, large scores and another order of strides.
n, dtype = (4096, torch.bfloat16) if ON_GPU else (64, torch.float16)  # no bf16 in the interpreter
for heads, queries, keys, d in ((2, n, n, 64), (2, n, n, 128), (4, 100, 77, 128), (2, 1, 67, 16)):
    q = torch.randn(1, queries, heads, d, device=DEVICE).to(dtype).transpose(1, 2)
    k, v = torch.randn(2, 1, 2, keys, d, device=DEVICE).to(dtype)
    compare(attention(q, k, v), q, k, v)
    compare(attention(q, k, v, causal=True, scale=2.0), q, k, v, is_causal=True, scale=2.0)
print("attention agrees with float64")

# %%
# The benchmark
# -------------
#
# Each size has 16384 tokens of 2048 numbers in bf16, in 32 heads of *d* = 64 or 16 of 128. The
# peers are cuDNN and FlashAttention-2. The picture shows causal attention with *d* = 128.

# sphinx_gallery_fold = "times attention, its peers and the steps, and draws the rates"
from shared.bench import COLORS, plot_rates, rows_of, write_calls, write_rows, write_table
from torch.nn.attention import SDPBackend, sdpa_kernel

PEERS = {"flash": "FlashAttention-2"} | ({} if torch.version.hip else {"cudnn": "cuDNN"})


@triton.jit
def empty_kernel():
    """Do nothing."""


def calls_of(n, d, causal, tokens=16384):
    """Return q, k and v with *tokens* tokens in all, and {provider: call}."""
    qkv = torch.randn(3, tokens // n, 2048 // d, n, d, device=DEVICE).bfloat16()
    calls = {"triton": partial(attention, *qkv, causal)}
    calls["torch"] = partial(torch_attention, *qkv, is_causal=causal)
    for name in PEERS:
        backend = getattr(SDPBackend, f"{name.upper()}_ATTENTION")
        calls[name] = sdpa_kernel(backend)(calls["torch"])
    return qkv, calls


if ON_GPU:
    rows = []
    for d, c, n in [(d, c, 512 << i) for d in (64, 128) for c in (0, 1) for i in range(6)]:
        calls = calls_of(n, d, bool(c))[1]
        del calls["torch"]
        called = [name for name in calls if name != "flash"]
        flops = 4 * 16384 * n * 2048 // (1 + c)
        rows += rows_of((n, d, c), calls, "TFLOPS", flops, 20, called)
    q, k, v = calls_of(4096, 128, True)[0]
    tiles = [described(x, 128) for x in (q, k, v, torch.empty_like(q))]
    grid, numbers, constants = settings(q, k, True, None)  # programs of 128 queries, too
    steps = {
        "formula": lambda: torch.softmax(q @ k.mT * q.shape[3] ** -0.5, -1) @ v,
        "first": partial(online_attention, q, k, v),
        "large": partial(attention_kernel[grid], *tiles, *numbers, **constants | LARGE),
    }
    values = [row[:3] for row in rows_of((), steps, "TFLOPS", 2 * 16384 * 4096 * 2048)]
    write_rows("attention-forward.csv", ["N", "head_dim", "causal"], rows)
    write_table("06-fused-attention-values.csv", ["name", "unit", "value"], values)
    write_calls({"attention": calls_of(256, 64, False, 256)[1] | {"launch": empty_kernel[(1,)]}})
    COLORS |= {"cudnn": COLORS["torch"], "flash": COLORS["compile"]}
    names = {"triton": "attention", "triton, as called": "attention, as called", **PEERS}
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    ax.set_xscale("log", base=2)
    shown = [(n, *row) for n, d, causal, *row in rows if d == 128 and causal]
    plot_rates(ax, shown, names, "Causal attention, d = 128, bf16", "N")
else:
    print("Without a GPU there is nothing to time.")

# %%
# At N = 16384 ``attention`` reaches :measured:`long` TFLOPS on the GPU and :measured:`called` as
# called, cuDNN :measured:`cudnn_long`, and FlashAttention-2 :measured:`flash_long`. **cuDNN is
# ahead**: it starts the next product before the softmax of this tile is done, while Triton waits
# for each product of this loop. :doc:`06c-attention-gluon` does that, too: with heads of 128 it has
# :measured:`06c-attention-gluon:share128` % of cuDNN's speed. **As called**, short calls wait for
# Python: ``attention`` takes the CPU :measured:`cpu` µs, PyTorch's :measured:`cpu_torch` µs.
#
# Exercises
# ---------
#
# 1. **A sliding window.** Each query sees only the last *W* keys up to its own. Which tiles are
#    skipped, which are masked? :doc:`Solution <solutions/06-sliding-window>`.
# 2. **ALiBi.** Add ``-slope * (i - j)`` to the score of query *i* and key *j*. Each head has
#    its slope. What does it cost? :doc:`Solution <solutions/06-alibi>`.
# 3. **Grouped heads.** Eight heads of queries share a head of keys, and there are few queries. Fill
#    a tile with the queries of all eight. :doc:`Solution <solutions/06-grouped-heads>`.
# 4. **Decoding.** With one query and many keys, most of the GPU is idle. Split the keys.
#    :doc:`Solution <solutions/06-decode>`.
#
# References
# ----------
#
# * Tri Dao and others: *FlashAttention*, NeurIPS 2022, https://arxiv.org/abs/2205.14135
# * Tri Dao: *FlashAttention-2*, ICLR 2024, https://arxiv.org/abs/2307.08691
# * M. Milakov, N. Gimelshein: *Online normalizer calculation for softmax*, arXiv 1805.02867, 2018
