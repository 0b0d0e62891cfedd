"""Where examples are executed: the GPUs of this machine or its cores, or a cluster's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from gallery_recorder.project.needs import Gpu
from gallery_recorder.run import gpus, process
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.process import Server
from gallery_recorder.run.protocol import BlockStarted, Run
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import Recording, slug
from gallery_recorder.store.lock import locked, machine_folder

#: Where one example at a time is executed: a GPU of this machine, or None for a core or a node.
Place = Gpu | None

#: Called with each block that begins, or with a message about the run.
Told = Callable[[BlockStarted | str], None]


class LocalEngine:
    """The GPUs of this machine, or its cores if it has none."""

    def __init__(self, device: str, jobs: int | None, server: Server) -> None:
        """Find the GPUs; *server* forks for each example.

        Raises:
            DeviceError: *device* is ``cuda`` and there is no GPU.
        """
        found = gpus.find_gpus() if device != "cpu" else []
        if device == "cuda" and not found:
            raise DeviceError(
                "no GPU was found for --device cuda. Check that `nvidia-smi` (or `rocm-smi`) lists "
                "it and that nvidia-ml-py is installed (pip install 'gallery-recorder[gpu]'), or "
                "record without a GPU: --device cpu."
            )
        self._server = server
        self.gpu = found[0] if found else None
        # A folder of recordings belongs to one model, so GPUs of other models stay idle.
        places: list[Place] = [gpu for gpu in found if gpu.name == found[0].name]
        self.places = (places or [None] * _cores())[:jobs]

    def execute(self, run: Run, at: Workspace, stop: threading.Event, told: Told) -> Recording:
        """Execute *run* in a process of its own."""
        return process.execute(run, at, stop, told, self._server)


def _cores() -> int:
    """The cores that this process may use; macOS does not limit them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def lease(
    place: Place, stop: threading.Event, waiting: Callable[[str], None]
) -> AbstractContextManager[bool]:
    """Hold the GPU of *place* against other recorders on this machine, so no benchmark shares it.

    The value is False if *stop* is set before the GPU is free; *waiting* is told who holds it.
    """
    if place is None:
        return nullcontext(True)
    return locked(machine_folder() / f"gallery-gpu-{slug(place.identity)}.lock", stop, waiting)
