"""
Why do results change with the batch size?
==========================================

The same prompt gives another answer when other requests share its batch, even at temperature 0. A
kernel cuts its sums into other parts if the batch has another size, so the rounding is different.
Let nothing in the batch decide where a sum is cut, nor in which order its parts are
added: then every bit stays the same. This page checks that for a product, a norm and an attention
over 50 batch sizes, and times it.
"""

# %%
# Are the bits the same for every batch size?
# -------------------------------------------
#
# Sums in floating point depend on their order: ``(a + b) + c`` is not ``a + (b + c)``. To keep the
# GPU busy with few rows, a kernel splits each sum among more programs, and so the batch decides the
# order (`vllm #27433 <https://github.com/vllm-project/vllm/issues/27433>`_, `flash-attention #1897
# <https://github.com/Dao-AILab/flash-attention/issues/1897>`_, `FlashMLA #212
# <https://github.com/deepseek-ai/FlashMLA/issues/212>`_). The check compares bits. It computes one
# row alone, then as the first and as the last row of a batch. It counts the batch sizes with
# another result, and the *numbers at most*, the largest share of a row's numbers that differ:

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_depends = "../tutorials/02-fused-softmax.py, ../tutorials/03-matrix-multiplication.py, ../tutorials/05-layer-norm.py, ../tutorials/06-fused-attention.py, ../tutorials/12-int4-weights.py"  # noqa: E501
import os

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import triton
import triton.language as tl
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import gpu_times, spread, write_rows, write_table
from shared.lesson import lesson

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
SMS = torch.cuda.get_device_properties(0).multi_processor_count if ON_GPU else 8
K, N, KEYS = (4096, 4096, 1024) if ON_GPU else (256, 64, 96)
DTYPE = torch.float16 if ON_GPU else torch.float32

# %%

BATCHES = [*range(1, 33), 40, 48, 56, 64, 80, 96, 128, 129, 160, 192, 256, 257, 384, 512, 768,
           1000, 1024, 2048] if ON_GPU else [1, 2, 3, 8, 33]  # fmt: skip
VALUES = []  # rows of a CSV file


def differences(function, *rows, batches=BATCHES):
    """Compute row 0 of *rows* alone and in batches; return what differs, in bits.

    Returns the number of batch sizes with another result, the largest share of a result's numbers
    that differ, and the largest difference. *function* takes tensors with one row a request.
    """
    alone = function(*(x[:1] for x in rows))[0]
    assert alone.isfinite().all()
    sizes, share, largest = set(), 0.0, 0.0
    for n in batches:
        first = [x[:n] for x in rows]
        last = [torch.cat([x[1:n], x[:1]]) for x in rows]
        for result in (function(*first)[0], function(*last)[-1]):
            other = result.view(torch.uint8) != alone.view(torch.uint8)  # bits, not values
            if other.any():
                sizes.add(n)
                differ = result != alone
                share = max(share, differ.double().mean().item())
                largest = max(largest, (result.double() - alone.double()).abs().max().item())
    return len(sizes), share, largest


def show(name, functions, *rows, invariant=()):
    """Print the differences of {label: function}; stop if one of *invariant* has any."""
    table = []
    for label, function in functions.items():
        sizes, share, largest = differences(function, *rows)
        table.append((label, sizes, f"{100 * share:.1f} %", f"{largest:.1e}"))
        VALUES.append((f"{name} {label}", "batch sizes", sizes))
        assert not (label in invariant and sizes), f"{name}, {label}: {sizes} batch sizes differ"
    head = [name, f"of {len(BATCHES)} batch sizes", "numbers at most", "largest difference"]
    print(tabulate(table, head))


# %%
# Why does a product change?
# --------------------------
#
# With few rows, a product of matrices has few tiles, and most multiprocessors would idle. *Split K*
# gives each tile to several programs, each with a part of the sums. Three ways to choose parts and
# to add them up:


