"""Execute scripts on the nodes of a Ray cluster, each in a fresh worker with a GPU of its own.

What a node needs is installed there, Ray included; this package travels with the tasks, and so does
the project. A recording comes back through Ray's object store, so nodes share no disk.

Ray repeats nothing by itself here: it cannot tell a script that takes all memory from a node
that was lost. A script whose worker or node is lost is begun again on what is left of the
cluster, a few times; one that fails is not.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gallery_recorder.project.galleries import decode, encode
from gallery_recorder.project.needs import Gpu
from gallery_recorder.run import gpus, parcel, process, workspace
from gallery_recorder.run.executors import Place, Told, lease
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.protocol import Failure, Result, Run, ScriptFailedError, StoppedError
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store import names
from gallery_recorder.store.format import FILE_NAME
from gallery_recorder.store.lock import locked

_ATTEMPTS = 3  # to execute one script; a node that is lost each time has another reason
_POLL = 0.2
_PATIENCE = 20.0  # seconds that a worker has to end its script when it is asked to

_TYPE = "accelerator_type:"  # how Ray calls the GPU models that a node has


class Made(msgspec.Struct, frozen=True, tag="made"):
    """What a worker sends back: the result and the content of its files, by name."""

    result: Result
    files: dict[str, bytes]


_ANSWERS = msgspec.msgpack.Decoder(Made | Failure)  # made once, before several threads use it


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Hold a connection to the cluster at *address*; None means the one that this machine is in.

    Raises:
        DeviceError: Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise DeviceError(
            "--engine ray needs Ray, which is not installed here. Install it with:\n"
            "  pip install 'gallery-recorder[ray]'"
        ) from error
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    package = Path(__file__).parents[1]
    try:
        _see_whether_it_answers(where)
        ray.init(
            where,
            # Where Ray ends a worker, the keeper of its script is to end all else by itself.
            runtime_env={
                "py_modules": [str(package)],
                "env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"},
            },
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray raises whatever happened to it
        raise DeviceError(
            f"no Ray cluster could be reached at {where}: {_first_line(error)}\n"
            "Start one with `ray start --head` on one machine and `ray start --address=HOST:6379` "
            "on the others, with the same versions of Python and Ray, and give --address HOST:6379 "
            "on one of them."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _see_whether_it_answers(address: str) -> None:
    """Try the port of *address*, since Ray would try it for minutes, and write about that."""
    at = urlsplit(address if "://" in address else f"//{address}")
    if at.hostname and at.port:
        socket.create_connection((at.hostname, at.port), timeout=_PATIENCE).close()


class RayEngine:
    """The GPUs of a cluster, or else its cores."""

    def __init__(self, device: str, jobs: int | None, accelerator: str | None) -> None:
        """See what the cluster has.

        Raises:
            DeviceError: a GPU was asked for and there is none, or they are of several types.
        """
        import ray

        count = _gpus(ray.nodes(), accelerator) if device != "cpu" else 0
        if not count and (device == "cuda" or accelerator):
            raise DeviceError(
                f"no node of the cluster has a GPU{f' of type {accelerator}' * bool(accelerator)}, "
                "and one is asked for. See what `ray status` lists; --device cpu records without."
            )
        # A worker has one script: what that did to its process or its GPU ends with it.
        self._resources: dict[str, Any] = {"max_calls": 1, "max_retries": 0, "num_cpus": 1}
        self.gpu: Gpu | None = None
        if count:
            self._resources["num_gpus"] = 1
            if accelerator:
                self._resources["accelerator_type"] = accelerator
            self.gpu = self._ask_for_gpu()
        # Ray leases a GPU to one task at a time, so nothing is to be held here. More jobs than GPUs
        # wait in Ray, where a cluster that grows by itself can see them.
        self.places: list[Place] = [None] * (jobs or count or _cores(ray.nodes()) or 1)
        self._packing = threading.Lock()
        self._parcel: Any = None

    def execute(self, run: Run, at: Workspace, stop: threading.Event, told: Told) -> Result:
        """Execute *run* on a node, and again on another where that one is lost."""
        import ray
        from ray import exceptions

        with self._packing:
            if self._parcel is None:
                self._parcel = ray.put(parcel.pack(run))
        lost = (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
        )
        remote = ray.remote(**self._resources)(execute_on_node)
        attempt = 1
        while True:
            try:
                answer = _wait_for(remote.remote(encode(run), self._parcel), stop)
                return _unpack(answer, run, at)
            except exceptions.RayError as error:
                first = _first_line(error)
                if isinstance(error, lost) and attempt < _ATTEMPTS:
                    told(f"its worker or node was lost; begins again ({first})")
                    attempt += 1
                    continue
                cause = f"could not be executed on the cluster: {first}"
                remedy = (
                    "Every node needs Python, Ray, what gallery-recorder needs and what the "
                    "scripts need, in the versions that this machine has."
                )
                if isinstance(error, lost):
                    cause = f"lost its worker or its node {_ATTEMPTS} times"
                    remedy = "See what Ray's logs on the nodes say, in /tmp/ray/session_latest/logs"
                elif isinstance(error, exceptions.OutOfMemoryError):
                    cause = "was ended by Ray: its node ran out of memory"
                    remedy = "Use smaller sizes, or nodes with more memory."
                raise ScriptFailedError(cause, remedy, detail=str(error)) from error

    def _ask_for_gpu(self) -> Gpu:
        """What a GPU of the cluster is; waits until one is free."""
        import ray

        try:
            return ray.get(ray.remote(**self._resources)(_own_gpu).remote())
        except ray.exceptions.RayError as error:
            raise DeviceError(
                f"a node of the cluster could not tell which GPU it has: {_first_line(error)}\n"
                "Every node needs what gallery-recorder[gpu] needs.\n"
                f"{error}"
            ) from error


def _unpack(answer: bytes, run: Run, at: Workspace) -> Result:
    """The result in a node's *answer*, with its files in ``at.recording``.

    Raises:
        ScriptFailedError: the script failed, or the answer is none to the order *run*.
    """
    try:
        made = _ANSWERS.decode(answer)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise _strange_node(f"answered nothing that can be read ({error})") from error
    if isinstance(made, Failure):
        raise ScriptFailedError(made)
    run.check(made.result)
    if len(made.files) > run.limit("files"):
        raise _strange_node(f"sent {len(made.files)} files")
    for name, content in made.files.items():
        if (
            name.casefold() == FILE_NAME
            or not names.is_path(name)
            or not {FILE_NAME, *made.files}.isdisjoint(map(str, Path(name).parents))
            or len(content) > run.limit("file")
        ):
            raise _strange_node(f"sent a file called {name!r:.200} of {len(content):,} bytes")
        target = at.recording / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return made.result


def _strange_node(what: str) -> ScriptFailedError:
    return ScriptFailedError(
        f"was executed on a node that {what}", "Look at that node: no recorder does this."
    )


def _gpus(nodes: list[dict[str, Any]], accelerator: str | None) -> int:
    """How many GPUs there are, of the type *accelerator* where one is asked for.

    Raises:
        DeviceError: they are of several types, and none is asked for.
    """
    count, types = 0, set()
    for resources in (node["Resources"] for node in nodes if node["Alive"]):
        own = {name.removeprefix(_TYPE) for name in resources if name.startswith(_TYPE)}
        if accelerator is None or accelerator in own:
            count += int(resources.get("GPU", 0))
            types |= own
    if len(types) > 1 and accelerator is None:
        raise DeviceError(
            f"the cluster has GPUs of several types: {', '.join(sorted(types))}. A folder of "
            "recordings belongs to one of them: say which, with --accelerator TYPE."
        )
    return count


def _cores(nodes: list[dict[str, Any]]) -> int:
    return sum(int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"])


def _wait_for(answer: Any, stop: threading.Event) -> bytes:
    import ray

    while not ray.wait([answer], timeout=_POLL)[0]:
        if stop.is_set():
            # Asked politely, the worker ends its script and removes what that left. Where it is
            # ended by force, the keeper of the script does so, which nobody here can see.
            ray.cancel(answer)
            if ray.wait([answer], timeout=_PATIENCE)[0]:
                raise StoppedError
            ray.cancel(answer, force=True)
            raise StoppedError(
                f"its node did not answer within {_PATIENCE:g} s; it was told to end the script, "
                "and whether it has is not known"
            )
    return ray.get(answer)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


# --- on a node ----------------------------------------------------------------------------------


def execute_on_node(order: bytes, packed: bytes) -> bytes:
    """Execute the run *order* on this node; return what it made or why it failed."""
    # What started the node may have ignored it, as a shell does for what is in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = decode(order, Run)
    gpu = gpus.leased_gpu() if run.kind == "gpu" else None
    if gpu is not None and gpu.name != run.device:
        return _encode(
            Failure(
                f"was given a {gpu.name}, and these are recordings of a {run.device}",
                "Ask for one type of GPU with --accelerator TYPE.",
            )
        )
    # Other recorders on the cluster may execute the script here too, for another folder.
    name = f"{run.example.label}-{secrets.token_hex(4)}"
    never = threading.Event()
    try:
        with _own_folder() as folder:
            mend = functools.partial(workspace.repair, folder, folder, lambda _: None)
            mend()
            workspace.remove_leftovers(folder, lambda _: None)
            lock = workspace.lock_path(folder, name)
            with (
                locked(lock, never, lambda _: None),
                lease(gpu, never, lambda _: None),
                workspace.made(folder, name, mend) as at,
            ):
                run = parcel.unpack(packed, order, at.project)
                if run.kind == "gpu":
                    # Ray allows one thread a core that it leased, and numbers GPUs by their bus;
                    # a script shall find what it finds where no Ray is.
                    os.environ.pop("OMP_NUM_THREADS", None)
                    run = msgspec.structs.replace(run, visible={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
                result = process.execute(run, at, never, abandoned=(at.folder, lock))
                return _encode(Made(result, result.files_in(at.recording)))
    except ScriptFailedError as error:
        return _encode(error.failure)
    except OSError as error:
        return _encode(
            Failure(
                f"could not be written on the node {os.uname().nodename}: {error}",
                "Make room there or set the permissions, then record it again.",
            )
        )


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder of this user's alone, in the temporary folder, which is open to all.

    One that is there already may be somebody else's, with code for us to execute.
    """
    folder = Path(tempfile.gettempdir()) / f"gallery-recorder-{os.getuid()}"
    with contextlib.suppress(FileExistsError):  # whose it is is seen below
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    ours = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()
    if ours and stat.S_IMODE(state.st_mode) & 0o077 == 0:
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}-") as other:
            yield Path(other)


def _encode(answer: Made | Failure) -> bytes:
    return msgspec.msgpack.encode(answer)


def _own_gpu() -> Gpu:
    """The GPU that this process was leased."""
    found = gpus.leased_gpu()
    if found is None:
        raise DeviceError("no driver tells of a GPU; is nvidia-ml-py or amdsmi installed?")
    return found
