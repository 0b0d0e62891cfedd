"""Rendering recordings beside plain sphinx-gallery: cold, again, one sentence, one new recording.

The tutorials are made on the fly, with twelve code cells each and the theme and menu of the real
site. *plain* is sphinx-gallery alone with the same theme, which executes them: nothing that takes
time. ``python -m benchmarks render N --json`` prints the figures of N tutorials on one line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks._process import Cost, cost_of
from tests.fixtures import fixture_gallery

ROOT = Path(__file__).parents[1]

SIZES = (4, 40, 400)
SPHINX = ["-m", "sphinx", "-c", ".", "-d", "build/doctrees", "-W", "-q", "-j", "auto", "-b", "html"]
EXTENSIONS = ("gallery_recorder", "triton_site.pages.menu")
#: What plain sphinx-gallery need not do: draw, and reset what drawing left.
PLAIN = 'sphinx_gallery_conf |= {"image_scrapers": (), "reset_modules": ()}\n'


@dataclass
class Figures:
    """What the builds of a gallery took, and the mean size of a tutorial's page."""

    builds: dict[str, Cost] = field(default_factory=dict)
    bytes_per_page: int = 0

    def plain(self) -> dict[str, Any]:
        """The figures as they are printed."""
        return {
            name: {"cpu": round(c.cpu, 2), "wall": round(c.wall, 2), "mib": round(c.memory)}
            for name, c in self.builds.items()
        } | {"bytes_per_page": self.bytes_per_page}


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table, or with ``N --json`` one line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks render")
    parser.add_argument("tutorials", nargs="*", type=int, default=SIZES)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.json:
        for count in asked.tutorials:
            print(json.dumps(measure(count, EXTENSIONS).plain()))
        return
    rows = []
    for count in asked.tutorials:
        ours = measure(count, EXTENSIONS)
        plain = measure(count, ("sphinx_gallery.gen_gallery",))
        for name, cost in ours.builds.items():
            other = plain.builds.get(name)
            rows.append(
                (
                    count,
                    name,
                    *(cost.cpu, cost.wall, cost.memory),
                    *((other.cpu, other.wall, cost.cpu / other.cpu) if other else (None,) * 3),
                    ours.bytes_per_page if name == "cold" else None,
                )
            )
    head = ("tutorials", "build", "CPU s", "wall s", "MiB", "plain CPU s", "wall s", "ratio")
    formats = ("", "", ".1f", ".1f", ".0f", ".1f", ".1f", ".2f", ".0f")
    print(tabulate(rows, (*head, "bytes a page"), floatfmt=formats, missingval="-"))


def measure(count: int, extensions: Sequence[str]) -> Figures:
    """Build a gallery of *count* tutorials as often as there is something to tell."""
    made = Figures()
    with tempfile.TemporaryDirectory() as folder:
        gallery = Path(folder, "gallery")
        names = tuple(f"{number:04}-tutorial" for number in range(count))
        fixture_gallery.make_gallery(
            gallery, names, sections=10, theme="sphinx_rtd_theme", extensions=extensions
        )
        recorded = "gallery_recorder" in extensions
        if recorded:
            for name in names:
                fixture_gallery.make_recording(gallery, name)
        else:
            (gallery / "docs" / "recordings.rst").write_text("Recordings\n==========\n")
            with (gallery / "conf.py").open("a") as conf:
                conf.write(PLAIN)
        made.builds["cold"] = _build(gallery)
        pages = [gallery / "build" / "html" / "tutorials" / f"{name}.html" for name in names]
        made.bytes_per_page = round(sum(page.stat().st_size for page in pages) / count)
        made.builds["again"] = _build(gallery)
        script = gallery / "tutorials" / f"{names[count // 2]}.py"
        script.write_text(script.read_text().replace("Prose before code", "Better prose"))
        made.builds["edit"] = _build(gallery)
        if recorded:
            fixture_gallery.make_recording(gallery, names[-1], recorded="2026-11-22T12:00:00Z")
            made.builds["recording"] = _build(gallery)
    return made


def _build(gallery: Path) -> Cost:
    return cost_of(
        [sys.executable, *SPHINX, "docs", "build/html"],
        cwd=gallery,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
