"""What a confined process can write, whatever call it makes and whatever it starts."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from gallery_recorder.run import confine
from tests.fixtures.room import PROJECT

needs_landlock = pytest.mark.skipif(not confine.version(), reason="this kernel has no Landlock")


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Execute *code* in a process that may write to the folder ``sys.argv[1]``, and to /dev."""
    head = """
        import ctypes, os, signal, subprocess, sys
        from pathlib import Path
        from gallery_recorder.run.confine import confine
        own, other = map(Path, sys.argv[1:3])
        assert confine([own, Path("/dev"), Path("/nowhere")])
    """
    return subprocess.run(
        [sys.executable, "-c", dedent(head) + dedent(code), *map(str, arguments)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def folders(tmp_path):
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "precious").write_text("do not lose this")
    return tmp_path / "own", tmp_path / "other"


ATTEMPTS = {
    "a file": "open(other / 'precious', 'w')",
    "a new file": "open(other / 'new', 'w')",
    "appending": "open(other / 'precious', 'a').write('x')",
    "truncating": "os.truncate(other / 'precious', 0)",
    "removing": "os.remove(other / 'precious')",
    "renaming": "os.rename(other / 'precious', other / 'b')",
    "renaming into its own": "os.rename(other / 'precious', own / 'b')",
    "a link into its own": "os.link(other / 'precious', own / 'b'); open(own / 'b', 'w')",
    "a symbolic link": "os.symlink(other / 'precious', own / 'b'); open(own / 'b', 'w')",
    "a folder": "(other / 'd').mkdir()",
    "a folder's descriptor": (
        "at = os.open(other, os.O_RDONLY); os.open('precious', os.O_WRONLY, dir_fd=at)"
    ),
    "a C library": (
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.unlink(bytes(other / 'precious')): raise OSError(ctypes.get_errno(), 'unlink')"
    ),
    "a child process": ("subprocess.run(['sh', '-c', f'echo x > {other}/precious'], check=True)"),
    "a daemon": (
        "subprocess.run(['env', '-i', 'setsid', '-w', 'rm', str(other / 'precious')], check=True)"
    ),
}


@needs_landlock
@pytest.mark.parametrize("how", ATTEMPTS)
def test_nothing_outside_is_written(folders, how):
    done = run(ATTEMPTS[how], *folders)
    assert done.returncode != 0
    assert (folders[1] / "precious").read_text() == "do not lose this"
    assert len(list(folders[1].iterdir())) == 1


@needs_landlock
def test_its_own_folder_and_devices_are_written_and_everything_is_read(folders):
    code = """
        (own / "a" / "b").mkdir(parents=True)
        (own / "a" / "x").write_text((other / "precious").read_text())
        os.rename(own / "a" / "x", own / "y")
        os.truncate(own / "y", 3)
        open("/dev/null", "w").write("x")
        open("/dev/shm/gallery-test-%d" % os.getpid(), "w").close()
        os.remove("/dev/shm/gallery-test-%d" % os.getpid())
        subprocess.run(["sh", "-c", f"ls {other} >{own}/z"], check=True)
        import shutil; shutil.rmtree(own / "a")
    """
    done = run(code, *folders)
    assert done.returncode == 0, done.stderr
    assert (folders[0] / "y").read_text() == "do "
    assert (folders[0] / "z").read_text() == "precious\n"


@pytest.mark.skipif(confine.version() < 6, reason="this kernel's Landlock is of files only")
@pytest.mark.parametrize("how", ["os.kill(os.getppid(), signal.SIGUSR2)", "os.kill(1, 0)"])
def test_no_signal_leaves(folders, how):
    done = run(how, *folders)
    assert "PermissionError" in done.stderr
    inside = run("p = subprocess.Popen(['sleep', '9']); p.kill(); assert p.wait() == -9", *folders)
    assert inside.returncode == 0, inside.stderr


def test_without_landlock_it_says_so(monkeypatch):
    monkeypatch.setattr(confine, "version", lambda: 0)
    assert not confine.confine([])
