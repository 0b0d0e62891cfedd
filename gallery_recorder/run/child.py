"""Execute one tutorial in this process and write down what it did.

``python -m gallery_recorder.run.child STAGING`` is started by the runner, afresh for each tutorial.
The blocks are executed by sphinx-gallery's own executor and the figures drawn by its own scraper,
so a recording holds what sphinx-gallery would have shown. Around each block this module collects
what sphinx-gallery does not: output of C code and of kernels, data files, time and memory.
"""

from __future__ import annotations

import codeop
import contextlib
import copy
import ctypes
import faulthandler
import importlib.util
import io
import logging
import os
import re
import signal
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from sphinx_gallery import gen_rst
from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
from sphinx_gallery.scrapers import ImagePathIterator

from gallery_recorder.run import provenance
from gallery_recorder.run.figures import THUMBNAIL, FigureScraper
from gallery_recorder.run.guard import Guard, caches
from gallery_recorder.run.job import (
    MAX_FILE,
    MAX_FILES,
    MAX_OUTPUT,
    BlockStarted,
    Done,
    Event,
    Failure,
    Job,
    Staging,
)
from gallery_recorder.run.text import Paths, clean, machine_paths
from gallery_recorder.source.script import CodeBlock, Script, load_script
from gallery_recorder.store.convert import Figure, output_rst
from gallery_recorder.store.recording import (
    FILE_NAME,
    SCHEMA,
    SOFTWARE,
    Block,
    GpuState,
    Recording,
    RunFacts,
    Value,
    digest,
)

_MAX_DETAIL = 20_000  # characters of a traceback that a report shows; the end says the most
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_OUR_NAMES = re.compile(rf"{re.escape(FILE_NAME)}|{re.escape(THUMBNAIL)}|figure-\d+\.(svg|png)")


class Refusal(BaseException):
    """The tutorial did something that no recording can hold.

    Not an ``Exception``, so that a tutorial that catches those does not hide it.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy


def main() -> int:
    """Execute the tutorial in the staging folder that the command line names."""
    staging = Staging(Path(sys.argv[1]))
    job = msgspec.json.decode(staging.job.read_bytes(), type=Job)
    _die_with(job.runner)
    os.set_inheritable(job.events, False)
    stack = os.fdopen(os.open(staging.stack, os.O_WRONLY | os.O_CREAT), "w")
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack)  # the runner asks where it hangs
    (copied,) = staging.work.glob("*.py")
    execution = Execution(job, staging, load_script(copied, staging.work))
    try:
        recording = execution.run()
        staging.result.write_bytes(msgspec.json.encode(recording))
    except BaseException as error:  # whatever it was, the runner shall know
        execution.tell(execution.failure(error))
        return 1
    execution.tell(Done())
    return 0


def _die_with(runner: int) -> None:
    """Let the kernel end this process when the one that started it is gone, however it went."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != runner:
        os._exit(1)  # it was gone before we asked
    with contextlib.suppress(OSError):  # where memory runs out, this process goes and not another
        Path("/proc/self/oom_score_adj").write_text("1000")


