"""What the engine's tests share: marks, groups and the order for pytest-xdist."""

import os
import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

#: Files whose tests record examples or build sites, by the beginning of their paths.
RECORDING = (
    "publish/",
    "render/test_adoption",
    "render/test_incremental",
    "render/test_replay",
    "render/test_single",
    "render/test_host",
    "render/test_stale",
    "run/test_conf",
    "run/test_disturbed",
    "run/test_faults",
    "run/test_fidelity",
    "run/test_process",
    "run/test_ranks",
    "run/test_recorder",
    "run/test_seeds",
    "run/test_subset",
    "run/test_worker",
    "store/test_orphans",
    "test_package",
)


def pytest_configure(config: pytest.Config) -> None:
    """Give child processes a usual environment, and this checkout's engine."""
    sources = [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sources))
    # Hundreds of processes import the engine: keep it compiled, whatever the environment says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # nohup and shells ignore these for background jobs, and child processes would inherit that.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that record, start them first, and keep each file with one worker."""
    for item in items:
        file = item.path.relative_to(HERE).as_posix()
        if file.startswith(RECORDING):
            item.add_marker("record")
        item.add_marker(pytest.mark.xdist_group(file))
    items.sort(key=lambda item: item.get_closest_marker("record") is None)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: tests wait a third of their time."""
    return (os.cpu_count() or 1) + 1
