"""
Silently wrong: which sanitizer names the fault?
================================================

A kernel is silently wrong, the interpreter says nothing, and the GPU does not crash. Start with
this site's watch: without a GPU, it names races, reads out of bounds and uninitialized values.
NVIDIA's compute-sanitizer names the last two on the GPU, and Triton's GSan, where a release has it,
names races there. No tool names an overflow. This page runs four faults under these three, and
under Triton's ConSan, IISan and FPSan.
"""

# %%
# Which sanitizers does my Triton have?
# -------------------------------------
#
# Triton's sanitizers are parts of its compiler that add checks to a kernel. They need no
# installation, but not every release has all of them (`#7157
# <https://github.com/triton-lang/triton/pull/7157>`_, `#10591
# <https://github.com/triton-lang/triton/pull/10591>`_). So ask the release that is installed:

# sphinx_gallery_fold = "imports and device"
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
from tabulate import tabulate
from triton._C.libtriton import passes
from triton.backends.nvidia.compiler import CUDAOptions

NVIDIA = ON_GPU and not torch.version.hip
HERE = Path(globals().get("__file__", "a notebook")).resolve().parent

# %%

# sphinx_gallery_name = "wheel"
WHEEL = {
    "ConSan": hasattr(passes.ttgpuir, "add_concurrency_sanitizer"),
    "IISan": hasattr(CUDAOptions, "enable_iisan"),
    "FPSan": hasattr(passes.ttgpuir, "add_fp_sanitizer"),
    "GSan": hasattr(passes.ttgpuir, "add_global_sanitizer"),
}
WATCHES = {
    "ConSan": "unordered uses of shared memory in a program: asynchronous copies, barriers",
    "IISan": "operands of instructions that are not allowed, such as a descriptor's address",
    "FPSan": "whether two ways to compute something are the same algebra, rounding aside",
    "GSan": "races between programs in global memory",
}
rows = [(name, "yes" if there else "–", WATCHES[name]) for name, there in WHEEL.items()]
print(tabulate(rows, [f"Triton {triton.__version__}", "has it", "watches"]))

# %%
# .. output-of:: wheel
#    :release: 3.6.0
#
# The package of 3.6.0 has only ConSan of these four.
#
# How do I start one?
# -------------------
#
# Set one variable for the whole program, in the environment or before the first launch. An option
# of the launch, ``instrumentation_mode``, does it for one kernel::
#
#    $ TRITON_INSTRUMENTATION_MODE=consan python program.py     # also iisan, fpsan
#    $ python -m triton.tools.gsan program.py
#
# GSan needs the second form, because it also needs memory of its own: beside each number it keeps
# which program used it last. Its allocator is C++ code, which is compiled when it is first used, so
# a C++ compiler and CUDA's headers must be there.
#
# * **ConSan** checks what the compiler and Gluon programs do with shared memory. In plain Triton
#   you do not write such accesses, so a message means a fault of the compiler. It needs memory for
#   its notes. Your program must provide it, with ``triton.set_allocator``, before the first launch.
# * **FPSan** does not look for NaN or overflow. It replaces the arithmetic of a kernel by exact
#   arithmetic on integers, in which ``(a + b) + c`` *is* ``a + (b + c)``. If two kernels agree
#   under it, in all bits, their formulas are the same, and what differed before was rounding.
# * **compute-sanitizer** is a part of the CUDA toolkit, and knows addresses, not tensors. PyTorch
#   keeps freed memory, so switch that off: ``PYTORCH_NO_CUDA_MEMORY_CACHING=1``.
# * **The watch** is a file of this site. It runs kernels in Triton's interpreter and knows tensors:
#   `exercise.py <../../_static/exercise.py>`__. No GPU is needed::
#
#    $ python exercise.py --watch program.py
#
# Four faults
# -----------
#
# Each is a program that ends without an error. In the first, 256 programs add 1 to one number
# without an atomic operation. The second adds up 4096 elements of a vector of 1000. The third adds
# to a ``torch.empty``, and the fourth computes the square of 300 in fp16, which ends at 65,504:

