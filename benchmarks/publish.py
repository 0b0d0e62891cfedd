"""Publishing: one more version into a site of 1, 10 and 100; none of the others is touched.

The build has 300 files in 3 MiB. `list` is what each page loads for its menu; `root` all that
publishing writes besides the version.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks._process import cost_of
from tests.fixtures import fixture_site

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print a table."""
    rows = []
    for count in (1, 10, 100):
        with tempfile.TemporaryDirectory() as folder:
            site = Path(folder, "site")
            build = fixture_site.make_build(Path(folder, "main"), "main")
            for number in range(300):
                (build / "_downloads").mkdir(exist_ok=True)
                (build / "_downloads" / f"{number:03}.csv").write_text("size,GB/s\n" * 1000)

            _publish(build, site)
            for number in range(count - 1):
                _add(site, build, f"v0.{number}.0")
            before = _bytes(site)
            new = _renamed(build, Path(folder, "v1.0.0"))
            wall, memory = _publish(new, site)
            added = _bytes(site) - before
            again, _ = _publish(build, site)
            listed = (site / "versions.json").stat().st_size
            root = sum(p.stat().st_size for p in site.iterdir() if p.is_file())
            rows.append((count, wall, again, memory, added / 2**20, listed / 2**10, root / 2**10))
    head = ("versions", "new s", "replaced s", "MiB", "disk MiB", "list KiB", "root KiB")
    print(tabulate(rows, head, floatfmt=("", ".2f", ".2f", ".0f", ".2f", ".1f", ".1f")))


def _publish(build: Path, site: Path) -> tuple[float, float]:
    """Seconds and MiB of the command that a person types."""
    command = ["publish", str(build), str(site), "--version", build.name]
    cost = cost_of([sys.executable, "-m", "gallery_recorder", *command], cwd=ROOT)
    return cost.wall, cost.memory


def _renamed(build: Path, target: Path) -> Path:
    """A build of another version with the same files."""
    shutil.copytree(build, target)
    text = (target / "versions.json").read_text()
    (target / "versions.json").write_text(text.replace('"main', f'"{target.name}'))
    return target


def _add(site: Path, build: Path, name: str) -> None:
    """Put a version into *site* without publishing it; the next publishing finds it."""
    shutil.copytree(build, site / name, copy_function=os.link)
    text = (build / "versions.json").read_text().replace('"main', f'"{name}')
    (site / name / "versions.json").unlink()
    (site / name / "versions.json").write_text(text)


def _bytes(folder: Path) -> int:
    """What *folder* takes on the disk, each file once."""
    inodes = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        inodes[status.st_ino] = status.st_size
    return sum(inodes.values())
