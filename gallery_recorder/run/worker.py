"""Execute one script in this process and write down what it did.

``python -m gallery_recorder.run.worker STAGING TMP PARENT EVENTS`` is one process for each script.
conf.py is read, and sphinx-gallery executes the blocks as conf.py says, so a recording holds what
sphinx-gallery would have shown. Around each block this module collects what sphinx-gallery does
not: output of C code and of kernels, data files, and what probes find.
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import io
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from gallery_recorder import seam
from gallery_recorder.project import settings
from gallery_recorder.project.galleries import decode, encode
from gallery_recorder.project.reader import read_app
from gallery_recorder.project.script import CodeBlock, Script, load_script
from gallery_recorder.run import environment, gpus, provenance, warm
from gallery_recorder.run.confine import confine
from gallery_recorder.run.failure import failure_of
from gallery_recorder.run.guard import Guard, caches
from gallery_recorder.run.keeper import end_with
from gallery_recorder.run.output import NoInput, Output, Tee, stderr_rst, too_much
from gallery_recorder.run.outputs import Files, data_rst
from gallery_recorder.run.protocol import (
    DEAF,
    BlockStarted,
    Done,
    Event,
    Failure,
    Refusal,
    Result,
    Run,
)
from gallery_recorder.run.text import Paths, clean, name_of, undeceiving
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import GALLERY_FOLDER, Block, Provenance, Value, is_code

_BUILTINS = dict(builtins.__dict__)


def main() -> int:
    """Execute the script in the workspace folder that the command line names."""
    workspace, (parent, events) = Workspace(*map(Path, sys.argv[1:3])), map(int, sys.argv[3:])
    end_with(parent)
    os.set_inheritable(events, False)
    stack = os.fdopen(os.open(workspace.stack, os.O_WRONLY | os.O_CREAT), "w")
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack)  # the parent asks where it hangs
    child = Child(decode(workspace.order.read_bytes(), Run), workspace, events)
    try:
        result = child.execute()
        workspace.result.write_bytes(encode(result))
    except BaseException as error:  # whatever it was, the parent shall know
        child.tell(child.failure(error))
        return 1
    child.tell(Done(*child.output.taken))
    return 0


class Child:
    """One script, executed block by block."""

    def __init__(self, run: Run, workspace: Workspace, events: int) -> None:
        self.run = run
        self.workspace = workspace
        self._events = events
        self._process = os.getpid()
        self._variables = dict(os.environ)
        self.current: CodeBlock | None = None
        self.refusals: list[Refusal] = []
        path = workspace.copied(run.example.path, run.top)
        self.script: Script = load_script(path, run.example.source)
        self.pages = workspace.docs / run.example.pages
        self.pages.mkdir(parents=True)
        self.paths = Paths(
            {
                path: run.example.source,
                path.parent: ".",
                workspace.tree / run.top.name: "<project>",
                workspace.docs: "<pages>",
                workspace.tmp: "<tmp>",
                workspace.folder: "<workspace>",
            }
        )
        self.filters: list[Callable[[str], str]] = []
        self.probes: dict[str, Any] = {}
        apart = run.settings.stderr == "apart"
        self.output = Output(workspace.stdout, workspace.stderr, run.limit("output"), apart)
        allowed = [path.parent, workspace.docs, workspace.tmp, *self._writable()]
        self.guard = Guard(allowed, self._refuse_writing)
        self.blocks: list[Block] = []
        self.throttling: set[str] = set()
        self._code = {code.index: code for code in self.script.code}
        self._left_over = ""  # what a block of comments alone showed: figures that were deferred
        self._value: Value | None = None
        self._drawing = 0.0
        self._thumbnail: str | None = None

    def execute(self) -> Result:
        """Execute all blocks and return what they did."""
        app = read_app(self.run.where, self.workspace.scratch, warned := io.StringIO())
        self.tell(warm.loaded(self._variables))
        conf = app.config.sphinx_gallery_conf
        conf.update(
            src_dir=str(self.workspace.docs),
            builder_name="html",
            plot_gallery=True,
            filename_pattern="",
            parallel=False,
            abort_on_example_error=not self.run.example.may_fail,
        )
        self.filters = [*settings.objects(app.config.gallery_filters, "gallery_filters").values()]
        self.probes = settings.objects(app.config.gallery_probes, "gallery_probes")
        variant = settings.read(app.config, self.run.where.conf or Path.cwd()).variant
        on_gpu = self.run.kind == "gpu"
        facts, before = (gpus.facts(), gpus.state()) if on_gpu else (None, None)
        variables = environment.kept(os.environ, self.run.settings.variables)
        sys.stdin = NoInput()
        confine([self.workspace.folder, *self._writable(), Path("/dev"), Path("/proc")])
        self.guard.switch_on()
        warned.truncate(warned.seek(0))  # what a build warns of, too
        _, seconds, script_vars, file_settings = seam.execute(
            self.script.path,
            self.pages,
            conf,
            self._block,
            self._figures,
            Tee,
            self._keep_value,
        )
        self.current = None
        os.umask(0o022)  # whatever the script's is: who records reads what is written from here on
        self._thumbnail = self._chosen_thumbnail(file_settings)
        files = self._files.copy_to(self.workspace.recording)
        after = gpus.state() if on_gpu else None
        if after:
            self.throttling.update(after.throttling)
            after = replace(after, throttling=tuple(sorted(self.throttling)))
        base = seam.memory_base(conf)
        delta = script_vars["memory_delta"]
        # Where an object is the default role, these are all links of the prose, too.
        objects = seam.code_objects(self.script.path, conf, script_vars["example_globals"])
        return Result(
            provenance=Provenance(
                device=self.run.device,
                kind=self.run.kind,
                os=provenance.operating_system(),
                python=platform.python_version(),
                versions=provenance.versions(),
                environment={name: self._shown(value) for name, value in variables.items()},
                gpu=facts,
                before=before,
                after=after,
            ),
            blocks=tuple(
                self._with_files(number, block, *files.get(number, ([], [])))
                for number, block in enumerate(self.blocks, 1)
            ),
            seconds=round(seconds, 3),
            passed="formatted_exception" not in script_vars,
            variant=variant,
            memory=None if base is None else round(base + delta, 3),
            peak_host_memory=provenance.peak_host_memory(),
            probes=self._ask("provenance"),
            backreferences={name: meant for name, meant in objects.items() if is_code(name, meant)},
            thumbnail=self._thumbnail,
            warned=self._shown(clean(warned.getvalue())),
        )

    def _writable(self) -> list[Path]:
        """The folders besides its own that the script may write to; they exist, if they can."""
        found = [*caches(), *map(Path, self.run.settings.writable)]
        for path in found:
            # What has a suffix may be a file, unless it is part of a number: "triton-3.9.0".
            if not path.suffix.strip(".0123456789"):
                with contextlib.suppress(OSError):  # then nothing is written there
                    path.mkdir(parents=True, exist_ok=True)
        return found

    def tell(self, event: Event) -> None:
        """Send *event* to the parent; without a parent there is nothing to go on for."""
        self._end_copies()
        try:
            os.write(self._events, encode(event) + b"\n")
        except OSError:  # the script closed it, or the parent is gone
            os._exit(DEAF)

    def failure(self, error: BaseException) -> Failure:
        """What *error* means, where it was, and what to do."""
        at = self.current
        printed: list[bytes] = []
        builtins.__dict__.update(_BUILTINS)  # the script may have replaced some
        try:
            with contextlib.suppress(OSError):  # the script removed what it printed to
                printed = self.output.take(limited=False)
            return failure_of(error, self.script, at, printed, self._shown)
        except BaseException:  # what the script made does as it likes when it is asked what it is
            for _ in range(100):  # the one that was raised first
                earlier = BaseException.__dict__["__context__"].__get__(error)
                error = error if earlier is None else earlier
            return Failure(
                cause=f"raised {name_of(error)}, of which nothing more can be told",
                remedy="Raise exceptions that can be printed, and leave Python's own names alone.",
                block=self.script.code.index(at) + 1 if at else None,
                of=len(self.script.code),
                line=at.line if at else None,
            )

    def _end_copies(self) -> None:
        """End a copy of this process that the script forked and that left its block."""
        if os.getpid() != self._process:
            os._exit(0)

    # --- one block --------------------------------------------------------------------------------

    def _block(self, index: int, script_vars: dict[str, Any], one: Callable[[], str]) -> str:
        """Execute block *index* of the script, of text or of code; return what it shows."""
        if not script_vars["execute_script"] or self.script.blocks[index].type == "text":
            return self._not_executed(index, one)
        code = self._code.get(index)
        number = len(self.blocks) + 1 if code else len(self.blocks)
        if code:
            self.current = code
            self.tell(BlockStarted(number, len(self._code), code.line))
        self._value = None
        self._drawing = 0.0
        self.output.begin()
        if not hasattr(self, "_files"):
            limits = self.run.limit("file"), self.run.limit("files")
            data = self.run.settings.data
            self._files = Files(self.workspace.docs, self.pages, self.script.path, data, *limits)
        self._ask("before_block")
        started = time.perf_counter()
        self.guard.active = True
        try:
            rst = one()
        finally:
            self.guard.active = False
        self._end_copies()
        found = self._ask("after_block")
        seconds = time.perf_counter() - started - self._drawing
        stdout, stderr = self.output.take()
        if self.refusals:
            raise self.refusals[0]  # the script, or a thread of it, hid it
        if self.run.kind == "gpu" and (state := gpus.state()):
            self.throttling.update(state.throttling)
        self._files.look(max(number, 1))
        if code is None:
            self._keep_left_over(rst)
            return rst
        rst, self._left_over = self._left_over + rst, ""
        error, memory = script_vars.get("formatted_exception"), script_vars["memory_delta"]
        errors = self._shown(clean(stderr))
        if error is not None:
            rst = undeceiving(rst)  # the message of an exception may hold anything
        if self.run.settings.stderr == "apart":
            rst += stderr_rst(errors)
        self.blocks.append(
            Block(
                line=code.line,
                key=code.key,
                seconds=round(max(seconds, 0.0), 3),
                memory=round(memory[-1], 3) if isinstance(memory, list) and memory[-1] else None,
                passed=error is None,
                exception=None if error is None else self._shown(error),
                rst=self._recorded(rst),
                stdout=self._shown(clean(stdout)),
                stderr=errors,
                value=self._value,
                probes=found,
            )
        )
        return rst

    def _not_executed(self, index: int, one: Callable[[], str]) -> str:
        """Let sphinx-gallery show a block that is not executed: text, or code after a failure."""
        if code := self._code.get(index):
            self.blocks.append(Block(line=code.line, key=code.key, seconds=0.0))
        return one()

    def _keep_left_over(self, rst: str) -> None:
        """What a block without statements shows goes to the block before it, or to the next."""
        if not rst.strip():
            return
        if self.blocks:
            last = self.blocks[-1]
            self.blocks[-1] = replace(last, rst=last.rst + self._recorded(rst))
        else:
            self._left_over += rst

    @contextlib.contextmanager
    def _figures(self) -> Iterator[None]:
        """The block's figures are drawn; that is not the script that writes, nor its time."""
        started = time.perf_counter()
        active, self.guard.active = self.guard.active, False
        try:
            yield
        finally:
            self.guard.active = active
            self._drawing += time.perf_counter() - started

    def _keep_value(self, text: str, method: str) -> str:
        """Keep the value of a block's last expression; return it as it is to be shown."""
        limit = self.run.limit("output")
        if len(text) > limit:
            raise too_much("its page, as the value of its last expression,", limit)
        kind: Literal["html", "text"] = "html" if method == "_repr_html_" else "text"
        text = text if kind == "html" else clean(text).rstrip("\n")
        self._value = Value(kind, self._shown(text))
        return text

    def _ask(self, hook: str) -> dict[str, Any]:
        """What the probes answer that have *hook*, by name; they work in the script's folder.

        Raises:
            Refusal: a probe fails, or answers something that no recording can hold.
        """
        found = {}
        for name, probe in self.probes.items():
            if not hasattr(probe, hook):
                continue
            with contextlib.chdir(self.script.path.parent):
                answer = getattr(probe, hook)()
            if answer is None:
                continue
            try:
                found[name] = msgspec.json.decode(msgspec.json.encode(answer), type=dict)
            except (TypeError, ValueError) as error:
                raise Refusal(
                    f"was executed, but the probe {name}.{hook} answered {answer!r:.80}",
                    f"It must answer a dictionary that JSON can hold: {error}.",
                ) from error
        return found

    # --- what is kept -----------------------------------------------------------------------------

    def _with_files(self, number: int, block: Block, images: list[str], data: list[str]) -> Block:
        stem = self.script.path.stem
        images = [name for name in images if name != self._thumbnail]
        links = [
            data_rst(name, (self.workspace.recording / name).stat().st_size, stem) for name in data
        ]
        return replace(
            block,
            images=tuple(images),
            data=tuple(data),
            rst=block.rst + "".join(f"\n{link}\n" for link in links),
        )

    def _recorded(self, rst: str) -> str:
        """*rst* as it is recorded: without the paths of this machine and of these pages."""
        pages = self.run.example.pages
        return self._shown(rst.replace(f"/{pages}/", f"/{GALLERY_FOLDER}/") if pages else rst)

    def _shown(self, text: str) -> str:
        """*text* without the paths of this run, and as the filters of conf.py leave it."""
        text = self.paths.name(text)
        for text_filter in self.filters:
            text = text_filter(text)
        return text

    def _chosen_thumbnail(self, file_settings: dict[str, Any]) -> str | None:
        """The recorded image that a scraper chose for the thumbnail, if one did."""
        chosen = file_settings.get("thumbnail_path")
        if not isinstance(chosen, str):
            return None
        path = Path(os.path.normpath(self.workspace.docs / chosen))
        return self._files.name_of(path) if path in self._files.owner else None

    def _refuse_writing(self, path: str) -> None:
        self.refusals.append(
            Refusal(
                f"would have written to {self._shown(path)}, outside its working directory",
                "Write to a plain file name, such as `results.csv`, or use the module `tempfile`; "
                "name what is a library's cache in gallery_writable in conf.py.",
            )
        )
        raise self.refusals[-1]


if __name__ == "__main__":
    sys.exit(main())
