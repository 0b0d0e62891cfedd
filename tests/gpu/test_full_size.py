"""The kernels against float64 at full size, on a GPU.

Inputs are drawn afresh, and what a kernel returns lies in memory that held NaN before.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch.testing import assert_close

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


# --- 01 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64, torch.int64])
@pytest.mark.parametrize("n", [1, 5, 98432, 2**27, 2**27 + 1])
def test_add(definitions, poisoned_memory, n, dtype):
    x, y = (100 * torch.randn(2, n, device=poisoned_memory)).to(dtype)
    assert_close(definitions("01-vector-add")["add"](x, y), x + y, atol=0, rtol=0)


def test_add_past_32_bits(definitions, poisoned_memory):
    x = torch.randint(0, 100, (2**31 + 5,), dtype=torch.int8, device=poisoned_memory)
    assert torch.equal(definitions("01-vector-add")["add"](x, x), x + x)


# --- 02 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [(4096, 128 * i) for i in (2, 5, 17, 33, 49, 65, 99)]
    + [(1823, 781), (5, 1), (7, 2), (123, 4097), (64, 131072), (8, 2**20), (3, 2**20 + 1)]
    + [(70000, 130), (2**20, 3)],
)
def test_softmax(definitions, poisoned_memory, shape, dtype):
    x = (3 * torch.randn(shape, device=poisoned_memory)).to(dtype)
    expected = torch.softmax(x.double(), dim=1)
    # One rounding to the dtype; fp32 arithmetic in exp and in the sum comes on top.
    rtol = 2 * torch.finfo(dtype).eps if dtype != torch.float32 else 2e-5
    got = definitions("02-fused-softmax")["softmax"](x)
    assert_close(got.double(), expected, rtol=rtol, atol=torch.finfo(dtype).tiny)


def test_softmax_past_32_bits(definitions, poisoned_memory):
    x = torch.randn(2**17 + 1, 2**14 + 128, dtype=torch.float16, device=poisoned_memory)
    got = definitions("02-fused-softmax")["softmax"](x)
    for rows in (slice(0, 3), slice(-3, None)):
        assert_close(got[rows].double(), torch.softmax(x[rows].double(), 1), rtol=2e-3, atol=1e-7)


# --- 03 ---------------------------------------------------------------------------------------


def check_matmul(definitions, a, b, activation=""):
    got = definitions("03-matrix-multiplication")["matmul"](a, b, activation)
    expected = a.double() @ b.double()
    if activation:
        expected = torch.nn.functional.leaky_relu(expected)
    # Against the sum of the absolute products, since a sum may cancel. Rounding the result once
    # is off by less than eps/2 of it, the fp32 sum by less than 1e-6; anything wrong by far more.
    size = a.double().abs() @ b.double().abs()
    error = (got.double() - expected).norm() / size.norm().clamp_min(1e-30)
    tolerance = torch.finfo(a.dtype).eps / 2 + 1e-6
    assert error < tolerance, f"{tuple(a.shape)} by {tuple(b.shape)}: {error:.2e}"


@pytest.mark.parametrize("activation", ["", "leaky_relu"])
@pytest.mark.parametrize("n", [128 * i for i in range(2, 33)])
def test_matmul_squares(definitions, poisoned_memory, n, activation):
    a, b = torch.randn(2, n, n, dtype=torch.float16, device=poisoned_memory)
    check_matmul(definitions, a, b, activation)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_of_random_shapes_and_strides(definitions, poisoned_memory, dtype):
    choose = random.Random(0)
    for _ in range(40):
        m, n, k = (choose.choice((1, 5, 64, 123, 1000, 2048, 4099)) for _ in range(3))
        a = torch.randn(m, k, dtype=dtype, device=poisoned_memory)
        b = torch.randn(k, n, dtype=dtype, device=poisoned_memory)
        if choose.random() < 0.5:
            a = torch.randn(k, m, dtype=dtype, device=poisoned_memory).T
        if choose.random() < 0.5:
            b = torch.randn(n, k, dtype=dtype, device=poisoned_memory).T
        if choose.random() < 0.3:
            b = torch.randn(k, 2 * n, dtype=dtype, device=poisoned_memory)[:, ::2]
        check_matmul(definitions, a, b, choose.choice(("", "leaky_relu")))


def test_matmul_gives_the_same_every_time(definitions, poisoned_memory):
    a, b = torch.randn(2, 2176, 2176, dtype=torch.float16, device=poisoned_memory)
    matmul = definitions("03-matrix-multiplication")["matmul"]
    first = matmul(a, b)
    for _ in range(50):
        assert torch.equal(matmul(a, b), first)


# --- 04 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 123, 1_000_003, 2**26])
def test_seeded_dropout(definitions, poisoned_memory, n, dtype):
    names = definitions("04-low-memory-dropout")
    x = torch.randn(n, device=poisoned_memory).to(dtype).requires_grad_()
    # One rounding; below the smallest normal number it has fewer digits to round to.
    close = {"rtol": 2 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).smallest_normal / 1000}
    for seed in (0, 2**32 + 7, 2**64 - 1):
        keep = names["expected_mask"](n, 0.3, seed)
        expected = torch.where(keep, x.double() / 0.7, 0.0)
        y = names["seeded_dropout"](x, 0.3, seed)
        assert_close(y.double(), expected, **close)
        grad = torch.randn_like(y)
        (found,) = torch.autograd.grad(y, x, grad)
        wanted = torch.where(keep, grad.double() / 0.7, 0.0)
        assert_close(found.double(), wanted, **close)


def test_seeded_dropout_at_the_size_of_the_benchmark(definitions, poisoned_memory):
    names = definitions("04-low-memory-dropout")
    x = torch.randn(2**28, device=poisoned_memory)
    y = names["seeded_dropout"](x, 0.5, 123)
    assert torch.equal(y, torch.where(names["expected_mask"](2**28, 0.5, 123), x * 2, 0.0))


def test_seeded_dropout_past_32_bits(definitions, poisoned_memory):
    names = definitions("04-low-memory-dropout")
    x = torch.ones(2**31 + 5, dtype=torch.float16, device=poisoned_memory)
    y = names["seeded_dropout"](x, 0.5, 1)
    kept = (y != 0).sum().item()
    assert abs(kept - 2**30) < 6 * 2**15, "kept is not within six standard deviations of a half"
    assert not torch.equal(y[-1000:], y[:1000])
