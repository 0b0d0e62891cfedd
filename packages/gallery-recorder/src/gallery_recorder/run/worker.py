"""Execute one example in this process and write its recording.

sphinx-gallery executes the blocks, with the settings of conf.py. Around each block the worker
collects what sphinx-gallery does not: output of C code and kernels, data files, results of probes.
"""

import faulthandler
import inspect
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from gallery_recorder import seam
from gallery_recorder.project import settings
from gallery_recorder.project.galleries import encode
from gallery_recorder.project.reader import load
from gallery_recorder.project.script import CodeBlock, load_script
from gallery_recorder.run import environment, gpus, protocol, provenance
from gallery_recorder.run.failure import failure_of
from gallery_recorder.run.output import Output, Tee
from gallery_recorder.run.protocol import Channel, Refusal, Run
from gallery_recorder.run.seeds import seed_all
from gallery_recorder.run.text import Paths, clean, encodable, without_colors
from gallery_recorder.run.used import Used
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.run.written import WrittenFiles, with_files
from gallery_recorder.store import figures, format
from gallery_recorder.store.format import Block, Figure, GpuState, Recording, RunFacts, Value


def main(run: Run, workspace: Workspace, channel: Channel, app: Any) -> int:
    """Execute the example in *workspace*; send events to *channel*.

    *app* is the application that has read conf.py; None if this process must read it.
    """
    stack = _Stack(workspace.stack)
    below = run.folder if run.folder.is_relative_to(run.top) else run.top
    folder = workspace.copied(below, run.top)
    os.chdir(folder if folder.is_dir() else workspace.tree / run.top.name)
    worker = Worker(run, workspace, channel, stack)
    try:
        if app is None:
            app = load(run.where, workspace.scratch)[0]
            seam.import_matplotlib()
        worker.execute(app)
    except BaseException as error:  # SystemExit, too, is a failure to report
        worker.fail(error)
    return 0 if workspace.result.exists() else 1


class _Clock:
    """Python's clock as it was before the example, which may replace the function."""

    seconds = staticmethod(time.perf_counter)


