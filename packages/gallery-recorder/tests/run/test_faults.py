"""Accidents in an example: each is committed by an example, all in one go with a sound one.

Whatever an example does, the others are recorded, its previous recording stays byte for byte, no
process and no temporary folder is left, and the report names example, block, line, cause and
remedy. Each row of the table in docs/engine.rst about an example is one of these.
"""

import re
from dataclasses import dataclass

import pytest

from gallery_recorder.run import process
from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import SECOND, Room


@dataclass(frozen=True)
class Fault:
    """An example's second block, what the report says, and the line in the block (from 1)."""

    name: str
    code: str
    report: str
    line: int = 1


FAULTS = [
    Fault(
        "segfault",
        "import ctypes\nctypes.string_at(0)",
        r"ended by signal 11 \(Segmentation fault\)(.|\n)*out of bounds",
        2,
    ),
    Fault("abort", "import os\nos.abort()", r"ended by signal 6 \(Aborted\)", 2),
    Fault("killed", "import os\nos.kill(os.getpid(), 9)", r"signal 9(.|\n)*use smaller sizes", 1),
    Fault("os-exit", "import os\nos._exit(0)", r"ended its process with status 0\n.*os\._exit"),
    Fault("exec", "import os\nos.execvp('true', ['true'])", r"with status 0\n.*os\.exec"),
    Fault("sys-exit", "import sys\n\nsys.exit(1)", r"sys\.exit\(1\)", 3),
    Fault(
        "exception",
        """
        def divide(a):
            return a / 0


        try:
            {}['a']
        except KeyError as error:
            raise RuntimeError('b') from error
        """,
        r"raised RuntimeError\n(.|\n)*KeyError: 'a'(.|\n)*RuntimeError: b\n(.|\n)*Correct the ex",
        8,
    ),
    Fault(
        "exception-without-words",
        """
        class Silent(Exception):
            def __str__(self):
                raise ValueError


        raise Silent
        """,
        r"raised Silent\n(.|\n)*Correct the example",
        6,
    ),
    Fault("interrupt", "raise KeyboardInterrupt", r"raised KeyboardInterrupt"),
    Fault(
        "hang",
        "import time\ntime.sleep(1000)\n\n# sphinx_gallery_timeout = 1",
        r"longer than its time limit of 1 s\n(.|\n)*# sphinx_gallery_timeout = 2",
        2,
    ),
    Fault(
        "ignores-sigterm",
        """
        # sphinx_gallery_timeout = 1
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(0.1)
        """,
        r"longer than its time limit",
        5,
    ),
    Fault(
        "deadlock-at-exit",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
        r"did not end within 4 s of its last block\n(.|\n)*End it in the example",
    ),
    Fault("memory", "block = bytearray(1 << 50)", r"raised MemoryError(.|\n)*smaller sizes"),
    Fault(
        "flood",
        "for _ in range(200):\n    print('x' * 1_000_000)",
        r"printed more than (64,000,000 bytes|1,000,000 bytes to standard output in one block)",
        2,
    ),
    Fault(
        "flood-of-a-process",
        "import subprocess\ndone = subprocess.run('yes | head -c 3000000 >&2', shell=True)",
        r"printed more than 1,000,000 bytes to standard error in one block\nPrint less",
    ),
    Fault(
        "process-left",
        "import subprocess\nchild = subprocess.Popen(['sleep', '987'])",
        r"left 1 process running: sleep 987\n",
    ),
    Fault(
        "daemon-left",
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execve('/usr/bin/env', ['env', '-i', 'sleep', '987'], {})
            os._exit(0)
        time.sleep(0.5)
        """,
        r"left 1 process running: sleep 987\n",
    ),
    Fault(
        "large-file",
        "open('big.bin', 'wb').truncate(8_000_001)\nNone",
        r"wrote a file, big\.bin, of 8,000,001 bytes; the limit is 8,000,000\nWrite only",
    ),
    Fault(
        "many-files",
        "for number in range(101):\n    open(f'{number}.txt', 'w').close()",
        r"wrote more than 100 images and data files\n",
    ),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The room, the outcomes, and the recordings that were there before."""
    room = Room(tmp_path_factory.mktemp("faults"))
    room.write("zz-sound", "print('sound')")
    for fault in FAULTS:
        room.write(fault.name, fault.code)
        room.put_recording(fault.name)
    before = {fault.name: room.content(fault.name) for fault in FAULTS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_GRACE", 1.0)
        patch.setattr(process, "_FAREWELL", 4.0)
        outcomes = room.record(force=True)
    return room, outcomes, before


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_report_names_place_cause_and_remedy_and_the_old_recording_stays(recorded, fault):
    room, outcomes, before = recorded
    outcome = outcomes[fault.name]
    assert outcome.status == "failed"
    line = SECOND + fault.line - 1
    assert outcome.text.startswith(f"tutorials/{fault.name}.py:{line}, block 2 of 2: ")
    assert re.search(fault.report, outcome.text), outcome.text
    assert str(room.root) not in outcome.text
    assert room.content(fault.name) == before[fault.name]


def test_the_other_examples_are_recorded_and_nothing_is_left(recorded):
    room, outcomes, _ = recorded
    assert outcomes["zz-sound"].status == "recorded"
    assert room.load("zz-sound").blocks[1].stdout == "sound\n"
    assert room.left_over() == []


def test_a_file_that_is_no_python_is_refused_and_its_old_recording_stays(tmp_path):
    room = Room(tmp_path)
    (room.examples / "a.py").write_text('"""\nA\n=\n"""\n\nx = (\n')
    room.put_recording("a")
    before = room.content("a")
    outcome = room.record(force=True)["a"]
    assert outcome.status == "failed"
    assert "a.py:6: is not valid Python" in outcome.text
    assert room.content("a") == before
    assert room.left_over() == []


#: What ends an example in its third block, after one that draws, writes and prints.
ENDS = {
    "crash": "import ctypes; ctypes.string_at(0)",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "exits": "import sys; sys.exit(3)",
    "hangs": "import time; time.sleep(1000)\n\n# sphinx_gallery_timeout = 8",
    "floods": "print('x' * 2_000_000)",
}
BEFORE = """
import matplotlib.pyplot as plt
plt.plot([1, 2])
open("speed.csv", "w").write("a\\n1\\n")
print("finished")

# %%
# The third block.

print("begun", flush=True)
{}
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Examples that end themselves in their third block, recorded for the first time."""
    room = Room(tmp_path_factory.mktemp("ended"))
    for name, code in ENDS.items():
        room.write(name, BEFORE.format(code))
    return room, room.record()


@pytest.mark.parametrize("name", ENDS)
def test_what_finished_blocks_left_is_kept_in_its_place(ended, name):
    room, outcomes = ended
    made = room.load(name)
    assert (outcomes[name].status, made.run.status) == ("failed", "failed")
    begun, finished, failed = made.blocks
    assert begun.stdout == "begun\n"
    assert (finished.passed, finished.stdout, finished.data) == (True, "finished\n", ("speed.csv",))
    assert finished.images[0] == f"images/sphx_glr_{name}_001.svg"
    assert {*made.files} == {*finished.data, *finished.images}
    assert not failed.passed
    assert failed.stdout[:5] == ("xxxxx" if name == "floods" else "begun")
    assert failed.failure.startswith("This example failed: it ")
    assert "--timeout" not in failed.failure
    assert "finished" not in failed.stdout


def test_a_failure_after_the_last_block_is_no_good_recording(tmp_path):
    room = Room(tmp_path)
    room.write("a", "import subprocess\nchild = subprocess.Popen(['sleep', '987'])")
    assert room.record()["a"].status == "failed"
    made = room.load("a")
    assert made.run.status == "failed"
    assert "left 1 process running" in made.blocks[-1].failure
    assert room.record()["a"].status == "failed"


def test_a_failure_over_a_good_recording_is_shown_until_the_code_is_recorded(tmp_path):
    room = Room(tmp_path)
    (room.examples / "GALLERY_HEADER.rst").write_text("Tutorials\n=========\n")
    path = room.write("a", "print('good')")
    room.record()
    before = room.content("a")
    path.write_text(path.read_text() + "\n1 / 0\n")
    assert room.record()["a"].status == "failed"
    assert room.content("a") == before

    def shown():
        options = ("-c", room.root, "-b", "html", "-D", "gallery_unrecorded=stale")
        done = processes.sphinx(room.root, *options, room.source, room.root / "html")
        assert done.returncode == 0, done.stderr
        return (room.root / "html/tutorials/a.html").read_text()

    page = shown()
    assert "This example failed: it raised ZeroDivisionError" in page
    assert "good" in page
    listed = room.run("status").stdout
    assert "\n1 failed" in listed
    assert "This example failed: it raised ZeroDivisionError" in listed
    assert "ZeroDivisionError" not in room.run("status", "--only", "current").stdout
    path.write_text(path.read_text().replace("1 / 0", "1 / 1"))
    assert "\n1 stale" in room.run("status").stdout
    assert room.record()["a"].status == "recorded"
    assert "ZeroDivisionError" not in shown()
    assert [p.name for p in room.recorded.iterdir()] == ["a"]
