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

#: Words, and where one of the first three results has to lead: a page, or a term or an entry. More
#: of them, which words.toml was written with, are reported by `make bench`.
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
        page.wait_for_function("() => window.gallerySearch !== undefined")
        yield page


def groups(page: Page, words: str) -> list[list[str]]:
    """The first three results, each as the places that it shows."""
    return page.evaluate(
        "words => gallerySearch(words).slice(0, 3).map((group) =>"
        " [group, ...group.sections.slice(0, 3)].map((s) => `${s.address}#${s.anchor}`))",
        words,
    )


@pytest.mark.parametrize(("words", "wanted"), SEARCHES.items())
def test_words_lead_to_their_place(search_page: Page, words: str, wanted: tuple[str, ...]) -> None:
    found = groups(search_page, words)
    assert any(place.startswith(wanted) for places in found for place in places), found


def test_a_lesson_comes_first_for_its_own_title(search_page: Page) -> None:
    lessons = search_page.evaluate(
        "galleryIndex.pages.filter(([, , label]) => label === 'lesson')"
        ".map(([address, title]) => [address, title])"
    )
    assert len(lessons) > 20
    wrong = {
        title: first
        for address, title in lessons
        if not address.endswith("index.html")
        and not (first := groups(search_page, title)[0][0]).startswith(address)
    }
    assert not wrong


#: Pages about this site and the engine, which stand behind all others.
OF_THE_PROJECT = "engine|your-gallery|contributing|recordings|releases|claims"


def test_pages_on_this_project_come_last(search_page: Page) -> None:
    found = search_page.evaluate("gallerySearch('recording').map((group) => group.address)")
    own = [bool(re.match(OF_THE_PROJECT, name)) for name in found]
    assert any(own)
    assert own == sorted(own)


def test_little_is_loaded_before_the_first_result(site: Path) -> None:
    files = ("language_data.js", "search-index.js", "search.js")
    sizes = [len(gzip.compress((site / "_static" / name).read_bytes())) for name in files]
    assert sum(sizes) <= 150_000


@pytest.mark.parametrize(("typed", "title"), [("sofmax", "softmax"), ("attenntion", "attention")])
def test_a_misspelt_word_shows_results_at_once(page: Page, address: str, typed, title) -> None:
    page.goto(f"{address}stable/index.html")
    page.keyboard.press("/")
    page.keyboard.type(typed)
    panel = page.locator(".gallery-results.gallery-found")
    expect(panel).to_contain_text(f"No page has “{typed}”")
    expect(panel.locator("li").first).to_contain_text(re.compile(title, re.I))


def test_a_page_is_one_result_with_its_sections_below(page: Page, address: str) -> None:
    page.goto(f"{address}stable/search.html?q=softmax")
    results = page.locator("#search-results > ul > li")
    expect(results.first).to_be_visible()
    links = results.locator("> a").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert len(links) == len({*links})
    expect(results.first.locator("li").first).to_be_visible()


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
    assert not search_page.evaluate("gallerySearch('constructor').unknown.length > 1")
