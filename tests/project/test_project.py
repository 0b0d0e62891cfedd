"""A project as its conf.py describes it: which scripts there are, and how messages call them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from unittest import mock

import pytest

from gallery_recorder import __main__ as cli
from gallery_recorder.project import commands, galleries, reader
from gallery_recorder.project.galleries import ProjectError
from gallery_recorder.project.script import ScriptError
from tests.fixtures import forked, quick

SCRIPT = '"""\nA title\n=======\n"""\nprint(1)\n'
HEADER = "Gallery\n=======\n"

CONF = """
extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/", "../more/examples"],
    "gallery_dirs": ["auto/", "auto_more"],
    "within_subsection_order": "FileNameSortKey",
    "expected_failing_examples": ["../examples/plot_fails.py"],
}
"""


def make(root, conf=CONF, files=()):
    """A project below *root*: doc/conf.py, two galleries, and *files*."""
    for folder in ("doc", "examples", "more/examples"):
        (root / folder).mkdir(parents=True)
    (root / "doc" / "conf.py").write_text(conf)
    (root / "doc" / "index.rst").write_text("Title\n=====\n")
    for header in ("examples/README.txt", "more/examples/GALLERY_HEADER.rst"):
        (root / header).write_text(HEADER)
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(HEADER if Path(name).stem.isupper() else SCRIPT)
    return root


def read(root, **options):
    return quick.read(galleries.find(options.get("conf", root / "doc"), None, ()))


def test_which_scripts_there_are(tmp_path):
    files = [
        "examples/plot_b.py",
        "examples/plot_a.py",
        "examples/other.py",
        "examples/plot_fails.py",
        "examples/__init__.py",
        "examples/sub/README.rst",
        "examples/sub/plot_c.py",
        "examples/no-header/plot_d.py",
        "more/examples/plot_a.py",
    ]
    found = read(make(tmp_path, files=files))
    assert [(e.source, e.pages, e.recorded, e.may_fail) for e in found.examples] == [
        ("examples/other.py", "auto", False, False),
        ("examples/plot_a.py", "auto", True, False),
        ("examples/plot_b.py", "auto", True, False),
        ("examples/plot_fails.py", "auto", True, True),
        ("examples/sub/plot_c.py", "auto/sub", True, False),
        ("more-examples/plot_a.py", "auto_more", True, False),
    ]


def test_two_galleries_may_have_one_file_name(tmp_path):
    found = read(make(tmp_path, files=["examples/plot_a.py", "more/examples/plot_a.py"]))
    one, other = found.examples
    assert one.name == other.name == "plot_a"
    assert one.gallery != other.gallery
    assert found.label(one) == f"{one.gallery}/plot_a"
    assert galleries.select(found, ["plot_a"]) == [one, other]
    assert galleries.select(found, [f"{other.gallery}/plot_a"]) == [other]


def test_a_folder_beside_a_script_of_its_name(tmp_path):
    files = ["examples/plot_a.py", "examples/plot_a/README.txt", "examples/plot_a/plot_b.py"]
    found = read(make(tmp_path, files=files))
    assert [e.name for e in found.examples] == ["plot_a.py", "plot_a/plot_b"]


def test_selecting(tmp_path, monkeypatch):
    folder = tmp_path / "tutorials"
    (folder / "solutions").mkdir(parents=True)
    for name in ("02-b", "01-a", "_private", "conftest", "solutions/01-c"):
        (folder / f"{name}.py").write_text(SCRIPT)
    (folder / "solutions" / "GALLERY_HEADER.rst").write_text(HEADER)
    found = quick.read(galleries.find(None, None, [folder]))

    def select(*names):
        return [example.name for example in galleries.select(found, names)]

    assert select() == ["01-a", "02-b", "solutions/01-c"]
    assert select("02", "01") == ["01-a", "02-b"]
    assert select("02-b.py", "02-b") == ["02-b"]
    assert select("solutions/01-c") == select("01-c") == ["solutions/01-c"]
    assert select("tutorials/01-a") == ["01-a"]
    monkeypatch.chdir(folder / "solutions")
    assert select("../01-a.py", "./01-c.py") == ["01-a", "solutions/01-c"], "as a shell completes"
    assert select(str(folder / "01-a.py")) == ["01-a"]
    for wrong in ("3", "0", "1", "b"):
        with pytest.raises(ScriptError, match=r"no script is called .* lists the 3 that are\."):
            select(wrong)


def test_a_wrong_name_is_answered_with_the_nearest_ones_however_many_there_are(tmp_path):
    folder = tmp_path / "tutorials"
    (folder / "more").mkdir(parents=True)
    for number in range(300):
        (folder / f"{number:03}-matrix.py").write_text(SCRIPT)
    for name in ("softmax", "more/layer-norm"):
        (folder / f"{name}.py").write_text(SCRIPT)
    (folder / "more" / "GALLERY_HEADER.rst").write_text(HEADER)
    found = quick.read(galleries.find(None, None, [folder]))

    def said(name):
        with pytest.raises(ScriptError) as error:
            galleries.select(found, [name])
        return str(error.value)

    assert "is called 'softmx.py'. Perhaps softmax? `" in said("softmx.py")
    assert "Perhaps more/layer-norm? " in said("Layer-Nrom")
    assert "Perhaps softmax? " in said("SOFT")
    assert "Perhaps" not in said("unlike-any-other")
    for name in ("x", "matrix", "/"):
        assert re.search(r"status --tutorials \S+/tutorials` lists the 302 that are\.$", said(name))
        assert said(name).count("-matrix") <= 5, "not all are listed"


def test_the_top_of_a_project_is_found_without_git_too(tmp_path):
    """Else scripts within the documentation could not read what a source distribution holds."""
    conf = CONF.replace('["../examples/", "../more/examples"]', '["examples", "more"]')
    files = ["doc/examples/plot_a.py", "doc/examples/README.txt", "doc/more/README.txt"]
    found = read(make(tmp_path / "project", conf=conf, files=files))
    assert found.top == tmp_path / "project" / "doc"
    for mark, top in (("doc/setup.py", "doc"), ("pyproject.toml", "."), (".git", ".")):
        (tmp_path / "project" / mark).touch()
        assert found.top == tmp_path / "project" / top


def test_nothing_is_written_into_the_project(tmp_path):
    root = make(tmp_path, files=["examples/plot_a.py"])
    before = sorted(root.rglob("*"))
    found = galleries.read(galleries.find(root / "doc", None, ()))
    assert sorted(root.rglob("*")) == before
    assert found == read(root), "the tests read it in another way than the engine"


def test_no_pages_are_looked_for(tmp_path, monkeypatch):
    """Recordings beside conf.py hold links while scripts run: following them never ends."""
    root = make(tmp_path, files=["examples/plot_a.py"])
    (root / "doc" / "recordings").mkdir()
    for name in ("one", "two"):  # each doubles the ways at every level
        (root / "doc" / "recordings" / name).symlink_to(root / "doc")
    walked = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda *a, **k: (walked.append(w) or w for w in walk(*a, **k)))
    read(root)
    assert len(walked) < 20


def test_an_extension_that_is_not_installed_is_left_out(tmp_path):
    conf = CONF.replace("extensions = [", 'extensions = ["no_such_extension", ')
    found = read(make(tmp_path, conf=conf, files=["examples/plot_a.py"]))
    assert found.missing == ("no_such_extension",)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("extensions = []", "sphinx-gallery is not among its extensions"),
        (CONF + "gallery_unrecorded = 'ignore'", "gallery_unrecorded is 'ignore'; it may be error"),
        (
            CONF + "gallery_limits = {'file': -1}",
            r"gallery_limits is \{'file': -1\}; .* numbers above 0",
        ),
        (CONF + "gallery_limits = {'size': 1}", "numbers above 0 for output, file, files, seconds"),
        (CONF + "gallery_variant = '../x'", "gallery_variant is '../x'; it may be the name"),
        (CONF + "gallery_environment = {'tpu': {}}", "'tpu'.*the kinds of device gpu and cpu"),
        (CONF + "gallery_variant = 'a\\n'", r"gallery_variant is 'a.*n'; it may be the name"),
        (CONF + "gallery_variant = 'no.such.name'", "gallery_variant names 'no.such.name'"),
        (CONF + "gallery_recordings = []", "gallery_recordings is .*; it may be a list of folders"),
        (
            CONF + "gallery_recording = ['x']",
            r"gallery_recording is no setting; did you mean gallery_recordings\?",
        ),
    ],
)
def test_a_conf_py_that_means_nothing_is_told(tmp_path, conf, message):
    root = make(tmp_path, conf=conf, files=["examples/plot_a.py"])
    with pytest.raises(ProjectError, match=message):
        read(root)


def test_a_conf_py_may_have_names_of_its_own(tmp_path):
    own = "def gallery_filter(text): return text\ngallery_filters = [gallery_filter]\n"
    conf = f"{CONF}{own}gallery_dirs = gallery_date = 1\n"
    assert read(make(tmp_path, conf=conf, files=["examples/plot_a.py"])).settings.filters


def test_what_conf_py_does_before_galleries_are_made_is_done(tmp_path):
    """Settings that depend on the builder are set then, and scripts are written."""
    conf = (
        CONF
        + """
