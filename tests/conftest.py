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


#: What a folder's tests need, or begin of a file's name says that they need: a browser, executed
#: tutorials, a cluster, or minutes.
_MARKS = {
    "browser/": "browser",
    "tutorials/": "execute",
    "guide/": "execute",
    "test_cluster": "cluster",
    "test_faults": "stress",
    "test_disturbed": "stress",
    "test_incremental": "stress",
    "test_keeper": "stress",
    "test_recorder": "stress",
    "test_publish": "stress",
    "test_fidelity": "stress",
    "test_menu": "stress",
    "test_replay": "stress",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need; `make quick` leaves those with a mark out."""
    for item in items:
        place = item.path.relative_to(ROOT / "tests").as_posix()
        for part, mark in _MARKS.items():
            if place.startswith(part) or f"/{part}" in place:
                item.add_marker(mark)
        if {"site", "published"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("site")


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
