"""Notice an autotuned kernel that changes what it reads.

``triton.autotune`` times each configuration on the caller's tensors. A kernel that adds to its
output, or works in place, starts each trial from the result of the last one. So the result of the
first call is wrong, unless ``restore_value`` or ``reset_to_zero`` names the argument.
"""

import numpy as np

from triton_watch.memory import Shadow, in_memory, place_of
from triton_watch.places import FaultError, line


class Trials:
    """Compares the memory of an autotuned kernel before and after a launch."""

    def __init__(self, watch):
        self.watch = watch
        self.tuner = None  # the one whose kernel is about to be launched
        self.before = {}  # the bytes of each buffer at the beginning of the launch
        self.names = {}  # of the arguments in a buffer
        self.reads = {}  # a shadow: which elements were read before they were written
        self.writes = {}  # a shadow: which elements have been written

    def tuned(self, original, tuner, *arguments, **named):
        """``Autotuner.run``: several configurations are tried on the same tensors."""
        resets_itself = tuner.user_defined_pre_hook or any(c.pre_hook for c in tuner.configs)
        if len(tuner.configs) < 2 or resets_itself:
            return original(tuner, *arguments, **named)
        self.tuner = tuner
        try:
            return original(tuner, *arguments, **named)
        finally:
            self.tuner = None

    def begin(self, launch, arguments, named):
        """Remember the memory of the arguments that no option of the tuner brings back."""
        self.before, self.names, self.reads, self.writes = {}, {}, {}, {}
        if self.tuner is None:
            return
        values = dict(zip(self.tuner.arg_names, arguments, strict=False)) | named
        brought_back = {*self.tuner.restore_value, *self.tuner.reset_to_zero}
        safe = set()
        for name, value in values.items():
            if not in_memory(value):
                continue
            buffer = self.watch.memory.buffer(place_of(value).storage)
            if name in brought_back:
                safe.add(buffer)
            self.names.setdefault(buffer, name)
        for buffer in self.names:
            if buffer not in safe:
                self.before[buffer] = buffer.elements(1).copy()
                self.reads[buffer] = Shadow(buffer.size, 1, bool)
                self.writes[buffer] = Shadow(buffer.size, 1, bool)

    def read(self, buffer, offsets, width):
        """A program reads elements."""
        if buffer in self.before:
            index = self.reads[buffer].index(offsets, width)
            self.reads[buffer].values[index] |= ~self.writes[buffer].values[index]

    def written(self, buffer, offsets, width):
        """A program has written elements."""
        if buffer in self.before:
            index = self.writes[buffer].index(offsets, width)
            self.writes[buffer].values[index] = True

    def end(self, launch):
        """Raise the fault of a launch that has changed what it had read."""
        for buffer, before in self.before.items():
            changed = (buffer.elements(1) != before) & self.reads[buffer].values
            if changed.any():
                self.before = {}
                raise self.watch.note(self._fault(launch, buffer, int(np.argmax(changed))))

    def _fault(self, launch, buffer, offset):
        name = self.names[buffer]
        code = launch.function.__code__
        return FaultError(
            "an autotuned kernel changes what it reads: each trial starts from the last one's result",
            ("kernel", f"{launch.kernel}, {line(code.co_filename, code.co_firstlineno)}"),
            ("tensor", f"`{name}`, at byte {offset} of its memory"),
            ("trials", f"{len(self.tuner.configs)} configurations, and then the call itself"),
            (
                "cause",
                f'no `restore_value=["{name}"]` in `triton.autotune`, or `reset_to_zero` where '
                "the kernel adds to zeros",
            ),
            ("launched", launch.line),
        )
