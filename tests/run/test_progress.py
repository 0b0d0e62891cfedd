"""What is printed while recording."""

from __future__ import annotations

import io

from gallery_recorder.run import progress
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.run.protocol import BlockStarted

OUTCOMES = [
    Outcome("01-a", "recorded", "recordings/x/01-a", 12.34, ("the clocks were held down",)),
    Outcome("02-b", "failed", "tutorials/02-b.py:7: raised ValueError\nCorrect it."),
    Outcome("03-c", "skipped", "needs a GPU"),
]


def test_a_line_for_each_example_and_every_few_seconds_one_for_its_block(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    told = Progress(out)
    told.started("01-a")
    told.told("01-a", BlockStarted(1, 3, 9))
    now[0] += 6
    told.told("01-a", BlockStarted(2, 3, 20))
    told.told("01-a", BlockStarted(3, 3, 30))
    told.told("01-a", "waits")
    for outcome in OUTCOMES[:2]:
        told.finished(outcome)
    assert out.getvalue().splitlines() == [
        "01-a: begins",
        "01-a: block 2 of 3, line 20, 6 s",
        "01-a: waits",
        "01-a: recorded in 12.3 s: recordings/x/01-a",
        "02-b: failed: tutorials/02-b.py:7: raised ValueError",
    ]


def test_what_an_example_says_neither_steers_a_terminal_nor_fills_it():
    said = "a\x1b[2J\x1b]0;title\x07" + "x" * 30_000
    out = io.StringIO()
    Progress(out).finished(Outcome("a", "failed", said))
    for text in (out.getvalue(), progress.report([Outcome("a", "failed", said)])):
        assert "\x1b" not in text
        assert len(text) < 3_000
