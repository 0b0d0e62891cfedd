r"""
Reductions at full speed
========================

The backward pass of layer normalization needs sums along the rows and sums over the rows. You start
with a kernel that reaches :measured:`waiting_share` % of the speed of a copy, on rows of 8192
elements, and bring it to :measured:`best_share` %: you fetch rows ahead, count registers, and let
two programs share a row. Then you normalize rows that fit into no register file. You need
:doc:`05-layer-norm`, which explains the sums.
"""

# %%
# The kernel
# ----------
#
# This is the kernel of :doc:`05-layer-norm` that computes the gradients of *x*, weight and bias.
# Each of *P* programs works on every *P*-th row, keeps its sums of the gradients of weight and bias
# in registers, and stores them at the end. A second kernel adds up the *P* rows of sums. New are
# ``STAGES`` and ``EARLY``, which the next sections explain.

# sphinx_gallery_level = "beyond"
import os
from functools import partial

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def whole_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, M, N, BLOCK: tl.constexpr,
    STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every P-th row, and partial sums of dw and db."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= N
    mask = columns < N
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    dw, db = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for number in tl.range(program, M, programs, num_stages=STAGES):
        row = tl.cast(number, tl.int64)
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        mean, rstd = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
        normal = (x - mean) * rstd
        wg = w * g
        dx = (wg - tl.sum(wg) / N - normal * (tl.sum(wg * normal) / N)) * rstd
        tl.store(dx_ptr + row * N + columns, dx, mask=mask)
        dw += g * normal
        db += g
    if EARLY:
        gdc_launch_dependents()
    mine = sums_ptr + tl.cast(program, tl.int64) * N + columns
    tl.store(mine, dw, mask=mask)
    tl.store(mine + tl.cast(programs, tl.int64) * N, db, mask=mask)


# %%
# The second kernel has little to do, so it should finish quickly. Its tiles are narrow and high,
# and many programs share the columns.

# sphinx_gallery_fold = "adds up the partial sums, and launches both kernels"
# sphinx_gallery_show = "sums_kernel"


