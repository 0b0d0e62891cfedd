"""What a build leaves for the next: what it was made from, so that nothing is done twice.

Kept in one file beside Sphinx's doctrees, written when a build has succeeded. Whoever deletes it,
or the doctrees, gets a cold build.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sphinx import __version__ as sphinx_version
from sphinx.application import Sphinx

from gallery_recorder.render import files, seam
from gallery_recorder.render.archive import Archive
from gallery_recorder.render.choice import Choice
from gallery_recorder.source import settings

FILE_NAME = "gallery-recorder.pickle"

#: The folders of this package whose code decides what pages are made of.
_OWN_CODE = Path(__file__).parents[1]


@dataclass
class State:
    """What the last build knew.

    Attributes:
        inputs: digest of scripts, recordings and settings; ``settings`` of the latter alone.
        generated: digest of the files that sphinx-gallery and the recordings pages made.
        choice: the recording of each page; ``stamps`` what each page was made from.
        archives: the zip files that sphinx-gallery made; ``packed`` what is in them, and in those
            to download.
        shown: by builder and folder, what pages showed of one another.
    """

    inputs: str = ""
    settings: str = ""
    generated: str = ""
    choice: Choice = field(default_factory=Choice)
    stamps: dict[str, str] = field(default_factory=dict)
    archives: dict[Path, Archive] = field(default_factory=dict)
    packed: dict[Path, str] = field(default_factory=dict)
    shown: dict[str, dict[str, str]] = field(default_factory=dict)


def load(app: Sphinx) -> State:
    """What the last build left; nothing where there was none, or one by other code than this."""
    try:
        with Path(app.doctreedir, FILE_NAME).open("rb") as file:
            if file.read(64).decode() == _own_code():
                found = pickle.load(file)
                return found if isinstance(found, State) else State()
    except Exception:  # a damaged file, whatever is wrong with it, is none
        return State()
    return State()


def save(app: Sphinx, state: State) -> None:
    """Leave *state* for the next build."""
    path = Path(app.doctreedir, FILE_NAME)
    new = path.with_suffix(".new")
    new.write_bytes(_own_code().encode() + pickle.dumps(state))
    new.replace(path)


@cache
def _own_code() -> str:
    """Digest of the code that decides what pages are made of."""
    return files.digest(files.times(_OWN_CODE / room for room in ("render", "source", "store")))


def inputs(app: Sphinx) -> tuple[str, str]:
    """Digests of all that the galleries are made from, and of the settings alone."""
    said = _settings(app)
    folders = [folder for folder, _ in seam.galleries(app)]
    folders += settings.read(app.config, Path(app.confdir)).roots
    return files.digest([said, *files.times(folders)]), said


def generated(app: Sphinx) -> str:
    """Digest of the files that the galleries were made into."""
    conf = app.config.sphinx_gallery_conf
    folders = [Path(app.srcdir, pages) for _, pages in seam.galleries(app)]
    if conf["backreferences_dir"]:
        folders.append(Path(app.srcdir, conf["backreferences_dir"]))
    return files.digest(files.times(folders))


def _settings(app: Sphinx) -> str:
    config = app.config
    values = {name: getattr(config, name) for name in config.values if name.startswith("gallery_")}
    parts = [sphinx_version, seam.VERSION, app.builder.format]
    parts += [_plain(config.sphinx_gallery_conf), _plain(values)]
    return files.digest(parts)


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
