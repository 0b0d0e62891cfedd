"""The state of a build: which pages show which recordings, and which pages depend on them.

Everybody asks it through ``env.get_domain("gallery")``. What is chosen anew for each build lies on
the domain itself; what is learned while pages are read is in its data, which Sphinx keeps with the
environment and merges after reading in parallel.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, ClassVar

from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment

from gallery_recorder import seam
from gallery_recorder.render import state
from gallery_recorder.render.selection import Page, Selection
from gallery_recorder.render.state import Site, State


class GalleryDomain(Domain):
    """Pages made from scripts, and the recordings that they show."""

    name = "gallery"
    label = "Gallery"
    data_version = 2
    initial_data: ClassVar[dict[str, dict[str, str]]] = {
        "contents": {},  # docname -> digest of its title and sections
    }

    def __init__(self, env: BuildEnvironment) -> None:
        """Begin a build."""
        super().__init__(env)
        #: What the last build left, and what this one will.
        self.before = State()
        self.now = State()
        #: Whether the pages of galleries are those that the last build left.
        self.kept = False
        #: The pages that are read.
        self.read: set[str] = set()
        #: What is being written, and whether all pages are, for what they show of one another.
        self.site: Site | None = None
        self.all_are_written = False
        #: The views of each page, with the documents that they are written from.
        self.resolved: dict[str, list[tuple[Page, Any]]] = {}

    @property
    def selection(self) -> Selection:
        """What was chosen for this build."""
        return self.now.selection

    @property
    def pages(self) -> dict[str, Page]:
        """The pages that are made from scripts, by name of document."""
        return self.selection.pages

    def depends(self, on: str) -> None:
        """Read this page again when the *recordings* or *introductions* change."""
        self.env.note_dependency(str(state.mark(seam.app_of(self.env), on)))

    def clear_doc(self, docname: str) -> None:
        """Forget a page that is read again, or is gone."""
        self.data["contents"].pop(docname, None)

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take what another process has learned."""
        found = otherdata["contents"]
        self.data["contents"] |= {name: found[name] for name in docnames if name in found}


def domain_of(env: BuildEnvironment) -> GalleryDomain:
    """The domain of a build's environment."""
    domain = env.domains["gallery"]
    assert isinstance(domain, GalleryDomain)
    return domain
