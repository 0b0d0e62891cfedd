"""What the interpreter allows, and a GPU does not.

Grids and products that are refused there, ``tl.device_assert``, programs that do not end, and the
measuring of times, which means nothing in the interpreter.
"""

import time

import numpy as np

from triton_watch.compiles import TARGET

LIMIT = 20  # seconds of processor time for one program of a kernel
MOST_PROGRAMS = (2**31 - 1, 65_535, 65_535)  # along the three axes of a grid


class Limits:
    """The limits of a GPU, while a watch is active."""

    def __init__(self, watch, seconds):
        self.watch = watch
        self.seconds = seconds
        self._began = 0.0  # processor time when the current program began
        self._told = False  # that times are skipped

    def replace(self, replace, interpreter):
        """Replace what the interpreter and ``triton.testing`` do, by *replace*."""
        import triton.testing

        semantic = interpreter.interpreter_semantic.__class__
        replace(semantic, "device_assert", self._device_assert)
        replace(triton.testing, "do_bench", self._do_bench)
        if hasattr(triton.testing, "do_bench_cudagraph"):
            replace(triton.testing, "do_bench_cudagraph", self._do_bench)

    def begin(self):
        """The next program begins."""
        self._began = time.process_time()
        if self.watch.launch.order.program == 1:
            self._grid(self.watch.launch.grid)

    def _grid(self, grid):
        for axis, (programs, most) in enumerate(zip(grid, MOST_PROGRAMS, strict=True)):
            if programs > most:
                raise self.watch.fault(
                    "a grid that is too large: the launch fails on a GPU",
                    ("axis", f"{axis}, with {programs} programs; it can have {most}"),
                    (
                        "cause",
                        "the longest axis belongs on axis 0, which can have 2³¹ - 1 programs",
                    ),
                )

    def time(self):
        """The current program is computing: it must not do so for ever."""
        if not self.watch.launch:
            return
        passed = time.process_time() - self._began
        if passed > self.seconds:
            raise self.watch.fault(
                f"a program does not end: it has computed for {passed:.0f} s",
                ("cause", "a loop whose condition does not change"),
            )

    def dot(self, a, b):
        """A product of tiles has sizes that the tensor cores have."""
        least = _least_sizes(a.dtype, b.dtype)
        sizes = a.data.shape[-2], b.data.shape[-1], a.data.shape[-1]
        for name, size, needed in zip("MNK", sizes, least, strict=True):
            if size < needed:
                raise self.watch.fault(
                    "a product of tiles that are too small: the compiler refuses it",
                    (
                        "tiles",
                        f"{name} is {size} in {sizes[0]} × {sizes[2]} · {sizes[2]} × {sizes[1]}",
                    ),
                    ("cause", f"`tl.dot` needs {name} of at least {needed} for {a.dtype}"),
                )

    def _device_assert(self, original, semantic, condition, message, mask=None):
        """The interpreter skips ``tl.device_assert`` unless kernels are debugged."""
        holds = np.asarray(condition.handle.data, bool)
        if mask is not None:
            holds = holds | ~np.broadcast_to(np.asarray(mask.handle.data, bool), holds.shape)
        if not holds.all():
            failing = int((~holds).sum())
            text = getattr(message, "value", message)
            raise self.watch.fault(
                "tl.device_assert does not hold",
                ("message", f"{text}" if text else "none"),
                ("elements", f"{failing} of {holds.size}, the first at {int(np.argmin(holds))}"),
            )

    def _do_bench(
        self, original, function, *arguments, quantiles=None, return_mode="mean", **named
    ):
        """Execute what would be timed once, and return times that are no numbers."""
        if not self._told:
            print("triton.testing.do_bench is skipped: times mean nothing in the interpreter.")
            self._told = True
        function()
        nothing = float("nan")
        if quantiles is not None:
            return [nothing] * len(quantiles) if len(quantiles) > 1 else nothing
        return [nothing] if return_mode == "all" else nothing


def _least_sizes(left, right):
    """The least M, N and K of a product for compute capability 9.0 in this release of Triton."""
    try:
        from triton.backends.compiler import GPUTarget
        from triton.backends.nvidia.compiler import min_dot_size

        return min_dot_size(GPUTarget(*TARGET))(left, right)
    except (ImportError, AssertionError):
        return 1, 1, 16
