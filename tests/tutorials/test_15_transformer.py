"""The products of the small transformer, in the interpreter, against PyTorch's."""

import pytest
import torch
from torch.testing import assert_close

#: Two matrices [tokens, columns] whose rows are not as in fresh memory.
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.T.contiguous().T,
    "of a wide matrix": lambda t: torch.cat([t, t], dim=1)[:, : t.shape[1]],
    "each second column": lambda t: t.repeat_interleave(2, dim=1)[:, ::2],
    "one row for all": lambda t: t[:1].expand_as(t),
    "one number for all": lambda t: t[0, 0].expand_as(t),
    "with a sign to be changed": lambda t: torch._neg_view(-t),
}


@pytest.mark.parametrize("activation", ["", "leaky_relu"])
@pytest.mark.parametrize("function", ["Linear", "FusedLinear"])
@pytest.mark.parametrize(
    ("of_x", "of_g"), [*(("contiguous", g) for g in LAYOUTS), *((x, "transposed") for x in LAYOUTS)]
)
def test_gradients_of_a_product(page, function, activation, of_x, of_g):
    """A weight's gradient was read past the end of gradients without memory of their own."""
    x, g = LAYOUTS[of_x](torch.randn(70, 40)), LAYOUTS[of_g](torch.randn(70, 24))
    ours = [x.detach().requires_grad_(), torch.randn(24, 40, requires_grad=True)]
    ours[1].grad = torch.zeros(24, 40)  # the fused one adds to it
    page[function].apply(*ours, activation).backward(g)
    exact = [t.detach().double().requires_grad_() for t in ours]
    y = exact[0] @ exact[1].T
    (torch.nn.functional.leaky_relu(y) if activation else y).backward(g.double())
    for one, other in zip(ours, exact, strict=True):
        assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", ["Linear", "FusedLinear"])
def test_a_weight_that_changed_before_the_backward_pass_is_noticed(page, function):
    """As by PyTorch's product: the gradient of x would be that of the new weight."""
    x, w = torch.randn(7, 40, requires_grad=True), torch.randn(24, 40, requires_grad=True)
    w.grad = torch.zeros(24, 40)
    y = page[function].apply(x, w, "")
    with torch.no_grad():
        w.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_step_before_the_backward_pass_is_noticed(page):
    weights = page["Weights"]({"w": torch.randn(24, 40)}, torch.float32)
    y = page["Linear"].apply(torch.randn(7, 40, requires_grad=True), weights["w"], "")
    page["adamw"](weights)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_parts_of_a_gradient_are_summed_in_fp32_whatever_the_default(page):
    g, x, right, found = torch.randn(70, 24), torch.randn(70, 40), *torch.zeros(2, 24, 40)
    page["add_weight_gradient"](g, x, right)
    torch.set_default_dtype(torch.bfloat16)
    try:
        page["add_weight_gradient"](g, x, found)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, right)
