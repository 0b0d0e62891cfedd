"""Probes of this site: versions of Triton and PyTorch, and the GPU memory in use."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gallery_recorder.api import ReadingError, Recording
from triton_site.numbers import csv_files
from triton_site.references import SOFTWARE

_Version = Annotated[str, Meta(pattern=r"^[\w .+:/~-]{0,80}\Z")]


class _Found(msgspec.Struct, frozen=True):
    triton: _Version = ""
    torch: _Version = ""
    numpy: _Version = ""
    matplotlib: _Version = ""
    toolkit: _Version = ""
    architecture: _Version = ""
    multiprocessors: Annotated[int, Meta(gt=0, le=1 << 20)] | None = None
    peak_gpu_memory: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None


def triton_release() -> str:
    """The variant of a recording: the installed release of Triton."""
    return f"triton-{_version('triton', 'pytorch-triton', 'pytorch-triton-rocm', 'triton-rocm')}"


class software:  # noqa: N801 - its name is the name in the recordings
    """Versions, the toolkit, and the peak of the memory that PyTorch reserves on the GPU, in bytes.

    It waits for the GPU after each block, so an error of a kernel ends the block that launched it.
    It never imports PyTorch itself.
    """

    def __init__(self) -> None:
        self._peak = 0

    @staticmethod
    def check(folder: Path, recording: Recording) -> None:
        """Raise ReadingError if values or CSV files in a recording cannot be what we write."""
        try:
            found = msgspec.convert(recording.probes.get(SOFTWARE, {}), _Found)
        except msgspec.ValidationError as error:
            raise ReadingError(f"probes: {SOFTWARE}: {error}") from error
        release = f"triton-{found.triton}"
        if (recording.variant or "").startswith("triton-") and recording.variant != release:
            said = f"`variant` is {recording.variant}, but it was made with {release}"
            raise ReadingError(f"probes: {SOFTWARE}: {said}")
        for name in recording.files:  # pages look for files by name, whatever shows them
            if name.endswith(".csv"):
                csv_files.check(folder / name)

    def after_block(self) -> None:
        """Wait for the GPU, and note its memory."""
        if cuda := self._cuda():
            cuda.synchronize()
            self._peak = max(self._peak, cuda.max_memory_reserved())

    def provenance(self) -> dict[str, Any]:
        """Software and hardware that the script used."""
        found: dict[str, Any] = {
            "triton": triton_release().removeprefix("triton-"),
            "torch": _version("torch"),
            "numpy": _version("numpy"),
            "matplotlib": _version("matplotlib"),
        }
        torch = sys.modules.get("torch")
        if torch is not None:
            found["torch"] = str(torch.__version__)  # with the toolkit that it was built for
        if torch is not None and self._cuda():
            properties = torch.cuda.get_device_properties(0)
            hip = torch.version.hip
            found |= {
                "toolkit": f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}",
                "multiprocessors": properties.multi_processor_count,
                "peak_gpu_memory": self._peak,
            }
            if hip:
                found["architecture"] = properties.gcnArchName.split(":")[0]
        return found

    def _cuda(self) -> Any:
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        return cuda if cuda is not None and cuda.is_initialized() else None


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if module := sys.modules.get(distributions[0]):
        return str(getattr(module, "__version__", "unknown"))
    return "not-installed"
