"""A damaged table of a recording is one line that names the file, wherever recordings are read."""

import shutil
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from gallery_recorder.api import ReadingError
from gallery_recorder.store import recording
from gallery_recorder.store.recording import RecordingError
from triton_site.numbers import csv_files, performance
from triton_site.probes import software
from triton_site.references import SOFTWARE

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
        (HEAD.encode() + b"4.6e18,triton,GB/s,1,1,1\n", "larger than"),
        (HEAD.encode() + b"nan,triton,GB/s,1,1,1\n", "larger than"),
        (HEAD.encode() + b",triton,GB/s,1,1,1\n", "lacks a part"),
        (HEAD.encode() + b"a=b,triton,GB/s,1,1,1\n", "no size"),
        (HEAD.encode() + b'"1,5",triton,GB/s,1,1,1\n', "no size"),
        (HEAD.encode() + b"1,triton,GB/s,1,1,1\n1.0,triton,GB/s,1,1,1\n", "twice"),
        (HEAD.encode() + b"1,triton,GB/s,1,1,1\n1,copy,ms,1,1,1\n", "two units"),
        (HEAD.encode() + b"1,triton,GB/s,3,1,2\n", "median outside"),
        (HEAD.encode() + "1,tri\u202eton,GB/s,1,1,1\n".encode(), "markup"),
        (b"size,size," + HEAD[5:].encode() + b"1,2,triton,GB/s,1,1,1\n", "two have the same"),
        (b"<b>" + HEAD.encode() + b"1,triton,GB/s,1,1,1\n", "markup"),
        (HEAD.title().encode() + b"1,triton,GB/s,1,1,1\n", "missing required field"),
    ],
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


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"triton": "3.5.0"}, "it was made with triton-3.5.0"),
        ({"torch": "<b>2</b>"}, "matching regex"),
        ({"torch": "2\n\n.. raw:: html"}, "matching regex"),
        ({"multiprocessors": "many"}, "Expected `int"),
        ({"peak_gpu_memory": "9 GB"}, "Expected `int"),
        ({"toolkit": "ROCm 6.2.41133-dd7f95766", "architecture": "gfx942"}, None),
        ({"torch": "2.5.0a0+git1234abc", "peak_gpu_memory": 0, "newer": [1]}, None),
    ],
)
def test_software_that_no_probe_writes_is_damage(said, words):
    made = recording.load(COMMITTED)
    made = msgspec.structs.replace(made, probes={SOFTWARE: made.probe(SOFTWARE) | said})
    with pytest.raises(ReadingError, match=words) if words else nullcontext():
        software.check(COMMITTED, made)


@pytest.mark.parametrize("value", ["many", "", "nan"])
def test_a_value_that_is_no_number_is_damage(tmp_path, value):
    path = tmp_path / "page-values.csv"
    path.write_text(f"name,unit,value\nlargest error,,inf\nsteps,,{value}\n")
    with pytest.raises(ReadingError, match=f"line 3: '{value}' is no number"):
        csv_files.check(path)


def test_a_value_that_is_stated_twice_is_damage(tmp_path):
    path = tmp_path / "page-values.csv"
    path.write_text("name,unit,value\nsteps,,1\nsteps,,2\n")
    with pytest.raises(ReadingError, match="line 3: 'steps' has two values"):
        csv_files.check(path)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffsize,provider,unit,median,p20,p80\r\n1,triton,µs,2,3,1\r\n",
        'tile,"provider","unit","median",p20,p80\n128x64,triton,ms,1,1,1\n64x64,copy,ms,1,1,1\n',
        "n,provider,unit,median,p20,p80\n²,triton,GB/s,1,1,1\n-1,triton,TFLOPS,1,1,1\n",
        "step,seconds,loss\n1,0.5,nan\n1,1e300,inf\n",
        "name,unit,value,note\nsteps,,1,none\n",
    ],
)
def test_an_honest_table_of_another_shape_is_whole(tmp_path, text):
    path = tmp_path / "page-values.csv"
    path.write_text(text, newline="")
    csv_files.check(path)
    performance.compare_providers(path)


def test_committed_tables_are_whole():
    for path in sorted(Path("recordings").rglob("*.csv")):
        csv_files.check(path)
