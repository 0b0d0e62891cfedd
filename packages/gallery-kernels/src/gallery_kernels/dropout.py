"""Dropout by a seed: the backward pass computes the mask again, so no mask is kept."""

from typing import Any

import torch
import triton

from gallery_kernels.checks import check_number, check_tensors, check_whole_number
from gallery_kernels.dropout_kernels import seed_in_memory_kernel, seeded_dropout_kernel
from gallery_kernels.launch import Launch, Plans, layout_of
from gallery_kernels.operations import Operation, is_needed

BLOCK = 1024


def seeded_dropout(x: torch.Tensor, p: float, seed: int | torch.Tensor) -> torch.Tensor:
    """Return *x* with each element zero with probability *p*, and divided by ``1 - p`` otherwise.

    Only *seed*, *p* and its position in the flattened *x* decide whether an element is dropped.

    Args:
        x: Tensor of any shape and strides: float16, bfloat16 or float32.
        p: Probability from 0 to 1, rounded to a multiple of 2⁻³². With 1 the result is zero.
        seed: Integer from 0 to 2⁶⁴ - 1, or an int64 tensor of one element on the device of *x*,
            which is read when the kernel runs. It must not change before the backward pass. In a
            compiled function a number that changes is compiled anew once, and a tensor never.

    Returns:
        A contiguous tensor with the shape and dtype of *x*, with gradients of any order.

    Raises:
        TypeError: An argument has a type or a dtype that is not as described.
        ValueError: *p* or *seed* is out of range, or a tensor is sparse or on another device.
        RuntimeError: In the backward pass, if a seed in memory has changed.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Salmon and others, *Parallel random numbers: as easy as 1, 2, 3*, SC'11, 2011 (Philox);
    lesson 04-low-memory-dropout.
    """
    check_dropout(x, p, seed)
    if isinstance(seed, torch.Tensor):
        if is_needed(x, seed):
            return SEEDED_DROPOUT(x, float(p), 0, seed)
        seed = seed.resolve_neg()
    elif is_needed(x):
        return SEEDED_DROPOUT(x, float(p), as_signed(seed), None)
    if x.requires_grad and torch.is_grad_enabled():
        return Dropout.apply(x, p, seed)
    return drop(x, p, seed)


def check_dropout(x: Any, p: Any, seed: Any) -> None:
    """Raise TypeError or ValueError if dropout cannot be computed."""
    check_tensors({"x": x})
    check_number("p", p)
    if not 0 <= p <= 1:  # this also refuses NaN
        raise ValueError(f"p must be from 0 to 1, but is {p}")
    if isinstance(seed, torch.Tensor):
        usual = seed.dtype == torch.int64 and seed.numel() == 1 and seed.layout == torch.strided
        if not usual or seed.device != x.device:
            found = f"{seed.dtype}, {seed.layout}, of shape {tuple(seed.shape)} on {seed.device}"
            raise ValueError(f"seed, if a tensor, must be one int64 on {x.device}, but is {found}")
        return
    check_whole_number("seed", seed)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be from 0 to 2**64 - 1, but is {seed}")


def as_signed(seed: int) -> int:
    """Return the int64 that has the 64 bits of *seed*."""
    return seed - 2**64 if seed >= 2**63 else seed


# An ordinary call


PLANS = Plans()


class Dropout(torch.autograd.Function):
    """Dropout by a seed: a number, or a tensor of one element."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float, seed: int | torch.Tensor) -> torch.Tensor:
        """Drop elements of *x*."""
        ctx.p = p
        in_memory = isinstance(seed, torch.Tensor)
        ctx.number = None if in_memory else seed
        ctx.save_for_backward(seed if in_memory else None)
        return drop(x, p, seed)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Drop the same elements of the gradient."""
        (seed,) = ctx.saved_tensors  # raises if it was changed
        return Dropout.apply(g, ctx.p, ctx.number if seed is None else seed), None, None


def drop(x: torch.Tensor, p: float, seed: int | torch.Tensor) -> torch.Tensor:
    """Return dropout of a tensor that has memory."""
    if p == 1 or x.numel() == 0:
        return x.new_zeros(x.shape)
    x = x.resolve_neg().contiguous()
    in_memory = isinstance(seed, torch.Tensor)
    key = (layout_of(x), p, in_memory)
    plan = PLANS.get(key) or PLANS.keep(key, plan_for(x, p, in_memory))
    out = torch.empty_like(x)
    plan(x, out, seed)
    return out


def plan_for(x: torch.Tensor, p: float, in_memory: bool) -> Launch:
    """Return the launch for a contiguous tensor; its arguments are x, the result and the seed."""
    kernel = seed_in_memory_kernel if in_memory else seeded_dropout_kernel
    threshold = min(round(p * 2**32), 2**32 - 1)  # a random word is below it with probability p
    numbers = (x.numel(), threshold, 1 / (1 - p))
    return Launch(kernel, (triton.cdiv(x.numel(), BLOCK),), numbers, {"BLOCK": BLOCK})


# Operation, for torch.compile, torch.func and tensors without memory


def _compute(x: torch.Tensor, p: float, number: int, seed: torch.Tensor | None) -> torch.Tensor:
    return drop(x, p, number % 2**64 if seed is None else seed.resolve_neg())


def _describe(x: torch.Tensor, p: float, number: int, seed: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty(x.shape)


def _keep(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    _, ctx.p, ctx.number, seed = inputs
    ctx.save_for_backward(seed)


def _differentiate(ctx: Any, g: torch.Tensor) -> tuple:
    (seed,) = ctx.saved_tensors
    return SEEDED_DROPOUT(g, ctx.p, ctx.number, seed), None, None, None


SEEDED_DROPOUT = Operation(
    "seeded_dropout",
    "(Tensor x, float p, SymInt number, Tensor? seed) -> Tensor",
    compute=_compute,
    describe=_describe,
    keep=_keep,
    differentiate=_differentiate,
)
