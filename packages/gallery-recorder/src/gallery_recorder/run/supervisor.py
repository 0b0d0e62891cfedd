"""Supervise the worker of one example, so that no process of it outlives the run.

The supervisor forks the worker. It waits until the worker ends, or until the recorder closes its
end of a socket because it stops the run or was killed. Then it ends all processes of the example.
On Linux it is a subreaper, so daemons and other sessions remain its descendants.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import psutil

from gallery_recorder.project.galleries import encode
from gallery_recorder.run.protocol import Ended

_SET_PARENT_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # options of prctl
_KILLED = 60.0  # seconds for SIGKILL: a process that uses a GPU waits for its driver
_LINGER = 1.0  # seconds for helper processes to notice that the worker has ended
_POLL = 0.05


def main(life: socket.socket, events: int, work: Callable[[], int]) -> int:
    """Fork a process that does *work*; report its end to *events*; end its descendants.

    Before the recorder closes *life*, it sends the seconds between SIGTERM and SIGKILL through it.
    """
    os.setsid()
    _control_process(_SET_SUBREAPER, 1)
    worker = os.fork()
    if worker == 0:
        life.close()
        die_with_parent(signal.SIGKILL)
        os.setsid()  # a signal to the example's process group does not reach the supervisor
        status = 1
        try:
            status = work()
        except BaseException:  # the recorder quotes the end of standard error
            traceback.print_exc()
        finally:
            os._exit(status)

    watched: list[Any] = [life, *([os.pidfd_open(worker)] if sys.platform == "linux" else [])]
    while not (done := os.waitpid(worker, os.WNOHANG))[0]:
        if life in select.select(watched, [], [], None if watched[1:] else _POLL)[0]:
            break
    if done[0]:
        until = time.monotonic() + _LINGER
        while (left := _descendants()) and time.monotonic() < until:
            time.sleep(_POLL)
        with contextlib.suppress(OSError):  # the recorder was killed
            status = os.waitstatus_to_exitcode(done[1])
            os.write(events, encode(Ended(status, tuple(left.values()))) + b"\n")
    grace = b""  # if the recorder was killed
    with contextlib.suppress(OSError):
        grace = life.recv(99)
    _end_descendants(float(grace or 0))
    return 0


def die_with_parent(number: int) -> None:
    """Have the kernel send this process the signal *number* when its parent ends; 0 for none."""
    _control_process(_SET_PARENT_DEATH_SIGNAL, number)


def _control_process(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _descendants() -> dict[psutil.Process, str]:
    """The running descendants of this process, and their command lines."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            found[process] = " ".join(process.cmdline())[:200]
    return found


def _end_descendants(grace: float) -> None:
    """End all descendants, first by SIGTERM, then by SIGKILL."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED)):
        until = time.monotonic() + patience
        signalled: set[psutil.Process] = set()
        while (left := _descendants()) and time.monotonic() < until:
            for process in left.keys() - signalled:
                with contextlib.suppress(psutil.Error):  # it has ended
                    process.send_signal(number)
            signalled |= left.keys()
            time.sleep(_POLL)
