"""The version that a checkout is, and what a build says of itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gallery_recorder.publish import front, publish, versions
from gallery_recorder.publish.release import find_changes, find_release
from tests.fixtures import forked

ROOT = Path(__file__).parents[2]
CONF = """
project = "Fixture"
extensions = ["gallery_recorder.publish.release"]
html_theme = "basic"
html_baseurl = "https://example.org/fixture/stable/"
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one commit on main."""
    monkeypatch.delenv("GALLERY_VERSION", raising=False)
    folder = tmp_path / "checkout"
    (folder / "docs").mkdir(parents=True)
    (folder / "conf.py").write_text(CONF)
    (folder / ".gitignore").write_text("build\n")
    (folder / "docs" / "index.rst").write_text("Index\n=====\n\n.. toctree::\n\n   other\n")
    (folder / "docs" / "other.rst").write_text("Other\n=====\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "First")
    return folder


def build(checkout: Path) -> tuple[dict, str]:
    """The list in the build of *checkout*, and what Sphinx printed."""
    done = forked.build(checkout, "-W")
    done.check_returncode()
    return json.loads((checkout / "build" / "html" / "versions.json").read_text()), done.stdout


def test_a_branch_is_called_by_its_name(checkout):
    release = find_release(checkout)
    assert release.name == "main"
    assert release.commit == git(checkout, "rev-parse", "HEAD")
    assert release.describe == release.commit[:7]
    assert release.date.endswith("Z")
    git(checkout, "switch", "--quiet", "--create", "feature/tiles")
    assert find_release(checkout).name == "feature-tiles"


def test_a_tagged_commit_is_called_by_its_tag(checkout):
    git(checkout, "tag", "v1.0.0rc1")
    git(checkout, "tag", "v1.0.0")
    git(checkout, "tag", "nightly")
    release = find_release(checkout)
    assert release.name == "v1.0.0"
    assert release.describe in ("v1.0.0", "v1.0.0rc1", "nightly")
    git(checkout, "checkout", "--quiet", "--detach")
    assert find_release(checkout).name == "v1.0.0"


def test_what_was_changed_since_is_no_release(checkout):
    git(checkout, "tag", "v1.0.0")
    (checkout / "docs" / "index.rst").write_text("Index\n=====\n\nChanged\n")
    assert find_release(checkout).name == "main"
    assert find_release(checkout).describe == "v1.0.0-dirty"
    git(checkout, "commit", "--quiet", "--all", "--message", "Second")
    release = find_release(checkout)
    assert release.name == "main"
    assert release.describe.startswith("v1.0.0-1-g")
    git(checkout, "checkout", "--quiet", "--detach")
    assert find_release(checkout).name == release.describe


def test_without_history_it_is_what_the_environment_says(checkout, tmp_path, monkeypatch):
    assert find_release(tmp_path).name == "local"
    inside = checkout / "docs"  # in the repository of another project
    assert find_release(inside).name == "local"
    monkeypatch.setenv("GALLERY_VERSION", "v2.0.0")
    assert find_release(tmp_path).name == find_release(tmp_path).describe == "v2.0.0"
    monkeypatch.setenv("PATH", "")  # and no git
    assert find_release(checkout).name == "v2.0.0"


def test_a_build_says_what_it_is(checkout):
    git(checkout, "tag", "v1.0.0")
    found, _ = build(checkout)
    (version,) = found["versions"]
    assert found["of"] == "build"
    assert found["address"] == "https://example.org/fixture/"
    assert version["name"] == version["release"] == "v1.0.0"
    assert found["pages"] == [["genindex.html", "index.html", "other.html", "search.html"]]
    inventory = (checkout / "build" / "html" / "objects.inv").read_bytes()
    assert b"# Version: v1.0.0\n" in inventory
    page = (checkout / "build" / "html" / "index.html").read_text()
    assert '<link rel="canonical" href="https://example.org/fixture/stable/index.html"' in page


def test_a_commit_has_pages_written_but_none_read_again(checkout):
    build(checkout)
    (checkout / "docs" / "other.rst").write_text("Other\n=====\n\nMore\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "Second")
    build(checkout)
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "Third")
    found, printed = build(checkout)
    assert "0 added, 0 changed, 0 removed" in printed
    assert found["versions"][0]["commit"] == git(checkout, "rev-parse", "HEAD")
    git(checkout, "tag", "v1.0.0")
    build(checkout)
    assert "v1.0.0" in (checkout / "build" / "html" / "other.html").read_text()


def test_a_build_has_a_frame_and_what_the_release_changed(checkout):
    log = {"Unreleased": "z", "v1.0.0rc1": "y", "1.0.0 (today)": "x", "0.9": "w"}
    text = "\n".join(f"## {heading}\n\n* {line}\n" for heading, line in log.items())
    (checkout / "CHANGELOG.md").write_text(f"# Changes\n\n{text}")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "Log")
    assert find_changes(checkout, "main") == ""
    assert find_changes(checkout, "v1.0.0") == "* x\n"
    git(checkout, "tag", "v2.0.0")  # which has no message of its own
    assert find_changes(checkout, "v2.0.0") == ""
    git(checkout, "tag", "v3.0.0", "--annotate", "--message", "Much.\n\n* more")
    assert find_changes(checkout, "v3.0.0") == "Much.\n\n* more"
    git(checkout, "tag", "v1.0.0")
    build(checkout)
    frame = (checkout / "build" / "html" / front.FRAME).read_text()
    assert front.TITLE in frame
    assert front.BODY in frame
    assert "canonical" not in frame
    assert "much" in (checkout / "build" / "html" / front.CHANGES).read_text().lower()


def test_a_version_is_rendered_again_from_its_tag(checkout, tmp_path):
    git(checkout, "tag", "v1.0.0")
    first, _ = build(checkout)
    (checkout / "docs" / "new.rst").write_text("New\n===\n")
    (checkout / "docs" / "index.rst").write_text(
        "Index\n=====\n\n.. toctree::\n\n   new\n   other\n"
    )
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "Second")
    assert build(checkout)[0]["versions"][0]["name"] == "main"
    git(checkout, "worktree", "add", "--quiet", tmp_path / "again", "v1.0.0")
    assert build(tmp_path / "again")[0] == first


def test_a_page_of_any_name_is_published(checkout, tmp_path):
    (checkout / "docs" / "other.rst").rename(checkout / "docs" / "c++-求和.rst")
    (checkout / "docs" / "index.rst").write_text("Index\n=====\n\n.. toctree::\n\n   c++-求和\n")
    build(checkout)
    publish.publish(checkout / "build" / "html", tmp_path / "site", "main")
    listed = json.loads((tmp_path / "site" / "versions.json").read_text())
    assert "c++-求和.html" in listed["pages"][0]
    address = "https://example.org/fixture/stable/c%2B%2B-%E6%B1%82%E5%92%8C.html"
    assert f"<loc>{address}</loc>" in (tmp_path / "site" / "sitemap.xml").read_text()


def test_what_git_and_a_changelog_hold_may_be_no_utf_8(checkout):
    (checkout / "CHANGELOG.md").write_bytes(b"## v0.9.0\n\nBy Andr\xe9.\n")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "Log")
    (checkout / "message").write_bytes(b"By Andr\xe9 himself\n")
    git(checkout, "tag", "--annotate", "v1.0.0", "--file", str(checkout / "message"))
    (checkout / "message").unlink()
    assert "Andr" in find_changes(checkout, "v0.9.0")
    build(checkout)
    assert "Andr" in (checkout / "build" / "html" / front.CHANGES).read_text(encoding="utf-8")


@pytest.mark.parametrize("tag", ["x<script>alert(1)</script>", "v1'-alert(1)-'", 'a"onload="b'])
def test_markup_in_the_name_of_a_tag_stays_off_the_pages(checkout, tag):
    git(checkout, "tag", tag)
    (checkout / "conf.py").write_text(CONF + f"templates_path = ['{ROOT}/docs/_templates']\n")
    release = find_release(checkout)
    assert not set("<>\"'()&") & set(release.describe + release.name)
    version, _ = build(checkout)
    assert "<script" not in json.dumps(version)
    for path in (checkout / "build" / "html").rglob("*.html"):
        assert tag not in path.read_text()


@pytest.mark.parametrize("name", ["<script>", "a b", "../x", "stable"])
def test_a_version_given_that_is_none_is_refused(checkout, monkeypatch, name):
    monkeypatch.setenv("GALLERY_VERSION", name)
    with pytest.raises(versions.VersionsError, match="is no version"):
        find_release(checkout)
    with pytest.raises(subprocess.CalledProcessError) as error:
        build(checkout)
    assert "GALLERY_VERSION" in error.value.stderr
    assert "Configuration error" in error.value.stderr
