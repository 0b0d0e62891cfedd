"""Attention and its gradients, against float64."""

import math

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import gallery_kernels
from gallery_kernels import attention as call
from references import UNIT, assert_attention, assert_near, attention, heads

MODULE = __import__("sys").modules["gallery_kernels.attention"]


@pytest.mark.parametrize("d", [8, 16, 32, 64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_head_dimensions_and_dtypes(d, dtype):
    causal = (d in (16, 64, 96, 192)) == (dtype == torch.float16)
    assert_attention(*heads(1, 2, 1, 70, 133, d, dtype), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (1, 200), (200, 1), (64, 64), (65, 127), (129, 128), (191, 63)]
)
def test_lengths_that_tiles_do_not_divide(queries, keys, causal):
    assert_attention(*heads(1, 1, 1, queries, keys, 16, torch.float16), causal)


@pytest.mark.parametrize(("own", "shared"), [(4, 1), (6, 2), (3, 3)])
def test_grouped_heads(own, shared):
    assert_attention(*heads(2, own, shared, 40, 50, 16), True)


@pytest.mark.parametrize("scale", [0.01, 7, 7.0])
def test_a_scale(scale):
    unit = 4 * UNIT[torch.float32]
    assert_attention(*heads(1, 2, 1, 70, 40, 16), True, scale, unit=unit)


def test_large_scores_do_not_overflow():
    q, k, v = heads(1, 1, 1, 90, 90, 16)
    unit = 1e-3  # fp32 has an error of 1e-4 at scores of thousands, and so has the exponential
    assert_attention(30 * q, 30 * k, v, True, unit=unit)  # of both signs
    assert_attention(q, k - 1000 * q.mean(2, keepdim=True), v, unit=unit)


@pytest.mark.parametrize(
    ("n", "hidden", "d", "dtype"),
    [(70, 32, 16, torch.float32), (70, 64, 16, torch.float32), (200, 128, 64, torch.float16)],
)
def test_a_first_tile_whose_scores_are_all_minus_infinity(n, hidden, d, dtype):
    """A running maximum that starts at -inf gives NaN: -inf - -inf."""
    q, k, v = heads(1, 1, 1, n, n, d, dtype)
    q[..., 0], k[..., 0] = 1, 0
    k[:, :, :hidden, 0] = -math.inf
    expected = attention(q.double(), k.double(), v.double())
    assert_near(call(q, k, v), expected, UNIT[dtype])
    leaf = v.clone().requires_grad_()
    (dv,) = torch.autograd.grad(call(q, k, leaf).sum(), leaf)
    exact = v.double().requires_grad_()
    (wanted,) = torch.autograd.grad(attention(q.double(), k.double(), exact).sum(), exact)
    assert_near(dv, wanted, 2 * UNIT[dtype])


def test_finite_inputs_whose_scores_are_below_the_range_of_fp32():
    q, k, v = heads(1, 1, 1, 70, 70, 16)
    q[..., 0], k[..., 0] = 1e20, 0
    k[:, :, :40, 0] = -1e20
    expected = attention(q.double(), k.double(), v.double())
    assert_near(call(q, k, v), expected, 1e-5)


def test_a_query_whose_scores_are_all_minus_infinity_gets_nan_as_in_pytorch():
    q, k, v = heads(1, 1, 1, 5, 7, 16)
    q[..., 0], k[..., 0] = 1, 0
    q[:, :, 2, 0], k[..., 0] = 0, -math.inf
    q[:, :, 2, 1:] = 0
    found, right = call(q, k, v), attention(q, k, v)
    assert torch.equal(found.isnan(), right.isnan())


def exchanged(x):
    """Heads and tokens exchanged in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


VIEWS = {
    "heads and tokens exchanged": exchanged,
    "an address that is not aligned": lambda x: torch.cat([x, x], 3)[..., 1:17],
    "a last stride that is not 1": lambda x: x.mT.contiguous().mT,
    "every second token": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one head for all": lambda x: x[:, :1].expand(-1, x.shape[1], -1, -1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(view):
    """Also twice, and after a call of the same shape: a plan of other strides is not used."""
    q, k, v = heads(1, 2, 2, 40, 40, 16)
    assert_attention(q, k, v, True)
    for _ in range(2):
        assert_attention(*(view(x) for x in (q, k, v)), True)


@pytest.mark.parametrize("view", ["expanded", "heads and tokens exchanged"])
def test_views_of_the_gradient(view):
    inputs = [x.requires_grad_() for x in heads(1, 2, 2, 40, 40, 16)]
    g = torch.ones(()).expand(1, 2, 40, 16)
    if view != "expanded":
        g = exchanged(torch.randn(1, 2, 40, 16))
    o, expected = call(*inputs), attention(*inputs)
    for x, y in zip(
        torch.autograd.grad(o, inputs, g), torch.autograd.grad(expected, inputs, g), strict=True
    ):
        assert_near(x, y.double(), 1e-4)


def test_an_expanded_gradient_makes_a_plan_once(monkeypatch):
    """A plan kept for the dense copy is not found by the gradient that arrived."""
    made = []
    plan_backward = MODULE.plan_backward
    monkeypatch.setattr(
        MODULE, "plan_backward", lambda *given: made.append(1) or plan_backward(*given)
    )
    inputs = [x.requires_grad_() for x in heads(1, 2, 2, 41, 40, 16)]
    for _ in range(3):
        torch.autograd.grad(call(*inputs).sum(), inputs)
    assert len(made) == 1


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_compiled_function_has_the_strides_that_it_was_told(view):
    """PyTorch's compiler reads the result by the strides that the operation describes."""
    inputs = [view(x).requires_grad_() for x in heads(1, 2, 2, 40, 40, 16)]
    torch.compiler.reset()
    compiled = torch.compile(lambda q, k, v: call(q, k, v) * 2, backend="aot_eager", fullgraph=True)
    found, right = compiled(*inputs), 2 * call(*inputs)
    assert torch.equal(found, right)
    g = torch.randn_like(right)
    pairs = zip(
        torch.autograd.grad(found, inputs, g), torch.autograd.grad(right, inputs, g), strict=True
    )
    assert all(torch.equal(a, b) for a, b in pairs)


def test_other_sizes_are_not_compiled_anew():
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, backend=counter, fullgraph=True)
    for queries, keys in ((20, 30), (33, 47), (64, 21), (7, 9)):
        inputs = [x.requires_grad_() for x in heads(1, 2, 1, queries, keys, 16)]
        o, right = compiled(*inputs), call(*inputs)
        assert torch.equal(o, right)
        pairs = zip(*[torch.autograd.grad(y.sum(), inputs) for y in (o, right)], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert counter.frame_count <= 2


def test_a_saved_tensor_that_comes_back_with_other_strides():
    """A hook may keep a view as a contiguous copy; the plan of the view does not fit it."""
    q, k, v = (exchanged(x) for x in heads(1, 2, 2, 40, 40, 16))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.contiguous(), lambda x: x):
        assert_attention(q, k, v, True)


