"""
Profiling kernels
=================

A kernel is slow, and you know by how much. A profiler says *why*. Proton, which comes with Triton,
says which launch takes the time. Nsight Compute reads the GPU's counters. Here both find out why a
sum of columns reaches :measured:`slow` % of a copy's rate, and one change makes it
:measured:`strips` times as fast. :doc:`profiling-inside` takes it to the speed of the memory.

You need :doc:`/programming-guide/chapter-4/measuring`. The table at the end of this page, `From
symptom to cause`_, can be used on its own.
"""

# %%
# A slow kernel
# -------------
#
# The sums of the columns of a matrix are the gradient of a bias: ``x.sum(0)`` in PyTorch. The
# first idea is to do as with the rows of :doc:`a softmax
# </getting-started/tutorials/02-fused-softmax>`: a program computes one column.

import csv
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


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
# ``launch_metadata`` names a function that tells a profiler what a launch *must* do. Without a
# profiler it is never called.
#
# Where to begin
# --------------
#
# Begin with two divisions: the bytes that *must* move by the rate of a copy, and the operations by
# the rate of the arithmetic. The larger time is what a perfect kernel takes. The :doc:`roofline
# </programming-guide/chapter-4/roofline>` says which one it is. Compare with the time of an empty
# kernel, and with the time that the kernel does take:
#
# ================================= ================= ============================================
# its time is                       it is             the question, and who answers it
# ================================= ================= ============================================
# near that of an empty kernel      launch-bound      which launches? *Proton, by launches*
# near what the bytes need          memory-bound      can bytes be saved, by fusion?
# near what the operations need     compute-bound     which instructions do them? *X-ray*
# far above all three               waiting           for what? *counters*, :doc:`profiling-inside`
# ================================= ================= ============================================
#
# The *X-ray* is the folded box below a kernel on this site. It shows what the compiler made of it.

# sphinx_gallery_fold = "times the kernel, PyTorch and a copy"
# sphinx_gallery_xray = "column_kernel: 16,384 × 4096, fp32"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import rates, write_rows

SCRATCH = tempfile.TemporaryDirectory(prefix="profiling-")
M, N = 16384, 4096  # 256 MiB of fp32, several times the L2 cache
MUST = 4 * (M * N + N)

if ON_GPU:
    x, out = torch.randn(M, N, device=DEVICE), torch.empty(N, device=DEVICE)
    calls = {"by_columns": partial(by_columns, x, out), "x.sum(0)": partial(torch.sum, x, 0)}
    rows = rates((M, N), calls, "GB/s", MUST, 30)
    rows += rates((M, N), {"copy": x.clone}, "GB/s", 2 * x.nbytes, 30)
    for _, _, name, unit, median, *_ in rows:
        print(f"{name:12} {median:5.0f} {unit}")
else:
    print("Nothing to measure without a GPU.")

# %%
# One addition for four bytes is little work for any GPU, so the memory should set the pace. A
# kernel that takes several times as long as its bytes need moves more than it must, or waits.
#
# Proton, by launches
# -------------------
#
# In a program of many launches, the first question is which of them takes the time. Proton records
# each, PyTorch's too. ``proton.scope`` names a part of the program, and ``hook="triton"`` asks
# ``launch_metadata`` at each launch. Here a matrix is centered, with our slow kernel in it:

try:
    import triton.profiler as proton
except ImportError:  # an installation without it
    proton = None


def center(x):
    """Return *x* less the mean of each column."""
    sums = torch.empty(x.shape[1], device=x.device)
    with proton.scope("mean"):
        by_columns(x, sums)
        sums /= len(x)
    with proton.scope("subtract", {"bytes": 2 * x.nbytes}):
        return x - sums


