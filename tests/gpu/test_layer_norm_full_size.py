"""Layer and RMS norm, forward and backward, against float64 at full size, on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def poisoned_memory(on_gpu):
    """Fill what PyTorch's allocator hands out next with NaN, so that no element goes unwritten."""
    device = torch.accelerator.current_accelerator()
    block = torch.full((2**28,), torch.nan, device=device)
    del block
    yield device
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()


def close(actual, expected, size=0.0, slack=1.0):
    # Relative to the largest element: one rounding to the dtype, and the fp32 sums before it.
    allowed = max(torch.finfo(actual.dtype).eps, 2e-5) * slack
    atol = allowed * max(expected.abs().max().item(), size)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=atol)


def check(names, norm, x, weight, bias, g, slack=1.0):
    given = (x, weight, bias) if norm == "layer_norm" else (x, weight)
    ours = [t.detach().requires_grad_() for t in given]
    exact = [t.detach().double().requires_grad_() for t in given]
    y = names[norm](*ours, eps=1e-5)
    if norm == "layer_norm":
        y_exact = functional.layer_norm(exact[0], weight.shape, exact[1], exact[2], 1e-5)
    else:
        y_exact = functional.rms_norm(exact[0], weight.shape, exact[1], 1e-5)
    close(y, y_exact.detach(), slack=slack)
    found = torch.autograd.grad(y, ours, g, retain_graph=True)
    expected = torch.autograd.grad(y_exact, exact, g.double())
    rows = exact[0].detach()
    if norm == "layer_norm":
        rows = rows - rows.mean(dim=-1, keepdim=True)
    deviation = ((rows * rows).mean(dim=-1) + 1e-5).sqrt()
    size = ((weight.double() * g.double()).abs().amax(dim=-1) / deviation).max().item()
    for one, other, scale in zip(found, expected, (size, 1.0, 1.0), strict=False):
        close(one, other, scale, slack)
    for one, other in zip(found, torch.autograd.grad(y, ours, g, retain_graph=True), strict=True):
        assert torch.equal(one, other), "the same bits every time"


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape",
    [(4096, 512 * i) for i in (2, 3, 5, 8, 9, 11, 16, 17, 20, 21, 24, 28, 31)]
    + [(4096, 1), (4096, 781), (4096, 15_873), (1823, 781), (5, 2), (64, 131_072), (3, 2**20 + 1)]
    + [(100_000, 70), (131, 4097), (2, 3, 4, 555)],
    ids=str,
)
def test_norms(definitions, poisoned_memory, norm, dtype, shape):
    torch.manual_seed(0)
    x = (2 * torch.randn(shape, device=poisoned_memory) + 1).to(dtype)
    g = torch.randn(shape, device=poisoned_memory).to(dtype)
    weight, bias = torch.randn(2, shape[-1], device=poisoned_memory).to(dtype)
    check(definitions("05-layer-norm"), norm, x, weight, bias, g)


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1000, 11_000, 20_000])
def test_views(definitions, poisoned_memory, norm, dtype, n):
    torch.manual_seed(0)
    wide = torch.randn(77, 2 * n, device=poisoned_memory).to(dtype)
    g = torch.randn(n, 77, device=poisoned_memory).to(dtype).T
    weight, bias = torch.randn(2, n, device=poisoned_memory).to(dtype)
    for x in (wide[:, 3 : n + 3], wide[:, ::2], wide[:, :n].T.contiguous().T):
        check(definitions("05-layer-norm"), norm, x, weight, bias, g)
    check(definitions("05-layer-norm"), norm, wide[:1, :n].expand(77, -1), weight, bias, g)


@pytest.mark.parametrize("n", [4096, 12_000, 40_000])
def test_mean_a_thousand_times_the_deviation(definitions, poisoned_memory, n):
    x = torch.randn(512, n, device=poisoned_memory) + 1000
    weight, bias = torch.randn(2, n, device=poisoned_memory)
    # fp32 knows a mean of 1000 to some 1e-4, which is relative to a deviation of 1.
    check(definitions("05-layer-norm"), "layer_norm", x, weight, bias, torch.randn_like(x), 10)


def test_past_32_bits(definitions, poisoned_memory):
    names = definitions("05-layer-norm")
    x = torch.randn(2**17 + 1, 2**14, dtype=torch.float16, device=poisoned_memory)
    weight, bias = torch.randn(2, 2**14, dtype=torch.float16, device=poisoned_memory)
    y = names["layer_norm"](x, weight, bias)
    for rows in (slice(0, 3), slice(-3, None)):
        expected = functional.layer_norm(x[rows].double(), (2**14,), weight.double(), bias.double())
        close(y[rows], expected)
