"""Record scripts: choose which, execute each where there is a place, report how it went.

Whatever one script does, the others are recorded, and a recording that is there stays as it
is until the new one takes its place in one step.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from gallery_recorder.project import galleries, needs
from gallery_recorder.project.commands import record_again
from gallery_recorder.project.galleries import Example, Project
from gallery_recorder.project.script import Script, ScriptError
from gallery_recorder.project.settings import Kind
from gallery_recorder.run import confine, provenance, workspace
from gallery_recorder.run.executors import Engine, LocalEngine, Place, lease
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.run.protocol import Failure, Result, Run, ScriptFailedError, StoppedError
from gallery_recorder.run.text import shorten
from gallery_recorder.run.watch import Watch
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store import benchmarks, names, recording
from gallery_recorder.store.format import SCHEMA, Recording, RunFacts, slug
from gallery_recorder.store.lock import locked
from gallery_recorder.store.recording import Location, RecordingError


@dataclass(frozen=True)
class Options:
    """What the command line says; see ``gallery-recorder record --help``."""

    names: list[str] = field(default_factory=list)
    device: str = "auto"
    recordings: Path | None = None
    timeout: float | None = None
    jobs: int | None = None
    force: bool = False
    missing: bool = False
    commit: str | None = None
    engine: str = "local"
    address: str | None = None
    accelerator: str | None = None


def record(plan: Project, options: Options, progress: Progress) -> tuple[list[Outcome], int | None]:
    """Record the scripts of *plan* that *options* name; return what became of each, in order.

    The second value is the signal that ended it early, if one did. A script whose recording is
    current is left alone, unless ``force`` is set.

    Raises:
        ScriptError: a name means no script.
        DeviceError: ``cuda`` was asked for and there is no GPU, or there is no cluster where one
            was asked for.
    """
    examples = galleries.select(plan, options.names)
    with engine(options) as found:
        return _Recorder(plan, options, progress, found).record(examples)


@contextlib.contextmanager
def engine(options: Options) -> Iterator[Engine]:
    """What executes scripts: this machine, or a Ray cluster.

    Raises:
        DeviceError: what was asked for is not there, or cannot be used.
    """
    if options.engine == "local":
        with contextlib.closing(LocalEngine(options.device, options.jobs)) as local:
            yield local
        return
    from gallery_recorder.run import cluster

    with cluster.connected(options.address):
        yield cluster.RayEngine(options.device, options.jobs, options.accelerator)


def exit_status(outcomes: list[Outcome], interrupted: int | None) -> int:
    """0 where every script is recorded or skipped, 1 where one failed, 128 + signal."""
    if interrupted is not None:
        return 128 + interrupted
    return 1 if any(outcome.status == "failed" for outcome in outcomes) else 0


@contextlib.contextmanager
def _heard(stop: threading.Event) -> Iterator[list[int]]:
    """Let the signals that end a program set *stop* instead; the list gets those that came."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        stop.set()

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else no process could be waited for
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
    # Who ignores a signal from the start, as nohup does, goes on ignoring it.
    numbers = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # they mean nothing here, and end nothing
        if signal.getsignal(number) == signal.SIG_DFL:
            before[number] = signal.signal(number, lambda *_: None)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Recorder:
    """One start of the recorder."""

    def __init__(self, plan: Project, options: Options, progress: Progress, engine: Engine) -> None:
        self.plan = plan
        self.settings = plan.settings
        self.options = options
        self.progress = progress
        self.engine = engine
        self.kind: Kind = "gpu" if engine.gpu else "cpu"
        self.timed = self.kind not in self.settings.untimed
        self.device = engine.gpu.name if engine.gpu else self.settings.untimed.get("cpu", "cpu")
        self.root = options.recordings or self.settings.root_for(self.kind)
        place = (slug(self.device), self.settings.variant or "")
        self.folder = Path(self.root, *place)  # where recordings of this device and variant lie
        self.commit = (
            options.commit
            or os.environ.get("GALLERY_COMMIT")
            or provenance.commit_of(
                plan.top, {*self.settings.roots, Path(os.path.realpath(self.root))}
            )
        )
        self.stop = threading.Event()
        self.outcomes: dict[Path, Outcome] = {}

    def record(self, examples: list[Example]) -> tuple[list[Outcome], int | None]:
        """Record what has to be recorded of *examples*."""
        self._repair()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeviceError(
                f"{self.folder}: recordings cannot be written there ({error.strerror}). Set the "
                "permissions, or give --recordings another folder."
            ) from error
        # The kernel keeps scripts from other recordings, or else it is seen afterwards.
        self.watch = None if confine.version() else Watch(self.root)
        workspace.remove_leftovers(self.folder, self._warn)
        waiting = []
        for example in examples:
            decided = self._decide(example)
            if isinstance(decided, Script):
                waiting.append((example, decided, self._last_seconds(example)))
            else:
                self._finished(example, decided)
        # The longest first; one that was never recorded may be the longest.
        waiting.sort(key=lambda item: -float("inf") if item[2] is None else -item[2])
        free: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for place in self.engine.places:
            free.put(place)

        def one(example: Example, script: Script, last: float | None) -> None:
            place = free.get()
            try:
                self.progress.started(self.plan.label(example), last)
                self._finished(example, self._record_one(example, script, place))
            finally:
                free.put(place)

        with (
            _heard(self.stop) as signals,
            self.progress,
            ThreadPoolExecutor(len(self.engine.places)) as pool,
        ):
            for item in waiting:
                pool.submit(one, *item)
        for folder in (self.folder, self.folder.parent):
            with contextlib.suppress(OSError):  # something is in it
                folder.rmdir()  # nothing could be recorded on a new device
        outcomes = [self.outcomes[example.path] for example in examples]
        return outcomes, signals[-1] if signals else None

    def _repair(self) -> None:
        places = {self._location(example).folder.parent for example in self.plan.recorded}
        for folder in sorted({self.folder, *places}):
            workspace.repair(folder, self.root, self._warn)

    def _warn(self, text: str) -> None:
        self.progress.told("recorder", text)

    def _finished(self, example: Example, outcome: Outcome) -> None:
        self.outcomes[example.path] = outcome
        self.progress.finished(outcome)

    # --- which scripts ----------------------------------------------------------------------------

    def _location(self, example: Example) -> Location:
        """Where the recording of *example* belongs."""
        device, variant = slug(self.device), self.settings.variant
        return Location(self.root, device, variant, example.gallery, example.name)

    def _decide(self, example: Example) -> Script | Outcome:
        """The script, where it has to be executed, or else what became of it."""
        name = self.plan.label(example)
        try:
            script = example.load()
            needs.timeout_of(script, self.settings.limits["seconds"])
            unmet = needs.unmet_need(script, self.engine.gpu)
        except ScriptError as error:
            return Outcome(name, "failed", str(error))
        if not re.match(names.PATTERN, example.name):
            advice = "Rename it, without control characters, '\\' and a '.' in front."
            return Outcome(name, "failed", f"{example.source}: no recording is called so. {advice}")
        if not script.code:
            return Outcome(name, "current", "has no code, so there is nothing to record")
        if unmet:
            return Outcome(name, "skipped", f"needs {unmet}")
        given = self.options.recordings
        roots = [given] if given else self.settings.roots
        found = [at for r in roots for at in recording.find(r, example.gallery, example.name)]
        if self.options.missing and any(_is_of(script, at) for at in found):
            return Outcome(name, "current", "a recording of this code is there")
        if not self.options.force and _is_of(script, self._location(example)):
            return Outcome(name, "current", "the recording is of this code")
        return script

    def _last_seconds(self, example: Example) -> float | None:
        try:
            return recording.load(self._location(example).folder).run.seconds
        except RecordingError:  # there is none, or it is damaged
            return None

    # --- one script -------------------------------------------------------------------------------

    def _record_one(self, example: Example, script: Script, place: Place) -> Outcome:
        """Record *example* at *place*; whatever happens, say what."""
        name = self.plan.label(example)

        def waiting(whom: str, does: str) -> None:
            self.progress.told(name, f"waits: {whom} {does}")

        def failed(failure: Failure) -> Outcome:
            return Outcome(name, "failed", failure.told(example.source))

        lock = workspace.lock_path(self.folder, example.label)
        try:
            with (
                locked(lock, self.stop, partial(waiting, does="is recording it")) as mine,
                lease(place, self.stop, partial(waiting, does="uses the GPU")) as leased,
            ):
                if not (mine and leased) or self.stop.is_set():
                    return Outcome(name, "interrupted", "was not begun")
                if not self.options.force and _is_of(script, self._location(example)):
                    return Outcome(name, "current", "another recorder has recorded it")
                return self._execute(example, script, place)
        except StoppedError as error:
            return Outcome(name, "interrupted", str(error) or "was ended")
        except ScriptFailedError as error:
            return failed(error.failure)
        except RecordingError as error:
            remedy = "A script leaves alone what the recorder keeps beside its folder."
            return failed(Failure(f"left what is no recording: {error}", remedy))
        except OSError as error:
            remedy = "Make room or set the permissions, then record it again."
            return failed(Failure(f"could not be written: {error}", remedy))
        except Exception:  # a fault of ours must not keep the other scripts from being recorded
            what = "the recorder itself failed; please report this:"
            return Outcome(name, "failed", f"{example.source}: {what}\n{traceback.format_exc()}")

    def _execute(self, example: Example, script: Script, place: Place) -> Outcome:
        name, location = self.plan.label(example), self._location(example)
        run = Run(
            example=example,
            keys=tuple(block.key for block in script.code),
            where=self.plan.where,
            top=self.plan.top,
            settings=self.settings,
            kind=self.kind,
            device=self.device,
            timeout=self.options.timeout
            or needs.timeout_of(script, self.settings.limits["seconds"]),
            visible=place.visible if place else {},
        )
        told = partial(self.progress.told, name)
        started = time.monotonic()
        with workspace.made(self.folder, example.label, self._repair) as at:
            result = self.engine.execute(run, at, self.stop, told)
            made = self._recording(run, script, result, at)
            _check_tables(made, at)
            if self.watch and (changed := self.watch.changed()):
                raise ScriptFailedError(
                    f"was executed while something was changed that is not its own: {changed[0]}",
                    "Take it back from git, and see whether this script writes to it, or one that "
                    "was executed at the same time.",
                )
            recording.save(made, at.recording, location.folder)
            if self.watch:
                self.watch.saved(location.folder)
        return Outcome(
            name,
            "recorded",
            str(location.folder),
            seconds=time.monotonic() - started,
            warnings=tuple(_warnings(made, example, result)),
        )

    def _recording(self, run: Run, script: Script, result: Result, at: Workspace) -> Recording:
        """The recording of *result*: what it is of is said here, not by the script's process."""
        if result.variant != self.settings.variant:
            raise ScriptFailedError(
                f"was executed as {result.variant}, and these are recordings of "
                f"{self.settings.variant}",
                "Install the same versions where scripts are executed as here.",
            )
        return Recording(
            schema=SCHEMA,
            gallery=run.example.gallery,
            name=run.example.name,
            title=script.title,
            key=script.key,
            variant=result.variant,
            run=RunFacts(
                recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                seconds=result.seconds,
                memory=result.memory,
                peak_host_memory=result.peak_host_memory,
                status="passed" if result.passed else "failed",
                timed=self.timed,
            ),
            provenance=msgspec.structs.replace(
                result.provenance, device=run.device, kind=run.kind, commit=self.commit
            ),
            blocks=result.blocks,
            probes=result.probes,
            backreferences=result.backreferences,
            thumbnail=result.thumbnail,
            files={n: sha256(c).hexdigest() for n, c in result.files_in(at.recording).items()},
        )


