"""The recordings that belong to today's code, on every device and release of Triton."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sphinx.environment import BuildEnvironment

from gallery_recorder.api import (
    ListedRecording,
    RecordedFiles,
    Recording,
    Script,
    domain_of,
    galleries,
    reader,
    recording,
)
from triton_site.references import SOFTWARE

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


class Recorded(NamedTuple):
    """A timed recording of today's code."""

    folder: Path
    content: Recording
    script: Script

    @property
    def files(self) -> RecordedFiles:
        """The files that it lists."""
        return recording.files_of(self.folder, self.content)


def scripts_of_checkout() -> list[Script]:
    """The scripts of the working directory that have code to record.

    Raises:
        RecorderError: a script is damaged.
    """
    examples = reader.read(galleries.find(None, None, ())).executed
    return [script for example in examples if (script := example.load()).code]


def of_checkout(roots: Iterable[Path]) -> list[Recorded]:
    """The timed recordings below *roots* of the current code in the working directory.

    Raises:
        RecorderError: a script or a recording is damaged.
    """
    scripts = scripts_of_checkout()
    of = {(script.gallery, script.name): script for script in scripts}
    found = []
    for root in roots:
        for folder in recording.all_recordings(root):
            content = recording.load(folder)
            script = of.get((content.gallery, content.name))
            if script and content.timed and recording.is_current(content.key, script):
                found.append(Recorded(folder, content, script))
    return found
