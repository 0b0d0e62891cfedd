"""The engine's files are of a size that can be read."""

from pathlib import Path

import pytest

from tests.fixtures.room import PROJECT

#: More lines than these are two files.
MOST = 400

FILES = sorted((PROJECT / "gallery_recorder").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_no_file_of_the_engine_is_longer_than_can_be_read(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST, f"{path}: has {len(lines)} lines; find the second thing in it"
