"""Recordings in a repository: git keeps their bytes, whatever its settings."""

import subprocess

import pytest

from gallery_recorder.store import recording, status, transport
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
