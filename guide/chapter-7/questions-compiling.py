"""
Questions: compiling, tuning, calling
=====================================

Five questions on what happens before a kernel runs, and on who calls it. :doc:`questions` says how
these pages are made.
"""

# %%
# Why is my kernel compiled again and again?
# ------------------------------------------
#
# Triton compiles a version of the kernel for each value of a ``tl.constexpr`` (`#10872
# <https://github.com/triton-lang/triton/issues/10872>`_, `#8273
# <https://github.com/triton-lang/triton/issues/8273>`_). A length that changes with each call must
# be an ordinary argument:

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


@triton.jit
def constant_kernel(x_ptr, out_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    """Wrong: double *N* numbers, with *N* as a constant."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < N), mask=i < N)


@triton.jit
def argument_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """Double *N* numbers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < N), mask=i < N)


@triton.jit(do_not_specialize=["N"])
def general_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """Double *N* numbers, with the same code for each *N*."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < N), mask=i < N)


def versions(kernel, lengths):
    """Call the kernel for each length; return how many versions of it were compiled."""
    x = torch.randn(1024, device=DEVICE)
    out = torch.empty_like(x)
    for n in lengths:
        kernel[triton.cdiv(n, 256),](x, out, n, BLOCK=256)
        torch.testing.assert_close(out[:n], 2 * x[:n])
    return len(kernel.device_caches[x.device.index][0]) if ON_GPU else "no"


LENGTHS = (1, 16, 17, 100, 160, 161, 1000, 1008)
for kernel in (constant_kernel, argument_kernel, general_kernel):
    print(f"{kernel.fn.__name__}: {versions(kernel, LENGTHS)} versions for {len(LENGTHS)} lengths")

# %%
# For an ordinary integer of 32 bits Triton makes at most three versions: for 1, for numbers
# divisible by 16, and for all others. For an address it makes two: divisible by 16, or not. What is
# known to be divisible is loaded in wider pieces, so keep these versions, except for a number that
# changes all the time: ``do_not_specialize`` names it. This does not help a ``tl.constexpr``.
#
# Why can my kernel not see a global variable?
# --------------------------------------------
#
# The value of a global variable would be compiled in, and a later change would go unseen. So Triton
# refuses it (`#7322 <https://github.com/triton-lang/triton/issues/7322>`_,
# `#3762 <https://github.com/triton-lang/triton/issues/3762>`_).

# sphinx_gallery_shows = "CompilationError, NameError"
SCALE = 3.0
FIXED_SCALE = tl.constexpr(3.0)


@triton.jit
def global_kernel(x_ptr):
    """Wrong: read a variable of the module."""
    tl.store(x_ptr, tl.load(x_ptr) * SCALE)


@triton.jit
def passed_kernel(x_ptr, scale):
    """Take what may change as an argument, and what never changes as a constant."""
    tl.store(x_ptr, tl.load(x_ptr) * scale * FIXED_SCALE)


x = torch.ones(1, device=DEVICE)
try:
    global_kernel[(1,)](x)
    print("the global variable was read:", x.item())
except Exception as error:
    print(f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:110]} …")
x.fill_(1)
passed_kernel[(1,)](x, SCALE)
print("an argument and a constant:", x.item())
assert x.item() == 9

# %%
# A ``tl.constexpr`` of the module is read when the kernel is compiled. Change it in the source
# only. The interpreter reads any global variable, so the error shows on the GPU first.
#
# How do I keep what autotuning found?
# ------------------------------------
#
# An autotuned kernel times its configurations in each process anew (`#6355
# <https://github.com/triton-lang/triton/issues/6355>`_, `#9822
# <https://github.com/triton-lang/triton/issues/9822>`_, `#220
# <https://github.com/triton-lang/triton/issues/220>`_). With ``cache_results=True`` the times go to
# Triton's cache on disk. This script is run twice in each way, each time as a new process:

SCRIPT = """
import sys, time, torch, triton, triton.language as tl
configs = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024, 4096) for w in (1, 4, 8)]

@triton.autotune(configs, key=["N"], cache_results=sys.argv[1] == "kept")
@triton.jit
def kernel(x_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, i < N) + 1, i < N)

