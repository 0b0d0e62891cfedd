"""No process of a script outlives its keeper, and the keeper does not outlive the recorder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gallery_recorder.run import keeper
from tests.fixtures.room import PROJECT
from tests.fixtures.waiting import PATIENCE, wait_for

#: Ways for a process to get away from the one that started it.
ESCAPES = {
    "a child": "subprocess.Popen(['sleep', '986'])",
    "a daemon": "subprocess.Popen(['sleep', '986'], start_new_session=True)",
    "without environment": "subprocess.Popen(['setsid', 'sleep', '986'], env={})",
    "by two forks": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.execve('/usr/bin/env', ['env', '-i', 'sleep', '986'], {})\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)"
    ),
    "deaf to SIGTERM": (
        "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 986; sleep 986'], env={})"
    ),
}


class Kept:
    """A keeper with a module that executes *code*, and the recorder's ends of its pipes."""

    def __init__(self, folder: Path, code: str, left: str = "[]", grace: float = 1.0) -> None:
        (folder / "kept_module.py").write_text("import os, subprocess, sys, time\n" + code)
        events, its_events = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gallery_recorder.run.keeper"]
            + [str(its_events), str(grace), left, "kept_module", "@keeper"],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}"},
            stdin=subprocess.PIPE,
            pass_fds=[its_events],
            start_new_session=True,
        )
        os.close(its_events)
        self._lines = os.fdopen(events)
        self.pid = json.loads(self._lines.readline())["process"]

    def code(self) -> int:
        return json.loads(self._lines.readline())["status"]

    def ask(self) -> None:
        self.process.stdin.write(b"q")
        self.process.stdin.flush()

    def end(self, ask: bool = True) -> None:
        if ask:
            self.ask()
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self._lines.close()


@contextlib.contextmanager
def kept(folder, code, **options):
    made = Kept(folder, code, **options)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end()


@pytest.mark.parametrize("how", ESCAPES)
def test_every_process_is_found_and_ended(tmp_path, how):
    with kept(tmp_path, ESCAPES[how]) as made:
        assert made.code() == 0
        wait_for(
            lambda: any("sleep 986" in c for c in keeper.descendants(made.process.pid).values())
        )
        found = set(keeper.descendants(made.process.pid))
        made.end()
    for pid in found:
        assert not os.path.exists(f"/proc/{pid}") or "Z" in _state(pid)


def _state(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), 11)", -11),
        ("os.killpg(0, 9)", -9),
        ("assert sys.argv[1] == str(os.getppid())", 0),
    ],
)
def test_the_exit_status_is_told_as_it_was(tmp_path, code, status):
    with kept(tmp_path, code) as made:
        assert made.code() == status
        assert made.process.poll() is None
        assert keeper.descendants(made.process.pid) == {}


def test_what_still_runs_is_ended_when_that_is_asked(tmp_path):
    with kept(tmp_path, "time.sleep(986)") as made:
        made.ask()
        assert made.code() == -signal.SIGTERM


def test_when_the_recorder_is_gone_all_is_ended_and_its_folder_removed(tmp_path):
    left = tmp_path / "left"
    left.mkdir()
    (left / "a").write_text("x")
    (tmp_path / "lock").touch()
    with kept(
        tmp_path, "time.sleep(986)", left=json.dumps([str(left), str(tmp_path / "lock")])
    ) as made:
        made.end(ask=False)
    assert not left.exists()
    assert not (tmp_path / "lock").exists()
    assert _state(made.pid) == "Z"


#: A recorder that asks its keeper for the end of a script that takes its time, and is killed.
ASKS = """
import os, subprocess, sys, time
events, its_events = os.pipe()
keeper = subprocess.Popen([*sys.argv[1:4], str(its_events), *sys.argv[4:]],
                          stdin=subprocess.PIPE, pass_fds=[its_events], start_new_session=True)
while not os.path.exists("ready"):
    time.sleep(0.02)
os.write(keeper.stdin.fileno(), b"q")
os.kill(os.getpid(), 9)
"""


def test_a_recorder_that_is_killed_while_a_script_is_ended_leaves_no_folder(tmp_path):
    (tmp_path / "left").mkdir()
    (tmp_path / "deaf.py").write_text(
        "import signal, time\nsignal.signal(15, 1)\nopen('ready', 'w').close()\ntime.sleep(986)"
    )
    left = json.dumps([str(tmp_path / "left")])
    keeps = [sys.executable, "-m", "gallery_recorder.run.keeper", "1.0", left, "deaf"]
    path = f"{tmp_path}{os.pathsep}{PROJECT}"
    done = subprocess.run(
        [sys.executable, "-c", ASKS, *keeps], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: not (tmp_path / "left").exists())


def test_a_signal_that_the_script_sends_its_parent_does_nothing(tmp_path):
    code = (
        "import signal\nfor n in (1, 2, 3, 10, 12, 15): os.kill(os.getppid(), n)\ntime.sleep(0.2)"
    )
    with kept(tmp_path, code) as made:
        assert made.code() == 0
        assert made.process.poll() is None