from pathlib import Path

def begin(app):
    app.config.sphinx_gallery_conf["filename_pattern"] = "/run_"
    folder = Path(app.srcdir, "../examples")
    (folder / "run_b.py").write_text((folder / "plot_a.py").read_text())

def a_build_begins(app):
    app.config.sphinx_gallery_conf["filename_pattern"] = "/none"

def setup(app):
    app.connect("builder-inited", begin, priority=50)
    app.connect("builder-inited", a_build_begins, priority=499)
"""
    )
    found = read(make(tmp_path, conf=conf, files=["examples/plot_a.py"]))
    assert [example.name for example in found.recorded] == ["run_b"]


def test_a_script_that_is_not_executed_is_told_from_one_that_is_not_there(tmp_path):
    found = read(make(tmp_path, files=["examples/plot_a.py", "examples/other.py"]))
    with pytest.raises(ScriptError, match=r"^other is not executed: filename_pattern and plot_"):
        galleries.select(found, ["other"])


def test_galleries_of_which_nothing_is_executed_are_told(tmp_path, capsys):
    root = make(tmp_path, files=["examples/other.py"])
    with mock.patch.object(galleries, "subprocess", forked.QUICK):
        assert cli.main(["status", "--conf", str(root / "doc")]) == 0
    assert "No file of the galleries is executed: filename_pattern" in capsys.readouterr().out


def test_a_name_that_is_not_utf_8_is_told(tmp_path):
    root = make(tmp_path, files=["examples/plot_a.py", os.fsdecode(b"examples/plot_\xff.py")])
    with pytest.raises(ProjectError, match=r"plot_\\udcff.*' ?: is a name that is not UTF-8"):
        read(root)


def test_galleries_without_scripts_are_told(tmp_path):
    with pytest.raises(ProjectError, match="there are no scripts in its galleries"):
        read(make(tmp_path))


def test_a_folder_of_a_gallery_that_is_not_there_is_named(tmp_path):
    """Also where the others have scripts: the build would end at it."""
    root = make(tmp_path, files=["examples/plot_a.py"])
    shutil.rmtree(root / "more")
    told = r"/more/examples: is among examples_dirs.* source folder, /.*/doc; .* --source DIR"
    with pytest.raises(ProjectError, match=told):
        read(root)


def test_where_it_is_found_from(tmp_path, monkeypatch):
    root = make(tmp_path, files=["examples/plot_a.py"])
    monkeypatch.chdir(root)
    where = galleries.find(None, None, ())
    assert where.conf == root / "doc"
    assert where.source == root / "doc"
    assert where.options == []
    monkeypatch.chdir(root / "examples")
    with pytest.raises(ProjectError, match=r"no conf\.py was found from here"):
        galleries.find(None, None, ())
    assert galleries.find(Path("../doc"), None, ()).options == ["--conf", os.path.join("..", "doc")]
    with pytest.raises(ProjectError, match="no such folder"):
        galleries.find(None, None, [tmp_path / "none"])
    with pytest.raises(ProjectError, match=r"examples: has no conf\.py\. Give the folder"):
        galleries.find(root / "examples", None, ())
    assert galleries.find(Path("../doc/conf.py"), None, ()) == where, "the file itself"


def test_the_source_folder_may_be_another_one(tmp_path):
    root = make(tmp_path, files=["examples/plot_a.py"])
    shutil.move(root / "doc" / "conf.py", root / "conf.py")
    assert galleries.find(root, None, ()).source == root / "doc"


def test_messages_name_a_command_that_exists(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/x/gallery-recorder"])
    assert commands.record(["a"]) == "gallery-recorder record a"
    assert commands.record(["how to"]) == "gallery-recorder record 'how to'"
    monkeypatch.setattr("sys.argv", ["/x/__main__.py"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert commands.record(["a"], "--force") == "python -m gallery_recorder record a --force"


def test_names_of_galleries_are_told_apart_and_the_same_in_every_checkout():
    for root in ("/p", "/home/somebody/else"):
        folders = [Path(root, name) for name in ("examples", "b/examples", "c/plots")]
        assert reader.unique_names(folders) == ["examples", "b-examples", "plots"]
    assert reader.unique_names([Path("/p/examples")]) == ["examples"]
