"""Put a folder in the place of another one in one step.

Whoever reads meanwhile finds the old one or the new one, whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
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
        _remove(new)
    else:
        # No exchange on this system: between the two renames the old folder lies aside, where
        # finish_interrupted_replacement finds it and puts it back.
        aside = _aside(folder)
        os.rename(folder, aside)
        os.rename(new, folder)
        _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove(path)
    else:
        path.unlink()


def remove(folder: Path) -> None:
    """Remove *folder*, also where a script made folders in it that cannot be entered."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
        for parent, folders, _ in os.walk(folder):
            for name in folders:
                if not os.path.islink(os.path.join(parent, name)):
                    with contextlib.suppress(OSError):
                        os.chmod(Path(parent, name), 0o700)
        shutil.rmtree(folder)


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
