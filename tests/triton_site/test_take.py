"""What another machine made is taken where it is a recording, and otherwise not at all."""

from __future__ import annotations

import os
import sys

import msgspec
import pytest

from gallery_recorder.store import recording
from gallery_recorder.store.format import encode
from gallery_recorder.store.recording import RecordingError
from tests.fixtures import forked
from tests.fixtures.fixture_gallery import make_gallery, make_recording
from tests.fixtures.fixture_site import tree, write
from triton_site.pages import take
from triton_site.pages.take import TakeError


@pytest.fixture
def unpacked(tmp_path):
    """Recordings of two tutorials, as another machine made them."""
    make_gallery(tmp_path / "other")
    for name in ("01-first", "02-second"):
        make_recording(tmp_path / "other", name)
    return tmp_path / "other" / "recordings"


def test_whole_recordings_are_taken_and_replace_older_ones(unpacked, tmp_path):
    into = tmp_path / "recordings"
    write(into / "nvidia-h200" / "tutorials" / "01-first" / "old.csv", "old")
    write(into / "amd" / "tutorials" / "03-kept" / "recording.json", "{}")
    kept = tree(into / "amd")
    taken = take.take(unpacked, into)
    assert [location.name for location in taken] == ["01-first", "02-second"]
    assert tree(into / "nvidia-h200") == tree(unpacked / "nvidia-h200")
    assert tree(into / "amd") == kept
    assert sorted(os.listdir(into)) == ["amd", "nvidia-h200"]


PLACE = "nvidia-h200/tutorials/01-first"
STRANGE = {
    "a Makefile": lambda root: write(root / "Makefile", "all:\n\tcurl evil\n"),
    "a script among them": lambda root: write(root / PLACE / "conf.py", "import os"),
    "a hidden folder": lambda root: write(root / ".github" / "workflows" / "x.yml", "on: push"),
    "a repository": lambda root: write(root / ".git" / "hooks" / "pre-commit", "evil"),
    "a link": lambda root: (root / PLACE / "x").symlink_to("/etc/passwd"),
    "a link to a folder": lambda root: (root / "x").symlink_to("/etc"),
    "a pipe": lambda root: os.mkfifo(root / PLACE / "x"),
    "a damaged recording": lambda root: write(root / PLACE / "recording.json", "{"),
    "an altered file": lambda root: write(root / PLACE / "speed.csv", "size\n1\n"),
    "a name that is a device": lambda root: renamed(root, "aux"),
    "a name with a stream": lambda root: renamed(root, "a:b"),
    "a name that differs in case": lambda root: renamed(root, "02-SECOND"),
    "a wrong place": lambda root: os.rename(root / "nvidia-h200", root / "amd"),
    "too deep": lambda root: os.renames(
        root / PLACE, root / "nvidia-h200/a/b/c/tutorials/01-first"
    ),
    "no end of folders": lambda root: root.joinpath(*["d"] * 100).mkdir(parents=True),
}


def renamed(root, name):
    """A whole recording of a script that some systems cannot have."""
    made = recording.load(root / PLACE)
    content = msgspec.structs.replace(made, name=name)
    (root / PLACE / "recording.json").write_bytes(encode(content))
    os.rename(root / PLACE, (root / PLACE).with_name(name))


@pytest.mark.parametrize("kind", STRANGE)
def test_anything_else_has_nothing_taken(unpacked, tmp_path, kind):
    STRANGE[kind](unpacked)
    into = tmp_path / "recordings"
    into.mkdir()
    with pytest.raises((TakeError, RecordingError)):
        take.take(unpacked, into)
    assert tree(into) == {}


def test_a_link_in_the_place_of_the_folder_is_not_followed(unpacked, tmp_path):
    (tmp_path / "link").symlink_to(unpacked)
    with pytest.raises(TakeError, match="is no folder of recordings"):
        take.take(tmp_path / "link", tmp_path / "recordings")


def test_the_command(unpacked, tmp_path):
    command = [sys.executable, "-m", "triton_site.pages.take"]

    def run(*arguments):
        return forked.run([*command, *arguments])

    done = run(str(unpacked), str(tmp_path / "recordings"))
    assert done.returncode == 0
    assert done.stdout.count("Taken: ") == 2
    assert recording.load(tmp_path / "recordings" / PLACE).name == "01-first"
    write(unpacked / "Makefile", "all:")
    refused = run(str(unpacked), str(tmp_path / "recordings"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Makefile: belongs to no recording. Nothing was taken" in refused.stderr
    assert run().returncode == 2
