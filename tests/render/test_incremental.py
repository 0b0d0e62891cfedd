"""A second build is the site that a first one makes, byte for byte, whatever happened between."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gallery_recorder import seam
from tests.fixtures import fixture_gallery, forked

ROOT = Path(__file__).parents[2]
NAMES = ("01-first", "02-second", "03-third")
EXTENSIONS = (
    "gallery_recorder",
    "gallery_recorder.publish.release",
    "triton_site.pages.software",
    "triton_site.numbers.performance",
    "triton_site.pages.bundle",
    "triton_site.pages.menu",
    "triton_site.pages.search",
    "triton_site.pages.switch",
)
#: Names that the search has to find, and a page that shows what refers to what.
API = """
Reference
=========

.. index:: single: a word of the index

.. py:function:: math.sqrt(x)

   See :doc:`/tutorials/01-first` and :ref:`sphx_glr_tutorials_02-second.py`.

.. py:class:: Tile

.. minigallery:: ../tutorials/0*.py

.. minigallery:: math.tau
"""


def build(gallery: Path, *options: str, version: str = "main") -> None:
    done = forked.build(gallery, "-W", "-q", *options, GALLERY_VERSION=version)
    assert done.returncode == 0, done.stderr


def build_afresh(gallery: Path, *options: str, version: str = "main") -> None:
    """By a Python that puts what is in a set in another order."""
    server = "Sphinx, with what is in sets in another order"
    done = forked.build(gallery, "-W", "-q", *options, GALLERY_VERSION=version, server=server)
    assert done.returncode == 0, done.stderr


def tree(gallery: Path) -> dict[str, bytes]:
    """Every file of the built site."""
    out = gallery / "build" / "html"
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def cold(gallery: Path, *options: str, version: str = "main") -> dict[str, bytes]:
    """What a first build makes of the gallery as it is now, at the same place."""
    kept = gallery.with_name("kept")
    gallery.rename(kept)
    shutil.copytree(kept, gallery, ignore=shutil.ignore_patterns("html", "doctrees"))
    shutil.rmtree(gallery / "docs" / "tutorials")
    shutil.rmtree(gallery / "docs" / "gen_modules", ignore_errors=True)
    build_afresh(gallery, *options, version=version)
    made = tree(gallery)
    shutil.rmtree(gallery)
    kept.rename(gallery)
    return made


def assert_same(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert sorted(found) == sorted(expected)
    differ = [name for name, content in expected.items() if found[name] != content]
    assert not differ, differ


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery with a sub-gallery, an API page and a benchmark, built once."""
    root = tmp_path_factory.mktemp("incremental") / "g"
    fixture_gallery.make_gallery(
        root, NAMES, sections=2, theme="sphinx_rtd_theme", extensions=EXTENSIONS
    )
    below = root / "tutorials" / "below"
    below.mkdir()
    (below / "GALLERY_HEADER.rst").write_text("Below\n=====\n")
    text = (root / "tutorials" / "01-first.py").read_text()
    (below / "04-fourth.py").write_text(
        text.replace("First kernel", "Fourth").replace("6 *", "5 *")
    )
    for name in (*NAMES, "below/04-fourth"):
        fixture_gallery.make_recording(root, name)
    fixture_gallery.make_recording(root, "02-second", device="amd-instinct-mi300x")
    # A figure of matplotlib, which sphinx-gallery copies, and Sphinx knows nothing of.
    drawn = root / "recordings" / "nvidia-h200" / "tutorials" / "03-third" / "recording.json"
    svg = r".. image:: (\S+?)\\n(.*?):width: 700\\n   :height: 400\\n   :loading: lazy"
    made = re.sub(svg, r".. image-sg:: \1\\n\2:srcset: \1", drawn.read_text())
    drawn.write_text(made)
    assert "image-sg" in made
    (root / "docs" / "api.rst").write_text(API)
    (root / "docs" / "performance.rst").write_text(
        "Performance\n===========\n\n.. gallery-headlines::\n\n.. gallery-performance::\n"
    )
    with (root / "docs" / "index.rst").open("a") as index:
        index.write("   api\n   performance\n")
    with (root / "conf.py").open("a") as conf:
        conf.write(
            'html_baseurl = "https://example.org/stable/"\n'
            'gallery_devices = ["nvidia-h200"]\n'
            "gallery_others = True\n"
            'sphinx_gallery_conf |= {"doc_module": ("math",)}\n'
            'sphinx_gallery_conf |= {"backreferences_dir": "gen_modules"}\n'
        )
    build(root)
    shutil.copytree(root, root.with_name("built"))
    return root


