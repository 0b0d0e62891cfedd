"""One process for one example: what it is given, and how it is ended."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest

from gallery_recorder.run import copies, process
from gallery_recorder.run.protocol import BlockStarted, ExampleFailedError, Run, StoppedError
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import Room
from gallery_recorder.testing.waiting import PATIENCE, wait_for


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def make_run(room, code, **changes):
    """An order to execute an example whose second block is *code*, and its workspace."""
    room.write("a", code)
    plan = room.project()
    (example,) = plan.examples
    run = Run(
        example=example,
        keys=tuple(block.key for block in example.load().code),
        where=plan.where,
        top=plan.top,
        folder=room.root,
        settings=plan.settings,
        kind="cpu",
        device="cpu",
        timeout=PATIENCE,
    )
    workspace = Workspace(room.root / "workspace", room.root / "gallery-tmp")
    workspace.create()
    return msgspec.structs.replace(run, **changes), workspace


def test_the_file_that_is_executed_is_a_copy_and_blocks_are_told_as_they_begin(room):
    path = str(room.examples / "a.py")
    waits = f"while 'the ' + 'second' not in open({path!r}).read():\n    pass\nprint('first')"
    run, workspace = make_run(room, waits)
    told = []

    def edit(event):
        told.append(event)
        room.write("a", "print('the second')")

    made = process.execute(run, workspace, threading.Event(), edit)
    assert told == [BlockStarted(1, 2, 11), BlockStarted(2, 2, 16)]
    assert made.blocks[1].stdout == "first\n"
    assert list(workspace.recording.iterdir()) == []


def test_an_example_that_was_edited_before_the_copy_is_refused(room):
    run, workspace = make_run(room, "x = 1", keys=("0" * 64,))
    with pytest.raises(ExampleFailedError, match="was changed while it was being recorded"):
        process.execute(run, workspace, threading.Event())


def test_stopping_is_polite_first(room):
    code = """
        import os, signal, time
        def polite(*_):
            os.write(1, b"asked to end")
            raise SystemExit(3)
        signal.signal(signal.SIGTERM, polite)
        os.write(1, b"ready")
        time.sleep(1000)
        """
    run, workspace = make_run(room, code)
    stop = threading.Event()

    def stop_it():
        wait_for(lambda: workspace.stdout.exists() and b"ready" in workspace.stdout.read_bytes())
        stop.set()

    threading.Thread(target=stop_it).start()
    with pytest.raises(StoppedError):
        process.execute(run, workspace, stop)
    assert "asked to end" in workspace.stdout.read_text()
    assert room.processes() == []


def test_a_killed_supervisor_takes_the_worker_with_it(room):
    code = "import os, time\nos.write(1, b'parent %d' % os.getppid())\ntime.sleep(1000)"
    run, workspace = make_run(room, code)

    def kill(event):
        if event.block == 2:
            number = wait_for(lambda: workspace.stdout.read_text().partition("parent ")[2])
            os.kill(int(number), signal.SIGKILL)

    with pytest.raises(ExampleFailedError, match=r"was ended by signal 9 \(Killed\)"):
        process.execute(run, workspace, threading.Event(), kill)
    wait_for(lambda: room.processes() == [])


def test_the_process_that_reads_conf_py_is_started_apart_from_the_recorder(room):
    """Other tests copy a process. It has neither the folder nor the input of the recorder."""
    room.write("random", "import random\nprint(random.randint(3, 3))")
    with open(room.root / "conf.py", "a") as conf:
        conf.write("import sys\nassert not sys.stdin.read()\n")
    python, *words = room.command("record", "--device", "cpu")
    done = subprocess.run(
        [python, "-P", *words],
        cwd=room.examples,
        env=os.environ | {"PYTHONPATH": processes.search_path()},
        input="typed",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert room.load("random").blocks[1].stdout == "3\n"


def test_a_gallery_and_conf_py_may_have_no_folder_in_common_but_the_root(tmp_path):
    script = tmp_path / "examples" / "a.py"
    script.parent.mkdir()
    script.write_text("x = 1")
    tree = tmp_path / "workspace" / "tree"
    tree.parent.mkdir()
    copies.ProjectCopy(tree, Path("/"), [script.parent], [tree.parent])
    workspace = Workspace(tree.parent, tmp_path / "tmp", tree)
    copied = workspace.copied(script, Path("/"))
    assert copied.read_text() == "x = 1"
    assert copied.resolve() == copied
    assert (tree / "usr").is_symlink()
