"""
Fused attention
===============

You write ``attention(q, k, v, causal=False, scale=None)``, the function in which each token of a
transformer looks at all others. It never writes the matrix of scores to memory. From 1024 tokens on
it reaches :measured:`share64` % of cuDNN's speed with heads of 64 numbers, and :measured:`share128`
% with heads of 128. You need :doc:`02-fused-softmax` and :doc:`03-matrix-multiplication`.
"""

# %%
# The kernel
# ----------

# sphinx_gallery_thumbnail_number = 2
import math
import os

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
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
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # scores, [BLOCK_M, BLOCK_N]
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])  # weights
        correction = tl.exp(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


# %%
# A program computes ``BLOCK_M`` queries of one head. It walks over the keys and values, ``BLOCK_N``
# at a time. The scores of a tile live in registers and are gone in the next iteration.
#
# ``q_desc.load([batch, head, row, 0])``
#     Loads a tile through a **tensor descriptor**: pointer, shape, strides and tile in one object,
#     which the host makes. Elements out of bounds are read as zero and are not stored. A GPU with a
#     TMA unit loads the tile in one instruction.
# ``p.to(v.dtype)``
#     Tensor cores multiply 16-bit numbers, so the weights are rounded. All sums stay in fp32.
# ``input_precision="ieee"``
#     Matters for fp32 inputs only, which Triton otherwise rounds to 10 bits.


def described(x, rows):
    """Return a descriptor of *x*, [batch, heads, N, d], with tiles of *rows* by d."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, x.shape[3]])


def online_attention(q, k, v):
    """Return the attention of contiguous [batch, heads, N, d] tensors; 128 divides N."""
    batch, heads, n, d = q.shape
    o = torch.empty_like(q)
    tiles = [described(x, 128) for x in (q, k, v, o)]
    options = {"num_warps": 8, "num_stages": 2}
    online_kernel[n // 128, batch * heads](*tiles, heads, n, d**-0.5, 128, 128, d, **options)
    return o


def compare(o, q, k, v, causal=False, scale=None):
    """Stop unless the error of *o*, as a norm, is below a unit in the last place."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    reference = torch.nn.functional.scaled_dot_product_attention
    exact = reference(q.double(), k, v, is_causal=causal, scale=scale)
    error = (o.double() - exact).norm() / (exact.norm() + 0.01 * math.sqrt(exact.numel()))
    unit = max(torch.finfo(o.dtype).eps, 1e-5)
    torch.testing.assert_close(error, torch.zeros_like(error), rtol=0, atol=unit)


torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 2, 256, 64, device=DEVICE).half()
compare(online_attention(q, k, v), q, k, v)
print("online_attention agrees with float64")

# %%
# Why the scores stay on the chip
# -------------------------------
#
# Each of *N* tokens has a query, a key and a value, rows of *d* numbers. The score of a query and a
# key is their dot product. The softmax of a row of scores gives the weights of the values:
#
# .. math::
#
#     O = \mathrm{softmax}(\mathrm{scale} \cdot Q K^T)\, V
#
# Computed as written, the formula stores N × N scores, reads them for the softmax, writes the
# weights, and reads them again. Take 32 heads with *d* = 64 and *N* = 16384 in bf16: the inputs and
# the output have 0.27 GB, and the scores 17 GB.
#
# Without the scores, each byte that moves is used for hundreds of operations. Fused attention is
# therefore **compute-bound**, and its speed is given in TFLOPS. Each of the two products takes
# 2·N·N·d operations, so a head takes 4·N²·d.
#
# The online softmax
# ------------------
#
# A softmax needs the maximum and the sum of the whole row, but a program has seen only some tiles.
# So it keeps three numbers for each row: ``m``, the maximum *so far*, ``z``, the sum of the weights,
# and ``acc``, the weighted sum of the values. The last two are relative to ``m``. When a tile raises
# the maximum, both are multiplied by :math:`e^{m_{old} - m_{new}}`. Here is one row in four tiles:

scores = torch.tensor([[1.0, 0, 2, 1], [3, 5, 2, 4], [4, 1, 0, 3], [6, 2, 5, 1]])
values = torch.arange(16.0).reshape(4, 4)
m, z, acc = torch.tensor(-math.inf), torch.tensor(0.0), torch.tensor(0.0)
table = []
for s, v in zip(scores, values, strict=True):  # one tile
    m_new = torch.maximum(m, s.max())
    p, correction = torch.exp(s - m_new), torch.exp(m - m_new)
    z = z * correction + p.sum()
    acc = acc * correction + p @ v
    m = m_new
    table.append([x.item() for x in (m, correction, z, acc)])
