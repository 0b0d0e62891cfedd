"""Refusals of arguments: each error names the argument, what it must be and what it is.

The checks read types, dtypes, layouts, devices and shapes, and no numbers or addresses. So they
also work where a tensor has no memory, such as in ``torch.compile``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton

#: Whether kernels run in Triton's interpreter, on a CPU. Triton decides it when it is imported.
INTERPRETED: bool = triton.knobs.runtime.interpret

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def check_tensors(
    tensors: Mapping[str, Any],
    dtypes: Sequence[torch.dtype] = FLOATS,
    replaces_bfloat16: bool = False,
) -> None:
    """Check that all tensors have one of the *dtypes*, memory with strides, and one device.

    Args:
        tensors: {name of the argument: what was passed}. The first decides about the device.
        dtypes: The dtypes that the kernels read.
        replaces_bfloat16: Whether the function computes in float32 in place of bfloat16 in the
            interpreter, and does not refuse it there.

    Raises:
        TypeError: An argument is no tensor or has another dtype.
        ValueError: A tensor is sparse, on another device than the first one, or on a device
            without Triton.
    """
    first_name = next(iter(tensors))
    for name, x in tensors.items():
        check_tensor(name, x, dtypes, replaces_bfloat16)
        first = tensors[first_name]
        if name == first_name:
            check_device(name, x)
        elif x.device != first.device:
            raise ValueError(
                f"{name} must be on {first.device} as {first_name}, but is on {x.device}"
            )


def check_tensor(
    name: str,
    x: Any,
    dtypes: Sequence[torch.dtype] = FLOATS,
    replaces_bfloat16: bool = False,
) -> None:
    """Check the type, the dtype and the layout of one argument; see :func:`check_tensors`."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in dtypes:
        raise TypeError(f"the dtype of {name} must be {one_of(dtypes)}, but is {x.dtype}")
    if INTERPRETED and x.dtype == torch.bfloat16 and not replaces_bfloat16:
        raise TypeError(
            f"the dtype of {name} is torch.bfloat16, which Triton's interpreter computes wrongly; "
            f"use torch.float16 or torch.float32 there"
        )
    if x.layout != torch.strided:
        raise ValueError(
            f"{name} must be strided, but its layout is {x.layout}; pass {name}.to_dense()"
        )


def check_device(name: str, x: torch.Tensor) -> None:
    """Raise ValueError unless Triton can launch a kernel on the device of *x*."""
    if x.device.type == "meta":
        raise ValueError(f"{name} must be on a GPU, but is on meta")
    if x.device.type == "cpu" and not INTERPRETED:
        raise ValueError(
            f"{name} must be on a GPU, but is on cpu; on a CPU, kernels run only in Triton's "
            f"interpreter: set TRITON_INTERPRET=1 before triton is imported"
        )


def must_replace_bfloat16(x: torch.Tensor) -> bool:
    """Return whether *x* is in bfloat16, and runs in the interpreter, which computes it wrongly."""
    return INTERPRETED and x.dtype == torch.bfloat16


def check_same_dtype(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise TypeError unless all tensors have the dtype of the first one."""
    first_name = next(iter(tensors))
    first = tensors[first_name]
    for name, x in tensors.items():
        if x.dtype != first.dtype:
            raise TypeError(
                f"the dtype of {name} must be {first.dtype} as that of {first_name}, "
                f"but is {x.dtype}"
            )


def check_shape(name: str, x: torch.Tensor, shape: Sequence[int]) -> None:
    """Raise ValueError unless *x* has this shape."""
    if tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, but has {tuple(x.shape)}")


def check_number(name: str, value: Any) -> None:
    """Raise TypeError unless *value* is an int or a float, and no bool."""
    if isinstance(value, bool) or not isinstance(value, int | float | torch.SymInt):
        raise TypeError(f"{name} must be a number, but is a {type(value).__name__}")


def check_whole_number(name: str, value: Any) -> None:
    """Raise TypeError unless *value* is an int, and no bool."""
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        raise TypeError(f"{name} must be an int, but is a {type(value).__name__}")


def check_without_gradient(function: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError if a tensor requires a gradient, which *function* does not compute."""
    if not torch.is_grad_enabled():
        return
    for name, x in tensors.items():
        if x.requires_grad:
            raise ValueError(
                f"{name} requires a gradient, but {function} has none; pass {name}.detach(), or "
                f"call it in torch.no_grad()"
            )


def one_of(dtypes: Sequence[torch.dtype]) -> str:
    """Return the names of *dtypes*, such as *torch.int32 or torch.int64*."""
    names = [str(dtype) for dtype in dtypes]
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} or {names[-1]}"
