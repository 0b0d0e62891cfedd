"""What each program of a kernel touches, step by step, as data that the player shows.

The data is JSON (``SCHEMA``)::

    {"schema": 1,
     "launches": [
       {"kernel": "add_kernel",
        "grid": [2, 1, 1],
        "launched": "script.py line 20 `add_kernel[(2,)](x, y, out, 10, BLOCK=8)`",
        "functions": [{"name": "add_kernel", "file": "script.py", "first": 7, "source": ["…"]}],
        "tensors": [{"name": "x_ptr", "shape": [10], "dtype": "float32"}],
        "programs": [{"index": [0, 0, 0], "steps": [
          {"kind": "load", "tensor": 0, "line": 10, "elements": [[0, 8]], "bytes": 32}]}],
        "left_out": 0}]}

``elements`` are what the step touches, ``masked`` what its mask leaves out, ``outside`` what is out
of bounds; each is left out where it is empty. They number the elements of the tensor in the order
of its last axis, and are written as *runs*: ``[first, count]``, or ``[first, count, times, step]``
for *times* runs whose beginnings are *step* apart. What lies outside has the number that it would
have in a longer tensor, or one below zero. ``function`` says which of the functions the line
belongs to, where that is not the first one. A step may have a ``text``, and a step that only says
something has no tensor.
"""

import inspect
import json
import linecache
import os
import pkgutil

import numpy as np

from triton_watch.memory import LARGE, SLOT
from triton_watch.places import reader_frame

SCHEMA = 1
PROGRAMS = 256  # of a launch; the trace leaves out those behind them
STEPS = 10_000  # of all launches together


class Trace:
    """Collects what programs touch while kernels are watched."""

    def __init__(self, programs=PROGRAMS, steps=STEPS):
        self.launches = []
        self._most_programs = programs
        self._steps_left = steps
        self._current = None  # what is being recorded of the current launch

    def begin(self, launch):
        """A kernel is launched."""
        self._current = _TracedLaunch(launch)
        self.launches.append(self._current)

    def end(self):
        """The launch is over."""
        self._current = None

    def access(self, kind, launch, pointers, mask):
        """The current program of *launch* is about to load, store or update elements.

        Args:
            kind: ``load``, ``store`` or ``atomic``.
            launch: The launch, which knows the ranges of addresses.
            pointers: The block of addresses.
            mask: Which of them are used, an array of their shape.
        """
        traced = self._current
        if traced is None or not self._steps_left:
            return
        if launch.order.program > self._most_programs:
            return
        self._steps_left -= 1
        traced.access(kind, launch, pointers, mask)

    def data(self):
        """The trace as a dictionary that JSON can hold."""
        return {"schema": SCHEMA, "launches": [launch.data() for launch in self.launches]}

    def to_json(self):
        """The trace as text, in as few bytes as JSON allows."""
        return json.dumps(self.data(), separators=(",", ":"), ensure_ascii=False)

    def to_html(self, title="Trace"):
        """The trace and its player as one HTML page that fetches nothing."""
        return page(self.data(), title)


