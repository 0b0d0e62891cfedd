"""
Profiling kernels
=================

A kernel is slow, and you know by how much. A profiler says *why*. Three of them look at three
different things: Proton, which comes with Triton, says which launch takes the time, and which part
of a kernel; Nsight Compute reads the GPU's own counters; and the compiled kernel itself says what
the compiler could not do.

This chapter takes one slow kernel and asks each of them. Each answer is a cause, each cause has a
remedy, and each remedy uncovers the next cause, until nothing is left but the memory. You will
learn

* which question to ask first, and which tool answers it;
* to see with Proton where a program spends its time, and to read what it writes;
* to have Nsight Compute count, and which handful of its thousands of counters to look at;
* to look into a kernel while it runs;
* to read from a compiled kernel, or from the X-ray below it, that it spills, or waits.

You should have read :doc:`/programming-guide/chapter-4/measuring`. The order of tools at the end of
this page, `From symptom to cause`_, also serves without the story.

.. ladder::
"""

# %%
# Without a GPU the first cell chooses the interpreter.

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
import csv
import inspect
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.measuring import measure, rates, significant, write_rows
from shared.setup import DEVICE, ON_GPU

import triton
import triton.language as tl

SCRATCH = tempfile.TemporaryDirectory(prefix="profiling-")
print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%
# A slow kernel
# -------------
#
# The sums of the columns of a matrix: the gradient of a bias, or what a normalization over a batch
# begins with. PyTorch says ``x.sum(0)``. The first idea is to do as with the rows of
# :doc:`a softmax </getting-started/tutorials/02-fused-softmax>`, where a program computed a row.
# Here a program computes a column.
#
# (``launch_metadata`` names a function that tells a profiler what a launch *must* do. Without a
# profiler it is never called.)


def counted(grid, kernel, arguments):
    """Return a launch's name, the bytes that it must move and the additions that it must do."""
    m, n = arguments["M"], arguments["N"]
    return {"name": kernel.name, "bytes": 4 * (m * n + n), "flops32": m * n}


@triton.jit(launch_metadata=counted)
def column_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    """Add up one column of the *M* x *N* matrix *x*."""
    column = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, M, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + rows.to(tl.int64) * N + column, mask=rows < M, other=0.0)
    tl.store(out_ptr + column, tl.sum(total, axis=0))


def by_columns(x, out):
    """Write the sums of the columns of *x* into *out*; return the compiled kernel."""
    m, n = x.shape
    return column_kernel[(n,)](x, out, m, n, BLOCK=1024, num_warps=4)


# %%
# Right before fast: against float64, with awkward shapes, and NaN where nobody has written. Sums of
# numbers in another order are other sums; what they may differ by grows with their number.

# sphinx_gallery_fold = "checks a function on awkward shapes"


def check(sums, shapes=((1, 1), (70, 45), (1025, 33))):
    """Stop unless ``sums(x, out)`` writes the sums of the columns of *x* into *out*."""
    torch.manual_seed(0)
    for shape in shapes:
        x = torch.randn(shape, device=DEVICE)
        out = torch.full(shape[1:], float("nan"), device=DEVICE)
        sums(x, out)
        atol = 1e-6 * shape[0]  # a few units in the last place of sums of so many numbers near 1
        torch.testing.assert_close(out.double(), x.double().sum(0), rtol=0, atol=atol)


check(by_columns)
print("by_columns agrees with float64")

# %%
# Where to begin
# --------------
#
# Not with a profiler, but with two divisions. The bytes that *must* move, over the rate of a copy;
# the operations that must be done, over the rate of the arithmetic: the larger of the two times is
# what a perfect kernel takes, and the :term:`roofline` of the
# :doc:`last chapter </programming-guide/chapter-4/measuring>` says which one it is. A third time is
# that of an empty kernel. Now compare with the time that the kernel does take:
#
# ================================= ================= ============================================
# its time is                       it is             the question, and who answers it
# ================================= ================= ============================================
# near that of an empty kernel      bound by launches which launches? *Proton, by launches*
# near what the bytes need          memory-bound      can bytes be saved, by fusion?
# near what the operations need     compute-bound     which instructions do them? *X-ray*
# far above all three               waiting           for what? *counters*, *Proton inside*, *X-ray*
# ================================= ================= ============================================

# sphinx_gallery_fold = "times the kernel, PyTorch, a copy and an empty kernel"


