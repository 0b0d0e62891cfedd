"""Sampling, against a sort in float64."""

import math
import sys

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from gallery_kernels import sample
from gallery_kernels.launch import Limits

MODULE = sys.modules["gallery_kernels.sampling"]


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


def counts(row, rows, seed=1, **settings):
    """Return how often each token of one row is sampled."""
    tokens = sample(row.expand(rows, -1).contiguous(), seed=seed, **settings)
    return tokens.bincount(minlength=len(row))


@pytest.fixture
def one_program(monkeypatch):
    """Return ``sample`` in the slower way: a row collects 16 logits, which are too few."""
    sizes = MODULE.Sizes(1024, 16, 64, columns=4, warps=1, columns_of_piece=16, warps_of_piece=1)

    def call(*arguments, **settings):
        with monkeypatch.context() as patch:
            patch.setattr(MODULE, "sizes_for", lambda tokens: sizes)
            patch.setattr(MODULE, "PLANS", MODULE.Plans())
            return sample(*arguments, **settings)

    return call


def seeded(number):
    return torch.Generator().manual_seed(number)


LOGITS = {
    "normal": torch.randn(1, 301, generator=seeded(1)),
    "peaked": 6 * torch.randn(1, 301, generator=seeded(2)),
    "ties": torch.randn(1, 301, generator=seeded(3)).round(),
    "equal": torch.zeros(1, 301),
    "short": torch.randn(2, 5, generator=seeded(4)),
    "one token": torch.randn(2, 1, generator=seeded(5)),
}
SETTINGS = [{}, {"top_p": 0.9}, {"top_k": 3}, {"top_k": 40, "top_p": 0.5}, {"top_p": 1e-9}]


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("settings", SETTINGS[1:4])
def test_tokens_are_kept_and_those_of_the_slower_way(one_program, name, settings):
    logits = LOGITS[name]
    tokens = sample(logits, 0.7, **settings, seed=9)
    assert kept(logits, 0.7, **settings).gather(1, tokens[:, None]).all()
    assert torch.equal(tokens, one_program(logits, 0.7, **settings, seed=9))


@pytest.mark.parametrize("settings", SETTINGS[1:])
def test_exactly_the_kept_tokens_are_sampled(settings):
    """Of flat logits, each token that is kept appears sooner or later, and no other."""
    row = 0.2 * torch.randn(9)
    sampled = counts(row, rows=80, **settings) > 0
    assert torch.equal(sampled, kept(row[None], **settings)[0])


def test_frequencies_are_the_probabilities():
    row = torch.randn(9)
    keep = kept(row[None], 1.5, top_p=0.8)[0]
    p = torch.where(keep, row.double() / 1.5, -math.inf).softmax(0)
    found, expected = counts(row, 300, temperature=1.5, top_p=0.8)[keep], 300 * p[keep]
    chi_square = ((found - expected) ** 2 / expected).sum()
    free = int(keep.sum()) - 1
    assert chi_square < free + 5 * math.sqrt(2 * free)


@pytest.mark.parametrize("more", [-2e-6, 2e-6])
def test_the_last_token_is_the_one_of_a_float64_sort(more):
    """The share is a little less or more than that of 5 tokens: more than fp32 rounds a weight."""
    row = torch.linspace(0, 0.1, 8)
    top_p = row.double().softmax(0)[3:].sum().item() + more
    seen = counts(row, rows=40, top_p=top_p) > 0
    assert seen.sum() == (5 if more < 0 else 6)
    assert torch.equal(seen, kept(row[None], top_p=top_p)[0])


def test_temperature_zero_is_the_maximum():
    logits = torch.randn(5, 300)
    assert torch.equal(sample(logits, 0), logits.argmax(1))
    assert torch.equal(sample(logits, 1e-9, top_p=0.9), logits.argmax(1))


def test_no_limit_is_the_same_as_a_limit_that_keeps_all():
    logits = torch.randn(5, 300)
    tokens = sample(logits, seed=4)
    assert torch.equal(tokens, sample(logits, top_k=300, top_p=1, seed=4))
    assert torch.equal(tokens, sample(logits, top_k=10**30, seed=4))


def test_a_row_gets_the_same_token_in_any_batch():
    logits = torch.randn(7, 701)
    tokens = sample(logits, top_p=0.9, seed=2**62)
    assert torch.equal(sample(logits[:2], top_p=0.9, seed=2**62), tokens[:2])
    assert not torch.equal(sample(logits, top_p=0.9, seed=5), tokens)


