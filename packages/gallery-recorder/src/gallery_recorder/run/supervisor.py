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
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import psutil

from gallery_recorder.run.protocol import Channel, Ended

_SET_PARENT_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # options of prctl
_KILLED = 60.0  # seconds for SIGKILL: a process that uses a GPU waits for its driver
_LINGER = 1.0  # seconds for helper processes to notice that the worker has ended
_POLL = 0.05
_CHILDREN = "/proc/thread-self/children"  # where the kernel lists children


def main(life: socket.socket, channel: Channel, work: Callable[[], int]) -> int:
    """Fork a process that does *work*; report its end to *channel*; end its descendants.

    Before the recorder closes *life*, it sends the seconds between SIGTERM and SIGKILL through it.
    """
    os.setsid()
    adopt_orphans()
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
            channel.send(Ended(status, tuple(left.values())))
    grace = b""  # if the recorder was killed
    with contextlib.suppress(OSError):
        grace = life.recv(99)
    end_descendants(float(grace or 0))
    return 0


def adopt_orphans() -> None:
    """Have the kernel make orphaned descendants the children of this process."""
    _control_process(_SET_SUBREAPER, 1)


def die_with_parent(number: int) -> None:
    """Have the kernel send this process the signal *number* when its parent ends; 0 for none."""
    _control_process(_SET_PARENT_DEATH_SIGNAL, number)


def _control_process(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_descendants(grace: float, kept: Container[int] = ()) -> None:
    """End all descendants but *kept* children and theirs: SIGTERM, after *grace* s SIGKILL."""
    until = time.monotonic() + grace
    signalled: set[int] = set()
    while (left := _descendants(kept)) and time.monotonic() < until:
        for process in left.keys() - signalled:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(process, signal.SIGTERM)
        signalled |= left.keys()
        time.sleep(_POLL)
    until = time.monotonic() + _KILLED
    while (left := _descendants(kept)) and time.monotonic() < until:
        # At once: a process may fork and end within a millisecond, again and again.
        for process in left:
            _kill(process)
        time.sleep(_POLL / 50)


def _kill(process: int) -> None:
    """Kill *process* with its group, which the kernel does in one step, forks included."""
    with contextlib.suppress(OSError):  # it has ended
        group = os.getpgid(process)
        if group == os.getpgid(0):
            os.kill(process, signal.SIGKILL)
        else:
            os.killpg(group, signal.SIGKILL)


def _descendants(kept: Container[int] = ()) -> dict[int, str]:
    """The running descendants of this process but *kept* children and theirs: command lines.

    Of a process that ends meanwhile, the line is empty: it may have started another one.
    """
    found: dict[int, str] = {}
    waiting = [child for child in children_of(os.getpid()) if child not in kept]
    waiting = [child for child in waiting if not _is_reaped(child)]
    while waiting:
        process = waiting.pop()
        waiting += children_of(process)
        try:
            found[process] = " ".join(psutil.Process(process).cmdline())[:200]
        except psutil.ZombieProcess:  # it has ended, and its parent lives
            continue
        except psutil.Error:
            found[process] = ""
    return found


def _is_reaped(child: int) -> bool:
    """Whether *child* had ended; then nothing is left of it."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def children_of(process: int) -> list[int]:
    """The children of *process*; far faster on Linux than to look at all processes."""
    try:
        threads = os.listdir(f"/proc/{process}/task")
        texts = [Path(f"/proc/{process}/task/{t}/children").read_text() for t in threads]
    except OSError:
        if os.path.exists(_CHILDREN):
            return []  # it has ended
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(process).children()]
        return []
    return [int(child) for text in texts for child in text.split()]
