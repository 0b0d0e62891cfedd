"""
Matrix multiplication in fp8
============================

Half the bits, twice the speed: tensor cores that take numbers of eight bits do twice as many
operations a second as with sixteen, and memory delivers twice as many numbers. The price is that
eight bits hold very little. This page is about what it takes to get a product out of them that is
still good for something: **scales**, and care about where sums are kept. You will build
``scaled_mm(a, b, scale_a, scale_b)``, as ``torch._scaled_mm`` but with scales by blocks as well,
and learn

* what the two formats hold, and why a matrix needs scales before it is rounded to one of them;
* why scales by rows and columns cost nothing, and scales by blocks cost something;
* how exactly tensor cores add up, measured, and what **promoting** partial sums is;
* how to keep the tensor cores busy: descriptors, persistent programs, whole tiles and pieces;
* how to multiply partial sums by their scales while the next ones are computed;
* how to **quantise** a matrix in the kernel before, and when the whole is faster than bf16.

You should know :doc:`03-matrix-multiplication`: tiles, waves, descriptors and persistent programs.

.. ladder::
"""

# %%
# Without a GPU the first cell chooses the interpreter. The timing loop and the rounding are those
# of all tutorials.

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_thumbnail_number = 1
import functools
import sys  # for shared/
from dataclasses import dataclass
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.measuring import (
    geometric_mean,
    measure,
    print_ratios,
    rates,
    significant,
    write_rows,
)
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# %%
# Not every GPU has tensor cores for eight bits: NVIDIA's do from Ada and Hopper on (compute
# capability 8.9), AMD's of the CDNA 4 generation take the formats of this page. On others, the page
# says so and goes on with what can be shown without kernels. The interpreter multiplies fp8 numbers
# as it should. Two other things it does wrong, without a word, and this page works around both: it
# cuts numbers off where it should round them to bf16, and when rounding to fp8 carries over into
# the next power of two, it loses the carry.


# sphinx_gallery_fold = "finds what the GPU can do"
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
print(NO_FP8 or "fp8 products: yes")

# %%
# What eight bits hold
# --------------------
#
# A floating-point number has a sign, an *exponent*, which says between which powers of two it lies,
# and a *mantissa*, which says where between them. The names tell how the eight bits are shared out:
# **e4m3** has four bits for the exponent and three for the mantissa, **e5m2** five and two. With
# three bits there are eight numbers between one power of two and the next, and nothing else:

# sphinx_gallery_fold = "lists the numbers of both formats, and draws their rounding errors"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
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
# the exponent has reached its end, and numbers are lost one bit after the other until all is zero.
# e4m3 is twice as exact, and its plain is less than half as wide, in powers of two. For weights and
# activations exactness counts, and the range is taken care of by scales; so e4m3 is the format of
# this page. (Gradients vary more in size. e5m2 is meant for them, and ``scaled_mm`` takes it, too.)
#
# Scales
# ------
#
# Where a matrix has numbers of about the same size, one can move all of it onto the plain: divide
# by a **scale** before rounding, multiply by it after the product. The usual scale brings the
# largest number to the format's largest. For how many numbers should one scale be? The fewer share
# one, the less does a single large number (an *outlier*) push all the others off the plain:


def quantise(x, axes, dtype=E4M3):
    """Return (x / scale rounded to *dtype*, scale), with one scale for all numbers along *axes*."""
    scale = x.abs().amax(axes, keepdim=True).float().clamp_min(1e-12) / torch.finfo(dtype).max
    return (x / scale).to(dtype), scale


def quantise_by_blocks(x, rows, columns):
    """Return *x* in e4m3 and its scales: one for each block of *rows* × *columns* numbers."""
    blocks = x.unflatten(1, (-1, columns)).unflatten(0, (-1, rows))  # of two dimensions each
    q, scale = quantise(blocks, (1, 3))
    return q.flatten(2, 3).flatten(0, 1), scale[:, 0, :, 0]


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
        (qa, sa), (qb, sb) = quantise(a, axes_a), quantise(b, axes_b)
        versions[name] = qa.double() * sa.double(), qb.double() * sb.double()
    (qa, sa), (qb, sb) = quantise_by_blocks(a, 1, 128), quantise_by_blocks(b, 128, 128)
    wide = sb.repeat_interleave(128, 0).repeat_interleave(128, 1)
    versions["blocks"] = qa.double() * sa.double().repeat_interleave(128, 1), qb.double() * wide
    return {
        name: float(((qa @ qb - exact).norm(dim=1) / exact.norm(dim=1)).mean())
        for name, (qa, qb) in versions.items()
    }


table = []
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

# %%
# What a product costs
# --------------------
#
# If row *m* of A has the scale :math:`s_m`, and column *n* of B has :math:`t_n`, each product of the
# sum has both factors, and they can be taken out of it:
#
# .. math::
#
#     c_{mn} = \sum_k (s_m a_{mk}) (b_{kn} t_n) = s_m t_n \sum_k a_{mk} b_{kn}
#
# So the tensor cores multiply the eight-bit numbers as they are, and the scales are applied to the
# finished sum: two multiplications for K products. That is nothing. A scale that changes *along K*,
# as those of blocks do, cannot be taken out of the sum, but out of 128 products at a time. We shall
# come to that. First the reference, with the sum in float64, and what must be counted:


def dequantise(x, scale):
    """Return *x* times its scales in float64; a scale is for a row, a column or a block of 128."""
    for axis in (0, 1):
        if scale.shape[axis] not in (1, x.shape[axis]):
            scale = scale.repeat_interleave(128, axis).narrow(axis, 0, x.shape[axis])
    return x.double() * scale.double()