def test_infinite_logits():
    logits = torch.randn(4, 500).where(torch.rand(4, 500) > 0.9, -math.inf)
    logits[:, 7] = 1.0
    for settings in SETTINGS:
        tokens = sample(logits, **settings)
        assert (logits.gather(1, tokens[:, None]) > -math.inf).all()
    logits[:, 300] = math.inf
    assert (sample(logits, top_p=0.9) == 300).all()


@pytest.mark.parametrize("bad", [math.nan, -math.nan])
def test_rows_without_a_distribution_are_refused(bad):
    """Also by a plan that is kept for rows with one."""
    logits = torch.randn(3, 300)
    sample(logits)
    logits[1, 200] = bad
    with pytest.raises(ValueError, match="nan, or only -inf"):
        sample(logits)
    with pytest.raises(ValueError, match="nan, or only -inf"):
        sample(torch.full((1, 9), -math.inf))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_dtypes_and_views(dtype):
    logits = torch.randn(400, 5).to(dtype)
    tokens = sample(logits.T, top_p=0.9)
    assert torch.equal(tokens, sample(logits.T.float().contiguous(), top_p=0.9))


def test_any_finite_temperature(one_program):
    """1e46 is more than fp32 has: all logits but -inf have one weight."""
    logits = torch.full((50, 9), -math.inf)
    logits[:, 2], logits[:, 5] = 3e38, -3e38
    tokens = sample(logits, 1e46, seed=3)
    assert set(tokens.tolist()) == {2, 5}
    assert torch.equal(tokens, one_program(logits, 1e46, seed=3))


@pytest.mark.parametrize("settings", SETTINGS[1:4])
def test_sums_of_weights_have_no_order(one_program, settings):
    """Weights of many sizes, whose sum in fp64 depends on the order of the additions."""
    logits = 9 * torch.randn(1, 401)
    for order in (torch.arange(401), torch.randperm(401)):
        given = logits[:, order].contiguous()
        fast = sample(given, **settings, seed=5)
        assert torch.equal(fast, one_program(given, **settings, seed=5))


def test_a_seed_may_be_a_tensor():
    """A CUDA graph can then sample anew in each replay."""
    logits = torch.randn(6, 400)
    for seed in (0, 7, 2**62):
        tokens = sample(logits, top_p=0.9, seed=torch.tensor([seed]))
        assert torch.equal(tokens, sample(logits, top_p=0.9, seed=seed))
    for bad in (torch.tensor([1, 2]), torch.tensor([1.0]), torch.tensor([1], dtype=torch.int32)):
        with pytest.raises(ValueError, match="seed must be one int64"):
            sample(logits, seed=bad)
    sparse = torch.ones(1, dtype=torch.int64).to_sparse()
    with pytest.raises(ValueError, match="seed must be strided"):
        sample(logits, seed=sparse)


def test_a_seed_whose_sign_is_still_to_be_changed():
    logits = torch.randn(6, 400)
    tokens = sample(logits, seed=torch._neg_view(torch.tensor([-7])))
    assert torch.equal(tokens, sample(logits, seed=7))


def test_seeds_that_change_compile_nothing_anew():
    """Neither numbers, of which the second one makes a symbol, nor tensors."""
    logits = torch.randn(3, 100)
    counter = CompileCounter()
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x, seed: sample(x, 0.8, 0, 0.9, seed), backend=counter, fullgraph=True
    )
    for seed in (5, 6, 2**40, 9):
        found = compiled(logits, seed)
        assert torch.equal(found, sample(logits, 0.8, 0, 0.9, seed))
    assert counter.frame_count <= 2
    counter.clear()
    for seed in (0, 3):
        found = compiled(logits, torch.tensor([seed]))
        assert torch.equal(found, sample(logits, 0.8, 0, 0.9, seed))
    assert counter.frame_count == 1


def test_a_temperature_that_changes_in_a_compiled_function():
    logits = torch.randn(3, 100)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x, t, p: sample(x, t, 0, p, 3), backend="aot_eager", fullgraph=True
    )
    for temperature, top_p in ((0.8, 0.9), (0.7, 0.5), (0.6, 0.4), (0, 1), (1, 1.0)):
        found = compiled(logits, temperature, top_p)
        assert torch.equal(found, sample(logits, temperature, 0, top_p, 3))


@pytest.mark.parametrize("temperature", [1e46, 1e300])
def test_temperatures_beyond_fp32_sample_no_excluded_token(temperature):
    """Their reciprocals are 0 in fp32; a logit of -inf has no weight all the same."""
    logits = torch.randn(2, 300).where(torch.rand(2, 300) > 0.5, -math.inf)
    tokens = sample(logits, temperature)
    assert (logits.gather(1, tokens[:, None]) > -math.inf).all()


