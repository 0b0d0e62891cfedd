"""
Matrix multiplication in fp8
============================

You build ``scaled_mm(a, b, scale_a, scale_b)``, which multiplies matrices of eight-bit numbers.
From 2048 × 2048 on, products have on average :measured:`faster` times the speed of bf16, and
:measured:`share` % of the speed of cuBLAS in fp8. You need :doc:`03b-full-waves`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "further"
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
E4M3 = torch.float8_e4m3fn
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# The kernel
# ----------
#
# Tensor cores multiply eight-bit numbers twice as fast as sixteen-bit numbers. The price is a
# narrow format, so each row of A and each column of B was divided by a **scale** before it was
# rounded to fp8. This is the persistent product of :doc:`03b-full-waves`, plus the scales:


@triton.jit
def position(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Return (row, column) of a tile, GROUP rows at a time, so that tiles share loads in L2."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    return first + tile % in_group % rows, tile % in_group // rows


@triton.jit(do_not_specialize=["M", "N", "K"])
def rows_kernel(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, M, N, K, stride_sam, stride_sbn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of the tiles; b_desc describes the transpose of B."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = position(tile, tiles_m, tiles_n, GROUP)
        row, column = i * BLOCK_M, j * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, acc)
        rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
        acc *= tl.load(scale_a_ptr + rows.to(tl.int64) * stride_sam, rows < M, 0.0)[:, None]  # <-
        acc *= tl.load(scale_b_ptr + columns.to(tl.int64) * stride_sbn, columns < N, 0.0)[None, :]
        c_desc.store([row, column], acc.to(c_desc.dtype))


# %%
# How it works
# ~~~~~~~~~~~~
#
# Row *m* of A has the scale :math:`s_m`, and column *n* of B has :math:`t_n`. Both are constant
# along K, so they factor out of the sum:
#
# .. math::
#
#     c_{mn} = \sum_k (s_m a_{mk}) (b_{kn} t_n) = s_m t_n \sum_k a_{mk} b_{kn}
#
# The kernel multiplies the finished sum of eight-bit products by its scales. Hopper's tensor cores
# read eight-bit tiles from shared memory only if K is contiguous, in A *and in B*. So B is stored
# by columns, and ``b_desc`` describes the transpose.
#
# Formats and scales
# ------------------
#
# A floating-point number has a sign, an **exponent** and a **mantissa**. The exponent says between
# which powers of two the number lies, and the mantissa says where between them.
#
# ====== ======== ======== ======= ========================== ==============
# format exponent mantissa largest smallest of full precision largest error
# ====== ======== ======== ======= ========================== ==============
# e4m3   4 bits   3 bits   448     :math:`2^{-6}`             :math:`2^{-4}`
# e5m2   5 bits   2 bits   57344   :math:`2^{-14}`            :math:`2^{-3}`
# ====== ======== ======== ======= ========================== ==============
#
# The largest error is relative: half the distance between two neighboring numbers. Scales take care
# of the range: they bring the largest number to 448. So weights and activations are usually kept in
# e4m3. Gradients vary more in size, and e5m2 is meant for them. ``scaled_mm`` takes both.
#
# A row has the numbers 1 to 100, and one outlier of 100,000. Its scale brings the outlier to 448.
#
# .. predict:: What happens to the number 1?
#    :choices: it keeps four bits | it loses bits | it becomes zero
#    :answer: it loses bits
#
#    It becomes 0.0045, less than 2⁻⁶. Below this number the distance between neighbors no longer
#    shrinks: it is 2⁻⁹, about 0.002. So the number is rounded to two such steps.
#
# Which numbers share a scale? A single large number, an **outlier**, pushes all others with the
# same scale toward zero, where they lose bits. The table has the errors of products of matrices
# with outliers.


# sphinx_gallery_fold = "compares scales on a matrix with outliers"
def quantize(x, rows, columns):
    """Return *x* in e4m3 and its scales, one for each block of *rows* × *columns* numbers."""
    x = x.unflatten(1, (x.shape[1] // columns, columns)).unflatten(0, (x.shape[0] // rows, rows))
    scale = x.abs().amax((1, 3), keepdim=True).clamp_min(1e-12) / 448
    return (x / scale).to(E4M3).flatten(2, 3).flatten(0, 1), scale[:, 0, :, 0]


def dequantize(x, scale):
    """Return *x* times its scales in float64; a scale is for a row, a column or a block of 128."""
    for axis in (0, 1):
        if scale.shape[axis] not in (1, x.shape[axis]):
            scale = scale.repeat_interleave(128, axis).narrow(axis, 0, x.shape[axis])
    return x.double() * scale.double()


def scale_errors(factor, feature, n=512):
    """Return the errors of the product, if a column of *a*, or a few numbers, are outliers."""
    a, b = torch.randn(2, n, n, generator=torch.Generator().manual_seed(0))
    if feature:
        a[:, n // 2] *= factor
        b[n // 2] /= factor
    else:
        a.view(-1)[::4097] *= factor
    exact, errors = a.double() @ b.double(), []
    for rows_a, rows_b, columns in ((n, n, n), (1, 1, n), (1, 128, 128)):
        qb, scale_b = quantize(b.T, rows_b, columns)
        product = dequantize(*quantize(a, rows_a, columns)) @ dequantize(qb.T, scale_b.T)
        errors.append(f"{((product - exact).norm(dim=1) / exact.norm(dim=1)).mean():.3f}")
    return errors


table = [
    ("a feature" if feature else "numbers", f"{factor:,}", *scale_errors(factor, feature))
    for feature in (False, True) for factor in (1000, 30000, 10**6)
]  # fmt: skip
kinds = [f"scales by\n{kind}" for kind in ("tensor", "rows and\ncolumns", "blocks")]
print("mean relative error of a row of a 512 × 512 by 512 × 512 product")
print(tabulate(table, ["outliers", "larger by\na factor of", *kinds], disable_numparse=True))

# %%
# * Small outliers do no harm. The error is that of three bits of mantissa.
# * Larger outliers ruin a matrix that has one scale. With scales of rows, they ruin only their own
#   rows.
# * In large language models outliers come as **features**: one column is large in every row, and
#   the weights that it meets are small. Then every row has an outlier; only blocks limit the harm.
#
# Scales by blocks
# ----------------
#
# The usual blocks have 128 numbers of a row of A, and 128 × 128 numbers of B. These scales change
# along K, so they factor only out of sums of 128 products. Each iteration multiplies such a sum by
# its scales and adds it to the accumulator. This is called **promotion**, because the fp32 units of
# the SM add in full precision. Meanwhile the tensor cores are idle. So several
# programs run on a multiprocessor (SM): while one adds, another multiplies. Their tiles are small,
# because the programs share the registers and the shared memory of the SM.
#
# .. image:: 09-fp8-matmul.svg
#    :alt: With scales by rows and columns, the finished sum is multiplied by two scales. With
#          scales by blocks, the sum over each block is multiplied before it is added.
#    :scale: 100
#    :loading: lazy
#
# **Try it** *(easy, 10 minutes)*. Write ``dequantize_blocks(q, scales)``, which multiplies fp8
# numbers by the scales of their blocks of 128 columns. The result is in fp32. ``exercise.pyz`` (see
# *Exercises*) checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 09-blocks mine.py
#    Not yet. dequantize_blocks((1, 1), (1, 1)): elements that no program has written
#      kernel:   kernel
#      tensor:   `out_ptr`: 1 of 1 element have never been written; the first is at (0, 0)
#      cause:    a grid with too few programs, or a mask that leaves out too much
#
# The number of blocks in a row must be rounded up.


@triton.jit(do_not_specialize=["M", "N", "K", "stride_sak", "stride_sbk", "stride_sbn"])
def blocks_kernel(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_sam, stride_sak, stride_sbk, stride_sbn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute one tile with scales by blocks of 128; BLOCK_N and BLOCK_K are 128."""
    i, j = position(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP)
    rows = i * BLOCK_M + tl.arange(0, BLOCK_M)
    scale_a_ptrs = scale_a_ptr + rows.to(tl.int64) * stride_sam
    scale_b_ptrs = scale_b_ptr + j.to(tl.int64) * stride_sbn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        scale = tl.load(scale_a_ptrs, mask=rows < M, other=0.0) * tl.load(scale_b_ptrs)
        p = tl.dot(a_desc.load([i * BLOCK_M, k]), b_desc.load([j * BLOCK_N, k]).T)
        acc += p * scale[:, None]
        scale_a_ptrs += stride_sak
        scale_b_ptrs += stride_sbk
    c_desc.store([i * BLOCK_M, j * BLOCK_N], acc.to(c_desc.dtype))


