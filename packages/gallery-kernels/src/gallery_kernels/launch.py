"""Kept plans: what calls that are alike have in common is worked out once.

``kernel[grid](…)`` asks in each call which compiled kernel fits the arguments, and encodes each
tensor descriptor anew. Together with the choice of tiles this takes more of the CPU's time than
the rest of a call. A function therefore keeps a *plan* for calls that are alike: one or more
:class:`Launch` and :class:`DescribedLaunch`, in :class:`Plans`, by a key made with
:func:`layout_of`.

A plan holds no tensor of a call, and may be used by several threads.

This file uses names of Triton's launcher that it does not promise to keep. Where a release has
others, launches take longer, and nothing else changes.
"""

import copy
import threading
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

#: The hardware starts at most this many programs on axis 1 and on axis 2 of a grid.
MOST_PROGRAMS_ON_AXIS_1 = 65_535


@dataclass(frozen=True)
class Limits:
    """What a kernel has to know of a device."""

    multiprocessors: int
    shared_bytes: int  # that a program can have
    l2_bytes: int
    is_nvidia: bool
    is_hopper: bool  # compute capability 9.0: warp-group products, asynchronous copies of tiles
    starts_early: bool  # programmatic dependent launch


@cache
def limits_of(device: torch.device) -> Limits:
    """Return the limits of *device*; in the interpreter, programs are few and small.

    It may run where a GPU is, whose instructions it does not have.
    """
    if device.type == "cpu" or triton.knobs.runtime.interpret:
        return Limits(4, 65_536, 2**20, is_nvidia=False, is_hopper=False, starts_early=False)
    gpu = torch.get_device_module(device).get_device_properties(device)
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    capability = torch.cuda.get_device_capability(device) if is_nvidia else (0, 0)
    return Limits(
        multiprocessors=getattr(gpu, "multi_processor_count", 64),
        shared_bytes=getattr(gpu, "shared_memory_per_block_optin", 65_536),
        l2_bytes=getattr(gpu, "L2_cache_size", 2**22),
        is_nvidia=is_nvidia,
        is_hopper=capability == (9, 0),
        starts_early=capability >= (9, 0),
    )


def layout_of(*tensors: torch.Tensor) -> tuple:
    """Return what a launch for these tensors depends on, except their numbers and addresses.

    Raises:
        AttributeError: An object is no tensor.
        RuntimeError: A tensor is sparse.
    """
    return tuple(
        [(x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16 == 0) for x in tensors]
    )


class Plans:
    """Plans by what calls that are alike have in common."""

    MOST = 1000  # a program whose shapes never repeat begins anew

    def __init__(self) -> None:
        self._plans: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, key: Hashable) -> Any:
        """Return the plan for *key*, or None."""
        return self._plans.get(key)

    def keep(self, key: Hashable, plan: Any) -> Any:
        """Keep *plan* for *key*, and return it."""
        if len(self._plans) >= self.MOST:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def clear(self) -> None:
        """Forget all plans."""
        self._plans.clear()


def on_device_of(x: torch.Tensor) -> AbstractContextManager:
    """Return a context that launches on the GPU of *x*, whichever is the current one."""
    return torch.accelerator.device_index(x.device.index)  # a CPU has no index: nothing to do


_LOCK = threading.Lock()
_THREAD = threading.local()


def know_the_gpu() -> None:
    """Let the driver know the current GPU in a new thread, or no descriptor can be encoded."""
    if hasattr(_THREAD, "knows_the_gpu"):
        return
    _THREAD.knows_the_gpu = True
    if torch.accelerator.is_available():
        torch.cuda.set_device(torch.cuda.current_device())


class Launch:
    """A launch that asks Triton once which compiled kernel fits, and then starts that one.

    Args:
        kernel: What ``triton.jit`` made.
        grid: How many programs, on one to three axes.
        numbers: Its arguments after the tensors, the same in all calls.
        constants: Its constants and options, such as ``num_warps``.

    ``launch(*tensors)`` passes the tensors of a call, or descriptors of them. They are on one GPU,
    which need not be the current one.
    """

    def __init__(
        self, kernel: Any, grid: Sequence[int], numbers: Sequence, constants: Mapping[str, Any]
    ):
        self.kernel = kernel
        self.grid = (*grid, 1, 1)[:3]
        if max(self.grid[1:]) > MOST_PROGRAMS_ON_AXIS_1:
            raise ValueError(f"a grid of {self.grid} programs has too many on axis 1 or 2")
        self.numbers = tuple(numbers)
        self.constants = dict(constants)
        self.device: int | None = None  # that of the compiled kernel, once there is one

    def ask(self, *tensors: Any) -> Any:
        """Launch as ``kernel[grid](…)`` does, and return the compiled kernel."""
        return self.kernel[self.grid](*tensors, *self.numbers, **self.constants)

    def __call__(self, *tensors: Any) -> None:
        """Launch the kernel on the current stream of the tensors' GPU."""
        know_the_gpu()
        if self.device is None:
            with on_device_of(_first_tensor(tensors)):
                self._prepare(len(tensors), self.ask(*tensors))
        elif self.must_ask():
            with torch.accelerator.device_index(self.device):
                self.ask(*tensors)
        else:
            stream = self.active.get_current_stream(self.device)
            # With an address, the driver is not asked on which device a tensor lies.
            addresses = [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in tensors]
            self.run(*self.grid, stream, *self.kept, *addresses, *self.rest)

    def must_ask(self) -> bool:
        """Whether a profiler waits for launches, or another GPU is the current one."""
        if triton.knobs.runtime.launch_enter_hook.calls:
            return True
        return self.device != self.active.get_current_device()

    def _prepare(self, tensor_count: int, compiled: Any) -> None:
        """Keep what the driver needs beside the stream and the tensors."""
        if compiled is None:
            return  # the interpreter compiles nothing
        with _LOCK:
            if self.device is not None:
                return  # another thread was faster
            names = self.kernel.arg_names[tensor_count + len(self.numbers) :]
            self.rest = (*self.numbers, *[self.constants[name] for name in names])
            # Threads that compile at the same time make one kernel each. Triton forgets all but
            # one, and a forgotten one unloads its code, unless we keep it.
            self.compiled = compiled
            self.kept = (compiled.function, compiled.packed_metadata, None, None, None)
            self.run = compiled.run
            self.active = triton.runtime.driver.active
            # Last, because from now on other threads use the rest.
            self.device = self.active.get_current_device()


