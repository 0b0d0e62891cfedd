"""Record examples: choose them, execute each on a free GPU or core, report the outcomes.

Whatever one example does, the others are recorded. An existing recording is unchanged until the new
one replaces it in one step.
"""

import contextlib
import os
import secrets
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import msgspec

from gallery_recorder.project import galleries, needs
from gallery_recorder.project.galleries import Example, Project
from gallery_recorder.project.needs import Gpu
from gallery_recorder.project.script import Script, ScriptError
from gallery_recorder.project.settings import Kind
from gallery_recorder.run import cluster, copies, failure, provenance, subset, workspace
from gallery_recorder.run.copies import ProjectCopy
from gallery_recorder.run.executors import Executor, LocalExecutor, Places, lease, threads_of_a_job
from gallery_recorder.run.process import Client
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.run.protocol import ExampleFailedError, Failure, Run, StoppedError
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store import atomic, format, moving, recording
from gallery_recorder.store.compare import changed_outputs
from gallery_recorder.store.format import Recording, slug
from gallery_recorder.store.inputs import Here
from gallery_recorder.store.lock import folders_locked, locked, locked_in
from gallery_recorder.store.reading import NewerError
from gallery_recorder.store.recording import Found, LaterFailure, Location, RecordingError
from gallery_recorder.store.status import PASSED


@dataclass(frozen=True)
class Options:
    """The options of ``gallery-recorder record``; see its ``--help``."""

    names: list[str] = field(default_factory=list)
    device: str = "auto"
    recordings: Path | None = None
    timeout: float | None = None
    jobs: int | None = None
    force: bool = False
    missing: bool = False
    shard: tuple[int, int] | None = None
    changed_since: str | None = None
    engine: str = "local"
    address: str | None = None


def record(
    plan: Project, options: Options, progress: Progress, server: Client | None = None
) -> tuple[list[Outcome], int | None]:
    """Record the examples of *plan* that *options* select; return their outcomes, in order.

    The second value is the signal that stopped the recorder, if any. Without a *server*, one is
    started.

    Raises:
        ScriptError: a name matches no example.
        SubsetError: the commit of ``changed_since`` does not exist.
        DeviceError: the device or the cluster cannot be used.
    """
    examples = galleries.select(plan, options.names)
    used: dict[Path, str] = {}
    if ref := options.changed_since:
        used, count = subset.changed_since(ref, plan, examples), len(examples)
        examples = [example for example in examples if example.path in used]
        progress.note(f"{len(examples)} of {count} examples changed since {ref}.")
    if options.shard:
        roots = [options.recordings] if options.recordings else plan.settings.roots
        count, seconds = len(examples), partial(_recorded_seconds, roots)
        examples = subset.share(examples, *options.shard, seconds, roots[0])
        number, of = options.shard
        progress.note(f"Share {number} of {of}: {len(examples)} of {count} examples.")
    with _EXECUTORS[options.engine](plan, options, server) as executor:
        return _Recorder(plan, options, progress, executor, used).record(examples)


@contextlib.contextmanager
def _local(plan: Project, options: Options, server: Client | None) -> Iterator[Executor]:
    threads = threads_of_a_job(options.device, options.jobs)
    with server or Client(plan.where, threads=threads) as found:
        yield LocalExecutor(options.device, options.jobs, found)


@contextlib.contextmanager
def _ray(plan: Project, options: Options, _: Client | None) -> Iterator[Executor]:
    with cluster.connected(options.address, plan):
        yield cluster.RayExecutor(options.device, options.jobs)


_EXECUTORS = {"local": _local, "ray": _ray}


def _recorded_seconds(roots: list[Path], example: Example) -> float | None:
    """The longest time of a timed recording of *example*, the same on every machine."""
    known = []
    for at in (at for root in roots for at in recording.find(root, example.gallery, example.name)):
        with contextlib.suppress(RecordingError):
            run = recording.load(at.folder).run
            known += [run.seconds] if run.timed else []
    return max(known, default=None)


def exit_status(outcomes: list[Outcome], interrupted: int | None) -> int:
    """0 if all examples are recorded or skipped, 1 if one failed, 128 + the signal if stopped."""
    if interrupted is not None:
        return 128 + interrupted
    return 1 if any(outcome.status == "failed" for outcome in outcomes) else 0


