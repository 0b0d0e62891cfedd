"""
int4 weights
============

You write ``int4_mm(x, packed, scales, zeros)``, the product of a layer whose weights have 4 bits
each. With 8192 × 8192 weights and one token it takes :measured:`triton` µs. cuBLAS, with weights in
bf16, takes :measured:`faster` times as long. You need :doc:`03-matrix-multiplication`.
"""

# %%
# The kernel
# ----------
#
# A language model that writes one token reads all of its weights for it. With 4 bits each, they are
# read in about a quarter of the time of bf16. A **group** of 128 neighbors in a row shares a
# **scale** *s* and a **zero** *z*, and each weight *w* becomes an integer *n* from 0 to 15:
#
# .. math::
#    w \approx n \cdot s + z, \qquad z = \min w, \qquad s = (\max w - \min w) / 15
#
# A **word** of 16 bits holds four integers. The kernel loads the 32 words of a group, and shifts
# them by 0, 4, 8 and 12 bits. Word *j* holds columns *j*, *j* + 32, *j* + 64 and *j* + 96, so each
# shift gives 32 *neighbors*, which meet 32 neighbors in a row of *x*.

# sphinx_gallery_level = "transformer"
import os
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def first_kernel(
    x_ptr, packed_ptr, scales_ptr, zeros_ptr, out_ptr, M, N, groups,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute a tile of x · wᵀ."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
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
            w = ((words >> 4 * i) & 15).to(tl.float32) * s + z
            acc = tl.dot(x, tl.trans(w.to(x.dtype)), acc)
    out_ptrs = out_ptr + rows * N + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & real[None, :])


# %%
# The scale and the zero of a group have 16 bits each, so a weight takes 4.25 bits.


# sphinx_gallery_fold = "packs a weight, unpacks it, and calls the first kernel"
# sphinx_gallery_show = "pack_int4"
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


def simple_mm(x, packed, scales, zeros):
    """Return x · wᵀ of the first kernel."""
    (groups, N, quarter), side = packed.shape, 64 if ON_GPU else 16
    out, grid = x.new_empty(len(x), N), (triton.cdiv(len(x), 16), triton.cdiv(N, side))
    sizes = {"GROUP": 4 * quarter, "BLOCK_M": 16, "BLOCK_N": side}
    first_kernel[grid](x, packed, scales, zeros, out, len(x), N, groups, **sizes)
    return out


def compare(out, x, packed, scales, zeros):
    """Stop unless *out* is x · wᵀ up to two roundings: of the weight, and of the output."""
    exact = x.double() @ unpack(packed, scales, zeros).T
    error = (out.double() - exact).norm() / exact.norm().clamp(min=1e-30)
    assert error < 2 * torch.finfo(out.dtype).eps, f"the error is {error:.1e}"


torch.manual_seed(0)
dtype = torch.bfloat16 if ON_GPU else torch.float16  # no bf16 in the interpreter
for N, K, group in ((33, 256, 128), (64, 512, 64), (100, 1280, 256)):
    x, pack = torch.randn(5, K).to(DEVICE, dtype), pack_int4(torch.randn(N, K).to(DEVICE), group)
    compare(simple_mm(x, *pack), x, *pack)
print("the first kernel is right")

