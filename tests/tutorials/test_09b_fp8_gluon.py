"""The product with scales by blocks; in the interpreter, the kernel without roles."""

import pytest
import torch

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


def test_the_plain_function_gives_the_bits_of_the_public_one(page, plain):
    """In the interpreter, without roles; tests/gpu compares the launches with roles."""
    problem = page["draw_problem"](77, 48, 304)
    found = plain("09b-fp8-gluon").scaled_mm_by_blocks(*problem)
    assert torch.equal(found, page["scaled_mm_by_blocks"](*problem))


def test_signs_that_are_still_to_be_changed_are_changed_or_refused(page):
    a, b, scale_a, scale_b = page["draw_problem"](64, 48, 256)
    for _ in range(2):
        check(page, a, b, torch._neg_view(scale_a), scale_b)
        for x, y in ((torch._neg_view(a), b), (a, torch._neg_view(b))):
            with pytest.raises(NotImplementedError, match="neg"):  # PyTorch cannot negate fp8
                page["scaled_mm_by_blocks"](x, y, scale_a, scale_b)
