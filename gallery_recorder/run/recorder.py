"""Record scripts: choose which, execute each where there is a place, report how it went.

Whatever one script does, the others are recorded, and a recording that is there stays as it
is until the new one takes its place in one step.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gallery_recorder.run import confine, engines, process, provenance, staging
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.messages import Failure, Result, Run, ScriptFailedError, StoppedError
from gallery_recorder.run.places import Engine, Place, Told
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.run.signals import heard
from gallery_recorder.run.staging import Staging
from gallery_recorder.run.text import shorten
from gallery_recorder.run.watch import Watch
from gallery_recorder.source import needs, project
from gallery_recorder.source.commands import record_again
from gallery_recorder.source.project import Example, Project
from gallery_recorder.source.script import Script, ScriptError
from gallery_recorder.store import benchmarks, recording
from gallery_recorder.store.lock import locked
from gallery_recorder.store.recording import Location, Recording, RecordingError


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
    examples = project.select(plan, options.names)
    where = (options.engine, options.device, options.jobs, options.address, options.accelerator)
    with engines.engine(*where) as engine:
        return _Recorder(plan, options, progress, engine).record(examples)


def exit_status(outcomes: list[Outcome], interrupted: int | None) -> int:
    """0 where every script is recorded or skipped, 1 where one failed, 128 + signal."""
    if interrupted is not None:
        return 128 + interrupted
    return 1 if any(outcome.status == "failed" for outcome in outcomes) else 0


class _Recorder:
    """One start of the recorder."""

    def __init__(self, plan: Project, options: Options, progress: Progress, engine: Engine) -> None:
        self.plan = plan
        self.options = options
        self.progress = progress
        self.engine = engine
        first = engine.places[0]
        self.kind = first.kind
        self.timed = self.kind not in plan.settings.untimed
        self.device = first.gpu.name if first.gpu else plan.settings.untimed.get("cpu", "cpu")
        self.root = options.recordings or plan.settings.root_for(self.kind)
        self.top = plan.top
        self.commit = (
            options.commit
            or os.environ.get("GALLERY_COMMIT")
            or provenance.commit_of(self.top, {*plan.settings.roots, self.root.resolve()})
        )
        self.stop = threading.Event()
        self.outcomes: dict[Path, Outcome] = {}

    def location(self, example: Example) -> Location:
        """Where the recording of *example* belongs."""
        device, variant = recording.slug(self.device), self.plan.settings.variant
        return Location(self.root, device, variant, example.gallery, example.name)

    @property
    def folder(self) -> Path:
        """Where the recordings of this device and variant lie."""
        return Path(self.root, recording.slug(self.device), self.plan.settings.variant or "")

    def record(self, examples: list[Example]) -> tuple[list[Outcome], int | None]:
        """Record what has to be recorded of *examples*."""
        self._make_folder()
        # The kernel keeps scripts from other recordings, or else it is seen afterwards.
        self.watch = None if confine.version() else Watch(self.root)
        staging.remove_leftovers(self.folder, process.end_processes_of, self._warn)
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
            heard(self.stop) as signals,
            self.progress,
            ThreadPoolExecutor(len(self.engine.places)) as pool,
        ):
            for item in waiting:
                pool.submit(one, *item)
        for folder in (self.folder, self.folder.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()  # empty: nothing could be recorded on a new device
        return [self.outcomes[example.path] for example in examples], signals.received

    def _make_folder(self) -> None:
        """Have a folder to write to; what a script took away from it is given back."""
        staging.repair(self.folder, self.root, self._warn)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeviceError(
                f"{self.folder}: recordings cannot be written there ({error.strerror}). Set the "
                "permissions, or give --recordings another folder."
            ) from error

    def _warn(self, text: str) -> None:
        self.progress.note("recorder", text)

    def _finished(self, example: Example, outcome: Outcome) -> None:
        self.outcomes[example.path] = outcome
        self.progress.finished(outcome)

    def _decide(self, example: Example) -> Script | Outcome:
        """The script, where it has to be executed, or else what became of it."""
        name = self.plan.label(example)
        try:
            script = example.load()
            needs.timeout_of(script, self.plan.settings.limits["seconds"])
            unmet = needs.unmet_need(script, self.engine.places[0].gpu)
        except ScriptError as error:
            return Outcome(name, "failed", str(error))
        if not script.code:
            return Outcome(name, "current", "has no code, so there is nothing to record")
        if unmet:
            return Outcome(name, "skipped", f"needs {unmet}")
        if self.options.missing and self._is_current_somewhere(example, script):
            return Outcome(name, "current", "a recording of this code is there")
        if not self.options.force and _is_of(script, self.location(example)):
            return Outcome(name, "current", "the recording is of this code")
        return script

    def _is_current_somewhere(self, example: Example, script: Script) -> bool:
        given = self.options.recordings
        roots = [given] if given else self.plan.settings.roots
        found = [at for r in roots for at in recording.find(r, example.gallery, example.name)]
        return any(_is_of(script, at) for at in found)

    def _last_seconds(self, example: Example) -> float | None:
        try:
            return recording.load(self.location(example).folder).run.seconds
        except RecordingError:
            return None

    def _record_one(self, example: Example, script: Script, place: Place) -> Outcome:
        """Record *example* at *place*; whatever happens, say what."""
        name = self.plan.label(example)

        def waiting(for_what: str) -> None:
            self.progress.note(name, for_what)

        lock = staging.lock_path(self.folder, f"{example.gallery}/{example.name}")
        try:
            with (
                locked(lock, self.stop, lambda p: waiting(f"waits: {p} is recording it")) as mine,
                self.engine.lease(
                    place, self.stop, lambda p: waiting(f"waits: {p} uses the GPU")
                ) as leased,
            ):
                if not (mine and leased) or self.stop.is_set():
                    return Outcome(name, "interrupted", "was not begun")
                if not self.options.force and _is_of(script, self.location(example)):
                    return Outcome(name, "current", "another recorder has recorded it")
                return self._execute(example, script, place)
        except StoppedError as error:
            return Outcome(name, "interrupted", str(error) or "was ended")
        except ScriptFailedError as error:
            return Outcome(name, "failed", explain(example.source, error.failure))
        except (OSError, RecordingError) as error:
            failure = Failure(
                f"could not be written: {error}",
                "Make room or set the permissions, then record it again.",
            )
            return Outcome(name, "failed", explain(example.source, failure))
        except Exception:
            return Outcome(
                name,
                "failed",
                f"{example.source}: the recorder itself failed; please report this:\n"
                f"{traceback.format_exc()}",
            )

    def _execute(self, example: Example, script: Script, place: Place) -> Outcome:
        settings, name = self.plan.settings, self.plan.label(example)
        run = Run(
            gallery=example.gallery,
            name=example.name,
            source=example.source,
            path=example.path,
            pages=example.pages,
            may_fail=example.may_fail,
            keys=tuple(block.key for block in script.code),
            where=self.plan.where,
            top=self.top,
            settings=settings,
            kind=place.kind,
            device=self.device,
            timeout=self.options.timeout or needs.timeout_of(script, settings.limits["seconds"]),
            visible=place.gpu.visible if place.gpu else {},
        )
        at = Staging(staging.new_staging(self.folder, f"{example.gallery}/{example.name}"))
        told = Told(
            lambda event: self.progress.block(name, event),
            lambda text: self.progress.note(name, text),
        )
        location = self.location(example)
        started = time.monotonic()
        try:
            at.create()
            result = self.engine.execute(run, at, self.stop, told)
            if result.variant != settings.variant:
                raise ScriptFailedError(
                    Failure(
                        f"was executed as {result.variant}, and these are recordings of "
                        f"{settings.variant}",
                        "Install the same versions where scripts are executed as here.",
                    )
                )
            made = self._recording(run, script, result, at)
            _check_tables(made, at)
            self._check_others()
            recording.save(made, at.recording, location.folder)
            if self.watch:
                self.watch.saved(location.folder)
        finally:
            staging.repair(self.folder, self.root, self._warn)
            staging.remove(at.folder)
        return Outcome(
            name,
            "recorded",
            str(location.folder),
            seconds=time.monotonic() - started,
            warnings=(*_warnings(made, example), *_late(result)),
        )

    def _check_others(self) -> None:
        """Refuse where another recording was changed while the script ran."""
        if self.watch and (changed := self.watch.changed()):
            raise ScriptFailedError(
                Failure(
                    f"was executed while another recording was changed: {changed[0]}",
                    "Take it back from git, and see whether this script writes to it, or one that "
                    "was executed at the same time.",
                )
            )

    def _recording(self, run: Run, script: Script, result: Result, at: Staging) -> Recording:
        """The recording of *result*: what it is of is said here, not by the script's process."""
        return Recording(
            schema=recording.SCHEMA,
            gallery=run.gallery,
            name=run.name,
            title=script.title,
            key=script.key,
            variant=self.plan.settings.variant,
            run=recording.RunFacts(
                recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                seconds=result.seconds,
                memory=result.memory,
                peak_host_memory=result.peak_host_memory,
                status="passed" if result.passed else "failed",
                timed=self.timed,
            ),
            provenance=recording.with_origin(result.provenance, run.device, run.kind, self.commit),
            blocks=result.blocks,
            probes=result.probes,
            backreferences=result.backreferences,
            thumbnail=result.thumbnail,
            files={
                path.relative_to(at.recording).as_posix(): recording.digest(path)
                for path in sorted(at.recording.rglob("*"))
                if path.is_file()
            },
        )


