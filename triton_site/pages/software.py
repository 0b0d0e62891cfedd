"""What a page says of a recording's software: the versions of Triton and PyTorch, GPU memory."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from gallery_recorder.render.labels import Fact
from gallery_recorder.render.units import readable_bytes
from gallery_recorder.store.format import Recording

#: The probe that asks for them.
PROBE = "triton_site.probes.software"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx and the engine."""
    app.connect("gallery-facts", facts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def facts(app: Sphinx, made: Recording) -> list[Fact]:
    """The facts of one recording, in the order in which they are shown."""
    del app
    said = made.probe(PROBE)
    triton, torch, toolkit = (str(said.get(name) or "") for name in ("triton", "torch", "toolkit"))
    found = [
        Fact("Triton", triton, f"Triton {triton}", "Triton"),
        Fact("PyTorch", torch, f"PyTorch {torch}", "PyTorch"),
        Fact("Toolkit", toolkit, toolkit),
        Fact("NumPy", str(said.get("numpy") or "")),
        Fact("Matplotlib", str(said.get("matplotlib") or "")),
    ]
    memory = said.get("peak_gpu_memory")
    if isinstance(memory, int) and memory > 0:
        text = readable_bytes(memory)
        line = f"{text} of GPU memory"
        found.append(Fact("Peak GPU memory", text, line, "GPU memory", measured=True))
    if not made.timed:
        found.append(Fact("Device", "Triton's interpreter on a CPU", "in Triton's interpreter"))
    return found
