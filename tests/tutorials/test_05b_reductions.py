"""Layer norm of long rows and its gradients, in the interpreter, against float64."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.tutorials.launches import launches_of


@pytest.mark.parametrize("shape", [(1, 1), (3, 781), (2, 4096), (5, 4097), (2, 20_001)])
def test_results_and_gradients(page, shape):
    x, g = torch.randn(2, *shape)
    weight, bias = torch.randn(2, shape[1])
    y, stats = page["long_layer_norm"](x, weight, bias)
    inputs = [t.double().requires_grad_() for t in (x, weight, bias)]
    expected = functional.layer_norm(inputs[0], weight.shape, *inputs[1:])
    assert_close(y.double(), expected.detach(), rtol=1e-5, atol=1e-4)
    found = page["long_layer_norm_backward"](x, g, weight, stats)
    for one, right in zip(found, torch.autograd.grad(expected, inputs, g.double()), strict=True):
        assert_close(one.double(), right, rtol=1e-4, atol=1e-3)


def test_a_mean_of_a_thousand_deviations(page):
    """A variance in one pass over the row would be off by several per cent."""
    x, weight = torch.randn(2, 9000) + 1000, torch.ones(9000)
    y, _ = page["long_layer_norm"](x, weight, torch.zeros(9000))
    expected = functional.layer_norm(x.double(), (9000,))
    assert_close(y.double(), expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 1), (3, 781), (5, 4097)])
def test_all_ways_and_the_idea_in_pytorch_agree(page, shape):
    x, g, weight, stats = page["inputs_of"](*shape, torch.float32)
    expected = page["gradients_in_pytorch"](x, g, weight, stats)
    for way in page["WAYS"].values():
        for one, right in zip(way(x, g, weight, stats), expected, strict=True):
            assert_close(one, right, rtol=1e-4, atol=1e-4)


def test_the_plain_functions_launch_the_same(page, plain):
    x, g = torch.randn(2, 3, 4097)
    weight, bias = torch.randn(2, 4097)
    lesson = plain("05b-reductions")
    y, stats = lesson.long_layer_norm(x, weight, bias)
    assert all(map(torch.equal, (y, stats), page["long_layer_norm"](x, weight, bias)))
    results = (
        names(x, g, weight, stats)
        for names in (lesson.long_layer_norm_backward, page["long_layer_norm_backward"])
    )
    assert all(map(torch.equal, *results))
    launches = [
        launches_of(page[name], x, weight, bias)[0]
        for name in ("LAUNCHED_FORWARD", "long_layer_norm")
    ]
    assert launches[0] == launches[1]


def test_every_argument_may_be_negated_lazily(page):
    x, g = torch.randn(2, 3, 4097)
    weight, bias = torch.randn(2, 4097)
    negated = torch._neg_view
    right = page["long_layer_norm"](-x, -weight, -bias)
    found = page["long_layer_norm"](*map(negated, (x, weight, bias)))
    assert all(map(torch.equal, found, right))
    stats = right[1]
    right = page["long_layer_norm_backward"](-x, -g, -weight, stats)
    found = page["long_layer_norm_backward"](*map(negated, (x, g, weight, -stats)))
    assert all(map(torch.equal, found, right))
