"""Vector addition, in the interpreter, against PyTorch."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

from tests.tutorials.compiled import compiled
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


def test_a_part_of_a_tensor_and_a_negation_that_waits_are_right(page):
    buffer = torch.randn(2, 100)
    x, y = buffer[0, 1:51], torch._neg_view(buffer[1, 7:57])
    assert y.is_neg()
    assert_close(page["add"](x, y), x + y, rtol=0, atol=0)


def test_what_requires_a_gradient_is_added_where_none_is_wanted(page):
    x = torch.randn(5, requires_grad=True)
    with torch.no_grad():
        assert_close(page["add"](x, x), 2 * x)
    with torch.inference_mode():
        assert_close(page["add"](x.detach(), x.detach()), 2 * x.detach())


def test_the_compiler_and_tensors_without_memory_get_the_right_shape(page):
    with FakeTensorMode():
        assert page["add"](torch.empty(5, 7), torch.empty(5, 7)).shape == (5, 7)
    add = page["add"]
    with compiled(add, lambda x, y: 2 * add(x, y)) as doubled:
        for n in (5, 7, 1, 4097):
            x, y = torch.randn(2, n)
            assert_close(doubled(x, y), 2 * (x + y), rtol=0, atol=0)
