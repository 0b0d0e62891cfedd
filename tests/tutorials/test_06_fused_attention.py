"""Fused attention, in the interpreter: its first form; test_attention.py has the second."""

import pytest
import torch

from tests.tutorials.launches import launches_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy


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


def test_the_online_softmax_is_the_softmax(page):
    scores, values = page["scores"].flatten(), page["values"].flatten()
    torch.testing.assert_close(page["acc"] / page["z"], scores.softmax(0) @ values)
