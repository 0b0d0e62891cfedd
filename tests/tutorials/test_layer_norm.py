"""Layer and RMS norm and their gradients, in the interpreter, against float64."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

# Of the largest element of the expected tensor: fp16 rounds the result to 11 bits. In fp32 the sums
# over rows and columns are off by some units of 2**-24 for each doubling of their length.
TOLERANCES = {torch.float16: 2e-3, torch.float32: 2e-5}

NORMS = ("layer_norm", "rms_norm")


@pytest.fixture(scope="module")
def page(tutorial):
    return tutorial("05-layer-norm")


def reference(norm, x, weight, bias, eps):
    """PyTorch's own function, for tensors in float64."""
    if norm == "layer_norm":
        return functional.layer_norm(x, weight.shape, weight, bias, eps)
    return functional.rms_norm(x, weight.shape, weight, eps)


def call(page, norm, x, weight, bias, eps):
    if norm == "layer_norm":
        return page[norm](x, weight, bias, eps)
    return page[norm](x, weight, eps)


def assert_near(actual, expected, dtype, size=0.0, slack=1.0):
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    if expected.numel():
        atol = slack * TOLERANCES[dtype] * max(expected.abs().max().item(), size)
        torch.testing.assert_close(actual.double(), expected, rtol=0, atol=atol)


def assert_norm(page, norm, x, weight, bias, g=None, eps=1e-5, slack=1.0):
    """Compare the result and every gradient with PyTorch's in float64."""
    given = (x, weight, bias) if norm == "layer_norm" else (x, weight)
    ours = [t.detach().requires_grad_() for t in given]
    exact = [t.detach().double().requires_grad_() for t in given]
    bias_of = (lambda ts: ts[2]) if norm == "layer_norm" else (lambda ts: None)
    y = call(page, norm, ours[0], ours[1], bias_of(ours), eps)
    y_exact = reference(norm, exact[0], exact[1], bias_of(exact), eps)
    assert_near(y, y_exact.detach(), x.dtype, slack=slack)
    g = torch.randn_like(y) if g is None else g
    found = torch.autograd.grad(y, ours, g)
    expected = torch.autograd.grad(y_exact, exact, g.double())
    # What two subtractions leave, with an error that is relative to what they began with:
    rows = exact[0].detach()
    if norm == "layer_norm":
        rows = rows - rows.mean(dim=-1, keepdim=True)
    deviation = ((rows * rows).mean(dim=-1) + eps).sqrt()
    largest = g.abs().max().item()
    sizes = [((weight.double() * g.double()).abs().amax(-1) / deviation).max().item()]
    for one, other, t, size in zip(found, expected, ours, [*sizes, largest, largest], strict=False):
        assert_near(one, other, t.dtype, size, slack)


SHAPES = [(1, 1), (5, 1), (3, 2), (7, 5), (3, 127), (2, 781), (3, 1024), (3, 1025), (2, 1537)]
SHAPES += [(1, 4097), (2, 15_873), (2, 16_384), (1, 16_385), (60, 3), (19, 129), (781,)]
SHAPES += [(2, 3, 5, 7)]


# All shapes with both norms, by turns in one of the dtypes.
@pytest.mark.parametrize(
    ("shape", "norm", "dtype"),
    [
        (shape, norm, [*TOLERANCES][(i + j) % 2])
        for i, shape in enumerate(SHAPES)
        for j, norm in enumerate(NORMS)
    ],
)
def test_against_float64(page, norm, shape, dtype):
    torch.manual_seed(0)
    x = (2 * torch.randn(shape) + 1).to(dtype)
    weight, bias = torch.randn(2, shape[-1]).to(dtype)
    assert_norm(page, norm, x, weight, bias)


