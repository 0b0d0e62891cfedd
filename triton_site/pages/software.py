"""A recording's software, as its page and the list of recordings show it.

The facts are the versions of Triton and PyTorch, the toolkit, and the peak of GPU memory.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from gallery_recorder.api import Fact, Recording, readable_bytes
from triton_site.references import SOFTWARE


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with the engine."""
    app.connect("gallery-facts", facts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def facts(app: Sphinx, recording: Recording) -> list[Fact]:
    """The facts of one recording, in the order of the page."""
    del app
    values = recording.probe(SOFTWARE)
    triton, torch, toolkit = (str(values.get(key) or "") for key in ("triton", "torch", "toolkit"))
    found = [
        Fact("Triton", triton, f"Triton {triton}"),
        Fact("PyTorch", torch, f"PyTorch {torch}"),
        Fact("Toolkit", toolkit, toolkit),
        Fact("NumPy", str(values.get("numpy") or "")),
        Fact("Matplotlib", str(values.get("matplotlib") or "")),
    ]
    memory = values.get("peak_gpu_memory")
    if isinstance(memory, int) and memory > 0:
        text = readable_bytes(memory)
        line = f"{text} of GPU memory"
        found.append(Fact("Peak GPU memory", text, line, measured=True))
    if not recording.timed:
        found.append(Fact("Device", "Triton's interpreter on a CPU", "in Triton's interpreter"))
    return found