# sphinx_gallery_fold = "profiles ten calls, reads the file, and prints the tree"
# sphinx_gallery_show = "center"
def read_tree(node, depth=0):
    """Return rows [depth, name, launches, nanoseconds, bytes] of *node* and all below it."""
    below = [read_tree(child, depth + 1) for child in node["children"]]
    metrics = node["metrics"]
    time = metrics.get("time (ns)", 0) + sum(rows[0][3] for rows in below)
    row = [depth, node["frame"]["name"], metrics.get("count", 0), time, metrics.get("bytes", 0)]
    below.sort(key=lambda rows: -rows[0][3])
    return [row, *(row for rows in below for row in rows)]


if ON_GPU and proton:
    center(x)  # compiles
    session = proton.start(f"{SCRATCH.name}/launches", hook="triton")
    for _ in range(10):
        center(x)
    proton.finalize(session)  # writes launches.hatchet
    tree_rows = read_tree(json.loads(Path(SCRATCH.name, "launches.hatchet").read_text())[0])
    whole = tree_rows[0][3]
    table = [
        (
            "  " * depth + name[:36],
            calls or "",
            f"{ns / whole:.0%}",
            f"{size / ns:.0f}" * (size > 0),
        )
        for depth, name, calls, ns, size in tree_rows
    ]
    print(tabulate(table, ["", "launches", "time", "GB/s"], disable_numparse=True,
                   preserve_whitespace=True, colalign=["left"] + ["right"] * 3))  # fmt: skip

# %%
# Shares of the time say which launch is worth your work, and rates say whether there is something
# to gain. If the kernels' times add up to much less than the program takes, :doc:`the calls
# </programming-guide/chapter-6/calls>` are the problem. The file is plain JSON; ``proton-viewer``
# shows it as a tree if ``llnl-hatchet`` is installed. ``data="trace"`` writes a timeline for
# Perfetto, and ``proton script.py`` profiles a script that knows nothing of Proton.
#
# Nsight Compute, by counters
# ---------------------------
#
# The GPU knows why a kernel is slow, since it counts bytes, sectors, and cycles in which something
# waited. ``ncu`` runs a program, repeats its launches, and prints the counters. There are
# thousands; these few decide most cases (long names are shortened by *…*; the folded code below has
# them whole):
#
# =================================================== ============================================
# counter                                             what it says
# =================================================== ============================================
# ``dram__bytes_read.sum``                            bytes from memory; compare with what must move
# ``l1tex__average_t_sectors_per_request_…_ld.ratio`` sectors of 32 bytes that one load of a
#                                                     :term:`warp` touches: 4 if each thread loads
#                                                     4 bytes, 16 if it loads 16; 32 is the worst
# ``lts__t_sectors_srcunit_tex.sum``                  sectors asked of the :term:`L2 cache`
# ``lts__t_sector_hit_rate.pct``                      share of them that it had
# ``launch__waves_per_multiprocessor``                how often the grid fills the GPU
# ``sm__warps_active.avg.pct_of_…_active``            :term:`occupancy` that was achieved
# ``smsp__average_warps_issue_stalled_…``             warps that wait, by reason, summed over the
#                                                     cycles from one issued instruction to the
#                                                     next, so it can exceed the number of warps.
#                                                     *Long scoreboard*: for memory
# ``l1tex__t_sectors_…_mem_local_op_ld.sum``          spilled registers read back
# ``dram__throughput.avg.pct_of_peak_…``              how busy the memory was: the verdict
# =================================================== ============================================
#
# ``ncu`` needs a program of its own, so the kernels go into a file. In a terminal you would call it
# with your script.

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
# What ncu counts in bytes or in sectors of 32 bytes, and we show in MB.
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


seen = {}
COUNTING = ON_GPU and DEVICE.type == "cuda" and not torch.version.hip
if COUNTING and (launches := count(counted, column_kernel, by_columns, main="by_columns(x, out)")):
    seen["by_columns"] = launches[0]
    print(f"{MUST / 1e6:.0f} MB must be read")
    show_counters(seen)

