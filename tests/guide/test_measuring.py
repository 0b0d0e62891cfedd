"""Chapter 4, in the interpreter: its kernels. The loop is tested with shared/bench.py."""

import math

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
