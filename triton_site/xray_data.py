"""X-ray, in a recording: the types that its facts and code must have.

A recording is data from a pull request: numbers, texts and lists are bounded.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gallery_recorder.api import ReadingError, RecordedFiles, reading

#: The probe's name in recordings, and the file of intermediate code beside them.
PROBE = "triton_site.xray.kernels"
FILE_NAME = "xray.json.gz"

#: Characters of one intermediate code; longer code is cut.
MAX_CODE = 250_000

_Count = Annotated[int, Meta(ge=0, le=1 << 40)]
#: Warps of a program, by which those of a multiprocessor are divided.
_Warps = Annotated[int, Meta(ge=1, le=1 << 10)]
_Word = Annotated[str, Meta(max_length=240)]
_Constant = bool | Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)] | float | _Word | None
_Code = Annotated[str, Meta(max_length=MAX_CODE + 100)]


class Occupancy(msgspec.Struct, frozen=True):
    """Programs and warps on a multiprocessor, *of* how many warps, and the limiting resource."""

    programs: _Count
    warps: _Count
    of: _Count
    limit: _Word


class Facts(msgspec.Struct, frozen=True):
    """One compiled variant of a kernel."""

    name: _Word
    line: _Count
    constants: dict[_Word, _Constant]
    warps: _Warps
    stages: _Count | None
    registers: _Count
    spills: _Count
    shared: _Count
    bytes: _Count
    occupancy: Occupancy | None
    instructions: dict[_Word, _Count]


class Kernel(msgspec.Struct, frozen=True):
    """The typical variant of a kernel, and its intermediate code."""

    facts: Facts
    ttgir: _Code = ""
    ptx: _Code = ""
    amdgcn: _Code = ""


class Launched(msgspec.Struct, frozen=True):
    """The last launch of a kernel in the cell that names it: its shape, the number of its facts.

    ``kernel`` is None if the cell did not launch it.
    """

    shape: _Word
    kernel: _Count | None


class _Found(msgspec.Struct, frozen=True):
    kernels: Annotated[list[Facts], Meta(max_length=10_000)] = []
    launched: dict[_Word, Launched] = {}

    def __post_init__(self) -> None:
        for name, launch in self.launched.items():
            number = launch.kernel
            if number is None:
                continue
            if number >= len(self.kernels) or self.kernels[number].name != name:
                raise ValueError(f"the launch of {name} has the number of another kernel")


def launches(probes: dict[str, Any]) -> dict[str, tuple[str, Facts | None]]:
    """Of each kernel that a cell names the shape of its last launch there, and what it became.

    Raises:
        msgspec.ValidationError: *probes* are damaged.
    """
    found = msgspec.convert(probes.get(PROBE, {}), _Found)
    return {
        name: (launch.shape, None if launch.kernel is None else found.kernels[launch.kernel])
        for name, launch in found.launched.items()
    }


def names(probes: dict[str, Any]) -> set[str]:
    """The names of the kernels that a recording's script compiled."""
    return {facts.name for facts in msgspec.convert(probes.get(PROBE, {}), _Found).kernels}


def read(files: RecordedFiles, probes: dict[str, Any]) -> tuple[list[Facts], dict[str, Kernel]]:
    """The X-ray of the recording with these *files*, whose probes noted *probes*.

    Raises:
        ReadingError: it is damaged; the message names the file below the folder.
    """
    try:
        facts = msgspec.convert(probes.get(PROBE, {}), _Found).kernels
    except msgspec.ValidationError as error:
        raise ReadingError(f"probes: {PROBE}: {error}") from error
    path = files.path(FILE_NAME)
    if path is None:
        return facts, {}
    try:
        return facts, reading.load(path, dict[str, Kernel])
    except ReadingError as error:
        raise ReadingError(str(error).removeprefix(f"{files.folder}/")) from error