# %%
# What to expect
# --------------
#
# With *M* rows of *x*, tensor cores have 2 · *M* · *N* · *K* operations to do. Memory has to
# deliver 2 · *N* · *K* bytes in bf16, and 3.76 times fewer in int4. cuBLAS takes :measured:`bf16`
# µs for one row, the time of reading, and :measured:`many` µs for 1024 rows, that of computing. So
# both are equal at about :measured:`border` rows in bf16, and :measured:`border_4` in int4. We
# expect int4 to need :measured:`expected` % of bf16's time for a few rows, and more and more beyond
# :measured:`border_4` rows, up to all of it at :measured:`border`.
#
# The first kernel takes :measured:`first` µs for one row: most of its instructions unpack.
#
# Two weights in an instruction
# -----------------------------
#
# Shift, mask, convert, multiply, add and round: six instructions for one weight. A trick with the
# **exponent** saves most of them. A bf16 number has a sign, 8 bits of exponent and 7 of mantissa.
# If the exponent is 0, the number is its mantissa times 2⁻¹³³. So the bits of an integer *n* below
# 16 *are* the number :math:`n \cdot 2^{-133}`. Four bits further up they are
# :math:`n \cdot 2^{-129}`: they reach into the exponent, but floats are equally dense on both sides
# of that border. With the scale times 2¹⁰¹ or 2⁹⁷ and the zero times 2⁻³², one **fused
# multiply-add** gives the weight times 2⁻³². The kernel corrects its sums at the end.
#
# A register of 32 bits holds two words, and ``fma.rn.bf16x2`` computes two weights at once. Triton
# has no such operation, so we write **inline assembly**. Its results are ``=&r``, not ``=r``: else
# the first one may get a register that is read afterwards.

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
# ``join`` and ``permute`` cost nothing: each number stays in its register.
#
# Few rows and many
# -----------------
#
# With few rows the output is small and its sums are long. If programs shared a sum, another launch
# would have to add their parts. So the **warps** of a program share it: warp *i* adds groups *i*,
# *i* + 4, *i* + 8, …, and ``tl.sum`` adds the four results. A ``tl.dot`` of three dimensions does
# that: it multiplies a **batch** of matrices, one in each warp.
#
# With many rows, tensor cores decide. Hopper's fast instruction, **wgmma**, takes its left factor
# from registers, where our weights are, and its right one from shared memory. So *w* is the left
# factor, and the tile is transposed at the end. A program unpacks 64 or 128 rows of *w* and
# multiplies them by up to 256 rows of *x*. Descriptors (:doc:`03b-full-waves`) load both.


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
# ``tl.assume``: only if the loop is surely entered, the assembler lets one wgmma follow another.
#
# Calling it
# ----------
#
# Up to 16 rows are few. A call keeps a plan: see :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "checks the arguments, and plans the launch"
# sphinx_gallery_show = "int4_mm"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
MEMORY = getattr(GPU, "shared_memory_per_block_optin", 65536) - 1024  # of a multiprocessor
SMS = getattr(GPU, "multi_processor_count", 1)
PTX = ON_GPU and torch.version.cuda is not None and GPU.major >= 8
# With several stages, Triton before 3.9 overwrites registers that wgmma still reads.
OLD = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
FLOATS = torch.bfloat16, torch.float16, torch.float32


def check_arguments(x, packed, scales, zeros, group):
    """Raise TypeError or ValueError, naming the argument, if no product can be computed."""
    named = {"x": x, "packed": packed, "scales": scales, "zeros": zeros}
    for name, tensor in named.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(tensor).__name__}")
        kinds = FLOATS[: 2 if name == "x" and ON_GPU else 3]
        kinds = (torch.int16,) if name == "packed" else kinds
        if tensor.dtype not in kinds:
            wanted = " or ".join(str(kind).removeprefix("torch.") for kind in kinds)
            raise TypeError(f"{name} must be {wanted}, but its dtype is {tensor.dtype}")
        if tensor.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {tensor.device}")
    if packed.ndim != 3 or group not in (64, 128, 256) or packed.shape[2] != group // 4:
        found = f"packed has shape {tuple(packed.shape)}, and group is {group}"
        raise ValueError(f"packed must be [K / group, N, group / 4] of pack_int4, but {found}")
    groups, N, _ = packed.shape
    shapes = {"x": (*x.shape[:1], groups * group), "scales": (N, groups), "zeros": (N, groups)}
    for name, shape in shapes.items():
        if named[name].shape != shape:
            found = tuple(named[name].shape)
            raise ValueError(f"{name} must have shape {shape}, but has {found}")
    if torch.is_grad_enabled() and x.requires_grad:
        raise ValueError("x requires a gradient, which int4_mm lacks: call torch.no_grad()")


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


PLANS = {}


def int4_mm(x, packed, scales, zeros, group=128):
    """Return x · wᵀ, [M, N], for a weight that ``pack_int4`` packed.

    Args:
        x: [M, K], bf16 or fp16; in fp16 the weights are unpacked one by one.
        packed: [K / group, N, group / 4], int16.
        scales: [N, K / group], in the memory that ``pack_int4`` returns, or it is copied.
        zeros: [N, K / group], as scales.
        group: How many weights share a scale and a zero.
    """
    try:
        kept = not x.requires_grad and zeros.data_ptr() == scales.data_ptr() + 2
        plan = PLANS.get((key_of(x, packed, scales, zeros), group)) if kept else None
    except (AttributeError, TypeError):  # no tensors, or a group that is no number
        plan = None
    if plan is None:
        if not ON_GPU and getattr(x, "dtype", 0) == torch.bfloat16:  # it computes bf16 wrongly
            return int4_mm(x.float(), packed, scales, zeros, group).bfloat16()
        check_arguments(x, packed, scales, zeros, group)
        M, N = len(x), packed.shape[1]
        if M * N * packed.shape[0] == 0:
            return x.new_zeros(M, N)
        if scales.stride() != (2, 2 * N) or zeros.data_ptr() != scales.data_ptr() + 2:
            pairs = torch.stack([scales.T, zeros.T], dim=2).bfloat16()
            scales, zeros = pairs[..., 0].T, pairs[..., 1].T
        x, packed = x.contiguous(), packed.contiguous()
        x = x.clone() if x.data_ptr() % 16 else x  # for the descriptor
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        key = key_of(x, packed, scales, zeros), group
        plan = PLANS[key] = PLANS.get(key) or plan_of(x, packed)
    out = x.new_empty(plan.numbers[:2])
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=DEVICE))
    plan(x, packed, scales, out)
    return out


