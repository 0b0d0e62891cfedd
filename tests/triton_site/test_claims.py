"""Claims are read and checked: a claim that fails on the reference stops a release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from gallery_recorder.project import galleries as engine_galleries
from gallery_recorder.store import recording
from gallery_recorder.store.benchmarks import BenchmarkError
from gallery_recorder.store.format import DECODER, encode
from tests import galleries
from triton_site.numbers import ceilings, claims
from triton_site.numbers.claims import Recorded
from triton_site.probes import REFERENCE

ROOT = Path(__file__).parents[2]
CLAIM = {
    "statement": "tiles beat rows", "value": 1.4, "at_least": 1.0, "at_most": None,
    "margin": 0.4, "spread": 0.01, "section": "Step 2: tiles", "held": True,
}  # fmt: skip
FALSE = {"value": 0.93, "margin": -0.07, "held": False}


def recorded(
    folder: Path, release: str = "3.9.0", device: str = "NVIDIA H200", **changes: object
) -> Recorded:
    folder.mkdir(exist_ok=True)
    (folder / "claims.json").write_text(json.dumps([CLAIM | changes]))
    content = SimpleNamespace(
        provenance=SimpleNamespace(device=device),
        probe=lambda name: {"triton": release},
        data=[path.name for path in folder.glob("*.csv")],
        gallery="tutorials",
        name="02-softmax",
    )
    return Recorded(folder, content)


def test_only_a_failure_on_the_newest_release_of_the_reference_stops_the_check(tmp_path):
    true = recorded(tmp_path / "a")
    (problem,) = claims.problems([recorded(tmp_path / "b", **FALSE)])
    assert "'tiles beat rows' does not hold on NVIDIA H200 with Triton 3.9.0: 0.93" in problem
    assert "where at least 1.00 is claimed" in problem
    assert claims.problems([true, recorded(tmp_path / "b", "3.6.0", **FALSE)]) == []
    assert claims.problems([true, recorded(tmp_path / "b", device="NVIDIA L4", **FALSE)]) == []
    assert claims.problems([recorded(tmp_path / "b", "3.10.0", **FALSE), true]) != []


@pytest.mark.parametrize(
    ("name", "unit", "rate", "possible"),
    [
        ("a.csv", "GB/s", 4300, True),
        ("a.csv", "GB/s", 5500, False),
        ("a.csv", "TB/s", 5.5, False),
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
    assert (claims.problems([recorded(tmp_path)]) == []) is possible
    assert ceilings.impossible(path, "Some GPU") == []
    path.write_text(f"N,provider,unit,median,p20,p80\n8,triton,{unit},nan,1,2\n")
    with pytest.raises(BenchmarkError, match=name):
        claims.problems([recorded(tmp_path)])


def test_make_check_fails_for_a_claim_that_fails_in_the_recording(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    only = galleries.FILES["01-vector-add"]  # to check all takes seconds
    plan = msgspec.structs.replace(galleries.PROJECT, examples=(only,))
    monkeypatch.setattr(engine_galleries, "read", lambda where: plan)
    folder = tmp_path / REFERENCE / "tutorials" / "01-vector-add"
    shutil.copytree(Path("recordings", REFERENCE, "tutorials", "01-vector-add"), folder)
    assert claims.main([str(tmp_path)]) == 0
    (folder / "claims.json").write_text(json.dumps([CLAIM | FALSE]))
    made = DECODER.decode((folder / "recording.json").read_bytes())
    files = made.files | {"claims.json": recording.digest(folder / "claims.json")}
    (folder / "recording.json").write_bytes(encode(msgspec.structs.replace(made, files=files)))
    assert claims.main([str(tmp_path)]) == 1
    assert f"{folder / 'claims.json'}: 'tiles beat rows' does not hold" in capsys.readouterr().err