@triton.jit
def empty_kernel():
    """Do nothing."""


M, N = 16384, 4096  # 256 MiB of fp32, several times the L2 cache
MUST = 4 * (M * N + N)
NOTHING = "Nothing to measure without a GPU."
csv_rows = []  # (M, N, provider, unit, median, p20, p80)


def time_all(calls, x):
    """Return {name: GB/s of the bytes that must move}, and keep the rows for the file."""
    m, n = x.shape
    found = {}
    for name, ms in measure(calls, 30).items():
        csv_rows.append((m, n, name, "GB/s", *rates(ms, 4 * (m * n + n))))
        found[name] = csv_rows[-1][4]
    return found


if ON_GPU:
    x, out, y = torch.randn(M, N, device=DEVICE), torch.empty(N, device=DEVICE), None
    y = torch.empty_like(x)
    begin = measure({
        "a copy": partial(y.copy_, x),
        "an empty kernel": partial(empty_kernel[(1,)]),
        "x.sum(0)": partial(torch.sum, x, 0),
        "by_columns": partial(by_columns, x, out),
    }, 30)  # fmt: skip
    begin = {name: 1e3 * ms.median().item() for name, ms in begin.items()}
    COPY = 2 * x.nbytes / begin["a copy"] / 1e3  # GB/s: it reads and writes
    floor = MUST / COPY / 1e3
    table = [("what the bytes need", floor)] + [(k, v) for k, v in begin.items() if k != "a copy"]
    table = [(name, significant(us), f"{us / floor:.2g}") for name, us in table]
    print(f"{MUST / 1e6:.0f} MB must move; a copy moves {significant(COPY)} GB/s")
    print(f"{M * N / MUST:.2f} additions for each byte")
    print(tabulate(table, ["", "µs", "times\nthe floor"], disable_numparse=True,
                   colalign=["left", "right", "right"]))  # fmt: skip
else:
    print(NOTHING)

# %%
# An addition for four bytes lies far to the left of any GPU's ridge, so the memory should set the
# pace. A kernel that takes several times as long as its bytes need moves more than it must, or
# waits.
#
# Proton, by launches
# -------------------
#
# In a program of many launches the first question is which of them takes the time. Proton notes
# each, with the name that the driver knows, PyTorch's too. ``proton.scope`` gives a part of the
# program a name, and whatever numbers you like; ``hook="triton"`` asks ``launch_metadata``, our
# ``counted``, at each launch. Here a matrix is centered, with our slow kernel in it.

try:
    import triton.profiler as proton
    import triton.profiler.language as pl
except ImportError as error:  # an installation without it
    proton = pl = None
    print("Proton is not here:", error)


def center(x):
    """Return *x* less the mean of each column."""
    sums = torch.empty(x.shape[1], device=x.device)
    with proton.scope("mean"):
        by_columns(x, sums)
        sums /= len(x)
    with proton.scope("subtract", {"bytes": 2 * x.nbytes}):
        return x - sums


if ON_GPU and proton:
    center(x)  # compiles
    session = proton.start(f"{SCRATCH.name}/launches", hook="triton")
    for _ in range(10):
        center(x)
    proton.finalize(session)  # writes launches.hatchet
else:
    print(NOTHING)

# %%
# ``proton-viewer`` shows such a file as a tree, if the package ``llnl-hatchet`` is installed. But
# it is plain JSON: each node has a frame with a name, metrics and children. Reading it takes a few
# lines, which can add what we want to know:

# sphinx_gallery_fold = "reads the tree, and prints it"
# sphinx_gallery_show = "read_tree"


def read_tree(node, depth=0):
    """Return rows [depth, name, launches, nanoseconds, bytes] of *node* and all below it."""
    below = [read_tree(child, depth + 1) for child in node["children"]]
    metrics = node["metrics"]
    time = metrics.get("time (ns)", 0) + sum(rows[0][3] for rows in below)
    row = [depth, node["frame"]["name"], metrics.get("count", 0), time, metrics.get("bytes", 0)]
    below.sort(key=lambda rows: -rows[0][3])
    return [row, *(row for rows in below for row in rows)]


