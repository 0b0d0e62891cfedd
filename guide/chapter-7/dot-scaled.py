"""
Are mxfp4 and mxfp8 worth it on a GPU without them?
===================================================

``tl.dot_scaled`` multiplies matrices in the microscaling formats *mxfp4* and *mxfp8*: numbers of 4
or 8 bits, with one power of two for each 32 of them. NVIDIA's Blackwell and AMD's CDNA4 have
instructions for it. Elsewhere, as on Hopper, Ada and Ampere, it runs and is right, but converts to
bf16 first. On the GPU of this page, bf16 by mxfp4 takes :measured:`few` times the time of PyTorch's
product in bf16 with 16 rows, and mxfp4 by mxfp4 takes :measured:`large` times with 2048 rows. A
number above 1 means: not worth it.
"""

# %%
# Does ``tl.dot_scaled`` run on my GPU?
# -------------------------------------
#
# Where the hardware lacks the formats, the compiler converts both tiles to bf16 and multiplies
# those (`#7550 <https://github.com/triton-lang/triton/issues/7550>`_, `#6347
# <https://github.com/triton-lang/triton/issues/6347>`_, `#10918
# <https://github.com/triton-lang/triton/issues/10918>`_). Three combinations are of use: both in
# mxfp4, both in mxfp8, and bf16 by mxfp4, where only the weights are small.

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_depends = "../tutorials/09-fp8-matmul.py, ../tutorials/12-int4-weights.py"
import os
import re
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import sys  # for shared/
from pathlib import Path  # for shared/

import triton
import triton.language as tl
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import gpu_times, spread, write_rows
from shared.lesson import lesson

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
N, K = (4096, 4096) if ON_GPU else (64, 128)

# %%


