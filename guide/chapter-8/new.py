"""
What is new in Triton 3.9?
==========================

What can you write in 3.9 that 3.6 refuses? ``tl.atomic_load``, ``atomic_store`` and ``atomic_poll``
for flags between programs, ``tl.fdiv(x, y, approx=True)``, chained comparisons such as
``0 <= i < n``, and keyword-only parameters. Some mistakes are now found while compiling, and
``ieee_rounding`` of ``tl.fdiv`` now has an effect. This page executes each of them with 3.9.0 and
with 3.6.0, whose errors it shows.
"""

# %%
# How does one program wait for another?
# --------------------------------------
#
# One program stores a value and then sets a flag. Another one waits for the flag and then reads the
# value. The GPU must keep this order: setting the flag is a *release*, which makes the stores
# before it visible, and waiting is an *acquire*, which keeps later loads from going first (`#6107
# <https://github.com/triton-lang/triton/issues/6107>`_, `#10723
# <https://github.com/triton-lang/triton/pull/10723>`_). Before 3.9, a program waited with an
# ``atomic_add`` of 0 in a loop, and set the flag with an ``atomic_xchg``:

# sphinx_gallery_fold = "imports and device"
import os
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import sys  # for shared/
from pathlib import Path  # for shared/

import triton
import triton.language as tl
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import gpu_times, spread, write_rows, write_table

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
NEW = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 9)
VALUES = []  # rows of a CSV file

# %%


@triton.jit
def spin_kernel(value_ptr, flag_ptr):
    """Add 1 to the value of the program before, when its flag is set."""
    i = tl.program_id(0)
    if i > 0:
        while tl.atomic_add(flag_ptr + i - 1, 0, sem="acquire") == 0:
            pass
    before = tl.load(value_ptr + i, volatile=True)
    tl.store(value_ptr + i + 1, before + 1)
    tl.debug_barrier()  # the store comes before the flag
    tl.atomic_xchg(flag_ptr + i, 1, sem="release")


@triton.jit
def poll_kernel(value_ptr, flag_ptr):
    """Do the same with one thread that waits, and without adding."""
    i = tl.program_id(0)
    if i > 0:
        tl.atomic_poll(flag_ptr + i - 1, 1, timeout_ns=1_000_000_000)  # <-
    before = tl.load(value_ptr + i, volatile=True)
    tl.store(value_ptr + i + 1, before + 1)
    tl.debug_barrier()
    tl.atomic_store(flag_ptr + i, 1)  # <-


@triton.jit
def read_kernel(flag_ptr, out_ptr, N: tl.constexpr):
    """Copy flags, each with the order that ``acquire`` promises."""
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.atomic_load(flag_ptr + i))


PROGRAMS = 64 if ON_GPU else 4  # all of them run at the same time


def chain(kernel):
    """Let each program wait for the one before; return the last value."""
    value = torch.zeros(PROGRAMS + 1, dtype=torch.int32, device=DEVICE)
    flag = torch.zeros(PROGRAMS, dtype=torch.int32, device=DEVICE)
    kernel[(PROGRAMS,)](value, flag)
    return value[-1].item()


def read_flags():
    """Return the sum of flags that are 1."""
    flag = torch.ones(64, dtype=torch.int32, device=DEVICE)
    out = torch.zeros_like(flag)
    read_kernel[(1,)](flag, out, N=64)
    return out.sum().item()


def attempt(name, call):
    """Print the result of *call*, or its error; return the result."""
    try:
        result = call()
        print(f"{name}: {result}")
        return result
    except Exception as error:
        root = error
        while root.__cause__ is not None:  # the reason stands at the end
            root = root.__cause__
        lines = [line.strip() for line in str(root).splitlines() if line.strip()]
        print(f"{name}: {type(root).__name__}: {(lines or ['no message'])[-1][:110]}")
        return None


# sphinx_gallery_name = "flags"
# sphinx_gallery_shows = "AttributeError, CompilationError"
results = {
    "spinning": attempt("spinning with atomic_add", partial(chain, spin_kernel)),
    "polling": attempt("atomic_poll and atomic_store", partial(chain, poll_kernel)),
    "loading": attempt("atomic_load", read_flags),
}
assert results["spinning"] == PROGRAMS
assert not NEW or (results["polling"], results["loading"]) == (PROGRAMS, 64)

