"""A page whose code has changed shows the outputs of the older code, if conf.py says so."""

import json
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from gallery_recorder.errors import RecorderError
from gallery_recorder.publish import publish
from gallery_recorder.store import recording
from gallery_recorder.testing import processes, small_gallery

NEW = "# %%\n# More prose.\n\nprint('new')\n\n# %%\n# More prose.\n"


def build(root: Path, policy: str = "stale"):
    return processes.build(root, "-W", "-D", f"gallery_unrecorded={policy}")


def change(root: Path, old: str, new: str) -> None:
    script = root / "tutorials" / "01-first.py"
    assert old in script.read_text()
    script.write_text(script.read_text().replace(old, new))


@pytest.fixture
def root(tmp_path):
    """A gallery of one tutorial, recorded in an older and in the current format of blocks."""
    root = small_gallery.make_gallery(
        tmp_path / "g",
        ("01-first",),
        extensions=("gallery_recorder", "gallery_recorder.publish.release"),
    )
    small_gallery.make_recording(root, "01-first", recorded="2026-11-20T12:00:00Z")
    small_gallery.make_recording(root, "01-first", "amd-x", recorded="2026-10-20T12:00:00Z")
    with (root / "conf.py").open("a") as conf:
        conf.write('gallery_devices = ["nvidia-h200"]\n')
    return root


def page(root: Path) -> BeautifulSoup:
    html = (root / "build/html/tutorials/01-first.html").read_text()
    return BeautifulSoup(html, "html.parser")


def test_the_previous_outputs_stay_and_each_changed_block_says_what_was_executed(root):
    change(root, "6 * 7", "6 * 9")
    change(root, "# %%\n# More prose.\n", NEW)
    done = build(root)
    assert (done.returncode, done.stderr) == (0, "")
    html = page(root)
    banner = html.find(class_="gallery-banner").text
    assert "2 of 3 code blocks" in banner
    assert "NVIDIA H200 on 20 November 2026" in banner
    new, changed = (marked.text for marked in html.select(".gallery-changed"))
    assert "has not been executed" in new
    assert "changed" in changed
    diff = html.find(class_="highlight-diff").text.split("\n")
    assert [line for line in diff if line[:1] in "+-" and line] == [
        "-answer = 6 * 7",
        "+answer = 6 * 9",
    ]
    places = [html.text.index(text) for text in ("3.14159 on nvidia-h200", "-answer", "42")]
    assert places == sorted(places)
    (notebook,) = root.glob("build/html/_downloads/*/01-first.ipynb")
    cells = [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]
    assert [bool(cell["outputs"]) for cell in cells] == [True, False, True]


def test_prose_and_current_recordings_are_not_stale(root):
    change(root, "Prose before code", "Other prose")
    assert build(root).returncode == 0
    assert not page(root).select(".gallery-banner, .gallery-changed")
    change(root, "6 * 7", "6 * 9")
    small_gallery.make_recording(root, "01-first", "interpreter")
    assert build(root).returncode == 0
    assert not page(root).select(".gallery-changed")
    assert "3.14159 on interpreter" in page(root).text


def test_the_code_that_schema_2_did_not_keep_is_said_to_be_unknown(root):
    for folder in recording.all_recordings(root / "recordings"):
        blocks = recording.load(folder).blocks
        small_gallery.change(folder, blocks=tuple(map(without_code, blocks)))
    change(root, "6 * 7", "6 * 9")
    assert build(root).returncode == 0
    assert "older format does not contain the code" in page(root).text


def without_code(block):
    return block.__class__(**{n: getattr(block, n) for n in block.__struct_fields__} | {"code": ""})


def test_what_was_never_recorded_is_an_error(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g")
    small_gallery.make_recording(root, "01-first")
    done = build(root)
    assert done.returncode != 0
    assert "record 02-second" in done.stderr


def test_such_a_build_is_not_published(root, tmp_path, monkeypatch):
    monkeypatch.setenv("GALLERY_VERSION", "main")
    site = tmp_path / "site"
    site.mkdir()
    change(root, "6 * 7", "6 * 9")
    assert build(root).returncode == 0
    with pytest.raises(RecorderError, match="outputs of older code: tutorials/01-first"):
        publish.publish(root / "build/html", site, "main")
    change(root, "6 * 9", "6 * 7")
    assert build(root).returncode == 0
    publish.publish(root / "build/html", site, "main")
