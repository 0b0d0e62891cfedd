"""Fused attention, in the interpreter, against float64: shapes, views, gradients, refusals."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy

# The norm of the error over the norm of what is expected. Each result and each tile between two
# products is rounded to the dtype once; fp32 is summed in another order than float64. Gradients
# subtract numbers of the same size, one of which comes from the rounded output.
UNIT = {torch.float16: 2**-10, torch.float32: 1e-5}


@pytest.fixture(scope="module")
def page(tutorial):
    return tutorial("06-fused-attention")


def inputs(batch, heads, key_heads, queries, keys, d, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, heads, queries, d, generator=generator)
    k, v = torch.randn(2, batch, key_heads, keys, d, generator=generator)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def exact(q, k, v, causal=False, scale=None, hidden=None):
    """Attention in float64, written without the page; *hidden* marks what is not seen."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        hidden = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None]
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v


def assert_near(actual, expected, unit, name=""):
    error = (actual.double() - expected).norm()
    size = expected.norm() + 0.1 * math.sqrt(expected.numel())
    assert actual.isfinite().all(), name
    assert error <= unit * size, f"{name}: {error / size:.1e}"


def assert_attention(page, q, k, v, causal=False, scale=None, unit=None):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    got, expected = page["attention"](*leaves, causal, scale), exact(*doubles, causal, scale)
    assert got.dtype == q.dtype
    assert got.shape == q.shape
    unit = unit or UNIT[q.dtype]
    assert_near(got, expected, unit, "o")
    do = torch.randn(got.shape, generator=torch.Generator().manual_seed(1)).to(q.dtype)
    grads = torch.autograd.grad(got, leaves, do)
    wanted = torch.autograd.grad(expected, doubles, do.double())
    for name, actual, want in zip(("dq", "dk", "dv"), grads, wanted, strict=True):
        assert actual.dtype == q.dtype
        assert_near(actual, want, 2 * unit, name)


# All dimensions in both dtypes, by turns causal.
@pytest.mark.parametrize(
    ("d", "dtype", "causal"),
    [
        (d, dtype, (i + j) % 2 == 1)
        for i, d in enumerate((16, 32, 64, 128))
        for j, dtype in enumerate(UNIT)
    ],
)
def test_head_dimensions_and_dtypes(page, d, dtype, causal):
    assert_attention(page, *inputs(1, 2, 1, 70, 133, d, dtype), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        (1, 1),
        (1, 200),
        (200, 1),
        (64, 64),
        (65, 127),
        (128, 129),
        (129, 128),
        (191, 63),
        (257, 257),
    ],
)
def test_lengths_that_tiles_do_not_divide(page, queries, keys, causal):
    assert_attention(page, *inputs(1, 1, 1, queries, keys, 16, torch.float16), causal)


@pytest.mark.parametrize(("heads", "key_heads"), [(1, 1), (4, 1), (6, 2), (3, 3)])
def test_grouped_heads(page, heads, key_heads):
    assert_attention(page, *inputs(2, heads, key_heads, 40, 50, 16), True)


@settings(max_examples=8, deadline=None)
@given(
    batch=st.integers(1, 2),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=st.integers(1, 140),
    keys=st.integers(1, 140),
    d=st.sampled_from([16, 32]),
    dtype=st.sampled_from(list(UNIT)),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.01, 1.0, 7.0]),
    seed=st.integers(0, 2**31),
)
def test_any_shape(page, batch, key_heads, group, queries, keys, d, dtype, causal, scale, seed):
    if scale and scale >= 1:  # a weight near 1 leaves differences of fp16 numbers only
        dtype = torch.float32
    sizes = batch, key_heads * group, key_heads, queries, keys, d
    assert_attention(page, *inputs(*sizes, dtype, seed), causal, scale, unit=4 * UNIT[dtype])


def test_large_scores_do_not_overflow(page):
    q, k, v = inputs(1, 1, 1, 90, 90, 16)
    unit = 1e-3  # fp32 is off by 1e-4 at scores of thousands, and the exponential by as much
    assert_attention(page, 30 * q, 30 * k, v, True, unit=unit)  # of both signs
    assert_attention(page, q, k - 1000 * q.mean(2, keepdim=True), v, unit=unit)


def test_a_causal_row_that_sees_one_key_returns_its_value(page):
    q, k, v = inputs(1, 2, 2, 5, 9, 16, torch.float16)
    o = page["attention"](q, k, v, causal=True)
    assert torch.equal(o[:, :, 0], v[:, :, 0])


