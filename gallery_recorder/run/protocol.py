"""What the recorder and the process that executes a script tell each other.

One run has one workspace, a folder beside the future recording. It holds the order,
the folder that the script is executed in, what was printed, and at the end the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gallery_recorder.project.galleries import Example, Where
from gallery_recorder.project.settings import Settings
from gallery_recorder.store import reading
from gallery_recorder.store.format import MAX_READ, Block, Provenance, Reference

#: The status of a process that can tell nothing any more, since the script closed the pipe.
DEAF = 121

_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

#: What messages call the descriptors 1 and 2.
OUTPUTS = ("standard output", "standard error")


class Run(msgspec.Struct, frozen=True):
    """One script to be executed, and where.

    Attributes:
        example: the script, as the project has it.
        keys: the keys of its code blocks.
        where: the project, whose conf.py says how scripts are executed.
        top: the folder that everything of the project is in.
        settings: what conf.py says about recording.
        kind: the kind of device.
        device: its name.
        visible: the variables that show the process one GPU and no other.
        timeout: the seconds that it may take.
    """

    example: Example
    keys: tuple[str, ...]
    where: Where
    top: Path
    settings: Settings
    kind: Literal["gpu", "cpu"]
    device: str
    timeout: float
    visible: dict[str, str] = {}

    def limit(self, name: Literal["output", "file", "files"]) -> int:
        """The limit *name* of conf.py."""
        return int(self.settings.limits[name])

    def check(self, made: Result) -> None:
        """Compare *made*, wherever it comes from, with this order.

        Raises:
            ScriptFailedError: it is of something else.
        """
        where, passed = made.provenance, [made.passed, *(block.passed for block in made.blocks)]
        if (where.device, where.kind) != (self.device, self.kind):
            raise unbelievable(f"another device, {where.device}, than {self.device}")
        if where.gpu is not None and self.kind != "gpu":
            raise unbelievable("a GPU where there is none")
        if len(made.blocks) != len(self.keys):
            raise unbelievable(f"{len(made.blocks)} blocks where the script has {len(self.keys)}")
        if tuple(block.key for block in made.blocks) != self.keys:
            raise unbelievable("other blocks than the script has")
        if not self.example.may_fail and not all(passed):
            raise unbelievable("a failure that it did not report")


class Result(msgspec.Struct, frozen=True):
    """What a script did; the recorder makes a recording of it, and says itself of what.

    ``warned`` is what Sphinx's extensions, as scrapers, warned of meanwhile.
    ``late_errors`` is what came to standard error after the last block; no page shows it.
    ``loaded`` is what its process told before the first block.
    """

    provenance: Provenance
    blocks: tuple[Block, ...]
    seconds: float
    passed: bool
    variant: str | None = None
    memory: float | None = None
    peak_host_memory: int | None = None
    probes: dict[str, Any] = {}
    backreferences: dict[str, list[Reference]] = {}
    thumbnail: str | None = None
    warned: str = ""
    late_errors: str = ""
    loaded: Loaded | None = None

    def files_in(self, folder: Path) -> dict[str, bytes]:
        """The content of its files, which are in *folder*, by their names.

        Raises:
            ScriptFailedError: one cannot be read.
        """
        names = {self.thumbnail} if self.thumbnail else set()
        names.update(*(block.images + block.data for block in self.blocks))
        try:
            return {name: reading.read_file(folder / name, MAX_READ) for name in sorted(names)}
        except reading.ReadingError as error:
            raise unbelievable(f"files of which one {error}") from error


class Failure(msgspec.Struct, frozen=True, tag="failed"):
    """Why there is no recording: the cause, where in the script, and what to do next."""

    cause: Annotated[str, msgspec.Meta(min_length=1)]
    remedy: str
    detail: str = ""
    block: int | None = None
    of: int | None = None
    line: int | None = None

    def told(self, source: str) -> str:
        """It as a text, of the script *source*: what, where, why, and what to do next."""
        where = f"{source}:{self.line}" if self.line else source
        block = f", block {self.block} of {self.of}" if self.block else ""
        parts = [f"{where}{block}: {self.cause}", self.detail.rstrip("\n"), self.remedy]
        return "\n".join(part for part in parts if part)


class BlockStarted(msgspec.Struct, frozen=True, tag="block"):
    """Code block number ``block`` (from 1) of ``of``, which begins at ``line``, is executed now."""

    block: int
    of: int
    line: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Everything is executed and written; only the end of the process is still to come.

    ``stdout`` and ``stderr`` are the bytes that the recording took of each.
    """

    stdout: _Bytes = 0
    stderr: _Bytes = 0


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The process has ended with this exit status, negative for a signal; its keeper tells."""

    status: int


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """What another process may import before it has a script; told before the first block.

    ``modules`` are the installed ones that were imported, ``changed`` the variables that were set
    meanwhile, or None where they were removed.
    """

    modules: tuple[str, ...]
    changed: dict[str, str | None]


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The number of the process; its keeper tells."""

    process: int


Event = Began | Loaded | BlockStarted | Failure | Done | Ended


class ScriptFailedError(Exception):
    """A script that could not be recorded: a failure, or its cause and what to do next."""

    def __init__(self, failure: Failure | str, remedy: str = "", detail: str = "") -> None:
        self.failure = (
            failure if isinstance(failure, Failure) else Failure(failure, remedy, detail=detail)
        )
        super().__init__(self.failure.cause)


def unbelievable(told: str) -> ScriptFailedError:
    """The process *told* something that its order cannot have led to."""
    return ScriptFailedError(
        f"told of {told}",
        "The script changed what its own process tells the recorder. A script prints, "
        "draws and writes files; leave everything else as it is.",
    )


class Refusal(BaseException):
    """The script did something that no recording can hold.

    Not an ``Exception``, so that a script that catches those does not hide it.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy


class StoppedError(Exception):
    """The recorder was asked to stop; says what became of the script, where that is not known."""
