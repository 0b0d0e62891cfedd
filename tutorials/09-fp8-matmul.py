"""
Matrix multiplication in fp8
============================

Half the bits, twice the speed: tensor cores do twice as many operations a second with numbers of
eight bits as with sixteen, and memory delivers twice as many. The price is that eight bits hold
very little. What it takes to get a product out of them that is still good for something are
**scales**, and care about where sums are kept. You will build ``scaled_mm(a, b, scale_a,
scale_b)``, as ``torch._scaled_mm`` but with scales by blocks as well, and learn

* what the two formats hold, and why a matrix needs scales before it is rounded to one of them;
* why scales by rows and columns cost nothing, and scales by blocks cost something;
* how exactly tensor cores add up, measured, and what **promoting** partial sums is;
* how to keep the tensor cores busy: descriptors, persistent programs, whole tiles and pieces;
* how to multiply partial sums by their scales while the next ones are computed;
* how to **quantize** a matrix in the kernel before, and when the whole is faster than bf16.

You should know :doc:`tiles <03-matrix-multiplication>`, and :doc:`waves, descriptors and persistent
programs <03b-full-waves>`.

.. ladder::
"""

# %%

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_fold_output = True
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "beyond"
import atexit
import functools
import os
import sys  # for shared/
from dataclasses import dataclass
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.measuring import geometric_mean, measure, rates, significant, warm_up, write_rows
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%

# sphinx_gallery_fold = "brings the ladder of steps, the claims and the styles of curves"
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.plotting import CEILING, OTHER, OURS, STEP_1, TORCH, plot_rates

# %%

# sphinx_gallery_fold = "imports Triton, and Gluon for the last steps"
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

# Two functions that got new names in Triton 3.9:
tma_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
tma_store = tma.async_store if hasattr(tma, "async_load") else tma.async_copy_shared_to_global

# %%


# sphinx_gallery_fold = "finds what the GPU can do"
# sphinx_gallery_fold_output = True
def gpu_facts():
    """Return (processors, bytes of shared memory, has descriptors, why there is no fp8 or "")."""
    if not ON_GPU:
        return 132, 232448, True, ""  # as an H200; the interpreter can do it all
    properties = torch.get_device_module(DEVICE).get_device_properties(DEVICE)
    processors = getattr(properties, "multi_processor_count", 64)
    shared_bytes = getattr(properties, "shared_memory_per_block_optin", 65536)
    nvidia = DEVICE.type == "cuda" and not torch.version.hip
    missing = ""
    if nvidia and (properties.major, properties.minor) < (8, 9):
        has = f"{properties.major}.{properties.minor}"
        missing = f"float8 products need compute capability 8.9, {properties.name} has {has}"
    elif torch.version.hip and "gfx95" not in getattr(properties, "gcnArchName", ""):
        missing = f"float8_e4m3fn products need gfx950, this is {properties.gcnArchName}"
    return processors, shared_bytes, nvidia and properties.major >= 9, missing


SMS, SHARED_BYTES, HAS_DESCRIPTORS, NO_FP8 = gpu_facts()
CAN_RUN = not NO_FP8
IS_HOPPER = (
    ON_GPU and not torch.version.hip and DEVICE.type == "cuda"
    and torch.cuda.get_device_capability(DEVICE)[0] == 9
)  # fmt: skip
if IS_HOPPER:  # Gluon's compiler (3.9) reports objects of its own as leaked when Python ends
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
print(NO_FP8 or "fp8 products: yes")

# %%
# Scales
# ------
#
# A floating-point number has a sign, an *exponent*, which says between which powers of two it lies,
# and a *mantissa*, which says where between them. **e4m3** has four bits for the exponent and three
# for the mantissa: its largest number is 448, and there are eight between one power of two and the
# next. So a matrix is divided by a **scale** before it is rounded, and the product is multiplied by
# it. The usual scale brings the largest number to the format's largest. If row *m* of A has the
# scale :math:`s_m`, and column *n* of B has :math:`t_n`, both factors can be taken out of the sum:
#
# .. math::
#
#     c_{mn} = \sum_k (s_m a_{mk}) (b_{kn} t_n) = s_m t_n \sum_k a_{mk} b_{kn}
#
# The tensor cores multiply the eight-bit numbers as they are, and the finished sum gets its scales:
# two multiplications for K products. That is nothing.

# sphinx_gallery_fold = "rounds with scales, and computes the reference in float64"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def quantize(x, axes, dtype=E4M3):
    """Return (x / scale rounded to *dtype*, scale), with one scale for all numbers along *axes*."""
    scale = x.abs().amax(axes, keepdim=True).float().clamp_min(1e-12) / torch.finfo(dtype).max
    return (x / scale).to(dtype), scale


def quantize_by_blocks(x, rows, columns):
    """Return *x* in e4m3 and its scales: one for each block of *rows* × *columns* numbers."""
    blocks = x.unflatten(1, (-1, columns)).unflatten(0, (-1, rows))  # of two dimensions each
    q, scale = quantize(blocks, (1, 3))
    return q.flatten(2, 3).flatten(0, 1), scale[:, 0, :, 0]


def dequantize(x, scale):
    """Return *x* times its scales in float64; a scale is for a row, a column or a block of 128."""
    for axis in (0, 1):
        if scale.shape[axis] not in (1, x.shape[axis]):
            scale = scale.repeat_interleave(128, axis).narrow(axis, 0, x.shape[axis])
    return x.double() * scale.double()


def scaled_reference(a, b, scale_a, scale_b):
    """Return the product of the scaled matrices in float64."""
    return dequantize(a, scale_a) @ dequantize(b, scale_b)


def operations(M, N, K):
    """Return the floating-point operations of a product, not counting the scales."""
    return 2 * M * N * K


# %%
# Step 1: Scales in the epilogue
# ------------------------------
#
# The simplest kernel is the first one of :doc:`03-matrix-multiplication` with two more loads at its
# end. The sum stays in fp32, the result is bf16. (``BY_BLOCKS``, for scales that change along K,
# can wait until step 4, and ``PROMOTE`` until the next one.)


@triton.jit(do_not_specialize=["M", "stride_sam", "stride_sak", "stride_sbk", "stride_sbn"])
def simple_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    stride_sam, stride_sak, stride_sbk, stride_sbn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    BY_BLOCKS: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """Compute one tile of the product of scaled matrices; any strides."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + steps[None, :] * stride_ak
    b_ptrs = b_ptr + steps[:, None] * stride_bk + columns[None, :] * stride_bn
    scale_a_ptrs = scale_a_ptr + rows * stride_sam
    scale_b_ptrs = scale_b_ptr + (columns // 128 if BY_BLOCKS else columns) * stride_sbn
    in_a, in_b = rows < M, columns < N
    a_step = tl.full((), BLOCK_K, tl.int64) * stride_ak
    b_step = tl.full((), BLOCK_K, tl.int64) * stride_bk
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=in_a[:, None] & (steps[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(steps[:, None] < K - k) & in_b[None, :], other=0.0)
        if BY_BLOCKS:  # BLOCK_K is 128
            scale_a = tl.load(scale_a_ptrs, mask=in_a, other=0.0)
            scale_b = tl.load(scale_b_ptrs, mask=in_b, other=0.0)
            acc += tl.dot(a, b) * scale_a[:, None] * scale_b[None, :]
            scale_a_ptrs += stride_sak
            scale_b_ptrs += stride_sbk
        elif PROMOTE:
            acc += tl.dot(a, b)
        else:
            acc = tl.dot(a, b, acc)
        a_ptrs += a_step
        b_ptrs += b_step
    if not BY_BLOCKS:
        scale_a = tl.load(scale_a_ptrs, mask=in_a, other=0.0)
        scale_b = tl.load(scale_b_ptrs, mask=in_b, other=0.0)
        acc = acc * scale_a[:, None] * scale_b[None, :]
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_a[:, None] & in_b[None, :])


# %%
# The reference of the check multiplies *the same* eight-bit numbers. Whether it was a good idea to
# round the matrices to them is another question, which the next two sections answer.
#
# Not every GPU has tensor cores for eight bits: NVIDIA's do from Ada and Hopper on (compute
# capability 8.9), AMD's of the CDNA 4 generation take the formats of this page. On others, the page
# says so and goes on with what can be shown without kernels. The interpreter multiplies fp8 numbers
# as it should. Two other things it does wrong, without a word, and this page works around both: it
# cuts numbers off where it should round them to bf16, and when rounding to fp8 carries over into
# the next power of two, it loses the carry.

# sphinx_gallery_fold = "draws problems, and checks the kernel on two of them"
# sphinx_gallery_show = "simple"


def divide_up(a, b):
    """Return a / b, rounded up."""
    return -(-a // b)


def simple(a, b, scale_a, scale_b, c, block=(128, 128, 128), promote=False, warps=8, stages=3):
    """Write the product to *c* with ``simple_kernel``; it takes any strides."""
    (M, K), N = a.shape, b.shape[1]
    grid = (divide_up(M, block[0]) * divide_up(N, block[1]),)
    simple_kernel[grid](
        a, b, c, scale_a, scale_b, M, N, K, *a.stride(), *b.stride(), c.stride(0),
        *scale_a.stride(), *scale_b.stride(), BLOCK_M=block[0], BLOCK_N=block[1], BLOCK_K=block[2],
        BY_BLOCKS=scale_b.shape != (1, N), PROMOTE=promote, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def draw_problem(M, N, K, blocks=False, seed=0):
    """Return random a and b in e4m3, b stored by columns, and their scales."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    a = torch.randn(M, K, device=DEVICE, generator=generator)
    b = torch.randn(N, K, device=DEVICE, generator=generator)
    if not blocks:
        (a, scale_a), (b, scale_b) = quantize(a, 1), quantize(b, 1)
        return a, b.T, scale_a, scale_b.T
    pad = torch.nn.functional.pad
    whole = pad(a, (0, -K % 128)), pad(b, (0, -K % 128, 0, -N % 128))
    (a, scale_a), (b, scale_b) = (
        quantize_by_blocks(x, rows, 128) for x, rows in zip(whole, (1, 128), strict=True)
    )
    a, b = a[:, :K].contiguous(), b[:N, :K].contiguous()
    return a, b.T, scale_a.T.contiguous().T, scale_b.T  # the scales of a: stored by columns


