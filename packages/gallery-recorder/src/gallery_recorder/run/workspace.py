"""The workspace of one run: the files that the example sees and those that it writes.

An example is executed in a copy of its folder, with links to the rest of the project. A run holds a
lock beside its workspace; the next recorder removes workspaces whose lock is free.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from gallery_recorder.store.atomic import remove
from gallery_recorder.store.lock import locked

_SKIPPED = frozenset({".git", "__pycache__"})
_LARGE = 16_000_000  # bytes: larger files are not copied


class Workspace:
    """The folder of one run, and the paths in it."""

    def __init__(self, folder: Path, tmp: Path | None = None) -> None:
        self.folder = folder
        self.tree = folder / "tree"  # the project, as the example sees it
        self.docs = folder / "docs"  # pages and images of sphinx-gallery and its scrapers
        # The temporary folder has a short path, since a socket's path has at most 107 bytes, and no
        # links in its path, since programs that compare paths resolve them.
        token = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        self.tmp = tmp or Path(os.path.realpath(tempfile.gettempdir()), f"gallery-{token}")
        self.scratch = folder / "scratch"  # files of Sphinx while it reads conf.py
        self.recording = folder / "recording"
        self.order = folder / "order.json"
        self.result = folder / "result.json"
        self.finished = folder / "finished.jsonl"  # a line for each finished block
        self.stdout = folder / "stdout"
        self.stderr = folder / "stderr"
        self.stack = folder / "stack"  # of the worker's threads, if it crashed or hung

    def create(self) -> None:
        """Create the folder and the empty folders in it."""
        for path in (self.folder, self.tree, self.docs, self.scratch, self.recording):
            path.mkdir(mode=0o755)
        self.tmp.mkdir(mode=0o700)
        for path in (self.stack, self.stdout, self.stderr, self.finished):
            path.touch()

    def copied(self, script: Path, top: Path) -> Path:
        """The path of the copy of *script*, made by :meth:`overlay`."""
        return self.tree / top.name / script.relative_to(top)

    def overlay(self, script: Path, top: Path) -> None:
        """Copy *script* and small files beside it; link other examples and the rest below *top*."""
        source, place = top, self.tree / top.name
        place.mkdir(exist_ok=True)  # the root of the file system has no name
        for part in script.parent.relative_to(top).parts:
            for entry in os.scandir(source):
                if entry.name != part and entry.name not in _SKIPPED:
                    os.symlink(entry.path, place / entry.name)
            source, place = source / part, place / part
            place.mkdir()
        for entry in os.scandir(source):
            is_small = entry.is_file(follow_symlinks=False) and entry.stat().st_size <= _LARGE
            if (is_small and not entry.name.endswith(script.suffix)) or entry.path == str(script):
                shutil.copy(entry.path, place / entry.name)
            elif entry.name not in _SKIPPED:
                os.symlink(os.path.realpath(entry.path), place / entry.name)


def lock_path(folder: Path, name: str) -> Path:
    """The lock of the example *name* in *folder*."""
    return folder / f".lock-{name.replace('/', '--')}"


@contextlib.contextmanager
def made(folder: Path, name: str) -> Iterator[Workspace]:
    """A new workspace in *folder* for the example *name*, removed at the end."""
    token = f"{name.replace('/', '--')}-{secrets.token_hex(4)}"
    at = Workspace(folder.resolve() / f".workspace-{token}")
    try:
        at.create()
        yield at
    finally:
        for path in (at.tmp, at.folder):
            remove(path)


def remove_leftovers(folder: Path, warn: Callable[[str], None]) -> None:
    """Remove workspaces and locks of killed recorders; *warn* if one cannot be removed."""
    names = {path.name.removeprefix(".lock-") for path in folder.glob(".lock-*")}
    workspaces = {
        path: path.name.removeprefix(".workspace-").rpartition("-")[0]
        for path in folder.glob(".workspace-*")
    }
    at_once = threading.Event()
    at_once.set()
    for name in names.union(workspaces.values()):
        try:
            with locked(folder / f".lock-{name}", at_once, lambda _: None) as free:
                for path in [p for p, of in workspaces.items() if free and of == name]:
                    remove(Workspace(folder.resolve() / path.name).tmp)
                    remove(path)
        except OSError as error:
            warn(f"{error.filename}: cannot be removed ({error.strerror}); remove it yourself")