HEAD = """\
import sys
import torch, triton, triton.language as tl

device = "cpu" if triton.knobs.runtime.interpret else "cuda"

"""
RACE = HEAD + """\
@triton.jit
def count_kernel(total_ptr):
    tl.store(total_ptr, tl.load(total_ptr) + 1)  # no tl.atomic_add

total = torch.zeros(1, dtype=torch.int32, device=device)
count_kernel[(256,)](total)
print("total:", total.item())
"""  # fmt: skip
OUTSIDE = HEAD + """\
@triton.jit
def sum_kernel(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N))))  # no mask

x, out = torch.ones(1000, device=device), torch.zeros(1, device=device)
sum_kernel[(1,)](x, out, N=4096)
print("sum of 1000 ones:", out.item())
"""  # fmt: skip
UNINITIALIZED = HEAD + """\
@triton.jit
def add_kernel(x_ptr, sums_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(sums_ptr + i, tl.load(sums_ptr + i) + tl.load(x_ptr + i))

x = torch.ones(1024, device=device)
sums = torch.empty(1024, device=device)  # not torch.zeros
add_kernel[(1,)](x, sums, N=1024)
print("sums:", sums[:2].tolist())
"""  # fmt: skip
OVERFLOW = HEAD + """\
@triton.jit
def square_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x * x)  # fp16 ends at 65504

x = torch.full((1024,), 300.0, device=device).half()
out = torch.zeros_like(x)
square_kernel[(1,)](x, out, N=1024)
print("300 squared:", out[0].item())
"""  # fmt: skip
FAULTS = {
    "race of programs": RACE,
    "read out of bounds": OUTSIDE,
    "uninitialized value": UNINITIALIZED,
    "fp16 overflow": OVERFLOW,
}

# sphinx_gallery_fold = "runs a program under a tool, and finds what the tool says"
FOLDER = Path(tempfile.mkdtemp(prefix="sanitizers-"))
WRITE_ONCE = """\
import runpy, sys, torch, triton
from triton.experimental.gsan import create_mem_pool
triton.knobs.compilation.instrumentation_mode = "gsan"
with torch.cuda.use_mem_pool(create_mem_pool(write_once=True)):
    runpy.run_path(sys.argv[1], run_name="__main__")
"""
(FOLDER / "write_once.py").write_text(WRITE_ONCE)
WITH_MEMORY = """\
import runpy, sys, torch, triton
memory = lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda")
triton.set_allocator(memory)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
(FOLDER / "with_memory.py").write_text(WITH_MEMORY)


def checker():
    """Return the path of ``exercise.py``, or None."""
    places = [HERE / "exercise.py"]
    places += [p / name for p in HERE.parents for name in ("checker", "build/checker")]
    files = [p if p.suffix else p / "exercise.py" for p in places]
    return next((p for p in files if p.is_file()), None)


def sanitizer(tool):
    """Return the command of one of compute-sanitizer's tools, or None."""
    path = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    return [path, "--tool", tool, "--print-limit", "2"] if NVIDIA and Path(path).is_file() else None


def commands(fault):
    """Return {tool: (command, environment) or None} of the tools for a fault."""
    once = WHEEL["GSan"] and fault == "uninitialized value"
    gsan = [sys.executable, FOLDER / "write_once.py"] if once else [
        sys.executable, "-m", "triton.tools.gsan"]  # fmt: skip
    tool = {"race of programs": "racecheck", "uninitialized value": "initcheck"}
    native = sanitizer(tool.get(fault, "memcheck"))
    python = [sys.executable]
    watch = checker()
    starts = {"ConSan": [*python, FOLDER / "with_memory.py"]}
    found = {
        name: (starts.get(name, python), {"TRITON_INSTRUMENTATION_MODE": name.lower()})
        if NVIDIA and WHEEL[name]
        else None
        for name in ("ConSan", "IISan", "FPSan")
    }
    found["GSan"] = (gsan, {}) if NVIDIA and WHEEL["GSan"] else None
    caching = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    found["compute-sanitizer"] = ([*native, sys.executable], caching) if native else None
    interpreted = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    found["the watch"] = ([sys.executable, watch, "--watch"], interpreted) if watch else None
    return found


SAYS = re.compile(
    r"[^\n]*(?:race detected|a race:|out of bounds|ninitialized|before its first write"
    r"|Invalid __global__|RACECHECK SUMMARY: [1-9]|device-side assert|illegal memory)[^\n]*"
)


