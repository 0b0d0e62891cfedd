"""Two recordings: which speed counts as lost, and which outputs differ."""

import gzip
import json

import msgspec
import pytest

from gallery_recorder.store import compare, recording
from gallery_recorder.store.benchmarks import BenchmarkError
from gallery_recorder.store.format import (
    SCHEMA,
    Block,
    Provenance,
    Recording,
    RunFacts,
    slug,
)
from tests.fixtures import forked
from tests.fixtures.room import Room

HEAD = "M,N,provider,unit,median,p20,p80\n"


def rows(provider, values, unit="GB/s", spread=0.01):
    """Lines of a benchmark file: a median a size, and its spread to both sides."""
    return "".join(
        f"4096,{128 * n},{provider},{unit},{v},{v * (1 - spread)},{v * (1 + spread)}\n"
        for n, v in enumerate(values, 1)
    )


@pytest.fixture
def make(tmp_path):
    """Make a recording with one block a key, of which the last is as *changes* say."""

    def make(version, files=None, *, keys=("1",), name="01-a", device="NVIDIA H200", **changes):
        staging = tmp_path / "staging"
        staging.mkdir()
        for path, content in (files or {}).items():
            (staging / path).parent.mkdir(exist_ok=True)
            content = content if isinstance(content, bytes) else content.encode()
            (staging / path).write_bytes(content)
        data = [path for path in files or {} if not path.startswith("images/")]
        images = [path for path in files or {} if path not in data]
        blocks = [Block(10 * n, key * 64, 1.0) for n, key in enumerate(keys, 1)]
        blocks[-1] = msgspec.structs.replace(
            blocks[-1], images=tuple(images), data=tuple(data), **changes
        )
        made = Recording(
            schema=SCHEMA,
            gallery="tutorials",
            name=name,
            title="A",
            key=recording.key_of(block.key for block in blocks),
            run=RunFacts("2026-01-02T03:04:05Z", 1.0),
            provenance=Provenance(device, "gpu", "Linux", "3.12"),
            blocks=tuple(blocks),
            files={path: recording.digest(staging / path) for path in files or {}},
        )
        at = recording.Location(tmp_path / version, slug(device), None, "tutorials", name)
        recording.save(made, staging, at.folder)
        return at.folder

    return make


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (rows("triton", [100, 200]), rows("triton", [100, 200]), False),
        (rows("triton", [100, 200]), rows("triton", [80, 160]), True),
        # 6 % slower, but the spreads of 1 % make it 4 % at the least
        (rows("triton", [100, 200]), rows("triton", [94, 188]), False),
        (rows("triton", [100, 200]), rows("triton", [92, 184]), True),
        # noisy: 20 % slower within a spread of 15 % to both sides
        (rows("triton", [100], spread=0.15), rows("triton", [80], spread=0.15), False),
        (rows("triton", [100] * 9), rows("triton", [100] * 8 + [80]), False),  # the mean decides
        # less of a time is better
        (rows("triton", [1.0], "ms"), rows("triton", [1.2], "ms"), True),
        # sizes and providers that only one of them has are left out
        (rows("triton", [100]), rows("triton", [100, 1]) + rows("new", [1]), False),
    ],
)
def test_speed_is_lost_only_beyond_the_spread(make, old, new, lost):
    before, after = make("a", {"b.csv": HEAD + old}), make("b", {"b.csv": HEAD + new})
    text, found = compare.compare(before, after)
    assert found == lost == ("LOST" in text)


def test_on_another_gpu_nothing_is_lost(make):
    before = make("old", {"b.csv": HEAD + rows("triton", [100])})
    after = make("new", {"b.csv": HEAD + rows("triton", [40])}, device="NVIDIA A100")
    text, lost = compare.compare(before, after)
    assert not lost
    assert "The GPUs differ" in text
    assert "triton  0.400 times as fast over 1 sizes" in text


def test_folders_are_compared_path_by_path(make, tmp_path):
    for version, names in (("old", ("01-a", "02-b")), ("new", ("01-a", "02-b", "03-c"))):
        for name in names:
            make(version, name=name, stdout=f"{version}\n" if name == "01-a" else "")
    text, _ = compare.compare(tmp_path / "old", tmp_path / "new")
    assert "tutorials/01-a: NVIDIA H200, 2026-01-02 → " in text
    assert "Unchanged recordings: 1." in text
    assert f"Only in {tmp_path / 'new'}: nvidia-h200/tutorials/03-c." in text


def differences(make, old, new):
    text, _ = compare.compare(make("old", **old), make("new", **new))
    return [line.strip() for line in text.splitlines()[1:-1] if line and "worst" not in line]


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
    assert not {*"\x1b\u202e"} & {*compare.compare(old, new)[0]}


def test_nothing_to_compare_is_an_error(make, tmp_path):
    make("old", name="01-a")
    make("new", name="02-b")
    with pytest.raises(BenchmarkError, match="no recordings at the same paths"):
        compare.compare(tmp_path / "old", tmp_path / "new")


@pytest.mark.parametrize(("value", "returned"), [(100, 0), (50, 1)])
def test_the_command_fails_if_speed_is_lost(make, tmp_path, value, returned):
    before = make("old", {"b.csv": HEAD + rows("triton", [100])})
    after = make("new", {"b.csv": HEAD + rows("triton", [value])})
    command = [*Room(tmp_path).command("compare")[:4], str(before), str(after)]
    assert forked.run(command).returncode == returned
