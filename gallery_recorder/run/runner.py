"""Execute one tutorial in a process of its own, and end that process whatever it does.

The process gets its own session, no input, an environment made for it, and a pipe to tell how
far it is. It is ended when its time is up; so is whatever it started. Nothing that it does can
reach the recorder, another tutorial or the recording that is there already.
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
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gallery_recorder.run.job import (
    MARK,
    MAX_OUTPUT,
    BlockStarted,
    Done,
    Event,
    Failure,
    Job,
    Staging,
)
from gallery_recorder.run.provenance import VISIBLE_VARIABLES, python_path
from gallery_recorder.run.text import clean
from gallery_recorder.store.recording import DECODER, INTERPRETER, Recording

_EVENTS = msgspec.json.Decoder(Event)  # made once, before several threads use it
_START = 300.0  # seconds until the first block: a cold start is not the tutorial's fault
_GRACE = 5.0  # seconds that a process has to end after SIGTERM, before SIGKILL
_FAREWELL = 10.0  # seconds that it has to end after its last block
_POLL = 0.05
_LOG_LIMIT = 64 * MAX_OUTPUT  # of all blocks, bytes; more is not waited for


@dataclass(frozen=True)
class Task:
    """A tutorial to execute, and where.

    ``file`` and ``code`` are the name and the content of its file, which need not be on this
    machine; ``visible`` shows its process one GPU and no other.
    """

    gallery: str
    tutorial: str
    file: str
    code: bytes
    source: str
    device_name: str
    timeout: float
    commit: str | None = None
    visible: dict[str, str] = field(default_factory=dict)

    @property
    def interpreted(self) -> bool:
        """Whether it is executed without a GPU."""
        return self.device_name == INTERPRETER


class TutorialError(Exception):
    """A tutorial that could not be recorded."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.cause)
        self.failure = failure


class StoppedError(Exception):
    """The recorder was asked to stop."""


def run(
    task: Task,
    staging: Staging,
    stop: threading.Event,
    listen: Callable[[BlockStarted], None] = lambda event: None,
) -> Recording:
    """Execute *task* in *staging*, an empty folder; return the recording that now lies there.

    ``staging.recording`` then holds the files of the recording. All processes have ended.

    Raises:
        TutorialError: there is no recording, and why.
        StoppedError: *stop* was set.
    """
    (staging.work / task.file).write_bytes(task.code)
    child = _Child(task, staging)
    try:
        child.follow(stop, listen)
    finally:
        left = child.end_all()
    child.check(left)
    return DECODER.decode(staging.result.read_bytes())


