"""A recording: what one script printed, drew and wrote on one device, and where that was.

On disk a recording is a folder, ``<recordings>/<device>[/<variant>]/<gallery>/<name>/``, with
``recording.json`` and the files that it names. A recording is replaced in one step, so whoever
reads it, and whatever dies meanwhile, finds a whole one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from gallery_recorder.source.commands import record_again
from gallery_recorder.store import atomic, names, reading
from gallery_recorder.store.images import wrong as wrong_image
from gallery_recorder.store.reading import ReadingError
from gallery_recorder.store.schema import (
    FILE_NAME_PATTERN,
    GALLERY_FOLDER,
    SCHEMA,
    Block,
    GpuFacts,
    GpuState,
    Provenance,
    Recording,
    RunFacts,
    Value,
)

__all__ = [
    "DECODER",
    "FILE_NAME",
    "GALLERY_FOLDER",
    "MAX_READ",
    "SCHEMA",
    "Block",
    "GpuFacts",
    "GpuState",
    "Location",
    "Provenance",
    "Recording",
    "RecordingError",
    "RunFacts",
    "Value",
    "all_recordings",
    "digest",
    "encode",
    "find",
    "key_of",
    "load",
    "location_of",
    "newer",
    "order_of",
    "rst_of",
    "save",
    "slug",
    "with_origin",
]

FILE_NAME = "recording.json"

#: Bytes of any file of a recording, far more than the recorder accepts: what is larger is not one,
#: and is not read into memory.
MAX_READ = 256_000_000


class RecordingError(Exception):
    """A recording that cannot be used; says which file and field, and what to do."""


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
        found = load(self.folder)
        if keys is not None and found.key == key_of(keys):
            for number, (key, block) in enumerate(zip_longest(keys, found.blocks)):
                if block is None or block.key != key:
                    raise RecordingError(
                        f"{self.folder / FILE_NAME}: `key` is the script's, but "
                        f"`blocks[{number}]` is not; {record_again(self.name)}"
                    )
        for field, says, lies in (
            ("provenance.device", slug(found.provenance.device), self.device),
            ("variant", found.variant, self.variant),
            ("gallery", found.gallery, self.gallery),
            ("name", found.name, self.name),
        ):
            if says != lies:
                raise RecordingError(
                    f"{self.folder / FILE_NAME}: `{field}` says {says}, but it lies in the folder "
                    f"of {lies}; put it where it belongs, or {record_again(self.name)}"
                )
        return found


def key_of(keys: Iterable[str]) -> str:
    """The key of a script, of the *keys* of its code blocks in their order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def slug(device_name: str) -> str:
    """The folder name for a device: ``NVIDIA H200`` becomes ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "unknown"


def with_origin(
    made: Provenance, device: str, kind: Literal["gpu", "cpu"], commit: str | None
) -> Provenance:
    """The provenance *made*, of that device and that commit."""
    return msgspec.structs.replace(made, device=device, kind=kind, commit=commit)


def is_file_name(name: str) -> bool:
    """Whether a recording can have a file called *name*, a path below its folder."""
    parts = PurePosixPath(name).parts
    return (
        re.fullmatch(FILE_NAME_PATTERN.strip("^$"), name) is not None
        and len(name) <= 240
        and name != FILE_NAME
        and ".." not in parts
        and all(names.is_portable(part) for part in parts)
    )


def digest(path: Path) -> str:
    """The SHA-256 of a recording's file.

    Raises:
        ReadingError: it is missing, too large, or no plain file.
    """
    return hashlib.sha256(reading.read_file(path, MAX_READ)).hexdigest()


def newer(variant: str, other: str) -> bool:
    """Whether *variant* is of a later version than *other*: ``a-3.10`` than ``a-3.9``."""
    return order_of(variant) > order_of(other)


def order_of(variant: str) -> list[tuple[int, int | str]]:
    """What variants are sorted by, versions as numbers."""
    parts = re.findall(r"\d+|\D+", variant)
    return [(1, int(part)) if part.isdigit() else (0, part) for part in parts]


def rst_of(block: Block, pages: str) -> str:
    """The block's reStructuredText, for a page in the folder *pages* of the documentation."""
    return block.rst.replace(GALLERY_FOLDER, pages.strip("/"))


def load(folder: Path) -> Recording:
    """Read the recording in *folder* and check it, the hash of every file included.

    Raises:
        RecordingError: it is missing, damaged or of a schema that this version does not know.
    """
    path = folder / FILE_NAME
    remedy = record_again(folder.name)
    try:
        atomic.finish_interrupted_replacement(folder)
        content = reading.read_file(path, MAX_READ)
        version = reading.decode(content, _SCHEMA_DECODER).schema
        if version != SCHEMA:
            advice = (
                "install a newer gallery-recorder"
                if version > SCHEMA
                else "convert it with `gallery-recorder convert`, or " + remedy
            )
            raise RecordingError(
                f"{path}: `schema` is {version}, but this version reads schema {SCHEMA}; {advice}"
            )
        recording = reading.decode(content, DECODER)
    except msgspec.ValidationError as error:
        raise RecordingError(f"{path}: {_in_our_words(error)}; {remedy}") from error
    except ReadingError as error:
        raise RecordingError(f"{path}: {error}; {remedy}") from error
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    if wrong := _contradiction(recording):
        raise RecordingError(f"{path}: {wrong}; {remedy}")
    _check_files(folder, recording, remedy)
    return recording


