"""Execute examples on the nodes of a Ray cluster, each on a GPU or a core.

Ray copies the engine and the project to the nodes and the files of recordings back, so nodes need
no shared disk. A node needs Ray and the packages that the examples use.
"""

import contextlib
import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from urllib.parse import urlsplit

import msgspec

from gallery_recorder.project import needs
from gallery_recorder.project.galleries import Project, encode
from gallery_recorder.run import gpus, process, workspace
from gallery_recorder.run.executors import Listen, Place, lease
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.protocol import ExampleFailedError, Failure, Run, StoppedError
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import Recording
from gallery_recorder.store.lock import locked

_ATTEMPTS = 3  # to execute one example whose worker or node is lost
_PATIENCE = 20.0  # seconds for the head to answer, and for a node to end an example


@contextlib.contextmanager
def connected(address: str | None, plan: Project) -> Iterator[None]:
    """Hold a connection to the cluster at *address*; None means $RAY_ADDRESS or this machine's.

    The nodes get the files of *plan*, except recordings and files that git ignores.

    Raises:
        DeviceError: Ray is not installed, or no cluster of the same versions answers.
    """
    try:
        import ray
    except ImportError as error:
        raise DeviceError("--engine ray needs: pip install 'gallery-recorder[ray]'") from error
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    roots = [root for root in plan.settings.roots if root.is_relative_to(plan.top)]
    sent = {
        "py_modules": [str(Path(__file__).parents[1])],
        "working_dir": str(plan.top),
        "excludes": [f"/{root.relative_to(plan.top).as_posix()}" for root in roots],
        # Otherwise Ray kills the supervisor of an example together with its worker.
        "env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"},
    }
    try:
        at = urlsplit(where if "://" in where else f"//{where}")
        if at.port:  # because Ray retries a closed port for minutes
            socket.create_connection((at.hostname, at.port), timeout=_PATIENCE).close()
        ray.init(where, runtime_env=sent, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray's errors have no common base class
        raise DeviceError(
            f"cannot connect to a Ray cluster at {where}: {_words(error)}\nStart one with `ray "
            "start --head` on one machine and `ray start --address=HOST:6379` on the others, all "
            "with the same versions of Python and Ray, and give --address HOST:6379."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


class RayExecutor:
    """The GPUs of a cluster, or its cores if it has none."""

    here = False

    def __init__(self, device: str, jobs: int | None) -> None:
        """Count the GPUs and cores of the cluster.

        Raises:
            DeviceError: *device* is ``cuda`` and there is no GPU, or GPUs are of several types.
        """
        import ray

        found = ray.cluster_resources()
        count = int(found.get("GPU", 0)) if device != "cpu" else 0
        if device == "cuda" and not count:
            raise DeviceError("--device cuda: no node of the cluster has a GPU; see `ray status`")
        types = sorted(n.partition(":")[2] for n in found if n.startswith("accelerator_type:"))
        if count and len(types) > 1:
            several = f"the cluster has GPUs of several types: {', '.join(types)}"
            raise DeviceError(f"{several}. Start it on machines with the same GPUs.")
        # One example per worker, so that a poisoned GPU context ends with it. Ray does not retry,
        # since it cannot tell a lost node from an example that takes all memory.
        options = {"max_calls": 1, "max_retries": 0, "num_cpus": 1, "num_gpus": int(count > 0)}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.together = int(max((node.get("GPU", 1) for node in nodes), default=1))
        # Ray leases a GPU to one task at a time; surplus jobs wait in Ray's queue.
        self.jobs = jobs or count or int(found.get("CPU", 1))
        self.places: list[Place] = [None] * max(self.jobs, count)
        try:
            self.gpu = ray.get(ray.remote(**options)(gpus.leased_gpu).remote()) if count else None
        except ray.exceptions.RayError as error:
            raise DeviceError(f"a node could not start the engine: {error}") from error
        if count and self.gpu is None:
            raise DeviceError("a node cannot query its GPU; install gallery-recorder[gpu] on it")
        self._execute = ray.remote(**options)(execute_on_node)

    def execute(self, run: Run, at: Workspace, stop: threading.Event, listen: Listen) -> Recording:
        """Execute *run* on a node, and again if its worker or node is lost."""
        import ray
        from ray.exceptions import NodeDiedError, ObjectLostError, RayError, WorkerCrashedError

        for left in reversed(range(_ATTEMPTS)):
            try:
                task = self._execute.options(num_gpus=run.gpus).remote(run)
                while not ray.wait([task], timeout=0.2)[0]:
                    if stop.is_set():
                        ray.cancel(task)  # KeyboardInterrupt in the worker, which cleans up
                        ended = ray.wait([task], timeout=_PATIENCE)[0]
                        raise StoppedError("" if ended else "its node did not confirm the end")
                return _kept(ray.get(task), run, at)
            except RayError as error:
                cause = _words(error)
                if not isinstance(error, WorkerCrashedError | NodeDiedError | ObjectLostError):
                    break
            if left:
                listen(f"lost its worker or node; starting again ({cause})")
        raise ExampleFailedError(
            f"could not be executed on the cluster: {cause}",
            "Read Ray's logs on the nodes (/tmp/ray/session_latest/logs). Every node needs the "
            "same Python, Ray and packages, and enough memory.",
        )


def _words(error: Exception) -> str:
    return shorten(str(error) or type(error).__name__, 300)


#: The answer of a node: the recording and the content of its files, or the failure.
_Answer = tuple[Recording, dict[str, bytes]] | Failure


def _kept(answer: _Answer, run: Run, at: Workspace) -> Recording:
    """The recording in the *answer* to *run*; writes its files to *at*."""
    if isinstance(answer, Failure):
        raise ExampleFailedError(answer)
    made, files = answer
    run.check(made)
    for name, content in files.items():
        (at.recording / name).parent.mkdir(parents=True, exist_ok=True)
        (at.recording / name).write_bytes(content)
    return made


def _moved(path: Path, top: Path, there: Path) -> Path:
    """*path* below *there* instead of *top*; *there* itself for a path outside *top*."""
    return there / path.relative_to(top) if path.is_relative_to(top) else there


def execute_on_node(run: Run) -> _Answer:
    """Execute *run* with the project in the working directory."""
    # Ray cancels tasks by SIGINT, which it ignores if a shell started it in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    never = threading.Event()
    leased = gpus.find_gpus() if run.kind == "gpu" else []
    folder = Path(tempfile.gettempdir(), f"gallery-recorder-{os.getuid()}")
    name = f"{run.example.label}-{secrets.token_hex(4)}"  # for two recorders on one node
    try:
        if others := {gpu.name for gpu in leased} - {run.device}:
            cause = f"got a {min(others)}, but this recording is for a {run.device}"
            raise ExampleFailedError(cause, "Start the cluster on machines with the same GPUs.")
        folder.mkdir(mode=0o700, exist_ok=True)
        workspace.remove_leftovers(folder, print)
        with (
            locked(workspace.lock_path(folder, name), never, print),
            lease(leased, never, print),
            workspace.made(folder, name) as at,
        ):
            there = msgspec.json.decode(
                encode(run),
                type=Run,
                dec_hook=lambda _, path: _moved(Path(path), run.top, Path.cwd()),
            )
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to the number of leased cores
            there = msgspec.structs.replace(there, visible=needs.visible(leased))
            made = process.execute(there, at, never)
            return made, {name: (at.recording / name).read_bytes() for name in made.files}
    except ExampleFailedError as error:
        return error.failure