def test_the_same_bits_every_time():
    inputs = [x.requires_grad_() for x in heads(1, 2, 2, 130, 130, 16)]
    results = []
    for _ in range(2):
        o = call(*inputs, True)
        results.append((o, *torch.autograd.grad(o, inputs, torch.ones_like(o))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("q_shape", [(0, 2, 5, 16), (2, 2, 0, 16), (2, 0, 5, 16)])
def test_nothing_gives_nothing(q_shape):
    shapes = q_shape, (q_shape[0], 2, 7, 16), (q_shape[0], 2, 7, 16)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    o = call(*inputs)
    assert o.shape == q_shape
    for gradient in torch.autograd.grad(o.sum(), inputs):
        assert not gradient.any()


Q = torch.randn(1, 2, 5, 16)

REFUSALS = [
    ((Q, Q, Q, 0.1), TypeError, "causal must be True or False, but is 0.1; scale is the next"),
    ((Q, Q, Q, 1.0), TypeError, "causal must be True or False, but is 1.0"),
    ((Q.half(), Q, Q), TypeError, "the dtype of k must be torch.float16 as that of q"),
    ((Q[..., :4], Q, Q), ValueError, "q must have a head_dim that is a multiple of 8"),
    ((*3 * [torch.ones(1, 1, 2, 264)],), ValueError, "up to 256, but has 264"),
    ((torch.randn(1, 3, 5, 16), Q, Q), ValueError, "q must have a multiple of the heads of k"),
    ((Q, Q, Q, False, 0.0), ValueError, "scale must be positive"),
    ((Q, Q, Q, False, "a"), TypeError, "scale must be a number or None, but is a str"),
    ((Q, Q, Q, False, [1.0]), TypeError, "scale must be a number or None, but is a list"),
    ((Q, Q, Q, False, True), TypeError, "scale must be a number or None, but is a bool"),
    ((Q, Q[..., :8], Q), ValueError, "k must have a head_dim of 16 as q, but has 8"),
    ((Q, Q, Q[:, :, :3]), ValueError, "k and v must have one shape"),
    ((Q[0], Q, Q), ValueError, r"q must be \[batch, heads, N, head_dim\]"),
    ((Q, Q, Q, True, 1e-46), ValueError, "scale must be positive and finite in fp32"),
    ((Q, Q, Q, True, 1e39), ValueError, "scale must be positive and finite in fp32"),
    ((Q, Q, Q, True, 10**400), ValueError, "scale must be positive and finite in fp32"),
    ((Q, Q, Q, True, math.nan), ValueError, "scale must be positive and finite in fp32"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            gallery_kernels.attention(*arguments)
        for more in ((), (True,), (False, 1)):
            gallery_kernels.attention(Q, Q, Q, *more)


def test_shared_memory_decides_about_the_tile():
    """On a GPU with 64 KiB for a program, the tiles of a large head dimension shrink."""
    for row_bytes in (32, 256, 512, 1024):
        tile = MODULE.tile_that_fits(MODULE.Tile(128, 64, warps=8, stages=3), row_bytes, 65_536)
        assert 2 * (tile.own + tile.stages * tile.other) * row_bytes <= 65_536
