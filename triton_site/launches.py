"""The last launch of a kernel in a cell that asks for it: the variant that its page is about.

A kernel is compiled for each kind of arguments, and a page speaks of one variant: the one that its
benchmark times. A comment of that cell names the kernel, and says in words of which shape its last
launch in this cell is::

    # sphinx_gallery_xray = "softmax_kernel: 4096 × 8192, fp32"

Triton calls a hook at each launch while such a cell runs. The GPU's time of a launch does not
change; the CPU's share would, so the hook goes as soon as something measures that.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

#: Functions that time what the CPU does. Launches inside of them are not looked at.
_CPU_TIMERS = frozenset({"cpu_share", "do_bench"})
#: The function of Triton's autotuner that tries variants.
_TUNER = "_bench"
#: Frames between a launch and the function that times it; more are not searched.
_DEEPEST = 60


def wanted(setting: object) -> dict[str, str]:
    """The shape of each kernel that the value of ``sphinx_gallery_xray`` names.

    Raises:
        ValueError: it is not ``"KERNEL: SHAPE; KERNEL: SHAPE"``.
    """
    found = {}
    for part in str(setting or "").split(";"):
        name, colon, shape = (text.strip() for text in part.partition(":"))
        if name and not (colon and shape and name.isidentifier()):
            raise ValueError(f"sphinx_gallery_xray: {part.strip()!r} is not KERNEL: SHAPE")
        if name:
            found[name] = shape
    return found


class LastLaunches:
    """Notes which compiled kernels are launched, in order, while it watches."""

    def __init__(self) -> None:
        self._functions: dict[int, None] = {}  # handles of the driver; the last launched is last
        self._chain: Any = None

    def watch(self) -> None:
        """Begin; Triton is imported."""
        self._functions = {}
        chain = getattr(sys.modules["triton.knobs"].runtime, "launch_enter_hook", None)
        if chain is not None and hasattr(chain, "add"):
            self._chain = chain
            chain.add(self._launched)

    def stop(self) -> None:
        """Launches are as fast as ever again."""
        if self._chain is not None:
            with contextlib.suppress(ValueError):
                self._chain.remove(self._launched)
            self._chain = None

    def last_of(self, functions: Iterable[int]) -> int | None:
        """The handle among *functions* that was launched last; None if none was."""
        known = set(functions)
        return next((one for one in reversed(self._functions) if one in known), None)

    def _launched(self, metadata: Any) -> None:
        callers = set(_callers(sys._getframe()))
        if _TUNER in callers:
            return
        if not _CPU_TIMERS.isdisjoint(callers):
            self.stop()
            return
        function = (getattr(metadata, "data", None) or metadata.get())["function"]
        self._functions.pop(function, None)
        self._functions[function] = None


def _callers(frame: FrameType | None) -> Iterable[str]:
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield frame.f_code.co_name
        frame = frame.f_back
