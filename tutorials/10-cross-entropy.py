r"""
Cross-entropy
=============

You build ``cross_entropy(logits, targets)``, the loss of a language model. Its forward pass also
writes the gradient. Together they have at least :measured:`faster` times PyTorch's speed, and
:measured:`of_copy` % of a copy's. You need :doc:`02-fused-softmax`, and autograd functions from
:doc:`04-low-memory-dropout`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
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
LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E)
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# The kernel
# ----------
#
# A language model has a **vocabulary** of *V* tokens. For the next token it computes *V* numbers,
# the **logits** *x*. The **target** *t* is the token that came next. The loss is minus the
# logarithm of its probability by softmax:
#
# .. math::
#
#     \ell = -\log \frac{e^{x_t}}{\sum_j e^{x_j}} = \log \sum_j e^{x_j} - x_t
#
# One program computes the loss of one row, which it reads in blocks.


@triton.jit
def loss_kernel(x_ptr, target_ptr, loss_ptr, stride, V, ignore_index, BLOCK: tl.constexpr):
    """Compute the loss of one row."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr += row * stride
    m = LOWEST
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)  # <-
        m = larger
    loss = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + target).to(tl.float32) + tl.log(s)
    tl.store(loss_ptr + 1 + row, loss)  # place 0 is for 1 / n, see below


# %%
# * **The online softmax.** ``m`` is the maximum so far, and ``s`` the sum of :math:`e^{x - m}` so
#   far. If a block has a larger maximum, all terms of ``s`` are too large by the same factor, and
#   one multiplication corrects them.
# * **The first maximum.** A model gives the logit −∞ to tokens that must not come. If ``m`` also
#   started at −∞, a block of such tokens would compute −∞ − (−∞), which is NaN. So ``m`` starts at
#   ``LOWEST``, the lowest finite number.
# * **Ignored rows.** A target equal to ``ignore_index``, usually −100, marks a row that does not
#   count, such as padding.
#
# **Try it** *(easy, 15 minutes)*. Write ``target_probabilities(logits, targets)``, which returns
# the probability of each target, and 0 where the target is −100. ``exercise.pyz`` (see *Exercises*)
# checks it. This answer loads a logit for the target −100, too:
#
# .. code-block:: console
#
#    $ python exercise.pyz 10-probability mine.py
#    Not yet. target_probabilities((1, 5), (1,)): out of bounds: a load
#      kernel:   kernel, mine.py line 18 `p = tl.exp(tl.load(x_ptr + target) - m) / s`
#      program:  0, in a grid of 1
#      index:    -100 of `x_ptr`, which has 5 elements, shape (1, 5)

# sphinx_gallery_fold = "compares the losses with PyTorch"
# sphinx_gallery_fold_output = True
torch.manual_seed(0)
logits = 3 * torch.randn(5, 10000, device=DEVICE)
logits[0, :9000] = -float("inf")  # tokens that must not come
targets = torch.tensor([9999, 0, -100, 17, 9998], device=DEVICE)  # one row that does not count
losses = torch.empty(6, device=DEVICE)
loss_kernel[(5,)](logits, targets, losses, logits.stride(0), 10000, -100, BLOCK=8192, num_warps=8)
expected = functional.cross_entropy(logits, targets, reduction="none")
torch.testing.assert_close(losses[1:], expected)
print("losses:", ", ".join(f"{loss:.3f}" for loss in losses[1:].tolist()))

# %%
# The gradient, before anyone asks for it
# ---------------------------------------
#
# The loss of a batch is the mean over the *n* rows that count. Its gradient is the probabilities
# *p*, less 1 at the target (:math:`[j = t]` is 1 there and 0 elsewhere), divided by *n*:
#
# .. math::
#
#     \frac{\partial L}{\partial x_j} = \frac{1}{n} \left( p_j - [j = t] \right)
#     \qquad \text{with} \quad p_j = e^{x_j - m} / s
#
# Usually the forward pass reads the logits, and the backward pass reads them again and writes a
# gradient of their size: **three transfers** of the largest tensor of a training step.
#
# But the loss is the last operation, and its incoming gradient is a single number, nearly always 1.
# So **the forward pass can write the gradient**: right after the first loop, each program reads its
# row again. If the row is still in the L2 cache, **two transfers** of memory remain, one read and
# one write. The second loop:

# sphinx_gallery_fold = "the whole kernel: loss_kernel with this second loop"
# sphinx_gallery_show = "write_forwards"
# sphinx_gallery_difference = "loss_kernel"


@triton.jit
def write_forwards(x_ptr, grad_ptr, n, target, m, s, share, BLOCK: tl.constexpr):
    """Write the gradient of n logits; *share* is the row's factor, or 0 if ignored."""
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
        p = tl.exp(x.to(tl.float32) - m) * (share / s)
        gradient = tl.where(cols == target, p - share, p)  # <-
        tl.store(grad_ptr + cols, gradient, mask=cols < n)


@triton.jit
def one_launch_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, stride, V, ignore_index, BLOCK: tl.constexpr
):
    """Compute the loss of one row, then its gradient."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr += row * stride
    m = LOWEST
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    loss = 0.0
    share = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + target).to(tl.float32) + tl.log(s)
        share = tl.load(loss_ptr)  # 1 / n
    tl.store(loss_ptr + 1 + row, loss)  # place 0 is for 1 / n, see below
    write_forwards(x_ptr, grad_ptr + row * V, V, target, m, s, share, BLOCK)


# %%
# Python would have to wait for the GPU to learn *n*. So a small kernel of one program counts the
# rows, and stores the **share** of each, 1/*n*, in front of the losses. Then ``one_launch_kernel``
# has one program a row, and a third kernel computes the mean.

# sphinx_gallery_fold = "the two small kernels, the launches, and the comparison with float64"
from shared.losses import ONE, by_autograd, compare, count_kernel, draw, mean_kernel, mean_of_last


def with_rows(kernel, logits, targets, **constants):
    """Return the mean loss and its gradient; *kernel* computes both for each row."""
    M, V = logits.shape
    losses = torch.empty(M + 1, dtype=torch.float32, device=logits.device)  # the share is first
    mean, gradient = torch.empty_like(losses[0]), torch.empty_like(logits)
    count_kernel[(1,)](targets, losses, M, V, -100, **ONE)
    kernel[(M,)](logits, targets, losses, gradient, V, V, -100, **constants)
    mean_kernel[(1,)](losses, mean, M, **ONE)
    return mean, gradient


in_one_launch = partial(with_rows, one_launch_kernel, BLOCK=8192, num_warps=8)
compare(in_one_launch, logits, targets)
print("one_launch_kernel agrees with float64")

# %%
# The cache that failed, read backwards
# -------------------------------------
#
# The second read is cheap only if the row is still in the L2 cache. All SMs share it, so not one
# row has to fit, but **the rows of all resident programs**, those that run at the same time. They
# are counted for an even *V*; for an odd one the kernel can need more registers, and fewer fit:

# sphinx_gallery_fold = "counts the resident programs and their bytes"
from shared.losses import print_resident, resident_programs

values = []  # (name, unit, value), what no benchmark holds
if ON_GPU and torch.version.cuda:
    x, g, few = torch.zeros(2, 10000, device=DEVICE).bfloat16(), logits[:2].bfloat16(), targets[:2]
    compiled = one_launch_kernel[(2,)](x, few, losses, g, 10000, 10000, -100, 8192, num_warps=8)
    resident = resident_programs(compiled, 8, DEVICE)
    values += print_resident(resident, torch.cuda.get_device_properties(DEVICE).L2_cache_size / 1e6)
else:
    print("Resident programs are counted on an NVIDIA GPU only.")

# %%
# The gradients, as large as the logits, pass through the cache, too. A simple cache evicts the
# block that was used longest ago. Let four programs share such a cache of 32 blocks, and read rows
# of 9 blocks, a little too long: each has room for 8.

# sphinx_gallery_fold = "counts the blocks found in such a cache"
# sphinx_gallery_fold_output = True


def hits(order, room=32):
    """Return how many of the blocks in *order* are found in a cache for *room* blocks."""
    cache, found = [], 0
    for block in order:
        found += block in cache
        cache = [*(b for b in cache if b != block), block][-room:]  # the newest is last
    return found


once = [(program, block) for block in range(9) for program in range(4)]
print("forwards, then forwards: ", hits(once + once), "of 36 blocks found")
print("forwards, then backwards:", hits(once + once[::-1]), "of 36 blocks found")

# %%
# .. image:: 10-cross-entropy.svg
#    :alt: After the first loop the last eight of nine blocks are in the cache. Read again forwards,
#          none is found; read backwards, eight are.
#    :scale: 100
#    :loading: lazy
#
# All but one block of each row were in the cache, and none was found. The second loop first asks
# for the beginning of the row, which has just been evicted. Fetching it evicts the block that the
# loop asks for next. There are two remedies:
#
# * **Read backwards.** The second loop starts at the end of the row. It finds what was read last,
#   and misses only what did not fit.
# * **Give hints.** The first loop loads with ``eviction_policy="evict_last"``, because the second
#   loop needs these bytes. The second loop loads and stores with ``"evict_first"``.
#
# The factor ``share / s`` is now in the exponent, as ``bias``. The target is corrected later.

# sphinx_gallery_difference = "write_forwards"


@triton.jit
def write_gradient(x_ptr, grad_ptr, n, m, bias, BLOCK: tl.constexpr):
    """Write the share of n probabilities; the factor share / s is 2**bias."""
    last = (n - 1) // BLOCK * BLOCK
    for done in range(0, n, BLOCK):
        cols = last - done + tl.arange(0, BLOCK)  # <-
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0, eviction_policy="evict_first")
        p = tl.exp2((x.to(tl.float32) - m) * LOG2E + bias)
        tl.store(grad_ptr + cols, p, mask=cols < n, eviction_policy="evict_first")


# %%
# .. predict:: How much faster is the kernel at *V* = 32,768 with both remedies?
#    :number: gain
#    :unit: ×
#
#    The reads that hit the cache cost no memory bandwidth. The writes and the first reads still
#    do.
#
# The rates for 8192 tokens in bf16 count three transfers of the logits. The ceiling has the time of
# a copy, two transfers, so it is above the memory's bandwidth:
#
# .. steps:: ceiling
#    :unit: GB/s
#
#    one: the gradient in the forward pass
#    kept: backwards, with hints
#
# Rows of odd length
# ------------------
#
# GPT-2's vocabulary has 50,257 tokens, an odd number. A thread loads 16 bytes, eight elements of
# bf16, with one instruction if their address is divisible by 16. With an odd *V* most rows begin
# elsewhere, so the compiler loads **element by element**: eight times as many instructions.
#
# But each row *contains* such an address at every eighth element. So cut the row into three parts:
# up to seven elements before the first such address, whole groups of eight, and the rest. In four
# rows of 29 elements, with a dot for each element outside of the groups:

# sphinx_gallery_fold = "prints four rows of 29 elements, cut into groups of 8"
for row in range(4):
    lead = -row * 29 % 8
    groups, rest = divmod(29 - lead, 8)
    print(f"row {row}: {lead * '.'}{groups * '[======]'}{rest * '.'}")

# %%
# In the last kernel, two functions loop over the groups. The compiler *sees* that they are aligned:
# ``(begin + 7) // 8 * 8`` is a multiple of 8 for each ``begin``. The elements on both **edges** are
# one block of 16, loaded element by element. The gradient may overwrite the logits, so the kernel
# loads the logit of the target, ``hit``, first:


@triton.jit
def cross_entropy_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, stride, V, ignore_index,
    BLOCK: tl.constexpr,
    MAXIMA: tl.constexpr,  # 1, or one for each thread: see below
    GROUP: tl.constexpr,  # elements in 16 bytes; 1 if the rows need not be cut
    WRITE: tl.constexpr,  # whether the gradient is wanted
    SHARED: tl.constexpr,  # whether it contains the share of a row
):  # fmt: skip
    """Compute the loss of one row, then its gradient, which may overwrite the row."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    begin, grad_begin = row * stride, row * V
    hit = tl.load(x_ptr + begin + target, mask=target != ignore_index, other=0.0).to(tl.float32)
    first, grad_first, lead, middle = begin, grad_begin, 0, V
    m, s = tl.full([], LOWEST, tl.float32), 0.0
    if GROUP > 1:
        first = (begin + GROUP - 1) // GROUP * GROUP  # <-
        grad_first = (grad_begin + GROUP - 1) // GROUP * GROUP
        lead = tl.minimum(first - begin, V).to(tl.int32)  # elements before them
        middle = (V - lead) // GROUP * GROUP  # elements in them
        place = tl.arange(0, 2 * GROUP)
        edge = tl.where(place < GROUP, place, place - GROUP + lead + middle)
        on_edge = tl.where(place < GROUP, place < lead, edge < V)
        x_edge = tl.load(x_ptr + begin + edge, mask=on_edge, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x_edge, axis=0))
        s = tl.sum(tl.exp(x_edge - m), axis=0)
    m, s = add_up(m, s, x_ptr + first, middle, BLOCK, MAXIMA)
    share = tl.load(loss_ptr) if SHARED else 1.0
    loss = 0.0
    if target != ignore_index:
        loss = m - hit + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + 1 + row, loss)
    if WRITE:
        bias = tl.log2(share / s)
        write_gradient(x_ptr + first, grad_ptr + grad_first, middle, m, bias, BLOCK)
        if GROUP > 1:
            p = tl.exp2((x_edge - m) * LOG2E + bias)
            tl.store(grad_ptr + grad_begin + edge, p, mask=on_edge)
        tl.debug_barrier()  # after this, the target's element is written again
        p = tl.exp2((hit - m) * LOG2E + bias) - share
        tl.store(grad_ptr + grad_begin + target, p, mask=target != ignore_index)


