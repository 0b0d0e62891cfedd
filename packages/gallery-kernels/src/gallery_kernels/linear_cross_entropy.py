"""The last layer of a language model and its loss, without holding all logits.

A piece of the tokens is finished, with its share of both gradients, before the next piece uses the
same memory for its logits. The kernel is in ``loss_kernels.py``, the products are PyTorch's. Ten
calls give the same bits where PyTorch's products do.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton

from gallery_kernels.checks import check_same_dtype, check_tensors, check_whole_number
from gallery_kernels.launch import Launch, Plans, layout_of
from gallery_kernels.loss_kernels import count_kernel, overwriting_kernel
from gallery_kernels.losses import (
    ONE_PROGRAM,
    check_range,
    check_targets,
    scale_in_place,
    scaled,
    used_up_error,
)
from gallery_kernels.operations import (
    Operation,
    is_needed,
    may_need_gradient,
    second_derivative_error,
    without_second_derivative,
)

#: Not float16: the gradient of a logit is divided by the number of rows, which makes most of them
#: smaller than the smallest number of fp16, and the products need them before a loss is scaled.
DTYPES = (torch.bfloat16, torch.float32)

BYTES_OF_A_PIECE = 2**29  # of logits


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int = -100,
    piece: int | None = None,
) -> torch.Tensor:
    """Return the mean cross-entropy of ``x @ weight.T`` over the rows that count.

    Args:
        x: ``[M, K]``, bfloat16 or float32, with any strides: M tokens.
        weight: ``[V, K]``, of the same dtype, as in ``torch.nn.Linear``. Under autocast, tensors
            of two dtypes are cast to that of autocast, as ``torch.nn.Linear`` does.
        targets: ``[M]``, int64 or int32, from 0 to V - 1. On a GPU, an assertion stops the kernel
            at a wrong target.
        ignore_index: The target of rows that do not count. If no row counts, the loss is NaN.
        piece: Tokens whose logits are held at a time. If None, as many as make 512 MiB of logits.
            Between two pieces, the gradient of *weight* is rounded to its dtype.

    Returns:
        A float32 scalar. *x* and *weight* get gradients of their dtypes, where they need them.

    Raises:
        TypeError: An argument is no tensor, has another dtype, or a number is no int.
        ValueError: A shape, a layout or a device does not fit, *piece* is less than 1, or a target
            on the CPU is out of range.
        RuntimeError: The backward pass was called twice, or with ``create_graph=True``.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Wijmans and others, *Cut your losses in large-vocabulary language models*, 2024,
    https://arxiv.org/abs/2411.09009; Hsu and others, *Liger kernel*, 2024,
    https://arxiv.org/abs/2410.10989; lesson 10b-linear-cross-entropy.
    """
    x, weight = cast_by_autocast(x, weight)
    if is_needed(x, weight, targets):
        check_linear_cross_entropy(x, weight, targets, ignore_index, piece)
        for_x, for_weight = may_need_gradient(x), may_need_gradient(weight)
        operation = LINEAR_CROSS_ENTROPY
        return operation(x, weight, targets, ignore_index, piece, for_x, for_weight)[0]
    plan = _plan_of_call(x, weight, targets, ignore_index, piece)
    if plan is None:
        check_linear_cross_entropy(x, weight, targets, ignore_index, piece)
        x, weight = x.resolve_neg(), weight.resolve_neg()
        targets = targets.resolve_neg().contiguous()
        plan = _keep_plan(x, weight, targets, ignore_index, piece)
    check_range(targets, weight.shape[0], ignore_index)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return LinearCrossEntropy.apply(x, weight, targets, plan)
    return loss_and_gradients(plan, x, weight, targets, for_x=False, for_weight=False)[0]


def cast_by_autocast(x: Any, weight: Any) -> tuple[Any, Any]:
    """Return tensors of two dtypes in the dtype of autocast, where it is enabled."""
    if not isinstance(x, torch.Tensor) or not isinstance(weight, torch.Tensor):
        return x, weight
    if x.dtype == weight.dtype or not torch.is_autocast_enabled(x.device.type):
        return x, weight
    dtype = torch.get_autocast_dtype(x.device.type)
    return x.to(dtype), weight.to(dtype)


def check_linear_cross_entropy(
    x: Any, weight: Any, targets: Any, ignore_index: Any, piece: Any
) -> None:
    """Raise TypeError or ValueError, naming the argument, if the loss cannot be computed."""
    tensors = {"x": x, "weight": weight}
    check_tensors(tensors, DTYPES)
    check_same_dtype(tensors)
    for name, matrix in tensors.items():
        if matrix.ndim != 2:
            raise ValueError(f"{name} must be a matrix, but has shape {tuple(matrix.shape)}")
    if weight.shape[1] != x.shape[1]:
        raise ValueError(
            f"weight must have as many columns as x, {x.shape[1]}, but has shape "
            f"{tuple(weight.shape)}"
        )
    if weight.shape[0] == 0:
        raise ValueError("weight must have at least one row, but has none")
    check_targets(targets, "x", x, ignore_index)
    if piece is None:
        return
    check_whole_number("piece", piece)
    if piece < 1:
        raise ValueError(f"piece must be 1 or more, but is {piece}")


# An ordinary call


@dataclass
class LayerPlan:
    """What calls with tensors of one layout have in common."""

    piece: int  # rows
    stride: int  # elements from one row of logits to the next
    count: Launch
    rows: dict[tuple[int, bool], Launch]  # by the number of rows, and whether it overwrites them


PLANS = Plans()


def _plan_of_call(
    x: Any, weight: Any, targets: Any, ignore_index: Any, piece: Any
) -> LayerPlan | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        if x.is_neg() or weight.is_neg() or targets.is_neg():  # the sign is still to be changed
            return None
        return PLANS.get(_key(x, weight, targets, ignore_index, piece))
    except (AttributeError, RuntimeError, TypeError):  # no tensor, a sparse one, no int
        return None


def _key(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int,
    piece: int | None,
) -> tuple:
    numbers = (type(ignore_index), ignore_index, type(piece), piece)
    return (layout_of(x, weight, targets), *numbers)


def _keep_plan(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int,
    piece: int | None,
) -> LayerPlan:
    """Return the plan for contiguous targets, a new one if none is kept."""
    key = _key(x, weight, targets, ignore_index, piece)
    plan = PLANS.get(key)
    if plan is None:
        plan = PLANS.keep(key, plan_layer(x, weight, ignore_index, piece))
    return plan


class LinearCrossEntropy(torch.autograd.Function):
    """The loss of a last layer, with gradients that exist before they are asked for."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, plan: LayerPlan
    ) -> torch.Tensor:
        """Compute the loss and the gradients that are needed."""
        for_x, for_weight = ctx.needs_input_grad[:2]
        loss, dx, dw = loss_and_gradients(plan, x, weight, targets, for_x, for_weight)
        ctx.gradients = (dx, dw)
        return loss

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Return the gradients, multiplied by the incoming one unless that is 1."""
        if torch.is_grad_enabled():  # create_graph=True
            raise second_derivative_error("linear_cross_entropy")
        if ctx.gradients is None:
            raise used_up_error("linear_cross_entropy")
        dx, dw = ctx.gradients
        ctx.gradients = None
        if dx is not None:
            scale_in_place(dx, g)
        if dw is not None:
            scale_in_place(dw, g)
        return dx, dw, None, None


def loss_and_gradients(
    plan: LayerPlan,
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    for_x: bool,
    for_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the loss, and the gradients of *x* and of *weight* if they are wanted."""
    (tokens, _), vocabulary = x.shape, weight.shape[0]
    device = x.device
    dx = torch.empty(x.shape, dtype=x.dtype, device=device) if for_x else None
    dw = torch.empty(weight.shape, dtype=x.dtype, device=device) if for_weight else None
    if dw is not None and tokens == 0:
        dw.zero_()
    losses = torch.empty(tokens, dtype=torch.float32, device=device)
    share = torch.empty(1, dtype=torch.float32, device=device)
    memory = torch.empty(min(plan.piece, tokens), plan.stride, dtype=x.dtype, device=device)
    plan.count(targets, share)
    for start in range(0, tokens, plan.piece):
        rows = slice(start, min(start + plan.piece, tokens))
        count = rows.stop - start
        logits = torch.mm(x[rows], weight.T, out=memory[:count, :vocabulary])
        launch = plan.rows[count, for_x or for_weight]
        launch(logits, targets[rows], losses[rows], share)
        if dx is not None:
            torch.mm(logits, weight, out=dx[rows])  # logits hold their gradient now
        if dw is not None:
            dw.addmm_(logits.T, x[rows], beta=0 if start == 0 else 1)  # 0: overwrite
    return (losses.sum() * share).squeeze(), dx, dw


