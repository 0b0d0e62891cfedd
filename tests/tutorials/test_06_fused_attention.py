"""Fused attention, in the interpreter, against float64."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.tutorials.compiled import compiled
from tests.tutorials.float64 import attention
from tests.tutorials.launches import launches_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy

# The norm of the error over the norm of the expected tensor. The weights and the result are rounded
# to the dtype once; fp32 sums in another order than float64.
UNIT = {torch.float16: 2**-10, torch.float32: 1e-5}


def inputs(batch, heads, key_heads, queries, keys, d, dtype=torch.float32):
    q = torch.randn(batch, heads, queries, d)
    k, v = torch.randn(2, batch, key_heads, keys, d)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def assert_attention(page, q, k, v, causal=False, scale=None, unit=None):
    actual = page["attention"](q, k, v, causal, scale)
    expected = attention(q.double(), k.double(), v.double(), causal, scale)
    assert actual.dtype == q.dtype
    assert actual.isfinite().all()
    error = (actual.double() - expected).norm()
    size = expected.norm() + 0.1 * math.sqrt(expected.numel())
    assert error <= (unit or UNIT[q.dtype]) * size, f"{error / size:.1e}"


@pytest.mark.parametrize("d", [16, 32, 64, 128])
@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_head_dimensions_and_dtypes(page, d, dtype):
    for causal in (False, True):
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


@pytest.mark.parametrize("scale", [0.01, 7, 7.0])
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
    """Also twice, and after a call of the same shape: a plan of other strides is not used."""
    q, k, v = inputs(1, 2, 2, 40, 40, 16)
    assert_attention(page, q, k, v, True)
    for _ in range(2):
        assert_attention(page, *(view(x) for x in (q, k, v)), True)


def test_errors_are_the_same_after_a_right_call(page):
    q, k, v = inputs(1, 2, 2, 40, 40, 16)
    assert_attention(page, q, k, v)
    for _ in range(2):
        with pytest.raises(ValueError, match="k must have a head_dim of 16 as q, but has 8"):
            page["attention"](q, k[..., :8], v)
        with pytest.raises(TypeError, match=r"k must be a torch.Tensor, but is a NoneType"):
            page["attention"](q, None, v)
        with pytest.raises(ValueError, match="scale must be positive and finite, but is 'a'"):
            page["attention"](q, k, v, False, "a")
        with pytest.raises(ValueError, match="k and v must have one shape"):
            page["attention"](q, k, v[:, :, :5])


def test_it_refuses_tensors_that_require_gradients(page):
    q, k, v = inputs(1, 2, 2, 40, 40, 16)
    page["attention"](q, k, v)
    with pytest.raises(ValueError, match=r"v requires a gradient.*06b-attention-backward"):
        page["attention"](q, k, v.requires_grad_())
    with torch.no_grad():
        assert_attention(page, q, k, v)


def negated(x):
    return torch._neg_view(x)


def assert_plain_is_public(plain_page, page, shape, causal):
    """Both launch one kernel with the same grid, numbers and constants, and give the same bits."""
    q, k, v = torch.randn(3, *shape).half()
    page["PLANS"].clear()
    found = [launches_of(f, q, k, v, causal) for f in (plain_page.attention, page["attention"])]
    (shown, o), (full, public) = found
    padded = [[(n, (*grid, 1, 1)[:3], *more) for n, grid, *more in each] for each in (shown, full)]
    assert padded[0] == padded[1]
    assert torch.equal(o, public)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_the_plain_function_makes_the_launch_that_the_public_one_makes(page, plain, d, causal):
    assert_plain_is_public(plain("06-fused-attention"), page, (1, 2, 130, d), causal)
    assert_plain_is_public(plain("06-fused-attention"), page, (1, 1, 1100, d), causal)


def test_a_sign_that_is_still_to_be_changed(page):
    """A plan for the same shapes and strides must not read the numbers with their old sign."""
    q, k, v = inputs(1, 2, 2, 40, 40, 16)
    for _ in range(2):
        assert_attention(page, q, k, v)
        assert_attention(page, negated(q), k, v)
        assert_attention(page, q, k, negated(v))


def test_bf16_is_refused_in_the_interpreter(page):
    q, k, v = inputs(1, 1, 1, 5, 5, 16, torch.bfloat16)
    with pytest.raises(TypeError, match=r"q must be one of .*, but its dtype is torch.bfloat16"):
        page["attention"](q, k, v)


def test_the_compiler_and_tensors_without_memory_get_the_right_shape(page):
    with FakeTensorMode():
        assert page["attention"](*inputs(1, 4, 2, 5, 7, 16)).shape == (1, 4, 5, 16)
    function = page["attention"]
    with compiled(function, lambda q, k, v: 2 * function(q, k, v, True)) as doubled:
        for n in (5, 40):
            q, k, v = inputs(1, 4, 2, n, n, 16)
            expected = 2 * attention(q.double(), k.double(), v.double(), True)
            torch.testing.assert_close(doubled(q, k, v).double(), expected, rtol=1e-4, atol=1e-4)


def test_the_online_softmax_is_the_softmax(page):
    scores, values = page["scores"].flatten(), page["values"].flatten()
    torch.testing.assert_close(page["acc"] / page["z"], scores.softmax(0) @ values)