@settings(max_examples=12, deadline=None)
@given(
    m=st.integers(1, 40),
    n=st.integers(1, 1500),
    mean=st.sampled_from([0.0, 1.0, -30.0]),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
    norm=st.sampled_from(NORMS),
    seed=st.integers(0, 2**31),
)
def test_any_shape(page, m, n, mean, scale, norm, seed):
    generator = torch.Generator().manual_seed(seed)
    x = scale * (torch.randn(m, n, generator=generator) + mean)
    weight, bias = torch.randn(2, n, generator=generator)
    # The rounding of the mean is relative to the mean, and divided by the deviation. Rows of two or
    # three elements may have a deviation far below the scale, so that eps has to be on its scale.
    eps = 0.01 * scale**2
    assert_norm(page, norm, x, weight, bias, eps=eps, slack=1 + 10 * abs(mean))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", [(0, 7), (7, 0), (0, 0), (2, 0, 5), (0,)])
def test_nothing_at_all(page, norm, shape):
    x = torch.empty(shape, requires_grad=True)
    weight, bias = (torch.ones(shape[-1], requires_grad=True) for _ in range(2))
    y = call(page, norm, x, weight, bias, 1e-5)
    assert y.shape == shape
    inputs = (x, weight, bias) if norm == "layer_norm" else (x, weight)
    for t, gradient in zip(inputs, torch.autograd.grad(y.sum(), inputs), strict=True):
        assert gradient.shape == t.shape
        assert not gradient.any(), "the gradient of a sum over no rows is zero"


VIEWS = {
    "slice of columns": lambda x: x[:, 3:70],
    "every third row": lambda x: x[::3],
    "every second column": lambda x: x[:, ::2],
    "transpose": lambda x: x.T,
    "one row repeated": lambda x: x[:1].expand(4, -1),
    "one column repeated": lambda x: x[:, :1].expand(-1, 9),
    "three dimensions that do not merge": lambda x: x.reshape(13, 8, 10).transpose(0, 1),
    "last dimension far apart": lambda x: x.reshape(13, 8, 10).transpose(1, 2),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views(page, norm, view):
    torch.manual_seed(0)
    x = view(torch.randn(13, 80))
    # Where all elements of a row are equal, the rounding of the mean is divided by the root of eps.
    slack = 20 if x.stride(-1) == 0 else 1
    assert_norm(page, norm, x, *torch.randn(2, x.shape[-1]), slack=slack)


@pytest.mark.parametrize("norm", NORMS)
def test_views_of_long_rows(page, norm):
    x = torch.randn(20_001, 2).T
    g = torch.randn(20_001, 2).T
    assert_norm(page, norm, x, *torch.randn(2, 20_001), g=g)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [80, 20_001])
def test_gradients_with_strides_of_zero(page, norm, n):
    """What autograd hands over after ``y.sum()``."""
    assert_norm(page, norm, torch.randn(3, n), *torch.randn(2, n), g=torch.ones(()).expand(3, n))


def test_parameters_with_gaps(page):
    weight, bias = torch.randn(10, 2).T
    assert_norm(page, "layer_norm", torch.randn(4, 10), weight, bias)


@pytest.mark.parametrize("norm", NORMS)
def test_parameters_in_fp32_beside_fp16(page, norm):
    assert_norm(page, norm, torch.randn(5, 300).half(), *torch.randn(2, 300))


@pytest.mark.parametrize("n", [1000, 20_000])
def test_mean_a_thousand_times_the_deviation(page, n):
    """One pass over the row would be off by several per cent, or more."""
    torch.manual_seed(0)
    x = torch.randn(2, n) + 1000
    weight, bias = torch.randn(2, n)
    # fp32 knows a mean of 1000 to some 1e-4, which is relative to a deviation of 1.
    assert_norm(page, "layer_norm", x, weight, bias, slack=10)
    y = page["layer_norm"](x, torch.ones(n), torch.zeros(n))
    torch.testing.assert_close(y.std(dim=1, correction=0), torch.ones(2), rtol=1e-4, atol=0)


@pytest.mark.parametrize("n", [100, 20_000])
def test_rows_of_equal_elements(page, n):
    x = torch.full((3, n), 7.0)
    weight, bias = torch.randn(2, n)
    torch.testing.assert_close(page["layer_norm"](x, weight, bias), bias.expand(3, n))
    assert page["layer_norm"](x, weight, bias, eps=1.0).isfinite().all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [50, 20_000])
