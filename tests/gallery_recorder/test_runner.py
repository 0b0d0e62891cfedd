"""One process for one tutorial: what it is given, and how it is ended."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from room import Room

from gallery_recorder.run import runner
from gallery_recorder.run.job import BlockStarted, Staging
from gallery_recorder.run.provenance import Gpu
from gallery_recorder.source import needs
from gallery_recorder.source.script import load_script


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def make_task(room, code, **changes):
    path = room.write("01-a", code)
    task = {
        "tutorial": "01-a",
        "file": path.name,
        "code": path.read_bytes(),
        "source": "tutorials/01-a.py",
        "device_name": "interpreter",
        "timeout": 20.0,
    }
    staging = Staging(room.folder / "staging")
    staging.create()
    return runner.Task(**task | changes), staging


def test_blocks_are_told_as_they_begin(room):
    task, staging = make_task(room, "x = 1")
    told = []
    made = runner.run(task, staging, threading.Event(), told.append)
    assert told == [BlockStarted(1, 2, 11), BlockStarted(2, 2, 16)]
    assert made.tutorial == "01-a"
    assert list(staging.recording.iterdir()) == []


def test_it_can_be_stopped(room):
    task, staging = make_task(room, "import time\ntime.sleep(100)")
    stop = threading.Event()
    started = time.monotonic()
    threading.Timer(0.7, stop.set).start()
    with pytest.raises(runner.StoppedError):
        runner.run(task, staging, stop)
    assert time.monotonic() - started < 5
    assert room.left_over() == []


def test_the_first_signal_is_a_polite_one(room):
    told = room.folder / "told"
    code = f"""
        import os, signal, time
        descriptor = os.open({str(told)!r}, os.O_RDONLY)
        def polite(*_):
            print("asked to end")
            raise SystemExit(3)
        signal.signal(signal.SIGTERM, polite)
        time.sleep(100)
        """
    told.touch()
    task, staging = make_task(room, code, timeout=1.5)
    with pytest.raises(runner.TutorialError) as error:
        runner.run(task, staging, threading.Event())
    assert "took longer than 1.5 s" in error.value.failure.cause
    assert "asked to end" in staging.stdout.read_text()


def test_the_file_that_is_executed_is_a_copy(room):
    task, staging = make_task(room, "import time\ntime.sleep(0.5)\nprint('first')")

    def edit(event):
        room.write("01-a", "print('second')")

    made = runner.run(task, staging, threading.Event(), edit)
    assert made.blocks[1].stdout == "first\n"
    assert made.key != load_script(room.tutorials / task.file, room.tutorials).key


def test_its_environment(room, monkeypatch):
    for name in ("TRITON_INTERPRET", "PYTHONWARNINGS", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    visible = {"CUDA_VISIBLE_DEVICES": "3"}
    task, staging = make_task(room, "x = 1", device_name="NVIDIA H200", visible=visible)
    environment = runner._environment(task, staging)
    assert not {"TRITON_INTERPRET", "PYTHONWARNINGS", "PYTHONSTARTUP"} & set(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert "OMP_NUM_THREADS" not in environment
    assert environment["PYTHONPATH"].split(os.pathsep) == [
        "/somewhere",
        str(Path(runner.__file__).parents[1]),
    ]
    assert environment["TMPDIR"] == str(staging.tmp)


def test_a_child_whose_runner_is_gone_does_not_begin(room, monkeypatch):
    task, staging = make_task(room, "x = 1")
    monkeypatch.setattr(runner.os, "getpid", lambda: 1)
    with pytest.raises(runner.TutorialError, match="could not be started"):
        runner.run(task, staging, threading.Event())


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [("", 600), ("# sphinx_gallery_timeout = 120", 120), ("# sphinx_gallery_timeout = 0.5", 0.5)],
)
def test_a_tutorial_can_say_how_long_it_takes(room, settings, seconds):
    path = room.write("01-a", f"x = 1\n{settings}")
    assert needs.timeout_of(load_script(path, room.tutorials)) == seconds


H200 = Gpu("NVIDIA H200", "GPU-1", {}, 150_000_000_000, "9.0")
SMALL = Gpu("NVIDIA T4", "GPU-2", {}, 16_000_000_000, "7.5")
AMD = Gpu("AMD Instinct MI300X", "GPU-3", {}, 192_000_000_000, None)


@pytest.mark.parametrize(
    ("said", "gpu", "unmet"),
    [
        ("", None, None),
        ("compute_capability>=9.0", H200, None),
        ("compute_capability >= 9.0, memory >= 40 GB", H200, None),
        ("compute_capability>=10.0", H200, "compute_capability>=10.0, and NVIDIA H200 has 9.0"),
        ("memory>=40GB", SMALL, "memory>=40GB, and NVIDIA T4 has 16 GB"),
        ("memory>=40GB", AMD, None),
        ("compute_capability>=7.0", AMD, "compute_capability>=7.0, and AMD Instinct MI300X has n"),
        ("memory>=1GB", None, "a GPU with memory>=1GB"),
    ],
)
def test_needs(room, said, gpu, unmet):
    path = room.write("01-a", f"x = 1\n# sphinx_gallery_needs = {said!r}")
    found = needs.unmet_need(load_script(path, room.tutorials), gpu)
    assert (found or "").startswith(unmet or "")
    assert (found is None) == (unmet is None)
