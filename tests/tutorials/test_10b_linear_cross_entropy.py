"""The fused last layer, in the interpreter, against float64."""

from functools import partial

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.tutorials.float64 import beside_float64
from tests.tutorials.launches import launches_of


# m, k, v and the rows of a piece
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (20, 30, 600, 7), (7, 3, 50, 25), (13, 5, 33, 13)])
def test_a_last_layer_in_pieces(page, sizes):
    m, k, v, piece = sizes
    targets = torch.randint(0, v, (m,))
    targets[1::3] = -100
    layer = partial(page["linear_cross_entropy"], targets=targets, piece=piece)
    reference = lambda x, w: functional.cross_entropy(x @ w.T, targets)  # noqa: E731
    x, weight = torch.randn(m, k), torch.randn(k, v).T
    for _, actual, wanted in beside_float64(layer, reference, x, weight):
        assert_close(actual.double(), wanted, rtol=1e-4, atol=1e-5)


def test_a_last_layer_never_holds_all_logits(page, monkeypatch):
    sizes, empty = [], torch.empty

    def noting(*args, **kwargs):
        tensor = empty(*args, **kwargs)
        sizes.append(tensor.numel())
        return tensor

    monkeypatch.setattr(torch, "empty", noting)
    x, weight = torch.randn(25, 4).requires_grad_(), torch.randn(300, 4).requires_grad_()
    page["linear_cross_entropy"](x, weight, torch.randint(0, 300, (25,)), piece=10).backward()
    assert max(sizes) == 10 * 304  # rows begin at multiples of 16


def test_without_gradients_and_with_one(page):
    x, weight, targets = torch.randn(7, 3), torch.randn(33, 3), torch.randint(0, 33, (7,))
    right = functional.cross_entropy(x @ weight.T, targets)
    weight.requires_grad_()
    with torch.no_grad():
        assert_close(page["linear_cross_entropy"](x, weight, targets, piece=2), right)
    loss = page["linear_cross_entropy"](x, weight, targets, piece=2)
    loss.backward(retain_graph=True)
    (wanted,) = torch.autograd.grad(functional.cross_entropy(x @ weight.T, targets), weight)
    assert_close(weight.grad, wanted)
    with pytest.raises(RuntimeError, match="linear_cross_entropy: backward was called twice"):
        loss.backward()


def test_the_plain_function_makes_the_launches_of_the_public_one(page, plain):
    x, weight, targets = torch.randn(7, 5), torch.randn(4100, 5), torch.randint(0, 4100, (7,))
    lesson = plain("10b-linear-cross-entropy")
    shown, (loss, *gradients) = launches_of(lesson.loss_and_gradients, x, weight, targets, 3)

    ours = [t.clone().requires_grad_() for t in (x, weight)]
    full, mean = launches_of(page["linear_cross_entropy"].__wrapped__, *ours, targets, -100, 3)
    assert shown == full
    assert torch.equal(loss, mean)
    for a, b in zip(gradients, torch.autograd.grad(mean, ours), strict=True):
        assert torch.equal(a, b)


def test_targets_whose_sign_is_still_to_be_changed(page):
    x, weight, targets = torch.randn(7, 3), torch.randn(33, 3), torch.randint(0, 33, (7,))
    right = functional.cross_entropy(x @ weight.T, targets)
    assert_close(page["linear_cross_entropy"](x, weight, torch._neg_view(-targets)), right)
