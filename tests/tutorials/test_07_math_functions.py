"""Math functions, in the interpreter: GELU, the measure of errors, and functions by hand.

The interpreter computes ``tl.exp`` and the like with NumPy, so it cannot show a GPU's accuracy.
"""

import math

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinities


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5, 7), (4097,)])
def test_gelu_against_float64(page, shape, approximate, dtype):
    x = (4 * torch.randn(shape)).to(dtype)
    y = page["gelu"](x, approximate)
    assert y.dtype == x.dtype
    expected = functional.gelu(x.double(), approximate=approximate)
    # One rounding to the dtype; the handbook's erfc has an error of 1.5e-7, times |x| / 2.
    assert_close(y.double(), expected, rtol=torch.finfo(x.dtype).eps, atol=2e-6)


def test_gelu_at_the_limits(page):
    x = torch.tensor([0.0, -0.0, 1e-38, -1e-38, 3e38, -3e38, math.inf, math.nan])
    y = page["gelu"](x)
    expected = functional.gelu(x[:6].double())
    assert_close(y[:6].double(), expected, rtol=1e-6, atol=1e-44)
    assert y[6] == math.inf
    assert y[7].isnan()


@pytest.mark.parametrize(
    ("y", "right", "error"),
    [
        (1.0, 1.0 + 2**-24, 0.5),
        (1.0 + 2**-23, 1.0, 1),
        (1000.0 + 2**-14, 1000.0, 1),
        (-(2.0**-126), -(2.0**-126) * (1 + 2**-22), 2),
        (0.0, 2.0**-140, 2**9),  # all subnormal numbers have one ulp
        (math.inf, math.inf, 0),
        (math.nan, math.nan, 0),
        (math.inf, 3.5e38, 0),  # too large for fp32
        (3e38, math.inf, math.inf),
        (math.nan, 1.0, math.inf),
        (1.0, math.nan, math.inf),
    ],
)
def test_errors_are_counted_in_units_of_the_last_place(page, y, right, error):
    y, right = torch.tensor([y]), torch.tensor([right], dtype=torch.float64)
    assert page["errors"](y, right).item() == error


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "rsqrt", "pow", "div"])
def test_the_largest_error_is_found_with_its_arguments(page, name):
    for way, (largest, a, b, everywhere) in page["accuracy"](name).items():
        arguments = torch.tensor([a]), torch.tensor([b])
        right = page["compute"]("torch", name, *(t.double() for t in arguments))
        found = page["errors"](page["compute"](way, name, *arguments), right).item()
        assert largest <= everywhere
        assert found == pytest.approx(largest, rel=0.01, abs=0.5)


@pytest.mark.parametrize("name", ["exp", "rsqrt"])
def test_a_function_by_hand_is_off_by_three_units_at_most(page, name):
    """On floats spread evenly over all bit patterns, infinities and NaN included."""
    x = torch.arange(-(2**31), 2**31, 2**16).to(torch.int32).view(torch.float32)
    if name == "rsqrt":
        x = x[(x > 2.0**-126) & (x < math.inf)]
    y = page["compute"]("by hand", name, x, x)
    right = getattr(torch, name)(x.double())
    assert page["errors"](y, right).max() <= 3


def test_erf_by_hand_has_the_error_of_the_handbook(page):
    x = torch.linspace(-6, 6, 5001)
    y = page["compute"]("by hand", "erf", x, x)
    # The formula's own error is 1.5e-7; six roundings of numbers up to 1 are added.
    assert (y.double() - torch.erf(x.double())).abs().max() < 1.5e-7 + 6 * 2.0**-24


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_plain_function_gives_the_same_bits(page, plain, approximate):
    for n in (1, 4097):
        x = torch.randn(n)
        y = plain("07-math-functions").gelu(x, approximate)
        assert torch.equal(page["gelu"](x, approximate), y)
