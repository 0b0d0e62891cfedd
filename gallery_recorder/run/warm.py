"""Start the processes of short scripts with their imports behind them.

A process that executes a script first imports Sphinx, sphinx-gallery, matplotlib and what conf.py
names: four fifths of the time of a short one. Here a server imports once what the process of an
earlier script had imported when it came to its first block, and each further process is a fork of
it. Nothing else is shared: the server reads no conf.py and executes no script.

``python -P -m gallery_recorder.run.warm`` is the server; its input is a socket. It starts one
keeper at a time and, where that is killed, ends what it leaves. Where anything is amiss with a
server, the process is started as if there were none.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gallery_recorder.project.galleries import decode, encode
from gallery_recorder.run import keeper
from gallery_recorder.run.protocol import Loaded

_CHILD = "gallery_recorder.run.worker"
_COMMAND = [sys.executable, "-P", "-m", "gallery_recorder.run.warm"]
_PATIENCE = 300.0  # seconds that imports may take on a busy machine
_MAX = 1_000_000  # bytes of an order
_FIRST = 5  # of a keeper's command, the first argument after the number of a descriptor


class Servers:
    """As many servers as are used at a time; ``loaded`` says what they import, once it is known."""

    loaded: Loaded | None = None

    def __init__(self) -> None:
        self._free: list[Server] = []

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes] | Server:
        """Start a keeper as ``subprocess.Popen`` does, which is asked where no server is."""
        if self.loaded:
            with contextlib.suppress(OSError):  # a script killed it, or it cannot import
                server = (
                    self._free.pop() if self._free else Server(self._free, self.loaded, options)
                )
                server.begin(command, options)
                return server
        return subprocess.Popen(command, **options)

    def close(self) -> None:
        """End them."""
        while self._free:
            self._free.pop().close()


class Server:
    """A server, as the recorder sees it; a list has those that are *free*.

    Of the keeper that it has started, it is as much of ``subprocess.Popen`` as is asked for.
    """

    def __init__(self, free: list[Server], loaded: Loaded, options: dict[str, Any]) -> None:
        self._free = free
        folder = options["env"][keeper.MARK]
        own = {n: text for n, text in options["env"].items() if folder not in text}
        own.pop("TMPDIR", None)  # it leads to that folder, and is gone with it
        self._variables = own | {keeper.MARK: str(Path(folder).with_name("server"))}
        self._talk, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._talk.settimeout(_PATIENCE)
        with given:
            self.process = subprocess.Popen(
                _COMMAND,
                stdin=given.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=options["cwd"],
                env=self._variables,
                start_new_session=True,
            )
        with contextlib.suppress(OSError):  # it has ended; who asks it for something will see
            self._talk.send(encode(loaded))

    def begin(self, command: Sequence[str], options: dict[str, Any]) -> None:
        """Have it start a keeper.

        Raises:
            OSError: it does not, and is closed.
        """
        given = [options["stdout"].fileno(), options["stderr"].fileno(), *options["pass_fds"]]
        changed = dict(options["env"].items() - self._variables.items())
        order = [command[_FIRST:], str(options["cwd"]), changed]
        self._control, its_end = socket.socketpair()  # which nobody has but the keeper
        try:
            with its_end:
                given.insert(0, its_end.fileno())
                socket.send_fds(self._talk, [json.dumps(order).encode()], given)
            self.pid = int(self._talk.recv(16) or 0)
            if not self.pid:
                raise ConnectionResetError
        except OSError:
            self.close()
            raise

    def poll(self) -> int | None:
        """None while the keeper is running."""
        return -signal.SIGKILL if self._has_ended(0) else None

    def communicate(self, told: bytes, timeout: float) -> None:
        """Tell it something, and wait for its end and for that of all that it left."""
        with contextlib.suppress(OSError):  # it has ended by itself, and nobody reads any more
            self._control.send(told)
        if not self._has_ended(timeout):
            self.close()  # it waits for this keeper, for ever
            raise subprocess.TimeoutExpired("keeper", timeout)
        self._control.close()
        with contextlib.suppress(OSError):  # the server was killed: no other script is given to it
            if self._talk.recv(16):
                self._free.append(self)
                return
        self.close()

    def kill(self) -> None:
        """End the keeper."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended, without its server
            os.kill(self.pid, signal.SIGKILL)

    def _has_ended(self, timeout: float) -> bool:
        return bool(select.select([self._control], [], [], timeout)[0])

    def close(self) -> None:
        """End the server."""
        self._talk.close()
        self.process.kill()
        self.process.wait()


def loaded(variables: dict[str, str]) -> Loaded:
    """What this process has imported, and changed of *variables*, those that it began with."""
    places = tuple(f"{path}{os.sep}" for path in {*sysconfig.get_paths().values()})
    files = [(name, getattr(m, "__file__", None) or "") for name, m in [*sys.modules.items()]]
    names = (name for name, file in files if name != "__main__" and file.startswith(places))
    changed = dict.fromkeys(variables.keys() - os.environ.keys())
    return Loaded(tuple(names), changed | dict(os.environ.items() - variables.items()))


# --- the server -----------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Import, and start what is asked for until nobody asks."""
    talk = socket.socket(fileno=os.dup(0))
    ctypes.CDLL(None).prctl(keeper.SUBREAPER, 1, 0, 0, 0)
    variables = dict(os.environ)
    asked = None if arguments else decode(talk.recv(_MAX), Loaded)
    for name in (_CHILD, *(asked.modules if asked else ())):
        with contextlib.suppress(Exception):  # the process that needs it will say what is wrong
            importlib.import_module(name)
    if asked and (_cannot_be_shared() or loaded(variables).changed != asked.changed):
        os.execv(sys.executable, [*_COMMAND, "without"])
    sys.modules.pop(_CHILD, None)  # it is a program, and begins anew
    os.chdir("/")
    gc.freeze()  # what is there stays; looking through it would copy it for each process
    while True:
        order, given, _, _ = socket.recv_fds(talk, _MAX, 16)
        if not order:
            return 0
        pid = os.fork()
        if pid == 0:
            talk.close()
            os._exit(keeper.main(_become(json.loads(order), given)))
        for descriptor in given:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # the recorder is gone; the keeper notices, too
            talk.send(b"%d" % pid)
        os.waitpid(pid, 0)
        keeper.end(os.getpid(), 0.0)
        with contextlib.suppress(ChildProcessError):  # none is left
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        with contextlib.suppress(OSError):  # the recorder is gone
            talk.send(b"ended")


def _cannot_be_shared() -> bool:
    """Whether imports started threads, which no fork has, or asked for a process's own folder."""
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)  # libraries that provide for forks ended their threads before it
    return len(os.listdir("/proc/self/task")) > 1 or tempfile.tempdir is not None


def _become(order: list[Any], given: list[int]) -> list[str]:
    """Be as if started with *order*; return the arguments."""
    arguments, folder, variables = order
    *first, events = given  # none has the number of a standard stream, which are open here
    os.setsid()
    for number, descriptor in enumerate(first):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.update(variables)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # or all scripts had the same random numbers
    return [str(events), *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
