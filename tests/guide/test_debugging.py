"""Chapter 3, in the interpreter: the maps show the bugs, and the experiments run as scripts."""

import pytest
import torch


@pytest.fixture(scope="module")
def maps(tutorial):
    return tutorial("debugging")


@pytest.fixture(scope="module", params=["wrong", "crash", "slow"])
def page(request, tutorial):
    return tutorial(request.param)


def test_the_product_without_a_bug_is_right_on_awkward_shapes(maps):
    for shape in ((1, 1, 1), (17, 33, 16), (56, 70, 72)):
        assert not maps["compare"]("none", *shape).any()


def test_each_bug_has_the_map_that_the_page_describes(maps):
    grid, stride, accumulator, mask = (
        maps["compare"](bug, M=56, N=70, K=72) for bug in ("grid", "stride", "accumulator", "mask")
    )
    assert (grid[:48, :64] == 0).all()
    assert (grid[48:] == 2).all()
    assert (grid[:, 64:] == 2).all()
    assert not stride[0].any()
    assert stride[1:].float().mean() > 0.9
    assert not accumulator[:16, :64].any()  # the first tile of each of four programs
    assert accumulator[16:32].float().mean() > 0.9
    assert mask.float().mean() > 0.9


def test_a_shape_without_the_remainder_hides_the_mask(maps):
    assert not maps["compare"]("mask", 17, 33, 32).any()
    assert maps["compare"]("mask", 17, 33, 31).any()


def say():
    print("kept", torch.ones(1).item())
    print("dropped")


def leave():
    raise SystemExit(3)


def test_an_experiment_shows_what_its_process_printed(page, capsys):
    page["run"](say, before=["", "A=1"], keep="kept")
    page["run"](leave)
    said = capsys.readouterr().out
    assert said.count("kept 1.0") == 2
    assert "dropped" not in said
    assert "$ A=1 python say.py" in said
    assert "[exit status 3]" in said