def _first_tensor(arguments: Sequence[Any]) -> torch.Tensor:
    for x in arguments:
        x = getattr(x, "base", x)  # of a descriptor
        if isinstance(x, torch.Tensor):
            return x
    raise ValueError("a launch needs a tensor, which says on which GPU it runs")


class DescribedLaunch:
    """A launch whose first arguments are descriptors of tensors: tiles that the GPU copies.

    Args:
        launch: The launch.
        descriptors: The descriptors of the first call. Only their tensors change.

    ``described_launch(described, *others)`` passes the tensors that are described, in the order of
    the descriptors, and the tensors whose addresses the kernel gets.

    Encoding a descriptor takes some µs. The encoded ones are kept by the addresses of the tensors,
    which come again in programs that free and allocate the same sizes. They depend on nothing
    else, because shapes and strides are those of the plan.
    """

    MOST_ADDRESSES = 256

    def __init__(self, launch: Launch, descriptors: Sequence[Any]):
        self.launch = launch
        self.descriptors = [(type(x), {**vars(x), "base": None}) for x in descriptors]
        self.start: Callable | None = None  # the driver's function, once it is known
        self.encoded: dict[tuple, tuple] = {}  # its arguments, by stream and addresses

    def __call__(self, described: Sequence[torch.Tensor], *others: torch.Tensor) -> None:
        """Launch the kernel."""
        launch = self.launch
        if self.start is None or launch.must_ask():
            launch(*self._describe(described), *others)
            if self.start is None and launch.device is not None:
                self._look_into_launcher()
            return
        know_the_gpu()
        stream = launch.active.get_current_stream(launch.device)
        addresses = [x.data_ptr() for x in described]
        pointers = [x.data_ptr() for x in others]
        key = (stream, *addresses, *pointers)
        arguments = self.encoded.get(key)
        if arguments is None:
            _LATEST.arguments = None
            # Addresses and not tensors, because the kept arguments must hold no memory.
            described_now = self._describe(described)
            launch.run(*launch.grid, stream, *launch.kept, *described_now, *pointers, *launch.rest)
            self._keep(key)
            return
        self.start(*arguments)

    def _describe(self, tensors: Sequence[torch.Tensor]) -> list:
        descriptors = []
        for (kind, fields), x in zip(self.descriptors, tensors, strict=True):
            descriptor = object.__new__(kind)  # its checks were passed by the first one
            descriptor.__dict__.update(fields, base=x)
            descriptors.append(descriptor)
        return descriptors

    def _keep(self, key: tuple) -> None:
        arguments = _LATEST.arguments
        if arguments is None:
            return
        if len(self.encoded) >= self.MOST_ADDRESSES:  # addresses that do not come again
            self.encoded.clear()
        self.encoded[key] = arguments

    def _look_into_launcher(self) -> None:
        start, run = _launcher_that_tells(self.launch.compiled)
        if start is not None:
            self.launch.run = run
            self.start = start


_LATEST = threading.local()


def _launcher_that_tells(compiled: Any) -> tuple[Callable | None, Any]:
    """Return the driver's function that starts a kernel, and a launcher that keeps its arguments.

    Triton's launcher encodes the descriptors, and calls the driver's function with the result. Both
    are None for a kernel without encoded descriptors, and in a release of Triton with other names.
    """
    run = compiled.run
    launch: Any = getattr(run, "launch", None)
    names = getattr(getattr(launch, "__code__", None), "co_freevars", ())
    encoded = getattr(compiled.metadata, "tensordesc_meta", None) or [None]
    needs_new_memory = [
        getattr(run, name, 0)
        for name in ("global_scratch_size", "profile_scratch_size", "gsan_enabled")
    ]
    if "launcher" not in names or None in encoded or any(needs_new_memory):
        return None, None
    cells = list(launch.__closure__)
    start = cells[names.index("launcher")].cell_contents

    def start_and_tell(*arguments: Any) -> Any:
        _LATEST.arguments = arguments
        return start(*arguments)

    cells[names.index("launcher")] = types.CellType(start_and_tell)
    run = copy.copy(run)
    run.launch = types.FunctionType(launch.__code__, launch.__globals__, closure=tuple(cells))
    return start, run


def described(x: torch.Tensor, block_shape: Sequence[int]) -> TensorDescriptor:
    """Return a descriptor of *x*, whose tiles have *block_shape*."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), list(block_shape))


def describable(x: torch.Tensor) -> torch.Tensor:
    """Return *x* if a descriptor can describe it, and a contiguous copy otherwise.

    A descriptor needs an address and strides that are multiples of 16 bytes, and a last stride
    of 1. The last dimension of *x* has a multiple of 16 bytes.
    """
    strides = [stride * x.element_size() for stride in x.stride()[:-1]]
    aligned = x.data_ptr() % 16 == 0 and all(s > 0 and s % 16 == 0 for s in strides)
    if aligned and x.stride(-1) == 1:
        return x
    return x.clone(memory_format=torch.contiguous_format)
