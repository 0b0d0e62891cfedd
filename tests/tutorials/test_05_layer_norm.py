"""Layer and RMS norm and their gradients, in the interpreter, against float64."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.tutorials.float64 import VIEWS, assert_norm

NORMS = ("layer_norm", "rms_norm")
both_norms = pytest.mark.parametrize("norm", NORMS)


# One element, partial blocks, several rows for each program, the longest row that fits a tile, and
# longer ones; more dimensions than two. Norms and dtypes alternate.
SHAPES = [(1, 1), (5, 1), (3, 2), (7, 5), (2, 781), (3, 1025), (1, 4097), (2, 16_384), (1, 16_385)]
SHAPES += [(60, 3), (19, 129), (781,), (2, 3, 5, 7)]


@both_norms
@pytest.mark.parametrize(("i", "shape"), list(enumerate(SHAPES)))
def test_results_and_gradients(page, norm, i, shape):
    dtype = (torch.float16, torch.float32)[(i + (norm == "rms_norm")) % 2]
    x = (2 * torch.randn(shape) + 1).to(dtype)
    assert_norm(page, norm, x, *torch.randn(2, shape[-1]).to(dtype))


MORE_VIEWS = VIEWS | {
    "dimensions that do not merge": lambda x: x.reshape(13, 8, 10).transpose(0, 1),
    "distant elements of a row": lambda x: x.reshape(13, 8, 10).transpose(1, 2),
}


@pytest.mark.parametrize(("i", "view"), list(enumerate(MORE_VIEWS.values())), ids=MORE_VIEWS)
def test_views(page, i, view):
    x = view(torch.randn(13, 80))
    # In a row of equal elements, the rounding error of the mean is divided by the root of eps.
    slack = 20 if x.stride(-1) == 0 else 1
    assert_norm(page, NORMS[i % 2], x, *torch.randn(x.shape[-1], 2).T, slack=slack)


@both_norms
def test_long_rows_and_gradients_that_are_views(page, norm):
    x, g = torch.randn(2, 17_001, 2).mT
    assert_norm(page, norm, x, *torch.randn(2, 17_001), g=g)
    expanded = torch.ones(()).expand(3, 80)  # what autograd passes to the backward of y.sum()
    assert_norm(page, norm, torch.randn(3, 80), *torch.randn(2, 80), g=expanded)


@pytest.mark.parametrize("n", [1000, 17_000])
def test_a_mean_of_a_thousand_deviations(page, n):
    """A variance in one pass over the row would be off by several per cent."""
    # fp32 represents a mean of 1000 with an error of 1e-4, relative to a deviation of 1.
    assert_norm(page, "layer_norm", torch.randn(2, n) + 1000, *torch.randn(2, n), slack=10)


@pytest.mark.parametrize(("norm", "n"), [("layer_norm", 50), ("rms_norm", 17_000)])
def test_nan_and_infinity_stay_in_their_rows(page, norm, n):
    x, weight = torch.randn(6, n), torch.ones(n)
    more = (torch.zeros(n),) if norm == "layer_norm" else ()
    good = page[norm](x, weight, *more)
    x[2, n // 2], x[4, n - 1] = torch.nan, torch.inf
    y = page[norm](x, weight, *more)
    assert not y[[2, 4]].isfinite().all(dim=1).any()
    assert torch.equal(y[[0, 1, 3, 5]], good[[0, 1, 3, 5]])


@both_norms
def test_a_second_derivative_is_refused(page, norm):
    """Even if the first one does not need the gradient that arrives, and would be complete."""
    x, parameters = torch.randn(2, 8, requires_grad=True), torch.ones(2, 8)
    y = page[norm](x, *parameters[: 2 if norm == "layer_norm" else 1])
    with pytest.raises(RuntimeError, match=f"{norm} has no second derivative"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
    x = torch.randn(2, 8, requires_grad=True)
    torch.autograd.grad(page["LayerNorm"].apply(x, *parameters, 1e-5).sum(), x)
    y = page["LayerNorm"].apply(x, *parameters, 1e-5)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


@pytest.mark.parametrize("shape", [(1, 1), (7, 781), (33, 1024), (2, 4097)])
def test_the_plain_function_and_the_one_for_programs_agree(page, plain, shape):
    tensors = [torch.randn(shape), *torch.randn(2, shape[-1])]
    g, results = torch.randn(shape), []
    for norm in (plain("05-layer-norm").layer_norm, page["layer_norm"]):
        leaves = [t.clone().requires_grad_() for t in tensors]
        y = norm(*leaves)
        results.append((y.detach(), *torch.autograd.grad(y, leaves, g)))
    for one, other in zip(*results, strict=True):
        assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_a_kept_launch_is_for_arguments_that_are_alike(page):
    """A right call first: what is kept for it must not answer another one."""
    norm, buffer, weight = page["rms_norm"], torch.randn(8 * 48 + 1), torch.randn(48)
    for x in (buffer[:-1].view(8, 48), buffer[1:].view(8, 48), buffer[:-1].view(48, 8).T.half()):
        expected = functional.rms_norm(x.double(), (48,), weight.double(), 1e-6)
        assert_close(norm(x, weight).double(), expected, rtol=0, atol=2e-2)


@both_norms
@pytest.mark.parametrize("n", [1, 33, 4100])
def test_rows_that_lie_apart_are_read_in_place(page, norm, n, monkeypatch):
    """Neither a slice of columns nor a gradient that is one is copied."""
    x, g = torch.randn(2, 3, n + 7)[..., 2 : n + 2]
    weights = torch.randn(2, n)
    monkeypatch.setattr(torch.Tensor, "contiguous", lambda t: t if t.is_contiguous() else 1 / 0)
    for _ in range(2):  # the second time with a launch that is kept
        assert_norm(page, norm, x, *weights, g=g)
    more = weights if norm == "layer_norm" else weights[:1]
    y = page[norm](x, *more)
    assert y.is_contiguous()
    # The same shape with another stride must not get the launch that was kept.
    assert_close(y, page[norm](torch.stack([*x]), *more), rtol=0, atol=0)
    assert_close(y, page[norm](torch.cat([x, x], dim=1)[:, :n], *more), rtol=0, atol=0)


@both_norms
def test_gradients_only_where_a_tensor_needs_them(page, norm):
    x, parameters = torch.randn(3, 8), torch.ones(2 if norm == "layer_norm" else 1, 8)
    assert page[norm](x, *parameters).grad_fn is None
    assert page[norm](x, *parameters.requires_grad_()).requires_grad
    with torch.no_grad():
        assert page[norm](x, *parameters).grad_fn is None


@both_norms
def test_saved_tensors_that_come_back_with_other_strides(page, norm):
    """A hook may keep a slice as a contiguous copy; the plan of the slice does not fit it."""
    x, weights = torch.randn(5, 48)[:, :40], torch.randn(2, 40)
    assert_norm(page, norm, x, *weights)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous(), lambda t: t):
        assert_norm(page, norm, x, *weights)


@both_norms
def test_parameters_of_other_dtypes_and_the_same_bits_without_gradients(page, norm):
    x, weight, bias = torch.randn(6, 300), torch.randn(300).half(), torch.randn(300)
    tensors = (x, weight, bias)[: 3 if norm == "layer_norm" else 2]
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = page[norm](*leaves)
    assert torch.equal(y, page[norm](*tensors))
    for gradient, t in zip(torch.autograd.grad(y.sum(), leaves), tensors, strict=True):
        assert (gradient.dtype, gradient.shape) == (t.dtype, t.shape)


@both_norms
def test_parts_of_complex_numbers_that_are_conjugated_lazily(page, norm):
    """The imaginary part of a lazy conjugate is a view with the wrong sign in memory."""
    x, g = torch.randn(2, 5, 48, dtype=torch.complex64)
    weights = torch.randn(2, 48, dtype=torch.complex64).conj().imag
    for part in (lambda z: z.conj().imag, lambda z: torch._neg_view(z.real.contiguous())):
        assert part(x).is_neg()
        for _ in range(2):  # the second time, launches are kept for tensors of other signs
            assert_norm(page, norm, part(x), *weights, g=part(g))
            assert_norm(page, norm, part(x).resolve_neg(), *weights.resolve_neg(), g=part(g))
