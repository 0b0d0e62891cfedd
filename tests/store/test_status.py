"""The table of recordings, and the check for the reference device."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from gallery_recorder.project.script import load_script
from gallery_recorder.store import recording, status
from gallery_recorder.store.format import Block
from tests.fixtures.room import PROJECT, Room
from triton_site.probes import REFERENCE_DEVICE, SOFTWARE


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def put_on_gpu(room, name, key=None):
    """Make up a recording of *name* on the reference device, current unless *key* is given."""
    folder = room.put_recording(name, 12.34)
    script = load_script(room.tutorials / f"{name}.py", name)
    made = recording.load(folder)
    made = msgspec.structs.replace(
        made,
        key=key or script.key,
        blocks=tuple(Block(code.line, code.key, 1.0) for code in script.code),
        run=msgspec.structs.replace(made.run, timed=True),
        probes={SOFTWARE: {"triton": "3.6.0", "torch": "2.11", "peak_gpu_memory": 3 * 2**30}},
        provenance=msgspec.structs.replace(made.provenance, device="NVIDIA H200", kind="gpu"),
    )
    target = room.recordings / REFERENCE_DEVICE / "tutorials" / name
    recording.save(made, folder, target)
    return target


def test_each_state_is_told(room):
    for name in ("01-current", "02-stale", "03-missing", "04-damaged"):
        room.write(name, "x = 1")
    room.write("05-unreadable", "x = (")
    put_on_gpu(room, "01-current")
    put_on_gpu(room, "02-stale", key="1" * 64)
    room.put_recording("02-stale")
    (put_on_gpu(room, "04-damaged") / "recording.json").write_text("{")
    room.write("06-gone", "x = 1")
    put_on_gpu(room, "06-gone")
    (room.tutorials / "06-gone.py").unlink()

    rows = status.rows(room.project(), room.recordings)
    assert [(row.name, row.place, row.state) for row in rows] == [
        ("01-current", "nvidia-h200", "current"),
        ("02-stale", "interpreter", "stale"),
        ("02-stale", "nvidia-h200", "stale"),
        ("03-missing", "nvidia-h200", "missing"),
        ("04-damaged", "nvidia-h200", "damaged"),
        ("05-unreadable", "-", "unreadable"),
        ("tutorials/06-gone", "nvidia-h200", "orphan"),
    ]
    assert [row.name for row in status.lacking(rows, REFERENCE_DEVICE)] == [
        "02-stale",
        "03-missing",
        "04-damaged",
        "05-unreadable",
    ]
    shown = room.run("status")
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["script", "device", "state", "recorded", "seconds"]
    assert lines[1].split() == [
        *("01-current", "nvidia-h200", "current", "2026-01-02", "03:04:05", "12.3"),
    ]
    assert "04-damaged is damaged:" in shown.stdout
    assert "recording.json: " in shown.stdout
    assert "tutorials/06-gone: no gallery has such a script" in shown.stdout

    checked = room.run("status", "--check")
    assert checked.returncode == 1
    assert "4 of the scripts lack a current recording on nvidia-h200" in checked.stderr
    assert "record 02-stale 03-missing 04-damaged 05-unreadable" in checked.stderr


def test_what_needs_a_particular_gpu_may_be_recorded_nowhere(room):
    room.write("01-a", 'x = 1\n# sphinx_gallery_needs = "memory>=40GB"')
    rows = status.rows(room.project(), room.recordings)
    assert status.recorded_nowhere(rows) == []
    assert [row.name for row in status.lacking(rows, REFERENCE_DEVICE)] == ["01-a"]
    assert room.run("status", "--check", "any").returncode == 0
    assert room.run("status", "--check").returncode == 1
    (put_on_gpu(room, "01-a") / "recording.json").write_text("{")  # rendering would stop at it
    assert status.recorded_nowhere(status.rows(room.project(), room.recordings)) == ["01-a"]
    room.write("01-a", 'x = 1\n# sphinx_gallery_needs = "luck"')
    (unclear,) = [row for row in status.rows(room.project(), room.recordings) if row.text]
    assert unclear.state == "unreadable"
    assert "cannot be understood at 'luck'" in unclear.text


def test_the_check_holds_where_all_is_current(room):
    room.write("01-a", "x = 1")
    put_on_gpu(room, "01-a")
    room.write("02-b", "x = 1")
    put_on_gpu(room, "02-b")
    (room.tutorials / "02-b.py").unlink()  # an orphan is told, but nothing is lacking
    assert room.run("status", "--check").returncode == 0


def test_it_imports_no_torch_and_no_matplotlib(room):
    for number in range(20):
        room.write(f"{number:02d}-a", "x = 1")
        put_on_gpu(room, f"{number:02d}-a")
    code = (
        "import sys; from gallery_recorder.__main__ import main; main(sys.argv[1:]);"
        "print([n for n in ('torch', 'triton', 'matplotlib', 'numpy') if n in sys.modules])"
    )
    command = [sys.executable, "-c", code, *room.command("status")[3:]]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_without_tutorials_it_says_so(room):
    shown = room.run("status", "--check")
    assert shown.returncode == 2
    assert "there are no scripts in its galleries" in shown.stderr
