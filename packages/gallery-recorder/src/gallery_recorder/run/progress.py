"""Print the progress of recording, and a report at the end."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from textwrap import indent
from typing import Any, Literal, TextIO, get_args

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gallery_recorder import console
from gallery_recorder.run.protocol import BlockStarted
from gallery_recorder.run.text import clean, shorten

Status = Literal["recorded", "current", "skipped", "failed", "interrupted"]

_INTERVAL = 5.0  # seconds between two lines about blocks of the same example


@dataclass(frozen=True)
class Outcome:
    """The outcome of an example; *text* is the message about it."""

    script: str
    status: Status
    text: str
    seconds: float | None = None
    warnings: tuple[str, ...] = ()


class Progress:
    """Prints which examples run, how many are done, and the time left.

    A terminal shows a line for each finished example, and below them one live line. Other outputs
    get a line when an example starts and ends, and every few seconds one about its block.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        """Print to *out*, by default to standard output."""
        self._console = Console(file=out, highlight=False, markup=False, soft_wrap=True)
        # FORCE_COLOR alone, which some workflows set, makes no terminal.
        self._live = self._console.is_interactive and self._console.file.isatty()
        self._line: Live | None = None
        self._began: dict[str, float] = {}
        self._printed: dict[str, float] = {}  # when the last line about it was printed
        self._at: dict[str, str] = {}  # the blocks of running examples
        self._waiting: dict[str, float | None] = {}  # recorded seconds
        self._known: list[float] = []
        self._all = self._jobs = 0

    @contextlib.contextmanager
    def of(self, expected: dict[str, float | None], jobs: int) -> Iterator[None]:
        """Show the recording of examples with these *expected* seconds, *jobs* at a time."""
        self._waiting, self._all, self._jobs = {**expected}, len(expected), jobs
        self._known = [seconds for seconds in expected.values() if seconds is not None]
        if self._live and expected:
            show: dict[str, Any] = {"get_renderable": self._now, "refresh_per_second": 4}
            with Live(console=self._console, transient=True, **show) as self._line:
                yield
            self._line = None
        else:
            if len(expected) > 1:
                self._print(f"{self._all} to record{self._left()}.")
            yield

    def note(self, line: str) -> None:
        """Print a *line* about the whole call."""
        self._print(line)

    def started(self, script: str) -> None:
        """*script* has started."""
        self._began[script] = self._printed[script] = time.monotonic()
        self._at[script] = ""
        if not self._line:
            self._print(f"{script}: started")

    def update(self, script: str, event: BlockStarted | str) -> None:
        """A block of *script* has started, or there is a message about it."""
        now = time.monotonic()
        if isinstance(event, str):
            self._print(f"{script}: {event}")
            return
        at = f"block {event.block} of {event.of}"
        self._at[script] = f", {at}"
        if not self._line and now - self._printed[script] > _INTERVAL:
            self._printed[script] = now
            self._print(f"{script}: {at}, line {event.line}, {now - self._began[script]:.0f} s")

    def finished(self, outcome: Outcome) -> None:
        """An example is finished."""
        seconds = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
        first = outcome.text.partition("\n")[0]
        done = ""
        if self._at.pop(outcome.script, None) is not None and self._all:
            if self._waiting.pop(outcome.script, None) is None and outcome.seconds:
                self._known.append(outcome.seconds)
            done = f" [{self._state()}]" if self._all > 1 and not self._line else ""
        if not (self._live and outcome.status == "current"):  # the report counts them
            self._print(f"{outcome.script}: {outcome.status}{seconds}: {first}{done}")

    def _state(self) -> str:
        """How many examples are done, and the time left."""
        return f"{self._all - len(self._waiting)} of {self._all} done{self._left()}"

    def _left(self) -> str:
        """The time left; empty if no example was recorded before."""
        waiting, now = {**self._waiting}, time.monotonic()
        if not (waiting and self._known):
            return ""
        usual = median(self._known)
        left = [
            max(0.0, (usual if last is None else last) - (now - self._began.get(name, now)))
            for name, last in waiting.items()
        ]
        seconds = max(sum(left) / self._jobs, *left)
        about = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        return f", about {about} left"

    def _now(self) -> Text:
        """The live line of a terminal."""
        began, now = self._began, time.monotonic()
        running = (f"{name} ({now - began[name]:.0f} s{at})" for name, at in [*self._at.items()])
        text = console.visible(f"{self._state()} · {', '.join(running)}")
        return Text(text, no_wrap=True, overflow="ellipsis")

    def _print(self, line: str) -> None:
        self._console.print(Text(_shown(line)))


def report(outcomes: list[Outcome]) -> str:
    """The failures, the warnings, and the number of examples with each outcome."""
    parts = [
        f"FAILED {outcome.script}\n{indent(_shown(outcome.text), '  ')}"
        for outcome in outcomes
        if outcome.status == "failed"
    ]
    warned: dict[str, list[str]] = {}
    for outcome in outcomes:
        for text in outcome.warnings:
            warned.setdefault(text, []).append(outcome.script)
    for text, names in warned.items():
        others = f" and {len(names) - 3} others" if len(names) > 4 else ""
        listed = ", ".join(names[: 3 if others else 4])
        parts.append(_shown(f"WARNING {listed}{others}: {text}."))
    counts = Counter(outcome.status for outcome in outcomes)
    counted = [f"{counts[status]} {status}" for status in get_args(Status) if counts[status]]
    return "\n\n".join([*parts, f"{', '.join(counted) or 'Nothing was recorded'}."])


def _shown(text: str) -> str:
    return shorten(clean(text), 2_000, 200).rstrip("\n")
