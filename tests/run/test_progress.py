"""What is told while recording, and the report."""

from __future__ import annotations

import io
import sys

import pytest

from gallery_recorder.run import progress
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.run.protocol import BlockStarted

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
        told.told("01-a", BlockStarted(1, 3, 9))
        now[0] += 6
        told.told("01-a", BlockStarted(2, 3, 20))
        told.told("01-a", BlockStarted(3, 3, 30))
        told.told("01-a", "waits")
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


def test_the_report_of_nothing():
    assert progress.report([]) == "Nothing was recorded."


def test_what_a_node_sends_neither_steers_a_terminal_nor_fills_it():
    said = "a\x1b[2J\x1b]0;title\x07\u202e" + "x" * 30_000
    failed, doubtful = Outcome("a", "failed", said), Outcome("b", "recorded", "", 1.0, (said,))
    out = io.StringIO()
    with Progress(out) as told:
        told.finished(failed)
    for text in (out.getvalue(), progress.report([failed]), progress.report([doubtful])):
        assert "a\\u202ex" in text
        assert "\x1b" not in text
        assert len(text) < 3_000


@pytest.mark.parametrize(
    ("terminal", "variables", "live"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "CI": "true"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_the_display_fits_where_it_goes(monkeypatch, terminal, variables, live):
    monkeypatch.delenv("CI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert Progress().live is live


def test_the_display_in_a_terminal(monkeypatch):
    out = io.StringIO()
    out.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress() as told:
        told.started("01-a", 11.0)
        told.started("02-b", None)
        told.told("01-a", BlockStarted(2, 3, 9))
        told._bars.refresh()
        told.told("02-b", "waits [for] it")
        for outcome in OUTCOMES:
            told.finished(outcome)
    shown = out.getvalue()
    for text in ("block 2 of 3", "last time 11.0 s", "first time", "02-b: waits [for] it"):
        assert text in shown
    assert "01-a: recorded in 12.3 s" in shown