def test_causal_begins_at_the_first_key_as_in_torch(page):
    for queries, keys in ((20, 70), (70, 20)):
        q, k, v = inputs(1, 1, 1, queries, keys, 16)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.testing.assert_close(page["attention"](q, k, v, True), expected, rtol=1e-4, atol=1e-5)


VIEWS = {
    "heads and tokens exchanged": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "cut out of a wider tensor": lambda x: torch.cat([x, x], 3)[..., 16:],
    "an address that is not aligned": lambda x: torch.cat([x, x], 3)[..., 1:17],
    "a last stride that is not 1": lambda x: x.mT.contiguous().mT,
    "every second token": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one head for all": lambda x: x[:, :1].expand(-1, x.shape[1], -1, -1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views(page, view):
    assert_attention(page, *(view(x) for x in inputs(2, 2, 2, 40, 40, 16)), True)


def test_a_gradient_that_is_a_view(page):
    q, k, v = (x.requires_grad_() for x in inputs(1, 1, 1, 33, 33, 16))
    page["attention"](q, k, v).sum().backward()  # its gradient is one number, expanded
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    exact(*doubles).sum().backward()
    for x, y in zip((q, k, v), doubles, strict=True):
        assert_near(x.grad, y.grad, 2e-5)


def test_the_same_bits_twice(page):
    results = []
    for _ in range(2):
        leaves = [x.requires_grad_() for x in inputs(1, 4, 2, 100, 130, 32, torch.float16)]
        o = page["attention"](*leaves, True)
        results.append((o, *torch.autograd.grad(o, leaves, torch.ones_like(o))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", [(0, 2, 5, 16), (2, 2, 0, 16), (2, 0, 5, 16)])
def test_nothing_to_compute(page, shape):
    q = torch.randn(shape, requires_grad=True)
    k, v = (torch.randn(shape[0], 2, 7, 16, requires_grad=True) for _ in range(2))
    o = page["attention"](q, k, v)
    assert o.shape == shape
    o.sum().backward()
    assert not k.grad.any()


@pytest.mark.parametrize("causal", [False, True])
def test_steps_of_the_page(page, causal):
    q, k, v = inputs(1, 2, 2, 100, 150, 32)
    expected = exact(q.double(), k.double(), v.double(), causal)
    for name, scale in (("online", 1), ("causal", 1), ("base_2", math.log2(math.e))):
        step = page[f"{name}_kernel"]
        o = page["run_step"](step, q, k, v, causal, scale * 32**-0.5, (64, 32))
        assert_near(o, expected, 1e-5, name)


@pytest.mark.parametrize("causal", [False, True])
def test_borders_agree_with_the_mask(page, causal):
    for queries, keys, m, n in ((100, 100, 16, 32), (64, 130, 32, 16), (130, 64, 16, 16)):
        for row in range(0, queries, m):
            whole, stop = page["borders"](row, keys, m, n, causal)
            for col in range(0, keys, n):
                seen = [
                    c < keys and (not causal or c <= r)
                    for r in range(row, row + m)
                    for c in range(col, col + n)
                ]
                assert (col < whole) == all(seen)
                if any(seen):
                    assert col < stop


def test_place_gives_each_block_of_each_head_once_and_the_longest_first(page):
    for blocks, heads, together in ((7, 5, 2), (3, 4, 100), (1, 9, 3), (4, 6, 6)):
        places = [page["place"](i, blocks, heads, together) for i in range(blocks * heads)]
        assert sorted(places) == [(b, h) for b in range(blocks) for h in range(heads)]
        for first in range(0, heads, together):
            section = [b for b, h in places if first <= h < first + together]
            assert section == sorted(section, reverse=True)


def test_plans_fit_the_shared_memory(page):
    for name in ("forward_plan", "query_gradient_plan", "key_gradient_plan"):
        plan = page[name]
        for d in (16, 32, 64, 128):
            for dtype in (torch.float32, torch.bfloat16):
                q = torch.empty(1, 1, 8, d, dtype=dtype, device="meta")
                (own, other), options = plan(q, 4096) if name == "forward_plan" else plan(q)
                used = 2 * (own + options["num_stages"] * other) * d * q.element_size()
                assert used <= page["SHARED_BYTES"]


def wrong_arguments():
    q, k, v = inputs(1, 2, 2, 5, 5, 16)
    half, heads = q.half(), torch.randn(1, 3, 5, 16)
    yield "a list", ([1.0], k, v), TypeError, "q must be a torch.Tensor, but is a list"
    yield "float64", (q.double(), k, v), TypeError, "q must be .* its dtype is torch.float64"
    yield "another dtype", (half, k, v), TypeError, "k must be .* as q, but its dtype"
    yield "three dimensions", (q[0], k, v), ValueError, r"q must be \[batch, heads, N, head_dim\]"
    yield "another device", (q, k.to("meta"), v), ValueError, "k must be on cpu, but is on meta"
    yield "head_dim 8", (q[..., :8], k, v), ValueError, "q must have a head_dim of 16, 32"
    yield "head_dim 256", (torch.randn(1, 1, 2, 256),) * 3, ValueError, "q must have a head_dim"
    yield "two head_dims", (q, torch.cat([k, k], 3), v), ValueError, "k must have a head_dim"
    yield "another batch", (q, *(torch.cat([x, x]) for x in (k, v))), ValueError, "batch of q"
    yield "v unlike k", (q, k, v[:, :, :4]), ValueError, "v must have the shape of k"
    yield "no keys", (q, k[:, :, :0], v[:, :, :0]), ValueError, "k must have heads and keys"
    yield "heads", (heads, k, v), ValueError, "q must have a multiple of the heads of k, 2"
    yield "scale 0", (q, k, v, False, 0.0), ValueError, "scale must be positive"
    yield "scale nan", (q, k, v, False, math.nan), ValueError, "scale must be positive"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [case[1:] for case in wrong_arguments()],
    ids=[case[0] for case in wrong_arguments()],
)
def test_refuses_and_says_why(page, arguments, error, says):
    with pytest.raises(error, match=says):
        page["attention"](*arguments)


@pytest.mark.parametrize("window", [1, 3, 63, 64, 65, 100, 500])
def test_solution_sliding_window(tutorial, window):
    q, k, v = inputs(1, 2, 2, 150, 150, 16)
    distance = torch.arange(150)[:, None] - torch.arange(150)
    hidden = (distance < 0) | (distance >= window)
    expected = exact(q.double(), k.double(), v.double(), hidden=hidden)
    solution = tutorial("solutions/06-sliding-window")
    assert_near(solution["window_attention"](q, k, v, window), expected, 1e-5)
    with pytest.raises(ValueError, match="window must be at least 1"):
        solution["window_attention"](q, k, v, 0)


def test_solution_sliding_window_takes_every_tile_that_is_seen(tutorial):
    borders = tutorial("solutions/06-sliding-window")["borders"]
    for n, window, size in ((100, 7, 16), (64, 100, 16), (90, 33, 16)):
        for row in range(0, n, size):
            start, first, last, stop = borders(row, n, window, size, size)
            for col in range(0, n, size):
                seen = [
                    c < n and 0 <= r - c < window
                    for r in range(row, row + size)
                    for c in range(col, col + size)
                ]
                if any(seen[: (min(n, row + size) - row) * size]):
                    assert start <= col < stop
                if first <= col < last:
                    assert all(seen)


@pytest.mark.parametrize("n", [1, 63, 130])
def test_solution_alibi(tutorial, n):
    solution = tutorial("solutions/06-alibi")
    q, k, v = inputs(2, 3, 3, n, n, 16)
    slopes = torch.tensor([0.5, 0.01, 2.0])
    distance = torch.arange(n)[:, None] - torch.arange(n)
    scores = q.double() @ k.double().mT * 16**-0.5 - slopes.double()[:, None, None] * distance
    expected = scores.masked_fill(distance < 0, -math.inf).softmax(-1) @ v.double()
    assert_near(solution["alibi_attention"](q, k, v, slopes), expected, 1e-5)
    with pytest.raises(ValueError, match="slopes must have one number a head, 3"):
        solution["alibi_attention"](q, k, v, slopes[:2])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "key_heads"), [(8, 1), (6, 2), (2, 2)])
def test_solution_grouped_heads(tutorial, heads, key_heads, causal):
    q, k, v = inputs(2, heads, key_heads, 37, 90, 16)
    expected = exact(q.double(), k.double(), v.double(), causal)
    grouped = tutorial("solutions/06-grouped-heads")["grouped_attention"]
    assert_near(grouped(q, k, v, causal), expected, 1e-5)
    assert_near(
        grouped(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, causal), expected, 1e-5
    )


@pytest.mark.parametrize("keys", [1, 127, 128, 129, 1000])
@pytest.mark.parametrize(("batch", "heads", "key_heads"), [(1, 8, 1), (3, 4, 2), (1, 20, 1)])
def test_solution_decode(tutorial, batch, heads, key_heads, keys):
    q, k, v = inputs(batch, heads, key_heads, 1, keys, 16)
    decode = tutorial("solutions/06-decode")["decode_attention"]
    expected = exact(q.double(), k.double(), v.double())
    assert_near(decode(q, k, v), expected, 1e-5)
    with pytest.raises(ValueError, match="q must have one query a head, but has 2"):
        decode(torch.cat([q, q], 2), k, v)
