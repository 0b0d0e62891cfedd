"""Tell how recording goes, and how it went."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Literal, TextIO, get_args

from gallery_recorder.run.protocol import BlockStarted
from gallery_recorder.run.text import clean, shorten

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
    """Lines that scroll, for log files and CI: of the blocks of a script, one every few seconds.

    In a terminal (``live``) each script that runs has a line below them instead, which is redrawn.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        """Tell *out*, or else whoever reads standard output."""
        from rich import progress
        from rich.console import Console

        quiet = os.environ.get("CI") or os.environ.get("TERM") == "dumb"
        self.live = out is None and sys.stdout.isatty() and not quiet
        self._console = Console(file=out, highlight=False, emoji=False)
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.fields[at]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[last]}", style="dim"),
            console=self._console,
            disable=not self.live,
        )
        self._rows: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def started(self, script: str, last_seconds: float | None) -> None:
        """*script* is begun; its last recording took *last_seconds*."""
        last = "first time" if last_seconds is None else f"last time {last_seconds:.1f} s"
        self._began[script] = self._told[script] = time.monotonic()
        self._rows[script] = self._bars.add_task(script, total=None, at="starts", last=last)
        if not self.live:
            self._print(f"{script}: begins" + f" ({last})" * (last_seconds is not None))

    def told(self, script: str, event: BlockStarted | str) -> None:
        """*script* has come to a block, or there is something else about it."""
        if isinstance(event, str):
            self._print(f"{script}: {event}")
            return
        at, now = f"block {event.block} of {event.of}", time.monotonic()
        self._bars.update(self._rows[script], completed=event.block - 1, total=event.of, at=at)
        if not self.live and now - self._told[script] > 5:
            self._told[script] = now
            self._print(f"{script}: {at}, line {event.line}, {now - self._began[script]:.0f} s")

    def finished(self, outcome: Outcome) -> None:
        """A script has come to its end."""
        if outcome.script in self._rows:
            self._bars.remove_task(self._rows.pop(outcome.script))
        seconds = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
        first = outcome.text.partition("\n")[0]
        self._print(f"{outcome.script}: {outcome.status}{seconds}: {first}")

    def _print(self, line: str) -> None:
        self._console.print(_shown(line), markup=False, soft_wrap=True)


def report(outcomes: list[Outcome]) -> str:
    """How it went: the failures in full, what to be wary of, and how many there are of each."""
    parts = [
        f"FAILED {outcome.script}\n{indent(_shown(outcome.text), '  ')}"
        for outcome in outcomes
        if outcome.status == "failed"
    ]
    for outcome in outcomes:
        parts += [_shown(f"WARNING {outcome.script}: {text}.") for text in outcome.warnings]
    counts = Counter(outcome.status for outcome in outcomes)
    told = [f"{counts[status]} {status}" for status in get_args(Status) if counts[status]]
    return "\n\n".join([*parts, f"{', '.join(told) or 'Nothing was recorded'}."])


def _shown(text: str) -> str:
    """*text*, which a node or a script may have sent, as it may reach a terminal."""
    return shorten(clean(text), 2_000, 200).rstrip("\n")
