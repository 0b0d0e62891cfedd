"""
Moving to Triton 3.9
====================

Triton 3.9 has `no block pointers <https://github.com/triton-lang/triton/pull/10833>`_, checks the
keys of an autotuned kernel, and announces another default for the fusion of products and sums. This
page shows old code, what each release says to it, and the code that runs on both.

Descriptors or offsets replace block pointers. On the matrix product of this page, descriptors reach
:measured:`descriptors` times the rate of offsets, as a geometric mean over four sizes.

You need :doc:`/getting-started/tutorials/03-matrix-multiplication`. Every cell was executed with
Triton 3.6.0 and with 3.9.0. The output below a cell is from the release under the page's title. A
box whose title says *with Triton 3.6.0* is always from 3.6.0.
"""

# %%
# Block pointers are gone
# -----------------------
#
# A block pointer knows the shape, the strides and the tile of a matrix. ``tl.advance`` moves it,
# and ``boundary_check`` lists the dimensions in which a tile may stick out:

import os
import warnings

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")
TILES = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3} if ON_GPU else {
    "BM": 32, "BN": 32, "BK": 16}  # fmt: skip


@triton.jit
def block_pointer_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_a, stride_b, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute one tile of the product of two row-major matrices."""
    row, col = tl.program_id(1) * BM, tl.program_id(0) * BN
    a = tl.make_block_ptr(a_ptr, (M, K), (stride_a, 1), (row, 0), (BM, BK), order=(1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (stride_b, 1), (0, col), (BK, BN), order=(1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a_tile = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        b_tile = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a_tile, b_tile, acc)
        a, b = tl.advance(a, (0, BK)), tl.advance(b, (BK, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (stride_c, 1), (row, col), (BM, BN), order=(1, 0))
    tl.store(c, acc.to(tl.float16), boundary_check=(0, 1))


# %%
# Two helpers serve all kernels of this page. One launches a kernel on a grid of tiles, the other
# compares it with PyTorch on shapes that no tile divides:


# sphinx_gallery_shows = "CompilationError"
def with_pointers(kernel, a, b):
    """Return the product of the row-major matrices *a* and *b*."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = triton.cdiv(N, TILES["BN"]), triton.cdiv(M, TILES["BM"])
    kernel[grid](a, b, out, M, N, K, a.stride(0), b.stride(0), out.stride(0), **TILES)
    return out


def check(product):
    """Stop where ``product(a, b)`` is wrong; each row has a multiple of 16 bytes."""
    for M, N, K in ((8, 16, 8), (40, 72, 24), (200, 136, 328)):
        a, b = (torch.randn(s, device=DEVICE).half() for s in ((M, K), (K, N)))
        exact = (a.double() @ b.double()).half()
        torch.testing.assert_close(product(a, b), exact, atol=0.02, rtol=1e-3)


# sphinx_gallery_name = "block pointers"
try:
    check(lambda a, b: with_pointers(block_pointer_kernel, a, b))
    print(f"right on Triton {triton.__version__}")
except Exception as error:
    print(f"{type(error).__name__} on Triton {triton.__version__}:")
    print("\n".join(line[:100] for line in str(error).strip().splitlines()[-4:]))

# %%
# .. output-of:: block pointers
#    :release: 3.6.0
#
# The new code has two forms. Use **descriptors** where their rules hold, and **offsets** elsewhere.
#
# With offsets
# ------------
#
# Offsets run on every GPU and on every layout. The shape becomes a mask, ``padding_option`` becomes
# ``other``, and ``tl.advance`` becomes the loop's variable:


@triton.jit
def offset_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_a, stride_b, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute one tile of the product of two row-major matrices."""
    rows = (tl.program_id(1) * BM + tl.arange(0, BM)).to(tl.int64)[:, None]  # [BM, 1]
    cols = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]  # [1, BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        k_a = k + tl.arange(0, BK)[None, :]  # [1, BK]
        k_b = (k + tl.arange(0, BK)).to(tl.int64)[:, None]  # [BK, 1]
        a = tl.load(a_ptr + rows * stride_a + k_a, mask=(rows < M) & (k_a < K), other=0.0)
        b = tl.load(b_ptr + k_b * stride_b + cols, mask=(k_b < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (rows < M) & (cols < N)
    tl.store(c_ptr + rows * stride_c + cols, acc.to(tl.float16), mask=mask)


check(lambda a, b: with_pointers(offset_kernel, a, b))
print("offsets: right")

# %%
# Two differences are easy to miss:
#
# * A block pointer computes with 64-bit offsets. ``tl.program_id`` and ``tl.arange`` have 32 bits,
#   so ``rows * stride_a`` overflows silently from 2³¹ elements on. Hence ``.to(tl.int64)``.
# * Only the dimensions in ``boundary_check`` were checked, so each of them becomes one term of the
#   mask. Without ``padding_option`` the places outside had no defined value; ``other`` defines it.
#
# With descriptors
# ----------------
#
# A tensor descriptor is the closest relative of a block pointer. The host makes it from the tensor
# and the shape of the tile, and the kernel loads at an offset. On Hopper and newer GPUs from NVIDIA
# the tensor memory accelerator (TMA) copies the whole tile without computing addresses in threads.


@triton.jit
def descriptor_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Compute one tile of the product of two matrices that descriptors describe."""
    row, col = tl.program_id(1) * BM, tl.program_id(0) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([row, k]), b.load([k, col]), acc)
    c.store([row, col], acc.to(tl.float16))


