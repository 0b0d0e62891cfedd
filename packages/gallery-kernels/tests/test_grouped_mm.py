"""The grouped product, against float64."""

import itertools
import sys

import pytest
import torch
from torch.testing import assert_close

from gallery_kernels import grouped_mm
from gallery_kernels.launch import Limits, limits_of

MODULE = sys.modules["gallery_kernels.grouped_mm"]
CPU = torch.device("cpu")


def ends(*offsets):
    return torch.tensor(offsets, dtype=torch.int32)


def problem(sizes, k, n, dtype=torch.float16):
    x = torch.randn(sum(sizes), k).to(dtype)
    w = torch.randn(len(sizes), k, n).to(dtype)
    return x, w, ends(*itertools.accumulate(sizes))


def assert_right(found, x, w, sizes):
    """Allow one rounding to the dtype, and the rounding errors of an fp32 sum of K products."""
    rows = x.double().split(sizes)
    expected = torch.cat([piece @ w[e].double() for e, piece in enumerate(rows)])
    assert found.dtype == x.dtype
    rounding, summing = torch.finfo(x.dtype).eps, 2**-20 * x.shape[1]
    assert_close(found.double(), expected, rtol=rounding, atol=summing)


SIZES = [[0, 0, 3], [1], [0, 70, 0, 0], [63, 64, 65, 0, 1], [2] * 5, [0, 0]]
SHAPES = [(64, 96), (45, 77), (8, 8), (66, 136), (1, 1)]


@pytest.mark.parametrize("shift", range(2))
@pytest.mark.parametrize(("i", "sizes"), list(enumerate(SIZES)))
def test_sizes_that_no_tile_divides(i, sizes, shift):
    """Groups without rows too; every list of sizes with two shapes, one in each dtype."""
    dtype = (torch.float16, torch.bfloat16)[shift]
    x, w, offsets = problem(sizes, *SHAPES[(i + shift) % len(SHAPES)], dtype)
    for _ in range(2):  # the second call uses the plan of the first
        assert_right(grouped_mm(x, w, offsets), x, w, sizes)


@pytest.mark.parametrize("tiling", ["FEW_ROWS", "PAIR", "LARGE"])
def test_every_tiling_computes_every_row(tiling):
    sizes = [130, 0, 65, 1, 64]
    tiling = getattr(MODULE, tiling)
    columns = tiling.columns + 8
    x, w, offsets = problem(sizes, 72, columns)
    out = torch.full((sum(sizes), columns), torch.nan, dtype=x.dtype)
    launch = MODULE.launch_by_descriptors(tiling, x, w, limits_of(CPU))
    launch((x, w), out, offsets)
    assert_right(out, x, w, sizes)


@pytest.mark.parametrize(
    ("rows", "groups", "K", "N", "tiling"),
    [
        (4096, 128, 2048, 768, "FEW_ROWS"),
        (8192, 64, 2048, 1408, "PAIR"),
        (8192, 8, 4096, 4096, "LARGE"),
        (8192, 8, 4096, 4000, "PAIR"),
    ],
)
def test_the_tiling_of_a_product(rows, groups, K, N, tiling):
    assert MODULE.tiling_for(rows, groups, K, N) == getattr(MODULE, tiling)


def test_views():
    sizes = [20, 0, 44]
    x, w, offsets = problem(sizes, 96, 80)
    wide = torch.zeros(64, 200, dtype=x.dtype)
    wide[:, 8:104] = x
    assert_right(grouped_mm(wide[:, 8:104], w, offsets), x, w, sizes)
    assert_right(grouped_mm(x, w[:, :, 1::3], offsets), x, w[:, :, 1::3], sizes)
    assert_right(grouped_mm(x, w.mT.contiguous().mT, offsets), x, w, sizes)
    one = w[:1].expand(3, 96, 80)  # a stride of zero
    assert_right(grouped_mm(x, one, offsets), x, one, sizes)
    assert_right(grouped_mm(x, w, offsets.repeat_interleave(2)[::2]), x, w, sizes)


@pytest.mark.parametrize("poisoned", ["the next rows", "the next matrix"])
def test_a_group_is_not_spoiled_by_the_next_one(poisoned):
    x, w, offsets = problem([30, 34], 72, 96)  # no tile along K ends at 72
    (x[30:] if poisoned == "the next rows" else w[1]).fill_(torch.nan)
    assert_right(grouped_mm(x, w, offsets)[:30], x[:30], w[:1], [30])


@pytest.mark.parametrize("offsets", [(80, 80), (-30, 40), (40, 20), (80, -80)])
def test_wrong_offsets_write_nothing_outside_of_the_result(offsets):
    """A GPU does not check them."""
    x, w, _ = problem([20, 20], 64, 96)
    memory = torch.full((120, 96), 7.0, dtype=x.dtype)
    out = memory[40:80]
    limits = limits_of(CPU)
    by_descriptors = MODULE.launch_by_descriptors(MODULE.FEW_ROWS, x, w, limits)
    by_descriptors((x, w), out, ends(*offsets))
    MODULE.plan_by_pointers(x, w, limits).launch(x, w, out, ends(*offsets))
    assert memory[:40].eq(7).all()
    assert memory[80:].eq(7).all()


