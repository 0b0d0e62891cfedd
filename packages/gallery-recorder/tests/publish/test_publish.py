"""Publishing two builds of a small project: whole versions beside each other, whatever happens."""

import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock

from gallery_recorder import __main__ as cli
from gallery_recorder.errors import RecorderError
from gallery_recorder.publish import publish, versions
from gallery_recorder.publish.release import find_version
from gallery_recorder.publish.versions import Version, Versions
from gallery_recorder.testing import processes

CONF = """
project = "Fixture"
extensions = ["gallery_recorder.publish.release"]
html_theme = "basic"
html_baseurl = "https://example.org/fixture/stable/"
"""
ROOT_FILES = {
    *[".nojekyll", "404.html", "index.html", "latest", "stable", "versions.html"],
    *["versions.json", "versions-pages.json"],
}


def write(path: Path, text: str) -> None:
    """Write a file and the folders that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def tree(folder: Path) -> dict[str, bytes | str]:
    """The content of each file in *folder* and the target of each link."""
    return {
        path.relative_to(folder).as_posix(): f"-> {path.readlink()}"
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def make_checkout(folder: Path) -> Path:
    """A project with one commit on main."""
    write(folder / "conf.py", CONF)
    write(folder / ".gitignore", "build\n")
    write(folder / "docs" / "index.rst", "Index\n=====\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "First")
    return folder


@pytest.fixture(autouse=True)
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GALLERY_VERSION", raising=False)
    monkeypatch.delenv("GITHUB_REF_TYPE", raising=False)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The builds of a release and, with one page more, of the branch after it."""
    folder = tmp_path_factory.mktemp("builds")
    checkout = make_checkout(folder / "checkout")
    git(checkout, "tag", "v1.0.0")
    for name, page in (("v1.0.0", "new"), ("main", "next")):
        processes.build(checkout, "-W").check_returncode()
        shutil.copytree(checkout / "build" / "html", folder / name)
        write(checkout / "docs" / f"{page}.rst", f":orphan:\n\n{page}\n====\n")
        git(checkout, "add", "--all")
        git(checkout, "commit", "--quiet", "--message", "More")
    return folder


@pytest.fixture
def site(builds: Path, tmp_path: Path) -> Path:
    """A site with both."""
    for name in ("v1.0.0", "main"):
        publish.publish(builds / name, tmp_path / "site", name)
    return tmp_path / "site"


def renamed(build: Path, folder: Path, name: str, kind: str = "tag") -> Path:
    """A copy of *build*, in *folder*, as if version *name* had been built."""
    shutil.copytree(build, folder)
    listed = json.loads((folder / "versions.json").read_text())
    listed["versions"][0] |= {"name": name, "kind": kind}
    write(folder / "versions.json", json.dumps(listed))
    write(folder / "index.html", f"index of {name}")
    return folder


def listed(site: Path) -> dict:
    return json.loads((site / "versions.json").read_text())


def visible(build: Path) -> dict:
    return {name: text for name, text in tree(build).items() if not name.startswith(".")}


@pytest.mark.parametrize("wrong", [":doc:`nowhere`", "Text"])
def test_a_build_that_ended_with_an_error_is_not_published(tmp_path, wrong):
    checkout = make_checkout(tmp_path / "checkout")
    processes.build(checkout, "-W").check_returncode()
    write(checkout / "docs" / "index.rst", f"Index\n=====\n\n{wrong}\n")
    if wrong == "Text":
        end = "def setup(app):\n    app.connect('build-finished', lambda app, error: 1 / 0)\n"
        write(checkout / "conf.py", CONF + end)
    assert processes.build(checkout, "-W").returncode != 0
    with pytest.raises(RecorderError, match=r"versions\.json"):
        publish.publish(checkout / "build" / "html", tmp_path / "site", "main")


