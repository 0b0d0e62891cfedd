"""A second build shows what a first one would, and does not do anything twice."""

import shutil
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from bs4 import BeautifulSoup

from gallery_recorder.testing import processes, small_gallery
from gallery_recorder.testing.projects import Gallery

NAMES = ("01-first", "02-second", "03-third")
API = """
Reference
=========

.. py:function:: math.sqrt(x)

   See :doc:`/tutorials/01-first` and :ref:`sphx_glr_tutorials_02-second.py`.

.. minigallery:: ../tutorials/0*.py

.. minigallery:: math.tau
"""
CONF = """
gallery_devices = ["nvidia-h200"]
gallery_others = True
sphinx_gallery_conf |= {"doc_module": ("math",), "backreferences_dir": "gen_modules"}
"""


def build(gallery: Path, *options: str) -> None:
    done = processes.build(gallery, "-W", "-q", *options)
    assert done.returncode == 0, done.stderr


def shown(gallery: Path) -> dict[str, object]:
    """The visible text, links and images of each page, and the content of each download."""
    out = gallery / "build" / "html"
    found: dict[str, object] = {}
    for path in out.rglob("*.html"):
        html = BeautifulSoup(path.read_text(), "html.parser")
        links = [tag["href"] for tag in html.select("a[href]")]
        images = [(out / path.parent / tag["src"]).read_bytes() for tag in html.select("img[src]")]
        found[path.relative_to(out).as_posix()] = (html.get_text(), links, images)
    for path in (out / "_downloads").rglob("*.*"):
        content: object = path.read_bytes()
        if path.suffix == ".zip":
            content = {name: ZipFile(path).read(name) for name in ZipFile(path).namelist()}
        found[path.relative_to(out).as_posix()] = content
    return found


