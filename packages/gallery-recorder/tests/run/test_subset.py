"""A part of the examples: what changed since a commit, and one machine's share."""

import subprocess

import pytest

from gallery_recorder.project.galleries import Example
from gallery_recorder.run import subset
from gallery_recorder.run.subset import SubsetError
from gallery_recorder.testing.projects import Room


def test_the_shares_hold_every_example_once_and_take_about_as_long(tmp_path):
    examples = [Example(tmp_path / f"{n}", "g", f"{n}", "g", True, False) for n in range(20)]
    seconds = {example.path: [None, 5.0, 60.0, 0.0][n % 4] for n, example in enumerate(examples)}
    shares = subset.shares(examples, 3, lambda e: seconds[e.path])
    assert sorted(e.name for s in shares for e in s) == sorted(e.name for e in examples)
    loads = [sum(5.0 if seconds[e.path] is None else seconds[e.path] for e in s) for s in shares]
    assert max(loads) - min(loads) < 60
    assert subset.shares(examples[:1], 2, lambda e: 1.0)[1] == []


def test_shares_one_after_the_other_in_one_folder_are_those_of_the_beginning(tmp_path):
    """What the first records would change the second; two machines compute the same."""
    room = Room(tmp_path)
    names = [f"0{number}-a" for number in range(6)]
    for number, name in enumerate(names):
        room.write(name, f"x = {number}\nimport time; time.sleep({0.2 * (number < 3)})")
    first, second = (room.record(shard=(k, 2)) for k in (1, 2))
    assert sorted([*first, *second]) == names
    assert len(first) == 3
    assert {o.status for o in (*first.values(), *second.values())} == {"recorded"}
    assert room.left_over() == []
    room.write("06-new", "x = 6")
    again = [{*room.record(shard=(k, 2))} for k in (1, 2)]
    assert again[0] | again[1] == {*names, "06-new"}
    assert again[0].isdisjoint(again[1])


def test_a_share_is_kept_for_the_same_scripts_and_number_of_shares_alone(tmp_path):
    examples = [Example(tmp_path / f"{n}", "g", f"{n}", "g", True, False) for n in range(6)]

    def share(number, of=2, seconds=lambda e: float(e.name), those=examples):
        return {e.name for e in subset.share(those, number, of, seconds, tmp_path)}

    begun = share(1)
    assert share(2, seconds=lambda e: 1.0) == {*"012345"} - begun
    fresh = share(1, seconds=lambda e: 1.0)
    assert share(1) == begun != fresh  # it is recorded once more: a new beginning
    assert share(1, of=3) != fresh  # another number of shares
    assert share(2, of=3, those=examples[:5]) <= {*"01234"}
    (tmp_path / ".shards.json").write_text("damaged")
    assert share(1) == begun


@pytest.fixture
def room(tmp_path):
    room = Room(tmp_path)
    room.write("01-plain", "x = 1")
    room.write("02-imports", "import helper")
    room.write("03-reads", 'open("data/x.csv")')
    room.write("helper", "x = 1")
    (room.examples / "data").mkdir()
    (room.examples / "data" / "x.csv").write_text("a\n")
    commit(room)
    return room


def commit(room):
    git = ["git", "-C", str(room.root), "-c", "user.name=a", "-c", "user.email=a@b"]
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
    path = room.examples / file
    path.write_text(text or f"{path.read_text()}# a comment\n")
    plan = room.project()
    changed = subset.changed_since("main", plan, plan.executed)
    assert sorted(path.stem for path in changed) == names


def test_a_module_that_a_module_imports_counts_too(room):
    (room.examples / "helper.py").write_text("import deep\n")
    commit(room)
    (room.examples / "deep.py").write_text("x = 1\n")
    plan = room.project()
    examples = [one for one in plan.executed if one.name in ("01-plain", "02-imports")]
    changed = subset.changed_since("HEAD", plan, examples)
    assert [path.stem for path in changed] == ["02-imports"]


def test_a_renamed_script_has_changed_and_its_neighbors_have_not(room):
    (room.examples / "01-plain.py").rename(room.examples / "05-plain.py")
    plan = room.project()
    assert [p.stem for p in subset.changed_since("HEAD", plan, plan.executed)] == ["05-plain"]


def test_what_cannot_be_compared_is_an_error_with_its_remedy(room, tmp_path):
    plan = room.project()
    with pytest.raises(SubsetError, match="Not a valid object name"):
        subset.changed_since("nothere", plan, plan.executed)
    (tmp_path / ".git").rename(tmp_path / "git")
    with pytest.raises(SubsetError, match="not a git repository"):
        subset.changed_since("HEAD", plan, plan.executed)
