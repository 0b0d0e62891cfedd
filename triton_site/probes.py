"""Probes of this site: what the recorder cannot know about Triton, PyTorch and the GPU's memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

#: The device whose recordings are shown first and asked for.
REFERENCE_DEVICE = "nvidia-h200"

#: And the release of Triton: the recordings that must be there.
REFERENCE = f"{REFERENCE_DEVICE}/triton-3.9.0"

#: What recordings call the probe below.
SOFTWARE = f"{__name__}.software"


def triton_release() -> str:
    """The variant of a recording: the release of Triton that scripts run on."""
    return f"triton-{_version('triton', 'pytorch-triton', 'pytorch-triton-rocm', 'triton-rocm')}"


class software:  # noqa: N801 - its name is the name in the recordings
    """Versions, the toolkit, and the most memory that PyTorch held on the GPU, in bytes.

    It waits for the GPU after each block, so that what fails there fails in the block that started
    it. PyTorch is never imported here, only looked at where the script imported it.
    """

    def __init__(self) -> None:
        self._peak = 0
        self._following = False

    def after_block(self) -> None:
        """Wait for the GPU, and look at its memory."""
        if cuda := self._cuda():
            cuda.synchronize()
            self._look(cuda)
            self._follow_resets()

    def provenance(self) -> dict[str, Any]:
        """What the script used."""
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

    def _look(self, cuda: Any) -> None:
        self._peak = max(self._peak, cuda.max_memory_reserved())

    def _follow_resets(self) -> None:
        """Look before each reset of PyTorch's count, from now on."""
        if self._following:
            return
        self._following = True
        for name in ("cuda", "cuda.memory", "accelerator", "accelerator.memory"):
            module = sys.modules.get(f"torch.{name}")
            reset = getattr(module, "reset_peak_memory_stats", None)
            if reset is not None:
                module.reset_peak_memory_stats = self._looking(reset)  # type: ignore[union-attr]

    def _looking(self, reset: Callable[..., Any]) -> Callable[..., Any]:
        def looked(*arguments: Any, **named: Any) -> Any:
            if cuda := self._cuda():
                self._look(cuda)
            return reset(*arguments, **named)

        return looked


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if module := sys.modules.get(distributions[0]):
        return str(getattr(module, "__version__", "unknown"))
    return "not-installed"
