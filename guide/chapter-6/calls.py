"""
What a call costs
=================

A kernel's benchmark says how long the GPU works. A program also waits for Python, which checks the
arguments, allocates memory and launches the kernel. On small tensors Python takes longer than the
kernel, so a function that is fast on large tensors is slow on small tensors. This chapter takes one
function apart, measures each part, and removes what it can: first with a plan that is kept between
calls, then with a CUDA graph, then with ``torch.compile``.

A call of our function keeps the CPU busy for :measured:`plain` µs. With a plan it takes
:measured:`planned` µs; PyTorch's function takes :measured:`torch` µs. In a CUDA graph the share of
one call is :measured:`graph` µs.

You need :doc:`/getting-started/tutorials/01-vector-add`. Without a GPU the code runs in Triton's
interpreter, and prints no times.
"""

# %%
# The function
# ------------
#
# RMS normalization divides each row by the root of its mean square. One program computes one row.

import csv
import logging
import os
import statistics
import time
from functools import partial

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


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
# The function around it checks its arguments, allocates the result and launches the kernel.

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
# To measure the CPU's share, time many calls without waiting for the GPU, and divide.

# sphinx_gallery_fold = "measures the CPU's share"


def cpu_share(call, calls=100, rounds=21):
    """Return the microseconds in which Python makes one call: median, 20th and 80th percentile."""
    for _ in range(10):
        call()  # compiles the kernel
    times = []
    for _ in range(rounds):
        torch.accelerator.synchronize()  # the queue is empty, so no call waits for room in it
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
    fifths = statistics.quantiles(times, n=5)
    return statistics.median(times), fifths[0], fifths[3]


# %%
# Here is our function beside PyTorch's, on a small matrix: 64 rows of 1024 elements. The table also
# shows the parts of our call, each measured by itself, and the launch of an empty kernel.

# sphinx_gallery_fold = "measures the call and its parts"


@triton.jit
def empty_kernel():
    """Do nothing."""


SHARES = {}  # {name: (median, p20, p80) of the CPU's share, in microseconds}


def measure(calls):
    """Print and return the CPU's share of each call of {name: call}."""
    found = {name: cpu_share(call) for name, call in calls.items()}
    rows = [(name, share[0]) for name, share in found.items()]
    print(tabulate(rows, ["", "CPU's share, µs"], floatfmt=".1f"))
    return found


