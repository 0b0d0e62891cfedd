"""What a lesson promises and only a GPU can show: replays of CUDA graphs, and equal bits."""

import pytest
import torch
from torch.testing import assert_close

DROPOUT, NORMS, REDUCTIONS = "04-low-memory-dropout", "05-layer-norm", "05b-reductions"


def test_each_replay_of_a_graph_drops_by_the_seed_that_lies_on_the_gpu(definitions, device):
    seeded_dropout = definitions(DROPOUT)["seeded_dropout"]
    x, seed = torch.randn(5003, device=device), torch.tensor(1, device=device)
    seeded_dropout(x, 0.5, seed)  # compiles the kernel
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = seeded_dropout(x, 0.5, seed)
    for number in (1, 2, 2**40):
        seed.fill_(number)
        x.normal_()
        graph.replay()
        assert_close(y, seeded_dropout(x, 0.5, number), rtol=0, atol=0)


def test_dropout_is_right_inside_a_compiled_function(definitions, device):
    seeded_dropout = definitions(DROPOUT)["seeded_dropout"]
    step = torch.compile(lambda x, seed: 2 * seeded_dropout(x, 0.5, seed), fullgraph=True)
    for seed in (1, 2, 2**64 - 1, torch.tensor(3, device=device)):
        x = torch.randn(999, device=device, requires_grad=True)
        y, right = step(x, seed), 2 * seeded_dropout(x, 0.5, seed)
        assert_close(y, right, rtol=0, atol=0)
        gradients = (torch.autograd.grad(t.sum(), x)[0] for t in (y, right))
        assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(7, 65), (300, 2560), (77, 9217), (4096, 15872)])
def test_norms_give_the_same_bits_every_time(definitions, device, dtype, shape):
    norms = definitions(NORMS)
    x, g = torch.randn(2, *shape, device=device, dtype=dtype)
    parameters = torch.randn(2, shape[1], device=device, dtype=dtype)
    for norm, count in (("layer_norm", 2), ("rms_norm", 1)):
        leaves = [t.clone().requires_grad_() for t in (x, *parameters[:count])]
        results = []
        for _ in range(10):
            y = norms[norm](*leaves)
            results.append((y, *torch.autograd.grad(y, leaves, g)))
        assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


@pytest.mark.parametrize("shape", [(1823, 12301), (4096, 16384), (5, 781)])
def test_all_ways_to_reduce_give_the_same_bits_every_time(definitions, device, shape):
    lesson = definitions(REDUCTIONS)
    inputs = lesson["inputs_of"](*shape, torch.float16)
    for way in lesson["WAYS"].values():
        results = [way(*inputs) for _ in range(10)]
        assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


def test_a_device_that_is_not_the_current_one(definitions):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x, weight = torch.randn(3, 100, device="cuda:1"), torch.ones(100, device="cuda:1")
    y = definitions(NORMS)["layer_norm"](x, weight, weight)
    assert_close(y, torch.nn.functional.layer_norm(x, (100,), weight, weight), rtol=1e-5, atol=1e-5)
    assert definitions(DROPOUT)["seeded_dropout"](x, 0.5, 3).device == x.device
    assert definitions("07-math-functions")["gelu"](x).device == x.device
