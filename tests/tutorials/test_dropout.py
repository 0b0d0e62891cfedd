"""Dropout: the mask is what the rule says, whatever the tuning, and so is the gradient."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

NAME = "04-low-memory-dropout"
SEEDS = [0, 1, 123, 2**31, 2**32 + 1, 2**63, 2**64 - 1]
seeds = st.one_of(st.sampled_from(SEEDS), st.integers(0, 2**64 - 1))
probabilities = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))
few = settings(max_examples=15, deadline=None)


@pytest.fixture(scope="module")
def page(tutorial):
    """Return the names of the tutorial."""
    return tutorial(NAME)


def solution(tutorial, name):
    """Return the names of one of its solutions."""
    return tutorial(f"solutions/04-{name}")


def expected(page, x, p, seed):
    """Return dropout of *x* in float64, with the mask that Philox in PyTorch gives."""
    if p == 1:
        return torch.zeros_like(x, dtype=torch.float64)
    keep = page["expected_mask"](x.numel(), p, seed).reshape(x.shape)
    return torch.where(keep, x.double() / (1 - p), 0.0)


# Philox


def test_philox_gives_the_published_words(page):
    """The first line for philox4x32-10 in Random123's file of known answers."""
    ours = page["philox"](0, torch.tensor([0]))
    assert [f"{int(word):08x}" for word in ours] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def philox_in_integers(seed, counter):
    """Philox4x32-10 in Python's integers, which never overflow."""
    c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


@few
@given(seed=seeds, counter=st.integers(0, 2**62))
def test_philox_in_pytorch_does_not_overflow(page, seed, counter):
    ours = page["philox"](seed, torch.tensor([counter]))
    assert [int(word) for word in ours] == philox_in_integers(seed, counter)


# The mask


@pytest.mark.parametrize("n", [1, 3, 4, 5, 123, 1023, 1024, 1025, 5003])
def test_mask_follows_the_rule(page, n):
    x = torch.randn(n)
    for seed in SEEDS:
        y = page["seeded_dropout"](x, 0.3, seed)
        assert_close(y.double(), expected(page, x, 0.3, seed), rtol=1e-6, atol=0)


@pytest.mark.parametrize("block", [4, 16, 64, 2048, 8192])
def test_mask_does_not_depend_on_the_block(page, block):
    x = torch.randn(123 if block < 64 else 5003)
    y = page["seeded_dropout"](x, 0.25, 2**40 + 3)
    assert torch.equal(page["launch_seeded_dropout"](x, 0.25, 2**40 + 3, block=block), y)


def test_mask_does_not_depend_on_what_follows(page):
    x = torch.randn(3001)
    y = page["seeded_dropout"](x, 0.5, 9)
    assert torch.equal(page["seeded_dropout"](x[:1234], 0.5, 9), y[:1234])
    assert torch.equal(
        page["seeded_dropout"](x[:3000].reshape(30, 100), 0.5, 9).flatten(), y[:3000]
    )


@few
@given(n=st.integers(0, 2500), p=probabilities, seed=seeds)
def test_any_size_probability_and_seed(page, n, p, seed):
    x = torch.randn(n)
    y = page["seeded_dropout"](x, p, seed).double()
    # float32 cannot hold x / (1 - p) where p is extremely close to 1.
    want = expected(page, x, p, seed).float().double()
    assert_close(y, want, rtol=1e-6, atol=1e-30)


def test_a_larger_probability_drops_more_of_the_same(page):
    ones = torch.ones(2000)
    probabilities = (0.0, 1e-9, 0.1, 0.5, 0.9, 1 - 2**-33, 1.0)
    masks = [page["seeded_dropout"](ones, p, 3) > 0 for p in probabilities]
    for less, more in pairwise(masks):
        assert not (more & ~less).any()
    assert masks[0].all()
    assert not masks[-1].any()


# Values


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_both_kernels_agree_with_pytorch(page, dtype):
    x = torch.randn(781, 3).to(dtype)
    keep = page["expected_mask"](x.numel(), 0.1, 5).reshape(x.shape)
    want = expected(page, x, 0.1, 5).to(dtype)
    for y in (page["dropout"](x, keep, 0.1), page["seeded_dropout"](x, 0.1, 5)):
        assert y.dtype == dtype
        assert y.shape == x.shape
        assert_close(y, want)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_dropped_is_zero_whatever_it_was(page, value):
    x = torch.full((123,), value)
    for p in (0.5, 1.0):
        keep = page["expected_mask"](123, p, 8) if p < 1 else torch.zeros(123, dtype=torch.bool)
        for y in (page["seeded_dropout"](x, p, 8), page["dropout"](x, keep, p)):
            assert torch.equal(y[~keep], torch.zeros_like(y[~keep]))
            assert_close(y[keep], x[keep], equal_nan=True)