@triton.jit
def sums_kernel(
    sums_ptr, dw_ptr, db_ptr, P, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    """Add up the P rows of partial sums, for COLUMNS columns."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]  # [1, COLUMNS]
    dw, db = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    if EARLY:
        gdc_wait()
    for start in range(0, P, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        mask = (rows < P) & (columns < N)
        dw += tl.load(sums_ptr + rows * N + columns, mask=mask, other=0.0)
        db += tl.load(sums_ptr + (P + rows) * N + columns, mask=mask, other=0.0)
    tl.store(dw_ptr + columns, tl.sum(dw, axis=0, keep_dims=True), mask=columns < N)
    tl.store(db_ptr + columns, tl.sum(db, axis=0, keep_dims=True), mask=columns < N)


PROGRAMS, SHARED_BYTES = 4, 2**16  # programs at a time, and shared memory of a multiprocessor
if ON_GPU:
    gpu = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    PROGRAMS, SHARED_BYTES = gpu["multiprocessor_count"], gpu["max_shared_mem"]
HOPPER = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) >= (9, 0)


def add_up(sums, dtype, early):
    """Return the sums over the programs, *sums* being ``[2, P, N]``."""
    P, N = sums.shape[1:]
    dw, db = torch.empty((2, N), dtype=dtype, device=sums.device)
    wide = min(1024, max(16, triton.next_power_of_2(triton.cdiv(N, 8 * PROGRAMS))))
    options = {"ROWS": 2048 // wide, "COLUMNS": wide, "EARLY": early, "num_warps": 8}
    options |= {"launch_pdl": True} if early else {}
    sums_kernel[(triton.cdiv(N, wide),)](sums, dw, db, P, N, **options)
    return dw, db


COMPILED = {}  # what was compiled, by the constants


def launch(kernel, constants, x, g, weight, stats, programs=PROGRAMS, share=1, early=HOPPER):
    """Return the gradients of x, weight and bias; *share* programs work on a row."""
    M, N = x.shape
    programs = triton.cdiv(M, triton.cdiv(M, max(1, programs // share)))  # none has a row less
    dx = torch.empty_like(x)
    sums = torch.empty((2, programs, N), dtype=torch.float32, device=x.device)
    COMPILED[kernel, *constants.values()] = kernel[(programs * share,)](
        x, g, weight, stats, dx, sums, M, N, **constants, EARLY=early
    )
    return dx, *add_up(sums, weight.dtype, early)


# %%
# Fetching ahead
# --------------
#
# A kernel with many programs hides the time that a load takes: while one program waits, the
# multiprocessor runs another. Here the sums fill the registers, and often only one program fits. It
# should ask for the next rows while it works on this one.
#
# ``tl.range(…, num_stages=3)`` tells the compiler to do that. The loads become asynchronous copies
# into shared memory. They need no registers, and run up to two iterations ahead of the loop. Each
# stage needs shared memory for one row of *x* and one of *g*, so long rows have fewer stages.


def stages_that_fit(stages, bytes_of_a_row):
    """Return *stages*, or as many as shared memory has room for."""
    return max(1, min(stages, 1 + (SHARED_BYTES - 2048) // (2 * bytes_of_a_row)))


def whole(x, *others, stages=3):
    """Return the gradients, computed by programs that hold a row as one block."""
    block = triton.next_power_of_2(x.shape[1])
    stages = stages_that_fit(stages, block * x.element_size())
    constants = {"BLOCK": block, "STAGES": stages, "num_warps": 16 if block > 4096 else 8}
    return launch(whole_kernel, constants, x, *others)


# %%
# At 8192 columns, the loop that waits reaches :measured:`waiting` GB/s, and the one that fetches
# ahead :measured:`fetched` GB/s. A copy reaches :measured:`copied` GB/s.
#
# What registers hold
# -------------------
#
# An NVIDIA multiprocessor has 65536 registers of 32 bits. ``whole_kernel`` holds five numbers in
# fp32 for each element of a row: two sums, the weight, *x* and *g*. At 8192 elements these are more
# than half of the registers, and at 16384 they are too many. Numbers that do not fit are
# **spilled**: written to memory and read again in each iteration.
#
# In fp16, two elements fit into one register. A block that is converted as a whole wastes this. So
# the next kernel cuts the row into pieces, keeps them in fp16, and converts each piece where it is
# used. Then an element takes three and a half registers: two sums, and half a register for each of
# *x*, *g* and the weight. ``RELOAD`` saves another half: the weight is loaded again in each
# iteration, from the cache. The second load has a different hint from the first, because the
# compiler would merge two equal loads and keep the result in registers.

# sphinx_gallery_difference = "whole_kernel"


@triton.jit
def pieces_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, M, N, PIECE: tl.constexpr,
    PIECES: tl.constexpr, RELOAD: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every P-th row, and partial sums of dw and db."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, PIECE)  # [PIECE], PIECE * PIECES >= N
    zeros = tl.zeros([PIECE], tl.float32)
    ws, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = i * PIECE + columns
        if not RELOAD:
            ws = ws + (tl.load(w_ptr + place, mask=place < N, other=0.0),)
        dw, db = dw + (zeros,), db + (zeros,)
    for number in tl.range(program, M, programs, num_stages=STAGES):
        row = tl.cast(number, tl.int64)
        mean, rstd = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
        xs, gs = (), ()
        sum_wg, sum_wgx = zeros, zeros
        for i in tl.static_range(PIECES):
            place = i * PIECE + columns
            x = tl.load(x_ptr + row * N + place, mask=place < N, other=0.0)
            g = tl.load(g_ptr + row * N + place, mask=place < N, other=0.0)
            w = tl.load(w_ptr + place, mask=place < N, other=0.0) if RELOAD else ws[i]
            xs, gs = xs + (x,), gs + (g,)
            wg = w.to(tl.float32) * g.to(tl.float32)
            sum_wg += wg
            sum_wgx += wg * (x.to(tl.float32) - mean)
        mean_wg = tl.sum(sum_wg) / N
        mean_wgx = tl.sum(sum_wgx) / N * rstd
        new_dw, new_db = (), ()
        for i in tl.static_range(PIECES):
            place = i * PIECE + columns
            g = gs[i].to(tl.float32)
            normal = (xs[i].to(tl.float32) - mean) * rstd
            new_dw, new_db = new_dw + (dw[i] + g * normal,), new_db + (db[i] + g,)
            if RELOAD:
                w = tl.load(w_ptr + place, mask=place < N, other=0.0, eviction_policy="evict_last")
            else:
                w = ws[i]
            dx = (w.to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            tl.store(dx_ptr + row * N + place, dx, mask=place < N)
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(PIECES):
        place = i * PIECE + columns
        mine = sums_ptr + tl.cast(program, tl.int64) * N + place
        tl.store(mine, dw[i], mask=place < N)
        tl.store(mine + tl.cast(programs, tl.int64) * N, db[i], mask=place < N)


# %%
# A kernel cannot assign to an element of a tuple, so each iteration builds the tuples of sums anew.
# Pieces of 2048 elements suit eight warps: each thread holds eight elements of a piece, and in fp16
# loads them with one instruction of 16 bytes.


def pieces(x, *others, reload=False):
    """Return the gradients, computed by programs that hold a row in pieces."""
    count = triton.cdiv(x.shape[1], 2048)
    fetched = 2048 * count * x.element_size() * (2 if reload else 1)  # the weights are, too
    stages = stages_that_fit(3, fetched)
    constants = {"PIECE": 2048, "PIECES": count, "RELOAD": reload, "STAGES": stages}
    return launch(pieces_kernel, constants | {"num_warps": 8}, x, *others)


# %%
# Two programs share a row
# ------------------------
#
# At 16384 elements, the two sums take half of the registers, and *x* and *g* in fp16 a quarter. The
# rest is too little for the arithmetic. So let two programs share the columns. Each one reads the
# whole row, for the two means, but keeps only its half: the sums, *x* and *g* of these columns.
# Both work on the same row at about the same time, so the second one finds it in the L2 cache. The
# price is that the arithmetic of the first loop is done twice.

# sphinx_gallery_fold = "is the kernel of a half, whose own pieces come first"
# sphinx_gallery_difference = "pieces_kernel"


@triton.jit
def shared_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, M, N, PIECE: tl.constexpr,
    PIECES: tl.constexpr, OWN: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute a half of the gradients of every P-th row, OWN of PIECES, and its partial sums."""
    program, programs = tl.program_id(0) // 2, tl.num_programs(0) // 2
    half = tl.program_id(0) % 2
    first = half * (PIECES - OWN)  # of an odd number, both have the piece in the middle
    least = half * OWN * PIECE  # but only the first half writes it
    columns = tl.arange(0, PIECE)
    zeros = tl.zeros([PIECE], tl.float32)
    ws, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = (first + i) % PIECES * PIECE + columns  # its own come first
        ws = ws + (tl.load(w_ptr + place, mask=place < N, other=0.0),)
        if i < OWN:
            dw, db = dw + (zeros,), db + (zeros,)
    for number in tl.range(program, M, programs, num_stages=STAGES):
        row = tl.cast(number, tl.int64)
        mean, rstd = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
        xs, gs = (), ()
        sum_wg, sum_wgx = zeros, zeros
        for i in tl.static_range(PIECES):
            place = (first + i) % PIECES * PIECE + columns
            x = tl.load(x_ptr + row * N + place, mask=place < N, other=0.0)
            g = tl.load(g_ptr + row * N + place, mask=place < N, other=0.0)
            if i < OWN:
                xs, gs = xs + (x,), gs + (g,)
            wg = ws[i].to(tl.float32) * g.to(tl.float32)
            sum_wg += wg
            sum_wgx += wg * (x.to(tl.float32) - mean)
        mean_wg = tl.sum(sum_wg) / N
        mean_wgx = tl.sum(sum_wgx) / N * rstd
        new_dw, new_db = (), ()
        for i in tl.static_range(OWN):
            place = (first + i) * PIECE + columns
            g = gs[i].to(tl.float32)
            normal = (xs[i].to(tl.float32) - mean) * rstd
            new_dw, new_db = new_dw + (dw[i] + g * normal,), new_db + (db[i] + g,)
            dx = (ws[i].to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            tl.store(dx_ptr + row * N + place, dx, mask=(place >= least) & (place < N))
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(OWN):
        place = (first + i) * PIECE + columns
        mask = (place >= least) & (place < N)
        mine = sums_ptr + tl.cast(program, tl.int64) * N + place
        tl.store(mine, dw[i], mask=mask)
        tl.store(mine + tl.cast(programs, tl.int64) * N, db[i], mask=mask)


def shared(x, *others):
    """Return the gradients, computed by pairs of programs that share a row."""
    count = triton.cdiv(x.shape[1], 2048)
    stages = stages_that_fit(4, 2048 * count * x.element_size())
    constants = {"PIECE": 2048, "PIECES": count, "OWN": triton.cdiv(count, 2), "STAGES": stages}
    return launch(shared_kernel, constants | {"num_warps": 8}, x, *others, share=2)


# %%
# Checking it
# -----------
#
# All five ways must agree with float64, even for rows that leave a piece nearly empty. Each of them
# must give the same bits in every call.

# sphinx_gallery_fold = "compares all ways with float64"

torch.manual_seed(0)
WAYS = {"waiting": partial(whole, stages=1), "fetched": whole, "pieces": pieces}
WAYS |= {"reloaded": partial(pieces, reload=True), "shared": shared}


def inputs_of(M, N, dtype):
    """Return x, g, the weight, and the mean and the reciprocal deviation of each row."""
    x, g = torch.randn(2, M, N, device=DEVICE, dtype=dtype)
    wide = x.float()
    stats = torch.stack([wide.mean(dim=1), (wide.var(dim=1, correction=0) + 1e-5).rsqrt()])
    return x, g, torch.randn(N, device=DEVICE, dtype=dtype), stats


def check(found, x, g, weight):
    """Compare gradients with those of PyTorch in float64."""
    inputs = [t.double().requires_grad_() for t in (x, weight, torch.zeros_like(weight))]
    y = functional.layer_norm(inputs[0], weight.shape, *inputs[1:])
    for one, right in zip(found, torch.autograd.grad(y, inputs, g.double()), strict=True):
        atol = max(2e-5, 2 * torch.finfo(one.dtype).eps) * max(1, right.abs().max().item())
        torch.testing.assert_close(one.double(), right, rtol=0, atol=atol)


shapes = [(1823, 12301), (4096, 16384)] if ON_GPU else [(7, 781), (9, 2049), (5, 4097)]
for M, N in shapes:
    x, g, weight, stats = inputs_of(M, N, torch.float16)
    for name, way in WAYS.items():
        found = way(x, g, weight, stats)
        check(found, x, g, weight)
        assert all(map(torch.equal, found, way(x, g, weight, stats))), name
print(f"{len(WAYS)} ways agree with float64 on {len(shapes)} shapes")

# %%
# Starting the second kernel early
# --------------------------------
#
# A kernel normally starts when the one before it has ended, and starting takes time. With
# ``launch_pdl=True`` (*programmatic dependent launch*, on NVIDIA GPUs from Hopper on) it is started
# as soon as all programs of the first kernel have called ``gdc_launch_dependents``. It prepares
# itself while they store their sums, and waits at ``gdc_wait`` until all stores are visible. At
# 4096 rows of 1024 elements, both kernels take :measured:`late` µs without and :measured:`early` µs
# with it.
#
# Rows that do not fit
# --------------------
#
# Longer rows are read block by block. **Forward**, the first loop computes mean and variance, and
# the second one writes the output. The row is read twice, so there are three transfers, not two.
#
# The variance needs the mean, which is known only after the first loop. The way out is to take mean
# :math:`\mu_p` and squared deviations :math:`S_p` of each block of *p* elements, and to combine
# them with those of the *n* elements before. With :math:`\delta = \mu_p - \mu`:
#
# .. math::
#
#     \mu' = \mu + \delta \, \frac{p}{n + p}, \qquad
#     S' = S + S_p + \delta^2 \, \frac{n p}{n + p}
#
# This avoids the cancellation of the one-pass formula, because squares are only added.


@triton.jit
def long_forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, stats_ptr, M, N, eps, BLOCK: tl.constexpr
):  # fmt: skip
    """Normalize one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    mean = 0.0
    squares = 0.0
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(N - start, BLOCK)
        block_mean = tl.sum(x) / count
        share = count / (start + count)  # of the elements seen so far
        delta = block_mean - mean
        mean += delta * share
        centered = tl.where(mask, x - block_mean, 0.0)
        squares += tl.sum(centered * centered) + delta * delta * share * start
    rstd = tl.rsqrt(squares / N + eps)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + M + row, rstd)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + row * N + columns, mask=mask).to(tl.float32)
        w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
        b = tl.load(b_ptr + columns, mask=mask).to(tl.float32)
        tl.store(y_ptr + row * N + columns, (x - mean) * rstd * w + b, mask=mask)


# %%
# **Backward**, a first kernel reads the rows and stores the two means of each. After that an
# element needs no other element of its row. So the second kernel cuts the matrix into columns. A
# program has one block of them and works down the rows, and its sums fit into registers however
# long the rows are. These are five transfers, not three.

# sphinx_gallery_fold = "computes the two means of each row, then the gradients column by column"
# sphinx_gallery_show = "columns_kernel"


@triton.jit
def means_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, means_ptr, M, N, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute the means of wg, and of wg times the normalized x, of one row."""
    row = tl.program_id(0).to(tl.int64)
    mean, rstd = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
    sum_wg, sum_wgx = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        wg = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32) * g
        sum_wg += wg
        sum_wgx += wg * (x - mean) * rstd
    tl.store(means_ptr + row, tl.sum(sum_wg) / N)
    tl.store(means_ptr + M + row, tl.sum(sum_wgx) / N)


