"""What disturbs a recorder: the old recording stays, nothing is left, and the report says why."""

import errno
import json
import os
import random
import re
import signal
import time

import pytest

from gallery_recorder.project.script import load_script
from gallery_recorder.run import process
from gallery_recorder.store import atomic
from gallery_recorder.testing.projects import Room, printed
from gallery_recorder.testing.waiting import PATIENCE, wait_for

#: An example that waits for the file ``go`` in the room's folder.
WAITS = "import os, time\nwhile not os.path.exists({go!r}):\n    time.sleep(0.01)"


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def execute(run, at, *_):
    """In the place of `process.execute`."""
    number = os.environ.get("NUMBER", "last")
    return printed(at.recording, run.example.name, run.keys, number)


def test_a_damaged_recording_is_recorded_again(room):
    room.write("01-a", "print('new')")
    (room.put_recording("01-a") / "recording.json").write_text("{")
    assert room.record()["01-a"].status == "recorded"
    assert room.load("01-a").blocks[1].stdout == "new\n"


@pytest.mark.parametrize("force", [False, True])
def test_a_recording_of_a_newer_recorder_is_not_replaced(room, force):
    room.write("01-a", "x = 1")
    path = room.put_recording("01-a") / "recording.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99, "more": 1}))
    before = room.content("01-a")
    outcome = room.record(force=force)["01-a"]
    assert outcome.status == "failed"
    assert re.search(r"01-a/recording\.json: .*99.*; install a newer", outcome.text)
    assert room.content("01-a") == before


def test_two_recorders_at_once_record_an_example_once(room):
    room.write("01-a", WAITS.format(go=str(room.root / "go")))
    first = room.start()
    wait_for(lambda: list(room.device.glob(".workspace-*")))
    second = room.start()
    assert second.stdout.readline() == "01-a: started\n"
    assert second.stdout.readline() == "01-a: waits: another recorder is recording it\n"
    (room.root / "go").touch()
    assert "01-a: recorded" in first.communicate(timeout=PATIENCE)[0]
    told = second.communicate(timeout=PATIENCE)[0]
    assert "01-a: current: another recorder recorded it meanwhile" in told
    assert room.left_over() == []


def start_one_that_runs(room, *arguments, **options):
    """Start a recorder, and give it once its example has started a daemon."""
    room.write(
        "01-a",
        """
        import subprocess, time
        subprocess.Popen(['env', '-i', 'setsid', 'sleep', '986'])
        time.sleep(985)
        """,
    )
    room.put_recording("01-a")
    recorder = room.start("01", *arguments, **options)
    wait_for(lambda: "sleep 986" in room.processes())
    return recorder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_or_a_closed_terminal_ends_it_cleanly(room, number):
    recorder = start_one_that_runs(room)
    before = room.content("01-a")
    os.killpg(recorder.pid, number)  # as a terminal does
    printed, _ = recorder.communicate(timeout=PATIENCE)
    assert recorder.returncode == 128 + number
    assert "01-a: interrupted: was ended" in printed
    assert room.content("01-a") == before
    assert room.left_over() == []


def test_a_killed_recorder_leaves_no_process_and_the_next_one_removes_its_files(room):
    recorder = start_one_that_runs(room)
    before = room.content("01-a")
    recorder.kill()
    recorder.communicate()
    wait_for(lambda: room.processes() == [])
    assert list(room.device.glob(".workspace-*"))
    assert list(room.root.glob("gallery-*"))
    room.write("02-b", "x = 1")
    assert room.record("02")["02-b"].status == "recorded"
    assert room.content("01-a") == before
    assert room.left_over() == []


def test_a_closed_terminal_does_not_end_it_under_nohup(room):
    room.write("01-a", WAITS.format(go=str(room.root / "go")))
    recorder = room.start(before=("nohup",))
    wait_for(lambda: list(room.device.glob(".workspace-*/stack")))
    recorder.send_signal(signal.SIGHUP)
    (room.root / "go").touch()
    assert recorder.communicate(timeout=PATIENCE)[0].endswith("1 recorded.\n")


