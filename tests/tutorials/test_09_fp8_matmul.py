"""The fp8 product, in the interpreter, against float64."""

import pytest
import torch
from torch.testing import assert_close

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def check(page, a, b, scale_a, scale_b):
    for _ in range(2):  # the second call follows a plan
        got = page["scaled_mm"](a, b, scale_a, scale_b)
        assert got.dtype == torch.bfloat16
        assert got.is_contiguous()
        # One rounding to bf16, and the rounding errors of a sum in fp32.
        expected = page["dequantize"](a, scale_a) @ page["dequantize"](b, scale_b)
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
    check(page, a, b, scale_a[:1].expand(64, 1), scale_b)
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 256, blocks=True)
    check(page, a, b, scale_a.contiguous(), scale_b.T.contiguous().T)


@pytest.mark.parametrize("programs", [1, 3])
def test_every_tile_is_computed(page, programs, monkeypatch):
    monkeypatch.setitem(page["scaled_mm"].__globals__, "SMS", programs)
    monkeypatch.setitem(page["scaled_mm"].__globals__, "PLANS", {})
    for tile in page["TILES"]:
        monkeypatch.setitem(page["scaled_mm"].__globals__, "TILES", [tile])
        # Two by two tiles and two steps along K; the second of each is partial.
        problem = page["draw_problem"](2 * tile[0] - 24, 2 * tile[1] - 24, tile[2] + 32)
        check(page, *problem)
        page["scaled_mm"].__globals__["PLANS"].clear()


def test_a_plan_is_kept_for_alike_arguments_only_and_holds_no_tensor(page):
    plans = page["PLANS"]
    a, b, scale_a, scale_b = page["draw_problem"](40, 48, 64)
    plans.clear()
    check(page, a, b, scale_a, scale_b)
    check(page, a.clone(), b, scale_a, scale_b)
    assert len(plans) == 1
    check(page, a.float().to(E5M2), b, scale_a, scale_b)
    wide = torch.zeros(40, 128).to(E4M3)
    wide[:, :64] = a
    check(page, wide[:, :64], b, scale_a, scale_b)
    assert len(plans) == 3
    for launch, fields, _ in plans.values():
        held = [*vars(launch).values(), *(value for said in fields for value in said.values())]
        assert not any(isinstance(value, torch.Tensor) for value in held)


def test_rounding_to_fp8_uses_the_whole_range(page):
    q, scale = page["quantize"](torch.randn(3, 256), 1, 128)
    assert scale.shape == (3, 2)
    assert_close(q.float().unflatten(1, (2, 128)).abs().amax(2), torch.full((3, 2), 448.0))
    q, scale = page["quantize"](torch.zeros(3, 128), 1, 128)
    assert not q.float().any()
    assert scale.gt(0).all()


@pytest.mark.parametrize("blocks", [False, True])
def test_the_plain_function_makes_the_launch_of_the_public_one(page, plain, blocks):
    problem = page["draw_problem"](200, 136, 272, blocks)
    lesson = plain("09-fp8-matmul")
    kernel, *settings = lesson.settings(*problem)
    launch, _, _ = page["make_plan"](*problem)
    assert kernel.fn.__name__ == launch.kernel.fn.__name__
    assert settings == [launch.grid[:1], launch.numbers, launch.constants]
    assert torch.equal(lesson.scaled_mm(*problem).bfloat16(), page["scaled_mm"](*problem))


def test_a_matrix_whose_sign_is_still_to_be_changed_is_refused(page):
    a, b, *scales = page["draw_problem"](33, 40, 64)
    for x, y in ((torch._neg_view(a), b), (a, torch._neg_view(b))):
        with pytest.raises(NotImplementedError, match="neg"):  # PyTorch cannot negate fp8
            page["scaled_mm"](x, y, *scales)