@pytest.mark.parametrize(
    ("commands", "environment", "expected"),
    [
        ([], {}, ("main", "branch")),
        (["switch -c feature/tiles"], {}, ("feature-tiles", "branch")),
        (["tag v1.0.0rc1", "tag v1.0.0", "tag nightly"], {}, ("v1.0.0", "tag")),
        (["tag v1.0.0", "rm docs/index.rst"], {}, ("main", "branch")),
        (["switch -c 2024"], {}, ("2024", "branch")),
        (["switch -c 3.8"], {"GALLERY_VERSION": "3.8"}, ("3.8", "branch")),
        (["tag v2"], {"GALLERY_VERSION": "v2"}, ("v2", "tag")),
        ([], {"GALLERY_VERSION": "v2", "GITHUB_REF_TYPE": "tag"}, ("v2", "tag")),
        (["tag v2"], {"GALLERY_VERSION": "v2", "GITHUB_REF_TYPE": "branch"}, ("v2", "branch")),
        ([], {"GALLERY_VERSION": "vnext", "GITHUB_REF_TYPE": "tag"}, ("vnext", "branch")),
        (["rm -q --cached conf.py"], {}, ("local", "branch")),
        (["rm -q --cached conf.py"], {"GALLERY_VERSION": "v2"}, ("v2", "tag")),
    ],
)
def test_only_a_tag_that_is_a_number_makes_a_release(
    tmp_path, monkeypatch, commands, environment, expected
):
    checkout = make_checkout(tmp_path)
    for command in commands:
        git(checkout, *command.split())
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = find_version(checkout)
    assert (found.name, found.kind) == expected


def test_a_build_says_which_version_it_is(builds):
    found = versions.read_build(builds / "v1.0.0")
    assert (found.address, found.title) == ("https://example.org/fixture/", "Fixture")
    assert found.all[0].release == "v1.0.0"
    assert found.pages == (("genindex.html", "index.html", "search.html"),)
    assert versions.read_build(builds / "main").all[0].release.startswith("v1.0.0-1-g")
    assert "new.html" in versions.read_build(builds / "main").pages[0]


def test_versions_lie_beside_each_other_and_none_is_touched(site, builds, tmp_path):
    assert set(os.listdir(site)) == ROOT_FILES | {"v1.0.0", "main"}
    assert tree(site / "main") == visible(builds / "main")
    marks = {path: path.stat().st_mtime_ns for path in (site / "v1.0.0").rglob("*")}
    again = renamed(builds / "main", tmp_path / "again", "main", "branch")
    publish.publish(again, site, "main")
    assert tree(site / "main") == visible(again)
    with open(again / "index.html", "a") as page:  # as the next build would
        page.write("more")
    assert "more" not in (site / "main" / "index.html").read_text()
    assert {path: path.stat().st_mtime_ns for path in (site / "v1.0.0").rglob("*")} == marks
    assert tree(site / "v1.0.0") == visible(builds / "v1.0.0")


def test_stable_is_the_newest_release_and_latest_the_main_branch(site, builds, tmp_path):
    names = {"v0.9": "tag", "v1.10.0": "tag", "v1.9": "tag", "v2.0.0rc1": "tag", "2024": "branch"}
    for name, kind in names.items():
        build = renamed(builds / "v1.0.0", tmp_path / name, name, kind)
        publish.publish(build, site, name)
    order = [version["name"] for version in listed(site)["versions"]]
    assert order == ["v2.0.0rc1", "v1.10.0", "v1.9", "v1.0.0", "v0.9", "main", "2024"]
    assert (site / "stable").readlink() == Path("v1.10.0")
    assert (site / "latest").readlink() == Path("main")
    publish.unpublish(site, "v1.10.0")
    assert (site / "stable").readlink() == Path("v1.9")


def test_the_root_leads_to_versions_and_the_menu_knows_their_pages(site):
    pages = json.loads((site / "versions-pages.json").read_text())["pages"]
    assert [version["name"] for version in listed(site)["versions"]] == ["v1.0.0", "main"]
    assert pages["new.html"] == [[1, 1]]
    assert pages["index.html"] == [[0, 1]]
    # The menus of pages that an earlier engine built find an empty list, and lead to the versions.
    assert all(listed(site)["pages"][v["pages"]] == [] for v in listed(site)["versions"])
    assert 'content="0; url=stable/"' in (site / "index.html").read_text()
    text = (site / "versions.html").read_text()
    assert all(f'href="{name}/"' in text for name in ("v1.0.0", "main", "stable", "latest"))
    links = re.findall(r'href="(.*?)"', (site / "404.html").read_text())
    assert "/fixture/stable/" in links
    assert all(link.startswith(("/fixture/", "data:")) for link in links), "at whatever depth"


