"""Replace a file or a folder as a whole: readers find the old or the new one, never a mixture.

Every file of a recording, and every file beside one, is written here. Linux exchanges two folders
in one step. File systems that cannot, such as NFS, need two renames.
"""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

#: Permissions for web servers and other users, whatever the umask.
FILE_MODE, FOLDER_MODE = 0o644, 0o755


@contextlib.contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """The new file *path*, open for writing; :func:`sync` then brings it to the disk.

    Nothing exists at *path* before: in a folder that git filled, a link may lead anywhere.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, FILE_MODE), "wb") as file:
        path.chmod(FILE_MODE)
        yield file


def sync(paths: Iterable[Path]) -> None:
    """Bring the files *paths* to the disk, in case of a power cut.

    For many files, this is far faster after all of them are written.
    """
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A new file, open for writing, that replaces the file *path* at the end."""
    remove_unfinished(path)
    new = path.with_name(f"{_unfinished(path)}{secrets.token_hex(4)}")
    try:
        with created(new) as file:
            yield file
        sync([new])
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def write(path: Path, content: bytes) -> None:
    """Replace the file *path* by one with this *content*."""
    with replaced(path) as file:
        file.write(content)


def copy(source: Path, path: Path) -> None:
    """Copy the content of *source* to the new file *path*."""
    with open(source, "rb") as content, created(path) as file:
        shutil.copyfileobj(content, file)


def remove_unfinished(path: Path) -> None:
    """Remove what a killed process left of a replacement of the file *path*."""
    beginning = _unfinished(path)
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path.parent):
            if entry.name.startswith(beginning):
                Path(entry.path).unlink(missing_ok=True)


def _unfinished(path: Path) -> str:
    """The beginning of the names of files that are to replace *path*."""
    return f".new-{path.name[:200]}-"


def make_folder(path: Path) -> None:
    """Make the folder *path* and the missing folders above it, readable by everybody."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError):  # another process has just made it
        path.mkdir()
        path.chmod(FOLDER_MODE)


def make_readable(folder: Path) -> None:
    """Let everybody read *folder* and all that is in it, whatever the umask."""
    folder.chmod(FOLDER_MODE)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)


def first_link(folder: Path, place: Path) -> Path | None:
    """The first symbolic link on the way from *folder* to *place* below it; None without one."""
    at = folder
    for part in place.parts:
        at = at / part
        if at.is_symlink():
            return at
    return None


def replace_folder(new: Path, folder: Path) -> None:
    """Rename *new* to *folder* and remove the old folder; if that is a link, its target stays."""
    if not os.path.lexists(folder):
        os.rename(new, folder)
    elif exchange(new, folder):
        remove(new)
    else:
        remove(aside := _aside(folder))
        os.rename(folder, aside)
        os.rename(new, folder)
        remove(aside)


@contextlib.contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """A new empty folder beside *folder*, removed at the end: what is made there can replace it."""
    made = folder.with_name(f"{_beside(folder)}{secrets.token_hex(4)}")
    make_folder(made)
    try:
        yield made
    finally:
        remove(made)


def has_leftovers(folder: Path) -> bool:
    """Whether a process was killed that was to replace *folder*."""
    return bool(_leftovers(folder)) or os.path.lexists(_aside(folder))


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left of replacements of *folder*; nobody else may replace it."""
    finish_interrupted_replacement(folder)
    for path in _leftovers(folder):
        remove(path)
    remove(_aside(folder))


def _leftovers(folder: Path) -> list[Path]:
    beginning = _beside(folder)
    with contextlib.suppress(FileNotFoundError):
        return [path for path in folder.parent.iterdir() if path.name.startswith(beginning)]
    return []


def _beside(folder: Path) -> str:
    """The beginning of the names of folders in which a replacement of *folder* is made."""
    return f".{folder.name}.new-"


def finish_interrupted_replacement(folder: Path) -> None:
    """Restore the old *folder* if :func:`replace_folder` was killed between its two renames."""
    if not os.path.lexists(folder):
        with contextlib.suppress(FileNotFoundError):
            os.rename(_aside(folder), folder)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the file system cannot."""
    libc, here, swap = ctypes.CDLL(None), -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    paths = (here, os.fsencode(one), here, os.fsencode(other))
    return hasattr(libc, "renameat2") and libc.renameat2(*paths, swap) == 0


def remove_empty_folders(path: Path, root: Path) -> None:
    """Remove the folders above *path* that are empty, up to *root*, which stays."""
    for above in path.parents:
        if root not in above.parents or (above.is_dir() and any(above.iterdir())):
            break
        with contextlib.suppress(FileNotFoundError):
            above.rmdir()


def remove(path: Path) -> None:
    """Remove a file, link or folder, even a folder without permissions or nested very deeply."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if os.path.lexists(path):
            subprocess.run([*command, "--", path], stderr=subprocess.DEVNULL, check=False)
    if os.path.lexists(path):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
