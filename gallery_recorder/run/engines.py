"""Where tutorials are executed: on this machine, or on the nodes of a Ray cluster.

An engine knows its places and executes one tutorial at one of them. Which tutorials, in which
order, and what becomes of what they made is the recorder's business, the same for every engine.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from gallery_recorder.run import provenance, runner, workplace
from gallery_recorder.run.job import BlockStarted, Staging
from gallery_recorder.store.recording import INTERPRETER, Recording


@dataclass(frozen=True)
class Place:
    """Where one tutorial at a time is executed: a GPU, or a core with the interpreter."""

    number: int
    gpu: provenance.Gpu | None = None

    @property
    def device_name(self) -> str:
        """What recordings made here are called."""
        return self.gpu.name if self.gpu else INTERPRETER


@dataclass(frozen=True)
class Told:
    """Whom an engine tells how a tutorial goes: the block that begins, and anything else."""

    block: Callable[[BlockStarted], None]
    note: Callable[[str], None]


class Engine(Protocol):
    """What the recorder asks of an engine."""

    places: list[Place]

    def lease(
        self, place: Place, stop: threading.Event, waiting: Callable[[str], None]
    ) -> AbstractContextManager[bool]:
        """Hold *place* against other recorders; False when *stop* is set before it is free."""

    def run(
        self, task: runner.Task, staging: Staging, stop: threading.Event, told: Told
    ) -> Recording:
        """Execute *task*; leave its files in ``staging.recording``. Raises as ``runner.run``."""


class LocalEngine:
    """The GPUs of this machine, or else its cores."""

    def __init__(self, device: str, jobs: int | None) -> None:
        """See what there is.

        Raises:
            DeviceError: *device* is ``cuda`` and there is no GPU, or it cannot be used.
        """
        gpus = provenance.find_gpus() if device != "cpu" else []
        if device == "cuda" and not gpus:
            raise provenance.DeviceError(
                "no GPU was found, and --device cuda asks for one. See whether `nvidia-smi` (or "
                "`rocm-smi`) lists it and whether torch.cuda.is_available(); --device cpu records "
                "in Triton's interpreter."
            )
        # Recordings belong to a device by its name, so GPUs of another model than the first wait.
        places = [Place(n, gpu) for n, gpu in enumerate(gpus) if gpu.name == gpus[0].name]
        if not places:
            places = [Place(number) for number in range(len(os.sched_getaffinity(0)))]
        self.places = places[:jobs]

    def lease(
        self, place: Place, stop: threading.Event, waiting: Callable[[str], None]
    ) -> AbstractContextManager[bool]:
        """Hold the GPU of *place*."""
        return workplace.lease(place.gpu, stop, waiting)

    def run(
        self, task: runner.Task, staging: Staging, stop: threading.Event, told: Told
    ) -> Recording:
        """Execute *task* in a process of its own."""
        return runner.run(task, staging, stop, told.block)


@contextlib.contextmanager
def engine(
    name: str,
    device: str,
    jobs: int | None,
    address: str | None = None,
    accelerator: str | None = None,
) -> Iterator[Engine]:
    """The engine *name*: ``local``, or ``ray`` with the cluster at *address*.

    Raises:
        DeviceError: what was asked for is not there, or cannot be used.
    """
    if name == "local":
        yield LocalEngine(device, jobs)
        return
    from gallery_recorder.run import cluster

    with cluster.connected(address):
        yield cluster.RayEngine(device, jobs, accelerator)
