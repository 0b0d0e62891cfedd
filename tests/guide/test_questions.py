"""Chapter 7, in the interpreter: every page runs, and its right answers are asserted there."""

import pytest


@pytest.mark.parametrize("name", ["questions", "questions-memory", "questions-compiling"])
def test_a_wrong_answer_would_stop_the_page(name, tutorial):
    assert tutorial(name)