@triton.jit
def columns_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, means_ptr, dx_ptr, sums_ptr, M, N, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute a block of columns of the gradient of x, and its partial sums."""
    program, programs = tl.program_id(1), tl.num_programs(1)
    columns = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < N
    w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
    dw, db = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for number in range(program, M, programs):
        row = tl.cast(number, tl.int64)
        x = tl.load(x_ptr + row * N + columns, mask=mask).to(tl.float32)
        g = tl.load(g_ptr + row * N + columns, mask=mask).to(tl.float32)
        mean, rstd = tl.load(stats_ptr + row), tl.load(stats_ptr + M + row)
        normal = (x - mean) * rstd
        dw += g * normal
        db += g
        dx = w * g - tl.load(means_ptr + row) - normal * tl.load(means_ptr + M + row)
        tl.store(dx_ptr + row * N + columns, dx * rstd, mask=mask)
    mine = sums_ptr + tl.cast(program, tl.int64) * N + columns
    tl.store(mine, dw, mask=mask)
    tl.store(mine + tl.cast(programs, tl.int64) * N, db, mask=mask)


# %%
# The functions check that the tensors fit, since a kernel does not check its arguments.

# sphinx_gallery_fold = "checks the arguments, and compares both functions with float64"
# sphinx_gallery_show = "long_layer_norm, long_layer_norm_backward"


def check_arguments(x, **others):
    """Raise TypeError or ValueError, naming the argument, if the kernels cannot take it."""
    shapes = {"g": x.shape, "weight": x.shape[-1:], "bias": x.shape[-1:], "stats": (2, len(x))}
    if x.ndim != 2 or not x.numel():
        raise ValueError(f"x must be a matrix with elements, but has shape {tuple(x.shape)}")
    for name, t in {"x": x, **others}.items():
        if not t.dtype.is_floating_point or t.dtype == torch.float64:
            raise TypeError(f"{name} must be float16, bfloat16 or float32, but is {t.dtype}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
        if not t.is_contiguous():
            raise ValueError(f"{name} must be contiguous; pass {name}.contiguous()")
        if name != "x" and t.shape != shapes[name]:
            raise ValueError(
                f"{name} must have shape {tuple(shapes[name])}, but has {tuple(t.shape)}"
            )


def long_layer_norm(x, weight, bias, eps=1e-5):
    """Return the layer norm of the rows of a contiguous matrix, and their statistics ``[2, M]``."""
    check_arguments(x, weight=weight, bias=bias)
    (M, N), y = x.shape, torch.empty_like(x)
    stats = torch.empty((2, M), dtype=torch.float32, device=x.device)
    long_forward_kernel[(M,)](x, weight, bias, y, stats, M, N, eps, BLOCK=4096, num_warps=8)
    return y, stats


def long_layer_norm_backward(x, g, weight, stats):
    """Return the gradients of x, weight and bias, for the gradient *g* of the result."""
    check_arguments(x, g=g, weight=weight, stats=stats)
    (M, N), dx, means = x.shape, torch.empty_like(x), torch.empty_like(stats)
    means_kernel[(M,)](x, g, weight, stats, means, M, N, BLOCK=4096, num_warps=8)
    programs = min(M, PROGRAMS)
    sums = torch.empty((2, programs, N), dtype=torch.float32, device=x.device)
    grid = triton.cdiv(N, 1024), programs
    columns_kernel[grid](x, g, weight, stats, means, dx, sums, M, N, BLOCK=1024, num_warps=4)
    return dx, *add_up(sums, weight.dtype, False)


for M, N in [(3, 9001)] + [(257, 2**18)] * ON_GPU:
    x, g, weight, _ = inputs_of(M, N, torch.float32)
    x += 100  # one pass over the sums of squares would be wrong here
    y, stats = long_layer_norm(x, weight, weight)
    exact = functional.layer_norm(x.double(), (N,), weight.double(), weight.double())
    torch.testing.assert_close(y.double(), exact, atol=2e-4, rtol=1e-4)
    x -= 100
    check(
        long_layer_norm_backward(x, g, weight, long_layer_norm(x, weight, weight)[1]), x, g, weight
    )
print("The kernels for long rows agree with float64")

# %%
# Timing it
# ---------
#
# 4096 rows in fp16, with each way to hold a row. The rates count three transfers: *x*, *g* and the
# gradient of *x*. The copy moves as many bytes.

# sphinx_gallery_fold = "times the ways, draws the rates, and keeps the rows"
import sys  # for shared/
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import rows_of, spread, time_on_gpu, write_rows, write_table


def benchmark(M, sizes):
    """Return rows (M, N, provider, unit, median, p20, p80)."""
    rows = []
    for N in sizes:
        inputs = inputs_of(M, N, torch.float16)
        source = torch.empty(3 * M * N // 2, device=DEVICE, dtype=torch.float16)
        calls = {name: partial(way, *inputs) for name, way in WAYS.items()}
        calls["copy"] = partial(torch.empty_like(source).copy_, source)
        rows += rows_of((M, N), calls, "GB/s", 6 * M * N, rounds=20)
    return rows


def draw(rows):
    """Draw the rate of each way over the length of a row."""
    labels = {"waiting": "one block, waiting", "fetched": "one block, fetched ahead"}
    labels |= {"pieces": "in pieces", "reloaded": "weights loaded again"}
    labels |= {"shared": "two programs share a row", "copy": "copy (ceiling)"}
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    for name, label in labels.items():
        points = [(N, median) for _, N, provider, _, median, *_ in rows if provider == name]
        style = {"color": "#444444", "linestyle": "--"} if name == "copy" else {"marker": "."}
        ax.plot(*zip(*points, strict=True), label=label, **style)
    gpu = torch.get_device_module().get_device_name()
    ax.set(title=f"Gradients of layer norm, 4096 rows in fp16\non {gpu}", ylim=0)
    ax.set(xlabel="elements in a row", ylabel="GB/s, higher is better")
    ax.grid(alpha=0.3)
    ax.legend()
    plt.show()


def registers(M, N):
    """Return (way, registers of a thread, how many of them are spilled) for each way."""
    inputs, found = inputs_of(M, N, torch.float16), []
    for name, way in WAYS.items():
        COMPILED.clear()
        way(*inputs)
        (compiled,) = COMPILED.values()
        found.append((name, compiled.n_regs, compiled.n_spills))
    return found


def microseconds(calls):
    """Return {name: median time on the GPU}."""
    return {name: 1e3 * spread(ms)[0] for name, ms in time_on_gpu(calls).items()}


if ON_GPU:
    rows = benchmark(4096, (2048, 4096, 8192, 10240, 12288, 14336, 16384))
    write_rows("reductions.csv", ["M", "N"], rows)
    draw(rows)
    table = registers(4096, 16384)
    print(tabulate(table, ["16384 elements", "registers of a thread", "spilled"]))
    values = [(f"{name}, registers", "registers", used) for name, used, _ in table]
    values += [(f"{name}, spilled", "registers", spilled) for name, _, spilled in table]
    inputs = inputs_of(4096, 1024, torch.float16)
    constants = {"BLOCK": 1024, "STAGES": 3, "num_warps": 4}
    two = partial(launch, whole_kernel, constants, *inputs, 2 * PROGRAMS)
    times = microseconds({"late": partial(two, early=False), "early": two})
    x, g, weight, _ = inputs_of(2048, 2**16, torch.float16)
    leaves = [t.clone().requires_grad_() for t in (x, weight, weight)]
    y = functional.layer_norm(leaves[0], weight.shape, *leaves[1:])
    times |= microseconds({
        "long forward": partial(long_layer_norm, x, weight, weight),
        "torch forward": partial(functional.layer_norm, x, weight.shape, weight, weight),
        "long backward": partial(
            long_layer_norm_backward, x, g, weight, long_layer_norm(x, weight, weight)[1]
        ),
        "torch backward": partial(torch.autograd.grad, y, leaves, g, retain_graph=True),
    })  # fmt: skip
    values += [(name, "µs", time) for name, time in times.items()]
    write_table("05b-reductions-values.csv", ["name", "unit", "value"], values)
else:
    print("Without a GPU there is nothing to time.")

# %%
# .. steps:: copied
#    :unit: GB/s
#
#    waiting: one block, each row waited for
#    fetched: rows fetched ahead
#    in_pieces: a row in pieces
#
# These are the steps at 8192 columns. At 16384 columns the registers decide. A row in pieces
# reaches :measured:`long_pieces` GB/s, and each thread spills :measured:`spilled` registers.
# Loading the weights again gives :measured:`long_reloaded` GB/s and :measured:`spilled_reloaded`
# spilled registers; two programs for a row, :measured:`long_shared` GB/s and
# :measured:`spilled_shared`.
#
# On rows of 65536 elements, the kernels for long rows are :measured:`long_forward` times as fast as
# PyTorch forward, and :measured:`long_backward` times backward.
#
# Hold the row in pieces as long as the sums fit into registers. For longer rows, load the weights
# again, then share the row. Read the row twice only if all of this is not enough.
#
# References
# ----------
#
# * Tony F. Chan, Gene H. Golub and Randall J. LeVeque: *Algorithms for computing the sample
#   variance: analysis and recommendations*, The American Statistician 37(3), 1983,
#   https://doi.org/10.1080/00031305.1983.10483115: one pass, two passes, and combining pieces.
# * NVIDIA: *CUDA C++ Programming Guide*, chapter *Programmatic Dependent Launch and
#   Synchronization*
