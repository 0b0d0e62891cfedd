"""What a reader presses: search, slider, folds, copy buttons."""

import io
import zipfile
from pathlib import Path

from playwright.sync_api import Page, expect

from gallery_recorder.testing.waiting import wait_for

GALLERY = "stable/getting-started/tutorials"
FIRST = f"{GALLERY}/01-vector-add.html"


def test_the_search_box_leads_to_a_section(page: Page, address: str) -> None:
    page.goto(f"{address}stable/index.html")
    box = page.locator("#rtd-search-form input[name=q]")
    box.fill("counting the bytes")
    box.press("Enter")
    page.locator("#search-results li li a").first.click()
    expect(page.locator("#counting-the-bytes")).to_be_in_viewport()


def test_the_search_shows_a_query_as_text(page: Page, address: str) -> None:
    page.goto(f"{address}stable/search.html?q=%3Cem%3Exyzzy%3C/em%3E")
    expect(page.get_by_role("status")).to_contain_text("“<em>xyzzy</em>”")
    expect(page.locator("#search-results em")).to_have_count(0)


def test_the_slider_goes_through_the_waves(page: Page, address: str) -> None:
    page.goto(f"{address}{GALLERY}/03-matrix-multiplication.html")
    whole = page.locator(".gallery-tiles")
    slider = whole.get_by_role("slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(whole.locator("output")).to_have_text("Wave 2 of 9: programs 9 to 17")
    expect(whole.locator("figcaption").first).to_have_text("Row by row: 90 tiles read")
    expect(whole.locator("figcaption").last).to_have_text("In groups of 3 rows: 54 tiles read")
    assert "90 tiles read" in slider.get_attribute("aria-valuetext")


def test_the_calculator_agrees_with_the_table_of_recorded_kernels(page: Page, address: str) -> None:
    page.goto(f"{address}stable/programming-guide/chapter-1/gpu.html")
    whole = page.locator(".gallery-occupancy")
    rows = [row.locator("td").all_inner_texts() for row in whole.locator("tbody tr").all()]
    assert rows
    for name, *_, programs, warps, limit in rows:
        whole.get_by_role("combobox").select_option(label=name)
        said = whole.locator(".result").inner_text()
        assert said.startswith(f"Programs that fit: {programs}. Warps: {warps} (")
        assert said.endswith(f"Limited by: {limit}.")
    registers = whole.get_by_role("slider").first
    registers.focus()
    page.keyboard.press("End")  # 255 a thread
    expect(whole.locator(".result")).to_contain_text("Limited by: registers.")
    expect(whole.locator(".warps [class^=program]")).not_to_have_count(64)


def test_an_exercise_names_its_check_and_folds_its_hints(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    exercises = page.locator("#exercises")
    check = exercises.get_by_role("link", name="exercise.pyz")
    answer = page.request.get(page.evaluate("a => a.href", check.element_handle()))
    command = exercises.locator("li .exercise-check code").first.inner_text()
    _, file, name, _ = command.split()  # python exercise.pyz NAME mine.py
    assert file == "exercise.pyz"
    with zipfile.ZipFile(io.BytesIO(answer.body())) as archive:
        assert f'"{name}"' in archive.read("exercises/table.py").decode()
    hint = exercises.locator(".gallery-fold-hint").first
    expect(hint.locator("p")).to_be_hidden()
    hint.locator("summary").click()
    expect(hint.locator("p")).to_be_visible()


def test_an_xray_shows_what_a_line_became(page: Page, address: str) -> None:
    page.goto(f"{address}{FIRST}")
    panel = page.locator(".gallery-panel-kernel").first
    panel.get_by_role("tab", name="What the compiler made").click()
    panel.locator(".choosable").first.click()
    expect(panel.locator(".code .marked").first).to_be_visible()
    panel.get_by_role("tab", name="Kernel").click()
    expect(panel.locator(".code")).to_be_hidden()


def test_copy_buttons_copy_code_without_prompts(page: Page, address: str) -> None:
    def copied(block) -> str:
        page.evaluate("navigator.clipboard.writeText('')")
        block.hover()
        block.locator("button.copybtn").click()
        return wait_for(lambda: page.evaluate("navigator.clipboard.readText()").strip())

    page.goto(f"{address}{FIRST}")
    code = page.locator(".highlight-Python:not(.sphx-glr-script-out *, details *)").first
    assert copied(code) == (code.locator("pre").text_content() or "").strip()
    assert not page.locator(".sphx-glr-script-out button.copybtn").count()
    page.goto(f"{address}stable/getting-started/installation.html")
    commands = copied(page.locator(".highlight:has(.gp)").first).splitlines()
    assert not [line for line in commands if line.startswith("$")]


def test_a_trace_shows_what_a_program_loads(page: Page, address: str) -> None:
    step_through_the_first_trace(page, f"{address}{FIRST}")


def test_a_trace_opens_from_a_disk_too(page: Page, site: Path) -> None:
    step_through_the_first_trace(page, (site / FIRST.removeprefix("stable/")).as_uri())


def step_through_the_first_trace(page: Page, address: str) -> None:
    page.goto(address)
    player = page.locator("triton-trace").first
    player.scroll_into_view_if_needed()
    player.get_by_role("slider", name="Program").fill("1")
    said = player.locator(".said")
    expect(said).to_contain_text("loads 2 elements from 8 to 9 of x_ptr")
    player.get_by_role("button", name="Next").click()
    expect(said).to_contain_text("of y_ptr")
    expect(player.locator("pre .current")).to_contain_text("y = tl.load")
