"""Where tutorials are executed: staging folders, and the locks of recordings and of GPUs.

Each execution has a staging folder and a lock beside it. The lock of a recorder that was killed is
free, so the next one knows what was left behind, and removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from gallery_recorder.run import runner
from gallery_recorder.run.provenance import Gpu
from gallery_recorder.store import recording
from gallery_recorder.store.lock import locked, machine_folder, try_lock, unlock


def lock_path(folder: Path, name: str) -> Path:
    """The lock of the tutorial *name* in *folder*."""
    return folder / f".lock-{_flat(name)}"


def new_staging(folder: Path, name: str) -> Path:
    """A path for an execution of the tutorial *name*, in *folder*, that nobody else has."""
    return folder.resolve() / f".staging-{_flat(name)}-{secrets.token_hex(4)}"


def _flat(name: str) -> str:
    return name.replace("/", "--")


def remove_leftovers(folder: Path) -> None:
    """Remove what recorders left that were killed; where the lock is free, its holder is gone."""
    stagings: dict[str, list[Path]] = {
        path.name.removeprefix(".lock-"): [] for path in folder.glob(".lock-*")
    }
    for path in folder.glob(".staging-*"):
        name = path.name.removeprefix(".staging-").rpartition("-")[0]
        stagings.setdefault(name, []).append(path)
    for name, paths in stagings.items():
        lock = folder / f".lock-{name}"
        descriptor = try_lock(lock)
        if descriptor is not None:
            try:
                for path in paths:
                    runner.end_processes_of(path.resolve())
                    remove(path)
            finally:
                unlock(lock, descriptor)


def remove(folder: Path) -> None:
    """Remove *folder*, also where the tutorial made folders in it that cannot be entered."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for parent, folders, _ in os.walk(folder):
            for name in folders:
                with contextlib.suppress(OSError):
                    os.chmod(Path(parent, name), 0o700)
        shutil.rmtree(folder)


@contextlib.contextmanager
def lease(gpu: Gpu | None, stop: threading.Event, waiting: Callable[[str], None]) -> Iterator[bool]:
    """Hold *gpu* against the other recorders of this machine: benchmarks never share one.

    It gives False when *stop* is set before the GPU is free; *waiting* is told who has it.
    """
    if gpu is None:
        yield True
        return
    with locked(gpu_lock(gpu), stop, waiting) as mine:
        yield mine


def gpu_lock(gpu: Gpu) -> Path:
    """The lock of *gpu* on this machine, one for all users and jobs."""
    return machine_folder() / f"gallery-gpu-{recording.slug(gpu.identity)}.lock"
