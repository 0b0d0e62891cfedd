"""Temporary folders of commands."""

import os
import signal
import tempfile

from gallery_recorder.temporary import TemporaryFolder
from gallery_recorder.testing.projects import Room
from gallery_recorder.testing.waiting import wait_for


def test_the_next_command_removes_the_folder_of_a_killed_one_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = os.fork()
    if killed == 0:
        TemporaryFolder()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(killed, 0)
    assert len([*tmp_path.iterdir()]) == 1
    with TemporaryFolder() as first, TemporaryFolder() as second:
        assert {*tmp_path.iterdir()} == {first, second}
    assert [*tmp_path.iterdir()] == []


def test_a_killed_reading_of_conf_is_cleaned_up(tmp_path):
    room = Room(tmp_path)
    room.write("01-a", "x = 1")
    path = room.conf / "conf.py"
    said = path.read_text()
    path.write_text("import time\nopen('reading', 'w').close()\ntime.sleep(600)\n")
    recorder = room.start()
    wait_for((room.root / "reading").exists)
    recorder.kill()
    recorder.communicate()
    wait_for(lambda: room.processes() == [])
    assert room.left_over() != []
    path.write_text(said)
    assert room.record()["01-a"].status == "recorded"
    assert room.left_over() == []
