"""The state of a build: which pages show which recordings, and which pages depend on them.

Everybody asks it through ``env.get_domain("gallery")``. What is chosen anew for each build lies on
the domain itself; what is learned while pages are read is in its data, which Sphinx keeps with the
environment and merges after reading in parallel.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any, ClassVar

from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment

from gallery_recorder.render.archive import Archive
from gallery_recorder.render.choice import Choice, Page
from gallery_recorder.render.state import State


class GalleryDomain(Domain):
    """Pages made from scripts, and the recordings that they show."""

    name = "gallery"
    label = "Gallery"
    data_version = 1
    initial_data: ClassVar[dict[str, dict[str, Any]]] = {
        "dependents": {},  # docname -> what it is made from: "recordings", "introductions"
        "digests": {},  # of what they are made from, when they were last read
        "contents": {},  # docname -> digest of its title and sections
    }

    def __init__(self, env: BuildEnvironment) -> None:
        """Begin a build."""
        super().__init__(env)
        #: What was chosen for this build.
        self.choice: Choice | None = None
        #: What the last build left, and what this one will.
        self.before = State()
        self.now: State | None = None
        #: The pages that are read, and whether there are some that are gone.
        self.read: set[str] = set()
        self.removed = False
        #: What pages show of one another, and whether all are written for it.
        self.shown: dict[str, str] = {}
        self.all_are_written = False
        #: The files of each page, the pages read again or gone, and the files of these.
        self.files: dict[str, set[str]] | None = None
        self.purged: set[str] = set()
        self.maybe_gone: set[str] = set()

    @property
    def archives(self) -> dict[Path, Archive]:
        """The zip files that sphinx-gallery made."""
        return self.now.archives if self.now else {}

    @property
    def pages(self) -> dict[str, Page]:
        """The pages that are made from scripts, by name of document."""
        return self.choice.pages if self.choice else {}

    def depends(self, docname: str, on: str) -> None:
        """Have the page *docname* read again when the *recordings* or *introductions* change."""
        self.data["dependents"].setdefault(docname, set()).add(on)

    def clear_doc(self, docname: str) -> None:
        """Forget a page that is read again, or is gone."""
        self.data["dependents"].pop(docname, None)
        self.data["contents"].pop(docname, None)

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take what another process has learned."""
        for docname in docnames:
            for name in ("dependents", "contents"):
                if docname in otherdata[name]:
                    self.data[name][docname] = otherdata[name][docname]


def domain_of(env: BuildEnvironment) -> GalleryDomain:
    """The domain of a build's environment."""
    domain = env.domains["gallery"]
    assert isinstance(domain, GalleryDomain)
    return domain
