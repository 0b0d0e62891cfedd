"""Grouped products and fp8 products against float64 at full size, on a GPU.

Inputs are drawn afresh, and what a kernel returns lies in memory that held NaN before.
"""

from __future__ import annotations

import random

import pytest
import torch

GROUPED, FP8 = "08-grouped-gemm", "09-fp8-matmul"


@pytest.fixture(autouse=True)
def poisoned_memory(on_gpu):
    """Fill what PyTorch's allocator hands out next with NaN, so that no element goes unwritten."""
    device = torch.accelerator.current_accelerator()
    block = torch.full((2**28,), torch.nan, device=device)
    del block
    yield device
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()


# --- 08 ---------------------------------------------------------------------------------------


def check_grouped(names, sizes, k, n, by_columns=False, dtype=torch.bfloat16):
    device = names["DEVICE"]
    sizes = [int(size) for size in sizes]
    x = torch.randn(sum(sizes), k, dtype=dtype, device=device)
    w = torch.randn(len(sizes), k, n, dtype=dtype, device=device)
    if by_columns:
        w = w.mT.contiguous().mT
    ends = torch.tensor(sizes).cumsum(0).to(device, torch.int32)
    got = names["grouped_mm"](x, w, ends)
    assert torch.equal(names["grouped_mm"](x, w, ends), got), "not the same every time"
    for expert, (rows, out) in enumerate(zip(x.split(sizes), got.split(sizes), strict=True)):
        expected = rows.double() @ w[expert].double()
        # Against the sum of the absolute products, since a sum may cancel: one rounding of the
        # result, and an fp32 sum.
        size = rows.double().abs() @ w[expert].double().abs()
        allowed = expected.abs() * torch.finfo(dtype).eps / 2 + size * 2**-18
        assert ((out.double() - expected).abs() <= allowed).all(), f"expert {expert}"


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("case", range(5))
def test_grouped_mm_at_the_sizes_of_the_benchmark(definitions, case, skewed):
    names = definitions(GROUPED)
    experts, tokens, k, n = names["CASES"][case]
    check_grouped(names, names["group_sizes"](experts, tokens, skewed), k, n)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_grouped_mm_of_random_sizes_and_strides(definitions, dtype):
    names = definitions(GROUPED)
    choose = random.Random(0)
    for _ in range(25):
        experts = choose.choice((1, 3, 8, 33, 130))
        sizes = [choose.choice((0, 0, 1, 5, 63, 64, 129, 700)) for _ in range(experts)]
        k, n = choose.choice((8, 45, 520, 4096)), choose.choice((8, 77, 264, 1024))
        check_grouped(names, sizes, k, n, choose.random() < 0.5, dtype)


def test_grouped_mm_all_tokens_with_one_expert(definitions):
    for k, n in ((4096, 1024), (2048, 1408)):
        check_grouped(definitions(GROUPED), [0, 0, 5000, 0], k, n)


# --- 09 ---------------------------------------------------------------------------------------


def check_scaled(names, m, n, k, blocks):
    if not names["CAN_RUN"]:
        pytest.skip(names["NO_FP8"])
    problem = names["draw_problem"](m, n, k, blocks, seed=m + n + k)
    names["assert_right"](names["scaled_mm"](*problem), *problem)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("n", [1024, 1536, 2048, 3072, 4096, 5120])
def test_scaled_mm_squares(definitions, n, blocks):
    check_scaled(definitions(FP8), n, n, n, blocks)


@pytest.mark.parametrize("blocks", [False, True])
def test_scaled_mm_of_random_shapes(definitions, blocks):
    choose = random.Random(0)
    for _ in range(20):
        m, n, k = (choose.choice((1, 5, 64, 123, 1000, 2056, 4112)) for _ in range(3))
        check_scaled(definitions(FP8), m, n, k, blocks)


def test_two_that_take_turns(definitions):
    names = definitions(FP8)
    if not names["IS_HOPPER"]:
        pytest.skip("needs a Hopper GPU")
    for m, n, k in ((1, 8, 16), (200, 1032, 400), (4000, 3000, 1152), (2048, 8192, 128)):
        problem = names["draw_problem"](m, n, k, blocks=True)
        c = names["empty_like_product"](*problem[:2])
        names["run_turns"](*problem, c)
        names["assert_right"](c, *problem)
        first = c.clone()
        for _ in range(20):
            names["run_turns"](*problem, c)
            assert torch.equal(c, first), "not the same every time"


def test_promoted_sums_are_as_exact_as_bf16_can_show(definitions):
    names = definitions(FP8)
    if not names["CAN_RUN"]:
        pytest.skip(names["NO_FP8"])
    a, b, scale_a, scale_b = names["draw_problem"](512, 512, 16384, blocks=True)
    got = names["scaled_mm"](a, b, scale_a, scale_b).double()
    expected = names["scaled_reference"](a, b, scale_a, scale_b)
    error = (got - expected).norm() / expected.norm()
    assert error < 2e-3, "rounding to bf16 alone gives 1.7e-3"
