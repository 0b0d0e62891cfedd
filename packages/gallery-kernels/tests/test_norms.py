"""Layer and RMS norm and their gradients, against float64."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional
from torch.testing import assert_close

import gallery_kernels
from gallery_kernels import norms
from references import VIEWS, assert_norm

NAMES = ("layer_norm", "rms_norm")
both_norms = pytest.mark.parametrize("norm", NAMES)


def call(norm, x, weight, bias, *more):
    """Call a norm, without the bias if it has none."""
    parameters = (weight, bias) if norm == "layer_norm" else (weight,)
    return getattr(gallery_kernels, norm)(x, *parameters, *more)


# One element, partial blocks, several rows for each program, the longest row that fits a tile, and
# longer ones; more dimensions than two. Norms and dtypes alternate.
SHAPES = [(1, 1), (5, 1), (3, 2), (7, 5), (2, 781), (3, 1025), (1, 4097), (2, 16_384), (1, 16_385)]
SHAPES += [(60, 3), (19, 129), (781,), (2, 3, 5, 7), (5, 20_001)]


@both_norms
@pytest.mark.parametrize(("i", "shape"), list(enumerate(SHAPES)))
def test_results_and_gradients(norm, i, shape):
    dtype = (torch.float16, torch.float32)[(i + (norm == "rms_norm")) % 2]
    x = (2 * torch.randn(shape) + 1).to(dtype)
    assert_norm(norm, x, *torch.randn(2, shape[-1]).to(dtype))


MORE_VIEWS = VIEWS | {
    "dimensions that do not merge": lambda x: x.reshape(13, 8, 10).transpose(0, 1),
    "distant elements of a row": lambda x: x.reshape(13, 8, 10).transpose(1, 2),
}


@pytest.mark.parametrize(("i", "view"), list(enumerate(MORE_VIEWS.values())), ids=MORE_VIEWS)
def test_views(i, view):
    x = view(torch.randn(13, 80))
    # In a row of equal elements, the rounding error of the mean is divided by the root of eps.
    slack = 20 if x.stride(-1) == 0 else 1
    assert_norm(NAMES[i % 2], x, *torch.randn(x.shape[-1], 2).T, slack=slack)


@both_norms
def test_long_rows_and_gradients_that_are_views(norm):
    x, g = torch.randn(2, 17_001, 2).mT
    assert_norm(norm, x, *torch.randn(2, 17_001), g=g)
    x, g = torch.randn(2, 3, 17_010)[..., 3:17_004]
    assert_norm(norm, x, *torch.randn(2, 17_001), g=g)
    expanded = torch.ones(()).expand(3, 80)  # what autograd passes to the backward of y.sum()
    assert_norm(norm, torch.randn(3, 80), *torch.randn(2, 80), g=expanded)


@both_norms
def test_an_expanded_gradient_makes_a_plan_once(norm, monkeypatch):
    """A plan kept for the dense copy is not found by the gradient that arrived."""
    made = []
    plan_backward = norms.plan_backward
    monkeypatch.setattr(
        norms, "plan_backward", lambda *given: made.append(1) or plan_backward(*given)
    )
    x, parameters = torch.randn(3, 81, requires_grad=True), torch.randn(2, 81)
    for _ in range(3):
        call(norm, x, *parameters).sum().backward()
    assert len(made) == 1


@pytest.mark.parametrize("n", [1000, 17_000])
def test_a_mean_of_a_thousand_deviations(n):
    """A variance in one pass over the row would be off by several per cent."""
    # fp32 represents a mean of 1000 with an error of 1e-4, relative to a deviation of 1.
    assert_norm("layer_norm", torch.randn(2, n) + 1000, *torch.randn(2, n), slack=10)


@pytest.mark.parametrize(("norm", "n"), [("layer_norm", 50), ("rms_norm", 17_000)])
def test_nan_and_infinity_stay_in_their_rows(norm, n):
    x, weight, bias = torch.randn(6, n), torch.ones(n), torch.zeros(n)
    good = call(norm, x, weight, bias)
    x[2, n // 2], x[4, n - 1] = torch.nan, torch.inf
    y = call(norm, x, weight, bias)
    assert not y[[2, 4]].isfinite().all(dim=1).any()
    assert torch.equal(y[[0, 1, 3, 5]], good[[0, 1, 3, 5]])


def test_a_kept_launch_is_for_arguments_that_are_alike():
    """A right call first: what is kept for it must not answer another one."""
    buffer, weight = torch.randn(8 * 48 + 1), torch.randn(48)
    for x in (buffer[:-1].view(8, 48), buffer[1:].view(8, 48), buffer[:-1].view(48, 8).T.half()):
        expected = functional.rms_norm(x.double(), (48,), weight.double(), 1e-6)
        found = gallery_kernels.rms_norm(x, weight)
        assert_close(found.double(), expected, rtol=0, atol=2e-2)


@both_norms
@pytest.mark.parametrize("n", [1, 33, 4100])
def test_rows_that_lie_apart_are_read_in_place(norm, n, monkeypatch):
    """Neither a slice of columns nor a gradient that is one is copied."""
    x, g = torch.randn(2, 3, n + 7)[..., 2 : n + 2]
    weights = torch.randn(2, n)
    monkeypatch.setattr(torch.Tensor, "contiguous", lambda t: t if t.is_contiguous() else 1 / 0)
    for _ in range(2):  # the second time with a launch that is kept
        assert_norm(norm, x, *weights, g=g)
    y = call(norm, x, *weights)
    assert y.is_contiguous()
    # The same shape with another stride must not get the launch that was kept.
    assert_close(y, call(norm, torch.stack([*x]), *weights), rtol=0, atol=0)
    assert_close(y, call(norm, torch.cat([x, x], dim=1)[:, :n], *weights), rtol=0, atol=0)


@both_norms
def test_gradients_only_where_a_tensor_needs_them(norm):
    x, parameters = torch.randn(3, 8), torch.ones(2, 8)
    assert call(norm, x, *parameters).grad_fn is None
    assert call(norm, x, *parameters.requires_grad_()).requires_grad
    with torch.no_grad():
        assert call(norm, x, *parameters).grad_fn is None


@both_norms
def test_saved_tensors_that_come_back_with_other_strides(norm):
    """A hook may keep a slice as a contiguous copy; the plan of the slice does not fit it."""
    x, weights = torch.randn(5, 48)[:, :40], torch.randn(2, 40)
    assert_norm(norm, x, *weights)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous(), lambda t: t):
        assert_norm(norm, x, *weights)


@both_norms
def test_parameters_of_other_dtypes_and_the_same_bits_without_gradients(norm):
    tensors = torch.randn(6, 300), torch.randn(300).half(), torch.randn(300)
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = call(norm, *leaves)
    assert torch.equal(y, call(norm, *tensors))
    count = 3 if norm == "layer_norm" else 2
    gradients = torch.autograd.grad(y.sum(), leaves[:count])
    for gradient, t in zip(gradients, tensors[:count], strict=True):
        assert (gradient.dtype, gradient.shape) == (t.dtype, t.shape)


@both_norms
def test_parts_of_complex_numbers_that_are_conjugated_lazily(norm):
    """The imaginary part of a lazy conjugate is a view with the wrong sign in memory."""
    x, g = torch.randn(2, 5, 48, dtype=torch.complex64)
    weights = torch.randn(2, 48, dtype=torch.complex64).conj().imag
    for part in (lambda z: z.conj().imag, lambda z: torch._neg_view(z.real.contiguous())):
        assert part(x).is_neg()
        for _ in range(2):  # the second time, launches are kept for tensors of other signs
            assert_norm(norm, part(x), *weights, g=part(g))
            assert_norm(norm, part(x).resolve_neg(), *weights.resolve_neg(), g=part(g))


@both_norms
def test_the_same_bits_every_time(norm):
    x, weights, g = torch.randn(70, 129), torch.randn(2, 129), torch.randn(70, 129)
    results = []
    for _ in range(3):
        leaves = [t.clone().requires_grad_() for t in (x, *weights)]
        y = call(norm, *leaves)
        gradients = torch.autograd.grad(y, leaves, g, allow_unused=True)
        results.append([y, *[t for t in gradients if t is not None]])
    assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


@both_norms
def test_other_sizes_are_not_compiled_anew(norm):
    """From the second size on, they are symbols, also in the statistics of the rows."""
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, backend=counter, fullgraph=True)
    parameters = torch.randn(2, 48)
    for rows in (20, 33, 47, 64, 7):
        x = torch.randn(2, rows, 48, requires_grad=True)
        y, right = compiled(norm, x, *parameters), call(norm, x, *parameters)
        assert torch.equal(y, right)
        assert torch.equal(*[torch.autograd.grad(t.sum(), x)[0] for t in (y, right)])
    assert counter.frame_count <= 2


@both_norms
@pytest.mark.parametrize("shape", [(0, 7), (2, 3, 0)])
def test_nothing_gives_nothing(norm, shape):
    x, parameters = torch.randn(shape, requires_grad=True), torch.randn(2, shape[-1])
    weight, bias = (t.clone().requires_grad_() for t in parameters)
    y = call(norm, x, weight, bias)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    y.sum().backward()
    assert x.grad.shape == shape
    assert not weight.grad.any()


ONE, TWO = torch.ones(3), torch.ones(2, 3)

REFUSED = {
    "layer_norm": [
        ((TWO.double(), ONE, ONE), TypeError, "the dtype of x must be .* but is torch.float64"),
        ((TWO, torch.ones(4), ONE), ValueError, r"weight must have shape \(3,\), but has \(4,\)"),
        ((TWO, ONE, ONE, True), TypeError, "eps must be a number, but is a bool"),
        ((TWO, ONE, ONE, [1.0]), TypeError, "eps must be a number, but is a list"),
        ((TWO, ONE, ONE, torch.nan), ValueError, "eps must be finite"),
        ((TWO, ONE, ONE, 10**400), ValueError, "eps must be finite"),
        ((TWO, ONE, None), TypeError, "bias must be a torch.Tensor, but is a NoneType"),
        ((TWO[0, 0], ONE, ONE), ValueError, "x must have a dimension"),
    ],
    "rms_norm": [
        ((TWO, ONE, -1e-5), ValueError, "not negative, but is -1e-05"),
        ((TWO, ONE, torch.inf), ValueError, "eps must be finite"),
    ],
}
REFUSALS = [(norm, *refusal) for norm, refusals in REFUSED.items() for refusal in refusals]


@pytest.mark.parametrize(("norm", "arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(norm, arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            getattr(gallery_kernels, norm)(*arguments)
        call(norm, TWO, ONE, ONE)
        call(norm, TWO, ONE, ONE, 1.0)  # equal to True, but of another type


@both_norms
def test_bfloat16_is_refused_in_the_interpreter(norm):
    """It computes other results there."""
    with pytest.raises(TypeError, match="dtype of x is torch.bfloat16, which .* interpreter"):
        call(norm, TWO.bfloat16(), ONE, ONE)
