"""Sampling on a GPU: equal tokens of both ways at full size, and a graph with new seeds."""

import pytest
import torch

PAGE = "13-sampling"


@pytest.mark.parametrize("settings", [(1.0, 0, 0.9), (0.7, 50, 1.0), (1.0, 0, 1.0)])
def test_both_ways_sample_the_same_tokens(definitions, device, settings):
    names = definitions(PAGE)
    for scale in (1, 8):  # many logits near the threshold, and few
        x = scale * torch.randn(64, 131072, device=device)
        expected = names["plain_sample"](x, *settings, 5)
        for _ in range(10):
            assert torch.equal(names["sample"](x, *settings, 5), expected)


def test_a_graph_reads_its_seed_and_its_logits_anew(definitions, device):
    sample = definitions(PAGE)["sample"]
    x, seed = torch.randn(32, 32000, device=device), torch.tensor([1], device=device)
    sample(x, top_p=0.9, seed=seed)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = sample(x, top_p=0.9, seed=seed)
    for value in (2, 3):
        seed.fill_(value)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(out, sample(x, top_p=0.9, seed=value))
