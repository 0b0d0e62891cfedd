"""Layer norm and RMS norm along the last dimension, with gradients.

The kernels are in ``norm_kernels.py``. The gradients of weight and bias are sums over rows: each of
few programs adds up its rows in order, and a second kernel adds up their sums. So ten calls give
the same bits.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from gallery_kernels.checks import check_number, check_shape, check_tensors
from gallery_kernels.launch import Launch, Plans, layout_of, limits_of
from gallery_kernels.norm_kernels import (
    backward_kernel,
    columns_kernel,
    forward_kernel,
    long_forward_kernel,
    means_kernel,
    sums_kernel,
)
from gallery_kernels.operations import (
    Operation,
    is_needed,
    second_derivative_error,
    without_second_derivative,
)

LONGEST_ROW_IN_REGISTERS = 16_384


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias`` along the last dimension.

    Args:
        x: ``[…, N]`` with any strides: float16, bfloat16 or float32.
        weight: ``[N]``, of any of these dtypes.
        bias: ``[N]``, of any of these dtypes.
        eps: Finite and not negative.

    Returns:
        A contiguous tensor with the shape and dtype of *x*. It is computed in fp32, and *x*,
        *weight* and *bias* get gradients of their dtypes.

    Raises:
        TypeError: An argument is no tensor, has another dtype, or *eps* is no number.
        ValueError: A shape, a layout or a device does not fit, or *eps* is out of range.
        RuntimeError: The backward pass was called with ``create_graph=True``.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Ba, Kiros and Hinton, *Layer normalization*, 2016, https://arxiv.org/abs/1607.06450;
    lesson 05-layer-norm.
    """
    if is_needed(x, weight, bias):
        check_norm(eps, x, weight, bias)
        return LAYER_NORM(x, weight, bias, float(eps))[0]
    return _normalize(eps, x, weight, bias)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return ``x / sqrt(mean of squares + eps) * weight`` along the last dimension.

    Arguments, result and errors are those of :func:`layer_norm`, without a bias.

    Source: Zhang and Sennrich, *Root mean square layer normalization*, 2019,
    https://arxiv.org/abs/1910.07467; lesson 05-layer-norm.
    """
    if is_needed(x, weight):
        check_norm(eps, x, weight)
        return RMS_NORM(x, weight, float(eps))[0]
    return _normalize(eps, x, weight)


def check_norm(eps: Any, x: Any, *parameters_of_norm: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if a norm cannot be computed."""
    parameters = dict(zip(("weight", "bias"), parameters_of_norm, strict=False))
    check_tensors({"x": x, **parameters})
    if x.ndim == 0:
        raise ValueError("x must have a dimension to normalize, but is a single number")
    for name, parameter in parameters.items():
        check_shape(name, parameter, x.shape[-1:])
    check_number("eps", eps)
    if not 0 <= eps <= sys.float_info.max:  # this also refuses NaN
        raise ValueError(f"eps must be finite and not negative, but is {eps}")


# An ordinary call


@dataclass
class NormPlan:
    """What calls of a norm with tensors of one layout have in common."""

    function: str
    launch: Launch
    statistics: int  # numbers that are kept of each row
    backward: Plans  # of BackwardPlan, by the layouts that arrive in the backward pass


@dataclass
class BackwardPlan:
    """The launches of a backward pass: the last adds up the partial sums of the one before."""

    means: Launch | None  # for long rows: the two means of each row
    gradients: Launch
    sums: Launch
    sums_shape: tuple[int, int]  # of the partial sums: programs, columns


PLANS = Plans()


