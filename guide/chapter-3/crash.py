"""
Debugging: errors and crashes
=============================

A kernel may be refused by the compiler, crash, overwrite other data without an error, or never end.
This page plants each of these faults and shows what the tools say. Without a GPU, what needs one is
skipped.
"""

# %%
# When it does not compile
# ------------------------
#
# Triton compiles a kernel at its first launch, and again for each new combination of argument types
# and :term:`compile-time constants <compile-time constant>`. So a fault in its *code* is a Python
# exception at the launch. Here are six kernels that the compiler refuses:

import faulthandler
import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


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


# %%
# Each experiment of this page is a process of its own, because a process in which a kernel has
# crashed cannot use the GPU any more. You can skip this cell:

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
# Compiling needs no GPU: :py:func:`triton.compile` takes a target by name, and the type of each
# argument.


# sphinx_gallery_shows = "AssertionError, NameError"
def refused():
    """Compile each kernel, and print what Triton says."""
    types = {"x_ptr": "*i32", "n": "i32", "BLOCK": "i32"}
    for name in NAMES:
        kernel = globals()[name]
        source = ASTSource(kernel, {argument: types[argument] for argument in kernel.arg_names})
        try:
            triton.compile(source, target=TARGET)
        except triton.CompilationError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            place = next(i for i, line in enumerate(lines) if line.strip() == "^")
            print(f"{name}, {lines[0]}", *lines[place - 1 : place + 1], lines[-1], sep="\n")


NUMBER = 3
FAULTY = (block_of_12, two_lengths, no_constant, changing_type, one_branch, global_number)
NAMES = [kernel.__name__ for kernel in FAULTY]
TARGET = GPUTarget("hip", "gfx942", 64) if torch.version.hip else GPUTarget("cuda", 90, 32)
run(refused, f"{NUMBER = }\n{NAMES = }\n{TARGET = }", *FAULTY)

# %%
# * ``at 3:14`` is line 3, column 14 **of the kernel**, counted from its ``def``, and ``^`` marks
#   the place. (The listing of the kernel up to that line is left out here.)
# * The last line says what is wrong.
# * If the fault is in a function that the kernel calls, you get two messages. Read the first one.
#
# The remedies for the six: the next power of two and a mask; shapes that broadcast,
# ``rows[:, None]`` and ``columns[None, :]``; a parameter that is ``tl.constexpr``; a sum that
# begins with ``0.0``; a value before the ``if``; the number as an argument.
#
# If the compiler itself crashes, or the error is about ``PassManager`` or ``ptxas``, your line is
# not to blame. Update Triton, then halve the kernel until the error is gone.
# :py:func:`triton.language.static_print` shows types and shapes while the kernel is compiled, and
# ``TRITON_ALWAYS_COMPILE=1`` compiles even if the kernel is in the cache.
#
# Checks on the GPU
# -----------------
#
# :py:func:`triton.language.device_assert` stops a kernel in which a condition does not hold. It is
# compiled in with ``TRITON_DEBUG=1`` in the environment or ``debug=True`` at the launch, and costs
# nothing otherwise.


