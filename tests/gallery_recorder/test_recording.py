"""The format of a recording: round trip, each kind of damage, replacement in one step."""

from __future__ import annotations

import hashlib
import json
import re

import msgspec
import pytest

from gallery_recorder.store import atomic, recording
from gallery_recorder.store.recording import (
    Block,
    Figure,
    GpuState,
    Provenance,
    Recording,
    RecordingError,
    Repr,
    Run,
)

KEY = hashlib.sha256(b"code").hexdigest()


def make(staging, **changes):
    """A recording with everything in it; its files are written to *staging*."""
    staging.mkdir(exist_ok=True)
    files = {"figure-01.svg": "<svg/>", "speed.csv": "size,provider\n1,a\n", "thumbnail.png": "p"}
    for name, content in files.items():
        (staging / name).write_text(content)
    state = GpuState(1980, 3201, 41, 320, ("power cap",), 0)
    made = Recording(
        schema=recording.SCHEMA,
        tutorial="01-a",
        title="A title",
        key=KEY,
        run=Run("2026-01-02T03:04:05Z", 12.5, 3 * 2**30, 2**30),
        provenance=Provenance(
            device="NVIDIA H200",
            kind="gpu",
            os="Linux",
            python="3.12.3",
            torch="2.11.0+cu130",
            triton="3.6.0",
            numpy="2.4.1",
            matplotlib="3.10.0",
            sphinx_gallery="0.22.1",
            compute_capability="9.0",
            memory=150_000_000_000,
            multiprocessors=132,
            driver="580.1",
            toolkit="CUDA 13.0",
            environment={"TRITON_X": "1"},
            commit="abc",
            before=state,
            after=state,
        ),
        blocks=(
            Block(9, KEY, 1.25, "out\n", "err\n", Repr("html", "<b>x</b>")),
            Block(
                20,
                KEY,
                0.0,
                figures=(Figure("figure-01.svg", "A plot", 672, 403),),
                data=("speed.csv",),
            ),
        ),
        files=tuple(recording.describe_file(staging / name) for name in sorted(files)),
        thumbnail="thumbnail.png",
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def folder(tmp_path):
    """The folder of a saved recording."""
    made = make(tmp_path / "staging")
    recording.save(made, tmp_path / "staging", tmp_path / "nvidia-h200" / "01-a")
    return tmp_path / "nvidia-h200" / "01-a"


def test_round_trip(tmp_path, folder):
    expected = make(tmp_path / "again")
    assert recording.load(folder) == expected
    assert not expected.interpreted
    assert not (tmp_path / "staging").exists()


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
        (put("schema", 0), r"`schema` is 0, but this version reads schema 1; record it again"),
        (put("schema", 2), r"`schema` is 2, but this version reads schema 1; update this checkout"),
        (put("schema", "1"), r"`schema`: Expected `int`"),
        (drop("schema"), r"required field `schema`"),
        (drop("run", "seconds"), r"`run`: .* required field `seconds`"),
        (put("run", "seconds", -1), r"`run\.seconds`: Expected `float` >= 0"),
        (put("run", "recorded", "yesterday"), r"`run\.recorded`: Expected `str` matching"),
        (put("run", "status", "failed"), r"`run\.status`: Invalid enum value 'failed'"),
        (put("provenance", "kind", "tpu"), r"`provenance\.kind`: Invalid enum"),
        (put("surprise", 1), r"unknown field `surprise`"),
        (put("blocks", 0, "surprise", 1), r"`blocks\[0\]`: .* unknown field `surprise`"),
        (put("blocks", 1, "key", "abc"), r"`blocks\[1\]\.key`: Expected `str` matching"),
        (put("files", 0, "name", "../x"), r"`files\[0\]\.name`: Expected `str` matching"),
        (put("files", 0, "name", "a/b"), r"`files\[0\]\.name`: Expected `str` matching"),
        (
            put("blocks", 1, "figures", 0, "file", "other.svg"),
            r"`blocks\[1\]\.figures\[0\]` names other\.svg, which `files` does not list",
        ),
        (
            put("blocks", 0, "data", ["gone.csv"]),
            r"`blocks\[0\]\.data\[0\]` names gone\.csv, which `files` does not list",
        ),
        (put("thumbnail", "x.png"), r"`thumbnail` names x\.png, which `files` does not list"),
        (put("files", 1, "bytes", 1), r"`files\[1\]`: speed\.csv is not the file that was record"),
    ],
)
def test_damage_names_the_file_the_field_and_the_remedy(folder, edit, message):
    change(folder, edit)
    with pytest.raises(RecordingError) as error:
        recording.load(folder)
    assert re.search(message, str(error.value)), str(error.value)
    assert str(error.value).startswith(f"{folder}/recording.json: ")
    assert "update this checkout" in str(error.value) or str(error.value).endswith(
        "record it again with: make record T=01-a FORCE=1"
    )


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
    with pytest.raises(
        RecordingError, match=r"`files\[1\]`: speed\.csv is not .* from git, or rec"
    ):
        recording.load(folder)
    (folder / "speed.csv").unlink()
    with pytest.raises(RecordingError, match=r"`files\[1\]`: speed\.csv cannot be read \(No such"):
        recording.load(folder)


def test_the_remedy_of_a_solution_names_its_folder(tmp_path):
    with pytest.raises(RecordingError, match="make record T=solutions/01-b FORCE=1"):
        recording.load(tmp_path / "nvidia-h200" / "solutions" / "01-b")


def test_what_would_not_load_is_not_saved(tmp_path, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    staging = tmp_path / "staging"
    made = make(staging, thumbnail="gone.png")
    with pytest.raises(RecordingError, match="thumbnail"):
        recording.save(made, staging, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("exchange", [True, False])
def test_replacing_takes_all_of_the_new_and_nothing_of_the_old(
    tmp_path, folder, monkeypatch, exchange
):
    if not exchange:
        monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    made = make(tmp_path / "staging", title="Another title", thumbnail=None)
    (tmp_path / "staging" / "thumbnail.png").unlink()
    made = msgspec.structs.replace(
        made, files=tuple(file for file in made.files if file.name != "thumbnail.png")
    )
    recording.save(made, tmp_path / "staging", folder)
    assert recording.load(folder) == made
    assert {p.name for p in folder.iterdir()} == {"figure-01.svg", "recording.json", "speed.csv"}
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
    assert recording.find(root, "01-a") == {"nvidia-h200": folder}
    assert recording.find(root, "02-b") == {}
    assert recording.find(root / "none", "01-a") == {}
    (root / ".hidden").mkdir()
    solution = root / "nvidia-h200" / "solutions" / "01-b"
    recording.save(make(root / "staging"), root / "staging", solution)
    assert list(recording.all_recordings(root)) == [
        ("nvidia-h200", folder),
        ("nvidia-h200", solution),
    ]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("AMD Instinct MI300X", "amd-instinct-mi300x"),
        ("  NVIDIA GeForce RTX™ 4090 ", "nvidia-geforce-rtx-4090"),
        ("…", "unknown"),
    ],
)
def test_slug(name, slug):
    assert recording.slug(name) == slug
