"""Execute one example in a process of its own, and end that process whatever it does.

The server, a process that has read conf.py, forks a supervisor, which forks the worker. Both report
through a pipe. The worker has no input and a prepared environment. Time limits are checked here.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import Any, BinaryIO, NoReturn

import msgspec
import psutil

from gallery_recorder.project.galleries import Project, ProjectError, Where, decode, encode
from gallery_recorder.run import copies, environment, protocol
from gallery_recorder.run.protocol import END_ORPHANS, BlockStarted, Failure, Run
from gallery_recorder.run.text import clean, shorten
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import Recording
from gallery_recorder.temporary import TemporaryFolder

_EVENTS = msgspec.json.Decoder(protocol.Event)  # created once, before several threads use it
# Without this folder in the path: no import finds an example called random.py.
_SERVE = "import sys; sys.path.remove(''); from gallery_recorder.run import server; server.main()"
_QUIET = 10.0  # seconds until a line says that conf.py is still being read
_FAREWELL = 60.0  # seconds from the last block to the end of the worker
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_POLL = 0.05
_FLOOD = 64  # times a block's output limit: beyond that, the example is ended at once

_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "Killed from outside, often because memory ran out: use smaller sizes.",
    signal.SIGSEGV: "A C library or a kernel accessed memory out of bounds.",
    signal.SIGABRT: "A C library gave up; its message is above.",
}


class Client:
    """A connection to the server, which starts when it is first needed."""

    def __init__(self, where: Where, alone: Run | None = None, threads: int | None = None) -> None:
        """A server for *where*; for a run *alone*, its worker reads conf.py and the server not.

        *threads* are those of numerical libraries in each example.
        """
        self._threads = threads
        self.where, self._alone = where, alone
        self._lock = threading.Lock()
        self._supervisors: dict[Path, int] = {}  # by the folders of their workspaces
        self._reason: str | None = None  # why the server cannot fork for examples

    @cached_property
    def _process(self) -> subprocess.Popen[bytes]:
        self._control, its = socket.socketpair()
        self._answers = self._control.makefile("rb")
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._scratch = TemporaryFolder()
        words = [str(its.fileno()), encode(self.where).decode()]
        if not self._alone:
            words.append(str(self._scratch.path))
        environ, run = environment.of_conf(self._threads), self._alone
        environ |= run.settings.environment.get(run.kind, {}) if run else {}
        with its:
            return subprocess.Popen(
                [sys.executable, "-c", _SERVE, *words],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                cwd=run.folder if run else None,
                env=environ,
                pass_fds=[its.fileno()],
                start_new_session=True,  # Ctrl-C is the recorder's
            )

    @cached_property
    def project(self) -> Project:
        """The project; ProjectError if conf.py cannot be read."""
        process = self._process
        if not select.select([self._control], [], [], _QUIET)[0]:
            print(f"Reading {self.where.conf}/conf.py …", flush=True)
        found = decode(self._answers.readline() or b'""', Project | str)  # type: ignore[arg-type]
        if isinstance(found, Project):
            return found
        message = found
        if not message:
            message = f"{self.where.conf}/conf.py: ended its process with status {process.wait()}"
        self._printed.seek(0)
        printed = "\n".join(clean(self._printed.read()).splitlines()[-15:])
        if printed:
            message = f"{message}\nIt printed before:\n{printed}"
        raise ProjectError(message)

    def fork(self, workspace: Workspace, descriptors: list[int]) -> str | None:
        """Start a supervisor with these *descriptors*; return None if started, else the reason.

        The reason is returned the first time, later an empty text.
        """
        paths = (workspace.folder, workspace.tmp, workspace.tree)
        request = json.dumps([str(path) for path in paths]).encode()
        with self._lock:
            if self._reason:
                return ""
            _ = self._process if self._alone else self.project
            try:
                socket.send_fds(self._control, [request], descriptors)
                answer = self._answers.readline().decode().strip()
            except OSError:
                answer = ""
            if answer.isdecimal():
                self._supervisors[workspace.folder] = int(answer)
                self._reason = None
            else:
                self._reason = answer or "ended its process"
            return self._reason

    def end_orphans(self, workspace: Workspace) -> None:
        """Have the server end the processes of an example that killed its supervisor."""
        supervisor = self._supervisors[workspace.folder]
        with self._lock, contextlib.suppress(OSError):
            self._control.sendall(END_ORPHANS + str(supervisor).encode())
            self._answers.readline()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: object) -> None:
        """End the server; running examples go on."""
        if process := vars(self).get("_process"):
            if not self._alone and "project" not in vars(self):
                process.kill()  # it is still reading conf.py
            self._answers.close()
            self._control.close()
            process.wait()
            self._printed.close()
            self._scratch.close()


def execute(
    run: Run,
    workspace: Workspace,
    stop: threading.Event,
    listen: Callable[[BlockStarted | str], None] = lambda event: None,
    server: Client | None = None,
) -> Recording:
    """Execute *run* in the empty *workspace*; *listen* gets each block as it starts.

    A fork of *server* executes it; without one, a process that reads conf.py. If the workspace has
    no copy of the project, it is made. The files of the
    recording are then in ``workspace.recording``. No process of the run is left, even if this
    function raises or this process is killed.

    Raises:
        ExampleFailedError: the example failed; the error says why.
        StoppedError: *stop* was set.
    """
    if not workspace.tree.exists():
        copies.of_run(run, workspace.tree)
    workspace.order.write_bytes(encode(run))
    # Opened for writing, too, so that it has a writer also between two events.
    reading = os.open(workspace.events, os.O_RDWR | os.O_NONBLOCK)
    life, its = socket.socketpair()
    with (
        Client(run.where, run, run.threads) as alone,  # starts where it is needed
        life,
        open(reading, "rb", buffering=0) as events,
        open(workspace.stdout, "ab") as stdout,
        open(workspace.stderr, "ab") as stderr,
    ):
        with its:
            given = [its.fileno(), stdout.fileno(), stderr.fileno()]
            reason = server.fork(workspace, given) if server else ""
            if reason:
                listen(f"conf.py {reason}, so each example reads it again")
            if reason is not None:
                server = alone
                alone.fork(workspace, given)
        watched = _Watched(run, workspace, life)
        try:
            watched.follow(events, stop, listen)
            watched.check()
        except protocol.ExampleFailedError as error:
            if workspace.result.exists():
                error.made = _result(run, workspace)
            raise
        finally:
            watched.end()
            if watched.lost_supervisor and server:
                server.end_orphans(workspace)
    made = _result(run, workspace)
    if made.run.status == "failed" and not run.example.expected_to_fail:
        raise protocol.ExampleFailedError("failed and could not say why", "Report this, please.")
    return made


def _result(run: Run, workspace: Workspace) -> Recording:
    try:
        made = decode(workspace.result.read_bytes(), Recording)
    except msgspec.DecodeError as error:
        raise protocol.ExampleFailedError(
            f"gave a result that is not a recording: {error}",
            "Undo in the example what it replaces in modules of Python, such as time or json.",
        ) from error
    run.check(made)
    return made


class _Watched:
    """A run in progress, as its supervisor and worker have reported it."""

    def __init__(self, run: Run, workspace: Workspace, life: socket.socket) -> None:
        self.run, self.workspace, self.life = run, workspace, life
        self.began: protocol.Begun | None = None
        self.at: BlockStarted | None = None
        self.ended: protocol.Ended | None = None
        self.unread = b""
        self.lost_supervisor = False
        limit = run.timeout
        cause = f"ran longer than its time limit of {limit:g} s"
        remedy = "Raise the limit with --timeout, or in the example with "
        self._limit(limit, cause, f"{remedy}# sphinx_gallery_timeout = {2 * limit:g}")

    def _limit(self, seconds: float, cause: str, remedy: str) -> None:
        """Let the run fail with *cause* if it makes no progress within *seconds*."""
        self.deadline, self.late = time.monotonic() + seconds, (cause, remedy)

    def follow(
        self, events: BinaryIO, stop: threading.Event, listen: Callable[[BlockStarted], None]
    ) -> None:
        """Wait until the worker has ended; raise if it failed or must be ended."""
        flood = _FLOOD * self.run.limit("output")
        outputs = (self.workspace.stdout, self.workspace.stderr)
        while self.ended is None:
            if stop.is_set():
                raise protocol.StoppedError
            watched: list[Any] = [events, self.life]
            ready = select.select(watched, [], [], _POLL)[0]
            if events in ready and (received := events.read(9999)):
                *lines, self.unread = (self.unread + received).split(b"\n")
                for line in lines:
                    self._hear(line, listen)
            elif self.life in ready:  # the supervisor was killed, and the worker with it
                self.ended = protocol.Ended(-signal.SIGKILL)
                self.lost_supervisor = True
            elif self._is_gone() and not select.select([events], [], [], 0)[0]:
                assert self.began is not None
                whose = f"{self.began.wrapper}, with which conf.py wraps generate_file_rst"
                self._fail(f"ended the process of {whose}", "It crashed, or calls os._exit.")
            if time.monotonic() > self.deadline:
                self._fail(*self.late)
            if max(path.stat().st_size for path in outputs) > flood:
                remedy = "Print less, or write large amounts of data to a file."
                self._fail(f"printed more than {flood:,} bytes", remedy)

    def _hear(self, line: bytes, listen: Callable[[BlockStarted], None]) -> None:
        match event := _EVENTS.decode(line):
            case protocol.Begun():
                self.began = event
            case BlockStarted():
                self.at = event
                listen(event)
            case protocol.Done():
                self.began = None
                cause = f"did not end within {_FAREWELL:g} s of its last block"
                remedy = "A thread or an exit handler is still running. End it in the example."
                self._limit(_FAREWELL, cause, remedy)
            case Failure():
                raise protocol.ExampleFailedError(event)
            case protocol.Ended():
                self.ended = event

    def _is_gone(self) -> bool:
        """Whether a process that a wrapper forked for the example has ended without a report."""
        if self.began is None or not self.began.wrapper:
            return False
        return not psutil.pid_exists(self.began.process)

    def end(self) -> None:
        """Have the supervisor end all remaining processes of the run, and wait for it."""
        with contextlib.suppress(OSError):  # it was killed
            self.life.sendall(str(_GRACE).encode())
            self.life.shutdown(socket.SHUT_WR)
            while self.life.recv(1):
                pass

    def check(self) -> None:
        """Raise the reason if there is no result."""
        assert self.ended is not None
        status, left = self.ended.status, self.ended.left
        if status < 0:
            self._fail(
                f"was ended by signal {-status} ({signal.strsignal(-status)})",
                _SIGNALS.get(-status, "Find out who sent the signal, then record it again."),
            )
        if status > 0 and self.at is None:
            self._fail("could not be started", "Correct the cause that the messages above name.")
        if status or not self.workspace.result.exists():
            remedy = "Find what ended it before its last line, such as os._exit, os.exec or a C "
            remedy += "library that calls exit."
            self._fail(f"ended its process with status {status}", remedy)
        if left:
            self._fail(
                f"left {len(left)} process{'es' * (len(left) > 1)} running: {'; '.join(left[:3])}",
                "The recorder ended them. In the example, wait for each process that it starts.",
            )

    def _fail(self, cause: str, remedy: str) -> NoReturn:
        """Raise the failure, with the line being executed and the end of standard error."""
        source, detail = self.run.example.source, ""
        copied = str(self.workspace.copied(self.run.example.path, self.run.top))
        block, of, first = (self.at.block, self.at.of, self.at.line) if self.at else (None,) * 3
        line = self._line(copied)
        place = (block, of, line or first, line is not None)
        if words := clean(self.workspace.stderr.read_bytes()[-4000:]):
            words = "\n".join(shorten(words.replace(copied, source)).splitlines()[-15:])
            detail = f"Standard error ends with:\n{indent(words, '  ')}\n"
        raise protocol.ExampleFailedError(Failure(cause, remedy, detail, *place))

    def _line(self, copied: str) -> int | None:
        """The line of the copy that is being executed, or was, from faulthandler's stacks."""
        file = self.workspace.stack
        if self.ended is None and self.began is not None:
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(self.began.process, signal.SIGUSR1)
            until = time.monotonic() + _GRACE
            while not file.stat().st_size and time.monotonic() < until:
                time.sleep(_POLL)
            time.sleep(0.2)  # until it has written the stacks of all threads
        threads = re.split(r"\n(?=Thread |Current thread )", file.read_text(errors="replace"))
        threads.sort(key=lambda thread: not thread.startswith("Current thread"))
        found = re.search(rf'File "{re.escape(copied)}", line (\d+)', "\n".join(threads))
        return int(found[1]) if found else None
