"""Collect the text that an example prints: from Python, C code, kernels and processes.

sphinx-gallery shows text written to Python's ``sys.stdout`` and ``sys.stderr``, joined. Here both
are also written to their file descriptors, in order with the output of C code and processes.
"""

import ctypes
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from gallery_recorder import seam
from gallery_recorder.run.protocol import Refusal
from gallery_recorder.run.text import clean


class Output:
    """The output on the file descriptors 1 and 2, which are the files *stdout* and *stderr*.

    With *apart*, sphinx-gallery shows the output on descriptor 1; else the text that Python printed
    to either stream.
    """

    def __init__(self, stdout: Path, stderr: Path, limit: int, apart: bool) -> None:
        self._files, self._limit, self._apart = (stdout, stderr), limit, apart
        self._joined: list[str] = []
        self.taken = [0, 0]  # bytes of each file from earlier blocks
        self.before = (sys.stdout, sys.stderr)
        self.streams = (_Stream(1, stdout, self._joined), _Stream(2, stderr, self._joined))
        self._libc = ctypes.CDLL(None)
        #: Called when the code of a block has ended, before scrapers start.
        self.after_code: Callable[[], None] = lambda: None
        Tee.output_of_example = self

    def begin(self) -> None:
        """Start a block."""
        self._joined.clear()

    def shown(self) -> str:
        """The output of the block so far, as sphinx-gallery shows it."""
        return clean(self._read(0)) if self._apart else "".join(self._joined)

    def take(self, limited: bool = True) -> list[bytes]:
        """The output since the last call, standard output first; Refusal if it is too long."""
        found = []
        for number, name in enumerate(("standard output", "standard error")):
            text = self._read(number)
            if limited and len(text) > self._limit:
                raise Refusal(
                    f"printed more than {self._limit:,} bytes to {name} in one block",
                    "Print less, or raise gallery_limits in conf.py.",
                )
            self.taken[number] += len(text)
            found.append(text)
        return found

    def _read(self, number: int) -> bytes:
        for stream in (*self.streams, *self.before):
            with suppress(ValueError, AttributeError, OSError):  # the example closed it
                stream.flush()
        self._libc.fflush(None)
        with open(self._files[number], "rb") as file:
            file.seek(self.taken[number])
            return file.read(self._limit + 1)


class _Raw(io.RawIOBase):
    """Writes to *descriptor* while it is *file*, and else to *file* itself.

    The example may close the descriptor and open a file of its own, which then gets its number.
    """

    def __init__(self, descriptor: int, file: Path) -> None:
        self._descriptor, self._file = descriptor, file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), os.stat(self._file)):
                return os.write(self._descriptor, content)
        with open(self._file, "ab", buffering=0) as file:
            return file.write(content)


class _Stream(io.TextIOWrapper):
    """Python's standard output or standard error; its text is also appended to *joined*."""

    def __init__(self, descriptor: int, file: Path, joined: list[str]) -> None:
        raw = io.BufferedWriter(_Raw(descriptor, file))
        super().__init__(raw, "utf-8", "backslashreplace", newline="", line_buffering=True)
        self._descriptor, self._joined = descriptor, joined

    def write(self, text: str) -> None:  # type: ignore[override]  # sphinx-gallery's has no value
        super().write(text)
        self._joined.append(text)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:  # not really: later blocks print, too
        self.flush()


class Tee(seam.LoggingTee):
    """The object by which sphinx-gallery replaces ``sys.stdout``."""

    output_of_example: ClassVar[Output]

    def __init__(self, src_filename: object = "") -> None:
        self.output = self

    def getvalue(self) -> str:
        """All printed text of the block; sphinx-gallery calls ``output.getvalue()``."""
        return self.output_of_example.shown()

    def set_std_and_reset_position(self) -> "Tee":
        """Start capturing output."""
        sys.stdout, sys.stderr = self.output_of_example.streams
        return self

    def restore_std(self) -> None:
        """Stop capturing output."""
        for stream in self.output_of_example.streams:
            stream.flush()
        sys.stdout, sys.stderr = self.output_of_example.before
        self.output_of_example.after_code()
