"""Chapter 4, in the interpreter: its kernels, and the functions that its numbers come from."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close


@pytest.fixture(scope="module")
def chapter(tutorial):
    return tutorial("measuring")


@pytest.fixture(scope="module")
def roofline(tutorial):
    return tutorial("roofline")


@pytest.mark.parametrize("n", [0, 1, 1023, 1025, 5003])
def test_add_and_fma_write_right_results_and_nothing_behind_them(chapter, roofline, n):
    x, y = torch.randn(2, n)
    out = torch.full((n + 3,), math.nan)
    chapter["add"](x, y, out[:n])
    assert_close(out[:n], (x.double() + y.double()).float(), rtol=0, atol=0)
    assert out[n:].isnan().all()
    k, expected = n % 40, x.double()
    roofline["fma"](x, out[:n], k)
    for _ in range(k):
        expected = expected * (-1 + 2**-10) + 0.125
    # At most two roundings of a value below 8 in each step.
    assert_close(out[:n].double(), expected, rtol=0, atol=max(k, 1) * 2**-21)
    assert out[n:].isnan().all()


@pytest.mark.parametrize(("intensity", "rate"), [(1, 10), (5, 50), (20, 50)])
def test_a_roofline_is_limited_by_memory_before_its_ridge(roofline, intensity, rate):
    assert roofline["attainable"](intensity, bandwidth=10, peak=50) == rate


# --- the loop, on a simulated GPU -----------------------------------------------------------------


class SimulatedGpu:
    """Work is done at once, and advances the clock."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def Event(self, enable_timing):  # noqa: N802, as PyTorch names it
        event = SimpleNamespace()
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: end.at - event.at
        return event

    def synchronize(self):
        self.log.append("synchronize")

    def work(self, name, ms):
        self.log.append(name)
        self.now += ms


@pytest.fixture
def gpu(chapter, monkeypatch):
    gpu = SimulatedGpu()
    names = chapter["measure"].__globals__
    monkeypatch.setitem(names, "gpu", gpu)
    monkeypatch.setitem(names, "other", torch.zeros(1))
    return gpu


def test_measure_times_each_call_alone_in_random_turns_after_a_warm_up(chapter, gpu):
    calls = {name: partial(gpu.work, name, ms) for name, ms in zip("ABC", (3, 5, 7), strict=True)}
    found = chapter["measure"](calls, 100, before=partial(gpu.work, "-", 1000))
    assert [set(times) for times in found.values()] == [{3}, {5}, {7}]
    log = "".join(entry for entry in gpu.log if entry != "synchronize")
    assert log.startswith("ABC-"), "each is called once before anything is timed"
    assert set(log[3::2]) == {"-"}
    rounds = [log[4::2][i : i + 3] for i in range(0, 300, 3)]
    assert {"".join(sorted(r)) for r in rounds} == {"ABC"}
    assert len(set(rounds)) == 6
