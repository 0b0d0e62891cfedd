"""Whether files are as they were, told by their names, sizes and times, as git tells it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def times(folders: Iterable[Path]) -> Iterable[str]:
    """The name, size and time of each file in *folders*; folders that are links are not entered.

    A file among them stands for itself.
    """
    waiting = [str(folder) for folder in reversed(list(folders))]
    while waiting:
        folder = waiting.pop()
        yield folder
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except NotADirectoryError:
            yield str(os.stat(folder).st_mtime_ns)
            continue
        except OSError:
            continue
        for entry in entries:
            if entry.name == "__pycache__":
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
                continue
            try:
                status = entry.stat()
            except OSError:
                status = entry.stat(follow_symlinks=False)  # a link to nothing
            yield f"{entry.name} {status.st_size} {status.st_mtime_ns}"


def digest(parts: Iterable[str]) -> str:
    """One digest of several texts."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode(errors="surrogateescape") + b"\0")
    return made.hexdigest()
