"""Chapter 5, in the interpreter: its kernels, and the readers of the profilers' files."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close


@pytest.fixture(scope="module")
def chapter(tutorial):
    return tutorial("profiling") | tutorial("profiling-inside")


@pytest.mark.parametrize(("m", "n"), [(1, 1), (70, 45), (150, 80), (16, 3)])
def test_every_way_to_add_up_columns_agrees_with_float64(chapter, m, n):
    x = torch.randn(m, n)
    for way in (
        chapter["by_columns"],
        partial(chapter["by_strips"], BLOCK_M=16),
        partial(chapter["by_parts"], parts=3, BLOCK_M=16),
    ):
        out = torch.full((n + 3,), torch.nan)
        way(x, out[:n])
        # At most 150 numbers around 1: some roundings of a sum below 50.
        assert_close(out[:n].double(), x.double().sum(0), rtol=0, atol=1e-4)
        assert out[n:].isnan().all()


@pytest.mark.parametrize("wrong", [lambda x, out: out.copy_(x[:-1].sum(0)), lambda x, out: None])
def test_a_wrong_kernel_stops_the_page(chapter, wrong):
    with pytest.raises(AssertionError):
        chapter["check"](wrong)