def run(fault, way):
    """Return the output of the program under a tool, without paths and process numbers."""
    if way is None:
        return None
    path = FOLDER / f"program_{list(FAULTS).index(fault) + 1}.py"
    path.write_text(FAULTS[fault])
    command, more = way
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "TRITON_INTERPRET": "0"} | more
    environment["TRITON_CACHE_DIR"] = str(FOLDER / f"cache-{abs(hash((fault, str(way))))}")
    try:
        done = subprocess.run(
            [*command, path], env=environment, capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "no end in 120 s"
    text = (done.stdout + done.stderr).replace(f"{FOLDER}/", "")
    return f"{text.rstrip()}\n[exit status {done.returncode}]" if done.returncode else text


def verdict(text):
    """Return what a tool says, in a few words."""
    if text is None:
        return "–"
    if found := SAYS.search(text):
        said = found[0].replace("=========", "").strip(" :")
        said = re.sub(r"^.*?(Read|Write|Access) (?=\w+ \w+ race|of write)", r"\1 ", said)
        return re.sub(r"^Found: *", "", said)[:46]
    if "[exit status" not in text and not text.startswith("no end"):
        return "nothing"
    lines = text.splitlines()
    return [*lines[-1:], *(line for line in lines if "Error" in line)][-1].strip()[:46]


# %%
# Which tool names which fault?
# -----------------------------
#
# Every cell of the table was executed. A dash means that this release, or this machine, has no such
# tool. With 3.6.0 the lines of IISan, FPSan and GSan are dashes; its ConSan says nothing about any
# of the four faults.

# sphinx_gallery_shows = "RuntimeError, AcceleratorError, FaultError, CalledProcessError"
JOBS = [(fault, tool, way) for fault in FAULTS for tool, way in commands(fault).items()]
if not ON_GPU:
    JOBS = [job for job in JOBS if job[1] == "the watch"]
with ThreadPoolExecutor(12 if ON_GPU else 1) as pool:
    TEXTS = dict(
        zip(
            [(fault, tool) for fault, tool, _ in JOBS],
            pool.map(lambda job: run(job[0], job[2]), JOBS),
            strict=True,
        )
    )
TOOLS = list(dict.fromkeys(tool for _, tool, _ in JOBS))
print(tabulate([(tool, *(verdict(TEXTS[fault, tool]) for fault in FAULTS)) for tool in TOOLS],
               ["", *FAULTS], maxcolwidths=[None] + [23] * 4))  # fmt: skip
if checker():
    for fault in list(FAULTS)[:3]:
        assert verdict(TEXTS[fault, "the watch"]) != "nothing", TEXTS[fault, "the watch"]

# %%
# What the programs print without a tool, and the first lines of what three tools say:

# sphinx_gallery_fold = "prints the first lines of messages"
# sphinx_gallery_shows = "RuntimeError, AcceleratorError, FaultError, CalledProcessError"


def show(title, text, lines=9):
    """Print the first lines of a tool's message."""
    print(f"--- {title}")
    kept = [line for line in (text or "–").splitlines() if line.strip()]
    start = next((i for i, line in enumerate(kept) if SAYS.search(line)), 0)
    print("\n".join(line[:100] for line in kept[start : start + lines]), "\n")


for fault in FAULTS if ON_GPU else ():
    print(f"{fault}:", (run(fault, ([sys.executable], {})) or "").strip().splitlines()[-1:])
show("the race, under the watch", TEXTS["race of programs", "the watch"])
if ON_GPU:
    show("the race, under GSan", TEXTS["race of programs", "GSan"], 4)
    show("out of bounds, under compute-sanitizer", TEXTS["read out of bounds", "compute-sanitizer"])
shutil.rmtree(FOLDER)

# %%
# A program can print the right number all the same: memory behind a tensor, or memory that
# nobody has written, often holds zeros. With other data in it, the same program is wrong. So a
# right result does not replace a tool.
#
# No tool names the overflow: infinity is a number like any other. Ask for it yourself, where it
# must not be: ``assert out.isfinite().all()`` after the launch, or a ``tl.device_assert`` in the
# kernel, as :doc:`crash` shows. In fp32, this square is an ordinary number.
#
# Which one do I take?
# --------------------
#
# 1. **The watch** first: it needs no GPU, names tensor, index and cause, and knows races, bounds
#    and values that were never written. It is slow, and it cannot see what the compiler does. An
#    overflow is no fault for it.
# 2. **compute-sanitizer**, where the fault needs the real size, or where C++ kernels take part:
#    *memcheck* for bounds, *initcheck* for uninitialized memory. Its *racecheck* sees shared memory
#    only, so not this race.
# 3. **GSan**, where programs wait for each other with flags and counters: only it knows which order
#    ``acquire`` and ``release`` promise (:doc:`/programming-guide/chapter-8/new` has such flags).
#    Its mode for memory that is written once also finds reads that come before the first write:
#    ``create_mem_pool(write_once=True)``.
# 4. **FPSan**, when a rewritten kernel differs slightly from the old one: is it rounding, or a
#    fault?
# 5. **ConSan** and **IISan** for Gluon, and when you suspect the compiler. None of the four faults
#    is of their kind: they are mistakes of the kernel in global memory, or in arithmetic.
#
# :doc:`wrong` finds the place of a wrong result without tools, and :doc:`crash` treats crashes.
