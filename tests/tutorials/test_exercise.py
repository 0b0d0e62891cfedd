"""The check of exercises: our solutions pass, and what is wrong with others is said."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.fixtures.forked import execute
from triton_site.pages.assemble import assemble_script

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tutorials" / "shared" / "exercise.py"


def load():
    spec = importlib.util.spec_from_file_location("exercise_check", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["exercise_check"] = module
    spec.loader.exec_module(module)
    return module


exercise = load()


@pytest.fixture(autouse=True)
def as_before():
    yield
    torch.use_deterministic_algorithms(False)


#: In the interpreter each of them takes as long as two to ten others.
LONG = (
    "03-split-k",
    "04-sparse-johnson-lindenstrauss",
    "05-dropout",
    "05-residual",
    "06-sliding-window",
    "07-polynomial",
    "08-gate",
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.stress if name in LONG else ())
        for name in exercise.EXERCISES
        if (ROOT / "tutorials" / "solutions" / f"{name}.py").exists()
    ],
)
def test_our_solution_passes(name, tutorial, capsys):
    names = tutorial(f"solutions/{name}")
    assert exercise.check(name, SimpleNamespace(**names | {"__name__": "mine"})) == ""
    printed = capsys.readouterr().out
    assert "is right on" in printed
    assert "bytes have to move" in printed


@pytest.mark.parametrize(
    ("name", "function", "told"),
    [
        ("01-axpy", lambda a, x, y: x + y, "All are wrong"),
        ("01-axpy", lambda a, x, y: (a * x + y).half(), "dtype is torch.float16"),
        ("01-axpy", lambda a, x, y: (a * x + y)[:-1], r"shape is \(0,\)"),
        ("01-axpy", lambda a, x, y: None, "NoneType, and not a tensor"),
        ("01-axpy", lambda a, x, y: 1 / 0, "ends with ZeroDivisionError"),
        ("01-strides", lambda x, y: torch.empty(len(x)), "NaN: nothing was written"),
        ("03b-waves", lambda tiles, processors: tiles / processors, r"\(85, 84\): 1 of 1"),
        ("03b-waves", lambda tiles, processors: None, "NoneType, and not a number"),
        ("02-log-softmax", lambda x: x.log_softmax(dim=0), "elements are wrong"),
        ("06-sliding-window", lambda q, k, v, w: exercise.windowed(q, k, v, 2000), "far edge"),
        ("06-sliding-window", lambda q, k, v, w: exercise.windowed(q, k, v, w + 1), "far edge"),
        ("06-alibi", lambda q, k, v, s: exercise.penalized(q, k, v, -s), r"heads \[0, 1, 2\]"),
        ("06-grouped-heads", lambda q, k, v, c: exercise.grouped(q, k, v, False), "query that is"),
        ("06-grouped-heads", lambda q, k, v, c: exercise.grouped(q, k, v.flip(1), c), "are wrong"),
        (
            "06-decode",
            lambda q, k, v: exercise.masked_attention(q, k[:, :, :128], v[:, :, :128]),
            r"decode_attention\(\(2, 4, 1, 32\).*are wrong",
        ),
        ("07-polynomial", lambda x, t: exercise.by_polynomial(x, t[::-1]), "are wrong"),
        ("07-gelu-backward", lambda x, way: torch.nn.functional.gelu(x), "'tanh'"),
        (
            "07-gelu-backward",
            lambda x, way: torch.nn.functional.gelu(x.detach(), approximate=way),
            "no gradient",
        ),
    ],
)
def test_what_is_wrong_is_said(name, function, told):
    module = SimpleNamespace(__name__="mine")
    setattr(module, exercise.EXERCISES[name].name, function)
    assert re.search(told, exercise.check(name, module))


def times(factor):
    """A wrong backward product: as the reference, with *factor* for each expert."""

    def call(x, g, offsets):
        reference = exercise.EXERCISES["08-backward"].reference(x, g, offsets)
        return (reference.float() * factor(offsets)[:, None, None]).half()

    return call


def losses(change):
    """Label smoothing of which *change* spoils the gradient."""

    def call(logits, targets, smoothing):
        loss, gradient = exercise.EXERCISES["10-label-smoothing"].reference(
            logits, targets, smoothing
        )
        change(gradient, targets)
        return loss, gradient

    return call


def fill_ignored(gradient, targets):
    gradient[targets == -100] = 1.0


def forget_target(gradient, targets):
    counts = targets != -100
    gradient[counts] += torch.nn.functional.one_hot(targets[counts], gradient.shape[1])


def to_fp8(x, scale):
    return (x / scale).to(torch.float8_e4m3fn), scale


def norm(x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def drop(x, weight, bias, p, seed, through=False):
    """Dropout of a norm; with *through*, its backward pass does not know the mask."""
    keep = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed % 97)) >= p
    y = norm(x, weight, bias)
    dropped = y * keep / (1 - p)
    return y + (dropped - y).detach() if through else dropped


def drop_through(*arguments):
    return drop(*arguments, through=True)


@pytest.mark.parametrize(
    ("name", "function", "told"),
    [
        ("05-residual", lambda x, r, w, b: norm(x + r, w, b), "6: y, the sum, .* and there are 5"),
        (
            "05-residual",
            lambda x, r, w, b: (norm(x + r, w, b), x.detach() + r),
            "the gradient of x: ",
        ),
        ("05-group-norm", lambda x, groups, w, b: exercise.group_norm(x, 1, w, b), "are wrong"),
        ("05-dropout", lambda x, w, b, p, seed: drop(x, w, b, p, 0), "the same mask"),
        ("05-dropout", drop_through, "the gradient of x.* draw the numbers of forward"),
        ("05-dropout", lambda x, w, b, p, seed: drop(x, w, b, p / 2, seed), "the output, for"),
        (
            "08-backward",
            times(lambda ends: torch.where(ends.diff(prepend=ends[:1] * 0) > 0, 1, torch.nan)),
            "Experts without tokens .* zero",
        ),
        (
            "08-backward",
            times(lambda offsets: 1 + 0.1 * (torch.arange(len(offsets)) == 2)),
            "Experts 2, but not the last one .* masked",
        ),
        (
            "08-gate",
            lambda x, gate, up, offsets: exercise.gated_experts(x, up, gate, offsets),
            "rows, of the experts",
        ),
        ("10-label-smoothing", losses(fill_ignored), "number 1: .* rows that do not count"),
        ("10-label-smoothing", losses(forget_target), "number 1: .* at the targets"),
        ("10-label-smoothing", lambda x, t, s: x, r"should return 2 tensors, and returns \(1, 1\)"),
        ("09-per-tensor", lambda x: x, "should return two tensors"),
        ("09-per-tensor", lambda x: (x, x.amax()), "numbers are torch.float32"),
        ("09-per-tensor", lambda x: to_fp8(x, torch.tensor(1 / 64)), "should become 448"),
        ("09-per-tensor", lambda x: to_fp8(x, torch.tensor(32.0)), "elements are wrong"),
    ],
)  # fmt: skip
def test_what_the_wrong_elements_have_in_common_is_said(name, function, told):
    module = SimpleNamespace(__name__="mine")
    setattr(module, exercise.EXERCISES[name].name, function)
    assert re.search(told, exercise.check(name, module), re.DOTALL)


def test_numbers_are_rounded_to_fp8_and_bf16_as_on_a_gpu(tutorial):
    """By the interpreter alone, 1.99 loses a carry in e4m3, and bf16 is cut off."""
    names = tutorial("solutions/09-per-tensor")
    x = torch.tensor([448.0, 1.99, 3.99, -15.9, 2**-9, 0.0011, 1e9]).repeat(3)
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    largest = torch.tensor(448.0).view(torch.int32)  # a scale of 1
    more = {"BLOCK": 32, "EMULATE": False}
    with exercise.Counter() as counter:
        names["round_kernel"][(1,)](x, q, largest, torch.empty(()), len(x), **more)
    assert torch.equal(q.float(), x.clamp(max=448).to(torch.float8_e4m3fn).float())
    assert (counter.loaded, counter.stored) == (4 * len(x) + 4, len(x) + 4)


def test_products_of_tiles_are_counted_beside_those_that_are_needed(tutorial, capsys):
    names = tutorial("solutions/08-backward")
    assert exercise.check("08-backward", SimpleNamespace(**names | {"__name__": "mine"})) == ""
    printed = capsys.readouterr().out
    assert f"{90 * 33 * 65} of two numbers are needed" in printed


def test_tiles_and_keys_that_need_not_be_taken_are_counted(tutorial):
    """A kernel that is causal and no more takes tiles before the window, and keys for each head."""
    alibi = tutorial("solutions/06-alibi")["alibi_attention"]

    def causal(q, k, v, *more):
        k, v = (x.expand(q.shape[0], q.shape[1], *x.shape[2:]).contiguous() for x in (k, v))
        q = torch.cat([q, q.new_zeros(*q.shape[:2], k.shape[2] - q.shape[2], q.shape[3])], 2)
        return alibi(q, k, v, torch.zeros(q.shape[1]))

    cpu = torch.device("cpu")
    assert "3.8 times the products: tiles" in exercise.skips_the_past(causal, cpu)
    assert "times as many bytes are read" in exercise.reads_keys_once(causal, cpu)


def test_a_function_that_is_missing_is_named():
    assert exercise.check("01-axpy", SimpleNamespace(__name__="mine")) == (
        "mine defines no axpy(a, x, y)"
    )


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ((slice(None), slice(5, None)), "whole columns, from column 5 on"),
        ((slice(1, 3), slice(None)), "2 whole rows"),
        ((slice(6, None), slice(None)), "to the end"),
    ],
)
def test_the_place_of_errors_suggests_their_cause(place, told):
    expected = torch.zeros(8, 9)
    got = expected.clone()
    got[place] = 1.0
    assert told in exercise.difference(got, expected, exercise.FP32)


def test_loads_that_are_not_needed_are_counted(tmp_path):
    """A kernel that loads x twice moves four thirds of what an addition has to."""
    text = (ROOT / "tutorials/solutions/01-grid-stride.py").read_text()
    text = assemble_script(text, ROOT / "tutorials/shared").split("# The check")[0]
    assert "x = tl.load" in text
    line = next(line for line in text.splitlines() if "x = tl.load" in line)
    mine = tmp_path / "mine.py"
    mine.write_text(text.replace(line, f"{line}\n{line}"))
    run = execute(tmp_path, str(FILE), "01-grid-stride", str(mine))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1.33 times as many" in run.stdout


def test_without_a_name_the_exercises_are_listed(capsys):
    assert exercise.main([]) == 0
    assert "02-log-softmax:" in capsys.readouterr().out
    assert exercise.main(["02"]) == 2
