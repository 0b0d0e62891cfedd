"""The gated delta rule, in a chain and in segments, against a recurrence in float64."""

import math
import sys

import pytest
import torch

from gallery_kernels import gated_delta_rule
from gallery_kernels.launch import MOST_PROGRAMS_ON_AXIS_1, Limits

MODULE = sys.modules["gallery_kernels.delta_rule"]
NAMES = "q", "k", "v", "g", "beta"
H100 = Limits(132, 232_448, 50 * 2**20, is_nvidia=True, is_hopper=True, starts_early=True)


def reference(q, k, v, g, beta, scale=None):
    """Token by token."""
    scale = q.shape[3] ** -0.5 if scale is None else scale
    share = v.shape[2] // k.shape[2]
    q, k = (x.double().repeat_interleave(share, dim=2) for x in (q, k))
    v, decay, beta = v.double(), g.double().exp(), beta.double()
    state = v.new_zeros(*v[:, 0].shape, v.shape[3])
    o = torch.empty_like(v)
    for t in range(v.shape[1]):
        state = state * decay[:, t, :, None, None]
        error = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t] * beta[:, t, :, None], error)
        o[:, t] = scale * torch.einsum("bhkv,bhk->bhv", state, q[:, t])
    return o


def problem(tokens, k_heads=1, v_heads=1, d=16, dtype=torch.float16, batch=1, weak=1.0):
    """Random arguments, whose gates and strengths are *weak* times the usual."""
    q, k = torch.randn(2, batch, tokens, k_heads, d)
    q, k = (torch.nn.functional.normalize(x, dim=-1).to(dtype) for x in (q, k))
    v = torch.randn(batch, tokens, v_heads, d).to(dtype)
    g, beta = torch.rand(2, batch, tokens, v_heads)
    return [q, k, v, -0.2 * weak * g, weak * beta]


def assert_right(found, arguments, scale=None, tolerance=None):
    """Allow two roundings to the dtype, in the mean: of the factors, and of the result."""
    expected = reference(*arguments, scale)
    assert found.dtype == arguments[0].dtype
    error = (found.double() - expected).norm() / expected.norm().clamp(min=1e-30)
    if tolerance is None:
        tolerance = max(1e-5, 2 * torch.finfo(found.dtype).eps)
    assert error < tolerance


@pytest.fixture
def in_segments(monkeypatch):
    """Return a function that reads a text in so many segments."""

    def call(segments, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(MODULE, "segments_for", lambda *given: segments)
            patch.setattr(MODULE, "PLANS", MODULE.Plans())
            return gated_delta_rule(*arguments)

    return call


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 129])
def test_texts_that_no_chunk_divides(tokens):
    arguments = problem(tokens, 1, 2, 32)
    for _ in range(2):  # the second call uses the plan of the first
        assert_right(gated_delta_rule(*arguments), arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("k_heads", "v_heads", "d"), [(2, 2, 64), (1, 3, 16), (2, 4, 128)])
def test_heads_that_share_keys_in_each_dtype(dtype, k_heads, v_heads, d):
    arguments = problem(70, k_heads, v_heads, d, dtype, batch=2)
    assert_right(gated_delta_rule(*arguments), arguments)


@pytest.mark.parametrize("gate", [0.0, -1.0, -100.0, -math.inf])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_limits_of_decay_and_strength(gate, beta):
    """A decay of 0 clears the state; log-sums of -inf or far below exp's range are no nan."""
    arguments = problem(130, dtype=torch.float32)
    arguments[3].fill_(gate)
    arguments[4].fill_(beta)
    assert_right(gated_delta_rule(*arguments), arguments)


STRONG = {
    "-30 in three tokens": lambda g: g[:, 5:8].fill_(-30),
    "-inf in every second token": lambda g: g[:, ::2].fill_(-math.inf),
    "from -8 to 0": lambda g: g.uniform_(-8, 0),
    "-100 first": lambda g: g[:, :40].fill_(-100),
    "-35.5 in most": lambda g: g[:, :55].fill_(-35.5),
}


@pytest.mark.parametrize("change", STRONG.values(), ids=STRONG)
def test_strong_gates_in_fp32(change):
    """A sum of gates in fp32 has an error of 1e-4, and so has a decay between two tokens."""
    arguments = problem(130, dtype=torch.float32)
    change(arguments[3])
    assert_right(gated_delta_rule(*arguments), arguments, tolerance=1e-6)


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["g", "beta"])
def test_a_gate_or_a_strength_that_is_no_number_reaches_no_earlier_token(
    name, bad, segments, in_segments
):
    """In a product of matrices, 0 * nan is nan."""
    arguments = problem(200, 1, 2)
    good = in_segments(segments, *arguments)
    arguments[NAMES.index(name)][:, 70, 0] = bad
    found = in_segments(segments, *arguments)
    assert torch.equal(found[:, :70], good[:, :70])
    assert torch.equal(found[:, :, 1], good[:, :, 1])  # the other head
    assert found[:, 70:, 0].isnan().all()


