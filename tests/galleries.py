"""What conf.py says: each script's file, and the address of its page.

It is read when somebody asks: that takes seconds. Of pytest-xdist's workers one does, for all.
"""

from __future__ import annotations

import fcntl
import os
import runpy
from pathlib import Path
from typing import Any

from gallery_recorder.project.galleries import Project, decode, encode, find, read

ROOT = Path(__file__).resolve().parents[1]


def __getattr__(name: str) -> Any:
    """``CONF``, its variables; ``PROJECT``; the ``FILES`` and ``PAGES`` of its scripts, by name."""
    if name == "CONF":
        found: Any = runpy.run_path(str(ROOT / "conf.py"))
    elif name == "PROJECT":
        found = _read()
    elif name == "FILES":
        found = {example.name: example for example in _value("PROJECT").recorded}
    elif name == "PAGES":  # below a version of the site, without ``.html``
        found = {n: f"{e.pages}/{e.path.stem}" for n, e in _value("FILES").items()}
    else:
        raise AttributeError(name)
    globals()[name] = found
    return found


def _value(name: str) -> Any:
    return globals().get(name) or __getattr__(name)


def _read() -> Project:
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "project.lock", "a+", encoding="utf-8") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        of, _, text = kept.read().partition("\n")
        if not session or of != session:
            text = encode(read(find(ROOT, None, ()))).decode()
            kept.truncate(0)
            kept.write(f"{session}\n{text}")
    return decode(text.encode(), Project)
