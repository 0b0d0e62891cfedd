"""The recordings that belong to today's code, on every device and release of Triton."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sphinx.environment import BuildEnvironment

from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import ListedRecording
from gallery_recorder.store.format import Recording, slug
from triton_site.probes import REFERENCE_DEVICE, SOFTWARE

#: The file with the CPU's share of each call of a page; its sizes are the names of functions.
CALLS = "calls.csv"


def current(env: BuildEnvironment, docname: str = "") -> list[ListedRecording]:
    """The timed recordings of the pages of a build, or of the page *docname*."""
    return [
        item
        for item in domain_of(env).selection.recordings
        if item.timed and item.state in ("shown", "current") and docname in ("", item.page)
    ]


def release_of(content: Recording) -> str:
    """The release of Triton that made a recording."""
    return str(content.probe(SOFTWARE).get("triton", ""))


def version_key(release: str) -> tuple[int, ...]:
    """``3.10.0`` as ``(3, 10, 0)``, to sort by."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", release))


def in_order(places: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of device and release: the reference device first, its newest release first."""
    return sorted(
        {*places},
        key=lambda place: (
            slug(place[0]) != REFERENCE_DEVICE,
            place[0],
            [-part for part in version_key(place[1])],
        ),
    )
