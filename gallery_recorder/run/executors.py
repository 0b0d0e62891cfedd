"""Where scripts are executed: the GPUs of this machine, or its cores, or a cluster's.

An engine knows its places and executes one run at one of them. Which scripts, in which order, and
what becomes of what they made is the recorder's business, the same for every engine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from gallery_recorder.project.needs import Gpu
from gallery_recorder.run import gpus, process, warm
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.protocol import BlockStarted, Result, Run
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import slug
from gallery_recorder.store.lock import locked, machine_folder

#: Where one script at a time is executed: a GPU of this machine, or else a core or a node.
Place = Gpu | None

#: Whom an engine tells how a run goes: of the block that begins, or anything else, in words.
Told = Callable[[BlockStarted | str], None]


class Engine(Protocol):
    """What the recorder asks of an engine: its places, and the GPU that all of them are like."""

    places: list[Place]
    gpu: Gpu | None

    def execute(self, run: Run, workspace: Workspace, stop: threading.Event, told: Told) -> Result:
        """Execute *run*, leave its files in ``workspace.recording``; as ``process.execute``."""
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
        self.gpu = found[0] if found else None
        # Recordings belong to a device by its name, so GPUs of another model than the first wait.
        places: list[Place] = [gpu for gpu in found if gpu.name == found[0].name]
        self.places = (places or [None] * len(os.sched_getaffinity(0)))[:jobs]
        self._servers = warm.Servers()

    def execute(self, run: Run, workspace: Workspace, stop: threading.Event, told: Told) -> Result:
        """Execute *run* in a process of its own."""
        result = process.execute(run, workspace, stop, told, (), self._servers.start)
        if run.kind == "cpu":  # a GPU's driver may know the process that imported
            self._servers.loaded = result.loaded
        return result

    def close(self) -> None:
        """End what waits for more to do."""
        self._servers.close()


def lease(
    place: Place, stop: threading.Event, waiting: Callable[[str], None]
) -> AbstractContextManager[bool]:
    """Hold the GPU of *place* against other recorders of this machine: benchmarks never share one.

    It gives False when *stop* is set before the GPU is free; *waiting* is told who has it.
    """
    return locked(gpu_lock(place), stop, waiting) if place else nullcontext(True)


def gpu_lock(gpu: Gpu) -> Path:
    """The lock of *gpu* on this machine, one for all users and jobs."""
    return machine_folder() / f"gallery-gpu-{slug(gpu.identity)}.lock"
