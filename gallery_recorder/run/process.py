"""Execute one script in a process of its own, and end that process whatever it does.

The process gets its own session, no input, an environment made for it, and a pipe to tell how
far it is. It is ended when its time is up; so is whatever it started. Nothing that it does can
reach the recorder, another script or the recording that is there already.
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
from pathlib import Path

import msgspec

from gallery_recorder.run.gpus import VISIBLE_VARIABLES
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
from gallery_recorder.run.text import clean
from gallery_recorder.source.project import decode, encode, python_path
from gallery_recorder.source.settings import KINDS

_EVENTS = msgspec.json.Decoder(Event)  # made once, before several threads use it
_START = 300.0  # seconds until the first block: a cold start is not the script's fault
_GRACE = 5.0  # seconds that a process has to end after SIGTERM, before SIGKILL
_FAREWELL = 10.0  # seconds that it has to end after its last block
_POLL = 0.05

#: Variables of the recorder's own environment that would change what a script does.
_REMOVED = (
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "PYTHONWARNINGS",
    "PYTHONOPTIMIZE",
    "PYTHONDEVMODE",
    "PYTHONPATH",
)


def execute(
    run: Run,
    staging: Staging,
    stop: threading.Event,
    listen: Callable[[BlockStarted], None] = lambda event: None,
) -> Result:
    """Execute *run* in *staging*, an empty folder; return what it did.

    ``staging.recording`` then holds the files of the recording. All processes have ended.

    Raises:
        ScriptFailedError: there is no recording, and why.
        StoppedError: *stop* was set.
    """
    staging.overlay(run.path, run.top)
    child = _Process(run, staging)
    try:
        child.follow(stop, listen)
    finally:
        left = child.end_all()
    child.check(left)
    result = decode(staging.result.read_bytes(), Result)
    if tuple(block.key for block in result.blocks) != run.keys:
        raise ScriptFailedError(
            Failure(
                "told of other blocks than the script has",
                "Record it again; if that happens again, the script changes its own recording.",
            )
        )
    return result


class _Process:
    """The process that executes a script, as seen from outside."""

    def __init__(self, run: Run, staging: Staging) -> None:
        self._run = run
        self._staging = staging
        self._at: BlockStarted | None = None
        self._failure: Failure | None = None
        self._done = False
        self._deadline = time.monotonic() + _START
        self._unread = b""
        self._events, writing = os.pipe()
        try:
            staging.order.write_bytes(encode(run))
            with open(staging.stdout, "ab") as stdout, open(staging.stderr, "ab") as stderr:
                self._process = subprocess.Popen(
                    # -P: a script that is called random.py must not be found by an import
                    [
                        *(sys.executable, "-P", "-m", "gallery_recorder.run.child"),
                        *(str(staging.folder), str(os.getpid()), str(writing)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=staging.tree / run.top.name,
                    env=_environment(run, staging),
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._events)
            raise
        finally:
            os.close(writing)

    def follow(self, stop: threading.Event, listen: Callable[[BlockStarted], None]) -> None:
        """Listen until the process has ended, or has to be ended."""
        while self._process.poll() is None:
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
        status = self._process.returncode
        if not self._done or status != 0:
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

    def end_all(self) -> list[str]:
        """End the process and every process that it started; return what the latter were."""
        own = self._process
        running = own.poll() is None
        mark = f"{MARK}={self._staging.folder}"
        if not running:
            # Helpers that end with their parent take a moment to notice.
            patience = time.monotonic() + 1.0
            while _marked(mark, own.pid) and time.monotonic() < patience:
                time.sleep(_POLL)
        left = {pid: command for pid, command in _marked(mark, own.pid).items() if pid != own.pid}
        for ending, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, 60.0)):
            victims = set(_marked(mark, own.pid))
            if own.poll() is None:
                victims.add(own.pid)
            if not victims:
                break
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, ending)
            patience += time.monotonic()
            while time.monotonic() < patience and (own.poll() is None or _marked(mark, own.pid)):
                time.sleep(_POLL)
        os.close(self._events)
        if own.poll() is None:
            self._failed_here(
                "could not be ended, not even by SIGKILL: it waits for the system or the GPU",
                f"See what process {own.pid} waits for; the machine may need a restart.",
            )
        return [] if running else list(left.values())

    def _events_ready(self) -> bool:
        return bool(select.select([self._events], [], [], _POLL)[0])

    def _take(self, listen: Callable[[BlockStarted], None]) -> None:
        """Read what the process tells; keep the beginning of what it has not finished saying."""
        read = os.read(self._events, 65536)
        if not read:
            time.sleep(_POLL)  # it closed the pipe; select would return at once from now on
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            match _EVENTS.decode(line):
                case BlockStarted() as event:
                    if self._at is None:
                        self._deadline = time.monotonic() + self._run.timeout
                    self._at = event
                    listen(event)
                case Failure() as failure:
                    self._failure = failure
                case Done():
                    self._done = True
                    self._deadline = time.monotonic() + _FAREWELL

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
        name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        advice = {
            signal.SIGKILL: "Perhaps the machine ran out of memory: use smaller sizes, or see the "
            "system's log.",
            signal.SIGSEGV: "A C library or a kernel touched memory that is not its own.",
            signal.SIGABRT: "A C library gave up; its message is above.",
        }
        return (
            f"was ended by signal {-status} ({name}){after}",
            advice.get(-status, "Find out what sent the signal, then record it again."),
        )

    def _failed_here(
        self, cause: str, remedy: str, line: bool = True, ask_where: bool = False
    ) -> None:
        at = self._at
        where = at.line if at and line else None
        detail = ""
        if ask_where:
            stack = self._stack()
            where = stack[0] if stack else where
            detail = "".join(f"  {self._run.source}:{number}\n" for number in stack)
            detail = f"It was here, innermost first:\n{detail}" if stack else ""
        raise ScriptFailedError(
            Failure(
                cause=cause,
                remedy=remedy,
                detail=detail + self._last_words(),
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
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGUSR1)
            time.sleep(0.2)  # faulthandler writes the stacks from the signal's handler
        with contextlib.suppress(OSError):
            text = self._staging.stack.read_text(errors="replace")
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
                    f"  {line}\n" for line in words.splitlines()[-15:]
                )
        return ""


def _environment(run: Run, staging: Staging) -> dict[str, str]:
    """The variables of the process: those that are there, less what would change the result."""
    chosen = run.settings.environment
    removed = {*_REMOVED, *(name for kind in KINDS for name in chosen[kind])}
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= {
        MARK: str(staging.folder),
        "PYTHONPATH": python_path(),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",  # of C code as well: its output comes in order, crash or not
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "TMPDIR": str(staging.tmp),
    }
    environment |= run.visible if run.kind == "gpu" else dict.fromkeys(VISIBLE_VARIABLES, "")
    return environment | chosen[run.kind]


def end_processes_of(staging: Path) -> None:
    """End what a killed recorder's script started in *staging* and left running."""
    for pid in _marked(f"{MARK}={staging}", session=-1):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str, session: int) -> dict[int, str]:
    """The processes whose environment holds *mark* or that are of *session*, with their command.

    A process that left the session still has the mark, which its parent's environment gave it.
    """
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):  # it ended, or is not ours
            state, _, _, its_session = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:4]
            if state in "ZX":
                continue
            marked = mark.encode() in (folder / "environ").read_bytes().split(b"\0")
            if marked or int(its_session) == session:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = clean(command).strip()[:100]
    return found
