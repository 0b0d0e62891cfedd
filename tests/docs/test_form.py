"""Each lesson that has been written in two parts keeps the form: code, names, headings, words."""

import re
from pathlib import Path

import pytest

from tests.docs import form

PAGE = """<main><div itemprop="articleBody"><h1>T</h1><h2>The kernel</h2>
<div class="highlight-Python"><pre>{code}</pre></div>
<details><div class="highlight-Python"><pre>PLANS = {{}}</pre></div></details>
<h2>In a program</h2><p>{words}</p></div></main>"""
CODE = "@triton.jit\ndef kernel():\n\n    pass\n"


def lesson(folder: Path, code: str = CODE, words: int = 1000, name: str = "02-fused-softmax"):
    path = folder / f"{form.PAGES[name]}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PAGE.format(code=code, words="word " * words))
    return form.Lesson(name, folder)


#: What is known to be too long. The code of these scripts is recorded, so each is mended with its
#: next recording; nothing new may come.
KNOWN = {
    "05-layer-norm": {"N lines of script, N at most"},
    "05b-reductions": {"N lines of script, N at most"},
    "06c-attention-gluon": {"a block of N lines in sight, N at most"},
    "08-grouped-gemm": {"N headings, N at most"},
    "09-fp8-matmul": {"N headings, N at most"},
    "10-cross-entropy": {
        "N lines of code in sight, N at most",
        "a block of N lines in sight, N at most",
        "N headings, N at most",
        "N lines of script, N at most",
    },
    "12-int4-weights": {"N headings, N at most", "N lines of script, N at most"},
    "13-sampling": {"N headings, N at most", "N lines of script, N at most"},
}


def test_every_lesson_keeps_its_form(site: Path):
    def kinds(lesson):
        return {re.sub(r"\d+", "N", problem) for problem in form.problems(lesson)}

    found = {lesson.name: kinds(lesson) for lesson in form.lessons(site)}
    new = {name: problems - KNOWN.get(name, set()) for name, problems in found.items()}
    assert not {name: problems for name, problems in new.items() if problems}


def test_a_lesson_within_its_form(tmp_path: Path):
    assert list(form.problems(lesson(tmp_path))) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"code": CODE + "x = 1\n" * 108}, "111 lines of code in sight, 110 at most"),
        ({"code": CODE + "x = 1\n" * 43}, "a block of 46 lines in sight, 45 at most"),
        ({"code": CODE + "KEPT = {}"}, "KEPT in sight"),
        ({"code": CODE + "torch.compiler.is_compiling()"}, "is_compiling in sight"),
        ({"code": "import torch"}, "its first code in sight is not its kernel"),
        ({"words": 2000}, "2006 words, not 900 to 1700"),
    ],
)
def test_what_exceeds_the_form_is_named(tmp_path: Path, change, problem):
    assert problem in list(form.problems(lesson(tmp_path, **change)))


def test_an_idea_may_come_before_its_kernel(tmp_path: Path):
    idea = lesson(tmp_path, code="x = torch.sort(y)\n" * 15, name="14-gated-delta-rule")
    assert list(form.problems(idea)) == []