def _check_tables(made: Recording, at: Workspace) -> None:
    """Refuse a table that looks like a benchmark and is none: pages are made of benchmarks.

    Raises:
        ScriptFailedError: the table cannot be read.
    """
    for number, block in enumerate(made.blocks, 1):
        for name in block.data:
            if name.lower().endswith(".csv"):
                try:
                    benchmarks.read(at.recording / name)
                except benchmarks.BenchmarkError as error:
                    cause = str(error).removeprefix(f"{at.recording}/")
                    failure = Failure(
                        f"wrote a table that cannot be read as a benchmark: {cause}",
                        "Correct it, or call its columns something else.",
                        block=number,
                        of=len(made.blocks),
                        line=block.line,
                    )
                    raise ScriptFailedError(failure) from error


def _warnings(made: Recording, example: Example, result: Result) -> Iterator[str]:
    """What makes a recording doubtful."""
    before, after = made.provenance.before, made.provenance.after
    if others := max((s.other_processes or 0 for s in (before, after) if s), default=0):
        yield f"{others} other process{'es' * (others > 1)} used the GPU at the same time"
    if after and after.throttling:
        yield f"the GPU's clocks were held down: {', '.join(after.throttling)}"
    if made.run.status == "failed":
        yield f"it failed, as conf.py allows; {record_again(example.name)}"
    elif warned := dict.fromkeys(shorten(result.warned).replace("WARNING: ", "").splitlines()):
        yield f"a build would warn: {' '.join(warned).strip().removesuffix('.')}"
    if result.late_errors:
        last = shorten(result.late_errors).splitlines()[-1]
        yield f"printed to standard error after its last block: {last}"


def _is_of(script: Script, at: Location) -> bool:
    try:
        return at.load([block.key for block in script.code]).key == script.key
    except RecordingError:  # there is none, or it is damaged
        return False
