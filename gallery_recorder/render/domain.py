"""The state of a build: which page shows which recording, and what the previous build left.

``env.get_domain("gallery")`` holds it. A build that succeeds leaves a :class:`State` for the next
one, in a file beside Sphinx's doctrees. Without both, the next build is cold.
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

_FILE_NAME = "gallery-recorder.pickle"


@dataclass
class Site:
    """What a build wrote with one builder into one folder: pages, and downloads as *files*.

    *shown* is a digest of everything that pages show of one another, *sections* of all headings.
    """

    shown: str = ""
    sections: str = ""
    pages: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


@dataclass
class State:
    """What a build knows; *stamps* are digests of the inputs of each page, by document."""

    stamps: dict[str, str] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)


class GalleryDomain(Domain):
    """Pages made from scripts, and the recordings that they show."""

    name = "gallery"
    label = "Gallery"

    def __init__(self, env: BuildEnvironment) -> None:
        """Begin a build."""
        super().__init__(env)
        #: What the previous build left, and what this one will leave.
        self.before = State()
        self.now = State()
        #: The documents that this build reads.
        self.read: set[str] = set()
        #: What this build writes, and whether it writes all pages.
        self.site: Site | None = None
        self.all_are_written = False

    @property
    def selection(self) -> Selection:
        """The pages and recordings of this build."""
        return self.now.selection

    @property
    def pages(self) -> dict[str, Page]:
        """The pages that show scripts, by document; one for each recording that has a page."""
        return self.selection.pages

    @property
    def stale(self) -> list[str]:
        """The pages that show outputs of older code."""
        return sorted(page.docname for page in self.selection.main if page.is_stale)

    def depends(self, on: str) -> None:
        """Read the current page again when the *recordings* or *introductions* change."""
        self.env.note_dependency(str(_mark(seam.app_of(self.env), on)))

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take nothing of another process that has read pages."""


def domain_of(env: BuildEnvironment) -> GalleryDomain:
    """The domain of a build's environment."""
    domain = env.domains["gallery"]
    assert isinstance(domain, GalleryDomain)
    return domain


# --- from one build to the next -------------------------------------------------------------------


def load(app: Sphinx) -> State:
    """The state that the previous build left; an empty one if other code wrote it."""
    try:
        code, content = pickle.loads(Path(app.doctreedir, _FILE_NAME).read_bytes())
        state: State = pickle.loads(content) if code == _code() else State()
    except Exception:  # a missing or damaged file may raise anything; Sphinx's own is read so, too
        return State()
    return state


def save(app: Sphinx, state: State, **instead: Any) -> None:
    """Leave *state* for the next build, with other values of some fields *instead*."""
    path = Path(app.doctreedir, _FILE_NAME)
    new = path.with_suffix(".new")
    new.write_bytes(pickle.dumps((_code(), pickle.dumps(replace(state, **instead)))))
    new.replace(path)


def _code() -> str:
    """Digest of Python's version and of the code that decides what pages contain."""
    engine = Path(__file__).parents[1]
    rooms = (engine / room for room in ("seam.py", "project", "store", "render"))
    return files.digest([sys.version, *files.times(rooms)])


def _mark(app: Sphinx, of: str) -> Path:
    """A file that changes when *recordings*, or *introductions* of scripts, change.

    Pages that are made from these depend on the file, so Sphinx reads them again.
    """
    return Path(app.doctreedir, f"gallery-{of}.txt")


def write_marks(app: Sphinx, selection: Selection) -> None:
    """Change the files on which pages depend that show *recordings* or *introductions*."""
    listed = (f"{item.label} {item.digest} {item.state}" for item in selection.recordings)
    pages = selection.pages.values()
    texts = [f"{page.docname} {page.script.blocks[0].content}" for page in pages]
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
