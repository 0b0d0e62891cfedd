"""Claims are collected, shown and checked: what no longer holds stops a release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import msgspec
import pytest

from gallery_recorder.project import galleries as engine_galleries
from gallery_recorder.store import recording
from gallery_recorder.store.format import DECODER, encode
from tests import galleries
from tests.fixtures import two_devices
from triton_site.numbers import ceilings, claims
from triton_site.numbers.recorded import Recorded


def written(folder: Path, **changes: object) -> Path:
    claim = {
        "statement": "tiles beat rows", "value": 1.4, "at_least": 1.0, "at_most": None,
        "margin": 0.4, "spread": 0.01, "section": "Step 2: tiles", "held": True,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "claims.json").write_text(json.dumps([claim | changes]))
    return folder


def recorded(folder: Path, release: str = "3.9.0", device: str = "NVIDIA H200") -> Recorded:
    content = SimpleNamespace(
        provenance=SimpleNamespace(device=device),
        probe=lambda name: {"triton": release},
        run=SimpleNamespace(recorded="2026-11-21T18:00:00Z"),
        data=[path.name for path in folder.glob("*.csv")],
        gallery="tutorials",
    )
    return Recorded("getting-started/tutorials/02-softmax", "02-softmax", folder, content)


def test_a_claim_knows_where_it_stands(tmp_path):
    (claim,) = claims.collect([recorded(written(tmp_path / "a"))])
    assert (claim.page, claim.anchor) == (
        "getting-started/tutorials/02-softmax.html",
        "step-2-tiles",
    )
    assert (claim.device, claim.release, claim.kind, claim.limit) == (
        "NVIDIA H200", "3.9.0", "at least", 1.0,
    )  # fmt: skip


def test_the_file_fits_its_schema(tmp_path):
    found = claims.Claims(1, claims.collect([recorded(written(tmp_path / "a"))]))
    jsonschema.validate(msgspec.to_builtins(found), msgspec.json.schema(claims.Claims))


@pytest.mark.parametrize(
    "changes",
    [
        {"held": False},
        {"value": 0.9},
        {"at_most": 2.0},
        {"at_least": None},
        {"value": "fast"},
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(tmp_path, changes):
    with pytest.raises(claims.ClaimsError, match=r"claims\.json"):
        claims.read(written(tmp_path / "a", **changes) / "claims.json")


def test_a_failure_on_the_reference_stops_the_check(tmp_path):
    false = written(tmp_path / "a", value=0.93, margin=-0.07, held=False)
    (problem,) = claims.problems([recorded(false)])
    assert "'tiles beat rows' does not hold on NVIDIA H200 with Triton 3.9.0" in problem
    assert "0.93" in problem
    assert "at least 1" in problem


def test_a_failure_elsewhere_does_not(tmp_path):
    true = recorded(written(tmp_path / "a"))
    false = written(tmp_path / "b", value=0.93, margin=-0.07, held=False)
    assert claims.problems([true, recorded(false, "3.6.0")]) == []
    assert claims.problems([true, recorded(false, device="NVIDIA L4")]) == []
    assert claims.problems([recorded(false, "3.10.0"), true]) != []
    found = claims.collect([true, recorded(false, "3.6.0")])
    assert [claim.release for claim in claims.failures(found, true.docname)] == ["3.6.0"]


def test_the_newest_release_of_the_reference_device_comes_first(tmp_path):
    folder = written(tmp_path / "a")
    items = [recorded(folder, r, d) for r, d in [
        ("3.6.0", "NVIDIA H200"), ("3.9.0", "AMD Instinct MI300X"),
        ("3.10.0", "NVIDIA H200"), ("3.9.0", "NVIDIA H200"),
    ]]  # fmt: skip
    assert claims.places_of(claims.collect(items)) == [
        ("NVIDIA H200", "3.10.0"),
        ("NVIDIA H200", "3.9.0"),
        ("NVIDIA H200", "3.6.0"),
        ("AMD Instinct MI300X", "3.9.0"),
    ]


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
        ("a.csv", "GB/s", float("nan"), False),
        ("a.csv", "GB/s", 0, False),
    ],
)
def test_rates_that_no_device_reaches_are_refused(tmp_path, name, unit, rate, possible):
    path = tmp_path / name
    path.write_text(f"N,provider,unit,median,p20,p80\n8,triton,{unit},{rate},1,2\n")
    found = ceilings.impossible(path, "NVIDIA H200")
    assert (found == []) is possible
    assert all(f"{name}:2: triton" in problem for problem in found)
    assert (claims.problems([recorded(tmp_path)]) == []) is possible


def test_a_device_that_is_not_known_is_not_judged(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("N,provider,unit,median,p20,p80\n8,triton,GB/s,99999,1,2\n")
    assert ceilings.impossible(path, "Some GPU") == []
    assert ceilings.ceiling_of("NVIDIA H100 PCIe").memory == 2000
    assert ceilings.ceiling_of("NVIDIA H100 80GB HBM3").memory == 3350


def test_a_table_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("section,rate\nStep 1,9999999\n")
    assert ceilings.impossible(path, "NVIDIA H200") == []


def test_make_check_fails_for_a_claim_made_false_on_the_reference(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(two_devices.ROOT)
    only = galleries.FILES["01-vector-add"]  # to check all takes seconds
    plan = msgspec.structs.replace(galleries.PROJECT, examples=(only,))
    monkeypatch.setattr(engine_galleries, "read", lambda where: plan)
    source = Path("recordings", two_devices.REAL, "tutorials", "01-vector-add")
    reference = tmp_path / "nvidia-h200/triton-3.9.0/tutorials/01-vector-add"
    shutil.copytree(source, reference)
    assert claims.main([str(tmp_path)]) == 0
    (second,) = two_devices.make_second(tmp_path, ["01-vector-add"])  # where one fails, and may
    assert claims.main([str(tmp_path)]) == 0
    for name in ("claims.json", "recording.json"):
        shutil.copy(second.folder / name, reference)
    made = DECODER.decode((reference / "recording.json").read_bytes())
    real = recording.load(source)
    files = {name: recording.digest(reference / name) for name in made.files}
    made = msgspec.structs.replace(made, provenance=real.provenance, files=files)
    (reference / "recording.json").write_bytes(encode(made))
    capsys.readouterr()
    assert claims.main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "does not hold on NVIDIA H200 with Triton 3.9.0" in said
    assert str(reference / "claims.json") in said
