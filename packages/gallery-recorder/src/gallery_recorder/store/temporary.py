"""Temporary folders of commands; the next command removes those of killed commands."""

import tempfile
import time
from pathlib import Path
from types import TracebackType

from filelock import FileLock

from gallery_recorder.store import atomic
from gallery_recorder.store.lock import is_held

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
        atomic.remove(self.path)

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
            if _is_left(folder):
                atomic.remove(folder)
        except OSError:  # another user's, or another command removes it
            continue


def _is_left(folder: Path) -> bool:
    """Whether the process that made *folder* was killed."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    lock = folder / _LOCK
    if lock.exists():
        return not is_held(lock)
    return time.time() - folder.stat().st_mtime > _UNLOCKED
