"""Dropout, in the interpreter: reproducible masks, values and gradients."""

import math

import pytest
import torch
from torch.testing import assert_close

from tests.tutorials.compiled import compiled
from tests.tutorials.launches import launches_of

SEEDS = [0, 1, 123, 2**31, 2**32 + 1, 2**63, 2**64 - 1]
SIZES = [1, 3, 4, 5, 1023, 1024, 5003]
PROBABILITIES = [0.0, 1e-9, 0.3, 0.5, 0.9, 1 - 2**-20, 1.0]


def expected(page, x, p, seed):
    """Dropout of *x* in float64, with the mask of the page's Philox in PyTorch."""
    if p == 1:
        return torch.zeros_like(x, dtype=torch.float64)
    keep = page["expected_mask"](x.numel(), p, seed).reshape(x.shape)
    return torch.where(keep, x.double() / (1 - p), 0.0)


def test_philox_gives_the_words_that_random123_publishes(page):
    words = [int(word) for word in page["philox"](0, torch.tensor([0]))]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("n", SIZES)
def test_the_mask_depends_on_seed_and_position_alone(page, n):
    x = torch.randn(n)
    for seed, p in zip(SEEDS, PROBABILITIES, strict=True):
        y = page["seeded_dropout"](x, p, seed)
        assert_close(y.double(), expected(page, x, p, seed), rtol=1e-6, atol=0)
    y = page["seeded_dropout"](x, 0.5, 3)
    assert torch.equal(page["seeded_dropout"](x[: n // 2], 0.5, 3), y[: n // 2])
    for block in (64, 2048):
        assert torch.equal(page["launch"](x, None, 0.5, 3, block=block), y)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.99])
def test_the_kept_fraction_is_within_binomial_bounds(page, p):
    keep = page["seeded_dropout"](torch.ones(2**14), p, 2**50) > 0
    for part, share in ((keep, 1 - p), (keep[1:] & keep[:-1], (1 - p) ** 2)):
        mean = len(part) * share
        # Overlapping pairs are not independent; twice the binomial deviation covers them.
        deviation = 2 * math.sqrt(mean * (1 - share))
        assert abs(part.sum().item() - mean) < 4 * deviation


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_both_kernels_and_their_gradients(page, dtype):
    x = torch.randn(781, 3).to(dtype).requires_grad_()
    keep = page["expected_mask"](x.numel(), 0.4, 5).reshape(x.shape)
    g = torch.randn_like(x)
    for y in (page["dropout"](x, keep, 0.4), page["seeded_dropout"](x, 0.4, 5)):
        assert_close(y, expected(page, x, 0.4, 5).to(dtype))
        (dx,) = torch.autograd.grad(y, x, g)
        assert_close(dx, expected(page, g, 0.4, 5).to(dtype))


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_dropped_infinity_or_nan_becomes_zero(page, value):
    x = torch.full((123,), value)
    for p in (0.5, 1.0):
        keep = page["expected_mask"](123, p, 8) if p < 1 else torch.zeros(123, dtype=torch.bool)
        for y in (page["seeded_dropout"](x, p, 8), page["dropout"](x, keep, p)):
            assert not y[~keep].any()
            assert_close(y[keep], x[keep], equal_nan=True)


def bytes_saved(function):
    """The bytes that *function* of a tensor with 1000 elements saves for its backward pass."""
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.nbytes), lambda t: t):
        function(torch.randn(1000, requires_grad=True))
    return sum(saved)


def test_only_a_mask_is_kept_for_backward(page):
    assert bytes_saved(lambda x: page["seeded_dropout"](x, 0.5, 0)) == 0
    mask = torch.ones(1000, dtype=torch.bool)
    assert bytes_saved(lambda x: page["dropout"](x, mask, 0.5)) == 1000


def test_second_derivatives_and_gradients_of_any_strides(page):
    x = torch.randn(1000, requires_grad=True)
    g = torch.ones(1).expand(1000).requires_grad_()
    y = page["seeded_dropout"](x, 0.5, 9)
    (dx,) = torch.autograd.grad(y, x, g, create_graph=True)
    assert_close(dx, page["seeded_dropout"](torch.ones(1000), 0.5, 9))
    (dg,) = torch.autograd.grad(dx, g, x.detach())
    assert_close(dg, y.detach())


def test_without_gradients_nothing_is_recorded(page):
    x = torch.randn(100, requires_grad=True)
    with torch.no_grad():
        assert not page["seeded_dropout"](x, 0.5, 1).requires_grad
    assert page["seeded_dropout"](x, 0.5, 1).requires_grad


def in_memory(seed):
    """The same 64 bits as an int64 tensor of one element."""
    return torch.tensor([seed - 2**64 if seed >= 2**63 else seed])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_in_memory_is_the_same_seed(page, seed):
    x, place = torch.randn(123), in_memory(seed)
    y = page["seeded_dropout"](x.requires_grad_(), 0.4, place)
    assert torch.equal(y, page["seeded_dropout"](x, 0.4, seed))
    (dx,) = torch.autograd.grad(y, x, torch.ones(123), retain_graph=True)
    assert torch.equal(dx, page["seeded_dropout"](torch.ones(123), 0.4, seed))
    assert torch.equal(page["seeded_dropout"](x, 0.4, place[0]), y)
    other_sign = torch._neg_view(-place)  # which is still to be changed
    assert torch.equal(page["seeded_dropout"](x, 0.4, other_sign), y)
    place.add_(1)  # the mask of the forward pass cannot be computed again
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, x, torch.ones(123))


@pytest.mark.parametrize("seed", [7, 2**64 - 1])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_compiled_function_is_right_with_its_gradient(page, seed):
    step = lambda x, seed: 2 * page["seeded_dropout"](x, 0.5, seed)  # noqa: E731
    with compiled(page["seeded_dropout"], step) as whole:
        for number in (seed, seed - 1, in_memory(seed)):  # another number, and a tensor
            x = torch.randn(123, requires_grad=True)
            y, right = whole(x, number), step(x, number)
            assert torch.equal(y, right)
            assert torch.equal(*(torch.autograd.grad(t.sum(), x)[0] for t in (y, right)))


@pytest.mark.parametrize("n", [1, 1023, 5003])
def test_the_plain_function_gives_the_same_bits(page, plain, n):
    x = torch.randn(n)
    lesson = plain("04-low-memory-dropout")
    y = page["seeded_dropout"](x, 0.3, 9)
    assert torch.equal(lesson.seeded_dropout(x, 0.3, 9), y)
    keep = page["expected_mask"](n, 0.3, 9)
    assert torch.equal(lesson.dropout(x, keep, 0.3), page["dropout"](x, keep, 0.3))


def test_the_plain_function_launches_the_same(page):
    """The same kernel and grid with equal numbers and constants, so one time serves both."""
    x = torch.randn(5003)
    (plainly,), _ = launches_of(page["drop"], x, 0.3, 9)
    (launched,), _ = launches_of(page["seeded_dropout"], x, 0.3, 9)
    assert plainly == launched