def test_nan_in_a_query_reaches_one_token():
    arguments = problem(100)
    good = gated_delta_rule(*arguments)
    arguments[0][:, 70, 0, 3] = math.nan
    found = gated_delta_rule(*arguments)
    assert found[:, 70].isnan().all()
    found[:, 70] = good[:, 70]
    assert torch.equal(found, good)


def test_the_same_key_in_all_tokens():
    """The powers of A grow beyond all bounds then; its inverse does not."""
    q, k, v, g, _ = problem(100, dtype=torch.float32)
    arguments = q, k[:, :1].expand_as(k).contiguous(), v, 0 * g, torch.ones_like(g)
    assert_right(gated_delta_rule(*arguments), arguments)


def test_long_memory():
    """Nothing decays, and each token changes the state a little: a rounded state would lose it."""
    q, k, v, g, beta = problem(4000)
    arguments = q, k, v.abs(), 0 * g, 0 * beta + 0.002
    assert_right(gated_delta_rule(*arguments), arguments)


def test_views():
    q, k, v, g, beta = problem(70, 2, 2, 16)
    packed = torch.cat([q, k, v], dim=3)  # one projection makes all three
    views = *packed.split(16, dim=3), g.mT.contiguous().mT, beta.half()
    assert_right(gated_delta_rule(*views), views)


def test_another_scale_after_a_call_of_the_same_shape():
    arguments = problem(20)
    for scale in (None, 1.0, -2, 1.0, 0):
        assert_right(gated_delta_rule(*arguments, scale), arguments, scale)


def test_a_plan_is_kept_whether_or_not_a_scale_is_given(monkeypatch):
    arguments = problem(20)
    made = []
    plan_rule = MODULE.plan_rule
    monkeypatch.setattr(MODULE, "PLANS", MODULE.Plans())
    monkeypatch.setattr(MODULE, "plan_rule", lambda *given: made.append(1) or plan_rule(*given))
    for scale in (None, 0.25, None, 0.25):  # 16 ** -0.5
        gated_delta_rule(*arguments, scale)
        assert MODULE._plan_of_call(*arguments, scale) is not None
    assert len(made) == 1


@pytest.mark.parametrize("place", range(5))
def test_complex_tensors_are_refused_and_their_parts_read_with_the_right_sign(place):
    """The imaginary part of a conjugated tensor is a view whose sign is still to be changed."""
    arguments = problem(20, dtype=torch.float32)
    conjugated = torch.complex(torch.zeros_like(arguments[place]), arguments[place]).conj()
    with pytest.raises(TypeError, match=f"the dtype of {NAMES[place]} must be"):
        gated_delta_rule(*arguments[:place], conjugated, *arguments[place + 1 :])
    lazily = [*arguments[:place], conjugated.imag, *arguments[place + 1 :]]
    assert lazily[place].is_neg()
    gated_delta_rule(*arguments)  # leaves a plan for the same shapes
    assert_right(gated_delta_rule(*lazily), lazily)


# In segments. With usual gates, a segment forgets the state at its start, and a wrong one would go
# unnoticed: so gates and strengths are weak.


