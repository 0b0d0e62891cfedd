"""Publishing build/html: as the first version of a site, and again beside the others.

*disk* is what the version adds to the site, *root* what publishing writes besides.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks._process import cost_of
from gallery_recorder.api import versions

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print a table."""
    build = ROOT / "build" / "html"
    if not build.is_dir():
        print("left out: run `make html` first")
        return
    name = versions.read_build(build).all[0].name
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        command = ["publish", str(build), folder, "--version", name, "--overwrite"]
        for kind in ("new", "again"):
            cost = cost_of([sys.executable, "-m", "gallery_recorder", *command], cwd=ROOT)
            whole = _mebibytes(Path(folder, name))
            root = sum(p.stat().st_size for p in Path(folder).iterdir() if p.is_file()) / 2**10
            rows.append((kind, cost.cpu, cost.wall, cost.memory, whole, root))
    head = ("publish", "CPU s", "wall s", "MiB", "disk MiB", "root KiB")
    print(tabulate(rows, head, floatfmt=("", ".2f", ".2f", ".0f", ".1f", ".1f")))


def _mebibytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*")) / 2**20
