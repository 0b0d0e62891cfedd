"""
Fused attention
===============

You build ``attention(q, k, v, causal=False, scale=None)``, the function by which each token of a
transformer looks at the others. It never writes the matrix of scores to memory. From 1024 tokens on
it reaches, on average, :measured:`share64` % of cuDNN's speed with a head dimension of 64, and
:measured:`share128` % with 128. You need :doc:`02-fused-softmax` and
:doc:`03-matrix-multiplication`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 3
# sphinx_gallery_level = "transformer"
import math
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate
from torch.nn.functional import scaled_dot_product_attention as torch_attention

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import draw_rates, figure, rates, write_rows

# %%
# Each of *N* tokens has a **query**, a **key** and a **value**, *d* numbers each. They are the rows
# of the matrices *Q*, *K* and *V*. The **score** of a query and a key is their dot product, times a
# scale. A softmax turns the scores of one query into weights, which add up to 1. The output for
# this query is the weighted sum of the values:


def formula(q, k, v):
    """Return the attention of q, k and v, each [..., N, d]."""
    scores = q @ k.mT * q.shape[-1] ** -0.5  # [..., N, N]
    weights = torch.softmax(scores, dim=-1)  # [..., N, N]
    return weights @ v  # [..., N, d]


# %%
# *d*, the **head dimension**, is usually 64 or 128. A model has many **heads**, each with its own
# Q, K and V, and a batch of sequences. So the tensors are ``[batch, heads, N, d]``.

# sphinx_gallery_fold = "draws the matrices and what one program uses of them"
TILE, WHOLE, EDGE = "#1b6ca8", "#cfe3f1", "#444444"


def draw_matrix(ax, x, y, shape, label, tiles):
    """Draw a matrix of *shape* (rows, columns) with its upper left corner at (x, y)."""
    rows, cols = shape
    ax.add_patch(plt.Rectangle((x, y), cols, rows, facecolor=WHOLE, edgecolor=EDGE))
    for row, col, height, width, color in tiles:
        place = x + col, y + row
        ax.add_patch(plt.Rectangle(place, width, height, facecolor=color, edgecolor=EDGE))
    ax.text(x + cols / 2, y + rows + 0.25, label, ha="center", va="top")


_, ax = figure(height=2.8)
draw_matrix(ax, 0, 2.5, (5, 2), "Q\nN × d", [(2, 0, 1, 2, TILE)])
draw_matrix(ax, 3.5, 0, (2, 5), "", [(0, 2, 2, 1, TILE)])
ax.text(3.2, 1, "Kᵀ, d × N", ha="right", va="center")
draw_matrix(
    ax, 3.5, 2.5, (5, 5), "scores, weights\nN × N", [(2, 0, 1, 5, "#7fb2d9"), (2, 2, 1, 1, TILE)]
)
draw_matrix(ax, 10, 2.5, (5, 2), "V\nN × d", [(2, 0, 1, 2, TILE)])
draw_matrix(ax, 13.5, 2.5, (5, 2), "output\nN × d", [(2, 0, 1, 2, "#7fb2d9")])
ax.set(xlim=(-0.5, 16), ylim=(9.3, -0.2), aspect="equal")
ax.set_title("A program walks along the scores of a block of queries")
ax.axis("off")
plt.show()

# %%
# A program computes the output of one block of queries. It walks along the scores of this block
# (lighter blue) tile by tile. For each tile (dark) it needs a block of keys and the block of values
# of the same tokens.
#
# **The scores are too many to store.** Each line of ``formula`` reads or writes N × N numbers. For
# 32 heads with *d* = 64 and N = 16,384 in bf16, Q, K, V and the output take 0.27 GB together, and
# the scores 17 GB. If the scores stay on the chip, attention is **compute-bound**: the limit is
# arithmetic, 4·N²·d operations a head. So speed is in TFLOPS.
#
# The online softmax
# ------------------
#
# A softmax needs the maximum and the sum of the whole row, but a program has seen only some tiles.
# So it keeps for each row the maximum *so far*, ``m``; the sum of the weights so far, ``z``; and
# the weighted sum of the values so far, ``acc``. The weight of a score *s* is :math:`e^{s - m}`.
# When a tile raises the maximum, all earlier weights are too large by the same factor. The
# **correction** :math:`e^{m_{old} - m_{new}}` mends both sums; for the first tile it is 0. The code
# is for one row whose values are numbers (*d* = 1). The picture shows its scores as bars, and the
# three numbers after each tile:

# sphinx_gallery_fold = "goes through a row of four tiles, checks the result, and draws it"
# sphinx_gallery_show = "online_softmax"


def online_softmax(scores, values):
    """Yield m, the correction, z and acc after each tile of one row."""
    m, z, acc = torch.tensor(-math.inf), 0.0, 0.0
    for s, v in zip(scores, values, strict=True):  # one tile
        m_new = torch.maximum(m, s.max())
        p = torch.exp(s - m_new)  # weights
        correction = torch.exp(m - m_new)
        z = z * correction + p.sum()
        acc = acc * correction + p @ v
        m = m_new
        yield m, correction, z, acc


scores = torch.tensor([[1.0, 0, 2, 1], [3, 5, 2, 4], [4, 1, 0, 3], [6, 2, 5, 1]])
values = torch.arange(16.0).reshape(4, 4)
steps = list(online_softmax(scores, values))
m, _, z, acc = steps[-1]
torch.testing.assert_close(acc / z, scores.flatten().softmax(0) @ values.flatten())

_, ax = figure(height=2.8)
ax.bar(range(16), scores.flatten().tolist(), color=WHOLE, edgecolor=EDGE)
largest = [step[0].item() for step in steps]
ax.step([-0.5, 3.5, 7.5, 11.5, 15.5], [largest[0], *largest], color=TILE)
ax.text(7.6, 5.1, "m so far", color=TILE)
for tile, (_, factor, total, weighted) in enumerate(steps):
    for y, number in zip((9.3, 8.2, 7.1), (factor, total, weighted), strict=True):
        ax.text(4 * tile + 1.5, y, f"{number:.3f}", ha="center", va="center")
    ax.axvline(4 * tile - 0.5, color=EDGE, linewidth=0.8, linestyle=":")
ax.set(ylim=(0, 10), xlim=(-0.5, 15.5), xlabel="key")
ax.set_yticks([0, 2, 4, 6, 7.1, 8.2, 9.3], ["0", "2", "4", "6", "acc", "z", "correction"])
ax.set_title(f"Scores in four tiles; in the end acc / z = {acc / z:.3f}")
plt.show()

# %%
# The kernel
# ----------


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
        correction = tl.exp(m - m_new)  # <-
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None])  # <-
        m = m_new
    o = (acc / z[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, row, 0], o.reshape(1, 1, BLOCK_M, D))


# %%
# The kernel is the loop of ``online_softmax``, for a block of queries at once. The scores of a tile
# live in registers and are gone in the next iteration. The values have 16 bits, and both factors of
# a product on tensor cores have the same dtype, so the weights are rounded before the second
# product. All sums stay in fp32.
#
# ``q_desc`` is a **tensor descriptor**: the address, shape, strides and tile size of a tensor in
# one object, made by the CPU. ``q_desc.load`` loads the tile at these indices, and ``reshape``
# drops its dimensions of size 1. Elements out of bounds are read as zero and are not stored (see
# :doc:`03b-full-waves`). Each program has one block of queries of one head:

# sphinx_gallery_fold = "LARGE, the size of a tile, and the comparison with float64"
# sphinx_gallery_show = "described, online_attention"
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
compare(formula(q.float(), k.float(), v.float()).half(), q, k, v)
compare(online_attention(q, k, v), q, k, v)
print("online_attention agrees with float64")

# %%
# **Try it** *(easy, 20 minutes)*. Write ``weighted_mean(s, v)``, the sum of *v* weighted with the
# softmax of each row of *s*, and read every row once. ``exercise.pyz`` (see *Exercises*) checks it.
# This answer corrects ``acc`` but not ``z``, so it is wrong where a later block has the maximum:
#
# .. code-block:: console
#
#    $ python exercise.pyz 06-weighted-mean mine.py
#    Not yet. weighted_mean((7, 1024), (1024,)): 5 of 7 elements are wrong. The first is at (0,):
#    -0.171393 in place of -0.590095.
#
# Causal attention
# ----------------
#
# A model that writes text must not look ahead. **Causal** attention hides the future: query *i*
# sees the keys up to *i*. For a block of queries there are three kinds of tiles. Tiles after the
# last query are **skipped**. Tiles up to the first query are **whole** and need no mask. Tiles on
# the diagonal are **masked**, and so is a last tile that is not full. The kernel and the picture
# use the same function for the borders:


def borders(row, keys, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """Return (end of the whole tiles, end of all tiles) for the queries from *row* on."""
    whole, stop = keys // BLOCK_N * BLOCK_N, keys
    if CAUSAL:
        whole, stop = min(whole, (row + 1) // BLOCK_N * BLOCK_N), min(stop, row + BLOCK_M)
    return whole, stop


borders_in_kernel = triton.jit(borders)

# %%

# sphinx_gallery_fold = "draws the tiles of a causal kernel"
n, rows, cols = 1000, range(0, 1000, 128), range(0, 1000, 64)
ends = [borders(row, n, 128, 64, True) for row in rows]
kinds = [[(col >= whole) + (col >= stop) for col in cols] for whole, stop in ends]
_, ax = figure(height=2.8)
ax.pcolormesh([*cols, n], [*rows, n], kinds, cmap="Blues_r", vmin=-2, vmax=2, edgecolors="#888")
ax.plot([0, n], [0, n], color=EDGE)
ax.set(xlabel="key", ylabel="query", ylim=(n, 0))
for x, y, text in ((250, 720, "whole"), (500, 520, "masked"), (750, 220, "skipped")):
    ax.text(x, y, text, ha="center", va="center", bbox={"fc": "white", "ec": "none", "pad": 2})
ax.set_title("Tiles of 128 × 64 in causal attention")
plt.show()

# %%
# A masked score becomes minus infinity, so its weight is 0. Only tiles from ``whole`` on have the
# mask, which costs a few instructions for each score.
#
# Where the time goes
# -------------------
#
# A score takes *d* multiplications and additions in each of the two products, on tensor cores, and
# one exponential. A multiprocessor of an H100 or H200 does 4096 operations a cycle on its tensor
# cores, but only 16 exponentials.
#
# .. predict:: With *d* = 64, what takes longer for a tile of scores?
#    :choices: the two products | the exponentials | both take the same time
#    :answer: both take the same time
#
#    A score has 4·64 = 256 operations of its products, which is 1/16 of a cycle, and so is one
#    exponential.

# sphinx_gallery_fold = "counts the cycles for a tile of 64 × 128 scores"
table = [(d, 64 * 128 * 4 * d // 4096, 64 * 128 // 16) for d in (32, 64, 128)]
print(tabulate(table, ["d", "cycles of tensor cores", "cycles of exponentials"], intfmt=","))

# %%
# While a program computes its exponentials, it gives the tensor cores nothing to do. There are two
# remedies.
#
# **Fewer instructions.** A GPU computes :math:`e^x` as :math:`2^{x \log_2 e}`. If ``scale``
# contains the factor :math:`\log_2 e`, that multiplication is gone. And the scores need no scaling
# of their own: ``tl.fma`` scales and subtracts the maximum in one instruction.
#
# **Other work meanwhile.** If several small programs share a multiprocessor, one can use the tensor
# cores while another computes exponentials. Two or three programs of four warps fit if their tiles
# are small. Then the *order* of the programs matters, too. A GPU usually starts them in the order
# of their numbers. A causal program of the last queries has the most keys, and if it started last,
# the GPU would wait for it alone. So the kernel below begins with the last block of queries.


@triton.jit(do_not_specialize=["heads", "queries", "keys"])  # one kernel for all lengths
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, queries, keys, scale, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries; GROUP heads share keys; *scale* contains log2(e)."""
    blocks = tl.cdiv(queries, BLOCK_M)
    batch, head = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads
    row = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M  # <-
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    whole, stop = borders_in_kernel(row, keys, BLOCK_M, BLOCK_N, CAUSAL)
    for col in range(0, stop, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")  # "ieee": fp32 stays fp32
        if col >= whole:
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
# .. predict:: How much faster than ``online_kernel`` is this kernel with the same tile, if causal?
#    :number: skipped
#    :unit: ×
#
#    It skips nearly half of the tiles, and saves instructions in the others. But half of the work
#    in the tiles on the diagonal is wasted.
#
# All steps on causal attention with *d* = 128 and N = 4096. Rates count the operations that causal
# attention needs:
#
# .. steps:: cudnn
#    :unit: TFLOPS
#    :of: cuDNN
#
#    formula: the formula in PyTorch: all scores in memory, no mask
#    online: online_kernel, which also computes the scores of the future
#    large: attention_kernel with the same tile: no future, powers of two, longest first
#    small: attention_kernel with smaller tiles: several programs on a multiprocessor
#
# Calling it
# ----------
#
# With *d* = 128 a tile has 128 queries and 64 keys. With a smaller *d* it has 64 queries and 128
# keys, or 128 and 64 if there are at most 1024 keys in all. GPUs with less shared memory get
# smaller tiles. ``GROUP`` heads of queries share one head of keys and values, as in many models.

# sphinx_gallery_fold = "chooses the tile, the grid and the constants"
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


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for contiguous tensors, [batch, heads, N, d]."""
    o = torch.empty_like(q)
    grid, numbers, constants = settings(q, k, causal, scale)
    m, n = constants["BLOCK_M"], constants["BLOCK_N"]
    tiles = described(q, m), described(k, n), described(v, n), described(o, m)
    attention_kernel[grid](*tiles, *numbers, **constants)
    return o


# %%

# sphinx_gallery_fold = "compares it with float64: odd lengths, grouped heads, large scores"
SHAPES = [(2, 4096, 4096, 64), (2, 4096, 4096, 128)] if ON_GPU else [(2, 64, 64, 64)]
SHAPES += [(4, 100, 77, 128), (2, 1, 67, 16)]  # heads, queries, keys, d
DTYPE = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter computes bf16 wrongly


def check(function):
    """Stop unless *function* agrees with float64 on all SHAPES."""
    for heads, queries, keys, d in SHAPES:
        q = torch.randn(1, heads, queries, d, device=DEVICE).to(DTYPE)
        k, v = torch.randn(2, 1, 2, keys, d, device=DEVICE).to(DTYPE)
        compare(function(q, k, v), q, k, v)
        o = function(q, k, v, causal=True, scale=2.0)
        compare(o, q, k, v, is_causal=True, scale=2.0)


check(attention)
print("attention agrees with float64")

# %%
# The benchmark
# -------------
#
# Each size has 16,384 tokens of 2048 numbers in bf16, in 32 heads of *d* = 64 or 16 of 128. The
# peers are cuDNN, NVIDIA's library, and FlashAttention-2, both as PyTorch brings them.

# sphinx_gallery_fold = "times attention, its peers and the steps, and draws the rates"
# sphinx_gallery_xray = "attention_kernel: 16 heads × 16,384 tokens, d = 128, causal, bf16"
from shared.attention import PEERS, peers, random_inputs

if ON_GPU:
    q, k, v = random_inputs(4096, 128)
    grid, numbers, constants = settings(q, k, True, None)  # programs of 128 queries, too
    tiles = [described(x, 128) for x in (q, k, v, torch.empty_like(q))]
    steps = {
        "formula": partial(formula, q, k, v),
        "online": partial(online_attention, q, k, v),
        "large": partial(attention_kernel[grid], *tiles, *numbers, **constants | LARGE),
        "small": partial(attention, q, k, v, True),
        **peers(q, k, v, True),
    }
    figures = [row[:3] for row in rates((), steps, "TFLOPS", 2 * 16384 * 4096 * 2048)]
    rows = []
    for d, c, n in [(d, c, 512 << i) for d in (64, 128) for c in (0, 1) for i in range(6)]:
        q, k, v = random_inputs(n, d)
        calls = {"triton": partial(attention, q, k, v, bool(c))} | peers(q, k, v, c)
        rows += rates((n, d, c), calls, "TFLOPS", 4 * 16384 * n * 2048 // (1 + c), rounds=20)
    attention(q, k, v, True)  # the last launch is the one whose X-ray is shown
    write_rows("attention-forward.csv", ["N", "head_dim", "causal"], rows)
    shown = [row for row in rows if row[1:3] == (128, 1)]
    names = {"triton": "attention", **PEERS}
    draw_rates(shown, names, "Causal attention, d = 128, bf16", "N, tokens", xscale="log")

# %%
# In the plot, at N = 16,384, ``attention`` reaches :measured:`long` TFLOPS, cuDNN
# :measured:`cudnn_long`, and FlashAttention-2 :measured:`flash_long`. **cuDNN is ahead**. Its
# code is not public. What we can say is what our kernel lacks: Triton waits for each product of this
# loop before it goes on to the softmax. :doc:`06c-attention-gluon` starts the next product before the
# softmax of this tile is done. With heads of 128 it has, on average,
# :measured:`06c-attention-gluon:share128` % of cuDNN's speed.
#
# **Short sequences are slower.** Each program loads its queries first, stores its result last, and
# wastes half of the tiles on its diagonal. At N = 512 it has few other tiles.
#
# In a program
# ------------
#
# A function that others call must be right for any view. A descriptor needs an address and strides
# that are multiples of 16 bytes, and a last stride of 1, so other tensors are copied. The function
# refuses what it cannot do: gradients, which :doc:`06b-attention-backward` computes, head
# dimensions without a kernel, and tensors on different devices. And it saves CPU time. Making four
# descriptors is slow in Python, so the function keeps a *plan* for each kind of arguments (see
# :doc:`/programming-guide/chapter-6/calls`).

# sphinx_gallery_fold = "the function with its checks"
from shared.attention import check_attention, first_longer, ready
from shared.bench import write_calls, write_table
from shared.launch import Launch, key_of, know_the_gpu, on_device_of
from shared.plans import ORDINARY, Plan, Plans, empty_kernel

DTYPES = [torch.float16, torch.float32] + [torch.bfloat16] * ON_GPU  # wrong in the interpreter
PLANS = Plans()


def plan_for(q, k, v, causal, scale):
    """Return a plan for tensors like these."""
    know_the_gpu()  # a new thread does not
    grid, numbers, constants = settings(q, k, causal, scale)
    rows = [constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_N", "BLOCK_M")]
    tiles = map(described, (q, k, v, torch.empty_like(q)), rows)
    return Plan(Launch(attention_kernel, grid, numbers, constants), tiles)


def attention(q, k, v, causal=False, scale=None):
    """Return softmax(scale · q @ kᵀ) @ v for each head, without gradients.

    Args:
        q: [batch, heads, queries, head_dim], fp16, bf16 (on a GPU) or fp32; head_dim 16, 32, 64 or
            128. Views of any strides are right; those that no descriptor can describe are copied.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        causal: Whether query *i* sees only the keys up to *i*.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.

    Raises:
        TypeError: An argument is no tensor, or has a dtype that is not supported.
        ValueError: Shapes or devices do not fit, ``scale`` is not positive and finite, or a tensor
            requires a gradient outside of ``torch.no_grad()``.
    """
    if torch.compiler.is_compiling() or not {type(q), type(k), type(v)} <= ORDINARY:
        check_attention(q, k, v, causal, scale, DEVICE, DTYPES)
        return attention_op(q, k, v, causal, scale)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        check_attention(q, k, v, causal, scale, DEVICE, DTYPES)
    if q.is_neg() or k.is_neg() or v.is_neg():  # the sign is still to be changed
        q, k, v = q.resolve_neg(), k.resolve_neg(), v.resolve_neg()
    try:
        plan = PLANS.get((key_of(q, k, v), type(causal), causal, scale))
    except (RuntimeError, TypeError):  # a sparse tensor, or a scale that cannot be in a key
        plan = None
    if plan is None:
        check_attention(q, k, v, causal, scale, DEVICE, DTYPES)
        if q.numel() == 0:
            return torch.empty_like(q)
        q, k, v = ready(q), ready(k), ready(v)
        with on_device_of(q):
            plan = plan_for(q, k, v, causal, scale)
        PLANS.keep((key_of(q, k, v), type(causal), causal, scale), plan)
    o = torch.empty_like(q)
    plan((q, k, v, o))
    return o


# For torch.compile, and for tensors without memory, the function is one operation.
SCHEMA = "(Tensor q, Tensor k, Tensor v, bool causal, float? scale) -> Tensor"


@torch.library.custom_op("gallery::attention", mutates_args=(), schema=SCHEMA)
def attention_op(q, k, v, causal, scale):
    """Return the contiguous result of ``attention``."""
    with torch.no_grad():
        return attention(q.detach(), k.detach(), v.detach(), causal, scale).contiguous()


@attention_op.register_fake
def attention_shape(q, k, v, causal, scale):
    """Return a tensor like the result, without computing it."""
    return q.new_empty(q.shape)


check(attention)
check(lambda q, k, v, **options: attention(q.mT.contiguous().mT, k, v, **options))
print("attention agrees with float64")

if ON_GPU:
    q, k, v = torch.randn(3, 1, 32, 256, 64, device=DEVICE).bfloat16()
    calls = {"triton": partial(attention, q, k, v), "torch": partial(torch_attention, q, k, v)}
    cpu = write_calls({"attention": calls | {"launch": empty_kernel[(1,)]}})
    longer = first_longer(
        lambda q, k, v: partial(attention, q, k, v, True), cpu["attention", "triton"]
    )
    figures.append(("GPU longer from", "tokens", longer))
    write_table("06-fused-attention-values.csv", ["name", "unit", "value"], figures)

# %%
# A call keeps the CPU busy for :measured:`cpu` µs, and a call of PyTorch's function for
# :measured:`cpu_torch` µs. For one causal sequence with 16 heads of 128, the GPU needs longer than
# the CPU from :measured:`gpu_longer` tokens on.
#
# Exercises
# ---------
#
# 1. **A sliding window** *(medium, 40 minutes)*. In ``window_attention(q, k, v, window)`` each
#    query sees only the last *window* keys up to its own. Which tiles are skipped, which are
#    masked? :doc:`Solution <solutions/06-sliding-window>`.
# 2. **ALiBi** *(easy, 20 minutes)*. Write ``alibi_attention(q, k, v, slopes)``, which is causal and
#    adds ``-slope * (i - j)`` to the score of query *i* and key *j*. Each head has its slope. What
#    does it cost? :doc:`Solution <solutions/06-alibi>`.
# 3. **Grouped heads** *(hard, 60 minutes)*. Eight heads of queries share a head of keys, and there
#    are few queries. Fill a tile with the queries of all eight, in
#    ``grouped_attention(q, k, v, causal=False)``. :doc:`Solution <solutions/06-grouped-heads>`.
# 4. **Decoding** *(hard, 60 minutes)*. With one query and many keys, most of the GPU is idle. Split
#    the keys, in ``decode_attention(q, k, v)``. :doc:`Solution <solutions/06-decode>`.
#
# References
# ----------
#
# * Tri Dao and others: *FlashAttention*, NeurIPS 2022, https://arxiv.org/abs/2205.14135
# * Tri Dao: *FlashAttention-2*, ICLR 2024, https://arxiv.org/abs/2307.08691
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
