"""What both lessons on the loss share: the mean over the rows that count, gradients, checks."""

from functools import partial

import torch
import triton
import triton.language as tl
from shared.launch import on_device_of
from tabulate import tabulate
from torch.nn import functional


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
FEW = tl.constexpr(256)  # so many rows are counted by every program, without a launch for it


@triton.jit
def mean_of_last(loss_ptr, mean_ptr, M, BLOCK: tl.constexpr):
    """In the last of M programs, write the mean; until then its place counts them, from 0."""
    tl.debug_barrier()  # after this, all losses of this program are stored
    if tl.atomic_add(mean_ptr, 1.0) == M - 1:
        mean_kernel(loss_ptr, mean_ptr, M, BLOCK)


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


def scaled(gradient, factor):
    """Multiply *gradient* by a number on the GPU, without waiting for it; return it."""
    if n := gradient.numel():
        with on_device_of(gradient):
            grid = (min(1024, triton.cdiv(n, 4096)),)
            scale_kernel[grid](gradient, factor.resolve_neg(), n, BLOCK=4096, num_warps=8)
    return gradient


def handed_over(name, gradients):
    """Return the *gradients* of the loss *name*, or raise RuntimeError where there are none."""
    if torch.is_grad_enabled():  # in a backward pass: with create_graph=True
        raise RuntimeError(f"{name}: there is no second derivative; leave out create_graph=True")
    if gradients is None:
        raise RuntimeError(
            f"{name}: backward was called twice, but the gradients exist only once; add the losses "
            f"up first, or compute the loss again"
        )
    return gradients


def differentiable(name):
    """Return a decorator: the operation *name* for ``torch.compile``, with its gradient.

    The function takes logits, targets and ``ignore_index``. It returns the loss, the gradient of
    the logits, and a number that the gradient is still to be multiplied by.
    """
    schema = "(Tensor logits, Tensor targets, int ignore_index) -> (Tensor, Tensor, Tensor)"

    def shapes(logits, targets, ignore_index):
        number = logits.new_empty((), dtype=torch.float32)
        return number, logits.new_empty(logits.shape), torch.empty_like(number)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(output[1], output[2])

    def backward(ctx, grad, *_):
        gradient, share = ctx.saved_tensors
        return (grad * share).to(gradient.dtype) * gradient, None, None

    def register(function):
        operation = torch.library.custom_op(name, function, mutates_args=(), schema=schema)
        operation.register_fake(shapes)
        operation.register_autograd(backward, setup_context=keep)
        return operation

    return register


def check_tensor(name, x, dtypes, device):
    """Raise TypeError or ValueError where *x* is no tensor of one of *dtypes* on such a device."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in dtypes:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
    if x.layout != torch.strided:
        raise ValueError(f"{name} must be strided, but its layout is {x.layout}")
    if x.device.type != device.type or (device.index not in (None, x.device.index)):
        raise ValueError(f"{name} must be on {device}, but is on {x.device}")


def check_targets(targets, M, V, ignore_index, device):
    """Raise TypeError or ValueError where *targets* are not M integers; look at them on a CPU."""
    check_tensor("targets", targets, (torch.int64, torch.int32), device)
    if targets.shape != (M,) or not targets.is_contiguous():
        raise ValueError(
            f"targets must be contiguous and have one element for each row, shape {(M,)}, but "
            f"has shape {tuple(targets.shape)} and strides {targets.stride()}"
        )
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise TypeError(f"ignore_index must be an int, but is a {type(ignore_index).__name__}")
    kind = targets.dtype
    if not torch.iinfo(kind).min <= ignore_index <= torch.iinfo(kind).max:
        raise ValueError(f"ignore_index must be of {kind}, as targets are, but is {ignore_index}")
    if type(targets) is torch.Tensor and device.type == "cpu":  # a GPU would have to be waited for
        wrong = ((targets < 0) | (targets >= V)) & (targets != ignore_index)
        if not torch.compiler.is_compiling() and wrong.any():
            row = int(wrong.nonzero()[0, 0])
            raise ValueError(
                f"targets must be from 0 to {V - 1}, or {ignore_index} for rows that do not count, "
                f"but targets[{row}] is {int(targets[row])}"
            )


def check_logits(logits, targets, ignore_index, inplace, dtypes, device):
    """Raise TypeError or ValueError where the arguments of ``cross_entropy`` are wrong."""
    check_tensor("logits", logits, dtypes, device)
    shape, strides = tuple(logits.shape), logits.stride()
    if len(shape) != 2 or shape[1] == 0:
        raise ValueError(f"logits must be a matrix with at least one column, but has shape {shape}")
    if (shape[1] > 1 and strides[1] != 1) or (inplace and not logits.is_contiguous()):
        what = "with inplace=True, logits" if strides[1] == 1 else "the rows of logits"
        raise ValueError(f"{what} must be contiguous, but the strides are {strides}; pass "
                         f"logits.contiguous()")  # fmt: skip
    check_targets(targets, *shape, ignore_index, logits.device)
    if inplace and logits.requires_grad and logits.is_leaf:
        raise ValueError("with inplace=True, logits must be the result of a layer: these have no "
                         "history, so their gradient would overwrite their only copy")  # fmt: skip


def compare(function, logits, targets, rtol=1e-5):
    """Raise AssertionError where loss or gradient differ from PyTorch's in float64."""
    exact = logits.detach().double().requires_grad_()
    expected = functional.cross_entropy(exact, targets)
    (wanted,) = torch.autograd.grad(expected, exact)
    loss, gradient = function(logits, targets)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=rtol, atol=1e-6)
    largest = 1 / max(1, int((targets != -100).sum()))  # 1 / n is subtracted at the target
    torch.testing.assert_close(gradient.double(), wanted, rtol=rtol, atol=rtol * largest)


