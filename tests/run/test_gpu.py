"""What only a GPU can show: kernels that fail, hang and print; memory; several GPUs.

python -m pytest -m gpu tests/run/test_gpu.py
"""

from __future__ import annotations

import re
import subprocess
import time
from textwrap import dedent

import pytest

from gallery_recorder.run import gpus
from gallery_recorder.store import recording
from gallery_recorder.store.format import slug
from tests.fixtures import fault_table
from tests.fixtures.room import SECOND, Room
from triton_site.probes import SOFTWARE

GPUS = gpus.find_gpus()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]

IMPORTS = """import torch
import triton
import triton.language as tl

"""

#: The second block of each tutorial, and what the report says of it.
FAULTS = {
    "illegal-address": (
        """
        @triton.jit
        def kernel(x_ptr):
            tl.store(x_ptr + (1 << 40), 1.0)


        kernel[(1,)](torch.zeros(1, device="cuda"))
        """,
        r"illegal memory access(.|\n)*A kernel started in this block",
    ),
    "device-assertion": (
        """
        @triton.jit(debug=True)
        def kernel(x_ptr):
            tl.device_assert(tl.load(x_ptr) > 0, "x is not positive")


        kernel[(1,)](torch.zeros(1, device="cuda"))
        """,
        r"device-side assert(.|\n)*(x is not positive)(.|\n)*A kernel started in this block",
    ),
    "endless-kernel": (
        """
        # sphinx_gallery_timeout = 8
        @triton.jit
        def kernel(x_ptr, n):
            x = tl.load(x_ptr)
            for _ in range(n):
                for _ in range(n):
                    x = x * 0.5 + 1.0  # each step waits for the one before
            tl.store(x_ptr, x)


        kernel[(1,)](torch.zeros(1, device="cuda"), 1_000_000)
        """,
        r"took longer than 8 s and was ended",
    ),
    "out-of-memory": (
        'x = torch.empty(1 << 44, device="cuda")',
        r"raised OutOfMemoryError(.|\n)*# sphinx_gallery_needs = ",
    ),
}

SOUND = {
    "prints": """
        @triton.jit
        def kernel(x_ptr):
            tl.device_print("value", tl.load(x_ptr))


        kernel[(1,)](torch.full((1,), 1234, device="cuda"))

        # %%
        print("the next block")
        """,
    "resets-its-peak": """
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")

        # %%
        x = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        del x
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        """,
    "zz-sound": 'print(torch.ones(3, device="cuda").sum().item())',
}


def record(room, **options):
    return room.record(device="cuda", **options)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    room = Room(tmp_path_factory.mktemp("gpu"))
    with open(room.folder / "conf.py", "a") as conf:  # it waits for the GPU after each block
        conf.write(f"gallery_probes = [{SOFTWARE!r}]\n")
    for name, code in SOUND.items():
        room.write(name, _with_imports(code))
    for name, (code, _) in FAULTS.items():
        room.write(name, _with_imports(code))
    started = time.monotonic()
    outcomes = record(room, jobs=1)
    return room, outcomes, time.monotonic() - started


def _with_imports(code):
    return IMPORTS + dedent(code).strip("\n")


def load(room, name):
    return recording.load(room.recordings / slug(GPUS[0].name) / "tutorials" / name)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_on_the_gpu_is_refused(recorded, name):
    outcomes = recorded[1]
    assert outcomes[name].status == "failed"
    text = outcomes[name].text
    where = re.match(rf"tutorials/{name}\.py:(\d+), block 2 of 2: ", text)
    assert where, text
    assert int(where.group(1)) >= SECOND
    assert re.search(FAULTS[name][1], text), text


def test_the_table_in_the_docs_is_what_was_seen(recorded):
    _, outcomes, _ = recorded
    rows = [
        fault_table.row(name, code, outcomes[name], tell_line=False)
        for name, (code, _) in FAULTS.items()
    ]
    fault_table.check("faults-gpu.csv", rows, "-m gpu tests/run/test_gpu.py")


def test_the_sound_ones_are_recorded(recorded):
    room, outcomes, seconds = recorded
    assert {name: outcomes[name].status for name in SOUND} == dict.fromkeys(SOUND, "recorded")
    assert load(room, "zz-sound").blocks[1].stdout == "3.0\n"
    assert room.left_over() == []
    assert seconds < 120


def test_what_a_kernel_prints_is_in_its_block(recorded):
    room, _, _ = recorded
    _, printing, after = load(room, "prints").blocks
    assert "value: 1234" in printing.stdout
    assert after.stdout == "the next block\n"


def test_the_peak_is_known_although_it_was_reset(recorded):
    room, _, _ = recorded
    software = load(room, "resets-its-peak").probe(SOFTWARE)
    assert software["peak_gpu_memory"] >= 3 << 30


def test_the_provenance(recorded):
    room, _, _ = recorded
    made = load(room, "zz-sound").provenance
    software = load(room, "zz-sound").probe(SOFTWARE)
    assert made.kind == "gpu"
    assert made.device == GPUS[0].name
    assert made.gpu.memory > 0
    assert software["multiprocessors"] > 0
    assert re.match(r"(CUDA|ROCm) \d", software["toolkit"])
    if made.before is not None:
        assert made.before.sm_clock > 0
        # The recorder's own do not count; the tests themselves may be on the GPU as well.
        assert made.after.other_processes == made.before.other_processes


def test_recorders_do_not_share_a_gpu(tmp_path):
    rooms = [Room(tmp_path / name) for name in ("one", "other")]
    code = "import time\nprint(time.time())\ntime.sleep(3)\nprint(time.time())"
    processes = []
    for room in rooms:
        room.write("01-a", code)
        command = [*room.command("record"), "--device", "cuda", "--jobs", "1"]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    told = "".join(process.communicate(timeout=120)[0] for process in processes)
    assert re.search(r"01-a: waits: process \d+ uses the GPU", told)
    spans = sorted(
        [float(t) for t in load(room, "01-a").blocks[1].stdout.split()] for room in rooms
    )
    assert spans[0][1] <= spans[1][0]


@pytest.mark.skipif(len(GPUS) < 2, reason="needs two GPUs")
def test_two_tutorials_at_once_on_different_gpus(tmp_path):
    room = Room(tmp_path)
    code = """
        import time
        print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).uuid)
        print(time.time())
        time.sleep(5)
        print(time.time())
        """
    for name in ("01-a", "02-b"):
        room.write(name, _with_imports(code))
    started = time.monotonic()
    record(room)
    together = time.monotonic() - started
    told = [load(room, name).blocks[1].stdout.split() for name in ("01-a", "02-b")]
    assert [count for count, *_ in told] == ["1", "1"]
    assert told[0][1] != told[1][1]
    assert max(float(t[2]) for t in told) < min(float(t[3]) for t in told)
    started = time.monotonic()
    record(room, jobs=1, force=True)
    alone = time.monotonic() - started
    print(f"two GPUs: {together:.1f} s, one GPU: {alone:.1f} s")
    assert together < alone