@pytest.fixture
def gallery(first: Path) -> Path:
    """It as it was when it was built, at the same place, with the times of all files."""
    shutil.rmtree(first)
    shutil.copytree(first.with_name("built"), first)
    return first


def edit(root: Path, old: str = "Prose before code", new: str = "Better prose") -> None:
    script = root / "tutorials" / "01-first.py"
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))


def edit_in_the_order_of_lengths(root: Path) -> None:
    """The order of pages that sphinx-gallery has by default."""
    with (root / "conf.py").open("a") as conf:
        conf.write('sphinx_gallery_conf["within_subsection_order"] = "NumberOfCodeLinesSortKey"\n')
    edit(root, "6 *", "600000 *")
    fixture_gallery.make_recording(root, "01-first")
    build(root)
    script = root / "tutorials" / "02-second.py"
    script.write_text(script.read_text().replace("Prose before code", "Better prose"))


def edit_what_is_there_of_another_device(root: Path) -> None:
    """Its page is the first that is written, and nothing of a page before is there to be used."""
    script = root / "tutorials" / "02-second.py"
    script.write_text(script.read_text().replace("Prose before code", "Better prose"))


def edit_and_undo(root: Path) -> None:
    edit(root)
    build(root)
    edit(root, "Better prose", "Prose before code")


def title(root: Path) -> None:
    edit(root, "First kernel\n============", "Another title\n=============")


def add(root: Path) -> None:
    text = (root / "tutorials" / "01-first.py").read_text()
    new = root / "tutorials" / "02-a-half.py"
    new.write_text(text.replace("First kernel", "Half kernel!").replace("6 *", "8 *"))
    fixture_gallery.make_recording(root, "02-a-half")


def rename(root: Path) -> None:
    (root / "tutorials" / "02-second.py").rename(root / "tutorials" / "05-fifth.py")
    fixture_gallery.make_recording(root, "05-fifth")
    shutil.rmtree(root / "recordings" / "nvidia-h200" / "tutorials" / "02-second")
    shutil.rmtree(root / "recordings" / "amd-instinct-mi300x")
    api = root / "docs" / "api.rst"
    api.write_text(api.read_text().replace("02-second", "05-fifth"))


def remove(root: Path) -> None:
    (root / "tutorials" / "03-third.py").unlink()
    shutil.rmtree(root / "recordings" / "nvidia-h200" / "tutorials" / "03-third")


def remove_folder(root: Path) -> None:
    shutil.rmtree(root / "tutorials" / "below")


def record(root: Path) -> None:
    fixture_gallery.make_recording(
        root,
        "03-third",
        recorded="2026-11-23T12:00:00Z",
        speed="size,provider,unit,median,p20,p80\n4,triton,GB/s,3,1,9\n4,torch,GB/s,2,1,9\n",
    )


def record_elsewhere(root: Path) -> None:
    fixture_gallery.make_recording(root, "03-third", device="amd-instinct-mi300x")


def style(root: Path) -> None:
    static = root / "static"
    static.mkdir()
    (static / "own.css").write_text("p { color: black }\n")
    with (root / "conf.py").open("a") as conf:
        conf.write('html_static_path = ["static"]\nhtml_css_files = ["own.css"]\n')
    build(root)
    (static / "own.css").write_text("p { color: navy }\n")


def logo(root: Path) -> None:
    (root / "logo.svg").write_text(fixture_gallery.SVG)
    with (root / "conf.py").open("a") as conf:
        conf.write('html_logo = "logo.svg"\n')
    build(root)
    (root / "logo.svg").write_text(fixture_gallery.SVG.replace("9", "8"))


def lose(root: Path) -> None:
    """Files of the site that Sphinx makes, whatever changed; one after the other."""
    for name in ("genindex.html", "objects.inv", "_static/basic.css"):
        (root / "build" / "html" / name).unlink()
        build(root)


def use(root: Path) -> None:
    if seam.version < "0.22":
        pytest.skip("this sphinx-gallery forgets what pages use that it does not make again")
    edit(root, "math.pi", "math.tau")
    fixture_gallery.make_recording(root, "01-first")


def page(root: Path) -> None:
    api = root / "docs" / "api.rst"
    api.write_text(api.read_text().replace("Tile", "Block") + "\n.. py:class:: math.Other\n")


CHANGES = (
    edit,
    edit_and_undo,
    edit_what_is_there_of_another_device,
    edit_in_the_order_of_lengths,
    title,
    add,
    rename,
    remove,
    remove_folder,
    record,
    record_elsewhere,
    style,
    logo,
    lose,
    use,
    page,
)


