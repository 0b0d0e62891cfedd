"""A plan for calls that are alike: launch a kernel without asking again which version fits."""

import threading

import torch
import triton


def key_of(*tensors):
    """Return what a plan for *tensors* depends on. Raises AttributeError for other objects."""
    return tuple(
        [(t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % 16 == 0) for t in tensors]
    )


def on_device_of(tensor):
    """Return a context that launches on the GPU of *tensor*, whichever is the current one."""
    return torch.accelerator.device_index(tensor.device.index)  # a CPU has no index: nothing to do


LOCK = threading.Lock()
THREADS = threading.local()


def know_the_gpu():
    """Let the driver know the current GPU in a new thread, or no descriptor can be encoded."""
    if not hasattr(THREADS, "knows"):
        THREADS.knows = True
        if torch.accelerator.is_available():
            torch.cuda.set_device(torch.cuda.current_device())


class Launch:
    """A launch that asks Triton once which compiled kernel fits, and then starts that one.

    Keep one for each key. ``launch(*tensors)`` passes the tensors of a call; the numbers and the
    constants are the same in all calls. All tensors are on one GPU, which need not be the current
    one.
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
            bases = [getattr(t, "base", t) for t in tensors]  # of descriptors
            with on_device_of(next(t for t in bases if isinstance(t, torch.Tensor))):
                know_the_gpu()
                self.prepare(len(tensors), self.ask(*tensors))
            return
        know_the_gpu()
        if hooks.launch_enter_hook.calls or self.device != self.active.get_current_device():
            with torch.accelerator.device_index(self.device):
                self.ask(*tensors)
        else:
            stream = self.active.get_current_stream(self.device)
            self.run(*self.grid, stream, *self.kept, *tensors, *self.rest)

    def prepare(self, count, compiled):
        """Keep what the driver needs beside the stream and the tensors."""
        if compiled is None:
            return  # the interpreter compiles nothing
        with LOCK:
            if self.device is not None:
                return  # another thread was faster
            names = self.kernel.arg_names[count + len(self.numbers) :]
            self.rest = (*self.numbers, *(self.constants[name] for name in names))
            # Threads that compile at the same time make one kernel each. Triton forgets all but
            # one, and a forgotten one unloads its code, unless we keep it.
            self.compiled = compiled
            self.kept = (compiled.function, compiled.packed_metadata, None, None, None)
            self.run, self.active = compiled.run, triton.runtime.driver.active
            self.device = self.active.get_current_device()  # last: now others may use the rest
