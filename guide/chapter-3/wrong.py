"""
Debugging: wrong numbers
========================

:doc:`debugging` finds out where a result is wrong. This page finds out why: you stop in the middle
of a kernel, print from it, and find out whether programs disturb each other (a *race*). Without a
GPU, what needs one is skipped.
"""

# %%
# The interpreter
# ---------------
#
# With ``TRITON_INTERPRET=1`` in the environment before Triton is imported, kernels are not
# compiled. The :term:`interpreter` executes them on the CPU, one program after the other, and each
# block is a NumPy array. So you can print with an f-string, ask for the program id in an ``if``,
# and stop in a debugger. The rows of this softmax should add up to 1, and do not:

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

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")
INTERPRET = "TRITON_INTERPRET=1"


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


# %%
# On this page and the next ones, most experiments are processes of their own, because a process in
# which a kernel has crashed cannot use the GPU any more. You can skip this cell:

# sphinx_gallery_fold = "executes functions as a script, and prints what a terminal shows"
SCRATCH = tempfile.TemporaryDirectory(prefix="debugging-")
HERE = Path(globals().get("__file__", "a notebook")).resolve().parent
# In a checkout the build folder has exercise.py.
PLACES = [HERE, *(folder / "build" / "checker" for folder in HERE.parents)]
TOOLS = next((place for place in PLACES if (place / "exercise.py").is_file()), HERE)
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


