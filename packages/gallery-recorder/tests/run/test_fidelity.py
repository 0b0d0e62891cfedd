"""What is recorded is what sphinx-gallery makes: pages of a plain build hold the recorded text."""

import re
import shutil
import subprocess
import sys

import pytest

from gallery_recorder.render import markup
from gallery_recorder.store import recording, status
from gallery_recorder.testing.projects import Gallery

OPTIONS = """
    "image_scrapers": ("matplotlib", "scraping.shouting"),
    "image_srcset": ["2x"],
    "matplotlib_animations": (True, "jshtml"),
    "reset_argv": "scraping.arguments",
    "reset_modules": ("matplotlib", "scraping.reset"),
    "reset_modules_order": "both",
    "ignore_repr_types": "dict",
    "filename_pattern": "plot",
    "ignore_pattern": "ignored",
    "expected_failing_examples": [
        "../examples/plot_failing.py", "../examples/plot_syntax.py", "../examples/plot_split.py",
        "../examples/plot_too_loud.py",
    ],
    "inspect_global_variables": True,
"""
MORE = """
default_role = "obj"
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
"""

SCRAPING = '''
import os

def shouting(block, block_vars, gallery_conf):
    """Each block that defines SHOUT gets an image with a caption, and HTML."""
    word = block_vars["example_globals"].pop("SHOUT", None)
    if not word:
        return ""
    assert word != "Too loud"
    path = next(block_vars["image_path_iterator"])
    from PIL import Image
    Image.new("RGB", (4, 3)).save(path)
    name = os.path.relpath(path, gallery_conf["src_dir"])
    html = f".. raw:: html\\n\\n    <b>{word}</b>\\n"
    return f"\\n.. figure:: /{name}\\n   :alt: A word\\n\\n   {word}\\n\\n{html}"

def arguments(gallery_conf, script_vars):
    return ["-a"] if "argv" in script_vars["src_file"] else []

def reset(gallery_conf, fname, when):
    import builtins
    builtins.RESET = when
'''

SCRIPTS = {
    "plot_prints": """
        import sys
        print("one\\ttwo")
        print("three", file=sys.stderr)
        5

        # %%
        {1: 2}

        # %%
        sys.stdout.write("Python has a value for this, and sphinx-gallery none")

        # %%
        class Page:
            def _repr_html_(self):
                return "<b>page</b>"
        Page()
        """,
    "plot_argv": """
        import sys
        print(sys.argv[1:])

        # %%
        # `A page <https://example.org/a/page>`__, 3\\ :sup:`1/2` and `list`, by the default role.
        """,
    "plot_figures": """
        import matplotlib.pyplot as plt
        plt.plot([1, 2])
        plt.title("One")
        plt.figure()
        plt.plot([2, 1])

        # %%

        # sphinx_gallery_multi_image_block = "single"
        for n in range(2):
            plt.figure()

        # %%

        # sphinx_gallery_defer_figures
        deferred = plt.figure()

        # %%

        # Comments alone: the figure is shown here.
        """,
    "plot_animation": """
        import matplotlib.pyplot as plt
        from matplotlib.animation import FuncAnimation
        fig, ax = plt.subplots(figsize=(1, 1))
        (line,) = ax.plot([0], [0])
        anim = FuncAnimation(fig, lambda i: line.set_data([i], [i]), frames=2)
        """,
    "plot_custom": 'SHOUT = "Loud"\n\n# %%\nprint("quiet")',
    "plot_too_loud": 'SHOUT = "Too loud"',
    "plot_reset": "print(RESET)",
    "plot_sibling": """
        import importlib
        from pathlib import Path
        import helper
        print(helper.VALUE, importlib.import_module("plot_reset").__name__)
        print(Path("my data.csv").read_text(), Path("data/more.txt").read_text())
        Path("made here").mkdir()
        Path("made here", "my file.csv").write_text("1")
        Path("my data.csv").write_text("changed in the copy alone")
        """,
    "plot_failing": 'print("before")\n\n# %%\n1 / 0\n\n# %%\nprint("never")',
    "plot_syntax": "def f(:",
    "plot_split": "print(\n\n# %%\n# Text.\n\n1)",
    "plot_ignored": "1 / 0",
    "other": "1 / 0",
    "sub/plot_nested": 'print("nested")',
}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    gallery = Gallery(root, OPTIONS, MORE)
    (root / "doc" / "scraping.py").write_text(SCRAPING)
    for name, code in SCRIPTS.items():
        gallery.write(name, code)
    gallery.examples.joinpath("sub", "README.txt").write_text("Sub\n===\n")
    gallery.examples.joinpath("helper.py").write_text('"""\nHelper\n======\n"""\nVALUE = 7\n')
    gallery.examples.joinpath("my data.csv").write_text("a,b")
    gallery.examples.joinpath("data").mkdir()
    gallery.examples.joinpath("data", "more.txt").write_text("more")
    return gallery.record_all()


