"""What the recorder, the supervisor and the worker of one run tell each other.

The worker and its supervisor send events through the recorder's progress pipe, one JSON line each.
"""

from pathlib import Path
from typing import Literal

import msgspec

from gallery_recorder.project.galleries import Example, Where
from gallery_recorder.project.settings import Settings
from gallery_recorder.store.format import Block, Recording


class Run(msgspec.Struct, frozen=True):
    """The order to execute one example."""

    example: Example
    keys: tuple[str, ...]  # of its code blocks
    where: Where
    top: Path  # the folder that contains the whole project
    folder: Path  # where conf.py is read
    settings: Settings
    kind: Literal["gpu", "cpu"]
    device: str
    timeout: float  # seconds
    gpus: int = 0  # that it gets
    visible: dict[str, str] = {}  # variables that show the worker its GPUs and no other
    launcher: tuple[str, ...] = ()  # the command that starts its ranks

    def limit(self, name: Literal["output", "file", "files"]) -> int:
        """The limit *name* in conf.py."""
        return int(self.settings.limits[name])

    def check(self, made: Recording) -> None:
        """Raise ExampleFailedError if *made* is of other code or another variant than this."""
        if tuple(block.key for block in made.blocks) != self.keys:
            raise ExampleFailedError("was changed while it was being recorded", "Record it again.")
        if made.variant != self.settings.variant:
            raise ExampleFailedError(
                f"was executed as variant {made.variant}, not {self.settings.variant}",
                "Install the same versions on the machine that executes examples.",
            )


class Written(msgspec.Struct, frozen=True):
    """A file of an example at *path*: its name in the recording, and the block that wrote it."""

    path: Path
    name: str
    block: int  # from 1
    is_data: bool


class Finished(msgspec.Struct, frozen=True):
    """The worker keeps this for each block, in case it does not reach the end.

    ``files`` are those of all blocks so far; ``printed`` are the bytes of standard output and error
    that belong to them.
    """

    number: int  # from 1
    block: Block
    files: tuple[Written, ...]
    printed: tuple[int, int]


class Failure(msgspec.Struct, frozen=True, tag="failed"):
    """Why an example was not recorded: cause, remedy, details, block and line."""

    cause: str
    remedy: str
    detail: str = ""
    block: int | None = None
    of: int | None = None
    line: int | None = None

    def for_readers(self) -> str:
        """What a page says, without the remedy, which is the author's."""
        line = f", in line {self.line}" if self.line else ""
        return f"This example failed: it {self.cause}{line}.\n{self.detail}".rstrip("\n")

    def told(self, source: str) -> str:
        """The message, in which the example is called *source*."""
        where = f"{source}:{self.line}" if self.line else source
        block = f", block {self.block} of {self.of}" if self.block else ""
        parts = [f"{where}{block}: {self.cause}", self.detail.rstrip("\n"), self.remedy]
        return "\n".join(part for part in parts if part)


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The example begins in this process; ``wrapper`` is the function of conf.py that forked it."""

    process: int
    wrapper: str = ""


class BlockStarted(msgspec.Struct, frozen=True, tag="block"):
    """The worker executes code block ``block`` (from 1) of ``of``, which begins at ``line``."""

    block: int
    of: int
    line: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The worker has written the result."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The worker has ended."""

    status: int  # negative for a signal
    left: tuple[str, ...] = ()  # the commands of processes that it left running


Event = Begun | BlockStarted | Failure | Done | Ended


class ExampleFailedError(Exception):
    """An example has failed: a failure, or its cause and remedy; ``made`` is what it did before."""

    made: Recording | None = None

    def __init__(self, failure: Failure | str, remedy: str = "") -> None:
        self.failure = Failure(failure, remedy) if isinstance(failure, str) else failure
        super().__init__(self.failure.cause)


class Refusal(BaseException):
    """The example did something that a recording cannot hold.

    Its arguments are cause and remedy. Not an ``Exception``: sphinx-gallery records those as
    outputs of examples that may fail.
    """


class StoppedError(Exception):
    """The recorder was stopped; the text tells if the example may still run."""
