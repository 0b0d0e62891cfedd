"""
Beside published kernels
========================

How fast are this site's functions beside the libraries that people install? This page times them
beside Liger-Kernel, flash-linear-attention, GemLite and PyTorch, in one run on one GPU. `The
table`_ is the answer. The page ends with public figures of libraries that it does not run.
"""

# %%
# What is compared
# ----------------
#
# Four rules make the comparison fair:
#
# * **The results agree first.** Each library's result is compared with a reference before anything
#   is timed. If a result is wrong, the script stops.
# * **They take turns.** The calls run in random order in one process, each with a cold cache. Only
#   the GPU's time counts, so Python costs nothing here. The losses are the exception. Liger's loss
#   waits for the GPU, so all three are timed until they are done. If the GPU waits for Python
#   meanwhile, this time counts.
# * **As their users call them.** Each library runs with its defaults, on the sizes of our lessons.
# * **A library that is missing stays visible.** Its cells show a dash, and the error stands below
#   the table.
#
# All three libraries are written in Triton, so their kernels and ours are compiled by the same
# release. ``pip install liger-kernel fla-core gemlite`` brings them; this site does not need them.

# sphinx_gallery_fold = "imports, device, and the functions of the lessons"
# sphinx_gallery_depends = "../tutorials/05-layer-norm.py, ../tutorials/10-cross-entropy.py, ../tutorials/10b-linear-cross-entropy.py, ../tutorials/12-int4-weights.py, ../tutorials/14-gated-delta-rule.py"  # noqa: E501
import os
import random
from functools import partial
from importlib import metadata

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import sys  # for shared/
from pathlib import Path  # for shared/

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import graph_of, rates, spread, write_rows, write_table
from shared.lesson import lesson

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
if ON_GPU:
    norms, loss = lesson("05-layer-norm"), lesson("10-cross-entropy")
    layer, weights = lesson("10b-linear-cross-entropy"), lesson("12-int4-weights")
    delta = lesson("14-gated-delta-rule")


def version(name):
    """Return the installed version of a package, or a dash."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "–"


names = ["torch", "triton", "liger-kernel", "fla-core", "gemlite"]
print(tabulate([(name, version(name)) for name in names], ["package", "version"]))

# %%
# One comparison
# --------------
#
# ``compare`` takes calls of one function: ours, PyTorch's and the library's. It checks their
# results against a reference. This is PyTorch in float32, except in two comparisons: PyTorch in
# bf16 for the last layer with its loss, and our own function for the gated delta rule, which its
# lesson compares with float64. Then ``compare`` times them. A library that cannot be imported, or
# that fails with this release of Triton, leaves its error behind.

FAILED = {}  # {library: the error}
TABLE = []  # rows of the table


def imported(library, load):
    """Return what *load* imports from a *library*, or None if that fails."""
    try:
        return load()
    except Exception as error:
        FAILED[library] = f"{type(error).__name__}: {error}".splitlines()[0]
        return None


def in_turns(size, calls, unit, rounds=20):
    """Return rows as ``rates`` does, for calls that wait for the GPU themselves."""
    other = torch.zeros(2**27, dtype=torch.int32, device=DEVICE)
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            other.amax()  # the cache holds nothing of ours
            start.record()
            calls[name]()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end))
    return [(*size, name, unit, *spread(values)) for name, values in times.items()]


def compare(what, file, columns, size, calls, results, tolerance, measure=rates):
    """Check *results* {provider: call} against that of ``reference``, and time the *calls*.

    Returns the rows (size …, provider, unit, median, p20, p80) for the CSV file.
    """
    reference = results["reference"]()
    for name, call in list(results.items())[1:]:
        try:
            given = call()
            calls[name]()
        except Exception as error:
            if name in ("triton", "torch"):
                raise
            FAILED[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            del calls[name]
            continue
        for one, other in zip(reference, given, strict=True):
            error = (one.double() - other.double()).norm() / one.double().norm()
            assert error < tolerance, f"{what}, {name}: relative error {error:.1e}"
    rows = measure(size, calls, "ms", rounds=20)
    ROWS.setdefault((file, columns), []).extend(rows)
    times = {row[-5]: row[-3] for row in rows}
    others = [name for name in ("torch", "liger", "fla", "gemlite") if name in results]
    for name in others:
        ratio = f"{times[name] / times['triton']:.2f}" if name in times else "–"
        took = f"{1e3 * times[name]:,.1f}" if name in times else "–"
        shape = " × ".join(f"{n:,}" for n in size)
        TABLE.append((what, shape, name, took, f"{1e3 * times['triton']:,.1f}", ratio))
    return rows


ROWS = {}  # {(file, columns): rows}


def with_gradients(function, inputs, gradient):
    """Return the results of *function* and its gradients for *inputs*, which are copied."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    with torch.enable_grad():
        out = function(*inputs)
    return (out.detach(), *torch.autograd.grad(out, inputs, gradient))


