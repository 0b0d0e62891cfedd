"""The project's files are of a size that can be read."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("gallery_recorder", "triton_site", "tests", "benchmarks")

#: More lines than these are two files.
MOST = 400


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_is_longer_than_can_be_read(folder):
    counts = {p: p.read_bytes().count(b"\n") for p in (ROOT / folder).rglob("*.py")}
    assert {str(p.relative_to(ROOT)): n for p, n in counts.items() if n > MOST} == {}
