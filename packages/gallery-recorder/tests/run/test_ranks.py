"""Examples in several processes, which a launcher starts."""

import os
import shutil
import sys

import pytest

from gallery_recorder.testing.projects import Room

TORCHRUN = f"{sys.executable} -m torch.distributed.run --nproc-per-node=2"
SUMS = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
print("rank", rank, "of", dist.get_world_size(), "sum", total.item())
open("ranks.csv", "a").write(f"{{rank}}\\n")
dist.destroy_process_group()

# sphinx_gallery_launcher = "{}"
"""

#: What rank 1 does while rank 0 waits for it; without PyTorch, which takes long to import.
WAITS = """
import os, time
if os.environ["RANK"] == "1":
    {}
time.sleep(1000)

# sphinx_gallery_launcher = "{}"
"""

#: As `mpirun`: starts the program itself, twice; ends both if one fails.
MPIRUN = """#!{python}
import os, subprocess, sys
both = [subprocess.Popen(sys.argv[1:], env=os.environ | {{"PMI_RANK": str(n)}}) for n in (0, 1)]
status = [process.wait() for process in reversed(both)]
sys.exit(max(map(abs, status)))
"""


@pytest.fixture
def room(tmp_path):
    pytest.importorskip("torch")
    return Room(tmp_path)


def test_rank_0_is_recorded_under_torchrun(room):
    room.write("sums", SUMS.format(TORCHRUN))
    outcome = room.record()["sums"]
    assert outcome.status == "recorded", outcome.text
    made = room.load("sums")
    assert made.blocks[1].stdout == "rank 0 of 2 sum 3.0\n"
    assert made.blocks[1].stderr == ""
    assert (room.recorded / "sums" / "ranks.csv").read_text() == "0\n"
    assert room.left_over() == []


def test_a_failure_of_another_rank_is_told_and_all_end(room):
    room.write("fails", WAITS.format("raise RuntimeError('only here')", TORCHRUN))
    room.write("dies", WAITS.format("os.kill(os.getpid(), 11)", TORCHRUN))
    outcomes = room.record()
    assert "On rank 1 it raised RuntimeError" in outcomes["fails"].text
    assert "only here" in outcomes["fails"].text
    assert "under" in outcomes["dies"].text or "raised" in outcomes["dies"].text
    assert {outcome.status for outcome in outcomes.values()} == {"failed"}
    assert room.left_over() == []


def test_a_launcher_that_starts_programs_and_one_that_is_not_there(room):
    launcher = room.root / "mpirun"
    launcher.write_text(MPIRUN.format(python=sys.executable))
    launcher.chmod(0o700)
    conf = room.root / "conf.py"
    conf.write_text(f"{conf.read_text()}\ngallery_launcher = [{str(launcher)!r}]\n")
    room.write("one", "import os\nprint(os.environ['PMI_RANK'])")
    room.write("none", "print('plain')\n# sphinx_gallery_launcher = ''")
    room.write("wrong", "x = 1\n# sphinx_gallery_launcher = 'no-such-launcher -n 2'")
    outcomes = room.record()
    assert outcomes["one"].status == outcomes["none"].status == "recorded", outcomes["one"].text
    assert room.load("one").blocks[1].stdout == "0\n"
    assert outcomes["wrong"].status == "failed"
    assert "cannot start its launcher, no-such-launcher" in outcomes["wrong"].text
    assert "Traceback" not in outcomes["wrong"].text
    assert room.left_over() == []


@pytest.mark.skipif(not shutil.which("mpirun"), reason="no mpirun: apt-get install openmpi-bin")
def test_rank_0_is_recorded_under_mpirun(room):
    more = "--oversubscribe --allow-run-as-root" if os.getuid() == 0 else "--oversubscribe"
    code = f"print('once')\n# sphinx_gallery_launcher = 'mpirun {more} -n 2'"
    room.write("one", code)
    assert room.record()["one"].status == "recorded"
    assert room.load("one").blocks[1].stdout == "once\n"
