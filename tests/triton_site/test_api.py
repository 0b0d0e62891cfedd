"""The file of the API: it keeps each release, and damage has a message with the remedy."""

import json
from pathlib import Path

import pytest

from triton_site.kernels import api
from triton_site.kernels.api import ApiError, Entry, Member, Overload

SMALL = (
    Entry("t.C", "class", "t", members=(Member("run", "method", "(x)"),)),
    Entry("t.libdevice.sin", "function", overloads=(Overload("hip", "fp32", "fp32"),)),
    Entry("t.load", "function", "t.core", "kernel", "(pointer, mask=None)", "Loads.", True),
)


def test_each_release_is_read_as_it_was_written_and_shared_entries_are_stored_once(tmp_path):
    path = tmp_path / "triton.json"
    changed = (*SMALL[:2], Entry("t.load", "function", doc="Loads more."))
    apis = {"3.10.0": changed, "3.9.0": SMALL, "3.6.0": SMALL}
    api.save(apis, path)
    assert list(api.load(path)) == ["3.6.0", "3.9.0", "3.10.0"]
    assert {release: set(entries) for release, entries in api.load(path).items()} == {
        release: set(entries) for release, entries in apis.items()
    }
    assert [item["versions"] for item in json.loads(path.read_text())["entries"]] == [
        "3.6.0 3.9.0 3.10.0",
        "3.6.0 3.9.0 3.10.0",
        "3.6.0 3.9.0",
        "3.10.0",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b'{"schema": 3', "truncated"),
        (b'{"schema": 99, "entries": []}', "schema"),
        (b'{"schema": 3, "entries": []}', "length >= 1"),
        (b'{"schema": 3, "entries": [{"versions": "1", "entry": {"name": "x"}}]}', "kind"),
        (b'{"schema": 3, "entries": [{"versions": "\xff"}]}', "utf-8|UTF-8"),
    ],
)
def test_a_damaged_file_is_refused_with_the_remedy(tmp_path, content, message):
    path = tmp_path / "triton.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ApiError, match=message) as error:
        api.load(path)
    assert str(path) in str(error.value)
    assert "make api" in str(error.value)


def test_signatures_are_python_without_arguments_of_the_compiler():
    for entries in api.load(Path(__file__).parents[2] / api.FILE).values():
        for entry in entries:
            for signature in (entry.signature, *(member.signature for member in entry.members)):
                compile(f"def f{signature or '()'}: pass", entry.name, "exec")
                assert "_semantic" not in signature
