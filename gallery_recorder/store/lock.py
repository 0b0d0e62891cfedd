"""Locks between recorders: one for each recording, one for each GPU of the machine.

The kernel releases a lock when its holder ends, however that ends: a crash leaves none behind.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout


@contextlib.contextmanager
def locked(path: Path, stop: threading.Event, waiting: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock *path*, or give False if *stop* is set before the lock is free.

    *waiting* gets the name of the holder if the lock is not free at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another user may be the next to hold it, whatever the umask.
    lock = FileLock(path, mode=0o666, thread_local=False, poll_interval=0.1)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            waiting("another recorder")
            lock.acquire(cancel_check=stop.is_set)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)  # before the release: whoever waits then locks a new file
        lock.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock *path*; the file may be left of one that was killed."""
    try:
        with FileLock(path, mode=0o666).acquire(blocking=False):
            return False
    except Timeout:
        return True


def machine_folder() -> Path:
    """The folder for locks of this machine: one for all users, whatever their TMPDIR."""
    folder = Path("/tmp/gallery-recorder-locks")
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o777)  # not sticky: there the kernel refuses to open another user's file
    return folder
