"""Recording: what the recorder adds to a tutorial, and how well it fills its places.

*child* is a Python that imports what executes a tutorial and ends; nobody can do without that.
*overhead* is what a tutorial of one short statement takes beyond it. *parent* is the most memory
that the recorder itself held, which must not grow with the tutorials. The schedule is simulated:
the real scheduler, and 400 tutorials, of 30 seconds all or from 15 to 45, that nobody waits for.
"""

from __future__ import annotations

import heapq
import random
import sys
import tempfile
from pathlib import Path

from gallery_recorder.run.scheduler import Scheduler
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
    """Print two tables."""
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
    print()
    alike = dict.fromkeys(range(400), 30.0)
    mixed = {number: random.Random(number).uniform(15, 45) for number in alike}
    rows = []
    for name, seconds in (("30 s", alike), ("15 to 45 s", mixed)):
        for places in (1, 8, 64):
            bound = max(sum(seconds.values()) / places, max(seconds.values()))
            end = simulate(seconds, places)
            rows.append((name, places, end, bound, end / bound))
    head = ("400 tutorials of", "workers", "makespan s", "lower bound s", "ratio")
    print(tabulate(rows, head, floatfmt=("", "", ".0f", ".0f", ".3f")))


def simulate(seconds: dict[int, float], places: int) -> float:
    """When the last of the tutorials would end."""
    scheduler = Scheduler(seconds, range(places))
    now, ends = 0.0, []
    while True:
        for name, _ in scheduler.start():
            heapq.heappush(ends, (now + seconds[name], name))
        if not scheduler.running:
            return now
        now, name = heapq.heappop(ends)
        scheduler.finish(name)
