"""The gated delta rule in segments, in the interpreter, against its chunks in float64."""

import math

import pytest
import torch

WEAK = 0.02  # gates and strengths so weak that a segment hands most of the state on


def assert_right(page, o, arguments, scale=0.3):
    assert o.dtype == arguments[0].dtype
    tolerance = 1e-5 if o.dtype == torch.float32 else 2 * torch.finfo(o.dtype).eps
    page["CHAIN"].compare(o, arguments, scale, tolerance)


@pytest.mark.parametrize("segments", [2, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_each_number_of_segments(page, plain, segments, dtype):
    """Six chunks, the last one short; heads that share keys; two texts."""
    arguments = page["draw"](341, 2, 4, 32, dtype, batch=2, weak=WEAK)
    o = plain("14b-segments").gated_delta_rule(*arguments, 0.3, segments)
    assert_right(page, o, arguments)


@pytest.mark.parametrize("d", [16, 64, 128])
def test_each_width(page, plain, d):
    arguments = page["draw"](200, 1, 1, d, torch.float16, weak=WEAK)
    o = plain("14b-segments").gated_delta_rule(*arguments, 0.3, 2)
    assert_right(page, o, arguments)


def test_what_the_first_token_writes_is_read_in_the_last_segment(page):
    q, k, v, g, beta = page["draw"](2048, 1, 1, 16, torch.float32)
    g, beta = 0 * g, 0 * beta
    beta[:, 0], q[:, -1] = 1, k[:, 0]
    o = page["gated_delta_rule"](q, k, v, g, beta, 1.0)
    torch.testing.assert_close(o[:, -1], v[:, 0])


@pytest.mark.parametrize("gate", [0.0, -100.0, -math.inf])
@pytest.mark.parametrize("beta", [0.01, 1.0])
def test_limits_of_decay_and_strength(page, gate, beta):
    arguments = page["draw"](2048, 1, 1, 16, torch.float32, weak=1)
    arguments[3][:, ::512], arguments[3][:, 1::511] = gate, 0.0
    arguments[4].fill_(beta)
    assert_right(page, page["gated_delta_rule"](*arguments, 0.3), arguments)


def test_views_and_another_scale_after_a_call_of_the_same_shape(page):
    q, k, v, g, beta = page["draw"](2050, 1, 2, 16, torch.float16)
    packed = torch.cat([q, k, v], dim=2)
    views = *packed.split([1, 1, 2], dim=2), g.mT.contiguous().mT, beta.bfloat16()
    for scale in (0.3, -2, 0.3):
        assert_right(page, page["gated_delta_rule"](*views, scale), views, scale)


@pytest.mark.parametrize(
    ("shape", "segments"),
    [
        ((1, 32768, 4, 128), 16),
        ((1, 32768, 3, 128), 22),
        ((1, 32768, 8, 128), 8),
        ((2, 32768, 4, 128), 8),
        ((1, 32768, 8, 64), 16),
        ((1, 32768, 32, 128), 2),
        ((1, 32768, 64, 128), 1),  # today's two programs a head fill the GPU
        ((1, 4096, 1, 128), 4),
        ((1, 2047, 1, 128), 1),  # too short
        ((0, 32768, 8, 128), 1),
        ((1, 32768, 8, 0), 1),
    ],
)
def test_how_many_segments(page, shape, segments):
    v = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    assert page["segments_of"](v, v) == segments


def test_many_heads_have_the_launches_that_they_always_had(page, monkeypatch):
    called = []
    monkeypatch.setattr(page["CHAIN"], "gated_delta_rule", lambda *given: called.append(given))
    arguments = page["draw"](65, 1, 2, 16, torch.float16)
    page["gated_delta_rule"](*arguments, 0.3)
    assert len(called) == 1
    assert called[0][5] == 0.3
