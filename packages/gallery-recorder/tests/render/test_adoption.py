"""A project that nobody tuned the engine for: recorded, and built without executing anything."""

import json
import shutil

import pytest

from gallery_recorder.store.format import FILE_NAME
from gallery_recorder.testing.processes import sphinx
from gallery_recorder.testing.projects import HEAD, Gallery

SCRIPTS = {
    "plain": 'print("printed")',
    "drawn": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('Drawn')",
    "html": "class Page:\n    def _repr_html_(self):\n        return '<b>page</b>'\n\n\nPage()",
}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    gallery = Gallery(tmp_path_factory.mktemp("adopted"), '"example_extensions": {".py", ".jl"},')
    for name, code in SCRIPTS.items():
        gallery.write(name, code)
    gallery.examples.joinpath("text.py").write_text('"""\nText\n====\n\nNothing else.\n"""\n')
    # Julia that could be Python, but for a docstring.
    gallery.examples.joinpath("other.jl").write_text('# Other\n# =====\n\nprintln("other")\n')
    assert {o.script: o.status for o in gallery.record().values()} == {
        **dict.fromkeys(SCRIPTS, "recorded"),
        "text": "current",
    }
    return gallery


def build(gallery, folder, *options):
    """Build the site; executing a script in this process would be an error."""
    return sphinx(gallery.root / "doc", "-q", *options, ".", folder)


def test_it_is_built_without_a_warning(gallery, tmp_path):
    made = build(gallery, tmp_path / "html", "-W")
    assert made.returncode == 0, made.stderr
    pages = tmp_path / "html" / "auto_examples"
    assert "printed" in (pages / "plain.html").read_text()
    assert "<b>page</b>" in (pages / "html.html").read_text()
    assert "sphx_glr_drawn_001.png" in (pages / "drawn.html").read_text()
    assert "Nothing else." in (pages / "text.html").read_text()
    assert "println" in (pages / "other.html").read_text()


def test_a_book_offers_no_downloads(gallery, tmp_path):
    """Sphinx puts none into an EPUB, and whatever lies there becomes part of it."""
    made = build(gallery, tmp_path / "book", "-b", "epub", "-d", tmp_path / "doctrees")
    assert made.returncode == 0, made.stderr
    assert "mimetype" not in made.stderr
    assert not (tmp_path / "book" / "_downloads").exists()


def test_a_script_may_be_in_two_galleries(tmp_path):
    """The second build took the page that it made for the one that it left as it was."""
    folders = '"examples_dirs": ["../examples", "../examples/sub"], "gallery_dirs": ["one", "two"]'
    gallery = Gallery(tmp_path, more=f"sphinx_gallery_conf |= {{{folders}}}")
    gallery.write("a", "x = 1")
    gallery.write("sub/b", 'print("printed")')
    (gallery.examples / "sub" / "GALLERY_HEADER.rst").write_text("Sub\n===\n")
    gallery.record_all()
    for prose in ("An introduction.", "A better introduction."):
        gallery.write("a", "x = 1", HEAD.replace("An introduction.", prose))
        made = build(gallery, tmp_path / "html")
        assert made.returncode == 0, made.stderr
        assert prose in (tmp_path / "html" / "one" / "a.html").read_text()
    for page in ("one/sub/b", "two/b"):
        assert "printed" in (tmp_path / "html" / f"{page}.html").read_text()


def test_figures_that_are_drawn_no_more_are_gone(tmp_path):
    """A card showed one of them for ever."""
    gallery = Gallery(tmp_path)
    images = gallery.root / "doc" / "auto_examples" / "images"
    cards = []
    for code in (SCRIPTS["drawn"], "x = 1"):
        gallery.write("a", code)
        gallery.record_all()
        made = build(gallery, tmp_path / "html")
        assert made.returncode == 0, made.stderr
        cards.append((images / "thumb" / "sphx_glr_a_thumb.png").read_bytes())
    assert cards[0] != cards[1]
    assert not [*images.glob("*_001.*")]


#: An extension that begins by reading what sphinx-gallery has made, as one for tags does.
READS_PAGES = """
import sys, types
from pathlib import Path

def _read(app):
    Path(app.srcdir, "found.rst").write_text(
        "Found\\n=====\\n\\n" + " ".join(sorted(p.stem for p in Path(app.srcdir).rglob("*.ipynb")))
    )

reads = sys.modules["reads_pages"] = types.ModuleType("reads_pages")
reads.setup = lambda app: app.connect("builder-inited", _read) and None
extensions.insert(extensions.index("gallery_recorder"), "reads_pages")
"""


def test_pages_are_made_when_sphinx_gallery_would(gallery, tmp_path):
    conf = gallery.root / "doc" / "conf.py"
    before = conf.read_text()
    shutil.rmtree(gallery.root / "doc" / "auto_examples", ignore_errors=True)
    try:
        conf.write_text(before + READS_PAGES)
        made = build(gallery, tmp_path / "html")
        assert made.returncode == 0, made.stderr
        assert "drawn html plain text" in (tmp_path / "html" / "found.html").read_text()
    finally:
        conf.write_text(before)
        (gallery.root / "doc" / "found.rst").unlink(missing_ok=True)


def test_memory_that_nobody_measured_is_not_shown(gallery, tmp_path):
    for name, used in (("plain", 12.3), ("drawn", None)):
        file = gallery.recorded / name / FILE_NAME
        content = json.loads(file.read_text())
        content["run"]["memory"] = used
        del content["sha256"]
        file.write_text(json.dumps(content))
    made = build(gallery, tmp_path / "html", "-W", "-D", "sphinx_gallery_conf.show_memory=1")
    assert made.returncode == 0, made.stderr
    shown = {path.stem: path.read_text() for path in (tmp_path / "html").rglob("*.html")}
    assert "Estimated memory usage:" in shown["plain"]
    for name in ("drawn", "text"):
        assert "memory usage" not in shown[name]


def test_a_toctree_of_all_pages_lists_none_of_recordings(gallery, tmp_path):
    index = gallery.root / "doc" / "index.rst"
    before = index.read_text()
    try:
        index.write_text(f"{before}\n.. toctree::\n   :glob:\n\n   auto_examples/*\n")
        made = build(gallery, tmp_path / "html", "-W")
        assert made.returncode == 0, made.stderr
        html = (tmp_path / "html" / "index.html").read_text()
        assert "auto_examples/plain.html" in html
        assert "recordings-cpu.html" not in html
    finally:
        index.write_text(before)