#: What is alike to others, of which it is more or less.
ALIKE = (
    edit,
    edit_in_the_order_of_lengths,
    title,
    add,
    rename,
    remove_folder,
    record_elsewhere,
    style,
    logo,
)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, marks=pytest.mark.stress if change in ALIKE else ())
        for change in CHANGES
    ],
    ids=lambda change: change.__name__,
)
def test_a_second_build_equals_a_first(gallery: Path, change: Callable[[Path], None]) -> None:
    change(gallery)
    build(gallery)
    assert_same(tree(gallery), cold(gallery))


def test_downloads_have_outputs_where_pages_have_them(gallery: Path) -> None:
    """Archives kept the notebooks of the build before, and pages without outputs offered them."""

    def downloads(site: dict[str, bytes]) -> dict[str, bytes]:
        return {n: content for n, content in site.items() if n.endswith((".ipynb", ".zip"))}

    before, without = tree(gallery), ("-D", "plot_gallery=0")
    build(gallery, *without)
    assert_same(downloads(tree(gallery)), downloads(cold(gallery, *without)))
    build(gallery)
    assert_same(tree(gallery), before)


def test_a_second_build_of_another_version_equals_a_first(gallery: Path) -> None:
    build(gallery, version="v1.0.0")
    assert_same(tree(gallery), cold(gallery, version="v1.0.0"))


def test_a_clone_elsewhere_is_the_same_site(gallery: Path, tmp_path: Path) -> None:
    clone = tmp_path / "another" / "place"
    shutil.copytree(
        gallery, clone, ignore=shutil.ignore_patterns("html", "doctrees", "gen_modules")
    )
    shutil.rmtree(clone / "docs" / "tutorials")
    build_afresh(clone)
    found, expected = tree(clone), tree(gallery)
    for made in (found, expected):
        del made[".buildinfo"]  # for Sphinx alone, of absolute paths too; it is not published
    assert_same(found, expected)


def test_with_several_processes_it_is_the_same_site(gallery: Path) -> None:
    edit(gallery)
    build(gallery, "-j", "2")
    parallel = tree(gallery)
    assert_same(parallel, cold(gallery))
    assert_same(parallel, cold(gallery, "-j", "2"))


def test_the_search_finds_every_name_after_an_edit(gallery: Path) -> None:
    before = tree(gallery)["searchindex.js"]
    edit(gallery)
    build(gallery)
    after = tree(gallery)["searchindex.js"]
    for name in (b"math.sqrt", b"a word of the index", b"tile"):
        assert before.lower().count(name) == after.lower().count(name) > 0


def test_without_a_change_nothing_is_made_anew(gallery: Path) -> None:
    def times() -> dict[Path, int]:
        folders = (gallery / "docs", gallery / "build" / "html")
        found = {p: p.stat().st_mtime_ns for f in folders for p in f.rglob("*") if p.is_file()}
        return {p: t for p, t in found.items() if p.name not in ANEW}

    before = times()
    build(gallery)
    assert times() == before


#: What the theme's extension copies, and a version says of itself, whenever a build starts.
ANEW = ("jquery.js", "_sphinx_javascript_frameworks_compat.js", "_frame.html", "versions.json")

#: A build that says at its end which files it opened, how often, and what it started.
WATCHED = """
import collections, json, os, sys
opened, started = collections.Counter(), []

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        opened[os.path.abspath(arguments[0])] += 1
    elif event == "subprocess.Popen":
        started.append(os.path.basename(arguments[1][0]))

from sphinx.cmd.build import main
sys.addaudithook(watch)
status = main(sys.argv[1:])
print(json.dumps([opened, started]))
sys.exit(status)
"""


def test_without_a_change_nothing_is_opened_twice(gallery: Path) -> None:
    for _ in range(2):  # the first is of another program than the one that built the gallery
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, "-W", "-q", *forked.BUILD],
            cwd=gallery,
            env=os.environ | {"PYTHONPATH": str(ROOT), "GALLERY_VERSION": "main"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    opened, started = json.loads(done.stdout.splitlines()[-1])
    # sphinx-gallery, which reads each script, is not started.
    assert not {path for path in opened if path.startswith(str(gallery / "tutorials"))}
    assert not {path for path in opened if path.startswith(str(gallery / "docs"))}
    twice = {path for path, times in opened.items() if times > 1 and path.startswith(str(gallery))}
    # Sphinx writes a few files of the site each time.
    assert not {path for path in twice if "/build/html/" not in path}
    assert started.count("git") <= 2  # however many recordings there are
