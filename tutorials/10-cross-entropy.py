r"""
Cross-entropy
=============

You write ``cross_entropy(logits, targets)`` here, the loss of a language model. It writes its
gradient in the forward pass, while the logits are still in the cache. Forward and backward together
are at least :measured:`faster` times as fast as PyTorch's. You need :doc:`02-fused-softmax`, and
autograd functions from :doc:`04-low-memory-dropout`. The last layer is fused with its loss in
:doc:`10b-linear-cross-entropy`.
"""

# %%
# The kernel
# ----------
#
# A language model gives one number to each of the *V* words that it knows: the **logits** *x* of a
# token. The **target** *t* is the word that came next. The loss is minus the logarithm of the
# probability that softmax gives to the target:
#
# .. math::
#
#     \ell = -\log \frac{e^{x_t}}{\sum_j e^{x_j}} = \log \sum_j e^{x_j} - x_t
#
# A row of a hundred thousand logits does not fit into registers, so a program reads it in blocks.

# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "transformer"
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
def add_up(m, s, x_ptr, n, BLOCK: tl.constexpr, HINT: tl.constexpr):
    """Return the maximum m and the sum s of exp(x - m), with n more logits."""
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + cols, mask=cols < n, other=-float("inf"), eviction_policy=HINT)
        x = x.to(tl.float32)
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    return m, s


@triton.jit
def loss_kernel(x_ptr, target_ptr, loss_ptr, stride, V, ignore_index, BLOCK: tl.constexpr):
    """Compute the loss of one row."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    m = LOWEST
    s = 0.0
    m, s = add_up(m, s, x_ptr + row * stride, V, BLOCK, HINT="")
    loss = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + row * stride + target).to(tl.float32) + tl.log(s)
    tl.store(loss_ptr + row, loss)


torch.manual_seed(0)
logits = 3 * torch.randn(5, 10000, device=DEVICE)
logits[0, :9000] = -float("inf")  # words that must not come
targets = torch.tensor([9999, 0, -100, 17, 9998], device=DEVICE)  # one row that does not count
losses = torch.empty(5, device=DEVICE)
loss_kernel[(5,)](logits, targets, losses, logits.stride(0), 10000, -100, BLOCK=8192, num_warps=8)
torch.testing.assert_close(losses, functional.cross_entropy(logits, targets, reduction="none"))
print(losses.cpu())

# %%
# The loop is the **online softmax**: a larger maximum corrects the sum by :math:`e^{m - m'}`. ``m``
# starts at the least finite number. Words that must not come are often masked with minus infinity.
# In a block of such words only, ``x - m`` would be NaN if ``m`` were minus infinity, too.
#
# The gradient before it is asked for
# -----------------------------------
#
# The gradient of the mean over *n* rows is the probabilities, less 1 at the target, divided by *n*:
#
# .. math::
#
#     \frac{\partial L}{\partial x_j} = \frac{1}{n} \left( p_j - [j = t] \right)
#     \qquad \text{with} \quad p_j = e^{x_j - m} / s
#
# Count the bytes. The forward pass reads the logits. The backward pass reads them again and writes
# as many numbers. These are **three transfers** of the largest tensor of the training step.
#
# But a loss is the last layer. Its caller asks for the gradient next, and the gradient that arrives
# from behind is one number, nearly always 1. So **the forward pass can write the gradient**. Each
# program reads its row again at once. A row is small compared with the L2 cache, so the second read
# can hit there. Then **two transfers** remain: one read and one write.


@triton.jit
def write_gradient(
    x_ptr, grad_ptr, n, target, m, s, share, BLOCK: tl.constexpr, HINT: tl.constexpr,
    BACKWARDS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of n logits; *share* is 1 / n of the rows."""
    last = (n - 1) // BLOCK * BLOCK
    for done in range(0, n, BLOCK):
        start = last - done if BACKWARDS else done
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0, eviction_policy=HINT).to(tl.float32)
        p = tl.exp(x - m) * (share / s)
        gradient = tl.where(cols == target, p - share, p)
        tl.store(grad_ptr + cols, gradient, mask=cols < n, eviction_policy=HINT)


