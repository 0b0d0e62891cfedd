"""What answers a reader: rates at the pointer, the waves of a product, what a term means."""

from __future__ import annotations

import csv
import re
from decimal import ROUND_HALF_UP, Context
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import reader
from tests.fixtures.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
T = "stable/getting-started/tutorials"
SOFTMAX = f"{T}/02-fused-softmax.html"
#: Pages with a plot of rates over a logarithmic and a linear axis, of two frames, of bars.
PLOTS = ("01-vector-add", "02-fused-softmax", "05-layer-norm", "08-grouped-gemm")

#: Half of the last digit is rounded up, as browsers do.
_FOUR = Context(prec=4, rounding=ROUND_HALF_UP)


def plot(page: Page, address: str, name: str) -> Locator:
    page.goto(f"{address}{T}/{name}.html")
    whole = page.locator(".gallery-rates").last
    # What is in a section far away has a place that counts with a height that is guessed: only when
    # the section itself is in sight is the place of the picture that which is drawn.
    whole.evaluate("element => element.closest('section').scrollIntoView()")
    shown = """element => {
        const { x, y, width, height } = element.getBoundingClientRect();
        const there = document.elementFromPoint(x + width / 2, Math.max(y, 0) + 9);
        const image = element.querySelector("img");
        return image.complete && image.naturalWidth > 0 && element.contains(there);
    }"""

    def in_sight() -> bool:
        whole.scroll_into_view_if_needed()
        return whole.evaluate(shown)

    wait_for(in_sight)
    return whole


def rates(name: str) -> set[str]:
    """All medians of a tutorial's benchmarks, with four digits, as the page writes numbers."""
    return {
        f"{float(_FOUR.create_decimal(row['median'])):,.10g}"
        for path in ROOT.glob(f"recordings/nvidia-h200/*/tutorials/{name}/*.csv")
        for row in csv.DictReader(path.open(newline=""))
        if "median" in row
    }


@pytest.mark.parametrize("name", PLOTS)
def test_the_pointer_asks_for_the_rates_of_the_file(page: Page, address: str, name: str) -> None:
    whole = plot(page, address, name)
    shown = whole.get_by_role("status").locator("em")

    def ask(part: float) -> list[str]:
        box = whole.bounding_box()  # each time: what comes above it moves it
        page.mouse.move(box["x"] + part * box["width"], box["y"] + 0.3 * box["height"])
        return [text.split()[0] for text in shown.all_inner_texts() if text]

    for part in (0.3, 0.5, 0.8):
        numbers = wait_for(lambda part=part: ask(part))
        assert set(numbers) <= rates(name), numbers
    page.mouse.move(2, 2)
    expect(whole.get_by_role("status")).to_be_empty()


def test_the_keyboard_goes_from_size_to_size(page: Page, address: str) -> None:
    whole = plot(page, address, "02-fused-softmax")
    slider = whole.get_by_role("slider")
    slider.focus()
    expect(slider).to_have_attribute("aria-valuetext", "N = 256")
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "N = 384")
    expect(whole.locator("[aria-live=polite]")).to_contain_text("naive")
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "N = 12672")
    page.keyboard.press("Escape")
    expect(whole.get_by_role("status")).to_be_empty()
    expect(page).to_have_url(f"{address}{SOFTMAX}")  # the arrows did not turn the page


def test_a_figure_of_two_frames_is_read_frame_by_frame(page: Page, address: str) -> None:
    whole = plot(page, address, "05-layer-norm")
    whole.get_by_role("slider").focus()
    expect(whole.get_by_role("status")).to_contain_text("forward")
    page.keyboard.press("ArrowDown")
    expect(whole.get_by_role("status")).to_contain_text("backward")


def test_a_picture_that_is_exchanged_answers_with_its_own_rates(page: Page, address: str) -> None:
    whole = plot(page, address, "02-fused-softmax")
    page.goto(f"{address}{T}/01-vector-add.html")
    other = page.locator("img[data-rates]").last.get_attribute("data-rates")
    whole = plot(page, address, "02-fused-softmax")
    slider = whole.get_by_role("slider")
    slider.focus()
    whole.locator("img").evaluate("(image, name) => { image.dataset.rates = name; }", other)
    expect(whole.get_by_role("status")).to_be_empty()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "size = 4096")


