"""The matrix product of tutorial 03b, in the interpreter, against float64."""

import math
import threading
from dataclasses import replace

import pytest
import torch

from tests.tutorials.launches import launches_of
from tests.tutorials.test_03_matrix_multiplication import VIEWS, assert_product, matrices


@pytest.fixture(scope="module")
def settable(page):
    """The globals that the functions of the page read."""
    return page["matmul"].__globals__


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (64, 64, 64), (65, 63, 129), (0, 4, 3)])
def test_shapes_that_no_tile_divides(page, shape):
    a, b = matrices(*shape)
    for activation in ("", "leaky_relu"):
        product = page["matmul"](a, b, activation)
        assert product.is_contiguous()
        assert_product(product, a, b, activation)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_that_no_descriptor_can_address(page, view):
    a, b = matrices(37, 48, 32)
    for factors in ((view(a), b), (a, view(b)), (view(a), view(b))):
        for _ in range(2):  # the second call takes what was kept
            assert_product(page["matmul"](*factors), *factors)


def test_a_matrix_that_begins_one_element_later(page):
    a, b = matrices(16, 24, 32)
    behind = torch.empty(16 * 32 + 1, dtype=a.dtype)[1:].view(16, 32).copy_(a)
    for _ in range(2):
        assert_product(page["matmul"](behind, b), a, b)


def test_infinity_behind_a_view_is_never_used(page):
    a = torch.full((20, 64), float("inf"), dtype=torch.float16)
    b = torch.full((64, 24), float("nan"), dtype=torch.float16)
    a[:17, :24], b[:24, :16] = 1.0, 1.0
    assert page["matmul"](a[:17, :24], b[:24, :16]).eq(24).all()


@pytest.mark.parametrize("sms", [3, *(pytest.param(n, marks=pytest.mark.stress) for n in (1, 132))])
def test_every_tiling_computes_every_tile(page, settable, sms, monkeypatch):
    """On 3 SMs there are whole tiles and cut ones, on 1 only the former, on 132 the latter."""
    monkeypatch.setitem(settable, "SMS", sms)
    # The interpreter uses neither warps nor stages.
    for tiling in {replace(tiling, warps=1, stages=1) for tiling in page["TILINGS"]}:
        m, n, k = tiling.tile
        # Two by two tiles and two steps along K; the second of each is partial.
        a, b = matrices(2 * m - 24, 2 * n - 24, k + 8)
        assert_product(page["product"](tiling, a, b), a, b)


def test_the_last_group_of_tiles_may_be_smaller(page):
    """Ten tiles below each other make a group of eight and one of two."""
    a, b = matrices(150, 40, 16)
    tiling = page["Tiling"]((16, 16, 16), warps=1, stages=1)
    assert_product(page["product"](tiling, a, b), a, b)


def test_tilings_for_a_small_gpu_fit_its_shared_memory(page, settable, monkeypatch):
    monkeypatch.setitem(settable, "SHARED_BYTES", 101376)
    for tiling in map(page["with_room"], page["TILINGS"]):
        m, n, k = tiling.tile
        assert tiling.stages * 2 * (m + n) * k * (tiling.resident or 1) <= 101376


def test_the_estimate_counts_the_work_of_the_busiest_sm(page):
    """Nine tiles in waves of 132 are one wave; 17 × 17 tiles are two waves and a rest of 25."""
    large, medium = page["LARGE"], page["MEDIUM"]
    assert page["work"](large, 384, 768, 10) == (10 * 128 * 256, 10 * 384, False)
    cut = replace(medium, cut=(64, 64))  # 25 tiles are 100 pieces, one for each SM
    products, numbers = 2 * 128 * 128 + 64 * 64, 2 * 256 + 128
    assert page["work"](cut, 2176, 2176, 2176) == (2176 * products, 2176 * numbers, True)
    assert page["cost"](cut, 2176, 2176, 2176) == 2176 * (products + 24 * numbers) + 2**24
    together = next(tiling for tiling in page["TILINGS"] if tiling.resident == 2)
    assert page["cost"](together, 4096, 4096, 4096) == math.inf


def test_the_fit_finds_the_constants_of_times_that_have_them(page):
    """Times of 1, 24 and 2²⁴ products, and 5 µs for each launch."""
    sizes = [(t, n) for n in range(512, 4097, 512) for t in page["TILINGS"]]
    sizes = [(t, n) for t, n in sizes if page["cost"](t, n, n, n) < math.inf]
    us = [5 + 3e-7 * page["cost"](t, n, n, n) for t, n in sizes]
    columns = [[*page["work"](t, n, n, n), 1.0] for t, n in sizes]
    one, load, start, launch = page["solve"](columns, us)
    assert (one, load / one, start / one, launch) == pytest.approx((3e-7, 24, 2**24, 5), rel=1e-6)


def test_the_plain_function_makes_the_launch_of_the_public_one(page, plain):
    a, b = matrices(200, 136, 272)
    page["PLANS"].clear()
    shown, plainly = launches_of(plain("03b-full-waves").matmul, a, b, "leaky_relu")
    full, product = launches_of(page["matmul"], a, b, "leaky_relu")
    page["PLANS"].clear()
    (kernel, grid, numbers, constants), (other, *rest) = shown[0], full[0]
    assert (kernel, grid, numbers, constants) == (other, rest[0][: len(grid)], *rest[1:])
    assert torch.equal(plainly, product)
    with pytest.raises(AssertionError, match="multiples of 16 bytes"):
        plain("03b-full-waves").matmul(*matrices(8, 8, 7))


def test_a_plan_is_kept_for_alike_arguments_only_and_holds_no_tensor(page):
    plans = page["PLANS"]
    plans.clear()
    a, b = matrices(40, 48, 64)
    for again in (a, a.clone()):
        assert_product(page["matmul"](again, b), a, b)
    assert len(plans) == 1
    page["matmul"](a, b, "leaky_relu")
    page["matmul"](torch.zeros(40, 128).half()[:, :64], b)
    assert len(plans) == 3
    for plan, *_ in plans.values():
        held = [*vars(plan.launch).values(), *(v for _, said in plan.tiles for v in said.values())]
        assert not any(isinstance(value, torch.Tensor) for value in held)


def test_a_new_thread_gets_the_same_result(page):
    a, b = matrices(40, 48, 64)
    page["PLANS"].clear()
    results = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: results.append(page["matmul"](a, b)))
        thread.start()
        thread.join()
    assert torch.equal(*results)
