"""Sampling, in the interpreter, against a sort in float64."""

import inspect
import math
import runpy

import numpy as np
import pytest
import torch

from tests.conftest import ROOT


def kept(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Return which logits a sort keeps, ties with the last one included."""
    x = logits.double() / temperature
    values, order = x.sort(dim=1, descending=True)
    keep = torch.ones_like(values, dtype=torch.bool)
    if 0 < top_k < x.shape[1]:
        keep &= values >= values[:, top_k - 1 : top_k]
    w = torch.where(keep, values, -math.inf).softmax(dim=1)
    last = torch.where((w.cumsum(1) - w < top_p) & keep, values, math.inf).amin(1, keepdim=True)
    return torch.zeros_like(keep).scatter(1, order, keep & (values >= last))


def draw(page, row, rows, seed=1, **settings):
    """Return how often each token of one row is drawn."""
    tokens = page["sample"](row.expand(rows, -1).contiguous(), seed=seed, **settings)
    return tokens.bincount(minlength=len(row))


LOGITS = {
    "normal": torch.randn(2, 701, generator=torch.Generator().manual_seed(1)),
    "peaked": 6 * torch.randn(2, 701, generator=torch.Generator().manual_seed(2)),
    "ties": torch.randn(2, 701, generator=torch.Generator().manual_seed(3)).round(),
    "equal": torch.zeros(2, 701),
    "short": torch.randn(4, 5, generator=torch.Generator().manual_seed(4)),
    "one token": torch.randn(4, 1, generator=torch.Generator().manual_seed(5)),
}
SETTINGS = [{}, {"top_p": 0.9}, {"top_k": 3}, {"top_k": 40, "top_p": 0.5}, {"top_p": 1e-9}]


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_tokens_are_those_of_the_plain_function_and_kept(page, plain, name, settings):
    logits = LOGITS[name]
    tokens = page["sample"](logits, 0.7, **settings, seed=9)
    assert kept(logits, 0.7, **settings).gather(1, tokens[:, None]).all()
    assert torch.equal(tokens, plain("13-sampling").sample(logits, 0.7, **settings, seed=9))


@pytest.mark.parametrize("settings", SETTINGS[1:])
def test_exactly_the_kept_tokens_are_drawn(page, settings):
    """Of flat logits, each token that is kept appears sooner or later, and no other."""
    row = 0.2 * torch.randn(9)
    drawn = draw(page, row, rows=80, **settings) > 0
    assert torch.equal(drawn, kept(row[None], **settings)[0])


def test_frequencies_are_the_probabilities(page):
    row = torch.randn(9)
    keep = kept(row[None], 1.5, top_p=0.8)[0]
    p = torch.where(keep, row.double() / 1.5, -math.inf).softmax(0)
    counts, expected = draw(page, row, 300, temperature=1.5, top_p=0.8)[keep], 300 * p[keep]
    chi_square = ((counts - expected) ** 2 / expected).sum()
    free = int(keep.sum()) - 1
    assert chi_square < free + 5 * math.sqrt(2 * free)


@pytest.mark.parametrize("more", [-2e-6, 2e-6])
def test_the_last_token_is_the_one_of_a_float64_sort(page, more):
    """The share is a little less or more than that of 5 tokens: more than fp32 rounds a weight."""
    row = torch.linspace(0, 0.1, 8)
    top_p = row.double().softmax(0)[3:].sum().item() + more
    seen = draw(page, row, rows=40, top_p=top_p) > 0
    assert seen.sum() == (5 if more < 0 else 6)
    assert torch.equal(seen, kept(row[None], top_p=top_p)[0])


def test_temperature_zero_is_the_maximum(page):
    logits = torch.randn(5, 300)
    assert torch.equal(page["sample"](logits, 0), logits.argmax(1))
    assert torch.equal(page["sample"](logits, 1e-9, top_p=0.9), logits.argmax(1))


def test_no_limit_is_the_same_as_a_limit_that_keeps_all(page):
    logits = torch.randn(5, 300)
    tokens = page["sample"](logits, seed=4)
    assert torch.equal(tokens, page["sample"](logits, top_k=300, top_p=1, seed=4))
    assert torch.equal(tokens, page["sample"](logits, top_k=1000, seed=4))


def test_a_row_draws_the_same_token_in_any_batch(page):
    logits = torch.randn(7, 701)
    tokens = page["sample"](logits, top_p=0.9, seed=2**62)
    assert torch.equal(page["sample"](logits[:2], top_p=0.9, seed=2**62), tokens[:2])
    assert not torch.equal(page["sample"](logits, top_p=0.9, seed=5), tokens)


def test_infinite_logits(page):
    logits = torch.randn(4, 500).where(torch.rand(4, 500) > 0.9, -math.inf)
    logits[:, 7] = 1.0
    for settings in SETTINGS:
        tokens = page["sample"](logits, **settings)
        assert (logits.gather(1, tokens[:, None]) > -math.inf).all()
    logits[:, 300] = math.inf
    assert (page["sample"](logits, top_p=0.9) == 300).all()


@pytest.mark.parametrize("bad", [math.nan, -math.nan])
def test_rows_without_a_distribution_are_refused(page, bad):
    logits = torch.randn(3, 300)
    logits[1, 200] = bad
    with pytest.raises(ValueError, match="nan, or only -inf"):
        page["sample"](logits)
    with pytest.raises(ValueError, match="nan, or only -inf"):
        page["sample"](torch.full((1, 9), -math.inf))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_dtypes_and_views(page, dtype):
    logits = torch.randn(400, 5).to(dtype)
    tokens = page["sample"](logits.T, top_p=0.9)
    assert torch.equal(tokens, page["sample"](logits.T.float().contiguous(), top_p=0.9))


def test_any_finite_temperature(page, plain):
    """1e46 is more than fp32 has: all logits but -inf have one weight."""
    logits = torch.full((50, 9), -math.inf)
    logits[:, 2], logits[:, 5] = 3e38, -3e38
    tokens = page["sample"](logits, 1e46, seed=3)
    assert set(tokens.tolist()) == {2, 5}
    assert torch.equal(tokens, plain("13-sampling").sample(logits, 1e46, seed=3))


@pytest.mark.parametrize("settings", SETTINGS[1:4])
def test_sums_of_weights_have_no_order(page, plain, settings):
    """Weights of many sizes, whose sum in fp64 depends on the order of the additions."""
    logits = 9 * torch.randn(3, 901)
    for order in (torch.arange(901), torch.randperm(901)):
        given = logits[:, order]
        fast = page["sample"](given, **settings, seed=5)
        assert torch.equal(
            fast, plain("13-sampling").sample(given.contiguous(), **settings, seed=5)
        )


def test_a_seed_may_be_a_tensor(page):
    """A CUDA graph can then sample anew in each replay."""
    logits = torch.randn(6, 400)
    for seed in (0, 7, 2**62):
        tokens = page["sample"](logits, top_p=0.9, seed=torch.tensor([seed]))
        assert torch.equal(tokens, page["sample"](logits, top_p=0.9, seed=seed))
    for bad in (torch.tensor([1, 2]), torch.tensor([1.0]), torch.tensor([1], dtype=torch.int32)):
        with pytest.raises(ValueError, match="seed must be one int64"):
            page["sample"](logits, seed=bad)


def test_a_seed_whose_sign_is_still_to_be_changed(page):
    logits = torch.randn(6, 400)
    tokens = page["sample"](logits, seed=torch._neg_view(torch.tensor([-7])))
    assert torch.equal(tokens, page["sample"](logits, seed=7))


def test_the_interpreter_on_hopper_starts_no_kernel_early(monkeypatch):
    """It has no instructions for that, and TRITON_INTERPRET may be set where a GPU is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: (9, 0))
    monkeypatch.syspath_prepend(ROOT / "tutorials")
    sampling = runpy.run_path(str(ROOT / "tutorials" / "shared" / "sampling.py"))
    assert not sampling["EARLY"].value
    assert sampling["LAUNCHED_EARLY"] == {}


@pytest.mark.parametrize("temperature", [1e46, 1e300])
def test_temperatures_beyond_fp32_draw_no_excluded_token(page, temperature):
    """Their reciprocals are 0 in fp32; a logit of -inf has no weight all the same."""
    logits = torch.randn(2, 300).where(torch.rand(2, 300) > 0.5, -math.inf)
    tokens = page["sample"](logits, temperature)
    assert (logits.gather(1, tokens[:, None]) > -math.inf).all()


@pytest.mark.parametrize("seed", [1.5, 3.0, True, np.int64(3), np.array([3])])
def test_a_kept_plan_is_not_for_seeds_that_are_no_int(page, monkeypatch, seed):
    """The kernel would be given them as they are."""
    logits = torch.randn(2, 100)
    page["sample"](logits, seed=3)
    names = inspect.unwrap(page["sample"]).__globals__
    monkeypatch.setitem(names, "ON_GPU", True)  # plans are asked for there
    with pytest.raises(TypeError, match="seed must be a number"):
        page["sample"](logits, seed=seed)
