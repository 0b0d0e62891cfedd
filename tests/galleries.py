"""What conf.py says: each script's file, and the address of its page."""

from __future__ import annotations

import runpy
from pathlib import Path

from gallery_recorder.source import project
from gallery_recorder.source.project import Example

ROOT = Path(__file__).resolve().parents[1]
CONF = runpy.run_path(str(ROOT / "conf.py"))
PROJECT = project.read(project.find(ROOT, None, ()))
FILES: dict[str, Example] = {example.name: example for example in PROJECT.recorded}
#: The page of each script, below a version of the site, without ``.html``.
PAGES: dict[str, str] = {
    name: f"{example.pages}/{example.path.stem}" for name, example in FILES.items()
}
