"""Plots answer: each line or bar that a benchmark was drawn as is found, and nothing else is."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gallery_recorder.store import recording
from triton_site.pages import figures

ROOT = Path(__file__).resolve().parents[2]
HEAD = "M,N,provider,unit,median,p20,p80\n"
SIZES = (64, 100, 256, 781, 4096)
RATES = {"triton": (3.0, 9.5, 40.25, 390.0, 3900.0), "torch": (2.0, 9.0, 41.0, 300.0, 3000.0)}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A recording of one benchmark; its figure is to be drawn."""
    rows = [
        f"4096,{size},{name},GB/s,{rate},{rate * 0.9},{rate * 1.1}\n"
        for name, rates in RATES.items()
        for size, rate in zip(SIZES, rates, strict=True)
    ]
    (tmp_path / "rates.csv").write_text(HEAD + "".join(rows))
    (tmp_path / "accuracy.csv").write_text("function,ulp\nexp,2\n")
    return tmp_path


def draw(folder: Path, scale: str, bars: bool = False, off: float = 1.0) -> Path:
    plt = pytest.importorskip("matplotlib.pyplot")
    fig, ax = plt.subplots()
    for number, (name, rates) in enumerate(RATES.items()):
        values = [
            rate * (off if size == 256 else 1) for size, rate in zip(SIZES, rates, strict=True)
        ]
        style = {"color": f"C{number}", "label": f"our {name}"}
        if bars:
            ax.bar([k + 0.3 * number for k in range(len(SIZES))], values, 0.3, **style)
        else:
            ax.plot(SIZES, values, **style, linestyle=("-", "--")[number])
            ax.set(xscale=scale, yscale=scale)
    ax.plot([64, 128, 300, 700, 4096], [5, 5.5, 6, 7, 8], label="something else", color="C7")
    ax.legend()
    ax.set_title("The title")
    path = folder / "figure.svg"
    fig.savefig(path)
    plt.close(fig)
    return path


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_lines_have_their_names_sizes_and_rates(made: Path, scale: str) -> None:
    found = figures.rates_of(made, draw(made, scale))
    (axes,) = found["axes"]
    assert (axes["label"], axes["unit"], axes["title"]) == ("N", "GB/s", "The title")
    assert [series[0] for series in axes["series"]] == ["our triton", "our torch"]
    for series, rates in zip(axes["series"], RATES.values(), strict=True):
        assert [point[2:4] for point in series[3]] == [
            [size, rate] for size, rate in zip(SIZES, rates, strict=True)
        ]
        left, top, right, bottom = axes["box"]
        assert all(left < x < right and top < y < bottom for x, y, *_ in series[3])


def test_bars_have_them_too(made: Path) -> None:
    (axes,) = figures.rates_of(made, draw(made, "linear", bars=True))["axes"]
    assert [series[0] for series in axes["series"]] == ["our triton", "our torch"]
    assert [point[2] for point in axes["series"][0][3]] == [f"N = {size}" for size in SIZES]


def test_a_line_that_is_off_by_a_hundredth_is_another(made: Path) -> None:
    assert figures.rates_of(made, draw(made, "linear", off=1.01)) is None


def test_what_is_no_plot_has_no_rates(made: Path) -> None:
    for text in ("<svg", "<svg/>", '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>'):
        (made / "other.svg").write_text(text)
        assert figures.rates_of(made, made / "other.svg") is None
    (made / "rates.csv").write_text(HEAD + "1,2,triton,GB/s,nothing,1,1\n")
    assert figures.rates_of(made, draw(made, "linear")) is None


def test_each_recorded_benchmark_with_a_plot_answers() -> None:
    """Rates of every tutorial that draws them, as its files have them."""
    silent = []
    for folder in recording.all_recordings(ROOT / "recordings"):
        if folder.parent.name.startswith("chapter-"):
            continue  # what they draw need not be of their files
        found = [
            rates
            for picture in sorted(folder.glob("images/*.svg"))
            if (rates := figures.rates_of(folder, picture))
        ]
        shown = {
            (str(point[3]), str(point[4]), str(point[5]))
            for rates in found
            for axes in rates["axes"]
            for series in axes["series"]
            for point in series[3]
        }
        measured = {
            tuple(str(float(row[name])) for name in ("median", "p20", "p80"))
            for path in folder.glob("*.csv")
            for row in csv.DictReader(path.open(newline=""))
            if "p80" in row
        }
        assert shown <= measured, folder
        if measured and not shown and any(folder.glob("images/*.svg")):
            silent.append(folder.name)
    assert silent == []