def backward_of(function, inputs, gradient):
    """Return a call of the backward pass of ``function(*inputs)``."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    out = function(*inputs)
    return partial(torch.autograd.grad, out, inputs, gradient, retain_graph=True)


# %%
# Normalization
# -------------
#
# Layer norm and RMS norm, forward and backward, 4096 rows in bf16, beside Liger-Kernel.

# sphinx_gallery_fold = "compares the norms"


def liger_norms():
    """Return Liger's layer norm and RMS norm."""
    from liger_kernel.ops import LigerLayerNormFunction, LigerRMSNormFunction

    def rms_norm(x, weight):
        return LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False)

    def layer_norm(x, weight, bias):
        return LigerLayerNormFunction.apply(x, weight, bias, 1e-5)

    return {"layer norm": layer_norm, "RMS norm": rms_norm}


def norm_inputs(N):
    """Return x, weight and bias for rows of *N* elements in bf16."""
    x = torch.randn(4096, N, device=DEVICE).bfloat16()
    weight, bias = torch.rand(2, N, device=DEVICE).bfloat16()
    return x, weight, bias


if ON_GPU:
    theirs = imported("liger", liger_norms) or {}
    functional = torch.nn.functional
    for what, count in (("layer norm", 3), ("RMS norm", 2)):
        for N in (1024, 4096, 8192, 16384):
            inputs = norm_inputs(N)[:count]
            gradient = torch.randn(4096, N, device=DEVICE).bfloat16()
            if what == "layer norm":
                ours = norms.layer_norm
                torchs = lambda x, w, b: functional.layer_norm(x, x.shape[1:], w, b)  # noqa: E731
            else:
                ours = norms.rms_norm
                torchs = lambda x, w: functional.rms_norm(x, x.shape[1:], w, 1e-6)  # noqa: E731
            functions = {"triton": ours, "torch": torchs, "liger": theirs.get(what)}
            functions = {name: function for name, function in functions.items() if function}
            results = {
                "reference": partial(
                    with_gradients, torchs, [t.float() for t in inputs], gradient.float()
                )
            }
            for name, function in functions.items():
                results[name] = partial(with_gradients, function, inputs, gradient)
            file = what.lower().replace(" ", "-")
            with torch.no_grad():
                forward = {n: partial(f, *inputs) for n, f in functions.items()}
                compare(what, f"beside-{file}", ("M", "N"), (4096, N), forward, results, 2e-2)
            backward = {n: backward_of(f, inputs, gradient) for n, f in functions.items()}
            compare(
                f"{what}, backward", f"beside-{file}-backward", ("M", "N"), (4096, N), backward,
                results, 2e-2,
            )  # fmt: skip
else:
    print("Without a GPU there is nothing to compare.")

# %%
# Losses
# ------
#
# Cross-entropy with its gradient, and the last layer with its loss. Liger writes the gradient over
# the logits, so ours does the same here. Both avoid PyTorch's copies of the logits. The memory of
# the last layer is in a table of its own.

# sphinx_gallery_fold = "compares the losses"


