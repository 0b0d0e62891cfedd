"""
Debugging kernels
=================

A kernel goes wrong in five ways: it gives wrong numbers, it does not compile, it crashes, it never
ends, or it is slower than it should be. For each there is a tool that says where to look, and the
tools are not the ones that you know from Python: there is no stack trace from inside a GPU, and
what you see is often late, silent or somewhere else.

This chapter plants one bug after another and shows what each tool says about it. The kernels are
small; :doc:`/getting-started/tutorials/01-vector-add` is enough to begin with. If something is
wrong already, begin with this table:

Which tool?
-----------

=============================== ================================== =================================
symptom                         tool                               what it shows
=============================== ================================== =================================
wrong numbers                   a map of the errors, other shapes: which part of the index
                                `Where is it wrong?`_              arithmetic
NaN, or infinity                the same, and a look at masks:     memory without a mask, ∞ - ∞,
                                `Where is it wrong?`_              a division by zero
wrong numbers, place known      `The interpreter`_ with a debugger every value in every block
wrong on the GPU only           `Printing on the GPU`_, or one     the values there
                                more output
``CompilationError``            line and column, counted from      what the compiler does not accept
                                ``def``:
                                `When it does not compile`_;
                                `Printing while compiling`_
a check inside of a kernel      `Checks on the GPU`_               the condition, and the place
"illegal memory access"         ``CUDA_LAUNCH_BLOCKING=1``:        the launch
                                `Errors that come late`_
same, launch known              ``compute-sanitizer``:             the line, and the thread
                                `Out of bounds, and nothing
                                happens`_
right here, wrong elsewhere     ``--tool initcheck``,              uninitialized memory, writes to
                                ``--padding``:                     the neighbour
                                `Out of bounds, and nothing
                                happens`_
wrong from 2³¹ elements on      ``TRITON_DEBUG=1``:                integer overflow
                                `Checks on the GPU`_
different in each run           many programs, whole numbers,      a race
                                reversed order: `Races`_
no end                          ``faulthandler``:                  where Python waits
                                `A kernel that does not end`_
slow                            ``asm``, ``n_spills``: `When it is narrow loads, missing matrix
                                slow: reading the compiled         instructions, spills
                                kernel`_
slow, and the code looks well   :doc:`profilers                    what it waits for, in which
                                <../chapter-5/profiling>`          launch, and in which line
slow at first, or now and then  a compilation listener:            which argument compiles anew
                                `Compiled again and again`_
=============================== ================================== =================================
"""

# %%
# Without a GPU the interpreter is chosen before Triton is imported; what needs a GPU is then
# skipped, and says so.

# sphinx_gallery_fold = "chooses the device"
# sphinx_gallery_fold_output = True
# sphinx_gallery_thumbnail_number = 1
import faulthandler
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import ListedColormap
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.setup import DEVICE, ON_GPU

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

print(f"Triton {triton.__version__}, torch {torch.__version__}")
print(f"Kernels run on: {DEVICE if ON_GPU else 'the CPU, in the interpreter'}")

# %%
# Where is it wrong?
# ------------------
#
# "The result is wrong" is no description of a bug. *Where* it is wrong, is: a kernel computes by
# tiles, so its mistakes have the shape of tiles. Three habits turn a wrong result into a picture.
#
# * **Fill the output with NaN first.** Then an element that was computed wrongly and one that was
#   never written are two different things. (``torch.empty`` often holds the right result of the
#   previous run, which is how a kernel that writes nothing passes its test.)
# * **Take small whole numbers as input.** Sums and products of them are exact in floating point,
#   whatever the order of summation. So the comparison can be ``==``, without a tolerance.
# * **Take awkward shapes**: no multiple of the tile, no two sizes alike.
#
# Here is a matrix product: a tile of *C* is the sum, along K, of products of a tile of *A* and a
# tile of *B*. ``tl.dot(a, b, total)`` multiplies two tiles and adds ``total``. The kernel can be
# told to make one of four mistakes, which everybody makes sooner or later.


