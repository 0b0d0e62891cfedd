"""A recording on the disk: round trip, each kind of damage, replacement in one step."""

import hashlib
import json
import re
import shutil
from dataclasses import replace

import msgspec
import pytest

from gallery_recorder.store import atomic, recording
from gallery_recorder.store.format import (
    SCHEMA,
    Block,
    Figure,
    GpuFacts,
    GpuState,
    Image,
    Provenance,
    RunFacts,
)
from gallery_recorder.store.reading import NewerError
from gallery_recorder.store.recording import Location, RecordingError
from gallery_recorder.testing.recordings import made_up
from gallery_recorder.testing.small_gallery import PNG

KEY = hashlib.sha256(b"code").hexdigest()
FIGURE = "images/sphx_glr_01-a_001.svg"
DRAWN = Figure((Image(FIGURE, "A figure"),))
THUMBNAIL = "images/sphx_glr_01-a_thumbnail.png"


def make(staging, **changes):
    """A recording with everything in it; its files are written to *staging*."""
    (staging / "images").mkdir(parents=True, exist_ok=True)
    files = {FIGURE: "<svg/>", THUMBNAIL: PNG, "speed.csv": "size,provider\n1,a\n"}
    for name, content in files.items():
        (staging / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    state = GpuState(1980, 3201, 41, 320, ("power cap",), 0)
    everything = {
        "run": RunFacts("2026-01-02T03:04:05Z", 12.5, 3.5, 2**30),
        "provenance": Provenance(
            *("NVIDIA H200", "gpu", "Linux", "3.12.3"),
            *({"sphinx-gallery": "0.22.1"}, {"TRITON_X": "1"}, "abc"),
            *(GpuFacts("9.0", 150_000_000_000, 132, "580.1"), state, state),
        ),
        "probes": {"site.software": {"triton": "3.6.0"}},
        "thumbnail": THUMBNAIL,
    }
    blocks = (
        Block(9, KEY, 1.25, stdout="out\n", stderr="err\n", value={"text/html": "<b>x</b>"}),
        Block(20, KEY, 0.0, figures=(DRAWN,), images=(FIGURE,), data=("speed.csv",)),
    )
    return made_up(staging, blocks, **everything | changes)


@pytest.fixture
def folder(tmp_path):
    """The folder of a saved recording."""
    made = make(tmp_path / "staging")
    location = Location(tmp_path, "nvidia-h200", None, "tutorials", "01-a")
    recording.save(made, tmp_path / "staging", location.folder)
    return location.folder


def test_a_saved_recording_is_loaded_as_it_was_and_reads_well_in_a_diff(tmp_path, folder):
    assert recording.load(folder) == make(tmp_path / "again")
    assert not (tmp_path / "staging").exists()
    assert '\n  "title": "A title",\n' in (folder / "recording.json").read_text()


def change(folder, edit):
    """Let *edit* change what ``recording.json`` says."""
    path = folder / "recording.json"
    content = json.loads(path.read_text())
    content.pop("sha256", None)  # of the text as it was
    edit(content)
    path.write_text(json.dumps(content))


def test_the_text_of_a_recording_has_a_hash_whatever_changes_it_on_the_way(folder):
    path = folder / "recording.json"
    text = path.read_bytes()
    for changed in (
        text.replace(b"out", b"OUT"),
        text.replace(b"\n  ", b"\n    "),
        text.rstrip(b"\n"),
        json.dumps(json.loads(text)).encode(),
    ):
        path.write_bytes(changed)
        with pytest.raises(RecordingError, match="is not the text that was recorded"):
            recording.load(folder)
    for same in (text, text.replace(b"\n", b"\r\n")):
        path.write_bytes(same)
        recording.load(folder)
    older = json.loads(text)
    del older["sha256"]
    path.write_text(json.dumps(older))
    recording.load(folder)


def put(*keys_and_value):
    """An edit that sets a field."""
    *keys, last, value = keys_and_value

    def edit(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return edit


REFERENCE = {
    "name": "x", "module": "y", "module_short": "y", "is_class": True, "is_explicit": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("schema", 1), r"`schema` is 1; the oldest schema is 3; record it again"),
        (put("schema", 2), r"`schema` is 2; the oldest schema is 3; record it again"),
        (
            put("blocks", 1, "figures", 0, "items", 0, "alt", "a\n\n.. raw:: html"),
            "matching regex",
        ),
        (lambda content: content["run"].pop("seconds"), "required field `seconds` - at `run`"),
        (put("run", "seconds", 1e300), "Expected `float` <= .* at `run.seconds`"),
        (put("run", "peak_host_memory", 2**62), "Expected `int` <= .* at `run.peak_host_memory`"),
        (put("run", "recorded", "12026-01-02T03:04:05Z"), "matching regex .* at `run.recorded`"),
        (put("run", "recorded", "9999-01-02T03:04:05Z"), "matching regex .* at `run.recorded`"),
        (put("run", "recorded", "2026-02-31T03:04:05Z"), "is not a date"),
        (put("run", "status", "failed"), "which `passed` of `blocks` contradicts"),
        (put("blocks", 0, "passed", False), "which `passed` of `blocks` contradicts"),
        (put("probes", 5), "Expected `object`, .* at `probes`"),
        (put("key", KEY + "\n"), "Expected `str` matching .* at `key`"),
        (put("files", "../x", KEY), "matching regex .* at `key` in `files`"),
        (put("files", "Speed.csv", KEY), "cannot tell apart"),
        (put("name", "../x"), "Expected `str` matching .* at `name`"),
        (put("gallery", "a/b"), "Expected `str` matching .* at `gallery`"),
        (put("blocks", 0, "images", ["images/x.rst"]), "name .*x.rst, which is not an image"),
        (put("blocks", 0, "data", ["gone.csv"]), r"names gone\.csv, which `files` does not list"),
        (put("thumbnail", "source/conf.py"), "`thumbnail` names .*, which is not an image"),
        (put("backreferences", {"../x": [REFERENCE]}), "backreferences"),
        (put("backreferences", {"x": [REFERENCE | {"module": "a/b"}]}), "backreferences"),
        (put("files", "speed.csv", KEY), r"`files`: speed\.csv is not the file that was recorded"),
    ],
)
def test_damage_is_one_line_with_file_field_and_remedy(folder, edit, message):
    change(folder, edit)
    with pytest.raises(RecordingError) as error:
        recording.load(folder)
    text = str(error.value)
    assert re.search(message, text), text
    assert text.startswith(f"{folder}/recording.json: ")
    assert re.search(r"record it again with: \S.* record 01-a --force$", text)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("recording.json", None, "cannot be read .No such file"),
        ("recording.json", b'{"schema": 4, "title": "\xff"}', "utf-8|required field"),
        ("speed.csv", None, "speed.csv cannot be read .No such file"),
    ],
)
def test_damaged_files_are_one_line_too(folder, name, content, message):
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_bytes(content)
        if "that was recorded" not in message and name != "recording.json":
            change(folder, lambda c: c["files"].update({name: recording.digest(folder / name)}))
    with pytest.raises(RecordingError, match=message) as error:
        recording.load(folder)
    assert "\n" not in str(error.value)


