"""A lock between recorders: of one recording, and of one GPU.

The kernel gives it back when its holder ends, however that ends, so a crash leaves none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL = 0.1


def try_lock(path: Path) -> int | None:
    """Take the lock *path* and return what :func:`unlock` needs; None where another holds it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # the holder before removed the folder just now
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before removes the file; then this lock is on a file that nobody finds.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                os.truncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def unlock(path: Path, descriptor: int) -> None:
    """Give the lock back and remove its file."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, stop: threading.Event, waiting: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock *path*, or give False when *stop* is set before it is free.

    *waiting* is told which process has it, if one has.
    """
    descriptor = try_lock(path)
    if descriptor is None:
        waiting(holder(path))
    while descriptor is None and not stop.wait(_POLL):
        descriptor = try_lock(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            unlock(path, descriptor)


def holder(path: Path) -> str:
    """The process that holds the lock, as far as it can be told."""
    with contextlib.suppress(OSError):
        if number := path.read_text().strip():
            return f"process {number}"
    return "another process"