# The check covers one row to many, and weights of odd sizes.
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
# The weights are of two layers. **int4pack** is PyTorch's ``torch._weight_int4pack_mm``.

# sphinx_gallery_fold = "checks all sizes in float64, times them, and draws the times"
import matplotlib.pyplot as plt
from shared.bench import rows_of, write_calls, write_rows


def benchmark(M, w, pack):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    (N, K), x = w.shape, torch.randn(M, w.shape[1]).to(DEVICE, dtype)
    calls = {"triton": partial(int4_mm, x, *pack), "bf16": partial(torch.matmul, x, w.T)}
    compare(calls["triton"](), x, *pack)
    if M == 1:
        slow = plan_of(x, pack[0])
        slow.constants["TRICK"] = False
        calls["triton, no trick"] = partial(slow, x, pack[0], pack[1], x.new_empty(M, N))
        calls["triton, first"] = partial(simple_mm, x, *pack)
    if not torch.version.hip:
        integers = torch.randint(256, (N, K // 2), device=DEVICE, dtype=torch.uint8)
        other = torch._convert_weight_to_int4pack(integers, 8), 128, w.new_ones(K // 128, N, 2)
        calls["int4pack"] = partial(torch._weight_int4pack_mm, x, *other)
    return rows_of((M, N, K), calls, "µs", rounds=20, as_called=["triton", "bf16"])


if ON_GPU:
    rows, small = [], partial(int4_mm, x[:1], *pack, group)  # for the CPU's share
    for N, K in ((8192, 8192), (14336, 4096)):
        w = torch.randn(N, K, device=DEVICE, dtype=dtype)
        pack = pack_int4(w)
        for M in (1, 4, 16, 32, 64, 128, 256, 1024):
            rows += benchmark(M, w, pack)
    write_rows("int4-matmul.csv", ["M", "N", "K"], rows)
    write_calls({"int4_mm": {"triton": small}})
    _, ax = plt.subplots(layout="constrained")
    for name, color in (("int4pack", "#2e8b57"), ("bf16", "#d1495b"), ("triton", "#1b6ca8")):
        times = [(row[0], row[5]) for row in rows if row[3] == name and row[1] == 8192]
        ax.loglog(*zip(*times, strict=True), label=name, color=color, marker=".")
    title = f"8192 × 8192 weights\non {GPU.name}"
    ax.set(title=title, xlabel="rows of x", ylabel="µs, lower is better")
    ax.legend()
    plt.show()
else:
    print("Without a GPU there is nothing to time.")

# %%
# With one row, the trick alone makes the kernel :measured:`trick` times as fast, and ``int4_mm``
# needs :measured:`share` % of cuBLAS's time. It is more than expected, since a launch takes as long
# to start for a quarter of the bytes. At 64 rows it needs :measured:`share_64` %, and at 256 rows
# :measured:`share_256` %: the more rows, the less int4 saves. The CPU needs :measured:`cpu` µs.
#
# Exercises
# ---------
#
# 1. **Fold the zeros.** ``folded_mm(x, packed, scales, zeros)`` scales a group after summing, since
#    :math:`\sum x (ns + z) = s \sum xn + z \sum x`. :doc:`Solution <solutions/12-zero-points>`.
# 2. **fp4.** Write ``fp4_mm(x, packed, scales)`` for numbers of 4 bits with an exponent: 0, 0.5, 1,
#    1.5, 2, 3, 4, 6 and their negatives, from a table. :doc:`Solution <solutions/12-fp4>`.
#
# References
# ----------
#
# * E. Frantar et al.: *MARLIN: mixed-precision auto-regressive parallel inference on large
#   language models*, https://arxiv.org/abs/2408.11743
# * Young Jin Kim et al.: *Who says elephants can't run*, https://arxiv.org/abs/2211.10017
