"""The script of chapter 8 lists Triton's call sites in a reader's code, and nothing else."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "_static" / "find_call_sites.py"
TL = "import triton.language as tl\n"


def run(*places):
    command = [sys.executable, str(SCRIPT), *map(str, places)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (TL + "p = tl.make_block_ptr(\n  x)", {2: "make_block_ptr"}),
        ("import triton\ntriton.language.advance(p, 1)", {2: "advance"}),
        ("from triton import language as L\nL.advance(p, 1)", {2: "advance"}),
        ("from triton.language import make_block_ptr as m\nm(x)", {2: "make_block_ptr"}),
        ("from triton.language import *\nadvance(p, 1)", {2: "advance"}),
        ("from vllm.triton_utils import tl\ntl.advance(p, 1)", {2: "advance"}),
        ("try:\n  import triton.language as tl\nexcept ImportError:\n  tl = None\n"
         "def f():\n  return tl.advance(p, 1)", {6: "advance"}),
        (TL + "m = tl.make_block_ptr\nq = m(x)\nq = q.advance(1)",
         {3: "make_block_ptr", 4: "advance"}),
        (TL + "tl.load(p, boundary_check=(0,), padding_option='zero')",
         {2: "boundary_check and padding_option"}),
        (TL + "tl.store(p, x, m, (0,))", {2: "store takes 3"}),
        (TL + "from functools import partial\npartial(tl.load, boundary_check=(0,))",
         {3: "boundary_check"}),
        (TL + "x.reshape([1], can_reorder=True)", {2: "can_reorder"}),
        (TL + "tl.pointer_type(tl.int8, 1)\ntl.pointer_type(tl.int8)", {2: "address_space"}),
        ("import triton\n@triton.autotune([], key=['n', 'N'])\n@triton.jit\ndef k(N): pass",
         {2: "'n', which is no argument of k"}),
        (TL + "# tl.advance(p)\n'tl.advance(p)'\ntl.load(p, m, 0.0)\nparser.advance(1)", {}),
        ("import tensorlayer as tl\ntl.advance(1)", {}),
        (TL + "def f(tl):\n  tl.advance(1)", {}),
        ("def advance(x): pass\nadvance(1)", {}),
        ("import triton\n@triton.autotune([], ['N'])\ndef k(N): pass", {}),
    ],
)  # fmt: skip
def test_call_sites_are_found_where_they_are_triton_s(tmp_path, code, lines):
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "code.py"
    file.write_text(code)
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (bool(lines), "")
    found = dict(line.removeprefix(f"{file}:").split(": ", 1) for line in done.stdout.splitlines())
    assert {int(line) for line in found} == set(lines)
    assert all(lines[int(line)] in text for line, text in found.items())


def test_the_section_that_answers_is_on_the_page(tmp_path):
    page = (SCRIPT.parents[2] / "guide" / "chapter-8" / "moving.py").read_text()
    (tmp_path / "code.py").write_text(
        dedent("""
        import triton, triton.language as tl
        tl.advance(p, 1), tl.softmax(x, 0, True), tl.load(p, boundary_check=(0,))
        @triton.autotune([], ["n"])
        def k(N): x.reshape([1], can_reorder=True)
        """)
    )
    sections = [line.rpartition(": ")[2] for line in run(tmp_path).stdout.splitlines()]
    assert len(sections) == 5
    assert all(f"# {part}\n# --" in page for text in sections for part in text.split(" / "))


def test_a_file_that_does_not_parse_is_told_and_passed_over(tmp_path):
    (tmp_path / "a.py").write_text('print "old"')
    (tmp_path / "b.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c.py").write_text(TL + "tl.advance(p, 1)")
    done = run(tmp_path)
    assert done.returncode == 1
    assert [f"{name}.py: skipped" in done.stderr for name in "abc"] == [True, True, False]
    assert "c.py:2" in done.stdout
    assert run(tmp_path / "missing").returncode == run().returncode == 2


def test_a_notebook_and_a_missing_file_are_one_line_each(tmp_path):
    (tmp_path / "kernel.ipynb").write_text("{}")
    for name, message in (("kernel.ipynb", "nbconvert --to script"), ("none.py", "no such file")):
        done = run(tmp_path / name)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
