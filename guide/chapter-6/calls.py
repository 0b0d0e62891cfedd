"""
What a call costs
=================

A kernel's benchmark says how long the GPU works. A program also waits for Python, which checks the
arguments, allocates memory and launches the kernel. On small tensors Python takes longer than the
kernel, so a function that is fast on large tensors can be slow on small ones. This chapter measures
what a loop of calls costs, takes one function apart, and removes what it can: first with a plan
that is kept between calls, then with a CUDA graph, then with ``torch.compile``.

Measured in turns at the end of the page, a call of our function keeps the CPU busy for
:measured:`plain` µs. With a plan it takes :measured:`planned` µs; PyTorch's function takes
:measured:`torch` µs. In a CUDA graph the share of one call is :measured:`graph` µs.

You need :doc:`/getting-started/tutorials/01-vector-add`. Without a GPU the code runs in Triton's
interpreter, and prints no times.
"""

# %%
# The function
# ------------
#
# RMS normalization divides each row by the root of its mean square. One program computes one row.

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_show = "rms_norm_kernel"
import logging
import os
import random
import statistics
import sys  # for shared/
import time
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import OURS, PYTORCH, figure, spread, write_rows, write_table
from shared.launch import on_device_of


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, N, stride, eps, BLOCK: tl.constexpr):
    """Normalize one row of *N* elements."""
    row = tl.program_id(0).to(tl.int64) * stride
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row + columns, mask=mask, other=0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / N + eps)
    tl.store(out_ptr + row + columns, x * scale * weight, mask=mask)


# %%
# The function around it checks its arguments, allocates the result and launches the kernel. Triton
# launches on the *current* GPU, wherever the tensors are. ``on_device_of(x)`` makes the GPU of *x*
# the current one for the launch, and PyTorch's functions do the same.

# sphinx_gallery_fold = "checks the arguments and the result"
# sphinx_gallery_show = "settings, rms_norm"


