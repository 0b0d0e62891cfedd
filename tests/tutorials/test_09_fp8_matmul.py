"""The fp8 product and rounding to fp8, in the interpreter, against float64 and PyTorch."""

import pytest
import torch
from torch.testing import assert_close

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def check(page, a, b, scale_a, scale_b):
    got = page["scaled_mm"](a, b, scale_a, scale_b)
    assert got.dtype == torch.bfloat16
    # One rounding to bf16, and the rounding errors of a sum in fp32.
    expected = page["scaled_reference"](a, b, scale_a, scale_b)
    size = page["dequantize"](a, scale_a).abs() @ page["dequantize"](b, scale_b).abs()
    error = (got.double() - expected).abs()
    assert (error <= expected.abs() * 2**-8 + size * 2**-18).all()


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 8, 16), (77, 45, 300), (65, 136, 144), (130, 264, 128), (5, 7, 129)]
)
def test_shapes_that_no_tile_divides(page, shape, blocks):
    check(page, *page["draw_problem"](*shape, blocks))


@pytest.mark.parametrize("dtypes", [(E5M2, E4M3), (E4M3, E5M2)])
def test_e5m2_with_e4m3(page, dtypes):
    a, b, scale_a, scale_b = page["draw_problem"](33, 40, 64)
    check(page, a.float().to(dtypes[0]), b.float().T.to(dtypes[1]).T, scale_a, scale_b)


def test_views(page):
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 96)
    check(page, a, b.contiguous(), scale_a, scale_b)  # b by rows
    check(page, a.T.contiguous().T, b, scale_a, scale_b)  # a by columns
    check(page, a[::2], b[:, 3:], scale_a[::2], scale_b[:, 3:])
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 256, blocks=True)
    check(page, a, b, scale_a.contiguous(), scale_b.T.contiguous().T)


@pytest.mark.parametrize(
    "programs", [3, *(pytest.param(n, marks=pytest.mark.stress) for n in (1, 33))]
)
def test_every_plan_computes_every_tile(page, programs, monkeypatch):
    """With 3 programs there are whole tiles and split ones, with 1 only whole ones."""
    monkeypatch.setitem(page["run_plan"].__globals__, "PROGRAMS", programs)
    for plan in page["PLANS"]:
        # Two by two tiles and two steps along K; the second of each is partial.
        m, n = 2 * plan.block_m - 24, 2 * plan.block_n - 24
        problem = page["draw_problem"](m, n, plan.block_k + 32)
        c = torch.full((m, n), torch.nan)
        page["run_plan"](plan, *problem, c)
        expected = page["scaled_reference"](*problem)
        assert_close(c.double(), expected, rtol=1e-5, atol=1e-3, msg=str(plan))


def test_rounding_to_fp8_is_that_of_pytorch(page):
    """Halfway between two numbers of e4m3, beside them, and over the whole range."""
    grid = torch.arange(-448, 449) / 16
    x = torch.cat([torch.tensor([448.0]), grid, grid + 2**-12, 100 * torch.randn(999)])
    x = x.clamp(-448, 448)[None]
    q, scale = page["quantize_activations"](x)
    assert scale.item() == 1
    assert torch.equal(q.float(), x.to(E4M3).float())


@pytest.mark.parametrize("blocks", [False, True])
def test_a_row_of_zeros_has_a_positive_scale(page, blocks):
    q, scale = page["quantize_activations"](torch.zeros(3, 130), blocks)
    assert not q.float().any()
    assert scale.gt(0).all()
