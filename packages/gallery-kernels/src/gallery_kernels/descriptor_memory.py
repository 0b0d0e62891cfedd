"""What kernels need that make tensor descriptors themselves: memory, and aligned tensors.

Triton asks for memory the function that ``triton.set_allocator`` has set. That setting belongs to
the program that calls us, so it is changed in a copy of Python's context only.
"""

import contextvars
from collections.abc import Callable
from typing import Any

import torch
import triton


def aligned(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, or a copy unless it is contiguous at a multiple of 16 bytes."""
    x = x.resolve_neg().contiguous()
    if x.data_ptr() % 16:  # a descriptor cannot describe it
        return x.clone()
    return x


def launch_with_memory(launch: Callable, *arguments: Any) -> None:
    """Call *launch*, whose kernels make descriptors."""
    contextvars.copy_context().run(_launch, launch, arguments)


def _launch(launch: Callable, arguments: tuple) -> None:
    triton.set_allocator(_allocate)
    launch(*arguments)


def _allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int8, device=torch.accelerator.current_accelerator())
