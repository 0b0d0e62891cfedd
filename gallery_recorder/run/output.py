"""What a script prints, block by block: by Python, by C code, by kernels and child processes.

sphinx-gallery shows what goes through Python's ``sys.stdout`` and ``sys.stderr``, joined. Here each
is also written to the real descriptor, where the output of everything else lands as well, in the
order in which it was printed.
"""

from __future__ import annotations

import ctypes
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from gallery_recorder import seam
from gallery_recorder.run.protocol import OUTPUTS, Refusal
from gallery_recorder.run.text import clean, undeceiving


class Output:
    """What reaches the descriptors 1 and 2, which are the files *stdout* and *stderr*.

    ``taken`` are the bytes of each that have been taken. *apart*: sphinx-gallery shows what reached
    descriptor 1; else what Python printed to either.
    """

    def __init__(self, stdout: Path, stderr: Path, limit: int, apart: bool) -> None:
        self._files = (stdout, stderr)
        self._limit = limit
        self._apart = apart
        self._joined: list[str] = []
        self.before = (sys.stdout, sys.stderr)
        self.streams = (_Stream(1, limit, self._joined), _Stream(2, limit, self._joined))
        self.taken = [0, 0]
        self._libc = ctypes.CDLL(None)
        Tee.catcher = self
        self.take()  # what was printed while conf.py was read

    def begin(self) -> None:
        """A block begins."""
        self._joined.clear()
        for stream in self.streams:
            stream.written = 0

    def shown(self) -> str:
        """What sphinx-gallery shows as the output of the block so far."""
        return clean(self._read(0)) if self._apart else undeceiving("".join(self._joined))

    def take(self, limited: bool = True) -> list[bytes]:
        """What was printed since the last time, standard output first.

        Raises:
            Refusal: it is more than the limit, where it is *limited*.
        """
        found = []
        for number, name in enumerate(OUTPUTS):
            text = self._read(number)
            if limited and len(text) > self._limit:
                raise too_much(name, self._limit)
            self.taken[number] += len(text)
            found.append(text)
        return found

    def _read(self, number: int) -> bytes:
        for stream in (*self.streams, *self.before):
            with suppress(ValueError, AttributeError):  # the script closed it
                stream.flush()
        self._libc.fflush(None)
        with open(self._files[number], "rb") as file:
            file.seek(self.taken[number])
            return file.read(self._limit + 1)


def too_much(what: str, limit: int) -> Refusal:
    """The refusal of more than *limit* bytes."""
    return Refusal(
        f"printed more than {limit:,} bytes to {what} in one block",
        "Print what a reader reads; write more to a file. gallery_limits in conf.py sets the "
        "limit.",
    )


def stderr_rst(text: str) -> str:
    """What a page shows of *text*, where standard error is apart."""
    if not text.strip():
        return ""
    shown = "".join(f"    {line}\n" for line in text.strip("\n").splitlines())
    return (
        f"\n.. rst-class:: sphx-glr-script-out gallery-stderr\n\n .. code-block:: none\n\n{shown}\n"
    )


class _Stream(io.TextIOWrapper):
    """Standard output or error of Python; what is printed is also *joined* with the other's."""

    def __init__(self, descriptor: int, limit: int, joined: list[str]) -> None:
        raw = os.fdopen(os.dup(descriptor), "wb")
        super().__init__(
            raw, encoding="utf-8", errors="backslashreplace", newline="", line_buffering=True
        )
        self._descriptor = descriptor
        self._limit = limit
        self._joined = joined
        self.written = 0

    def write(self, text: str) -> None:  # type: ignore[override]  # no value that is shown
        self.written += len(text)
        if self.written > self._limit:
            raise too_much(OUTPUTS[self._descriptor - 1], self._limit)
        super().write(text)
        self._joined.append(text)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:  # more is to come, whatever the script thinks
        self.flush()


class Tee(seam.LoggingTee):
    """What sphinx-gallery's executor puts in the place of ``sys.stdout``."""

    catcher: ClassVar[Output]

    def __init__(self, src_filename: object = "") -> None:
        self.output = _Shown(self.catcher)  # sphinx-gallery reads it

    def set_std_and_reset_position(self) -> Tee:
        """Begin to catch, anew."""
        sys.stdout, sys.stderr = self.catcher.streams
        return self

    def restore_std(self) -> None:
        """Catch no more."""
        for stream in self.catcher.streams:
            stream.flush()
        sys.stdout, sys.stderr = self.catcher.before


class _Shown(io.StringIO):
    """What sphinx-gallery takes for all that was printed."""

    def __init__(self, catcher: Output) -> None:
        super().__init__()
        self._catcher = catcher

    def getvalue(self) -> str:
        return self._catcher.shown()


class NoInput(io.TextIOBase):
    """Standard input of a script: nobody is there to type, so reading it is refused."""

    def readable(self) -> bool:
        """It is there."""
        return True

    def fileno(self) -> int:
        """An empty descriptor."""
        return 0

    def _refuse(self, *_: Any) -> Any:
        raise Refusal(
            "reads from standard input, where nobody types",
            "Give the value in the script itself.",
        )

    read: Callable[..., Any] = _refuse
    readline: Callable[..., Any] = _refuse
    readlines: Callable[..., Any] = _refuse
    __next__: Callable[..., Any] = _refuse
