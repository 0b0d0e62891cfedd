"""Cross-entropy and its gradient, against float64."""

import math
import sys

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from gallery_kernels import cross_entropy

MODULE = sys.modules["gallery_kernels.cross_entropy"]

#: A probability has an error of a few units of 2**-24 times its logit; fp16 rounds to 11 bits.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2**-10}


def random_rows(m, v, dtype=torch.float32):
    """Random logits and targets, a third of which do not count."""
    targets = torch.randint(0, v, (m,))
    targets[1::3] = -100
    return (3 * torch.randn(m, v)).to(dtype), targets


def assert_loss(loss, gradient, logits, targets, ignore_index=-100):
    """Compare a loss and its gradient with float64."""
    assert (loss.dtype, loss.shape, gradient.dtype) == (torch.float32, (), logits.dtype)
    exact = logits.detach().double().requires_grad_()
    right = functional.cross_entropy(exact, targets.long(), ignore_index=ignore_index)
    (wanted,) = torch.autograd.grad(right, exact)
    assert_close(loss.double(), right, rtol=1e-5, atol=1e-6, equal_nan=True)
    # At a target 1 is subtracted, so the error is relative to 1 / n. Below 2**-14, fp16 has steps
    # of 2**-24.
    rtol = TOLERANCES[logits.dtype]
    smallest = 2**-24 if logits.dtype == torch.float16 else 0
    atol = max(rtol / len(targets), smallest)
    assert_close(gradient.double(), wanted, rtol=rtol, atol=atol, equal_nan=True)


def assert_cross_entropy(logits, targets, **options):
    logits = logits.detach().requires_grad_()
    for _ in range(2):  # the second call uses the plan of the first
        loss = cross_entropy(logits, targets, **options)
    (half,) = torch.autograd.grad(loss / 2, logits)
    assert_loss(loss, 2 * half, logits, targets, **options)
    with torch.no_grad():
        assert_close(cross_entropy(logits, targets, **options), loss, equal_nan=True)


# One column, around groups of 16 bytes and around blocks, and whole vocabularies.
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("m", "v"),
    [(9, v) for v in (1, 3, 8, 15, 16, 17, 781, 4096, 4104)] + [(1, 1), (3, 10001), (2, 50257)],
)
def test_loss_and_gradient(m, v, dtype):
    assert_cross_entropy(*random_rows(m, v, dtype))


def test_targets_that_do_not_count_and_targets_of_32_bits():
    nothing = cross_entropy(torch.empty(0, 5), torch.empty(0, dtype=torch.int64))
    assert nothing.isnan()
    logits, targets = random_rows(6, 20)
    assert_cross_entropy(logits, torch.full((6,), -100))
    assert_cross_entropy(logits, targets.int())
    assert_cross_entropy(logits, targets.clamp_min(3), ignore_index=3)