# sphinx_gallery_fold = "multiplies with one of four bugs planted, and compares whole numbers"
# sphinx_gallery_show = "matmul_kernel"
@triton.jit(do_not_specialize=["M", "N", "K"])  # one compiled kernel serves all shapes
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BUG: tl.constexpr, TILE: tl.constexpr):
    """Compute *C* = *A* *B*, all row by row; a program computes every n-th of the tiles."""
    across = tl.cdiv(N, TILE)
    tiles = tl.cdiv(M, TILE) * across
    a_stride = K
    if BUG == "grid":
        across = N // TILE  # rounds down
        tiles = (M // TILE) * across
    if BUG == "stride":
        a_stride = M  # rows of A have K elements
    total = tl.zeros((TILE, TILE), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile // across * TILE + tl.arange(0, TILE)[:, None]
        columns = tile % across * TILE + tl.arange(0, TILE)[None, :]
        if BUG != "accumulator":
            total = tl.zeros((TILE, TILE), tl.float32)
        for k in range(0, K, TILE):
            across_a = k + tl.arange(0, TILE)[None, :]
            down_b = k + tl.arange(0, TILE)[:, None]
            a_mask = (rows < M) & (across_a < K)
            b_mask = (down_b < K) & (columns < N)
            if BUG == "mask":
                a_mask = rows < M  # what about the end of a row?
                b_mask = columns < N
            a = tl.load(a_ptr + rows * a_stride + across_a, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + down_b * N + columns, mask=b_mask, other=0.0)
            total = tl.dot(a, b, total)
        tl.store(c_ptr + rows * N + columns, total, mask=(rows < M) & (columns < N))


def whole_numbers(rows, columns, behind=4096):
    """Return a matrix of small whole numbers, with others *behind* it for a bug to read."""
    n = rows * columns
    return torch.randint(-3, 4, (n + behind,), device=DEVICE).half()[:n].view(rows, columns)


def compare(bug, M, N, K, tile=16, programs=4):
    """Return 0 where the product is right, 1 where it is wrong, 2 where it was not written."""
    torch.manual_seed(0)
    a, b = whole_numbers(M, K), whole_numbers(K, N)
    c = torch.full((M, N), float("nan"), device=DEVICE)
    matmul_kernel[(programs,)](a, b, c, M, N, K, BUG=bug, TILE=tile)
    expected = a.double().cpu() @ b.double().cpu()
    c = c.double().cpu()
    return torch.where(c.isnan(), 2, (c != expected).long())


BUGS = ("none", "grid", "stride", "accumulator", "mask")
SHAPE = {"M": 56, "N": 70, "K": 72}
maps = {bug: compare(bug, **SHAPE) for bug in BUGS}
assert not maps["none"].any()
for bug, errors in maps.items():
    wrong, unwritten = (errors == 1).sum().item(), (errors == 2).sum().item()
    print(f"{bug:11}  wrong {wrong:4}  not written {unwritten:4}  of {errors.numel()}")

# %%
# The counts tell the four bugs apart, but do not explain any. So draw them, with the borders of the
# tiles on top:

# sphinx_gallery_fold = "draws where results are wrong"


def draw_errors(maps, tile=16):
    """Draw what :func:`compare` returned: white is right, blue wrong, red never written."""
    colors = ListedColormap(["#ffffff", "#1b6ca8", "#e9a3ab"])
    fig, axes = plt.subplots(2, 2, figsize=(7, 7.2))
    for ax, (name, errors) in zip(axes.flat, maps.items(), strict=True):
        rows, columns = errors.shape
        ax.imshow(errors.numpy(), cmap=colors, vmin=0, vmax=2, extent=(0, columns, rows, 0))
        ax.contourf(  # hatched as well, for those who see no colours
            [0.5 + i for i in range(columns)],
            [0.5 + i for i in range(rows)],
            (errors == 2).float().numpy(),
            levels=[0.5, 1.5],
            colors="none",
            hatches=["////"],
        )
        for x in range(0, columns + 1, tile):
            ax.axvline(x, color="#444444", linewidth=0.8)
        for y in range(0, rows + 1, tile):
            ax.axhline(y, color="#444444", linewidth=0.8)
        ax.set(title=name, xticks=range(0, columns, tile), yticks=range(0, rows, tile))
    fig.suptitle("Where C is wrong (dark),\nand where it was never written (hatched)")
    fig.tight_layout()
    plt.show()


draw_errors({f'bug = "{bug}"': errors for bug, errors in maps.items() if bug != "none"})

# %%
# (Single right elements in a wrong tile are sums that hit the right number by chance.)
#
# * **Bands along the far edges were never written.** Nobody computed those tiles: the number of
#   tiles was rounded down.
# * **Only the first row is right.** Whatever is multiplied by the row number is wrong, and in row 0
#   that does not show. A wrong stride.
# * **The first tile of each program is right** (there were four programs), and all later ones are
#   wrong. Something is carried over from tile to tile: the accumulator is not set to zero again.
# * **Everything is wrong.** Then it is not the place that matters, but the sum. Whether it is the
#   mask, the type of the accumulator or the loop is decided by another experiment: other shapes.
#
# That experiment is a table. Its first shape is one full tile, with one step of the loop. Each of
# the others adds something: a remainder in one dimension, a second step, more tiles than programs.
# A bug that comes and goes with one column sits in the code that only this column needs.

# sphinx_gallery_fold = "tries each bug on six shapes"

shapes = {
    "one tile": (16, 16, 16),
    "M + 1": (17, 16, 16),
    "N + 1": (16, 17, 16),
    "K + 1": (16, 16, 17),
    "2 steps": (16, 16, 32),
    "6 tiles": (32, 48, 16),
}
fingerprints = {
    bug: ["wrong" if compare(bug, *s).any() else "·" for s in shapes.values()] for bug in BUGS
}
print(tabulate([[bug, *row] for bug, row in fingerprints.items()], ["bug", *shapes]))

# %%
# ``"mask"`` fails if and only if K leaves a remainder: it reads past the end of each row, which is
# the beginning of the next one.
#
# Patterns and their likely causes:
#
# ========================================== ====================================================
# what the map shows                         what to suspect
# ========================================== ====================================================
# all outputs zero, or as they were filled   the kernel wrote nothing here: a mask that is never
#                                            true, an empty grid, or a copy was written to
#                                            (``contiguous()`` makes one)
# bands along the far edges, not written     the grid: ``//`` where ``triton.cdiv`` is needed
# bands along the far edges, wrong           a mask with the wrong size, or with ``<=``
# wrong at the *near* edge of later rows     a store without a mask, running into the next row
# only row 0 or column 0 right               the stride of that dimension
# right for square shapes only               two sizes or two strides exchanged
# whole tiles, scattered                     the arithmetic from program id to tile
# the first tile of each program right       a value that is carried over from tile to tile
# everything, and only with remainders in K  a mask along the summed dimension, or its ``other``
# everything, a little, growing with K       the accumulator is too narrow, or ``tl.dot`` rounds
#                                            its inputs to tf32
# everything from element 2³¹ on             offsets that need 64 bits
# NaN where the reference has numbers        a row that is masked off altogether, as in ∞ - ∞;
#                                            0 · NaN from memory read without a mask
# another pattern with each run              a race, or memory that nobody initialized
# ========================================== ====================================================
#
# Experiments in a process of their own
# -------------------------------------
#
# From here on things crash, and a process in which a kernel has crashed can no longer use the GPU.
# Besides, some environment variables count only if they are set before Python starts. So each
# experiment gets its own Python process: ``run(main, kernel)`` writes the two functions into a
# script, executes it, and prints what you would see in a terminal; ``before=["A=1"]`` types ``A=1``
# in front of the command. **You can skip the code of this section**: it has nothing to do with
# Triton.

# sphinx_gallery_fold = "puts the script of an experiment together"

SCRATCH = tempfile.TemporaryDirectory(prefix="debugging-")
IMPORTS = """\
import faulthandler, inspect, os, re, signal
from collections import Counter
from pathlib import Path

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


def compose(main, *others):
    """Return a script that defines *others* and *main*, and calls *main*."""
    sources = [
        part if isinstance(part, str) else inspect.getsource(getattr(part, "fn", part))
        for part in (*others, main)
    ]
    imports = [IMPORTS, WITH_TORCH] if "torch." in "".join(sources) else [IMPORTS]
    return "\n\n".join([*imports, *sources, f"{main.__name__}()\n"])


# %%

# sphinx_gallery_fold = "drops and shortens lines of what a process printed"


def tidy(text, script, keep="", fold=False):
    """Return the lines of *text* that matter, in a form that is the same on each machine.

    Frames of a traceback in libraries are left out, and addresses and folders are shortened. A
    line that names a line of *script* without showing it gets it added.

    Args:
        text: What a process printed.
        script: The file that it executed.
        keep: A regular expression; lines that it does not match are left out.
        fold: Whether lines that differ in nothing but the thread are counted instead of repeated.
    """
    source = script.read_text().splitlines()
    lines, in_frame, ours = [], False, True
    for line in text.splitlines():
        if re.match(r"\s*File ", line):
            in_frame, ours = True, str(script.parent) in line
        elif in_frame and not line.startswith("    "):
            in_frame, ours = False, True
        underline = in_frame and re.fullmatch(r"[\s~^]*", line)
        if not ours or underline or not re.search(keep, line):
            continue
        line = line.replace(f"{script.parent}{os.sep}", "").rstrip()
        line = re.sub(r"0x[0-9a-f]{6,}", "0x…", line)
        if fold:
            line = re.sub(r"(thread:? [\[(])[\d,]+", r"\1…", line)
        named = re.search(rf"{script.name}(?:\", line (\d+) |:(\d+))", line)
        lines.append(
            f"{line}\n    {source[int(named[1] or named[2]) - 1].strip()}" if named else line
        )
    if fold:
        counted = [(*line.split("\n", 1), n) for line, n in Counter(lines).items()]
        lines = [
            "\n".join([f"{first}  ({n} times)" if n > 1 else first, *more])
            for first, *more, n in counted
        ]
    return [
        short
        for line in "\n".join(lines).splitlines()
        for short in textwrap.wrap(line, 104, subsequent_indent="    ") or [""]
    ]


# %%

# sphinx_gallery_fold = "starts an experiment, and shows what it printed"


def start(main, *others, before=("",)):
    """Start *main* in a Python process of its own.

    Args:
        main: A function without arguments.
        others: The kernels and functions that it uses, and lines of code as strings.
        before: What is typed in front of ``python``: environment variables, or a checker. Several
            strings make several processes.

    Returns:
        tuple: The script, and (what was typed, process) for each process.
    """
    script = Path(SCRATCH.name, f"{main.__name__}.py")
    script.write_text(compose(main, *others))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    inherited |= {"TRITON_CACHE_DIR": f"{SCRATCH.name}/cache", "PYTHONWARNINGS": "ignore"}
    if not os.path.exists(importlib.util.cache_from_source(torch.__file__)):
        # Nobody has kept the bytecode of PyTorch. Keep it here, or each import takes seconds more.
        inherited |= {"PYTHONPYCACHEPREFIX": f"{SCRATCH.name}/pyc", "PYTHONDONTWRITEBYTECODE": ""}
    processes = []
    for typed in before:
        words = shlex.split(typed)
        added = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        process = subprocess.Popen(
            [*words[len(added) :], sys.executable, script.name],
            env=inherited | added,
            cwd=script.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append((typed, process))
    return script, processes


def show(experiment, stdin="", keep="", fold=False, seconds=100):
    """Print what a terminal would show of what :func:`start` started.

    Args:
        experiment: What ``start`` returned.
        stdin: What is typed while it runs.
        keep: See :func:`tidy`.
        fold: See :func:`tidy`.
        seconds: After so long a process is killed.
    """
    script, processes = experiment
    for typed, process in processes:
        try:
            output, _ = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        for line in stdin.splitlines():  # a terminal shows what is typed, a pipe does not
            output = output.replace("(Pdb) ", f"(pdb) {line}\n", 1)
        status = process.returncode
        print(f"$ {typed} python {script.name}".replace("$  ", "$ "))
        print(*tidy(output, script, keep, fold), sep="\n")
        print(f"[{signal.Signals(-status).name if status < 0 else f'exit status {status}'}]\n")


def run(main, *others, before=("",), **how):
    """Start *main* as :func:`start` does, and :func:`show` it."""
    show(start(main, *others, before=before), **how)


# %%
# When it does not compile
# ------------------------
#
# Triton compiles a kernel at its first launch, and again for each new combination of argument types
# and :term:`compile-time constants <compile-time constant>`. So what is wrong with its *code*
# surfaces as a Python exception at the launch. To compile, no GPU is needed:
# :py:func:`triton.compile` takes a target by name, also one that you do not own, and the type of
# each argument. Here is what it says of six kernels that it refuses.

# sphinx_gallery_fold = "has the six kernels, compiles them, and prints why each is refused"
TARGET = GPUTarget("hip", "gfx942", 64) if torch.version.hip else GPUTarget("cuda", 90, 32)
print(f"Compiling for {TARGET}")


@triton.jit
def block_of_12(x_ptr):
    """Take a block whose length is no power of two."""
    offsets = tl.arange(0, 12)
    tl.store(x_ptr + offsets, offsets)


@triton.jit
def two_lengths(x_ptr):
    """Add blocks of two lengths."""
    rows = tl.arange(0, 16)
    columns = tl.arange(0, 32)
    tl.store(x_ptr + rows * 32 + columns, 0)


@triton.jit
def no_constant(x_ptr, BLOCK):
    """Give a block a length that is known at run time."""
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, offsets)


@triton.jit
def changing_type(x_ptr):
    """Start a sum with an integer, and add floating-point numbers."""
    total = 0
    for i in range(4):
        total += tl.load(x_ptr + i) * 0.5
    tl.store(x_ptr, total)


@triton.jit
def one_branch(x_ptr, n):
    """Give a variable a value in one of two branches."""
    if n > 3:
        value = 1
    tl.store(x_ptr, value)


@triton.jit
def global_number(x_ptr):
    """Use a global variable."""
    tl.store(x_ptr, NUMBER)


NUMBER = 3
FAULTY = (block_of_12, two_lengths, no_constant, changing_type, one_branch, global_number)


def refused():
    """Compile each kernel, and print what Triton says."""
    types = {"x_ptr": "*i32", "n": "i32", "BLOCK": "i32"}
    for name in NAMES:
        kernel = globals()[name]
        source = ASTSource(kernel, {argument: types[argument] for argument in kernel.arg_names})
        try:
            triton.compile(source, target=TARGET)
        except triton.CompilationError as error:
            print(error, end="\n\n")


NAMES = [kernel.__name__ for kernel in FAULTY]
CONSTANTS = f"{NUMBER = }\n{NAMES = }\n{TARGET = }"
run(refused, CONSTANTS, *FAULTY)

# %%
# How to read such a message:
#
# * ``at 3:14`` is line 3, column 14 **of the kernel**, counted from its ``def``, and not of the
#   file. The listing ends with that line, and ``^`` marks the place.
# * The last line says what is wrong in the words of the compiler.
# * If the error is in a function that the kernel calls, you get two messages, joined by "The above
#   exception was the direct cause". Read the first: it is about the function.
#
# What to do about the six: take the next power of two and a mask; give the blocks shapes that
# broadcast, ``rows[:, None]`` and ``columns[None, :]``; annotate the parameter with
# ``tl.constexpr``; begin the sum with ``0.0``; give the variable a value before the ``if``; pass
# the number as an argument, or make it a ``tl.constexpr``.
#
# A crash of the compiler itself, or an error that speaks of ``PassManager`` or ``ptxas``, is not
# about your line. Update Triton, then halve the kernel until the error goes away.
#
# Printing while compiling
# ------------------------
#
# The compiler knows a block's shape and type, and the values of all compile-time constants, before
# anything runs. :py:func:`triton.language.static_print` prints what it knows, and
# :py:func:`triton.language.static_assert` stops it with your own words. Neither costs anything
# later, as nothing of them is left in the kernel. We compile for three blocks, and for one of them
# twice:

# sphinx_gallery_fold = "compiles the kernel in a process of its own"
# sphinx_gallery_show = "scale_kernel"


@triton.jit
def scale_kernel(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    """Multiply *x* by *factor*."""
    tl.static_assert(BLOCK >= 32, "a smaller block wastes threads")
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = x * factor
    tl.static_print("BLOCK =", BLOCK, " x:", x.dtype, x.shape, " y:", y.dtype)
    tl.store(y_ptr + offsets, y, mask=offsets < n)


def compile_scale():
    """Compile ``scale_kernel`` for three blocks, and for one of them twice."""
    signature = {"x_ptr": "*fp16", "y_ptr": "*fp16", "factor": "fp32", "n": "i32"}
    for block in (256, 512, 256, 16):
        source = ASTSource(scale_kernel, signature | {"BLOCK": "constexpr"}, {"BLOCK": block})
        try:
            triton.compile(source, target=TARGET)
        except triton.CompilationError as error:
            print(f"BLOCK = {block} is refused:", str(error).splitlines()[-1])


run(compile_scale, CONSTANTS, scale_kernel)

# %%
# Look at ``y``: fp16 times a scalar argument of fp32 is fp32. Types that are not what you thought
# are a common reason for a slow kernel.
#
# ``BLOCK = 256`` was asked for twice and printed once. Triton keeps compiled kernels, in memory and
# on disk, and a kernel that is not compiled again prints nothing. The second time you run your
# script, it prints none of these lines:

run(compile_scale, CONSTANTS, scale_kernel, before=["", "TRITON_ALWAYS_COMPILE=1"])

# %%
# ``TRITON_ALWAYS_COMPILE=1`` compiles in spite of what is kept: use it whenever you wait in vain
# for a line, or doubt that your last change has been compiled at all.
#
# The interpreter
# ---------------
#
# With ``TRITON_INTERPRET=1`` in the environment before Triton is imported, kernels are not
# compiled. The :term:`interpreter` executes them on the CPU, one program after the other, and each
# block is a NumPy array. So whatever you can do in Python, you can do in the middle of a kernel:
# print with an f-string, ask for the program id in an ``if``, and stop in a debugger and step
# through the kernel.
#
# Here are two kernels with bugs. The rows of a softmax should add up to 1, and do not. We stop in
# row 1, whose three elements are all alike, and look. The other kernel copies the first column of a
# matrix, and is given a stride that leads far away.


# sphinx_gallery_fold = "has the other kernel, and launches both in the interpreter"
# sphinx_gallery_show = "softmax_kernel"
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute the softmax of one row of *n* elements."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0)
    numerator = tl.exp(x - tl.max(x, axis=0))
    if row == 1:
        breakpoint()
    denominator = tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * n + columns, numerator / denominator, mask=columns < n)


def softmax():
    """Compute the softmax of rows of 3 elements, with blocks of 4."""
    x = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]])
    y = torch.zeros_like(x)
    softmax_kernel[(2,)](x, y, 3, BLOCK=4)
    print("sums of the rows:", y.sum(dim=1).tolist())


@triton.jit
def first_column_kernel(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    """Copy the first column of a matrix."""
    rows = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows * stride)
    tl.store(y_ptr + rows, x)


def first_column():
    """Pass the stride of another, very large matrix."""
    x, y = torch.zeros(8, 8), torch.zeros(8)
    first_column_kernel[(1,)](x, y, 2**40, BLOCK=8)


INTERPRET = "TRITON_INTERPRET=1"
debugger = start(softmax, softmax_kernel, before=[INTERPRET])
crash = start(first_column, first_column_kernel, before=[f"{INTERPRET} PYTHONFAULTHANDLER=1"])
typed = "p columns < n\np x\np numerator\nc\n"  # p prints an expression, c continues
show(debugger, stdin=typed)
show(crash, keep="Fatal|File")

# %%
# In the softmax, the last element of ``numerator`` is not 0, although there is no such element in
# the row. ``other=0.0`` is neutral for a sum, but here it goes through a maximum and an exponential
# first. It has to be ``-float("inf")``.
#
# A pointer has no length in the interpreter either. What lies next to a tensor is read and written
# without a word, and what lies far away kills Python. But with ``PYTHONFAULTHANDLER=1``, Python
# says in which line it was killed, and one can stop above that line and look.
#
# What it does not tell you
# ~~~~~~~~~~~~~~~~~~~~~~~~~
#
# The interpreter is a second implementation of the language, and not a GPU on your desk. This runs
# the six kernels that the compiler refused, and then tries some things of which you may expect too
# much:


# sphinx_gallery_fold = "tries what the interpreter can do, and what it does otherwise"
# sphinx_gallery_fold_output = True
@triton.jit
def double_kernel(x_ptr, y_ptr):
    """Compute ``y = x + x``."""
    offsets = tl.arange(0, 4)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x + x)


@triton.jit
def assertions_kernel(x_ptr):
    """Check a condition that does not hold, in two ways."""
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.device_assert(x < 0, "does not hold")
    assert x < 0, "does not hold"


@triton.jit
def scalar_assertion_kernel(x_ptr):
    """Check the same condition, reduced to one value."""
    x = tl.load(x_ptr + tl.arange(0, 4))
    assert tl.max(x, axis=0) < 0, "does not hold"


@triton.jit
def range_kernel(x_ptr, n):
    """Loop to a bound that is an argument."""
    for i in range(n):
        tl.store(x_ptr + i, 2.0)


@triton.jit
def libdevice_kernel(x_ptr):
    """Call a function of the GPU's mathematical library."""
    tl.store(x_ptr, libdevice.tanh(tl.load(x_ptr)))


@triton.jit
def empty_kernel(BLOCK: tl.constexpr):
    """Do nothing."""


def limits():
    """Try things in the interpreter, and print what becomes of them."""

    def attempt(what, function, *arguments):
        try:
            outcome = function(*arguments)
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        print(f"{what:27} {outcome}")

    def launch(kernel, x):
        arguments = {"x_ptr": x, "n": 4, "BLOCK": 32}
        kernel[(1,)](**{name: arguments[name] for name in kernel.arg_names})
        return "runs"

    def double(dtype):
        x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=dtype)
        y = torch.empty_like(x)
        double_kernel[(1,)](x, y)
        return [f"{v:.3g}" for v in y.tolist()]

    for name in NAMES:
        attempt(name, launch, globals()[name], torch.ones(32, dtype=torch.int32))
    print()
    x = torch.ones(32)
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    attempt("x + x in fp16", double, torch.float16)
    attempt("x + x in bf16", double, torch.bfloat16)
    attempt("assertions about a block", launch, assertions_kernel, x)
    attempt("an assertion about a scalar", launch, scalar_assertion_kernel, x)
    attempt("range(n)", launch, range_kernel, x)
    attempt("libdevice", launch, libdevice_kernel, x)
    attempt("kernel.warmup", partial(empty_kernel.warmup, 64, grid=(1,)))
    attempt("triton.autotune", triton.autotune(configs, key=[])(empty_kernel)[(1,)])
    attempt("do_bench", triton.testing.do_bench, lambda: None)


NO_GPU = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"
run(
    limits,
    "from triton.language.extra import libdevice",
    CONSTANTS,
    *FAULTY,
    double_kernel,
    assertions_kernel,
    scalar_assertion_kernel,
    range_kernel,
    libdevice_kernel,
    empty_kernel,
    before=[f"{INTERPRET} {NO_GPU}=''"],
)

# %%
# What raises an error is harmless, since you notice. Dangerous is what goes wrong in silence (this
# is so in Triton 3.6 to 3.9):
#
# * **It accepts kernels that the compiler refuses**, such as the last three of the six.
# * **bf16 is wrong.** The numbers are kept as integers of 16 bits, and are added as such.
# * **Checks do not check.** ``tl.device_assert`` is skipped. ``assert`` takes every block of
#   several elements for true, and so does ``if``. Reduce the condition to a scalar, as
#   ``scalar_assertion_kernel`` does: that is checked here, and also on the GPU if checks are
#   switched on there (see below).
# * **Nothing is parallel.** One program has finished before the next one begins. What programs do
#   to each other on a GPU does not happen here, or always happens in the same way.
# * **It knows nothing of the GPU**: not its speed, not its shared memory, and not its rounding.
#   :py:func:`triton.language.dot` computes with fp32 in full here, and may use tf32 there.
#
# Of the rest: functions of the GPU's mathematical library, ``libdevice``, have no counterpart here.
# ``warmup``, which compiles a kernel without a launch, compiles nothing. Autotuning and
# ``do_bench`` ask for the driver of a GPU; if there is one, they time the interpreter, which is
# worse than an error. And ``range`` with a bound that is an argument fails in Triton 3.6.0 with
# NumPy 2.4 or newer; make the bound a ``tl.constexpr``, or take a newer Triton or an older NumPy.
#
# It is also slow: its time grows with the number of programs, much less with the size of a block.
# So take few programs and small shapes. With all that, it is the tool to begin with: a bug that
# shows in the interpreter can be looked at.
#
# Printing on the GPU
# -------------------
#
# :py:func:`triton.language.device_print` prints from the kernel while it runs. (``print`` in a
# kernel is the same function.) It takes a text and values; the text has to be known when the kernel
# is compiled, so an f-string with values in it will not do. Identical lines are counted here:


# sphinx_gallery_fold = "launches both, and prints"
# sphinx_gallery_show = "sum_kernel"
@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Write the sum of each block of *x*."""
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    total = tl.sum(x, axis=0)
    if pid == 2:
        tl.device_print("x", x)
        tl.device_print("total", total)
    tl.store(y_ptr + pid, total)


@triton.jit
def flood_kernel(BLOCK: tl.constexpr):
    """Print a block from each program."""
    tl.device_print("flood", tl.arange(0, BLOCK))


def print_some():
    """Print from one program of three."""
    x = torch.arange(21.0, device=DEVICE)
    y = torch.empty(3, device=DEVICE)
    sum_kernel[(3,)](x, y, 21, BLOCK=8, num_warps=1)
    print("result:", y.tolist())


def print_much():
    """Print 64 elements from each of 2000 programs."""
    flood_kernel[(2000,)](BLOCK=64, num_warps=1)
    torch.accelerator.synchronize()


both = ["", INTERPRET] if ON_GPU else [INTERPRET]
run(print_some, sum_kernel, before=both, fold=True)
if ON_GPU:
    _, [(_, process)] = start(print_much, flood_kernel)
    printed, _ = process.communicate()
    print(f"Lines from flood_kernel: {printed.count('flood')} of {2000 * 64}")
else:
    print("What the GPU prints, and what it loses, can only be seen on one.")

# %%
# In the interpreter, a line holds the whole block. On a GPU, each element has a line, which begins
# with the program, ``pid``, and the place in the block, ``idx``. What to know:
#
# * **Print from one program only.** The ``if`` in ``sum_kernel`` does that. On NVIDIA's GPUs, the
#   buffer for what is printed is limited, and what does not fit is lost without notice, as from
#   ``flood_kernel``. (The buffer can be made larger; see the reference of ``device_print``.)
# * **One line can come several times.** If a block has fewer elements than the program has threads,
#   some threads hold the same element, and each prints it. A scalar is held by all of them.
# * **The order means nothing.** Lines of different programs and warps are mixed, and they come
#   late: perhaps not before Python waits for the GPU. In a notebook they may come out in the
#   terminal in which it was started.
# * **It changes the kernel.** Printing costs registers and time. A race may disappear while you
#   watch it.
#
# Often the better way is to give the kernel one more argument, a tensor into which it stores what
# you want to know. That is exact, complete, and compared with a reference in one line.
#
# Checks on the GPU
# -----------------
#
# :py:func:`triton.language.device_assert` stops a kernel in which a condition does not hold.
# (``assert`` with a text is the same.) It is compiled in on demand only: with ``TRITON_DEBUG=1`` in
# the environment for all kernels, with ``@triton.jit(debug=True)`` for one kernel, or with
# ``debug=True`` at the launch. Otherwise it costs nothing, so it can stay in the kernel. Here are a
# kernel with such a check, and another one without.

# sphinx_gallery_fold = "asks for element 100 of a hundred, and for row 50 000"
# sphinx_gallery_fold_output = True
# sphinx_gallery_show = "gather_kernel, row_start_kernel"


@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute ``y[i] = x[index[i]]``."""
    offsets = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets)
    tl.device_assert((index >= 0) & (index < n), "index out of range")
    tl.store(y_ptr + offsets, tl.load(x_ptr + index))