def run(main, *others, before=("",), through="", keep="", typed="", count=False):
    """Execute ``main()`` as a script, once for each text *before* ``python`` on the command line.

    Args:
        main: A function without arguments.
        others: The kernels and functions that it uses, and lines of code as strings.
        before: Environment variables, or a checker.
        through: A Python program that executes the script.
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
        rest = f"{through} {script.name}".strip()
        command = f"{words} {shlex.quote(sys.executable)} {rest}".strip()
        print(f"$ {words} python {rest}".replace("$  ", "$ ").replace(f"{TOOLS}{os.sep}", ""))
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


def watch(main, *others):
    """Execute ``main()`` as a script whose memory exercise.py watches."""
    if (TOOLS / "exercise.py").is_file():
        run(main, *others, through=f"{shlex.quote(str(TOOLS / 'exercise.py'))} --watch")
    else:
        print("Put exercise.py beside this script: it executes", main.__name__)


# %%
# We stop in row 1, whose three elements are alike. ``p`` prints an expression, ``c`` continues:

run(softmax, softmax_kernel, before=[INTERPRET], typed="p columns < n\np x\np numerator\nc\n")

# %%
# The last element of ``numerator`` is not 0, although the row has no such element. ``other=0.0`` is
# neutral for a sum, but here it goes through a maximum and an exponential first. It has to be
# ``-float("inf")``.
#
# What the interpreter does not tell you
# --------------------------------------
#
# The interpreter is a second implementation of the language, not a GPU on your desk. Here it tries
# four things that do not work on a GPU, or work differently:


# sphinx_gallery_shows = "InterpreterError, AssertionError"
@triton.jit
def double_kernel(x_ptr, y_ptr):
    """Compute ``y = x + x``."""
    offsets = tl.arange(0, 4)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x + x)


@triton.jit
def assertion_kernel(x_ptr, y_ptr):
    """Check a condition that does not hold."""
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.device_assert(x < 0, "does not hold")
    assert x < 0, "does not hold"


@triton.jit
def scalar_assertion_kernel(x_ptr, y_ptr):
    """Check the same condition, reduced to one value."""
    x = tl.load(x_ptr + tl.arange(0, 4))
    assert tl.max(x, axis=0) < 0, "does not hold"


@triton.jit
def changing_type_kernel(x_ptr, y_ptr):
    """Start a sum with an integer, and add floating-point numbers, which no compiler accepts."""
    total = 0
    for i in range(4):
        total += tl.load(x_ptr + i) * 0.5
    tl.store(y_ptr, total)


KERNELS = (double_kernel, assertion_kernel, scalar_assertion_kernel, changing_type_kernel)


def limits():
    """Try each kernel in the interpreter, and print what becomes of it."""
    for name in NAMES:
        for dtype in (torch.float32, torch.bfloat16) if name == "double_kernel" else (None,):
            x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=dtype)
            y = torch.zeros_like(x)
            try:
                globals()[name][(1,)](x, y)
                print(f"{name}: runs, and writes {[f'{v:.3g}' for v in y.tolist()]}")
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}")


NAMES = [kernel.__name__ for kernel in KERNELS]
run(limits, f"{NAMES = }", *KERNELS, before=[INTERPRET])

# %%
# Where it differs without an error, it is dangerous:
#
# * **bf16 is wrong** (the second ``double_kernel``). The interpreter adds the bits as integers.
# * **Checks do not check.** ``tl.device_assert`` is skipped. ``assert`` and ``if`` treat every
#   block of several elements as true. Reduce the condition to a scalar, which is checked here, and
#   on the GPU with ``TRITON_DEBUG=1``.
# * **It accepts kernels that the compiler refuses**, such as the last one.
# * **Nothing is parallel.** One program has ended before the next one begins. What programs do to
#   each other on a GPU does not happen here, or always happens in the same way.
# * **It knows nothing of the GPU**: not its speed, its shared memory or its rounding. ``tl.dot``
#   computes in fp32, and may round to TF32 on the GPU.
# * **A pointer has no length.** What lies beside a tensor is read and written without an error. The
#   section `Watching memory`_ has a remedy.
#
# ``libdevice``, ``warmup`` and ``do_bench`` do not work. The time grows with the number of
# programs, so take few programs and small shapes. It is still the tool to begin with: a bug that
# shows here can be looked at.
#
# Printing on the GPU
# -------------------
#
# :py:func:`triton.language.device_print` prints while the kernel runs. It takes a text that is
# known when the kernel is compiled, and values. Identical lines are counted here:


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


def print_some():
    """Print from one program of three."""
    x = torch.arange(21.0, device=DEVICE)
    y = torch.empty(3, device=DEVICE)
    sum_kernel[(3,)](x, y, 21, BLOCK=8, num_warps=1)
    print("result:", y.tolist())


run(print_some, sum_kernel, before=["", INTERPRET] if ON_GPU else [INTERPRET], count=True)

# %%
# In the interpreter a line holds the whole block. On a GPU each element has a line, which begins
# with the program, ``pid``, and the place in the block, ``idx``.
#
# * **Print from one program only**, as the ``if`` does. On NVIDIA GPUs the buffer for printed lines
#   is limited, and what does not fit is silently lost.
# * **A line can come several times.** If a block has fewer elements than the program has threads,
#   several threads hold the same element, and each of them prints it.
# * **The order means nothing.** Lines of different warps are mixed, and they come late: perhaps not
#   before Python waits for the GPU. In a notebook they may appear in the terminal.
# * **Printing changes the kernel.** It costs registers and time, and a race may disappear while you
#   watch it.
#
# Often **one more output** is better: give the kernel another tensor, and store what you want to
# know. That is exact and complete, and one line compares it with a reference.
#
# Races
# -----
#
# Programs run at the same time, in any order. If two of them access one element and one of them
# writes it, the result depends on who comes first. In the first kernel all programs add to one
# total, with or without an :term:`atomic operation`. In the second, each program moves its block
# one place on, and the first element that it reads is the last one that its neighbor writes.


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


# sphinx_gallery_fold = "repeats both kernels, and counts what is missing"
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
        right = f"{results.count(0)} of {rounds}"
        name = f"{function.__name__}({argument})"
        rows.append((name, programs, right, len(set(results)), max(results)))
    return rows


rounds = 100 if ON_GPU else 2
cases = [(flag, n) for flag in (False, True) for n in ([64, 2**14] if ON_GPU else [64])]
rows = repeat(missing_from_total, cases, rounds) + repeat(misplaced, cases, rounds)
print(tabulate(rows, ["", "programs", "right", "different\nresults", "worst"], intfmt=","))

# %%
# * **The result differs from run to run** on the same input: the table counts the different
#   results, and *worst* is the most elements that were missing or misplaced in one run.
#   Uninitialized memory does that, too. Sums of fractions by ``tl.atomic_add`` also differ, in
#   their last digits: take whole numbers as input to tell them from a race.
# * **Small cases can be right by luck.** A test needs more programs than the GPU can run at once,
#   and repetition.
# * **The interpreter shows one order and no overlap.** It never finds the lost additions. The
#   second kernel is always wrong there, and with ``REVERSED`` always right. So reversing the order
#   is a cheap test: a kernel whose result changes with the order of its programs is wrong.
#
# The remedies: an atomic operation where programs meet in one element; separate input and output
# instead of working in place; and a second launch where one program needs what others have written.
# Within one program, :doc:`a barrier </programming-guide/chapter-7/questions-memory>` is enough.
#
# Watching memory
# ---------------
#
# `exercise.py <../../_static/exercise.py>`__, which checks the exercises here, also executes
# your own scripts in the interpreter and watches their memory. Each argument of a kernel gets a
# range of addresses of its own, and each address of a load, a store and an atomic operation is
# looked up there. This kernel has masks, and still reads an element that does not exist:


@triton.jit
def smooth_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Average each element with its left neighbor."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    left = tl.load(x_ptr + offsets - 1, mask=mask)
    tl.store(y_ptr + offsets, (left + x) / 2, mask=mask)


def smooth():
    """Smooth ten numbers, with blocks of 8."""
    x = torch.arange(10.0, device=DEVICE)
    y = torch.empty_like(x)
    smooth_kernel[(2,)](x, y, 10, BLOCK=8)
    print(y.tolist())


watch(smooth, smooth_kernel)

# %%
# The watch also finds the lost additions of the previous section, in one run with four programs. If
# one program loads an element that another one has written, it reports a race, although the
# interpreter never executes two programs at the same time:


def lost():
    """Count ones without an atomic operation."""
    print("not counted:", missing_from_total(False, 4))


watch(lost, total_kernel, missing_from_total)

# %%
# It reports five mistakes, each with the line of the kernel, the argument and the program:
#
# * **An access out of bounds**, through a view, a descriptor or a pointer loaded from memory, too.
# * **A race:** two programs use one element, one of them changes it, and no atomic operation puts
#   them in order.
# * **Uninitialized memory:** a load of an element of ``torch.empty`` to which nothing has been
#   stored, or an output that the kernel does not write completely.
# * **An undefined value:** an element that a masked load without ``other`` left out reaches a
#   store, an address or a mask.
# * **A kernel that does not end**, after 20 seconds in one program.
#
# Nothing outside of the tensors is read or written, so the process survives. The watch knows the
# CPU's memory alone and sees one order of the programs. It cannot find what depends on the
# compiler or on the threads of a program. For that, :doc:`compute-sanitizer <crash>` watches the
# compiled kernel on the GPU: it sees each thread's access, but it does not know your tensors.
# PyTorch takes memory from the GPU in large pieces, so an access behind a tensor often stays within
# one of them.
