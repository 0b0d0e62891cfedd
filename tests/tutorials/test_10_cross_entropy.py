"""Cross-entropy and the fused last layer, in the interpreter, against float64."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.tutorials.float64 import beside_float64

# A probability has an error of a few units of 2**-24 times its logit; fp16 rounds to 11 bits.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2**-10}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinities


def drawn(m, v, dtype=torch.float32):
    """Random logits and targets, a third of which do not count."""
    targets = torch.randint(0, v, (m,))
    targets[1::3] = -100
    return (3 * torch.randn(m, v)).to(dtype), targets


def assert_loss(found, logits, targets, ignore_index=-100):
    """Compare a loss and its gradient with float64."""
    loss, gradient = found
    assert (loss.dtype, loss.shape, gradient.dtype) == (torch.float32, (), logits.dtype)
    exact = logits.detach().double().requires_grad_()
    right = functional.cross_entropy(exact, targets.long(), ignore_index=ignore_index)
    (wanted,) = torch.autograd.grad(right, exact)
    assert_close(loss.double(), right, rtol=1e-5, atol=1e-6, equal_nan=True)
    # At a target 1 is subtracted, so the error is relative to 1 / n. Below 2**-14, fp16 has steps
    # of 2**-24.
    rtol = TOLERANCES[logits.dtype]
    atol = max(rtol / len(targets), 2**-24 if logits.dtype == torch.float16 else 0)
    assert_close(gradient.double(), wanted, rtol=rtol, atol=atol, equal_nan=True)


def assert_cross_entropy(page, logits, targets, **options):
    logits = logits.detach().requires_grad_()
    loss = page["cross_entropy"](logits, targets, **options)
    (half,) = torch.autograd.grad(loss / 2, logits)
    assert_loss((loss, 2 * half), logits, targets, **options)


# One column, around groups of 16 bytes and around blocks, and whole vocabularies.
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("m", "v"),
    [(9, v) for v in (1, 3, 8, 15, 16, 17, 781, 4096, 4104)] + [(1, 1), (3, 10001), (2, 50257)],
)
def test_loss_and_gradient(page, m, v, dtype):
    assert_cross_entropy(page, *drawn(m, v, dtype))


def test_targets_that_do_not_count_and_targets_of_32_bits(page):
    nothing = page["cross_entropy"](torch.empty(0, 5), torch.empty(0, dtype=torch.int64))
    assert nothing.isnan()
    logits, targets = drawn(6, 20)
    assert_cross_entropy(page, logits, torch.full((6,), -100))
    assert_cross_entropy(page, logits, targets.int())
    assert_cross_entropy(page, logits, targets.clamp_min(3), ignore_index=3)


VIEWS = {
    "odd columns of even rows": lambda x: x[:, 3:70],
    "aligned columns of aligned rows": lambda x: x[:, :64],
    "every third row": lambda x: x[::3],
    "one row expanded": lambda x: x[:1].expand(4, -1),
    "an address between two groups": lambda x: x.flatten()[3 : 3 + 5 * 33].view(5, 33),
    "one column": lambda x: x[:, 5:6],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("width", [80, 81])
def test_views(page, view, width):
    logits = view(torch.randn(13, width))
    assert_cross_entropy(page, logits, torch.randint(0, logits.shape[1], (len(logits),)))


def test_infinities_and_large_logits_as_in_pytorch(page):
    logits = torch.randn(8, 3000)
    logits[0] = -math.inf
    logits[1, :2500] = -math.inf  # whole blocks
    logits[2, 17] = -math.inf
    logits[3, 5] = math.inf
    logits[4] = torch.finfo(torch.float32).min  # the smallest finite number
    logits[5, :2] = 1e30
    logits[6, :2] = torch.tensor([3e38, -3e38])
    logits[7, 9] = -math.inf  # at the target
    targets = torch.tensor([1, 2700, 18, 7, 9, 0, 0, 9])
    for row in range(7):
        assert_cross_entropy(page, logits[row : row + 1], targets[row : row + 1])
    assert page["cross_entropy"](logits[7:], targets[7:]) == math.inf


def test_only_inplace_overwrites_the_logits_and_autograd_knows(page):
    x, targets = drawn(5, 781)
    for inplace in (False, True):
        leaf = x.clone().requires_grad_()
        logits = leaf * 1
        loss = page["cross_entropy"](logits, targets, inplace=inplace)
        loss.backward()
        assert_loss((loss, leaf.grad), x, targets)
        assert torch.equal(logits.detach(), leaf.grad if inplace else x)
    logits = torch.tanh(x.requires_grad_())  # whose derivative needs the logits
    loss = page["cross_entropy"](logits, targets, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_second_backward_and_a_second_derivative_are_refused(page):
    logits, targets = drawn(5, 30)
    loss = page["cross_entropy"](logits.requires_grad_(), targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="cross_entropy: backward was called twice"):
        loss.backward()
    loss = page["cross_entropy"](logits, targets)
    with pytest.raises(RuntimeError, match="cross_entropy: there is no second derivative"):
        torch.autograd.grad(loss, logits, create_graph=True)


# m, k, v and the rows of a piece
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (20, 30, 600, 7), (7, 3, 50, 25), (13, 5, 33, 13)])
def test_a_last_layer_in_pieces(page, sizes):
    m, k, v, piece = sizes
    _, targets = drawn(m, v)
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
    assert max(sizes) == 10 * 300
