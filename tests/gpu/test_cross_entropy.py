"""Cross-entropy against float64 at full size, on a GPU, in memory that held NaN before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from triton_site.pages.assemble import assemble_script

TUTORIALS = Path(__file__).parents[2] / "tutorials"
NAME = "10-cross-entropy"
# One rounding of the gradient to its dtype; in fp32, of the logit that a probability comes from.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}


@pytest.fixture(autouse=True)
def poisoned_memory(on_gpu):
    """Fill what PyTorch's allocator hands out next with NaN, so that no element goes unwritten."""
    device = torch.accelerator.current_accelerator()
    block = torch.full((2**28,), torch.nan, device=device)
    del block
    yield device
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()


def assert_cross_entropy(loss, gradient, logits, targets, factor=1.0):
    """Compare with float64, a few hundred rows at a time: all at once would need 8 bytes each."""
    n = int((targets != -100).sum())
    rtol = TOLERANCES[logits.dtype]
    atol = max(rtol * factor / n, 2.0**-24 if logits.dtype == torch.float16 else 0)
    total = 0.0
    for rows in torch.arange(len(logits), device=logits.device).split(512):
        exact = logits[rows].double().requires_grad_()
        part = functional.cross_entropy(exact, targets[rows], reduction="sum")
        (wanted,) = torch.autograd.grad(part, exact)
        total += part.item()
        wanted *= factor / n
        torch.testing.assert_close(gradient[rows].double(), wanted, rtol=rtol, atol=atol)
    assert loss.item() == pytest.approx(total / n, rel=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("m", "v"),
    [(8192, 32768), (8192, 50257), (1000, 131072), (777, 50264), (5, 1), (33, 781), (3, 2**20 + 1)],
)
def test_cross_entropy(definitions, poisoned_memory, m, v, dtype):
    cross_entropy = definitions(NAME)["cross_entropy"]
    logits = (3 * torch.randn(m, v, device=poisoned_memory)).to(dtype).requires_grad_()
    targets = torch.randint(0, v, (m,), device=poisoned_memory)
    targets[1::7] = -100
    loss = cross_entropy(logits, targets)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert_cross_entropy(loss, gradient, logits.detach(), targets)
    (gradient,) = torch.autograd.grad(64 * cross_entropy(logits, targets), logits)
    assert_cross_entropy(loss, gradient, logits.detach(), targets, factor=64)


@pytest.mark.parametrize("v", [50257, 131072])
def test_in_place(definitions, poisoned_memory, v):
    """A quick warp must not overwrite the target's logit before a slow one has read it."""
    cross_entropy = definitions(NAME)["cross_entropy"]
    x = torch.randn(2048, v, device=poisoned_memory, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, v, (2048,), device=poisoned_memory)
    expected = cross_entropy(x, targets)
    (wanted,) = torch.autograd.grad(expected, x)
    for _ in range(20):
        logits = x * 1
        loss = cross_entropy(logits, targets, inplace=True)
        (gradient,) = torch.autograd.grad(loss, x)
        assert torch.equal(loss, expected)
        assert torch.equal(gradient, wanted)


def test_gives_the_same_every_time(definitions, poisoned_memory):
    cross_entropy = definitions(NAME)["cross_entropy"]
    x = torch.randn(2048, 50257, device=poisoned_memory, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, 50257, (2048,), device=poisoned_memory)
    losses, gradients = [], []
    for _ in range(5):
        losses.append(cross_entropy(x, targets))
        gradients += torch.autograd.grad(losses[-1], x)
    assert all(torch.equal(loss, losses[0]) for loss in losses)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


def test_offsets_past_32_bits(definitions, poisoned_memory):
    m, v = 2**14 + 3, 2**17 + 1
    logits = torch.randn(m, v, device=poisoned_memory, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, v, (m,), device=poisoned_memory)
    (gradient,) = torch.autograd.grad(definitions(NAME)["cross_entropy"](logits, targets), logits)
    rows = slice(-3, None)
    exact = logits.detach()[rows].double().requires_grad_()
    part = functional.cross_entropy(exact, targets[rows], reduction="sum") / m
    (wanted,) = torch.autograd.grad(part, exact)
    close = {"rtol": 2**-7, "atol": 2**-7 / m}
    torch.testing.assert_close(gradient[rows].double(), wanted, **close)


def test_linear_cross_entropy_at_full_size(definitions, poisoned_memory):
    """Against float64: a layer of a language model, with pieces that add up in bf16."""
    m, k, v = 8192, 4096, 32768
    x = torch.randn(m, k, device=poisoned_memory, dtype=torch.bfloat16).requires_grad_()
    weight = (torch.randn(v, k, device=poisoned_memory) / k**0.5).bfloat16().requires_grad_()
    targets = torch.randint(0, v, (m,), device=poisoned_memory)
    targets[::5] = -100
    loss = definitions(NAME)["linear_cross_entropy"](x, weight, targets, piece=1000)
    found = torch.autograd.grad(loss, (x, weight))
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    expected = functional.cross_entropy(exact[0] @ exact[1].T, targets)
    wanted = torch.autograd.grad(expected, exact)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    for a, b in zip(found, wanted, strict=True):
        # bf16 logits are off by 2**-9, so are the probabilities; nine roundings of a sum on top.
        assert (a.double() - b).norm() / b.norm() < 2**-7


def test_a_target_out_of_range_stops_the_gpu(on_gpu, tmp_path):
    """In a process of its own: the GPU is of no use to it afterwards."""
    whole = assemble_script((TUTORIALS / f"{NAME}.py").read_text(), TUTORIALS / "shared")
    first_steps = whole[: whole.index("# Step 2: ")]
    script = tmp_path / "script.py"
    script.write_text(
        f"{first_steps}\n"
        "targets = torch.tensor([0, 1, 2, 10], device=DEVICE)\n"
        "by_two_kernels(torch.randn(4, 10, device=DEVICE), targets)\n"
        "torch.accelerator.synchronize()\n"
    )
    environment = os.environ | {"MPLBACKEND": "agg"}
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    assert "by_two_kernels agrees with float64" in result.stdout
    assert result.returncode != 0
    assert "a target is out of range" in result.stderr + result.stdout
