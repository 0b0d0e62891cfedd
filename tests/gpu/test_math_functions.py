"""GELU against float64 at full size, on a GPU, in memory that held NaN before."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

NAME = "07-math-functions"


@pytest.fixture(autouse=True)
def poisoned_memory(on_gpu):
    """Fill what PyTorch's allocator hands out next with NaN, so that no element goes unwritten."""
    device = torch.accelerator.current_accelerator()
    block = torch.full((2**28,), torch.nan, device=device)
    del block
    yield device
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("n", [1, 1025, 1_000_003, 2**26])
def test_gelu(definitions, poisoned_memory, n, approximate, dtype):
    x = (3 * torch.randn(n, device=poisoned_memory)).to(dtype)
    y = definitions(NAME)["gelu"](x, approximate)
    expected = functional.gelu(x.double(), approximate=approximate)
    close = {"rtol": torch.finfo(dtype).eps, "atol": 2e-6}
    torch.testing.assert_close(y.double(), expected, **close)


def test_gelu_past_32_bits(definitions, poisoned_memory):
    x = torch.randn(2**31 + 5, device=poisoned_memory, dtype=torch.float16)
    y = definitions(NAME)["gelu"](x)
    for part in (slice(0, 99), slice(-99, None)):
        torch.testing.assert_close(y[part], functional.gelu(x[part]), rtol=2e-3, atol=1e-5)


def test_gelu_at_the_limits(definitions, poisoned_memory):
    x = torch.tensor([math.inf, -0.0, 3e38, -3e38, math.nan], device=poisoned_memory)
    y = definitions(NAME)["gelu"](x).tolist()
    assert y[0] == math.inf
    assert y[1] == 0
    assert y[2] == pytest.approx(3e38)
    assert y[3] == 0
    assert math.isnan(y[4])


def test_every_float_through_functions_by_hand(definitions, on_gpu):
    """What the page promises of the functions by hand holds for each of the 2**32 floats."""
    page = definitions(NAME)
    ways = {"torch": torch.exp, "by hand": page["exp_by_hand"]}
    worst, *_, everywhere = page["accuracy"]("exp", ways)["by hand"]
    assert worst <= 4
    assert everywhere <= 4
