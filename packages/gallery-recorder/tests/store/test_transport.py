"""Recordings outside the main history: folders, archives, a branch of the repository."""

import io
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import zipfile
from datetime import datetime, timedelta, timezone

import msgspec
import pytest

from gallery_recorder.project.script import load_script
from gallery_recorder.run import process
from gallery_recorder.store import atomic, format, lock, recording, transport
from gallery_recorder.store.format import date_of
from gallery_recorder.store.inputs import Here
from gallery_recorder.store.recording import LaterFailure, RecordingError
from gallery_recorder.store.transport import AbsentError, TransportError
from gallery_recorder.testing.projects import Room, printed


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
    dated(room, "01-a", "2026-03-02T03:04:05Z")
    transport.pull(there, room.recordings, room.root)
    assert recording.load(room.recorded / "01-a").run.recorded.startswith("2026-03")
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
    dated(there, "01-a", "2026-03-02T03:04:05Z")
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


# --- at the same time -----------------------------------------------------------------------------


def names(folder):
    return sorted(path.name for path in recording.all_recordings(folder))


@pytest.fixture
def slow(monkeypatch):
    """Copying a folder of recordings waits until the value, an event, is set, or for a while."""
    copytree, reached, go_on = shutil.copytree, threading.Event(), threading.Event()

    def waits(*arguments, **options):
        made = copytree(*arguments, **options)
        if not reached.is_set():
            reached.set()
            go_on.wait(1.0)
        return made

    monkeypatch.setattr(shutil, "copytree", waits)
    return reached


def test_what_is_recorded_during_a_pull_is_kept(tmp_path, monkeypatch, slow):
    there = repository(tmp_path / "there", "02-b")
    here = repository(tmp_path / "here", "03-c")
    here.write("01-a", "x = 1")

    def execute(run, at, *_):
        return printed(at.recording, run.example.name, run.keys, "new\n")

    monkeypatch.setattr(process, "execute", execute)
    plan = here.project()
    pulling = threading.Thread(
        target=transport.pull, args=(str(there.recordings), here.recordings, here.root)
    )
    pulling.start()
    slow.wait()
    assert here.record("01", plan=plan)["01-a"].status == "recorded"
    pulling.join()
    assert names(here.recordings) == ["01-a", "02-b", "03-c"]
    assert here.left_over() == []


@pytest.mark.parametrize("place", ["folder", "all.zip"])
def test_two_pushes_at_once_keep_the_recordings_of_both(tmp_path, slow, place):
    rooms = [repository(tmp_path / name, name) for name in ("01-a", "02-b", "03-c")]
    there = str(tmp_path / place)
    transport.push(there, rooms[0].recordings, rooms[0].root)
    first = threading.Thread(
        target=transport.push, args=(there, rooms[1].recordings, rooms[1].root)
    )
    first.start()
    if place == "folder":
        slow.wait()
    transport.push(there, rooms[2].recordings, rooms[2].root)
    first.join()
    transport.pull(there, pulled := tmp_path / "pulled", tmp_path)
    assert names(pulled) == ["01-a", "02-b", "03-c"]


def test_two_pulls_at_once_keep_the_recordings_of_both(tmp_path, slow):
    rooms = [repository(tmp_path / name, name) for name in ("01-a", "02-b", "03-c")]
    here = rooms[0].recordings
    first = threading.Thread(
        target=transport.pull, args=(str(rooms[1].recordings), here, rooms[0].root)
    )
    first.start()
    slow.wait()
    transport.pull(str(rooms[2].recordings), here, rooms[0].root)
    first.join()
    assert names(here) == ["01-a", "02-b", "03-c"]


def test_the_next_command_removes_what_a_killed_pull_left(tmp_path):
    here, there = repository(tmp_path / "here", "01-a"), repository(tmp_path / "there", "02-b")

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    killed = os.fork()
    if killed == 0:
        atomic.replace_folder = kill
        transport.pull(str(there.recordings), here.recordings, here.root)
    os.waitpid(killed, 0)
    assert len([*here.root.glob(".recordings*")]) == 2  # the copy and the lock
    transport.pull(str(there.recordings), here.recordings, here.root)
    assert [*here.root.glob(".recordings*")] == []
    assert names(here.recordings) == ["01-a", "02-b"]


# --- which of two recordings stays ----------------------------------------------------------------


def test_a_recording_of_the_current_code_stays_whatever_the_dates(tmp_path):
    here, there = repository(tmp_path / "here", "01-a"), repository(tmp_path / "there", "01-a")
    script = here.write("01-a", "x = 1")
    keys = [block.key for block in load_script(script).code]
    (staging := here.root / "staging").mkdir()
    recording.save(printed(staging, "01-a", keys, "current\n"), staging, here.recorded / "01-a")
    dated(there, "01-a", "2026-03-02T03:04:05Z")
    is_current = recording.current_among(here.project().examples)
    pull = (str(there.recordings), here.recordings, here.root)
    transport.pull(*pull, is_current)
    assert here.load("01-a").blocks[-1].stdout == "current\n"
    # The other way round, the older one comes.
    transport.pull(str(here.recordings), there.recordings, there.root, is_current)
    assert there.load("01-a").blocks[-1].stdout == "current\n"


