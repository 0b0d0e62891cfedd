"""A lock between users and jobs of one machine, in folders that are open to all."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from gallery_recorder.project.needs import Gpu
from gallery_recorder.run import executors
from gallery_recorder.store import lock

NOBODY = 65534


def as_user(user, function):
    """What *function* gives in a process of *user*."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(user)
            os.setuid(user)
            told = repr(function())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        told = file.read()
    os.waitpid(child, 0)
    return told


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")


@pytest.fixture
def shared(tmp_path):
    """A folder that is open to all, as /tmp is, which `nobody` can reach."""
    folder = Path("/var/tmp") / f"gallery-{tmp_path.name}-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_a_link_in_a_locks_place_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("do not lose this")
    (tmp_path / "lock").symlink_to(precious)
    with pytest.raises(OSError, match="is a symbolic link, in the place of a lock; remove it"):
        lock.try_lock(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="is a symbolic link"):
        lock.try_lock(tmp_path / "lock")
    assert not (tmp_path / "nowhere").exists()
    assert precious.read_text() == "do not lose this"


@pytest.mark.parametrize("kind", ["pipe", "folder", "second name", "long file"])
def test_what_is_no_lock_is_neither_waited_for_nor_written(tmp_path, kind):
    path = tmp_path / "lock"
    precious = tmp_path / "precious"
    precious.write_text("do not lose this, " * 10)
    {
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "second name": lambda: path.hardlink_to(precious),
        "long file": lambda: precious.rename(path),
    }[kind]()
    with pytest.raises(OSError, match="lock"):
        lock.try_lock(path)
    if precious.exists():
        assert "do not lose" in precious.read_text()


def test_a_gpu_has_one_lock_whatever_tmpdir_and_user(tmp_path, monkeypatch):
    gpu = Gpu("NVIDIA H200", "GPU-1234", {}, 1)
    here = executors.gpu_lock(gpu)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert executors.gpu_lock(gpu) == here
    assert tmp_path not in here.parents


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="as Linux has it")
def test_the_folder_of_locks_is_the_systems_and_nobody_removes_anothers(monkeypatch, tmp_path):
    folder = lock.machine_folder()
    assert folder.stat().st_uid == 0
    assert folder.stat().st_mode & 0o1777 == 0o1777
    tmp_path.chmod(0o777)  # not sticky: anybody could remove a lock
    monkeypatch.setattr(lock, "_SHARED", (tmp_path, *lock._SHARED))
    assert lock.machine_folder() == folder


@needs_root
def test_two_users_exclude_each_other(shared):
    path = shared / "lock"
    held = lock.try_lock(path)
    assert as_user(NOBODY, lambda: lock.try_lock(path)) == "None"
    assert as_user(NOBODY, lambda: lock.holder(path)) == f"'process {os.getpid()}'"
    lock.unlock(path, held)
    assert as_user(NOBODY, lambda: lock.try_lock(path) is not None) == "True"
    held = lock.try_lock(path)  # what `nobody` left
    assert held is not None
    assert as_user(NOBODY, lambda: lock.try_lock(path)) == "None"
    lock.unlock(path, held)


@needs_root
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_another_users_leftover_is_no_obstacle(tmp_path, shared, mode):
    path = shared / "lock"
    path.write_text("1")
    path.chmod(mode)
    os.chown(shared, NOBODY, NOBODY)

    def lock_and_unlock():
        with lock.locked(path, threading.Event(), lambda told: None) as mine:
            return mine

    assert as_user(NOBODY, lock_and_unlock) == "True"


@needs_root
def test_another_users_lock_that_is_held_stays(shared):
    path = shared / "lock"
    held = lock.try_lock(path)
    path.chmod(0o600)
    os.chown(shared, NOBODY, NOBODY)
    assert "PermissionError" in as_user(NOBODY, lambda: lock.try_lock(path))
    assert path.exists()
    lock.unlock(path, held)
