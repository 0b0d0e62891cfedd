"""The script of chapter 7 compares two sweeps, and says what moved."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "_static" / "sweep_settings.py"


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("sweep_settings", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path, release, times):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["release", "gpu", "settings", "ms", "registers", "spills", "shared", "error"]
        )
        for settings, ms in times.items():
            error = "" if ms else "OutOfResources: too much"
            writer.writerow([release, "a GPU", settings, ms or "", 40, 0, 1024, error])
    return path


def test_a_winner_that_loses_on_the_other_release_is_named(tmp_path):
    one = write(tmp_path / "one.csv", "3.6.0", {"num_warps=4": 1.0, "num_warps=8": 1.1})
    two = write(tmp_path / "two.csv", "3.9.0", {"num_warps=4": 2.0, "num_warps=8": 1.0})
    done = run("--compare", one, two)
    assert done.returncode == 1, done.stderr
    assert "best with 3.6.0 on a GPU: num_warps=4" in done.stdout
    assert "2.00 times the best there" in done.stdout
    assert run("--compare", two, one).returncode == 1  # 10 % in the other direction


def test_a_winner_that_stays_is_no_loss(tmp_path):
    one = write(tmp_path / "one.csv", "3.6.0", {"num_warps=4": 1.0, "num_warps=8": 1.1})
    two = write(tmp_path / "two.csv", "3.9.0", {"num_warps=4": 0.8, "num_warps=8": 0.79})
    assert run("--compare", one, two).returncode == 0


def test_a_winner_that_does_not_run_on_the_other_release_is_a_loss(tmp_path):
    one = write(tmp_path / "one.csv", "3.6.0", {"a": 1.0, "b": 2.0})
    two = write(tmp_path / "two.csv", "3.9.0", {"a": None, "b": 2.0})
    done = run("--compare", one, two)
    assert done.returncode == 1
    assert "does not run" in done.stdout


def test_settings_are_combined_and_failures_kept(script, tmp_path, monkeypatch):
    class Module:
        SETTINGS = {"BLOCK": [1, 2], "num_warps": [4]}  # noqa: RUF012

        @staticmethod
        def call(BLOCK, num_warps):  # noqa: N803
            if BLOCK == 2:
                raise ValueError("too large")

    import torch
    import triton.testing

    device = type("Device", (), {"get_device_name": staticmethod(lambda: "a GPU")})
    monkeypatch.setattr(torch, "get_device_module", lambda: device)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(triton.testing, "do_bench", lambda call, **options: call() or 0.5)
    rows = list(script.sweep(Module))
    assert [row["settings"] for row in rows] == ["BLOCK=1 num_warps=4", "BLOCK=2 num_warps=4"]
    assert rows[0]["ms"] == 0.5
    assert rows[1]["error"] == "ValueError: too large"


def test_wrong_usage_is_explained(tmp_path):
    done = run("--compare", "one.csv")
    assert done.returncode == 2
    assert "python sweep_settings.py kernel.py one.csv" in done.stderr


def wrong_inputs(folder):
    """Commands with a wrong file, and what the one line names."""
    right = write(folder / "right.csv", "3.6.0", {"a": 1.0})
    foreign = folder / "foreign.csv"
    foreign.write_text("name,value\nx,1\n")
    no_number = write(folder / "words.csv", "3.6.0", {"a": "fast"})
    picture = folder / "picture.csv"
    picture.write_bytes(b"\x89PNG\xff\xfe")
    notebook = folder / "kernel.ipynb"
    notebook.write_text("{}")
    broken = folder / "broken.py"
    broken.write_text("def call(:\n")
    without = folder / "without.py"
    without.write_text("SETTINGS = {}\n")
    kernel = folder / "kernel.py"
    kernel.write_text('SETTINGS = {"BLOCK": [1]}\ndef call(BLOCK): pass\n')
    return [
        (("--compare", right, folder / "none.csv"), "none.csv cannot be read"),
        (("--compare", foreign, right), "no column release"),
        (("--compare", right, no_number), "'fast' is no time"),
        (("--compare", picture, right), "picture.csv cannot be read"),
        ((folder / "none.py", folder / "out.csv"), "there is no file"),
        ((notebook, folder / "out.csv"), "is a notebook"),
        ((broken, folder / "out.csv"), "SyntaxError"),
        ((without, folder / "out.csv"), "does not define call"),
        ((kernel, folder / "out.csv"), "no GPU here"),
    ]


def test_a_wrong_file_and_no_gpu_are_one_line_each(tmp_path):
    for arguments, message in wrong_inputs(tmp_path):
        done = run(*arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "out.csv").exists()