def liger_losses():
    """Return Liger's cross-entropy and its last layer with the loss."""
    from liger_kernel.ops import LigerCrossEntropyFunction, LigerFusedLinearCrossEntropyFunction

    def cross_entropy(logits, targets):
        return LigerCrossEntropyFunction.apply(logits, targets, None)[0]

    def linear_cross_entropy(x, weight, targets):
        return LigerFusedLinearCrossEntropyFunction.apply(x, weight, targets)[0]

    return {"cross-entropy": cross_entropy, "linear": linear_cross_entropy}


def as_results(inputs):
    """Return *inputs* as results of an operation, like the logits of a layer."""
    return [t.view_as(t) for t in inputs]


def gradients(function, inputs, targets):
    """Return the loss and its gradients for copies of *inputs*."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    value = function(*as_results(inputs), targets)
    return (value.detach(), *torch.autograd.grad(value, inputs))


def step_of(function, inputs, targets):
    """Return a call of the forward and the backward pass."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    return lambda: torch.autograd.grad(function(*as_results(inputs), targets), inputs)


def peak_of(call):
    """Return the GiB that *call* allocates on top of what lives before it."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def of_logits(logits):
    """Return the loss function of PyTorch for a last layer."""
    return lambda x, w, t: torch.nn.functional.cross_entropy((x @ w.T).float(), t)


memory = []
if ON_GPU:
    theirs = imported("liger", liger_losses) or {}
    ours = partial(loss.cross_entropy, inplace=True)
    for M, V in ((8192, 32768), (8192, 131072)):
        logits = torch.randn(M, V, device=DEVICE).bfloat16()
        targets = torch.randint(V, (M,), device=DEVICE)
        functions = {"triton": ours, "torch": torch.nn.functional.cross_entropy}
        functions |= {"liger": theirs["cross-entropy"]} if theirs else {}
        results = {
            "reference": partial(
                gradients, torch.nn.functional.cross_entropy, [logits.float()], targets
            )
        }
        for name, function in functions.items():
            results[name] = partial(gradients, function, [logits], targets)
        calls = {n: step_of(f, [logits], targets) for n, f in functions.items()}
        compare(
            "cross-entropy", "beside-cross-entropy", ("M", "V"), (M, V), calls, results, 2e-2,
            in_turns,
        )  # fmt: skip
        del logits, calls, results
    for M, K, V in ((8192, 4096, 32000), (8192, 4096, 128256)):
        x = torch.randn(M, K, device=DEVICE).bfloat16()
        weight = (torch.randn(V, K, device=DEVICE) / K**0.5).bfloat16()
        targets = torch.randint(V, (M,), device=DEVICE)
        torchs = lambda x, w, t: torch.nn.functional.cross_entropy(x @ w.T, t)  # noqa: E731
        functions = {"triton": layer.linear_cross_entropy, "torch": torchs}
        functions |= {"liger": theirs["linear"]} if theirs else {}
        results = {"reference": partial(gradients, torchs, [x, weight], targets)}
        for name, function in functions.items():
            results[name] = partial(gradients, function, [x, weight], targets)
        calls = {n: step_of(f, [x, weight], targets) for n, f in functions.items()}
        rows = compare(
            "last layer and loss", "beside-linear-cross-entropy", ("M", "K", "V"), (M, K, V),
            calls, results, 3e-2, in_turns,
        )  # fmt: skip
        memory += [(M, K, V, name, peak_of(calls[name])) for name in calls]
    write_table("beside-memory.csv", ["M", "K", "V", "provider", "peak GiB"], memory)
    print(
        tabulate(memory, ["M", "K", "V", "last layer and loss", "GiB"], floatfmt=".2f", intfmt=",")
    )
else:
    print("Without a GPU there is nothing to compare.")

# %%
# Linear attention
# ----------------
#
# The gated delta rule, forward, beside flash-linear-attention: 16 key heads, bf16, d = 128.

# sphinx_gallery_fold = "compares the gated delta rule"


def fla_rule():
    """Return flash-linear-attention's chunked gated delta rule."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return lambda *inputs: chunk_gated_delta_rule(*inputs)[0]