print(tabulate(table, ["m", "correction", "z", "acc"], floatfmt=".3f"))
exact = torch.softmax(scores.flatten(), 0) @ values.flatten()
torch.testing.assert_close(acc / z, exact)
print(f"acc / z: {acc / z:.4f}, from the softmax of the whole row: {exact:.4f}")

# %%
# Causal attention
# ----------------
#
# **Causal** attention hides the future: query *i* sees the keys up to *i*. For a block of queries
# that begins at ``row`` there are three kinds of tiles. Those behind the last query are **skipped**.
# Those up to the first query are **whole** and need no mask. Those on the diagonal are **masked**,
# and so is a last tile that is not full. Two borders separate the kinds. ``borders`` is plain
# Python, so the kernel and the picture use the same function.


def borders(row, keys, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """Return (end of the whole tiles, end of all tiles) for the queries from *row* on."""
    whole = keys // BLOCK_N * BLOCK_N
    stop = keys
    if CAUSAL:
        whole = min(whole, (row + 1) // BLOCK_N * BLOCK_N)
        stop = min(stop, row + BLOCK_M)
    return whole, stop


borders_in_kernel = triton.jit(borders)

# %%

# sphinx_gallery_fold = "draws the tiles of a causal kernel"
import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap


def draw_tiles(n, block_m, block_n):
    """Draw the tiles that a causal kernel takes whole, masks and skips; return their numbers."""
    rows, cols = range(0, n, block_m), range(0, n, block_n)
    ends = [borders(row, n, block_m, block_n, True) for row in rows]
    kinds = [[(col >= whole) + (col >= stop) for col in cols] for whole, stop in ends]
    counts = [sum(row.count(kind) for row in kinds) for kind in range(3)]
    _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    colors = ListedColormap(["#cfe3f1", "#f5cdd3", "white"])
    ax.pcolormesh([*cols, n], [*rows, n], kinds, cmap=colors, vmin=0, vmax=2, edgecolors="#888")
    ax.plot([0, n], [0, n], color="#444444")
    title = "{} tiles whole (blue), {} masked (red), {} skipped (white)".format(*counts)
    ax.set(xlabel="key", ylabel="query", ylim=(n, 0), title=title)
    plt.show()
    return counts


draw_tiles(1000, block_m=128, block_n=64)

# %%
# The last queries see the most keys, so their programs take longest. The final kernel starts these
# first. Otherwise the GPU waits at the end for a few long programs.
#
# Where the time goes
# -------------------
#
# A score takes *d* multiplications and additions in each product, and one exponential. Tensor cores
# compute the products. Exponentials have a slower unit: a multiprocessor of an H100 or H200 does
# 4096 operations a cycle on its tensor cores, and 16 exponentials. For a tile of 64 × 128 scores:

table = [(d, 64 * 128 * 4 * d // 4096, 64 * 128 // 16) for d in (32, 64, 128)]
print(tabulate(table, ["d", "cycles of tensor cores", "cycles of exponentials"]))

# %%
# At *d* = 64 the exponentials take as long as both products. Two remedies help:
#
# * **Fewer instructions.** A GPU computes :math:`e^x` as :math:`2^{x \log_2 e}`. The scores are
#   multiplied by ``scale`` anyway, so ``scale`` takes the factor :math:`\log_2 e`. With the maximum
#   taken before scaling, scaling and subtracting are one instruction, ``tl.fma``.
# * **Several small programs on each multiprocessor.** A warp waits for its first product, then for
#   the exponentials, then for the second product. Meanwhile another program can use the tensor
#   cores. Two or three programs of four warps fit if their tiles are small.
#
# The final kernel has both. It also lets ``GROUP`` heads of queries share one head of keys.



@triton.jit(do_not_specialize=["heads", "queries", "keys"])  # one kernel for all lengths
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, queries, keys, scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; *scale* contains log2(e)."""
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
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N], not scaled
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
# Causal attention with *d* = 128 and N = 4096 in four ways. The rate counts only the operations of
# causal attention.
#
# .. steps:: cudnn
#    :unit: TFLOPS
#
#    formula: the formula in PyTorch, all scores in memory, no mask
#    first: the first kernel, which computes the future, too
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
        if DEVICE.type == "cuda" and not torch.version.hip:
            options["maxnreg"] = 168  # registers of a thread: three programs fit
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
            raise ValueError(
                f"{name} requires a gradient, and this attention has none: use that of "
                "06b-attention-backward, or torch.no_grad()"
            )
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
# A descriptor needs an aligned address, a last stride of 1, and multiples of 16 bytes as other
# strides. Other tensors are copied. A new descriptor checks all of this, which takes time, and so
# does a launch. ``attention`` keeps a plan for arguments that are alike, as
# :doc:`/programming-guide/chapter-6/calls` explains: a launch, and the fields of its descriptors.

# sphinx_gallery_fold = "brings the plan of a launch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

# %%


def ready(x):
    """Return *x* if a descriptor can describe it, and a copy of it otherwise."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    fits = x.stride(3) == 1 and all(stride > 0 and stride % 16 == 0 for stride in strides)
    contiguous = torch.contiguous_format
    return x if fits and x.data_ptr() % 16 == 0 else x.clone(memory_format=contiguous)


def planned(q, k, v, causal, scale):
    """Return a launch, and the fields of the descriptors of q, k, v and o without their tensors."""
    grid, numbers, constants = settings(q, k, causal, scale)
    rows = [constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_N", "BLOCK_M")]
    tensors = zip((q, k, v, q.new_empty(q.shape)), rows, strict=True)
    fields = [vars(described(x, n)) | {"base": None} for x, n in tensors]
    return Launch(attention_kernel, grid, numbers, constants), fields


def tile_of(fields, x):
    """Return a descriptor of *x* that is not checked again."""
    tile = object.__new__(TensorDescriptor)
    tile.__dict__.update(fields, base=x)
    return tile


PLANS = {}


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head, contiguous and without gradients.

    Args:
        q: [batch, heads, queries, head_dim], fp16, bf16 or fp32; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.
    """
    if torch.compiler.is_compiling():
        check_arguments(q, k, v, scale)
        return attention_op(q, k, v, bool(causal), scale)
    try:
        plan = PLANS.get((key_of(q, k, v), causal, scale))
        if q.requires_grad or k.requires_grad or v.requires_grad:
            plan = None  # check first
    except (AttributeError, TypeError):  # no tensors, or a scale that cannot be in a key
        plan = None
    if plan is None:
        check_arguments(q, k, v, scale)
        if q.numel() == 0:
            return q.new_empty(q.shape)
        q, k, v, causal = ready(q), ready(k), ready(v), bool(causal)
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        key = key_of(q, k, v), causal, scale
        plan = PLANS[key] = PLANS.get(key) or planned(q, k, v, causal, scale)
    launch, fields = plan
    o = q.new_empty(q.shape)
    launch(*map(tile_of, fields, (q, k, v, o)))
    return o


# For torch.compile, the function is one operation, which the compiler does not look into.
schema = "(Tensor q, Tensor k, Tensor v, bool causal, float? scale) -> Tensor"
attention_op = torch.library.custom_op("gallery::attention", attention, mutates_args=(), schema=schema)
attention_op.register_fake(lambda q, *_: q.new_empty(q.shape))

# %%
# The check has awkward lengths, grouped heads, large scores and another order of strides.

cases = [(1, 2, 2, 4096, 4096, 64), (1, 2, 2, 4096, 4096, 128), (1, 4, 2, 1000, 777, 128)]
if not ON_GPU:
    cases = [(1, 4, 2, 70, 133, 64), (2, 2, 2, 130, 65, 16), (1, 1, 1, 1, 67, 16)]
dtype = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter computes bf16 wrongly
for batch, heads, key_heads, queries, keys, d in cases:
    q = torch.randn(batch, queries, heads, d, device=DEVICE).to(dtype).transpose(1, 2)
    k, v = torch.randn(2, batch, key_heads, keys, d, device=DEVICE).to(dtype)
    compare(attention(q, k, v), q, k, v)
    compare(attention(q, k, v, causal=True, scale=3.0), q, k, v, True, 3.0)
print("attention agrees with float64")

# %%
# The benchmark
# -------------
#
# Each size has 16384 tokens and 2048 numbers a token in bf16: 32 heads with *d* = 64, or 16 with
# 128. Longer sequences come in smaller batches. The peers are cuDNN and FlashAttention-2
# (``flash``), both called through PyTorch. The picture shows causal attention with *d* = 128.

# sphinx_gallery_fold = "times attention, its peers and the steps, and draws the rates"
import itertools
from functools import partial

from shared.bench import COLORS, plot_rates, rows_of, write_calls, write_rows, write_table
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
if torch.version.hip:
    del BACKENDS["cudnn"]
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]


@triton.jit
def empty_kernel():
    """Do nothing."""


def calls_of(n, d, causal, tokens=16384):
    """Return q, k and v for *tokens* tokens in all, and {provider: call}."""
    qkv = torch.randn(3, tokens // n, 2048 // d, n, d, device=DEVICE).bfloat16()
    torch_attention = partial(torch.nn.functional.scaled_dot_product_attention, *qkv)
    peer = partial(torch_attention, is_causal=causal)
    peers = {name: sdpa_kernel(backend)(peer) for name, backend in BACKENDS.items()}
    return qkv, {"triton": partial(attention, *qkv, causal), **peers, "torch": peer}


def benchmark():
    """Return rows (N, head_dim, causal, provider, unit, median, p20, p80)."""
    rows = []
    for d, causal, n in itertools.product((64, 128), (False, True), LENGTHS):
        _, calls = calls_of(n, d, causal)
        del calls["torch"]
        called = [name for name in calls if name != "flash"]
        flops = 4 * 16384 * n * 2048 // (1 + causal)
        rows += rows_of((n, d, int(causal)), calls, "TFLOPS", flops, 20, called)
    return rows


def steps(n=4096, d=128):
    """Return rows (provider, unit, median, p20, p80) of the steps before the last."""
    q, k, v = qkv = calls_of(n, d, True)[0]
    (programs,), numbers, constants = settings(q, k, True, None)  # also programs of 128 queries
    constants |= {"BLOCK_N": 128, "num_warps": 8}
    tiles = [described(x, 128) for x in (*qkv, torch.empty_like(q))]
    calls = {
        "formula": lambda: torch.softmax(q @ k.mT * d**-0.5, -1) @ v,
        "first": partial(online_attention, *qkv),
        "large": partial(attention_kernel[programs,], *tiles, *numbers, **constants),
    }
    return rows_of((), calls, "TFLOPS", 2 * 16384 * n * 2048)


if ON_GPU:
    rows = benchmark()
    write_rows("attention-forward.csv", ["N", "head_dim", "causal"], rows)
    values = [row[:3] for row in steps()] if SHARED_BYTES > 200_000 else []
    write_table("06-fused-attention-values.csv", ["name", "unit", "value"], values)
    write_calls({"attention": calls_of(256, 64, False, 256)[1] | {"launch": empty_kernel[(1,)]}})
    COLORS |= {"cudnn": COLORS["torch"], "flash": COLORS["compile"]}
    names = {"triton": "attention", "triton, as called": "attention, as called"}
    names |= {name: {"cudnn": "cuDNN", "flash": "FlashAttention-2"}[name] for name in BACKENDS}
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    ax.set_xscale("log", base=2)
    shown = [(n, *row) for n, d, causal, *row in rows if d == 128 and causal]
    plot_rates(ax, shown, names, "Causal attention, d = 128, bf16", "N")
else:
    print("Without a GPU there is nothing to time.")

# %%
# At N = 16384 ``attention`` reaches :measured:`long` TFLOPS on the GPU and :measured:`called` TFLOPS
# as called. cuDNN reaches :measured:`cudnn_long`, and FlashAttention-2 :measured:`flash_long`.
#
# **All curves rise.** A program loads its queries first and stores its output last, and meanwhile it
# multiplies nothing. Tiles on the diagonal compute scores that nobody needs. Both matter less in
# longer sequences.
#
# **cuDNN is ahead at** *d* = 128. Its kernels start the next product before the softmax of this tile
# is done. In this loop Triton waits for each product. FlashAttention-2 was written for the GPUs
# before Hopper.
#
# **As called**, the CPU's share counts where the GPU is faster than Python: a call of ``attention``
# keeps the CPU busy for :measured:`cpu` µs, and a call of PyTorch's for :measured:`cpu_torch` µs.
#
# Exercises
# ---------
#
# 1. **A sliding window.** Each query sees only the last *W* keys up to its own. Which tiles are
#    skipped, which are masked? :doc:`Solution <solutions/06-sliding-window>`.
# 2. **ALiBi.** Add ``-slope * (i - j)`` to the score of query *i* and key *j*, with a slope for each
#    head. What does it cost? :doc:`Solution <solutions/06-alibi>`.
# 3. **Grouped heads.** Eight heads of queries share a head of keys, and there are few queries, so a
#    tile of 64 queries is nearly empty. Fill it. :doc:`Solution <solutions/06-grouped-heads>`.
# 4. **Decoding.** With one query and many keys, most of the GPU is idle. Split the keys. What is the
#    ceiling now? :doc:`Solution <solutions/06-decode>`.
#
# Check yours as on :doc:`01-vector-add`: ``python exercise.py 06-alibi mine.py``.
#
# References
# ----------
#
# * Tri Dao, Daniel Y. Fu, Stefano Ermon, Atri Rudra and Christopher Ré: *FlashAttention*, NeurIPS
#   2022, https://arxiv.org/abs/2205.14135
# * Tri Dao: *FlashAttention-2*, ICLR 2024, https://arxiv.org/abs/2307.08691
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
