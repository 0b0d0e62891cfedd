"""Temporary folders of commands; the next command removes those of killed commands."""

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
        _remove_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = FileLock(self.path / _LOCK, thread_local=False)
        self._lock.acquire()

    def close(self) -> None:
        """Remove the folder."""
        self._lock.release()
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            is_left = _is_left(folder)
        except OSError:  # another user's, or another command has just removed it
            continue
        if is_left:
            shutil.rmtree(folder, ignore_errors=True)


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
