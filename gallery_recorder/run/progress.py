"""Tell how recording goes: a display that is redrawn in a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

from gallery_recorder.run.messages import BlockStarted

if TYPE_CHECKING:
    from rich.progress import TaskID


@dataclass(frozen=True)
class Outcome:
    """What became of a script, and the text that says more about it."""

    script: str
    status: Literal["recorded", "current", "skipped", "failed", "interrupted"]
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
        self._print(_one_line(outcome))

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)


class LiveProgress(Progress):
    """A line for each script that runs, redrawn; what is finished scrolls above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = Console(highlight=False)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[at]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[last]}", style="dim"),
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
    parts = []
    for outcome in outcomes:
        if outcome.status == "failed":
            parts.append(f"FAILED {outcome.script}\n{_indented(outcome.text)}")
    for outcome in outcomes:
        parts += [f"WARNING {outcome.script}: {warning}." for warning in outcome.warnings]
    counts = [
        f"{number} {status}"
        for status in ("recorded", "current", "skipped", "failed", "interrupted")
        if (number := sum(outcome.status == status for outcome in outcomes))
    ]
    parts.append(", ".join(counts) + ".")
    return "\n\n".join(parts)


def _one_line(outcome: Outcome) -> str:
    seconds = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
    first = outcome.text.splitlines()[0] if outcome.text else ""
    return f"{outcome.script}: {outcome.status}{seconds}: {first}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