def by_autograd(function, logits, targets):
    """Return the loss and the gradient of the logits, from the second of two calls."""
    logits = logits.detach().requires_grad_()
    for _ in range(2):
        loss = function(logits, targets)
    return loss.detach(), *torch.autograd.grad(loss, logits)


def draw(M, V, dtype=torch.float32):
    """Return random logits and targets, a quarter of which do not count."""
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    targets = torch.randint(0, V, (M,), device=device)
    targets[1::4] = -100
    return (3 * torch.randn(M, V, device=device)).to(dtype), targets


def compare_views(function):
    """Compare with PyTorch on views, where no row counts or there is none, and in place."""
    wide, targets = draw(40, 300)
    targets = targets.clamp_max(63)
    for view in (wide[:, 10:91], wide[:, :64], wide[::3, :272], wide[:1].expand(5, -1)):
        compare(partial(by_autograd, function), view, targets[: len(view)])
    loss, gradient = by_autograd(function, wide, torch.full_like(targets, -100))
    assert loss.isnan() and not gradient.any()
    assert function(wide[:0], targets[:0]).isnan()
    expected = 3.5 * by_autograd(function, wide, targets)[1]
    for inplace in (False, True):
        x = wide.clone().requires_grad_()
        (3.5 * function(x * 1, targets, inplace=inplace)).backward()
        torch.testing.assert_close(x.grad, expected)


def resident_programs(compiled, warps, device):
    """Return how many programs of a compiled kernel the GPU can run at the same time."""
    gpu = torch.cuda.get_device_properties(device)
    of_a_warp = (compiled.n_regs + 7) // 8 * 8 * gpu.warp_size  # registers come in groups of 8
    by_registers = gpu.regs_per_multiprocessor // (of_a_warp * warps)
    by_threads = gpu.max_threads_per_multi_processor // (gpu.warp_size * warps)
    return gpu.multi_processor_count * min(by_registers, by_threads)


def print_resident(resident, cache):
    """Print how many MB the rows of *resident* programs have; return rows (name, unit, value)."""
    table = [(f"{V:,}", 2e-3 * V, 2e-6 * V * resident) for V in (32768, 50257, 131072)]
    print(f"{resident:,} resident programs, an L2 cache of {cache:.0f} MB; rows in bf16:")
    heads = ["V", "a row, KB", "all resident rows, MB"]
    print(tabulate(table, heads, floatfmt=",.0f", stralign="right"))
    values = [("resident programs", "1", resident), ("L2 cache", "MB", cache)]
    return values + [(f"rows of {V.replace(',', '')}", "MB", size) for V, _, size in table]