def test_the_list_of_a_site_does_not_grow_with_its_pages():
    def build(number, pages):
        found = Version(name=f"v1.{number}.0", kind="tag", release=f"v1.{number}.0")
        return Versions(address="/", all=(found,), pages=(pages,))

    few, many = (
        [build(n, tuple(f"folder/page-{k}.html" for k in range(count + n))) for n in range(100)]
        for count in (1, 300)
    )
    assert msgspec.json.encode(versions.merge(few)) == msgspec.json.encode(versions.merge(many))
    by_name = {one.all[0].name: one for one in many}
    pages = versions.pages_of(versions.merge(many), by_name).pages
    assert len(pages) == 399
    assert max(map(len, pages.values())) == 1
    assert pages["folder/page-301.html"] == [(0, 97)]  # the newest is first


def test_a_site_is_readable_whatever_the_umask(builds, tmp_path):
    build = shutil.copytree(builds / "main", tmp_path / "build")
    for path in [build, *build.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = os.umask(0o077)
    try:
        publish.publish(build, site := tmp_path / "site", "main")
    finally:
        os.umask(before)
    paths = [path for path in [site, *site.rglob("*")] if not path.is_symlink()]
    assert {p.stat().st_mode & 0o777 for p in paths if p.is_file()} == {0o644}
    assert {p.stat().st_mode & 0o777 for p in paths if p.is_dir()} == {0o755}


def test_a_release_is_replaced_only_when_told_so(site, builds, tmp_path):
    build, before = renamed(builds / "main", tmp_path / "again", "v1.0.0"), tree(site)
    with pytest.raises(RecorderError, match="is a published release"):
        publish.publish(build, site, "v1.0.0")
    assert tree(site) == before
    publish.publish(build, site, "v1.0.0", overwrite=True)
    assert tree(site / "v1.0.0") == visible(build)


def test_unpublishing_asks_and_deletes_one_version(site, builds, monkeypatch, capsys):
    before = tree(site)
    for answer in ("n\n", "\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert cli.main(["unpublish", str(site), "--version", "v1.0.0"]) == 1
        assert tree(site) == before
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert cli.main(["unpublish", str(site), "--version", "v1.0.0"]) == 0
    assert set(os.listdir(site)) == ROOT_FILES | {"main"}
    assert (site / "stable").readlink() == Path("main")
    for name in ("main", "v3"):  # the last one, and none
        assert cli.main(["unpublish", str(site), "--version", name, "--yes"]) == 1
        assert "has main. Name" in capsys.readouterr().err
    assert tree(site / "main") == visible(builds / "main")


@pytest.mark.parametrize(
    "name",
    ["", "..", "../x", "/etc", "a b", ".hidden", "-v", "v1..2", "stable", "LATEST", "index.html"]
    + ["versions.json", "a\nb", "é", "<b>", "v1.", "x" * 300],
)
def test_a_name_that_is_no_version_is_refused(site, builds, name):
    before = tree(site)
    with pytest.raises(RecorderError, match="cannot be the name of a version"):
        publish.publish(builds / "main", site, name)
    with pytest.raises(RecorderError, match="cannot be the name of a version"):
        publish.unpublish(site, name)
    assert tree(site) == before


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda build: (build / "loop").symlink_to("loop"), "loop: is a symbolic link"),
        (lambda build: (build / "_static/loop").symlink_to(".."), "loop: is a symbolic link"),
        (lambda build: (shutil.rmtree(build), build.symlink_to("damaged")), "versions.json"),
        (lambda build: (build / "versions.json").unlink(), "No such file"),
        (lambda build: write(build / "versions.json", '{"schema": 99}'), "schema"),
        (lambda build: write(build / "versions.json", "[" * 100_000), "versions.json"),
        (lambda build: (build / "versions.json").write_bytes(b'"\xff"'), "versions.json"),
    ],
)
def test_a_build_that_cannot_be_published_is_one_message(
    site, builds, tmp_path, capsys, damage, words
):
    build = shutil.copytree(builds / "main", tmp_path / "damaged")
    damage(build)
    before = tree(site)
    assert cli.main(["publish", str(build), str(site), "--version", "main"]) == 1
    assert words in capsys.readouterr().err
    assert tree(site) == before


def test_a_build_of_another_version_and_a_site_are_refused(site, builds, tmp_path):
    with pytest.raises(RecorderError, match=r"a build of main \(.*\), not of v2"):
        publish.publish(builds / "main", site, "v2")
    with pytest.raises(RecorderError, match="is a site, not a build"):
        publish.publish(site, tmp_path / "other", "main")


