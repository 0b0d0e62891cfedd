"""
Debugging: slow kernels
=======================

First be sure that a kernel *is* slow: :doc:`/programming-guide/chapter-4/measuring` shows how. Then
read what the GPU executes: the width of its loads, its matrix instructions, its registers. If that
explains nothing, :doc:`/programming-guide/chapter-5/profiling` shows what a kernel waits for.
Compiling needs no GPU; the last two experiments need one.
"""

# %%
# From Triton to instructions
# ---------------------------
#
# A launch returns the compiled kernel, and so does :py:func:`triton.compile`. Its ``asm`` holds the
# text of each stage of the translation. Here is the load of this kernel on its way down, for two
# GPUs. You need neither of them:

import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


@triton.jit
def row_softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute the softmax of one row of *n* elements."""
    offsets = tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * n
    x = tl.load(x_ptr + start + offsets, mask=offsets < n, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    denominator = tl.sum(numerator, axis=0)
    tl.store(y_ptr + start + offsets, numerator / denominator, mask=offsets < n)


# %%
# Each experiment compiles in a process of its own. You can skip this cell:

# sphinx_gallery_fold = "executes functions as a script, and prints what a terminal shows"
SCRATCH = tempfile.TemporaryDirectory(prefix="debugging-")
HEAD = """\
import faulthandler, inspect, os, re, signal
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
"""
WITH_TORCH = """\
import torch
ON_GPU = not triton.knobs.runtime.interpret
DEVICE = torch.accelerator.current_accelerator() if ON_GPU else "cpu"
"""


def run(main, *others, before=("",), keep="", typed="", count=False):
    """Execute ``main()`` as a script, once for each text *before* ``python`` on the command line.

    Args:
        main: A function without arguments.
        others: The kernels and functions that it uses, and lines of code as strings.
        before: Environment variables, or a checker.
        keep: A regular expression; other lines are left out.
        typed: What is typed while it runs.
        count: Whether repeated lines are counted.
    """
    parts = [p if isinstance(p, str) else inspect.getsource(getattr(p, "fn", p)) for p in others]
    parts += [inspect.getsource(main), f"{main.__name__}()\n"]
    heads = [HEAD, WITH_TORCH] if "torch." in "".join(parts) else [HEAD]
    script = Path(SCRATCH.name, f"{main.__name__}.py")
    script.write_text("\n\n".join([*heads, *parts]))
    source = script.read_text().splitlines()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    environment |= {"TRITON_CACHE_DIR": f"{SCRATCH.name}/cache", "PYTHONWARNINGS": "ignore"}

    def shown(line):
        line = line.replace(f"{SCRATCH.name}{os.sep}", "").rstrip()
        line = re.sub(r"(thread:? [\[(])[\d,]+", r"\1…", line)
        place = re.search(rf"{script.name}(?:\", line |:)(\d+)", line)
        return f"{line}: {source[int(place[1]) - 1].strip()}"[:130] if place else line[:104]

    for words in before:
        command = f"{words} {shlex.quote(sys.executable)} {script.name}".strip()
        print(f"$ {words} python {script.name}".replace("$  ", "$ "))
        done = subprocess.run(
            command, shell=True, cwd=SCRATCH.name, env=environment, input=typed, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
        )  # fmt: skip
        lines = [shown(line) for line in done.stdout.splitlines() if re.search(keep, line)]
        if count:
            lines = [f"{line}  ({n} times)" * (n > 1) or line for line, n in Counter(lines).items()]
        print(*lines, sep="\n")
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        name = signal.Signals(status - 128).name if status > 128 else f"exit status {status}"
        print(f"[{name}]\n")


# %%

# sphinx_gallery_fold = "compiles for two GPUs, and prints the load in each stage"


def compiled(kernel, types, constants, divisible, target):
    """Return the text of each stage; *divisible* are the arguments that are divisible by 16."""
    signature = types | dict.fromkeys(constants, "constexpr")
    attrs = {(i,): [["tt.divisibility", 16]] for i in divisible}
    return triton.compile(ASTSource(kernel, signature, constants, attrs=attrs), target=target).asm


def stages():
    """Print the load of a kernel in each stage."""
    for target in TARGETS:
        types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
        asm = compiled(row_softmax_kernel, types, {"BLOCK": 1024}, range(3), target)
        print(f"{target.backend}, {target.arch}")
        for stage in ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn"):
            if stage in asm or (stage == "sass" and target.backend == "cuda"):
                load = re.search(LOAD, asm[stage])
                text = re.sub(r" loc.*", "", load[0])[:66] if load else "(no load by this name)"
                print(f"  {stage:7} {text.strip()}")


TARGETS = [GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)]
LOAD = r"(tt\.load|\bload <|ld\.global|LDG|(\w+\.)?(global|buffer)[._]load).*"
GIVEN = f"{TARGETS = }", compiled
run(stages, f"{LOAD = }", *GIVEN, row_softmax_kernel, keep="^(?!nvdisasm)")

# %%
# ========== ======================================================================================
# stage      what to look for
# ========== ======================================================================================
# ``ttir``   your kernel with all types and shapes: is each value what you think it is?
# ``ttgir``  the same with *layouts*, which say what each thread holds. ``ttg.convert_layout`` moves
#            a block to another layout, mostly through shared memory: costly in the inner loop.
#            Copies that are pipelined are called ``async``.
# ``llir``   LLVM's language, for one thread
# ``ptx``    NVIDIA's portable assembly, with an unlimited number of registers
# ``sass``   what an NVIDIA GPU executes; ``LDL`` and ``STL`` move spilled registers
# ``amdgcn`` what an AMD GPU executes; its last lines count registers and spills
# ========== ======================================================================================
#
# Which line became what?
# -----------------------
#
# PTX and amdgcn say in comments which line each instruction comes from. So you can count the
# instructions of each line. (An instruction in a loop counts once.)

# sphinx_gallery_fold = "counts the instructions of each line"


def count_by_line(kernel, assembly):
    """Return {line in the file of *kernel*: instructions of *assembly* that come from it}."""
    file = Path(inspect.getsourcefile(kernel.fn)).name
    counts, line = Counter(), None
    for text in assembly.splitlines():
        if re.match(r"\s+\.loc\s", text):  # of functions that were inlined, the last is ours
            places = re.findall(rf"\b{re.escape(file)}:(\d+):", text)
            line = int(places[-1]) if places else None
        elif re.match(r"\s+(@!?%p\d+\s+)?[a-z]\w*([.\s]|;)", text):
            counts[line] += 1
    return counts


def annotate():
    """Print the source of a kernel, each line with the number of its instructions."""
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
    asms = [compiled(row_softmax_kernel, types, {"BLOCK": 1024}, range(3), t) for t in TARGETS]
    codes = asms[0]["ptx"], asms[1]["amdgcn"]
    counts = [count_by_line(row_softmax_kernel, code) for code in codes]
    lines, first = inspect.getsourcelines(row_softmax_kernel.fn)
    print(" ptx  gcn")
    for number, line in enumerate(lines, first):
        print(*(f"{count[number] or '':4}" for count in counts), line.rstrip()[:86])


run(annotate, "from collections import Counter\nfrom pathlib import Path", *GIVEN, count_by_line,
    row_softmax_kernel)  # fmt: skip

# %%
# These are the instructions of one thread, which has 8 of the 1024 elements on NVIDIA GPUs (4 warps
# of 32 threads) and 4 on this AMD GPU (4 warps of 64). The line with the maximum and the
# exponential stands out. In a :term:`reduction` the threads of a warp exchange values in several
# steps, and the warps do so through :term:`shared memory`. A line that you thought cheap and that
# has hundreds of instructions is a finding. On the pages of the tutorials, the X-ray shows this
# table for each kernel.
#
# Wide loads
# ----------
#
# A thread that needs adjacent elements can load 16 bytes with one instruction if the address is a
# multiple of 16. Triton must be able to *prove* that. At the launch it looks at each pointer and
# each integer: is it divisible by 16? The rest follows from the arithmetic in the kernel.


@triton.jit
def copy_row_kernel(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    """Copy one row of a matrix."""
    start = tl.program_id(0) * stride
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + offsets, mask=offsets < columns)
    tl.store(y_ptr + start + offsets, x, mask=offsets < columns)


# sphinx_gallery_fold = "counts the loads, by what is divisible by 16"
# sphinx_gallery_show = "copy_row_kernel"
def loads():
    """Print the loads of ``copy_row_kernel``, by what is divisible by 16."""
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "columns": "i32", "stride": "i32"}
    cases = {"everything": (0, 1, 2, 3), "not columns": (0, 1, 3)}
    cases |= {"not stride": (0, 1, 2), "not x_ptr": (1, 2, 3)}
    for name, divisible in cases.items():
        found = []
        for target in TARGETS:
            asm = compiled(copy_row_kernel, types, {"BLOCK": 1024}, divisible, target)
            code = asm["ptx"] if "ptx" in asm else asm["amdgcn"]
            counts = Counter(re.findall(r"\s(ld\.global[.\w]*|(?:global|buffer)_load\w*)", code))
            found += [" ".join(f"{n} {what}" for what, n in counts.items())]
        print(f"{name:12} {found[0]:20} {found[1]}")


run(loads, "from collections import Counter", *GIVEN, copy_row_kernel)

# %%
# One number that is not divisible, and the kernel needs four times as many loads. Allocate with a
# padded stride, or promise what you know with :py:func:`triton.language.multiple_of`. (A
# broken promise is a wrong result.)
#
# Matrix instructions
# -------------------
#
# ``tl.dot`` is there for :term:`tensor cores <tensor core>`. Does it reach them?


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, TILE: tl.constexpr, PRECISION: tl.constexpr):
    """Multiply eight pairs of tiles, and add up the products."""
    offsets = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(8):
        a = tl.load(a_ptr + offsets + k * TILE * TILE)
        b = tl.load(b_ptr + offsets + k * TILE * TILE)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(c_ptr + offsets, total)


# sphinx_gallery_fold = "looks for the instructions of tensor cores"
# sphinx_gallery_show = "dot_kernel"
def dots():
    """Print the multiplications in ``dot_kernel``, by type, tile, precision and GPU."""
    multiply = r"\s(wgmma\.mma_async\S*|mma\.sync\S*|fma\.rn\.f32|v_mfma\w*|v_fmac?_f32\w*)"
    cases = ("fp16", 64, "tf32"), ("fp16", 32, "tf32"), ("fp32", 32, "tf32"), ("fp32", 32, "ieee")
    for dtype, tile, precision in cases:
        types = {"a_ptr": f"*{dtype}", "b_ptr": f"*{dtype}", "c_ptr": "*fp32"}
        for target in TARGETS:
            constants = {"TILE": tile, "PRECISION": precision}
            asm = compiled(dot_kernel, types, constants, range(3), target)
            code = asm["ptx"] if "ptx" in asm else asm["amdgcn"]
            how = precision if dtype == "fp32" else ""
            for what, count in Counter(re.findall(multiply, code)).items():
                short = re.sub(r"\.(sync|aligned|row|col)(?=\.)", "", what)
                print(f"{dtype}  {tile} x {tile}  {how:5} {target.arch!s:7} {count:5} {short}")


run(dots, "from collections import Counter", *GIVEN, dot_kernel)

# %%
# ``wgmma``, ``mma`` and ``v_mfma`` are matrix instructions. The numbers in their names are the
# shape of the product that one of them computes, for one warp or for four warps. An ``fma`` is one
# multiplication in each thread. So fp32 with ``input_precision="ieee"`` bypasses the tensor cores
# of this NVIDIA GPU, and a tile of 32 is too small for the largest instruction.
#
# Registers and spills
# --------------------
#
# The blocks of a program are in registers. When a thread needs more than it can have, the rest goes
# to memory and back: :term:`register spilling`. The compiled kernel knows both numbers:


# sphinx_gallery_fold = "compiles with more and more elements a thread, and prints registers"
def registers(cases):
    """Return rows (BLOCK, warps, elements a thread, registers, spills, shared memory, GB/s)."""
    rows = []
    for block, warps in cases:
        x = torch.rand(2**26 // block, block, device=DEVICE)
        y = torch.empty_like(x)

        def launch(x=x, y=y, block=block, warps=warps):
            return row_softmax_kernel[(len(x),)](x, y, block, BLOCK=block, num_warps=warps)

        kernel = launch()
        threads = warps * kernel.metadata.target.warp_size
        ms = triton.testing.do_bench(launch, warmup=10, rep=30, return_mode="median")
        rate = 2 * x.numel() * x.element_size() / ms / 1e6
        counted = (kernel.n_regs, kernel.n_spills, kernel.metadata.shared)
        rows.append((block, warps, block // threads, *counted, f"{rate:.3g}"))
    return rows


if ON_GPU:
    rows = registers([(2**10, 4), (2**13, 4), (2**15, 4), (2**15, 16)])
    head = [
        "BLOCK",
        "warps",
        "elements\nper thread",
        "registers",
        "spills",
        "shared\nbytes",
        "GB/s",
    ]
    print(tabulate(rows, head, intfmt=",", floatfmt=",.4g"))
else:
    print("Registers are counted when a kernel is loaded onto a GPU: this needs one.")

# %%
# Look at the spills, not at the registers. For a kernel that keeps most of its values in memory,
# one release may report few registers, and another one all 255. Against spills, take a smaller
# block, or more warps for the same block. If *shared memory* runs out, the launch fails with
# ``OutOfResources``; there, fewer stages help. Without a GPU, ``PTXAS_OPTIONS=-v`` with
# ``TRITON_DUMP_PTXAS_LOG=1`` lets NVIDIA's assembler report both numbers.
#
# Compiled again and again
# ------------------------
#
# A program can also be slow because it compiles. A function in
# ``triton.knobs.compilation.listener`` is called for each compilation. Which of these numbers of
# columns share a kernel?


def listener(src, cache_hit, **_):
    """Print how ``columns``, the third argument, went into a kernel that is compiled or found."""
    divisible = ["tt.divisibility", 16] in src.attrs.get((2,), [])
    value = f" = {src.constants[2,]}" if (2,) in src.constants else ""
    how = ", divisible by 16" if divisible else ""
    where = "found on disk" if cache_hit else "compiled"
    print(f"    a kernel is {where}, columns: {src.signature['columns']}{value}{how}")


if ON_GPU:
    triton.knobs.compilation.listener = listener
    x = torch.zeros(2**12, device=DEVICE)
    for n in (1000, 1001, 1024, 2048, 1, 2**32):
        print(f"{n:,} columns")
        copy_row_kernel[(1,)](x, x, n, 4096, BLOCK=1024)
    triton.knobs.compilation.listener = None
else:
    print("The interpreter compiles nothing: this experiment needs a GPU.")


# %%
# Numbers that are divisible by 16 share a kernel, and so do those that are not; 1 is a constant,
# and numbers of 64 bits need a kernel of their own.
# :doc:`/programming-guide/chapter-7/questions-compiling` tells what to do about it.
#
# Variables that help to look:
#
# ===================================== ==========================================================
# variable                              effect
# ===================================== ==========================================================
# ``TRITON_KERNEL_DUMP=1``              write every stage of each kernel to ``TRITON_DUMP_DIR``;
#                                       with ``TRITON_ALWAYS_COMPILE=1``
# ``TRITON_KERNEL_OVERRIDE=1``          take stages from files in ``TRITON_OVERRIDE_DIR`` that you
#                                       have edited
# ``TRITON_PRINT_AUTOTUNING=1``         print what autotuning chose, and how long it took
# ``TRITON_FRONT_END_DEBUGGING=1``      raise the compiler's own error, with its traceback
# ``MLIR_ENABLE_DUMP=1``                print the kernel before each pass of the compiler: long
# ``TRITON_CACHE_DIR``                  where compiled kernels are kept
# ===================================== ==========================================================
