"""What needs a GPU: failing, endless and printing kernels, memory, several GPUs.

python -m pytest -m gpu tests/gpu/test_recorder.py
"""

import re
from textwrap import dedent

import pytest

from gallery_recorder.run import gpus
from gallery_recorder.store import recording
from gallery_recorder.store.format import slug
from gallery_recorder.testing.projects import Room
from triton_site.references import SOFTWARE

GPUS = gpus.find_gpus()
pytestmark = pytest.mark.skipif(not GPUS, reason="needs a GPU")

IMPORTS = """import torch
import triton
import triton.language as tl

"""

#: The second block of each example, and what the report says about it.
FAULTS = {
    "illegal-address": (
        """
        @triton.jit
        def kernel(x_ptr):
            tl.store(x_ptr + (1 << 40), 1.0)


        kernel[(1,)](torch.zeros(1, device="cuda"))
        """,
        r"illegal memory access(.|\n)*A kernel that this block launched",
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
        r"ran longer than its time limit of 8 s",
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
        x = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        del x
        torch.cuda.empty_cache()
        print("the next block")
        """,
    "zz-sound": 'print(torch.ones(3, device="cuda").sum().item())',
}


def write(room, name, code):
    room.write(name, IMPORTS + dedent(code).strip("\n"))


def load(room, name):
    return recording.load(room.recordings / slug(GPUS[0].name) / "tutorials" / name)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    room = Room(tmp_path_factory.mktemp("gpu"))
    with open(room.root / "conf.py", "a") as conf:  # it waits for the GPU after each block
        conf.write(f"gallery_probes = [{SOFTWARE!r}]\n")
    for name, code in SOUND.items():
        write(room, name, code)
    for name, (code, _) in FAULTS.items():
        write(room, name, code)
    return room, room.record(device="cuda", jobs=1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_on_the_gpu_is_a_failure_of_its_block(recorded, name):
    outcome = recorded[1][name]
    assert outcome.status == "failed"
    assert re.match(rf"tutorials/{name}\.py:\d+, block 2 of 2: ", outcome.text), outcome.text
    assert re.search(FAULTS[name][1], outcome.text), outcome.text


def test_examples_after_a_fault_are_recorded_with_what_kernels_print(recorded):
    room, outcomes = recorded
    assert {name: outcomes[name].status for name in SOUND} == dict.fromkeys(SOUND, "recorded")
    assert load(room, "zz-sound").blocks[1].stdout == "3.0\n"
    _, printing, after = load(room, "prints").blocks
    assert "value: 1234" in printing.stdout
    assert after.stdout == "the next block\n"
    assert room.left_over() == []


def test_the_provenance_describes_the_gpu_and_its_peak_memory(recorded):
    room, _ = recorded
    made, software = load(room, "prints").provenance, load(room, "prints").probe(SOFTWARE)
    assert (made.kind, made.device) == ("gpu", GPUS[0].name)
    assert made.gpu.memory > 0
    assert software["multiprocessors"] > 0
    assert software["peak_gpu_memory"] >= 3 << 30  # although it was freed
    if made.before is not None:
        assert made.before.sm_clock > 0
        assert made.after.other_processes == made.before.other_processes  # not the example's own
