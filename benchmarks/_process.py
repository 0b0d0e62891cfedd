"""Time and memory of a whole process."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Wall-clock seconds, processor seconds, and peak resident memory of the process in MiB."""

    wall: float
    cpu: float
    memory: float


def cost_of(command: list[str], **options: object) -> Cost:
    """Run *command* to its end, its output thrown away, and say what it took.

    Raises:
        RuntimeError: it failed; with the end of what it printed.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{output[-2000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