def test_what_is_not_ours_stays(site, builds, tmp_path):
    """Folders, files and links in the way, folders without a version, files at the root."""
    write(tmp_path / "home" / "thesis.txt", "precious")
    with pytest.raises(RecorderError, match="has files but no version"):
        publish.publish(builds / "main", tmp_path / "home", "main")
    assert tree(tmp_path / "home") == {"thesis.txt": b"precious"}
    build = renamed(builds / "main", tmp_path / "v2", "v2")
    for name in ("notes/a.txt", "CNAME", ".publishing/a.txt", ".main.replaced/a.txt", ".git/HEAD"):
        write(site / name, "precious")
    before = tree(site)
    for number, make in enumerate(
        (
            lambda place: write(place / "thesis.txt", "precious"),
            lambda place: write(place, "precious"),
            lambda place: write(place / "versions.json", "[]"),
            lambda place: place.symlink_to(tmp_path / "home"),
            lambda place: place.symlink_to("nowhere"),
        )
    ):
        make(site / "v2")
        with_it = tree(site)
        for overwrite in (False, True):
            with pytest.raises(RecorderError, match="v2: exists and is not a version"):
                publish.publish(build, site, "v2", overwrite)
        with pytest.raises(RecorderError, match="Name a version"):
            publish.unpublish(site, "v2")
        assert tree(site) == with_it
        (site / "v2").rename(tmp_path / f"aside-{number}")
    publish.publish(build, site, "v2")
    publish.unpublish(site, "v2")
    assert tree(site) == before
    (site / "stable").unlink()
    write(site / "stable" / "thesis.txt", "precious")
    with pytest.raises(RecorderError, match="No version was damaged"):
        publish.publish(build, site, "v2")
    assert (site / "stable" / "thesis.txt").exists()


def test_a_damaged_list_of_one_version_stops_no_other(site, builds, capsys):
    write(site / "v1.0.0" / "versions.json", '{"schema": 1, "versions": "<b>"}')
    before = tree(site / "v1.0.0")
    publish.publish(builds / "main", site, "main")
    assert "v1.0.0/versions.json" in capsys.readouterr().err
    assert [version["name"] for version in listed(site)["versions"]] == ["main"]
    assert tree(site / "v1.0.0") == before


def test_a_full_disk_changes_nothing(site, builds, tmp_path):
    build = shutil.copytree(builds / "main", tmp_path / "large")
    write(build / "_downloads" / "large.csv", "size\n" * 100_000)
    before = tree(site)
    done = subprocess.run(
        [sys.executable, "-m", "gallery_recorder", "publish", build, site, "--version", "main"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "large.csv" in done.stderr
    assert "No version was damaged" in done.stderr
    assert tree(site) == before


def test_two_publishers_do_not_meet(site, builds):
    before = tree(site)
    lock = FileLock(site / ".gallery-publishing.lock")
    with lock, pytest.raises(RecorderError, match="another process is publishing"):
        publish.publish(builds / "main", site, "main")
    assert tree(site).items() >= before.items()


def killed(at: int, function, *arguments: object) -> bool:
    """Call *function* in a process that dies at its step *at*; whether it had so many steps."""
    if (child := os.fork()) == 0:
        steps = 0

        def count(event: str, _: object) -> None:
            nonlocal steps
            steps += event.startswith(("open", "os.", "shutil.", "ctypes."))
            if steps == at:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            function(*arguments)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("action", ["replace", "add", "delete"])
def test_killed_at_any_moment_every_version_is_whole(site, builds, tmp_path, action):
    """The site has the old or the new version then, and the next publishing leaves no trace."""
    name = "main" if action == "replace" else "v2"
    new = renamed(builds / "main", tmp_path / "new", name, "branch")
    if action == "delete":
        publish.publish(new, site, name)
    before = shutil.copytree(site, tmp_path / "before", symlinks=True)
    states = [tree(before / name), {} if action == "delete" else visible(new)]
    call = (publish.unpublish, site, name)
    if action != "delete":
        call = (publish.publish, new, site, name)
    seen, at = set(), 1
    while killed(at, *call):
        seen.add(states.index(tree(site / name)))
        assert tree(site / "v1.0.0") == visible(builds / "v1.0.0")
        for version in listed(site)["versions"] if action != "delete" else ():
            assert (site / version["name"] / "index.html").exists()
        assert (site / "stable" / "index.html").exists()
        publish.publish(builds / "main", site, "main")
        assert not [path for path in site.iterdir() if path.name.startswith(".gallery")]
        shutil.rmtree(site)
        shutil.copytree(before, site, symlinks=True)
        at += 11
    assert seen == {0, 1}