def scaled_reference(a, b, scale_a, scale_b):
    """Return the product of the scaled matrices in float64."""
    return dequantise(a, scale_a) @ dequantise(b, scale_b)


def operations(M, N, K):
    """Return the floating-point operations of a product, not counting the scales."""
    return 2 * M * N * K


# %%
# Step 1: Scales in the epilogue
# ------------------------------
#
# The simplest kernel is the first one of :doc:`03-matrix-multiplication` with two more loads at its
# end. The sum stays in fp32, the result is bf16. (The part for blocks can wait until step 4.)


@triton.jit
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
# ``PROMOTE`` is the subject of the next step. The launch has nothing new; but look at what is
# drawn and checked: the reference multiplies *the same* eight-bit numbers. Whether it was a good idea
# to round the matrices to them is another question, which the table above has answered.


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
        (a, scale_a), (b, scale_b) = quantise(a, 1), quantise(b, 1)
        return a, b.T, scale_a, scale_b.T
    pad = torch.nn.functional.pad
    whole = pad(a, (0, -K % 128)), pad(b, (0, -K % 128, 0, -N % 128))
    (a, scale_a), (b, scale_b) = (
        quantise_by_blocks(x, rows, 128) for x, rows in zip(whole, (1, 128), strict=True)
    )
    a, b = a[:, :K].contiguous(), b[:N, :K].contiguous()
    return a, b.T, scale_a.T.contiguous().T, scale_b.T  # the scales of a: stored by columns


def assert_right(c, a, b, scale_a, scale_b):
    """Raise AssertionError where *c* is not the product of the scaled matrices."""
    a, b = dequantise(a, scale_a), dequantise(b, scale_b)
    # Tensor cores drop bits while they add up (step 2): in proportion to what is added up, which is
    # at most the length of the row times that of the column.
    size = (a.norm(dim=1, keepdim=True) * b.norm(dim=0, keepdim=True)).clamp_min(1e-300)
    rounding = torch.finfo(c.dtype).eps  # one unit in the last place
    torch.testing.assert_close(c.double() / size, a @ b / size, rtol=rounding, atol=2**-12)


def empty_like_product(a, b):
    """Return memory for the product: bf16, or fp32 in the interpreter, which cannot round to bf16."""
    dtype = torch.bfloat16 if ON_GPU else torch.float32
    return torch.empty(a.shape[0], b.shape[1], dtype=dtype, device=DEVICE)


if CAN_RUN:
    for blocks in (False, True):
        problem = draw_problem(77, 45, 300, blocks)
        c = empty_like_product(*problem[:2])
        simple(*problem, c, block=(32, 64, 128), warps=4)
        assert_right(c, *problem)
    print("77 × 300 by 300 × 45, scales by rows and columns, and by blocks: right")
else:
    print("No kernels on this GPU.")

# %%
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
# units of the SM, which do compute in fp32. This is called **promoting** a partial sum. Whatever the
# tensor cores cut off is then small compared with 128 products, and not compared with all of them.


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
                a, b = a.abs(), b.abs()
            for promote in (False, True):
                c = in_fp32((a, b, scale_a, scale_b), promote)
                errors[kind, promote, K] = relative_error(c, (a, b, scale_a, scale_b))
if ON_GPU and errors:
    fig, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    lines = {("random", False): ("#d1495b", "-", "o"), ("positive", False): ("#d1495b", "--", "s"),
             ("random", True): ("#1b6ca8", "-", "o"), ("positive", True): ("#1b6ca8", "--", "s")}
    for (kind, promote), (colour, line, marker) in lines.items():
        points = [(K, e) for (k, p, K), e in errors.items() if (k, p) == (kind, promote)]
        label = f"{kind} numbers, {'promoted' if promote else 'as it comes'}"
        ax.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=label)
    ax.axhline(2**-9, color="#444444", linestyle=":", label="rounding to bf16, at most")
    ax.set(xscale="log", yscale="log", xlabel="K", ylabel="relative error")
    ax.set_title("Error of an fp8 product, against float64")
    ax.legend(fontsize=11)
    ax.grid(alpha=0.3)
    plt.show()
elif errors:
    print("The interpreter adds up in fp32; relative errors:")
    print(tabulate([(*key, f"{e:.1e}") for key, e in errors.items()], ["", "promoted", "K", "error"]))

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
# Everything that made the product of :doc:`03-matrix-multiplication` fast applies here, and matters
# more: the tensor cores are done with a step in half the time. So: tiles through descriptors,
# programs that stay and prefetch across tiles, and, where the last wave would be mostly empty, its
# tiles cut into pieces. The numbers are half as large, so a step along K can be 128 columns deep in
# the same shared memory. One thing is different. Tensor cores take a tile of eight-bit numbers from
# shared memory only if K is the direction that is contiguous, in A *and in B*. So the fast kernel
# wants B stored by columns, describes its transpose, and turns the tile around in ``tl.dot``.


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


@triton.jit(do_not_specialize=["whole"])
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
        for piece in tl.range(program, (tiles_m * tiles_n - whole) * PIECES, programs, flatten=True):
            i, j = position(whole + piece // PIECES, tiles_m, tiles_n, GROUP)
            row = i * BLOCK_M + piece % PIECES // ACROSS * CUT_M
            column = j * BLOCK_N + piece % ACROSS * CUT_N
            rows_tile(
                a_cut, b_cut, c_cut, scale_a_ptr, scale_b_ptr, row, column, M, N, K,
                CUT_M, CUT_N, BLOCK_K,
            )  # fmt: skip
