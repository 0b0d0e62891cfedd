"""The table of occupancy shows recorded variants, and which resource limits each."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

from gallery_recorder.api import RecordedFiles
from tests.triton_site.test_xray import FACTS
from triton_site import xray
from triton_site.kernels import occupancy
from triton_site.xray_data import PROBE

UNKNOWN = {"constants": {"BLOCK_M": 128, "STAGES": 1}, "registers": 40}


@pytest.fixture
def page(tmp_path: Path) -> SimpleNamespace:
    kernels = [FACTS, FACTS | {"registers": 64}, FACTS | UNKNOWN]
    launched = {"tile_kernel": {"shape": "4096 × 4096", "kernel": 0}}
    probes = {PROBE: {"kernels": kernels, "launched": launched}}
    files = RecordedFiles(tmp_path, frozenset(path.name for path in tmp_path.iterdir()))
    return SimpleNamespace(files=files, recording=SimpleNamespace(probes=probes))


@pytest.mark.parametrize(
    ("kernel", "registers"),
    [
        ("tile_kernel", 168),  # the launch that the page is about
        ("tile_kernel: BLOCK_M = 128, STAGES = 1", 40),
        ("tile_kernel: BLOCK_M = 128", 40),  # the last one: benchmarks come after checks
    ],
)
def test_a_line_finds_its_variant(page, kernel, registers):
    assert occupancy.variant(page, kernel).registers == registers


@pytest.mark.parametrize("kernel", ["other_kernel", "tile_kernel: BLOCK_M = 64", "other: A = 1"])
def test_a_variant_that_was_not_recorded_is_none(page, kernel):
    assert occupancy.variant(page, kernel) is None


def test_the_page_has_the_recorded_kernels_and_rates(site):
    html = (site / "programming-guide/chapter-1/gpu.html").read_bytes()
    tables = BeautifulSoup(html, "html.parser").select(".gallery-xray-table")
    lessons, strips = ([[c.text.strip() for c in row.select("td")] for row in t.select("tbody tr")]
                       for t in tables)  # fmt: skip
    assert len(lessons) > 5
    for _, registers, _, shared, warps, programs, of, limit in lessons:
        size, unit = shared.split()
        held = float(size) * (1024 if unit == "KiB" else 1)
        room = xray.occupancy(int(registers), int(held), int(warps), occupancy.LIMITS)
        assert [programs, of, limit] == [
            str(room["programs"]), f"{room['warps']} of 64", room["limit"]
        ]  # fmt: skip
    assert all(row[-1].endswith(" GB/s") for row in strips)
