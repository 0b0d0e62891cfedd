"""The matrix product of tutorial 03, in the interpreter, against float64.

bf16 is left out: Triton's interpreter computes it wrongly, without an error.
"""

import pytest
import torch
from torch.testing import assert_close

# One element, smaller than a tile, exactly a tile, one off a tile, and partial tiles everywhere.
SHAPES = [(1, 1, 1), (5, 7, 3), (64, 64, 64), (65, 63, 129), (123, 77, 45)]


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


def test_every_tile_computes_a_product_that_it_does_not_divide(page, monkeypatch):
    """Also where the last group of tiles is smaller: ten rows of tiles are eight and two."""
    tiles = page["TILES"]
    settings = page["matmul"].__globals__
    for m, n, k, _, _ in [*tiles, (16, 16, 16, 1, 1)]:
        monkeypatch.setitem(settings, "choose_tile", lambda *_, t=(m, n, k, 1, 1): t)
        a, b = matrices(10 * m - 5 if m == 16 else 2 * m - 24, 2 * n - 12, k + 8)
        page["PLANS"].clear()
        assert_product(page["matmul"](a, b), a, b)
    page["PLANS"].clear()


def test_the_tile_is_the_largest_of_which_there_are_enough(page):
    """On 132 multiprocessors: a few large tiles would leave most of them without work."""
    chosen = [page["choose_tile"](n, n, torch.float16)[:2] for n in (256, 1024, 2048, 4096)]
    assert chosen == sorted(chosen)
    assert chosen[0] == (64, 32)
    assert chosen[-1] == (128, 256)
