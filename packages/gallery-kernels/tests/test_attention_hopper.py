"""The Gluon kernels of attention: what they cover, and that every block is computed once."""

import pytest
import torch

from gallery_kernels import attention_hopper
from references import heads

pytestmark = pytest.mark.skipif(
    not attention_hopper.CAN_IMPORT, reason="this release of Triton has another Gluon"
)


@pytest.mark.parametrize("together", [1, 2, 3, 7])
def test_every_block_of_every_head_has_one_program(together):
    """The order of the programs leaves none out, also where the last heads are fewer."""
    from gallery_kernels.attention_hopper_kernels import place

    programs = [place.fn(i, 5, 7, together) for i in range(35)]
    assert sorted(programs) == [(block, head) for block in range(5) for head in range(7)]


def test_gluon_gets_only_what_it_covers():
    covered = attention_hopper.has_covered_layout
    for d in (64, 128):
        q, k, v = heads(1, 1, 1, 128, 256, d, torch.float16)
        assert covered(q, k, v)
        assert not covered(q, k[:, :, :77], v[:, :, :77])
        assert not covered(q[:, :, :5], k, v)
        assert not covered(q.float(), k.float(), v.float())
        assert not covered(q[..., :32], k[..., :32], v[..., :32])
        assert not covered(q.mT.contiguous().mT, k, v)
        both = torch.cat([k, v], 3)
        assert not covered(q, both[..., :d], both[..., d:])
        shifted = torch.empty(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape)
        assert not covered(shifted, k, v)


def test_no_other_gpu_gets_them():
    q, k, v = heads(1, 1, 1, 128, 128, 64, torch.float16)
    assert not attention_hopper.is_covered(q, k, v)  # on a CPU