@contextlib.contextmanager
def _signals_set(stop: threading.Event) -> Iterator[list[int]]:
    """Make signals that would end the program set *stop*; the value lists those received."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        stop.set()

    with contextlib.ExitStack() as undo:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) != signal.SIG_IGN:  # as SIGHUP is under nohup
                undo.callback(signal.signal, number, signal.signal(number, handle))
        yield received


class _Recorder:
    """One call of :func:`record`; *used* has a changed file for each example that uses one."""

    def __init__(
        self,
        plan: Project,
        options: Options,
        progress: Progress,
        engine: Executor,
        used: dict[Path, str],
    ) -> None:
        self.plan = plan
        self.settings = plan.settings
        self.options = options
        self.progress = progress
        self.engine = engine
        self.places = Places(engine.places)
        # The code is as recorded, but a file that the example uses may have changed.
        self.doubtful = {path for path, file in used.items() if file != str(path)}
        self.kind: Kind = "gpu" if engine.gpu else "cpu"
        self.device = engine.gpu.name if engine.gpu else self.settings.untimed.get("cpu", "cpu")
        self.root = options.recordings or self.settings.root_for(self.kind)
        self.roots = [options.recordings] if options.recordings else self.settings.roots
        # The folder of this device and variant.
        self.folder = Path(self.root, slug(self.device), self.settings.variant or "")
        besides = {*self.settings.roots, Path(os.path.realpath(self.root))}
        given = os.environ.get("GALLERY_COMMIT")  # for a copy of the project without git
        self.commit = given or provenance.commit_of(plan.top, besides)
        self.here = Here.of(plan)
        self.threads: int | None = None
        if options.engine == "local":
            self.threads = threads_of_a_job(options.device, options.jobs)
        self.stop = threading.Event()
        self.last: dict[Path, float | None] = {}  # seconds of the recording to be replaced
        self.outcomes: dict[Path, Outcome] = {}
        self._names = Counter(example.name for example in plan.examples)
        self._copies: list[ProjectCopy] = []  # which no example uses now
        self._making_copies = threading.Lock()
        self._open = contextlib.ExitStack()  # the locks and folders of the copies

    def record(self, examples: list[Example]) -> tuple[list[Outcome], int | None]:
        """Record those of *examples* that need it."""
        with folders_locked(self.root):
            self._remove_leftovers()
        waiting = []
        for example in examples:
            decided = self._decide(example)
            if isinstance(decided, Script):
                waiting.append((example, decided))
            else:
                self._finished(example, decided)
        last = self.last
        expected = {self._name(example): last[example.path] for example, _ in waiting}
        # First those that need several GPUs, while all are free; then the longest. An example
        # without a recording may be the longest.
        waiting.sort(key=lambda item: -(last[item[0].path] or float("inf")))
        waiting.sort(key=lambda item: -needs.gpus_of(item[1]))
        together = [item for item in waiting if needs.runs_beside_others(item[1])]
        alone = [item for item in waiting if not needs.runs_beside_others(item[1])]

        def record_next(items: Iterator[tuple[Example, Script]]) -> None:
            for example, script in items:  # all threads take examples from one iterator
                with self.places.taken(self._gpus(script) or 1) as gpus:
                    self.progress.started(self._name(example))
                    self._finished(example, self._record_one(example, script, gpus))

        jobs = self.engine.jobs
        with (
            self._open,
            self.progress.of(expected, jobs),
            _signals_set(self.stop) as signals,
            ThreadPoolExecutor(jobs) as pool,
        ):
            list(pool.map(record_next, [iter(together)] * jobs))  # raises what a thread raised
            record_next(iter(alone))
        outcomes = [self.outcomes[example.path] for example in examples]
        return outcomes, signals[-1] if signals else None

    def _remove_leftovers(self) -> None:
        """Remove what killed commands left in the folder of recordings, or beside it."""
        atomic.remove_leftovers(Path(os.path.realpath(self.root)))
        if not atomic.first_link(self.root, self.folder.relative_to(self.root)):
            workspace.remove_leftovers(self.folder, self.progress.note)

    def _name(self, example: Example) -> str:
        """The name of *example* in messages, with its gallery where the name is not unique."""
        return example.name if self._names[example.name] == 1 else example.label

    def _finished(self, example: Example, outcome: Outcome) -> None:
        self.outcomes[example.path] = outcome
        self.progress.finished(outcome)

    # --- which examples ---------------------------------------------------------------------------

    def _location(self, example: Example) -> Location:
        """The location of the recording of *example*."""
        place = slug(self.device), self.settings.variant
        return Location(self.root, *place, example.gallery, example.name)

    def _decide(self, example: Example) -> Script | Outcome:
        """The script if it must be executed, or else the outcome."""
        name = self._name(example)
        try:
            script = example.load()
            needs.timeout_of(script, self.settings.limits["seconds"])
            needs.launcher_of(script, self.settings.launcher)
            unmet = needs.unmet_need(script, self.engine.gpu, self.engine.together)
        except ScriptError as error:
            return Outcome(name, "failed", str(error))
        if not script.code:
            return Outcome(name, "current", "has no code to record")
        if not format.is_shown(f"{example.path.stem}_001.png"):
            what = "its name has a space or a comma, so sphinx-gallery cannot show its figures"
            return Outcome(name, "failed", f"{example.source}: {what}. Rename the file.")
        if unmet:
            return Outcome(name, "skipped", f"needs {unmet}")
        if link := self._location(example).link_above():
            what = "is a symbolic link, behind which nothing is written; replace it by a folder"
            return Outcome(name, "failed", f"{link}: {what}")
        found = recording.of_script(script, example.expected_to_fail, self.roots, here=self.here)
        own = self._own(example, found)
        is_renamed = False
        if own is None and not self.options.force and self._has_orphans:
            is_renamed = moving.take_over(self.plan, self.roots, script, self.here)
        if is_renamed:
            found = recording.of_script(
                script, example.expected_to_fail, self.roots, here=self.here
            )
            own = self._own(example, found)
        if own and own.error and isinstance(own.error.__cause__, NewerError):
            return Outcome(name, "failed", str(own.error))
        enough = {"current", "passed"}
        if self.settings.unrecorded == "stale":
            enough.add("stale")
        if self.options.missing and any(one.state in enough for one in found):
            return Outcome(name, "current", "its page has a recording to show")
        if self._is_done(example, own):
            if own and own.state == "passed":
                return Outcome(name, "failed", PASSED)
            why = "the recording matches the code"
            if is_renamed:
                why = "took the recording of a renamed example"
            return Outcome(name, "current", why)
        self.last[example.path] = own.made.run.seconds if own and own.made else None
        return script

    @cached_property
    def _has_orphans(self) -> bool:
        """Whether there are recordings of renamed examples; looked up once for all examples."""
        return any(True for _ in moving.orphans(self.plan, self.roots))

    def _own(self, example: Example, found: list[Found]) -> Found | None:
        """The recording in *found* that a new one would replace."""
        folder = self._location(example).folder
        return next((one for one in found if one.at.folder == folder), None)

    def _is_done(self, example: Example, own: Found | None) -> bool:
        """Whether the existing recording is good enough."""
        forced = self.options.force or example.path in self.doubtful
        return bool(own and own.state in ("current", "passed") and not forced)

    def _gpus(self, script: Script) -> int:
        return needs.gpus_of(script) if self.engine.gpu else 0

    # --- one example ------------------------------------------------------------------------------

    def _record_one(self, example: Example, script: Script, gpus: Sequence[Gpu]) -> Outcome:
        """Record *example* on *gpus*; return the outcome, whatever happens."""
        name = self._name(example)

        def waiting(whom: str, does: str) -> None:
            self.progress.update(name, f"waits: {whom} {does}")

        lock = workspace.lock_path(self.folder, example.label)
        try:
            with (
                locked_in(
                    self.root, lock, self.stop, partial(waiting, does="is recording it")
                ) as mine,
                lease(gpus, self.stop, partial(waiting, does="uses the GPU")) as leased,
            ):
                if not (mine and leased) or self.stop.is_set():
                    return Outcome(name, "interrupted", "was not started")
                found = recording.of_script(
                    script, example.expected_to_fail, [self.root], here=Here.of(self.plan)
                )
                own = self._own(example, found)
                if self._is_done(example, own):
                    return Outcome(name, "current", "another recorder recorded it meanwhile")
                return self._execute(example, script, gpus, own)
        except StoppedError as error:
            return Outcome(name, "interrupted", str(error) or "was ended")
        except ExampleFailedError as error:
            why = error.failure
        except RecordingError as error:
            remedy = "Correct the file that the example writes, then record it again."
            why = Failure(f"cannot be kept as a recording: {error.__cause__ or error}", remedy)
        except OSError as error:
            remedy = "Free space on the disk or correct the permissions, then record it again."
            why = Failure(f"its recording in {self.folder} cannot be written: {error}", remedy)
        except Exception:  # a fault of the recorder must not stop the other examples
            cause = f"the recorder itself failed; please report this:\n{traceback.format_exc()}"
            why = Failure(cause, "")
        return Outcome(name, "failed", why.for_author(example.source))

    @contextlib.contextmanager
    def _project_for(self, example: Example, at: Workspace) -> Iterator[ProjectCopy | None]:
        """Give the workspace *at* of *example* a copy of the project, as the project is."""
        if not self.engine.here:
            yield None
            return
        copy = self._copies.pop() if self._copies else self._new_copy()
        copy.renew(example.path)
        at.tree = copy.tree
        try:
            yield copy
        finally:
            copy.restore()
            self._copies.append(copy)

    def _new_copy(self) -> ProjectCopy:
        """A further copy of the project, for examples that are executed at the same time."""
        name = f"project-{secrets.token_hex(4)}"
        with self._making_copies:
            lock = workspace.lock_path(self.folder, name)
            self._open.enter_context(locked(lock, self.stop, lambda _: None))
            tree = workspace.folder_of(self.folder, name)
            self._open.callback(atomic.remove, tree)
            roots = {self.root, *self.roots, *self.settings.roots}
            left_out = [Path(os.path.abspath(root)) for root in roots]
            galleries = copies.galleries_of(self.plan.examples)
            return ProjectCopy(tree, self.plan.top, galleries, left_out)

    def _execute(
        self, example: Example, script: Script, gpus: Sequence[Gpu], own: Found | None
    ) -> Outcome:
        name, location = self._name(example), self._location(example)
        limit = needs.timeout_of(script, self.settings.limits["seconds"])
        run = Run(
            example=example,
            keys=tuple(block.key for block in script.code),
            where=self.plan.where,
            top=self.plan.top,
            folder=Path.cwd(),
            settings=self.settings,
            kind=self.kind,
            device=self.device,
            timeout=self.options.timeout or limit,
            gpus=self._gpus(script),
            visible=needs.visible(gpus),
            launcher=needs.launcher_of(script, self.settings.launcher),
            threads=self.threads,
            commit=self.commit,
            inputs=self.plan.inputs,
            changing_outputs=self.plan.changing_outputs,
        )
        started = time.monotonic()
        with (
            workspace.made(self.folder, example.label) as at,
            self._project_for(example, at) as copy,
        ):
            listen = partial(self.progress.update, name)
            failed: ExampleFailedError | None = None
            try:
                made = self.engine.execute(run, at, self.stop, listen)
                if copy:
                    copy.check()
            except ExampleFailedError as error:
                failed = error
                made = failure.recording_of(run, script, at, error.failure, error.made)
            made = _dated(made)
            if made.run.status == "failed" and _is_kept(own, made, example.expected_to_fail):
                text = failed.failure.for_readers() if failed else _text_of(made)
                LaterFailure(script.key, made.run.recorded, text).save(location.folder)
                if failed:
                    raise failed
                return Outcome(name, "current", "it failed as expected; a run that passed is kept")
            warnings = [*_warnings(made, self.settings.limits["warning"], at.recording)]
            if own and own.made and not own.why and not failed:
                warnings += _unrepeated(location.folder, own.made, at.recording, made)
            recording.save(made, at.recording, location.folder)
            recording.protect_from_git(self.root, self.root)
        if failed and not example.expected_to_fail:
            raise failed
        if example.expected_to_fail and made.run.status == "passed":
            return Outcome(name, "failed", PASSED)
        seconds = time.monotonic() - started
        return Outcome(name, "recorded", str(location.folder), seconds, tuple(warnings))


def _is_kept(own: Found | None, failed: Recording, expected_to_fail: bool) -> bool:
    """Whether the recording *own* is kept when an example has *failed*.

    An expected failure replaces a recording of other code.
    """
    if own is None or own.made is None or own.made.run.status == "failed":
        return False
    return own.made.key == failed.key or not expected_to_fail


def _text_of(failed: Recording) -> str:
    """The failure of a recording, for readers."""
    block = next(block for block in failed.blocks if not block.passed)
    text = block.failure or f"This example failed:\n{block.exception or ''}"
    return text.rstrip("\n")


def _dated(made: Recording) -> Recording:
    """*made* with the date of this process: an example may have changed the clock of its own."""
    run = msgspec.structs.replace(made.run, recorded=provenance.now())
    return msgspec.structs.replace(made, run=run)


def _unrepeated(old: Path, was: Recording, new: Path, now: Recording) -> Iterator[str]:
    """A warning that outputs changed although the code did not."""
    titles = (line.strip() for line in changed_outputs(old, was, new, now) if line[:3] != "   ")
    if names := [title for title in titles if title != "provenance"]:
        listed = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
        yield f"outputs changed although the code did not: {listed}; see gallery_seed"


def _warnings(made: Recording, limit: float, folder: Path) -> Iterator[str]:
    """Warnings about a recording with its files in *folder* and at most *limit* bytes."""
    size = sum((folder / name).stat().st_size for name in made.files)
    if size > limit:
        yield f"the recording's files have {size:,} bytes; gallery_limits allows {limit:,.0f}"
    before, after = made.provenance.before, made.provenance.after
    if others := max((s.other_processes or 0 for s in (before, after) if s), default=0):
        yield f"{others} other process{'es' * (others > 1)} used the GPU at the same time"
    if after and after.throttling:
        yield f"the GPU's clocks were throttled: {', '.join(after.throttling)}"
    if made.run.status == "failed":
        yield "failed as expected (expected_failing_examples)"