# %%
# The second line is the cause. A warp asks for 32 elements, and the worst possible number of
# sectors comes, one for each thread: adjacent *threads* got elements of adjacent *rows*. Of each
# sector of 32 bytes, one element is used. So the L2 cache is asked for a multiple of the matrix. It
# has most of that, but a high **hit rate is no good sign** if the hits are bytes that nobody should
# have asked for twice. More warps would not help: the grid fills the GPU, and they all wait.
#
# Neighbors read neighbors
# ------------------------
#
# The remedy: a program takes a *strip* of 32 columns, 128 bytes of each row. The compiler gives
# adjacent threads adjacent columns. (``STAGES`` is for :doc:`profiling-inside`.)


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

# sphinx_gallery_fold = "times and counts it"
# sphinx_gallery_xray = "strip_kernel: 16,384 × 4096, fp32"
# sphinx_gallery_show = "strip_kernel, by_strips"
if ON_GPU:
    rows += rates((M, N), {"by_strips": partial(by_strips, x, out)}, "GB/s", MUST, 30)
    write_rows("profiling-steps.csv", ["M", "N"], rows)
    print(f"by_strips: {rows[-1][4]:.0f} GB/s")
    main = "by_strips(x, out)"
    if seen and (launches := count(counted, strip_kernel, by_strips, main=main)):
        show_counters(seen | {"by_strips": launches[0]})
SCRATCH.cleanup()

# %%
# Now nothing is read twice, and the hit rate is as low as it should be. Each thread loads 16 bytes
# with one instruction, hence 16 sectors a request, all of them used. But the memory is not busy
# yet: there are few programs, and their warps wait. They need more bytes in flight, and more warps
# are only one way to that: :doc:`profiling-inside`.
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
#      - fewer launches, a graph, fusion: :doc:`/programming-guide/chapter-6/calls`
#    * - bytes from memory far above those that must move
#      - data is fetched again: it did not stay in a cache, or goes through memory between kernels
#      - fusion: :doc:`/getting-started/tutorials/02-fused-softmax`; another order of tiles:
#        :doc:`/getting-started/tutorials/03-matrix-multiplication`
#    * - sectors a request near 32
#      - threads of a warp read far apart, without :term:`coalescing`
#      - let the last dimension of a block run along memory; another layout of the data
#    * - X-ray: loads of 4 bytes (``ld.global.b32``) where neighbors are adjacent
#      - the compiler does not know that addresses are multiples of 16 bytes
#      - sizes and strides that are; :py:func:`triton.language.multiple_of`;
#        :doc:`/programming-guide/chapter-3/slow`
#    * - ``n_spills`` above 0, sectors of local memory
#      - a thread holds more than it has registers
#      - smaller blocks, more warps, load later; ``num_warps`` in
#        :doc:`/getting-started/tutorials/02-fused-softmax`
#    * - warps wait for memory (long scoreboard), the memory is not busy
#      - too few bytes are in flight
#      - ``num_stages``, larger blocks, more warps, more programs
#    * - X-ray: no ``cp.async``, no TMA (tiles by descriptor) in a loop that loads
#      - it is not pipelined
#      - ``num_stages`` of the launch or of :py:class:`triton.language.range`; no load whose address
#        comes from the load before
#    * - fewer waves than one; some multiprocessors never active
#      - too few programs
#      - smaller tiles; split the sum: :doc:`profiling-inside`
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
#      - :doc:`/programming-guide/chapter-3/slow`
#
# On AMD GPUs Proton works in the same way; ``rocprofv3`` and ``rocprof-compute`` count, and
# ``asm["amdgcn"]`` ends with registers and spills.
#
# References
# ----------
#
# * Keren Zhou and others: `Proton, with examples
#   <https://github.com/triton-lang/triton/tree/main/third_party/proton>`__
# * NVIDIA: `Nsight Compute, kernel profiling guide
#   <https://docs.nvidia.com/nsight-compute/ProfilingGuide/>`__: what each counter means
