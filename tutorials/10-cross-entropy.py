r"""
Cross-entropy, alone and fused with the last layer
==================================================

A language model ends with one number for every word that it knows, for every token that it reads:
the **logits**. They are the largest tensor of the training step, and the loss, a single number, is
made of them: everything is memory, in both meanings of the word.

You will build ``cross_entropy(logits, targets)`` and ``linear_cross_entropy(x, weight, targets)``,
both with their derivatives, and learn

* why the backward pass of a loss can be done before anybody has asked for it;
* when a row that is read twice comes from memory only once, and how to help that;
* what an odd number of columns does to loads of 16 bytes;
* what it takes to overwrite an input behind PyTorch's back without lying to it;
* how to never hold the largest tensor at all, and what that costs in time and in digits.

You should know :doc:`02-fused-softmax`, and autograd functions from :doc:`04-low-memory-dropout`.

.. ladder::
"""

# %%

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_fold_output = True
# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "transformer"
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.measuring import measure, rates, significant, warm_up, write_rows
from shared.setup import DEVICE, ON_GPU

print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%

# sphinx_gallery_fold = "brings the ladder of steps and the claims"
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder

# %%

# sphinx_gallery_fold = "imports Triton"
import triton
import triton.language as tl

# %%
# The loss, and what must be moved
# --------------------------------
#
# A **token** is a word or a part of one, the **vocabulary** is the list of all *V* of them, and the
# **target** :math:`t` of a row is the number of the token that really came next. The loss of the
# row is minus the logarithm of the probability that softmax (:doc:`02-fused-softmax`) gives to it:
#
# .. math::
#
#     \ell = -\log \frac{e^{x_t}}{\sum_j e^{x_j}} = \mathrm{lse}(x) - x_t
#     \qquad \text{with} \quad \mathrm{lse}(x) = \log \sum_j e^{x_j}
#
# :math:`\mathrm{lse}` is the **log-sum-exp**. The loss of a batch is the mean over its *n* rows
# whose target is not ``ignore_index``. The gradient is the probabilities, less 1 at one place:
#
# .. math::
#
#     \frac{\partial L}{\partial x_j} = \frac{1}{n} \left( p_j - [j = t] \right)
#     \qquad \text{with} \quad p_j = e^{x_j - \mathrm{lse}(x)}
#
# Count the bytes of *M* rows: the forward pass reads :math:`MV` elements and writes *M*, the
# backward pass reads :math:`MV` and writes :math:`MV`. Two reads and a write, **three transfers**:
# the time of one and a half copies is the ceiling on this page. Keep an eye on the second read. Is
# it needed? The benchmark has three vocabularies, two powers of two, of the size of Llama 2's and
# Llama 3's, and that of GPT-2, an odd number. Their logits are half a gigabyte and more:

# sphinx_gallery_fold = "prints the size of the logits"
# sphinx_gallery_fold_output = True


def describe(M, V):
    """Print the size of the logits of *M* tokens."""
    gigabytes = M * V * 2 / 1e9
    print(f"{M} tokens, V = {V:6d}: {gigabytes:.2g} GB of logits in bf16")


for V in (32768, 50257, 131072):
    describe(8192, V)

# %%
# Step 1: two kernels, three transfers
# ------------------------------------
#
# A row of a hundred thousand elements does not fit into the registers of a program, so it comes in
# blocks. The maximum is needed before the first exponential, but not the *final* maximum: keep the
# largest element so far, :math:`m`, and the sum :math:`s` of :math:`e^{x_j - m}` so far, and when a
# larger element turns up, correct the sum by :math:`e^{m - m'}`. That is the **online** softmax of
# tutorial 02. It leaves :math:`\mathrm{lse} = m + \log s`.

LOWEST = tl.constexpr(torch.finfo(torch.float32).min)  # the least number but minus infinity


@triton.jit
def loss_kernel(x_ptr, target_ptr, loss_ptr, lse_ptr, stride, V, ignore_index, BLOCK: tl.constexpr):
    """Compute the loss of one row, and leave its log-sum-exp for the backward pass."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    m = LOWEST
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    loss = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + row * stride + target).to(tl.float32) + tl.log(s)
    tl.store(loss_ptr + row, loss)
    tl.store(lse_ptr + row, m + tl.log(s))


@triton.jit
def gradient_kernel(
    x_ptr, target_ptr, lse_ptr, grad_ptr, share_ptr, stride, V, ignore_index, BLOCK: tl.constexpr
):
    """Write the gradient of one row; *share* is what the row contributes to the mean, 1 / n."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    lse = tl.load(lse_ptr + row)
    share = tl.load(share_ptr)
    if target == ignore_index:
        share = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < V, other=0.0).to(tl.float32)
        p = tl.exp(x - lse)
        gradient = share * tl.where(cols == target, p - 1, p)
        tl.store(grad_ptr + row * V + cols, gradient, mask=cols < V)


# %%
# Why does :math:`m` begin with a very small number and not with minus infinity? Words that must not
# come are often masked with minus infinity. If the first block holds nothing else, the maximum is
# minus infinity, too, and the difference of the two is no number. (A row of *nothing but* minus
# infinity has no loss. It gives NaN, as in PyTorch.)
#
# How many rows count is known to the GPU alone. To ask it from Python would mean to wait for all
# that has been launched, so a small kernel of one program counts them and leaves :math:`1/n` where
# the others find it. It is also the place to look at the targets: one that is out of range would
# make a kernel read somewhere else. ``tl.device_assert``, which works in kernels made with
# ``debug=True``, stops the GPU then, as PyTorch's own loss does.


# sphinx_gallery_fold = "makes the share of a row"
# sphinx_gallery_show = "count_kernel, by_two_kernels"
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


def share_of_a_row(targets, V, ignore_index=-100):
    """Return 1 / n on the GPU, where n of the *targets* count."""
    share = torch.empty(1, dtype=torch.float32, device=targets.device)
    M = len(targets)
    block, warps = (8192, 16) if M > 1024 else (1024, 4)  # two versions are enough
    count_kernel[(1,)](targets, share, M, V, ignore_index, BLOCK=block, num_warps=warps)
    return share


def by_two_kernels(logits, targets, ignore_index=-100):
    """Return the mean loss and its gradient, for logits whose rows are contiguous."""
    M, V = logits.shape
    share = share_of_a_row(targets, V, ignore_index)
    losses, lse = torch.empty(2, M, dtype=torch.float32, device=logits.device)
    gradient = torch.empty_like(logits)
    last = (logits.stride(0), V, ignore_index)
    options = {"BLOCK": 8192, "num_warps": 8}
    loss_kernel[(M,)](logits, targets, losses, lse, *last, **options)
    gradient_kernel[(M,)](logits, targets, lse, gradient, share, *last, **options)
    return (losses.sum() * share).squeeze(), gradient


