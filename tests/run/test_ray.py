"""What comes from a cluster's node, and the folder there, are believed only as far as they fit."""

from __future__ import annotations

import _thread
import os
import signal
import stat
from pathlib import Path

import msgspec
import pytest

from gallery_recorder.project.galleries import Example, Where, encode
from gallery_recorder.project.settings import Settings
from gallery_recorder.run import cluster, parcel, workspace
from gallery_recorder.run.protocol import Failure, Result, Run, ScriptFailedError
from gallery_recorder.store.format import Block, Provenance
from tests.fixtures.room import Room

KEY = "0" * 64


#: What the recorder asked a node for.
ORDER = Run(
    Example(Path("a.py"), "tutorials", "a", "tutorials", recorded=True, may_fail=False),
    (KEY,),
    Where(None, None),
    Path("."),
    Settings(limits={"file": 1000, "files": 100}),
    *("cpu", "NVIDIA H200", 60.0),
)


def answer(device="NVIDIA H200", keys=(KEY,), files=None):
    made = Result(
        Provenance(device, "cpu", "Linux", "3.12"),
        tuple(Block(1, key, 1.0) for key in keys),
        1.0,
        True,
    )
    return msgspec.msgpack.encode(cluster.Made(made, files or {"a.csv": b"x"}))


@pytest.fixture
def at(tmp_path):
    found = workspace.Workspace(tmp_path / "workspace", tmp_path / "tmp")
    found.create()
    return found


def test_a_result_is_unpacked(at):
    result = cluster._unpack(answer(files={"a.csv": b"x", "images/b.png": b"y"}), ORDER, at)
    assert result.provenance.device == "NVIDIA H200"
    assert (at.recording / "images" / "b.png").read_bytes() == b"y"


@pytest.mark.parametrize(
    "name",
    [
        *("../../../x", "/etc/x", "a/../../x", ".hidden", "a//b", "recording.json", "con", "a\nb"),
        "Recording.JSON",
        *("a\x00b", "", ".", "..", "x" * 300, "a\\b"),
    ],
)
def test_a_file_of_another_name_is_refused(at, tmp_path, name):
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(ScriptFailedError) as error:
        cluster._unpack(answer(files={name: b"x"}), ORDER, at)
    assert "sent a file called" in error.value.failure.cause
    assert sorted(path for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (answer(device="NVIDIA A100"), "another device, NVIDIA A100, than NVIDIA H200"),
        (answer(keys=("1" * 64,)), "other blocks than the script has"),
        (answer(keys=()), "0 blocks where the script has 1"),
        (answer(files={"a.csv": b"x" * 1001}), "sent a file called 'a.csv' of 1,001 bytes"),
        (answer(files={"a/b": b"x", "a": b"x"}), "sent a file called 'a/b'"),
        (answer(files={"recording.json/b": b"x"}), "sent a file called 'recording.json/b'"),
        (answer(files={f"{n}.csv": b"" for n in range(101)}), "sent 101 files"),
        (b"", "answered nothing that can be read"),
        (b"\x93garbage", "answered nothing that can be read"),
        (None, "answered nothing that can be read"),
        ("text", "answered nothing that can be read"),
        (msgspec.msgpack.encode(Failure("", "")), "answered nothing that can be read"),
        (msgspec.msgpack.encode(Failure("broke", "Mend it.")), "broke"),
    ],
)
def test_an_answer_that_does_not_fit_the_order_is_refused(at, sent, words):
    with pytest.raises(ScriptFailedError) as error:
        cluster._unpack(sent, ORDER, at)
    assert words in error.value.failure.cause
    assert list(at.recording.iterdir()) == []


def test_the_folder_on_a_node_is_this_users_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"gallery-recorder-{os.getuid()}"
    for _ in range(2):
        with cluster._own_folder() as found:
            assert found == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


@pytest.mark.parametrize("made", ["open to all", "a link", "a file", "another user's"])
def test_a_folder_that_somebody_else_made_is_not_used(tmp_path, monkeypatch, made):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"gallery-recorder-{os.getuid()}"
    (tmp_path / "theirs").mkdir()
    if made == "a link":
        own.symlink_to(tmp_path / "theirs")
    elif made == "a file":
        own.touch()
    else:
        own.mkdir(mode=0o777)
        own.chmod(0o777 if made == "open to all" else 0o700)
        if made == "another user's":
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with cluster._own_folder() as found:
        assert found != own
        assert stat.S_IMODE(found.stat().st_mode) == 0o700
        assert found.parent == tmp_path
    assert not found.exists()


def order_of(plan, example, **more):
    return msgspec.structs.replace(
        ORDER, example=example, where=plan.where, top=plan.top, settings=plan.settings, **more
    )


def test_a_script_that_takes_the_permissions_of_the_folder_on_a_node_away(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    room = Room(tmp_path / "room")
    room.write("01-a", "import os\n_ = os.system('chmod 0 $(dirname $GALLERY_STAGING)')")
    plan = room.project()
    (example,) = plan.examples
    keys = tuple(block.key for block in example.load().code)
    order = order_of(plan, example, keys=keys, device="interpreter")
    answer = cluster.execute_on_node(encode(order), parcel.pack(order))
    assert isinstance(cluster._ANSWERS.decode(answer), cluster.Made)
    own = tmp_path / f"gallery-recorder-{os.getuid()}"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert list(own.iterdir()) == []


def test_a_node_that_was_started_in_the_background_can_be_interrupted(tmp_path, monkeypatch):
    """A shell lets what it starts with `&` ignore SIGINT, by which Ray ends a task politely."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cluster, "decode", lambda *_: _thread.interrupt_main())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            cluster.execute_on_node(b"", b"")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_link_in_a_project_is_sent_as_what_it_leads_to(tmp_path):
    (tmp_path / "elsewhere").write_text("1\n")
    room = Room(tmp_path / "room")
    room.write("01-a", "x = 1")
    (room.tutorials / "table.txt").symlink_to(tmp_path / "elsewhere")
    (room.tutorials / "gone.txt").symlink_to("nowhere")
    (room.tutorials / "again").symlink_to(".")
    plan = room.project()
    (example,) = plan.examples
    order = order_of(plan, example)
    sent = parcel.unpack(parcel.pack(order), encode(order), tmp_path / "node")
    assert sent.example.path.read_text() == example.path.read_text()
    assert (sent.example.path.parent / "table.txt").read_text() == "1\n"
    assert not (sent.example.path.parent / "table.txt").is_symlink()