def test_one_bad_row_spoils_no_other(page, norm, n):
    x = torch.randn(6, n)
    weight, bias = torch.randn(2, n)
    good = call(page, norm, x, weight, bias, 1e-5)
    x[2, n // 2], x[4, n - 1] = torch.nan, torch.inf
    y = call(page, norm, x, weight, bias, 1e-5)
    assert not y[[2, 4]].isfinite().all(dim=1).any()
    assert torch.equal(y[[0, 1, 3, 5]], good[[0, 1, 3, 5]])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [700, 17_000])
def test_the_same_bits_twice(page, norm, n):
    x, g = torch.randn(2, 7 if n < 1000 else 2, n)
    weight, bias = torch.randn(2, n)

    def gradients():
        inputs = [t.clone().requires_grad_() for t in (x, weight, bias)]
        y = call(page, norm, *inputs, 1e-5)
        return torch.autograd.grad(y, inputs[: 3 if norm == "layer_norm" else 2], g)

    for one, other in zip(gradients(), gradients(), strict=True):
        assert torch.equal(one, other)


def test_only_what_needs_a_gradient(page):
    x, weight, bias = torch.randn(5, 30), torch.randn(30, requires_grad=True), torch.randn(30)
    page["layer_norm"](x, weight, bias).sum().backward()
    assert weight.grad is not None
    assert x.grad is None
    assert bias.grad is None


