r"""
The last layer and its loss
===========================

You build ``linear_cross_entropy(x, weight, targets)``: the last layer of a language model and its
loss, with both gradients, in a fraction of the memory. The peak is :measured:`peak` % of
PyTorch's, and the time is :measured:`time` % of PyTorch's. You need :doc:`10-cross-entropy`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)  # the lowest finite number
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# The kernel
# ----------
#
# This kernel computes the loss of a row of logits, and overwrites the row with its gradient. It is
# simpler than that of :doc:`10-cross-entropy`, because here our own function allocates the logits
# and chooses where rows begin: ``stride`` is *V*, the number of tokens in the vocabulary, rounded
# up to a multiple of 16. So each row begins at an address divisible by 16, and a thread reads 16
# bytes with one instruction. Columns past *V* count as −∞.


@triton.jit
def overwriting_kernel(
    x_ptr, target_ptr, loss_ptr, share_ptr, stride, V, ignore_index,
    BLOCK: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """Compute the loss of one row, and overwrite the row with its gradient."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    row_ptr = x_ptr + row * stride
    hit = tl.load(row_ptr + target, mask=target != ignore_index, other=0.0).to(tl.float32)
    m = LOWEST
    s = 0.0
    for start in range(0, stride, BLOCK):
        cols = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(row_ptr + cols, mask=cols < stride, eviction_policy="evict_last")
        x = tl.where(cols < V, x.to(tl.float32), -float("inf"))
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    share = tl.load(share_ptr)
    loss = 0.0
    if target != ignore_index:
        loss = m - hit + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + row, loss)
    if WRITE:
        last = (stride - 1) // BLOCK * BLOCK
        for done in range(0, stride, BLOCK):
            cols = last - done + tl.arange(0, BLOCK)
            mask = cols < stride
            x = tl.load(row_ptr + cols, mask=mask, eviction_policy="evict_first")
            x = tl.where(cols < V, x.to(tl.float32), -float("inf"))
            p = tl.exp(x - m) * (share / s)
            gradient = tl.where(cols == target, p - share, p)  # <-
            tl.store(row_ptr + cols, gradient, mask=mask, eviction_policy="evict_first")


# %%
# How it works
# ------------
#
# * The first loop is the online softmax: the maximum ``m`` and the sum ``s`` of all exponentials.
# * The second loop reads the row again, backwards, and **overwrites each logit with its gradient**.
#   No thread needs a logit that another thread has overwritten, because each thread stores only
#   elements that it has loaded itself.
# * The logit of the target is the exception, since every thread uses it for the loss. So it is
#   loaded before the first loop.
# * ``share`` is 1/*n*, where *n* rows count. A small kernel counts them on the GPU, as in
#   :doc:`10-cross-entropy`.
#
# Here is a row of five logits, whose target is token 2, before and after:

# sphinx_gallery_fold = "runs the kernel on one row"
row = torch.zeros(1, 16, device=DEVICE)
row[0, :5] = torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5])
print("logits:  ", ", ".join(f"{x:6.3f}" for x in row[0, :5].tolist()))
target, loss, share = torch.tensor([2], device=DEVICE), row.new_empty(1), row.new_ones(1)
wanted = functional.cross_entropy(row[:, :5], target)
overwriting_kernel[(1,)](row, target, loss, share, 16, 5, -100, BLOCK=16, WRITE=True)
torch.testing.assert_close(loss[0], wanted)
print("gradient:", ", ".join(f"{x:6.3f}" for x in row[0, :5].tolist()))

# %%
# A piece of the tokens
# ---------------------
#
# The last layer is a product: ``logits = x @ weight.T``. There ``x`` has the shape [M, K], for *M*
# tokens and a model that is *K* wide, and ``weight`` has the shape [V, K]. Let *G* be the gradient
# of the logits. It has their shape, and two more products give the gradients that training needs:
#
# .. math::
#
#     G_x = G \cdot \mathrm{weight} \qquad G_\mathrm{weight} = G^T \cdot x
#
# The logits are the largest tensor: for 8192 tokens and a vocabulary of 131,072 they have 2 GiB in
# bf16. But only our kernel reads them, and only two products read *G*. A row of *G* depends on one
# row of logits. So take **a piece of the tokens**, finish it, and compute the next piece in the
# same memory:

# sphinx_gallery_fold = "draws the pieces of the logits and of the gradients"
import matplotlib.pyplot as plt
from shared.bench import figure


