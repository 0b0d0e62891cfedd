"""The matrix product of tutorials 03 and 03b against float64, on shapes that nothing divides."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

NAME = "03-matrix-multiplication"

# One, smaller than a tile, one off a tile, sticking out of it in every direction.
SHAPES = [(1, 1, 1), (5, 7, 3), (123, 77, 45), (64, 64, 64), (65, 63, 129), (1, 130, 17)]


@pytest.fixture(scope="session")
def page(tutorial):
    return tutorial(NAME)


@pytest.fixture(scope="session")
def plans(page):
    """The module with the plans and their kernel, which both pages share."""
    return page["launch_descriptors"].__globals__


def matrices(m, n, k, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=generator).to(dtype)
    b = torch.randn(k, n, generator=generator).to(dtype)
    return a, b


def assert_right(got, a, b, activation=""):
    """Compare with float64: one rounding to the dtype, and an fp32 sum of K products."""
    expected = a.double() @ b.double()
    if activation == "leaky_relu":
        expected = torch.nn.functional.leaky_relu(expected)
    assert got.dtype == a.dtype
    rounding, summing = torch.finfo(a.dtype).eps, 2**-20 * a.shape[1]
    torch.testing.assert_close(got.double(), expected, rtol=rounding, atol=summing)


# bf16 is not tested: Triton's interpreter computes it wrongly, without saying so.
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
@pytest.mark.parametrize("shape", SHAPES)
def test_matmul_is_right_on_awkward_shapes(page, shape, activation, dtype):
    a, b = matrices(*shape, dtype)
    assert_right(page["matmul"](a, b, activation), a, b, activation)


@pytest.mark.parametrize("transpose", ["a", "b", "ab"])
def test_transposed_matrices_need_no_copy(page, transpose):
    a, b = matrices(37, 53, 29)
    a = a.T.contiguous().T if "a" in transpose else a
    b = b.T.contiguous().T if "b" in transpose else b
    assert_right(page["matmul"](a, b), a, b)


def test_sliced_and_expanded_matrices(page):
    wide, tall = matrices(80, 90, 100)
    a, b = wide[3::2, 1:64:3], tall[::4, 5::2][:21]
    assert not a.is_contiguous()
    assert not b.is_contiguous()
    assert_right(page["matmul"](a, b), a, b)
    row = torch.randn(1, 21, dtype=torch.float16).expand(38, 21)  # a stride of zero
    assert_right(page["matmul"](row, b), row, b)


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (5, 3, 0), (0, 0, 0)])
def test_empty_matrices(page, shape):
    a, b = matrices(*shape)
    assert_right(page["matmul"](a, b, "leaky_relu"), a, b, "leaky_relu")


@given(
    m=st.integers(0, 70),
    n=st.integers(0, 70),
    k=st.integers(0, 70),
    activation=st.sampled_from(["", "leaky_relu"]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=15, deadline=None)
def test_matmul_is_right_on_any_small_shape(page, m, n, k, activation, seed):
    a, b = matrices(m, n, k, seed=seed)
    assert_right(page["matmul"](a, b, activation), a, b, activation)


def test_infinity_outside_of_a_mask_does_no_harm(page):
    a = torch.full((20, 64), float("inf"), dtype=torch.float16)
    b = torch.full((64, 20), float("nan"), dtype=torch.float16)
    a[:17, :19], b[:19, :18] = 1.0, 1.0
    assert page["matmul"](a[:17, :19], b[:19, :18]).eq(19).all()


@given(tiles_m=st.integers(1, 40), tiles_n=st.integers(1, 40), group=st.integers(1, 12))
def test_every_tile_has_exactly_one_number(page, tiles_m, tiles_n, group):
    position = page["tile_position"]
    seen = [position(i, tiles_m, tiles_n, group) for i in range(tiles_m * tiles_n)]
    assert sorted(seen) == [(row, column) for row in range(tiles_m) for column in range(tiles_n)]


@pytest.mark.parametrize("step", ["matmul_by_tiles", "matmul_by_groups"])
def test_the_steps_are_right_where_tiles_fit(page, step):
    a, b = matrices(128, 192, 96)
    assert_right(page[step](a, b), a, b)
    a, b = matrices(64, 32, 48)
    assert_right(page[step](a, b, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16), a, b)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_of_step_3_is_right_on_any_shape(page, shape):
    a, b = matrices(*shape)
    m, n, k = shape
    c = torch.full((m, n), float("nan"), dtype=a.dtype)
    a = a.T.contiguous().T  # stored by columns
    grid = (-(-m // 32) * -(-n // 64),)
    page["any_shape_kernel"][grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, GROUP=8,
        EVEN=m % 32 == 0 and n % 64 == 0 and k % 32 == 0,
    )  # fmt: skip
    assert_right(c, a, b)


@pytest.mark.parametrize(
    ("launch", "sms"), [("launch_tiles", 132), *(("launch_persistent", n) for n in (1, 5, 132))]
)
@pytest.mark.parametrize("shape", [(300, 264, 72), (16, 16, 16)])
def test_the_steps_with_descriptors_need_no_masks(tutorial, launch, shape, sms, monkeypatch):
    waves = tutorial("03b-full-waves")
    monkeypatch.setitem(waves["launch_persistent"].__globals__, "SMS", sms)
    a, b = matrices(*shape)
    for plan in (waves["LARGE"], waves["MEDIUM"]):
        assert_right(waves["run"](waves[launch], plan, a, b), a, b)


@pytest.mark.parametrize("sms", [3, *(pytest.param(n, marks=pytest.mark.stress) for n in (1, 132))])
def test_every_plan_computes_every_tile_once(page, plans, sms, monkeypatch):
    """With 3 SMs there are whole tiles and pieces, with 1 only the former, with 132 the latter."""
    monkeypatch.setitem(plans, "SMS", sms)
    done = set()
    for plan in plans["POINTER_PLANS"] + plans["DESCRIPTOR_PLANS"]:
        same = replace(plan, warps=1, stages=1)  # to the interpreter
        if same in done:
            continue
        done.add(same)
        # Two by two tiles, and two steps, of which the second ones are not full.
        a, b = matrices(2 * plan.block_m - 24, 2 * plan.block_n - 24, plan.block_k + 8)
        got = page["run_plan"](plan, a, b)
        expected = a.double() @ b.double()
        torch.testing.assert_close(got.double(), expected, rtol=2**-10, atol=2**-13, msg=str(plan))


@pytest.mark.parametrize("described", [False, True])
def test_a_group_of_tiles_ends_before_the_matrix_does(page, plans, described):
    """Ten tiles one below the other: a group of eight, and one of two."""
    plan = plans["Plan"](16, 16, 16, warps=1, stages=1, descriptors=described)
    a, b = matrices(150, 40, 16)
    assert_right(page["run_plan"](plan, a, b), a, b)


def test_plans_fit_into_the_shared_memory(plans, monkeypatch):
    monkeypatch.setitem(plans, "SHARED_BYTES", 65536)
    all_plans = plans["DESCRIPTOR_PLANS"]
    assert 0 < len(plans["usable"](all_plans)) < len(all_plans)
    for plan in plans["usable"](all_plans):
        step = 2 * plan.block_k * (plan.block_m + plan.block_n)
        assert 2 <= plan.stages <= 65536 // step // (plan.at_once or 1)


@given(
    shape=st.tuples(*[st.integers(1, 9000)] * 3), described=st.booleans(), sms=st.integers(1, 300)
)
def test_every_shape_has_a_plan(plans, shape, described, sms):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plans, "SMS", sms)
        plan = plans["cheapest_plan"].__wrapped__(*shape, described)
        assert 0 < plans["plan_cost"](plan, *shape) < float("inf")


@pytest.mark.parametrize(
    ("layout", "described"),
    [("rows", True), ("columns", False), ("odd stride", False), ("not aligned", False)],
)
def test_a_descriptor_takes_aligned_rows_only(plans, layout, described):
    wide = torch.zeros(64, 129, dtype=torch.float16)
    matrix = {
        "rows": torch.zeros(64, 128, dtype=torch.float16),
        "columns": torch.zeros(64, 128, dtype=torch.float16).T,
        "odd stride": wide[:, :128],
        "not aligned": torch.zeros(64 * 128 + 1, dtype=torch.float16)[1:].view(64, 128),
    }[layout]
    assert plans["can_describe"](matrix) is described


def test_the_counts_of_tiles_read(page):
    assert page["reads"] == {1: 90, 3: 54}


@pytest.mark.parametrize(
    ("a", "b", "activation", "error", "message"),
    [
        ([[1.0]], torch.ones(1, 1), "", TypeError, "a must be a torch.Tensor, but is a list"),
        (torch.ones(2, 2).int(), torch.ones(2, 2).int(), "", TypeError, "a must be float16"),
        (torch.ones(2, 2), torch.ones(2, 2).double(), "", TypeError, "b must be float16"),
        (torch.ones(2, 2), torch.ones(2, 2).half(), "", TypeError, "one dtype, but have"),
        (torch.ones(2), torch.ones(2, 2), "", ValueError, "a must have 2 dimensions"),
        (torch.ones(2, 3), torch.ones(2, 3), "", ValueError, r"\(2, 3\) × \(2, 3\)"),
        (torch.ones(2, 2), torch.ones(2, 2), "relu", ValueError, "activation must be one of"),
    ],
)
def test_errors_name_the_argument_and_what_was_given(page, a, b, activation, error, message):
    with pytest.raises(error, match=message):
        page["matmul"](a, b, activation)
