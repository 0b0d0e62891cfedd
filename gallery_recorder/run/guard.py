"""Keeps a script's files in its own folder and in the folders that conf.py allows.

What a script writes becomes part of its recording, so it has to be found, and nothing else on the
machine may change: a download that writes to ``../data`` would do that on a reader's machine too.
Python tells an audit hook about each file before it is opened; what a child process or a C library
opens is seen only where it leaves something beside the working directory.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Which arguments of an event are paths that change, and which are the descriptors of the folders
# that those are relative to. These events change a name in a folder and follow no link.
_NAME_CHANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.remove": ((0, 1),),
}
_FILE_CHANGES = ("os.truncate", "os.chmod", "os.chown")

#: Variables with which whoever starts the recorder says where a library keeps a cache.
_CACHE = re.compile(r"XDG_CONFIG_HOME|MPLCONFIGDIR|.+_CACHE(_DIR|_HOME|_PATH)?")


class Guard:
    """Calls *refuse* with the path when the program is about to write outside.

    It can be switched on once in a process and never off, which is what an audit hook is; it
    looks only while ``active``.
    """

    def __init__(self, allowed: Iterable[Path | str], refuse: Callable[[str], None]) -> None:
        self.active = False
        self._allowed = [os.path.realpath(path) for path in allowed]
        self._refuse = refuse

    def switch_on(self) -> None:
        """Begin to watch this process."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            path, mode, flags = arguments
            if flags & _WRITING_FLAGS or (isinstance(mode, str) and set(mode) & set("wax+")):
                self._check(path)
        elif event in _NAME_CHANGES:
            if event == "os.mkdir" and self._leads_to_allowed(arguments[0]):
                return  # a library makes ~/.config on its way to ~/.config/matplotlib
            for path, folder in _NAME_CHANGES[event]:
                self._check(arguments[path], arguments[folder], follow_link=False)
        elif event in _FILE_CHANGES:
            self._check(arguments[0])

    def _leads_to_allowed(self, path: Any) -> bool:
        real = os.path.realpath(os.fsdecode(path))
        return any(root.startswith(f"{real}/") for root in self._allowed)

    def _check(self, path: Any, folder: int = -1, follow_link: bool = True) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor that is open already
        path = os.fsdecode(path)
        absolute = os.path.join(
            os.getcwd() if folder < 0 else os.readlink(f"/proc/self/fd/{folder}"), path
        )
        parent, name = os.path.split(absolute)
        real = os.path.realpath(absolute) if follow_link else f"{os.path.realpath(parent)}/{name}"
        if any(os.path.commonpath((real, root)) == root for root in self._allowed):
            return
        if real.startswith(("/dev/", f"/proc/{os.getpid()}/")) or "/__pycache__/" in real:
            return
        self._refuse(path)


def caches() -> list[Path]:
    """The folders in which libraries keep what they computed, compiled or fetched."""
    named = [v for n, v in os.environ.items() if _CACHE.fullmatch(n) and os.path.isabs(v)]
    own = [os.path.expanduser(f"~/{name}") for name in (".cache", ".config/matplotlib")]
    return [Path(path) for path in (*named, *own, tempfile.gettempdir())]