@pytest.mark.parametrize("seed", [1.5, 3.0, True, np.int64(3), np.array([3]), "3", None])
def test_a_kept_plan_is_not_for_seeds_that_are_no_int(seed):
    """The kernel would be given them as they are."""
    logits = torch.randn(2, 100)
    sample(logits, seed=3)
    with pytest.raises(TypeError, match="seed must be an int"):
        sample(logits, seed=seed)


def test_kernels_start_early_where_the_gpu_of_the_logits_can(monkeypatch):
    """A capability asked of the current GPU at import would be that of another one."""
    logits = torch.empty(2, 300, device="meta")
    for early in (True, False):
        limits = Limits(132, 232_448, 2**25, is_nvidia=True, is_hopper=early, starts_early=early)
        monkeypatch.setattr(MODULE, "limits_of", lambda device, limits=limits: limits)
        plan = MODULE.plan_sample(logits, 1.0, 0, 0.9, False)
        for launch in (*plan.launches, plan.last):
            assert launch.constants["EARLY"] == early
        waiting = (*plan.launches[1:], plan.last)
        assert [launch.constants.get("launch_pdl", False) for launch in waiting] == 3 * [early]
        assert "launch_pdl" not in plan.launches[0].constants


def test_no_rows():
    assert sample(torch.empty(0, 7)).shape == (0,)


ROWS = torch.randn(4, 6)

REFUSALS = [
    (([1.0],), TypeError, "logits must be a torch.Tensor, but is a list"),
    ((ROWS.double(),), TypeError, "dtype of logits must be .* but is torch.float64"),
    ((ROWS[0],), ValueError, r"logits must be \[batch, .* shape \(6,\)"),
    ((ROWS.to("meta"),), ValueError, "logits must be .* on meta"),
    ((ROWS[:, :0],), ValueError, "logits must be .*1 to .* tokens"),
    ((ROWS, -1.0), ValueError, "temperature must be 0 or more"),
    ((ROWS, math.nan), ValueError, "temperature must be 0 or more"),
    ((ROWS, math.inf), ValueError, "temperature must be 0 or more"),
    ((ROWS, 10**400), ValueError, "temperature must be 0 or more"),
    ((ROWS, "1"), TypeError, "temperature must be a number, but is a str"),
    ((ROWS, True), TypeError, "temperature must be a number, but is a bool"),
    ((ROWS, 1.0, -1), ValueError, "top_k must be 0 .no limit. or more"),
    ((ROWS, 1.0, 2.0), TypeError, "top_k must be an int, but is a float"),
    ((ROWS, 1.0, 0, 0.0), ValueError, "top_p must be .* but is 0.0"),
    ((ROWS, 1.0, 0, 1.1), ValueError, "top_p must be .* but is 1.1"),
    ((ROWS, 1.0, 0, math.nan), ValueError, "top_p must be .* but is nan"),
    ((ROWS, 1.0, 0, 1.0, -1), ValueError, "seed must be from 0"),
    ((ROWS, 1.0, 0, 1.0, 2**63), ValueError, "seed must be from 0"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            sample(*arguments)
        sample(ROWS)
        sample(ROWS, 1)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(1, 131_072), (16, 32_000), (64, 151_936), (3, 1_000_003)])
def test_full_sizes(shape, dtype, gpu):
    """Where a sum of float64 agrees with top_p to seven digits, a token may be kept or not."""
    logits = (2 * torch.randn(shape, device=gpu)).to(dtype)
    for settings in (*SETTINGS, {"top_k": 5000}):
        for temperature in (0.7, 1.5):
            tokens = sample(logits, temperature, **settings, seed=11)
            keep = kept(logits, temperature, **settings)
            assert keep.gather(1, tokens[:, None]).all()
            assert torch.equal(sample(logits, temperature, **settings, seed=11), tokens)


@pytest.mark.gpu
def test_rows_without_a_distribution_on_a_gpu(gpu):
    logits = torch.randn(4, 50_000, device=gpu)
    logits[1, 40_000] = math.nan
    logits[2] = -math.inf
    tokens = sample(logits, top_p=0.9)
    assert tokens[1] == tokens[2] == -1
    assert (tokens[[0, 3]] >= 0).all()


@pytest.mark.gpu
def test_each_replay_of_a_graph_samples_by_the_seed_that_lies_on_the_gpu(gpu):
    logits, seed = torch.randn(64, 5000, device=gpu), torch.tensor([1], device=gpu)
    sample(logits, seed=seed)  # compiles the kernels
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sample(logits, seed=seed)
    for number in (1, 2, 2**62):
        seed.fill_(number)
        graph.replay()
        assert torch.equal(tokens, sample(logits, seed=number))