def gather():
    """Ask for element 100 of a vector that has 100 elements. Then try to go on."""
    x = torch.ones(100, device=DEVICE)
    index = torch.tensor([3, 1, 100, 2], device=DEVICE)
    y = torch.empty(4, device=DEVICE)
    gather_kernel[(1,)](x, index, y, 100, BLOCK=4)
    for what, action in (("y", y.tolist), ("a new tensor", lambda: torch.ones(2, device=DEVICE))):
        try:
            print(f"{what}: {action()}")
        except RuntimeError as error:
            print(f"{what}: {type(error).__name__}: {str(error).splitlines()[0]}")


@triton.jit
def row_start_kernel(place_ptr, row, stride):
    """Write where a row starts."""
    tl.store(place_ptr, row * stride)


def row_start():
    """Ask for row 50 000 of a matrix with 50 000 columns."""
    place = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    row_start_kernel[(1,)](place, 50_000, 50_000)
    print("row 50 000 starts at", place.item())


DEBUG = "TRITON_DEBUG=1"
if ON_GPU:
    index_check = start(gather, gather_kernel, before=["", DEBUG])
    overflow_check = start(row_start, row_start_kernel, before=["", DEBUG])
    show(index_check, fold=True)
    show(overflow_check, keep=r"overflow|row|^\S*Error", fold=True)
