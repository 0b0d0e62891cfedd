"""The folder of one run: what the script sees of its project, and what it leaves.

The script is executed in a copy of its own folder. Above that folder is a tree of links to the
project as it is, so paths such as ``../data`` lead where they lead in the source. What the script
writes into its folder, it writes into the copy.

Beside each workspace folder is a lock. The lock of a recorder that was killed is free, so the next
one knows what was left behind, and removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from gallery_recorder.run.keeper import end_processes_of
from gallery_recorder.store.atomic import remove
from gallery_recorder.store.lock import try_lock, unlock

_SKIPPED = frozenset({".git", "__pycache__"})
_LARGE = 16_000_000  # bytes: such a file is linked, not copied
_MANY = 2_000  # files of sub-folders: more are linked


class Workspace:
    """The folder of one run, and what lies in it."""

    def __init__(self, folder: Path, tmp: Path | None = None) -> None:
        self.folder = folder
        self.tree = folder / "tree"  # the project, as the script sees it
        self.docs = folder / "docs"  # what sphinx-gallery and its scrapers write
        # The script's temporary folder: real, and near the root, since a socket's path ends at 107
        # bytes, and who compares paths finds links resolved.
        token = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        self.tmp = tmp or Path(os.path.realpath(tempfile.gettempdir()), f"gallery-{token}")
        self.scratch = folder / "scratch"  # what Sphinx writes while it reads conf.py
        self.recording = folder / "recording"
        self.project = folder / "project"  # where it had to be sent to this machine
        self.order = folder / "order.json"
        self.result = folder / "result.json"
        self.stdout = folder / "stdout"
        self.stderr = folder / "stderr"
        self.stack = folder / "stack"  # where each thread was, when the process crashed or hung
        self._above: list[tuple[Path, set[str]]] = []  # the folders above the script's, as made

    def create(self) -> None:
        """Make the folder and the empty folders in it."""
        for path in (self.folder, self.tree, self.docs, self.scratch, self.recording):
            path.mkdir(mode=0o755)
        self.tmp.mkdir(mode=0o700)

    def strangers(self) -> list[str]:
        """What lies above the script's folder and was not put there by the recorder.

        The paths are as seen from the script.
        """
        expected = {path.name for path in vars(self).values() if isinstance(path, Path)}
        found = []
        for steps, (folder, names) in enumerate([*self._above, (self.folder, expected)], 1):
            with contextlib.suppress(OSError):  # it took the permission away
                found += ["../" * steps + name for name in os.listdir(folder) if name not in names]
        return sorted(found)

    def copied(self, script: Path, top: Path) -> Path:
        """Where :meth:`overlay` puts *script*."""
        return self.tree / top.name / script.relative_to(top)

    def overlay(self, script: Path, top: Path) -> Path:
        """Copy the folder of *script*, in the project at *top*, and return the copied script."""
        place = self.tree / top.name
        place.mkdir(exist_ok=True)  # at the top of all folders, it is the tree itself
        source = top
        for part in script.parent.relative_to(top).parts:
            _link_all(source, place, besides=part)
            source, place = source / part, place / part
            place.mkdir()
        _copy(source, place, script)
        above = place
        while above != self.folder:
            self._above.append((above.parent, set(os.listdir(above.parent))))
            above = above.parent
        del self._above[-1]  # the folder of the run itself, to which more comes
        return place / script.name


def _link_all(source: Path, place: Path, besides: str) -> None:
    for entry in os.scandir(source):
        if entry.name != besides and entry.name not in _SKIPPED:
            os.symlink(entry.path, place / entry.name)


def _copy(source: Path, place: Path, script: Path) -> None:
    """Copy the folder *source*; other scripts in it, large files and many files are linked."""
    count = 0

    def copy_folder(folder: Path, target: Path) -> None:
        nonlocal count
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name in _SKIPPED:
                continue
            goal = target / entry.name
            if entry.is_symlink():
                os.symlink(os.path.realpath(entry.path), goal)
            elif entry.is_dir():
                if count > _MANY:
                    os.symlink(entry.path, goal)
                else:
                    goal.mkdir()
                    copy_folder(Path(entry.path), goal)
            elif stat.S_ISREG(entry.stat().st_mode):
                count += 1
                own = entry.path == str(script)
                sibling = entry.name.endswith(script.suffix) and not own
                if not own and (sibling or count > _MANY or entry.stat().st_size > _LARGE):
                    os.symlink(entry.path, goal)
                else:
                    shutil.copyfile(entry.path, goal)
                    shutil.copymode(entry.path, goal)

    copy_folder(source, place)


# --- beside the recordings ------------------------------------------------------------------------


def lock_path(folder: Path, name: str) -> Path:
    """The lock of the script *name* in *folder*."""
    return folder / f".lock-{_flat(name)}"


@contextlib.contextmanager
def made(folder: Path, name: str, mend: Callable[[], None] = lambda: None) -> Iterator[Workspace]:
    """A new workspace folder for the script *name* in *folder*; *mend* is called before it goes."""
    token = secrets.token_hex(4)  # that nobody else has
    at = Workspace(folder.resolve() / f".workspace-{_flat(name)}-{token}")
    try:
        at.create()
        yield at
    finally:
        mend()
        for path in (at.tmp, at.folder):
            remove(path)


def _flat(name: str) -> str:
    return name.replace("/", "--")


def remove_leftovers(folder: Path, warn: Callable[[str], None]) -> None:
    """Remove what recorders left that were killed; where the lock is free, its holder is gone.

    What is not ours to remove stays, and *warn* is told of it.
    """
    stagings: dict[str, list[Path]] = {
        path.name.removeprefix(".lock-"): [] for path in folder.glob(".lock-*")
    }
    for path in folder.glob(".workspace-*"):
        name = path.name.removeprefix(".workspace-").rpartition("-")[0]
        stagings.setdefault(name, []).append(path)
    for name, paths in stagings.items():
        lock = folder / f".lock-{name}"
        try:
            descriptor = try_lock(lock)
        except OSError as error:
            warn(f"{lock}: cannot be taken ({error.strerror}); left as it is")
            continue
        if descriptor is not None:
            try:
                for path in paths:
                    left = Workspace(folder.resolve() / path.name)
                    end_processes_of(left.folder)
                    for part in (left.tmp, path):
                        try:
                            remove(part)
                        except OSError as error:
                            warn(f"{part}: was left here and cannot be removed ({error.strerror})")
            finally:
                unlock(lock, descriptor)


def repair(folder: Path, root: Path, warn: Callable[[str], None]) -> None:
    """Give *folder*, and those above it up to *root*, the permissions back that a recorder needs.

    A script may have taken them away: changing them is nothing that a confined process cannot do.
    """
    for path in reversed([folder, *folder.parents]):
        if not path.is_relative_to(root):
            continue
        with contextlib.suppress(OSError):  # it is gone, or another user's
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o700 != 0o700 and path.is_dir():
                path.chmod(mode | 0o700)
                warn(f"{path}: had lost its permissions ({mode:03o}), and has them back")
