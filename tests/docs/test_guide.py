"""The programming guide: its figures are drawn by its script, and its code is right."""

import re
from pathlib import Path
from textwrap import dedent

from tests.fixtures.forked import execute

GUIDE = Path(__file__).parents[2] / "docs" / "programming-guide"

CHECK = """
import os

os.environ["TRITON_INTERPRET"] = "1"
import torch, triton
import triton.language as tl

{kernel}

for m, n, k in [(16, 16, 16), (33, 18, 5), (1, 40, 70)]:
    a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
    c = torch.full((m, n), float("nan"))
    matmul[(triton.cdiv(m, 16), triton.cdiv(n, 16))](a, b, c, m, n, k, T=16)
    # fp16 products are exact in fp32; the order of at most 70 additions differs.
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-5, atol=1e-4)
"""


def test_the_blocked_program_is_right(tmp_path):
    text = (GUIDE / "chapter-1" / "introduction.rst").read_text()
    kernel = re.search(r"\.\. code-block:: python\n\n((?: {9}.*\n|\n)+)", text).group(1)
    script = tmp_path / "check.py"
    script.write_text(CHECK.format(kernel=dedent(kernel)))
    result = execute(tmp_path, script.name)
    assert result.returncode == 0, result.stderr


def test_figures_are_what_the_script_draws(tmp_path):
    script = (GUIDE / "draw_figures.py").read_text()
    (tmp_path / "draw_figures.py").write_text(script)
    result = execute(tmp_path, "draw_figures.py")
    assert result.returncode == 0, result.stderr
    drawn = {path.name: path.read_text() for path in (tmp_path / "figures").iterdir()}
    committed = {path.name: path.read_text() for path in (GUIDE / "figures").iterdir()}
    assert drawn == committed, "draw them again: python docs/programming-guide/draw_figures.py"