# %%
# .. output-of:: flags
#    :release: 3.6.0
#
# In 3.9, ``tl.atomic_poll`` returns whether the value came: without ``timeout_ns`` it waits
# forever. ``atomic_store`` is a release, and ``atomic_load`` and ``atomic_poll`` are acquires,
# unless you say ``sem="relaxed"``. The rule of :doc:`/programming-guide/chapter-7/questions-memory`
# stays: wait only for programs that are certain to run, so start no more than the GPU can hold at
# the same time. Polling is one line in place of a loop, and can end the wait after a time. The
# table shows whether it is also faster: it has the time that one flag takes from program to
# program. With 3.6.0 it has the loop alone:

# sphinx_gallery_fold = "times the chain, and keeps the rows"
if ON_GPU:
    value = torch.zeros(PROGRAMS + 1, dtype=torch.int32, device=DEVICE)
    flag = torch.zeros(PROGRAMS, dtype=torch.int32, device=DEVICE)

    def timed(kernel):
        """Clear the flags, and run the chain."""
        flag.zero_()
        kernel[(PROGRAMS,)](value, flag)

    kernels = {"spin": spin_kernel} | ({"poll": poll_kernel} if NEW else {})
    calls = {name: partial(timed, kernel) for name, kernel in kernels.items()}
    calls["clear"] = flag.zero_
    times = gpu_times(calls, 20)
    clear = spread(times.pop("clear"))[0]
    rows = [
        (PROGRAMS, name, "µs", *spread([1e3 * (t - clear) / PROGRAMS for t in ms]))
        for name, ms in times.items()
    ]
    write_rows("new-flags.csv", ["programs"], rows)
    print(tabulate([row[1:4] for row in rows], ["way", "unit", "a flag"], floatfmt=".2f"))

# %%
# Can division be faster?
# -----------------------
#
# It can take fewer instructions. ``x / y`` of fp32 takes several, so that it is right to two units
# in the last place (*ulp*) for all numbers. ``tl.fdiv(x, y, approx=True)`` takes fewer, and keeps
# the two units where ``|y|`` is between 2⁻¹²⁶ and 2¹²⁶. A softmax, a mean or a normalization needs
# no more. A kernel that waits for memory does not get faster by it. This cell compares errors, not
# times:


