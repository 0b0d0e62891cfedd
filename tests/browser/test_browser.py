"""The published site in a real browser: what a reader sees, presses and downloads."""

from __future__ import annotations

import ast
import csv
import re
import zipfile
from functools import partial
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from gallery_recorder.publish import versions
from tests.browser.conftest import reader
from tests.fixtures.waiting import wait_for
from tests.galleries import FILES, PAGES

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
GALLERY = "getting-started/tutorials"
FIRST = f"{GALLERY}/01-vector-add.html"
NEW_PAGE = "new-page.html"
#: The tutorials, without the solutions to their exercises, and the chapters that execute code.
TUTORIALS = [f"{page}.html" for page in PAGES.values() if re.fullmatch(f"{GALLERY}/[^/]+", page)]
CHAPTERS = [f"{page}.html" for page in PAGES.values() if page.startswith("programming-guide/")]
#: Pages that have least in common.
KINDS = [
    "index.html",
    "search.html",
    f"{GALLERY}/index.html",
    FIRST,
]
#: Of what is left, a page of each kind, but for those that execute code.
OTHER_KINDS = [
    "getting-started/installation.html",
    "contributing.html",
    "recordings.html",
    "genindex.html",
    "programming-guide/chapter-1/introduction.html",
    "programming-guide/chapter-2/related-work.html",
    "python-api/triton.html",
    "performance.html",
    "faults.html",
    "scale.html",
]
WIDTHS = (360, 1280, 1920)
#: A case that ``make test-stress`` tries.
stressed = partial(pytest.param, marks=pytest.mark.stress)


def pages(published: Path, version: str = "v1.0.0") -> list[str]:
    """The addresses of all pages of a version, below it."""
    (listed,) = versions.read(published / version / versions.FILE_NAME).all
    return list(listed.pages)


def menu(page: Page):
    """The version menu, opened."""
    page.locator(".rst-versions summary").click()
    return page.locator(".rst-versions")


# --- every page -----------------------------------------------------------------------------------

#: What loads without a complaint may still be wrong: pictures, and formulas without a size.
_BROKEN = """() => {
    const found = [];
    for (const image of document.images) {
        if (!image.hasAttribute("alt")) found.push(`no alt: ${image.src}`);
        if (image.loading !== "lazy" && !image.naturalWidth) found.push(`not shown: ${image.src}`);
    }
    for (const math of document.querySelectorAll("math")) {
        const box = math.getBoundingClientRect();
        if (!box.width || !box.height) found.push(`no size: ${math.textContent}`);
    }
    return found;
}"""


def visit(page: Page, place: str) -> list[str]:
    """Load *place*; what is wrong there: pictures, formulas, what is wider than screen or paper."""
    page.emulate_media(media="screen", reduced_motion="reduce")
    answer = page.goto(place)
    assert answer.ok, f"{place}: {answer.status}"
    assert page.title(), place
    page.locator(".rst-versions li").first.wait_for(state="attached")
    found = page.evaluate(_BROKEN)
    # A section that is laid out only when it is near would cut off what is too wide.
    page.add_style_tag(content="section, dl { content-visibility: visible !important }")
    for media, widths in (("print", (720,)), ("screen", WIDTHS)):  # A4 with margins
        page.emulate_media(media=media)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.scrollingElement.scrollWidth")
            if wide > width:
                found.append(f"{wide} px wide at {width} px, {media}")
    return found


