"""Cross-entropy of logits. The forward pass also writes the gradient.

The loss is the last operation of a training step, and its incoming gradient is nearly always 1. So
the gradient is written while a row is still in the cache, and the backward pass hands it over. The
kernels are in ``loss_kernels.py``. Sums have a fixed order for one shape, so ten calls give the
same bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gallery_kernels.checks import check_tensors
from gallery_kernels.launch import Launch, Plans, layout_of
from gallery_kernels.loss_kernels import (
    count_kernel,
    cross_entropy_kernel,
    few_rows_kernel,
    mean_kernel,
)
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

#: Up to so many rows, one launch does all: each of its programs counts the rows that count.
FEW_ROWS = 256


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int = -100,
    inplace: bool = False,
) -> torch.Tensor:
    """Return the mean of ``logsumexp(row) - row[target]`` over the rows that count.

    Args:
        logits: ``[M, V]``: float16, bfloat16 or float32, with at least one column. Rows whose
            elements do not lie together are copied.
        targets: ``[M]``, int64 or int32: the column of each row, from 0 to V - 1. On a GPU, an
            assertion stops the kernel at a wrong target.
        ignore_index: The target of rows that do not count. If no row counts, the mean is NaN.
        inplace: Write the gradient over the logits, which are of no use afterwards. They must be
            contiguous and the result of a layer. Only ordinary calls can do so, and not
            ``torch.compile`` or ``torch.func``.

    Returns:
        A float32 scalar. It is computed in fp32, and *logits* get a gradient of their dtype, which
        needs as much memory as they do.

    Raises:
        TypeError: An argument is no tensor, has another dtype, or *ignore_index* is no int.
        ValueError: A shape, a layout or a device does not fit, a target on the CPU is out of
            range, or *inplace* is not possible.
        RuntimeError: The backward pass was called twice, or with ``create_graph=True``, or others
            changed logits that had been overwritten.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Milakov and Gimelshein, *Online normalizer calculation for softmax*, 2018,
    https://arxiv.org/abs/1805.02867; Hsu and others, *Liger kernel*, 2024,
    https://arxiv.org/abs/2410.10989; lesson 10-cross-entropy.
    """
    if is_needed(logits, targets):
        check_cross_entropy(logits, targets, ignore_index)
        if inplace:
            raise ValueError("inplace=True is only for ordinary calls: pass inplace=False here")
        return CROSS_ENTROPY(logits, targets, ignore_index, may_need_gradient(logits))[0]
    plan = _plan_of_call(logits, targets, ignore_index, inplace)
    if plan is None:
        check_cross_entropy(logits, targets, ignore_index)
        if inplace:
            check_overwritable(logits)
            inplace = not logits.is_neg()  # else the result is a copy, and logits stay
        logits, targets = readable(logits), targets.resolve_neg().contiguous()
        plan = _keep_plan(logits, targets, ignore_index, inplace)
    elif inplace:
        check_overwritable(logits)
    check_range(targets, logits.shape[1], ignore_index)
    if torch.is_grad_enabled() and logits.requires_grad:
        return CrossEntropy.apply(logits, targets, plan, inplace)
    return plan.without_gradient(logits, targets, logits)[0]


def check_cross_entropy(logits: Any, targets: Any, ignore_index: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if the loss cannot be computed."""
    check_tensors({"logits": logits})
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(
            f"logits must be a matrix with at least one column, but has shape {tuple(logits.shape)}"
        )
    check_targets(targets, "logits", logits, ignore_index)


def check_overwritable(logits: torch.Tensor) -> None:
    """Raise ValueError if a gradient cannot take the place of the logits."""
    if not logits.is_contiguous():
        raise ValueError(
            f"with inplace=True, logits must be contiguous, but the strides are {logits.stride()}"
        )
    if logits.requires_grad and logits.is_leaf:
        raise ValueError(
            "with inplace=True, logits must be the result of a layer: these have no history, so "
            "their gradient would overwrite their only copy"
        )


# An ordinary call