def draw_pieces(pieces=4):
    """Draw x, the memory of one piece of logits, and the two gradients."""
    _, ax = figure(height=2.7)
    boxes = [(0, 1.2, "x"), (2.2, 3.6, "logits, then G"), (6.8, 1.2, "$G_x$")]
    for left, width, name in boxes:
        for i in range(pieces):
            ours, kept = i == 1, name[0] != "l"
            if ours or kept:
                color = "#cfe3f1" if ours else "#eeeeee"
                ax.add_patch(
                    plt.Rectangle((left, i), width, 1, facecolor=color, edgecolor="#444444")
                )
        ax.text(left + width / 2, -0.25, name, ha="center", va="bottom")
    ax.text(1.7, 1.5, "→", ha="center", va="center")
    ax.text(6.3, 1.5, "→", ha="center", va="center")
    ax.text(4, 2.7, "the next piece uses\nthe same memory", ha="center", va="center")
    ax.add_patch(plt.Rectangle((8.8, 1), 2.6, 1, facecolor="#cfe3f1", edgecolor="#444444"))
    ax.text(10.1, 0.75, r"$G_\mathrm{weight}$", ha="center", va="bottom")
    ax.text(10.1, 2.5, "every piece\nadds to all of it", ha="center", va="center")
    ax.text(8.4, 1.5, "→", ha="center", va="center")
    ax.set(xlim=(-0.2, 11.6), ylim=(pieces + 0.1, -1))
    ax.axis("off")
    plt.show()


draw_pieces()

# %%
# PyTorch holds all logits and more tensors of their size. Our pieces of the logits have 512 MiB.
#
# .. predict:: How much memory do we need, beside the gradients?
#    :choices: a hundredth of PyTorch's | a tenth of PyTorch's | half of PyTorch's
#    :answer: a tenth of PyTorch's
#
#    Ours is one piece. On this GPU it is :measured:`working` GB, and PyTorch's is
#    :measured:`working_torch` GB. With more tokens ours stays, and PyTorch's grows.
#
# Calling it
# ----------
#
# Each piece takes three products and one kernel, and no tensor holds all logits.
# ``tl.device_assert`` stops the counting kernel at a wrong target; it needs ``debug=True``:

from shared.losses import ONE, count_kernel


def loss_and_gradients(x, weight, targets, piece):
    """Return the mean loss and the gradients of *x* and *weight*, *piece* tokens at a time."""
    M, V = len(x), len(weight)
    stride = triton.cdiv(V, 16) * 16
    size = {"BLOCK": 8192, "num_warps": 8} if V > 4096 else {"BLOCK": 1024, "num_warps": 4}
    losses, share = (torch.empty(n, dtype=torch.float32, device=x.device) for n in (M, 1))
    x_gradient, weight_gradient = torch.empty_like(x), torch.empty_like(weight)
    memory = x.new_empty(min(piece, M), stride)
    count_kernel[(1,)](targets, share, M, V, -100, **ONE)
    for start in range(0, M, piece):
        rows = slice(start, min(start + piece, M))
        logits = torch.mm(x[rows], weight.T, out=memory[: rows.stop - start, :V])
        arguments = logits, targets[rows], losses[rows], share, stride, V, -100
        overwriting_kernel[(len(logits),)](*arguments, WRITE=True, **size)
        torch.mm(logits, weight, out=x_gradient[rows])  # the logits are G now
        weight_gradient.addmm_(logits.T, x[rows], beta=0 if start == 0 else 1)  # 0: overwrite
    return (losses.sum() * share).squeeze(), x_gradient, weight_gradient


class LinearCrossEntropy(torch.autograd.Function):
    """The loss, whose gradients exist before they are asked for."""

    @staticmethod
    def forward(ctx, x, weight, targets, piece):
        """Compute the loss and both gradients."""
        loss, *ctx.gradients = loss_and_gradients(x, weight, targets, piece)
        return loss

    @staticmethod
    def backward(ctx, grad):
        """Multiply the gradients by the incoming one."""
        return *(grad * gradient for gradient in ctx.gradients), None, None


def linear_cross_entropy(x, weight, targets, piece=2048):
    """Return the mean cross-entropy of ``x @ weight.T``; targets of -100 do not count."""
    return LinearCrossEntropy.apply(x, weight, targets, piece)


