"""What is read from a recording ends in one error that names the file, whatever the file holds."""

import gzip
import os
from typing import Annotated, Any

import msgspec
import pytest

from gallery_recorder.store import reading
from gallery_recorder.store.reading import ReadingError

HEAD = b"M,N,provider,unit,median,p20,p80\n"
ROW = b"4096,1,triton,GB/s,1,1,1\n"


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (lambda path: None, "cannot be read .No such file"),
        (os.mkfifo, "is not a plain file"),
        (lambda path: path.symlink_to("/etc/passwd"), "is not a plain file"),
        (lambda path: path.write_bytes(b"12345"), "has more than 4 bytes"),
    ],
    ids=["nothing", "pipe", "link", "large"],
)
def test_only_plain_files_of_bounded_size_are_read(tmp_path, put, words):
    put(tmp_path / "file")
    with pytest.raises(ReadingError, match=words):
        reading.read_file(tmp_path / "file", 4)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'{"n": "text"}', "Expected `int`, got `str` - at `n`"),
        ("a.json", b'{"n": 1', "is not valid JSON"),
        ("a.json", b'{"n": 4611686018427387904}', "Expected `int` <= .* - at `n`"),
        ("a.json", b'{"n": ' + b"9" * 9_000 + b"}", "out of range|valid JSON"),
        ("a.json", b'{"n": 1, "any": ' + b"[" * 200_000, "is not valid JSON .maximum recursion"),
        ("a.json", b'{"n": 1, "any": "\xff"}', "utf-8"),
        ("a.json", b'{"n": 1, "\\n\\u001b": 1}', "unknown field"),
        ("a.json.gz", b'{"n": 1}', "Not a gzipped file"),
        ("a.json.gz", gzip.compress(b'{"n": 1}', mtime=0)[:-9], "file ended before"),
        (
            "a.json.gz",
            gzip.compress(b" " * 9_000_000, mtime=0),
            "unpacks to more than 1,000,000 bytes",
        ),
    ],
)
def test_damaged_json_is_one_line_that_names_the_file(tmp_path, name, content, words):
    class Data(msgspec.Struct, forbid_unknown_fields=True):
        n: Annotated[int, msgspec.Meta(le=10**9)]
        any: Any = None

    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReadingError, match=words) as error:
        reading.load(tmp_path / name, Data, 1_000_000)
    assert str(error.value).startswith(f"{tmp_path / name}: ")
    assert not {*"\n\x1b"} & {*str(error.value)}
