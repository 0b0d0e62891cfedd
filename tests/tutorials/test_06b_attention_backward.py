"""Attention and its gradients, in the interpreter, against float64."""

import pytest
import torch

from tests.tutorials.float64 import assert_attention, assert_near, attention, heads
from tests.tutorials.launches import launches_of, patched
from tests.tutorials.test_attention import exchanged

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy


@pytest.mark.parametrize("view", ["expanded", "heads and tokens exchanged"])
def test_views_of_the_gradient(page, view):
    inputs_ = [x.requires_grad_() for x in heads(1, 2, 2, 40, 40, 16)]
    g = torch.randn(1, 2, 40, 16) if view != "expanded" else torch.ones(()).expand(1, 2, 40, 16)
    g = exchanged(g) if view != "expanded" else g
    o, expected = page["attention"](*inputs_), attention(*inputs_)
    for x, y in zip(
        torch.autograd.grad(o, inputs_, g), torch.autograd.grad(expected, inputs_, g), strict=True
    ):
        assert_near(x, y.double(), 1e-4)


def test_a_saved_tensor_that_comes_back_with_other_strides(page):
    """A hook may keep a view as a contiguous copy; the plan of the view does not fit it."""
    q, k, v = (exchanged(x) for x in heads(1, 2, 2, 40, 40, 16))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.contiguous(), lambda x: x):
        assert_attention(page, q, k, v, True)


def test_the_same_bits_every_time(page):
    inputs_ = [x.requires_grad_() for x in heads(1, 2, 2, 130, 130, 16)]
    results = []
    for _ in range(2):
        o = page["attention"](*inputs_, True)
        results.append((o, *torch.autograd.grad(o, inputs_, torch.ones_like(o))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


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


@pytest.mark.parametrize("name", ["delta", "scale_gradient"])
@pytest.mark.parametrize("other", [torch.ones(2, 5, 8), torch.ones(2, 16, 5).mT])
def test_a_solution_reads_no_foreign_memory(tutorial, name, other):
    """Both tensors are read by the places of the first."""
    function = tutorial(f"solutions/06b-{name.replace('_', '-')}")[name]
    number = [0.25] if name == "scale_gradient" else []
    for pair in ((torch.ones(2, 5, 16), other), (other, torch.ones(2, 5, 16))):
        with pytest.raises(ValueError, match="must be contiguous and of one shape"):
            function(*pair, *number)