def violations(page: Page, rules: dict, scheme: str) -> list[str]:
    """What axe finds serious on the page in sight."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    options = rules | {"resultTypes": ["violations"]}  # what holds is not described
    return [
        f"{found['id']}: {found['help']}: {[node['html'][:150] for node in found['nodes'][:3]]}"
        for found in Axe().run(page, options=options).response["violations"]
        if found["impact"] in ("serious", "critical")
    ]


#: Rules of axe: that of contrasts, and all but that.
COLORS = {"runOnly": ["color-contrast"]}
NO_COLORS = {"rules": {"color-contrast": {"enabled": False}}}


#: Rows and entries that differ from one before in their text alone have its colors, and a browser
#: needs a millisecond for those of each element: of each kind, the first stays in sight.
_KINDS_ONCE = """() => {
    const kind = (one) => one.localName + "." + one.className;
    const seen = new Set();
    for (const one of document.querySelectorAll("tr, li, dt, dd")) {
        if (!one.checkVisibility()) continue;  // as in a fold that is closed
        const inside = one.outerHTML.replace(/ (href|id|title|src|alt|aria-label)="[^"]*"/g, "");
        const key = [inside.replace(/>\\s*[^<\\s][^<]*</g, ">text<")];
        key.push([...one.parentElement.children].indexOf(one) % 2);  // every other row is shaded
        for (let at = one.parentElement; at; at = at.parentElement) key.push(kind(at));
        if (seen.has(key.join(" "))) one.style.display = "none";
        seen.add(key.join(" "));
    }
}"""


def unreadable(page: Page) -> list[str]:
    """What axe finds in the colors of the page, light and dark."""
    page.evaluate(_KINDS_ONCE)
    return violations(page, COLORS, "light") + violations(page, COLORS, "dark")


@pytest.mark.parametrize("place", [*KINDS, *map(stressed, OTHER_KINDS)])
def test_a_page_of_each_kind_is_whole_fits_and_is_accessible(
    page: Page, address: str, place: str
) -> None:
    """Nothing to complain about, nothing too wide, nothing serious for axe, light and dark."""
    found = visit(page, f"{address}v1.0.0/{place}")
    found += violations(page, NO_COLORS, "light") + unreadable(page)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("place", ["v0.9.0/index.html", "versions.html", "404.html"])
def test_what_the_publisher_adds_is_accessible(page: Page, address: str, place: str) -> None:
    page.goto(address + place)
    found = violations(page, NO_COLORS, "light") + unreadable(page)
    assert not found, "\n".join(found)


@pytest.mark.stress
def test_every_page_is_whole_and_fits(page: Page, published: Path, address: str) -> None:
    """And tutorials and chapters are accessible; one of the chapters in its colors, too."""
    problems = []
    for name in sorted({*pages(published)} - {*KINDS, *OTHER_KINDS}):
        found = visit(page, f"{address}v1.0.0/{name}")
        if name in (*TUTORIALS, *CHAPTERS):
            found += violations(page, NO_COLORS, "light")
        if name == CHAPTERS[0]:
            found += unreadable(page)
        problems += [f"{name}: {text}" for text in found]
    assert not problems, "\n".join(problems)


def test_colours_follow_the_reader(page: Page, address: str) -> None:
    def light(scheme: str, selector: str, what: str) -> float:
        page.emulate_media(color_scheme=scheme)
        colour = page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{what}")
        return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3

    page.goto(f"{address}stable/{FIRST}")
    ground, text = (".wy-nav-content", "backgroundColor"), (".document p", "color")
    assert light("light", *ground) > 200 > 100 > light("light", *text)
    assert light("dark", *text) > 150 > 60 > light("dark", *ground)


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("index.html", 1280, "light"),
        stressed(FIRST, 1280, "light"),
        stressed(FIRST, 1280, "dark"),
        stressed(FIRST, 360, "light"),
    ],
)
def test_screenshots(page: Page, address: str, name: str, width: int, scheme: str) -> None:
    """Pictures to look at, in ``build/screenshots``."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}stable/{name}", wait_until="networkidle")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    picture = SCREENSHOTS / f"{Path(name).stem}-{width}-{scheme}.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("Philox", f"{GALLERY}/04-low-memory-dropout.html"),
        stressed("program_id", "python-api/triton.language.html"),
        stressed("matmul", f"{GALLERY}/03-matrix-multiplication.html"),
    ],
)
def test_search_finds(page: Page, address: str, words: str, wanted: str) -> None:
    page.goto(f"{address}stable/index.html")
    box = page.locator("#rtd-search-form input[name=q]")
    box.fill(words)
    box.press("Enter")
    found = page.locator(f"#search-results a[href*='{wanted}']")
    expect(found.first).to_be_visible()
    found.first.click()
    expect(page).to_have_url(re.compile(re.escape(f"stable/{wanted}")))


