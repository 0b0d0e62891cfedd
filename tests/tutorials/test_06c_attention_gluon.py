"""Attention with Gluon kernels: the sizes and GPUs that they do not cover, against float64."""

import pytest
import torch

from tests.tutorials.cells import shown_functions
from tests.tutorials.test_06_fused_attention import (
    UNIT,
    VIEWS,
    assert_attention,
    inputs,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy


@pytest.mark.parametrize("d", [16, 32, 64, 128])
@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_head_dimensions_and_dtypes(page, d, dtype):
    for causal in (False, True):
        assert_attention(page, *inputs(1, 2, 1, 70, 133, d, dtype), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 200), (200, 1), (64, 64), (65, 127)])
def test_lengths_that_tiles_do_not_divide(page, queries, keys, causal):
    assert_attention(page, *inputs(1, 4, 2, queries, keys, 16, torch.float16), causal)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(page, view):
    q, k, v = inputs(1, 2, 2, 40, 40, 16)
    assert_attention(page, q, k, v, True)
    for _ in range(2):
        assert_attention(page, *(view(x) for x in (q, k, v)), True)


def test_it_refuses_tensors_that_require_gradients(page):
    q, k, v = inputs(1, 2, 2, 40, 40, 16)
    page["attention"](q, k, v)
    with pytest.raises(ValueError, match=r"v requires a gradient.*06b-attention-backward"):
        page["attention"](q, k, v.requires_grad_())


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
        q, k, _ = inputs(1, 1, 1, 128, 256, d, torch.float16)
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
    q, k, v = inputs(1, 4, 2, 128, 256, 64, torch.float16)
    found = plain("06c-attention-gluon").attention(q, k, v, True)
    assert torch.equal(found, page["attention"](q, k, v, True))


def test_no_cell_shows_the_address_of_a_function():
    assert not shown_functions("06c-attention-gluon")
