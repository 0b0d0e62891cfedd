"""The checker of exercises as a command: what it prints of a file, and how it ends."""

import os
import re
import subprocess
import sys

import pytest

from tests.exercises.practice import FILE, command

ADD = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_loop(x, y, programs):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
"""


def command_of_a_reader(folder, *arguments):
    """The same without our copies of processes."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    run = subprocess.run(
        [sys.executable, str(FILE), *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return run.returncode, run.stdout


def changed_add(old, new):
    assert old in ADD
    return ADD.replace(old, new)


def test_a_file_that_is_saved_twice_in_a_second_is_read_twice(tmp_path):
    file, answers = tmp_path / "mine.py", []
    for text in (ADD, changed_add("(x, y, out", "(x, x, out")):  # as many bytes
        file.write_text(text)
        os.utime(file, (1e9, 1e9))
        answers.append(command_of_a_reader(tmp_path, "01-grid-stride", "mine.py")[0])
    assert answers == [0, 1]


def test_the_command_counts_a_load_that_is_not_needed(tmp_path):
    """A kernel that loads x twice moves four thirds of the bytes of an addition."""
    line = "    x = tl.load(x_ptr + offsets, mask=mask)\n"
    (tmp_path / "mine.py").write_text(changed_add(line, 2 * line))
    status, printed = command_of_a_reader(tmp_path, "01-grid-stride", "mine.py")
    assert status == 0, printed
    assert "1.33 times as many" in printed
    assert "1 launch of kernels" in printed


#: What is wrong with a file, and what the one line says.
FAULTS = {
    "no_function": ("def add_lop(x, y, programs): ...", "defines no add_loop.*is it add_lop"),
    "parameters": ("def add_loop(x, y): ...", r"add_loop\(x, y\); the exercise asks for add_loop"),
    "order": ("def add_loop(programs, x, y): ...", r"order should be add_loop\(x, y, programs\)"),
    "no_callable": ("add_loop = 3", "is no function, but of the type int"),
    "a_kernel": (
        changed_add("def kernel", "def add_loop").split("def add_loop(x, y")[0], "is a kernel"
    ),
    "syntax": ("def add_loop(x, y, programs)\n    return x", "mine.py line 1.*SyntaxError"),
    "an_import": ("import nothing_like_this\n", "mine.py line 1.*No module named 'nothing_like"),
    "exit_at_import": ("import sys\nsys.exit(0)", "SystemExit"),
    "exit": ("import os\nos._exit(0)", "ends the process .exit status 0. before the check"),
    "interrupt": ("raise KeyboardInterrupt", "mine.py line 1.*KeyboardInterrupt"),
    "sparse": (changed_add("return out", "return out.to_sparse()"), "layout is torch.sparse_coo"),
    "crash": ("import ctypes\nctypes.string_at(8)", "crashes: SIGSEGV in mine.py line 2"),
    "an_error": (changed_add("torch.empty_like(x)", "torch.empty_like(z)"), "NameError.*line 17"),
    "shape": (changed_add("return out", "return out[:, None]"), r"shape is \(1, 1\), and should"),
    "dtype": (changed_add("return out", "return out.double()"), "dtype is torch.float64"),
    "device": (changed_add("return out", "return out.to('meta')"), "on the device meta"),
    "nothing": (changed_add("return out", "return None"), "NoneType, and not a tensor"),
    "alias": (changed_add("torch.empty_like(x)", "x"), "changes its input x in place"),
    "an_input": (changed_add("return out", "return x"), "is the memory of its input x"),
    "in_place": (changed_add("return out", "y.zero_()\n    return out"), "changes its input y"),
    "by_pytorch": ("def add_loop(x, y, programs):\n    return x + y", "launches no kernel"),
    "mask": (changed_add("x + y, mask=mask", "x + y"), "out of bounds: a store"),
    "caught": (
        changed_add("x + y, mask=mask", "x + y").replace("    kernel[", "    try: kernel[")
        .replace("BLOCK=1024)\n", "BLOCK=1024)\n    except Exception: return x + y\n"),
        "out of bounds: a store",
    ),
    "grid": (
        changed_add("triton.cdiv(x.numel(), 1024)", "x.numel() // 1024 or 1"),
        "no program has written",
    ),
}  # fmt: skip


QUICK_FAULTS = "parameters", "exit", "crash", "an_error", "alias", "mask"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_FAULTS else pytest.mark.stress)
        for name in FAULTS
    ],
)
def test_each_fault_of_a_file_is_one_line(name, tmp_path):
    text, message = FAULTS[name]
    status, printed = command(tmp_path, "01-grid-stride", "mine.py", mine=text)
    assert status == 1, printed
    assert re.search(message, printed), printed
    assert "Traceback" not in printed
    assert printed.startswith("Not yet. ")
    if "out of bounds" not in message and "written" not in message:
        assert printed.count("\n") == 1, printed


