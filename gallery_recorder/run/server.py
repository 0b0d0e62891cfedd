"""Read conf.py once, then fork for each example.

The process with the arguments CONTROL WHERE SCRATCH reads the project WHERE, with Sphinx's files in
SCRATCH, and sends it through the socket CONTROL as one line of JSON. Then each request, the paths
of a workspace with four descriptors, forks a supervisor, and the answer is an empty line.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from gallery_recorder import seam
from gallery_recorder.project import reader
from gallery_recorder.project.galleries import ProjectError, Where, decode, encode
from gallery_recorder.run import environment, gpus, supervisor, worker
from gallery_recorder.run.protocol import Run
from gallery_recorder.run.workspace import Workspace

_NO_GPU = (
    "uses the GPU, for example with torch.cuda.get_device_name(). The processes that it forks for "
    "examples could not use it then. Do this where it is needed: in an example, or in a function "
    "of reset_modules."
)


def main() -> None:
    """Serve until the recorder closes its end of CONTROL."""
    control, where = socket.socket(fileno=int(sys.argv[1])), decode(sys.argv[2].encode(), Where)
    given = dict(os.environ)
    gc.disable()  # imports leave much to look through
    supervisor.die_with_parent(signal.SIGKILL)  # conf.py may take long
    if select.select([control], [], [], 0)[0]:
        return  # the recorder has ended before
    try:
        with contextlib.redirect_stdout(sys.stderr):  # which keeps no line back
            app, project = reader.load(where, Path(sys.argv[3]))
        if gpus.uses_gpu():
            raise ProjectError(f"{where.conf}/conf.py: {_NO_GPU}")
    except ProjectError as error:
        control.sendall(encode(str(error)) + b"\n")
        return
    supervisor.die_with_parent(0)  # from now on the end of CONTROL ends it
    control.sendall(encode(project) + b"\n")
    server = _Server(control, app, given)
    while server.serve():
        pass
    for child in server.children:
        os.waitpid(child, 0)
    shutil.rmtree(sys.argv[3], ignore_errors=True)  # the recorder may have been killed


class _Server:
    """A process that has read conf.py; *app* is what it says."""

    def __init__(self, control: socket.socket, app: Any, given: dict[str, str]) -> None:
        self._control, self._app, self._given = control, app, given
        now = dict(os.environ)
        # The variables that conf.py has set or, with None, removed.
        self._changed = {n: now.get(n) for n in {*now, *given} if now.get(n) != given.get(n)}
        self.children: set[int] = set()
        self._prepared = False

    def serve(self) -> bool:
        """Start one example; False if the recorder has ended."""
        request, descriptors, _, _ = socket.recv_fds(self._control, 65_536, 4)
        if not request:
            return False
        workspace = Workspace(*map(Path, json.loads(request)))
        self.children -= {child for child in self.children if os.waitpid(child, os.WNOHANG)[0]}
        run = decode(workspace.order.read_bytes(), Run)
        if not self._prepared:
            self._prepared = True
            # Libraries read these variables when they are loaded.
            os.environ.update(run.settings.environment.get(run.kind, {}))
            seam.import_matplotlib()
            gc.freeze()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of threads
            child = os.fork()
        if child == 0:
            self._supervise(run, workspace, *descriptors)
        self.children.add(child)
        for descriptor in descriptors:
            os.close(descriptor)
        self._control.sendall(b"\n")
        return True

    def _supervise(self, run: Run, workspace: Workspace, life: int, *descriptors: int) -> NoReturn:
        """Be the supervisor of an example, and in a fork its worker."""
        status = 1
        try:
            self._control.close()
            work = partial(self._work, run, workspace, *descriptors)
            status = supervisor.main(socket.socket(fileno=life), descriptors[0], work)
        finally:
            os._exit(status)

    def _work(self, run: Run, workspace: Workspace, events: int, stdout: int, stderr: int) -> int:
        """Execute the example in this process, and end it as Python would."""
        gc.enable()
        atexit._clear()  # what was registered so far belongs to the process that read conf.py
        if util := sys.modules.get("multiprocessing.util"):
            util._finalizer_registry.clear()
            atexit.register(util._exit_function)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        with contextlib.suppress(OSError):  # where memory runs out, this process is ended first
            Path("/proc/self/oom_score_adj").write_text("1000")
        environment.enter(run, workspace, self._given, self._changed)
        status = worker.main(run, workspace, events, self._app)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        ctypes.CDLL(None).fflush(None)
        return status
