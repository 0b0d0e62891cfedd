"""The numbers that pages state are those of the recording."""

import csv
import types
from pathlib import Path

import pytest

from gallery_recorder.api import RecordedFiles
from triton_site.numbers.quantities import (
    Definition,
    Numbers,
    QuantityError,
    load,
    separated,
)

ROOT = Path(__file__).resolve().parents[2]
TABLE = """M,N,provider,unit,median,p20,p80
1,256,triton,GB/s,200,190,210
1,256,torch,GB/s,100,90,110
1,1024,triton,GB/s,800,790,810
1,1024,torch,GB/s,100,90,110
2,1024,triton,GB/s,500,490,510
2,1024,"torch, one launch",GB/s,250,240,260
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "speed.csv").write_text(TABLE)
    (tmp_path / "page-values.csv").write_text("name,unit,value\nlargest error,,0.5\nsteps,,4\n")
    return tmp_path


def files_in(folder):
    """All files in *folder*, as a recording lists them."""
    return RecordedFiles(folder, frozenset(path.name for path in folder.iterdir()))


def value(folder, text, **others):
    definitions = {name: Definition(value=other) for name, other in others.items()}
    return Numbers(files_in(folder), "page", definitions | {"x": Definition(value=text)})["x"].value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("geomean(speed: triton / torch)", 4.0),
        ("max(speed: triton)", 800),
        ("min(speed: triton; N >= 1024)", 500),
        ("only(speed: triton / torch; N = 256 and M = 1)", 2),
        ("only(speed: triton / 'torch, one launch')", 2),
        ("mean(speed: torch)", 100),
        ("value(steps) * 2 + value('largest error')", 8.5),
        ("(1 - 1 / faster) * 100", 75),
    ],
)
def test_a_number_is_computed_from_the_recorded_rows(folder, text, expected):
    assert value(folder, text, faster="geomean(speed: triton / torch)") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        ("4310", "4310"),
        ("16384", "16,384"),
        ("-1234567.5", "-1,234,567.5"),
        ("0.980", "0.980"),
        ("141000000000000", "1.41 × 10¹⁴"),
    ],
)
def test_long_numbers_have_separators(number, shown):
    assert separated(number) == shown


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("max(speed: triton)", "GB/s"),
        ("geomean(speed: triton / torch)", "times"),
        ("100 * min(speed: triton / torch)", "%"),
        ("value('largest error')", ""),
        ("value(rate)", "TFLOPS"),
        ("max(speed: triton) - min(speed: triton)", ""),
    ],
)
def test_a_quantity_has_the_unit_of_its_rows(folder, text, unit):
    with (folder / "page-values.csv").open("a") as file:
        file.write("rate,TFLOPS,700\n")
    assert Numbers(files_in(folder), "page", {"x": Definition(value=text)}).unit_of("x") == unit


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("geomean(gone: triton)", "lists no gone.csv"),
        ("geomean(speed: cublas)", "has no provider 'cublas'"),
        ("geomean(speed: triton; N = 3)", "has no such rows"),
        ("only(speed: triton)", "has 3 such rows, not one"),
        ("max(speed: triton; K > 1)", "no column 'K'; there: M, N"),
        ("value(nothing)", "has no row 'nothing'"),
        ("geomean(speed)", "expected FILE: PROVIDER"),
        ("1 / (value(steps) - 4)", "division by zero"),
        ("__import__('os')", "cannot compute"),
        ("other", "page.other is not in numbers.toml; there: x"),
        ("x + 1", "page.x depends on itself"),
        ("_term_0", "index out of range"),
        ("1" + "+1" * 5000, "recursion"),
    ],
)
def test_a_number_that_cannot_be_computed_says_why(folder, text, reason):
    with pytest.raises(QuantityError, match="page") as error:
        value(folder, text)
    assert reason in str(error.value)


def test_a_shown_value_never_contradicts_its_limit(folder):
    near = Definition(value="0.7004", at_least=0.7)
    broken = Definition(value="0.69996", at_least=0.7)
    numbers = Numbers(files_in(folder), "page", {"near": near, "broken": broken})
    assert (numbers["near"].text, numbers["near"].held) == ("0.7004", True)
    assert (numbers["broken"].text, numbers["broken"].held) == ("0.69996", False)


@pytest.mark.parametrize(
    ("text", "more", "shown"),
    [
        ("min(speed: triton) / 7", {}, "28.6"),
        ("min(speed: triton / exact)", {}, "3.00"),
        ("100 * min(speed: triton / exact)", {}, "300"),
        ("max(speed: triton / exact)", {}, "8.89"),
        ("100*max(speed: triton / exact; N = 1024)", {}, "889"),
        ("only(speed: triton / exact; M = 2)", {}, "3.01"),
        ("only(speed: triton / exact; M = 2)", {"rounded": "down"}, "3.00"),
        ("min(speed: triton / exact)", {"rounded": "nearest"}, "3.01"),
        ("min(speed: triton / exact)", {"at_least": 3}, "3.006"),
        ("min(speed: triton / exact)", {"at_least": 3.0055}, "3.006"),
        ("100 * min(speed: odd / triton)", {}, "94.7"),
        ("0 - 94.685", {"rounded": "down"}, "-94.7"),
        ("value('largest error') - 0.001", {"rounded": "up"}, "0.499"),
        ("value('largest error') - 0.0006", {"rounded": "up"}, "0.500"),
        ("99.97", {"rounded": "up"}, "100"),
        ("0", {"rounded": "up"}, "0.00"),
    ],
)
def test_a_minimum_is_rounded_down_and_a_maximum_up(folder, text, more, shown):
    with (folder / "speed.csv").open("a") as file:
        file.write("1,256,exact,GB/s,50,50,50\n1,1024,exact,GB/s,90,90,90\n")
        file.write("2,1024,exact,GB/s,166.33,166,167\n2,1024,odd,GB/s,473.5,473,474\n")
    x = Definition(value=text, **more)
    assert Numbers(files_in(folder), "page", {"x": x})["x"].text == shown


@pytest.mark.parametrize(
    "text",
    [
        "[page.x]\nvalue = 3",
        "[page.x]\nvalue = '1'\nleast = 2",
        "[page.x",
        "[page.'a b']\nvalue='1'",
    ],
)
def test_a_wrong_file_of_numbers_is_one_clear_error(tmp_path, text):
    path = tmp_path / "numbers.toml"
    path.write_text(text)
    with pytest.raises(QuantityError, match=r"numbers\.toml"):
        load(path)


def test_a_count_is_neither_rounded_nor_given_decimals(folder):
    (folder / "page-values.csv").write_text(
        "name,unit,value\nlonger,elements,8388608\nanswers,different results,20\nrate,GB/s,20\n"
    )
    names = ("longer", "answers", "rate")
    definitions = {name: Definition(value=f"value({name})") for name in names}
    numbers = Numbers(files_in(folder), "page", definitions)
    assert [numbers[name].text for name in names] == ["8,388,608", "20", "20.0"]


def test_the_size_from_which_the_gpu_needs_longer_is_a_count():
    found = {}
    for file in ROOT.glob("recordings/*/*/tutorials/*/*-values.csv"):
        page = file.name.removesuffix("-values.csv")
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
            if row["name"].startswith("GPU longer from"):
                x = Definition(value=f"value('{row['name']}')")
                shown = Numbers(files_in(file.parent), page, {"x": x})["x"].text
                found[str(file)] = shown == separated(row["value"])
    assert found
    assert all(found.values()), found


def test_a_number_of_another_release_comes_from_a_recording_of_the_same_code(tmp_path, monkeypatch):
    keys = {}
    checkout = tmp_path / "triton-gallery"  # a clone's usual name
    folders = {release: checkout / f"triton-{release}" / "page" for release in ("3.6.0", "3.9.0")}
    for release, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / "speed.csv").write_text(TABLE.replace("800", release.replace(".", "")))
        keys[folder] = "one"
    monkeypatch.setattr(
        "triton_site.numbers.quantities.recording.load",
        lambda folder: types.SimpleNamespace(
            key=keys[folder], variant=folder.parent.name, files={"speed.csv": ""}
        ),
    )
    ratio = (
        "only(speed: triton; N = 1024 and M = 1) / only(speed@3.6.0: triton; N = 1024 and M = 1)"
    )
    assert value(folders["3.9.0"], ratio) == 390 / 360
    keys[folders["3.6.0"]] = "another"
    for text in (ratio, ratio.replace("3.6.0", "3.7.0")):  # of other code; none
        with pytest.raises(QuantityError, match=r"record it with 3\.[67]\.0"):
            value(folders["3.9.0"], text)


@pytest.mark.parametrize("text", ["geomean(speed: triton)", "value(steps)"])
def test_a_file_that_the_recording_does_not_list_does_not_exist(folder, text):
    """Nothing says that it is what was recorded."""
    numbers = Numbers(RecordedFiles(folder, frozenset()), "page", {"x": Definition(value=text)})
    with pytest.raises(QuantityError, match="lists no"):
        numbers["x"]
