"""Digests of files by name, size and modification time, to detect changes."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def times(paths: Iterable[Path]) -> Iterable[str]:
    """The name, size and modification time of each file at or below *paths*.

    Links to folders are not followed.
    """
    for path in paths:
        yield str(path)
        if path.is_file():
            yield str(path.stat().st_mtime_ns)
        for folder, inside, names in os.walk(path):
            inside[:] = sorted(name for name in inside if name != "__pycache__")
            yield folder
            for name in sorted(names):
                file = os.path.join(folder, name)
                status = os.stat(file) if os.path.exists(file) else os.lstat(file)
                yield f"{name} {status.st_size} {status.st_mtime_ns}"


def digest(parts: Iterable[str]) -> str:
    """One SHA-256 of several texts."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode(errors="surrogateescape") + b"\0")
    return made.hexdigest()
