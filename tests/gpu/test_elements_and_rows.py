"""Kernels that work on elements or rows, against float64 at full size."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.tutorials.float64 import assert_norm

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def check_add(page, device, dtype, n):
    x, y = (100 * torch.randn(2, n, device=device)).to(dtype)
    assert_close(page["add"](x, y), x + y, atol=0, rtol=0)


def check_softmax(page, device, dtype, *shape):
    x = (3 * torch.randn(shape, device=device)).to(dtype)
    # One rounding to the dtype; the errors of exp and of the sum in fp32 are added.
    rtol = 2 * torch.finfo(dtype).eps if dtype != torch.float32 else 2e-5
    expected = torch.softmax(x.double(), dim=1)
    assert_close(page["softmax"](x).double(), expected, rtol=rtol, atol=torch.finfo(dtype).tiny)


def check_dropout(page, device, dtype, n):
    x = torch.randn(n, device=device).to(dtype).requires_grad_()
    # One rounding; below the smallest normal number it has fewer digits to round to.
    close = {"rtol": 2 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).smallest_normal / 1000}
    for seed in (0, 2**32 + 7, 2**64 - 1):
        keep = page["expected_mask"](n, 0.3, seed)
        y, g = page["seeded_dropout"](x, 0.3, seed), torch.randn_like(x)
        assert_close(y.double(), torch.where(keep, x.double() / 0.7, 0.0), **close)
        (dx,) = torch.autograd.grad(y, x, g)
        assert_close(dx.double(), torch.where(keep, g.double() / 0.7, 0.0), **close)


def check_norms(page, device, dtype, *shape):
    *rows, n = shape
    wide = (2 * torch.randn(*rows, n + 3, device=device) + 1).to(dtype)
    g = torch.randn(shape, device=device).to(dtype)
    weight, bias = torch.randn(2, shape[-1], device=device).to(dtype)
    for x in (wide[..., 3:], wide[..., :n].contiguous()):
        for norm in ("layer_norm", "rms_norm"):
            assert_norm(page, norm, x, weight, bias, g)


def check_gelu(page, device, dtype, n):
    x = (3 * torch.randn(n, device=device)).to(dtype)
    for approximate in ("none", "tanh"):
        expected = functional.gelu(x.double(), approximate=approximate)
        y = page["gelu"](x, approximate).double()
        assert_close(y, expected, rtol=torch.finfo(dtype).eps, atol=2e-6)


def check_cross_entropy(page, device, dtype, m, v):
    logits = (3 * torch.randn(m, v, device=device)).to(dtype).requires_grad_()
    targets = torch.randint(0, v, (m,), device=device)
    targets[1::7] = -100
    n = int((targets != -100).sum())
    exact = logits.detach().double().requires_grad_()
    right = functional.cross_entropy(exact, targets)
    (wanted,) = torch.autograd.grad(right, exact)
    # One rounding of the gradient to its dtype; in fp32, of the logit behind a probability.
    rtol = max(torch.finfo(dtype).eps, 1e-5)
    for factor in (1, 64, 65536):
        loss = page["cross_entropy"](logits, targets)
        assert loss.item() == pytest.approx(right.item(), rel=1e-5)
        (gradient,) = torch.autograd.grad(factor * loss, logits)
        atol = max(rtol * factor / n, 2.0**-24 if dtype == torch.float16 else 0)
        if factor * wanted.abs().max() < torch.finfo(dtype).max:
            assert_close(gradient.double(), factor * wanted, rtol=rtol, atol=atol)


def check_cross_entropy_in_place(page, device, dtype, v):
    """A fast warp must not overwrite the target's logit before a slow one has read it."""
    x = torch.randn(2048, v, device=device, dtype=dtype).requires_grad_()
    targets = torch.randint(0, v, (2048,), device=device)
    expected = page["cross_entropy"](x, targets)
    (wanted,) = torch.autograd.grad(expected, x)
    for _ in range(20):
        loss = page["cross_entropy"](x * 1, targets, inplace=True)
        (gradient,) = torch.autograd.grad(loss, x)
        assert torch.equal(loss, expected)
        assert torch.equal(gradient, wanted)