else:
    print("The interpreter skips device_assert, and integers wrap around in it: this needs a GPU.")

# %%
# Without the check, element 100 was read from the memory behind *x*, and nothing happened. With it,
# there is a message. On NVIDIA's GPUs it has file and line, the program (``block``) and the thread;
# every thread that finds the condition violated says so. And **the process is lost**: whatever it
# asks the GPU for from now on fails with the same error, also when it has nothing to do with the
# kernel. (With AMD's GPUs it may be ended at once.) In a notebook, restart Python.
#
# The second kernel has no check of its own. ``TRITON_DEBUG=1`` brings one: additions, subtractions
# and multiplications of integers of up to 32 bits, which in a kernel are mostly offsets, are
# checked for overflow. The remedy is ``row.to(tl.int64) * stride``. In the interpreter, NumPy wraps
# around just as silently as the GPU does without the check.
#
# Errors that come late
# ---------------------
#
# A launch puts a kernel into a queue, called a *stream*, and returns. When the kernel fails, Python
# is somewhere else by now, and the error is raised by a later call that has to wait for the GPU or
# just asks how it is. ``late`` shows that. (``careless`` is for the next section, and started here
# because the checkers take their time.)


# sphinx_gallery_fold = "launches a kernel that writes elsewhere, and goes on"
# sphinx_gallery_show = "write_kernel, late"
@triton.jit
def write_kernel(x_ptr, offset):
    """Write 128 ones."""
    offsets = offset + tl.arange(0, 128)
    tl.store(x_ptr + offsets, 1.0)


