"""Temporary folders of commands; the next command removes those of killed commands."""

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

_PREFIX = "gallery-recorder-tmp-"
_LOCK = ".lock"
_UNLOCKED = 60.0  # seconds after which a folder without a lock is nobody's


class TemporaryFolder:
    """A folder in the system's temporary folder; it is removed when it is closed.

    The process holds a lock in it, so another command can tell whether the process still runs.
    """

    def __init__(self) -> None:
        """Make the folder, and remove folders of killed commands."""
        remove_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = FileLock(self.path / _LOCK, thread_local=False)
        self._lock.acquire()

    def close(self) -> None:
        """Remove the folder, its lock last: without it, the folder would not be cleaned up soon."""
        with contextlib.suppress(FileNotFoundError):  # whoever used it has removed it
            for path in self.path.iterdir():
                if path.name != _LOCK:
                    _remove(path)
        self._lock.release()
        _remove(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def remove_leftovers() -> None:
    """Remove folders of killed commands."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            is_left = _is_left(folder)
        except OSError:  # another user's, or another command has just removed it
            continue
        if is_left:
            _remove(folder)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_left(folder: Path) -> bool:
    """Whether the process that made *folder* was killed."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    if not (folder / _LOCK).exists():
        return time.time() - folder.stat().st_mtime > _UNLOCKED
    try:
        with FileLock(folder / _LOCK).acquire(blocking=False):
            return True
    except Timeout:
        return False
