"""What a script asks for in its own file: time, and the GPU that it needs."""

from __future__ import annotations

import pytest

from gallery_recorder.project import needs
from gallery_recorder.project.needs import Gpu
from gallery_recorder.project.script import load_script


def write(folder, code):
    path = folder / "a.py"
    path.write_text(f'"""\nA\n=\n"""\n{code}\n')
    return path


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [("", 600), ("# sphinx_gallery_timeout = 120", 120), ("# sphinx_gallery_timeout = 0.5", 0.5)],
)
def test_a_script_can_say_how_long_it_takes(tmp_path, settings, seconds):
    path = write(tmp_path, f"x = 1\n{settings}")
    assert needs.timeout_of(load_script(path), 600.0) == seconds


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
def test_needs(tmp_path, said, gpu, unmet):
    path = write(tmp_path, f"x = 1\n# sphinx_gallery_needs = {said!r}")
    found = needs.unmet_need(load_script(path), gpu)
    assert (found or "").startswith(unmet or "")
    assert (found is None) == (unmet is None)
