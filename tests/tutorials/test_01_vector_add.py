"""Vector addition, in the interpreter, against PyTorch."""

import pytest
import torch
from torch.testing import assert_close

from tests.tutorials.launches import launches_of

DTYPES = [torch.float16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64]
SHAPES = [(), (0,), (1,), (5,), (1023,), (1025,), (4097,), (123, 5), (3, 0, 2)]


@pytest.mark.parametrize(
    ("shape", "dtype"), [(s, torch.float32) for s in SHAPES] + [((1025,), d) for d in DTYPES]
)
def test_equals_pytorch(page, shape, dtype):
    """Bit for bit: one addition rounds once."""
    x, y = (50 * torch.randn(2, *shape)).to(dtype)
    before = x.clone(), y.clone()
    assert_close(page["add"](x, y), x + y, rtol=0, atol=0)
    assert_close((x, y), before, rtol=0, atol=0)


def test_propagates_infinity_nan_and_the_sign_of_zero(page):
    x = torch.tensor([torch.inf, torch.inf, torch.nan, -0.0])
    y = torch.tensor([1.0, -torch.inf, 1.0, -0.0])
    found = page["add"](x, y)
    assert_close(found, x + y, rtol=0, atol=0, equal_nan=True)
    assert found[3].signbit()


def test_the_page_shows_the_offsets_and_the_mask_of_four_programs(page):
    assert page["seen_offsets"].flatten().tolist() == list(range(32))
    assert page["seen_mask"].flatten().tolist() == [1] * 29 + [0] * 3


def test_the_plain_function_makes_the_launch_that_the_public_one_makes(page, plain):
    """So one time, measured of the plain one, holds for both."""
    for n in (5, 4096, 98_432):
        x, y = torch.randn(2, n)
        shown, plain_sum = launches_of(plain("01-vector-add").add, x, y)
        full, sum_ = launches_of(page["add"], x, y)
        assert shown == full
        assert_close(plain_sum, sum_, rtol=0, atol=0)


def test_a_part_of_a_tensor(page):
    buffer = torch.randn(2, 100)
    x, y = buffer[0, 1:51], buffer[1, 7:57]
    assert_close(page["add"](x, y), x + y, rtol=0, atol=0)