@triton.jit
def one_launch_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, stride, V, ignore_index,
    BLOCK: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, BACKWARDS: tl.constexpr,
):  # fmt: skip
    """Compute the loss of one row, then its gradient."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr, grad_ptr = x_ptr + row * stride, grad_ptr + row * V
    m = LOWEST
    s = 0.0
    m, s = add_up(m, s, x_ptr, V, BLOCK, FIRST)
    share = tl.load(loss_ptr)
    loss = 0.0
    if target != ignore_index:
        loss = m - tl.load(x_ptr + target).to(tl.float32) + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + 1 + row, loss)
    write_gradient(x_ptr, grad_ptr, V, target, m, s, share, BLOCK, SECOND, BACKWARDS)


# %%
# Only the GPU knows *n*, and Python would have to wait for it. So a kernel of one program counts
# the rows and stores the **share** of a row, 1/*n*, in front of the losses. It also stops the GPU
# at a target out of range, as PyTorch's loss does: ``tl.device_assert`` works in kernels with
# ``debug=True``. A third kernel computes the mean.


# sphinx_gallery_fold = "counts the rows, computes the mean, and compares with float64"
@triton.jit(debug=True, do_not_specialize=["M", "V", "ignore_index"])
def count_kernel(target_ptr, loss_ptr, M, V, ignore_index, BLOCK: tl.constexpr):
    """Write 1 / n, where n of the M targets count; NaN if none does."""
    n = 0
    for start in range(0, M, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
        counts = target != ignore_index
        in_range = (target >= 0) & (target < V)
        tl.device_assert(in_range | (target == ignore_index), "a target is out of range")
        n += tl.sum(counts.to(tl.int32), axis=0)
    tl.store(loss_ptr, tl.where(n > 0, 1.0 / tl.maximum(n, 1), float("nan")))


@triton.jit(do_not_specialize=["M"])
def mean_kernel(loss_ptr, mean_ptr, M, BLOCK: tl.constexpr):
    """Write the sum of M losses times the share of a row."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, M, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + 1 + rows, mask=rows < M, other=0.0)
    tl.store(mean_ptr, tl.sum(total, axis=0) * tl.load(loss_ptr))


ONE = {"BLOCK": 4096, "num_warps": 8}  # for one program that looks at all rows


def run(plan, logits, targets, gradient):
    """Launch the three kernels of a plan; return the mean loss, and the losses behind the share."""
    M, count_rows, rows, mean_of = logits.shape[0], *plan
    losses = torch.empty(M + 1, dtype=torch.float32, device=DEVICE)  # the share of a row is first
    mean = torch.empty((), dtype=torch.float32, device=DEVICE)
    count_rows(targets, losses)
    if M > 0:
        rows(logits, targets, losses, gradient)
    mean_of(losses, mean)
    return mean, losses


def in_one_launch(logits, targets, **constants):
    """Return the mean loss and its gradient."""
    M, V = logits.shape
    numbers = {"stride": logits.stride(0), "V": V, "ignore_index": -100}
    count_rows = partial(count_kernel[(1,)], M=M, V=V, ignore_index=-100, **ONE)
    rows = partial(one_launch_kernel[(M,)], **numbers, **constants, BLOCK=8192, num_warps=8)
    mean_of = partial(mean_kernel[(1,)], M=M, **ONE)
    gradient = torch.empty_like(logits)
    return run((count_rows, rows, mean_of), logits, targets, gradient)[0], gradient


def compare(function, logits, targets, rtol=1e-5):
    """Raise AssertionError where loss or gradient differ from PyTorch's in float64."""
    exact = logits.detach().double().requires_grad_()
    expected = functional.cross_entropy(exact, targets)
    (wanted,) = torch.autograd.grad(expected, exact)
    loss, gradient = function(logits, targets)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=rtol, atol=1e-6)
    largest = 1 / max(1, int((targets != -100).sum()))  # 1 / n is subtracted at the target
    torch.testing.assert_close(gradient.double(), wanted, rtol=rtol, atol=rtol * largest)


plain = partial(in_one_launch, FIRST="", SECOND="", BACKWARDS=False)
compare(plain, logits, targets)  # stops where the kernel is wrong

# %%
# The cache that failed, read backwards
# -------------------------------------
#
# The second read ends in the cache only if the row is still there. A cache that evicts the block
# used longest ago fails in a bad way: a row that is a little too long loses its *beginning*, which
# the second loop reads first. Fetching it evicts what the loop reads next, and so on to the end.
# Here is such a cache with room for 8 blocks, and a row of 9:


def hits(order, room=8):
    """Return how many of the blocks in *order* are found in a cache for *room* blocks."""
    cache, found = [], 0
    for block in order:
        found += block in cache
        cache = [*(b for b in cache if b != block), block][-room:]  # the newest is last
    return found