def late():
    """Write far away from *x*, and go on with *y*."""
    x = torch.zeros(128, device=DEVICE)
    write_kernel[(1,)](x, 2**40)
    y = torch.arange(128, device=DEVICE)
    print("on with y")
    print(y.tolist())


@triton.jit
def count_kernel(x_ptr):
    """Add one to each of 128 elements."""
    offsets = tl.arange(0, 128)
    tl.atomic_add(x_ptr + offsets, 1.0)


def careless():
    """Write 128 elements behind x, where y may be; count in z, which was not set to zero."""
    x = torch.zeros(128, device=DEVICE)
    y = torch.zeros(128, device=DEVICE)
    z = torch.empty(128, device=DEVICE)
    try:
        write_kernel[(1,)](x, 128)
        count_kernel[(1,)](z)
        torch.accelerator.synchronize()
        print("sum of x:", x.sum().item(), " sum of y:", y.sum().item())
    except RuntimeError as error:
        print("RuntimeError:", str(error).splitlines()[0], flush=True)
        os._exit(1)  # without freeing memory, which fails after an error and takes long


BLOCKING = "AMD_SERIALIZE_KERNEL=3" if torch.version.hip else "CUDA_LAUNCH_BLOCKING=1"
checkers = [""]
if shutil.which("compute-sanitizer") and not torch.version.hip:
    memcheck = "PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer"
    checkers += [memcheck, f"{memcheck} --padding 512", f"{memcheck} --tool initcheck"]
if ON_GPU:
    next_section = start(careless, write_kernel, count_kernel, before=checkers)
    run(late, write_kernel, before=["", BLOCKING], keep=r"File|^    |^\S*Error|on with")
else:
    print("In the interpreter nothing comes late: this experiment needs a GPU.")

