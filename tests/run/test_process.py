"""One process for one script: what it is given, and how it is ended."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from gallery_recorder.run import process
from gallery_recorder.run.protocol import BlockStarted, Run, ScriptFailedError, StoppedError
from gallery_recorder.run.workspace import Workspace
from tests.fixtures.room import Room
from tests.fixtures.waiting import PATIENCE, wait_for


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def make_run(room, code, **changes):
    """An order to execute a script whose second block is *code*, and its workspace folder."""
    room.write("a", code)
    plan = room.project()
    (example,) = plan.examples
    run = Run(
        example=example,
        keys=tuple(block.key for block in example.load().code),
        where=plan.where,
        top=plan.top,
        settings=plan.settings,
        kind="cpu",
        device="cpu",
        timeout=PATIENCE,
    )
    workspace = Workspace(room.folder / "workspace", room.folder / "tmp")
    workspace.create()
    return msgspec.structs.replace(run, **changes), workspace


def test_blocks_are_told_as_they_begin(room):
    run, workspace = make_run(room, "x = 1")
    told = []
    made = process.execute(run, workspace, threading.Event(), told.append)
    assert told == [BlockStarted(1, 2, 11), BlockStarted(2, 2, 16)]
    assert made.passed
    assert list(workspace.recording.iterdir()) == []


def test_a_gallery_may_lie_anywhere(tmp_path):
    """A gallery and a conf.py that have no folder in common but the first of all."""
    script = tmp_path / "examples" / "a.py"
    script.parent.mkdir()
    script.write_text("x = 1")
    workspace = Workspace(tmp_path / "workspace", tmp_path / "tmp")
    workspace.create()
    assert workspace.overlay(script, Path("/")).read_text() == "x = 1"


def test_it_can_be_stopped(room):
    run, workspace = make_run(room, "import time\ntime.sleep(1000)")
    stop = threading.Event()
    with pytest.raises(StoppedError):
        process.execute(run, workspace, stop, lambda event: stop.set())


def test_the_first_signal_is_a_polite_one(room, monkeypatch):
    monkeypatch.setattr(process, "_GRACE", PATIENCE)
    told = room.folder / "told"
    code = f"""
        import os, signal, time
        descriptor = os.open({str(told)!r}, os.O_RDONLY)
        def polite(*_):
            os.write(1, b"asked to end")
            raise SystemExit(3)
        signal.signal(signal.SIGTERM, polite)
        os.write(1, b"ready")
        time.sleep(1000)
        """
    told.touch()
    run, workspace = make_run(room, code)
    stop = threading.Event()

    def stop_it():
        wait_for(lambda: workspace.stdout.exists() and b"ready" in workspace.stdout.read_bytes())
        stop.set()

    threading.Thread(target=stop_it).start()
    with pytest.raises(StoppedError):
        process.execute(run, workspace, stop)
    assert "asked to end" in workspace.stdout.read_text()


def test_the_file_that_is_executed_is_a_copy(room):
    path = str(room.tutorials / "a.py")
    waits = f"while 'the ' + 'second' not in open({path!r}).read():\n    pass\nprint('first')"
    run, workspace = make_run(room, waits)

    def edit(event):
        room.write("a", "print('the second')")

    made = process.execute(run, workspace, threading.Event(), edit)
    assert made.blocks[1].stdout == "first\n"


def test_a_result_of_other_blocks_is_refused(room):
    run, workspace = make_run(room, "x = 1", keys=("0" * 64,))
    with pytest.raises(ScriptFailedError, match="wrote into the pipe through which"):
        process.execute(run, workspace, threading.Event())


@pytest.mark.parametrize(
    "told",
    [
        b'{"type":"began","process":-1}',  # all processes would get the signal that asks where
        b'{"type":"done"}',  # after it, what was printed later would count as recorded
        b'{"type":"done","stdout":-1}',
        b'{"type":"done","stdout":1%s}' % (b"0" * 30),
    ],
)
def test_what_is_told_once_is_not_told_again_by_the_script(told, monkeypatch):
    child = object.__new__(process._Process)
    child._unread, child._pid, child._done = b"", 0, None

    def failed_here(cause, *_):
        raise ScriptFailedError(cause)

    monkeypatch.setattr(child, "_failed_here", failed_here, raising=False)
    child._hear(b'{"type":"began","process":7}\n{"type":"done","stdout":3}\n', print)
    with pytest.raises(ScriptFailedError, match="wrote into the pipe"):
        child._hear(told + b"\n", print)
    assert (child._pid, child._done.stdout) == (7, 3)