def test_a_recording_of_a_newer_version_is_told_apart(folder):
    change(folder, put("schema", SCHEMA + 1))
    with pytest.raises(RecordingError, match="install a newer gallery-recorder") as error:
        recording.load(folder)
    assert isinstance(error.value.__cause__, NewerError)


def test_a_table_of_any_columns_and_units_is_a_file(tmp_path):
    made = make(tmp_path / "staging")
    table = tmp_path / "staging" / "speed.csv"
    table.write_text("n,provider,unit,median,p20,p80\n1,us,furlongs,nan,,\n")
    made = msgspec.structs.replace(made, files=made.files | {"speed.csv": recording.digest(table)})
    location = Location(tmp_path, "nvidia-h200", None, "tutorials", "01-a")
    recording.save(made, tmp_path / "staging", location.folder)
    assert recording.load(location.folder) == made


def test_a_field_of_a_newer_version_is_ignored(tmp_path, folder):
    for keys in (["surprise"], ["run", "surprise"], ["blocks", 0, "surprise"]):
        change(folder, put(*keys, {"new": 1}))
    assert recording.load(folder) == make(tmp_path / "again")


def test_only_whole_recordings_are_saved(tmp_path, folder):
    before = (folder / "recording.json").read_bytes()
    made = make(tmp_path / "staging", thumbnail="gone.png")
    with pytest.raises(RecordingError):
        recording.save(made, tmp_path / "staging", folder)
    assert (folder / "recording.json").read_bytes() == before


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("before", ["recording", "link"])
def test_a_new_recording_replaces_the_old_one_whole(
    tmp_path, folder, monkeypatch, exchange, before
):
    if not exchange:
        monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    elsewhere = tmp_path / "elsewhere"
    if before == "link":
        folder.rename(elsewhere)
        folder.symlink_to(elsewhere)
    (folder / "old").touch()
    made = make(tmp_path / "staging", title="Another title")
    recording.save(made, tmp_path / "staging", folder)
    assert recording.load(folder) == made
    assert not folder.is_symlink()
    assert not (folder / "old").exists()
    assert [p.name for p in folder.parent.iterdir()] == ["01-a"]
    assert before == "recording" or recording.load(elsewhere).title == "A title"


def test_an_interrupted_replacement_is_undone_by_the_next_reader(tmp_path, folder, monkeypatch):
    before = recording.load(folder)
    made = make(tmp_path / "staging", title="Another title")
    monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    rename = iter([atomic.os.rename])

    def interrupted(old, new):
        next(rename)(old, new)

    monkeypatch.setattr(atomic.os, "rename", interrupted)
    with pytest.raises(StopIteration):  # between its two renames
        recording.save(made, tmp_path / "staging", folder)
    monkeypatch.undo()
    assert recording.load(folder) == before


def test_recordings_are_found_and_no_link_is_followed(tmp_path, folder):
    (found,) = recording.find(tmp_path, "tutorials", "01-a")
    assert (found.folder, found.place) == (folder, "nvidia-h200")
    assert recording.find(tmp_path, "tutorials", "02-b") == []
    other = Location(tmp_path, "nvidia-h200", "triton-3.9.0", "tutorials", "solutions/01-a")
    made = make(tmp_path / "staging", variant=other.variant, name=other.name)
    recording.save(made, tmp_path / "staging", other.folder)
    assert recording.location_of(other.folder, tmp_path, made) == other
    (tmp_path / "everything").symlink_to("/")
    (folder / "again").symlink_to("..")
    shutil.copytree(folder, tmp_path / ".workspace-01-a-12ab" / "recording", symlinks=True)
    shutil.copytree(folder, tmp_path.joinpath(*["d"] * 100), symlinks=True)
    assert set(recording.all_recordings(tmp_path)) == {folder, other.folder}


@pytest.mark.parametrize("step", ["device", "variant", "gallery", "name"])
def test_a_recording_in_the_place_of_another_is_an_error(tmp_path, folder, step):
    place = {"device": "amd-x", "variant": "v1", "gallery": "guide", "name": "02-b"}
    right = Location(tmp_path, "nvidia-h200", None, "tutorials", "01-a")
    wrong = replace(right, **{step: place[step]})
    shutil.copytree(folder, wrong.folder)
    with pytest.raises(RecordingError, match="move it to"):
        wrong.load()