# %%
# A first check, with a row that does not count and a word that must not come:


# sphinx_gallery_fold = "compares loss and gradient with PyTorch's in float64"
def compare(function, logits, targets, rtol=1e-5):
    """Raise AssertionError where loss or gradient differ from PyTorch's in float64."""
    exact = logits.detach().double().requires_grad_()
    expected = functional.cross_entropy(exact, targets)
    (wanted,) = torch.autograd.grad(expected, exact)
    loss, gradient = function(logits, targets)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=rtol, atol=1e-6)
    # A probability may be off by rtol of itself; where 1 is subtracted, by rtol of 1.
    largest = 1 / max(1, int((targets != -100).sum()))
    torch.testing.assert_close(gradient.double(), wanted, rtol=rtol, atol=rtol * largest)


torch.manual_seed(0)
logits = 3 * torch.randn(5, 10000, device=DEVICE)
logits[0, :9000] = -float("inf")
targets = torch.tensor([9999, 0, -100, 17, 9998], device=DEVICE)
compare(by_two_kernels, logits, targets)
print("by_two_kernels agrees with float64")

# %%
# Step 2: the gradient before it is asked for
# -------------------------------------------
#
# A loss is not a layer like others. It is the last one: whoever computes it is going to ask for its
# gradient next, and the gradient that arrives from behind is a single number, nearly always 1. So
# there is nothing to wait for. **The forward pass can write the gradient.**
#
# What is won? The program that has just read a row reads it again at once. A row is small compared
# with the L2 cache, and so are the rows of all programs that run at the same time, if there are not
# too many of them. The second read ends in the cache, and of three transfers *two* remain, one read
# and one write. The bound that we started with was none.


# sphinx_gallery_difference = "loss_kernel"
@triton.jit
def one_launch_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, share_ptr, stride, V, ignore_index, BLOCK: tl.constexpr
):
    """Compute the loss of one row, then its gradient."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    m = LOWEST
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    share = tl.load(share_ptr)
    loss = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + row * stride + target).to(tl.float32) + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + row, loss)
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < V, other=0.0).to(tl.float32)
        p = tl.exp(x - m) * (share / s)
        gradient = tl.where(cols == target, p - share, p)
        tl.store(grad_ptr + row * V + cols, gradient, mask=cols < V)


def in_one_launch(kernel, logits, targets, ignore_index=-100, **options):
    """Return the mean loss and its gradient, from one launch of *kernel* with *options*."""
    M, V = logits.shape
    share = share_of_a_row(targets, V, ignore_index)
    losses = torch.empty(M, dtype=torch.float32, device=logits.device)
    gradient = torch.empty_like(logits)
    row = (logits.stride(0), V, ignore_index)
    kernel[(M,)](logits, targets, losses, gradient, share, *row, **options)
    return (losses.sum() * share).squeeze(), gradient


step_2 = partial(in_one_launch, one_launch_kernel, BLOCK=8192, num_warps=8)
compare(step_2, logits, targets)
print("one_launch_kernel agrees with float64")

# %%
# (Something small is better, too. The kernel has the maximum and the sum at hand, not only their
# log-sum-exp. For logits of a few thousands, :math:`m + \log s` is rounded where :math:`\log s` is
# not, so the probability is computed as :math:`e^{x - m} / s`. Dividing once, by ``share / s``,
# costs nothing.)
#
# Step 3: what the cache should keep
# ----------------------------------
#
# How many rows are under way at a time? Every multiprocessor works on several. Here is what one row
# for each of them would fill, beside the cache that all of them share:

# sphinx_gallery_fold = "prints the bytes of rows beside those of the cache"
properties = torch.get_device_module(DEVICE).get_device_properties() if ON_GPU else None
if cache := getattr(properties, "L2_cache_size", 0):
    units = properties.multi_processor_count
    table = [(V, f"{V * 2 / 2**10:.0f} KiB", f"{units * V * 2 / 2**20:.0f} MiB")
             for V in (32768, 50257, 131072)]  # fmt: skip
    print(tabulate(table, ["V", "one row", f"{units} rows"], disable_numparse=True))
    print(f"L2 cache: {cache / 2**20:.0f} MiB")
else:
    print("Without a GPU there is no L2 cache to ask about.")

# %%
# With several rows for each multiprocessor, and the gradients on their way out through the same
# cache, long rows may not fit. And a cache that throws out what was used longest ago has an ugly
# way of failing: a row that is a little too long loses its *beginning*, which is what the second
# loop wants first; fetching that throws out what it wants next; and so on to the end. Nearly
# everything fits, and nothing is found. There are two remedies, each of a few letters:
#
# * **Go backwards.** If the second loop begins at the end of the row, it finds what was read last,
#   and misses only what did not fit.
# * **Say what is going to be needed.** The first loop's loads carry
#   ``eviction_policy="evict_last"``: to be thrown out last. The second loop's loads and the stores
#   say ``"evict_first"``: nobody wants these bytes again soon. The cache may follow such hints, and
#   the result does not depend on it.


# sphinx_gallery_difference = "one_launch_kernel"
@triton.jit
def kept_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, share_ptr, stride, V, ignore_index, BLOCK: tl.constexpr
):
    """Compute the loss of one row, then its gradient, from what the cache has kept."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    m = LOWEST
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride + cols,
            mask=cols < V,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    share = tl.load(share_ptr)
    loss = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + row * stride + target).to(tl.float32) + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + row, loss)
    last = (V - 1) // BLOCK * BLOCK
    for back in range(0, V, BLOCK):
        cols = last - back + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride + cols, mask=cols < V, other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
        p = tl.exp(x - m) * (share / s)
        gradient = tl.where(cols == target, p - share, p)
        tl.store(grad_ptr + row * V + cols, gradient, mask=cols < V, eviction_policy="evict_first")


step_3 = partial(in_one_launch, kept_kernel, BLOCK=8192, num_warps=8)
compare(step_3, logits, targets)
print("kept_kernel agrees with float64")

