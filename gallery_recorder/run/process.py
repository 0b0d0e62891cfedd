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
from typing import Any, BinaryIO, NoReturn

import msgspec

from gallery_recorder.project.galleries import decode, encode
from gallery_recorder.run import environment, keeper
from gallery_recorder.run.protocol import (
    DEAF,
    OUTPUTS,
    Began,
    BlockStarted,
    Done,
    Ended,
    Event,
    Failure,
    Loaded,
    Result,
    Run,
    ScriptFailedError,
    StoppedError,
    unbelievable,
)
from gallery_recorder.run.text import clean, shorten
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store import reading
from gallery_recorder.store.format import MAX_READ

_EVENTS = msgspec.json.Decoder(Event)  # made once, before several threads use it
_START = 300.0  # seconds until the first block: a cold start is not the script's fault
_GRACE = 5.0  # seconds that a process has to end after SIGTERM, before SIGKILL
_FAREWELL = 60.0  # seconds that it has to end after its last block; a busy machine takes a while
_POLL = 0.05
_MAX_STACK = 16_000_000  # bytes of where its threads were
_MAX_EVENT = 1_000_000  # bytes of one thing that it tells
_MAX_SHOWN = 20_000  # bytes of what it printed when nobody collected it

_SIGNALS = {
    signal.SIGKILL: "Perhaps the machine ran out of memory: use smaller sizes, or see the system's "
    "log.",
    signal.SIGSEGV: "A C library or a kernel touched memory that is not its own.",
    signal.SIGABRT: "A C library gave up; its message is above.",
}


def execute(
    run: Run,
    workspace: Workspace,
    stop: threading.Event,
    listen: Callable[[BlockStarted], None] = lambda event: None,
    abandoned: Sequence[Path] = (),
    start: Callable[..., Any] = subprocess.Popen,
) -> Result:
    """Execute *run* in *workspace*, an empty folder; return what it did.

    ``workspace.recording`` then holds the files of the recording. All processes have ended. Where
    this process is killed meanwhile, so are they, and what is *abandoned* then is removed. *start*
    is called as ``subprocess.Popen``.

    Raises:
        ScriptFailedError: there is no recording, and why.
        StoppedError: *stop* was set.
    """
    workspace.overlay(run.example.path, run.top)
    # Held open: whatever the script puts in their place, these are what it printed.
    with open(workspace.stdout, "a+b") as stdout, open(workspace.stderr, "a+b") as stderr:
        child = _Process(run, workspace, abandoned, start, (stdout, stderr))
        try:
            child.follow(stop, listen)
        finally:
            left = child.end_all()
        child.check(left)
        late = child.printed_late(1)
    try:
        result = decode(reading.read_file(workspace.result, MAX_READ), Result)
    except (reading.ReadingError, ValueError, RecursionError) as error:
        raise unbelievable(f"nothing that can be read ({error})") from error
    run.check(result)
    return msgspec.structs.replace(result, late_errors=late, loaded=child.loaded)


