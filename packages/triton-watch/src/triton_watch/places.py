"""Where something happens, as a reader finds it: a file, a line, a program."""

import linecache
import os
import sys

import numpy as np
import torch


class FaultError(Exception):
    """A kernel does something that is undefined on a GPU.

    *title* names it in a few words. *rows* are pairs: a word, and what the reader should know.
    """

    def __init__(self, title, *rows):
        self.title, self.rows = title, rows
        lines = [f"  {word + ':':10s}{text}" for word, text in rows]
        super().__init__("\n".join([title, *lines]))


#: Folders of code that is not the reader's: the watch, and what others add by `not_theirs`.
_NOT_THEIRS = [os.path.dirname(__file__) + os.sep]


def not_theirs(folder):
    """Code in *folder* is not the reader's, so no message names its lines."""
    _NOT_THEIRS.append(folder + os.sep)


def theirs(filename):
    """Whether a file is the reader's, and not ours, Triton's, PyTorch's, NumPy's or Python's."""
    triton = sys.modules["triton"].__file__ if "triton" in sys.modules else torch.__file__
    libraries = [os.path.dirname(file) + os.sep for file in (triton, torch.__file__, np.__file__)]
    libraries.append(os.path.dirname(os.__file__) + os.sep)
    return not filename.startswith((*libraries, *_NOT_THEIRS, "<"))


def reader_frame():
    """The innermost frame of the reader's that is being executed; None if there is none."""
    frame = sys._getframe(1)
    while frame and not theirs(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def line_of(frame):
    """The reader's line that a frame executes or waits for; nothing if there is none."""
    while frame and not theirs(frame.f_code.co_filename):
        frame = frame.f_back
    if not frame:
        return ""
    return line(frame.f_code.co_filename, frame.f_lineno)


def line(filename, number):
    """A line: its file, its number and its text."""
    text = linecache.getline(filename, number).strip()
    return f"{os.path.basename(filename)} line {number}" + (f" `{text}`" if text else "")


def here():
    """The reader's line that is being executed."""
    return line_of(sys._getframe(1))


def line_in(error):
    """The innermost line of the reader's in the traceback of an error and of what it came from."""
    found = ""
    for one in chain(error):
        step, mine = one.__traceback__, ""
        while step:
            if theirs(step.tb_frame.f_code.co_filename):
                mine = line(step.tb_frame.f_code.co_filename, step.tb_lineno)
            step = step.tb_next
        found = mine or found
    return found


def chain(error):
    """An error and those that it came from."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def root_of(error):
    """The error inside of a kernel, or the error itself."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def program_name(place, grid):
    """A program as a reader writes it: ``3``, or ``(0, 3)`` in a grid of two axes."""
    axes = max([1, *(i + 1 for i, n in enumerate(grid) if n > 1)])
    names = [str(int(i)) for i in place[:axes]]
    return names[0] if axes == 1 else f"({', '.join(names)})"


def count_of(number, noun):
    """A number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
