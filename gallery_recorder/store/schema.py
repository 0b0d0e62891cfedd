"""What a recording says: the structures of ``recording.json``, which msgspec validates on load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

#: The version of the structures below; raise it when one of them changes.
SCHEMA = 2

#: Stands in a block's reStructuredText for the folder of the gallery's pages, which conf.py may
#: rename: ``/@@gallery@@/images/sphx_glr_plot_001.png``.
GALLERY_FOLDER = "@@gallery@@"

_PART = r"[^\x00-\x1f\x7f/\\.][^\x00-\x1f\x7f/\\]*"
# A path below the recording's folder: no step upwards, nothing hidden, no control character.
FILE_NAME_PATTERN = rf"^{_PART}(?:/{_PART})*$"
_FileName = Annotated[str, Meta(max_length=240, pattern=FILE_NAME_PATTERN)]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
_Slug = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$")]
_Count = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a recording: never changed once made, and nothing in it goes unnamed."""


class Value(_Struct, frozen=True):
    """The value of a block's last expression, as plain text or as HTML."""

    kind: Literal["text", "html"]
    text: str


class Block(_Struct, frozen=True):
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

    recorded: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    seconds: _Seconds
    memory: float | None = None
    peak_host_memory: _Count | None = None
    status: Literal["passed", "failed"] = "passed"
    timed: bool = True


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
    backreferences: dict[str, list[dict[str, Any]]] = {}
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
