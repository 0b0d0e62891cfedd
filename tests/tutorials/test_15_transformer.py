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
