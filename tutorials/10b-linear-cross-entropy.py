r"""
The last layer and its loss
===========================

You write ``linear_cross_entropy(x, weight, targets)`` here: the last layer of a language model and
its cross-entropy, with both gradients. It never holds all logits. Its peak memory is
:measured:`peak` % of PyTorch's, and its time :measured:`time` times. Read :doc:`10-cross-entropy`.
"""

# %%
# The kernel
# ----------
#
# This kernel computes the loss of a row of logits, and overwrites the row with its gradient. It
# is simpler than that of :doc:`10-cross-entropy`, because the function allocates the logits itself
# and chooses where rows begin: ``stride`` is *V* rounded up to a multiple of 16. So each row begins
# at an address divisible by 16, and loads read 16 bytes. Columns past *V* count as minus infinity.

# sphinx_gallery_level = "beyond"
import os
from functools import partial

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)  # the least finite number


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
            gradient = tl.where(cols == target, p - share, p)
            tl.store(row_ptr + cols, gradient, mask=mask, eviction_policy="evict_first")


# %%
# The kernel loads the logit of the target first, because a fast warp in the second loop could
# overwrite it before a slow warp reads it. There each thread stores only what it has loaded itself.
#
# The share of a row in the mean is 1/*n*, where *n* rows count. As in tutorial 10, a kernel of one
# program computes it, so Python does not wait for the GPU.

# sphinx_gallery_fold = "counts the rows, and scales a gradient"


