"""Recording: what the recorder adds to an example of one short statement.

*imports* is a Python process that imports what the worker of every example needs. *each* is the
cost of one more example. *recorder* is the peak memory of the recorder itself, which must not grow
with the number of examples.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks._process import cost_of

ROOT = Path(__file__).parents[1]
#: ``ru_maxrss`` would be the memory of the largest child, so the recorder writes down its own.
RECORD = """
import re, sys
from pathlib import Path
from gallery_recorder.__main__ import main
status = main(sys.argv[2:])
own = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1)
Path(sys.argv[1]).write_text(own)
sys.exit(status)
"""
IMPORTS = """
import importlib, gallery_recorder.run.worker, matplotlib.pyplot, sphinx.application
for name in sphinx.application.builtin_extensions:
    importlib.import_module(name)
"""
EXAMPLE = '"""\nA title\n=======\n"""\n\n# %%\n# A sentence.\n\nx = 1\n'
COUNTS = (1, 20)


def main() -> None:
    """Print a table."""
    imports = cost_of([sys.executable, "-c", IMPORTS], cwd=ROOT)
    rows, first = [], None
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            examples = Path(folder, "examples")
            examples.mkdir()
            for number in range(count):
                (examples / f"{number:03}-example.py").write_text(EXAMPLE)
            held = Path(folder, "held")
            command = ["-c", RECORD, str(held), "record", "--device", "cpu", "--jobs", "1"]
            command += ["--tutorials", str(examples), "--recordings", str(Path(folder, "made"))]
            cost = cost_of([sys.executable, *command], cwd=ROOT)
            first = first or cost
            more = count - COUNTS[0]
            each = (cost.cpu - first.cpu) / more if more else None
            held_mib = int(held.read_text()) / 1024
            rows.append((count, cost.cpu, cost.wall, each, imports.cpu, held_mib))
    head = ("examples", "CPU s", "wall s", "each CPU s", "imports CPU s", "recorder MiB")
    print(tabulate(rows, head, floatfmt=("", ".2f", ".2f", ".2f", ".2f", ".0f"), missingval="-"))