row = list(range(9))
print("forwards, then forwards: ", hits(row + row), "of 9 blocks found")
print("forwards, then backwards:", hits(row + row[::-1]), "of 9 blocks found")

# %%
# All but one block were in the cache, and none was found. Two remedies take a few letters each:
#
# * **Read backwards.** The second loop starts at the end of the row, finds what was read last, and
#   misses only what did not fit.
# * **Give hints.** The first loop loads with ``eviction_policy="evict_last"``, because the second
#   one needs these bytes. The second loop loads and stores with ``"evict_first"``.

kept = partial(in_one_launch, FIRST="evict_last", SECOND="evict_first", BACKWARDS=True)
compare(kept, logits, targets)

# %%
# The rates for 8192 tokens and *V* = 32 768 in bf16, with three transfers counted. The ceiling is
# one read and one write at the speed of a copy:
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
# GPT-2's vocabulary has 50 257 words, an odd number. A thread loads 16 bytes with one instruction,
# eight elements of bf16, if their address is divisible by 16. With an odd *V* nearly no row begins
# at such an address, so the compiler loads **element by element**: eight times as many
# instructions for the same bytes.
#
# But each row *contains* such addresses, one at every eighth element. Cut the row into three parts:
# up to seven elements before the first such address, whole groups of eight, and the rest.

for row in range(4):  # 29 elements in groups of 8; a dot is an element on an edge
    lead = -row * 29 % 8
    groups, rest = divmod(29 - lead, 8)
    print(f"row {row}: {lead * '.'}{groups * '[======]'}{rest * '.'}")

# %%
# The compiler *sees* this: ``(begin + 7) // 8 * 8`` is a multiple of 8 for each ``begin``, and
# Triton derives that. Both edges together are a block of 16 elements, loaded element by element.


@triton.jit
def cross_entropy_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, stride, V, ignore_index,
    BLOCK: tl.constexpr,
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
    m, s = add_up(m, s, x_ptr + first, middle, BLOCK, HINT="evict_last")
    share = tl.load(loss_ptr) if SHARED else 1.0
    loss = 0.0
    if target != ignore_index:
        loss = m - hit + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + 1 + row, loss)
    if WRITE:
        write_gradient(
            x_ptr + first, grad_ptr + grad_first, middle, target - lead, m, s, share, BLOCK,
            HINT="evict_first", BACKWARDS=True,
        )  # fmt: skip
        if GROUP > 1:
            p = tl.exp(x_edge - m) * (share / s)
            gradient = tl.where(edge == target, p - share, p)
            tl.store(grad_ptr + grad_begin + edge, gradient, mask=on_edge)


# %%
# For *V* = 50 257 the cut changes the rate like this:
#
# .. steps:: odd_ceiling
#    :unit: GB/s
#
#    odd_kept: backwards, with hints
#    odd_cut: the row cut into groups of 16 bytes
#
# The kernel also loads the logit of the target first, because ``grad_ptr`` may be ``x_ptr``. A
# program that overwrites its own row must read that logit before. In the second loop each thread
# stores only elements that it has loaded itself.
#
# Calling it
# ----------
#
# The gradient that arrives from behind is 1 for ``loss.backward()``, and another number after
# ``loss / 4``. Python would have to wait for it. So a kernel reads it, and ends at once if it is 1.

# sphinx_gallery_fold = "multiplies the gradient where the factor is not 1"


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
# * **fp16.** The smallest fp16 number above zero is 2⁻²⁴. A probability divided by thousands of
#   rows is often less. It would become zero, and no loss scaler restores it. So in fp16 the
#   backward pass multiplies by the share, not the kernel (``SHARED``): two more transfers.
# * **In place.** With ``inplace=True`` the gradient overwrites the logits. ``increment_version``
#   tells PyTorch. A layer that needs the old logits for its own backward pass then raises an error.
# * **Twice.** The function hands over its only copy of the gradient, and the caller may change it.
#   So a second backward pass is refused, and so is a second derivative.
#
# A **plan** makes the three launches cheaper: see :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "brings the plan, and checks the arguments"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of


