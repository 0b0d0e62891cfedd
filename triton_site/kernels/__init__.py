"""Kernels: what the compiler made of them, how they differ, and the API they are written in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Load the extensions of this folder."""
    for name in ("kernel_diff", "xray_pages", "kernel_panels", "occupancy", "reference"):
        app.setup_extension(f"{__name__}.{name}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
