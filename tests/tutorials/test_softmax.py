"""Fused softmax, in the interpreter, against float64: shapes, views, infinities, errors."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

# fp16 rounds the result to 11 bits, and below 2**-14 to steps of 2**-24. In fp32 the sum of N
# terms and the rounding of x - max are each within a few units of 2**-24.
TOLERANCES = {torch.float16: (2**-10, 2**-24), torch.float32: (1e-5, 1e-30)}

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf in NumPy


@pytest.fixture(scope="module")
def page(tutorial):
    return tutorial("02-fused-softmax")


def assert_softmax(actual, x):
    rtol, atol = TOLERANCES[x.dtype]
    assert actual.dtype == x.dtype
    expected = torch.softmax(x.double(), dim=1)
    torch.testing.assert_close(actual.double(), expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 127, 781, 1024, 1025, 4097, 32768, 32769, 50001])
@pytest.mark.parametrize("m", [1, 3])
def test_against_float64(page, m, n, dtype):
    x = (4 * torch.randn(m, n)).to(dtype)
    assert_softmax(page["softmax"](x), x)


@pytest.mark.parametrize("shape", [(0, 7), (7, 0), (0, 0)])
def test_empty(page, shape):
    assert page["softmax"](torch.empty(shape)).shape == shape


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(1, 9),
    n=st.integers(1, 2100),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
    seed=st.integers(0, 2**31),
)
def test_any_shape(page, m, n, scale, seed):
    x = scale * torch.randn(m, n, generator=torch.Generator().manual_seed(seed))
    actual = page["softmax"](x)
    assert_softmax(actual, x)
    torch.testing.assert_close(actual.sum(dim=1), torch.ones(m), rtol=1e-5, atol=0)


VIEWS = {
    "slice of columns": lambda x: x[:, 3:70],
    "every third row": lambda x: x[::3],
    "every second column": lambda x: x[:, ::2],
    "transpose": lambda x: x.T,
    "one row repeated": lambda x: x[:1].expand(4, -1),
    "one column repeated": lambda x: x[:, :1].expand(-1, 9),
    "corner": lambda x: x[5:, 7:],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views(page, view):
    x = view(torch.randn(13, 80))
    actual = page["softmax"](x)
    assert_softmax(actual, x)
    assert actual.is_contiguous()


def test_views_of_long_rows(page):
    x = torch.randn(40_001, 2).T
    assert_softmax(page["softmax"](x), x)


@pytest.mark.parametrize("n", [1, 5, 1025, 40_000])
def test_infinities_as_torch(page, n):
    x = torch.randn(5, n)
    x[0] = -math.inf  # all minus infinity: NaN
    x[1, : n // 2] = -math.inf  # in the first pieces of a long row, too
    x[2, n // 2] = math.inf
    x[3, n // 2] = math.nan
    actual = page["softmax"](x)
    assert_softmax(actual, x)
    assert actual[0].isnan().all()


def test_does_not_overflow(page):
    x = torch.tensor([[1e30, 1e30, -1e30], [3e38, -3e38, 0.0]])
    assert page["softmax"](x).tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]


def test_the_way_a_row_is_spread_changes_nothing_but_rounding(page):
    """The same row through the tile kernel and, with a lower limit, through the loop."""
    x = torch.randn(3, 9000)
    short = page["softmax"](x)
    launcher = page["softmax"]
    limit = launcher.__globals__["MAX_BLOCK"]
    launcher.__globals__["MAX_BLOCK"] = 0
    try:
        long = launcher(x)
    finally:
        launcher.__globals__["MAX_BLOCK"] = limit
    torch.testing.assert_close(short, long, rtol=1e-5, atol=0)


def test_plans(page):
    """Blocks cover the row, in powers of two, with a number of warps that every GPU has."""
    for n in [*range(1, 3000), 4097, 12288, 12672, 32768]:
        rows, block, warps = page["tile_plan"](n)
        assert n <= block < 2 * n
        assert rows == 1 or rows * block == 512
        assert warps in (1, 2, 4, 8, 16)
        if pieces := page["head_tail_plan"](n):
            head, tail, warps = pieces
            assert head < n <= head + tail <= 0.75 * block
            assert warps in (1, 2, 4, 8, 16)


@pytest.mark.parametrize("n", [512, 513, 640, 641, 768, 769, 2049, 12_288, 20_000])
def test_head_and_tail(page, n):
    """Around the lengths where two pieces begin and end to pay; strides and fp16 as well."""
    assert_softmax(page["softmax"](x := torch.randn(3, n)), x)
    assert_softmax(page["softmax"](x := torch.randn(n, 2).half().T), x)


def test_naive_and_first_steps(page):
    x = torch.randn(7, 781)
    assert_softmax(page["naive_softmax"](x), x)
    assert_softmax(page["softmax_by_rows"](x), x)
    assert_softmax(page["softmax_by_tiles"](x), x)
    assert page["expected_speedup"](4096, 1000) == pytest.approx(4.002)


@pytest.mark.parametrize(
    ("x", "error", "says"),
    [
        ([1.0], TypeError, "x must be a torch.Tensor, but is a list"),
        (torch.ones(2, 2).double(), TypeError, "its dtype is torch.float64"),
        (torch.ones(2, 2).int(), TypeError, "its dtype is torch.int32"),
        (torch.ones(3), ValueError, r"a matrix, but has shape \(3,\)"),
        (torch.ones(2, 3, 4), ValueError, r"a matrix, but has shape \(2, 3, 4\)"),
        (torch.ones(2, 2, device="meta"), ValueError, "but is on meta"),
    ],
)
def test_refuses_and_says_why(page, x, error, says):
    with pytest.raises(error, match=says):
        page["softmax"](x)


def test_solution_log_softmax(tutorial):
    x = 10 * torch.randn(3, 1823)
    actual = tutorial("solutions/02-log-softmax")["log_softmax"](x)
    expected = torch.log_softmax(x.double(), dim=1)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=1e-5)


def test_solution_causal_softmax(tutorial):
    x = torch.randn(37, 37)
    actual = tutorial("solutions/02-causal-softmax")["causal_softmax"](x, 0.3)
    hidden = torch.ones(37, 37, dtype=torch.bool).triu(1)
    expected = torch.softmax((0.3 * x.double()).masked_fill(hidden, -math.inf), dim=1)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=0)


def test_solution_softmax_backward(tutorial):
    x = torch.randn(5, 781, dtype=torch.float64, requires_grad=True)
    y, g = torch.softmax(x, dim=1), torch.randn(5, 781, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, x, g)
    backward = tutorial("solutions/02-softmax-backward")["softmax_backward"]
    actual = backward(y.detach().float(), g.float()).double()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
