"""The checker of exercises as readers download it."""

from pathlib import Path

from tests.fixtures.readers import check
from triton_site.pages.exercises import write_checker

ROOT = Path(__file__).resolve().parents[2]
FILE = write_checker(ROOT, ROOT / "build/galleries/tests/exercise.pyz")


def command(folder, *arguments, **files):
    """Execute the checker in *folder* with *files*; return its exit status and what it prints."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    done = check(folder, FILE, *arguments)
    return done.returncode, done.stdout + done.stderr
