"""
Profiling inside a kernel
=========================

:doc:`profiling` left a kernel that reads every byte once, and yet waits. Here Proton looks inside
it, and the compiled kernel tells what the compiler did. Loading ahead takes it from
:measured:`strips` % to :measured:`ahead` % of a copy's rate.
"""

# %%
# What is left
# ------------
#
# The kernel adds up a strip of 32 columns. It has far fewer programs than the GPU could hold, and
# its warps wait for memory.

# sphinx_gallery_thumbnail_number = 1
import json
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


@triton.jit
def strip_kernel(
    x_ptr, out_ptr, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add up BLOCK_N columns of the *M* x *N* matrix *x*."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, M, BLOCK_M, num_stages=STAGES):
        rows = start + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
        mask = (rows < M) & (columns < N)  # [BLOCK_M, BLOCK_N]
        total += tl.load(x_ptr + rows.to(tl.int64) * N + columns, mask=mask, other=0.0)
    tl.store(out_ptr + columns, tl.sum(total, axis=0), mask=columns < N)


def by_strips(x, out, BLOCK_M=32, STAGES=1):
    """Write the sums of the columns of *x* into *out*; return the compiled kernel."""
    m, n = x.shape
    return strip_kernel[(triton.cdiv(n, 32),)](
        x, out, m, n, BLOCK_M=BLOCK_M, BLOCK_N=32, STAGES=STAGES, num_warps=4
    )


def check(sums, shapes=((1, 1), (70, 45), (1025, 33))):
    """Stop unless ``sums(x, out)`` writes the sums of the columns of *x* into *out*."""
    torch.manual_seed(0)
    for shape in shapes:
        x = torch.randn(shape, device=DEVICE)
        out = torch.full(shape[1:], float("nan"), device=DEVICE)
        sums(x, out)
        atol = 1e-6 * shape[0]  # a few units in the last place of sums of so many numbers near 1
        torch.testing.assert_close(out.double(), x.double().sum(0), rtol=0, atol=atol)


check(by_strips)
print("by_strips agrees with float64")

# %%
# Proton, inside a kernel
# -----------------------
#
# With ``backend="instrumentation"``, Proton compiles clocks into a kernel: ``pl.enter_scope`` and
# ``pl.exit_scope`` read the cycle counter of the multiprocessor and keep it in shared memory, for
# each warp. Without such a session they leave no trace. By default they are for :term:`Gluon` only,
# because Triton's compiler may move instructions across the border of a scope. So ask for it with
# ``enable_semantic``, and keep the scopes coarse. The interpreter does not know them.

try:
    import triton.profiler as proton
    import triton.profiler.language as pl

    pl.enable_semantic("triton")
except ImportError:  # an installation without it
    proton = pl = None


# sphinx_gallery_difference = "strip_kernel"
@triton.jit
def scoped_kernel(
    x_ptr, out_ptr, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add up BLOCK_N columns of the *M* x *N* matrix *x*, and take the time."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, M, BLOCK_M, num_stages=STAGES):
        rows = start + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
        mask = (rows < M) & (columns < N)  # [BLOCK_M, BLOCK_N]
        pl.enter_scope("load")
        tile = tl.load(x_ptr + rows.to(tl.int64) * N + columns, mask=mask, other=0.0)
        pl.exit_scope("load")
        pl.enter_scope("add")
        total += tile
        pl.exit_scope("add")
    tl.store(out_ptr + columns, tl.sum(total, axis=0), mask=columns < N)


# sphinx_gallery_fold = "looks into the kernel, with one stage and with four"
SCRATCH = tempfile.TemporaryDirectory(prefix="profiling-")
M, N = 16384, 4096  # 256 MiB of fp32, several times the L2 cache
MUST = 4 * (M * N + N)


def look_inside(stages):
    """Return the events (scope, first cycle, cycles) of one warp of each program."""
    name = f"{SCRATCH.name}/stages-{stages}"
    one_warp = "default:sampling_strategy=selective:sampling_options=0"
    x.amax()  # so that the rows are not in the cache
    session = proton.start(name, backend="instrumentation", data="trace", mode=one_warp)
    try:
        scoped_kernel[(N // 32,)](
            x, out, 1024, N, BLOCK_M=32, BLOCK_N=32, STAGES=stages, num_warps=4
        )
        torch.accelerator.synchronize()
    finally:
        proton.finalize(session)
    programs = {}
    for event in json.loads(Path(f"{name}.chrome_trace").read_text())["traceEvents"]:
        row = event["name"], 1e3 * event["ts"], 1e3 * event["dur"]
        programs.setdefault(event["pid"], []).append(row)
    return programs


def typical(programs, scope):
    """Return the median of the cycles that a *scope* takes."""
    rows = (row for rows in programs.values() for row in rows)
    return statistics.median(cycles for name, _, cycles in rows if name == scope)


SCOPES = ("load", "add")
inside = {}
if ON_GPU:
    x, out = torch.randn(M, N, device=DEVICE), torch.empty(N, device=DEVICE)
if ON_GPU and proton:
    try:
        inside = {stages: look_inside(stages) for stages in (1, 4)}
    except Exception as error:  # a Proton that cannot look into this kernel
        print(f"{type(error).__name__}: {error}")
    for scope in SCOPES if inside else ():
        print(f"{scope:5} {typical(inside[1], scope):5.0f} cycles")
else:
    print("This needs a GPU, and a Triton with Proton.")

# %%
# The addition takes most of the time, and the load hardly any? A load only *starts*: the warp goes
# on until an instruction needs the data. So time shows up **where a value is first used**. The
# addition, one instruction or a few, is really a wait of the full :term:`latency` of the memory,
# iteration after iteration.
#
# There are three remedies: more bytes in each iteration; the next iterations' loads before the
# wait; and more programs, so that others load meanwhile.
#
# More rows at a time, and the X-ray
# ----------------------------------
#
# A larger ``BLOCK_M`` loads more in each iteration. What a thread holds is in registers, of which
# it can have 255 on NVIDIA GPUs. A launch returns the compiled kernel, which says whether it fits:
# ``n_regs``, ``n_spills``, ``metadata.shared``, and the ``asm`` of all stages. (The X-ray below
# each kernel of this site shows the same.)

# sphinx_gallery_fold = "compiles, times and prints"
# sphinx_gallery_show = "x_ray"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import figure, rates, write_rows, write_table


def x_ray(compiled):
    """Return registers, spills, bytes of shared memory, and how it loads, of a compiled kernel."""
    code = compiled.asm.get("ptx", "")  # AMD's is "amdgcn", with other names
    kinds = {"ld.global": "loads", "cp.async.c": "copies", "wgmma": "wgmma", "mma.sync": "mma"}
    how = [f"{code.count(key)} {name}" for key, name in kinds.items() if key in code]
    shared = f"{compiled.metadata.shared:,}"
    return compiled.n_regs, compiled.n_spills, shared, ", ".join(how)


def compare(cases):
    """Print what was compiled and the rate for each {name: constants}; return the rows."""
    calls = {name: partial(by_strips, x, out, **how) for name, how in cases.items()}
    rows = rates((M, N), calls, "GB/s", MUST, 30)
    table = [(row[2], *x_ray(calls[row[2]]()), f"{row[4]:.0f}") for row in rows]
    head = ["", "registers", "spills", "shared", "instructions", "GB/s"]
    print(tabulate(table, head, colalign=["left"] + ["right"] * 5))
    return rows


rows = []
if ON_GPU:
    rows += compare({f"{b} rows": {"BLOCK_M": b} for b in (32, 128, 256, 512, 1024)})

# %%
# More rows are more bytes in flight, as long as registers last. When they run out, the compiler
# **spills**: the kernel moves registers to memory and back, and from some point on it does so in
# each iteration. Two attributes show it; no tool is needed.
#
# Load ahead
# ----------
#
# Registers are the wrong place for data that is still on its way. With ``num_stages``, copies go
# straight to *shared memory*, several iterations ahead, and a thread waits for the oldest only.
# ``tl.range`` takes it for one loop; for a loop with ``tl.dot`` the launch's ``num_stages`` does.

# sphinx_gallery_fold = "checks, times and prints"
# sphinx_gallery_xray = "strip_kernel: 128 rows at a time, 4 stages, of 16,384 × 4096"
check(partial(by_strips, BLOCK_M=64, STAGES=3))
if ON_GPU:
    cases = {(32, 4), (128, 1), (128, 4)}
    rows += compare(
        {f"{b} rows, {s} stages": {"BLOCK_M": b, "STAGES": s} for b, s in sorted(cases)}
    )

# %%
# The instructions prove it: loads have become asynchronous copies, and shared memory holds the
# tiles in flight. No copies, no pipeline. Proton's view of one warp shows both:


# sphinx_gallery_fold = "draws the iterations of one warp"
def draw_warp(inside, cycles=6000):
    """Draw what one warp does, for each number of stages."""
    fig, ax = figure(height=3.6)
    colors = {"load": "#1b6ca8", "add": "#f2c6b4"}
    for y, programs in enumerate(inside.values()):
        rows = next(iter(programs.values()))
        later = [row for row in rows if row[0] in colors][16:]  # when the pipeline is full
        for scope, hatch in (("load", ""), ("add", "////")):
            bars = [(at - later[0][1], took) for name, at, took in later if name == scope]
            style = {"facecolor": colors[scope], "hatch": hatch, "edgecolor": "#444444"}
            label = None if y else scope  # one entry of the legend
            ax.broken_barh(bars, (y - 0.4, 0.8), linewidth=0.5, label=label, **style)
    names = [f"{stages} stage{'s' * (stages > 1)}" for stages in inside]
    ax.set(xlim=(0, cycles), xlabel="cycles", yticks=range(len(names)), yticklabels=names)
    ax.set_title(f"One warp\non {torch.cuda.get_device_name()}")
    ax.invert_yaxis()
    fig.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()


if inside:
    draw_warp(inside)
SCRATCH.cleanup()

# %%
# Blue is a load, hatched an addition, and a gap is what lies between. Both rows show equally many
# cycles. With one stage, each addition waits for its tile. With more, it finds its tile ready if
# the copies had enough of a lead. The rest of the waiting now shows up in the load, which waits for
# the oldest copy. **Occupancy has not risen**: a few warps that load ahead can have more bytes in
# flight than many that wait.
#
# Programs for every multiprocessor
# ---------------------------------
#
# One cause is left, which this matrix hides. A matrix of the same bytes with fewer columns has
# fewer strips, and where there are fewer programs than multiprocessors, some have nothing to do. So
# give the grid a second axis: program (j, i) adds up the i-th part of the rows, and a second launch
# adds up the parts.


# sphinx_gallery_fold = "has the kernel whole; checks and times it"
# sphinx_gallery_xray = "part_kernel: 65,536 × 1024, 16 parts"
# sphinx_gallery_show = "by_parts"
# sphinx_gallery_difference = "strip_kernel"
@triton.jit
def part_kernel(
    x_ptr, out_ptr, M, N, rows_each,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add up *rows_each* rows, a multiple of BLOCK_M, of BLOCK_N columns of the matrix *x*."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(1) * rows_each
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(first, first + rows_each, BLOCK_M, num_stages=STAGES):
        rows = start + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
        mask = (rows < M) & (columns < N)  # [BLOCK_M, BLOCK_N]
        total += tl.load(x_ptr + rows.to(tl.int64) * N + columns, mask=mask, other=0.0)
    part = tl.program_id(1).to(tl.int64) * N
    tl.store(out_ptr + part + columns, tl.sum(total, axis=0), mask=columns < N)


def by_parts(x, out, parts=16, BLOCK_M=32, STAGES=4):
    """Write the sums of the columns of *x* into *out*, by way of sums of *parts* of the rows."""
    m, n = x.shape
    rows_each = triton.cdiv(triton.cdiv(m, parts), BLOCK_M) * BLOCK_M
    grid = triton.cdiv(n, 32), triton.cdiv(m, rows_each)
    sums = torch.empty((grid[1], n), device=x.device)
    part_kernel[grid](
        x, sums, m, n, rows_each, BLOCK_M=BLOCK_M, BLOCK_N=32, STAGES=STAGES, num_warps=4
    )
    return by_strips(sums, out)


check(by_parts)
check(partial(by_parts, parts=3, BLOCK_M=16))
if ON_GPU:
    rows += rates((M, N), {"copy": x.clone}, "GB/s", 2 * x.nbytes, 30)
    narrow = x.view(4 * M, N // 4)
    calls = {
        "strips": partial(by_strips, narrow, out[: N // 4], BLOCK_M=128, STAGES=4),
        "parts": partial(by_parts, narrow, out[: N // 4]),
        "x.sum(0)": partial(torch.sum, narrow, 0),
    }
    rows += rates((4 * M, N // 4), calls, "GB/s", MUST, 30)
    write_rows("profiling-steps.csv", ["M", "N"], rows)
    for row in rows[-3:]:
        print(f"{row[2]:9} {row[4]:5.0f} GB/s")
    if inside:
        cycles = [(f"{scope} cycles", "cycles", typical(inside[1], scope)) for scope in SCOPES]
        write_table("profiling-inside-values.csv", ["name", "unit", "value"], cycles)

# %%
# Parts are :measured:`parts` times as fast as strips on the narrow matrix. Programs divided by
# multiprocessors would have said so. Where the number of programs is only a little above a multiple
# of what fits, the last :term:`wave` is the problem:
# :doc:`/getting-started/tutorials/03b-full-waves`.
#
# What to remember
# ----------------
#
# * Begin with two divisions: the bytes and operations that must be, by the rates of this GPU.
# * Proton finds the launch, a counter the cause, the X-ray what the compiler could not do.
# * Inside a kernel, time shows up where a value is first used.
# * Occupancy is no goal, and a hit rate no merit. Bytes in flight hide latency.
# * Change one thing, and let the same counter prove it. Then ask again.
#
# References
# ----------
#
# * John D. C. Little: *A proof for the queuing formula L = λ W*, Operations Research 9 (3), 1961,
#   https://doi.org/10.1287/opre.9.3.383: bytes in flight are bandwidth times latency
# * Vasily Volkov: *Understanding latency hiding on GPUs*, dissertation, University of California,
#   Berkeley, 2016: why occupancy is not the goal