@dataclass
class Launches:
    """The launches of a loss, with or without its gradient.

    There is one launch for few rows, and otherwise three, of which the second has no rows to work
    on if there is none.
    """

    launches: Sequence[Launch]

    def __call__(
        self, logits: torch.Tensor, targets: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean loss, and the losses of the rows behind their share."""
        rows = targets.shape[0]
        losses = torch.empty(rows + 1, dtype=torch.float32, device=logits.device)
        if len(self.launches) == 1:
            mean = losses.new_zeros(())  # it counts the programs first
            self.launches[0](logits, targets, losses, gradient, mean)
            return mean, losses
        mean = losses.new_empty(())
        count, loss_of_rows, mean_of_rows = self.launches
        count(targets, losses)
        if rows > 0:
            loss_of_rows(logits, targets, losses, gradient)
        mean_of_rows(losses, mean)
        return mean, losses


@dataclass
class LossPlan:
    """What calls with readable tensors of one layout have in common."""

    with_gradient: Launches
    without_gradient: Launches


PLANS = Plans()


def _plan_of_call(logits: Any, targets: Any, ignore_index: Any, inplace: Any) -> LossPlan | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        if logits.is_neg() or targets.is_neg():  # the sign is still to be changed
            return None
        return PLANS.get(_key(logits, targets, ignore_index, inplace))
    except (AttributeError, RuntimeError, TypeError):  # no tensor, a sparse one, no int
        return None


def _key(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, inplace: bool) -> tuple:
    # In place, the gradient may begin at an odd address, as fresh memory never does.
    return (layout_of(logits, targets), type(ignore_index), ignore_index, bool(inplace))


def _keep_plan(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, inplace: bool
) -> LossPlan:
    """Return the plan for readable tensors, a new one if none is kept."""
    key = _key(logits, targets, ignore_index, inplace)
    return PLANS.get(key) or PLANS.keep(key, plan_loss(logits, ignore_index))


class CrossEntropy(torch.autograd.Function):
    """The loss, with a gradient that exists before it is asked for."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, plan: LossPlan, inplace: bool
    ) -> torch.Tensor:
        """Compute the loss and the gradient."""
        gradient = logits if inplace else logits.new_empty(logits.shape)
        mean, losses = plan.with_gradient(logits, targets, gradient)
        if inplace:
            torch.autograd.graph.increment_version(logits)
            gradient = logits.detach()
        ctx.gradient = gradient
        ctx.version = gradient._version
        ctx.share = share_left_out(losses) if logits.dtype == torch.float16 else None
        return mean

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Return the gradient of the logits, multiplied by the incoming one unless that is 1."""
        if torch.is_grad_enabled():  # create_graph=True
            raise second_derivative_error("cross_entropy")
        gradient = ctx.gradient
        if gradient is None:
            raise used_up_error("cross_entropy")
        ctx.gradient = None
        if gradient._version != ctx.version:  # only with inplace=True does anyone else have it
            raise RuntimeError("cross_entropy: logits were changed in place; pass inplace=False")
        factor = g if ctx.share is None else g * ctx.share
        return scale_in_place(gradient, factor), None, None, None


def share_left_out(losses: torch.Tensor) -> torch.Tensor:
    """Return what a gradient in fp16 is still to be multiplied by.

    Divided by the number of rows, most of its elements would be smaller than the smallest number
    of fp16. The share is NaN if no row counts, where all gradients are 0.
    """
    return losses[0].nan_to_num()


def readable(logits: torch.Tensor) -> torch.Tensor:
    """Return *logits*, or a copy unless the elements of each row lie together."""
    logits = logits.resolve_neg()
    if logits.stride(1) == 1 or logits.shape[1] == 1:
        return logits
    return logits.contiguous()


# Plans


def plan_loss(logits: torch.Tensor, ignore_index: int) -> LossPlan:
    """Return the launches for readable logits."""
    return LossPlan(
        with_gradient=launches_for(logits, ignore_index, write=True),
        without_gradient=launches_for(logits, ignore_index, write=False),
    )


def launches_for(logits: torch.Tensor, ignore_index: int, write: bool) -> Launches:
    """Return one launch for few rows, and three for many."""
    rows, columns = logits.shape
    stride = logits.stride(0)
    constants = {
        **tile_for(columns),
        "GROUP": group_for(logits),
        "WRITE": write,
        "SHARED": logits.dtype != torch.float16,
    }
    if 0 < rows <= FEW_ROWS:
        constants["ROWS"] = FEW_ROWS
        constants["sanitize_overflow"] = False  # of debug=True, only the assertion is wanted
        numbers = (stride, columns, ignore_index, rows)
        return Launches([Launch(few_rows_kernel, (rows,), numbers, constants)])
    return Launches(
        [
            Launch(count_kernel, (1,), (rows, columns, ignore_index), ONE_PROGRAM),
            Launch(cross_entropy_kernel, (rows,), (stride, columns, ignore_index), constants),
            Launch(mean_kernel, (1,), (rows,), ONE_PROGRAM),
        ]
    )


def tile_for(columns: int) -> dict[str, int]:
    """Return the constants that depend on the length of a row."""
    if columns <= 4096:
        return {"BLOCK": 1024, "MAXIMA": 128, "num_warps": 4}
    warps = 32
    if columns <= 16_384:
        warps = 8
    elif columns <= 65_536:
        warps = 16
    return {"BLOCK": 1024 * warps, "MAXIMA": 32 * warps, "num_warps": warps}


def group_for(logits: torch.Tensor) -> int:
    """Return into groups of how many elements a row has to be cut; 1 if it is not cut."""
    columns, stride = logits.shape[1], logits.stride(0)
    if columns % 16 == 0 and stride % 16 == 0:
        return 1  # all rows begin at such an address
    in_16_bytes = 16 // logits.element_size()
    # Groups of the logits have to be groups of the gradient, too, whose rows follow one another.
    alike = stride == columns or (columns % in_16_bytes == 0 and stride % in_16_bytes == 0)
    if alike and logits.data_ptr() % 16 == 0:
        return in_16_bytes
    return 1


# Operations, for torch.compile, torch.func and tensors without memory


def _compute(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss, the gradient, and what it is still to be multiplied by."""
    check_range(targets, logits.shape[1], ignore_index)
    logits, targets = readable(logits), targets.resolve_neg().contiguous()
    plan = _keep_plan(logits, targets, ignore_index, inplace=False)
    if not wanted:
        mean, losses = plan.without_gradient(logits, targets, logits)
        return mean, logits.new_empty(0), torch.ones_like(mean)
    gradient = logits.new_empty(logits.shape)
    mean, losses = plan.with_gradient(logits, targets, gradient)
    if logits.dtype == torch.float16:
        return mean, gradient, share_left_out(losses)
    return mean, gradient, torch.ones_like(mean)