class _Child:
    """The process that executes a tutorial, as seen from outside."""

    def __init__(self, task: Task, staging: Staging) -> None:
        self._task = task
        self._staging = staging
        self._at: BlockStarted | None = None
        self._failure: Failure | None = None
        self._done = False
        self._events, writing = os.pipe()
        try:
            job = Job(
                gallery=task.gallery,
                tutorial=task.tutorial,
                source=task.source,
                device="cpu" if task.interpreted else "cuda",
                device_name=task.device_name,
                commit=task.commit,
                runner=os.getpid(),
                events=writing,
            )
            staging.job.write_bytes(msgspec.json.encode(job))
            (staging.folder / "matplotlibrc").touch()
            with open(staging.stdout, "ab") as stdout, open(staging.stderr, "ab") as stderr:
                self._process = subprocess.Popen(
                    # -P: a tutorial that is called random.py must not be found by an import
                    [sys.executable, "-P", "-m", "gallery_recorder.run.child", str(staging.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=staging.work,
                    env=_environment(task, staging),
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
        deadline = time.monotonic() + _START
        begun = False
        farewell = None
        unread = b""
        while self._process.poll() is None:
            if stop.is_set():
                raise StoppedError
            if self._events_ready():
                unread = self._take(unread, listen)
            if self._at is not None and not begun:
                begun = True
                deadline = time.monotonic() + self._task.timeout
            if self._done and farewell is None:
                farewell = time.monotonic() + _FAREWELL
            if farewell is not None and time.monotonic() > farewell:
                self._failed_here(
                    "did not end after its last block",
                    "A thread or an exit handler of it is still running. End it in the tutorial.",
                )
            if farewell is None and time.monotonic() > deadline:
                if not begun:
                    self._failed_here(
                        f"did not begin within {_START:g} s",
                        "The machine is too busy, or Python cannot import what the recorder needs.",
                    )
                self._failed_here(
                    f"took longer than {self._task.timeout:g} s and was ended",
                    "Give it more time with --timeout, or in the tutorial with "
                    f"# sphinx_gallery_timeout = {2 * self._task.timeout:g}",
                    ask_where=True,
                )
            for path in (self._staging.stdout, self._staging.stderr):
                if path.stat().st_size > _LOG_LIMIT:
                    self._failed_here(
                        f"printed more than {MAX_OUTPUT:,} bytes to standard "
                        f"{'output' if path == self._staging.stdout else 'error'} in one block",
                        "Print what a reader reads; write more to a file.",
                        ask_where=True,
                    )
        while self._events_ready():  # what it told last
            before = unread
            unread = self._take(unread, listen)
            if unread == before:
                break

    def check(self, left: list[str]) -> None:
        """Raise what is wrong with how the process ended, or with the processes it *left*."""
        if self._failure is not None:
            raise TutorialError(self._failure)
        status = self._process.returncode
        if not self._done or status != 0:
            self._failed_here(*self._end(status), ask_where=status < 0)
        if left:
            self._failed_here(
                f"left {len(left)} process{'es' * (len(left) > 1)} running: {'; '.join(left)}",
                "They were ended. Wait for every process that the tutorial starts.",
                line=False,
            )
        expected = {"work", "tmp", "recording", "matplotlibrc"}
        expected |= {p.name for p in vars(self._staging).values()}
        found = {p.name for p in self._staging.folder.iterdir()}
        if strangers := sorted(found - expected):
            self._failed_here(
                f"wrote outside its working directory: ../{strangers[0]}",
                "Write to a plain file name, such as `results.csv`; it becomes a download.",
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

    def _take(self, unread: bytes, listen: Callable[[BlockStarted], None]) -> bytes:
        """Read what the process tells; return the beginning of what it has not finished saying."""
        read = os.read(self._events, 65536)
        if not read:
            time.sleep(_POLL)  # it closed the pipe; select would return at once from now on
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            event = _EVENTS.decode(line)
            match event:
                case BlockStarted():
                    self._at = event
                    listen(event)
                case Failure():
                    self._failure = event
                case Done():
                    self._done = True
        return unread

    def _end(self, status: int) -> tuple[str, str]:
        """Say how the process ended, and what to do about it."""
        after = " after its last block" if self._done else ""
        if status >= 0:
            if self._at is None and status != 0:
                return "could not be started", "Correct what the messages above name."
            return (
                f"ended its process (status {status}){after}",
                "A tutorial runs to its last block; leave os._exit and os.exec out.",
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
            detail = "".join(f"  {self._task.source}:{number}\n" for number in stack)
            detail = f"It was here, innermost first:\n{detail}" if stack else ""
        raise TutorialError(
            Failure(
                cause=cause,
                remedy=remedy,
                detail=detail + self._last_words(),
                block=at.block if at else None,
                of=at.of if at else None,
                line=where,
            )
        )

    def _stack(self) -> list[int]:
        """The tutorial's lines that were being executed, innermost first."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGUSR1)
            time.sleep(0.2)  # faulthandler writes the stacks from the signal's handler
        with contextlib.suppress(OSError):
            copied = re.escape(f'"{self._staging.work / self._task.file}"')
            text = self._staging.stack.read_text(errors="replace")
            threads = re.split(r"\n(?=Thread |Current thread )", text)
            threads.sort(key=lambda thread: not thread.startswith("Current thread"))
            for thread in threads:
                if lines := re.findall(rf"File {copied}, line (\d+)", thread):
                    return [int(line) for line in lines]
        return []

    def _last_words(self) -> str:
        """The end of what the process wrote to standard error."""
        with contextlib.suppress(OSError), open(self._staging.stderr, "rb") as file:
            file.seek(max(0, self._staging.stderr.stat().st_size - 4000))
            copied = str(self._staging.work / self._task.file)
            words = clean(file.read()).replace(copied, self._task.source)
            if words.strip():
                return "Standard error ends with:\n" + "".join(
                    f"  {line}\n" for line in words.splitlines()[-15:]
                )
        return ""


def _environment(task: Task, staging: Staging) -> dict[str, str]:
    """The variables of the process: those that are there, less what would change the result."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TRITON_INTERPRET", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONWARNINGS")
    }
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
        "MPLBACKEND": "agg",
        "MATPLOTLIBRC": str(staging.folder / "matplotlibrc"),  # an empty one: no one's taste
        "SOURCE_DATE_EPOCH": "0",  # files that matplotlib dates get this date
        "TMPDIR": str(staging.tmp),
    }
    if task.interpreted:
        environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment |= dict.fromkeys(VISIBLE_VARIABLES, "")
    else:
        environment |= task.visible
    return environment


def end_processes_of(staging: Path) -> None:
    """End what a killed recorder's tutorial started in *staging* and left running."""
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
