"""The gated delta rule, in the interpreter, against a recurrence in float64."""

import math

import pytest
import torch

NAMES = "q", "k", "v", "g", "beta"


def reference(q, k, v, g, beta, scale=None):
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


def problem(tokens, k_heads=1, v_heads=1, d=16, dtype=torch.float16, batch=1):
    q, k = torch.randn(2, batch, tokens, k_heads, d)
    q, k = (torch.nn.functional.normalize(x, dim=-1).to(dtype) for x in (q, k))
    v = torch.randn(batch, tokens, v_heads, d).to(dtype)
    g, beta = torch.rand(2, batch, tokens, v_heads)
    return [q, k, v, -0.2 * g, beta]


def assert_right(got, arguments, scale=None, tolerance=None):
    """Allow two roundings to the dtype, in the mean: of the factors, and of the result."""
    expected = reference(*arguments, scale)
    assert got.dtype == arguments[0].dtype
    error = (got.double() - expected).norm() / expected.norm().clamp(min=1e-30)
    assert error < (tolerance or 2 * torch.finfo(got.dtype).eps)


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 129])
def test_texts_that_no_chunk_divides(page, tokens):
    arguments = problem(tokens, 1, 2, 32)
    assert_right(page["gated_delta_rule"](*arguments), arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("k_heads", "v_heads", "d"), [(2, 2, 64), (1, 3, 16), (2, 4, 128)])
def test_heads_that_share_keys_in_each_dtype(page, dtype, k_heads, v_heads, d):
    arguments = problem(70, k_heads, v_heads, d, dtype, batch=2)
    tolerance = 1e-5 if dtype == torch.float32 else None
    assert_right(page["gated_delta_rule"](*arguments), arguments, tolerance=tolerance)


def test_the_first_kernel(page):
    arguments = problem(40, 1, 2, 32)
    assert_right(page["plain_rule"](*arguments, 0.5), arguments, 0.5)


@pytest.mark.parametrize("gate", [0.0, -1.0, -100.0, -math.inf])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_limits_of_decay_and_strength(page, gate, beta):
    """A decay of 0 clears the state; log-sums of -inf or far below exp's range are no nan."""
    arguments = problem(130, dtype=torch.float32)
    arguments[3].fill_(gate)
    arguments[4].fill_(beta)
    assert_right(page["gated_delta_rule"](*arguments), arguments, tolerance=1e-5)


def test_a_decay_of_zero_between_others(page):
    arguments = problem(130, dtype=torch.float32)
    arguments[3][:, ::50] = -math.inf
    assert_right(page["gated_delta_rule"](*arguments), arguments, tolerance=1e-4)


def test_the_same_key_in_all_tokens(page):
    """The powers of A grow beyond all bounds then; its inverse does not."""
    q, k, v, g, _ = problem(100, dtype=torch.float32)
    arguments = q, k[:, :1].expand_as(k).contiguous(), v, 0 * g, torch.ones_like(g)
    assert_right(page["gated_delta_rule"](*arguments), arguments, tolerance=1e-5)


def test_long_memory(page):
    """Nothing decays, and each token changes the state a little: a rounded state would lose it."""
    q, k, v, g, beta = problem(10_000)
    arguments = q, k, v.abs(), 0 * g, 0 * beta + 0.002
    assert_right(page["gated_delta_rule"](*arguments), arguments)


def test_views_are_read_as_they_are(page):
    q, k, v, g, beta = problem(70, 2, 2, 16)
    packed = torch.cat([q, k, v], dim=3)  # one projection makes all three
    views = *packed.split(16, dim=3), g.mT.contiguous().mT, beta.bfloat16()
    assert_right(page["gated_delta_rule"](*views), views)


def test_another_scale_after_a_call_of_the_same_shape(page):
    arguments = problem(20)
    for scale in (None, 1.0, -2, 1.0):
        assert_right(page["gated_delta_rule"](*arguments, scale), arguments, scale)


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, 1e39, 10**400, "0.5", [1.0], 1j])
def test_a_scale_that_is_no_finite_number_is_refused_also_beside_a_plan(page, scale):
    arguments = problem(20)
    page["gated_delta_rule"](*arguments, 1.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="scale must be a finite number"):
            page["gated_delta_rule"](*arguments, scale)


@pytest.mark.parametrize("place", range(5))
def test_complex_tensors_are_refused_and_their_parts_read_with_the_right_sign(page, place):
    """The imaginary part of a conjugated tensor is a view whose sign is still to be changed."""
    arguments = problem(20, dtype=torch.float32)
    conjugated = torch.complex(torch.zeros_like(arguments[place]), arguments[place]).conj()
    with pytest.raises(TypeError, match=f"{NAMES[place]} must be"):
        page["gated_delta_rule"](*arguments[:place], conjugated, *arguments[place + 1 :])
    lazily = [*arguments[:place], conjugated.imag, *arguments[place + 1 :]]
    assert lazily[place].is_neg()
    page["gated_delta_rule"](*arguments)  # leaves a plan for the same shapes
    assert_right(page["gated_delta_rule"](*lazily), lazily, tolerance=1e-5)


@pytest.mark.parametrize("place", range(5))
def test_a_gradient_is_refused_by_the_name_of_its_argument(page, place):
    arguments = problem(20)
    page["gated_delta_rule"](*arguments)
    arguments[place].requires_grad_()
    with pytest.raises(ValueError, match=f"^{NAMES[place]} requires a gradient"):
        page["gated_delta_rule"](*arguments)