def check_arguments(logits, targets, ignore_index, inplace):
    """Raise TypeError or ValueError where ``cross_entropy`` cannot work on its arguments."""
    floats, ints = (torch.float16, torch.bfloat16, torch.float32), (torch.int64, torch.int32)
    for name, x, dtypes in (("logits", logits, floats), ("targets", targets, ints)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.dtype not in dtypes:
            allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
        if x.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {x.device}")
    shape, strides = tuple(logits.shape), logits.stride()
    if len(shape) != 2 or shape[1] == 0:
        raise ValueError(f"logits must be a matrix with at least one column, but has shape {shape}")
    if (shape[1] > 1 and strides[1] != 1) or (inplace and not logits.is_contiguous()):
        what = "with inplace=True, logits" if strides[1] == 1 else "the rows of logits"
        raise ValueError(f"{what} must be contiguous, but the strides are {strides}; pass "
                         f"logits.contiguous()")  # fmt: skip
    if targets.shape != shape[:1] or not targets.is_contiguous():
        raise ValueError(
            f"targets must be contiguous and have one element for each row, shape {shape[:1]}, but "
            f"has shape {tuple(targets.shape)} and strides {targets.stride()}"
        )
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise TypeError(f"ignore_index must be an int, but is a {type(ignore_index).__name__}")


def check_values(logits, targets, ignore_index, inplace):
    """Raise ValueError for what no plan knows: values on a CPU, and a leaf to be overwritten."""
    if DEVICE.type == "cpu":  # a GPU would have to be waited for
        V = logits.shape[1]
        for row, target in enumerate(targets.tolist()):
            if not 0 <= target < V and target != ignore_index:
                raise ValueError(
                    f"targets must be from 0 to {V - 1}, or {ignore_index} for rows that do not "
                    f"count, but targets[{row}] is {target}"
                )
    if inplace and logits.requires_grad and logits.is_leaf:
        raise ValueError("with inplace=True, logits must be the result of a layer: these have no "
                         "history, so their gradient would overwrite their only copy")  # fmt: skip


# %%

# sphinx_gallery_fold = "makes the plan, and defines the autograd function"
# sphinx_gallery_show = "cross_entropy"


def new_plan(logits, ignore_index, wanted):
    """Return the three launches for such *logits*, with the gradient if *wanted*."""
    M, V = logits.shape
    stride, in_16_bytes = logits.stride(0), 16 // logits.element_size()
    cut = V % 16 != 0 or stride % 16 != 0
    # Groups of the logits have to be groups of the gradient, too, whose rows follow one another.
    alike = stride == V or (V % in_16_bytes == 0 and stride % in_16_bytes == 0)
    group = in_16_bytes if cut and alike and logits.data_ptr() % 16 == 0 else 1
    size = {"BLOCK": 8192, "num_warps": 8} if V > 4096 else {"BLOCK": 1024, "num_warps": 4}
    constants = {**size, "GROUP": group, "WRITE": wanted, "SHARED": logits.dtype != torch.float16}
    return (
        Launch(count_kernel, (1,), (M, V, ignore_index), ONE),
        Launch(cross_entropy_kernel, (M,), (stride, V, ignore_index), constants),
        Launch(mean_kernel, (1,), (M,), ONE),
    )


class CrossEntropy(torch.autograd.Function):
    """The loss, with a gradient that exists before it is asked for."""

    @staticmethod
    def forward(ctx, logits, targets, plan, inplace):
        """Compute the loss and the gradient."""
        gradient = logits if inplace else logits.new_empty(logits.shape)
        mean, losses = run(plan, logits, targets, gradient)
        if inplace:
            torch.autograd.graph.increment_version(logits)
            gradient = logits.detach()
        ctx.gradient = gradient
        ctx.share = losses[0] if logits.dtype == torch.float16 else None
        return mean

    @staticmethod
    def backward(ctx, grad):
        """Hand the gradient over, multiplied by *grad* where that is not 1."""
        if torch.is_grad_enabled():  # in a backward pass: with create_graph=True
            raise RuntimeError("cross_entropy: there is no second derivative; leave out "
                               "create_graph=True")  # fmt: skip
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            raise RuntimeError("cross_entropy: backward was called twice, but the gradient exists "
                               "only once; add the losses up first")  # fmt: skip
        factor = grad if ctx.share is None else grad * ctx.share.nan_to_num()
        if n := gradient.numel():
            grid = (min(1024, triton.cdiv(n, 4096)),)
            scale_kernel[grid](gradient, factor, n, BLOCK=4096, num_warps=8)
        return gradient, None, None, None


PLANS = {}


def cross_entropy(logits, targets, ignore_index=-100, inplace=False):
    """Return the mean cross-entropy of the rows of *logits*, as a float32 scalar.

    *logits* [M, V] are fp16, bf16 or fp32, their rows contiguous. *targets* [M] are int64 or int32,
    from 0 to V - 1, or *ignore_index* for rows that do not count; if none counts, the mean is NaN.
    *inplace* writes the gradient over the logits, which are of no use afterwards. TypeError and
    ValueError name a wrong argument. On a GPU, an assertion stops a kernel at a wrong target.
    """
    plan = None
    compiling = torch.compiler.is_compiling()  # the compiler sees launches that it knows
    try:
        wanted = logits.requires_grad and torch.is_grad_enabled()
        if not compiling:
            inplace = bool(inplace)
            key = key_of(logits, targets), ignore_index, type(ignore_index), wanted, inplace
            plan = PLANS.get(key)
    except (AttributeError, TypeError):  # not tensors, or an index that cannot be in a key
        pass
    if plan is None:
        check_arguments(logits, targets, ignore_index, inplace)
        plan = new_plan(logits, ignore_index, wanted)
        if compiling:
            plan = tuple(launch.ask for launch in plan)
        elif len(PLANS) < 1000:  # or the shapes of this program never repeat
            PLANS[key] = plan
    if inplace or DEVICE.type == "cpu":
        check_values(logits, targets, ignore_index, inplace)
    if not wanted:
        return run(plan, logits, targets, logits)[0]
    return CrossEntropy.apply(logits, targets, plan, inplace)


# %%
# The check takes awkward shapes: a vocabulary of one word, odd vocabularies, rows shorter than a
# group, views, no rows, and no row that counts. The second call of a shape uses the plan.


# sphinx_gallery_fold = "compares shapes, dtypes, views, a multiple, and in place"
def by_autograd(logits, targets):
    """Return the loss and the gradient of the logits, from a call with a plan."""
    logits = logits.detach().requires_grad_()
    for _ in range(2):
        loss = cross_entropy(logits, targets)
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}  # one rounding
dtypes = [torch.float32, torch.float16] + [torch.bfloat16] * ON_GPU  # wrong in the interpreter
shapes = [(1, 1), (5, 3), (9, 7), (7, 781), (3, 4096), (3, 10001), (2, 50257)]
if ON_GPU:
    shapes += [(257, 50257), (64, 131072), (33, 262147)]
