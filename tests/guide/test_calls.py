"""Chapter 6, in the interpreter: each way to call the kernel gives the same, and refuses alike."""

import pytest
import torch
from torch.testing import assert_close

WAYS = ("rms_norm", "planned_rms_norm", "rms_norm_op", "opaque_rms_norm")


@pytest.fixture(scope="module")
def chapter(tutorial):
    return tutorial("calls")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 96), (7, 771), (0, 5)])
def test_each_way_agrees_with_float64_at_every_call(chapter, way, shape):
    for _ in range(2):  # the second one of a plan takes another way
        x, weight = torch.randn(shape), torch.randn(shape[1])
        exact = torch.nn.functional.rms_norm(x.double(), shape[1:], weight.double(), 1e-6)
        assert_close(chapter[way](x, weight).double(), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("way", ["rms_norm", "planned_rms_norm", "opaque_rms_norm"])
def test_wrong_arguments_are_refused_at_every_call(chapter, way):
    weight = torch.ones(8)
    for _ in range(2):
        for wrong in (torch.randn(8, 3).T, torch.ones(3, 9), torch.ones(3, 8, dtype=torch.int32)):
            with pytest.raises((TypeError, ValueError), match=r"x|weight"):
                chapter[way](wrong, weight)


def test_a_seed_in_memory_and_a_passed_one_draw_the_same(chapter):
    memory = torch.tensor([3])
    assert_close(chapter["noise"](memory, 4), chapter["noise"](memory + 4, 0), atol=0, rtol=0)
    assert not torch.equal(chapter["noise"](memory, 4), chapter["noise"](memory, 5))


def test_every_function_of_the_lessons_is_there(tutorial):
    found = tutorial("calls-of-lessons")["functions"]()
    for ours, theirs, arguments in found.values():
        assert callable(ours)
        assert callable(theirs)
        assert isinstance(arguments, tuple | list)
    x, weight = found["rms_norm"][2]
    assert_close(found["rms_norm"][0](x[:2], weight), found["rms_norm"][1](x[:2], weight))
