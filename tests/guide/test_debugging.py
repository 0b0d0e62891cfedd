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


def experiments(printed: str, name: str) -> list[tuple[str, list[str], str]]:
    """The command, the output and the status of each run of ``name.py``."""
    found = re.findall(rf"^\$ (.*?{name}\.py)\n(.*?)^\[(.*?)\]$", printed, re.M | re.S)
    assert found, f"{name}.py was not run"
    return [(command, output.splitlines(), end) for command, output, end in found]


def only(printed: str, name: str) -> list[str]:
    """The output of the single run of ``name.py``, which has to succeed."""
    ((_, output, end),) = experiments(printed, name)
    assert end == "exit status 0"
    return output


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


def test_the_compiler_names_line_and_column(printed):
    text = "\n".join(only(printed, "refused"))
    messages = re.findall(r"^at (\d+):(\d+):\n((?:.*\n)+?)( *)\^\n(.+)$", text, re.M)
    assert len(messages) == 6
    for line, column, listing, indent, _ in messages:
        assert listing.startswith("def "), "lines are counted from the def"
        assert (listing.count("\n"), len(indent)) == (int(line), int(column))


def test_static_print_is_silent_for_a_cached_kernel(printed):
    runs = experiments(printed, "compile_scale")
    assert [len([line for line in output if "x:" in line]) for _, output, _ in runs] == [2, 0, 3]


def test_the_debugger_stops_in_the_kernel(printed):
    text = "\n".join(only(printed, "softmax"))
    assert "(pdb) p numerator\narray([1.        , 1.        , 1.        , 0.1353" in text


def test_a_crash_and_a_hang_in_the_interpreter_name_the_kernel(printed):
    ((command, output, end),) = experiments(printed, "first_column")
    assert "PYTHONFAULTHANDLER=1" in command
    assert end == "SIGSEGV"
    assert "in first_column_kernel" in output[1]
    ((_, output, end),) = experiments(printed, "wait")
    assert end == "SIGALRM"
    assert "in wait_kernel" in output[0]


def test_limits_of_the_interpreter(printed):
    text = "\n".join(only(printed, "limits")).replace("\n    ", " ")
    outcome = {line[:27].strip(): line[28:] for line in text.splitlines() if line}
    for name in ("block_of_12", "two_lengths", "no_constant"):
        assert outcome[name].startswith("InterpreterError")
    for name in ("changing_type", "one_branch", "global_number"):
        assert outcome[name] == "runs", "the compiler refuses it"
    assert outcome["x + x in fp16"] == "['2', '4', '6', '8']"
    assert outcome["x + x in bf16"] != outcome["x + x in fp16"]
    assert outcome["assertions about a block"] == "runs"
    assert "does not hold" in outcome["an assertion about a scalar"]


def test_the_interpreter_hides_races_and_keeps_the_order(printed):
    rows = re.findall(r"^(\w+)\((\w+)\) +64 +(\d) of 2 +1 +(\d+)$", printed, re.M)
    assert rows == [
        ("missing_from_total", "False", "2", "0"),
        ("missing_from_total", "True", "2", "0"),
        ("misplaced", "False", "0", "63"),
        ("misplaced", "True", "2", "0"),
    ]


def test_only_divisible_rows_are_loaded_16_bytes_at_a_time(printed):
    rows = {line[:12].strip(): line[12:] for line in only(printed, "loads")}
    everything = rows.pop("everything")
    assert "v4.b32" in everything
    assert "dwordx4" in everything
    assert rows
    assert not [row for row in rows.values() if "v4" in row or "dwordx4" in row]


def test_a_product_uses_matrix_instructions_unless_it_is_ieee(printed):
    rows = [line.split() for line in only(printed, "dots")]
    assert next(row[-1] for row in rows if "ieee" in row) == "fma.rn.f32"
    others = [row[-1] for row in rows if "ieee" not in row]
    assert all(re.match(r"wgmma|mma|v_mfma", instruction) for instruction in others)


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