for dtype in dtypes:
    for M, V in shapes if dtype == torch.float32 else shapes[3:]:  # the tiny ones once
        logits = (3 * torch.randn(M, V, device=DEVICE)).to(dtype)
        targets = torch.randint(0, V, (M,), device=DEVICE)
        targets[1::4] = -100
        compare(by_autograd, logits, targets, TOLERANCE[dtype])

wide = 3 * torch.randn(40, 300, device=DEVICE)
targets = torch.randint(0, 64, (40,), device=DEVICE)
for view in (wide[:, 10:91], wide[:, :64], wide[::3, :272], wide[:1].expand(5, -1)):
    compare(by_autograd, view, targets[: len(view)])
loss, gradient = by_autograd(wide, torch.full_like(targets, -100))
assert loss.isnan() and not gradient.any()
assert cross_entropy(wide[:0], targets[:0]).isnan()

expected = 3.5 * by_autograd(wide, targets)[1]
for inplace in (False, True):
    x = wide.clone().requires_grad_()
    logits = x * 1  # the result of a layer
    (3.5 * cross_entropy(logits, targets, inplace=inplace)).backward()
    torch.testing.assert_close(x.grad, expected)
print(f"cross_entropy agrees with float64 on {len(shapes)} shapes and in {len(dtypes)} dtypes")

# %%
# Timing it
# ---------
#
# The benchmark computes loss and gradient of 8192 tokens in bf16. The vocabularies have about the
# sizes of Llama 2's, GPT-2's and Llama 3's. All rates count three transfers.

# sphinx_gallery_fold = "times loss and gradient, draws the rates, and keeps the rows"
import matplotlib.pyplot as plt
from shared.bench import plot_rates, rows_of, write_calls, write_rows


@triton.jit
def empty_kernel():
    """Do nothing."""


def loss_and_gradient(function, logits, targets):
    """Compute the loss and the gradient of the *logits*."""
    return torch.autograd.grad(function(logits, targets), logits)


