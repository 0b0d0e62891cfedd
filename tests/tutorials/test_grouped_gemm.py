"""The grouped product of tutorial 08 against float64, on sizes that nothing divides."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

NAME = "08-grouped-gemm"


@pytest.fixture(scope="session")
def page(tutorial):
    return tutorial(NAME)


def problem(sizes, k, n, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), k, generator=generator).to(dtype)
    w = torch.randn(len(sizes), k, n, generator=generator).to(dtype)
    return x, w, torch.tensor(list(itertools.accumulate(sizes)), dtype=torch.int32)


def assert_right(got, x, w, sizes):
    """Compare with float64: one rounding to the dtype, and an fp32 sum of K products."""
    rows = x.double().split(sizes)
    expected = torch.cat([piece @ w[e].double() for e, piece in enumerate(rows)])
    assert got.dtype == x.dtype
    rounding, summing = torch.finfo(x.dtype).eps, 2**-20 * x.shape[1]
    torch.testing.assert_close(got.double(), expected, rtol=rounding, atol=summing)


SIZES = [[0, 0, 3], [1], [0, 70, 0, 0], [63, 64, 65, 0, 1], [2] * 5, [0, 0]]
SHAPES = [(64, 96), (45, 77), (8, 8), (1, 1), (66, 136)]


# All sizes with all shapes, by turns in one of the dtypes.
@pytest.mark.parametrize(
    ("sizes", "shape", "dtype"),
    [
        (sizes, shape, (torch.float16, torch.bfloat16)[(i + j) % 2])
        for i, sizes in enumerate(SIZES)
        for j, shape in enumerate(SHAPES)
    ],
)
def test_awkward_sizes(page, sizes, shape, dtype):
    x, w, offsets = problem(sizes, *shape, dtype)
    assert_right(page["grouped_mm"](x, w, offsets), x, w, sizes)


@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 5, 33, 64, 80]), min_size=1, max_size=6),
    k=st.integers(1, 80),
    n=st.integers(1, 100),
    by_columns=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=12, deadline=None)
def test_any_small_problem(page, sizes, k, n, by_columns, seed):
    x, w, offsets = problem(sizes, k, n, seed=seed)
    weights = w.mT.contiguous().mT if by_columns else w
    assert_right(page["grouped_mm"](x, weights, offsets), x, w, sizes)


@pytest.mark.parametrize("plan", ["FEW", "PAIR", "WIDE"])
def test_every_plan_computes_every_row(page, plan):
    sizes = [130, 0, 65, 1, 64]
    columns = page[plan].block_n + 8
    x, w, offsets = problem(sizes, 72, columns)
    out = torch.full((sum(sizes), columns), torch.nan, dtype=x.dtype)
    page["run_plan"](page[plan], x, w, offsets, out)
    assert_right(out, x, w, sizes)


def test_views_need_no_copy(page):
    sizes = [20, 0, 44]
    x, w, offsets = problem(sizes, 96, 80)
    wide = torch.zeros(64, 200, dtype=x.dtype)
    wide[:, 8:104] = x
    assert_right(page["grouped_mm"](wide[:, 8:104], w, offsets), x, w, sizes)
    assert_right(page["grouped_mm"](x, w[:, :, 1::3], offsets), x, w[:, :, 1::3], sizes)
    one = w[:1].expand(3, 96, 80)  # a stride of zero
    assert_right(page["grouped_mm"](x, one, offsets), x, one, sizes)


def test_rows_of_the_next_expert_do_no_harm(page):
    x, w, offsets = problem([30, 34], 64, 96)
    x[30:] = torch.inf
    assert_right(page["grouped_mm"](x, w, offsets)[:30], x[:30], w[:1], [30])


def test_experts_beyond_the_border_of_a_matrix_do_no_harm(page):
    x, w, offsets = problem([30, 34], 72, 96)  # no tile along K ends at 72
    w[1] = torch.nan
    assert_right(page["grouped_mm"](x, w, offsets)[:30], x[:30], w[:1], [30])


def test_offsets_beyond_the_tokens_write_nothing_behind_them(page):
    x, w, _ = problem([40], 64, 96)
    memory = torch.full((80, 96), 7.0, dtype=x.dtype)
    beyond = torch.tensor([80], dtype=torch.int32)
    for launch in (page["one_launch"], page["described"]):
        launch(x, w, beyond, memory[:40])
        assert memory[40:].eq(7).all()
    page["run_plan"](page["FEW"], x, w, beyond, memory[:40])
    assert memory[40:].eq(7).all()


def test_nothing_to_sum_gives_zeros(page):
    out = page["grouped_mm"](torch.ones(3, 0).half(), torch.ones(2, 0, 8).half(), offsets(1, 3))
    assert out.eq(0).all()


def offsets(*ends):
    return torch.tensor(ends, dtype=torch.int32)


@given(
    case=st.tuples(st.integers(1, 300), st.integers(1, 10**6), st.integers(1, 9000)),
    n=st.integers(1, 20000),
    shared=st.sampled_from([65536, 101376, 166912, 232448]),
)
def test_every_plan_fits_the_shared_memory(page, case, n, shared):
    plan = page["choose_plan"](*case, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(page["fit"].__globals__, "SHARED_BYTES", shared)
        fitted = page["fit"](plan)
    step = (fitted.block_m + fitted.block_n) * fitted.block_k * 2
    assert fitted.stages == 1 or fitted.share * fitted.stages * step < shared


X, W = torch.ones(8, 16).half(), torch.ones(2, 16, 24).half()


@pytest.mark.parametrize(
    ("x", "w", "ends", "error", "message"),
    [
        ([[1.0]], W, offsets(3, 8), TypeError, "x must be a torch.Tensor, but is a list"),
        (X.float(), W, offsets(3, 8), TypeError, "x must be bfloat16 or float16"),
        (X, W.bfloat16(), offsets(3, 8), TypeError, "w must have the dtype of x"),
        (X[0], W, offsets(3, 8), ValueError, "x must have 2 dimensions"),
        (X, W[0], offsets(3, 8), ValueError, "w must have 3 dimensions"),
        (X[:, 1:], W, offsets(3, 8), ValueError, r"\(8, 15\), \(2, 16, 24\)"),
        (X, W, offsets(3, 8).long(), TypeError, "offsets must be int32"),
        (X, W, offsets(8), ValueError, "offsets must have one number for each expert, 2"),
        (X, W, offsets(3, 8)[None], ValueError, "offsets must have 1 dimensions"),
    ],
)
def test_errors_name_the_argument(page, x, w, ends, error, message):
    with pytest.raises(error, match=message):
        page["grouped_mm"](x, w, ends)
