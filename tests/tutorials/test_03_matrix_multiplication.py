"""The matrix product of tutorials 03 and 03b, in the interpreter, against float64.

bf16 is left out: Triton's interpreter computes it wrongly, without an error.
"""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

# One element, smaller than a tile, exactly a tile, one off a tile, and partial tiles everywhere.
SHAPES = [(1, 1, 1), (5, 7, 3), (64, 64, 64), (65, 63, 129), (123, 77, 45)]


@pytest.fixture(scope="module")
def settable(page):
    """The globals that the functions of the page read."""
    return page["matmul"].__globals__


def matrices(m, n, k, dtype=torch.float16):
    return torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)


def assert_product(got, a, b, activation=""):
    """Allow one rounding to the dtype, and the rounding errors of an fp32 sum of K products."""
    expected = a.double() @ b.double()
    if activation == "leaky_relu":
        expected = torch.nn.functional.leaky_relu(expected)
    rounding, summing = torch.finfo(a.dtype).eps, 2**-20 * a.shape[1]
    assert_close(got.double(), expected, rtol=rounding, atol=summing)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(("i", "shape"), list(enumerate(SHAPES)))
def test_shapes_that_no_tile_divides(page, i, shape, dtype):
    a, b = matrices(*shape, dtype)
    activation = ("", "leaky_relu")[i % 2]
    got = page["matmul"](a, b, activation)
    assert got.dtype == dtype
    assert_product(got, a, b, activation)


VIEWS = {
    "by columns": lambda x: x.T.contiguous().T,
    "every third column": lambda x: x.repeat_interleave(3, 1)[:, ::3],
    "one row expanded": lambda x: x[:1].expand(x.shape),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(page, view):
    a, b = matrices(37, 53, 29)
    for factors in ((view(a), b), (a, view(b)), (view(a), view(b))):
        assert_product(page["matmul"](*factors), *factors)


def test_infinity_behind_a_view_is_never_used(page):
    a = torch.full((20, 64), float("inf"), dtype=torch.float16)
    b = torch.full((64, 20), float("nan"), dtype=torch.float16)
    a[:17, :19], b[:19, :18] = 1.0, 1.0
    assert page["matmul"](a[:17, :19], b[:19, :18]).eq(19).all()


@pytest.mark.parametrize(
    ("launch", "sms"), [("launch_tiles", 132), *(("launch_persistent", n) for n in (1, 5, 132))]
)
def test_the_steps_with_descriptors(tutorial, launch, sms, monkeypatch):
    waves = tutorial("03b-full-waves")
    monkeypatch.setitem(waves["launch_persistent"].__globals__, "SMS", sms)
    a, b = matrices(300, 264, 72)
    assert_product(waves["run"](waves[launch], waves["MEDIUM"], a, b), a, b)


@pytest.mark.parametrize("sms", [3, *(pytest.param(n, marks=pytest.mark.stress) for n in (1, 132))])
def test_every_plan_computes_every_tile(page, settable, sms, monkeypatch):
    """On 3 SMs there are whole tiles and split ones, on 1 only the former, on 132 the latter."""
    monkeypatch.setitem(settable, "SMS", sms)
    # The interpreter uses neither warps nor stages.
    plans = {
        replace(p, warps=1, stages=1) for p in page["POINTER_PLANS"] + page["DESCRIPTOR_PLANS"]
    }
    for plan in plans:
        # Two by two tiles and two steps along K; the second of each is partial.
        a, b = matrices(2 * plan.block_m - 24, 2 * plan.block_n - 24, plan.block_k + 8)
        got, expected = page["run_plan"](plan, a, b).double(), a.double() @ b.double()
        assert_close(got, expected, rtol=2**-10, atol=2**-13, msg=str(plan))


@pytest.mark.parametrize("described", [False, True])
def test_the_last_group_of_tiles_may_be_smaller(page, described):
    """Ten tiles below each other make a group of eight and one of two."""
    plan = page["Plan"](16, 16, 16, warps=1, stages=1, descriptors=described)
    a, b = matrices(150, 40, 16)
    assert_product(page["run_plan"](plan, a, b), a, b)


def test_plans_for_a_small_gpu_fit_its_shared_memory(page, settable, monkeypatch):
    monkeypatch.setitem(settable, "SHARED_BYTES", 65536)
    plans = page["usable"](page["DESCRIPTOR_PLANS"])
    assert 0 < len(plans) < len(page["DESCRIPTOR_PLANS"])
    for plan in plans:
        step = 2 * plan.block_k * (plan.block_m + plan.block_n)
        assert plan.stages >= 2
        assert plan.stages * step * (plan.at_once or 1) <= 65536
