"""A recording: what one script printed, drew and wrote on one device, and where that was.

On disk a recording is a folder, ``<recordings>/<device>[/<variant>]/<gallery>/<name>/``, with
``recording.json`` and the files that it names. A recording is replaced in one step, so whoever
reads it, and whatever dies meanwhile, finds a whole one.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.commands import record_again
from gallery_recorder.project.script import key_of
from gallery_recorder.store import atomic, images, reading
from gallery_recorder.store.format import (
    DECODER,
    FILE_NAME,
    MAX_READ,
    SCHEMA,
    Recording,
    contradictions,
    encode,
    slug,
)
from gallery_recorder.store.reading import ReadingError

#: Folders below one another, far more than the name of a recording has parts.
MAX_DEPTH = 20


class RecordingError(RecorderError):
    """A recording that cannot be used; says which file and field, and what to do."""


# --- where it lies --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Location:
    """Where a recording lies: below which root, and for which device, variant and script."""

    root: Path
    device: str
    variant: str | None
    gallery: str
    name: str

    @property
    def folder(self) -> Path:
        """The folder with ``recording.json``."""
        return Path(self.root, self.device, self.variant or "", self.gallery, self.name)

    @property
    def place(self) -> str:
        """Device and variant: ``nvidia-h200/triton-3.9.0``."""
        return "/".join(filter(None, (self.device, self.variant)))

    def load(self, keys: Sequence[str] | None = None) -> Recording:
        """What :func:`load` returns, if it says that it is from here.

        With *keys*, those of a script's code blocks, a recording that says that it is of this
        script must have these blocks, in this order.

        Raises:
            RecordingError: as :func:`load`, or the recording belongs somewhere else.
        """
        made = load(self.folder)
        if keys is not None and made.key == key_of(keys):
            for number, (key, block) in enumerate(zip_longest(keys, made.blocks)):
                if block is None or block.key != key:
                    raise RecordingError(
                        f"{self.folder / FILE_NAME}: `key` is the script's, but "
                        f"`blocks[{number}]` is not; {record_again(self.name)}"
                    )
        location_of(self.folder, self.root, made)
        return made


def location_of(folder: Path, root: Path, made: Recording | None = None) -> Location:
    """Where the recording *made* in *folder*, below *root*, says that it lies; it may be read here.

    Raises:
        RecordingError: it cannot be read, or lies somewhere else.
    """
    made = made or load(folder)
    device = slug(made.provenance.device)
    location = Location(root, device, made.variant, made.gallery, made.name)
    if location.folder != folder:
        raise RecordingError(
            f"{folder / FILE_NAME}: it is of {made.gallery}/{made.name} on {location.place}, whose "
            f"place is {location.folder}; put it there, or {record_again(made.name)}"
        )
    return location


def find(root: Path, gallery: str, name: str) -> list[Location]:
    """Where recordings of the script *name* of *gallery* lie below *root*."""
    found = [
        Location(root, device.name, variant, gallery, name)
        for device in _folders(root)
        for variant in (None, *(path.name for path in _folders(device)))
    ]
    return [location for location in found if _is_there(location.folder / FILE_NAME)]


def _is_there(path: Path) -> bool:
    """Whether there is something, also where only its name can be seen."""
    try:
        path.lstat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _folders(root: Path) -> list[Path]:
    """The folders in *root*, hidden ones left out; none where it is none itself."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
        return [root / name for name in sorted(names) if not name.startswith(".")]
    return []


def all_recordings(root: Path) -> Iterator[Path]:
    """The folder of every recording below *root*; no link is followed, and no endless depth."""
    for place, folders, _ in os.walk(root):
        found = [Path(place, name) for name in sorted(folders) if not name.startswith(".")]
        found = [folder for folder in found if not os.path.islink(folder)]
        yield from (folder for folder in found if _is_there(folder / FILE_NAME))
        deep = len(Path(place).parts) - len(root.parts) + 1 >= MAX_DEPTH
        folders[:] = [] if deep else [folder.name for folder in found]


# --- what it says ---------------------------------------------------------------------------------


def digest(path: Path) -> str:
    """The SHA-256 of a recording's file.

    Raises:
        ReadingError: it is missing, too large, or no plain file.
    """
    return hashlib.sha256(reading.read_file(path, MAX_READ)).hexdigest()


def load(folder: Path) -> Recording:
    """Read the recording in *folder* and check it, the hash of every file included.

    Raises:
        RecordingError: it is missing, damaged or of a schema that this version does not know.
    """
    remedy = record_again(folder.name)
    try:
        atomic.finish_interrupted_replacement(folder)
        content = reading.read_file(folder / FILE_NAME, MAX_READ)
        recording = reading.decode(content, DECODER, SCHEMA)
        remedy = f"take it back from git, or {remedy}"
        for fault in (*contradictions(recording), *_faults_of_files(folder, recording)):
            raise ReadingError(fault)
    except (ReadingError, OSError) as error:
        if isinstance(error, reading.NewerError):
            remedy = "install a newer gallery-recorder"
        raise RecordingError(f"{folder / FILE_NAME}: {error}; {remedy}") from error
    return recording


def _faults_of_files(folder: Path, recording: Recording) -> Iterator[str]:
    """What is wrong with the files of *recording* in *folder*."""
    shown = {recording.thumbnail, *(name for block in recording.blocks for name in block.images)}
    for name, sha256 in recording.files.items():
        try:
            content = reading.read_file(folder / name, MAX_READ)
        except ReadingError as error:
            yield f"`files`: {name} {error}"
            continue
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            yield (
                f"`files`: {name} is not the file that was recorded (sha256 {found[:12]}…, "
                f"expected {sha256[:12]}…)"
            )
        elif name in shown and (wrong := images.wrong(name, content)):
            yield f"`files`: {name} {wrong}"


def save(recording: Recording, staging: Path, folder: Path) -> None:
    """Make the files in *staging*, with *recording*, the recording in *folder*, in one step.

    *staging* must be on the file system of *folder*; it is gone afterwards. A script could write to
    it: what is no file of *recording* there, nothing is written through. Every file is on the disk
    before the step, so even a power cut leaves the old recording or the new one.

    Raises:
        RecordingError: *staging* does not hold the files that *recording* names, or others.
        OSError: the disk is full or cannot be written; *folder* is as it was.
    """
    own = {staging / name for name in (*recording.files, FILE_NAME)}
    waiting, found = [staging], []
    while waiting:
        path = waiting.pop()
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode) and not (stat.S_ISREG(mode) and path in own):
            shown = path.relative_to(staging.parent).as_posix()
            raise RecordingError(f"{shown}: is no file of the recording that is to be there")
        found.append(path)
        path.chmod(0o755 if stat.S_ISDIR(mode) else 0o644)  # whatever a script's umask was
        waiting += path.iterdir() if stat.S_ISDIR(mode) else ()
    (staging / FILE_NAME).write_bytes(encode(recording))
    load(staging)
    for path in {*found, staging / FILE_NAME}:
        atomic.sync(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    atomic.replace_folder(staging, folder)
    atomic.sync(folder.parent)
