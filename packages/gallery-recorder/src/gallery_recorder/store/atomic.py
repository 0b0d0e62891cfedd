"""Replace a file or a folder as a whole: readers find the old or the new one, never a mixture.

Linux exchanges two folders in one step. File systems that cannot, such as NFS, need two renames.
"""

import contextlib
import ctypes
import errno
import os
import subprocess
from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Replace the file *path* by one with this *content*."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


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
