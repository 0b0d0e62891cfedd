"""What stands around a page: the bar, the path, the sections, the way on, and progress."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import reader

GALLERY = "stable/getting-started/tutorials"


def test_the_bar_stays_and_the_current_lesson_is_in_sight(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/09b-fp8-gluon.html")
    expect(page.locator(".wy-menu-vertical a.current")).to_be_in_viewport()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    for name in (".gallery-home", ".gallery-search input", ".gallery-theme", ".rst-versions"):
        expect(page.locator(name)).to_be_in_viewport()


def test_the_menu_has_the_path_and_the_sections_of_the_lesson(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    captions = page.locator(".wy-menu-vertical .caption")
    expect(captions).to_have_text(["First hour", "A transformer's kernels", "Further"])
    assert page.locator("li.toctree-l2").count() == page.locator("h2").count()


def test_on_a_wide_screen_the_section_in_view_is_marked(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html#counting-the-bytes")
    sections = page.locator(".gallery-sections")
    expect(sections).to_be_visible()
    expect(sections.locator("[aria-current]")).to_have_text("Counting the bytes")
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(sections).to_be_hidden()


def test_the_way_on_has_titles(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    way = page.locator(".gallery-way a")
    expect(way).to_have_text([re.compile("Previous Vector addition"), re.compile("Next →.*Matrix")])


def test_a_page_of_another_release_leads_back_to_the_same_section(page: Page, address: str) -> None:
    own = f"{address}stable/programming-guide/chapter-7/questions"
    section = "what-if-a-size-is-not-a-power-of-two"
    page.goto(f"{own}.triton-3.6.0.html#{section}")
    expect(page.locator(".gallery-way a")).to_have_count(2)
    expect(page.locator(".wy-menu-vertical a.current")).to_have_text(
        "Questions: blocks and numbers"
    )
    link = page.locator(".gallery-same-section")  # locator.click() would scroll a sticky element
    x, y = link.evaluate("a => { const r = a.getClientRects()[0]; return [r.x + 5, r.y + 5]; }")
    page.mouse.click(x, y)
    expect(page).to_have_url(f"{own}.html#{section}")


def test_a_lesson_that_was_read_to_its_end_has_a_mark(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/01-vector-add.html")
    here = page.locator(".wy-menu-vertical a.current")
    expect(here).to_have_attribute("data-progress", "seen")
    page.locator(".gallery-way").scroll_into_view_if_needed()
    expect(here).to_have_attribute("data-progress", "done")
    page.goto(f"{address}stable/index.html")
    card = page.locator(".gallery-row-title").get_by_role("link", name="Vector addition")
    expect(card).to_have_attribute("data-progress", "done")


@pytest.mark.parametrize("lesson", ["01-vector-add", "03-matrix-multiplication"])
def test_little_blocks_drawing(page: Page, address: str, lesson: str) -> None:
    page.goto(f"{address}{GALLERY}/{lesson}.html")
    blocking = page.locator(
        "head link[rel=stylesheet], head script[src]:not([defer]):not([async])"
    ).evaluate_all("all => all.map((e) => e.href ?? e.src)")
    assert len(blocking) <= 6, blocking


def test_a_first_visit_is_small(browser: Browser, address: str) -> None:
    """All that the page loads; the server of this test does not compress."""
    with reader(browser) as context:
        page = context.new_page()
        loaded: list[str] = []
        page.on("response", lambda answer: loaded.append(answer.url))
        page.goto(f"{address}{GALLERY}/01-vector-add.html", wait_until="networkidle")
        assert not [url for url in loaded if "fontawesome" in url or "jquery" in url]


def test_the_page_as_markdown_is_copied(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/01-vector-add.html")
    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.locator(".gallery-copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("# Vector addition")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download", exact=True).click()
    assert download.value.suggested_filename == "01-vector-add.py"


def test_an_old_address_of_the_api_leads_to_the_entry(page: Page, address: str) -> None:
    old = f"{address}stable/python-api/triton.language.html"
    page.goto(f"{old}#triton.language.load")
    expect(page).to_have_url(re.compile(r"/triton\.language/memory\.html#triton\.language\.load$"))
    page.goto(f"{old}#scan-and-sort")
    expect(page).to_have_url(re.compile(r"/triton\.language/scan-and-sort\.html$"))


def test_the_head_of_a_long_table_stays_below_the_bar(page: Page, address: str) -> None:
    page.goto(f"{address}stable/claims.html")
    page.evaluate("scrollTo(0, 2000)")
    expect(page.get_by_role("columnheader", name="Expected")).to_be_in_viewport()
    number = page.locator("td.number").first
    expect(number).to_have_css("text-align", "right")
    page.set_viewport_size(
        {"width": 390, "height": 800}
    )  # wider than a phone: it scrolls by itself
    expect(page.locator(".gallery-scroll:not(.fits)").first).to_have_css("overflow-x", "auto")


def test_the_link_to_a_record_opens_it(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    page.locator(".gallery-record summary").click()
    page.get_by_role("link", name="full record").click()
    expect(page.locator("details[open]")).to_have_count(1)
    expect(page.locator("details[open]")).to_contain_text("Key of the code")
