"""The switch for device and release, in a browser: chosen, kept, undone, printed; from a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import reader, watch
from tests.fixtures import fixture_site
from tests.fixtures.two_devices import DEVICE, GALLERY, OLDER, REAL, SECOND

FIRST, NEXT = f"{GALLERY}/01-vector-add.html", f"{GALLERY}/02-fused-softmax.html"


@pytest.fixture(scope="module", params=["server", pytest.param("file", marks=pytest.mark.stress)])
def root(request: pytest.FixtureRequest, two_devices_site: Path) -> Iterator[str]:
    """Where the site is: on a server, or in a folder."""
    if request.param == "file":
        yield f"{two_devices_site.as_uri()}/"
    else:
        with fixture_site.served(two_devices_site) as address:
            yield address


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with reader(browser) as made:
        yield made


@pytest.fixture
def page(context: BrowserContext, root: str) -> Iterator[Page]:
    opened = context.new_page()
    complaints = watch(opened, root)
    yield opened
    # This site was not published: no list of versions is beside it.
    assert not [text for text in complaints if "versions.json" not in text and "404" not in text]


def choose(page: Page, place: str) -> None:
    page.get_by_label("Show what was recorded on").select_option(place)
    shown(page, place)


def shown(page: Page, place: str) -> None:
    """The page shows the recordings of *place*, all of them."""
    release = place.partition("/triton-")[2]
    name = DEVICE if place == SECOND else "NVIDIA H200"
    expect(page.locator(".gallery-provenance")).to_contain_text(f"{name} · Triton {release}")
    figures = page.locator("[itemprop=articleBody] img[src*='sphx_glr_0']")
    for figure in figures.evaluate_all("all => all.map(i => i.getAttribute('src'))"):
        assert (place.replace("/", "-") in figure) is (place != REAL)


def test_a_choice_is_shown_whole_and_can_be_taken_back(page: Page, root: str) -> None:
    page.goto(root + FIRST)
    body = page.locator("[itemprop=articleBody]")
    before = body.inner_html()
    assert page.evaluate("performance.getEntriesByType('resource').map(e => e.name)").count(
        f"{root}{GALLERY}/01-vector-add.{OLDER.replace('/', '-')}.js"
    ) == 0, "nothing of other recordings is loaded before it is asked for"  # fmt: skip
    notebook = page.locator(".sphx-glr-download-jupyter a").get_attribute("href")
    colab = page.locator("a[href^='https://colab']")
    usual_colab = colab.get_attribute("href")
    for place in (OLDER, SECOND):
        choose(page, place)
        own = page.locator(".sphx-glr-download-jupyter a").get_attribute("href")
        assert own != notebook
        assert own.rpartition("_downloads/")[2] in colab.get_attribute("href")
        expect(page.locator(".gallery-switch [role=status]")).to_contain_text("Shown: ")
        expect(page).to_have_url(re.compile(re.escape(f"?device={place}")))
    choose(page, REAL)
    expect(page).not_to_have_url(re.compile("device"))
    assert colab.get_attribute("href") == usual_colab
    # The theme wraps tables and links are kept; the rest is as it was.
    assert body.inner_text() != ""
    assert body.inner_html().count("<table") == before.count("<table")
    assert page.locator(".sphx-glr-download-jupyter a").get_attribute("href") == notebook


def test_a_choice_holds_on_other_pages_and_when_the_site_is_visited_again(
    page: Page, context: BrowserContext, root: str
) -> None:
    page.goto(root + FIRST)
    choose(page, SECOND)
    page.locator(".gallery-neighbors a[rel=next]").click()
    page.wait_for_url(f"**/02-fused-softmax.html?device={SECOND}")
    shown(page, SECOND)
    page.goto(root + "performance.html")
    page.wait_for_url(f"**/performance.html?device={SECOND}")
    again = context.new_page()
    again.goto(root + FIRST)
    shown(again, SECOND)
    choose(again, REAL)
    again.goto(root + NEXT)
    shown(again, REAL)


def test_the_address_says_it_to_others(page: Page, root: str) -> None:
    page.goto(f"{root}{FIRST}?device={OLDER}#what-to-remember")
    shown(page, OLDER)
    expect(page).to_have_url(f"{root}{FIRST}?device={OLDER}#what-to-remember")
    expect(page.locator("#what-to-remember")).to_be_in_viewport()


def test_back_undoes_a_choice(page: Page, root: str) -> None:
    page.goto(root + FIRST)
    choose(page, OLDER)
    choose(page, SECOND)
    page.go_back()
    shown(page, OLDER)
    page.go_back()
    shown(page, REAL)
    page.go_forward()
    shown(page, OLDER)
    page.reload()
    shown(page, OLDER)


def test_a_page_without_the_recording_says_so(page: Page, root: str) -> None:
    page.goto(f"{root}{NEXT}?device={OLDER}")
    shown(page, REAL)
    expect(page.locator(".gallery-switch [role=status]")).to_have_text(
        "This page was not recorded on NVIDIA H200, Triton 3.6.0. "
        "Shown: NVIDIA H200, Triton 3.9.0, the newest."
    )
    page.goto(root + FIRST)
    shown(page, OLDER)


@pytest.mark.parametrize("device", ["nothing", "<b>bold</b>", "nvidia-h200/triton-3.6.0x"])
def test_a_place_that_there_is_not_changes_nothing(page: Page, root: str, device: str) -> None:
    page.goto(f"{root}{FIRST}?device={device}")
    shown(page, REAL)
    expect(page.locator(".gallery-switch [role=status]")).to_contain_text("not recorded on")
    assert page.locator(".gallery-switch b").count() == 0
    page.goto(root + FIRST)
    shown(page, REAL)


def test_charts_of_the_performance_page_follow(page: Page, root: str) -> None:
    page.goto(root + "performance.html")
    captions = page.locator(".gallery-chart figcaption")
    expect(captions.first).to_contain_text("NVIDIA H200, Triton 3.9.0")
    switch = page.get_by_label("Show what was recorded on")
    switch.select_option(OLDER)
    expect(captions.first).to_contain_text("NVIDIA H200, Triton 3.6.0")
    switch.select_option(SECOND)  # whose charts are there as well
    expect(captions.first).to_contain_text("NVIDIA H200, Triton 3.9.0")
    expect(page.locator(".gallery-switch [role=status]")).to_have_text(
        f"Shown: {DEVICE}, Triton 3.9.0."
    )
    assert any(f"{DEVICE}, Triton 3.9.0" in text for text in captions.all_inner_texts())


def test_folds_stay_open_and_the_intermediate_code_is_that_of_the_choice(
    page: Page, root: str
) -> None:
    page.goto(root + FIRST)
    fold = page.locator(".gallery-fold-xray").first
    fold.locator("summary").click()
    expect(fold.locator(".gallery-xray .code")).to_be_visible()
    choose(page, SECOND)
    expect(fold).to_have_attribute("open", "")
    assert SECOND.replace("/", "-") in fold.locator(".gallery-xray").get_attribute("data-source")
    expect(fold.locator(".gallery-xray .code")).to_be_visible()


def test_the_keyboard_is_enough_and_the_focus_stays(page: Page, root: str) -> None:
    page.goto(root + FIRST)
    select = page.get_by_label("Show what was recorded on")
    select.focus()
    page.keyboard.press("ArrowDown")
    shown(page, OLDER)
    expect(select).to_be_focused()
    if root.startswith("file:"):
        return  # Axe asks for style sheets, which a page in a file may not
    found = Axe().run(page, context={"include": [[".gallery-switch"]]})
    assert not found.response["violations"], json.dumps(found.response["violations"])[:2000]


def test_paper_has_what_was_chosen_and_no_switch(page: Page, root: str) -> None:
    page.goto(root + FIRST)
    choose(page, OLDER)
    page.emulate_media(media="print")
    expect(page.locator(".gallery-switch")).to_be_hidden()
    expect(page.locator(".gallery-provenance")).to_contain_text("Triton 3.6.0")


def test_without_a_script_the_newest_is_there(browser: Browser, root: str) -> None:
    with reader(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{root}{FIRST}?device={OLDER}")
        shown(page, REAL)
        expect(page.locator(".gallery-switch")).to_be_hidden()


def test_a_file_that_cannot_be_fetched_leaves_the_page_as_it_is(
    context: BrowserContext, root: str
) -> None:
    page = context.new_page()  # that may complain
    page.goto(root + FIRST)
    page.evaluate("document.querySelector('option[data-file]').dataset.file = 'gone.js'")
    page.get_by_label("Show what was recorded on").select_option(OLDER)
    expect(page.locator(".gallery-switch [role=status]")).to_contain_text("could not be fetched")
    shown(page, REAL)
