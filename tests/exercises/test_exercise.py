"""The check of exercises: it accepts our solutions, and says what is wrong with other answers."""

import re
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from exercises import attention, weights
from exercises.check import check as check_module
from exercises.table import EXERCISES
from tests.exercises.small_exercises import SMALL
from tests.galleries import FILES
from triton_watch.watch import Watch


def check(name, function):
    """What the check of the exercise *name* says of *function*."""
    module = SimpleNamespace(__name__="mine")
    setattr(module, EXERCISES[name].name, function)
    return check_module(name, module)


#: ``make test`` tries these, and ``make test-stress`` all.
QUICK = "01-axpy", "02-log-softmax", "05-group-norm", "06-alibi", "09-per-tensor", "10-z-loss"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.stress)
        for name, one in EXERCISES.items()
        if f"solutions/{name}" in FILES and not one.gpu
    ],
)
def test_our_solution_is_accepted(name, tutorial, capsys):
    function = tutorial(f"solutions/{name}")[EXERCISES[name].name]
    assert check(name, function) == ""
    printed = capsys.readouterr().out
    assert "is right on" in printed
    assert "bytes have to move" in printed


def changed(name, change):
    """The reference of an exercise; *change* spoils the result, and gets the arguments as well."""
    return lambda *arguments: change(EXERCISES[name].reference(*arguments), *arguments)


def leave_empty(result, x, g, offsets):
    result[offsets.diff(prepend=offsets[:1] * 0) == 0] = torch.nan
    return result


def fill_ignored(result, logits, targets, smoothing):
    result[1][targets == -100] = 1.0
    return result


def forget_mask(x, weight, bias, p, seed):
    """Dropout of a norm whose gradients ignore the mask."""
    y = layer_norm(x, weight.shape, weight, bias)
    keep = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed % 97)) >= p
    return y + (y * keep / (1 - p) - y).detach()


WRONG = {
    "01-axpy": [
        (lambda a, x, y: x + y, "All are wrong"),
        (lambda a, x, y: (a * x + y).half(), "dtype is torch.float16"),
        (lambda a, x, y: (a * x + y)[:-1], r"shape is \(0,\)"),
        (lambda a, x, y: None, "NoneType, and not a tensor"),
        (lambda a, x, y: 1 / 0, "ends with ZeroDivisionError"),
        (None, r"mine defines no axpy\(a, x, y\)"),
    ],
    "01-strides": [(lambda x, y: torch.empty(len(x)), "no program has written")],
    "03b-waves": [(lambda tiles, processors: tiles / processors, r"\(85, 84\): 1 of 1")],
    "05-residual": [
        (lambda x, r, w, b: layer_norm(x + r, w.shape, w, b), "6: y, the sum, .* and there are 5"),
        (lambda x, r, w, b: (layer_norm(x + r, w.shape, w, b), x.detach() + r), "gradient of x: "),
    ],
    "05-dropout": [(forget_mask, "of x.* draw the numbers of forward")],
    "06-sliding-window": [(lambda q, k, v, w: attention.windowed(q, k, v, w + 1), "far edge")],
    "06-alibi": [(lambda q, k, v, s: attention.penalized(q, k, v, -s), r"heads \[0, 1, 2\]")],
    "07-gelu-backward": [(lambda x, way: gelu(x.detach(), approximate=way), "no gradient")],
    "08-backward": [(changed("08-backward", leave_empty), "Experts without tokens .* zero")],
    "08-gate": [(lambda x, a, b, o: weights.gated_experts(x, b, a, o), "rows, of the experts")],
    "09-per-tensor": [
        (lambda x: x, "is the memory of its input x"),
        (lambda x: 1 * x, "should return two tensors"),
        (lambda x: ((64 * x).to(torch.float8_e4m3fn), torch.tensor(1 / 64)), "should become 448"),
    ],
    "10-label-smoothing": [(changed("10-label-smoothing", fill_ignored), "rows that do not count")],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused_with_its_cause(name):
    for function, message in WRONG[name]:
        found = check(name, function)
        assert re.search(message, found, re.DOTALL), found


def test_fp8_is_rounded_as_on_a_gpu(tutorial):
    """The interpreter alone loses the carry of 1.99, so it would refuse right answers."""
    names = tutorial("solutions/09-per-tensor")
    x = torch.tensor([448.0, 1.99, 3.99, -15.9, 2**-9, 0.0011, 1e9]).repeat(3)
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    largest = torch.tensor(448.0).view(torch.int32)  # a scale of 1
    more = {"BLOCK": 32, "EMULATE": False}
    with Watch() as watch:
        names["round_kernel"][(1,)](x, q, largest, torch.empty(()), len(x), **more)
    assert torch.equal(q.float(), x.clamp(max=448).to(torch.float8_e4m3fn).float())
    assert (watch.loaded, watch.stored) == (4 * len(x) + 4, len(x) + 4)


def test_work_that_can_be_skipped_is_noticed(tutorial):
    """A causal kernel without a window computes tiles before it, and reads keys for each head."""
    alibi = tutorial("solutions/06-alibi")["alibi_attention"]

    def causal(q, k, v, *more):
        k, v = (x.expand(q.shape[0], q.shape[1], *x.shape[2:]).contiguous() for x in (k, v))
        q = torch.cat([q, q.new_zeros(*q.shape[:2], k.shape[2] - q.shape[2], q.shape[3])], 2)
        return alibi(q, k, v, torch.zeros(q.shape[1]))

    cpu = torch.device("cpu")
    assert "3.8 times the products: tiles" in attention.skips_the_past(causal, cpu)
    assert "times as many bytes are read" in attention.reads_keys_once(causal, cpu)


def test_every_exercise_has_a_right_answer_that_is_tried():
    pages = {name.partition("/")[2] for name in FILES if name.startswith("solutions/")}
    on_gpu = {name for name, one in EXERCISES.items() if one.gpu}
    assert set(EXERCISES) <= pages | set(SMALL) | on_gpu | {"03b-waves"}
    assert pages <= set(EXERCISES)


def asked(name):
    """The text of the lesson of an exercise that asks for functions, as one line."""
    lessons = [f.path for n, f in FILES.items() if f.gallery == "tutorials" and "/" not in n]
    texts = {path.name: path.read_text(encoding="utf-8") for path in lessons}
    linking = [text for text in texts.values() if f"<solutions/{name}>" in text]
    of_number = (t for path, t in texts.items() if path.startswith(name.partition("-")[0] + "-"))
    text = linking[0] if linking else next(of_number)
    tried = re.findall(r"^# \*\*Try it\*\*(?:.+\n)+", text, re.M)
    listed = re.findall(r"^# Exercises\n# -+\n(?:#.*\n)+", text, re.M)
    return re.sub(r"[#\s]+", " ", "".join(tried + listed))


@pytest.mark.parametrize("name", EXERCISES)
def test_the_lesson_says_which_function_to_write(name):
    assert f"``{EXERCISES[name].function}``" in asked(name)


@pytest.mark.parametrize("name", EXERCISES)
def test_no_hint_advises_a_sum_whose_order_changes(name):
    if re.search(r"same (?:result|bits)", asked(name)):
        assert "atomic_add" not in " ".join(EXERCISES[name].hints)