def _describe(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean = logits.new_empty((), dtype=torch.float32)
    gradient = logits.new_empty(logits.shape if wanted else 0)
    return mean, gradient, torch.empty_like(mean)


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    _, gradient, share = output
    ctx.save_for_backward(gradient, share)
    ctx.set_materialize_grads(False)  # or zeros as large as the logits would be made


def _differentiate(ctx: Any, g: torch.Tensor | None, *others: torch.Tensor | None) -> tuple:
    if any(other is not None for other in others):  # a gradient of the gradient
        raise second_derivative_error("cross_entropy")
    if g is None:
        return None, None, None, None
    return CROSS_ENTROPY_BACKWARD(g, *ctx.saved_tensors), None, None, None


CROSS_ENTROPY_BACKWARD = Operation(
    "cross_entropy_backward",
    "(Tensor g, Tensor gradient, Tensor share) -> Tensor",
    compute=lambda g, gradient, share: scaled(gradient, g * share),
    describe=lambda g, gradient, share: torch.empty_like(gradient),
    **without_second_derivative("cross_entropy"),
)
CROSS_ENTROPY = Operation(
    "cross_entropy",
    "(Tensor logits, Tensor targets, SymInt ignore_index, bool wanted) -> (Tensor, Tensor, Tensor)",
    compute=_compute,
    describe=_describe,
    keep=_keep,
    differentiate=_differentiate,
)
