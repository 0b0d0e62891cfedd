"""
What the functions of the lessons cost to call
==============================================

Each lesson ends with a function that a program can call, and :doc:`calls` explains what a call of
it does before the GPU starts. Here the calls of several such functions are measured beside those of
PyTorch's, on small tensors, where the CPU's share decides. Rows of one table have to come from one
run: another host needs another time for everything.

You need :doc:`calls`, and the scripts of the lessons beside this one. Without a GPU there is
nothing to measure.
"""

# %%
# The functions
# -------------
#
# ``lesson`` executes the functions and kernels of another script, and none of its checks and
# benchmarks.

# sphinx_gallery_fold = "imports, device and inputs"
# sphinx_gallery_show = "functions"
# sphinx_gallery_depends = "../tutorials/01-vector-add.py, ../tutorials/02-fused-softmax.py, ../tutorials/04-low-memory-dropout.py, ../tutorials/05-layer-norm.py, ../tutorials/06-fused-attention.py, ../tutorials/10-cross-entropy.py, ../tutorials/13-sampling.py"  # noqa: E501
import os
import random
import sys  # for shared/
import time
from functools import partial
from pathlib import Path  # for shared/

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import spread, write_table
from shared.lesson import lesson


@triton.jit
def empty_kernel():
    """Do nothing."""


def functions():
    """Return {function: (ours, PyTorch's, arguments)}, for small tensors."""
    f = torch.nn.functional
    bf16 = {"device": DEVICE, "dtype": torch.bfloat16 if ON_GPU else torch.float32}
    vector, square = torch.rand(4096, device=DEVICE), torch.rand(64, 1024, device=DEVICE)
    rows, weight = torch.randn(64, 1024, **bf16), torch.ones(1024, **bf16)
    heads = [torch.randn(1, 32, 256, 64, **bf16)] * 3
    logits = torch.randn(64, 1024, **bf16, requires_grad=True)
    targets = torch.randint(1024, (64,), device=DEVICE)
    losses, sampling = lesson("10-cross-entropy"), lesson("13-sampling")
    drop, norm = lesson("04-low-memory-dropout").seeded_dropout, lesson("05-layer-norm").rms_norm
    return {
        "add": (lesson("01-vector-add").add, torch.add, (vector, vector)),
        "softmax": (lesson("02-fused-softmax").softmax, partial(torch.softmax, dim=1), (square,)),
        "seeded_dropout": (partial(drop, seed=1), f.dropout, (vector, 0.5)),
        "rms_norm": (norm, lambda x, w: f.rms_norm(x, (1024,), w, 1e-6), (rows, weight)),
        "attention": (
            lesson("06-fused-attention").attention,
            f.scaled_dot_product_attention,
            heads,
        ),
        "cross_entropy": (losses.cross_entropy, f.cross_entropy, (logits, targets)),
        "sample, top-p 0.9": (
            partial(sampling.sample, top_p=0.9),
            partial(sampling.by_sorting, top_p=0.9),
            (torch.randn(4, 32000, device=DEVICE),),
        ),
    }


# %%
# One run
# -------
#
# The calls take turns in random order, so that a slow moment of the host meets all of them. Twenty
# calls at a time fit into the GPU's queue, and none of them waits for the GPU.

# sphinx_gallery_fold = "times the calls in turns, and prints the table"


def cpu_shares(calls, repeats=20, rounds=41):
    """Return {name: the median microseconds in which Python makes a call} of {name: call}."""
    times = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(10):
            call()  # compiles the kernel
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            torch.accelerator.synchronize()  # the queue is empty
            start = time.perf_counter()
            for _ in range(repeats):
                calls[name]()
            times[name].append((time.perf_counter() - start) / repeats * 1e6)
    torch.accelerator.synchronize()
    return {name: spread(values)[0] for name, values in times.items()}


if ON_GPU:
    found = functions()
    calls = {(name, i): partial(row[i], *row[2]) for name, row in found.items() for i in (0, 1)}
    shares = cpu_shares(calls | {"launch": empty_kernel[(1,)]})
    launch = shares["launch"]
    values, table = [("launch", "µs", launch)], [("an empty kernel", launch, None, 1.0)]
    for name in found:
        ours, theirs = (shares[name, i] for i in (0, 1))
        table.append((name, ours, theirs, ours / launch))
        values.append((name, "launches", ours / launch))
    write_table("calls-of-lessons-values.csv", ["name", "unit", "value"], values)
    head = ["CPU's share, µs", "ours", "PyTorch", "ours in launches"]
    print(tabulate(table, head, floatfmt=".1f", missingval="–"))
else:
    print("Without a GPU there is nothing to measure.")

# %%
# The last column counts in launches of the empty kernel, which took :measured:`launch` µs in this
# run. From host to host this number changes less than the microseconds do. ``add`` launches once;
# with its checks, a call costs as much as :measured:`add` launches. ``cross_entropy`` also builds a
# node of autograd, as PyTorch's does, and sets a number to zero first: it costs as much as
# :measured:`cross_entropy` launches. Sampling by sorting starts many kernels of PyTorch's.
#
# Where these shares are longer than the GPU's time, a plan, a graph or ``torch.compile`` help:
# :doc:`calls`. :doc:`/performance` has the calls of most lessons, each from the run of its page.
