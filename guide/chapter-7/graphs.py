"""
Why does my CUDA graph fail, or repeat old results?
===================================================

A CUDA graph records launches once, which is called *capturing*, and replays them with one call,
without Python. While capturing, nothing may wait for the GPU: call the function once before, and
read no value. In a replay, addresses, numbers and seeds are those of the capture: copy new inputs
into the old tensors. This page shows each error, each silent mistake, and the code that is right.
"""

# %%
# What may not happen while capturing?
# ------------------------------------
#
# *operation not permitted when stream is capturing* comes from a call that waits for the GPU, or
# that needs a number from it, between the beginning and the end of a capture (`#10596
# <https://github.com/triton-lang/triton/issues/10596>`_, `#10604
# <https://github.com/triton-lang/triton/pull/10604>`_, `pytorch #87794
# <https://github.com/pytorch/pytorch/issues/87794>`_). Here are seven bodies of
# ``with torch.cuda.graph(…)``. Each has a process of its own, because a failed capture can leave
# its process unusable:

# sphinx_gallery_fold = "imports and device"
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported

import triton
import triton.language as tl
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import gpu_times, graph_of, spread, write_rows, write_table

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
GRAPHS = ON_GPU and not torch.version.hip
VALUES = []  # rows of a CSV file

# %%

SCRIPT = """
import os, sys, torch, triton, triton.language as tl
configs = [triton.Config({"BLOCK": b}) for b in (256, 1024)]

def double_kernel(x_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i, i < N), i < N)

plain = triton.jit(double_kernel)
tuned = triton.autotune(configs, key=["N"], restore_value=["x_ptr"])(plain)
x = torch.ones(4096, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        BODY
    graph.replay()
    torch.cuda.synchronize()
    print("captured and replayed")
except Exception as error:
    errors = [error]
    while errors[-1].__context__:  # what happened first
        errors.append(errors[-1].__context__)
    shown = next((e for e in reversed(errors) if "captur" in str(e)), error)
    print(f"{type(shown).__name__}: {str(shown).strip().splitlines()[0][:90]}")
sys.stdout.flush()
os._exit(0)  # what a failed capture has left behind does not matter here
"""
BODIES = {
    "compile": "plain[(16,)](x, 4096, BLOCK=256)",
    "autotune": 'tuned[lambda c: (triton.cdiv(4096, c["BLOCK"]),)](x, 4096)',
    "read a value": "n = int(x.sum())",
    "decide by a value": "x.mul_(2) if x[0] > 0 else x.zero_()",
    "send a number": 'x += torch.tensor([1.0, 2.0], device="cuda").sum()',
    "wait": "torch.cuda.synchronize()",
    "allocate a tensor": "y = torch.empty(4096, device='cuda'); y.copy_(x)",
}


def capture_each(bodies):
    """Return [(name, what a new process prints that captures this body)], all at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        started = {}
        for name, body in bodies.items():
            path = Path(folder) / f"{name.replace(' ', '_')}.py"
            path.write_text(SCRIPT.replace("BODY", body))
            environment = os.environ | {"TRITON_CACHE_DIR": f"{folder}/{path.stem}"}
            started[name] = subprocess.Popen(
                [sys.executable, path], env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        table = []
        for name, process in started.items():
            out, problem = process.communicate(timeout=100)
            last = [*(out.strip() or problem.strip()).splitlines(), "no message"][-2:][0]
            table.append((name, last))
    return table


# sphinx_gallery_shows = "AcceleratorError, RuntimeError"
if GRAPHS:
    found = capture_each(BODIES)
    print(tabulate(found, ["while capturing", "result"]))
    assert dict(found)["allocate a tensor"] == "captured and replayed"
    assert dict(found)["read a value"] != "captured and replayed"

# %%
# * **Autotuning** launches, waits and reads a time. Call the function once before capturing, with
#   the shapes and dtypes of the capture.
# * **Compiling** happens on the CPU, so a capture permits it unless the first line shows an error.
#   The call before capturing compiles, too.
# * **A value on the GPU** (``item``, ``int``, ``if``, ``print``) needs a wait. Keep it on the GPU:
#   ``torch.where``, a mask, or a kernel that loads it. ``torch.cuda.synchronize`` is a wait, too.
# * **A tensor from Python numbers** is copied from memory that may be gone at the replay. Make it
#   before capturing, or with ``torch.full``.
# * **Allocating** with PyTorch is fine: a graph has a memory pool of its own.
#
# Why does the graph ignore my new input?
# ---------------------------------------
#
# A graph keeps addresses and numbers, not tensors and variables. Three silent mistakes:


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """Multiply *n* numbers by *factor*."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


def scale(x, factor):
    """Return ``factor * x``."""
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), factor, BLOCK=1024)
    return out


