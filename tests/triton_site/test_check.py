"""`make check`: a rate above a ceiling, or a number that breaks its limit, stops a release."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from gallery_recorder.project import galleries as engine_galleries
from gallery_recorder.store.benchmarks import BenchmarkError
from tests import galleries
from triton_site.numbers import ceilings, measured
from triton_site.numbers.measured import above_ceilings
from triton_site.numbers.recorded import Recorded

ROOT = Path(__file__).parents[2]


def recorded(folder, gallery="tutorials"):
    content = SimpleNamespace(
        provenance=SimpleNamespace(device="NVIDIA H200"),
        data=[path.name for path in folder.glob("*.csv")],
        gallery=gallery,
    )
    return [Recorded(folder, content)]


@pytest.mark.parametrize(
    ("name", "unit", "rate", "possible"),
    [
        ("a.csv", "GB/s", 4300, True),
        ("a.csv", "GB/s", 5500, False),
        ("a.csv", "TB/s", 5.5, False),
        ("cross-entropy-a.csv", "GB/s", 5500, True),
        ("cross-entropy-a.csv", "GB/s", 7500, False),
        ("a.csv", "TFLOPS", 800, True),
        ("a.csv", "TFLOPS", 1400, False),
        ("fp8-a.csv", "TFLOPS", 1400, True),
        ("fp8-a.csv", "TFLOPS", 2400, False),
        ("a.csv", "ms", 1e6, True),
    ],
)
def test_rates_above_the_ceiling_of_the_device_stop_the_check(tmp_path, name, unit, rate, possible):
    path = tmp_path / name
    path.write_text(f"N,provider,unit,median,p20,p80\n8,triton,{unit},{rate},1,2\n")
    assert (above_ceilings(recorded(tmp_path)) == []) is possible
    assert above_ceilings(recorded(tmp_path, "chapter-4")) == []
    assert ceilings.impossible(path, "Some GPU") == []


def test_a_damaged_benchmark_stops_the_check(tmp_path):
    (tmp_path / "a.csv").write_text("N,provider,unit,median,p20,p80\n8,triton,GB/s,nan,1,2\n")
    with pytest.raises(BenchmarkError, match=r"a\.csv"):
        above_ceilings(recorded(tmp_path))


@pytest.mark.parametrize(("limit", "status"), [(9000, 0), (1, 1)])
def test_a_number_that_breaks_its_limit_stops_the_check(
    tmp_path, capsys, monkeypatch, limit, status
):
    monkeypatch.chdir(ROOT)
    only = galleries.FILES["01-vector-add"]  # to check all takes seconds
    plan = msgspec.structs.replace(galleries.PROJECT, examples=(only,))
    monkeypatch.setattr(engine_galleries, "read", lambda where: plan)
    value = f'{{ value = "max(vector-add-performance: triton)", at_most = {limit} }}'
    (tmp_path / "numbers.toml").write_text(f"[01-vector-add]\nrate = {value}\n")
    monkeypatch.setattr(measured, "FILE", tmp_path / "numbers.toml")
    assert measured.main([]) == status
    assert ("01-vector-add.rate is" in capsys.readouterr().err) is bool(status)
