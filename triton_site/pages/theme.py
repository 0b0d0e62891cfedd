"""The sheet of sphinx_rtd_theme in a cascade layer, so that every rule of ours wins over it.

Without the layer a rule has to be as specific as the theme's, which names up to nine classes.
"""

from __future__ import annotations

from pathlib import Path

import sphinx_rtd_theme

from gallery_recorder.api import downloads

#: The sheet below the theme's folder, and below ``_static``.
_SHEET = Path("css/theme.css")


def write_layered_sheet(folder: Path) -> Path:
    """Write the theme's sheet, in the layer ``theme``, below *folder*, and return *folder*.

    ``html_static_path`` names the folder: Sphinx copies its files over the theme's. An
    ``!important`` inside a layer would win over everything outside, so the sheet loses them.
    """
    theme = Path(sphinx_rtd_theme.__file__).parent / "static" / _SHEET
    text = theme.read_text(encoding="utf-8").replace("!important", "")
    downloads.write(folder / _SHEET, f"@layer theme {{\n{text}\n}}\n".encode())
    return folder
