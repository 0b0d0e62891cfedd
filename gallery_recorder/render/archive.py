"""Zip files that are the same whenever, and wherever, they are made of the same files."""

from __future__ import annotations

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

    def content(self, filled: dict[Path, Path] | None = None) -> bytes:
        """Its bytes, the same on every machine; *filled* files stand for those that they fill."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as made:
            for path in self.files:
                name = Path(os.path.relpath(path, self.base)).as_posix()
                info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                made.writestr(info, (filled or {}).get(path, path).read_bytes())
        return buffer.getvalue()

    def write(self) -> None:
        """Write it where it differs."""
        content = self.content()
        if not (self.path.is_file() and self.path.read_bytes() == content):
            self.path.write_bytes(content)
