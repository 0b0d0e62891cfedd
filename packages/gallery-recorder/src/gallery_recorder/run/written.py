"""The files that an example writes: images in its page's folder, data files in its own folder.

A file belongs to the block that wrote it last.
"""

import fnmatch
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from gallery_recorder.run.protocol import Refusal, Run, Written
from gallery_recorder.store.format import Block, is_path
from gallery_recorder.store.recording import digest

#: What tells that a file was written: inode, size and time of the last change.
_State = tuple[int, int, int]


class WrittenFiles:
    """The files that an example writes; ``owner`` is the block that wrote each path last.

    *docs* is the source folder of the documentation, *pages* the folder of the page in it.
    """

    def __init__(self, docs: Path, pages: Path, script: Path, run: Run) -> None:
        self.owner: dict[Path, int] = {}
        self._docs, self._pages, self._script = docs, pages, script
        self._patterns = run.settings.data
        self._size, self._count = run.limit("file"), run.limit("files")
        suffixes = ("", ".md5", ".new")
        self._ignored = [str(script)]
        self._ignored += [str(pages / f"{script.name}{suffix}") for suffix in suffixes]
        self._seen = self._scan()

    def _scan(self) -> dict[str, _State]:
        """The files that may be outputs, each with a value that changes when it is written."""
        found = dict(_states(self._docs, is_deep=True))
        found.update(_states(self._script.parent, is_deep=False))
        for path in self._ignored:
            found.pop(path, None)
        return found

    def look(self, block: int) -> None:
        """Assign new and changed files to *block*; Refusal if they are too many or too large."""
        found = self._scan()
        changed = sorted(path for path, state in found.items() if self._seen.get(path) != state)
        self._seen = found
        self.owner = {path: number for path, number in self.owner.items() if str(path) in found}
        for path in map(Path, changed):
            patterns = self._patterns if self._is_data(path) else ["*"]
            if not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns):
                continue
            if not is_path(self.name_of(path)):  # `.hidden`, for example
                continue
            size = found[str(path)][1]
            if size > self._size:
                wrote = f"wrote a file, {self.name_of(path)}, of {size:,} bytes"
                raise Refusal(
                    f"{wrote}; the limit is {self._size:,}",
                    "Write only what the page shows, or raise gallery_limits in conf.py.",
                )
            self.owner[path] = block
            if len(self.owner) > self._count:
                raise Refusal(
                    f"wrote more than {self._count} images and data files",
                    "Combine several plots in one figure, or raise gallery_limits in conf.py.",
                )

    def name_of(self, path: Path) -> str:
        """The name of the file *path* in the recording."""
        if self._pages in path.parents:
            return path.relative_to(self._pages).as_posix()
        if self._docs in path.parents:
            return f"source/{path.relative_to(self._docs).as_posix()}"
        return path.name

    def written(self) -> tuple[Written, ...]:
        """All files, in order."""
        owned = sorted(self.owner.items())
        return tuple(Written(p, self.name_of(p), n, self._is_data(p)) for p, n in owned)

    def _is_data(self, path: Path) -> bool:
        return path.parent == self._script.parent


def _states(folder: Path | str, is_deep: bool) -> Iterator[tuple[str, _State]]:
    """The files in *folder*, and below it if *is_deep*, by path."""
    for entry in os.scandir(folder):
        state = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(state.st_mode):
            yield entry.path, (state.st_ino, state.st_size, state.st_mtime_ns)
        elif is_deep and stat.S_ISDIR(state.st_mode):
            yield from _states(entry.path, is_deep)


def with_files(
    blocks: Sequence[Block], written: Iterable[Written], folder: Path, thumbnail: str | None = None
) -> tuple[tuple[Block, ...], dict[str, str]]:
    """Copy *written* files to *folder*; return *blocks* with their file names, and all digests."""
    files: dict[int, tuple[list[str], list[str]]] = {}
    digests = {}
    for one in written:
        if not one.path.is_file():  # removed by the next block, which did not finish
            continue
        target = folder / one.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one.path, target)
        digests[one.name] = digest(target)
        if one.name != thumbnail:
            files.setdefault(one.block, ([], []))[one.is_data].append(one.name)
    found = []
    for number, block in enumerate(blocks, 1):
        images, data = files.get(number, ([], []))
        found.append(replace(block, images=tuple(images), data=tuple(data)))
    return tuple(found), dict(sorted(digests.items()))
