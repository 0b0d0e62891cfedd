"""What is printed while recording."""

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
    told.update("01-a", BlockStarted(1, 3, 9))
    now[0] += 6
    told.update("01-a", BlockStarted(2, 3, 20))
    told.update("01-a", BlockStarted(3, 3, 30))
    told.update("01-a", "waits")
    for outcome in OUTCOMES[:2]:
        told.finished(outcome)
    assert out.getvalue().splitlines() == [
        "01-a: started",
        "01-a: block 2 of 3, line 20, 6 s",
        "01-a: waits",
        "01-a: recorded in 12.3 s: recordings/x/01-a",
        "02-b: failed: tutorials/02-b.py:7: raised ValueError",
    ]


def test_the_time_that_is_left_is_that_of_last_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    told = Progress(out)
    with told.of({"01-a": 30.0, "02-b": 100.0, "03-c": None}, 2):
        told.started("01-a")
        told.started("02-b")
        now[0] += 40
        told.finished(Outcome("01-a", "recorded", "recordings", 40.0))
    first, *_, last = out.getvalue().splitlines()
    assert first == "3 to record, about 2 min left."
    assert last == "01-a: recorded in 40.0 s: recordings [1 of 3 done, about 65 s left]"


def test_a_warning_that_examples_share_is_said_once():
    outcomes = [Outcome(f"{n:02}", "recorded", "", 1.0, ("the GPU was hot",)) for n in range(9)]
    assert progress.report(outcomes).startswith(
        "WARNING 00, 01, 02 and 6 others: the GPU was hot.\n\n9 recorded."
    )


def test_what_an_example_says_neither_steers_a_terminal_nor_fills_it():
    said = "a\x1b[2J\x1b]0;title\x07" + "x" * 30_000
    out = io.StringIO()
    Progress(out).finished(Outcome("a", "failed", said))
    for text in (out.getvalue(), progress.report([Outcome("a", "failed", said)])):
        assert "\x1b" not in text
        assert len(text) < 3_000
