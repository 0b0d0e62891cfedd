"""Results and gradients of a function beside those of a reference in float64."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn import functional
from torch.testing import assert_close

import gallery_kernels

#: Views that a kernel must read; each takes a matrix of at least 13 × 80.
VIEWS = {
    "columns from 3 on": lambda x: x[:, 3:70],
    "every third row": lambda x: x[::3],
    "every second column": lambda x: x[:, ::2],
    "transposed": lambda x: x.T,
    "one row expanded": lambda x: x[:1].expand(4, -1),
    "one column expanded": lambda x: x[:, :1].expand(-1, 9),
}


def beside_float64(
    function: Callable, reference: Callable, *inputs: torch.Tensor, g: torch.Tensor | None = None
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield a name, the actual and the expected tensor, for the result and for each gradient.

    *g* is the gradient of the result, random unless given. The result keeps the dtype of the
    first input, and a gradient that of its input.
    """
    ours = [x.detach().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    actual, expected = function(*ours), reference(*exact)
    assert actual.dtype == inputs[0].dtype
    yield "the result", actual.detach(), expected.detach()
    g = torch.randn_like(actual) if g is None else g
    gradients = torch.autograd.grad(actual, ours, g)
    wanted = torch.autograd.grad(expected, exact, g.double())
    for i, (found, right, x) in enumerate(zip(gradients, wanted, inputs, strict=True)):
        assert found.dtype == x.dtype
        yield f"the gradient of input {i}", found, right


def attention(q, k, v, causal=False, scale=None):
    """Attention of grouped heads, one operation at a time."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, columns = (torch.arange(n, device=q.device) for n in scores.shape[-2:])
        scores = scores.masked_fill(columns > rows[:, None], -math.inf)
    return scores.softmax(-1) @ v


#: The norm of the error of attention over that of the expected tensor. Each result and each tile
#: between two products is rounded to the dtype once; fp32 sums in another order than float64.
UNIT = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 1e-5}


def heads(batch, own, shared, queries, keys, d, dtype=torch.float32, device="cpu"):
    """Random queries of *own* heads, and keys and values of *shared* ones."""
    shapes = (own, queries), (shared, keys), (shared, keys)
    return [torch.randn(batch, n, m, d, device=device).to(dtype) for n, m in shapes]


def assert_near(actual, expected, unit: float, name: str = "") -> None:
    error = (actual.double() - expected).norm()
    size = expected.norm() + 0.1 * math.sqrt(expected.numel())
    assert actual.isfinite().all(), name
    assert error <= unit * size, f"{name}: {error / size:.1e}"


def assert_attention(q, k, v, causal=False, scale=None, unit: float | None = None) -> None:
    """Compare ``attention`` and every gradient with float64, and both forward passes."""
    ours = partial(gallery_kernels.attention, causal=causal, scale=scale)
    reference = partial(attention, causal=causal, scale=scale)
    unit = unit or UNIT[q.dtype]
    for name, actual, expected in beside_float64(ours, reference, q, k, v):
        # Gradients subtract numbers of the same size, one of which is a rounded result.
        assert_near(actual, expected, unit * (1 if name == "the result" else 2), name)
    without_gradients = ours(q, k, v)
    assert_near(without_gradients, reference(q.double(), k.double(), v.double()), unit)


def assert_norm(norm: str, x, weight, bias, g=None, eps=1e-5, slack=1.0) -> None:
    """Compare ``layer_norm`` or ``rms_norm``, and every gradient, with float64."""
    more = (weight, bias) if norm == "layer_norm" else (weight,)
    function = getattr(gallery_kernels, norm)
    library = getattr(functional, norm)
    g = torch.randn_like(x) if g is None else g
    # A gradient is what two subtractions leave: its error is relative to what they started with.
    rows = x.double() - (x.double().mean(-1, keepdim=True) if norm == "layer_norm" else 0)
    deviation = (rows.square().mean(-1) + eps).sqrt()
    of_x = ((weight.double() * g.double()).abs().amax(-1) / deviation).max().item()
    sizes = {"the gradient of input 0": of_x, "the result": 0.0}
    for name, actual, expected in beside_float64(
        lambda *inputs: function(*inputs, eps),
        lambda x, *more: library(x, weight.shape, *more, eps),
        *(x, *more),
        g=g,
    ):
        # One rounding to the dtype. In fp32 the error of the sums over rows and columns grows by
        # some units of 2**-24 for each doubling of their length.
        share = slack * max(torch.finfo(actual.dtype).eps, 2e-5)
        size = max(expected.abs().max().item(), sizes.get(name, g.abs().max().item()))
        assert_close(actual.double(), expected, rtol=0, atol=share * size, msg=name)
