"""Fused attention against float64 at full size, on a GPU: every kernel, shape class and dtype."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def poisoned_memory(on_gpu):
    """Fill what PyTorch's allocator hands out next with NaN, so that no element goes unwritten."""
    device = torch.accelerator.current_accelerator()
    block = torch.full((2**26,), torch.nan, device=device)
    del block
    yield device
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()


@pytest.fixture
def names(definitions):
    return definitions("06-fused-attention")


def exact(q, k, v, causal, scale):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        positions = torch.arange(max(scores.shape[-2:]), device=q.device)
        scores = scores.masked_fill(
            positions[: k.shape[2]] > positions[: q.shape[2], None], -torch.inf
        )
    return scores.softmax(-1) @ v


def check(names, sizes, dtype, causal, scale=None, view=lambda x: x):
    batch, heads, key_heads, queries, keys, d = sizes
    device = torch.accelerator.current_accelerator()
    shapes = [(batch, heads, queries, d), *[(batch, key_heads, keys, d)] * 2]
    leaves = [view(torch.randn(s, device=device).to(dtype)).requires_grad_() for s in shapes]
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    got, expected = names["attention"](*leaves, causal, scale), exact(*doubles, causal, scale)
    do = torch.randn_like(got)
    grads = torch.autograd.grad(got, leaves, do)
    wanted = torch.autograd.grad(expected, doubles, do.double())
    # Weights, dS and each result are rounded to the dtype once, in no common direction; the
    # gradients subtract numbers of one size, of which one comes from the rounded output.
    unit = max(torch.finfo(dtype).eps, 1e-5)
    # With few keys, those of a key add up many that cancel: with one, all of them, and it is zero.
    added = max(1, (queries * heads / key_heads) ** 0.5 / keys)
    results = zip(("o", "dq", "dk", "dv"), (got, *grads), (expected, *wanted), strict=True)
    for name, x, y in results:
        least = 0.02 * y.numel() ** 0.5 * (added if name in ("dk", "dv") else 1)
        error, size = (x.double() - y).norm(), y.norm() + least
        assert x.isfinite().all(), (name, sizes, dtype, causal)
        assert error <= unit * (1 if name == "o" else 2) * size, (name, sizes, dtype, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("n", [512, 1024, 4096, 8192])
def test_sizes_of_the_benchmark(names, n, d, causal):
    check(names, (2, 3, 3, n, n, d), torch.bfloat16, causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d", [16, 32, 64, 128])
def test_lengths_that_tiles_do_not_divide(names, d, dtype):
    for (queries, keys), causal in itertools.product(
        [(1, 1), (1, 1000), (1000, 1), (127, 385), (640, 129), (1023, 1025)], (False, True)
    ):
        check(names, (1, 2, 2, queries, keys, d), dtype, causal)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("d", [64, 128])
def test_lengths_that_are_not_the_same_and_grouped_heads(names, d, dtype):
    for (queries, keys), causal in itertools.product(
        [(128, 1024), (1024, 128), (384, 640), (2048, 512)], (False, True)
    ):
        check(names, (2, 8, 2, queries, keys, d), dtype, causal)


def test_more_blocks_than_multiprocessors(names):
    check(names, (16, 16, 4, 1024, 1024, 128), torch.bfloat16, True)
    check(names, (40, 8, 8, 256, 256, 64), torch.float16, True)


def test_random_shapes_and_views(names):
    choose = random.Random(0)
    views = [
        lambda x: x,
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: torch.cat([x, x], 3)[..., 1 : 1 + x.shape[3]],
        lambda x: x.mT.contiguous().mT,
    ]
    for _ in range(30):
        key_heads, group = choose.choice((1, 2, 3)), choose.choice((1, 2, 4))
        sizes = (
            choose.choice((1, 2)), key_heads * group, key_heads,
            choose.choice((1, 64, 100, 128, 256, 777)), choose.choice((1, 64, 128, 200, 512, 777)),
            choose.choice((16, 64, 128)),
        )  # fmt: skip
        dtype, causal = choose.choice(DTYPES), choose.random() < 0.5
        scale = choose.choice((None, None, 0.01, 0.2))
        check(names, sizes, dtype, causal, scale, choose.choice(views))


@pytest.mark.parametrize("d", [64, 128])
def test_the_same_bits_every_time(names, d):
    device = torch.accelerator.current_accelerator()
    q, k, v = (x.requires_grad_() for x in torch.randn(3, 2, 8, 2048, d, device=device).half())
    do = torch.randn_like(q)
    first = None
    for _ in range(10):
        o = names["attention"](q, k, v, True)
        result = o, *torch.autograd.grad(o, (q, k, v), do)
        first = first or result
        assert all(torch.equal(a, b) for a, b in zip(first, result, strict=True))


def test_no_matrix_of_scores(names):
    device = torch.accelerator.current_accelerator()
    q, k, v = torch.randn(3, 1, 1, 2**18, 64, device=device).bfloat16()  # scores: 128 GiB
    o = names["attention"](q, k, v)
    rows = slice(1000, 1010)
    expected = exact(q[:, :, rows].double(), k.double(), v.double(), False, None)
    assert (o[:, :, rows].double() - expected).norm() <= 2**-7 * expected.norm()
