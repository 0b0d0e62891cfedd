"""Ways to execute examples: on the GPUs or cores of this machine (here), or of a cluster."""

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

#: A place for one example at a time: a GPU of this machine, or None for a core or a node.
Place = Gpu | None

#: Called with each block that starts, and with messages about the run.
Listen = Callable[[BlockStarted | str], None]


class Executor(Protocol):
    """A way to execute examples.

    ``jobs`` examples are executed at a time, each in one of ``places`` or in several, at most
    ``together``; ``gpu`` describes the GPUs, which are of one model. If it executes examples
    ``here``, the recorder gives each a copy of the project.
    """

    here: bool

    gpu: Gpu | None
    places: list[Place]
    jobs: int
    together: int

    def execute(self, run: Run, at: Workspace, stop: threading.Event, listen: Listen) -> Recording:
        """Execute *run*; the files of the recording are then in *at*.

        Raises:
            ExampleFailedError: the example failed.
            StoppedError: *stop* was set.
        """


class LocalExecutor:
    """The GPUs of this machine, or its cores if it has none."""

    here = True

    def __init__(self, device: str, jobs: int | None, server: Client) -> None:
        """Find the GPUs; *server* forks for each example.

        Raises:
            DeviceError: *device* is ``cuda`` and there is no GPU.
        """
        found = gpus.find_gpus() if device != "cpu" else []
        if device == "cuda" and not found:
            raise DeviceError(
                "--device cuda: no GPU was found. Check that `nvidia-smi` (or `rocm-smi`) lists "
                "it and that nvidia-ml-py is installed (pip install 'gallery-recorder[gpu]'), or "
                "record without a GPU: --device cpu."
            )
        self._server = server
        self.gpu = found[0] if found else None
        # Recordings lie in a folder per model, so GPUs of other models are not used.
        places: list[Place] = [gpu for gpu in found if gpu.name == found[0].name]
        self.places = places or [None] * _cores()
        self.jobs = min(jobs or len(self.places), len(self.places))
        self.together = len(self.places) if found else 1

    def execute(self, run: Run, at: Workspace, stop: threading.Event, listen: Listen) -> Recording:
        """Execute *run* in a process of its own."""
        return process.execute(run, at, stop, listen, self._server)


def threads_of_a_job(device: str, jobs: int | None) -> int:
    """The threads of numerical libraries for each job, so that all jobs use each core once."""
    places = len(gpus.find_gpus()) if device != "cpu" else 0
    places = places or _cores()
    return max(_cores() // min(jobs or places, places), 1)


def _cores() -> int:
    """The number of cores that this process may use; macOS has no limit per process."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class Places:
    """The places of an executor; an example takes all that it needs at once.

    Examples queue for them, so an example that needs several places is not overtaken for ever.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._all, self._free = [*places], [*places]
        self._turn, self._changed = threading.Lock(), threading.Condition()

    @contextmanager
    def taken(self, count: int) -> Iterator[list[Gpu]]:
        """Wait until *count* places are free and hold them; the value is their GPUs."""
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
    """Lock *gpus* against other recorders on this machine, so that no benchmark shares a GPU.

    The value is False if *stop* is set before they are free; *waiting* is called with the holder.
    """
    with ExitStack() as held:
        yield all(
            held.enter_context(
                locked(machine_folder() / f"gallery-gpu-{slug(gpu.identity)}.lock", stop, waiting)
            )
            # All recorders lock in the same order, so no two wait for each other.
            for gpu in sorted(gpus, key=lambda gpu: gpu.identity)
        )
