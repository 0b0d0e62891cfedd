"""A recording: what one script printed, drew and wrote on one device, and where that was.

On disk a recording is a folder, ``<recordings>/<device>[/<variant>]/<gallery>/<name>/``, with
``recording.json`` and the files that it names. A recording is replaced in one step, so whoever
reads it, and whatever dies meanwhile, finds a whole one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from gallery_recorder.errors import RecorderError
from gallery_recorder.source.commands import record_again
from gallery_recorder.store import atomic, images, names, reading
from gallery_recorder.store.reading import ReadingError

FILE_NAME = "recording.json"

#: The version of the structures below; raise it when one of them changes.
SCHEMA = 2

#: Bytes of any file of a recording, far more than the recorder accepts: what is larger is not one,
#: and is not read into memory.
MAX_READ = 256_000_000

#: Folders below one another, far more than the name of a recording has parts.
MAX_DEPTH = 20

#: Stands in a block's reStructuredText for the folder of the gallery's pages, which conf.py may
#: rename: ``/@@gallery@@/images/sphx_glr_plot_001.png``.
GALLERY_FOLDER = "@@gallery@@"

_FileName = Annotated[str, Meta(max_length=240, pattern=names.PATTERN)]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Slug = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}\Z")]
_Count = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a recording: never changed once made, and nothing in it goes unnamed."""


class Value(_Struct, frozen=True):
    """The value of a block's last expression, as plain text or as HTML."""

    kind: Literal["text", "html"]
    text: str


class Block(_Struct, frozen=True, omit_defaults=True):
    """What one code block did.

    ``line`` is where the block began when it was recorded, ``key`` the key of its code. ``rst`` is
    what sphinx-gallery made of its output, with :data:`GALLERY_FOLDER` for the folder of its page;
    ``images`` are the files that this needs, and ``data`` the files that the block wrote.
    ``memory`` is in MB, as sphinx-gallery measures it. ``probes`` holds what probes found, by their
    names.
    """

    line: _Count
    key: _Sha256
    seconds: _Seconds
    memory: float | None = None
    passed: bool = True
    exception: str | None = None
    rst: str = ""
    stdout: str = ""
    stderr: str = ""
    value: Value | None = None
    images: tuple[_FileName, ...] = ()
    data: tuple[_FileName, ...] = ()
    probes: dict[str, Any] = {}


class GpuState(_Struct, frozen=True):
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


class GpuFacts(_Struct, frozen=True):
    """What a GPU is, as far as its driver tells; ``memory`` in bytes."""

    compute_capability: str | None = None
    memory: _Count | None = None
    multiprocessors: _Count | None = None
    driver: str | None = None


class Provenance(_Struct, frozen=True):
    """The machine that made the recording. ``versions`` are those of the packages involved."""

    device: str
    kind: Literal["gpu", "cpu"]
    os: str
    python: str
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}
    commit: str | None = None
    gpu: GpuFacts | None = None
    before: GpuState | None = None
    after: GpuState | None = None


class RunFacts(_Struct, frozen=True):
    """The run: when it was (UTC), how long it took, and the most memory that it held.

    ``memory`` is in MB, as sphinx-gallery measures it where ``show_memory`` is on, and
    ``peak_host_memory`` in bytes. Times of a run that is not ``timed`` say nothing about the
    device. A run that ``failed`` was expected to, or only warned about.
    """

    recorded: Annotated[str, Meta(pattern=r"^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z\Z")]
    seconds: _Seconds
    memory: float | None = None
    peak_host_memory: _Count | None = None
    status: Literal["passed", "failed"] = "passed"
    timed: bool = True


class Reference(TypedDict):
    """An object that the code names, as sphinx-gallery found it; files are called after it."""

    name: str
    module: str
    module_short: str
    is_class: bool
    is_explicit: bool


class Recording(_Struct, frozen=True):
    """One script on one device. ``key`` is the key of the script that was executed.

    ``name`` is its path below the folder of its gallery, without suffix. ``probes`` holds what
    each probe says of the whole run, by its dotted name. ``backreferences`` are the objects that
    sphinx-gallery found in the code, and ``thumbnail`` is the file that a thumbnail is made of
    where a scraper chose one. ``files`` gives the SHA-256 of each file.
    """

    schema: int
    gallery: _Slug
    name: _FileName
    title: str
    key: _Sha256
    run: RunFacts
    provenance: Provenance
    blocks: tuple[Block, ...]
    variant: _Slug | None = None
    probes: dict[str, Any] = {}
    backreferences: dict[str, list[Reference]] = {}
    thumbnail: _FileName | None = None
    files: dict[_FileName, _Sha256] = {}

    @property
    def timed(self) -> bool:
        """Whether its times say how fast the device is."""
        return self.run.timed

    @property
    def data(self) -> list[str]:
        """The names of all files that its blocks wrote, in order."""
        return [name for block in self.blocks for name in block.data]

    def probe(self, name: str) -> dict[str, Any]:
        """What the probe *name* says of the run, empty where it was not asked."""
        found = self.probes.get(name)
        return found if isinstance(found, dict) else {}


class _SchemaOnly(msgspec.Struct):
    schema: int


