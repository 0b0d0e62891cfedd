"""Faults in conf.py, names and packages are told in a line, before anything is executed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gallery_recorder
from gallery_recorder.project.galleries import ProjectError
from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import Gallery

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def run(gallery, *words, **variables):
    """The command line, in the folder of the project."""
    return processes.run(
        [sys.executable, "-m", "gallery_recorder", *words],
        cwd=gallery.root,
        env=os.environ | variables,
    )


def build(gallery, *options):
    return processes.sphinx(gallery.root, *options, "-b", "html", "doc", "build")


def test_the_extension_tells_its_version(tmp_path):
    assert f'\nversion = "{gallery_recorder.__version__}"\n' in PYPROJECT.read_text()
    more = """
    def tell(app, _):
        print("is", app.extensions["gallery_recorder"].version)

    def setup(app):
        app.connect("build-finished", tell)
    """
    gallery = Gallery(tmp_path, more=more)
    gallery.write("a", "x = 1")
    assert f"is {gallery_recorder.__version__}" in build(gallery).stdout


def test_a_misspelt_setting_is_told_by_commands_and_builds(tmp_path):
    more = "gallery_unrecoded = 'no-output'\ngallery_of_another_tool = 1"
    gallery = Gallery(tmp_path, more=more)
    gallery.write("a", "x = 1")
    for said in (run(gallery, "status").stderr, build(gallery).stderr):
        assert "gallery_unrecoded" in said
        assert "gallery_unrecorded is one" in said
        assert "another_tool" not in said


def test_the_setting_that_executes_no_example_is_named(tmp_path):
    gallery = Gallery(tmp_path, '"plot_gallery": "False",')
    gallery.write("a", "x = 1")
    assert "plot_gallery is False in" in run(gallery, "status").stdout
    assert "plot_gallery" in run(gallery, "record", "a", "--device", "cpu").stderr
    other = Gallery(tmp_path / "other")
    other.write("a", "x = 1")
    pattern = ("-D", "sphinx_gallery_conf.filename_pattern=nothing")
    assert "filename_pattern in conf.py is 'nothing'" in run(other, "status", *pattern).stdout


def test_without_a_folder_of_recordings_the_build_says_that_they_may_be_elsewhere(tmp_path):
    gallery = Gallery(tmp_path)
    gallery.write("a", "x = 1")
    assert "pull PLACE" in build(gallery).stderr
    gallery.recordings.mkdir()
    assert "pull PLACE" not in build(gallery).stderr


def test_a_missing_library_is_one_line_for_the_author_and_on_the_page(tmp_path):
    gallery = Gallery(tmp_path, '"ignore_pattern": "^_",')
    (gallery.examples / "_deep.py").write_text("import not_there.at_all\n")
    gallery.write("a", "import _deep")
    outcome = gallery.record()["a"]
    assert outcome.text.count("\n") == 1
    assert "needs not_there, which is not installed" in outcome.text
    exception = gallery.load("a").blocks[1].exception
    assert exception == "ModuleNotFoundError: No module named 'not_there'"
    (gallery.conf / "conf.py").write_text("import not_there\n")
    with pytest.raises(ProjectError) as raised:
        gallery.project()
    assert "conf.py:1: imports not_there, which is not installed" in str(raised.value)
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("name", ["plot two words", "plot,comma"])
def test_a_name_that_sphinx_gallery_cannot_show_is_told_before_anything_is_executed(tmp_path, name):
    gallery = Gallery(tmp_path)
    gallery.write(name, f"open({str(tmp_path / 'executed')!r}, 'w')")
    outcome = gallery.record()[name]
    assert outcome.status == "failed"
    assert "space or a comma" in outcome.text
    assert not (tmp_path / "executed").exists()


def test_names_are_utf_8_in_every_locale(tmp_path):
    gallery = Gallery(tmp_path / "ü")
    gallery.write("é", "print('ü')")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from gallery_recorder.__main__ import main; import sys; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "record", "--device", "cpu"],
        cwd=gallery.root,
        env=os.environ | locale | {"PYTHONPATH": processes.search_path()},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert gallery.load("é").blocks[1].stdout == "ü\n"


def test_pages_of_recordings_are_not_searched(tmp_path):
    gallery = Gallery(tmp_path)
    gallery.write("a", "print('found')")
    gallery.record_all()
    assert build(gallery).returncode == 0
    index = (tmp_path / "build/searchindex.js").read_text()
    assert "auto_examples/a" in index
    title = "Recordings of examples on cpu"
    assert title in (tmp_path / "build/auto_examples/recordings-cpu.html").read_text()
    assert title.lower() not in index.lower()


def test_an_unchanged_build_writes_no_source(tmp_path):
    gallery = Gallery(tmp_path)
    gallery.write("a", "import time; time.sleep(0.05)")
    gallery.write("sub/b", "import time; time.sleep(0.05)")
    (gallery.examples / "sub/GALLERY_HEADER.rst").write_text("Sub\n===\n")
    gallery.record_all()

    def written():
        assert build(gallery).returncode == 0
        return {path: path.stat().st_mtime_ns for path in gallery.source.rglob("*.*")}

    assert written() == written()
