"""Execute one script in a process of its own, and end that process whatever it does.

The process gets its own session, no input, an environment made for it, and a pipe to tell how
far it is. It is ended when its time is up; so is whatever it started, which a keeper between the
two finds (see :mod:`~gallery_recorder.run.keeper`). What it tells is believed only as far as it
fits the order that it was given.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import indent
from typing import NoReturn

import msgspec

from gallery_recorder.run import answer, environment, keeper
from gallery_recorder.run.messages import (
    MARK,
    BlockStarted,
    Done,
    Event,
    Failure,
    Result,
    Run,
    ScriptFailedError,
    StoppedError,
)
from gallery_recorder.run.staging import Staging
from gallery_recorder.run.text import clean, shorten
from gallery_recorder.source.project import encode
from gallery_recorder.store import reading

_EVENTS = msgspec.json.Decoder(Event)  # made once, before several threads use it
_START = 300.0  # seconds until the first block: a cold start is not the script's fault
_GRACE = 5.0  # seconds that a process has to end after SIGTERM, before SIGKILL
_FAREWELL = 10.0  # seconds that it has to end after its last block
_POLL = 0.05
_MAX_STACK = 16_000_000  # bytes of where its threads were
_MAX_EVENT = 1_000_000  # bytes of one thing that it tells
_MAX_SHOWN = 20_000  # bytes of what it printed when nobody collected it


def execute(
    run: Run,
    staging: Staging,
    stop: threading.Event,
    listen: Callable[[BlockStarted], None] = lambda event: None,
    abandoned: Sequence[Path] = (),
) -> Result:
    """Execute *run* in *staging*, an empty folder; return what it did.

    ``staging.recording`` then holds the files of the recording. All processes have ended. Where
    this process is killed meanwhile, so are they, and what is *abandoned* then is removed.

    Raises:
        ScriptFailedError: there is no recording, and why.
        StoppedError: *stop* was set.
    """
    staging.overlay(run.path, run.top)
    child = _Process(run, staging, abandoned)
    try:
        child.follow(stop, listen)
    finally:
        left = child.end_all()
    child.check(left)
    result = answer.read(run, staging)
    return msgspec.structs.replace(result, late_errors=child.late_errors)


class _Process:
    """The process that executes a script, as seen from outside."""

    def __init__(self, run: Run, staging: Staging, abandoned: Sequence[Path]) -> None:
        self._run = run
        self._staging = staging
        self._at: BlockStarted | None = None
        self._failure: Failure | None = None
        self._done = False
        self._deadline = time.monotonic() + _START
        self._unread = b""
        self._taken = (0, 0)
        self._code: int | None = None
        self._said = b""
        self._pid = 0
        # The keeper's: what it tells, and how to tell it that it is over.
        status, its_status = os.pipe()
        its_control, self._control = os.pipe()
        self._status = status
        os.set_blocking(status, False)
        self._events, writing = os.pipe()
        given = (its_control, its_status, writing)
        try:
            staging.order.write_bytes(encode(run))
            with open(staging.stdout, "ab") as stdout, open(staging.stderr, "ab") as stderr:
                self._keeper = subprocess.Popen(
                    # -P: a script that is called random.py must not be found by an import
                    [
                        *(sys.executable, "-P", "-m", "gallery_recorder.run.keeper"),
                        *(str(its_control), str(its_status), str(_GRACE)),
                        json.dumps([str(path) for path in abandoned]),
                        *("gallery_recorder.run.child", str(staging.folder), "@keeper"),
                        str(writing),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=staging.tree / run.top.name,
                    env=environment.made_for(run, staging),
                    pass_fds=given,
                    start_new_session=True,
                )
        except BaseException:
            for descriptor in (self._events, self._status, self._control):
                os.close(descriptor)
            raise
        finally:
            for descriptor in given:
                os.close(descriptor)

    def follow(self, stop: threading.Event, listen: Callable[[BlockStarted], None]) -> None:
        """Listen until the process has ended, or has to be ended."""
        while not self._ended():
            if stop.is_set():
                raise StoppedError
            if self._events_ready():
                self._take(listen)
            if time.monotonic() > self._deadline:
                self._is_late()
            self._check_output()
        while self._events_ready():  # what it told last
            before = self._unread
            self._take(listen)
            if self._unread == before:
                break

    def _ended(self) -> bool:
        """Whether the process has ended, or its keeper, without which it cannot go on."""
        if self._code is not None:
            return True
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(self._status, 4096)
        lines = self._said.split(b"\n")
        if len(lines) > 1:
            self._pid = int(lines[0])
        if len(lines) > 2:
            self._code = int(lines[1])
        if self._code is None and self._keeper.poll() is not None:
            self._code = -signal.SIGKILL
        return self._code is not None

    def _is_late(self) -> None:
        """Raise that the deadline has passed: of the start, of the script, or of its end."""
        if self._done:
            self._failed_here(
                "did not end after its last block",
                "A thread or an exit handler of it is still running. End it in the script.",
            )
        if self._at is None:
            self._failed_here(
                f"did not begin within {_START:g} s",
                "The machine is too busy, or Python cannot import what the recorder needs.",
            )
        self._failed_here(
            f"took longer than {self._run.timeout:g} s and was ended",
            "Give it more time with --timeout, or in the script with "
            f"# sphinx_gallery_timeout = {2 * self._run.timeout:g}",
            ask_where=True,
        )

    def _check_output(self) -> None:
        limit = self._run.limit("output")
        for path, name in (
            (self._staging.stdout, "standard output"),
            (self._staging.stderr, "standard error"),
        ):
            if path.stat().st_size > 64 * limit:  # of all blocks; more is not waited for
                self._failed_here(
                    f"printed more than {limit:,} bytes to {name} in one block",
                    "Print what a reader reads; write more to a file.",
                    ask_where=True,
                )

    def check(self, left: list[str]) -> None:
        """Raise what is wrong with how the process ended, or with the processes it *left*."""
        if self._failure is not None:
            raise ScriptFailedError(self._failure)
        status = self._code
        if status is None or not self._done or status != 0:
            status = -signal.SIGKILL if status is None else status
            self._failed_here(*self._end(status), ask_where=status < 0)
        if left:
            self._failed_here(
                f"left {len(left)} process{'es' * (len(left) > 1)} running: {'; '.join(left)}",
                "They were ended. Wait for every process that the script starts.",
                line=False,
            )
        if strangers := self._staging.strangers():
            self._failed_here(
                f"wrote outside its working directory: {strangers[0]}",
                "Write to a plain file name, such as `results.csv`.",
                line=False,
            )
        self._check_last_output()

    def _check_last_output(self) -> None:
        """Raise where something was printed to standard output when nobody collected it."""
        if text := self._printed_late(self._staging.stdout, self._taken[0]):
            self._failed_here(
                "printed after its last block, where no page shows it",
                "Wait for the threads and processes that print, and leave exit handlers out.",
                line=False,
                detail="It printed:\n" + indent(shorten(text, lines=12), "  "),
            )

    @property
    def late_errors(self) -> str:
        """What came to standard error after the last block: libraries say something at exit."""
        return self._printed_late(self._staging.stderr, self._taken[1])

    def _printed_late(self, path: Path, taken: int) -> str:
        if path.stat().st_size <= taken:
            return ""
        with open(path, "rb") as file:
            file.seek(taken)
            return clean(file.read(_MAX_SHOWN)).strip()

    def end_all(self) -> list[str]:
        """End the process and every process that it started; return what the latter were."""
        running = not self._ended()
        if not running:
            # Helpers that end with their parent take a moment to notice.
            patience = time.monotonic() + 1.0
            while keeper.descendants(self._keeper.pid) and time.monotonic() < patience:
                time.sleep(_POLL)
        left = keeper.descendants(self._keeper.pid)
        with contextlib.suppress(OSError):
            os.write(self._control, b"q")
        try:
            self._keeper.wait(_GRACE + 65.0)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._failed_here(
                "could not be ended, not even by SIGKILL: it waits for the system or the GPU",
                f"See what process {self._pid} waits for; the machine may need a restart.",
            )
        finally:
            for descriptor in (self._events, self._status, self._control):
                os.close(descriptor)
        end_processes_of(self._staging.folder)  # where the script killed its keeper
        return [] if running else [clean(command).strip()[:100] for command in left.values()]

    def _events_ready(self) -> bool:
        return bool(select.select([self._events], [], [], _POLL)[0])

    def _take(self, listen: Callable[[BlockStarted], None]) -> None:
        """Read what the process tells; keep the beginning of what it has not finished saying."""
        read = os.read(self._events, 65536)
        if not read:
            time.sleep(_POLL)  # it closed the pipe; select would return at once from now on
        *lines, self._unread = (self._unread + read).split(b"\n")
        if len(self._unread) > _MAX_EVENT:
            self._confused()
        for line in lines:
            try:
                told = _EVENTS.decode(line)
            except (ValueError, RecursionError):
                self._confused()
            match told:
                case BlockStarted() as event:
                    if event.of != len(self._run.keys) or not 0 < event.block <= event.of:
                        self._confused()
                    if self._at is None:
                        self._deadline = time.monotonic() + self._run.timeout
                    self._at = event
                    listen(event)
                case Failure() as failure:
                    self._failure = failure
                case Done() as done:
                    self._done = True
                    self._taken = (done.stdout, done.stderr)
                    self._deadline = time.monotonic() + _FAREWELL

    def _confused(self) -> NoReturn:
        self._failed_here(
            "wrote into the pipe through which its process tells how far it is",
            "Write to no descriptor that the script did not open itself.",
        )

    def _end(self, status: int) -> tuple[str, str]:
        """Say how the process ended, and what to do about it."""
        after = " after its last block" if self._done else ""
        if status >= 0:
            if self._at is None and status != 0:
                return "could not be started", "Correct what the messages above name."
            return (
                f"ended its process (status {status}){after}",
                "A script runs to its last block; leave os._exit and os.exec out.",
            )
        name = (
            signal.Signals(-status).name if -status in set(signal.Signals) else "a real-time signal"
        )
        advice = {
            int(
                signal.SIGKILL
            ): "Perhaps the machine ran out of memory: use smaller sizes, or see the system's log.",
            int(signal.SIGSEGV): "A C library or a kernel touched memory that is not its own.",
            int(signal.SIGABRT): "A C library gave up; its message is above.",
        }
        return (
            f"was ended by signal {-status} ({name}){after}",
            advice.get(-status, "Find out what sent the signal, then record it again."),
        )

    def _failed_here(
        self, cause: str, remedy: str, line: bool = True, ask_where: bool = False, detail: str = ""
    ) -> NoReturn:
        at = self._at
        where = at.line if at and line else None
        if ask_where:
            stack = self._stack()
            where = stack[0] if stack else where
            detail = "".join(f"  {self._run.source}:{number}\n" for number in stack)
            detail = f"It was here, innermost first:\n{detail}" if stack else ""
        raise ScriptFailedError(
            Failure(
                cause=cause,
                remedy=remedy,
                detail=detail if detail.startswith("It printed") else detail + self._last_words(),
                block=at.block if at else None,
                of=at.of if at else None,
                line=where,
            )
        )

    @property
    def _copied(self) -> str:
        """The script that is executed."""
        return str(self._staging.copied(self._run.path, self._run.top))

    def _stack(self) -> list[int]:
        """The script's lines that were being executed, innermost first."""
        if not self._ended() and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGUSR1)
            time.sleep(0.2)  # faulthandler writes the stacks from the signal's handler
        with contextlib.suppress(reading.ReadingError):
            text = reading.read_file(self._staging.stack, _MAX_STACK).decode(errors="replace")
            threads = re.split(r"\n(?=Thread |Current thread )", text)
            threads.sort(key=lambda thread: not thread.startswith("Current thread"))
            for thread in threads:
                if lines := re.findall(rf'File "{re.escape(self._copied)}", line (\d+)', thread):
                    return [int(line) for line in lines]
        return []

    def _last_words(self) -> str:
        """The end of what the process wrote to standard error."""
        with contextlib.suppress(OSError), open(self._staging.stderr, "rb") as file:
            file.seek(max(0, self._staging.stderr.stat().st_size - 4000))
            words = clean(file.read()).replace(self._copied, self._run.source)
            if words.strip():
                return "Standard error ends with:\n" + "".join(
                    f"  {line}\n" for line in shorten(words).splitlines()[-15:]
                )
        return ""


def end_processes_of(staging: Path) -> None:
    """End what a script started in *staging* and what nobody keeps any more.

    A keeper ends with its recorder; this is for where the keeper itself was killed. The mark is in
    the environment that the processes were given.
    """
    mark = f"{MARK}={staging}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it ended, or is another user's
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
