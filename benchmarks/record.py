"""Recording: what the recorder adds to a tutorial.

*child* is a Python that imports what executes a tutorial and ends; nobody can do without that.
*overhead* is what a tutorial of one short statement takes beyond it. *parent* is the most memory
that the recorder itself held, which must not grow with the tutorials.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks._process import cost_of

ROOT = Path(__file__).parents[1]
#: ``ru_maxrss`` would be the largest child's memory, so the recorder writes down its own.
RECORD = """
import re, sys
from pathlib import Path
from gallery_recorder.__main__ import main
status = main(sys.argv[2:])
own = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1)
Path(sys.argv[1]).write_text(own)
sys.exit(status)
"""
TUTORIAL = '"""\nA title\n=======\n"""\n\n# %%\n# A sentence.\n\nx = 1\n'


def main() -> None:
    """Print a table."""
    child = min(
        cost_of([sys.executable, "-c", "import gallery_recorder.run.child"], cwd=ROOT).wall
        for _ in range(5)
    )
    rows = []
    for count in (1, 10, 40):
        with tempfile.TemporaryDirectory() as folder:
            tutorials = Path(folder, "tutorials")
            tutorials.mkdir()
            for number in range(count):
                (tutorials / f"{number:03}-tutorial.py").write_text(TUTORIAL)
            held = Path(folder, "held")
            command = ["-c", RECORD, str(held), "record", "--device", "cpu", "--jobs", "1"]
            command += ["--tutorials", str(tutorials), "--recordings", str(Path(folder, "made"))]
            cost = cost_of([sys.executable, *command], cwd=ROOT)
            each = cost.wall / count
            rows.append((count, cost.wall, each, child, each - child, int(held.read_text()) / 1024))
    head = ("tutorials", "wall s", "each s", "child s", "overhead s", "parent MiB")
    print(tabulate(rows, head, floatfmt=("", ".2f", ".3f", ".3f", ".3f", ".0f")))