@pytest.mark.parametrize("is_worse", ["failed", "other inputs"])
def test_a_newer_failure_or_one_of_other_inputs_does_not_replace_what_is_current(
    tmp_path, is_worse
):
    here, there = repository(tmp_path / "here", "01-a"), repository(tmp_path / "there", "01-a")
    script = here.write("01-a", "x = 1")
    (here.examples / "a.csv").write_text("1\n")
    keys = [block.key for block in load_script(script).code]
    for room in (here, there):
        (staging := room.root / "staging").mkdir()
        made = printed(staging, "01-a", keys, f"{room.root.name}\n")
        recording.save(made, staging, room.recorded / "01-a")
    dated(there, "01-a", "2026-03-02T03:04:05Z")
    folder = there.recorded / "01-a"
    made = recording.load(folder)
    if is_worse == "failed":
        last = msgspec.structs.replace(made.blocks[-1], passed=False, exception="raised")
        run = msgspec.structs.replace(made.run, status="failed")
        made = msgspec.structs.replace(made, run=run, blocks=(*made.blocks[:-1], last))
    else:
        inputs = format.Inputs(files={"tutorials/a.csv": "0" * 64})
        made = msgspec.structs.replace(made, inputs=inputs)
    (folder / "recording.json").write_bytes(format.encode(made))
    project = here.project()
    is_current = recording.current_among(project.examples, Here.of(project))
    transport.pull(str(there.recordings), here.recordings, here.root, is_current)
    assert here.load("01-a").blocks[-1].stdout == "here\n"


def test_a_date_in_the_future_neither_comes_nor_keeps_others_away(tmp_path):
    here, there = repository(tmp_path / "here", "01-a"), repository(tmp_path / "there", "01-a")
    dated(there, "01-a", "2999-01-02T03:04:05Z")
    before = contents(here.recordings)
    with pytest.raises(RecordingError, match=r"01-a/recording\.json: .*2999.* in the future"):
        transport.pull(str(there.recordings), here.recordings, here.root)
    assert contents(here.recordings) == before
    transport.pull(str(here.recordings), there.recordings, there.root)
    assert there.load("01-a").run.recorded.startswith("2026-01")


def test_the_date_is_that_of_the_recorder_whatever_the_example_does_to_its_clock(tmp_path):
    room = Room(tmp_path)
    room.write(
        "01-a",
        """
        import datetime
        from gallery_recorder.run import provenance

        class Frozen(datetime.datetime):
            @classmethod
            def now(cls, zone=None):
                return cls(2012, 1, 2)

        provenance.datetime = Frozen
        """,
    )
    assert room.record()["01-a"].status == "recorded"
    age = datetime.now(timezone.utc) - date_of(room.load("01-a").run.recorded)
    assert timedelta(0) <= age < timedelta(hours=1)


def test_a_good_recording_takes_the_place_of_an_older_failure(tmp_path):
    here, there = repository(tmp_path / "here", "01-a"), repository(tmp_path / "there", "01-a")
    dated(there, "01-a", "2026-03-02T03:04:05Z")
    path = here.recorded / "01-a.failed.json"
    for failed, stays in (("2026-02-02T03:04:05Z", False), ("2026-04-02T03:04:05Z", True)):
        dated(here, "01-a", "2026-01-02T03:04:05Z")
        LaterFailure("0" * 64, failed, "failed").save(here.recorded / "01-a")
        transport.pull(str(there.recordings), here.recordings, here.root)
        assert here.load("01-a").run.recorded.startswith("2026-03")
        assert path.exists() == stays


# --- on the way -----------------------------------------------------------------------------------


def damaged_zip(path, damage):
    """A zip file with a *damage*, which Python's zipfile cannot write itself."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", "text " * 100)
    content = bytearray(path.read_bytes())
    central = content.index(b"PK\x01\x02")
    if damage == "CRC":
        content[14] ^= 1
        content[central + 16] ^= 1
    elif damage == "deflate":
        content[31:35] = b"\xff\xff\xff\xff"
    elif damage == "encrypted":
        content[6] |= 1
        content[central + 8] |= 1
    elif damage == "compression":
        content[8] = 77
        content[central + 10] = 77
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["CRC", "deflate", "encrypted", "compression", "cut"])
def test_a_damaged_zip_file_is_one_line(tmp_path, damage):
    damaged_zip(path := tmp_path / "all.zip", damage)
    with pytest.raises(TransportError) as error:
        transport.pull(str(path), tmp_path / "recordings", tmp_path)
    assert str(error.value).startswith(f"{path}: cannot be unpacked")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "recordings").exists()


def test_attributes_and_variables_of_git_change_nothing_on_the_way(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q", "--bare", str(origin := tmp_path / "origin"))
    room = repository(tmp_path / "here", "01-a", origin=origin)
    other = repository(tmp_path / "other")
    git(room.root, "config", "filter.strip.clean", "sed s/a,b/nothing/")
    git(room.root, "config", "filter.strip.smudge", "sed s/a,b/nothing/")
    attributes = "*.csv filter=strip export-subst\nrecording.json export-ignore\n"
    (room.root / ".git/info/attributes").write_text(attributes)
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))
    transport.push("branch:r", room.recordings, room.root)
    transport.pull("branch:r", pulled := tmp_path / "pulled", room.root)
    assert contents(pulled) == contents(room.recordings)
    monkeypatch.delenv("GIT_DIR")
    assert "r" in git(origin, "branch", "--format=%(refname:short)").split()


def test_pulled_recordings_are_readable_whatever_the_umask(tmp_path):
    there = repository(tmp_path / "there", "01-a")
    before = os.umask(0o077)
    try:
        here = repository(tmp_path / "here", "02-b")
        transport.pull(str(there.recordings), here.recordings, here.root)
        transport.push(str(tmp_path / "all.zip"), here.recordings, here.root)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in here.recordings.rglob("*") if path.is_file()}
    assert modes == {0o644}
    folders = [here.recordings, *here.recordings.rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in folders if path.is_dir()} == {0o755}
    assert (tmp_path / "all.zip").stat().st_mode & 0o777 == 0o644
