"""Which tutorials are recorded, where, and what happens to a recorder that is disturbed."""

from __future__ import annotations

import errno
import io
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest

from gallery_recorder.project.script import load_script
from gallery_recorder.run import executors, process
from gallery_recorder.run import gpus as gpus_of
from gallery_recorder.run.protocol import Failure, Result, ScriptFailedError
from gallery_recorder.store import atomic, lock
from gallery_recorder.store.format import Block, Provenance
from tests.fixtures.room import DEVICE, Room
from tests.fixtures.waiting import PATIENCE, wait_for

#: A script that waits for a file.
WAITS = "import os, time\nwhile not os.path.exists({go!r}):\n    time.sleep(0.01)"


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


# --- which tutorials are recorded ---------------------------------------------------------------


def test_only_what_is_not_current_is_recorded(room):
    path = room.write("01-a", "x = 1")
    room.write("02-b", "x = 1")
    assert {o.status for o in room.record().values()} == {"recorded"}
    assert {o.status for o in room.record().values()} == {"current"}
    path.write_text(path.read_text().replace("An introduction", "Another introduction"))
    assert room.record()["01-a"].status == "current"
    path.write_text(path.read_text().replace("x = 1", "x = 2"))
    assert {name: o.status for name, o in room.record().items()} == {
        "01-a": "recorded",
        "02-b": "current",
    }
    assert room.record("02", force=True)["02-b"].status == "recorded"
    (room.gallery / "02-b" / "recording.json").write_text("{")
    assert room.record("02-b")["02-b"].status == "recorded"


def test_a_name_that_no_recording_has_is_told(room):
    for name in ("a\nb", "a\\b", ".a"):
        room.write(name, "x = 1")
    room.write("01-a", "x = 1")
    found = room.record()
    assert found.pop("01-a").status == "recorded"
    assert len(found) == 3
    for outcome in found.values():
        assert outcome.status == "failed"
        assert ".py: no recording is called so. Rename it" in outcome.text


def test_the_folder_of_solutions_is_recorded(room):
    room.write("01-a", "x = 1")
    solutions = room.tutorials / "solutions"
    solutions.mkdir()
    (solutions / "GALLERY_HEADER.rst").write_text("Solutions\n=========\n")
    shutil.copy(room.tutorials / "01-a.py", solutions / "01-b.py")
    outcomes = room.record()
    assert list(outcomes) == ["01-a", "solutions/01-b"]
    assert room.load("solutions/01-b").name == "solutions/01-b"
    assert room.left_over() == []


def test_recording_again_changes_only_times(room):
    room.write(
        "01-a",
        """
        import matplotlib.pyplot as plt
        figure, axes = plt.subplots()
        axes.plot([1, 2], label="a")
        axes.legend()
        open("a.csv", "w").write("a,b\\n1,2\\n")
        object()
        """,
    )

    def content():
        made = msgspec.to_builtins(room.load("01-a"))
        del made["run"]
        for block in made["blocks"]:
            del block["seconds"]
        return made

    room.record()
    first = content()
    assert list(first["files"])[:2] == ["a.csv", "images/sphx_glr_01-a_001.svg"]
    room.record(force=True)
    assert content() == first


def test_what_a_library_says_at_exit_is_a_warning(room):
    room.write("01-a", "import atexit, sys\n_ = atexit.register(print, 'bye', file=sys.stderr)")
    outcome = room.record()["01-a"]
    assert outcome.status == "recorded"
    assert outcome.warnings == ("printed to standard error after its last block: bye",)
    assert room.load("01-a").blocks[1].stderr == ""


def test_needs_skip_and_never_pass(room):
    path = room.write("01-a", "x = 1")
    path.write_text(f'{path.read_text()}\n# sphinx_gallery_needs = "compute_capability>=9.0"\n')
    done = room.run("record", "--device", "cpu")
    assert done.returncode == 0
    assert "01-a: skipped: needs a GPU with compute_capability>=9.0" in done.stdout
    assert done.stdout.endswith("1 skipped.\n")
    assert not room.recordings.exists()


