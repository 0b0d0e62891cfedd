"""What all tests share: Triton's interpreter, and the built site, once a test session."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Choose the interpreter, except for the tests of ``-m gpu``, and hear all signals.

    Triton decides when it is imported, so one process can have one or the other.
    """
    # How long an example takes on a busy machine says nothing. Who runs the tests again tries the
    # same examples: what fails has to do with what was changed.
    with contextlib.suppress(ImportError):  # where GPUs are tested, it may be missing
        import hypothesis

        hypothesis.settings.register_profile(
            "tests",
            deadline=None,
            derandomize=True,
            suppress_health_check=[hypothesis.HealthCheck.too_slow],
        )
        hypothesis.settings.load_profile("tests")
    # jsonschema would read the grammar of addresses, more than a second in every process that
    # imports it or nbformat, for a check of formats that nothing here asks for.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
        # Blocks are small: threads that share the work on one wait for each other, and keep
        # processors busy while they do, for a fifth of the time of some tutorials.
        os.environ["OMP_NUM_THREADS"] = "1"  # which OpenBLAS heeds, too
    # Hundreds of processes import the engine: compiled once, whatever the surroundings ask for.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Who starts the tests with nohup or in the background has these ignored, and so would whatever
    # they start; with a handler here, what they start has its own way again.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


#: What a folder's tests need, or begin of a file's name says that they need: a browser, executed
#: tutorials, a cluster, or recorders and builds.
_MARKS = {
    "browser/": "browser",
    "tutorials/": "execute",
    "guide/": "execute",
    "test_cluster": "cluster",
    "docs/test_guide": "execute",
    "docs/test_semantics": "execute",
    "test_adoption": "record",
    "test_child": "record",
    "test_disturbed": "record",
    "test_faults": "record",
    "test_fidelity": "record",
    "test_incremental": "record",
    "test_keeper": "record",
    "test_menu": "record",
    "test_mutated": "record",
    "test_process": "record",
    "test_publish": "record",
    "test_recorder": "record",
    "test_reference": "record",
    "test_release": "record",
    "test_replay": "record",
    "test_switch": "record",
    "test_warm": "record",
}

#: In this order tests begin; those without such a mark come last.
_LONG = ("browser", "execute", "cluster", "record", "site")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need; `make quick` leaves those with a mark out."""
    for item in items:
        place = item.path.relative_to(ROOT / "tests").as_posix()
        for part, mark in _MARKS.items():
            if place.startswith(part) or f"/{part}" in place:
                item.add_marker(mark)
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker("site")
    files: dict[Path, int] = {}  # which stay together
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        order = next((n for n, name in enumerate(_LONG) if name in marks), len(_LONG))
        files[item.path] = min(order, files.get(item.path, order))
    items.sort(key=lambda item: files[item.path])


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder to write to hundreds of times, where no disk is waited for if there is such a place.

    A process that is killed leaves the same there: what it has written belongs to the system.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _lock() -> Iterator[TextIO]:
    """One of pytest-xdist's workers builds, the others wait."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "site.lock", "a+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        yield lock


@pytest.fixture
def only_builder() -> Iterator[None]:
    """During the test no other builds the site; ask for `site` before it."""
    with _lock():
        yield


@pytest.fixture(scope="session")
def two_devices_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of two tutorials, recorded with two releases and on two devices."""
    from tests.fixtures import two_devices

    return two_devices.build(two_devices.project(tmp_path_factory.mktemp("two") / "project"))


@pytest.fixture(scope="session")
def site(testrun_uid: str) -> Path:
    """The folder of the site, built now by one worker; without changes that is quick."""
    with _lock() as lock:
        if lock.read() != testrun_uid:
            made = subprocess.run(
                ["make", "html", f"PYTHON={sys.executable}"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert made.returncode == 0, f"make html failed:\n{made.stdout}\n{made.stderr}"
            lock.truncate(0)
            lock.write(testrun_uid)
    return ROOT / "build" / "html"


# --- which worker executes what -------------------------------------------------------------------


def _scope(test: str) -> str:
    """What is executed by one worker, one after the other: *test* and those with its fixtures."""
    file, _, name = test.partition("::")
    if name.startswith("test_runs_"):  # whole scripts, each for itself
        return test
    folder = file.rpartition("/")[0]
    # The longest folder is two: each script is executed by the worker whose tests look at it.
    if folder == "tests/tutorials" and _LATE.search(test):
        return f"{folder} from 06 on"
    if file in ("tests/docs/test_guide.py", "tests/docs/test_semantics.py"):
        return "tests/tutorials"  # which has a process with PyTorch to copy, too
    alone = file.endswith(("_in_lab.py", "browser/test_switch.py"))  # other sites, other browsers
    return folder if folder in ("tests/browser", "tests/tutorials") and not alone else file


_LATE = re.compile(
    r"/test_(attention|math|grouped|fp8|cross)"
    r"|/test_(every_tutorial|exercise)\.py::.*\[(0[6-9]|1\d)-[a-z]"
)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a third of their time, tests wait for something."""
    return (os.cpu_count() or 1) + 1


class _Scheduling(LoadScopeScheduling):
    """The longest begin first, whatever their number, so that no worker is left alone with one."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Share tests out as `_scope` says."""
    config.option.loadscopereorder = False
    return _Scheduling(config, log)
