"""Fused softmax, in the interpreter, against float64."""

import math

import pytest
import torch
from torch.testing import assert_close

from tests.tutorials.float64 import VIEWS

# fp16 rounds the result to 11 bits, and below 2**-14 to steps of 2**-24. In fp32 the sum of N
# terms and the rounding of x - max are each within a few units of 2**-24.
TOLERANCES = {torch.float16: (2**-10, 2**-24), torch.float32: (1e-5, 1e-30)}

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf in NumPy


def assert_softmax(function, x):
    actual = function(x)
    rtol, atol = TOLERANCES[x.dtype]
    assert actual.dtype == x.dtype
    assert actual.is_contiguous()
    expected = torch.softmax(x.double(), dim=1)
    assert_close(actual.double(), expected, rtol=rtol, atol=atol, equal_nan=True)


# One element, tiles of several rows, the lengths around which a row is split into a head and a
# tail, a whole tile, and rows that are longer than a tile; the dtypes alternate.
LENGTHS = (1, 2, 3, 127, 512, 513, 640, 769, 781, 1024, 1025, 2049, 4097, 12_288, 32_769, 50_001)


@pytest.mark.parametrize(("i", "n"), list(enumerate(LENGTHS)))
def test_rows_and_columns_of_any_length(page, i, n):
    x = (4 * torch.randn(3, n)).to([*TOLERANCES][i % 2])
    assert_softmax(page["softmax"], x)
    assert_softmax(page["softmax"], torch.randn(n, 2).T)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(page, view):
    assert_softmax(page["softmax"], view(torch.randn(13, 80)))


@pytest.mark.parametrize("n", [1, 5, 1025, 40_000])
def test_infinities_and_nan_as_in_pytorch(page, n):
    x = torch.randn(5, n)
    x[0] = -math.inf
    x[1, : n // 2] = -math.inf  # whole blocks of a long row
    x[2, n // 2] = math.inf
    x[3, n // 2] = math.nan
    assert_softmax(page["softmax"], x)


def test_large_scores_do_not_overflow(page):
    x = torch.tensor([[1e30, 1e30, -1e30], [3e38, -3e38, 0.0]])
    assert page["softmax"](x).tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]


def test_the_plain_functions_are_right_for_rows_that_lie_apart(plain):
    lesson = plain("02-fused-softmax")
    for n in (1, 5, 200, 1025):
        x = torch.randn(7, n + 3)[:, :n]
        for function in (lesson.softmax, lesson.softmax_in_tiles, lesson.naive_softmax):
            assert_softmax(function, x)
    with pytest.raises(AssertionError, match="neighbors in memory"):
        lesson.softmax(torch.randn(5, 7).T)


def test_the_lengths_choose_tiles_pieces_or_blocks(page):
    kernels = {n: page["plan"](n)[0].fn.__name__ for n in (200, 512, 640, 641, 8320, 32768, 32769)}
    assert [n for n, name in kernels.items() if name == "head_tail_kernel"] == [640, 8320]
    assert [n for n, name in kernels.items() if name == "long_softmax_kernel"] == [32769]


def test_another_matrix_after_a_call_is_right_or_refused(page):
    buffer = torch.randn(8 * 80 + 1)
    for x in (buffer[1:].view(8, 80), buffer[1:].view(80, 8), buffer[1:].view(80, 8).T):
        for again in (x, x.half(), x.clone()):
            assert_softmax(page["softmax"], again)
