"""Groups of rows, each multiplied by a matrix of its own, in one launch.

The kernels are in ``grouped_mm_kernels.py``. Ten calls give the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton

from gallery_kernels.checks import (
    INTERPRETED,
    check_same_dtype,
    check_tensor,
    check_tensors,
    check_without_gradient,
    must_replace_bfloat16,
)
from gallery_kernels.grouped_mm_kernels import persistent_kernel, pointer_kernel
from gallery_kernels.launch import (
    DescribedLaunch,
    Launch,
    Limits,
    Plans,
    described,
    know_the_gpu,
    layout_of,
    limits_of,
    on_device_of,
)
from gallery_kernels.operations import Operation, is_needed

DTYPES = (torch.bfloat16, torch.float16)


def grouped_mm(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return the rows of *x*, each multiplied by the matrix of its group, without gradients.

    Groups are the *experts* of a mixture: each has some rows of *x*, and a matrix.

    Args:
        x: ``[rows, K]``, bfloat16 or float16, sorted by group. In the interpreter, bfloat16 is
            computed in float32 and rounded once.
        w: ``[groups, K, N]``, of the same dtype. It is fastest if the rows or the columns of each
            matrix lie together and start at multiples of 16 bytes; other strides are right.
        offsets: ``[groups]``, int32: the row of *x* behind the last row of each group, from 0 to
            *rows*, and not decreasing. A group may have no rows. The numbers are checked on the
            CPU only: on a GPU, that would wait. With wrong ones the result is undefined, and
            nothing else is written.

    Returns:
        ``[rows, N]``, contiguous, of the dtype of *x*. Sums are in fp32. Rows behind the last
        offset are undefined.

    Raises:
        TypeError: An argument is no tensor, or has another dtype.
        ValueError: Shapes, layouts or devices do not fit, *offsets* on the CPU are wrong, or a
            tensor requires a gradient, which ``torch._grouped_mm`` has.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Gale and others, *MegaBlocks*, MLSys 2023, https://arxiv.org/abs/2211.15841; lesson
    08-grouped-gemm.
    """
    if is_needed(x, w, offsets):
        check_grouped_mm(x, w, offsets)
        return GROUPED_MM(x, w, offsets)
    plan = _plan_of_call(x, w, offsets)
    if plan is None:
        check_grouped_mm(x, w, offsets)
        return _compute(x, w, offsets)
    check_offsets(offsets, x.shape[0])
    return plan(x, w, offsets)


