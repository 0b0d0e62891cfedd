"""Standard streams that never stop the program: who looks may go, and may read what he can.

A closed pipe (``| head``), a lost terminal, a stream that was closed from the start, a locale that
has no such characters: what cannot be shown is not shown, and the work goes on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, TextIO


def make_lasting() -> None:
    """Let ``sys.stdout`` and ``sys.stderr`` outlast whoever reads them."""
    _open_the_first_three()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, _Lasting):
            continue
        if stream is None:  # it was closed from the start
            stream = open(os.devnull, "w")  # noqa: SIM115 - as long as the program
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, _Lasting(stream))


def visible(text: str) -> str:
    """*text* of a stranger, without what steers a terminal or turns the direction of text."""
    return "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text)


def _open_the_first_three() -> None:
    """Have the descriptors 0, 1 and 2 taken, so that no other file becomes a standard stream."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return


class _Lasting:
    """A stream whose reader may go: from then on it writes to nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write *text*, while somebody reads."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            self._turn_away()
            return len(text)

    def flush(self) -> None:
        """Flush, while somebody reads."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._turn_away()

    def isatty(self) -> bool:
        """Whether somebody looks at a terminal."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream.isatty()
        return False

    def _turn_away(self) -> None:
        """Lead what is still to come, and what waits in buffers, to nowhere."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if self._stream.closed:
            self._stream = open(os.devnull, "w")  # noqa: SIM115 - as long as the program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