# %%
# The check is against float64, with pieces that do not divide the tokens. Each element of a product
# is a sum with its own rounding errors, so the error is compared with the norm of the whole
# gradient.

# sphinx_gallery_fold = "compares loss and gradients with float64, in pieces of several sizes"


def layer_errors(function, x, weight, targets):
    """Return the relative errors of loss, gradient of x and of the weight, against float64."""
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    expected = functional.cross_entropy(exact[0] @ exact[1].T, targets)
    wanted = [expected.detach(), *torch.autograd.grad(expected, exact)]
    ours = [t.detach().requires_grad_() for t in (x, weight)]
    loss = function(*ours, targets)
    got = [loss.detach(), *torch.autograd.grad(loss, ours)]
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(got, wanted, strict=True)]


def check(function, dtype, limit):
    """Stop where an error of *function*, in pieces of several sizes, exceeds *limit*."""
    torch.manual_seed(0)
    for M, K, V, piece in ((7, 5, 781, 3), (64, 32, 1000, 64), (130, 24, 333, 50), (9, 8, 4097, 4)):
        x = torch.randn(M, K, device=DEVICE).to(dtype)
        weight = torch.randn(V, K, device=DEVICE).to(dtype)
        targets = torch.randint(0, V, (M,), device=DEVICE)
        targets[2::5] = -100
        errors = layer_errors(partial(function, piece=piece), x, weight, targets)
        torch.testing.assert_close(errors, [0.0] * 3, rtol=0, atol=limit)


LIMITS = {torch.float32: 1e-5} | ({torch.bfloat16: 2**-6} if ON_GPU else {})
for dtype, limit in LIMITS.items():
    check(linear_cross_entropy, dtype, limit)
print("linear_cross_entropy agrees with float64")

# %%
# What the pieces cost
# --------------------
#
# The rows of :math:`G_x` belong to the tokens, so each piece writes its own. But each piece adds to
# *all* of :math:`G_\mathrm{weight}`. That has two prices:
#
# * **Time.** Each piece reads and writes :math:`G_\mathrm{weight}` once more. In a large piece the
#   product takes longer than this transfer, and hides it.
# * **Digits.** A product adds up in fp32, but between two pieces the sum is rounded to bf16, which
#   keeps eight bits.
#
# **Try it** *(easy, 20 minutes)*. Keep the gradient of the weight in fp32 between the pieces, and
# round it once. ``gradients_in_fp32(x, weight, targets, piece)`` returns the mean loss and both
# gradients. ``exercise.pyz`` (see *Exercises*) checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 10b-fp32-sum mine.py
#
# The table shows the error of the weight's gradient against float64, in one piece and in several.
# The layer has 8192 tokens and is small enough for float64.

# sphinx_gallery_fold = "prints the errors for several numbers of pieces"
from tabulate import tabulate


def plain_layer(x, weight, targets):
    """Return the loss as PyTorch computes it."""
    return functional.cross_entropy(functional.linear(x, weight), targets)


