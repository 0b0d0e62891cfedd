"""A part of the examples: what changed since a commit, and one machine's share."""

import subprocess

import pytest

from gallery_recorder.project.galleries import Example
from gallery_recorder.run import subset
from gallery_recorder.run.subset import SubsetError
from tests.fixtures.room import Room


def test_the_shares_hold_every_example_once_and_take_about_as_long(tmp_path):
    examples = [Example(tmp_path / f"{n}", "g", f"{n}", "g", True, False) for n in range(20)]
    seconds = {example.path: [None, 5.0, 60.0, 0.0][n % 4] for n, example in enumerate(examples)}
    shares = [subset.share(examples, k, 3, lambda e: seconds[e.path]) for k in (1, 2, 3)]
    assert sorted(e.name for s in shares for e in s) == sorted(e.name for e in examples)
    loads = [sum(5.0 if seconds[e.path] is None else seconds[e.path] for e in s) for s in shares]
    assert max(loads) - min(loads) < 60
    assert subset.share(examples[:1], 2, 2, lambda e: 1.0) == []


@pytest.fixture
def room(tmp_path):
    room = Room(tmp_path)
    room.write("01-plain", "x = 1")
    room.write("02-imports", "import helper")
    room.write("03-reads", 'open("data/x.csv")')
    room.write("helper", "x = 1")
    (room.tutorials / "data").mkdir()
    (room.tutorials / "data" / "x.csv").write_text("a\n")
    commit(room)
    return room


def commit(room):
    git = ["git", "-C", str(room.folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-qb", "main"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *words], check=True)


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("01-plain.py", None, []),  # a comment
        ("01-plain.py", '"""\nTitle\n=====\n"""\nx = 2\n', ["01-plain"]),
        ("04-new.py", '"""\nTitle\n=====\n"""\nx = 2\n', ["04-new"]),
        ("helper.py", '"""\nTitle\n=====\n"""\nx = 2\n', ["02-imports", "helper"]),
        ("data/x.csv", "b\n", ["03-reads"]),
        ("data/unnamed.csv", "b\n", ["01-plain", "02-imports", "03-reads", "helper"]),
        ("README.txt", "Header\n", []),
    ],
)
def test_a_script_has_changed_if_its_code_or_a_file_that_it_uses_has(room, file, text, names):
    path = room.tutorials / file
    path.write_text(text or f"{path.read_text()}# a comment\n")
    plan = room.project()
    changed = subset.changed_since("main", plan, plan.recorded)
    assert sorted(path.stem for path in changed) == names


def test_a_renamed_script_has_changed_and_its_neighbors_have_not(room):
    (room.tutorials / "01-plain.py").rename(room.tutorials / "05-plain.py")
    plan = room.project()
    assert [p.stem for p in subset.changed_since("HEAD", plan, plan.recorded)] == ["05-plain"]


def test_what_cannot_be_compared_is_an_error_with_its_remedy(room, tmp_path):
    plan = room.project()
    with pytest.raises(SubsetError, match="Not a valid object name"):
        subset.changed_since("nothere", plan, plan.recorded)
    (tmp_path / ".git").rename(tmp_path / "git")
    with pytest.raises(SubsetError, match="not a git repository"):
        subset.changed_since("HEAD", plan, plan.recorded)
