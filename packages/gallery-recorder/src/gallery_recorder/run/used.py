"""Everything that an example uses besides its code: modules, files, versions and variables.

An audit hook sees the files that Python opens while a block is executed. What a C library, another
process or another rank reads is not seen; ``# sphinx_gallery_depends`` names it.
"""

import ast
import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gallery_recorder.project import inputs, needs, settings, variables
from gallery_recorder.project.script import Script
from gallery_recorder.run import distributions
from gallery_recorder.run.protocol import Run
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store import format
from gallery_recorder.store.format import Inputs


class Used:
    """What one example uses, from the start of its first block to the end of its last one."""

    def __init__(self, run: Run, workspace: Workspace, script: Script) -> None:
        """Digest the files that match patterns, and start the audit hook."""
        self._run = run
        self._script = script
        self._copy = str(workspace.tree / run.top.name) + os.sep
        self._matched = {pattern: run.inputs.matched(pattern) for pattern in run.inputs.patterns}
        #: The files that the example has opened, and those that it read first.
        self._opened: set[str] = set()
        self._read: list[str] = []
        self._before: set[str] = set()  # the modules imported when the block began
        self._modules: dict[str, str] = {}
        self._copied: dict[str, tuple[int, int, int]] = {}
        for entry in os.scandir(script.path.parent):
            if entry.is_file():
                self._copied[entry.path] = _state(entry.stat())
        self._is_listening = False
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while a block is executed."""
        self._before = set(sys.modules)
        self._is_listening = True
        try:
            yield
        finally:
            self.pause()

    def pause(self) -> None:
        """Listen no more until the next block: what is executed now is not the example's code."""
        if self._is_listening:
            self._is_listening = False
            self._keep_modules(set(sys.modules) - self._before)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self._is_listening:
            with contextlib.suppress(Exception):  # which would appear in the example
                self._note(*arguments)

    def _note(self, path: Any, _mode: str | None, flags: int) -> None:
        """Note that *path* is opened."""
        if isinstance(path, int):  # a descriptor
            return
        path = os.path.join(os.getcwd(), os.fsdecode(path))
        is_written = bool(flags & os.O_TRUNC) or flags & os.O_ACCMODE == os.O_WRONLY
        if path in self._opened:
            return
        self._opened.add(path)
        if not is_written and not self._was_written(path):
            self._read.append(path)

    def _was_written(self, path: str) -> bool:
        """Whether a C library has written the file *path* in the example's folder."""
        known = self._copied.get(os.path.normpath(path))
        return known is not None and known != _state(os.stat(path))

    # --- after a block ----------------------------------------------------------------------------

    def _original(self, path: str) -> str:
        """The path in the project of the file *path*, which may be in the workspace."""
        path = os.path.normpath(path)
        if path.startswith(self._copy):
            return str(self._run.top / path[len(self._copy) :])
        return path

    def _name_of(self, path: str) -> str | None:
        """The name of the file *path* as an input; None if it is none."""
        path = self._original(path)
        name = self._run.inputs.name_of(path)
        is_own = path == str(self._run.example.path)
        if name is None or is_own or not format.is_input(name):
            return None
        return name if self._run.inputs.path_of(name).is_file() else None

    def _files(self, imported: set[str]) -> dict[str, str]:
        """The digest of each file that the example has read, but not *imported*, by name."""
        found: dict[str, str] = {}
        for path in self._read:
            name = self._name_of(path)
            if name is not None and name not in imported and name not in found:
                with contextlib.suppress(OSError):
                    found[name] = inputs.digest_of_file(self._run.inputs.path_of(name))
        return dict(sorted(found.items()))

    def _keep_modules(self, names: Iterable[str]) -> None:
        for name in names:
            file = _file_of(name)
            if file:
                self._modules.setdefault(name, file)

    def _keep_named_modules(self) -> None:
        """Keep the modules that import statements name, since conf.py may have imported them."""
        waiting = [name for block in self._script.code for name in imports(block.block.content)]
        waiting += self._modules
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            parents = name.rpartition(".")[0]
            if name in seen:
                continue
            seen.add(name)
            if parents:
                waiting.append(parents)
            file = _file_of(name)
            if not file:
                continue
            self._modules[name] = file
            if file.endswith(".py") and self._run.inputs.name_of(self._original(file)):
                package = name if Path(file).stem == "__init__" else parents
                with contextlib.suppress(OSError):
                    text = Path(file).read_text(encoding="utf-8", errors="replace")
                    waiting += imports(text, package)

    # --- at the end -------------------------------------------------------------------------------

    def inputs(self, shown_variables: dict[str, str]) -> Inputs:
        """All inputs; *shown_variables* are the values of variables without paths of this run."""
        run = self._run
        self._keep_named_modules()
        imported: set[str] = set()
        modules: dict[str, str] = {}
        for module, path in self._modules.items():
            name = self._name_of(path)
            if name is None:
                continue
            imported.add(name)
            if name.endswith(".py") and self._is_own(module, path, name):
                with contextlib.suppress(OSError):
                    keep = self._script.reads_docstrings
                    modules[name] = inputs.digest_of_module(run.inputs.path_of(name), keep)
        known = {module: self._original(path) for module, path in self._modules.items()}
        chosen = dict(run.changing_outputs)
        chosen.pop("capture_repr", None)
        launcher = needs.launcher_of(self._script, run.settings.launcher)
        return Inputs(
            modules=dict(sorted(modules.items())),
            files=self._files(imported),
            matched=self._matched,
            versions=distributions.versions_of(known),
            variables=variables.inputs(shown_variables, run.settings),
            settings={**chosen, "gallery_launcher": settings.plain(launcher)},
            capture_repr=needs.captured(self._script, run.changing_outputs.get("capture_repr", "")),
        )

    def _is_own(self, module: str, path: str, name: str) -> bool:
        """Whether *module* is the project's, and not that of an editable distribution."""
        root = os.path.realpath(self._original(distributions.import_root(module, path)))
        return root not in distributions.editable_roots() or self._run.inputs.is_named(name)


def imports(code: str, package: str = "") -> list[str]:
    """The modules that import statements in *code* may name; *package* is that of the code."""
    found: list[str] = []
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if node.level:
                with contextlib.suppress(ImportError, ValueError):
                    module = importlib.util.resolve_name(module, package)
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return [name for name in found if not name.startswith(".")]


def _file_of(name: str) -> str:
    """The file of the imported module *name*; empty if it is not imported or has no file."""
    try:
        return os.path.abspath(sys.modules[name].__file__ or "") if name in sys.modules else ""
    except Exception:  # a module may be any object
        return ""


def _state(status: os.stat_result) -> tuple[int, int, int]:
    """A value that changes when a file is written."""
    return status.st_ino, status.st_size, status.st_mtime_ns
