"""Each lesson that has been written in two parts keeps the form: code, names, headings, words."""

from pathlib import Path

from tests.docs import form


def test_every_lesson_keeps_its_form(site: Path):
    found = {name: [*form.problems(form.Lesson(name, site))] for name in form.lessons()}
    assert not {name: problems for name, problems in found.items() if problems}