@triton.jit(debug=True, do_not_specialize=["M", "V", "ignore_index"])
def count_kernel(target_ptr, share_ptr, M, V, ignore_index, BLOCK: tl.constexpr):
    """Write 1 / n, where n of the M targets count; NaN if none does."""
    n = 0
    for start in range(0, M, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
        counts = target != ignore_index
        in_range = (target >= 0) & (target < V)
        tl.device_assert(in_range | (target == ignore_index), "a target is out of range")
        n += tl.sum(counts.to(tl.int32), axis=0)
    tl.store(share_ptr, tl.where(n > 0, 1.0 / tl.maximum(n, 1), float("nan")))


@triton.jit
def scale_kernel(grad_ptr, factor_ptr, n, BLOCK: tl.constexpr):
    """Multiply n elements by a factor on the GPU; if it is 1, touch nothing."""
    factor = tl.load(factor_ptr)
    if factor != 1.0:
        begin = tl.program_id(0).to(tl.int64) * BLOCK
        for start in range(begin, n, tl.num_programs(0) * BLOCK):
            offsets = start + tl.arange(0, BLOCK)
            value = tl.load(grad_ptr + offsets, mask=offsets < n).to(tl.float32)
            tl.store(grad_ptr + offsets, factor * value, mask=offsets < n)


# %%
# A piece of the tokens
# ---------------------
#
# The last layer is a product: ``logits = x @ weight.T``, with ``x`` of shape [M, K] and ``weight``
# of shape [V, K], where *K* is the width of the model. Its gradients are two more products, and
# *G*, the gradient of the logits, has the shape of the logits:
#
# .. math::
#
#     G_x = G \cdot \mathrm{weight} \qquad G_\mathrm{weight} = G^T \cdot x
#
# One product computes the logits, our kernel turns them into *G*, and two products read *G*.
# Nothing else reads the logits or *G*, and each row of *G* depends on one row of logits. So take
# **a piece of the tokens**, compute all of it, and then compute the next piece in the same memory:


class LinearCrossEntropy(torch.autograd.Function):
    """The loss of a last layer, with the gradients of its input and of its weight."""

    @staticmethod
    def forward(ctx, x, weight, targets, ignore_index, piece, enabled):
        """Compute the loss and the gradients that are wanted, piece by piece."""
        M, V = len(x), len(weight)
        stride = triton.cdiv(V, 16) * 16
        block, warps = (8192, 8) if V > 4096 else (1024, 4)
        for_x, for_weight = [enabled and needed for needed in ctx.needs_input_grad[:2]]
        like = {"dtype": x.dtype, "device": x.device}
        x_gradient = torch.empty(x.shape, **like) if for_x else None
        weight_gradient = torch.empty(weight.shape, **like) if for_weight else None
        if for_weight and M == 0:
            weight_gradient.zero_()
        share = torch.empty(1, dtype=torch.float32, device=x.device)
        losses = torch.empty(M, dtype=torch.float32, device=x.device)
        count_kernel[(1,)](targets, share, M, V, ignore_index, BLOCK=8192, num_warps=16)
        memory = torch.empty(min(piece, M), stride, **like)
        for start in range(0, M, piece):
            rows = slice(start, min(start + piece, M))
            logits = torch.mm(x[rows], weight.T, out=memory[: rows.stop - start, :V])
            overwriting_kernel[(len(logits),)](
                logits, targets[rows], losses[rows], share, stride, V, ignore_index,
                BLOCK=block, WRITE=for_x or for_weight, num_warps=warps,
            )  # fmt: skip
            if for_x:
                torch.mm(logits, weight, out=x_gradient[rows])  # the logits are G now
            if for_weight:
                first = start == 0  # with beta=0, what is in the memory does not count
                weight_gradient.addmm_(logits.T, x[rows], beta=0 if first else 1)
        ctx.gradients = [x_gradient, weight_gradient]
        return (losses.sum() * share).squeeze()

    @staticmethod
    def backward(ctx, grad):
        """Hand the gradients over, multiplied by *grad* where that is not 1."""
        if torch.is_grad_enabled():  # in a backward pass: with create_graph=True
            raise RuntimeError(
                "linear_cross_entropy: there is no second derivative; leave out create_graph=True"
            )
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError(
                "linear_cross_entropy: backward was called twice, but the gradients exist only "
                "once; add the losses up first, or compute the loss again"
            )
        for gradient in gradients:
            if gradient is not None and (n := gradient.numel()):
                programs = min(1024, triton.cdiv(n, 4096))
                scale_kernel[(programs,)](gradient, grad, n, BLOCK=4096, num_warps=8)
        return *gradients, None, None, None, None


# %%
# The rows of :math:`G_x` belong to the tokens, so each piece writes its own. But each piece adds to
# *all* of :math:`G_\mathrm{weight}`. That has two prices:
#
# * **Time.** Each piece reads and writes :math:`G_\mathrm{weight}` once more. In a large piece the
#   product takes longer than this transfer, and hides it.
# * **Digits.** A product adds up in fp32, but between two pieces the sum is rounded to bf16, which
#   keeps eight bits.
#
# Calling it
# ----------

# sphinx_gallery_fold = "checks the arguments"


def check_tensor(name, x, dtypes):
    """Raise TypeError or ValueError where *x* is no tensor of one of *dtypes* on our device."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in dtypes:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"{name} must be on {DEVICE}, but is on {x.device}")


def check_targets(targets, M, V, ignore_index):
    """Raise TypeError or ValueError where *targets* are not M integers; look at them on a CPU."""
    check_tensor("targets", targets, (torch.int64, torch.int32))
    if targets.shape != (M,):
        raise ValueError(
            f"targets must have one element for each row, shape {(M,)}, but has shape "
            f"{tuple(targets.shape)}"
        )
    if not targets.is_contiguous():
        raise ValueError(
            f"targets must be contiguous, but its stride is {targets.stride(0)}; pass "
            f"targets.contiguous()"
        )
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise TypeError(f"ignore_index must be an int, but is a {type(ignore_index).__name__}")
    if targets.device.type == "cpu":  # a GPU would have to be waited for
        wrong = ((targets < 0) | (targets >= V)) & (targets != ignore_index)
        if wrong.any():
            row = int(wrong.nonzero()[0, 0])
            raise ValueError(
                f"targets must be from 0 to {V - 1}, or {ignore_index} for rows that do not count, "
                f"but targets[{row}] is {int(targets[row])}"
            )


def check_layer(x, weight, targets, ignore_index, piece):
    """Raise TypeError or ValueError where ``linear_cross_entropy`` cannot work."""
    for name, matrix in (("x", x), ("weight", weight)):
        # In fp16 small gradients would be lost before a loss scaler could save them.
        check_tensor(name, matrix, (torch.bfloat16, torch.float32))
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
    check_targets(targets, len(x), len(weight), ignore_index)
    if piece is not None and (isinstance(piece, bool) or not isinstance(piece, int)):
        raise TypeError(f"piece must be an int or None, but is a {type(piece).__name__}")
    if piece is not None and piece < 1:
        raise ValueError(f"piece must be 1 or more, but is {piece}")


# %%


def linear_cross_entropy(x, weight, targets, ignore_index=-100, piece=None):
    """Return the mean cross-entropy of ``x @ weight.T``, without ever holding all logits.

    Args:
        x: bfloat16 or float32 of shape [M, K].
        weight: The same dtype, of shape [V, K], as in ``torch.nn.Linear``.
        targets: int64 or int32 of shape [M], from 0 to V - 1.
        ignore_index: The target of rows that do not count.
        piece: Tokens at a time. If None, as many as make 320 MiB of logits.

    Raises:
        TypeError: An argument is no tensor of such a dtype.
        ValueError: Shapes or devices do not fit; or, on a CPU, a target is out of range.
    """
    check_layer(x, weight, targets, ignore_index, piece)
    if piece is None:
        piece = max(128, 5 * 2**26 // (len(weight) * x.element_size()) // 128 * 128)
    enabled = torch.is_grad_enabled()
    return LinearCrossEntropy.apply(x, weight, targets, ignore_index, piece, enabled)


# %%
# fp16 is refused. The share makes many gradients smaller than the smallest fp16 number, and the
# products need them before a loss scaler can help.
#
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


torch.manual_seed(0)
for dtype, limit in [(torch.float32, 1e-5)] + [(torch.bfloat16, 2**-6)] * ON_GPU:
    for M, K, V, piece in ((7, 5, 781, 3), (64, 32, 1000, 64), (130, 24, 333, 50), (9, 8, 4097, 4)):
        x = torch.randn(M, K, device=DEVICE).to(dtype)
        weight = torch.randn(V, K, device=DEVICE).to(dtype)
        targets = torch.randint(0, V, (M,), device=DEVICE)
        targets[2::5] = -100
        errors = layer_errors(partial(linear_cross_entropy, piece=piece), x, weight, targets)
        torch.testing.assert_close(errors, [0.0] * 3, rtol=0, atol=limit)
        assert linear_cross_entropy(x[:0], weight, targets[:0]).isnan()
print("linear_cross_entropy agrees with float64")

# %%
# What the pieces cost in digits
# ------------------------------
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
# Time and memory
# ---------------
#
# The benchmark has 8192 tokens, 4096 wide, and 131 072 words, forward and backward. The **peak** is
# the most memory that was allocated beyond the inputs, by PyTorch's own count. Every peak includes
# the gradients. The rest is **working memory**.

# sphinx_gallery_fold = "times the layer, measures its memory, draws it, and keeps the rows"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
import matplotlib.pyplot as plt
from shared.bench import rows_of, write_calls, write_rows, write_table


@triton.jit
def empty_kernel():
    """Do nothing."""


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
    _, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
    names = {"triton": "linear_cross_entropy", "torch": "PyTorch", "compile": "torch.compile"}
    labels = [names[provider] for provider in memory]
    working = [most for _, most in memory.values()]
    gradients = [peak - most for peak, most in memory.values()]
    ax.barh(labels, gradients, color="#cccccc", label="gradients")
    ax.barh(labels, working, left=gradients, color="#1b6ca8", label="working memory")
    ax.invert_yaxis()
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(xlabel="GB, lower is better", title=f"Memory of the last layer and its loss\non {gpu}")
    ax.legend()
    plt.show()


if ON_GPU:
    from torch._inductor import config

    config.compile_threads = 1  # or its processes start while others are timed, on all cores
    M, K, V = size = 8192, 4096, 131072
    x = torch.randn(M, K, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    weight = (torch.randn(V, K, device=DEVICE) / K**0.5).bfloat16().requires_grad_()
    targets = torch.randint(0, V, (M,), device=DEVICE)
    functions = {"triton": linear_cross_entropy, "torch": plain_layer}
    functions["compile"] = torch.compile(plain_layer, dynamic=False)
    calls = {name: partial(layer_step, f, x, weight, targets) for name, f in functions.items()}
    for call in calls.values():
        call()  # compiles the kernels, and cuBLAS allocates its workspace
    memory = {provider: peak_memory(call) for provider, call in calls.items()}
    rows = rows_of(size, calls, "ms", rounds=10, as_called=("triton", "torch"))
    write_rows("linear-cross-entropy.csv", ["M", "K", "V"], rows)
    header = ["M", "K", "V", "provider", "peak GB", "working GB"]
    write_table("linear-cross-entropy-memory.csv", header, [
        (*size, provider, *most) for provider, most in memory.items()
    ])  # fmt: skip
    for provider, most in memory.items():
        values += [(f"peak {provider}", "GB", most[0]), (f"working {provider}", "GB", most[1])]
    write_table("10b-linear-cross-entropy-values.csv", ["name", "unit", "value"], values)
    x, weight, targets = x[:64], weight[:1024], targets[:64] % 1024
    functions = {"triton": linear_cross_entropy, "torch": plain_layer}
    calls = {name: partial(function, x, weight, targets) for name, function in functions.items()}
    calls["launch"] = lambda: [empty_kernel[(1,)]() for _ in range(2)]
    write_calls({"linear_cross_entropy": calls})
    table = [(provider, ms) for _, _, _, provider, _, ms, _, _ in rows]
    print(tabulate(table, ["8192 × 4096 × 131072", "ms"], floatfmt=".1f"))
    draw_memory(memory)
else:
    print("Without a GPU there is neither time nor memory to measure.")

# %%
# Our function takes :measured:`ours` ms on the GPU and :measured:`called` ms as called. PyTorch
# takes :measured:`torch` ms. Both spend nearly all of this time on the same products.
#
# PyTorch's working memory is :measured:`working_torch` GB, which holds several tensors of the size
# of the logits. Ours is :measured:`working` GB, the memory of one piece, and does not grow with the
# tokens.
#
# References
# ----------
#
# * Erik Wijmans, Brody Huval, Alexander Hertzberg, Vladlen Koltun and Philipp Krähenbühl: *Cut your
#   losses in large-vocabulary language models*, 2024, https://arxiv.org/abs/2411.09009: the loss
#   without the logits, in one kernel with the product.
# * Pin-Lun Hsu and others: *Liger kernel: efficient Triton kernels for LLM training*, 2024,
#   https://arxiv.org/abs/2410.10989: the loss in pieces, with the gradient in the forward pass.