@pytest.mark.parametrize("segments", [2, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_each_number_of_segments(in_segments, segments, dtype):
    """Six chunks, the last one short; heads that share keys; two texts."""
    arguments = problem(341, 2, 4, 32, dtype, batch=2, weak=0.02)
    assert_right(in_segments(segments, *arguments, 0.3), arguments, 0.3)


@pytest.mark.parametrize("d", [16, 64, 128])
def test_each_width_in_segments(in_segments, d):
    arguments = problem(200, 1, 1, d, weak=0.02)
    assert_right(in_segments(2, *arguments), arguments)


def test_what_the_first_token_writes_is_read_in_the_last_segment(in_segments):
    q, k, v, g, beta = problem(1024, dtype=torch.float32)
    g, beta = 0 * g, 0 * beta
    beta[:, 0], q[:, -1] = 1, k[:, 0]
    o = in_segments(4, q, k, v, g, beta, 1.0)
    torch.testing.assert_close(o[:, -1], v[:, 0])


@pytest.mark.parametrize("gate", [0.0, -100.0, -math.inf])
@pytest.mark.parametrize("beta", [0.01, 1.0])
def test_limits_of_decay_and_strength_in_segments(in_segments, gate, beta):
    arguments = problem(512, dtype=torch.float32)
    arguments[3][:, ::128], arguments[3][:, 1::127] = gate, 0.0
    arguments[4].fill_(beta)
    assert_right(in_segments(4, *arguments), arguments)


def test_a_long_text_of_few_heads_is_read_in_segments():
    """As the GPU of the tensors demands; the interpreter has 4 multiprocessors."""
    arguments = problem(2050, weak=0.02)
    assert_right(gated_delta_rule(*arguments), arguments)
    assert isinstance(MODULE._plan_of_call(*arguments, None), MODULE.Segments)


@pytest.mark.parametrize(
    ("shape", "segments"),
    [
        ((1, 32768, 4, 128), 16),
        ((1, 32768, 3, 128), 22),
        ((1, 32768, 8, 128), 8),
        ((2, 32768, 4, 128), 8),
        ((1, 32768, 8, 64), 16),
        ((1, 32768, 32, 128), 2),
        ((1, 32768, 64, 128), 1),  # two programs a head fill the GPU
        ((1, 4096, 1, 128), 4),
        ((1, 2047, 1, 128), 1),  # too short
    ],
)
def test_how_many_segments(shape, segments):
    v = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    assert MODULE.segments_for(v, v, H100.multiprocessors) == segments


@pytest.mark.parametrize(("batch", "heads"), [(70_000, 1), (1, 70_000), (300, 300)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_many_texts_or_heads_are_programs_on_the_first_axis(batch, heads, dtype, monkeypatch):
    """The hardware starts at most 65,535 programs on another axis."""
    assert batch * heads > MOST_PROGRAMS_ON_AXIS_1
    monkeypatch.setattr(MODULE, "limits_of", lambda device: H100)
    q = torch.empty(batch, 65, heads, 16, dtype=dtype, device="meta")
    plan = MODULE.plan_rule(q, q, 1.0)
    assert plan.chunks.grid == (2 * batch * heads, 1, 1)
    assert plan.scan.grid == (batch * heads, 1, 1)


@pytest.mark.parametrize("shape", [(0, 5, 2, 16), (1, 0, 2, 16), (1, 5, 0, 16)])
def test_nothing_gives_nothing(shape):
    v = torch.ones(shape)
    q = torch.ones(*shape[:2], 1, 16)
    gates = torch.zeros(shape[:3])
    assert gated_delta_rule(q, q, v, gates, gates).shape == shape


TEXT, GATES = torch.ones(1, 5, 2, 16), torch.zeros(1, 5, 2)

REFUSALS = [
    ((TEXT, TEXT, TEXT, 0.0, GATES), TypeError, "g must be a torch.Tensor, but is a float"),
    ((0.0, TEXT, TEXT, GATES, GATES), TypeError, "q must be a torch.Tensor, but is a float"),
    ((TEXT, TEXT.half(), TEXT, GATES, GATES), TypeError, "the dtype of k must be torch.float32"),
    ((TEXT, TEXT, TEXT[0], GATES, GATES), ValueError, r"v must be \[batch, tokens, heads, d\]"),
    ((TEXT, TEXT[:, 1:], TEXT, GATES, GATES), ValueError, r"k must have shape \(1, 5, 2, 16\)"),
    ((TEXT, TEXT, TEXT, GATES, GATES[:, :, :1]), ValueError, r"beta must have shape \(1, 5, 2\)"),
    ((TEXT, TEXT, TEXT, GATES.to("meta"), GATES), ValueError, "g must be on .* is on meta"),
    ((TEXT, TEXT, TEXT[:, :, :1], GATES[:, :, :1], GATES[:, :, :1]), ValueError, "multiple"),
    ((*3 * [TEXT[..., :8]], GATES, GATES), ValueError, "d must be 16, 32, 64 or 128"),
    *(
        ((TEXT, TEXT, TEXT, GATES, GATES, scale), TypeError, "scale must be a number, but is a")
        for scale in ("0.5", [1.0], 1j, True)
    ),
    *(
        ((TEXT, TEXT, TEXT, GATES, GATES, scale), ValueError, "scale must be a finite number")
        for scale in (math.nan, math.inf, -math.inf, 1e39, 10**400)
    ),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            gated_delta_rule(*arguments)
        gated_delta_rule(TEXT, TEXT, TEXT, GATES, GATES)
        gated_delta_rule(TEXT, TEXT, TEXT, GATES, GATES, 1)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("tokens", "k_heads", "v_heads", "d", "batch"),
    [(5000, 1, 2, 128, 1), (2111, 2, 4, 64, 2), (1000, 16, 64, 128, 1), (700, 1, 1, 16, 300)],
)
def test_full_sizes(tokens, k_heads, v_heads, d, batch, dtype, gpu):
    """In segments, and as a chain."""
    for weak in (1.0, 0.02):
        arguments = problem(tokens, k_heads, v_heads, d, dtype, batch, weak)
        arguments = [x.to(gpu) for x in arguments]
        for _ in range(2):  # the second call uses the plan of the first
            assert_right(gated_delta_rule(*arguments), arguments)


@pytest.mark.gpu
def test_strong_gates_and_a_gate_of_nan_on_a_gpu(gpu):
    for change in STRONG.values():
        arguments = problem(2100, dtype=torch.float32)
        change(arguments[3])
        arguments = [x.to(gpu) for x in arguments]
        assert_right(gated_delta_rule(*arguments), arguments, tolerance=1e-6)
        good = gated_delta_rule(*arguments)
        arguments[3][:, 70] = math.nan
        found = gated_delta_rule(*arguments)
        assert torch.equal(found[:, :70], good[:, :70])
        assert found[:, 70:].isnan().all()


@pytest.mark.gpu
def test_more_texts_than_another_axis_has_programs(gpu):
    arguments = [x.to(gpu) for x in problem(3, batch=70_000)]
    assert_right(gated_delta_rule(*arguments), arguments)
