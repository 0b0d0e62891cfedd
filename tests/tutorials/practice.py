"""The checker of exercises as readers download it."""

import importlib.util
import sys
from pathlib import Path

from tests.fixtures.readers import check
from triton_site.pages.exercises import write_checker

ROOT = Path(__file__).resolve().parents[2]
FILE = write_checker(ROOT / "tutorials", ROOT / "build/galleries/tests/exercise.py")

_spec = importlib.util.spec_from_file_location("exercise_check", FILE)
exercise = importlib.util.module_from_spec(_spec)
sys.modules["exercise_check"] = exercise
_spec.loader.exec_module(exercise)


def command(folder, *arguments, **files):
    """Execute the checker in *folder* with *files*; return its exit status and what it prints."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    done = check(folder, FILE, *arguments)
    return done.returncode, done.stdout + done.stderr