VIEWS = {
    "odd columns of even rows": lambda x: x[:, 3:70],
    "aligned columns of aligned rows": lambda x: x[:, :64],
    "every third row": lambda x: x[::3],
    "every second column": lambda x: x[:, ::2],
    "transposed": lambda x: x.T,
    "one row expanded": lambda x: x[:1].expand(4, -1),
    "an address between two groups": lambda x: x.flatten()[3 : 3 + 5 * 33].view(5, 33),
    "one column": lambda x: x[:, 5:6],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("width", [80, 81])
def test_views(view, width):
    logits = view(torch.randn(13, width))
    targets = torch.randint(0, logits.shape[1], (2 * len(logits),))
    assert_cross_entropy(logits, targets[::2])


def test_infinities_and_large_logits_as_in_pytorch():
    logits = torch.randn(8, 3000)
    logits[0] = -math.inf
    logits[1, :2500] = -math.inf  # whole blocks
    logits[2, 17] = -math.inf
    logits[3, 5] = math.inf
    logits[4] = torch.finfo(torch.float32).min  # the smallest finite number
    logits[5, :2] = 1e30
    logits[6, :2] = torch.tensor([3e38, -3e38])
    logits[7, 9] = -math.inf  # at the target
    targets = torch.tensor([1, 2700, 18, 7, 9, 0, 0, 9])
    for row in range(7):
        assert_cross_entropy(logits[row : row + 1], targets[row : row + 1])
    assert cross_entropy(logits[7:], targets[7:]) == math.inf


def test_only_inplace_overwrites_the_logits_and_autograd_knows():
    x, targets = random_rows(5, 781)
    for inplace in (False, True):
        leaf = x.clone().requires_grad_()
        logits = leaf * 1
        loss = cross_entropy(logits, targets, inplace=inplace)
        loss.backward()
        assert_loss(loss, leaf.grad, x, targets)
        assert torch.equal(logits.detach(), leaf.grad if inplace else x)
    logits = torch.tanh(x.requires_grad_())  # whose derivative needs the logits
    loss = cross_entropy(logits, targets, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_in_place_with_a_sign_that_is_still_to_be_changed():
    """The gradient of the copy cannot take the place of the logits."""
    x, targets = random_rows(5, 30)
    leaf = x.clone().requires_grad_()
    logits = torch._neg_view(leaf * -1)
    loss = cross_entropy(logits, targets, inplace=True)
    assert torch.equal(logits.detach(), x)
    loss.backward()
    assert_loss(loss, leaf.grad, x, targets)


def test_a_second_backward_is_refused():
    logits, targets = random_rows(5, 30)
    loss = cross_entropy(logits.requires_grad_(), targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="cross_entropy: backward was called twice"):
        loss.backward()


def test_a_second_derivative_of_the_operation_is_refused():
    """The gradient is a result of the operation; one that flows into it must not be lost."""
    logits, targets = random_rows(2, 5)
    once = torch.func.grad(lambda x: cross_entropy(x, targets))
    with pytest.raises(RuntimeError, match="cross_entropy has no second derivative"):
        torch.func.grad(lambda x: once(x).square().sum())(logits)


def test_a_plan_is_for_calls_that_are_alike():
    buffer, targets = 3 * torch.randn(7 * 33 + 3), torch.randint(0, 33, (7,))
    for start in (0, 3, 0):  # another alignment
        for dtype in (torch.float32, torch.float16):
            for index in (-100, 5):
                logits = buffer.to(dtype)[start : start + 7 * 33].view(7, 33)
                assert_cross_entropy(logits, targets, ignore_index=index)
                assert_cross_entropy(logits, targets.int(), ignore_index=index)
    logits = buffer[: 7 * 33].view(7, 33).requires_grad_()
    with torch.no_grad():  # no gradient is wanted, so none overwrites the logits
        before = logits.clone()
        loss = cross_entropy(logits, targets)
        assert_close(loss, functional.cross_entropy(before, targets))
        assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_few_rows_need_one_launch_and_get_what_three_give(dtype, inplace, monkeypatch):
    x, targets = random_rows(7, 781, dtype)
    results = []
    for few, launches in ((8, 1), (4, 3)):
        monkeypatch.setattr(MODULE, "FEW_ROWS", few)
        monkeypatch.setattr(MODULE, "PLANS", MODULE.Plans())
        logits = x.clone().requires_grad_() * 1
        loss = cross_entropy(logits, targets, inplace=inplace)
        (plan,) = MODULE.PLANS._plans.values()
        assert len(plan.with_gradient.launches) == launches
        results.append((loss, *torch.autograd.grad(loss, logits)))
    assert_close(results[0][0], results[1][0], rtol=1e-6, atol=0)  # the sums have other orders
    assert torch.equal(results[0][1], results[1][1])


def test_in_place_has_a_plan_of_its_own(monkeypatch):
    """A kernel compiled for fresh memory stores 16 bytes at once; logits may begin anywhere."""
    memory, targets = torch.randn(4 * 30 + 1, requires_grad=True), torch.tensor([3, -100, 0, 29])
    monkeypatch.setattr(MODULE, "PLANS", MODULE.Plans())
    counts = []
    for inplace in (False, True, False):
        cross_entropy((memory * 1)[1:].view(4, 30), targets, inplace=inplace)
        counts.append(len(MODULE.PLANS))
    assert counts == [1, 2, 2]


@pytest.mark.parametrize("change", ["zero_", "again"])
def test_logits_that_became_the_gradient_and_changed_are_noticed(change):
    x, targets = torch.randn(4, 30, requires_grad=True), torch.tensor([3, -100, 0, 29])
    logits = x * 1
    loss = cross_entropy(logits, targets, inplace=True)
    if change == "again":
        cross_entropy(logits, targets, inplace=True)
    else:
        logits.zero_()
    with pytest.raises(RuntimeError, match="changed in place; pass inplace=False"):
        loss.backward()


def test_a_compiled_mean_of_many_rows_in_fp16_keeps_small_gradients():
    """A share of 1 / n in fp16 has few bits, or none; a factor in fp32 has all."""
    n = 3000
    logits = torch.zeros(n, 2).half().requires_grad_()
    targets = torch.zeros(n, dtype=torch.int64)
    torch.compiler.reset()
    compiled = torch.compile(cross_entropy, backend="aot_eager", fullgraph=True)
    (found,) = torch.autograd.grad(1e3 * compiled(logits, targets), logits)
    (right,) = torch.autograd.grad(1e3 * cross_entropy(logits, targets), logits)
    assert torch.equal(found, right)
    assert_close(found[:, 1].double(), torch.full((n,), 500 / n).double(), rtol=2**-10, atol=0)


def test_without_gradients_no_operation_makes_one():
    """The gradient needs as much memory as the logits."""
    logits, targets = random_rows(5, 30)
    with torch.no_grad():
        graph = torch.fx.experimental.proxy_tensor.make_fx(
            lambda x: torch.ops.gallery_kernels.cross_entropy(x, targets, -100, False)[1]
        )(logits)
        assert graph(logits).numel() == 0


def test_inplace_is_refused_in_a_compiled_function():
    logits, targets = random_rows(5, 30)
    with pytest.raises(ValueError, match="inplace=True is only for ordinary calls"):
        torch.func.grad(lambda x: cross_entropy(x * 1, targets, -100, True))(logits)


LOGITS, TARGETS = torch.randn(4, 6), torch.tensor([0, 1, 2, -100])

REFUSALS = [
    (([1.0], TARGETS), TypeError, "logits must be a torch.Tensor, but is a list"),
    ((LOGITS.double(), TARGETS), TypeError, "dtype of logits must be .* but is torch.float64"),
    ((LOGITS.to("meta"), TARGETS), ValueError, "logits must be on .* but is on meta"),
    ((LOGITS, TARGETS.to("meta")), ValueError, "targets must be on .* but is on meta"),
    ((LOGITS, TARGETS + 4), ValueError, r"from 0 to 5, .* but targets\[2\] is 6"),
    ((LOGITS.clone().requires_grad_(), TARGETS, -100, True), ValueError, "result of a layer"),
    ((LOGITS.bfloat16(), TARGETS), TypeError, "the dtype of logits is torch.bfloat16"),
    ((LOGITS, TARGETS, True), TypeError, "ignore_index must be an int, but is a bool"),
    ((LOGITS, TARGETS, 1.0), TypeError, "ignore_index must be an int, but is a float"),
    ((LOGITS, TARGETS, [1]), TypeError, "ignore_index must be an int, but is a list"),
    ((LOGITS, TARGETS.int(), 2**32 - 100), ValueError, "ignore_index .* of torch.int32"),
    ((LOGITS, TARGETS, 2**63), ValueError, "ignore_index must be a number of torch.int64"),
    ((LOGITS, TARGETS.tolist()), TypeError, "targets must be a torch.Tensor"),
    ((LOGITS, TARGETS.float()), TypeError, "dtype of targets must be torch.int64 or torch.int32"),
    ((LOGITS, TARGETS[:3]), ValueError, r"shape \(4,\), but has shape \(3,\)"),
    ((LOGITS[0], TARGETS), ValueError, r"a matrix with .* shape \(6,\)"),
    ((LOGITS[:, :0], TARGETS), ValueError, r"a matrix with .* shape \(4, 0\)"),
    ((LOGITS[:, :5], TARGETS, -100, True), ValueError, "with inplace=True, logits must be c"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            cross_entropy(*arguments)
        cross_entropy(LOGITS, TARGETS)
        cross_entropy(LOGITS * 1, TARGETS, -100, True)
        cross_entropy(LOGITS, TARGETS.int())


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("m", "v"), [(64, 131_072), (257, 50_257), (300, 32_768), (4096, 4097), (1, 200_003)]
)
def test_full_sizes(m, v, dtype, gpu):
    logits, targets = random_rows(m, v, dtype)
    logits, targets = logits.to(gpu).requires_grad_(), targets.to(gpu)
    exact = logits.detach().double().requires_grad_()
    right = functional.cross_entropy(exact, targets)
    (wanted,) = torch.autograd.grad(right, exact)
    rtol = max(2e-5, torch.finfo(dtype).eps)
    for inplace in (False, True):
        loss = cross_entropy(logits.clone(), targets, inplace=inplace)
        (found,) = torch.autograd.grad(loss, logits)
        assert_close(loss.double(), right.detach(), rtol=1e-5, atol=1e-6)
        largest = wanted.abs().max().item()
        assert_close(found.double(), wanted, rtol=rtol, atol=rtol * largest)


@pytest.mark.gpu
def test_rows_past_32_bits_of_offsets(gpu):
    logits = torch.randn(70_000, 50_257, dtype=torch.bfloat16, device=gpu)
    targets = torch.full((70_000,), -100, device=gpu)
    targets[-1] = 7
    logits.requires_grad_()
    loss = cross_entropy(logits, targets)
    assert_close(loss.double(), functional.cross_entropy(logits[-1:].double(), targets[-1:]))
    (found,) = torch.autograd.grad(loss, logits)
    assert_close(found[-1].float().sum(), torch.zeros((), device=gpu), rtol=0, atol=1e-2)
    assert found[-1, 7] < -0.9
    assert not found[:3].any()
