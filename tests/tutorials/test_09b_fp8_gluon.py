"""The product with scales by blocks; in the interpreter, the kernel without roles."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.tutorials.cells import shown_functions

E5M2 = torch.float8_e5m2


def check(page, *problem):
    for _ in range(2):  # the second call follows a plan
        c = page["scaled_mm_by_blocks"](*problem)
        assert c.dtype == torch.bfloat16
        page["assert_right"](c, *problem)


@pytest.mark.parametrize("shape", [(1, 8, 16), (77, 48, 304), (65, 136, 144), (130, 264, 128)])
def test_shapes_that_no_tile_divides(page, shape):
    check(page, *page["draw_problem"](*shape))


def test_e5m2_and_views(page):
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 256)
    check(page, a.float().to(E5M2), b, scale_a, scale_b)
    check(page, a[::2], b, scale_a[::2], scale_b)
    check(page, a, b, scale_a.contiguous(), scale_b.contiguous())


def test_wrong_arguments_are_refused_before_and_after_a_right_call(page):
    a, b, scale_a, scale_b = problem = page["draw_problem"](64, 48, 256)
    for _ in range(2):
        for wrong, error, message in (
            ((a, None, scale_a, scale_b), TypeError, "b must be a torch.Tensor"),
            ((a.float(), b, scale_a, scale_b), TypeError, "a must have a dtype"),
            ((a, b, scale_a.double(), scale_b), TypeError, "scale_a must have a dtype"),
            ((a, b.contiguous(), scale_a, scale_b), ValueError, "b.T must have contiguous rows"),
            ((a, b[:128], scale_a, scale_b), ValueError, r"\(64, 256\) and \(128, 48\)"),
            ((a, b, scale_a, scale_b.T), ValueError, r"shapes \(64, 2\) and \(2, 1\)"),
            ((a[None], b, scale_a, scale_b), ValueError, "a must be a matrix"),
        ):
            with pytest.raises(error, match=message):
                page["scaled_mm_by_blocks"](*wrong)
        check(page, *problem)


def test_the_plain_function_gives_the_bits_of_the_public_one(page, plain):
    """In the interpreter, without roles; tests/gpu compares the launches with roles."""
    problem = page["draw_problem"](77, 48, 304)
    found = plain("09b-fp8-gluon").scaled_mm_by_blocks(*problem)
    assert torch.equal(found, page["scaled_mm_by_blocks"](*problem))


def test_scales_that_require_a_gradient_are_refused(page):
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 256)
    page["scaled_mm_by_blocks"](a, b, scale_a, scale_b)
    scale_b = scale_b.detach().requires_grad_()
    with pytest.raises(ValueError, match="scale_b requires a gradient"):
        page["scaled_mm_by_blocks"](a, b, scale_a, scale_b)
    with torch.no_grad():
        check(page, a, b, scale_a, scale_b)


def test_a_sign_of_scales_that_is_still_to_be_changed(page):
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 256)
    right = page["scaled_mm_by_blocks"](a, b, -scale_a, scale_b)
    assert torch.equal(page["scaled_mm_by_blocks"](a, b, torch._neg_view(scale_a), scale_b), right)


def test_tensors_without_memory_get_the_right_shape(page):
    with FakeTensorMode():
        a, b = torch.empty(64, 256, dtype=E5M2), torch.empty(48, 256, dtype=E5M2).T
        c = page["scaled_mm_by_blocks"](a, b, torch.empty(64, 2), torch.empty(2, 1))
    assert (c.shape, c.dtype) == ((64, 48), torch.bfloat16)


def test_no_cell_shows_the_address_of_a_function():
    assert not shown_functions("09b-fp8-gluon")