if ON_GPU and proton:
    tree, devices = json.loads(Path(SCRATCH.name, "launches.hatchet").read_text())
    tree_rows = read_tree(tree)
    whole = tree_rows[0][3]
    table = [
        ("  " * depth + name[:36], calls or "", f"{ns / whole:.0%}",
         significant(n_bytes / ns) if n_bytes else "")
        for depth, name, calls, ns, n_bytes in tree_rows
    ]  # fmt: skip
    print(tabulate(table, ["", "launches", "time", "GB/s"], disable_numparse=True,
                   preserve_whitespace=True, colalign=["left"] + ["right"] * 3))  # fmt: skip
else:
    print(NOTHING)

# %%
# Percentages say what is worth your time, rates say whether there is something to gain: what is
# fast already, or hardly matters, can stay as it is. (The time of a scope is that of the launches
# in it; the long names are those of PyTorch's kernels, as C++ has them.) If the kernels' times add
# up to much less than the program takes, they are not the problem, but what is between them: the
# :doc:`price of launches </programming-guide/chapter-4/measuring>`.
#
# ``data="trace"`` instead of the tree writes a timeline for ``chrome://tracing`` or Perfetto, and
# ``proton script.py`` on the command line profiles a script that knows nothing of Proton.
#
# Nsight Compute, by counters
# ---------------------------
#
# We know which kernel, and that it is too slow. The GPU knows why, since it counts: bytes, sectors,
# cycles in which something waited. ``ncu`` runs a program, launches its kernels several times over,
# as not everything can be counted at once, and prints the counters. There are thousands. These few
# decide most cases:
#
# =================================================== ============================================
# counter                                             what it says
# =================================================== ============================================
# ``dram__bytes_read.sum``                            bytes from memory. Against those that must?
# ``l1tex__average_t_sectors_per_request_…_ld.ratio`` sectors of 32 bytes that one load of a
#                                                     :term:`warp` touches: 4 if each thread loads
#                                                     4 bytes, 16 if it loads 16; 32 is the worst
# ``lts__t_sectors_srcunit_tex.sum``                  sectors asked of the :term:`L2 cache`
# ``lts__t_sector_hit_rate.pct``                      share of them that it had
# ``launch__waves_per_multiprocessor``                how often the grid fills the GPU
# ``sm__warps_active.avg.pct_of_…_active``            :term:`occupancy` that was achieved
# ``smsp__average_warps_issue_stalled_…``             warps that wait, and for what, each time that
#                                                     an instruction is issued. *Long scoreboard*:
#                                                     for memory
# ``l1tex__t_sectors_…_mem_local_op_ld.sum``          spilled registers read back
# ``dram__throughput.avg.pct_of_peak_…``              how busy the memory was: the verdict
# =================================================== ============================================
#
# So that ``ncu`` has a small program to run, we write the kernels into a file of their own. (In a
# terminal you would call it with your script.)

# sphinx_gallery_fold = "writes a program, runs it under ncu and reads its table"
COUNTERS = {
    "MB from memory": "dram__bytes_read.sum",
    "sectors a request": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "MB asked of the L2 cache": "lts__t_sectors_srcunit_tex.sum",
    "hits in the L2 cache, %": "lts__t_sector_hit_rate.pct",
    "waves": "launch__waves_per_multiprocessor",
    "occupancy achieved, %": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "warps waiting for memory": (
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
    ),
    "MB of spilled registers read": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "memory busy, %": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
}
#: What ncu counts in bytes or in sectors of 32 bytes, and we show in MB.
SCALE = {"MB from memory": 1e-6} | dict.fromkeys(
    ["MB asked of the L2 cache", "MB of spilled registers read"], 32e-6
)


def count(*functions, main):
    """Run ``main``, lines of code, under ncu.

    Args:
        functions: The kernels and functions that they use.
        main: What launches kernels once each; matrices ``x`` and ``out`` are there.

    Returns:
        A list of {what: value} in the order of the launches; empty where ncu cannot count.
    """
    if not shutil.which("ncu"):
        print("ncu is not here. It is in the CUDA toolkit, and counts on NVIDIA's GPUs only.")
        return []
    sources = [inspect.getsource(getattr(f, "fn", f)) for f in functions]
    begin = "import torch\nimport triton\nimport triton.language as tl\n"
    data = f"x = torch.randn({M}, {N}, device='cuda')\nout = torch.empty({N}, device='cuda')\n"
    Path(SCRATCH.name, "target.py").write_text("\n\n".join([begin, *sources, data + main]))
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--clock-control", "none"]  # as the GPU is; without it, ncu holds the clock down
    command += ["--kernel-name", "regex:column_kernel|strip_kernel|part_kernel"]
    command += ["--metrics", ",".join(COUNTERS.values()), sys.executable, "target.py"]
    done = subprocess.run(
        command,
        cwd=SCRATCH.name,
        env=os.environ | {"HOME": SCRATCH.name, "TMPDIR": SCRATCH.name},  # it writes to both
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        print("ncu may not read the counters: only root may, unless the driver was loaded with")
        print("NVreg_RestrictProfilingToAdminUsers=0. A container needs --cap-add=SYS_ADMIN.")
    elif done.returncode or not lines:
        print("ncu failed:", *(done.stdout + done.stderr).splitlines()[-3:], sep="\n")
    launches = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]  # without the row of units
    return [
        {
            what: float(row[counter].replace(",", "")) * SCALE.get(what, 1)
            for what, counter in COUNTERS.items()
        }
        for row in launches
    ]


