"""The trace says what each program touches; the player shows it."""

import json
import random

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import triton_watch
from triton_watch.trace import in_runs, page, runs


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def shifted_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets - 1, mask=offsets < n)
    tl.store(out_ptr + offsets, x, mask=offsets < n)


@triton.jit
def count_kernel(x_ptr, count_ptr, stride, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows * stride)
    tl.atomic_add(count_ptr, tl.sum(x))


def launch_of(report):
    """The only launch in the page of a report, as data."""
    text = report.to_html()
    start = text.index('json">') + len('json">')
    (launch,) = json.loads(text[start : text.index("</script>", start)])["launches"]
    return launch


def added(n=10, block=8):
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    with triton_watch.watch(trace=True) as report:
        add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return report


def test_a_trace_has_elements_masks_lines_and_bytes_of_each_program():
    launch = launch_of(added())
    assert [tensor["name"] for tensor in launch["tensors"]] == ["x_ptr", "y_ptr", "out_ptr"]
    first, last = launch["programs"]
    assert [step["kind"] for step in first["steps"]] == ["load", "load", "store"]
    step = last["steps"][1]
    assert in_runs(step["elements"]) == [8, 9]
    assert in_runs(step["masked"]) == list(range(10, 16))
    assert step["bytes"] == 2 * 4
    source = launch["functions"][0]
    assert "y = tl.load" in source["source"][step["line"] - source["first"]]


def test_a_trace_keeps_the_access_that_is_out_of_bounds():
    with triton_watch.watch(trace=True) as report, pytest.raises(triton_watch.FaultError):
        shifted_kernel[(1,)](torch.randn(10), torch.empty(10), 10, BLOCK=8)
    (program,) = launch_of(report)["programs"]
    assert in_runs(program["steps"][0]["outside"]) == [-1]


def test_elements_of_a_view_are_numbered_as_the_reader_indexes_it():
    """A column of a matrix of 8 × 5: element i lies 5 elements behind element i - 1."""
    column = torch.randn(8, 5)[:, 2]
    with triton_watch.watch(trace=True) as report:
        count_kernel[(2,)](column, torch.zeros(1), 5, BLOCK=8)
    for program in launch_of(report)["programs"]:
        load, update = program["steps"]
        assert in_runs(load["elements"]) == list(range(8))
        assert update["kind"] == "atomic"


def test_without_a_trace_the_report_says_how_to_get_one():
    with triton_watch.watch() as report:
        pass
    with pytest.raises(ValueError, match="trace=True"):
        report.to_html()


def test_runs_stand_for_the_same_numbers():
    generator = random.Random(0)
    for _ in range(200):
        size = generator.randrange(60)
        numbers = {generator.randrange(-9, 90) for _ in range(size)}
        assert in_runs(runs(np.array(list(numbers), int))) == sorted(numbers)
    tile = np.arange(16)[:, None] * 64 + np.arange(16)
    assert runs(tile) == [[0, 16, 16, 64]]


def test_a_large_trace_stays_small():
    """Each tile of a matrix is one run, so a lesson's trace stays below 40 kB."""
    assert len(json.dumps(launch_of(added(n=4096, block=64)))) < 40_000


@pytest.fixture(scope="module")
def chromium():
    """A browser that cannot reach any host."""
    playwright = pytest.importorskip("playwright.sync_api")
    from shutil import which

    path = which("chromium") or which("google-chrome")
    if path is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, tmp_path):
    """Open a page of a trace, and return it."""
    pages = []

    def opened(text, **options):
        file = tmp_path / "trace.html"
        file.write_text(text, encoding="utf-8")
        context = chromium.new_context(offline=True, **options)
        new = context.new_page()
        new.on("pageerror", lambda error: pytest.fail(str(error)))
        new.goto(file.as_uri())
        pages.append(context)
        return new

    yield opened
    for context in pages:
        context.close()


def test_the_player_shows_a_step_by_keyboard(open_page):
    shown = open_page(added().to_html())
    shown.locator(".frame").focus()
    for _ in range(4):  # into the second step of program 1
        shown.keyboard.press("ArrowRight")
    assert "y = tl.load" in shown.locator("pre .current").inner_text()
    assert "loads 2 elements from 8 to 9 of y_ptr, 8 bytes" in shown.locator(".said").inner_text()
    second = shown.locator("figure").nth(1)
    assert second.locator("rect.load").count() == 2
    assert second.locator("rect.masked").count() == 6
    shown.keyboard.press("Home")
    assert "Program 0, step 1" in shown.locator(".said").inner_text()


def test_the_player_marks_what_is_out_of_bounds_and_who_else_uses_an_element(open_page):
    with triton_watch.watch(trace=True) as report, pytest.raises(triton_watch.FaultError):
        shifted_kernel[(1,)](torch.randn(10), torch.empty(10), 10, BLOCK=8)
    assert open_page(report.to_html()).locator("figure rect.outside").count() == 1
    with triton_watch.watch(trace=True) as report:
        count_kernel[(2,)](torch.randn(8), torch.zeros(1), 1, BLOCK=8)
    shown = open_page(report.to_html())
    assert "also touched by program 1" in shown.locator(".said").inner_text()
    assert shown.locator(".programs .linked").count() == 1


def test_the_player_fits_a_phone_and_has_a_table(open_page):
    shown = open_page(added(n=100, block=16).to_html(), viewport={"width": 360, "height": 740})
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    shown.locator("summary").click()
    rows = shown.locator("tbody tr")
    assert rows.count() == 3
    assert "16 elements from 0 to 15" in rows.first.inner_text()


def test_a_tensor_whose_name_looks_like_markup_stays_text(open_page):
    data = {
        "schema": 1,
        "launches": [
            {
                "kernel": "<b>k</b>",
                "grid": [1, 1, 1],
                "functions": [],
                "tensors": [{"name": "</script><i>x</i>", "shape": [2], "dtype": "int8"}],
                "programs": [
                    {
                        "index": [0, 0, 0],
                        "steps": [
                            {
                                "kind": "note",
                                "tensor": 0,
                                "elements": [[0, 2]],
                                "text": "m is 3",
                                "values": {"0": ["3", "-inf"]},
                            }
                        ],
                    }
                ],
                "left_out": 0,
            }
        ],
    }
    shown = open_page(page(data, "<i>title</i>"))
    assert shown.locator("figcaption code").inner_text() == "</script><i>x</i>"
    assert shown.locator("i").count() == 0
    assert shown.locator("figure text").all_text_contents() == ["3", "-inf"]
    assert "m is 3" in shown.locator(".said").inner_text()
