"""Execute one example in this process and write down what it did.

sphinx-gallery executes the blocks as conf.py says. Around each block the worker collects what
sphinx-gallery does not: output of C code and of kernels, data files, and the findings of probes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import platform
import resource
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from gallery_recorder import seam
from gallery_recorder.project import settings
from gallery_recorder.project.galleries import decode, encode
from gallery_recorder.project.reader import read_app
from gallery_recorder.project.script import CodeBlock, load_script
from gallery_recorder.run import environment, gpus, provenance
from gallery_recorder.run.failure import failure_of
from gallery_recorder.run.output import Output, Tee, stderr_rst
from gallery_recorder.run.outputs import Outputs, data_rst
from gallery_recorder.run.protocol import BlockStarted, Done, Event, Refusal, Run
from gallery_recorder.run.text import Paths, clean, encodable
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store import format
from gallery_recorder.store.format import Block, GpuState, Provenance, Recording, RunFacts, Value


def main(folder: Path, tmp: Path, events: int) -> int:
    """Execute the example in the workspace *folder*; send events to the descriptor *events*."""
    workspace = Workspace(folder, tmp)
    os.set_inheritable(events, False)
    stack = open(workspace.stack, "w")  # noqa: SIM115 - as long as the process
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack)  # the recorder asks where the example hangs
    worker = Worker(decode(workspace.order.read_bytes(), Run), workspace, events)
    try:
        workspace.result.write_bytes(encode(worker.execute()))
    except BaseException as error:  # SystemExit, too, is a failure to report
        printed = worker.output.take(limited=False)
        where = worker.script, worker.current
        worker.tell(failure_of(error, *where, printed, worker.shown))
        return 1
    worker.tell(Done())
    return 0


class Worker:
    """One example, executed block by block."""

    def __init__(self, run: Run, workspace: Workspace, events: int) -> None:
        self.run = run
        self.workspace = workspace
        self._events = events
        self._process = os.getpid()
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
        self._outputs = Outputs(workspace.docs, self._pages, path, run)
        self._blocks: list[Block] = []
        self._throttling: set[str] = set()
        self._deferred = ""  # figures that a block of comments showed before any code
        self._value: Value | None = None
        self._drawing = 0.0

    def execute(self) -> Recording:
        """Execute all blocks and return what they did."""
        app = read_app(self.run.where, self.workspace.scratch, io.StringIO())
        conf = app.config.sphinx_gallery_conf
        conf.update(
            src_dir=str(self.workspace.docs),
            builder_name="html",
            plot_gallery=True,
            filename_pattern="",
            parallel=False,
            abort_on_example_error=not self.run.example.may_fail,
        )
        self._filters = [*settings.objects(app.config.gallery_filters, "gallery_filters").values()]
        self._probes = settings.objects(app.config.gallery_probes, "gallery_probes")
        variant = settings.read(app.config, self.run.where.conf or Path.cwd()).variant
        self.output.take(limited=False)  # what conf.py printed belongs to no block
        variables = environment.kept(os.environ, self.run.settings.variables)
        before = self._gpu_state()
        script, pages = self.script.path, self._pages
        hooks = (self._block, self._figures, Tee, self._keep_value)
        _, seconds, script_vars, file_settings = seam.execute(script, pages, conf, *hooks)
        self.current = None
        thumbnail = self._chosen_thumbnail(file_settings)
        if after := self._gpu_state():
            after = replace(after, throttling=tuple(sorted(self._throttling)))
        base = seam.memory_base(conf)
        # If a role that links objects is the default one, they are all links in the prose, too.
        objects = seam.code_objects(script, conf, script_vars["example_globals"])
        where = Provenance(
            device=self.run.device,
            kind=self.run.kind,
            os=provenance.operating_system(),
            python=platform.python_version(),
            versions=provenance.versions(),
            environment={name: self.shown(value) for name, value in variables.items()},
            gpu=gpus.facts() if self.run.kind == "gpu" else None,
            before=before,
            after=after,
        )
        run = RunFacts(
            recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            seconds=round(seconds, 3),
            memory=None if base is None else round(base + script_vars["memory_delta"], 3),
            peak_host_memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            status="failed" if "formatted_exception" in script_vars else "passed",
            timed=self.run.kind not in self.run.settings.untimed,
        )
        return Recording(
            schema=format.SCHEMA,
            gallery=self.run.example.gallery,
            name=self.run.example.name,
            title=self.script.title,
            key=self.script.key,
            variant=variant,
            run=run,
            provenance=where,
            blocks=self._with_files(thumbnail),
            probes=self._ask("provenance"),
            backreferences={n: meant for n, meant in objects.items() if format.is_code(n, meant)},
            thumbnail=thumbnail,
            files=dict(sorted(self._outputs.digests.items())),
        )

    def _gpu_state(self) -> GpuState | None:
        state = gpus.state() if self.run.kind == "gpu" else None
        self._throttling.update(state.throttling if state else ())
        return state

    def tell(self, event: Event) -> None:
        """Send *event* to the recorder."""
        self._end_copies()
        os.write(self._events, encode(event) + b"\n")

    def _end_copies(self) -> None:
        """End a process that the example forked and that left its block."""
        if os.getpid() != self._process:
            os._exit(0)

    # --- one block --------------------------------------------------------------------------------

    def _block(self, index: int, script_vars: dict[str, Any], one: Callable[[], str]) -> str:
        """Execute block *index* of the example, text or code; return its reStructuredText."""
        code = self._code.get(index)
        if not script_vars["execute_script"] or self.script.blocks[index].type == "text":
            if code:  # after a failure
                self._blocks.append(Block(line=code.line, key=code.key, seconds=0.0))
            return one()
        number = len(self._blocks) + 1 if code else len(self._blocks)
        if code:
            self.current = code
            self.tell(BlockStarted(number, len(self._code), code.line))
        self._value = None
        self._drawing = 0.0
        self.output.begin()
        self._ask("before_block")
        started = time.perf_counter()
        rst = one()
        self._end_copies()
        found = self._ask("after_block")
        seconds = time.perf_counter() - started - self._drawing
        stdout, stderr = self.output.take()
        self._gpu_state()
        self._outputs.look(max(number, 1))
        if code is None:
            self._keep_deferred(rst.rstrip() and rst)
            return rst
        rst, self._deferred = self._deferred + rst, ""
        error, memory = script_vars.get("formatted_exception"), script_vars["memory_delta"]
        errors = self.shown(clean(stderr))
        if self.run.settings.stderr == "apart":
            rst += stderr_rst(errors)
        self._blocks.append(
            Block(
                line=code.line,
                key=code.key,
                seconds=round(max(seconds, 0.0), 3),
                memory=round(memory[-1], 3) if isinstance(memory, list) and memory[-1] else None,
                passed=error is None,
                exception=None if error is None else self.shown(error),
                rst=self._recorded(rst),
                stdout=self.shown(clean(stdout)),
                stderr=errors,
                value=self._value,
                probes=found,
            )
        )
        return rst

    def _keep_deferred(self, rst: str) -> None:
        """Add what a block of comments shows to the block before it, or to the next one."""
        if self._blocks:
            last = self._blocks[-1]
            self._blocks[-1] = replace(last, rst=last.rst + self._recorded(rst))
        else:
            self._deferred += rst

    @contextlib.contextmanager
    def _figures(self) -> Iterator[None]:
        """Drawing the figures is no time of the block's."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._drawing += time.perf_counter() - started

    def _keep_value(self, text: str, method: str) -> str:
        """Keep the value of a block's last expression; return it as the page shows it."""
        kind: Literal["html", "text"] = "html" if method == "_repr_html_" else "text"
        text = text if kind == "html" else clean(text).rstrip("\n")
        if len(text) > (limit := self.run.limit("output")):
            raise Refusal(
                f"has a last expression whose value takes {len(text):,} characters on the page",
                f"Show less, or raise gallery_limits in conf.py above {limit:,.0f}.",
            )
        self._value = Value(kind, self.shown(text))
        return text

    def _ask(self, hook: str) -> dict[str, Any]:
        """The answers of the probes that have *hook*, by name; it runs in the example's folder."""
        found = {}
        for name, probe in self._probes.items():
            with contextlib.chdir(self.script.path.parent):
                answer = getattr(probe, hook, lambda: None)()
            if answer is not None:
                found[name] = msgspec.json.decode(msgspec.json.encode(answer), type=dict)
        return found

    # --- what is kept -----------------------------------------------------------------------------

    def _with_files(self, thumbnail: str | None) -> tuple[Block, ...]:
        """The blocks with the names of their files, which are copied into the recording."""
        files = self._outputs.copy_to(self.workspace.recording)
        found = []
        for number, block in enumerate(self._blocks, 1):
            images, data = files.get(number, ([], []))
            rst = block.rst
            for name in data:
                size = (self.workspace.recording / name).stat().st_size
                rst += f"\n{data_rst(name, size, self.script.path.stem)}\n"
            images = [name for name in images if name != thumbnail]
            found.append(replace(block, images=tuple(images), data=tuple(data), rst=rst))
        return tuple(found)

    def _recorded(self, rst: str) -> str:
        """*rst* without paths of this machine and of the pages' folder."""
        pages = self.run.example.pages
        return self.shown(rst.replace(f"/{pages}/", f"/{format.GALLERY_FOLDER}/") if pages else rst)

    def shown(self, text: str) -> str:
        """*text* without paths of this run, and passed through the filters of conf.py."""
        text = self._paths.name(encodable(text))
        for text_filter in self._filters:
            text = text_filter(text)
        return text

    def _chosen_thumbnail(self, file_settings: dict[str, Any]) -> str | None:
        """The image that a scraper chose for the thumbnail, if one did."""
        chosen = str(file_settings.get("thumbnail_path"))
        path = Path(os.path.normpath(self.workspace.docs / chosen))
        return self._outputs.name_of(path) if path in self._outputs.owner else None
