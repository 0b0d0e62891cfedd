"""The committed recordings of the reference GPU reach what the tutorials promise.

The numbers are ratios within one recorded run. Nothing is timed here: this reads CSV files.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from gallery_recorder.store import recording
from triton_site.probes import REFERENCE_DEVICE

ROOT = Path(__file__).parents[2] / "recordings" / REFERENCE_DEVICE


def rates(tutorial: str, name: str, size: str) -> dict[str, dict[int, float]]:
    """The median of each provider, by size."""
    found: dict[str, dict[int, float]] = {}
    with open(ROOT / tutorial / name, newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["provider"], {})[int(row[size])] = float(row["median"])
            assert float(row["p20"]) <= float(row["median"]) <= float(row["p80"])
    return found


def ratios(ours: dict[int, float], theirs: dict[int, float]) -> dict[int, float]:
    assert ours.keys() == theirs.keys()
    return {size: ours[size] / theirs[size] for size in ours}


def geometric_mean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def test_vector_add():
    found = rates("01-vector-add", "vector-add-performance.csv", "size")
    assert sorted(found["triton"]) == [2**i for i in range(12, 28)]
    assert geometric_mean(ratios(found["triton"], found["torch"]).values()) >= 1.00
    assert ratios(found["triton"], found["copy"])[2**27] >= 0.98


def test_softmax():
    found = rates("02-fused-softmax", "softmax-performance.csv", "N")
    assert sorted(found["triton"]) == [128 * i for i in range(2, 100)]
    against_torch = ratios(found["triton"], found["torch"]).values()
    assert min(against_torch) >= 0.97
    assert geometric_mean(against_torch) >= 1.65
    against_copy = ratios(found["triton"], found["copy"])
    assert min(against_copy.values()) >= 0.80
    assert min(ratio for n, ratio in against_copy.items() if n >= 2048) >= 0.92


def test_matmul():
    found = rates("03-matrix-multiplication", "matmul-performance-fp16.csv", "N")
    assert sorted(found["triton"]) == [128 * i for i in range(2, 33)]
    against_cublas = ratios(found["triton"], found["cublas"]).values()
    assert geometric_mean(against_cublas) >= 0.96
    assert min(against_cublas) >= 0.85
    fused = ratios(found["triton + leaky_relu"], found["cublas + leaky_relu"]).values()
    assert geometric_mean(fused) >= 1.05


def test_dropout():
    found = rates("04-low-memory-dropout", "dropout-performance.csv", "size")
    assert sorted(found["triton"]) == [2**i for i in range(20, 29)]
    against_torch = ratios(found["triton"], found["torch"])
    assert min(ratio for n, ratio in against_torch.items() if n >= 2**24) >= 1.35
    assert ratios(found["triton"], found["copy"])[2**28] >= 0.97


def test_time_to_record():
    seconds = [
        recording.load(ROOT / name).run.seconds
        for name in (
            "01-vector-add",
            "02-fused-softmax",
            "03-matrix-multiplication",
            "04-low-memory-dropout",
        )
    ]
    assert sum(seconds) <= 90


@pytest.mark.parametrize("folder", sorted(p.parent for p in ROOT.rglob(recording.FILE_NAME)))
def test_recording_is_whole_and_says_where_it_was_made(folder):
    content = recording.load(folder)
    where = content.provenance
    assert recording.slug(where.device) == REFERENCE_DEVICE
    assert where.commit
    assert where.driver
    assert where.toolkit
    assert where.compute_capability
    assert where.before is not None
    assert where.after is not None
    # Tensor cores at full speed take all the power that the board may draw; heat is another matter.
    assert set(where.after.throttling) <= {"power cap"}
