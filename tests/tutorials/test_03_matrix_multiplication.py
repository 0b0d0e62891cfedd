"""The matrix product of tutorial 03, in the interpreter, against float64.

bf16 is left out: Triton's interpreter computes it wrongly, without an error.
"""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.tutorials.launches import launches_of

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


def test_offsets_beyond_32_bits(page, tutorial):
    """Three rows, 2³⁰ elements apart, in memory of which only these rows are ever touched."""
    far = torch.from_numpy(np.empty(2**31 + 16, np.float16)).as_strided((3, 16), (2**30, 1))
    a, b = matrices(3, 5, 16)
    far.copy_(a)
    assert_product(page["matmul"](far, b), a, b)
    assert_product(page["matmul"](b.T, far.T), b.T, a.T)
    bmm = tutorial("solutions/03-batched")["bmm"]
    assert_product(bmm(far[None], b[None])[0], a, b)
    assert_product(bmm(b.T[None], far.T[None])[0], b.T, a.T)


def test_every_tile_computes_a_product_that_it_does_not_divide(page, monkeypatch):
    """Also where the last group of tiles is smaller: ten rows of tiles are eight and two."""
    tiles = page["TILES"]
    settings = page["matmul"].__globals__
    for m, n, k, _, _ in [*tiles, (16, 16, 16, 1, 1)]:
        monkeypatch.setitem(settings, "choose_tile", lambda *_, t=(m, n, k, 1, 1): t)
        a, b = matrices(10 * m - 5 if m == 16 else 2 * m - 24, 2 * n - 12, k + 8)
        assert_product(page["matmul"](a, b), a, b)


def test_every_kernel_of_the_page_computes_its_tiles(page):
    """Twenty rows of tiles, in groups of eight, eight and four, and two steps along K."""
    a, b = matrices(320, 48, 32)
    sizes = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
    numbers = (48, 32, *a.stride(), *b.stride())
    for kernel, grid, more, constants in (
        (page["tile_kernel"], (20, 3), (), {}),
        (page["grouped_kernel"], (60,), (320,), {"GROUP": 8}),
    ):
        c = torch.full((320, 48), torch.nan, dtype=a.dtype)
        kernel[grid](a, b, c, *more, *numbers, **sizes, **constants)
        assert_product(c, a, b)


def test_the_tile_is_the_largest_of_which_there_are_enough(page):
    """On 132 multiprocessors: a few large tiles would leave most of them without work."""
    chosen = [page["choose_tile"](n, n, torch.float16)[:2] for n in (256, 1024, 2048, 4096)]
    assert chosen == sorted(chosen)
    assert chosen[0] == (64, 32)
    assert chosen[-1] == (128, 256)


def test_the_valley_at_1536_is_as_the_page_counts_it(page):
    """In both cases the busiest of 132 multiprocessors computes 32 768 elements."""
    assert page["SMS"] == 132
    for n, tile, tiles, most in ((1536, (128, 128), 144, 2), (2048, (128, 256), 128, 1)):
        m, k = page["choose_tile"](n, n, torch.float16)[:2]
        assert (m, k) == tile
        assert (n // m) * (n // k) == tiles
        assert -(-tiles // 132) == most
        assert most * m * k == 32_768


@pytest.mark.parametrize("shape", [(37, 53, 29), (64, 64, 128)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_plain_function_makes_the_launch_of_the_public_one(page, plain, shape, dtype):
    """So one time, measured of the public one, holds for both."""
    a, b = matrices(*shape, dtype)
    shown, plainly = launches_of(plain("03-matrix-multiplication").matmul, a, b, "leaky_relu")
    full, product = launches_of(page["matmul"], a, b, "leaky_relu")
    assert shown == full
    assert torch.equal(plainly, product)
    with pytest.raises(AssertionError, match="as many columns"):
        plain("03-matrix-multiplication").matmul(a, a)
