"""Rendering recordings beside plain sphinx-gallery: cold, again, one sentence, one new recording.

The tutorials are generated, with twelve code cells each and the theme of the real site. *plain* is
sphinx-gallery alone with the same theme and menu; it executes the tutorials, which take no time.
``python -m benchmarks render N --json`` prints the figures of N tutorials on one line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks._process import Cost, cost_of
from gallery_recorder.testing import small_gallery

ROOT = Path(__file__).parents[1]

SIZES = (4, 40, 400)
SPHINX = ["-m", "sphinx", "-c", ".", "-d", "build/doctrees", "-W", "-q", "-j", "auto", "-b", "html"]
EXTENSIONS = ("gallery_recorder",)
PLAIN_EXTENSIONS = ("sphinx_gallery.gen_gallery",)
#: Plain sphinx-gallery need neither draw figures nor reset matplotlib.
PLAIN = 'sphinx_gallery_conf |= {"image_scrapers": (), "reset_modules": ()}\n'


#: Builds by name, and the mean size of a tutorial's page in bytes.
Figures = tuple[dict[str, Cost], int]


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table, or with ``N --json`` one line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks render")
    parser.add_argument("tutorials", nargs="*", type=int, default=SIZES)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    rows: list[tuple[Any, ...]] = []
    for count in asked.tutorials:
        (ours, size), (plain, _) = measure(count, EXTENSIONS), measure(count, PLAIN_EXTENSIONS)
        if asked.json:
            print(json.dumps(_told(ours) | {"bytes_per_page": size, "plain": _told(plain)}))
        for name, cost in ours.items():
            row = (count, name, cost.cpu, cost.wall, cost.memory)
            if other := plain.get(name):
                row = (*row, other.cpu, other.wall, cost.cpu / other.cpu)
            rows.append(row)
    if not asked.json:
        head = ("tutorials", "build", "CPU s", "wall s", "MiB", "plain CPU s", "wall s", "ratio")
        formats = ("", "", ".1f", ".1f", ".0f", ".1f", ".1f", ".2f")
        print(tabulate(rows, head, floatfmt=formats, missingval="-"))


def _told(builds: dict[str, Cost]) -> dict[str, Any]:
    return {
        name: {"cpu": round(c.cpu, 2), "wall": round(c.wall, 2), "mib": round(c.memory)}
        for name, c in builds.items()
    }


def measure(count: int, extensions: Sequence[str]) -> Figures:
    """Build a gallery of *count* tutorials cold, again, after an edit and after a recording."""
    builds: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as folder:
        gallery = Path(folder, "gallery")
        names = tuple(f"{number:04}-tutorial" for number in range(count))
        small_gallery.make_gallery(
            gallery, names, sections=10, theme="sphinx_rtd_theme", extensions=extensions
        )
        recorded = "gallery_recorder" in extensions
        if recorded:
            for name in names:
                small_gallery.make_recording(gallery, name)
        else:
            (gallery / "docs" / "recordings.rst").write_text("Recordings\n==========\n")
            with (gallery / "conf.py").open("a") as conf:
                conf.write(PLAIN)
        builds["cold"] = _build(gallery)
        pages = [gallery / "build" / "html" / "tutorials" / f"{name}.html" for name in names]
        size = round(sum(page.stat().st_size for page in pages) / count)
        builds["again"] = _build(gallery)
        script = gallery / "tutorials" / f"{names[count // 2]}.py"
        script.write_text(script.read_text().replace("Prose before code", "Better prose"))
        builds["edit"] = _build(gallery)
        if recorded:
            small_gallery.make_recording(gallery, names[-1], recorded="2026-11-22T12:00:00Z")
            builds["recording"] = _build(gallery)
    return builds, size


def _build(gallery: Path) -> Cost:
    return cost_of(
        [sys.executable, *SPHINX, "docs", "build/html"],
        cwd=gallery,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
