"""The grouped product, in the interpreter, against float64."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from tests.tutorials.launches import launches_of


def ends(*offsets):
    return torch.tensor(offsets, dtype=torch.int32)


def problem(sizes, k, n, dtype=torch.float16):
    x = torch.randn(sum(sizes), k).to(dtype)
    w = torch.randn(len(sizes), k, n).to(dtype)
    return x, w, ends(*itertools.accumulate(sizes))


def assert_right(got, x, w, sizes):
    """Allow one rounding to the dtype, and the rounding errors of an fp32 sum of K products."""
    rows = x.double().split(sizes)
    expected = torch.cat([piece @ w[e].double() for e, piece in enumerate(rows)])
    assert got.dtype == x.dtype
    rounding, summing = torch.finfo(x.dtype).eps, 2**-20 * x.shape[1]
    assert_close(got.double(), expected, rtol=rounding, atol=summing)


SIZES = [[0, 0, 3], [1], [0, 70, 0, 0], [63, 64, 65, 0, 1], [2] * 5, [0, 0]]
SHAPES = [(64, 96), (45, 77), (8, 8), (66, 136), (1, 1)]


@pytest.mark.parametrize("shift", range(2))
@pytest.mark.parametrize(("i", "sizes"), list(enumerate(SIZES)))
def test_sizes_that_no_tile_divides(page, i, sizes, shift):
    """Experts without tokens too; every list of sizes with two shapes, one in each dtype."""
    dtype = (torch.float16, torch.bfloat16)[shift]
    x, w, offsets = problem(sizes, *SHAPES[(i + shift) % len(SHAPES)], dtype)
    assert_right(page["grouped_mm"](x, w, offsets), x, w, sizes)


@pytest.mark.parametrize("tiling", ["FEW", "PAIR", "LARGE", "TILE_BY_TILE"])
def test_every_tiling_computes_every_row(page, tiling):
    sizes = [130, 0, 65, 1, 64]
    columns = page[tiling][1] + 8
    x, w, offsets = problem(sizes, 72, columns)
    out = torch.full((sum(sizes), columns), torch.nan, dtype=x.dtype)
    launch(page, tiling, x, w, offsets, out)
    assert_right(out, x, w, sizes)


def launch(page, tiling, x, w, offsets, out):
    tiles, (grid, numbers, constants) = page["prepare"](page[tiling], x, w)
    page["persistent_kernel"][grid](*tiles, out, offsets, *numbers, **constants)


def test_views(page):
    sizes = [20, 0, 44]
    x, w, offsets = problem(sizes, 96, 80)
    wide = torch.zeros(64, 200, dtype=x.dtype)
    wide[:, 8:104] = x
    assert_right(page["grouped_mm"](wide[:, 8:104], w, offsets), x, w, sizes)
    assert_right(page["grouped_mm"](x, w[:, :, 1::3], offsets), x, w[:, :, 1::3], sizes)
    assert_right(page["grouped_mm"](x, w.mT.contiguous().mT, offsets), x, w, sizes)
    one = w[:1].expand(3, 96, 80)  # a stride of zero
    assert_right(page["grouped_mm"](x, one, offsets), x, one, sizes)


@pytest.mark.parametrize("poisoned", ["the next rows", "the next matrix"])
def test_an_expert_is_not_spoiled_by_the_next_one(page, poisoned):
    x, w, offsets = problem([30, 34], 72, 96)  # no tile along K ends at 72
    (x[30:] if poisoned == "the next rows" else w[1]).fill_(torch.nan)
    assert_right(page["grouped_mm"](x, w, offsets)[:30], x[:30], w[:1], [30])


@pytest.mark.parametrize("offsets", [(80, 80), (-30, 40), (40, 20), (80, -80)])
def test_wrong_offsets_write_nothing_outside_of_the_output(page, offsets):
    """A GPU does not check them."""
    x, w, _ = problem([20, 20], 64, 96)
    memory = torch.full((120, 96), 7.0, dtype=x.dtype)
    out = memory[40:80]
    launch(page, "FEW", x, w, ends(*offsets), out)
    strides = *x.stride(), *w.stride()
    page["one_launch_kernel"][(8,)](
        x, w, out, ends(*offsets), 2, 40, 64, 96, *strides, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
    )
    assert memory[:40].eq(7).all()
    assert memory[80:].eq(7).all()


def test_a_plan_holds_no_tensor(page):
    x, w, _ = problem([30, 0, 10], 64, 96)
    _, fields = page["plan_of"](x, w)
    assert all(field["base"] is None for field in fields)


@pytest.mark.parametrize(
    ("sizes", "k", "n", "tiling"),
    [([30, 0, 10], 64, 96, "FEW"), ([200, 0, 10], 64, 96, "PAIR"), ([70], 4096, 256, "LARGE")],
)
def test_the_plain_function_makes_the_launch_of_the_public_one(page, plain, sizes, k, n, tiling):
    x, w, offsets = problem(sizes, k, n)
    shown, out = launches_of(plain("08-grouped-gemm").grouped_mm, x, w, offsets)
    assert torch.equal(out, page["grouped_mm"](x, w, offsets))
    launch, _ = page["plan_of"](x, w)
    ((name, grid, numbers, constants),) = shown
    assert constants["BLOCK_M"] == page[tiling][0]
    assert name == launch.kernel.fn.__name__
    assert (*grid, 1, 1)[:3] == launch.grid
    assert numbers[-len(launch.numbers) :] == launch.numbers
    assert constants == launch.constants


@pytest.mark.parametrize("offsets", [(80, 80), (-30, 40), (40, 20), (80, -80)])
def test_wrong_offsets_touch_nothing_else_in_the_solutions(tutorial, offsets):
    gate = tutorial("solutions/08-gate")["gated_kernel"]
    memory = torch.full((160, 32), 7.0).half()
    out, x, w = memory[60:100], torch.randn(40, 16).half(), torch.randn(2, 16, 32).half()
    sizes = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16}
    strides = *x.stride(), *w.stride(), 32
    gate[(4,)](x, w, w, out, ends(*offsets), 2, 40, 16, 32, *strides, **sizes)
    assert (memory[:60] == 7).all()
    assert (memory[100:] == 7).all()
    around = torch.full((160, 16), torch.nan).half()
    around[60:100] = x
    gradient = tutorial("solutions/08-backward")["grouped_gradient"]
    assert gradient(around[60:100], out.clone().nan_to_num(0), ends(*offsets)).isfinite().all()
