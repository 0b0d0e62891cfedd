"""Zip files that are the same whenever, and wherever, they are made of the same files."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Archive:
    """A zip file of *files*, with their paths below *base*."""

    path: Path
    base: Path
    files: list[Path]

    def signature(self, filled: dict[Path, Path] | None = None) -> str:
        """Of the names, sizes and times of what is in it."""
        parts = []
        for path in self.files:
            status = os.stat((filled or {}).get(path, path))
            parts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def content(self, filled: dict[Path, Path] | None = None) -> bytes:
        """Its bytes, the same on every machine; *filled* files stand for those that they fill."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as made:
            for path in self.files:
                name = os.path.relpath(path, self.base).replace(os.sep, "/")
                info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                made.writestr(info, (filled or {}).get(path, path).read_bytes())
        return buffer.getvalue()

    def write(self) -> None:
        """Write it where it differs, with its time of before.

        Sphinx would read each page again that offers a newer file, but none shows what is in it.
        """
        content = self.content()
        before = self.path.stat().st_mtime_ns if self.path.is_file() else None
        if before is None or self.path.read_bytes() != content:
            self.path.write_bytes(content)
        if before is not None:
            os.utime(self.path, ns=(before, before))