def show_counters(counted_launches):
    """Print {name: {what: value}} as a table, a column for each launch."""
    table = [
        (what, *(f"{float(f'{launch[what]:.3g}'):g}" for launch in counted_launches.values()))
        for what in COUNTERS
    ]
    print(tabulate(table, ["", *counted_launches], disable_numparse=True,
                   colalign=["left"] + ["right"] * len(counted_launches)))  # fmt: skip


# %%
# What it says of our kernel:

# sphinx_gallery_fold = "counts, if ncu is there"
COUNTING = ON_GPU and DEVICE.type == "cuda" and not torch.version.hip
seen = {}
if COUNTING and (launches := count(counted, column_kernel, by_columns, main="by_columns(x, out)")):
    seen["by_columns"] = launches[0]
    print(f"{MUST / 1e6:.0f} MB must be read")
    show_counters(seen)
elif not ON_GPU:
    print(NOTHING)

# %%
# Read it from the top. The second line is the cause. A warp asks for 32 elements, and the worst
# possible number of sectors comes: one for each thread, because neighbouring *threads* got
# elements of neighbouring *rows*. Of each sector, 32 bytes, one element is used.
#
# What follows from it: the L2 cache is asked for a multiple of the matrix. It has most of that, as
# programs of neighbouring columns want the same sectors, so the memory is spared; but a high **hit
# rate is no good sign** if the hits are bytes that nobody should have asked for twice. And the last
# line says how idle the memory is meanwhile. More warps would not help: the grid fills the GPU, and
# they all wait.
#
# Step 1: neighbours read neighbours
# ----------------------------------
#
# The remedy: a program takes a *strip* of 32 columns, 128 bytes of each row. The compiler sees that
# elements along the last dimension lie next to each other, and gives neighbouring threads
# neighbouring columns. (``STAGES`` is for later; with 1, ``tl.range`` is ``range``.)


# sphinx_gallery_fold = "checks, times and counts it"
# sphinx_gallery_show = "strip_kernel, by_strips"
# sphinx_gallery_difference = "column_kernel"
@triton.jit(launch_metadata=counted)
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


check(by_strips)
strips = (counted, strip_kernel, by_strips)
# The second and the third are for later: a program under ncu takes seconds to start.
THREE = "by_strips(x, out)\nby_strips(x, out, 1024)\nby_strips(x, out, 128, STAGES=4)"
if ON_GPU:
    speed = time_all({
        "by_columns": partial(by_columns, x, out), "by_strips": partial(by_strips, x, out)
    }, x)  # fmt: skip
    for name, rate in speed.items():
        print(f"{name:10} {significant(rate):>5} GB/s, {rate / COPY:.0%} of a copy")
    if COUNTING and (launches := count(*strips, main=THREE)):
        seen["by_strips"] = launches[0]
        show_counters(seen)
else:
    print(NOTHING)

# %%
# Now nothing is read twice, and the hit rate is as low as it should be. Each thread loads 16 bytes
# with one instruction, hence 16 sectors a request, all of them used. But the last line says that
# there is something left.
#
# The cause has changed: look at occupancy and waves. There are far fewer programs than the GPU
# could hold, and their warps wait for memory. Does it need *more warps*? It needs more bytes under
# way; warps are one way to have them. Before we decide, let us see the waiting itself.
#
# Proton, inside a kernel
# -----------------------
#
# With ``backend="instrumentation"``, Proton compiles clocks into a kernel: ``pl.enter_scope`` and
# ``pl.exit_scope`` read the cycle counter of the multiprocessor, and keep it in shared memory, for
# each warp. In a kernel that is compiled without such a session they leave no trace.
#
# (By default they are for :term:`Gluon` only, where the order of instructions is yours. In Triton
# the compiler moves things about, and may move them across the border of a scope. So ask for it,
# with ``enable_semantic``, and keep the scopes coarse. The interpreter does not know them.)