def check_last_layer(page, device, dtype, m, k, v):
    x = torch.randn(m, k, device=device, dtype=dtype).requires_grad_()
    weight = (torch.randn(v, k, device=device) / k**0.5).to(dtype).requires_grad_()
    targets = torch.randint(0, v, (m,), device=device)
    targets[::5] = -100
    loss = page["linear_cross_entropy"](x, weight, targets, piece=1000)
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    expected = functional.cross_entropy(exact[0] @ exact[1].T, targets)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    found, wanted = torch.autograd.grad(loss, (x, weight)), torch.autograd.grad(expected, exact)
    for a, b in zip(found, wanted, strict=True):
        # bf16 logits have an error of 2**-9, so do the probabilities; nine pieces are added up.
        assert (a.double() - b).norm() / b.norm() < 2**-7


ADD, SOFTMAX, DROPOUT = "01-vector-add", "02-fused-softmax", "04-low-memory-dropout"
NORMS, GELU, LOSS = "05-layer-norm", "07-math-functions", "10-cross-entropy"

SOFTMAXES = [(4096, 128 * i) for i in (2, 17, 33, 49, 99)] + [(1823, 781), (5, 1), (123, 4097)]
SOFTMAXES += [(64, 131072), (3, 2**20 + 1), (70000, 130), (2**20, 3)]
ROWS = [(4096, 512 * i) for i in (2, 3, 5, 8, 11, 16, 21, 28, 31)] + [(4096, 1), (4096, 15_873)]
ROWS += [(1823, 781), (5, 2), (64, 131_072), (3, 2**20 + 1), (100_000, 70), (2, 3, 4, 555)]
LOGITS = [(8192, 32768), (8192, 50257), (1000, 131072), (777, 50264), (5, 1), (3, 2**20 + 1)]

#: A tutorial, a check, its sizes and dtypes.
CASES = [
    (ADD, check_add, [(1,), (98432,), (2**27 + 1,)], [*FLOATS, torch.float64, torch.int64]),
    (SOFTMAX, check_softmax, SOFTMAXES, FLOATS),
    (DROPOUT, check_dropout, [(1,), (5,), (1_000_003,), (2**26,)], FLOATS),
    (NORMS, check_norms, ROWS, FLOATS),
    (GELU, check_gelu, [(1,), (1025,), (1_000_003,), (2**26,)], FLOATS),
    (LOSS, check_cross_entropy, LOGITS, FLOATS),
    (LOSS, check_cross_entropy_in_place, [(50257,), (131072,)], [torch.bfloat16]),
    ("10b-linear-cross-entropy", check_last_layer, [(8192, 4096, 32768)], [torch.bfloat16]),
]


@pytest.mark.parametrize(
    ("name", "check", "size", "dtype"),
    [(name, f, size, d) for name, f, sizes, dtypes in CASES for size in sizes for d in dtypes],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_against_float64(definitions, device, name, check, size, dtype):
    check(definitions(name), device, dtype, *size)


@pytest.mark.parametrize(
    ("name", "function", "shape", "reference"),
    [
        (ADD, lambda f: lambda x: f["add"](x, x), (2**31 + 5,), lambda x: x + x),
        (SOFTMAX, lambda f: f["softmax"], (2**17 + 1, 2**14 + 128), lambda x: x.softmax(1)),
        (NORMS, lambda f: lambda x: f["rms_norm"](x, torch.ones_like(x[0])), (2**17 + 1, 2**14),
         lambda x: functional.rms_norm(x, x.shape[1:], eps=1e-6)),
        (GELU, lambda f: f["gelu"], (2**31 + 5,), functional.gelu),
    ],
)  # fmt: skip
def test_offsets_past_32_bits(definitions, device, name, function, shape, reference):
    x = torch.randn(shape, dtype=torch.float16, device=device)
    y = function(definitions(name))(x)
    for part in (slice(0, 3), slice(-3, None)):
        assert_close(y[part].double(), reference(x[part].double()), rtol=2e-3, atol=1e-5)


def test_offsets_past_32_bits_of_cross_entropy(definitions, device):
    m, v = 2**14 + 3, 2**17 + 1
    logits = torch.randn(m, v, device=device, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, v, (m,), device=device)
    (gradient,) = torch.autograd.grad(definitions(LOSS)["cross_entropy"](logits, targets), logits)
    exact = logits.detach()[-3:].double().requires_grad_()
    part = functional.cross_entropy(exact, targets[-3:], reduction="sum") / m
    (wanted,) = torch.autograd.grad(part, exact)
    assert_close(gradient[-3:].double(), wanted, rtol=2**-7, atol=2**-7 / m)