@triton.jit
def scaled_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K, A: tl.constexpr, B: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute a tile of ``a @ b.T``: a is [M, K], b is [N, K], with a scale for each 32 of K."""
    A_PACKED: tl.constexpr = 2 if A == "e2m1" else 1  # numbers in an element
    B_PACKED: tl.constexpr = 2 if B == "e2m1" else 1
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    in_a = (rows < M)[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a_at = k // A_PACKED + tl.arange(0, BK // A_PACKED)
        b_at = k // B_PACKED + tl.arange(0, BK // B_PACKED)
        scales = k // 32 + tl.arange(0, BK // 32)
        a = tl.load(a_ptr + rows[:, None] * (K // A_PACKED) + a_at[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + cols[None, :] * (K // B_PACKED) + b_at[:, None])  # [BK, BN]
        b_scale = tl.load(
            b_scale_ptr + cols[:, None] * (K // 32) + scales[None, :]
        )  # [BN, BK / 32]
        if A == "bf16":
            acc = tl.dot_scaled(a, None, A, b, b_scale, B, acc)
        else:
            at = a_scale_ptr + rows[:, None] * (K // 32) + scales[None, :]
            a_scale = tl.load(at, mask=in_a, other=0)  # [BM, BK / 32]
            acc = tl.dot_scaled(a, a_scale, A, b, b_scale, B, acc)  # <-
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(tl.bfloat16), mask=in_a)


def tile_for(M):
    """Return a tile and its warps for M rows; the tiles divide N and K."""
    if not ON_GPU:
        return {"BM": 16, "BN": 32, "BK": 64}
    rows, warps = (16, 4) if M <= 16 else (64, 4) if M <= 512 else (128, 8)
    return {"BM": rows, "BN": 128, "BK": 128, "num_warps": warps, "num_stages": 3}


def dot_scaled(formats, a, a_scale, b, b_scale):
    """Return ``a @ b.T`` in bf16, and the compiled kernel."""
    M, N, K = len(a), len(b), b_scale.shape[1] * 32
    tile = tile_for(M)
    c = torch.empty(M, N, dtype=torch.bfloat16, device=DEVICE)
    grid = triton.cdiv(N, tile["BN"]), triton.cdiv(M, tile["BM"])
    A, B = formats
    compiled = scaled_kernel[grid](a, a_scale, b, b_scale, c, M, N, K, A=A, B=B, **tile)
    return c, compiled


# %%
# Triton calls the formats by their bits. The numbers of mxfp4 are *e2m1*, with two bits of exponent
# and one of mantissa: each is one of ``0, ½, 1, 1½, 2, 3, 4, 6`` or its negative. Two of them share
# a byte, the first one in the lower bits. The numbers of mxfp8 here are *e4m3*, with four bits of
# exponent and three of mantissa. A scale is *e8m0*: the exponent of a power of two, plus 127.

# sphinx_gallery_fold = "draws matrices in each format, and their values in float64"
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64, device=DEVICE)
E2M1 = torch.cat([E2M1, -E2M1])


def draw(rows, K, format):
    """Return a random matrix in a format, its scales or None, and its values in float64."""
    if format == "bf16":
        a = torch.randn(rows, K, device=DEVICE).to(torch.bfloat16)
        return a, None, a.double()
    scales = torch.randint(122, 130, (rows, K // 32), dtype=torch.uint8, device=DEVICE)
    factors = 2.0 ** (scales.double() - 127).repeat_interleave(32, 1)
    if format == "e4m3":
        a = torch.randn(rows, K, device=DEVICE).to(torch.float8_e4m3fn)
        return a, scales, a.float().double() * factors
    codes = torch.randint(0, 256, (rows, K // 2), dtype=torch.uint8, device=DEVICE)
    low, high = E2M1[(codes & 15).long()], E2M1[(codes >> 4).long()]
    return codes, scales, torch.stack([low, high], 2).flatten(1) * factors


def assert_right(c, a, b):
    """Stop where *c* is not ``a @ b.T`` up to the rounding of bf16 and the sums in fp32."""
    size = a.norm(dim=1)[:, None] * b.norm(dim=1)[None, :]
    torch.testing.assert_close(c.double() / size, a @ b.T / size, rtol=2**-7, atol=2**-12)


# sphinx_gallery_shows = "CompilationError, AssertionError, RuntimeError, OutOfResources"
FORMATS = {"mxfp4": ("e2m1", "e2m1"), "mxfp8": ("e4m3", "e4m3"), "bf16 · mxfp4": ("bf16", "e2m1")}
MMA = re.compile(r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)[\w.:]*")
RUNS, table = {}, []
for name, formats in FORMATS.items() if ON_GPU else ():
    try:
        for M in (16, 100, 600):
            a, a_scale, exact_a = draw(M, K, formats[0])
            b, b_scale, exact_b = draw(N, K, formats[1])
            c, compiled = dot_scaled(formats, a, a_scale, b, b_scale)
            assert_right(c, exact_a, exact_b)
        RUNS[name] = formats
        used = sorted(set(MMA.findall(compiled.asm.get("ptx", ""))))
        table.append((name, "right", used[0] if used else "see the compiler's output"))
    except AssertionError:
        raise
    except Exception as error:
        table.append((name, f"{type(error).__name__}: {str(error)[:60]}", ""))
if ON_GPU:
    print(tabulate(table, ["formats", "against float64", "instruction"]))
    native = any("mxf" in row[2] or "block_scale" in row[2] for row in table)
    print("native" if native else "converted to another format before the product")

# %%
# The instruction tells: ``mxf8f6f4``, ``mxf4`` or ``block_scale`` in its name mean that the
# hardware knows the formats. ``bf16.bf16`` means that the tiles were converted first. The result is
# right in both cases: numbers of 4 and of 8 bits, times a power of two, are exact in bf16.
#
# Two mistakes are common:
#
# * **The scales of b are** ``[N, K / 32]``, like b before it is transposed, although b itself is
#   passed as ``[K, N]``. Do not transpose them.
# * **Two numbers share a byte along K.** The tile of *b* has ``BK // 2`` rows.
#
# How do I unpack mxfp4 myself?
# -----------------------------
#
# By integer arithmetic. Let *e* be the two bits of a number's exponent, and *m* the bit of its
# mantissa. Counted in quarters, the number is ``2 m`` if *e* is 0, and ``(2 + m) << e`` otherwise.
# Then comes an ordinary ``tl.dot``:


@triton.jit
def unpacking_kernel(
    a_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute a tile of ``a @ b.T`` for a in bf16 and b in mxfp4."""
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    in_a = (rows < M)[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        inner, half = k + tl.arange(0, BK), k // 2 + tl.arange(0, BK // 2)
        scales = k // 32 + tl.arange(0, BK // 32)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=in_a, other=0.0)
        codes = tl.load(b_ptr + cols[:, None] * (K // 2) + half[None, :])  # [BN, BK / 2]
        code = tl.interleave(codes & 15, codes >> 4).to(tl.int32)  # [BN, BK]
        e, m = (code >> 1) & 3, code & 1
        quarters = tl.where(e == 0, 2 * m, (2 + m) << e)
        b = tl.where(code > 7, -quarters, quarters).to(tl.float32) * 0.25
        exponent = tl.load(b_scale_ptr + cols[:, None] * (K // 32) + scales[None, :]).to(tl.int32)
        factor = (exponent << 23).to(tl.float32, bitcast=True)  # [BN, BK / 32]
        b = tl.reshape(tl.reshape(b, (BN, BK // 32, 32)) * factor[:, :, None], (BN, BK))
        acc = tl.dot(a, b.to(a.dtype).T, acc)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], c, mask=in_a)


def unpacking(a, b, b_scale):
    """Return ``a @ b.T`` for a in bf16 (fp32 in the interpreter) and b in mxfp4."""
    M, N, K = len(a), len(b), a.shape[1]
    tile = tile_for(M)
    c = torch.empty(M, N, dtype=a.dtype, device=DEVICE)
    grid = triton.cdiv(N, tile["BN"]), triton.cdiv(M, tile["BM"])
    unpacking_kernel[grid](a, b, b_scale, c, M, N, K, **tile)
    return c


b, b_scale, exact_b = draw(N, K, "e2m1")
for M in (16, 100, 600) if ON_GPU else (3,):
    a = torch.randn(M, K, device=DEVICE).to(torch.bfloat16 if ON_GPU else torch.float32)
    assert_right(unpacking(a, b, b_scale), a.double(), exact_b)
print("unpacking: right")

# %%
# Is it worth it?
# ---------------
#
# It is worth it where it takes less time than *bf16* in the same column. The table has products
# with weights of 4096 × 4096, for 1, 16, 128 and 2048 rows. Beside ``dot_scaled`` and our unpacking
# stand PyTorch's product in bf16, ``int4_mm`` of
# :doc:`/getting-started/tutorials/12-int4-weights`, and ``scaled_mm`` in fp8 of
# :doc:`/getting-started/tutorials/09-fp8-matmul`:

# sphinx_gallery_name = "worth"
# sphinx_gallery_fold = "times the products, prints a table, and keeps the rows"


def calls_for(M):
    """Return {name: call} of the products with M rows; leave out what this GPU refuses."""
    x = torch.randn(M, K, device=DEVICE).to(torch.bfloat16)
    weight = exact_b.to(torch.bfloat16)
    calls = {"bf16": lambda: x @ weight.T, "unpacking": lambda: unpacking(x, b, b_scale)}
    for name, formats in RUNS.items():
        a, a_scale, _ = draw(M, K, formats[0])
        other, other_scale, _ = draw(N, K, formats[1])
        calls[f"dot_scaled {name}"] = partial(dot_scaled, formats, a, a_scale, other, other_scale)
    try:
        int4 = lesson("12-int4-weights")
        packed = int4.pack_int4(weight)
        calls["int4"] = lambda: int4.int4_mm(x, *packed)
        calls["int4"]()
    except Exception as error:
        calls.pop("int4", None)
        print(f"int4: {type(error).__name__}: {str(error)[:100]}")
    try:
        fp8 = lesson("09-fp8-matmul")
        fp8.SMS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
        small = (x / 8).to(torch.float8_e4m3fn), (weight / 8).to(torch.float8_e4m3fn).T
        ones = torch.ones(M, 1, device=DEVICE), torch.ones(1, N, device=DEVICE)
        calls["fp8"] = lambda: fp8.scaled_mm(*small, *ones)
        calls["fp8"]()
    except Exception as error:
        calls.pop("fp8", None)
        print(f"fp8: {type(error).__name__}: {str(error)[:100]}")
    return calls


if ON_GPU:
    rows = []
    for M in (1, 16, 128, 2048):
        with torch.no_grad():
            for name, times in gpu_times(calls_for(M), 15).items():
                rows.append((M, N, K, name, "µs", *spread([1e3 * ms for ms in times])))
    write_rows("dot-scaled.csv", ["M", "N", "K"], rows)
    medians = {(row[0], row[3]): row[5] for row in rows}
    names = list(dict.fromkeys(row[3] for row in rows))
    table = [(name, *(medians.get((M, name)) for M in (1, 16, 128, 2048))) for name in names]
    print(tabulate(table, ["µs for rows", 1, 16, 128, 2048], floatfmt=".1f"))

# %%
# .. output-of:: worth
#    :release: 3.6.0
#
# As multiples of the time of PyTorch's product in bf16, with 16 rows: :measured:`few` for bf16 by
# mxfp4, :measured:`unpacking_few` for our unpacking, :measured:`int4_few` for ``int4_mm``, and
# :measured:`fp8_few` for fp8. With 2048 rows: :measured:`mixed_large` for bf16 by mxfp4,
# :measured:`large` for mxfp4, :measured:`eight_large` for mxfp8, :measured:`int4_large` for
# ``int4_mm``, and :measured:`fp8_large` for fp8.
#
# The compiler writes the code of a conversion, so another release may need another time for it. On
# the GPU of this page, mxfp8 with 2048 rows takes :measured:`eight_since` times as long with 3.9.0
# as with 3.6.0, and bf16 by mxfp4 with 16 rows :measured:`few_since` times as long. Compare the
# lines of ``dot_scaled`` in both tables before you upgrade. The lines of ``int4`` do not tell about
# the compiler alone, since ``int4_mm`` has other settings before 3.9.
#
# How to read this:
#
# * **With few rows, the bytes of the weights set the time.** Weights of 4 bits have a quarter of
#   bf16's bytes. Only a kernel that keeps enough loads in flight while it unpacks saves time by
#   that, as ``int4_mm`` does. Weights in fp8 have half of bf16's bytes, and tensor cores that know
#   fp8 need no unpacking.
# * **With many rows, the tensor cores set the time.** A conversion adds work. Without the
#   instruction, convert the weights once, to bf16 or fp8, and call a product in that format. Where
#   tensor cores know fp8, :doc:`/getting-started/tutorials/09-fp8-matmul` reaches
#   :measured:`09-fp8-matmul:faster` times the speed of bf16 with large matrices.
# * **Memory is a reason of its own.** A model that fits only in 4 bits runs in 4 bits.
#
# ``tl.dot_scaled`` keeps one kernel correct on GPUs with and without the formats, and uses the
# instruction where there is one. Ask the device where it matters, and choose there: see
# :doc:`other-gpus`.
