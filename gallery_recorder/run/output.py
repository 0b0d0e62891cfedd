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
from gallery_recorder.run.refusal import Refusal
from gallery_recorder.run.text import clean

_NAMES = ("standard output", "standard error")


class Output:
    """What reaches the descriptors 1 and 2, which are the files *stdout* and *stderr*.

    ``taken`` are the bytes of each that have been taken. *apart*: sphinx-gallery shows what reached
    descriptor 1; else what Python printed to either.
    """

    def __init__(self, stdout: Path, stderr: Path, limit: int, apart: bool) -> None:
        self._files = (stdout, stderr)
        self._limit = limit
        self._apart = apart
        self._streams = [_Stream(number, limit) for number in (1, 2)]
        self.taken = [0, 0]
        self._libc = ctypes.CDLL(None)
        self._joined = io.StringIO()
        Tee.catcher = self
        self.take()  # what was printed while conf.py was read

    def begin(self) -> None:
        """A block begins."""
        self._joined = io.StringIO()
        for stream in self._streams:
            stream.written = 0

    def write(self, number: int, text: str) -> int:
        """Python prints *text* to stream *number*, 0 or 1."""
        self._joined.write(text)
        return self._streams[number].write(text)

    def stream(self, number: int) -> _Stream:
        """Python's way to descriptor *number* + 1."""
        return self._streams[number]

    def shown(self) -> str:
        """What sphinx-gallery shows as the output of the block so far."""
        return clean(self._read(0)) if self._apart else self._joined.getvalue()

    def take(self, limited: bool = True) -> list[bytes]:
        """What was printed since the last time, standard output first.

        Raises:
            Refusal: it is more than the limit, where it is *limited*.
        """
        found = []
        for number, name in enumerate(_NAMES):
            text = self._read(number)
            if limited and len(text) > self._limit:
                raise too_much(name, self._limit)
            self.taken[number] += len(text)
            found.append(text)
        return found

    def _read(self, number: int) -> bytes:
        for stream in (*self._streams, sys.__stdout__, sys.__stderr__):
            with suppress(ValueError, AttributeError):  # the script closed it
                stream.flush()  # type: ignore[union-attr]
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


class _Stream(io.TextIOWrapper):
    """The real standard output or error, up to a limit a block."""

    def __init__(self, descriptor: int, limit: int) -> None:
        raw = os.fdopen(os.dup(descriptor), "wb")
        super().__init__(
            raw, encoding="utf-8", errors="backslashreplace", newline="", line_buffering=True
        )
        self._descriptor = descriptor
        self._limit = limit
        self.written = 0

    def write(self, text: str) -> int:
        self.written += len(text)
        if self.written > self._limit:
            raise too_much(_NAMES[self._descriptor - 1], self._limit)
        return super().write(text)


class Tee(seam.LoggingTee):
    """What sphinx-gallery's executor puts in the place of ``sys.stdout``."""

    catcher: ClassVar[Output]
    _number = 0

    def __init__(self, src_filename: object = "") -> None:
        self.output = _Shown(self.catcher)  # sphinx-gallery reads it
        self.origs = (sys.stdout, sys.stderr)
        self._error = self if self._number else _ErrorTee(src_filename)

    def set_std_and_reset_position(self) -> Tee:
        """Begin to catch, anew."""
        sys.stdout, sys.stderr = self, self._error
        return self

    def restore_std(self) -> None:
        """Catch no more."""
        self.flush()
        sys.stdout, sys.stderr = self.origs

    def write(self, data: str) -> int:
        """Write to the descriptor, and for sphinx-gallery."""
        return self.catcher.write(self._number, data)

    def flush(self) -> None:
        """Flush both streams."""
        for number in (0, 1):
            self.catcher.stream(number).flush()

    def fileno(self) -> int:
        """The descriptor."""
        return self._number + 1

    def isatty(self) -> bool:
        """Nobody looks."""
        return False

    @property
    def buffer(self) -> Any:
        """For bytes."""
        return self.catcher.stream(self._number).buffer

    @property
    def errors(self) -> str | None:
        """How characters are written that cannot be."""
        return self.catcher.stream(self._number).errors

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.catcher.stream(self._number), name)


class _ErrorTee(Tee):
    """The same for ``sys.stderr``."""

    _number = 1


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
