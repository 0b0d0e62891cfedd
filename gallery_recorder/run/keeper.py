"""Stand between the recorder and the process that executes a script, so that nothing gets away.

``python -m gallery_recorder.run.keeper EVENTS GRACE LEFT MODULE ARGUMENT…`` executes the module in
a process of its own and waits. It is a subreaper: a process that its parent has left becomes this
one's child, however it tried to get away, with a new session and an empty environment too. So every
process that the script started is found below this one, and none outlives it.

To the descriptor EVENTS, where the module tells how far it is, it tells the number of the process,
and its exit status when it has ended. It goes on until the recorder writes a byte to its standard
input, or is gone itself, and then ends what is left, within GRACE seconds politely. LEFT is a list,
as JSON, of what to remove where the recorder is gone and nobody comes after it. ``@keeper`` among
the arguments stands for the number of this process, ``@events`` for EVENTS.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import runpy
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

#: The variable that marks every process of one run; its value is the workspace folder.
MARK = "GALLERY_STAGING"

SUBREAPER = 36  # of prctl
_POLL = 0.05
#: Signals that a script may send its parent, and that do nothing to it.
_UNHEARD = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
)


def main(arguments: list[str]) -> int:
    """Execute a module, and end what it started when that is asked for or nobody can ask."""
    events, grace, left, *what = arguments
    recorder = os.getppid()
    known = {"@keeper": str(os.getpid()), "@events": events}
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _UNHEARD}
    child = os.fork()
    if child == 0:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.setsid()  # what it sends to its group does not reach this process
        sys.argv = [known.get(argument, argument) for argument in what]
        runpy.run_module(what[0], run_name="__main__", alter_sys=True)
        return 0

    def tell(**event: object) -> None:
        with contextlib.suppress(OSError):  # the recorder is gone
            os.write(int(events), json.dumps(event).encode() + b"\n")

    def wait() -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tell(type="ended", status=status)

    tell(type="began", process=child)
    waiting = threading.Thread(target=wait)
    waiting.start()
    asked = os.read(0, 1)
    end(os.getpid(), float(grace))
    waiting.join()
    gone = asked == b"" or os.getppid() != recorder  # perhaps while this was ending the rest
    for path in json.loads(left) if gone else ():
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # it was a folder, or is another's
            os.unlink(path)
    return 0


def descendants(root: int) -> dict[int, str]:
    """The processes below *root* that have not ended, with their command, the nearest first."""
    children: dict[int, list[int]] = {}
    alive = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):  # it ended just now
                state, parent = (
                    Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[:2]
                )
                children.setdefault(int(parent), []).append(int(entry.name))
                if state not in (b"Z", b"X"):
                    alive.add(int(entry.name))
    found: dict[int, str] = {}
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop(0)
        waiting += children.get(pid, ())
        if pid in alive:
            with contextlib.suppress(OSError):  # it ended just now
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
                with contextlib.suppress(ProcessLookupError, PermissionError):  # not ours, or gone
                    os.kill(pid, ending)
            asked |= left.keys()
            time.sleep(_POLL)


def end_with(parent: int) -> None:
    """Let the kernel end this process when its *parent* is gone, however it went."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it was gone before we asked
    with contextlib.suppress(OSError):  # where memory runs out, this process goes and not another
        Path("/proc/self/oom_score_adj").write_text("1000")


def end_processes_of(workspace: Path) -> None:
    """End what a script started in *workspace* and what nobody keeps any more.

    A keeper ends with its recorder; this is for where the keeper itself was killed. The mark is in
    the environment that the processes were given.
    """
    mark = f"{MARK}={workspace}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it ended, or is another user's
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