def assert_right(c, a, b, scale_a, scale_b):
    """Raise AssertionError where *c* is not the product of the scaled matrices."""
    a, b = dequantize(a, scale_a), dequantize(b, scale_b)
    # Tensor cores drop bits while they add up (step 2): in proportion to what is added up, which is
    # at most the length of the row times that of the column.
    size = (a.norm(dim=1, keepdim=True) * b.norm(dim=0, keepdim=True)).clamp_min(1e-300)
    rounding = torch.finfo(c.dtype).eps  # one unit in the last place
    torch.testing.assert_close(c.double() / size, a @ b / size, rtol=rounding, atol=2**-12)


def empty_like_product(a, b):
    """Return memory for the product: bf16, but fp32 in the interpreter, which rounds wrongly."""
    dtype = torch.bfloat16 if ON_GPU else torch.float32
    return torch.empty(a.shape[0], b.shape[1], dtype=dtype, device=DEVICE)


if CAN_RUN:
    for blocks in (False, True):
        problem = draw_problem(77, 45, 300, blocks)
        c = empty_like_product(*problem[:2])
        simple(*problem, c)
        assert_right(c, *problem)
    print("77 × 300 by 300 × 45, scales by rows and columns, and by blocks: right")
else:
    print("No kernels on this GPU.")

# %%
# What eight bits hold
# --------------------
#
# Beside e4m3 there is **e5m2**, with five bits for the exponent and two for the mantissa:

# sphinx_gallery_fold = "lists the numbers of both formats, and draws their rounding errors"
print("e4m3 from 16 to 32:", [float(v) for v in torch.arange(88, 97, dtype=torch.uint8).view(E4M3)])
print("e5m2 from 16 to 32:", [float(v) for v in torch.arange(76, 81, dtype=torch.uint8).view(E5M2)])
table = []
for name, dtype in {"e4m3": E4M3, "e5m2": E5M2, "bf16": torch.bfloat16}.items():
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    numbers = (info.max, info.smallest_normal, smallest, info.eps / 2)
    table.append((name, *(f"{number:.3g}" for number in numbers)))
headers = ["", "largest", "smallest of\nfull precision", "smallest", "relative error\nup to"]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

x = 2 ** torch.linspace(-22, 18, 6001, dtype=torch.float64)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
styles = {"e4m3": (E4M3, "#1b6ca8", "-"), "e5m2": (E5M2, "#d1495b", "-."),
          "bf16": (torch.bfloat16, "#444444", "--")}  # fmt: skip
for name, (dtype, colour, line) in styles.items():
    inside = x[x <= torch.finfo(dtype).max]
    error = (inside.float().to(dtype).double() - inside).abs() / inside
    worst = error.unfold(0, 200, 25).amax(1)  # the worst of a power of two or so
    at = inside.unfold(0, 200, 25).mean(1)
    ax.plot(at, worst, color=colour, linestyle=line, label=name)
ax.set(xscale="log", yscale="log", xlabel="number", ylabel="worst relative error", ylim=(1e-3, 2))
ax.set_xscale("log", base=2)
ax.set_title("What rounding does to a number, by its size")
ax.legend()
ax.grid(alpha=0.3)
plt.show()

# %%
# Read the picture from right to left. Beyond its largest number a format has nothing (the lines
# end). Then comes a wide plain where the relative error is the same whatever the size. At the left,
# the exponent has reached its end, and numbers are lost bit by bit until all is zero. e4m3 is twice
# as exact, and its plain is less than half as wide, in powers of two. For weights and activations
# exactness counts, and scales take care of the range; so e4m3 is the format of this page. (e5m2 is
# meant for gradients, which vary more in size, and ``scaled_mm`` takes it, too.)
#
# Which numbers share a scale
# ---------------------------
#
# The fewer numbers share a scale, the less does a single large one (an *outlier*) push all the
# others off the plain:


