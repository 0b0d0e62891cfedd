"""What conf.py says: the galleries, each script's file, and the address of its page."""

from __future__ import annotations

import runpy
from pathlib import Path

from gallery_recorder.source.script import ScriptFile, select_scripts

ROOT = Path(__file__).resolve().parents[1]
CONF = runpy.run_path(str(ROOT / "conf.py"))
_GALLERY_CONF = CONF["sphinx_gallery_conf"]
#: The folder of scripts, and the folder of pages below ``docs``.
GALLERIES = {
    (ROOT / "docs" / folder).resolve(): pages
    for folder, pages in zip(
        _GALLERY_CONF["examples_dirs"], _GALLERY_CONF["gallery_dirs"], strict=True
    )
}
FILES: dict[str, ScriptFile] = {file.name: file for file in select_scripts([*GALLERIES], [])}
#: The page of each script, below a version of the site, without ``.html``.
PAGES: dict[str, str] = {name: f"{GALLERIES[f.root]}/{name}" for name, f in FILES.items()}