values = []
if ON_GPU:
    x = torch.randn(8192, 512, device=DEVICE, dtype=torch.bfloat16)
    weight = (torch.randn(8192, 512, device=DEVICE) / 512**0.5).bfloat16()
    targets = torch.randint(0, 8192, (8192,), device=DEVICE)
    layers = {"PyTorch": plain_layer}
    for pieces in (1, 8, 64):
        layers[f"pieces {pieces}"] = partial(linear_cross_entropy, piece=8192 // pieces)
    errors = {name: layer_errors(layer, x, weight, targets)[2] for name, layer in layers.items()}
    values += [(f"error {name}", "1", error) for name, error in errors.items()]
    print(tabulate(errors.items(), ["weight's gradient", "relative error"], floatfmt=".4f"))
else:
    print("Without a GPU there is no bf16.")

# %%
# Eight pieces have :measured:`error_8` times PyTorch's error, and 64 pieces :measured:`error_64`
# times. Each piece rounds the whole gradient once more, and the rounding errors add up. Larger
# pieces keep more digits and need more memory.
#
# In a program
# ------------
#
# A function that others call computes only the gradients that somebody wants: with a frozen weight,
# one product less for each piece. It refuses fp16: the share makes many gradients smaller than the
# smallest fp16 number, and the products need them before a loss scaler can help. It refuses a
# second backward pass, since the gradients exist only once, and it multiplies them only if the
# incoming gradient is not 1. Under ``torch.compile`` the function stays outside of the compiled
# code. With both gradients wanted it makes the launches of the plain function, so one time serves
# both. :doc:`/programming-guide/chapter-6/calls` says what the checks of a call cost.

# sphinx_gallery_fold = "the function with its checks"
from shared.compiled import between_graphs
from shared.launch import on_device_of
from shared.losses import check_targets, check_tensor, handed_over, scaled

# In fp16 small gradients would be lost. In the interpreter bf16 is wrong.
DTYPES = (torch.float32,) + (torch.bfloat16,) * ON_GPU


class CheckedLinearCrossEntropy(torch.autograd.Function):
    """The loss of a last layer, with the gradients of its input and of its weight."""

    @staticmethod
    def forward(ctx, x, weight, targets, ignore_index, piece, enabled):
        """Compute the loss and the gradients that are wanted, piece by piece."""
        M, V = len(x), len(weight)
        stride = triton.cdiv(V, 16) * 16
        size = {"BLOCK": 8192, "num_warps": 8} if V > 4096 else {"BLOCK": 1024, "num_warps": 4}
        for_x, for_weight = [enabled and needed for needed in ctx.needs_input_grad[:2]]
        like = {"dtype": x.dtype, "device": x.device}
        x_gradient = torch.empty(x.shape, **like) if for_x else None
        weight_gradient = torch.empty(weight.shape, **like) if for_weight else None
        if for_weight and M == 0:
            weight_gradient.zero_()
        losses, share = (torch.empty(n, dtype=torch.float32, device=x.device) for n in (M, 1))
        memory = torch.empty(min(piece, M), stride, **like)
        with on_device_of(x):
            count_kernel[(1,)](targets, share, M, V, ignore_index, **ONE)
            for start in range(0, M, piece):
                rows = slice(start, min(start + piece, M))
                logits = torch.mm(x[rows], weight.T, out=memory[: rows.stop - start, :V])
                arguments = logits, targets[rows], losses[rows], share, stride, V, ignore_index
                overwriting_kernel[(len(logits),)](*arguments, WRITE=for_x or for_weight, **size)
                if for_x:
                    torch.mm(logits, weight, out=x_gradient[rows])  # the logits are G now
                if for_weight:
                    weight_gradient.addmm_(logits.T, x[rows], beta=0 if start == 0 else 1)
        ctx.gradients = [x_gradient, weight_gradient]
        return (losses.sum() * share).squeeze()

    @staticmethod
    def backward(ctx, grad):
        """Hand the gradients over, multiplied by *grad* where that is not 1."""
        gradients, ctx.gradients = handed_over("linear_cross_entropy", ctx.gradients), None
        wanted = [None if gradient is None else scaled(gradient, grad) for gradient in gradients]
        return *wanted, None, None, None, None


def check_layer(x, weight, targets, ignore_index, piece):
    """Raise TypeError or ValueError where ``linear_cross_entropy`` cannot work."""
    check_tensor("x", x, DTYPES, torch.device(DEVICE.type))
    check_tensor("weight", weight, (torch.float32, torch.bfloat16), x.device)
    for name, matrix in (("x", x), ("weight", weight)):
        if matrix.ndim != 2:
            raise ValueError(f"{name} must be a matrix, but has shape {tuple(matrix.shape)}")
    if weight.dtype != x.dtype:
        raise TypeError(f"weight must be {x.dtype} as x is, but its dtype is {weight.dtype}")
    if weight.shape[1] != x.shape[1]:
        raise ValueError(
            f"weight must have as many columns as x, {x.shape[1]}, but has shape "
            f"{tuple(weight.shape)}"
        )
    if len(weight) == 0:
        raise ValueError("weight must have at least one row, but has none")
    check_targets(targets, len(x), len(weight), ignore_index, x.device)
    for name, tensor in (("x", x), ("weight", weight), ("targets", targets)):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"{name} must hold numbers, but is a {type(tensor).__name__}")
    if piece is not None and (isinstance(piece, bool) or not isinstance(piece, int)):
        raise TypeError(f"piece must be an int or None, but is a {type(piece).__name__}")
    if piece is not None and piece < 1:
        raise ValueError(f"piece must be 1 or more, but is {piece}")