# %%
# The traceback of the first run accuses ``y``, which is innocent. With ``CUDA_LAUNCH_BLOCKING=1``,
# each launch waits for its kernel, and the traceback names the launch. This is the first thing to
# do about any error that comes from the GPU; it costs nothing but speed. A kernel that goes right
# when launches wait, and wrong when they do not, may lack a synchronization between two streams, or
# use a tensor that was freed.
#
# With PyTorch for AMD's GPUs, the variable is ``AMD_SERIALIZE_KERNEL=3``. There the process may be
# ended without a traceback; add ``PYTHONFAULTHANDLER=1``, as for the interpreter.
#
# Now you know the kernel, but not yet the line in it. Make the case small and run it in the
# interpreter, as above, or take the tool of the next section.
#
# Out of bounds, and nothing happens
# ----------------------------------
#
# Most accesses beyond a tensor are not punished at all. PyTorch asks the driver for large pieces of
# memory and hands out parts of them, so next to a tensor lies another one, or a part that is free.
# The script ``careless`` writes with ``write_kernel`` behind a tensor, and it counts in one that
# nobody has set to zero.
#
# On NVIDIA's GPUs, ``compute-sanitizer``, a part of the CUDA toolkit, watches each access of each
# thread. It compares the address with what the *driver* has handed out, so PyTorch has to be told
# to ask the driver for every single tensor: ``PYTORCH_NO_CUDA_MEMORY_CACHING=1``. Here is the same
# script without the tool, and with it in three ways. (Of the long reports we keep the lines that
# say what and where, and count those that only differ in the thread.)

# sphinx_gallery_fold = "shows what the four runs printed"


if ON_GPU:
    telling = r"^sum|^Runtime|(Error|Invalid|Uninit|SUMMARY: \d+ errors?$)|_kernel.* in |not supp"
    show(next_section, keep=telling, fold=True)
    if len(checkers) == 1:
        print("compute-sanitizer needs an NVIDIA GPU, and is not here.")
else:
    print("How PyTorch hands out the memory of a GPU can only be seen on one.")

# %%
# How to read this:
#
# * Where nobody watches, nothing is reported. If the sum of *y* is not 0, then *y* has changed
#   although the kernel never heard of it.
# * ``memcheck``, which is what runs if no tool is named, says in which line of which kernel an
#   address belongs to no tensor at all. That has a blind spot: the address behind *x* may well
#   belong to *y*, and then it is as good as any. ``--padding 512`` leaves a gap behind each tensor
#   for the kernel to fall into. After such an error, the process has lost the GPU, as above.
# * ``initcheck`` finds reads of memory that nobody has written: here the ``torch.empty`` that
#   should be a ``torch.zeros``.
# * ``racecheck`` looks at shared memory only. There it is Triton that places the barriers, so the
#   tool checks the compiler rather than your kernel.
#
# A process under its control is many times slower, so take the smallest case that fails. Lines are
# only known as long as ``TRITON_DISABLE_LINE_INFO`` is not set. Some virtual machines do not let
# the tool in; then it says "Device not supported".
#
# On AMD's GPUs there is an AddressSanitizer; Triton compiles kernels for it with
# ``TRITON_ENABLE_ASAN=1``, and it needs a ROCm that was built for it.
#
# Races
# -----
#
# Programs run at the same time, in any order. If two of them touch one element and one of them
# writes it, the result depends on who comes first. Here are two kernels of that kind. In the first,
# all programs add to one total, with or without an :term:`atomic operation`. In the second, each
# moves its block one place on; the first element that it reads is the last one that its neighbour
# writes. We launch them over and over, as few and as many programs.


