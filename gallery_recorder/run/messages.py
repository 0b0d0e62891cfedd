"""What the recorder and the process that executes a script tell each other.

Everything of one run lies in a staging folder beside the recording that it will become: the order,
the folder that the script is executed in, what was printed, and at the end the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from gallery_recorder.source.project import Where
from gallery_recorder.source.settings import Settings
from gallery_recorder.store.recording import Block, Provenance

#: The variable that marks every process of one run; its value is the staging folder.
MARK = "GALLERY_STAGING"


class Run(msgspec.Struct, frozen=True):
    """One script to be executed, and where.

    Attributes:
        gallery, name, pages, may_fail: as of the example.
        source: the script's path as messages shall name it.
        path: the script's file.
        keys: the keys of its code blocks.
        where: the project, whose conf.py says how scripts are executed.
        top: the folder that everything of the project is in.
        settings: what conf.py says about recording.
        kind: the kind of device.
        device: its name.
        visible: the variables that show the process one GPU and no other.
        timeout: the seconds that it may take.
    """

    gallery: str
    name: str
    source: str
    path: Path
    pages: str
    may_fail: bool
    keys: tuple[str, ...]
    where: Where
    top: Path
    settings: Settings
    kind: Literal["gpu", "cpu"]
    device: str
    timeout: float
    visible: dict[str, str] = {}

    def limit(self, name: str) -> int:
        """The limit *name* of conf.py."""
        return int(self.settings.limits[name])


class Result(msgspec.Struct, frozen=True):
    """What a script did; the recorder makes a recording of it, and says itself of what.

    ``late_errors`` is what came to standard error after the last block; no page shows it.
    """

    provenance: Provenance
    blocks: tuple[Block, ...]
    seconds: float
    passed: bool
    variant: str | None = None
    memory: float | None = None
    peak_host_memory: int | None = None
    probes: dict[str, Any] = {}
    backreferences: dict[str, list[dict[str, Any]]] = {}
    thumbnail: str | None = None
    late_errors: str = ""


class Failure(msgspec.Struct, frozen=True, tag="failed"):
    """Why there is no recording: the cause, where in the script, and what to do next."""

    cause: str
    remedy: str
    detail: str = ""
    block: int | None = None
    of: int | None = None
    line: int | None = None


class BlockStarted(msgspec.Struct, frozen=True, tag="block"):
    """Code block number ``block`` (from 1) of ``of``, which begins at ``line``, is executed now."""

    block: int
    of: int
    line: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Everything is executed and written; only the end of the process is still to come.

    ``stdout`` and ``stderr`` are the bytes that the recording took of each.
    """

    stdout: int = 0
    stderr: int = 0


Event = BlockStarted | Failure | Done


class ScriptFailedError(Exception):
    """A script that could not be recorded."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.cause)
        self.failure = failure


class StoppedError(Exception):
    """The recorder was asked to stop; says what became of the script, where that is not known."""
