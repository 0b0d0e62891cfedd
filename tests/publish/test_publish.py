"""Publishing: whole versions or none, whatever is given, whatever breaks, whenever it dies."""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gallery_recorder import __main__ as cli
from gallery_recorder.publish import front, inspection, publish, versions
from gallery_recorder.publish.inspection import InspectionError
from gallery_recorder.publish.publish import PublishError
from gallery_recorder.publish.versions import Version, Versions, VersionsError
from gallery_recorder.store import atomic, lock
from tests.fixtures import fixture_site
from tests.fixtures.fixture_site import TUTORIAL, make_build, served, tree, write
from tests.fixtures.forker import Forker
from tests.fixtures.waiting import PATIENCE, wait_for

ROOT_FILES = {
    ".nojekyll",
    "404.html",
    "feed.xml",
    "index.html",
    "latest",
    "robots.txt",
    "sitemap.xml",
    "stable",
    "versions.html",
    "versions.json",
}


@pytest.fixture
def tmp_path(in_memory: Path) -> Path:
    """Each site is written to the disk for good, which would take most of these tests' time."""
    return in_memory


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a site of a release and a branch, and their builds, to be copied."""
    folder = tmp_path_factory.mktemp("published")
    for name in ("v1.0.0", "main"):
        publish.publish(make_build(folder / "builds" / name, name), folder / "site", name)
    return folder


@pytest.fixture
def site(published: Path, tmp_path: Path) -> Path:
    """A site with a release and a branch."""
    shutil.copytree(published, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path / "site"


def listed(site: Path) -> dict:
    return json.loads((site / "versions.json").read_text())


# --- what is there afterwards ---------------------------------------------------------------------


def test_a_site_begins_with_its_first_version(tmp_path):
    build = make_build(tmp_path / "build", "main")
    write(build / ".buildinfo", "of Sphinx alone")
    publish.publish(build, tmp_path / "new" / "site", "main")
    site = tmp_path / "new" / "site"
    assert set(os.listdir(site)) == ROOT_FILES | {"main"}
    assert tree(site / "main") == {k: v for k, v in tree(build).items() if k != ".buildinfo"}
    assert (site / "stable").readlink() == (site / "latest").readlink() == Path("main")


def test_publishing_touches_no_other_version(site, tmp_path):
    before = tree(site / "v1.0.0")
    marks = {path: path.stat().st_mtime_ns for path in (site / "v1.0.0").rglob("*")}
    publish.publish(make_build(tmp_path / "b", "main", "2"), site, "main")
    publish.publish(make_build(tmp_path / "c", "v1.1.0"), site, "v1.1.0")
    assert tree(site / "v1.0.0") == before
    assert {path: path.stat().st_mtime_ns for path in (site / "v1.0.0").rglob("*")} == marks
    assert "build 2" in (site / "main" / "index.html").read_text()


def test_a_published_tree_does_not_change_with_its_build(site, tmp_path):
    before = tree(site / "main")
    with open(tmp_path / "builds" / "main" / "index.html", "a") as page:  # as Sphinx writes
        page.write("the next build")
    assert tree(site / "main") == before


def test_stable_is_the_newest_release_and_latest_the_main_branch(site, tmp_path):
    names = ["v0.9", "v1.10.0", "v1.9.0", "v2.0.0-rc.1", "v1.10.0rc2", "another-branch"]
    for name in names:
        publish.publish(make_build(tmp_path / name, name), site, name)
    found = listed(site)
    order = [version["name"] for version in found["versions"]]
    releases = ["v2.0.0-rc.1", "v1.10.0", "v1.10.0rc2", "v1.9.0", "v1.0.0", "v0.9"]
    assert order == [*releases, "main", "another-branch"]
    assert (found["stable"], found["latest"]) == ("v1.10.0", "main")
    assert {v["name"] for v in found["versions"] if v["prerelease"]} == {
        "v2.0.0-rc.1",
        "v1.10.0rc2",
    }
    assert {v["name"] for v in found["versions"] if v["old"]} == {
        "v1.10.0rc2",
        "v1.9.0",
        "v1.0.0",
        "v0.9",
    }
    assert {v["name"] for v in found["versions"] if v["kind"] == "branch"} == {
        "main",
        "another-branch",
    }
    assert (site / "stable").readlink() == Path("v1.10.0")
    assert (site / "latest").readlink() == Path("main")


def test_versions_share_their_list_of_pages(site, tmp_path):
    more = make_build(tmp_path / "b", "v1.1.0", more=("new.html",))
    publish.publish(more, site, "v1.1.0")
    found = listed(site)
    pages = {v["name"]: set(found["pages"][v["pages"]]) for v in found["versions"]}
    assert len(found["pages"]) == 2
    assert pages["v1.1.0"] - pages["v1.0.0"] == {"new.html"}
    assert pages["v1.0.0"] == pages["main"]


def test_root_files_lead_to_the_stable_version(site):
    index = (site / "index.html").read_text()
    assert 'http-equiv="refresh" content="0; url=stable/"' in index
    assert '<a href="stable/">' in index
    page = (site / "versions.html").read_text()
    assert all(f'href="{name}/"' in page for name in ("v1.0.0", "main"))
    assert 'action="/triton-gallery/stable/search.html"' in (site / "404.html").read_text()
    assert f"Sitemap: {fixture_site.ADDRESS}sitemap.xml" in (site / "robots.txt").read_text()
    places = [e.text for e in ET.parse(site / "sitemap.xml").iter() if e.tag.endswith("loc")]
    assert f"{fixture_site.ADDRESS}stable/{TUTORIAL}" in places
    assert not [place for place in places if "search" in place]
    feed = ET.parse(site / "feed.xml").getroot()
    assert [e.text for e in feed.iter() if e.tag.endswith("}title")] == ["Fixture", "v1.0.0"]


FRAME = f"""<html data-content_root="./"><head><title>{front.TITLE}</title>
<link href="_static/look.css"></head><body id="x"><a href="#x">skip</a><a href="index.html">home</a>
<a href="https://example.org/">elsewhere</a><form action="search.html"></form>{{{{ 1 }}}}
<main>{front.BODY}</main></body></html>"""


def test_the_pages_at_the_root_have_the_frame_of_the_stable_version(site, tmp_path):
    for name, frame in (("v1.1.0", FRAME), ("main", FRAME.replace("home", "other"))):
        build = make_build(tmp_path / "b" / name, name)
        write(build / front.FRAME, frame)
        publish.publish(build, site, name)
    for name, root in (("versions.html", "stable/"), ("404.html", "/triton-gallery/stable/")):
        page = (site / name).read_text()
        assert front.TITLE not in page
        assert front.BODY not in page
        assert f'<a href="{root}index.html">home</a>' in page
        assert f'href="{root}_static/look.css"' in page
        assert f'data-content_root="{root}"' in page
        assert f'action="{root}search.html"' in page
        assert '<a href="#x">skip' in page
        assert '"https://example.org/"' in page
        assert "{{ 1 }}" in page
    assert '<a href="v1.0.0/">' in (site / "versions.html").read_text()
    assert "There is no such page" in (site / "404.html").read_text()
    publish.unpublish(site, "v1.1.0")  # what is stable now has no frame
    assert "look.css" not in (site / "versions.html").read_text()


def test_the_feed_says_what_a_release_changed(site, tmp_path):
    build = make_build(tmp_path / "b", "v1.1.0")
    write(build / front.CHANGES, "### Pages\n\n* `tl.load` & <script>more</script>\n")
    publish.publish(build, site, "v1.1.0")
    feed = ET.parse(site / "feed.xml").getroot()
    (notes,) = [e.text for e in feed.iter() if e.tag.endswith("}content")]
    assert "<li><code>tl.load</code> &amp; &lt;script&gt;more" in notes
    assert notes in (site / "versions.html").read_text()


@pytest.mark.parametrize("odd", ["\x1b[31m", "\x0c", "\ufffe"])
def test_a_character_that_no_xml_can_hold_breaks_no_feed(site, tmp_path, odd):
    build = make_build(tmp_path / "new", "v2.0.0")
    write(build / front.CHANGES, f"Faster{odd}")
    edited = (build / "versions.json").read_text().replace("Fixture", f"Fix{json.dumps(odd)[1:-1]}")
    write(build / "versions.json", edited)
    publish.publish(build, site, "v2.0.0")
    assert "Faster" in ET.tostring(ET.parse(site / "feed.xml").getroot(), "unicode")


@pytest.mark.parametrize("page", ["", "index.html", TUTORIAL])
@pytest.mark.parametrize("version", ["stable", "latest", "v1.0.0", "main"])
def test_every_version_is_served(site, version, page):
    with served(site) as address:
        status, content = _get(address + f"{version}/{page}")
        assert (status, b"build 1" in content) == (200, True)
        assert _get(address + f"{version}/no/such/page.html") == (
            404,
            (site / "404.html").read_bytes(),
        )


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "..", "../x", "/etc", "a/b", "a b", ".hidden", "_static", "-v", "v1..2"),
        *("stable", "LATEST", "index.html", "versions.json", "404.HTML", "a\nb", "é", "$(x)"),
        "x" * 65,
    ],
)
def test_a_name_that_is_no_version_is_refused(site, tmp_path, name):
    before = tree(site)
    for action in (
        lambda: publish.publish(tmp_path / "builds" / "main", site, name),
        lambda: publish.unpublish(site, name),
    ):
        with pytest.raises(VersionsError, match="is no version"):
            action()
    assert tree(site) == before


def test_a_release_is_never_overwritten_unless_told_so(site, tmp_path):
    build = make_build(tmp_path / "again", "v1.0.0", "2")
    before = tree(site)
    with pytest.raises(PublishError, match="a release never changes"):
        publish.publish(build, site, "v1.0.0")
    assert tree(site) == before
    publish.publish(build, site, "v1.0.0", overwrite=True)
    assert tree(site / "v1.0.0") == tree(build)


def test_a_build_of_another_version_is_refused(site, tmp_path):
    before = tree(site)
    with pytest.raises(InspectionError, match=r"a build of main \(main-1\), not of v2.0.0"):
        publish.publish(tmp_path / "builds" / "main", site, "v2.0.0")
    assert tree(site) == before


def test_what_is_no_build_is_refused(site, tmp_path):
    before = tree(site)
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "nowhere", tmp_path / "empty"):
        with pytest.raises(InspectionError, match="build the site first, with"):
            publish.publish(folder, site, "main")
    with pytest.raises(InspectionError, match="is a site, not a build"):
        publish.publish(site, tmp_path / "other", "main")
    assert tree(site) == before
    assert not (tmp_path / "other").exists()


def test_what_is_no_site_is_refused(tmp_path):
    build = make_build(tmp_path / "build", "main")
    write(tmp_path / "home" / "thesis.txt", "do not lose this")
    write(tmp_path / "foreign" / "versions.json", '[{"version": "1.0"}]')
    write(tmp_path / "file", "a file")
    for folder, words in (("home", "is no site"), ("foreign", "no list"), ("file", "no folder")):
        before = tree(tmp_path)
        with pytest.raises(PublishError, match=words):
            publish.publish(build, tmp_path / folder, "main")
        assert tree(tmp_path) == before
    with pytest.raises(PublishError, match="is a build, not a site"):
        publish.publish(build, build, "main")


def test_a_folder_with_hidden_files_alone_becomes_a_site(tmp_path):
    """As a branch without commits, checked out to publish to."""
    write(tmp_path / "site" / ".git", "gitdir: elsewhere")
    publish.publish(make_build(tmp_path / "build", "main"), tmp_path / "site", "main")
    assert (tmp_path / "site" / ".git").exists()


DAMAGES = {
    "index.html is missing": lambda build: (build / "index.html").unlink(),
    "01-first.html is empty": lambda build: write(build / TUTORIAL, ""),
    "plot.svg is empty": lambda build: write(build / "_images" / "plot.svg", ""),
    r"plot.svg leads nowhere": lambda build: (build / "_images" / "plot.svg").unlink(),
    "01-first.html: shows no output": lambda build: edit(
        build / TUTORIAL, '"sphx-glr-script-out"', '""'
    ),
    "01-first.html: 1 of its outputs are empty": lambda build: edit(
        build / TUTORIAL, "edition 1", " \n"
    ),
    "the link gone.html leads nowhere": lambda build: edit(
        build / "index.html", "<p>", '<a href="gone.html">x</a><p>'
    ),
    "the link index.html#gone leads to no place in index.html": lambda build: edit(
        build / "search.html", "#title", "#gone"
    ),
    "the link ../../../x.html leaves the version": lambda build: edit(
        build / TUTORIAL, "../../index.html#title", "../../../x.html"
    ),
    "the link /index.html is absolute": lambda build: edit(
        build / TUTORIAL, "../../index.html#title", "/index.html"
    ),
    "old.html is left over from an earlier build": lambda build: shutil.copy(
        build / "index.html", build / "old.html"
    ),
    "does not know where it will be served": lambda build: edit(
        build / "versions.json", fixture_site.ADDRESS, "/"
    ),
    "is no finished build": lambda build: edit(build / "versions.json", '"versions"', '"v"'),
    "`schema` is 99": lambda build: edit(build / "versions.json", '"schema": 1', '"schema": 99'),
}


def test_an_example_that_says_nothing_and_empty_data_are_published(tmp_path):
    """Its page shows the recording of a script that only defines, and a file that it left empty."""
    build = make_build(tmp_path / "build", "main")
    edit(build / TUTORIAL, '"sphx-glr-script-out"', '"gallery-provenance"')
    write(build / "_downloads" / "nothing.csv", "")
    publish.publish(build, tmp_path / "site", "main")
    assert (tmp_path / "site" / "main" / TUTORIAL).exists()


def edit(path: Path, *replacements: str) -> None:
    text = path.read_text()
    for old, new in zip(replacements[::2], replacements[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.parametrize("problem", DAMAGES)
def test_a_build_that_is_not_whole_is_refused(site, tmp_path, problem):
    build = make_build(tmp_path / "damaged", "main")
    DAMAGES[problem](build)
    before = tree(site)
    with pytest.raises(InspectionError, match=problem):
        publish.publish(build, site, "main")
    assert tree(site) == before


def test_all_problems_are_told_at_once(tmp_path):
    build = make_build(tmp_path / "build", "main")
    links = "".join(f'<a href="gone-{n}.html">x</a>' for n in range(30))
    edit(build / "index.html", "<p>", links)
    (build / "search.html").unlink()
    with pytest.raises(InspectionError) as error:
        inspection.inspect(build, "main")
    assert "search.html is missing" in str(error.value)
    assert "gone-0.html" in str(error.value)
    assert "and 11 more" in str(error.value)


def test_a_full_disk_changes_nothing(site, tmp_path):
    build = make_build(tmp_path / "build", "main", "2")
    write(build / "_downloads" / "large.csv", "size\n" * 100_000)
    before = tree(site)
    done = subprocess.run(
        [sys.executable, "-m", "gallery_recorder", "publish", build, site, "--version", "main"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "large.csv: cannot be written" in done.stderr
    assert "Nothing was changed" in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(site) == before


def test_a_full_disk_leaves_no_new_site(tmp_path, monkeypatch):
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    build = make_build(tmp_path / "build", "main")
    monkeypatch.setattr(atomic, "sync", full)
    with pytest.raises(PublishError, match=r"No space left on device\. Nothing was changed"):
        publish.publish(build, tmp_path / "site", "main")
    assert not (tmp_path / "site").exists()


def test_two_publishers_do_not_meet(site, tmp_path):
    before = tree(site)
    held = lock.try_lock(site / ".publishing.lock")
    try:
        with pytest.raises(PublishError, match=f"is being published to by process {os.getpid()}"):
            publish.publish(tmp_path / "builds" / "main", site, "main")
    finally:
        lock.unlock(site / ".publishing.lock", held)
    assert tree(site) == before


def test_a_tree_under_a_wrong_name_is_found(site, tmp_path):
    shutil.copytree(site / "v1.0.0", site / "v1.0.1")
    with pytest.raises(PublishError, match=r"v1\.0\.1: holds no version v1\.0\.1"):
        publish.publish(tmp_path / "builds" / "main", site, "main")


# --- what is in the way, damaged, or not to be told apart -----------------------------------------


def test_what_lies_in_the_way_and_is_no_version_stays(site, tmp_path):
    """A folder, a file or a link of somebody else, under a name that a version shall have."""
    build = make_build(tmp_path / "b", "v2.0.0")
    precious = tmp_path / "precious"
    write(precious / "thesis.txt", "do not lose this")
    for make in (
        lambda place: shutil.copytree(precious, place),
        lambda place: place.mkdir(),
        lambda place: write(place, "a file"),
        lambda place: place.symlink_to(precious),
        lambda place: place.symlink_to("nowhere"),
        lambda place: write(place / "versions.json", "[]"),
    ):
        make(site / "v2.0.0")
        before = tree(site), tree(precious)
        for overwrite in (False, True):
            with pytest.raises(PublishError, match=r"v2\.0\.0: is in the way, and is no version"):
                publish.publish(build, site, "v2.0.0", overwrite)
        assert (tree(site), tree(precious)) == before
        aside = site / "v2.0.0"
        shutil.rmtree(aside) if aside.is_dir() and not aside.is_symlink() else aside.unlink()
    publish.publish(build, site, "v2.0.0")


@pytest.mark.parametrize("name", ["v1.0.0", "main"])
def test_a_version_that_lost_its_list_is_replaced_only_when_told_so(site, tmp_path, name):
    build = make_build(tmp_path / "b", name, "2")
    (site / name / "versions.json").unlink()
    before = tree(site)
    with pytest.raises(PublishError, match=r"has lost its versions\.json, so it may be no version"):
        publish.publish(build, site, name)
    assert tree(site) == before
    publish.publish(build, site, name, overwrite=True)
    assert tree(site / name) == tree(build)


DAMAGED_LISTS = {
    "a byte": lambda path: path.write_bytes(path.read_bytes().replace(b"name", b"n\xffme", 1)),
    "a byte in a text": lambda path: path.write_bytes(
        path.read_bytes().replace(b"-1", b"\xff1", 1)
    ),
    "nesting": lambda path: path.write_bytes(b'{"schema": 1, "pages": ' + b"[" * 200_000),
    "nothing": lambda path: path.write_bytes(b""),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "markup in a name": lambda path: edit(path, '"name": "', '"name": "<script>'),
    "a path": lambda path: edit(path, '"name": "', '"name": "../'),
    "a number of no list": lambda path: edit(path, '"pages": 0', '"pages": -1'),
    "an address with a script": lambda path: edit(path, '"https:', '"javascript:'),
    "an address with markup": lambda path: edit(path, "example.org", "<b>"),
    "a page elsewhere": lambda path: edit(path, '"index.html"', '"../../x.html"'),
    "no date": lambda path: edit(path, "2026-11-20", "2026-13-40"),
}


@pytest.mark.parametrize(
    ("where", "damage"),
    [
        (where, damage)
        for where in ("", "main", "v1.0.0")
        for damage in DAMAGED_LISTS
        if (where, damage) != ("", "a folder")  # in the place of the site's own, it is refused
    ],
)
def test_a_damaged_list_stops_nothing_and_is_made_again(site, tmp_path, capsys, where, damage):
    """One message for the version whose list it is; the others are published and taken out."""
    whole, other = listed(site), tree(site / "v1.0.0" / "getting-started")
    DAMAGED_LISTS[damage](site / where / "versions.json")
    publish.publish(make_build(tmp_path / "b", "v1.1.0"), site, "v1.1.0")
    told = capsys.readouterr().err
    assert told.count("gallery_recorder: ") == 1
    assert str(site / where / "versions.json") in told
    names = [version["name"] for version in listed(site)["versions"]]
    assert names == ["v1.1.0", "v1.0.0", "main"]
    assert tree(site / "v1.0.0" / "getting-started") == other
    publish.publish(make_build(tmp_path / "c", "main", "2"), site, "main")
    publish.unpublish(site, "v1.1.0")
    assert [v["name"] for v in listed(site)["versions"]] == ["v1.0.0", "main"]
    assert listed(site)["pages"] == whole["pages"]
    publish.unpublish(site, "main")


def test_a_release_is_kept_when_the_sites_list_is_damaged(site, tmp_path):
    """What the list said is not known then, so the release may have been published to the end."""
    (site / "versions.json").write_bytes(b"\xff")
    with pytest.raises(PublishError, match="a release never changes"):
        publish.publish(make_build(tmp_path / "b", "v1.0.0", "2"), site, "v1.0.0")
    assert "build 1" in (site / "v1.0.0" / "index.html").read_text()


def test_a_damaged_list_in_a_build_is_one_message(site, tmp_path):
    for number, damage in enumerate(DAMAGED_LISTS.values()):
        build = make_build(tmp_path / str(number), "v2.0.0")
        damage(build / "versions.json")
        with pytest.raises(InspectionError):
            publish.publish(build, site, "v2.0.0")


@pytest.mark.parametrize("name", ["stable", "index.html", ".nojekyll"])
def test_a_folder_where_the_site_has_a_file_stays(site, tmp_path, name):
    (site / name).unlink()
    write(site / name / "thesis.txt", "do not lose this")
    before = tree(site)
    with pytest.raises(PublishError, match="is in the way, a folder where the site has a file"):
        publish.publish(make_build(tmp_path / "b", "v1.1.0"), site, "v1.1.0")
    assert tree(site) == before


def test_a_hidden_folder_of_somebody_else_stays(site, tmp_path):
    write(site / ".main.replaced" / "thesis.txt", "do not lose this")
    publish.publish(make_build(tmp_path / "b", "v1.1.0"), site, "v1.1.0")
    assert (site / ".main.replaced" / "thesis.txt").exists()
    write(site / ".publishing" / "thesis.txt", "no publisher was interrupted here")
    with pytest.raises(PublishError, match=r"publishing: is in the way\. Nothing was changed"):
        publish.publish(make_build(tmp_path / "b", "v1.1.0"), site, "v1.1.0")
    assert (site / ".publishing" / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("there", "name"),
    [
        *(("v1.0.0", "V1.0.0"), ("v1.0.0", "1.0.0"), ("v1.0.0", "v1.0"), ("main", "Main")),
        ("v1.0.0", "v1.0.0.0"),
    ],
)
def test_names_that_other_systems_cannot_tell_apart_are_refused(site, tmp_path, there, name):
    build = make_build(tmp_path / "b", name)
    before = tree(site)
    with pytest.raises(PublishError, match=f"the site has {there}, which some systems"):
        publish.publish(build, site, name)
    assert tree(site) == before


@pytest.mark.parametrize("name", ["CON", "nul", "Aux.1", "com7", "v1."])
def test_a_name_that_other_systems_cannot_have_is_refused(site, tmp_path, name):
    with pytest.raises(VersionsError, match="some systems cannot have a folder called so"):
        publish.publish(tmp_path / "builds" / "main", site, name)


STRANGE_PAGES = {
    "a link to a file of the machine": (
        lambda build: (build / "_static" / "x").symlink_to("/etc/passwd"),
        "_static/x is a symbolic link",
    ),
    "a link to a folder": (lambda build: (build / "x").symlink_to("/etc"), "x is a symbolic link"),
    "a pipe": (lambda build: os.mkfifo(build / "x"), "x is no plain file"),
    "no address": (
        lambda build: edit(build / TUTORIAL, "../../index.html#title", "http://["),
        r"the link http://\[ is no address",
    ),
}


@pytest.mark.parametrize("kind", STRANGE_PAGES)
def test_what_no_build_has_is_refused(site, tmp_path, kind):
    build = make_build(tmp_path / "b", "main")
    damage, words = STRANGE_PAGES[kind]
    damage(build)
    with pytest.raises(InspectionError, match=words):
        publish.publish(build, site, "main")


def test_markup_that_no_parser_reads_is_told_with_its_page(site, tmp_path):
    build = make_build(tmp_path / "b", "main")
    for text in ("<![x[", "<!DOCTYPE x [<!ENTITY", "<a href='&#xFFFFFFFF;'>", "<" * 5000):
        edit(build / TUTORIAL, "<h1", f"{text}<h1")
        with contextlib.suppress(InspectionError):  # one error or none
            publish.publish(build, site, "main")
        make_build(tmp_path / "b", "main")


# --- taking a version out -------------------------------------------------------------------------


def test_unpublish(site, tmp_path):
    publish.publish(make_build(tmp_path / "b", "v1.1.0"), site, "v1.1.0")
    others = tree(site / "v1.0.0"), tree(site / "main")
    publish.unpublish(site, "v1.1.0")
    assert set(os.listdir(site)) == ROOT_FILES | {"v1.0.0", "main"}
    assert (tree(site / "v1.0.0"), tree(site / "main")) == others
    assert (site / "stable").readlink() == Path("v1.0.0")
    assert [v["name"] for v in listed(site)["versions"]] == ["v1.0.0", "main"]


def test_unpublish_refuses_what_is_not_there_and_what_is_the_last(site, tmp_path):
    with pytest.raises(PublishError, match=r"has no v3\. It has: main, v1\.0\.0"):
        publish.unpublish(site, "v3")
    with pytest.raises(PublishError, match="is no folder"):
        publish.unpublish(tmp_path / "nowhere", "main")
    publish.unpublish(site, "v1.0.0")
    with pytest.raises(PublishError, match="no version but main"):
        publish.unpublish(site, "main")


@pytest.mark.parametrize(
    ("answer", "status"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1)]
)
def test_unpublish_asks(site, monkeypatch, answer, status):
    before = tree(site)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert cli.main(["unpublish", str(site), "--version", "main"]) == status
    assert (site / "main").exists() == bool(status)
    if status:
        assert tree(site) == before


def test_the_command_line(tmp_path, capsys):
    build, site = make_build(tmp_path / "build", "main"), tmp_path / "site"
    assert cli.main(["publish", str(build), str(site), "--version", "main"]) == 0
    assert "Versions: main (stable is main, latest is main)" in capsys.readouterr().out
    assert cli.main(["publish", str(build), str(site), "--version", "v1"]) == 1
    assert "not of v1" in capsys.readouterr().err
    assert cli.main(["unpublish", str(site), "--version", "v1", "--yes"]) == 1
    assert "has no v1" in capsys.readouterr().err


def test_the_command_line_tells_which_pages_are_gone(site, tmp_path, capsys):
    publish.publish(make_build(tmp_path / "b", "v1.1.0", more=("a.html", "b.html")), site, "v1.1.0")
    build = make_build(tmp_path / "c", "v1.2.0", more=("b.html",))
    assert cli.main(["publish", str(build), str(site), "--version", "v1.2.0"]) == 0
    assert "Pages of v1.1.0 that it does not have: a.html\n" in capsys.readouterr().out


# --- the list of versions -------------------------------------------------------------------------


def test_a_list_survives_writing_and_reading(tmp_path):
    all_versions = [Version("v1.0", "v1.0", ("a.html",), "c0ffee", "2026-11-20T12:00:00Z")]
    (tmp_path / "versions.json").write_bytes(Versions("site", "https://x/", all_versions).encode())
    found = versions.read(tmp_path / "versions.json")
    assert (found.of, found.address, list(found.all)) == ("site", "https://x/", all_versions)


# --- killed at any moment -------------------------------------------------------------------------


def _get(address: str) -> tuple[int, bytes]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Reader(threading.Thread):
    """Reads files of a site over HTTP for as long as it is told to, and keeps what is wrong."""

    def __init__(self, address: str, expected: dict[str, set[bytes]]) -> None:
        super().__init__(daemon=True)
        self.address, self.expected = address, expected
        self.reads = 0
        self.wrong: list[str] = []
        self.stop = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=PATIENCE)
        names = itertools.cycle(random.Random(5).sample(sorted(self.expected), len(self.expected)))
        while not self.stop.is_set():
            name = next(names)
            connection.request("GET", urlsplit(self.address).path + name)
            answer = connection.getresponse()
            content = answer.read()
            self.reads += 1
            if answer.status != 200 or content not in self.expected[name]:
                self.wrong.append(f"{name}: {answer.status}, {content[:60]!r}")
            time.sleep(0.003)  # else publishing would wait for a processor most of the time
        connection.close()


@pytest.fixture(scope="module")
def forker():
    with Forker() as process:
        yield process


def spread(steps: int, count: int) -> list[int]:
    """*count* steps over a whole call: evenly, and each of the last ones, where names change."""
    last = min(40, count // 2, steps)
    return [1 + i * steps // (count - last) for i in range(count - last)] + list(
        range(steps - last + 1, steps + 1)
    )


def test_killed_at_any_moment_every_version_is_served_whole(tmp_path, forker):
    """At least 100 kills while a branch is replaced, read over HTTP meanwhile."""
    site = tmp_path / "site"
    builds = [make_build(tmp_path / f"b{n}", "main", str(n), files=6) for n in range(2)]
    release = make_build(tmp_path / "release", "v1.0.0", files=2)
    publish.publish(release, site, "v1.0.0")
    publish.publish(builds[0], site, "main")
    trees = [tree(build) for build in builds]
    whole = {f"main/{name}": {t[name] for t in trees} for name in trees[0]}
    whole |= {f"latest/{name}": contents for name, contents in _below("main/", whole).items()}
    for place in ("v1.0.0", "stable"):
        whole |= {f"{place}/{name}": {content} for name, content in tree(release).items()}

    forker.start("gallery_recorder.publish.publish:publish", builds[1], site, "main")
    status, steps = forker.wait()
    assert status == 0
    assert steps > 100
    with served(site) as address:
        reader = Reader(address, whole)
        reader.start()
        kills, seen = 0, set()
        for number, die_at in enumerate([*spread(steps, 110), *[0] * 20]):
            other = 0 if _edition(site, trees) else 1
            process = forker.start(
                "gallery_recorder.publish.publish:publish",
                builds[other],
                site,
                "main",
                False,
                die_at=die_at,
            )
            if die_at == 0:  # from outside, whatever it is doing
                time.sleep(random.Random(kills).uniform(0.001, 0.06))
                with contextlib.suppress(ProcessLookupError):  # it was done already
                    os.kill(process, signal.SIGKILL)
            status, _ = forker.wait()
            kills += status == -signal.SIGKILL
            seen.add(_edition(site, trees))
            found = listed(site)
            assert [v["name"] for v in found["versions"]] == ["v1.0.0", "main"]
            wait_for(lambda most=3 * number: reader.reads > most or not reader.is_alive())
        reader.stop.set()
        reader.join()
    assert kills >= 100
    assert seen == {0, 1}, "either edition was there after some kill"
    assert not reader.wrong, reader.wrong[:5]
    assert reader.reads > 300
    publish.publish(builds[0], site, "main")
    assert set(os.listdir(site)) == ROOT_FILES | {"v1.0.0", "main"}, "nothing is left over"


def _below(prefix: str, names: dict[str, set[bytes]]) -> dict[str, set[bytes]]:
    return {name.removeprefix(prefix): content for name, content in names.items()}


def _edition(site: Path, trees: list[dict]) -> int:
    """Which of *trees* the branch is, as a whole."""
    return trees.index(tree(site / "main"))


def test_killed_while_a_release_comes_and_goes(tmp_path, forker):
    """A new version is there whole or not at all, and what was begun can be finished."""
    main = make_build(tmp_path / "main", "main")
    release = make_build(tmp_path / "release", "v1.0.0")
    site = tmp_path / "site"
    publish.publish(main, site, "main")
    for function, arguments in (
        ("publish", (release, site, "v1.0.0")),
        ("unpublish", (site, "v1.0.0")),
    ):
        kept = tmp_path / f"before-{function}"
        shutil.copytree(site, kept, symlinks=True)
        forker.start(f"gallery_recorder.publish.publish:{function}", *arguments)
        status, steps = forker.wait()
        assert status == 0
        done = tree(site)
        for die_at in spread(steps, 24):
            shutil.rmtree(site)
            shutil.copytree(kept, site, symlinks=True)
            forker.start(f"gallery_recorder.publish.publish:{function}", *arguments, die_at=die_at)
            status, _ = forker.wait()
            assert status == -signal.SIGKILL
            assert tree(site / "main") == tree(main)
            assert not (site / "v1.0.0").exists() or tree(site / "v1.0.0") == tree(release)
            for version in listed(site)["versions"]:
                assert (site / version["name"] / "index.html").exists()
            for link in ("stable", "latest"):
                assert (site / link / "index.html").exists()
            # Again; where only the cleaning up was left, that is refused, and left to the next.
            with contextlib.suppress(PublishError):
                getattr(publish, function)(*arguments)
            publish.publish(main, site, "main")
            assert tree(site) == done


def test_killed_while_a_site_begins(tmp_path, forker):
    build = make_build(tmp_path / "build", "main")
    forker.start("gallery_recorder.publish.publish:publish", build, tmp_path / "site", "main")
    _, steps = forker.wait()
    done = tree(tmp_path / "site")
    for die_at in spread(steps, 20):
        shutil.rmtree(tmp_path / "site")
        forker.start(
            "gallery_recorder.publish.publish:publish",
            build,
            tmp_path / "site",
            "main",
            die_at=die_at,
        )
        assert forker.wait()[0] == -signal.SIGKILL
        if (tmp_path / "site" / "main").exists():
            assert tree(tmp_path / "site" / "main") == tree(build)
        publish.publish(build, tmp_path / "site", "main")
        assert tree(tmp_path / "site") == done


def test_without_an_exchange_of_folders_an_interrupted_step_is_finished(
    site, tmp_path, monkeypatch
):
    """Where the system cannot swap folders, the old one lies aside for a moment."""
    monkeypatch.setattr(atomic, "exchange", lambda one, other: False)
    publish.publish(make_build(tmp_path / "b", "main", "2"), site, "main")
    assert "build 2" in (site / "main" / "index.html").read_text()
    os.rename(site / "main", site / ".main.replaced")  # killed between the two renames
    publish.publish(make_build(tmp_path / "c", "v1.1.0"), site, "v1.1.0")
    assert "build 2" in (site / "main" / "index.html").read_text()
    assert set(os.listdir(site)) == ROOT_FILES | {"v1.0.0", "v1.1.0", "main"}


def test_who_serves_a_site_may_read_it_whatever_the_umask_of_its_builder(tmp_path):
    build = make_build(tmp_path / "build", "v1.0.0")
    for path in (build, *build.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    publish.publish(build, tmp_path / "site", "v1.0.0")
    version = tmp_path / "site" / "v1.0.0"
    modes = {
        (path.is_dir(), path.stat().st_mode & 0o777) for path in (version, *version.rglob("*"))
    }
    assert modes == {(True, 0o755), (False, 0o644)}


def test_no_site_lies_in_its_build(tmp_path):
    build = make_build(tmp_path / "build", "v1.0.0")
    before = tree(build)
    with pytest.raises(PublishError, match="lies in the build"):
        publish.publish(build, build / "site", "v1.0.0")
    assert tree(build) == before


@pytest.mark.parametrize("address", ["https://[/", "https://a:b/", "https://a:99999/"])
def test_an_address_that_is_none_is_one_message(tmp_path, address):
    build = make_build(tmp_path / "build", "v1.0.0")
    path = build / "versions.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"address": address}))
    with pytest.raises(VersionsError, match="`address`"):
        versions.read(path)
