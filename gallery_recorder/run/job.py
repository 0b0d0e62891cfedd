"""What the runner and the process that executes a tutorial tell each other.

Everything of one execution lies in a staging folder beside the recording that it will become:
the job, the working directory, what was printed, and at the end the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

#: The variable that marks every process of one execution; its value is the staging folder.
MARK = "GALLERY_STAGING"

# What one recording may hold. A page with more than this is no page to read, and git keeps
# every recording for ever.
MAX_OUTPUT = 1_000_000  # bytes that a block prints
MAX_FILE = 8_000_000  # bytes of a figure or a data file
MAX_FILES = 50


class Job(msgspec.Struct, frozen=True):
    """What to execute. ``source`` is the tutorial's path as messages shall name it."""

    gallery: str
    tutorial: str
    source: str
    device: Literal["cuda", "cpu"]
    device_name: str
    commit: str | None
    runner: int
    events: int


class Failure(msgspec.Struct, frozen=True, tag="failed"):
    """Why there is no recording: the cause, where in the tutorial, and what to do next."""

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
    """Everything is executed and written; only the end of the process is still to come."""


Event = BlockStarted | Failure | Done


class Staging:
    """The folder of one execution, and what lies in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.tmp = folder / "tmp"
        self.recording = folder / "recording"
        self.job = folder / "job.json"
        self.result = folder / "result.json"
        self.stdout = folder / "stdout"
        self.stderr = folder / "stderr"
        self.stack = folder / "stack"  # where each thread was, when the process crashed or hung

    def create(self) -> None:
        """Make the folder and the empty folders in it."""
        for folder in (self.folder, self.work, self.tmp, self.recording):
            folder.mkdir(mode=0o755)
