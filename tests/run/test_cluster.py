"""Recording on a Ray cluster: three nodes on this machine, one of which is lost in the middle.

The nodes are real: each has its own raylet, and a tutorial its own worker. Only the machine is
the same, and so is what they call GPU: there is none, so tutorials run in the interpreter.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from gallery_recorder.run import cluster, recorder
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.store import recording
from tests.fixtures.room import PROJECT, Room
from tests.fixtures.waiting import PATIENCE, wait_for

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: python -m pip install --group cluster",
)

#: Told to the test when a tutorial begins, from whatever node that happens on.
SAY = """
import os, socket
with socket.create_connection(("127.0.0.1", {port})) as line:
    line.sendall(f"{name} {{os.getpid()}}".encode())
"""

WAIT = """
import time
while not os.path.exists({go!r}):
    time.sleep(0.02)
"""


class Begun(socketserver.ThreadingTCPServer):
    """Hears which tutorials begin, how often, and in which process."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self._heard)
        self.said = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def _heard(self, request, address, server):
        name, process = request.recv(100).decode().split()
        self.said.append((name, int(process)))

    def times(self, name):
        return [process for said, process in self.said if said == name]


@pytest.fixture(scope="module")
def nodes():
    """A head that executes nothing, and two nodes that execute one tutorial at a time."""
    temporary = Path(tempfile.mkdtemp(prefix="gallery", dir="/tmp"))  # a socket's path is short
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_health_check_period_ms", "500")
    patch.setenv("RAY_health_check_failure_threshold", "4")
    patch.setenv("TMPDIR", str(temporary))
    patch.setenv("RAY_TMPDIR", str(temporary))
    # The package must come from the recorder, not from where this test was started.
    patch.delenv("PYTHONPATH", raising=False)
    patch.chdir(temporary)
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as what a shell starts with `&` does
    from ray.cluster_utils import Cluster

    size = {"object_store_memory": 80 * 2**20}
    # Loopback addresses, but not 127.0.0.1, for which Ray takes the machine's own instead.
    head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.2", **size}
    made = None
    try:
        for attempt in (1, 2, 3):  # Ray waits 30 s for a node; a busy machine may take longer
            try:
                made = Cluster(initialize_head=True, head_node_args=head)
                for address in ("127.0.0.3", "127.0.0.4"):
                    made.add_node(wait=False, num_cpus=1, node_ip_address=address, **size)
                made.wait_for_nodes(timeout=PATIENCE)
                signal.signal(signal.SIGINT, ignored)
                break
            except Exception:
                end_all_of(temporary)
                if attempt == 3:
                    raise
        patch.chdir(PROJECT)
        yield made, temporary
    finally:
        if made is not None:
            made.shutdown()
        signal.signal(signal.SIGINT, ignored)
        patch.undo()
        end_all_of(temporary)
        shutil.rmtree(temporary, ignore_errors=True)


def end_all_of(temporary):
    """End what a cluster left that did not come up, or not down: its processes have a mark."""
    mark = f"RAY_TMPDIR={temporary}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                os.kill(int(path.parent.name), signal.SIGKILL)


@pytest.fixture
def begun():
    server = Begun()
    yield server
    server.shutdown()
    server.server_close()


def options(nodes):
    return ["--engine", "ray", "--address", nodes[0].address]


def write(room, begun, name, code):
    say = SAY.format(port=begun.server_address[1], name=name)
    room.write(name, say + code)


def parents_of(process):
    """The processes above *process*."""
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
        yield process


