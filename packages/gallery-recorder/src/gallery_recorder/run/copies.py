"""Copies of the project, in which examples are executed.

An example may write, change and delete what it wants beside it and above it: that is a copy. The
copy serves one example after the other, and before each of them it is as the project is, so nothing
that one example changed is seen by the next.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gallery_recorder.project.galleries import Example
from gallery_recorder.project.git import git
from gallery_recorder.run.protocol import ExampleFailedError, Run
from gallery_recorder.store import atomic

#: What no example reads.
_SKIPPED = frozenset({".git", "__pycache__"})
_WORKSPACE = ".workspace-"
_LARGE = 250_000_000  # bytes of a file that is linked
_MOST = 50_000  # files besides those of galleries and pages; others are linked

#: What tells that a file was changed: mode, inode, size and time of the last change.
_State = tuple[int, int, int, int]


class ProjectCopy:
    """A copy of the folder *top*, in the folder *tree*.

    The folders *own*, those of galleries, are copied whole. Elsewhere what git ignores is linked,
    such as an environment or a download, and so are virtual environments and very large files. The
    folders *left_out* are not there.
    """

    def __init__(
        self, tree: Path, top: Path, own: Iterable[Path], left_out: Iterable[Path]
    ) -> None:
        """Make the copy; *tree* is a new folder."""
        self.tree = tree
        self._top = top
        self._copy = tree / top.name  # the root of the file system has no name
        self._own = {str(path) for path in own if path.is_relative_to(top)}
        self._above_own = {str(above) for path in self._own for above in Path(path).parents}
        self._left_out = {str(path) for path in left_out}
        self._ignored = _ignored_by_git(top)
        self._is_project = not _contains_other_things(top)
        self._others = 0  # files and folders that are copied besides *own*
        self._states: dict[str, _State] = {}
        self._linked: dict[str, _State | None] = {}  # large files of the project itself
        self._make()

    def _make(self) -> None:
        self._others = 0
        self.tree.mkdir()
        if self._is_project:
            self._copy_folder(str(self._top), str(self._copy), str(self._top) in self._own)
        else:
            self._link_all_but_own(str(self._top), str(self._copy))
        self._states = dict(_states(str(self.tree)))

    # --- copying ----------------------------------------------------------------------------------

    def _copy_folder(self, source: str, target: str, in_own: bool) -> None:
        if not os.path.isdir(target):
            os.mkdir(target)
        for entry in _entries(source):
            if self._is_left_out(entry):
                continue
            place = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if entry.path in self._own or in_own or self._is_copied(entry.path):
                    self._copy_folder(entry.path, place, in_own or entry.path in self._own)
                elif entry.path in self._above_own:
                    self._link_all_but_own(entry.path, place)
                else:
                    os.symlink(entry.path, place)
            elif in_own or self._is_copied(entry.path):
                self._copy_file(entry.path, place)
            else:
                os.symlink(entry.path, place)

    def _link_all_but_own(self, source: str, target: str) -> None:
        """Copy from the folder *source* only what is in our own folders; link the rest."""
        if not os.path.isdir(target):
            os.mkdir(target)
        for entry in _entries(source):
            place = os.path.join(target, entry.name)
            if self._is_left_out(entry):
                continue
            if entry.path in self._own:
                self._copy_folder(entry.path, place, in_own=True)
            elif entry.path in self._above_own:
                self._link_all_but_own(entry.path, place)
            else:
                os.symlink(entry.path, place)

    def _is_left_out(self, entry: os.DirEntry[str]) -> bool:
        hidden = entry.name in _SKIPPED or entry.name.startswith(_WORKSPACE)
        return hidden or entry.path in self._left_out

    def _is_copied(self, path: str) -> bool:
        """Whether the file or folder *path* outside of our own folders is copied."""
        if path in self._ignored:
            return False
        if os.path.exists(os.path.join(path, "pyvenv.cfg")):
            return False
        self._others += 1
        return self._others <= _MOST

    def _copy_file(self, source: str, target: str) -> None:
        """Copy a file; what cannot be copied is linked, and a link leads to the copy, too."""
        try:
            status = os.lstat(source)
            if stat.S_ISLNK(status.st_mode):
                os.symlink(self._counterpart(os.path.realpath(source)), target)
            elif not stat.S_ISREG(status.st_mode):
                return  # a socket or a pipe
            elif status.st_size > _LARGE:
                self._linked[source] = _state(status)
                os.symlink(source, target)
            else:
                shutil.copy(source, target)
        except PermissionError:  # the example cannot read it, either
            os.symlink(source, target)
        except FileNotFoundError:  # it was removed meanwhile, such as a lock
            return

    def _counterpart(self, path: str) -> str:
        """The path of the copy of *path*; *path* itself if it is not in the project."""
        below = os.path.relpath(path, self._top)
        if below.startswith(os.pardir) or path in self._left_out:
            return path
        return os.path.normpath(os.path.join(self._copy, below))

    # --- between two examples ---------------------------------------------------------------------

    def renew(self, script: Path) -> None:
        """Copy *script* again, which may have been edited since."""
        target = str(self._copy / script.relative_to(self._top))
        if os.path.lexists(target):
            os.remove(target)
        shutil.copy(script, target)
        self._states[target] = _state(os.lstat(target))

    def check(self) -> None:
        """Raise ExampleFailedError if the example changed a file that is too large to be copied."""
        before, self._linked = self._linked, {path: _state_of(path) for path in self._linked}
        for path, state in before.items():
            if state != self._linked[path]:
                cause = f"changed {path}, which is linked because it has over {_LARGE:,} bytes"
                raise ExampleFailedError(cause, "Restore the file, and write to another one.")

    def restore(self) -> None:
        """Undo all changes of an example."""
        try:
            self._undo()
        except OSError:  # such as a folder that cannot be read
            atomic.remove(self.tree)
            self._make()

    def _undo(self) -> None:
        now = dict(_states(str(self.tree)))
        if now == self._states:
            return
        for path, state in now.items():
            # A folder above it may have been removed before.
            if self._states.get(path) != state and os.path.lexists(path):
                _remove(path)
        for path in list(self._states):  # a folder comes before what is in it
            if not os.path.lexists(path):
                self._copy_again(path)

    def _copy_again(self, path: str) -> None:
        source = os.path.join(self._top, os.path.relpath(path, self._copy))
        if path == str(self._copy) or stat.S_ISDIR(self._states[path][0]):
            os.mkdir(path)
        elif stat.S_ISLNK(self._states[path][0]) and not os.path.islink(source):
            os.symlink(source, path)
        elif os.path.lexists(source):
            self._copy_file(source, path)
        if os.path.lexists(path):
            self._states[path] = _state(os.lstat(path))
        else:  # it was removed from the project meanwhile
            del self._states[path]


def of_run(run: Run, tree: Path) -> ProjectCopy:
    """A copy for one *run*, in the new folder *tree* of its workspace."""
    left_out = (*run.settings.roots, tree.parent)
    return ProjectCopy(tree, run.top, galleries_of([run.example]), left_out)


def galleries_of(examples: Iterable[Example]) -> set[Path]:
    """The folders of the galleries of *examples*."""
    return {example.path.parents[example.name.count("/")] for example in examples}


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        atomic.remove(Path(path))
    else:
        os.remove(path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """The entries of *folder*; none if it was removed meanwhile or cannot be read."""
    try:
        return [*os.scandir(folder)]
    except (FileNotFoundError, PermissionError):
        return []


def _states(folder: str) -> Iterator[tuple[str, _State]]:
    """All paths below *folder*, a folder before what is in it, and their states."""
    for entry in os.scandir(folder):
        status = entry.stat(follow_symlinks=False)
        yield entry.path, _state(status)
        if stat.S_ISDIR(status.st_mode):
            yield from _states(entry.path)


def _state(status: os.stat_result) -> _State:
    if stat.S_ISDIR(status.st_mode):  # its files have states of their own
        return (status.st_mode, status.st_ino, 0, 0)
    return (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns)


def _state_of(path: str) -> _State | None:
    """The state of the file *path*; None if there is none."""
    return _state(os.lstat(path)) if os.path.lexists(path) else None


def _ignored_by_git(top: Path) -> set[str]:
    """The files and folders below *top* that git ignores; none without git."""
    listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    listed = git(top, *listing) or ""
    return {os.path.join(top, name.rstrip("/")) for name in listed.split("\0") if name}


def _contains_other_things(top: Path) -> bool:
    """Whether *top*, the folder above conf.py and examples in several places, is no project."""
    others = ("~", "/usr", tempfile.gettempdir())
    return any(Path(os.path.expanduser(other)).is_relative_to(top) for other in others)
