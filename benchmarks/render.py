"""Rendering recordings: cold, again without a change, and after an edit to one sentence.

The tutorials are made on the fly, with twelve code cells each and the theme of the real site.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks._process import cost_of

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "gallery_recorder"))

import fixture_gallery  # noqa: E402

SPHINX = ["-m", "sphinx", "-c", ".", "-d", "build/doctrees", "-W", "-q", "-b", "html"]


def main() -> None:
    """Print a table."""
    rows = []
    for count in (4, 40, 400):
        with tempfile.TemporaryDirectory() as folder:
            gallery = Path(folder, "gallery")
            names = tuple(f"{number:03}-tutorial" for number in range(count))
            fixture_gallery.make_gallery(gallery, names, sections=10, theme="sphinx_rtd_theme")
            for name in names:
                fixture_gallery.make_recording(gallery, name)

            def build(gallery: Path = gallery) -> tuple[float, float]:
                cost = cost_of(
                    [sys.executable, *SPHINX, "docs", "build/html"],
                    cwd=gallery,
                    env=os.environ | {"PYTHONPATH": str(ROOT)},
                )
                return cost.wall, cost.memory

            cold = build()
            again = build()
            script = gallery / "tutorials" / f"{names[-1]}.py"
            script.write_text(script.read_text().replace("Prose before code", "Better prose"))
            rows.append((count, *cold, *again, *build()))
    head = ("tutorials", "cold s", "MiB", "again s", "MiB", "one edit s", "MiB")
    print(tabulate(rows, head, floatfmt=("", ".1f", ".0f", ".1f", ".0f", ".1f", ".0f")))
