"""What all tests share: Triton's interpreter, marks, the built site, groups for pytest-xdist."""

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: The folders that the packages are imported from.
SOURCES = sorted(ROOT.glob("packages/*/src"))

#: What the tests need in files whose paths begin so: a browser, executed tutorials, or recorders
#: and builds. `make quick` leaves marked tests out.
_MARKS = {
    "browser/": "browser",
    "tutorials/": "execute",
    "guide/": "execute",
    "docs/test_guide": "execute",
    "docs/test_semantics": "execute",
    "test_action": "record",
    "triton_site/test_other_output": "record",
    "triton_site/test_reference": "record",
    "triton_site/test_scraper": "record",
}

#: Tests with these marks begin first, in this order, so that no worker ends with a long one.
_LONG = ("browser", "execute", "cluster", "record", "site")

#: The number of the lesson that a test executes, in the name of its file or its first argument.
_LESSON = re.compile(r"(?:/test_|\[|/)(\d\d[a-z]?)[-_]")

#: Tests that copy a process, which takes seconds to start, and execute no lesson themselves.
_COPIES = {
    "docs/test_guide.py": "PyTorch",
    "docs/test_semantics.py": "PyTorch",
    "exercises/test_checker.py": "Triton",
    "exercises/test_small_exercises.py": "Triton",
}


def pytest_configure(config: pytest.Config) -> None:
    """Choose the interpreter, except for ``-m gpu``: Triton decides when it is imported."""
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ["OMP_NUM_THREADS"] = "1"  # blocks are small: more threads only wait
    # Child processes find the site and the packages as this process does.
    paths = [str(ROOT), *map(str, SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    # Hundreds of processes import the engine: keep it compiled, whatever the environment says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # nohup and shells ignore these for background jobs, and child processes would inherit that.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests, and give each worker of pytest-xdist tests with the same fixtures."""
    order: dict[Path, tuple[int, int]] = {}
    for item in items:
        place = item.path.relative_to(ROOT / "tests").as_posix()
        for beginning, mark in _MARKS.items():
            if place.startswith(beginning):
                item.add_marker(mark)
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker("site")
        if group := _group(place, item):
            item.add_marker(pytest.mark.xdist_group(group))
        marks = {mark.name for mark in item.iter_markers()}
        rank = next((n for n, name in enumerate(_LONG) if name in marks), len(_LONG))
        # Later lessons take longer, and chapters of the guide longest.
        lesson = re.match(r"tutorials/test_(\d\d)", place)
        late = int(lesson[1]) if lesson else 99 * place.startswith("guide/")
        order[item.path] = min((rank, -late), order.get(item.path, (rank, -late)))
    items.sort(key=lambda item: order[item.path])


def _group(place: str, item: pytest.Item) -> str | None:
    """The name of the tests that one worker executes; None if any worker may execute *item*."""
    if place.endswith("test_every_tutorial.py") and "_interpreter[" not in item.name:
        return "PyTorch" if "tmp_path" in item.fixturenames else None
    folder = place.partition("/")[0]
    if folder == "tutorials" and place not in _COPIES and (lesson := _LESSON.search(item.nodeid)):
        return f"lesson {lesson[1]}"  # each is executed once
    return "browser" if folder == "browser" else _COPIES.get(place, place)


def not_tried(reasons: Iterable[str]) -> str:
    """What was skipped and why, in a line; each reason says how to have what is missing."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    tests = ((n, "test" if n == 1 else "tests", reason) for reason, n in counts.most_common())
    return "; ".join(f"{n} {word}: {reason}" for n, word, reason in tests)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last line what was not tried."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and (skipped := reporter.stats.get("skipped")):
        reporter.write_line(f"NOT TRIED: {not_tried(report.longrepr[2] for report in skipped)}")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: tests wait a third of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def site(testrun_uid: str) -> Path:
    """The folder of the site, built by the first worker that needs it."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "site.lock", "a+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if lock.read() != testrun_uid:
            made = subprocess.run(
                ["make", "html", f"PYTHON={sys.executable}"],
                cwd=ROOT,
                env=os.environ | {"CI": "1"},  # warnings are errors
                capture_output=True,
                text=True,
                check=False,
            )
            assert made.returncode == 0, f"make html failed:\n{made.stdout}\n{made.stderr}"
            lock.truncate(0)
            lock.write(testrun_uid)
    return ROOT / "build" / "html"