@pytest.fixture(scope="module")
def plain(gallery, tmp_path_factory):
    """The same project, executed by sphinx-gallery alone."""
    root = shutil.copytree(gallery.root, tmp_path_factory.mktemp("plain") / "project")
    conf = root / "doc" / "conf.py"
    conf.write_text(conf.read_text().replace(', "gallery_recorder"', ""))
    return pages_of(root)


def pages_of(root):
    """The pages of the project at *root*, made by Sphinx."""
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", "-b", "dummy", "-q", root / "doc", root / "build"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return root / "doc" / "auto_examples"


NAMES = [name for name in SCRIPTS if "plot" in name and name != "plot_ignored"]


def test_those_are_recorded_that_sphinx_gallery_executes(gallery):
    found = recording.all_recordings(gallery.root / "recordings")
    assert {p.relative_to(gallery.recorded).as_posix() for p in found} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_block_is_as_sphinx_gallery_shows_it(gallery, plain, name):
    made = gallery.load(name)
    page = (plain / f"{name}.rst").read_text()
    # The one difference: paths of this machine are no part of a recording.
    page = page.replace(f"{plain.parents[1]}/examples/", "examples/")
    page = page.replace(str(plain.parents[1]), str(gallery.root))
    pages = f"auto_examples/{name}".rpartition("/")[0]
    for rst in (shown(block, pages) for block in made.blocks):
        for part in filter(None, (part.strip() for part in rst.split("\n\n\n"))):
            assert without_ids(part) in without_ids(page)
    images = {p.name for p in (plain / pages[14:] / "images").glob(f"sphx_glr_{made.name}_*")}
    recorded = {file.removeprefix("images/") for file in made.files}
    assert images == {file for file in recorded if made.name in file}


def shown(block, pages):
    """The output of *block* on a page in the folder *pages*."""
    sizes = dict.fromkeys(block.data, 1)
    return markup.output(block, lambda name: f"{pages}/{name}", pages, sizes).strip()


def without_ids(text):
    """*text* without blank lines, indentation, addresses, and matplotlib's random identifiers."""
    text = re.sub(r"\n\s*", "\n", text)
    return re.sub(r'[0-9a-f]{32}|0x[0-9a-f]+|base64,[^"]*', "", text)


def test_expected_failures_are_recorded_with_their_traceback(gallery):
    made = gallery.load("plot_failing")
    assert made.run.status == "failed"
    assert [block.passed for block in made.blocks] == [True, True, False, True]
    assert "ZeroDivisionError" in made.blocks[2].exception
    assert 'File "examples/plot_failing.py", line' in shown(made.blocks[2], "")
    assert made.blocks[3].stdout == ""


def test_the_source_is_as_it_was(gallery):
    assert (gallery.examples / "my data.csv").read_text() == "a,b"
    assert not (gallery.examples / "made here").exists()
    assert not (gallery.root / "doc" / "auto_examples").exists()
    assert {path.name for path in gallery.root.iterdir()} == {"doc", "examples", "recordings"}


FAILS = """
import os

if "SERVICE" not in os.environ:
    raise RuntimeError("the service is away")
print("the service answered")
"""
ONLY_WARNS = '"only_warn_on_example_error": True,'


def states(gallery):
    return [row.state for row in status.rows(gallery.project())]