def _check_tables(made: Recording, at: Staging) -> None:
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
                    raise ScriptFailedError(
                        Failure(
                            f"wrote a table that cannot be read as a benchmark: {cause}",
                            "Correct it, or call its columns something else.",
                            block=number,
                            of=len(made.blocks),
                            line=block.line,
                        )
                    ) from error


def explain(source: str, failure: Failure) -> str:
    """*failure* as a text: what, where, why, and what to do next."""
    where = f"{source}:{failure.line}" if failure.line else source
    block = f", block {failure.block} of {failure.of}" if failure.block else ""
    parts = [f"{where}{block}: {failure.cause}", failure.detail.rstrip("\n"), failure.remedy]
    return "\n".join(part for part in parts if part)


def _late(result: Result) -> tuple[str, ...]:
    """What came to standard error when the last block was over, which no page shows."""
    if not result.late_errors:
        return ()
    last = shorten(result.late_errors).splitlines()[-1]
    return (f"printed to standard error after its last block: {last}",)


def _warnings(made: Recording, example: Example) -> tuple[str, ...]:
    """What makes a recording doubtful."""
    before, after = made.provenance.before, made.provenance.after
    found = []
    if others := max((s.other_processes or 0 for s in (before, after) if s), default=0):
        found.append(f"{others} other process{'es' * (others > 1)} used the GPU at the same time")
    if after and after.throttling:
        found.append(f"the GPU's clocks were held down: {', '.join(after.throttling)}")
    if made.run.status == "failed":
        found.append(f"it failed, as conf.py allows; {record_again(example.name)}")
    return tuple(found)


def _is_of(script: Script, at: Location) -> bool:
    try:
        return at.load([block.key for block in script.code]).key == script.key
    except RecordingError:
        return False
