"""Standard streams whose failure does not stop the program.

Work goes on with a closed pipe (``| head``), a lost terminal, or a locale that lacks characters.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


def make_lasting() -> None:
    """Make ``sys.stdout`` and ``sys.stderr`` survive the loss of their readers."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed from the start
            stream = open(os.devnull, "w")  # noqa: SIM115 - as long as the program
        if not isinstance(stream, _Lasting):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, _Lasting(stream))


def confirms(question: str) -> bool:
    """Whether the user answers *question* with yes; if not, say that nothing was deleted."""
    answer = ""
    with contextlib.suppress(EOFError):
        answer = input(f"{question} [y/N] ")
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("Nothing was deleted. To delete without a question: --yes (make: YES=1)")
    return False


def visible(text: str) -> str:
    """*text* without characters that control the terminal or the direction of text."""
    return "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text)


class _Lasting:
    """A stream that discards its output once its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write *text*, unless the reader is gone."""
        with self._lasting():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, unless the reader is gone."""
        with self._lasting():
            self._stream.flush()

    @contextlib.contextmanager
    def _lasting(self) -> Iterator[None]:
        """Discard buffered and future output after an error: Python flushes again at exit."""
        try:
            yield
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as null:
                os.dup2(null.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
