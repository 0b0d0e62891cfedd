"""Record tutorials: choose which, execute each where there is a place, report how it went.

Whatever one tutorial does, the others are recorded, and a recording that is there stays as it
is until the new one takes its place in one step.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gallery_recorder.run import engines, provenance, runner, workplace
from gallery_recorder.run.engines import Engine, Place, Told
from gallery_recorder.run.job import Failure, Staging
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.run.scheduler import Scheduler
from gallery_recorder.source import needs
from gallery_recorder.source.script import (
    Script,
    ScriptError,
    ScriptFile,
    project_galleries,
    select_scripts,
)
from gallery_recorder.store import recording
from gallery_recorder.store.lock import locked
from gallery_recorder.store.recording import Recording, RecordingError

#: Where recordings lie: those made on a GPU are kept in git, those of the interpreter are not.
GPU_RECORDINGS = Path("recordings")
INTERPRETER_RECORDINGS = Path("build/recordings")


@dataclass(frozen=True)
class Options:
    """What the command line says; see ``python -m gallery_recorder record --help``."""

    names: list[str] = field(default_factory=list)
    device: str = "auto"
    tutorials: tuple[Path, ...] = field(default_factory=project_galleries)
    recordings: Path | None = None
    timeout: float | None = None
    jobs: int | None = None
    force: bool = False
    missing: bool = False
    commit: str | None = None
    engine: str = "local"
    address: str | None = None
    accelerator: str | None = None


def record(options: Options, progress: Progress) -> tuple[list[Outcome], int | None]:
    """Record the tutorials that *options* name; return what became of each, in their order.

    The second value is the signal that ended it early, if one did. A tutorial whose recording is
    current is left alone, unless ``force`` is set.

    Raises:
        ScriptError: a name means no tutorial.
        DeviceError: ``cuda`` was asked for and there is no GPU, or it cannot be used; or there is
            no cluster where one was asked for.
    """
    files = select_scripts(options.tutorials, options.names)
    where = (options.engine, options.device, options.jobs, options.address, options.accelerator)
    with engines.engine(*where) as engine:
        return _Recorder(options, progress, engine).record(files)


def exit_status(outcomes: list[Outcome], interrupted: int | None) -> int:
    """0 where every tutorial is recorded or skipped, 1 where one failed, 128 + signal."""
    if interrupted is not None:
        return 128 + interrupted
    return 1 if any(outcome.status == "failed" for outcome in outcomes) else 0


class _Recorder:
    """One run of the recorder."""

    def __init__(self, options: Options, progress: Progress, engine: Engine) -> None:
        self.options = options
        self.progress = progress
        self.engine = engine
        places = engine.places
        self.device = places[0]
        on_gpu = places[0].gpu is not None
        root = options.recordings or (GPU_RECORDINGS if on_gpu else INTERPRETER_RECORDINGS)
        self.folder = root / recording.slug(places[0].device_name)
        self.commit = (
            options.commit
            or os.environ.get("GALLERY_COMMIT")
            or provenance.commit_of(*options.tutorials)
        )
        self.stop = threading.Event()
        self.outcomes: dict[ScriptFile, Outcome] = {}

    def record(self, files: list[ScriptFile]) -> tuple[list[Outcome], int | None]:
        """Record what has to be recorded of *files*."""
        workplace.remove_leftovers(self.folder)
        scripts = {}
        for file in files:
            decided = self._decide(file)
            if isinstance(decided, Script):
                scripts[file] = decided
            else:
                self._finished(file, decided)
        last = {file: _last_seconds(self.folder / file.gallery / file.name) for file in scripts}
        scheduler = Scheduler(last, self.engine.places)
        finished: queue.Queue[tuple[ScriptFile, Outcome]] = queue.Queue()
        with _signals(self.stop) as signals, self.progress:
            while True:
                for file, place in scheduler.start():
                    self.progress.started(file.name, last[file])
                    threading.Thread(
                        target=lambda f=file, s=scripts[file], at=place: finished.put(
                            (f, self._record_one(s, at))
                        )
                    ).start()
                if not scheduler.running:
                    break
                file, outcome = finished.get()
                scheduler.finish(file)
                self._finished(file, outcome)
        with contextlib.suppress(OSError):
            self.folder.rmdir()  # empty: nothing could be recorded on a new device
        return [self.outcomes[file] for file in files], signals.received

    def _finished(self, file: ScriptFile, outcome: Outcome) -> None:
        self.outcomes[file] = outcome
        self.progress.finished(outcome)

    def _decide(self, file: ScriptFile) -> Script | Outcome:
        """The script, where it has to be executed, or else what became of it."""
        name = file.name
        try:
            script = file.load()
            needs.timeout_of(script)
            unmet = needs.unmet_need(script, self.device.gpu)
        except ScriptError as error:
            return Outcome(name, "failed", str(error))
        if unmet:
            return Outcome(name, "skipped", f"needs {unmet}")
        if self.options.missing and self._is_current_somewhere(script):
            return Outcome(name, "current", "a recording of this code is there")
        if not self.options.force and self._is_current(script):
            return Outcome(name, "current", "the recording is of this code")
        return script

    def _is_current(self, script: Script) -> bool:
        return _is_of(script, self.folder / script.gallery / script.name)

    def _is_current_somewhere(self, script: Script) -> bool:
        given = self.options.recordings
        roots = [given] if given else [GPU_RECORDINGS, INTERPRETER_RECORDINGS]
        folders = [
            at.folder for root in roots for at in recording.find(root, script.gallery, script.name)
        ]
        return any(_is_of(script, folder) for folder in folders)

    def _record_one(self, script: Script, place: Place) -> Outcome:
        """Record *script* at *place*; whatever happens, say what."""

        def waiting(for_what: str) -> None:
            self.progress.note(script.name, for_what)

        lock = workplace.lock_path(self.folder, script.name)
        try:
            with (
                locked(lock, self.stop, lambda p: waiting(f"waits: {p} is recording it")) as mine,
                self.engine.lease(
                    place, self.stop, lambda p: waiting(f"waits: {p} uses the GPU")
                ) as leased,
            ):
                if not (mine and leased) or self.stop.is_set():
                    return Outcome(script.name, "interrupted", "was not begun")
                if not self.options.force and self._is_current(script):
                    return Outcome(script.name, "current", "another recorder has recorded it")
                return self._execute(script, place)
        except runner.StoppedError:
            return Outcome(script.name, "interrupted", "was ended")
        except runner.TutorialError as error:
            return Outcome(script.name, "failed", explain(script.source, error.failure))
        except (OSError, RecordingError) as error:
            failure = Failure(
                f"could not be written: {error}",
                "Make room or set the permissions, then record it again.",
            )
            return Outcome(script.name, "failed", explain(script.source, failure))
        except Exception:
            return Outcome(
                script.name,
                "failed",
                f"{script.source}: the recorder itself failed; please report this:\n"
                f"{traceback.format_exc()}",
            )

    def _execute(self, script: Script, place: Place) -> Outcome:
        task = runner.Task(
            gallery=script.gallery,
            tutorial=script.name,
            file=script.path.name,
            code=script.path.read_bytes(),
            source=script.source,
            device_name=place.device_name,
            timeout=self.options.timeout or needs.timeout_of(script),
            commit=self.commit,
            visible=place.gpu.visible if place.gpu else {},
        )
        staging = Staging(workplace.new_staging(self.folder, script.name))
        told = Told(
            lambda event: self.progress.block(script.name, event),
            lambda text: self.progress.note(script.name, text),
        )
        started = time.monotonic()
        try:
            staging.create()
            made = self.engine.run(task, staging, self.stop, told)
            recording.save(made, staging.recording, self.folder / script.gallery / script.name)
        finally:
            workplace.remove(staging.folder)
        return Outcome(
            script.name,
            "recorded",
            str(self.folder / script.gallery / script.name),
            seconds=time.monotonic() - started,
            warnings=_warnings(made),
        )


def explain(source: str, failure: Failure) -> str:
    """*failure* as a text: what, where, why, and what to do next."""
    where = f"{source}:{failure.line}" if failure.line else source
    block = f", block {failure.block} of {failure.of}" if failure.block else ""
    parts = [f"{where}{block}: {failure.cause}", failure.detail.rstrip("\n"), failure.remedy]
    return "\n".join(part for part in parts if part)


def _warnings(made: Recording) -> tuple[str, ...]:
    """What makes the timings of a recording doubtful."""
    before, after = made.provenance.before, made.provenance.after
    found = []
    if others := max((s.other_processes or 0 for s in (before, after) if s), default=0):
        found.append(f"{others} other process{'es' * (others > 1)} used the GPU at the same time")
    if after and after.throttling:
        found.append(f"the GPU's clocks were held down: {', '.join(after.throttling)}")
    return tuple(found)


def _is_of(script: Script, folder: Path) -> bool:
    try:
        return recording.load(folder).key == script.key
    except RecordingError:
        return False


def _last_seconds(folder: Path) -> float | None:
    try:
        return recording.load(folder).run.seconds
    except RecordingError:
        return None


class _Signals:
    """Which signal asked the recorder to stop."""

    received: int | None = None


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[_Signals]:
    """Let the signals that end a program set *stop* instead, so that nothing is left behind."""
    told = _Signals()

    def handle(number: int, _frame: object) -> None:
        told.received = number
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