# %%
# Calling it
# ----------
#
# The function tells the kinds of scales apart by their shapes. With scales by rows, it chooses the
# tile by an estimate: the waves of tiles, times the products and the loads of one tile.

# sphinx_gallery_fold = "what the GPU can do, and the tiles"
SMS, SHARED_BYTES, NO_FP8 = 5, 232448, ""  # in the interpreter, a few programs will do
if ON_GPU:
    gpu = torch.cuda.get_device_properties(DEVICE)
    SMS, SHARED_BYTES = gpu.multi_processor_count, getattr(gpu, "shared_memory_per_block_optin", 0)
    gfx95 = torch.version.hip and gpu.gcnArchName.startswith("gfx95")
    if not gfx95 and (torch.version.hip or (gpu.major, gpu.minor) < (8, 9)):
        NO_FP8 = f"{gpu.name} has no products of float8_e4m3fn"
CAN_RUN = not NO_FP8
# Tiles, warps and stages, with scales by rows and with scales by blocks:
TILES = [(128, 256, 128, 8, 3), (128, 128, 128, 4, 4), (64, 128, 256, 4, 3)]
BLOCK_TILES = [(64, 128, 128, 4, 3 if SHARED_BYTES >= 232448 else 2)]
TILES = TILES if SHARED_BYTES >= 232448 else BLOCK_TILES
RESULT = torch.bfloat16 if ON_GPU else torch.float32  # the interpreter rounds to bf16 wrongly