class _Stack:
    """The file *path* to which Python writes the stacks of its threads, if it crashes or hangs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(os.stat(path))
        self._descriptor = -1
        self.keep()

    def keep(self) -> None:
        """Open the file again if the example has closed it: its number may be another file now."""
        try:
            is_open = _identity(os.fstat(self._descriptor)) == self._identity
        except OSError:
            is_open = False
        if not is_open:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            faulthandler.enable(self._descriptor)
            # The recorder asks where the example hangs.
            faulthandler.register(signal.SIGUSR1, self._descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)


class Worker:
    """One example, executed block by block; its methods are the hooks of :func:`seam.execute`."""

    def __init__(self, run: Run, workspace: Workspace, channel: Channel, stack: _Stack) -> None:
        self.run = run
        self.workspace = workspace
        self._channel = channel
        self._stack = stack
        self._started = self._process = os.getpid()
        self.current: CodeBlock | None = None
        path = workspace.copied(run.example.path, run.top)
        self.script = load_script(path, run.example.source)
        self._code = {code.index: code for code in self.script.code}
        self._pages = workspace.docs / run.example.pages
        self._pages.mkdir(parents=True)
        named = {path: run.example.source, path.parent: ".", workspace.docs: "<pages>"}
        named |= {workspace.tree / run.top.name: "<project>", workspace.tmp: "<tmp>"}
        self._paths = Paths(named | {workspace.folder: "<workspace>"})
        self._filters: list[Callable[[str], str]] = []
        self._probes: dict[str, Any] = {}
        apart = run.settings.stderr == "apart"
        self.output = Output(workspace.stdout, workspace.stderr, run.limit("output"), apart)
        self._printed: list[bytes] = [b"", b""]  # by the last block
        self._error: BaseException | None = None  # raised by a block
        self._conf: dict[str, Any] = {}
        self._outputs = WrittenFiles(workspace.docs, self._pages, path, run)
        self._used = Used(run, workspace, self.script)
        self.output.after_code = self._used.pause
        self._blocks: list[Block] = []
        self._throttling: set[str] = set()
        self._deferred: tuple[Figure, ...] = ()  # shown by comments before the first code block
        self._figures = ""  # of the last block, as scrapers returned them
        self._value: Value = {}

    def execute(self, app: Any) -> None:
        """Execute all blocks; the recording is then in the workspace."""
        conf = self._conf = app.config.sphinx_gallery_conf
        conf.update(
            src_dir=str(self.workspace.docs),
            builder_name="html",
            plot_gallery=True,
            filename_pattern="",
            parallel=False,
            abort_on_example_error=False,
        )
        self._filters = [*settings.objects(app.config.gallery_filters, "gallery_filters").values()]
        self._probes = settings.objects(app.config.gallery_probes, "gallery_probes")
        self._variant = settings.read(app.config, self.run.where.conf or Path.cwd()).variant
        self.output.take(limited=False)  # printed by conf.py, not by a block
        self._variables = environment.kept(os.environ, self.run.settings.variables)
        self._before, self._wrapper = self._gpu_state(), seam.wrapper("execute_script")
        seam.execute(self.script.path, self._pages, conf, self, Tee)

    def begin(self) -> None:
        """The example starts in this process, which a wrapper of conf.py may have forked."""
        self._process = os.getpid()
        self._begun = _Clock.seconds()
        apart = self._process != self._started
        if (seed := self.run.settings.seed) is not None:
            seed_all(seed)
        self.tell(protocol.Begun(self._process, seam.wrapper("generate_file_rst") if apart else ""))

    def end(
        self, seconds: float, script_vars: dict[str, Any], file_settings: dict[str, Any]
    ) -> None:
        """Write the result, and tell the recorder."""
        if self._error is None:
            self.current = None
        made = self._recording(script_vars, file_settings)
        self.workspace.result.write_bytes(encode(made))
        if self._error is None or self.run.example.expected_to_fail:
            self.tell(protocol.Done())
        else:
            self.tell(self._failure(self._error, self._printed))

    def fail(self, error: BaseException) -> None:
        """Tell the recorder that *error* ended the execution."""
        if not self.workspace.result.exists():  # after the result, an error does not matter
            self.tell(self._failure(error, self.output.take(limited=False)))

    def _failure(self, error: BaseException, printed: list[bytes]) -> protocol.Failure:
        return failure_of(error, self.script, self.current, printed, self.shown)

    def raised(self, error: BaseException) -> None:
        """The current block raised *error*."""
        self._error = error

    def _recording(self, script_vars: dict[str, Any], file_settings: dict[str, Any]) -> Recording:
        """The recording, after the last block."""
        # Not sphinx-gallery's own time, whose clock the example may have replaced.
        seconds = _Clock.seconds() - self._begun
        conf = self._conf
        thumbnail = self._chosen_thumbnail(file_settings)
        written, folder = self._outputs.written(), self.workspace.recording
        blocks, digests = with_files(self._blocks, written, folder, thumbnail)
        if after := self._gpu_state():
            after = replace(after, throttling=tuple(sorted(self._throttling)))
        base = seam.memory_base(conf)
        # A default role that links objects makes links of those in the prose, too.
        objects = seam.code_objects(self.script.path, conf, script_vars["example_globals"])
        variables = {name: self.shown(value) for name, value in self._variables.items()}
        where = provenance.of_run(
            self.run,
            environment=variables,
            gpu=gpus.facts() if self.run.kind == "gpu" else None,
            before=self._before,
            after=after,
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts bytes
        run = RunFacts(
            recorded=provenance.now(),
            seconds=round(seconds, 3),
            memory=None if base is None else round(base + script_vars["memory_delta"], 3),
            peak_host_memory=peak * 1024 if sys.platform == "linux" else peak,
            status="failed" if "formatted_exception" in script_vars else "passed",
            timed=self.run.kind not in self.run.settings.untimed,
        )
        return provenance.recording_of(
            self.run,
            self.script,
            variant=self._variant,
            run=run,
            provenance=where,
            blocks=blocks,
            probes=self._ask("provenance"),
            backreferences={n: meant for n, meant in objects.items() if format.is_code(n, meant)},
            thumbnail=thumbnail,
            files=digests,
            inputs=self._used.inputs(variables),
        )

    def _gpu_state(self) -> GpuState | None:
        state = gpus.state() if self.run.kind == "gpu" else None
        self._throttling.update(state.throttling if state else ())
        return state

    def tell(self, event: protocol.Event) -> None:
        """Send *event* to the recorder."""
        self._end_copies()
        self._channel.send(event)

    def _end_copies(self) -> None:
        """End this process if the example forked it and it has left its block."""
        if os.getpid() != self._process:
            os._exit(0)

    # --- one block --------------------------------------------------------------------------------

    def block(self, index: int, script_vars: dict[str, Any], one: Callable[[], str]) -> str:
        """Execute block *index*, text or code; return its reStructuredText."""
        code = self._code.get(index)
        if os.getpid() != self._process:
            self._refuse_wrapper()
        if not script_vars["execute_script"] or self.script.blocks[index].type == "text":
            if code:  # after a failure
                self._blocks.append(Block(code.line, code.key, 0.0, encodable(code.block.content)))
            return one()
        number = len(self._blocks) + 1 if code else len(self._blocks)
        if code:
            self.current = code
            self.tell(protocol.BlockStarted(number, len(self._code), code.line))
        self._value, self._figures = {}, ""
        self.output.begin()
        self._ask("before_block", code.block.content if code else "")
        self._stack.keep()
        started = _Clock.seconds()
        with self._used.listening():
            rst = one()
        self._end_copies()
        found = self._ask("after_block")
        seconds = _Clock.seconds() - started
        stdout, stderr = self._printed = self.output.take()
        self._gpu_state()
        self._outputs.look(max(number, 1))
        if code is None:
            self._keep_deferred()
            self._keep_finished()
            return rst
        error, memory = script_vars.get("formatted_exception"), script_vars["memory_delta"]
        if error is not None and isinstance(self._error, ModuleNotFoundError):
            error = f"ModuleNotFoundError: {self._error}"  # no frame says more
        errors, printed = self.shown(clean(stderr)), self.shown(clean(stdout))
        shown = self.shown(without_colors(self.output.shown()).expandtabs())
        is_apart = self.run.settings.stderr == "apart"
        drawn = (*self._deferred, *self._drawn())
        self._deferred = ()
        self._blocks.append(
            Block(
                line=code.line,
                key=code.key,
                seconds=round(seconds, 3),
                code=encodable(code.block.content),
                memory=round(memory[-1], 3) if isinstance(memory, list) and memory[-1] else None,
                passed=error is None,
                exception=None if error is None else self.shown(error),
                stdout=printed,
                stderr=errors,
                shown=None if is_apart or (shown == printed and not errors) else shown,
                value=self._value,
                figures=drawn,
                probes=found,
            )
        )
        self._keep_finished()
        return rst

    def _keep_finished(self) -> None:
        """Save the last block, in case the process does not reach the end."""
        if self._blocks:
            written, (stdout, stderr) = self._outputs.written(), self.output.taken
            made = protocol.Finished(len(self._blocks), self._blocks[-1], written, (stdout, stderr))
            with open(self.workspace.finished, "ab") as file:
                file.write(encode(made) + b"\n")

    def _refuse_wrapper(self) -> NoReturn:
        """Fail in a process that a wrapper of conf.py forked after execution began."""
        self._process = os.getpid()
        whose = f"{self._wrapper}, with which conf.py wraps execute_script"
        cause = f"is executed in a process forked by {whose}"
        remedy = "Have conf.py wrap generate_file_rst, or nothing where gallery_recorder records."
        self.fail(Refusal(cause, remedy))
        os._exit(1)

    def _keep_deferred(self) -> None:
        """Add the figures of a block of comments to the previous code block, or the next one."""
        if self._blocks:
            last = self._blocks[-1]
            self._blocks[-1] = replace(last, figures=(*last.figures, *self._drawn(below=True)))
        else:
            self._deferred += self._drawn()

    def drawn(self, rst: str) -> None:
        """Keep the markup that scrapers returned for a block."""
        self._figures = rst

    def _drawn(self, below: bool = False) -> tuple[Figure, ...]:
        """The figures of the block, without paths of this machine or of the page's folder.

        Refusal if a scraper returned something that a recording cannot hold.
        """
        if not self._figures.strip():
            return ()
        rst, pages = self._figures, self.run.example.pages
        rst = rst.replace(f"/{pages}/", f"/{format.GALLERY_FOLDER}/") if pages else rst
        files = {self._outputs.name_of(path) for path in self._outputs.owner}
        try:
            return figures.figures_of(self.shown(rst), files, below)
        except figures.NotKeptError as error:
            raise Refusal(
                f"has output of an image scraper that a recording cannot hold: {error}",
                "Let the scraper return the markup of images, figures and videos that it wrote, or "
                "`.. raw:: html`.",
            ) from error

    def value(self, text: str, method: str) -> str:
        """Keep the value of a block's last expression; return it as the page shows it."""
        is_html = method == "_repr_html_"
        text = text if is_html else clean(text).rstrip("\n")
        if len(text) > (limit := self.run.limit("output")):
            raise Refusal(
                f"shows a value of {len(text):,} characters; the limit is {limit:,}",
                "Show less, or raise gallery_limits in conf.py.",
            )
        self._value = {"text/html" if is_html else "text/plain": self.shown(text)}
        return text

    def _ask(self, hook: str, *code: str) -> dict[str, Any]:
        """The results of the probes' method *hook*, by probe, called in the example's folder.

        A method with a parameter gets the code of the block.
        """
        found = {}
        for name, probe in self._probes.items():
            before = os.getcwd()
            os.chdir(self.script.path.parent)
            try:
                method = getattr(probe, hook, lambda: None)
                answer = method(*code[: len(inspect.signature(method).parameters)])
            finally:
                os.chdir(before)
            if answer is not None:
                found[name] = msgspec.json.decode(msgspec.json.encode(answer), type=dict)
        return found

    # --- what is kept -----------------------------------------------------------------------------

    def shown(self, text: str) -> str:
        """*text* without paths of this run, after the filters of conf.py."""
        text = self._paths.name(encodable(text))
        for text_filter in self._filters:
            text = text_filter(text)
        return text

    def _chosen_thumbnail(self, file_settings: dict[str, Any]) -> str | None:
        """The image that a scraper chose as thumbnail, if any."""
        chosen = str(file_settings.get("thumbnail_path"))
        path = Path(os.path.normpath(self.workspace.docs / chosen))
        return self._outputs.name_of(path) if path in self._outputs.owner else None
