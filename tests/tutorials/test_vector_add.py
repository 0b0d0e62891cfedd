"""Vector addition, in the interpreter: the kernel, its launcher, and the solved exercises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = [torch.float16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64]


@pytest.fixture(scope="module")
def add(tutorial):
    return tutorial("01-vector-add")["add"]


def numbers(shape, dtype):
    return (50 * torch.randn(shape)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (1023,), (1025,), (123, 5), (3, 0, 2)])
def test_equals_torch(add, shape, dtype):
    """One addition rounds once, so nothing but equality will do."""
    x, y = numbers(shape, dtype), numbers(shape, dtype)
    torch.testing.assert_close(add(x, y), x + y, rtol=0, atol=0)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(0, 5000), seed=st.integers(0, 2**31))
def test_equals_torch_for_any_length(add, n, seed):
    x, y = torch.randn(2, n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(add(x, y), x + y, rtol=0, atol=0)


def test_propagates_special_values(add):
    x = torch.tensor([torch.inf, torch.inf, torch.nan, -0.0])
    y = torch.tensor([1.0, -torch.inf, 1.0, -0.0])
    torch.testing.assert_close(add(x, y), x + y, rtol=0, atol=0, equal_nan=True)


def test_leaves_its_arguments_alone(add):
    x, y = torch.ones(7), torch.full((7,), 2.0)
    assert add(x, y) is not x
    assert x.tolist() == [1.0] * 7
    assert y.tolist() == [2.0] * 7


@pytest.mark.parametrize(
    ("x", "y", "error", "says"),
    [
        (1.0, torch.ones(3), TypeError, "x must be a torch.Tensor, but is a float"),
        (torch.ones(3), [1.0], TypeError, "y must be a torch.Tensor, but is a list"),
        (torch.ones(3), torch.ones(3).half(), TypeError, "torch.float32 and torch.float16"),
        (torch.ones(3).bool(), torch.ones(3).bool(), TypeError, "x must .* torch.bool"),
        (torch.ones(3), torch.ones(3) * 1j, TypeError, "y must .* torch.complex64"),
        (torch.ones(3), torch.ones(4), ValueError, r"\(3,\) and \(4,\)"),
        (torch.ones(3), torch.ones(3, device="meta"), ValueError, "y must .* is on meta"),
        (torch.ones(6)[::2], torch.ones(3), ValueError, r"x must be contiguous.*strides \(2,\)"),
    ],
)
def test_refuses_and_says_why(add, x, y, error, says):
    with pytest.raises(error, match=says):
        add(x, y)


def test_bytes(tutorial):
    assert tutorial("01-vector-add")["bytes_moved"](1000) == 12_000


def test_offsets_and_mask_as_seen_by_the_programs(tutorial):
    seen = tutorial("01-vector-add")
    assert seen["seen_offsets"].flatten().tolist() == list(range(24))
    assert seen["seen_mask"].flatten().tolist() == [1] * 21 + [0] * 3


def test_solution_axpy(tutorial):
    x, y = torch.randn(2, 2049)
    actual = tutorial("solutions/01-axpy")["axpy"](-1.5, x, y)
    torch.testing.assert_close(actual, -1.5 * x + y)


def test_solution_strides(tutorial):
    x, y = torch.randn(1300, 3), torch.randn(1300)
    actual = tutorial("solutions/01-strides")["add_strided"](x[:, 1], y)
    torch.testing.assert_close(actual, x[:, 1] + y, rtol=0, atol=0)


@pytest.mark.parametrize("programs", [1, 2, 7])
def test_solution_grid_stride(tutorial, programs):
    x, y = torch.randn(2, 4097)
    actual = tutorial("solutions/01-grid-stride")["add_loop"](x, y, programs)
    torch.testing.assert_close(actual, x + y, rtol=0, atol=0)
