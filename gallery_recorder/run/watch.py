"""Whether a script changed recordings that are not its own, where no kernel keeps it from that.

What lies below a folder of recordings is looked at before and after each script, by number, size
and times of its files, and what another recorder may have saved meanwhile is left out: a whole
recording, made since this recorder was started.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME
from gallery_recorder.store.recording import RecordingError

_State = tuple[int, int, int, int]


class Watch:
    """The recordings below *root*, as this recorder left them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._begun = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._seen = dict(self._look())

    def saved(self, folder: Path) -> None:
        """This recorder has saved the recording in *folder*."""
        with self._lock:
            self._seen = {p: s for p, s in self._seen.items() if folder not in p.parents}
            self._seen |= {p: s for p, s in self._look() if folder in p.parents}

    def changed(self) -> list[Path]:
        """The folders of recordings that somebody else has changed since the last time."""
        with self._lock:
            now = dict(self._look())
            paths = {p for p in now.keys() | self._seen.keys() if now.get(p) != self._seen.get(p)}
            known = {p.parent for p in now.keys() | self._seen.keys() if p.name == FILE_NAME}
            self._seen = now
        folders = {next((f for f in p.parents if f in known), p.parent) for p in paths}
        return sorted(folder for folder in folders if not self._is_new(folder))

    def _is_new(self, folder: Path) -> bool:
        """Whether another recorder may have saved what is in *folder* now."""
        try:
            return recording.load(folder).run.recorded >= self._begun
        except RecordingError:  # it is damaged, so no recorder saved it
            return False

    def _look(self) -> Iterator[tuple[Path, _State]]:
        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                if not name.startswith("."):
                    path = Path(folder, name)
                    try:
                        s = path.lstat()
                    except OSError:  # it has just been removed
                        continue
                    yield path, (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
