"""Every page once in a browser: no complaint, no other host, nothing wider than a phone."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from gallery_recorder.publish import versions
from tests.browser.conftest import NEW_PAGE, reader, watch

GALLERY = "getting-started/tutorials"
FIRST = f"{GALLERY}/01-vector-add.html"

#: Pages without title or language, pictures that are missing or have no text, and formulas without
#: a size.
_BROKEN = """() => {
    const found = [];
    if (!document.title || document.documentElement.lang !== "en") found.push("no title or lang");
    const headings = document.querySelectorAll("h1").length;
    if (headings !== 1 && !location.pathname.endsWith("search.html")) found.push(`${headings} h1`);
    for (const image of document.images) {
        const named = image.alt.trim() && !/^figure \\d+$/.test(image.alt);
        const drawn = image.matches(".sphx-glr-single-img") && !named;
        if (!image.hasAttribute("alt") || drawn) found.push(`no alt: ${image.src}`);
        if (image.loading !== "lazy" && !image.naturalWidth) found.push(`not shown: ${image.src}`);
    }
    for (const math of document.querySelectorAll("math")) {
        if (math.checkVisibility() && !math.getBoundingClientRect().width)
            found.push(`no size: ${math.textContent}`);
    }
    const wide = document.scrollingElement.scrollWidth;
    if (wide > innerWidth) found.push(`${wide} px wide in a window of ${innerWidth} px`);
    return found;
}"""


def test_every_page_loads_without_complaints_and_fits_a_phone(
    browser: Browser, published: Path, address: str
) -> None:
    names = versions.read_build(published / "v1.0.0").pages[0]
    assert len(names) > 50
    own = [name for name in names if ".triton-" not in name]  # the others are made alike
    problems = []
    with reader(browser, viewport={"width": 390, "height": 800}) as context:
        page = context.new_page()
        complaints = watch(page, address)
        for name in sorted(own):
            answer = page.goto(f"{address}v1.0.0/{name}", wait_until="load")
            assert answer is not None
            assert answer.ok, name
            problems += [f"{name}: {text}" for text in page.evaluate(_BROKEN)]
    assert not [*problems, *complaints]


@pytest.mark.parametrize(
    ("place", "scheme"),
    [
        ("stable/index.html", "light"),
        (f"stable/{GALLERY}/solutions/01-axpy.html", "dark"),
        ("stable/search.html?q=mask", "light"),
        ("stable/search.html?q=mask", "dark"),
        (f"stable/{GALLERY}/06-fused-attention.triton-3.6.0.html", "light"),
        ("stable/python-api/triton.testing.html", "dark"),
        ("versions.html", "light"),
    ],
)
def test_axe_finds_nothing_serious(page: Page, address: str, place: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(address + place)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert not [
        f"{violation['id']}: {[node['html'][:150] for node in violation['nodes'][:3]]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]


def brightness(page: Page, selector: str, what: str) -> float:
    color = page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{what}")
    return sum(float(part) for part in re.findall(r"[\d.]+", color)[:3]) / 3


def test_colors_follow_the_system_until_the_reader_chooses(page: Page, address: str) -> None:
    ground, text = ("body", "backgroundColor"), (".document p", "color")
    page.emulate_media(color_scheme="light")
    page.goto(f"{address}stable/{FIRST}")
    assert brightness(page, *ground) > 200 > 100 > brightness(page, *text)
    page.emulate_media(color_scheme="dark")
    assert brightness(page, *text) > 150 > 60 > brightness(page, *ground)
    page.get_by_role("button", name="Light").click()
    page.reload()
    assert brightness(page, *ground) > 200


def test_the_menu_opens_on_a_phone(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}stable/{FIRST}")
    page.get_by_role("button", name="Menu").press("Enter")
    page.locator(".wy-menu").get_by_role("link", name="Fused softmax").click()
    expect(page).to_have_url(f"{address}stable/{GALLERY}/02-fused-softmax.html")


# --- versions -------------------------------------------------------------------------------------


def test_the_menu_of_versions_leads_to_the_same_page(page: Page, address: str) -> None:
    page.goto(f"{address}stable/{FIRST}#exercises")
    page.locator(".rst-versions summary").press("Enter")
    items = page.locator(".gallery-version-list li")
    words = ("v1.0.0 *stable", "v0.9.0 *old", "main *in development")
    expect(items).to_have_text([re.compile(f"^{text}$") for text in words])
    items.get_by_role("link", name="v0.9.0").click()
    expect(page).to_have_url(f"{address}v0.9.0/{FIRST}#exercises")
    expect(page.locator(".gallery-old")).to_contain_text("v0.9.0, an old release")
    page.locator(".gallery-old").get_by_role("link").click()
    expect(page).to_have_url(f"{address}stable/{FIRST}#exercises")


def test_the_menu_leads_to_the_front_page_where_the_page_is_new(page: Page, address: str) -> None:
    page.goto(f"{address}main/{NEW_PAGE}")
    page.locator(".rst-versions summary").click()
    expect(page.locator(".gallery-version-list")).to_contain_text("without this page")
    page.get_by_role("link", name="v1.0.0", exact=True).click()
    expect(page).to_have_url(f"{address}v1.0.0/")


def test_an_address_without_a_page_leads_to_the_stable_version(
    browser: Browser, address: str
) -> None:
    """Without a watch: the browser's console reports the 404."""
    with reader(browser) as context:
        page = context.new_page()
        page.goto(f"{address}no/such/page.html")
        page.get_by_role("link", name="The stable version", exact=True).click()
        expect(page).to_have_url(f"{address}stable/")


def test_without_scripts_and_from_a_file_the_pages_are_readable(
    browser: Browser, published: Path, address: str
) -> None:
    with reader(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}stable/{GALLERY}/03-matrix-multiplication.html")
        expect(page.locator(".gallery-tiles svg").first).to_be_visible()
        expect(page.locator(".gallery-tiles")).to_contain_text("row by row, 90, 90")
        page.locator(".rst-versions summary").click()
        expect(page.get_by_role("link", name="All versions")).to_be_visible()
    with reader(browser) as context:
        page = context.new_page()
        complaints = watch(page, address)
        page.goto((published / "v1.0.0/search.html").as_uri() + "?q=mask", wait_until="load")
        expect(page.locator("#search-results li").first).to_be_visible()
        assert not complaints