def _normalize(eps: float, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the norm of x, weight and, for layer norm, bias, which have memory."""
    plan = _plan_of_call(tensors, eps)
    if plan is None:
        check_norm(eps, *tensors)
        if tensors[0].numel() == 0:
            return _norm_of_nothing(*tensors)
        tensors = tuple(readable(t) for t in tensors)
        plan = _keep_plan(tensors, eps)
    if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
        return Norm.apply(plan, *tensors)
    return forward(plan, *tensors)[0]


def _plan_of_call(tensors: Sequence[torch.Tensor], eps: float) -> NormPlan | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        if any([t.is_neg() for t in tensors]):  # the sign is still to be changed
            return None
        return PLANS.get((layout_of(*tensors), type(eps), eps))
    except (
        AttributeError,
        RuntimeError,
        TypeError,
    ):  # no tensor, a sparse one, an eps without hash
        return None


def _keep_plan(tensors: Sequence[torch.Tensor], eps: float) -> NormPlan:
    """Return the plan for readable tensors, a new one if none is kept."""
    key = (layout_of(*tensors), type(eps), eps)
    return PLANS.get(key) or PLANS.keep(key, plan_forward(tensors, float(eps)))


def _norm_of_nothing(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a tensor without elements, which gives the parameters gradients of zero."""
    y = x * weight.to(x.dtype)
    return y if bias is None else y + bias.to(x.dtype)


class Norm(torch.autograd.Function):
    """Layer norm of x, weight and bias, or RMS norm of x and weight."""

    @staticmethod
    def forward(ctx: Any, plan: NormPlan, x: torch.Tensor, weight: torch.Tensor, *bias: Any) -> Any:
        """Normalize each row, and keep the statistics."""
        y, stats = forward(plan, x, weight, *bias)
        ctx.save_for_backward(x, weight, stats)
        ctx.plan = plan
        ctx.bias_dtype = bias[0].dtype if bias else None
        return y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Return None, and the gradients of x, the weight and, for layer norm, the bias."""
        if torch.is_grad_enabled():  # create_graph=True
            raise second_derivative_error(ctx.plan.function)
        x, weight, stats = ctx.saved_tensors
        dx, dw, db = backward(ctx.plan, g, x, weight, stats, ctx.bias_dtype)
        if db is None:
            return None, dx, dw
        return None, dx, dw, db


def forward(
    plan: NormPlan, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm and the statistics of readable tensors."""
    y = torch.empty_like(x)
    shape = (plan.statistics, x.shape[:-1].numel())
    stats = torch.empty(shape, dtype=torch.float32, device=x.device)
    plan.launch(x, weight, bias, y, stats)
    return y, stats


def backward(
    plan: NormPlan,
    g: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stats: torch.Tensor,
    bias_dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the gradients of x, the weight and, for layer norm, the bias."""
    g = g.resolve_neg()
    backward_plan = plan.backward.get(_layout_in_backward(g, x, weight))
    if backward_plan is None:
        # A gradient may be an expanded number, and a hook may keep x with other strides.
        g, x, weight = readable(g), readable(x), readable(weight)
        key = _layout_in_backward(g, x, weight)
        backward_plan = plan.backward.get(key)
    if backward_plan is None:
        backward_plan = plan.backward.keep(key, plan_backward(g, x, weight, bias_dtype is not None))
    dx = torch.empty_like(x)
    sums = stats.new_empty(backward_plan.sums_shape)
    if backward_plan.means is None:
        backward_plan.gradients(x, g, weight, stats, dx, sums)
    else:
        means = torch.empty_like(stats)
        backward_plan.means(x, g, weight, stats, means)
        backward_plan.gradients(x, g, weight, stats, means, dx, sums)
    dw = torch.empty_like(weight)
    if bias_dtype is None:
        backward_plan.sums(sums, dw, dw)  # the kernel does not use the last pointer
        return dx, dw, None
    db = torch.empty_like(weight, dtype=bias_dtype)
    backward_plan.sums(sums, dw, db)
    return dx, dw, db


def _layout_in_backward(g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple:
    """Return what may differ between backward passes of one plan."""
    return (
        *(g.stride(), x.stride(), weight.stride()),
        *(g.data_ptr() % 16, x.data_ptr() % 16, weight.data_ptr() % 16),
    )


def readable(t: torch.Tensor) -> torch.Tensor:
    """Return *t*, or a contiguous copy unless it is a matrix whose rows are contiguous."""
    t = t.resolve_neg()
    if t.ndim == 2 and t.stride(1) == 1 and t.stride(0) >= t.shape[1]:
        return t
    return t.contiguous()


# Plans


def plan_forward(tensors: Sequence[torch.Tensor], eps: float) -> NormPlan:
    """Return the plan for readable x, weight and, for layer norm, bias."""
    x, has_bias = tensors[0], len(tensors) == 3
    rows, columns = x.shape[:-1].numel(), x.shape[-1]
    numbers = (rows, columns, row_stride(x), eps)
    if columns > LONGEST_ROW_IN_REGISTERS:
        constants = {"CENTER": has_bias, "BLOCK": 4096, "num_warps": 8}
        launch = Launch(long_forward_kernel, (rows,), numbers, constants)
    else:
        constants = tile_of_forward(columns)
        grid = (triton.cdiv(rows, constants["ROWS"]),)
        launch = Launch(forward_kernel, grid, numbers, {"CENTER": has_bias, **constants})
    function = "layer_norm" if has_bias else "rms_norm"
    return NormPlan(function, launch, statistics=2 if has_bias else 1, backward=Plans())


def tile_of_forward(columns: int) -> dict[str, int]:
    """Return the rows and pieces of a program of the forward pass, and its warps."""
    block = max(128, triton.next_power_of_2(columns))
    if block <= 2048:
        piece = block // 2
    elif columns <= 0.875 * block:  # eighths leave less padding
        piece = max(1024, block // 8)
    else:
        piece = max(1024, block // 4)
    rows = max(1, 2048 // block)
    pieces = triton.cdiv(columns, piece)
    few_warps = rows > 1 or (piece, pieces) in ((2048, 5), (2048, 7), (4096, 4))
    elements_of_a_warp = 512 if few_warps else 256  # with few warps, more programs fit
    warps = max(1, rows * piece // elements_of_a_warp)
    return {"ROWS": rows, "PIECE": piece, "PIECES": pieces, "num_warps": warps}


def plan_backward(
    g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, has_bias: bool
) -> BackwardPlan:
    """Return the launches of the backward pass of readable tensors."""
    early = limits_of(x.device).starts_early
    means = None
    if x.shape[-1] > LONGEST_ROW_IN_REGISTERS:
        early = False
        means, gradients, programs = launches_for_long_rows(g, x, has_bias)
    else:
        gradients, programs = launch_for_rows(g, x, weight, has_bias, early)
    sums = launch_of_sums(programs, x, has_bias, early)
    sums_columns = 2 * x.shape[-1] if has_bias else x.shape[-1]
    return BackwardPlan(means, gradients, sums, sums_shape=(programs, sums_columns))


def launch_for_rows(
    g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, has_bias: bool, early: bool
) -> tuple[Launch, int]:
    """Return the launch for rows in registers, and how many rows of partial sums it stores."""
    rows, columns = x.shape[:-1].numel(), x.shape[-1]
    limits = limits_of(x.device)
    # each: programs of a multiprocessor; weights: how often a program loads a weight for a row.
    tile_rows, piece, warps, each, weights, stages = 1, 2048, 8, 1, 0, 4
    if columns <= 2048:
        piece = max(128, triton.next_power_of_2(columns))
        tile_rows, warps, each, stages = max(2, 2048 // piece), 4, 2, 3
    elif columns <= 5120:
        piece, warps, each, stages = 1024, 4, 2, 4 if columns <= 3072 else 3
    elif 8192 < columns <= 14_336:
        weights, stages = 2 if has_bias and columns > 10_240 else 1, 3
    pieces = triton.cdiv(columns, piece)
    share = 2 if columns > 14_336 else 1  # programs that share a row
    bytes_of_an_element = 2 * tile_rows * x.itemsize + weights * weight.itemsize
    bytes_of_a_stage = each * piece * pieces * bytes_of_an_element
    stages_that_fit = 1 + (limits.shared_bytes - 2048) // bytes_of_a_stage
    stages = max(1, min(stages, stages_that_fit))
    tiles = triton.cdiv(rows, tile_rows)
    iterations = triton.cdiv(tiles, max(1, limits.multiprocessors * each // share))
    programs = triton.cdiv(tiles, iterations)  # no more than so many iterations need
    constants = {
        "CENTER": has_bias,
        "ROWS": tile_rows,
        "PIECE": piece,
        "PIECES": pieces,
        "OWN": triton.cdiv(pieces, share),
        "WEIGHTS": weights,
        "STAGES": stages,
        "EARLY": early,
        "num_warps": warps,
    }
    numbers = (row_stride(x), row_stride(g), rows, columns)
    return Launch(backward_kernel, (programs * share,), numbers, constants), programs


def launches_for_long_rows(
    g: torch.Tensor, x: torch.Tensor, has_bias: bool
) -> tuple[Launch, Launch, int]:
    """Return both launches for long rows, and how many rows of partial sums they store."""
    rows, columns = x.shape[:-1].numel(), x.shape[-1]
    programs = min(rows, limits_of(x.device).multiprocessors)
    numbers = (row_stride(x), row_stride(g), rows, columns)
    block = {"CENTER": has_bias, "BLOCK": 4096, "num_warps": 8}
    means = Launch(means_kernel, (rows,), numbers, block)
    block = {"CENTER": has_bias, "BLOCK": 1024, "num_warps": 4}
    grid = (triton.cdiv(columns, 1024), programs)
    return means, Launch(columns_kernel, grid, numbers, block), programs


def launch_of_sums(programs: int, x: torch.Tensor, has_bias: bool, early: bool) -> Launch:
    """Return the launch that adds up the partial sums of so many programs."""
    columns = x.shape[-1]
    sums_columns = 2 * columns if has_bias else columns
    wanted = triton.cdiv(sums_columns, 8 * limits_of(x.device).multiprocessors)
    wide = min(1024, max(16, triton.next_power_of_2(wanted)))
    constants = {
        "CENTER": has_bias,
        "ROWS": 2048 // wide,
        "COLUMNS": wide,
        "EARLY": early,
        "num_warps": 8,
    }
    if early:
        constants["launch_pdl"] = True
    return Launch(sums_kernel, (triton.cdiv(sums_columns, wide),), (programs, columns), constants)


def row_stride(x: torch.Tensor) -> int:
    """Return the elements from one row of a readable tensor to the next."""
    return x.stride(0) if x.ndim == 2 else x.shape[-1]


# Operations, for torch.compile, torch.func and tensors without memory


def _compute(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm and the statistics of any tensors."""
    if x.numel() == 0:
        return x.new_empty(x.shape), _empty_statistics(x, bias is not None)
    tensors = [readable(x), readable(weight)]
    if bias is not None:
        tensors.append(readable(bias))
    return forward(_keep_plan(tensors, eps), *tensors)


def _compute_backward(
    g: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stats: torch.Tensor,
    bias_dtype: torch.dtype | None,
) -> list[torch.Tensor]:
    """Return the gradients of x, the weight and, for layer norm, the bias."""
    if x.numel() == 0:
        return [t.zero_() for t in _describe_backward(g, x, weight, stats, bias_dtype)]
    x, weight = readable(x), readable(weight)
    tensors = [x, weight]
    if bias_dtype is not None:
        tensors.append(torch.empty_like(weight, dtype=bias_dtype))
    gradients = backward(_keep_plan(tensors, 0.0), g, x, weight, stats, bias_dtype)
    return [gradient for gradient in gradients if gradient is not None]


def _empty_statistics(x: torch.Tensor, has_bias: bool) -> torch.Tensor:
    count = 2 if has_bias else 1
    rows = math.prod(x.shape[:-1])  # numel() would make a number of symbols
    return x.new_empty((count, rows), dtype=torch.float32)


def _describe(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), _empty_statistics(x, bias is not None)


def _describe_backward(
    g: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stats: torch.Tensor,
    bias_dtype: torch.dtype | None,
) -> list[torch.Tensor]:
    gradients = [x.new_empty(x.shape), weight.new_empty(weight.shape)]
    if bias_dtype is not None:
        gradients.append(weight.new_empty(weight.shape, dtype=bias_dtype))
    return gradients


BACKWARD_ARGUMENTS = "(Tensor g, Tensor x, Tensor weight, Tensor stats, ScalarType? bias_dtype)"
LAYER_NORM_BACKWARD = Operation(
    "layer_norm_backward",
    f"{BACKWARD_ARGUMENTS} -> Tensor[]",
    compute=_compute_backward,
    describe=_describe_backward,
    **without_second_derivative("layer_norm"),
)
RMS_NORM_BACKWARD = Operation(
    "rms_norm_backward",
    f"{BACKWARD_ARGUMENTS} -> Tensor[]",
    compute=_compute_backward,
    describe=_describe_backward,
    **without_second_derivative("rms_norm"),
)


def _keep_layer_norm(ctx: Any, inputs: tuple, output: tuple) -> None:
    x, weight, bias, _ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.bias_dtype = bias.dtype


def _differentiate_layer_norm(ctx: Any, g: torch.Tensor, _: Any) -> tuple:
    x, weight, stats = ctx.saved_tensors
    return *LAYER_NORM_BACKWARD(g, x, weight, stats, ctx.bias_dtype), None


def _keep_rms_norm(ctx: Any, inputs: tuple, output: tuple) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _differentiate_rms_norm(ctx: Any, g: torch.Tensor, _: Any) -> tuple:
    return *RMS_NORM_BACKWARD(g, *ctx.saved_tensors, None), None


LAYER_NORM = Operation(
    "layer_norm",
    "(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor)",
    compute=_compute,
    describe=_describe,
    keep=_keep_layer_norm,
    differentiate=_differentiate_layer_norm,
)
RMS_NORM = Operation(
    "rms_norm",
    "(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
    compute=lambda x, weight, eps: _compute(x, weight, None, eps),
    describe=lambda x, weight, eps: _describe(x, weight, None, eps),
    keep=_keep_rms_norm,
    differentiate=_differentiate_rms_norm,
)
