"""What all tests share: Triton's interpreter, and the built site, once a test session."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Choose the interpreter, except for the tests of ``-m gpu``.

    Triton decides when it is imported, so one process can have one or the other.
    """
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"


@contextmanager
def _lock() -> Iterator[None]:
    """One of pytest-xdist's workers builds, the others wait."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def only_builder() -> Iterator[None]:
    """During the test no other builds the site; ask for `site` before it."""
    with _lock():
        yield


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the site, built now; without changes since the last build that is quick."""
    with _lock():
        made = subprocess.run(
            ["make", "html", f"PYTHON={sys.executable}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert made.returncode == 0, f"make html failed:\n{made.stdout}\n{made.stderr}"
    return ROOT / "build" / "html"
