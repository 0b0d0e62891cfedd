"""A lock between recorders: of one recording, and of one GPU.

The kernel gives it back when its holder ends, however that ends, so a crash leaves none behind.
A lock's file may have been left by another user, and its folder be open to all: it is opened
without following a link, written only where it is a lock's, and left where it cannot be removed.
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
_MAX_BYTES = 64  # of a lock's file: the number of a process

#: Folders in which every user can make a file, whatever their TMPDIR, and remove none of another's.
_SHARED = (Path("/run/lock"), Path("/dev/shm"), Path("/tmp"))


def try_lock(path: Path) -> int | None:
    """Take the lock *path* and return what :func:`unlock` needs; None where another holds it.

    Raises:
        OSError: something is in its place that is no lock, or its folder cannot be written.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            continue  # the holder before removed it or its folder just now
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before removes the file; then this lock is on a file that nobody finds.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                _sign(descriptor)
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


def _open(path: Path) -> int:
    """Open the file of a lock for locking, and make it where there is none."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
    except FileExistsError:
        pass
    else:
        os.fchmod(descriptor, 0o666)  # whatever the umask: the next holder may be another user
        return descriptor
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | flags)
        except PermissionError:  # another user's; it can be locked all the same
            descriptor = _open_unwritable(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _stranger(path, "a symbolic link") from error
        raise
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1 or state.st_size > _MAX_BYTES:
        os.close(descriptor)
        raise _stranger(path, "no lock's file")
    return descriptor


def _open_unwritable(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_RDONLY | flags)
    except PermissionError:
        if _is_held(path):
            raise
        path.unlink()  # left over by somebody else, in a folder that is ours
        raise FileNotFoundError(errno.ENOENT, "was left over", str(path)) from None


def _is_held(path: Path) -> bool:
    """Whether some process holds a lock on a file that cannot be opened, as the kernel tells."""
    try:
        number = os.lstat(path).st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return True
    return any(
        line.split()[5].rpartition(":")[2] == str(number) for line in lines if "->" not in line
    )


def _stranger(path: Path, what: str) -> OSError:
    return OSError(errno.EEXIST, f"is {what}, in the place of a lock; remove it", str(path))


def _sign(descriptor: int) -> None:
    """Write down who holds the lock, where the file can be written."""
    with contextlib.suppress(OSError):
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def unlock(path: Path, descriptor: int) -> None:
    """Give the lock back and remove its file, where it is ours to remove."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
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
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            number = os.read(descriptor, _MAX_BYTES).decode("ascii", "replace").strip()
        finally:
            os.close(descriptor)
        if number.isdigit():
            return f"process {number}"
    return "another process"


def machine_folder() -> Path:
    """Where the locks of this machine are: the same folder for every user and every TMPDIR.

    It is the system's and sticky, so that nobody can remove another's lock there.
    """
    for folder in _SHARED:
        with contextlib.suppress(OSError):
            state = os.stat(folder)
            open_to_all = stat.S_IMODE(state.st_mode) & 0o1777 == 0o1777
            if stat.S_ISDIR(state.st_mode) and state.st_uid == 0 and open_to_all:
                return folder
    return Path(tempfile.gettempdir())