def test_both_kernels_agree():
    x, w, offsets = problem([130, 0, 65], 72, 96)
    limits = limits_of(CPU)
    one = MODULE.plan_by_descriptors(x, w, limits)(x, w, offsets)
    other = MODULE.plan_by_pointers(x, w, limits)(x, w, offsets)
    assert_close(one, other, rtol=2**-10, atol=1e-3)


def test_the_plan_is_for_the_gpu_of_the_tensors(monkeypatch):
    """Limits of the current GPU at import would be those of another one."""
    x, w, _ = problem([40, 0, 24], 64, 4096)
    programs = []
    for multiprocessors in (7, 132):
        limits = Limits(multiprocessors, 232_448, 2**25, True, True, True)
        monkeypatch.setattr(MODULE, "limits_of", lambda device, limits=limits: limits)
        programs.append(MODULE.plan_product(x, w).launch.launch.grid[0])
    assert programs == [2 * 7, 4 * 32]  # as many as are resident, and one for each tile
    small = Limits(132, 101_376, 2**25, True, False, True)  # too little for three stages
    monkeypatch.setattr(MODULE, "INTERPRETED", False)
    monkeypatch.setattr(MODULE, "limits_of", lambda device: small)
    assert isinstance(MODULE.plan_product(x, w), MODULE.ProductByPointers)


def test_a_plan_holds_no_tensor():
    x, w, _ = problem([30, 0, 10], 64, 96)
    launch = MODULE.plan_product(x, w).launch
    assert all(fields["base"] is None for _, fields in launch.descriptors)


@pytest.mark.parametrize(("rows", "k", "n"), [(0, 16, 24), (8, 0, 24), (8, 16, 0)])
def test_nothing_gives_nothing(rows, k, n):
    found = grouped_mm(torch.ones(rows, k).half(), torch.ones(2, k, n).half(), ends(0, rows))
    assert found.shape == (rows, n)
    assert not found.any()


ROWS, GROUPS = torch.ones(8, 16).half(), torch.ones(2, 16, 24).half()

REFUSALS = [
    ((ROWS.float(), GROUPS.float(), ends(3, 8)), TypeError, "the dtype of x must be"),
    ((ROWS, GROUPS.bfloat16(), ends(3, 8)), TypeError, "the dtype of w must be torch.float16"),
    ((ROWS[:, 1:], GROUPS, ends(3, 8)), ValueError, r"\(8, 15\) and \(2, 16, 24\)"),
    ((ROWS[0], GROUPS, ends(3, 8)), ValueError, "x must have 2 dimensions"),
    ((ROWS, GROUPS[0], ends(3, 8)), ValueError, "w must have 3 dimensions"),
    ((ROWS, GROUPS, ends(3, 8).long()), TypeError, "dtype of offsets must be torch.int32"),
    ((ROWS, GROUPS, ends(3, 8).to("meta")), ValueError, "offsets must be on .* on meta"),
    ((ROWS, GROUPS, [3, 8]), TypeError, "offsets must be a torch.Tensor, but is a list"),
    ((ROWS, GROUPS, ends(8)), ValueError, "offsets must have one number for each matrix of w, 2"),
    *(
        ((ROWS, GROUPS, ends(*wrong)), ValueError, "offsets must not decrease")
        for wrong in ((8, 3), (-1, 8), (3, 9), (9, 9))
    ),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            grouped_mm(*arguments)
        grouped_mm(ROWS, GROUPS, ends(3, 8))


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    ("sizes", "k", "n"),
    [
        ([1000, 0, 3, 700, 1, 0, 2000, 392], 4096, 1024),
        ([64] * 64, 2048, 1408),
        ([300, 0, 900], 1000, 77),
        ([5] * 130, 520, 264),
    ],
)
def test_full_sizes(sizes, k, n, by_columns, dtype, gpu):
    x, w, offsets = (t.to(gpu) for t in problem(sizes, k, n, dtype))
    if by_columns:
        w = w.mT.contiguous().mT
    for _ in range(2):  # the second call uses the plan of the first
        assert_right(grouped_mm(x, w, offsets), x, w, sizes)


@pytest.mark.gpu
def test_wrong_offsets_on_a_gpu_do_not_stop_the_program(gpu):
    x, w, _ = problem([200, 200], 64, 96)
    for offsets in ((800, 800), (-300, 400), (400, 200)):
        assert grouped_mm(x.to(gpu), w.to(gpu), ends(*offsets).to(gpu)).shape == (400, 96)
    torch.accelerator.synchronize()