@triton.jit(do_not_specialize=["M"])  # one kernel for all batch sizes
def product_kernel(
    x_ptr, w_ptr, out_ptr, M, N, K, PARTS: tl.constexpr, ATOMIC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute one part of each sum of one tile of ``x @ w``; PARTS · BK divides K."""
    part, each = tl.program_id(2), K // PARTS
    rows = tl.program_id(1) * BM + tl.arange(0, BM)[:, None]  # [BM, 1]
    cols = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]  # [1, BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(part * each, (part + 1) * each, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rows * K + inner[None, :], mask=rows < M, other=0.0)
        w = tl.load(w_ptr + inner[:, None] * N + cols, mask=cols < N, other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (rows < M) & (cols < N)
    if ATOMIC:
        tl.atomic_add(out_ptr + rows * N + cols, acc, mask=mask, sem="relaxed")
    else:
        tl.store(out_ptr + part * M * N + rows * N + cols, acc, mask=mask)


@triton.jit
def add_kernel(parts_ptr, out_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the parts of *n* sums, always in the order 0, 1, 2, …"""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(PARTS):
        total += tl.load(parts_ptr + part * n + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, total, mask=i < n)


TILE = {"BM": 64, "BN": 128, "BK": 64} if ON_GPU else {"BM": 16, "BN": 32, "BK": 16}


def product(x, w, parts, atomic=False, **options):
    """Return ``x @ w`` with each sum split into *parts*."""
    tile = TILE | options
    (M, K), N = x.shape, w.shape[1]
    grid = triton.cdiv(N, tile["BN"]), triton.cdiv(M, tile["BM"]), parts
    made = torch.zeros if atomic else torch.empty
    sums = made((1 if atomic else parts, M, N), dtype=torch.float32, device=x.device)
    product_kernel[grid](x, w, sums, M, N, K, PARTS=parts, ATOMIC=atomic, **tile)
    out = torch.empty(M, N, device=x.device)  # fp32, so that rounding hides no difference
    add_kernel[(triton.cdiv(M * N, 1024),)](sums, out, M * N, PARTS=len(sums), BLOCK=1024)
    return out


def parts_for(programs, most):
    """Return how many parts, a power of two, fill the GPU if there are that many programs."""
    return min(most, 2 ** max(0, (2 * SMS // programs).bit_length() - 1))


def product_by_batch(x, w):
    """Return ``x @ w``; the fewer rows, the more parts."""
    tiles = triton.cdiv(len(x), TILE["BM"]) * triton.cdiv(w.shape[1], TILE["BN"])
    return product(x, w, parts_for(tiles, 16))


def product_atomic(x, w):
    """Return ``x @ w``; programs add their parts in the order in which they end."""
    return product(x, w, 4, atomic=True)


def product_fixed(x, w):
    """Return ``x @ w``: the same tile, the same parts and the same order for every batch."""
    return product(x, w, 4)  # <-


torch.manual_seed(0)
x = torch.randn(max(BATCHES), K, device=DEVICE).to(DTYPE)
w = (torch.randn(K, N, device=DEVICE) / K**0.5).to(DTYPE)
for function in (product_by_batch, product_atomic, product_fixed):
    torch.testing.assert_close(function(x, w), (x @ w).float(), atol=5e-3, rtol=5e-3)
PRODUCTS = {
    "parts by batch": partial(product_by_batch, w=w),
    "atomic": partial(product_atomic, w=w),
    "fixed": partial(product_fixed, w=w),
    "torch": lambda x: x @ w,
}
show("product", PRODUCTS, x, invariant=["fixed"] if ON_GPU else [])  # not of NumPy's products

# %%
# * **Parts by batch** change where the sums are cut, and so their bits: for :measured:`by_batch` of
#   50 batch sizes here. More than 64 rows need a second row of tiles, so each sum gets fewer parts.
# * **Atomics** may give other bits in every run, because the parts arrive in any order. Here they
#   differ for :measured:`atomic` of 50 batch sizes.
# * **Fixed** tiles, parts and order give each row the same operations, whatever else its tile
#   holds. A row never meets another row's numbers in a product, so padding does not matter either.
#   (Without a GPU the product of a tile is NumPy's. On some CPUs its library rounds the last rows
#   of a tile in another way, so there the table may show differences.)
# * **PyTorch** calls a library, which chooses a kernel by the shape: here :measured:`torch` of 50
#   batch sizes differ.
#
# Our products return fp32 here, which shows every difference. PyTorch returns 16 bits, and rounding
# to 16 bits hides small ones. One that is left can be enough to sample another token.
#
# Does autotuning change the bits?
# --------------------------------
#
# It does if it chooses the number of parts. Autotuning chooses by a timer, so another machine or
# another number of rows, ``M``, may get another choice. This table computes one product with
# several choices and compares the bits with the first one, which has four parts:

# sphinx_gallery_fold = "tries seven choices, and three other numbers of parts"
OPTIONS = [{}, {"num_warps": 8}, {"BN": 64}, {"BM": 128}, {"BM": 16}, {"BK": 32}, {"BK": 128}]
few = x[:128]
reference = product(few, w, 4)
table = []
for options in OPTIONS if ON_GPU else OPTIONS[:3]:
    differ = (product(few, w, 4, **options) != reference).sum().item()
    table.append((", ".join(f"{k} = {v}" for k, v in options.items()) or "as above", differ))
for parts in (1, 2, 8):
    differ = (product(few, w, parts) != reference).sum().item()
    table.append((f"{parts} parts", differ))
    VALUES.append((f"{parts} parts", "numbers", differ))
print(tabulate(table, ["changed", f"of {reference.numel():,} numbers differ"], intfmt=","))
assert table[0][1] == 0, "the same call gave other bits"

# %%
# With two parts instead of four, :measured:`two_parts` of the 524,288 numbers differ. In the lines
# with another tile or other warps, a 0 means that the order stays: each part is one loop over K.
# That is an observation, not a promise. A tile may change the instruction of the tensor cores, and
# with it the order within one step. For the same bits, keep the parts out of the choices, leave
# ``M`` out of the ``key`` of ``triton.autotune``, keep what it found, and ship it: see
# :doc:`questions-compiling`.
#
# Does a norm change?
# -------------------
#
# A row of a norm is one sum. If one program computes a row, its order is fixed, and you have
# nothing to do. The order changes if a kernel splits long rows while there are few of them:


@triton.jit
def squares_kernel(x_ptr, sums_ptr, N, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the squares of one part of one row."""
    row, part = tl.program_id(0), tl.program_id(1)
    x = tl.load(x_ptr + row * N + part * BLOCK + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(sums_ptr + row * PARTS + part, tl.sum(x * x))


@triton.jit
def norm_kernel(x_ptr, sums_ptr, out_ptr, N, eps, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Divide one part of one row by the root of the mean of its squares."""
    row, part = tl.program_id(0), tl.program_id(1)
    total = tl.load(sums_ptr + row * PARTS)
    for p in range(1, PARTS):
        total += tl.load(sums_ptr + row * PARTS + p)
    at = row * N + part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at).to(tl.float32)
    tl.store(out_ptr + at, x * tl.rsqrt(total / N + eps))


def rms_norm(x, parts):
    """Return the rows of *x* divided by the root of their mean square."""
    (M, N), eps = x.shape, 1e-6
    sums = torch.empty(M, parts, device=x.device)
    out = torch.empty(M, N, device=x.device)
    squares_kernel[M, parts](x, sums, N, PARTS=parts, BLOCK=N // parts)
    norm_kernel[M, parts](x, sums, out, N, eps, PARTS=parts, BLOCK=N // parts)
    return out


for parts in (1, 4):
    close = functional.rms_norm(x.float(), x.shape[1:], eps=1e-6)
    torch.testing.assert_close(rms_norm(x, parts), close, atol=1e-4, rtol=1e-4)
NORMS = {
    "parts by batch": lambda x: rms_norm(x, parts_for(len(x), 16)),
    "fixed": lambda x: rms_norm(x, 4),  # <-
    "torch": lambda x: functional.rms_norm(x, x.shape[1:], eps=1e-6),
}
show("norm", NORMS, x, invariant=["fixed"])

# %%
# The order changes here, but the bits need not. The table compares a single row, and that is a
# single sum. Another order moves it by a few units in the last place, if at all, and the square
# root halves a relative difference. So a 0 for *parts by batch* is chance. A 0 for *fixed* is not:
# its operations are the same in every batch.
#
# Why does attention change?
# --------------------------
#
# While decoding, a sequence has one query and many keys. *Split keys* (flash decoding) gives the
# keys of a sequence to several programs. Two things must not depend on the batch: the **length** of
# a part, in keys, and the order in which the parts are combined. A fixed *number* of parts is
# wrong, too: then the longest sequence of the batch decides where all others are cut.


@triton.jit
def decode_kernel(
    q_ptr, k_ptr, v_ptr, lengths_ptr, part_ptr, each, keys, scale,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend from one query to one part of its keys; store the mean and the log of the weight."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length, d = tl.load(lengths_ptr + row), tl.arange(0, D)
    q = tl.load(q_ptr + row * D + d).to(tl.float32) * scale
    m, z, acc = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    stop = tl.minimum(length, (part + 1) * each)
    for start in range(part * each, stop, BLOCK):
        key = start + tl.arange(0, BLOCK)
        at = (row * keys + key)[:, None] * D + d[None, :]  # [BLOCK, D]
        k = tl.load(k_ptr + at, mask=(key < stop)[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=(key < stop)[:, None], other=0.0).to(tl.float32)
        s = tl.where(key < stop, tl.sum(q[None, :] * k, axis=1), -float("inf"))
        m_new = tl.maximum(m, tl.max(s))
        p, correction = tl.exp(s - m_new), tl.exp(m - m_new)
        z, acc = z * correction + tl.sum(p), acc * correction + tl.sum(p[:, None] * v, axis=0)
        m = m_new
    if part * each < length:
        part_ptr += (row * tl.num_programs(1) + part) * (D + 1)
        tl.store(part_ptr + d, acc / z)
        tl.store(part_ptr + D, m + tl.log(z))


@triton.jit
def combine_kernel(lengths_ptr, part_ptr, out_ptr, each, parts, D: tl.constexpr):
    """Combine the parts of one query in the order 0, 1, 2, …; only those that it has."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    part_ptr += row * parts * (D + 1)
    lse, out = tl.load(part_ptr + D), tl.load(part_ptr + d)
    for p in range(1, tl.cdiv(tl.load(lengths_ptr + row), each)):
        other = tl.load(part_ptr + p * (D + 1) + D)
        top = tl.maximum(lse, other)
        a, b = tl.exp(lse - top), tl.exp(other - top)
        out = (a * out + b * tl.load(part_ptr + p * (D + 1) + d)) / (a + b)
        lse = top + tl.log(a + b)
    tl.store(out_ptr + row * D + d, out)


def decode(q, k, v, lengths, each):
    """Return the attention of each query to its keys, in parts of *each* keys."""
    (batch, keys, d), scale = k.shape, k.shape[2] ** -0.5
    parts = triton.cdiv(keys, each)
    made = torch.empty(batch, parts, d + 1, device=q.device)
    out = torch.empty(batch, d, device=q.device)
    block = 64 if ON_GPU else 16
    decode_kernel[batch, parts](q, k, v, lengths, made, each, keys, scale, D=d, BLOCK=block)
    combine_kernel[(batch,)](lengths, made, out, each, parts, D=d)
    return out


def decode_by_batch(q, k, v, lengths):
    """Return the attention; the fewer queries, the more parts."""
    return decode(q, k, v, lengths, triton.cdiv(k.shape[1], parts_for(len(q), 8)))


def decode_fixed(q, k, v, lengths):
    """Return the attention in parts of a fixed length."""
    return decode(q, k, v, lengths, 256 if ON_GPU else 32)  # <-


D = 64
q = torch.randn(max(BATCHES), D, device=DEVICE).to(DTYPE)
k, v = torch.randn(2, max(BATCHES), KEYS, D, device=DEVICE).to(DTYPE)
lengths = torch.randint(1, KEYS + 1, (max(BATCHES),), device=DEVICE, dtype=torch.int32)
lengths[0] = KEYS - 11
for function in (decode_by_batch, decode_fixed):
    for i, n in enumerate(lengths[:4].tolist()):
        weights = (q[i].double() @ k[i, :n].double().T / D**0.5).softmax(-1)
        exact = (weights @ v[i, :n].double()).float()
        torch.testing.assert_close(function(q, k, v, lengths)[i], exact, atol=1e-4, rtol=1e-3)


def decode_torch(q, k, v, lengths):
    """Return PyTorch's attention, to all keys."""
    return functional.scaled_dot_product_attention(q[:, None, None], k[:, None], v[:, None])[
        :, 0, 0
    ]


ATTENTIONS = {"parts by batch": decode_by_batch, "fixed": decode_fixed, "torch": decode_torch}
show("attention", ATTENTIONS, q, k, v, lengths, invariant=["fixed"])

# %%
# What does it cost?
# ------------------
#
# Fixed parts can cost time in two ways. With few rows, they may be too few to fill the GPU. With
# many rows, cutting is work without a gain. The table shows the time on the GPU for four batch
# sizes. Over these sizes, fixed parts take, as a geometric mean, :measured:`product_cost` times the
# time of parts by batch in the product, :measured:`norm_cost` times in the norm, and
# :measured:`attention_cost` times in attention. At the worst of the four sizes, these factors are
# :measured:`product_worst`, :measured:`norm_worst` and :measured:`attention_worst`. A factor below
# 1 means that choosing the parts by the batch has not paid.
#
# The products of this page are short teaching kernels. For 1024 rows, the fixed one takes
# :measured:`product_library` times the time of PyTorch's, whose bits may change.

# sphinx_gallery_fold = "times the functions, prints a table, and keeps the rows"
if ON_GPU:
    rows, table = [], []
    for n in (1, 16, 128, 1024):
        inputs = {"product": [x[:n]], "norm": [x[:n]]}
        inputs["attention"] = [t[:n] for t in (q, k, v, lengths)]
        families = {"product": PRODUCTS, "norm": NORMS, "attention": ATTENTIONS}
        calls = {
            (family, label): partial(function, *inputs[family])
            for family, functions in families.items()
            for label, function in functions.items()
        }
        for (family, label), times in gpu_times(calls, rounds=15).items():
            rows.append((n, f"{family} {label}", "µs", *spread([1e3 * ms for ms in times])))
            table.append((family, label, n, rows[-1][3]))
    write_rows("invariance.csv", ["batch"], rows)
    kinds = list(dict.fromkeys((family, label) for family, label, *_ in table))
    lines = [(*kind, *(row[3] for row in table if row[:2] == kind)) for kind in kinds]
    print(tabulate(lines, ["", "µs for a batch of", 1, 16, 128, 1024], floatfmt=".1f"))

# %%
# Which functions of this site are invariant?
# -------------------------------------------
#
# Six functions take the same row alone and in batches of twelve sizes:

# sphinx_gallery_name = "site"
# sphinx_gallery_fold = "calls the functions of the lessons"


def functions_of_the_site(K, N):
    """Yield (name, call that returns a function and tensors with a row for each request)."""
    count = 256 if ON_GPU else 4
    rows = torch.randn(count, K, device=DEVICE).to(DTYPE)
    weight = (torch.randn(N, K, device=DEVICE) / K**0.5).to(DTYPE)
    gain = torch.ones(K, device=DEVICE).to(DTYPE)
    qkv = [torch.randn(count, 4, 64, 32, device=DEVICE).to(DTYPE) for _ in range(3)]

    def matmul():
        function, w = lesson("03-matrix-multiplication").matmul, weight.T.contiguous()
        return lambda x: function(x, w), [rows]

    def norm(name, *weights):
        function = getattr(lesson("05-layer-norm"), name)
        return lambda x: function(x, *weights), [rows]

    def int4():
        names = lesson("12-int4-weights")
        packed = names.pack_int4(weight)
        return lambda x: names.int4_mm(x, *packed), [rows]

    yield "softmax (02)", lambda: (lesson("02-fused-softmax").softmax, [rows])
    yield "matmul (03)", matmul
    yield "layer_norm (05)", partial(norm, "layer_norm", gain, gain)
    yield "rms_norm (05)", partial(norm, "rms_norm", gain)
    yield "attention (06)", lambda: (lesson("06-fused-attention").attention, qkv)
    yield "int4_mm (12)", int4


SITE_BATCHES = (1, 2, 3, 5, 8, 16, 17, 32, 64, 100, 128, 256)
if ON_GPU:
    table = []
    for name, made in functions_of_the_site(4096, 1024):
        try:
            with torch.no_grad():
                function, inputs = made()
                sizes, share, _ = differences(function, *inputs, batches=SITE_BATCHES)
            found = (sizes, f"{100 * share:.0f} %", "no" if sizes else "yes")
            VALUES.append((name, "batch sizes", sizes))
        except Exception as error:
            found = ("–", "–", f"{type(error).__name__}: {str(error)[:60]}")
        table.append((name, *found))
    head = ["function", f"of {len(SITE_BATCHES)} batch sizes", "numbers at most", "invariant"]
    print(tabulate(table, head))
    write_table("invariance-values.csv", ["name", "unit", "value"], VALUES)

# %%
# ``int4_mm`` chooses its parts by the number of rows, and differs for :measured:`int4` of 12
# batch sizes. That makes it fast for every batch, and most programs want that. The other functions
# do not split a sum among programs. ``matmul`` chooses its tile by the shape, so its *yes* holds
# for this GPU and this release only: check again after an upgrade.
#
# The rules, for a kernel of your own:
#
# 1. One row, one order: constants for the tile, the parts and the length of a part, not functions
#    of the batch.
# 2. No atomic addition of floating-point numbers. Store parts and add them in a fixed order.
# 3. Leave ``M`` out of the ``key`` of autotuning, and ship what autotuning found.
# 4. A loop over parts in order, rather than ``tl.sum`` over a block of them: the size of the block,
#    and with it the order, may depend on how many they are.
# 5. A test like ``differences`` above, in bits, with the row at several places in the batch.
#
# The same release and the same GPU are part of the promise: another compiler may order a sum
# differently. PyTorch has ``torch.use_deterministic_algorithms`` for the same bits in every *run*;
# it does not promise them for every batch size.