def save(recording: Recording, staging: Path, folder: Path) -> None:
    """Make the files in *staging*, with *recording*, the recording in *folder*, in one step.

    *staging* must be on the file system of *folder*; it is gone afterwards. Every file is on the
    disk before the step, so even a power cut leaves the old recording or the new one.

    Raises:
        RecordingError: *staging* does not hold the files that *recording* names.
        OSError: the disk is full or cannot be written; *folder* is as it was.
    """
    (staging / FILE_NAME).write_bytes(encode(recording))
    load(staging)
    for path in staging.rglob("*"):
        atomic.sync(path)
    atomic.sync(staging)
    folder.parent.mkdir(parents=True, exist_ok=True)
    atomic.replace_folder(staging, folder)
    atomic.sync(folder.parent)


def encode(recording: Recording) -> bytes:
    """The content of ``recording.json``: what is empty is left out of it."""
    plain = msgspec.to_builtins(recording)
    for block in plain["blocks"]:
        for field in [name for name, value in block.items() if not value and name != "passed"]:
            if field not in ("line", "key", "seconds"):
                del block[field]
        if block["passed"]:
            del block["passed"]
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def find(root: Path, gallery: str, name: str) -> list[Location]:
    """Where recordings of the script *name* of *gallery* lie below *root*."""
    found = []
    for device in _folders(root):
        for variant in (None, *(path.name for path in _folders(device))):
            location = Location(root, device.name, variant, gallery, name)
            if (location.folder / FILE_NAME).exists():
                found.append(location)
    return found


def all_recordings(root: Path) -> Iterator[Path]:
    """The folder of every recording below *root*."""
    for path in sorted(root.glob(f"*/**/{FILE_NAME}")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path.parent


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
            f"{folder / FILE_NAME}: it is of {made.gallery}/{made.name} on {device}, whose place "
            f"is {location.folder}; put it there, or {record_again(made.name)}"
        )
    return location


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(p for p in root.iterdir() if not p.name.startswith(".") and p.is_dir())


class _SchemaOnly(msgspec.Struct):
    schema: int


# Made here, once: threads of the recorder decode at the same time, and msgspec prepares a type
# when it first meets it.
DECODER = msgspec.json.Decoder(Recording)
_SCHEMA_DECODER = msgspec.json.Decoder(_SchemaOnly)


def _in_our_words(error: msgspec.ValidationError) -> str:
    """``Expected `str`, got `int` - at `$.run.recorded``` with the field first."""
    message = str(error)
    text, found, field = message.partition(" - at `$")
    return f"`{field.removesuffix('`').lstrip('.')}`: {text}" if found else message


def _contradiction(recording: Recording) -> str:
    """What in *recording* cannot be as it says; nothing where all fits together."""
    run, where = recording.run, recording.provenance
    try:
        datetime.strptime(run.recorded, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return f"`run.recorded`: {run.recorded} is no date"
    if where.kind == "cpu" and (where.gpu or where.before or where.after):
        return "`provenance.kind` is cpu, but it says what the GPU was"
    if where.kind == "gpu" and slug(where.device) == "cpu":
        return f"`provenance.kind` is gpu, but `provenance.device` is {where.device}"
    if run.timed and where.kind == "cpu" and slug(where.device) != "cpu":
        return f"`run.timed` is true of the {where.device}, whose times say nothing"
    for number, block in enumerate(recording.blocks):
        if not block.passed and run.status == "passed":
            return f"`run.status` is passed, but `blocks[{number}]` did not pass"
    for name in recording.files:
        if other := names.twin(name, recording.files):
            return f"`files`: some systems cannot tell {name} from {other}"
    return ""


def _check_files(folder: Path, recording: Recording, remedy: str) -> None:
    path = folder / FILE_NAME
    named = [
        (f"blocks[{number}].{field}[{index}]", name)
        for number, block in enumerate(recording.blocks)
        for field, names in (("images", block.images), ("data", block.data))
        for index, name in enumerate(names)
    ]
    if recording.thumbnail is not None:
        named.append(("thumbnail", recording.thumbnail))
    for field, name in named:
        if name not in recording.files:
            raise RecordingError(
                f"{path}: `{field}` names {name}, which `files` does not list; {remedy}"
            )
    images = {recording.thumbnail, *(name for block in recording.blocks for name in block.images)}
    for name, sha256 in recording.files.items():
        if not is_file_name(name):
            raise RecordingError(f"{path}: `files` lists {name}, which is no file of it; {remedy}")
        try:
            content = reading.read_file(folder / name, MAX_READ)
        except ReadingError as error:
            raise RecordingError(
                f"{path}: `files`: {name} {error}; take it back from git, or {remedy}"
            ) from error
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise RecordingError(
                f"{path}: `files`: {name} is not the file that was recorded (sha256 "
                f"{found[:12]}…, expected {sha256[:12]}…); take it back from git, or {remedy}"
            )
        if name in images and (wrong := wrong_image(name, content)):
            raise RecordingError(f"{path}: `files`: {name} {wrong}; {remedy}")
