"""A recording: what one tutorial printed, drew and wrote on one device, and where that was.

On disk a recording is a folder, ``<recordings>/<device>/<tutorial>/``, with ``recording.json`` and
the files that it names. The structures below are its schema; msgspec validates it on load.
A recording is replaced in one step, so whoever reads it, and whatever dies meanwhile, finds a
whole one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gallery_recorder.store import atomic, reading
from gallery_recorder.store.reading import ReadingError

#: The version of the structures below; raise it when one of them changes.
SCHEMA = 1

#: The device whose recordings the site shows first and ``status --check`` asks for.
REFERENCE_DEVICE = "nvidia-h200"

#: The device name of recordings made without a GPU; they are never kept in git.
INTERPRETER = "interpreter"

FILE_NAME = "recording.json"

#: Bytes of any file of a recording, far more than the recorder accepts: what is larger is not one,
#: and is not read into memory.
MAX_READ = 256_000_000

_FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a recording: never changed once made, and nothing in it goes unnamed."""


class File(_Struct):
    """A file beside ``recording.json``: its name, its size in bytes and its hash."""

    name: _FileName
    bytes: _Count
    sha256: _Sha256


class Figure(_Struct):
    """A figure: its file, the text that stands for it, and its size in CSS pixels."""

    file: _FileName
    alt: str
    width: _Count
    height: _Count


class Repr(_Struct):
    """The value of a block's last expression, as plain text or as HTML."""

    kind: Literal["text", "html"]
    value: str


class Block(_Struct):
    """What one code block did.

    ``line`` is where the block began when it was recorded, ``key`` the key of its code.
    """

    line: _Count
    key: _Sha256
    seconds: _Seconds
    stdout: str = ""
    stderr: str = ""
    repr: Repr | None = None
    figures: tuple[Figure, ...] = ()
    data: tuple[_FileName, ...] = ()


class GpuState(_Struct):
    """The GPU at one moment: clocks in MHz, temperature in °C, power in W.

    ``throttling`` names the reasons for which the driver held the clocks down, and
    ``other_processes`` counts the processes, besides the recorder's own, that used the GPU.
    """

    sm_clock: _Count | None = None
    memory_clock: _Count | None = None
    temperature: _Count | None = None
    power: _Count | None = None
    throttling: tuple[str, ...] = ()
    other_processes: _Count | None = None


class Provenance(_Struct):
    """The machine and the software that made the recording."""

    device: str
    kind: Literal["gpu", "interpreter"]
    os: str
    python: str
    torch: str
    triton: str
    numpy: str
    matplotlib: str
    sphinx_gallery: str
    compute_capability: str | None = None
    memory: _Count | None = None
    multiprocessors: _Count | None = None
    driver: str | None = None
    toolkit: str | None = None
    environment: dict[str, str] = {}
    commit: str | None = None
    before: GpuState | None = None
    after: GpuState | None = None


class Run(_Struct):
    """One execution: when it was (UTC), how long it took, and the most memory it held, in bytes."""

    recorded: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    seconds: _Seconds
    peak_gpu_memory: _Count | None = None
    peak_host_memory: _Count | None = None
    status: Literal["passed"] = "passed"


class Recording(_Struct):
    """One tutorial on one device. ``key`` is the key of the script that was executed."""

    schema: int
    tutorial: str
    title: str
    key: _Sha256
    run: Run
    provenance: Provenance
    blocks: tuple[Block, ...]
    files: tuple[File, ...] = ()
    thumbnail: _FileName | None = None

    @property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter made it, so that it holds no timings."""
        return self.provenance.kind == "interpreter"


class RecordingError(Exception):
    """A recording that cannot be used; says which file and field, and what to do."""


def slug(device_name: str) -> str:
    """The folder name for a device: ``NVIDIA H200`` becomes ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "unknown"


def describe_file(path: Path) -> File:
    """The entry for a file that lies beside ``recording.json``.

    Raises:
        ReadingError: it is missing, too large, or no plain file.
    """
    content = reading.read_file(path, MAX_READ)
    return File(path.name, len(content), hashlib.sha256(content).hexdigest())


def load(folder: Path) -> Recording:
    """Read the recording in *folder* and check it, the hash of every file included.

    Raises:
        RecordingError: it is missing, damaged or of a schema that this version does not know.
    """
    path = folder / FILE_NAME
    remedy = f"record it again with: make record T={_tutorial_of(folder)} FORCE=1"
    try:
        atomic.finish_interrupted_replacement(folder)
        content = reading.read_file(path, MAX_READ)
        version = reading.decode(content, _SCHEMA_DECODER).schema
        if version != SCHEMA:
            advice = "update this checkout" if version > SCHEMA else remedy
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
    text = msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n"
    (staging / FILE_NAME).write_bytes(text)
    load(staging)
    for path in staging.iterdir():
        atomic.sync(path)
    atomic.sync(staging)
    folder.parent.mkdir(parents=True, exist_ok=True)
    atomic.replace_folder(staging, folder)
    atomic.sync(folder.parent)


def find(root: Path, tutorial: str) -> dict[str, Path]:
    """The folders that hold recordings of *tutorial* below *root*, by device."""
    if not root.is_dir():
        return {}
    return {
        device.name: device / tutorial
        for device in sorted(root.iterdir())
        if not device.name.startswith(".") and (device / tutorial / FILE_NAME).exists()
    }


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


def _check_files(folder: Path, recording: Recording, remedy: str) -> None:
    path = folder / FILE_NAME
    listed = {file.name for file in recording.files}
    for number, block in enumerate(recording.blocks):
        named = [(f"figures[{i}]", figure.file) for i, figure in enumerate(block.figures)]
        named += [(f"data[{i}]", name) for i, name in enumerate(block.data)]
        for field, name in named:
            if name not in listed:
                raise RecordingError(
                    f"{path}: `blocks[{number}].{field}` names {name}, which `files` does not "
                    f"list; {remedy}"
                )
    if recording.thumbnail is not None and recording.thumbnail not in listed:
        raise RecordingError(
            f"{path}: `thumbnail` names {recording.thumbnail}, which `files` does not list; "
            f"{remedy}"
        )
    for number, file in enumerate(recording.files):
        try:
            found = describe_file(folder / file.name)
        except ReadingError as error:
            raise RecordingError(
                f"{path}: `files[{number}]`: {file.name} {error}; take it back from git, or "
                f"{remedy}"
            ) from error
        if found != file:
            raise RecordingError(
                f"{path}: `files[{number}]`: {file.name} is not the file that was recorded "
                f"({found.bytes} bytes, sha256 {found.sha256[:12]}…, expected {file.bytes} bytes, "
                f"{file.sha256[:12]}…); take it back from git, or {remedy}"
            )


def _tutorial_of(folder: Path) -> str:
    """``<recordings>/<device>/<tutorial>``: the tutorial, which may be in a subfolder."""
    parts = folder.parts
    return "/".join(parts[-2:] if parts[-2:-1] == ("solutions",) else parts[-1:])


def all_recordings(root: Path) -> Iterator[tuple[str, Path]]:
    """Every recording below *root*: its device and its folder."""
    for path in sorted(root.glob(f"*/**/{FILE_NAME}")):
        parts = path.relative_to(root).parts
        if not any(part.startswith(".") for part in parts):
            yield parts[0], path.parent
