"""The scripts of the site's galleries, as conf.py describes them."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from gallery_recorder.project.galleries import Project, decode

ROOT = Path(__file__).resolve().parents[1]
READ = """
from gallery_recorder.project.galleries import encode, find
from gallery_recorder.project.reader import read

print(encode(read(find(None, None, ()))).decode())
"""


def _read() -> Project:
    """Read conf.py, which takes seconds: the first worker of pytest-xdist does it for all."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "project.lock", "a+", encoding="utf-8") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        of, _, text = kept.read().partition("\n")
        if not session or of != session:
            # In a process of its own, because Sphinx leaves directives in the process that reads.
            text = subprocess.run(
                [sys.executable, "-c", READ],
                cwd=ROOT,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            kept.truncate(0)
            kept.write(f"{session}\n{text}")
    return decode(text.encode(), Project)


PROJECT = _read()
#: The examples, and the address of each one's page below a version of the site, by name.
FILES = {example.name: example for example in PROJECT.executed}
PAGES = {name: f"{example.pages}/{example.path.stem}" for name, example in FILES.items()}
