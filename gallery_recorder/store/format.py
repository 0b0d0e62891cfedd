"""What a recording says: the structure of ``recording.json``, and what in it cannot be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from gallery_recorder.store import images, names

FILE_NAME = "recording.json"

#: The version of the structures below; raise it when one of them changes.
SCHEMA = 2

#: Bytes of any file of a recording, far more than the recorder accepts: what is larger is not one,
#: and is not read into memory.
MAX_READ = 256_000_000

#: Whatever reads or writes what probes found calls itself for each.
_MAX_NESTED = 100

#: Stands in a block's reStructuredText for the folder of the gallery's pages, which conf.py may
#: rename: ``/@@gallery@@/images/sphx_glr_plot_001.png``.
GALLERY_FOLDER = "@@gallery@@"

_FileName = Annotated[str, Meta(max_length=240, pattern=names.PATTERN)]
_FolderName = Annotated[str, Meta(max_length=240, pattern=rf"^{names.PART}\Z")]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Slug = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}\Z")]
# What is far beyond any machine stops the build of the page that counts with it.
_Count = Annotated[int, Meta(ge=0, le=10**18)]
_Seconds = Annotated[float, Meta(ge=0, le=1e8)]
_Memory = Annotated[float, Meta(ge=-1e12, le=1e12)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a recording: never changed once made, and nothing in it goes unnamed."""


class Value(_Struct, frozen=True):
    """The value of a block's last expression, as plain text or as HTML."""

    kind: Literal["text", "html"]
    text: str


class Block(_Struct, frozen=True, omit_defaults=True):
    """What one code block did.

    ``line`` is where the block began when it was recorded, ``key`` the key of its code. ``rst`` is
    what sphinx-gallery made of its output, with ``@@gallery@@`` for the folder of its page;
    ``images`` are the files that this needs, and ``data`` the files that the block wrote.
    ``memory`` is in MB, as sphinx-gallery measures it. ``probes`` holds what probes found, by their
    names.
    """

    line: _Count
    key: _Sha256
    seconds: _Seconds
    memory: _Memory | None = None
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
    memory: _Memory | None = None
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
    gallery: _FolderName
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


# Made here, once: threads of the recorder decode at the same time, and msgspec prepares a type
# when it first meets it.
DECODER = msgspec.json.Decoder(Recording)


def slug(device_name: str) -> str:
    """The folder name for a device: ``NVIDIA H200`` becomes ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "unknown"


def encode(recording: Recording) -> bytes:
    """The content of ``recording.json``: what is empty in a block is left out of it."""
    return msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n"


def contradictions(recording: Recording) -> Iterator[str]:
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
    level: list[Any] = [recording.probes, *(block.probes for block in recording.blocks)]
    for _ in range(_MAX_NESTED):
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        level = [v for values in inner for v in values if isinstance(v, dict | list)]
    if level:
        yield f"`probes` is nested more than {_MAX_NESTED} deep"
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
        if not is_code(name, meant):
            yield f"`backreferences` names {name}, which is no object of code"
    for name in recording.files:
        if name.casefold() == FILE_NAME or not names.is_path(name):
            yield f"`files` lists {name}, which is no file of it"
        if other := names.twin(name, recording.files):
            yield f"`files`: some systems cannot tell {name} from {other}"


def is_code(name: str, meant: Iterable[Mapping[str, Any]]) -> bool:
    """Whether files can be called after *name* and the objects that it may have *meant*."""
    parts = [name, *(r["name"] for r in meant)]
    parts += [r[part] for r in meant for part in ("module", "module_short") if r[part]]
    return all(
        part.isprintable()
        and 0 < len(part.encode()) <= 200
        and not part.startswith("..")
        and not {*part} & {*"/\\"}
        for part in parts
    )
