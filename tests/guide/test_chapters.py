"""The chapters of the guide, in the interpreter: what they compute and show is right."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

# --- chapter 3 ------------------------------------------------------------------------------------


def test_the_product_without_a_bug_is_right_on_awkward_shapes(tutorial):
    compare = tutorial("debugging")["compare"]
    for shape in ((1, 1, 1), (17, 33, 16), (56, 70, 72)):
        assert not compare("none", *shape).any()


def test_each_bug_has_the_map_that_the_page_describes(tutorial):
    compare = tutorial("debugging")["compare"]
    grid, stride, accumulator, mask = (
        compare(bug, M=56, N=70, K=72) for bug in ("grid", "stride", "accumulator", "mask")
    )
    assert (grid[:48, :64] == 0).all()
    assert (grid[48:] == 2).all()
    assert (grid[:, 64:] == 2).all()
    assert not stride[0].any()
    assert stride[1:].float().mean() > 0.9
    assert not accumulator[:16, :64].any()  # the first tile of each of four programs
    assert accumulator[16:32].float().mean() > 0.9
    assert mask.float().mean() > 0.9


def test_a_shape_without_the_remainder_hides_the_mask(tutorial):
    compare = tutorial("debugging")["compare"]
    assert not compare("mask", 17, 33, 32).any()
    assert compare("mask", 17, 33, 31).any()


def say():
    print("kept")
    print("dropped")
    raise SystemExit(3)


def say_with_torch():
    print("kept", torch.ones(1).item())
    print("dropped")
    raise SystemExit(3)


@pytest.mark.usefixtures("quick_checker")
@pytest.mark.parametrize(
    ("name", "main"), [("wrong", say_with_torch), ("crash", say), ("slow", say)]
)
def test_an_experiment_shows_what_its_process_printed(tutorial, name, main, capsys):
    run = tutorial(name)["run"]
    capsys.readouterr()
    run(main, before=["", "A=1"], keep="kept")
    said = capsys.readouterr().out
    assert said.count("\nkept 1.0\n" if name == "wrong" else "\nkept\n") == 2
    assert "dropped" not in said
    assert f"$ A=1 python {main.__name__}.py" in said
    assert said.count("[exit status 3]") == 2


# --- chapters 4 and 5 -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 1023, 1025, 5003])
def test_add_and_fma_write_right_results_and_nothing_behind_them(tutorial, n):
    add, fma = tutorial("measuring")["add"], tutorial("roofline")["fma"]
    x, y = torch.randn(2, n)
    out = torch.full((n + 3,), math.nan)
    add(x, y, out[:n])
    assert_close(out[:n], (x.double() + y.double()).float(), rtol=0, atol=0)
    assert out[n:].isnan().all()
    k, expected = n % 40, x.double()
    fma(x, out[:n], k)
    for _ in range(k):
        expected = expected * (-1 + 2**-10) + 0.125
    # At most two roundings of a value below 8 in each step.
    assert_close(out[:n].double(), expected, rtol=0, atol=max(k, 1) * 2**-21)
    assert out[n:].isnan().all()


@pytest.mark.parametrize(("intensity", "rate"), [(1, 10), (5, 50), (20, 50)])
def test_a_roofline_is_limited_by_memory_before_its_ridge(tutorial, intensity, rate):
    assert tutorial("roofline")["attainable"](intensity, bandwidth=10, peak=50) == rate


@pytest.mark.parametrize(("m", "n"), [(1, 1), (70, 45), (150, 80), (16, 3)])
def test_every_way_to_add_up_columns_agrees_with_float64(tutorial, m, n):
    chapter = tutorial("profiling") | tutorial("profiling-inside")
    x = torch.randn(m, n)
    for way in (
        chapter["by_columns"],
        partial(chapter["by_strips"], BLOCK_M=16),
        partial(chapter["by_parts"], parts=3, BLOCK_M=16),
    ):
        out = torch.full((n + 3,), torch.nan)
        way(x, out[:n])
        # At most 150 numbers around 1: some roundings of a sum below 50.
        assert_close(out[:n].double(), x.double().sum(0), rtol=0, atol=1e-4)
        assert out[n:].isnan().all()


# --- chapters 7 and 8 -----------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 8), (33, 40, 24), (65, 136, 72)])
def test_every_form_agrees_with_float64(tutorial, m, n, k):
    chapter = tutorial("moving")
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


PRODUCTS = [lambda a, b: 1.01 * (a @ b), lambda a, b: a @ b.flip(0)]
SUMS = [lambda x, out: out.copy_(x[:-1].sum(0)), lambda x, out: None]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("moving", PRODUCTS), ("profiling", SUMS), ("profiling-inside", SUMS)],
)
def test_a_wrong_kernel_stops_the_page(tutorial, name, wrong):
    for one in wrong:
        with pytest.raises(AssertionError):
            tutorial(name)["check"](one)


@pytest.mark.parametrize("name", ["questions", "questions-memory", "questions-compiling"])
def test_a_wrong_answer_would_stop_the_page(name, tutorial):
    """Its right answers are asserted there."""
    assert tutorial(name)