def rule_inputs(tokens, heads):
    """Return q, k, v, g and beta for one sequence; keys have length 1."""
    q, k = torch.randn(2, 1, tokens, 16, 128, device=DEVICE)
    v = torch.randn(1, tokens, heads, 128, device=DEVICE).bfloat16()
    g = -torch.rand(1, tokens, heads, device=DEVICE)
    beta = torch.rand(1, tokens, heads, device=DEVICE)
    unit = partial(torch.nn.functional.normalize, dim=-1)
    return unit(q).bfloat16(), unit(k).bfloat16(), v, g, beta


if ON_GPU:
    theirs = imported("fla", fla_rule)
    for tokens, heads in ((2048, 64), (8192, 64), (32768, 16), (32768, 64)):
        inputs = rule_inputs(tokens, heads)
        functions = {"triton": delta.gated_delta_rule} | ({"fla": theirs} if theirs else {})
        results = {"reference": lambda inputs=inputs: (delta.gated_delta_rule(*inputs),)}
        for name, function in functions.items():
            results[name] = lambda f=function, inputs=inputs: (f(*inputs),)
        calls = {n: partial(f, *inputs) for n, f in functions.items()}
        with torch.no_grad():
            compare(
                "gated delta rule", "beside-delta-rule", ("tokens", "heads"), (tokens, heads),
                calls, results, 2e-2,
            )  # fmt: skip
else:
    print("Without a GPU there is nothing to compare.")

# %%
# Weights of four bits
# --------------------
#
# A product with int4 weights in groups of 128, beside GemLite and PyTorch's bf16 product. GemLite's
# Python takes longer than its kernel on few rows, so all three run inside a CUDA graph.

# sphinx_gallery_fold = "compares the products with int4 weights"


