"""An example may change whatever it finds in the project: it is a copy, and each finds it whole."""

import os
import subprocess

import pytest

from gallery_recorder.run import copies
from gallery_recorder.testing.projects import Gallery

CHANGES = """
import os, pathlib, shutil, subprocess
os.remove("data/table.csv")
shutil.rmtree("../data")
open("../doc/conf.py", "a").write("raise SystemExit")
open("large.bin", "r+b").write(b"changed")
pathlib.Path("plot_2.py").write_text("changed")
pathlib.Path("beside.txt").write_text("changed")
pathlib.Path("new.txt").write_text("new")
os.mkdir("new")
pathlib.Path("new/file").write_text("new")
os.chmod("data", 0)
subprocess.run("rm -rf ../link/* ../linked; mv ../lib ../moved", shell=True, check=True)
"""
SEES = """
import os
print(open("data/table.csv").read(), open("../data/table.csv").read())
print(open("../doc/conf.py").read().count("SystemExit"), open("large.bin").read(7))
print(open("plot_2.py").read()[:3], open("beside.txt").read(), os.path.exists("new.txt"))
print(os.path.exists("new"), open("../link/table.csv").read(), open("../lib/own.py").read())
"""
SEEN = '''1 2
0 content
""" beside False
False 2 lib
'''


@pytest.fixture
def gallery(tmp_path):
    made = Gallery(tmp_path)
    made.write("plot_1", CHANGES)
    made.write("plot_2", SEES)
    for path, text in {
        "examples/data/table.csv": "1",
        "data/table.csv": "2",
        "examples/large.bin": "content" + 17_000_000 * " ",
        "examples/beside.txt": "beside",
        "lib/own.py": "lib",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "linked").symlink_to(tmp_path / "examples" / "beside.txt")
    return made


def contents(gallery):
    """All files and links but recordings."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in gallery.root.rglob("*")
        if path.is_symlink() or path.is_file()
        if gallery.recordings not in path.parents
    }


@pytest.mark.parametrize("has_git", [False, True])
def test_an_example_changes_neither_the_project_nor_what_the_next_one_finds(gallery, has_git):
    if has_git:
        subprocess.run(["git", "-C", str(gallery.root), "init", "-q"], check=True)
        (gallery.root / ".gitignore").write_text("large.bin\n")
    before = contents(gallery)
    outcomes = gallery.record(jobs=1)
    assert contents(gallery) == before
    assert {outcome.status for outcome in outcomes.values()} == {"recorded"}
    assert gallery.load("plot_2").blocks[1].stdout == SEEN
    assert [path.name for path in gallery.device.iterdir()] == ["examples"]


def test_a_linked_file_that_an_example_changes_is_a_failure_that_names_it(gallery, monkeypatch):
    monkeypatch.setattr(copies, "_LARGE", 1_000)
    gallery.write("plot_1", "open('large.bin', 'r+b').write(b'changed')")
    outcomes = gallery.record(jobs=1)
    assert outcomes["plot_1"].status == "failed"
    assert str(gallery.examples / "large.bin") in outcomes["plot_1"].text
    assert outcomes["plot_2"].status == "recorded"


def test_what_git_ignores_outside_of_galleries_is_a_link_and_recordings_are_not_there(gallery):
    subprocess.run(["git", "-C", str(gallery.root), "init", "-q"], check=True)
    (gallery.root / ".gitignore").write_text("environment\n")
    (gallery.root / "environment").mkdir()
    gallery.write("plot_1", "x = 1")
    gallery.write("plot_2", "import os\nprint(os.path.islink('../environment'), os.listdir('..'))")
    gallery.record(jobs=1)
    printed = gallery.load("plot_2").blocks[1].stdout
    assert printed.startswith("True")
    assert "recordings" not in printed
    assert "'.git'" not in printed


def test_what_was_edited_since_the_copy_was_made_is_executed(gallery):
    later = gallery.examples / "plot_2.py"
    gallery.write("plot_1", "x = 1")
    gallery.write("plot_2", "print('old')")
    plan = gallery.project()
    tree = gallery.root / "tree"
    copy = copies.ProjectCopy(tree, gallery.root, copies.galleries_of(plan.examples), [tree])
    later.write_text(later.read_text().replace("old", "new"))
    copy.renew(later)
    copied = tree / gallery.root.name / "examples" / "plot_2.py"
    assert "new" in copied.read_text()
    copy.restore()
    assert "new" in copied.read_text()
