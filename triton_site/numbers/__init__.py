"""Numbers of the pages, computed from the recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_EXTENSIONS = (
    "calls",
    "figures",
    "kernel_map",
    "measured",
    "other_output",
    "performance",
    "predict",
    "releases",
    "scripts",
    "tables",
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Load the extensions of this folder."""
    for name in _EXTENSIONS:
        app.setup_extension(f"{__name__}.{name}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
