"""The format of a recording: round trip, each kind of damage, replacement in one step."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gallery_recorder.store import atomic, recording
from gallery_recorder.store.format import (
    GALLERY_FOLDER,
    SCHEMA,
    Block,
    GpuFacts,
    GpuState,
    Provenance,
    Recording,
    RunFacts,
    Value,
    slug,
)
from gallery_recorder.store.recording import Location, RecordingError
from tests.fixtures.fixture_gallery import PNG
from triton_site.probes import SOFTWARE

KEY = hashlib.sha256(b"code").hexdigest()
FIGURE = "images/sphx_glr_01-a_001.svg"
THUMBNAIL = "images/sphx_glr_01-a_thumbnail.png"


def make(staging, **changes):
    """A recording with everything in it; its files are written to *staging*."""
    (staging / "images").mkdir(parents=True, exist_ok=True)
    files = {FIGURE: "<svg/>", THUMBNAIL: PNG, "speed.csv": "size,provider\n1,a\n"}
    for name, content in files.items():
        (staging / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    state = GpuState(1980, 3201, 41, 320, ("power cap",), 0)
    made = Recording(
        schema=SCHEMA,
        gallery="tutorials",
        name="01-a",
        title="A title",
        key=KEY,
        run=RunFacts("2026-01-02T03:04:05Z", 12.5, 3.5, 2**30),
        provenance=Provenance(
            device="NVIDIA H200",
            kind="gpu",
            os="Linux",
            python="3.12.3",
            versions={"sphinx-gallery": "0.22.1"},
            environment={"TRITON_X": "1"},
            commit="abc",
            gpu=GpuFacts("9.0", 150_000_000_000, 132, "580.1"),
            before=state,
            after=state,
        ),
        blocks=(
            Block(9, KEY, 1.25, stdout="out\n", stderr="err\n", value=Value("html", "<b>x</b>")),
            Block(
                20,
                KEY,
                0.0,
                rst=f".. image:: /{GALLERY_FOLDER}/{FIGURE}\n",
                images=(FIGURE,),
                data=("speed.csv",),
            ),
        ),
        probes={SOFTWARE: {"triton": "3.6.0", "torch": "2.11.0+cu130"}},
        files={name: recording.digest(staging / name) for name in sorted(files)},
        thumbnail=THUMBNAIL,
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def folder(tmp_path):
    """The folder of a saved recording."""
    made = make(tmp_path / "staging")
    location = Location(tmp_path, "nvidia-h200", None, "tutorials", "01-a")
    recording.save(made, tmp_path / "staging", location.folder)
    return location.folder


def test_round_trip(tmp_path, folder):
    expected = make(tmp_path / "again")
    assert recording.load(folder) == expected
    assert expected.timed
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize("gallery", ["how to", "_examples", "例"])
def test_a_gallery_may_be_called_as_folders_are(tmp_path, gallery):
    made = make(tmp_path / "staging", gallery=gallery)
    location = Location(tmp_path / "recordings", "nvidia-h200", None, gallery, "01-a")
    recording.save(made, tmp_path / "staging", location.folder)
    assert location.load() == made


def test_what_is_written_reads_well_in_a_diff(folder):
    text = (folder / "recording.json").read_text()
    assert text.endswith("}\n")
    assert '\n  "title": "A title",\n' in text


def change(folder, edit):
    """Let *edit* change what ``recording.json`` says."""
    path = folder / "recording.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def put(*keys_and_value):
    """An edit that sets a field."""
    *keys, last, value = keys_and_value

    def edit(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return edit


def drop(*keys):
    """An edit that removes a field."""
    *keys, last = keys

    def edit(content):
        for key in keys:
            content = content[key]
        del content[last]

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("schema", 1), r"`schema` is 1, but this version reads schema 2; record it again"),
        (put("schema", 3), r"`schema` is 3, but this version reads schema 2; install a newer"),
        (put("schema", "1"), r"`schema`: Expected `int`"),
        (drop("schema"), r"required field `schema`"),
        (drop("run", "seconds"), r"`run`: .* required field `seconds`"),
        (put("run", "seconds", -1), r"`run\.seconds`: Expected `float` >= 0"),
        (put("run", "recorded", "yesterday"), r"`run\.recorded`: Expected `str` matching"),
        (put("run", "status", "went"), r"`run\.status`: Invalid enum value 'went'"),
        (put("provenance", "kind", "tpu"), r"`provenance\.kind`: Invalid enum"),
        (put("surprise", 1), r"unknown field `surprise`"),
        (put("blocks", 0, "surprise", 1), r"`blocks\[0\]`: .* unknown field `surprise`"),
        (put("blocks", 1, "key", "abc"), r"`blocks\[1\]\.key`: Expected `str` matching"),
        (put("files", "../x", KEY), r"matching regex .* at `key` in `\$\.files`"),
        (put("files", "/etc/passwd", KEY), r"matching regex .* at `key` in `\$\.files`"),
        (put("files", ".hidden", KEY), r"matching regex .* at `key` in `\$\.files`"),
        (put("name", "../x"), r"`name`: Expected `str` matching"),
        (put("gallery", "a/b"), r"`gallery`: Expected `str` matching"),
        (put("gallery", ".."), r"`gallery`: Expected `str` matching"),
        (
            put("blocks", 1, "images", ["images/other.svg"]),
            r"`blocks\[1\]\.images\[0\]` names images/other\.svg, which `files` does not list",
        ),
        (
            put("blocks", 0, "data", ["gone.csv"]),
            r"`blocks\[0\]\.data\[0\]` names gone\.csv, which `files` does not list",
        ),
        (put("thumbnail", "x.png"), r"`thumbnail` names x\.png, which `files` does not list"),
        (put("files", "speed.csv", KEY), r"`files`: speed\.csv is not the file that was recorded"),
    ],
)
def test_damage_names_the_file_the_field_and_the_remedy(folder, edit, message):
    change(folder, edit)
    with pytest.raises(RecordingError) as error:
        recording.load(folder)
    assert re.search(message, str(error.value)), str(error.value)
    assert str(error.value).startswith(f"{folder}/recording.json: ")
    newer = "install a newer" in str(error.value)
    assert newer or re.search(r"record it again with: \S.* record 01-a --force$", str(error.value))


@pytest.mark.parametrize("keep", [0, 1, 2, 100, -1, -2])
def test_a_truncated_recording_is_an_error(folder, keep):
    path = folder / "recording.json"
    content = path.read_bytes()
    path.write_bytes(content[:keep] if keep != -1 else content[:-3])
    with pytest.raises(RecordingError, match=r"recording\.json: is not whole JSON .*; record it"):
        recording.load(folder)


def test_a_missing_recording_is_an_error(tmp_path):
    with pytest.raises(RecordingError, match=r"a/recording\.json: cannot be read \(No such file"):
        recording.load(tmp_path / "a")


def test_a_missing_or_altered_file_is_an_error(folder):
    (folder / "speed.csv").write_text("size,provider\n1,b\n")
    with pytest.raises(RecordingError, match=r"`files`: speed\.csv is not .* from git, or rec"):
        recording.load(folder)
    (folder / "speed.csv").unlink()
    with pytest.raises(RecordingError, match=r"`files`: speed\.csv cannot be read \(No such"):
        recording.load(folder)


def test_what_would_not_load_is_not_saved(tmp_path, folder):
    before = (folder / "recording.json").read_bytes()
    staging = tmp_path / "staging"
    made = make(staging, thumbnail="gone.png")
    with pytest.raises(RecordingError, match="thumbnail"):
        recording.save(made, staging, folder)
    assert (folder / "recording.json").read_bytes() == before


@pytest.mark.parametrize("exchange", [True, False])
def test_replacing_takes_all_of_the_new_and_nothing_of_the_old(
    tmp_path, folder, monkeypatch, exchange
):
    if not exchange:
        monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    made = make(tmp_path / "staging", title="Another title", thumbnail=None)
    (tmp_path / "staging" / THUMBNAIL).unlink()
    files = {name: sha256 for name, sha256 in made.files.items() if name != THUMBNAIL}
    made = msgspec.structs.replace(made, files=files)
    recording.save(made, tmp_path / "staging", folder)
    assert recording.load(folder) == made
    assert {p.name for p in folder.iterdir()} == {"images", "recording.json", "speed.csv"}
    assert [p.name for p in (folder / "images").iterdir()] == [Path(FIGURE).name]
    assert [p.name for p in folder.parent.iterdir()] == ["01-a"]


def test_a_replacement_that_was_cut_off_is_undone_by_the_next_reader(tmp_path, folder, monkeypatch):
    before = recording.load(folder)
    made = make(tmp_path / "staging", title="Another title")
    monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    rename, calls = atomic.os.rename, []

    def cut_off(old, new):
        calls.append(old)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(old, new)

    monkeypatch.setattr(atomic.os, "rename", cut_off)
    with pytest.raises(KeyboardInterrupt):
        recording.save(made, tmp_path / "staging", folder)
    monkeypatch.undo()
    assert not folder.exists()
    assert recording.load(folder) == before


def test_finding(tmp_path, folder):
    root = tmp_path
    (found,) = recording.find(root, "tutorials", "01-a")
    assert (found.folder, found.place) == (folder, "nvidia-h200")
    assert found.load() == recording.load(folder)
    assert recording.find(root, "tutorials", "02-b") == []
    assert recording.find(root / "none", "tutorials", "01-a") == []
    (root / ".hidden").mkdir()
    other = Location(root, "nvidia-h200", "triton-3.9.0", "tutorials", "solutions/01-a")
    made = make(root / "staging", variant=other.variant, name=other.name)
    recording.save(made, root / "staging", other.folder)
    assert recording.location_of(other.folder, root) == other
    assert set(recording.all_recordings(root)) == {folder, other.folder}


@pytest.mark.parametrize("step", ["device", "variant", "gallery", "name"])
def test_a_recording_in_the_place_of_another_is_an_error(tmp_path, folder, step):
    """As when an interpreter's recording is copied into the folder of a GPU."""
    place = {"device": "amd-x", "variant": "v1", "gallery": "guide", "name": "02-b"}
    right = Location(tmp_path, "nvidia-h200", None, "tutorials", "01-a")
    wrong = replace(right, **{step: place[step]})
    shutil.copytree(folder, wrong.folder)
    with pytest.raises(RecordingError, match="put it"):
        wrong.load()
    with pytest.raises(RecordingError, match="put it"):
        recording.location_of(wrong.folder, tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("AMD Instinct MI300X", "amd-instinct-mi300x"),
        ("  NVIDIA GeForce RTX™ 4090 ", "nvidia-geforce-rtx-4090"),
        ("…", "unknown"),
    ],
)
def test_slug(name, expected):
    assert slug(name) == expected
