"""The workspace of one run: the files that the example sees and those that it writes.

An example is executed in a copy of the project. A run holds a lock beside its workspace; the next
recorder removes workspaces whose lock is free.
"""

import contextlib
import hashlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from gallery_recorder.store.atomic import remove
from gallery_recorder.store.lock import locked


class Workspace:
    """The folder of one run, and the paths in it."""

    def __init__(self, folder: Path, tmp: Path | None = None, tree: Path | None = None) -> None:
        self.folder = folder
        self.tree = tree or folder / "tree"  # the copy of the project, which others make
        self.docs = folder / "docs"  # pages and images of sphinx-gallery and its scrapers
        # The temporary folder has a short path, since a socket's path has at most 107 bytes, and no
        # links in its path, since programs that compare paths resolve them.
        token = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        self.tmp = tmp or Path(os.path.realpath(tempfile.gettempdir()), f"gallery-{token}")
        self.scratch = folder / "scratch"  # files of Sphinx while it reads conf.py
        self.recording = folder / "recording"
        self.order = folder / "order.json"
        self.result = folder / "result.json"
        self.events = folder / "messages"  # a named pipe to the recorder
        self.finished = folder / "finished.jsonl"  # a line for each finished block
        self.stdout = folder / "stdout"
        self.stderr = folder / "stderr"
        self.stack = folder / "stack"  # of the worker's threads, if it crashed or hung

    def create(self) -> None:
        """Create the folder and the empty folders in it."""
        for path in (self.folder, self.docs, self.scratch, self.recording):
            path.mkdir(mode=0o755)
        self.tmp.mkdir(mode=0o700)
        os.mkfifo(self.events, 0o600)
        for path in (self.stack, self.stdout, self.stderr, self.finished):
            path.touch()

    def copied(self, script: Path, top: Path) -> Path:
        """The path of the copy of *script* in the copy of the project *top*."""
        return self.tree / top.name / script.relative_to(top)


def lock_path(folder: Path, name: str) -> Path:
    """The lock of the example *name* in *folder*."""
    return folder / f".lock-{name.replace('/', '--')}"


def folder_of(folder: Path, name: str) -> Path:
    """A path for a workspace in *folder*, under the lock of *name*."""
    return folder.resolve() / f".workspace-{name.replace('/', '--')}-{secrets.token_hex(4)}"


@contextlib.contextmanager
def made(folder: Path, name: str) -> Iterator[Workspace]:
    """A new workspace in *folder* for the example *name*, removed at the end."""
    at = Workspace(folder_of(folder, name))
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