class Execution:
    """One tutorial, executed block by block."""

    def __init__(self, job: Job, staging: Staging, script: Script) -> None:
        self.job = job
        self.staging = staging
        self.script = script
        self.current: CodeBlock | None = None
        self.refusals: list[Refusal] = []
        self.paths = Paths(
            machine_paths()
            | {
                script.path: job.source,
                staging.work: ".",
                staging.tmp: "<tmp>",
                staging.folder: "<staging>",
                Path(__file__).parents[2]: "<project>",
            }
        )
        self.output = _Output(staging)
        self.guard = Guard([staging.work, *caches()], self._refuse_writing)
        self.scraper = FigureScraper(staging.recording, staging.tmp)
        self.memory = _GpuMemory()
        self.files = _DataFiles(staging.work, script.path)
        self.throttling: set[str] = set()
        self.figures: list[Figure] = []
        self._process = os.getpid()

    def run(self) -> Recording:
        """Execute all blocks and return what they did."""
        on_gpu = self.job.device == "cuda"
        before = provenance.gpu_state() if on_gpu else None
        variables = provenance.variables()
        execute = self._prepare()
        blocks = [self._record(n, code, execute) for n, code in enumerate(self.script.code, 1)]
        self.current = None
        after = self._state_after() if on_gpu else None
        data = self.files.copy_to(self.staging.recording)
        number = self.script.settings.get("thumbnail_number", 1)
        thumbnail = self.scraper.make_thumbnail(number if isinstance(number, int) else 1)
        machine, software = provenance.describe(self.job.device_name, self.job.commit)
        if on_gpu:
            software["peak_gpu_memory"] = self.memory.peak
        names = self._move_images(thumbnail)
        return Recording(
            schema=SCHEMA,
            gallery=self.job.gallery,
            name=self.job.tutorial,
            title=self.script.title,
            key=self.script.key,
            run=RunFacts(
                recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                seconds=round(sum(block.seconds for block in blocks), 3),
                peak_host_memory=_peak_host_memory(),
                timed=on_gpu,
            ),
            provenance=msgspec.structs.replace(
                machine,
                environment={name: self.paths.name(v) for name, v in variables.items()},
                before=before,
                after=after,
            ),
            blocks=tuple(
                self._finished(block, names, data.get(number, []))
                for number, block in enumerate(blocks, 1)
            ),
            probes={SOFTWARE: software},
            thumbnail=names.get(thumbnail or ""),
            files={
                path.relative_to(self.staging.recording).as_posix(): digest(path)
                for path in sorted(self.staging.recording.rglob("*"))
                if path.is_file()
            },
        )

    def _move_images(self, thumbnail: str | None) -> dict[str, str]:
        """Give the figures the names that sphinx-gallery gives images."""
        stem = self.script.path.stem
        names = {}
        for number, figure in enumerate(self.figures, 1):
            suffix = Path(figure.file).suffix
            names[figure.file] = f"images/sphx_glr_{stem}_{number:03}{suffix}"
        if thumbnail:
            names[thumbnail] = f"images/sphx_glr_{stem}_thumbnail.png"
        for old, new in names.items():
            (self.staging.recording / "images").mkdir(exist_ok=True)
            (self.staging.recording / old).rename(self.staging.recording / new)
        return names

    def _finished(self, block: Block, names: dict[str, str], data: list[str]) -> Block:
        figures = [
            msgspec.structs.replace(figure, file=names[figure.file])
            for figure in self.figures
            if figure.file in block.images
        ]
        sizes = {name: (self.staging.recording / name).stat().st_size for name in data}
        return msgspec.structs.replace(
            block,
            data=tuple(data),
            images=tuple(figure.file for figure in figures),
            rst=output_rst(
                figures, block.stdout, block.stderr, block.value, sizes, self.script.path.stem
            ),
        )

    def tell(self, event: Event) -> None:
        """Send *event* to the runner; without a runner there is nothing to go on for."""
        self._end_copies()
        os.write(self.job.events, msgspec.json.encode(event) + b"\n")

    def _end_copies(self) -> None:
        """End a copy of this process that the tutorial forked and that left its block."""
        if os.getpid() != self._process:
            os._exit(0)

    def _prepare(self) -> Any:
        """Set up what sphinx-gallery's ``execute_script`` does around the blocks.

        Returns a function that executes one block and returns what its last expression shows.
        """
        logging.getLogger("sphinx").addHandler(logging.NullHandler())  # we tell failures ourselves
        warnings.filterwarnings("ignore", message=".*non-interactive, and thus cannot be shown")
        sys.stdin = _NoInput()
        sys.argv = [str(self.script.path)]
        main_module = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("__main__", None)
        )
        main_module.__doc__ = ""
        conf = copy.deepcopy(DEFAULT_GALLERY_CONF) | {
            "src_dir": str(self.staging.work),
            "image_scrapers": (self._draw,),
            "matplotlib_animations": (False, None),
            "abort_on_example_error": True,
        }
        script_vars = {
            "execute_script": True,
            "src_file": str(self.script.path),
            "image_path_iterator": ImagePathIterator(self.staging.recording / "figure-{0:02d}.png"),
            "fake_main": main_module,
            "example_globals": main_module.__dict__,
            "memory_delta": [],
        }
        reprs: list[Value] = []
        find_repr = gen_rst._get_last_repr

        def find_and_keep_repr(methods: tuple[str, ...], value: Any) -> tuple[Any, Any]:
            text, method = find_repr(methods, value)
            if text and method:
                if len(text) > MAX_OUTPUT:
                    raise _too_much("its page, as the value of its last expression,")
                kind = "html" if method == "_repr_html_" else "text"
                reprs.append(Value(kind, self.paths.name(clean(text).removesuffix("\n"))))
            return text, method

        gen_rst._get_last_repr = find_and_keep_repr
        compiler = codeop.Compile()
        self.guard.switch_on()

        def execute(code: CodeBlock) -> Value | None:
            reprs.clear()
            gen_rst.execute_code_block(
                compiler,
                code.block,
                main_module.__dict__,
                script_vars,
                conf,
                self.script.settings,
            )
            return reprs[-1] if reprs else None

        return execute

    def _record(self, number: int, code: CodeBlock, execute: Any) -> Block:
        self.current = code
        self.tell(BlockStarted(number, len(self.script.code), code.line))
        self.scraper.new.clear()
        drawing = self.scraper.seconds
        started = time.perf_counter()
        with self._watched():
            value = execute(code)
            self._end_copies()
            self.memory.synchronize()
        seconds = time.perf_counter() - started - (self.scraper.seconds - drawing)
        stdout, stderr = self.output.take()
        if self.refusals:
            raise self.refusals[0]  # the tutorial, or a thread of it, hid it
        self.memory.look()
        if self.job.device == "cuda":
            self._look_at_gpu()
        self.figures += self.scraper.new
        for figure in self.scraper.new:
            _check_size(self.staging.recording / figure.file, f"figure {figure.file}")
        self.files.look(number)
        if self.scraper.count + len(self.files.owner) > MAX_FILES:
            raise Refusal(
                f"made more than {MAX_FILES} figures and data files",
                "Draw several plots as one figure, or write several tables to one file.",
            )
        return Block(
            line=code.line,
            key=code.key,
            seconds=round(seconds, 3),
            stdout=self.paths.name(clean(stdout)),
            stderr=self.paths.name(clean(stderr)),
            value=value,
            images=tuple(figure.file for figure in self.scraper.new),
        )

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """While a block runs: its output is collected, its writing watched."""
        with self.output.collected():
            self.guard.active = True
            try:
                yield
            finally:
                self.guard.active = False

    def _draw(self, *arguments: Any) -> str:
        """Draw the block's figures; that is not the tutorial that writes."""
        self.guard.active = False
        try:
            return self.scraper.draw(*arguments)
        finally:
            self.guard.active = True

    def _refuse_writing(self, path: str) -> None:
        self.refusals.append(
            Refusal(
                f"would have written to {self.paths.name(path)}, outside its working directory",
                "Write to a plain file name, such as `results.csv`; it becomes a download. For "
                "files that nobody needs, use the module `tempfile`.",
            )
        )
        raise self.refusals[-1]

    def _look_at_gpu(self) -> None:
        if state := provenance.gpu_state():
            self.throttling.update(state.throttling)

    def _state_after(self) -> GpuState | None:
        state = provenance.gpu_state(own_processes=1 if self.memory.used else 0)
        if state is None:
            return None
        return msgspec.structs.replace(state, throttling=tuple(sorted(self.throttling)))

    # --- what went wrong ------------------------------------------------------------------------

    def failure(self, error: BaseException) -> Failure:
        """What *error* means, where it was, and what to do."""
        line = self.current.line if self.current else None
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(self.script.path):
                line = frame.lineno
        detail = ""
        if isinstance(error, Refusal):
            cause, remedy = error.cause, error.remedy
        elif isinstance(error, SystemExit):
            cause = f"ended itself with sys.exit({error.code!r})"
            remedy = (
                "A tutorial runs to its last block. Raise an exception where something is wrong, "
                "and leave sys.exit out."
            )
        elif self.current is None and isinstance(error, OSError):
            cause = f"was executed, but could not be written: {error.strerror}"
            remedy = "Make room on the disk, or set the permissions, then record it again."
        else:
            cause = f"raised {type(error).__name__}"
            remedy = _remedy(error)
            detail = self._traceback(error)
            with contextlib.suppress(OSError):
                stdout, stderr = self.output.take(limited=False)
                printed = clean(stderr).strip() or clean(stdout).strip()
                if printed:
                    last = printed.splitlines()[-15:]
                    detail += "Printed before:\n" + "".join(f"  {text}\n" for text in last)
        codes = list(self.script.code)
        return Failure(
            cause=cause,
            remedy=remedy,
            detail=self.paths.name(clean(detail[-_MAX_DETAIL:])),
            block=codes.index(self.current) + 1 if self.current else None,
            of=len(codes),
            line=line,
        )

    def _traceback(self, error: BaseException) -> str:
        """The traceback of *error*, without the frames of sphinx-gallery and of this module."""
        ours = {gen_rst.__file__, __file__}
        formatted = traceback.TracebackException.from_exception(error)
        part: traceback.TracebackException | None = formatted
        while part is not None:
            part.stack = traceback.StackSummary.from_list(
                [frame for frame in part.stack if frame.filename not in ours]
            )
            part = part.__cause__ or part.__context__
        return "".join(formatted.format())


