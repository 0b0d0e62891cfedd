"""Execute examples on the nodes of a Ray cluster, one GPU or one core for each.

The engine, the project and the recorded files travel through Ray: nodes share no disk. A node needs
Ray and the packages that the examples need.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import secrets
import signal
import socket
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gallery_recorder.project.galleries import decode, encode
from gallery_recorder.project.git import git
from gallery_recorder.run import gpus, process, workspace
from gallery_recorder.run.executors import Place, Told, lease
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.protocol import Failure, Run, ScriptFailedError, StoppedError
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import Recording
from gallery_recorder.store.lock import locked

_ATTEMPTS = 3  # to execute one example whose worker or node is lost
_PATIENCE = 20.0  # s, for the head to answer, and for a node to end an example

#: What a node sends back: the recording and the content of its files, or why there is none.
_Answer = tuple[Recording, dict[str, bytes]] | Failure


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Hold a connection to the cluster at *address*; None means $RAY_ADDRESS or this machine's.

    Raises:
        DeviceError: Ray is not installed, or no cluster of the same versions answers there.
    """
    try:
        import ray
    except ImportError as error:
        raise DeviceError("--engine ray needs: pip install 'gallery-recorder[ray]'") from error
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    # Ray would kill the supervisor of an example together with its worker.
    variables = {"RAY_kill_child_processes_on_worker_exit": "0"}
    engine = {"py_modules": [str(Path(__file__).parents[1])], "env_vars": variables}
    try:
        at = urlsplit(where if "://" in where else f"//{where}")
        if at.port:  # Ray would retry a closed port for minutes
            socket.create_connection((at.hostname, at.port), timeout=_PATIENCE).close()
        ray.init(where, runtime_env=engine, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray's errors have no common base class
        raise DeviceError(
            f"no Ray cluster can be used at {where}: {_words(error)}\nStart one with `ray start "
            "--head` on one machine and `ray start --address=HOST:6379` on the others, all with "
            "the same versions of Python and Ray, and give --address HOST:6379."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


class RayEngine:
    """The GPUs of a cluster, or its cores if it has none."""

    def __init__(self, device: str, jobs: int | None, accelerator: str | None) -> None:
        """Count the GPUs and cores of the cluster.

        Raises:
            DeviceError: a GPU is asked for and there is none, or there are several types.
        """
        import ray

        found = ray.cluster_resources()
        count = int(found.get("GPU", 0)) if device != "cpu" else 0
        types = sorted(n.partition(":")[2] for n in found if n.startswith("accelerator_type:"))
        if (device == "cuda" and not count) or (accelerator and accelerator not in types):
            wanted = f"a GPU of type {accelerator}" if accelerator else "a GPU"
            raise DeviceError(f"no node of the cluster has {wanted}; see `ray status`")
        if count and len(types) > 1 and not accelerator:
            several = f"the cluster has GPUs of several types: {', '.join(types)}"
            raise DeviceError(f"{several}. Choose one with --accelerator TYPE.")
        # One example per worker: a poisoned GPU context ends with it. Ray repeats nothing, since it
        # cannot tell a lost node from an example that takes all memory.
        options: dict[str, Any] = {"max_calls": 1, "max_retries": 0, "num_cpus": 1}
        if count:
            options |= {"num_gpus": 1, "accelerator_type": accelerator}
        # Ray leases a GPU to one task at a time; surplus jobs wait in Ray's queue.
        self.places: list[Place] = [None] * (jobs or count or int(found.get("CPU", 1)))
        try:
            self.gpu = ray.get(ray.remote(**options)(gpus.leased_gpu).remote()) if count else None
        except ray.exceptions.RayError as error:
            raise DeviceError(f"a node could not start the engine: {error}") from error
        if count and self.gpu is None:
            raise DeviceError("a node cannot describe its GPU; install gallery-recorder[gpu] there")
        self._execute = ray.remote(**options)(execute_on_node)
        self._archives: dict[Path, Any] = {}
        self._packing = threading.Lock()

    def execute(self, run: Run, at: Workspace, stop: threading.Event, told: Told) -> Recording:
        """Execute *run* on a node, and again if its worker or node is lost."""
        import ray
        from ray.exceptions import NodeDiedError, ObjectLostError, RayError, WorkerCrashedError

        folder = run.example.path.parent
        with self._packing:
            if folder not in self._archives:
                self._archives[folder] = ray.put(_pack(run.top, folder, run.settings.roots))
        for left in reversed(range(_ATTEMPTS)):
            try:
                task = self._execute.remote(encode(run), self._archives[folder])
                while not ray.wait([task], timeout=0.2)[0]:
                    if stop.is_set():
                        ray.cancel(task)  # KeyboardInterrupt in the worker, which cleans up
                        ended = ray.wait([task], timeout=_PATIENCE)[0]
                        raise StoppedError("" if ended else "its node did not confirm the end")
                return _unpack(ray.get(task), run, at)
            except RayError as error:
                cause = _words(error)
                if not isinstance(error, WorkerCrashedError | NodeDiedError | ObjectLostError):
                    break
            if left:
                told(f"its worker or node was lost; starting again ({cause})")
        raise ScriptFailedError(
            f"could not be executed on the cluster: {cause}",
            "Read Ray's logs on the nodes (/tmp/ray/session_latest/logs). Every node needs the "
            "same Python, Ray and packages, and enough memory.",
        )


def _words(error: Exception) -> str:
    return shorten(str(error) or type(error).__name__, 300)


def _pack(top: Path, examples: Path, recordings: list[Path]) -> bytes:
    """The project at *top*: what git keeps or else all files, and the folder *examples*."""
    listed = git(top, "ls-files", "-coz", "--exclude-standard")
    walked = (examples if listed else top).rglob("*")
    paths = {path for path in walked if "/." not in f"/{path.relative_to(top)}"}
    paths |= {top / name for name in (listed or "").split("\0") if name}
    kept = [p for p in sorted(paths) if p.is_file() and not {*recordings} & {*p.parents}]
    buffer = io.BytesIO()
    # A link may lead to a file that the node does not have.
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for path in kept:
            archive.add(path, path.relative_to(top).as_posix(), recursive=False)
    return buffer.getvalue()


def _unpack(sent: bytes, run: Run, at: Workspace) -> Recording:
    """The recording that a node *sent* for *run*, checked; its files are put into *at*."""
    try:
        answer = msgspec.msgpack.decode(sent, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        remedy = "Compare the versions of gallery-recorder and Python on that node with these here."
        raise ScriptFailedError(f"its node sent an unreadable answer: {error}", remedy) from error
    if isinstance(answer, Failure):
        raise ScriptFailedError(answer)
    made, files = answer
    run.check(made)
    if missing := sorted({*made.files} - {*files}):
        remedy = "Compare the versions of gallery-recorder on that node and here."
        raise ScriptFailedError(f"its node did not send the file {missing[0]}", remedy)
    for name in made.files:  # its type allows no path out of the folder
        (at.recording / name).parent.mkdir(parents=True, exist_ok=True)
        (at.recording / name).write_bytes(files[name])
    return made


def _moved(path: Path, top: Path, there: Path) -> Path:
    """*path* below *there* in place of *top*; the recorder may have been called elsewhere."""
    return there / path.relative_to(top) if path.is_relative_to(top) else there


def execute_on_node(order: bytes, archive: bytes) -> bytes:
    """Execute the run *order* in the project in *archive*; return an encoded answer."""
    # A shell that starts Ray in the background lets it ignore SIGINT, with which Ray cancels tasks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run, never = decode(order, Run), threading.Event()
    gpu = gpus.leased_gpu() if run.kind == "gpu" else None
    folder = Path(tempfile.gettempdir(), f"gallery-recorder-{os.getuid()}")
    name = f"{run.example.label}-{secrets.token_hex(4)}"  # another recorder may execute it here too
    try:
        if gpu and gpu.name != run.device:
            cause = f"was given a {gpu.name}, and these are recordings of a {run.device}"
            raise ScriptFailedError(cause, "Choose one type of GPU with --accelerator TYPE.")
        folder.mkdir(mode=0o700, exist_ok=True)
        workspace.remove_leftovers(folder, print)
        with (
            locked(workspace.lock_path(folder, name), never, print),
            lease(gpu, never, print),
            workspace.made(folder, name) as at,
        ):
            top = at.project / run.top.name
            with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(top, filter="data")
            there = msgspec.json.decode(
                order, type=Run, dec_hook=lambda _, path: _moved(Path(path), run.top, top)
            )
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to the number of leased cores
            there = msgspec.structs.replace(there, visible=gpu.visible if gpu else {})
            made = process.execute(there, at, never)
            files = {name: (at.recording / name).read_bytes() for name in made.files}
            answer: _Answer = (made, files)
    except ScriptFailedError as error:
        answer = error.failure
    return msgspec.msgpack.encode(answer)