def check_grouped_mm(x: Any, w: Any, offsets: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if the product cannot be computed."""
    tensors = {"x": x, "w": w}
    check_tensors(tensors, DTYPES, replaces_bfloat16=True)
    check_same_dtype(tensors)
    check_tensor("offsets", offsets, (torch.int32,))
    if offsets.device != x.device:
        raise ValueError(f"offsets must be on {x.device} as x, but is on {offsets.device}")
    for name, tensor, dimensions in (("x", x, 2), ("w", w, 3), ("offsets", offsets, 1)):
        if tensor.ndim != dimensions:
            raise ValueError(
                f"{name} must have {dimensions} dimensions, but has shape {tuple(tensor.shape)}"
            )
    if x.shape[1] != w.shape[1]:
        raise ValueError(
            f"x must have as many columns as each matrix of w has rows, but x and w have "
            f"{tuple(x.shape)} and {tuple(w.shape)}"
        )
    if offsets.shape[0] != w.shape[0]:
        raise ValueError(
            f"offsets must have one number for each matrix of w, {w.shape[0]}, but has "
            f"{offsets.shape[0]}"
        )
    check_without_gradient("grouped_mm", tensors)


def check_offsets(offsets: torch.Tensor, rows: int) -> None:
    """Raise ValueError if offsets on the CPU decrease or are no rows."""
    if offsets.device.type != "cpu":
        return
    ends = [0, *offsets.tolist()]
    if ends != sorted(ends) or ends[-1] > rows:
        raise ValueError(
            f"offsets must not decrease, and must be from 0 to {rows}, the rows of x, but are "
            f"{ends[1:]}"
        )


# An ordinary call

#: Returns the product of tensors of one layout.
Plan = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

PLANS = Plans()


def _plan_of_call(x: Any, w: Any, offsets: Any) -> Plan | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        if x.is_neg() or w.is_neg() or offsets.is_neg():  # the sign is still to be changed
            return None
        if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):  # an error
            return None
        return PLANS.get(layout_of(x, w, offsets))
    except (AttributeError, RuntimeError):  # no tensor, or a sparse one
        return None


def _compute(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return the product of any tensors."""
    x, w, offsets = x.resolve_neg(), w.resolve_neg(), offsets.resolve_neg().contiguous()
    check_offsets(offsets, x.shape[0])
    if x.numel() == 0 or w.numel() == 0:
        return x.new_zeros(x.shape[0], w.shape[2])
    if must_replace_bfloat16(x):
        return _compute(x.float(), w.float(), offsets).bfloat16()
    key = layout_of(x, w, offsets)
    plan = PLANS.get(key)
    if plan is None:
        with on_device_of(x):
            know_the_gpu()
            plan = PLANS.keep(key, plan_product(x, w))
    return plan(x, w, offsets)


@dataclass
class ProductByDescriptors:
    """A product whose tiles the hardware copies."""

    launch: DescribedLaunch
    out_shape: tuple[int, int]

    def __call__(self, x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        out = x.new_empty(self.out_shape)
        self.launch((x, w), out, offsets)
        return out


@dataclass
class ProductByPointers:
    """A product of tensors of any strides."""

    launch: Launch
    out_shape: tuple[int, int]

    def __call__(self, x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        out = x.new_empty(self.out_shape)
        self.launch(x, w, out, offsets)
        return out


# Plans


@dataclass(frozen=True)
class Tiling:
    """What a program computes at a time, and with what."""

    rows: int
    columns: int
    warps: int
    stages: int
    programs: int  # resident on a multiprocessor


FEW_ROWS = Tiling(64, 128, warps=4, stages=4, programs=2)
PAIR = Tiling(128, 128, warps=4, stages=3, programs=2)
LARGE = Tiling(128, 256, warps=8, stages=3, programs=1)

DEPTH = 64  # elements of the sums in a step


def tiling_for(rows: int, groups: int, K: int, N: int) -> Tiling:
    """Return the tiling for such a product."""
    if rows <= 64 * groups:
        return FEW_ROWS  # memory-bound: every matrix is read for a few rows
    if N % 256 == 0 and K >= 4096:
        return LARGE  # after a long sum, storing a tile with idle tensor cores does not matter
    return PAIR  # one program multiplies while the other one stores


def plan_product(x: torch.Tensor, w: torch.Tensor) -> Plan:
    """Return a product with the fastest kernel that can read *x* and *w*."""
    limits = limits_of(x.device)
    has_room = limits.is_nvidia and limits.shared_bytes > 200_000  # Hopper and Blackwell servers
    has_descriptors = INTERPRETED or has_room
    can_describe_w = is_describable(w) or is_describable(w.mT)
    if has_descriptors and is_describable(x) and can_describe_w and w.shape[2] % 8 == 0:
        return plan_by_descriptors(x, w, limits)
    return plan_by_pointers(x, w, limits)


def is_describable(t: torch.Tensor) -> bool:
    """Return whether elements of a row lie together, and rows start at multiples of 16 bytes."""
    *outer, last = t.stride()
    aligned = all(stride > 0 and stride * t.element_size() % 16 == 0 for stride in outer)
    return last == 1 and aligned and t.data_ptr() % 16 == 0 and t.stride(-2) >= t.shape[-1]


def plan_by_descriptors(x: torch.Tensor, w: torch.Tensor, limits: Limits) -> ProductByDescriptors:
    """Return a product of describable tensors, by persistent programs."""
    (rows, K), (groups, _, N) = x.shape, w.shape
    launch = launch_by_descriptors(tiling_for(rows, groups, K, N), x, w, limits)
    return ProductByDescriptors(launch, (rows, N))


def launch_by_descriptors(
    tiling: Tiling, x: torch.Tensor, w: torch.Tensor, limits: Limits
) -> DescribedLaunch:
    """Return the launch with this tiling; its tensors are x, w, the result and the offsets."""
    (rows, K), (groups, _, N) = x.shape, w.shape
    by_columns = w.stride(2) != 1
    if by_columns:
        w_tile = described(w.mT, [1, tiling.columns, DEPTH])
    else:
        w_tile = described(w, [1, DEPTH, tiling.columns])
    x_tile = described(x, [tiling.rows, DEPTH])
    constants = {
        "BLOCK_M": tiling.rows,
        "BLOCK_N": tiling.columns,
        "BLOCK_K": DEPTH,
        "BY_COLUMNS": by_columns,
        "GROUPS": max(32, triton.next_power_of_2(groups)),
        "num_warps": tiling.warps,
        "num_stages": tiling.stages,
    }
    most_tiles = (triton.cdiv(rows, tiling.rows) + groups) * triton.cdiv(N, tiling.columns)
    programs = min(limits.multiprocessors * tiling.programs, most_tiles)
    launch = Launch(persistent_kernel, (programs,), (groups, rows, K, N), constants)
    return DescribedLaunch(launch, [x_tile, w_tile])


def plan_by_pointers(x: torch.Tensor, w: torch.Tensor, limits: Limits) -> ProductByPointers:
    """Return a product of tensors of any strides, with a program for each tile."""
    (rows, K), (groups, _, N) = x.shape, w.shape
    side, depth = 64, 32
    if limits.shared_bytes >= 98_304:  # for three stages
        side, depth = 128, 64
    constants = {
        "BLOCK_M": side,
        "BLOCK_N": side,
        "BLOCK_K": depth,
        "num_warps": 8,
        "num_stages": 3,
    }
    most_tiles = (triton.cdiv(rows, side) + groups) * triton.cdiv(N, side)
    numbers = (groups, rows, K, N, *x.stride(), *w.stride())
    return ProductByPointers(Launch(pointer_kernel, (most_tiles,), numbers, constants), (rows, N))


# The operation, for torch.compile, torch.func and tensors without memory

GROUPED_MM = Operation(
    "grouped_mm",
    "(Tensor x, Tensor w, Tensor offsets) -> Tensor",
    compute=_compute,
    describe=lambda x, w, offsets: x.new_empty(x.shape[0], w.shape[2]),
)
