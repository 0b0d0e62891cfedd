"""Chapter 8, in the interpreter: the new forms of the old kernel."""

import pytest
import torch


@pytest.fixture(scope="module")
def chapter(tutorial):
    return tutorial("moving")


@pytest.mark.parametrize("wrong", [lambda a, b: 1.01 * (a @ b), lambda a, b: a @ b.flip(0)])
def test_a_wrong_product_stops_the_page(chapter, wrong):
    with pytest.raises(AssertionError):
        chapter["check"](wrong)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 8), (33, 40, 24), (65, 136, 72)])
def test_every_form_agrees_with_float64(chapter, m, n, k):
    a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
    exact = (a.double() @ b.double()).half()
    forms = {
        "offsets": lambda: chapter["with_pointers"](chapter["offset_kernel"], a, b),
        "descriptors": lambda: chapter["with_descriptors"](a, b),
    }
    if n % 8 == 0 and k % 8 == 0:
        forms["transposed"] = lambda: chapter["with_transposed"](a, b.T.contiguous().T)
    for form in forms.values():
        torch.testing.assert_close(form(), exact, atol=0.02, rtol=1e-3)
