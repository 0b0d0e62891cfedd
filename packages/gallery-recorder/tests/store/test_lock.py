"""Locks between recorders, also of several users."""

import os
import signal
import threading

import pytest

from gallery_recorder.store import lock

NOBODY = 65534


def test_a_killed_holder_leaves_no_lock_and_waiting_can_be_stopped(tmp_path):
    path, stop, told = tmp_path / "lock", threading.Event(), []
    holder = os.fork()
    if holder == 0:
        with lock.locked(path, stop, told.append):
            os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(holder, os.WUNTRACED)
    threading.Timer(0.3, stop.set).start()
    with lock.locked(path, stop, told.append) as mine:
        assert not mine
    assert told == ["another recorder"]
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with lock.locked(path, threading.Event(), told.append) as mine:
        assert mine
    assert len(told) == 1
    assert not path.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users: run as root")
def test_another_user_waits_and_can_hold_the_lock_next():
    path = lock.machine_folder() / f"test-{os.getpid()}"
    never = threading.Event()
    with lock.locked(path, never, print):
        assert as_nobody(path, seconds=0.2) == 1
    assert as_nobody(path, seconds=5.0) == 0


def as_nobody(path, seconds):
    """Lock *path* as another user; 0 if that works within *seconds*."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            stop = threading.Event()
            threading.Timer(seconds, stop.set).start()
            with lock.locked(path, stop, lambda _: None) as mine:
                status = 0 if mine else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
