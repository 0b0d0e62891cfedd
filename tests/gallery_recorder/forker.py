"""Call functions in processes of their own, which a SIGKILL ends at a chosen step.

A step is whatever Python tells its audit hooks about the file system. The process that forks has
everything imported and a single thread, so a call costs milliseconds.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

_STEPS = ("open", "os.", "shutil.", "ctypes.")


class Forker:
    """Runs functions of the project; used as a context manager."""

    def __enter__(self) -> Forker:
        """Start the process that forks."""
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        return self

    def __exit__(self, *exception: object) -> None:
        """End it."""
        self._process.stdin.close()
        self._process.wait()

    def start(self, function: str, *arguments: object, die_at: int = 0) -> int:
        """Call ``module:name`` with *arguments*; paths are given as text. Returns the process."""
        request = {"function": function, "arguments": arguments, "die_at": die_at}
        self._process.stdin.write(json.dumps(request, default=str) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait(self) -> tuple[int, int]:
        """The exit status of the process, negative for a signal, and how many steps it took."""
        status, steps = self._process.stdout.readline().split()
        return int(status), int(steps)


def main() -> None:
    """Serve requests until standard input ends."""
    importlib.import_module("gallery_recorder.publish.publish")
    importlib.import_module("jinja2")
    for line in sys.stdin:
        request = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _call(request, writer)
        os.close(writer)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        steps = os.read(reader, 100).decode() or "0"
        os.close(reader)
        print(os.waitstatus_to_exitcode(status), steps, flush=True)


def _call(request: dict, writer: int) -> None:
    module, _, name = request["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    arguments = [
        Path(a) if isinstance(a, str) and a.startswith("/") else a for a in request["arguments"]
    ]
    steps = 0

    def count(event: str, _: object) -> None:
        nonlocal steps
        if event.startswith(_STEPS):
            steps += 1
            if steps == request["die_at"]:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        function(*arguments)
        os.write(writer, str(steps).encode())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
