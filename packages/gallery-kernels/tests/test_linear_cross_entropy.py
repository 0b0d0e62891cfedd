"""The last layer and its loss, against float64."""

import sys

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from gallery_kernels import linear_cross_entropy

MODULE = sys.modules["gallery_kernels.linear_cross_entropy"]


def assert_layer(x, weight, targets, **options):
    """Compare the loss and both gradients with float64."""
    ours = [t.detach().requires_grad_() for t in (x, weight)]
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    for _ in range(2):  # the second call uses the plan of the first
        loss = linear_cross_entropy(*ours, targets, **options)
    expected = functional.cross_entropy(exact[0] @ exact[1].T, targets.long())
    assert (loss.dtype, loss.shape) == (torch.float32, ())
    assert_close(loss.double(), expected, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(-3 * loss, ours)
    for found, right, x in zip(
        gradients, torch.autograd.grad(-3 * expected, exact), ours, strict=True
    ):
        assert found.dtype == x.dtype
        assert_close(found.double(), right, rtol=1e-4, atol=1e-5)


# m, k, v and the rows of a piece
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (20, 30, 600, 7), (7, 3, 50, 25), (13, 5, 33, 13)])
def test_a_last_layer_in_pieces(sizes):
    m, k, v, piece = sizes
    targets = torch.randint(0, v, (m,))
    targets[1::3] = -100
    assert_layer(torch.randn(m, k), torch.randn(k, v).T, targets, piece=piece)


def test_a_last_layer_never_holds_all_logits(monkeypatch):
    sizes, empty = [], torch.empty

    def noting(*args, **kwargs):
        tensor = empty(*args, **kwargs)
        sizes.append(tensor.numel())
        return tensor

    monkeypatch.setattr(torch, "empty", noting)
    x, weight = torch.randn(25, 4).requires_grad_(), torch.randn(300, 4).requires_grad_()
    linear_cross_entropy(x, weight, torch.randint(0, 300, (25,)), piece=10).backward()
    assert max(sizes) == 10 * 304  # rows begin at multiples of 16


def test_without_gradients_and_with_one():
    x, weight, targets = torch.randn(7, 3), torch.randn(33, 3), torch.randint(0, 33, (7,))
    right = functional.cross_entropy(x @ weight.T, targets)
    weight.requires_grad_()
    with torch.no_grad():
        assert_close(linear_cross_entropy(x, weight, targets, piece=2), right)
    loss = linear_cross_entropy(x, weight, targets, piece=2)
    loss.backward(retain_graph=True)
    (wanted,) = torch.autograd.grad(functional.cross_entropy(x @ weight.T, targets), weight)
    assert_close(weight.grad, wanted)
    with pytest.raises(RuntimeError, match="linear_cross_entropy: backward was called twice"):
        loss.backward()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_compiled_function_computes_only_the_gradients_that_are_needed(frozen, monkeypatch):
    """A frozen weight is one product less for each piece, and no memory for its gradient."""
    wanted = []
    loss_and_gradients = MODULE.loss_and_gradients

    def noting(plan, x, weight, targets, for_x, for_weight):
        wanted.append((for_x, for_weight))
        return loss_and_gradients(plan, x, weight, targets, for_x, for_weight)

    monkeypatch.setattr(MODULE, "loss_and_gradients", noting)
    inputs, targets = [torch.randn(7, 3), torch.randn(33, 3)], torch.randint(0, 33, (7,))
    leaf = inputs[1 - frozen].requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True)
    (found,) = torch.autograd.grad(compiled(*inputs, targets), leaf)
    (right,) = torch.autograd.grad(linear_cross_entropy(*inputs, targets), leaf)
    assert torch.equal(found, right)
    assert wanted == 2 * [(frozen == 1, frozen == 0)]
    with torch.no_grad():
        assert_close(compiled(*inputs, targets), linear_cross_entropy(*inputs, targets))
    assert wanted[2:] == 2 * [(False, False)]


def test_a_second_derivative_of_the_operation_is_refused():
    """The gradients are results of the operation; one that flows into them must not be lost."""
    x, weight, targets = torch.randn(7, 3), torch.randn(33, 3), torch.randint(0, 33, (7,))
    once = torch.func.grad(lambda x: linear_cross_entropy(x, weight, targets))
    with pytest.raises(RuntimeError, match="linear_cross_entropy has no second derivative"):
        torch.func.grad(lambda x: once(x).square().sum())(x)


def test_two_dtypes_under_autocast_are_cast_as_a_linear_layer_casts_them():
    """A step of training has activations in bf16 and a weight in fp32."""
    weight = torch.randn(33, 3, requires_grad=True)
    x = torch.randn(7, 3).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast_x, cast_weight = MODULE.cast_by_autocast(x, weight)
    assert cast_x.dtype == cast_weight.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(cast_weight.sum(), weight)
    assert gradient.dtype == torch.float32
    targets = torch.randint(0, 33, (7,))
    with (  # small gradients would be lost
        torch.autocast("cpu", dtype=torch.float16),
        pytest.raises(TypeError, match="dtype of x must be .* but is torch.float16"),
    ):
        linear_cross_entropy(x, weight, targets)
    with pytest.raises(TypeError, match="the dtype of (x|weight)"):
        linear_cross_entropy(x, weight, targets)