# sphinx_gallery_fold = "compares scales on a matrix with outliers"
def scale_errors(factor, feature, n=512):
    """Return {scales: mean relative error of a row of the product}, with outliers in *a*.

    Args:
        factor: How much larger the outliers are.
        feature: Whether they are a column of *a*, that meets a row of *b* as much smaller, or one
            number in 4096.
        n: The size of the matrices.
    """
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(n, n, generator=generator)
    b = torch.randn(n, n, generator=generator)
    if feature:
        a[:, n // 2] *= factor
        b[n // 2] /= factor
    else:
        a.view(-1)[torch.randint(n * n, (n * n // 4096,), generator=generator)] *= factor
    exact = a.double() @ b.double()
    versions = {}
    for name, axes_a, axes_b in (("tensor", (0, 1), (0, 1)), ("rows and\ncolumns", 1, 0)):
        (qa, sa), (qb, sb) = quantize(a, axes_a), quantize(b, axes_b)
        versions[name] = qa.double() * sa.double(), qb.double() * sb.double()
    (qa, sa), (qb, sb) = quantize_by_blocks(a, 1, 128), quantize_by_blocks(b, 128, 128)
    wide = sb.repeat_interleave(128, 0).repeat_interleave(128, 1)
    versions["blocks"] = qa.double() * sa.double().repeat_interleave(128, 1), qb.double() * wide
    return {
        name: float(((qa @ qb - exact).norm(dim=1) / exact.norm(dim=1)).mean())
        for name, (qa, qb) in versions.items()
    }


table, errors = [], {}
for what in ("numbers", "a feature"):
    for factor in (1000, 30000, 10**6):
        errors = scale_errors(factor, what == "a feature")
        table.append((what, factor, *map(significant, errors.values())))
headers = ["outliers", "larger by\na factor of", *(f"scales by\n{name}" for name in errors)]
print("mean relative error of a row of a 512 × 512 by 512 × 512 product")
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# As long as an outlier stays on the plain, together with all others, it does no harm: the
# error is that of three bits, and nothing but more bits could help. Larger outliers ruin the whole
# matrix if it has one scale. With a scale for each row, they ruin their own row only. But in large
# language models outliers come as *features*: the same column is large in each row, for each
# token, and the weights that it meets are small. Then every row has one. Blocks keep the harm
# to the block where it is.
#
# A scale that changes *along K*, as those of blocks do, cannot be taken out of the sum, but out of
# 128 products at a time. That costs something, and step 4 is about it.
#
# Step 2: How exactly tensor cores add
# ------------------------------------
#
# A kernel says that its sum is in fp32. For sixteen-bit matrices it is. For eight bits, Hopper's
# tensor cores keep fewer bits of a sum while they work on it: they align what is to be added to the
# largest of it, and cut off what sticks out at the lower end. An experiment: one product of a row
# and a column is large, and all the others are small. If a sum is large enough, does adding
# something small still change it?
#
# The remedy is ``PROMOTE``. Instead of going on with the sum where it was, each ``tl.dot`` starts
# from zero, and its result, the sum of 128 products, is added to the accumulator by the ordinary
# units of the SM, which do compute in fp32. This is called **promoting** a partial sum. Whatever
# the tensor cores cut off is then small compared with 128 products, and not compared with all of
# them.


# sphinx_gallery_fold = "multiplies with and without promotion, and compares with float64"
def one_large(K):
    """Return a and b whose product is one large number and K - 1 small ones, and scales of 1."""
    a, b = torch.full((2, 64, K), 0.375, device=DEVICE)
    a[:, 0], b[:, 0] = 448, 448
    b[:, 1:] = 1
    ones = torch.ones(64, 1, device=DEVICE)
    return a.to(E4M3), b.to(E4M3).T, ones, ones.T


def in_fp32(problem, promote):
    """Return the product as fp32, with or without promotion."""
    c = torch.empty(problem[0].shape[0], problem[1].shape[1], device=DEVICE)
    simple(*problem, c, block=(64, 64, 128), promote=promote, warps=4)
    return c


def relative_error(c, problem):
    """Return the error of *c*, relative to the float64 product, both as lengths of vectors."""
    expected = scaled_reference(*problem)
    return float((c.double() - expected).norm() / expected.norm())


if CAN_RUN:
    table = []
    for K in (512, 4096, 32768) if ON_GPU else (256, 512):
        problem = one_large(K)
        exact = float(scaled_reference(*problem)[0, 0])
        table.append((K, exact, *(float(in_fp32(problem, p)[0, 0]) for p in (False, True))))
    print("448 × 448 + (K - 1) × 0.375 × 1")
    print(tabulate(table, ["K", "exact", "as it comes", "promoted"], floatfmt=".2f"))

errors = {}
if CAN_RUN:
    for K in (256, 1024, 4096, 16384, 65536) if ON_GPU else (256, 512):
        for kind in ("random", "positive"):
            a, b, scale_a, scale_b = draw_problem(256 if ON_GPU else 64, 64, K)
            if kind == "positive":
                # By way of fp32: PyTorch's abs knows no fp8 on a GPU.
                a, b = a.float().abs().to(E4M3), b.float().abs().to(E4M3)
            for promote in (False, True):
                c = in_fp32((a, b, scale_a, scale_b), promote)
                errors[kind, promote, K] = relative_error(c, (a, b, scale_a, scale_b))
if ON_GPU and errors:
    fig, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    lines = {
        ("random", False): ("#d1495b", "-", "o"),
        ("positive", False): ("#d1495b", "--", "s"),
        ("random", True): ("#1b6ca8", "-", "o"),
        ("positive", True): ("#1b6ca8", "--", "s"),
    }
    for (kind, promote), (colour, line, marker) in lines.items():
        points = [(K, e) for (k, p, K), e in errors.items() if (k, p) == (kind, promote)]
        label = f"{kind} numbers, {'promoted' if promote else 'as it comes'}"
        ax.plot(
            *zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=label
        )
    ax.axhline(2**-9, color="#444444", linestyle=":", label="rounding to bf16, at most")
    ax.set(xscale="log", yscale="log", xlabel="K", ylabel="relative error")
    ax.set_title("Error of an fp8 product, against float64")
    ax.legend(fontsize=11)
    ax.grid(alpha=0.3)
    plt.show()
elif errors:
    print("The interpreter adds up in fp32; relative errors:")
    print(
        tabulate([(*key, f"{e:.1e}") for key, e in errors.items()], ["", "promoted", "K", "error"])
    )

# %%
# In the table, a sum that cannot grow any more shows as a number that stays where it is. (On GPUs
# whose tensor cores add in full fp32, and in the interpreter, the last two columns agree.)
#
# Is that bad? If the result is rounded to bf16 anyway, compare with the dotted line. Where positive
# and negative products cancel, as in most layers of a network, the error grows slowly. If all have
# the same sign, what is cut off adds up. Libraries have a switch for it; in ``torch._scaled_mm`` it
# is ``use_fast_accum``. Promotion is not free: all elements of the tile pass through the ordinary
# units, once in 128 steps along K, while the tensor cores wait. We shall leave sums as they come
# where scales are by rows and columns, as inference does (and give the library the same freedom),
# and promote where scales are by blocks, where each partial sum needs a multiplication anyhow.
#
# Step 3: Descriptors, persistent programs, pieces
# ------------------------------------------------
#
# Everything that made the product of :doc:`03b-full-waves` fast applies here, and matters more: the
# tensor cores are done with a step in half the time. So: tiles through descriptors, programs that
# stay and prefetch across tiles, and, where the last wave would be mostly empty, its tiles cut into
# pieces. The numbers are half as large, so a step along K can be 128 columns deep in the same
# shared memory. One thing is different. Tensor cores take a tile of eight-bit numbers from shared
# memory only if K is the direction that is contiguous, in A *and in B*. So the fast kernel wants B
# stored by columns, describes its transpose, and turns the tile around in ``tl.dot``.

# sphinx_gallery_fold = "has programs stay, and cuts the last wave, as the product in fp16 does"
# sphinx_gallery_show = "rows_tile"
# sphinx_gallery_difference = "simple_kernel"


@triton.jit
def position(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Return (row, column) of a tile, GROUP rows at a time, as in tutorial 03."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    return first + tile % in_group % rows, tile % in_group // rows


@triton.jit
def rows_tile(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, row, column, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute the tile at (row, column); b_desc describes the transpose of B."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, acc)
    rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    scale_a = tl.load(scale_a_ptr + rows, mask=rows < M, other=0.0)
    scale_b = tl.load(scale_b_ptr + columns, mask=columns < N, other=0.0)
    c_desc.store([row, column], (acc * scale_a[:, None] * scale_b[None, :]).to(c_desc.dtype))


@triton.jit(do_not_specialize=["M", "N", "K", "whole"])
def rows_kernel(
    a_desc, b_desc, c_desc, a_cut, b_cut, c_cut, scale_a_ptr, scale_b_ptr, M, N, K, whole,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    CUT_M: tl.constexpr, CUT_N: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute this program's share: of the first *whole* tiles, then of the pieces of the rest."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(program, whole, programs, flatten=True):
        i, j = position(tile, tiles_m, tiles_n, GROUP)
        rows_tile(
            a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, i * BLOCK_M, j * BLOCK_N, M, N, K,
            BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    if CUT_M:
        ACROSS: tl.constexpr = BLOCK_N // CUT_N
        PIECES: tl.constexpr = BLOCK_M // CUT_M * ACROSS  # of one tile
        for piece in tl.range(
            program, (tiles_m * tiles_n - whole) * PIECES, programs, flatten=True
        ):
            i, j = position(whole + piece // PIECES, tiles_m, tiles_n, GROUP)
            row = i * BLOCK_M + piece % PIECES // ACROSS * CUT_M
            column = j * BLOCK_N + piece % ACROSS * CUT_N
            rows_tile(
                a_cut, b_cut, c_cut, scale_a_ptr, scale_b_ptr, row, column, M, N, K,
                CUT_M, CUT_N, BLOCK_K,
            )  # fmt: skip


# %%
# The launcher of this step takes a plan: the tile, and the smaller one for the pieces, or none.

# sphinx_gallery_fold = "launches what a plan says, and checks it"
# sphinx_gallery_show = "Plan"


@dataclass(frozen=True)
class Plan:
    """How to compute a product with scales by rows and columns."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    cut: tuple[int, int] | None = None  # the smaller tile for the last wave


def describe(t, block):
    """Return a descriptor for blocks of the matrix *t*."""
    return TensorDescriptor(t, t.shape, t.stride(), list(block))


def run_plan(plan, a, b, scale_a, scale_b, c):
    """Write the product to *c*, computed by *plan*; b is stored by columns."""
    (M, K), N = a.shape, b.shape[1]
    m, n, k = plan.block_m, plan.block_n, plan.block_k
    tiles = divide_up(M, m) * divide_up(N, n)
    whole, programs = tiles, tiles
    descriptors = [describe(a, (m, k)), describe(b.T, (n, k)), describe(c, (m, n))]
    if plan.cut:
        cut_m, cut_n = plan.cut
        whole = tiles // PROGRAMS * PROGRAMS
        programs = max(whole, (tiles - whole) * (m // cut_m) * (n // cut_n))
        descriptors += [describe(a, (cut_m, k)), describe(b.T, (cut_n, k)), describe(c, plan.cut)]
    else:
        descriptors += [None, None, None]
    rows_kernel[(min(PROGRAMS, programs),)](
        *descriptors, scale_a.reshape(-1).contiguous(), scale_b.reshape(-1).contiguous(),
        M, N, K, whole,
        BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, CUT_M=plan.cut and plan.cut[0],
        CUT_N=plan.cut and plan.cut[1], GROUP=16 if tiles > 7 * PROGRAMS else 8,
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


PROGRAMS = SMS if ON_GPU else 5  # the interpreter runs one after the other: a few will do
if CAN_RUN and HAS_DESCRIPTORS:
    problem = draw_problem(200, 176, 320)
    for cut in (None, (32, 32)):
        c = empty_like_product(*problem[:2])
        run_plan(Plan(64, 64, 128, warps=4, stages=3, cut=cut), *problem, c)
        assert_right(c, *problem)
    print("200 × 320 by 320 × 176, whole tiles and pieces: right")
else:
    print("No descriptors, or no fp8: from here on, only the first kernel runs on this GPU.")

# %%
# Which plan is best for which shape is again a matter of waves. The estimate is that of
# :doc:`03b-full-waves`: a tile costs its products and what it takes to bring its numbers,
# and cutting up the last wave costs a new start. Here is what it chooses for squares:

# sphinx_gallery_fold = "estimates the time of each plan, and chooses"
START = 5 * 2**23  # what a new start costs, in products


def tile_cost(m, n):
    """Return the time that one SM needs for one column of A in an m × n tile, in products."""
    return m * n + 20 * (m + n)


def plan_cost(plan, M, N, K):
    """Estimate the time of an (M, K) by (K, N) product, in products of one SM."""
    m, n = plan.block_m, plan.block_n
    waves, left = divmod(divide_up(M, m) * divide_up(N, n), SMS)
    if plan.cut is None or left == 0:
        return K * (waves + (left > 0)) * tile_cost(m, n) + (START if plan.cut else 0)
    pieces = left * (m // plan.cut[0]) * (n // plan.cut[1])
    last = divide_up(pieces, SMS) * tile_cost(*plan.cut)
    return K * (waves * tile_cost(m, n) + last) + START


def fit(plan):
    """Return *plan* with as many of its stages as shared memory has room for."""
    step = (plan.block_m + plan.block_n) * plan.block_k
    room = SHARED_BYTES - plan.block_m * plan.block_n * 2 - 2048  # but for storing a tile
    stages = min(plan.stages, room // step)
    return Plan(plan.block_m, plan.block_n, plan.block_k, plan.warps, stages, plan.cut)


PLANS = [
    Plan(64, 128, 128, warps=4, stages=4),
    Plan(64, 128, 256, warps=4, stages=3),
    Plan(128, 128, 128, warps=4, stages=4),
    Plan(128, 128, 128, warps=4, stages=4, cut=(64, 128)),
    Plan(128, 256, 128, warps=8, stages=3),
    Plan(128, 256, 128, warps=8, stages=3, cut=(64, 128)),
]
# The deeper one of two plans with the same tile comes second, and wins where it fits:
PLANS = [plan for plan in reversed([fit(plan) for plan in PLANS]) if plan.stages >= 2]


@functools.lru_cache(maxsize=1024)
def cheapest_plan(M, N, K):
    """Return the plan with the least estimated time for an (M, K) by (K, N) product."""
    return min(PLANS, key=lambda plan: plan_cost(plan, M, N, K))


table = []
for n in (1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192):
    plan = cheapest_plan(n, n, n)
    tile = f"{plan.block_m} × {plan.block_n} × {plan.block_k}"
    waves = divide_up(n, plan.block_m) * divide_up(n, plan.block_n) / SMS
    cut = "{} × {}".format(*plan.cut) if plan.cut else ""
    table.append((n, tile, significant(waves), cut))
headers = ["M = N = K", "tile", "waves", "last wave cut into"]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))

# %%
# Step 4: Scales by blocks
# ------------------------
#
# A scale for each 128 numbers of a row of A, and one for each 128 × 128 block of B, are the scales
# of choice for weights and activations of large models. Along K they change every 128 numbers. So
# each step of the loop multiplies 128 columns, from zero, and its result is multiplied by the
# scales while it is added to the sum. That is promotion, and the scales come with it: ``p * scale``
# and the addition are one instruction for each element, the *fused multiply-add*.
#
# In a tile that is 128 columns wide, all columns have the same scale of B, a single number. The
# scales of A are one for each row; neighbouring rows should be neighbours in memory, so that the
# load is one piece. Hence such scales are stored by columns.

# sphinx_gallery_fold = "launches the kernel, and checks it"
# sphinx_gallery_show = "blocks_kernel"
# sphinx_gallery_difference = "rows_kernel"


@triton.jit(do_not_specialize=["M", "N", "K", "stride_sak", "stride_sbk", "stride_sbn"])
def blocks_kernel(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_sam, stride_sak, stride_sbk, stride_sbn,
    BLOCK_M: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of the tiles, BLOCK_M × 128, with scales by blocks."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, 128)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = position(tile, tiles_m, tiles_n, GROUP)
        rows = i * BLOCK_M + tl.arange(0, BLOCK_M)
        scale_a_ptrs = scale_a_ptr + rows.to(tl.int64) * stride_sam
        scale_b_ptrs = scale_b_ptr + j * stride_sbn
        acc = tl.zeros((BLOCK_M, 128), dtype=tl.float32)
        for k in range(0, K, 128):
            p = tl.dot(a_desc.load([i * BLOCK_M, k]), b_desc.load([j * 128, k]).T)
            scale = tl.load(scale_a_ptrs + k // 128 * stride_sak, mask=rows < M, other=0.0)
            scale *= tl.load(scale_b_ptrs + k // 128 * stride_sbk)
            acc += p * scale[:, None]
        c_desc.store([i * BLOCK_M, j * 128], acc.to(c_desc.dtype))


def run_blocks(a, b, scale_a, scale_b, c, block_m=128):
    """Write the product with scales by blocks to *c*; b is stored by columns."""
    (M, K), N = a.shape, b.shape[1]
    tiles = divide_up(M, block_m) * divide_up(N, 128)
    step = (block_m + 128) * 128
    blocks_kernel[(min(PROGRAMS, tiles),)](
        describe(a, (block_m, 128)), describe(b.T, (128, 128)), describe(c, (block_m, 128)),
        scale_a, scale_b, M, N, K, *scale_a.stride(), *scale_b.stride(),
        BLOCK_M=block_m, GROUP=8, num_warps=8,
        num_stages=max(1, min(4, (SHARED_BYTES - block_m * 256 - 2048) // step)),
    )  # fmt: skip


if CAN_RUN and HAS_DESCRIPTORS:
    problem = draw_problem(200, 176, 320, blocks=True)
    c = empty_like_product(*problem[:2])
    run_blocks(*problem, c)
    assert_right(c, *problem)
    print("200 × 320 by 320 × 176, scales by blocks: right")
else:
    print("The first kernel can do it, without descriptors.")

# %%
# The tensor cores wait while ``p`` is added to the sum, and the other units wait while the tensor
# cores multiply. Nothing in the loop forces them to: the next product does not need the last sum.
# But all warps of the program do the same at the same time, and for a second ``p`` that is on its
# way while the first one is added, there are not enough registers in a tile that is worth the name.
#
# Step 5: Two that take turns
# ---------------------------
#
# So let *different warps do different things*. On Hopper, a product is issued by a *warpgroup*,
# four warps. We give a program two warpgroups that multiply, the **consumers**, each with half of
# the tile, 64 rows, and a warp that does nothing but start loads, the **producer**. None of them
# waits for the others unless it must. While one consumer adds its ``p`` to its sum, the tensor
# cores work for the other one.
#
# Triton's language has no words for that: there, a program is one sequence of steps. **Gluon**,
# which comes with Triton, is the language below it. It looks alike, but nothing is decided for you:
# you allocate the shared memory, say which thread holds which element (a *layout*), start loads and
# products, and wait for them. What you need to know for this kernel:
#
# ``mbarrier``
#     A counter in shared memory that one waits for. It goes through *phases*: a phase ends when all
#     that was expected has arrived, be it threads or bytes, and then the next one begins.
#     ``wait(bar, phase)`` waits for the end of a phase, numbered 0, 1, 0, 1, …
# ``ready`` and ``empty``
#     For each stage of the pipeline, one barrier says that its data has arrived, and one that both
#     consumers are done with it. The producer waits for *empty* and announces how many bytes it has
#     ordered; the consumers wait for *ready*.
# ``warpgroup_mma`` and ``warpgroup_mma_wait``
#     Start a product, and wait for it. With ``use_acc=False`` it starts from zero.
# ``gl.warp_specialize``
#     Runs several functions at the same time, each with its own warps and its own share of the
#     registers: a producer needs hardly any, so the consumers can have more.

# sphinx_gallery_fold = "says which tile a number is"
# sphinx_gallery_show = "producer, start_product, consumer"


@gluon.jit
def place(tile, tiles_m, tiles_n, GROUP: gl.constexpr):
    """Return (row, column) of a tile, GROUP rows at a time."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    return first + tile % in_group % rows, tile % in_group // rows


@gluon.jit
def producer(
    descriptors, buffers, barriers, scales, sizes, strides,
    STAGES: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Start the loads for all tiles of this program, as early as there is room."""
    a_desc, b_desc, _ = descriptors
    a_tiles, b_tiles, _ = buffers
    ready, empty = barriers
    M, N, K = sizes
    tiles_m, tiles_n = gl.cdiv(M, 128), gl.cdiv(N, 128)
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        i, j = place(tile, tiles_m, tiles_n, GROUP)
        for k in range(0, gl.cdiv(K, 256) * 256, 128):  # two steps at a time; behind K: zeros
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
            here = ready.index(stage)
            mbarrier.expect(here, 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma_load(b_desc, [j * 128, k], here, b_tiles.index(stage))
            tma_load(a_desc, [i * 128, k], here, a_tiles.index(stage * 2))
            tma_load(a_desc, [i * 128 + 64, k], here, a_tiles.index(stage * 2 + 1))
            step += 1


@gluon.jit
def start_product(step, p, WHICH: gl.constexpr, buffers, barriers, STAGES: gl.constexpr):
    """Wait for the data of *step*, and start its product, which is going to be in *p*."""
    stage = step % STAGES
    mbarrier.wait(barriers[0].index(stage), step // STAGES & 1)
    a, b = buffers[0].index(stage * 2 + WHICH), buffers[1].index(stage)
    return warpgroup_mma(a, b.permute((1, 0)), p, use_acc=False, is_async=True)


@gluon.jit
def consumer(
    WHICH: gl.constexpr, descriptors, buffers, barriers, scales, sizes, strides,
    STAGES: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Compute 64 rows of each tile of this program: the upper ones, or the lower ones."""
    c_desc, c_tile = descriptors[2], buffers[2].index(WHICH)
    empty = barriers[1]
    M, N, K = sizes
    stride_sam, stride_sak, stride_sbk, stride_sbn = strides
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 32]
    )
    tiles_m, tiles_n = gl.cdiv(M, 128), gl.cdiv(N, 128)
    p = gl.zeros((64, 128), gl.float32, layout)
    q = gl.zeros((64, 128), gl.float32, layout)
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        i, j = place(tile, tiles_m, tiles_n, GROUP)
        row = i * 128 + WHICH * 64
        rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
        inside = rows < M
        a_ptrs, b_ptr = scales[0] + rows * stride_sam, scales[1] + j * stride_sbn
        acc = gl.zeros((64, 128), gl.float32, layout)
        there = K > 128
        a_p, a_q = gl.load(a_ptrs, inside, 0.0), gl.load(a_ptrs + stride_sak, inside & there, 0.0)
        b_p, b_q = gl.load(b_ptr), gl.load(b_ptr + stride_sbk, there, 0.0)
        for k in range(0, K, 256):
            p = start_product(step, p, WHICH, buffers, barriers, STAGES)
            q = start_product(step + 1, q, WHICH, buffers, barriers, STAGES)
            scale_p, scale_q = a_p * b_p, a_q * b_q
            a_ptrs += 2 * stride_sak  # the next scales are on their way meanwhile
            b_ptr += 2 * stride_sbk
            here, there = k + 256 < K, k + 384 < K
            a_p = gl.load(a_ptrs, inside & here, 0.0)
            a_q = gl.load(a_ptrs + stride_sak, inside & there, 0.0)
            b_p = gl.load(b_ptr, here, 0.0)
            b_q = gl.load(b_ptr + stride_sbk, there, 0.0)
            p, q = warpgroup_mma_wait(num_outstanding=1, deps=(p, q))  # p is done, q need not be
            mbarrier.arrive(empty.index(step % STAGES), count=1)
            acc += p * scale_p[:, None]
            q, acc = warpgroup_mma_wait(num_outstanding=0, deps=(q, acc))
            mbarrier.arrive(empty.index((step + 1) % STAGES), count=1)
            acc += q * scale_q[:, None]
            step += 2
        tma.store_wait(pendings=0)  # the tile before has left the shared memory
        c_tile.store(acc.to(c_desc.dtype))
        fence_async_shared()
        tma_store(c_desc, [row, j * 128], c_tile)
    tma.store_wait(pendings=0)


# %%
# Each consumer has *two* products under way, ``p`` and ``q``. While one is multiplied by its scales
# and added to the sum, the tensor cores have the other one, and those of the other consumer. At the
# end of each round both are finished. To start the next ``p`` before ``q`` has been added is
# tempting, but the assembler then has to prove, around the loop, that nobody touches the registers
# of a product that is under way; where it cannot, it makes all of them wait for each other.
#
# What remains is to set everything up, and to start the three.

# sphinx_gallery_fold = "allocates buffers and barriers, starts the three, launches and checks"


@gluon.jit
def upper(descriptors, buffers, barriers, scales, sizes, strides,
          STAGES: gl.constexpr, GROUP: gl.constexpr):  # fmt: skip
    """Compute the upper 64 rows of each tile."""
    consumer(0, descriptors, buffers, barriers, scales, sizes, strides, STAGES, GROUP)


@gluon.jit
def lower(descriptors, buffers, barriers, scales, sizes, strides,
          STAGES: gl.constexpr, GROUP: gl.constexpr):  # fmt: skip
    """Compute the lower 64 rows of each tile."""
    consumer(1, descriptors, buffers, barriers, scales, sizes, strides, STAGES, GROUP)


SIZES = ["M", "N", "K", "stride_sak", "stride_sbk", "stride_sbn"]


@gluon.jit(do_not_specialize=SIZES)
def turns_kernel(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_sam, stride_sak, stride_sbk, stride_sbn,
    STAGES: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """As blocks_kernel, by two consumers and a producer."""
    a_tiles = gl.allocate_shared_memory(a_desc.dtype, [2 * STAGES, 64, 128], a_desc.layout)
    b_tiles = gl.allocate_shared_memory(b_desc.dtype, [STAGES, 128, 128], b_desc.layout)
    c_tiles = gl.allocate_shared_memory(c_desc.dtype, [2, 64, 128], c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)  # both consumers
    tiles, buffers = (a_desc, b_desc, c_desc), (a_tiles, b_tiles, c_tiles)
    bars, scales = (ready, empty), (scale_a_ptr, scale_b_ptr)
    sizes, strides = (M, N, K), (stride_sam, stride_sak, stride_sbk, stride_sbn)
    gl.warp_specialize(
        [
            (upper, (tiles, buffers, bars, scales, sizes, strides, STAGES, GROUP)),
            (lower, (tiles, buffers, bars, scales, sizes, strides, STAGES, GROUP)),
            (producer, (tiles, buffers, bars, scales, sizes, strides, STAGES, GROUP)),
        ],
        [4, 1],
        [232, 24],
    )


def gluon_descriptor(t, block, dtype):
    """Return a descriptor for blocks of *t*, in the layout that tensor cores read."""
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return GluonDescriptor(t, list(t.shape), list(t.stride()), block, layout)


def run_turns(a, b, scale_a, scale_b, c):
    """Write the product with scales by blocks to *c*; for Hopper. b is stored by columns."""
    (M, K), N = a.shape, b.shape[1]
    tiles = divide_up(M, 128) * divide_up(N, 128)
    fp8 = {E4M3: gl.float8e4nv, E5M2: gl.float8e5}
    turns_kernel[(min(SMS, tiles),)](
        gluon_descriptor(a, [64, 128], fp8[a.dtype]),
        gluon_descriptor(b.T, [128, 128], fp8[b.dtype]),
        gluon_descriptor(c, [64, 128], gl.bfloat16), scale_a, scale_b, M, N, K,
        *scale_a.stride(), *scale_b.stride(), STAGES=6, GROUP=8, num_warps=4, maxnreg=168,
    )  # fmt: skip


if IS_HOPPER:
    for M, N, K in ((200, 176, 320), (3000, 2200, 1152)):
        problem = draw_problem(M, N, K, blocks=True)
        c = empty_like_product(*problem[:2]).fill_(torch.nan)
        run_turns(*problem, c)
        assert_right(c, *problem)
    print("Two that take turns: right")
else:
    print("This kernel needs a Hopper GPU; elsewhere, that of step 4 is used.")

# %%
# Quantizing, in the kernel before
# --------------------------------
#
# Weights are rounded to fp8 once. Activations are new each time, so rounding them belongs to the
# price of the product. In PyTorch, ``quantize`` above is a handful of passes over the matrix: the
# absolute values, the largest of each row, the division, the rounding. As in
# :doc:`02-fused-softmax`, one kernel reads a row once, keeps it in registers, and writes half as
# many bytes as it has read.

# sphinx_gallery_fold = "rounds, does the same by blocks, launches both kernels, and checks them"
# sphinx_gallery_show = "quantize_rows_kernel"


@triton.jit
def to_fp8(x, dtype: tl.constexpr, EMULATE: tl.constexpr):
    """Return *x* rounded to *dtype*; EMULATE does by hand what the interpreter does wrongly."""
    if EMULATE:
        # To three bits, ties to even: add half of the last place, and cut off. Near zero, where
        # numbers of e4m3 are 2 ** -9 apart, adding 1.5 * 2 ** 14 leaves no bits below that.
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000
        small = (x + 24576.0) - 24576.0
        x = tl.where(tl.abs(x) < 2**-6, small, bits.to(tl.float32, bitcast=True))
    return x.to(dtype)


@triton.jit
def quantize_rows_kernel(
    x_ptr, q_ptr, scale_ptr, K, stride_xm, stride_xk, BLOCK: tl.constexpr, EMULATE: tl.constexpr
):
    """Round one row to e4m3, so that its largest number becomes 448."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < K
    x_ptrs = x_ptr + row * stride_xm + columns.to(tl.int64) * stride_xk
    x = tl.load(x_ptrs, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-12) / 448
    q = to_fp8(x * (1 / scale), q_ptr.dtype.element_ty, EMULATE)
    tl.store(q_ptr + row * K + columns, q, mask=inside)
    tl.store(scale_ptr + row, scale)


@triton.jit
def quantize_blocks_kernel(
    x_ptr, q_ptr, scale_ptr, M, K, stride_xm, stride_xk, stride_sm, stride_sk,
    BLOCK_M: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    """Round BLOCK_M rows of 128 numbers to e4m3, each row with a scale of its own."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    block = tl.program_id(1)
    columns = block * 128 + tl.arange(0, 128)
    inside = (rows[:, None] < M) & (columns[None, :] < K)
    x_ptrs = x_ptr + rows[:, None] * stride_xm + columns.to(tl.int64)[None, :] * stride_xk
    x = tl.load(x_ptrs, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=1), 1e-12) / 448
    q = to_fp8(x * (1 / scale)[:, None], q_ptr.dtype.element_ty, EMULATE)
    tl.store(q_ptr + rows[:, None] * K + columns[None, :], q, mask=inside)
    tl.store(scale_ptr + rows * stride_sm + block * stride_sk, scale, mask=rows < M)


def quantize_activations(x, blocks=False):
    """Return the matrix *x* in e4m3 and its scales, for each row or for each 128 numbers of it."""
    M, K = x.shape
    q = torch.empty(M, K, dtype=E4M3, device=x.device)
    emulate = not ON_GPU
    if not blocks:
        scale = torch.empty(M, 1, device=x.device)
        size = triton.next_power_of_2(K)
        quantize_rows_kernel[(M,)](
            x, q, scale, K, *x.stride(), BLOCK=size, EMULATE=emulate,
            num_warps=min(max(size // 1024, 1), 16),
        )  # fmt: skip
        return q, scale
    scale = torch.empty(divide_up(K, 128), M, device=x.device).T  # by columns: see step 4
    grid = divide_up(M, 32), divide_up(K, 128)
    quantize_blocks_kernel[grid](
        x, q, scale, M, K, *x.stride(), *scale.stride(), BLOCK_M=32, EMULATE=emulate, num_warps=4
    )
    return q, scale


if CAN_RUN:
    x = torch.randn(67, 300, device=DEVICE)
    x = x * torch.logspace(-6, 3, 67, device=DEVICE)[:, None]
    for blocks in (False, True):
        q, scale = quantize_activations(x, blocks)
        # Half of the last of three bits, or of the smallest number there is; and fp32 rounds, too.
        half = scale * 2.0**-10 if not blocks else scale.repeat_interleave(128, 1)[:, :300] * 2**-10
        error = (dequantize(q, scale) - x.double()).abs()
        assert (error <= 1.001 * torch.maximum(x.abs() / 16, half)).all()
        assert q.float().abs().amax() == 448
    print("rounded to e4m3, by rows and by blocks: no error above half of the last place")

# %%
# The launcher
# ------------
#
# ``scaled_mm`` takes scales of two kinds, and tells them apart by their shapes. It chooses the
# kernel by what the matrices and the GPU can do.

# sphinx_gallery_fold = "checks the arguments"
DTYPES = (E4M3, E5M2)


def check_arguments(a, b, scale_a, scale_b):
    """Raise an error, naming the argument, where ``scaled_mm`` cannot go on."""
    if NO_FP8:
        raise RuntimeError(f"scaled_mm cannot run here: {NO_FP8}")
    for name, t in (("a", a), ("b", b), ("scale_a", scale_a), ("scale_b", scale_b)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        dtypes = (torch.float32,) if name.startswith("scale") else DTYPES
        if t.dtype not in dtypes:
            expected = "float32" if len(dtypes) == 1 else "float8_e4m3fn or float8_e5m2"
            raise TypeError(f"{name} must be {expected}, but its dtype is {t.dtype}")
        if t.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, but has shape {tuple(t.shape)}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a must have as many columns as b has rows: {tuple(a.shape)} × {tuple(b.shape)}"
        )
    (M, K), N = a.shape, b.shape[1]
    blocks = divide_up(K, 128), divide_up(N, 128)
    for name, scale, by_line, by_block in (
        ("scale_a", scale_a, (M, 1), (M, blocks[0])),
        ("scale_b", scale_b, (1, N), blocks),
    ):
        if scale.shape not in (by_line, by_block):
            raise ValueError(
                f"{name} must have shape {by_line}, for rows of a and columns of b, or {by_block}, "
                f"for blocks of 128, but has {tuple(scale.shape)}"
            )
    by_lines = scale_a.shape == (M, 1) and scale_b.shape == (1, N)
    if not by_lines and (scale_a.shape, scale_b.shape) != ((M, blocks[0]), blocks):
        raise ValueError(
            f"scale_b must be of the same kind as scale_a, but they have shapes "
            f"{tuple(scale_b.shape)} and {tuple(scale_a.shape)}"
        )


def can_describe(t):
    """Say if the rows of the matrix *t* are contiguous and start at multiples of 16 bytes."""
    row, column = t.stride()
    return column == 1 and row >= t.shape[1] and row % 16 == 0 and t.data_ptr() % 16 == 0


# %%


def scaled_mm(a, b, scale_a, scale_b):
    """Return the product of *a* and *b*, each times its scales, in bf16.

    Sums are made as the tensor cores make them where scales are by rows and columns (as
    ``torch._scaled_mm`` with ``use_fast_accum=True``), and promoted to fp32 every 128 products
    where scales are by blocks.

    Args:
        a: M × K in float8_e4m3fn or float8_e5m2. It is fastest with contiguous rows.
        b: K × N, likewise. It is fastest with contiguous *columns*, which PyTorch demands.
        scale_a: In fp32: M × 1, for each row; or M × ⌈K / 128⌉, for each 128 numbers of a row.
        scale_b: In fp32: 1 × N, for each column; or ⌈K / 128⌉ × ⌈N / 128⌉, for each block.

    Raises:
        RuntimeError: This GPU has no float8 products.
        TypeError: An argument is no tensor, or has another dtype.
        ValueError: The shapes or devices do not fit.
    """
    check_arguments(a, b, scale_a, scale_b)
    (M, K), N = a.shape, b.shape[1]
    c = empty_like_product(a, b)
    by_lines = scale_a.shape == (M, 1) and scale_b.shape == (1, N)
    fast = HAS_DESCRIPTORS and N % 8 == 0 and K and can_describe(a) and can_describe(b.T)
    if not c.numel() or not K:
        c.zero_()  # nothing, or sums over nothing
    elif not fast:
        simple(a, b, scale_a, scale_b, c)
    elif by_lines:
        run_plan(cheapest_plan(M, N, K), a, b, scale_a, scale_b, c)
    elif IS_HOPPER:
        run_turns(a, b, scale_a, scale_b, c)
    else:
        run_blocks(a, b, scale_a, scale_b, c)
    return c.bfloat16()  # which it is already, but for the interpreter


# %%
# Is it right?
# ------------
#
# Against float64, with the very same eight-bit numbers. The tolerance is what one rounding to bf16
# may do, and a share of the length of the row times that of the column, for what tensor cores drop.

# sphinx_gallery_fold = "checks shapes, both kinds of scales, views, and the same bits every time"
torch.manual_seed(0)
shapes = [(1, 8, 16), (77, 45, 300), (130, 264, 144), (3, 0, 5), (0, 8, 16)]
shapes += [(1823, 784, 528), (3072, 3072, 256)] if ON_GPU else [(200, 136, 272), (65, 128, 1)]
if CAN_RUN:
    problems = [draw_problem(*shape) for shape in shapes]
    problems += [draw_problem(*shape, blocks=True) for shape in shapes if shape[0] and shape[1]]
    warm_up([functools.partial(scaled_mm, *problem) for problem in problems])
    for problem in problems:
        assert_right(scaled_mm(*problem), *problem)
    print(f"scaled_mm is right on {len(shapes)} shapes, for both kinds of scales")

    a, b, scale_a, scale_b = draw_problem(96, 80, 160)
    by_rows = b.contiguous()  # not what tensor cores want: the first kernel
    assert_right(scaled_mm(a, by_rows, scale_a, scale_b), a, b, scale_a, scale_b)
    assert_right(scaled_mm(a[::2], b, scale_a[::2], scale_b), a[::2], b, scale_a[::2], scale_b)
    first = scaled_mm(a, b, scale_a, scale_b)
    assert all(torch.equal(scaled_mm(a, b, scale_a, scale_b), first) for _ in range(3))
    print("for matrices by rows and for views; and it gives the same bits every time")

# %%
# And the errors, each with what it was given:

# sphinx_gallery_fold = "calls scaled_mm with wrong arguments"
if CAN_RUN:
    for wrong in (
        (a.float(), b, scale_a, scale_b),
        (a, b[1:], scale_a, scale_b),
        (a, b, scale_a.double(), scale_b),
        (a, b, scale_a.T, scale_b),
        (a, b, scale_a, scale_b[:, :1]),
    ):
        try:
            scaled_mm(*wrong)
        except (TypeError, ValueError) as error:
            print(f"{type(error).__name__}: {error}")
        else:
            raise AssertionError("scaled_mm should have refused this")
else:
    print("RuntimeError:", NO_FP8)

# %%
# The benchmark
# -------------
#
# Squares from 1024 to 8192, and four products of a language model with 70 billion parameters, for
# 4096 tokens: the projections of the attention, its output, and the two of the network behind it.
# Beside ``scaled_mm`` (*triton*) are timed
#
# * ``torch._scaled_mm`` with scales by rows and columns, which is cuBLAS or a kernel of PyTorch's
#   own, with ``use_fast_accum=True``: the fastest there is (*cublas*), and with False (*exact
#   sums*);
# * the same with scales by blocks of 128, where the library has it (*cublas, blocks of 128*);
# * the library's product in bf16 (*bf16*);
# * the first two of ours and the library's with quantizing A from bf16 in each call, by our kernel
#   for all, since PyTorch's own passes would be far slower (*+ quantize*).
#
# All rates count 2 MNK operations. They can be compared with each other, but not everything gives
# the same result: how large the error of each is, against float64, stands beside it.

# sphinx_gallery_fold = "times all shapes, and writes the rows"
SQUARES = [(n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192)]
LAYERS = [(4096, 10240, 8192), (4096, 8192, 8192), (4096, 57344, 8192), (4096, 8192, 28672)]
STEP_SHAPES = [(n, n, n) for n in (2048, 4096, 8192)]
LARGE = Plan(128, 256, 128, warps=8, stages=3)


def library(a, b, scale_a, scale_b, fast=True):
    """Return PyTorch's product of scaled matrices, in bf16."""
    return torch._scaled_mm(
        a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast
    )


def available(calls):
    """Return those of *calls* that run here; print why the others do not."""
    warm_up(calls.values())
    found = {}
    for name, call in calls.items():
        try:
            call()
        except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
            if not name.startswith(("cublas", "rocblas")):
                raise
            if name not in UNAVAILABLE:
                UNAVAILABLE.add(name)
                print(f"{name} is not available here: {str(error).splitlines()[0][:80]}")
        else:
            found[name] = call
    return found


UNAVAILABLE = set()


def provider_calls(M, N, K):
    """Return {provider: a call without arguments}."""
    x = torch.randn(M, K, device=DEVICE, dtype=torch.bfloat16)
    y = torch.randn(N, K, device=DEVICE, dtype=torch.bfloat16)
    (a, scale_a), (b, scale_b) = quantize_activations(x), quantize_activations(y)
    lines = a, b.T, scale_a, scale_b.T
    a, scale_a = quantize_activations(x, blocks=True)
    b, scale_b = quantize_by_blocks(y.float(), 128, 128)
    blocks = a, b.T, scale_a, scale_b.T

    def with_quantize(product, by_blocks):
        weights = (blocks if by_blocks else lines)[1::2]
        return lambda: product(*_mix(quantize_activations(x, by_blocks), weights))

    calls = {
        "triton": lambda: scaled_mm(*lines),
        "triton, blocks of 128": lambda: scaled_mm(*blocks),
        "cublas": lambda: library(*lines),
        "cublas, exact sums": lambda: library(*lines, fast=False),
        "cublas, blocks of 128": lambda: library(*blocks, fast=False),
        "bf16": lambda: x @ y.T,
        "triton + quantize": with_quantize(scaled_mm, False),
        "triton, blocks of 128 + quantize": with_quantize(scaled_mm, True),
        "cublas + quantize": with_quantize(library, False),
    }
    if (M, N, K) in STEP_SHAPES:
        c = empty_like_product(*lines[:2])
        calls["1 epilogue"] = lambda: simple(*lines, c)
        if HAS_DESCRIPTORS:
            calls["3 persistent"] = lambda: run_plan(fit(LARGE), *lines, c)
            calls["4 blocks"] = lambda: run_blocks(*blocks, c)
    return available(calls)


def _mix(quantized, weights):
    """Return (a, b, scale_a, scale_b) of (a, scale_a) and (b, scale_b)."""
    return quantized[0], weights[0], quantized[1], weights[1]


def benchmark(M, N, K):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    times = measure(provider_calls(M, N, K), rounds=12)
    work = operations(M, N, K) / 1e3
    return [(M, N, K, name, "TFLOPS", *rates(ms, work)) for name, ms in times.items()]


rows = []
if ON_GPU and CAN_RUN:
    for shape in SQUARES + LAYERS:
        rows += benchmark(*shape)
    write_rows("fp8-matmul-performance.csv", ["M", "N", "K"], rows)
else:
    print("There is nothing to time: the benchmark needs a GPU with fp8.")

# %%

# sphinx_gallery_fold = "prints the rates"
rate = {(row[:3], row[3]): row[5] for row in rows}


def print_rates(shapes, names, title):
    """Print the median rates of *names* at *shapes*."""
    table = []
    for shape in shapes:
        measured = [rate.get((shape, name)) for name in names]
        label = str(shape[0]) if len(set(shape)) == 1 else " × ".join(map(str, shape))
        table.append((label, *(significant(value) if value else "" for value in measured)))
    headers = ["M, N, K", *(name.replace(", ", ",\n").replace(" + ", "\n+ ") for name in names)]
    print(title)
    align = {"stralign": "right", "colalign": ["left"]}
    print(tabulate(table, headers, disable_numparse=True, **align))


if rows:
    columns = ["triton", "cublas", "triton, blocks of 128", "cublas, blocks of 128", "bf16"]
    print_rates(SQUARES + LAYERS, columns, "TFLOPS, higher is better")
else:
    print("No table without rates.")

# %%

# sphinx_gallery_fold = "draws the rates of the squares"
STYLES = {
    "triton": (OURS, "triton, rows and columns"),
    "cublas": (CEILING, "cublas, rows and columns (ceiling)"),
    "triton, blocks of 128": (STEP_1, "triton, blocks of 128"),
    "cublas, blocks of 128": (OTHER, "cublas, blocks of 128"),
    "bf16": (TORCH, "bf16"),
}
if rows:
    fig, ax = plt.subplots(figsize=(7, 6), layout="constrained")
    lines = {}
    for name, (style, label) in STYLES.items():
        points = [(r[0], *r[5:]) for r in rows if r[3] == name and r[:3] in SQUARES]
        if points:
            lines[label] = (style, points)
    plot_rates(ax, lines, "Products of square matrices in fp8", "M = N = K", "TFLOPS")
    fig.legend(loc="outside lower center")
    plt.show()
else:
    print("No plot without rates.")

# %%
# With quantizing in each call, it depends on the shape whether fp8 pays: rounding touches each
# number of A once, and the product uses it N times.

# sphinx_gallery_fold = "prints the rates with quantizing, the errors, the steps and the ladder"
if rows:
    columns = ["bf16", "triton + quantize", "triton, blocks of 128 + quantize", "cublas + quantize"]
    print_rates(SQUARES + LAYERS, columns, "TFLOPS with quantizing A, higher is better")


def print_errors(M, N, K):
    """Print the relative errors against float64, of the product and with rounding to fp8."""
    table = []
    calls = provider_calls(M, N, K)
    torch.manual_seed(1)
    x = torch.randn(M, K, device=DEVICE, dtype=torch.bfloat16)
    y = torch.randn(N, K, device=DEVICE, dtype=torch.bfloat16)
    exact = x.double() @ y.double().T
    for blocks in (False, True):
        a, scale_a = quantize_activations(x, blocks)
        b, scale_b = quantize_by_blocks(y.float(), 128, 128) if blocks else quantize_activations(y)
        problem = a, b.T, scale_a, scale_b.T
        same = scaled_reference(*problem)
        names = {"triton": scaled_mm, "cublas": functools.partial(library, fast=not blocks)}
        if not blocks:
            names["cublas, exact sums"] = functools.partial(library, fast=False)
        for name, product in names.items():
            full = f"{name}, blocks of 128" if blocks else name
            if full in calls:
                c = product(*problem).double()
                errors = ((c - wanted).norm() / wanted.norm() for wanted in (same, exact))
                table.append((full, *(f"{float(error):.2e}" for error in errors)))
    c = (x @ y.T).double()
    table.append(("bf16", *[f"{float((c - exact).norm() / exact.norm()):.2e}"] * 2))
    print(f"relative errors against float64, {M} × {K} by {K} × {N}")
    headers = ["", "of the product of\nthe fp8 numbers", "of the product of\nthe bf16 numbers"]
    print(tabulate(table, headers, disable_numparse=True))


if rows:
    for n in (2048, 4096):
        print_errors(n, n, n)
    steps = [name for name in dict.fromkeys(r[3] for r in rows) if name[0].isdigit()]
    print_rates(STEP_SHAPES, [*steps, "triton", "triton, blocks of 128"], "TFLOPS of the steps")
if rows and HAS_DESCRIPTORS:
    at = STEP_SHAPES[1]
    rungs = [
        ("Step 1: Scales in the epilogue", "pointers, one program a tile", rate[at, "1 epilogue"]),
        ("Step 3: Descriptors, persistent programs, pieces", "the hardware fetches tiles",
         rate[at, "triton"]),
        ("Step 4: Scales by blocks", "a finer scale; sums are promoted", rate[at, "4 blocks"]),
    ]  # fmt: skip
    if IS_HOPPER:
        what = "one consumer adds while the other multiplies"
        rungs.append(("Step 5: Two that take turns", what, rate[at, "triton, blocks of 128"]))
    ceiling = rate.get((at, "cublas"), rate[at, "bf16"])
    ladder(rungs, ("cuBLAS, by rows and columns", ceiling), "TFLOPS", "M = N = K = 4096, e4m3")
else:
    print("No ladder without rates.")

# %%
# How to read the curves
# ----------------------
#
# **The left end.** A small product is over before the tensor cores have come up to speed, whatever
# the number of bits: launching, the first loads and the last stores take as long as in bf16.
# Half the bytes help, twice the arithmetic does not.
#
# **The teeth.** Where the tiles make one wave more, the rate drops. Tensor cores that are twice as
# fast make a tile no smaller, so the teeth are those of bf16. Cutting the last wave rounds them
# off.
#
# **The right end.** Here the rate is what the chip can sustain. Note how far that is from twice the
# rate of bf16: bringing the numbers to the tensor cores, and the power for it, is as much of a
# limit as the tensor cores themselves.
#
# **Blocks.** Each step is followed by as many multiplications and additions as the tile has
# elements. In step 4 the tensor cores wait for them. In step 5 they wait for a consumer only if the
# other one is not ready, either. (:doc:`/programming-guide/chapter-5/profiling` shows how to see
# such a wait inside of a kernel.)
#
# What the run showed
# -------------------

# sphinx_gallery_fold = "computes the claims of this page from the rows"


def ratios(ours, other, shapes):
    """Return rate(ours) / rate(other) at those of *shapes* that have both."""
    both = [s for s in shapes if (s, ours) in rate and (s, other) in rate]
    return [rate[shape, ours] / rate[shape, other] for shape in both]


def claim_all():
    """Claim what this page teaches about speed and accuracy."""
    scatter = spread([row for row in rows if row[3] in ("triton", "cublas", "bf16")])
    large = [shape for shape in SQUARES + LAYERS if min(shape) >= 2048]
    if found := ratios("triton", "cublas", SQUARES + LAYERS):
        claim(
            "scales by rows and columns: 0.9 of the library, geometric mean",
            geometric_mean(found), at_least=0.9, spread=scatter, section="The benchmark",
        )  # fmt: skip
    claim(
        "from 2048 on, fp8 is at least 1.2 times as fast as bf16",
        min(ratios("triton", "bf16", large)), at_least=1.2, spread=scatter,
        section="How to read the curves",
    )  # fmt: skip
    claim(
        "it is still faster than bf16 with quantizing, for the layers of a language model",
        min(ratios("triton + quantize", "bf16", LAYERS)), at_least=1, spread=scatter,
        section="Quantizing, in the kernel before",
    )  # fmt: skip
    claim(
        "at 1024, the numbers of half the size bring less than a factor of 1.5",
        min(ratios("triton", "bf16", SQUARES[:1])), at_most=1.5, spread=scatter,
        section="How to read the curves",
    )  # fmt: skip
    if found := ratios("3 persistent", "1 epilogue", STEP_SHAPES[1:]):
        claim(
            "descriptors and persistent programs beat the first kernel, at 4096 and at 8192",
            min(found), at_least=1, spread=scatter,
            section="Step 3: Descriptors, persistent programs, pieces",
        )  # fmt: skip
    if found := ratios("triton, blocks of 128", "4 blocks", STEP_SHAPES):
        claim(
            "two that take turns are faster than one program that does all in turn",
            geometric_mean(found), at_least=1, spread=scatter,
            section="Step 5: Two that take turns",
        )  # fmt: skip
    if IS_HOPPER and (found := ratios("triton, blocks of 128", "cublas", large)):
        claim(
            "from 2048 on, scales by blocks leave 0.65 of the library's rate with scales by rows",
            min(found), at_least=0.65, spread=scatter, section="Step 5: Two that take turns",
        )  # fmt: skip
    largest = max(K for _, _, K in errors)
    claim(
        "promotion every 128 products makes the error of a long sum at least 4 times smaller",
        errors["positive", False, largest] / errors["positive", True, largest], at_least=4,
        section="Step 2: How exactly tensor cores add",
    )  # fmt: skip


if rows:
    claim_all()
    print_claims()
    table = []
    for ours, other in (
        ("triton", "cublas"), ("triton", "bf16"), ("triton, blocks of 128", "cublas"),
        ("triton, blocks of 128", "cublas, blocks of 128"), ("triton + quantize", "bf16"),
    ):  # fmt: skip
        for name, shapes in (("squares", SQUARES), ("squares ≥ 2048", SQUARES[2:]),
                             ("layers", LAYERS)):  # fmt: skip
            if found := ratios(ours, other, shapes):
                values = min(found), geometric_mean(found), max(found)
                table.append((f"{ours} / {other}", name, *map(significant, values)))
    headers = ["ratio", "shapes", "min", "geometric\nmean", "max"]
    print(tabulate(table, headers, disable_numparse=True))
else:
    print("No claims without rates.")

# %%
# What to remember
# ----------------
#
# * Eight bits are enough for a product if scales keep the numbers where the format is exact. Scales
#   that do not change along K can wait until the sum is finished.
# * Know how your tensor cores add. If they drop bits, promote partial sums.
# * Work that stands between two products stops the tensor cores, unless somebody else has a product
#   ready. Two consumers that take turns are enough.
# * In shared memory, numbers of eight bits want K to be the contiguous direction of both matrices.
# * Count quantizing in, where it has to be done each time.
#
# Exercises
# ---------
#
# 1. **Normalize and quantize.** The product of a layer is preceded by an RMS norm. Let that kernel
#    round its result, too: ``normalize_and_quantize(x, weight)``, which returns the numbers in e4m3
#    and the scales of the rows, M × 1. How many bytes does it save? :doc:`Solution
#    <solutions/09-fused-quantize>`.
# 2. **One scale for all.** A scale for the whole matrix needs the largest of all its numbers. Find
#    it without asking the CPU, and the same every time: ``quantize_tensor(x)`` returns the numbers
#    and a scale of one element. :doc:`Solution <solutions/09-per-tensor>`.
#
# References
# ----------
#
# * Paulius Micikevicius and others: *FP8 formats for deep learning*, 2022,
#   https://arxiv.org/abs/2209.05433
# * DeepSeek-AI: *DeepSeek-V3 technical report*, 2024, section 3.3 on fp8 and promotion,
#   https://arxiv.org/abs/2412.19437
# * Tim Dettmers, Mike Lewis, Younes Belkada and Luke
#   Zettlemoyer: *LLM.int8(): 8-bit matrix multiplication for transformers at scale*, NeurIPS 2022,
#   on features that are outliers, https://arxiv.org/abs/2208.07339
