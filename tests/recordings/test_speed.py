"""The committed recordings of the reference GPU reach what the tutorials promise.

The numbers are ratios within one recorded run. Nothing is timed here: this reads CSV files.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME, slug
from triton_site.probes import REFERENCE_DEVICE, SOFTWARE

ROOT = Path(__file__).parents[2] / "recordings" / REFERENCE_DEVICE
#: The reference release of Triton, which conf.py prefers.
TUTORIALS = ROOT / "triton-3.9.0" / "tutorials"


def rates(tutorial: str, name: str, *sizes: str) -> dict[str, dict[Any, float]]:
    """The median of each provider, by size; by a tuple where there are several."""
    found: dict[str, dict[Any, float]] = {}
    with open(TUTORIALS / tutorial / name, newline="") as file:
        for row in csv.DictReader(file):
            size = tuple(int(row[name]) for name in sizes)
            at = size if len(size) > 1 else size[0]
            found.setdefault(row["provider"], {})[at] = float(row["median"])
            assert float(row["p20"]) <= float(row["median"]) <= float(row["p80"])
    return found


def ratios(ours: dict[Any, float], theirs: dict[Any, float]) -> dict[Any, float]:
    """Ours over theirs, at the sizes of theirs: a peer may be measured at some only."""
    assert theirs.keys() <= ours.keys()
    return {size: ours[size] / theirs[size] for size in theirs}


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
    assert geometric_mean(against_torch) >= 1.6
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


@pytest.mark.parametrize(
    ("norm", "least_of_torch", "mean_of_compile", "least_of_copy"),
    [("layer", 1.0, 1.05, 0.86), ("rms", 1.0, 1.05, 0.88)],
)
def test_norms_forward(norm, least_of_torch, mean_of_compile, least_of_copy):
    found = rates("05-layer-norm", f"{norm}-norm-forward.csv", "N")
    assert sorted(found["triton"]) == [512 * i for i in range(2, 32)]
    assert min(ratios(found["triton"], found["torch"]).values()) >= least_of_torch
    assert geometric_mean(ratios(found["triton"], found["compile"]).values()) >= mean_of_compile
    against_copy = ratios(found["triton"], found["copy"])
    assert min(ratio for n, ratio in against_copy.items() if n >= 4096) >= least_of_copy


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_backward(norm):
    found = rates("05-layer-norm", f"{norm}-norm-backward.csv", "N")
    against_torch = ratios(found["triton"], found["torch"]).values()
    assert min(against_torch) >= 1.0
    assert geometric_mean(against_torch) >= 1.6
    assert geometric_mean(ratios(found["triton"], found["compile"]).values()) >= 1.4
    against_copy = ratios(found["triton"], found["copy"])
    assert geometric_mean(r for n, r in against_copy.items() if n >= 4096) >= 0.70


@pytest.mark.parametrize(
    ("way", "of_cudnn"), [("forward", {64: 1.0, 128: 0.95}), ("backward", {64: 0.80, 128: 0.70})]
)
def test_attention(way, of_cudnn):
    found = rates("06-fused-attention", f"attention-{way}.csv", "N", "head_dim", "causal")
    assert len(found["triton"]) == 24
    assert min(ratios(found["triton"], found["flash"]).values()) >= 1.05
    against_cudnn = ratios(found["triton"], found["cudnn"])
    for head_dim, least in of_cudnn.items():
        long = [r for (n, d, _), r in against_cudnn.items() if d == head_dim and n >= 1024]
        assert geometric_mean(long) >= least


def test_decoding():
    found = rates("solutions/06-decode", "decode-attention.csv", "batch", "N")
    assert min(ratios(found["triton"], found["cudnn"]).values()) >= 0.90


def test_gelu():
    found = rates("07-math-functions", "gelu-performance.csv", "size")
    assert min(ratios(found["triton"], found["copy"]).values()) >= 0.95


def test_grouped_products():
    sizes = "experts", "tokens", "K", "N", "skewed"
    found = rates("08-grouped-gemm", "grouped-gemm-performance.csv", *sizes)
    assert len(found["triton"]) == 10
    against_library = ratios(found["triton"], found["grouped_mm"]).values()
    assert min(against_library) >= 1.0
    assert geometric_mean(against_library) >= 1.15
    assert min(ratios(found["triton"], found["loop"]).values()) >= 0.97


def test_cross_entropy():
    found = rates("10-cross-entropy", "cross-entropy-performance.csv", "M", "V")
    assert min(ratios(found["triton"], found["compile"]).values()) >= 1.6
    assert min(ratios(found["triton"], found["copy"]).values()) >= 0.95


def test_time_to_record():
    names = ("01-vector-add", "02-fused-softmax", "03-matrix-multiplication", "03b-full-waves",
             "04-low-memory-dropout")  # fmt: skip
    assert sum(recording.load(TUTORIALS / name).run.seconds for name in names) <= 150


@pytest.mark.parametrize("folder", sorted(p.parent for p in ROOT.rglob(FILE_NAME)))
def test_recording_is_whole_and_says_where_it_was_made(folder):
    content = recording.load(folder)
    where = content.provenance
    assert slug(where.device) == REFERENCE_DEVICE
    assert where.commit
    assert where.gpu is not None
    assert where.gpu.driver
    assert where.gpu.compute_capability
    assert content.probe(SOFTWARE)["toolkit"]
    assert where.before is not None
    assert where.after is not None
    # Tensor cores at full speed take all the power that the board may draw; heat is another matter.
    assert set(where.after.throttling) <= {"power cap"}