def test_previous_and_next(page: Page, address: str) -> None:
    page.goto(f"{address}stable/{TUTORIALS[0]}")
    for name in TUTORIALS[1:4]:
        page.locator(".gallery-neighbors a[rel=next]").click()
        page.wait_for_url(f"{address}stable/{name}")
    for name in reversed(TUTORIALS[:3]):
        page.locator(".gallery-neighbors a[rel=prev]").click()
        page.wait_for_url(f"{address}stable/{name}")


def test_keys_turn_pages_and_find_the_search(page: Page, address: str) -> None:
    page.goto(f"{address}stable/{TUTORIALS[0]}")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"{address}stable/{TUTORIALS[1]}")  # and its scripts, which hear the keys
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"{address}stable/{TUTORIALS[0]}")
    page.keyboard.press("/")
    expect(page.locator("input[name=q]").first).to_be_focused()


def test_copy_buttons_copy_code(page: Page, address: str) -> None:
    page.goto(f"{address}stable/{FIRST}")
    blocks = page.locator(".highlight-Python:not(.sphx-glr-script-out *, details *)")
    for code in blocks.all()[:3]:
        code.hover()
        code.locator("button.copybtn").click()
        shown = code.locator("pre").inner_text().strip()
        wait_for(lambda shown=shown: copied(page).strip() == shown)
        ast.parse(shown)
    assert page.locator(".sphx-glr-script-out").count()
    assert not page.locator(".sphx-glr-script-out button.copybtn").count()


def copied(page: Page) -> str:
    return page.evaluate("navigator.clipboard.readText()")


def test_copied_commands_have_no_prompt(page: Page, address: str) -> None:
    page.goto(f"{address}stable/getting-started/installation.html")
    for block in page.locator(".highlight:has(.gp)").all():
        block.hover()
        page.evaluate("navigator.clipboard.writeText('')")
        block.locator("button.copybtn").click()
        lines = wait_for(lambda: copied(page)).splitlines()
        assert not [line for line in lines if line.startswith(("$", ">>>"))]


def test_downloads(page: Page, address: str, tmp_path: Path) -> None:
    """Of one page; the files of all are opened by the tests of the site."""
    page.goto(f"{address}stable/{FIRST}")
    kinds = set()
    for link in page.locator("a.download").all():
        with page.expect_download() as started:
            link.click()
        file = tmp_path / started.value.suggested_filename
        started.value.save_as(file)
        kinds.add(file.suffix)
        match file.suffix:
            case ".py":
                assert file.read_text() == FILES[Path(FIRST).stem].path.read_text()
            case ".ipynb":
                notebook = nbformat.read(file, as_version=4)
                nbformat.validate(notebook)
                assert any(cell.get("outputs") for cell in notebook.cells)
            case ".zip":
                with zipfile.ZipFile(file) as archive:
                    assert archive.testzip() is None
                    assert archive.namelist()
            case ".csv":
                with file.open(newline="") as table:
                    header, *rows = csv.reader(table)
                assert rows
                assert {len(row) for row in rows} == {len(header)}
    assert {".py", ".ipynb", ".zip"} <= kinds


# --- versions -------------------------------------------------------------------------------------


def test_the_root_leads_to_the_stable_version(page: Page, address: str) -> None:
    page.goto(address)
    expect(page).to_have_url(f"{address}stable/")
    assert page.locator("link[rel=canonical]").get_attribute("href").endswith("/stable/index.html")


def test_the_menu_lists_branches_and_tags(page: Page, address: str) -> None:
    page.goto(f"{address}v1.0.0/{FIRST}")
    items = menu(page).locator("li")
    expect(items).to_have_text(
        [
            re.compile("^v1.0.0 *stable$"),
            re.compile("^v1.0.0rc1 *pre-release, old$"),
            re.compile("^v0.9.0 *old$"),
            re.compile("^main *in development$"),
        ]
    )
    assert page.locator(".rst-versions [aria-current=true]").all_inner_texts() == ["v1.0.0"]
    expect(page.locator(".rst-versions summary")).to_contain_text("v1.0.0")


