"""The matrix product of tutorial 03b, in the interpreter, against float64."""

from dataclasses import replace

import pytest
import torch

from tests.tutorials.test_03_matrix_multiplication import VIEWS, assert_product, matrices


@pytest.fixture(scope="module")
def settable(page):
    """The globals that the functions of the page read."""
    return page["matmul"].__globals__


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (64, 64, 64), (65, 63, 129), (0, 4, 3)])
def test_shapes_that_no_tile_divides(page, shape):
    a, b = matrices(*shape)
    for activation in ("", "leaky_relu"):
        assert_product(page["matmul"](a, b, activation), a, b, activation)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_that_no_descriptor_can_address(page, view):
    a, b = matrices(37, 48, 32)
    for factors in ((view(a), b), (a, view(b)), (view(a), view(b))):
        for _ in range(2):  # the second call takes what was kept
            assert_product(page["matmul"](*factors), *factors)


def test_infinity_behind_a_view_is_never_used(page):
    a = torch.full((20, 64), float("inf"), dtype=torch.float16)
    b = torch.full((64, 24), float("nan"), dtype=torch.float16)
    a[:17, :24], b[:24, :16] = 1.0, 1.0
    assert page["matmul"](a[:17, :24], b[:24, :16]).eq(24).all()


@pytest.mark.parametrize("sms", [3, *(pytest.param(n, marks=pytest.mark.stress) for n in (1, 132))])
def test_every_plan_computes_every_tile(page, settable, sms, monkeypatch):
    """On 3 SMs there are whole tiles and cut ones, on 1 only the former, on 132 the latter."""
    monkeypatch.setitem(settable, "SMS", sms)
    # The interpreter uses neither warps nor stages.
    for plan in {replace(plan, warps=1, stages=1) for plan in page["PLANS"]}:
        m, n, k = plan.tile
        # Two by two tiles and two steps along K; the second of each is partial.
        a, b = matrices(2 * m - 24, 2 * n - 24, k + 8)
        assert_product(page["prepare"](plan, a, b)(a, b), a, b)


def test_the_last_group_of_tiles_may_be_smaller(page):
    """Ten tiles below each other make a group of eight and one of two."""
    a, b = matrices(150, 40, 16)
    plan = page["Plan"]((16, 16, 16), warps=1, stages=1)
    assert_product(page["prepare"](plan, a, b)(a, b), a, b)


def test_plans_for_a_small_gpu_fit_its_shared_memory(page, settable, monkeypatch):
    monkeypatch.setitem(settable, "SHARED_BYTES", 101376)
    for plan in map(page["fit"], page["PLANS"]):
        m, n, k = plan.tile
        assert plan.stages * 2 * (m + n) * k * (plan.at_once or 1) <= 101376
