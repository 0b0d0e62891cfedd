"""Recording: what the recorder adds to a tutorial.

*imports* is a Python that imports what every tutorial's process needs before it comes to the
tutorial: the recorder, Sphinx, matplotlib. *each* is what one more tutorial of one short statement
takes: all but the first are forks of a process that has these imports. *parent* is the most memory
that the recorder itself held, which must not grow with the tutorials.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks._process import Cost, cost_of

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
BUILTIN = """
import importlib, sphinx.application
for name in sphinx.application.builtin_extensions:
    importlib.import_module(name)
"""
TUTORIAL = '"""\nA title\n=======\n"""\n\n# %%\n# A sentence.\n\nx = 1\n'


def main() -> None:
    """Print a table."""
    needed = "import gallery_recorder.run.worker, sphinx.cmd.build, matplotlib.pyplot\n" + BUILTIN
    imports = min((cost_of([sys.executable, "-c", needed], cwd=ROOT) for _ in range(5)), key=_cpu)
    rows, first = [], None
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
            first = first or cost
            each = (None, None)
            if count > 1:
                each = (
                    (cost.cpu - first.cpu) / (count - 1),
                    (cost.wall - first.wall) / (count - 1),
                )
            held_mib = int(held.read_text()) / 1024
            rows.append((count, cost.cpu, cost.wall, *each, imports.cpu, held_mib))
    head = ("tutorials", "CPU s", "wall s", "each CPU s", "wall s", "imports CPU s")
    formats = ("", ".2f", ".2f", ".3f", ".3f", ".3f", ".0f")
    print(tabulate(rows, (*head, "parent MiB"), floatfmt=formats, missingval="-"))


def _cpu(cost: Cost) -> float:
    return cost.cpu
