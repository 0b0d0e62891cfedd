"""Execute one example in a process of its own, and end that process whatever it does.

The recorder starts a supervisor, which starts the worker; both report through a pipe. The worker
has no input and an environment made for it. The time limits of a run are checked here.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from textwrap import indent
from typing import BinaryIO, NoReturn

import msgspec
import psutil

from gallery_recorder.project.galleries import decode, encode
from gallery_recorder.run import environment, protocol
from gallery_recorder.run.protocol import BlockStarted, Failure, Run
from gallery_recorder.run.text import clean, shorten
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import Recording

_EVENTS = msgspec.json.Decoder(protocol.Event)  # created once, before several threads use it
_START = 300.0  # seconds until the first block, where the example's time limit begins
_FAREWELL = 60.0  # seconds from the last block to the end of the worker
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_POLL = 0.05
_FLOOD = 64  # times the limit of a block: with so much output an example is ended at once

_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "Perhaps the machine ran out of memory: use smaller sizes.",
    signal.SIGSEGV: "A C library or a kernel accessed memory out of bounds.",
    signal.SIGABRT: "A C library gave up; its message is above.",
}


def execute(
    run: Run,
    workspace: Workspace,
    stop: threading.Event,
    listen: Callable[[BlockStarted], None] = lambda event: None,
) -> Recording:
    """Execute *run* in *workspace*, an empty one; *listen* gets each block as it begins.

    ``workspace.recording`` then holds the files of the result. No process of the run is left, also
    where this function raises or this process is killed.

    Raises:
        ScriptFailedError: the example failed; says why.
        StoppedError: *stop* was set.
    """
    workspace.overlay(run.example.path, run.top)
    workspace.order.write_bytes(encode(run))
    reading, writing = os.pipe()
    with (
        open(reading, "rb", buffering=0) as events,
        open(workspace.stdout, "ab") as stdout,
        open(workspace.stderr, "ab") as stderr,
    ):
        # -P: an import does not find an example that is called random.py
        command = [sys.executable, "-P", "-m", "gallery_recorder.run.supervisor", str(writing)]
        try:
            supervisor = subprocess.Popen(
                [*command, str(_GRACE), str(workspace.folder), str(workspace.tmp)],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                cwd=workspace.tree / run.top.name,
                env=environment.made_for(run, workspace),
                pass_fds=[writing],
                start_new_session=True,
            )
        finally:
            os.close(writing)
        watched = _Watched(run, workspace, supervisor)
        try:
            watched.follow(events, stop, listen)
        finally:
            supervisor.communicate()  # it ends all processes of the run that are left
        watched.check()
    made = decode(workspace.result.read_bytes(), Recording)
    run.check(made)
    return made


class _Watched:
    """A run in progress, and what its supervisor and worker have reported."""

    def __init__(self, run: Run, workspace: Workspace, supervisor: subprocess.Popen[bytes]) -> None:
        self.run, self.workspace, self.supervisor = run, workspace, supervisor
        self.at: BlockStarted | None = None
        self.failure: Failure | None = None
        self.ended: protocol.Ended | None = None
        self.unread = b""
        remedy = "The machine is too busy, or an import of conf.py hangs."
        self._limit(_START, f"did not begin within {_START:g} s", remedy)

    def _limit(self, seconds: float, cause: str, remedy: str) -> None:
        """Let the run fail with *cause* if it does not get further within *seconds*."""
        self.deadline, self.late = time.monotonic() + seconds, (cause, remedy)

    def follow(
        self, events: BinaryIO, stop: threading.Event, listen: Callable[[BlockStarted], None]
    ) -> None:
        """Wait until the worker has ended; raise if it has to be ended."""
        flood = _FLOOD * self.run.limit("output")
        outputs = (self.workspace.stdout, self.workspace.stderr)
        while self.ended is None:
            if stop.is_set():
                raise protocol.StoppedError
            was_killed = self.supervisor.poll() is not None  # or has ended, and said so
            if select.select([events], [], [], _POLL)[0] and (told := events.read(9999)):
                *lines, self.unread = (self.unread + told).split(b"\n")
                for line in lines:
                    self._hear(line, listen)
            elif was_killed:  # and the worker with it
                self.ended = protocol.Ended(-signal.SIGKILL)
            if time.monotonic() > self.deadline:
                self._fail(*self.late)
            if max(path.stat().st_size for path in outputs) > flood:
                remedy = "Print less; write large amounts of data to a file."
                self._fail(f"printed more than {flood:,} bytes", remedy)

    def _hear(self, line: bytes, listen: Callable[[BlockStarted], None]) -> None:
        match event := _EVENTS.decode(line):
            case BlockStarted():
                if self.at is None:
                    limit = self.run.timeout
                    cause = f"ran longer than its time limit of {limit:g} s"
                    remedy = "Raise the limit with --timeout, or in the example with "
                    self._limit(limit, cause, f"{remedy}# sphinx_gallery_timeout = {2 * limit:g}")
                self.at = event
                listen(event)
            case protocol.Done():
                cause = f"did not end within {_FAREWELL:g} s of its last block"
                remedy = "A thread or an exit handler is still running. End it in the example."
                self._limit(_FAREWELL, cause, remedy)
            case Failure():
                self.failure = event
            case protocol.Ended():
                self.ended = event

    def check(self) -> None:
        """Raise why there is no result, if there is none."""
        if self.failure is not None:
            raise protocol.ScriptFailedError(self.failure)
        assert self.ended is not None
        status, left = self.ended.status, self.ended.left
        if status < 0:
            self._fail(
                f"was ended by signal {-status} ({signal.strsignal(-status)})",
                _SIGNALS.get(-status, "Find out what sent the signal, then record it again."),
            )
        if status > 0 and self.at is None:
            self._fail("could not be started", "Correct what the messages above name.")
        if status or not self.workspace.result.exists():
            remedy = "Remove the call of os._exit or os.exec: an example runs to its last block."
            self._fail(f"ended its process with status {status}", remedy)
        if left:
            self._fail(
                f"left {len(left)} process{'es' * (len(left) > 1)} running: {'; '.join(left[:3])}",
                "The recorder has ended them. Wait in the example for each process that it starts.",
            )

    def _fail(self, cause: str, remedy: str) -> NoReturn:
        """Raise the failure with the line that is being executed and the end of stderr."""
        source, detail = self.run.example.source, ""
        copied = str(self.workspace.copied(self.run.example.path, self.run.top))
        block, of, line = (self.at.block, self.at.of, self.at.line) if self.at else (None,) * 3
        line = self._line(copied) or line
        if words := clean(self.workspace.stderr.read_bytes()[-4000:]):
            words = "\n".join(shorten(words.replace(copied, source)).splitlines()[-15:])
            detail = f"Standard error ends with:\n{indent(words, '  ')}\n"
        raise protocol.ScriptFailedError(Failure(cause, remedy, detail, block, of, line))

    def _line(self, copied: str) -> int | None:
        """The line of the copy that is being executed, or was; faulthandler tells."""
        file = self.workspace.stack
        if self.ended is None:
            with contextlib.suppress(psutil.Error, IndexError):  # it has just ended
                psutil.Process(self.supervisor.pid).children()[0].send_signal(signal.SIGUSR1)
            until = time.monotonic() + _GRACE
            while not file.stat().st_size and time.monotonic() < until:
                time.sleep(_POLL)
            time.sleep(0.2)  # until it has written the stacks of all threads
        threads = re.split(r"\n(?=Thread |Current thread )", file.read_text(errors="replace"))
        threads.sort(key=lambda thread: not thread.startswith("Current thread"))
        found = re.search(rf'File "{re.escape(copied)}", line (\d+)', "\n".join(threads))
        return int(found[1]) if found else None
