"""The state of a build: the recording of each page, and the state that the previous build saved.

``env.get_domain("gallery")`` holds it. A successful build saves a :class:`State` for the next build
in a file beside Sphinx's doctrees. Without it, the next build makes all pages.
"""

import pickle
import re
import sys
from collections.abc import Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sphinx import __version__ as sphinx_version
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment

from gallery_recorder import seam
from gallery_recorder.render import files
from gallery_recorder.render.downloads import write
from gallery_recorder.render.selection import Page, Selection
from gallery_recorder.store import atomic

_FILE_NAME = "gallery-recorder.pickle"


@dataclass
class Site:
    """The files of *pages* and the downloads (*files*) that a build wrote into one folder.

    *shown* is a digest of everything that pages show from one another, *sections* of all headings.
    """

    shown: str = ""
    sections: str = ""
    pages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)


@dataclass
class State:
    """The state of a build; *stamps* are digests of the inputs of each page, by document."""

    stamps: dict[str, str] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)


class GalleryDomain(Domain):
    """The pages of examples and their recordings."""

    name = "gallery"
    label = "Gallery"

    def __init__(self, env: BuildEnvironment) -> None:
        """Start a build."""
        super().__init__(env)
        #: The state that the previous build saved, and the state that this build will save.
        self.before = State()
        self.now = State()
        #: The documents that this build reads.
        self.read: set[str] = set()
        #: The output of this build, and whether it writes all pages.
        self.site: Site | None = None
        self.all_are_written = False
        #: The files of recordings for the whole site, by their path below the output folder.
        self.assets: dict[str, Path] = {}

    @property
    def selection(self) -> Selection:
        """The pages and recordings of this build."""
        return self.now.selection

    @property
    def pages(self) -> dict[str, Page]:
        """The pages of examples by document, one for each recording that has a page."""
        return self.selection.pages

    @property
    def stale(self) -> list[str]:
        """The pages that show outputs of older code."""
        return sorted(page.docname for page in self.selection.main if page.is_stale)

    def depends(self, on: str) -> None:
        """Read the current page again when the *recordings* or *introductions* change.

        The settings in the comments of examples belong to their introductions.
        """
        self.env.note_dependency(str(_mark(seam.app_of(self.env), on)))

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Ignore the data of other processes that have read pages."""


def domain_of(env: BuildEnvironment) -> GalleryDomain:
    """The domain of a build's environment."""
    domain = env.domains["gallery"]
    assert isinstance(domain, GalleryDomain)
    return domain


# --- from one build to the next -------------------------------------------------------------------


def load(app: Sphinx) -> State:
    """The state that the previous build saved; an empty one if other code saved it."""
    try:
        code, content = pickle.loads(Path(app.doctreedir, _FILE_NAME).read_bytes())
        state: State = pickle.loads(content) if code == _code() else State()
    except Exception:  # unpickling a damaged file may raise anything
        return State()
    return state


def save(app: Sphinx, state: State, **instead: Any) -> None:
    """Save *state* for the next build, with the values of some fields *instead*."""
    content = pickle.dumps((_code(), pickle.dumps(replace(state, **instead))))
    atomic.write(Path(app.doctreedir, _FILE_NAME), content)


def _code() -> str:
    """Digest of Python's version and of the code that determines the content of pages."""
    engine = Path(__file__).parents[1]
    rooms = (engine / room for room in ("seam.py", "project", "store", "render"))
    return files.digest([sys.version, *files.times(rooms)])


def _mark(app: Sphinx, of: str) -> Path:
    """A file that changes with the *recordings*, or the *introductions* and settings of examples.

    Pages that show these depend on the file, so Sphinx reads them again.
    """
    return Path(app.doctreedir, f"gallery-{of}.txt")


def write_marks(app: Sphinx, selection: Selection) -> None:
    """Update the files of :func:`_mark`."""
    listed = (f"{item.label} {item.digest} {item.state}" for item in selection.recordings)
    pages = selection.pages.values()
    texts = [f"{p.docname} {p.script.blocks[0].content} {_plain(p.script.settings)}" for p in pages]
    used = Path(app.srcdir, app.config.sphinx_gallery_conf["backreferences_dir"] or "")
    used /= "backreferences_all.json"
    texts += [used.read_text(encoding="utf-8")] if used.is_file() else []
    write(_mark(app, "recordings"), files.digest(listed).encode())
    write(_mark(app, "introductions"), files.digest(texts).encode())


def settings_of(app: Sphinx) -> str:
    """Digest of the settings and versions that all pages depend on."""
    config = app.config
    values = {name: getattr(config, name) for name in config.values if name.startswith("gallery_")}
    parts = [sphinx_version, seam.version, app.builder.format]
    return files.digest([*parts, _plain(config.sphinx_gallery_conf), _plain(values)])


def _plain(value: Any) -> str:
    """A setting as a text that is the same in every process."""
    if isinstance(value, dict):
        return repr(sorted((str(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return repr([_plain(item) for item in value])
    if isinstance(value, set | frozenset):
        return repr(sorted(map(_plain, value)))
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    own = getattr(value, "__dict__", None)
    return f"{text} {_plain(own)}" if own and not callable(value) else text