class _TracedLaunch:
    """What is recorded of one launch."""

    def __init__(self, launch):
        self.launch = launch
        self.functions = []
        self.tensors = []
        self.programs = []
        self._number_of_function = {}  # by its code object
        self._number_of_tensor = {}  # by its slot of addresses
        self._numbers = {}  # of the elements of a view, by its slot

    def access(self, kind, launch, pointers, mask):
        number = launch.order.program
        if not self.programs or self.programs[-1]["number"] != number:
            self.programs.append({"number": number, "steps": []})
        steps = self.programs[-1]["steps"]
        place = self._place()
        addresses = pointers.data.reshape(-1)
        chosen = np.broadcast_to(np.asarray(mask, bool), pointers.data.shape).reshape(-1)
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        slots = addresses >> np.uint64(SLOT)
        for slot in np.unique(slots).tolist():
            one = launch.ranges.get(slot)
            here = slots == slot
            if one is None:
                if (here & chosen).any():
                    steps.append({"kind": kind, **place, "text": "an address of no known tensor"})
                continue
            step = {"kind": kind, "tensor": self._tensor(one), **place}
            step |= self._elements(one, addresses[here], chosen[here])
            step["bytes"] = int(chosen[here].sum()) * width
            steps.append(step)

    def _place(self):
        """The reader's line that is being executed, and its function."""
        frame = reader_frame()
        if frame is None:
            return {}
        code = frame.f_code
        if code not in self._number_of_function:
            self._number_of_function[code] = len(self.functions)
            self.functions.append(_source_of(code))
        function = self._number_of_function[code]
        place = {"line": frame.f_lineno}
        if function:
            place["function"] = function
        return place

    def _tensor(self, one):
        """The number of a tensor in the trace."""
        if one.slot not in self._number_of_tensor:
            self._number_of_tensor[one.slot] = len(self.tensors)
            dtype = str(one.dtype).removeprefix("torch.")
            shape = list(one.place.shape)
            self.tensors.append({"name": one.name, "shape": shape, "dtype": dtype})
        return self._number_of_tensor[one.slot]

    def _elements(self, one, addresses, chosen):
        """The elements of a step: touched, masked and out of bounds."""
        places = (addresses.astype(np.int64) - one.first) // one.width
        inside = (places >= 0) & (places < one.length)
        numbers = places.copy()
        numbering = self._numbering(one)
        if numbering is not None:
            numbers[inside] = numbering[places[inside]]
            inside &= numbers >= 0  # between the elements of a view lie others
            size = int(np.prod(one.place.shape))
            behind = places >= one.length
            numbers[behind] += size - one.length
        kinds = {
            "elements": chosen & inside,
            "outside": chosen & ~inside,
            "masked": ~chosen,
        }
        return {name: runs(numbers[which]) for name, which in kinds.items() if which.any()}

    def _numbering(self, one):
        """The number of each element of a view, by its place in memory; None if they are equal."""
        if one.slot not in self._numbers:
            self._numbers[one.slot] = _numbering(one.place)
        return self._numbers[one.slot]

    def data(self):
        launch = self.launch
        programs = []
        for program in self.programs:
            index = [int(i) for i in launch.program(program["number"])]
            programs.append({"index": index, "steps": program["steps"]})
        return {
            "kernel": launch.kernel,
            "grid": [int(n) for n in launch.grid],
            "launched": launch.line,
            "functions": self.functions,
            "tensors": self.tensors,
            "programs": programs,
            "left_out": int(np.prod(launch.grid)) - len(programs),
        }


def _numbering(place):
    """An array of numbers by place in memory, -1 for what is no element; None if contiguous."""
    expected = 1
    contiguous = True
    for size, stride in zip(reversed(place.shape), reversed(place.strides), strict=True):
        if size != 1 and stride != expected:
            contiguous = False
        expected *= size
    if contiguous or place.length > LARGE // 8:
        return None
    numbers = np.full(place.length, -1, np.int64)
    view = np.lib.stride_tricks.as_strided(
        numbers, place.shape, [8 * stride for stride in place.strides]
    )
    view[...] = np.arange(int(np.prod(place.shape))).reshape(place.shape)
    return numbers


def _source_of(code):
    """The name, the file and the lines of a function."""
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno
    source = inspect.getblock(lines[first - 1 :]) if lines else []
    return {
        "name": code.co_name,
        "file": os.path.basename(code.co_filename),
        "first": first,
        "source": [line.rstrip() for line in source],
    }


def runs(numbers):
    """Write a set of *numbers* as runs: ``[first, count]`` or ``[first, count, times, step]``."""
    numbers = np.unique(numbers)
    if not len(numbers):
        return []
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
    firsts = numbers[begins]
    counts = np.diff(begins, append=len(numbers))
    found = []
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        last = found[-1] if found else None
        if last is None or last[1] != count:
            found.append([first, count])
        elif len(last) == 2:
            last += [2, first - last[0]]
        elif first == last[0] + last[2] * last[3]:
            last[2] += 1
        else:
            found.append([first, count])
    return found


def in_runs(found):
    """The numbers that *runs* has written."""
    numbers = []
    for first, count, *more in found:
        times, step = more or (1, 0)
        for i in range(times):
            begin = first + i * step
            numbers += range(begin, begin + count)
    return numbers


def player():
    """The JavaScript of the player."""
    return pkgutil.get_data("triton_watch", "player.js").decode()


def page(data, title="Trace"):
    """One HTML page with a trace and its player."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    name = title.replace("&", "&amp;").replace("<", "&lt;")
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}</title>
<body style="margin: 0 auto; padding: 1rem; max-width: 75rem">
<triton-trace><script type="application/json">{text}</script></triton-trace>
<script>
{player()}
</script>
</body>
</html>
"""
