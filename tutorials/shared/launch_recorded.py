"""The launch that some lessons were recorded with; ``launch.py`` is for those recorded after it."""

import triton


def key_of(*tensors):
    """Return what a plan for *tensors* depends on. Raises AttributeError for other objects."""
    return tuple(
        [(t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % 16 == 0) for t in tensors]
    )


class Launch:
    """A launch that asks Triton once which compiled kernel fits, and then starts that one.

    Keep one for each key. ``launch(*tensors)`` passes the tensors of a call; the numbers and the
    constants are the same in all calls.
    """

    def __init__(self, kernel, grid, numbers, constants):
        self.kernel, self.grid = kernel, (*grid, 1, 1)[:3]
        self.numbers, self.constants = numbers, constants
        self.device = None  # of the compiled kernel, once there is one

    def ask(self, *tensors):
        """Launch as ``kernel[grid](…)`` does, and return the compiled kernel."""
        return self.kernel[self.grid](*tensors, *self.numbers, **self.constants)

    def __call__(self, *tensors):
        """Launch; a profiler and another current device get the launch that asks."""
        hooks = triton.knobs.runtime
        if self.device is None:
            self.prepare(len(tensors), self.ask(*tensors))
        elif hooks.launch_enter_hook.calls or self.device != self.active.get_current_device():
            self.ask(*tensors)
        else:
            stream = self.active.get_current_stream(self.device)
            self.run(*self.grid, stream, *self.kept, *tensors, *self.rest)

    def prepare(self, count, compiled):
        """Keep what the driver needs beside the stream and the tensors."""
        if compiled is None:
            return  # the interpreter compiles nothing
        names = self.kernel.arg_names[count + len(self.numbers) :]
        self.rest = (*self.numbers, *(self.constants[name] for name in names))
        self.kept = (compiled.function, compiled.packed_metadata, None, None, None)
        self.run, self.active = compiled.run, triton.runtime.driver.active
        self.device = self.active.get_current_device()  # last: now other threads may use the rest