@between_graphs
def linear_cross_entropy(x, weight, targets, ignore_index=-100, piece=None):
    """Return the mean cross-entropy of ``x @ weight.T``, without ever holding all logits.

    Args:
        x: bf16 (on a GPU) or fp32 of shape [M, K], with any strides.
        weight: The same dtype and device, of shape [V, K], as in ``torch.nn.Linear``.
        targets: Contiguous int64 or int32 of shape [M], from 0 to V - 1. On a GPU, an assertion
            stops a kernel at a wrong target.
        ignore_index: The target of rows that do not count. If none counts, the mean is NaN.
        piece: Tokens at a time. If None, as many as make 512 MiB of logits.

    Raises:
        TypeError: An argument is no tensor, has another dtype, or is a fake tensor.
        ValueError: Shapes, strides or devices do not fit, or a target on the CPU is out of range.
        RuntimeError: Backward runs twice, or with ``create_graph=True``.
    """
    check_layer(x, weight, targets, ignore_index, piece)
    targets = targets.resolve_neg()
    if piece is None:
        piece = max(128, 2**29 // (len(weight) * x.element_size()) // 128 * 128)
    enabled = torch.is_grad_enabled()
    return CheckedLinearCrossEntropy.apply(x, weight, targets, ignore_index, piece, enabled)


for dtype, limit in LIMITS.items():
    check(linear_cross_entropy, dtype, limit)
none = torch.empty(0, 5, device=DEVICE), torch.ones(3, 5, device=DEVICE)
assert linear_cross_entropy(*none, torch.empty(0, dtype=torch.int64, device=DEVICE)).isnan()
print("linear_cross_entropy agrees with float64")

# %%
# The benchmark
# -------------
#
# The benchmark has 8192 tokens, 4096 wide, and a vocabulary of 131,072, forward and backward. The
# **peak** is the most memory that was allocated beyond the inputs, by PyTorch's own count. We call
# what it exceeds the size of the gradients by **working memory**. PyTorch reaches its peak before
# these gradients exist, so it works with even more.

# sphinx_gallery_fold = "times the layer, measures its memory, draws it, and keeps the rows"
# sphinx_gallery_xray = "overwriting_kernel: rows of 131,072, bf16"
from matplotlib.legend_handler import HandlerTuple
from shared.bench import OURS, PALETTE, rates, write_calls, write_rows, write_table
from shared.plans import empty_kernel


def layer_step(function, x, weight, targets):
    """Compute the loss of the last layer and the gradients of its input and its weight."""
    return torch.autograd.grad(function(x, weight, targets), (x, weight))


def peak_memory(call):
    """Return the most GB that *call* needed beyond what was there, and that without its result."""
    gpu = torch.get_device_module(DEVICE)
    gpu.synchronize()
    gpu.empty_cache()
    gpu.reset_peak_memory_stats()
    before = gpu.memory_allocated()
    result = call()
    peak = gpu.max_memory_allocated() - before
    return peak / 1e9, (peak - sum(tensor.nbytes for tensor in result)) / 1e9


def draw_memory(memory):
    """Draw a bar for each provider: gradients, then working memory."""
    fig, ax = figure(height=3)
    names = {"triton": "ours", "torch": "PyTorch", "compile": "torch.compile"}
    labels = [names[provider] for provider in memory]
    working = [most for _, most in memory.values()]
    gradients = [peak - most for peak, most in memory.values()]
    gray = ax.barh(labels, gradients, color="#cccccc")
    colors = [PALETTE.get(provider, OURS) for provider in memory]
    colored = ax.barh(labels, working, left=gradients, color=colors)
    ax.bar_label(gray, fmt="%.1f", label_type="center")
    ax.bar_label(colored, labels=[f"+ {most:.1f}" for most in working], padding=4)
    ax.set_xlim(right=1.2 * max(peak for peak, _ in memory.values()))
    ax.invert_yaxis()
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(xlabel="GB, lower is better", title=f"Memory of the last layer and its loss\non {gpu}")
    names = ["gradients", "working memory"]
    of_each = {tuple: HandlerTuple(ndivide=None)}  # all three colors in one entry
    place = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    fig.legend([gray, tuple(colored)], names, handler_map=of_each, handlelength=3, **place)
    plt.show()


def layer(M, K, V):
    """Return a random input, weight and targets in bf16, with gradients."""
    x = torch.randn(M, K, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    weight = (torch.randn(V, K, device=DEVICE) / K**0.5).bfloat16().requires_grad_()
    return x, weight, torch.randint(0, V, (M,), device=DEVICE)


if ON_GPU:
    from torch._inductor import config

    config.compile_threads = 1  # or its processes start while others are timed, on all cores
    x, weight, targets = layer(*(size := (8192, 4096, 131072)))
    functions = {"torch": plain_layer, "compile": torch.compile(plain_layer, dynamic=False)}
    functions["triton"] = linear_cross_entropy
    calls = {name: partial(layer_step, f, x, weight, targets) for name, f in functions.items()}
    for call in calls.values():
        call()  # compiles the kernels, and cuBLAS allocates its workspace
    memory = {provider: peak_memory(calls[provider]) for provider in ("triton", "torch", "compile")}
    rows = rates(size, calls, "ms", rounds=10)
    calls["triton"]()  # the last launch is the one whose X-ray is shown
    write_rows("linear-cross-entropy.csv", ["M", "K", "V"], rows)
    header = ["M", "K", "V", "provider", "peak GB", "working GB"]
    write_table("linear-cross-entropy-memory.csv", header, [
        (*size, provider, *most) for provider, most in memory.items()
    ])  # fmt: skip
    for provider, most in memory.items():
        values += [(f"peak {provider}", "GB", most[0]), (f"working {provider}", "GB", most[1])]
    table = [(provider, ms) for _, _, _, provider, _, ms, _, _ in rows]
    print(tabulate(table, ["8192 × 4096 × 131,072", "ms"], floatfmt=".1f"))
    draw_memory(memory)
    few = layer(64, 4096, 1024)
    functions = {"triton": linear_cross_entropy, "torch": plain_layer}
    calls = {name: partial(function, *few) for name, function in functions.items()}
    calls["launch"] = lambda: [empty_kernel[(1,)]() for _ in range(2)]
    cpu = write_calls({"linear_cross_entropy": calls})
    for tokens in (16, 32, 64, 128, 256, 512, 1024):
        one = partial(linear_cross_entropy, x[:tokens], weight, targets[:tokens])
        ((_, _, median, *_),) = rates((), {"": one}, "µs", rounds=10)
        if median > cpu["linear_cross_entropy", "triton"]:
            break
    values.append(("GPU longer from", "tokens", tokens))
    write_table("10b-linear-cross-entropy-values.csv", ["name", "unit", "value"], values)
else:
    print("Without a GPU there is neither time nor memory to measure.")

# %%
# Our function takes :measured:`ours` ms on the GPU, PyTorch takes :measured:`torch` ms, and
# ``torch.compile`` of PyTorch's two lines takes :measured:`compile` ms. All three spend most of
# this time on the same products. The compiler's kernels write no gradient more than once, while
# ours adds to the gradient of the weight for each piece. If memory is plentiful, ``torch.compile``
# is the simpler choice.
#
# PyTorch's working memory is :measured:`working_torch` GB, :measured:`in_logits` times the size of
# the logits. Ours is :measured:`working` GB, the memory of one piece, and does not grow with the
# tokens.
#
# A call, which computes the gradients too, keeps the CPU busy for :measured:`cpu` µs. PyTorch's
# two, without gradients, do so for :measured:`cpu_torch` µs. In a loop that does not wait, a call
# costs the larger of the CPU's and the GPU's time. With the benchmark's weight, the GPU's is the
# larger at :measured:`gpu_longer` tokens.
#
# Exercises
# ---------
#
# 1. **A sum in fp32** *(easy, 20 minutes)*. The exercise above. How many bytes does it cost, and
#    how large is the error with 64 pieces? :doc:`Solution <solutions/10b-fp32-sum>`.
# 2. **A bias** *(medium, 40 minutes)*. Add a bias to the layer: the logits are
#    ``x @ weight.T + bias``. Its gradient is the sum of *G* over the tokens. Which kernel adds the
#    bias without another transfer of the logits? ``with_bias(x, weight, bias, targets, piece)``
#    returns the mean loss and three gradients. :doc:`Solution <solutions/10b-bias>`.
#
# References
# ----------
#
# * Erik Wijmans, Brody Huval, Alexander Hertzberg, Vladlen Koltun and Philipp Krähenbühl: *Cut your
#   losses in large-vocabulary language models*, 2024, https://arxiv.org/abs/2411.09009: the loss
#   without the logits, in one kernel with the product.
# * Pin-Lun Hsu and others: *Liger kernel: efficient Triton kernels for LLM training*, 2024,
#   https://arxiv.org/abs/2410.10989: the loss in pieces, with the gradient in the forward pass.
