"""Dropout by a seed: reproducible masks, values and gradients."""

import math

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from gallery_kernels import seeded_dropout

SEEDS = [0, 1, 123, 2**31, 2**32 + 1, 2**63, 2**64 - 1]
SIZES = [1, 3, 4, 5, 1023, 1024, 5003]
PROBABILITIES = [0.0, 1e-9, 0.3, 0.5, 0.9, 1 - 2**-20, 1.0]
WORD = 2**32 - 1


def multiply(factor, x):
    """Return the high and the low word of a product of words."""
    low = (x & 0xFFFF) * factor
    high = (x >> 16) * factor + (low >> 16)
    return high >> 16, (high << 16 | low & 0xFFFF) & WORD


def philox(seed, counter):
    """Return four random words for each element of *counter*, a tensor of int64."""
    c0, c1 = counter & WORD, counter >> 32
    c2 = c3 = torch.zeros_like(counter)
    k0, k1 = seed & WORD, seed >> 32
    for _ in range(10):
        high0, low0 = multiply(0xD2511F53, c0)
        high2, low2 = multiply(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def expected_mask(n, p, seed):
    words = torch.stack(philox(seed, torch.arange((n + 3) // 4)), dim=1)
    return words.flatten()[:n] >= min(round(p * 2**32), 2**32 - 1)


def expected(x, p, seed):
    """Dropout of *x* in float64."""
    if p == 1:
        return torch.zeros_like(x, dtype=torch.float64)
    keep = expected_mask(x.numel(), p, seed).reshape(x.shape)
    return torch.where(keep, x.double() / (1 - p), 0.0)


def test_philox_gives_the_words_that_random123_publishes():
    words = [int(word) for word in philox(0, torch.tensor([0]))]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("n", SIZES)
def test_the_mask_depends_on_seed_and_position_alone(n):
    x = torch.randn(n)
    for seed, p in zip(SEEDS, PROBABILITIES, strict=True):
        y = seeded_dropout(x, p, seed)
        assert_close(y.double(), expected(x, p, seed), rtol=1e-6, atol=0)
    y = seeded_dropout(x, 0.5, 3)
    assert torch.equal(seeded_dropout(x[: n // 2], 0.5, 3), y[: n // 2])


@pytest.mark.parametrize("p", [0.01, 0.5, 0.99])
def test_the_kept_fraction_is_within_binomial_bounds(p):
    keep = seeded_dropout(torch.ones(2**14), p, 2**50) > 0
    for part, share in ((keep, 1 - p), (keep[1:] & keep[:-1], (1 - p) ** 2)):
        mean = len(part) * share
        # Overlapping pairs are not independent; twice the binomial deviation covers them.
        deviation = 2 * math.sqrt(mean * (1 - share))
        assert abs(part.sum().item() - mean) < 4 * deviation


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_results_and_gradients(dtype):
    x = torch.randn(781, 3).to(dtype).requires_grad_()
    g = torch.randn_like(x)
    y = seeded_dropout(x, 0.4, 5)
    assert_close(y, expected(x, 0.4, 5).to(dtype))
    (dx,) = torch.autograd.grad(y, x, g)
    assert_close(dx, expected(g, 0.4, 5).to(dtype))


def test_a_view_gives_what_its_copy_gives():
    x = torch.randn(40, 60)
    for view in (x.T, x[:, ::3], x[1:, 5:], x[:1].expand(7, -1)):
        leaf = view.clone().requires_grad_()
        y = seeded_dropout(view, 0.5, 4)
        assert y.is_contiguous()
        assert torch.equal(y, seeded_dropout(leaf, 0.5, 4))
        g = torch.randn(view.shape[::-1]).T
        (dx,) = torch.autograd.grad(seeded_dropout(leaf, 0.5, 4), leaf, g)
        assert torch.equal(dx, seeded_dropout(g.contiguous(), 0.5, 4))


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_dropped_infinity_or_nan_becomes_zero(value):
    x = torch.full((123,), value)
    keep = expected_mask(123, 0.5, 8)
    y = seeded_dropout(x, 0.5, 8)
    assert not y[~keep].any()
    assert_close(y[keep], x[keep], equal_nan=True)
    assert not seeded_dropout(x, 1.0, 8).any()


def test_nothing_is_kept_for_backward():
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.nbytes), lambda t: t):
        seeded_dropout(torch.randn(1000, requires_grad=True), 0.5, 0)
    assert sum(saved) == 0


def test_second_derivatives_and_gradients_of_any_strides():
    x = torch.randn(1000, requires_grad=True)
    g = torch.ones(1).expand(1000).requires_grad_()
    y = seeded_dropout(x, 0.5, 9)
    (dx,) = torch.autograd.grad(y, x, g, create_graph=True)
    assert_close(dx, seeded_dropout(torch.ones(1000), 0.5, 9))
    (dg,) = torch.autograd.grad(dx, g, x.detach())
    assert_close(dg, y.detach())


def test_without_gradients_nothing_is_recorded():
    x = torch.randn(100, requires_grad=True)
    with torch.no_grad():
        assert not seeded_dropout(x, 0.5, 1).requires_grad
    assert seeded_dropout(x, 0.5, 1).requires_grad


def in_memory(seed):
    """The same 64 bits as an int64 tensor of one element."""
    return torch.tensor([seed - 2**64 if seed >= 2**63 else seed])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_in_memory_is_the_same_seed(seed):
    x, place = torch.randn(123), in_memory(seed)
    y = seeded_dropout(x.requires_grad_(), 0.4, place)
    assert torch.equal(y, seeded_dropout(x, 0.4, seed))
    (dx,) = torch.autograd.grad(y, x, torch.ones(123), retain_graph=True)
    assert torch.equal(dx, seeded_dropout(torch.ones(123), 0.4, seed))
    assert torch.equal(seeded_dropout(x, 0.4, place[0]), y)
    other_sign = torch._neg_view(-place)  # which is still to be changed
    assert torch.equal(seeded_dropout(x, 0.4, other_sign), y)
    place.add_(1)  # the mask of the forward pass cannot be computed again
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, x, torch.ones(123))


def step(x, seed):
    """A part of a program that uses dropout."""
    return 2 * seeded_dropout(x, 0.5, seed)


@pytest.mark.parametrize("seed", [7, 2**64 - 1])
def test_a_compiled_function_is_right_with_its_gradient(seed):
    torch.compiler.reset()
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    for number in (seed, seed - 1, in_memory(seed)):  # another number, and a tensor
        x = torch.randn(123, requires_grad=True)
        y, right = compiled(x, number), step(x, number)
        assert torch.equal(y, right)
        assert torch.equal(*[torch.autograd.grad(t.sum(), x)[0] for t in (y, right)])


def test_a_seed_that_changes_is_compiled_anew_once():
    """PyTorch's compiler takes a first number as it is, and a second one as a symbol."""
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, backend=counter, fullgraph=True)
    x = torch.randn(123, requires_grad=True)
    for seed in (11, 12, 13, 2**31, 2**40, 2**63 - 1, 5, 99):
        y, right = compiled(x, seed), step(x, seed)
        assert torch.equal(y, right)
        assert torch.equal(*[torch.autograd.grad(t.sum(), x)[0] for t in (y, right)])
    assert counter.frame_count <= 2


def test_a_seed_on_the_gpu_is_never_compiled_anew():
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, backend=counter, fullgraph=True)
    x, place = torch.randn(123), torch.tensor([3])
    for _ in range(5):
        assert torch.equal(compiled(x, place), step(x, place))
        place.add_(1)
    assert counter.frame_count == 1


@pytest.mark.parametrize("shape", [(0,), (0, 5)])
def test_nothing_gives_nothing(shape):
    x = torch.randn(shape, requires_grad=True)
    y = seeded_dropout(x, 0.5, 1)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape


ONE = torch.ones(3)

REFUSALS = [
    ((ONE, math.nan, 0), ValueError, "p must be from 0 to 1, but is nan"),
    ((ONE, 1.5, 0), ValueError, "p must be from 0 to 1, but is 1.5"),
    ((ONE, "0.5", 0), TypeError, "p must be a number, but is a str"),
    ((ONE, 0.5, 2**64), ValueError, "seed must be .* 18446744073709551616"),
    ((ONE, 0.5, -1), ValueError, "seed must be from 0 to 2"),
    ((ONE, 0.5, 1.0), TypeError, "seed must be an int, but is a float"),
    ((ONE, 0.5, True), TypeError, "seed must be an int, but is a bool"),
    ((ONE.int(), 0.5, 3), TypeError, "the dtype of x"),
    ((ONE, 0.5, torch.tensor([1, 2])), ValueError, "seed, if a tensor, must be one int64 on cpu"),
    ((ONE, 0.5, torch.tensor(1.0)), ValueError, "seed, if a tensor, must be one int64 on cpu"),
    ((ONE, 0.5, torch.tensor(1, device="meta")), ValueError, "must be one int64 on cpu"),
    ((ONE, 0.5, torch.tensor([1]).to_sparse()), ValueError, "must be one int64 on cpu"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            seeded_dropout(*arguments)
        seeded_dropout(ONE, 0.5, 0)
