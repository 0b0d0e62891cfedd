"""Locks between recorders: one for each recording and one for each GPU of the machine.

The kernel releases a lock when the process that holds it ends, even by a crash.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout


@contextlib.contextmanager
def locked(path: Path, stop: threading.Event, waiting: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock *path*; the value is False if *stop* is set before the lock is free.

    If the lock is not free, *waiting* is called with a description of its holder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The next holder may be another user, whatever the umask.
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
    """Whether a process holds the lock *path*; the file of a killed process is not held."""
    try:
        with FileLock(path, mode=0o666).acquire(blocking=False):
            return False
    except Timeout:
        return True


def machine_folder() -> Path:
    """The folder for locks of this machine, the same for all users, whatever their TMPDIR."""
    folder = Path("/tmp/gallery-recorder-locks")
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o777)  # not sticky: there the kernel refuses to open another user's file
    return folder
