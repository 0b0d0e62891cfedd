"""Each feature of a page once, as a reader uses it: mouse, keyboard, phone, print, no script."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import reader

GALLERY = "stable/getting-started/tutorials"
FIRST = f"{GALLERY}/01-vector-add.html"
GUIDE = "stable/programming-guide"


# --- the frame ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [320, 390, 820, 900, 1000, 1280])
def test_guide_api_and_performance_are_reached_at_every_width(
    page: Page, address: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}{FIRST}")
    menu = page.get_by_role("button", name="Menu")
    if menu.is_visible():
        menu.click()
    for name in ("Guide", "API", "Performance"):
        link = page.locator("header, .wy-nav-side").get_by_role("link", name=name, exact=True)
        expect(link.locator("visible=true")).to_have_count(1)
    guide = page.locator("header, .wy-nav-side").get_by_role("link", name="Guide", exact=True)
    guide.locator("visible=true").click()
    expect(page).to_have_url(re.compile("programming-guide/index.html"))


@pytest.mark.parametrize("size", [(1280, 700), (820, 700), (390, 700)])
def test_the_last_entry_of_the_menu_scrolls_into_view(page: Page, address: str, size) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"{address}{FIRST}")
    menu = page.get_by_role("button", name="Menu")
    if menu.is_visible():
        menu.click()
        page.wait_for_timeout(300)
    last = page.locator(".wy-menu-vertical li.toctree-l1 > a").last
    last.scroll_into_view_if_needed()
    box = last.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= size[1]


def test_the_part_of_the_site_is_marked_in_the_head(page: Page, address: str) -> None:
    for place, name in (
        (FIRST, "Learn"),
        (f"{GUIDE}/chapter-3/wrong.html", "Guide"),
        ("stable/python-api/triton.html", "API"),
        ("stable/performance.html", "Performance"),
    ):
        page.goto(address + place)
        marked = page.locator("header [aria-current]")
        expect(marked).to_have_text([name])


def test_learn_leads_to_a_page_from_the_first_lesson_too(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    page.locator("header").get_by_role("link", name="Learn").click()
    expect(page).to_have_url(f"{address}{GALLERY}/index.html")


def test_the_sections_stand_once_beside_the_text(page: Page, address: str) -> None:
    for width in (1280, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
        links = page.locator("nav a[href='#counting-the-bytes']").locator("visible=true")
        expect(links).to_have_count(1)


def test_the_menu_of_versions_closes_by_esc_and_by_a_click_outside(
    page: Page, address: str
) -> None:
    page.goto(f"{address}{FIRST}")
    menu = page.locator(".rst-versions details")
    summary = menu.locator("summary")
    summary.click()
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(summary).to_be_focused()
    summary.click()
    page.locator("h1").click()
    expect(menu).not_to_have_attribute("open", "")


def test_copied_turns_back(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    button = page.locator(".gallery-copy")
    before = button.inner_text()
    button.click()
    expect(button).to_have_text("Copied")
    expect(button).to_have_text(before, timeout=10_000)


def test_a_page_of_another_recording_names_its_release(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/02-fused-softmax.triton-3.6.0.html")
    note = page.locator(".gallery-other")
    expect(note).to_contain_text("3.6.0")
    expect(note).to_contain_text("3.9.0")


# --- headings and names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "heading"),
    [(FIRST, "h2"), ("stable/python-api/triton.html", "dl.py > dt")],
)
def test_a_heading_shows_a_sign_and_copies_its_address(
    page: Page, address: str, place: str, heading: str
) -> None:
    page.goto(address + place)
    head = page.locator(heading).first
    head.hover()
    link = head.locator(".headerlink")
    shown = link.evaluate(
        "a => a.innerText.trim() + getComputedStyle(a, '::after').content"
        " + getComputedStyle(a, '::before').content"
    )
    assert "#" in shown
    assert not re.search("[\ue000-\uf8ff]", shown), "a sign of an icon font that is not there"
    link.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url
    assert "#" in copied


# --- plots and tables -----------------------------------------------------------------------------


def test_the_nearest_point_of_a_drawn_plot_shows_its_value(page: Page, address: str) -> None:
    """A plot that has no table of its own: its points carry their values."""
    page.goto(f"{address}{GALLERY}/03b-full-waves.html")
    images = page.locator("img.sphx-glr-single-img[src*='.svg']").filter(visible=True)
    image = images.nth(2)  # the times of all tilings
    image.scroll_into_view_if_needed()
    points = image.evaluate(
        """async (image) => {
          const svg = new DOMParser().parseFromString(
            await (await fetch(image.src)).text(), "image/svg+xml").documentElement;
          const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
          const box = image.getBoundingClientRect();
          return [...svg.querySelectorAll("use > title")].map((t) => [
            box.left + box.width * t.parentNode.getAttribute("x") / width,
            box.top + box.height * t.parentNode.getAttribute("y") / height, t.textContent]);
        }"""
    )
    assert points
    x, y, text = points[len(points) // 2]
    page.mouse.move(x, y)
    expect(page.locator(".gallery-point")).to_have_text(re.compile(r"\d"))
    assert text


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "place",
    [
        f"{GUIDE}/chapter-9/libraries.html",
        f"{GUIDE}/chapter-7/questions.html",
        f"{GUIDE}/chapter-7/other-gpus.html",
        "stable/performance.html",
        "stable/releases.html",
    ],
)
def test_no_table_is_cut_without_a_shadow_and_the_keyboard(
    page: Page, address: str, place: str, width: int
) -> None:
    """What is wider than its column scrolls, says so at its edge, and can be focused."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address + place)
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".rst-content pre, .rst-content table")]
          .filter((e) => e.checkVisibility())
          .map((e) => {
            let box = e;
            while (box !== document.body && box.scrollWidth <= box.clientWidth + 1) {
              box = box.parentElement;
            }
            if (box === document.body) return "";
            const style = getComputedStyle(box);
            if (!/auto|scroll/.test(style.overflowX)) return `${box.className}: cut`;
            if (box.tabIndex < 0) return `${box.className}: no keyboard`;
            if (e.tagName === "TABLE" && !/gradient/.test(style.backgroundImage))
              return `${box.className}: no shadow`;
            return "";
          }).filter(Boolean)"""
    )
    assert not cut


def test_a_message_of_a_library_is_not_shown_as_an_error(page: Page, address: str) -> None:
    page.goto(f"{address}{GUIDE}/chapter-9/libraries.html")
    box = page.locator(".gallery-stderr").first
    heading = box.evaluate("e => getComputedStyle(e, '::before').content")
    assert "rror" not in heading.replace("standard error", "").replace("Standard error", "")
    red, green, _blue = map(
        int,
        re.findall(r"\d+", box.evaluate("e => getComputedStyle(e, '::before').color"))[:3],
    )
    assert red < green + 60, "an error's red"


def test_the_mark_of_the_ceiling_leaves_the_number_alone(page: Page, address: str) -> None:
    """The 100 % mark of a table of steps stands below the number, not through it."""
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    overlaps = page.evaluate(
        """() => [...document.querySelectorAll(".gallery-steps .bar")].map((bar) => {
          const text = document.createRange();
          text.selectNodeContents(bar.firstChild);
          const words = text.getBoundingClientRect(), box = bar.getBoundingClientRect();
          const mark = box.left + box.width / 1.2;
          const tall = parseFloat((getComputedStyle(bar).backgroundSize.split(",")[1] ?? "0 0")
            .trim().split(" ")[1]);
          const covers = mark >= words.left && mark <= words.right;
          return covers && words.bottom > box.bottom - tall;
        })"""
    )
    assert overlaps
    assert not any(overlaps)


def test_the_index_of_the_tutorials_has_groups_and_minutes(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/index.html")
    for level in ("First hour", "A transformer", "Further"):
        expect(page.locator("[role=main]").get_by_role("heading", name=level)).to_be_visible()
    expect(page.locator("[role=main]").get_by_text("minutes").first).to_be_visible()
    for image in page.locator("[role=main] img").all():
        image.scroll_into_view_if_needed()
        ratio = image.evaluate(
            "async (i) => { await i.decode(); const b = i.getBoundingClientRect();"
            " const whole = getComputedStyle(i).objectFit === 'contain';"
            " return whole ? 1 : (b.width / b.height) / (i.naturalWidth / i.naturalHeight); }"
        )
        assert 0.97 < ratio < 1.03


# --- without JavaScript, on paper, contrast ---------------------------------------------------


def test_without_scripts_the_search_says_what_to_do(browser: Browser, address: str) -> None:
    with reader(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}stable/search.html?q=mask")
        expect(page.get_by_text("Searching…")).to_be_hidden()
        expect(page.get_by_text("needs JavaScript")).to_be_visible()


def test_a_head_that_is_repeated_on_paper_can_be_read(page: Page, address: str) -> None:
    page.goto(f"{address}stable/claims.html")
    page.emulate_media(media="print")
    head = page.locator("table.docutils thead").first
    assert head.evaluate("e => getComputedStyle(e).display") == "table-header-group"
    assert head.locator("th").first.evaluate("e => getComputedStyle(e).position") == "static"
    overflow = head.evaluate(
        "e => [...function*(){ for (let p = e; p; p = p.parentElement) yield p; }()]"
        ".some((p) => /auto|scroll|hidden/.test(getComputedStyle(p).overflowY)"
        " && p !== document.body && p !== document.documentElement)"
    )
    assert not overflow, "Chromium leaves repeated heads of a scrolling box blank"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "place",
    [
        f"{GUIDE}/chapter-1/gpu.html",
        f"{GUIDE}/chapter-2/related-work.html",
        "stable/genindex.html",
        f"{GALLERY}/index.html",
        "stable/performance.html",
        FIRST,
        f"{GUIDE}/chapter-9/libraries.html",
    ],
)
def test_axe_finds_nothing(page: Page, address: str, place: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(address + place)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert not [
        f"{violation['id']}: {[node['html'][:150] for node in violation['nodes'][:3]]}"
        for violation in found
        if violation["impact"] in ("serious", "critical", "moderate")
    ]


def test_an_entry_of_the_index_is_large_enough_for_a_finger(page: Page, address: str) -> None:
    page.goto(f"{address}stable/genindex.html")
    heights = page.locator(".indextable a").evaluate_all(
        "all => all.map((a) => a.getBoundingClientRect().height)"
    )
    assert heights
    assert min(heights) >= 24


# --- whatever a reader's browser holds ---------------------------------------------------------


@pytest.mark.parametrize(
    ("fragment", "kept"),
    [("#%", None), ("#%E0%A4%A", None), ("", "{damaged"), ("", "null"), ("", "7"), ("", '"x"')],
)
def test_a_damaged_address_or_store_ends_no_feature(
    page: Page, address: str, fragment: str, kept: str | None
) -> None:
    """The watch of the fixture reports every error of a script."""
    page.goto(f"{address}{FIRST}")
    if kept is not None:
        page.evaluate("kept => Object.keys(localStorage).forEach((k) => localStorage[k] = kept)",
                      kept)  # fmt: skip
        page.evaluate("kept => localStorage['gallery-progress'] = kept", kept)
    page.goto("about:blank")
    page.goto(f"{address}{FIRST}{fragment}")
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    expect(page.locator(".gallery-results li").first).to_be_visible()
    page.keyboard.press("Escape")
    page.locator(".gallery-copy").click()
    expect(page.locator(".gallery-copy")).to_have_text("Copied")


def test_what_a_browser_keeps_has_the_name_of_the_project(page: Page, address: str) -> None:
    """Other sites of the same host share the store."""
    page.goto(f"{address}{FIRST}")
    page.locator(".gallery-theme").click()
    keys = page.evaluate("Object.keys(localStorage)")
    assert keys
    assert all(key.startswith("triton-gallery ") for key in keys), keys


def test_a_content_security_policy_allows_what_a_page_does(browser: Browser, address: str) -> None:
    """Without a watch: the browser's console reports the script that is refused."""
    with reader(browser) as context:
        page = context.new_page()
        page.goto(f"{address}{FIRST}")
        meta = page.locator("meta[http-equiv='Content-Security-Policy']")
        policy = meta.get_attribute("content") or ""
        scripts = policy.partition("script-src")[2].partition(";")[0]
        assert scripts
        assert "unsafe-inline" not in scripts
        ran = page.evaluate(
            """() => { const s = document.createElement("script");
              s.textContent = "window.injected = true"; document.body.append(s);
              return window.injected === true; }"""
        )
        assert not ran


