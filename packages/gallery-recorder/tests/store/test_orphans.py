"""Recordings whose script is gone or has another name."""

import shutil
import sys

import msgspec
import pytest

from gallery_recorder.store import format, recording, status, transport
from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import Gallery, Room

DRAWS = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn')"


@pytest.fixture
def room(tmp_path):
    room = Room(tmp_path)
    room.write("01-a", "x = 1")
    for name in ("01-a", "02-gone"):
        room.put_recording(name)
    return room


def test_prune_asks_and_deletes_only_orphans(room):
    asked = room.run("prune")
    assert (asked.returncode, "02-gone" in asked.stdout) == (1, True)
    assert (room.recorded / "02-gone").exists()
    (room.recorded / "02-gone.failed.json").write_text("{}")
    assert room.run("prune", "--yes").stdout.endswith("Deleted: 1\n")
    assert [path.name for path in room.recorded.iterdir()] == ["01-a"]
    (room.examples / "01-a.py").unlink()
    room.write("03-b", "x = 1")
    assert room.run("prune", "--yes").returncode == 0
    assert [*room.recordings.iterdir()] == []


def test_an_example_that_is_not_executed_now_is_no_orphan(tmp_path):
    gallery = Gallery(tmp_path)
    for name in ("one", "two"):
        gallery.write(name, "x = 1")
    gallery.record_all()
    words = [sys.executable, "-m", "gallery_recorder", "prune", "--yes", "--pattern", "one"]
    pruned = processes.run([*words, "--conf", str(tmp_path / "doc")], cwd=tmp_path)
    assert (pruned.returncode, pruned.stdout) == (0, "Deleted: 0\n")
    assert gallery.load("two").name == "two"


def test_push_says_how_many_orphans_it_takes_along_or_leaves_them_out(room, tmp_path):
    there = tmp_path / "there"
    labels = {"tutorials/01-a"}
    said = transport.push(str(there), room.recordings, room.root, labels)
    assert said.startswith("2 added")
    assert "; 1 of them" in said
    said = transport.push(str(there), room.recordings, room.root, labels, prune=True)
    assert said == "0 added, 0 replaced, 1 already up to date, 1 deleted"
    assert [path.parent.name for path in there.rglob("recording.json")] == ["01-a"]


def test_sizes_are_listed_and_a_large_recording_is_a_warning(tmp_path):
    gallery = Gallery(tmp_path, more="gallery_limits = {'warning': 1000}\ngallery_data = ['*']")
    gallery.write("small", "x = 1")
    gallery.write("large", "open('data.bin', 'wb').write(b'x' * 5000)")
    outcomes = gallery.record()
    assert outcomes["small"].warnings == ()
    assert "5,000 bytes" in outcomes["large"].warnings[0]
    room = Room(tmp_path / "room")
    room.write("01-a", "x = 1")
    (room.put_recording("01-a") / "more").write_bytes(b"x" * 50_000)
    listed = room.run("status", "--sizes").stdout
    assert "kB in all" in listed
    assert "5" in listed.splitlines()[-1]
    assert "kB" not in room.run("status").stdout


@pytest.mark.parametrize("force", [False, True])
def test_a_renamed_script_takes_its_recording_over_without_executing(tmp_path, force):
    gallery = Gallery(tmp_path)
    old = gallery.write("plot_old", DRAWS)
    gallery.record_all()
    before = gallery.load("plot_old")
    new = old.rename(old.with_name("plot_new.py"))
    new.write_text(new.read_text().replace("A title", "B title"))
    gallery.write("plot_another", DRAWS.replace("drawn", "another"))
    outcomes = gallery.record(force=force)
    assert outcomes["plot_another"].status == "recorded"
    assert (outcomes["plot_new"].status == "current") != force
    made = gallery.load("plot_new")
    assert (made.title, [*made.files]) == ("B title", ["images/sphx_glr_plot_new_001.png"])
    assert made.blocks[1].figures[0].items[0].file == "images/sphx_glr_plot_new_001.png"
    assert (made.run == before.run) != force
    assert (gallery.recorded / "plot_old").exists() == force


def test_another_script_of_the_same_code_takes_nothing(tmp_path):
    gallery = Gallery(tmp_path)
    path = gallery.write("plot_old", DRAWS)
    gallery.record_all()
    shutil.copy(path, path.with_name("plot_new.py"))
    assert gallery.record()["plot_new"].status == "recorded"
    assert gallery.load("plot_old").name == "plot_old"


def renamed(root, device="NVIDIA H200"):
    """A room whose example was recorded on another *device*, and then renamed."""
    room = Room(root)
    old = room.write("01-old", DRAWS)
    room.record()
    folder = room.recordings / "nvidia-h200/tutorials/01-old"
    folder.parent.mkdir(parents=True)
    shutil.move(room.recorded / "01-old", folder)
    made = recording.load(folder)
    provenance = msgspec.structs.replace(made.provenance, device=device, kind="gpu")
    made = msgspec.structs.replace(made, provenance=provenance)
    (folder / "recording.json").write_bytes(format.encode(made))
    old.rename(old.with_name("01-new.py"))
    return room, folder


def test_a_recording_of_other_hardware_is_taken_over_and_nothing_is_executed(tmp_path):
    room, folder = renamed(tmp_path)
    assert room.record(missing=True)["01-new"].status == "current"
    assert not folder.exists()
    (row,) = status.rows(room.project(), room.recordings)
    assert (row.name, row.place, row.state) == ("01-new", "nvidia-h200", "current")
    assert [*row.made.files] == ["images/sphx_glr_01-new_001.svg"]


@pytest.mark.parametrize("by_hand", [False, True])
def test_move_gives_a_recording_the_new_name_also_after_a_move_by_hand(tmp_path, by_hand):
    room, folder = renamed(tmp_path)
    proposed = [row.why for row in status.rows(room.project(), room.recordings)]
    assert any("move tutorials/01-old tutorials/01-new" in why for why in proposed)
    if by_hand:
        folder.rename(folder.with_name("01-new"))
    done = room.run("move", "01-old", "01-new")
    assert done.returncode == 0, done.stderr
    (row,) = status.rows(room.project(), room.recordings)
    assert (row.name, row.state) == ("01-new", "current")
    assert room.run("move", "01-old", "01-new").returncode == 1
    assert "is an example" in room.run("move", "01-new", "01-new").stderr


def test_a_recording_of_other_inputs_is_not_proposed(tmp_path):
    room, folder = renamed(tmp_path)
    made = recording.load(folder)
    inputs = format.Inputs(files={"tutorials/gone.csv": "0" * 64})
    made = msgspec.structs.replace(made, inputs=inputs)
    (folder / "recording.json").write_bytes(format.encode(made))
    assert not any("move" in row.why for row in status.rows(room.project(), room.recordings))
    assert room.record(missing=True)["01-new"].status == "recorded"
    assert folder.exists()
