"""Execute an example under a launcher, which starts several ranks: mpirun, srun or torchrun.

The worker starts the launcher, which starts :func:`main` in each rank. Rank 0 makes the recording.
Other ranks have workspaces of their own; their output is part of the message if the example fails.
Ranks on several machines need a shared folder.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from gallery_recorder.project.galleries import decode
from gallery_recorder.run import copies, protocol, worker
from gallery_recorder.run.protocol import Channel, Failure, Run
from gallery_recorder.run.text import clean, shorten
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import Recording

#: The variables by which launchers tell a process its rank.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_EVENTS = msgspec.json.Decoder(protocol.Event)
_PATIENCE = 2.0  # seconds for other ranks to report why they failed

#: The program of a rank: an executable for mpirun and srun, a Python file for torchrun.
_PROGRAM = """#!{python}
import sys
sys.path.pop(0)
from gallery_recorder.run import ranks
sys.exit(ranks.main({folder!r}, {tmp!r}, {tree!r}))
"""


def launch(run: Run, workspace: Workspace, channel: Channel) -> int:
    """Execute *run* under its launcher and forward the events of rank 0; return the status."""
    program, pipe = workspace.folder / "rank.py", workspace.folder / "events"
    where = {"folder": str(workspace.folder), "tmp": str(workspace.tmp)}
    where["tree"] = str(workspace.tree)
    program.write_text(_PROGRAM.format(python=sys.executable, **where))
    program.chmod(0o700)
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    unread, failed = b"", False
    with open(workspace.folder / "launcher", "wb") as said:
        command = [*run.launcher, str(program)]
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        except OSError as error:
            cause = f"cannot start its launcher, {run.launcher[0]}: {error.strerror}"
            channel.send(Failure(cause, "Install or correct the launcher."))
            return 1
    while True:
        ended = process.poll() is not None
        if select.select([reading], [], [], 0 if ended else 0.1)[0]:
            unread += (received := os.read(reading, 65536))
            ended = ended and not received
            time.sleep(0 if received else 0.05)  # rank 0 has not opened it yet, or has closed it
        *lines, unread = unread.split(b"\n")
        for line in lines:
            event = _EVENTS.decode(line)
            if isinstance(event, Failure):
                failed = True
                time.sleep(_PATIENCE)
                event = msgspec.structs.replace(event, detail=event.detail + _others(workspace))
            channel.send(event)
        if ended:
            break
    if process.returncode and not failed:
        cause = f"ended with status {process.returncode} under {run.launcher[0]}"
        said_last = clean((workspace.folder / "launcher").read_bytes()[-4000:])
        detail = _others(workspace) or f"It printed last:\n{shorten(said_last, lines=30)}"
        channel.send(Failure(cause, "Correct the example or its launcher.", detail))
    return process.returncode


def _others(workspace: Workspace) -> str:
    """The failures of other ranks, or the ends of their standard error."""
    parts = []
    for folder in sorted(workspace.folder.glob("rank-*")):
        path = folder / "events"
        with contextlib.suppress(msgspec.DecodeError):  # the last one is being written
            lines = path.read_bytes().splitlines() if path.exists() else []
            events = [_EVENTS.decode(line) for line in lines]
            why = [event for event in events if isinstance(event, Failure)]
            name = folder.name.replace("-", " ")
            parts += [f"On {name} it {one.cause}:\n{one.detail}" for one in why]
            if not why and (text := clean((folder / "stderr").read_bytes()[-2000:])):
                parts.append(f"Standard error of {name} ends with:\n{shorten(text, lines=20)}")
    return "\n".join(parts)


def main(folder: str, tmp: str, tree: str) -> int:
    """Execute the example of the workspace *folder* as one rank; return the status."""
    workspace = Workspace(Path(folder), Path(tmp), Path(tree))
    run = decode(workspace.order.read_bytes(), Run)
    rank = next((os.environ[name] for name in _RANK if name in os.environ), "0")
    path = workspace.folder / "events"
    if rank != "0":
        own = workspace.folder / f"rank-{rank}"
        workspace = Workspace(own, Path(tmp, f"rank-{rank}"))
        workspace.create()
        copies.of_run(run, workspace.tree)
        path = own / "events"
    for number, file in ((1, workspace.stdout), (2, workspace.stderr)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
    status = worker.main(run, workspace, Channel(path), None)
    if not status and not run.example.expected_to_fail:  # by its status, a failure ends all ranks
        made = decode(workspace.result.read_bytes(), Recording)
        status = int(made.run.status == "failed")
    return status
