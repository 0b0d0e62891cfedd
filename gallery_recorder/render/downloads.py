"""What readers download: notebooks with outputs, archives that are the same whenever made, copies.

sphinx-gallery's own notebooks and archives stay as they are, for by them it knows what changed.
Those to download are made beside Sphinx's doctrees, when pages have been read, and only where
their page is written; from there they are copied into the site, where they differ.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.builders import Builder

from gallery_recorder.render import notebook
from gallery_recorder.render.domain import domain_of

#: Below the folder of the doctrees.
FOLDER = "gallery-downloads"


def fill(app: Sphinx, builder: Builder, written: set[str] | None) -> None:
    """Make the notebooks and archives of the pages *written*; None stands for all."""
    if builder.format != "html":
        return
    domain = domain_of(app.env)
    source, target = Path(app.srcdir), Path(app.doctreedir, FOLDER)
    offered = {Path(name).as_posix() for name in app.env.dlfiles}
    filled: dict[Path, Path] = {}
    for docname, page in domain.pages.items():
        unfilled = source / f"{docname}.ipynb"
        if f"{docname}.ipynb" not in offered or not unfilled.is_file():
            continue
        path = filled[unfilled] = target / f"{docname}.ipynb"
        if written is None or docname in written or not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, notebook.with_outputs(unfilled.read_bytes(), page, app))
    packed = domain.now.packed if domain.now else {}
    for archive in domain.archives.values():
        name = archive.path.relative_to(source).as_posix()
        if name not in offered:
            continue
        path, signature = target / name, archive.signature(filled)
        if packed.get(path) != signature or not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, archive.content(filled))
            packed[path] = signature


def _write(path: Path, content: bytes) -> None:
    if not (path.is_file() and path.read_bytes() == content):
        path.write_bytes(content)


def copy_to_site(app: Sphinx, downloads: Iterable[tuple[Any, Any]], target: Path) -> None:
    """Copy *downloads*, each a source and its name in the site, where size or time differ.

    Sphinx itself compares the content of every file, each time.
    """
    ours = Path(app.doctreedir, FOLDER)
    for name, place in downloads:
        source = ours / name
        if not source.is_file():
            source = Path(app.srcdir, name)
        copy = target / place
        try:
            wanted = source.stat()
            found = copy.stat() if copy.is_file() else None
        except OSError:
            found = None
        if found and (found.st_size, found.st_mtime_ns) == (wanted.st_size, wanted.st_mtime_ns):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy)
