"""Which examples are recorded, in which order and where."""

import io
import os
import re
import subprocess
import threading
import time
from itertools import pairwise

import msgspec
import pytest

from gallery_recorder.run import executors, gpus, process, provenance
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.protocol import ExampleFailedError, Failure
from gallery_recorder.testing.projects import Gallery, Room, printed
from gallery_recorder.testing.waiting import wait_for

#: An example that waits for the file ``go`` in the room's folder.
WAITS = "import os, time\nwhile not os.path.exists({go!r}):\n    time.sleep(0.01)"


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


# --- which examples are recorded ------------------------------------------------------------------


def test_only_examples_whose_code_changed_are_recorded_again(room):
    path = room.write("01-a", "x = 1")
    room.write("02-b", "x = 1")
    assert {o.status for o in room.record().values()} == {"recorded"}
    path.write_text(path.read_text().replace("An introduction", "Another introduction"))
    assert {o.status for o in room.record().values()} == {"current"}
    path.write_text(path.read_text().replace("x = 1", "x = 2"))
    assert [o.status for o in room.record().values()] == ["recorded", "current"]
    assert room.record("02", force=True)["02-b"].status == "recorded"


def test_recording_again_changes_only_times(room):
    room.write(
        "01-a",
        """
        import matplotlib.pyplot as plt
        figure, axes = plt.subplots()
        axes.plot([1, 2], label="a")
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


def test_the_command_line_tells_and_returns_what_happened(room):
    path = room.write("01-a", "x = 1")
    path.write_text(f'{path.read_text()}\n# sphinx_gallery_needs = "compute_capability>=9.0"\n')
    skipped = room.run("record", "--device", "cpu")
    assert (skipped.returncode, room.recordings.exists()) == (0, False)
    assert "01-a: skipped: needs a GPU with compute_capability>=9.0" in skipped.stdout
    room.write("02-b", "1 / 0")
    failed = room.run("record", "--device", "cpu")
    assert failed.returncode == 1
    assert re.search(r"FAILED 02-b\n  tutorials/02-b\.py:\d+, block 2 of 2: raised", failed.stdout)
    assert failed.stdout.endswith("1 skipped, 1 failed.\n")
    unknown = room.run("record", "99", "--device", "cpu")
    assert (unknown.returncode, "'99'" in unknown.stderr) == (2, True)


def test_a_gpu_that_is_not_there_is_an_error(room, monkeypatch):
    room.write("01-a", "x = 1")
    monkeypatch.setattr(gpus, "find_gpus", list)
    with pytest.raises(DeviceError, match="no GPU"):
        room.record(device="cuda")
    assert not room.recordings.exists()


def test_the_commit_is_recorded(room, monkeypatch):
    def execute(run, at, *_):
        made = printed(at.recording, run.example.name, run.keys, "")
        return msgspec.structs.replace(made, provenance=provenance.of_run(run))

    monkeypatch.setattr(process, "execute", execute)
    room.write("01-a", "x = 1")

    def commit():
        room.record(force=True)
        return room.load("01-a").provenance.commit

    git = ["git", "-C", str(room.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert commit() is None
    (room.root / ".gitignore").write_text("__pycache__\n")
    subprocess.run([*git, "add", ".gitignore", "conf.py", "figures.py", "docs"], check=True)
    subprocess.run([*git, "add", "tutorials"], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    head = commit()
    assert re.fullmatch("[0-9a-f]{40}", head)
    room.write("01-a", "x = 2")
    assert commit() == f"{head}-dirty"
    monkeypatch.setenv("GALLERY_COMMIT", "abc")
    assert commit() == "abc"


def test_nothing_of_one_example_reaches_the_next(room):
    room.write(
        "01-changes",
        """
        import json, os, sys
        os.environ["CHANGED"] = "1"
        os.chdir("/")
        sys.path.insert(0, "/changed")
        json.changed = True
        """,
    )
    room.write(
        "02-sees",
        """
        import json, os, sys
        print("CHANGED" in os.environ, os.getcwd())
        print("/changed" in sys.path, hasattr(json, "changed"))
        """,
    )
    room.record(jobs=1)
    assert room.load("02-sees").blocks[1].stdout == "False .\nFalse False\n"


# --- several at once ------------------------------------------------------------------------------


def test_several_are_recorded_at_once_and_the_longest_first(room):
    go = room.root / "go"
    for name, seconds in (("01-short", 1.0), ("02-long", 9.0), ("03-longer", 10.0)):
        room.write(name, WAITS.format(go=str(go)))
        room.put_recording(name, seconds)
    out = io.StringIO()

    def let_go():
        wait_for(lambda: out.getvalue().count(": started") == 2)
        go.touch()

    threading.Thread(target=let_go).start()
    room.record(jobs=2, out=out)
    begun = re.findall("^(.*): started", out.getvalue(), re.MULTILINE)
    assert sorted(begun[:2]) == ["02-long", "03-longer"]
    assert begun[2:] == ["01-short"]


@pytest.fixture
def used(room, monkeypatch):
    """Three made-up GPUs, the last of another model; when they were used."""
    found = [
        gpus.Gpu(name, f"GPU-{os.getpid()}-{n}", {"CUDA_VISIBLE_DEVICES": str(n)}, 10**11)
        for n, name in enumerate(["NVIDIA H200", "NVIDIA H200", "NVIDIA A100"])
    ]
    monkeypatch.setattr(gpus, "find_gpus", lambda: found)
    spans = []

    def execute(run, *_):
        begun = time.monotonic()
        time.sleep(0.05)
        spans.append((run.visible["CUDA_VISIBLE_DEVICES"], begun, time.monotonic()))
        raise ExampleFailedError(Failure("was made up", "Nothing."))

    monkeypatch.setattr(process, "execute", execute)
    return spans


@pytest.mark.parametrize(("jobs", "numbers"), [(None, {"0", "1"}), (1, {"0"}), (9, {"0", "1"})])
def test_every_gpu_of_a_model_has_one_example_at_a_time(room, used, jobs, numbers):
    for number in range(6):
        room.write(f"{number:02}-a", "x = 1")
    room.record(device="auto", jobs=jobs)
    assert {gpu for gpu, _, _ in used} == numbers
    for number in numbers:
        own = sorted(span[1:] for span in used if span[0] == number)
        assert all(before[1] <= after[0] for before, after in pairwise(own))


def test_an_example_gets_the_gpus_that_it_needs_and_others_wait_for_them(room, used):
    for number, needed in enumerate([1, 1, 2, 1, 2, 3]):
        code = f'x = 1\n# sphinx_gallery_needs = "gpus>={needed}"'
        room.write(f"{number:02}-a", code if needed > 1 else "x = 1")
    outcomes = room.record(device="auto")
    both = [span[1:] for span in used if span[0] == "0,1"]
    assert len(both) == 2
    for begun, ended in both:
        others = [span[1:] for span in used if span[1:] != (begun, ended)]
        assert all(to <= begun or since >= ended for since, to in others)
    assert outcomes["05-a"].text == "needs 3 GPUs; 2 can be used here"


def test_a_gpu_is_not_shared_between_recorders(room, used):
    room.write("01-a", "x = 1")
    out, plan, free_since = io.StringIO(), room.project(), []

    def other_recorder():
        with executors.lease(gpus.find_gpus()[:1], threading.Event(), print):
            holds.set()
            wait_for(lambda: "01-a: waits: another recorder uses the GPU" in out.getvalue())
            free_since.append(time.monotonic())

    holds = threading.Event()
    threading.Thread(target=other_recorder).start()
    holds.wait()
    room.record(device="cuda", out=out, plan=plan)
    assert used[0][1] > free_since[0]


THREADS = """
import os
print(os.environ.get("OMP_NUM_THREADS"))
"""


def test_all_jobs_together_have_a_thread_for_each_core_unless_the_project_sets_them(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(executors, "_cores", lambda: 8)
    gallery = Gallery(tmp_path)
    gallery.write("a", THREADS)
    for jobs, threads in ((None, "1"), (2, "4"), (1, "8"), (99, "1")):
        gallery.record(force=True, jobs=jobs)
        made = gallery.load("a")
        assert made.blocks[1].stdout == f"{threads}\n"
        assert made.provenance.environment["OMP_NUM_THREADS"] == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    gallery.record(force=True)
    assert gallery.load("a").blocks[1].stdout == "3\n"
    conf = gallery.conf / "conf.py"
    conf.write_text(
        f"{conf.read_text()}\ngallery_environment = {{'cpu': {{'OMP_NUM_THREADS': '5'}}}}"
    )
    gallery.record(force=True)
    assert gallery.load("a").blocks[1].stdout == "5\n"


def test_an_example_that_must_run_alone_runs_after_the_others(tmp_path):
    gallery = Gallery(tmp_path)
    for name in ("a", "b", "c"):
        comment = "# sphinx_gallery_parallel = False" if name == "a" else ""
        gallery.write(name, f"{comment}\nimport time\ntime.sleep(0.3)")
    out = io.StringIO()
    gallery.record(jobs=3, out=out)
    lines = [
        line for line in out.getvalue().splitlines() if ": started" in line or "recorded in" in line
    ]
    assert [line.partition(":")[0] for line in lines[-2:]] == ["a", "a"]
    assert lines[-2].endswith("started")
