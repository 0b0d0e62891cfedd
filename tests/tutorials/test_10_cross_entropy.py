"""Cross-entropy, in the interpreter, against float64."""

import math

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.tutorials.launches import launches_of

# A probability has an error of a few units of 2**-24 times its logit; fp16 rounds to 11 bits.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2**-10}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinities


def drawn(m, v, dtype=torch.float32):
    """Random logits and targets, a third of which do not count."""
    targets = torch.randint(0, v, (m,))
    targets[1::3] = -100
    return (3 * torch.randn(m, v)).to(dtype), targets


def assert_loss(found, logits, targets, ignore_index=-100):
    """Compare a loss and its gradient with float64."""
    loss, gradient = found
    assert (loss.dtype, loss.shape, gradient.dtype) == (torch.float32, (), logits.dtype)
    exact = logits.detach().double().requires_grad_()
    right = functional.cross_entropy(exact, targets.long(), ignore_index=ignore_index)
    (wanted,) = torch.autograd.grad(right, exact)
    assert_close(loss.double(), right, rtol=1e-5, atol=1e-6, equal_nan=True)
    # At a target 1 is subtracted, so the error is relative to 1 / n. Below 2**-14, fp16 has steps
    # of 2**-24.
    rtol = TOLERANCES[logits.dtype]
    atol = max(rtol / len(targets), 2**-24 if logits.dtype == torch.float16 else 0)
    assert_close(gradient.double(), wanted, rtol=rtol, atol=atol, equal_nan=True)


def assert_cross_entropy(page, logits, targets, **options):
    logits = logits.detach().requires_grad_()
    for _ in range(2):  # the second call uses the plan of the first
        loss = page["cross_entropy"](logits, targets, **options)
    (half,) = torch.autograd.grad(loss / 2, logits)
    assert_loss((loss, 2 * half), logits, targets, **options)


# One column, around groups of 16 bytes and around blocks, and whole vocabularies.
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("m", "v"),
    [(9, v) for v in (1, 3, 8, 15, 16, 17, 781, 4096, 4104)] + [(1, 1), (3, 10001), (2, 50257)],
)
def test_loss_and_gradient(page, m, v, dtype):
    assert_cross_entropy(page, *drawn(m, v, dtype))


def test_targets_that_do_not_count_and_targets_of_32_bits(page):
    nothing = page["cross_entropy"](torch.empty(0, 5), torch.empty(0, dtype=torch.int64))
    assert nothing.isnan()
    logits, targets = drawn(6, 20)
    assert_cross_entropy(page, logits, torch.full((6,), -100))
    assert_cross_entropy(page, logits, targets.int())
    assert_cross_entropy(page, logits, targets.clamp_min(3), ignore_index=3)


