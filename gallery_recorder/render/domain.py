"""The state of a build: which page shows which recording, and which pages depend on it.

``env.get_domain("gallery")`` holds it. What a build decides anew is an attribute; what pages tell
while they are read is in the domain's data, which Sphinx keeps with the environment and merges
after reading in parallel.
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
        #: What the previous build left, and what this one will leave.
        self.before = State()
        self.now = State()
        #: Whether this build uses the generated sources of the previous one as they are.
        self.kept = False
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

    def depends(self, on: str) -> None:
        """Read the current page again when the *recordings* or *introductions* change."""
        self.env.note_dependency(str(state.mark(seam.app_of(self.env), on)))

    def clear_doc(self, docname: str) -> None:
        """Forget a page that is read again or gone."""
        self.data["contents"].pop(docname, None)

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take what another process has read."""
        found = otherdata["contents"]
        self.data["contents"] |= {name: found[name] for name in docnames if name in found}


def domain_of(env: BuildEnvironment) -> GalleryDomain:
    """The domain of a build's environment."""
    domain = env.domains["gallery"]
    assert isinstance(domain, GalleryDomain)
    return domain
