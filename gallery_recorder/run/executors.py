"""Where examples are executed: the GPUs of this machine or its cores, or a cluster's."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from gallery_recorder.project.needs import Gpu
from gallery_recorder.run import gpus, process
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.process import Client
from gallery_recorder.run.protocol import BlockStarted, Run
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import Recording, slug
from gallery_recorder.store.lock import locked, machine_folder

#: Where one example at a time is executed: a GPU of this machine, or None for a core or a node.
Place = Gpu | None

#: Called with each block that begins, or with a message about the run.
Told = Callable[[BlockStarted | str], None]


class Executor(Protocol):
    """Where and how examples are executed; each way is a class with these members.

    ``jobs`` examples are executed at a time, each in one of ``places`` or in several, at most
    ``together``; ``gpu`` describes the GPUs, which are alike.
    """

    gpu: Gpu | None
    places: list[Place]
    jobs: int
    together: int

    def execute(self, run: Run, at: Workspace, stop: threading.Event, told: Told) -> Recording:
        """Execute *run*; the files of the result are in *at*.

        Raises:
            ExampleFailedError: the example failed.
            StoppedError: *stop* was set.
        """


class LocalExecutor:
    """The GPUs of this machine, or its cores if it has none.

    ``jobs`` examples are executed at a time; each gets at most ``together`` GPUs.
    """

    def __init__(self, device: str, jobs: int | None, server: Client) -> None:
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
        self.places = places or [None] * _cores()
        self.jobs = min(jobs or len(self.places), len(self.places))
        self.together = len(self.places) if found else 1

    def execute(self, run: Run, at: Workspace, stop: threading.Event, told: Told) -> Recording:
        """Execute *run* in a process of its own."""
        return process.execute(run, at, stop, told, self._server)


def _cores() -> int:
    """The cores that this process may use; macOS does not limit them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class Places:
    """The places of an engine: an example takes as many as it needs at once.

    Examples take them in turn, so that one that needs several is not overtaken for ever.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._all, self._free = [*places], [*places]
        self._turn, self._changed = threading.Lock(), threading.Condition()

    @contextmanager
    def taken(self, count: int) -> Iterator[list[Gpu]]:
        """Hold *count* places when so many are free; the value is their GPUs."""
        with self._turn, self._changed:
            self._changed.wait_for(lambda: len(self._free) >= count)
            mine, self._free = self._free[:count], self._free[count:]
        try:
            yield sorted(filter(None, mine), key=self._all.index)
        finally:
            with self._changed:
                self._free = mine + self._free
                self._changed.notify_all()


@contextmanager
def lease(
    gpus: Sequence[Gpu], stop: threading.Event, waiting: Callable[[str], None]
) -> Iterator[bool]:
    """Hold *gpus* against other recorders on this machine, so no benchmark shares them.

    The value is False if *stop* is set before they are free; *waiting* is told who holds one.
    """
    with ExitStack() as held:
        yield all(
            held.enter_context(
                locked(machine_folder() / f"gallery-gpu-{slug(gpu.identity)}.lock", stop, waiting)
            )
            # In the order of all recorders, so none waits for another in a circle.
            for gpu in sorted(gpus, key=lambda gpu: gpu.identity)
        )