def test_targets_of_32_bits_views_and_signs_that_are_still_to_be_changed():
    x, weight, targets = torch.randn(7, 3), torch.randn(33, 3), torch.randint(0, 33, (14,))
    assert_layer(x, weight, targets[::2].int(), piece=3)
    right = functional.cross_entropy(x @ weight.T, targets[:7])
    assert_close(linear_cross_entropy(x, weight, torch._neg_view(-targets[:7])), right)
    assert_close(linear_cross_entropy(torch._neg_view(-x), weight, targets[:7]), right)


def test_no_tokens():
    x, weight = torch.ones(0, 3, requires_grad=True), torch.ones(5, 3, requires_grad=True)
    loss = linear_cross_entropy(x, weight, torch.empty(0, dtype=torch.int64))
    assert loss.isnan()
    loss.backward()
    assert x.grad.shape == (0, 3)
    assert weight.grad.nan_to_num().eq(0).all()


X, LAYER, TARGETS = torch.randn(4, 6), torch.randn(9, 6), torch.tensor([0, 1, 2, -100])

REFUSALS = [
    ((X.half(), LAYER.half(), TARGETS), TypeError, "dtype of x must be .* but is torch.float16"),
    ((X.bfloat16(), LAYER.bfloat16(), TARGETS), TypeError, "the dtype of x is torch.bfloat16"),
    ((X, LAYER.double(), TARGETS), TypeError, "the dtype of weight must be"),
    ((X, LAYER[:, :5], TARGETS), ValueError, "weight must have as many columns as x, 6"),
    ((X, LAYER[:0], TARGETS), ValueError, "weight must have at least one row"),
    ((X[0], LAYER, TARGETS), ValueError, r"x must be a matrix, but has shape \(6,\)"),
    ((X, LAYER, TARGETS[:3]), ValueError, r"shape \(4,\), but has shape \(3,\)"),
    ((X, LAYER, TARGETS + 8), ValueError, r"from 0 to 8, .* but targets\[1\] is 9"),
    ((X, LAYER, TARGETS, 1.0), TypeError, "ignore_index must be an int, but is a float"),
    ((X, LAYER, TARGETS, -100, 0), ValueError, "piece must be 1 or more, but is 0"),
    ((X, LAYER, TARGETS, -100, 1.0), TypeError, "piece must be an int, but is a float"),
    ((X, LAYER, TARGETS, -100, True), TypeError, "piece must be an int, but is a bool"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            linear_cross_entropy(*arguments)
        linear_cross_entropy(X, LAYER, TARGETS)
        linear_cross_entropy(X, LAYER, TARGETS, -100, 1)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("piece", [None, 700, 4096])
def test_full_sizes(piece, dtype, gpu):
    """The error is relative to the norm of a gradient: each element is a sum with its own."""
    x = torch.randn(3000, 512, device=gpu).to(dtype).requires_grad_()
    weight = (torch.randn(32_001, 512, device=gpu) / 512**0.5).to(dtype).requires_grad_()
    targets = torch.randint(0, 32_001, (3000,), device=gpu)
    targets[::5] = -100
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    right = functional.cross_entropy(exact[0] @ exact[1].T, targets)
    loss = linear_cross_entropy(x, weight, targets, piece=piece)
    limit = 2**-6 if dtype == torch.bfloat16 else 1e-4
    assert_close(loss.double(), right, rtol=limit, atol=0)
    gradients = torch.autograd.grad(loss, (x, weight))
    for found, wanted in zip(gradients, torch.autograd.grad(right, exact), strict=True):
        assert (found.double() - wanted).norm() < limit * wanted.norm()


@pytest.mark.gpu
def test_a_step_under_autocast(gpu):
    """Activations in bf16, and a weight in fp32, whose gradient is in fp32."""
    x = torch.randn(300, 64, dtype=torch.bfloat16, device=gpu, requires_grad=True)
    weight = torch.randn(1000, 64, device=gpu, requires_grad=True)
    targets = torch.randint(0, 1000, (300,), device=gpu)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = linear_cross_entropy(x, weight, targets)
        right = functional.cross_entropy(functional.linear(x, weight), targets)
    assert_close(loss, right, rtol=1e-2, atol=0)
    for found, wanted in zip(
        torch.autograd.grad(loss, (x, weight)),
        torch.autograd.grad(right, (x, weight)),
        strict=True,
    ):
        assert found.dtype == wanted.dtype
        assert (found - wanted).norm() < 2**-5 * wanted.norm()
