"""Print how recording goes, and how it went."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from textwrap import indent
from typing import Literal, TextIO, get_args

from gallery_recorder.run.protocol import BlockStarted
from gallery_recorder.run.text import clean, shorten

Status = Literal["recorded", "current", "skipped", "failed", "interrupted"]

_INTERVAL = 5.0  # seconds between two lines about the blocks of one example


@dataclass(frozen=True)
class Outcome:
    """What became of an example; *text* is the message about it."""

    script: str
    status: Status
    text: str
    seconds: float | None = None
    warnings: tuple[str, ...] = ()


class Progress:
    """Prints a line for each example that begins and ends, and every few seconds its block."""

    def __init__(self, out: TextIO | None = None) -> None:
        """Print to *out*, by default to standard output."""
        self._out = out
        self._began: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def started(self, script: str) -> None:
        """*script* begins."""
        self._began[script] = self._told[script] = time.monotonic()
        self._print(f"{script}: begins")

    def told(self, script: str, event: BlockStarted | str) -> None:
        """A block of *script* begins, or there is a message about it."""
        now = time.monotonic()
        if isinstance(event, str):
            self._print(f"{script}: {event}")
        elif now - self._told[script] > _INTERVAL:
            self._told[script] = now
            at = f"block {event.block} of {event.of}, line {event.line}"
            self._print(f"{script}: {at}, {now - self._began[script]:.0f} s")

    def finished(self, outcome: Outcome) -> None:
        """An example has its outcome."""
        seconds = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
        first = outcome.text.partition("\n")[0]
        self._print(f"{outcome.script}: {outcome.status}{seconds}: {first}")

    def _print(self, line: str) -> None:
        out = self._out or sys.stdout
        out.write(f"{_shown(line)}\n")
        out.flush()


def report(outcomes: list[Outcome]) -> str:
    """The failures in full, the warnings, and the number of examples with each outcome."""
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
    return shorten(clean(text), 2_000, 200).rstrip("\n")
