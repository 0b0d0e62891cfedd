"""Processes that are forks of one server share its imports, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from gallery_recorder.run import keeper, warm
from gallery_recorder.run.protocol import Loaded
from tests.fixtures import quick
from tests.fixtures.room import CONF, PROJECT, Room
from tests.fixtures.waiting import PATIENCE, wait_for

#: A script that says what it finds in its process, and leaves something behind there.
MESSY = """
import json, math, os, random, signal, sys, tempfile, threading
import numpy
with open(f"/proc/{os.getppid()}/stat") as file:
    parent = int(file.read().rpartition(")")[2].split()[1])
with open(f"/proc/{parent}/cmdline") as file:
    arguments = file.read().split("\\0")
found = {
    "server": parent if "gallery_recorder.run.warm" in arguments else None,
    "math": hasattr(math, "mess"),
    "variable": os.environ.get("MESS"),
    "threads": [threading.active_count(), len(os.listdir("/proc/self/task"))],
    "signals": [signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGHUP)],
    "temporary": tempfile.gettempdir() == os.environ["TMPDIR"],
    "session": os.getsid(0) == os.getpgrp() == os.getpid(),
    "descriptors": len(os.listdir("/proc/self/fd")),
    "hash": hash("a"),
    "path": sys.path,
    "names": sorted(name for name in os.environ),
    "numbers": [random.random(), numpy.random.rand()],
}
print(json.dumps(found))
math.mess = json.mess = 1
os.environ["MESS"] = "left"
os.chdir("/")
"""


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path, kept=False)


def found_by(room, name):
    """What a script found."""
    return json.loads(room.load(name).blocks[1].stdout)


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.stress), 2])
def test_scripts_share_servers_and_no_state(room, jobs):
    names = [f"{number:02}-a" for number in range(1, 6)]
    for name in names:
        room.write(name, MESSY)
    made = room.record(jobs=jobs)
    assert {outcome.status for outcome in made.values()} == {"recorded"}
    found = [found_by(room, name) for name in names]
    numbers = [number for one in found for number in one.pop("numbers")]
    assert len({*numbers}) == len(numbers)  # nobody else's random numbers
    servers = Counter(one.pop("server") for one in found)
    assert servers.pop(None) <= jobs  # before it was known what to import
    assert 1 <= len(servers) <= jobs
    for one in found:  # as the first, which was started without a server
        assert one == found[0]
    assert not found[0]["math"]
    assert room.left_over() == []


def test_one_script_alone_needs_no_server(room, monkeypatch):
    monkeypatch.setattr(warm, "Server", None)
    room.write("01-a", "x = 1")
    assert room.record()["01-a"].status == "recorded"


def test_a_script_that_ends_all_above_it_harms_no_other(room):
    """Where the kernel does not forbid it, each is ended that the script may signal."""
    room.write("01-a", "x = 1")
    room.write(
        "02-b",
        """
        import os, time
        keeper = os.getppid()
        server = int(open(f"/proc/{keeper}/stat").read().rpartition(")")[2].split()[1])
        for pid in (server, keeper):
            try:
                os.kill(pid, 9)
            except PermissionError:
                pass
        """,
    )
    room.write("03-c", "x = 1")
    made = room.record(jobs=1)
    assert made["01-a"].status == made["03-c"].status == "recorded"
    assert room.left_over() == []


#: What a conf.py may do that is seen in its process: it imports, and changes variables.
DOES = """
import os, sys, wave
sys.path.insert(0, {folder!r})
import own
os.environ["A"] = "a"
del os.environ["B"]
"""


def test_it_is_known_what_conf_py_imports_and_changes_and_not_what_a_script_does(room, monkeypatch):
    room.write("01-a", "import colorsys, os\nos.environ['C'] = 'c'")
    monkeypatch.setenv("B", "b")
    (room.folder / "own.py").write_text("number = 1\n")
    (room.folder / "conf.py").write_text(DOES.format(folder=str(room.folder)) + CONF)
    servers = warm.Servers()
    assert quick.record(room, room.options(), servers=servers)["01-a"].status == "recorded"
    found = servers.loaded
    assert found.changed == {"A": "a", "B": None}
    assert "sphinx.application" in found.modules
    assert "wave" in found.modules
    assert "colorsys" not in found.modules
    assert "own" not in found.modules, "a module of the project is each script's own"


@pytest.fixture
def start(tmp_path):
    """Start a keeper, by a server that imports *modules*, whose module executes *code*."""
    servers = warm.Servers()

    def started(code, modules=("no_such_module",), **changed):
        (tmp_path / "kept_module.py").write_text(f"import os, subprocess, sys, time\n{code}")
        servers.loaded = Loaded(modules, changed)
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        environment = {"PYTHONPATH": f"{tmp_path}:{PROJECT}", "PATH": os.environ["PATH"]}
        with (tmp_path / "out").open("ab") as out, open(os.devnull, "wb") as events:
            arguments = [str(events.fileno()), "1.0", json.dumps([]), "kept_module"]
            return servers.start(
                [sys.executable, "-P", "-m", "gallery_recorder.run.keeper", *arguments],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=folder,
                env=environment | {keeper.MARK: str(folder), "WHO": "me"},
                pass_fds=[events.fileno()],
                start_new_session=True,
            )

    yield started
    assert len(servers._free) <= 1
    servers.close()


def said(folder):
    """What came to the standard output, once something did."""
    return wait_for(lambda: (folder / "out").read_text())


@pytest.mark.parametrize(
    "code",
    [
        "import threading, time\nthreading.Thread(target=time.sleep, args=(985,)).start()",
        "import tempfile\nFOLDER = tempfile.gettempdir()",
    ],
    ids=["a thread", "the folder for temporary files"],
)
def test_what_a_fork_would_lack_or_share_wrongly_is_not_imported_before(tmp_path, start, code):
    (tmp_path / "some_module.py").write_text(code)
    made = start("print('some_module' in sys.modules, flush=True)", ("some_module",))
    assert said(tmp_path) == "False\n"
    assert isinstance(made, warm.Server)
    made.communicate(b"q", PATIENCE)


@pytest.mark.parametrize("value", ["1", "2"])
def test_an_import_goes_by_the_variables_that_the_first_process_had(tmp_path, start, value):
    (tmp_path / "some_module.py").write_text("import os\nos.environ['SET'] = '1'")
    made = start("print('some_module' in sys.modules, flush=True)", ("some_module",), SET=value)
    assert said(tmp_path) == f"{value == '1'}\n"
    made.communicate(b"q", PATIENCE)


def test_libraries_that_provide_for_forks_are_imported_before(tmp_path, start):
    made = start("print('numpy' in sys.modules, flush=True)", ("numpy", "matplotlib.pyplot"))
    assert said(tmp_path) == "True\n"
    made.communicate(b"q", PATIENCE)


def test_a_process_is_as_if_started_with_what_was_given(tmp_path, start):
    code = "print(os.getcwd(), os.environ['WHO'], os.getsid(0) == os.getpid(), flush=True)"
    for times in (1, 2):
        made = start(code)
        wait_for(lambda times=times: (tmp_path / "out").read_text().count("\n") == times)
        wait_for(lambda made=made: keeper.descendants(made.pid) == {})
        assert made.poll() is None
        made.communicate(b"q", PATIENCE)
    assert (tmp_path / "out").read_text() == f"{tmp_path / 'run'} me True\n" * 2


def test_what_a_killed_keeper_leaves_is_ended(start):
    made = start("subprocess.Popen(['setsid', 'sleep', '985'], env={}); os.fork(); time.sleep(985)")
    left = wait_for(lambda: len(found := keeper.descendants(made.pid)) == 3 and found)
    made.kill()
    made.communicate(b"q", PATIENCE)
    assert not [pid for pid in left if os.path.exists(f"/proc/{pid}")]


def test_a_keeper_that_cannot_be_ended_leaves_no_server_that_waits_for_it(start):
    made = start("time.sleep(985)")
    left = wait_for(lambda: keeper.descendants(made.pid))
    os.kill(made.pid, signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        made.communicate(b"q", 0.5)
    made.kill()
    assert made.process.returncode == -signal.SIGKILL
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_without_its_server_a_keeper_ends_all_the_same(start):
    made = start("time.sleep(985)")
    left = wait_for(lambda: keeper.descendants(made.pid))
    made.process.send_signal(signal.SIGKILL)
    made.process.wait()
    assert made.poll() is None
    made.communicate(b"q", PATIENCE)
    assert not [pid for pid in left if os.path.exists(f"/proc/{pid}")]


def test_a_server_that_was_killed_is_replaced(tmp_path, start):
    first = start("pass")
    first.communicate(b"q", PATIENCE)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    made = start("print('here', flush=True)")
    assert said(tmp_path) == "here\n"
    assert isinstance(made, subprocess.Popen)
    made.communicate(b"q", PATIENCE)
    made = start("pass")
    assert isinstance(made, warm.Server)
    made.communicate(b"q", PATIENCE)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_with_its_recorder_everything_ends(room, how):
    room.write("01-a", "x = 1")
    room.write("02-b", "import os, time\nif os.fork():\n    print(1)\ntime.sleep(985)")
    with room.start("--jobs", "1", stdout=subprocess.DEVNULL) as recorder:
        server = wait_for(lambda: _servers(recorder.pid))
        wait_for(lambda: len(keeper.descendants(server)) == 3)  # a keeper, the script, its fork
        recorder.send_signal(how)
    wait_for(lambda: not any("gallery_recorder" in left for left in room.left_over()))
    assert room.load("01-a")


def _servers(recorder):
    """The server that a recorder has started."""
    found = keeper.descendants(recorder).items()
    return next((pid for pid, command in found if command.endswith("run.warm")), None)