# sphinx_gallery_fold = "repeats both, and counts what is missing"
# sphinx_gallery_show = "total_kernel, shift_kernel"
@triton.jit
def total_kernel(x_ptr, total_ptr, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    """Add one block to a total that all programs share."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + offsets), axis=0)
    if ATOMIC:
        tl.atomic_add(total_ptr, part)
    else:
        tl.store(total_ptr, tl.load(total_ptr) + part)


@triton.jit
def shift_kernel(x_ptr, n, REVERSED: tl.constexpr, BLOCK: tl.constexpr):
    """Move the elements of *x* one place on, in place."""
    pid = tl.program_id(0)
    if REVERSED:
        pid = tl.num_programs(0) - 1 - pid
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = (offsets > 0) & (offsets < n)
    x = tl.load(x_ptr + offsets - 1, mask=mask)
    tl.store(x_ptr + offsets, x, mask=mask)


def missing_from_total(atomic, programs, block=128):
    """Count ones with one program for each block; return how many were not counted."""
    x = torch.ones(programs * block, device=DEVICE)
    total = torch.zeros(1, device=DEVICE)
    total_kernel[(programs,)](x, total, ATOMIC=atomic, BLOCK=block)
    return programs * block - int(total)


def misplaced(reverse, programs, block=128):
    """Shift a vector; return how many elements are not where they should be."""
    x = torch.arange(programs * block, device=DEVICE)
    expected = x[:-1].clone()
    shift_kernel[(programs,)](x, len(x), REVERSED=reverse, BLOCK=block)
    return (x[1:] != expected).sum().item()


def repeat(function, cases, rounds):
    """Return rows (function, argument, programs, how often right, different results, worst)."""
    rows = []
    for argument, programs in cases:
        results = [function(argument, programs) for _ in range(rounds)]
        name = f"{function.__name__}({argument})"
        right = f"{results.count(0)} of {rounds}"
        rows.append((name, programs, right, len(set(results)), max(results)))
    return rows


rounds = 100 if ON_GPU else 2
cases = [(flag, n) for flag in (False, True) for n in ([64, 2**14] if ON_GPU else [64])]
rows = repeat(missing_from_total, cases, rounds) + repeat(misplaced, cases, rounds)
print(tabulate(rows, ["", "programs", "right", "different\nresults", "worst"]))

# %%
# What a race looks like:
#
# * **The result differs from run to run**, on the same input. Hardly anything else does that, apart
#   from memory that nobody initialized. (Sums of fractions by ``tl.atomic_add`` also differ, in
#   their last digits. Whole numbers as input tell the two apart.)
# * **Small cases can be right by luck.** A test should have more programs than the GPU can run at
#   once, and repeat.
# * **The interpreter shows one order, and no overlap.** It never finds the lost additions. The
#   second kernel is always wrong there, and with ``REVERSED`` always right, because then each
#   element is read before it is overwritten. So reversing the order is a cheap test: a kernel whose
#   result changes with the order of its programs is not correct, however often it has been right.
#
# The remedies: an atomic operation where programs meet in one element; separate input and output
# instead of working in place; and a second launch where one program needs what others have written,
# since a kernel begins after the one before it in its stream has ended.
#
# A kernel that does not end
# --------------------------
#
# Kernels hang when one program waits for another: for a lock that is never released, or for a
# result of a program that has not started because the waiting ones occupy the GPU: a **deadlock**.
# (An infinite loop, a ``while`` whose condition never changes, will do, too.) You see a call that
# never returns, and a Python that does not answer to Ctrl-C. Ask it where it is: the standard
# module ``faulthandler`` prints a traceback upon a signal.


# sphinx_gallery_fold = "launches it, and has an alarm ask where Python is"
# sphinx_gallery_show = "wait_kernel"
@triton.jit
def wait_kernel(flag_ptr, limit):
    """Wait until another program raises a flag. (A real one would not give up at a limit.)"""
    turns = 0
    flag = tl.load(flag_ptr, volatile=True)
    while (flag == 0) & (turns < limit):
        flag = tl.load(flag_ptr, volatile=True)
        turns += 1
    tl.store(flag_ptr, turns)


def wait():
    """Wait for a flag that nobody raises. An alarm shows where Python is, and ends it."""
    flag = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(2 if ON_GPU else 1)  # seconds
    wait_kernel[(1,)](flag, 50_000_000)
    print("launched", flush=True)
    print("turns:", flag.item())


run(wait, wait_kernel, before=both, keep="launched|turns|File")

# %%
# On the GPU, Python was waiting for the result; which kernel it is waiting for is among the
# launches before that line, and ``CUDA_LAUNCH_BLOCKING=1`` finds it. In the interpreter, the line
# is *in* the kernel. (If you have no alarm in your script: start it with ``PYTHONFAULTHANDLER=1``,
# and send it ``kill -ABRT`` when it hangs.)
#
# When it is slow: reading the compiled kernel
# --------------------------------------------
#
# First be sure that it *is* slow: :doc:`/programming-guide/chapter-4/measuring` shows how. Then
# read what the GPU executes. A launch returns the compiled kernel, and so does
# :py:func:`triton.compile`; its ``asm`` holds the text of each stage of the translation. Here is
# the load of ``scale_kernel`` on its way down, for two GPUs of which you need to have neither.

# sphinx_gallery_fold = "compiles for two GPUs, and prints the load in each stage"


def stages():
    """Print the load of ``scale_kernel`` in each stage."""
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "factor": "fp32", "n": "i32"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in (0, 1, 3)}
    for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
        source = ASTSource(
            scale_kernel, types | {"BLOCK": "constexpr"}, {"BLOCK": 1024}, attrs=aligned
        )
        asm = triton.compile(source, target=target).asm
        print(f"{target.backend}, {target.arch}")
        for stage in ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn"):
            if stage in asm or (stage == "sass" and target.backend == "cuda"):
                load = re.search(r"(tt\.load|\bload <|ld\.global|LDG|global_load).*", asm[stage])
                print(f"  {stage:7} {re.sub(r' loc.*', '', load[0])[:66].strip()}")


run(stages, scale_kernel, keep="^(?!nvdisasm|BLOCK)")

# %%
# What each stage is good for:
#
# ========== ======================================================================================
# stage      what to look for
# ========== ======================================================================================
# ``ttir``   Your kernel with all types and shapes. Is each value what you think it is?
# ``ttgir``  The same with *layouts* such as ``#blocked``, which say what each thread holds. A
#            ``ttg.convert_layout`` moves a block from one layout to another, mostly through shared
#            memory: one in the inner loop costs. Copies that are pipelined are called ``async``.
# ``llir``   LLVM's language, for one thread.
# ``ptx``    NVIDIA's portable assembly, with as many registers as it likes.
# ``sass``   What NVIDIA's GPU executes, disassembled when you ask for it. ``LDL`` and ``STL`` move
#            spilled registers.
# ``amdgcn`` What AMD's GPU executes. Its last lines count registers and spills.
# ========== ======================================================================================
#
# Which line became what?
# ~~~~~~~~~~~~~~~~~~~~~~~
#
# PTX and amdgcn say in comments which line of your file each instruction comes from. So we can
# count the instructions of each line and print the source with the counts in front. (The counts are
# those of the text. An instruction in a loop counts once.)


# sphinx_gallery_fold = "asks the compiled kernel for each line"
# sphinx_gallery_show = "row_softmax_kernel"
@triton.jit
def row_softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute the softmax of one row of *n* elements."""
    offsets = tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * n
    x = tl.load(x_ptr + start + offsets, mask=offsets < n, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    denominator = tl.sum(numerator, axis=0)
    tl.store(y_ptr + start + offsets, numerator / denominator, mask=offsets < n)


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
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(3)}
    source = ASTSource(row_softmax_kernel, types, {"BLOCK": 1024}, attrs=aligned)
    nvidia = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    amd = triton.compile(source, target=GPUTarget("hip", "gfx942", 64)).asm["amdgcn"]
    counts = [count_by_line(row_softmax_kernel, code) for code in (nvidia, amd)]
    lines, first = inspect.getsourcelines(row_softmax_kernel.fn)
    print(" ptx  gcn")
    for number, line in enumerate(lines, first):
        print(*(f"{count[number] or '':4}" for count in counts), line.rstrip()[:86])


run(annotate, row_softmax_kernel, count_by_line)

# %%
# These are the instructions of one thread, which has 8 elements of the 1024 on NVIDIA's GPUs (4
# warps of 32 threads) and 4 on this one of AMD's (4 warps of 64). What stands out is the line with
# the maximum and the exponential. In a :term:`reduction`, the threads of a warp exchange their
# values in several steps, and the warps theirs through :term:`shared memory`; and some operations,
# such as a division on AMD's GPUs, are many instructions for each element. If a line that you
# thought cheap has hundreds of them, you have found something.
#
# Wide loads
# ~~~~~~~~~~
#
# A thread that needs neighbouring elements can fetch 16 bytes with one instruction if the address
# is a multiple of 16. Triton must be able to *prove* that it is. To this end it looks at each
# pointer and each integer at the launch: is it divisible by 16? The rest it derives from the
# arithmetic in the kernel.


# sphinx_gallery_fold = "counts loads in what was compiled"
# sphinx_gallery_show = "copy_row_kernel"
@triton.jit
def copy_row_kernel(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    """Copy one row of a matrix."""
    start = tl.program_id(0) * stride
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + offsets, mask=offsets < columns)
    tl.store(y_ptr + start + offsets, x, mask=offsets < columns)


def loads():
    """Print the loads of ``copy_row_kernel``, by what is divisible by 16."""
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "columns": "i32", "stride": "i32"}
    cases = {
        "everything": (0, 1, 2, 3),
        "not columns": (0, 1, 3),
        "not stride": (0, 1, 2),
        "not x_ptr": (1, 2, 3),
    }
    for name, divisible in cases.items():
        attrs = {(i,): [["tt.divisibility", 16]] for i in divisible}
        found = []
        for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
            signature = types | {"BLOCK": "constexpr"}
            source = ASTSource(copy_row_kernel, signature, {"BLOCK": 1024}, attrs=attrs)
            asm = triton.compile(source, target=target).asm
            code = asm["ptx"] if "ptx" in asm else asm["amdgcn"]
            counts = Counter(re.findall(r"\s(ld\.global[.\w]*|(?:global|buffer)_load\w*)", code))
            found += [" ".join(f"{n} {what}" for what, n in counts.items())]
        print(f"{name:12} {found[0]:20} {found[1]}")


run(loads, copy_row_kernel)

# %%
# One number that is not divisible, and four times as many instructions are needed. The remedies:
# allocate with a padded stride, or promise what you know with
# :py:func:`triton.language.multiple_of`. (A broken promise is a wrong result.)
#
# Matrix instructions
# ~~~~~~~~~~~~~~~~~~~
#
# ``tl.dot`` is there for the sake of :term:`tensor cores <tensor core>`. Does it reach them?


# sphinx_gallery_fold = "looks for the instruction of tensor cores"
# sphinx_gallery_show = "dot_kernel"
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


