"""
Why does it compile while it serves?
====================================

A server answers for an hour, and then one request takes far longer: a kernel was compiled. The
request had a new kind of argument: an integer that is, for the first time, 1, a multiple of 16, or
neither; another dtype; an address that is, for the first time, no multiple of 16 bytes; or a new
``tl.constexpr``. Compile all kinds with ``kernel.warmup`` before the first request, have fewer
kinds with ``do_not_specialize``, or ship the cache. This page counts the kinds, measures the pause,
and shows all three ways.
"""

# %%
# Which values make a new kernel?
# -------------------------------
#
# Triton compiles a kernel for the *kinds* of its arguments, not for their values (`vllm #43009
# <https://github.com/vllm-project/vllm/issues/43009>`_, `vllm #48809
# <https://github.com/vllm-project/vllm/issues/48809>`_, `helion #1539
# <https://github.com/pytorch/helion/issues/1539>`_). The next kernel is called with 24 lists of
# arguments, one after the other. A call that compiles is marked *new*.

# sphinx_gallery_fold = "imports and device"
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from tabulate import tabulate

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """Multiply one block of *x* by *factor*."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


def count(kernel):
    """Return how many versions of *kernel* are compiled in this process."""
    return len(kernel.device_caches[DEVICE.index][0]) if ON_GPU else 0


memory = torch.ones(4096, device=DEVICE)
whole, shifted = memory[:2048], memory[1:2049]  # addresses: a multiple of 16 bytes, and not
half = memory[:2048].half()
CALLS = [  # (what is new about it, x, n, factor, options)
    ("the first call", whole, 1000, 2.0, {}),
    ("the same again", whole, 1000, 2.0, {}),
    ("another factor", whole, 1000, 3.0, {}),
    ("the factor is 1.0", whole, 1000, 1.0, {}),
    ("the factor is an integer", whole, 1000, 2, {}),
    ("the factor is the integer 1", whole, 1000, 1, {}),
    ("another length", whole, 1001, 2.0, {}),
    ("one more length", whole, 999, 2.0, {}),
    ("a length divisible by 16", whole, 1024, 2.0, {}),
    ("another one", whole, 1040, 2.0, {}),
    ("divisible by 8 only", whole, 1032, 2.0, {}),
    ("the length is 1", whole, 1, 2.0, {}),
    ("the length is 0", whole, 0, 2.0, {}),
    ("a shifted address", shifted, 1001, 2.0, {}),
    ("shifted, divisible length", shifted, 1024, 2.0, {}),
    ("fp16", half, 1000, 2.0, {}),
    ("fp16, divisible length", half, 1024, 2.0, {}),
    ("a shorter tensor", whole[:1008], 1000, 2.0, {}),
    ("a matrix", whole.view(32, 64), 1000, 2.0, {}),
    ("another BLOCK", whole, 1000, 2.0, {"BLOCK": 512}),
    ("that BLOCK again", whole, 1001, 2.0, {"BLOCK": 512}),
    ("8 warps", whole, 1000, 2.0, {"num_warps": 8}),
    ("other stages", whole, 1000, 2.0, {"num_stages": 2}),
    ("a length of 2³¹", whole, 2**31, 2.0, {}),
]


def try_calls(kernel):
    """Call *kernel* with each list of arguments; return (what, whether it compiled) of each."""
    found = []
    for what, x, n, factor, options in CALLS:
        before = count(kernel)
        out = torch.empty(4096, dtype=x.dtype, device=DEVICE)
        grid = (1,)  # enough to see what is compiled
        kernel[grid](x, out, n, factor, **{"BLOCK": 256} | options)
        found.append((what, "new" if count(kernel) > before else ""))
    return found


if ON_GPU:
    print(tabulate(try_calls(scale_kernel), ["call", "compiled"]))
    print(count(scale_kernel), "versions for", len(CALLS), "calls")
else:
    print("The interpreter compiles nothing.")

# %%
# What counts:
#
# * **an integer**: whether it is 1, whether it is divisible by 16, as 0 is, and whether it fits
#   into 32 bits. Nothing else about it.
# * **a tensor**: its dtype, and whether its address is divisible by 16; on AMD GPUs also whether it
#   is smaller than 2 GiB. Neither shape nor strides, unless you pass them as integers.
# * **a number in floating point**: only that it is one. An integer in its place is another kind.
# * **a** ``tl.constexpr`` **and the options**, such as ``num_warps``: every value.
# * **a tensor descriptor** (:doc:`questions-memory`): its dtype and the shape of its block.
#
# So an integer of 32 bits has three kinds, and an address has two. On NVIDIA GPUs, a kernel with
# *k* such integers and *t* tensors has up to 3ᵏ · 2ᵗ versions for each choice of dtypes, constants
# and options. Serving meets the rare ones late: the last, odd batch; a prompt of one token; a view
# that begins at an odd element.
#
# How long is the pause?
# ----------------------
#
# The table has the time of the first call with an empty cache on disk, of the first call with the
# cache of an earlier process, and of the next call in the same process. Each process is new and
# imports PyTorch first, which does not count.

SCRIPT = """
import sys, time, torch, triton, triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, N, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=cols < N)

