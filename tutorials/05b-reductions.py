r"""
Reductions at full speed
========================

You sum a matrix along its rows and along its columns while reading it only once, as the backward
pass of layer normalization needs it. On rows of 8192 elements you start at
:measured:`waiting_share` % of the speed of a copy and end at :measured:`best_share` %. You need
:doc:`05-layer-norm`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "further"
# sphinx_gallery_thumbnail_number = 3
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
PROGRAMS, SHARED_BYTES = 4, 2**16  # programs at a time, and shared memory of a multiprocessor
if ON_GPU:
    gpu = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    PROGRAMS, SHARED_BYTES = gpu["multiprocessor_count"], gpu["max_shared_mem"]
NVIDIA = ON_GPU and not (torch.version.hip or triton.knobs.runtime.interpret)
HOPPER = NVIDIA and torch.cuda.get_device_capability(DEVICE) >= (9, 0)
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# Two kinds of sums
# -----------------
#
# The backward pass of layer norm gets a matrix *x* and the gradient *g* of its result, both of *M*
# rows and *N* columns. ``stats`` holds the mean and the reciprocal standard deviation of each row,
# ``weight`` the factor of each column. In PyTorch:


def gradients_in_pytorch(x, g, weight, stats):
    """Return the gradients of x, weight and bias."""
    mean, rstd = stats[:, :, None]  # [M, 1]
    normal = (x - mean) * rstd
    wg = weight * g
    along_rows = wg.mean(1, keepdim=True), (wg * normal).mean(1, keepdim=True)  # [M, 1]
    dx = (wg - along_rows[0] - normal * along_rows[1]) * rstd
    return dx, (g * normal).sum(0), g.sum(0)  # the last two along the columns: [N]


# %%
# ``dx`` needs two means **along each row** before any element of the row can be written. ``dw``
# and ``db`` are sums **along each column**, over all rows. To read *x* and *g* only once, a program
# holds a row until its means are known, and the sums of all columns until it ends:

# sphinx_gallery_fold = "draws the sums of a matrix"
from shared.sums import draw_sums

draw_sums(4, 6)

# %%
# The kernel
# ----------
#
# This is the kernel of :doc:`05-layer-norm`, with two new constants, ``STAGES`` and ``EARLY``,
# which are explained below. Each of *P* programs works on every *P*-th row and stores its sums of
# the columns at the end. A second, small kernel adds up the *P* rows of sums.


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
    for number in tl.range(program, M, programs, num_stages=STAGES):  # <-
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
    mine = sums_ptr + tl.cast(program, tl.int64) * 2 * N + columns
    tl.store(mine, dw, mask=mask)
    tl.store(mine + N, db, mask=mask)


# %%
# **Fetching ahead.** Most kernels hide the latency of a load with many programs: while one waits,
# the multiprocessor runs another. Here the sums fill the registers, and often only one program
# fits. So it has to load the next rows while it works on this one. With ``num_stages=3`` the loads
# become asynchronous copies into shared memory, which run up to two iterations ahead of the loop:

# sphinx_gallery_fold = "draws the loop that waits and the loop that fetches ahead"
from shared.sums import draw_timeline

draw_timeline()

# %%
# Rows fetched ahead take shared memory. Where three stages have no room in it, there are fewer.
#
# .. predict:: How much faster is the loop that fetches ahead, for rows of 8192 elements?
#    :number: fetching
#    :unit: times
#
#    The loop that waits reaches :measured:`waiting` GB/s, the one that fetches ahead
#    :measured:`fetched` GB/s, and a copy :measured:`copied` GB/s. At 10,240 elements,
#    fetching ahead has :measured:`fetching_long` times the speed of waiting. Rows of that length are
#    the subject of the sections below.
#
# **Starting the second kernel early.** Normally, the second kernel starts when the first one has
# ended. With ``launch_pdl=True`` (*programmatic dependent launch*, on NVIDIA GPUs from Hopper on)
# it starts when all programs of the first have called ``gdc_launch_dependents``, and prepares
# itself while they store their sums. Its ``gdc_wait`` returns when all stores are visible. With
# 4096 rows of 1024 elements, both kernels take :measured:`late` µs without and :measured:`early` µs
# with it.
#
# **Try it** *(easy, 20 minutes)*. Write ``column_sums(x)``, which adds up the rows of a matrix in
# two kernels and gives the same bits in every call. The first of the *Exercises* checks it.

# sphinx_gallery_fold = "adds up the partial sums, and launches both kernels"
from shared.norm_kernels import add_up

COMPILED = {}  # what was compiled, by the constants


def launch(kernel, constants, x, g, weight, stats, programs=PROGRAMS, share=1, early=HOPPER):
    """Return the gradients of x, weight and bias; *share* programs work on a row."""
    M, N = x.shape
    programs = triton.cdiv(M, triton.cdiv(M, max(1, programs // share)))  # none has a row less
    dx = torch.empty_like(x)
    sums = torch.empty((programs, 2, N), dtype=torch.float32, device=x.device)
    COMPILED[kernel, *constants.values()] = kernel[(programs * share,)](
        x, g, weight, stats, dx, sums, M, N, **constants, EARLY=early
    )
    return dx, *add_up(sums, weight.dtype, PROGRAMS, early)


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
# What registers hold
# -------------------
#
# An NVIDIA multiprocessor has 65,536 registers of 32 bits
# (:doc:`/programming-guide/chapter-1/gpu`). ``whole_kernel`` holds five numbers in fp32 for each
# element of a row: two sums, the weight, *x* and *g*. Numbers that do not fit are **spilled**:
# written to memory and read again in each iteration. Two things are wasted:
#
# * **Padding.** A block has a power of two elements, so a row of 8320 takes 16,384 places. But a
#   row can have several blocks: a head of 8192 and a tail of 128 or, as here, **pieces** of equal
#   length. Then only the last piece has padding.
# * **Halves.** In fp16 two elements fit into one register, but a block that is converted to fp32 as
#   a whole takes a register for each. Pieces stay in fp16, each converted where it is used.
#
# An element then takes 3.5 registers, not 5 (the last two bars come later):

# sphinx_gallery_fold = "draws the registers of an element"
from shared.sums import draw_registers

draw_registers()

# %%
# Triton has no arrays of blocks, but it has tuples: ``xs + (x,)`` appends a block. An element of a
# tuple cannot be replaced, so each iteration builds new tuples of sums. An index must be a
# constant, so ``tl.static_range`` unrolls the loops over pieces.

# sphinx_gallery_difference = "whole_kernel"


@triton.jit
def pieces_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, M, N, PIECE: tl.constexpr,
    PIECES: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every P-th row, and partial sums of dw and db."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, PIECE)  # [PIECE], PIECE * PIECES >= N
    zeros = tl.zeros([PIECE], tl.float32)
    ws, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = i * PIECE + columns
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
            xs, gs = xs + (x,), gs + (g,)  # <-
            wg = ws[i].to(tl.float32) * g.to(tl.float32)
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
            dx = (ws[i].to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            tl.store(dx_ptr + row * N + place, dx, mask=place < N)
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(PIECES):
        place = i * PIECE + columns
        mine = sums_ptr + tl.cast(program, tl.int64) * 2 * N + place
        tl.store(mine, dw[i], mask=place < N)
        tl.store(mine + N, db[i], mask=place < N)


# %%
# Pieces have 2048 elements: in eight warps, a thread loads 16 bytes at once.

# sphinx_gallery_fold = "launches it, with as many stages as fit"


def pieces(x, g, weight, stats):
    """Return the gradients, computed by programs that hold a row in pieces."""
    count = triton.cdiv(x.shape[1], 2048)
    stages = stages_that_fit(3, 2048 * count * x.element_size())
    constants = {"PIECE": 2048, "PIECES": count, "STAGES": stages, "num_warps": 8}
    return launch(pieces_kernel, constants, x, g, weight, stats)


# %%
# Rows of 16,384 elements
# -----------------------
#
# Here the sums alone take half of the registers, and *x*, *g* and the weight in fp16 most of the
# rest. Little is left for the arithmetic. There are two ways out.
#
# **Load the weight again** in each iteration, from the cache. This saves half a register for each
# element. The compiler would merge the two loads of an iteration and keep the result, so the second
# one has another ``eviction_policy``, a hint for the cache.
#
# **Two programs share a row.** Each reads the whole row for the two means, but keeps *x*, *g* and
# the sums of only half of the columns. Both are at the same row at about the same time, so the
# second one finds it in the L2 cache. The price: the arithmetic for the means is done twice.

# sphinx_gallery_fold = "is the kernel of both ways, with its launches"
# sphinx_gallery_difference = "pieces_kernel"


@triton.jit
def long_row_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, M, N, PIECE: tl.constexpr,
    PIECES: tl.constexpr, OWN: tl.constexpr, RELOAD: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of OWN of the PIECES of every P-th row, and their partial sums."""
    SHARE: tl.constexpr = 1 if OWN == PIECES else 2  # programs that share a row
    program, programs = tl.program_id(0) // SHARE, tl.num_programs(0) // SHARE
    half = tl.program_id(0) % SHARE
    first = half * (PIECES - OWN)  # of an odd number, both have the piece in the middle
    least = half * OWN * PIECE  # but only the first half writes it
    columns = tl.arange(0, PIECE)
    zeros = tl.zeros([PIECE], tl.float32)
    ws, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = (first + i) % PIECES * PIECE + columns  # its own come first
        if not RELOAD:
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
            w = tl.load(w_ptr + place, mask=place < N, other=0.0) if RELOAD else ws[i]
            wg = w.to(tl.float32) * g.to(tl.float32)
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
            if RELOAD:  # the hint is another one, or both loads would become one
                w = tl.load(w_ptr + place, mask=place < N, other=0.0, eviction_policy="evict_last")
            else:
                w = ws[i]
            dx = (w.to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            tl.store(dx_ptr + row * N + place, dx, mask=(place >= least) & (place < N))
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(OWN):
        place = (first + i) * PIECE + columns
        mask = (place >= least) & (place < N)
        mine = sums_ptr + tl.cast(program, tl.int64) * 2 * N + place
        tl.store(mine, dw[i], mask=mask)
        tl.store(mine + N, db[i], mask=mask)


def reloaded(x, *others):
    """Return the gradients, computed by programs that load the weight again."""
    count = triton.cdiv(x.shape[1], 2048)
    stages = stages_that_fit(3, 2 * 2048 * count * x.element_size())  # the weight is fetched, too
    constants = {"PIECE": 2048, "PIECES": count, "OWN": count, "RELOAD": True, "STAGES": stages}
    return launch(long_row_kernel, constants | {"num_warps": 8}, x, *others)


def shared(x, *others):
    """Return the gradients, computed by pairs of programs that share a row."""
    count = triton.cdiv(x.shape[1], 2048)
    stages, half = stages_that_fit(4, 2048 * count * x.element_size()), triton.cdiv(count, 2)
    constants = {"PIECE": 2048, "PIECES": count, "OWN": half, "RELOAD": False, "STAGES": stages}
    share = 1 if half == count else 2  # of one piece there is no half
    return launch(long_row_kernel, constants | {"num_warps": 8}, x, *others, share=share)


# %%
# The five ways (one block that waits, one fetched ahead, pieces, pieces that load the weight again,
# and a shared row) must agree with float64 and give the same bits in every call:

# sphinx_gallery_fold = "compares all ways with float64"
from shared.norms import assert_near

torch.manual_seed(0)
WAYS = {"waiting": partial(whole, stages=1), "fetched": whole, "pieces": pieces,
        "reloaded": reloaded, "shared": shared}  # fmt: skip


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
    assert_near(found, torch.autograd.grad(y, inputs, g.double()))


x, g, weight, stats = inputs_of(7, 781, torch.float32)
check(gradients_in_pytorch(x, g, weight, stats), x, g, weight)
shapes = [(1823, 12301), (4096, 16384)] if ON_GPU else [(7, 781), (9, 2049), (5, 4097)]
for M, N in shapes:
    x, g, weight, stats = inputs_of(M, N, torch.float16)
    for name, way in WAYS.items():
        found = way(x, g, weight, stats)
        check(found, x, g, weight)
        assert all(map(torch.equal, found, way(x, g, weight, stats))), name
print(f"{len(WAYS)} ways agree with float64 on {len(shapes)} shapes")

# %%
# The benchmark has 4096 rows in fp16; a copy of the bytes of *x*, *g* and ``dx`` is the ceiling:

# sphinx_gallery_fold = "times the ways, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "pieces_kernel: 4096 × 16,384, fp16; long_row_kernel: 4096 × 16,384, fp16, two programs a row; whole_kernel: 4096 × 16,384, fp16"  # noqa: E501
from shared.bench import draw_rates, rates, write_rows, write_table
from tabulate import tabulate

VALUES = []  # (name, unit, value) of what the page says

if ON_GPU:
    inputs = inputs_of(4096, 1024, torch.float16)
    constants = {"BLOCK": 1024, "STAGES": 3, "num_warps": 4}
    two = partial(launch, whole_kernel, constants, *inputs, 2 * PROGRAMS)
    VALUES += [
        row[:3] for row in rates((), {"late": partial(two, early=False), "early": two}, "µs")
    ]
    rows = []
    for N in (2048, 4096, 8192, 10240, 12288, 14336, 16384):
        inputs = inputs_of(4096, N, torch.float16)
        source = torch.empty(3 * 4096 * N // 2, device=DEVICE, dtype=torch.float16)
        calls = {name: partial(way, *inputs) for name, way in WAYS.items()}
        calls["copy"] = partial(torch.empty_like(source).copy_, source)
        rows += rates((4096, N), calls, "GB/s", 6 * 4096 * N, rounds=20)
    write_rows("reductions.csv", ["M", "N"], rows)
    names = {"waiting": "waiting", "fetched": "fetched ahead", "pieces": "pieces"}
    names |= {"reloaded": "weight again", "shared": "shared row"}
    names = {f"triton, {name}": label for name, label in names.items()} | {"copy": "copy (ceiling)"}
    shown = [(M, N, name if name == "copy" else f"triton, {name}", *rest)
             for M, N, name, *rest in rows]  # fmt: skip
    title = "Gradients of layer norm, 4096 rows, fp16"
    settings = {"share_of": "copy", "xticks": (4096, 8192, 12288, 16384)}
    draw_rates(shown, names, title, "elements in a row", column=1, **settings)
    table, kernels = [], {"fetched": "whole", "pieces": "pieces", "shared": "long_row"}
    for name, way in WAYS.items():  # with the last inputs, of 16,384 columns
        COMPILED.clear()
        way(*inputs)
        (compiled,) = COMPILED.values()
        table.append((name, compiled.n_regs, compiled.n_spills))
        of = f"{kernels[name]}_kernel" if name in kernels else name
        VALUES.append((f"registers {of}", "registers", compiled.n_regs))
        VALUES.append((f"spills {of}", "registers", compiled.n_spills))
    print(tabulate(table, ["16,384 elements", "registers of a thread", "spilled"], intfmt=","))
else:
    print("Without a GPU there is nothing to time.")

# %%
# At 16,384 columns the registers decide. A row in pieces reaches :measured:`long_pieces` GB/s,
# loading the weight again :measured:`long_reloaded` GB/s, and two programs for a row
# :measured:`long_shared` GB/s; the table shows how many registers a thread spills. So pieces are
# enough as long as the numbers of a row fit into registers. Beyond that, up to 16,384 elements,
# rows need one of the two ways above.
#
# Rows that do not fit
# --------------------
#
# Rows of more than 16,384 elements are read block by block, and twice. **Forward**, the first loop
# computes mean and variance, and the second one writes the output: three transfers instead of two.
#
# The variance needs the mean, which is known only at the end of the loop. So the loop takes the
# mean :math:`\mu_p` of each block of *p* elements and the sum :math:`S_p` of their squared
# deviations from it, and combines them with those of the *n* elements before, :math:`\mu` and
# :math:`S`. With :math:`\delta = \mu_p - \mu`:
#
# .. math::
#
#     \mu' = \mu + \delta \, \frac{p}{n + p}, \qquad
#     S' = S + S_p + \delta^2 \, \frac{n p}{n + p}
#
# Squares are only added, so nothing cancels. Take the blocks 1, 3 and 8, 12: their means are 2 and
# 10, and their squared deviations add up to 2 and 8. Together the mean is 2 + 8·2/4 = 6, and the
# squared deviations add up to 2 + 8 + 64·4/4 = 74.


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
# **Backward**, a first kernel stores the two means of each row. Then the elements of a row are
# independent, and ``columns_kernel`` cuts the matrix into blocks of columns. A program works down
# the rows of its block, and its sums fit into registers however long the rows are. These are five
# transfers instead of three.

# sphinx_gallery_fold = "computes the two means of each row"
from shared.norm_kernels import means_kernel

# %%
# Two functions launch the kernels:

# sphinx_gallery_fold = "computes a block of columns of the gradient of x, and its sums"
# sphinx_gallery_show = "long_layer_norm, long_layer_norm_backward"


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
    mine = sums_ptr + tl.cast(program, tl.int64) * 2 * N + columns
    tl.store(mine, dw, mask=mask)
    tl.store(mine + N, db, mask=mask)


def long_layer_norm(x, weight, bias, eps=1e-5):
    """Return the layer norm of the rows of a contiguous matrix, and their statistics ``[2, M]``."""
    (M, N), y = x.shape, torch.empty_like(x)
    stats = torch.empty((2, M), dtype=torch.float32, device=x.device)
    long_forward_kernel[(M,)](x, weight, bias, y, stats, M, N, eps, BLOCK=4096, num_warps=8)
    return y, stats


def long_layer_norm_backward(x, g, weight, stats):
    """Return the gradients of x, weight and bias, for the gradient *g* of the result."""
    (M, N), dx, means = x.shape, torch.empty_like(x), torch.empty_like(stats)
    means_kernel[(M,)](x, g, weight, stats, means, M, N, BLOCK=4096, num_warps=8)
    programs = min(M, PROGRAMS)
    sums = torch.empty((programs, 2, N), dtype=torch.float32, device=x.device)
    grid = triton.cdiv(N, 1024), programs
    columns_kernel[grid](x, g, weight, stats, means, dx, sums, M, N, BLOCK=1024, num_warps=4)
    return dx, *add_up(sums, weight.dtype, PROGRAMS, early=False)


# %%
# Both functions must agree with float64. Rows of 65,536 elements are timed:

# sphinx_gallery_fold = "compares both functions with float64, and times them"

for M, N in [(3, 9001)] + [(257, 2**18)] * ON_GPU:
    x, g, weight, _ = inputs_of(M, N, torch.float32)
    x += 100  # one pass over the sums of squares would be wrong here
    y, stats = long_layer_norm(x, weight, weight)
    exact = functional.layer_norm(x.double(), (N,), weight.double(), weight.double())
    torch.testing.assert_close(y.double(), exact, atol=2e-4, rtol=1e-4)
    x -= 100
    _, stats = long_layer_norm(x, weight, weight)
    check(long_layer_norm_backward(x, g, weight, stats), x, g, weight)
print("The kernels for long rows agree with float64")

if ON_GPU:
    x, g, weight, _ = inputs_of(2048, 2**16, torch.float16)
    leaves = [t.clone().requires_grad_() for t in (x, weight, weight)]
    y = functional.layer_norm(leaves[0], weight.shape, *leaves[1:])
    _, stats = long_layer_norm(x, weight, weight)
    calls = {
        "long forward": partial(long_layer_norm, x, weight, weight),
        "torch forward": partial(functional.layer_norm, x, weight.shape, weight, weight),
        "long backward": partial(long_layer_norm_backward, x, g, weight, stats),
        "torch backward": partial(torch.autograd.grad, y, leaves, g, retain_graph=True),
    }
    VALUES += [row[:3] for row in rates((), calls, "µs")]
    write_table("05b-reductions-values.csv", ["name", "unit", "value"], VALUES)

# %%
# Forward has :measured:`long_forward` times the speed of PyTorch's layer norm, and backward
# :measured:`long_backward` times.
#
# In a program
# ------------
#
# The functions that others call check their arguments first. They refuse tensors that require a
# gradient, because the result would have none: call the backward function by hand, or in a
# ``torch.autograd.Function`` as in :doc:`05-layer-norm`. That lesson's ``layer_norm`` uses the
# kernels for rows of up to 16,384 elements, and keeps its launches
# (:doc:`/programming-guide/chapter-6/calls`).

# sphinx_gallery_fold = "the functions with their checks"
from shared.compiled import between_graphs
from shared.launch import on_device_of
from shared.norms import check_long_rows, check_norm

LAUNCHED_FORWARD, LAUNCHED_BACKWARD = long_layer_norm, long_layer_norm_backward


@between_graphs
def long_layer_norm(x, weight, bias, eps=1e-5):
    """Return the layer norm of the rows of a contiguous matrix, and their statistics ``[2, M]``.

    *x* is float16, float32 or, on a GPU, bfloat16; *weight* and *bias* are contiguous ``[N]``;
    *eps* is finite and not negative. Raises TypeError or ValueError, naming the argument that is
    not so or requires a gradient.
    """
    check_long_rows(DEVICE, x, weight=weight, bias=bias)
    check_norm(eps, DEVICE, x, weight, bias)
    with on_device_of(x):
        return LAUNCHED_FORWARD(*(t.resolve_neg() for t in (x, weight, bias)), eps)


@between_graphs
def long_layer_norm_backward(x, g, weight, stats):
    """Return the gradients of x, weight and bias, for the gradient *g* of the result.

    *g* is like *x*, and *stats* is what ``long_layer_norm`` returned. Raises errors as it does.
    """
    check_long_rows(DEVICE, x, g=g, weight=weight, stats=stats)
    with on_device_of(x):
        return LAUNCHED_BACKWARD(*(t.resolve_neg() for t in (x, g, weight, stats)))


# %%
# Exercises
# ---------
#
# 1. **Sums of columns** *(easy, 20 minutes)*. The exercise above. How many programs are needed to
#    reach the speed of a copy? :doc:`Solution <solutions/05b-column-sums>`.
# 2. **The variance of long rows** *(medium, 25 minutes)*. Write ``row_variance(x)``, which reads
#    rows of any length once and is right for a mean of 1000 deviations. :doc:`Solution
#    <solutions/05b-row-variance>`.
#
# References
# ----------
#
# * Tony F. Chan, Gene H. Golub and Randall J. LeVeque: *Algorithms for computing the sample
#   variance: analysis and recommendations*, The American Statistician 37(3), 1983,
#   https://doi.org/10.1080/00031305.1983.10483115: one pass, two passes, and combining pieces.
# * NVIDIA: *CUDA C++ Programming Guide*, chapter *Programmatic Dependent Launch and
#   Synchronization*
