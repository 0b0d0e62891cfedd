"""
int4 weights
============

You build ``int4_mm(x, packed, scales, zeros)``, the product x · wᵀ of a layer whose weights *w*
have 4 bits each. With 8192 × 8192 weights and one token, a row of *x*, it takes
:measured:`triton` µs. PyTorch's product in bf16 takes :measured:`faster` times as long. You need
:doc:`03-matrix-multiplication`.
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
# Sixteen values for each weight
# ------------------------------
#
# A language model that writes one token reads all of its weights for it. With 4 bits each instead
# of 16, it reads about a quarter of the bytes. Four bits hold an integer *n* from 0 to 15. A
# **scale** *s* and a **zero** *z* say which weights these sixteen integers stand for:
#
# .. math::
#    w \approx n \cdot s + z, \qquad z = \min w, \qquad s = (\max w - \min w) / 15

w = torch.tensor([0.31, -0.42, 0.07, 0.88, -0.15, 0.52, -0.61, 0.02])
z, s = w.min(), (w.max() - w.min()) / 15
n = ((w - z) / s).round().int()
print("weights     ", *(f"{value:5.2f}" for value in w.tolist()))
print("integers    ", *(f"{value:5d}" for value in n.tolist()))
print("weights back", *(f"{value:5.2f}" for value in (n * s + z).tolist()))


# %%
# No weight is off by more than half a scale. A single large weight makes the scale of all others
# larger, so *s* and *z* are shared by a **group** of 128 neighbors in a row, and not by the whole
# matrix. They have 16 bits each, so a weight takes 4 + 32/128 = 4.25 bits.
#
# Packing
# ~~~~~~~
#
# A **word** of 16 bits holds four integers of 4 bits. A group of 128 fills 32 words. Which four
# share a word? Word *j* gets columns *j*, *j* + 32, *j* + 64 and *j* + 96. So the lowest four bits
# of the 32 words hold 32 *neighboring* columns (blue), which meet 32 neighbors in a row of *x*.

# sphinx_gallery_fold = "draws the words of a group"
from shared.int4 import draw_words

draw_words()

# %%
# Packing takes shifts and ors, and unpacking takes shifts and bitwise ands:


def pack_group(n):
    """Return the words of a group of integers."""
    a, b, c, d = n.int().reshape(4, -1)  # of 128 integers: 32 neighbors each
    return a | b << 4 | c << 8 | d << 12


def unpack_group(words):
    """Return the integers of a group."""
    return torch.cat([(words >> 4 * i) & 15 for i in range(4)])


words = pack_group(n)
print("integers", n.tolist(), "→ words", [f"{word:04x}" for word in words.tolist()], "and back:")
print(unpack_group(words).tolist())

# %%
# ``pack_int4`` packs a whole matrix in this way. It stores the words as [groups, N, 32], so that
# the words of one group of many rows lie side by side, and it stores each scale beside its zero.

# sphinx_gallery_fold = "packs and unpacks a matrix"


def pack_int4(weight, group=128):
    """Return packed, scales and zeros of a weight: integer · scale + zero is close to it.

    Args:
        weight: [N, K] of floats below 10⁹; K is a multiple of *group*.
        group: How many neighbors in a row share a scale and a zero: 64, 128 or 256.

    Returns:
        packed: [K / group, N, group / 4], int16; four integers from 0 to 15 in each.
        scales: [N, K / group], bf16.
        zeros: [N, K / group], bf16: what the integer 0 stands for.
    """
    if not isinstance(weight, torch.Tensor) or not weight.is_floating_point():
        found = getattr(weight, "dtype", type(weight).__name__)
        raise TypeError(f"weight must be a tensor of floats, but is {found}")
    if group not in (64, 128, 256):
        raise ValueError(f"group must be 64, 128 or 256, but is {group}")
    if weight.ndim != 2 or weight.shape[1] % group:
        wanted = f"[N, a multiple of {group}]"
        raise ValueError(f"weight must be {wanted}, but has shape {tuple(weight.shape)}")
    if not (weight.abs() < 1e9).all():
        raise ValueError("weight contains nan, inf or numbers of 1e9 and more")
    shape = len(weight), weight.shape[1] // group, 4, group // 4
    w = weight.detach().float().reshape(shape).transpose(0, 1)
    low, high = w.amin(dim=(2, 3)), w.amax(dim=(2, 3))  # [groups, N]
    pairs = torch.stack([(high - low) / 15, low], dim=2).bfloat16()  # [groups, N, 2]
    s, z = pairs.float()[..., None, None].unbind(2)
    n = torch.where(s > 0, (w - z) / s, 0.0).round().clamp(0, 15).int()
    words = n[:, :, 0] | n[:, :, 1] << 4 | n[:, :, 2] << 8 | n[:, :, 3] << 12
    packed = (words - (words >> 15 << 16)).to(torch.int16).contiguous()  # the same 16 bits
    return packed, pairs[..., 0].T, pairs[..., 1].T


def unpack(packed, scales, zeros):
    """Return the weight that the integers stand for, [N, K], in fp64."""
    n = torch.cat([(packed.int() >> 4 * i) & 15 for i in range(4)], dim=2).double()
    return (n.transpose(0, 1) * scales.double()[..., None] + zeros.double()[..., None]).flatten(1)


# %%
# The kernel
# ----------
#
# A program computes a tile of the output. For each group it loads words, scales and zeros, and
# shifts the words by 0, 4, 8 and 12 bits. Each shift gives a tile of weights, and ``tl.dot``
# multiplies the matching columns of *x* by it.


@triton.jit
def first_kernel(
    x_ptr, packed_ptr, scales_ptr, zeros_ptr, out_ptr, M, N, groups,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute a tile of x · wᵀ."""
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    columns = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    j, real = tl.arange(0, GROUP // 4)[None, :], columns < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(groups):
        at = group * N + columns  # scales and zeros lie side by side, so their stride is 2
        s = tl.load(scales_ptr + 2 * at, mask=real, other=0.0).to(tl.float32)[:, None]
        z = tl.load(zeros_ptr + 2 * at, mask=real, other=0.0).to(tl.float32)[:, None]
        words_ptrs = packed_ptr + at[:, None] * (GROUP // 4) + j
        words = tl.load(words_ptrs, mask=real[:, None], other=0)
        for i in tl.static_range(4):
            x_ptrs = x_ptr + (rows * groups + group) * GROUP + i * (GROUP // 4) + j
            x = tl.load(x_ptrs, mask=rows < M, other=0.0)
            w = ((words >> 4 * i) & 15).to(tl.float32) * s + z  # <-
            acc = tl.dot(x, tl.trans(w.to(x.dtype)), acc)
    out_ptrs = out_ptr + rows * N + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & real[None, :])


# %%
# **Try it** *(easy, 10 minutes)*. Write ``unpack_words(words)``, a kernel that unpacks each row of
# a matrix of int16 words as ``unpack_group`` does, to int8. ``exercise.pyz`` (see *Exercises*)
# checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 12-unpack mine.py
#    Not yet. unpack_words((1, 1)): 4 of 4 elements are wrong. The first is at (0, 0): -84 in place
#    of 12.
#
# This kernel shifts the words, but keeps the bits above the lowest four.
#
# Calling it
# ----------


def int4_mm(x, packed, scales, zeros, group=128):
    """Return x · wᵀ for contiguous x and a weight that ``pack_int4`` packed."""
    groups, N, _ = packed.shape
    side = 64 if ON_GPU else 16
    out, grid = x.new_empty(len(x), N), (triton.cdiv(len(x), 16), triton.cdiv(N, side))
    sizes = {"GROUP": group, "BLOCK_M": 16, "BLOCK_N": side}
    first_kernel[grid](x, packed, scales, zeros, out, len(x), N, groups, **sizes)
    return out


plain_mm = int4_mm

# %%
# The check compares with float64 and the weights that the integers stand for. So it allows for the
# rounding of the unpacked weight and of the output, and for nothing else.

# sphinx_gallery_fold = "compares with float64"


def compare(out, x, packed, scales, zeros):
    """Stop unless *out* is x · wᵀ up to two roundings: of the weight, and of the output."""
    exact = x.double() @ unpack(packed, scales, zeros).T
    error = (out.double() - exact).norm() / exact.norm().clamp(min=1e-30)
    assert error < 2 * torch.finfo(out.dtype).eps, f"the error is {error:.1e}"


torch.manual_seed(0)
dtype = torch.bfloat16 if ON_GPU else torch.float16  # no bf16 in the interpreter
for N, K, group in ((33, 256, 128), (64, 512, 64), (100, 1280, 256)):
    x, pack = torch.randn(5, K).to(DEVICE, dtype), pack_int4(torch.randn(N, K).to(DEVICE), group)
    compare(int4_mm(x, *pack, group), x, *pack)
print("the kernel is right")

# %%
# What should it cost?
# --------------------
#
# With *M* rows of *x*, tensor cores have 2 · *M* · *N* · *K* operations to do. Memory has to
# deliver 2 · *N* · *K* bytes in bf16, and 3.76 times fewer in int4. The larger of the two times
# decides. We take both from PyTorch's product in bf16: :measured:`bf16` µs for one row is the time
# of reading, and :measured:`many` µs for 1024 rows that of computing. Both are equal at about
# :measured:`border` rows in bf16, and at :measured:`border_4` rows in int4.
#
# .. predict:: Which share of bf16's time does int4 need at 32 rows, by this model?
#    :choices: about a quarter | about half | all of it
#    :answer: about a quarter
#
#    Up to :measured:`border_4` rows both are limited by memory, so the model expects
#    :measured:`expected` %. Beyond that, the share grows, up to all of it at :measured:`border`
#    rows.
#
# **This prediction fails.** At 32 rows even our best kernel needs :measured:`share_32` %, and the
# kernel above takes :measured:`first` µs for a single row, where bf16 takes :measured:`bf16` µs.
# The model counts bytes and products. It leaves out **unpacking**: a shift, an *and*, a conversion,
# a multiply-add and a rounding are about five instructions for each weight, and ordinary
# instructions are far slower than tensor cores.
#
# Unpacking faster
# ----------------
#
# A trick saves most of these instructions: it reads the bits of the integer as the bits of a float.
# A number in bf16 has a sign, 8 bits of **exponent** *e* and 7 of **mantissa** *f*, and is
# :math:`2^{e - 127} (1 + f/128)`. If the exponent is 0, it is :math:`f \cdot 2^{-133}`. So an
# integer *n* below 16, read as bf16, is *n* times 2⁻¹³³, without a conversion:

# sphinx_gallery_shows = "plain digits"
for n in (1, 6, 15):
    for shift in (0, 4):
        bits = torch.tensor([n << shift], dtype=torch.int16)
        value = bits.view(torch.bfloat16).double().item()
        text = f"{n << shift:016b}"
        value /= 2.0**-133
        print(f"{n:2d} at bit {shift}: {text[0]} {text[1:9]} {text[9:]} = {value:.0f} · 2⁻¹³³")

# %%
# Four bits further up, the integer reaches into the exponent. The value is still exactly 16 times
# as large, since floats with the exponents 0 and 1 have the same spacing. No number in bf16 is as
# large as 2¹³³, so we compute the weight times 2⁻³²: once for a group, the scale is multiplied by
# 2¹⁰¹ and the zero by 2⁻³². These are the weights of three integers with *s* = 0.25 and *z* = -1:

s, z = 0.25, -1.0
for n in (1, 6, 15):
    read = n * 2.0**-133  # the bits of n as bf16
    scaled = read * (s * 2.0**101) + z * 2.0**-32  # one fused multiply-add
    print(f"{n:2d}: {n} · 2⁻¹³³ → {scaled * 2.0**32:5.2f} · 2⁻³² = weight {n * s + z:5.2f} · 2⁻³²")

# %%
# An *and* and a **fused multiply-add** are left. The factor 2⁻³² stays until the end, where the
# sums are multiplied by 2³². For bits four places up, the scale has the factor 2⁹⁷ instead. A
# register of 32 bits holds two words, and ``fma.rn.bf16x2`` computes two weights with one
# instruction. Triton has no such operation, so we write **inline assembly** for NVIDIA GPUs. The
# constraint of its results is ``=&r``: with ``=r``, the first result might get the register of an
# input that a later instruction reads.

UNPACK = tl.constexpr("""{
.reg .b32 bits, high;
and.b32 bits, $4, 0x000F000F;
fma.rn.bf16x2 $0, bits, $5, $7;
and.b32 bits, $4, 0x00F000F0;
fma.rn.bf16x2 $1, bits, $6, $7;
shr.u32 high, $4, 8;
and.b32 bits, high, 0x000F000F;
fma.rn.bf16x2 $2, bits, $5, $7;
and.b32 bits, high, 0x00F000F0;
fma.rn.bf16x2 $3, bits, $6, $7;
}""")
REGISTERS = tl.constexpr("=&r,=&r,=&r,=&r,r,r,r,r")
BF16 = tl.constexpr((tl.bfloat16,) * 4)


@triton.jit
def weights_of(words, pairs, TRICK: tl.constexpr, dtype: tl.constexpr):
    """Return the weights of words [S, N, GROUP / 4], as [S, N, 4, GROUP / 4]; if TRICK, times 2⁻³².

    *pairs* holds a scale and a zero in 32 bits, [S, N].
    """
    s = (pairs << 16).to(tl.float32, bitcast=True)[:, :, None]
    z = (pairs & -65536).to(tl.float32, bitcast=True)[:, :, None]
    if TRICK:
        low = tl.broadcast_to((s * 2.0**101).to(dtype), words.shape)
        high = tl.broadcast_to((s * 2.0**97).to(dtype), words.shape)
        zero = tl.broadcast_to((z * 2.0**-32).to(dtype), words.shape)
        inputs = [words, low, high, zero]
        a, b, c, d = tl.inline_asm_elementwise(UNPACK, REGISTERS, inputs, BF16, True, pack=2)
    else:
        a = ((words & 15).to(tl.float32) * s + z).to(dtype)
        b = (((words >> 4) & 15).to(tl.float32) * s + z).to(dtype)
        c = (((words >> 8) & 15).to(tl.float32) * s + z).to(dtype)
        d = (((words >> 12) & 15).to(tl.float32) * s + z).to(dtype)
    joined = tl.permute(tl.join(tl.join(a, c), tl.join(b, d)), 0, 1, 3, 4, 2)
    return joined.reshape(words.shape[0], words.shape[1], 4, words.shape[2])


# %%
# ``join`` and ``permute`` take no instructions here: each number stays in its register.
#
# Few rows and many
# ~~~~~~~~~~~~~~~~~
#
# The benchmarked kernel uses this trick, and two layouts of the work:
#
# * **Up to 16 rows** the output is small and its sums are long. If programs shared a sum, another
#   launch would have to add their parts. So the **warps** of a program share it: warp *i* adds
#   groups *i*, *i* + 4, *i* + 8, …, and ``tl.sum`` adds the four results. A ``tl.dot`` of three
#   dimensions does that: it multiplies a **batch** of matrices, one in each warp.
# * **With more rows**, tensor cores set the limit. Hopper's fast instruction, **wgmma**, can take
#   its left factor from registers, where our weights are, and takes its right one from shared
#   memory. So *w* is the left factor, and the tile is transposed at the end. A program unpacks 64
#   or 128 rows of *w* for up to 256 rows of *x*. *Descriptors*, which let the hardware fetch whole
#   tiles, load both: see :doc:`03b-full-waves`.
#
# ``tl.assume`` promises at least one iteration, so the assembler can overlap wgmmas.

# sphinx_gallery_fold = "the kernel for few rows and for many"


@triton.jit(do_not_specialize=["M"])
def int4_kernel(
    x_ptr, packed_ptr, pairs_ptr, out_ptr, M, N, groups,
    GROUP: tl.constexpr, S: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    TRICK: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Compute a tile of x · wᵀ, with S groups at a time; with FEW rows, one for each warp."""
    row, column, K = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N, groups * GROUP
    rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    share, j, k = tl.arange(0, S)[:, None], tl.arange(0, GROUP // 4), tl.arange(0, GROUP)
    at = share * N + columns[None, :]
    pairs_ptr = pairs_ptr.to(tl.pointer_type(tl.int32))
    if FEW:
        at_word = at[:, :, None] * (GROUP // 4) + j[None, None, :]
        at_x = rows[None, :, None] * K + share[:, :, None] * GROUP + k[None, None, :]
        acc = tl.zeros((S, BLOCK_N, BLOCK_M), tl.float32)
    else:
        x_tiles = tl.make_tensor_descriptor(x_ptr, [M, K], [K, 1], [BLOCK_M, S * GROUP])
        packed_tiles = tl.make_tensor_descriptor(
            packed_ptr, shape=[groups, N, GROUP // 4], strides=[N * (GROUP // 4), GROUP // 4, 1],
            block_shape=[S, BLOCK_N, GROUP // 4],
        )  # fmt: skip
        acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    tl.assume(groups > 0)
    for first in range(0, groups, S):
        left = share < groups - first
        real = left & (columns < N)[None, :]
        pairs = tl.load(pairs_ptr + at, mask=real, other=0)
        if FEW:
            words = tl.load(packed_ptr + at_word, mask=real[:, :, None], other=0)
            real_x = left[:, :, None] & (rows < M)[None, :, None]
            x = tl.load(x_ptr + at_x, mask=real_x, other=0.0)
            w = weights_of(words, pairs, TRICK, x.dtype).reshape(S, BLOCK_N, GROUP)
            acc = tl.dot(w, tl.permute(x, 0, 2, 1), acc)
            packed_ptr += S * N * (GROUP // 4)
            x_ptr += S * GROUP
        else:
            words, x = packed_tiles.load([first, column, 0]), x_tiles.load([row, first * GROUP])
            w = tl.permute(weights_of(words, pairs, TRICK, x.dtype), 1, 0, 2, 3)
            acc = tl.dot(w.reshape(BLOCK_N, S * GROUP), tl.trans(x), acc)
        pairs_ptr += S * N
    total = tl.sum(acc, axis=0) if FEW else acc
    out = tl.trans(total * (2.0**32 if TRICK else 1.0)).to(out_ptr.dtype.element_ty)
    at = tl.arange(0, BLOCK_M)[:, None] * N + columns[None, :]
    tl.store(
        out_ptr + row.to(tl.int64) * N + at, out, mask=(rows < M)[:, None] & (columns < N)[None, :]
    )


# %%
# In a program
# ------------
#
# The public ``int4_mm`` chooses tiles for the number of rows and keeps a plan of the launch, as
# :doc:`/programming-guide/chapter-6/calls` explains. It accepts views, and scales that lie
# elsewhere or have another dtype, and refuses gradients. A kernel that makes descriptors needs
# memory on the GPU, which Triton requests from the function set by ``triton.set_allocator``. That
# setting belongs to the program that calls us, so we set it in a copy of Python's context
# (``contextvars``) only.

# sphinx_gallery_fold = "the function with its checks"
from shared.compiled import between_graphs
from shared.int4 import check_arguments
from shared.launch import Launch, key_of
from shared.plans import Plans

GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
MEMORY = getattr(GPU, "shared_memory_per_block_optin", 65536) - 1024  # of a multiprocessor
SMS = getattr(GPU, "multi_processor_count", 1)
PTX = ON_GPU and torch.version.cuda is not None and GPU.major >= 8
# With several stages, Triton before 3.9 overwrites registers that wgmma still reads.
OLD = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)


def plan_of(x, packed):
    """Return the launch: the kernel, its grid, its numbers and its constants."""
    M, (groups, N, quarter) = len(x), packed.shape
    few, crowded = M <= 16, triton.cdiv(N, 64) > SMS
    most = (2**15 if MEMORY > 2**17 else 2**13) // max(4 * quarter, 128)
    rows = min(max(triton.next_power_of_2(M), 8 if few else 32), most)
    wide = rows == 256 < M or (rows == 64 and crowded)
    columns = 128 if wide else 32 if few and not crowded else 64
    shared = MEMORY // 2 if crowded and rows <= 32 else MEMORY  # for one program
    step = 4 * quarter * (2 * rows + columns // 2)  # bytes of a group
    s = next(s for s in (4, 2, 1) if few or s == 1 or 3 * s * step <= shared)
    stages = 1 if OLD and not few else max(1, min(3 if wide else 4, shared // (s * step)))
    sizes = {"GROUP": 4 * quarter, "S": s, "BLOCK_M": rows, "BLOCK_N": columns, "FEW": few}
    sizes |= {"TRICK": PTX and x.dtype == torch.bfloat16, "num_stages": stages}
    sizes |= {"num_warps": 8 if rows == 256 < M else 4}
    grid = triton.cdiv(M, rows), triton.cdiv(N, columns)
    return Launch(int4_kernel, grid, (M, N, groups), sizes)


def allocate(size, *_):
    """Return memory for descriptors."""
    return torch.empty(size, dtype=torch.int8, device=torch.accelerator.current_accelerator())


def launch_with_descriptors(plan, *tensors):
    """Launch a kernel that makes descriptors; to be run in a copy of the context."""
    triton.set_allocator(allocate)
    plan(*tensors)


PLANS = Plans()


@between_graphs
def int4_mm(x, packed, scales, zeros, group=128):
    """Return x · wᵀ, [M, N], for a weight that ``pack_int4`` packed.

    Args:
        x: [M, K], bf16 or fp16; in fp16 the weights are unpacked one by one.
        packed: [K / group, N, group / 4], int16.
        scales: [N, K / group], bf16, fp16 or fp32, rounded to bf16; copied unless in the memory
            that ``pack_int4`` returns.
        zeros: [N, K / group], as scales.
        group: How many weights share a scale and a zero: 64, 128 or 256.

    Raises:
        TypeError: An argument is no tensor, or its dtype is not supported.
        ValueError: A shape, a device or *group* is wrong, or a tensor requires a gradient.
    """
    tensors = x, packed, scales, zeros
    try:
        tensors = x, packed, scales, zeros = [t.resolve_neg() for t in tensors]
        kept = zeros.data_ptr() == scales.data_ptr() + 2 and scales.data_ptr() % 4 == 0
        kept = kept and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
        plan = PLANS.get((key_of(*tensors), group)) if kept else None
    except (AttributeError, RuntimeError, TypeError):  # no tensors with strides; group no number
        plan = None
    if plan is None:
        if not ON_GPU and getattr(x, "dtype", 0) == torch.bfloat16:  # it computes bf16 wrongly
            return int4_mm(x.float(), packed, scales, zeros, group).bfloat16()
        check_arguments(x, packed, scales, zeros, group, DEVICE)
        M, N = len(x), packed.shape[1]
        if M * N * packed.shape[0] == 0:
            return x.new_zeros(M, N)
        beside = scales.stride() == zeros.stride() == (2, 2 * N)
        beside = beside and zeros.data_ptr() == scales.data_ptr() + 2 and scales.data_ptr() % 4 == 0
        if not beside or (scales.dtype, zeros.dtype) != (torch.bfloat16, torch.bfloat16):
            pairs = torch.stack([scales.T, zeros.T], dim=2).bfloat16()
            scales, zeros = pairs[..., 0].T, pairs[..., 1].T
        x, packed = x.contiguous(), packed.contiguous()
        x = x.clone() if x.data_ptr() % 16 else x  # for the descriptor
        packed = packed.clone() if packed.data_ptr() % 16 else packed
        key = key_of(x, packed, scales, zeros), group
        plan = PLANS.get(key) or plan_of(x, packed)
        PLANS.keep(key, plan)
    out = x.new_empty(plan.numbers[:2])
    if plan.constants["FEW"]:
        plan(x, packed, scales, out)
    else:
        contextvars.copy_context().run(launch_with_descriptors, plan, x, packed, scales, out)
    return out


for N, K, group in ((33, 256, 128), (64, 512, 64), (100, 1280, 256)):
    pack = pack_int4(torch.randn(N, K).to(DEVICE), group)
    for M in (1, 9, 17, 70, 300):
        x = torch.randn(M, K).to(DEVICE, dtype)
        compare(int4_mm(x, *pack, group), x, *pack)
print("int4_mm is right")

# %%
# The benchmark
# -------------
#
# Two matrices of weights are timed, 14,336 × 4096 and 8192 × 8192. The plot shows the times for the
# second one, as shares of the time of PyTorch's product in bf16. **int4pack** is PyTorch's
# ``torch._weight_int4pack_mm``. The dashed line is the model from above, without unpacking.

# sphinx_gallery_fold = "checks all sizes in float64, times them, and draws the shares"
# sphinx_gallery_xray = "int4_kernel: one row, 8192 × 8192"
from shared.bench import rates, write_calls, write_rows
from shared.int4 import draw_shares


def benchmark(M, w, pack):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    (N, K), x = w.shape, torch.randn(M, w.shape[1]).to(DEVICE, dtype)
    calls = {"triton": partial(int4_mm, x, *pack), "bf16": partial(torch.matmul, x, w.T)}
    compare(calls["triton"](), x, *pack)
    if M == 1:
        slow = plan_of(x, pack[0])
        slow.constants["TRICK"] = False
        calls["triton, no trick"] = partial(slow, x, pack[0], pack[1], x.new_empty(M, N))
        calls["triton, first"] = partial(plain_mm, x, *pack)
    if not torch.version.hip:
        integers = torch.randint(256, (N, K // 2), device=DEVICE, dtype=torch.uint8)
        other = torch._convert_weight_to_int4pack(integers, 8), 128, w.new_ones(K // 128, N, 2)
        calls["int4pack"] = partial(torch._weight_int4pack_mm, x, *other)
    return rates((M, N, K), calls, "µs", rounds=20)


if ON_GPU:
    rows = []
    for N, K in ((14336, 4096), (8192, 8192)):
        w = torch.randn(N, K, device=DEVICE, dtype=dtype)
        weight = pack_int4(w)
        for M in (1, 4, 16, 32, 64, 128, 256, 1024):
            rows += benchmark(M, w, weight)
    write_rows("int4-matmul.csv", ["M", "N", "K"], rows)
    int4_mm(torch.randn(1, 8192).to(DEVICE, dtype), *weight)  # the launch whose X-ray is shown
    draw_shares(rows, GPU.name)
    write_calls({"int4_mm": {"triton": partial(int4_mm, x[:1], *pack, group)}})
else:
    print("Without a GPU there is nothing to time.")

# %%
# With one row, the trick makes the kernel :measured:`trick`\ × faster, and ``int4_mm`` needs
# :measured:`share` % of the time of bf16. The model expects :measured:`expected` %, but a launch
# takes as long for a quarter of the bytes. With :measured:`share_32` % at 32 rows and
# :measured:`share_64` % at 64, the saving shrinks long before the model says, because tensor cores
# wait for the unpacking. At 256 rows int4 needs :measured:`share_256` %. It is made for few rows.
#
# A call keeps the CPU busy for :measured:`cpu` µs. In a loop that does not wait, a call costs the
# larger of the CPU's and the GPU's time.
#
# Serving systems use kernels in CUDA, such as Marlin (see *References*). Its authors state nearly
# the ideal speed-up of four for up to 16 or 32 rows on an NVIDIA A10 (2024). We did not run it.
#
# Exercises
# ---------
#
# 1. **Fold the zeros** *(medium, 30 minutes)*. Let ``folded_mm(x, packed, scales, zeros)`` scale
#    the sum of a group instead of its weights, since
#    :math:`\sum x (ns + z) = s \sum xn + z \sum x`. :doc:`Solution <solutions/12-zero-points>`.
# 2. **fp4** *(medium, 40 minutes)*. Write ``fp4_mm(x, packed, scales)`` for numbers of 4 bits with
#    an exponent: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, from a table.
#    :doc:`Solution <solutions/12-fp4>`.
#
# References
# ----------
#
# * E. Frantar et al.: *MARLIN: mixed-precision auto-regressive parallel inference on large
#   language models*, https://arxiv.org/abs/2408.11743
# * Young Jin Kim et al.: *Who says elephants can't run*, https://arxiv.org/abs/2211.10017
