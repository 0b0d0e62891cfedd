"""What is recorded is what sphinx-gallery makes: pages of a plain build hold the recorded text."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from gallery_recorder.store import recording
from gallery_recorder.store.format import GALLERY_FOLDER
from tests.fixtures.gallery import Gallery

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
    "min_reported_time": 100,
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
    """Each block that defines SHOUT gets an image and a box."""
    word = block_vars["example_globals"].pop("SHOUT", None)
    if not word:
        return ""
    assert word != "Too loud"
    path = next(block_vars["image_path_iterator"])
    from PIL import Image
    Image.new("RGB", (4, 3)).save(path)
    name = os.path.relpath(path, gallery_conf["src_dir"])
    return f"\\n.. rubric:: {word}\\n\\n.. image:: /{name}\\n"

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
    "plot_main": """
        import inspect
        from pathlib import Path
        root = Path(inspect.getfile(inspect.currentframe())).parent.parent
        print((root / "doc" / "scraping.py").is_file(), __name__)
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
    assert {p.relative_to(gallery.recordings).as_posix() for p in found} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_block_is_as_sphinx_gallery_shows_it(gallery, plain, name):
    made = gallery.load(name)
    page = (plain / f"{name}.rst").read_text()
    # The one difference: paths of this machine are no part of a recording.
    page = page.replace(f"{plain.parents[1]}/examples/", "examples/")
    page = page.replace(str(plain.parents[1]), str(gallery.root))
    pages = f"auto_examples/{name}".rpartition("/")[0]
    shown = [block.rst.replace(GALLERY_FOLDER, pages).strip() for block in made.blocks]
    for rst in shown:
        for part in filter(None, (part.strip() for part in rst.split("\n\n\n"))):
            assert without_ids(part) in without_ids(page)
    images = {p.name for p in (plain / pages[14:] / "images").glob(f"sphx_glr_{made.name}_*")}
    recorded = {file.removeprefix("images/") for file in made.files}
    assert images == {file for file in recorded if made.name in file}


def without_ids(text):
    """*text* without addresses, and the identifiers that matplotlib draws by lot."""
    return re.sub(r'[0-9a-f]{32}|0x[0-9a-f]+|base64,[^"]*', "", text)


def test_expected_failures_are_recorded_with_their_traceback(gallery):
    made = gallery.load("plot_failing")
    assert made.run.status == "failed"
    assert [block.passed for block in made.blocks] == [True, True, False, True]
    assert "ZeroDivisionError" in made.blocks[2].exception
    assert 'File "examples/plot_failing.py", line' in made.blocks[2].rst
    assert made.blocks[3].stdout == ""


def test_the_source_is_as_it_was(gallery):
    assert (gallery.examples / "my data.csv").read_text() == "a,b"
    assert not (gallery.examples / "made here").exists()
    assert not (gallery.root / "doc" / "auto_examples").exists()
    assert {path.name for path in gallery.root.iterdir()} == {"doc", "examples", "recordings"}


def test_an_unexpected_failure_is_not_recorded(tmp_path):
    gallery = Gallery(tmp_path)
    gallery.write("a", "1 / 0")
    (outcome,) = gallery.record().values()
    assert outcome.status == "failed"
    assert "examples/a.py:16, block 2 of 2: raised ZeroDivisionError" in outcome.text
    assert not gallery.recordings.exists()


def test_a_failure_that_is_only_warned_about_is_recorded(tmp_path):
    gallery = Gallery(tmp_path, '"only_warn_on_example_error": True,')
    gallery.write("a", "1 / 0")
    (outcome,) = gallery.record().values()
    assert outcome.status == "recorded"
    assert outcome.warnings[0].startswith("it failed, as conf.py allows")
    assert gallery.load("a").run.status == "failed"


RESETS = '''
from sphinx_gallery import gen_rst

def keyword(gallery_conf, fname):
    """What changes pages: there it is called when the first of them is executed."""
    assert fname.endswith("plot_a.py")
    gen_rst.EXAMPLE_HEADER += "\\n.. meta::\\n    :keywords: example\\n"

def absent(gallery_conf, fname):
    raise ImportError("it is where scripts are executed")
'''


