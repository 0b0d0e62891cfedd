"""Take recordings that another machine made, and nothing else that came with them.

``python -m triton_site.pages.take FROM INTO`` reads the folder *FROM* with a program of this
checkout. What is no whole recording in its right place is refused, and then nothing is taken; each
recording is written anew from what was read, so that no name, link or mode comes along.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

from gallery_recorder.console import visible
from gallery_recorder.errors import RecorderError
from gallery_recorder.store import names, reading, recording
from gallery_recorder.store.format import FILE_NAME, MAX_READ
from gallery_recorder.store.recording import Location

_MAX_FILES = 100_000
_MAX_BYTES = 2_000_000_000
_SPECIAL = {*'<>:"|?*'}  # what Windows cannot have in a name


class TakeError(RecorderError):
    """A folder that holds something else than recordings; says what, and where."""


def take(source: Path, into: Path) -> list[Location]:
    """Put the recordings of *source* into *into*; return where they lie now.

    Raises:
        TakeError: something in *source* is no part of a recording; nothing was taken.
        RecordingError: a recording is damaged, or lies in the wrong place; nothing was taken.
    """
    files = _files(source)
    found = [recording.location_of(folder, source) for folder in recording.all_recordings(source)]
    expected = {
        location.folder / name for location in found for name in (FILE_NAME, *location.load().files)
    }
    folded: dict[str, str] = {}
    for path in sorted(expected):
        below = path.relative_to(source)
        name = below.as_posix()
        for part in (name, *map(str, below.parents)):
            if (other := folded.setdefault(normalize("NFC", part.casefold()), part)) != part:
                raise TakeError(f"{path}: some systems take {part} for {other}. Nothing was taken")
        if not names.is_path(name) or {*name} & _SPECIAL:
            raise TakeError(f"{path}: some systems can have no such file. Nothing was taken")
    if strangers := sorted(files - expected):
        raise TakeError(
            f"{strangers[0]}: belongs to no recording. Nothing was taken; leave it out, or record "
            "again"
        )
    return [copy(location, into) for location in found]


def _files(source: Path) -> set[Path]:
    """All files of *source*, none of them anything but a plain file."""
    if source.is_symlink() or not source.is_dir():
        raise TakeError(f"{source}: is no folder of recordings")
    found, size = set(), 0
    for folder, folders, others in os.walk(source):
        if len(Path(folder).relative_to(source).parts) > recording.MAX_DEPTH:
            raise TakeError(f"{source}: has folders deeper than any recording. Nothing was taken")
        for path in [Path(folder, name) for name in (*folders, *others)]:
            state = path.lstat()
            if stat.S_ISDIR(state.st_mode):
                continue
            if not stat.S_ISREG(state.st_mode):
                raise TakeError(f"{path}: is no plain file. Nothing was taken")
            found.add(path)
            size += state.st_size
            if len(found) > _MAX_FILES or size > _MAX_BYTES:
                raise TakeError(
                    f"{source}: holds more than {_MAX_FILES:,} files or {_MAX_BYTES:,} bytes. "
                    "Nothing was taken"
                )
    return found


def copy(location: Location, into: Path) -> Location:
    """Write one recording anew below *into*; return where it lies now."""
    made, target = location.load(), replace(location, root=into)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".take-", dir=into) as scratch:
        staging = Path(scratch, "recording")
        for name in made.files:
            path = staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(reading.read_file(location.folder / name, MAX_READ))
        staging.mkdir(exist_ok=True)
        recording.save(made, staging, target.folder)  # which compares the hashes once more
    return target


def main(arguments: list[str]) -> int:
    """Take the recordings of the first argument into the second."""
    if len(arguments) != 2:
        print("usage: python -m triton_site.pages.take FROM INTO", file=sys.stderr)
        return 2
    try:
        taken = take(Path(arguments[0]), Path(arguments[1]))
    except (RecorderError, OSError) as error:
        print(visible(f"gallery_recorder: {error}"), file=sys.stderr)
        return 1
    for location in taken:
        print(f"Taken: {location.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