@triton.jit
def divide_kernel(x_ptr, y_ptr, out_ptr, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    """Divide *n* numbers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, mask=i < n), tl.load(y_ptr + i, mask=i < n, other=1.0)
    if HOW == "approx":
        quotient = tl.fdiv(x, y, approx=True)  # <-
    elif HOW == "ieee":
        quotient = tl.fdiv(x, y, ieee_rounding=True)
    else:
        quotient = x / y
    tl.store(out_ptr + i, quotient, mask=i < n)


def divide(how, x, y):
    """Return the quotients, and the compiled kernel."""
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    compiled = divide_kernel[grid](x, y, out, x.numel(), HOW=how, BLOCK=1024)
    return out, compiled


def accuracy(how):
    """Return the largest error in units in the last place, and what the compiler made of it."""
    x, y = torch.rand(2, 100_000, device=DEVICE) + 0.5
    out, compiled = divide(how, x, y)
    exact = x.double() / y.double()
    error = ((out - exact).abs() / 2.0 ** (exact.log2().floor() - 23)).max().item()
    assert error < 3, f"{how}: {error} units in the last place"
    VALUES.append((f"error {how}", "ulp", error))
    ptx = compiled.asm.get("ptx", "") if ON_GPU else ""
    kinds = sorted({word for word in ptx.split() if word.startswith("div.") and "f32" in word})
    return f"{error:.2f} ulp at most {' '.join(kinds)}"


# sphinx_gallery_name = "division"
# sphinx_gallery_shows = "TypeError, CompilationError"
for how in ("plain", "ieee", "approx"):
    attempt(how, partial(accuracy, how))

# %%
# .. output-of:: division
#    :release: 3.6.0
#
# ``div.full``, ``div.rn`` and ``div.approx`` are NVIDIA's instructions. 3.6.0 accepts
# ``ieee_rounding=True`` and ignores it: it uses the instruction of ``x / y``, and the error is that
# of ``x / y``. 3.9.0 rounds to the nearest number. ``tl.div_rn(x, y)`` asks for that in both
# releases. fp16 and bf16 are converted to fp32 first; ``approx=True`` refuses other types.
#
# Can I write ``0 <= i < n``?
# ---------------------------
#
# Yes, for numbers and for blocks. As in Python, it means that both comparisons hold:


@triton.jit
def window_kernel(x_ptr, out_ptr, n, low, high, BLOCK: tl.constexpr):
    """Copy the numbers of places from *low* to *high*, and zero elsewhere."""
    i = tl.arange(0, BLOCK)
    inside = low <= i < high  # <-
    if 0 <= low < high:
        tl.store(out_ptr + i, tl.load(x_ptr + i, mask=inside, other=0.0), mask=i < n)


def window():
    """Return the places that were copied."""
    x, out = torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)
    window_kernel[(1,)](x, out, 16, 3, 7, BLOCK=16)
    return out.nonzero().flatten().tolist()


# sphinx_gallery_name = "comparisons"
# sphinx_gallery_shows = "UnsupportedLanguageConstruct, ValueError"
places = attempt("3 <= i < 7", window)
assert not NEW or places == [3, 4, 5, 6]

# %%
# .. output-of:: comparisons
#    :release: 3.6.0
#
# Careful: the interpreter of 3.6.0 accepts the form, and computes ``i < high`` alone.
# ``(low <= i) & (i < high)`` works everywhere.
#
# Can a kernel have keyword-only parameters?
# ------------------------------------------
#
# What follows a ``*`` must be passed by name. A call that mixes up two arguments then fails,
# instead of computing something else:


def by_name():
    """Call a kernel by name, and then by place."""

    @triton.jit
    def fill_kernel(out_ptr, *, value, n, BLOCK: tl.constexpr):
        """Write *n* times *value*."""
        i = tl.arange(0, BLOCK)
        tl.store(out_ptr + i, value + tl.zeros((BLOCK,), tl.float32), mask=i < n)

    out = torch.zeros(16, device=DEVICE)
    fill_kernel[(1,)](out, value=2.0, n=5, BLOCK=16)
    attempt("by place", lambda: fill_kernel[(1,)](out, 5, 2.0, 16))
    return out.sum().item()


# sphinx_gallery_name = "keywords"
# sphinx_gallery_shows = "TypeError, NameError, CompilationError"
total = attempt("by name, the sum is", by_name)
assert not NEW or total == 10

# %%
# .. output-of:: keywords
#    :release: 3.6.0
#
# 3.6.0 does not see the parameters behind the ``*``, so it says that one of them is not defined.
#
# Which mistakes are found while compiling?
# -----------------------------------------
#
# Here are three kernels with a mistake each. They are compiled, not launched:


@triton.jit
def stride_kernel(x_ptr):
    """Describe rows of 40 bytes; they must be multiples of 16 bytes."""
    rows = tl.make_tensor_descriptor(x_ptr, [16, 20], [20, 1], [16, 16])
    rows.store([0, 0], rows.load([0, 0]))


@triton.jit
def shape_kernel(x_ptr):
    """Store a tile of another shape than that of the descriptor."""
    rows = tl.make_tensor_descriptor(x_ptr, [16, 64], [64, 1], [16, 16])
    rows.store([0, 0], tl.zeros((8, 16), tl.float16))


@triton.jit
def cache_kernel(x_ptr):
    """Name a cache that does not exist."""
    i = tl.arange(0, 16)
    tl.store(x_ptr + i, tl.load(x_ptr + i, cache_modifier=".xy"))


def compiles(kernel):
    """Compile a kernel for a matrix in fp16; return that it did."""
    kernel.warmup(torch.float16, grid=(1,))
    return "compiles"


# sphinx_gallery_name = "mistakes"
# sphinx_gallery_shows = "ValueError, AssertionError, CompilationError"
FAULTY = (stride_kernel, shape_kernel, cache_kernel)
if ON_GPU:
    found = [attempt(kernel.fn.__name__, partial(compiles, kernel)) for kernel in FAULTY]
    VALUES.append(("found while compiling", "mistakes", found.count(None)))
    write_table("new-values.csv", ["name", "unit", "value"], VALUES)

# %%
# .. output-of:: mistakes
#    :release: 3.6.0
#
# 3.6.0 compiles the first kernel without an error. It refuses the second one without a reason, and
# the third one with the same reason as 3.9.0.
#
# A kernel that still has to run on 3.6 asks while it is compiled, with a ``tl.constexpr`` that the
# host computes: ``NEW: tl.constexpr`` and ``if NEW:``. Triton does not look at the branch that is
# not taken. What 3.9 has removed is on :doc:`moving`.