def ended(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


#: A process that leaves its parent, session and environment, and does not end when asked to.
AWAY = """
import signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        {say}
        os.execve("/usr/bin/env", ["env", "-i", "sleep", "1000"], {{}})
    os._exit(0)
time.sleep(1000)
"""


@needs_ray
@pytest.mark.parametrize("ending", [[signal.SIGINT], [signal.SIGKILL], [signal.SIGINT] * 2])
def test_an_interrupted_recorder_ends_what_runs_on_the_nodes(tmp_path, nodes, begun, ending):
    room = Room(tmp_path)
    say = SAY.format(port=begun.server_address[1], name="away").strip().replace("\n", "\n        ")
    write(room, begun, "01-a", AWAY.format(say=say))
    room.put_recording("01-a")
    before = room.content("01-a")
    process = room.start(*options(nodes), stdout=subprocess.PIPE, text=True)
    wait_for(lambda: len(begun.said) == 2)
    for number in ending:
        process.send_signal(number)
    printed, _ = process.communicate(timeout=PATIENCE)
    if signal.SIGKILL not in ending:
        assert process.returncode == 128 + signal.SIGINT
        # A busy node may take longer than the recorder waits; then the script's keeper ends it.
        assert re.search("01-a: interrupted: (was ended|its node did not answer within)", printed)
        assert room.left_over() == []
    for _, number in begun.said:
        wait_for(lambda number=number: ended(number))
    wait_for(lambda: left_on_nodes(nodes) == [])
    assert room.content("01-a") == before


def left_on_nodes(nodes):
    return [path.name for path in nodes[1].glob("gallery-recorder-*/.*")]


@needs_ray
def test_a_lost_node_is_made_up_for_and_a_failing_tutorial_is_not_repeated(tmp_path, nodes, begun):
    made, _ = nodes
    room = Room(tmp_path)
    go = tmp_path / "go"
    waits = WAIT.format(go=str(go)) + "print('py_modules' in os.environ['PYTHONPATH'])"
    write(room, begun, "01-waits", waits)
    write(room, begun, "02-writes", "open('data.csv', 'wb').write(b'a\\n' * 400_000)")
    write(room, begun, "03-fails", "1 / 0")
    write(room, begun, "04-takes-its-worker-along", "os.kill(os.getppid(), 9)\ninput()")
    room.put_recording("03-fails")
    before = room.content("03-fails")
    process = room.start(*options(nodes), "--force", stdout=subprocess.PIPE, text=True)

    # The node on which the first tutorial runs is lost, while the others go on.
    wait_for(lambda: begun.times("01-waits"))
    (first,) = begun.times("01-waits")
    above = set(parents_of(first))
    (lost,) = [
        node
        for node in made.list_all_nodes()
        if above & {each.process.pid for each in node.all_processes["raylet"]}
    ]
    assert lost is not made.head_node
    made.remove_node(lost, allow_graceful=False)
    wait_for(lambda: ended(first))
    go.touch()
    printed, _ = process.communicate(timeout=PATIENCE)

    assert process.returncode == 1, printed
    assert "2 recorded, 2 failed." in printed
    assert re.search(r"01-waits: its worker or node was lost; begins again", printed)
    assert room.load("01-waits").blocks[1].stdout == "True\n"  # this package came along
    assert [*room.load("02-writes").files] == ["data.csv"]
    assert (room.gallery / "02-writes" / "data.csv").stat().st_size == 800_000
    assert re.search(r"tutorials/03-fails\.py:\d+, block 2 of 2: raised ZeroDivisionError", printed)
    assert room.content("03-fails") == before
    repeats = {name: len(begun.times(name)) for name, _ in begun.said}
    # Where the kernel confines a script, it cannot end what executes it; else it is begun again.
    confined = "04-takes-its-worker-along: failed" in printed and "PermissionError" in printed
    assert confined or "lost its worker or its node 3 times" in printed
    assert repeats == {
        "01-waits": 2,
        "02-writes": 1,
        "03-fails": 1,
        "04-takes-its-worker-along": 1 if confined else 3,
    }
    assert str(room.folder) not in printed.replace(str(room.recordings), "")
    assert room.left_over() == []

    # What a lost worker left on its node is removed by the next one there.
    again = room.run("record", "02", "--force", "--device", "cpu", *options(nodes))
    assert again.returncode == 0, again.stdout + again.stderr
    assert left_on_nodes(nodes) == []


@needs_ray
def test_without_a_gpu_in_the_cluster_asking_for_one_is_an_error(tmp_path, nodes):
    room = Room(tmp_path)
    room.write("01-a", "x = 1")
    done = room.run("record", "--device", "cuda", *options(nodes))
    assert done.returncode == 1
    assert "no node of the cluster has a GPU, and one is asked for" in done.stderr
    done = room.run("record", "--accelerator", "H200", *options(nodes))
    assert done.returncode == 1
    assert "no node of the cluster has a GPU of type H200" in done.stderr
    assert not room.recordings.exists()


#: What a node's tutorials ask about its GPUs, where there is none.
PYNVML = """
import types
class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(gpu): return "NVIDIA H200"
def nvmlDeviceGetUUID(gpu): return f"GPU-of-test_cluster-{gpu}"
def nvmlDeviceGetMigMode(gpu): raise NVMLError_NotSupported
def nvmlDeviceGetMemoryInfo(gpu): return types.SimpleNamespace(total=141 * 10**9)
def nvmlDeviceGetCudaComputeCapability(gpu): return 9, 0
"""


@needs_ray
def test_each_tutorial_has_a_gpu_of_its_own(tmp_path, nodes, begun, monkeypatch):
    """The GPUs are made up; that Ray leases them, and what tutorials see of that, is not."""
    made, _ = nodes
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "pynvml.py").write_text(PYNVML)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    node = made.add_node(
        num_cpus=2,
        num_gpus=2,
        resources={"accelerator_type:H200": 1},
        object_store_memory=80 * 2**20,
        node_ip_address="127.0.0.5",
    )
    monkeypatch.delenv("PYTHONPATH")
    room = Room(tmp_path)
    go = tmp_path / "go"
    shows = (
        "print(os.environ['CUDA_DEVICE_ORDER'], os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "print('OMP_NUM_THREADS' in os.environ)"
    )
    for name in ("01-a", "02-b"):
        write(room, begun, name, WAIT.format(go=str(go)) + shows)
    write(room, begun, "03-needs", '# sphinx_gallery_needs = "memory>=200GB"')
    command = [*room.command("record"), *options(nodes), "--accelerator", "H200"]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: {name for name, _ in begun.said} == {"01-a", "02-b"})
    finally:
        go.touch()
        printed, _ = process.communicate(timeout=PATIENCE)
        made.remove_node(node, allow_graceful=False)
    assert process.returncode == 0, printed
    assert "03-needs: skipped: needs memory>=200GB, and NVIDIA H200 has 141 GB" in printed
    device = room.recordings / "nvidia-h200" / "tutorials"
    recordings = [recording.load(device / name) for name in ("01-a", "02-b")]
    assert [r.provenance.device for r in recordings] == ["NVIDIA H200"] * 2
    assert {r.blocks[1].stdout for r in recordings} == {
        "PCI_BUS_ID 0\nFalse\n",
        "PCI_BUS_ID 1\nFalse\n",
    }