# Made here, once: threads of the recorder decode at the same time, and msgspec prepares a type
# when it first meets it.
DECODER = msgspec.json.Decoder(Recording)
_SCHEMA_DECODER = msgspec.json.Decoder(_SchemaOnly)


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


def _folders(root: Path, follow: bool = True) -> list[Path]:
    """The folders in *root*, hidden ones left out; none where it is none itself."""
    try:
        with os.scandir(root) as entries:
            found = [e.name for e in entries if e.is_dir(follow_symlinks=follow)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [root / name for name in sorted(found) if not name.startswith(".")]


def all_recordings(root: Path) -> Iterator[Path]:
    """The folder of every recording below *root*; no link is followed, and no endless depth."""
    waiting = _folders(root, follow=False)[::-1]
    while waiting:
        folder = waiting.pop()
        if _is_there(folder / FILE_NAME):
            yield folder
        if len(folder.parts) - len(root.parts) < MAX_DEPTH:
            with suppress(PermissionError):
                waiting += _folders(folder, follow=False)[::-1]


def slug(device_name: str) -> str:
    """The folder name for a device: ``NVIDIA H200`` becomes ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "unknown"


# --- what it says ---------------------------------------------------------------------------------


def key_of(keys: Iterable[str]) -> str:
    """The key of a script, of the *keys* of its code blocks in their order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def digest(path: Path) -> str:
    """The SHA-256 of a recording's file.

    Raises:
        ReadingError: it is missing, too large, or no plain file.
    """
    return hashlib.sha256(reading.read_file(path, MAX_READ)).hexdigest()


def rst_of(block: Block, pages: str) -> str:
    """The block's reStructuredText, for a page in the folder *pages* of the documentation."""
    return block.rst.replace(GALLERY_FOLDER, pages.strip("/"))


def encode(recording: Recording) -> bytes:
    """The content of ``recording.json``: what is empty in a block is left out of it."""
    return msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n"


def load(folder: Path) -> Recording:
    """Read the recording in *folder* and check it, the hash of every file included.

    Raises:
        RecordingError: it is missing, damaged or of a schema that this version does not know.
    """
    remedy = record_again(folder.name)
    try:
        atomic.finish_interrupted_replacement(folder)
        content = reading.read_file(folder / FILE_NAME, MAX_READ)
        version = reading.decode(content, _SCHEMA_DECODER).schema
        if version != SCHEMA:
            remedy = "install a newer gallery-recorder" if version > SCHEMA else remedy
            raise ReadingError(f"`schema` is {version}, but this version reads schema {SCHEMA}")
        recording = reading.decode(content, DECODER)
        remedy = f"take it back from git, or {remedy}"
        for fault in (*_contradictions(recording), *_faults_of_files(folder, recording)):
            raise ReadingError(fault)
    except msgspec.ValidationError as error:  # Expected `str`, got `int` - at `$.run.recorded`
        text, found, field = str(error).partition(" - at `$")
        told = f"`{field.removesuffix('`').lstrip('.')}`: {text}" if found else text
        raise RecordingError(f"{folder / FILE_NAME}: {told}; {remedy}") from error
    except (ReadingError, OSError) as error:
        raise RecordingError(f"{folder / FILE_NAME}: {error}; {remedy}") from error
    return recording


def _contradictions(recording: Recording) -> Iterator[str]:
    """What in *recording* cannot be as it says."""
    run, where = recording.run, recording.provenance
    try:
        datetime.strptime(run.recorded, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        yield f"`run.recorded`: {run.recorded} is no date"
    if where.kind == "cpu" and (where.gpu or where.before or where.after):
        yield "`provenance.kind` is cpu, but it says what the GPU was"
    if where.kind == "gpu" and slug(where.device) == "cpu":
        yield f"`provenance.kind` is gpu, but `provenance.device` is {where.device}"
    if run.timed and where.kind == "cpu" and slug(where.device) != "cpu":
        yield f"`run.timed` is true of the {where.device}, whose times say nothing"
    named = [] if recording.thumbnail is None else [("thumbnail", recording.thumbnail)]
    for number, block in enumerate(recording.blocks):
        if not block.passed and run.status == "passed":
            yield f"`run.status` is passed, but `blocks[{number}]` did not pass"
        for field, files in (("images", block.images), ("data", block.data)):
            named += [(f"blocks[{number}].{field}[{n}]", name) for n, name in enumerate(files)]
    for field, name in named:
        shown = ".data[" not in field
        if shown and not images.is_image(name, thumbnail=field == "thumbnail"):
            yield f"`{field}` names {name}, which is no image"
        if name not in recording.files:
            yield f"`{field}` names {name}, which `files` does not list"
    for name, meant in recording.backreferences.items():
        parts = [name, *(r[part] for r in meant for part in ("name", "module", "module_short"))]
        if not all(part.isprintable() and not {*part} & {*"/\\"} for part in parts):
            yield f"`backreferences` names {name}, which is no object of code"
    for name in recording.files:
        if name == FILE_NAME or not names.is_path(name):
            yield f"`files` lists {name}, which is no file of it"
        if other := names.twin(name, recording.files):
            yield f"`files`: some systems cannot tell {name} from {other}"


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