def cold(gallery: Path) -> dict[str, object]:
    """What a first build shows of the gallery as it is now, at the same place."""
    for folder in ("build/html", "build/doctrees", "docs/tutorials", "docs/gen_modules"):
        shutil.rmtree(gallery / folder, ignore_errors=True)
    build(gallery)
    return shown(gallery)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery with a sub-gallery and an API page, built once."""
    root = tmp_path_factory.mktemp("incremental") / "g"
    small_gallery.make_gallery(root, NAMES, theme="sphinx_rtd_theme")
    below = root / "tutorials" / "below"
    below.mkdir()
    (below / "GALLERY_HEADER.rst").write_text("Below\n=====\n")
    text = (root / "tutorials" / "01-first.py").read_text()
    (below / "04-fourth.py").write_text(text.replace("First kernel", "Fourth"))
    for name in (*NAMES, "below/04-fourth"):
        small_gallery.make_recording(root, name)
    small_gallery.make_recording(root, "02-second", device="amd-instinct-mi300x")
    (root / "docs" / "api.rst").write_text(API)
    with (root / "docs" / "index.rst").open("a") as index:
        index.write("   api\n")
    with (root / "conf.py").open("a") as conf:
        conf.write(CONF)
    build(root)
    shutil.copytree(root, root.with_name("built"))
    return root


@pytest.fixture
def gallery(first: Path) -> Path:
    """The built gallery, at the same place, with the times of all files."""
    shutil.rmtree(first)
    shutil.copytree(first.with_name("built"), first)
    return first


def edit(root: Path, old: str = "Prose before code", new: str = "Better prose") -> None:
    for name in ("01-first", "02-second"):
        script = root / "tutorials" / f"{name}.py"
        script.write_text(script.read_text().replace(old, new))


def title(root: Path) -> None:
    edit(root, "First kernel\n============", "Another title\n=============")


def section(root: Path) -> None:
    edit(root, "Prose before code", "A section\n# ---------\n# Prose before code")


def code(root: Path) -> None:
    edit(root, "math.pi", "math.tau")
    for name in ("01-first", "02-second"):
        small_gallery.make_recording(root, name)


def rename(root: Path) -> None:
    (root / "tutorials" / "03-third.py").rename(root / "tutorials" / "05-fifth.py")
    shutil.rmtree(root / "recordings" / "nvidia-h200" / "tutorials" / "03-third")
    small_gallery.make_recording(root, "05-fifth")


def remove_folder(root: Path) -> None:
    shutil.rmtree(root / "tutorials" / "below")


def record(root: Path) -> None:
    small_gallery.make_recording(root, "03-third", recorded="2026-11-23T12:00:00Z")


def record_elsewhere(root: Path) -> None:
    small_gallery.make_recording(root, "03-third", device="amd-instinct-mi300x")


def remove_elsewhere(root: Path) -> None:
    shutil.rmtree(root / "recordings" / "amd-instinct-mi300x")


@pytest.mark.parametrize(
    "change",
    [edit, title, section, code, rename, remove_folder, record, record_elsewhere, remove_elsewhere],
    ids=lambda change: change.__name__,
)
def test_a_second_build_shows_what_a_first_would(
    gallery: Path, change: Callable[[Path], None]
) -> None:
    change(gallery)
    build(gallery)
    second, expected = shown(gallery), cold(gallery)
    assert sorted(second) == sorted(expected)
    differ = [name for name, content in expected.items() if second[name] != content]
    assert differ == []


def test_downloads_have_outputs_only_where_pages_have_them(gallery: Path) -> None:
    before = shown(gallery)
    (notebook,) = gallery.glob("build/html/_downloads/*/01-first.ipynb")
    assert "3.14159" in notebook.read_text()
    build(gallery, "-D", "plot_gallery=0")
    assert "3.14159" not in notebook.read_text()
    build(gallery)
    assert shown(gallery) == before


def test_without_a_change_no_source_is_made_and_no_page_read_or_written(gallery: Path) -> None:
    def times() -> dict[Path, int]:
        files = [*gallery.glob("docs/**/*"), *gallery.glob("build/html/[!_gs]*/**/*.html")]
        files += gallery.glob("build/html/_downloads/*/*")
        return {path: path.stat().st_mtime_ns for path in files if path.is_file()}

    before = times()
    done = processes.build(gallery, "-W")
    assert "0 added, 0 changed, 0 removed" in done.stdout
    assert times() == before


def test_with_several_processes_it_is_the_same_site(gallery: Path) -> None:
    edit(gallery)
    build(gallery, "-j", "2")
    assert shown(gallery) == cold(gallery)


def test_where_menus_show_titles_alone_a_section_does_not_write_all_pages(gallery: Path) -> None:
    with (gallery / "conf.py").open("a") as conf:
        conf.write('gallery_menus = "titles"\nhtml_theme = "basic"\n')
    build(gallery)
    other = gallery / "build" / "html" / "tutorials" / "03-third.html"
    before = other.stat().st_mtime_ns
    section(gallery)
    build(gallery)
    assert other.stat().st_mtime_ns == before
    assert shown(gallery) == cold(gallery)


def test_a_removed_page_takes_no_page_with_it_whose_name_begins_as_its_own(tmp_path):
    options = '"write_computation_times": False,'
    gallery = Gallery(tmp_path, options, more="gallery_unrecorded = 'no-output'")
    text = "Title\n=====\n\n.. toctree::\n   :glob:\n\n   notes/*\n   auto_examples/index\n"
    (gallery.source / "index.rst").write_text(text)
    notes = gallery.source / "notes"
    notes.mkdir()
    for name in ("v1", "v1.1", "recordings-v1"):
        (notes / f"{name}.rst").write_text("Note\n====\n")
    for name in ("plot_v1", "plot_v1.2", "recordings-of-birds"):
        gallery.write(name, "print(1)")

    def built() -> set[str]:
        words = ("-W", "-b", "html", gallery.source, tmp_path / "html")
        done = processes.sphinx(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        found = tmp_path.glob("html/**/*.*")
        return {path.relative_to(tmp_path / "html").as_posix() for path in found}

    before = built()
    (notes / "v1.rst").unlink()
    (gallery.examples / "plot_v1.py").unlink()
    gone = before - built()
    pages = {path for path in gone if not path.startswith(("_downloads", "_images"))}
    assert pages == {
        "notes/v1.html",
        "_sources/notes/v1.rst.txt",
        "auto_examples/plot_v1.html",
        "_sources/auto_examples/plot_v1.rst.txt",
    }
    left = {path.name for path in (gallery.source / "auto_examples").iterdir()}
    assert "plot_v1.2.py" in left
    assert not left & {"plot_v1.rst", "plot_v1.py", "plot_v1.ipynb", "plot_v1.zip"}
