"""Recordings in a repository: git keeps their bytes, whatever its settings."""

import subprocess
import sys
from textwrap import dedent

import pytest

from gallery_recorder.store import recording, status, transport
from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import Gallery

CODE = "open('a.csv', 'w').write('a\\n1\\n')\nprint('done')"


def git(folder, *words):
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.autocrlf=true")
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("pulled", [False, True])
def test_a_checkout_that_changes_line_ends_damages_no_recording(tmp_path, pulled):
    gallery = Gallery(tmp_path / "here", more='gallery_data = ["*"]')
    gallery.write("a", CODE)
    git(gallery.root, "init", "-q")
    gallery.record_all()
    if pulled:
        there = tmp_path / "there"
        gallery.recordings.rename(there)
        transport.pull(str(there), gallery.recordings, gallery.root)
    attributes = gallery.recordings / ".gitattributes"
    text = attributes.read_text()
    git(gallery.root, "add", ".")
    git(gallery.root, "commit", "-qm", "a")
    git(tmp_path, "clone", "-q", "here", "clone")
    clone = Gallery(tmp_path / "clone")
    assert [row.state for row in status.rows(clone.project())] == ["current"]
    attributes.write_text("# the project's own\n")
    gallery.record(force=True)
    assert attributes.read_text() == "# the project's own\n" != text


def test_without_a_repository_nothing_is_written_beside_recordings(tmp_path):
    recording.protect_from_git(tmp_path, tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_pull_works_in_a_shallow_checkout_of_no_branch_as_on_read_the_docs(tmp_path):
    gallery = Gallery(tmp_path / "here")
    gallery.write("a", "print('recorded')")
    git(gallery.root, "init", "-q", "-b", "main")
    for text in ("1", "2"):
        (gallery.root / "file").write_text(text)
        git(gallery.root, "add", "doc", "examples", "file")
        git(gallery.root, "commit", "-qm", text)
    gallery.record_all()
    transport.push("branch:recordings", gallery.recordings, gallery.root)
    builder = tmp_path / "builder"
    builder.mkdir()
    git(builder, "init", "-q")
    git(builder, "remote", "add", "origin", f"file://{gallery.root}")
    git(builder, "fetch", "-q", "--depth", "1", "origin", "refs/heads/main")
    git(builder, "checkout", "-q", "--detach", "FETCH_HEAD")
    policy = """
    import os
    gallery_unrecorded = "warn"
    if os.environ.get("READTHEDOCS_VERSION_TYPE") == "tag":
        gallery_unrecorded = "error"
    """
    conf = builder / "doc/conf.py"
    conf.write_text(conf.read_text() + dedent(policy))

    def build(version_type):
        words = ("-b", "html", "doc", "build")
        return processes.sphinx(builder, *words, READTHEDOCS_VERSION_TYPE=version_type)

    assert build("branch").returncode == 0
    unrecorded = build("tag")
    assert unrecorded.returncode == 2
    assert "record a" in unrecorded.stderr
    words = [sys.executable, "-m", "gallery_recorder", "pull", "branch:recordings", "--conf", "doc"]
    pulled = processes.run(words, cwd=builder)
    assert pulled.returncode == 0, pulled.stderr
    built = build("tag")
    assert built.returncode == 0, built.stderr
    assert "recorded" in (builder / "build/auto_examples/a.html").read_text()
