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


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_pytorch_gets_no_odd_strides_or_addresses(page, monkeypatch, dtype):
    """On an H100 its attention was wrong for rows of 67 bf16 numbers, and for odd addresses."""
    got = []
    torch_attention = page["attention"].__globals__["torch_attention"]

    def seen(*tensors, **options):
        got.extend(tensors)
        return torch_attention(*tensors, **options)

    monkeypatch.setitem(page["attention"].__globals__, "torch_attention", seen)
    wide = torch.randn(1, 2, 30, 67).to(dtype)
    odd = wide.flatten()[3 : 3 + 2 * 30 * 32].view(1, 2, 30, 32)  # contiguous
    found = page["attention"](wide[..., 1:33], wide[..., :32], odd)
    assert all(x.is_contiguous() and x.data_ptr() % 16 == 0 for x in got)
    assert torch.equal(found, torch_attention(*got))


def test_the_plain_function_gives_what_the_public_one_gives(page, plain):
    """Without a Hopper GPU, by PyTorch; tests/gpu compares the launches of the kernels."""
    q, k, v = heads(1, 4, 2, 128, 256, 64, torch.float16)
    found = plain("06c-attention-gluon").attention(q, k, v, True)
    assert torch.equal(found, page["attention"](q, k, v, True))
