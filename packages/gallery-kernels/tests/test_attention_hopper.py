"""The Gluon kernels of attention: what they cover, and that programs share all blocks evenly."""

import pytest
import torch

from gallery_kernels import attention_hopper
from gallery_kernels.attention_hopper import schedule
from gallery_kernels.launch import Limits
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


HOPPER = Limits(132, 232_448, 50 * 2**20, is_nvidia=True, is_hopper=True, starts_early=True)


@pytest.mark.parametrize("blocks", [1, 2, 9, 12, 16, 32, 64, 66, 128, 132])
def test_causal_programs_get_as_much_as_each_other(blocks):
    """A program that got a long block gets a short one, or some would work alone at the end."""
    from gallery_kernels.attention_hopper_kernels import place, place_in_turn

    heads = 132 // blocks * 6  # six turns
    programs, together = schedule(blocks, heads, 2, True, HOPPER)
    assert 125 <= programs <= 132
    done, shares = [], []
    for program in range(programs):
        share = 0
        for turn in range(6):
            number = turn * programs + place_in_turn.fn(turn, program, programs, True)
            block, head = place.fn(number, blocks, heads, together)
            done.append((block, head))
            share += block + 1  # as many tiles of keys
        shares.append(share)
    assert sorted(done) == [(block, head) for block in range(blocks) for head in range(heads)]
    assert set(shares) == {3 * (blocks + 1)}


@pytest.mark.parametrize(("blocks", "heads"), [(48, 40), (16, 24), (32, 20), (133, 40), (1000, 1)])
def test_no_multiprocessor_stays_idle_for_whole_heads(blocks, heads):
    """Whole heads fill too few multiprocessors, or a last turn, to which none answers, is long."""
    assert schedule(blocks, heads, 2, True, HOPPER) == (blocks * heads, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_a_few_heads_have_a_program_for_each_block(causal):
    assert schedule(16, 3, 2, causal, HOPPER)[0] == 48


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("length", [128, 1024, 1152, 4096])
def test_only_the_first_tile_needs_a_causal_mask(length, d):
    """The kernels mask that one alone, so a tile of keys is not smaller than a block of queries."""
    q = k = torch.empty(1, 1, length, d, dtype=torch.float16)
    kernel = attention_hopper.kernel_for(q, k, True)
    _, _, constants = attention_hopper.settings(kernel, q, k, True, 1.0)
    assert constants["BLOCK_N"] % constants.get("BLOCK_M", 128) == 0


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
