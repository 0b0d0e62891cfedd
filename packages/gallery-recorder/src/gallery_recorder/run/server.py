"""Read conf.py once, then fork for each example.

Called with the arguments CONTROL WHERE SCRATCH, this process reads the project WHERE, with Sphinx's
files in SCRATCH, and sends it to the socket CONTROL as a line of JSON. A request is the paths of a
workspace with three descriptors; the process then forks a supervisor and answers with a line with
its process id. Without SCRATCH, the process that executes the example reads conf.py.
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
from gallery_recorder.project.script import ScriptError, load_script
from gallery_recorder.run import environment, gpus, provenance, ranks, supervisor, worker
from gallery_recorder.run.protocol import END_ORPHANS, Channel, Run
from gallery_recorder.run.workspace import Workspace

#: Prefixes of variables that the C library and Python read when a process starts.
_EARLY = ("LD_", "MALLOC_", "GLIBC_", "PYTHON")


def main() -> None:
    """Serve until the recorder closes its end of CONTROL."""
    control, where = socket.socket(fileno=int(sys.argv[1])), decode(sys.argv[2].encode(), Where)
    given = dict(os.environ)
    gc.disable()  # imports create many objects to scan
    app: Any = None
    if sys.argv[3:]:
        supervisor.die_with_parent(signal.SIGKILL)  # conf.py may take long
        if select.select([control], [], [], 0)[0]:
            return  # the recorder has ended already
        try:
            with contextlib.redirect_stdout(sys.stderr):  # unbuffered
                app, project = reader.load(where, Path(sys.argv[3]))
        except ProjectError as error:
            control.sendall(encode(str(error)) + b"\n")
            return
        supervisor.die_with_parent(0)  # from now on, this process ends when CONTROL is closed
        control.sendall(encode(project) + b"\n")
    server = _Server(control, app, given)
    while server.serve():
        pass
    for child in server.children:
        os.waitpid(child, 0)
    if app:
        shutil.rmtree(sys.argv[3], ignore_errors=True)  # the recorder may have been killed


class _Server:
    """Forks for examples; *app* is the application that has read conf.py, if any."""

    def __init__(self, control: socket.socket, app: Any, given: dict[str, str]) -> None:
        self._control, self._app, self._given = control, app, given
        now = dict(os.environ)
        # The variables that conf.py has set, or removed (None).
        self._changed = {n: now.get(n) for n in {*now, *given} if now.get(n) != given.get(n)}
        self.children: set[int] = set()
        # conf.py may have started processes of its own.
        self._own_children = {*supervisor.children_of(os.getpid())}
        supervisor.adopt_orphans()
        self._prepared = False

    def serve(self) -> bool:
        """Start one example; return False if the recorder has ended."""
        request, descriptors, _, _ = socket.recv_fds(self._control, 65_536, 3)
        if not request:
            return False
        if request.startswith(END_ORPHANS):
            self._end_orphans(int(request.removeprefix(END_ORPHANS)))
            self._control.sendall(b"0\n")
            return True
        workspace = Workspace(*map(Path, json.loads(request)))
        self.children -= {child for child in self.children if os.waitpid(child, os.WNOHANG)[0]}
        answer = self._unfit(workspace) or ""
        if not answer:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from Python 3.12, about threads of libraries
                child = os.fork()
            if child == 0:
                self._supervise(workspace, *descriptors)
            self.children.add(child)
            answer = str(child)
        for descriptor in descriptors:
            os.close(descriptor)
        self._control.sendall(f"{answer}\n".encode())
        return True

    def _unfit(self, workspace: Workspace) -> str | None:
        """Why a fork of this process cannot execute an example; None if it can."""
        if self._app is None:
            return None
        if not self._prepared:
            self._prepared = True
            run = decode(workspace.order.read_bytes(), Run)
            chosen = run.settings.environment.get(run.kind, {})
            if early := [name for name in chosen if name.startswith(_EARLY)]:
                return f"sets {early[0]}, which a process reads when it starts"
            os.environ.update(chosen)  # libraries read them when they are loaded
            seam.import_matplotlib()
            # What each example would do again: the first use of regular expressions compiles them.
            provenance.prepare()
            with contextlib.suppress(ScriptError):
                _ = load_script(run.example.path).key
            gc.freeze()
        if gpus.uses_gpu():
            return "uses the GPU, for example with torch.cuda.is_available()"
        threads = [thread.name for thread in threading.enumerate() if thread.is_alive()][1:]
        return f"has started a thread, {threads[0]}" if threads else None

    def _supervise(self, workspace: Workspace, life: int, *descriptors: int) -> NoReturn:
        """In this fork, supervise an example; in another fork, execute it."""
        status = 1
        try:
            self._control.close()
            work = partial(self._work, workspace, *descriptors)
            channel = Channel(workspace.events)
            status = supervisor.main(socket.socket(fileno=life), channel, work)
        finally:
            os._exit(status)

    def _end_orphans(self, killed: int) -> None:
        """End what an example left that *killed* its supervisor."""
        if killed in self.children:
            os.waitpid(killed, 0)  # only then are its children this process's
            self.children.remove(killed)
        supervisor.end_descendants(0.0, self.children | self._own_children)

    def _work(self, workspace: Workspace, stdout: int, stderr: int) -> int:
        """Execute the example in this process, and end it as Python would."""
        gc.enable()
        atexit._clear()  # handlers registered so far belong to the server
        if util := sys.modules.get("multiprocessing.util"):
            util._finalizer_registry.clear()
            atexit.register(util._exit_function)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        with contextlib.suppress(
            OSError
        ):  # if memory runs out, the kernel kills this process first
            Path("/proc/self/oom_score_adj").write_text("1000")
        run = decode(workspace.order.read_bytes(), Run)
        environment.enter(run, workspace, self._given, self._changed)
        if run.launcher:
            status = ranks.launch(run, workspace, Channel(workspace.events))
        else:
            status = worker.main(run, workspace, Channel(workspace.events), self._app)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        ctypes.CDLL(None).fflush(None)
        return status
