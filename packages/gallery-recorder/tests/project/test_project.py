"""A project as its conf.py describes it: galleries, scripts and settings."""

from pathlib import Path

import pytest

from gallery_recorder import __main__ as cli
from gallery_recorder.project import galleries, reader
from gallery_recorder.project.galleries import ProjectError
from gallery_recorder.project.script import ScriptError
from gallery_recorder.testing import in_process

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
    return in_process.read(galleries.find(options.get("conf", root / "doc"), None, ()))


def test_scripts_are_those_of_sphinx_gallery(tmp_path):
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
    assert [(e.source, e.pages, e.executed, e.expected_to_fail) for e in found.examples] == [
        ("examples/other.py", "auto", False, False),
        ("examples/plot_a.py", "auto", True, False),
        ("examples/plot_b.py", "auto", True, False),
        ("examples/plot_fails.py", "auto", True, True),
        ("examples/sub/plot_c.py", "auto/sub", True, False),
        ("more-examples/plot_a.py", "auto_more", True, False),
    ]
    one, _, _, _, other = found.executed
    assert found.label(one) == "examples/plot_a", "another gallery has a script of this name"
    assert galleries.select(found, ["plot_a"]) == [one, other]
    assert galleries.select(found, ["more-examples/plot_a"]) == [other]


def test_a_folder_beside_a_script_of_its_name(tmp_path):
    files = ["examples/plot_a.py", "examples/plot_a/README.txt", "examples/plot_a/plot_b.py"]
    found = read(make(tmp_path, files=files))
    assert [e.name for e in found.examples] == ["plot_a.py", "plot_a/plot_b"]


def test_scripts_are_selected_by_path_name_or_number(tmp_path, monkeypatch):
    folder = tmp_path / "tutorials"
    (folder / "solutions").mkdir(parents=True)
    for name in ("02-b", "02b-d", "01-a", "_private", "conftest", "solutions/01-c"):
        (folder / f"{name}.py").write_text(SCRIPT)
    (folder / "solutions" / "GALLERY_HEADER.rst").write_text(HEADER)
    found = in_process.read(galleries.find(None, None, [folder]))

    def select(*names):
        return [example.name for example in galleries.select(found, names)]

    assert select() == ["01-a", "02-b", "02b-d", "solutions/01-c"]
    assert select("02", "01") == ["01-a", "02-b"]
    assert select("02b") == ["02b-d"]
    assert select("02-b.py", "02-b") == ["02-b"]
    assert select("solutions/01-c") == select("01-c") == ["solutions/01-c"]
    assert select("tutorials/01-a") == ["01-a"]
    monkeypatch.chdir(folder / "solutions")
    assert select("../01-a.py", "./01-c.py") == ["01-a", "solutions/01-c"], "as a shell completes"
    assert select(str(folder / "01-a.py")) == ["01-a"]
    for wrong in ("3", "0", "1", "b", "02c"):
        with pytest.raises(ScriptError, match=r"no example has the name .* lists the names"):
            select(wrong)
    (folder / "02-e.py").write_text(SCRIPT)
    found = in_process.read(galleries.find(None, None, [folder]))
    with pytest.raises(ScriptError, match=r"2 examples have the number 02: .*02-b, .*02-e"):
        select("02")


def test_an_extension_that_is_not_installed_is_left_out(tmp_path):
    conf = CONF.replace("extensions = [", 'extensions = ["no_such_extension", ')
    found = read(make(tmp_path, conf=conf, files=["examples/plot_a.py"]))
    assert found.missing == ("no_such_extension",)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("extensions = []", "sphinx-gallery is not among its extensions"),
        (CONF + "gallery_unrecorded = 'ignore'", "'ignore' - at `gallery_unrecorded`"),
        (CONF.replace("../more", "../none"), r"none/examples: .* examples_dirs .* --source DIR"),
        (CONF + "gallery_limits = {'file': -1}", "Expected `float` > 0.* at `gallery_limits"),
        (CONF + "gallery_environment = {'tpu': {}}", "'tpu' - at `key` in `gallery_environment`"),
        (CONF + "gallery_variant = 'no.such.name'", "gallery_variant: cannot import 'no.such"),
        (CONF + "gallery_recordings = []", "length >= 1 - at `gallery_recordings`"),
    ],
)
def test_a_wrong_conf_py_is_one_message(tmp_path, conf, message):
    root = make(tmp_path, conf=conf, files=["examples/plot_a.py"])
    with pytest.raises(ProjectError, match=message):
        read(root)


def test_listeners_in_conf_py_are_called_before_galleries_are_read(tmp_path):
    """Settings that depend on the builder are set then, and scripts are written."""
    conf = """
from pathlib import Path

def begin(app):
    app.config.sphinx_gallery_conf["filename_pattern"] = "/run_"
    folder = Path(app.srcdir, "../examples")
    (folder / "run_b.py").write_text((folder / "plot_a.py").read_text())

def setup(app):
    app.connect("builder-inited", begin, priority=50)
"""
    found = read(make(tmp_path, conf=CONF + conf, files=["examples/plot_a.py"]))
    assert [example.name for example in found.executed] == ["run_b"]


def test_a_project_is_found_from_usual_places(tmp_path, monkeypatch):
    root = make(tmp_path, files=["examples/plot_a.py"])
    monkeypatch.chdir(root)
    where = galleries.find(None, None, ())
    assert where.conf == root / "doc"
    assert where.source == root / "doc"
    monkeypatch.chdir(root / "examples")
    with pytest.raises(ProjectError, match="this folder: contains no conf"):
        galleries.find(None, None, ())
    assert galleries.find(Path("../doc"), None, ()) == where
    with pytest.raises(ProjectError, match=r"examples: contains no conf\.py\. Give its folder"):
        galleries.find(root / "examples", None, ())


def test_scripts_that_are_not_executed_are_told(tmp_path, capsys):
    root = make(tmp_path, files=["examples/other.py"])
    with pytest.raises(ScriptError, match=r"^other is not executed: filename_pattern"):
        galleries.select(read(root), ["other"])
    assert cli.main(["status", "--conf", str(root / "doc")]) == 0
    assert "No example is executed: filename_pattern" in capsys.readouterr().out


def test_galleries_have_the_same_names_in_every_checkout():
    for root in ("/p", "/home/somebody/else"):
        folders = [Path(root, name) for name in ("examples", "b/examples", "c/plots")]
        assert reader.unique_names(folders) == ["examples", "b-examples", "plots"]
    assert reader.unique_names([Path("/p/examples")]) == ["examples"]


@pytest.mark.parametrize(
    "words",
    [
        ["record", "--timeout", "nan"],
        ["record", "--timeout", "inf"],
        ["record", "--jobs", "0"],
        ["record", "--address", "here:1"],
        ["status", "--conf", "x" * 300],
        ["compare", "one"],
    ],
)
def test_wrong_usage_ends_with_status_2_and_no_traceback(words, capsys):
    try:
        status = cli.main(words)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert capsys.readouterr().err