if GRAPHS:
    x, factor = torch.full((4096,), 1.0, device=DEVICE), 10.0
    scale(x, factor)  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = scale(x, factor)
    x, old = torch.full((4096,), 2.0, device=DEVICE), x  # another tensor
    factor = 100.0
    graph.replay()
    print("another tensor and another factor:", out[0].item(), "instead of", (factor * x[0]).item())
    old.copy_(x)
    graph.replay()
    kept = out
    print("copied into the old tensor:", out[0].item())
    old.fill_(3.0)
    graph.replay()
    print("the result of the previous replay is now:", kept[0].item())
    address = old.data_ptr()
    del old
    other = torch.full((4096,), 7.0, device=DEVICE)  # often gets the memory that is now free
    graph.replay()
    print("the input was deleted:", out[0].item(), "- same address:", other.data_ptr() == address)

# %%
# * **Another tensor or number** in a variable changes nothing. Copy into the old tensor. A number
#   that must change is a tensor of one element, which the kernel loads.
# * **The result** has one address, so the next replay overwrites it. Copy it before that.
# * **A deleted input** leaves an address whose memory is free. The replay finds the old number
#   there until PyTorch gives the memory to another tensor, and reads that tensor's numbers from
#   then on.
#
# So the inputs of a graph are tensors that live as long as it does. This class does all of it:


class Graphed:
    """A function as a graph, for inputs of the shapes of the examples."""

    def __init__(self, function, *examples):
        self.inputs = [x.clone() for x in examples]  # <-
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function(*self.inputs)  # compiles, tunes, and fills the caches of libraries
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = function(*self.inputs)

    def __call__(self, *inputs):
        """Return the function's result in a tensor of its own."""
        for mine, x in zip(self.inputs, inputs, strict=True):
            assert mine.shape == x.shape, f"captured for {mine.shape}, not {x.shape}"
            mine.copy_(x)
        self.graph.replay()
        return self.out.clone()  # <-


configs = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (2, 4)]
tuned_kernel = triton.autotune(configs, key=["n"])(scale_kernel)


def tuned_scale(x, factor=3.0):
    """Return ``factor * x``, with a block that autotuning has chosen."""
    out = torch.empty_like(x)
    tuned_kernel[lambda c: (triton.cdiv(x.numel(), c["BLOCK"]),)](x, out, x.numel(), factor)
    return out


torch.testing.assert_close(scale(torch.ones(1000, device=DEVICE), 3.0), torch.full((1000,), 3.0)
                           .to(DEVICE))  # fmt: skip
if GRAPHS:
    graphed = Graphed(tuned_scale, torch.empty(4096, device=DEVICE))
    inputs = [torch.randn(4096, device=DEVICE) for _ in range(5)]
    for x, result in zip(inputs, [graphed(x) for x in inputs], strict=True):
        torch.testing.assert_close(result, 3 * x)
    print("five inputs, an autotuned kernel, five right results; tuned:", tuned_kernel.best_config)

# %%
# Other shapes need other graphs. Serving systems capture a graph for each of a few batch sizes and
# pad a batch to the next one.
#
# Why do I get the same random numbers in each replay?
# ----------------------------------------------------
#
# A seed that is a Python number is captured like any other number, and each replay drops the same
# elements (`flash-attention #166 <https://github.com/Dao-AILab/flash-attention/pull/166>`_). Keep
# the seed in a tensor on the GPU, and let the graph itself advance it:


@triton.jit
def dropout_kernel(x_ptr, out_ptr, seed, n, p, ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr):
    """Drop a share *p* of *n* numbers; *seed* is a number, or the address of one."""
    if ON_DEVICE:
        seed = tl.load(seed)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    kept = tl.rand(seed, i) > p
    tl.store(out_ptr + i, tl.where(kept, x / (1 - p), 0.0), mask=i < n)


def dropout(x, seed, p=0.5):
    """Return *x* with a share *p* dropped; a seed that is a tensor is advanced by 1."""
    out, on_device = torch.empty_like(x), isinstance(seed, torch.Tensor)
    grid = (triton.cdiv(x.numel(), 1024),)
    dropout_kernel[grid](x, out, seed, x.numel(), p, ON_DEVICE=on_device, BLOCK=1024)
    if on_device:
        seed += 1  # <- a kernel, so it is captured, too
    return out


x, number = torch.ones(4096, device=DEVICE), 5
seed = torch.tensor([5], device=DEVICE)
assert torch.equal(dropout(x, number), dropout(x, seed)), "two ways to pass a seed"
assert seed.item() == 6
assert not torch.equal(dropout(x, number), dropout(x, seed))
if GRAPHS:
    for name, given in (("a number", number), ("a tensor", seed)):
        graphed = Graphed(partial(dropout, seed=given), x)
        masks = {tuple((graphed(x) == 0).nonzero().flatten().tolist()) for _ in range(10)}
        print(f"the seed is {name}: {len(masks)} different masks in 10 replays")
        VALUES.append((f"masks, {name}", "masks", len(masks)))
    assert len(masks) == 10, "the seed did not advance"

