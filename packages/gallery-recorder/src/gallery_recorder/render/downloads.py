"""Downloads: notebooks with outputs, scripts, and archives with reproducible bytes.

sphinx-gallery's files beside the sources stay unchanged. The finished files are written into the
site.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from sphinx.application import Sphinx

from gallery_recorder.render import notebook
from gallery_recorder.render.selection import Selection

#: The suffixes of downloads that are finished here, beside archives.
_FINISHED = (".ipynb", ".py")


@dataclass(frozen=True)
class Archive:
    """A zip file of *files*, with their paths below *base*."""

    base: Path
    files: tuple[Path, ...]

    def write(self, path: Path, finished: Mapping[Path, Path]) -> None:
        """Write it to *path*, with *finished* files instead of raw ones.

        An archive there that has the same files and is newer than all of them is kept. The bytes
        depend only on the names and contents of the files.
        """
        files = [finished.get(file, file) for file in self.files]
        names = [os.path.relpath(file, self.base).replace(os.sep, "/") for file in self.files]
        try:
            newest = max(os.stat(file).st_mtime_ns for file in files)
            if os.stat(path).st_mtime_ns > newest:
                with ZipFile(path) as there:
                    if there.namelist() == names:
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


def finish(app: Sphinx, made: Selection, written: set[str] | None) -> None:
    """Finish the notebooks and scripts of the pages *written* (None: of all), and all archives.

    They are written to their places in the site. The environment, which is saved already, then
    lists them no longer, so Sphinx does not copy the raw files there.
    """
    source, target = Path(app.srcdir), Path(app.outdir, "_downloads")
    offered: dict[Any, Any] = app.env.dlfiles
    with_outputs = app.config.gallery_notebooks == "outputs"
    keys = {source / name: name for name in offered}
    finished: dict[Path, Path] = {}
    for raw in keys:
        docname = raw.relative_to(source).with_suffix("").as_posix()
        page = made.pages.get(docname)
        if raw.suffix not in _FINISHED or not raw.is_file() or (raw.suffix == ".py" and not page):
            continue
        finished[raw] = path = target / offered[keys[raw]][1]
        if written is None or docname in written or not path.is_file():
            content = raw.read_bytes()
            if page and raw.suffix == ".py":
                text = app.emit_firstresult("gallery-script", docname, content.decode())
                content = text.encode() if text is not None else content
            elif page:
                content = notebook.finished(content, page, app, with_outputs)
            write(path, content)
    for raw, archive in made.archives.items():
        if raw in keys:
            path = target / offered[keys[raw]][1]
            archive.write(path, finished)
            finished[raw] = path
    for raw in finished:
        del offered[keys[raw]]


def write(path: Path, content: bytes) -> None:
    """Write a file unless it has this content: Sphinx detects changes by modification times."""
    if not (path.is_file() and path.read_bytes() == content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
