"""What a build leaves for the next: what it was made from, so that nothing is done twice.

Kept in one file beside Sphinx's doctrees, written when a build has succeeded. Whoever deletes it,
or the doctrees, gets a cold build.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sphinx import __version__ as sphinx_version
from sphinx.application import Sphinx

from gallery_recorder import seam
from gallery_recorder.project import settings
from gallery_recorder.render import files
from gallery_recorder.render.downloads import write
from gallery_recorder.render.selection import Selection

FILE_NAME = "gallery-recorder.pickle"

#: The folder of this package, whose code decides what pages are made of.
_OWN_CODE = Path(__file__).parents[1]


@dataclass
class Site:
    """What a build wrote with one builder into one folder.

    Attributes:
        shown: what pages showed of one another.
        pages: the documents.
        files: the images and downloads of pages, below the site's root.
        rest: digest of what was written besides.
    """

    shown: str = ""
    pages: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    rest: str = ""


@dataclass
class State:
    """What the last build knew.

    Attributes:
        inputs: digest of scripts, recordings and settings.
        generated: digest of the files that sphinx-gallery and the recordings pages made.
        stamps: what each page was made from.
        sites: what was written, by builder and folder.
        chosen: ``selection``, the recording of each page, as it is in the file.
    """

    inputs: str = ""
    generated: str = ""
    stamps: dict[str, str] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    chosen: bytes = b""

    @cached_property
    def selection(self) -> Selection:
        """What was chosen; a build without change does not ask."""
        return pickle.loads(self.chosen) if self.chosen else Selection()


def load(app: Sphinx) -> State:
    """What the last build left; nothing where there was none, or one by other code than this."""
    path = Path(app.doctreedir, FILE_NAME)
    found = path.read_bytes() if path.is_file() else b""
    # A damaged file, whatever is wrong with it, is none.
    return pickle.loads(found[64:]) if found[:64] == _seal(found[64:]) else State()


def save(app: Sphinx, state: State, **instead: Any) -> None:
    """Leave *state* for the next build, with other values of some fields *instead*."""
    state = replace(state, chosen=pickle.dumps(state.selection), **instead)
    path = Path(app.doctreedir, FILE_NAME)
    new = path.with_suffix(".new")
    content = pickle.dumps(state)
    new.write_bytes(_seal(content) + content)
    new.replace(path)


def mark(app: Sphinx, of: str) -> Path:
    """A file that changes when *recordings* do, or *introductions* of scripts and names in them.

    A page that is made from these depends on it, and so Sphinx reads the page again.
    """
    return Path(app.doctreedir, f"gallery-{of}.txt")


def write_marks(app: Sphinx, selection: Selection) -> None:
    """Change the files of :func:`mark` whose content is another one."""
    pages = selection.pages.values()
    listed = (f"{item.label} {item.digest} {item.state}" for item in selection.recordings)
    texts = [f"{page.docname} {page.title} {page.introduction}" for page in pages]
    if seam.version.split(".") >= ["0", "22"]:  # before, it forgets names in pages that are current
        used = Path(app.srcdir, app.config.sphinx_gallery_conf["backreferences_dir"] or "")
        used /= "backreferences_all.json"
        texts += [used.read_text(encoding="utf-8")] if used.is_file() else []
    write(mark(app, "recordings"), files.digest(listed).encode())
    write(mark(app, "introductions"), files.digest(texts).encode())


def _seal(content: bytes) -> bytes:
    """Digest of what a build left, of Python and of the code that decides what pages are."""
    code = files.times(_OWN_CODE / room for room in ("render", "source", "store"))
    return files.digest([sys.version, *code, hashlib.sha256(content).hexdigest()]).encode()


def inputs(app: Sphinx) -> tuple[str, str]:
    """Digests of all that the galleries are made from, and of the settings alone."""
    said = _settings(app)
    folders = [folder for folder, _ in seam.galleries(app)]
    folders += settings.read(app.config, Path(app.confdir)).roots
    return files.digest([said, *files.times(folders)]), said


def generated(app: Sphinx) -> str:
    """Digest of the files that the galleries were made into."""
    names = [pages for _, pages in seam.galleries(app)]
    names += filter(None, [app.config.sphinx_gallery_conf["backreferences_dir"]])
    return files.digest(files.times(Path(app.srcdir, name) for name in names))


def _settings(app: Sphinx) -> str:
    config = app.config
    values = {name: getattr(config, name) for name in config.values if name.startswith("gallery_")}
    parts = [sphinx_version, seam.version, app.builder.format, _plain(settings.resets(config))]
    return files.digest([*parts, _plain(config.sphinx_gallery_conf), _plain(values)])


def _plain(value: Any) -> str:
    """A setting as text that is the same in every process."""
    if isinstance(value, dict):
        return repr(sorted((str(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return repr([_plain(item) for item in value])
    if isinstance(value, set | frozenset):
        return repr(sorted(map(_plain, value)))
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    own = getattr(value, "__dict__", None)
    return f"{text} {_plain(own)}" if own and not isinstance(value, re.Pattern) else text