# %%
# Ten replays produce :measured:`repeated` mask with a number, and :measured:`masks` different ones
# with a tensor.
#
# PyTorch's own dropout needs none of this: its generator knows graphs and keeps its offset on the
# GPU. Our dropout can get its seed from there: ``torch.randint(2**31, (1,), device=…)`` inside the
# graph gives a new one in each replay.
#
# Why is the graph slower than what I chose?
# ------------------------------------------
#
# You timed calls from Python, and that can include the CPU's part: allocating and launching. A way
# with one launch can then beat a way with two, although the GPU needs longer for it. A graph has no
# such part (`pytorch #179246 <https://github.com/pytorch/pytorch/issues/179246>`_, `#10712
# <https://github.com/triton-lang/triton/pull/10712>`_). Here is a sum in one launch, by one
# program, and in two launches, by many programs:


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, each, BLOCK: tl.constexpr):
    """Add up *each* numbers of *n* in each program."""
    part, total = tl.program_id(0), tl.zeros((BLOCK,), tl.float32)
    for start in range(part * each, tl.minimum(n, (part + 1) * each), BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + part, tl.sum(total))


def sum_at_once(x):
    """Return the sum of *x*: one launch, one program."""
    out = torch.empty(1, device=x.device)
    sum_kernel[(1,)](x, out, x.numel(), x.numel(), BLOCK=4096, num_warps=8)
    return out


def sum_in_parts(x):
    """Return the sum of *x*: two launches, the first one with many programs."""
    parts = triton.cdiv(x.numel(), 4096)
    sums, out = torch.empty(parts, device=x.device), torch.empty(1, device=x.device)
    sum_kernel[(parts,)](x, sums, x.numel(), 4096, BLOCK=4096, num_warps=8)
    sum_kernel[(1,)](sums, out, parts, parts, BLOCK=1024)
    return out


SIZES = (2**14, 2**16, 2**17, 2**18, 2**20) if ON_GPU else (10_000,)
for n in SIZES:
    x = torch.rand(n, device=DEVICE)
    for function in (sum_at_once, sum_in_parts):
        torch.testing.assert_close(function(x)[0].double(), x.double().sum(), rtol=1e-4, atol=0)

# %%
# All times are in µs. The first two columns are what ``do_bench`` says of a call. The next two time
# the same calls as graphs:

# sphinx_gallery_fold = "times both ways, prints a table, and keeps the rows"
if GRAPHS:
    ways = {"one launch": sum_at_once, "two launches": sum_in_parts}
    rows, table = [], []
    for n in SIZES:
        x = torch.rand(n, device=DEVICE)
        eager = {
            name: triton.testing.do_bench(partial(way, x), return_mode="all")
            for name, way in ways.items()
        }
        graphs = gpu_times({name: graph_of(partial(way, x)) for name, way in ways.items()}, 20)
        for kind, times in (("called", eager), ("graph", graphs)):
            for name, ms in times.items():
                rows.append((n, f"{name}, {kind}", "µs", *spread([1e3 * t for t in ms])))
        medians = [row[3] for row in rows[-4:]]
        winners = [min(zip(pair, ways, strict=True))[1] for pair in (medians[:2], medians[2:])]
        table.append((n, *medians, *winners))
    write_rows("graphs.csv", ["n"], rows)
    head = ["numbers", *(f"{name}, {kind}" for kind in ("called", "graph") for name in ways)]
    print(
        tabulate(table, [*head, "faster called", "faster in a graph"], floatfmt=".1f", intfmt=",")
    )
    disagree = sum(row[-1] != row[-2] for row in table)
    print(f"the choices differ for {disagree} of {len(table)} sizes")
    VALUES.append(("choices differ", "sizes", disagree))
    write_table("graphs-values.csv", ["name", "unit", "value"], VALUES)

# %%
# On the machine of this page, the two timings disagree on the faster way for :measured:`differ` of
# the five sizes. For 65,536 numbers, one launch takes :measured:`called` times the time of two
# launches if called, and :measured:`replayed` times in a graph.
#
# Where a time *called* is near the time in a *graph*, ``do_bench`` has hidden the CPU's part:
# before each call it overwrites the L2 cache, and meanwhile the CPU queues the call. If the CPU
# needs longer than that, its part shows, and the choice can be wrong. A slower host is enough, or
# more Python before a launch: see :doc:`/programming-guide/chapter-4/measuring`.
#
# So time what will run: in a graph, if it will be one. For autotuning that is
# ``triton.autotune(…, do_bench=triton.testing.do_bench_cudagraph)``. It captures graphs itself, so
# it cannot run while you capture. ``shared.bench`` of this site times ``graph_of(call)``. Chapter 6
# shows what a call costs the CPU in each way: :doc:`/programming-guide/chapter-6/calls`.
