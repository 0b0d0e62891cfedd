"""Whether a script changed recordings that are not its own, where no kernel keeps it from that.

What lies below a folder of recordings is looked at before and after each script, by number, size
and times of its files, and what another recorder may have saved meanwhile is left out: a whole
recording, made since this recorder was started.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME
from gallery_recorder.store.recording import RecordingError

#: What recorders keep beside recordings begins so.
_OURS = (".lock-", ".workspace-")
_State = tuple[tuple[str, int, int, int, int], ...]


class Watch:
    """The recordings below *root*, as this recorder left them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._begun = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._seen = self._look()

    def saved(self, folder: Path) -> None:
        """This recorder has saved the recording in *folder*."""
        with self._lock:
            self._seen[folder] = _state_of(folder)

    def changed(self) -> list[Path]:
        """The folders of recordings that somebody else has changed since the last time."""
        with self._lock:
            before, self._seen = self._seen, self._look()
            other = {f for f, _ in before.items() ^ self._seen.items()}
        return sorted(folder for folder in other if not self._is_new(folder))

    def _is_new(self, folder: Path) -> bool:
        """Whether another recorder may have saved what is in *folder* now."""
        try:
            return recording.load(folder).run.recorded >= self._begun
        except RecordingError:  # it is damaged, so no recorder saved it
            return False

    def _look(self) -> dict[Path, _State]:
        found = {folder: _state_of(folder) for folder in recording.all_recordings(self._root)}
        # What belongs to none of them is looked at file by file.
        return found | {Path(file[0]): (file,) for file in _state_of(self._root)}


def _state_of(recorded: Path) -> _State:
    """Number, size and times of its files; folders with a recording of their own are left out."""
    found = []
    for folder, folders, names in os.walk(recorded):
        if folder != str(recorded) and FILE_NAME in names:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(_OURS)]
        for path in (os.path.join(folder, name) for name in (*folders, *names)):
            with contextlib.suppress(OSError):  # it has just been removed
                s = os.lstat(path)
                if not stat.S_ISDIR(s.st_mode) and not os.path.basename(path).startswith(_OURS):
                    found.append((path, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns))
    return tuple(sorted(found))
