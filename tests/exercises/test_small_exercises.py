"""The checker accepts a right answer to each small exercise, and names its mistakes."""

import itertools
import re

import pytest

from tests.exercises.practice import ROOT, command
from tests.exercises.small_exercises import SMALL


def without_code(text):
    """What the checker prints, in one line, without the lines of the reader's file."""
    return " ".join(re.sub(r"mine.py line \d+ `.*`", "", text).split())


def shown_in_lesson(name):
    """What a lesson shows of the checker, behind its command; nothing if it shows the command."""
    for path in (ROOT / "tutorials").glob(f"{name.partition('-')[0]}-*.py"):
        command = f"#    $ python exercise.pyz {name} mine.py\n"
        behind = path.read_text(encoding="utf-8").partition(command)[2]
        lines = itertools.takewhile(lambda line: line.startswith("#    "), behind.split("\n"))
        return "".join(f"{line[5:]}\n" for line in lines)
    return ""


@pytest.mark.parametrize("name", SMALL)
def test_a_small_exercise_knows_its_mistakes(name, tmp_path):
    """And a lesson shows what the checker prints for one of them."""
    head = "import torch\nimport triton\nimport triton.language as tl\n"
    text, mistakes = SMALL[name]
    shown, seen = without_code(shown_in_lesson(name)), []
    status, printed = command(tmp_path, name, "mine.py", mine=head + text)
    assert status == 0, printed
    assert "times as many" in printed
    for old, new, message in mistakes:
        assert old in text
        status, printed = command(tmp_path, name, "mine.py", mine=head + text.replace(old, new))
        assert status == 1
        assert message in printed, printed
        seen.append(without_code(printed))
    assert any(printed.startswith(shown) for printed in seen)
