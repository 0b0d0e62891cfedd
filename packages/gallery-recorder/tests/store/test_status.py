"""The table of recordings, and the check that they are current and whole."""

import msgspec
import pytest

from gallery_recorder.project.script import key_of, load_script
from gallery_recorder.store import recording, status
from gallery_recorder.store.format import Block
from gallery_recorder.store.reading import ReadingError
from gallery_recorder.testing.projects import Room

DEVICE = "nvidia-h200"


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def put_on_gpu(room, name, key=None):
    """Make up a recording of *name* on the reference device, current unless *key* is given."""
    folder = room.put_recording(name, 12.34)
    script = load_script(room.examples / f"{name}.py", name)
    keys = [key] if key else [code.key for code in script.code]
    made = recording.load(folder)
    made = msgspec.structs.replace(
        made,
        key=key_of(keys),
        blocks=tuple(Block(9, one, 1.0) for one in keys),
        run=msgspec.structs.replace(made.run, timed=True),
        provenance=msgspec.structs.replace(made.provenance, device="NVIDIA H200", kind="gpu"),
    )
    target = room.recordings / DEVICE / "tutorials" / name
    recording.save(made, folder, target)
    return target


def test_the_table_shows_each_state_and_the_check_names_what_to_record(room):
    for name in ("01-current", "02-stale", "03-missing", "04-damaged", "06-gone"):
        room.write(name, "x = 1")
    room.write("05-unreadable", "x = (")
    put_on_gpu(room, "01-current")
    put_on_gpu(room, "02-stale", key="1" * 64)
    room.put_recording("02-stale")
    (put_on_gpu(room, "04-damaged") / "recording.json").write_text("{")
    put_on_gpu(room, "06-gone")
    (room.examples / "06-gone.py").unlink()
    rows = status.rows(room.project(), room.recordings)
    assert [(row.name, row.place, row.state) for row in rows] == [
        ("01-current", DEVICE, "current"),
        ("02-stale", "interpreter", "stale"),
        ("02-stale", DEVICE, "stale"),
        ("03-missing", DEVICE, "missing"),
        ("04-damaged", DEVICE, "damaged"),
        ("05-unreadable", "-", "unreadable"),
        ("tutorials/06-gone", DEVICE, "orphan"),
    ]
    shown = room.run("status")
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[1].split() == ["01-current", DEVICE, "current", "2026-01-02", "03:04:05", "12.3"]
    assert "recording.json: is not valid JSON" in shown.stdout
    checked = room.run("status", "--check")
    assert checked.returncode == 1
    assert "record 02-stale 03-missing 04-damaged 05-unreadable" in checked.stderr


def test_a_damaged_recording_of_any_device_fails_the_check(room):
    """A script that needs a particular GPU may have no recording of any device."""
    room.write("01-a", "x = 1")
    put_on_gpu(room, "01-a")
    assert room.run("status", "--check").returncode == 0
    room.write("02-b", 'x = 1\n# sphinx_gallery_needs = "memory>=40GB"')
    assert room.run("status", "--check", "any").returncode == 0
    (room.put_recording("01-a") / "data.csv").write_text("changed")
    checked = room.run("status", "--check")
    assert checked.returncode == 1
    assert "01-a: damaged (interpreter)" in checked.stderr
    assert room.run("status", "--check", "any").returncode == 1


def test_what_a_probe_recorded_is_checked_by_the_probe(room, monkeypatch, tmp_path):
    (tmp_path / "site_probe.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    import site_probe

    def check(folder, made):
        raise ReadingError(f"{folder.name}: has a wrong kernel")

    site_probe.kernels = type("kernels", (), {"check": staticmethod(check)})
    room.write("01-a", "x = 1")
    put_on_gpu(room, "01-a")
    conf = room.root / "conf.py"
    conf.write_text(conf.read_text() + "gallery_probes = ['site_probe.kernels', 'not.there']\n")
    (row,) = status.rows(room.project(), room.recordings)
    assert row.state == "damaged"
    assert "01-a: has a wrong kernel; restore it with git, or record it again" in row.text
