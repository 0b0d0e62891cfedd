"""A question stands before the number that answers it, with and without scripts."""

from collections.abc import Callable

import pytest

from triton_site.numbers import measured
from triton_site.numbers.quantities import Definition

TEXT = '''"""
First
=====

Words.
"""

# %%
# {question}

kernel = 1
'''
CHOICES = """.. predict:: How much *faster*?
#    :choices: twice | four times | eight times
#    :answer: four times
#
#    It moves a quarter of the bytes."""
NUMBER = """.. predict:: How fast is the copy?
#    :number: copy
#    :unit: GB/s
#
#    The memory's bandwidth."""


def test_three_choices_and_the_answer_in_a_fold(build: Callable) -> None:
    built = build(TEXT.format(question=CHOICES))
    (box,) = built.page.select(".gallery-predict")
    assert [item.text.strip() for item in box.select(".gallery-choices > li")] == [
        "twice",
        "four times",
        "eight times",
    ]
    assert box["data-right"] == "1"
    assert box.select_one("p em").text == "faster"
    assert "open" not in box.details.attrs
    assert "four times" in box.details.text
    assert "a quarter" in box.details.text
    assert built.page.select_one('script[src*="predict.js"]')


def test_a_number_comes_from_the_recording(build: Callable, monkeypatch) -> None:
    wanted = {"copy": Definition("value('copy')")}
    monkeypatch.setattr(measured, "definitions", lambda script: wanted)
    values = "name,unit,value\ncopy,GB/s,4310\n"
    page = build(TEXT.format(question=NUMBER), {"01-first-values.csv": values}).page
    (box,) = page.select(".gallery-predict")
    assert box["data-unit"] == "GB/s"
    assert box.details.select_one(".measured").text == "4310"
    assert "4310 GB/s" in box.details.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (CHOICES.replace(":answer: four times", ":answer: five times"), "none of the :choices:"),
        (CHOICES.replace(" | eight times", ""), "three different answers"),
        (CHOICES.replace(":answer: four times", ":number: copy"), "either :choices:"),
        (NUMBER, "copy is not in numbers.toml"),
    ],
)
def test_a_question_without_an_answer_is_an_error(build: Callable, wrong, message) -> None:
    assert message in build(TEXT.format(question=wrong), {}).warnings
