"""Chapter 3: what its experiments print without a GPU, and the functions behind them."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.fixtures.forked import execute
from tests.galleries import FILES

#: Assignments of the script that its functions need and that start no experiment.
CONSTANTS = {"ON_GPU", "DEVICE", "SCRATCH", "IMPORTS", "WITH_TORCH"}


@pytest.fixture(scope="module", params=[pytest.param("alone", marks=pytest.mark.stress)])
def printed(tmp_path_factory) -> str:
    """What the download prints in the interpreter, in a process of its own."""
    folder = tmp_path_factory.mktemp("debugging")
    result = execute(folder, str(FILES["debugging"].path))
    assert result.returncode == 0, result.stderr
    assert not list(folder.iterdir()), "experiments belong into a temporary folder"
    return result.stdout


@pytest.fixture(scope="module")
def page() -> dict:
    """The functions and kernels of the script, without its experiments."""
    path = FILES["debugging"].path
    tree = ast.parse(path.read_text())
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in CONSTANTS)
    ]
    names = {"__name__": "debugging"}
    exec(compile(tree, str(path), "exec"), names)
    return names


# --- what the page prints -------------------------------------------------------------------------


def test_no_path_of_the_machine_is_printed(printed):
    for path in ("/tmp", str(Path.home()), sys.prefix, "site-packages", "0x7"):
        assert path not in printed


def test_each_bug_has_its_own_pattern_of_wrong_shapes(printed):
    rows = re.findall(r"^(\w+) +((?:(?:wrong|·) +){5}(?:wrong|·)) *$", printed, re.M)
    patterns = {bug: tuple(cells.split()) for bug, cells in rows}
    assert set(patterns.pop("none")) == {"·"}
    assert len(patterns) == len(set(patterns.values())) == 4
    assert all(row[0] == "·" for row in patterns.values()), "a single tile shows nothing"
    assert [i for i, cell in enumerate(patterns["mask"]) if cell == "wrong"] == [3]


# --- the functions of the page --------------------------------------------------------------------


def test_error_maps_show_the_bugs_that_the_text_names(page):
    tile, shape = 16, {"M": 56, "N": 70, "K": 72}
    maps = {bug: page["compare"](bug, **shape) for bug in ("grid", "stride", "accumulator", "mask")}
    rows, columns = shape["M"] // tile * tile, shape["N"] // tile * tile
    assert not maps["grid"][:rows, :columns].any()
    assert (maps["grid"][rows:] == 2).all()
    assert (maps["grid"][:, columns:] == 2).all()
    assert not maps["stride"][0].any()
    assert not maps["accumulator"][:tile, : 4 * tile].any()  # a tile for each of four programs
    for part in (maps["stride"][1:], maps["accumulator"][tile:], maps["mask"]):
        assert (part == 1).double().mean() > 0.9


def sleep():
    """Never end."""
    while True:
        pass


def fail():
    """Read what is typed, and fail."""
    input("(Pdb) ")  # as the debugger asks
    raise SystemExit(7)


def interpreted():
    """Say whether kernels are interpreted."""
    print(triton.knobs.runtime.interpret)  # noqa: F821


def test_an_experiment_is_shown_with_its_input_and_status(page, capsys, monkeypatch):
    page["run"](fail, stdin="hello\n")
    assert capsys.readouterr().out.split("\n")[1:] == ["(pdb) hello", "[exit status 7]", "", ""]
    page["run"](sleep, seconds=1)
    assert "[SIGKILL]" in capsys.readouterr().out
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # variables of Triton are not handed on
    page["run"](interpreted)
    assert "False" in capsys.readouterr().out
