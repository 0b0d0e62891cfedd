"""What both losses share: checks of targets, and gradients that exist before they are asked for."""

from typing import Any

import torch
import triton

from gallery_kernels.checks import check_tensor, check_whole_number
from gallery_kernels.launch import on_device_of
from gallery_kernels.loss_kernels import scale_kernel

INTEGERS = (torch.int64, torch.int32)

#: The constants of a program that looks at all rows.
ONE_PROGRAM = {"BLOCK": 4096, "num_warps": 8}


def check_targets(targets: Any, rows_name: str, rows: torch.Tensor, ignore_index: Any) -> None:
    """Raise TypeError or ValueError unless *targets* are integers, one for each of the *rows*."""
    check_tensor("targets", targets, INTEGERS)
    if targets.device != rows.device:
        raise ValueError(
            f"targets must be on {rows.device} as {rows_name}, but is on {targets.device}"
        )
    if targets.ndim != 1 or targets.shape[0] != rows.shape[0]:
        raise ValueError(
            f"targets must have one element for each row of {rows_name}, shape "
            f"{tuple(rows.shape[:1])}, but has shape {tuple(targets.shape)}"
        )
    check_whole_number("ignore_index", ignore_index)
    limits = torch.iinfo(targets.dtype)
    if not limits.min <= ignore_index <= limits.max:
        raise ValueError(
            f"ignore_index must be a number of {targets.dtype}, as targets are, "
            f"but is {ignore_index}"
        )


def check_range(targets: torch.Tensor, columns: int, ignore_index: int) -> None:
    """Raise ValueError if a target on the CPU is no column.

    On a GPU this would wait; there, an assertion in the kernel stops it.
    """
    if targets.device.type != "cpu":
        return
    wrong = ((targets < 0) | (targets >= columns)) & (targets != ignore_index)
    if wrong.any():
        row = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"targets must be from 0 to {columns - 1}, or {ignore_index} for rows that do not "
            f"count, but targets[{row}] is {int(targets[row])}"
        )


def scale_in_place(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Multiply contiguous *x* by a number on its device, without waiting for it; return *x*."""
    return _scale(x, factor, x)


def scaled(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return *x*, contiguous, times a number on its device."""
    return _scale(x, factor, torch.empty_like(x))


def _scale(x: torch.Tensor, factor: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = x.numel()
    if n == 0:
        return y
    with on_device_of(x):
        grid = (min(1024, triton.cdiv(n, 4096)),)
        constants = {"IN_PLACE": y is x, "BLOCK": 4096, "num_warps": 8}
        scale_kernel[grid](x, factor.resolve_neg(), y, n, **constants)
    return y


def used_up_error(function: str) -> RuntimeError:
    """Return the error for a second backward pass through one loss."""
    return RuntimeError(
        f"{function}: backward was called twice, but the gradients exist only once; add the "
        f"losses up first, or compute the loss again"
    )
