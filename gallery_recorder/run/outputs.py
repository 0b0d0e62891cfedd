"""The files that a script leaves: images in its page's folder, data in its own folder.

Each belongs to the block that wrote it last.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from rich import filesize

from gallery_recorder.run.protocol import Refusal
from gallery_recorder.store import names
from gallery_recorder.store.format import FILE_NAME, GALLERY_FOLDER
from gallery_recorder.store.images import is_image

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link"}


def data_rst(name: str, size: int, stem: str) -> str:
    """The link to the file *name* that a block of the script *stem* wrote."""
    return (
        ".. container:: gallery-data\n\n"
        f"   :download:`{name} </{GALLERY_FOLDER}/{stem}/{name}>` ({filesize.decimal(size)})\n"
    )


class Files:
    """The files of a script, and the block that wrote each of them last, by path.

    *pages* is the folder of the page, *docs* the source folder that it is in, where sphinx-gallery
    writes images; *patterns* say which data is kept, of at most *size* bytes a file. More than
    *count* files are too many.
    """

    def __init__(
        self, docs: Path, pages: Path, script: Path, patterns: Sequence[str], size: int, count: int
    ) -> None:
        self.owner: dict[Path, int] = {}
        self._docs, self._pages, self._script = docs, pages, script
        self._patterns = patterns
        self._size, self._count = size, count
        self._pages_own = {pages / f"{script.name}{suffix}" for suffix in ("", ".md5", ".new")}
        self._seen = self._scan()

    def _scan(self) -> dict[Path, tuple[int, int, int]]:
        found = {}
        for path in (*self._docs.rglob("*"), *self._script.parent.iterdir()):
            if path not in self._pages_own:
                state = path.lstat()
                found[path] = (state.st_ino, state.st_size, state.st_mtime_ns)
        return found

    def look(self, block: int) -> None:
        """Note what is new or changed since the last look as *block*'s.

        Raises:
            Refusal: it is something that cannot be kept.
        """
        found = self._scan()
        changed = sorted(path for path, state in found.items() if self._seen.get(path) != state)
        if self._script in changed or self._script not in found:
            raise Refusal(
                f"changed its own file, {self._script.name}", "Write to a file of another name."
            )
        self._seen = found
        self.owner = {path: number for path, number in self.owner.items() if path in found}
        for path in changed:
            is_data = path.parent == self._script.parent
            if self._is_data(path) if is_data else stat.S_ISREG(path.lstat().st_mode):
                size = path.stat().st_size
                if size > self._size:
                    shown = path.relative_to(path.parent if is_data else self._docs).as_posix()
                    raise Refusal(
                        f"made a file, {shown}, of {size:,} bytes; the limit is {self._size:,}",
                        "Keep what the page shows, not all that was measured. gallery_limits in "
                        "conf.py sets the limit.",
                    )
                if not is_data and not is_image(self.name_of(path)):
                    raise Refusal(
                        f"wrote {self.name_of(path)} where the documentation's pages are",
                        "Write to a plain file name, such as `results.csv`.",
                    )
                self.owner[path] = block
            if len(self.owner) > self._count:
                raise Refusal(
                    f"made more than {self._count} images and data files",
                    "Draw several plots as one figure, or write several tables to one file. "
                    "gallery_limits in conf.py sets the limit.",
                )

    def name_of(self, path: Path) -> str:
        """The name in the recording of the file *path*."""
        if self._pages in path.parents:
            return path.relative_to(self._pages).as_posix()
        if self._docs in path.parents:
            return f"source/{path.relative_to(self._docs).as_posix()}"
        return path.name

    def copy_to(self, folder: Path) -> dict[int, tuple[list[str], list[str]]]:
        """Copy all of them to *folder*; return the names of images and of data by block."""
        by_block: dict[int, tuple[list[str], list[str]]] = {}
        for path, block in sorted(self.owner.items()):
            name = self.name_of(path)
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            images, data = by_block.setdefault(block, ([], []))
            (data if path.parent == self._script.parent else images).append(name)
        return by_block

    def _is_data(self, path: Path) -> bool:
        """Whether the script's file *path* is to be kept."""
        name, mode = path.name, path.lstat().st_mode
        if not any(fnmatch.fnmatch(name, pattern) for pattern in self._patterns):
            return False
        if not stat.S_ISREG(mode):
            raise Refusal(
                f"made {_KINDS.get(stat.S_IFMT(mode), 'a special file')}, {name}, in its "
                "working directory",
                "Write plain files there; use the module `tempfile` for anything else.",
            )
        ours = name.lower() in (FILE_NAME, "images", "source")
        if ours or not _PLAIN_NAME.fullmatch(name) or not names.is_portable(name):
            raise Refusal(
                f"wrote a file called {name!r}",
                "Use letters, digits, '.', '_' and '-', and begin with a letter or a digit; some "
                f"names are devices to other systems, and {FILE_NAME} belongs to the recording.",
            )
        if other := names.twin(name, (p.name for p in path.parent.iterdir())):
            raise Refusal(
                f"wrote a file called {name!r} beside {other!r}",
                "Some systems cannot tell them apart; give one of them another name.",
            )
        return True
