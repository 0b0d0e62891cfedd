"""Vector addition, in the interpreter, against PyTorch."""

import pytest
import torch
from torch.testing import assert_close

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


def test_the_page_shows_the_offsets_and_the_mask_of_three_programs(page):
    assert page["seen_offsets"].flatten().tolist() == list(range(24))
    assert page["seen_mask"].flatten().tolist() == [1] * 21 + [0] * 3
