"""What readers search for leads them to the place, among the first three."""

import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import reader

T = "getting-started/tutorials/"

#: Words as people of several languages type them, and where one of the first three results has to
#: lead: beginnings of addresses, so that a page may move a section.
with open(Path(__file__).with_name("searches.csv"), encoding="utf-8", newline="") as _file:
    SEARCHES = {
        row["words"]: tuple(filter(None, (row["place"], row["or else"])))
        for row in csv.DictReader(_file)
    }


@pytest.fixture(scope="module")
def search_page(browser: Browser, address: str) -> Iterator[Page]:
    with reader(browser) as context:
        page = context.new_page()
        page.goto(f"{address}stable/search.html")
        yield page


def places(page: Page, words: str) -> list[str]:
    return page.evaluate(
        "words => gallerySearch(words).slice(0, 3).map((s) => `${s.address}#${s.anchor}`)", words
    )


@pytest.mark.parametrize(("words", "wanted"), SEARCHES.items())
def test_words_lead_to_their_place(search_page: Page, words: str, wanted: tuple[str, ...]) -> None:
    found = places(search_page, words)
    assert any(place.startswith(wanted) for place in found), found


def test_the_right_place_comes_first(search_page: Page) -> None:
    wrong = {
        words: first
        for words, wanted in SEARCHES.items()
        if not (first := places(search_page, words)[0]).startswith(wanted)
    }
    assert len(wrong) <= 0.1 * len(SEARCHES), wrong


def test_little_is_loaded_before_the_first_result(site: Path) -> None:
    files = ("language_data.js", "search-index.js", "search.js")
    sizes = [len(gzip.compress((site / "_static" / name).read_bytes())) for name in files]
    assert sum(sizes) <= 150_000


@pytest.mark.parametrize(("typed", "offered"), [("sofmax", "softmax"), ("attenntion", "attention")])
def test_a_slip_is_a_question_and_no_match(page: Page, address: str, typed, offered) -> None:
    page.goto(f"{address}stable/index.html")
    page.keyboard.press("/")
    page.keyboard.type(typed)
    panel = page.locator(".gallery-results.gallery-found")
    expect(panel).to_contain_text(f"No result for “{typed}”. Did you mean {offered}?")
    expect(panel.locator("li")).to_have_count(0)
    panel.get_by_role("button", name=offered).click()
    expect(panel.locator("li").first).to_be_visible()


def test_results_come_as_one_types_and_lead_there_by_the_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}stable/{T}03-matrix-multiplication.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax")
    panel = page.locator(".gallery-results.gallery-found")
    first = panel.locator("li").first
    expect(first).to_contain_text("Fused softmax")
    expect(first.locator("small")).to_have_text("lesson")
    expect(panel.locator("mark").first).to_have_text(re.compile("softmax", re.I))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("02-fused-softmax"))


def test_a_word_of_no_page_is_named(search_page: Page) -> None:
    assert search_page.evaluate("gallerySearch('softmax xyzzyq').unknown") == ["xyzzyq"]
    assert (
        search_page.evaluate("gallerySearch('GPTQ').filter((s) => s.title == 'GPT-2').length") == 0
    )


def test_a_spelling_that_is_not_close_is_not_offered(search_page: Page) -> None:
    assert search_page.evaluate("gallerySearch('branch xqcc').instead") is None
    assert search_page.evaluate("gallerySearch('tl.debug_barier').instead") == "tl.debug_barrier"


def test_letters_inside_a_word_are_no_match(search_page: Page) -> None:
    found = search_page.evaluate(
        "gallerySearch('max').filter((s) => s.kind !== 'page')"
        ".map((s) => `${s.title} ${s.prose} ${s.code} ${s.terms} ${s.page}`.toLowerCase())"
    )
    assert found
    assert all(re.search(r"(?<![^\W_])max(?![^\W_])", text) for text in found)
    titles = search_page.evaluate("gallerySearch('TMA').slice(0, 10).map((s) => s.title)")
    assert not any("oftmax" in title for title in titles)
