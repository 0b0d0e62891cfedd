"""Drawings of the guide and of lessons are right and readable; the guide's code is right."""

import re
import types
from pathlib import Path
from textwrap import dedent

import pytest

from docs.figures import guide, lessons
from docs.figures.drawing import WIDTH
from docs.figures.lessons import PHILOX
from tests.fixtures.readers import execute

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "programming-guide"
FIGURES = guide.FIGURES | lessons.FIGURES
PHONE = 358  # pixels of text on a phone of 390

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


@pytest.mark.parametrize("path", FIGURES)
def test_each_drawing_is_what_its_function_draws(path):
    committed = (ROOT / path).read_text(encoding="utf-8")
    assert committed == FIGURES[path]().svg(), "draw it again: python -m docs.figures"


@pytest.mark.parametrize("path", FIGURES)
def test_a_drawing_can_be_read_on_a_phone_in_the_dark_and_aloud(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([0-9.]+)px", text)]
    assert min(sizes) * PHONE / WIDTH >= 11
    assert "prefers-color-scheme: dark" in text
    assert len(re.search("<desc>(.+)</desc>", text).group(1).split()) > 10


def test_the_drawing_of_dropout_shows_the_words_of_the_lesson():
    script = (ROOT / "tutorials/04-low-memory-dropout.py").read_text(encoding="utf-8")
    names = {"torch": types.SimpleNamespace(zeros_like=lambda counter: 0)}
    exec(script[script.index("WORD = ") : script.index("words = [")], names)
    assert (*names["philox"](0, 0), *names["philox"](0, 1)) == PHILOX


def test_the_drawing_of_the_cache_shows_what_the_lesson_counts():
    script = (ROOT / "tutorials/10-cross-entropy.py").read_text(encoding="utf-8")
    names: dict = {}
    exec(script[script.index("def hits(") :].partition("\n\n\n")[0], names)
    once = [(program, block) for block in range(9) for program in range(4)]
    assert names["hits"](once + once) == 0
    assert names["hits"](once + once[::-1]) == 4 * 8
