"""The check of exercises: our solutions pass, and what is wrong with others is said."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

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


@pytest.mark.parametrize("name", exercise.EXERCISES)
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
        ("02-log-softmax", lambda x: x.log_softmax(dim=0), "elements are wrong"),
    ],
)
def test_what_is_wrong_is_said(name, function, told):
    module = SimpleNamespace(__name__="mine")
    setattr(module, exercise.EXERCISES[name].name, function)
    assert re.search(told, exercise.check(name, module))


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
    text = text.split("# The check")[0]
    assert "x = tl.load" in text
    line = next(line for line in text.splitlines() if "x = tl.load" in line)
    mine = tmp_path / "mine.py"
    mine.write_text(text.replace(line, f"{line}\n{line}"))
    run = subprocess.run(
        [sys.executable, str(FILE), "01-grid-stride", str(mine)],
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1.33 times as many" in run.stdout


def test_without_a_name_the_exercises_are_listed(capsys):
    assert exercise.main([]) == 0
    assert "02-log-softmax:" in capsys.readouterr().out
    assert exercise.main(["02"]) == 2
