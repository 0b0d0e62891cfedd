"""Each lesson that has been written in two parts keeps the form: code, names, headings, words."""

import re
from pathlib import Path

from tests.docs import form

#: What is known to be too long. The code of these scripts is recorded, so each is mended with its
#: next recording; nothing new may come.
KNOWN = {
    "06c-attention-gluon": {"a block of N lines in sight, N at most"},
}


def test_every_lesson_keeps_its_form(site: Path):
    def kinds(lesson):
        return {re.sub(r"\d+", "N", problem) for problem in form.problems(lesson)}

    found = {name: kinds(form.Lesson(name, site)) for name in form.lessons()}
    new = {name: problems - KNOWN.get(name, set()) for name, problems in found.items()}
    assert not {name: problems for name, problems in new.items() if problems}
