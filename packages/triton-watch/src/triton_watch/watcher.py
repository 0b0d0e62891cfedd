"""Watch every address that kernels use while Triton's interpreter executes them.

Each argument of a kernel gets addresses of its own, far from all others. A load or a store looks up
its addresses there, and only then goes to memory. So nothing outside is ever read or written.
"""

import contextlib
import time

import numpy as np

from triton_watch.accesses import Accesses
from triton_watch.inplace import Trials
from triton_watch.interpreter import Interpreter
from triton_watch.kernels import Kernels
from triton_watch.limits import Limits
from triton_watch.memory import Memory
from triton_watch.operations import Operations
from triton_watch.places import FaultError, here, program_name
from triton_watch.process import LIMIT


class Watch:
    """While active, kernels run in the interpreter are watched, and what they move is counted."""

    current = None  # the active one

    def __init__(self, trace=None, compiler=None, limit=LIMIT):
        """Prepare a watch, which begins with ``with``.

        Args:
            trace: A Trace that collects what programs touch, or None.
            compiler: A Compiler that tries whether kernels compile, or None.
            limit: The seconds of processor time that one program of a kernel may take.
        """
        self.memory = Memory()
        self.launch = None
        self.trace = trace
        self.kernels = Kernels(self, compiler)
        self.limits = Limits(self, limit)
        self.trials = Trials(self)
        self.notes = []  # what is no fault, in sentences
        self.faults = []
        self.partly = []  # buffers that kernels got, and that may have gaps
        self.reset()
        self.alive = time.monotonic()  # when a program began last
        self.interpreter = Interpreter(self, Accesses(self))
        self.operations = Operations(self)

    def reset(self):
        """Count from 0."""
        self.loaded = 0  # bytes, by kernels
        self.stored = 0
        self.copied = 0  # bytes, loaded and stored by copies of PyTorch such as `.contiguous()`
        self.dots = 0
        self.multiplied = 0
        self.launches = 0

    def remarks(self):
        """What is no fault by itself, in sentences."""
        return [*self.notes, *self.gaps()]

    def gaps(self):
        """What kernels have left out of tensors that still exist, in sentences."""
        for buffer in self.partly:
            if buffer.storage() is not None:
                buffer.look()
                if buffer.unwritten is not None:
                    missing = buffer.unwritten.values
                    yield (
                        f"{buffer.kernel} leaves out a part of `{buffer.name}`: {missing.sum()} of "
                        f"{len(missing)} elements have never been written; the first is at "
                        f"{np.argmax(missing)}."
                    )

    def note(self, fault):
        """Keep a fault, and return it: the program may catch the error."""
        self.faults.append(fault)
        return fault

    def fault(self, title, *rows):
        """Return the error to raise for what the current program does in the current line."""
        launch = self.launch
        grid = launch.grid
        place = program_name(self.interpreter.program, grid)
        return self.note(
            FaultError(
                title,
                ("kernel", f"{launch.kernel}, {here()}"),
                ("program", f"{place}, in a grid of {program_name(grid, grid)}"),
                *rows,
                ("launched", launch.line),
            )
        )

    def goes_on(self):
        """Note that this process makes progress."""
        self.alive = time.monotonic()

    def finish(self):
        """Wait for what the compiler says of the kernels, and add it to the faults."""
        self.faults += self.kernels.refused()

    def begin_launch(self, launch, arguments, named):
        """A kernel is about to run."""
        self.launch = launch
        self.launches += 1
        self.goes_on()
        self.trials.begin(arguments, named)
        if self.trace:
            self.trace.begin(launch)

    def check_launch(self):
        """All programs of the launch have run: look at what they did together."""
        self.trials.end(self.launch)
        self._note_repeated_stores()

    def end_launch(self):
        """The launch is over, with or without an error."""
        for one in self.launch.ranges.values():
            buffer = one.buffer
            if buffer.unwritten is not None and buffer not in self.partly:
                self.partly.append(buffer)
        if self.trace:
            self.trace.end()
        self.launch = None
        self.goes_on()

    def _note_repeated_stores(self):
        """Note a kernel of which each program stores the same elements."""
        for buffer, uses in self.launch.uses.items():
            fewest = uses.fewest_stores()
            if fewest < 2:
                continue
            programs = int(np.prod(self.launch.grid))
            self.notes.append(
                f"{self.launch.kernel} stores each element of `{buffer.name}` several times: in "
                f"{fewest} of {programs} programs, with the same value. Does each program do all "
                "the work? Usual cause: `tl.program_id` is not a part of the offsets."
            )

    def __enter__(self):
        self.interpreter.begin()
        self.operations.__enter__()
        Watch.current = self
        return self

    def __exit__(self, *error):
        Watch.current = None
        self.operations.__exit__(None, None, None)
        self.interpreter.end()


@contextlib.contextmanager
def watching():
    """The active watch, or a new one."""
    if Watch.current:
        yield Watch.current
    else:
        with Watch() as watch:
            yield watch