def gemlite_layer(weight):
    """Return GemLite's layer with *weight* in four bits, and the weight that it stands for."""
    from gemlite.helper import A16Wn

    N, K = weight.shape
    groups = weight.float().reshape(-1, 128)
    low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
    scale = ((high - low) / 15).to(weight.dtype).float()
    zero = (-low / scale).round()
    packed = (groups / scale + zero).round().clamp(0, 15)
    stands_for = ((packed - zero) * scale).reshape(N, K)
    shape = (N, K // 128)
    made = A16Wn(device=str(weight.device), dtype=weight.dtype).from_weights(
        packed.to(torch.uint8).reshape(N, K), scale.reshape(shape), zero.reshape(shape), 4, 128
    )
    return made, stands_for


def compare_int4(M, N, K, weight, packed, theirs):
    """Compare the products of *M* rows with a weight [N, K] in four bits, as CUDA graphs."""
    x = torch.randn(M, K, device=DEVICE).bfloat16()
    functions = {"triton": lambda: weights.int4_mm(x, *packed), "torch": lambda: x @ weight.T}
    if theirs:
        functions["gemlite"] = lambda: theirs[0](x)
    results, calls = {"reference": lambda: (x.float() @ weight.float().T,)}, {}
    for name, function in functions.items():
        try:
            calls[name] = graph_of(function)
            results[name] = lambda f=function: (f(),)
        except Exception as error:
            if name == "triton":
                raise
            FAILED[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    with torch.no_grad():  # the weights are rounded to 16 values, hence the tolerance
        compare("int4 product", "beside-int4", ("M", "N", "K"), (M, N, K), calls, results, 0.15)


if ON_GPU:
    N = K = 8192
    weight = (torch.randn(N, K, device=DEVICE) / K**0.5).bfloat16()
    packed, theirs = weights.pack_int4(weight), imported("gemlite", partial(gemlite_layer, weight))
    for M in (1, 64, 256):
        compare_int4(M, N, K, weight, packed, theirs)
else:
    print("Without a GPU there is nothing to compare.")

# %%
# The table
# ---------
#
# A ratio above 1 means that our function is faster.

# sphinx_gallery_fold = "prints the table and keeps the rows"
if ON_GPU:
    head = ["function", "size", "beside", "theirs, µs", "ours, µs", "ratio"]
    print(tabulate(TABLE, head, disable_numparse=True, colalign=("left",) * 3 + ("right",) * 3))
    for library, error in FAILED.items():
        print(f"\n{library}: {error}")
    for (file, columns), rows in ROWS.items():
        write_rows(f"{file}.csv", columns, rows)
else:
    print("Without a GPU there is nothing to compare.")

# %%
# How to read it:
#
# * **Norms, forward**, are bound by memory. Where the ratio is about 1, both kernels read and write
#   each row once, and there is nothing left to gain.
# * **Norms, backward**, differ more, because the gradient of the weight is a sum over all rows
#   (:doc:`/getting-started/tutorials/05-layer-norm`).
# * **Cross-entropy**: Liger's reads a value from the GPU in each call, so that its Python has to
#   wait. This time counts, because a program waits, too. A part of our Python may count as well;
#   :doc:`/getting-started/tutorials/10-cross-entropy` has the GPU's time alone.
# * **The last layer**: Liger needs less memory than we do. It takes smaller pieces of the tokens,
#   and pays with more and smaller products. PyTorch keeps all logits. Where the
#   ratio beside it is about 1, what we gain is the memory.
# * **The gated delta rule**: fla-core keeps what its backward pass needs, and ours has none
#   (:doc:`/getting-started/tutorials/14-gated-delta-rule`).
# * **int4**: each of GemLite's kernels serves many formats; ours has a layout for one
#   (:doc:`/getting-started/tutorials/12-int4-weights`). PyTorch's weights are bf16. The more rows,
#   the less the size of the weights matters.
#
# Public figures
# --------------
#
# FlashAttention-3, FlashInfer, DeepGEMM, FlashQLA and Marlin are not written in Triton, and this
# page does not run them. These are public figures, from other machines and other days. Do not
# divide them by ours.

# sphinx_gallery_fold = "prints the public figures"
PUBLIC = [
    ("FlashAttention-3", "attention, fp16", "740 TFLOPS", "H100", "2024-07", "arXiv 2407.08608"),
    ("DeepGEMM", "fp8, scales by block", "1550 TFLOPS", "H800", "2025-04", "its README"),
    ("FlashInfer", "top-p, 128 × 131,072", "139 µs", "–", "2026", "vllm #40376"),
    ("FlashInfer", "top-p, 512 × 131,072", "372 µs", "–", "2026", "vllm #40376"),
    ("FlashQLA", "delta rule, 32,768 tokens", "1.52 ms", "H200", "–", "its benchmarks"),
    ("FlashInfer", "delta rule, 32,768 tokens", "1.55 ms", "H200", "–", "FlashQLA's benchmarks"),
]
print(tabulate(PUBLIC, ["library", "what", "figure", "GPU", "date", "source"]))

# %%
# The two rates are *up to*: of the best size. The delta rule has 16 key and 64 value heads of
# 128. A dash means that the source does not say. The sources are `FlashAttention-3's paper
# <https://arxiv.org/abs/2407.08608>`__, `DeepGEMM's README
# <https://github.com/deepseek-ai/DeepGEMM>`__, `vLLM's pull request 40376
# <https://github.com/vllm-project/vllm/pull/40376>`__ (*topp_whole*), and `FlashQLA's results on an
# H200
# <https://github.com/QwenLM/FlashQLA/blob/main/benchmark/benchmark_results_H200.txt>`__.
#
# **Marlin** (int4) has no line, since it states a ratio and not a rate: `its README
# <https://github.com/IST-DASLab/marlin>`__ (2024) names a speed-up of 3.87 over fp16 weights, on an
# A10 with up to 16 to 32 rows. Four bits in place of 16 allow at most a factor of 4. The README
# adds that Marlin is not yet optimized for Hopper.