x = torch.zeros(1 << 20, device=torch.accelerator.current_accelerator())
kernel[lambda c: (triton.cdiv(x.numel(), c["BLOCK"]),)](x, x.numel())  # everything is compiled
torch.accelerator.synchronize()
tuned = getattr(kernel, "configs_timings", None)
print(len(tuned) if getattr(kernel, "bench_time", None) else 0, kernel.best_config)
"""

if ON_GPU:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuned.py"
        path.write_text(SCRIPT)
        environment = os.environ | {"TRITON_CACHE_DIR": folder}
        for way in ("forgotten", "kept"):
            for number in (1, 2):
                command = [sys.executable, str(path), way]
                start = time.perf_counter()
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                timed, _, best = done.stdout.strip().partition(" ")
                print(f"{way}, process {number}: {timed} configurations timed; {best}")
                assert done.returncode == 0, done.stderr

# %%
# The cache belongs to the kernel's source, the values of its key, the configurations, Triton's
# version and the GPU's *architecture*. An H100 and an H200 have the same one, so do not copy this
# cache from one model of GPU to another. It does not work with a ``pre_hook``.
# ``TRITON_CACHE_AUTOTUNING=1`` turns it on for all kernels of a program, and
# ``TRITON_PRINT_AUTOTUNING=1`` prints what is chosen. For a service that must never tune, take
# ``kernel.best_config`` and write it into the code.
#
# How do I use my kernel inside torch.compile?
# --------------------------------------------
#
# The compiler traces a plain launch of a ``triton.jit`` kernel. It cannot see through code around
# the launch, such as a plan like that of :doc:`/programming-guide/chapter-6/calls`, which starts
# the compiled kernel itself. Declare such a function as an operation: ``triton_op`` with
# ``wrap_triton`` shows the compiler the kernel (`pytorch #154365
# <https://github.com/pytorch/pytorch/issues/154365>`_, `pytorch #170049
# <https://github.com/pytorch/pytorch/issues/170049>`_).

KEPT = {}


def double(x):
    """Return 2 x, by starting a compiled kernel that was kept."""
    out = torch.empty_like(x)
    grid = triton.cdiv(x.numel(), 256), 1, 1
    if "double" in KEPT:
        KEPT["double"][grid](x, out, x.numel(), 256)
    else:
        KEPT["double"] = argument_kernel[grid](x, out, x.numel(), BLOCK=256)
    return out


@torch.library.triton_op("questions::double", mutates_args={})
def double_op(x: torch.Tensor) -> torch.Tensor:
    """Return 2 x."""
    out = torch.empty_like(x)
    launch = torch.library.wrap_triton(argument_kernel) if ON_GPU else argument_kernel
    launch[triton.cdiv(x.numel(), 256),](x, out, x.numel(), BLOCK=256)
    return out


def compiled(function):
    """Compile ``function(x) + 1`` as one graph, and check it."""
    x = torch.randn(1000, device=DEVICE)
    result = torch.compile(lambda x: function(x) + 1, fullgraph=True)(x)
    torch.testing.assert_close(result, 2 * x + 1)
    return "one graph, and right"


if ON_GPU:
    double(torch.ones(1000, device=DEVICE))  # keeps the kernel
    for name, function in (("double", double), ("double_op", double_op)):
        try:
            print(f"{name}: {compiled(function)}")
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0][:110]}")

# %%
# :doc:`/programming-guide/chapter-6/calls` times this. If the function has a backward pass,
# ``double_op.register_autograd`` adds it.
#
# How do I call a kernel from C++, without Python?
# ------------------------------------------------
#
# Compile ahead of time (`#3850 <https://github.com/triton-lang/triton/issues/3850>`_, `#218
# <https://github.com/triton-lang/triton/issues/218>`_, `#4425
# <https://github.com/triton-lang/triton/issues/4425>`_). ``triton.tools.compile`` writes a C file
# with the binary in it and a function that launches it. The signature says what Triton otherwise
# sees in the arguments: types, ``:16`` where a number or an address is divisible by 16, and the
# values of constants.

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def double_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < N), mask=i < N)
"""

if ON_GPU and not torch.version.hip:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(KERNEL)
        command = [sys.executable, "-m", "triton.tools.compile", str(path)]
        command += ["--kernel-name", "double_kernel", "--signature", "*fp32:16, *fp32:16, i32, 256"]
        command += ["--grid", "(N + 255) / 256, 1, 1", "--out-path", f"{folder}/double"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        header = next(Path(folder).glob("double*.h")).read_text()
        print(*(line for line in header.splitlines() if "(" in line and "#" not in line), sep="\n")

# %%
# Compile the C file with your program, and link it with the driver (``-lcuda``). Call the loading
# function once, and the launching function as often as you like. For several sizes, compile several
# signatures, and let ``triton.tools.link`` write one function that chooses. Whoever launches the
# binary by hand must give each program ``32 * num_warps`` threads and the kernel's shared memory,
# and append the pointers that the C file shows to its arguments. Otherwise the driver says
# ``invalid argument``.
#
# The next question is whether your kernel is right. The exercises of the tutorials check yours:
# see :doc:`/getting-started/tutorials/01-vector-add`.
