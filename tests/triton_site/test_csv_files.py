"""A damaged table of a recording is one line that names the file, wherever recordings are read."""

import shutil
from pathlib import Path

import pytest

from gallery_recorder.api import ReadingError
from gallery_recorder.store import recording
from gallery_recorder.store.recording import RecordingError
from triton_site.numbers import csv_files
from triton_site.probes import software

COMMITTED = sorted(Path("recordings").glob("*/*/tutorials/01-vector-add"))[0]
HEAD = "size,provider,unit,median,p20,p80\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (HEAD.encode(), "it has no rows"),
        (b"\xff\xfe", "can't decode"),
        (HEAD.encode() + b"4611686018427387904,triton,GB/s,1,1,1\n", "larger than"),
        (HEAD.encode() + b"1,<b>triton</b>,GB/s,1,1,1\n", "markup"),
        (HEAD.encode() + b"1,:doc:`x`,GB/s,1,1,1\n", "markup"),
        (HEAD.encode() + b"1,triton,GB/s,1\n", "4 cells"),
        (HEAD.encode() + b"1,triton,parsecs,1,1,1\n", "parsecs"),
    ],
    ids=["empty", "head", "bytes", "size", "html", "role", "cells", "unit"],
)
def test_a_damaged_table_is_damage_of_its_recording(tmp_path, content, words):
    folder = tmp_path / COMMITTED.name
    shutil.copytree(COMMITTED, folder)
    made = recording.load(folder, [])
    (folder / "vector-add-performance.csv").write_bytes(content)
    with pytest.raises(Exception, match=words) as caught:
        software.check(folder, made)
    assert "vector-add-performance.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(RecordingError):
        recording.load(folder, [software.check])


@pytest.mark.parametrize("value", ["many", "", "nan"])
def test_a_value_that_is_no_number_is_damage(tmp_path, value):
    path = tmp_path / "page-values.csv"
    path.write_text(f"name,unit,value\nlargest error,,inf\nsteps,,{value}\n")
    with pytest.raises(ReadingError, match=f"line 3: '{value}' is no number"):
        csv_files.check(path)


def test_committed_tables_are_whole():
    for path in sorted(Path("recordings").rglob("*.csv")):
        csv_files.check(path)