# %%


def settings(a, b, scale_a, scale_b):
    """Return the kernel, its grid, its numbers and its constants."""
    (M, K), N = a.shape, b.shape[1]
    by_rows = (scale_a.shape, scale_b.shape) == ((M, 1), (1, N))
    tiles = TILES if by_rows else BLOCK_TILES
    count = {t: triton.cdiv(M, t[0]) * triton.cdiv(N, t[1]) for t in tiles}
    tile = min(count, key=lambda t: triton.cdiv(count[t], SMS) * (t[0] * t[1] + 20 * sum(t[:2])))
    m, n, k, warps, stages = tile
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages}
    constants["GROUP"] = 16 if by_rows and count[tile] > 7 * SMS else 8
    strides = *scale_a.stride(), *scale_b.stride()
    if by_rows:
        return rows_kernel, (min(SMS, count[tile]),), (M, N, K, *strides[0::3]), constants
    return blocks_kernel, (count[tile],), (M, N, K, *strides), constants


def described(a, b, c, m, n, k):
    """Return descriptors of a, of the transpose of b, and of c, for tiles of m × n × k."""
    tiles = (a, (m, k)), (b.T, (n, k)), (c, (m, n))
    return [TensorDescriptor(t, t.shape, t.stride(), list(block)) for t, block in tiles]


