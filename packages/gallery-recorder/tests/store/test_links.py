"""Git brings links, too: nothing is written through one, and nothing is read behind one."""

import shutil

import msgspec
import pytest

from gallery_recorder.run import subset
from gallery_recorder.store import atomic, recording, status, transport
from gallery_recorder.store.recording import LaterFailure, RecordingError
from gallery_recorder.testing.projects import Room


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


@pytest.fixture
def outside(tmp_path_factory):
    """A file outside of the project, which must stay as it is."""
    path = tmp_path_factory.mktemp("outside") / "file"
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"


def test_a_failure_beside_a_recording_is_not_written_through_a_link(room, outside):
    folder = room.put_recording("01-a")
    (folder.parent / ".01-a.failed.json.new").symlink_to(outside)
    (folder.parent / "01-a.failed.json").symlink_to(outside)
    LaterFailure("0" * 64, "2026-01-02T03:04:05Z", "failed").save(folder)
    assert not (folder.parent / "01-a.failed.json").is_symlink()


def test_shares_are_not_written_through_a_link(room, outside):
    room.write("01-a", "x = 1")
    room.write("02-b", "x = 1")
    room.recordings.mkdir()
    path = room.recordings / ".shards.json"
    path.symlink_to(outside)
    subset.share(room.project().examples, 1, 2, lambda _: None, room.recordings)
    assert not path.is_symlink()


def test_a_migrated_recording_is_not_written_through_a_link(room, outside):
    folder = room.put_recording("01-a")
    (folder / ".recording.json.new").symlink_to(outside)
    atomic.write(folder / "recording.json", (folder / "recording.json").read_bytes())


def test_an_archive_is_not_written_through_a_link(room, outside):
    room.put_recording("01-a")
    (room.root / ".all.zip.new").symlink_to(outside)
    transport.push(str(room.root / "all.zip"), room.recordings, room.root)
    assert (room.root / "all.zip").is_file()


def test_a_write_that_fails_or_is_killed_leaves_no_file_for_ever(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(OSError, match="full"), atomic.replaced(path):
        raise OSError("full")
    assert [*tmp_path.iterdir()] == []
    killed = atomic.replaced(path)
    killed.__enter__().write(b"half")  # and nothing more
    assert len([*tmp_path.iterdir()]) == 1
    atomic.write(path, b"whole")
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("place", ["", "images"])
def test_a_linked_folder_of_a_recording_is_damage_wherever_it_is_read(room, tmp_path, place):
    room.write("01-a", "x = 1")
    folder = room.put_recording("01-a")
    if place:
        (folder / place).mkdir()
        (folder / place / "a.svg").write_text("<svg/>")
        made = recording.load(folder)
        files = {**made.files, "images/a.svg": recording.digest(folder / place / "a.svg")}
        staging = shutil.copytree(folder, room.root / "staging")
        recording.save(msgspec.structs.replace(made, files=files), staging, folder)
    shutil.move(folder / place, tmp_path / "moved")
    (folder / place).symlink_to(tmp_path / "moved")
    with pytest.raises(RecordingError, match="is a symbolic link"):
        recording.load(folder)
    assert [*recording.all_recordings(room.recordings)] == [folder]
    states = [row.state for row in status.rows(room.project()) if row.name == "01-a"]
    assert "damaged" in states


def test_recordings_behind_a_linked_folder_are_neither_read_nor_written(room, tmp_path_factory):
    room.write("01-a", "x = 1")
    room.put_recording("01-a")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "device"
    shutil.move(room.device, elsewhere)
    room.device.symlink_to(elsewhere)
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    assert [*recording.all_recordings(room.recordings)] == []
    assert recording.find(room.recordings, "tutorials", "01-a") == []
    outcome = room.record()["01-a"]
    assert outcome.status == "failed"
    assert str(room.device) in outcome.text
    assert before == {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}


def test_a_pulled_recording_is_not_put_behind_a_link(room, tmp_path_factory):
    room.put_recording("01-a")
    other = Room(tmp_path_factory.mktemp("other"))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    other.recordings.mkdir()
    other.device.symlink_to(elsewhere)
    with pytest.raises(transport.TransportError, match=str(other.device.name)):
        transport.pull(str(room.recordings), other.recordings, other.root)
    assert [*elsewhere.iterdir()] == []
