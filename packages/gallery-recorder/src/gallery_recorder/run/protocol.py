"""The messages between the recorder, the supervisor and the worker of one run.

The worker and its supervisor send events to the recorder through a pipe, one line of JSON each.
"""

import os
from pathlib import Path
from typing import Literal

import msgspec

from gallery_recorder.project.galleries import Example, Where, encode
from gallery_recorder.project.inputs import InputRules
from gallery_recorder.project.settings import Settings
from gallery_recorder.store.format import Block, Recording

#: The beginning of the request to the server to end processes of a killed supervisor, its number.
END_ORPHANS = b"end orphans of "


class Run(msgspec.Struct, frozen=True):
    """What a worker needs to know to execute one example."""

    example: Example
    keys: tuple[str, ...]  # of its code blocks
    where: Where
    top: Path  # the folder that contains the whole project
    folder: Path  # the working directory while conf.py is read
    settings: Settings
    kind: Literal["gpu", "cpu"]
    device: str
    timeout: float  # seconds
    gpus: int = 0  # number of GPUs for this example
    visible: dict[str, str] = {}  # the variables that show the worker its GPUs and no other
    launcher: tuple[str, ...] = ()  # the command that starts its ranks
    threads: int | None = None  # of numerical libraries; None for their default
    commit: str | None = None  # of the project
    inputs: InputRules = InputRules()
    changing_outputs: dict[str, str] = {}  # settings of sphinx-gallery, as texts

    def limit(self, name: Literal["output", "file", "files"]) -> int:
        """The limit *name* in conf.py."""
        return int(self.settings.limits[name])

    def check(self, made: Recording) -> None:
        """Raise ExampleFailedError if *made* is of other code, or of another variant."""
        if tuple(block.key for block in made.blocks) != self.keys:
            raise ExampleFailedError("was changed while it was being recorded", "Record it again.")
        if made.variant != self.settings.variant:
            raise ExampleFailedError(
                f"was executed as variant {made.variant}, not {self.settings.variant}",
                "Install the same versions on all machines that execute examples.",
            )


class Written(msgspec.Struct, frozen=True):
    """A file that an example wrote: its path, its name in the recording, and its block."""

    path: Path
    name: str
    block: int  # from 1
    is_data: bool


class Finished(msgspec.Struct, frozen=True):
    """A finished block; the worker saves each, in case it does not reach the end.

    ``files`` are the files of all blocks so far, ``printed`` their bytes of standard output and
    standard error.
    """

    number: int  # from 1
    block: Block
    files: tuple[Written, ...]
    printed: tuple[int, int]


class Failure(msgspec.Struct, frozen=True, tag="failed"):
    """Why an example failed: cause, remedy, details and place.

    ``line`` is the line that failed if it ``is_exact``, or else the first line of the block.
    """

    cause: str
    remedy: str
    detail: str = ""
    block: int | None = None
    of: int | None = None
    line: int | None = None
    is_exact: bool = True

    def for_readers(self) -> str:
        """The text on the page, without the remedy, which is for the author."""
        line = f", in line {self.line}" if self.line and self.is_exact else ""
        return f"This example failed: it {self.cause}{line}.\n{self.detail}".rstrip("\n")

    def for_author(self, source: str) -> str:
        """The message, in which *source* names the example."""
        where = f"{source}:{self.line}" if self.line else source
        block = f", block {self.block} of {self.of}" if self.block else ""
        parts = [f"{where}{block}: {self.cause}", self.detail.rstrip("\n"), self.remedy]
        return "\n".join(part for part in parts if part)


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The example starts in this process; ``wrapper`` is the function of conf.py that forked it."""

    process: int
    wrapper: str = ""


class BlockStarted(msgspec.Struct, frozen=True, tag="block"):
    """The worker starts code block ``block`` (from 1) of ``of``, whose first line is ``line``."""

    block: int
    of: int
    line: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The worker has written the result."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The worker has ended."""

    status: int  # negative for a signal
    left: tuple[str, ...] = ()  # the command lines of processes that it left running


Event = Begun | BlockStarted | Failure | Done | Ended


class Channel:
    """Sends events to whoever reads the named pipe or the file *path*.

    It is opened for each event. An example may close descriptors that it did not open, and then get
    their numbers for files of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, event: Event) -> None:
        """Send *event*; OSError if nobody reads."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.set_blocking(descriptor, True)
            os.write(descriptor, encode(event) + b"\n")
        finally:
            os.close(descriptor)


class ExampleFailedError(Exception):
    """An example failed; ``made`` is the recording that it wrote, if it came so far.

    Takes a failure, or its cause and remedy.
    """

    made: Recording | None = None

    def __init__(self, failure: Failure | str, remedy: str = "") -> None:
        self.failure = Failure(failure, remedy) if isinstance(failure, str) else failure
        super().__init__(self.failure.cause)


class Refusal(BaseException):
    """The example did something that cannot be recorded; the arguments are cause and remedy.

    Not an ``Exception``, which sphinx-gallery would take for the output of an example that may
    fail.
    """


class StoppedError(Exception):
    """The recorder was stopped; the text tells if the example may still run."""
