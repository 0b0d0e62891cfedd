"""Stand between the recorder and the process that executes a script, so that nothing gets away.

``python -m gallery_recorder.run.keeper CONTROL STATUS GRACE LEFT MODULE ARGUMENT…`` executes the
module in a process of its own and waits. It is a subreaper: a process that its parent has left
becomes this one's child, however it tried to get away, with a new session and an empty environment
too. So every process that the script started is found below this one, and none outlives it.

CONTROL and STATUS are descriptors of pipes. To STATUS it writes the number of the process, and a
line with its exit status when it has ended. It goes on until the recorder writes a byte to CONTROL,
or is gone itself, and then ends what is left, within GRACE seconds politely. LEFT is a list, as
JSON, of what to remove where the recorder is gone and nobody comes after it. ``@keeper`` among the
arguments stands for the number of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_SUBREAPER = 36  # of prctl
_POLL = 0.05
#: Signals that do no more to this process than wake it.
_HEARD = (
    *(signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
)


def main(arguments: list[str]) -> int:
    """Execute a module, and end what it started when that is asked for or nobody can ask."""
    given, told, grace, left, *what = arguments
    control, status = int(given), int(told)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    keeper = str(os.getpid())
    woken, undo = _be_woken()
    child = os.fork()
    if child == 0:
        undo()
        os.close(control)
        os.close(status)
        os.setsid()  # what it sends to its group does not reach this process
        return _become([argument.replace("@keeper", keeper) for argument in what])
    _write(status, f"{child}\n")
    asked = None
    while asked is None:
        for pid, code in _reap():
            if pid == child:
                _write(status, f"{code}\n")
        ready, _, _ = select.select([control, woken], [], [])
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        if control in ready:
            asked = os.read(control, 1)
    end(os.getpid(), float(grace))
    for pid, code in _reap():
        if pid == child:
            _write(status, f"{code}\n")
    for path in json.loads(left) if asked == b"" else ():
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(path)
    return 0


def _become(arguments: list[str]) -> int:
    """Be the process that executes the module."""
    import runpy

    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    return 0


def _be_woken() -> tuple[int, Callable[[], None]]:
    """A descriptor that can be read when a process has ended; other signals do nothing.

    The function puts everything back, for a process that is made by a fork.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    before = {number: signal.signal(number, lambda *_: None) for number in _HEARD}
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def undo() -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)

    return reading, undo


def _write(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):  # the recorder is gone
        os.write(descriptor, text.encode())


def _reap() -> Iterator[tuple[int, int]]:
    """Take in the processes that have ended, with their exit status as of ``subprocess``."""
    while True:
        try:
            pid, waited = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(waited)


# --- finding and ending ---------------------------------------------------------------------------


def descendants(root: int) -> dict[int, str]:
    """The processes below *root* that have not ended, with their command, the nearest first."""
    children: dict[int, list[int]] = {}
    alive = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):  # it ended just now
                text = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(text[1]), []).append(int(entry.name))
                if text[0] not in (b"Z", b"X"):
                    alive.add(int(entry.name))
    found: dict[int, str] = {}
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop(0)
        waiting += children.get(pid, ())
        if pid in alive:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                found[pid] = command.decode("utf-8", "replace").strip()[:200]
    return found


def end(root: int, grace: float) -> None:
    """End all processes below *root*, politely first; it has to be a subreaper, or its parent."""
    for ending, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 60.0)):
        until = time.monotonic() + patience
        asked: set[int] = set()
        while (left := descendants(root)) and time.monotonic() < until:
            for pid in left.keys() - asked:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, ending)
            asked |= left.keys()
            time.sleep(_POLL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
