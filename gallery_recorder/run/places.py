"""Where scripts are executed: the GPUs of this machine, or its cores, or a cluster's.

An engine knows its places and executes one run at one of them. Which scripts, in which order, and
what becomes of what they made is the recorder's business, the same for every engine.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from gallery_recorder.run import gpus, process
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.messages import BlockStarted, Result, Run
from gallery_recorder.run.staging import Staging
from gallery_recorder.source.needs import Gpu
from gallery_recorder.store import recording
from gallery_recorder.store.lock import locked, machine_folder


@dataclass(frozen=True)
class Place:
    """Where one script at a time is executed: a GPU, or a core."""

    number: int
    gpu: Gpu | None = None

    @property
    def kind(self) -> Literal["gpu", "cpu"]:
        """The kind of device."""
        return "gpu" if self.gpu else "cpu"


@dataclass(frozen=True)
class Told:
    """Whom an engine tells how a run goes: the block that begins, and anything else."""

    block: Callable[[BlockStarted], None]
    note: Callable[[str], None]


class Engine(Protocol):
    """What the recorder asks of an engine."""

    places: list[Place]

    def lease(
        self, place: Place, stop: threading.Event, waiting: Callable[[str], None]
    ) -> AbstractContextManager[bool]:
        """Hold *place* against other recorders; False when *stop* is set before it is free."""
        ...

    def execute(self, run: Run, staging: Staging, stop: threading.Event, told: Told) -> Result:
        """Execute *run*, leave its files in ``staging.recording``; as ``process.execute``."""
        ...


class LocalEngine:
    """The GPUs of this machine, or else its cores."""

    def __init__(self, device: str, jobs: int | None) -> None:
        """See what there is.

        Raises:
            DeviceError: *device* is ``cuda`` and there is no GPU.
        """
        found = gpus.find_gpus() if device != "cpu" else []
        if device == "cuda" and not found:
            raise DeviceError(
                "no GPU was found, and --device cuda asks for one. See whether `nvidia-smi` (or "
                "`rocm-smi`) lists it, and whether the Python package nvidia-ml-py is installed "
                "(pip install 'gallery-recorder[gpu]'); --device cpu records without a GPU."
            )
        # Recordings belong to a device by its name, so GPUs of another model than the first wait.
        places = [Place(n, gpu) for n, gpu in enumerate(found) if gpu.name == found[0].name]
        if not places:
            places = [Place(number) for number in range(len(os.sched_getaffinity(0)))]
        self.places = places[:jobs]

    def lease(
        self, place: Place, stop: threading.Event, waiting: Callable[[str], None]
    ) -> AbstractContextManager[bool]:
        """Hold the GPU of *place*."""
        return lease(place.gpu, stop, waiting)

    def execute(self, run: Run, staging: Staging, stop: threading.Event, told: Told) -> Result:
        """Execute *run* in a process of its own."""
        return process.execute(run, staging, stop, told.block)


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
