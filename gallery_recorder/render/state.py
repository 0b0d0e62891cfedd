"""What a build leaves for the next one, in one file beside Sphinx's doctrees.

A build that succeeds writes it. Without the file, or without the doctrees, the next build is cold.
"""

from __future__ import annotations

import pickle
import re
import sys
from dataclasses import dataclass, field, replace
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


@dataclass
class Site:
    """What a build wrote with one builder into one folder: pages, and downloads as *files*.

    *shown* is a digest of everything that pages show of one another.
    """

    shown: str = ""
    pages: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


@dataclass
class State:
    """What the previous build knew.

    *inputs*, *generated* and, by document, *stamps* are digests: of scripts, recordings and
    settings, of the generated sources, and of the inputs of each page.
    """

    inputs: str = ""
    generated: str = ""
    stamps: dict[str, str] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)


def load(app: Sphinx) -> State:
    """The state that the previous build left; an empty one if other code wrote it."""
    path = Path(app.doctreedir, FILE_NAME)
    try:
        code, content = pickle.loads(path.read_bytes())
        state: State = pickle.loads(content) if code == _code() else State()
    except Exception:  # a missing or damaged file may raise anything; Sphinx's own is read so, too
        return State()
    return state


def save(app: Sphinx, state: State, **instead: Any) -> None:
    """Leave *state* for the next build, with other values of some fields *instead*."""
    path = Path(app.doctreedir, FILE_NAME)
    new = path.with_suffix(".new")
    new.write_bytes(pickle.dumps((_code(), pickle.dumps(replace(state, **instead)))))
    new.replace(path)


def _code() -> str:
    """Digest of Python's version and of the code that decides what pages contain."""
    engine = Path(__file__).parents[1]
    rooms = (engine / room for room in ("seam.py", "project", "store", "render"))
    return files.digest([sys.version, *files.times(rooms)])


def mark(app: Sphinx, of: str) -> Path:
    """A file that changes when *recordings*, or *introductions* of scripts, change.

    Pages that are made from these depend on the file, so Sphinx reads them again.
    """
    return Path(app.doctreedir, f"gallery-{of}.txt")


def write_marks(app: Sphinx, selection: Selection) -> None:
    """Change the files of :func:`mark` whose subject has changed."""
    pages = selection.pages.values()
    listed = (f"{item.label} {item.digest} {item.state}" for item in selection.recordings)
    texts = [f"{page.docname} {page.script.blocks[0].content}" for page in pages]
    used = Path(app.srcdir, app.config.sphinx_gallery_conf["backreferences_dir"] or "")
    used /= "backreferences_all.json"
    texts += [used.read_text(encoding="utf-8")] if used.is_file() else []
    write(mark(app, "recordings"), files.digest(listed).encode())
    write(mark(app, "introductions"), files.digest(texts).encode())


def inputs(app: Sphinx) -> tuple[str, str]:
    """Digests of everything that galleries are made from, and of the settings alone."""
    config = app.config
    values = {name: getattr(config, name) for name in config.values if name.startswith("gallery_")}
    parts = [sphinx_version, seam.version, app.builder.format]
    said = files.digest([*parts, _plain(config.sphinx_gallery_conf), _plain(values)])
    folders = [folder for folder, _ in seam.galleries(app)]
    folders += settings.read(config, Path(app.confdir)).roots
    return files.digest([said, *files.times(folders)]), said


def generated(app: Sphinx) -> str:
    """Digest of the sources that galleries were made into."""
    names = [pages for _, pages in seam.galleries(app)]
    names += filter(None, [app.config.sphinx_gallery_conf["backreferences_dir"]])
    return files.digest(files.times(Path(app.srcdir, name) for name in names))


def _plain(value: Any) -> str:
    """A setting as text that is the same in every process."""
    if isinstance(value, dict):
        return repr(sorted((str(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return repr([_plain(item) for item in value])
    if isinstance(value, set | frozenset):
        return repr(sorted(map(_plain, value)))
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    own = getattr(value, "__dict__", None)
    return f"{text} {_plain(own)}" if own and not callable(value) else text
