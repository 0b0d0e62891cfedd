"""The engine with another Sphinx and another sphinx-gallery, before everything else.

``python -m tests.peers.engines 8:0.20 FOLDER`` makes an environment with Sphinx 8 and
sphinx-gallery 0.20 and runs the tests of the rooms that touch them.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

TESTS = ["tests/project", "tests/run/test_fidelity.py", "tests/run/test_worker.py"]
TESTS += ["tests/render/test_adoption.py", "tests/render/test_adoption_untouched.py"]


def main(pair: str, folder: Path) -> int:
    """Make the environment where it is not there, and test."""
    sphinx, gallery = pair.split(":")
    place = folder / f"sphinx-{sphinx}-gallery-{gallery}"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        install += ["--disable-pip-version-check", f"sphinx=={sphinx}.*"]
        subprocess.run([*install, f"sphinx-gallery=={gallery}.*"], check=True)
        (packages,) = place.glob("lib/python*/site-packages")
        (packages / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n")
    print(f"== Sphinx {sphinx}, sphinx-gallery {gallery}", flush=True)
    command = [str(python), "-m", "pytest", "-q", *TESTS]
    return subprocess.run(command, env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]).resolve()))
