"""Arguments that are right, for each function: ``arguments_of(name)``.

What holds for all functions is tested with them. A new function needs a function of its name here.
"""

from collections.abc import Callable
from typing import Any

import torch

import gallery_kernels

#: Functions whose results have no gradients.
WITHOUT_GRADIENTS = {
    "gated_delta_rule",
    "grouped_mm",
    "int4_mm",
    "pack_int4",
    "paged_attention",
    "sample",
}

#: Those of them that take tensors which require a gradient.
DETACHING = {"pack_int4"}

#: Functions that wait for the GPU.
WAITING = {"pack_int4"}

#: Functions whose gradients have gradients.
WITH_SECOND_DERIVATIVES = {"seeded_dropout"}


def randn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype) for shape in shapes]


def ints(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def attention() -> list[Any]:
    return [*randn((1, 4, 40, 16), (1, 2, 40, 16), (1, 2, 40, 16)), True]


def cross_entropy() -> list[Any]:
    return [*randn((4, 30)), torch.tensor([3, -100, 0, 29])]


def gated_delta_rule() -> list[Any]:
    q, k, v = randn(*3 * [(1, 20, 2, 16)])
    gates, beta = torch.rand(2, 1, 20, 2)
    return [q, k / k.norm(dim=-1, keepdim=True), v, -0.2 * gates, beta]


def grouped_mm() -> list[Any]:
    offsets = torch.tensor([30, 30, 40], dtype=torch.int32)
    return [*randn((40, 64), (3, 64, 96), dtype=torch.float16), offsets]


def int4_mm() -> list[Any]:
    packed = torch.randint(-(2**15), 2**15, (2, 33, 32), dtype=torch.int16)
    return [*randn((3, 256), dtype=torch.float16), packed, *torch.rand(2, 33, 2).bfloat16()]


def layer_norm() -> list[Any]:
    return randn((4, 48), (48,), (48,))


def linear_cross_entropy() -> list[Any]:
    return [*randn((7, 3), (33, 3)), torch.randint(0, 33, (7,)), -100, 2]


def pack_int4() -> list[Any]:
    return randn((33, 256))


def rms_norm() -> list[Any]:
    return randn((4, 48), (48,))


def paged_attention() -> list[Any]:
    q, k, v = randn((2, 4, 16), (5, 8, 2, 16), (5, 8, 2, 16))
    return [q, k, v, ints(0, 1, 2, 3, 4, 0).view(2, 3), ints(20, 9)]


def seeded_dropout() -> list[Any]:
    return [*randn((99,)), 0.5, 3]


def sample() -> list[Any]:
    return [*randn((3, 300)), 1.0, 0, 0.9, 2]


NAMES = tuple(gallery_kernels.__all__)
DIFFERENTIABLE = tuple(name for name in NAMES if name not in WITHOUT_GRADIENTS)


def function_of(name: str) -> Callable:
    return getattr(gallery_kernels, name)


def arguments_of(name: str, device: torch.device | str = "cpu") -> list[Any]:
    """Return right arguments of a function, on a device."""
    arguments = globals()[name]()
    return [x.to(device) if isinstance(x, torch.Tensor) else x for x in arguments]


def floats(arguments: list[Any]) -> list[int]:
    """Return the places of tensors that could have a gradient."""
    return [
        i for i, x in enumerate(arguments) if isinstance(x, torch.Tensor) and x.is_floating_point()
    ]


def put(arguments: list[Any], place: int, value: Any) -> list[Any]:
    """Return the arguments with another one at *place*."""
    return [value if i == place else x for i, x in enumerate(arguments)]


def results_of(call: Callable, arguments: list[Any]) -> tuple[torch.Tensor, ...]:
    """Return all results of a call, in a tuple."""
    found = call(*arguments)
    return found if isinstance(found, tuple) else (found,)


def results_and_gradients(
    call: Callable, arguments: list[Any], change: Callable = lambda g: g
) -> tuple[torch.Tensor, ...]:
    """Return the result and all gradients; *change* is applied to the gradient of the result."""
    leaves = {i: arguments[i].detach().clone().requires_grad_() for i in floats(arguments)}
    y = call(*[leaves.get(i, x) for i, x in enumerate(arguments)])
    g = torch.linspace(-1, 1, y.numel(), device=y.device).view(y.shape).to(y.dtype)
    return (y.detach(), *torch.autograd.grad(y, [*leaves.values()], change(g)))
