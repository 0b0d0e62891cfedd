"""Files that scrapers wrote for the whole site: below ``html_static_path`` or ``html_extra_path``.

Sphinx copies these folders as they are. Such a file of a recording goes to the same place of the
site, unless the site has a file of this name: a recording changes no other page.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from gallery_recorder.render.selection import Page

logger = logging.getLogger(__name__)

#: The folder in a recording for files that were written below the documentation's source folder.
_SOURCE = "source/"


def of_pages(app: Sphinx, pages: Iterable[Page]) -> dict[str, Path]:
    """The files of *pages* for the site, by their path below the output folder."""
    found: dict[str, Path] = {}
    for page in pages:
        for name in page.shown.assets if page.shown else ():
            target = _target(app, Path(app.srcdir, name.removeprefix(_SOURCE)))
            if target and page.folder:
                found[target] = page.folder / name
    return found


def _target(app: Sphinx, path: Path) -> str | None:
    """Where Sphinx would copy the file *path* to, below the output folder; None for nowhere."""
    config: Any = app.config
    folders = [(folder, "_static/") for folder in config.html_static_path]
    folders += [(folder, "") for folder in config.html_extra_path]
    for folder, prefix in folders:
        root = Path(app.confdir, folder)
        if path.is_relative_to(root):
            return prefix + path.relative_to(root).as_posix()
    return None


def copy(app: Sphinx, files: dict[str, Path], before: set[str]) -> None:
    """Copy *files* into the site; those that it already has must be among its files *before*."""
    for name, source in files.items():
        target = Path(app.outdir, name)
        if target.exists() and name not in before:
            if target.read_bytes() != source.read_bytes():
                text = f"{source}: is not copied to {name}, since the site has such a file"
                logger.warning("%s", text, type="gallery", subtype="recording")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
