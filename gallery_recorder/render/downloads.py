"""What readers download: notebooks with outputs, archives that are the same whenever made, copies.

sphinx-gallery's own notebooks and archives stay as they are, for by them it knows what changed.
Those to download are made beside Sphinx's doctrees, when pages have been read, and only where
their page is written; from there they are copied into the site, where they differ.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from sphinx.application import Sphinx

from gallery_recorder.render import notebook
from gallery_recorder.render.selection import Selection

#: Below the folder of the doctrees.
FOLDER = "gallery-downloads"


@dataclass(frozen=True)
class Archive:
    """A zip file of *files*, with their paths below *base*."""

    base: Path
    files: tuple[Path, ...]

    def write(self, path: Path, filled: Mapping[Path, Path], known: bool = False) -> None:
        """Write it to *path*, unless it is there, of the same files, and nothing in it is newer.

        Its bytes are the same whenever, and wherever, it is made of the same files; *filled* ones
        stand for those that they fill. Where it is *known* that it is of the same files, it is not
        opened.
        """
        files = [filled.get(file, file) for file in self.files]
        names = [os.path.relpath(file, self.base).replace(os.sep, "/") for file in self.files]
        try:
            newest = max(os.stat(file).st_mtime_ns for file in files)
            if os.stat(path).st_mtime_ns > newest and (known or ZipFile(path).namelist() == names):
                return
        except (OSError, BadZipFile):
            pass
        path.parent.mkdir(parents=True, exist_ok=True)
        with ZipFile(path, "w") as made:
            for name, file in zip(names, files, strict=True):
                info = ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                made.writestr(info, file.read_bytes())


def fill(
    app: Sphinx, made: Selection, before: Mapping[Path, Archive], written: set[str] | None
) -> None:
    """Make notebooks of pages *written*, None stands for all, and archives; *before* are there."""
    source, target = Path(app.srcdir), Path(app.doctreedir, FOLDER)
    offered = {Path(name).as_posix() for name in app.env.dlfiles}
    filled: dict[Path, Path] = {}
    for unfilled in sorted({file for archive in made.archives.values() for file in archive.files}):
        name = unfilled.relative_to(source)
        if unfilled.suffix != ".ipynb" or name.as_posix() not in offered or not unfilled.is_file():
            continue
        docname, path = name.with_suffix("").as_posix(), target / name
        filled[unfilled] = path
        if written is None or docname in written or not path.is_file():
            content, page = unfilled.read_bytes(), made.pages.get(docname)
            write(path, notebook.with_outputs(content, page, app) if page else content)
    for path, archive in made.archives.items():
        name = path.relative_to(source)
        if name.as_posix() in offered:
            archive.write(target / name, filled, before.get(path) == archive)


def write(path: Path, content: bytes) -> None:
    """Write a file where it differs: by the times of files, Sphinx knows what to do again."""
    if not (path.is_file() and path.read_bytes() == content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_to_site(app: Sphinx, builder: Any) -> None:
    """Copy downloads where size or time differ; Sphinx compares the content of each, each time."""
    folders = (os.path.join(app.doctreedir, FOLDER), app.srcdir)
    for name, (_, place) in app.env.dlfiles.items():
        copy = os.path.join(builder.outdir, "_downloads", place)
        for source in (os.path.join(folder, name) for folder in folders):
            if wanted := _size_and_time(source):
                if _size_and_time(copy) != wanted:
                    os.makedirs(os.path.dirname(copy), exist_ok=True)
                    shutil.copy2(source, copy)
                break  # where there is neither, Sphinx has said so


def _size_and_time(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
