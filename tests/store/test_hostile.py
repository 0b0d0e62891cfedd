"""Recordings that a stranger made: what they are called and hold misleads nobody."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from gallery_recorder.store import atomic, images, recording, status
from gallery_recorder.store.recording import RecordingError
from tests.fixtures.room import PROJECT, Room
from tests.store.test_lock import NOBODY, as_user, needs_root


@pytest.fixture
def folder(tmp_path):
    """A sound recording."""
    return Room(tmp_path).put_recording("01-a")


def change(folder, edit):
    path = folder / "recording.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def add(folder, name, text="x"):
    """Add a file to a recording, as one of its files."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    change(folder, lambda c: c["files"].update({name: recording.digest(folder / name)}))


@pytest.mark.parametrize(
    "name",
    [
        "data.csv",
        "source/conf.py",
        "source/index.rst",
        "source/_templates/layout.html",
        "source/_static/evil.js",
        "images/evil.rst",
        "images/evil.PY",
        "01-a.rst",
    ],
)
@pytest.mark.parametrize("place", ["images", "thumbnail"])
def test_a_file_that_a_build_reads_is_no_image(folder, name, place):
    if name != "data.csv":
        add(folder, name)
    if place == "images":
        change(folder, lambda c: c["blocks"][0].update(images=[name]))
    else:
        change(folder, lambda c: c.update(thumbnail=name))
    with pytest.raises(RecordingError, match="which is no image"):
        recording.load(folder)


@pytest.mark.parametrize("name", ["images/plot.html", "images/plot.mp4", "source/film.webm"])
def test_what_libraries_that_draw_leave_is_taken(folder, name):
    add(folder, name)
    change(folder, lambda c: c["blocks"][0].update(images=[name]))
    assert recording.load(folder).blocks[0].images == (name,)


REFERENCE = {
    "name": "x", "module": "y", "module_short": "y", "is_class": True, "is_explicit": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        {"../../x": [REFERENCE]},
        {"x": [REFERENCE | {"module_short": "../../x"}]},
        {"x": [REFERENCE | {"name": "a\nb"}]},
        {"x" * 5000: [REFERENCE]},
        {"": [REFERENCE]},
        {"..": [REFERENCE]},
        {"x": [{}]},
        {"x": [REFERENCE | {"module": 1}]},
        {"x": None},
    ],
)
def test_what_the_code_names_is_no_path(folder, names):
    change(folder, lambda c: c.update(backreferences=names))
    with pytest.raises(RecordingError, match="backreferences"):
        recording.load(folder)


def test_what_a_reference_of_sphinx_names_may_begin_with_a_dot(folder):
    """As in prose: :meth:`.Artist.set` is whichever there is, ``.Artist`` one of any module."""
    found = {
        ".Artist.set": [REFERENCE],
        ".Artist": [REFERENCE | {"module": "", "module_short": ""}],
    }
    change(folder, lambda c: c.update(backreferences=found))
    assert recording.load(folder).backreferences == found


@pytest.mark.parametrize("name", ["RECORDING.json", "Recording.JSON"])
def test_no_file_is_the_recording_itself_on_another_system(folder, name):
    add(folder, name)
    with pytest.raises(RecordingError, match="which is no file of it"):
        recording.load(folder)


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.update(key=c["key"] + "\n"),
        lambda c: c.update(variant="triton-3.9.0\n"),
        lambda c: c.update(gallery="tutorials\n"),
        lambda c: c["run"].update(recorded=c["run"]["recorded"] + "\n"),
        lambda c: c["run"].update(recorded="٢٠٢٦-01-01T00:00:00Z"),
        lambda c: c["blocks"][0].update(data=["data.csv\n"]),
    ],
)
def test_a_name_ends_where_it_ends(folder, edit):
    change(folder, edit)
    with pytest.raises(RecordingError, match=r"regex|no date|does not list"):
        recording.load(folder)


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["run"].update(seconds=1e300),
        lambda c: c["run"].update(memory=-1e300),
        lambda c: c["run"].update(peak_host_memory=10**30),
        lambda c: c["blocks"][0].update(seconds=1e11),
        lambda c: c["blocks"][0].update(line=10**30),
    ],
)
def test_no_number_is_too_large_for_the_page_that_counts_with_it(folder, edit):
    change(folder, edit)
    with pytest.raises(RecordingError, match=r"Expected `(int|float)` "):
        recording.load(folder)


@pytest.mark.parametrize("inner", [lambda v: {"a": v}, lambda v: [v]])
def test_what_probes_found_is_not_nested_without_end(folder, inner):
    found = 1
    for _ in range(101):
        found = inner(found)
    change(folder, lambda c: c["blocks"][0].update(probes={"a": found}))
    with pytest.raises(RecordingError, match="`probes` is nested more than 100 deep"):
        recording.load(folder)


def test_neither_links_nor_endless_depths_are_followed(folder, tmp_path):
    root = tmp_path / "recordings"
    (root / "everything").symlink_to("/")
    (folder / "again").symlink_to("..")
    deep = root.joinpath(*["d"] * 100)
    deep.mkdir(parents=True)
    (deep / "recording.json").write_text("{}")
    assert list(recording.all_recordings(root)) == [folder]