if ON_GPU:
    x = torch.randn(64, 1024, device=DEVICE, dtype=torch.bfloat16)
    weight = torch.ones(1024, device=DEVICE, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    grid, numbers, constants = settings(x, 1e-6)
    SHARES |= measure({
        "torch": partial(torch.nn.functional.rms_norm, x, (1024,), weight, 1e-6),
        "rms_norm": partial(rms_norm, x, weight),
        "– its checks": partial(check_arguments, x, weight, 1e-6),
        "– its output": partial(torch.empty_like, x),
        "– its settings": partial(settings, x, 1e-6),
        "– its launch": partial(rms_norm_kernel[grid], x, weight, out, *numbers, **constants),
        "an empty kernel": partial(empty_kernel[(1,)]),
    })  # fmt: skip
else:
    print("Without a GPU there is nothing to measure.")

# %%
# The launch is the largest part, :measured:`launch` µs, and an empty kernel without arguments takes
# :measured:`empty` µs of the CPU. So most of a launch is independent of the kernel. Triton asks the
# same questions at each launch, because one kernel has several compiled versions:
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
# valid for every call with the same key.

import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.launch_recorded import Launch, key_of

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
    planned = measure({
        "with a plan": partial(planned_rms_norm, x, weight),
        "– its key": partial(key_of, x, weight),
        "– its output": partial(torch.empty_like, x),
        "– its launch": partial(PLANS[key_of(x, weight), 1e-6], x, weight, out),
    })  # fmt: skip
    SHARES["with a plan"] = planned["with a plan"]

# %%
# What a plan must not do
# -----------------------
#
# A plan that is used for the wrong tensor is worse than a slow call. Each line below would fail if
# its fact were missing in the key or in the launch.

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

# %%
# Fewer calls: a CUDA graph
# -------------------------
#
# A plan makes each call cheaper. A **CUDA graph** removes the calls: it records the launches of a
# piece of the program once, and then starts all of them with one call. The tensors stay where they
# are, so new input is copied into the old one. Shapes cannot change, and Python code in between
# does not run again. A model that decodes one token at a time fits well.

LAYERS = 20


def layers(norm, x, weight):
    """Apply *norm* to *x* again and again, as the layers of a model would."""
    for _ in range(LAYERS):
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
    share = [value / LAYERS for value in cpu_share(graph.replay)]
    SHARES["CUDA graph"] = share
    print(f"in a graph of {LAYERS} calls: {share[0]:.2f} µs of the CPU a call")

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
    launch[grid](x, weight, out, *numbers, **constants)
    return out


check(rms_norm_op)
# With a newer Triton than PyTorch requires, some releases of PyTorch warn here for each call.
logging.getLogger("torch._higher_order_ops.triton_kernel_wrap").setLevel(logging.ERROR)
if ON_GPU:
    compiled_layers = torch.compile(partial(layers, rms_norm_op))
    torch.testing.assert_close(compiled_layers(x, weight), layers(rms_norm, x, weight))
    share = [value / LAYERS for value in cpu_share(partial(compiled_layers, x, weight))]
    SHARES["torch.compile"] = share
    SHARES["triton op"] = cpu_share(partial(rms_norm_op, x, weight))
    print(f"in a compiled function of {LAYERS} calls: {share[0]:.2f} µs of the CPU a call")
    print(f"one call of the operation, not compiled: {SHARES['triton op'][0]:.2f} µs")

# %%
# Where Triton is newer than the release that PyTorch requires, PyTorch may be unable to tell which
# tensors a kernel writes. It then assumes that the kernel writes all of them, and the result is
# right. Its warning is long, and harmless here.
#
# Outside of ``torch.compile`` the operation is slower, because PyTorch's dispatcher stands between.
#
# Which remedy pays
# -----------------
#
# The picture shows the CPU's share of one call in each way, and the GPU's time of the kernel on the
# same matrix. Where a bar is longer than the line, the GPU waits for Python.

# sphinx_gallery_fold = "draws the CPU's share of each way, and keeps the rows"


def gpu_time(call):
    """Return the microseconds that the GPU needs for one call, without Python's part."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAYERS):
            call()
    return triton.testing.do_bench(graph.replay, return_mode="median") * 1e3 / LAYERS


def draw(bars, line):
    """Draw a bar for each way, and the GPU's time as a line."""
    _, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
    shown = ax.barh(list(bars), list(bars.values()), color="#1b6ca8")
    ax.bar_label(shown, fmt="%.1f", padding=3)
    ax.axvline(line, color="#d1495b", linestyle="--", label=f"the GPU's time: {line:.1f} µs")
    ax.invert_yaxis()
    ax.margins(x=0.12)
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(xlabel="µs of the CPU a call, lower is better", title=f"RMS norm, 64 × 1024, on {gpu}")
    ax.legend(loc="lower right")
    plt.show()


def write_calls(path, rows):
    """Write *rows*, (function, provider, median, p20, p80), to the CSV file *path*."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["function", "provider", "unit", "median", "p20", "p80"])
        for function, provider, *values in rows:
            writer.writerow([function, provider, "µs", *(f"{value:.4g}" for value in values)])


if ON_GPU:
    providers = {
        "triton": "with a plan", "torch": "torch", "launch": "an empty kernel",
        "triton, without a plan": "rms_norm", "kernel[grid]": "– its launch",
        "CUDA graph": "CUDA graph", "torch.compile": "torch.compile",
    }  # fmt: skip
    write_calls("calls.csv", [("rms_norm", p, *SHARES[name]) for p, name in providers.items()])
    ways = ("rms_norm", "with a plan", "CUDA graph", "torch.compile", "torch")
    draw({way: SHARES[way][0] for way in ways}, gpu_time(partial(rms_norm, x, weight)))

# %%
# * **Large tensors**: none. The queue stays full, and the CPU's share is hidden.
# * **A function that others call on tensors of any size**: a plan. The caller changes nothing.
# * **A loop that repeats with the same shapes**: a CUDA graph.
# * **A model that is compiled anyway**: ``triton_op``.
#
# The functions of the tutorials, called on small tensors, in µs of the CPU. *Launch* is an empty
# kernel in the same run:
#
# .. calls::
#
# ``triton.testing.do_bench`` hides a share that is shorter than its flush of the cache:
# :doc:`/programming-guide/chapter-4/measuring`.
#
# .. rubric:: References
#
# * PyTorch: `Using user-defined Triton kernels with torch.compile
#   <https://docs.pytorch.org/tutorials/recipes/torch_compile_user_defined_triton_kernel_tutorial.html>`_
# * NVIDIA: *CUDA C++ Programming Guide*, chapter *CUDA Graphs*
