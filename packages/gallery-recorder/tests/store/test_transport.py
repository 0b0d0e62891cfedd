"""Recordings outside the main history: folders, archives, a branch of the repository."""

import io
import subprocess
import tarfile
import threading

import msgspec
import pytest
from gallery_recorder.store import lock, recording, transport
from gallery_recorder.store.recording import RecordingError
from gallery_recorder.store.transport import AbsentError, TransportError
from gallery_recorder.testing.projects import Room


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b")


def git(folder, *arguments):
    made = ["git", "-C", str(folder), *arguments]
    return subprocess.run(made, capture_output=True, text=True, check=True).stdout.strip()


def repository(folder, *names, origin=None):
    """A room in a git repository with made-up recordings of *names*."""
    room = Room(folder)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    if origin:
        git(folder, "remote", "add", "origin", str(origin))
    for name in names:
        room.put_recording(name)
    return room


def dated(room, name, date):
    """Record *name* again at another *date*."""
    folder, staging = room.recorded / name, room.root / "again"
    made = recording.load(folder)
    run = msgspec.structs.replace(made.run, recorded=date)
    staging.mkdir()
    (staging / "data.csv").write_bytes((folder / "data.csv").read_bytes())
    recording.save(msgspec.structs.replace(made, run=run), staging, folder)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("place", ["folder", "all.tar.gz", "all.zip", "branch:recordings"])
def test_what_is_pushed_can_be_pulled_and_the_newer_recording_stays(tmp_path, place):
    room = repository(tmp_path / "here", "01-a", "02-b")
    there = place if place.startswith("branch:") else str(tmp_path / place)
    assert transport.push(there, room.recordings, room.root).startswith("2 added, 0 replaced")
    pulled = tmp_path / "pulled"
    transport.pull(there, pulled, room.root)
    assert contents(pulled) == contents(room.recordings)
    dated(room, "01-a", "2027-01-02T03:04:05Z")
    transport.pull(there, room.recordings, room.root)
    assert recording.load(room.recorded / "01-a").run.recorded.startswith("2027")
    changes = transport.push(there, room.recordings, room.root)
    assert changes == "0 added, 1 replaced, 1 already up to date"
    (pulled / "notes.txt").write_text("mine")
    transport.pull(there, pulled, room.root)
    assert (pulled / "notes.txt").exists()
    assert contents(pulled / "interpreter") == contents(room.device)


def test_what_others_recorded_stays_and_the_branch_has_one_commit(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q", "--bare", str(origin := tmp_path / "origin"))
    one = repository(tmp_path / "one", "01-a", origin=origin)
    two = repository(tmp_path / "two", "02-b", origin=origin)
    fetched, late = transport._Branch.fetched, []

    def pushed_meanwhile(branch):
        found = fetched(branch)
        if not late:
            late.append(True)
            transport.push("branch:r", two.recordings, two.root)
        return found

    monkeypatch.setattr(transport._Branch, "fetched", pushed_meanwhile)
    transport.push("branch:r", one.recordings, one.root)
    names = git(origin, "ls-tree", "-r", "--name-only", "r").splitlines()
    assert [name.split("/")[2] for name in names[::2]] == ["01-a", "02-b"]
    assert git(origin, "rev-list", "--count", "r") == "1"


def test_a_branch_that_push_did_not_make_stays(tmp_path):
    room = repository(tmp_path, "01-a")
    before = git(tmp_path, "rev-parse", "main")
    for place, said in (("branch:main", "did not make"), ("branch:a b", "not the name")):
        with pytest.raises(TransportError, match=said):
            transport.push(place, room.recordings, tmp_path)
    assert git(tmp_path, "rev-parse", "main") == before
    with pytest.raises(AbsentError):
        transport.pull("branch:none", room.recordings, tmp_path)


def test_a_pull_that_fails_leaves_everything_as_it_was(tmp_path):
    room = repository(tmp_path / "here", "01-a")
    before = contents(room.recordings)
    there = repository(tmp_path / "there", "01-a", "02-b")
    dated(there, "01-a", "2027-01-02T03:04:05Z")
    (there.recorded / "02-b" / "data.csv").write_text("changed")
    with pytest.raises(RecordingError, match="not the file that was recorded"):
        transport.pull(str(there.recordings), room.recordings, room.root)
    with tarfile.open(evil := tmp_path / "evil.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    (tmp_path / "text.zip").write_text("no archive")
    for place in (evil, tmp_path / "text.zip"):
        with pytest.raises(TransportError, match="cannot be unpacked"):
            transport.pull(str(place), room.recordings, room.root)
    assert contents(room.recordings) == before
    assert not (tmp_path / "outside").exists()
    assert [path.name for path in room.root.glob(".recordings*")] == []


def test_only_a_recorder_that_lives_keeps_recordings_from_being_pulled(tmp_path):
    here, there = repository(tmp_path / "here", "01-a"), repository(tmp_path / "there", "02-b")
    (here.device / ".workspace-tutorials--01-a-12ab").mkdir()
    path = here.device / ".lock-tutorials--01-a"
    never = threading.Event()
    with lock.locked(path, never, print), pytest.raises(TransportError, match="another recorder"):
        transport.pull(str(there.recordings), here.recordings, here.root)
    path.touch()  # as after `kill -9`
    said = transport.pull(str(there.recordings), here.recordings, here.root)
    assert said.startswith("1 added")
    assert here.left_over() == []