def dots():
    """Print the multiplications in ``dot_kernel``, by type, tile, precision and GPU."""
    multiply = r"\s(wgmma\.mma_async\S*|mma\.sync\S*|fma\.rn\.f32|v_mfma\w*|v_fmac?_f32\w*)"
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(3)}
    for dtype, tile, precision in (
        ("fp16", 64, "tf32"),
        ("fp16", 32, "tf32"),
        ("fp32", 32, "tf32"),
        ("fp32", 32, "ieee"),
    ):
        types = {"a_ptr": f"*{dtype}", "b_ptr": f"*{dtype}", "c_ptr": "*fp32"}
        types |= {"TILE": "constexpr", "PRECISION": "constexpr"}
        constants = {"TILE": tile, "PRECISION": precision}
        for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
            source = ASTSource(dot_kernel, types, constants, attrs=attrs)
            asm = triton.compile(source, target=target).asm
            code = asm["ptx"] if "ptx" in asm else asm["amdgcn"]
            how = precision if dtype == "fp32" else ""
            for what, count in Counter(re.findall(multiply, code)).items():
                short = re.sub(r"\.(sync|aligned|row|col)(?=\.)", "", what)
                print(f"{dtype}  {tile} x {tile}  {how:5} {target.arch!s:7} {count:5} {short}")


run(dots, dot_kernel)

# %%
# ``wgmma``, ``mma`` and ``v_mfma`` are matrix instructions, and the numbers in their names are the
# shape of the product that one of them computes, for a warp or for four. An ``fma`` is one
# multiplication in each thread. So fp32 with ``input_precision="ieee"`` bypasses the tensor cores
# of this NVIDIA GPU, and takes many more instructions there. And a tile of 32 is too small for the
# largest of the instructions.
#
# Registers and spills
# ~~~~~~~~~~~~~~~~~~~~
#
# The blocks of a program live in registers. When a thread needs more than it can have, the rest is
# kept in memory and moved back and forth: :term:`register spilling`. What a launch returns knows
# both numbers.


# sphinx_gallery_fold = "compiles with more and more elements a thread, and prints registers"
def registers(cases):
    """Return rows (BLOCK, warps, elements a thread, registers, spills, shared memory, GB/s)."""
    rows = []
    for block, warps in cases:
        x = torch.rand(2**26 // block, block, device=DEVICE)
        y = torch.empty_like(x)

        def launch(x=x, y=y, block=block, warps=warps):
            return row_softmax_kernel[(len(x),)](x, y, block, BLOCK=block, num_warps=warps)

        compiled = launch()
        threads = warps * compiled.metadata.target.warp_size
        ms = triton.testing.do_bench(launch, warmup=10, rep=30, return_mode="median")
        rate = 2 * x.numel() * x.element_size() / ms / 1e6
        counted = (compiled.n_regs, compiled.n_spills, compiled.metadata.shared)
        rows.append((block, warps, block // threads, *counted, f"{rate:.3g}"))
    return rows


if ON_GPU:
    rows = registers([(2**10, 4), (2**13, 4), (2**15, 4), (2**15, 16)])
    headers = [
        "BLOCK",
        "warps",
        "elements\nof a thread",
        "registers",
        "spills",
        "shared\nbytes",
        "GB/s",
    ]
    print(tabulate(rows, headers))
else:
    print("Registers are counted when a kernel is loaded onto a GPU: this needs one.")

# %%
# The remedies against spills are a smaller block, or more warps for the same block. (If it is
# shared memory that runs out, you get an error at the launch, ``OutOfResources``, which says how
# much was wanted; there, fewer stages help.)
#
# Without a GPU, ``PTXAS_OPTIONS=-v`` together with ``TRITON_DUMP_PTXAS_LOG=1`` has NVIDIA's
# assembler report registers and spills, and the end of ``amdgcn`` says it for AMD.
#
# Compiled again and again
# ~~~~~~~~~~~~~~~~~~~~~~~~
#
# A program can also be slow because it compiles: for every shape anew, say. Triton keeps one kernel
# for each combination of types, compile-time constants, and those properties of the arguments that
# it uses. A function in ``triton.knobs.compilation.listener`` is called for each. Which of these
# numbers of columns share a kernel?

# sphinx_gallery_fold = "launches with six numbers of columns, and listens"
# sphinx_gallery_fold_output = True


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
        print(f"{n} columns")
        copy_row_kernel[(1,)](x, x, n, 4096, BLOCK=1024)
    triton.knobs.compilation.listener = None
else:
    print("The interpreter compiles nothing: this experiment needs a GPU.")

# %%
# A kernel for numbers that are divisible by 16, one for those that are not, one with 1 as a
# constant, and one for numbers that need 64 bits. If a parameter makes more trouble than it brings
# speed, list it in ``@triton.jit(do_not_specialize=[...])``. A ``tl.constexpr`` that changes with
# each call compiles each time.
#
# Files
# ~~~~~
#
# With three variables, Triton writes every stage of every kernel into a folder:

# sphinx_gallery_fold = "compiles a kernel, and lists the files that this left behind"
# sphinx_gallery_fold_output = True


def dump():
    """Compile a kernel, and list the files that this left behind."""
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    triton.compile(ASTSource(row_softmax_kernel, types, {"BLOCK": 1024}), target=TARGET)
    print(*sorted(path.name for path in Path("dumped").rglob("*.*")), sep="\n")


dumping = "TRITON_KERNEL_DUMP=1 TRITON_DUMP_DIR=dumped TRITON_ALWAYS_COMPILE=1"
run(dump, CONSTANTS, row_softmax_kernel, before=[dumping], keep="^(?!nvdisasm)")
SCRATCH.cleanup()

# %%
# More of these (in Triton 3.6 to 3.9):
#
# ===================================== ==========================================================
# variable                              effect
# ===================================== ==========================================================
# ``TRITON_KERNEL_OVERRIDE=1``          take stages from files in ``TRITON_OVERRIDE_DIR`` that you
#                                       have edited, and which lie there as the dumped ones do;
#                                       with ``TRITON_ALWAYS_COMPILE=1``
# ``TRITON_PRINT_AUTOTUNING=1``         print what autotuning chose, and how long it took
# ``TRITON_FRONT_END_DEBUGGING=1``      raise the compiler's own error, with its traceback, in
#                                       place of a ``CompilationError``
# ``MLIR_ENABLE_DUMP=1``                print the kernel before each pass of the compiler: very long
# ``TRITON_CACHE_DIR``                  where compiled kernels are kept; an empty folder is a fresh
#                                       start
# ===================================== ==========================================================
#
# What to remember
# ----------------
#
# * Make it small, make it exact, fill the output with NaN, and draw where it is wrong.
# * Begin in the interpreter. Believe what it finds, but not what it does not find.
# * An error from the GPU is late until launches wait. After it, the process is lost.
# * Nothing happens at most accesses out of bounds. Only a checker sees them.
# * What changes from run to run is a race or memory that nobody wrote.
# * A slow kernel can be read: the width of its loads, its matrix instructions, its spills. If that
#   does not explain it, :doc:`profile it </programming-guide/chapter-5/profiling>`.
#
# References
# ----------
#
# * Triton: *Debugging Triton*,
#   https://triton-lang.org/main/programming-guide/chapter-3/debugging.html, and the environment
#   variables in its ``README.md``, https://github.com/triton-lang/triton
# * NVIDIA: *Compute Sanitizer*,
#   https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html
# * AMD: *HIP environment variables*,
#   https://rocm.docs.amd.com/projects/HIP/en/latest/reference/env_variables.html
# * NVIDIA: *Parallel Thread Execution ISA*, https://docs.nvidia.com/cuda/parallel-thread-execution/
# * Python: *faulthandler*, https://docs.python.org/3/library/faulthandler.html
