"""Attention and its gradients, in the interpreter, against float64."""

import math
from functools import partial

import pytest
import torch

from tests.tutorials.float64 import attention, beside_float64
from tests.tutorials.launches import launches_of, patched

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy

# The norm of the error over the norm of the expected tensor. Each result and each tile between two
# products is rounded to the dtype once; fp32 sums in another order than float64. Gradients
# subtract numbers of the same size, one of which comes from the rounded output.
UNIT = {torch.float16: 2**-10, torch.float32: 1e-5}


def inputs(batch, heads, key_heads, queries, keys, d, dtype=torch.float32):
    q = torch.randn(batch, heads, queries, d)
    k, v = torch.randn(2, batch, key_heads, keys, d)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def assert_near(actual, expected, unit, name=""):
    error = (actual.double() - expected).norm()
    size = expected.norm() + 0.1 * math.sqrt(expected.numel())
    assert actual.isfinite().all(), name
    assert error <= unit * size, f"{name}: {error / size:.1e}"


def assert_attention(page, q, k, v, causal=False, scale=None, unit=None):
    ours = partial(page["attention"], causal=causal, scale=scale)
    reference = partial(attention, causal=causal, scale=scale)
    unit = unit or UNIT[q.dtype]
    for name, actual, expected in beside_float64(ours, reference, q, k, v):
        assert_near(actual, expected, unit * (1 if name == "the result" else 2), name)


# Every head dimension in both dtypes; causal alternates.
@pytest.mark.parametrize("d", [16, 32, 64, 128])
@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_head_dimensions_and_dtypes(page, d, dtype):
    causal = (d in (16, 64)) == (dtype == torch.float16)
    assert_attention(page, *inputs(1, 2, 1, 70, 133, d, dtype), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (1, 200), (200, 1), (64, 64), (65, 127), (129, 128), (191, 63)]
)
def test_lengths_that_tiles_do_not_divide(page, queries, keys, causal):
    assert_attention(page, *inputs(1, 1, 1, queries, keys, 16, torch.float16), causal)


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 1), (6, 2), (3, 3)])
def test_grouped_heads(page, heads, key_heads):
    assert_attention(page, *inputs(2, heads, key_heads, 40, 50, 16), True)


@pytest.mark.parametrize("scale", [0.01, 7.0])
def test_a_scale(page, scale):
    unit = 4 * UNIT[torch.float32]
    assert_attention(page, *inputs(1, 2, 1, 70, 40, 16), True, scale, unit=unit)


def test_large_scores_do_not_overflow(page):
    q, k, v = inputs(1, 1, 1, 90, 90, 16)
    unit = 1e-3  # fp32 has an error of 1e-4 at scores of thousands, and so has the exponential
    assert_attention(page, 30 * q, 30 * k, v, True, unit=unit)  # of both signs
    assert_attention(page, q, k - 1000 * q.mean(2, keepdim=True), v, unit=unit)


VIEWS = {
    "heads and tokens exchanged": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "an address that is not aligned": lambda x: torch.cat([x, x], 3)[..., 1:17],
    "a last stride that is not 1": lambda x: x.mT.contiguous().mT,
    "every second token": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one head for all": lambda x: x[:, :1].expand(-1, x.shape[1], -1, -1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(page, view):
    assert_attention(page, *(view(x) for x in inputs(1, 2, 2, 40, 40, 16)), True)


@pytest.mark.parametrize("view", ["expanded", "heads and tokens exchanged"])
def test_views_of_the_gradient(page, view):
    inputs_ = [x.requires_grad_() for x in inputs(1, 2, 2, 40, 40, 16)]
    g = torch.randn(1, 2, 40, 16) if view != "expanded" else torch.ones(()).expand(1, 2, 40, 16)
    g = g.transpose(1, 2).contiguous().transpose(1, 2) if view != "expanded" else g
    o, expected = page["attention"](*inputs_), attention(*inputs_)
    for x, y in zip(
        torch.autograd.grad(o, inputs_, g), torch.autograd.grad(expected, inputs_, g), strict=True
    ):
        assert_near(x, y.double(), 1e-4)


def test_a_saved_tensor_that_comes_back_with_other_strides(page):
    """A hook may keep a view as a contiguous copy; the plan of the view does not fit it."""
    q, k, v = (VIEWS["heads and tokens exchanged"](x) for x in inputs(1, 2, 2, 40, 40, 16))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.contiguous(), lambda x: x):
        assert_attention(page, q, k, v, True)


def test_the_same_bits_every_time(page):
    inputs_ = [x.requires_grad_() for x in inputs(1, 2, 2, 130, 130, 16)]
    results = []
    for _ in range(2):
        o = page["attention"](*inputs_, True)
        results.append((o, *torch.autograd.grad(o, inputs_, torch.ones_like(o))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_second_derivative_is_refused(page, plain):
    """It must not be dropped without a word, when another term has one."""
    q, k, v = (x.requires_grad_() for x in inputs(1, 1, 1, 20, 20, 16))
    for function in (page["attention"], plain("06b-attention-backward").attention):
        o = function(q, k, v).sum()
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(o, q, create_graph=True)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_the_plain_function_makes_the_launches_that_the_public_one_makes(page, plain, d, causal):
    q, k, v = (x.half().requires_grad_() for x in torch.randn(3, 1, 2, 130, d))
    do = torch.randn(1, 2, 130, d).half()
    page["PLANS"].clear()

    def run(function):
        launches, o = launches_of(function, q, k, v, causal)
        with patched(function, more := []):
            gradients = torch.autograd.grad(o, (q, k, v), do)
        padded = [(n, (*grid, 1, 1)[:3], *rest) for n, grid, *rest in launches + more]
        return padded, (o, *gradients)

    shown, full = run(plain("06b-attention-backward").attention), run(page["attention"])
    assert shown[0] == full[0]
    assert len(shown[0]) == 3
    assert all(torch.equal(a, b) for a, b in zip(shown[1], full[1], strict=True))


def test_a_sign_that_is_still_to_be_changed(page):
    q, k, v = inputs(1, 2, 2, 40, 40, 16)
    for _ in range(2):
        assert_attention(page, q, k, v)
        assert_attention(page, torch._neg_view(q), k, torch._neg_view(v))
    inputs_ = [x.requires_grad_() for x in (q, k, v)]
    o, g = page["attention"](*inputs_), torch.randn(1, 2, 40, 16)
    (right,) = torch.autograd.grad(o, q, -g, retain_graph=True)
    (found,) = torch.autograd.grad(o, q, torch._neg_view(g))
    assert torch.equal(found, right)


def test_bf16_is_refused_in_the_interpreter(page):
    with pytest.raises(TypeError, match=r"q must be one of .*, but its dtype is torch.bfloat16"):
        page["attention"](*inputs(1, 1, 1, 5, 5, 16, torch.bfloat16))
