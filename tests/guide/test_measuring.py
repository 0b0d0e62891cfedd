"""Chapter 4, in the interpreter: its kernels, and the helpers that its numbers go through."""

import csv
import math
import os
import random
import runpy
from contextlib import nullcontext
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

SCRIPT = Path(__file__).parents[2] / "guide" / "chapter-4" / "measuring.py"

positive = st.floats(1e-6, 1e6)


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    """Return the names that the script leaves behind, run without a GPU in an empty folder."""
    folder = tmp_path_factory.mktemp("measuring")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MPLBACKEND", "Agg")
        # Triton reads this when a kernel is decorated and again when it is launched, so it stays.
        os.environ["TRITON_INTERPRET"] = "1"
        names = runpy.run_path(str(SCRIPT))
    assert not list(folder.iterdir()), "no timings without a GPU, so no files"
    return names


def random_vectors(count, n, seed):
    return torch.randn(count, n, generator=torch.Generator().manual_seed(seed))


# --- kernels --------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(n=st.integers(0, 5000), seed=st.integers(0, 2**31))
def test_add_equals_the_rounded_sum(chapter, n, seed):
    x, y = random_vectors(2, n, seed)
    out = torch.full((n + 3,), math.nan)
    chapter["add"](x, y, out[:n])
    torch.testing.assert_close(out[:n], (x.double() + y.double()).float(), rtol=0, atol=0)
    assert out[n:].isnan().all(), "written past the end"


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 3000), k=st.integers(0, 40), seed=st.integers(0, 2**31))
def test_fma_agrees_with_float64(chapter, n, k, seed):
    (x,) = random_vectors(1, n, seed)
    out = torch.full((n + 3,), math.nan)
    chapter["fma"](x, out[:n], k)
    expected = x.double()
    for _ in range(k):
        expected = expected * (-1 + 2**-10) + 0.125
    # At most two roundings a step, of values below 8.
    torch.testing.assert_close(out[:n].double(), expected, rtol=0, atol=max(k, 1) * 2**-21)
    assert out[n:].isnan().all(), "written past the end"


def test_fma_keeps_values_apart(chapter):
    """Data that become equal would draw less power, and run faster, than those of a real kernel."""
    x = torch.linspace(-2, 2, 64)
    out = torch.empty_like(x)
    chapter["fma"](x, out, 256)
    assert len(out.unique()) == len(x)
    assert 0.5 < out.std() / x.std() <= 1


def test_a_new_kernel_is_new_each_time(chapter):
    kernels = chapter["new_kernel"](), chapter["new_kernel"]()
    assert kernels[0] is not kernels[1]
    assert len(chapter["launch_times"](kernels[0], 2)) == 2


def test_the_cache_folder_is_put_back(tmp_path, monkeypatch, chapter):
    assert os.environ.get("TRITON_CACHE_DIR") == chapter["cache_before"]


# --- counting -------------------------------------------------------------------------------------


@given(n=st.integers(1, 2**34), k=st.integers(1, 4096))
def test_work(chapter, n, k):
    assert chapter["add_bytes"](n) == 3 * n * 4
    flops, n_bytes = chapter["fma_work"](n, k)
    assert flops / n_bytes == pytest.approx(k / 4)


@pytest.mark.parametrize(("m", "size"), [(3, 2), (8, 4)])
def test_matmul_work_counts_every_multiplication(chapter, m, size):
    operations = sum(2 for _ in range(m) for _ in range(m) for _ in range(m))
    assert chapter["matmul_flops"](m) == operations
    assert chapter["matmul_work"](m, size) == (operations, 3 * m * m * size)