def test_a_file_may_have_the_name_of_a_package(tmp_path):
    for name in ("torch", "triton"):
        folder = tmp_path / name
        folder.mkdir()
        status, printed = command(folder, "01-grid-stride", f"{name}.py", **{name: ADD})
        assert status == 0, printed


def test_a_missing_file_and_a_folder_are_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    for name, message in (("none.py", "There is no file none.py"), ("folder", "is a folder")):
        status, printed = command(tmp_path, "01-axpy", name)
        assert status == 1
        assert message in printed
        assert printed.count("\n") == 1


ENDLESS = {
    "in_a_kernel": changed_add(
        "    mask = offsets < n\n",
        "    mask = offsets < n\n    while n > 0:\n        n = n + 0\n",
    ),
    "in_python": changed_add("    return out", "    while True:\n        pass"),
    "at_import": "while True:\n    pass",
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_what_does_not_end_is_stopped(name, tmp_path):
    status, printed = command(
        tmp_path, "01-grid-stride", "mine.py", "--limit", "2", mine=ENDLESS[name]
    )
    assert status == 1
    assert re.search(r"does not end: after \d+ s.* mine.py line", printed), printed
    assert ("program 0 of kernel" in printed) == (name == "in_a_kernel")


def test_a_script_is_watched(tmp_path):
    right = (
        f"{ADD}\nimport sys\nx = torch.randn(3000)\nassert torch.equal(add_loop(x, x, 1), x + x)\n"
    )
    status, printed = command(
        tmp_path, "--watch", "script.py", "--an", "argument", script=right + "print(sys.argv)\n"
    )
    assert status == 0, printed
    assert "['script.py', '--an', 'argument']" in printed
    assert "watched 1 launch of kernels and found nothing wrong" in printed
    wrong = right.replace("x + y, mask=mask", "x + y")
    status, printed = command(tmp_path, "--watch", "script.py", script=wrong)
    assert status == 1
    assert re.search(r"index: +3000 of `out_ptr`, which has 3000 elements", printed), printed
    assert "Traceback" not in printed
    status, printed = command(
        tmp_path, "--watch", "script.py", script=f"{right}\nraise OSError('no')\n"
    )
    assert status == 1
    assert re.search(r"script.py.*OSError: no", printed, re.DOTALL)
    assert "runpy" not in printed
    status, printed = command(tmp_path, "--watch", "script.py", script=f"{right}\nsys.exit(3)\n")
    assert status == 3
    wrong = right.replace("    mask = offsets < n", "    tl.static_assert(BLOCK == 3)")
    status, printed = command(tmp_path, "--watch", "script.py", script=wrong)
    assert status == 1
    assert re.search(
        "kernel ends with AssertionError.*line: .*script.py line 10", printed, re.DOTALL
    )
    assert "Traceback" not in printed


def test_what_a_script_leaves_out_is_noted(tmp_path):
    text = f"{ADD}\nx, out = torch.randn(3000), torch.empty(3000)\n"
    text += "kernel[(2,)](x, x, out, 3000, BLOCK=1024)\n"
    status, printed = command(tmp_path, "--watch", "script.py", script=text)
    assert status == 0
    assert "kernel leaves out a part of `out_ptr`: 952 of 3000 elements" in printed
    assert printed.endswith("watched 1 launch of kernels and found nothing else.\n")
    for use in ("print(out)", "out.tolist()", "torch.testing.assert_close(out, 2 * x)"):
        status, printed = command(tmp_path, "--watch", "script.py", script=f"{text}{use}\n")
        assert status == 1
        assert re.search(r"Found: .*no program has written.*`out_ptr`: 952 of 3000", printed, re.S)
