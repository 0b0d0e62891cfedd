"""Cross-entropy, in the interpreter, against float64: shapes, limits, gradients, refusals."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

# A probability is off by a few units of 2**-24 times its logit; fp16 rounds to 11 bits.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2**-10}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinities


@pytest.fixture(scope="module")
def page(tutorial):
    return tutorial("10-cross-entropy")


def expected(logits, targets, ignore_index=-100):
    """Loss and gradient in float64."""
    exact = logits.detach().double().requires_grad_()
    loss = functional.cross_entropy(exact, targets.long(), ignore_index=ignore_index)
    (gradient,) = torch.autograd.grad(loss, exact)
    return loss.detach(), gradient


def assert_cross_entropy(page, logits, targets, **options):
    logits = logits.detach().requires_grad_()
    loss = page["cross_entropy"](logits, targets, **options)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.dtype == torch.float32
    assert loss.shape == ()
    assert gradient.dtype == logits.dtype
    right, wanted = expected(logits, targets, **options)
    rtol = TOLERANCES[logits.dtype]
    torch.testing.assert_close(loss.double(), right, rtol=1e-5, atol=1e-6, equal_nan=True)
    # Where 1 is subtracted from a probability, the error is relative to 1 / n. Below 2**-14, fp16
    # has steps of 2**-24.
    atol = max(rtol / len(targets), 2**-24 if logits.dtype == torch.float16 else 0)
    torch.testing.assert_close(gradient.double(), wanted, rtol=rtol, atol=atol, equal_nan=True)


def drawn(m, v, dtype=torch.float32, ignored=True):
    logits = (3 * torch.randn(m, v)).to(dtype)
    targets = torch.randint(0, v, (m,))
    if ignored:
        targets[1::3] = -100
    return logits, targets


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("m", "v"),
    [*((9, v) for v in (1, 2, 3, 7, 8, 15, 16, 17, 781, 4096, 4104)), (3, 10001), (2, 50257)]
    + [(1, 1), (1, 17), (1, 781)],
)
def test_against_float64(page, m, v, dtype):
    assert_cross_entropy(page, *drawn(m, v, dtype))


@settings(max_examples=20, deadline=None)
@given(
    m=st.integers(1, 12),
    v=st.integers(1, 5000),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    half=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_any_shape(page, m, v, scale, half, seed):
    torch.manual_seed(seed)
    logits = (scale * torch.randn(m, v)).to(torch.float16 if half else torch.float32)
    targets = torch.randint(0, v, (m,))
    targets[torch.rand(m) < 0.2] = -100
    assert_cross_entropy(page, logits, targets)


def test_no_rows(page):
    assert page["cross_entropy"](torch.empty(0, 5), torch.empty(0, dtype=torch.int64)).isnan()


def test_no_row_counts(page):
    assert_cross_entropy(page, torch.randn(3, 7), torch.full((3,), -100))


def test_another_index_is_ignored_and_may_be_a_word(page):
    logits, targets = drawn(6, 20, ignored=False)
    targets[2] = 3
    assert_cross_entropy(page, logits, targets, ignore_index=3)


def test_targets_of_32_bits(page):
    logits, targets = drawn(6, 20)
    assert_cross_entropy(page, logits, targets.int())


VIEWS = {
    "odd columns of even rows": lambda x: x[:, 3:70],
    "aligned columns of aligned rows": lambda x: x[:, :64],
    "every third row": lambda x: x[::3],
    "one row repeated": lambda x: x[:1].expand(4, -1),
    "begins in the middle of sixteen bytes": lambda x: x.flatten()[3 : 3 + 5 * 33].view(5, 33),
    "one column": lambda x: x[:, 5:6],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("width", [80, 81])
def test_views(page, view, width):
    logits = view(torch.randn(13, width))
    assert_cross_entropy(page, logits, torch.randint(0, logits.shape[1], (len(logits),)))


def test_groups_of_sixteen_bytes_are_used_where_rows_allow_it(page):
    plan = page["plan"]
    assert plan(torch.empty(4, 50257))["GROUP"] == 4
    assert plan(torch.empty(4, 50257, dtype=torch.float16))["GROUP"] == 8
    assert (
        plan(torch.empty(4, 50264, dtype=torch.float16))["GROUP"] == 8
    )  # 8 divides it, 16 does not
    assert plan(torch.empty(4, 4096))["GROUP"] == 1  # whole already
    assert plan(torch.empty(4, 82)[:, :81])["GROUP"] == 1  # the gradient lies otherwise
    assert plan(torch.empty(200)[1:163].view(2, 81))["GROUP"] == 1  # begins between groups


def test_infinities_as_torch(page):
    logits = torch.randn(5, 3000)
    logits[0] = -math.inf  # nothing is possible: NaN
    logits[1, :2500] = -math.inf  # whole blocks
    logits[2, 17] = -math.inf
    logits[3, 5] = math.inf
    targets = torch.tensor([1, 2700, 18, 7, 9])
    for row in range(5):
        assert_cross_entropy(page, logits[row : row + 1], targets[row : row + 1])
    logits[4, 9] = -math.inf  # the target itself is impossible
    assert page["cross_entropy"](logits[4:], targets[4:]) == math.inf


def test_does_not_overflow(page):
    logits = torch.tensor([[1e30, 1e30, -1e30], [3e38, -3e38, 0.0]])
    torch.testing.assert_close(
        page["cross_entropy"](logits, torch.tensor([0, 0])).item(), math.log(2) / 2
    )


@pytest.mark.parametrize("factor", [1.0, 0.0, -2.5, 1024.0])
def test_gradient_of_a_multiple(page, factor):
    logits, targets = drawn(5, 781)
    wanted = factor * expected(logits, targets)[1]
    logits.requires_grad_()
    (factor * page["cross_entropy"](logits, targets)).backward()
    torch.testing.assert_close(logits.grad.double(), wanted, rtol=1e-5, atol=1e-5)


def test_fp16_keeps_gradients_that_a_scaler_can_save(page):
    """A probability of 1e-5, divided by 512 rows, is zero in fp16; times 65536 it is not."""
    logits = torch.zeros(512, 2, dtype=torch.float16)
    logits[:, 0] = 11.5
    targets = torch.zeros(512, dtype=torch.int64)
    wanted = 65536 * expected(logits, targets)[1]
    logits.requires_grad_()
    (65536.0 * page["cross_entropy"](logits, targets)).backward()
    assert (logits.grad[:, 1] > 0).all()
    torch.testing.assert_close(logits.grad.double(), wanted, rtol=2e-3, atol=2e-6)


def test_leaves_the_logits_alone(page):
    logits, targets = drawn(5, 781)
    before = logits.clone()
    page["cross_entropy"](logits.requires_grad_(), targets).backward()
    assert torch.equal(logits.detach(), before)


def test_in_place_gives_the_same(page):
    x, targets = drawn(5, 781)
    wanted = expected(x, targets)[1]
    x.requires_grad_()
    logits = x * 1
    page["cross_entropy"](logits, targets, inplace=True).backward()
    torch.testing.assert_close(x.grad.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits.detach(), x.grad)


def test_in_place_without_a_gradient_changes_nothing(page):
    logits, targets = drawn(5, 781)
    before = logits.clone()
    page["cross_entropy"](logits, targets, inplace=True)
    assert torch.equal(logits, before)


def test_in_place_is_told_to_autograd(page):
    """tanh needs its result for its own derivative, and that result is gone."""
    x, targets = drawn(5, 30)
    logits = torch.tanh(x.requires_grad_())
    loss = page["cross_entropy"](logits, targets, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_no_backward_twice_and_no_second_derivative(page):
    logits, targets = drawn(5, 30)
    loss = page["cross_entropy"](logits.requires_grad_(), targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="cross_entropy: backward was called twice"):
        loss.backward()
    x = logits.detach().requires_grad_()
    with pytest.raises(RuntimeError, match="cross_entropy: there is no second derivative"):
        torch.autograd.grad(page["cross_entropy"](x, targets), x, create_graph=True)


def test_the_gradient_is_not_copied_into_grad(page):
    """What the kernel wrote becomes ``.grad`` itself: a copy would cost two transfers."""
    logits, targets = drawn(8, 781)
    logits.requires_grad_()
    loss = page["cross_entropy"](logits, targets)
    (kept,) = loss.grad_fn.gradients
    address = kept.data_ptr()
    del kept
    loss.backward()
    assert logits.grad.data_ptr() == address


def test_steps_on_the_way(page):
    for v in (1, 781, 10000):
        logits, targets = drawn(5, v)
        for step in ("by_two_kernels", "step_2", "step_3"):
            loss, gradient = page[step](logits, targets)
            right, wanted = expected(logits, targets)
            torch.testing.assert_close(loss.double(), right, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(gradient.double(), wanted, rtol=1e-5, atol=1e-5)


X, T = torch.randn(4, 6), torch.tensor([0, 1, 2, -100])


@pytest.mark.parametrize(
    ("logits", "targets", "options", "error", "says"),
    [
        ([1.0], T, {}, TypeError, "logits must be a torch.Tensor, but is a list"),
        (X.double(), T, {}, TypeError, "logits must be .* its dtype is torch.float64"),
        (X[0], T, {}, ValueError, r"logits must be a matrix .* shape \(6,\)"),
        (X[:, :0], T, {}, ValueError, r"at least one column, but has shape \(4, 0\)"),
        (X.T.contiguous().T, T, {}, ValueError, "rows of logits must be contiguous"),
        (X.to("meta"), T, {}, ValueError, "logits must be on cpu, but is on meta"),
        (X, [0], {}, TypeError, "targets must be a torch.Tensor, but is a list"),
        (X, T.float(), {}, TypeError, "targets must be int64 or int32"),
        (X, T[:3], {}, ValueError, r"targets must have .* shape \(4,\), but has shape \(3,\)"),
        (X, T.repeat(2)[::2], {}, ValueError, "targets must be contiguous"),
        (X, torch.tensor([0, 6, 0, 0]), {}, ValueError, r"from 0 to 5, .* but targets\[1\] is 6"),
        (X, torch.tensor([0, 0, 0, -1]), {}, ValueError, r"but targets\[3\] is -1"),
        (X, T, {"ignore_index": 0.5}, TypeError, "ignore_index must be an int, but is a float"),
    ],
)
def test_refuses_and_says_why(page, logits, targets, options, error, says):
    with pytest.raises(error, match=says):
        page["cross_entropy"](logits, targets, **options)


def test_refuses_to_overwrite_the_only_copy(page):
    with pytest.raises(ValueError, match="inplace=True, logits must be the result of a layer"):
        page["cross_entropy"](X.clone().requires_grad_(), T, inplace=True)
    wide = (torch.randn(4, 9).requires_grad_() * 1)[:, :6]
    with pytest.raises(ValueError, match="inplace=True, logits must be contiguous"):
        page["cross_entropy"](wide, T, inplace=True)


# The last layer


def assert_layer(page, x, weight, targets, **options):
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    right = functional.cross_entropy(exact[0] @ exact[1].T, targets)
    wanted = torch.autograd.grad(right, exact)
    ours = [t.detach().requires_grad_() for t in (x, weight)]
    loss = page["linear_cross_entropy"](*ours, targets, **options)
    found = torch.autograd.grad(loss, ours)
    torch.testing.assert_close(loss.double(), right.detach(), rtol=1e-5, atol=1e-6, equal_nan=True)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@settings(max_examples=12, deadline=None)
@given(
    m=st.integers(1, 20),
    k=st.integers(1, 30),
    v=st.integers(1, 600),
    piece=st.integers(1, 25),
    seed=st.integers(0, 2**31),
)
def test_layer_of_any_shape(page, m, k, v, piece, seed):
    torch.manual_seed(seed)
    targets = torch.randint(0, v, (m,))
    targets[torch.rand(m) < 0.2] = -100
    targets[0] = 0
    assert_layer(page, torch.randn(m, k), torch.randn(v, k), targets, piece=piece)


def test_layer_at_the_limits(page):
    layer = page["linear_cross_entropy"]
    none = torch.empty(0, dtype=torch.int64)
    weight = torch.randn(5, 3).requires_grad_()
    loss = layer(torch.empty(0, 3), weight, none)
    loss.backward()
    assert loss.isnan()
    assert weight.grad.tolist() == torch.zeros(5, 3).tolist()
    ignored = torch.full((4,), -100)
    x, weight = torch.randn(4, 3).requires_grad_(), torch.randn(5, 3).requires_grad_()
    loss = layer(x, weight, ignored)
    loss.backward()
    assert loss.isnan()
    assert not x.grad.any()
    assert not weight.grad.any()


def test_layer_of_views(page):
    x, weight = torch.randn(3, 8).T, torch.randn(3, 50).T
    assert_layer(page, x, weight, torch.randint(0, 50, (8,)), piece=3)


@pytest.mark.parametrize("which", [(True, False), (False, True), (False, False)])
def test_layer_gives_the_gradients_that_are_wanted(page, which):
    x, weight = torch.randn(7, 3), torch.randn(50, 3)
    targets = torch.randint(0, 50, (7,))
    for t, wanted in zip((x, weight), which, strict=True):
        t.requires_grad_(wanted)
    loss = page["linear_cross_entropy"](x, weight, targets, piece=3)
    assert loss.requires_grad == any(which)
    if any(which):
        (2 * loss).backward()
        for t, wanted in zip((x, weight), which, strict=True):
            assert (t.grad is not None) == wanted
    right = functional.cross_entropy(x @ weight.T, targets)
    torch.testing.assert_close(loss, right.detach(), check_dtype=False)


def test_layer_never_holds_all_logits(page, monkeypatch):
    """No tensor of the layer is larger than the logits of one piece, or than a gradient."""
    largest = []
    empty = torch.empty

    def noting(*args, **kwargs):
        tensor = empty(*args, **kwargs)
        largest.append(tensor.numel())
        return tensor

    monkeypatch.setattr(torch, "empty", noting)
    x, weight = torch.randn(25, 4).requires_grad_(), torch.randn(300, 4).requires_grad_()
    page["linear_cross_entropy"](x, weight, torch.randint(0, 300, (25,)), piece=10).backward()
    assert max(largest) == 10 * 300


W = torch.randn(9, 6)


@pytest.mark.parametrize(
    ("x", "weight", "options", "error", "says"),
    [
        (X.half(), W, {}, TypeError, "x must be bfloat16 or float32"),
        (X, W.half(), {}, TypeError, "weight must be bfloat16 or float32"),
        (X, W.bfloat16(), {}, TypeError, "weight must be torch.float32 as x is"),
        (X[0], W, {}, ValueError, r"x must be a matrix, but has shape \(6,\)"),
        (X, W[:, :5], {}, ValueError, "weight must have as many columns as x, 6"),
        (X, W[:0], {}, ValueError, "weight must have at least one row"),
        (X, W[:2], {}, ValueError, r"targets must be from 0 to 1, .* but targets\[2\] is 2"),
        (X, W, {"piece": 0}, ValueError, "piece must be 1 or more, but is 0"),
        (X, W, {"piece": 2.0}, TypeError, "piece must be an int or None, but is a float"),
    ],
)
def test_layer_refuses_and_says_why(page, x, weight, options, error, says):
    with pytest.raises(error, match=says):
        page["linear_cross_entropy"](x, weight, T, **options)


def test_solutions(tutorial):
    """The scripts check themselves; here are limits that they leave out."""
    smoothed = tutorial("solutions/10-label-smoothing")["smoothed_cross_entropy"]
    with pytest.raises(ValueError, match="smoothing must be from 0 to 1, but is 2"):
        smoothed(torch.randn(2, 5), torch.tensor([0, 1]), 2)
    with pytest.raises(ValueError, match="logits must be contiguous"):
        smoothed(torch.randn(5, 2).T, torch.tensor([0, 1]), 0.1)
    z_loss = tutorial("solutions/10-z-loss")["cross_entropy_with_z_loss"]
    logits, targets = drawn(4, 33)
    right, wanted = expected(logits, targets)
    loss, gradient = z_loss(logits, targets, alpha=0.0)
    torch.testing.assert_close(loss.double(), right, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-5, atol=1e-5)


def test_the_least_of_all_logits(page):
    """Rows of the smallest finite number are rows of equal numbers."""
    logits = torch.full((2, 5), torch.finfo(torch.float32).min)
    loss = page["cross_entropy"](logits, torch.tensor([0, 4]))
    assert loss.item() == pytest.approx(math.log(5))