def scaled_mm(a, b, scale_a, scale_b):
    """Return the product of *a* and *b*, each times its scales, in bf16."""
    kernel, grid, numbers, constants = settings(a, b, scale_a, scale_b)
    c = a.new_empty(a.shape[0], b.shape[1], dtype=RESULT)
    tiles = described(a, b, c, *(constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")))
    kernel[grid](*tiles, scale_a, scale_b, *numbers, **constants)
    return c


# %%
# Descriptors need rows of A, columns of B and rows of the result that start at multiples of 16
# bytes. The reference is in float64.


# sphinx_gallery_fold = "checks scaled_mm against float64"
def draw_problem(M, N, K, blocks=False, seed=0):
    """Return random a and b in e4m3, b stored by columns, and their scales."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    width = K + -K % 128  # whole blocks
    a = torch.randn(M, width, device=DEVICE, generator=generator)
    b = torch.randn(N + -N % 128, width, device=DEVICE, generator=generator)
    a, scale_a = quantize(a, 1, 128 if blocks else width)
    b, scale_b = quantize(b, 128, 128) if blocks else quantize(b[:N], 1, width)
    a, b = a[:, :K].contiguous(), b[:N, :K].contiguous()
    return a, b.T, scale_a.T.contiguous().T, scale_b.T  # scales of neighboring rows are neighbors


def assert_right(c, a, b, scale_a, scale_b):
    """Raise AssertionError where *c* is not the product of the scaled matrices."""
    a, b = dequantize(a, scale_a), dequantize(b, scale_b)
    # Tensor cores drop bits in proportion to the largest product: at most the lengths multiplied.
    size = (a.norm(dim=1, keepdim=True) * b.norm(dim=0, keepdim=True)).clamp_min(1e-300)
    torch.testing.assert_close(c.double() / size, a @ b / size, rtol=2**-7, atol=2**-12)


if CAN_RUN:
    shapes = [(65, 128, 16), (200, 136, 272)] + [(1824, 784, 528), (3072, 3072, 256)] * ON_GPU
    for problem in [draw_problem(*s, blocks) for s in shapes for blocks in (False, True)]:
        assert_right(scaled_mm(*problem), *problem)
    print(f"scaled_mm is right on {len(shapes)} shapes with both kinds of scales")

# %%
# How exactly tensor cores add
# ----------------------------
#
# The accumulator is in fp32. Hopper's tensor cores keep fewer bits while they add products of
# eight-bit numbers: they align all addends to the largest one, and cut off the low bits. With
# scales by blocks, each ``tl.dot`` starts from zero, and its result is promoted. Here one product
# is large, and the others are small. All scales are 1:

# sphinx_gallery_fold = "adds many small products to a large one"
table = []
for K in (512, 4096, 65536) if ON_GPU else (256, 512):
    a, b = torch.full((2, 16, K), 0.375, device=DEVICE)
    a[:, 0], b[:, 0], b[:, 1:] = 448, 448, 1
    sums = [448**2 + 0.375 * (K - 1)]
    for scales in ((1, 16), (K // 128, 1)) if CAN_RUN else ():
        one = torch.ones(16, scales[0], device=DEVICE), torch.ones(scales, device=DEVICE)
        sums.append(float(scaled_mm(a.to(E4M3), b.to(E4M3).T, *one)[0, 0].bfloat16()))
    table.append((f"{K:,}", *sums))
print("448 × 448 + (K - 1) × 0.375 × 1, rounded to bf16")
print(tabulate(table, ["K", "exact", "as it comes", "promoted"], floatfmt=",.0f"))
names = "lost", "lost, promoted"
values = [(n, "%", 100 * abs(1 - c / sums[0])) for n, c in zip(names, sums[1:], strict=False)]

# %%
# The longest sum is wrong by :measured:`lost` % as it comes. If promoted, it is off by
# :measured:`kept` %, which is the rounding of the result. In most layers of a network, products of
# both signs cancel, and errors grow slowly. So inference usually does without promotion, as
# ``torch._scaled_mm`` does with ``use_fast_accum=True``.

# %%
# In a program
# ------------
#
# The function that others call names the argument that is wrong, and says if the GPU has no
# products of such numbers. It copies views whose rows do not start at multiples of 16 bytes, and
# gives the result memory in which every row does. It refuses tensors that require gradients,
# because the result would silently have none. For each kind of arguments it keeps a *plan*, the
# launch and the fields of its descriptors, as in :doc:`/programming-guide/chapter-6/calls`. In the
# benchmark it launches what the plain function launches, so the GPU's times are those of both.

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import Launch, key_of


PLANS = {}
ORDINARY = {torch.Tensor, torch.nn.Parameter}


def check_arguments(a, b, scale_a, scale_b):
    """Raise an error, naming the argument, where ``scaled_mm`` cannot go on."""
    if NO_FP8:
        raise RuntimeError(f"scaled_mm cannot run here: {NO_FP8}")
    for name, t in (("a", a), ("b", b), ("scale_a", scale_a), ("scale_b", scale_b)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        expected = "float32" if "scale" in name else "float8_e4m3fn or float8_e5m2"
        if t.dtype not in [getattr(torch, word) for word in expected.split(" or ")]:
            raise TypeError(f"{name} must be {expected}, but its dtype is {t.dtype}")
        if t.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, but has shape {tuple(t.shape)}")
        if t.device.type != DEVICE.type or t.device != a.device:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
        if t.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} requires a gradient, which scaled_mm does not compute; pass "
                f"{name}.detach(), and multiply in bf16 where gradients are needed"
            )
    (M, K), N = a.shape, b.shape[1]
    if b.shape[0] != K:
        raise ValueError(f"a must have as many columns as b has rows: {(M, K)} × {tuple(b.shape)}")
    steps = triton.cdiv(K, 128)
    kinds = ((M, 1), (1, N)), ((M, steps), (steps, triton.cdiv(N, 128)))
    found = tuple(scale_a.shape), tuple(scale_b.shape)
    for name, shape, *known in zip(("scale_a", "scale_b"), found, *kinds, strict=True):
        if shape not in known:
            raise ValueError(
                f"{name} must have shape {known[0]}, for rows of a and columns of b, or "
                f"{known[1]}, for blocks of 128, but has {shape}"
            )
    if found not in kinds:
        raise ValueError(f"scale_b must be of the same kind as scale_a, but they have {found}")


def aligned(x):
    """Return *x*, or a copy of it whose rows are contiguous, at multiples of 16 bytes."""
    row, column = x.stride()
    if column == 1 and row >= x.shape[1] and row % 16 == 0 and x.data_ptr() % 16 == 0:
        return x
    return x.new_empty(len(x), x.shape[1] + -x.shape[1] % 16)[:, : x.shape[1]].copy_(x)


def make_plan(a, b, scale_a, scale_b):
    """Return a launch, what its descriptors say, and the columns of memory for the result."""
    kernel, grid, numbers, constants = settings(a, b, scale_a, scale_b)
    c = a.new_empty(a.shape[0], b.shape[1] + -b.shape[1] % 8, dtype=RESULT)
    tiles = described(a, b, c, *(constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")))
    fields = [vars(tile) | {"base": None} for tile in tiles]  # a plan holds no tensor
    return Launch(kernel, grid, numbers, constants), fields, c.shape[1]


def scaled_mm(a, b, scale_a, scale_b):
    """Return the product of *a* and *b*, each times its scales, in bf16, without gradients.

    Sums are promoted with scales by blocks, and with scales by rows and columns they are not.

    Args:
        a: M × K in float8_e4m3fn or float8_e5m2. It is fastest with contiguous rows.
        b: K × N, likewise. It is fastest with contiguous *columns*, which PyTorch demands.
        scale_a: In fp32: M × 1, for each row; or M × ⌈K / 128⌉, for each 128 numbers of a row.
        scale_b: In fp32: 1 × N, for each column; or ⌈K / 128⌉ × ⌈N / 128⌉, for each block.

    Raises:
        RuntimeError: The GPU has no products of such numbers.
        TypeError: An argument is no tensor, or has another dtype.
        ValueError: Shapes or devices do not fit, or a tensor requires a gradient outside of
            ``torch.no_grad()``.
    """
    tensors = a, b, scale_a, scale_b
    if torch.compiler.is_compiling() or not {type(t) for t in tensors} <= ORDINARY:
        check_arguments(*tensors)
        return scaled_mm_op(*tensors)
    if a.is_neg() or b.is_neg() or scale_a.is_neg() or scale_b.is_neg():  # refuses fp8
        a, b, scale_a, scale_b = (x.resolve_neg() for x in (a, b, scale_a, scale_b))
    gradients = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    plan = None if gradients else PLANS.get(key_of(a, b, scale_a, scale_b))
    if plan is None:
        check_arguments(a, b, scale_a, scale_b)
        if not (a.numel() and b.numel()):  # no results, or sums of nothing
            return torch.zeros(a.shape[0], b.shape[1], dtype=torch.bfloat16, device=a.device)
        x, y = aligned(a), aligned(b.T)
        if (x.data_ptr(), y.data_ptr()) != (a.data_ptr(), b.data_ptr()):
            return scaled_mm(x, y.T, scale_a, scale_b)
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = make_plan(a, b, scale_a, scale_b)
        plan = PLANS.setdefault(key_of(a, b, scale_a, scale_b), plan)
    launch, fields, width = plan
    c = a.new_empty(a.shape[0], width, dtype=RESULT)
    tiles = [object.__new__(TensorDescriptor) for _ in fields]
    for tile, said, t in zip(tiles, fields, (a, b, c), strict=True):
        tile.__dict__.update(said, base=t)  # it is not checked again
    launch(*tiles, scale_a, scale_b)
    return c if ON_GPU and width == b.shape[1] else c[:, : b.shape[1]].bfloat16().contiguous()


# For torch.compile, and for tensors without memory, the function is one operation.
SCHEMA = "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b) -> Tensor"


@torch.library.custom_op("gallery::fp8", mutates_args=(), schema=SCHEMA)
def scaled_mm_op(a, b, scale_a, scale_b):
    """Return what ``scaled_mm`` returns."""
    return scaled_mm(*(t.detach() for t in (a, b, scale_a, scale_b)))


@scaled_mm_op.register_fake
def scaled_mm_shape(a, b, scale_a, scale_b):
    """Return a tensor like the result, without computing it."""
    return a.new_empty(a.shape[0], b.shape[1], dtype=torch.bfloat16)


if CAN_RUN:
    shapes = [(1, 8, 16), (77, 45, 300), (130, 264, 144), (65, 128, 1), (200, 136, 272)]
    problems = [draw_problem(*shape, blocks) for shape in shapes for blocks in (False, True)]
    a, b, scale_a, scale_b = draw_problem(96, 80, 160)
    problems += [(a, b.contiguous(), scale_a, scale_b), (a[::2], b, scale_a[::2], scale_b)]
    for problem in problems:
        first = scaled_mm(*problem)
        assert_right(first, *problem)
        assert torch.equal(scaled_mm(*problem), first)  # the second call uses the plan
    print(f"scaled_mm is right on {len(problems)} problems, and gives the same bits twice")

# %%
# The benchmark
# -------------
#
# The shapes are squares, four layers of a language model of 70 billion parameters at 4096 tokens,
# and three products with few rows. We compare with ``torch._scaled_mm``, which calls cuBLAS. All
# rates count 2 MNK operations. Large products draw so much power that the GPU lowers its clock: see
# :doc:`/programming-guide/chapter-4/roofline`.

# sphinx_gallery_fold = "times the products, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "rows_kernel: 4096 × 28,672 by 28,672 × 8192; blocks_kernel: 4096 × 28,672 by 28,672 × 8192"  # noqa: E501
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table

SQUARES = [(n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192)]
UNTUNED = [(300, 11008, 4096), (1, 14336, 4096), (17, 14336, 4096)]  # no tile was chosen on these
LAYERS = [(4096, 10240, 8192), (4096, 8192, 8192), (4096, 57344, 8192), (4096, 8192, 28672)]
library = partial(torch._scaled_mm, out_dtype=torch.bfloat16, use_fast_accum=True)


@triton.jit
def empty_kernel():
    """Do nothing."""


def benchmark(M, N, K):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    lines, blocks = draw_problem(M, N, K), draw_problem(M, N, K, blocks=True)
    x, y = (torch.randn(n, K, device=DEVICE, dtype=torch.bfloat16) for n in (M, N))
    calls = {
        "triton": partial(scaled_mm, *lines), "triton, blocks of 128": partial(scaled_mm, *blocks),
        "cublas": partial(library, *lines), "bf16": partial(torch.matmul, x, y.T),
    }  # fmt: skip
    found = rates((M, N, K), calls, "TFLOPS", 2 * M * N * K, 20)
    for name in ("triton", "triton, blocks of 128"):
        calls[name]()  # the last launches are the ones whose X-rays are shown
    return found


if ON_GPU and CAN_RUN:
    rows = [row for shape in SQUARES + UNTUNED + LAYERS for row in benchmark(*shape)]
    write_rows("fp8-matmul-performance.csv", ["M", "N", "K"], rows)
    squares = [row for row in rows if row[:3] in SQUARES]
    labels = {"triton": "scales by rows", "triton, blocks of 128": "scales by blocks"}
    labels |= {"cublas": "cuBLAS", "bf16": "cuBLAS in bf16"}
    draw_rates(squares, labels, "Products of square matrices in fp8", "M = N = K")
    small = draw_problem(256, 256, 256)
    calls = {"triton": partial(scaled_mm, *small), "torch": partial(library, *small)}
    cpu = write_calls({"scaled_mm": calls | {"launch": empty_kernel[(1,)]}})
    for n in (256, 512, 1024, 1536, 2048, 3072, 4096):
        ((_, _, median, *_),) = rates((), {"": partial(scaled_mm, *draw_problem(n, n, n))}, "µs")
        if median > cpu["scaled_mm", "triton"]:
            break
    values.append(("GPU longer from", "M", n))
    write_table("09-fp8-matmul-values.csv", ["name", "unit", "value"], values)
    table = [(f"{m:,} × {n:,} × {k:,}", *[f"{r[5]:,.0f}" for r in rows if r[:3] == (m, n, k)])
             for m, n, k in UNTUNED + LAYERS]  # fmt: skip
    names = ["M × N × K, TFLOPS", "by rows", "by blocks", "cuBLAS", "bf16"]
    print(tabulate(table, names, stralign="right", disable_numparse=True))
else:
    print("There is nothing to time: the benchmark needs a GPU with fp8.")

# %%
# * **Small products** gain little: the launch, the first loads and the last stores take as long as
#   in bf16. At 1024, fp8 has :measured:`small` times the speed of bf16.
# * **Large products** are also limited by loads and by power. From 2048 on, fp8 has at least
#   :measured:`least` times the speed of bf16. The layers reach :measured:`layers` % of cuBLAS on
#   average.
# * **Few rows** (the first three lines of the table). With 1 and 17 rows the product is
#   memory-bound, and most rows of a tile are empty. These three sizes were not used to choose the
#   tiles: there we reach :measured:`untuned` % of cuBLAS on average.
# * **Scales by blocks** need promotion. From 2048 on, they reach on average :measured:`blocks` % of
#   the rate with scales by rows. :doc:`09b-fp8-gluon` reaches more on Hopper.
#
# A call keeps the CPU busy for :measured:`cpu` µs, and a call of PyTorch's function for
# :measured:`cpu_torch` µs. In a loop that does not wait, a call costs the larger of two times: the
# CPU's, and the GPU's. For square matrices the GPU's is the larger from about
# :measured:`gpu_longer` rows on.
#
# Exercises
# ---------
#
# 1. **Normalize and quantize** *(medium, 40 minutes)*. The product of a layer follows an RMS norm.
#    Let that kernel round its result: ``normalize_and_quantize(x, weight)`` returns the numbers in
#    e4m3 and the scales of the rows, M × 1. How many bytes does it save? :doc:`Solution
#    <solutions/09-fused-quantize>`.
# 2. **One scale for all** *(medium, 30 minutes)*. ``quantize_tensor(x)`` returns the numbers and a
#    scale of one element. Find the largest number of the matrix without waiting for the GPU. Every
#    call must return the same bits. :doc:`Solution <solutions/09-per-tensor>`.
#
# References
# ----------
#
# * Paulius Micikevicius and others: *FP8 formats for deep learning*, https://arxiv.org/abs/2209.05433
# * DeepSeek-AI: *DeepSeek-V3 technical report*, section 3.3, https://arxiv.org/abs/2412.19437
# * Tim Dettmers and others: *LLM.int8()*, 2022, on features, https://arxiv.org/abs/2208.07339
