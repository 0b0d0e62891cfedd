"""The newest release of Triton: what it made slower is marked, and noise is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from triton_site.numbers.releases import changed


def recorded(folder, rates):
    folder.mkdir()
    rows = "".join(f"{n},triton,GB/s,{r},{0.99 * r},{1.01 * r}\n" for n, r in enumerate(rates))
    (folder / "b.csv").write_text(f"N,provider,unit,median,p20,p80\n{rows}")
    return SimpleNamespace(folder=folder, content=SimpleNamespace(data=["b.csv", "notes.txt"]))


@pytest.mark.parametrize(
    ("ratios", "lost"),
    [
        ((0.9, 0.9, 0.9), True),
        ((1.0, 0.05, 1.0), False),  # one noisy measurement
        ((0.98, 0.98, 0.98), False),
        ((0.8, 0.9, 1.3), False),
    ],
)
def test_a_loss_is_marked_and_one_size_alone_is_noise(tmp_path, ratios, lost):
    older = recorded(tmp_path / "old", [1000.0] * 3)
    (change,) = changed(recorded(tmp_path / "new", [1000 * ratio for ratio in ratios]), older)
    assert change.lost is lost
    assert change.spread == pytest.approx(0.02)
