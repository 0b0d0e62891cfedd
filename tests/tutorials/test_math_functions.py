"""Math functions, in the interpreter: GELU, the yardstick for errors, functions by hand, refusals.

The interpreter computes ``tl.exp`` and its like with NumPy, so the accuracy of a GPU is not tested
here; what is made by hand is.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinities


@pytest.fixture(scope="module")
def page(tutorial):
    return tutorial("07-math-functions")


def every_float(number: int) -> torch.Tensor:
    """*number* floats, spread evenly over all bit patterns."""
    step = 2**32 // number
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64)
    return bits.to(torch.int32).view(torch.float32)


# GELU


def assert_gelu(page, x, approximate="none"):
    y = page["gelu"](x, approximate)
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    expected = functional.gelu(x.double(), approximate=approximate)
    # One rounding to the dtype; the handbook's erfc is good to 1.5e-7, and |x| / 2 of that counts.
    close = {"rtol": torch.finfo(x.dtype).eps, "atol": 2e-6}
    torch.testing.assert_close(y.double(), expected, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0, 2), (781,), (3, 5, 7), (2049,), (4097,)])
def test_gelu_against_float64(page, shape, approximate, dtype):
    assert_gelu(page, (4 * torch.randn(shape)).to(dtype), approximate)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 5000),
    scale=st.sampled_from([1e-6, 0.1, 3.0, 50.0]),
    approximate=st.sampled_from(["none", "tanh"]),
    seed=st.integers(0, 2**31),
)
def test_gelu_of_any_size(page, n, scale, approximate, seed):
    torch.manual_seed(seed)
    assert_gelu(page, scale * torch.randn(n), approximate)


def test_gelu_at_the_limits(page):
    x = torch.tensor([0.0, -0.0, 1e-38, -1e-38, 3e38, -3e38, math.inf])
    y = page["gelu"](x)
    expected = functional.gelu(x[:6].double())
    torch.testing.assert_close(y[:6].double(), expected, rtol=1e-6, atol=1e-44)
    assert y[6] == math.inf
    assert page["gelu"](torch.tensor([math.nan])).isnan()


def test_gelu_keeps_its_digits_where_the_formula_loses_them(page):
    """For -6 < x < -3 the result is small; erfc by hand is good to 1.5e-7 all the same."""
    x = torch.linspace(-6, -3, 1000)
    error = (page["gelu"](x).double() - functional.gelu(x.double())).abs()
    assert error.max() < 6 * 1.5e-7


def test_steps_on_the_way(page):
    x = 3 * torch.randn(1000)
    for function, approximate in page["STEPS"].values():
        expected = functional.gelu(x.double(), approximate=approximate)
        found = page["elementwise"](function, x).double()
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("x", "approximate", "error", "says"),
    [
        ([1.0], "none", TypeError, "x must be a torch.Tensor, but is a list"),
        (torch.ones(2).double(), "none", TypeError, "its dtype is torch.float64"),
        (torch.ones(2, device="meta"), "none", ValueError, "x must be on cpu, but is on meta"),
        (torch.ones(2, 3).T, "none", ValueError, r"pass x.contiguous\(\)"),
        (torch.ones(2), "sigmoid", ValueError, "'none' or 'tanh', but is 'sigmoid'"),
        (torch.ones(2), None, ValueError, "'none' or 'tanh', but is None"),
    ],
)
def test_gelu_refuses_and_says_why(page, x, approximate, error, says):
    with pytest.raises(error, match=says):
        page["gelu"](x, approximate)


# The yardstick


def error_of(page, y, right, a=None):
    y, right = torch.tensor(y), torch.tensor(right, dtype=torch.float64)
    a = torch.ones_like(y) if a is None else torch.tensor(a)
    worst, *_, everywhere = page["worst_error"](y, right, a, a).tolist()
    return worst, everywhere


@pytest.mark.parametrize("x", [1.0, 1.5, 1000.0, 3e38, 2.0**-126, -7e-30])
@pytest.mark.parametrize("steps", [1, 3])
def test_neighbors_are_one_unit_apart(page, x, steps):
    right = torch.tensor([x])
    y = right
    for _ in range(steps):
        y = torch.nextafter(y, torch.zeros(1)) if x > 1e38 else torch.nextafter(y, 4 * right)
    worst, everywhere = error_of(page, y.tolist(), right.double().tolist())
    assert worst == everywhere == steps


def test_half_a_unit_is_the_error_of_rounding(page):
    right = torch.rand(4096, dtype=torch.float64) * 2 - 1
    worst, _ = error_of(page, right.float().tolist(), right.tolist())
    assert 0.45 < worst <= 0.5


def test_infinity_and_nan_are_right_or_infinitely_wrong(page):
    assert error_of(page, [math.inf, math.nan, -math.inf], [math.inf, math.nan, -math.inf])[1] == 0
    assert error_of(page, [math.inf], [3.5e38])[1] == 0  # too large for fp32
    assert error_of(page, [3e38], [math.inf])[1] == math.inf
    assert error_of(page, [math.nan], [1.0])[1] == math.inf
    assert error_of(page, [1.0], [math.nan])[1] == math.inf


def test_subnormal_numbers_are_kept_apart(page):
    tiny = 2.0**-140
    assert error_of(page, [0.0], [tiny]) == (0, tiny * 2**149)  # a subnormal result
    assert error_of(page, [2.0], [1.0], a=[tiny]) == (0, 2**23)  # a subnormal argument


def test_the_place_of_the_worst_is_found(page):
    x = torch.rand(5000) + 1
    y = x.clone()
    y[3210] = 17.0
    _, a, b, result, _ = page["worst_error"](y, x.double(), x, -x).tolist()
    assert a == x[3210]
    assert b == -x[3210]
    assert result == 17


# By hand


@pytest.mark.parametrize(
    ("name", "reference", "most"),
    [("exp_by_hand", torch.exp, 3), ("rsqrt_by_hand", torch.rsqrt, 3)],
)
def test_by_hand_over_the_whole_range(page, name, reference, most):
    x = every_float(2**16)
    if reference is torch.rsqrt:
        x = x[(x > 2.0**-126) & (x < math.inf)]
    y = page["compute"](page[name], x)
    worst, *_, everywhere = page["worst_error"](y, reference(x.double()), x, x).tolist()
    assert worst <= most
    assert everywhere <= most  # subnormal results of the exponential, infinities and NaN as well


def test_exp_by_hand_around_its_limits(page):
    x = torch.tensor(
        [-math.inf, -104.0, -103.9, -87.4, -0.0, 0.0, 88.72, 88.73, math.inf, math.nan]
    )
    y = page["compute"](page["exp_by_hand"], x)
    torch.testing.assert_close(y, torch.exp(x), rtol=3e-7, atol=0, equal_nan=True)


def test_erf_by_hand_is_as_good_as_the_handbook_says(page):
    x = torch.linspace(-6, 6, 5001)
    y = page["compute"](page["erf_by_hand"], x)
    # 1.5e-7 is the formula's own error; half a dozen roundings of numbers up to 1 come on top.
    assert (y.double() - torch.erf(x.double())).abs().max() < 1.5e-7 + 6 * 2.0**-24


def test_functions_that_repeat_add_up(page):
    x, y = torch.rand(100) + 1, torch.rand(100) + 1
    total = page["compute"](page["div_triton"], x, y, rounds=3, step=0.25)
    expected = sum((x - 0.25 * i).double() / (y - 0.25 * i).double() for i in range(3))
    torch.testing.assert_close(total.double(), expected, rtol=1e-6, atol=0)


def test_what_cannot_run_is_left_out_and_told(page, capsys):
    ways = page["all_ways"]()
    told = capsys.readouterr().out
    assert "no tanh" in told
    assert "no libdevice" in told
    assert not [f for f, found in ways.items() if "libdevice" in found]
    assert [f for f, found in ways.items() if "by hand" in found] == ["exp", "erf", "rsqrt"]


def test_every_float_is_tried(page):
    """On a GPU the pieces cover all bit patterns, each once; here, as many as fit."""
    pieces = [a for a, _ in page["arguments"]("exp")]
    bits = torch.cat(pieces).view(torch.int32)
    assert len(bits.unique()) == len(bits)
    assert bits.min() == -(2**31)
    assert bits.max() > 2**31 - 2**20


@pytest.mark.parametrize("value", [0.0, 0.5, 1.93099, 63.7806, 99999.0, 8388520.0, 1.40738e14])
def test_large_errors_are_short(page, value):
    text = page["short"](value)
    assert len(text) <= 7
    assert float(text) == pytest.approx(value, rel=0.00501)


def test_solutions(tutorial):
    """The scripts check themselves; here are limits that they leave out."""
    gelu = tutorial("solutions/07-gelu-backward")["gelu"]
    with pytest.raises(ValueError, match="approximation must be 'none' or 'tanh'"):
        gelu(torch.ones(2), "erf")
    with pytest.raises(ValueError, match="x must be contiguous, float32"):
        gelu(torch.ones(2).half())
    x = torch.tensor([-30.0, 0.0, 30.0], requires_grad=True)
    gelu(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 0.5, 1.0]))
    solution = tutorial("solutions/07-polynomial")
    assert solution["taylor"](2) == [0.5, 1.0, 1.0]
    with pytest.raises(ValueError, match="x must be contiguous, float32"):
        solution["exponential"](torch.ones(2).double(), [1.0])