def _remedy(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, MemoryError):
        return "Use smaller sizes, or a machine with more memory."
    if type(error).__name__ in ("OutOfMemoryError", "OutOfResources") and "out of" in text:
        return (
            "Use smaller sizes, or say what the tutorial needs, so that it is skipped on smaller "
            'GPUs: # sphinx_gallery_needs = "memory>=80GB"'
        )
    if "CUDA error" in text or "HIP error" in text or "device-side assert" in text:
        return (
            "A kernel started in this block, not always at this line, failed. Find it with "
            "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer."
        )
    return "Correct the tutorial, then record it again."


def _check_size(path: Path, what: str) -> None:
    size = path.stat().st_size
    if size > MAX_FILE:
        raise Refusal(
            f"made a {what} of {size:,} bytes; the limit is {MAX_FILE:,}",
            "Keep what the page shows, not all that was measured.",
        )


def _peak_host_memory() -> int | None:
    """The most memory that this process held; ``ru_maxrss`` would count the parent's as well."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match.group(1)) * 1024 if match else None


class _NoInput(io.TextIOBase):
    """Standard input of a tutorial: nobody is there to type, so reading it is refused."""

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def _refuse(self, *_: Any) -> Any:
        raise Refusal(
            "reads from standard input, where nobody types",
            "Give the value in the tutorial itself.",
        )

    read = readline = readlines = __next__ = _refuse


class _Stream(io.TextIOWrapper):
    """Standard output or error of a block: the real one, up to a limit."""

    def __init__(self, descriptor: int, stream: str) -> None:
        raw = os.fdopen(os.dup(descriptor), "wb")
        super().__init__(
            raw, encoding="utf-8", errors="backslashreplace", newline="", line_buffering=True
        )
        self._stream = stream
        self.written = 0

    def write(self, text: str) -> int:
        self.written += len(text)
        if self.written > MAX_OUTPUT:
            raise _too_much(self._stream)
        return super().write(text)


def _too_much(stream: str) -> Refusal:
    return Refusal(
        f"printed more than {MAX_OUTPUT:,} bytes to {stream} in one block",
        "Print what a reader reads; write more to a file.",
    )


class _Tee(gen_rst._LoggingTee):
    """What sphinx-gallery's executor puts in the place of ``sys.stdout`` and ``sys.stderr``.

    Its own one joins the two in memory. This one writes each to its file, where the output of C
    code and of child processes lands as well, in the order in which it was printed.
    """

    def __init__(self, stdout: _Stream, stderr: _Stream) -> None:
        self.output = io.StringIO()  # sphinx-gallery reads it; it stays empty
        self._stdout = stdout
        self._stderr = stderr
        self.origs = (sys.stdout, sys.stderr)

    def set_std_and_reset_position(self) -> _Tee:
        sys.stdout, sys.stderr = self, self._stderr
        return self

    def restore_std(self) -> None:
        self.flush()
        sys.stdout, sys.stderr = self.origs

    def write(self, text: str) -> int:
        return self._stdout.write(text)

    def flush(self) -> None:
        self._stdout.flush()
        self._stderr.flush()

    def fileno(self) -> int:
        return 1

    def isatty(self) -> bool:
        return False

    @property
    def buffer(self) -> Any:
        return self._stdout.buffer

    @property
    def errors(self) -> str | None:
        return self._stdout.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


class _Output:
    """What reaches the descriptors 1 and 2, block by block."""

    def __init__(self, staging: Staging) -> None:
        self._files = {"standard output": staging.stdout, "standard error": staging.stderr}
        self._streams = [_Stream(1, "standard output"), _Stream(2, "standard error")]
        self._taken = {name: path.stat().st_size for name, path in self._files.items()}
        self._tee = _Tee(*self._streams)
        self._libc = ctypes.CDLL(None)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        for stream in self._streams:
            stream.written = 0
        self._tee.set_std_and_reset_position()
        try:
            yield
        finally:
            self._tee.restore_std()

    def take(self, limited: bool = True) -> list[bytes]:
        """What was printed since the last time, standard output first."""
        for stream in (*self._streams, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(ValueError):  # the tutorial closed it
                stream.flush()
        self._libc.fflush(None)
        found = []
        for name, path in self._files.items():
            with open(path, "rb") as file:
                file.seek(self._taken[name])
                text = file.read(MAX_OUTPUT + 1)
            if limited and len(text) > MAX_OUTPUT:
                raise _too_much(name)
            self._taken[name] += len(text)
            found.append(text)
        return found


class _DataFiles:
    """The files in the working directory, and the block that wrote each of them last."""

    def __init__(self, folder: Path, script: Path) -> None:
        self._folder = folder
        self._script = script
        self._seen = self._scan()
        self.owner: dict[str, int] = {}

    def _scan(self) -> dict[str, tuple[int, int, int]]:
        states = {p.name: p.lstat() for p in self._folder.iterdir()}
        return {name: (s.st_ino, s.st_size, s.st_mtime_ns) for name, s in states.items()}

    def look(self, block: int) -> None:
        """Note what is new or changed since the last look as *block*'s, if it can be kept."""
        found = self._scan()
        changed = [name for name, state in found.items() if self._seen.get(name) != state]
        if self._seen[self._script.name] != found.get(self._script.name):
            raise Refusal(
                f"changed its own file, {self._script.name}", "Write to a file of another name."
            )
        for name in changed:
            path = self._folder / name
            mode = path.lstat().st_mode
            kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link"}
            if not stat.S_ISREG(mode):
                raise Refusal(
                    f"made {kinds.get(stat.S_IFMT(mode), 'a special file')}, {name}, in its "
                    "working directory",
                    "Write plain files there; use the module `tempfile` for anything else.",
                )
            if not _PLAIN_NAME.fullmatch(name) or _OUR_NAMES.fullmatch(name):
                raise Refusal(
                    f"wrote a file called {name!r}",
                    "Use letters, digits, '.', '_' and '-', and begin with a letter or a digit; "
                    f"{FILE_NAME}, {THUMBNAIL} and figure-NN belong to the recording.",
                )
            _check_size(path, f"data file {name}")
            self.owner[name] = block
        self.owner = {name: number for name, number in self.owner.items() if name in found}
        self._seen = found

    def copy_to(self, folder: Path) -> dict[int, list[str]]:
        """Copy the files to *folder* and return their names by block."""
        by_block: dict[int, list[str]] = {}
        for name, block in sorted(self.owner.items()):
            (folder / name).write_bytes((self._folder / name).read_bytes())
            by_block.setdefault(block, []).append(name)
        return by_block


class _GpuMemory:
    """The most memory that torch has held on the GPU, also where a tutorial resets that count."""

    def __init__(self) -> None:
        self.peak = 0
        self.used = False
        self._following = False

    def synchronize(self) -> None:
        """Wait for the GPU, so that what fails there fails in the block that started it."""
        if cuda := self._cuda():
            cuda.synchronize()

    def look(self) -> None:
        """Note the peak so far."""
        if cuda := self._cuda():
            self.used = True
            self.peak = max(self.peak, cuda.max_memory_reserved())
            self._follow_resets()

    def _cuda(self) -> Any:
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        return cuda if cuda is not None and cuda.is_initialized() else None

    def _follow_resets(self) -> None:
        """Look before each reset of the count, from now on."""
        if self._following:
            return
        self._following = True
        for name in ("cuda", "cuda.memory", "accelerator", "accelerator.memory"):
            module = sys.modules.get(f"torch.{name}")
            reset = getattr(module, "reset_peak_memory_stats", None)
            if reset is not None:

                def looked(*arguments: Any, _reset: Any = reset, **named: Any) -> Any:
                    self.look()
                    return _reset(*arguments, **named)

                module.reset_peak_memory_stats = looked


if __name__ == "__main__":
    sys.exit(main())
