"""How a reader begins: the list, a skeleton, hints, what is done."""

import datetime
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exercises.skeleton import skeleton
from exercises.tasks import LESSONS, TASKS
from tests.exercises.practice import FILE, ROOT, command

AXPY = """
import torch
import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, a * x + y, mask=mask)


def axpy(a, x, y):
    out = torch.empty_like(x)
    axpy_kernel[(triton.cdiv(len(x), 64),)](a, x, y, out, len(x), BLOCK=64)
    return out
"""


def words(folder, *arguments):
    """What a command without a check prints, with a copy of the checker in *folder*."""
    copy = folder / "exercise.pyz"
    if not copy.exists():
        shutil.copyfile(FILE, copy)
    done = subprocess.run(
        [sys.executable, copy.name, *arguments], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_the_list_needs_no_pytorch_and_has_level_and_minutes(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    status, printed = words(tmp_path)
    assert status == 0, printed
    assert len(printed.splitlines()) == len(TASKS)
    assert "axpy(a, x, y)  (easy, 10 minutes)\n" in printed


def test_a_skeleton_is_written_once_and_fails_by_one_line(tmp_path):
    status, printed = words(tmp_path, "01-axpy", "mine.py", "--start")
    assert status == 0
    assert "python exercise.pyz 01-axpy mine.py" in printed
    (tmp_path / "mine.py").write_text("my work")
    status, printed = words(tmp_path, "01-axpy", "mine.py", "--start")
    assert status == 2
    assert (tmp_path / "mine.py").read_text() == "my work"


@pytest.mark.parametrize("name", TASKS)
def test_each_skeleton_is_python_and_defines_the_function(name, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(skeleton(name, "mine.py", "python exercise.pyz"))
    assert callable(runpy.run_path(str(path))[TASKS[name].name])
    lesson = LESSONS[name.partition("-")[0]]
    assert (ROOT / "tutorials" / f"{lesson}.py").is_file()


def test_hints_are_shown_one_at_a_time(tmp_path):
    first = TASKS["01-axpy"].hints[0].replace("``", "`")
    assert words(tmp_path, "01-axpy", "--hint", "1") == (0, f"{first}\n")
    assert words(tmp_path, "01-axpy", "--hint", "3")[0] == 2


def test_what_is_done_is_kept_beside_the_checker(tmp_path):
    words(tmp_path)
    (tmp_path / "mine.py").write_text(AXPY)
    from tests.fixtures.readers import check

    done = check(tmp_path, tmp_path / "exercise.pyz", "01-axpy", "mine.py")
    assert done.returncode == 0, done.stdout + done.stderr
    today = datetime.date.today().isoformat()
    listed = words(tmp_path)[1]
    assert f"axpy(a, x, y)  (easy, 10 minutes)  done {today}\n" in listed
    assert listed.count("done") == 1
    assert (tmp_path / "exercises-done.json").is_file()


def test_a_kernel_that_does_not_compile_is_not_right(tmp_path):
    inside = "inside = lambda n: offsets < n\n    mask = inside(n)"
    text = AXPY.replace("mask = offsets < n", inside)
    status, printed = command(tmp_path, "01-axpy", "mine.py", compiled=True, mine=text)
    assert status == 1
    assert "what:     `lambda` in a kernel" in printed


def test_a_copy_in_place_of_strides_is_refused_with_its_bytes(tmp_path):
    text = AXPY.replace("axpy(a, x, y):", "add_strided(x, y):").replace(
        "    out = torch.empty_like(x)",
        "    x, y, a = x.contiguous(), y.contiguous(), 1.0\n    out = torch.empty_like(x)",
    )
    status, printed = command(tmp_path, "01-strides", "mine.py", mine=text)
    assert status == 1
    assert "it copies 24 bytes by `.contiguous()`" in printed, printed


def test_a_trace_of_an_exercise_is_one_page(tmp_path):
    status, printed = command(tmp_path, "01-axpy", "mine.py", "--trace", "trace.html", mine=AXPY)
    assert status == 0, printed
    assert "axpy_kernel" in Path(tmp_path, "trace.html").read_text()
