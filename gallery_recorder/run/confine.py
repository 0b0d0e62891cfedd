"""Let this process and all that it starts write to a few folders only: the kernel sees to it.

Linux has Landlock for this since 5.13: a process gives up rights that neither it nor any program
that it starts gets back, whatever calls they make. Reading stays free. Where the kernel can, such
processes cannot send signals to any other either. Where it cannot do so at all, as within some
containers, nothing is confined, and :func:`confine` says so.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

# From linux/landlock.h and the table of system calls, the same on every architecture since 5.13.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1
_SCOPE_SIGNAL = 1 << 1

_WRITE_FILE = 1 << 1
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))  # folders, files, pipes, links, …
_REFER = 1 << 13  # rename and link from one folder into another, from version 2 on
_TRUNCATE = 1 << 14  # from version 3 on
#: What can be said of a file; the others are of folders.
_OF_FILES = _WRITE_FILE | _TRUNCATE

_SET_NO_NEW_PRIVILEGES = 38


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Which version of Landlock this kernel has; 0 where it has none, or it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _libc().syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))


def confine(writable: Iterable[Path]) -> bool:
    """Let this thread, and what it starts from now on, write below *writable* only.

    Call it before other threads are started. What does not exist is left out.

    Returns:
        Whether the kernel confines it; False where it cannot.
    """
    found = version()
    if not found:
        return False
    handled = _WRITE_FILE | _MAKE_AND_REMOVE
    handled |= _REFER if found >= 2 else 0
    handled |= _TRUNCATE if found >= 3 else 0
    libc = _libc()
    asked = _Ruleset(handled, 0, _SCOPE_SIGNAL if found >= 6 else 0)
    # Each version's structure ends where the next one's first new field begins.
    size = 24 if found >= 6 else 16 if found >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(asked), size, 0)
    if ruleset < 0:
        return False
    try:
        for path in writable:
            _allow(libc, ruleset, path, handled)
        if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return False
        return libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:  # it does not exist
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, descriptor)
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
