"""Recording on a Ray cluster: a head and two nodes on this machine, one with two made-up GPUs."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gallery_recorder.project.galleries import Project, Where
from gallery_recorder.project.settings import Settings
from gallery_recorder.run import cluster
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.store import recording
from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import Room
from gallery_recorder.testing.waiting import PATIENCE, wait_for

PYNVML = """
import types
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(gpu): return "NVIDIA H200"
def nvmlDeviceGetUUID(gpu): return f"GPU-of-test_cluster-{gpu}"
def nvmlDeviceGetMemoryInfo(gpu): return types.SimpleNamespace(total=141 * 10**9)
def nvmlDeviceGetCudaComputeCapability(gpu): return 9, 0
"""

#: An example tells the test that it has begun, and waits until the test lets it go on.
TELL = """
import os, time
with open({folder!r} + "/begun", "a") as begun:
    begun.write(f"{name} {{os.getpid()}}\\n")
while not os.path.exists({folder!r} + "/{go}"):
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def address():
    """The address of a cluster whose head executes nothing."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install --group cluster")
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # the path of a socket is short
    (folder / "pynvml.py").write_text(PYNVML)
    try:
        for left in reversed(range(4)):  # a node gives up after 15 s if the machine is busy
            try:
                at = start_cluster(folder)
                break
            except subprocess.CalledProcessError:
                assert left, (folder / "log").read_text()
                end_cluster(folder)
        yield at
    finally:
        end_cluster(folder)
        shutil.rmtree(folder, ignore_errors=True)


def start_cluster(folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    surroundings = os.environ | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "60",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "4",
        "RAY_TMPDIR": str(folder),
        "TMPDIR": str(folder),
        "PYTHONPATH": str(folder),  # the engine has to come from the recorder
    }
    at = f"127.0.0.1:{port}"
    h200 = '--resources={"accelerator_type:H200": 1}'
    for node in (
        ("--head", f"--port={port}", "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false"),
        (f"--address={at}", "--num-cpus=2", "--num-gpus=2", h200),
        (f"--address={at}", "--num-cpus=1", "--num-gpus=0"),
    ):
        ray = [Path(sys.executable).with_name("ray"), "start", "--object-store-memory=80000000"]
        with open(folder / "log", "w") as log:  # a pipe would stay open as long as the node
            to = {"stdout": log, "stderr": log}
            subprocess.run([*ray, *node], cwd=folder, env=surroundings, check=True, **to)
    return at


def end_cluster(folder):
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("RAY_TMPDIR") == str(folder):
                process.kill()


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def begun(room):
    """The examples that have begun, in order, and their processes."""
    told = room.root / "begun"
    lines = told.read_text().splitlines() if told.exists() else []
    return [(name, int(process)) for name, process in map(str.split, lines)]


def write(room, name, code="", go="go"):
    room.write(name, TELL.format(folder=str(room.root), name=name, go=go) + code)


def record(room, *arguments):
    command = [*room.command("record"), "--engine", "ray", *arguments]
    environment = os.environ | {"PYTHONPATH": processes.search_path()}
    return subprocess.Popen(
        command, cwd=room.root, env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.cluster
def test_a_cluster_records_each_example_on_a_gpu_of_its_own(room, address):
    (room.examples / "table.txt").write_text("beside the scripts\n")
    shows = "print(os.environ['CUDA_DEVICE_ORDER'], os.environ['CUDA_VISIBLE_DEVICES'])\n"
    write(room, "01-a", shows + "print(open('table.txt').read(), 'OMP_NUM_THREADS' in os.environ)")
    write(room, "02-b", shows + "_ = open('data.csv', 'wb').write(b'a\\n' * 400_000)")
    room.write("03-fails", "1 / 0")
    room.write("04-needs", '# sphinx_gallery_needs = "memory>=200GB"')
    process = record(room, "--address", address)
    wait_for(lambda: {name for name, _ in begun(room)} == {"01-a", "02-b"})
    (room.root / "go").touch()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "2 recorded, 1 skipped, 1 failed." in printed
    assert "04-needs: skipped: needs memory>=200GB; NVIDIA H200 has 141 GB" in printed
    assert re.search(r"tutorials/03-fails\.py:\d+, block 2 of 2: raised ZeroDivisionError", printed)
    gallery = room.recordings / "nvidia-h200" / "tutorials"
    made = [recording.load(gallery / name) for name in ("01-a", "02-b")]
    assert [r.provenance.device for r in made] == ["NVIDIA H200"] * 2
    lines = [r.blocks[1].stdout.splitlines() for r in made]
    assert {first for first, *_ in lines} == {"PCI_BUS_ID 0", "PCI_BUS_ID 1"}
    assert lines[0][1:] == ["beside the scripts", " False"]
    assert (gallery / "02-b" / "data.csv").stat().st_size == 800_000
    assert room.left_over() == []


@pytest.mark.cluster
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_recorder_leaves_nothing_running_on_the_nodes(room, address, ending):
    write(room, "01-a", go="never")
    room.put_recording("01-a")
    before = room.content("01-a")
    process = record(room, "--address", address, "--device", "cpu")
    ((_, example),) = wait_for(lambda: begun(room))
    process.send_signal(ending)
    printed, _ = process.communicate(timeout=PATIENCE)
    if ending == signal.SIGINT:
        assert process.returncode == 128 + signal.SIGINT
        assert "01-a: interrupted" in printed
    wait_for(lambda: not psutil.pid_exists(example))
    assert room.content("01-a") == before


@pytest.mark.cluster
def test_an_example_whose_node_is_lost_is_executed_on_another(room, address):
    write(room, "01-a", "print('done')")
    process = record(room, "--address", address, "--device", "cpu", "--jobs", "1")
    ((_, example),) = wait_for(lambda: begun(room))
    (raylet,) = [p for p in psutil.Process(example).parents() if p.name() == "raylet"]
    raylet.kill()
    wait_for(lambda: len(begun(room)) == 2)
    wait_for(lambda: not psutil.pid_exists(example))
    (room.root / "go").touch()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, printed
    assert "01-a: lost its worker or node; starting again" in printed
    assert room.load("01-a").blocks[1].stdout == "done\n"


PLAN = Project(Where(None, None, (Path(__file__).parent,)), (), Settings())


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    remedy = r"pip install 'gallery-recorder\[ray\]'"
    with pytest.raises(DeviceError, match=remedy), cluster.connected(None, PLAN):
        pass


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", r"at 127\.0\.0\.1:1: .*refused(.|\n)*ray start --head"),
        ("auto", r"Ray: 2\.9 .*Ray: 2\.60"),
    ],
)
def test_a_missing_cluster_or_one_of_other_versions_is_an_error(monkeypatch, address, words):
    def init(*_, **__):
        raise RuntimeError("Version mismatch: The cluster has:\n  Ray: 2.9\nThis has:\n  Ray: 2.60")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(DeviceError, match=words), cluster.connected(address, PLAN):
        pass


def test_gpus_of_two_types_are_refused(monkeypatch):
    resources = {"CPU": 4.0, "GPU": 2.0, "accelerator_type:H200": 1, "accelerator_type:A100": 1}
    fake = SimpleNamespace(cluster_resources=lambda: resources)
    monkeypatch.setitem(sys.modules, "ray", fake)
    with pytest.raises(DeviceError, match="several types: A100, H200"):
        cluster.RayExecutor("auto", None)