def test_p_zero_gives_the_input_bit_for_bit(page):
    x = torch.randn(1823)
    y = page["seeded_dropout"](x, 0.0, 4)
    assert torch.equal(y, x)
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("shape", [(0,), (0, 5), ()])
def test_empty_and_scalar(page, shape):
    x = torch.ones(shape)
    assert page["seeded_dropout"](x, 0.5, 1).shape == x.shape
    assert page["dropout"](x, torch.ones(shape, dtype=torch.bool), 0.5).shape == x.shape


# Statistics: the seeds are fixed, so these pass or fail for good.


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.99])
def test_kept_fraction_is_within_binomial_bounds(page, p):
    n, q = 2**14, 1 - p
    for seed in (0, 1, 2**50):
        keep = page["seeded_dropout"](torch.ones(n), p, seed) > 0
        for part, probability in (
            (keep, q),
            *((keep[word::4], q) for word in range(4)),
            *((keep[:-lag] & keep[lag:], q * q) for lag in (1, 2, 4, 1024)),
        ):
            mean = part.numel() * probability
            # Overlapping pairs are not independent; twice the binomial deviation covers them.
            deviation = 2 * math.sqrt(mean * (1 - probability))
            assert abs(part.sum().item() - mean) < 4 * deviation, (seed, probability)


# Gradients


def test_gradients_follow_pytorchs_rule(page):
    x = torch.randn(1001, requires_grad=True)
    grad = torch.randn(1001)
    keep = page["expected_mask"](1001, 0.4, 6)
    reference = torch.where(keep, x / (1 - 0.4), 0.0)
    (want,) = torch.autograd.grad(reference, x, grad)
    for fn in (
        lambda x: page["seeded_dropout"](x, 0.4, 6),
        lambda x: page["dropout"](x, keep, 0.4),
    ):
        (dx,) = torch.autograd.grad(fn(x), x, grad)
        assert_close(dx, want)


def test_jacobian_is_the_mask(page):
    x = torch.randn(9)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: page["seeded_dropout"](x, 0.5, 21), x
    )  # fmt: skip
    assert torch.equal(jacobian, torch.diag(page["seeded_dropout"](torch.ones(9), 0.5, 21)))


def test_expanded_gradient_and_second_derivative(page):
    x = torch.randn(300, requires_grad=True)
    y = page["seeded_dropout"](x, 0.5, 2)
    (dx,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(dx.sum(), x)
    mask = page["seeded_dropout"](torch.ones(300), 0.5, 2)
    assert_close(dx, 2 * x * mask * mask)
    assert_close(second, 2 * mask * mask)


def test_p_one_has_zero_gradient(page):
    x = torch.randn(10, requires_grad=True)
    (dx,) = torch.autograd.grad(page["seeded_dropout"](x, 1.0, 2).sum(), x)
    assert not dx.any()


def test_nothing_is_kept_but_seed_and_p(page):
    assert page["bytes_kept"](lambda x: page["seeded_dropout"](x, 0.5, 0)) == 0
    mask = torch.ones(1000, dtype=torch.bool)
    assert page["bytes_kept"](lambda x: page["dropout"](x, mask, 0.5)) == 1
    node = page["seeded_dropout"](torch.ones(4, requires_grad=True), 0.5, 7).grad_fn
    assert (node.p, node.seed, node.saved_tensors) == (0.5, 7, ())


# Errors


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"x": 1.0}, TypeError, "x must be a torch.Tensor, but is a float"),
        ({"x": torch.ones(4).double()}, TypeError, "x must be .*float64"),
        ({"x": torch.ones(4, dtype=torch.int32)}, TypeError, "x must be .*int32"),
        ({"x": torch.ones(4, device="meta")}, ValueError, "x must be on .* meta"),
        ({"x": torch.ones(4, 6).T}, ValueError, r"x must be contiguous.*\(6, 4\).*\(1, 6\)"),
        ({"x": torch.ones(8)[::2]}, ValueError, "x must be contiguous"),
        ({"p": -0.1}, ValueError, "p must be from 0 to 1, but is -0.1"),
        ({"p": 1.5}, ValueError, "p must be .* 1.5"),
        ({"p": math.nan}, ValueError, "p must be .* nan"),
        ({"p": "0.5"}, TypeError, "p must be a number, but is a str"),
        ({"p": True}, TypeError, "p must be a number, but is a bool"),
        ({"seed": -1}, ValueError, "seed must be .* -1"),
        ({"seed": 2**64}, ValueError, "seed must be .* 18446744073709551616"),
        ({"seed": 1.0}, TypeError, "seed must be an int, but is a float"),
        ({"seed": True}, TypeError, "seed must be an int, but is a bool"),
    ],
)
def test_what_seeded_dropout_refuses(page, change, error, words):
    with pytest.raises(error, match=words):
        page["seeded_dropout"](**{"x": torch.ones(4), "p": 0.5, "seed": 0} | change)


