"""What an example does to the recorder's own descriptors, clock and processes."""

import pytest

from gallery_recorder.testing.projects import Gallery, Room

CLOSES = """
import os
print("before")
os.closerange(3, 4096)
files = [open(f"data-{number}.csv", "w") for number in range(30)]
for file in files:
    file.write("a,b\\n")
    file.flush()
print("after")
os.write(2, b"descriptor\\n")

# %%
for file in files:
    file.write("1,2\\n")
    file.close()
print("the next block")
"""


@pytest.fixture
def gallery(tmp_path):
    return Gallery(tmp_path, more='gallery_data = ["*.csv"]\ngallery_stderr = "apart"\n')


def test_nothing_of_the_recorder_is_written_to_files_whose_numbers_were_its_own(gallery):
    gallery.write("closes", CLOSES)
    assert gallery.record()["closes"].status == "recorded"
    made = gallery.load("closes")
    assert [block.stdout for block in made.blocks] == [
        "begun\n",
        "before\nafter\n",
        "the next block\n",
    ]
    assert made.blocks[1].stderr == "descriptor\n"
    assert len(made.data) == 30
    folder = gallery.recorded / "closes"
    assert {(folder / name).read_text() for name in made.data} == {"a,b\n1,2\n"}


def test_a_crash_after_that_is_still_told_with_its_line(gallery):
    end = "# %%\nimport ctypes\nctypes.string_at(0)\n"
    path = gallery.write("closes", CLOSES + end)
    outcome = gallery.record()["closes"]
    line = path.read_text().splitlines().index("ctypes.string_at(0)") + 1
    assert outcome.status == "failed"
    assert f"examples/closes.py:{line}, block 4 of 4: was ended by signal 11" in outcome.text
    made = gallery.load("closes")
    folder = gallery.recorded / "closes"
    assert {(folder / name).read_text() for name in made.data} == {"a,b\n1,2\n"}


def test_a_file_that_an_example_puts_on_descriptor_1_holds_its_own_text_alone(gallery):
    code = (
        "import os\nos.close(1)\nfile = open('data.csv', 'w')\nprint(file.fileno())\nfile.close()"
    )
    gallery.write("closes", code)
    assert gallery.record()["closes"].status == "recorded"
    assert gallery.load("closes").blocks[1].stdout == "1\n"
    assert (gallery.recorded / "closes" / "data.csv").read_text() == ""


@pytest.mark.parametrize("clock", ["None", "lambda: 1e300", "lambda: float('nan')", "lambda: 'x'"])
def test_a_replaced_clock_is_not_the_recorders(gallery, clock):
    code = f"import time\ntime.perf_counter = time.time = time.monotonic = {clock}\nprint('shown')"
    gallery.write("replaces", code)
    outcome = gallery.record()["replaces"]
    assert outcome.status == "recorded", outcome.text
    made = gallery.load("replaces")
    assert made.blocks[1].stdout == "shown\n"
    assert 0 <= made.run.seconds < 600


CHAIN = """
import os, time
if os.fork() == 0:
    os.setsid()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        {new_session}
    os._exit(0)
"""
KILLS = """
import os, signal, subprocess, time
subprocess.Popen(["setsid", "sleep", "984"])
time.sleep(0.2)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(983)
"""


@pytest.mark.parametrize(
    "code",
    [CHAIN.format(new_session=""), CHAIN.format(new_session="os.setsid()"), KILLS],
    ids=["chain", "chain of sessions", "supervisor killed"],
)
def test_no_process_is_left(tmp_path, code):
    room = Room(tmp_path)
    room.write("01-a", code)
    room.write("02-b", "x = 1")
    outcomes = room.record(jobs=1)
    assert room.processes() == []
    assert outcomes["01-a"].status == "failed"
    assert outcomes["02-b"].status == "recorded"
    assert room.left_over() == []