def test_a_failure_that_is_only_warned_about_is_recorded_and_tried_again(tmp_path, monkeypatch):
    gallery = Gallery(tmp_path, ONLY_WARNS)
    gallery.write("a", FAILS)
    assert gallery.record()["a"].status == "failed"
    assert gallery.load("a").run.status == "failed"
    assert states(gallery) == ["failed"]
    monkeypatch.setenv("SERVICE", "1")
    assert gallery.record()["a"].status == "recorded"
    assert states(gallery) == ["current"]


@pytest.mark.parametrize("options", ["", ONLY_WARNS])
def test_a_failure_of_the_same_code_is_kept_beside_the_run_that_passed(
    tmp_path, monkeypatch, options
):
    gallery = Gallery(tmp_path, options)
    gallery.write("a", FAILS)
    monkeypatch.setenv("SERVICE", "1")
    gallery.record_all()
    monkeypatch.delenv("SERVICE")
    assert gallery.record(force=True)["a"].status == "failed"
    assert gallery.load("a").blocks[1].stdout == "the service answered\n"
    (row,) = status.rows(gallery.project())
    assert row.state == "failed"
    assert "RuntimeError" in row.text
    monkeypatch.setenv("SERVICE", "1")
    assert gallery.record()["a"].status == "recorded"
    assert states(gallery) == ["current"]


def test_an_expected_failure_that_passes_is_told_before_a_build_fails(tmp_path, monkeypatch):
    gallery = Gallery(tmp_path, '"expected_failing_examples": ["../examples/a.py"],')
    gallery.write("a", FAILS)
    assert gallery.record()["a"].status == "recorded"
    assert states(gallery) == ["current"]
    monkeypatch.setenv("SERVICE", "1")
    for force in (True, False):  # not executed again, but told again
        outcome = gallery.record(force=force)["a"]
        assert outcome.status == "failed"
        assert "expected_failing_examples" in outcome.text
    assert gallery.load("a").run.status == "passed"
    rows = status.rows(gallery.project())
    assert [row.state for row in rows] == ["passed"]
    assert "expected_failing_examples" in status.lacking(rows, None)


PROBES = '''
class Counting:
    """A probe with all hooks."""

    def __init__(self):
        self.begun = 0

    def before_block(self):
        self.begun += 1

    def after_block(self):
        return {"begun": self.begun, "path": (1, 2)}

    def provenance(self):
        return {"blocks": self.begun}

def provenance():
    return {"from": "a module"}

class Writing:
    def after_block(self):
        open("found.json", "w").write("{}")

def variant():
    return "numpy-9.1"
'''


def with_probes(root, names, more=""):
    path = "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent))"
    gallery = Gallery(root, more=f"{path}\ngallery_probes = {names}\n{more}")
    (root / "doc" / "probing.py").write_text(PROBES)
    gallery.write("a", "x = 1")
    return gallery


def test_probes_are_asked_and_a_variant_has_its_folder(tmp_path):
    more = 'gallery_variant = "probing.variant"\ngallery_data = ["*.json"]'
    names = ["probing.Counting", "probing", "probing.Writing"]
    with_probes(tmp_path, names, more).record_all()
    made = recording.load(tmp_path / "recordings" / "cpu" / "numpy-9.1" / "examples" / "a")
    assert made.variant == "numpy-9.1"
    assert made.probes == {"probing.Counting": {"blocks": 2}, "probing": {"from": "a module"}}
    assert [block.probes for block in made.blocks] == [
        {"probing.Counting": {"begun": number, "path": [1, 2]}} for number in (1, 2)
    ]
    assert made.data == ["found.json"]  # a file that a probe writes is the example's


def test_untimed_kinds_have_their_name_and_their_folder(tmp_path):
    more = """
    gallery_recordings = ["../recordings", "../build"]
    gallery_untimed = {"cpu": "simulator"}
    """
    gallery = Gallery(tmp_path, more=more)
    gallery.write("a", "x = 1")
    gallery.record_all()
    made = recording.load(tmp_path / "build" / "simulator" / "examples" / "a")
    assert not made.timed
    assert made.provenance.device == "simulator"
