"""A lock between recorders: of one recording, and of one GPU.

The kernel gives it back when its holder ends, however that ends, so a crash leaves none behind.
A lock's file may have been left by another user, and its folder be open to all: it is opened
without following a link, never written, and left where it cannot be removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL = 0.1
_MAX_BYTES = 64  # of a lock's file; what is larger is somebody's work
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

#: Folders in which every user can make a file, whatever their TMPDIR, and remove none of another's.
_SHARED = (Path("/run/lock"), Path("/dev/shm"), Path("/tmp"))


def try_lock(path: Path) -> int | None:
    """Take the lock *path* and return what :func:`unlock` needs; None where another holds it.

    Raises:
        OSError: something is in its place that is no lock, or its folder cannot be written.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Where it is not found, the holder before has removed it or its folder just now.
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as undo:
            descriptor = _open(path)
            undo.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            # The holder before removes the file; then this lock is on a file that nobody finds.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                undo.pop_all()
                return descriptor


def _open(path: Path) -> int:
    """Open the file of a lock for locking, and make it where there is none."""
    try:
        descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL)
        os.fchmod(descriptor, 0o644)  # whatever the umask: the next holder may be another user
        return descriptor
    except FileExistsError:
        pass
    try:
        descriptor = os.open(path, _FLAGS)
    except PermissionError:
        if _holder(path) is not None:
            raise
        path.unlink()  # left over by somebody else, in a folder that is ours
        return _open(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _stranger(path, "a symbolic link") from error
        raise
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1 or state.st_size > _MAX_BYTES:
        os.close(descriptor)
        raise _stranger(path, "no lock's file")
    return descriptor


def _stranger(path: Path, what: str) -> OSError:
    return OSError(errno.EEXIST, f"is {what}, in the place of a lock; remove it", str(path))


def unlock(path: Path, descriptor: int) -> None:
    """Give the lock back and remove its file, where it is ours to remove."""
    with contextlib.suppress(FileNotFoundError, PermissionError):  # another's, or gone
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
    with contextlib.suppress(OSError):  # it was given back, or this system tells nothing
        if (number := _holder(path) or 0) > 0:
            return f"process {number}"
    return "another process"


def _holder(path: Path) -> int | None:
    """The number of the process that holds a lock on the file, as the kernel tells."""
    inode = str(os.lstat(path).st_ino)
    for line in Path("/proc/locks").read_text().splitlines():
        _, *waits, _, _, _, process, file, _, _ = line.split()
        if not waits and file.rpartition(":")[2] == inode:
            return int(process)
    return None


def machine_folder() -> Path:
    """Where the locks of this machine are: the same folder for every user and every TMPDIR.

    It is the system's and sticky, so that nobody can remove another's lock there.
    """
    for folder in _SHARED:
        with contextlib.suppress(OSError):  # there is none
            state = os.stat(folder)
            open_to_all = stat.S_IMODE(state.st_mode) & 0o1777 == 0o1777
            if stat.S_ISDIR(state.st_mode) and state.st_uid == 0 and open_to_all:
                return folder
    return Path(tempfile.gettempdir())