@pytest.mark.parametrize(
    ("x_keep", "error", "words"),
    [
        (None, TypeError, "x_keep must be a tensor of torch.bool, but is NoneType"),
        (torch.ones(4), TypeError, "x_keep must be .*float32"),
        (torch.ones(5, dtype=torch.bool), ValueError, r"x_keep .*\(4,\).*\(5,\)"),
        (torch.ones(1, dtype=torch.bool).expand(4), ValueError, "x_keep must be contiguous"),
    ],
)
def test_what_dropout_refuses(page, x_keep, error, words):
    with pytest.raises(error, match=words):
        page["dropout"](torch.ones(4), x_keep, 0.5)


# The solutions


@few
@given(m=st.integers(0, 6), n=st.integers(0, 300), p=probabilities, seed=st.integers(0, 2**63 - 7))
def test_rows_are_the_tutorials_dropout(page, tutorial, m, n, p, seed):
    rows = solution(tutorial, "seed-per-row")["seeded_dropout_rows"]
    x = torch.randn(m, n)
    y = rows(x, p, torch.arange(m) + seed)
    for i in range(m):
        assert torch.equal(y[i], page["seeded_dropout"](x[i], p, seed + i))


@pytest.mark.parametrize(
    ("x", "seeds", "p", "error", "words"),
    [
        (torch.ones(2, 3).double(), torch.zeros(2).long(), 0.5, TypeError, "x must be"),
        (torch.ones(3, 2).T, torch.zeros(2).long(), 0.5, ValueError, "x must be"),
        (torch.ones(2, 3), torch.zeros(2), 0.5, TypeError, "seeds must be int64"),
        (torch.ones(2, 3), torch.zeros(3).long(), 0.5, ValueError, "seeds must be"),
        (torch.ones(2, 3), torch.zeros(2).long(), 2, ValueError, "p must be"),
    ],
)
def test_what_seeded_dropout_rows_refuses(tutorial, x, seeds, p, error, words):
    with pytest.raises(error, match=words):
        solution(tutorial, "seed-per-row")["seeded_dropout_rows"](x, p, seeds)


@few
@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 140)),
    steps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    transpose=st.booleans(),
    p=probabilities,
    seed=seeds,
)
def test_strides_do_not_matter(page, tutorial, shape, steps, transpose, p, seed):
    strided_dropout = solution(tutorial, "strided-input")["strided_dropout"]
    x = torch.randn(shape)[:: steps[0], :: steps[1]]
    x = x.T if transpose else x
    y = strided_dropout(x, p, seed)
    assert y.is_contiguous()
    assert torch.equal(y, strided_dropout(x.contiguous(), p, seed))
    if x.shape[1] % 4 == 0:
        assert torch.equal(y, page["seeded_dropout"](x.contiguous(), p, seed))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
def test_strided_empty(tutorial, shape):
    strided_dropout = solution(tutorial, "strided-input")["strided_dropout"]
    assert strided_dropout(torch.empty(shape), 0.5, 1).shape == shape


@settings(max_examples=2, deadline=None)
@given(
    n=st.integers(1, 70),
    d=st.integers(1, 100),
    k=st.integers(1, 70),
    s=st.floats(1, 50),
    seed=seeds,
)
def test_projection_is_that_of_the_stored_matrix(tutorial, n, d, k, s, seed):
    names = solution(tutorial, "sparse-johnson-lindenstrauss")
    x = torch.randn(n, d)
    want = x.double() @ names["stored_projection"](d, k, s, seed)
    # Sums of d products with R's largest element, sqrt(s / k), each rounded in fp32.
    atol = 1e-6 * d * math.sqrt(s / k) * max(1.0, x.abs().max().item())
    assert_close(names["project"](x, k, s, seed).double(), want, rtol=1e-5, atol=atol)


def test_projection_has_the_promised_elements(tutorial):
    names = solution(tutorial, "sparse-johnson-lindenstrauss")
    r = names["project"](torch.eye(64), 400, 3, 1) / math.sqrt(3 / 400)
    values = r.round()
    assert_close(r, values, rtol=0, atol=1e-5)
    for value, q in ((-1, 1 / 6), (0, 2 / 3), (1, 1 / 6)):
        n = values.numel()
        assert abs((values == value).sum().item() - n * q) < 5 * math.sqrt(n * q * (1 - q))