WARNING = """
from sphinx.util import logging

logging.getLogger(__name__).warning("Said while conf.py was read.")

def warning(block, block_vars, gallery_conf):
    logging.getLogger(__name__).warning("No browser draws %s.", block_vars["src_file"], type="x")
    return ""
"""


def test_what_a_scraper_warns_of_is_told(tmp_path):
    path = "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))"
    gallery = Gallery(tmp_path, '"image_scrapers": ("drawing.warning",),', path)
    (tmp_path / "doc" / "drawing.py").write_text(WARNING)
    gallery.write("plot_a", "x = 1")
    (outcome,) = gallery.record().values()
    assert outcome.warnings == ("a build would warn: No browser draws examples/plot_a.py. [x]",)


def test_a_reset_that_changes_pages_does_so_without_execution(tmp_path):
    resets = '"reset_modules": ("resetting.absent", "not_here.reset", "resetting.keyword"),'
    path = "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))"
    gallery = Gallery(tmp_path, '"reset_modules": ("resetting.keyword",),', path)
    (tmp_path / "doc" / "resetting.py").write_text(RESETS)
    gallery.write("plot_a", "x = 1")
    gallery.record_all()
    conf = tmp_path / "doc" / "conf.py"
    conf.write_text(conf.read_text().replace('"reset_modules": ("resetting.keyword",),', resets))
    page = pages_of(tmp_path) / "plot_a.rst"
    assert page.read_text().count(":keywords: example") == 1
    conf.write_text(conf.read_text().replace(resets, ""))
    assert ":keywords:" not in (pages_of(tmp_path) / "plot_a.rst").read_text()


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

class Odd:
    def after_block(self):
        return {"set": {object()}}

def variant():
    return "numpy-9.1"
'''


def test_probes_and_variants(tmp_path):
    more = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parent))
    gallery_probes = ["probing.Counting", "probing"]
    gallery_variant = "probing.variant"
    """
    gallery = Gallery(tmp_path, more=more)
    (tmp_path / "doc" / "probing.py").write_text(PROBES)
    gallery.write("a", "x = 1")
    gallery.record_all()
    made = recording.load(tmp_path / "recordings" / "cpu" / "numpy-9.1" / "examples" / "a")
    assert made.variant == "numpy-9.1"
    assert made.probes == {"probing.Counting": {"blocks": 2}, "probing": {"from": "a module"}}
    assert [block.probes for block in made.blocks] == [
        {"probing.Counting": {"begun": number, "path": [1, 2]}} for number in (1, 2)
    ]


def test_the_probe_of_the_reference_finds_something(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "engine.rst").read_text(encoding="utf-8")
    shown = re.findall(r"^   :caption: (\S+)\n\n((?:   .*\n|\n)+)", page, re.M)
    texts = {name: dedent(text) for name, text in shown}
    gallery = Gallery(tmp_path, more=texts["conf.py"])
    (tmp_path / "doc" / "_ext").mkdir()
    (tmp_path / "doc" / "_ext" / "seen.py").write_text(texts["_ext/seen.py"])
    gallery.write("a", "import this")
    gallery.record_all()
    made = gallery.load("a")
    assert made.blocks[-1].probes == {"seen.modules": {"imported": 1}}
    assert made.probes["seen.modules"]["modules"] > 1


def test_a_file_that_a_probe_writes_is_the_scripts(tmp_path):
    """As the X-ray of a kernel does; before, it was looked for in the folder of the project."""
    more = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parent))
    gallery_probes = ["probing.Writing"]
    gallery_data = ["*.json"]
    """
    gallery = Gallery(tmp_path, more=more)
    (tmp_path / "doc" / "probing.py").write_text(PROBES)
    gallery.write("a", "x = 1")
    gallery.record_all()
    assert "found.json" in gallery.load("a").data


def test_a_probe_that_answers_what_cannot_be_kept_is_named(tmp_path):
    more = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parent))
    gallery_probes = ["probing.Odd"]
    """
    gallery = Gallery(tmp_path, more=more)
    (tmp_path / "doc" / "probing.py").write_text(PROBES)
    gallery.write("a", "x = 1")
    (outcome,) = gallery.record().values()
    assert "the probe probing.Odd.after_block answered {'set'" in outcome.text


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