# sphinx_gallery_shows = "AcceleratorError"
@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute ``y[i] = x[index[i]]``."""
    offsets = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets)
    tl.device_assert((index >= 0) & (index < n), "index out of range")
    tl.store(y_ptr + offsets, tl.load(x_ptr + index))


@triton.jit
def row_start_kernel(place_ptr, row, stride):
    """Write where a row starts."""
    tl.store(place_ptr, row * stride)


def gather():
    """Ask for element 100 of a vector of 100 elements. Then try to go on."""
    x = torch.ones(100, device=DEVICE)
    index = torch.tensor([3, 1, 100, 2], device=DEVICE)
    y = torch.empty(4, device=DEVICE)
    gather_kernel[(1,)](x, index, y, 100, BLOCK=4)
    for what, action in (("y", y.tolist), ("a new tensor", lambda: torch.ones(2, device=DEVICE))):
        try:
            print(f"{what}: {action()}")
        except RuntimeError as error:
            print(f"{what}: {type(error).__name__}: {str(error).splitlines()[0]}")
    os._exit(0)


def row_start():
    """Ask for row 50,000 of a matrix with 50,000 columns."""
    place = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    row_start_kernel[(1,)](place, 50_000, 50_000)
    print(f"row 50,000 starts at {place.item():,}")


if ON_GPU:
    run(gather, gather_kernel, before=["", "TRITON_DEBUG=1"], count=True)
    telling = r"overflow|row|^\S*Error"
    run(row_start, row_start_kernel, before=["", "TRITON_DEBUG=1"], keep=telling, count=True)
else:
    print("The interpreter skips device_assert, and its integers wrap around: this needs a GPU.")

# %%
# Without the check, element 100 is read from the memory behind *x*, and nothing happens. With it,
# the message names file, line, program (``block``) and thread. **The process is lost**: whatever it
# asks the GPU for now fails with the same error. In a notebook, restart Python.
#
# The second kernel has no check of its own. ``TRITON_DEBUG=1`` adds one to the arithmetic of
# integers of up to 32 bits, which in a kernel are mostly offsets. The remedy is
# ``row.to(tl.int64) * stride``.
#
# Errors that come late
# ---------------------
#
# A launch puts a kernel into a queue and returns. When the kernel fails, Python is somewhere else
# by then, and a later call raises the error:


# sphinx_gallery_shows = "AcceleratorError, RuntimeError"
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


BLOCKING = "AMD_SERIALIZE_KERNEL=3" if torch.version.hip else "CUDA_LAUNCH_BLOCKING=1"
if ON_GPU:
    run(late, write_kernel, before=["", BLOCKING], keep=r"late\.py|^\S*Error|on with")
else:
    print("In the interpreter nothing comes late: this experiment needs a GPU.")

# %%
# The traceback of the first run accuses ``y``, which is innocent. With ``CUDA_LAUNCH_BLOCKING=1``
# (for AMD GPUs ``AMD_SERIALIZE_KERNEL=3``) each launch waits for its kernel, and the traceback
# names the launch. Try this first for any error that comes from the GPU. A kernel that is right
# when launches wait and wrong when they do not lacks a synchronization between two streams, or uses
# a tensor that was freed.
#
# Out of bounds, and nothing happens
# ----------------------------------
#
# Most accesses beyond a tensor cause no error. PyTorch asks the driver for large pieces of memory
# and hands out parts of them, so another tensor lies beside yours. This script writes behind *x*,
# and counts in a tensor that nobody has set to zero:


# sphinx_gallery_shows = "RuntimeError"
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
        os._exit(1)  # without freeing memory, which fails after an error


memcheck = "PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer"
checkers = ["", memcheck, f"{memcheck} --padding 512", f"{memcheck} --tool initcheck"]
telling = r"^sum|^Runtime|Invalid|Uninit|SUMMARY: \d+ errors?$|_kernel.* in |not supp"
if ON_GPU and shutil.which("compute-sanitizer") and not torch.version.hip:
    run(careless, write_kernel, count_kernel, before=checkers, keep=telling, count=True)
elif ON_GPU:
    run(careless, write_kernel, count_kernel, keep=telling)
    print("compute-sanitizer is not installed, or does not know this GPU.")
else:
    print("How PyTorch hands out the memory of a GPU can only be seen on one.")

# %%
# ``compute-sanitizer``, a part of the CUDA toolkit, watches each access of each thread. It compares
# the address with what the *driver* has handed out, so PyTorch must ask the driver for every
# tensor: ``PYTORCH_NO_CUDA_MEMORY_CACHING=1``.
#
# * Where nobody watches, nothing is reported. If the sum of *y* is not 0, *y* has changed although
#   the kernel never heard of it.
# * The default, ``memcheck``, names the line of the kernel whose address belongs to no tensor. An
#   address behind *x* that belongs to *y* is no error for it. ``--padding 512`` leaves a gap behind
#   each tensor, so that such an address belongs to none.
# * ``initcheck`` finds reads of memory that nobody has written: here the ``torch.empty`` that
#   should be a ``torch.zeros``.
#
# A process under its control is many times slower, so take the smallest case that fails. Some
# virtual machines do not permit it; then it says *Device not supported*. For AMD GPUs there is an
# AddressSanitizer, with ``TRITON_ENABLE_ASAN=1`` and a ROCm that was built for it.
#
# A kernel that does not end
# --------------------------
#
# Kernels hang when one program waits for another: for a lock that is never released, or for the
# result of a program that cannot start because the waiting programs occupy the GPU. That is a
# **deadlock**; an infinite loop looks the same. Python does not even respond to Ctrl-C.
# ``faulthandler`` of the standard library prints where Python is when a signal comes:


@triton.jit
def wait_kernel(flag_ptr, limit):
    """Wait until another program raises a flag. (A real one would not give up at a limit.)"""
    waited = 0
    flag = tl.load(flag_ptr, volatile=True)
    while (flag == 0) & (waited < limit):
        flag = tl.load(flag_ptr, volatile=True)
        waited += 1
    tl.store(flag_ptr, waited)


def wait():
    """Wait for a flag that nobody raises. An alarm shows where Python is, and ends it."""
    flag = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(2 if ON_GPU else 1)  # seconds
    wait_kernel[(1,)](flag, 50_000_000)
    print("launched", flush=True)
    print(f"iterations: {flag.item():,}")


both = ["", "TRITON_INTERPRET=1"] if ON_GPU else ["TRITON_INTERPRET=1"]
run(wait, wait_kernel, before=both, keep=r"launched|iterations|wait\.py")


# %%
# On the GPU, Python was waiting for the result. The kernel is one of the launches before that line,
# and ``CUDA_LAUNCH_BLOCKING=1`` finds it. In the interpreter the line is *in* the kernel. A script
# without an alarm shows the same if it was started with ``PYTHONFAULTHANDLER=1`` and gets
# ``kill -ABRT``.
#
# References
# ----------
#
# * NVIDIA: `Compute Sanitizer
#   <https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html>`_
# * AMD: `HIP environment variables
#   <https://rocm.docs.amd.com/projects/HIP/en/latest/reference/env_variables.html>`_
# * Python: `faulthandler <https://docs.python.org/3/library/faulthandler.html>`_