def test_the_command_line(room):
    room.write("01-a", "x = 1")
    assert room.run("record", "--device", "cpu").returncode == 0
    unknown = room.run("record", "99", "--device", "cpu")
    assert unknown.returncode == 2
    assert "'99'" in unknown.stderr
    assert room.run("record", "--jobs", "0").returncode == 2
    room.write("02-b", "1 / 0")
    failed = room.run("record", "--device", "cpu")
    assert failed.returncode == 1
    assert re.search(r"FAILED 02-b\n  tutorials/02-b\.py:\d+, block 2 of 2: raised", failed.stdout)
    assert failed.stdout.endswith("1 current, 1 failed.\n")


def test_a_gpu_that_is_not_there_is_an_error(room, monkeypatch):
    room.write("01-a", "x = 1")
    monkeypatch.setattr(gpus_of, "find_gpus", list)
    with pytest.raises(gpus_of.DeviceError, match="no GPU was found, and --device cuda"):
        room.record(device="cuda")
    if not gpus_of.find_gpus():
        hidden = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        done = room.run("record", "--device", "cuda", env=hidden)
        assert done.returncode == 1
        assert "no GPU was found" in done.stderr
        assert not room.recordings.exists()


def test_the_commit_is_recorded(room, monkeypatch):
    room.write("01-a", "x = 1")
    git = ["git", "-C", str(room.folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    room.record(force=True)
    assert room.load("01-a").provenance.commit is None
    subprocess.run([*git, "add", "conf.py", "docs", "tutorials"], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    room.record(force=True)
    commit = room.load("01-a").provenance.commit
    assert re.fullmatch("[0-9a-f]{40}", commit)
    room.write("01-a", "x = 2")
    room.record(force=True)
    assert room.load("01-a").provenance.commit == f"{commit}-dirty"
    monkeypatch.setenv("GALLERY_COMMIT", "abc")
    room.record(force=True)
    assert room.load("01-a").provenance.commit == "abc"
    room.record(force=True, commit="def")
    assert room.load("01-a").provenance.commit == "def"


def test_nothing_of_one_tutorial_reaches_the_next(room):
    room.write(
        "01-changes",
        """
        import os, random, sys, json
        os.environ["CHANGED"] = "1"
        os.environ["TRITON_INTERPRET"] = "0"
        os.chdir("/")
        sys.path.insert(0, "/changed")
        random.seed(1)
        json.changed = True
        import matplotlib
        matplotlib.rcParams["lines.linewidth"] = 77
        import builtins
        builtins.changed = True
        """,
    )
    code = """
        import builtins, json, os, random, sys
        print("CHANGED" in os.environ, os.environ["TRITON_INTERPRET"], os.getcwd())
        print("/changed" in sys.path, hasattr(json, "changed"), hasattr(builtins, "changed"))
        import matplotlib
        print(matplotlib.rcParams["lines.linewidth"], sorted(os.listdir()))
        print(random.getstate() == random.Random(1).getstate())
        """
    room.write("02-sees", code)
    room.record(jobs=1)
    assert room.load("02-sees").blocks[1].stdout == (
        "False 1 .\nFalse False False\n1.5 ['01-changes.py', '02-sees.py']\nFalse\n"
    )


def test_several_are_recorded_at_once_and_the_longest_first(room):
    go = room.folder / "go"
    for name, seconds in (("01-short", 1.0), ("02-long", 9.0), ("03-longer", 10.0)):
        room.write(name, WAITS.format(go=str(go)))
        room.put_recording(name, seconds)
    out = io.StringIO()

    def let_go():
        wait_for(lambda: out.getvalue().count("begins") == 2)
        go.touch()

    threading.Thread(target=let_go).start()
    room.record(jobs=2, out=out)
    begun = re.findall("^(.*): begins", out.getvalue(), re.MULTILINE)
    assert sorted(begun[:2]) == ["02-long", "03-longer"]
    assert begun[2:] == ["01-short"]


@pytest.fixture
def gpus(room, monkeypatch):
    """Three GPUs that are made up, the last of another model, and what was executed on them."""
    room.kept = False  # to learn what kept servers import, a script would be executed
    found = [
        gpus_of.Gpu(name, f"GPU-{os.getpid()}-{n}", {"CUDA_VISIBLE_DEVICES": str(n)}, 10**11)
        for n, name in enumerate(["NVIDIA H200", "NVIDIA H200", "NVIDIA A100"])
    ]
    monkeypatch.setattr(gpus_of, "find_gpus", lambda: found)
    spans = []

    def execute(run, workspace, *_):
        begun = time.monotonic()
        time.sleep(0.01)
        spans.append((run.visible["CUDA_VISIBLE_DEVICES"], begun, time.monotonic()))
        raise ScriptFailedError(Failure("was made up", "Nothing."))

    monkeypatch.setattr(process, "execute", execute)
    return spans


@pytest.mark.parametrize(("jobs", "used"), [(None, {"0", "1"}), (1, {"0"}), (9, {"0", "1"})])
def test_every_gpu_of_a_model_has_one_tutorial_at_a_time(room, gpus, monkeypatch, jobs, used):
    execute, numbers, meet = process.execute, count(), threading.Barrier(len(used))

    def execute_after_meeting(*order):
        if next(numbers) < len(used):  # the first of each GPU wait for each other
            meet.wait(PATIENCE)
        return execute(*order)

    monkeypatch.setattr(process, "execute", execute_after_meeting)
    for number in range(6):
        room.write(f"{number:02}-a", "x = 1")
    room.record(device="auto", jobs=jobs)
    assert len(gpus) == 6
    assert {gpu for gpu, _, _ in gpus} == used
    for gpu in used:
        own = sorted(span[1:] for span in gpus if span[0] == gpu)
        assert all(before[1] <= after[0] for before, after in pairwise(own))


def test_a_gpu_is_not_shared_between_recorders(room, gpus):
    room.write("01-a", "x = 1")
    out = io.StringIO()
    plan = room.project()
    path = executors.gpu_lock(gpus_of.find_gpus()[0])
    held = lock.try_lock(path)
    unlocked = []

    def unlock():
        wait_for(lambda: f"01-a: waits: process {os.getpid()} uses the GPU" in out.getvalue())
        unlocked.append(time.monotonic())
        lock.unlock(path, held)

    threading.Thread(target=unlock).start()
    room.record(device="cuda", out=out, plan=plan)
    assert gpus[0][1] > unlocked[0]
    assert not path.exists()


# --- what disturbs a recorder -------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.stress)]
)
def test_a_signal_ends_it_cleanly(room, number):
    room.write(
        "01-a", "import subprocess\nprint('here', flush=True)\nsubprocess.run(['sleep', '987'])"
    )
    room.write("02-b", "x = 1")
    room.put_recording("01-a")
    before = room.content("01-a")
    process = room.start("--jobs", "1", stdout=subprocess.PIPE, text=True)
    wait_for(lambda: any("sleep" in line for line in room.left_over()))
    process.send_signal(number)
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert "01-a: interrupted: was ended" in printed
    assert room.content("01-a") == before
    assert room.left_over() == []


def test_two_recorders_at_once(room):
    marker = room.folder / "go"
    room.write("01-a", WAITS.format(go=str(marker)))
    first = room.start(stdout=subprocess.PIPE, text=True)
    wait_for(lambda: list(room.device.glob(".workspace-*")))
    second = room.start(stdout=subprocess.PIPE, text=True)
    told = ""
    while "waits" not in told:
        told = second.stdout.readline()
        assert told, "the second recorder did not wait"
    assert told == f"01-a: waits: process {first.pid} is recording it\n"
    marker.touch()
    assert "01-a: recorded" in first.communicate(timeout=PATIENCE)[0]
    assert (
        "01-a: current: another recorder has recorded it" in second.communicate(timeout=PATIENCE)[0]
    )
    assert first.returncode == second.returncode == 0
    assert room.left_over() == []


def test_a_lock_is_not_left_by_a_crash_and_waiting_can_be_stopped(tmp_path):
    path = tmp_path / "lock"
    stop, told = threading.Event(), []
    holder = os.fork()
    if holder == 0:
        lock.try_lock(path)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(holder, os.WUNTRACED)
    assert lock.try_lock(path) is None
    stop.set()
    with lock.locked(path, stop, told.append) as mine:
        assert not mine
    assert told == [f"process {holder}"]
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with lock.locked(path, threading.Event(), told.append) as mine:
        assert mine
    assert not path.exists()
    assert len(told) == 1


def test_what_a_killed_recorder_left_is_removed(room):
    room.write("01-a", "import subprocess\nsubprocess.run(['sleep', '987'])")
    room.write("02-b", "x = 1")
    process = room.start("01", stdout=subprocess.DEVNULL)
    wait_for(lambda: any(line.startswith("sleep") for line in room.left_over()))
    process.kill()
    process.wait()
    assert list(room.device.glob(".workspace-tutorials--01-a-*"))
    room.record("02")
    assert room.left_over() == []


@pytest.mark.parametrize("failing", ["write_bytes", "rename", "fsync"])
def test_a_full_disk_leaves_the_old_recording(room, monkeypatch, failing):
    room.write("01-a", "x = 1")
    room.put_recording("01-a")
    before = room.content("01-a")

    def full(*_arguments, **_named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real = Path.write_bytes
    if failing == "write_bytes":

        def write(path, content):
            return full() if path.name == "recording.json" else real(path, content)

        monkeypatch.setattr(Path, "write_bytes", write)
    elif failing == "rename":
        monkeypatch.setattr(atomic, "exchange", full)
    else:
        monkeypatch.setattr(os, "fsync", full)
    outcome = room.record()["01-a"]
    monkeypatch.undo()
    assert outcome.status == "failed"
    assert "could not be written: [Errno 28] No space left on device" in outcome.text
    assert room.content("01-a") == before
    assert room.left_over() == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("kilobytes", [100, 500, 900])
def test_a_disk_that_fills_for_real(small_disk, kilobytes):
    # It fills when the file is copied to the recording, or when the tutorial writes it.
    room = Room(small_disk)
    room.write("01-a", f"size = open('a.bin', 'wb').write(b'x' * {kilobytes * 1000})")
    room.put_recording("01-a")
    before = room.content("01-a")
    (room.folder / "filled").write_bytes(b"x" * 200_000)
    outcome = room.record()["01-a"]
    assert room.left_over() == []
    if kilobytes == 100:
        assert outcome.status == "recorded"
    else:
        assert outcome.status == "failed"
        assert room.content("01-a") == before
        assert "No space left on device" in outcome.text


def test_a_folder_that_cannot_be_written(room, monkeypatch):
    room.write("01-a", "x = 1")

    def denied(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    plan = room.project()
    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(gpus_of.DeviceError, match=r"cannot be written there \(Permission denied\)"):
        room.record(plan=plan)


def test_a_fault_of_the_recorder_itself_is_told(room, monkeypatch):
    room.write("01-a", "x = 1")
    monkeypatch.setattr(process, "execute", lambda *_: 1 / 0)
    outcome = room.record()["01-a"]
    assert outcome.status == "failed"
    assert "the recorder itself failed; please report this:\nTraceback" in outcome.text


def kill_often(room, times, moments):
    """Kill a recorder of ``01-a`` *times* times; after each, its recording is whole.

    Each of *moments* is a file of the workspace folder that the delay begins with (the start where
    there is none) and the longest delay.
    """
    room.kept = False  # what is killed has servers of its own
    key = load_script(room.tutorials / "01-a.py").key
    room.put_recording("01-a")
    chance, plan = random.Random(7), room.project()
    there, replaced = "old", 0
    for number in range(times):
        begin, longest = chance.choice(moments)
        if number < 2:  # the first is killed at once, and the second never: it ends
            begin, longest = ("", "recording/nothing")[number], 0
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        process = os.fork()
        if process == 0:
            try:  # an interrupt before this would be one of these tests' own
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                os.environ["NUMBER"] = str(number)
                room.record(force=True, plan=plan)
            finally:  # also where it is interrupted before it can see to that itself
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        ended = False
        while begin and not ended and not list(room.device.glob(f".workspace-*/{begin}")):
            ended = os.waitpid(process, os.WNOHANG)[0] != 0
            time.sleep(0.001)
        time.sleep(chance.uniform(0, longest))
        if not ended and number != 1:
            os.kill(process, chance.choice([signal.SIGKILL] * 4 + [signal.SIGINT]))
            os.waitpid(process, 0)
        found = room.load("01-a")
        printed = found.blocks[-1].stdout.strip()
        assert printed in (there, str(number)), "neither the old recording nor the new one"
        assert found.key == (key if printed != "old" else "0" * 64)
        replaced += printed != there
        there = printed
    wait_for(lambda: not any("gallery_recorder" in line for line in room.left_over()))
    assert 0 < replaced < times, "the moments were not spread over the whole run"
    room.record(force=True)
    assert room.left_over() == []
    print(f"killed {times} times, {replaced} recordings replaced")


@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=pytest.mark.stress)])
def test_killed_at_any_moment_of_a_tutorial_the_recording_is_whole(room, monkeypatch, kills):
    """SIGKILL, and sometimes SIGINT: at the start, in a block, when it is executed, when saved."""
    room.write(
        "01-a", "import os\nprint(os.environ['NUMBER'])\nopen('a.txt', 'w').write('x' * 999)"
    )
    monkeypatch.setenv("NUMBER", "last")
    kill_often(room, kills, [("", 0.5), ("result.json", 0.3), ("recording/recording.json", 0.01)])


@pytest.mark.parametrize("kills", [60, pytest.param(1000, marks=pytest.mark.stress)])
def test_killed_at_any_moment_of_saving_the_recording_is_whole(room, monkeypatch, kills):
    """Hundreds of kills while recordings are moved in, with what is executed made up."""
    room.write("01-a", "x = 1")
    room.put_recording("02-b")

    def execute(run, workspace, *_):
        shutil.copy(room.gallery / "02-b" / "data.csv", workspace.recording)
        blocks = [Block(11, key, 1.0, data=("data.csv",)) for key in run.keys]
        number = os.environ.get("NUMBER", "last")
        blocks[-1] = msgspec.structs.replace(blocks[-1], stdout=number, data=())
        return Result(Provenance(DEVICE, "cpu", "Linux", "3"), tuple(blocks), 1.0, True)

    monkeypatch.setattr(process, "execute", execute)
    kill_often(room, kills, [("", 0.08), ("recording/recording.json", 0.015)])


@pytest.mark.parametrize("name", ["cache", ".cache", "cache-3.9.0"])
def test_a_cache_that_is_not_there_yet_is_made(room, tmp_path, name, monkeypatch):
    cache = tmp_path / "made" / name
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    room.write("01-a", "import os\nos.mkdir(os.environ['TRITON_CACHE_DIR'] + '/kernel')\n")
    assert room.run("record", "--device", "cpu", env=dict(os.environ)).returncode == 0
    assert (cache / "kernel").is_dir()
