"""The launches of a function: which kernel, how many programs, which numbers and constants."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import triton


class _Recorder:
    """A kernel that also notes the grid, the numbers and the constants of each launch."""

    def __init__(self, name: str, kernel: Any, launches: list):
        self._name, self._kernel, self._launches = name, kernel, launches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __call__(self, *arguments: Any, **constants: Any) -> Any:
        return self._kernel(*arguments, **constants)  # a function that a kernel calls

    def __getitem__(self, grid: Any) -> Callable:
        def launch(*arguments: Any, **constants: Any) -> Any:
            # A descriptor is described by its block and by the matrix that it addresses.
            numbers = tuple(
                (tuple(x.block_shape), tuple(x.shape), tuple(x.strides))
                if hasattr(x, "block_shape")
                else "tensor"
                if isinstance(x, torch.Tensor)
                else x
                for x in arguments
            )
            self._launches.append((self._name, tuple(grid), numbers, constants))
            return self._kernel[grid](*arguments, **constants)

        return launch


@contextmanager
def patched(function: Callable, launches: list) -> Iterator[None]:
    """Note the launches of the kernels that *function* knows in *launches*."""
    names = inspect.unwrap(function).__globals__
    kernels = {k: v for k, v in names.items() if hasattr(v, "run") and hasattr(v, "arg_names")}
    assert kernels, f"{function.__name__} knows no kernel, in Triton {triton.__version__}"
    with pytest.MonkeyPatch.context() as patch:
        for name, kernel in kernels.items():
            patch.setitem(names, name, _Recorder(name, kernel, launches))
        yield


def launches_of(function: Callable, *arguments: Any) -> tuple[list, Any]:
    """Call *function*, and return its launches and its result."""
    launches: list = []
    with patched(function, launches):
        result = function(*arguments)
    return launches, result