# %%
# No barrier in the loop
# ----------------------
#
# The maximum of a whole block needs a **barrier** in each iteration of the first loop: all warps
# wait for the slowest one, which other programs hide only in part. But each thread can keep a
# maximum and a sum of its own, and they are combined **once**, after the loop:


@triton.jit
def add_up(m, s, x_ptr, n, BLOCK: tl.constexpr, MAXIMA: tl.constexpr):
    """Return the maximum m and the sum s of exp(x - m), with n more logits."""
    EACH: tl.constexpr = 8 if MAXIMA > 1 else 1  # neighbours, which one thread loads
    own_s = tl.zeros([MAXIMA], tl.float32)
    own_m = own_s + m
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=-float("inf"), eviction_policy="evict_last")
        x = tl.reshape(x.to(tl.float32), [BLOCK // MAXIMA // EACH, MAXIMA, EACH])  # <-
        larger = tl.maximum(own_m, tl.max(tl.max(x, axis=2), axis=0))  # [MAXIMA]
        p = tl.exp2((x - larger[None, :, None]) * LOG2E)
        own_s = own_s * tl.exp2((own_m - larger) * LOG2E) + tl.sum(tl.sum(p, axis=2), axis=0)
        own_m = larger
    largest = tl.max(own_m, axis=0)
    return largest, s * tl.exp(m - largest) + tl.sum(own_s * tl.exp(own_m - largest), axis=0)


# %%
# With ``MAXIMA`` = 1 the block has one maximum, as before. With one for each thread no warp waits
# in the loop, so a program can have more warps. Then fewer programs are resident, and their rows
# take less of the cache. The last two steps, for *V* = 50,257:
#
# .. steps:: odd_ceiling
#    :unit: GB/s
#
#    odd_kept: backwards, with hints
#    odd_cut: the row cut into groups of 16 bytes
#    odd_own: a maximum for each thread, 16 warps instead of 8
#
# So the last step changes two things: no barrier, and fewer resident rows. Very long rows need
# still fewer: programs of 32 warps have :measured:`large_programs` times the speed of 16 at *V* =
# 131,072.
#
# The forward pass keeps the gradient, and ``backward`` multiplies it by the incoming one:

# sphinx_gallery_fold = "launches the kernels (loss_and_gradient), and compares with float64"
# sphinx_gallery_show = "CrossEntropy, cross_entropy"


def size_of(V):
    """Return the constants that depend on the length of a row."""
    if V <= 4096:
        return {"BLOCK": 1024, "MAXIMA": 128, "num_warps": 4}
    warps = 8 if V <= 16384 else 16 if V <= 65536 else 32
    return {"BLOCK": 1024 * warps, "MAXIMA": 32 * warps, "num_warps": warps}


def loss_and_gradient(logits, targets):
    """Return the mean loss of contiguous logits [M, V], and its gradient."""
    V = logits.shape[1]
    group = 1 if V % 16 == 0 else 16 // logits.element_size()
    constants = {**size_of(V), "GROUP": group, "WRITE": True, "SHARED": True}
    return with_rows(cross_entropy_kernel, logits, targets, **constants)


class CrossEntropy(torch.autograd.Function):
    """The loss, whose gradient exists before it is asked for."""

    @staticmethod
    def forward(ctx, logits, targets):
        """Compute the loss and the gradient."""
        mean, ctx.gradient = loss_and_gradient(logits, targets)
        return mean

    @staticmethod
    def backward(ctx, grad):
        """Multiply the gradient by the incoming one."""
        return grad * ctx.gradient, None


def cross_entropy(logits, targets):
    """Return the mean cross-entropy of the rows of *logits*; targets of -100 do not count."""
    return CrossEntropy.apply(logits, targets)


uncut = partial(with_rows, cross_entropy_kernel, GROUP=1, WRITE=True, SHARED=True)
kept = partial(uncut, BLOCK=8192, MAXIMA=1, num_warps=8)
cut, own = partial(kept, GROUP=8), partial(uncut, **size_of(32768))
compare(kept, logits, targets)
SHAPES = [(1, 1), (5, 3), (7, 781), (3, 4096), (3, 10001)] + [(64, 131072), (257, 50257)] * ON_GPU
for M, V in SHAPES:
    compare(partial(by_autograd, cross_entropy), *draw(M, V))
print(f"cross_entropy agrees with float64 on {len(SHAPES)} shapes")

# %%
# In a program
# ------------
#
# In fp16 a gradient divided by thousands of rows can vanish, so the backward pass multiplies by the
# share. With ``inplace=True`` the gradient overwrites the logits. The function hands over its only
# copy of the gradient, so it refuses a second backward pass and a second derivative. It keeps a
# *plan* (:doc:`/programming-guide/chapter-6/calls`) of the plain function's launches. Up to 256
# rows take one launch: each program counts the rows, and the last to finish computes the mean.

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import Launch, key_of
from shared.losses import FEW, check_logits, compare_views, differentiable, handed_over, scaled
from shared.plans import Plans

DTYPES = (torch.float16, torch.float32) + (torch.bfloat16,) * ON_GPU  # wrong in the interpreter
ANY = torch.device(DEVICE.type)  # any GPU


@triton.jit(debug=True, do_not_specialize=["M"])
def few_rows_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, mean_ptr, stride, V, ignore_index, M,
    BLOCK: tl.constexpr, MAXIMA: tl.constexpr, GROUP: tl.constexpr, WRITE: tl.constexpr,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Do what three launches do: each program counts the rows, and the last one adds them up."""
    count_kernel(target_ptr, loss_ptr, M, V, ignore_index, FEW)  # all store the same share
    tl.debug_barrier()  # after this, all threads of the program load it
    cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, grad_ptr, stride, V, ignore_index,
                         BLOCK, MAXIMA, GROUP, WRITE, SHARED)  # fmt: skip
    mean_of_last(loss_ptr, mean_ptr, M, FEW)


def new_plan(logits, ignore_index, wanted):
    """Return the launches for such *logits*, one or three, with the gradient if *wanted*."""
    M, V = logits.shape
    stride, in_16_bytes = logits.stride(0), 16 // logits.element_size()
    cut = V % 16 != 0 or stride % 16 != 0
    # Groups of the logits have to be groups of the gradient, too, whose rows follow one another.
    alike = stride == V or (V % in_16_bytes == 0 and stride % in_16_bytes == 0)
    group = in_16_bytes if cut and alike and logits.data_ptr() % 16 == 0 else 1
    shared = logits.dtype != torch.float16
    constants = {**size_of(V), "GROUP": group, "WRITE": wanted, "SHARED": shared}
    if 0 < M <= FEW:
        constants["sanitize_overflow"] = False  # of debug=True, only the assertion is wanted
        return (Launch(few_rows_kernel, (M,), (stride, V, ignore_index, M), constants),)
    return (
        Launch(count_kernel, (1,), (M, V, ignore_index), ONE),
        Launch(cross_entropy_kernel, (M,), (stride, V, ignore_index), constants),
        Launch(mean_kernel, (1,), (M,), ONE),
    )


PLANS = Plans()


def run(key, logits, targets, gradient):
    """Return the mean loss, and the losses behind the share; write the gradient if wanted."""
    plan = PLANS.get(key)
    if plan is None:
        plan = new_plan(logits, *key[1:])
        PLANS.keep(key, plan)
    losses = torch.empty(len(targets) + 1, dtype=torch.float32, device=logits.device)
    if len(plan) == 1:
        mean = losses.new_zeros(())  # it counts the programs first
        plan[0](logits, targets, losses, gradient, mean)
        return mean, losses
    mean = losses.new_empty(())
    plan[0](targets, losses)
    if len(targets):
        plan[1](logits, targets, losses, gradient)
    plan[2](losses, mean)
    return mean, losses


class CheckedCrossEntropy(torch.autograd.Function):
    """The loss, with a gradient that exists before it is asked for."""

    @staticmethod
    def forward(ctx, logits, others):
        """Compute the loss and the gradient."""
        targets, key, inplace = others  # each argument of ``apply`` takes time
        gradient = logits if inplace else logits.new_empty(logits.shape)
        mean, losses = run(key, logits, targets, gradient)
        if inplace:
            torch.autograd.graph.increment_version(logits)
            gradient = logits.detach()
        ctx.gradient, ctx.version = (gradient,), gradient._version
        ctx.share = losses[0] if logits.dtype == torch.float16 else None
        return mean

    @staticmethod
    def backward(ctx, grad):
        """Hand the gradient over, multiplied by *grad* where that is not 1."""
        (gradient,), ctx.gradient = handed_over("cross_entropy", ctx.gradient), None
        if gradient._version != ctx.version:  # only with inplace=True does anyone else have it
            raise RuntimeError("cross_entropy: logits were changed in place; pass inplace=False")
        factor = grad if ctx.share is None else grad * ctx.share.nan_to_num()
        return scaled(gradient, factor), None


def cross_entropy(logits, targets, ignore_index=-100, inplace=False):
    """Return the mean cross-entropy of the rows of *logits*, as a float32 scalar.

    Args:
        logits: fp16, bf16 (on a GPU) or fp32 of shape [M, V], with contiguous rows.
        targets: Contiguous int64 or int32 of shape [M], from 0 to V - 1. On a GPU, an assertion
            stops a kernel at a wrong target.
        ignore_index: The target of rows that do not count. If none counts, the mean is NaN.
        inplace: Write the gradient over the logits, which are of no use afterwards. They must be
            contiguous and the result of a layer. ``torch.compile`` does not know this.

    Raises:
        TypeError: An argument is no tensor, or has another dtype.
        ValueError: Shapes, strides or devices do not fit, or a target on the CPU is out of range.
        RuntimeError: Backward runs twice, with ``create_graph=True``, or after others have changed
            logits that were overwritten.
    """
    ordinary = {type(logits), type(targets)} <= {torch.Tensor, torch.nn.Parameter}
    ordinary = ordinary and logits.layout == targets.layout == torch.strided
    if torch.compiler.is_compiling() or not ordinary:  # not tensors, or without memory
        check_logits(logits, targets, ignore_index, inplace, DTYPES, ANY)
        if inplace:
            raise ValueError("inplace=True works neither in torch.compile nor on fake tensors")
        return cross_entropy_op(logits.resolve_neg(), targets, ignore_index)[0]
    if logits.is_neg() or targets.is_neg():  # the sign is still to be changed
        inplace = inplace and not logits.is_neg()  # then the result is a copy, and may be changed
        logits, targets = logits.resolve_neg(), targets.resolve_neg()
    wanted = logits.requires_grad and torch.is_grad_enabled()
    # In place, the gradient may begin at an odd address, as fresh memory never does.
    key = (*key_of(logits, targets), bool(inplace)), ignore_index, wanted
    if DEVICE.type == "cpu" or inplace or type(ignore_index) is not int or key not in PLANS:
        check_logits(logits, targets, ignore_index, inplace, DTYPES, ANY)
    if wanted:
        return CheckedCrossEntropy.apply(logits, (targets, key, inplace))
    return run(key, logits, targets, logits)[0]


# For torch.compile, and for tensors without memory, the function is one operation.
@differentiable("gallery::cross_entropy")
def cross_entropy_op(logits, targets, ignore_index):
    """Return the mean loss, its gradient, and what the gradient is still to be multiplied by."""
    gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    mean, losses = run((key_of(logits, targets), ignore_index, True), logits, targets, gradient)
    share = losses[0].nan_to_num() if logits.dtype == torch.float16 else torch.ones_like(mean)
    return mean, gradient, share.clone()


TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}  # one rounding
for dtype in DTYPES:
    for M, V in SHAPES if dtype == torch.float32 else SHAPES[2:]:  # the tiny ones once
        compare(partial(by_autograd, cross_entropy), *draw(M, V, dtype), TOLERANCE[dtype])

compare_views(cross_entropy)
print(f"cross_entropy agrees with float64 on {len(SHAPES)} shapes and in {len(DTYPES)} dtypes")

# %%
# The benchmark
# -------------
#
# We time loss and gradient of 8192 tokens in bf16. The vocabularies have about the sizes of Llama
# 2's, GPT-2's and Llama 3's. The ceiling is a copy of the logits.

# sphinx_gallery_fold = "times loss and gradient, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "cross_entropy_kernel: 8192 × 131,072, bf16"
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table
from shared.plans import empty_kernel


def step(function, logits, targets):
    """Compute the loss and the gradient of the *logits*."""
    return torch.autograd.grad(function(logits, targets), logits)


def benchmark(M, V):
    """Return rows (M, V, provider, unit, median, p20, p80), all in GB/s of three transfers."""
    torch.compiler.reset()
    compiled = torch.compile(functional.cross_entropy, dynamic=False)
    logits = (2 * torch.randn(M, V, device=DEVICE, dtype=torch.bfloat16)).requires_grad_()
    targets = torch.randint(0, V, (M,), device=DEVICE)
    calls = {
        "torch": partial(step, functional.cross_entropy, logits, targets),
        "compile": partial(step, compiled, logits, targets),
        "triton, one launch": partial(in_one_launch, logits.detach(), targets),
        "triton, kept": partial(kept, logits.detach(), targets),
        "triton, cut": partial(cut, logits.detach(), targets),
        "triton, own": partial(own, logits.detach(), targets),
        "triton": partial(step, cross_entropy, logits, targets),
        "copy": logits.detach().clone,  # one read and one write: the ceiling
    }
    found = rates((M, V), calls, "GB/s", 3 * 2 * M * V)
    calls["triton"]()  # the last launch is the one whose X-ray is shown
    return found


if ON_GPU:
    from torch._inductor import config

    config.compile_threads = 1  # or its processes start while others are timed, on all cores
    rows = [row for V in (32768, 50257, 131072) for row in benchmark(8192, V)]
    write_rows("cross-entropy-performance.csv", ["M", "V"], rows)
    names = {"triton": "cross_entropy", "compile": "torch.compile", "torch": "PyTorch"}
    title = "Cross-entropy and its gradient, 8192 tokens"
    labels = names | {"copy": "a copy"}
    draw_rates(rows, labels, title, "vocabulary", column=1, share_of="copy")

    x, targets = draw(64, 1024, torch.bfloat16)
    losses = {"triton": cross_entropy, "torch": functional.cross_entropy}
    calls = {name: partial(f, x.requires_grad_(), targets) for name, f in losses.items()}
    calls["launch"] = empty_kernel[(1,)]
    cpu = write_calls({"cross_entropy": calls})
    for tokens in [2**i for i in range(4, 14)]:
        x, targets = draw(tokens, 32768, torch.bfloat16)
        calls = {"": partial(cross_entropy, x.requires_grad_(), targets)}
        ((_, _, median, *_),) = rates((), calls, "µs")
        if median > cpu["cross_entropy", "triton"]:
            break
    values.append(("GPU longer from", "tokens", tokens))
    write_table("10-cross-entropy-values.csv", ["name", "unit", "value"], values)
else:
    print("Without a GPU there is nothing to time.")

# %%
# For *V* = 131,072 our function reaches :measured:`largest` GB/s, and PyTorch's reaches
# :measured:`torch` GB/s, since its backward pass makes two more tensors of the logits' size. Our
# function has at least :measured:`compiled` times the speed of ``torch.compile``.
#
# Our function reaches :measured:`share` % of the ceiling at *V* = 32,768,
# :measured:`share_odd` % at 50,257, and :measured:`share_large` % at 131,072. One wait is left:
# between its loops a program adds up the sums of all threads, and loads nothing meanwhile.
#
# **The CPU** is busy for :measured:`cpu` µs with a call for 64 tokens that prepares the gradient,
# and for :measured:`cpu_torch` µs with PyTorch's, which does not prepare it. With *V* = 32,768 the
# GPU needs longer than the first of these times from :measured:`gpu_longer` tokens on.
#
# Exercises
# ---------
#
# 1. **Label smoothing** *(medium, 30 minutes)*. Give the target the probability
#    :math:`1 - \varepsilon` and spread :math:`\varepsilon` over all tokens. Which sum do you need
#    in addition? Return the mean loss and the gradient from
#    ``smoothed_cross_entropy(logits, targets, smoothing)``.
#    :doc:`Solution <solutions/10-label-smoothing>`.
# 2. **A penalty on the log-sum-exp** *(easy, 20 minutes)*. Add
#    :math:`\alpha \, (\log \sum_j e^{x_j})^2` to the loss, which keeps logits from drifting. Return
#    the loss and the gradient from ``cross_entropy_with_z_loss(logits, targets, alpha)``.
#    :doc:`Solution <solutions/10-z-loss>`.
# 3. **A maximum for each place** *(hard, 40 minutes)*. In ``loss_kernel``, let each *place* of the
#    block keep a maximum and a sum of its own, with one exponential for each element, and reduce
#    them once after the loop. ``losses_of(logits, targets, own)`` returns the loss of each row in
#    the new way, or with ``own=False`` in the old one. :doc:`Solution <solutions/10-own-maxima>`.
#
# References
# ----------
#
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
# * Pin-Lun Hsu and others: *Liger kernel: efficient Triton kernels for LLM training*, 2024,
#   https://arxiv.org/abs/2410.10989: the gradient in the forward pass.
