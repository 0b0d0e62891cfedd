"""Attention with Gluon kernels: the sizes and GPUs that they do not cover, against float64."""

import pytest
import torch

from tests.tutorials.float64 import heads


@pytest.mark.parametrize("together", [1, 2, 3, 7])
def test_every_block_of_every_head_has_one_program(page, together):
    """The order of the programs leaves none out, also where the last heads are fewer."""
    place = page["place"].fn
    programs = [place(i, 5, 7, together) for i in range(35)]
    assert sorted(programs) == [(block, head) for block in range(5) for head in range(7)]


def test_gluon_gets_only_what_it_covers(page, monkeypatch):
    is_covered = page["is_covered"]
    monkeypatch.setitem(is_covered.__globals__, "HOPPER", True)
    for d in (64, 128):
        q, k, _ = heads(1, 1, 1, 128, 256, d, torch.float16)
        assert is_covered(q, k)
        assert not is_covered(q, k[:, :, :77])
        assert not is_covered(q[:, :, :5], k)
        assert not is_covered(q[:, :, :0], k)
        assert not is_covered(q.float(), k.float())
        assert not is_covered(q[..., :32], k[..., :32])
    monkeypatch.setitem(is_covered.__globals__, "HOPPER", False)
    assert not is_covered(q, k)


def test_the_plain_function_gives_what_the_public_one_gives(page, plain):
    """Without a Hopper GPU, by PyTorch; tests/gpu compares the launches of the kernels."""
    q, k, v = heads(1, 4, 2, 128, 256, 64, torch.float16)
    found = plain("06c-attention-gluon").attention(q, k, v, True)
    assert torch.equal(found, page["attention"](q, k, v, True))
