"""How pages, downloads and the search of this site look and read: an extension for each topic."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

_EXTENSIONS = (
    "alt_texts",
    "assets",
    "cards",
    "citations",
    "commands",
    "exercises",
    "folds",
    "frame",
    "glossary",
    "keylines",
    "links",
    "mathml",
    "notebooks",
    "panels",
    "path",
    "previews",
    "record_line",
    "scrolling",
    "search",
    "security",
    "software",
    "solutions",
    "tiles",
    "traces",
    "twins",
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Load the extensions."""
    for name in _EXTENSIONS:
        app.setup_extension(f"{__name__}.{name}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
