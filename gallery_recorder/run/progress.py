"""Tell how recording goes: a display that is redrawn in a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Literal, TextIO, get_args

from gallery_recorder.run.messages import BlockStarted

if TYPE_CHECKING:
    from rich.progress import TaskID


Status = Literal["recorded", "current", "skipped", "failed", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """What became of a script, and the text that says more about it."""

    script: str
    status: Status
    text: str
    seconds: float | None = None
    warnings: tuple[str, ...] = ()


class Progress:
    """Plain lines, for log files and CI; of the blocks, one every few seconds."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def started(self, script: str, last_seconds: float | None) -> None:
        """*script* is begun; its last recording took *last_seconds*."""
        self._began[script] = self._told[script] = time.monotonic()
        last = f" (last time {last_seconds:.1f} s)" if last_seconds is not None else ""
        self._print(f"{script}: begins{last}")

    def block(self, script: str, event: BlockStarted) -> None:
        """*script* has come to a block."""
        now = time.monotonic()
        if now - self._told[script] > 5:
            self._told[script] = now
            self._print(
                f"{script}: block {event.block} of {event.of}, line {event.line}, "
                f"{now - self._began[script]:.0f} s"
            )

    def told(self, script: str, event: BlockStarted | str) -> None:
        """*script* has come to a block, or there is something else about it."""
        (self.note if isinstance(event, str) else self.block)(script, event)  # type: ignore[arg-type]

    def note(self, script: str, text: str) -> None:
        """Something else about *script*."""
        self._print(f"{script}: {text}")

    def finished(self, outcome: Outcome) -> None:
        """A script has come to its end."""
        seconds = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
        first = outcome.text.partition("\n")[0]
        self._print(f"{outcome.script}: {outcome.status}{seconds}: {first}")

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)


class LiveProgress(Progress):
    """A line for each script that runs, redrawn; what is finished scrolls above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich import progress
        from rich.console import Console

        self._console = Console(highlight=False)
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.fields[at]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[last]}", style="dim"),
            console=self._console,
        )
        self._rows: dict[str, TaskID] = {}

    def __enter__(self) -> LiveProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def started(self, script: str, last_seconds: float | None) -> None:
        """Add a row."""
        last = f"last time {last_seconds:.1f} s" if last_seconds is not None else "first time"
        self._rows[script] = self._bars.add_task(script, total=None, at="starts", last=last)

    def block(self, script: str, event: BlockStarted) -> None:
        """Advance the row."""
        at = f"block {event.block} of {event.of}"
        row = self._rows[script]
        self._bars.update(row, completed=event.block - 1, total=event.of, at=at)

    def finished(self, outcome: Outcome) -> None:
        """Let the row scroll away."""
        if outcome.script in self._rows:
            self._bars.remove_task(self._rows.pop(outcome.script))
        super().finished(outcome)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False)


def make_progress() -> Progress:
    """The display that fits where standard output goes."""
    if sys.stdout.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        return LiveProgress()
    return Progress()


def report(outcomes: list[Outcome]) -> str:
    """How it went: the failures in full, what to be wary of, and how many there are of each."""
    parts = [
        f"FAILED {outcome.script}\n{indent(outcome.text, '  ').rstrip()}"
        for outcome in outcomes
        if outcome.status == "failed"
    ]
    for outcome in outcomes:
        parts += [f"WARNING {outcome.script}: {warning}." for warning in outcome.warnings]
    counts = Counter(outcome.status for outcome in outcomes)
    told = [f"{counts[status]} {status}" for status in get_args(Status) if counts[status]]
    return "\n\n".join([*parts, ", ".join(told) + "."])
