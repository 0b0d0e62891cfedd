"""The rules of sphinx-gallery and of Sphinx that hold for recorded examples, too."""

import time

import pytest

from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import Gallery

INDEX = (
    "Title\n=====\n\n.. toctree::\n\n   auto_examples/index\n   auto_examples/sg_execution_times\n"
)


@pytest.fixture
def gallery(tmp_path):
    gallery = Gallery(tmp_path, '"expected_failing_examples": ["../examples/fails.py"],')
    (tmp_path / "doc" / "index.rst").write_text(INDEX)
    gallery.write("fails", "1 / 0")
    gallery.write("passes", "import time; time.sleep(0.1)")
    return gallery


def build(gallery, *options):
    return processes.sphinx(gallery.root, *options, "-b", "html", "doc", "build")


def test_what_is_expected_to_fail_and_was_not_recorded_is_a_warning_like_others(gallery):
    gallery.record("passes")
    done = build(gallery)
    assert done.returncode == 0, done.stderr
    assert "No recording matches the code of: fails." in done.stderr
    assert "not failing" not in done.stderr
    gallery.record()
    done = build(gallery)
    assert (done.returncode, done.stderr) == (0, "")
    gallery.write("fails", "1 / 1")
    gallery.record()
    done = build(gallery)
    assert done.returncode != 0
    assert "not failing" in done.stderr


def test_an_example_that_is_expected_to_fail_may_crash(gallery):
    gallery.write("fails", "import os; os._exit(3)")
    outcomes = [gallery.record()["fails"] for _ in range(2)]
    assert [outcome.status for outcome in outcomes] == ["recorded", "current"]
    assert "failed as expected" in outcomes[0].warnings[0]
    assert build(gallery).returncode == 0
    html = (gallery.root / "build/auto_examples/fails.html").read_text()
    assert "it ended its process with status 3." in html  # and not a line, which is unknown
    assert "gallery-banner" not in html


def test_execution_times_and_thumbnails_are_read_again_only_if_they_changed(gallery):
    gallery.record()
    build(gallery)
    page = gallery.root / "doc" / "auto_examples" / "sg_execution_times.rst"
    text, written = page.read_text(), page.stat().st_mtime_ns
    (thumbnail,) = page.parent.glob("images/thumb/sphx_glr_passes_thumb.*")
    drawn = thumbnail.stat().st_mtime_ns
    passes = gallery.write("passes", "import time; time.sleep(0.1)")
    passes.write_text(passes.read_text().replace("An introduction", "Another one"))
    time.sleep(0.01)
    assert build(gallery).returncode == 0
    assert "Another one" in (gallery.root / "build/auto_examples/passes.html").read_text()
    assert (page.read_text(), page.stat().st_mtime_ns) == (text, written)
    assert thumbnail.stat().st_mtime_ns == drawn


def test_a_book_has_no_line_about_a_recording(gallery):
    gallery.record()
    build(gallery)
    assert "gallery-provenance" in (gallery.root / "build/auto_examples/passes.html").read_text()
    done = processes.sphinx(gallery.root, "-b", "latex", "-d", "trees", "doc", "book")
    assert done.returncode == 0, done.stderr
    (book,) = (gallery.root / "book").glob("[!s]*.tex")
    assert "An introduction" in book.read_text()
    assert "Recorded on" not in book.read_text()


def test_record_takes_the_options_of_a_build(tmp_path):
    gallery = Gallery(tmp_path, more="if tags.has('quick'):\n    gallery_variant = 'quick'\n")
    for name in ("one", "two", "three"):
        gallery.write(name, "x = 1")
    record = [
        *("-m", "gallery_recorder", "record", "--device", "cpu", "--conf", str(tmp_path / "doc"))
    ]

    def recorded(*options):
        done = processes.run([processes.sys.executable, *record, *options], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = tmp_path.rglob("recording.json")
        return {path.parent.relative_to(tmp_path).as_posix() for path in found}

    first = {"recordings/cpu/examples/one"}
    assert recorded("--pattern", "one") == first
    first |= {"elsewhere/cpu/examples/two"}
    more = ("-D", "gallery_recordings=../elsewhere")
    assert recorded(*more, "-D", "sphinx_gallery_conf.filename_pattern=two") == first
    assert recorded("-t", "quick", "three") == first | {"recordings/cpu/quick/examples/three"}
    wrong = processes.run([processes.sys.executable, *record, "-D", "nothing"], cwd=tmp_path)
    assert (wrong.returncode, "must be SETTING=VALUE" in wrong.stderr) == (2, True)


WRITES = """
from pathlib import Path

def writes(block, block_vars, gallery_conf):
    if "draw" not in block[1]:
        return ""
    source = Path(gallery_conf["src_dir"])
    for name in ("_static/widget.js", "extra/a.json", "_static/own.css"):
        path = source / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("recorded")
    return "\\n.. raw:: html\\n\\n    <script src='../_static/widget.js'></script>\\n"
"""


def test_files_that_scrapers_write_for_the_site_reach_it_and_replace_none_of_its_own(tmp_path):
    more = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parent))
    html_static_path = ["_static"]
    html_extra_path = ["extra"]
    """
    gallery = Gallery(tmp_path, '"image_scrapers": ("writing.writes",),', more)
    (gallery.conf / "writing.py").write_text(WRITES)
    for folder in ("_static", "extra"):
        (gallery.source / folder).mkdir()
    (gallery.source / "_static/own.css").write_text("own")
    script = gallery.write("a", "print('draw')")
    gallery.record_all()
    html = tmp_path / "html"

    def built():
        done = processes.sphinx(tmp_path, "-b", "html", gallery.source, html)
        assert done.returncode == 0, done.stderr
        return done.stderr

    said = built()
    assert (html / "_static/widget.js").read_text() == "recorded"
    assert (html / "a.json").read_text() == "recorded"
    assert (html / "_static/own.css").read_text() == "own"
    assert "own.css" in said
    assert [path.name for path in (gallery.source / "_static").iterdir()] == ["own.css"]
    script.write_text(script.read_text().replace("draw", "nothing"))
    gallery.record_all()
    built()
    assert not (html / "_static/widget.js").exists()
    assert not (html / "a.json").exists()


@pytest.mark.parametrize(
    ("setting", "status"),
    [("", 2), ('"only_warn_on_example_error": True,', 0), ('"abort_on_example_error": True,', 2)],
)
def test_a_build_ends_as_sphinx_gallery_says_when_an_example_begins_to_fail(
    tmp_path, setting, status
):
    gallery = Gallery(tmp_path, setting)
    (tmp_path / "doc" / "index.rst").write_text(INDEX)
    script = gallery.write("a", "print('good')")
    gallery.record_all()
    script.write_text(script.read_text() + "\n1 / 0\n")
    assert gallery.record()["a"].status == "failed"
    for _ in range(2):
        done = build(gallery)
        assert done.returncode == status
        assert "failed" in done.stderr
        assert "ZeroDivisionError" in done.stderr
    done = build(gallery, "-D", "gallery_unrecorded=stale")
    assert (done.returncode, "failed when it was recorded" in done.stderr) == (0, True)