def benchmark(M, V):
    """Return rows (M, V, provider, unit, median, p20, p80)."""
    torch.compiler.reset()
    compiled = torch.compile(functional.cross_entropy, dynamic=False)
    logits = (2 * torch.randn(M, V, device=DEVICE, dtype=torch.bfloat16)).requires_grad_()
    targets = torch.randint(0, V, (M,), device=DEVICE)
    losses = {"triton": cross_entropy, "torch": functional.cross_entropy, "compile": compiled}
    calls = {name: partial(loss_and_gradient, f, logits, targets) for name, f in losses.items()}
    for name, f in (("one launch", plain), ("kept", kept)):
        calls[f"triton, {name}"] = partial(f, logits.detach(), targets)
    rows = rows_of((M, V), calls, "GB/s", 3 * 2 * M * V, as_called=("triton", "torch"))
    return rows + rows_of((M, V), {"copy": logits.detach().clone}, "GB/s", 2 * 2 * M * V)


if ON_GPU:
    from torch._inductor import config

    config.compile_threads = 1  # or its processes start while others are timed, on all cores
    rows = [row for V in (32768, 50257, 131072) for row in benchmark(8192, V)]
    write_rows("cross-entropy-performance.csv", ["M", "V"], rows)
    logits = torch.randn(64, 1024, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, 1024, (64,), device=DEVICE)
    losses = {"triton": cross_entropy, "torch": functional.cross_entropy}
    calls = {name: partial(function, logits, targets) for name, function in losses.items()}
    calls["launch"] = lambda: [empty_kernel[(1,)]() for _ in range(3)]
    write_calls({"cross_entropy": calls})
    shown = [row[1:] for row in rows]
    for V, _, unit, *rates in [row for row in shown if row[1] == "copy"]:
        shown.append((V, "ceiling", unit, *(1.5 * rate for rate in rates)))
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    ax.set(xscale="log", ylim=(0, 1.1 * max(row[3] for row in shown)))
    names = {"ceiling": "one read, one write (ceiling)", "triton": "cross_entropy"}
    names |= {"triton, as called": "as called", "compile": "torch.compile", "torch": "PyTorch"}
    plot_rates(ax, shown, names, "Cross-entropy and its gradient, 8192 tokens, bf16", "vocabulary")
else:
    print("Without a GPU there is no plot.")

# %%
# For *V* = 131 072 our function reaches :measured:`largest` GB/s on the GPU and :measured:`called`
# GB/s as called. PyTorch reaches :measured:`torch` GB/s, and its backward pass makes two more
# tensors as large as the logits. ``torch.compile`` makes one kernel for each pass. It takes at
# least :measured:`compiled` times as long as our function.
#
# **The ceiling** is one read and one write. Our function reaches :measured:`share` % of it at
# *V* = 32 768 and :measured:`share_large` % at *V* = 131 072. The rest is lost to second reads that
# come from memory, and to programs that compute while they load nothing.
#
# **The CPU** is busy for :measured:`cpu` µs with one call that prepares the gradient, and for
# :measured:`cpu_torch` µs with PyTorch's. Small batches wait for it, large ones hide it.
#
# Exercises
# ---------
#
# 1. **Label smoothing.** Give the target the probability :math:`1 - \varepsilon` and spread
#    :math:`\varepsilon` over all words. Which sum do you need in addition? Return the mean loss and
#    the gradient from ``smoothed_cross_entropy(logits, targets, smoothing)``.
#    :doc:`Solution <solutions/10-label-smoothing>`.
# 2. **A penalty on the log-sum-exp.** Add :math:`\alpha \, (\log \sum_j e^{x_j})^2` to the loss,
#    which keeps logits from drifting. Return the loss and the gradient from
#    ``cross_entropy_with_z_loss(logits, targets, alpha)``. :doc:`Solution <solutions/10-z-loss>`.
# 3. **A maximum for each place.** In each iteration all threads wait for the maximum of a block.
#    Let each place of the block keep a maximum and a sum of its own, and reduce them once after the
#    loop. ``losses_of(logits, targets, own)`` returns the loss of each row in the new way, or with
#    ``own=False`` in the old one. :doc:`Solution <solutions/10-own-maxima>`.
#
# References
# ----------
#
# * Maxim Milakov and Natalia Gimelshein: *Online normalizer calculation for softmax*, 2018,
#   https://arxiv.org/abs/1805.02867
# * Pin-Lun Hsu and others: *Liger kernel: efficient Triton kernels for LLM training*, 2024,
#   https://arxiv.org/abs/2410.10989: the gradient in the forward pass.