def test_second_derivatives_are_refused(page):
    x = torch.randn(2, 8, requires_grad=True)
    weight = torch.ones(8)
    loss = (page["rms_norm"](x, weight) ** 2).sum()
    (dx,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


def test_rows_around_the_longest_that_fits(page):
    """The same rows through the kernels of both kinds."""
    launcher = page["launch_forward"].__globals__
    longest = launcher["LONGEST"]
    x, weight, bias = torch.randn(5, 5000), torch.randn(5000), torch.randn(5000)
    short = page["layer_norm"](x, weight, bias)
    launcher["LONGEST"] = 0
    try:
        long = page["layer_norm"](x, weight, bias)
        assert_norm(page, "layer_norm", x[:, :77], weight[:77], bias[:77])
        assert_norm(page, "rms_norm", x, weight, None)
    finally:
        launcher["LONGEST"] = longest
    torch.testing.assert_close(short, long, rtol=1e-5, atol=1e-5)


ONE = torch.ones(3)


@pytest.mark.parametrize(
    ("x", "weight", "bias", "eps", "error", "says"),
    [
        ([1.0], ONE, ONE, 1e-5, TypeError, "x must be a torch.Tensor, but is a list"),
        (torch.ones(2, 3).double(), ONE, ONE, 1e-5, TypeError, "its dtype is torch.float64"),
        (torch.ones(2, 3).int(), ONE, ONE, 1e-5, TypeError, "its dtype is torch.int32"),
        (torch.ones(()), ONE, ONE, 1e-5, ValueError, "x must have a dimension"),
        (torch.ones(2, 3, device="meta"), ONE, ONE, 1e-5, ValueError, "x must be on cpu"),
        (torch.ones(2, 3), None, ONE, 1e-5, TypeError, "weight must be a torch.Tensor"),
        (torch.ones(2, 3), torch.ones(4), ONE, 1e-5, ValueError, r"\(3,\), but has \(4,\)"),
        (torch.ones(2, 3), torch.ones(2, 3), ONE, 1e-5, ValueError, "weight must have the shape"),
        (torch.ones(2, 3), ONE, torch.ones(1), 1e-5, ValueError, "bias must have the shape"),
        (torch.ones(2, 3), ONE, ONE.double(), 1e-5, TypeError, "bias must be float16"),
        (torch.ones(2, 3), ONE, ONE, "small", TypeError, "eps must be a number"),
        (torch.ones(2, 3), ONE, ONE, True, TypeError, "eps must be a number"),
        (torch.ones(2, 3), ONE, ONE, -1e-5, ValueError, "not negative, but is -1e-05"),
        (torch.ones(2, 3), ONE, ONE, float("nan"), ValueError, "but is nan"),
    ],
)
def test_refuses_and_says_why(page, x, weight, bias, eps, error, says):
    with pytest.raises(error, match=says):
        page["layer_norm"](x, weight, bias, eps)
    if "bias" not in says:
        with pytest.raises(error, match=says):
            page["rms_norm"](x, weight, eps)


def test_numerics_of_the_three_variances(page):
    """One pass fails at a mean of a thousand deviations; the two others hold."""
    x = torch.randn(8, 4096, generator=torch.Generator().manual_seed(1)) + 1000
    exact = x.double().var(dim=1, correction=0)
    wrong = (page["one_pass"](x).double() / exact - 1).abs().max()
    assert wrong > 1e-3
    for way in ("two_passes", "combined"):
        assert (page[way](x).double() / exact - 1).abs().max() < 1e-5


@pytest.mark.parametrize("n", [1, 70, 128, 129, 1024, 1536, 2049, 4608, 8192, 8704, 12_288, 16_384])
def test_plans(page, n):
    """Blocks cover the row, in powers of two; tiles and warps are such as every GPU has."""
    rows, piece, pieces, warps = page["forward_plan"](n)
    assert piece * (pieces - 1) < n <= piece * pieces
    for value in (rows, piece, warps):
        assert value & (value - 1) == 0
    assert warps <= 16
    for center, x_bytes, w_bytes in itertools.product((True, False), (2, 4), (2, 4)):
        constants, warps, each = page["backward_plan"](n, center, x_bytes, w_bytes, 4)
        covered = constants["PIECE"] * constants["PIECES"]
        assert covered - constants["PIECE"] < n <= covered
        assert warps * each <= 16
        assert 1 <= constants["STAGES"] <= 4
        if "OWN" in constants:  # two programs share a row, and leave nothing out
            assert 2 * constants["OWN"] - constants["PIECES"] in (0, 1)


def test_solution_residual(tutorial):
    add_norm = tutorial("solutions/05-residual")["add_norm"]
    x, residual, weight, bias = torch.randn(3, 500), torch.randn(3, 500), *torch.randn(2, 500)
    y, total = add_norm(x, residual, weight, bias)
    assert torch.equal(total, x + residual)
    expected = functional.layer_norm(
        (x + residual).double(), (500,), weight.double(), bias.double()
    )
    assert_near(y, expected, torch.float32)
    with pytest.raises(ValueError, match="residual must be contiguous"):
        add_norm(x, residual[:, ::2], weight, bias)


def test_solution_group_norm(tutorial):
    group_norm = tutorial("solutions/05-group-norm")["group_norm"]
    x, (weight, bias) = torch.randn(2, 12, 9, 41), torch.randn(2, 12)
    for groups in (1, 3, 12):
        expected = functional.group_norm(x.double(), groups, weight.double(), bias.double())
        assert_near(group_norm(x, groups, weight, bias), expected, torch.float32)
    with pytest.raises(ValueError, match="must divide the 12 channels"):
        group_norm(x, 5, weight, bias)


def test_solution_dropout(tutorial):
    dropped = tutorial("solutions/05-dropout")["dropped_layer_norm"]
    x, (weight, bias) = torch.randn(9, 300), torch.randn(2, 300)
    y = dropped(x, weight, bias, 0.25, seed=7)
    expected = functional.layer_norm(x.double(), (300,), weight.double(), bias.double()) / 0.75
    assert_near(y[y != 0], expected[y != 0], torch.float32)
    assert abs((y == 0).float().mean().item() - 0.25) < 0.03
    assert not torch.equal(y == 0, dropped(x, weight, bias, 0.25, seed=8) == 0)
    with pytest.raises(ValueError, match="p must be from 0"):
        dropped(x, weight, bias, 1.0, seed=7)
