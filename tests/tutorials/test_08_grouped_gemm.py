"""The grouped product, in the interpreter, against float64."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close


def ends(*offsets):
    return torch.tensor(offsets, dtype=torch.int32)


def problem(sizes, k, n, dtype=torch.float16):
    x = torch.randn(sum(sizes), k).to(dtype)
    w = torch.randn(len(sizes), k, n).to(dtype)
    return x, w, ends(*itertools.accumulate(sizes))


def assert_right(got, x, w, sizes):
    """Allow one rounding to the dtype, and the rounding errors of an fp32 sum of K products."""
    rows = x.double().split(sizes)
    expected = torch.cat([piece @ w[e].double() for e, piece in enumerate(rows)])
    assert got.dtype == x.dtype
    rounding, summing = torch.finfo(x.dtype).eps, 2**-20 * x.shape[1]
    assert_close(got.double(), expected, rtol=rounding, atol=summing)


SIZES = [[0, 0, 3], [1], [0, 70, 0, 0], [63, 64, 65, 0, 1], [2] * 5, [0, 0]]
SHAPES = [(64, 96), (45, 77), (8, 8), (66, 136), (1, 1)]


@pytest.mark.parametrize("shift", range(2))
@pytest.mark.parametrize(("i", "sizes"), list(enumerate(SIZES)))
def test_sizes_that_no_tile_divides(page, i, sizes, shift):
    """Experts without tokens too; every list of sizes with two shapes, one in each dtype."""
    dtype = (torch.float16, torch.bfloat16)[shift]
    x, w, offsets = problem(sizes, *SHAPES[(i + shift) % len(SHAPES)], dtype)
    assert_right(page["grouped_mm"](x, w, offsets), x, w, sizes)


@pytest.mark.parametrize("plan", ["FEW", "PAIR", "WIDE"])
def test_every_plan_computes_every_row(page, plan):
    sizes = [130, 0, 65, 1, 64]
    columns = page[plan].block_n + 8
    x, w, offsets = problem(sizes, 72, columns)
    out = torch.full((sum(sizes), columns), torch.nan, dtype=x.dtype)
    page["run_plan"](page[plan], x, w, offsets, out)
    assert_right(out, x, w, sizes)


def test_views(page):
    sizes = [20, 0, 44]
    x, w, offsets = problem(sizes, 96, 80)
    wide = torch.zeros(64, 200, dtype=x.dtype)
    wide[:, 8:104] = x
    assert_right(page["grouped_mm"](wide[:, 8:104], w, offsets), x, w, sizes)
    assert_right(page["grouped_mm"](x, w[:, :, 1::3], offsets), x, w[:, :, 1::3], sizes)
    assert_right(page["grouped_mm"](x, w.mT.contiguous().mT, offsets), x, w, sizes)
    one = w[:1].expand(3, 96, 80)  # a stride of zero
    assert_right(page["grouped_mm"](x, one, offsets), x, one, sizes)


@pytest.mark.parametrize("poisoned", ["the next rows", "the next matrix"])
def test_an_expert_is_not_spoiled_by_the_next_one(page, poisoned):
    x, w, offsets = problem([30, 34], 72, 96)  # no tile along K ends at 72
    (x[30:] if poisoned == "the next rows" else w[1]).fill_(torch.nan)
    assert_right(page["grouped_mm"](x, w, offsets)[:30], x[:30], w[:1], [30])


def test_an_offset_beyond_the_tokens_writes_nothing_behind_the_output(page):
    x, w, _ = problem([40], 64, 96)
    memory = torch.full((80, 96), 7.0, dtype=x.dtype)
    for launch in (page["one_launch"], page["described"]):
        launch(x, w, ends(80), memory[:40])
    page["run_plan"](page["FEW"], x, w, ends(80), memory[:40])
    assert memory[40:].eq(7).all()


@given(
    case=st.tuples(
        st.integers(1, 300), st.integers(1, 10**6), st.integers(1, 9000), st.integers(1, 20000)
    ),
    shared=st.sampled_from([65536, 101376, 166912, 232448]),
)
@settings(max_examples=30)
def test_every_plan_fits_the_shared_memory(page, case, shared):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(page["fit"].__globals__, "SHARED_BYTES", shared)
        plan = page["fit"](page["choose_plan"](*case))
    step = (plan.block_m + plan.block_n) * plan.block_k * 2
    assert plan.stages == 1 or plan.share * plan.stages * step < shared
