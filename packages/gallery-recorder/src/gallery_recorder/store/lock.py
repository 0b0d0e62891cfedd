"""Locks between commands: for a folder of recordings, for each recording, for each GPU.

Whoever replaces a folder of recordings, or an archive, holds the lock beside it from the first look
until the end. A recorder takes the lock of an example only while it holds that lock, too. So no
recorder works in a folder that is being replaced, and none begins to.

The kernel releases a lock when the process that holds it ends, even by a crash.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from gallery_recorder.store import atomic

_POLL = 0.1  # seconds
#: Reasons why nobody can change anything beside a folder.
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def locked(path: Path, stop: threading.Event, waiting: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock *path*; the value is False if *stop* is set before the lock is free.

    If the lock is not free, *waiting* is called with a description of its holder.
    """
    atomic.make_folder(path.parent)
    # The next holder may be another user, whatever the umask.
    lock = FileLock(path, mode=0o666, thread_local=False, poll_interval=_POLL)
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


@contextlib.contextmanager
def locked_at_once(path: Path) -> Iterator[bool]:
    """Hold the lock *path*; the value is False if another process holds it."""
    never_wait = threading.Event()
    never_wait.set()
    with locked(path, never_wait, lambda _: None) as free:
        yield free


def beside(path: Path) -> Path:
    """The lock of the folder of recordings, or of the archive, *path*."""
    real = Path(os.path.realpath(path))
    return real.with_name(f".{real.name}.lock")


@contextlib.contextmanager
def folders_locked(*paths: Path) -> Iterator[None]:
    """Hold the locks of several folders and archives; wait for them.

    Where nothing can be written beside one, nobody can replace it, so it needs no lock.
    """
    with contextlib.ExitStack() as held:
        # All commands lock in the same order, so no two wait for each other.
        for lock in sorted({beside(path) for path in paths}):
            try:
                held.enter_context(locked(lock, threading.Event(), lambda _: None))
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
        yield


def remove_leftovers(root: Path) -> None:
    """Remove what killed commands left beside the folder *root*, unless a command is using it."""
    real = Path(os.path.realpath(root))
    if atomic.has_leftovers(real) or os.path.lexists(beside(root)):
        with contextlib.suppress(OSError), locked_at_once(beside(root)) as free:
            if free:
                atomic.remove_leftovers(real)


@contextlib.contextmanager
def locked_in(
    root: Path, path: Path, stop: threading.Event, waiting: Callable[[str], None]
) -> Iterator[bool]:
    """As :func:`locked`, for a lock *path* in *root*, which another command may be replacing."""
    is_told = False
    while not stop.is_set():
        with contextlib.ExitStack() as held:
            with folders_locked(root):
                mine = held.enter_context(locked_at_once(path))
            if mine:
                yield True
                return
        if not is_told:
            is_told = True
            waiting("another recorder")
        time.sleep(_POLL)
    yield False


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