# Plans


def plan_layer(
    x: torch.Tensor, weight: torch.Tensor, ignore_index: int, piece: int | None
) -> LayerPlan:
    """Return the launches for a layer."""
    tokens, vocabulary = x.shape[0], weight.shape[0]
    if piece is None:
        tokens_of_a_piece = BYTES_OF_A_PIECE // (vocabulary * x.element_size())
        piece = max(128, tokens_of_a_piece // 128 * 128)
    stride = triton.cdiv(vocabulary, 16) * 16  # so each row begins at a multiple of 16 bytes
    tile = {"BLOCK": 8192, "num_warps": 8} if vocabulary > 4096 else {"BLOCK": 1024, "num_warps": 4}
    numbers = (stride, vocabulary, ignore_index)
    launches = {}
    for count in {min(piece, tokens), tokens % piece}:
        for write in (False, True):
            constants = {"WRITE": write, **tile}
            launches[count, write] = Launch(overwriting_kernel, (count,), numbers, constants)
    count_targets = Launch(count_kernel, (1,), (tokens, vocabulary, ignore_index), ONE_PROGRAM)
    return LayerPlan(piece, stride, count_targets, launches)


# Operations, for torch.compile, torch.func and tensors without memory


def _compute(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int,
    piece: int | None,
    for_x: bool,
    for_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss and both gradients; one that is not wanted has no elements."""
    check_range(targets, weight.shape[0], ignore_index)
    x, weight = x.resolve_neg(), weight.resolve_neg()
    targets = targets.resolve_neg().contiguous()
    plan = _keep_plan(x, weight, targets, ignore_index, piece)
    loss, dx, dw = loss_and_gradients(plan, x, weight, targets, for_x, for_weight)
    if dx is None:
        dx = x.new_empty(0)
    if dw is None:
        dw = weight.new_empty(0)
    return loss, dx, dw


def _describe(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int,
    piece: int | None,
    for_x: bool,
    for_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    loss = x.new_empty((), dtype=torch.float32)
    dx = x.new_empty(x.shape if for_x else 0)
    dw = weight.new_empty(weight.shape if for_weight else 0)
    return loss, dx, dw


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.for_x, ctx.for_weight = inputs[5:]
    ctx.save_for_backward(*output[1:])
    ctx.set_materialize_grads(False)  # or zeros as large as both gradients would be made


def _differentiate(ctx: Any, g: torch.Tensor | None, *others: torch.Tensor | None) -> tuple:
    if any(other is not None for other in others):  # a gradient of a gradient
        raise second_derivative_error("linear_cross_entropy")
    nothing = (None, None, None, None, None)
    if g is None:
        return None, None, *nothing
    dx, dw = LINEAR_CROSS_ENTROPY_BACKWARD(g, *ctx.saved_tensors)
    return dx if ctx.for_x else None, dw if ctx.for_weight else None, *nothing


LINEAR_CROSS_ENTROPY_BACKWARD = Operation(
    "linear_cross_entropy_backward",
    "(Tensor g, Tensor dx, Tensor dw) -> (Tensor, Tensor)",
    compute=lambda g, dx, dw: (scaled(dx, g), scaled(dw, g)),
    describe=lambda g, dx, dw: (torch.empty_like(dx), torch.empty_like(dw)),
    **without_second_derivative("linear_cross_entropy"),
)
LINEAR_CROSS_ENTROPY = Operation(
    "linear_cross_entropy",
    "(Tensor x, Tensor weight, Tensor targets, SymInt ignore_index, SymInt? piece, bool for_x, "
    "bool for_weight) -> (Tensor, Tensor, Tensor)",
    compute=_compute,
    describe=_describe,
    keep=_keep,
    differentiate=_differentiate,
)