class _Process:
    """The process that executes a script, as seen from outside."""

    loaded: Loaded | None = None

    def __init__(
        self,
        run: Run,
        workspace: Workspace,
        abandoned: Sequence[Path],
        start: Callable[..., Any],
        outputs: tuple[BinaryIO, BinaryIO],
    ) -> None:
        self._run = run
        self._outputs = outputs
        self._staging = workspace
        self._at: BlockStarted | None = None
        self._failure: Failure | None = None
        self._done: Done | None = None
        self._status: int | None = None
        self._pid = 0
        self._deadline = time.monotonic() + _START
        self._unread = b""
        self._copied = str(workspace.copied(run.example.path, run.top))
        workspace.order.write_bytes(encode(run))
        self._events, writing = os.pipe()
        left = json.dumps([str(path) for path in (*abandoned, workspace.tmp)])
        try:
            self._keeper = start(
                # -P: a script that is called random.py must not be found by an import
                [
                    *(sys.executable, "-P", "-m", "gallery_recorder.run.keeper"),
                    *(str(writing), str(_GRACE), left, "gallery_recorder.run.worker"),
                    *(str(workspace.folder), str(workspace.tmp), "@keeper", "@events"),
                ],
                stdin=subprocess.PIPE,
                stdout=outputs[0],
                stderr=outputs[1],
                cwd=workspace.tree / run.top.name,
                env=environment.made_for(run, workspace),
                pass_fds=[writing],
                start_new_session=True,
            )
        except BaseException:  # there is no process, so nobody ends it and closes this
            os.close(self._events)
            raise
        finally:
            os.close(writing)

    # --- while it runs ----------------------------------------------------------------------------

    def follow(self, stop: threading.Event, listen: Callable[[BlockStarted], None]) -> None:
        """Listen until the process has ended, or has to be ended."""
        while self._status is None:
            if stop.is_set():
                raise StoppedError
            if select.select([self._events], [], [], _POLL)[0]:
                self._hear(os.read(self._events, 65536), listen)
            elif self._keeper.poll() is not None:  # without it the process has ended, too
                self._status = -signal.SIGKILL
            if time.monotonic() > self._deadline:
                self._is_late()
            for file, name in zip(self._outputs, OUTPUTS, strict=True):
                limit = self._run.limit("output")
                if _size(file) > 64 * limit:  # of all blocks; more is not waited for
                    self._failed_here(
                        f"printed more than {limit:,} bytes to {name} in one block",
                        "Print what a reader reads; write more to a file.",
                        ask_where=True,
                    )

    def _hear(self, told: bytes, listen: Callable[[BlockStarted], None]) -> None:
        """Take what the process or its keeper *told*, and keep what is not said to its end."""
        if not told:  # they have ended, or closed the pipe
            self._status = -signal.SIGKILL
        *lines, self._unread = (self._unread + told).split(b"\n")
        if len(self._unread) > _MAX_EVENT:
            self._confused()
        for line in lines:  # one by one: what came before what cannot be read is known by then
            try:
                event = _EVENTS.decode(line)
            except (ValueError, RecursionError):
                self._confused()
            match event:
                case Began() if not self._pid:
                    self._pid = event.process
                case Loaded():
                    if self._at is None:  # it is not the script that tells
                        self.loaded = event
                case BlockStarted():
                    if event.of != len(self._run.keys) or not 0 < event.block <= event.of:
                        self._confused()
                    if self._at is None:
                        self._deadline = time.monotonic() + self._run.timeout
                    self._at = event
                    listen(event)
                case Failure():
                    self._failure = event
                case Done() if self._done is None:
                    self._done = event
                    self._deadline = time.monotonic() + _FAREWELL
                case Ended():
                    self._status = event.status
                case _:  # what is told once is not the script's to tell: a process gets a signal
                    self._confused()

    def _confused(self) -> NoReturn:
        self._failed_here(
            "wrote into the pipe through which its process tells how far it is",
            "Write to no descriptor that the script did not open itself.",
        )

    def _is_late(self) -> NoReturn:
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

    # --- its end ----------------------------------------------------------------------------------

    def end_all(self) -> list[str]:
        """End the process and every process that it started; return what the latter were."""
        by_itself = self._status is not None
        # Helpers that end with their parent take a moment to notice.
        patience = time.monotonic() + (1.0 if by_itself else 0.0)
        while (left := keeper.descendants(self._keeper.pid)) and time.monotonic() < patience:
            time.sleep(_POLL)
        os.close(self._events)  # else who tells what nobody reads any more would wait
        try:
            self._keeper.communicate(b"q", timeout=_GRACE + 65.0)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._failed_here(
                "could not be ended, not even by SIGKILL: it waits for the system or the GPU",
                f"See what process {self._pid} waits for; the machine may need a restart.",
            )
        keeper.end_processes_of(self._staging.folder)  # where the script killed its keeper
        return [clean(command).strip()[:100] for command in left.values()] if by_itself else []

    def check(self, left: list[str]) -> None:
        """Raise what is wrong with how the process ended, or with the processes it *left*."""
        if self._failure is not None:
            raise ScriptFailedError(self._failure)
        if self._done is None or self._status:
            status = -signal.SIGKILL if self._status is None else self._status
            self._failed_here(*self._end(status), ask_where=status < 0)
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            told = f"left {len(left)} process{'es' * (len(left) > 1)} running: "
            self._failed_here(
                told + "; ".join(left[:3]) + more,
                "They were ended. Wait for every process that the script starts.",
                line=False,
            )
        if strangers := self._staging.strangers():
            self._failed_here(
                f"wrote outside its working directory: {strangers[0]}",
                "Write to a plain file name, such as `results.csv`.",
                line=False,
            )
        if text := self.printed_late(0):
            self._failed_here(
                "printed after its last block, where no page shows it",
                "Wait for the threads and processes that print, and leave exit handlers out.",
                line=False,
                detail="It printed:\n" + indent(shorten(text, lines=12), "  "),
            )

    def printed_late(self, number: int) -> str:
        """What came to an output after the last block; libraries say something at exit."""
        assert self._done is not None
        taken = (self._done.stdout, self._done.stderr)[number]
        return clean(os.pread(self._outputs[number].fileno(), _MAX_SHOWN, taken)).strip()

    def _end(self, status: int) -> tuple[str, str]:
        """Say how the process ended, and what to do about it."""
        after = " after its last block" if self._done else ""
        if status > 0 and self._at is None:
            return "could not be started", "Correct what the messages above name."
        if status == DEAF:
            return (
                "closed the pipe through which its process tells how far it is",
                "Close no descriptor that the script did not open itself.",
            )
        if status >= 0:
            return (
                f"ended its process (status {status}){after}",
                "A script runs to its last block; leave os._exit and os.exec out.",
            )
        known = -status in set(signal.Signals)
        name = signal.Signals(-status).name if known else "a real-time signal"
        advice = "Find out what sent the signal, then record it again."
        return (
            f"was ended by signal {-status} ({name}){after}",
            _SIGNALS.get(signal.Signals(-status), advice) if known else advice,
        )

    # --- what is said of it -----------------------------------------------------------------------

    def _failed_here(
        self, cause: str, remedy: str, line: bool = True, ask_where: bool = False, detail: str = ""
    ) -> NoReturn:
        at = self._at
        where = at.line if at and line else None
        if ask_where and (stack := self._stack()):
            where = stack[0]
            detail = "".join(f"  {self._run.example.source}:{number}\n" for number in stack)
            detail = f"It was here, innermost first:\n{detail}"
        if not detail.startswith("It printed"):
            detail += self._last_words()
        block, of = (at.block, at.of) if at else (None, None)
        raise ScriptFailedError(Failure(cause, remedy, detail, block, of, where))

    def _stack(self) -> list[int]:
        """The script's lines that were being executed, innermost first."""
        if self._status is None and self._pid:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self._pid, signal.SIGUSR1)
            # faulthandler writes the stacks from the signal's handler: soon, on an idle machine.
            answers = time.monotonic() + _GRACE
            with contextlib.suppress(OSError):  # it was removed
                while not os.lstat(self._staging.stack).st_size and time.monotonic() < answers:
                    time.sleep(_POLL)
            time.sleep(0.2)  # until it is through with all of them
        with contextlib.suppress(reading.ReadingError):  # it never began to write them
            text = reading.read_file(self._staging.stack, _MAX_STACK).decode(errors="replace")
            threads = re.split(r"\n(?=Thread |Current thread )", text)
            threads.sort(key=lambda thread: not thread.startswith("Current thread"))
            for thread in threads:
                if lines := re.findall(rf'File "{re.escape(self._copied)}", line (\d+)', thread):
                    return [int(line) for line in lines]
        return []

    def _last_words(self) -> str:
        """The end of what the process wrote to standard error."""
        file = self._outputs[1]
        written = os.pread(file.fileno(), 4000, max(0, _size(file) - 4000))
        words = clean(written).replace(self._copied, self._run.example.source)
        if not words.strip():
            return ""
        lines = shorten(words).splitlines()[-15:]
        return "Standard error ends with:\n" + "".join(f"  {line}\n" for line in lines)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size