def test_rates_that_come_after_the_picture_was_exchanged_are_not_shown(
    page: Page, address: str
) -> None:
    waiting = []
    page.route("**/_static/rates/*.js", lambda route: waiting.append(route))
    page.goto(f"{address}{T}/02-fused-softmax.html")
    whole = page.locator(".gallery-rates").last
    whole.get_by_role("slider").focus()
    wait_for(lambda: page.evaluate("1") and waiting)
    whole.locator("img").evaluate("image => { image.dataset.rates = 'other.js'; }")
    with page.expect_response("**/_static/rates/*.js"):
        waiting[0].continue_()
    page.evaluate("new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
    expect(whole.get_by_role("status")).to_be_empty()


def test_a_finger_asks_too_and_the_picture_stays(browser: Browser, address: str) -> None:
    with reader(browser, viewport={"width": 360, "height": 780}, has_touch=True) as context:
        page = context.new_page()
        whole = plot(page, address, "02-fused-softmax")
        whole.tap()
        expect(whole.get_by_role("status")).to_contain_text("GB/s")
        assert page.url == f"{address}{SOFTMAX}"
        edge = whole.get_by_role("status").bounding_box()
        assert edge["x"] >= 0
        assert edge["x"] + edge["width"] <= 360


def test_without_scripts_pictures_and_terms_are_there(browser: Browser, address: str) -> None:
    with reader(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}{SOFTMAX}")
        expect(page.locator("img[data-rates]").first).to_be_visible()
        assert "glossary.html#term-" in page.locator("a:has(.gallery-term)").first.get_attribute(
            "href"
        )
        page.goto(f"{address}{T}/03b-full-waves.html")
        expect(page.locator(".gallery-tiles svg").first).to_be_visible()
        expect(page.locator(".gallery-tiles")).to_contain_text("row by row, 99, 108")


def test_the_slider_goes_through_the_waves(page: Page, address: str) -> None:
    page.goto(f"{address}{T}/03b-full-waves.html")
    whole = page.locator(".gallery-tiles")
    slider = whole.get_by_role("slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(whole.locator("output")).to_have_text("Wave 2 of 6: programs 16 to 31")
    expect(whole.locator("figcaption").first).to_have_text("Row by row: 108 tiles read")
    expect(whole.locator("figcaption").last).to_have_text("In groups of 4 rows: 72 tiles read")
    assert "108 tiles read" in slider.get_attribute("aria-valuetext")
    assert page.url.endswith("03b-full-waves.html")


def test_a_term_says_what_it_means(page: Page, address: str) -> None:
    page.goto(f"{address}{SOFTMAX}")
    link = page.locator("a[href*='glossary.html#term-stride']").first
    meaning = page.get_by_role("tooltip")
    expect(meaning).to_be_hidden()
    link.hover()
    expect(meaning).to_contain_text("How many elements lie between neighbours")
    meaning.hover()  # it stays while it is read
    page.wait_for_timeout(400)
    expect(meaning).to_be_visible()
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()
    page.mouse.move(2, 2)
    link.focus()
    expect(meaning).to_be_visible()
    assert link.get_attribute("aria-describedby") == meaning.get_attribute("id")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"glossary\.html#term-stride$"))


def test_the_first_tap_says_what_a_term_means_and_the_second_goes_there(
    browser: Browser, address: str
) -> None:
    with reader(browser, viewport={"width": 360, "height": 780}, has_touch=True) as context:
        page = context.new_page()
        page.goto(f"{address}{SOFTMAX}")
        link = page.locator("a[href*='glossary.html#term-stride']").first
        link.tap()
        box = page.get_by_role("tooltip")
        expect(box).to_be_visible()
        edge = box.bounding_box()
        assert edge["x"] >= 0
        assert edge["x"] + edge["width"] <= 360
        link.tap()
        expect(page).to_have_url(re.compile(r"glossary\.html#term-stride$"))