VIEWS = {
    "odd columns of even rows": lambda x: x[:, 3:70],
    "aligned columns of aligned rows": lambda x: x[:, :64],
    "every third row": lambda x: x[::3],
    "one row expanded": lambda x: x[:1].expand(4, -1),
    "an address between two groups": lambda x: x.flatten()[3 : 3 + 5 * 33].view(5, 33),
    "one column": lambda x: x[:, 5:6],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("width", [80, 81])
def test_views(page, view, width):
    logits = view(torch.randn(13, width))
    assert_cross_entropy(page, logits, torch.randint(0, logits.shape[1], (len(logits),)))


def test_infinities_and_large_logits_as_in_pytorch(page):
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
        assert_cross_entropy(page, logits[row : row + 1], targets[row : row + 1])
    assert page["cross_entropy"](logits[7:], targets[7:]) == math.inf


def test_only_inplace_overwrites_the_logits_and_autograd_knows(page):
    x, targets = drawn(5, 781)
    for inplace in (False, True):
        leaf = x.clone().requires_grad_()
        logits = leaf * 1
        loss = page["cross_entropy"](logits, targets, inplace=inplace)
        loss.backward()
        assert_loss((loss, leaf.grad), x, targets)
        assert torch.equal(logits.detach(), leaf.grad if inplace else x)
    logits = torch.tanh(x.requires_grad_())  # whose derivative needs the logits
    loss = page["cross_entropy"](logits, targets, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_second_backward_is_refused(page):
    logits, targets = drawn(5, 30)
    loss = page["cross_entropy"](logits.requires_grad_(), targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="cross_entropy: backward was called twice"):
        loss.backward()


def test_a_plan_is_for_calls_that_are_alike(page):
    buffer, targets = 3 * torch.randn(7 * 33 + 3), torch.randint(0, 33, (7,))
    for start in (0, 3, 0):  # another alignment
        for dtype in (torch.float32, torch.float16):
            for index in (-100, 5):
                logits = buffer.to(dtype)[start : start + 7 * 33].view(7, 33)
                assert_cross_entropy(page, logits, targets, ignore_index=index)
                assert_cross_entropy(page, logits, targets.int(), ignore_index=index)
    logits = buffer[: 7 * 33].view(7, 33).requires_grad_()
    with torch.no_grad():  # no gradient is wanted, so none overwrites the logits
        before = logits.clone()
        loss = page["cross_entropy"](logits, targets)
        assert_close(loss, functional.cross_entropy(before, targets))
        assert torch.equal(logits, before)


def test_a_rate_of_the_ceiling_counts_the_bytes_of_the_kernel(page, monkeypatch):
    """Else the kernel seems to exceed one read and one write."""
    counted = []

    def rates(size, calls, unit, amount, **_):
        counted.append((set(calls), amount))
        return []

    monkeypatch.setitem(page, "rates", rates)
    monkeypatch.setitem(page["benchmark"].__globals__, "rates", rates)
    monkeypatch.setitem(page["benchmark"].__globals__, "cross_entropy", lambda x, _: x.sum())
    page["benchmark"](4, 16)
    ((providers, amount),) = counted  # one run, in turns
    assert {"triton", "copy"} <= providers
    assert amount == 3 * 2 * 4 * 16


@pytest.mark.parametrize("v", [8192, 10001, 65537, 65552])
def test_the_plain_function_makes_the_launches_of_the_public_one(page, plain, v, monkeypatch):
    """Those for many rows, that is."""
    monkeypatch.setitem(page["cross_entropy"].__globals__, "FEW", 0)
    logits, targets = drawn(3, v)
    lesson = plain("10-cross-entropy")
    page["PLANS"].clear()
    shown, (loss, gradient) = launches_of(lesson.loss_and_gradient, logits, targets)
    mean = page["cross_entropy"](logits.requires_grad_(), targets)
    (found,) = torch.autograd.grad(mean, logits)
    assert torch.equal(loss, mean)
    assert torch.equal(gradient, found)
    (plan,) = page["PLANS"].values()
    rows = plan[1]
    ((name, grid, numbers, constants),) = [launch for launch in shown if "entropy" in launch[0]]
    assert name == rows.kernel.fn.__name__
    assert (*grid, 1, 1)[:3] == rows.grid
    assert numbers[-len(rows.numbers) :] == rows.numbers
    assert constants == rows.constants


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_few_rows_need_one_launch_and_get_what_three_give(page, dtype, inplace, monkeypatch):
    x, targets = drawn(7, 781, dtype)
    found = []
    for few, launches in ((8, 1), (4, 3)):
        monkeypatch.setitem(page["cross_entropy"].__globals__, "FEW", few)
        page["PLANS"].clear()
        logits = x.clone().requires_grad_() * 1
        loss = page["cross_entropy"](logits, targets, inplace=inplace)
        (plan,) = page["PLANS"].values()
        assert len(plan) == launches
        found.append((loss, *torch.autograd.grad(loss, logits)))
    page["PLANS"].clear()
    assert_close(found[0][0], found[1][0], rtol=1e-6, atol=0)  # the sums have other orders
    assert torch.equal(found[0][1], found[1][1])


def test_in_place_has_a_plan_of_its_own(page):
    """A kernel compiled for fresh memory stores 16 bytes at once; logits may begin anywhere."""
    memory, targets = torch.randn(4 * 30 + 1, requires_grad=True), torch.tensor([3, -100, 0, 29])
    page["PLANS"].clear()
    plans = []
    for inplace in (False, True, False):
        page["cross_entropy"]((memory * 1)[1:].view(4, 30), targets, inplace=inplace)
        plans.append(list(page["PLANS"].values())[-1])
    page["PLANS"].clear()
    assert plans[0] is not plans[1]
    assert plans[1] is plans[2]  # the third call made none


@pytest.mark.parametrize("change", ["zero_", "again"])
def test_logits_that_became_the_gradient_and_changed_are_noticed(page, change):
    x, targets = torch.randn(4, 30, requires_grad=True), torch.tensor([3, -100, 0, 29])
    logits = x * 1
    loss = page["cross_entropy"](logits, targets, inplace=True)
    if change == "again":
        page["cross_entropy"](logits, targets, inplace=True)
    else:
        logits.zero_()
    with pytest.raises(RuntimeError, match="changed in place; pass inplace=False"):
        loss.backward()
