"""What a growing gallery takes, reckoned from its recordings."""

from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup
from fixture_gallery import make_gallery, make_recording, render

from gallery_recorder.render.growth import Mean

PAGE = "Growth\n======\n\n.. gallery-growth::\n"


def test_bytes_and_hours():
    one = Mean(bytes=200_000, seconds=18.0)
    assert one.tree(10) == 2_000_000
    assert one.history(10, 4) == 8_000_000
    assert one.hours_a_month(100) == pytest.approx(100 * 18 * 52 / 12 / 3600)


def page(root):
    (root / "docs" / "growth.rst").write_text(f":orphan:\n\n{PAGE}")
    render(root)
    text = (root / "build" / "html" / "growth.html").read_text()
    return BeautifulSoup(text, "html.parser")


def test_the_table_is_reckoned_from_recordings_on_a_gpu(tmp_path):
    root = make_gallery(tmp_path / "g")
    folders = [make_recording(root, name) for name in ("01-first", "02-second")]
    size = (
        sum(
            path.stat().st_size
            for folder in folders
            for path in folder.rglob("*")
            if path.is_file()
        )
        / 2
    )
    found = page(root)
    text = re.sub(r"\s+", " ", found.get_text())
    assert f"taken to have {size / 1024:.1f} KiB and to need 12 s of a GPU" in text
    assert "the means of the 2 recordings of this site that were made on a GPU" in text
    first, *_, last = found.select("table tbody tr")
    assert [cell.get_text().strip() for cell in first.select("td")] == [
        "10 × 1",
        f"{size * 10 / 1024:.0f} KiB",
        f"{size * 40 / 1024:.0f} KiB",
        "0.2",
        "2 min 5 s",
    ]
    assert last.select("td")[-1].get_text().strip() == "34.7 hours"


def test_without_a_gpu_the_time_is_said_to_be_assumed(tmp_path):
    root = make_gallery(tmp_path / "g", ("01-first",))
    make_recording(root, "01-first", device="interpreter")
    text = re.sub(r"\s+", " ", page(root).get_text())
    assert "to need 30 s of a GPU: the mean size of the recordings on this site" in text
    assert "an assumed time, since none was made on a GPU" in text