def check_arguments(x, weight, eps):
    """Raise TypeError or ValueError, naming the argument, where the kernel cannot be right."""
    for name, t in (("x", x), ("weight", weight)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if not t.dtype.is_floating_point:
            raise TypeError(f"{name} must hold floating-point numbers, but its dtype is {t.dtype}")
        if t.device.type != DEVICE.type:
            raise ValueError(f"{name} must be on {DEVICE.type}, but is on {t.device}")
    if not isinstance(eps, int | float):
        raise TypeError(f"eps must be a number, but is a {type(eps).__name__}")
    if x.device != weight.device:
        raise ValueError(f"x is on {x.device}, but weight on {weight.device}")
    if x.dim() != 2 or not x.is_contiguous():
        raise ValueError(
            f"x must be a contiguous matrix, but has shape {tuple(x.shape)} and strides "
            f"{x.stride()}; pass x.contiguous()"
        )
    if weight.shape != x.shape[1:] or not weight.is_contiguous():
        raise ValueError(
            f"weight must be contiguous and have shape {tuple(x.shape[1:])}, but has shape "
            f"{tuple(weight.shape)} and strides {weight.stride()}"
        )
    if not 0 < x.shape[1] <= 16384:
        raise ValueError(f"rows must have 1 to 16384 elements, but have {x.shape[1]}")


def settings(x, eps):
    """Return the grid, the other arguments and the constants of a launch on *x*."""
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    warps = min(max(block // 512, 1), 16)
    return (rows,), (columns, columns, eps), {"BLOCK": block, "num_warps": warps}


def rms_norm(x, weight, eps=1e-6):
    """Return *x* divided by the root of each row's mean square, times *weight*."""
    check_arguments(x, weight, eps)
    out = torch.empty_like(x)
    grid, numbers, constants = settings(x, eps)
    if x.numel():
        with on_device_of(x):
            rms_norm_kernel[grid](x, weight, out, *numbers, **constants)
    return out


def check(function):
    """Stop where *function* is wrong on a matrix of awkward shape."""
    x, weight = torch.randn(37, 771, device=DEVICE), torch.randn(771, device=DEVICE)
    exact = torch.nn.functional.rms_norm(x.double(), (771,), weight.double(), 1e-6)
    for _ in range(2):  # the second call of a function may take another way
        torch.testing.assert_close(function(x, weight).double(), exact, atol=1e-5, rtol=1e-5)


check(rms_norm)
print("rms_norm agrees with PyTorch in float64")

# %%
# What happens between the call and the GPU
# -----------------------------------------
#
# A launch is asynchronous: Python puts it into a queue and goes on, and the GPU works through the
# queue. So each call has two times. The **GPU's time** is how long the kernel runs. The **CPU's
# share** is how long Python is busy until the launch is in the queue. If the GPU's time is longer,
# the queue stays full and the CPU's share costs nothing. If the CPU's share is longer, the GPU
# waits: the program is **launch-bound**.
#
# To measure the CPU's share, time many calls without waiting for the GPU, and divide. Functions
# that you want to compare take turns: a host has slow moments, too.

# sphinx_gallery_fold = "measures the CPU's share"


def cpu_shares(calls, repeats=100, rounds=21):
    """Return the microseconds in which Python makes one call.

    The *calls* {name: call} take turns, *repeats* at a time, which must fit into the GPU's queue.
    Returns {name: (median, p20, p80)}.
    """
    times = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(10):
            call()  # compiles the kernel
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            torch.accelerator.synchronize()  # the queue is empty, so no call waits for room in it
            start = time.perf_counter()
            for _ in range(repeats):
                calls[name]()
            times[name].append((time.perf_counter() - start) / repeats * 1e6)
    torch.accelerator.synchronize()
    return {name: spread(values) for name, values in times.items()}


# %%
# What a loop of calls costs
# --------------------------
#
# Most calls of a program stand in a loop. Here are two loops of 200 calls on a matrix with rows of
# 1024 elements. One waits for the GPU only at its end, as a training loop does. The other waits
# after each call, as code does that prints a loss or asks for an element. The GPU's time comes from
# a CUDA graph, in which Python has no share.

# sphinx_gallery_fold = "times both loops on matrices of several heights"
# sphinx_gallery_show = "in_a_loop"
VALUES = []  # rows (name, unit, value) for the numbers in the text
COUNT = 20  # calls in a graph


def gpu_time(call):
    """Return the microseconds that the GPU needs for one call, without Python's part."""
    call()  # compiles the kernel
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(COUNT):
            call()
    return triton.testing.do_bench(graph.replay, return_mode="median") * 1e3 / COUNT


def in_a_loop(calls, wait, repeats=200, rounds=11):
    """Return the microseconds of a call in a loop, {name: median}, of *calls* {name: call}.

    The loops take turns. *wait*: each waits for the GPU after each call, not only at its end.
    """
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            torch.accelerator.synchronize()
            start = time.perf_counter()
            for _ in range(repeats):
                calls[name]()
                if wait:
                    torch.accelerator.synchronize()
            torch.accelerator.synchronize()
            times[name].append((time.perf_counter() - start) / repeats * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


if ON_GPU:
    weight = torch.ones(1024, device=DEVICE, dtype=torch.bfloat16)
    calls = {}
    for height in (16, 100, 1000, 4000, 16000, 64000, 128000):
        matrix = torch.randn(height, 1024, device=DEVICE, dtype=torch.bfloat16)
        calls[height] = partial(rms_norm, matrix, weight)
    shares, loops = cpu_shares(calls), [in_a_loop(calls, wait) for wait in (False, True)]
    table = [
        (height, shares[height][0], gpu_time(call), *(loop[height] for loop in loops))
        for height, call in calls.items()
    ]
    head = ["rows, µs", "CPU's share", "GPU's time", "a loop", "a loop that waits"]
    print(tabulate(table, head, floatfmt=("", ".1f", ".1f", ".1f", ".1f"), intfmt=","))
    mean = statistics.geometric_mean
    longer = [height for height, cpu, on_gpu, *_ in table if on_gpu > cpu]
    VALUES += [
        ("loop over larger", "ratio", mean([row[3] / max(row[1:3]) for row in table])),
        ("waiting over sum", "ratio", mean([row[4] / sum(row[1:3]) for row in table])),
        ("GPU longer from", "rows", min(longer, default=2 * table[-1][0])),
    ]
else:
    print("Without a GPU there is nothing to measure.")

# %%
# In a loop that does not wait, a call costs the larger of its two times. A call that is waited for
# costs about their sum, since the GPU idles while Python prepares the next call. Over these
# heights, the first loop took :measured:`larger` times the larger one, and the second
# :measured:`sum` times the sum. From :measured:`longer` rows on, the GPU's time is the larger, and
# what follows on this page gains nothing.
#
# The parts of a call
# -------------------
#
# Here is our function beside PyTorch's, on a small matrix: 64 rows of 1024 elements. The table also
# shows the parts of our call, each measured by itself, and the launch of an empty kernel.

# sphinx_gallery_fold = "measures the call and its parts"


@triton.jit
def empty_kernel():
    """Do nothing."""


def measure(calls):
    """Print the CPU's share of each call of {name: call}."""
    found = cpu_shares(calls)
    rows = [(name, found[name][0]) for name in calls]
    print(tabulate(rows, ["", "CPU's share, µs"], floatfmt=".1f"))


WAYS = {}  # {name: call} of what is compared at the end
if ON_GPU:
    x = torch.randn(64, 1024, device=DEVICE, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    grid, numbers, constants = settings(x, 1e-6)
    WAYS["torch"] = partial(torch.nn.functional.rms_norm, x, (1024,), weight, 1e-6)
    WAYS["rms_norm"] = partial(rms_norm, x, weight)
    WAYS["launch"] = partial(rms_norm_kernel[grid], x, weight, out, *numbers, **constants)
    WAYS["an empty kernel"] = partial(empty_kernel[(1,)])
    measure({
        "torch": WAYS["torch"],
        "rms_norm": WAYS["rms_norm"],
        "– its checks": partial(check_arguments, x, weight, 1e-6),
        "– its output": partial(torch.empty_like, x),
        "– its settings": partial(settings, x, 1e-6),
        "– its launch": WAYS["launch"],
        "an empty kernel": WAYS["an empty kernel"],
    })  # fmt: skip

# %%
# The launch is the largest part, and an empty kernel without arguments needs most of that time.
# Measured again in turns, at the end of this page, our launch takes :measured:`launch` µs and the
# empty one :measured:`empty` µs. So most of a launch is independent of the kernel. (A host has slow
# moments that last for seconds: compare times within one table.) Triton asks the same questions at
# each launch, because one kernel has several compiled versions:
#
# * What are the types of the arguments? Which integers are 1, or divisible by 16? Which addresses
#   are divisible by 16? (Triton **specializes** a kernel on these facts.)
# * Which options were given, and which compiled version matches all of these facts?
# * Has a global variable changed since the kernel was compiled? Is a profiler attached?
#
# The checks ask about the same tensors again. A second call with tensors of the same shape gets the
# same answers.
#
# A plan for calls that are alike
# -------------------------------
#
# So keep the answers. The key holds everything that the checks and the launch depend on: shape,
# strides, dtype and device of each tensor, and whether its address is divisible by 16. The plan
# holds the compiled kernel and the arguments that follow from the key. It holds no tensor, so it is
# valid for every call with the same key. A plan also knows its GPU: it compares two numbers where
# ``on_device_of`` above changes the current device and restores it.

# sphinx_gallery_fold = "the whole cell, with what a new thread and another GPU need"
# sphinx_gallery_show = "key_of, Launch"
from shared.launch import Launch, key_of

# %%
# The function looks for its plan first. Arguments without a plan are checked, as before. Wrong
# arguments never get a plan, so they raise the same error in every call.

PLANS = {}


def planned_rms_norm(x, weight, eps=1e-6):
    """Return what ``rms_norm`` returns."""
    if torch.compiler.is_compiling():
        return rms_norm(x, weight, eps)  # the compiler sees a launch that it knows
    try:
        launch = PLANS.get((key_of(x, weight), eps))
    except (AttributeError, TypeError):  # not tensors, or an eps that cannot be in a key
        launch = None
    if launch is None:
        check_arguments(x, weight, eps)
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        launch = PLANS[key_of(x, weight), eps] = Launch(rms_norm_kernel, *settings(x, eps))
    out = torch.empty_like(x)
    if x.shape[0]:
        launch(x, weight, out)
    return out


check(planned_rms_norm)
if ON_GPU:
    planned_rms_norm(x, weight)
    WAYS["with a plan"] = partial(planned_rms_norm, x, weight)
    measure({
        "with a plan": WAYS["with a plan"],
        "– its key": partial(key_of, x, weight),
        "– its output": partial(torch.empty_like, x),
        "– its launch": partial(PLANS[key_of(x, weight), 1e-6], x, weight, out),
    })  # fmt: skip

# %%
# What a plan must not do
# -----------------------
#
# A plan that is used for the wrong tensor is worse than a slow call. Each line below tries a case
# that could go wrong if a fact were missing in the key or in the launch.

# sphinx_gallery_fold = "tries a plan on tensors that it was not made for"


def tried(name, x, weight):
    """Check the planned function on *x* and *weight* against float64."""
    exact = torch.nn.functional.rms_norm(x.double(), x.shape[1:], weight.double(), 1e-6)
    result = planned_rms_norm(x, weight).double()
    torch.testing.assert_close(result, exact, atol=2e-2, rtol=2e-2)
    print(f"right: {name}")


buffer = torch.randn(8 * 96 + 1, device=DEVICE)
w = torch.randn(96, device=DEVICE)
tried("a first call", buffer[:-1].view(8, 96), w)
tried("the same shape, an address not divisible by 16", buffer[1:].view(8, 96), w)
tried("the same shape, another dtype", buffer[:-1].view(8, 96).half(), w.half())
tried("a matrix of one row", buffer[:96].view(1, 96), w)
del buffer
tried("a new tensor, perhaps at a freed address", torch.randn(8, 96, device=DEVICE), w)
for wrong in (torch.randn(96, 8, device=DEVICE).T, torch.ones(8, 96, dtype=torch.int32), None):
    try:
        planned_rms_norm(wrong, w)
    except (TypeError, ValueError) as error:
        print("refused:", error)
if ON_GPU:
    torch.accelerator.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        tried("another stream", torch.randn(8, 96, device=DEVICE), w)
if ON_GPU and torch.get_device_module(DEVICE).device_count() > 1:
    second = torch.device(DEVICE.type, 1)
    tried("another GPU", torch.randn(8, 96, device=second), w.to(second))

# %%
# Fewer calls: a CUDA graph
# -------------------------
#
# A plan makes each call cheaper. A **CUDA graph** removes the calls: it records the launches of a
# piece of the program once, and then starts all of them with one call. The tensors stay where they
# are, so new input is copied into the old one. Shapes cannot change, and Python code in between
# does not run again. A model that decodes one token at a time fits well.


def layers(norm, x, weight):
    """Apply *norm* to *x* again and again, as the layers of a model would."""
    for _ in range(COUNT):
        x = norm(x, weight)
    return x


if ON_GPU:
    planned_rms_norm(x, weight)  # compiled before the graph is recorded
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = layers(planned_rms_norm, x, weight)
    graph.replay()
    torch.testing.assert_close(captured, layers(rms_norm, x, weight))
    WAYS["CUDA graph"] = graph.replay

# %%
# **What Python passed, the graph repeats.** A number is an argument of the launch, so each replay
# gets the one that Python had when the graph was recorded. That is right for a size, and wrong for
# a seed: every replay would draw the same random numbers. A seed belongs in memory on the GPU,
# where the graph itself can change it. This kernel adds a seed in memory and one that is passed:


@triton.jit
def noise_kernel(out_ptr, seed_ptr, seed, BLOCK: tl.constexpr):
    """Write random numbers for the sum of both seeds."""
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.rand(tl.load(seed_ptr) + seed, offsets))


def noise(memory, seed):
    """Return 128 random numbers for a seed in *memory* plus *seed*."""
    out = torch.empty(128, device=DEVICE)
    noise_kernel[(1,)](out, memory, seed, BLOCK=128)
    return out


# sphinx_gallery_fold = "replays a graph with a seed from Python and one in memory"
# sphinx_gallery_show = "noise_kernel, noise"
fixed = torch.zeros(1, dtype=torch.int64, device=DEVICE)
counter = torch.zeros_like(fixed)
torch.testing.assert_close(noise(fixed, 7), noise(fixed + 7, 0), atol=0, rtol=0)
if ON_GPU:
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        passed = noise(fixed, 7)
        counter += 1
        kept = noise(counter, 0)
    replays = []
    for _ in range(2):
        graph.replay()
        replays.append((passed.clone(), kept.clone()))
    same = [torch.equal(one, other) for one, other in zip(*replays, strict=True)]
    assert same == [True, False]
    print(f"two replays are equal with a seed from Python: {same[0]}, in memory: {same[1]}")

# %%
# Let torch.compile make the call
# -------------------------------
#
# ``torch.compile`` generates the code around the kernels. It has to know what a kernel reads and
# writes: ``torch.library.triton_op`` declares the function as an operation, and ``wrap_triton``
# shows the launch to the compiler. The compiled code checks once that all shapes are the expected
# ones, and then launches all kernels in a row.


@torch.library.triton_op("gallery::rms_norm", mutates_args={})
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return what ``rms_norm`` returns."""
    out = torch.empty_like(x)
    grid, numbers, constants = settings(x, eps)
    launch = torch.library.wrap_triton(rms_norm_kernel) if ON_GPU else rms_norm_kernel
    with on_device_of(x):
        launch[grid](x, weight, out, *numbers, **constants)
    return out


check(rms_norm_op)

# %%
# ``torch.library.custom_op`` is the other way. PyTorch calls such an operation without looking into
# it, and ``register_fake`` tells the shape of its result. The whole function stays as it is, checks
# and plans included, and each call runs it. Most functions of the lessons are declared so.


@torch.library.custom_op("gallery::opaque_rms_norm", mutates_args=())
def opaque_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return what ``rms_norm`` returns."""
    return planned_rms_norm(x, weight, eps)


@opaque_rms_norm.register_fake
def result_of_opaque(x, weight, eps=1e-6):
    """Return a tensor like the result, without computing it."""
    return torch.empty_like(x)


check(opaque_rms_norm)

# sphinx_gallery_fold = "compiles twenty calls in both ways"
# sphinx_gallery_show = "opaque_rms_norm, result_of_opaque"
# Some releases of PyTorch cannot read kernels of a newer Triton, and warn at length.
logging.getLogger("torch._dynamo").addFilter(lambda record: record.module != "triton_kernel_wrap")
if ON_GPU:
    operations = {"torch.compile": rms_norm_op, "torch.compile, opaque": opaque_rms_norm}
    for name, operation in operations.items():
        compiled_layers = torch.compile(partial(layers, operation))
        torch.testing.assert_close(compiled_layers(x, weight), layers(rms_norm, x, weight))
        WAYS[name] = partial(compiled_layers, x, weight)
    share = cpu_shares({"": partial(rms_norm_op, x, weight)})[""][0]
    print(f"one call of the operation, not compiled: {share:.2f} µs")

# %%
# Where Triton is newer than the release that PyTorch requires, PyTorch may be unable to tell which
# tensors a kernel writes. It then assumes that the kernel writes all of them, and the result is
# right.
#
# Outside of ``torch.compile`` both operations are slower than the function, because each call goes
# through PyTorch's dispatcher.
#
# **A kernel that the compiler sees** may get other arguments than you pass. A number that is the
# same in all calls becomes a compile-time constant, and inside the kernel it is then Python's
# ``int``: ``n.to(tl.int64)`` fails with *'int' object has no attribute 'to'*. Write
# ``tl.cast(n, tl.int64)``, which takes both. A function that chooses its kernel by addresses or by
# values cannot be looked into either; ``custom_op`` takes it as it is.
#
# Which remedy pays
# -----------------
#
# The picture shows the CPU's share of one call in five ways, all measured once more, in turns. The
# line is the GPU's time of the kernel on the same matrix. Where a bar is longer than the line, the
# GPU waits for Python.

# sphinx_gallery_fold = "measures all ways in turns, draws them, and keeps the rows"


def draw(bars, line):
    """Draw a bar for each way, and the GPU's time as a line."""
    fig, ax = figure()
    colors = [PYTORCH if way == "torch" else OURS for way in bars]
    ax.barh(list(bars), list(bars.values()), color=colors)
    ax.axvline(line, color="#444444", linestyle="--", label=f"the GPU's time: {line:.1f} µs")
    beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
    for way, value in bars.items():
        ax.annotate(f"{value:.1f}", (max(value, line), way), **beside)
    ax.invert_yaxis()
    ax.margins(x=0.14)
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(xlabel="µs of the CPU a call, lower is better", title=f"RMS norm, 64 × 1024\non {gpu}")
    fig.legend(loc="outside lower center", frameon=False)
    plt.show()


if ON_GPU:
    providers = {
        "triton": "with a plan", "torch": "torch", "launch": "an empty kernel",
        "triton, without a plan": "rms_norm", "kernel[grid]": "launch",
        "CUDA graph": "CUDA graph", "torch.compile": "torch.compile",
        "torch.compile, opaque": "torch.compile, opaque",
    }  # fmt: skip
    found = cpu_shares(WAYS, repeats=20)
    for name in ("CUDA graph", "torch.compile", "torch.compile, opaque"):
        found[name] = [value / COUNT for value in found[name]]
    rows = [("rms_norm", provider, "µs", *found[name]) for provider, name in providers.items()]
    write_rows("calls.csv", ["function"], rows)
    write_table("calls-values.csv", ["name", "unit", "value"], VALUES)
    ways = ("rms_norm", "with a plan", "CUDA graph", "torch.compile", "torch")
    draw({way: found[way][0] for way in ways}, gpu_time(WAYS["rms_norm"]))

# %%
# * **Large tensors**: no remedy. The queue stays full, and the CPU's share is hidden.
# * **A function that others call on tensors of any size**: a plan. The caller changes nothing.
# * **A loop that repeats with the same shapes**: a CUDA graph.
# * **A model that is compiled anyway**: ``triton_op``.
#
# :doc:`calls-of-lessons` measures functions of the lessons beside PyTorch's, in one run.
# ``triton.testing.do_bench`` hides a share that is shorter than its flush of the cache:
# :doc:`/programming-guide/chapter-4/measuring`.
#
# .. rubric:: References
#
# * PyTorch: `Using user-defined Triton kernels with torch.compile
#   <https://docs.pytorch.org/tutorials/recipes/torch_compile_user_defined_triton_kernel_tutorial.html>`_
# * NVIDIA: *CUDA C++ Programming Guide*, chapter *CUDA Graphs*