if pl:
    pl.enable_semantic("triton")


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


# %%
# A warp has room for some hundreds of events, so we give it 1024 rows only, and keep one warp of
# each program. The file is again JSON, a list of events with beginning and duration. (They are
# called microseconds there, and are thousands of cycles.)

# sphinx_gallery_fold = "looks into the kernel, with one stage and with four"
# sphinx_gallery_show = "look_inside"


def look_inside(stages):
    """Return the events (scope, first cycle, cycles) of one warp of each program."""
    name = f"{SCRATCH.name}/stages-{stages}"
    one_warp = "default:sampling_strategy=selective:sampling_options=0"
    x.amax()  # so that the rows are not in the cache
    session = proton.start(name, backend="instrumentation", data="trace", mode=one_warp)
    scoped_kernel[(N // 32,)](x, out, 1024, N, BLOCK_M=32, BLOCK_N=32, STAGES=stages, num_warps=4)
    torch.accelerator.synchronize()
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


inside = {}
if ON_GPU and proton:
    inside = {stages: look_inside(stages) for stages in (1, 4)}
    print("Cycles of the first kernel, in the middle of all turns and programs")
    for scope in ("load", "add"):
        print(f"{scope:5} {typical(inside[1], scope):5.0f}")
else:
    print(NOTHING)

# %%
# The addition takes most of the time, and the load none? A load only *starts*: the warp goes on,
# until an instruction needs what was loaded. So time shows up **where a value is first used**, and
# the addition, one instruction or a few, is really a wait of the full :term:`latency` of the
# memory, turn after turn. (What a scope costs by itself is in the shorter of the two.)
#
# There are three remedies: more bytes in each turn; the next turns' loads before the wait; and more
# programs, so that others load meanwhile. We try them in this order.
#
# Step 2: more rows at a time, and the X-ray
# ------------------------------------------
#
# A larger ``BLOCK_M`` loads more with each turn. What a thread holds lies in registers, and on
# NVIDIA's GPUs it can have 255. Whether it still fits, the compiled kernel says, which is what a
# launch returns: ``n_regs`` registers a thread; ``n_spills``, those that had to go to memory and
# back; ``metadata.shared`` bytes of shared memory; and the ``asm`` of all stages. (This site shows
# the same below each kernel, under *X-ray*.)

# sphinx_gallery_fold = "compiles, times and prints"
# sphinx_gallery_show = "x_ray"


def x_ray(compiled):
    """Return registers, spills, bytes of shared memory, and how it loads, of a compiled kernel."""
    code = compiled.asm.get("ptx", "")  # AMD's is "amdgcn", with other names
    kinds = {"ld.global": "loads", "cp.async.c": "copies", "wgmma": "wgmma", "mma.sync": "mma"}
    how = [f"{code.count(key)} {name}" for key, name in kinds.items() if key in code]
    return compiled.n_regs, compiled.n_spills, compiled.metadata.shared, ", ".join(how)


ROWS = (32, 128, 256, 512, 1024)
if ON_GPU:
    made = {b: x_ray(by_strips(x, out, BLOCK_M=b)) for b in ROWS}
    by_rows = time_all({f"{b} rows": partial(by_strips, x, out, BLOCK_M=b) for b in ROWS}, x)
    table = [(b, *made[b], significant(by_rows[f"{b} rows"])) for b in ROWS]
    headers = ["BLOCK_M", "registers", "spills", "shared", "instructions", "GB/s"]
    print(tabulate(table, headers, colalign=["right"] * 6))
else:
    print(NOTHING)

# %%
# More rows are more bytes under way, as long as registers last. Then the compiler begins to
# **spill**. A few spills can be worth it; from some point on the kernel moves its registers to
# memory and back at each turn. No tool is needed to notice, just two attributes. (Where that point
# lies, another release of the compiler may see differently: the switch below the title shows what
# was recorded with it.)
#
# Step 3: load ahead
# ------------------
#
# Registers are the wrong place for what has only been ordered. With ``num_stages``, copies go to
# *shared memory* without a detour, several turns ahead, and the thread waits for the oldest alone.
# ``tl.range`` takes it for one loop; for a loop with ``tl.dot`` the launch's ``num_stages`` does.
# We call ``by_strips(x, out, BLOCK_M=128, STAGES=4)``, and others for comparison:

# sphinx_gallery_fold = "checks, times and prints"
check(partial(by_strips, BLOCK_M=64, STAGES=3))
if ON_GPU:
    shapes = {f"{b} rows, {s} stages": {"BLOCK_M": b, "STAGES": s}
              for b, s in ((32, 1), (32, 4), (128, 1), (128, 4))}  # fmt: skip
    ahead = time_all({name: partial(by_strips, x, out, **how) for name, how in shapes.items()}, x)
    table = [
        (name, *x_ray(by_strips(x, out, **how)), significant(ahead[name]))
        for name, how in shapes.items()
    ]
    print(tabulate(table, ["", *headers[1:]], colalign=["left"] + ["right"] * 5))
else:
    print(NOTHING)

# %%
# The X-ray is the proof that it is pipelined: loads have become asynchronous copies, and shared
# memory holds the tiles that are under way. (No copies, no pipeline: a load that depends on another
# load, or a loop in which the compiler cannot look ahead.) And the view from inside, of both:

# sphinx_gallery_fold = "draws the turns of one warp"


def draw_turns(inside, cycles=6000):
    """Draw what one warp does, for each number of stages."""
    fig, axes = plt.subplots(len(inside), 1, figsize=(7, 4.2), sharex=True, squeeze=False)
    colors = {"load": "#1b6ca8", "add": "#e9a3ab"}
    for ax, (stages, programs) in zip(axes[:, 0], inside.items(), strict=True):
        rows = next(iter(programs.values()))
        later = [row for row in rows if row[0] in colors][16:]  # when the pipeline is full
        for scope, hatch in (("load", ""), ("add", "////")):
            bars = [(at - later[0][1], took) for name, at, took in later if name == scope]
            ax.broken_barh(bars, (0, 1), color=colors[scope], hatch=hatch, edgecolor="#444444",
                           linewidth=0.5, label=scope)  # fmt: skip
        ax.set(xlim=(0, cycles), yticks=[], ylabel=f"{stages} stage{'s' * (stages > 1)}")
    axes[-1, 0].set_xlabel("cycles")
    axes[-1, 0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.75), ncols=2)
    fig.suptitle(f"A warp's turns, in cycles,\non {torch.cuda.get_device_name()}")
    fig.tight_layout()
    plt.show()


if inside:
    draw_turns(inside)
else:
    print(NOTHING)

# %%
# Dark is a load, light an addition, and white what lies between; the axis counts cycles. Both
# windows are equally long; count the turns in each. An addition that had to wait for its tile finds
# it ready if the copies had enough of a lead. What is left of the waiting stands in the load now,
# which waits for the oldest copy.
#
# The counters, once more, for the kernel that spills and for the one that loads ahead:

# sphinx_gallery_fold = "shows what was counted"
if len(seen) == 2:
    seen |= {"1024 rows": launches[1], "4 stages": launches[2]}
    show_counters(seen)
elif not ON_GPU:
    print(NOTHING)

# %%
# Compare the last column with the first ones, line by line. Every byte is read once, the memory is
# busier, and **occupancy has not risen**. It is not the goal. What counts is how many bytes are
# under way, and a few warps that load ahead can have more than many that wait.
#
# Step 4: programs for every multiprocessor
# -----------------------------------------
#
# One cause is left, which this matrix hides: strips of 32 columns make as many programs as there
# are strips. A matrix of the same bytes with fewer columns has fewer, and where there are fewer
# programs than multiprocessors, some have nothing to do. The remedy is a second axis of the grid:
# program (j, i) adds up the i-th part of the rows, and a second launch the parts. The difference
# shows what that changes in the kernel.


# sphinx_gallery_fold = "has the kernel whole; checks and times it"
# sphinx_gallery_show = "by_parts"
# sphinx_gallery_difference = "strip_kernel"
@triton.jit(launch_metadata=counted)
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
    narrow = x.view(4 * M, N // 4)
    few = time_all({
        "strips": partial(by_strips, narrow, out[: N // 4], BLOCK_M=128, STAGES=4),
        "parts": partial(by_parts, narrow, out[: N // 4]),
        "x.sum(0)": partial(torch.sum, narrow, 0),
    }, narrow)  # fmt: skip
    multiprocessors = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    programs = {"strips": N // 128, "parts": N // 128 * 16, "x.sum(0)": ""}
    table = [(name, programs[name], significant(rate)) for name, rate in few.items()]
    print(f"{4 * M} x {N // 4}, on {multiprocessors} multiprocessors")
    print(tabulate(table, ["", "programs", "GB/s"], colalign=["left", "right", "right"]))
else:
    print(NOTHING)

# %%
# ``launch__waves_per_multiprocessor`` below one would have said so, and so does a division without
# any tool: programs by multiprocessors. Where the number of programs is only a little above a
# multiple of what fits, the last :term:`wave` is the problem:
# :doc:`/getting-started/tutorials/03b-full-waves`.
#
# From symptom to cause
# ---------------------
#
# .. list-table::
#    :header-rows: 1
#    :widths: 30 30 40
#
#    * - what you see
#      - what it means
#      - what to try
#    * - Proton: kernels take much less than the program
#      - the GPU waits for Python
#      - fewer launches, a graph, fusion: :doc:`/programming-guide/chapter-4/measuring`
#    * - bytes from memory far above those that must move
#      - data is fetched again: it did not stay in a cache, or goes through memory between kernels
#      - fusion: :doc:`/getting-started/tutorials/02-fused-softmax`; another order of tiles:
#        :doc:`/getting-started/tutorials/03-matrix-multiplication`
#    * - sectors a request near 32
#      - threads of a warp read far apart: uncoalesced access, without :term:`coalescing`
#      - let the last dimension of a block run along memory; another layout of the data
#    * - X-ray: loads of 4 bytes (``ld.global.b32``) where neighbours are adjacent
#      - the compiler does not know that addresses are multiples of 16 bytes
#      - sizes and strides that are; :py:func:`triton.language.multiple_of`;
#        :doc:`/programming-guide/chapter-3/debugging`
#    * - ``n_spills`` above 0, sectors of local memory
#      - a thread holds more than it has registers
#      - smaller blocks, more warps, load later; ``num_warps`` in
#        :doc:`/getting-started/tutorials/02-fused-softmax`
#    * - warps wait for memory (long scoreboard), the memory is not busy
#      - too few bytes are under way
#      - ``num_stages``, larger blocks, more warps, more programs
#    * - X-ray: no ``cp.async``, no TMA in a loop that loads
#      - it is not pipelined
#      - ``num_stages`` of the launch or of :py:class:`triton.language.range`; no load whose address
#        comes from the load before
#    * - fewer waves than one; some multiprocessors never active
#      - too few programs
#      - smaller tiles; split the sum, as in step 4
#    * - a little more than a whole number of waves
#      - the last wave is nearly empty
#      - a :term:`persistent kernel`: :doc:`/getting-started/tutorials/03b-full-waves`
#    * - ``tl.dot``, and no ``wgmma``, ``mma`` or ``tcgen05`` in the PTX
#      - no :term:`tensor core` is used
#      - fp16, bf16, fp8 or tf32, and tiles of 16 or more:
#        :doc:`/getting-started/tutorials/03-matrix-multiplication`,
#        :doc:`/getting-started/tutorials/09-fp8-matmul`
#    * - warps wait at barriers, or for shared memory (short scoreboard); bank conflicts
#      - values go from thread to thread through shared memory
#      - look for ``ttg.convert_layout`` in the loop's TTGIR; reduce once, after the loop
#    * - the arithmetic is busy, and not with your operations
#      - exponentials, divisions, index arithmetic
#      - :doc:`/getting-started/tutorials/06-fused-attention`,
#        :doc:`/getting-started/tutorials/07-math-functions`
#    * - slow the first time only
#      - it is being compiled
#      - :doc:`/programming-guide/chapter-3/debugging`
#
# On AMD's GPUs Proton works in the same way; ``rocprofv3`` and ``rocprof-compute`` count, and
# ``asm["amdgcn"]`` ends with registers and spills.
#
# What the run showed
# -------------------
#
# What this chapter has claimed, each beside the limit that it must keep:

# sphinx_gallery_fold = "computes the ladder and the claims, and prints them"
# sphinx_gallery_fold_output = True

if ON_GPU:
    best = ahead["128 rows, 4 stages"]
    kept = ("by_columns", "by_strips", "128 rows, 4 stages", "parts", "x.sum(0)")
    write_rows("profiling-steps.csv", ["M", "N"], [row for row in csv_rows if row[2] in kept])
    ladder([
        ("A slow kernel", "a program adds up a column", speed["by_columns"]),
        ("Step 1: neighbours read neighbours", "a strip of 32 columns", speed["by_strips"]),
        ("Step 2: more rows at a time, and the X-ray", "256 rows, not 32", by_rows["256 rows"]),
        ("Step 3: load ahead", "4 stages of 128 rows", best),
    ], ("a copy", COPY), "GB/s", f"M = {M}, N = {N}, fp32")  # fmt: skip
    print()
    scatter = spread(csv_rows)
    claim(
        "strips are faster than single columns by half, or more",
        speed["by_strips"] / speed["by_columns"], at_least=1.5, spread=scatter,
        section="Step 1: neighbours read neighbours",
    )  # fmt: skip
    claim(
        "the rows that spill most are slower than half as many",
        by_rows["1024 rows"] / by_rows["512 rows"], at_most=1.0, spread=scatter,
        section="Step 2: more rows at a time, and the X-ray",
    )  # fmt: skip
    claim(
        "loading ahead makes strips of 32 rows faster by half, or more",
        ahead["32 rows, 4 stages"] / ahead["32 rows, 1 stages"], at_least=1.5, spread=scatter,
        section="Step 3: load ahead",
    )  # fmt: skip
    claim(
        "in the end, the rate is that of a copy, but for a seventh at most",
        best / COPY, at_least=0.85, spread=scatter, section="Step 3: load ahead",
    )  # fmt: skip
    claim(
        "where strips are few, parts are faster by a quarter, or more",
        few["parts"] / few["strips"], at_least=1.25, spread=scatter,
        section="Step 4: programs for every multiprocessor",
    )  # fmt: skip
    if proton:
        ns, calls = next((row[3], row[2]) for row in tree_rows if row[1] == "column_kernel")
        claim(
            "Proton's time of a launch and that between events differ by a tenth at most",
            abs(ns / calls / 1e3 / begin["by_columns"] - 1), at_most=0.1,
            section="Proton, by launches",
        )  # fmt: skip
        turn = {s: sum(typical(inside[s], name) for name in ("load", "add")) for s in inside}
        claim(
            "of a turn that does not load ahead, seven tenths or more are a wait",
            typical(inside[1], "add") / turn[1], at_least=0.7, section="Proton, inside a kernel",
        )  # fmt: skip
    if len(seen) == 4:
        asked = {name: launch["MB asked of the L2 cache"] for name, launch in seen.items()}
        claim(
            "single columns ask the L2 cache for four times their bytes, or more",
            1e6 * asked["by_columns"] / MUST, at_least=4, section="Nsight Compute, by counters",
        )  # fmt: skip
        claim(
            "strips ask for nothing twice",
            1e6 * asked["by_strips"] / MUST, at_most=1.05,
            section="Step 1: neighbours read neighbours",
        )  # fmt: skip
        claim(
            "the memory is busy most of the time with a fifth of the warps that would fit",
            seen["4 stages"]["occupancy achieved, %"], at_most=20, section="Step 3: load ahead",
        )  # fmt: skip
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * Begin with two divisions: bytes and operations that must be, by the rates of this GPU.
# * Proton finds the launch, a counter the cause, the X-ray what the compiler could not do.
# * Sectors a request, waves, occupancy, who waits for what, spills: five numbers decide most cases.
# * Inside of a kernel, time shows up where a value is first used.
# * Occupancy is no goal, and a hit rate no merit. Bytes under way are what hides latency.
# * Change one thing, and let the same counter prove it. Then ask again: the next cause is another.
#
# References
# ----------
#
# * Keren Zhou and others: `Proton, with examples
#   <https://github.com/triton-lang/triton/tree/main/third_party/proton>`__, in Triton's repository.
# * NVIDIA: `Nsight Compute, kernel profiling guide
#   <https://docs.nvidia.com/nsight-compute/ProfilingGuide/>`__: what each counter and each reason
#   to wait means.
# * John D. C. Little: *A proof for the queuing formula L = λ W*, Operations Research 9 (3), 1961,
#   https://doi.org/10.1287/opre.9.3.383: bytes under way are bandwidth times latency.
# * Vasily Volkov: *Understanding latency hiding on GPUs*, dissertation, University of California,
#   Berkeley, 2016: why occupancy is not the goal.
