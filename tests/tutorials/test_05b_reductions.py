"""Layer norm of long rows and its gradients, in the interpreter, against float64."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close


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


def test_an_error_names_the_argument(page):
    x, weight = torch.ones(2, 3), torch.ones(3)
    for call, error, message in (
        ((x.double(), weight, weight), TypeError, "x must be float16"),
        ((x, torch.ones(4), weight), ValueError, r"weight must have shape \(3,\)"),
        ((x.T, torch.ones(2), torch.ones(2)), ValueError, r"pass x.contiguous\(\)"),
        ((weight, weight, weight), ValueError, "x must be a matrix"),
    ):
        with pytest.raises(error, match=message):
            page["long_layer_norm"](*call)
