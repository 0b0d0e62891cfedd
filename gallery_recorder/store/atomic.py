"""Put a folder in the place of another one in one step.

Whoever reads meanwhile finds the old one or the new one, whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def replace_folder(new: Path, folder: Path) -> None:
    """Put *new* in the place of *folder*, which may not exist; remove what was there.

    What was there may be a link or a file: then that is removed, not what it leads to.
    """
    if folder.is_dir() and not folder.is_symlink() and not os.access(folder, os.R_OK | os.W_OK):
        with contextlib.suppress(OSError):  # only who may write to a folder may move it
            folder.chmod(0o700)
    if not os.path.lexists(folder):
        os.rename(new, folder)
    elif exchange(new, folder):
        remove(new)
    else:
        # No exchange on this system: between the two renames the old folder lies aside, where
        # finish_interrupted_replacement finds it and puts it back.
        aside = _aside(folder)
        os.rename(folder, aside)
        os.rename(new, folder)
        remove(aside)


def remove(folder: Path) -> None:
    """Remove *folder*, also where a script made folders in it that cannot be entered, or no end.

    Of a link or a file in its place, that alone: what a link leads to may be anybody's.

    Raises:
        OSError: it cannot be removed.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    with contextlib.suppress(RecursionError):  # folders a thousand deep
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", folder], stderr=subprocess.DEVNULL, check=False)
    if folder.exists():
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


def finish_interrupted_replacement(folder: Path) -> None:
    """Put the old *folder* back where :func:`replace_folder` was ended between its two renames."""
    aside = _aside(folder)
    if os.path.lexists(aside) and not os.path.lexists(folder):
        with contextlib.suppress(FileNotFoundError):  # another reader was faster
            os.rename(aside, folder)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, as Linux can; False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            return False
        raise OSError(code, os.strerror(code), str(other))
    return True


def sync(path: Path) -> None:
    """Have the file or folder *path* on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
