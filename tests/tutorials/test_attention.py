"""Attention of three lessons, one of which has gradients, in the interpreter, against float64."""

import pytest
import torch

from tests.tutorials.float64 import UNIT, assert_attention, heads

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy


@pytest.fixture(
    scope="module", params=["06-fused-attention", "06b-attention-backward", "06c-attention-gluon"]
)
def page(request, tutorial):
    return tutorial(request.param)


@pytest.mark.parametrize("d", [16, 32, 64, 128])
@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_head_dimensions_and_dtypes(page, d, dtype):
    alternately = (d in (16, 64)) == (dtype == torch.float16)
    for causal in (alternately,) if page["__name__"].startswith("06b") else (False, True):
        assert_attention(page, *heads(1, 2, 1, 70, 133, d, dtype), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (1, 200), (200, 1), (64, 64), (65, 127), (129, 128), (191, 63)]
)
def test_lengths_that_tiles_do_not_divide(page, queries, keys, causal):
    assert_attention(page, *heads(1, 1, 1, queries, keys, 16, torch.float16), causal)


@pytest.mark.parametrize(("own", "shared"), [(4, 1), (6, 2), (3, 3)])
def test_grouped_heads(page, own, shared):
    assert_attention(page, *heads(2, own, shared, 40, 50, 16), True)


@pytest.mark.parametrize("scale", [0.01, 7, 7.0])
def test_a_scale(page, scale):
    unit = 4 * UNIT[torch.float32]
    assert_attention(page, *heads(1, 2, 1, 70, 40, 16), True, scale, unit=unit)


def test_large_scores_do_not_overflow(page):
    q, k, v = heads(1, 1, 1, 90, 90, 16)
    unit = 1e-3  # fp32 has an error of 1e-4 at scores of thousands, and so has the exponential
    assert_attention(page, 30 * q, 30 * k, v, True, unit=unit)  # of both signs
    assert_attention(page, q, k - 1000 * q.mean(2, keepdim=True), v, unit=unit)


def exchanged(x):
    """Heads and tokens exchanged in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


VIEWS = {
    "heads and tokens exchanged": exchanged,
    "an address that is not aligned": lambda x: torch.cat([x, x], 3)[..., 1:17],
    "a last stride that is not 1": lambda x: x.mT.contiguous().mT,
    "every second token": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one head for all": lambda x: x[:, :1].expand(-1, x.shape[1], -1, -1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(page, view):
    """Also twice, and after a call of the same shape: a plan of other strides is not used."""
    q, k, v = heads(1, 2, 2, 40, 40, 16)
    assert_attention(page, q, k, v, True)
    for _ in range(2):
        assert_attention(page, *(view(x) for x in (q, k, v)), True)
