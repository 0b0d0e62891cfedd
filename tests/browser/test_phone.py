"""On a phone, with a finger: what is large enough to read, and what can be reached. On paper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import reader

T = "stable/getting-started/tutorials"
SOFTMAX, MATMUL = f"{T}/02-fused-softmax.html", f"{T}/03-matrix-multiplication.html"
WHOLE = "section, dl { content-visibility: visible !important }"


@pytest.fixture(scope="module")
def phone(browser: Browser, address: str) -> Iterator[Page]:
    screen = {"width": 360, "height": 780}
    with reader(browser, viewport=screen, has_touch=True, is_mobile=True, base_url=address) as made:
        yield made.new_page()


def show(phone: Page, name: str) -> None:
    if not phone.url.endswith(name):
        phone.goto(name)
        phone.add_style_tag(content=WHOLE)


@pytest.mark.parametrize("name", [SOFTMAX, MATMUL, f"{T}/06-fused-attention.html"])
def test_a_ladder_is_whole(phone: Page, name: str) -> None:
    show(phone, name)
    over = "all => all.map(t => t.scrollWidth - t.closest('.wy-table-responsive').clientWidth)"
    assert all(part <= 0 for part in phone.locator("table.gallery-ladder").evaluate_all(over))


def test_what_is_wide_scrolls_inside(phone: Page) -> None:
    for name in ("stable/performance.html", MATMUL):
        show(phone, name)
        wide = phone.locator("pre, .wy-table-responsive, .gallery-chart").evaluate_all(
            """boxes => boxes.filter((box) => box.scrollWidth > box.clientWidth + 1)
                .map((box) => getComputedStyle(box).overflowX)"""
        )
        assert wide
        assert set(wide) == {"auto"}
        assert phone.evaluate("document.scrollingElement.scrollWidth") == 360


def test_copy_buttons_are_there_without_hovering(phone: Page) -> None:
    show(phone, SOFTMAX)
    seen = phone.locator("button.copybtn").evaluate_all(
        "all => all.map(b => getComputedStyle(b).opacity)"
    )
    assert len(seen) > 3
    assert set(seen) == {"1"}


def test_text_is_large_enough(phone: Page) -> None:
    size = "all => all.map(e => parseFloat(getComputedStyle(e).fontSize))"
    show(phone, SOFTMAX)
    assert min(phone.locator("[itemprop=articleBody] pre").evaluate_all(size)) >= 14
    assert min(phone.locator("[itemprop=articleBody] code").evaluate_all(size)) >= 14
    assert min(phone.locator(".wy-menu-vertical a").evaluate_all(size)) >= 13
    assert min(phone.locator("[itemprop=articleBody] :is(p, li, td)").evaluate_all(size)) >= 12


def test_text_in_figures_is_at_least_9_pixels(phone: Page) -> None:
    """The smallest text of our figures has 11 pixels where they are 720 pixels wide."""
    show(phone, SOFTMAX)
    shown = phone.locator("img.sphx-glr-single-img").evaluate_all("all => all.map(i => i.width)")
    assert shown
    assert min(shown) / 720 * 11 >= 9
    show(phone, "stable/performance.html")
    sizes = phone.locator(":is(.gallery-chart, .gallery-sparkline) text").evaluate_all(
        """all => all.map((text) => {
            const svg = text.ownerSVGElement;
            const scale = svg.clientWidth / svg.viewBox.baseVal.width;
            return parseFloat(getComputedStyle(text).fontSize) * scale;
        })"""
    )
    assert len(sizes) > 20
    assert min(sizes) >= 9


@pytest.mark.parametrize("name", ["stable/python-api/triton.language.html", "stable/glossary.html"])
def test_code_in_running_text_is_large_enough(phone: Page, name: str) -> None:
    show(phone, name)
    size = "all => all.map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert min(phone.locator("[itemprop=articleBody] code").evaluate_all(size)) >= 14


def test_thumbnails_have_no_words_that_would_be_too_small(phone: Page) -> None:
    """A card shows curves alone; what they are, its title says."""
    show(phone, "stable/index.html")
    shown = phone.locator(".sphx-glr-thumbcontainer img").evaluate_all("all => all.map(i => i.src)")
    assert len(shown) > 9
    assert all(address.endswith(".svg") for address in shown)
    assert 'id="text_' not in phone.request.get(shown[0]).text()


def test_the_general_index_is_no_longer_than_its_names(phone: Page) -> None:
    show(phone, "stable/genindex.html")
    names = phone.locator(".indextable a").count()
    assert phone.evaluate("document.scrollingElement.scrollHeight") < 6000 + 40 * names


def test_on_paper_titles_stay_with_what_follows_and_code_leaves_no_page_empty(
    phone: Page,
) -> None:
    show(phone, SOFTMAX)
    phone.emulate_media(media="print")
    body = phone.locator("[itemprop=articleBody]")
    after = "all => all.map(e => getComputedStyle(e).breakAfter)"
    inside = "all => all.map(e => getComputedStyle(e).breakInside)"
    kept = "h1, h2, h3, .gallery-fold:has(+ .sphx-glr-single-img)"
    assert set(body.locator(kept).evaluate_all(after)) == {"avoid"}
    assert "auto" in body.locator(".gallery-fold:has(+ section)").evaluate_all(after)
    assert set(body.locator("pre:not(details *)").evaluate_all(inside)) == {"auto"}
    assert set(body.locator("img, .gallery-fold").evaluate_all(inside)) == {"avoid"}
    phone.emulate_media(media="screen")
