"""PyTorch's own operations while kernels are watched: which memory is new, and who reads it."""

import contextlib

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from triton_watch.memory import in_memory
from triton_watch.places import FaultError, count_of, here

NEW = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::empty_permuted",
    "aten::new_empty", "aten::new_empty_strided",
}  # fmt: skip
# These only pass elements on, or choose some of them.
COPIES = {
    "aten::clone", "aten::copy_", "aten::detach", "aten::lift_fresh", "aten::embedding",
    "aten::gather", "aten::index", "aten::index_select", "aten::masked_fill",
    "aten::masked_select", "aten::take", "aten::where",
}  # fmt: skip


class Operations(TorchDispatchMode):
    """Notes new memory, and that PyTorch reads elements which a kernel has left out."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        """Execute an operation."""
        named = named or {}
        name = function._schema.name
        if self.watch.partly and name not in COPIES and not function.is_view:
            self._reads(function._schema.arguments, arguments, named)
        result = function(*arguments, **named)
        if name == "aten::clone" and named.get("memory_format") == torch.contiguous_format:
            self.watch.copied += 2 * result.numel() * result.element_size()
        if name in NEW and in_memory(result) and result.numel():
            self.watch.memory.buffer(result.untyped_storage()).is_new(result.dtype)
        return result

    def shown(self, tensor):
        """Note what of a tensor that is printed has never been written."""
        buffer = self.watch.memory.known(tensor)
        if buffer in self.watch.partly:
            with contextlib.suppress(FaultError):  # it is noted, and the script goes on
                self._is_written(buffer, tensor)

    def _reads(self, described, arguments, named):
        given = [*zip(described, arguments, strict=False)]
        given += [(d, named[d.name]) for d in described if d.name in named]
        for argument, value in given:
            written = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in value if isinstance(value, list | tuple) else [value]:
                buffer = self.watch.memory.known(tensor)
                if buffer is None:
                    continue
                if written and buffer.filling is None:
                    buffer.unwritten = None  # too large to look at
                elif not written and buffer in self.watch.partly:
                    self._is_written(buffer, tensor)

    def _is_written(self, buffer, tensor):
        if buffer.unwritten is None:
            self.watch.partly.remove(buffer)
        elif gaps := gaps_of(buffer, tensor):
            self.watch.partly.remove(buffer)
            raise self.watch.note(incomplete(buffer, gaps, ("read in", here())))


def incomplete(buffer, gaps, *more):
    """The fault of a kernel that leaves elements out."""
    title = "elements that no program has written"
    if not buffer.kernel:
        return FaultError(title, ("result", gaps), ("cause", "no kernel got this tensor"), *more)
    return FaultError(
        title,
        ("kernel", buffer.kernel),
        ("tensor", f"`{buffer.name}`: {gaps}"),
        *more,
        ("cause", "a grid with too few programs, or a mask that leaves out too much"),
    )


def gaps_of(buffer, tensor):
    """What of a tensor has never been written, in words; nothing if all has been."""
    if buffer.unwritten is None or not tensor.numel():
        return ""
    offsets = np.full(tuple(tensor.shape), tensor.storage_offset(), np.int64)
    for axis, (n, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = [1] * tensor.dim()
        steps[axis] = n
        offsets += (np.arange(n) * stride).reshape(steps)
    width = tensor.element_size()
    missing = buffer.still_unwritten(offsets.reshape(-1) * width, width)
    if missing is None:
        return ""
    places = np.unravel_index(np.flatnonzero(missing), tuple(tensor.shape) or (1,))
    place = tuple(int(axis[0]) for axis in places)
    return (
        f"{int(missing.sum())} of {count_of(tensor.numel(), 'element')} have never been written; "
        f"the first is at {place[0] if len(place) == 1 else place}"
    )


def results_with_gaps(watch, results):
    """The fault of a result that is not written completely, or None."""
    for result in results:
        buffer = watch.memory.known(result) if isinstance(result, torch.Tensor) else None
        if buffer and (gaps := gaps_of(buffer, result)):
            return incomplete(buffer, gaps)
    return None
