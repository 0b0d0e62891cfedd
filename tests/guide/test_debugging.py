"""The chapter on debugging: what it prints without a GPU, and the functions it explains."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.fixtures.forked import execute

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "guide" / "chapter-3" / "debugging.py"

#: Assignments of the script that its functions need and that start no experiment.
CONSTANTS = {"SCRATCH", "IMPORTS", "WITH_TORCH"}


@pytest.fixture(scope="module", params=[pytest.param("alone", marks=pytest.mark.stress)])
def printed(tmp_path_factory) -> str:
    """What the script prints in the interpreter, run as a reader runs it, with its programs."""
    folder = tmp_path_factory.mktemp("debugging")
    result = execute(folder, str(SCRIPT))
    assert result.returncode == 0, result.stderr
    assert not list(folder.iterdir()), "scratch files belong into a temporary folder"
    return result.stdout


@pytest.fixture(scope="module")
def page() -> dict:
    """The functions and kernels of the script, without its experiments."""
    tree = ast.parse(SCRIPT.read_text())
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in CONSTANTS)
    ]
    names = {"__name__": "debugging"}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tutorials")  # for what scripts share
        exec(compile(tree, str(SCRIPT), "exec"), names)
    return names


def experiments(printed: str, name: str) -> list[tuple[str, list[str], str]]:
    """The command, the output and the end of each run of ``name.py``."""
    found = re.findall(rf"^\$ (.*?{name}\.py)\n(.*?)^\[(.*?)\]$", printed, re.M | re.S)
    assert found, f"{name}.py was not run"
    return [(command, output.splitlines(), end) for command, output, end in found]


def only(printed: str, name: str) -> list[str]:
    """The output of the single run of ``name.py``, which has to succeed."""
    ((_, output, end),) = experiments(printed, name)
    assert end == "exit status 0"
    return output


# --- what the page prints


def test_prints_no_path_of_the_machine(printed):
    for path in ("/tmp", str(Path.home()), sys.prefix, str(SCRIPT.parent), "site-packages", "0x7"):
        assert path not in printed
    assert "PLACEHOLDER" not in SCRIPT.read_text()


def test_lines_are_not_too_long(printed):
    assert max(map(len, printed.splitlines())) <= 104


def test_other_shapes_tell_the_bugs_apart(printed):
    rows = re.findall(r"^(\w+) +((?:(?:wrong|·) +){5}(?:wrong|·)) *$", printed, re.M)
    fingerprints = {bug: tuple(cells.split()) for bug, cells in rows}
    assert set(fingerprints.pop("none")) == {"·"}
    assert len(fingerprints) == len(set(fingerprints.values())) == 4
    one_tile, _, _, k_remainder, *_ = range(6)
    assert all(row[one_tile] == "·" for row in fingerprints.values()), "one tile shows nothing"
    assert [i for i, cell in enumerate(fingerprints["mask"]) if cell == "wrong"] == [k_remainder]


def test_the_compiler_names_line_and_column(printed):
    text = "\n".join(only(printed, "refused"))
    messages = re.findall(r"at (\d+):(\d+):\n(.*?)\n *\^\n(.+)", text, re.S)
    messages = re.findall(r"^at (\d+):(\d+):\n((?:.*\n)+?)( *)\^\n(.+)$", text, re.M)
    assert len(messages) == 6
    for line, column, listing, indent, _ in messages:
        assert listing.startswith("def "), "lines are counted from the def"
        assert listing.count("\n") == int(line), "the listing ends with the line"
        assert len(indent) == int(column)


def test_static_print_is_silent_when_the_kernel_was_compiled_before(printed):
    first, again, always = experiments(printed, "compile_scale")
    blocks = [[line for line in output if "x:" in line] for _, output, _ in (first, again, always)]
    assert [len(b) for b in blocks] == [2, 0, 3]
    assert "y: fp32" in blocks[0][0], "fp16 times a scalar of fp32"
    assert all("refused" in output[-1] for _, output, _ in (first, again, always))


def test_the_debugger_stops_in_the_kernel(printed):
    text = "\n".join(only(printed, "softmax"))
    assert "(pdb) p numerator\narray([1.        , 1.        , 1.        , 0.1353" in text
    sums = [float(v) for v in re.search(r"sums of the rows: \[(.+)\]", text)[1].split(",")]
    assert max(sums) < 0.99


def test_a_crash_in_the_interpreter_names_the_kernel(printed):
    ((command, output, end),) = experiments(printed, "first_column")
    assert "PYTHONFAULTHANDLER=1" in command
    assert end == "SIGSEGV"
    assert "in first_column_kernel" in output[1]


def test_limits_of_the_interpreter(printed):
    text = "\n".join(only(printed, "limits")).replace("\n    ", " ")
    outcome = {line[:27].strip(): line[28:] for line in text.splitlines() if line}
    for name in ("block_of_12", "two_lengths", "no_constant"):
        assert outcome[name].startswith("InterpreterError")
    for name in ("changing_type", "one_branch", "global_number"):
        assert outcome[name] == "runs", "more tolerant than the compiler"
    assert outcome["x + x in fp16"] == "['2', '4', '6', '8']"
    assert outcome["x + x in bf16"] != outcome["x + x in fp16"]
    assert outcome["assertions about a block"] == "runs"
    assert "does not hold" in outcome["an assertion about a scalar"]
    assert outcome["kernel.warmup"] == "None"
    for name in ("triton.autotune", "do_bench"):
        assert "active drivers" in outcome[name]


def test_the_interpreter_hides_races_and_keeps_the_order(printed):
    rows = re.findall(r"^(\w+)\((\w+)\) +64 +(\d) of 2 +1 +(\d+)$", printed, re.M)
    assert rows == [
        ("missing_from_total", "False", "2", "0"),
        ("missing_from_total", "True", "2", "0"),
        ("misplaced", "False", "0", "63"),
        ("misplaced", "True", "2", "0"),
    ]


def test_a_hanging_kernel_is_named(printed):
    ((_, output, end),) = experiments(printed, "wait")
    assert end == "SIGALRM"
    assert "in wait_kernel" in output[0]


def test_stages_of_both_backends(printed):
    stages = [line.split()[0] for line in only(printed, "stages")]
    nvidia, amd = stages.index("cuda,"), stages.index("hip,")
    assert stages[nvidia + 1 : amd] == ["ttir", "ttgir", "llir", "ptx", "sass"]
    assert stages[amd + 1 :] == ["ttir", "ttgir", "llir", "amdgcn"]


def test_only_what_is_divisible_is_loaded_widely(printed):
    rows = {line[:12].strip(): line[12:] for line in only(printed, "loads")}
    everything = rows.pop("everything")
    assert "v4.b32" in everything
    assert "dwordx4" in everything
    assert rows
    for row in rows.values():
        assert "v4" not in row
        assert "dwordx4" not in row


def test_dot_reaches_matrix_instructions(printed):
    rows = [line.split() for line in only(printed, "dots")]
    ieee = [row[-1] for row in rows if "ieee" in row]
    others = [row[-1] for row in rows if "ieee" not in row]
    assert ieee[0] == "fma.rn.f32"
    assert all(re.match(r"wgmma|mma|v_mfma", instruction) for instruction in others)


def test_instructions_of_each_line(printed):
    _, *lines = only(printed, "annotate")
    counts = {line[10:].strip(): line[:9].split() for line in lines}
    assert all(len(c) == 2 for text, c in counts.items() if " = tl." in text or "store" in text)
    reduction = next(c for text, c in counts.items() if text.startswith("numerator ="))
    offsets = next(c for text, c in counts.items() if text.startswith("offsets ="))
    assert all(int(long) > int(short) for long, short in zip(reduction, offsets, strict=True))


def test_dumps_every_stage(printed):
    suffixes = {line.split(".")[-1].split()[0] for line in only(printed, "dump")}
    assert {"ttir", "ttgir", "llir"} <= suffixes


def test_what_needs_a_gpu_says_so_in_a_sentence(printed):
    assert len(re.findall(r"needs an? (?:NVIDIA )?GPU|only be seen on one", printed)) >= 4


# --- the functions of the page


def test_maps_show_what_the_text_says(page):
    tile, shape = 16, {"M": 56, "N": 70, "K": 72}
    maps = {bug: page["compare"](bug, **shape) for bug in ("grid", "stride", "accumulator", "mask")}
    rows, columns = shape["M"] // tile * tile, shape["N"] // tile * tile
    assert not maps["grid"][:rows, :columns].any()
    assert (maps["grid"][rows:] == 2).all()
    assert (maps["grid"][:, columns:] == 2).all()
    assert not maps["stride"][0].any()
    assert (maps["stride"][1:] == 1).double().mean() > 0.9
    first = maps["accumulator"][:tile, : 4 * tile]  # one tile for each of four programs
    assert not first.any()
    assert (maps["accumulator"][tile:] == 1).double().mean() > 0.9
    assert (maps["mask"] == 1).double().mean() > 0.9


def test_tidy_keeps_frames_of_the_script_only(page):
    scratch = page["SCRATCH"].name
    text = f"""\