@needs_ray
def test_a_cluster_that_is_not_there_is_an_error(tmp_path):
    room = Room(tmp_path)
    room.write("01-a", "x = 1")
    done = room.run("record", "--device", "cpu", "--engine", "ray", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no Ray cluster could be reached at 127.0.0.1:1: " in done.stderr
    assert "ray start --head" in done.stderr


def test_without_ray_the_command_that_installs_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(DeviceError, match=r"pip install 'gallery-recorder\[ray\]'"),
        recorder.engine(recorder.Options(engine="ray")),
    ):
        pass


def test_the_recorder_itself_does_not_import_ray():
    code = "import sys, gallery_recorder.run.recorder; print('ray' in sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert printed.stdout == "False\n"


def test_what_belongs_to_a_cluster_is_refused_without_one(tmp_path):
    room = Room(tmp_path)
    room.write("01-a", "x = 1")
    done = room.run("record", "--address", "127.0.0.1:6379")
    assert done.returncode == 2
    assert "add --engine ray" in done.stderr


def node(alive=True, **resources):
    return {
        "Alive": alive,
        "Resources": {n.replace("_type_", "_type:"): v for n, v in resources.items()},
    }


def test_only_gpus_of_one_type_are_counted():
    h200 = node(GPU=8.0, accelerator_type_H200=1.0)
    a100 = node(GPU=4.0, accelerator_type_A100=1.0)
    unknown = node(GPU=2.0)
    assert cluster._gpus([h200, h200, node(CPU=4.0)], None) == 16
    assert cluster._gpus([h200, node(alive=False, GPU=8.0)], None) == 8
    assert cluster._gpus([unknown], None) == 2
    assert cluster._gpus([h200, a100], "A100") == 4
    assert cluster._gpus([h200], "L4") == 0
    with pytest.raises(DeviceError, match=r"several types: A100, H200.*--accelerator TYPE"):
        cluster._gpus([h200, a100], None)