def test_the_recording_of_a_script_beside_a_folder_of_its_name_hides_none(folder):
    below = folder / "01-b"
    (folder.parent / "made").mkdir()
    (folder.parent / "made" / "recording.json").write_text("{}")
    os.rename(folder.parent / "made", below)
    assert set(recording.all_recordings(folder.parents[2])) == {folder, below}


def test_names_steer_no_terminal(folder, tmp_path, capsys):
    os.rename(folder, folder.parent / "\x1b[31m\u202e[bold]")
    room = Room(tmp_path)
    room.write("01-a", "x = 1")
    status.show(status.rows(room.project(), room.recordings))
    said = capsys.readouterr().out
    assert "orphan" in said
    assert "[bold]" in said
    assert "\x1b" not in said
    assert "\u202e" not in said


@needs_root
def test_a_recording_that_nobody_may_enter_is_damaged_and_can_be_replaced(tmp_path):
    base = Path("/var/tmp") / f"gallery-{os.getpid()}"
    room = Room(base)
    old, new = room.put_recording("01-a"), room.put_recording("02-b")
    (old / "images").mkdir()
    try:
        os.system(f"chown -R {NOBODY} {base}; chmod 0 {old}/images {old}")

        def look():
            found = recording.find(room.recordings, "tutorials", "01-a")
            with pytest.raises(RecordingError, match="Permission denied"):
                found[0].load()
            assert set(recording.all_recordings(room.recordings)) == {old, new}
            atomic.replace_folder(new, old)
            return sorted(os.listdir(old.parent))

        assert as_user(NOBODY, look) == "['01-a']"
    finally:
        os.system(f"rm -rf {base}")


# --- images that are programs ---------------------------------------------------------------------

NS = 'xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink"'
UTF_7 = '<?xml version="1.0" encoding="utf-7"?><svg>+ADw-script+AD4-evil()+ADw-/script+AD4-</svg>'


@pytest.mark.parametrize(
    "content",
    [
        f"<svg {NS}><script>evil()</script></svg>",
        f"<svg {NS}><a x:href='&#106;avascript:evil()'/></svg>",
        f"<svg {NS}><a x:href=' java\tscript:evil()'/></svg>",
        f"<svg {NS}><set attributeName='href' to='javascript&#58;evil()'/></svg>",
        f"<svg {NS} onload = 'evil()'></svg>",
        f"<svg {NS}><foreignObject><iframe srcdoc='evil'/></foreignObject></svg>",
        f"<svg {NS}><handler>evil()</handler></svg>",
        f"<svg {NS}><a href='data:text/html,evil'/></svg>",
        f"<!DOCTYPE svg [<!ENTITY e 'evil'>]><svg {NS}>&e;</svg>",
        f"<?xml-stylesheet href='evil.css'?><svg {NS}></svg>",
        f"<svg {NS}><script>evil()</script></svg>".encode("utf-16"),
    ],
)
def test_an_image_holds_no_program(content):
    content = content if isinstance(content, bytes) else content.encode()
    assert images.wrong("a.svg", content) == "is an SVG image with a script"


@pytest.mark.parametrize(
    "content", [UTF_7, "<svg/onload=evil()></svg>", "<svg onload=evil()></svg>", "<p></p>", "", "a"]
)
def test_what_no_browser_reads_as_an_image_is_none(content):
    assert images.wrong("a.svg", content.encode()) == "is no whole SVG image"


def test_what_matplotlib_draws_is_an_image():
    found = sorted((PROJECT / "recordings").rglob("*.svg"))[:20]
    assert found
    assert [images.wrong(path.name, path.read_bytes()) for path in found] == [""] * len(found)


# --- what a script leaves where its recording is made ---------------------------------------------


@pytest.mark.parametrize("what", ["pipe", "link", "file", "link to the recording", "link for all"])
def test_nothing_is_written_through_what_lies_in_the_way(folder, tmp_path, what):
    made, staging = recording.load(folder), tmp_path / "staging"
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "recording.json").write_text("kept")
    shutil.copytree(folder, staging)
    if what == "pipe":
        os.mkfifo(staging / "x.csv")
    elif what == "link":
        (staging / "x.csv").symlink_to("/etc/hostname")
    elif what == "file":
        (staging / "x.csv").write_text("1")
    elif what == "link to the recording":
        (staging / "recording.json").unlink()
        (staging / "recording.json").symlink_to(victim / "recording.json")
    else:
        shutil.rmtree(staging)
        staging.symlink_to(victim)
    with pytest.raises(RecordingError, match="is no file of the recording"):
        recording.save(made, staging, folder)
    assert recording.load(folder) == made
    assert (victim / "recording.json").read_text() == "kept"


def test_a_recording_can_be_read_whatever_the_umask_was(folder, tmp_path):
    made, staging = recording.load(folder), tmp_path / "staging"
    shutil.copytree(folder, staging)
    for path in staging.iterdir():
        path.chmod(0)
    recording.save(made, staging, folder)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