x = torch.randn(64, 1000, device=torch.accelerator.current_accelerator())
out = torch.empty_like(x)
for _ in range(2):
    torch.accelerator.synchronize()
    start = time.perf_counter()
    softmax_kernel[(64,)](x, out, x.stride(0), 1000, BLOCK=1024)
    torch.accelerator.synchronize()
    print(1e3 * (time.perf_counter() - start))
torch.testing.assert_close(out, x.softmax(1))
"""


def first_calls(cache):
    """Return the milliseconds of the first and the second call in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "serve.py"
        path.write_text(SCRIPT)
        environment = os.environ | {"TRITON_CACHE_DIR": str(cache)}
        done = subprocess.run(
            [sys.executable, path], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


if ON_GPU:
    FOLDER = Path(tempfile.mkdtemp())
    cold, warm = first_calls(FOLDER / "cache"), first_calls(FOLDER / "cache")
    rows = [("empty cache", cold[0]), ("cache on disk", warm[0]), ("the next call", warm[1])]
    print(tabulate(rows, ["first call with", "ms"], floatfmt=".2f"))

# %%
# The first line is the pause of a process that has just started. A running server waits less for a
# new kind of arguments, because here Triton starts, too, and compiles its C code. The next section
# compiles twelve kinds in one process, and prints their time. For the second line no kernel is
# compiled: Triton starts, computes the hash that names the code in the cache, and loads the code.
# The third line is what a server expects.
#
# Warming up
# ----------
#
# ``kernel.warmup`` compiles without launching. It takes dtypes in place of tensors. The list above
# says which calls it needs: each combination of the kinds that arguments can have. The next lines
# make these combinations from what you know: the dtypes of each tensor, and the kinds of each
# integer.

KINDS = {"one": 1, "any": 3, "sixteen": 16}  # an integer of each kind


class Address(triton.MockTensor):
    """Stands for a tensor of *dtype* whose address is divisible by 16, or not."""

    def __init__(self, dtype, aligned=True):
        super().__init__(dtype)
        self.aligned = aligned

    def data_ptr(self):
        """Return an address."""
        return 0 if self.aligned else 4


def warm_up(kernel, tensors, integers, others, **options):
    """Compile all versions of *kernel*; return how many.

    *tensors* is {parameter: dtypes that it may have}, *integers* {parameter: names of ``KINDS``},
    and *others* {parameter: value} of numbers and constants. *options* are those of a launch.
    """
    choices = {name: [Address(d, a) for d in dtypes for a in (True, False)]
               for name, dtypes in tensors.items()}  # fmt: skip
    choices |= {name: [KINDS[kind] for kind in kinds] for name, kinds in integers.items()}
    names = list(choices)
    for values in product(*choices.values()):
        arguments = others | dict(zip(names, values, strict=True))
        kernel.warmup(**arguments, grid=(1,), **options)
    return count(kernel)


@triton.jit
def served_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """Multiply one block of *x* by *factor*."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


if ON_GPU:
    pointers = {"x_ptr": [torch.float32], "out_ptr": [torch.float32]}
    start = time.perf_counter()
    made = warm_up(served_kernel, pointers, {"n": KINDS}, {"factor": 2.0, "BLOCK": 256})
    print(f"{made} versions in {time.perf_counter() - start:.1f} s")
    for x, n in product((whole, shifted), (1, 2, 7, 16, 1000, 1024, 2000)):
        out = torch.empty_like(x)
        served_kernel[(triton.cdiv(n, 256),)](x, out, n, 2.0, BLOCK=256)
        torch.testing.assert_close(out[:n], 2 * x[:n])
    print(f"{count(served_kernel) - made} compiled by 14 requests after that")
    assert count(served_kernel) == made

# %%
# Compiling less
# --------------
#
# ``do_not_specialize`` removes the kinds of an integer. That costs speed where the compiler needs
# them: it no longer knows that a row begins and ends at a multiple of 16 bytes, so it loads single
# elements. Here is one kernel with and without it, on 4096 rows of 4096 elements in bf16:


def row_sums(x_ptr, out_ptr, stride, N, BLOCK: tl.constexpr):
    """Sum one row."""
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


KERNELS = {
    "specialized": triton.jit(row_sums),
    "stride not": triton.jit(row_sums, do_not_specialize=["stride"]),
    "N not": triton.jit(row_sums, do_not_specialize=["N"]),
    "neither": triton.jit(row_sums, do_not_specialize=["stride", "N"]),
}
x = torch.randn(4096 if ON_GPU else 8, 4096, device=DEVICE).to(
    torch.bfloat16 if ON_GPU else torch.float32
)
sums = torch.empty(len(x), device=DEVICE)
table = []
for name, kernel in KERNELS.items():

    def call(kernel=kernel):
        """Sum all rows."""
        return kernel[(len(x),)](x, sums, x.stride(0), x.shape[1], BLOCK=4096)

    compiled = call()
    torch.testing.assert_close(sums, x.float().sum(1), rtol=1e-3, atol=1e-3)
    if ON_GPU:
        ms = triton.testing.do_bench(call, return_mode="median")
        loads = [line for line in compiled.asm.get("ptx", "").splitlines() if "ld.global" in line]
        widest = "16 bytes" if any(".v4" in line for line in loads) else "less"
        table.append((name, 1e3 * ms, x.nbytes / ms / 1e6, len(loads), widest))
if ON_GPU:
    print(tabulate(table, ["kernel", "µs", "GB/s", "loads", "widest"], floatfmt=".0f"))

# %%
# *Loads* counts the instructions of a thread that load, and *widest* is the most that one of them
# brings. Narrow loads cost the speed that the table shows. So keep the kinds of strides and of row
# lengths, which rarely change. Name in ``do_not_specialize`` what changes with each request and
# addresses nothing: a number of tokens, a position.
#
# Shipping the cache
# ------------------
#
# What Triton compiles lies in ``TRITON_CACHE_DIR``, by default ``~/.triton/cache``. Each version
# has a folder. Its name is a hash of everything that determines the code: the source of the
# kernel and of what it calls, the kinds and constants, the options, the GPU's architecture,
# Triton's release with its compiler, and environment variables that change code. So a cache may be
# copied into a container image: what does not match is not used. The driver is not part of the
# hash: the compiled code runs on every driver that is new enough for it.

if ON_GPU:
    shutil.copytree(FOLDER / "cache", FOLDER / "shipped")
    (FOLDER / "empty").mkdir()
    rows = []
    for name in ("empty", "shipped"):
        before = set((FOLDER / name).rglob("*.cubin"))
        ms = first_calls(FOLDER / name)[0]
        rows.append((name, ms, len(set((FOLDER / name).rglob("*.cubin")) - before)))
    print(tabulate(rows, ["cache", "first call, ms", "kernels compiled"], floatfmt=".1f"))
    files = sorted(p.suffix for p in (FOLDER / "shipped").rglob("softmax_kernel.*"))
    print("of each version:", " ".join(files))
    assert rows[1][2] == 0, "the shipped cache was not used"
    shutil.rmtree(FOLDER)

# %%
# Three traps:
#
# * The folder must be **writable**, or a later kernel cannot be kept.
# * The **hash of the source** changes with every edit, also of a function that the kernel calls.
# * Triton's **launcher** is C code, compiled by a C compiler when it is first used. It lies in the
#   same folder, so a machine without a C compiler needs the shipped cache.
#
# Without Python, or where nothing may ever compile, compile ahead of time:
# :doc:`questions-compiling` shows ``triton.tools.compile``. Where autotuning causes the pause, the
# same page shows how to keep what it found.
