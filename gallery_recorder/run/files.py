"""The files that a script leaves: images in its page's folder, data in its own folder.

Each belongs to the block that wrote it last.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from rich import filesize

from gallery_recorder.run.messages import Refusal
from gallery_recorder.store import names
from gallery_recorder.store.recording import FILE_NAME, GALLERY_FOLDER

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_State = tuple[int, int, int]


def data_rst(name: str, size: int, stem: str) -> str:
    """The link to the file *name* that a block of the script *stem* wrote."""
    return (
        ".. container:: gallery-data\n\n"
        f"   :download:`{name} </{GALLERY_FOLDER}/{stem}/{name}>` ({filesize.decimal(size)})\n"
    )


class Files:
    """The files of a folder, and the block that wrote each of them last, by relative path."""

    def __init__(
        self,
        folder: Path,
        wanted: Callable[[str, Path], bool],
        recursive: bool,
        limit: int,
    ) -> None:
        self.folder = folder
        self.owner: dict[str, int] = {}
        self._wanted = wanted
        self._recursive = recursive
        self._limit = limit
        self._seen = self._scan()

    def _scan(self) -> dict[str, _State]:
        found = self.folder.rglob("*") if self._recursive else self.folder.iterdir()
        states = {}
        for path in found:
            state = path.lstat()
            name = path.relative_to(self.folder).as_posix()
            if not (self._recursive and stat.S_ISDIR(state.st_mode)):
                states[name] = (state.st_ino, state.st_size, state.st_mtime_ns)
        return states

    def look(self, block: int) -> list[str]:
        """Note what is new or changed since the last look as *block*'s; return the names.

        Raises:
            Refusal: a file is larger than the limit.
        """
        found = self._scan()
        changed = sorted(name for name, state in found.items() if self._seen.get(name) != state)
        self._seen = found
        kept = [name for name in changed if self._wanted(name, self.folder / name)]
        for name in kept:
            size = (self.folder / name).stat().st_size
            if size > self._limit:
                raise Refusal(
                    f"made a file, {name}, of {size:,} bytes; the limit is {self._limit:,}",
                    "Keep what the page shows, not all that was measured. gallery_limits in "
                    "conf.py sets the limit.",
                )
            self.owner[name] = block
        self.owner = {name: number for name, number in self.owner.items() if name in found}
        return kept


class Watched:
    """What the scripts' files are: images that sphinx-gallery writes, and data to keep.

    *pages* is the folder of the page, *docs* the source folder that it is in, *patterns* say which
    data is kept.
    """

    def __init__(
        self, docs: Path, pages: Path, script: Path, patterns: Sequence[str], size: int, count: int
    ) -> None:
        self._docs, self._pages, self._script = docs, pages, script
        self._patterns = patterns
        self._count = count
        own = {f"{script.name}{suffix}" for suffix in ("", ".md5", ".new")}
        self.images = Files(
            docs,
            lambda name, path: (
                not (path.parent == pages and path.name in own)
                and path.is_file()
                and not path.is_symlink()
            ),
            recursive=True,
            limit=size,
        )
        self.data = Files(script.parent, self._is_data, recursive=False, limit=size)
        self._own_state = script.stat()

    def look(self, block: int) -> tuple[list[str], list[str]]:
        """What *block* wrote: images, by the names that they are recorded under, and data.

        Raises:
            Refusal: it is something that cannot be kept.
        """
        now = self._script.stat() if self._script.exists() else None
        if now is None or (now.st_ino, now.st_mtime_ns) != (
            self._own_state.st_ino,
            self._own_state.st_mtime_ns,
        ):
            raise Refusal(
                f"changed its own file, {self._script.name}", "Write to a file of another name."
            )
        images = [self.recorded_name(name) for name in self.images.look(block)]
        data = self.data.look(block) if self._patterns else []
        if len(self.images.owner) + len(self.data.owner) > self._count:
            raise Refusal(
                f"made more than {self._count} images and data files",
                "Draw several plots as one figure, or write several tables to one file. "
                "gallery_limits in conf.py sets the limit.",
            )
        return images, data

    def recorded_name(self, name: str) -> str:
        """The name in the recording of the image *name*, a path below the source folder."""
        path = self._docs / name
        if self._pages in path.parents:
            return path.relative_to(self._pages).as_posix()
        return f"source/{name}"

    def copy_to(self, folder: Path) -> dict[int, tuple[list[str], list[str]]]:
        """Copy all of them to *folder*; return the names of images and of data by block."""
        by_block: dict[int, tuple[list[str], list[str]]] = {}
        for index, files in enumerate((self.images, self.data)):
            for name, block in sorted(files.owner.items()):
                kept = name if index else self.recorded_name(name)
                target = folder / kept
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((files.folder / name).read_bytes())
                by_block.setdefault(block, ([], []))[index].append(kept)
        return by_block

    def _is_data(self, name: str, path: Path) -> bool:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in self._patterns):
            return False
        mode = path.lstat().st_mode
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link"}
        if not stat.S_ISREG(mode):
            raise Refusal(
                f"made {kinds.get(stat.S_IFMT(mode), 'a special file')}, {name}, in its "
                "working directory",
                "Write plain files there; use the module `tempfile` for anything else.",
            )
        if (
            not _PLAIN_NAME.fullmatch(name)
            or not names.is_portable(name)
            or name.lower() in (FILE_NAME, "images", "source")
        ):
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