# %%
# Step 4: rows of odd length
# --------------------------
#
# A GPU loads 16 bytes with one instruction of a thread, eight elements of bf16, if their address is
# divisible by 16. With an odd *V* the second row begins two bytes off, the third four, and hardly
# any address is divisible by 16. So the compiler, which cannot know which row a program is going to
# get, loads **element by element**: eight times as many instructions for the same bytes. That is
# the price of an odd vocabulary, for whoever computes with it. (It is a reason for rounding it up.)
#
# But within every row there *are* places whose address is divisible by 16, every eighth element.
# Cut the row into three parts: at most seven elements before the first such place, as many whole
# groups of eight as there are, and at most seven that remain.


# sphinx_gallery_fold = "draws the groups in some rows of odd length"
def draw_parts(V, group, rows):
    """Draw which elements of some rows lie in whole groups, and which on the edges."""
    _, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
    for row in range(rows):
        begin = row * V
        first, last = -(-begin // group) * group, (begin + V) // group * group
        for element in range(begin, begin + V):
            inside = first <= element < last
            color = "#cfe3f1" if inside else "#f2c9c9"
            look = {"facecolor": color, "edgecolor": "#444444"}
            ax.add_patch(plt.Rectangle((element - begin, row), 1, 0.8, **look))
        for start in range(first, last, group):
            outline = {"facecolor": "none", "edgecolor": "#1b6ca8", "linewidth": 3}
            ax.add_patch(plt.Rectangle((start - begin, row), group, 0.8, **outline))
    ax.set(xlim=(-0.2, V + 0.2), ylim=(rows, -0.2), xlabel="column")
    ax.set_yticks([row + 0.4 for row in range(rows)], [f"row {row}" for row in range(rows)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(f"Rows of {V} elements, in groups of {group};\nred: the edges, one by one")
    plt.show()


draw_parts(V=29, group=8, rows=4)

# %%
# The compiler has to *see* it. ``(begin + 7) // 8 * 8`` is a multiple of 8 whatever ``begin`` is,
# and Triton follows such facts through the arithmetic: an address that begins there, and a mask
# whose limit is a multiple of 8 as well, make loads of 16 bytes. The two edges together are a block
# of 16 elements, loaded one by one, of which one load suffices for both passes.


# sphinx_gallery_difference = "kept_kernel"
@triton.jit
def cross_entropy_kernel(
    x_ptr,
    target_ptr,
    loss_ptr,
    grad_ptr,
    share_ptr,
    stride,
    V,
    ignore_index,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,  # elements in 16 bytes; 1 if the rows need not be cut
    WRITE: tl.constexpr,  # whether the gradient is wanted
):
    """Compute the loss of one row; then, if wanted, its gradient, which may overwrite the row."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    begin, grad_begin = row * stride, row * V
    hit = tl.load(x_ptr + begin + target, mask=target != ignore_index, other=0.0).to(tl.float32)
    first, grad_first, lead, middle = begin, grad_begin, 0, V
    m = LOWEST
    s = 0.0
    if GROUP > 1:
        first = (begin + GROUP - 1) // GROUP * GROUP  # where the whole groups begin
        grad_first = (grad_begin + GROUP - 1) // GROUP * GROUP
        lead = tl.minimum(first - begin, V).to(tl.int32)  # elements before them
        middle = (V - lead) // GROUP * GROUP  # elements in them
        place = tl.arange(0, 2 * GROUP)
        edge = tl.where(place < GROUP, place, place - GROUP + lead + middle)
        on_edge = tl.where(place < GROUP, place < lead, edge < V)
        x_edge = tl.load(x_ptr + begin + edge, mask=on_edge, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x_edge, axis=0))
        s = tl.sum(tl.exp(x_edge - m), axis=0)
    for start in range(0, middle, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + first + cols,
            mask=cols < middle,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
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
        last = (middle - 1) // BLOCK * BLOCK
        for back in range(0, middle, BLOCK):
            cols = last - back + tl.arange(0, BLOCK)
            x = tl.load(
                x_ptr + first + cols, mask=cols < middle, other=0.0, eviction_policy="evict_first"
            ).to(tl.float32)
            p = tl.exp(x - m) * (share / s)
            gradient = tl.where(cols + lead == target, p - share, p)
            tl.store(
                grad_ptr + grad_first + cols,
                gradient,
                mask=cols < middle,
                eviction_policy="evict_first",
            )
        if GROUP > 1:
            p = tl.exp(x_edge - m) * (share / s)
            gradient = tl.where(edge == target, p - share, p)
            tl.store(grad_ptr + grad_begin + edge, gradient, mask=on_edge)


# %%
# Two more differences. Where nobody wants a gradient, ``WRITE`` is False and the second loop is not
# there. And the logit of the target is loaded at the beginning, so that ``grad_ptr`` may be
# ``x_ptr``. A program that overwrites its own row must have read everything before: with the load
# where it was, between the loops, a quick warp could overwrite the target's logit before a slow one
# has read it. (At the reductions in the first loop all warps wait for one another, so what is
# loaded above them is safe. And in the second loop each thread stores exactly what it has loaded
# itself.)


def plan(logits):
    """Return how ``cross_entropy_kernel`` is to be launched on these *logits*."""
    V, stride = logits.shape[1], logits.stride(0)
    in_16_bytes = 16 // logits.element_size()
    cut = V % 16 != 0 or stride % 16 != 0
    alike = stride == V or (V % in_16_bytes == 0 and stride % in_16_bytes == 0)
    # Groups of the logits have to be groups of the gradient, too, whose rows follow one another.
    group = in_16_bytes if cut and alike and logits.data_ptr() % 16 == 0 else 1
    block, warps = (8192, 8) if V > 4096 else (1024, 4)  # each size is a kernel to compile
    return {"GROUP": group, "BLOCK": block, "num_warps": warps}


def launch(logits, targets, share, losses, gradient, ignore_index):
    """Write the losses of all rows, and their gradients if *gradient* is not None."""
    M, V = logits.shape
    if M:
        cross_entropy_kernel[(M,)](
            logits,
            targets,
            losses,
            logits if gradient is None else gradient,
            share,
            logits.stride(0),
            V,
            ignore_index,
            WRITE=gradient is not None,
            **plan(logits),
        )


# %%
# To hand the gradient over
# -------------------------
#
# The gradient that arrives from behind, ``grad``, is known only in the backward pass, and the chain
# rule says to multiply by it. It is 1 for ``loss.backward()``, and something else where several
# losses are added up, where it is divided among accumulated steps, or with a loss scaler. To ask
# whether it is 1 would mean to wait for the GPU. So a kernel looks: if it is 1, all its programs
# end at once, and the pass over the memory is saved.


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


def scale(gradient, factor):
    """Multiply the contiguous *gradient*, in place, by *factor*, a tensor of one element."""
    n = gradient.numel()
    programs = min(1024, triton.cdiv(n, 4096))
    if n:
        factor = factor.to(torch.float32)
        scale_kernel[(programs,)](gradient, factor, n, BLOCK=4096, num_warps=8)


# %%
# **In fp16 this is a trap.** Its smallest number above zero is 2⁻²⁴. A probability divided by
# thousands of rows is often less than that: it would become zero, and no factor brings it back.
# That is what loss scalers are for, and they multiply by a large factor *before* the division. So
# for fp16 we write :math:`p_j - [j = t]` without the share, and multiply by share and factor
# together in the backward pass. That costs two transfers more. bf16 and fp32 have exponents enough.
#
# And there is the question of whose memory it is. A gradient that lies in memory of its own costs
# as much as the logits. Written **over the logits** it costs nothing, and destroys them. If that
# were done silently, whoever prints the logits after the loss would see gradients. So it is done
# only for those who ask, with ``inplace=True``, and PyTorch is told: ``increment_version`` marks
# the tensor as changed, so that a layer that wanted the logits for its own backward pass raises an
# error instead of computing nonsense.
#
# What we cannot do is to go backward twice: the gradient has been given away, and may have been
# changed by those who got it. So the second time is refused, as is the derivative of the
# derivative.


# sphinx_gallery_fold = "hands each gradient over once, and refuses the second time"
# sphinx_gallery_show = "CrossEntropy"
class CrossEntropy(torch.autograd.Function):
    """The loss, with a gradient that exists before it is asked for."""

    @staticmethod
    def forward(ctx, logits, targets, ignore_index, inplace):
        """Compute the loss and, if it is going to be wanted, the gradient."""
        share = share_of_a_row(targets, logits.shape[1], ignore_index)
        losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        gradient = None
        ctx.share = None
        in_kernel = share
        if ctx.needs_input_grad[0]:
            gradient = logits if inplace else torch.empty(logits.shape, **like(logits))
            if logits.dtype == torch.float16:
                ctx.share, in_kernel = share.nan_to_num(), torch.ones_like(share)
        launch(logits, targets, in_kernel, losses, gradient, ignore_index)
        if gradient is logits:
            torch.autograd.graph.increment_version(logits)
            gradient = logits.detach()
        ctx.gradients = [gradient]
        return (losses.sum() * share).squeeze()

    @staticmethod
    def backward(ctx, grad):
        """Hand the gradient over, multiplied by *grad* where that is not 1."""
        (gradient,) = hand_over(ctx, "cross_entropy")
        scale(gradient, grad if ctx.share is None else grad * ctx.share)
        return gradient, None, None, None


def like(x):
    """Return dtype and device of *x*, as arguments for a new tensor."""
    return {"dtype": x.dtype, "device": x.device}


def hand_over(ctx, name):
    """Return the gradients that *ctx* keeps, once."""
    if torch.is_grad_enabled():  # in a backward pass: with create_graph=True
        raise RuntimeError(f"{name}: there is no second derivative; leave out create_graph=True")
    gradients, ctx.gradients = ctx.gradients, None
    if gradients is None:
        raise RuntimeError(
            f"{name}: backward was called twice, but the gradient exists only once; add the losses "
            f"up first, or compute the loss again"
        )
    return gradients


# %%
# The launcher that everybody calls refuses what the kernel cannot do.

# sphinx_gallery_fold = "checks the arguments"


def check_tensor(name, x, dtypes):
    """Raise TypeError or ValueError where *x* is no tensor of one of *dtypes* on our device."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in dtypes:
        *most, last = (str(dtype).removeprefix("torch.") for dtype in dtypes)
        allowed = f"{', '.join(most)} or {last}"
        raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"{name} must be on {DEVICE}, but is on {x.device}")


def check_matrix(name, x):
    """Raise ValueError where *x* is no matrix whose rows are contiguous."""
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(
            f"{name} must be a matrix with at least one column, but has shape {tuple(x.shape)}"
        )
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise ValueError(
            f"the rows of {name} must be contiguous, but its strides are {x.stride()}; pass "
            f"{name}.contiguous()"
        )


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


def check_arguments(logits, targets, ignore_index, inplace):
    """Raise TypeError or ValueError where ``cross_entropy`` cannot work on its arguments."""
    check_tensor("logits", logits, (torch.float16, torch.bfloat16, torch.float32))
    check_matrix("logits", logits)
    check_targets(targets, *logits.shape, ignore_index)
    if inplace and not logits.is_contiguous():
        raise ValueError(
            f"with inplace=True, logits must be contiguous, but have shape {tuple(logits.shape)} "
            f"and strides {logits.stride()}"
        )
    if inplace and logits.requires_grad and logits.is_leaf:
        raise ValueError(
            "with inplace=True, logits must be the result of a layer: these have no history, so "
            "their gradient would take the place of the only copy of them"
        )


# %%


def cross_entropy(logits, targets, ignore_index=-100, inplace=False):
    """Return the mean cross-entropy of the rows of *logits*, as a float32 scalar.

    Args:
        logits: float16, bfloat16 or float32 of shape [M, V], its rows contiguous.
        targets: int64 or int32 of shape [M], from 0 to V - 1.
        ignore_index: The target of rows that do not count. If none counts, the mean is NaN.
        inplace: Write the gradient over the logits, which are of no use afterwards.

    Raises:
        TypeError: An argument is no tensor of such a dtype.
        ValueError: Shapes, strides or devices do not fit; or, on a CPU, a target is out of range.
            On a GPU such a target stops the kernel with an assertion.
    """
    check_arguments(logits, targets, ignore_index, inplace)
    return CrossEntropy.apply(logits, targets, ignore_index, inplace)


# %%
# (The result is in fp32 for logits of any type: it is one number, and rounding it to bf16, as
# PyTorch does, saves two bytes.)
#
# Is it right?
# ------------
#
# Against float64, on awkward shapes: a vocabulary of one word, odd ones, rows shorter than a group,
# no rows at all, none that count, rows of a wider matrix.


# sphinx_gallery_fold = "compares on awkward shapes, in each dtype, through autograd"
def by_autograd(function):
    """Return what *function* gives as a loss, and the gradient that autograd gets of it."""

    def both(logits, targets):
        logits = logits.detach().requires_grad_()
        loss = function(logits, targets)
        (gradient,) = torch.autograd.grad(loss, logits)
        return loss.detach(), gradient

    return both


ours = by_autograd(cross_entropy)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}  # one rounding
dtypes = [torch.float32, torch.float16] + [torch.bfloat16] * ON_GPU  # wrong in the interpreter
shapes = [(1, 1), (5, 3), (9, 7), (7, 781), (3, 4096), (3, 10001), (2, 50257)]
if ON_GPU:
    shapes += [(257, 50257), (64, 131072), (33, 262147)]
checks = []
for dtype in dtypes:
    for M, V in shapes if dtype == torch.float32 else shapes[3:]:  # the tiny ones once
        logits = (3 * torch.randn(M, V, device=DEVICE)).to(dtype)
        targets = torch.randint(0, V, (M,), device=DEVICE)
        targets[1::4] = -100
        checks.append(partial(compare, ours, logits, targets, TOLERANCE[dtype]))
warm_up(checks)
for check in checks:
    check()
del checks
print(f"cross_entropy agrees with float64 on {len(shapes)} shapes and in {len(dtypes)} dtypes")

# %%
# Now what PyTorch does at the limits, views, the gradient of a multiple, and the same in place:

# sphinx_gallery_fold = "compares views, rows that do not count, a multiple, and in place"
wide = 3 * torch.randn(40, 300, device=DEVICE)
targets = torch.randint(0, 64, (40,), device=DEVICE)
for view in (wide[:, 10:91], wide[:, :64], wide[::3, :272], wide[:1].expand(5, -1)):
    compare(ours, view, targets[: len(view)])
none = torch.full((40,), -100, device=DEVICE)
loss, gradient = ours(wide, none)
assert loss.isnan() and not gradient.any()
assert cross_entropy(wide[:0], none[:0]).isnan()

torch.testing.assert_close(
    by_autograd(lambda x, t: 3.5 * cross_entropy(x, t))(wide, targets)[1],
    3.5 * ours(wide, targets)[1],
)
expected = ours(wide, targets)[1]
x = wide.clone().requires_grad_()
logits = x * 1  # the result of a layer
cross_entropy(logits, targets, inplace=True).backward()
torch.testing.assert_close(x.grad, expected)
torch.testing.assert_close(logits.detach(), expected)
print("Limits, views, multiples and the gradient in place are right as well")

# %%
# And what it refuses:

# sphinx_gallery_fold = "calls it wrongly, in six ways"


def twice(x):
    """Go backward twice."""
    loss = cross_entropy(x, targets)
    loss.backward(retain_graph=True)
    loss.backward()


leaf = wide.clone().requires_grad_()
for wrong in (
    lambda: cross_entropy(wide.double(), targets),
    lambda: cross_entropy(wide.T, targets),
    lambda: cross_entropy(wide, targets[:7]),
    lambda: cross_entropy(wide, targets.float()),
    lambda: cross_entropy(leaf, targets, inplace=True),
    lambda: twice(leaf),
):
    try:
        wrong()
    except (TypeError, ValueError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("cross_entropy should have refused this")

# %%
# The last layer, in pieces
# -------------------------
#
# Where do logits come from? From the last layer, a product: ``logits = x @ weight.T``, with ``x``
# of shape [M, K], *K* being the width of the model, and ``weight`` of [V, K]. The layer below wants
# the gradient of ``x``, the optimizer that of ``weight``:
#
# .. math::
#
#     G_x = G \cdot \mathrm{weight} \qquad G_\mathrm{weight} = G^T \cdot x
#
# where :math:`G`, the gradient of the logits, has the shape of the logits. So the logits are made
# by a product, turned into :math:`G` by our kernel, and used up by two products. Nobody else ever
# wants them. And what a row needs to become its gradient is in that row alone. So take **a piece of
# the tokens**, say a thousand, and do all of it for them, with the kernel that overwrites the
# logits with their gradient; then the next thousand, in the same memory. **All logits at once never
# exist.**
#
# The rows of :math:`G_x` belong to the tokens, each piece writes its own. But each piece adds to
# the *whole* of :math:`G_\mathrm{weight}`. Two questions follow:
#
# * **Time.** Each piece reads and writes :math:`G_\mathrm{weight}` once more. With pieces large
#   enough the product has more to compute than to move, and hides it.
# * **Digits.** Inside a product, sums are kept in fp32. Between the pieces they are rounded to
#   bf16, which has eight bits. Each piece adds a rounding, where one large product has one in all.
#   (To add up in fp32 would take twice the memory of the gradient, which is more than the pieces
#   save where V is small.) We measure it below.


class LinearCrossEntropy(torch.autograd.Function):
    """The loss of a last layer, with the gradients of its input and of its weight."""

    @staticmethod
    def forward(ctx, x, weight, targets, ignore_index, piece):
        """Compute the loss and the gradients that are going to be wanted, piece by piece."""
        M, V = len(x), len(weight)
        share = share_of_a_row(targets, V, ignore_index)
        losses = torch.empty(M, dtype=torch.float32, device=x.device)
        for_x, for_weight = ctx.needs_input_grad[:2]
        x_gradient = torch.empty(x.shape, **like(x)) if for_x else None
        weight_gradient = torch.empty(weight.shape, **like(weight)) if for_weight else None
        if for_weight and M == 0:
            weight_gradient.zero_()
        memory = torch.empty(min(piece, M), V, **like(x))
        for start in range(0, M, piece):
            rows = slice(start, min(start + piece, M))
            logits = torch.mm(x[rows], weight.T, out=memory[: rows.stop - start])
            gradient = logits if for_x or for_weight else None
            launch(logits, targets[rows], share, losses[rows], gradient, ignore_index)
            if for_x:
                torch.mm(gradient, weight, out=x_gradient[rows])
            if for_weight:
                first = start == 0  # with beta=0, what is in the memory does not count
                weight_gradient.addmm_(gradient.T, x[rows], beta=0 if first else 1)
        ctx.gradients = [x_gradient, weight_gradient]
        return (losses.sum() * share).squeeze()

    @staticmethod
    def backward(ctx, grad):
        """Hand the gradients over, multiplied by *grad* where that is not 1."""
        gradients = hand_over(ctx, "linear_cross_entropy")
        for gradient in gradients:
            if gradient is not None:
                scale(gradient, grad)
        return *gradients, None, None, None


# %%

# sphinx_gallery_fold = "checks the arguments"


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
    """Return ``cross_entropy(x @ weight.T, targets)``, without ever holding all logits.

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
    return LinearCrossEntropy.apply(x, weight, targets, ignore_index, piece)


# %%
# The check is against float64 again, with pieces that do not divide the tokens. A sum of *n*
# products that are each rounded to *b* bits is off by about :math:`\sqrt n \cdot 2^{-b}` of their
# size, so the error is compared with the size of the whole gradient (its norm) and not element by
# element.


# sphinx_gallery_fold = "compares three results with float64, in pieces of several sizes"
def layer_errors(function, x, weight, targets):
    """Return the relative errors of loss, gradient of x and of the weight, against float64."""
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    expected = functional.cross_entropy(exact[0] @ exact[1].T, targets)
    wanted = [expected.detach(), *torch.autograd.grad(expected, exact)]
    ours = [t.detach().requires_grad_() for t in (x, weight)]
    loss = function(*ours, targets)
    got = [loss.detach(), *torch.autograd.grad(loss, ours)]
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(got, wanted, strict=True)]


for dtype, limit in [(torch.float32, 1e-5)] + [(torch.bfloat16, 2**-6)] * ON_GPU:
    for M, K, V, piece in ((7, 5, 781, 3), (1, 1, 1, 1), (64, 32, 1000, 64), (130, 24, 333, 50)):
        x = torch.randn(M, K, device=DEVICE).to(dtype)
        weight = torch.randn(V, K, device=DEVICE).to(dtype)
        targets = torch.randint(0, V, (M,), device=DEVICE)
        targets[2::5] = -100
        function = partial(linear_cross_entropy, piece=piece)
        if V > 1:  # with one word the loss and its gradients are zero
            assert max(layer_errors(function, x, weight, targets)) < limit
        assert linear_cross_entropy(x[:0], weight, targets[:0]).isnan()
print("linear_cross_entropy agrees with float64")

# %%
# The benchmark
# -------------
#
# 8192 tokens, three vocabularies, bf16, forward and backward together: a loss and the gradient of
# the logits. All rates count three transfers, :math:`3 \cdot 2 \cdot MV` bytes, also for those who
# move more or less. Beside us are
#
# * ``torch``: ``torch.nn.functional.cross_entropy``;
# * ``compile``: the same under ``torch.compile`` with ``dynamic=False``, which makes one kernel for
#   each pass, and knows all sizes when it does (its mode ``max-autotune`` searches for better
#   kernels for longer than the rest of this page takes, so it is left out);
# * ``copy``: the rate of copying the logits, which is what three transfers could have at best.


# sphinx_gallery_fold = "times the steps, PyTorch, torch.compile and a copy"
def forward_and_backward(function, logits, targets):
    """Compute the loss and the gradient of the *logits*."""
    return torch.autograd.grad(function(logits, targets), logits)


def compiled_or_none(function, *arguments):
    """Return *function* compiled by ``torch.compile``; None, and a word, where that fails."""
    torch.compiler.reset()
    compiled = torch.compile(function, dynamic=False)
    try:
        from torch._inductor import config

        config.compile_threads = 1  # or its processes start while others are timed, on all cores
        loss = compiled(*arguments)
        torch.autograd.grad(loss, [a for a in arguments if a.requires_grad])
    except Exception as error:  # whatever a compiler can raise; the page goes on without this peer
        print(f"torch.compile is not available here: {type(error).__name__}")
        return None
    return compiled


def benchmark(M, V, rounds=20):
    """Return rows (M, V, provider, unit, median, p20, p80)."""
    logits = (2 * torch.randn(M, V, device=DEVICE, dtype=torch.bfloat16)).requires_grad_()
    targets = torch.randint(0, V, (M,), device=DEVICE)
    calls = {
        "triton": partial(forward_and_backward, cross_entropy, logits, targets),
        "torch": partial(forward_and_backward, functional.cross_entropy, logits, targets),
        "copy": logits.detach().clone,
        "triton, step 1": partial(by_two_kernels, logits.detach(), targets),
        "triton, step 2": partial(step_2, logits.detach(), targets),
        "triton, step 3": partial(step_3, logits.detach(), targets),
    }
    warm_up([call for name, call in calls.items() if "triton" in name])
    if compiled := compiled_or_none(functional.cross_entropy, logits, targets):
        calls["compile"] = partial(forward_and_backward, compiled, logits, targets)
    transfers = {"copy": 2}
    return [
        (M, V, provider, "GB/s", *rates(ms, transfers.get(provider, 3) * M * V * 2))
        for provider, ms in measure(calls, rounds).items()
    ]


TOKENS, VOCABULARIES = 8192, (32768, 50257, 131072)
if ON_GPU:
    rows = [row for V in VOCABULARIES for row in benchmark(TOKENS, V)]
    write_rows("cross-entropy-performance.csv", ["M", "V"], rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%


# sphinx_gallery_fold = "prints and draws the rates"
def print_table(rows):
    """Print the median rates, and ratios of them."""
    rate = {(V, provider): median for _, V, provider, _, median, _, _ in rows}
    steps = ["triton, step 1", "triton, step 2", "triton, step 3", "triton", "torch", "compile"]
    table = []
    for V in dict.fromkeys(row[1] for row in rows):
        ours = rate[V, "triton"]
        found = [rate.get((V, provider)) for provider in steps]
        ratios = [ours / rate[V, "compile"] if (V, "compile") in rate else None]
        ratios.append(ours / rate[V, "copy"])
        table.append((V, *("" if r is None else significant(r) for r in found + ratios)))
    headers = ["V", "step 1", "step 2", "step 3", *steps[3:], "/compile", "/copy"]
    print("GB/s of three transfers, higher is better; ratios: triton's")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


def plot_rates(rows):
    """Draw the rates as bars, a group for each vocabulary, with the spread from p20 to p80."""
    labels = {
        "triton, step 1": ("step 1: two kernels", "#c6dbef"),
        "triton, step 2": ("step 2: one launch", "#9ecae1"),
        "triton, step 3": ("step 3: kept in the cache", "#6baed6"),
        "triton": ("triton, all steps", "#1b6ca8"),
        "torch": ("torch", "#d1495b"),
        "compile": ("torch.compile (best alternative)", "#8d6a9f"),
    }
    labels = {name: look for name, look in labels.items() if any(r[2] == name for r in rows)}
    sizes = list(dict.fromkeys(row[1] for row in rows))
    found = {(row[1], row[2]): row[4:] for row in rows}
    width = 0.8 / len(labels)
    fig, ax = plt.subplots(figsize=(7, 5.8), layout="constrained")
    for i, (provider, (label, color)) in enumerate(labels.items()):
        places = [n - 0.4 + (i + 0.5) * width for n in range(len(sizes))]
        median, low, high = zip(*(found[V, provider] for V in sizes), strict=True)
        errors = [[m - a for m, a in zip(median, low, strict=True)],
                  [b - m for m, b in zip(median, high, strict=True)]]  # fmt: skip
        ax.bar(places, median, width, color=color, label=label, yerr=errors)
    for n, V in enumerate(sizes):
        ceiling = found[V, "copy"][0]
        label = "copy (ceiling of three transfers)" if n == 0 else None
        ax.plot([n - 0.45, n + 0.45], [ceiling] * 2, "--", color="#444444", label=label)
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(title=f"Cross-entropy, forward and backward,\n{rows[0][0]} tokens, bf16, GB/s\non {gpu}")
    ax.set_xticks(range(len(sizes)), [f"V = {V}" for V in sizes])
    ax.set(ylabel="GB/s of three transfers,\nhigher is better", ylim=(0, None))
    fig.legend(loc="outside lower center", ncols=1)
    plt.show()


if ON_GPU:
    print_table(rows)
    plot_rates(rows)
else:
    print("No table and no plot without a GPU.")

# %%
# How to read the bars
# --------------------
#
# **The dashed line is no wall for us.** It is the rate of three transfers. Whoever needs only two,
# because the second read of a row finds it in the L2 cache, may pass it, by half of its height at
# most. How far a bar rises above the line says how much of the second read the cache has carried.
#
# **Step 1** is under the line whatever it does: its second kernel begins when the first has read
# all of the logits, and by then the rows that were read first have long left the cache.
#
# **Step 2** has the same loads and stores in another order. Where its bar is hardly higher, the
# rows under way were too much for the cache. Step 3 loads and stores the same again, backwards and
# with hints, and what it gains, the cache has gained.
#
# **Steps 1 to 3 suffer in the middle**, where *V* is odd, and so does everybody who loads element
# by element. Step 2 may even lose to step 1 there: if it is for instructions that a kernel waits
# and not for bytes, a cache does not help, and one program that does both loops needs more
# registers than one that does one of them. What step 4 brings there, and that it brings nothing at
# the other two, where groups were whole before, is the whole of its idea. (What a kernel waits for,
# and what a cache had, the GPU counts: :doc:`/programming-guide/chapter-5/profiling`.)
#
# **PyTorch's loss** is several kernels: log-softmax writes a result of the size of the logits, and
# the backward pass makes two more tensors of that size. ``torch.compile`` makes one kernel for each
# pass of them; it is the version that you get without writing a kernel.
#
# As numbers:


# sphinx_gallery_fold = "computes the ratios"
# sphinx_gallery_fold_output = True
def ratios_of(rows, ours, other):
    """Return the ratio of the rates of two providers at each size where both were measured."""
    rate = {(size, provider): median for _, size, provider, _, median, _, _ in rows}
    return {
        V: rate[V, ours] / rate[V, other]
        for V in VOCABULARIES
        if (V, ours) in rate and (V, other) in rate
    }


if ON_GPU:
    pairs = {f"triton / {other}": ("triton", other) for other in ("torch", "compile", "copy")}
    pairs["step 2 / step 1"] = "triton, step 2", "triton, step 1"
    pairs["step 3 / step 2"] = "triton, step 3", "triton, step 2"
    pairs["step 4 / step 3"] = "triton", "triton, step 3"
    found = {name: ratios_of(rows, *pair) for name, pair in pairs.items()}
    table = [(name, *map(significant, r.values())) for name, r in found.items() if r]
    print(tabulate(table, ["ratio", *(f"V = {V}" for V in VOCABULARIES)], disable_numparse=True,
                   stralign="right", colalign=["left"]))  # fmt: skip
else:
    print("No ratios without a GPU.")

# %%
# (Step 4 is ``cross_entropy`` as a user calls it, with autograd and its checks; the steps before
# are bare launches.)
#
# The price of the last layer
# ---------------------------
#
# Now the layer and the loss together, forward and backward: 8192 tokens, 4096 wide, the largest
# vocabulary. Two things are measured. The **time**, beside PyTorch's, which multiplies in one
# piece. And the **peak** of the memory, by PyTorch's own count: how much was allocated at the worst
# moment, beyond the inputs. The gradients are part of it for everybody: somebody wants them. What
# is left without them, the *working memory*, is what the method itself costs.


# sphinx_gallery_fold = "measures time and memory of the last layer"
def layer_step(function, x, weight, targets):
    """Compute the loss of the last layer and the gradients of its input and its weight."""
    return torch.autograd.grad(function(x, weight, targets), (x, weight))


def plain_layer(x, weight, targets):
    """Return the loss as everybody writes it."""
    return functional.cross_entropy(functional.linear(x, weight), targets)


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


def benchmark_layer(M, K, V, rounds=5):
    """Return rows (M, K, V, provider, unit, median, p20, p80), and {provider: (peak, working)}."""
    x = torch.randn(M, K, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    weight = (torch.randn(V, K, device=DEVICE) / K**0.5).bfloat16().requires_grad_()
    targets = torch.randint(0, V, (M,), device=DEVICE)
    functions = {"triton": linear_cross_entropy, "torch": plain_layer}
    if compiled := compiled_or_none(plain_layer, x, weight, targets):
        functions["compile"] = compiled
    calls = {name: partial(layer_step, f, x, weight, targets) for name, f in functions.items()}
    memory = {provider: peak_memory(call) for provider, call in calls.items()}
    quantiles = torch.tensor([0.5, 0.2, 0.8])
    rows = [
        (M, K, V, provider, "ms", *ms.quantile(quantiles).tolist())
        for provider, ms in measure(calls, rounds).items()
    ]
    return rows, memory


if ON_GPU:
    torch.get_device_module(DEVICE).empty_cache()
    layer_rows, memory = benchmark_layer(8192, 4096, 131072)
    write_rows("linear-cross-entropy.csv", ["M", "K", "V"], layer_rows)
    with open("linear-cross-entropy-memory.csv", "w") as file:
        file.write("M,K,V,provider,peak GB,working GB\n")
        for provider, (peak, working) in memory.items():
            file.write(f"8192,4096,131072,{provider},{peak:.6g},{working:.6g}\n")
    table = [
        (provider, *map(significant, (ms, *memory[provider])))
        for _, _, _, provider, _, ms, _, _ in layer_rows
    ]
    headers = ["8192 × 4096 × 131072", "ms", "peak GB", "working GB"]
    print(tabulate(table, headers, disable_numparse=True, stralign="right", colalign=["left"]))
else:
    print("Without a GPU there is neither time nor memory to measure.")

# %%
# And the digits. The error of the weight's gradient against float64, in a layer small enough for
# that, in one piece and in more and more of them:

# sphinx_gallery_fold = "prints the errors for several numbers of pieces"
errors = {}
if ON_GPU:
    x = torch.randn(8192, 512, device=DEVICE, dtype=torch.bfloat16)
    weight = (torch.randn(8192, 512, device=DEVICE) / 512**0.5).bfloat16()
    targets = torch.randint(0, 8192, (8192,), device=DEVICE)
    errors["PyTorch"] = layer_errors(plain_layer, x, weight, targets)[2]
    for pieces in (1, 8, 64):
        function = partial(linear_cross_entropy, piece=8192 // pieces)
        errors[f"{pieces} pieces" if pieces > 1 else "1 piece"] = layer_errors(
            function, x, weight, targets
        )[2]
    table = [(name, significant(1000 * error)) for name, error in errors.items()]
    print(tabulate(table, ["weight's gradient", "error / 1000"], disable_numparse=True,
                   stralign="right", colalign=["left"]))  # fmt: skip
else:
    print("Without a GPU there is no bf16.")

# %%
# Each number of pieces more is another rounding of the whole gradient, and the error grows like the
# root of their number, from a floor that the logits' own rounding to bf16 has laid. Larger pieces
# are better in both respects, time and digits. What speaks against them is memory alone.
#
# What the run showed
# -------------------

# sphinx_gallery_fold = "computes the ladder and the claims"
if ON_GPU:
    rate = {(V, who): median for _, V, who, _, median, _, _ in rows}
    V = VOCABULARIES[0]
    rungs = [
        ("Step 1: two kernels, three transfers", "one pass for the sum, one for the gradient", "1"),
        ("Step 2: the gradient before it is asked for", "both in one launch", "2"),
        ("Step 3: what the cache should keep", "backwards, with hints", "3"),
    ]
    rungs = [(section, change, rate[V, f"triton, step {n}"]) for section, change, n in rungs]
    rungs.append(("Step 4: rows of odd length", "loads of 16 bytes for odd V", rate[V, "triton"]))
    ceiling = ("one read, one write", 1.5 * rate[V, "copy"])
    ladder(rungs, ceiling, "GB/s", f"{TOKENS} tokens, V = {V}, bf16")
    print()

    noise = spread([row for row in rows if row[2] == "triton"])
    least = {name: min(r.values()) for name, r in found.items() if r}
    claim("forward and backward reach a copy of three transfers, at every V",
          least["triton / copy"], at_least=0.88, spread=noise,
          section="How to read the bars")  # fmt: skip
    if "triton / compile" in least:
        claim("they beat torch.compile, at every V", least["triton / compile"],
              at_least=1.3, spread=noise, section="How to read the bars")  # fmt: skip
    claim("they beat PyTorch's loss, at every V", least["triton / torch"],
          at_least=2, spread=noise, section="How to read the bars")  # fmt: skip
    claim("for an odd V, loads of 16 bytes are faster: step 4 over step 3",
          found["step 4 / step 3"][50257], at_least=1.1, spread=noise,
          section="Step 4: rows of odd length")  # fmt: skip
    ms = {provider: median for *_, provider, _, median, _, _ in layer_rows}
    claim("the last layer in pieces needs less memory at its peak: of PyTorch's",
          memory["triton"][0] / memory["torch"][0], at_most=0.25,
          section="The price of the last layer")  # fmt: skip
    claim("its working memory, without inputs and gradients: of PyTorch's",
          memory["triton"][1] / memory["torch"][1], at_most=0.1,
          section="The price of the last layer")  # fmt: skip
    claim("and hardly more time: of PyTorch's", ms["triton"] / ms["torch"], at_most=1.15,
          spread=spread(layer_rows), section="The price of the last layer")  # fmt: skip
    claim("the weight's gradient from 8 pieces is off by less than three times PyTorch's",
          errors["8 pieces"] / errors["PyTorch"], at_most=3,
          section="The price of the last layer")  # fmt: skip
    print_claims()
else:
    print("Without a GPU there is nothing to claim.")

# %%
# What to remember
# ----------------
#
# * Nobody waits behind a loss: its gradient can be computed while the row is at hand.
# * What is read twice in a row comes from memory once, if it fits into the cache together with what
#   the other programs are reading.
# * Read backwards what was read forwards, and tell the cache what is going to be needed again.
# * Odd sizes cost loads of 16 bytes. Give the compiler addresses that it can see to be divisible,
#   and treat the edges apart; or do not choose odd sizes.
# * Overwriting an input is a contract with the caller. Ask, say so to autograd, and read everything
#   that is needed before the first write.
# * A tensor that only one kernel wants need not exist as a whole.
#
# Exercises
# ---------
#
# 1. **Label smoothing.** Give the target the probability :math:`1 - \varepsilon` and spread
#    :math:`\varepsilon` over all words. Which sum is needed in addition, and does it cost a
#    transfer? Write ``smoothed_cross_entropy(logits, targets, smoothing)``, which returns the mean
#    loss and the gradient of the logits. :doc:`Solution <solutions/10-label-smoothing>`.
# 2. **A penalty on the log-sum-exp.** Add :math:`\alpha \, \mathrm{lse}(x)^2` to the loss, which
#    keeps logits from drifting. What becomes of the gradient? Both are returned by
#    ``cross_entropy_with_z_loss(logits, targets, alpha)``. :doc:`Solution <solutions/10-z-loss>`.
# 3. **A maximum for each place.** The largest number of a block is wanted in every round, and
#    finding it makes all threads wait for each other. Let each place of the block keep a maximum
#    and a sum of its own, and reduce them once, behind the loop: ``losses_of(logits, targets,
#    own)`` returns the loss of each row, in the new way or (``own=False``) in the old one. How many
#    exponentials does an element need? :doc:`Solution <solutions/10-own-maxima>`.
#
# References
# ----------
#
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
# * Erik Wijmans, Brody Huval, Alexander Hertzberg, Vladlen Koltun and Philipp Krähenbühl: *Cut your
#   losses in large-vocabulary language models*, 2024, https://arxiv.org/abs/2411.09009: the loss
#   without the logits, in one kernel with the product.
# * Pin-Lun Hsu and others: *Liger kernel: efficient Triton kernels for LLM training*, 2024,
#   https://arxiv.org/abs/2410.10989: the loss in pieces, with the gradient in the forward pass.
# * Christian Szegedy and others: *Rethinking the Inception architecture for computer vision*, 2015,
#   https://arxiv.org/abs/1512.00567: label smoothing.