# --- panels ---------------------------------------------------------------------------------------


def test_the_tabs_of_a_kernel_are_reached_by_the_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    panel = page.locator(".gallery-panel-kernel").first
    panel.get_by_role("tab", name="Kernel").focus()
    page.keyboard.press("ArrowRight")
    expect(panel.get_by_role("tab", name="What the compiler made")).to_be_focused()
    chips = panel.locator(".gallery-chips > li")
    expect(chips).to_have_count(5)
    expect(chips.last).to_contain_text("bytes a load")
    expect(panel.locator("pre").first).to_be_hidden()


def test_source_and_ptx_stand_beside_each_other(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    panel = page.locator(".gallery-panel-kernel").first
    panel.get_by_role("tab", name="What the compiler made").click()
    expect(panel.locator(".kinds [aria-pressed=true]")).to_have_text("PTX")
    source = panel.locator("pre.source").bounding_box()
    made = panel.locator("pre.made").bounding_box()
    whole = panel.bounding_box()
    assert source is not None
    assert made is not None
    assert whole is not None
    assert made["x"] >= source["x"] + source["width"]
    assert made["x"] + made["width"] <= whole["x"] + whole["width"]


def figure(page: Page):
    found = page.locator(".gallery-panel-figure").first
    found.scroll_into_view_if_needed()
    return found


def test_a_figure_shows_all_values_at_one_size(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    panel = figure(page)
    box = panel.locator("svg.wide").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    values = panel.locator(".values")
    expect(values.locator("span")).to_have_count(5)
    expect(values).to_contain_text("softmax")
    expect(values).to_contain_text("GB/s")
    size = values.locator("b").inner_text()
    panel.locator(".gallery-figure").focus()
    page.keyboard.press("ArrowRight")
    expect(values.locator("b")).not_to_have_text(size)


def test_a_line_of_a_figure_can_be_switched_off(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    panel = figure(page)
    panel.get_by_role("button", name="PyTorch").click()
    expect(panel.locator("svg.wide .series.off")).to_have_count(1)
    panel.locator(".gallery-figure").focus()
    page.keyboard.press("ArrowRight")
    expect(panel.locator(".values")).not_to_contain_text("PyTorch")


def test_a_figure_has_its_table_and_its_file(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    panel = figure(page)
    panel.get_by_role("tab", name="Table").click()
    expect(panel.locator("tbody tr")).to_have_count(98)
    with page.expect_download() as download:
        panel.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "softmax-performance.csv"


def test_without_scripts_a_figure_is_a_picture_and_a_table(browser: Browser, address: str) -> None:
    with reader(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
        panel = page.locator(".gallery-panel-figure").first
        expect(panel.locator("svg.wide")).to_be_visible()
        panel.get_by_text("Table", exact=True).click()
        expect(panel.locator("tbody tr").first).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_letters_of_a_figure_can_be_read(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}{GALLERY}/02-fused-softmax.html")
    sizes = (
        figure(page)
        .locator("svg:visible text")
        .evaluate_all(
            "all => all.map((t) => parseFloat(getComputedStyle(t).fontSize)"
            " * t.ownerSVGElement.getBoundingClientRect().width"
            " / t.ownerSVGElement.viewBox.baseVal.width)"
        )
    )
    assert sizes
    assert min(sizes) >= 11


# --- predict first --------------------------------------------------------------------------------


def test_what_follows_a_question_is_blurred_until_it_is_answered(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    box = page.locator(".gallery-predict").filter(has=page.locator("input")).first
    after = box.locator("xpath=following-sibling::*").first
    expect(after).to_have_class(re.compile("gallery-blurred"))
    box.locator("input").fill("80")
    box.get_by_role("button", name="Compare").click()
    expect(box.locator(".gallery-verdict")).to_have_text(
        re.compile(r"You predicted 80 %; [\d.]+ % was measured: twice too high\.")
    )
    expect(after).not_to_have_class(re.compile("gallery-blurred"))
    page.reload()
    expect(after).not_to_have_class(re.compile("gallery-blurred"))


def test_a_question_can_be_skipped(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    box = page.locator(".gallery-predict").first
    after = box.locator("xpath=following-sibling::*").first
    box.get_by_role("button", name="Skip").click()
    expect(after).not_to_have_class(re.compile("gallery-blurred"))


# --- performance ----------------------------------------------------------------------------------


def test_a_row_of_the_chart_opens_its_sizes(page: Page, address: str) -> None:
    page.goto(f"{address}stable/performance.html")
    row = page.locator(".chart-row").first
    row.locator("summary").press("Enter")
    expect(row.locator("tbody tr").first).to_be_visible()


def test_no_bar_of_the_chart_is_cut(page: Page, address: str) -> None:
    page.goto(f"{address}stable/performance.html")
    places = page.locator(".chart-row").evaluate_all(
        """rows => rows.map((row) => {
          const svg = row.querySelector("svg");
          const path = row.querySelector(".range").getAttribute("d").match(/[\\d.]+/g).map(Number);
          const words = svg.getAttribute("aria-label").match(/[\\d.]+/g).map(Number);
          return [path[0], path[2], Number(row.querySelector("circle").getAttribute("cx")),
                  words[0], svg.viewBox.baseVal.width];
        })"""
    )
    assert len({cx for _, _, cx, mean, _ in places if mean > 8}) == len(
        {mean for _, _, _, mean, _ in places if mean > 8}
    )
    assert all(0 < least <= cx <= largest < width for least, largest, cx, _, width in places)


def test_filters_of_the_chart_stand_in_the_address(page: Page, address: str) -> None:
    page.goto(f"{address}stable/performance.html")
    page.get_by_label("Result").select_option("slower")
    expect(page).to_have_url(re.compile(r"\?verdict=slower"))
    slower = page.locator(".chart-row:visible").count()
    assert 0 < slower < page.locator(".chart-row").count()
    page.reload()
    expect(page.locator(".chart-row:visible")).to_have_count(slower)


# --- previews, search, the end of a page -------------------------------------------------------


def test_a_name_and_a_word_show_their_sentence(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    preview = page.get_by_role("tooltip")
    page.locator(".highlight a", has_text="tl.program_id").first.hover()
    expect(preview).to_contain_text(re.compile("program", re.I))
    page.keyboard.press("Escape")
    expect(preview).to_be_hidden()
    word = page.locator("a:has(> .gallery-term)").first
    word.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(preview).to_be_visible()
    assert word.get_attribute("aria-describedby") == preview.get_attribute("id")


def test_a_page_ends_with_a_link_to_an_issue_about_it(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    link = page.get_by_role("link", name="Open an issue").get_attribute("href")
    assert link is not None
    assert "github.com" in link
    assert "01-vector-add" in link
    assert "Version" in link


def test_the_front_page_is_short_on_a_phone(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}stable/index.html")
    assert page.evaluate("document.documentElement.scrollHeight") <= 4500


def test_the_record_opens_above_the_text(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    chip = page.locator(".gallery-record summary")
    expect(chip).to_have_text(re.compile(r"H100 · Triton 3\.9"))
    opened = page.locator(".gallery-record .gallery-opened")
    expect(opened).to_be_hidden()
    chip.click()
    expect(opened).to_contain_text("PyTorch")
    expect(opened.get_by_role("link", name="full record")).to_be_visible()
