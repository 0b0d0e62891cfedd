"""What is told while recording, and the report."""

from __future__ import annotations

import io
import sys

import pytest

from gallery_recorder.run import progress
from gallery_recorder.run.messages import BlockStarted
from gallery_recorder.run.progress import LiveProgress, Outcome, Progress

OUTCOMES = [
    Outcome("01-a", "recorded", "recordings/x/01-a", 12.34, ("the clocks were held down",)),
    Outcome("02-b", "failed", "tutorials/02-b.py:7: raised ValueError\nCorrect it."),
    Outcome("03-c", "skipped", "needs a GPU"),
    Outcome("04-d", "current", "the recording is of this code"),
]


def test_plain_lines(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with Progress(out) as told:
        told.started("01-a", 11.0)
        told.block("01-a", BlockStarted(1, 3, 9))
        now[0] += 6
        told.block("01-a", BlockStarted(2, 3, 20))
        told.block("01-a", BlockStarted(3, 3, 30))
        told.note("01-a", "waits")
        for outcome in OUTCOMES[:2]:
            told.finished(outcome)
    assert out.getvalue().splitlines() == [
        "01-a: begins (last time 11.0 s)",
        "01-a: block 2 of 3, line 20, 6 s",
        "01-a: waits",
        "01-a: recorded in 12.3 s: recordings/x/01-a",
        "02-b: failed: tutorials/02-b.py:7: raised ValueError",
    ]


def test_the_report():
    assert progress.report(OUTCOMES) == (
        "FAILED 02-b\n"
        "  tutorials/02-b.py:7: raised ValueError\n"
        "  Correct it.\n"
        "\n"
        "WARNING 01-a: the clocks were held down.\n"
        "\n"
        "1 recorded, 1 current, 1 skipped, 1 failed."
    )


@pytest.mark.parametrize(
    ("terminal", "variables", "kind"),
    [
        (True, {"TERM": "xterm"}, LiveProgress),
        (True, {"TERM": "xterm", "CI": "true"}, Progress),
        (True, {"TERM": "dumb"}, Progress),
        (False, {"TERM": "xterm"}, Progress),
    ],
)
def test_the_display_fits_where_it_goes(monkeypatch, terminal, variables, kind):
    monkeypatch.delenv("CI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert type(progress.make_progress()) is kind


def test_the_display_in_a_terminal(monkeypatch):
    out = io.StringIO()
    out.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with LiveProgress() as told:
        told.started("01-a", 11.0)
        told.started("02-b", None)
        told.block("01-a", BlockStarted(2, 3, 9))
        told._bars.refresh()
        told.note("02-b", "waits [for] it")
        for outcome in OUTCOMES:
            told.finished(outcome)
    shown = out.getvalue()
    for text in ("block 2 of 3", "last time 11.0 s", "first time", "02-b: waits [for] it"):
        assert text in shown
    assert "01-a: recorded in 12.3 s" in shown