def with_descriptors(a, b):
    """Return the product of the row-major matrices *a* and *b*."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    BM, BN, BK = TILES["BM"], TILES["BN"], TILES["BK"]
    tiles = (a, [BM, BK]), (b, [BK, BN]), (out, [BM, BN])
    described = [TensorDescriptor.from_tensor(tensor, shape) for tensor, shape in tiles]
    descriptor_kernel[triton.cdiv(N, BN), triton.cdiv(M, BM)](*described, K, **TILES)
    return out


check(with_descriptors)
print("descriptors: right")

# %%
# A descriptor always checks all dimensions. Places outside hold zero, or NaN if it was made with
# ``padding="nan"``; a store leaves them out. Its rules are stricter than those of a block pointer:

# sphinx_gallery_shows = "AssertionError"
wide = torch.zeros(64, 100, device=DEVICE, dtype=torch.float16)
cases = {
    "the last stride is 1": torch.zeros(64, 128, device=DEVICE)[:, ::2],
    "the address is a multiple of 16 bytes": wide.flatten()[1:-63].view(-1, 48),
    "all other strides are, too": wide,
}
for rule, tensor in cases.items():
    try:
        TensorDescriptor.from_tensor(tensor, [16, 16])
        print(f"accepted, although the rule is: {rule}")
    except AssertionError as error:
        print(f"{rule}, or else AssertionError: {str(error)[:40]}")

# %%
# A kernel can also make its descriptor itself, with ``tl.make_tensor_descriptor``, which takes the
# pointer, the shape, the strides and the tile in the order of ``make_block_ptr``. The caller then
# provides scratch memory through ``triton.set_allocator``.
# :doc:`/getting-started/tutorials/03b-full-waves` uses descriptors in persistent programs.
#
# Order becomes a transposition
# -----------------------------
#
# ``order=(0, 1)`` told the compiler that a matrix lies column by column. Offsets need no such hint,
# because the strides say it. A descriptor wants the contiguous dimension last, so describe the
# transposed matrix, exchange the offsets, and transpose the tile:


@triton.jit
def transposed_kernel(a, b_t, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Compute one tile of a product; ``b_t`` describes the transposed second matrix."""
    row, col = tl.program_id(1) * BM, tl.program_id(0) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([row, k]), b_t.load([col, k]).T, acc)  # [BM, BK] @ [BK, BN]
    c.store([row, col], acc.to(tl.float16))


