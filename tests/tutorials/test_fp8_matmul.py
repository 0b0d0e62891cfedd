"""The fp8 product of tutorial 09 against float64, and rounding to fp8 against PyTorch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

NAME = "09-fp8-matmul"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(scope="session")
def page(tutorial):
    return tutorial(NAME)


def check(page, a, b, scale_a, scale_b):
    got = page["scaled_mm"](a, b, scale_a, scale_b)
    assert got.dtype == torch.bfloat16
    # One rounding to bf16; the interpreter adds up in fp32.
    expected = page["scaled_reference"](a, b, scale_a, scale_b)
    size = page["dequantize"](a, scale_a).abs() @ page["dequantize"](b, scale_b).abs()
    error = (got.double() - expected).abs()
    assert (error <= expected.abs() * 2**-8 + size * 2**-18).all()


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 8, 16), (77, 45, 300), (65, 136, 144), (130, 264, 128), (5, 7, 129)]
)
def test_awkward_shapes(page, shape, blocks):
    check(page, *page["draw_problem"](*shape, blocks))


@given(
    m=st.integers(1, 70),
    n=st.integers(1, 140),
    k=st.integers(1, 280),
    blocks=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=12, deadline=None)
def test_any_small_shape(page, m, n, k, blocks, seed):
    check(page, *page["draw_problem"](m, n, k, blocks, seed))


@pytest.mark.parametrize("shape", [(0, 8, 16), (3, 0, 16), (3, 8, 0)])
def test_nothing_to_compute(page, shape):
    m, n, k = shape
    a, b = torch.zeros(m, k).to(E4M3), torch.zeros(n, k).to(E4M3).T
    got = page["scaled_mm"](a, b, torch.ones(m, 1), torch.ones(1, n))
    assert got.shape == (m, n)
    assert got.eq(0).all()


def test_the_other_format_and_a_mixture(page):
    a, b, scale_a, scale_b = page["draw_problem"](33, 40, 64)
    for dtype_a, dtype_b in ((E5M2, E4M3), (E4M3, E5M2)):
        check(page, a.float().to(dtype_a), b.float().T.to(dtype_b).T, scale_a, scale_b)


def test_any_strides(page):
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 96)
    check(page, a, b.contiguous(), scale_a, scale_b)  # b by rows
    check(page, a.T.contiguous().T, b, scale_a, scale_b)  # a by columns
    check(page, a[::2], b[:, 3:], scale_a[::2], scale_b[:, 3:])
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 256, blocks=True)
    check(page, a, b, scale_a.contiguous(), scale_b.T.contiguous().T)


@pytest.mark.parametrize(
    "programs", [3, *(pytest.param(n, marks=pytest.mark.stress) for n in (1, 33))]
)
def test_every_plan_computes_every_tile_once(page, programs, monkeypatch):
    """With 3 programs there are whole tiles and pieces, with 1 only the former, of 33 some idle."""
    monkeypatch.setitem(page["run_plan"].__globals__, "PROGRAMS", programs)
    for plan in page["PLANS"]:
        # Two by two tiles, and two steps, of which the second ones are not full.
        m, n = 2 * plan.block_m - 24, 2 * plan.block_n - 24
        a, b, scale_a, scale_b = page["draw_problem"](m, n, plan.block_k + 32)
        expected = page["scaled_reference"](a, b, scale_a, scale_b)
        c = torch.full((m, n), torch.nan)
        page["run_plan"](plan, a, b, scale_a, scale_b, c)
        torch.testing.assert_close(c.double(), expected, rtol=1e-5, atol=1e-3, msg=str(plan))


@given(shape=st.tuples(*[st.integers(1, 60000)] * 3), sms=st.integers(1, 300))
def test_every_shape_has_a_plan(page, shape, sms):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(page["plan_cost"].__globals__, "SMS", sms)
        plan = page["cheapest_plan"].__wrapped__(*shape)
        assert 0 < page["plan_cost"](plan, *shape) < float("inf")


@given(
    values=st.lists(st.floats(-448, 448, width=32, allow_subnormal=False), min_size=1, max_size=99)
)
@settings(max_examples=30, deadline=None)
def test_rounding_is_that_of_pytorch(page, values):
    x = torch.tensor([[448.0, *values]])  # so the scale is 1
    q, scale = page["quantize_activations"](x)
    assert scale.item() == 1
    assert torch.equal(q.float(), x.to(E4M3).float())


def test_a_row_of_zeros_has_a_scale(page):
    for blocks in (False, True):
        q, scale = page["quantize_activations"](torch.zeros(3, 130), blocks)
        assert q.float().eq(0).all()
        assert scale.gt(0).all()


A, B = torch.ones(4, 256).to(E4M3), torch.ones(8, 256).to(E4M3).T
SA, SB = torch.ones(4, 1), torch.ones(1, 8)


@pytest.mark.parametrize(
    ("a", "b", "scale_a", "scale_b", "error", "message"),
    [
        ([[1.0]], B, SA, SB, TypeError, "a must be a torch.Tensor, but is a list"),
        (A, B.float(), SA, SB, TypeError, "b must be float8_e4m3fn or float8_e5m2"),
        (A, B, SA.half(), SB, TypeError, "scale_a must be float32"),
        (A[0], B, SA, SB, ValueError, "a must have 2 dimensions"),
        (A, B[1:], SA, SB, ValueError, r"\(4, 256\) × \(255, 8\)"),
        (A, B, SA.T, SB, ValueError, r"scale_a must have shape \(4, 1\)"),
        (A, B, SA, SB[:, 1:], ValueError, r"scale_b must have shape \(1, 8\)"),
        (A, B, torch.ones(4, 2), SB, ValueError, "scale_b must be of the same kind"),
        (A, B, SA, torch.ones(2, 1), ValueError, "scale_b must be of the same kind"),
    ],
)
def test_errors_name_the_argument(page, a, b, scale_a, scale_b, error, message):
    with pytest.raises(error, match=message):
        page["scaled_mm"](a, b, scale_a, scale_b)


def test_a_gpu_without_float8_says_so(page, monkeypatch):
    monkeypatch.setitem(page["check_arguments"].__globals__, "NO_FP8", "it has 8.0")
    with pytest.raises(RuntimeError, match=r"scaled_mm cannot run here: it has 8\.0"):
        page["scaled_mm"](A, B, SA, SB)
