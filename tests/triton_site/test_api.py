"""The files of the API: reading them, and what is refused."""

import json
import sys
from pathlib import Path

import pytest

from triton_site.kernels import api
from triton_site.kernels.api import Api, ApiError, Entry, Member, Overload

SMALL = Api(
    "3.9.0",
    (
        Entry("t.load", "function", "t.core", "kernel", "(pointer, mask=None)", "Loads.", True),
        Entry("t.C", "class", "t", members=(Member("run", "method", "(x)"),)),
        Entry("t.libdevice.sin", "function", overloads=(Overload("hip", "fp32", "fp32", "s"),)),
    ),
)


def test_round_trip(tmp_path):
    path = tmp_path / "triton.json"
    api.save([SMALL], path)
    assert [item.triton for item in api.load(path)] == ["3.9.0"]
    assert set(api.load(path)[0].entries) == set(SMALL.entries)


def test_what_versions_say_alike_is_kept_once(tmp_path):
    path = tmp_path / "triton.json"
    changed = Api("3.10.0", (Entry("t.load", "function", doc="Loads more."), *SMALL.entries[1:]))
    api.save([changed, SMALL, Api("3.6.0", SMALL.entries)], path)
    assert [item.triton for item in api.load(path)] == ["3.6.0", "3.9.0", "3.10.0"]
    entries = json.loads(path.read_text())["entries"]
    assert {e["entry"]["name"]: e["versions"] for e in entries if "doc" not in e["entry"]} == {
        "t.C": "3.6.0 3.9.0 3.10.0",
        "t.libdevice.sin": "3.6.0 3.9.0 3.10.0",
    }
    assert [e["versions"] for e in entries if e["entry"]["name"] == "t.load"] == [
        "3.6.0 3.9.0",
        "3.10.0",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "`schema` is 99, but this version reads"),
        (
            {"entries": [{"versions": "3.9.0", "entry": {"name": "x", "kind": "verb"}}]},
            r"Invalid enum value 'verb'.*entries\[0\]",
        ),
        (
            {"entries": [{"versions": "3.9.0", "entry": {"name": "x", "kind": "data", "hue": 1}}]},
            "unknown field `hue`",
        ),
        ({"versions": None}, "Expected `array`, got `null`"),
        ({"versions": []}, "holds no version of Triton"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, change, message):
    path = tmp_path / "triton.json"
    api.save([SMALL], path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ApiError, match=message) as error:
        api.load(path)
    assert str(path) in str(error.value)
    assert "make api" in str(error.value)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "triton.json"
    api.save([SMALL], path)
    whole = path.read_bytes()
    for damaged in (whole[:-20], whole.replace(b"Loads.", b"Loads\xff")):
        path.write_bytes(damaged)
        with pytest.raises(ApiError, match=r"is not whole JSON|Invalid UTF-8"):
            api.load(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ApiError, match=r"cannot be read.*make api"):
        api.load(tmp_path / "triton.json")


def test_command_says_what_it_wrote(tmp_path, capsys):
    pytest.importorskip("triton")
    path = tmp_path / "triton.json"
    api.save([Api("1.0.0", SMALL.entries)], path)
    assert api.main([str(path)]) == 0
    assert "names of Triton" in capsys.readouterr().out
    assert api.load(path)[0].triton == "1.0.0", "other versions stay"
    assert api.main([str(tmp_path / "none" / "triton.json")]) == 2


def test_command_without_triton(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    assert api.main([str(tmp_path / "triton.json")]) == 1
    assert "pip install triton" in capsys.readouterr().out


def test_signatures_are_python():
    """Whatever the version, a signature can be read back, and hides what the compiler passes."""
    for item in api.load(Path(__file__).parents[2] / api.FILE):
        for entry in item.entries:
            for signature in (entry.signature, *(member.signature for member in entry.members)):
                compile(f"def f{signature or '()'}: pass", entry.name, "exec")
                assert "_semantic" not in signature
                assert "<" not in signature