Traceback (most recent call last):
  File "{scratch}/main.py", line 3, in <module>
    main()
    ~~~~^^
  File "/usr/lib/python3/site-packages/library.py", line 7, in call
    call(0)
    ^^^^^^^
ValueError: at 0x7f00deadbeef in {scratch}/main.py
at 1:4:
def kernel():
    ^
"""
    script = Path(scratch, "main.py")
    script.write_text("one\ntwo\nthree\n")
    assert page["tidy"](text, script) == [
        "Traceback (most recent call last):",
        '  File "main.py", line 3, in <module>',
        "    main()",
        "ValueError: at 0x… in main.py",
        "at 1:4:",
        "def kernel():",
        "    ^",
    ]
    assert page["tidy"](text, script, keep="^def") == ["def kernel():"]


def test_tidy_shows_the_line_that_is_named(page):
    script = Path(page["SCRATCH"].name, "main.py")
    script.write_text("one\n    two\nthree\n")
    text = f'  File "{script}", line 2 in f\n  at kernel in {script}:3\n'
    assert page["tidy"](text, script) == [
        '  File "main.py", line 2 in f',
        "    two",
        "  at kernel in main.py:3",
        "    three",
    ]


def test_tidy_counts_threads(page):
    script = Path(page["SCRATCH"].name, "main.py")
    script.write_text("")
    text = "thread: [1,0,0] failed\nby thread (2,0,0)\nthread: [3,0,0] failed\n"
    assert page["tidy"](text, script, fold=True) == [
        "thread: […] failed  (2 times)",
        "by thread (…)",
    ]


def test_tidy_wraps_long_lines(page):
    script = Path(page["SCRATCH"].name, "main.py")
    script.write_text("")
    short, rest = page["tidy"]("word " * 22, script)
    assert len(short) <= 104
    assert rest.startswith("    word")


def test_compose_includes_kernels_strings_and_torch_where_needed(page):
    script = page["compose"](count, "NUMBER = 5", page["double_kernel"])
    assert "import torch" not in script
    assert script.index("NUMBER = 5") < script.index("@triton.jit\ndef double_kernel")
    assert script.rstrip().endswith("count()")
    compile(script, "script", "exec")
    assert "import torch" in page["compose"](lambda: torch.ones, "def f(): pass")  # noqa: F821


def count():
    """Print a number that a constant gives."""
    print("here", NUMBER)  # noqa: F821
    print("not here")


def test_run_shows_command_chosen_lines_and_status(page, capsys):
    returned = page["run"](count, "NUMBER = 5", before=["A=1", "A=2 nice"], keep="^here")
    assert returned is None, "the page would show the value of a cell's last line"
    first, second, rest = capsys.readouterr().out.split("\n\n")
    assert first == "$ A=1 python count.py\nhere 5\n[exit status 0]"
    assert second == "$ A=2 nice python count.py\nhere 5\n[exit status 0]"
    assert rest == ""


def fail():
    """Read what is typed, and fail."""
    input("(Pdb) ")  # as the debugger asks
    raise SystemExit(7)


def test_run_shows_what_was_typed_and_the_status_of_a_failure(page, capsys):
    page["run"](fail, stdin="hello\n")
    assert capsys.readouterr().out.split("\n")[1:] == ["(pdb) hello", "[exit status 7]", "", ""]


def sleep():
    """Never end."""
    while True:
        pass


def test_run_kills_what_does_not_end(page, capsys):
    page["run"](sleep, seconds=1)
    assert "[SIGKILL]" in capsys.readouterr().out


def test_run_takes_no_variable_of_triton_along(page, capsys, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    page["run"](interpreted)
    assert "False" in capsys.readouterr().out


def interpreted():
    """Say whether kernels are interpreted."""
    print(triton.knobs.runtime.interpret)  # noqa: F821