def with_transposed(a, b):
    """Return the product of a row-major matrix *a* and a column-major matrix *b*."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    BM, BN, BK = TILES["BM"], TILES["BN"], TILES["BK"]
    tiles = (a, [BM, BK]), (b.T, [BN, BK]), (out, [BM, BN])
    described = [TensorDescriptor.from_tensor(tensor, shape) for tensor, shape in tiles]
    transposed_kernel[triton.cdiv(N, BN), triton.cdiv(M, BM)](*described, K, **TILES)
    return out


check(lambda a, b: with_transposed(a, b.T.contiguous().T))
print("column-major: right")

# %%
# Their speed
# -----------
#
# The three kernels multiply square fp16 matrices with the same tiles, in TFLOPS. With 3.9.0, the
# one with block pointers is missing. *Library* is PyTorch's product, in the same run. Compare
# within one release only, because each release has a run of its own.

# sphinx_gallery_fold = "times the kernels, prints the rates, and keeps the rows"
# sphinx_gallery_name = "speed"
from functools import partial

from shared.bench import rates, write_rows
from tabulate import tabulate

if ON_GPU:
    ways = {
        "block pointers": partial(with_pointers, block_pointer_kernel),
        "offsets": partial(with_pointers, offset_kernel),
        "descriptors": with_descriptors,
        "library": torch.matmul,
    }
    if triton.__version__ >= "3.9":
        del ways["block pointers"]
    rows = []
    for n in (1024, 2048, 4096, 8192):
        a, b = torch.randn(2, n, n, device=DEVICE).half()
        calls = {name: partial(way, a, b) for name, way in ways.items()}
        rows += rates((n, n, n), calls, "TFLOPS", 2 * n**3, 20)
    write_rows("moving-performance.csv", ["M", "N", "K"], rows)
    found = {(row[0], row[3]): row[5] for row in rows}
    table = [(n, *(found[n, name] for name in ways)) for n in (1024, 2048, 4096, 8192)]
    print(tabulate(table, ["M = N = K", *ways], floatfmt=".0f"))

# %%
# .. output-of:: speed
#    :release: 3.6.0
#
# Autotuning refuses unknown keys
# -------------------------------
#
# ``key`` names the arguments whose values choose a configuration. 3.6.0 ignores a name that is no
# argument. Then the kernel is tuned once, for whatever shape comes first, and uses the same
# configuration for all others. 3.9.0 refuses the name. Its check also covers ``reset_to_zero`` and
# ``restore_value``.

# sphinx_gallery_name = "keys"
# sphinx_gallery_shows = "ValueError"
configs = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 1024})]
try:

    @triton.autotune(configs, key=["n"])  # the argument is called N
    @triton.jit
    def double_kernel(x_ptr, N, BLOCK: tl.constexpr):
        """Double *N* elements."""
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets, offsets < N), offsets < N)

    print("accepted; tuned again for another N:", "n" in double_kernel.arg_names)
except ValueError as error:
    print("ValueError:", error)

# %%
# .. output-of:: keys
#    :release: 3.6.0
#
# The remedy is the name of the argument: ``key=["N"]``.
#
# Fusing a product and a sum
# --------------------------
#
# A GPU computes ``x * y + z`` with one rounding (a *fused multiply-add*) or with two. 3.6.0 and
# 3.9.0 both fuse. From 3.10 on, Triton will not, unless asked. 3.9 warns as long as neither the
# launch nor the environment says what is wanted:


@triton.jit
def multiply_add_kernel(x_ptr, y_ptr, z_ptr, out_ptr, BLOCK: tl.constexpr):
    """Compute ``x * y + z`` for one block."""
    i = tl.arange(0, BLOCK)
    product = tl.load(x_ptr + i) * tl.load(y_ptr + i)
    tl.store(out_ptr + i, product + tl.load(z_ptr + i))


# sphinx_gallery_name = "fusion"
x, y = torch.rand(2, 256, device=DEVICE)
out = torch.empty_like(x)
os.environ.pop("TRITON_DEFAULT_FP_FUSION", None)
for option in ({}, {"enable_fp_fusion": True}, {"enable_fp_fusion": False}):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        multiply_add_kernel[(1,)](x, y, -(x * y), out, BLOCK=256, **option)
    print(f"{option or 'no option'}: x * y - round(x * y) is at most {out.abs().max().item():.1e}")
    for warning in caught:
        print(f"  {warning.category.__name__}: {warning.message}")

# %%
# .. output-of:: fusion
#    :release: 3.6.0
#
# With two roundings the difference is zero, and with one it is the rounding error of the product.
# Neither is wrong, but a test that compares bits sees it, and code that relies on cancellation may
# need one of them. Say it where it matters: ``kernel[grid](…, enable_fp_fusion=True)``. For a whole
# program, set ``TRITON_DEFAULT_FP_FUSION`` to 1 or 0, which also ends the warning.
#
# What else changed
# -----------------
#
# .. list-table::
#    :header-rows: 1
#    :widths: 35 65
#
#    * - Triton 3.6
#      - Triton 3.9
#    * - ``tl.load(p, mask, other, …)`` and ``tl.store(p, value, mask, …)`` take more arguments by
#        place
#      - ``cache_modifier``, ``eviction_policy`` and ``volatile`` by name only; no
#        ``boundary_check``, no ``padding_option``
#    * - ``tl.softmax(x, dim, keep_dims)``
#      - ``keep_dims`` and ``ieee_rounding`` by name only
#    * - ``tl.dot(a, b, acc)`` with an accumulator in fp16 needed ``out_dtype``
#      - the result has the type of the accumulator
#    * - ``tl.cat(…, can_reorder=True)``, ``tl.reshape(…, can_reorder=True)``, ``tl.view``
#      - deprecated; 3.10 removes ``can_reorder``
#    * - ``allow_tf32`` of ``tl.dot``
#      - deprecated as before; use ``input_precision``
#    * - ``tl.pointer_type(type, address_space=1)``
#      - ``address_space`` is a text, ``"global"`` by default
#    * - ``triton.FutureKernel(finalize_compile, future)``
#      - takes ``cleanup_compile`` before ``future``
#
# :doc:`/python-api/index` shows for each name which release has which arguments, and
# :doc:`/releases` what a release changed in the speed of the tutorials.
#
# A checklist
# -----------
#
# `find_call_sites.py <../../_static/find_call_sites.py>`__ lists the lines of your own code that
# this page is about. It reads the syntax tree, so comments, strings and other functions of the same
# name do not count::
#
#    $ python find_call_sites.py my_project
#    my_project/attention.py:41: make_block_ptr is gone: With offsets / With descriptors
#    my_project/attention.py:52: boundary_check is gone: With offsets / With descriptors
#
# Without Python, ``grep -rnE "make_block_ptr|boundary_check|advance\(" my_project`` finds most of
# them, and lines that are none. Then, for each call site:
#
# 1. Is the contiguous dimension last, the address a multiple of 16 bytes, and so is each other
#    stride? Then use descriptors. Otherwise use offsets, or have both kernels and choose for each
#    call.
# 2. Does a tensor have 2³¹ elements or more? Then compute offsets in 64 bits.
# 3. Was a dimension left out of ``boundary_check`` because the tiles divide it? A descriptor checks
#    it anyway, and offsets need no term for it.
# 4. Compare with the old kernel on shapes that no tile divides, before you time.
