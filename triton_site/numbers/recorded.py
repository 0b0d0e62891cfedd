"""All recordings that belong to today's code, whatever page shows them.

Claims and rates are compared across devices and releases of Triton, so what reads them asks here,
and not the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sphinx.environment import BuildEnvironment

from gallery_recorder.project import galleries
from gallery_recorder.render.domain import domain_of
from gallery_recorder.store import recording
from gallery_recorder.store.format import Recording, slug
from triton_site.probes import SOFTWARE


@dataclass(frozen=True)
class Recorded:
    """A recording of current code, made on a GPU."""

    docname: str
    name: str
    folder: Path
    content: Recording

    @property
    def device(self) -> str:
        """The GPU, as its driver calls it."""
        return self.content.provenance.device

    @property
    def place(self) -> str:
        """Device and variant, as folders of recordings are called."""
        return "/".join(filter(None, (slug(self.device), self.content.variant)))

    @property
    def release(self) -> str:
        """The release of Triton."""
        return str(self.content.probe(SOFTWARE).get("triton", ""))


def of_build(env: BuildEnvironment) -> list[Recorded]:
    """Those of the pages that are built."""
    return [
        Recorded(item.page, item.name, item.folder, item.content)
        for item in domain_of(env).selection.recordings
        if item.timed and item.state in ("shown", "current")
    ]


def of_checkout(roots: Iterable[Path]) -> list[Recorded]:
    """Those of the checkout in the working directory, below *roots*.

    Raises:
        ScriptError: there are no tutorials.
    """
    scripts = [
        example.load() for example in galleries.read(galleries.find(None, None, ())).recorded
    ]
    return _current(roots, {(s.gallery, s.name): (s.key, s.name) for s in scripts})


def _current(
    roots: Iterable[Path], keys: Mapping[tuple[str, str], tuple[str, str]]
) -> list[Recorded]:
    found = []
    for root in roots:
        for folder in recording.all_recordings(root):
            content = recording.load(folder)
            key, docname = keys.get((content.gallery, content.name), ("", ""))
            if content.timed and content.key == key:
                found.append(Recorded(docname, content.name, folder, content))
    return sorted(found, key=lambda item: (item.name.count("/"), item.name, item.device))


def version_key(release: str) -> tuple[int, ...]:
    """``3.10.0`` as ``(3, 10, 0)``, to sort by."""
    return tuple(int(part) for part in release.split(".") if part.isdigit())