def test_a_closed_pipe_does_not_end_it(room):
    for name in ("01-a", "02-b"):
        room.write(name, "x = 1")
    recorder = room.start("--jobs", "1")
    recorder.stdout.readline()
    recorder.stdout.close()
    assert recorder.wait(PATIENCE) == 0
    assert room.load("01-a")
    assert room.load("02-b")


@pytest.mark.parametrize("failing", ["recording.json", "exchange", "fsync"])
def test_a_full_disk_leaves_the_old_recording(room, monkeypatch, failing):
    room.write("01-a", "x = 1")
    room.put_recording("01-a")
    before = room.content("01-a")

    def full(*_arguments, **_named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(process, "execute", execute)
    function = {"recording.json": (atomic, "write"), "exchange": (atomic, "exchange")}
    monkeypatch.setattr(*function.get(failing, (os, "fsync")), full)
    outcome = room.record()["01-a"]
    monkeypatch.undo()
    assert outcome.status == "failed"
    assert "cannot be written: [Errno 28] No space left on device\nFree space" in outcome.text
    assert room.content("01-a") == before
    assert room.left_over() == []


def test_a_read_only_folder_is_named_and_keeps_its_recordings(room, monkeypatch):
    room.write("01-a", "x = 1")
    room.put_recording("01-a")
    plan, before = room.project(), room.content("01-a")

    def read_only(*arguments, **_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(arguments[0]))

    monkeypatch.setattr("filelock._unix.os.open", read_only)
    outcome = room.record(plan=plan)["01-a"]
    monkeypatch.undo()
    assert outcome.status == "failed"
    assert f"cannot be written: [Errno 30] Read-only file system: '{room.device}" in outcome.text
    assert room.content("01-a") == before


def test_a_fault_of_the_recorder_itself_is_told(room, monkeypatch):
    room.write("01-a", "x = 1")
    monkeypatch.setattr(process, "execute", lambda *_: 1 / 0)
    outcome = room.record()["01-a"]
    assert outcome.status == "failed"
    assert "the recorder itself failed; please report this:\nTraceback" in outcome.text


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=pytest.mark.stress)])
def test_killed_at_any_moment_of_saving_the_recording_is_the_old_or_the_new_one(
    room, monkeypatch, kills
):
    room.write("01-a", "x = 1")
    monkeypatch.setattr(process, "execute", execute)
    room.put_recording("01-a")
    keys = (room.load("01-a").key, load_script(room.examples / "01-a.py").key)
    chance, plan, current, replaced = random.Random(7), room.project(), "old\n", 0
    moments = ["", "/stack", "/recording/recording.json", "/recording/nothing"]  # the last: no kill
    for number in range(kills):
        moment = f".workspace-*{moments[number % 4]}"
        left = {*room.device.glob(moment)}
        recorder = os.fork()
        if recorder == 0:
            try:
                os.environ["NUMBER"] = str(number)
                room.record(force=True, plan=plan)
            finally:
                os._exit(0)
        ended = False
        while not ended and not {*room.device.glob(moment)} - left:
            ended = os.waitpid(recorder, os.WNOHANG)[0] != 0
        if not ended:
            time.sleep(chance.uniform(0, 0.005))
            os.kill(recorder, signal.SIGKILL)
            os.waitpid(recorder, 0)
        found = room.load("01-a")
        assert found.blocks[-1].stdout in (current, str(number))
        assert found.key == keys[found.blocks[-1].stdout != "old\n"]
        replaced += found.blocks[-1].stdout != current
        current = found.blocks[-1].stdout
    assert 0 < replaced < kills, "the kills were not spread over the whole run"
    room.record(force=True)
    assert room.left_over() == []
