"""Reading ends, and with one error, whatever somebody put in a file's place."""

from __future__ import annotations

import os
import re
import shutil
import socket

import msgspec
import pytest

from gallery_recorder.project import galleries
from gallery_recorder.store import reading, recording, status
from gallery_recorder.store.reading import ReadingError
from gallery_recorder.store.recording import RecordingError
from tests.fixtures import fixture_gallery, quick
from tests.fixtures.fixture_gallery import make_gallery, make_recording


def _device(path):
    path.symlink_to("/dev/zero")


def _socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_RDONLY)  # a socket's path must be short
        try:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


#: What can be in a file's place, and what is said of it.
STRANGE = {
    "nothing": (lambda path: None, "cannot be read .No such file"),
    "folder": (lambda path: path.mkdir(), "is a folder, not a plain file"),
    "pipe": (os.mkfifo, "is a pipe, not a plain file"),
    "socket": (_socket, "cannot be read|is a socket"),
    "device": (_device, "is a symbolic link, not a plain file"),
    "link": (lambda path: path.symlink_to("/etc/passwd"), "is a symbolic link"),
    "itself": (lambda path: path.symlink_to(path), "is a symbolic link"),
    "large": (lambda path: os.truncate(path, 1 << 40) if path.touch() is None else 0, "the limit"),
}

#: What can be in ``recording.json``.
NO_JSON = {
    "one-byte": (lambda text: text.replace(b"A title", b"A \xffitle", 1), "not UTF-8"),
    "latin-1": (lambda text: text.decode().replace("A", "Ä").encode("latin-1"), "JSON|UTF-8"),
    "utf-16": (lambda text: text.decode().encode("utf-16"), "is not whole JSON"),
    "byte-order-mark": (lambda text: b"\xef\xbb\xbf" + text, "is not whole JSON"),
    "nested": (lambda text: b'{"schema": 1, "a": ' + b"[" * 200_000, "nested too deep"),
    "nested-in-known": (
        lambda text: text.replace(b'"blocks": [', b'"blocks": ' + b"[" * 200_000, 1),
        "nested too deep|Expected",
    ),
    "digits": (
        lambda text: re.sub(rb'"schema": \d+', b'"schema": ' + b"9" * 9000, text),
        "schema|JSON",
    ),
    "surrogate": (lambda text: text.replace(b"A title", b"\\ud800", 1), "is not whole JSON"),
    "nul": (lambda text: b"\x00" * 100, "is not whole JSON"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_plain_file_is_refused_at_once(tmp_path, kind):
    make, words = STRANGE[kind]
    make(tmp_path / "file")
    with pytest.raises(ReadingError, match=words):
        reading.read_file(tmp_path / "file", 1000)


def test_a_file_as_large_as_it_may_be_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert reading.read_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ReadingError, match=r"has 5 bytes; the limit is 4"):
        reading.read_file(tmp_path / "file", 4)


def test_a_file_whose_system_tells_no_size_ends_too():
    with pytest.raises(ReadingError, match="has more than 10 bytes"):
        reading.read_file(recording.Path("/proc/self/status"), 10)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """Two tutorials."""
    root = make_gallery(tmp_path_factory.mktemp("reading") / "g")
    return quick.read(galleries.find(None, None, [root / "tutorials"]))


@pytest.fixture
def gallery(plan):
    """The two, with recordings."""
    root = plan.examples[0].path.parents[1]
    for name in ("01-first", "02-second"):
        make_recording(root, name)
    yield root
    shutil.rmtree(root / "recordings")


def _states(plan, gallery):
    return {row.name: row.state for row in status.rows(plan, gallery / "recordings")}


@pytest.mark.parametrize(
    "name", ["recording.json", "images/sphx_glr_01-first_001.svg", "speed.csv"]
)
@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_file_damages_that_recording_alone(plan, gallery, kind, name):
    folder = gallery / "recordings" / "nvidia-h200" / "tutorials" / "01-first"
    (folder / name).unlink()
    STRANGE[kind][0](folder / name)
    with pytest.raises(RecordingError, match=r"recording\.json: .*(record it again|take it back)"):
        recording.load(folder)
    state = "missing" if (kind, name) in _WITHOUT else "damaged"
    assert _states(plan, gallery) == {"01-first": state, "02-second": "current"}
    shutil.rmtree(folder)
    make_recording(gallery, "01-first")
    assert _states(plan, gallery) == {"01-first": "current", "02-second": "current"}


#: Where nothing can be found under the name, the recording is missing, not damaged.
_WITHOUT = {("nothing", "recording.json")}


@pytest.mark.parametrize("kind", NO_JSON)
def test_a_damaged_byte_damages_that_recording_alone(plan, gallery, kind):
    damage, words = NO_JSON[kind]
    path = gallery / "recordings" / "nvidia-h200" / "tutorials" / "01-first" / "recording.json"
    title = msgspec.json.decode(path.read_bytes())["title"].encode()
    path.write_bytes(damage(path.read_bytes().replace(title, b"A title", 1)))
    with pytest.raises(RecordingError, match=words):
        recording.load(path.parent)
    assert _states(plan, gallery) == {"01-first": "damaged", "02-second": "current"}


@pytest.mark.parametrize("leads_to", ["another recording", "nothing", "a file"])
@pytest.mark.parametrize("exchange", [True, False])
def test_a_link_in_a_recordings_place_is_replaced_and_what_it_leads_to_stays(
    gallery, tmp_path, monkeypatch, leads_to, exchange
):
    if not exchange:
        monkeypatch.setattr(recording.atomic, "exchange", lambda *_: False)
    device = gallery / "recordings" / "nvidia-h200" / "tutorials"
    target = device / "02-second"
    if leads_to == "a file":
        target = tmp_path / "file"
        target.write_text("precious")
    shutil.rmtree(device / "01-first")
    (device / "01-first").symlink_to("nowhere" if leads_to == "nothing" else target)
    before = recording.load(device / "02-second")
    fixture_gallery.make_recording(gallery, "01-first")
    assert not (device / "01-first").is_symlink()
    assert recording.load(device / "01-first").name == "01-first"
    assert recording.load(device / "02-second") == before
    assert leads_to != "a file" or target.read_text() == "precious"
    assert sorted(os.listdir(device)) == ["01-first", "02-second"]
