"""The newest release of Triton: what it made faster or slower is shown, and noise is not."""

import statistics
from types import SimpleNamespace

import pytest

from triton_site.numbers.releases import changed, without_changes


def recorded(folder, rates):
    folder.mkdir()
    rows = "".join(f"{n},triton,GB/s,{r},{0.99 * r},{1.01 * r}\n" for n, r in enumerate(rates))
    (folder / "b.csv").write_text(f"N,provider,unit,median,p20,p80\n{rows}")
    return SimpleNamespace(folder=folder, content=SimpleNamespace(data=["b.csv", "notes.txt"]))


@pytest.mark.parametrize(
    ("ratios", "shown"),
    [
        ((0.9, 0.9, 0.9), True),
        ((1.1, 1.2, 1.1), True),
        ((1.0, 0.05, 1.0), False),  # one noisy measurement
        ((0.985, 0.985, 0.985), False),
        ((1.015, 1.015, 1.015), False),
        ((0.8, 0.9, 1.4), False),
    ],
)
def test_a_change_is_shown_and_one_size_alone_is_noise(tmp_path, ratios, shown):
    older = recorded(tmp_path / "old", [1000.0] * 3)
    found = list(changed(recorded(tmp_path / "new", [1000 * ratio for ratio in ratios]), older))
    assert bool(found) is shown
    for change in found:
        assert change.ratio == pytest.approx(statistics.geometric_mean(ratios))
        assert change.spread == pytest.approx(0.02)


def test_one_release_alone_is_not_called_unchanged():
    assert without_changes({"3.9.0"}) == "Only Triton 3.9.0 has been recorded."
    assert without_changes({"3.6.0", "3.9.0"}) == "No change is larger than the spread."