@given(ms=st.lists(positive, min_size=1, max_size=50), work=st.integers(1, 2**40))
def test_rates_are_quantiles_of_rates(chapter, ms, work):
    median, p20, p80 = chapter["rates"](torch.tensor(ms), work)
    every = sorted(work / t / 1e6 for t in torch.tensor(ms).double().tolist())
    assert every[0] * (1 - 1e-9) <= p20 <= median * (1 + 1e-9)
    assert median <= p80 * (1 + 1e-9) <= every[-1] * (1 + 2e-9)
    if len(every) % 2:
        assert median == pytest.approx(every[len(every) // 2])


def test_rates_have_the_unit_of_10_to_the_9(chapter):
    """12 GB in 3 ms are 4000 GB/s."""
    assert chapter["rates"](torch.tensor([3.0]), 12e9) == pytest.approx([4000] * 3)


@given(bandwidth=positive, peak=positive, intensity=positive)
def test_a_roofline_has_one_ridge(chapter, bandwidth, peak, intensity):
    attainable = chapter["attainable"]
    rate = attainable(intensity, bandwidth, peak)
    assert rate <= peak
    assert rate <= bandwidth * intensity
    assert rate == (peak if intensity >= peak / bandwidth else pytest.approx(bandwidth * intensity))


# --- statistics -----------------------------------------------------------------------------------


@given(values=st.lists(positive, min_size=1, max_size=40))
def test_statistics_are_those_of_each_row(chapter, values):
    rows = torch.tensor([values, values[::-1]], dtype=torch.float64)
    expected = {"median": sorted(values), "mean": sum(values) / len(values), "minimum": min(values)}
    middle = expected["median"][(len(values) - 1) // 2 : len(values) // 2 + 1]
    expected["median"] = sum(middle) / len(middle)
    for name, statistic in chapter["STATISTICS"].items():
        assert statistic(rows).tolist() == pytest.approx([expected[name]] * 2)


@given(n=st.integers(1, 20), length=st.integers(1, 100))
def test_resampled_draws_from_what_there_is(chapter, n, length):
    timings = torch.arange(1, length + 1, dtype=torch.float64)
    drawn = chapter["resampled"](timings, n, lambda rows: rows, times=50)
    assert drawn.shape == (50, n)
    assert set(drawn.flatten().tolist()) <= set(timings.tolist())
    again = chapter["resampled"](timings, n, lambda rows: rows, times=50)
    assert torch.equal(drawn, again), "the page should not change for another reason than the GPU"


def test_resampled_means_scatter_as_they_must(chapter):
    """The scatter of a mean falls with the square root of the number of timings."""
    timings = 100 + torch.randn(2000, generator=torch.Generator().manual_seed(1)).double()
    one, many = (
        chapter["width"](chapter["resampled"](timings, n, chapter["mean"])) for n in (1, 100)
    )
    assert one / many == pytest.approx(10, rel=0.1)


@given(n=st.integers(1, 9), length=st.integers(9, 60))
def test_in_a_row_leaves_out_the_rest(chapter, n, length):
    timings = torch.arange(length, dtype=torch.float64)
    rows = chapter["in_a_row"](timings, n, lambda rows: rows)
    assert rows.shape == (length // n, n)
    assert rows.flatten().tolist() == list(range(length // n * n))


def test_in_a_row_shows_drift_that_resampling_hides(chapter):
    timings = torch.linspace(100, 120, 1000, dtype=torch.float64)
    ((_, median, _, _, in_a_row),) = chapter["widths"](timings, (50,))
    assert in_a_row > 2 * median


def test_width(chapter):
    values = torch.linspace(0, 200, 2001, dtype=torch.float64)
    assert chapter["width"](values) == pytest.approx(0.9 * 200 / 100)
    assert chapter["width"](torch.full((9,), 3.0)) == 0


@given(values=st.lists(positive, min_size=1, max_size=40))
def test_summary(chapter, values):
    found = chapter["summary"](torch.tensor(values, dtype=torch.float64))
    assert list(found) == ["minimum", "p20", "median", "mean", "p80", "maximum"]
    assert found["minimum"] == min(values)
    assert found["maximum"] == max(values)
    ordered = [found[name] for name in ("minimum", "p20", "median", "p80", "maximum")]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(ordered))


def test_a_few_disturbed_timings_move_the_mean_and_not_the_median(chapter):
    quiet = torch.full((100,), 7.0, dtype=torch.float64)
    disturbed = quiet.clone()
    disturbed[::20] = 100
    found = chapter["summary"](disturbed)
    assert found["median"] == found["p20"] == found["p80"] == found["minimum"] == 7
    assert found["mean"] > 11


# --- the loop, on a made-up GPU -------------------------------------------------------------------


class MadeUpGpu:
    """A queue that does at once what it is asked for, and a clock that calls move on."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def Event(self, enable_timing):  # noqa: N802
        assert enable_timing
        return MadeUpEvent(self)

    def synchronize(self):
        self.log.append("synchronize")

    def work(self, name, ms):
        self.log.append(name)
        self.now += ms


class MadeUpEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.at = self.gpu.now

    def elapsed_time(self, end):
        assert self.gpu.log[-1] == "synchronize", "read before the GPU has got there"
        return end.at - self.at


@pytest.fixture
def gpu(chapter, monkeypatch):
    gpu = MadeUpGpu()
    names = chapter["measure"].__globals__
    made_up = {"GPU_NAME": "a made-up GPU", "L2_BYTES": 2**25, "other": torch.zeros(1)}
    for name, value in {"gpu": gpu, **made_up}.items():
        monkeypatch.setitem(names, name, value)
    return gpu


def test_measure_times_the_call_and_nothing_else(chapter, gpu):
    calls = {"A": lambda: gpu.work("A", 3), "B": lambda: gpu.work("B", 5)}
    found = chapter["measure"](calls, 50, before=lambda: gpu.work("before", 1000))
    assert found["A"].tolist() == [3] * 50
    assert found["B"].tolist() == [5] * 50


def test_measure_takes_random_turns_after_a_warm_up(chapter, gpu):
    calls = {name: partial(gpu.work, name, 1) for name in "ABC"}
    chapter["measure"](calls, 100, before=partial(gpu.work, "-", 1))
    log = "".join(entry for entry in gpu.log if entry != "synchronize")
    assert log.startswith("ABC-"), "each is called once before anything is timed"
    assert set(log[3::2]) == {"-"}, "something goes before each timed call"
    rounds = [log[4::2][i : i + 3] for i in range(0, 300, 3)]
    assert len(rounds) == 100
    assert {"".join(sorted(r)) for r in rounds} == {"ABC"}, "each once a round"
    assert len(set(rounds)) == 6, "in any order"


def test_an_a_over_a_test_sees_drift(chapter, gpu):
    """A GPU that gets slower with each call: one by one it looks like a difference."""

    def slower():
        gpu.work("A", 1 + 0.01 * len(gpu.log))

    one_by_one = chapter["a_over_a"](chapter["one_by_one"], slower, 20, 3, rest=0)
    in_turns = chapter["a_over_a"](chapter["in_turns"], slower, 20, 3, rest=0)
    assert max(one_by_one) < 0.95
    assert min(in_turns) > 0.95


@pytest.mark.parametrize(("share", "visits"), [(0, 0), (1, 200), (0.05, pytest.approx(10, abs=9))])
def test_the_neighbour_comes_now_and_then(chapter, gpu, monkeypatch, share, visits):
    stream = SimpleNamespace(wait_stream=lambda waited_for: gpu.log.append(waited_for))
    monkeypatch.setattr(gpu, "Stream", lambda: stream, raising=False)
    monkeypatch.setattr(gpu, "current_stream", lambda: "neighbour", raising=False)
    monkeypatch.setattr(gpu, "stream", lambda stream: nullcontext(), raising=False)
    random.seed(0)
    before = chapter["with_neighbour"](share)
    for _ in range(200):
        before()
    assert gpu.log.count("neighbour") == visits


def test_watch_never_runs_far_ahead(chapter, gpu, monkeypatch):
    monkeypatch.setattr(MadeUpEvent, "synchronize", lambda self: gpu.log.append("waited"), False)
    monkeypatch.setitem(chapter["watch"].__globals__, "sensors", lambda: (1000, 200.0))
    clock = SimpleNamespace(perf_counter=count(0, 0.25).__next__)
    monkeypatch.setitem(chapter["watch"].__globals__, "time", clock)
    rows = chapter["watch"](lambda: gpu.work("A", 2), 1.5, chunk=3)
    assert len(rows) == 5
    assert {row[1:] for row in rows} == {(2, 1000, 200.0)}
    assert gpu.log.count("waited") == len(rows) - 1


def test_sensors_are_unknown_without_a_gpu(chapter):
    assert all(math.isnan(value) for value in chapter["sensors"]())


def test_first_calls_in_microseconds(chapter, gpu):
    assert chapter["first_calls"](lambda: gpu.work("A", 2), 5, rest=0) == [2000] * 5


# --- figures --------------------------------------------------------------------------------------


@pytest.fixture
def drawn(gpu, monkeypatch):
    """Return the figures that have been shown."""
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))
    yield figures
    plt.close("all")


def check(drawn):
    (figure,) = drawn
    assert figure.get_figwidth() == 7
    title = figure.get_suptitle() or figure.axes[0].get_title()
    assert "a made-up GPU" in title
    assert any(unit in title for unit in ("GB/s", "µs", "TFLOPS"))
    assert all(ax.get_ylabel() for ax in figure.axes)
    assert figure.axes[-1].get_xlabel()


def test_figure_of_the_cache(chapter, drawn):
    rows = [(n, p, "GB/s", 3.0, 2.0, 4.0) for n in (64, 128) for p in ("hot", "cold", "one call")]
    chapter["plot_cache"](rows)
    check(drawn)


def test_figure_of_the_spread(chapter, drawn):
    timings = torch.linspace(5, 9, 500, dtype=torch.float64)
    rows = {name: chapter["widths"](timings, chapter["COUNTS"]) for name in ("quiet", "disturbed")}
    chapter["plot_spread"](timings, rows)
    check(drawn)


@pytest.mark.parametrize("panels", [1, 3])
def test_figure_of_the_clocks(chapter, drawn, panels):
    rows = [(0.1 * i, 600.0, 1500.0, 700.0) for i in range(9)]
    labels = ["TFLOPS", "clock, MHz", "power, W"][:panels]
    chapter["plot_clocks"]({"random numbers": rows, "zeros": rows}, labels)
    assert len(drawn[0].axes) == panels
    check(drawn)


def test_figure_of_the_roofline(chapter, drawn):
    points = [(8, 4, "fma", "TFLOPS", 1.0, 1.0, 1.0), (1, 12, "add", "TFLOPS", 0.1, 0.1, 0.1)]
    chapter["plot_roofline"](2.0, {"a": 10, "b": 100}, points, "Roofline, TFLOPS, a made-up GPU")
    check(drawn)
    ends = [line.get_xydata()[-1].tolist() for line in drawn[0].axes[0].lines[:3]]
    assert ends[0] == [50, 100], "the slope ends at the highest ridge"


# --- what is printed and written ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.0, "1230"),
        (999.6, "1000"),
        (12.0, "12.0"),
        (1.005, "1.00"),
        (0.012345, "0.0123"),
        (-3.14159, "-3.14"),
        (0.0, "0.0"),
        (math.nan, "nan"),
        (2**26, "67108864"),
        ("add", "add"),
    ],
)
def test_three_significant_figures(chapter, value, text):
    assert chapter["three"](value) == text


@given(value=st.floats(1e-4, 1e6))
def test_three_rounds_and_does_no_more(chapter, value):
    assert float(chapter["three"](value)) == pytest.approx(value, rel=0.0051)


def test_saved_rows_are_no_benchmark_of_the_performance_page(chapter, tmp_path, monkeypatch):
    """They can be compared with an earlier recording; experiments are not rates of our kernels."""
    from gallery_recorder.store import compare
    from triton_site.numbers import performance

    monkeypatch.chdir(tmp_path)
    rows = [(2**12, "hot", "GB/s", 3.0, 2.0, 4.0), (2**12, "cold", "GB/s", 2.0, 1.0, 3.0)]
    chapter["save"]("cache", ["size"], rows)
    (path,) = tmp_path.iterdir()
    assert path.name == "measuring-cache.csv"
    with open(path) as file:
        header = next(csv.reader(file))
    assert header == ["size", "provider", "unit", "median", "p20", "p80"]
    assert compare.read(path)["hot"]["size=4096"].median == 3
    assert performance.compare_providers(path)[1] == []


def test_show_has_no_trailing_digits(chapter, capsys):
    chapter["show"]([("add", 4096, 1234.5), ("copy", 1, 0.5)], ["call", "size", "GB/s"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["add", "4096", "1230"]
    assert lines[3].split() == ["copy", "1", "0.500"]
    assert len({len(line) for line in lines}) == 1
