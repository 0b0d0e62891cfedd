"""Two recordings: which outputs differ."""

import gzip
import json

import pytest

from gallery_recorder.errors import RecorderError
from gallery_recorder.store import compare
from gallery_recorder.testing.recordings import save_made_up


@pytest.fixture
def make(tmp_path):
    """Make a recording in the folder *version* of recordings."""
    return lambda version, *given, **changes: save_made_up(tmp_path / version, *given, **changes)


def test_folders_are_compared_path_by_path(make, tmp_path):
    for version, names in (("old", ("01-a", "02-b")), ("new", ("01-a", "02-b", "03-c"))):
        for name in names:
            make(version, name=name, stdout=f"{version}\n" if name == "01-a" else "")
    text = compare.compare(tmp_path / "old", tmp_path / "new")
    assert "tutorials/01-a: NVIDIA H200, 2026-01-02 → " in text
    assert "Unchanged recordings: 1." in text
    assert f"Only in {tmp_path / 'new'}: nvidia-h200/tutorials/03-c." in text


def differences(make, old, new):
    text = compare.compare(make("old", **old), make("new", **new))
    return [line.strip() for line in text.splitlines()[1:-1] if line]


@pytest.mark.parametrize(
    ("field", "old", "new", "expected"),
    [
        ("stdout", "a\nb\n", "a\nc\n", ["-stdout: b", "+stdout: c"]),
        ("stderr", "", "a warning\n", ["+stderr: a warning"]),
        ("exception", None, "ValueError: no", ["+exception: ValueError: no"]),
        ("value", {}, {"text/html": "<b>1</b>"}, ["+value: 1: <b>1</b>"]),
        ("probes", {"p": {"n": 40}}, {"p": {"n": 80}}, ["-p: n: 40", "+p: n: 80"]),
    ],
)
def test_each_output_of_a_block_is_compared(make, field, old, new, expected):
    found = differences(make, {field: old}, {field: new})
    assert found == ["block of line 10", *expected]


def test_a_new_block_does_not_shift_the_others(make):
    old, new = {"keys": "12", "stdout": "same\n"}, {"keys": "132", "stdout": "same\n"}
    assert differences(make, old, new) == ["block of line 20", f"+code: SHA-256 {'3' * 64}"]


XRAY = [gzip.compress(json.dumps({"k": [{"n": n}]}).encode(), mtime=0) for n in (40, 80)]


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("t.csv", "a,b\n1,2\n3,4\n", "a,b\n1,2\n3,5\n", ["-3,4", "+3,5"]),
        ("x.json", '{"a": 1, "b": [2]}', '{"b": [4]}', ["-a: 1", "-b: 1: 2", "+b: 1: 4"]),
        ("x.json.gz", XRAY[0], XRAY[1], ["-k: 1: n: 40", "+k: 1: n: 80"]),
        ("x.json", "{", "[", ["-SHA-256", "+SHA-256"]),
        ("images/a.svg", "<svg>a</svg>", "<svg>b</svg>", ["-images: 1: SHA", "+images: 1: SHA"]),
    ],
)
def test_files_are_compared_by_their_content(make, name, old, new, expected):
    _, *found = differences(make, {"files": {name: old}}, {"files": {name: new}})
    assert len(found) == len(expected)
    assert all(line.startswith(begin) for line, begin in zip(found, expected, strict=True))


def test_nothing_in_a_recording_steers_the_terminal(make):
    evil = "\x1b[31m\u202e"
    old, new = make("old"), make("new", stdout=evil, probes={evil: {evil: evil}})
    assert not {*"\x1b\u202e"} & {*compare.compare(old, new)}


def test_nothing_to_compare_is_an_error(make, tmp_path):
    make("old", name="01-a")
    make("new", name="02-b")
    with pytest.raises(RecorderError, match="no recordings at the same paths"):
        compare.compare(tmp_path / "old", tmp_path / "new")
    with pytest.raises(RecorderError, match="gone does not exist"):
        compare.compare(tmp_path / "gone", tmp_path / "new")