@pytest.mark.parametrize("start", ["v1.0.0", "stable", "latest"])
def test_the_menu_keeps_to_the_same_page(page: Page, address: str, start: str) -> None:
    page.goto(f"{address}{start}/{FIRST}#exercises")
    menu(page).get_by_role("link", name="v0.9.0").click()
    expect(page).to_have_url(f"{address}v0.9.0/{FIRST}#exercises")


def test_the_menu_leads_to_the_front_page_where_the_page_is_new(page: Page, address: str) -> None:
    page.goto(f"{address}main/{NEW_PAGE}")
    opened = menu(page)
    expect(opened.locator("li", has_text="v0.9.0")).to_contain_text("without this page")
    opened.get_by_role("link", name="v1.0.0", exact=True).click()
    expect(page).to_have_url(f"{address}v1.0.0/")


def test_the_menu_works_by_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}v1.0.0/index.html")
    page.locator(".rst-versions li").first.wait_for(state="attached")
    page.locator(".rst-versions summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".rst-versions ul")).to_be_visible()
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "main"
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{address}main/index.html")


def test_the_menu_is_in_reach_on_a_narrow_screen(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    page.goto(f"{address}v1.0.0/{FIRST}")
    page.get_by_role("button", name="Menu").click()
    expect(menu(page).get_by_role("link", name="main")).to_be_visible()


@pytest.mark.parametrize(
    ("version", "words"),
    [("v0.9.0", "v0.9.0, an old release"), ("v1.0.0rc1", "v1.0.0rc1, an old pre-release")],
)
def test_an_old_release_says_so(page: Page, address: str, version: str, words: str) -> None:
    page.goto(f"{address}{version}/{FIRST}")
    note = page.locator(".gallery-old")
    expect(note).to_contain_text(words)
    note.get_by_role("link", name="the stable release, v1.0.0").click()
    expect(page).to_have_url(f"{address}stable/{FIRST}")
    expect(page.locator(".rst-versions li")).to_have_count(4)
    expect(page.locator(".gallery-old")).to_have_count(0)


def test_screenshot_of_the_versions(page: Page, address: str) -> None:
    """The menu and the line of an old release, to look at."""
    page.goto(f"{address}v0.9.0/{FIRST}")
    menu(page)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "versions-1280-light.png")


def test_without_a_script_there_is_a_plain_link(browser: Browser, address: str) -> None:
    with reader(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}v0.9.0/{FIRST}")
        page.locator(".rst-versions summary").click()
        link = page.get_by_role("link", name="All versions")
        expect(link).to_be_visible()
        assert link.get_attribute("href").endswith("/triton-gallery/versions.html")
        page.goto(f"{address}versions.html")
        page.get_by_role("link", name="v1.0.0", exact=True).click()
        expect(page).to_have_url(f"{address}v1.0.0/")
        page.goto(address)
        expect(page).to_have_url(f"{address}stable/")


def test_opened_as_a_file_nothing_complains(page: Page, published: Path) -> None:
    page.goto((published / "v1.0.0" / FIRST).as_uri())
    expect(menu(page).get_by_role("link", name="All versions")).to_be_visible()
    page.wait_for_load_state("networkidle")


def test_a_page_that_is_not_there(browser: Browser, address: str) -> None:
    """The browser's console tells of the 404 itself, so nobody watches here."""
    with reader(browser) as context:
        look_for_what_is_not_there(context.new_page(), address)


def look_for_what_is_not_there(page: Page, address: str) -> None:
    page.goto(f"{address}v0.9.0/{NEW_PAGE}")
    expect(page.get_by_role("searchbox")).to_have_value("new page")
    page.locator("#elsewhere a", has_text="main").click()
    expect(page).to_have_url(f"{address}main/{NEW_PAGE}")
    page.goto(f"{address}no/such/low-memory-dropout.html")
    expect(page.get_by_role("searchbox")).to_have_value("low memory dropout")
    for lone in ("100%.html", "no/such/100%25%.html", "%E0%A4%A.html"):
        page.goto(address + lone)
        expect(page.get_by_role("searchbox")).not_to_have_value("")
    page.goto(f"{address}no/such/low-memory-dropout.html")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#search-results a[href*='04-low-memory-dropout']").first).to_be_visible()
