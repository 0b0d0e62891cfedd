"""Supervise the worker of one example, so that no process of it outlives the run.

``python -m gallery_recorder.run.supervisor EVENTS GRACE FOLDER TMP`` forks the worker and waits
until it ends or standard input closes: the recorder stops the run, or was killed. Then it ends all
processes of the example. It is a subreaper: daemons and other sessions stay below it.

EVENTS is the descriptor of the progress pipe; GRACE the seconds from SIGTERM to SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

import psutil

from gallery_recorder.project.galleries import encode
from gallery_recorder.run.protocol import Ended

_SET_PARENT_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # options of prctl
_KILLED = 60.0  # seconds that SIGKILL may take: a process that uses a GPU waits for its driver
_LINGER = 1.0  # seconds in which helper processes may notice that the worker has ended
_POLL = 0.05


def main(arguments: list[str]) -> int:
    """Run the worker, report its end, and end the processes that are left."""
    events, grace = int(arguments[0]), float(arguments[1])
    recorder = os.getppid()
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    worker = os.fork()
    if worker == 0:
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        return _work(events, *map(Path, arguments[2:]))

    ended = os.pidfd_open(worker)
    if select.select([0, ended], [], [])[0] == [ended]:
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        until = time.monotonic() + _LINGER
        while (left := _descendants()) and time.monotonic() < until:
            time.sleep(_POLL)
        with contextlib.suppress(OSError):  # the recorder was killed
            os.write(events, encode(Ended(status, tuple(left.values()))) + b"\n")
    _end_descendants(grace if os.getppid() == recorder else 0.0)
    return 0


def _work(events: int, folder: Path, tmp: Path) -> int:
    """Be the worker: its imports are not the supervisor's."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()  # a signal to the example's process group does not reach the supervisor
    with contextlib.suppress(OSError):  # where memory runs out, the system ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    from gallery_recorder.run import worker

    return worker.main(folder, tmp, events)


def _descendants() -> dict[psutil.Process, str]:
    """The running processes below this one, and their commands."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            found[process] = " ".join(process.cmdline())[:200]
    return found


def _end_descendants(grace: float) -> None:
    """End them, first with SIGTERM, then with SIGKILL."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED)):
        until = time.monotonic() + patience
        signalled: set[psutil.Process] = set()
        while (left := _descendants()) and time.monotonic() < until:
            for process in left.keys() - signalled:
                with contextlib.suppress(psutil.Error):  # it has ended
                    process.send_signal(number)
            signalled |= left.keys()
            time.sleep(_POLL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
